#include "backend/cuda/common.cuh"

zonal_status zonal__cuda_status(cudaError_t error, const char *call, const char *file, int line) {
    if (error == cudaSuccess) return ZONAL_OK;
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* not sticky: the device is fine */
        return zonal__fail(ZONAL_MEMORY, file, line, "out of GPU memory: %s", call);
    }
    return zonal__fail(ZONAL_DEVICE, file, line, "CUDA failed: %s (in %s)",
                       cudaGetErrorString(error), call);
}

zonal_status zonal__cuda_alloc(zonal__cuda_base *base, size_t bytes, const char *what, void **out) {
    *out = NULL;
    if (bytes == 0) bytes = 1; /* a rank may have no rows */
    if (cudaMalloc(out, bytes) != cudaSuccess) {
        cudaGetLastError();
        *out = NULL;
        return ZONAL_FAIL(ZONAL_MEMORY, "out of GPU memory: %s needs %.1f MiB", what,
                          (double)bytes / (1024.0 * 1024.0));
    }
    base->bytes += bytes;
    return ZONAL_CUDA(cudaMemset(*out, 0, bytes));
}

zonal_status zonal__cuda_base_init(zonal__cuda_base *base, const zonal__problem *problem) {
    void *flag;
    base->problem = *problem;
    base->stream = NULL;
    base->bytes = 0;
    base->bad_row = NULL;
    base->batch = zonal__ranks_batch(problem->ranks, problem->rows);
    base->pinned[0] = base->pinned[1] = NULL;
    ZONAL_TRY(zonal__cuda_alloc(base, sizeof *base->bad_row, "the flag for bad rows", &flag));
    base->bad_row = (unsigned long long *)flag;
    return ZONAL_CUDA(cudaMemset(flag, 0xff, sizeof *base->bad_row));
}

void zonal__cuda_base_fini(zonal__cuda_base *base) {
    cudaFree(base->bad_row);
    cudaFreeHost(base->pinned[0]);
    cudaFreeHost(base->pinned[1]);
    base->bad_row = NULL;
}

void zonal__cuda_set_stream(zonal__work *work, void *stream) {
    ((zonal__cuda_base *)work)->stream = (cudaStream_t)stream;
}

size_t zonal__cuda_scratch_bytes(const zonal__work *work) {
    return ((const zonal__cuda_base *)work)->bytes;
}

/* "row 7", or "view 1, row 7" where the rows of several views follow each other. */
static zonal_status describe(const zonal__cuda_base *base, unsigned long long code) {
    static const char *const sentence[] = {
        "is zero and has no direction; remove it or fix its source",
        "is not finite; embeddings must be finite",
        "is not of unit length, but rows were declared unit; leave that out and they will be "
        "normalised"};
    long long row = (long long)(code / 4), first = zonal__ranks_first(base->problem.ranks);
    const char *whose = zonal__ranks_whose(base->problem.ranks);
    const char *why = sentence[code % 4 < 3 ? code % 4 : 1];
    if (base->problem.views > 1)
        return ZONAL_FAIL(ZONAL_NUMERIC, "view %lld: row %lld%s %s",
                          row / (long long)base->problem.rows,
                          first + row % (long long)base->problem.rows, whose, why);
    return ZONAL_FAIL(ZONAL_NUMERIC, "row %lld%s %s", first + row, whose, why);
}

zonal_status zonal__cuda_check_row(zonal__work *work, int64_t *row) {
    zonal__cuda_base *base = (zonal__cuda_base *)work;
    unsigned long long code;
    ZONAL_TRY(ZONAL_CUDA(cudaStreamSynchronize(base->stream)));
    ZONAL_TRY(ZONAL_CUDA(cudaMemcpy(&code, base->bad_row, sizeof code, cudaMemcpyDeviceToHost)));
    if (code == ZONAL__NO_BAD_ROW) return ZONAL_OK;
    ZONAL_TRY(ZONAL_CUDA(cudaMemset(base->bad_row, 0xff, sizeof code)));
    *row = (int64_t)(code / 4);
    return describe(base, code);
}

zonal_status zonal__cuda_check(zonal__work *work) {
    zonal__cuda_base *base = (zonal__cuda_base *)work;
    int64_t row;
    return zonal__ranks_agree(base->problem.ranks, zonal__cuda_check_row(work, &row));
}

int zonal__cuda_is_hopper(void) {
    int device, major = 0, minor = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) ==
               cudaSuccess &&
           major == 9 && minor == 0;
}
