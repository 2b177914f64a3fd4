/*
 * The charts of a report: training curves, kernel profiles and energy by degree, all runs in each.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/html.h"
#include "cli/method_options.h"
#include "cli/report.h"
#include "cli/svg.h"
#include "core/memory.h"

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

typedef struct profile {
    char label[160];
    double c[PROFILE_POINTS], phi[PROFILE_POINTS];
} profile;

static zonal_status scale_setting(const zonal__report_run *run, const char *key,
                                  zonal__scale *scale) {
    const char *value = zonal__report_setting_of(run, key);
    *scale = (zonal__scale){0};
    return value && value[0] ? zonal__text_scale(value, key, scale) : ZONAL_OK;
}

/* The last number of "2048-2048-256". */
static int64_t dimension_of(const zonal__report_run *run) {
    const char *widths = zonal__report_setting_of(run, "projector"), *last;
    if (!widths) return 0;
    last = strrchr(widths, '-');
    return strtoll(last ? last + 1 : widths, NULL, 10);
}

static zonal_status read_kernel(const zonal__report_run *run, int64_t dim, zonal_kernel_spec *spec,
                                double **weights) {
    const char *method = zonal__report_setting_of(run, "method");
    const char *band = zonal__report_setting_of(run, "band");
    const char *r = zonal__report_setting_of(run, "r");
    const char *plain = zonal__report_setting_of(run, "without-multiplicity");
    zonal__kernel_settings settings = {.spectrum = zonal__report_setting_of(run, "spectrum")};
    zonal_loss_options loss;
    *weights = NULL;
    if (!method) return ZONAL_FAIL(ZONAL_ARGUMENT, "no method is given");
    ZONAL_TRY(zonal_loss_defaults(method, &loss));
    if (loss.discrepancy == ZONAL_SIGREG)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "sigreg has no kernel on the sphere");
    if (dim < 2) return ZONAL_FAIL(ZONAL_ARGUMENT, "the projector's width is not known");
    ZONAL_TRY(scale_setting(run, "t", &settings.t));
    ZONAL_TRY(scale_setting(run, "scale", &settings.scale));
    if (band) ZONAL_TRY(zonal__text_int64(band, "band", &settings.band));
    if (r) ZONAL_TRY(zonal__text_double(r, "r", &settings.r));
    settings.without_multiplicity = plain && strcmp(plain, "true") == 0;
    *spec = loss.kernel;
    return zonal__kernel_settings_apply(&settings, dim, zonal__method_default_t(&loss), spec,
                                        weights);
}

static zonal_status make_profile(const zonal__report_run *run, profile *p) {
    int64_t dim = dimension_of(run);
    zonal_kernel_spec spec;
    zonal_kernel *kernel;
    double *weights;
    char parameter[96];
    zonal_status status;
    ZONAL_TRY(read_kernel(run, dim, &spec, &weights));
    spec.log_profile = 0;
    zonal__kernel_describe(&spec, dim, parameter, sizeof parameter);
    snprintf(p->label, sizeof p->label, "%s%s%s, d = %lld", zonal_family_name(spec.family),
             parameter[0] ? ", " : "", parameter, (long long)dim);
    status = zonal_kernel_create(&spec, dim, &kernel);
    zonal__free(weights);
    ZONAL_TRY(status);
    for (int i = 0; i < PROFILE_POINTS; i++)
        p->c[i] = (double)(2 * i - (PROFILE_POINTS - 1)) / (PROFILE_POINTS - 1);
    status = zonal_kernel_eval(kernel, 0, PROFILE_POINTS, p->c, p->phi);
    zonal_kernel_destroy(kernel);
    return status;
}

/* The profiles of all runs, each kernel once; a run without one is passed over. */
static zonal_status make_profiles(const zonal__report *report, profile *profiles,
                                  zonal__svg_series *series, int *count) {
    *count = 0;
    for (int i = 0; i < report->count; i++) {
        profile *p = &profiles[*count];
        zonal_status status = make_profile(&report->runs[i], p);
        int known = 0;
        if (status == ZONAL_MEMORY) return status;
        if (status != ZONAL_OK) continue; /* settings of no kernel that there is */
        for (int k = 0; k < *count; k++) known |= strcmp(profiles[k].label, p->label) == 0;
        if (known) continue;
        series[(*count)++] = (zonal__svg_series){.name = p->label,
                                                 .count = PROFILE_POINTS,
                                                 .x = p->c,
                                                 .y = p->phi,
                                                 .colour = zonal__report_colour(i),
                                                 .dashed = zonal__report_dashes(i)};
    }
    return ZONAL_OK;
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
    profile *profiles;
    zonal__svg_series series[ZONAL__REPORT_RUNS];
    zonal_status status;
    int count;
    ZONAL_TRY(ZONAL_NEW(&profiles, report->count, "the kernels' profiles"));
    status = make_profiles(report, profiles, series, &count);
    if (status == ZONAL_OK && count > 0) {
        const zonal__svg_chart chart = {.title = "\xcf\x86(c)",
                                        .subtitle = "by the cosine of two embeddings",
                                        .x_label = "cosine c",
                                        .x_low = -1,
                                        .x_high = 1,
                                        .series = series,
                                        .series_count = count};
        zonal__report_put_section(
            report, "kernels", "Kernels",
            "How strongly two embeddings repel each other, by their cosine: the profile of each "
            "method's kernel, 1 for equal embeddings. Sliced methods are shown by the kernel of "
            "their limit over infinitely many slices.");
        put_kernel_legend(report, series, count);
        zonal__file_print(report->file, "<div class=\"charts\">\n");
        status = put_chart(report, &chart);
        zonal__file_print(report->file, "</div></section>\n");
    }
    zonal__free(profiles);
    return status;
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
