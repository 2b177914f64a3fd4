#include "cli/eval_results.h"

#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "core/memory.h"

enum { MOST_CLASSES = 12 }; /* of a confusion matrix in 80 columns */

/* ---- the list -------------------------------------------------------------------------------- */

static void drop_result(zonal__eval_result *result) {
    zonal__scores_fini(&result->scores);
    zonal__free(result->class_names);
}

static zonal_status grow(zonal__eval_results *results) {
    const int64_t room = results->room ? 2 * results->room : 16;
    zonal__eval_result *at;
    double *values;
    ZONAL_TRY(ZONAL_NEW(&at, room, "the results"));
    zonal_status status = ZONAL_NEW(&values, room, "the results");
    if (status != ZONAL_OK) {
        zonal__free(at);
        return status;
    }
    for (int64_t i = 0; i < results->count; i++) at[i] = results->at[i];
    zonal__free(results->at);
    zonal__free(results->values);
    results->at = at;
    results->values = values;
    results->room = room;
    return ZONAL_OK;
}

zonal_status zonal__eval_results_add(zonal__eval_results *results, zonal__eval_result *result) {
    zonal_status status = results->count == results->room ? grow(results) : ZONAL_OK;
    if (status == ZONAL_OK)
        results->at[results->count++] = *result;
    else
        drop_result(result);
    return status;
}

void zonal__eval_results_fini(zonal__eval_results *results) {
    for (int64_t i = 0; i < results->count; i++) drop_result(&results->at[i]);
    zonal__free(results->at);
    zonal__free(results->values);
    *results = (zonal__eval_results){0};
}

/* ---- several together ------------------------------------------------------------------------ */

static int are_alike(const zonal__eval_result *a, const zonal__eval_result *b) {
    return strcmp(a->protocol, b->protocol) == 0 && strcmp(a->features, b->features) == 0 &&
           strcmp(a->method, b->method) == 0 && a->variant == b->variant;
}

/* Whether result i is the first of its likes. */
static int is_first(const zonal__eval_results *results, int64_t i) {
    for (int64_t k = 0; k < i; k++)
        if (are_alike(&results->at[k], &results->at[i])) return 0;
    return 1;
}

typedef struct summary {
    int64_t count;
    double mean[ZONAL__EVAL_NUMBERS], deviation[ZONAL__EVAL_NUMBERS];
} summary;

static summary summarise(const zonal__eval_results *results, const zonal__eval_result *like) {
    summary s;
    for (int k = 0; k < like->numbers; k++) {
        s.count = 0;
        for (int64_t i = 0; i < results->count; i++)
            if (are_alike(&results->at[i], like))
                results->values[s.count++] = results->at[i].number[k].value;
        zonal__scores_spread(s.count, results->values, &s.mean[k], &s.deviation[k]);
    }
    return s;
}

/* ---- for people ------------------------------------------------------------------------------ */

/* "k 20, T 0.07, seed 3" */
static void print_settings(const zonal__eval_result *r, int with_seed, char out[64]) {
    int used = 0;
    out[0] = 0;
    for (int k = 0; k < r->parameters && used < 64; k++)
        if (r->parameter[k].title)
            used += snprintf(out + used, (size_t)(64 - used), "%s%s %.4g", used ? ", " : "",
                             r->parameter[k].title, r->parameter[k].value);
    if (with_seed && r->seed >= 0 && used < 64)
        snprintf(out + used, (size_t)(64 - used), "%sseed %" PRId64, used ? ", " : "", r->seed);
}

static void print_value(const zonal__eval_number *number, double value) {
    if (isnan(value))
        printf(" %7s", "-");
    else if (number->percent)
        printf(" %7.2f", 100 * value);
    else
        printf(" %7.3g", value);
}

/* The end of a long name, which is where names differ; of a path whole parts, if any fit. */
static const char *tail(const char *name, size_t width) {
    const size_t length = strlen(name);
    const char *end = length > width ? name + length - width : name;
    const char *part = end == name || end[-1] == '/' ? NULL : strchr(end, '/');
    return part && part[1] ? part + 1 : end;
}

