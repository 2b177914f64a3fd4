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

static TARGET double NAME(moment_row)(int64_t d, const double *c, double own, const double *mean,
                                      void *out) {
    REAL *a = out;
    NAME(vector) s0 = {0}, s1 = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= d; i += 2 * LANES) {
        NAME(vector) c0 = NAME(load)(c + i), c1 = NAME(load)(c + i + LANES);
        NAME(vector) m0 = NAME(load)(mean + i), m1 = NAME(load)(mean + i + LANES);
        NAME(vector) full0 = c0 + m0 * own, full1 = c1 + m1 * own;
        s0 += full0 * full0, s1 += full1 * full1;
    }
    double square = NAME(add_lanes)(s0 + s1);
    for (; i < d; i++) {
        double full = c[i] + own * mean[i];
        square += full * full;
    }
    for (int64_t k = 0; k < d; k++) a[k] = (REAL)c[k];
    return square;
}

static TARGET double NAME(centre)(int64_t d, const void *row, double pre, double scale,
                                  const double *mean, void *out) {
    const REAL *z = row;
    REAL *y = out;
    NAME(vector) s0 = {0}, s1 = {0};
    int64_t i = 0;
    for (int64_t k = 0; k < d; k++) y[k] = (REAL)(scale * (pre * z[k]) - mean[k]);
    for (; i + 2 * LANES <= d; i += 2 * LANES) {
        s0 += NAME(load)(mean + i) * NAME(load_real)(y + i);
        s1 += NAME(load)(mean + i + LANES) * NAME(load_real)(y + i + LANES);
    }
    double sum = NAME(add_lanes)(s0 + s1);
    for (; i < d; i++) sum += mean[i] * y[i];
    return sum;
}

/* p->work = p->scale * g + p->base - p->weight * y, LANES of them; adds its product with x = mean +
 * y to *gx and the square of x to *xx. */
ZONAL__INLINE TARGET void NAME(gather)(const zonal__cpu_projection *p, int64_t i, const REAL *g,
                                       const REAL *y, NAME(vector) * gx, NAME(vector) * xx) {
    NAME(vector) own = NAME(load_real)(y + i), x = NAME(load)(p->mean + i) + own;
    NAME(vector) sum = NAME(load_real)(g + i) * p->scale - own * p->weight;
    if (p->base) sum += NAME(load)(p->base + i);
    NAME(store)(p->work + i, sum);
    *gx += sum * x;
    *xx += x * x;
}

static TARGET void NAME(project)(int64_t d, void *gradient, const void *centred,
                                 const zonal__cpu_projection *projection) {
    const zonal__cpu_projection own = *projection, *p = &own; /* nobody else writes it */
    REAL *g = gradient;
    const REAL *y = centred;
    const double *mean = p->mean;
    double *work = p->work, factor = p->factor;
    NAME(vector) gx0 = {0}, gx1 = {0}, xx0 = {0}, xx1 = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= d; i += 2 * LANES) {
        NAME(gather)(p, i, g, y, &gx0, &xx0);
        NAME(gather)(p, i + LANES, g, y, &gx1, &xx1);
    }
    double along = NAME(add_lanes)(gx0 + gx1), square = NAME(add_lanes)(xx0 + xx1);
    for (; i < d; i++) {
        double x = mean[i] + y[i];
        work[i] = p->scale * g[i] - p->weight * y[i] + (p->base ? p->base[i] : 0);
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
