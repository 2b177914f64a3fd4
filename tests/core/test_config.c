/* Configuration files, their sources and their dump (src/core/config.h, options.h), and JSON lines
 * (src/core/jsonl.h). Python's tomllib is a second oracle: tests/safetensors_test.py. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "core/config.h"
#include "core/json.h"
#include "core/jsonl.h"
#include "core/memory.h"
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"

typedef struct settings {
    int64_t epochs, workers;
    double lr, beta[2];
    zonal__scale t;
    int method, bar, amp;
    const char *path, *name, *config;
} settings;

static const char *const methods[] = {"mmd-heat", "kl-heat", NULL};

/* "0.9,0.999" */
static zonal_status set_betas(void *target, const zonal__option *option, const char *shown,
                              const char *text) {
    settings *s = target;
    (void)option;
    if (sscanf(text, "%lf,%lf", &s->beta[0], &s->beta[1]) != 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be two numbers, got \"%s\"", shown, text);
    return ZONAL_OK;
}

static const zonal__option table[] = {
    {.name = "epochs",
     .type = ZONAL__OPTION_INT,
     .target = offsetof(settings, epochs),
     .initial = "200",
     .least = 1,
     .most = 100000,
     .help = "passes over the data"},
    {.name = "optimiser-lr",
     .type = ZONAL__OPTION_DOUBLE,
     .target = offsetof(settings, lr),
     .initial = "1e-3",
     .most = 10,
     .rules = ZONAL__OPTION_OVER,
     .help = "learning rate"},
    {.name = "optimiser-betas",
     .type = ZONAL__OPTION_CUSTOM,
     .set = set_betas,
     .initial = "0.9,0.999",
     .help = "of AdamW"},
    {.name = "loss-t",
     .type = ZONAL__OPTION_SCALE,
     .target = offsetof(settings, t),
     .initial = "5/d",
     .least = 0,
     .most = INFINITY,
     .help = "time of the heat kernel"},
    {.name = "method",
     .type = ZONAL__OPTION_WORD,
     .target = offsetof(settings, method),
     .words = methods,
     .rules = ZONAL__OPTION_REQUIRED,
     .help = "the loss"},
    {.name = "bar",
     .type = ZONAL__OPTION_FLAG,
     .target = offsetof(settings, bar),
     .initial = "yes",
     .help = "show a bar"},
    {.name = "amp", .type = ZONAL__OPTION_FLAG, .target = offsetof(settings, amp), .help = "bf16"},
    {.name = "data-path",
     .type = ZONAL__OPTION_STRING,
     .target = offsetof(settings, path),
     .help = "the images"},
    {.name = "data-loader-workers",
     .type = ZONAL__OPTION_INT,
     .target = offsetof(settings, workers),
     .initial = "2",
     .help = "threads"},
    {.name = "name",
     .type = ZONAL__OPTION_STRING,
     .target = offsetof(settings, name),
     .initial = "run",
     .help = "of the run"},
    {.name = "config",
     .type = ZONAL__OPTION_STRING,
     .target = offsetof(settings, config),
     .rules = ZONAL__OPTION_LINE,
     .help = "a configuration file"},
    {.name = "set",
     .type = ZONAL__OPTION_ASSIGN,
     .rules = ZONAL__OPTION_LINE,
     .help = "an option, in the words of the file"},
    {0}};

static void write_text(const char *path, const void *text, size_t length) {
    FILE *stream = fopen(path, "wb");
    if (!CHECK(stream != NULL)) return;
    CHECK(fwrite(text, 1, length, stream) == length);
    fclose(stream);
}

/* The settings that a file of this text gives; the file is folder->name. */
typedef struct reading {
    test_folder folder;
    zonal__options options;
    settings s;
    zonal__config *config;
} reading;

static zonal_status read_text(reading *r, const char *text) {
    if (!CHECK(test_folder_make(&r->folder))) return ZONAL_IO;
    write_text(test_folder_file(&r->folder, "run.toml"), text, strlen(text));
    ZONAL_TRY(zonal__options_init(&r->options, table, &r->s));
    return zonal__config_read(r->folder.name, &r->options, &r->config);
}

static void drop(reading *r) {
    zonal__config_destroy(r->config);
    test_folder_remove(&r->folder);
}

