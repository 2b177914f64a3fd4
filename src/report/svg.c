#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/file.h"
#include "core/text.h"
#include "report/html.h"

enum { WIDTH = 720, HEIGHT = 440, MOST_SERIES = 24, MOST_TICKS = 64, LONGEST_NAME = 34 };

static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                      "#E69F00", "#56B4E9", "#000000"};
static const double DIGIT = 7.7; /* width of a digit of 12 pixels: the widest fonts have .64 */
static const char *const patterns[] = {"none", "6 4", "1.5 4", "9 4 1.5 4"}; /* by "dashed" */
#define MINUS "\xe2\x88\x92" /* U+2212, as wide as a digit */
enum {
    COLOURS = sizeof colours / sizeof colours[0],
    PATTERNS = sizeof patterns / sizeof patterns[0]
};

typedef struct tick {
    double value;
    int labelled;
} tick;

/* One axis: values "low" to "high" (their logarithms when "log") lie between two pixels. */
typedef struct axis {
    int log;
    double low, high, pixel_low, pixel_high;
    double step; /* between the labels of a linear axis */
    int count;
    tick ticks[MOST_TICKS];
} axis;

typedef struct drawing {
    zonal__file *file;
    const zonal__svg_chart *chart;
    axis x, y;
    int width, height;
    double left, right, top, bottom; /* of the plotting area */
} drawing;

/* ---- axes ------------------------------------------------------------------------------------ */

/* Beyond 1e300 the difference of two values could overflow. */
static int drawable(const axis *a, double value) {
    return fabs(value) <= 1e300 && (!a->log || value > 0);
}

static double place(const axis *a, double value) {
    return a->log ? log10(value) : value;
}

static double pixel(const axis *a, double value) {
    double share = (place(a, value) - a->low) / (a->high - a->low);
    return a->pixel_low + share * (a->pixel_high - a->pixel_low);
}

/* The smallest of 1, 2, 2.5, 5 times a power of ten that cuts the span into at most "parts". */
static double good_step(double span, int parts) {
    static const double steps[] = {1, 2, 2.5, 5, 10};
    double power = pow(10, floor(log10(span / parts)));
    for (int i = 0; i < 5; i++)
        if (steps[i] * power * parts >= span * (1 - 1e-9)) return steps[i] * power;
    return 10 * power;
}

static void add_tick(axis *a, double value, int labelled) {
    double at = place(a, value), slack = 1e-9 * (a->high - a->low);
    if (a->count == MOST_TICKS || at < a->low - slack || at > a->high + slack) return;
    a->ticks[a->count++] = (tick){value, labelled};
}

static void tick_linear(axis *a, int parts, double low, double high) {
    a->step = good_step(high - low, parts);
    for (double k = ceil(low / a->step - 1e-9); k * a->step <= high + 1e-9 * a->step; k++)
        add_tick(a, k == 0 ? 0 : k * a->step, 1);
}

/* Decades, every n-th of them labelled; among few decades also 2 and 5 are, and the rest get small
 * ticks. A span so short that it holds less than two labels is divided like a linear axis. */
static void tick_log(axis *a, int parts) {
    double span = a->high - a->low;
    int stride = (int)ceil(span / parts), labelled = 0;
    for (double k = floor(a->low); k <= a->high; k++)
        for (int m = 1; m < 10; m++) {
            int label = m == 1 ? fmod(k, stride) == 0 : span < 2.2 && (m == 2 || m == 5);
            if (label || span <= 5 || (m == 1 && span <= 30)) add_tick(a, m * pow(10, k), label);
        }
    for (int i = 0; i < a->count; i++) labelled += a->ticks[i].labelled;
    if (labelled >= 2) return;
    a->count = 0;
    tick_linear(a, 5, pow(10, a->low), pow(10, a->high));
}

