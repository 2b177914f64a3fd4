/*
 * Losses and the objective against 60 digits, through every implementation and both precisions;
 * batches of 262144 rows against exact rationals. What is refused is in test_loss_contract.c. The
 * allowances are those that zonal/loss.h promises; the largest errors are printed.
 */
#include "core/random.h"
#include "loss_case.h"
#include "measure.h"

/* ---- Plans for a stored case ---- */

static zonal_loss_options options_of(const golden_loss *golden) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    CHECK_OK(zonal_loss_defaults(golden->method, &options));
    if (options.kernel.family == ZONAL_FAMILY_SPECTRUM) {
        options.kernel.weights = golden->weights;
        options.kernel.n_weights = golden->n_weights;
    } else {
        options.kernel.parameter.factor = golden->parameter;
    }
    options.kernel.without_multiplicity = golden->flat;
    options.estimator = (zonal_estimator)golden->estimator;
    options.kl_norm = (zonal_kl_norm)golden->kl_norm;
    options.raw_value = golden->raw;
    options.unit_rows = golden->unit;
    if (golden->slices) {
        options.sliced.slices = golden->slices;
        options.sliced.seed = golden->seed;
        if (golden->knots) options.sliced.knots = golden->knots;
        if (golden->low != 0 || golden->high != 0) {
            options.sliced.low = golden->low;
            options.sliced.high = golden->high;
        }
        if (golden->times_n) options.sliced.times_n = golden->times_n - 1;
        if (golden->normalised) options.sliced.collapse_normalised = golden->normalised - 1;
    }
    return options;
}

static int degree_of(const golden_loss *golden) {
    if (strstr(golden->method, "spectrum")) return golden->n_weights - 1;
    if (!strstr(golden->method, "band")) return 0;
    return golden->parameter == 0 ? 2 : (int)golden->parameter;
}

/* Whether the plan of a case can be asked for this implementation. */
static int offers(const golden_loss *golden, zonal_implementation implementation) {
    if (implementation == ZONAL_IMPLEMENTATION_PAIRS) return !golden->slices;
    if (implementation != ZONAL_IMPLEMENTATION_MOMENTS) return 1;
    return golden->method[0] != 'k' || golden->method[1] != 'l'
               ? degree_of(golden) == 1 || degree_of(golden) == 2
               : 0;
}

static const char *const implementation_name[] = {"auto", "ref", "pairs", "moments"};
static const char *const precision_name[] = {"double", "fp32"};

static const char *name_of(const golden_loss *golden, int precision, int implementation) {
    static char name[128];
    snprintf(name, sizeof name, "case %d: %s(%g) B=%d d=%d rows %d, %s %s",
             (int)(golden - golden_losses), golden->method, golden->parameter, golden->batch,
             golden->dim, golden->kind, precision_name[precision],
             implementation_name[implementation]);
    return name;
}

/* ---- The allowances of zonal/loss.h ---- */

static int is_kl(const golden_loss *golden) {
    return strncmp(golden->method, "kl-", 3) == 0;
}

/* What a case can be held to: the list in zonal/loss.h of what the plain bounds do not cover.
 *   U          value_allowance: D can be 0 there, and is held to the larger of |D| and 1/B; so is
 *              V under a steep kernel
 *   symmetry   gradient_allowance: golden->size, stored where the gradient is below 1e-30 of it
 *   FAINT      between distant rows a narrow kernel has no derivative left (1e-14 at d = 256,
 *              t = 2/d between orthogonal ones, 1e-111 at d = 2048), and what is left is the
 *              rounding of psi', measured by psi'(1). KL works with logarithms and is never faint
 *   STEEP      fp32 under psi'(1) in the hundreds (degree 64 on the circle, scale 1000)
 * Of several tight clusters in fp32 there is no case here. */
typedef enum grade { PLAIN, STEEP, FAINT, GRADES } grade;