static void check_refused(const char *text, zonal_status status, const char *sentence) {
    reading r = {0};
    CHECK_FAILS(read_text(&r, text), status, sentence);
    CHECK_MSG(strstr(zonal_last_error()->message, "run.toml:") != NULL, "no file and line: %s",
              zonal_last_error()->message);
    CHECK(r.config == NULL);
    drop(&r);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void test_values(void) {
    reading r = {0};
    if (CHECK_OK(read_text(&r, "\xef\xbb\xbf# a recipe, with a byte order mark\r\n"
                               "epochs = 1_000  # whole\r\n"
                               "\n"
                               "method=\"kl-heat\"\n"
                               "bar = false\n"
                               "name = \"a # \\\"b\\\\\\t\\u00e9\\U0001F600\"\n"
                               "data.loader.workers = +4\n"
                               "[ optimiser ] # comment\n"
                               "  lr = 2.5e-4\n"
                               "  betas = [ 0.8, # first\n"
                               "            0.9_9,\n"
                               "          ]\n"
                               "[loss]\n"
                               "t = \"2/d\"\n"
                               "[data]\n"
                               "path = \"/a b\""))) {
        CHECK(r.s.epochs == 1000 && r.s.method == 1 && r.s.bar == 0 && r.s.workers == 4);
        CHECK(strcmp(r.s.name, "a # \"b\\\t\xc3\xa9\xf0\x9f\x98\x80") == 0);
        CHECK(strcmp(r.s.path, "/a b") == 0);
        CHECK_CLOSE(r.s.lr, 2.5e-4, 0);
        CHECK_CLOSE(r.s.beta[0], 0.8, 0);
        CHECK_CLOSE(r.s.beta[1], 0.99, 0);
        CHECK(r.s.t.factor == 2 && r.s.t.power == -1);
        CHECK(r.s.amp == 0 && zonal__options_source(&r.options, "amp") == ZONAL__SOURCE_NONE);
    }
    drop(&r);
}

static void test_more_values(void) {
    reading r = {0};
    if (CHECK_OK(read_text(&r, "optimiser-lr = 1\nloss.t = 0.5\namp = true\n"
                               "optimiser.betas = \"0.5,0.25\"\n[data.loader]\nworkers = 7\n"))) {
        CHECK(r.s.lr == 1 && r.s.t.factor == 0.5 && r.s.t.power == 0 && r.s.amp == 1);
        CHECK(r.s.beta[0] == 0.5 && r.s.beta[1] == 0.25 && r.s.workers == 7);
    }
    drop(&r);
    r = (reading){0};
    CHECK_OK(read_text(&r, ""));
    CHECK(r.s.epochs == 200 &&
          zonal__options_source(&r.options, "epochs") == ZONAL__SOURCE_DEFAULT);
    drop(&r);
}

static void test_unknown(void) {
    check_refused("epoch = 1\n", ZONAL_ARGUMENT,
                  "run.toml:1: there is no option epoch; did you mean epochs?");
    check_refused("\n[optimiser]\nrl = 1\n", ZONAL_ARGUMENT,
                  "run.toml:3: there is no option rl; did you mean lr?");
    check_refused("optimiser_lr = 1\n", ZONAL_ARGUMENT, "did you mean optimiser-lr?");
    check_refused("sinkhorn = 1\n", ZONAL_ARGUMENT,
                  "there is no option sinkhorn; --help lists the options");
    check_refused("[optimizer]\nlr = 1\n", ZONAL_ARGUMENT,
                  "run.toml:1: there is no section [optimizer]; did you mean [optimiser]?");
    check_refused("[sinkhorn]\n", ZONAL_ARGUMENT, "there is no section [sinkhorn]");
    check_refused("config = \"x\"\n", ZONAL_ARGUMENT,
                  "config has no place in a file; give --config");
    check_refused("set = \"a=b\"\n", ZONAL_ARGUMENT, "set has no place in a file");
}

static void test_twice(void) {
    check_refused("epochs = 1\n\nepochs = 1\n", ZONAL_ARGUMENT,
                  "run.toml:3: epochs is set in line 1 already; leave one out");
    check_refused("optimiser.lr = 1\n[optimiser]\nlr = 1\n", ZONAL_ARGUMENT,
                  "run.toml:3: lr is set in line 1 already");
    check_refused("[data]\n[loss]\n[data]\n", ZONAL_ARGUMENT,
                  "run.toml:3: [data] is there twice; join the two");
}

static void test_types_and_bounds(void) {
    check_refused("epochs = 1.0\n", ZONAL_ARGUMENT,
                  "run.toml:1: epochs must be a whole number, got a number");
    check_refused("epochs = \"1\"\n", ZONAL_ARGUMENT, "must be a whole number, got a text");
    check_refused("optimiser.lr = \"1\"\n", ZONAL_ARGUMENT,
                  "optimiser.lr must be a number, got a text");
    check_refused("bar = 1\n", ZONAL_ARGUMENT, "bar must be true or false, got a whole number");
    check_refused("bar = \"yes\"\n", ZONAL_ARGUMENT, "bar must be true or false, got a text");
    check_refused("name = 1\n", ZONAL_ARGUMENT,
                  "name must be a text in double quotes, got a whole number");
    check_refused("method = true\n", ZONAL_ARGUMENT, "must be a text in double quotes, got true");
    check_refused("loss.t = [1]\n", ZONAL_ARGUMENT, "loss.t must be a number, got a list");
    check_refused("epochs = 0\n", ZONAL_ARGUMENT,
                  "run.toml:1: epochs must be between 1 and 100000, got 0");
    check_refused("epochs = 99999999999999999999\n", ZONAL_ARGUMENT, "does not fit into 64 bits");
    check_refused("optimiser.lr = 1e999\n", ZONAL_ARGUMENT, "must be a finite number");
    check_refused("[optimiser]\nlr = 0.0\n", ZONAL_ARGUMENT,
                  "run.toml:2: lr must be above 0 and at most 10, got 0.0");
    check_refused("method = \"kl-haet\"\n", ZONAL_ARGUMENT,
                  "method does not know \"kl-haet\"; did you mean kl-heat?");
    check_refused("optimiser.betas = [0.9]\n", ZONAL_ARGUMENT,
                  "run.toml:1: optimiser.betas must be two numbers, got \"0.9\"");
    check_refused("name = \"\"\n", ZONAL_ARGUMENT, "name is empty");
}

static void test_no_toml(void) {
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"epochs\n", "run.toml:1: = is missing after epochs"},
        {"epochs 1\n", "= is missing after epochs"},
        {"= 1\n", "a key is missing"},
        {"epochs =\n", "a value is missing"},
        {"epochs = # 1\n", "a value is missing"},
        {"epochs =", "a value is missing"},
        {"epochs = 1 2\n", "something follows on the line"},
        {"epochs = 1, 2\n", "something follows on the line"},
        {"name = \"a\" \"b\"\n", "something follows on the line"},
        {"[loss] t = 1\n", "something follows on the line"},
        {"\"epochs\" = 1\n", "keys are written without quotes"},
        {".epochs = 1\n", "a key is missing"},
        {"data..path = 1\n", "= is missing after data"},
        {"data. path = 1\n", "= is missing after data"},
        {"[]\n", "a key is missing"},
        {"[loss\n", "the ] of a section is missing"},
        {"[[loss]]\n", "lists of tables"},
        {"name = 'x'\n", "texts stand in double quotes"},
        {"name = \"x\n", "a text has no closing quote"},
        {"name = \"x", "a text has no closing quote"},
        {"name = \"x\\", "an unknown escape"},
        {"name = \"\\e\"\n", "an unknown escape in a text; write \\\\ for a backslash"},
        {"name = \"C:\\dir\"\n", "an unknown escape"},
        {"name = \"\\u12\"\n", "\\u wants 4 hexadecimal digits"},
        {"name = \"\\ud800\"\n", "is no character"},
        {"name = \"\\U00110000\"\n", "is no character"},
        {"name = \"\\u0000\"\n", "is no character"},
        {"name = \"\"\"x\"\"\"\n", "texts over several lines"},
        {"name = run\n", "run is no value; texts stand in double quotes"},
        {"bar = yes\n", "yes is no value"},
        {"bar = True\n", "True is no value"},
        {"epochs = 0x10\n", "0x10 is no value; texts stand in double quotes, numbers are decimal"},
        {"epochs = 010\n", "010 is no value"},
        {"epochs = 0_1\n", "0_1 is no value"},
        {"epochs = 1__0\n", "1__0 is no value"},
        {"epochs = _1\n", "_1 is no value"},
        {"epochs = 1_\n", "1_ is no value"},
        {"epochs = --1\n", "--1 is no value"},
        {"optimiser.lr = .5\n", ".5 is no value"},
        {"optimiser.lr = 5.\n", "5. is no value"},
        {"optimiser.lr = 1.e3\n", "1.e3 is no value"},
        {"optimiser.lr = 1e\n", "1e is no value"},
        {"optimiser.lr = inf\n", "inf is no value"},
        {"optimiser.lr = nan\n", "nan is no value"},
        {"name = 2024-01-01\n", "2024-01-01 is no value"},
        {"name = {a = 1}\n", "tables in braces are not read"},
        {"optimiser.betas = [0.9,\n", "run.toml:2: a list has no end"},
        {"optimiser.betas = [0.9\n", "run.toml:2: a comma or ] is missing in a list"},
        {"optimiser.betas = [0.9\n\n0.9]\n", "run.toml:3: a comma or ] is missing in a list"},
        {"optimiser.betas = [,1]\n", "is no value"},
        {"optimiser.betas = [[1], [2]]\n", "lists of lists"},
        {"optimiser.betas = [1, \"2\"]\n", "one kind of them"},
        {"optimiser.betas = [true]\n", "a list holds numbers or texts"},
        {"optimiser.betas = [\"1,2\"]\n", "cannot have a comma"},
        {"# \x01\n", "run.toml:1: a control character"},
        {"a\rb\n", "a control character"},
        {"# ok\n# \xff\n", "run.toml:2: bytes that are not UTF-8"},
        {"an-option-whose-name-is-longer-than-any-buffer-that-was-made-for-it-here = 1\n",
         "a key is too long"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_refused(cases[i].text, ZONAL_FORMAT, cases[i].sentence);
}

static void test_unreadable(void) {
    test_folder folder;
    zonal__options options;
    settings s;
    zonal__config *config;
    static char large[(1 << 20) + 1];
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__options_init(&options, table, &s));
    CHECK_FAILS(zonal__config_read(test_folder_file(&folder, "x"), &options, &config), ZONAL_IO,
                "No such file");
    CHECK(config == NULL);
    CHECK_FAILS(zonal__config_read(folder.path, &options, &config), ZONAL_IO, "is not a file");
    memset(large, '#', sizeof large);
    write_text(test_folder_file(&folder, "x"), large, sizeof large);
    CHECK_FAILS(zonal__config_read(folder.name, &options, &config), ZONAL_FORMAT,
                "is it the right file?");
    write_text(folder.name, "name = \"a\0b\"", 12);
    CHECK_FAILS(zonal__config_read(folder.name, &options, &config), ZONAL_FORMAT,
                "a control character");
    test_folder_remove(&folder);
}

