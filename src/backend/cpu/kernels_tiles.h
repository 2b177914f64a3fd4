/* Part of kernels_template.h: what happens to a tile of products between the two matrix products.
 * Each row is worked on in buffers of double that stay in the first-level cache. */
#define BUFFER(name) double name[ZONAL__TILE_MAX] __attribute__((aligned(64)))

/* The cosines of row r, columns "first" on; returns how many. NaN is kept: it fails both tests. */
ZONAL__INLINE TARGET int64_t NAME(cosines)(const zonal__cpu_tile *tile, int64_t r, int64_t first,
                                           double *c) {
    const REAL *s = (const REAL *)tile->s + r * tile->cols + first;
    const double *offset = tile->col_offset + first;
    double own = tile->row_offset[r];
    int64_t n = tile->cols - first;
    for (int64_t k = 0; k < n; k++) {
        double x = s[k] + (own + offset[k]);
        x = x > 1 ? 1 : x;
        c[k] = x < -1 ? -1 : x;
    }
    return n;
}

/* Puts weights back into row r and adds them up, as rounded: the second product uses those. */
ZONAL__INLINE TARGET void NAME(put_weights)(const zonal__cpu_tile *tile, int64_t r, int64_t first,
                                            int64_t n, double *weight) {
    REAL *s = (REAL *)tile->s + r * tile->cols + first;
    for (int64_t k = 0; k < n; k++) {
        s[k] = (REAL)weight[k];
        weight[k] = s[k];
    }
    if (tile->col_sum) {
        double *sum = tile->col_sum + first;
        for (int64_t k = 0; k < n; k++) sum[k] += weight[k];
    }
    tile->row_sum[r] += NAME(sum)(n, weight);
}

/* The lower half of a diagonal tile from its upper half; the diagonal itself only adds a multiple
 * of x_i, which the projection takes away again. */
ZONAL__INLINE TARGET void NAME(mirror)(const zonal__cpu_tile *tile) {
    REAL *s = tile->s;
    int64_t n = tile->cols;
    for (int64_t i = 0; i < n; i++) {
        s[i * n + i] = 0;
        for (int64_t j = 0; j < i; j++) s[i * n + j] = s[j * n + i];
    }
}

static TARGET double NAME(half_distance)(int64_t d, const REAL *y, const REAL *z) {
    double sum = 0;
    for (int64_t k = 0; k < d; k++) sum += ((double)y[k] - z[k]) * ((double)y[k] - z[k]);
    return 0.5 * __builtin_sqrt(sum);
}

/* psi(c) = 1 - chord sqrt((1-c)/2), the root being half the distance of the rows. Where they are
 * near for their spread, |y_i|^2 = 1 - 2 o_i, or at all, rounding of y_i.y_j or of o_i would show
 * (two equal rows would be the root of an ulp apart), and the distance itself is taken. */
ZONAL__INLINE TARGET void NAME(chordal_row)(const zonal__cpu_tile *tile, int64_t r, int64_t first,
                                            double chord, int64_t n, const double *c,
                                            double *value) {
    const REAL *y = (const REAL *)tile->row_y + r * tile->dim;
    const REAL *z = (const REAL *)tile->col_y + first * tile->dim;
    const double *offset = tile->col_offset + first;
    double spread = 1 - tile->row_offset[r];
    for (int64_t k = 0; k < n; k++) value[k] = 1 - chord * __builtin_sqrt((1 - c[k]) * 0.5);
    for (int64_t k = 0; k < n; k++)
        if (1 - c[k] < 1e-3 * (spread - offset[k]) || 1 - c[k] < 1e-7)
            value[k] = 1 - chord * NAME(half_distance)(tile->dim, y, z + k * tile->dim);
}

static TARGET double NAME(pair_tile)(const zonal__cpu_tile *tile, const zonal__pair_function *psi,
                                     int gradient) {
    BUFFER(c);
    BUFFER(value);
    BUFFER(derivative);
    double sum = 0;
    for (int64_t r = 0; r < tile->rows; r++) {
        int64_t first = tile->diagonal ? r + 1 : 0, n = NAME(cosines)(tile, r, first, c);
        if (psi->fit)
            NAME(fit_row)(psi->fit, n, c, value, gradient ? derivative : NULL);
        else
            NAME(chordal_row)(tile, r, first, psi->chord, n, c, value);
        sum += NAME(sum)(n, value);
        if (gradient) NAME(put_weights)(tile, r, first, n, derivative);
    }
    if (gradient && tile->diagonal) NAME(mirror)(tile);
    return sum;
}