static double steepness(const golden_loss *golden, zonal_precision precision) {
    if (precision == ZONAL_PRECISION_DOUBLE || golden->slices || !isfinite(golden->derivative))
        return 1;
    /* KL sees the derivative of log phi, which is phi'(1) at c = 1. */
    return fmax(1, golden->derivative * (is_kl(golden) ? golden->norm : 1) / 100);
}

static double value_allowance(const golden_loss *golden, zonal_precision precision) {
    double unit = golden->raw ? fabs(golden->norm) : 1; /* what D = 1 is worth */
    double size = fabs(golden->value);
    /* Without its diagonal D can be 0: what it was before 1/B was taken off counts. */
    if (golden->estimator == ZONAL_ESTIMATOR_U) size = fmax(size, unit / golden->batch);
    if (is_kl(golden)) size = unit * (1 + fabs(golden->log_p / golden->norm));
    if (precision == ZONAL_PRECISION_DOUBLE) return 1e-12 * size;
    /* The rounding of steep pairs does not shrink with a D in which pairs and diagonal cancel. */
    if (steepness(golden, precision) > 1 && !is_kl(golden)) size = fmax(size, unit / golden->batch);
    return 2e-6 * steepness(golden, precision) * size + 2e-11 * unit;
}

/* The gradient if every pair had the derivative psi'(1) and nothing cancelled. */
static double largest_gradient(const golden_loss *golden, zonal_precision precision,
                               const void *x) {
    double inverse = 0;
    if (is_kl(golden) || golden->slices || golden->views) return 0;
    for (int64_t i = 0; i < golden->batch; i++) {
        double square = 0;
        for (int64_t k = 0; k < golden->dim; k++)
            square += pow(read_at(x, i * golden->dim + k, precision), 2);
        inverse += 1 / square;
    }
    return golden->derivative * 2 / golden->batch * sqrt(inverse);
}

static double gradient_allowance(const golden_loss *golden, zonal_precision precision,
                                 const void *x, grade *kind) {
    double norm = fmax(golden->gradient_norm, golden->size), steep = steepness(golden, precision);
    double own = precision == ZONAL_PRECISION_DOUBLE ? 1e-11 * norm : 1e-5 * steep * norm;
    double floor = largest_gradient(golden, precision, x) *
                   (precision == ZONAL_PRECISION_DOUBLE ? 1e-16 : 1e-15);
    *kind = floor > own ? FAINT : steep > 1 ? STEEP : PLAIN;
    return *kind == FAINT ? floor : own;
}

/* ---- Running a plan ---- */

/* Checks the guards, copies the gradient out as doubles and frees the block. */
static void take_gradient(void *block, int64_t n, zonal_precision precision, double *out) {
    for (int64_t i = 0; i < GUARD; i++)
        CHECK(read_at(block, i, precision) == 1234.5 &&
              read_at(block, n + GUARD + i, precision) == 1234.5);
    for (int64_t i = 0; i < n; i++) out[i] = read_at(block, i + GUARD, precision);
    free(block);
}

static int probe_sign(int64_t at, int probe) {
    uint64_t h = (uint64_t)(at + 1) * (2654435761u + 2 * (uint64_t)probe * 2246822519u);
    return h >> 31 & 1 ? -1 : 1;
}

static double probe_of(const double *gradient, int64_t n, int probe) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += probe_sign(i, probe) * gradient[i];
    return sum;
}

typedef struct measures {
    measure value[GRADES], gradient[GRADES];
} measures;

static void name_measures(measures *m, const char *what, const char *of) {
    static char names[16][2 * GRADES][80];
    static int used;
    static const char *const grades[] = {"", ", steep", ", faint"};
    for (int g = 0; g < GRADES; g++) {
        char *value = names[used % 16][g], *gradient = names[used % 16][GRADES + g];
        snprintf(value, sizeof names[0][0], "%s, %s%s", what, of, grades[g]);
        snprintf(gradient, sizeof names[0][0], "gradient, %s%s", of, grades[g]);
        m->value[g].name = value;
        m->gradient[g].name = gradient;
    }
    used++;
}

