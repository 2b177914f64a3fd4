/* Inside zonal bench dist: what is measured on the ranks there are, and the look ahead (--model).
 */
#ifndef ZONAL_CLI_BENCH_DIST_H
#define ZONAL_CLI_BENCH_DIST_H

#include "cli/bench/dist_model.h"
#include "dist/job.h"
#include "zonal/loss.h"

enum { ZONAL__DIST_METHODS = 20, ZONAL__DIST_BATCHES = 16 };

typedef struct zonal__dist_settings {
    int64_t dim, threads, node, views, step_rows;
    double node_gb, net_gb, node_us, net_us, step_ms;
    const char *batches, *methods, *rows, *times;
    const char *device_name;
    int precision, model, json, quiet;
    zonal__job_options job;
} zonal__dist_settings;

typedef struct zonal__dist_bench {
    const zonal__dist_settings *settings;
    zonal__job *job;
    const zonal__device *device;
    const zonal_communicator *c; /* NULL: alone */
    int methods;
    char method_text[512]; /* cut into names */
    const char *method[ZONAL__DIST_METHODS];
} zonal__dist_bench;

/* The options of a method at the bench's device and precision. */
zonal_status zonal__dist_loss(const zonal__dist_bench *bench, const char *method,
                              zonal_loss_options *loss);

/* What the model must know of a method, but for its times. */
zonal_status zonal__dist_cost(const zonal__dist_bench *bench, const zonal_loss_options *loss,
                              int64_t rows, zonal__cost *cost);

/* The least time in seconds of value and gradient of rows "first" to first + rows, on the bench's
 * device; collective where the loss has a communicator. "exchanged", unless NULL, receives what of
 * it was spent in the communicator's calls, NAN where they only put work on a stream. */
zonal_status zonal__dist_time(const zonal__dist_bench *bench, const zonal_loss_options *loss,
                              int64_t first, int64_t rows, double *seconds, double *exchanged);

/* --model: prints what 8 to 4096 ranks would take. */
zonal_status zonal__dist_look_ahead(const zonal__dist_bench *bench);

#endif
