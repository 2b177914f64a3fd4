#include "report/scatter.h"

#include <math.h>

#include "report/html.h"

enum { SIDE = 320, EDGE = 10, LABEL = 20, COLOURS = 10 };

typedef struct frame {
    double low[2], scale; /* the same for both axes: distances are to be compared */
    double left, bottom, centre[2];
} frame;

static frame fit(const zonal__scatter *s) {
    frame f = {.left = EDGE, .bottom = SIDE - EDGE};
    double high[2] = {-INFINITY, -INFINITY}, room, span;
    f.low[0] = f.low[1] = INFINITY;
    for (int64_t i = 0; i < 2 * s->count; i++) {
        f.low[i % 2] = fmin(f.low[i % 2], s->xy[i]);
        high[i % 2] = fmax(high[i % 2], s->xy[i]);
    }
    if (s->x_label) f.bottom -= LABEL;
    if (s->y_label) f.left += LABEL;
    room = fmin(SIDE - EDGE - f.left, f.bottom - EDGE) - 12; /* dots on the frame stay whole */
    span = fmax(high[0] - f.low[0], high[1] - f.low[1]);
    f.scale = span > 0 ? room / span : 0;
    f.centre[0] = (f.left + SIDE - EDGE - f.scale * (high[0] + f.low[0])) / 2;
    f.centre[1] = (EDGE + f.bottom + f.scale * (high[1] + f.low[1])) / 2;
    return f;
}

void zonal__scatter_put_class(zonal__file *file, int class_number) {
    zonal__file_print(file, "k%d%s", class_number % COLOURS,
                      class_number / COLOURS % 2 ? " square" : "");
}

/* A point is a line of no length, which its ends make a dot. */
static void put_points(zonal__file *file, const zonal__scatter *s, const frame *f, int wanted) {
    int shown = 0;
    zonal__file_print(file, "<path class=\"");
    zonal__scatter_put_class(file, wanted);
    zonal__file_print(file, "\" data-i=\"");
    for (int64_t i = 0; i < s->count; i++)
        if (s->classes == 0 || s->labels[i] == wanted)
            zonal__file_print(file, shown++ ? " %lld" : "%lld", (long long)i);
    zonal__file_print(file, "\" d=\"");
    for (int64_t i = 0; i < s->count; i++)
        if (s->classes == 0 || s->labels[i] == wanted)
            zonal__file_print(file, "M%.1f %.1fh0", f->centre[0] + f->scale * s->xy[2 * i],
                              f->centre[1] - f->scale * s->xy[2 * i + 1]);
    zonal__file_print(file, "\">");
    if (s->classes > 0) {
        zonal__file_print(file, "<title>");
        zonal__html_text(file, s->name(s->context, wanted));
        zonal__file_print(file, "</title>");
    }
    zonal__file_print(file, "</path>\n");
}

static void put_labels(zonal__file *file, const zonal__scatter *s, const frame *f) {
    if (s->x_label) {
        zonal__file_print(file,
                          "<text class=\"label\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" "
                          "font-size=\"12\">",
                          (f->left + SIDE - EDGE) / 2, SIDE - 8);
        zonal__html_short(file, s->x_label, 50);
        zonal__file_print(file, "</text>\n");
    }
    if (s->y_label) {
        zonal__file_print(file,
                          "<text class=\"label\" transform=\"translate(18 %.1f) rotate(-90)\" "
                          "text-anchor=\"middle\" font-size=\"12\">",
                          (EDGE + f->bottom) / 2);
        zonal__html_short(file, s->y_label, 50);
        zonal__file_print(file, "</text>\n");
    }
}

zonal_status zonal__scatter_put(zonal__file *file, const zonal__scatter *s) {
    const frame f = fit(s);
    zonal__file_print(file,
                      "<svg class=\"map\" viewBox=\"0 0 %d %d\" role=\"img\" data-sheet=\"%d\" "
                      "aria-label=\"",
                      SIDE, SIDE, s->sheet);
    zonal__html_text(file, s->title);
    zonal__file_print(file,
                      "\">\n<rect class=\"frame\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" "
                      "height=\"%.1f\"/>\n",
                      f.left, EDGE, SIDE - EDGE - f.left, f.bottom - EDGE);
    for (int c = 0; c < (s->classes > 0 ? s->classes : 1); c++) put_points(file, s, &f, c);
    put_labels(file, s, &f);
    return zonal__file_print(file, "</svg>\n");
}
