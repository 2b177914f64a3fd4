/* Charts and the progress line: src/report/svg.h, src/cli/common/progress.h. */
#include <stdlib.h>

#include "cli/common/progress.h"
#include "failing_alloc.h"
#include "folder.h"
#include "report/svg.h"
#include "test.h"

enum { POINTS = 50 };
static double line_x[POINTS], line_y[POINTS];
static char text[200000]; /* the chart that was written last */

static void make_line(double scale) {
    for (int i = 0; i < POINTS; i++) {
        line_x[i] = -1 + 2.0 * i / (POINTS - 1);
        line_y[i] = scale * exp(-3 * (1 - line_x[i]));
    }
}

/* ---- a small check of XML: tags nest, attributes are quoted, & begins an entity -------------- */

static const char *skip_entity(const char *at) {
    static const char *const known[] = {"&lt;", "&gt;", "&amp;", "&quot;"};
    for (int i = 0; i < 4; i++)
        if (strncmp(at, known[i], strlen(known[i])) == 0) return at + strlen(known[i]);
    return NULL;
}

/* Reads one tag; returns what follows it or NULL. *kind: 1 opens, 0 stands alone, -1 closes. */
static const char *read_tag(const char *at, char name[32], int *kind) {
    size_t length;
    int quoted = 0;
    *kind = at[1] == '/' ? -1 : 1;
    at += *kind < 0 ? 2 : 1;
    length = strcspn(at, " />");
    if (length == 0 || length > 31) return NULL;
    memcpy(name, at, length);
    name[length] = '\0';
    for (at += length; *at && (quoted || *at != '>'); at++) {
        if (*at == '"') quoted = !quoted;
        if (*at == '<' || (*at == '&' && !skip_entity(at))) return NULL;
        if (!quoted && *at == '/' && at[1] == '>') *kind = 0;
    }
    return *at == '>' && !quoted ? at + 1 : NULL;
}

static int check_xml(const char *at) {
    char open[16][32], name[32];
    int depth = 0, tags = 0, kind;
    const char *begin = at;
    while (*at) {
        if (*at == '&' && !(at = skip_entity(at))) return test_fail("xml", tags, "a bare &");
        if ((unsigned char)*at < ' ' && *at != '\n')
            return test_fail("xml", tags, "a control code");
        if (*at != '<') {
            at++;
            continue;
        }
        begin = at;
        tags++;
        if (!(at = read_tag(at, name, &kind)))
            return test_fail("xml", tags, "a bad tag: %.60s", begin);
        if (kind > 0 && depth < 16) strcpy(open[depth++], name);
        if (kind < 0 && (depth == 0 || strcmp(open[--depth], name) != 0))
            return test_fail("xml", tags, "</%s> closes nothing", name);
    }
    CHECK_MSG(depth == 0, "%d tags stay open", depth);
    return depth == 0 && tags > 5;
}

/* ---- charts ---------------------------------------------------------------------------------- */

/* Writes the chart, checks it and leaves it in "text". */
static int draw(const zonal__svg_chart *chart) {
    test_folder folder;
    FILE *stream;
    int fine = 0;
    if (!CHECK(test_folder_make(&folder))) return 0;
    text[0] = '\0';
    if (CHECK_OK(zonal__svg_write(test_folder_file(&folder, "c.svg"), chart)) &&
        CHECK((stream = fopen(folder.name, "rb")) != NULL)) {
        text[fread(text, 1, sizeof text - 1, stream)] = '\0';
        fclose(stream);
        fine = check_xml(text) && CHECK(strstr(text, "nan") == NULL && strstr(text, "inf") == NULL);
    }
    CHECK(test_folder_count(&folder) == 1);
    test_folder_remove(&folder);
    return fine;
}

static int count(const char *needle) {
    int found = 0;
    for (const char *at = text; (at = strstr(at, needle)); at += strlen(needle)) found++;
    return found;
}

static void test_plain(void) {
    const zonal__svg_series series[] = {
        {.name = "heat", .count = POINTS, .x = line_x, .y = line_y}};
    const zonal__svg_chart chart = {.title = "T",
                                    .subtitle = "S",
                                    .x_label = "X",
                                    .y_label = "Y",
                                    .series = series,
                                    .series_count = 1};
    make_line(1);
    if (!draw(&chart)) return;
    CHECK(strstr(text, "viewBox=\"0 0 720 440\"") != NULL);
    CHECK(count("<path ") == 1 && count("L") >= POINTS - 1 && count("h0") == 1);
    CHECK(strstr(text, ">heat</text>") && strstr(text, ">T</text>") && strstr(text, ">S</text>"));
    CHECK(strstr(text, ">X</text>") && strstr(text, ">Y</text>"));
    CHECK_MSG(strstr(text, ">\xe2\x88\x92"
                           "0.50</text>") &&
                  strstr(text, ">0.8</text>"),
              "ticks");
}

