/*
 * The comparison: how far each run came, and a table for each evaluation. The best of each column
 * is bold, and runs that differ in nothing but the seed (train/run_group.h) have their mean and
 * spread, where they were evaluated alike.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/scores.h"
#include "report/html.h"
#include "report/report.h"

enum { MOST_COLUMNS = 24, MOST_SHOWN = 3, LONGEST_VALUE = 32 };

typedef struct column {
    char title[48], group[48]; /* columns of one group have a common heading */
    int decimals;
    int better; /* 1: more is better, 0: neither is */
    double value[ZONAL__REPORT_RUNS];
    double of[ZONAL__REPORT_RUNS]; /* what is aimed at, shown where the value is less */
} column;

typedef struct table {
    zonal__report *report;
    const char *protocol; /* of an evaluation; NULL: the table of the training */
    column columns[MOST_COLUMNS];
    int count;
    int compared; /* 0: the runs' numbers are not alike, so none is the best */
    int partial[ZONAL__REPORT_RUNS];
} table;

static column *add_column(table *t, const char *group, const char *title, int decimals,
                          int better) {
    column *c = &t->columns[t->count];
    if (t->count == MOST_COLUMNS) return NULL;
    t->count++;
    snprintf(c->title, sizeof c->title, "%s", title);
    snprintf(c->group, sizeof c->group, "%s", group);
    c->decimals = decimals;
    c->better = better;
    for (int i = 0; i < ZONAL__REPORT_RUNS; i++) c->value[i] = c->of[i] = NAN;
    return c;
}

/* ---- the training ---------------------------------------------------------------------------- */

static void add_online(table *t) {
    const char *name = zonal__report_online(t->report);
    char group[48];
    column *last, *best;
    if (!name) return;
    snprintf(group, sizeof group, "Online %s, %%", zonal__report_result_title(name));
    last = add_column(t, group, "last", 1, 1);
    best = add_column(t, group, "best", 1, 1);
    for (int i = 0; i < t->report->count; i++) {
        last->value[i] = 100 * zonal__report_last(&t->report->runs[i], name);
        best->value[i] = 100 * zonal__report_best(&t->report->runs[i], name);
    }
}

static double mean_of(const zonal__report_series *series) {
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = 0; series && i < series->count; i++)
        if (isfinite(series->value[i])) {
            sum += series->value[i];
            n++;
        }
    return n > 0 ? sum / (double)n : NAN;
}

/* The last value of a curve, for the runs that have it. */
static void add_last(table *t, const char *name, const char *title, int decimals, double factor) {
    column *c = NULL;
    for (int i = 0; i < t->report->count; i++) {
        double value = factor * zonal__report_last(&t->report->runs[i], name);
        if (!isfinite(value)) continue;
        if (!c) c = add_column(t, "", title, decimals, 0);
        if (c) c->value[i] = value;
    }
}

/* As it was logged or, in a run that did not, as the settings have it. */
static void add_selectivity(table *t) {
    column *c = NULL;
    for (int i = 0; i < t->report->count; i++) {
        double value = zonal__report_last(&t->report->runs[i], "selectivity");
        if (!isfinite(value)) value = t->report->kernels[i].selectivity;
        if (!(value > 0)) continue;
        if (!c) c = add_column(t, "", "Selectivity S", 1, 0);
        if (c) c->value[i] = value;
    }
}

static void add_training(table *t) {
    column *steps = add_column(t, "", "Steps", 0, 0), *speed;
    for (int i = 0; i < t->report->count; i++) {
        const zonal__report_run *run = &t->report->runs[i];
        steps->value[i] = run->steps > 0 ? run->steps : NAN;
        steps->of[i] = zonal__report_total_steps(run);
    }
    add_online(t);
    add_last(t, "effective_rank", "Effective rank", 1, 1);
    add_last(t, "rho", "Signal share \xcf\x81", 3, 1);
    add_selectivity(t);
    speed = add_column(t, "", "Images/s", 0, 0);
    for (int i = 0; speed && i < t->report->count; i++)
        speed->value[i] =
            mean_of(zonal__report_series_of(&t->report->runs[i], "images_per_second"));
    add_last(t, "seconds", "Minutes", 1, 1 / 60.);
}

