/*
 * The mathematics, not numbers: what must hold of the losses whatever their values are. Invariance,
 * closed forms of symmetric batches, expectations, two routes to one quantity. Gradients are in
 * test_gradients.c.
 */
#include "backend/backend.h"
#include "batches.h"
#include "math/quadrature.h"
#include "measure.h"

/* ---- Invariance ---- */

/* Applies a rotation, the product of two random reflections, to every row. */
static void rotate(int64_t n, int64_t d, double *x) {
    double *v = draw_rows(2, d, 77);
    for (int r = 0; r < 2; r++) {
        double *axis = v + r * d, size = dot(d, axis, axis);
        for (int64_t i = 0; i < n; i++) {
            double along = 2 * dot(d, axis, x + i * d) / size;
            for (int64_t k = 0; k < d; k++) x[i * d + k] -= along * axis[k];
        }
    }
    free(v);
}

static void test_rotation(void) {
    enum { N = 13, D = 7 };
    static measure values = {.name = "D under a rotation"};
    static measure gradients = {.name = "gradient under a rotation"};
    FOR_EACH_METHOD(method, k) {
        zonal_loss_options options = defaults(method, D);
        double *x = draw_leaning_rows(N, D, 1), g[N * D], h[N * D];
        int has = !is_chordal(method);
        options.implementation = (zonal_implementation)k;
        if (!is_sliced(method)) { /* those have directions of their own */
            double before = run(&options, N, D, x, has ? g : NULL);
            rotate(N, D, x);
            double after = run(&options, N, D, x, has ? h : NULL);
            MEASURE(&values, after, before, 1e-13 * size_of(method, before), "%s", method);
            if (has) {
                rotate(N, D, g);
                MEASURE(&gradients, measure_distance(N * D, h, g), 0, 1e-12 * norm_of(N * D, g),
                        "%s", method);
            }
        }
        free(x);
    }
    measure_print(&values);
    measure_print(&gradients);
}

static void test_permutation(void) {
    enum { N = 70, D = 5 }; /* more than one tile */
    static measure values = {.name = "D under a permutation"};
    static measure gradients = {.name = "gradient under a permutation"};
    FOR_EACH_METHOD(method, k) {
        zonal_loss_options options = defaults(method, D);
        double *x = draw_leaning_rows(N, D, 2), *y = malloc(sizeof(double) * N * D);
        double *g = malloc(sizeof(double) * N * D), *h = malloc(sizeof(double) * N * D);
        int has = !is_chordal(method);
        options.implementation = (zonal_implementation)k;
        double before = run(&options, N, D, x, has ? g : NULL);
        for (int i = 0; i < N; i++) memcpy(y + i * D, x + (i * 33 + 5) % N * D, D * sizeof(double));
        double after = run(&options, N, D, y, has ? h : NULL);
        MEASURE(&values, after, before, 1e-13 * size_of(method, before), "%s", method);
        for (int i = 0; i < N; i++) memcpy(y + i * D, g + (i * 33 + 5) % N * D, D * sizeof(double));
        if (has)
            MEASURE(&gradients, measure_distance(N * D, h, y), 0, 1e-12 * norm_of(N * D, y), "%s",
                    method);
        free(x);
        free(y);
        free(g);
        free(h);
    }
    measure_print(&values);
    measure_print(&gradients);
}

/* D depends on directions alone: rows of other lengths give the same D, the gradient over length.
 */
static void test_lengths(void) {
    enum { N = 11, D = 6 };
    FOR_EACH_METHOD(method, k) {
        zonal_loss_options options = defaults(method, D);
        double *x = draw_leaning_rows(N, D, 3), g[N * D], h[N * D];
        int has = !is_chordal(method);
        options.implementation = (zonal_implementation)k;
        if (strcmp(method, "sigreg") != 0) {
            double before = run(&options, N, D, x, has ? g : NULL);
            for (int i = 0; i < N * D; i++) x[i] *= 1 + i / D; /* row i by i + 1 */
            double after = run(&options, N, D, x, has ? h : NULL);
            CHECK_CLOSE(after, before, 1e-13 * size_of(method, before));
            for (int i = 0; has && i < N * D; i++) h[i] *= 1 + i / D;
            if (has) CHECK_NORM(N * D, h, g, 1e-12);
        }
        free(x);
    }
}