static void test_text_is_escaped(void) {
    const zonal__svg_series series[] = {
        {.name = "a<b & \"c\" > d", .count = POINTS, .x = line_x, .y = line_y}};
    const zonal__svg_chart chart = {
        .title = "<script>&\x01\xff\xc3\xa9", .series = series, .series_count = 1};
    make_line(1);
    if (!draw(&chart)) return;
    CHECK(strstr(text, "a&lt;b &amp; &quot;c&quot; &gt; d") != NULL);
    CHECK(strstr(text, "&lt;script&gt;&amp;\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9") != NULL);
    CHECK(strstr(text, "<script>") == NULL);
}

static void test_breaks(void) {
    const zonal__svg_series series[] = {{.count = POINTS, .x = line_x, .y = line_y, .marks = 1}};
    zonal__svg_chart chart = {.series = series, .series_count = 1};
    make_line(1);
    line_y[10] = NAN;
    line_y[11] = INFINITY;
    line_x[30] = NAN;
    line_y[40] = -INFINITY;
    line_y[42] = NAN;
    if (!draw(&chart)) return;
    CHECK_MSG(count("h0") == 5, "%d pieces", count("h0"));
    CHECK(count("<circle ") == POINTS - 5);
    make_line(1);
    line_y[20] = 0;
    line_y[30] = -1;
    chart.y_log = 1;
    if (draw(&chart)) CHECK_MSG(count("h0") == 3, "%d pieces", count("h0"));
}

static void test_nothing_to_draw(void) {
    static const double bad[2] = {NAN, INFINITY}, good[2] = {1, 2}, negative[2] = {-1, 0};
    zonal__svg_series series = {.count = 2, .x = good, .y = bad};
    zonal__svg_chart chart = {.title = "Loss", .series = &series, .series_count = 1};
    CHECK_FAILS(zonal__svg_write("/dev/null", &chart), ZONAL_NUMERIC,
                "there is nothing to draw in \"Loss\": no point is finite");
    series.y = negative;
    CHECK_OK(zonal__svg_write("/dev/null", &chart));
    chart.y_log = 1;
    CHECK_FAILS(zonal__svg_write("/dev/null", &chart), ZONAL_NUMERIC, "and positive");
    series.y = good;
    chart.y_high = 1;
    CHECK_FAILS(zonal__svg_write("/dev/null", &chart), ZONAL_ARGUMENT,
                "an axis cannot reach from 0 to 1 on a logarithmic scale");
    chart.series_count = 0;
    CHECK_FAILS(zonal__svg_write("/dev/null", &chart), ZONAL_ARGUMENT, "1 to 24 series, got 0");
    chart.series_count = 25;
    CHECK_FAILS(zonal__svg_write("/dev/null", &chart), ZONAL_ARGUMENT, "got 25");
}

