/*
 * The charts of a report: training curves, kernel profiles and energy by degree, all runs in each.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "report/html.h"
#include "report/report.h"
#include "report/svg.h"

enum {
    WIDE = 360,
    HIGH = 220,
    MOST_POINTS = 500, /* of a curve: about one for each pixel */
    FEW_POINTS = 24,   /* a curve of no more than these gets dots */
    GAP = 5            /* losses this many times as large have a panel of their own */
};

int zonal__report_colour(int run) {
    return run % 7 + 1;
}

int zonal__report_dashes(int run) {
    return run % 4;
}

/* ---- a chart in its frame -------------------------------------------------------------------- */

zonal_status zonal__report_put_chart(zonal__report *report, const zonal__svg_chart *chart) {
    zonal__svg_chart numbered = *chart;
    zonal_status status;
    numbered.page = report->charts + 1;
    numbered.width = WIDE;
    numbered.height = HIGH;
    zonal__file_print(report->file, "<figure><figcaption>");
    zonal__html_text(report->file, chart->title);
    if (chart->subtitle) {
        zonal__file_print(report->file, " <small>");
        zonal__html_text(report->file, chart->subtitle);
        zonal__file_print(report->file, "</small>");
    }
    zonal__file_print(report->file, "</figcaption>\n");
    status = zonal__svg_put(report->file, &numbered);
    if (status == ZONAL_NUMERIC) {
        zonal__file_print(report->file, "<p class=\"hint\">No value is a finite number.</p>\n");
        status = ZONAL_OK;
    }
    report->charts++;
    zonal__file_print(report->file, "</figure>\n");
    return status;
}

void zonal__report_put_legend(zonal__report *report) {
    if (report->count == 1) return;
    zonal__file_print(report->file, "<ul class=\"legend\">");
    for (int i = 0; i < report->count; i++) {
        zonal__file_print(report->file, "<li>");
        zonal__report_put_name(report, i);
        zonal__file_print(report->file, "</li>");
    }
    zonal__file_print(report->file, "</ul>\n");
}

/* ---- one panel of curves --------------------------------------------------------------------- */

typedef struct panel {
    const char *name; /* of the curve */
    const char
        *fallback; /* the curve of runs that have no such one, shown by its logarithm; or NULL */
    const char *title, *subtitle;
    double factor;
    int decades;   /* 1: on a logarithmic axis where the values span more than two decades */
    int above;     /* 1: as the share of the way from uniform points' value, 0, to collapse, 1 */
    uint32_t runs; /* which take part: bit i is run i; 0: all */
    double level;  /* a line to compare with, named "uniform"; NaN: none */
} panel;

/* The curves of one panel, thinned: [count][MOST_POINTS] each. */
typedef struct bundle {
    double *memory;
    zonal__svg_series series[ZONAL__REPORT_RUNS + 1];
    int count;
    int logarithmic;
    double first, last, low, high; /* of the steps and of the values */
    double level_x[2], level_y[2];
} bundle;

static int takes_part(const panel *p, int run) {
    return p->runs == 0 || (p->runs >> run & 1);
}

static double shown_value(const zonal__report *report, const panel *p, int run, int fallback,
                          double value) {
    double uniform = report->kernels[run].uniform;
    if (fallback) return value > 0 ? log10(value) : NAN;
    if (p->above) return (value - uniform) / (1 - uniform);
    return p->factor * value;
}

static void gather_run(const zonal__report *report, const panel *p, int run, bundle *b) {
    const zonal__report_series *from = zonal__report_series_of(&report->runs[run], p->name);
    int fallback = !from && p->fallback != NULL;
    double *x = b->memory + (size_t)2 * MOST_POINTS * (size_t)run, *y = x + MOST_POINTS;
    int64_t n;
    if (fallback) from = zonal__report_series_of(&report->runs[run], p->fallback);
    n = from ? zonal__report_thin(from, MOST_POINTS, x, y) : 0;
    if (n == 0) return;
    for (int64_t k = 0; k < n; k++) {
        y[k] = shown_value(report, p, run, fallback, y[k]);
        if (!isfinite(y[k])) continue;
        b->low = fmin(b->low, y[k]);
        b->high = fmax(b->high, y[k]);
        b->first = fmin(b->first, x[k]);
        b->last = fmax(b->last, x[k]);
    }
    b->series[b->count++] = (zonal__svg_series){.name = report->runs[run].name,
                                                .count = n,
                                                .x = x,
                                                .y = y,
                                                .marks = n <= FEW_POINTS,
                                                .colour = zonal__report_colour(run),
                                                .dashed = zonal__report_dashes(run)};
}

