/*
 * The eigenvalues of a symmetric matrix: Householder reflections make it tridiagonal, QR steps with
 * Wilkinson's shift, applied implicitly, make that diagonal. (Golub and Van Loan, "Matrix
 * Computations", 4th edition, sections 8.3.1 to 8.3.4.) Backward stable: each eigenvalue is right
 * to a few ulp of the largest one.
 */
#include <float.h>
#include <math.h>

#include "backend/ref/rows.h"

enum { MATRIX, BELOW, REFLECTOR, IMAGE }; /* the parts: [d][d]; [d] each */

static zonal_status create(const zonal__problem *problem, zonal__work **work) {
    int64_t d = problem->dim;
    return zonal__ref_create(problem, 0, (int64_t[4]){d * d, d, d, d}, work);
}

/* H = I - beta v v^T takes a[k+1..n)[k] to a multiple of the first unit vector, v_{k+1} = 1.
 * Returns beta, and in *below what H makes of the column. */
static double reflector(int64_t n, int64_t k, const double *a, double *v, double *below) {
    double scale = 0, tail = 0, first = a[(k + 1) * n + k];
    for (int64_t i = k + 2; i < n; i++) scale = fmax(scale, fabs(a[i * n + k]));
    *below = first;
    v[k + 1] = 1;
    for (int64_t i = k + 2; i < n; i++) v[i] = 0;
    if (scale == 0) return 0; /* the column is as wanted */
    scale = fmax(scale, fabs(first));
    for (int64_t i = k + 2; i < n; i++) tail += (a[i * n + k] / scale) * (a[i * n + k] / scale);
    double top = first / scale, length = sqrt(top * top + tail);
    /* of the two reflections, the one whose difference top - length is formed without cancellation
     */
    double lead = top <= 0 ? top - length : -tail / (top + length);
    for (int64_t i = k + 2; i < n; i++) v[i] = a[i * n + k] / scale / lead;
    *below = scale * length;
    return 2 * lead * lead / (tail + lead * lead);
}

/* p = a v on rows and columns first ... n - 1 of the symmetric a. An element below the diagonal
 * also stands for the one above, so that a is read along its rows, as it lies in memory. */
static void multiply(int64_t n, int64_t first, const double *a, const double *v, double *p) {
    for (int64_t i = first; i < n; i++) {
        const double *row = a + i * n;
        double sum = row[i] * v[i];
        for (int64_t j = first; j < i; j++) {
            sum += row[j] * v[j];
            p[j] += row[j] * v[i];
        }
        p[i] = sum;
    }
}

/* a = Q T Q^T: T's diagonal goes to "diagonal", its subdiagonal to below[0 .. n-2]. Only the lower
 * half of a is used. */
static void tridiagonalise(int64_t n, double *a, double *diagonal, double *below, double *v,
                           double *p) {
    for (int64_t k = 0; k + 2 < n; k++) {
        double beta = reflector(n, k, a, v, &below[k]), half = 0;
        multiply(n, k + 1, a, v, p);
        for (int64_t i = k + 1; i < n; i++) p[i] *= beta;
        for (int64_t i = k + 1; i < n; i++) half += p[i] * v[i];
        for (int64_t i = k + 1; i < n; i++) p[i] -= beta * half / 2 * v[i];
        for (int64_t i = k + 1; i < n; i++)
            for (int64_t j = k + 1; j <= i; j++) a[i * n + j] -= v[i] * p[j] + p[i] * v[j];
    }
    if (n > 1) below[n - 2] = a[(n - 1) * n + n - 2];
    below[n - 1] = 0;
    for (int64_t i = 0; i < n; i++) diagonal[i] = a[i * n + i];
}

/* The eigenvalue of the last 2 x 2 block that is nearer to its last element. */
static double wilkinson_shift(double above, double last, double off) {
    double half = (above - last) / 2;
    return last - off * (off / (half + copysign(hypot(half, off), half)));
}

/* One QR step on rows first ... last, d the diagonal and e the subdiagonal: the first rotation is
 * that of the shifted matrix, the others chase the element it raises outside the three diagonals
 * down and out. */
static void qr_step(int64_t first, int64_t last, double *d, double *e) {
    double x = d[first] - wilkinson_shift(d[last - 1], d[last], e[last - 1]), bulge = e[first];
    for (int64_t k = first; k < last; k++) {
        double length = hypot(x, bulge);
        double c = length > 0 ? x / length : 1, s = length > 0 ? -bulge / length : 0;
        double upper = d[k], lower = d[k + 1], off = e[k];
        double moved = s * (2 * c * off + s * (upper - lower));
        if (k > first) e[k - 1] = length;
        d[k] = upper - moved;
        d[k + 1] = lower + moved;
        e[k] = c * s * (upper - lower) + (c - s) * (c + s) * off;
        if (k + 1 == last) return;
        x = e[k];
        bulge = -s * e[k + 1];
        e[k + 1] *= c;
    }
}

/* Beside neighbours, or beside the whole matrix: where the rank is not full, the neighbours may be
 * nothing but rounding errors themselves, and the iteration would never end. */
static int negligible(const double *d, const double *e, int64_t k, double floor) {
    return fabs(e[k]) <= DBL_EPSILON / 2 * (fabs(d[k]) + fabs(d[k + 1])) || fabs(e[k]) <= floor;
}

static zonal_status diagonalise(int64_t n, double *d, double *e) {
    enum { MOST_STEPS = 60 }; /* two or three per eigenvalue are usual */
    int64_t last = n - 1;
    double largest = 0;
    for (int64_t k = 0; k < n; k++) largest = fmax(largest, fmax(fabs(d[k]), fabs(e[k])));
    double floor = DBL_EPSILON / 64 * largest;
    for (int step = 0; last > 0; step++) {
        if (negligible(d, e, last - 1, floor)) {
            last--;
            step = -1;
            continue;
        }
        if (step == MOST_STEPS)
            return ZONAL_FAIL(ZONAL_NUMERIC,
                              "eigenvalue %lld was not found in %d steps of the QR iteration",
                              (long long)last, MOST_STEPS);
        int64_t first = last - 1; /* of the block that ends here and has not split */
        while (first > 0 && !negligible(d, e, first - 1, floor)) first--;
        qr_step(first, last, d, e);
    }
    return ZONAL_OK;
}

static void sort(int64_t n, double *d) {
    for (int64_t i = 1; i < n; i++) {
        double x = d[i];
        int64_t j = i;
        for (; j > 0 && d[j - 1] > x; j--) d[j] = d[j - 1];
        d[j] = x;
    }
}

static zonal_status run(zonal__work *work, const void *x, uint32_t step, double *value,
                        void *gradient, double factor) {
    int64_t n = work->problem.dim;
    const double *matrix = x;
    double *a = work->part[MATRIX];
    (void)step, (void)gradient, (void)factor;
    for (int64_t i = 0; i < n * n; i++) {
        if (!isfinite(matrix[i]))
            return ZONAL_FAIL(ZONAL_NUMERIC, "the matrix holds %g in row %lld", matrix[i],
                              (long long)(i / n));
        a[i] = matrix[i];
    }
    tridiagonalise(n, a, value, work->part[BELOW], work->part[REFLECTOR], work->part[IMAGE]);
    ZONAL_TRY(diagonalise(n, value, work->part[BELOW]));
    sort(n, value);
    return ZONAL_OK;
}

const zonal__operation_table zonal__ref_eigenvalues = {.create = create,
                                                       .run = run,
                                                       .destroy = zonal__ref_destroy,
                                                       .scratch_bytes = zonal__ref_scratch_bytes};
