/*
 * Kernels: profiles, derivatives, logarithms and constants against 50 digits and more, what is
 * refused, and what happens when memory runs out. The allowances are those that zonal/kernel.h
 * promises; the largest errors are printed.
 */
#include <math.h>
#include <stdlib.h>

#include "failing_alloc.h"
#include "measure.h"
#include "test.h"
#include "zonal/kernel.h"

enum { GOLDEN_POINTS = 9, GOLDEN_WEIGHTS = 6 };
static const double NONE_MARK = -1e308;
#define NONE (-1e308)

typedef struct golden_kernel {
    zonal_family family;
    int dim;
    double parameter; /* t, band, scale, r; the number of weights for a spectrum */
    double weights[GOLDEN_WEIGHTS];
    struct {
        double log_bias, mmd_norm, derivative, curvature, ksd_norm, log_area, kl_norm, weight1,
            weight2;
    } constants;
    double phi[GOLDEN_POINTS], first[GOLDEN_POINTS], second[GOLDEN_POINTS];
    double log_phi[GOLDEN_POINTS]; /* NONE below 1e-250 */
    int positive;
    int flat; /* without multiplicities */
} golden_kernel;

#include "golden/kernel.h"

enum { GOLDEN_KERNELS = sizeof golden_kernels / sizeof golden_kernels[0] };

static zonal_kernel_spec spec_of(const golden_kernel *golden) {
    zonal_kernel_spec spec = {.family = golden->family,
                              .without_multiplicity = golden->flat,
                              .log_profile = golden->positive};
    if (golden->family == ZONAL_FAMILY_SPECTRUM) {
        spec.weights = golden->weights;
        spec.n_weights = (int)golden->parameter;
    } else {
        spec.parameter.factor = golden->parameter;
    }
    return spec;
}

static const char *name_of(const golden_kernel *golden) {
    static char name[80];
    snprintf(name, sizeof name, "%s(%g) d=%d%s", zonal_family_name(golden->family),
             golden->parameter, golden->dim, golden->flat ? " flat" : "");
    return name;
}

/* Every kernel of the table is made once. */
static zonal_kernel *made[GOLDEN_KERNELS];

static const zonal_kernel *kernel_of(int i) {
    if (!made[i]) {
        zonal_kernel_spec spec = spec_of(&golden_kernels[i]);
        zonal_status status = zonal_kernel_create(&spec, golden_kernels[i].dim, &made[i]);
        CHECK_MSG(status == ZONAL_OK, "%s: %s", name_of(&golden_kernels[i]),
                  zonal_last_error()->message);
    }
    return made[i];
}

static void test_profiles(void) {
    static measure values[3] = {{.name = "phi"}, {.name = "phi'"}, {.name = "phi''"}};
    for (int i = 0; i < GOLDEN_KERNELS; i++) {
        const golden_kernel *golden = &golden_kernels[i];
        const zonal_kernel *kernel = kernel_of(i);
        const double *want[3] = {golden->phi, golden->first, golden->second};
        double one[3] = {1, golden->constants.derivative, golden->constants.curvature};
        double end = 1, got[GOLDEN_POINTS];
        if (!kernel) continue;
        for (int order = 0; order < 3; order++) {
            measure *m = &values[order];
            if (!CHECK_OK(zonal_kernel_eval(kernel, order, GOLDEN_POINTS, golden_cosines, got)))
                return;
            for (int k = 0; k < GOLDEN_POINTS; k++) {
                /* Chordal has no finite value at c = 1 to be measured by: its own is taken. */
                double size = isinf(one[order]) ? fabs(want[order][k]) : one[order];
                MEASURE(m, got[k], want[order][k], 1e-13 * size, "%s, c = %g", name_of(golden),
                        golden_cosines[k]);
            }
            if (!CHECK_OK(zonal_kernel_eval(kernel, order, 1, &end, got))) return;
            MEASURE(m, got[0], one[order], 1e-13 * one[order], "%s, c = 1", name_of(golden));
        }
    }
    for (int order = 0; order < 3; order++) measure_print(&values[order]);
}

