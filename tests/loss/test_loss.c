/*
 * Losses and the objective against 60 digits, through every implementation and both precisions;
 * batches of 262144 rows against exact rationals; what is refused; what happens when memory runs
 * out. The allowances are those that zonal/loss.h promises; the largest errors are printed.
 */
#include <math.h>
#include <stdlib.h>

#include "core/random.h"
#include "failing_alloc.h"
#include "measure.h"
#include "test.h"
#include "zonal/loss.h"

enum { GOLDEN_WEIGHTS = 33, PROBES = 4, GUARD = 8 };

typedef struct golden_direction {
    uint64_t seed;
    int stream;
    uint32_t step;
    uint64_t sample;
    int n;
    uint32_t words[4]; /* of block 1 */
    double normal[8], direction[8];
} golden_direction;

typedef struct golden_loss {
    const char *method;
    int batch, dim;
    int kind;         /* of rows: see element */
    double parameter; /* t, band, scale or r; 0: the default */
    double low, high, lambda;
    int flat, estimator, kl_norm, raw, unit, knots, views, global_views, slices;
    uint64_t seed;
    uint32_t step;
    int times_n, normalised; /* 0: the default, else 1 + the option */
    zonal_gain gain;
    double gain_value;
    int n_weights;
    double weights[GOLDEN_WEIGHTS];
    double value; /* D; of an objective, the total */
    double bias, norm, slope;
    double log_p;                                      /* KL: mean log p */
    double invariance, discrepancy, factor, threshold; /* objectives */
    double gradient_norm, probe[PROBES];               /* 0 where there is no gradient */
    double size; /* of the gradient's terms, where they cancel by symmetry */
    int full;    /* 1 + where the gradient begins in golden_gradients; 0: not stored */
} golden_loss;

#include "golden/loss.h"

enum { GOLDEN_LOSSES = sizeof golden_losses / sizeof golden_losses[0] };

/* ---- Rows: the arithmetic of make_loss.py ---- */

enum { MIXED, ORTHONORMAL, THIRD, HALF, NEAR, TWINS, SCALED, UNIT };

static int64_t mixed(int64_t i, int64_t k) {
    return (13 * i + 29 * k + 7 * i * k + 3 * k * k + 11 * i * i) % 97 - 48;
}

static int64_t element(int kind, int64_t i, int64_t k, int64_t d) {
    static const int tetrahedron[4][3] = {{1, 1, 1}, {1, -1, -1}, {-1, 1, -1}, {-1, -1, 1}};
    static const int triangle[3][3] = {{1, -1, 0}, {0, 1, -1}, {-1, 0, 1}};
    switch (kind) {
    case ORTHONORMAL: {
        int odd = (i & k & 1) ^ (i >> 1 & k >> 1 & 1);
        return (1 + 5 * (k / 4) % 7) * (odd ? -1 : 1);
    }
    case THIRD:
    case HALF:
        if (k / 3 >= d / 3) return 0;
        return (1 + 5 * (k / 3) % 7) * (kind == THIRD ? tetrahedron[i][k % 3] : triangle[i][k % 3]);
    case NEAR:
        return 64 * mixed(0, k) + mixed(i + 1, k);
    case TWINS:
        return i == 2 ? -mixed(0, k) : mixed(i == 1 ? 0 : i, k);
    case UNIT:
        if ((k + i) % (d / 4) != 0) return 0;
        return (i * i + 3 * k + i * k / 5) % 3 == 0 ? -8 : 8;
    default:
        return mixed(i, k);
    }
}

/* The rows in the precision asked for; every one of them is exact in float. */
static void *make_rows(int kind, int64_t n, int64_t d, zonal_precision precision) {
    double *x = malloc((size_t)(n * d) * sizeof *x);
    float *f = malloc((size_t)(n * d) * sizeof *f);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < d; k++) {
            int power = kind == SCALED ? (int)(7 * i % 31 - 15) : 0;
            x[i * d + k] = ldexp((double)element(kind, i, k, d), power - 4);
            f[i * d + k] = (float)x[i * d + k];
            CHECK(f[i * d + k] == x[i * d + k]);
        }
    if (precision == ZONAL_PRECISION_FP32) {
        free(x);
        return f;
    }
    free(f);
    return x;
}

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

