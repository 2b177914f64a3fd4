#include <math.h>

#include "backend/backend.h"
#include "core/memory.h"
#include "loss/profile.h"
#include "loss/sliced.h"
#include "zonal/loss.h"

struct zonal_plan {
    zonal_loss_options options;
    int64_t batch, dim;
    zonal_kernel *kernel;         /* MMD, KSD, KL */
    zonal__profile profile;       /* MMD, KSD */
    zonal__fit *log_phi;          /* KL */
    zonal__sliced_tables tables;  /* SUSReg, SIGReg */
    const zonal__backend *backend;
    const zonal__operation_table *operation;
    zonal__work *work;
    uint32_t step;
    double offset, factor; /* value = offset + factor * what the operation returns */
    zonal_plan_info info;
};

static int is_sliced(const zonal_loss_options *options) {
    return options->discrepancy == ZONAL_SUSREG || options->discrepancy == ZONAL_SIGREG;
}

static zonal_status check(const zonal_loss_options *options, int64_t batch, int64_t dim) {
    int kl = options->discrepancy == ZONAL_KL;
    int64_t least = kl && options->estimator != ZONAL_ESTIMATOR_V ? 3 : 2;
    if ((unsigned)options->discrepancy > ZONAL_SIGREG)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no discrepancy %d", (int)options->discrepancy);
    if (batch < least)
        return ZONAL_FAIL(ZONAL_SHAPE, "%s needs a batch of at least %lld rows, got %lld",
                          kl ? "KL" : "a discrepancy", (long long)least, (long long)batch);
    if (dim < 2 || dim > 4096)
        return ZONAL_FAIL(ZONAL_SHAPE, "the dimension must be from 2 to 4096, got %lld",
                          (long long)dim);
    if (options->device != ZONAL_DEVICE_CPU)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "this build of zonal has no CUDA losses; use the device cpu");
    if (options->precision != ZONAL_DOUBLE && options->precision != ZONAL_FP32)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "tf32 and bf16 are CUDA precisions; on the CPU use double or fp32");
    if (options->threads < 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "threads must not be negative, got %d", options->threads);
    return ZONAL_OK;
}

/* Moments where they apply and cost less: 3 B d^2 operations against 4 B^2 d. */
static zonal_status choose(zonal_plan *plan, int degree) {
    zonal_implementation asked = plan->options.implementation;
    int possible = degree == 1 || degree == 2;
    if (asked == ZONAL_IMPLEMENTATION_MOMENTS && !possible)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "moments serve MMD and KSD under kernels of degree 1 or 2 (band 1 or 2) "
                          "alone; leave the implementation to the plan, or ask for pairs");
    if (asked == ZONAL_IMPLEMENTATION_PAIRS && is_sliced(&plan->options))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a sliced loss has no pairs; leave the implementation to the plan");
    if (asked == ZONAL_IMPLEMENTATION_AUTO)
        asked = possible && 4 * plan->batch >= 3 * plan->dim ? ZONAL_IMPLEMENTATION_MOMENTS
                                                             : ZONAL_IMPLEMENTATION_PAIRS;
    plan->info.implementation = asked;
    plan->backend = asked == ZONAL_IMPLEMENTATION_REF ? zonal__backend_ref() : zonal__backend_cpu();
    plan->info.backend = plan->backend->name;
    return ZONAL_OK;
}

static zonal_status create_work(zonal_plan *plan, zonal__operation operation,
                                const zonal__problem *problem) {
    plan->operation = plan->backend->operations[operation];
    ZONAL_TRY(plan->operation->create(problem, &plan->work));
    plan->info.scratch_bytes = plan->operation->scratch_bytes(plan->work);
    return ZONAL_OK;
}

/* MMD and KSD: D = 1/B + off-diagonal sum / B^2 (V), or the off-diagonal mean (U). */
static zonal_status build_pairs(zonal_plan *plan, zonal__problem *problem) {
    zonal_loss_options *options = &plan->options;
    double b = (double)plan->batch;
    ZONAL_TRY(zonal_kernel_create(&options->kernel, plan->dim, &plan->kernel));
    int degree = zonal__profile_degree(plan->kernel);
    ZONAL_TRY(choose(plan, degree));
    ZONAL_TRY(zonal__profile_init(plan->kernel, options->discrepancy, options->precision,
                                  &plan->profile));
    plan->info.norm = plan->profile.norm;
    plan->info.bias = options->discrepancy == ZONAL_MMD ? (double)expl(plan->kernel->log_a0) : 0;
    plan->info.slope = plan->profile.slope;
    if (options->estimator == ZONAL_ESTIMATOR_U) {
        plan->factor = b / (b - 1);
    } else {
        plan->factor = 1;
        plan->offset = 1 / b;
    }
    problem->psi = &plan->profile.psi;
    problem->n_psi = 1;
    if (plan->info.implementation == ZONAL_IMPLEMENTATION_MOMENTS) {
        problem->degree1 = zonal__profile_share(plan->kernel, options->discrepancy, 1);
        problem->degree2 = zonal__profile_share(plan->kernel, options->discrepancy, 2);
        return create_work(plan, ZONAL__MOMENTS, problem);
    }
    plan->info.fit_error = plan->profile.fit ? plan->profile.fit->error : 0;
    return create_work(plan, ZONAL__PAIRS, problem);
}