static void test_logarithms(void) {
    static measure values = {.name = "log phi"};
    for (int i = 0; i < GOLDEN_KERNELS; i++) {
        const golden_kernel *golden = &golden_kernels[i];
        const zonal_kernel *kernel = golden->positive ? kernel_of(i) : NULL;
        double got[GOLDEN_POINTS], end = 1;
        if (!kernel) continue;
        if (!CHECK_OK(zonal_kernel_log_eval(kernel, GOLDEN_POINTS, golden_cosines, got))) return;
        for (int k = 0; k < GOLDEN_POINTS; k++) {
            double want = golden->log_phi[k];
            if (want == NONE_MARK) {
                /* Continued by the tangent: phi is below 1e-250 and still falls. */
                CHECK_MSG(got[k] < -575 && isfinite(got[k]) && got[k] < got[k + 1],
                          "%s, c = %g: log phi = %g", name_of(golden), golden_cosines[k], got[k]);
                continue;
            }
            MEASURE(&values, got[k], want, 2e-13 * fmax(fabs(want), -golden->constants.log_bias),
                    "%s, c = %g", name_of(golden), golden_cosines[k]);
        }
        if (!CHECK_OK(zonal_kernel_log_eval(kernel, 1, &end, got))) return;
        MEASURE(&values, got[0], 0, -2e-13 * golden->constants.log_bias, "%s, c = 1",
                name_of(golden));
    }
    measure_print(&values);
}

static void test_constants(void) {
    static measure values = {.name = "constants"}, shares = {.name = "a_1, a_2"};
    static measure large = {.name = "bias"};
    for (int i = 0; i < GOLDEN_KERNELS; i++) {
        const golden_kernel *golden = &golden_kernels[i];
        const zonal_kernel *kernel = kernel_of(i);
        zonal_kernel_constants c = ZONAL_KERNEL_CONSTANTS_INIT;
        if (!kernel) continue;
        zonal_kernel_constants_get(kernel, &c);
        const struct {
            const char *name;
            double got, want;
        } pairs[] = {
            {"log_bias", c.log_bias, golden->constants.log_bias},
            {"mmd_norm", c.mmd_norm, golden->constants.mmd_norm},
            {"ksd_norm", c.ksd_norm, golden->constants.ksd_norm},
            {"kl_norm", c.kl_norm, golden->constants.kl_norm},
            {"kl_norm_paper", c.kl_norm_paper, -golden->constants.log_area},
            {"log_area", c.log_area, golden->constants.log_area},
            {"derivative", c.derivative, golden->constants.derivative},
            {"curvature", c.curvature, golden->constants.curvature},
        };
        for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++)
            MEASURE(&values, pairs[k].got, pairs[k].want, 1e-12 * fabs(pairs[k].want), "%s, %s",
                    name_of(golden), pairs[k].name);
        double bias = exp(golden->constants.log_bias); /* exp loses |log a_0| ulp itself */
        MEASURE(&large, c.bias, bias, (1e-12 + 3e-16 * fabs(golden->constants.log_bias)) * bias,
                "%s", name_of(golden));
        MEASURE(&large, zonal_kernel_weight(kernel, 0), c.bias, 1e-12 * c.bias, "%s, weight 0",
                name_of(golden));
        for (int l = 1; l <= 2; l++) {
            double want = l == 1 ? golden->constants.weight1 : golden->constants.weight2;
            MEASURE(&shares, zonal_kernel_weight(kernel, l), want, 1e-12 * want, "%s, l = %d",
                    name_of(golden), l);
        }
        CHECK((c.nodes > 0) == (golden->family == ZONAL_FAMILY_INDUCED));
    }
    measure_print(&values);
    measure_print(&large);
    measure_print(&shares);
}