static void print_measures(const measures *m) {
    for (int g = 0; g < GRADES; g++) {
        if (g == PLAIN || m->value[g].cases) measure_print(&m->value[g]);
        if (g == PLAIN || m->gradient[g].cases) measure_print(&m->gradient[g]);
    }
}

/* Compares with what is stored: the norm, the probes and all elements where they are there. */
static void check_gradient(const golden_loss *golden, int64_t n, const double *gradient,
                           double allowed, const char *where, measure *m) {
    double square = 0;
    for (int64_t i = 0; i < n; i++) square += gradient[i] * gradient[i];
    MEASURE(m, sqrt(square), golden->gradient_norm, allowed, "%s, norm", where);
    for (int p = 0; p < PROBES; p++)
        MEASURE(m, probe_of(gradient, n, p), golden->probe[p], allowed, "%s, probe %d", where, p);
    if (golden->full)
        MEASURE(m, measure_distance(n, gradient, golden_gradients + golden->full - 1), 0, allowed,
                "%s", where);
}

static void check_info(const golden_loss *golden, const zonal_plan *plan, const char *where,
                       measure *m) {
    zonal_plan_info info = ZONAL_PLAN_INFO_INIT;
    zonal_plan_info_get(plan, &info);
    MEASURE(m, info.bias, golden->bias, 1e-12 * fabs(golden->bias), "%s, bias", where);
    MEASURE(m, info.norm, golden->norm, 1e-12 * fabs(golden->norm), "%s, norm", where);
    MEASURE(m, info.derivative, golden->derivative, 1e-12 * fabs(golden->derivative),
            "%s, derivative", where);
    CHECK(info.scratch_bytes > 0 && info.fit_error >= 0 && info.backend);
}

static measure plan_constants = {.name = "constants of plans"};

static void run_case(const golden_loss *golden, zonal_precision precision,
                     zonal_implementation implementation, measures *m) {
    int64_t n = (int64_t)golden->batch * golden->dim;
    const char *where = name_of(golden, precision, implementation);
    int with_gradient = strstr(golden->method, "chordal") == NULL;
    zonal_loss_options options = options_of(golden);
    zonal_plan *plan;
    double value, alone, *gradient = malloc((size_t)n * sizeof *gradient);
    void *x = make_rows(golden->kind, golden->batch, golden->dim, precision);
    void *block = guarded(n, precision);
    options.precision = precision;
    options.implementation = implementation;
    zonal_status status = zonal_plan_create(&options, golden->batch, golden->dim, &plan);
    if (CHECK_MSG(status == ZONAL_OK, "%s: %s", where, zonal_last_error()->message)) {
        zonal_plan_set_step(plan, golden->step);
        check_info(golden, plan, where, &plan_constants);
        status =
            zonal_plan_execute(plan, x, &value, with_gradient ? inside(block, precision) : NULL);
        CHECK_MSG(status == ZONAL_OK, "%s: %s", where, zonal_last_error()->message);
        take_gradient(block, n, precision, gradient);
        grade kind = steepness(golden, precision) > 1 ? STEEP : PLAIN;
        MEASURE(&m->value[kind], value, golden->value, value_allowance(golden, precision), "%s",
                where);
        if (with_gradient) {
            grade of_gradient;
            double allowed = gradient_allowance(golden, precision, x, &of_gradient);
            check_gradient(golden, n, gradient, allowed, where, &m->gradient[of_gradient]);
        }
        CHECK_OK(zonal_plan_execute(plan, x, &alone, NULL));
        MEASURE(&m->value[kind], alone, golden->value, value_allowance(golden, precision),
                "%s, without gradient", where);
        zonal_plan_destroy(plan);
    } else {
        free(block);
    }
    free(x);
    free(gradient);
}

