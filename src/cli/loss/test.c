/* zonal test: is a file of embeddings uniform, has it collapsed, and how sure is that? */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/cli.h"
#include "cli/common/progress.h"
#include "cli/common/rows.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/text.h"
#include "uniformity/options.h"

typedef struct settings {
    zonal__uniformity_settings test;
    int json, quiet;
} settings;

static const zonal__option table[] = {
    {.name = "the test",
     .type = ZONAL__OPTION_TABLE,
     .table = zonal__uniformity_option,
     .target = offsetof(settings, test),
     .without = (const char *const[]){"precision", NULL}}, /* the file's */
    {.name = "json",
     .type = ZONAL__OPTION_FLAG,
     .target = offsetof(settings, json),
     .help = "print one JSON object"},
    {.name = "quiet",
     .type = ZONAL__OPTION_FLAG,
     .target = offsetof(settings, quiet),
     .help = "no progress bar"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal test X.npy [--mc N] [options]",
    .description =
        "Tests whether the rows of X.npy are uniform on the unit sphere. Each statistic\n"
        "is the off-diagonal sum T = n D - 1: 0 on average for uniform points, larger\n"
        "if points cluster, smaller if they repel each other. p is the probability of a T\nat "
        "least as large for uniform points.\n",
    .argument = "X.npy",
    .least = 1,
    .most = 1};

static int on_progress(void *context, double share) {
    zonal__progress_update(context, (int64_t)(1000 * share));
    return 0;
}

static void print_report(const zonal_uniformity_report *report) {
    int mc = report->monte_carlo > 0, notes = 0;
    char p[ZONAL__P_TEXT], q[ZONAL__P_TEXT];
    printf("%lld points on the unit sphere of R^%lld\n\n", (long long)report->n,
           (long long)report->d);
    printf("%-10s %13s %9s %10s%s\n", "test", "statistic", "sd", "p", mc ? "    p (mc)" : "");
    for (int k = 0; k < report->tests; k++) {
        const zonal_uniformity_test *test = &report->test[k];
        zonal__text_p(test->log10_p, p);
        zonal__text_p(log10(test->p_monte_carlo), q);
        printf("%-10s %13.6g %9.2g %10s", test->name, test->statistic, test->sd, p);
        printf(mc ? " %9s%s\n" : "%s%s\n", mc ? q : "", test->note[0] ? " *" : "");
        notes |= test->note[0] != 0;
    }
    for (int k = 0; notes && k < report->tests; k++)
        if (report->test[k].note[0])
            printf("* %s: %s\n", report->test[k].name, report->test[k].note);
    printf("\n%-10s", "degree");
    for (int l = 1; l <= report->degrees; l++) printf(" %10d", l);
    printf("\n%-10s", "excess/sd");
    for (int l = 0; l < report->degrees; l++)
        printf(" %10.3g", report->degree[l].excess / report->degree[l].sd);
    printf("\n\n%-24s %10s   %s\n", "", "here", "uniform points");
    printf("%-24s %10.4f   %.4f\n", "mean resultant length", report->mean_resultant,
           report->mean_resultant_expected);
    printf("%-24s %10.4f   0\n", "mean cosine", report->mean_cosine);
    printf("%-24s %10.1f   %.1f\n", "effective rank (RankMe)", report->effective_rank,
           report->effective_rank_expected);
    printf("%-24s %10.1f   %.1f\n", "participation ratio", report->directions,
           report->directions_expected);
    if (!isnan(report->nearest_angle))
        printf("%-24s %10.2f   %.2f\n", "nearest neighbour, deg", report->nearest_angle,
               report->nearest_angle_expected);
    if (report->skipped[0]) zonal__cli_wrap("Skipped: ", report->skipped);
    putchar('\n');
    zonal__cli_wrap("", report->verdict);
}

static void write_test(zonal__json *json, const zonal_uniformity_test *test) {
    zonal__json_begin_object(json);
    zonal__json_key_text(json, "name", test->name);
    zonal__json_key_double(json, "statistic", test->statistic);
    zonal__json_key_double(json, "sd", test->sd);
    zonal__json_key_double(json, "p", test->p);
    zonal__json_key_double(json, "p_lower", test->p_lower);
    zonal__json_key_double(json, "p_asymptotic", test->p_asymptotic);
    zonal__json_key_double(json, "log10_p_asymptotic", test->log10_p);
    zonal__json_key_double(json, "p_monte_carlo", test->p_monte_carlo);
    if (test->note[0]) zonal__json_key_text(json, "note", test->note);
    zonal__json_end_object(json);
}

static zonal_status print_json(const zonal_uniformity_report *report) {
    zonal__json json;
    zonal__json_init(&json, stdout);
    zonal__json_begin_object(&json);
    zonal__json_key_int(&json, "n", report->n);
    zonal__json_key_int(&json, "d", report->d);
    zonal__json_key_int(&json, "monte_carlo", report->monte_carlo);
    zonal__json_key(&json, "tests");
    zonal__json_begin_array(&json);
    for (int k = 0; k < report->tests; k++) write_test(&json, &report->test[k]);
    zonal__json_end_array(&json);
    zonal__json_key(&json, "energy");
    zonal__json_begin_array(&json);
    for (int l = 0; l < report->degrees; l++) {
        zonal__json_begin_object(&json);
        zonal__json_key_int(&json, "degree", l + 1);
        zonal__json_key_double(&json, "excess", report->degree[l].excess);
        zonal__json_key_double(&json, "sd", report->degree[l].sd);
        zonal__json_end_object(&json);
    }
    zonal__json_end_array(&json);
    zonal__json_key_double(&json, "mean_resultant", report->mean_resultant);
    zonal__json_key_double(&json, "mean_resultant_expected", report->mean_resultant_expected);
    zonal__json_key_double(&json, "mean_cosine", report->mean_cosine);
    zonal__json_key_double(&json, "effective_rank", report->effective_rank);
    zonal__json_key_double(&json, "effective_rank_expected", report->effective_rank_expected);
    zonal__json_key_bool(&json, "collapsed", report->collapse != ZONAL_COLLAPSE_NONE);
    zonal__json_key_double(&json, "directions", report->directions);
    zonal__json_key_double(&json, "directions_expected", report->directions_expected);
    zonal__json_key_double(&json, "nearest_angle", report->nearest_angle);
    zonal__json_key_double(&json, "nearest_angle_expected", report->nearest_angle_expected);
    zonal__json_key_text(&json, "skipped", report->skipped);
    zonal__json_key_text(&json, "verdict", report->verdict);
    zonal__json_end_object(&json);
    zonal_status status = zonal__json_finish(&json, NULL);
    zonal__json_fini(&json);
    return status;
}

static zonal_status work(const settings *chosen, const char *path) {
    zonal_uniformity_options options;
    zonal_uniformity_report report = ZONAL_UNIFORMITY_REPORT_INIT;
    zonal__progress progress;
    zonal__cli_rows rows;
    ZONAL_TRY(zonal__cli_load(path, ZONAL__LOAD_AS_STORED, chosen->quiet, &rows));
    options = zonal__uniformity_settle(&chosen->test, rows.d);
    options.precision = rows.precision;
    zonal__progress_begin(&progress, "simulating", 1000, chosen->quiet);
    options.progress = on_progress;
    options.progress_context = &progress;
    zonal_status status = zonal_uniformity_run(&options, rows.n, rows.d, rows.x, &report);
    zonal__progress_end(&progress);
    zonal__free(rows.x);
    ZONAL_TRY(zonal__cli_name_file(status, path));
    if (chosen->json) return print_json(&report);
    print_report(&report);
    return ZONAL_OK;
}

int zonal__cli_test(int argc, char **argv) {
    settings chosen;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &chosen, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (work(&chosen, options.arguments[0]) != ZONAL_OK) return zonal__cli_failed();
    return ZONAL__EXIT_OK;
}