/* ---- sources and the dump -------------------------------------------------------------------- */

static void test_precedence(void) {
    char *argv[] = {
        "train", "--bar",    "x",        "--config", "here.toml", "--set", "optimiser.lr=0.5",
        "--set", "amp=true", "--no-bar", NULL};
    char *other[] = {"train", "--", "--config", "x", NULL};
    char *joined[] = {"train", "--configs", "--config=y", NULL};
    reading r = {0};
    CHECK(strcmp(zonal__options_peek(10, argv, "config"), "here.toml") == 0);
    CHECK(zonal__options_peek(4, argv, "config") == NULL);
    CHECK(zonal__options_peek(4, other, "config") == NULL);
    CHECK(strcmp(zonal__options_peek(3, joined, "config"), "y") == 0);
    argv[1] = "--epochs=9";
    if (CHECK_OK(read_text(&r, "method = \"kl-heat\"\nepochs = 5\noptimiser.lr = 0.25\n"
                               "bar = true\nname = \"n\"\n"))) {
        CHECK_OK(zonal__options_parse(&r.options, 10, argv));
        CHECK(r.s.epochs == 9 && r.s.lr == 0.5 && r.s.bar == 0 && r.s.amp == 1);
        CHECK(zonal__options_source(&r.options, "epochs") == ZONAL__SOURCE_FLAG);
        CHECK(zonal__options_source(&r.options, "optimiser-lr") == ZONAL__SOURCE_FLAG);
        CHECK(zonal__options_source(&r.options, "name") == ZONAL__SOURCE_FILE);
        CHECK(zonal__options_source(&r.options, "data-loader-workers") == ZONAL__SOURCE_DEFAULT);
        CHECK(r.options.argument_count == 1 && strcmp(r.options.arguments[0], "x") == 0);
    }
    drop(&r);
}