static void run_all(zonal_precision precision, zonal_implementation implementation) {
    measures m = {0};
    char of[40];
    snprintf(of, sizeof of, "%s %s", precision_name[precision],
             implementation_name[implementation]);
    name_measures(&m, "D", of);
    for (int i = 0; i < GOLDEN_LOSSES; i++) {
        const golden_loss *golden = &golden_losses[i];
        /* Left to the plan, only these are not simply pairs. */
        int chosen = implementation != ZONAL_IMPLEMENTATION_AUTO || golden->slices ||
                     offers(golden, ZONAL_IMPLEMENTATION_MOMENTS);
        if (golden->views == 0 && chosen && offers(golden, implementation))
            run_case(golden, precision, implementation, &m);
    }
    print_measures(&m);
}

static void test_double_ref(void) {
    run_all(ZONAL_PRECISION_DOUBLE, ZONAL_IMPLEMENTATION_REF);
    measure_print(&plan_constants);
}

static void test_double_pairs(void) {
    run_all(ZONAL_PRECISION_DOUBLE, ZONAL_IMPLEMENTATION_PAIRS);
}

static void test_double_moments(void) {
    run_all(ZONAL_PRECISION_DOUBLE, ZONAL_IMPLEMENTATION_MOMENTS);
}

static void test_double_auto(void) {
    run_all(ZONAL_PRECISION_DOUBLE, ZONAL_IMPLEMENTATION_AUTO);
}

static void test_fp32_ref(void) {
    run_all(ZONAL_PRECISION_FP32, ZONAL_IMPLEMENTATION_REF);
}

static void test_fp32_pairs(void) {
    run_all(ZONAL_PRECISION_FP32, ZONAL_IMPLEMENTATION_PAIRS);
}

static void test_fp32_moments(void) {
    run_all(ZONAL_PRECISION_FP32, ZONAL_IMPLEMENTATION_MOMENTS);
}

static void test_fp32_auto(void) {
    run_all(ZONAL_PRECISION_FP32, ZONAL_IMPLEMENTATION_AUTO);
}

/* ---- Random numbers ---- */

static void test_directions(void) {
    static measure normals = {.name = "normal numbers"}, directions = {.name = "directions"};
    for (size_t i = 0; i < sizeof golden_directions / sizeof golden_directions[0]; i++) {
        const golden_direction *golden = &golden_directions[i];
        zonal__random random = {golden->seed, (uint8_t)golden->stream, golden->step};
        uint32_t words[4];
        double x[8];
        zonal__random_words(&random, golden->sample, 1, words);
        CHECK(memcmp(words, golden->words, sizeof words) == 0);
        zonal__random_normal(&random, golden->sample, golden->n, x);
        for (int k = 0; k < golden->n; k++)
            MEASURE(&normals, x[k], golden->normal[k], 1e-15 * fmax(1, fabs(golden->normal[k])),
                    "draw %d, element %d", (int)i, k);
        zonal__random_direction(&random, golden->sample, golden->n, x);
        for (int k = 0; k < golden->n; k++)
            MEASURE(&directions, x[k], golden->direction[k], 1e-15, "draw %d, element %d", (int)i,
                    k);
    }
    measure_print(&normals);
    measure_print(&directions);
}

/* ---- The objective ---- */

static zonal_objective_options objective_options_of(const golden_loss *golden) {
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    CHECK_OK(zonal_objective_defaults(golden->method, &options));
    options.loss = options_of(golden);
    if (golden->lambda != 0) options.lambda = golden->lambda;
    options.gain = golden->gain;
    options.gain_value = golden->gain_value;
    return options;
}

