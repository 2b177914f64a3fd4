#include "loss/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/device.h"
#include "core/checksum.h"
#include "core/memory.h"
#include "core/sized.h"
#include "core/thread.h"
#include "loss/family.h"
#include "loss/options.h"

struct zonal_plan {
    zonal_loss_options options;
    int64_t rows, batch, dim;    /* rows of this rank; of all */
    zonal__ranks *own_ranks;     /* NULL: there are none, or they are the objective's */
    zonal_kernel *kernel;        /* MMD, KSD, KL */
    zonal__profile profile;      /* MMD, KSD */
    zonal__fit *log_phi;         /* KL, where the kernel's own is not used */
    zonal__sliced_tables tables; /* SUSReg, SIGReg */
    const zonal__device *device; /* the reference's, where that implementation was asked for */
    zonal__operation operation;
    zonal__problem problem; /* what the operation is made for; points into this plan */
    zonal__work *work;
    uint32_t step;
    const uint32_t *device_step;
    zonal_plan_info info;
};

static int is_sliced(const zonal_loss_options *options) {
    return options->discrepancy == ZONAL_DISCREPANCY_SUSREG ||
           options->discrepancy == ZONAL_DISCREPANCY_SIGREG;
}

static zonal_status check_choice(const char *what, unsigned value, const char *const *words) {
    char list[128] = "";
    unsigned count = 0;
    for (; words[count]; count++)
        snprintf(list + strlen(list), sizeof list - strlen(list), count ? ", %s" : "%s",
                 words[count]);
    if (value < count) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no %s %d; it is one of: %s", what, (int)value,
                      list);
}

static zonal_status check_flag(const char *what, int value) {
    if (value == 0 || value == 1) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be 0 or 1, got %d", what, value);
}

static zonal_status check_choices(const zonal_loss_options *options) {
    if ((unsigned)options->discrepancy > ZONAL_DISCREPANCY_SIGREG)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no discrepancy %d", (int)options->discrepancy);
    if (!zonal__family_of(options->kernel.family)) return zonal_last_error()->status;
    ZONAL_TRY(check_choice("estimator", options->estimator, zonal__estimator_words));
    ZONAL_TRY(check_choice("KL norm", options->kl_norm, zonal__kl_norm_words));
    ZONAL_TRY(check_choice("precision", options->precision, zonal__precision_words));
    ZONAL_TRY(check_choice("dtype", options->dtype, zonal__dtype_words));
    ZONAL_TRY(check_choice("implementation", options->implementation, zonal__implementation_words));
    ZONAL_TRY(check_flag("raw_value", options->raw_value));
    ZONAL_TRY(check_flag("unit_rows", options->unit_rows));
    if (options->threads < 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "threads must not be negative, got %lld",
                          (long long)options->threads);
    return ZONAL_OK;
}

/* What the discrepancy has no use for would be ignored in silence. */
static zonal_status check_use(const zonal_loss_options *options) {
    const struct {
        const char *name;
        int set;
    } list[] = {{"estimator", options->estimator == ZONAL_ESTIMATOR_U},
                {"kl-norm", options->kl_norm != ZONAL_KL_NORM_AUTO},
                {"unit", options->unit_rows},
                {"without-multiplicity", options->kernel.without_multiplicity}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].set && !zonal__loss_uses(options, list[i].name))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "%s has no use for %s; leave it at its default",
                              zonal__method_of(options), list[i].name);
    return ZONAL_OK;
}

static zonal_status check(const zonal_loss_options *options, int64_t batch, int64_t dim) {
    int kl = options->discrepancy == ZONAL_DISCREPANCY_KL;
    int64_t least = kl && options->estimator != ZONAL_ESTIMATOR_V ? 3 : 2;
    ZONAL_TRY(check_choices(options));
    ZONAL_TRY(check_use(options));
    if (batch < least)
        return ZONAL_FAIL(ZONAL_SHAPE, "%s needs a batch of at least %lld rows, got %lld",
                          kl ? "KL" : "a discrepancy", (long long)least, (long long)batch);
    if (dim < 2 || dim > 4096)
        return ZONAL_FAIL(ZONAL_SHAPE, "the dimension must be from 2 to 4096, got %lld",
                          (long long)dim);
    return ZONAL_OK;
}

