/* The page of zonal report, from run folders made here: src/report. What the command does from
 * outside, and how a browser takes the page, is report_test.py's. */
#include <sys/stat.h>

#include "core/file_read.h"
#include "core/memory.h"
#include "data/codec.h"
#include "failing_alloc.h"
#include "folder.h"
#include "report/flat.h"
#include "report/html.h"
#include "report/report.h"
#include "test.h"

static char *read_all(const char *path, size_t *length) {
    char *text = NULL;
    CHECK_OK(zonal__file_read(path, 1 << 24, &text, length));
    return text;
}

static void write_all(const char *path, const char *text) {
    FILE *stream = fopen(path, "wb");
    if (!CHECK(stream != NULL)) return;
    CHECK(fputs(text, stream) >= 0);
    CHECK(fclose(stream) == 0);
}

/* ---- text and numbers ------------------------------------------------------------------------ */

/* What a function writes, read back; NULL on failure. */
static char *written(void (*write)(zonal__file *)) {
    test_folder folder;
    zonal__file *file;
    char *text = NULL;
    size_t length;
    if (!CHECK(test_folder_make(&folder))) return NULL;
    if (CHECK_OK(zonal__file_create(test_folder_file(&folder, "page"), &file))) {
        write(file);
        if (CHECK_OK(zonal__file_commit(file))) text = read_all(folder.name, &length);
    }
    test_folder_remove(&folder);
    return text;
}

static void write_text(zonal__file *file) {
    zonal__html_text(file, "<a href='x'>\"&\x01\xff\xc3\xa9\t</a>");
}

/* Right-to-left override, isolate, C1 control, line separator, no-width space; then two letters
 * that only look dangerous: e with an acute accent, Hebrew alef. */
static void write_turned(zonal__file *file) {
    zonal__html_text(file, "\xe2\x80\xae|\xe2\x81\xa6|\xc2\x9b|\xe2\x80\xa8|\xe2\x80\x8b|"
                           "\xc3\xa9|\xd7\x90");
    zonal__html_short(file, "\xc3\xa9\xc3\xa9<<", 3);
}

static void test_text(void) {
    char *text = written(write_text);
    CHECK_MSG(text && strcmp(text, "&lt;a href=&#39;x&#39;&gt;&quot;&amp;\xef\xbf\xbd\xef\xbf\xbd"
                                   "\xc3\xa9\t&lt;/a&gt;") == 0,
              "%s", text);
    zonal__free(text);
    text = written(write_turned);
    CHECK_MSG(text && strcmp(text, "\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd|"
                                   "\xef\xbf\xbd|\xc3\xa9|\xd7\x90"
                                   "\xc3\xa9\xc3\xa9\xe2\x80\xa6") == 0,
              "%s", text);
    zonal__free(text);
}

static void write_numbers(zonal__file *file) {
    static const double values[] = {12.345, -0.04, -1.5, NAN, INFINITY};
    for (int i = 0; i < 5; i++) {
        zonal__html_number(file, values[i], 1);
        zonal__file_print(file, ";");
    }
}

static void test_numbers(void) {
    char *text = written(write_numbers);
    CHECK_MSG(text && strcmp(text, "12.3;0.0;\xe2\x88\x92"
                                   "1.5;\xe2\x80\x93;\xe2\x80\x93;") == 0,
              "%s", text);
    zonal__free(text);
}

/* ---- images: libpng reads back what was written ------------------------------------------------
 */

static const zonal__image *drawn; /* by write_image */

static void write_image(zonal__file *file) {
    CHECK_OK(zonal__html_image(file, drawn, "image", "a \"image\""));
}

static int base64_value(char c) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(letters, c) : NULL;
    return found ? (int)(found - letters) : -1;
}

/* Decodes up to the first character that is no digit, in place; returns how many bytes. */
static size_t decode_base64(char *text) {
    size_t out = 0;
    unsigned bits = 0;
    int count = 0;
    for (const char *at = text; base64_value(*at) >= 0; at++) {
        bits = bits << 6 | (unsigned)base64_value(*at);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        text[out++] = (char)(bits >> count & 255);
    }
    return out;
}