static zonal_status build_kl(zonal_plan *plan, zonal__problem *problem) {
    zonal_loss_options *options = &plan->options;
    zonal_kernel_constants constants;
    if (options->kernel.family == ZONAL_HEAT && options->kernel.t == 0)
        options->kernel.t = 2 / (double)plan->dim;
    options->kernel.log_profile = 1;
    ZONAL_TRY(zonal_kernel_create(&options->kernel, plan->dim, &plan->kernel));
    ZONAL_TRY(choose(plan, 0));
    ZONAL_TRY(zonal__profile_fit_log(plan->kernel, options->precision, &plan->log_phi));
    zonal_kernel_constants_get(plan->kernel, &constants);
    double norm = constants.kl_norm;
    if (options->kl_norm == ZONAL_KL_NORM_PAPER) {
        norm = constants.kl_norm_paper;
        if (norm <= 0)
            zonal__log("the paper's KL normaliser is %.6g at d = %lld: negative, so collapse is "
                       "rewarded; kl-norm auto is the remedy",
                       norm, (long long)plan->dim);
    }
    plan->info.norm = norm;
    plan->info.bias = -norm;
    plan->info.slope = constants.slope / norm;
    plan->info.fit_error = plan->log_phi->error;
    plan->offset = 1;
    plan->factor = 1 / norm;
    problem->log_phi = plan->log_phi;
    problem->keep_diagonal = options->estimator == ZONAL_ESTIMATOR_V;
    return create_work(plan, ZONAL__KL, problem);
}

static zonal_status build_sliced(zonal_plan *plan, zonal__problem *problem) {
    zonal_loss_options *options = &plan->options;
    ZONAL_TRY(choose(plan, 0));
    ZONAL_TRY(zonal__sliced_init(options->discrepancy, &options->sliced, options->kernel.scale,
                                 plan->dim, &plan->tables));
    plan->info.norm = plan->tables.divisor;
    plan->info.slope = plan->tables.slope;
    plan->factor = (options->sliced.times_n ? (double)plan->batch : 1) / plan->tables.divisor;
    problem->sliced = &plan->tables.sliced;
    return create_work(plan, ZONAL__SLICED, problem);
}

static zonal_status build(zonal_plan *plan) {
    const zonal_loss_options *options = &plan->options;
    zonal__problem problem = {
        .rows = plan->batch,
        .dim = plan->dim,
        .precision = options->precision,
        .unit_rows = options->unit_rows,
        .threads = zonal__backend_threads(options->threads),
    };
    if (options->discrepancy == ZONAL_KL)
        ZONAL_TRY(build_kl(plan, &problem));
    else if (is_sliced(options))
        ZONAL_TRY(build_sliced(plan, &problem));
    else
        ZONAL_TRY(build_pairs(plan, &problem));
    if (options->raw_value) {
        plan->offset *= plan->info.norm;
        plan->factor *= plan->info.norm;
    }
    return ZONAL_OK;
}

zonal_status zonal_plan_create(const zonal_loss_options *options, int64_t batch, int64_t dim,
                               zonal_plan **out) {
    zonal_plan *plan;
    *out = NULL;
    ZONAL_TRY(check(options, batch, dim));
    ZONAL_TRY(ZONAL_NEW(&plan, 1, "a plan"));
    plan->options = *options;
    plan->batch = batch;
    plan->dim = dim;
    zonal_status status = build(plan);
    if (status == ZONAL_OK)
        *out = plan;
    else
        zonal_plan_destroy(plan);
    return status;
}

void zonal_plan_destroy(zonal_plan *plan) {
    if (!plan) return;
    if (plan->work) plan->operation->destroy(plan->work);
    zonal__profile_fini(&plan->profile);
    zonal__fit_destroy(plan->log_phi);
    zonal__sliced_fini(&plan->tables);
    zonal_kernel_destroy(plan->kernel);
    zonal__free(plan);
}

zonal_status zonal_plan_execute(zonal_plan *plan, const void *x, double *value, void *gradient) {
    double raw = NAN;
    *value = NAN;
    if (gradient && plan->kernel && plan->kernel->spec.family == ZONAL_CHORDAL)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the chordal kernel has an infinite slope at c = 1 and so no gradient; "
                          "it is for tests of uniformity: train with mmd-heat or mmd-band");
    ZONAL_TRY(plan->operation->run(plan->work, x, plan->step, &raw, gradient, plan->factor));
    *value = plan->offset + plan->factor * raw;
    return ZONAL_OK;
}

void zonal_plan_set_step(zonal_plan *plan, uint32_t step) {
    plan->step = step;
}

void zonal_plan_info_get(const zonal_plan *plan, zonal_plan_info *info) {
    *info = plan->info;
}