/* The range of the data, or the one that was asked for. */
static zonal_status find_range(axis *a, const zonal__svg_chart *chart, int vertical, double low,
                               double high) {
    a->log = vertical ? chart->y_log : chart->x_log;
    a->low = INFINITY;
    a->high = -INFINITY;
    if (low < high) {
        if (!drawable(a, low) || !drawable(a, high))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "an axis cannot reach from %g to %g%s", low, high,
                              a->log ? " on a logarithmic scale" : "");
        a->low = place(a, low);
        a->high = place(a, high);
        return ZONAL_OK;
    }
    for (int s = 0; s < chart->series_count; s++) {
        const zonal__svg_series *series = &chart->series[s];
        for (int64_t i = 0; i < series->count; i++) {
            const axis other = {.log = vertical ? chart->x_log : chart->y_log};
            double value = vertical ? series->y[i] : series->x[i];
            if (!drawable(a, value) || !drawable(&other, vertical ? series->x[i] : series->y[i]))
                continue;
            a->low = fmin(a->low, place(a, value));
            a->high = fmax(a->high, place(a, value));
        }
    }
    if (!(a->low <= a->high))
        return ZONAL_FAIL(ZONAL_NUMERIC, "there is nothing to draw in \"%s\": no point is finite%s",
                          chart->title ? chart->title : "the chart",
                          chart->x_log || chart->y_log ? " and positive" : "");
    return ZONAL_OK;
}

/* Rounds the range outwards where the data decide it, so that no line runs along the frame. */
static void make_axis(axis *a, int vertical, int fixed, int parts) {
    double span = a->high - a->low, size = fmax(fabs(a->low), fabs(a->high));
    if (!(span > fmax(1e-12 * size, 1e-280))) {
        double half = a->log ? .5 : size > 1e-280 ? .1 * size : 1;
        a->low -= half;
        a->high += half;
    } else if (!fixed && vertical && a->log && span > 1.5) {
        a->low = floor(a->low + 1e-9);
        a->high = ceil(a->high - 1e-9);
    } else if (!fixed && vertical && !a->log) {
        double step = good_step(span, 5);
        a->low = floor(a->low / step + 1e-9) * step;
        a->high = ceil(a->high / step - 1e-9) * step;
    } else if (!fixed && vertical) {
        a->low -= .05 * span;
        a->high += .05 * span;
    }
    if (a->log)
        tick_log(a, parts);
    else
        tick_linear(a, parts, a->low, a->high);
}

/* ---- text ------------------------------------------------------------------------------------ */

static int count_characters(const char *text) {
    int count = 0;
    for (; *text; count++) {
        int bytes = zonal__text_utf8(text);
        text += bytes ? bytes : 1;
    }
    return count;
}

/* Fonts differ: this is the width of an average letter of a sans-serif, a little on the wide side.
 */
static double text_width(const char *text, double size) {
    return .56 * size * count_characters(text);
}

/* The decimals that all multiples of a step need. */
static int decimals_of(double step) {
    int decimals = 0;
    while (decimals < 12 && fabs(rint(step * pow(10, decimals)) - step * pow(10, decimals)) > 1e-6)
        decimals++;
    return decimals;
}

static int wants_powers(const axis *a) {
    double largest = fmax(fabs(a->low), fabs(a->high));
    return a->log ? a->low < -3.5 || a->high > 5.5 : largest >= 1e6 || largest < 1e-3;
}

static int put_plain_number(zonal__file *file, const axis *a, double value) {
    char digits[64];
    int decimals = a->step > 0 ? decimals_of(a->step) : value < 1 ? decimals_of(value) : 0;
    snprintf(digits, sizeof digits, "%.*f", value == 0 ? 0 : decimals, fabs(value));
    if (file) zonal__file_print(file, "%s%s", value < 0 ? MINUS : "", digits);
    return (int)strlen(digits) + (value < 0);
}

/* 2.5 times 10 with a raised exponent. */
static int put_power(zonal__file *file, const axis *a, double value) {
    int exponent = (int)floor(log10(fabs(value)) + 1e-9), digits = 1, width;
    char mantissa[32], raised[16];
    if (a->step > 0) digits = exponent - (int)floor(log10(a->step) + 1e-9) + 2;
    snprintf(mantissa, sizeof mantissa, "%.*g", digits, fabs(value) / pow(10, exponent));
    snprintf(raised, sizeof raised, "%s%d", exponent < 0 ? MINUS : "", abs(exponent));
    width = strcmp(mantissa, "1") == 0 ? 0 : (int)strlen(mantissa) + 1;
    if (file && value < 0) zonal__file_print(file, MINUS);
    if (file && width > 0) zonal__file_print(file, "%s\xc2\xb7", mantissa);
    if (file) zonal__file_print(file, "10<tspan dy=\"-4.5\" font-size=\"9\">%s</tspan>", raised);
    return width + 2 + count_characters(raised) + (value < 0);
}