static void print_row(const char *subject, const zonal__eval_result *r, int with_seed) {
    char settings[64], name[ZONAL__EVAL_NAME];
    snprintf(name, sizeof name, "%s", tail(subject, 16));
    zonal__cli_make_plain(name);
    print_settings(r, with_seed, settings);
    printf("  %-16s %-9s %-17s", name, r->features, settings);
}

static void print_head(const zonal__eval_result *r) {
    printf("%s, %" PRId64 " pictures", r->protocol, r->test);
    if (r->train) printf(", %" PRId64 " to learn from", r->train);
    if (r->common[0]) printf(", %s", r->common);
    printf("\n  %-16s %-9s %-17s", "", "features", "");
    for (int k = 0; k < r->numbers; k++) printf(" %7s", r->number[k].title);
    putchar('\n');
}

static void print_group(const zonal__eval_results *results, const zonal__eval_result *like) {
    const summary s = summarise(results, like);
    for (int64_t i = 0; i < results->count; i++) {
        const zonal__eval_result *r = &results->at[i];
        if (!are_alike(r, like)) continue;
        print_row(r->subject, r, 1);
        for (int k = 0; k < r->numbers; k++) print_value(&r->number[k], r->number[k].value);
        putchar('\n');
    }
    if (s.count < 2) return;
    printf("  %-16s %-9s %-17s", "mean", like->features, "");
    for (int k = 0; k < like->numbers; k++) print_value(&like->number[k], s.mean[k]);
    printf("\n  %-16s %-9s %-17s", "+-", "", "sample deviation");
    for (int k = 0; k < like->numbers; k++) print_value(&like->number[k], s.deviation[k]);
    putchar('\n');
}

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

static void print_detail(const zonal__eval_result *r) {
    char settings[64], name[ZONAL__EVAL_NAME];
    if (r->scores.classes == 0) return;
    snprintf(name, sizeof name, "%s", tail(r->subject, 16));
    zonal__cli_make_plain(name);
    print_settings(r, 1, settings);
    printf("\n  %s, %s, %s, %s\n    class            top 1 %s\n", name, r->protocol, r->features,
           settings, r->scores.classes <= MOST_CLASSES ? "   taken for class 0, 1, ..." : "");
    for (int c = 0; c < r->scores.classes; c++) print_class(r, c);
}