/* Every row twice is the same empirical measure, so the V-statistic is the same. */
static void test_doubled_rows(void) {
    enum { N = 40, D = 12 };
    static measure values = {.name = "D of doubled rows"};
    FOR_EACH_METHOD(method, k) {
        zonal_loss_options options = defaults(method, D);
        double *x = draw_rows(2 * N, D, 4);
        options.implementation = (zonal_implementation)k;
        options.estimator = ZONAL_ESTIMATOR_V;
        options.sliced.times_n = 0;
        /* The copies are three times as long, so that their unit rows are rounded differently. */
        for (int i = 0; i < N * D; i++) x[N * D + i] = (strcmp(method, "sigreg") ? 3 : 1) * x[i];
        double once = run(&options, N, D, x, NULL), twice = run(&options, 2 * N, D, x, NULL);
        MEASURE(&values, twice, once, 1e-13 * size_of(method, once), "%s", method);
        free(x);
    }
    measure_print(&values);
}

/* Rows in close pairs, 1e-3 apart: in fp32 too, chordal's distance of two such rows must be right.
 */
static void test_close_rows(void) {
    enum { N = 40, D = 12 };
    static measure values = {.name = "D of close rows, fp32"};
    for (int i = 0; zonal_method_name(i); i++) {
        const char *method = zonal_method_name(i);
        zonal_loss_options options = defaults(method, D);
        double *x = draw_rows(2 * N, D, 17);
        float xf[2 * N * D];
        for (int j = 0; j < N * D; j++) x[N * D + j] = x[j] + 1e-3 * x[N * D + j];
        for (int j = 0; j < 2 * N * D; j++) x[j] = xf[j] = (float)x[j];
        options.implementation = ZONAL_IMPLEMENTATION_REF;
        double want = run(&options, 2 * N, D, x, NULL);
        options.implementation = ZONAL_IMPLEMENTATION_AUTO;
        options.precision = ZONAL_PRECISION_FP32;
        MEASURE(&values, run(&options, 2 * N, D, xf, NULL), want,
                2e-6 * size_of(method, want) + 2e-11, "%s", method);
        free(x);
    }
    measure_print(&values);
}

/* ---- Closed forms ---- */

/* All rows in one direction: D = 1, and the gradient vanishes. */
static void test_collapse(void) {
    enum { N = 9, D = 7 };
    FOR_EACH_METHOD(method, k) {
        for (int single = 0; single <= 1; single++) {
            zonal_loss_options options = defaults(method, D);
            double *x = draw_rows(1, D, 5), rows[N * D], g[N * D];
            float small_rows[N * D], small_g[N * D];
            int has = !is_chordal(method);
            options.implementation = (zonal_implementation)k;
            options.precision = single ? ZONAL_PRECISION_FP32 : ZONAL_PRECISION_DOUBLE;
            for (int i = 0; i < N * D; i++) {
                small_rows[i] = (float)((float)x[i % D] * (1 + i / D)); /* of different lengths */
                rows[i] = x[i % D] * (1 + i / D);
            }
            if (!is_sliced(method)) {
                double value = run(&options, N, D, single ? (void *)small_rows : (void *)rows,
                                   has ? (single ? (void *)small_g : (void *)g) : NULL);
                /* float rows times 3, 5, ... are rounded, and then not quite one direction */
                CHECK_CLOSE(value, 1, single ? 2e-6 : 1e-13);
                for (int i = 0; has && i < N * D; i++)
                    CHECK_CLOSE(single ? small_g[i] : g[i], 0, single ? 1e-6 : 1e-14);
            }
            free(x);
        }
    }
}

/* The sliced losses are 1 at collapse in the mean over directions. SUSReg: one direction scatters
 * by s; SIGReg collapses to the origin, the same for all directions. */
