/* Part of kernels_template.h: a fit at many points. Eight vectors are in flight at a time (four for
 * Clenshaw's rule, which carries two numbers per point): enough to hide the latency of a multiply
 * and add, and few enough to stay in registers. */
#define HORNER_BLOCK   (8 * LANES)
#define CLENSHAW_BLOCK (4 * LANES)

/* out = sum_k a[k] u^k at n points, n a multiple of HORNER_BLOCK. */
static TARGET void NAME(horner)(int terms, const double *a, int64_t n, const double *u,
                                double *out) {
    for (int64_t i = 0; i < n; i += HORNER_BLOCK) {
        const double *x = u + i;
        NAME(vector) p0 = {0}, p1 = {0}, p2 = {0}, p3 = {0}, p4 = {0}, p5 = {0}, p6 = {0}, p7 = {0};
        for (int k = terms - 1; k >= 0; k--) {
            p0 = p0 * NAME(load)(x) + a[k];
            p1 = p1 * NAME(load)(x + LANES) + a[k];
            p2 = p2 * NAME(load)(x + 2 * LANES) + a[k];
            p3 = p3 * NAME(load)(x + 3 * LANES) + a[k];
            p4 = p4 * NAME(load)(x + 4 * LANES) + a[k];
            p5 = p5 * NAME(load)(x + 5 * LANES) + a[k];
            p6 = p6 * NAME(load)(x + 6 * LANES) + a[k];
            p7 = p7 * NAME(load)(x + 7 * LANES) + a[k];
        }
        NAME(store)(out + i, p0);
        NAME(store)(out + i + LANES, p1);
        NAME(store)(out + i + 2 * LANES, p2);
        NAME(store)(out + i + 3 * LANES, p3);
        NAME(store)(out + i + 4 * LANES, p4);
        NAME(store)(out + i + 5 * LANES, p5);
        NAME(store)(out + i + 6 * LANES, p6);
        NAME(store)(out + i + 7 * LANES, p7);
    }
}

/* out = sum_k a[k] T_k(u) at n points, n a multiple of CLENSHAW_BLOCK:
 * b_k = a_k + 2u b_{k+1} - b_{k+2}, and the sum is a_0 + u b_1 - b_2. */
static TARGET void NAME(clenshaw)(int terms, const double *a, int64_t n, const double *u,
                                  double *out) {
    for (int64_t i = 0; i < n; i += CLENSHAW_BLOCK) {
        NAME(vector) x0 = NAME(load)(u + i), x1 = NAME(load)(u + i + LANES);
        NAME(vector) x2 = NAME(load)(u + i + 2 * LANES), x3 = NAME(load)(u + i + 3 * LANES);
        NAME(vector) b0 = {0}, b1 = {0}, b2 = {0}, b3 = {0}, c0 = {0}, c1 = {0}, c2 = {0}, c3 = {0};
        x0 += x0, x1 += x1, x2 += x2, x3 += x3;
        for (int k = terms - 1; k > 0; k--) {
            NAME(vector) t0 = x0 * b0 + (a[k] - c0), t1 = x1 * b1 + (a[k] - c1);
            NAME(vector) t2 = x2 * b2 + (a[k] - c2), t3 = x3 * b3 + (a[k] - c3);
            c0 = b0, c1 = b1, c2 = b2, c3 = b3;
            b0 = t0, b1 = t1, b2 = t2, b3 = t3;
        }
        NAME(store)(out + i, 0.5 * x0 * b0 + (a[0] - c0));
        NAME(store)(out + i + LANES, 0.5 * x1 * b1 + (a[0] - c1));
        NAME(store)(out + i + 2 * LANES, 0.5 * x2 * b2 + (a[0] - c2));
        NAME(store)(out + i + 3 * LANES, 0.5 * x3 * b3 + (a[0] - c3));
    }
}

/* value[i] = f(c[i]) and, unless derivative is NULL, derivative[i] = f'(c[i]) for i < n <=
 * ZONAL__TILE_MAX; c lies in [-1, 1]. All arrays hold ZONAL__TILE_MAX numbers and are used beyond
 * n. */
static TARGET void NAME(fit_row)(const zonal__fit *fit, int64_t n, const double *c, double *value,
                                 double *derivative) {
    double u[ZONAL__TILE_MAX] __attribute__((aligned(64)));
    double low = fit->low, middle = fit->middle, over_half = 1 / fit->half,
           tangent = fit->low_derivative;
    int64_t padded = (n + HORNER_BLOCK - 1) / HORNER_BLOCK * HORNER_BLOCK;
    for (int64_t i = 0; i < n; i++) u[i] = ((c[i] < low ? low : c[i]) - middle) * over_half;
    for (int64_t i = n; i < padded; i++) u[i] = 0;
    if (fit->n_monomial > 0) {
        NAME(horner)(fit->n_value, fit->monomial, padded, u, value);
        if (derivative)
            NAME(horner)(fit->n_derivative, fit->monomial_derivative, padded, u, derivative);
    } else {
        NAME(clenshaw)(fit->n_value, fit->value, padded, u, value);
        if (derivative) NAME(clenshaw)(fit->n_derivative, fit->derivative, padded, u, derivative);
    }
    if (low > -1)
        for (int64_t i = 0; i < n; i++) value[i] += c[i] < low ? tangent * (c[i] - low) : 0;
}

#undef HORNER_BLOCK
#undef CLENSHAW_BLOCK
