/*
 * Optimisers by the formulas of backend/training/optimiser.h: double arithmetic on fp32 storage,
 * one thread, one element after the other. Each stored number is rounded once a step.
 */
#include "backend/training/optimiser.h"

#include <math.h>
#include <string.h>

#include "core/bf16.h"
#include "core/memory.h"

struct zonal__optimiser {
    zonal__optimiser_host host;
};

/* ---- making ---------------------------------------------------------------------------------- */

static void destroy(zonal__optimiser *optimiser) {
    if (!optimiser) return;
    zonal__optimiser_host_fini(&optimiser->host);
    zonal__free(optimiser);
}

static zonal_status create(const zonal__optimiser_spec *spec,
                           const zonal__optimiser_segment *segments, int64_t segment_count,
                           zonal__optimiser **out) {
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(out, 1, "the optimiser"));
    status = zonal__optimiser_host_init(spec, segments, segment_count, &(*out)->host);
    if (status == ZONAL_OK) return ZONAL_OK;
    destroy(*out);
    *out = NULL;
    return status;
}

static zonal_status state(zonal__optimiser *optimiser, const char *name, float **memory) {
    return zonal__optimiser_host_state(&optimiser->host, name, memory);
}

/* ---- the gradient ---------------------------------------------------------------------------- */

static double squares(const float *x, const zonal__optimiser_segment *segment) {
    double sum = 0;
    for (int64_t i = segment->offset; i < segment->offset + segment->count; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* The norm, the factor that clips it, and whether the clipped gradient can be used. */
static zonal_status examine(const zonal__optimiser *optimiser, const float *gradients, double *norm,
                            double *factor) {
    double sum = 0;
    for (int64_t s = 0; s < optimiser->host.segment_count; s++)
        sum += squares(gradients, &optimiser->host.segments[s]);
    *norm = sqrt(sum);
    *factor = zonal__optimiser_clip(&optimiser->host.spec, *norm);
    for (int64_t s = 0; s < optimiser->host.segment_count; s++) {
        double clipped = squares(gradients, &optimiser->host.segments[s]) * *factor * *factor;
        if (!(clipped <= ZONAL__OPTIMISER_LARGEST))
            return zonal__optimiser_refuse(&optimiser->host.segments[s]);
    }
    return ZONAL_OK;
}

/* ---- updates --------------------------------------------------------------------------------- */

static double adamw(const zonal__optimiser_spec *spec, const zonal__optimiser_numbers *numbers,
                    double decay, double p, double g, float *exp_avg, float *exp_avg_sq) {
    double m = spec->beta1 * (double)*exp_avg + (1 - spec->beta1) * g;
    double v = spec->beta2 * (double)*exp_avg_sq + (1 - spec->beta2) * g * g;
    *exp_avg = (float)m;
    *exp_avg_sq = (float)v;
    return (1 - numbers->rate * decay) * p - numbers->rate * (m / numbers->correction1) /
                                                 (sqrt(v / numbers->correction2) + spec->epsilon);
}

static double sgd(const zonal__optimiser_spec *spec, const zonal__optimiser_numbers *numbers,
                  double decay, double p, double g, float *momentum) {
    double direction = g + decay * p;
    double b = spec->momentum * (double)*momentum + direction;
    *momentum = (float)b;
    return p - numbers->rate * (spec->nesterov ? direction + spec->momentum * b : b);
}

static double lars(const zonal__optimiser_spec *spec, const zonal__optimiser_numbers *numbers,
                   double decay, double ratio, double p, double g, float *momentum) {
    double b = spec->momentum * (double)*momentum + numbers->rate * ratio * (g + decay * p);
    *momentum = (float)b;
    return p - b;
}

static double trust_ratio(const zonal__optimiser *optimiser,
                          const zonal__optimiser_segment *segment,
                          const zonal__optimiser_arrays *arrays, double factor) {
    return zonal__optimiser_trust(&optimiser->host.spec, segment,
                                  sqrt(squares(arrays->parameters, segment)),
                                  sqrt(squares(arrays->gradients, segment)) * factor);
}

static void update(zonal__optimiser *optimiser, const zonal__optimiser_segment *segment,
                   const zonal__optimiser_arrays *arrays, const zonal__optimiser_numbers *numbers,
                   double factor) {
    const zonal__optimiser_spec *spec = &optimiser->host.spec;
    double decay = segment->decay ? spec->weight_decay : 0, ratio = 1;
    if (spec->kind == ZONAL__OPTIMISER_LARS)
        ratio = trust_ratio(optimiser, segment, arrays, factor);
    for (int64_t i = segment->offset; i < segment->offset + segment->count; i++) {
        double p = (double)arrays->parameters[i], g = (double)arrays->gradients[i] * factor;
        float *first = &optimiser->host.state[0][i];
        if (spec->kind == ZONAL__OPTIMISER_ADAMW)
            p = adamw(spec, numbers, decay, p, g, first, &optimiser->host.state[1][i]);
        else if (spec->kind == ZONAL__OPTIMISER_SGD)
            p = sgd(spec, numbers, decay, p, g, first);
        else
            p = lars(spec, numbers, decay, ratio, p, g, first);
        arrays->parameters[i] = (float)p;
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

static zonal_status copy(zonal__optimiser *optimiser, const zonal__optimiser_arrays *arrays) {
    for (int64_t s = 0; arrays->copy && s < optimiser->host.segment_count; s++) {
        const zonal__optimiser_segment *segment = &optimiser->host.segments[s];
        for (int64_t i = segment->offset; i < segment->offset + segment->count; i++)
            arrays->copy[i] = zonal__bf16_from_float(arrays->parameters[i]);
    }
    return ZONAL_OK;
}

static zonal_status step(zonal__optimiser *optimiser, const zonal__optimiser_arrays *arrays,
                         const zonal__optimiser_numbers *numbers, double *norm) {
    double factor;
    ZONAL_TRY(examine(optimiser, arrays->gradients, norm, &factor));
    for (int64_t s = 0; s < optimiser->host.segment_count; s++)
        update(optimiser, &optimiser->host.segments[s], arrays, numbers, factor);
    return copy(optimiser, arrays);
}

static zonal_status status(zonal__optimiser *optimiser) {
    (void)optimiser;
    return ZONAL_OK;
}

static const zonal__optimiser_table table = {.name = "ref",
                                             .create = create,
                                             .destroy = destroy,
                                             .state = state,
                                             .step = step,
                                             .status = status,
                                             .copy = copy};

const zonal__optimiser_table *zonal__optimiser_ref(void) {
    return &table;
}