static TARGET void NAME(survey_tile)(const zonal__cpu_tile *tile, const zonal__pair_function *psi,
                                     int n_psi, double *sums) {
    BUFFER(c);
    BUFFER(value);
    for (int64_t r = 0; r < tile->rows; r++) {
        int64_t first = tile->diagonal ? r + 1 : 0, n = NAME(cosines)(tile, r, first, c);
        double *peak = tile->col_peak + first, best = tile->row_peak[r];
        for (int k = 0; k < n_psi; k++) {
            if (psi[k].fit)
                NAME(fit_row)(psi[k].fit, n, c, value, NULL);
            else
                NAME(chordal_row)(tile, r, first, psi[k].chord, n, c, value);
            sums[k] += NAME(sum)(n, value);
        }
        for (int64_t k = 0; k < n; k++) peak[k] = c[k] > peak[k] ? c[k] : peak[k];
        for (int64_t k = 0; k < n; k++) best = c[k] > best ? c[k] : best;
        tile->row_peak[r] = best;
    }
}

/* Adds the numbers exp(l) to a running sum scaled by exp(-peak). */
ZONAL__INLINE TARGET void NAME(narrow_row)(int64_t n, const double *l, double *work, double *sum,
                                           double *peak) {
    double top = *peak;
    for (int64_t k = 0; k < n; k++) top = l[k] > top ? l[k] : top;
    for (int64_t k = 0; k < n; k++) work[k] = zonal__exp(l[k] - top);
    *sum = *sum * zonal__exp(*peak - top) + NAME(sum)(n, work);
    *peak = top;
}

/* Adds exp(l[k]) to the running sum of column k. */
ZONAL__INLINE TARGET void NAME(narrow_columns)(int64_t n, const double *l, double *sum,
                                               double *peak) {
    for (int64_t k = 0; k < n; k++) {
        double gap = l[k] - peak[k], small = zonal__exp(gap > 0 ? -gap : gap);
        sum[k] = gap > 0 ? sum[k] * small + 1 : sum[k] + small;
        peak[k] = gap > 0 ? l[k] : peak[k];
    }
}

static TARGET void NAME(kl_sum_tile)(const zonal__cpu_tile *tile, const zonal__fit *log_phi,
                                     zonal__cpu_kl_mode mode) {
    BUFFER(c);
    BUFFER(l);
    for (int64_t r = 0; r < tile->rows; r++) {
        int64_t first = tile->diagonal ? r + 1 : 0, n = NAME(cosines)(tile, r, first, c);
        double *sum = tile->col_sum ? tile->col_sum + first : NULL;
        NAME(fit_row)(log_phi, n, c, l, NULL);
        if (mode == ZONAL__KL_NARROW) {
            if (sum) NAME(narrow_columns)(n, l, sum, tile->col_peak + first);
            NAME(narrow_row)(n, l, c, &tile->row_sum[r], &tile->row_peak[r]);
            continue;
        }
        if (mode == ZONAL__KL_BROAD)
            for (int64_t k = 0; k < n; k++) l[k] = zonal__expm1_small(l[k]);
        else
            for (int64_t k = 0; k < n; k++) l[k] = zonal__exp(l[k]);
        for (int64_t k = 0; sum && k < n; k++) sum[k] += l[k];
        tile->row_sum[r] += NAME(sum)(n, l);
    }
}

static TARGET void NAME(kl_weight_tile)(const zonal__cpu_tile *tile, const zonal__fit *log_phi,
                                        zonal__cpu_kl_mode mode) {
    BUFFER(c);
    BUFFER(l);
    BUFFER(derivative);
    for (int64_t r = 0; r < tile->rows; r++) {
        int64_t first = tile->diagonal ? r + 1 : 0, n = NAME(cosines)(tile, r, first, c);
        const double *other = tile->col_log + first;
        double own = tile->row_log[r];
        NAME(fit_row)(log_phi, n, c, l, derivative);
        if (mode == ZONAL__KL_NARROW)
            for (int64_t k = 0; k < n; k++)
                derivative[k] *= zonal__exp(l[k] - own) + zonal__exp(l[k] - other[k]);
        else
            for (int64_t k = 0; k < n; k++) derivative[k] *= zonal__exp(l[k]) * (own + other[k]);
        NAME(put_weights)(tile, r, first, n, derivative);
    }
    if (tile->diagonal) NAME(mirror)(tile);
}

#undef BUFFER