/* ---- evaluations ----------------------------------------------------------------------------- */

static int is_of(const table *t, const char *name) {
    size_t length = strlen(t->protocol);
    return strncmp(name, t->protocol, length) == 0 && name[length] == '.';
}

/* A number of the evaluation that does not depend on the features: how many images, which k. */
static double parameter_of(const table *t, int run, const char *member) {
    const zonal__report_run *r = &t->report->runs[run];
    for (int64_t k = 0; k < r->results_count; k++) {
        const char *name = r->results[k].name, *dot = strrchr(name, '.');
        if (is_of(t, name) && dot && strcmp(dot + 1, member) == 0) return r->results[k].value;
    }
    return NAN;
}

static int has_results(const table *t, int run) {
    const zonal__report_run *r = &t->report->runs[run];
    for (int64_t k = 0; k < r->results_count; k++)
        if (is_of(t, r->results[k].name) && zonal__report_result_title(r->results[k].name))
            return 1;
    return 0;
}

static const struct parameter {
    const char *member, *title;
    const char *before, *after; /* of the number, in a sentence about all runs */
    int counts;                 /* 1: results with another value are not comparable */
} parameters[] = {{"test", "Test images", "", " test images", 1},
                  {"train", "Training images", "", " training images", 1},
                  {"k", "k", "k = ", "", 1},
                  {"temperature", "T", "T = ", "", 1},
                  {"views", "Views", "", " views of each", 1},
                  {"candidates", "Candidates", "", " candidates", 1},
                  {"step", "At step", "at step ", "", 0}};
enum { PARAMETERS = sizeof parameters / sizeof parameters[0] };

/* Whether two runs have the same value, or both have none. */
static int agrees(const table *t, int a, int b, const char *member) {
    double x = parameter_of(t, a, member), y = parameter_of(t, b, member);
    return x == y || (isnan(x) && isnan(y));
}

static int all_agree(const table *t, const char *member) {
    int first = -1;
    for (int i = 0; i < t->report->count; i++) {
        if (!has_results(t, i)) continue;
        if (first >= 0 && !agrees(t, first, i, member)) return 0;
        if (first < 0) first = i;
    }
    return 1;
}

/* How many images is always a column; the rest only where the runs differ. */
static void add_parameters(table *t) {
    for (int p = 0; p < PARAMETERS; p++) {
        int same = all_agree(t, parameters[p].member);
        column *c;
        if (parameters[p].counts && !same) t->compared = 0;
        if (p > 0 && same) continue;
        c = add_column(t, "", parameters[p].title, strcmp(parameters[p].title, "T") == 0 ? 3 : 0,
                       0);
        for (int i = 0; c && i < t->report->count; i++)
            c->value[i] = parameter_of(t, i, parameters[p].member);
    }
    for (int i = 0; i < t->report->count; i++)
        t->partial[i] = isfinite(parameter_of(t, i, "limit"));
}

static int is_new(const table *t, int run, int64_t result) {
    const char *name = t->report->runs[run].results[result].name;
    for (int i = 0; i < run; i++)
        for (int64_t k = 0; k < t->report->runs[i].results_count; k++)
            if (strcmp(t->report->runs[i].results[k].name, name) == 0) return 0;
    return 1;
}

