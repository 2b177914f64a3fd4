/* Linear probes trained on batches as they come: probe.h. */
#include <math.h>
#include <string.h>

#include "backend/training/tables.h"
#include "core/memory.h"
#include "eval/probe.h"
#include "nn/schedule.h"

struct zonal__probe_sgd {
    zonal__probe_sgd_options options;
    zonal__schedule schedule;
    const zonal__softmax_table *table;
    zonal__softmax *softmax;
    int64_t parameter_count, steps;           /* steps done */
    double *parameters, *gradient, *momentum; /* [classes][dim + 1] */
};

void zonal__probe_sgd_destroy(zonal__probe_sgd *sgd) {
    if (!sgd) return;
    sgd->table->destroy(sgd->softmax);
    zonal__free(sgd->parameters);
    zonal__free(sgd->gradient);
    zonal__free(sgd->momentum);
    zonal__free(sgd);
}

static zonal_status allocate(zonal__probe_sgd *sgd) {
    zonal__softmax_spec spec = {
        .dim = sgd->options.dim, .classes = sgd->options.classes, .threads = sgd->options.threads};
    ZONAL_TRY(sgd->table->create(&spec, &sgd->softmax));
    sgd->parameter_count = spec.classes * (spec.dim + 1);
    ZONAL_TRY(ZONAL_NEW(&sgd->parameters, sgd->parameter_count, "the classifier"));
    ZONAL_TRY(ZONAL_NEW(&sgd->gradient, sgd->parameter_count, "the classifier's gradient"));
    return ZONAL_NEW(&sgd->momentum, sgd->parameter_count, "the classifier's momentum");
}

zonal_status zonal__probe_sgd_create(const zonal__probe_sgd_options *options,
                                     zonal__probe_sgd **out) {
    zonal__schedule schedule = {.kind = ZONAL__SCHEDULE_COSINE,
                                .total = options->steps,
                                .base = options->rate > 0 ? options->rate : .1};
    zonal__probe_sgd *sgd;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__schedule_check(&schedule));
    if (!(options->rate >= 0 && options->momentum >= 0 && options->momentum < 1 &&
          options->weight_decay >= 0 && options->weight_decay < INFINITY))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "rate and weight decay must not be negative, and the "
                          "momentum must be from 0 to 1, got %g, %g and %g",
                          options->rate, options->weight_decay, options->momentum);
    ZONAL_TRY(ZONAL_NEW(&sgd, 1, "the classifier"));
    sgd->options = *options;
    if (options->momentum == 0) sgd->options.momentum = .9;
    sgd->schedule = schedule;
    sgd->table = zonal__training_host()->softmax;
    ZONAL_TRY_GOTO(status, failed, allocate(sgd));
    *out = sgd;
    return ZONAL_OK;
failed:
    zonal__probe_sgd_destroy(sgd);
    return status;
}

static double rate_now(const zonal__probe_sgd *sgd) {
    int64_t tenths = 10 * sgd->steps / sgd->options.steps;
    if (!sgd->options.steps_down) return zonal__schedule_rate(&sgd->schedule, sgd->steps);
    return sgd->schedule.base * (tenths < 6 ? 1 : tenths < 8 ? .1 : .01);
}

zonal_status zonal__probe_sgd_step(zonal__probe_sgd *sgd, const zonal__labelled *batch,
                                   double *loss) {
    int64_t row = sgd->options.dim + 1;
    double rate = rate_now(sgd), sum = 0;
    ZONAL_TRY(zonal__labelled_check(batch, sgd->options.dim, sgd->options.classes, "the batch"));
    sgd->table->loss(sgd->softmax, batch->count, batch->x, batch->labels, sgd->parameters, loss,
                     sgd->gradient);
    for (int64_t i = 0; i < sgd->parameter_count; i++) sum += fabs(sgd->gradient[i]);
    if (!isfinite(*loss) || !isfinite(sum))
        return ZONAL_FAIL(ZONAL_NUMERIC,
                          "the probe's loss is not finite after %lld steps; lower "
                          "its rate",
                          (long long)sgd->steps);
    for (int64_t i = 0; i < sgd->parameter_count; i++) {
        double decay = i % row < row - 1 ? sgd->options.weight_decay : 0;
        sgd->momentum[i] = sgd->options.momentum * sgd->momentum[i] + sgd->gradient[i] +
                           decay * sgd->parameters[i];
        sgd->parameters[i] -= rate * sgd->momentum[i];
    }
    sgd->steps++;
    return ZONAL_OK;
}

zonal_status zonal__probe_sgd_probe(const zonal__probe_sgd *sgd, zonal__probe *probe) {
    double *copy;
    memset(probe, 0, sizeof *probe);
    ZONAL_TRY(ZONAL_NEW(&copy, sgd->parameter_count, "the classifier"));
    memcpy(copy, sgd->parameters, (size_t)sgd->parameter_count * sizeof *copy);
    *probe = (zonal__probe){.dim = sgd->options.dim,
                            .classes = sgd->options.classes,
                            .threads = sgd->options.threads,
                            .parameters = copy,
                            .held_out_accuracy = NAN,
                            .loss = NAN,
                            .gradient = NAN};
    return ZONAL_OK;
}
