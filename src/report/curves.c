/*
 * The charts of a report: training curves, kernel profiles and energy by degree, all runs in each.
 */
#include <math.h>
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
    PROFILE_POINTS = 201
};

int zonal__report_colour(int run) {
    return run % 7 + 1;
}

int zonal__report_dashes(int run) {
    return run % 4;
}

/* ---- a chart in its frame -------------------------------------------------------------------- */

/* A chart with nothing to show is no failure: a sentence stands in its place. */
static zonal_status put_chart(zonal__report *report, const zonal__svg_chart *chart) {
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

static void put_legend(zonal__report *report) {
    zonal__file_print(report->file, "<ul class=\"legend\">");
    for (int i = 0; i < report->count; i++) {
        zonal__file_print(report->file, "<li>");
        zonal__report_put_name(report, i);
        zonal__file_print(report->file, "</li>");
    }
    zonal__file_print(report->file, "</ul>\n");
}

/* ---- training curves ------------------------------------------------------------------------- */

typedef struct curve {
    const char *name, *title, *subtitle;
    double factor;
    int decades; /* 1: on a logarithmic axis where the values span more than two decades */
} curve;

/* The curves of one chart, thinned: [count][MOST_POINTS] each. */
typedef struct bundle {
    double *memory;
    zonal__svg_series series[ZONAL__REPORT_RUNS];
    int count;
    int logarithmic;
} bundle;

static zonal_status gather(const zonal__report *report, const curve *what, bundle *b) {
    double low = INFINITY, high = -INFINITY;
    *b = (bundle){0};
    ZONAL_TRY(ZONAL_NEW(&b->memory, (int64_t)2 * MOST_POINTS * report->count, "the curves"));
    for (int i = 0; i < report->count; i++) {
        const zonal__report_series *from = zonal__report_series_of(&report->runs[i], what->name);
        double *x = b->memory + (size_t)2 * MOST_POINTS * (size_t)i, *y = x + MOST_POINTS;
        int64_t n = from ? zonal__report_thin(from, MOST_POINTS, x, y) : 0;
        if (n == 0) continue;
        for (int64_t k = 0; k < n; k++) {
            y[k] *= what->factor;
            if (!isfinite(y[k])) continue;
            low = fmin(low, y[k]);
            high = fmax(high, y[k]);
        }
        b->series[b->count++] = (zonal__svg_series){.name = report->runs[i].name,
                                                    .count = n,
                                                    .x = x,
                                                    .y = y,
                                                    .marks = n <= FEW_POINTS,
                                                    .colour = zonal__report_colour(i),
                                                    .dashed = zonal__report_dashes(i)};
    }
    b->logarithmic = what->decades && low > 0 && high > 100 * low;
    return ZONAL_OK;
}

static zonal_status put_curve(zonal__report *report, const curve *what) {
    bundle b;
    zonal_status status = gather(report, what, &b);
    if (status == ZONAL_OK && b.count > 0) {
        const zonal__svg_chart chart = {.title = what->title,
                                        .subtitle = what->subtitle,
                                        .x_label = "step",
                                        .y_log = b.logarithmic,
                                        .series = b.series,
                                        .series_count = b.count};
        status = put_chart(report, &chart);
    }
    zonal__free(b.memory);
    return status;
}

/* One chart for each online evaluation that a run has logged. */
static zonal_status put_online(zonal__report *report) {
    for (int i = 0; i < report->count; i++)
        for (int64_t s = 0; s < report->runs[i].series_count; s++) {
            const char *name = report->runs[i].series[s].name;
            const char *word = zonal__report_result_title(name);
            char title[48], subtitle[128];
            const curve what = {name, title, subtitle, 100, 0};
            int seen = 0;
            for (int k = 0; k < i; k++)
                seen |= zonal__report_series_of(&report->runs[k], name) != NULL;
            if (!word || seen) continue;
            snprintf(title, sizeof title, "%s, %%", word);
            zonal__report_result_origin(name, subtitle, sizeof subtitle);
            ZONAL_TRY(put_curve(report, &what));
        }
    return ZONAL_OK;
}

static int is_there(const zonal__report *report, const curve *list, int count) {
    for (int i = 0; i < report->count; i++)
        for (int k = 0; k < count; k++)
            if (zonal__report_series_of(&report->runs[i], list[k].name)) return 1;
    return 0;
}

static zonal_status put_group(zonal__report *report, const char *title, const curve *list,
                              int count) {
    if (!is_there(report, list, count)) return ZONAL_OK;
    zonal__file_print(report->file, "<h3>%s</h3><div class=\"charts\">\n", title);
    for (int k = 0; k < count; k++) ZONAL_TRY(put_curve(report, &list[k]));
    return zonal__file_print(report->file, "</div>\n");
}

zonal_status zonal__report_put_curves(zonal__report *report) {
    static const curve losses[] = {
        {"loss", "Loss", "what is minimised", 1, 0},
        {"invariance", "Invariance", "distance between views", 1, 1},
        {"discrepancy", "Discrepancy", "from uniform; 1 at collapse", 1, 1}};
    static const curve meters[] = {
        {"mean_cosine", "Mean cosine", "between samples; 1 at collapse", 1, 0},
        {"effective_rank", "Effective rank", "directions in use", 1, 0},
        {"p_uniform", "p of uniformity", "small: not uniform", 1, 1}};
    static const curve steps[] = {{"rate", "Learning rate", NULL, 1, 0},
                                  {"gradient_norm", "Gradient norm", NULL, 1, 1},
                                  {"images_per_second", "Images per second", NULL, 1, 0}};
    if (!is_there(report, losses, 3) && !zonal__report_online(report)) return ZONAL_OK;
    zonal__report_put_section(report, "curves", "Training", NULL);
    put_legend(report);
    ZONAL_TRY(put_group(report, "Loss", losses, 3));
    if (zonal__report_online(report)) {
        zonal__file_print(report->file, "<h3>Online evaluation</h3><div class=\"charts\">\n");
        ZONAL_TRY(put_online(report));
        zonal__file_print(report->file, "</div>\n");
    }
    ZONAL_TRY(put_group(report, "Collapse meter", meters, 3));
    ZONAL_TRY(put_group(report, "Optimisation", steps, 3));
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
    ZONAL_TRY(put_chart(report, &chart));
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
    put_legend(report);
    zonal__file_print(report->file, "<div class=\"charts\">\n");
    ZONAL_TRY(put_chart(report, &(zonal__svg_chart){.title = "Excess energy",
                                                    .subtitle = "in standard deviations",
                                                    .x_label = "degree",
                                                    .series = series,
                                                    .series_count = count}));
    return zonal__file_print(report->file, "</div></section>\n");
}