/* Returns the width in characters; "file" may be NULL to ask only for that. */
static int put_number(zonal__file *file, const axis *a, double value) {
    if (value != 0 && wants_powers(a)) return put_power(file, a, value);
    return put_plain_number(file, a, value);
}

/* ---- the parts of the drawing ---------------------------------------------------------------- */

static const zonal__svg_series *series_at(const drawing *p, int s) {
    return &p->chart->series[s];
}

static void lay_out(drawing *p) {
    double names = 0, numbers = 0, last;
    for (int s = 0; s < p->chart->series_count; s++) {
        const char *name = series_at(p, s)->name;
        int most = LONGEST_NAME;
        if (!name || p->chart->page) continue;
        if (count_characters(name) < most) most = count_characters(name);
        names = fmax(names, .56 * 12 * most);
    }
    for (int i = 0; i < p->y.count; i++)
        if (p->y.ticks[i].labelled)
            numbers = fmax(numbers, DIGIT * put_number(NULL, &p->y, p->y.ticks[i].value));
    p->left = (p->chart->page ? 12 : 22) + numbers + (p->chart->y_label ? 22 : 0);
    p->right = names > 0 ? p->width - 54 - names : p->width - (p->chart->page ? 18 : 28);
    last =
        p->x.count > 0 ? DIGIT / 2 * put_number(NULL, &p->x, p->x.ticks[p->x.count - 1].value) : 0;
    p->right = fmin(p->right, p->width - 4 - last); /* half of the last number stands beyond */
    p->top = p->chart->page ? 10 : p->chart->subtitle ? 70 : p->chart->title ? 54 : 24;
    p->bottom = p->height - (p->chart->page ? 26 : 36) - (p->chart->x_label ? 22 : 0);
    p->x.pixel_low = p->left;
    p->x.pixel_high = p->right;
    p->y.pixel_low = p->bottom;
    p->y.pixel_high = p->top;
}

static void put_clip(const drawing *p) {
    zonal__file_print(p->file,
                      "<clipPath id=\"area%d\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                      "height=\"%.1f\"/></clipPath>\n",
                      p->chart->page, p->left - 1, p->top - 1, p->right - p->left + 2,
                      p->bottom - p->top + 2);
}

/* A script finds in the attributes how pixels become values: the area, and the axes' ends. */
static void put_page_heading(const drawing *p) {
    zonal__file_print(p->file,
                      "<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" "
                      "data-area=\"%.2f %.2f %.2f %.2f\" data-ends=\"%.9g %.9g %.9g %.9g\" "
                      "data-log=\"%d %d\" aria-label=\"",
                      p->width, p->height, p->left, p->right, p->bottom, p->top, p->x.low,
                      p->x.high, p->y.low, p->y.high, p->x.log, p->y.log);
    zonal__html_short(p->file, p->chart->title ? p->chart->title : "chart", 200);
    zonal__file_print(p->file, "\">\n");
    put_clip(p);
}

static void put_heading(const drawing *p) {
    const char *title = p->chart->title, *subtitle = p->chart->subtitle;
    int room = p->width - 48;
    zonal__file_print(p->file,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                      "viewBox=\"0 0 %d %d\" role=\"img\" font-family=\"system-ui, -apple-system, "
                      "'Segoe UI', Helvetica, Arial, sans-serif\">\n<title>",
                      p->width, p->height, p->width, p->height);
    zonal__html_short(p->file, title ? title : "chart", 200);
    zonal__file_print(p->file, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
                      p->width, p->height);
    put_clip(p);
    if (title) {
        double size = fmin(17, 17 * room / text_width(title, 17));
        zonal__file_print(p->file,
                          "<text x=\"24\" y=\"32\" font-size=\"%.1f\" font-weight=\"600\" "
                          "fill=\"#1a1a1a\">",
                          fmax(size, 9));
        zonal__html_short(p->file, title, 130);
        zonal__file_print(p->file, "</text>\n");
    }
    if (subtitle) {
        double size = fmin(12.5, 12.5 * room / text_width(subtitle, 12.5));
        zonal__file_print(p->file, "<text x=\"24\" y=\"51\" font-size=\"%.1f\" fill=\"#595959\">",
                          fmax(size, 8));
        zonal__html_short(p->file, subtitle, 150);
        zonal__file_print(p->file, "</text>\n");
    }
}