/* Ranges of every size: there must be at least two labels on each axis and no strange number. */
static void test_ranges(void) {
    static const struct {
        double low, high;
    } ranges[] = {{0, 1},
                  {-1, 1},
                  {1e-9, 2e-9},
                  {1e6, 1e6 + 1},
                  {-3e8, 5e9},
                  {0, 1e300},
                  {-1e300, 1e300},
                  {5, 5},
                  {0, 0},
                  {-7e-5, -7e-5},
                  {0, 1e-320},
                  {1e-300, 2e-300},
                  {0.1, 0.30000001},
                  {1, 1 + 1e-15},
                  {99, 101},
                  {1e-320, 1e300},
                  {1, 10},
                  {3, 4},
                  {2, 70},
                  {8, 400},
                  {1e-12, 1},
                  {1e-200, 1e200}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        for (int log = 0; log < 4; log++) {
            const double x[3] = {ranges[i].low, ranges[i].high, ranges[i].high};
            zonal__svg_series series = {.count = 3, .x = x, .y = x, .marks = 1};
            zonal__svg_chart chart = {
                .x_log = log & 1, .y_log = log >> 1, .series = &series, .series_count = 1};
            if (log && ranges[i].low <= 0) continue;
            if (!draw(&chart)) printf("# range %g to %g, log %d\n", chart.x_low, chart.x_high, log);
            CHECK_MSG(count("text-anchor=\"middle\"") >= 2 && count("text-anchor=\"middle\"") <= 14,
                      "range %zu (log %d): %d labels along x", i, log,
                      count("text-anchor=\"middle\""));
            CHECK_MSG(count("text-anchor=\"end\"") >= 2 && count("text-anchor=\"end\"") <= 14,
                      "range %zu (log %d): %d labels along y", i, log,
                      count("text-anchor=\"end\""));
        }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Twenty lines that end in one point: their labels must lie apart and inside the image. */
static void test_labels_do_not_touch(void) {
    zonal__svg_series series[20];
    double at[64];
    int labels = 0;
    const zonal__svg_chart chart = {
        .title = "T", .subtitle = "S", .x_label = "X", .series = series, .series_count = 20};
    make_line(1);
    for (int s = 0; s < 20; s++)
        series[s] = (zonal__svg_series){
            .name = s == 3 ? "a name that is much longer than there is room for beside a chart"
                           : "name",
            .count = POINTS,
            .x = line_x,
            .y = line_y};
    if (!draw(&chart)) return;
    for (const char *line = text; labels < 64 && (line = strstr(line, "<text x=\"")); line++) {
        double x, y;
        int end = 0;
        sscanf(line, "<text x=\"%lf\" y=\"%lf\" font-size=\"12\" fill=\"#1a1a1a\">%n", &x, &y,
               &end);
        if (end > 0) at[labels++] = y;
    }
    if (!CHECK_MSG(labels == 20, "%d labels", labels)) return;
    qsort(at, 20, sizeof at[0], by_value);
    CHECK(at[0] > 50 && at[19] < 440);
    for (int i = 1; i < 20; i++)
        CHECK_MSG(at[i] - at[i - 1] > 15, "labels at %g and %g", at[i - 1], at[i]);
    CHECK(strstr(text, "a name that is much longer than t\xe2\x80\xa6</text>") != NULL);
}

static void test_file_errors(void) {
    const zonal__svg_series series[] = {{.count = POINTS, .x = line_x, .y = line_y}};
    const zonal__svg_chart chart = {.series = series, .series_count = 1};
    make_line(1);
    CHECK_FAILS(zonal__svg_write("/nowhere/at/all.svg", &chart), ZONAL_IO,
                "cannot write /nowhere/at/all.svg");
    if (access("/dev/full", W_OK) == 0)
        CHECK_FAILS(zonal__svg_write("/dev/full", &chart), ZONAL_IO, "No space left on device");
}

static zonal_status write_chart(void *context) {
    const zonal__svg_series series[] = {{.count = POINTS, .x = line_x, .y = line_y}};
    const zonal__svg_chart chart = {.series = series, .series_count = 1};
    (void)context;
    return zonal__svg_write("/dev/null", &chart);
}

static void test_memory(void) {
    make_line(1);
    test_every_allocation("a chart", write_chart, NULL);
}

/* ---- progress -------------------------------------------------------------------------------- */

static void check_line(int width, const char *label, double fraction, double elapsed,
                       const char *want) {
    char line[128];
    zonal__progress_render(line, width, label, fraction, elapsed);
    CHECK_MSG(strcmp(line, want) == 0, "got \"%s\", want \"%s\"", line, want);
}

static void test_progress_line(void) {
    char line[128];
    check_line(0, "sampling", .5, 12, "sampling: 50 %  0:12 left");
    check_line(0, "sampling", 0, 12, "sampling: 0 %");
    check_line(0, "sampling", NAN, 12, "sampling: 0 %");
    check_line(0, "sampling", 2, 12, "sampling: 100 %  0:00 left");
    check_line(0, "sampling", 1e-3, 10, "sampling: 0 %  2:46:30 left");
    check_line(40, "sampling", .5, 12, "sampling  [#####----]   50 %  0:12 left");
    check_line(30, "sampling", .5, 12, "sampling   50 %  0:12 left");
    check_line(12, "sampling", .5, 12, "sampling   ");
    for (int width = 1; width < 300; width++)
        for (double fraction = 0; fraction <= 1; fraction += 1.0 / 64) {
            zonal__progress_render(line, width, "a label of some length", fraction, 5e5);
            CHECK_MSG((int)strlen(line) <= (width > 81 ? 80 : width - 1), "%d columns of %d: %s",
                      (int)strlen(line), width, line);
        }
    zonal__progress_render(line, 500, "tiny", 1e-300, 1e9);
    CHECK(strstr(line, "277777:46:40 left") != NULL);
}

static const test_case tests[] = {{"plain", test_plain},
                                  {"text_is_escaped", test_text_is_escaped},
                                  {"breaks", test_breaks},
                                  {"nothing_to_draw", test_nothing_to_draw},
                                  {"ranges", test_ranges},
                                  {"labels_do_not_touch", test_labels_do_not_touch},
                                  {"file_errors", test_file_errors},
                                  {"memory", test_memory},
                                  {"progress_line", test_progress_line},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