static void run_objective(const golden_loss *golden, zonal_precision precision,
                          zonal_implementation implementation, measures *m) {
    int64_t rows = (int64_t)golden->views * golden->batch, n = rows * golden->dim;
    const char *where = name_of(golden, precision, implementation);
    zonal_objective_options options = objective_options_of(golden);
    zonal_objective_parts parts, alone;
    zonal_objective *objective;
    double *gradient = malloc((size_t)n * sizeof *gradient);
    void *z = make_rows(golden->kind, rows, golden->dim, precision);
    void *block = guarded(n, precision);
    options.loss.precision = precision;
    options.loss.implementation = implementation;
    zonal_status status = zonal_objective_create(&options, golden->views, golden->global_views,
                                                 golden->batch, golden->dim, &objective);
    if (CHECK_MSG(status == ZONAL_OK, "%s: %s", where, zonal_last_error()->message)) {
        double relative = precision == ZONAL_PRECISION_DOUBLE ? 1e-12 : 2e-6;
        zonal_objective_set_step(objective, golden->step);
        CHECK_OK(zonal_objective_execute(objective, z, &parts, inside(block, precision)));
        take_gradient(block, n, precision, gradient);
        CHECK_OK(zonal_objective_execute(objective, z, &alone, NULL));
        CHECK_CLOSE(alone.total, parts.total, relative * fabs(parts.total));
        const double got[] = {parts.total, parts.invariance, parts.discrepancy};
        const double want[] = {golden->value, golden->invariance, golden->discrepancy};
        for (int k = 0; k < 3; k++)
            MEASURE(&m->value[PLAIN], got[k], want[k],
                    relative * fmax(fabs(want[k]), is_kl(golden)), "%s, part %d", where, k);
        CHECK_CLOSE(parts.gain, golden->factor, 1e-12 * golden->factor);
        CHECK_CLOSE(parts.threshold, golden->threshold, 1e-12 * golden->threshold);
        grade kind;
        double allowed = gradient_allowance(golden, precision, z, &kind);
        check_gradient(golden, n, gradient, allowed, where, &m->gradient[kind]);
        zonal_objective_destroy(objective);
    } else {
        free(block);
    }
    free(z);
    free(gradient);
}

static void test_objective(void) {
    measures both[2] = {0};
    name_measures(&both[0], "objective", "double views");
    name_measures(&both[1], "objective", "fp32 views");
    for (int i = 0; i < GOLDEN_LOSSES; i++) {
        if (golden_losses[i].views == 0) continue;
        for (int precision = ZONAL_PRECISION_DOUBLE; precision <= ZONAL_PRECISION_FP32; precision++)
            for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_REF; k++)
                run_objective(&golden_losses[i], (zonal_precision)precision,
                              (zonal_implementation)k, &both[precision]);
    }
    for (int precision = 0; precision < 2; precision++) print_measures(&both[precision]);
}

/* f* at d = 256 with two views, to the digits that experiments were planned with. */
static void test_thresholds(void) {
    const struct {
        const char *method;
        double threshold;
    } known[] = {{"mmd-heat", 4.66},
                 {"ksd-heat", 3.61},
                 {"mmd-band", 4.75},
                 {"mmd-induced", 4.02},
                 {"kl-heat", 6.08}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
        zonal_objective *objective;
        zonal_objective_parts parts;
        void *z = make_rows(MIXED, 8, 256, ZONAL_PRECISION_FP32);
        CHECK_OK(zonal_objective_defaults(known[i].method, &options));
        if (CHECK_OK(zonal_objective_create(&options, 2, 2, 4, 256, &objective))) {
            CHECK_OK(zonal_objective_execute(objective, z, &parts, NULL));
            CHECK_CLOSE(parts.threshold, known[i].threshold, 0.005);
            zonal_objective_destroy(objective);
        }
        free(z);
    }
}

/* ---- Large batches by moments ---- */

enum { LARGE = 262144, LARGE_DIM = 16 };

/* Rows with exactly representable elements, so that sums of their products are exact in double and
 * m and M are known rationals: the axes +-e_k, so many of each, turned by the Householder
 * reflection I - (2/d) 1 1^T (whose elements are exact for d a power of two); or four elements of
 * +-1/2. The first "tilt" rows all stand on one axis. */