static void check_image(int width, int height, int channels) {
    static const char mark[] = "src=\"data:image/png;base64,";
    zonal__image image = {0}, back = {0};
    zonal__decoder *decoder;
    char *text, *png;
    if (!CHECK_OK(zonal__image_shape(&image, width, height, channels))) return;
    for (int i = 0; i < width * height * channels; i++)
        image.pixels[i] = (uint8_t)(i * 7 + i / 251);
    drawn = &image;
    text = written(write_image);
    png = text ? strstr(text, mark) : NULL;
    if (CHECK(png != NULL) && CHECK(strstr(text, "alt=\"a &quot;image&quot;\"") != NULL) &&
        CHECK_OK(zonal__decoder_create(&decoder))) {
        size_t size = decode_base64(png += strlen(mark));
        if (CHECK_OK(zonal__image_decode(decoder, png, size, "the image", NULL, &back)))
            CHECK(back.width == width && back.height == height && back.channels == channels &&
                  memcmp(back.pixels, image.pixels, (size_t)(width * height * channels)) == 0);
        zonal__decoder_destroy(decoder);
    }
    zonal__image_fini(&image);
    zonal__image_fini(&back);
    zonal__free(text);
}

/* With the byte before each row 254 * 258 = 65532 and 255 * 257 = 65535: sizes below, at and beyond
 * the longest stored block. */
static void test_images(void) {
    static const int shapes[][3] = {{1, 1, 1},     {3, 2, 3},     {72, 72, 3},  {257, 254, 1},
                                    {256, 255, 1}, {256, 256, 1}, {300, 250, 3}};
    const zonal__image nothing = {.width = 1, .height = 1, .channels = 1, .pixels = (uint8_t[]){0}};
    if (zonal__image_write_png("/dev/null", &nothing) == ZONAL_UNSUPPORTED)
        SKIP("this build has no libpng to read them with");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_image(shapes[i][0], shapes[i][1], shapes[i][2]);
}

/* ---- JSON as a list ----------------------------------------------------------------------------
 */

static void test_flat(void) {
    char text[] = " {\"a\": [1, {\"b\": -2.5e1}], \"c\": \"x\\ny\", \"t\": true, \"n\": null} ";
    char broken[] = "{\"a\": 1,}";
    zonal__flat flat = {0};
    if (CHECK_OK(zonal__flat_read(&flat, text, strlen(text), "text"))) {
        CHECK(flat.count == 4); /* the 1 in the list has no name */
        CHECK(isnan(zonal__flat_number(&flat, "a.0")) && zonal__flat_number(&flat, "a.1.b") == -25);
        CHECK(strcmp(zonal__flat_text(&flat, "c"), "x\ny") == 0 && !zonal__flat_text(&flat, "t"));
        CHECK(zonal__flat_number(&flat, "t") == 1 && isnan(zonal__flat_number(&flat, "n")));
        CHECK(isnan(zonal__flat_number(&flat, "a")) && isnan(zonal__flat_number(&flat, "c")));
    }
    CHECK_FAILS(zonal__flat_read(&flat, broken, strlen(broken), "this"), ZONAL_FORMAT, "this");
    zonal__flat_fini(&flat);
}

/* ---- thinning ----------------------------------------------------------------------------------
 */

enum { MANY = 10007, MOST = 101 };
static double curve_step[MANY], curve_value[MANY], thin_step[MANY], thin_value[MANY];

static int64_t thin(int64_t n, int64_t most) {
    const zonal__report_series series = {.count = n, .step = curve_step, .value = curve_value};
    return zonal__report_thin(&series, most, thin_step, thin_value);
}

static int is_kept(int64_t kept, int64_t i) {
    for (int64_t k = 0; k < kept; k++)
        if (thin_step[k] == curve_step[i]) return 1;
    return 0;
}

static void test_thin(void) {
    int64_t kept;
    for (int i = 0; i < MANY; i++) {
        curve_step[i] = 3 * i;
        curve_value[i] = sin(.01 * i) + .001 * (i * 7919 % 13);
    }
    curve_value[1234] = 50; /* extremes of one point, and a gap */
    curve_value[7777] = -50;
    curve_value[5000] = NAN;
    kept = thin(MANY, MOST);
    CHECK_MSG(kept <= MOST && kept > MOST / 2, "%lld points", (long long)kept);
    CHECK(is_kept(kept, 0) && is_kept(kept, MANY - 1) && is_kept(kept, 1234) &&
          is_kept(kept, 7777) && is_kept(kept, 5000));
    for (int64_t k = 1; k < kept; k++) CHECK(thin_step[k] > thin_step[k - 1]);
    kept = thin(MOST, MOST);
    CHECK(kept == MOST && memcmp(thin_value, curve_value, MOST * sizeof(double)) == 0);
    CHECK(thin(0, MOST) == 0 && thin(1, 8) == 1 && thin(9, 8) <= 8);
}

