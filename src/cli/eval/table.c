/*
 * The results of zonal eval as tables of at most 80 columns.
 *
 *     knn: 60 test images, 180 to learn from
 *       run              method    features  settings        top 1   top 5
 *       runs/a           mmd-band  backbone  k 20, T 0.07    71.20   95.10
 *       runs/b           mmd-band  backbone  k 20, T 0.07    71.90   95.30
 *       mean of 2 runs   mmd-band  backbone  k 20, T 0.07    71.55   95.20
 *       +-                                   std              0.49    0.14
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/cli.h"
#include "cli/common/rows.h"
#include "cli/eval/results.h"
#include "core/text.h"

enum {
    COLUMNS = 80,
    NUMBER = 8, /* a number and the blank before it */
    LEAST_NAME = 16,
    SETTINGS = 64,
    MOST_CLASSES = 12 /* of a confusion matrix in 80 columns */
};

/* The rows under one heading, and how wide their columns are; 0: there is no such column. */
typedef struct block {
    const zonal__eval_results *results;
    const zonal__eval_result *first;
    int seeds; /* whether the evaluation's seeds differ */
    int name, method, features, settings;
} block;

/* ---- layout ---------------------------------------------------------------------------------- */

static int in_block(const block *b, const zonal__eval_result *r) {
    const zonal__eval_run *x = &b->results->runs[b->first->run], *y = &b->results->runs[r->run];
    return strcmp(r->protocol, b->first->protocol) == 0 && r->test == b->first->test &&
           r->train == b->first->train && r->limit == b->first->limit &&
           strcmp(r->common, b->first->common) == 0 && strcmp(x->data, y->data) == 0;
}

/* "k 20, T 0.07, seed 3" */
static void write_settings(const block *b, const zonal__eval_result *r, int with_seed,
                           char out[SETTINGS]) {
    int used = 0;
    out[0] = 0;
    for (int k = 0; k < r->parameters && used < SETTINGS; k++)
        if (r->parameter[k].title)
            used += snprintf(out + used, (size_t)(SETTINGS - used), "%s%s %.4g", used ? ", " : "",
                             r->parameter[k].title, r->parameter[k].value);
    if (with_seed && b->seeds && r->seed >= 0 && used < SETTINGS)
        snprintf(out + used, (size_t)(SETTINGS - used), "%sseed %" PRId64, used ? ", " : "",
                 r->seed);
}

static void widen(int *width, size_t length) {
    if (*width < (int)length) *width = (int)length;
}

static void lay_out(block *b) {
    char settings[SETTINGS];
    zonal__eval_mean mean;
    int room = COLUMNS - 2;
    for (int k = 0; k < b->first->numbers; k++)
        if (b->first->number[k].title) room -= NUMBER;
    for (int64_t i = 0; i < b->results->count; i++) {
        const zonal__eval_result *r = &b->results->at[i];
        if (in_block(b, r) && r->seed != b->first->seed) b->seeds = 1;
    }
    for (int64_t i = 0; i < b->results->count; i++) {
        const zonal__eval_result *r = &b->results->at[i];
        const zonal__eval_run *run = &b->results->runs[r->run];
        if (!in_block(b, r)) continue;
        write_settings(b, r, 1, settings);
        widen(&b->settings, strlen(settings));
        widen(&b->name, strlen(run->name));
        widen(&b->method, strlen(run->method));
        widen(&b->features, strlen(r->features));
        if (zonal__eval_results_mean(b->results, i, &mean)) widen(&b->settings, strlen("std"));
    }
    widen(&b->name, LEAST_NAME);
    room -= b->features + 1;
    if (b->method) room -= b->method + 1;
    if (b->settings) room -= b->settings + 1;
    if (b->name > room) b->name = room;
}

