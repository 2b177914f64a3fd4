/*
 * zonal metrics: what a run has written to metrics.jsonl, as a summary, a table or JSON.
 *
 * The lines of one step become one row; the columns are all numbers that any of the lines has, in
 * the order in which they first come. Those of an evaluation are named with its protocol:
 * retrieval_r1.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/common/cli.h"
#include "core/file_read.h"
#include "core/json.h"
#include "core/json_read.h"
#include "core/memory.h"
#include "core/text.h"

enum { MOST_COLUMNS = 128, LONGEST_NAME = 64, LONGEST_PATH = 4096, LINE_FIELDS = 64 };
static const size_t LONGEST_FILE = (size_t)1 << 31;

/* Kinds of lines; those of checkpoints hold nothing that is measured. */
static const char *const kinds[] = {"all", "step", "monitor", "eval", "probe", NULL};
enum { ALL };

typedef struct settings {
    int kind, csv, json;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "kind",
     .type = ZONAL__OPTION_WORD,
     AT(kind),
     .words = kinds,
     .initial = "all",
     .help = "which lines: steps, the monitor of collapse, evaluations, the online probe"},
    {.name = "csv", .type = ZONAL__OPTION_FLAG, AT(csv), .help = "print CSV, a row for each step"},
    {.name = "json",
     .type = ZONAL__OPTION_FLAG,
     AT(json),
     .help = "print a JSON array with an object for each step"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal metrics RUN [--csv|--json] [--kind WORD]",
    .description =
        "Prints the metrics of a run: the last value of each and the best evaluation; or\na table "
        "with a row for each step and empty cells for what was not measured\nthere. The run may "
        "still be training.\n\n"
        "examples:\n"
        "  zonal metrics runs/photos-1\n"
        "  zonal metrics runs/photos-1 --csv > photos-1.csv    # pandas.read_csv reads it\n"
        "  zonal metrics runs/photos-1 --kind eval --json\n",
    .argument = "RUN",
    .least = 1,
    .most = 1};

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct cell {
    int64_t row;
    int column;
    double value;
} cell;

typedef struct metrics {
    char name[MOST_COLUMNS][LONGEST_NAME];
    int columns;
    int64_t *step; /* [rows] */
    int64_t rows, row_room;
    cell *cell; /* in the order of their rows */
    int64_t cells, cell_room;
    int64_t damaged; /* lines that could not be read */
} metrics;

/* One line of the file. */
typedef struct line {
    const char *kind, *protocol;
    int64_t step;
    int count;
    struct {
        const char *name;
        double value;
    } field[LINE_FIELDS];
} line;

static void metrics_fini(metrics *m) {
    zonal__free(m->step);
    zonal__free(m->cell);
}

static zonal_status read_field(zonal__json_reader *reader, line *l) {
    const char *key;
    char first;
    ZONAL_TRY(zonal__json_read_key(reader, &key));
    if (strcmp(key, "kind") == 0) return zonal__json_read_text(reader, &l->kind);
    if (strcmp(key, "protocol") == 0) return zonal__json_read_text(reader, &l->protocol);
    if (strcmp(key, "step") == 0) return zonal__json_read_int(reader, &l->step);
    first = reader->at[strspn(reader->at, " \t")];
    if (!strchr("-0123456789n", first) || l->count == LINE_FIELDS)
        return zonal__json_read_skip(reader); /* neither a number nor null */
    l->field[l->count].name = key;
    return zonal__json_read_double(reader, &l->field[l->count++].value);
}

static zonal_status read_line(zonal__json_reader *reader, line *l) {
    int more;
    *l = (line){.step = -1};
    ZONAL_TRY(zonal__json_read_begin(reader, '{'));
    for (;;) {
        ZONAL_TRY(zonal__json_read_more(reader, '}', &more));
        if (!more) break;
        ZONAL_TRY(read_field(reader, l));
    }
    ZONAL_TRY(zonal__json_read_end(reader));
    if (l->kind && l->step >= 0) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_FORMAT, "a line has no kind or no step");
}