/* ---- a run folder ------------------------------------------------------------------------------
 */

typedef struct fixture {
    test_folder folder;
    char run[2][320], page[320];
    int made;
} fixture;

static void make_run(const char *path, const char *method, int seed) {
    char name[400], text[2000];
    mkdir(path, 0777);
    snprintf(name, sizeof name, "%s/eval", path);
    mkdir(name, 0777);
    snprintf(name, sizeof name, "%s/config.toml", path);
    snprintf(text, sizeof text,
             "method = \"%s\"   # --method\nprojector = \"64-16\"\nseed = %d # --seed\n"
             "note = \"a # \\\"b\\\"\" # default\n\n# a comment\nband = 2\n",
             method, seed);
    write_all(name, text);
    snprintf(name, sizeof name, "%s/metrics.jsonl", path);
    write_all(name, "{\"kind\":\"step\",\"step\":1,\"epoch\":0,\"loss\":0.5}\n"
                    "{\"kind\":\"step\",\"step\":2,\"loss\":\n"
                    "\n"
                    "{\"kind\":\"step\",\"step\":3,\"loss\":0.25,\"seconds\":60}\n"
                    "{\"step\":4,\"loss\":9}\n"
                    "{\"kind\":\"step\",\"step\":5,\"loss\":null}\n"
                    "{\"kind\":\"eval\",\"step\":5,\"protocol\":\"knn\",\"features\":\"backbone\","
                    "\"accuracy\":0.5}\n"
                    "{\"kind\":\"step\",\"st");
    snprintf(name, sizeof name, "%s/eval/a.json", path);
    write_all(name, "{\"results\":[{\"protocol\":\"knn\",\"features\":\"backbone\",\"k\":20,"
                    "\"seed\":0,\"accuracy\":0.5},{\"protocol\":\"knn\",\"features\":\"backbone\","
                    "\"k\":5,\"seed\":0,\"accuracy\":0.9},{\"protocol\":\"knn\",\"features\":"
                    "\"backbone\",\"k\":20,\"seed\":1,\"accuracy\":0.6}],"
                    "\"energy\":[{\"excess\":0.4,\"sd\":0.2},{\"excess\":-0.3,\"sd\":0.1}]}");
    snprintf(name, sizeof name, "%s/eval/b.json", path);
    write_all(name, "{\"protocol\"");
}

static void fixture_make(fixture *f) {
    static const char *const methods[] = {"mmd-band", "susreg"};
    *f = (fixture){0};
    if (!CHECK(test_folder_make(&f->folder))) return;
    f->made = 1;
    for (int i = 0; i < 2; i++) {
        strcat(strcpy(f->run[i], f->folder.path), i ? "/run1" : "/run0");
        make_run(f->run[i], methods[i], i);
    }
    strcat(strcpy(f->page, f->folder.path), "/page.html");
}

static void fixture_remove(fixture *f) {
    static const char *const names[] = {"config.toml", "metrics.jsonl", "eval/a.json",
                                        "eval/b.json", "eval"};
    for (int i = 0; i < 2 && f->made; i++)
        for (int k = 0; k < 5; k++) {
            char name[400];
            snprintf(name, sizeof name, "%s/%s", f->run[i], names[k]);
            remove(name);
        }
    if (f->made) test_folder_remove(&f->folder);
}

static void check_settings(const zonal__report_run *run) {
    CHECK(run->config.count == 5);
    CHECK(strcmp(zonal__report_setting_of(run, "method"), "mmd-band") == 0);
    CHECK(strcmp(zonal__report_setting_of(run, "note"), "a # \"b\"") == 0);
    CHECK(strcmp(run->config.at[3].source, "default") == 0 &&
          strcmp(run->config.at[1].source, "") == 0);
    CHECK(zonal__report_setting_of(run, "lr") == NULL);
}