static void add_level(const panel *p, bundle *b) {
    if (!isfinite(p->level) || b->count == 0 || !(b->first < b->last)) return;
    b->level_x[0] = b->first;
    b->level_x[1] = b->last;
    b->level_y[0] = b->level_y[1] = p->level;
    b->low = fmin(b->low, p->level);
    b->high = fmax(b->high, p->level);
    b->series[b->count++] = (zonal__svg_series){
        .name = "uniform", .count = 2, .x = b->level_x, .y = b->level_y, .reference = 1};
}

static zonal_status put_panel(zonal__report *report, const panel *p) {
    bundle b = {.low = INFINITY, .high = -INFINITY, .first = INFINITY, .last = -INFINITY};
    zonal_status status = ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&b.memory, (int64_t)2 * MOST_POINTS * report->count, "the curves"));
    for (int i = 0; i < report->count; i++)
        if (takes_part(p, i)) gather_run(report, p, i, &b);
    add_level(p, &b);
    b.logarithmic = p->decades && b.low > 0 && b.high > 100 * b.low;
    if (p->fallback && b.low > b.high) b.count = 0; /* p was logged, and 0 throughout */
    if (b.count > 0) {
        const zonal__svg_chart chart = {.title = p->title,
                                        .subtitle = p->subtitle,
                                        .x_label = "step",
                                        .y_log = b.logarithmic,
                                        .series = b.series,
                                        .series_count = b.count};
        status = zonal__report_put_chart(report, &chart);
    }
    zonal__free(b.memory);
    return status;
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* Discrepancies are comparable within a family: MMD, KSD and SUSReg are 1 at collapse and 1/B for
 * uniform points, KL has another range, SIGReg none. */
enum { SQUARED, LOGARITHMIC, RAW, FAMILIES };

static int family_of(const zonal__report_run *run) {
    const char *method = zonal__report_setting_of(run, "method");
    if (!method) return SQUARED;
    return strncmp(method, "kl", 2) == 0   ? LOGARITHMIC
           : strcmp(method, "sigreg") == 0 ? RAW
                                           : SQUARED;
}

static uint32_t runs_of(const zonal__report *report, int family) {
    uint32_t runs = 0;
    for (int i = 0; i < report->count; i++)
        if (family_of(&report->runs[i]) == family) runs |= (uint32_t)1 << i;
    return runs;
}

/* Who is in a panel: a run by its name, several by their methods, each once. */
static void list_members(const zonal__report *report, uint32_t runs, char *out, size_t size) {
    const char *seen[ZONAL__REPORT_RUNS];
    int count = 0;
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < report->count; i++)
        if (runs == (uint32_t)1 << i) {
            snprintf(out, size, "%s", report->runs[i].name);
            return;
        }
    for (int i = 0; i < report->count; i++) {
        const char *method = zonal__report_setting_of(&report->runs[i], "method");
        int known = !method || !(runs >> i & 1);
        for (int k = 0; k < count && !known; k++) known = strcmp(seen[k], method) == 0;
        if (known || used >= size) continue;
        used += (size_t)snprintf(out + used, size - used, "%s%s", count ? ", " : "", method);
        seen[count++] = method;
    }
}

/* Of the runs that are left, those that belong in one panel: of one family, and with the gap to the
 * next larger loss beyond them at least a factor of GAP. */
static uint32_t next_panel(const zonal__report *report, uint32_t left) {
    uint32_t chosen = 0;
    double reach = NAN;
    int family = 0;
    while (!(runs_of(report, family) & left)) family++;
    left &= runs_of(report, family);
    for (;;) {
        int best = -1;
        double least = INFINITY;
        for (int i = 0; i < report->count; i++) {
            double loss = fabs(zonal__report_last(&report->runs[i], "loss"));
            if (!(left >> i & 1) || (best >= 0 && !(loss < least))) continue;
            best = i;
            least = isfinite(loss) ? loss : INFINITY;
        }
        if (best < 0 || (chosen && least > GAP * reach)) return chosen;
        chosen |= (uint32_t)1 << best;
        left &= ~((uint32_t)1 << best);
        reach = least;
    }
}

static zonal_status put_losses(zonal__report *report) {
    uint32_t left = 0;
    for (int i = 0; i < report->count; i++)
        if (zonal__report_series_of(&report->runs[i], "loss")) left |= (uint32_t)1 << i;
    for (int first = 1; left; first = 0) {
        char members[160];
        panel p = {.name = "loss", .title = "Loss", .factor = 1, .decades = 1, .level = NAN};
        p.runs = next_panel(report, left);
        left &= ~p.runs;
        list_members(report, p.runs, members, sizeof members);
        p.subtitle = first && !left ? "what is minimised" : members;
        ZONAL_TRY(put_panel(report, &p));
    }
    return ZONAL_OK;
}