enum line_class { GRID, ZERO, AXIS };

static void put_line(const drawing *p, double x1, double y1, double x2, double y2,
                     enum line_class class) {
    static const char *const styles[] = {"class=\"grid\" stroke=\"#e6e6e6\"",
                                         "class=\"zero\" stroke=\"#b3b3b3\"",
                                         "class=\"axis\" stroke=\"#4d4d4d\""};
    zonal__file_print(p->file, "<line %s x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n",
                      styles[class], x1, y1, x2, y2);
}

static void put_x_axis(const drawing *p) {
    for (int i = 0; i < p->x.count; i++) {
        double at = pixel(&p->x, p->x.ticks[i].value);
        put_line(p, at, p->bottom, at, p->bottom + (p->x.ticks[i].labelled ? 6 : 3), AXIS);
        if (!p->x.ticks[i].labelled) continue;
        zonal__file_print(p->file,
                          "<text class=\"tick\" x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\" "
                          "font-size=\"12\" fill=\"#333333\">",
                          at, p->bottom + 20);
        put_number(p->file, &p->x, p->x.ticks[i].value);
        zonal__file_print(p->file, "</text>\n");
    }
    put_line(p, p->left, p->bottom, p->right, p->bottom, AXIS);
    if (!p->chart->x_label) return;
    zonal__file_print(p->file,
                      "<text class=\"label\" x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\" "
                      "font-size=\"13\" fill=\"#1a1a1a\">",
                      (p->left + p->right) / 2, p->bottom + (p->chart->page ? 40 : 43));
    zonal__html_short(p->file, p->chart->x_label, 90);
    zonal__file_print(p->file, "</text>\n");
}

static void put_y_axis(const drawing *p) {
    for (int i = 0; i < p->y.count; i++) {
        double at = pixel(&p->y, p->y.ticks[i].value);
        int zero = p->y.ticks[i].value == 0;
        if (!p->y.ticks[i].labelled) {
            put_line(p, p->left - 3, at, p->left, at, AXIS);
            continue;
        }
        if (fabs(at - p->bottom) > .5) put_line(p, p->left, at, p->right, at, zero ? ZERO : GRID);
        put_line(p, p->left - 6, at, p->left, at, AXIS);
        zonal__file_print(p->file,
                          "<text class=\"tick\" x=\"%.2f\" y=\"%.2f\" text-anchor=\"end\" "
                          "font-size=\"12\" fill=\"#333333\">",
                          p->left - 10, at + 4);
        put_number(p->file, &p->y, p->y.ticks[i].value);
        zonal__file_print(p->file, "</text>\n");
    }
    put_line(p, p->left, p->top, p->left, p->bottom, AXIS);
    if (!p->chart->y_label) return;
    zonal__file_print(p->file,
                      "<text class=\"label\" transform=\"translate(20 %.2f) rotate(-90)\" "
                      "text-anchor=\"middle\" font-size=\"13\" fill=\"#1a1a1a\">",
                      (p->top + p->bottom) / 2);
    zonal__html_short(p->file, p->chart->y_label, 50);
    zonal__file_print(p->file, "</text>\n");
}

static int colour_of(const drawing *p, int s) {
    int chosen = series_at(p, s)->colour;
    return (chosen > 0 ? chosen - 1 : s) % COLOURS;
}

/* Colour and pattern of a line; also of its sample beside the name. */
static void put_style(const drawing *p, int s) {
    const zonal__svg_series *series = series_at(p, s);
    int dashed = series->dashed % PATTERNS;
    if (dashed == 0 && series->colour <= 0 && !series->reference) dashed = s / COLOURS % 2;
    zonal__file_print(p->file, " stroke=\"%s\" stroke-width=\"2\"", colours[colour_of(p, s)]);
    if (dashed) zonal__file_print(p->file, " stroke-dasharray=\"%s\"", patterns[dashed]);
}

const char *zonal__svg_pattern(int dashed) {
    return patterns[dashed % PATTERNS];
}

static int drawable_point(const drawing *p, int s, int64_t i) {
    return drawable(&p->x, series_at(p, s)->x[i]) && drawable(&p->y, series_at(p, s)->y[i]);
}