static double exact_element(int halves, int64_t i, int64_t k, int64_t tilt) {
    if (i < tilt) i = 0;
    if (halves) {
        if ((k + i) % 4 != (i / 4) % 4) return 0;
        return (i * i + k + i * k / 5) % 3 == 0 ? -0.5 : 0.5;
    }
    double sign = (i / LARGE_DIM) % 3 ? 1 : -1;
    return sign * ((k == i % LARGE_DIM) - 2.0 / LARGE_DIM);
}

/* Or points drawn uniformly, rounded to float: then m and M are sums in long double. */
static void *make_large(int kind, int64_t tilt, zonal_precision precision) {
    void *x = malloc((size_t)LARGE * LARGE_DIM * sizeof(double));
    zonal__random random = {20260615, ZONAL__STREAM_TEST, 0};
    for (int64_t i = 0; i < LARGE; i++) {
        double row[LARGE_DIM];
        if (kind == 2)
            zonal__random_direction(&random, (uint64_t)i, LARGE_DIM, row);
        else
            for (int k = 0; k < LARGE_DIM; k++) row[k] = exact_element(kind, i, k, tilt);
        for (int k = 0; k < LARGE_DIM; k++)
            write_at(x, i * LARGE_DIM + k, precision, kind == 2 ? (float)row[k] : row[k]);
    }
    return x;
}

/* x/|x| of row i, and |x|. */
static long double unit_row(const void *x, int64_t i, zonal_precision precision, long double *row) {
    long double square = 0;
    for (int k = 0; k < LARGE_DIM; k++) {
        row[k] = read_at(x, i * LARGE_DIM + k, precision);
        square += row[k] * row[k];
    }
    long double norm = sqrtl(square);
    for (int k = 0; k < LARGE_DIM; k++) row[k] /= norm;
    return norm;
}

/* m and M - I/d; returns b_1 |m|^2 + b_2 d/(d-1) |M - I/d|^2. */
static double moments_of(const void *x, zonal_precision precision, double b1, double b2,
                         long double *m, long double (*excess)[LARGE_DIM]) {
    long double row[LARGE_DIM], value = 0, d = LARGE_DIM;
    for (int k = 0; k < LARGE_DIM; k++)
        for (int l = m[k] = 0; l < LARGE_DIM; l++) excess[k][l] = 0;
    for (int64_t i = 0; i < LARGE; i++) {
        unit_row(x, i, precision, row);
        for (int k = 0; k < LARGE_DIM; k++) {
            m[k] += row[k];
            for (int l = 0; l <= k; l++) excess[k][l] += row[k] * row[l];
        }
    }
    for (int k = 0; k < LARGE_DIM; k++) {
        m[k] /= LARGE;
        value += b1 * m[k] * m[k];
        for (int l = 0; l <= k; l++) {
            excess[l][k] = excess[k][l] = excess[k][l] / LARGE - (k == l ? 1 / d : 0);
            value += b2 * d / (d - 1) * excess[k][l] * excess[k][l] * (k == l ? 1 : 2);
        }
    }
    return (double)value;
}

/* The distance of the gradient from 2/B (b_1 m + 2 b_2 d/(d-1) (M - I/d) x) made tangent, over the
 * norm of that. */
static double gradient_error(const void *x, zonal_precision precision, double b1, double b2,
                             const long double *m, long double (*excess)[LARGE_DIM],
                             const double *gradient) {
    long double row[LARGE_DIM], g[LARGE_DIM], error = 0, size = 0, d = LARGE_DIM;
    for (int64_t i = 0; i < LARGE; i++) {
        long double norm = unit_row(x, i, precision, row), along = 0;
        for (int k = 0; k < LARGE_DIM; k++) {
            long double sum = 0;
            for (int l = 0; l < LARGE_DIM; l++) sum += excess[k][l] * row[l];
            g[k] = 2 * (b1 * m[k] + 2 * b2 * d / (d - 1) * sum) / LARGE;
            along += g[k] * row[k];
        }
        for (int k = 0; k < LARGE_DIM; k++) {
            long double want = (g[k] - along * row[k]) / norm;
            long double off = gradient[i * LARGE_DIM + k] - want;
            error += off * off;
            size += want * want;
        }
    }
    return (double)sqrtl(error / size);
}