void zonal__eval_results_print(const zonal__eval_results *results, int detail) {
    const char *before = NULL;
    for (int64_t i = 0; i < results->count; i++) {
        const zonal__eval_result *r = &results->at[i];
        if (!is_first(results, i)) continue;
        if (!before || strcmp(before, r->protocol) != 0) {
            if (before) putchar('\n');
            print_head(r);
        }
        before = r->protocol;
        print_group(results, r);
    }
    for (int64_t i = 0; i < results->count && detail; i++) print_detail(&results->at[i]);
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void write_detail(zonal__json *json, const zonal__eval_result *r) {
    const zonal__scores *scores = &r->scores;
    zonal__json_key(json, "class_names");
    zonal__json_begin_array(json);
    for (int c = 0; c < scores->classes && r->class_names; c++)
        zonal__json_text(json, r->class_names[c]);
    zonal__json_end_array(json);
    zonal__json_key(json, "class_accuracy");
    zonal__json_begin_array(json);
    for (int c = 0; c < scores->classes; c++)
        zonal__json_double(json, zonal__scores_class_accuracy(scores, c));
    zonal__json_end_array(json);
    zonal__json_key(json, "confusion");
    zonal__json_begin_array(json);
    for (int c = 0; c < scores->classes; c++) {
        zonal__json_begin_array(json);
        for (int p = 0; p < scores->classes; p++)
            zonal__json_int(json, scores->confusion[(int64_t)c * scores->classes + p]);
        zonal__json_end_array(json);
    }
    zonal__json_end_array(json);
}

/* As zonal test --json writes it. */
static void write_energy(zonal__json *json, const zonal__eval_result *r) {
    zonal__json_key(json, "energy");
    zonal__json_begin_array(json);
    for (int l = 0; l < r->degrees; l++) {
        zonal__json_begin_object(json);
        zonal__json_key_int(json, "degree", l + 1);
        zonal__json_key_double(json, "excess", r->degree[l].excess);
        zonal__json_key_double(json, "sd", r->degree[l].sd);
        zonal__json_end_object(json);
    }
    zonal__json_end_array(json);
}

void zonal__eval_results_energy(zonal__json *json, const zonal__eval_results *results,
                                const char *subject) {
    const zonal__eval_result *chosen = NULL;
    for (int64_t i = 0; i < results->count; i++) {
        const zonal__eval_result *r = &results->at[i];
        if (r->degrees == 0 || strcmp(r->subject, subject) != 0) continue;
        if (!chosen || strcmp(r->features, "projector") == 0) chosen = r;
    }
    if (chosen) write_energy(json, chosen);
}

static void write_result(zonal__json *json, const zonal__eval_result *r, int detail) {
    zonal__json_begin_object(json);
    zonal__json_key_text(json, "subject", r->subject);
    if (r->method[0]) zonal__json_key_text(json, "method", r->method);
    zonal__json_key_text(json, "protocol", r->protocol);
    zonal__json_key_text(json, "features", r->features);
    if (r->seed >= 0) zonal__json_key_int(json, "seed", r->seed);
    if (r->train) zonal__json_key_int(json, "train", r->train);
    zonal__json_key_int(json, "test", r->test);
    for (int k = 0; k < r->parameters; k++)
        zonal__json_key_double(json, r->parameter[k].name, r->parameter[k].value);
    for (int k = 0; k < r->numbers; k++)
        zonal__json_key_double(json, r->number[k].name, r->number[k].value);
    if (r->degrees) write_energy(json, r);
    if (detail && r->scores.classes) write_detail(json, r);
    zonal__json_end_object(json);
}

static void write_mean(zonal__json *json, const zonal__eval_result *like, const summary *s) {
    zonal__json_begin_object(json);
    if (like->method[0]) zonal__json_key_text(json, "method", like->method);
    zonal__json_key_text(json, "protocol", like->protocol);
    zonal__json_key_text(json, "features", like->features);
    zonal__json_key_int(json, "count", s->count);
    for (int k = 0; k < like->numbers; k++) {
        zonal__json_key(json, like->number[k].name);
        zonal__json_begin_object(json);
        zonal__json_key_double(json, "mean", s->mean[k]);
        zonal__json_key_double(json, "deviation", s->deviation[k]);
        zonal__json_end_object(json);
    }
    zonal__json_end_object(json);
}

static int is_chosen(const zonal__eval_result *r, const char *protocol, const char *subject) {
    return (!protocol || strcmp(r->protocol, protocol) == 0) &&
           (!subject || strcmp(r->subject, subject) == 0);
}

void zonal__eval_results_json(zonal__json *json, const zonal__eval_results *results,
                              const char *protocol, const char *subject, int detail) {
    zonal__json_key(json, "results");
    zonal__json_begin_array(json);
    for (int64_t i = 0; i < results->count; i++)
        if (is_chosen(&results->at[i], protocol, subject))
            write_result(json, &results->at[i], detail);
    zonal__json_end_array(json);
    if (protocol || subject) return; /* the means are over all runs */
    zonal__json_key(json, "means");
    zonal__json_begin_array(json);
    for (int64_t i = 0; i < results->count; i++) {
        const summary s = summarise(results, &results->at[i]);
        if (is_first(results, i) && s.count > 1) write_mean(json, &results->at[i], &s);
    }
    zonal__json_end_array(json);
}