static zonal_status parse_set(const char *assignment, const char *also) {
    char *argv[] = {"train",      "--method", "kl-heat", "--set", (char *)assignment,
                    (char *)also, NULL};
    zonal__options options;
    settings s;
    ZONAL_TRY(zonal__options_init(&options, table, &s));
    return zonal__options_parse(&options, also ? 6 : 5, argv);
}

static void test_set(void) {
    CHECK_OK(parse_set("name=a=b", NULL));
    CHECK_FAILS(parse_set("epochs", NULL), ZONAL_ARGUMENT,
                "--set must look like key=value, got \"epochs\"");
    CHECK_FAILS(parse_set("=1", NULL), ZONAL_ARGUMENT, "--set must look like key=value");
    CHECK_FAILS(parse_set("epocs=1", NULL), ZONAL_ARGUMENT,
                "there is no option --set epocs; did you mean --epochs?");
    CHECK_FAILS(parse_set("epochs=0", NULL), ZONAL_ARGUMENT,
                "--set epochs must be between 1 and 100000, got 0");
    CHECK_FAILS(parse_set("epochs=1", "--epochs=2"), ZONAL_ARGUMENT, "--epochs is given twice");
    CHECK_FAILS(parse_set("bar=maybe", NULL), ZONAL_ARGUMENT, "must be yes or no");
    CHECK_FAILS(parse_set("config=x", NULL), ZONAL_ARGUMENT,
                "--set config does not work; write --config");
    CHECK_FAILS(parse_set("set=x", NULL), ZONAL_ARGUMENT, "--set set does not work");
}

static void test_two_files(void) {
    reading r = {0};
    zonal__config *second = NULL;
    const char text[] = "epochs = 6\n";
    if (CHECK_OK(read_text(&r, "epochs = 5\nname = \"n\"\n"))) {
        write_text(test_folder_file(&r.folder, "b.toml"), text, strlen(text));
        CHECK_OK(zonal__config_read(r.folder.name, &r.options, &second));
        CHECK(r.s.epochs == 6 && strcmp(r.s.name, "n") == 0);
    }
    zonal__config_destroy(second);
    drop(&r);
}

static void test_dump_text(void) {
    static const char *const lines[] = {
        "epochs = 9                              # --epochs\n",
        "optimiser-lr = 0.001                    # default\n",
        "optimiser-betas = \"0.8,0.99\"            # ",
        "run.toml:3\n",
        "loss-t = \"5/d\"                          # default\n",
        "method = \"kl-heat\"                      # ",
        "run.toml:1\n",
        "bar = false                             # --no-bar\n",
        "name = \"a\\\"\\\\\\n\\u0001\\u007F\xc3\xa9\"          # ",
    };
    char *argv[] = {"train", "--epochs", "9", "--no-bar", "--config", "run.toml", NULL}, *text;
    reading r = {0};
    if (CHECK_OK(read_text(&r,
                           "method = \"kl-heat\"\nname = \"a\\\"\\\\\\n\\u0001\\u007f\xc3\xa9\"\n"
                           "optimiser.betas = [0.8, 0.99]\n")) &&
        CHECK_OK(zonal__options_parse(&r.options, 6, argv)) &&
        CHECK_OK(zonal__config_dump(&r.options, &text))) {
        for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
            CHECK_MSG(strstr(text, lines[i]) != NULL, "%s is not in:\n%s", lines[i], text);
        CHECK_MSG(!strstr(text, "amp") && !strstr(text, "config") && !strstr(text, "data-path"),
                  "what is not set is there:\n%s", text);
        zonal__free(text);
    }
    drop(&r);
}