/* ---- Elements of either precision ---- */

static double read_at(const void *x, int64_t i, zonal_precision precision) {
    return precision == ZONAL_PRECISION_FP32 ? ((const float *)x)[i] : ((const double *)x)[i];
}

static void write_at(void *x, int64_t i, zonal_precision precision, double value) {
    if (precision == ZONAL_PRECISION_FP32)
        ((float *)x)[i] = (float)value;
    else
        ((double *)x)[i] = value;
}

/* ---- The allowances of zonal/loss.h ---- */

static int is_kl(const golden_loss *golden) {
    return strncmp(golden->method, "kl-", 3) == 0;
}

/* What a case can be held to. A float product is off by 6e-8, and psi by psi'(1) times that: under
 * a steep kernel (psi'(1) in the hundreds: degree 64 on the circle, scale 1000) fp32 errors grow
 * in proportion. And between distant rows a narrow kernel has no slope left (1e-14 at d = 256, t =
 * 2/d between orthogonal ones, 1e-111 at d = 2048): a faint gradient like that is the rounding of
 * psi', which is measured by psi'(1). KL is never faint: it works with logarithms. */
typedef enum grade { PLAIN, STEEP, FAINT, GRADES } grade;

static double steepness(const golden_loss *golden, zonal_precision precision) {
    if (precision == ZONAL_PRECISION_DOUBLE || golden->slices || !isfinite(golden->slope)) return 1;
    /* KL sees the slope of log phi, which is phi'(1) at c = 1. */
    return fmax(1, golden->slope * (is_kl(golden) ? golden->norm : 1) / 100);
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

/* The gradient if every pair had the slope psi'(1) and nothing cancelled. */
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
    return golden->slope * 2 / golden->batch * sqrt(inverse);
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

/* A gradient of n elements, filled with NaN, between guards. */
static void *guarded(int64_t n, zonal_precision precision) {
    void *block = malloc((size_t)(n + 2 * GUARD) * sizeof(double));
    for (int64_t i = 0; i < n + 2 * GUARD; i++)
        write_at(block, i, precision, i < GUARD || i >= n + GUARD ? 1234.5 : NAN);
    return block;
}

static void *inside(void *block, zonal_precision precision) {
    return (char *)block +
           GUARD * (precision == ZONAL_PRECISION_FP32 ? sizeof(float) : sizeof(double));
}

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

typedef struct meters {
    measure value[GRADES], gradient[GRADES];
} meters;

static void name_meters(meters *m, const char *what, const char *of) {
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

static void print_meters(const meters *m) {
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
    MEASURE(m, info.slope, golden->slope, 1e-12 * fabs(golden->slope), "%s, slope", where);
    CHECK(info.scratch_bytes > 0 && info.fit_error >= 0 && info.backend);
}

static measure plan_constants = {.name = "constants of plans"};

static void run_case(const golden_loss *golden, zonal_precision precision,
                     zonal_implementation implementation, meters *m) {
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
    meters m = {0};
    char of[40];
    snprintf(of, sizeof of, "%s %s", precision_name[precision],
             implementation_name[implementation]);
    name_meters(&m, "D", of);
    for (int i = 0; i < GOLDEN_LOSSES; i++) {
        const golden_loss *golden = &golden_losses[i];
        /* Left to the plan, only these are not simply pairs. */
        int chosen = implementation != ZONAL_IMPLEMENTATION_AUTO || golden->slices ||
                     offers(golden, ZONAL_IMPLEMENTATION_MOMENTS);
        if (golden->views == 0 && chosen && offers(golden, implementation))
            run_case(golden, precision, implementation, &m);
    }
    print_meters(&m);
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
                          zonal_implementation implementation, meters *m) {
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
    meters both[2] = {0};
    name_meters(&both[0], "objective", "double views");
    name_meters(&both[1], "objective", "fp32 views");
    for (int i = 0; i < GOLDEN_LOSSES; i++) {
        if (golden_losses[i].views == 0) continue;
        for (int precision = ZONAL_PRECISION_DOUBLE; precision <= ZONAL_PRECISION_FP32; precision++)
            for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_REF; k++)
                run_objective(&golden_losses[i], (zonal_precision)precision,
                              (zonal_implementation)k, &both[precision]);
    }
    for (int precision = 0; precision < 2; precision++) print_meters(&both[precision]);
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
            CHECK_CLOSE(parts.gain, strcmp(known[i].method, "kl-heat") ? 4 : 1.15 * parts.threshold,
                        1e-12);
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
                      zonal_precision precision, meters *meter) {
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
        MEASURE(&meter->value[PLAIN], value, want,
                precision == ZONAL_PRECISION_DOUBLE ? 1e-12 * want : 2e-6 * want + 2e-11,
                "%s %d, %s, D = %.3g", method, band, kinds[kind], want);
        MEASURE(&meter->gradient[PLAIN], gradient_error(x, precision, b1, b2, m, excess, gradient),
                0, precision == ZONAL_PRECISION_DOUBLE ? 1e-11 : 1e-5, "%s %d, %s", method, band,
                kinds[kind]);
        zonal_plan_destroy(plan);
    } else {
        free(block);
    }
    free(x);
    free(gradient);
}

