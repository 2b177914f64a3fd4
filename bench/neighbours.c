/*
 * The search for nearest rows on the CPU beside the bare matrix product of its size by OpenBLAS:
 *
 *     neighbours [rows] [queries] [dim] [k] [threads]      50000 2048 512 20, all threads
 *
 * Prints seconds, and GFLOP/s of the products alone, on the wall's clock and by the processor time
 * used, which tells more on a machine that others use too.
 */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/backend.h"
#include "backend/training/neighbours.h"
#include "core/memory.h"
#include "core/random.h"

typedef struct task {
    int64_t rows, queries, dim;
    int k, threads;
    float *x, *q, *product;
    double *cosine;
    int32_t *row;
    zonal__neighbours *neighbours;
} task;

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void measure(const task *t, const char *name, zonal_status (*run)(const task *)) {
    double wall = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_PROCESS_CPUTIME_ID);
    double flops = 2e-9 * (double)t->rows * (double)t->queries * (double)t->dim;
    if (run(t) != ZONAL_OK) {
        fprintf(stderr, "neighbours: %s\n", zonal_last_error()->message);
        exit(1);
    }
    wall = seconds(CLOCK_MONOTONIC) - wall;
    used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
    printf("%-10s %8.3f s %8.1f GFLOP/s   %8.3f s of processor time %8.1f GFLOP/s\n", name, wall,
           flops / wall, used, flops / used);
}

static zonal_status search(const task *t) {
    ZONAL_TRY(zonal__neighbours_cpu()->set_bank(t->neighbours, t->rows, t->x));
    return zonal__neighbours_cpu()->nearest(t->neighbours, t->queries, t->q, -1, t->cosine, t->row);
}

static zonal_status multiply(const task *t) {
    openblas_set_num_threads(t->threads);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)t->queries, (int)t->rows, (int)t->dim,
                1, t->q, (int)t->dim, t->x, (int)t->dim, 0, t->product, (int)t->rows);
    return ZONAL_OK;
}

static void fill(int64_t n, uint32_t step, float *x) {
    zonal__random random = {0, ZONAL__STREAM_TEST, step};
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0) zonal__random_words(&random, (uint64_t)i, 0, words);
        x[i] = (float)(words[i % 4] * 0x1p-32 - .5);
    }
}

static zonal_status prepare(task *t) {
    zonal__neighbours_spec spec = {
        .dim = t->dim, .rows = t->rows, .queries = t->queries, .k = t->k, .threads = t->threads};
    ZONAL_TRY(ZONAL_NEW(&t->x, t->rows * t->dim, "the rows"));
    ZONAL_TRY(ZONAL_NEW(&t->q, t->queries * t->dim, "the queries"));
    ZONAL_TRY(ZONAL_NEW(&t->product, t->queries * t->rows, "the product"));
    ZONAL_TRY(ZONAL_NEW(&t->cosine, t->queries * t->k, "the cosines"));
    ZONAL_TRY(ZONAL_NEW(&t->row, t->queries * t->k, "the found rows"));
    ZONAL_TRY(zonal__neighbours_cpu()->create(&spec, &t->neighbours));
    fill(t->rows * t->dim, 0, t->x);
    fill(t->queries * t->dim, 1, t->q);
    return ZONAL_OK;
}

static int64_t number(int argc, char **argv, int i, int64_t usual) {
    return i < argc ? strtoll(argv[i], NULL, 10) : usual;
}

int main(int argc, char **argv) {
    task t = {.rows = number(argc, argv, 1, 50000),
              .queries = number(argc, argv, 2, 2048),
              .dim = number(argc, argv, 3, 512),
              .k = (int)number(argc, argv, 4, 20),
              .threads = zonal__backend_threads((int)number(argc, argv, 5, 0))};
    if (prepare(&t) != ZONAL_OK) {
        fprintf(stderr, "neighbours: %s\n", zonal_last_error()->message);
        return 1;
    }
    measure(&t, "search", search);
    measure(&t, "OpenBLAS", multiply);
    zonal__neighbours_cpu()->destroy(t.neighbours);
    zonal__free(t.x);
    zonal__free(t.q);
    zonal__free(t.product);
    zonal__free(t.cosine);
    zonal__free(t.row);
    return 0;
}
