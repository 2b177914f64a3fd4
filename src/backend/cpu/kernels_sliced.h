/* Part of kernels_template.h: the empirical characteristic function of one slice, and its
 * gradients. Powers of z come by multiplication: the error after k of them is about k times 1e-16.
 */

/* re, im = e^(i t u_k) for the slice's n numbers, filled up with zeros to a whole block. */
ZONAL__INLINE TARGET void NAME(units_at)(const zonal__cpu_slice *slice, double t, double *re,
                                         double *im) {
    const REAL *s = slice->s;
    double scale = slice->scale * t, shift = slice->shift;
    int64_t n = slice->n, large = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = scale * (s[i] + shift);
        large |= !(__builtin_fabs(x) <= ZONAL__SINCOS_LIMIT);
        zonal__sincos(x, &im[i], &re[i]);
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

/* Adds w, w z, w z^2, ... over a block's four vectors to sums[0], sums[1], ...: [knots][2][LANES].
 * Narrow vectors take several turns per block. */
ZONAL__INLINE TARGET void NAME(slice_block)(int knots, const double *w_re, const double *w_im,
                                            const double *z_re, const double *z_im, double *sums) {
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
    for (int64_t i = 0; i < end; i += 4 * LANES)
        NAME(slice_block)(knots, w_re + i, w_im + i, slice->z_re + i, slice->z_im + i, sums);
    if (skip) {
        re[0] = (double)slice->n;
        im[0] = 0;
    }
    for (int k = 0; k < knots; k++) {
        re[k + skip] = NAME(add_lanes)(NAME(load)(sums + 2 * LANES * k));
        im[k + skip] = NAME(add_lanes)(NAME(load)(sums + 2 * LANES * k + LANES));
    }
}

/* p = sum_k (re + i im)[k] z^k by Horner's rule, for four vectors; then the real part of p w. */
ZONAL__INLINE TARGET void NAME(gradient_block)(int knots, const double *re, const double *im,
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
        NAME(gradient_block)
        (slice->knots, re, im, w_re ? w_re + i : NULL, w_re ? w_im + i : NULL, slice->z_re + i,
         slice->z_im + i, out);
        for (int64_t k = 0; k < count; k++) s[i + k] = (REAL)out[k];
    }
}