static void check_curves(const zonal__report_run *run) {
    const zonal__report_series *loss = zonal__report_series_of(run, "loss");
    CHECK(zonal__report_series_of(run, "epoch") == NULL);
    if (!CHECK(loss && loss->count == 3)) return;
    CHECK(loss->step[1] == 3 && loss->value[1] == .25 && isnan(loss->value[2]));
    CHECK(zonal__report_last(run, "loss") == .25 && zonal__report_best(run, "loss") == .5 &&
          isnan(zonal__report_last(run, "rate")));
    CHECK(zonal__report_last(run, "knn.backbone.accuracy") == .5);
}

static void test_run(void) {
    fixture f;
    zonal__report_run run = {0};
    fixture_make(&f);
    if (f.made && CHECK_OK(zonal__report_run_read(&run, f.run[0]))) {
        check_settings(&run);
        check_curves(&run);
        /* Seeds 0 and 1 of k = 20 are averaged; k = 5 is another variant. */
        CHECK_CLOSE(zonal__report_result_of(&run, "knn.backbone.accuracy"), .55, 1e-15);
        CHECK(run.degrees == 2);
        CHECK_CLOSE(run.excess[0], 2, 1e-15);
        CHECK_CLOSE(run.excess[1], -3, 1e-14);
        CHECK_MSG(run.notes_count == 4, "%d notes", run.notes_count);
        CHECK(strstr(run.notes[0], "line 2 ") && strstr(run.notes[1], "line 5 ") &&
              strstr(run.notes[2], "line 8 ") && strstr(run.notes[3], "eval/b.json"));
    }
    zonal__report_run_fini(&run);
    CHECK_FAILS(zonal__report_run_read(&run, f.folder.path), ZONAL_IO, "config.toml");
    zonal__report_run_fini(&run);
    fixture_remove(&f);
}

/* ---- folders from anybody -------------------------------------------------------------------- */

static FILE *open_in(const char *run, const char *file) {
    char name[400];
    FILE *stream;
    snprintf(name, sizeof name, "%s/%s", run, file);
    stream = fopen(name, "wb");
    CHECK(stream != NULL);
    return stream;
}

/* Four times as many lines as are kept, a line that is too long and more names than fit: the
 * extremes stay, and the rest is named. */
static void write_much(FILE *stream) {
    enum { LINES = 1 << 19 };
    for (int i = 1; i <= LINES; i++) {
        double loss = i == 77777 ? -3 : i == 300001 ? 9 : 1. / i;
        fprintf(stream, "{\"kind\":\"step\",\"step\":%d,\"loss\":%.9g}\n", i, loss);
    }
    fprintf(stream, "{\"kind\":\"step\",\"step\":1,\"x\":\"%070000d\"}\n", 0);
    for (int i = 0; i < 400; i++)
        fprintf(stream, "{\"kind\":\"step\",\"step\":2,\"name%d\":1}\n", i);
    fclose(stream);
}

static void test_huge(void) {
    fixture f;
    zonal__report_run run = {0};
    FILE *stream;
    fixture_make(&f);
    if (f.made && (stream = open_in(f.run[0], "metrics.jsonl"))) {
        write_much(stream);
        if (CHECK_OK(zonal__report_run_read(&run, f.run[0]))) {
            const zonal__report_series *loss = zonal__report_series_of(&run, "loss");
            CHECK(loss && loss->count <= 1 << 17 && zonal__report_best(&run, "loss") == 9);
            for (int64_t i = 0; loss && i < loss->count; i++)
                if (loss->value[i] == -3) loss = NULL;
            CHECK(loss == NULL); /* it was found */
            CHECK(run.series_count == 200 && run.steps == 1 << 19);
            CHECK(run.notes_count == 3 && strstr(run.notes[0], "line 524289 ") &&
                  strstr(run.notes[0], "70031 bytes") && strstr(run.notes[1], "200 names"));
        }
        zonal__report_run_fini(&run);
    }
    fixture_remove(&f);
}

