/*
 * A training step on one rank with several threads, and on several ranks:
 *
 *     ranks_training [side] [batch] [threads] [steps]                32 64 2 5
 *     mpirun -n 2 ranks_training 32 64 1 5
 *
 * ResNet-18 with its usual projector, two views, mmd-heat, AdamW, fp32; views are random numbers.
 * Prints the least wall time of a step, the processor time of all ranks for a step, which tells
 * more on a machine that others use too, the share of collective calls in both, and what a rank
 * puts into sums.
 */
#include <stdio.h>
#include <stdlib.h>

#include "dist/job.h"
#include "timed.h"
#include "train/trainer.h"

typedef struct task {
    int side, threads, steps;
    int64_t batch;
    double wall, used, wall_share, used_share, bytes;
} task;

static void fill(const task *t, zonal__trainer_options *o) {
    *o = (zonal__trainer_options){.network = zonal__network_defaults(),
                                  .optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW),
                                  .fixed_views = 1,
                                  .threads = t->threads};
    o->network.stem = t->side <= 64 ? ZONAL__STEM_SMALL : ZONAL__STEM_IMAGENET;
    o->objective.size = sizeof o->objective;
    o->loader.batch = t->batch;
    o->loader.groups = 1;
    o->loader.group[0] = (zonal__view_group){.views = 2, .width = t->side, .height = t->side};
    o->schedule = (zonal__schedule){.kind = ZONAL__SCHEDULE_CONSTANT, .total = 1000, .base = 1e-3};
}

static zonal_status measure(task *t, zonal__trainer *trainer, timed *clock) {
    for (int step = -1; step < t->steps; step++) { /* the first one warms up */
        double wall = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_PROCESS_CPUTIME_ID);
        clock->wall = clock->used = clock->bytes = 0;
        ZONAL_TRY(zonal__trainer_step(trainer));
        wall = seconds(CLOCK_MONOTONIC) - wall;
        used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
        if (step < 0) continue;
        if (step == 0 || wall < t->wall) t->wall = wall;
        t->used += used / t->steps;
        t->wall_share += clock->wall / wall / t->steps;
        t->used_share += clock->used / used / t->steps;
        t->bytes = clock->bytes;
    }
    return ZONAL_OK;
}

static zonal_status run(task *t, zonal__job *job) {
    const zonal_communicator *inner = zonal__job_host(job);
    zonal_communicator outer;
    zonal__trainer_options options;
    zonal__trainer *trainer;
    timed clock = {0};
    zonal_status status;
    double used;
    fill(t, &options);
    ZONAL_TRY(zonal_objective_defaults("mmd-heat", &options.objective));
    if (inner) {
        outer = timed_communicator(inner, &clock);
        options.communicator = &outer;
    }
    ZONAL_TRY(zonal__trainer_create(&options, &trainer));
    status = measure(t, trainer, &clock);
    used = t->used;
    if (status == ZONAL_OK && inner) /* of all ranks */
        status = inner->all_reduce(inner->context, &used, 1, ZONAL_REDUCE_DOUBLE, NULL);
    t->used = used;
    zonal__trainer_destroy(trainer);
    return status;
}

int main(int argc, char **argv) {
    const zonal__job_options options = {.timeout = 600};
    task t = {.side = argc > 1 ? atoi(argv[1]) : 32,
              .batch = argc > 2 ? atoi(argv[2]) : 64,
              .threads = argc > 3 ? atoi(argv[3]) : 2,
              .steps = argc > 4 ? atoi(argv[4]) : 5};
    zonal__job *job;
    zonal_status status = zonal__job_open(&options, &job);
    if (status == ZONAL_OK) status = zonal__job_all(job, run(&t, job));
    if (status != ZONAL_OK) {
        fprintf(stderr, "ranks_training: %s\n", zonal_last_error()->message);
        return 1;
    }
    if (zonal__job_rank(job) == 0)
        printf("%d px, batch %d, %d rank(s), %d thread(s) each: %.0f ms a step, %.0f ms of "
               "processors; collective calls %.0f %% and %.0f %% of them, %.1f MB\n",
               t.side, (int)t.batch, zonal__job_count(job), t.threads, 1e3 * t.wall, 1e3 * t.used,
               100 * t.wall_share, 100 * t.used_share, t.bytes / 1e6);
    zonal__job_close(job, status);
    return 0;
}
