#include "cli/report/result_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/cli.h"
#include "cli/common/rows.h"

enum { FIRST = 18, CELL = 64 };

/* "kl-heat:t=3/d:margin=2" -> "kl-heat, t=3/d, margin=2" */
static zonal__cli_text spaced(const char *text, char separator) {
    char out[1024];
    size_t length = 0;
    for (; *text && length + 3 < sizeof out; text++) {
        out[length++] = *text == separator ? ',' : *text;
        if (*text == separator) out[length++] = ' ';
    }
    out[length] = '\0';
    return zonal__cli_plain(out);
}

static void put_value(char out[CELL], double value, double std, int digits) {
    out[0] = '\0';
    if (isnan(value)) return;
    if (isnan(std))
        snprintf(out, CELL, "%.*f", digits, value);
    else
        snprintf(out, CELL, "%.*f ± %.*f", digits, value, digits, std);
}

/* ± is two bytes, and one column on the screen. */
static void print_padded(const char *text, int width) {
    int columns = 0;
    for (const char *c = text; *c; c++) columns += (*c & 0xc0) != 0x80;
    printf("%*s%s", width > columns ? width - columns : 0, "", text);
}

/* Few columns leave room for the digits that the paper gives them. */
static int digits_for(int columns) {
    return columns > 2 ? 1 : 2;
}

static int width_for(int columns) {
    return columns > 2 ? 12 : 18;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_numbers(const char *name, const zonal__result *results, int columns,
                          void (*cell)(char out[CELL], const zonal__result *result, int digits)) {
    char text[CELL];
    printf("%-*s", FIRST, name);
    for (int c = 0; c < columns; c++) {
        cell(text, &results[c], digits_for(columns));
        print_padded(text, width_for(columns));
    }
    putchar('\n');
}

static void put_ours(char out[CELL], const zonal__result *r, int digits) {
    put_value(out, r->mean, r->std, digits);
}

static void put_paper(char out[CELL], const zonal__result *r, int digits) {
    put_value(out, r->paper.value, r->paper.std, digits);
}

static void put_difference(char out[CELL], const zonal__result *r, int digits) {
    double difference = r->mean - r->paper.value;
    out[0] = '\0';
    if (!isnan(difference)) snprintf(out, CELL, "%+.*f", digits, difference);
}

static void print_text_row(const zonal__result_tables *t, const zonal__result_table *table,
                           int row) {
    const zonal__result *results = table->at[row];
    const int columns = t->experiment->columns;
    zonal__cli_text name = spaced(t->row[row], ':');
    int here = results[0].seeds > 0;
    if (!here && !results[0].paper.exact) return;
    if (strlen(name.text) >= FIRST) {
        printf("%s\n", name.text);
        name.text[0] = '\0';
    }
    if (here)
        print_numbers(name.text, results, columns, put_ours);
    else
        printf("%s\n", name.text);
    if (results[0].paper.table > 0) print_numbers("  paper", results, columns, put_paper);
    if (here && results[0].paper.table > 0)
        print_numbers("  difference", results, columns, put_difference);
    if (table->collapsed[row] > 0)
        printf("  collapsed       %" PRId64 " of %" PRId64 " runs\n", table->collapsed[row],
               results[0].seeds);
}

static void print_title(const zonal__result_tables *t, const zonal__result_table *table) {
    if (table->paper > 0)
        printf("Table %d: %s, %s", table->paper, t->experiment->title, table->title);
    else
        printf("%s, %s%s", t->experiment->title, table->title,
               t->experiment->curves ? "" : " (not in the paper)");
}

static void print_text(const zonal__result_tables *t, const zonal__result_table *table) {
    print_title(t, table);
    printf("; percent\n");
    if (t->variant[0]) zonal__cli_wrap("", spaced(t->variant, ',').text);
    printf("%*s", FIRST, "");
    for (int c = 0; c < t->experiment->columns; c++)
        print_padded(t->experiment->column[c].title, width_for(t->experiment->columns));
    putchar('\n');
    for (int m = 0; m < t->rows; m++) print_text_row(t, table, m);
}

/* ---- Markdown -------------------------------------------------------------------------------- */

static void print_markdown_cell(const zonal__result *r, int digits) {
    char ours[CELL], paper[CELL], difference[CELL];
    put_value(ours, r->mean, r->std, digits);
    put_paper(paper, r, digits);
    snprintf(difference, sizeof difference, "%+.*f", digits, r->mean - r->paper.value);
    if (!ours[0] && !paper[0])
        printf("  |");
    else if (!paper[0])
        printf(" %s |", ours);
    else if (!ours[0])
        printf(" (%s) |", paper);
    else
        printf(" %s (%s, %s) |", ours, paper, difference);
}

static void print_markdown(const zonal__result_tables *t, const zonal__result_table *table) {
    putchar('|');
    if (table->paper > 0) printf(" Table %d: %s |", table->paper, table->title);
    if (table->paper == 0) printf(" %s |", table->title);
    for (int c = 0; c < t->experiment->columns; c++)
        printf(" %s |", t->experiment->column[c].title);
    printf(" seeds |\n|");
    for (int c = 0; c < t->experiment->columns + 2; c++) printf(" --- |");
    putchar('\n');
    for (int m = 0; m < t->rows; m++) {
        const zonal__result *results = table->at[m];
        if (results[0].seeds == 0 && !results[0].paper.exact) continue;
        printf("| `%s` |", spaced(t->row[m], ':').text);
        for (int c = 0; c < t->experiment->columns; c++)
            print_markdown_cell(&results[c], digits_for(t->experiment->columns));
        printf(" %" PRId64, results[0].seeds);
        if (table->collapsed[m] > 0) printf(", %" PRId64 " collapsed", table->collapsed[m]);
        printf(" |\n");
    }
}

static int64_t count_records(const zonal__result_tables *t) {
    int64_t count = 0;
    for (int i = 0; i < t->count; i++) count += t->table[i].records;
    return count;
}

static void print_source(const zonal__result_tables *t) {
    char line[2048];
    int64_t count = count_records(t);
    if (count == 0) return;
    snprintf(line, sizeof line, "%" PRId64 " record%s on %s; commit%s %s", count,
             zonal__text_plural(count), t->devices[0] ? t->devices : "an unknown device",
             strchr(t->commits, ',') ? "s" : "", t->commits[0] ? t->commits : "not known");
    putchar('\n');
    zonal__cli_wrap("", zonal__cli_plain(line).text);
}

void zonal__result_tables_print(const zonal__result_tables *tables, int markdown) {
    if (markdown && tables->variant[0]) printf("*%s*\n\n", spaced(tables->variant, ',').text);
    for (int i = 0; i < tables->count; i++) {
        if (i > 0) putchar('\n');
        if (markdown)
            print_markdown(tables, &tables->table[i]);
        else
            print_text(tables, &tables->table[i]);
    }
    print_source(tables);
}