/* "fp32, tf32 or bf16": the words whose bits are set. */
static void list_words(unsigned left, const char *const *words, char out[64]) {
    size_t length = 0;
    out[0] = '\0';
    for (unsigned i = 0; words[i]; i++) {
        if (!(left & 1u << i)) continue;
        left &= ~(1u << i);
        length += (size_t)snprintf(out + length, 64 - length, "%s%s",
                                   length == 0 ? ""
                                   : left      ? ", "
                                               : " or ",
                                   words[i]);
    }
}

/* On the host rows are what the precision says. */
static zonal_status check_dtype(const zonal_loss_options *options, const zonal__device *device) {
    zonal_dtype dtype = options->dtype, host = options->precision == ZONAL_PRECISION_DOUBLE
                                                   ? ZONAL_DTYPE_DOUBLE
                                                   : ZONAL_DTYPE_FP32;
    char known[64];
    if (dtype == ZONAL_DTYPE_AUTO) return ZONAL_OK;
    if (device->backend->is_host && dtype != host)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "on the CPU rows are what the precision says, %s; leave dtype at auto, "
                          "got %s",
                          zonal__dtype_words[host], zonal__dtype_words[dtype]);
    if (device->backend->is_host || device->backend->dtypes & 1u << dtype) return ZONAL_OK;
    list_words(device->backend->dtypes, zonal__dtype_words, known);
    return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                      "the device %s takes no rows of %s; use %s there, or another device",
                      device->name, zonal__dtype_words[dtype], known);
}

/* The device of the options, and whether it can do what they ask for. */
static zonal_status open_device(const zonal_loss_options *options, const zonal__device **device) {
    char known[64];
    if (!memchr(options->device, 0, sizeof options->device))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the device's name is not terminated; fill the options by "
                          "zonal_loss_defaults first");
    ZONAL_TRY(zonal__device_open(options->device, device));
    if (!((*device)->backend->precisions & 1u << options->precision)) {
        list_words((*device)->backend->precisions, zonal__precision_words, known);
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "the device %s does not compute in %s; use %s there, or another device",
                          (*device)->name, zonal__precision_words[options->precision], known);
    }
    ZONAL_TRY(check_dtype(options, *device));
    if (options->implementation != ZONAL_IMPLEMENTATION_REF) return ZONAL_OK;
    if (!(*device)->backend->is_host)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the reference runs on the CPU; use the device cpu");
    *device = zonal__device_ref();
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
    if (asked == ZONAL_IMPLEMENTATION_SLICES && !is_sliced(&plan->options))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "slices serve susreg and sigreg alone; leave the implementation to the "
                          "plan");
    int cheaper =
        4 * plan->batch >= 3 * plan->dim && plan->batch > plan->device->backend->pairs_pay_up_to;
    if (asked == ZONAL_IMPLEMENTATION_AUTO)
        asked = is_sliced(&plan->options) ? ZONAL_IMPLEMENTATION_SLICES
                : possible && cheaper     ? ZONAL_IMPLEMENTATION_MOMENTS
                                          : ZONAL_IMPLEMENTATION_PAIRS;
    plan->info.implementation = asked;
    return ZONAL_OK;
}

/* P_2(x.y), averaged over x and y, is d/(d-1) |M - I/d|_F^2. */
static double degree2_scale(const zonal_plan *plan) {
    double d = (double)plan->dim;
    return d / (d - 1);
}

/* MMD and KSD: D = 1/B + off-diagonal sum / B^2 (V), or the off-diagonal mean (U). */
static zonal_status build_pairs(zonal_plan *plan) {
    zonal__problem *problem = &plan->problem;
    zonal_loss_options *options = &plan->options;
    double b = (double)plan->batch;
    ZONAL_TRY(zonal_kernel_create(&options->kernel, plan->dim, &plan->kernel));
    int degree = zonal__profile_degree(plan->kernel);
    ZONAL_TRY(choose(plan, degree));
    ZONAL_TRY(zonal__profile_init(plan->kernel, options->discrepancy, options->precision,
                                  &plan->profile));
    plan->info.norm = plan->profile.norm;
    plan->info.bias =
        options->discrepancy == ZONAL_DISCREPANCY_MMD ? (double)expl(plan->kernel->log_a0) : 0;
    plan->info.derivative = plan->profile.derivative;
    plan->info.anisotropy =
        zonal__profile_share(plan->kernel, options->discrepancy, 2) * degree2_scale(plan);
    if (options->estimator == ZONAL_ESTIMATOR_U) {
        plan->problem.factor = b / (b - 1);
    } else {
        plan->problem.factor = 1;
        plan->problem.offset = 1 / b;
    }
    problem->degree1 = zonal__profile_share(plan->kernel, options->discrepancy, 1);
    problem->degree2 = zonal__profile_share(plan->kernel, options->discrepancy, 2);
    if (plan->info.implementation == ZONAL_IMPLEMENTATION_MOMENTS) {
        plan->operation = ZONAL__MOMENTS;
        return ZONAL_OK;
    }
    plan->operation = ZONAL__PAIRS;
    problem->psi = &plan->profile.psi;
    problem->n_psi = 1;
    plan->info.fit_error = plan->profile.fit ? plan->profile.fit->error : 0;
    return ZONAL_OK;
}

