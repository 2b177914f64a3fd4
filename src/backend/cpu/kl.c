/*
 * KL: the mean over i of log( S_i/n ), S_i = sum over j != i of phi(c_ij), n = B - 1 (or, with the
 * diagonal kept, S_i + 1 and n = B), and its gradient
 *
 *     1/B sum over j != i of phi'(c_ij) (1/S_i + 1/S_j) x_j
 *
 * in two passes over the pairs, from a fit of log phi = l. How the sums are kept depends on how
 * much l varies, which is known when the work is made:
 *
 *     broad    |l| < .9: sums of expm1(l), so that log(S/n) = log1p(sum/n) is right relative to the
 *              range of l, which may be 1e-4
 *     plain    l > -690: phi itself is a normal double; sums of phi
 *     narrow   otherwise: sums of exp(l - peak) with the row's running peak, and in the second pass
 *              exp(l - log S) for each side
 *
 * The rows of other ranks come by (ring.h) once for each pass, in the second with their S_j.
 */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/ring.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/tiles.h"
#include "core/memory.h"

struct zonal__work {
    zonal__cpu_rows rows;
    zonal__cpu_tiles tiles;
    zonal__cpu_ring ring;
    const zonal__fit *log_phi;
    int keep_diagonal;
    zonal__cpu_kl_mode mode;
    double *sum;     /* [rows]; in the second pass sums of weights */
    double *peak;    /* [rows], narrow only */
    double *log_sum; /* [rows]: log S_i for narrow, else 1/S_i */
    void *gradient;
};

static void destroy(zonal__work *work) {
    if (!work) return;
    zonal__cpu_rows_fini(&work->rows);
    zonal__cpu_tiles_fini(&work->tiles);
    zonal__cpu_ring_fini(&work->ring);
    zonal__free(work->sum);
    zonal__free(work->peak);
    zonal__free(work->log_sum);
    zonal__free(work);
}

static zonal__cpu_kl_mode choose_mode(const zonal__fit *log_phi) {
    double least, most;
    zonal__fit_range(log_phi, &least, &most);
    if (least > -0.9 && most < 0.9) return ZONAL__KL_BROAD;
    return least > -690 && most < 690 ? ZONAL__KL_PLAIN : ZONAL__KL_NARROW;
}

static zonal_status fill(const zonal__problem *problem, zonal__work *work) {
    work->log_phi = problem->log_phi;
    work->keep_diagonal = problem->keep_diagonal;
    work->mode = choose_mode(problem->log_phi);
    ZONAL_TRY(zonal__cpu_rows_init(problem, 0, &work->rows));
    ZONAL_TRY(zonal__cpu_tiles_init(&work->rows, &work->tiles));
    ZONAL_TRY(zonal__cpu_ring_init(&work->tiles, &work->ring));
    ZONAL_TRY(ZONAL_NEW(&work->sum, problem->rows, "the kernel sums"));
    ZONAL_TRY(ZONAL_NEW(&work->peak, problem->rows, "the kernel sums"));
    return ZONAL_NEW(&work->log_sum, problem->rows, "the kernel sums");
}

static zonal_status create(const zonal__problem *problem, zonal__work **out) {
    return zonal__cpu_create(problem, sizeof **out, "the KL work", fill, destroy, out);
}

static size_t scratch_bytes(const zonal__work *work) {
    return sizeof *work + zonal__cpu_rows_bytes(&work->rows) +
           zonal__cpu_tiles_bytes(&work->tiles) + zonal__cpu_ring_bytes(&work->ring) +
           3 * (size_t)work->rows.rows * sizeof(double);
}

static void sum_visit(void *context, zonal__cpu_meeting *meeting) {
    zonal__work *work = context;
    meeting->tile.row_sum = work->sum + meeting->row_first;
    meeting->tile.col_sum = meeting->foreign ? NULL : work->sum + meeting->col_first;
    meeting->tile.row_peak = work->peak + meeting->row_first;
    meeting->tile.col_peak = work->peak + meeting->col_first;
    work->rows.kernels->kl_sum_tile(&meeting->tile, work->log_phi, work->mode);
}

static void weight_visit(void *context, zonal__cpu_meeting *meeting) {
    zonal__work *work = context;
    if (!work->gradient) return; /* the rows only pass, for another rank that wants one */
    meeting->tile.row_sum = work->sum + meeting->row_first;
    meeting->tile.col_sum = meeting->foreign ? NULL : work->sum + meeting->col_first;
    meeting->tile.row_log = work->log_sum + meeting->row_first;
    if (!meeting->foreign) meeting->tile.col_log = work->log_sum + meeting->col_first;
    work->rows.kernels->kl_weight_tile(&meeting->tile, work->log_phi, work->mode);
    zonal__cpu_tiles_spread(&work->tiles, meeting, work->gradient);
}

/* log(S_i/n), and log_sum[i] for the second pass. */
static double finish_row(zonal__work *work, int64_t i, double n) {
    double sum = work->sum[i], peak = work->peak[i];
    switch (work->mode) {
    case ZONAL__KL_BROAD: /* the diagonal adds expm1(0) = 0 */
        work->log_sum[i] = 1 / (n + sum);
        return log1p(sum / n);
    case ZONAL__KL_PLAIN:
        sum += work->keep_diagonal;
        work->log_sum[i] = 1 / sum;
        return log(sum / n);
    default:
        if (work->keep_diagonal) { /* log phi(1) = 0 */
            double top = peak > 0 ? peak : 0;
            sum = sum * exp(peak - top) + exp(-top);
            peak = top;
        }
        work->log_sum[i] = peak + log(sum);
        return peak + log(sum / n);
    }
}

static zonal_status compute(zonal__work *work, const void *x, double *value, void *gradient,
                            double factor) {
    int64_t rows = work->rows.rows, batch = work->rows.batch;
    double n = (double)(work->keep_diagonal ? batch : batch - 1), total = 0;
    ZONAL_TRY(zonal__cpu_rows_prepare(&work->rows, x, gradient));
    for (int64_t i = 0; i < rows; i++) {
        work->sum[i] = 0;
        work->peak[i] = -1e300; /* below every logarithm; -inf would make inf - inf */
    }
    ZONAL_TRY(zonal__cpu_ring_run(&work->ring, NULL, sum_visit, work));
    for (int64_t i = 0; i < rows; i++) total += finish_row(work, i, n);
    ZONAL_TRY(zonal__cpu_rows_sum(&work->rows, &total, 1));
    *value = total / (double)batch;
    if (!work->rows.gradients) return ZONAL_OK;
    for (int64_t i = 0; i < rows; i++) work->sum[i] = 0;
    work->gradient = gradient;
    ZONAL_TRY(zonal__cpu_ring_run(&work->ring, work->log_sum, weight_visit, work));
    if (gradient)
        zonal__cpu_rows_project(&work->rows, gradient, work->sum, factor / (double)batch,
                                &(zonal__cpu_projection){.scale = 1});
    return ZONAL_OK;
}

static zonal_status run(zonal__work *work, const void *x, uint32_t step, double *value,
                        void *gradient, double scale) {
    (void)step;
    return zonal__cpu_rows_run(&work->rows, compute, work, x, value, gradient, scale);
}

const zonal__operation_table zonal__cpu_kl = {
    .create = create, .run = run, .destroy = destroy, .scratch_bytes = scratch_bytes};
