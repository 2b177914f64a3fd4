#include "reproduce/tables.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"

static int is_of(const zonal__record *r, const zonal__result_tables *t, const char *method,
                 const char *data) {
    return strcmp(r->experiment, t->experiment->name) == 0 && strcmp(r->variant, t->variant) == 0 &&
           (!method || strcmp(r->method, method) == 0) && (!data || strcmp(r->data, data) == 0);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void add_row(zonal__result_tables *t, const char *method) {
    for (int i = 0; i < t->rows; i++)
        if (strcmp(t->row[i], method) == 0) return;
    if (t->rows == ZONAL__MATRIX_METHODS || strlen(method) >= ZONAL__CELL_METHOD) return;
    memcpy(t->row[t->rows++], method, strlen(method) + 1);
}

static void add_rows(zonal__result_tables *t, const zonal__matrix *matrix,
                     const zonal__records *records, int more) {
    for (int i = 0; i < matrix->methods; i++) add_row(t, matrix->method[i]);
    for (int64_t i = 0; more && i < records->count; i++)
        if (is_of(&records->at[i], t, NULL, NULL)) add_row(t, records->at[i].method);
}

/* ---- means ----------------------------------------------------------------------------------- */

/* The records of one cell and its seeds that a mean is taken of. */
typedef struct sample {
    const zonal__record *at[ZONAL__MATRIX_SEEDS];
    int64_t count;
} sample;

static void add_sample(sample *s, const zonal__record *r) {
    for (int64_t i = 0; i < s->count; i++)
        if (s->at[i]->seed == r->seed) return; /* the same run twice is one sample */
    if (s->count < ZONAL__MATRIX_SEEDS) s->at[s->count++] = r;
}

static void say_left_out(const zonal__record *r, const zonal__record *last) {
    char difference[256];
    zonal__records_difference(r, last, difference, sizeof difference);
    zonal__log("%s %s seed %lld is left out of its mean: it differs from a later record in %s",
               r->data, r->method, (long long)r->seed, difference);
}

/* Those like the last one, which is of the latest program and settings. */
static sample take_sample(const zonal__result_tables *t, const zonal__records *records,
                          const char *method, const char *data) {
    sample s = {0};
    for (int64_t i = records->count - 1; i >= 0; i--) {
        const zonal__record *r = &records->at[i];
        if (!is_of(r, t, method, data)) continue;
        if (s.count == 0 || zonal__records_alike(r, s.at[0]))
            add_sample(&s, r);
        else
            say_left_out(r, s.at[0]);
    }
    return s;
}

static void take_mean(const sample *s, const char *metric, zonal__result *result) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < s->count; i++) sum += 100 * zonal__record_metric(s->at[i], metric);
    result->seeds = s->count;
    result->mean = s->count > 0 ? sum / (double)s->count : NAN;
    for (int64_t i = 0; i < s->count; i++) {
        double off = 100 * zonal__record_metric(s->at[i], metric) - result->mean;
        squares += off * off;
    }
    result->std = s->count > 1 ? sqrt(squares / (double)(s->count - 1)) : NAN;
}

/* ---- where they come from -------------------------------------------------------------------- */

/* Adds a name to a list, once. One that does not fit is left out. */
static void add_name(char *list, size_t size, const char *name) {
    size_t length = name ? strlen(name) : 0, used = strlen(list);
    if (length == 0 || used + length + 3 > size) return;
    for (const char *at = list; (at = strstr(at, name)); at++)
        if ((at == list || at[-1] == ' ') && (at[length] == ',' || at[length] == '\0')) return;
    snprintf(list + used, size - used, "%s%s", used ? ", " : "", name);
}

static void note_source(zonal__result_tables *t, const zonal__record *r) {
    add_name(t->commits, sizeof t->commits, zonal__flat_text(&r->flat, "commit"));
    add_name(t->devices, sizeof t->devices, zonal__flat_text(&r->flat, "device"));
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void fill_table(zonal__result_tables *t, const zonal__data_set *set,
                       const zonal__records *records, zonal__result_table *table) {
    *table = (zonal__result_table){.title = set->title,
                                   .paper = zonal__paper_table(t->experiment, set->name)};
    for (int m = 0; m < t->rows; m++) {
        sample s = take_sample(t, records, t->row[m], set->name);
        table->records += s.count;
        for (int64_t i = 0; i < s.count; i++) note_source(t, s.at[i]);
        for (int64_t i = 0; i < s.count; i++)
            table->collapsed[m] += zonal__record_metric(s.at[i], "collapsed") == 1;
        for (int c = 0; c < t->experiment->columns; c++) {
            zonal__result *result = &table->at[m][c];
            take_mean(&s, t->experiment->column[c].metric, result);
            result->paper = zonal__paper_find(t->experiment, set->name, t->row[m], c);
        }
    }
}

/* The mean over the data sets, for the methods that have a value on each of them. The deviation of
 * such a mean would be one over seeds that not all of them share: it has none. */
static void fill_average(zonal__result_tables *t, int sets, zonal__result_table *table) {
    *table = (zonal__result_table){
        .title = "average", .paper = zonal__paper_table(t->experiment, ZONAL__PAPER_AVERAGE)};
    for (int m = 0; m < t->rows; m++)
        for (int c = 0; c < t->experiment->columns; c++) {
            double sum = 0;
            int64_t least = INT64_MAX;
            for (int s = 1; s <= sets; s++) {
                const zonal__result *r = &t->table[s].at[m][c];
                sum += r->mean;
                if (r->seeds < least) least = r->seeds;
            }
            table->at[m][c] = (zonal__result){
                .mean = sum / sets,
                .std = NAN,
                .seeds = least,
                .paper = zonal__paper_find(t->experiment, ZONAL__PAPER_AVERAGE, t->row[m], c)};
        }
}

/* How many names a list with commas has. */
static int names_in(const char *list) {
    int count = 1;
    for (; *list; list++) count += *list == ',';
    return count;
}

zonal_status zonal__result_tables_make(const zonal__matrix *matrix, const char *variant,
                                       const zonal__records *records, int more,
                                       zonal__result_tables **out) {
    const zonal__experiment *e = matrix->experiment;
    zonal__result_tables *t;
    ZONAL_TRY(ZONAL_NEW(out, 1, "the tables"));
    t = *out;
    t->experiment = e;
    t->variant = variant;
    add_rows(t, matrix, records, more);
    t->count = e->averaged && matrix->sets == names_in(e->sets);
    for (int s = 0; s < matrix->sets; s++) {
        zonal__result_table *table = &t->table[t->count];
        fill_table(t, matrix->set[s].set, records, table);
        if (table->paper > 0 || table->records > 0) t->count++;
    }
    if (e->averaged && matrix->sets == names_in(e->sets))
        fill_average(t, matrix->sets, &t->table[0]);
    return ZONAL_OK;
}