/* Under the density 1 + e P_2(x.n) the mean of phi is a_0 (1 + e u P_2), u = a_2/(a_0 N_2), and the
 * mean of its log is log a_0 + e^2 (u - u^2/2) mean P_2^2, with mean P_2^2 = 1/N_2. */
static double kl_degree2(const zonal_kernel *kernel) {
    long double d = (long double)kernel->dim, ratio;
    if (kernel->degrees <= 2) return 0;
    ratio = kernel->a[2] / kernel->a[0];
    return (double)(ratio * (1 - ratio / ((d - 1) * (d + 2))));
}

static zonal_status build_kl(zonal_plan *plan) {
    zonal__problem *problem = &plan->problem;
    zonal_loss_options *options = &plan->options;
    zonal_kernel_constants constants = ZONAL_KERNEL_CONSTANTS_INIT;
    const zonal__family *family = zonal__family_of(options->kernel.family);
    if (!family) return zonal_last_error()->status;
    if (options->kernel.parameter.factor == 0 && family->initial)
        options->kernel.parameter = family->initial(plan->dim, ZONAL_DISCREPANCY_KL);
    options->kernel.log_profile = 1;
    ZONAL_TRY(zonal_kernel_create(&options->kernel, plan->dim, &plan->kernel));
    ZONAL_TRY(choose(plan, 0));
    const zonal__fit *log_phi = plan->kernel->log_phi;
    if (options->precision != ZONAL_PRECISION_DOUBLE) {
        ZONAL_TRY(zonal__profile_fit_log(plan->kernel, &plan->log_phi));
        log_phi = plan->log_phi;
    }
    ZONAL_TRY(zonal_kernel_constants_get(plan->kernel, &constants));
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
    plan->info.derivative = constants.derivative / norm;
    plan->info.anisotropy = kl_degree2(plan->kernel) * degree2_scale(plan) / norm;
    plan->info.fit_error = log_phi->error;
    plan->problem.offset = 1;
    plan->problem.factor = 1 / norm;
    plan->operation = ZONAL__KL;
    problem->log_phi = log_phi;
    problem->keep_diagonal = options->estimator == ZONAL_ESTIMATOR_V;
    return ZONAL_OK;
}

/* The kernel of a sliced loss is the induced one, its limit. */
static double sliced_scale(const zonal_plan *plan) {
    const zonal_kernel_spec *kernel = &plan->options.kernel;
    if (kernel->family != ZONAL_FAMILY_INDUCED) return (double)plan->dim;
    return zonal__family_parameter(kernel, plan->dim, plan->options.discrepancy);
}

static zonal_status build_sliced(zonal_plan *plan) {
    zonal_loss_options *options = &plan->options;
    ZONAL_TRY(choose(plan, 0));
    ZONAL_TRY(zonal__sliced_init(options->discrepancy, &options->sliced, sliced_scale(plan),
                                 plan->dim, &plan->tables));
    plan->info.norm = plan->tables.divisor;
    plan->info.derivative = plan->tables.derivative;
    plan->info.anisotropy = plan->tables.anisotropy;
    plan->problem.factor =
        (options->sliced.times_n ? (double)plan->batch : 1) / plan->tables.divisor;
    plan->operation = ZONAL__SLICED;
    plan->problem.sliced = &plan->tables.sliced;
    return ZONAL_OK;
}

