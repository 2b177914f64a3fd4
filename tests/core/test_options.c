/* The option table: src/core/options.h. */
#include <stdarg.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/options.h"
#include "failing_alloc.h"
#include "test.h"

typedef struct settings {
    int64_t dim, seed;
    double rate, share;
    zonal__scale t, scale;
    int method, json, bar;
    const char *grad, *name;
    int parts[2];
} settings;

static const char *const methods[] = {"mmd-heat", "mmd-band", "ksd-heat", "kl-heat", NULL};

static zonal_status set_parts(void *values, const zonal__option *option, const char *shown,
                              const char *text) {
    settings *s = values;
    (void)option;
    if (sscanf(text, "%dx%d", &s->parts[0], &s->parts[1]) != 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must look like 2x3, got \"%s\"", shown, text);
    return ZONAL_OK;
}

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "dim",
     .type = ZONAL__OPTION_INT,
     AT(dim),
     .initial = "256",
     .least = 2,
     .most = 4096,
     .metavar = "D",
     .help = "dimension of the embeddings"},
    {.name = "seed", .type = ZONAL__OPTION_INT, AT(seed), .help = "the seed"},
    {.name = "rate",
     .type = ZONAL__OPTION_DOUBLE,
     AT(rate),
     .initial = "0.5",
     .least = 0,
     .most = 1,
     .rules = ZONAL__OPTION_OVER | ZONAL__OPTION_UNDER,
     .help = "a share"},
    {.name = "share",
     .type = ZONAL__OPTION_DOUBLE,
     AT(share),
     .least = -INFINITY,
     .most = 3,
     .help = "another share"},
    {.name = "t",
     .type = ZONAL__OPTION_SCALE,
     AT(t),
     .initial = "5/d",
     .least = 0,
     .most = INFINITY,
     .rules = ZONAL__OPTION_OVER,
     .help = "time of the heat kernel"},
    {.name = "scale", .type = ZONAL__OPTION_SCALE, AT(scale), .initial = "d", .help = "the scale"},
    {.name = "method",
     .type = ZONAL__OPTION_WORD,
     AT(method),
     .words = methods,
     .rules = ZONAL__OPTION_REQUIRED,
     .help = "the loss"},
    {.name = "json", .type = ZONAL__OPTION_FLAG, AT(json), .help = "print JSON"},
    {.name = "bar", .type = ZONAL__OPTION_FLAG, AT(bar), .initial = "yes", .help = "show a bar"},
    {.name = "grad",
     .type = ZONAL__OPTION_STRING,
     AT(grad),
     .metavar = "FILE",
     .help = "write the gradient of the value with respect to the rows as they were given, before "
             "any normalisation, to this file"},
    {.name = "name-that-is-rather-long",
     .type = ZONAL__OPTION_STRING,
     AT(name),
     .initial = "x",
     .help = "a name"},
    {.name = "parts",
     .type = ZONAL__OPTION_CUSTOM,
     AT(parts),
     .set = set_parts,
     .initial = "1x1",
     .help = "how to cut"},
    {0}};

static settings values;
static zonal__options options;

/* Parses a command line written as a list of words that ends with NULL. */
static zonal_status parse(char *word, ...) {
    static char *argv[32];
    int argc = 0;
    va_list words;
    argv[argc++] = "zonal";
    va_start(words, word);
    for (; word; word = va_arg(words, char *)) argv[argc++] = word;
    va_end(words);
    memset(&values, 0x55, sizeof values);
    ZONAL_TRY(zonal__options_init(&options, table, &values));
    return zonal__options_parse(&options, argc, argv);
}

static void test_defaults(void) {
    CHECK_OK(parse("--method", "mmd-band", NULL));
    CHECK(values.dim == 256 && values.seed == 0 && values.rate == .5 && values.share == 0);
    CHECK(values.t.factor == 5 && values.t.power == -1);
    CHECK(values.scale.factor == 1 && values.scale.power == 1);
    CHECK(values.method == 1 && values.json == 0 && values.bar == 1);
    CHECK(values.grad == NULL && strcmp(values.name, "x") == 0);
    CHECK(values.parts[0] == 1 && values.parts[1] == 1);
    CHECK(options.argument_count == 0 && options.help == 0);
}

