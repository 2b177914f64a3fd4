/*
 * src/eval on matrices from .npy files, for eval_test.py; prints one JSON object. Labels are files
 * of one column of numbers.
 *
 *   eval_tool knn TRAIN LABELS TEST LABELS CLASSES K,K,... T,T,...      TEST "-": leave one out
 *   eval_tool probe TRAIN LABELS TEST LABELS CLASSES L2,L2,... STANDARDISE TOLERANCE
 *   eval_tool retrieval X VIEWS BATCH                                   X [views * samples][dim]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/npy.h"
#include "eval/neighbours.h"
#include "eval/probe.h"
#include "eval/retrieval.h"

typedef struct matrix {
    int64_t rows, cols;
    float *x;
} matrix;

static zonal_status read_matrix(const char *path, matrix *out) {
    zonal__npy npy;
    zonal_status status;
    ZONAL_TRY(zonal__npy_open(path, &npy));
    out->rows = npy.rows;
    out->cols = npy.cols;
    status = ZONAL_NEW(&out->x, npy.rows * npy.cols, path);
    if (status == ZONAL_OK) status = zonal__npy_read_f4(&npy, 0, npy.rows, out->x);
    zonal__npy_close(&npy);
    return status;
}

/* Features and labels; both are left to the end of the program. */
static zonal_status read_set(char **path, int64_t *dim, zonal__labelled *out) {
    matrix features, labels;
    int32_t *numbers;
    ZONAL_TRY(read_matrix(path[0], &features));
    ZONAL_TRY(read_matrix(path[1], &labels));
    ZONAL_TRY(ZONAL_NEW(&numbers, labels.rows, path[1]));
    for (int64_t i = 0; i < labels.rows; i++) numbers[i] = (int32_t)labels.x[i * labels.cols];
    zonal__free(labels.x);
    *dim = features.cols;
    *out = (zonal__labelled){features.rows, features.x, labels.rows, numbers};
    return ZONAL_OK;
}

static void drop_set(zonal__labelled *set) {
    zonal__free((void *)set->x);
    zonal__free((void *)set->labels);
}

static int read_list(char *text, double *out) {
    int n = 0;
    for (char *part = strtok(text, ","); part && n < 16; part = strtok(NULL, ","))
        out[n++] = strtod(part, NULL);
    return n;
}

static zonal_status run_knn(char **arg) {
    zonal__labelled train = {0}, test = {0};
    int alone = strcmp(arg[2], "-") == 0, k[16];
    double wanted[16], temperature[16];
    zonal__knn_options options = {.classes = atoi(arg[4]), .k = k, .temperature = temperature};
    zonal__scores scores[256];
    ZONAL_TRY(read_set(arg, &options.dim, &train));
    if (!alone) ZONAL_TRY(read_set(arg + 2, &options.dim, &test));
    options.ks = read_list(arg[5], wanted);
    for (int i = 0; i < options.ks; i++) k[i] = (int)wanted[i];
    options.temperatures = read_list(arg[6], temperature);
    ZONAL_TRY(zonal__knn_run(&options, &train, alone ? NULL : &test, scores));
    printf("{\"right\": [");
    for (int i = 0; i < options.ks * options.temperatures; i++) {
        printf("%s%lld", i ? ", " : "", (long long)scores[i].top1);
        zonal__scores_fini(&scores[i]);
    }
    printf("]}\n");
    drop_set(&train);
    drop_set(&test);
    return ZONAL_OK;
}

static void print_numbers(const char *name, int64_t n, const double *x) {
    printf("\"%s\": [", name);
    for (int64_t i = 0; i < n; i++) printf("%s%.17g", i ? ", " : "", x[i]);
    printf("], ");
}

static zonal_status run_probe(char **arg) {
    zonal__labelled train, test;
    double l2[16];
    zonal__probe_options options = {.classes = atoi(arg[4]),
                                    .l2 = l2,
                                    .standardise = atoi(arg[6]),
                                    .tolerance = strtod(arg[7], NULL)};
    zonal__probe probe;
    zonal__scores scores;
    ZONAL_TRY(read_set(arg, &options.dim, &train));
    ZONAL_TRY(read_set(arg + 2, &options.dim, &test));
    options.l2_count = read_list(arg[5], l2);
    ZONAL_TRY(zonal__probe_fit(&options, &train, &probe));
    ZONAL_TRY(zonal__probe_test(&probe, &test, &scores));
    printf("{");
    print_numbers("parameters", probe.classes * (probe.dim + 1), probe.parameters);
    printf("\"loss\": %.17g, \"gradient\": %.17g, \"l2\": %.17g, \"converged\": %d, "
           "\"iterations\": %d, \"right\": %lld, \"top5\": %lld, \"confusion\": [",
           probe.loss, probe.gradient, probe.l2, probe.converged, probe.iterations,
           (long long)scores.top1, (long long)scores.top5);
    for (int i = 0; i < scores.classes * scores.classes; i++)
        printf("%s%lld", i ? ", " : "", (long long)scores.confusion[i]);
    printf("]}\n");
    zonal__scores_fini(&scores);
    zonal__probe_fini(&probe);
    drop_set(&train);
    drop_set(&test);
    return ZONAL_OK;
}

static zonal_status run_retrieval(char **arg) {
    zonal__retrieval_options options = {.views = atoi(arg[1]), .batch = atoi(arg[2])};
    zonal__retrieval result;
    matrix x;
    ZONAL_TRY(read_matrix(arg[0], &x));
    options.samples = x.rows / options.views;
    options.dim = x.cols;
    ZONAL_TRY(zonal__retrieval_run(&options, x.x, &result));
    printf("{\"r1\": %.17g, \"r3\": %.17g, \"r5\": %.17g, \"map\": %.17g, \"queries\": %lld, "
           "\"candidates\": %lld}\n",
           result.r1, result.r3, result.r5, result.map, (long long)result.queries,
           (long long)result.candidates);
    zonal__free(x.x);
    return ZONAL_OK;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int arguments;
        zonal_status (*run)(char **);
    } commands[] = {{"knn", 7, run_knn}, {"probe", 8, run_probe}, {"retrieval", 3, run_retrieval}};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (argc == commands[i].arguments + 2 && strcmp(argv[1], commands[i].name) == 0) {
            if (commands[i].run(argv + 2) == ZONAL_OK) return 0;
            fprintf(stderr, "eval_tool: %s\n", zonal_last_error()->message);
            return 1;
        }
    fprintf(stderr, "usage: at the head of eval_tool.c\n");
    return 2;
}