/* The value that uniform points have in all of these runs; NaN where they differ. */
static double common_level(const zonal__report *report, uint32_t runs) {
    double level = NAN;
    for (int i = 0; i < report->count; i++) {
        double other = report->kernels[i].uniform;
        if (!(runs >> i & 1)) continue;
        if (isfinite(level) && other != level) return NAN;
        level = other;
    }
    return level;
}

/* Whether it is known for all of these runs what uniform points have. */
static int all_known(const zonal__report *report, uint32_t runs) {
    for (int i = 0; i < report->count; i++)
        if ((runs >> i & 1) && !isfinite(report->kernels[i].uniform)) return 0;
    return 1;
}

static zonal_status put_discrepancies(zonal__report *report) {
    for (int family = 0; family < FAMILIES; family++) {
        panel p = {.name = "discrepancy",
                   .title = "Discrepancy",
                   .subtitle = "from uniform; 1 at collapse",
                   .factor = 1,
                   .decades = 1,
                   .runs = runs_of(report, family)};
        p.level = common_level(report, p.runs);
        if (p.runs == 0) continue;
        if (family == LOGARITHMIC && all_known(report, p.runs)) {
            p.title = "Distance of KL from uniform";
            p.subtitle = "0: as uniform points of a batch, 1: collapse";
            p.above = 1;
            p.level = 0;
        } else if (family == RAW) {
            p.title = "SIGReg";
            p.subtitle = "from N(0, 1)";
        }
        ZONAL_TRY(put_panel(report, &p));
    }
    return ZONAL_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* One chart for each online evaluation that a run has logged. */
static zonal_status put_online(zonal__report *report) {
    for (int i = 0; i < report->count; i++)
        for (int64_t s = 0; s < report->runs[i].series_count; s++) {
            const char *name = report->runs[i].series[s].name;
            const char *word = zonal__report_result_title(name);
            char title[48], subtitle[128];
            const panel p = {
                .name = name, .title = title, .subtitle = subtitle, .factor = 100, .level = NAN};
            int seen = 0;
            for (int k = 0; k < i; k++)
                seen |= zonal__report_series_of(&report->runs[k], name) != NULL;
            if (!word || seen) continue;
            snprintf(title, sizeof title, "%s, %%", word);
            zonal__report_result_origin(name, subtitle, sizeof subtitle);
            ZONAL_TRY(put_panel(report, &p));
        }
    return ZONAL_OK;
}

static int is_there(const zonal__report *report, const char *name) {
    for (int i = 0; name && i < report->count; i++)
        if (zonal__report_series_of(&report->runs[i], name)) return 1;
    return 0;
}

static zonal_status put_group(zonal__report *report, const char *title, const panel *list,
                              int count) {
    int any = 0;
    for (int k = 0; k < count; k++)
        any |= is_there(report, list[k].name) || is_there(report, list[k].fallback);
    if (!any) return ZONAL_OK;
    zonal__file_print(report->file, "<h3>%s</h3><div class=\"charts\">\n", title);
    for (int k = 0; k < count; k++) ZONAL_TRY(put_panel(report, &list[k]));
    return zonal__file_print(report->file, "</div>\n");
}

/* Old runs logged p itself, which is 0 in double precision from the first steps on. */
static const panel monitors[] = {{.name = "mean_cosine",
                                  .title = "Mean cosine",
                                  .subtitle = "between images; 1 at collapse",
                                  .factor = 1,
                                  .level = NAN},
                                 {.name = "effective_rank",
                                  .title = "Effective rank",
                                  .subtitle = "directions in use",
                                  .factor = 1,
                                  .level = NAN},
                                 {.name = "log10_p",
                                  .fallback = "p_uniform",
                                  .title = "log\xe2\x82\x81\xe2\x82\x80 p of uniformity",
                                  .subtitle = "degrees 1 and 2; near 0: uniform",
                                  .factor = 1,
                                  .level = NAN},
                                 {.name = "rho",
                                  .title = "Signal share \xcf\x81",
                                  .subtitle = "of the variance, between images",
                                  .factor = 1,
                                  .level = NAN}};
static const panel steps[] = {
    {.name = "rate", .title = "Learning rate", .factor = 1, .level = NAN},
    {.name = "gradient_norm", .title = "Gradient norm", .factor = 1, .decades = 1, .level = NAN},
    {.name = "images_per_second", .title = "Images per second", .factor = 1, .level = NAN}};

zonal_status zonal__report_put_curves(zonal__report *report) {
    const panel invariance = {.name = "invariance",
                              .title = "Invariance",
                              .subtitle = "distance between views",
                              .factor = 1,
                              .decades = 1,
                              .level = NAN};
    int losses = is_there(report, "loss") || is_there(report, "discrepancy");
    if (!losses && !zonal__report_online(report)) return ZONAL_OK;
    zonal__report_put_section(report, "curves", "Training", NULL);
    zonal__report_put_legend(report);
    if (losses) {
        zonal__file_print(report->file, "<h3>Loss</h3><div class=\"charts\">\n");
        ZONAL_TRY(put_losses(report));
        ZONAL_TRY(put_panel(report, &invariance));
        ZONAL_TRY(put_discrepancies(report));
        zonal__file_print(report->file, "</div>\n");
    }
    if (zonal__report_online(report)) {
        zonal__file_print(report->file, "<h3>Online evaluation</h3><div class=\"charts\">\n");
        ZONAL_TRY(put_online(report));
        zonal__file_print(report->file, "</div>\n");
    }
    ZONAL_TRY(put_group(report, "Monitors", monitors, sizeof monitors / sizeof monitors[0]));
    ZONAL_TRY(put_group(report, "Optimisation", steps, sizeof steps / sizeof steps[0]));
    return zonal__file_print(report->file, "</section>\n");
}

/* ---- kernel profiles ------------------------------------------------------------------------- */

/* The profiles of all runs, each kernel once; a run without one is passed over. */
static int gather_profiles(const zonal__report *report, zonal__svg_series *series) {
    int count = 0;
    for (int i = 0; i < report->count; i++) {
        const zonal__report_kernel *kernel = &report->kernels[i];
        int known = !kernel->label[0];
        for (int k = 0; k < count; k++) known |= strcmp(series[k].name, kernel->label) == 0;
        if (known) continue;
        series[count++] = (zonal__svg_series){.name = kernel->label,
                                              .count = ZONAL__REPORT_PROFILE,
                                              .x = kernel->c,
                                              .y = kernel->phi,
                                              .colour = zonal__report_colour(i),
                                              .dashed = zonal__report_dashes(i)};
    }
    return count;
}

static void put_kernel_legend(zonal__report *report, const zonal__svg_series *series, int count) {
    zonal__file_print(report->file, "<ul class=\"legend\">");
    for (int i = 0; i < count; i++) {
        zonal__file_print(report->file, "<li>");
        zonal__report_put_swatch(report, series[i].colour, series[i].dashed);
        zonal__html_text(report->file, series[i].name);
        zonal__file_print(report->file, "</li>");
    }
    zonal__file_print(report->file, "</ul>\n");
}

zonal_status zonal__report_put_kernels(zonal__report *report) {
    zonal__svg_series series[ZONAL__REPORT_RUNS];
    int count = gather_profiles(report, series);
    const zonal__svg_chart chart = {.title = "\xcf\x86(c)",
                                    .subtitle = "by the cosine of two embeddings",
                                    .x_label = "cosine c",
                                    .x_low = -1,
                                    .x_high = 1,
                                    .series = series,
                                    .series_count = count};
    if (count == 0) return ZONAL_OK;
    zonal__report_put_section(
        report, "kernels", "Kernels",
        "How strongly two embeddings repel each other, by their cosine: the profile of each "
        "method's kernel, 1 for equal embeddings. Sliced methods are shown by the kernel of "
        "their limit over infinitely many slices.");
    put_kernel_legend(report, series, count);
    zonal__file_print(report->file, "<div class=\"charts\">\n");
    ZONAL_TRY(zonal__report_put_chart(report, &chart));
    return zonal__file_print(report->file, "</div></section>\n");
}

/* ---- energy by degree ------------------------------------------------------------------------ */

zonal_status zonal__report_put_degrees(zonal__report *report) {
    double degree[ZONAL__REPORT_DEGREES];
    zonal__svg_series series[ZONAL__REPORT_RUNS];
    int count = 0;
    for (int l = 0; l < ZONAL__REPORT_DEGREES; l++) degree[l] = l + 1;
    for (int i = 0; i < report->count; i++) {
        const zonal__report_run *run = &report->runs[i];
        if (run->degrees == 0) continue;
        series[count++] = (zonal__svg_series){.name = run->name,
                                              .count = run->degrees,
                                              .x = degree,
                                              .y = run->excess,
                                              .marks = 1,
                                              .colour = zonal__report_colour(i),
                                              .dashed = zonal__report_dashes(i)};
    }
    if (count == 0) return ZONAL_OK;
    zonal__report_put_section(
        report, "degrees", "Energy by degree",
        "How far the embeddings are from uniform at each degree of spherical harmonics, in "
        "standard deviations of uniform points: 0 \xc2\xb1 2 looks uniform, above is clustered, "
        "below "
        "is more even than chance.");
    zonal__report_put_legend(report);
    zonal__file_print(report->file, "<div class=\"charts\">\n");
    ZONAL_TRY(
        zonal__report_put_chart(report, &(zonal__svg_chart){.title = "Excess energy",
                                                            .subtitle = "in standard deviations",
                                                            .x_label = "degree",
                                                            .series = series,
                                                            .series_count = count}));
    return zonal__file_print(report->file, "</div></section>\n");
}