static void test_large_batches(void) {
    meters m[2] = {0};
    name_meters(&m[0], "D", "double B=262144");
    name_meters(&m[1], "D", "fp32 B=262144");
    for (int precision = ZONAL_PRECISION_DOUBLE; precision <= ZONAL_PRECISION_FP32; precision++) {
        zonal_precision type = (zonal_precision)precision;
        run_large("mmd-band", 2, 0, 20000, type, &m[precision]);
        run_large("mmd-band", 1, 0, 16, type, &m[precision]);
        run_large("mmd-band", 2, 1, 0, type, &m[precision]);
        run_large("ksd-band", 2, 1, 1000, type, &m[precision]);
        run_large("ksd-band", 2, 2, 0, type, &m[precision]);
    }
    for (int precision = 0; precision < 2; precision++) print_meters(&m[precision]);
}

/* ---- What is refused ---- */

static zonal_loss_options defaults(const char *method) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    CHECK_OK(zonal_loss_defaults(method, &options));
    options.precision = ZONAL_PRECISION_DOUBLE;
    return options;
}

static zonal_status create(zonal_loss_options options, int64_t batch, int64_t dim) {
    zonal_plan *plan = (zonal_plan *)&options; /* must become NULL on failure */
    zonal_status status = zonal_plan_create(&options, batch, dim, &plan);
    CHECK((status == ZONAL_OK) == (plan != NULL));
    zonal_plan_destroy(plan);
    return status;
}

#define BUT(method, field, setting) (changed = defaults(method), changed.field = (setting), changed)

static void test_methods(void) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    int n = 0;
    while (zonal_method_name(n)) {
        CHECK_OK(zonal_loss_defaults(zonal_method_name(n), &options));
        CHECK(options.precision == ZONAL_PRECISION_FP32 && strcmp(options.device, "cpu") == 0);
        int tested = 0;
        for (int i = 0; i < GOLDEN_LOSSES; i++)
            tested += strcmp(golden_losses[i].method, zonal_method_name(n)) == 0;
        CHECK_MSG(tested >= 3, "%s is not among the stored cases", zonal_method_name(n));
        n++;
    }
    CHECK(n == 17);
    CHECK(zonal_method_name(-1) == NULL && zonal_method_name(n) == NULL);
    CHECK_FAILS(zonal_loss_defaults("mmd-haet", &options), ZONAL_ARGUMENT, "'mmd-heat'");
    CHECK_FAILS(zonal_loss_defaults("susregg", &options), ZONAL_ARGUMENT, "'susreg'");
    CHECK_FAILS(zonal_loss_defaults("wasserstein-gaussian", &options), ZONAL_ARGUMENT,
                "there are mmd-heat, mmd-band");
    CHECK_FAILS(zonal_loss_defaults("", &options), ZONAL_ARGUMENT, "unknown method ''");
}