/* What the plan is, for who asks: everything but the numbers that building it found. */
static void describe(zonal_plan *plan) {
    const zonal_loss_options *options = &plan->options;
    zonal_plan_info *info = &plan->info;
    char parameter[64];
    info->size = sizeof *info;
    info->batch = plan->batch;
    info->dim = plan->dim;
    info->rows = plan->rows;
    info->first_row = plan->problem.ranks ? plan->problem.ranks->first : 0;
    info->precision = options->precision;
    info->dtype = options->dtype != ZONAL_DTYPE_AUTO             ? options->dtype
                  : options->precision == ZONAL_PRECISION_DOUBLE ? ZONAL_DTYPE_DOUBLE
                                                                 : ZONAL_DTYPE_FP32;
    info->backend = plan->device->backend->name;
    snprintf(info->device, sizeof info->device, "%s",
             plan->device->backend->is_host ? "cpu" : plan->device->name);
    info->family = options->kernel.family;
    snprintf(info->kernel, sizeof info->kernel, "none");
    if (options->discrepancy == ZONAL_DISCREPANCY_SIGREG) return; /* a test in R^d */
    if (is_sliced(options)) info->family = ZONAL_FAMILY_INDUCED;
    info->parameter = is_sliced(options) ? sliced_scale(plan) : plan->kernel->parameter;
    zonal__family_describe(
        &(zonal_kernel_spec){.family = info->family,
                             .parameter = {info->parameter, 0},
                             .n_weights = plan->kernel ? plan->kernel->spec.n_weights : 0},
        plan->dim, options->discrepancy, parameter, sizeof parameter);
    snprintf(info->kernel, sizeof info->kernel, "%s%s%s", zonal_family_name(info->family),
             parameter[0] ? ", " : "", parameter);
}

