#include "backend/cuda/gathered.cuh"

#include "backend/cuda/ranks.cuh"
#include "backend/cuda/small.cuh"

typedef struct gathered_work {
    zonal__cuda_base base; /* of the own rows */
    zonal__work *whole;    /* the loss of all rows */
    int64_t views;
    size_t row_bytes;
    char *x, *gradient; /* [views][batch][dim] */
} gathered_work;

static size_t whole_bytes(const gathered_work *work) {
    return (size_t)work->views * (size_t)work->base.batch * work->row_bytes;
}

static zonal_status fill(gathered_work *work, const zonal__problem *problem,
                         zonal__operation operation) {
    zonal__problem whole = *problem;
    void *memory;
    ZONAL_TRY(zonal__cuda_base_init(&work->base, problem));
    whole.ranks = NULL;
    whole.rows = work->base.batch;
    work->views = operation == ZONAL__OBJECTIVE ? problem->views : 1;
    work->row_bytes =
        (size_t)problem->dim *
        (problem->dtype == ZONAL_DTYPE_BF16 || problem->dtype == ZONAL_DTYPE_FP16 ? 2 : 4);
    ZONAL_TRY(zonal__cuda_small_create(&whole, operation, &work->whole));
    work->base.bytes += zonal__cuda_scratch_bytes(work->whole);
    ZONAL_TRY(zonal__cuda_alloc(&work->base, whole_bytes(work), "all ranks' rows", &memory));
    work->x = (char *)memory;
    ZONAL_TRY(zonal__cuda_alloc(&work->base, whole_bytes(work), "their gradient", &memory));
    work->gradient = (char *)memory;
    return zonal__cuda_ranks_room(&work->base, (size_t)work->base.batch * work->row_bytes);
}

zonal_status zonal__cuda_gathered_create(const zonal__problem *problem, zonal__operation operation,
                                         zonal__work **out) {
    gathered_work *work;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&work, 1, "the work of a small batch"));
    zonal_status status = fill(work, problem, operation);
    if (status == ZONAL_OK)
        *out = (zonal__work *)work;
    else
        zonal__cuda_gathered_destroy((zonal__work *)work);
    return status;
}

void zonal__cuda_gathered_destroy(zonal__work *handle) {
    gathered_work *work = (gathered_work *)handle;
    if (!work) return;
    zonal__cuda_small_destroy(work->whole);
    cudaFree(work->x);
    cudaFree(work->gradient);
    zonal__cuda_base_fini(&work->base);
    zonal__free(work);
}

/* The own rows of a view, in an array of all rows and in one of the own. */
static zonal_status copy_view(const gathered_work *work, int64_t view, char *whole, char *own,
                              int out) {
    const zonal__problem *problem = &work->base.problem;
    size_t bytes = (size_t)problem->rows * work->row_bytes;
    char *there =
        whole + (size_t)(view * work->base.batch + problem->ranks->first) * work->row_bytes;
    char *here = own + (size_t)view * bytes;
    if (bytes == 0) return ZONAL_OK;
    return ZONAL_CUDA(cudaMemcpyAsync(out ? here : there, out ? there : here, bytes,
                                      cudaMemcpyDeviceToDevice, work->base.stream));
}

zonal_status zonal__cuda_gathered_run(zonal__work *handle, const void *x, uint32_t step,
                                      double *value, void *gradient, double factor) {
    const gathered_work *work = (const gathered_work *)handle;
    size_t view_bytes = (size_t)work->base.batch * work->row_bytes;
    for (int64_t v = 0; v < work->views; v++) {
        ZONAL_TRY(copy_view(work, v, work->x, (char *)x, 0));
        ZONAL_TRY(zonal__cuda_ranks_gather(&work->base, work->x + (size_t)v * view_bytes,
                                           work->row_bytes));
    }
    zonal__cuda_set_stream(work->whole, work->base.stream);
    ZONAL_TRY(zonal__cuda_small_run(work->whole, work->x, step, value,
                                    gradient ? work->gradient : NULL, factor));
    for (int64_t v = 0; gradient && v < work->views; v++)
        ZONAL_TRY(copy_view(work, v, work->gradient, (char *)gradient, 1));
    return ZONAL_OK;
}

/* All ranks have seen all rows, so they agree without a word. */
zonal_status zonal__cuda_gathered_check(zonal__work *handle) {
    const gathered_work *work = (const gathered_work *)handle;
    const zonal__ranks *ranks = work->base.problem.ranks;
    int64_t row = -1;
    zonal_status status = zonal__cuda_check_row(work->whole, &row);
    if (row < 0) return status;
    zonal_error found = *zonal_last_error();
    int rank = 0;
    for (row %= work->base.batch; row >= ranks->rows[rank]; rank++) row -= ranks->rows[rank];
    return ZONAL_FAIL(status, "rank %d: %.700s", rank, found.message);
}
