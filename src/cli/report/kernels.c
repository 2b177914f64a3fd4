/*
 * What the settings of a run say about its loss: the profile of its kernel, and the discrepancy of
 * points that are uniform, which is what training aims at.
 */
#include "cli/report/kernels.h"

#include <math.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/random.h"
#include "loss/family.h"
#include "train/training.h"

enum { DRAWS = 4 };
static const double most_work = 2e9; /* rows^2 x dim of a simulated batch: a few seconds */

static zonal_status make_profile(const zonal_kernel_spec *given, int64_t dim,
                                 zonal_discrepancy discrepancy, zonal__report_kernel *out) {
    zonal_kernel_spec spec = *given;
    zonal_kernel *kernel;
    char parameter[96];
    zonal_status status;
    spec.log_profile = 0;
    spec.parameter = (zonal_number){zonal__family_parameter(given, dim, discrepancy), 0};
    ZONAL_TRY(zonal_kernel_create(&spec, dim, &kernel));
    for (int i = 0; i < ZONAL__REPORT_PROFILE; i++)
        out->c[i] = (double)(2 * i - (ZONAL__REPORT_PROFILE - 1)) / (ZONAL__REPORT_PROFILE - 1);
    status = zonal_kernel_eval(kernel, 0, ZONAL__REPORT_PROFILE, out->c, out->phi);
    zonal_kernel_destroy(kernel);
    if (status != ZONAL_OK) return status;
    zonal__family_describe(&spec, dim, discrepancy, parameter, sizeof parameter);
    snprintf(out->label, sizeof out->label, "%s%s%s, d = %lld", zonal_family_name(spec.family),
             parameter[0] ? ", " : "", parameter, (long long)dim);
    return ZONAL_OK;
}

/* KL's leave-one-out estimate has no closed form: the mean of a few batches of uniform points. */
static zonal_status simulate(const zonal_loss_options *given, int64_t batch, int64_t dim,
                             double *level) {
    zonal_loss_options loss = *given;
    zonal_plan *plan;
    double *rows, value, sum = 0;
    zonal_status status;
    loss.precision = ZONAL_PRECISION_DOUBLE;
    ZONAL_TRY(zonal_plan_create(&loss, batch, dim, &plan));
    status = ZONAL_NEW(&rows, batch * dim, "uniform points");
    for (uint32_t draw = 0; draw < DRAWS && status == ZONAL_OK; draw++) {
        const zonal__random random = {.stream = ZONAL__STREAM_UNIFORM, .step = draw};
        for (int64_t i = 0; i < batch; i++)
            zonal__random_direction(&random, (uint64_t)i, dim, rows + i * dim);
        status = zonal_plan_execute(plan, rows, &value, NULL);
        sum += value;
    }
    zonal__free(rows);
    zonal_plan_destroy(plan);
    *level = sum / DRAWS;
    return status;
}

/* E[D] = 1/B of the V-statistics that are 1 at collapse (zonal/loss.h). */
static zonal_status find_level(const zonal_loss_options *loss, int64_t batch, int64_t dim,
                               double *level) {
    *level = NAN;
    if (loss->raw_value || batch < 3) return ZONAL_OK;
    switch (loss->discrepancy) {
    case ZONAL_DISCREPANCY_KL:
        if ((double)batch * (double)batch * (double)dim > most_work) return ZONAL_OK;
        return simulate(loss, batch, dim, level);
    case ZONAL_DISCREPANCY_SIGREG:
        return ZONAL_OK;
    case ZONAL_DISCREPANCY_SUSREG:
        if (loss->sliced.times_n || !loss->sliced.collapse_normalised) return ZONAL_OK;
        break;
    default:
        if (loss->estimator == ZONAL_ESTIMATOR_U) return ZONAL_OK;
    }
    *level = 1 / (double)batch;
    return ZONAL_OK;
}

static zonal_status describe(const zonal__training *t, zonal__report_kernel *out) {
    const zonal__network_spec *network = &t->trainer.network;
    const zonal_loss_options *loss = &t->trainer.objective.loss;
    int64_t dim = network->projector_width[network->projector_layers - 1];
    out->selectivity = t->weight.selectivity > 0 ? t->weight.selectivity : NAN;
    ZONAL_TRY(find_level(loss, t->settings.batch, dim, &out->uniform));
    /* SIGReg is a test in R^d: it has no kernel on the sphere. */
    return loss->discrepancy == ZONAL_DISCREPANCY_SIGREG
               ? ZONAL_OK
               : make_profile(&loss->kernel, dim, loss->discrepancy, out);
}

static zonal_status make_kernel(const zonal__report_run *run, zonal__report_kernel *out) {
    char path[ZONAL__TRAINING_PATH];
    zonal__training *t; /* too large for the stack */
    zonal_status status;
    if (snprintf(path, sizeof path, "%s/config.toml", run->folder) >= (int)sizeof path)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the name of the run folder is too long");
    ZONAL_TRY(ZONAL_NEW(&t, 1, "a run's settings"));
    status = zonal__training_read(path, t);
    if (status == ZONAL_OK) status = zonal__training_objective(t);
    if (status == ZONAL_OK) status = describe(t, out);
    zonal__training_close(t);
    zonal__free(t);
    return status;
}

zonal_status zonal__report_make_kernels(zonal__report *report) {
    for (int i = 0; i < report->count; i++) {
        zonal__report_kernel *kernel = &report->kernels[i];
        zonal_status status;
        kernel->uniform = kernel->selectivity = NAN;
        status = make_kernel(&report->runs[i], kernel);
        if (status == ZONAL_MEMORY) return status;
        if (status != ZONAL_OK) kernel->label[0] = '\0'; /* settings of no loss that there is */
    }
    return ZONAL_OK;
}