static void add_results(table *t) {
    for (int i = 0; i < t->report->count; i++)
        for (int64_t k = 0; k < t->report->runs[i].results_count; k++) {
            const char *name = t->report->runs[i].results[k].name;
            const char *title = zonal__report_result_title(name);
            const char *features = name + strlen(t->protocol) + 1;
            char group[48];
            column *c;
            if (!title || !is_of(t, name) || !is_new(t, i, k)) continue;
            snprintf(group, sizeof group, "%.*s, %%", (int)strcspn(features, "."), features);
            if (group[0] >= 'a' && group[0] <= 'z') group[0] = (char)(group[0] - 'a' + 'A');
            c = add_column(t, group, title, 1, 1);
            for (int r = 0; c && r < t->report->count; r++)
                c->value[r] = 100 * zonal__report_result_of(&t->report->runs[r], name);
        }
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_groups(const table *t) {
    for (int c = 0, next; c < t->count; c = next) {
        for (next = c + 1; next < t->count; next++)
            if (strcmp(t->columns[next].group, t->columns[c].group) != 0) break;
        zonal__file_print(t->report->file, "<th scope=\"colgroup\" colspan=\"%d\" class=\"group\">",
                          next - c);
        zonal__html_text(t->report->file, t->columns[c].group);
        zonal__file_print(t->report->file, "</th>");
    }
}

static void put_head(const table *t) {
    zonal__file *file = t->report->file;
    zonal__file_print(file, "<div class=\"scroll\"><table class=\"compare\"><thead><tr>"
                            "<th scope=\"col\" rowspan=\"2\">Run</th>"
                            "<th scope=\"col\" rowspan=\"2\">Method</th>");
    put_groups(t);
    zonal__file_print(file, "</tr><tr>");
    for (int c = 0; c < t->count; c++) {
        zonal__file_print(file, "<th scope=\"col\" class=\"number\">");
        zonal__html_text(file, t->columns[c].title);
        zonal__file_print(file, "</th>");
    }
    zonal__file_print(file, "</tr></thead><tbody>\n");
}

/* Under the name: the settings that make this run another experiment than the others. */
static void put_differences(const table *t, int run) {
    const zonal__report *report = t->report;
    int shown = 0;
    for (int64_t k = 0; k < report->keys_count; k++) {
        const char *key = report->keys[k], *value;
        int counts = zonal__run_setting_counts(key) || strcmp(key, "seed") == 0;
        if (strcmp(key, "method") == 0 || !counts || !zonal__report_differs(report, key)) continue;
        value = zonal__report_setting_of(&report->runs[run], key);
        if (!value) continue;
        if (shown++ == MOST_SHOWN) break;
        zonal__file_print(report->file, shown == 1 ? "<small>" : ", ");
        zonal__html_text(report->file, key);
        zonal__file_print(report->file, "&nbsp;");
        zonal__html_short(report->file, value, LONGEST_VALUE);
    }
    if (shown > MOST_SHOWN) zonal__file_print(report->file, ", \xe2\x80\xa6");
    if (shown > 0) zonal__file_print(report->file, "</small>");
}

/* Among several runs, and as the page shows it: two that read the same are both the best. */
static int is_best(const table *t, const column *c, int run) {
    double unit = pow(10, -c->decimals);
    int others = 0;
    if (!c->better || !t->compared || !isfinite(c->value[run])) return 0;
    for (int i = 0; i < t->report->count; i++) {
        if (i == run || !isfinite(c->value[i])) continue;
        if (rint(c->value[i] / unit) > rint(c->value[run] / unit)) return 0;
        others++;
    }
    return others > 0;
}

static void put_method(const table *t, int run) {
    const char *method = zonal__report_setting_of(&t->report->runs[run], "method");
    zonal__file_print(t->report->file, "</th><td data-label=\"Method\">");
    zonal__html_text(t->report->file, method ? method : "\xe2\x80\x93");
    zonal__file_print(t->report->file, "</td>");
}

/* Where the page is narrow each number has its heading beside it: "Backbone R@1". */
static void open_cell(const table *t, const column *c) {
    zonal__file *file = t->report->file;
    char group[sizeof c->group];
    zonal__file_print(file, "<td class=\"number\" data-label=\"");
    snprintf(group, sizeof group, "%.*s", (int)strcspn(c->group, ","), c->group);
    zonal__html_text(file, group);
    zonal__file_print(file, group[0] ? " " : "");
    zonal__html_text(file, c->title);
    zonal__file_print(file, c->better ? ", %%\">" : "\">");
}

static void put_cell(const table *t, const column *c, int run) {
    zonal__file *file = t->report->file;
    int best = is_best(t, c, run);
    open_cell(t, c);
    if (best) zonal__file_print(file, "<b>");
    zonal__html_number(file, c->value[run], c->decimals);
    if (best) zonal__file_print(file, "</b>");
    if (c->value[run] < c->of[run]) {
        zonal__file_print(file, " <small>of ");
        zonal__html_number(file, c->of[run], c->decimals);
        zonal__file_print(file, "</small>");
    }
    if (c == &t->columns[0] && t->partial[run])
        zonal__file_print(file, " <small class=\"badge\">partial</small>");
    zonal__file_print(file, "</td>");
}

static void put_run(const table *t, int run) {
    zonal__file *file = t->report->file;
    zonal__file_print(file, "<tr><th scope=\"row\">");
    zonal__report_put_name(t->report, run);
    zonal__report_put_state(t->report, run);
    if (!t->protocol) put_differences(t, run);
    put_method(t, run);
    for (int c = 0; c < t->count; c++) put_cell(t, &t->columns[c], run);
    zonal__file_print(file, "</tr>\n");
}

static void put_spread(const table *t, const int *members, int count) {
    zonal__file *file = t->report->file;
    zonal__file_print(file, "<tr class=\"spread\"><th scope=\"row\">Mean of %d seeds<small>",
                      count);
    for (int i = 0; i < count; i++) {
        if (i > 0) zonal__file_print(file, ", ");
        zonal__html_text(file, t->report->runs[members[i]].name);
    }
    zonal__file_print(file, "</small>");
    put_method(t, members[0]);
    for (int c = 0; c < t->count; c++) {
        double values[ZONAL__REPORT_RUNS], mean = NAN, std = NAN;
        int n = 0;
        for (int i = 0; i < count; i++)
            if (isfinite(t->columns[c].value[members[i]]))
                values[n++] = t->columns[c].value[members[i]];
        if (n > 0) zonal__scores_spread(n, values, &mean, &std);
        open_cell(t, &t->columns[c]);
        zonal__html_number(file, mean, t->columns[c].decimals);
        if (t->columns[c].better && isfinite(std)) {
            zonal__file_print(file, " <small>\xc2\xb1&nbsp;");
            zonal__html_number(file, std, t->columns[c].decimals);
            zonal__file_print(file, "</small>");
        }
        zonal__file_print(file, "</td>");
    }
    zonal__file_print(file, "</tr>\n");
}

/* ---- runs that differ only in the seed ------------------------------------------------------- */

/* Of each run where it belongs. */
static void place_runs(const zonal__report *report, zonal__run_place *places) {
    zonal__run_sample samples[ZONAL__REPORT_RUNS];
    for (int i = 0; i < report->count; i++)
        samples[i] = (zonal__run_sample){.settings = &report->runs[i].config,
                                         .step = (int64_t)report->runs[i].steps,
                                         .images = report->runs[i].images};
    zonal__run_group(report->count, samples, places);
}

/* Whether a run was evaluated as another was, on as many images and by the same rules. */
static int evaluated_alike(const table *t, int a, int b) {
    if (!t->protocol) return 1;
    if (!has_results(t, a) || !has_results(t, b)) return 0;
    for (int p = 0; p < PARAMETERS; p++)
        if (!agrees(t, a, b, parameters[p].member)) return 0;
    return 1;
}

/* The samples of the group that begins with run "first". */
static int samples_of(const table *t, const zonal__run_place *places, int first, int *members) {
    int count = 0;
    for (int i = 0; i < t->report->count; i++)
        if (places[i].group == first && !places[i].repeats && evaluated_alike(t, first, i))
            members[count++] = i;
    return count;
}

static int put_rows(const table *t) {
    zonal__run_place places[ZONAL__REPORT_RUNS];
    int members[ZONAL__REPORT_RUNS], summaries = 0;
    put_head(t);
    for (int i = 0; i < t->report->count; i++)
        if (!t->protocol || has_results(t, i)) put_run(t, i);
    place_runs(t->report, places);
    for (int i = 0; i < t->report->count; i++) {
        int count = samples_of(t, places, i, members);
        if (count < 2) continue;
        put_spread(t, members, count);
        summaries++;
    }
    zonal__file_print(t->report->file, "</tbody></table></div>\n");
    return summaries;
}

/* ---- one table after the other --------------------------------------------------------------- */

/* "k-NN  1000 test images, k = 20": the rules that hold for all. */
static void put_title(const table *t) {
    zonal__file *file = t->report->file;
    int first = 0, shown = 0;
    while (first < t->report->count && !has_results(t, first)) first++;
    zonal__file_print(file, "<h3>");
    zonal__html_text(file, zonal__report_protocol_title(t->protocol));
    zonal__file_print(file, " <small>");
    for (int p = 0; p < PARAMETERS; p++) {
        double value = parameter_of(t, first, parameters[p].member);
        if (!isfinite(value) || !all_agree(t, parameters[p].member)) continue;
        zonal__file_print(file, "%s%s%.7g%s", shown++ ? ", " : "", parameters[p].before, value,
                          parameters[p].after);
    }
    zonal__file_print(file, "</small></h3>\n");
}

static int put_evaluation(zonal__report *report, const char *protocol) {
    table t = {.report = report, .protocol = protocol, .compared = 1};
    int summaries, partial = 0;
    add_parameters(&t);
    add_results(&t);
    put_title(&t);
    summaries = put_rows(&t);
    for (int i = 0; i < report->count; i++) partial |= t.partial[i];
    if (!t.compared)
        zonal__file_print(report->file, "<p class=\"hint\">The runs were not evaluated alike, so "
                                        "none is marked as the best.</p>\n");
    if (partial)
        zonal__file_print(report->file, "<p class=\"hint\">Partial: of a part of the test images, "
                                        "as zonal eval --limit chose it.</p>\n");
    return summaries;
}

/* The protocols of the runs' results, each once, in the order in which they were found. */
static int put_evaluations(zonal__report *report) {
    char known[8][40];
    int count = 0, summaries = 0;
    for (int i = 0; i < report->count; i++)
        for (int64_t k = 0; k < report->runs[i].results_count; k++) {
            const char *name = report->runs[i].results[k].name;
            size_t length = strcspn(name, ".");
            int seen = 0;
            if (!zonal__report_result_title(name) || length >= sizeof known[0]) continue;
            for (int p = 0; p < count; p++)
                seen |= strncmp(known[p], name, length) == 0 && !known[p][length];
            if (seen || count == 8) continue;
            snprintf(known[count], sizeof known[0], "%.*s", (int)length, name);
            summaries += put_evaluation(report, known[count++]);
        }
    return summaries;
}

void zonal__report_put_table(zonal__report *report) {
    table t = {.report = report, .compared = 1};
    int summaries;
    add_training(&t);
    zonal__report_put_section(report, "comparison", report->count > 1 ? "Comparison" : "Results",
                              report->count > 1 ? "The best of each column is bold." : NULL);
    summaries = put_rows(&t);
    summaries += put_evaluations(report);
    if (summaries > 0)
        zonal__file_print(report->file,
                          "<p class=\"hint\">Means are over runs that differ in nothing but the "
                          "seed; \xc2\xb1 is the sample standard deviation.</p>\n");
    zonal__file_print(report->file, "</section>\n");
}