static void test_bad_options(void) {
    const zonal_status bad = ZONAL_ARGUMENT;
    static const double unpositive[3] = {1, 1, 1};
    zonal_loss_options changed = ZONAL_LOSS_OPTIONS_INIT;
    CHECK_FAILS(create(defaults("mmd-heat"), 1, 8), ZONAL_SHAPE, "at least 2 rows, got 1");
    CHECK_FAILS(create(defaults("mmd-heat"), 0, 8), ZONAL_SHAPE, "got 0");
    CHECK_FAILS(create(defaults("mmd-heat"), -5, 8), ZONAL_SHAPE, "got -5");
    CHECK_FAILS(create(defaults("kl-heat"), 2, 8), ZONAL_SHAPE, "KL needs a batch of at least 3");
    CHECK_FAILS(create(defaults("susreg"), 1, 8), ZONAL_SHAPE, "at least 2 rows");
    CHECK_FAILS(create(defaults("mmd-heat"), 8, 1), ZONAL_SHAPE, "from 2 to 4096, got 1");
    CHECK_FAILS(create(defaults("sigreg"), 8, 4097), ZONAL_SHAPE, "got 4097");
    CHECK_FAILS(create(BUT("mmd-heat", kernel.parameter.factor, -1), 8, 8), bad,
                "t must be positive");
    CHECK_FAILS(create(BUT("kl-heat", kernel.parameter.factor, NAN), 8, 8), bad,
                "t must be positive");
    CHECK_FAILS(create(BUT("ksd-heat", kernel.parameter.factor, INFINITY), 8, 8), bad,
                "t must be positive");
    CHECK_FAILS(create(BUT("mmd-band", kernel.parameter.factor, 65), 8, 8), bad,
                "from 1 to 64, got 65");
    CHECK_FAILS(create(BUT("mmd-induced", kernel.parameter.factor, -1), 8, 8), bad,
                "scale must be above 0");
    CHECK_FAILS(create(BUT("mmd-poisson", kernel.parameter.factor, 1), 8, 8), bad,
                "between 0 and 1, got 1");
    CHECK_FAILS(create(BUT("mmd-poisson", kernel.parameter.factor, 1.5), 8, 8), bad, "got 1.5");
    CHECK_FAILS(create(BUT("mmd-chordal", discrepancy, ZONAL_DISCREPANCY_KSD), 8, 8), bad,
                "use mmd-chordal");
    CHECK_FAILS(create(BUT("mmd-chordal", discrepancy, ZONAL_DISCREPANCY_KL), 8, 8), bad,
                "chordal is 0");
    CHECK_FAILS(create(BUT("mmd-band", discrepancy, ZONAL_DISCREPANCY_KL), 8, 8), bad,
                "positive everywhere");
    CHECK_FAILS(create(defaults("mmd-spectrum"), 8, 8), bad, "2 to 4096 weights");
    changed = defaults("kl-spectrum");
    changed.kernel.weights = unpositive;
    changed.kernel.n_weights = 3;
    CHECK_FAILS(create(changed, 8, 8), bad, "positive everywhere");
    CHECK_FAILS(create(BUT("mmd-heat", discrepancy, (zonal_discrepancy)7), 8, 8), bad,
                "no discrepancy 7");
    CHECK_FAILS(create(BUT("mmd-heat", threads, -1), 8, 8), bad, "threads");
    CHECK_FAILS(create(BUT("mmd-heat", precision, ZONAL_PRECISION_TF32), 8, 8), ZONAL_UNSUPPORTED,
                "use double or fp32");
    CHECK_FAILS(create(BUT("mmd-heat", precision, ZONAL_PRECISION_BF16), 8, 8), ZONAL_UNSUPPORTED,
                "bf16");
    CHECK_FAILS(create(BUT("mmd-heat", precision, (zonal_precision)9), 8, 8), bad, "precision 9");
    CHECK_FAILS(create(BUT("mmd-heat", estimator, (zonal_estimator)3), 8, 8), bad, "estimator 3");
    CHECK_FAILS(create(BUT("kl-heat", kl_norm, (zonal_kl_norm)2), 8, 8), bad, "KL norm 2");
    changed = defaults("mmd-heat");
    snprintf(changed.device, sizeof changed.device, "gpu");
    CHECK_FAILS(create(changed, 8, 8), bad, "there is no device gpu");
    memset(changed.device, 'x', sizeof changed.device);
    CHECK_FAILS(create(changed, 8, 8), bad, "has no end");
    CHECK_FAILS(create(BUT("mmd-heat", implementation, (zonal_implementation)5), 8, 8), bad,
                "implementation 5");
    for (int i = 0; zonal_method_name(i); i++) {
        const char *method = zonal_method_name(i);
        if (strstr(method, "band") || strstr(method, "spectrum")) continue;
        CHECK_FAILS(create(BUT(method, implementation, ZONAL_IMPLEMENTATION_MOMENTS), 8, 8), bad,
                    "moments serve");
    }
    changed = BUT("mmd-band", implementation, ZONAL_IMPLEMENTATION_MOMENTS);
    changed.kernel.parameter.factor = 3;
    CHECK_FAILS(create(changed, 8, 8), bad, "moments serve");
    CHECK_FAILS(create(BUT("susreg", implementation, ZONAL_IMPLEMENTATION_PAIRS), 8, 8), bad,
                "has no pairs");
    CHECK_FAILS(create(BUT("susreg", sliced.slices, 0), 8, 8), bad, "slices must be at least 1");
    CHECK_FAILS(create(BUT("sigreg", sliced.knots, 1), 8, 8), bad, "knots must be from 2");
    CHECK_FAILS(create(BUT("sigreg", sliced.knots, 5000), 8, 8), bad, "got 5000");
    CHECK_FAILS(create(BUT("susreg", sliced.low, 5), 8, 8), bad, "low < high");
    CHECK_FAILS(create(BUT("susreg", sliced.low, NAN), 8, 8), bad, "low < high");
    CHECK_FAILS(create(BUT("susreg", sliced.high, INFINITY), 8, 8), bad, "within 1000");
    CHECK_FAILS(create(BUT("susreg", kernel.parameter.factor, NAN), 8, 8), bad, "scale");
    CHECK_FAILS(create(BUT("susreg", kernel.parameter.factor, 1e8), 8, 2), bad, "turn too fast");
}