/* a_l >= 0 adds up to 1, is 0 outside, and rebuilds phi with the multiplicities that were asked. */
static void test_spectrum(void) {
    static measure sums = {.name = "sum of a_l"};
    for (int i = 0; i < GOLDEN_KERNELS; i++) {
        const golden_kernel *golden = &golden_kernels[i];
        const zonal_kernel *kernel = kernel_of(i);
        zonal_kernel_constants c = ZONAL_KERNEL_CONSTANTS_INIT;
        double sum = 0;
        if (!kernel) continue;
        zonal_kernel_constants_get(kernel, &c);
        for (int l = c.degrees - 1; l >= 0; l--) {
            CHECK(zonal_kernel_weight(kernel, l) >= 0);
            sum += zonal_kernel_weight(kernel, l);
        }
        /* The chordal spectrum falls like l^-2 only, from l = d on, and is cut at 4000 degrees. */
        MEASURE(&sums, sum, 1, golden->family == ZONAL_FAMILY_CHORDAL ? 2e-2 : 1e-13, "%s",
                name_of(golden));
        CHECK(zonal_kernel_weight(kernel, -1) == 0);
        CHECK(zonal_kernel_weight(kernel, c.degrees) == 0);
        CHECK(zonal_kernel_log_multiplicity(kernel, -1) == -INFINITY);
        CHECK(zonal_kernel_log_multiplicity(kernel, c.degrees) == -INFINITY);
        CHECK(zonal_kernel_log_multiplicity(kernel, 0) == 0);
        CHECK_CLOSE(zonal_kernel_log_multiplicity(kernel, 1), log(golden->dim), 1e-15);
    }
    measure_print(&sums);
}

static void test_names(void) {
    static const char *const names[] = {"heat",    "band",    "induced",
                                        "poisson", "chordal", "spectrum"};
    zonal_family family = ZONAL_FAMILY_CHORDAL;
    for (int i = 0; i < 6; i++) {
        CHECK(strcmp(zonal_family_name((zonal_family)i), names[i]) == 0);
        CHECK_OK(zonal_family_parse(names[i], &family));
        CHECK((int)family == i);
    }
    CHECK(strcmp(zonal_family_name((zonal_family)77), "?") == 0);
    family = ZONAL_FAMILY_BAND;
    CHECK_FAILS(zonal_family_parse("gauss", &family), ZONAL_ARGUMENT, "'gauss'");
    CHECK(family == ZONAL_FAMILY_BAND);
}

/* The parameters left out are t = 5/d, L = 2, s^2 = d, r = .3 log(d)/d. */
static void test_defaults(void) {
    double d = 19;
    const struct {
        zonal_kernel_spec given, meant;
    } pairs[] = {
        {{.family = ZONAL_FAMILY_HEAT}, {.family = ZONAL_FAMILY_HEAT, .parameter = {5 / d, 0}}},
        {{.family = ZONAL_FAMILY_BAND}, {.family = ZONAL_FAMILY_BAND, .parameter = {2, 0}}},
        {{.family = ZONAL_FAMILY_INDUCED}, {.family = ZONAL_FAMILY_INDUCED, .parameter = {d, 0}}},
        {{.family = ZONAL_FAMILY_POISSON},
         {.family = ZONAL_FAMILY_POISSON, .parameter = {0.3 * log(d) / d, 0}}},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        zonal_kernel *given = NULL, *meant = NULL;
        double a[GOLDEN_POINTS] = {0}, b[GOLDEN_POINTS] = {1};
        if (CHECK_OK(zonal_kernel_create(&pairs[i].given, 19, &given)) &&
            CHECK_OK(zonal_kernel_create(&pairs[i].meant, 19, &meant))) {
            CHECK_OK(zonal_kernel_eval(given, 0, GOLDEN_POINTS, golden_cosines, a));
            CHECK_OK(zonal_kernel_eval(meant, 0, GOLDEN_POINTS, golden_cosines, b));
            CHECK(memcmp(a, b, sizeof a) == 0);
        }
        zonal_kernel_destroy(given);
        zonal_kernel_destroy(meant);
    }
    zonal_kernel_destroy(NULL);
}