/* What is no file is not waited for, and a configuration that is no TOML is named. */
static void test_no_files(void) {
    fixture f;
    zonal__report_run run = {0};
    char name[400];
    FILE *stream;
    fixture_make(&f);
    if (f.made && (stream = open_in(f.run[0], "config.toml"))) {
        fputs("method = mmd\n", stream);
        fclose(stream);
        snprintf(name, sizeof name, "%s/metrics.jsonl", f.run[0]);
        remove(name);
        CHECK(mkfifo(name, 0600) == 0);
        if (CHECK_OK(zonal__report_run_read(&run, f.run[0]))) {
            CHECK(run.config.count == 0 && run.series_count == 0 && run.notes_count == 3);
            CHECK(strstr(run.notes[0], "config.toml:1: mmd is no value") &&
                  strstr(run.notes[1], "metrics.jsonl cannot be read"));
        }
        zonal__report_run_fini(&run);
    }
    fixture_remove(&f);
}

/* ---- how far a run came ---------------------------------------------------------------------- */

static void check_length(const char *config, const char *metrics, double total, int unfinished,
                         int collapsed) {
    fixture f;
    zonal__report_run run = {0};
    FILE *stream;
    fixture_make(&f);
    if (f.made && (stream = open_in(f.run[0], "config.toml"))) {
        fputs(config, stream);
        fclose(stream);
        if ((stream = open_in(f.run[0], "metrics.jsonl"))) {
            fputs(metrics, stream);
            fclose(stream);
        }
        if (CHECK_OK(zonal__report_run_read(&run, f.run[0]))) {
            double found = zonal__report_total_steps(&run);
            CHECK_MSG(found == total || (isnan(found) && isnan(total)), "%s: %g", config, found);
            CHECK_MSG(zonal__report_is_unfinished(&run) == unfinished, "%s", config);
            CHECK_MSG(zonal__report_is_collapsed(&run) == collapsed, "%s", config);
        }
        zonal__report_run_fini(&run);
    }
    fixture_remove(&f);
}

static void test_length(void) {
    static const char step[] = "{\"kind\":\"step\",\"step\":50,\"epoch\":2.5,\"loss\":1}\n"
                               "{\"kind\":\"monitor\",\"step\":50,\"mean_cosine\":0.96}\n";
    static const char flat[] = "{\"kind\":\"monitor\",\"step\":50,\"mean_cosine\":0,"
                               "\"effective_rank\":5.9,\"expected_rank\":60}\n";
    static const char small[] = "{\"kind\":\"monitor\",\"step\":50,\"mean_cosine\":0,"
                                "\"effective_rank\":50,\"expected_rank\":60,\"scale\":0.09}\n";
    static const char before[] = "{\"kind\":\"monitor\",\"step\":50,\"mean_cosine\":0,"
                                 "\"effective_rank\":1}\n"; /* by an earlier version */
    check_length("steps = 50\ncollapse-cosine = 0.95\ncollapse-rank = 0.1\n", flat, 50, 0, 1);
    check_length("steps = 50\ncollapse-cosine = 0.95\ncollapse-rank = 0.09\n", flat, 50, 0, 0);
    check_length("steps = 50\n", flat, 50, 0, 0);
    check_length("steps = 50\n", small, 50, 0, 1);
    check_length("steps = 50\ncollapse-cosine = 0.95\ncollapse-rank = 0.1\n", before, 50, 0, 0);
    check_length("steps = 50\nepochs = 9\n", step, 50, 0, 0);
    check_length("steps = 60\ncollapse-cosine = 0.95\n", step, 60, 1, 1);
    check_length("steps = 0\nepochs = 3\ncollapse-cosine = 0.97\n", step, 60, 1, 0);
    check_length("epochs = 2\n", step, 40, 0, 0);
    check_length("lr = 1\n", step, NAN, 0, 0);
    check_length("epochs = 2\n", "", NAN, 0, 0);
}

/* ---- the page ----------------------------------------------------------------------------------
 */

static zonal_status add_images(zonal__report *report) {
    zonal__gallery *gallery = &report->retrieved[0];
    ZONAL_TRY(zonal__gallery_shape(gallery, 1, 3));
    for (int i = 0; i < 3; i++) {
        zonal__gallery_cell *cell = &gallery->cells[i];
        ZONAL_TRY(zonal__image_shape(&cell->image, 4, 4, 1));
        memset(cell->image.pixels, 60 * i, 16);
        snprintf(cell->caption, sizeof cell->caption, "<%d>", i);
        cell->right = i == 2;
    }
    snprintf(report->kernels[0].label, sizeof report->kernels[0].label, "a <kernel>");
    snprintf(report->retrieved[1].missing, sizeof report->retrieved[1].missing, "no <weights>");
    return ZONAL_OK;
}