/* Every kind of bad row, through every operation: the sentence gives its number. */
static void run_bad_rows(const char *method, zonal_implementation implementation,
                         zonal_precision precision) {
    enum { N = 9, D = 5 };
    const struct {
        double value;
        const char *text;
    } kinds[] = {{NAN, "row 6"}, {INFINITY, "row 6"}, {-INFINITY, "row 6"}};
    static const double weights[3] = {1, 0.05, 0.01};
    zonal_loss_options options = defaults(method);
    zonal_plan *plan;
    double value, again;
    void *x = make_rows(MIXED, N, D, precision), *gradient = guarded(N * D, precision);
    int sigreg = options.discrepancy == ZONAL_DISCREPANCY_SIGREG;
    int chordal = options.kernel.family == ZONAL_FAMILY_CHORDAL;
    options.precision = precision;
    options.implementation = implementation;
    options.sliced.slices = 4;
    options.kernel.weights = weights;
    options.kernel.n_weights = 3;
    void *out = chordal ? NULL : inside(gradient, precision);
    if (!CHECK_OK(zonal_plan_create(&options, N, D, &plan))) goto done;
    CHECK_OK(zonal_plan_execute(plan, x, &value, out));
    double saved = read_at(x, 6 * D + 3, precision);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        write_at(x, 6 * D + 3, precision, kinds[k].value);
        again = 0;
        CHECK_FAILS(zonal_plan_execute(plan, x, &again, out), ZONAL_NUMERIC, kinds[k].text);
        CHECK(isnan(again));
    }
    write_at(x, 6 * D + 3, precision, saved);
    double row[D];
    for (int k = 0; k < D; k++) {
        row[k] = read_at(x, 8 * D + k, precision);
        write_at(x, 8 * D + k, precision, 0);
    }
    if (sigreg)
        CHECK_OK(zonal_plan_execute(plan, x, &again, out));
    else
        CHECK_FAILS(zonal_plan_execute(plan, x, &again, out), ZONAL_NUMERIC, "row 8 is zero");
    for (int k = 0; k < D; k++) write_at(x, 8 * D + k, precision, row[k]);
    CHECK_OK(zonal_plan_execute(plan, x, &again, out)); /* the plan lives on */
    CHECK(value == again);
    zonal_plan_destroy(plan);