static zonal_status note_settled(void *context, const char *name, const char *value,
                                 const char *comment) {
    char *names = context;
    (void)value;
    if (zonal__config_is_settled(comment)) strcat(strcat(names, name), " ");
    return ZONAL_OK;
}

/* What a dump reads back to has the same bits, for awkward numbers too. */
static void test_dump_round_trip(void) {
    static const char *const rates[] = {"0.1",
                                        "1e-5",
                                        "3",
                                        "2.5",
                                        "1e-300",
                                        "0.30000000000000004",
                                        "7.0000000000000009",
                                        "4.9406564584124654e-324"};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        reading r = {0}, back = {0};
        char text[200], *dump = NULL;
        snprintf(text, sizeof text,
                 "method = \"mmd-heat\"\noptimiser.lr = %s\nloss.t = %s\nname = \"\\u0001\\t\"\n",
                 rates[i], rates[i]);
        if (CHECK_OK(read_text(&r, text)) && CHECK_OK(zonal__config_dump(&r.options, &dump)) &&
            CHECK_OK(read_text(&back, dump))) {
            CHECK_CLOSE(back.s.lr, r.s.lr, 0);
            CHECK_CLOSE(back.s.t.factor, r.s.t.factor, 0);
            CHECK(back.s.t.power == 0 && strcmp(back.s.name, r.s.name) == 0);
            CHECK(back.s.epochs == 200 && back.s.bar == 1 && back.s.beta[1] == 0.999);
        }
        zonal__free(dump);
        drop(&back);
        drop(&r);
    }
}

/* What is read of a comment, of settled values and others, does not depend on a file's name. */
static void test_dump_settled(void) {
    static const char *const files[] = {"x.toml", "here by me/x.toml", "a \"b\" by c.toml",
                                        "auto by default"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        test_folder folder;
        zonal__config *config = NULL, *listed = NULL;
        zonal__options options;
        settings s;
        char *dump = NULL, settled[200] = "";
        if (!CHECK(test_folder_make(&folder))) return;
        CHECK_OK(zonal__options_init(&options, table, &s));
        CHECK_OK(zonal__config_read_text(files[i], "epochs = 5\nmethod = \"kl-heat\"\n", &options,
                                         &config));
        s.epochs = 6;
        if (CHECK_OK(zonal__config_dump(&options, &dump))) {
            const char *path = test_folder_file(&folder, "dump.toml");
            write_text(path, dump, strlen(dump));
            CHECK_OK(zonal__config_list(path, note_settled, settled, &listed));
            CHECK_MSG(strcmp(settled, "epochs ") == 0, "%s: settled: %s\n%s", files[i], settled,
                      dump);
            remove(path);
        }
        zonal__free(dump);
        zonal__config_destroy(listed);
        zonal__config_destroy(config);
        rmdir(folder.path);
    }
}

static void test_dump_refused(void) {
    char *argv[] = {"train", "--method", "kl-heat", "--name", "\xe9t\xe9", NULL}, *text;
    zonal__options options;
    settings s;
    CHECK_OK(zonal__options_init(&options, table, &s));
    CHECK_OK(zonal__options_parse(&options, 5, argv));
    CHECK_FAILS(zonal__config_dump(&options, &text), ZONAL_ARGUMENT,
                "the value of --name is not UTF-8");
    CHECK(text == NULL);
}

static int is_name(const char *name) {
    return strcmp(name, "name") == 0;
}

/* "before" and "now" are files; which option differs first, and how. */
static void test_compare(void) {
    static const struct {
        const char *before, *now, *name, *old, *new;
    } cases[] = {
        {"", "", NULL, NULL, NULL},
        {"epochs = 5\n", "epochs = 6\n", "epochs", "5", "6"},
        {"optimiser.lr = 1e-3\n", "# the same\noptimiser.lr = 0.001\n", NULL, NULL, NULL},
        {"data.path = \"a\"\n", "", "data-path", "\"a\"", ""},
        {"", "data.path = \"a = b\"\n", "data-path", "", "\"a = b\""},
        {"data.path = \"a = b\"\n", "data.path = \"a = c\"\n", "data-path", "\"a = b\"",
         "\"a = c\""},
        {"name = \"a\"\n", "name = \"b\"\n", NULL, NULL, NULL}, /* left out */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        reading before = {0}, now = {0};
        zonal__config_change change;
        char *text = NULL;
        int found;
        if (CHECK_OK(read_text(&before, cases[i].before)) &&
            CHECK_OK(zonal__config_values(&before.options, is_name, &text)) &&
            CHECK_OK(read_text(&now, cases[i].now)) &&
            CHECK_OK(zonal__config_compare(&now.options, is_name, text, &change, &found))) {
            CHECK_MSG(!strstr(text, "#") && !strstr(text, "\nname"), "%s", text);
            CHECK_MSG(found == (cases[i].name != NULL), "case %zu", i);
            if (found && cases[i].name)
                CHECK_MSG(strcmp(change.name, cases[i].name) == 0 &&
                              strcmp(change.before, cases[i].old) == 0 &&
                              strcmp(change.now, cases[i].new) == 0,
                          "%s: %s, %s", change.name, change.before, change.now);
            /* Of a version that had fewer options: those at their defaults do not count. */
            CHECK_OK(zonal__config_compare(&before.options, NULL, "", &change, &found));
            CHECK(found == (cases[i].before[0] != '\0'));
        }
        zonal__free(text);
        drop(&before);
        drop(&now);
    }
}