static void test_sliced_collapse(void) {
    enum { N = 4, D = 64, STEPS = 64 };
    zonal_loss_options options = defaults("susreg", D);
    zonal_plan *plan;
    double rows[N * D] = {0}, sum = 0, squares = 0, value;
    options.sliced.slices = 256;
    for (int i = 0; i < N; i++) rows[i * D] = 1;
    if (CHECK_OK(zonal_plan_create(&options, N, D, &plan))) {
        for (uint32_t step = 0; step < STEPS; step++) {
            zonal_plan_set_step(plan, step);
            CHECK_OK(zonal_plan_execute(plan, rows, &value, NULL));
            sum += value;
            squares += value * value;
        }
        double mean = sum / STEPS, s = sqrt((squares / STEPS - mean * mean) / (STEPS - 1));
        printf("# SUSReg at collapse: %.5f, standard error %.5f\n", mean, s);
        CHECK(s > 0);
        CHECK_CLOSE(mean, 1, 4 * s);
        zonal_plan_destroy(plan);
    }
    for (int i = 0; i < N; i++) rows[i * D] = 0;
    options = defaults("sigreg", D);
    options.sliced.times_n = 0;
    options.sliced.collapse_normalised = 1;
    CHECK_CLOSE(run(&options, N, D, rows, NULL), 1, 1e-14);
}

/* psi(c) of MMD and KSD by the formulas of zonal/loss.h, from the kernel's public functions. */
static double psi_of(const zonal_kernel *kernel, int ksd, double d, double c) {
    zonal_kernel_constants constants = ZONAL_KERNEL_CONSTANTS_INIT;
    double phi[3];
    zonal_kernel_constants_get(kernel, &constants);
    for (int order = 0; order < 3; order++)
        CHECK_OK(zonal_kernel_eval(kernel, order, 1, &c, &phi[order]));
    if (!ksd) return (phi[0] - constants.bias) / constants.mmd_norm;
    return ((c * c - 1) * phi[2] + (d - 1) * c * phi[1]) / ((d - 1) * constants.derivative);
}

/* The corners of a simplex of n points (all cosines -1/(n-1)), an orthonormal basis (all 0), and
 * the cross-polytope (0 and -1). */
static void test_symmetric_batches(void) {
    enum { D = 8 };
    static measure values = {.name = "D of symmetric batches"};
    double simplex[(D + 1) * D] = {0}, basis[D * D] = {0}, cross[2 * D * D] = {0};
    for (int i = 0; i < D; i++) {
        basis[i * D + i] = cross[i * D + i] = 1;
        cross[(D + i) * D + i] = -1;
        /* e_i less their mean, stretched to meet the last corner at the same angle */
        for (int k = 0; k < D; k++) simplex[i * D + k] = (i == k) - (1 + 1 / sqrt(D + 1.0)) / D;
        simplex[D * D + i] = 1 / sqrt(D + 1.0);
    }
    rotate(D + 1, D, simplex);
    rotate(D, D, basis);
    rotate(2 * D, D, cross);
    FOR_EACH_METHOD(method, k) {
        zonal_loss_options options = defaults(method, D);
        zonal_kernel_spec spec = options.kernel;
        zonal_kernel *kernel;
        options.implementation = (zonal_implementation)k;
        if (is_sliced(method)) continue;
        if (is_kl(method) && spec.family == ZONAL_FAMILY_HEAT) spec.parameter.factor = 2.0 / D;
        spec.log_profile = is_kl(method);
        if (!CHECK_OK(zonal_kernel_create(&spec, D, &kernel))) continue;
        double at[3] = {-1.0 / D, 0, -1}, p[3], want[3], got[3];
        for (int i = 0; i < 3; i++) {
            p[i] = psi_of(kernel, options.discrepancy == ZONAL_DISCREPANCY_KSD, D, at[i]);
            if (is_kl(method)) CHECK_OK(zonal_kernel_eval(kernel, 0, 1, &at[i], &p[i]));
        }
        if (is_kl(method)) {
            zonal_kernel_constants c = ZONAL_KERNEL_CONSTANTS_INIT;
            zonal_kernel_constants_get(kernel, &c);
            want[0] = 1 + log(p[0]) / c.kl_norm;
            want[1] = 1 + log(p[1]) / c.kl_norm;
            want[2] = 1 + log((p[2] + (2 * D - 2) * p[1]) / (2 * D - 1)) / c.kl_norm;
        } else {
            want[0] = (1 + D * p[0]) / (D + 1);
            want[1] = (1 + (D - 1) * p[1]) / D;
            want[2] = (1 + p[2] + (2 * D - 2) * p[1]) / (2 * D);
        }
        got[0] = run(&options, D + 1, D, simplex, NULL);
        got[1] = run(&options, D, D, basis, NULL);
        got[2] = run(&options, 2 * D, D, cross, NULL);
        for (int i = 0; i < 3; i++)
            MEASURE(&values, got[i], want[i], 1e-13, "%s, batch %d", method, i);
        zonal_kernel_destroy(kernel);
    }
    measure_print(&values);
}

