#include "report/pca.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "backend/device.h"
#include "core/memory.h"

enum { REFINEMENTS = 4 }; /* of an eigenvector: one or two do from an exact eigenvalue */

/* a [n][n] = x x^T for x [n][dim]. */
static void gram(int64_t n, int64_t dim, const double *x, double *a) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t k = 0; k < dim; k++) sum += x[i * dim + k] * x[j * dim + k];
            a[i * n + j] = a[j * n + i] = sum;
        }
}

static zonal_status eigenvalues(int64_t n, const double *a, double *value) {
    const zonal__operation_table *operation =
        zonal__device_cpu()->backend->operations[ZONAL__EIGENVALUES];
    const zonal__problem problem = {.rows = n, .dim = n, .precision = ZONAL_PRECISION_DOUBLE};
    zonal__work *work;
    zonal_status status;
    ZONAL_TRY(operation->create(&problem, &work));
    status = operation->run(work, a, 0, value, NULL, 0);
    operation->destroy(work);
    return status;
}

/* ---- eigenvectors: inverse iteration --------------------------------------------------------- */

/* Gaussian elimination with row exchanges, in place. A pivot that vanishes, as it should where the
 * shift is an eigenvalue, is replaced by "least". */
static void factorise(int64_t n, double *a, int64_t *exchange, double least) {
    for (int64_t k = 0; k < n; k++) {
        int64_t best = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[best * n + k])) best = i;
        exchange[k] = best;
        for (int64_t j = 0; j < n && best != k; j++) {
            double swap = a[k * n + j];
            a[k * n + j] = a[best * n + j];
            a[best * n + j] = swap;
        }
        if (!(fabs(a[k * n + k]) > least)) a[k * n + k] = least;
        for (int64_t i = k + 1; i < n; i++) {
            double factor = a[i * n + k] /= a[k * n + k];
            for (int64_t j = k + 1; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
        }
    }
}

/* The rows were exchanged as a whole, multipliers too: all exchanges come first. */
static void solve(int64_t n, const double *a, const int64_t *exchange, double *v) {
    for (int64_t k = 0; k < n; k++) {
        double swap = v[k];
        v[k] = v[exchange[k]];
        v[exchange[k]] = swap;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) v[i] -= a[i * n + j] * v[j];
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t j = i + 1; j < n; j++) v[i] -= a[i * n + j] * v[j];
        v[i] /= a[i * n + i];
    }
}

static void normalise(int64_t n, double *v) {
    double largest = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(v[i]));
    for (int64_t i = 0; i < n && largest > 0; i++) {
        v[i] /= largest; /* so that no square overflows */
        sum += v[i] * v[i];
    }
    for (int64_t i = 0; i < n && sum > 0; i++) v[i] /= sqrt(sum);
}

/* Takes off v what lies along the eigenvectors before it: those of close eigenvalues mix. */
static void separate(int64_t n, int before, const double *vectors, double *v) {
    for (int c = 0; c < before; c++) {
        double along = 0;
        for (int64_t i = 0; i < n; i++) along += vectors[c * n + i] * v[i];
        for (int64_t i = 0; i < n; i++) v[i] -= along * vectors[c * n + i];
    }
}

/* The eigenvector number "which" of a [n][n], for its eigenvalue, behind those in vectors [][n]. */
static zonal_status eigenvector(int64_t n, const double *a, double value, double largest, int which,
                                double *vectors) {
    double *shifted, *v = vectors + which * n;
    int64_t *exchange;
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&shifted, n * n, "the principal axes"));
    status = ZONAL_NEW(&exchange, n, "the principal axes");
    if (status == ZONAL_OK) {
        memcpy(shifted, a, (size_t)(n * n) * sizeof *a);
        for (int64_t i = 0; i < n; i++) shifted[i * n + i] -= value;
        factorise(n, shifted, exchange, DBL_EPSILON * largest);
        for (int64_t i = 0; i < n; i++) v[i] = 1 + (double)(i * 7919 % 101) / 101; /* any start */
        for (int k = 0; k < REFINEMENTS; k++) {
            separate(n, which, vectors, v);
            normalise(n, v);
            solve(n, shifted, exchange, v);
        }
        separate(n, which, vectors, v);
        normalise(n, v);
    }
    zonal__free(exchange);
    zonal__free(shifted);
    return status;
}

/* ---- the two --------------------------------------------------------------------------------- */

static void centre(int64_t n, int64_t dim, const double *x, double *out) {
    for (int64_t k = 0; k < dim; k++) {
        double mean = 0;
        for (int64_t i = 0; i < n; i++) mean += x[i * dim + k];
        mean /= (double)n;
        for (int64_t i = 0; i < n; i++) out[i * dim + k] = x[i * dim + k] - mean;
    }
}

/* The coordinate along an axis is the eigenvector of the Gram matrix times the singular value. */
static void put_scores(int64_t n, int components, int c, const double *v, double length,
                       double *scores) {
    int64_t farthest = 0;
    for (int64_t i = 1; i < n; i++)
        if (fabs(v[i]) > fabs(v[farthest])) farthest = i;
    if (v[farthest] < 0) length = -length;
    for (int64_t i = 0; i < n; i++) scores[i * components + c] = length * v[i];
}

/* memory: [n][dim] centred rows, [n][n] their Gram matrix, [n] eigenvalues, [components][n]. */
static zonal_status find_axes(int64_t n, int64_t dim, const double *x, int components,
                              double *memory, double *scores, double *share) {
    double *centred = memory, *a = centred + n * dim, *value = a + n * n, *vectors = value + n;
    double total = 0, size = 0;
    centre(n, dim, x, centred);
    gram(n, dim, centred, a);
    ZONAL_TRY(eigenvalues(n, a, value));
    for (int64_t i = 0; i < n * dim; i++) size += x[i] * x[i];
    for (int64_t i = 0; i < n; i++) total += fmax(value[i], 0);
    if (!(total > 1e-12 * size))
        return ZONAL_FAIL(ZONAL_NUMERIC, "the embeddings of all images are the same");
    for (int c = 0; c < components; c++) {
        double variance = fmax(value[n - 1 - c], 0);
        ZONAL_TRY(eigenvector(n, a, variance, value[n - 1], c, vectors));
        put_scores(n, components, c, vectors + c * n, sqrt(variance), scores);
        share[c] = variance / total;
    }
    return ZONAL_OK;
}

zonal_status zonal__pca(int64_t n, int64_t dim, const double *x, int components, double *scores,
                        double *share) {
    double *memory;
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&memory, n * dim + n * n + n + components * n, "the principal axes"));
    status = find_axes(n, dim, x, components, memory, scores, share);
    zonal__free(memory);
    return status;
}

static void transpose(int64_t n, int64_t dim, const double *x, double *out) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < dim; k++) out[k * n + i] = x[i * dim + k];
}

zonal_status zonal__singular_values(int64_t n, int64_t dim, const double *x, double *value) {
    const int64_t side = n < dim ? n : dim;
    double *memory, *a, *rows;
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&memory, side * side + n * dim, "the singular values"));
    a = memory;
    rows = memory + side * side;
    if (dim < n) transpose(n, dim, x, rows);
    gram(side, dim < n ? n : dim, dim < n ? rows : x, a);
    status = eigenvalues(side, a, value);
    for (int64_t i = 0; i < side && status == ZONAL_OK; i++) value[i] = sqrt(fmax(value[i], 0));
    for (int64_t i = 0; i < side / 2; i++) {
        double swap = value[i];
        value[i] = value[side - 1 - i];
        value[side - 1 - i] = swap;
    }
    zonal__free(memory);
    return status;
}