/* Below phi = 1e-250 log phi goes on in a straight line. */
static void test_tangent(void) {
    zonal_kernel_spec spec = {
        .family = ZONAL_FAMILY_HEAT, .parameter = {1.0 / 2048, 0}, .log_profile = 1};
    const double c[5] = {-1, -0.875, -0.75, -0.625, -0.5};
    double l[5];
    zonal_kernel *kernel;
    if (!CHECK_OK(zonal_kernel_create(&spec, 2048, &kernel))) return;
    CHECK_OK(zonal_kernel_log_eval(kernel, 5, c, l));
    for (int k = 0; k < 3; k++) {
        CHECK(l[k] < l[k + 1] && l[k + 1] < -575.6);
        CHECK_CLOSE(l[k + 2] - l[k + 1], l[k + 1] - l[k], 1e-10);
    }
    zonal_kernel_destroy(kernel);
}

/* Poisson with r = 1/2 has the exact weights 2^-l: given as a spectrum of 1500 degrees, whose
 * multiplicities reach 1e316, it must give the closed form's logarithm, 1e-122 at c = -1. */
static void test_long_spectrum(void) {
    enum { N = 1500, D = 256 };
    static double weights[N];
    static measure values = {.name = "log phi, long spectrum"};
    zonal_kernel_spec spec = {
        .family = ZONAL_FAMILY_SPECTRUM, .weights = weights, .n_weights = N, .log_profile = 1};
    zonal_kernel *kernel;
    double got[GOLDEN_POINTS];
    for (int l = 0; l < N; l++) weights[l] = ldexp(1, 500 - l);
    if (!CHECK_OK(zonal_kernel_create(&spec, D, &kernel))) return;
    CHECK_OK(zonal_kernel_log_eval(kernel, GOLDEN_POINTS, golden_cosines, got));
    for (int k = 0; k < GOLDEN_POINTS; k++) {
        double want = -D / 2.0 * log1p(4 * (1 - golden_cosines[k]));
        MEASURE(&values, got[k], want, 2e-13 * fmax(-want, (D - 1) * log(2) + log(1.5)), "c = %g",
                golden_cosines[k]);
    }
    measure_print(&values);
    zonal_kernel_destroy(kernel);
}

static zonal_status create(zonal_kernel_spec spec, int64_t dim) {
    zonal_kernel *kernel = (zonal_kernel *)&spec; /* must become NULL on failure */
    zonal_status status = zonal_kernel_create(&spec, dim, &kernel);
    CHECK((status == ZONAL_OK) == (kernel != NULL));
    zonal_kernel_destroy(kernel);
    return status;
}

#define HEAT(...) ((zonal_kernel_spec){.family = ZONAL_FAMILY_HEAT, __VA_ARGS__})
#define WEIGHTS(n, ...)                                                                            \
    ((zonal_kernel_spec){                                                                          \
        .family = ZONAL_FAMILY_SPECTRUM, .weights = (double[]){__VA_ARGS__}, .n_weights = n})

/* A spectrum that is flat but for its last digits is called that, before the fixed point loses
 * them: log phi = -35 w (1 - P_2(c)) for a weight w of degree 2, since N_2 = 35, and P_2(0) = -1/7.
 */