static void run_large(const char *method, int band, int kind, int64_t tilt,
                      zonal_precision precision, measures *measured) {
    static const char *const kinds[] = {"axes", "halves", "uniform"};
    static long double m[LARGE_DIM], excess[LARGE_DIM][LARGE_DIM];
    const int64_t n = (int64_t)LARGE * LARGE_DIM;
    double value, *gradient = malloc((size_t)n * sizeof *gradient);
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan *plan;
    void *x = make_large(kind, tilt, precision), *block = guarded(n, precision);
    double d = LARGE_DIM, b1, b2;
    CHECK_OK(zonal_loss_defaults(method, &options));
    options.kernel.parameter.factor = band;
    options.precision = precision;
    int ksd = options.discrepancy == ZONAL_DISCREPANCY_KSD;
    b1 = d * (ksd ? d - 1 : 1); /* N_l, times L_l for KSD */
    b2 = band == 2 ? (d + 2) * (d - 1) / 2 * (ksd ? 2 * d : 1) : 0;
    double sum = b1 + b2, want = moments_of(x, precision, b1 /= sum, b2 /= sum, m, excess);
    if (CHECK_OK(zonal_plan_create(&options, LARGE, LARGE_DIM, &plan))) {
        zonal_plan_info info = ZONAL_PLAN_INFO_INIT;
        zonal_plan_info_get(plan, &info);
        CHECK(info.implementation == ZONAL_IMPLEMENTATION_MOMENTS);
        CHECK(info.scratch_bytes < (size_t)n * 24 + (1 << 24)); /* O(B d + d^2), not O(B^2) */
        CHECK_OK(zonal_plan_execute(plan, x, &value, inside(block, precision)));
        take_gradient(block, n, precision, gradient);
        MEASURE(&measured->value[PLAIN], value, want,
                precision == ZONAL_PRECISION_DOUBLE ? 1e-12 * want : 2e-6 * want + 2e-11,
                "%s %d, %s, D = %.3g", method, band, kinds[kind], want);
        MEASURE(&measured->gradient[PLAIN],
                gradient_error(x, precision, b1, b2, m, excess, gradient), 0,
                precision == ZONAL_PRECISION_DOUBLE ? 1e-11 : 1e-5, "%s %d, %s", method, band,
                kinds[kind]);
        zonal_plan_destroy(plan);
    } else {
        free(block);
    }
    free(x);
    free(gradient);
}

static void test_large_batches(void) {
    measures m[2] = {0};
    name_measures(&m[0], "D", "double B=262144");
    name_measures(&m[1], "D", "fp32 B=262144");
    for (int precision = ZONAL_PRECISION_DOUBLE; precision <= ZONAL_PRECISION_FP32; precision++) {
        zonal_precision type = (zonal_precision)precision;
        run_large("mmd-band", 2, 0, 20000, type, &m[precision]);
        run_large("mmd-band", 1, 0, 16, type, &m[precision]);
        run_large("mmd-band", 2, 1, 0, type, &m[precision]);
        run_large("ksd-band", 2, 1, 1000, type, &m[precision]);
        run_large("ksd-band", 2, 2, 0, type, &m[precision]);
    }
    for (int precision = 0; precision < 2; precision++) print_measures(&m[precision]);
}

static const test_case tests[] = {
    {"directions", test_directions},
    {"double, reference", test_double_ref},
    {"double, pairs", test_double_pairs},
    {"double, moments", test_double_moments},
    {"double, as chosen", test_double_auto},
    {"fp32, reference", test_fp32_ref},
    {"fp32, pairs", test_fp32_pairs},
    {"fp32, moments", test_fp32_moments},
    {"fp32, as chosen", test_fp32_auto},
    {"objective", test_objective},
    {"collapse thresholds", test_thresholds},
    {"262144 rows by moments", test_large_batches},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
