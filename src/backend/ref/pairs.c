/*
 * The mean of psi over pairs, by the formula, with a stored B x B matrix of weights:
 *
 *     value = 1/B^2 sum_{i != j} psi(c_ij),    g_i = 2/B^2 sum_{j != i} psi'(c_ij) x_j
 *
 * psi is evaluated from the kernel itself, in long double, not from its fit. KL shares the frame:
 *
 *     value = mean_i log p_i,   p_i = 1/(B-1) sum_{j != i} phi(c_ij)
 *     g_i = 1/B sum_{j != i} phi'(c_ij) (1/S_i + 1/S_j) x_j,   S_i = sum_{j != i} phi(c_ij)
 */
#include <math.h>

#include "backend/ref/rows.h"

enum { WEIGHTS, LOG_S, ROW }; /* the parts: [B][B], [B] log S_i of KL, [d] */

static zonal_status create(const zonal__problem *problem, zonal__work **work) {
    int64_t b = zonal__ranks_batch(problem->ranks, problem->rows);
    return zonal__ref_create(problem, b, (int64_t[4]){b * b, b, problem->dim}, work);
}

/* gradient_i = factor projected (sum over j != i of w_ij x_j) */
static void gather(const zonal__work *work, double factor, void *gradient) {
    int64_t b = work->batch, d = work->problem.dim;
    double *g = work->part[ROW];
    for (int64_t i = work->first; i < work->end; i++) {
        const double *w = work->part[WEIGHTS] + i * b;
        for (int64_t k = 0; k < d; k++) g[k] = 0;
        for (int64_t j = 0; j < b; j++)
            for (int64_t k = 0; j != i && k < d; k++) g[k] += w[j] * work->unit[j * d + k];
        zonal__ref_project(work, i, g, factor, gradient);
    }
}

static zonal_status run_pairs(zonal__work *work, const void *x, uint32_t step, double *value,
                              void *gradient, double scale) {
    const zonal__pair_function *psi = work->problem.psi;
    int64_t b = work->batch;
    double *w = work->part[WEIGHTS];
    long double sum = 0;
    (void)step;
    *value = NAN;
    ZONAL_TRY(zonal__ref_load(work, 0, x, gradient));
    for (int64_t i = 0; i < b; i++)
        for (int64_t j = 0; j < i; j++) {
            long double c = zonal__ref_cosine(&work->problem, work->unit, i, j);
            sum += 2 * psi->value(psi->context, c);
            if (gradient) w[i * b + j] = w[j * b + i] = (double)psi->derivative(psi->context, c);
        }
    double b2 = (double)b * (double)b;
    *value = zonal__problem_value(&work->problem, (double)(sum / b2));
    if (gradient) gather(work, 2 * (scale * work->problem.factor) / b2, gradient);
    return ZONAL_OK;
}

/* log S_i = m + log1p(sum of expm1(l - m) + n - 1) keeps the digits of broad kernels, whose log phi
 * spans less than rounding leaves of 1 + log phi; the plain log-sum-exp keeps those of narrow ones.
 */
static long double log_density(const zonal__work *work, int64_t i, const double *l) {
    int64_t b = work->batch;
    int keep = work->problem.keep_diagonal;
    long double top = keep ? 0 : -INFINITY, low = 0, plain = 0, less = 0, n = 0;
    for (int64_t j = 0; j < b; j++)
        if (j != i) {
            top = fmaxl(top, l[j]);
            low = fminl(low, l[j]);
        }
    for (int64_t j = 0; j < b; j++) {
        if (j == i && !keep) continue;
        long double above = (j == i ? 0 : (long double)l[j]) - top;
        plain += expl(above);
        less += expm1l(above);
        n += 1;
    }
    return low > -1 ? top + log1pl(less / n) : top + logl(plain / n);
}

static zonal_status run_kl(zonal__work *work, const void *x, uint32_t step, double *value,
                           void *gradient, double scale) {
    const zonal__fit *log_phi = work->problem.log_phi;
    int64_t b = work->batch;
    double n = (double)(work->problem.keep_diagonal ? b : b - 1);
    double *l = work->part[WEIGHTS], *log_s = work->part[LOG_S]; /* l becomes the weights */
    long double sum = 0;
    (void)step;
    *value = NAN;
    ZONAL_TRY(zonal__ref_load(work, 0, x, gradient));
    for (int64_t i = 0; i < b; i++)
        for (int64_t j = 0; j < i; j++) {
            double c = (double)zonal__ref_cosine(&work->problem, work->unit, i, j);
            l[i * b + j] = l[j * b + i] = zonal__fit_value(log_phi, c);
        }
    for (int64_t i = 0; i < b; i++) {
        long double log_p = log_density(work, i, l + i * b);
        log_s[i] = (double)(log_p + logl(n));
        sum += log_p;
    }
    *value = zonal__problem_value(&work->problem, (double)(sum / b));
    if (!gradient) return ZONAL_OK;
    for (int64_t i = 0; i < b; i++)
        for (int64_t j = 0; j < i; j++) {
            double c = (double)zonal__ref_cosine(&work->problem, work->unit, i, j);
            double share = exp(l[i * b + j] - log_s[i]) + exp(l[i * b + j] - log_s[j]);
            l[i * b + j] = l[j * b + i] = zonal__fit_derivative(log_phi, c) * share;
        }
    gather(work, scale * work->problem.factor / (double)b, gradient);
    return ZONAL_OK;
}

const zonal__operation_table zonal__ref_pairs = {.create = create,
                                                 .run = run_pairs,
                                                 .destroy = zonal__ref_destroy,
                                                 .scratch_bytes = zonal__ref_scratch_bytes};
const zonal__operation_table zonal__ref_kl = {.create = create,
                                              .run = run_kl,
                                              .destroy = zonal__ref_destroy,
                                              .scratch_bytes = zonal__ref_scratch_bytes};