done:
    free(x);
    free(gradient);
}

static void test_bad_rows(void) {
    for (int i = 0; zonal_method_name(i); i++)
        for (int precision = ZONAL_PRECISION_DOUBLE; precision <= ZONAL_PRECISION_FP32; precision++)
            for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_REF; k++)
                run_bad_rows(zonal_method_name(i), (zonal_implementation)k,
                             (zonal_precision)precision);
}

static void test_chordal_gradient(void) {
    for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_PAIRS; k++) {
        zonal_loss_options options = defaults("mmd-chordal");
        zonal_plan *plan;
        double value = 0, gradient[15], *x = make_rows(MIXED, 5, 3, ZONAL_PRECISION_DOUBLE);
        options.implementation = (zonal_implementation)k;
        if (CHECK_OK(zonal_plan_create(&options, 5, 3, &plan))) {
            CHECK_FAILS(zonal_plan_execute(plan, x, &value, gradient), ZONAL_ARGUMENT,
                        "infinite slope");
            CHECK(isnan(value));
            zonal_plan_destroy(plan);
        }
        free(x);
    }
}

/* Rows declared unit are checked to 1e-3. */
static void test_unit_rows(void) {
    for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_MOMENTS; k++) {
        zonal_loss_options options = defaults("mmd-band");
        zonal_plan *plan;
        double value, *x = make_rows(UNIT, 8, 8, ZONAL_PRECISION_DOUBLE);
        options.unit_rows = 1;
        options.implementation = (zonal_implementation)k;
        if (CHECK_OK(zonal_plan_create(&options, 8, 8, &plan))) {
            CHECK_OK(zonal_plan_execute(plan, x, &value, NULL));
            for (int i = 0; i < 8; i++) x[3 * 8 + i] *= 1.0009;
            CHECK_OK(zonal_plan_execute(plan, x, &value, NULL));
            for (int i = 0; i < 8; i++) x[3 * 8 + i] *= 1.0002;
            CHECK_FAILS(zonal_plan_execute(plan, x, &value, NULL), ZONAL_NUMERIC, "row 3 has norm");
            zonal_plan_destroy(plan);
        }
        free(x);
    }
}

/* Norms neither overflow nor underflow: the loss of c z is the loss of z, its gradient 1/c of it.
 */
static void test_extreme_norms(void) {
    enum { N = 6, D = 5 };
    for (int precision = ZONAL_PRECISION_DOUBLE; precision <= ZONAL_PRECISION_FP32; precision++)
        for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_REF; k++)
            for (int big = 0; big <= 1; big++) {
                zonal_precision type = (zonal_precision)precision;
                zonal_loss_options options = defaults("mmd-heat");
                int power = (big ? 1 : -1) * (precision == ZONAL_PRECISION_FP32 ? 118 : 1000);
                zonal_plan *plan;
                double value, scaled;
                void *x = make_rows(MIXED, N, D, type);
                options.precision = type;
                options.implementation = (zonal_implementation)k;
                if (CHECK_OK(zonal_plan_create(&options, N, D, &plan))) {
                    CHECK_OK(zonal_plan_execute(plan, x, &value, NULL));
                    for (int i = 0; i < N * D; i++)
                        write_at(x, i, type, ldexp(read_at(x, i, type), power));
                    CHECK_OK(zonal_plan_execute(plan, x, &scaled, NULL));
                    CHECK_CLOSE(scaled, value,
                                (precision == ZONAL_PRECISION_FP32 ? 2e-6 : 1e-14) * value);
                    zonal_plan_destroy(plan);
                }
                free(x);
            }
}

