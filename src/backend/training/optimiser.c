/* What every device asks of an optimiser, and the numbers of a step: backend/training/optimiser.h.
 */
#include "backend/training/optimiser.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"

zonal__optimiser_spec zonal__optimiser_defaults(zonal__optimiser_kind kind) {
    return (zonal__optimiser_spec){.kind = kind,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .epsilon = 1e-8,
                                   .momentum = 0.9,
                                   .trust = 0.001};
}

/* ---- checks ---------------------------------------------------------------------------------- */

static zonal_status check_share(const char *what, double value) {
    if (!(value >= 0 && value < 1))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be at least 0 and below 1, got %g", what, value);
    return ZONAL_OK;
}

static zonal_status check_not_negative(const char *what, double value) {
    if (!(value >= 0 && isfinite(value)))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be finite and not negative, got %g", what,
                          value);
    return ZONAL_OK;
}

static zonal_status check_positive(const char *what, double value) {
    if (!(value > 0 && isfinite(value)))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be finite and positive, got %g", what, value);
    return ZONAL_OK;
}

static zonal_status check_spec(const zonal__optimiser_spec *spec) {
    ZONAL_TRY(check_not_negative("the weight decay", spec->weight_decay));
    ZONAL_TRY(check_not_negative("the norm at which gradients are clipped", spec->clip));
    if (spec->threads < 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the number of threads must not be negative, got %d",
                          spec->threads);
    switch (spec->kind) {
    case ZONAL__OPTIMISER_ADAMW:
        ZONAL_TRY(check_share("beta1 of AdamW", spec->beta1));
        ZONAL_TRY(check_share("beta2 of AdamW", spec->beta2));
        /* it alone divides where v is 0, and must not be 0 as a float */
        return check_positive("epsilon of AdamW", (double)(float)spec->epsilon);
    case ZONAL__OPTIMISER_SGD:
        ZONAL_TRY(check_share("the momentum", spec->momentum));
        if (spec->nesterov && spec->momentum == 0)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "nesterov needs a momentum above 0; set one, or leave nesterov out");
        return ZONAL_OK;
    case ZONAL__OPTIMISER_LARS:
        ZONAL_TRY(check_share("the momentum", spec->momentum));
        return check_positive("the trust coefficient of LARS", spec->trust);
    }
    return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no kind %d of optimisers", (int)spec->kind);
}

zonal_status zonal__optimiser_check(const zonal__optimiser_spec *spec,
                                    const zonal__optimiser_segment *segments,
                                    int64_t segment_count) {
    ZONAL_TRY(check_spec(spec));
    if (spec->count < 1 || segment_count < 1)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "an optimiser needs parameters: got %lld elements in %lld segments",
                          (long long)spec->count, (long long)segment_count);
    for (int64_t i = 0, end = 0; i < segment_count; i++) {
        const zonal__optimiser_segment *segment = &segments[i];
        if (!segment->name)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "segment %lld has no name", (long long)i);
        if (segment->offset < end || segment->count < 1 ||
            segment->count > spec->count - segment->offset)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "segment %s (%lld elements from %lld on) is empty, overlaps the one "
                              "before it or ends beyond the %lld elements there are",
                              segment->name, (long long)segment->count, (long long)segment->offset,
                              (long long)spec->count);
        end = segment->offset + segment->count;
    }
    return ZONAL_OK;
}

zonal_status zonal__optimiser_refuse(const zonal__optimiser_segment *segment) {
    return ZONAL_FAIL(ZONAL_NUMERIC,
                      "the gradient of %s is not finite or beyond 1e18, so the step was not made; "
                      "lower the learning rate, lengthen its warm-up or clip the gradient",
                      segment->name);
}

/* ---- state and numbers ----------------------------------------------------------------------- */

const char *const *zonal__optimiser_state_names(zonal__optimiser_kind kind) {
    static const char *const adamw[] = {"exp_avg", "exp_avg_sq", NULL};
    static const char *const others[] = {"momentum", NULL};
    return kind == ZONAL__OPTIMISER_ADAMW ? adamw : others;
}

zonal_status zonal__optimiser_state_index(zonal__optimiser_kind kind, const char *name, int *out) {
    const char *const *names = zonal__optimiser_state_names(kind);
    for (int i = 0; names[i]; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = i;
            return ZONAL_OK;
        }
    return ZONAL_FAIL(ZONAL_ARGUMENT, "the optimiser's state has no part %s; it has %s%s%s", name,
                      names[0], names[1] ? " and " : "", names[1] ? names[1] : "");
}

zonal_status zonal__optimiser_numbers_make(const zonal__optimiser_spec *spec, double rate,
                                           int64_t step, zonal__optimiser_numbers *out) {
    ZONAL_TRY(check_not_negative("the learning rate", rate));
    if (step < 1)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "an optimiser's steps are counted from 1, got %lld",
                          (long long)step);
    *out = (zonal__optimiser_numbers){.rate = rate, .correction1 = 1, .correction2 = 1};
    if (spec->kind == ZONAL__OPTIMISER_ADAMW) {
        out->correction1 = 1 - pow(spec->beta1, (double)step);
        out->correction2 = 1 - pow(spec->beta2, (double)step);
    }
    return ZONAL_OK;
}

/* ---- on the host ----------------------------------------------------------------------------- */

zonal_status zonal__optimiser_host_init(const zonal__optimiser_spec *spec,
                                        const zonal__optimiser_segment *segments,
                                        int64_t segment_count, zonal__optimiser_host *host) {
    const char *const *names = zonal__optimiser_state_names(spec->kind);
    *host = (zonal__optimiser_host){.spec = *spec, .segment_count = segment_count};
    ZONAL_TRY(zonal__optimiser_check(spec, segments, segment_count));
    ZONAL_TRY(ZONAL_NEW(&host->segments, segment_count, "the segments"));
    memcpy(host->segments, segments, (size_t)segment_count * sizeof *segments);
    for (int i = 0; names[i]; i++)
        ZONAL_TRY(ZONAL_NEW(&host->state[i], spec->count, "the optimiser's state"));
    return ZONAL_OK;
}

void zonal__optimiser_host_fini(zonal__optimiser_host *host) {
    zonal__free(host->segments);
    zonal__free(host->state[0]);
    zonal__free(host->state[1]);
    *host = (zonal__optimiser_host){0};
}

zonal_status zonal__optimiser_host_state(const zonal__optimiser_host *host, const char *name,
                                         float **memory) {
    int index = 0;
    *memory = NULL;
    ZONAL_TRY(zonal__optimiser_state_index(host->spec.kind, name, &index));
    *memory = host->state[index];
    return ZONAL_OK;
}

double zonal__optimiser_clip(const zonal__optimiser_spec *spec, double norm) {
    return spec->clip > 0 && norm > spec->clip ? spec->clip / norm : 1;
}

double zonal__optimiser_trust(const zonal__optimiser_spec *spec,
                              const zonal__optimiser_segment *segment, double p, double g) {
    if (!segment->adapt || !(p > ZONAL__OPTIMISER_SMALLEST) || !(g > ZONAL__OPTIMISER_SMALLEST))
        return 1;
    return spec->trust * p / (g + (segment->decay ? spec->weight_decay * p : 0));
}
