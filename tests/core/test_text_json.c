/* Words, numbers and JSON: src/core/text.h, src/core/json.h. */
#include <float.h>
#include <locale.h>
#include <stdlib.h>

#include "core/json.h"
#include "core/text.h"
#include "failing_alloc.h"
#include "test.h"

static void test_distance(void) {
    static const struct {
        const char *a, *b;
        int want;
    } cases[] = {{"", "", 0},         {"", "abc", 3},          {"heat", "heat", 0},
                 {"heat", "haet", 1}, {"heat", "hat", 1},      {"hat", "heat", 1},
                 {"heat", "head", 1}, {"ab", "ba", 1},         {"abcd", "badc", 2},
                 {"ca", "abc", 3},    {"kitten", "sitting", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int there = zonal__text_distance(cases[i].a, cases[i].b);
        int back = zonal__text_distance(cases[i].b, cases[i].a);
        CHECK_MSG(there == cases[i].want && back == there, "%s to %s: %d there, %d back, want %d",
                  cases[i].a, cases[i].b, there, back, cases[i].want);
    }
}

static void test_append(void) {
    char text[8] = "ab";
    zonal__text_append(text, sizeof text, "%d%s", 12, "c");
    CHECK(strcmp(text, "ab12c") == 0);
    zonal__text_append(text, sizeof text, "%s", "defg");
    CHECK(strcmp(text, "ab12cde") == 0);
    zonal__text_append(text, sizeof text, "h");
    CHECK(strcmp(text, "ab12cde") == 0);
}

static void test_distance_of_long_words(void) {
    char a[201], b[64];
    memset(a, 'x', 200);
    a[200] = '\0';
    memset(b, 'x', 63);
    b[63] = '\0';
    CHECK(zonal__text_distance(a, "xx") == 200);
    CHECK(zonal__text_distance("xx", a) == 200);
    CHECK(zonal__text_distance(b, b) == 0);
}

static void check_nearest(const char *word, const char *want) {
    static const char *const names[] = {"method", "band",   "scale", "slices", "seed",
                                        "t",      "device", "dim",   NULL};
    const char *got = zonal__text_nearest(word, names);
    CHECK_MSG(got == want || (got && want && strcmp(got, want) == 0), "%s: got %s, want %s", word,
              got ? got : "nothing", want ? want : "nothing");
}

static void test_nearest(void) {
    static const char *const empty[] = {NULL};
    check_nearest("methd", "method");
    check_nearest("mehtod", "method");
    check_nearest("meth", "method");
    check_nearest("sede", "seed");
    check_nearest("slice", "slices");
    check_nearest("bnad", "band");
    check_nearest("divice", "device");
    check_nearest("dm", "dim");
    check_nearest("x", NULL);
    check_nearest("", NULL);
    check_nearest("temperature", NULL);
    check_nearest("s", NULL);
    CHECK(zonal__text_nearest("band", empty) == NULL);
}

static void test_double(void) {
    static const char *const bad[] = {"",    " 1",   "1 ",   "1x",  "0x10",   "inf", "nan",  "-inf",
                                      "1e",  "e5",   ".",    "-",   "1e999",  "1,5", "1..2", "--1",
                                      "+-1", "1e+-", "1\n2", "NaN", "-1e999", "d",   "5/d"};
    double value = 7;
    CHECK_OK(zonal__text_double("-1.5e-3", "--x", &value));
    CHECK_CLOSE(value, -1.5e-3, 0);
    CHECK_OK(zonal__text_double("+3", "--x", &value));
    CHECK_CLOSE(value, 3, 0);
    CHECK_OK(zonal__text_double(".5", "--x", &value));
    CHECK_CLOSE(value, .5, 0);
    CHECK_OK(zonal__text_double("5e-324", "--x", &value));
    CHECK_CLOSE(value, 5e-324, 0);
    value = 7;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_FAILS(zonal__text_double(bad[i], "--x", &value), ZONAL_ARGUMENT,
                    "--x must be a finite number, got \"");
    CHECK_CLOSE(value, 7, 0);
}

static void test_int(void) {
    static const char *const bad[] = {"",   "-",  "+",   "1.0", "1e3",
                                      " 1", "1 ", "0x1", "--1", "1_000"};
    int64_t value = 7;
    CHECK_OK(zonal__text_int64("-9223372036854775808", "--n", &value));
    CHECK(value == INT64_MIN);
    CHECK_OK(zonal__text_int64("9223372036854775807", "--n", &value));
    CHECK(value == INT64_MAX);
    CHECK_OK(zonal__text_int64("+012", "--n", &value));
    CHECK(value == 12);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_FAILS(zonal__text_int64(bad[i], "--n", &value), ZONAL_ARGUMENT,
                    "--n must be a whole number, got \"");
    CHECK_FAILS(zonal__text_int64("9223372036854775808", "--n", &value), ZONAL_ARGUMENT,
                "--n is out of range");
    CHECK(value == 12);
}

static void test_scale(void) {
    static const char *const bad[] = {"",     "/d", "x/d", "5/",    "5/D",      "5 /d",
                                      "5/dd", "2d", "d/d", "inf/d", "log(d)/d", "dd"};
    char endless[200];
    zonal__scale scale = {0, 0};
    CHECK_OK(zonal__text_scale("5/d", "--t", &scale));
    CHECK(scale.factor == 5 && scale.power == -1);
    CHECK_CLOSE(zonal__scale_value(scale, 256), 5.0 / 256, 0);
    CHECK_OK(zonal__text_scale("1.5e0/d", "--t", &scale));
    CHECK_CLOSE(zonal__scale_value(scale, 2), .75, 0);
    CHECK_OK(zonal__text_scale("0.25", "--t", &scale));
    CHECK_CLOSE(zonal__scale_value(scale, 999), .25, 0);
    CHECK_OK(zonal__text_scale("d", "--scale", &scale));
    CHECK_CLOSE(zonal__scale_value(scale, 64), 64, 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_FAILS(zonal__text_scale(bad[i], "--t", &scale), ZONAL_ARGUMENT,
                    "--t must be a number, a number over the dimension such as 5/d, or d, got");
    memset(endless, '0', sizeof endless);
    memcpy(endless, "0.25", 4); /* with many zeros behind */
    memcpy(endless + sizeof endless - 6, "e2/d", 5);
    endless[sizeof endless - 2] = '\0';
    CHECK_OK(zonal__text_scale(endless, "--t", &scale));
    CHECK(scale.factor == 25 && scale.power == -1);
    memset(endless, '1', sizeof endless - 1); /* 199 digits are a number, 400 are infinite */
    endless[sizeof endless - 1] = '\0';
    CHECK_OK(zonal__text_scale(endless, "--t", &scale));
    CHECK(scale.factor > 1e198 && scale.power == 0);
    CHECK_FAILS(zonal__text_scale("1e400", "--t", &scale), ZONAL_ARGUMENT, "--t must be");
    CHECK(scale.factor > 1e198);
}

/* A number that is too long for the room is refused, not cut: it could be another one. */
static void test_lists(void) {
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    char text[200];
    double numbers[3];
    int64_t whole[3];
    int count = 0;
    CHECK_OK(zonal__list_double("0.5,1000,0.2", "--spectrum", 3, numbers, &count));
    CHECK(count == 3 && numbers[0] == .5 && numbers[1] == 1000 && numbers[2] == .2);
    snprintf(text, sizeof text, "0.5,1%se-61,0.2", zeros);
    CHECK_FAILS(zonal__list_double(text, "--spectrum", 3, numbers, &count), ZONAL_ARGUMENT,
                "--spectrum takes numbers of at most 63 characters, got 1000");
    snprintf(text, sizeof text, "%s7", zeros);
    CHECK_FAILS(zonal__list_int64(text, "--batch", 1, 9, 3, whole, &count), ZONAL_ARGUMENT,
                "write it shorter");
    CHECK_OK(zonal__list_int64(text + 2, "--batch", 1, 9, 3, whole, &count)); /* 63 of them */
    CHECK(count == 1 && whole[0] == 7);
    CHECK_FAILS(zonal__list_int64("1,2,3,4", "--batch", 1, 9, 3, whole, &count), ZONAL_ARGUMENT,
                "at most 3 numbers");
    CHECK_FAILS(zonal__list_int64("1,2,", "--batch", 1, 9, 3, whole, &count), ZONAL_ARGUMENT,
                "--batch must be a whole number, got \"\"");
    CHECK_FAILS(zonal__list_int64("1,12", "--batch", 1, 9, 3, whole, &count), ZONAL_ARGUMENT,
                "--batch must be from 1 to 9, got 12");
}

static void test_utf8(void) {
    static const struct {
        const char *text;
        int bytes;
    } cases[] = {{"", 1},
                 {"a", 1},
                 {"\xc3\xa9", 2},
                 {"\xe2\x82\xac", 3},
                 {"\x80", 0},
                 {"\xc3", 0},
                 {"\xf0\x9f\x98\x80", 4},
                 {"\xc0\x80", 0},
                 {"\xff", 0},
                 {"\xed\xa0\x80", 0},
                 {"\xf4\x90\x80\x80", 0},
                 {"\xe2\x82", 0},
                 {"\xe0\x80\x80", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_MSG(zonal__text_utf8(cases[i].text) == cases[i].bytes, "case %zu: %d, want %d", i,
                  zonal__text_utf8(cases[i].text), cases[i].bytes);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_sample(zonal__json *json) {
    zonal__json_begin_object(json);
    zonal__json_key_text(json, "name", "a \"b\"\\\n\t\x01 \xc3\xa9 \xff");
    zonal__json_key_int(json, "n", INT64_MIN);
    zonal__json_key_double(json, "value", 0.1);
    zonal__json_key_bool(json, "yes", 1);
    zonal__json_key(json, "numbers");
    zonal__json_begin_array(json);
    zonal__json_double(json, 1);
    zonal__json_double(json, NAN);
    zonal__json_double(json, -INFINITY);
    zonal__json_bool(json, 0);
    zonal__json_end_array(json);
    zonal__json_key(json, "tests");
    zonal__json_begin_array(json);
    for (int i = 0; i < 2; i++) {
        zonal__json_begin_object(json);
        zonal__json_key_int(json, "i", i);
        zonal__json_key_text(json, "t", NULL);
        zonal__json_end_object(json);
    }
    zonal__json_end_array(json);
    zonal__json_key(json, "empty");
    zonal__json_begin_object(json);
    zonal__json_end_object(json);
    zonal__json_end_object(json);
}

static const char sample_text[] =
    "{\n"
    "  \"name\": \"a \\\"b\\\"\\\\\\n\\u0009\\u0001 \xc3\xa9 \xef\xbf\xbd\",\n"
    "  \"n\": -9223372036854775808,\n"
    "  \"value\": 0.10000000000000001,\n"
    "  \"yes\": true,\n"
    "  \"numbers\": [1, null, null, false],\n"
    "  \"tests\": [\n"
    "    {\"i\": 0, \"t\": null},\n"
    "    {\"i\": 1, \"t\": null}],\n"
    "  \"empty\": {}\n"
    "}\n";

static void test_json_text(void) {
    zonal__json json;
    const char *text;
    zonal__json_init(&json, NULL);
    write_sample(&json);
    if (CHECK_OK(zonal__json_finish(&json, &text)))
        CHECK_MSG(strcmp(text, sample_text) == 0, "got:\n%s", text);
    zonal__json_fini(&json);
}

static void test_json_raw(void) {
    zonal__json json;
    const char *text;
    zonal__json_init(&json, NULL);
    zonal__json_begin_object(&json);
    zonal__json_key(&json, "a");
    zonal__json_raw(&json, "[1, 2]xyz", 6);
    zonal__json_key(&json, "b");
    zonal__json_begin_array(&json);
    zonal__json_raw(&json, "{\"c\": 3}", 8);
    zonal__json_int(&json, 4);
    zonal__json_end_array(&json);
    zonal__json_end_object(&json);
    if (CHECK_OK(zonal__json_finish(&json, &text)))
        CHECK_MSG(strcmp(text, "{\n  \"a\": [1, 2],\n  \"b\": [\n    {\"c\": 3}, 4]\n}\n") == 0,
                  "got:\n%s", text);
    zonal__json_fini(&json);
}

static void test_json_doubles_round_trip(void) {
    static const double values[] = {
        0.1, -0.0, 1e300, DBL_MIN, DBL_TRUE_MIN, DBL_MAX, 1.0 / 3, 1e22, 123456789012345678.0};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        zonal__json json;
        const char *text;
        zonal__json_init(&json, NULL);
        zonal__json_double(&json, values[i]);
        if (CHECK_OK(zonal__json_finish(&json, &text))) {
            double back = strtod(text, NULL);
            CHECK_MSG(memcmp(&back, &values[i], sizeof back) == 0, "%s", text);
        }
        zonal__json_fini(&json);
    }
}

static void test_json_decimal_comma(void) {
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    const char *found = NULL, *text;
    zonal__json json;
    for (int i = 0; !found && i < 4; i++) found = setlocale(LC_NUMERIC, names[i]);
    if (!found) SKIP("no locale with a decimal comma is installed");
    zonal__json_init(&json, NULL);
    zonal__json_double(&json, 1.5);
    if (CHECK_OK(zonal__json_finish(&json, &text))) CHECK(strcmp(text, "1.5\n") == 0);
    zonal__json_fini(&json);
    setlocale(LC_NUMERIC, "C");
}

static void test_json_stream(void) {
    FILE *stream = tmpfile();
    zonal__json json;
    const char *text;
    char back[sizeof sample_text + 1] = "";
    if (!stream) SKIP("no temporary file");
    zonal__json_init(&json, stream);
    write_sample(&json);
    CHECK_OK(zonal__json_finish(&json, &text));
    CHECK(text == NULL);
    zonal__json_fini(&json);
    rewind(stream);
    CHECK(fread(back, 1, sizeof back - 1, stream) == sizeof sample_text - 1);
    CHECK(strcmp(back, sample_text) == 0);
    fclose(stream);
}

/* Far more than is kept before it is passed on: the pieces must join without a seam. */
static void test_json_long_stream(void) {
    FILE *stream = tmpfile();
    zonal__json json;
    int64_t count = 0, last = -1, value;
    if (!stream) SKIP("no temporary file");
    zonal__json_init(&json, stream);
    zonal__json_begin_array(&json);
    for (int64_t i = 0; i < 50000; i++) zonal__json_int(&json, i);
    zonal__json_end_array(&json);
    CHECK_OK(zonal__json_finish(&json, NULL));
    CHECK(json.capacity <= 4 * 65536);
    zonal__json_fini(&json);
    rewind(stream);
    CHECK(fgetc(stream) == '[');
    while (fscanf(stream, "%lld%*[,] ", (long long *)&value) == 1) {
        CHECK(value == last + 1);
        last = value;
        count++;
    }
    CHECK_MSG(count == 50000, "%lld numbers", (long long)count);
    fclose(stream);
}

static void test_json_full_disk(void) {
    FILE *stream = fopen("/dev/full", "w");
    zonal__json json;
    if (!stream) SKIP("no /dev/full");
    setvbuf(stream, NULL, _IONBF, 0);
    zonal__json_init(&json, stream);
    write_sample(&json);
    CHECK_FAILS(zonal__json_finish(&json, NULL), ZONAL_IO, "No space left on device");
    zonal__json_fini(&json);
    fclose(stream);
}

static void check_misuse(void (*wrong)(zonal__json *), const char *sentence) {
    zonal__json json;
    const char *text;
    zonal__json_init(&json, NULL);
    wrong(&json);
    CHECK_FAILS(zonal__json_finish(&json, &text), ZONAL_ARGUMENT, sentence);
    CHECK(text == NULL);
    zonal__json_fini(&json);
}

static void write_nothing(zonal__json *json) {
    (void)json;
}

static void write_twice(zonal__json *json) {
    zonal__json_int(json, 1);
    zonal__json_int(json, 2);
}

static void write_without_key(zonal__json *json) {
    zonal__json_begin_object(json);
    zonal__json_int(json, 1);
    zonal__json_end_object(json);
}

static void write_key_in_array(zonal__json *json) {
    zonal__json_begin_array(json);
    zonal__json_key(json, "a");
    zonal__json_end_array(json);
}

static void write_key_without_value(zonal__json *json) {
    zonal__json_begin_object(json);
    zonal__json_key(json, "a");
    zonal__json_end_object(json);
}

static void write_crossed(zonal__json *json) {
    zonal__json_begin_array(json);
    zonal__json_end_object(json);
}

static void write_too_deep(zonal__json *json) {
    for (int i = 0; i < 100; i++) zonal__json_begin_array(json);
}

static void write_open(zonal__json *json) {
    zonal__json_begin_array(json);
}

static void test_json_misuse(void) {
    check_misuse(write_nothing, "the text ends too early");
    check_misuse(write_twice, "a second outermost value");
    check_misuse(write_without_key, "a value in an object needs a key");
    check_misuse(write_key_in_array, "a key belongs into an object");
    check_misuse(write_key_without_value, "an end without its beginning");
    check_misuse(write_crossed, "an end without its beginning");
    check_misuse(write_too_deep, "too deep");
    check_misuse(write_open, "the text ends too early");
}

static zonal_status write_long_text(void *context) {
    zonal__json json;
    zonal_status status;
    const char *text;
    (void)context;
    zonal__json_init(&json, NULL);
    zonal__json_begin_array(&json);
    for (int i = 0; i < 5000; i++) zonal__json_double(&json, i / 3.0);
    zonal__json_end_array(&json);
    status = zonal__json_finish(&json, &text);
    zonal__json_fini(&json);
    return status;
}

static void test_json_memory(void) {
    test_every_allocation("a JSON text of 100 kB", write_long_text, NULL);
}

static void check_plain(const char *text, const char *want) {
    char out[64];
    zonal__text_plain(text, out, sizeof out);
    CHECK_MSG(strcmp(out, want) == 0, "got \"%s\", want \"%s\"", out, want);
}

static void test_plain(void) {
    check_plain("", "");
    check_plain("plain, \xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80",
                "plain, \xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80");
    check_plain("a\033[31mb", "a\\x1b[31mb");
    check_plain("a\nb\tc\177", "a\\x0ab\\x09c\\x7f");
    check_plain("\xc2\x9b", "\\u009b"); /* C1: another ESC [ */
    check_plain("a\xe2\x80\xae"
                "b",
                "a\\u202eb"); /* right to left from here on */
    check_plain("\xe2\x80\xa8\xe2\x81\xa7", "\\u2028\\u2067");
    check_plain("\xd8\x9c", "\\u061c");
    check_plain("\xff\xc3(\xe2\x82", "\\xff\\xc3(\\xe2\\x82");        /* bytes that are no UTF-8 */
    check_plain("\xc0\xaf\xed\xa0\x80", "\\xc0\\xaf\\xed\\xa0\\x80"); /* overlong, surrogate */
}

static void test_plain_is_cut(void) {
    char out[64];
    for (size_t size = 8; size < 40; size++) {
        memset(out, 'Z', sizeof out);
        zonal__text_plain("0123456789\xc3\xbc\033\xc3\xbc"
                          "end, and more",
                          out, size);
        size_t length = strlen(out);
        CHECK_MSG(length < size && out[size] == 'Z', "size %zu: %zu bytes", size, length);
        CHECK_MSG(size > 31 || strcmp(out + length - 3, "...") == 0, "size %zu: %s", size, out);
        for (const char *c = out; *c; c += zonal__text_utf8(c))
            if (!CHECK(zonal__text_utf8(c) > 0)) break;
    }
}

static void test_shorten(void) {
    char sentence[3001], out[100];
    memset(sentence, 'x', 3000);
    memcpy(sentence, "cannot read ", 12);
    memcpy(sentence + 2980, "; name another file", 20);
    zonal__text_shorten(sentence, out, sizeof out);
    CHECK(strlen(out) < sizeof out);
    CHECK(strncmp(out, "cannot read xxx", 15) == 0 && strstr(out, " ... "));
    CHECK(strcmp(out + strlen(out) - 19, "; name another file") == 0);
    zonal__text_shorten("short", out, sizeof out);
    CHECK(strcmp(out, "short") == 0);
    sentence[99] = '\0';
    zonal__text_shorten(sentence, out, sizeof out); /* just fits */
    CHECK(strcmp(out, sentence) == 0);
}

static void test_p(void) {
    static const struct {
        double log10_p;
        const char *want;
    } cases[] = {{0, "1.0000"},        {-1.466, "0.0342"},       {-3.999, "0.0001"},
                 {-6.92, "1.2e-07"},   {-299.5, "3.2e-300"},     {-300.5, "1e-300"},
                 {-5119.7, "1e-5120"}, {-99999.25, "<1e-99999"}, {-1e300, "<1e-99999"},
                 {NAN, "-"},           {-INFINITY, "<1e-300"}};
    char out[ZONAL__P_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_MSG(strcmp(zonal__text_p(cases[i].log10_p, out), cases[i].want) == 0,
                  "10^%g: got %s, want %s", cases[i].log10_p, out, cases[i].want);
}

static void test_plural(void) {
    CHECK(strcmp(zonal__text_plural(1), "") == 0);
    CHECK(strcmp(zonal__text_plural(0), "s") == 0 && strcmp(zonal__text_plural(2), "s") == 0);
}

static const test_case tests[] = {{"append", test_append},
                                  {"distance", test_distance},
                                  {"distance_of_long_words", test_distance_of_long_words},
                                  {"nearest", test_nearest},
                                  {"double", test_double},
                                  {"int", test_int},
                                  {"scale", test_scale},
                                  {"lists", test_lists},
                                  {"utf8", test_utf8},
                                  {"plain", test_plain},
                                  {"plain_is_cut", test_plain_is_cut},
                                  {"shorten", test_shorten},
                                  {"p", test_p},
                                  {"plural", test_plural},
                                  {"json_text", test_json_text},
                                  {"JSON that is JSON already", test_json_raw},
                                  {"json_doubles_round_trip", test_json_doubles_round_trip},
                                  {"json_decimal_comma", test_json_decimal_comma},
                                  {"json_stream", test_json_stream},
                                  {"json_long_stream", test_json_long_stream},
                                  {"json_full_disk", test_json_full_disk},
                                  {"json_misuse", test_json_misuse},
                                  {"json_memory", test_json_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