static void test_forms(void) {
    CHECK_OK(parse("a.npy", "--dim", "64", "--rate=0.25", "--json", "--no-bar", "b.npy", "--grad",
                   "G.npy", "--method=kl-heat", "--t", "0.02", "--scale=1", "-", "--parts", "2x3",
                   "--share", "-7", "--", "--dim", "-x", NULL));
    CHECK(values.dim == 64 && values.rate == .25 && values.json == 1 && values.bar == 0);
    CHECK(strcmp(values.grad, "G.npy") == 0 && values.method == 3 && values.share == -7);
    CHECK(values.t.factor == .02 && values.t.power == 0 && values.scale.power == 0);
    CHECK(values.parts[0] == 2 && values.parts[1] == 3);
    if (CHECK(options.argument_count == 5)) {
        CHECK(strcmp(options.arguments[0], "a.npy") == 0);
        CHECK(strcmp(options.arguments[1], "b.npy") == 0);
        CHECK(strcmp(options.arguments[2], "-") == 0);
        CHECK(strcmp(options.arguments[3], "--dim") == 0);
        CHECK(strcmp(options.arguments[4], "-x") == 0);
    }
    CHECK_OK(
        parse("--method=kl-heat", "--grad=--strange=name", "--name-that-is-rather-long=a=b", NULL));
    CHECK(strcmp(values.grad, "--strange=name") == 0 && strcmp(values.name, "a=b") == 0);
}

static void test_sources(void) {
    CHECK_OK(parse("--method", "kl-heat", "--dim=256", NULL));
    CHECK(zonal__options_source(&options, "dim") == ZONAL__SOURCE_FLAG);
    CHECK(zonal__options_source(&options, "rate") == ZONAL__SOURCE_DEFAULT);
    CHECK(zonal__options_source(&options, "grad") == ZONAL__SOURCE_NONE);
    CHECK(zonal__options_source(&options, "nothing") == ZONAL__SOURCE_NONE);
    CHECK_OK(zonal__options_set(&options, "rate", "rate in run.toml", "0.1", ZONAL__SOURCE_FILE));
    CHECK(values.rate == .1);
    CHECK(zonal__options_source(&options, "rate") == ZONAL__SOURCE_FILE);
    CHECK_FAILS(zonal__options_set(&options, "rate", "rate in run.toml", "0.2", ZONAL__SOURCE_FILE),
                ZONAL_ARGUMENT, "rate in run.toml is given twice");
    CHECK_FAILS(zonal__options_set(&options, "bar", "bar in run.toml", "on", ZONAL__SOURCE_FILE),
                ZONAL_ARGUMENT, "bar in run.toml must be yes or no, got \"on\"");
}

static void test_help_asked(void) {
    CHECK_OK(parse("--help", NULL));
    CHECK(options.help == 1);
    CHECK_OK(parse("--dim", "3", "-h", NULL));
    CHECK(options.help == 1);
    CHECK_FAILS(parse("--", "--help", NULL), ZONAL_ARGUMENT, "--method is required");
}

static void test_unknown(void) {
    CHECK_FAILS(parse("--methd", "x", NULL), ZONAL_ARGUMENT,
                "there is no option --methd; did you mean --method?");
    CHECK_FAILS(parse("--jsn", NULL), ZONAL_ARGUMENT, "did you mean --json?");
    CHECK_FAILS(parse("--hlep", NULL), ZONAL_ARGUMENT, "did you mean --help?");
    CHECK_FAILS(parse("--frobnicate=1", NULL), ZONAL_ARGUMENT,
                "there is no option --frobnicate; --help lists the options");
    CHECK_FAILS(parse("-d", "3", NULL), ZONAL_ARGUMENT,
                "there is no option -d; options begin with two dashes");
    CHECK_FAILS(parse("--no-dim", NULL), ZONAL_ARGUMENT, "there is no option --no-dim");
    CHECK_FAILS(parse("--=3", NULL), ZONAL_ARGUMENT, "there is no option --;");
    CHECK_FAILS(
        parse("--an-option-whose-name-is-longer-than-any-buffer-that-was-made-for-it=3", NULL),
        ZONAL_ARGUMENT, "there is no option --an-option-whose-name");
}

