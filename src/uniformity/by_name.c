/*
 * A test of uniformity without structs: options as one text, and a report that is asked by name.
 */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"
#include "uniformity/options.h"

enum {
    OF_REPORT = 17,
    OF_TEST = 10,
    OF_DEGREE = 2,
    MOST =
        OF_REPORT + OF_TEST * ZONAL_UNIFORMITY_TEST_ROOM + OF_DEGREE * ZONAL_UNIFORMITY_DEGREE_ROOM
};

/* A number, or a text. */
typedef struct property {
    char name[48];
    double number;
    const char *text; /* NULL: it is the number */
} property;

struct zonal_uniformity {
    zonal_uniformity_report report;
    int count;
    property property[MOST];
};

/* ---- the list -------------------------------------------------------------------------------- */

/* The names differ by construction: of the report itself, or of one of its tests or degrees. */
static property *add(zonal_uniformity *u, const char *of, const char *name) {
    property *p = &u->property[u->count++];
    snprintf(p->name, sizeof p->name, "%s%s%s", of, of[0] ? "." : "", name);
    return p;
}

static void add_number(zonal_uniformity *u, const char *of, const char *name, double number) {
    add(u, of, name)->number = number;
}

static void add_text(zonal_uniformity *u, const char *of, const char *name, const char *text) {
    add(u, of, name)->text = text;
}

static void list_report(zonal_uniformity *u) {
    static const char *const collapse[] = {"none", "point", "directions"};
    const zonal_uniformity_report *r = &u->report;
    add_number(u, "", "n", (double)r->n);
    add_number(u, "", "d", (double)r->d);
    add_number(u, "", "tests", r->tests);
    add_number(u, "", "degrees", r->degrees);
    add_number(u, "", "monte-carlo", (double)r->monte_carlo);
    add_number(u, "", "mean-resultant", r->mean_resultant);
    add_number(u, "", "mean-resultant-expected", r->mean_resultant_expected);
    add_number(u, "", "mean-cosine", r->mean_cosine);
    add_number(u, "", "effective-rank", r->effective_rank);
    add_number(u, "", "effective-rank-expected", r->effective_rank_expected);
    add_number(u, "", "directions", r->directions);
    add_number(u, "", "directions-expected", r->directions_expected);
    add_number(u, "", "nearest-angle", r->nearest_angle);
    add_number(u, "", "nearest-angle-expected", r->nearest_angle_expected);
    add_text(u, "", "collapse", collapse[r->collapse]);
    add_text(u, "", "verdict", r->verdict);
    add_text(u, "", "skipped", r->skipped);
}

static void list_test(zonal_uniformity *u, const zonal_uniformity_test *t) {
    add_number(u, t->name, "statistic", t->statistic);
    add_number(u, t->name, "sd", t->sd);
    add_number(u, t->name, "p", t->p);
    add_number(u, t->name, "p-lower", t->p_lower);
    add_number(u, t->name, "p-asymptotic", t->p_asymptotic);
    add_number(u, t->name, "p-asymptotic-lower", t->p_asymptotic_lower);
    add_number(u, t->name, "log10-p", t->log10_p);
    add_number(u, t->name, "p-monte-carlo", t->p_monte_carlo);
    add_number(u, t->name, "p-monte-carlo-lower", t->p_monte_carlo_lower);
    add_text(u, t->name, "note", t->note);
}

static void list_all(zonal_uniformity *u) {
    list_report(u);
    for (int k = 0; k < u->report.tests; k++) list_test(u, &u->report.test[k]);
    for (int l = 1; l <= u->report.degrees; l++) {
        char name[24];
        snprintf(name, sizeof name, "degree-%d", l);
        add_number(u, name, "excess", u->report.degree[l - 1].excess);
        add_number(u, name, "sd", u->report.degree[l - 1].sd);
    }
}

/* ---- making it ------------------------------------------------------------------------------- */

static const zonal__option table[] = {
    {.name = "a test", .type = ZONAL__OPTION_TABLE, .table = zonal__uniformity_option}, {0}};

static zonal_status set_one(void *settings, const char *name, const char *text) {
    return zonal__option_set(table, name, text, settings);
}

static zonal_status read_options(const char *text, int64_t d, zonal_uniformity_options *out) {
    const char *seen[ZONAL__OPTIONS_MOST + 1];
    zonal__uniformity_settings settings = {0};
    zonal__options options;
    zonal_status status;
    char *copy;
    ZONAL_TRY(zonal__options_init(&options, table, &settings));
    status = zonal__options_set_text(text, set_one, &settings, seen, &copy);
    zonal__free(copy); /* no option here keeps its text */
    *out = zonal__uniformity_settle(&settings, d);
    return status;
}

zonal_status zonal_uniformity_make(const char *text, int64_t n, int64_t d, const void *x,
                                   int (*progress)(void *context, double share), void *context,
                                   zonal_uniformity **out) {
    zonal_uniformity_options options;
    zonal_uniformity *made = NULL;
    zonal_status status;
    ZONAL_NEED(out, "report");
    *out = NULL;
    ZONAL_TRY(read_options(text, d, &options));
    options.progress = progress;
    options.progress_context = context;
    ZONAL_TRY(ZONAL_NEW(&made, 1, "a report"));
    made->report.size = sizeof made->report;
    status = zonal_uniformity_run(&options, n, d, x, &made->report);
    if (status != ZONAL_OK) {
        zonal__free(made);
        return status;
    }
    list_all(made);
    *out = made;
    return ZONAL_OK;
}

void zonal_uniformity_destroy(zonal_uniformity *report) {
    zonal__free(report);
}

/* ---- asking it ------------------------------------------------------------------------------- */

const char *zonal_uniformity_name(const zonal_uniformity *report, int i) {
    return report && i >= 0 && i < report->count ? report->property[i].name : NULL;
}

static zonal_status find(const zonal_uniformity *report, const char *name, int wants_text,
                         const property **out) {
    const char *names[MOST + 1] = {0}, *near;
    for (int i = 0; i < report->count; i++) {
        const property *p = *out = &report->property[i];
        names[i] = p->name;
        if (strcmp(p->name, name) != 0) continue;
        if ((p->text != NULL) == wants_text) return ZONAL_OK;
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s is a %s; call the function for those", name,
                          p->text ? "text" : "number");
    }
    near = zonal__text_nearest(name, names);
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "the report has nothing called \"%.60s\"; did you mean \"%s\"?", name,
                      near ? near : names[0]);
}

zonal_status zonal_uniformity_get(const zonal_uniformity *report, const char *name,
                                  double *number) {
    const property *found;
    ZONAL_NEED(report, "report");
    ZONAL_NEED(name, "name");
    ZONAL_NEED(number, "number");
    ZONAL_TRY(find(report, name, 0, &found));
    *number = found->number;
    return ZONAL_OK;
}

zonal_status zonal_uniformity_get_text(const zonal_uniformity *report, const char *name,
                                       const char **text) {
    const property *found;
    ZONAL_NEED(text, "text");
    *text = NULL;
    ZONAL_NEED(report, "report");
    ZONAL_NEED(name, "name");
    ZONAL_TRY(find(report, name, 1, &found));
    *text = found->text;
    return ZONAL_OK;
}
