/*
 * The comparison: a row for each run, the best of each column in bold, and for runs that differ in
 * nothing but the seed their mean and spread.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/scores.h"
#include "report/html.h"
#include "report/report.h"

enum { MOST_COLUMNS = 40, MOST_SHOWN = 4 };

typedef struct column {
    char title[48], group[80]; /* columns of one group have a common heading */
    int decimals;
    int better; /* 1: more is better, 0: neither is */
    double value[ZONAL__REPORT_RUNS];
} column;

typedef struct table {
    zonal__report *report;
    column columns[MOST_COLUMNS];
    int count;
} table;

/* ---- what goes into the columns -------------------------------------------------------------- */

static column *add_column(table *t, const char *group, const char *title, int decimals,
                          int better) {
    column *c = &t->columns[t->count];
    if (t->count == MOST_COLUMNS) return NULL;
    t->count++;
    snprintf(c->title, sizeof c->title, "%s", title);
    snprintf(c->group, sizeof c->group, "%s", group);
    c->decimals = decimals;
    c->better = better;
    for (int i = 0; i < ZONAL__REPORT_RUNS; i++) c->value[i] = NAN;
    return c;
}

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

static int is_new(const table *t, int run, const char *name) {
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
            char origin[72], group[80];
            column *c;
            if (!title || !is_new(t, i, name)) continue;
            zonal__report_result_origin(name, origin, sizeof origin);
            snprintf(group, sizeof group, "%s, %%", origin);
            c = add_column(t, group, title, 1, 1);
            for (int r = 0; c && r < t->report->count; r++)
                c->value[r] = 100 * zonal__report_result_of(&t->report->runs[r], name);
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

static double last_step(const zonal__report_run *run) {
    const zonal__report_series *loss = zonal__report_series_of(run, "loss");
    return loss && loss->count > 0 ? loss->step[loss->count - 1] : NAN;
}

static void add_effort(table *t) {
    column *steps = add_column(t, "", "Steps", 0, 0);
    column *speed = add_column(t, "", "Images/s", 0, 0);
    column *time = add_column(t, "", "Minutes", 1, 0);
    for (int i = 0; time && i < t->report->count; i++) {
        const zonal__report_run *run = &t->report->runs[i];
        steps->value[i] = last_step(run);
        speed->value[i] = mean_of(zonal__report_series_of(run, "images_per_second"));
        time->value[i] = zonal__report_last(run, "seconds") / 60;
    }
}

/* ---- runs that differ only in the seed ------------------------------------------------------- */

/* Of each run where it belongs. */
static void place_runs(const zonal__report *report, zonal__run_place *places) {
    zonal__run_sample samples[ZONAL__REPORT_RUNS];
    for (int i = 0; i < report->count; i++) {
        const double step = last_step(&report->runs[i]);
        samples[i] = (zonal__run_sample){.settings = &report->runs[i].config,
                                         .step = isfinite(step) ? (int64_t)step : 0};
    }
    zonal__run_group(report->count, samples, places);
}

/* The samples of the group that begins with run "first". */
static int samples_of(const zonal__report *report, const zonal__run_place *places, int first,
                      int *members) {
    int count = 0;
    for (int i = 0; i < report->count; i++)
        if (places[i].group == first && !places[i].repeats) members[count++] = i;
    return count;
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

/* Under the name: the settings by which this run differs from the others. */
static void put_differences(const table *t, int run) {
    const zonal__report *report = t->report;
    int shown = 0;
    for (int64_t k = 0; k < report->keys_count; k++) {
        const char *key = report->keys[k], *value;
        if (strcmp(key, "method") == 0 || !zonal__report_differs(report, key)) continue;
        value = zonal__report_setting_of(&report->runs[run], key);
        if (!value) continue;
        if (shown++ == MOST_SHOWN) break;
        zonal__file_print(report->file, shown == 1 ? "<small>" : ", ");
        zonal__html_text(report->file, key);
        zonal__file_print(report->file, "&nbsp;");
        zonal__html_text(report->file, value);
    }
    if (shown > MOST_SHOWN) zonal__file_print(report->file, ", \xe2\x80\xa6");
    if (shown > 0) zonal__file_print(report->file, "</small>");
}

/* Among several runs, and as the page shows it: two that read the same are both the best. */
static int is_best(const table *t, const column *c, int run) {
    double unit = pow(10, -c->decimals);
    int others = 0;
    if (!c->better || !isfinite(c->value[run])) return 0;
    for (int i = 0; i < t->report->count; i++) {
        if (i == run || !isfinite(c->value[i])) continue;
        if (rint(c->value[i] / unit) > rint(c->value[run] / unit)) return 0;
        others++;
    }
    return others > 0;
}

static void put_run(const table *t, int run) {
    zonal__file *file = t->report->file;
    const char *method = zonal__report_setting_of(&t->report->runs[run], "method");
    zonal__file_print(file, "<tr><th scope=\"row\">");
    zonal__report_put_name(t->report, run);
    put_differences(t, run);
    zonal__file_print(file, "</th><td>");
    zonal__html_text(file, method ? method : "\xe2\x80\x93");
    zonal__file_print(file, "</td>");
    for (int c = 0; c < t->count; c++) {
        int best = is_best(t, &t->columns[c], run);
        zonal__file_print(file, best ? "<td class=\"number\"><b>" : "<td class=\"number\">");
        zonal__html_number(file, t->columns[c].value[run], t->columns[c].decimals);
        zonal__file_print(file, best ? "</b></td>" : "</td>");
    }
    zonal__file_print(file, "</tr>\n");
}

static void put_spread(const table *t, const int *members, int count) {
    zonal__file *file = t->report->file;
    const char *method = zonal__report_setting_of(&t->report->runs[members[0]], "method");
    zonal__file_print(file, "<tr class=\"spread\"><th scope=\"row\">Mean of %d seeds<small>",
                      count);
    for (int i = 0; i < count; i++) {
        if (i > 0) zonal__file_print(file, ", ");
        zonal__html_text(file, t->report->runs[members[i]].name);
    }
    zonal__file_print(file, "</small></th><td>");
    zonal__html_text(file, method ? method : "\xe2\x80\x93");
    zonal__file_print(file, "</td>");
    for (int c = 0; c < t->count; c++) {
        double values[ZONAL__REPORT_RUNS], mean = NAN, deviation = NAN;
        int n = 0;
        for (int i = 0; i < count; i++)
            if (isfinite(t->columns[c].value[members[i]]))
                values[n++] = t->columns[c].value[members[i]];
        if (n > 0) zonal__scores_spread(n, values, &mean, &deviation);
        zonal__file_print(file, "<td class=\"number\">");
        zonal__html_number(file, mean, t->columns[c].decimals);
        if (t->columns[c].better && isfinite(deviation)) {
            zonal__file_print(file, " <small>\xc2\xb1&nbsp;");
            zonal__html_number(file, deviation, t->columns[c].decimals);
            zonal__file_print(file, "</small>");
        }
        zonal__file_print(file, "</td>");
    }
    zonal__file_print(file, "</tr>\n");
}

void zonal__report_put_table(zonal__report *report) {
    table t = {.report = report};
    zonal__run_place places[ZONAL__REPORT_RUNS];
    int members[ZONAL__REPORT_RUNS], summaries = 0;
    add_online(&t);
    add_results(&t);
    add_effort(&t);
    zonal__report_put_section(report, "comparison", report->count > 1 ? "Comparison" : "Results",
                              report->count > 1 ? "The best of each column is bold." : NULL);
    put_head(&t);
    place_runs(report, places);
    for (int i = 0; i < report->count; i++) put_run(&t, i);
    for (int i = 0; i < report->count; i++) {
        int count = samples_of(report, places, i, members);
        if (count < 2) continue;
        put_spread(&t, members, count);
        summaries++;
    }
    zonal__file_print(report->file, "</tbody></table></div>\n");
    if (summaries > 0)
        zonal__file_print(report->file, "<p class=\"hint\">\xc2\xb1 is the sample standard "
                                        "deviation over seeds.</p>\n");
    zonal__file_print(report->file, "</section>\n");
}