static void test_flat_spectrum(void) {
    double weights[3] = {1, 0, 1e-300}, c = 0, log_phi = 0;
    zonal_kernel_spec spec = {
        .family = ZONAL_FAMILY_SPECTRUM, .weights = weights, .n_weights = 3, .log_profile = 1};
    zonal_kernel *kernel = NULL;
    CHECK_FAILS(create(spec, 8), ZONAL_ARGUMENT, "the kernel is flat");
    spec.log_profile = 0;
    CHECK_OK(create(spec, 8)); /* MMD can use it, ... */
    if (CHECK_OK(
            zonal_kernel_make("spectrum", "spectrum=1,0,1e-300", 8, &kernel))) /* by name too */
        zonal_kernel_destroy(kernel);
    weights[2] = 1e-270;
    spec.log_profile = 1;
    if (!CHECK_OK(zonal_kernel_create(&spec, 8, &kernel))) return;
    CHECK_OK(zonal_kernel_log_eval(kernel, 1, &c, &log_phi));
    CHECK_CLOSE(log_phi / -40e-270, 1, 1e-14);
    zonal_kernel_destroy(kernel);
}

static void test_bad_input(void) {
    const zonal_status bad = ZONAL_ARGUMENT;
    CHECK_FAILS(create(HEAT(.weights = NULL), 1), ZONAL_SHAPE, "from 2 to 4096, got 1");
    CHECK_FAILS(create(HEAT(.weights = NULL), 4097), ZONAL_SHAPE, "got 4097");
    CHECK_FAILS(create(HEAT(.weights = NULL), -3), ZONAL_SHAPE, "got -3");
    CHECK_FAILS(create(HEAT(.parameter.factor = -1), 8), bad,
                "t must be positive and finite, got -1");
    CHECK_FAILS(create(HEAT(.parameter.factor = NAN), 8), bad, "t must be positive");
    CHECK_FAILS(create(HEAT(.parameter.factor = INFINITY), 8), bad, "t must be positive");
    CHECK_FAILS(create(HEAT(.parameter.factor = 1e-12), 8), bad, "too narrow");
    CHECK_FAILS(create(HEAT(.parameter.factor = 1e5), 8), bad, "constant to the last digit");
    CHECK_FAILS(create(HEAT(.parameter.factor = 20, .log_profile = 1), 8), bad,
                "the kernel is flat");
    CHECK_FAILS(create(HEAT(.parameter.factor = 1e-6, .log_profile = 1), 8), bad, "too narrow");
    CHECK_FAILS(create((zonal_kernel_spec){.family = ZONAL_FAMILY_BAND, .parameter = {65, 0}}, 8),
                bad, "1 to 64");
    CHECK_FAILS(create((zonal_kernel_spec){.family = ZONAL_FAMILY_BAND, .parameter = {-1, 0}}, 8),
                bad, "got -1");
    CHECK_FAILS(create((zonal_kernel_spec){.family = ZONAL_FAMILY_BAND, .log_profile = 1}, 8), bad,
                "positive everywhere");
    CHECK_FAILS(
        create((zonal_kernel_spec){.family = ZONAL_FAMILY_INDUCED, .parameter = {-1, 0}}, 8), bad,
        "scale");
    CHECK_FAILS(
        create((zonal_kernel_spec){.family = ZONAL_FAMILY_INDUCED, .parameter = {NAN, 0}}, 8), bad,
        "scale");
    CHECK_FAILS(
        create((zonal_kernel_spec){.family = ZONAL_FAMILY_INDUCED, .parameter = {10001, 0}}, 8),
        bad, "at most 10000");
    CHECK_FAILS(create((zonal_kernel_spec){.family = ZONAL_FAMILY_POISSON, .parameter = {1, 0}}, 8),
                bad, "between 0 and 1, got 1");
    CHECK_FAILS(
        create((zonal_kernel_spec){.family = ZONAL_FAMILY_POISSON, .parameter = {-0.1, 0}}, 8), bad,
        "got -0.1");
    CHECK_FAILS(
        create((zonal_kernel_spec){.family = ZONAL_FAMILY_POISSON, .parameter = {NAN, 0}}, 8), bad,
        "r must");
    CHECK_FAILS(
        create((zonal_kernel_spec){.family = ZONAL_FAMILY_POISSON, .parameter = {0.9999, 0}}, 4096),
        bad, "too narrow");
    CHECK_FAILS(create((zonal_kernel_spec){.family = ZONAL_FAMILY_CHORDAL, .log_profile = 1}, 8),
                bad, "chordal is 0 at c = -1");
    CHECK_FAILS(create((zonal_kernel_spec){.family = (zonal_family)9}, 8), bad, "family 9");
    CHECK_FAILS(
        create((zonal_kernel_spec){.family = ZONAL_FAMILY_INDUCED, .without_multiplicity = 1}, 8),
        bad, "not given by weights");
    CHECK_FAILS(
        create((zonal_kernel_spec){.family = ZONAL_FAMILY_CHORDAL, .without_multiplicity = 1}, 8),
        bad, "not given by weights");
    CHECK_FAILS(create((zonal_kernel_spec){.family = ZONAL_FAMILY_SPECTRUM}, 8), bad,
                "2 to 4096 weights");
    CHECK_FAILS(create(WEIGHTS(1, 1), 8), bad, "got 1");
    CHECK_FAILS(create(WEIGHTS(3, 1, -1, 1), 8), bad, "weight 1 of the spectrum is -1");
    CHECK_FAILS(create(WEIGHTS(3, 1, 1, NAN), 8), bad, "weight 2");
    CHECK_FAILS(create(WEIGHTS(3, INFINITY, 1, 1), 8), bad, "weight 0");
    CHECK_FAILS(create(WEIGHTS(3, 1, 0, 0), 8), bad, "no weight beyond degree 0");
    zonal_kernel_spec unpositive = WEIGHTS(3, 1, 1, 1);
    unpositive.log_profile = 1;
    CHECK_FAILS(create(unpositive, 8), bad, "positive everywhere");
    unpositive = WEIGHTS(3, 0, 1, 1);
    unpositive.log_profile = 1;
    CHECK_FAILS(create(unpositive, 8), bad, "the mean of this one is 0");
    /* On the circle 1 + 2 cos(32 angle) looks constant on every grid of 16 or 32 points. */
    double hidden[33] = {[0] = 1, [32] = 1};
    unpositive = (zonal_kernel_spec){
        .family = ZONAL_FAMILY_SPECTRUM, .weights = hidden, .n_weights = 33, .log_profile = 1};
    CHECK_FAILS(create(unpositive, 2), bad, "positive everywhere");
}

