/*
 * Losses of one batch on one rank with several threads, and on as many ranks with a thread each:
 *
 *     ranks [rows] [dim] [ranks] [runs]      8192 256 2 5
 *
 * Ranks are threads of this program that copy each other's memory, so that what is seen is the cost
 * of the method, not of a network. Prints the least wall time of the runs, the processor time of
 * all ranks, which tells more on a machine that others use too, and the share of collective calls
 * in both: with their waiting, and without.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/error.h"
#include "core/random.h"
#include "thread_ranks.h"
#include "timed.h"
#include "zonal/loss.h"

typedef struct task {
    const char *method;
    int64_t rows, dim; /* of the whole batch */
    int ranks, threads, runs;
    const float *x;
    float *gradient;
    double wall, used, value, bytes;
    double wall_share[THREAD_RANKS], used_share[THREAD_RANKS]; /* of collective calls */
} task;

static void stop(const char *method) {
    fprintf(stderr, "ranks: %s: %s\n", method, zonal_last_error()->message);
    exit(1);
}

/* ---- one loss -------------------------------------------------------------------------------- */

static void measure(task *t, const zonal_communicator *communicator, timed *clock) {
    int64_t rank = communicator ? communicator->rank : 0;
    int64_t first = t->rows * rank / t->ranks, rows = t->rows * (rank + 1) / t->ranks - first;
    char options[32];
    zonal_plan *plan;
    double value;
    snprintf(options, sizeof options, "threads=%d", t->threads);
    if (zonal_plan_make_with(communicator, t->method, options, rows, t->dim, &plan) != ZONAL_OK)
        stop(t->method);
    for (int run = -1; run < t->runs; run++) { /* the first one warms up */
        double wall = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_PROCESS_CPUTIME_ID);
        double own = seconds(CLOCK_THREAD_CPUTIME_ID);
        clock->wall = clock->used = clock->bytes = 0;
        if (zonal_plan_execute(plan, t->x + first * t->dim, &value, t->gradient + first * t->dim) !=
            ZONAL_OK)
            stop(t->method);
        wall = seconds(CLOCK_MONOTONIC) - wall;
        if (run < 0) continue;
        own = seconds(CLOCK_THREAD_CPUTIME_ID) - own;
        t->wall_share[rank] += clock->wall / wall / t->runs;
        t->used_share[rank] += clock->used / own / t->runs;
        if (rank != 0) continue;
        if (run == 0 || wall < t->wall) {
            t->wall = wall;
            t->used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
        }
        t->value = value;
        t->bytes = clock->bytes;
    }
    zonal_plan_destroy(plan);
}

static void body(const zonal_communicator *inner, void *context) {
    timed clock;
    const zonal_communicator outer = timed_communicator(inner, &clock);
    measure(context, &outer, &clock);
}

static void compare(const char *method, int64_t rows, int64_t dim, int ranks, int runs,
                    const float *x, float *gradient) {
    task one = {.method = method, .rows = rows, .dim = dim, .x = x, .gradient = gradient};
    task all = one;
    timed clock = {0};
    double wall_share = 0, used_share = 0;
    one.ranks = all.threads = 1;
    one.threads = all.ranks = ranks;
    one.runs = all.runs = runs;
    measure(&one, NULL, &clock);
    if (thread_ranks_run(ranks, body, &all) != ZONAL_OK) stop(method);
    for (int r = 0; r < ranks; r++) {
        wall_share += 100 * all.wall_share[r] / ranks;
        used_share += 100 * all.used_share[r] / ranks;
    }
    printf("%-10s %9.1f %9.1f %9.1f %9.1f %6.1f %6.1f %8.1f %10.1e\n", method, 1e3 * one.wall,
           1e3 * one.used, 1e3 * all.wall, 1e3 * all.used, wall_share, used_share,
           all.bytes / 1048576, (all.value - one.value) / one.value);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const char *const methods[] = {"mmd-heat", "ksd-heat", "kl-heat", "mmd-band", "susreg"};
    int64_t rows = argc > 1 ? atoll(argv[1]) : 8192, dim = argc > 2 ? atoll(argv[2]) : 256;
    int ranks = argc > 3 ? atoi(argv[3]) : 2, runs = argc > 4 ? atoi(argv[4]) : 5;
    if (rows < 3 || dim < 2 || ranks < 1 || ranks > THREAD_RANKS || runs < 1) {
        fprintf(stderr, "usage: ranks [rows] [dim] [ranks, at most %d] [runs]\n", THREAD_RANKS);
        return 2;
    }
    size_t count = (size_t)(rows * dim);
    float *x = malloc(count * sizeof *x), *gradient = malloc(count * sizeof *gradient);
    double *row = malloc((size_t)dim * sizeof *row);
    zonal__random random = {0, ZONAL__STREAM_TEST, 0};
    if (!x || !gradient || !row) return 1;
    for (int64_t i = 0; i < rows; i++) {
        zonal__random_direction(&random, (uint64_t)i, dim, row);
        for (int64_t k = 0; k < dim; k++) x[i * dim + k] = (float)row[k];
    }
    printf("B = %lld, d = %lld, fp32, value and gradient, ms\n", (long long)rows, (long long)dim);
    printf("%10s %19s %19s %13s %8s %10s\n", "", "1 rank", "ranks", "calls, %", "sent",
           "value off");
    printf("%10s %9s %9s %9s %9s %6s %6s %8s %10s\n", "", "wall", "processor", "wall", "processor",
           "wall", "proc.", "MiB", "by");
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        compare(methods[i], rows, dim, ranks, runs, x, gradient);
    free(x);
    free(gradient);
    free(row);
    return 0;
}