/* A run of one point becomes a line of no length, which round ends show as a dot. */
static void put_path(const drawing *p, int s) {
    const zonal__svg_series *series = series_at(p, s);
    int inside = 0;
    zonal__file_print(p->file,
                      "<path clip-path=\"url(#area%d)\" fill=\"none\" "
                      "stroke-linejoin=\"round\" stroke-linecap=\"round\"",
                      p->chart->page);
    put_style(p, s);
    zonal__file_print(p->file, " d=\"");
    for (int64_t i = 0; i < series->count; i++) {
        int draw = drawable_point(p, s, i);
        if (draw)
            zonal__file_print(p->file, inside ? "L%.2f %.2f" : "M%.2f %.2fh0",
                              pixel(&p->x, series->x[i]), pixel(&p->y, series->y[i]));
        inside = draw;
    }
    zonal__file_print(p->file, "\"/>\n");
}

/* Marks are left out beyond the axes instead of clipped: those on the frame stay whole. */
static void put_marks(const drawing *p, int s) {
    const zonal__svg_series *series = series_at(p, s);
    zonal__file_print(p->file, "<g fill=\"#ffffff\" stroke=\"%s\" stroke-width=\"1.5\">\n",
                      colours[colour_of(p, s)]);
    for (int64_t i = 0; i < series->count; i++) {
        double x, y;
        if (!drawable_point(p, s, i)) continue;
        x = pixel(&p->x, series->x[i]);
        y = pixel(&p->y, series->y[i]);
        if (x >= p->left - 1 && x <= p->right + 1 && y >= p->top - 1 && y <= p->bottom + 1)
            zonal__file_print(p->file, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"2.5\"/>\n", x, y);
    }
    zonal__file_print(p->file, "</g>\n");
}

typedef struct label {
    int series;
    double y;
} label;

static double end_of_line(const drawing *p, int s) {
    const zonal__svg_series *series = series_at(p, s);
    for (int64_t i = series->count - 1; i >= 0; i--)
        if (drawable_point(p, s, i))
            return fmin(fmax(pixel(&p->y, series->y[i]), p->top), p->bottom);
    return p->bottom;
}

/* Sorted by height and moved apart: down where they touch, then up from the lower edge. */
static int place_labels(const drawing *p, label *labels) {
    const double apart = 17;
    int count = 0;
    for (int s = 0; s < p->chart->series_count; s++) {
        double y = end_of_line(p, s);
        int at = count;
        if (!series_at(p, s)->name) continue;
        for (; at > 0 && labels[at - 1].y > y; at--) labels[at] = labels[at - 1];
        labels[at] = (label){s, y};
        count++;
    }
    for (int i = 1; i < count; i++) labels[i].y = fmax(labels[i].y, labels[i - 1].y + apart);
    for (int i = count - 1; i >= 0; i--)
        labels[i].y = fmin(labels[i].y, i == count - 1 ? p->bottom : labels[i + 1].y - apart);
    return count;
}

static void put_labels(const drawing *p) {
    label labels[MOST_SERIES];
    int count = place_labels(p, labels);
    for (int i = 0; i < count; i++) {
        zonal__file_print(p->file, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"",
                          p->right + 10, labels[i].y, p->right + 32, labels[i].y);
        put_style(p, labels[i].series);
        zonal__file_print(p->file,
                          "/>\n<text x=\"%.2f\" y=\"%.2f\" font-size=\"12\" fill=\"#1a1a1a\">",
                          p->right + 38, labels[i].y + 4);
        zonal__html_short(p->file, series_at(p, labels[i].series)->name, LONGEST_NAME);
        zonal__file_print(p->file, "</text>\n");
    }
}

/* ---- a series in a page ---------------------------------------------------------------------- */

static void put_values(const drawing *p, int s, char axis_name, const double *values) {
    int first = 1;
    zonal__file_print(p->file, " data-%c=\"", axis_name);
    for (int64_t i = 0; i < series_at(p, s)->count; i++) {
        if (!drawable_point(p, s, i)) continue;
        zonal__file_print(p->file, first ? "%.6g" : " %.6g", values[i]);
        first = 0;
    }
    zonal__file_print(p->file, "\"");
}