static zonal_status read_and_dump(void *path) {
    zonal__options options;
    settings s;
    zonal__config *config;
    char *text;
    zonal_status status;
    ZONAL_TRY(zonal__options_init(&options, table, &s));
    ZONAL_TRY(zonal__config_read(path, &options, &config));
    status = zonal__config_dump(&options, &text);
    zonal__free(text);
    zonal__config_destroy(config);
    return status;
}

static void test_memory(void) {
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    write_text(test_folder_file(&folder, "x"), "epochs = 5\n", 11);
    test_every_allocation("a configuration", read_and_dump, folder.name);
    test_folder_remove(&folder);
}

/* Texts of pieces that reach deep into the grammar: no crash, and always a sentence with a line.
 * The sanitizers watch the memory. */
static void test_mutations(void) {
    static const char *const pieces[] = {"epochs",
                                         "optimiser",
                                         ".",
                                         "lr",
                                         "betas",
                                         " ",
                                         "=",
                                         "= ",
                                         "1",
                                         "0",
                                         "_",
                                         "e5",
                                         "-",
                                         "\"",
                                         "\\",
                                         "\\u00e9",
                                         "[",
                                         "]",
                                         ",",
                                         "\n",
                                         "\r\n",
                                         "#",
                                         "name",
                                         "true",
                                         "[data]\n",
                                         "\"x\"",
                                         "bar = false\n",
                                         "name = \"a\\tb\"\n",
                                         "optimiser.betas = [1, 2]\n",
                                         "\xc3\xa9",
                                         "\t"};
    enum { ROUNDS = 20000, MOST_PIECES = 12 };
    test_folder folder;
    uint64_t state = test_seed;
    int accepted = 0;
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0); /* far faster than a disk */
    if (!CHECK(test_folder_make(&folder))) return;
    test_folder_file(&folder, "run.toml");
    for (int round = 0; round < ROUNDS; round++) {
        char text[512] = "";
        zonal__options options;
        settings s;
        zonal__config *config;
        for (int i = round % MOST_PIECES; i >= 0; i--) {
            state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
            strcat(text, pieces[(state >> 33) % (sizeof pieces / sizeof pieces[0])]);
        }
        write_text(folder.name, text, strlen(text));
        CHECK_OK(zonal__options_init(&options, table, &s));
        if (zonal__config_read(folder.name, &options, &config) == ZONAL_OK)
            accepted++;
        else
            CHECK(strstr(zonal_last_error()->message, "run.toml:") != NULL);
        zonal__config_destroy(config);
    }
    printf("# %d texts, %d accepted\n", ROUNDS, accepted);
    CHECK_MSG(accepted > ROUNDS / 50 && accepted < ROUNDS / 2, "%d texts accepted", accepted);
    test_folder_remove(&folder);
}

/* ---- JSON lines ------------------------------------------------------------------------------ */

static void check_file(const char *path, const char *want) {
    char got[1024];
    FILE *stream = fopen(path, "rb");
    if (!CHECK(stream != NULL)) return;
    got[fread(got, 1, sizeof got - 1, stream)] = '\0';
    fclose(stream);
    CHECK_MSG(strcmp(got, want) == 0, "%s holds\n%s, want\n%s", path, got, want);
}

static zonal_status append_steps(const char *path, int first, int last) {
    zonal__jsonl *jsonl;
    zonal_status status;
    ZONAL_TRY(zonal__jsonl_open(path, &jsonl));
    status = ZONAL_OK;
    for (int step = first; step <= last && status == ZONAL_OK; step++) {
        zonal__json json;
        const char *text;
        zonal__json_init(&json, NULL);
        zonal__json_begin_object(&json);
        zonal__json_key_int(&json, "step", step);
        zonal__json_key_text(&json, "note", "a\nb");
        zonal__json_end_object(&json);
        status = zonal__json_finish(&json, &text);
        if (status == ZONAL_OK) status = zonal__jsonl_append(jsonl, text);
        zonal__json_fini(&json);
    }
    if (status == ZONAL_OK) status = zonal__jsonl_sync(jsonl);
    zonal__jsonl_close(jsonl);
    return status;
}

#define LINE(step) "{\"step\": " #step ",\"note\": \"a\\nb\"}\n"

