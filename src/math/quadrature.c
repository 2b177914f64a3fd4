#include "math/quadrature.h"

#include <float.h>
#include <math.h>

#include "core/memory.h"

/* beta_k, the off-diagonal of the Jacobi matrix between orthonormal polynomials k-1 and k:
 * beta_k^2 = k (k+d-3) / ((2k+d-2)(2k+d-4)). At d = 2, k = 1 that is 0/0; 1/d is right for all d.
 */
static long double off_diagonal(int k, int64_t d) {
    if (k == 1) return sqrtl(1.0L / (long double)d);
    return sqrtl((long double)k * (long double)(k + d - 3) /
                 ((long double)(2 * k + d - 2) * (long double)(2 * k + d - 4)));
}

/* Eigenvalues of the symmetric tridiagonal matrix with diagonal "diagonal" and off-diagonal
 * off[0..n-2], by implicit QL with Wilkinson's shift; off[n-1] is scratch. Returns 0 when one of
 * them does not converge. */
static int tridiagonal_eigenvalues(int n, long double *diagonal, long double *off) {
    off[n - 1] = 0;
    for (int l = 0; l < n; l++) {
        for (int sweep = 0;; sweep++) {
            int m = l;
            while (m < n - 1 &&
                   fabsl(off[m]) > LDBL_EPSILON * (fabsl(diagonal[m]) + fabsl(diagonal[m + 1])) &&
                   fabsl(off[m]) > LDBL_MIN)
                m++;
            if (m == l) break;
            if (sweep == 100) return 0;
            long double g = (diagonal[l + 1] - diagonal[l]) / (2 * off[l]);
            long double r = hypotl(g, 1);
            g = diagonal[m] - diagonal[l] + off[l] / (g + copysignl(r, g));
            long double s = 1, c = 1, p = 0;
            int i;
            for (i = m - 1; i >= l; i--) {
                long double f = s * off[i], b = c * off[i];
                r = hypotl(f, g);
                off[i + 1] = r;
                if (r == 0) { /* the matrix splits here: start over on the smaller block */
                    diagonal[i + 1] -= p;
                    off[m] = 0;
                    break;
                }
                s = f / r;
                c = g / r;
                g = diagonal[i + 1] - p;
                r = (diagonal[i] - g) * s + 2 * c * b;
                p = s * r;
                diagonal[i + 1] = g + p;
                g = c * r - b;
            }
            if (r == 0 && i >= l) continue;
            diagonal[l] -= p;
            off[l] = g;
            off[m] = 0;
        }
    }
    return 1;
}

/* The orthonormal polynomials p_0 ... p_n at x: returns sum_{k<n} p_k^2 and sets the Newton step
 * p_n / p_n'. */
static long double orthonormal_sum(int n, int64_t d, long double x, long double *newton) {
    long double p0 = 0, p1 = 1, q0 = 0, q1 = 0, sum = 0;
    long double beta = 0;
    for (int k = 0; k < n; k++) {
        sum += p1 * p1;
        long double next_beta = off_diagonal(k + 1, d);
        long double p2 = (x * p1 - beta * p0) / next_beta;
        long double q2 = (p1 + x * q1 - beta * q0) / next_beta;
        p0 = p1, p1 = p2, q0 = q1, q1 = q2;
        beta = next_beta;
    }
    *newton = q1 != 0 ? p1 / q1 : 0;
    return sum;
}

zonal_status zonal__gauss_sphere(int n, int64_t d, long double *node, long double *weight) {
    long double step, total = 0;
    for (int k = 0; k < n; k++) {
        node[k] = 0;
        weight[k] = off_diagonal(k + 1, d);
    }
    if (!tridiagonal_eigenvalues(n, node, weight))
        return ZONAL_FAIL(ZONAL_NUMERIC, "%d Gauss nodes in dimension %lld did not converge", n,
                          (long long)d);
    for (int i = 1; i < n; i++) { /* QL leaves them nearly sorted */
        long double x = node[i];
        int j = i;
        for (; j > 0 && node[j - 1] > x; j--) node[j] = node[j - 1];
        node[j] = x;
    }
    for (int k = 0; k <= (n - 1) / 2; k++) { /* symmetric: half of them, mirrored */
        long double x = k == n - 1 - k ? 0 : (node[k] - node[n - 1 - k]) / 2;
        if (x != 0) {
            orthonormal_sum(n, d, x, &step);
            x -= step;
        }
        long double w = 1 / orthonormal_sum(n, d, x, &step);
        node[k] = x, node[n - 1 - k] = -x;
        weight[k] = w, weight[n - 1 - k] = w;
    }
    for (int k = 0; k < n; k++) total += weight[k];
    for (int k = 0; k < n; k++) weight[k] /= total;
    return ZONAL_OK;
}