/* Designs: a simplex has mean 0, a cross-polytope is uniform to degree 3. With rows a unit apart D
 * of a band kernel is exactly 0, and b_1/d for an orthonormal basis. */
static void test_designs(void) {
    enum { D = 8 };
    double basis[D * D] = {0}, cross[2 * D * D] = {0};
    for (int i = 0; i < D; i++) {
        basis[i * D + i] = cross[i * D + i] = 3;
        cross[(D + i) * D + i] = -5;
    }
    rotate(D, D, basis);
    rotate(2 * D, D, cross);
    for (int k = ZONAL_IMPLEMENTATION_AUTO; k <= ZONAL_IMPLEMENTATION_MOMENTS; k++) {
        zonal_loss_options options = defaults("mmd-band", D);
        options.implementation = (zonal_implementation)k;
        double n2 = (D + 2) * (D - 1) / 2.0, share = D / (D + n2);
        CHECK_CLOSE(run(&options, D, D, basis, NULL), share / D, 1e-15);
        CHECK_CLOSE(run(&options, 2 * D, D, cross, NULL), 0, 1e-15);
        options.kernel.parameter.factor = 1;
        CHECK_CLOSE(run(&options, D, D, basis, NULL), 1.0 / D, 1e-15);
        CHECK_CLOSE(run(&options, 2 * D, D, cross, NULL), 0, 1e-15);
    }
    zonal_loss_options options = defaults("ksd-band", D); /* and degree 3 vanishes by symmetry */
    options.kernel.parameter.factor = 3;
    CHECK_CLOSE(run(&options, 2 * D, D, cross, NULL), 0, 1e-15);
}

/* U and V differ by the diagonal alone: B D_V = 1 + (B - 1) D_U. */
static void test_estimators(void) {
    enum { N = 10, D = 5 };
    FOR_EACH_METHOD(method, k) {
        zonal_loss_options options = defaults(method, D);
        double *x = draw_leaning_rows(N, D, 6);
        options.implementation = (zonal_implementation)k;
        if (!is_sliced(method) && !is_kl(method)) {
            options.estimator = ZONAL_ESTIMATOR_V;
            double v = run(&options, N, D, x, NULL);
            options.estimator = ZONAL_ESTIMATOR_U;
            CHECK_CLOSE(1 + (N - 1) * run(&options, N, D, x, NULL), N * v, 1e-14);
        }
        free(x);
    }
}

/* ---- Two routes to one number ---- */

/* b_l, the shares of psi: a_l for MMD and L_l a_l for KSD, from l = 1 on, adding up to 1. */
static int shares_of(const zonal_kernel *kernel, int ksd, double d, double *b, int most) {
    zonal_kernel_constants constants = ZONAL_KERNEL_CONSTANTS_INIT;
    zonal_kernel_constants_get(kernel, &constants);
    int n = constants.degrees < most ? constants.degrees : most;
    double sum = 0;
    b[0] = 0;
    for (int l = 1; l < n; l++) {
        b[l] = zonal_kernel_weight(kernel, l) * (ksd ? l * (l + d - 2) : 1);
        sum += b[l];
    }
    for (int l = 1; l < n; l++) b[l] /= sum;
    return n;
}