static void test_values(void) {
    CHECK_FAILS(parse("--dim", NULL), ZONAL_ARGUMENT,
                "--dim needs a value: dimension of the embeddings");
    CHECK_FAILS(parse("--dim", "--json", NULL), ZONAL_ARGUMENT, "--dim needs a value");
    CHECK_FAILS(parse("--dim", "1", NULL), ZONAL_ARGUMENT,
                "--dim must be between 2 and 4096, got 1");
    CHECK_FAILS(parse("--dim", "4097", NULL), ZONAL_ARGUMENT, "between 2 and 4096, got 4097");
    CHECK_FAILS(parse("--dim", "64.0", NULL), ZONAL_ARGUMENT,
                "--dim must be a whole number, got \"64.0\"");
    CHECK_FAILS(parse("--dim=", NULL), ZONAL_ARGUMENT, "--dim must be a whole number, got \"\"");
    CHECK_FAILS(parse("--rate", "0", NULL), ZONAL_ARGUMENT,
                "--rate must be above 0 and below 1, got 0");
    CHECK_FAILS(parse("--rate", "1", NULL), ZONAL_ARGUMENT, "below 1, got 1");
    CHECK_FAILS(parse("--rate", "nan", NULL), ZONAL_ARGUMENT, "--rate must be a finite number");
    CHECK_FAILS(parse("--share", "3.5", NULL), ZONAL_ARGUMENT,
                "--share must be at most 3, got 3.5");
    CHECK_FAILS(parse("--t", "0/d", NULL), ZONAL_ARGUMENT, "--t must be above 0, got 0/d");
    CHECK_FAILS(parse("--t", "-1", NULL), ZONAL_ARGUMENT, "--t must be above 0, got -1");
    CHECK_FAILS(parse("--t", "5/n", NULL), ZONAL_ARGUMENT, "--t must be a number, a number over");
    CHECK_FAILS(parse("--grad=", NULL), ZONAL_ARGUMENT, "--grad is empty");
    CHECK_FAILS(parse("--json=1", NULL), ZONAL_ARGUMENT, "--json takes no value, got \"1\"");
    CHECK_FAILS(parse("--no-bar=1", NULL), ZONAL_ARGUMENT, "--no-bar takes no value");
    CHECK_FAILS(parse("--method", "mmd-haet", NULL), ZONAL_ARGUMENT,
                "--method does not know \"mmd-haet\"; did you mean mmd-heat?");
    CHECK_FAILS(parse("--method", "sinkhorn", NULL), ZONAL_ARGUMENT,
                "--method does not know \"sinkhorn\"; it is one of: mmd-heat mmd-band ksd-heat "
                "kl-heat");
    CHECK_FAILS(parse("--parts", "2", NULL), ZONAL_ARGUMENT, "--parts must look like 2x3");
}

static void test_required_and_repeated(void) {
    CHECK_FAILS(parse(NULL), ZONAL_ARGUMENT,
                "--method is required, one of: mmd-heat mmd-band ksd-heat kl-heat");
    CHECK_FAILS(parse("--dim", "3", "--dim", "4", NULL), ZONAL_ARGUMENT, "--dim is given twice");
    CHECK_FAILS(parse("--json", "--no-json", NULL), ZONAL_ARGUMENT, "--no-json is given twice");
    CHECK_FAILS(parse("--json", "--json", NULL), ZONAL_ARGUMENT, "--json is given twice");
}

static void test_table_faults(void) {
    static const zonal__option bad_default[] = {
        {.name = "dim", .type = ZONAL__OPTION_INT, .initial = "1", .least = 2, .most = 3}, {0}};
    static const zonal__option no_type[] = {{.name = "dim", .initial = "1"}, {0}};
    static zonal__option endless[ZONAL__OPTIONS_MOST + 2];
    CHECK_FAILS(zonal__options_init(&options, bad_default, &values), ZONAL_ARGUMENT,
                "dim must be between 2 and 3, got 1");
    CHECK_FAILS(zonal__options_init(&options, no_type, &values), ZONAL_ARGUMENT, "no type");
    for (int i = 0; i <= ZONAL__OPTIONS_MOST; i++)
        endless[i] = (zonal__option){.name = "x", .type = ZONAL__OPTION_FLAG};
    CHECK_FAILS(zonal__options_init(&options, endless, &values), ZONAL_ARGUMENT,
                "more than 128 options");
}

/* ---- a table in a table ---------------------------------------------------------------------- */

typedef struct inner {
    int64_t first;
    double second;
    int marked; /* by second's hook */
} inner;
typedef struct outer {
    int64_t before;
    inner in;
    int64_t second; /* an option of the same name as one inside */
} outer;

static zonal_status mark(void *where, const zonal__option *option, const char *shown,
                         const char *text) {
    (void)shown, (void)text;
    ((inner *)(void *)((char *)where + option->target - offsetof(inner, second)))->marked = 1;
    return ZONAL_OK;
}

static int inner_entry(int i, zonal__option *entry) {
    const zonal__option list[] = {{.name = "first",
                                   .type = ZONAL__OPTION_INT,
                                   .target = offsetof(inner, first),
                                   .least = 1,
                                   .most = 9,
                                   .help = "inside"},
                                  {.name = "second",
                                   .type = ZONAL__OPTION_DOUBLE,
                                   .target = offsetof(inner, second),
                                   .set = mark,
                                   .help = "inside too"}};
    if (i >= 2) return 0;
    *entry = list[i];
    return 1;
}

/* A table that is nothing but another one, one step further in. */
static int middle_entry(int i, zonal__option *entry) {
    *entry = (zonal__option){
        .name = "the inner ones", .type = ZONAL__OPTION_TABLE, .table = inner_entry};
    return i == 0;
}

