/* Part of kernels_template.h: the empirical characteristic function of one slice, and its
 * gradients. Powers of z come from the two before them:
 *
 *     z^(k+1) = 2 cos(step u) z^k - z^(k-1)
 *
 * whose error after k of them is about k^2 times 1e-16, far below what a float projection brings
 * along. Doubles are multiplied by z, which is twice the work: k times 1e-16. */

/* e^(i x) for x = t u, given x / (2 pi). */
ZONAL__INLINE TARGET void NAME(unit)(double x, double turns, double *re, double *im) {
    if (SINGLE)
        zonal__sincos_turns(turns, im, re);
    else
        zonal__sincos(x, im, re);
}

/* re, im = e^(i t u_k) for the slice's n numbers, filled up with zeros to a whole block. */
ZONAL__INLINE TARGET void NAME(units_at)(const zonal__cpu_slice *slice, double t, double *re,
                                         double *im) {
    const REAL *s = slice->s;
    double scale = slice->scale * t, turns = scale * 0.15915494309189535, shift = slice->shift;
    int64_t n = slice->n, large = 0;
    for (int64_t i = 0; i < n; i++) {
        double u = s[i] + shift;
        large |= !(__builtin_fabs(scale * u) <= ZONAL__SINCOS_LIMIT);
        NAME(unit)(scale * u, turns * u, &re[i], &im[i]);
    }
    for (int64_t i = 0; large && i < n; i++) {
        double x = scale * (s[i] + shift);
        if (__builtin_fabs(x) <= ZONAL__SINCOS_LIMIT) continue;
        re[i] = cos(x);
        im[i] = sin(x);
    }
    for (int64_t i = n; i % ZONAL__SLICE_BLOCK; i++) re[i] = im[i] = 0;
}

static TARGET void NAME(slice_units)(const zonal__cpu_slice *slice) {
    NAME(units_at)(slice, slice->step, slice->z_re, slice->z_im);
    if (slice->knot0 != 0) NAME(units_at)(slice, slice->knot0, slice->w_re, slice->w_im);
}

/* sums += the sum of four vectors */
ZONAL__INLINE TARGET void NAME(add_four)(const NAME(vector) x[4], double *sums) {
    NAME(store)(sums, NAME(load)(sums) + ((x[0] + x[1]) + (x[2] + x[3])));
}

/* Adds x, and what follows it by the rule above where p comes before it, over four vectors to
 * sums[0], sums[1], ...: [knots][2][LANES], of which this is one half. c = 2 cos(step u). Two knots
 * at a time, so that x and p change places without being copied. */
ZONAL__INLINE TARGET void NAME(add_series)(int knots, const NAME(vector) c[4], NAME(vector) x[4],
                                           NAME(vector) p[4], double *sums) {
    for (int k = 0; k + 1 < knots; k += 2, sums += 4 * LANES) {
        NAME(add_four)(x, sums);
        for (int v = 0; v < 4; v++) p[v] = c[v] * x[v] - p[v];
        NAME(add_four)(p, sums + 2 * LANES);
        for (int v = 0; v < 4; v++) x[v] = c[v] * p[v] - x[v];
    }
    if (knots % 2) NAME(add_four)(x, sums);
}

/* Adds w, w z, w z^2, ... over a block's four vectors to sums[0], sums[1], ...: [knots][2][LANES].
 * Narrow vectors take several turns per block. */
ZONAL__INLINE TARGET void NAME(add_powers)(int knots, const double *w_re, const double *w_im,
                                           const double *z_re, const double *z_im, double *sums) {
    NAME(vector) c[4], x[4], y[4], p[4], q[4];
    for (int v = 0; v < 4; v++) {
        NAME(vector) a = NAME(load)(z_re + v * LANES), b = NAME(load)(z_im + v * LANES);
        x[v] = NAME(load)(w_re + v * LANES), y[v] = NAME(load)(w_im + v * LANES);
        p[v] = x[v] * a + y[v] * b, q[v] = y[v] * a - x[v] * b; /* w / z */
        c[v] = a + a;
    }
    NAME(add_series)(knots, c, x, p, sums);
    NAME(add_series)(knots, c, y, q, sums + LANES);
}

