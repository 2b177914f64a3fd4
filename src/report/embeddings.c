/*
 * The parts of the page about embeddings: maps, singular values, classes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "report/html.h"
#include "report/report.h"
#include "report/scatter.h"

enum { MOST_NAMED = 20 };            /* classes in a legend */
static const double SMALLEST = 1e-5; /* singular value that is drawn, of the largest */

static const char *class_name(const void *context, int class_number) {
    const zonal__report_embedding *e = context;
    return e->class_names[class_number];
}

/* Whether two runs have the same images and classes: their thumbnails are. */
static int same_images(const zonal__report *report, int a, int b) {
    const zonal__report_embedding *x = &report->embeddings[a], *y = &report->embeddings[b];
    return x->sheet == y->sheet && x->count == y->count && x->classes == y->classes;
}

/* ---- maps ------------------------------------------------------------------------------------ */

static void put_class_legend(zonal__report *report, const zonal__report_embedding *e) {
    if (e->classes == 0) return;
    zonal__file_print(report->file, "<ul class=\"legend\">");
    for (int c = 0; c < e->classes && c < MOST_NAMED; c++) {
        zonal__file_print(report->file, "<li><svg class=\"key\" viewBox=\"0 0 10 10\" "
                                        "aria-hidden=\"true\"><path class=\"");
        zonal__scatter_put_class(report->file, c);
        zonal__file_print(report->file, "\" d=\"M5 5h0\"/></svg>");
        zonal__html_text(report->file, e->class_names[c]);
        zonal__file_print(report->file, "</li>");
    }
    if (e->classes > MOST_NAMED)
        zonal__file_print(report->file, "<li>and %d more classes</li>", e->classes - MOST_NAMED);
    zonal__file_print(report->file, "</ul>\n");
}

static zonal_status put_map(zonal__report *report, const zonal__report_embedding *e,
                            const char *caption, zonal__scatter *s) {
    s->count = e->count;
    s->classes = e->classes;
    s->labels = e->labels;
    s->name = class_name;
    s->context = e;
    s->sheet = e->sheet;
    zonal__file_print(report->file, "<figure><figcaption>%s</figcaption>\n", caption);
    ZONAL_TRY(zonal__scatter_put(report->file, s));
    return zonal__file_print(report->file, "</figure>\n");
}

static zonal_status put_maps(zonal__report *report, int run) {
    const zonal__report_embedding *e = &report->embeddings[run];
    char title[2][200], label[2][64];
    zonal__scatter linear = {.title = title[0], .x_label = label[0], .y_label = label[1]};
    zonal__scatter nearest = {.title = title[1], .xy = e->tsne};
    linear.xy = e->pca;
    for (int c = 0; c < 2; c++)
        snprintf(label[c], sizeof label[c], "component %d, %.0f %% of the variance", c + 1,
                 100 * e->share[c]);
    snprintf(title[0], sizeof title[0], "%.80s: %lld test images by two principal components",
             report->runs[run].name, (long long)e->count);
    snprintf(title[1], sizeof title[1], "%.80s: t-SNE map of %lld test images",
             report->runs[run].name, (long long)e->count);
    zonal__file_print(report->file, "<div class=\"maps\"><h4>");
    zonal__report_put_name(report, run);
    zonal__report_put_state(report, run);
    zonal__file_print(report->file, " <small>%lld of %lld test images</small></h4>\n",
                      (long long)e->count, (long long)e->all);
    ZONAL_TRY(put_map(report, e, "PCA", &linear));
    ZONAL_TRY(put_map(report, e, "t-SNE", &nearest));
    return zonal__file_print(report->file, "</div>\n");
}

static zonal_status put_all_maps(zonal__report *report) {
    int before = -1;
    zonal__file_print(report->file, "<div class=\"mapped\">\n");
    for (int i = 0; i < report->count; i++) {
        const zonal__report_embedding *e = &report->embeddings[i];
        if (!e->pca) {
            if (e->missing[0]) zonal__report_put_missing(report, i, e->missing);
            continue;
        }
        if (before < 0 || !same_images(report, before, i)) put_class_legend(report, e);
        before = i;
        ZONAL_TRY(put_maps(report, i));
    }
    return zonal__file_print(report->file, "</div>\n");
}

static zonal_status put_sheets(zonal__report *report) {
    for (int i = 0; i < report->sheet_count; i++)
        ZONAL_TRY(zonal__html_image(report->file, &report->sheets[i], "sheet", ""));
    return ZONAL_OK;
}

/* ---- singular values ------------------------------------------------------------------------- */

static const zonal__report_spectrum *spectrum_of(const zonal__report_embedding *e,
                                                 int projections) {
    return projections ? &e->projections : &e->features;
}