/* What is shown where no script runs: the name, the last value and the range. */
static void put_summary(const drawing *p, int s) {
    const zonal__svg_series *series = series_at(p, s);
    double low = INFINITY, high = -INFINITY;
    int64_t last = -1;
    for (int64_t i = 0; i < series->count; i++) {
        if (!drawable_point(p, s, i)) continue;
        low = fmin(low, series->y[i]);
        high = fmax(high, series->y[i]);
        last = i;
    }
    zonal__file_print(p->file, "<title>");
    if (series->name) zonal__html_short(p->file, series->name, 200);
    if (last >= 0)
        zonal__file_print(p->file, ": last %.5g at %.6g, lowest %.5g, highest %.5g",
                          series->y[last], series->x[last], low, high);
    zonal__file_print(p->file, "</title>");
}

/* At the last point that can be seen: above the line, below a dashed one, so that two can be told
 * apart, and below where it runs along the top. */
static void put_reference(const drawing *p, int s) {
    const zonal__svg_series *series = series_at(p, s);
    double y = end_of_line(p, s);
    int below = y < p->top + 16 || (series->dashed && y < p->bottom - 16);
    zonal__file_print(p->file, "<g class=\"reference\">");
    put_path(p, s);
    if (series->name) {
        zonal__file_print(p->file,
                          "<text class=\"tick\" x=\"%.2f\" y=\"%.2f\" text-anchor=\"end\" "
                          "font-size=\"11\">",
                          p->right - 2, below ? y + 13 : y - 5);
        zonal__html_short(p->file, series->name, 30);
        zonal__file_print(p->file, "</text>");
    }
    zonal__file_print(p->file, "</g>\n");
}

static void put_page_series(const drawing *p, int s) {
    const zonal__svg_series *series = series_at(p, s);
    if (series->reference) {
        put_reference(p, s);
        return;
    }
    zonal__file_print(p->file, "<g class=\"line c%d\" data-name=\"", colour_of(p, s) + 1);
    if (series->name) zonal__html_short(p->file, series->name, 200);
    zonal__file_print(p->file, "\"");
    put_values(p, s, 'x', series->x);
    put_values(p, s, 'y', series->y);
    zonal__file_print(p->file, ">");
    put_summary(p, s);
    put_path(p, s);
    if (series->marks) put_marks(p, s);
    zonal__file_print(p->file, "</g>\n");
}

/* ---- the whole ------------------------------------------------------------------------------- */

static zonal_status prepare(drawing *p) {
    const zonal__svg_chart *chart = p->chart;
    if (chart->series_count < 1 || chart->series_count > MOST_SERIES)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a chart has 1 to %d series, got %d", MOST_SERIES,
                          chart->series_count);
    p->width = chart->width > 0 ? chart->width : WIDTH;
    p->height = chart->height > 0 ? chart->height : HEIGHT;
    ZONAL_TRY(find_range(&p->x, chart, 0, chart->x_low, chart->x_high));
    ZONAL_TRY(find_range(&p->y, chart, 1, chart->y_low, chart->y_high));
    make_axis(&p->x, 0, chart->x_low < chart->x_high, chart->page ? 5 : 8);
    make_axis(&p->y, 1, chart->y_low < chart->y_high, 6);
    lay_out(p);
    return ZONAL_OK;
}

zonal_status zonal__svg_write(const char *path, const zonal__svg_chart *chart) {
    drawing p = {.chart = chart};
    ZONAL_TRY(prepare(&p));
    ZONAL_TRY(zonal__file_create(path, &p.file));
    put_heading(&p);
    put_y_axis(&p);
    put_x_axis(&p);
    for (int s = 0; s < chart->series_count; s++) {
        put_path(&p, s);
        if (chart->series[s].marks) put_marks(&p, s);
    }
    put_labels(&p);
    zonal__file_print(p.file, "</svg>\n");
    return zonal__file_commit(p.file);
}

zonal_status zonal__svg_put(zonal__file *file, const zonal__svg_chart *chart) {
    drawing p = {.chart = chart, .file = file};
    ZONAL_TRY(prepare(&p));
    put_page_heading(&p);
    put_y_axis(&p);
    put_x_axis(&p);
    for (int s = 0; s < chart->series_count; s++) put_page_series(&p, s);
    return zonal__file_print(file, "</svg>\n");
}