/* The same by multiplication. */
ZONAL__INLINE TARGET void NAME(multiply_powers)(int knots, const double *w_re, const double *w_im,
                                                const double *z_re, const double *z_im,
                                                double *sums) {
    NAME(vector) a0 = NAME(load)(z_re), a1 = NAME(load)(z_re + LANES);
    NAME(vector) a2 = NAME(load)(z_re + 2 * LANES), a3 = NAME(load)(z_re + 3 * LANES);
    NAME(vector) b0 = NAME(load)(z_im), b1 = NAME(load)(z_im + LANES);
    NAME(vector) b2 = NAME(load)(z_im + 2 * LANES), b3 = NAME(load)(z_im + 3 * LANES);
    NAME(vector) x0 = NAME(load)(w_re), x1 = NAME(load)(w_re + LANES);
    NAME(vector) x2 = NAME(load)(w_re + 2 * LANES), x3 = NAME(load)(w_re + 3 * LANES);
    NAME(vector) y0 = NAME(load)(w_im), y1 = NAME(load)(w_im + LANES);
    NAME(vector) y2 = NAME(load)(w_im + 2 * LANES), y3 = NAME(load)(w_im + 3 * LANES), t;
    for (int k = 0; k < knots; k++, sums += 2 * LANES) {
        NAME(store)(sums, NAME(load)(sums) + ((x0 + x1) + (x2 + x3)));
        NAME(store)(sums + LANES, NAME(load)(sums + LANES) + ((y0 + y1) + (y2 + y3)));
        t = x0 * a0 - y0 * b0, y0 = x0 * b0 + y0 * a0, x0 = t;
        t = x1 * a1 - y1 * b1, y1 = x1 * b1 + y1 * a1, x1 = t;
        t = x2 * a2 - y2 * b2, y2 = x2 * b2 + y2 * a2, x2 = t;
        t = x3 * a3 - y3 * b3, y3 = x3 * b3 + y3 * a3, x3 = t;
    }
}

static TARGET void NAME(slice_sums)(const zonal__cpu_slice *slice, double *re, double *im) {
    /* at t = 0 the sum is n; starting at z also lets the zeros of the last block add nothing */
    int skip = slice->knot0 == 0, knots = slice->knots - skip;
    const double *w_re = skip ? slice->z_re : slice->w_re;
    const double *w_im = skip ? slice->z_im : slice->w_im;
    double *sums = slice->work;
    memset(sums, 0, (size_t)(2 * LANES * knots) * sizeof *sums);
    int64_t end = (slice->n + ZONAL__SLICE_BLOCK - 1) / ZONAL__SLICE_BLOCK * ZONAL__SLICE_BLOCK;
    const double *z_re = slice->z_re, *z_im = slice->z_im;
    for (int64_t i = 0; i < end; i += 4 * LANES)
        if (SINGLE)
            NAME(add_powers)(knots, w_re + i, w_im + i, z_re + i, z_im + i, sums);
        else
            NAME(multiply_powers)(knots, w_re + i, w_im + i, z_re + i, z_im + i, sums);
    if (skip) {
        re[0] = (double)slice->n;
        im[0] = 0;
    }
    for (int k = 0; k < knots; k++) {
        re[k + skip] = NAME(add_lanes)(NAME(load)(sums + 2 * LANES * k));
        im[k + skip] = NAME(add_lanes)(NAME(load)(sums + 2 * LANES * k + LANES));
    }
}

/* Clenshaw's rule for four vectors: b_k = a_k + c b_{k+1} - b_{k+2}, c = 2 cos(step u), down to
 * x = b_0 and p = b_1. */
ZONAL__INLINE TARGET void NAME(fold_series)(int knots, const double *a, const NAME(vector) c[4],
                                            NAME(vector) x[4], NAME(vector) p[4]) {
    const NAME(vector) zero = {0};
    int k = knots - knots % 2;
    for (int v = 0; v < 4; v++) p[v] = zero, x[v] = knots % 2 ? zero + a[k] : zero;
    for (; k > 0; k -= 2) {
        for (int v = 0; v < 4; v++) p[v] = c[v] * x[v] + (a[k - 1] - p[v]);
        for (int v = 0; v < 4; v++) x[v] = c[v] * p[v] + (a[k - 2] - x[v]);
    }
}