static void find_longest(const zonal__report *report, int projections,
                         const zonal__report_spectrum **longest) {
    *longest = NULL;
    for (int i = 0; i < report->count; i++) {
        const zonal__report_spectrum *s = spectrum_of(&report->embeddings[i], projections);
        if (s->value && (!*longest || s->count > (*longest)->count)) *longest = s;
    }
}

/* The uniform level is drawn where it is the same for all: one dimension, as many images. */
static int add_uniform(const zonal__report *report, const zonal__report_spectrum *longest,
                       const double *index, double level[2][2], zonal__svg_series *series) {
    for (int i = 0; i < report->count; i++) {
        const zonal__report_spectrum *s = &report->embeddings[i].projections;
        if (s->value && (s->dim != longest->dim || s->count != longest->count)) return 0;
    }
    level[0][0] = 1;
    level[0][1] = (double)longest->count;
    level[1][0] = level[1][1] = 1 / sqrt((double)longest->dim);
    series[0] = (zonal__svg_series){.name = "1/\xe2\x88\x9a"
                                            "d",
                                    .count = 2,
                                    .x = level[0],
                                    .y = level[1],
                                    .reference = 1};
    series[1] = (zonal__svg_series){.name = "uniform points",
                                    .count = longest->count,
                                    .x = index,
                                    .y = longest->uniform,
                                    .dashed = 1,
                                    .reference = 1};
    return 2;
}

static zonal_status put_spectrum(zonal__report *report, int projections) {
    const zonal__report_spectrum *longest;
    zonal__svg_series series[ZONAL__REPORT_RUNS + 2];
    double *index, level[2][2], largest = 0, smallest = INFINITY;
    int count = 0;
    zonal_status status;
    find_longest(report, projections, &longest);
    if (!longest) return ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&index, longest->count, "the singular values"));
    for (int64_t k = 0; k < longest->count; k++) index[k] = (double)(k + 1);
    for (int i = 0; i < report->count; i++) {
        const zonal__report_spectrum *s = spectrum_of(&report->embeddings[i], projections);
        if (!s->value) continue;
        largest = fmax(largest, s->value[0]);
        smallest = fmin(smallest, s->value[s->count - 1]);
        series[count++] = (zonal__svg_series){.name = report->runs[i].name,
                                              .count = s->count,
                                              .x = index,
                                              .y = s->value,
                                              .colour = zonal__report_colour(i),
                                              .dashed = zonal__report_dashes(i)};
    }
    smallest = fmax(smallest, SMALLEST * largest);
    if (projections) count += add_uniform(report, longest, index, level, series + count);
    status = zonal__report_put_chart(
        report,
        &(zonal__svg_chart){.title = projections ? "Projections" : "Backbone features",
                            .subtitle = "singular values / \xe2\x88\x9a(images), largest first",
                            .x_label = "number",
                            .y_log = 1,
                            .y_low = .7 * smallest,
                            .y_high = 1.4 * largest,
                            .series = series,
                            .series_count = count});
    zonal__free(index);
    return status;
}

static zonal_status put_spectra(zonal__report *report) {
    const zonal__report_spectrum *any;
    find_longest(report, 1, &any);
    if (!any) return ZONAL_OK;
    zonal__file_print(
        report->file,
        "<h3>Singular values</h3><p>Of the unit rows of the same images. Uniform points in d "
        "dimensions have 1/\xe2\x88\x9a"
        "d in every direction, but for chance: so many points, drawn at random, have the dashed "
        "line. A curve that falls below it leaves directions unused.</p>\n");
    zonal__report_put_legend(report);
    zonal__file_print(report->file, "<div class=\"charts\">\n");
    ZONAL_TRY(put_spectrum(report, 1));
    ZONAL_TRY(put_spectrum(report, 0));
    return zonal__file_print(report->file, "</div>\n");
}

static int same_reason(const zonal__report *report) {
    for (int i = 0; i < report->count; i++)
        if (report->embeddings[i].pca ||
            strcmp(report->embeddings[i].missing, report->embeddings[0].missing) != 0)
            return 0;
    return report->embeddings[0].missing[0] != '\0';
}

zonal_status zonal__report_put_embeddings(zonal__report *report) {
    zonal__report_put_section(
        report, "embeddings", "Embeddings",
        "What the backbone makes of test images, one still view of each, scaled to unit length: by "
        "its two largest principal components, and by t-SNE, which begins there and keeps "
        "neighbours together, while distances between groups mean little. Point at a dot to see "
        "the image.");
    if (same_reason(report)) {
        zonal__report_put_missing(report, -1, report->embeddings[0].missing);
    } else {
        ZONAL_TRY(put_sheets(report));
        ZONAL_TRY(put_all_maps(report));
        ZONAL_TRY(put_spectra(report));
    }
    return zonal__file_print(report->file, "</section>\n");
}