/* sum of b_l P_l(c) by the recurrence */
static double series(const double *b, int n, double d, double c) {
    double before = 0, now = 1, sum = 0;
    for (int l = 0; l < n; l++) {
        sum += b[l] * now;
        double next = l == 0 ? c : ((2 * l + d - 2) * c * now - l * before) / (l + d - 2);
        before = now;
        now = next;
    }
    return sum;
}

/* The Stein kernel by derivatives of phi, the paper's formula, and by the spectrum. */
static void test_stein_kernel(void) {
    enum { MOST = 4000 };
    static measure values = {.name = "KSD, two routes"};
    static double b[MOST];
    const zonal_family families[] = {ZONAL_FAMILY_HEAT, ZONAL_FAMILY_BAND, ZONAL_FAMILY_INDUCED,
                                     ZONAL_FAMILY_POISSON, ZONAL_FAMILY_SPECTRUM};
    const int dims[] = {2, 3, 8, 64, 256, 2048};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 6; j++) {
            zonal_kernel_spec spec = {
                .family = families[i], .weights = some_weights(dims[j]), .n_weights = 5};
            zonal_kernel *kernel;
            if (!CHECK_OK(zonal_kernel_create(&spec, dims[j], &kernel))) continue;
            int n = shares_of(kernel, 1, dims[j], b, MOST);
            for (double c = -1; c <= 1; c += 0.125)
                MEASURE(&values, psi_of(kernel, 1, dims[j], c), series(b, n, dims[j], c), 1e-12,
                        "%s d=%d c=%g", zonal_family_name(families[i]), dims[j], c);
            zonal_kernel_destroy(kernel);
        }
    measure_print(&values);
}

/* The spectrum rebuilds the profile. */
static void test_series(void) {
    enum { MOST = 4000 };
    static measure values = {.name = "phi from its spectrum"};
    static double a[MOST];
    const int dims[] = {2, 3, 8, 64, 256, 2048};
    for (int family = ZONAL_FAMILY_HEAT; family <= ZONAL_FAMILY_SPECTRUM; family++)
        for (int j = 0; j < 6; j++) {
            zonal_kernel_spec spec = {
                .family = (zonal_family)family, .weights = some_weights(dims[j]), .n_weights = 5};
            zonal_kernel *kernel;
            zonal_kernel_constants constants = ZONAL_KERNEL_CONSTANTS_INIT;
            if (family == ZONAL_FAMILY_CHORDAL)
                continue; /* an infinite sum that falls like a power */
            if (!CHECK_OK(zonal_kernel_create(&spec, dims[j], &kernel))) continue;
            zonal_kernel_constants_get(kernel, &constants);
            for (int l = 0; l < constants.degrees; l++) a[l] = zonal_kernel_weight(kernel, l);
            for (double c = -1; c <= 1; c += 0.125) {
                double phi;
                CHECK_OK(zonal_kernel_eval(kernel, 0, 1, &c, &phi));
                MEASURE(&values, series(a, constants.degrees, dims[j], c), phi, 1e-13,
                        "%s d=%d c=%g", zonal_family_name((zonal_family)family), dims[j], c);
            }
            zonal_kernel_destroy(kernel);
        }
    measure_print(&values);
}

/* On the circle D is a sum over Fourier coefficients of the batch: b_l |mean of e^(i l angle)|^2.
 */
static void test_fourier(void) {
    enum { N = 50, MOST = 4000 };
    static measure values = {.name = "D by Fourier series, d = 2"};
    static double b[MOST];
    double *x = draw_rows(N, 2, 7);
    FOR_EACH_METHOD(method, k) {
        zonal_loss_options options = defaults(method, 2);
        zonal_kernel *kernel;
        double want = 0;
        if (is_sliced(method) || is_kl(method) || is_chordal(method)) continue;
        options.implementation = (zonal_implementation)k;
        if (options.kernel.family == ZONAL_FAMILY_BAND) options.kernel.parameter.factor = 64;
        if (options.kernel.family == ZONAL_FAMILY_POISSON) options.kernel.parameter.factor = 0.75;
        if (!CHECK_OK(zonal_kernel_create(&options.kernel, 2, &kernel))) continue;
        int n = shares_of(kernel, options.discrepancy == ZONAL_DISCREPANCY_KSD, 2, b, MOST);
        for (int l = 1; l < n; l++) {
            double re = 0, im = 0;
            for (int i = 0; i < N; i++) {
                double angle = atan2(x[2 * i + 1], x[2 * i]);
                re += cos(l * angle) / N;
                im += sin(l * angle) / N;
            }
            want += b[l] * (re * re + im * im);
        }
        MEASURE(&values, run(&options, N, 2, x, NULL), want, 1e-12 * want, "%s", method);
        zonal_kernel_destroy(kernel);
    }
    free(x);
    measure_print(&values);
}

