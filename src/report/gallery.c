/*
 * The galleries of a report: what the networks retrieve, and views of the images.
 */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "report/html.h"
#include "report/report.h"

zonal_status zonal__gallery_shape(zonal__gallery *gallery, int rows, int columns) {
    ZONAL_TRY(ZONAL_NEW(&gallery->cells, (int64_t)rows * columns, "a gallery"));
    gallery->rows = rows;
    gallery->columns = columns;
    return ZONAL_OK;
}

void zonal__gallery_fini(zonal__gallery *gallery) {
    for (int i = 0; i < gallery->rows * gallery->columns; i++)
        zonal__image_fini(&gallery->cells[i].image);
    zonal__free(gallery->cells);
    *gallery = (zonal__gallery){0};
}

void zonal__report_omit_examples(zonal__report *report, const char *reason) {
    for (int i = 0; i < report->count; i++) {
        snprintf(report->retrieved[i].missing, sizeof report->retrieved[i].missing, "%s", reason);
        snprintf(report->views[i].missing, sizeof report->views[i].missing, "%s", reason);
        snprintf(report->embeddings[i].missing, sizeof report->embeddings[i].missing, "%s", reason);
    }
}

static zonal_status put_cell(zonal__report *report, const zonal__gallery_cell *cell, int first) {
    char alt[64];
    snprintf(alt, sizeof alt, "%s%s", cell->caption, cell->right ? ", the same image" : "");
    zonal__file_print(report->file, first ? "<figure class=\"apart\">" : "<figure>");
    ZONAL_TRY(
        zonal__html_image(report->file, &cell->image, cell->right ? "image right" : "image", alt));
    zonal__file_print(report->file, "<figcaption>");
    zonal__html_text(report->file, cell->caption);
    return zonal__file_print(report->file, "</figcaption></figure>\n");
}

static zonal_status put_gallery(zonal__report *report, int run, const zonal__gallery *gallery) {
    zonal__file_print(report->file, "<div class=\"gallery\"><h3>");
    zonal__report_put_name(report, run);
    zonal__file_print(report->file, "</h3>\n");
    for (int row = 0; row < gallery->rows; row++) {
        zonal__file_print(report->file, "<div class=\"row\" style=\"--others:%d\">\n",
                          gallery->columns - 1);
        for (int column = 0; column < gallery->columns; column++) {
            const zonal__gallery_cell *cell = &gallery->cells[row * gallery->columns + column];
            if (cell->image.pixels) ZONAL_TRY(put_cell(report, cell, column == 0));
        }
        zonal__file_print(report->file, "</div>\n");
    }
    return zonal__file_print(report->file, "</div>\n");
}

static int same_reason(const zonal__report *report, const zonal__gallery *galleries) {
    for (int i = 0; i < report->count; i++)
        if (strcmp(galleries[i].missing, galleries[0].missing) != 0) return 0;
    return galleries[0].missing[0] != '\0';
}

static zonal_status put_galleries(zonal__report *report, const zonal__gallery *galleries) {
    if (same_reason(report, galleries)) {
        zonal__report_put_missing(report, -1, galleries[0].missing);
    } else {
        zonal__file_print(report->file, "<div class=\"galleries\">\n");
        for (int i = 0; i < report->count; i++)
            if (galleries[i].missing[0])
                zonal__report_put_missing(report, i, galleries[i].missing);
            else if (galleries[i].rows > 0)
                ZONAL_TRY(put_gallery(report, i, &galleries[i]));
        zonal__file_print(report->file, "</div>\n");
    }
    return zonal__file_print(report->file, "</section>\n");
}

zonal_status zonal__report_put_images(zonal__report *report) {
    zonal__report_put_section(
        report, "retrieval", "Retrieval",
        "A random view of a test image, and the five views nearest to it by the cosine of their "
        "projections, among two views of each of up to 100 images. Framed: the other view of the "
        "same image.");
    ZONAL_TRY(put_galleries(report, report->retrieved));
    zonal__report_put_section(
        report, "views", "Views",
        "Training images, and views of each as the training draws them. Runs that draw "
        "the same views are shown once.");
    return put_galleries(report, report->views);
}
