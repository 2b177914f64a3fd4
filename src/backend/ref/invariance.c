/*
 * Alignment of the views of a sample, by the formula:
 *
 *     value = 1/(B V) sum_{n,v} |x_nv - mu_n|^2,   mu_n = mean over the global views of x_nv
 *     d/dx_nv = 2/(B V) ( x_nv - mu_n - [v global] sum_w (x_nw - mu_n)/V_g )
 *
 * with 1/(B V d) in place of 1/(B V) for raw rows.
 */
#include "backend/ref/rows.h"

enum { CENTRE, PULL, ROW }; /* the parts: [d] each */

static zonal_status create(const zonal__problem *problem, zonal__work **work) {
    int64_t d = problem->dim;
    return zonal__ref_create(problem, problem->views * problem->rows, (int64_t[4]){d, d, d}, work);
}

/* Adds factor (g - (g.x) x)/|z| (or factor g for raw rows) to row "at" of the gradient. */
static void add_gradient(const zonal__work *work, int64_t at, double factor, void *gradient) {
    int64_t d = work->problem.dim;
    const double *x = work->unit + at * d, *g = work->part[ROW];
    int raw = work->problem.raw_rows;
    double radial = raw ? 0 : zonal__ref_dot(d, g, x) / zonal__ref_dot(d, x, x);
    double norm = raw ? 1 : work->norm[at];
    for (int64_t k = 0; k < d; k++) {
        double old = zonal__ref_get(work->problem.precision, gradient, at * d + k);
        zonal__ref_set(work->problem.precision, gradient, at * d + k,
                       old + factor * (g[k] - radial * x[k]) / norm);
    }
}

static zonal_status run(zonal__work *work, const void *x, uint32_t step, double *value,
                        void *gradient, double factor) {
    zonal__problem all = work->problem;
    const zonal__ranks *ranks = all.ranks;
    int64_t b = all.rows, d = all.dim, views = all.views, globals = all.global_views;
    long double sum = 0;
    double count = zonal__invariance_count(&all, work->batch);
    double *centre = work->part[CENTRE], *pull = work->part[PULL], *g = work->part[ROW];
    (void)step;
    all.rows = views * b;
    all.ranks = NULL;
    zonal_status status = all.raw_rows
                              ? zonal__ref_raw_rows(&all, x, work->unit)
                              : zonal__ref_unit_rows(&all, x, gradient, work->unit, work->norm);
    ZONAL_TRY(zonal__ranks_agree(ranks, status));
    factor *= 2 / count;
    for (int64_t n = 0; n < b; n++) {
        for (int64_t k = 0; k < d; k++) {
            double mu = 0, away_sum = 0;
            for (int64_t v = 0; v < globals; v++) mu += work->unit[(v * b + n) * d + k];
            mu /= (double)globals;
            for (int64_t v = 0; v < views; v++) {
                double away = work->unit[(v * b + n) * d + k] - mu;
                sum += (long double)away * away;
                away_sum += away;
            }
            centre[k] = mu;
            pull[k] = away_sum / (double)globals;
        }
        for (int64_t v = 0; gradient && v < views; v++) {
            for (int64_t k = 0; k < d; k++)
                g[k] = work->unit[(v * b + n) * d + k] - centre[k] - (v < globals ? pull[k] : 0);
            add_gradient(work, v * b + n, factor, gradient);
        }
    }
    *value = (double)(sum / count);
    return ranks ? zonal__ranks_sum(ranks, value, 1) : ZONAL_OK;
}

const zonal__operation_table zonal__ref_invariance = {.create = create,
                                                      .run = run,
                                                      .destroy = zonal__ref_destroy,
                                                      .scratch_bytes = zonal__ref_scratch_bytes};