/* Every implementation in both precisions against the reference, over odd shapes. */
static void test_implementations(void) {
    const int shapes[][2] = {{3, 2}, {5, 3}, {64, 7}, {65, 19}, {129, 33}, {40, 300}};
    static measure values[2] = {{.name = "D across, double"}, {.name = "D across, fp32"}};
    static measure gradients[2] = {{.name = "gradient across, double"},
                                   {.name = "gradient across, fp32"}};
    for (int s = 0; s < 6; s++)
        for (int i = 0; zonal_method_name(i); i++) {
            const char *method = zonal_method_name(i);
            int64_t n = shapes[s][0], d = shapes[s][1], count = n * d;
            zonal_loss_options options = defaults(method, d);
            int has = !is_chordal(method);
            double *x = draw_leaning_rows(n, d, (uint32_t)(100 + s));
            double *g = malloc((size_t)count * 8), *h = malloc((size_t)count * 8);
            float *xf = malloc((size_t)count * 4), *gf = malloc((size_t)count * 4);
            for (int64_t j = 0; j < count; j++) x[j] = xf[j] = (float)x[j];
            options.kernel.n_weights = 3; /* so that moments serve the spectrum too */
            options.implementation = ZONAL_IMPLEMENTATION_REF;
            double want = run(&options, n, d, x, has ? g : NULL);
            for (int k = ZONAL_IMPLEMENTATION_PAIRS; k <= ZONAL_IMPLEMENTATION_MOMENTS; k++) {
                int low = strstr(method, "band") || strstr(method, "spectrum");
                if (k == ZONAL_IMPLEMENTATION_MOMENTS && (!low || is_kl(method))) continue;
                options.implementation =
                    is_sliced(method) ? ZONAL_IMPLEMENTATION_AUTO : (zonal_implementation)k;
                options.precision = ZONAL_PRECISION_DOUBLE;
                double value = run(&options, n, d, x, has ? h : NULL);
                double size = size_of(method, want);
                MEASURE(&values[0], value, want, 1e-12 * size, "%s %dx%d", method, (int)n, (int)d);
                if (has)
                    MEASURE(&gradients[0], measure_distance(count, h, g), 0,
                            1e-11 * norm_of(count, g), "%s %dx%d", method, (int)n, (int)d);
                options.precision = ZONAL_PRECISION_FP32;
                value = run(&options, n, d, xf, has ? gf : NULL);
                for (int64_t j = 0; j < count; j++) h[j] = gf[j];
                MEASURE(&values[1], value, want, 2e-6 * size + 2e-11, "%s %dx%d", method, (int)n,
                        (int)d);
                if (has)
                    MEASURE(&gradients[1], measure_distance(count, h, g), 0,
                            1e-5 * norm_of(count, g), "%s %dx%d", method, (int)n, (int)d);
            }
            free(x);
            free(g);
            free(h);
            free(xf);
            free(gf);
        }
    for (int p = 0; p < 2; p++) {
        measure_print(&values[p]);
        measure_print(&gradients[p]);
    }
}