static void test_lines(void) {
    test_folder folder;
    const char *path;
    if (!CHECK(test_folder_make(&folder))) return;
    path = test_folder_file(&folder, "metrics.jsonl");
    CHECK_OK(zonal__jsonl_truncate_after(path, "step", 3));
    CHECK_OK(append_steps(path, 1, 3));
    check_file(path, LINE(1) LINE(2) LINE(3));
    CHECK_OK(zonal__jsonl_truncate_after(path, "step", 3));
    CHECK_OK(append_steps(path, 4, 4));
    check_file(path, LINE(1) LINE(2) LINE(3) LINE(4));
    CHECK_OK(zonal__jsonl_truncate_after(path, "step", 2));
    check_file(path, LINE(1) LINE(2));
    CHECK_OK(zonal__jsonl_truncate_after(path, "step", -1));
    check_file(path, "");
    zonal__jsonl_close(NULL);
    test_folder_remove(&folder);
}

static void test_cut(void) {
    static const struct {
        const char *before, *after;
    } cases[] = {
        {LINE(1) LINE(2) "{\"step\": 3, \"no", LINE(1) LINE(2)},
        {LINE(1) LINE(2) LINE(3) "{\"ste", LINE(1) LINE(2)},
        {LINE(1) "{\"epoch\": 9}\n" LINE(2) "{\"epoch\": 9}\n",
         LINE(1) "{\"epoch\": 9}\n" LINE(2) "{\"epoch\": 9}\n"},
        {LINE(1) LINE(3) "{\"epoch\": 9}\n" LINE(4), LINE(1)},
        {LINE(2) "\n", LINE(2)},
        {LINE(1) LINE(2) "rubbish\n" LINE(3), LINE(1) LINE(2)},
        {"{\"a\": {\"step\": 9}, \"b\": [1.5, null]}\n" LINE(2),
         "{\"a\": {\"step\": 9}, \"b\": [1.5, null]}\n" LINE(2)},
        {LINE(2) "{\"step\": 1.5}\n", LINE(2)},
        {LINE(2) "{\"step\": 2}", LINE(2)},
        {"", ""},
    };
    /* Damage where lines were on the disk already, or no such file at all. */
    static const char *const others[] = {"dear diary\n", "{\"step\": 2}", "\n", LINE(1) "rubbish\n",
                                         LINE(1) "{\"step\": 2, \"no"};
    test_folder folder;
    const char *path;
    if (!CHECK(test_folder_make(&folder))) return;
    path = test_folder_file(&folder, "m");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text(path, cases[i].before, strlen(cases[i].before));
        CHECK_OK(zonal__jsonl_truncate_after(path, "step", 2));
        check_file(path, cases[i].after);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        write_text(path, others[i], strlen(others[i]));
        CHECK_FAILS(zonal__jsonl_truncate_after(path, "step", 2), ZONAL_FORMAT, "left alone");
        check_file(path, others[i]);
    }
    /* With a negative number no line was promised: what was being written is cut off, but no
     * other file. */
    static const char *const begun[] = {"{\"ste", "{\"step\": 2}", LINE(0) "{\"step\": 2, \"no",
                                        LINE(1)};
    for (size_t i = 0; i < sizeof begun / sizeof begun[0]; i++) {
        write_text(path, begun[i], strlen(begun[i]));
        CHECK_OK(zonal__jsonl_truncate_after(path, "step", -1));
        check_file(path, "");
    }
    write_text(path, "\0\0\0", 3);
    CHECK_OK(zonal__jsonl_truncate_after(path, "step", -1));
    check_file(path, "");
    static const char *const foreign[] = {"dear diary\n", "dear diary", LINE(0) "rubbish\n{"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        write_text(path, foreign[i], strlen(foreign[i]));
        CHECK_FAILS(zonal__jsonl_truncate_after(path, "step", -1), ZONAL_FORMAT,
                    "is no JSON object, so it is damaged or another file; it is left alone");
        check_file(path, foreign[i]);
    }
    write_text(path, "{\"step\": 2}\n\0\0\0", 15); /* zeros after a loss of power */
    CHECK_OK(zonal__jsonl_truncate_after(path, "step", 2));
    check_file(path, "{\"step\": 2}\n");
    write_text(path, "rubbish\n{\"step\": 2}\n", 20);
    CHECK_FAILS(zonal__jsonl_truncate_after(path, "step", 2), ZONAL_FORMAT,
                "line 2, with step 2, comes after a line that is damaged");
    write_text(path, "{\"step\": 3}\n{\"step\": 2}\n", 24);
    CHECK_FAILS(zonal__jsonl_truncate_after(path, "step", 2), ZONAL_FORMAT, "a later step");
    check_file(path, "{\"step\": 3}\n{\"step\": 2}\n");
    CHECK_FAILS(zonal__jsonl_truncate_after(folder.path, "step", 2), ZONAL_IO, "is a folder");
    test_folder_remove(&folder);
}

/* Whole lines alone, whatever the length at which the disk is full: a limit on the size of files
 * stands in for the disk. */