static zonal_status create_objective(zonal_objective_options options, int64_t views,
                                     int64_t global_views, int64_t batch, int64_t dim) {
    zonal_objective *objective = (zonal_objective *)&options;
    zonal_status status =
        zonal_objective_create(&options, views, global_views, batch, dim, &objective);
    CHECK((status == ZONAL_OK) == (objective != NULL));
    zonal_objective_destroy(objective);
    return status;
}

static void test_bad_objectives(void) {
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT, changed;
    CHECK_FAILS(zonal_objective_defaults("mmd-hat", &options), ZONAL_ARGUMENT, "'mmd-heat'");
    CHECK_OK(zonal_objective_defaults("kl-heat", &options));
    CHECK(options.lambda == 0.5);
    CHECK_OK(zonal_objective_defaults("mmd-heat", &options));
    CHECK(options.lambda == 0.05);
    CHECK_FAILS(create_objective(options, 0, 1, 8, 8), ZONAL_SHAPE, "at least 1 view, got 0");
    CHECK_FAILS(create_objective(options, 2, 0, 8, 8), ZONAL_SHAPE, "from 1 to all 2 views, got 0");
    CHECK_FAILS(create_objective(options, 2, 3, 8, 8), ZONAL_SHAPE, "got 3");
    CHECK_FAILS(create_objective(options, 2, 2, 1, 8), ZONAL_SHAPE, "at least 2 rows");
    CHECK_FAILS(create_objective(options, 2, 2, 8, 5000), ZONAL_SHAPE, "got 5000");
    const double lambdas[] = {-0.1, 1.1, NAN}, gains[] = {0, -1, NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        changed = options;
        changed.lambda = lambdas[i];
        CHECK_FAILS(create_objective(changed, 2, 2, 8, 8), ZONAL_ARGUMENT, "lambda must be");
    }
    for (int i = 0; i < 4; i++) {
        changed = options;
        changed.gain = ZONAL_GAIN_VALUE;
        changed.gain_value = gains[i];
        CHECK_FAILS(create_objective(changed, 2, 2, 8, 8), ZONAL_ARGUMENT, "gain must be");
    }
    changed = options;
    changed.gain = (zonal_gain)9;
    CHECK_FAILS(create_objective(changed, 2, 2, 8, 8), ZONAL_ARGUMENT, "gain");
    zonal_objective *objective;
    zonal_objective_parts parts;
    float *z = make_rows(MIXED, 16, 8, ZONAL_PRECISION_FP32);
    if (CHECK_OK(zonal_objective_create(&options, 2, 2, 8, 8, &objective))) {
        z[8 * 8 + 3 * 8 + 1] = NAN;
        CHECK_FAILS(zonal_objective_execute(objective, z, &parts, NULL), ZONAL_NUMERIC,
                    "view 1: row 3");
        CHECK(isnan(parts.total) && isnan(parts.invariance) && isnan(parts.discrepancy));
        zonal_objective_destroy(objective);
    }
    free(z);
    zonal_objective_destroy(NULL);
    zonal_plan_destroy(NULL);
}

/* The paper's normaliser is negative at d <= 18: it is used as asked, and the log says so. */
static char log_text[1024];

static void keep_log(void *context, const char *line) {
    (void)context;
    snprintf(log_text, sizeof log_text, "%s", line);
}

