/*
 * PAIRS and SURVEY: sums of psi over all pairs, and the gradient
 *
 *     2/B^2 sum over j != i of psi'(c_ij) x_j
 *
 * Per tile: one product for the cosines, psi and psi' in double, one product for each side. The
 * rows of other ranks come by (ring.h).
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/ring.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/tiles.h"
#include "core/memory.h"

struct zonal__work {
    zonal__cpu_rows rows;
    zonal__cpu_tiles tiles;
    zonal__cpu_ring ring;
    const zonal__pair_function *psi;
    int n_psi;
    double *sum;    /* [blocks][n_psi]: of the tiles whose row block it is */
    double *weight; /* PAIRS: [rows], sums of psi' */
    double *peak;   /* SURVEY: where the run wants the maxima */
    void *gradient;
};

static void destroy(zonal__work *work) {
    if (!work) return;
    zonal__cpu_rows_fini(&work->rows);
    zonal__cpu_tiles_fini(&work->tiles);
    zonal__cpu_ring_fini(&work->ring);
    zonal__free(work->sum);
    zonal__free(work->weight);
    zonal__free(work);
}

static zonal_status fill(const zonal__problem *problem, int n_psi, zonal__work *work) {
    work->psi = problem->psi;
    work->n_psi = n_psi;
    ZONAL_TRY(zonal__cpu_rows_init(problem, 0, &work->rows));
    ZONAL_TRY(zonal__cpu_tiles_init(&work->rows, &work->tiles));
    ZONAL_TRY(zonal__cpu_ring_init(&work->tiles, &work->ring));
    ZONAL_TRY(ZONAL_NEW(&work->sum, work->tiles.blocks * n_psi, "the sums over pairs"));
    return ZONAL_NEW(&work->weight, problem->rows, "the sums of derivatives");
}

static size_t scratch_bytes(const zonal__work *work) {
    return sizeof *work + zonal__cpu_rows_bytes(&work->rows) +
           zonal__cpu_tiles_bytes(&work->tiles) + zonal__cpu_ring_bytes(&work->ring) +
           (size_t)(work->tiles.blocks * work->n_psi + work->rows.rows) * sizeof(double);
}

/* The sum over the pairs i < j: half of those with another rank's rows, since both sides count
 * them. */
static double pair_sum(const zonal__work *work, int k) {
    double sum = 0;
    for (int64_t b = 0; b < work->tiles.blocks; b++) sum += work->sum[b * work->n_psi + k];
    return sum;
}

static double pair_mean(const zonal__work *work, double sum) {
    double n = (double)work->rows.batch;
    return 2 * (sum / n) / n;
}

static void pairs_visit(void *context, zonal__cpu_meeting *meeting) {
    zonal__work *work = context;
    meeting->tile.row_sum = work->weight + meeting->row_first;
    meeting->tile.col_sum = meeting->foreign ? NULL : work->weight + meeting->col_first;
    double sum = work->rows.kernels->pair_tile(&meeting->tile, work->psi, work->gradient != NULL);
    work->sum[meeting->row_block] += meeting->foreign ? sum / 2 : sum;
    if (work->gradient) zonal__cpu_tiles_spread(&work->tiles, meeting, work->gradient);
}

static zonal_status pairs_compute(zonal__work *work, const void *x, double *value, void *gradient,
                                  double factor) {
    double n = (double)work->rows.batch, sum;
    if (gradient && !work->psi->fit)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the chordal kernel has no gradient: its derivative is "
                                          "infinite where two rows meet; use it for tests only");
    ZONAL_TRY(zonal__cpu_rows_prepare(&work->rows, x, gradient));
    for (int64_t b = 0; b < work->tiles.blocks; b++) work->sum[b] = 0;
    for (int64_t i = 0; i < work->rows.rows; i++) work->weight[i] = 0;
    work->gradient = gradient;
    ZONAL_TRY(zonal__cpu_ring_run(&work->ring, NULL, pairs_visit, work));
    sum = pair_sum(work, 0);
    ZONAL_TRY(zonal__cpu_rows_sum(&work->rows, &sum, 1));
    *value = pair_mean(work, sum);
    if (gradient)
        zonal__cpu_rows_project(&work->rows, gradient, work->weight, 2 * factor / n / n,
                                &(zonal__cpu_projection){.scale = 1});
    return ZONAL_OK;
}

static zonal_status pairs_fill(const zonal__problem *problem, zonal__work *work) {
    return fill(problem, 1, work);
}

static zonal_status pairs_create(const zonal__problem *problem, zonal__work **out) {
    return zonal__cpu_create(problem, sizeof **out, "the pairs", pairs_fill, destroy, out);
}

static zonal_status pairs_run(zonal__work *work, const void *x, uint32_t step, double *value,
                              void *gradient, double scale) {
    (void)step;
    return zonal__cpu_rows_run(&work->rows, pairs_compute, work, x, value, gradient, scale);
}

static void survey_visit(void *context, zonal__cpu_meeting *meeting) {
    zonal__work *work = context;
    meeting->tile.row_peak = work->peak + meeting->row_first;
    meeting->tile.col_peak = work->peak + meeting->col_first;
    work->rows.kernels->survey_tile(&meeting->tile, work->psi, work->n_psi,
                                    work->sum + meeting->row_block * work->n_psi);
}

static zonal_status survey_fill(const zonal__problem *problem, zonal__work *work) {
    ZONAL_TRY(zonal__ranks_refuse(problem->ranks, "a survey"));
    return fill(problem, problem->n_psi, work);
}

static zonal_status survey_create(const zonal__problem *problem, zonal__work **out) {
    return zonal__cpu_create(problem, sizeof **out, "the pairs", survey_fill, destroy, out);
}

static zonal_status survey_compute(zonal__work *work, const void *x, double *value, void *gradient,
                                   double factor) {
    (void)gradient, (void)factor;
    ZONAL_TRY(zonal__cpu_rows_prepare(&work->rows, x, NULL));
    work->peak = value + work->n_psi;
    for (int64_t b = 0; b < work->tiles.blocks * work->n_psi; b++) work->sum[b] = 0;
    for (int64_t i = 0; i < work->rows.rows; i++) work->peak[i] = -2; /* below every cosine */
    zonal__cpu_tiles_run(&work->tiles, survey_visit, work);
    for (int k = 0; k < work->n_psi; k++) value[k] = pair_mean(work, pair_sum(work, k));
    return ZONAL_OK;
}

static zonal_status survey_run(zonal__work *work, const void *x, uint32_t step, double *value,
                               void *gradient, double factor) {
    (void)step;
    return zonal__cpu_run(work->rows.threads, survey_compute, work, x, value, gradient, factor);
}

const zonal__operation_table zonal__cpu_pairs = {
    .create = pairs_create, .run = pairs_run, .destroy = destroy, .scratch_bytes = scratch_bytes};
const zonal__operation_table zonal__cpu_survey = {
    .create = survey_create, .run = survey_run, .destroy = destroy, .scratch_bytes = scratch_bytes};