/* The reference's moments, which no plan asks for, against its pairs. */
static void test_reference_moments(void) {
    enum { N = 11, D = 6 };
    const zonal__operation_table *table = zonal__backend_ref()->operations[ZONAL__MOMENTS];
    double *x = draw_leaning_rows(N, D, 16), g[N * D], h[N * D], value;
    for (int band = 1; band <= 2; band++) {
        zonal_loss_options options = defaults("mmd-band", D);
        double n2 = (D + 2) * (D - 1) / 2.0, sum = band == 1 ? D : D + n2;
        zonal__problem problem = {.rows = N,
                                  .factor = 1,
                                  .dim = D,
                                  .precision = ZONAL_PRECISION_DOUBLE,
                                  .threads = 1,
                                  .degree1 = D / sum,
                                  .degree2 = band == 1 ? 0 : n2 / sum};
        zonal__work *work;
        options.kernel.parameter.factor = band;
        options.implementation = ZONAL_IMPLEMENTATION_REF;
        double want = run(&options, N, D, x, g);
        if (!CHECK_OK(table->create(&problem, &work))) break;
        CHECK_OK(table->run(work, x, 0, &value, h, 1));
        CHECK_CLOSE(value + 1.0 / N, want, 1e-15);
        CHECK_NORM(N * D, h, g, 1e-13);
        CHECK(table->scratch_bytes(work) > 0);
        table->destroy(work);
    }
    free(x);
}

/* ---- Expectations ---- */

/* Over uniform batches E[D] = 1/B and Var[D] = 2 (B-1)/B^3 sum of b_l^2/N_l, both exactly. */
static void test_uniform_mean(void) {
    enum { N = 12, D = 6, BATCHES = 4000, MOST = 4000 };
    static const char *const methods[] = {"mmd-heat",    "mmd-band",    "mmd-induced",
                                          "mmd-poisson", "mmd-chordal", "mmd-spectrum",
                                          "ksd-heat",    "ksd-band",    "ksd-induced"};
    static double b[MOST];
    zonal__random random = stream(8);
    double x[N * D];
    for (int i = 0; i < 9; i++) {
        zonal_loss_options options = defaults(methods[i], D);
        zonal_kernel *kernel;
        zonal_plan *plan;
        double mean = 0, square = 0, spread = 0;
        options.threads = 1;
        if (!CHECK_OK(zonal_kernel_create(&options.kernel, D, &kernel))) continue;
        int n = shares_of(kernel, options.discrepancy == ZONAL_DISCREPANCY_KSD, D, b, MOST);
        for (int l = 1; l < n; l++)
            spread += b[l] * b[l] / exp(zonal_kernel_log_multiplicity(kernel, l));
        zonal_kernel_destroy(kernel);
        double variance = 2.0 * (N - 1) / (N * N * (double)N) * spread;
        if (!CHECK_OK(zonal_plan_create(&options, N, D, &plan))) continue;
        for (int m = 0; m < BATCHES; m++) {
            double value;
            zonal__random_normal(&random, (uint64_t)(i * BATCHES + m), (int64_t)N * D, x);
            CHECK_OK(zonal_plan_execute(plan, x, &value, NULL));
            mean += (value - 1.0 / N) / BATCHES;
            square += (value - 1.0 / N) * (value - 1.0 / N) / BATCHES;
        }
        zonal_plan_destroy(plan);
        printf("# %-12s mean D - 1/B = %+.2f standard errors, variance %.3f of what it must be\n",
               methods[i], mean / sqrt(variance / BATCHES), square / variance);
        CHECK_CLOSE(mean, 0, 4 * sqrt(variance / BATCHES));
        /* A sum of chi-squares: the variance of a sample variance is at most 14/BATCHES of it. */
        CHECK_CLOSE(square / variance, 1, 4 * sqrt(14.0 / BATCHES));
    }
}

/* A known value: KL of a uniform batch at the paper's settings. */
static void test_uniform_kl(void) {
    double *x = draw_rows(256, 256, 9);
    zonal_loss_options options = defaults("kl-heat", 256);
    CHECK_CLOSE(run(&options, 256, 256, x, NULL), 0.9133, 5e-4);
    free(x);
}

/* The mean of cos(t a.v) over unit vectors a, for |v| = r. */
static double characteristic(int64_t d, double t, double r) {
    enum { NODES = 256 };
    static long double node[NODES], weight[NODES];
    static int64_t made;
    long double sum = 0;
    if (made != d) {
        CHECK_OK(zonal__gauss_sphere(NODES, d, node, weight));
        made = d;
    }
    for (int i = 0; i < NODES; i++) sum += weight[i] * cosl((long double)t * r * node[i]);
    return (double)sum;
}