static void test_log_of_paper_norm(void) {
    zonal_loss_options options = defaults("kl-heat");
    options.kl_norm = ZONAL_KL_NORM_PAPER;
    zonal_set_log(keep_log, NULL);
    log_text[0] = 0;
    CHECK_OK(create(options, 8, 18));
    CHECK(strstr(log_text, "collapse is rewarded"));
    log_text[0] = 0;
    CHECK_OK(create(options, 8, 19));
    CHECK(log_text[0] == 0);
    zonal_set_log(NULL, NULL);
}

/* ---- Memory ---- */

static zonal_status plan_and_drop(void *context) {
    zonal_plan *plan = NULL;
    zonal_status status = zonal_plan_create(context, 6, 5, &plan);
    CHECK((status == ZONAL_OK) == (plan != NULL));
    zonal_plan_destroy(plan);
    return status;
}

static zonal_status objective_and_drop(void *context) {
    zonal_objective *objective = NULL;
    zonal_status status = zonal_objective_create(context, 3, 2, 6, 5, &objective);
    CHECK((status == ZONAL_OK) == (objective != NULL));
    zonal_objective_destroy(objective);
    return status;
}

static void test_memory(void) {
    static const double weights[3] = {1, 0.05, 0.01};
    for (int i = 0; zonal_method_name(i); i++)
        for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_MOMENTS; k++) {
            zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
            const char *method = zonal_method_name(i);
            int moments = strncmp(method, "kl", 2) != 0 &&
                          (strstr(method, "band") || strstr(method, "spectrum"));
            CHECK_OK(zonal_objective_defaults(method, &options));
            if (k == ZONAL_IMPLEMENTATION_MOMENTS && !moments) continue;
            if (k == ZONAL_IMPLEMENTATION_PAIRS && options.loss.sliced.slices) continue;
            options.loss.implementation = (zonal_implementation)k;
            options.loss.sliced.slices = 3;
            options.loss.kernel.weights = weights;
            options.loss.kernel.n_weights = 3;
            if (options.loss.kernel.family == ZONAL_FAMILY_HEAT)
                options.loss.kernel.parameter.factor = 0.5;
            test_every_allocation(method, plan_and_drop, &options.loss);
            if (k <= ZONAL_IMPLEMENTATION_REF)
                test_every_allocation(method, objective_and_drop, &options);
        }
}

/* Executing takes no memory: the allocator may be dead. */
static void test_execution_allocates_nothing(void) {
    static const double weights[3] = {1, 0.05, 0.01};
    for (int i = 0; zonal_method_name(i); i++) {
        zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
        zonal_objective *objective;
        zonal_objective_parts parts;
        void *z = make_rows(MIXED, 18, 5, ZONAL_PRECISION_FP32),
             *gradient = malloc(18 * 5 * sizeof(float));
        CHECK_OK(zonal_objective_defaults(zonal_method_name(i), &options));
        options.loss.sliced.slices = 3;
        options.loss.kernel.weights = weights;
        options.loss.kernel.n_weights = 3;
        failing_alloc_install(-1, 0);
        if (CHECK_OK(zonal_objective_create(&options, 3, 2, 6, 5, &objective))) {
            int64_t before = failing_alloc_calls();
            int chordal = options.loss.kernel.family == ZONAL_FAMILY_CHORDAL;
            CHECK_OK(zonal_objective_execute(objective, z, &parts, chordal ? NULL : gradient));
            CHECK(failing_alloc_calls() == before);
            zonal_objective_destroy(objective);
        }
        CHECK(failing_alloc_remove() == 0);
        free(z);
        free(gradient);
    }
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
    {"methods", test_methods},
    {"bad options", test_bad_options},
    {"bad rows", test_bad_rows},
    {"chordal has no gradient", test_chordal_gradient},
    {"unit rows", test_unit_rows},
    {"extreme norms", test_extreme_norms},
    {"bad objectives", test_bad_objectives},
    {"paper's normaliser", test_log_of_paper_norm},
    {"memory", test_memory},
    {"execution allocates nothing", test_execution_allocates_nothing},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