static int find_column(metrics *m, const line *l, const char *field) {
    char name[LONGEST_NAME];
    int measured = l->protocol && strcmp(field, "epoch") != 0; /* by that protocol */
    int length = snprintf(name, sizeof name, "%s%s%s", measured ? l->protocol : "",
                          measured ? "_" : "", field);
    /* A name of ours; others would have to be quoted in CSV. */
    if (length >= LONGEST_NAME || name[strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789")])
        return -1;
    for (int k = 0; k < m->columns; k++)
        if (strcmp(m->name[k], name) == 0) return k;
    if (m->columns == MOST_COLUMNS) return -1;
    memcpy(m->name[m->columns], name, sizeof name);
    return m->columns++;
}

static zonal_status add_line(metrics *m, const line *l) {
    if (m->rows == 0 || m->step[m->rows - 1] != l->step) {
        ZONAL_TRY(ZONAL_GROW(&m->step, m->rows, &m->row_room, "the metrics"));
        m->step[m->rows++] = l->step;
    }
    for (int i = 0; i < l->count; i++) {
        int column = find_column(m, l, l->field[i].name);
        if (column < 0 || isnan(l->field[i].value)) continue;
        ZONAL_TRY(ZONAL_GROW(&m->cell, m->cells, &m->cell_room, "the metrics"));
        m->cell[m->cells++] = (cell){m->rows - 1, column, l->field[i].value};
    }
    return ZONAL_OK;
}

static int is_wanted(const settings *s, const line *l) {
    if (s->kind != ALL) return strcmp(l->kind, kinds[s->kind]) == 0;
    for (int k = ALL + 1; kinds[k]; k++)
        if (strcmp(l->kind, kinds[k]) == 0) return 1;
    return 0;
}

static zonal_status read_lines(const settings *s, const char *path, char *text, metrics *m) {
    for (char *at = text, *newline; (newline = strchr(at, '\n')); at = newline + 1) {
        zonal__json_reader reader;
        line l;
        *newline = '\0';
        zonal__json_reader_init(&reader, at, (size_t)(newline - at), path);
        if (read_line(&reader, &l) != ZONAL_OK)
            m->damaged++;
        else if (is_wanted(s, &l))
            ZONAL_TRY(add_line(m, &l));
    }
    return ZONAL_OK;
}

static zonal_status read_metrics(const settings *s, const char *run, metrics *m) {
    char path[LONGEST_PATH], *text;
    struct stat there;
    size_t length;
    zonal_status status;
    if (snprintf(path, sizeof path, "%s/metrics.jsonl", run) >= (int)sizeof path)
        return ZONAL_FAIL(ZONAL_IO, "the path of the run %.60s... is too long", run);
    if (stat(path, &there) != 0)
        return ZONAL_FAIL(
            ZONAL_IO,
            "%s is not a run: it has no metrics.jsonl; give a folder that zonal train "
            "has made",
            run);
    ZONAL_TRY(zonal__file_read(path, LONGEST_FILE, &text, &length));
    status = read_lines(s, path, text, m);
    zonal__free(text);
    return status;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* The values of the next row by column, NaN where it has none. Lines of several kinds can have the
 * same one, such as the epoch. */
static void take_row(const metrics *m, int64_t row, int64_t *next, double value[MOST_COLUMNS]) {
    for (int k = 0; k < m->columns; k++) value[k] = NAN;
    for (; *next < m->cells && m->cell[*next].row == row; (*next)++)
        value[m->cell[*next].column] = m->cell[*next].value;
}

static void print_csv(const metrics *m) {
    int64_t next = 0;
    printf("step");
    for (int k = 0; k < m->columns; k++) printf(",%s", m->name[k]);
    putchar('\n');
    for (int64_t row = 0; row < m->rows; row++) {
        double value[MOST_COLUMNS];
        take_row(m, row, &next, value);
        printf("%" PRId64, m->step[row]);
        for (int k = 0; k < m->columns; k++)
            if (isnan(value[k]))
                putchar(',');
            else
                printf(",%.17g", value[k]);
        putchar('\n');
    }
}

static zonal_status print_json(const metrics *m) {
    int64_t next = 0;
    zonal__json json;
    zonal_status status;
    zonal__json_init(&json, stdout);
    zonal__json_begin_array(&json);
    for (int64_t row = 0; row < m->rows; row++) {
        double value[MOST_COLUMNS];
        take_row(m, row, &next, value);
        zonal__json_begin_object(&json);
        zonal__json_key_int(&json, "step", m->step[row]);
        for (int k = 0; k < m->columns; k++)
            if (!isnan(value[k])) zonal__json_key_double(&json, m->name[k], value[k]);
        zonal__json_end_object(&json);
    }
    zonal__json_end_array(&json);
    status = zonal__json_finish(&json, NULL);
    zonal__json_fini(&json);
    return status;
}

/* Evaluations, whose names begin with a protocol, are better the higher. */
static int has_best(const char *name) {
    return strncmp(name, "retrieval_", 10) == 0 || strncmp(name, "knn_", 4) == 0 ||
           strncmp(name, "probe_", 6) == 0;
}

static void print_column(const metrics *m, int column) {
    const cell *last = NULL, *best = NULL;
    for (int64_t i = 0; i < m->cells; i++) {
        const cell *c = &m->cell[i];
        if (c->column != column) continue;
        last = c;
        if (!best || c->value > best->value) best = c;
    }
    if (!last) return; /* never a finite number */
    printf("  %-24.24s %12.6g %9" PRId64, zonal__cli_plain(m->name[column]).text, last->value,
           m->step[last->row]);
    if (has_best(m->name[column]))
        printf("  best %.6g at step %" PRId64, best->value, m->step[best->row]);
    putchar('\n');
}

static void print_summary(const char *run, const metrics *m) {
    printf("%s: ", zonal__cli_plain(run).text);
    if (m->rows == 0) {
        printf("nothing is measured yet\n");
        return;
    }
    printf("measured at %" PRId64 " step%s, up to step %" PRId64 "\n\n  %-24s %12s %9s\n", m->rows,
           zonal__text_plural(m->rows), m->step[m->rows - 1], "", "last", "at step");
    for (int k = 0; k < m->columns; k++) print_column(m, k);
}

/* ---- the command ----------------------------------------------------------------------------- */

static zonal_status run(const settings *s, const char *name) {
    metrics m = {0};
    zonal_status status = read_metrics(s, name, &m);
    if (status == ZONAL_OK && m.damaged > 0)
        zonal__cli_say("%s: %" PRId64 " line%s of metrics.jsonl cannot be read and %s left out",
                       name, m.damaged, zonal__text_plural(m.damaged),
                       m.damaged == 1 ? "is" : "are");
    if (status == ZONAL_OK && s->json)
        status = print_json(&m);
    else if (status == ZONAL_OK && s->csv)
        print_csv(&m);
    else if (status == ZONAL_OK)
        print_summary(name, &m);
    metrics_fini(&m);
    return status;
}

int zonal__cli_metrics(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (s.json && s.csv) return zonal__cli_misused("--json and --csv cannot be combined");
    if (run(&s, options.arguments[0]) != ZONAL_OK) return zonal__cli_failed();
    return ZONAL__EXIT_OK;
}