static zonal_status make_page(void *context) {
    fixture *f = context;
    char *folders[] = {f->run[0], f->run[1]};
    zonal__report *report;
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&report, 1, "the report"));
    ZONAL_TRY_GOTO(status, done, zonal__report_read(report, 2, folders));
    ZONAL_TRY_GOTO(status, done, add_images(report));
    status = zonal__report_write(report, f->page);
done:
    zonal__report_fini(report);
    zonal__free(report);
    return status;
}

static void test_page(void) {
    static const char *const expected[] = {
        "<title>zonal: run0, run1</title>",
        "data-name=\"a &lt;kernel&gt;\"",
        "class=\"image right\"",
        "alt=\"&lt;2&gt;, the same image\"",
        "Left out for run1: no &lt;weights&gt;.",
        "line 2 of metrics.jsonl is left out",
    };
    fixture f;
    fixture_make(&f);
    if (f.made && CHECK_OK(make_page(&f))) {
        size_t length;
        char *text = read_all(f.page, &length);
        for (size_t i = 0; text && i < sizeof expected / sizeof expected[0]; i++)
            CHECK_MSG(strstr(text, expected[i]) != NULL, "%s", expected[i]);
        /* Both runs have the same numbers: two that read the same are both the best. */
        CHECK(text && strstr(text, "<b>55.0</b>") != NULL);
        zonal__free(text);
    }
    fixture_remove(&f);
}

/* Changes, drops and doubles some bytes of a file. */
static void damage(const char *path, uint64_t *state) {
    size_t length;
    char *text = read_all(path, &length);
    FILE *stream = fopen(path, "wb");
    for (size_t i = 0; text && stream && i < length; i++) {
        uint64_t draw = *state = *state * 6364136223846793005u + 1442695040888963407u;
        int kind = (int)(draw >> 40 & 255);
        if (kind > 2) fputc(text[i], stream);
        if (kind == 1) fputc((int)(draw >> 50 & 255), stream);
        if (kind == 3) fputc(text[i], stream);
    }
    if (CHECK(stream != NULL)) fclose(stream);
    zonal__free(text);
}

/* Whatever the files hold, there is a page or a sentence; the sanitizers look on. */
static void test_damage(void) {
    static const char *const names[] = {"config.toml", "metrics.jsonl", "eval/a.json"};
    uint64_t state = test_seed;
    fixture f;
    fixture_make(&f);
    for (int round = 0; round < 60 && f.made; round++) {
        zonal_status status;
        make_run(f.run[1], "susreg", 1);
        for (int i = 0; i < 3; i++) {
            char name[400];
            snprintf(name, sizeof name, "%s/%s", f.run[1], names[i]);
            damage(name, &state);
        }
        status = make_page(&f);
        CHECK_MSG(status == ZONAL_OK, "round %d: %s", round, zonal_last_error()->message);
    }
    fixture_remove(&f);
}

static void test_out_of_memory(void) {
    fixture f;
    fixture_make(&f);
    if (f.made) test_every_allocation("a report", make_page, &f);
    fixture_remove(&f);
}

static void test_too_many(void) {
    char *folders[ZONAL__REPORT_RUNS + 1] = {0};
    zonal__report report;
    CHECK_FAILS(zonal__report_read(&report, ZONAL__REPORT_RUNS + 1, folders), ZONAL_ARGUMENT,
                "compares 1 to 20");
    zonal__report_fini(&report);
}

static const test_case tests[] = {{"text", test_text},
                                  {"numbers", test_numbers},
                                  {"images", test_images},
                                  {"flat JSON", test_flat},
                                  {"thinning", test_thin},
                                  {"a run folder", test_run},
                                  {"huge files", test_huge},
                                  {"no files", test_no_files},
                                  {"how far", test_length},
                                  {"a page", test_page},
                                  {"damaged files", test_damage},
                                  {"out of memory", test_out_of_memory},
                                  {"too many runs", test_too_many},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
