/* Part of kernels_template.h: norms, centring and projection of one row. */

/* The sum of squares of pre * z, pre a power of two. */
ZONAL__INLINE TARGET double NAME(squares)(int64_t d, const REAL *z, double pre) {
    NAME(vector) s0 = {0}, s1 = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= d; i += 2 * LANES) {
        NAME(vector) a = NAME(load_real)(z + i) * pre, b = NAME(load_real)(z + i + LANES) * pre;
        s0 += a * a;
        s1 += b * b;
    }
    double sum = NAME(add_lanes)(s0 + s1);
    for (; i < d; i++) sum += (z[i] * pre) * (z[i] * pre);
    return sum;
}

static TARGET zonal__cpu_norm NAME(norm)(int64_t d, const void *row) {
    const REAL *z = row;
    double pre = 1, square = NAME(squares)(d, z, 1), largest = 0;
    int finite = 1;
    /* Squares of floats always fit; those of doubles are scaled where they might not, and anything
     * not finite comes this way too. */
    if (!(square > 0x1p-900 && square < 0x1p1000)) {
        for (int64_t i = 0; i < d; i++) {
            double a = fabs((double)z[i]);
            finite &= a <= 1.7976931348623157e308;
            largest = a > largest ? a : largest;
        }
        if (finite && largest > 0) {
            int exponent;
            frexp(largest, &exponent);
            /* 1/pre and pre must both be normal: subnormal rows are scaled only so far */
            exponent = exponent < -1020 ? -1020 : exponent;
            pre = ldexp(1, -exponent);
            square = NAME(squares)(d, z, pre);
        }
    }
    zonal__cpu_norm norm = {pre, largest > 0 || square > 0 ? 1 / sqrt(square) : 0, finite};
    return norm;
}

static TARGET void NAME(accumulate)(int64_t d, const void *row, double pre, double scale,
                                    double *sum) {
    const REAL *z = row;
    for (int64_t i = 0; i < d; i++) sum[i] += scale * (pre * z[i]);
}

static TARGET double NAME(dot)(int64_t d, const double *a, const double *b) {
    NAME(vector) s0 = {0}, s1 = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= d; i += 2 * LANES) {
        s0 += NAME(load)(a + i) * NAME(load)(b + i);
        s1 += NAME(load)(a + i + LANES) * NAME(load)(b + i + LANES);
    }
    double sum = NAME(add_lanes)(s0 + s1);
    for (; i < d; i++) sum += a[i] * b[i];
    return sum;
}

static TARGET double NAME(centre)(int64_t d, const void *row, double pre, double scale,
                                  const double *mean, void *out) {
    const REAL *z = row;
    REAL *y = out;
    NAME(vector) s = {0};
    int64_t i = 0;
    for (int64_t k = 0; k < d; k++) y[k] = (REAL)(scale * (pre * z[k]) - mean[k]);
    for (; i + LANES <= d; i += LANES) s += NAME(load)(mean + i) * NAME(load_real)(y + i);
    double sum = NAME(add_lanes)(s);
    for (; i < d; i++) sum += mean[i] * y[i];
    return sum;
}

static TARGET void NAME(project)(int64_t d, void *gradient, const void *centred,
                                 const zonal__cpu_projection *p) {
    REAL *g = gradient;
    const REAL *y = centred;
    const double *mean = p->mean;
    double *work = p->work, scale = p->scale, weight = p->weight, factor = p->factor;
    NAME(vector) gx = {0}, xx = {0};
    int64_t i = 0;
    for (int64_t k = 0; k < d; k++) work[k] = scale * g[k] - weight * y[k];
    if (p->base)
        for (int64_t k = 0; k < d; k++) work[k] += p->base[k];
    for (; i + LANES <= d; i += LANES) {
        NAME(vector) x = NAME(load)(mean + i) + NAME(load_real)(y + i);
        gx += NAME(load)(work + i) * x;
        xx += x * x;
    }
    double along = NAME(add_lanes)(gx), square = NAME(add_lanes)(xx);
    for (; i < d; i++) {
        double x = mean[i] + y[i];
        along += work[i] * x;
        square += x * x;
    }
    along /= square;
    for (int64_t k = 0; k < d; k++) g[k] = (REAL)(factor * (work[k] - along * (mean[k] + y[k])));
}

static TARGET void NAME(scale)(int64_t d, double scale, void *row) {
    REAL *a = row;
    for (int64_t i = 0; i < d; i++) a[i] = (REAL)(scale * a[i]);
}

static TARGET void NAME(narrow)(int64_t d, const double *in, void *out) {
    REAL *a = out;
    for (int64_t i = 0; i < d; i++) a[i] = (REAL)in[i];
}

static TARGET void NAME(add)(int64_t d, const double *in, void *row) {
    REAL *a = row;
    for (int64_t i = 0; i < d; i++) a[i] = (REAL)(a[i] + in[i]);
}