/* SUSReg's expectation over directions, for the trapezoid rule on these knots. */
static double expected_susreg(int64_t n, int64_t d, const double *x, double scale, int knots,
                              double low, double high) {
    double step = (high - low) / (knots - 1), value = 0, collapse = 0;
    for (int k = 0; k < knots; k++) {
        double t = low + k * step, weight = exp(-t * t / 2) * (k == 0 || k == knots - 1 ? 0.5 : 1);
        double target = characteristic(d, t, sqrt(scale)), sum = 0;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                const double *p = x + i * d, *q = x + j * d;
                double c = dot(d, p, q) / sqrt(dot(d, p, p) * dot(d, q, q));
                double r = i == j ? 0 : sqrt(2 * (1 - c) * scale);
                sum += characteristic(d, t, r) / (double)(n * n);
            }
        value += weight * (sum - target * target);
        collapse += weight * (1 - target * target);
    }
    return value / collapse;
}

/* The limit over directions: 65 knots on [-8, 8] give the MMD of the induced kernel to 1e-9,
 * LeJEPA's 17 on [0, 3] only to a percent; and the draws scatter round their expectation. */
static void test_susreg_limit(void) {
    enum { N = 6, D = 16, STEPS = 200 };
    double *x = draw_leaning_rows(N, D, 10), value, sum = 0, squares = 0;
    for (int scale = 1; scale <= D; scale += D - 1) {
        zonal_loss_options exact = defaults("mmd-induced", D);
        exact.kernel.parameter.factor = scale;
        double limit = run(&exact, N, D, x, NULL);
        double fine = expected_susreg(N, D, x, scale, 65, -8, 8);
        double coarse = expected_susreg(N, D, x, scale, 17, 0, 3);
        double usual = expected_susreg(N, D, x, scale, 17, -5, 5);
        printf(
            "# s^2 = %d: D %.6f; 65 knots off by %.1e of it, 17 on [-5, 5] %.1e, on [0, 3] %.1e\n",
            scale, limit, fine / limit - 1, usual / limit - 1, coarse / limit - 1);
        CHECK_CLOSE(fine, limit, 1e-9 * limit);
        CHECK(fabs(coarse / limit - 1) < 0.02);
        CHECK(fabs(usual / limit - 1) < 1e-3);
    }
    zonal_loss_options options = defaults("susreg", D);
    zonal_plan *plan;
    options.sliced.slices = 64;
    options.sliced.knots = 65;
    options.sliced.low = -8;
    options.sliced.high = 8;
    double limit = expected_susreg(N, D, x, D, 65, -8, 8);
    if (CHECK_OK(zonal_plan_create(&options, N, D, &plan))) {
        for (uint32_t step = 0; step < STEPS; step++) {
            zonal_plan_set_step(plan, step);
            CHECK_OK(zonal_plan_execute(plan, x, &value, NULL));
            sum += value;
            squares += value * value;
        }
        double mean = sum / STEPS, error = sqrt((squares / STEPS - mean * mean) / (STEPS - 1));
        printf("# mean of %d draws: %+.2f standard errors (%.1e) from the limit\n", STEPS,
               (mean - limit) / error, error / limit);
        CHECK(error > 0 && error < 0.02 * limit);
        CHECK_CLOSE(mean, limit, 4 * error);
        zonal_plan_destroy(plan);
    }
    free(x);
}

static const test_case tests[] = {
    {"rotation", test_rotation},
    {"permutation", test_permutation},
    {"lengths", test_lengths},
    {"doubled rows", test_doubled_rows},
    {"close rows", test_close_rows},
    {"collapse", test_collapse},
    {"collapse, sliced", test_sliced_collapse},
    {"symmetric batches", test_symmetric_batches},
    {"designs", test_designs},
    {"estimators", test_estimators},
    {"Stein kernel", test_stein_kernel},
    {"series", test_series},
    {"Fourier", test_fourier},
    {"implementations", test_implementations},
    {"reference's moments", test_reference_moments},
    {"mean over uniform batches", test_uniform_mean},
    {"KL of a uniform batch", test_uniform_kl},
    {"limit of SUSReg", test_susreg_limit},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