/* The end of a long name, which is where names differ; of a path whole parts, if any fit. */
static const char *tail(const char *name, size_t width) {
    const size_t length = strlen(name);
    const char *end = length > width ? name + length - width : name;
    const char *part = end == name || end[-1] == '/' ? NULL : strchr(end, '/');
    return part && part[1] ? part + 1 : end;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void print_start(const block *b, const char *name, const char *method, const char *features,
                        const char *settings) {
    char plain[COLUMNS + 1];
    snprintf(plain, sizeof plain, "%.*s", COLUMNS, tail(name, (size_t)b->name));
    zonal__cli_make_plain(plain);
    printf("  %-*s", b->name, plain);
    if (b->method) printf(" %-*s", b->method, method);
    printf(" %-*s", b->features, features);
    if (b->settings) printf(" %-*s", b->settings, settings);
}

static void print_value(const zonal__eval_number *number, double value) {
    char text[32], p[ZONAL__P_TEXT];
    if (!number->title) return;
    if (isnan(value))
        snprintf(text, sizeof text, "-");
    else if (number->percent)
        snprintf(text, sizeof text, "%.2f", 100 * value);
    else if (number->single && strlen(zonal__text_p(log10(value), p)) < NUMBER)
        snprintf(text, sizeof text, "%s", p);
    else if (snprintf(text, sizeof text, "%.3g", value) >= NUMBER)
        snprintf(text, sizeof text, "%.0e", value);
    printf(" %7s", text);
}

static void print_head(const block *b) {
    const zonal__eval_result *r = b->first;
    const zonal__eval_run *run = &b->results->runs[r->run];
    printf("%s: %" PRId64 " %s image%s", r->protocol, r->test, run->part,
           zonal__text_plural(r->test));
    if (r->train) printf(", %" PRId64 " to learn from", r->train);
    if (r->common[0]) printf(", %s", r->common);
    if (r->limit) printf(" (--limit)");
    putchar('\n');
    print_start(b, run->is_run ? "run" : "file", "method", "features", "");
    for (int k = 0; k < r->numbers; k++)
        if (r->number[k].title) printf(" %7s", r->number[k].title);
    putchar('\n');
}

static void print_mean(const block *b, const zonal__eval_result *like,
                       const zonal__eval_mean *mean) {
    char name[40], settings[SETTINGS];
    snprintf(name, sizeof name, "mean of %" PRId64 " %s", mean->count,
             mean->over_runs ? "runs" : "seeds");
    write_settings(b, like, 0, settings);
    /* The penalty is what each run's own held-out images chose. */
    if (strcmp(like->protocol, "linear") == 0) settings[0] = 0;
    print_start(b, name, b->results->runs[like->run].method, like->features, settings);
    for (int k = 0; k < like->numbers; k++) print_value(&like->number[k], mean->mean[k]);
    putchar('\n');
    print_start(b, "+-", "", "", "std");
    for (int k = 0; k < like->numbers; k++) print_value(&like->number[k], mean->std[k]);
    putchar('\n');
}

/* The results that are alike, and their mean. */
static void print_kind(const block *b, int64_t first) {
    const zonal__eval_result *like = &b->results->at[first];
    char settings[SETTINGS];
    zonal__eval_mean mean;
    for (int64_t i = first; i < b->results->count; i++) {
        const zonal__eval_result *r = &b->results->at[i];
        const zonal__eval_run *run = &b->results->runs[r->run];
        if (!zonal__eval_results_alike(b->results, r, like)) continue;
        write_settings(b, r, 1, settings);
        print_start(b, run->name, run->method, r->features, settings);
        for (int k = 0; k < r->numbers; k++) print_value(&r->number[k], r->number[k].value);
        putchar('\n');
    }
    if (zonal__eval_results_mean(b->results, first, &mean)) print_mean(b, like, &mean);
}

static int is_first_of_kind(const zonal__eval_results *results, int64_t i) {
    for (int64_t k = 0; k < i; k++)
        if (zonal__eval_results_alike(results, &results->at[k], &results->at[i])) return 0;
    return 1;
}

/* Methods are compared on the same features, so these come together. */
static void print_block(const zonal__eval_results *results, int64_t first) {
    static const char *const features[] = {"backbone", "projector"};
    block b = {.results = results, .first = &results->at[first]};
    lay_out(&b);
    print_head(&b);
    for (int f = 0; f < 2; f++)
        for (int64_t i = first; i < results->count; i++)
            if (in_block(&b, &results->at[i]) && is_first_of_kind(results, i) &&
                strcmp(results->at[i].features, features[f]) == 0)
                print_kind(&b, i);
}

static int is_first_of_block(const zonal__eval_results *results, int64_t i) {
    const block b = {.results = results, .first = &results->at[i]};
    for (int64_t k = 0; k < i; k++)
        if (in_block(&b, &results->at[k])) return 0;
    return 1;
}

/* ---- by class -------------------------------------------------------------------------------- */

static void print_class(const zonal__eval_result *r, int c) {
    const zonal__scores *scores = &r->scores;
    char name[ZONAL__EVAL_NAME] = "";
    if (r->class_names)
        snprintf(name, sizeof name, "%s", tail(r->class_names[c], 16));
    else
        snprintf(name, sizeof name, "class %d", c);
    zonal__cli_make_plain(name);
    printf("    %-16s %6.2f ", name, 100 * zonal__scores_class_accuracy(scores, c));
    if (scores->classes <= MOST_CLASSES)
        for (int p = 0; p < scores->classes; p++)
            printf(" %3" PRId64, scores->confusion[(int64_t)c * scores->classes + p]);
    putchar('\n');
}

static void print_detail(const zonal__eval_results *results, const zonal__eval_result *r) {
    const block b = {.results = results, .first = r, .seeds = 1};
    char settings[SETTINGS], name[COLUMNS + 1];
    if (r->scores.classes == 0) return;
    snprintf(name, sizeof name, "%.*s", COLUMNS, tail(results->runs[r->run].name, 32));
    zonal__cli_make_plain(name);
    write_settings(&b, r, 1, settings);
    printf("\n  %s, %s, %s, %s\n    class            top 1 %s\n", name, r->protocol, r->features,
           settings, r->scores.classes <= MOST_CLASSES ? "   taken for class 0, 1, ..." : "");
    for (int c = 0; c < r->scores.classes; c++) print_class(r, c);
}

/* ---- what the tables do not say -------------------------------------------------------------- */

static void print_verdicts(const zonal__eval_results *results) {
    for (int64_t i = 0; i < results->count; i++) {
        const zonal__eval_result *r = &results->at[i];
        char text[2 * COLUMNS + sizeof r->verdict];
        if (!r->verdict[0]) continue;
        snprintf(text, sizeof text, "%.*s: %s.", COLUMNS, tail(results->runs[r->run].name, COLUMNS),
                 r->verdict);
        zonal__cli_make_plain(text);
        zonal__cli_wrap("", text);
    }
}

/* Who sees two runs of one method expects a mean: why there is none. */
static void explain_groups(const zonal__eval_results *results) {
    for (int i = 1; i < results->run_count; i++) {
        const zonal__eval_run *run = &results->runs[i];
        if (!run->is_run || run->place.group != i) continue; /* says it once for each group */
        for (int k = i - 1; k >= 0; k--) {
            const zonal__eval_run *other = &results->runs[k];
            const zonal__run_sample a = zonal__eval_results_sample(results, k),
                                    b = zonal__eval_results_sample(results, i);
            char difference[256], text[2 * COLUMNS + 320];
            if (strcmp(run->method, other->method) != 0) continue;
            zonal__run_difference(&a, &b, difference, sizeof difference);
            snprintf(text, sizeof text, "%.*s and %.*s differ in %s.", COLUMNS,
                     tail(other->name, COLUMNS), COLUMNS, tail(run->name, COLUMNS), difference);
            zonal__cli_make_plain(text);
            zonal__cli_wrap("No mean: ", text);
            break;
        }
    }
}

void zonal__eval_results_print(const zonal__eval_results *results, int detail) {
    int printed = 0;
    for (int64_t i = 0; i < results->count; i++) {
        if (!is_first_of_block(results, i)) continue;
        if (printed++) putchar('\n');
        print_block(results, i);
    }
    print_verdicts(results);
    if (printed) explain_groups(results);
    for (int64_t i = 0; i < results->count && detail; i++) print_detail(results, &results->at[i]);
}