#define BEFORE                                                                                     \
    {                                                                                              \
        .name = "before", .type = ZONAL__OPTION_INT, .target = offsetof(outer, before),            \
        .help = "outside"                                                                          \
    }
#define INSIDE                                                                                     \
    .name = "the middle ones", .type = ZONAL__OPTION_TABLE, .target = offsetof(outer, in),         \
    .table = middle_entry

static void test_tables_in_tables(void) {
    static const char *const no_first[] = {"first", NULL};
    static const zonal__option all[] = {BEFORE, {INSIDE}, {0}};
    static const zonal__option less[] = {BEFORE, {INSIDE, .without = no_first}, {0}};
    static const zonal__option hides[] = {{INSIDE},
                                          {.name = "second",
                                           .type = ZONAL__OPTION_INT,
                                           .target = offsetof(outer, second),
                                           .help = "outside"},
                                          {0}};
    outer o = {0};
    zonal__option entry;
    char *text;
    CHECK_OK(zonal__option_set(all, "first", "7", &o));
    CHECK_OK(zonal__option_set(all, "second", "2.5", &o));
    CHECK(o.in.first == 7 && o.in.second == 2.5 && o.in.marked == 1 && o.before == 0);
    CHECK_FAILS(zonal__option_set(all, "first", "10", &o), ZONAL_ARGUMENT,
                "first must be between 1 and 9, got 10");
    CHECK_FAILS(zonal__option_set(all, "fist", "1", &o), ZONAL_ARGUMENT,
                "there is no option \"fist\"; did you mean \"first\"?");
    CHECK_FAILS(zonal__option_set(less, "first", "1", &o), ZONAL_ARGUMENT,
                "there is no option \"first\"; there are before, second");
    CHECK(o.in.first == 7);
    CHECK_OK(zonal__option_set(hides, "second", "3", &o));
    CHECK(o.second == 3 && o.in.second == 2.5);
    CHECK(zonal__option_entry(all, 2, &entry) && strcmp(entry.name, "second") == 0 &&
          entry.target == offsetof(outer, in) + offsetof(inner, second));
    CHECK(!zonal__option_entry(all, 3, &entry) && !zonal__option_entry(all, -1, &entry));
    if (!CHECK_OK(zonal__options_help(less, NULL, &text))) return;
    CHECK(strstr(text, "--second") && strstr(text, "--before") && !strstr(text, "--first"));
    zonal__free(text);
}

static const char want_help[] =
    "  --dim D                 dimension of the embeddings (default 256; between 2\n"
    "                          and 4096)\n"
    "  --seed N                the seed\n"
    "  --rate NUMBER           a share (default 0.5; above 0 and below 1)\n"
    "  --share NUMBER          another share (at most 3)\n"
    "  --t NUMBER[/d]|d        time of the heat kernel (default 5/d; above 0)\n"
    "  --scale NUMBER[/d]|d    the scale (default d)\n"
    "  --method WORD           the loss - one of: mmd-heat mmd-band ksd-heat kl-heat\n"
    "                          (required)\n"
    "  --json                  print JSON\n"
    "  --bar                   show a bar (on by default: --no-bar)\n"
    "  --grad FILE             write the gradient of the value with respect to the\n"
    "                          rows as they were given, before any normalisation, to\n"
    "                          this file\n"
    "  --name-that-is-rather-long TEXT\n"
    "                          a name (default x)\n"
    "  --parts VALUE           how to cut (default 1x1)\n"
    "  --help                  print this help\n";

static void test_help_text(void) {
    char *text;
    if (!CHECK_OK(zonal__options_help(table, NULL, &text))) return;
    CHECK_MSG(strcmp(text, want_help) == 0, "got:\n%s", text);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        CHECK_MSG(strcspn(line, "\n") <= 80, "a line of %zu columns", strcspn(line, "\n"));
    zonal__free(text);
}

static zonal_status make_help(void *context) {
    char *text;
    (void)context;
    ZONAL_TRY(zonal__options_help(table, NULL, &text));
    zonal__free(text);
    return ZONAL_OK;
}

static void test_memory(void) {
    test_every_allocation("the help", make_help, NULL);
}

static const test_case tests[] = {{"defaults", test_defaults},
                                  {"forms", test_forms},
                                  {"sources", test_sources},
                                  {"help_asked", test_help_asked},
                                  {"tables_in_tables", test_tables_in_tables},
                                  {"unknown", test_unknown},
                                  {"values", test_values},
                                  {"required_and_repeated", test_required_and_repeated},
                                  {"table_faults", test_table_faults},
                                  {"help_text", test_help_text},
                                  {"memory", test_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