static zonal_status build(zonal_plan *plan, const zonal__ranks *ranks) {
    const zonal_loss_options *options = &plan->options;
    plan->problem = (zonal__problem){
        .device = plan->device,
        .rows = plan->rows,
        .ranks = ranks,
        .dim = plan->dim,
        .precision = options->precision,
        .dtype = options->dtype == ZONAL_DTYPE_AUTO ? ZONAL_DTYPE_FP32 : options->dtype,
        .unit_rows = options->unit_rows,
        .threads = zonal__thread_count(options->threads),
        .views = 1,
        .global_views = 1,
        .device_step = &plan->device_step,
    };
    if (options->discrepancy == ZONAL_DISCREPANCY_KL)
        ZONAL_TRY(build_kl(plan));
    else if (is_sliced(options))
        ZONAL_TRY(build_sliced(plan));
    else
        ZONAL_TRY(build_pairs(plan));
    if (options->raw_value) {
        plan->problem.offset *= plan->info.norm;
        plan->problem.factor *= plan->info.norm;
    }
    describe(plan);
    return ZONAL_OK;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

enum { AGREED = 24 }; /* values that ranks compare, at most */

static const char *word_at(const char *const *words, int i) {
    for (int k = 0; words[k]; k++)
        if (k == i) return words[k];
    return NULL;
}

static const char *estimator_word(int i) {
    return word_at(zonal__estimator_words, i);
}

static const char *kl_norm_word(int i) {
    return word_at(zonal__kl_norm_words, i);
}

static const char *precision_word(int i) {
    return word_at(zonal__precision_words, i);
}

static const char *implementation_word(int i) {
    return word_at(zonal__implementation_words, i);
}

static int method_number(const zonal_loss_options *options) {
    const char *method = zonal__method_of(options), *name;
    for (int i = 0; (name = zonal_method_name(i)) != NULL; i++)
        if (strcmp(name, method) == 0) return i;
    return -1;
}

/* Of the weights, or of their text; 52 bits, which a double holds. 0: none, or nonsense, which the
 * kernel then refuses. */
static double spectrum_checksum(const zonal_kernel_spec *spec) {
    uint64_t sum = 0;
    if (spec->family != ZONAL_FAMILY_SPECTRUM) return 0;
    if (spec->weights && spec->n_weights > 0 && spec->n_weights <= ZONAL__MOST_WEIGHTS)
        sum = zonal__checksum_of(spec->weights, (size_t)spec->n_weights * sizeof *spec->weights);
    else if (!spec->weights && spec->spectrum)
        sum = zonal__checksum_of(spec->spectrum, strlen(spec->spectrum));
    return (double)(sum >> 12);
}

/* All that changes the numbers; ranks may differ in device and threads. */
static int list_agreed(const zonal_loss_options *o, int64_t dim, const zonal__agreed *values,
                       int more, zonal__agreed list[AGREED]) {
    const zonal__agreed own[] = {
        {"the method", method_number(o), zonal_method_name},
        {"the dimension", (double)dim, NULL},
        {"the kernel's parameter", o->kernel.parameter.factor, NULL},
        {"the power of d in the kernel's parameter", o->kernel.parameter.power, NULL},
        {"without_multiplicity", o->kernel.without_multiplicity, NULL},
        {"the spectrum's checksum", spectrum_checksum(&o->kernel), NULL},
        {"the estimator", o->estimator, estimator_word},
        {"the KL norm", o->kl_norm, kl_norm_word},
        {"the precision", o->precision, precision_word},
        {"the implementation", o->implementation, implementation_word},
        {"raw_value", o->raw_value, NULL},
        {"slices", (double)o->sliced.slices, NULL},
        {"knots", (double)o->sliced.knots, NULL},
        {"the low end of the range", o->sliced.low, NULL},
        {"the high end of the range", o->sliced.high, NULL},
        {"times_n", o->sliced.times_n, NULL},
        {"collapse_normalised", o->sliced.collapse_normalised, NULL},
        {"seed", (double)o->sliced.seed, NULL},
    };
    int count = sizeof own / sizeof own[0];
    memcpy(list, own, sizeof own);
    for (int i = 0; i < more && count < AGREED; i++) list[count++] = values[i];
    return count;
}

zonal_status zonal__plan_join(const zonal_loss_options *options, zonal_status status, int64_t rows,
                              int64_t dim, const zonal__agreed *values, int more,
                              zonal__ranks **ranks) {
    zonal__agreed list[AGREED];
    const zonal__device *device = NULL;
    *ranks = NULL;
    if (!options->communicator) return status;
    if (status == ZONAL_OK) status = check_choices(options);
    if (status == ZONAL_OK) status = open_device(options, &device);
    if (status == ZONAL_OK && !device->backend->takes_ranks)
        status = ZONAL_FAIL(ZONAL_UNSUPPORTED,
                            "the device %s computes no loss over several ranks; use the device cpu",
                            device->name);
    return zonal__ranks_create(options->communicator, device, rows, list,
                               list_agreed(options, dim, values, more, list), status, ranks);
}

zonal_status zonal__plan_prepare(const zonal_loss_options *options, const zonal__ranks *ranks,
                                 int64_t rows, int64_t dim, zonal_plan **out) {
    zonal_plan *plan;
    *out = NULL;
    const zonal__device *device;
    ZONAL_TRY(check(options, ranks ? ranks->batch : rows, dim));
    ZONAL_TRY(open_device(options, &device));
    ZONAL_TRY(ZONAL_NEW(&plan, 1, "a plan"));
    plan->options = *options;
    plan->device = device;
    plan->rows = rows;
    plan->batch = ranks ? ranks->batch : rows;
    plan->dim = dim;
    zonal_status status = build(plan, ranks);
    /* the kernel has copies of what is the caller's */
    plan->options.kernel.weights = NULL;
    plan->options.kernel.spectrum = NULL;
    if (status == ZONAL_OK)
        *out = plan;
    else
        zonal_plan_destroy(plan);
    return status;
}

const zonal__problem *zonal__plan_problem(const zonal_plan *plan) {
    return &plan->problem;
}

const zonal__device *zonal__plan_device(const zonal_plan *plan) {
    return plan->device;
}

static const zonal__operation_table *table_of(const zonal_plan *plan) {
    return plan->device->backend->operations[plan->operation];
}

zonal_status zonal__plan_finish(zonal_plan *plan) {
    const zonal__operation_table *table;
    ZONAL_TRY(zonal__device_operation(plan->device, plan->operation, &table));
    ZONAL_TRY(table->create(&plan->problem, &plan->work));
    plan->info.scratch_bytes = table->scratch_bytes(plan->work);
    return ZONAL_OK;
}

zonal_status zonal__plan_create_from(const zonal_loss_options *options, zonal_status status,
                                     int64_t rows, int64_t dim, zonal_plan **out) {
    zonal__ranks *ranks;
    zonal_plan *plan;
    *out = NULL;
    ZONAL_TRY(zonal__plan_join(options, status, rows, dim, NULL, 0, &ranks));
    status = zonal__plan_prepare(options, ranks, rows, dim, &plan);
    if (status == ZONAL_OK) status = zonal__plan_finish(plan);
    status = zonal__ranks_agree(ranks, status);
    if (status == ZONAL_OK) {
        plan->own_ranks = ranks;
        *out = plan;
    } else {
        zonal_plan_destroy(plan);
        zonal__ranks_destroy(ranks);
    }
    return status;
}

zonal_status zonal_plan_create(const zonal_loss_options *given, int64_t rows, int64_t dim,
                               zonal_plan **out) {
    zonal_loss_options options;
    ZONAL_NEED(out, "plan");
    *out = NULL;
    ZONAL_NEED(given, "options");
    ZONAL_TRY(zonal__loss_read(given, &options));
    return zonal__plan_create_from(&options, ZONAL_OK, rows, dim, out);
}

void zonal_plan_destroy(zonal_plan *plan) {
    if (!plan) return;
    if (plan->work) table_of(plan)->destroy(plan->work);
    zonal__profile_fini(&plan->profile);
    zonal__fit_destroy(plan->log_phi);
    zonal__sliced_fini(&plan->tables);
    zonal_kernel_destroy(plan->kernel);
    zonal__ranks_destroy(plan->own_ranks);
    zonal__free(plan);
}

/* Of all ranks: where one alone asks for what there is not, the others must not wait for it. */
static zonal_status check_gradient(const zonal_plan *plan, const void *gradient) {
    zonal_status status = ZONAL_OK;
    if (!plan->kernel || !plan->kernel->family->infinite_derivative) return ZONAL_OK;
    if (gradient) status = zonal__family_check_gradient(plan->kernel->family);
    return plan->device->backend->is_host ? zonal__ranks_agree(plan->problem.ranks, status)
                                          : status;
}

zonal_status zonal_plan_execute(zonal_plan *plan, const void *x, double *value, void *gradient) {
    ZONAL_NEED(plan, "plan");
    if (plan->rows > 0) ZONAL_NEED(x, "x");
    ZONAL_NEED(value, "value");
    if (plan->device->backend->is_host) *value = NAN; /* else it is the device's memory */
    ZONAL_TRY(check_gradient(plan, gradient));
    return table_of(plan)->run(plan->work, x, plan->step, value, gradient, 1);
}

void zonal_plan_set_stream(zonal_plan *plan, void *stream) {
    if (plan && table_of(plan)->set_stream) table_of(plan)->set_stream(plan->work, stream);
}

zonal_status zonal_plan_status(zonal_plan *plan) {
    ZONAL_NEED(plan, "plan");
    return table_of(plan)->check ? table_of(plan)->check(plan->work) : ZONAL_OK;
}

void zonal_plan_set_step(zonal_plan *plan, uint32_t step) {
    if (plan) plan->step = step;
}

void zonal_plan_set_device_step(zonal_plan *plan, const uint32_t *step) {
    if (plan) plan->device_step = step;
}

#define INFO_SIZED ZONAL__SIZED(zonal_plan_info, bias)

zonal_status zonal_plan_info_get(const zonal_plan *plan, zonal_plan_info *info) {
    static const zonal_plan_info nothing = ZONAL_PLAN_INFO_INIT;
    ZONAL_NEED(info, "info");
    ZONAL_TRY(zonal__sized_write(INFO_SIZED, plan ? &plan->info : &nothing, info));
    ZONAL_NEED(plan, "plan");
    return ZONAL_OK;
}

zonal_status zonal_plan_describe(const zonal_loss_options *given, int64_t batch, int64_t dim,
                                 zonal_plan_info *info) {
    zonal_loss_options options;
    zonal_plan *plan;
    ZONAL_NEED(info, "info");
    ZONAL_TRY(zonal__sized_write(INFO_SIZED, &(zonal_plan_info)ZONAL_PLAN_INFO_INIT, info));
    ZONAL_NEED(given, "options");
    ZONAL_TRY(zonal__loss_read(given, &options));
    ZONAL_TRY(zonal__plan_prepare(&options, NULL, batch, dim, &plan));
    zonal_status status = zonal_plan_info_get(plan, info);
    zonal_plan_destroy(plan);
    return status;
}

const zonal_plan_info *zonal__plan_info(const zonal_plan *plan) {
    return &plan->info;
}