static void test_lines_full_disk(void) {
    test_folder folder;
    struct rlimit old, small;
    struct stat state;
    void (*old_handler)(int) = signal(SIGXFSZ, SIG_IGN);
    zonal__jsonl *jsonl;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK_OK(zonal__jsonl_open(test_folder_file(&folder, "m"), &jsonl));
    CHECK_OK(zonal__jsonl_append(jsonl, "{\"step\": 1}"));
    for (small = old, small.rlim_cur = 12; small.rlim_cur < 24; small.rlim_cur++) {
        CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
        CHECK_FAILS(zonal__jsonl_append(jsonl, "{\"step\": 2}"), ZONAL_IO, "cannot write");
        CHECK(stat(folder.name, &state) == 0 && state.st_size == 12);
    }
    setrlimit(RLIMIT_FSIZE, &old);
    CHECK_OK(zonal__jsonl_append(jsonl, "{\"step\": 2}"));
    zonal__jsonl_close(jsonl);
    check_file(folder.name, "{\"step\": 1}\n{\"step\": 2}\n");
    signal(SIGXFSZ, old_handler);
    test_folder_remove(&folder);
}

static void test_lines_refused(void) {
    test_folder folder;
    zonal__jsonl *jsonl;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_FAILS(zonal__jsonl_open(folder.path, &jsonl), ZONAL_IO, "Is a directory");
    CHECK(jsonl == NULL);
    CHECK_FAILS(zonal__jsonl_open(test_folder_file(&folder, "none/m"), &jsonl), ZONAL_IO,
                "No such file");
    write_text(test_folder_file(&folder, "m"), "{\"a\": 1}", 8);
    CHECK_FAILS(zonal__jsonl_open(folder.name, &jsonl), ZONAL_FORMAT, "ends inside a line");
    if (access("/dev/full", W_OK) == 0)
        CHECK_FAILS(append_steps("/dev/full", 1, 1), ZONAL_IO,
                    "No space left on device; free some space");
    test_folder_remove(&folder);
}

static zonal_status append_and_cut(void *path) {
    ZONAL_TRY(append_steps(path, 1, 2));
    return zonal__jsonl_truncate_after(path, "step", 0);
}

static void test_lines_memory(void) {
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    test_every_allocation("lines of JSON", append_and_cut, (void *)test_folder_file(&folder, "m"));
    test_folder_remove(&folder);
}

/* ---- without a table ------------------------------------------------------------------------- */

static zonal_status gather(void *context, const char *name, const char *value,
                           const char *comment) {
    char *out = context;
    size_t used = strlen(out);
    if (strcmp(name, "stop") == 0) return ZONAL_FAIL(ZONAL_ARGUMENT, "stopped");
    snprintf(out + used, 400 - used, "%s=%s|%s;", name, value, comment);
    return ZONAL_OK;
}

static void test_list(void) {
    static const char text[] = "lr = 1e-3     #  --lr \n"
                               "a.b = \"x # \\\"y\\\"\"# recipes/x.toml:3\r\n"
                               "flag = true\n"
                               "[section]\n"
                               "list = [1, # one\n 2]  # two\n"
                               "unknown = 1_000";
    test_folder folder;
    zonal__config *config;
    char found[400] = "";
    if (!CHECK(test_folder_make(&folder))) return;
    write_text(test_folder_file(&folder, "a.toml"), text, strlen(text));
    if (CHECK_OK(zonal__config_list(folder.name, gather, found, &config)))
        CHECK_MSG(strcmp(found, "lr=1e-3|--lr ;a-b=x # \"y\"|recipes/x.toml:3;flag=true|;"
                                "section-list=1,2|two;section-unknown=1000|;") == 0,
                  "%s", found);
    zonal__config_destroy(config);
    write_text(folder.name, "stop = 1\n", 9);
    CHECK_FAILS(zonal__config_list(folder.name, gather, found, &config), ZONAL_ARGUMENT, "stopped");
    CHECK(config == NULL);
    write_text(folder.name, "a = 1\nb\n", 8);
    CHECK_FAILS(zonal__config_list(folder.name, gather, found, &config), ZONAL_FORMAT, "a.toml:2");
    test_folder_remove(&folder);
}

static const test_case tests[] = {{"values", test_values},
                                  {"list", test_list},
                                  {"more_values", test_more_values},
                                  {"unknown", test_unknown},
                                  {"twice", test_twice},
                                  {"types_and_bounds", test_types_and_bounds},
                                  {"no_toml", test_no_toml},
                                  {"unreadable", test_unreadable},
                                  {"precedence", test_precedence},
                                  {"set", test_set},
                                  {"two_files", test_two_files},
                                  {"dump_text", test_dump_text},
                                  {"dump_round_trip", test_dump_round_trip},
                                  {"dump_settled", test_dump_settled},
                                  {"dump_refused", test_dump_refused},
                                  {"compare", test_compare},
                                  {"memory", test_memory},
                                  {"mutations", test_mutations},
                                  {"lines", test_lines},
                                  {"cut", test_cut},
                                  {"lines_full_disk", test_lines_full_disk},
                                  {"lines_refused", test_lines_refused},
                                  {"lines_memory", test_lines_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