/* p = sum_k (re + i im)[k] z^k = b_0 - b_1 / z for four vectors; then the real part of p w. */
ZONAL__INLINE TARGET void NAME(gradient_by_clenshaw)(int knots, const double *re, const double *im,
                                                     const double *w_re, const double *w_im,
                                                     const double *z_re, const double *z_im,
                                                     double *out) {
    NAME(vector) c[4], x[4], y[4], p[4], q[4];
    for (int v = 0; v < 4; v++) c[v] = 2 * NAME(load)(z_re + v * LANES);
    NAME(fold_series)(knots, re, c, x, p);
    NAME(fold_series)(knots, im, c, y, q);
    for (int v = 0; v < 4; v++) {
        NAME(vector) a = NAME(load)(z_re + v * LANES), b = NAME(load)(z_im + v * LANES);
        NAME(vector) real = x[v] - (p[v] * a + q[v] * b);
        if (w_re)
            real = real * NAME(load)(w_re + v * LANES) -
                   (y[v] - (q[v] * a - p[v] * b)) * NAME(load)(w_im + v * LANES);
        NAME(store)(out + v * LANES, real);
    }
}

/* The same by Horner's rule. */
ZONAL__INLINE TARGET void NAME(gradient_by_horner)(int knots, const double *re, const double *im,
                                                   const double *w_re, const double *w_im,
                                                   const double *z_re, const double *z_im,
                                                   double *out) {
    NAME(vector) a0 = NAME(load)(z_re), a1 = NAME(load)(z_re + LANES);
    NAME(vector) a2 = NAME(load)(z_re + 2 * LANES), a3 = NAME(load)(z_re + 3 * LANES);
    NAME(vector) b0 = NAME(load)(z_im), b1 = NAME(load)(z_im + LANES);
    NAME(vector) b2 = NAME(load)(z_im + 2 * LANES), b3 = NAME(load)(z_im + 3 * LANES);
    NAME(vector) x0 = {0}, x1 = {0}, x2 = {0}, x3 = {0}, y0 = {0}, y1 = {0}, y2 = {0}, y3 = {0}, t;
    for (int k = knots - 1; k >= 0; k--) {
        t = x0 * a0 + (re[k] - y0 * b0), y0 = x0 * b0 + (y0 * a0 + im[k]), x0 = t;
        t = x1 * a1 + (re[k] - y1 * b1), y1 = x1 * b1 + (y1 * a1 + im[k]), x1 = t;
        t = x2 * a2 + (re[k] - y2 * b2), y2 = x2 * b2 + (y2 * a2 + im[k]), x2 = t;
        t = x3 * a3 + (re[k] - y3 * b3), y3 = x3 * b3 + (y3 * a3 + im[k]), x3 = t;
    }
    if (w_re) {
        x0 = x0 * NAME(load)(w_re) - y0 * NAME(load)(w_im);
        x1 = x1 * NAME(load)(w_re + LANES) - y1 * NAME(load)(w_im + LANES);
        x2 = x2 * NAME(load)(w_re + 2 * LANES) - y2 * NAME(load)(w_im + 2 * LANES);
        x3 = x3 * NAME(load)(w_re + 3 * LANES) - y3 * NAME(load)(w_im + 3 * LANES);
    }
    NAME(store)(out, x0);
    NAME(store)(out + LANES, x1);
    NAME(store)(out + 2 * LANES, x2);
    NAME(store)(out + 3 * LANES, x3);
}

static TARGET void NAME(slice_gradients)(const zonal__cpu_slice *slice, const double *re,
                                         const double *im) {
    REAL *s = slice->s;
    const double *w_re = slice->knot0 == 0 ? NULL : slice->w_re, *w_im = slice->w_im;
    for (int64_t i = 0; i < slice->n; i += 4 * LANES) {
        double out[4 * VECTOR / sizeof(double)];
        int64_t count = slice->n - i < 4 * LANES ? slice->n - i : 4 * LANES;
        const double *z_re = slice->z_re + i, *z_im = slice->z_im + i;
        const double *own_re = w_re ? w_re + i : NULL, *own_im = w_re ? w_im + i : NULL;
        if (SINGLE)
            NAME(gradient_by_clenshaw)(slice->knots, re, im, own_re, own_im, z_re, z_im, out);
        else
            NAME(gradient_by_horner)(slice->knots, re, im, own_re, own_im, z_re, z_im, out);
        for (int64_t k = 0; k < count; k++) s[i + k] = (REAL)out[k];
    }
}