static void test_bad_evaluation(void) {
    zonal_kernel_spec spec = {.family = ZONAL_FAMILY_HEAT};
    zonal_kernel *kernel;
    double c[3] = {0, 1, 1.0000001}, out[3];
    if (!CHECK_OK(zonal_kernel_create(&spec, 8, &kernel))) return;
    CHECK_FAILS(zonal_kernel_eval(kernel, 3, 1, c, out), ZONAL_ARGUMENT, "0, 1 or 2, got 3");
    CHECK_FAILS(zonal_kernel_eval(kernel, -1, 1, c, out), ZONAL_ARGUMENT, "got -1");
    CHECK_FAILS(zonal_kernel_eval(kernel, 0, 3, c, out), ZONAL_ARGUMENT, "c[2] = ");
    c[2] = NAN;
    CHECK_FAILS(zonal_kernel_eval(kernel, 0, 3, c, out), ZONAL_ARGUMENT, "c[2] = ");
    CHECK_FAILS(zonal_kernel_log_eval(kernel, 1, c, out), ZONAL_ARGUMENT, "log_profile = 1");
    CHECK_OK(zonal_kernel_eval(kernel, 0, 0, NULL, NULL));
    zonal_kernel_destroy(kernel);
    spec.log_profile = 1;
    if (!CHECK_OK(zonal_kernel_create(&spec, 8, &kernel))) return;
    CHECK_FAILS(zonal_kernel_log_eval(kernel, 3, c, out), ZONAL_ARGUMENT, "c[2] = ");
    zonal_kernel_destroy(kernel);
}

/* The weights are copied: the caller's may change and go. */
static void test_weights_are_copied(void) {
    double weights[3] = {1, 0.5, 0.25}, c = 0.3, before, after;
    zonal_kernel_spec spec = {.family = ZONAL_FAMILY_SPECTRUM, .weights = weights, .n_weights = 3};
    zonal_kernel *kernel;
    if (!CHECK_OK(zonal_kernel_create(&spec, 5, &kernel))) return;
    CHECK_OK(zonal_kernel_eval(kernel, 0, 1, &c, &before));
    weights[0] = weights[1] = weights[2] = NAN;
    CHECK_OK(zonal_kernel_eval(kernel, 0, 1, &c, &after));
    CHECK(before == after);
    zonal_kernel_destroy(kernel);
}

static zonal_status make_and_drop(void *context) {
    zonal_kernel *kernel = NULL;
    zonal_status status = zonal_kernel_create(context, 5, &kernel);
    CHECK((status == ZONAL_OK) == (kernel != NULL));
    zonal_kernel_destroy(kernel);
    return status;
}

static void test_memory(void) {
    static const double weights[4] = {1, 0.05, 0.01, 0.001};
    for (int family = ZONAL_FAMILY_HEAT; family <= ZONAL_FAMILY_SPECTRUM; family++)
        for (int with_log = 0; with_log <= 1; with_log++) {
            zonal_kernel_spec spec = {.family = (zonal_family)family,
                                      .parameter = {family == ZONAL_FAMILY_HEAT ? 0.4 : 0, 0},
                                      .log_profile = with_log};
            if (with_log && (family == ZONAL_FAMILY_BAND || family == ZONAL_FAMILY_CHORDAL))
                continue;
            if (family == ZONAL_FAMILY_SPECTRUM) {
                spec.weights = weights;
                spec.n_weights = 4;
            }
            test_every_allocation(zonal_family_name(spec.family), make_and_drop, &spec);
        }
}

/* A parameter may go with the dimension. */
static void test_numbers(void) {
    static const struct {
        zonal_number number;
        double value;
    } cases[] = {{{5, -1}, 5. / 64}, {{0.25, 0}, 0.25}, {{0, 0}, 5. / 64}, {{0, 1}, 5. / 64}};
    for (int i = 0; i < 4; i++) {
        const zonal_kernel_spec a = {.family = ZONAL_FAMILY_HEAT, .parameter = cases[i].number};
        const zonal_kernel_spec b = {.family = ZONAL_FAMILY_HEAT, .parameter = {cases[i].value, 0}};
        zonal_kernel *one = NULL, *other = NULL;
        if (CHECK_OK(zonal_kernel_create(&a, 64, &one)) &&
            CHECK_OK(zonal_kernel_create(&b, 64, &other)))
            CHECK(zonal_kernel_weight(one, 3) == zonal_kernel_weight(other, 3));
        zonal_kernel_destroy(one);
        zonal_kernel_destroy(other);
    }
}

static const test_case tests[] = {
    {"numbers", test_numbers},
    {"profiles", test_profiles},
    {"logarithms", test_logarithms},
    {"constants", test_constants},
    {"spectrum", test_spectrum},
    {"names", test_names},
    {"defaults", test_defaults},
    {"tangent below 1e-250", test_tangent},
    {"long spectrum", test_long_spectrum},
    {"flat spectrum", test_flat_spectrum},
    {"bad input", test_bad_input},
    {"bad evaluation", test_bad_evaluation},
    {"weights are copied", test_weights_are_copied},
    {"memory", test_memory},
    {0},
};

int main(int argc, char **argv) {
    int status = test_main(argc, argv, tests);
    for (int i = 0; i < GOLDEN_KERNELS; i++) zonal_kernel_destroy(made[i]);
    return status;
}
