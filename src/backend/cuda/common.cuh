/*
 * What the CUDA operations share: error macros, element types, the flag for bad rows, and block
 * sums that are the same every time.
 */
#ifndef ZONAL_BACKEND_CUDA_COMMON_CUH
#define ZONAL_BACKEND_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

extern "C" {
#include "backend/device.h"
#include "backend/ranks.h"
#include "core/error.h"
#include "core/memory.h"
}

/* ZONAL_CUDA(cudaMalloc(...)): a CUDA call as a status; out of memory keeps its own. */
#define ZONAL_CUDA(call) zonal__cuda_status((call), #call, __FILE__, __LINE__)
/* After a launch. */
#define ZONAL_CUDA_LAUNCHED() ZONAL_CUDA(cudaGetLastError())

extern "C" zonal_status zonal__cuda_status(cudaError_t error, const char *call, const char *file,
                                           int line);

/* While it lives, this thread's CUDA calls go to GPU "index"; then to the one before. It costs a
 * look at a thread-local where the GPU is current already. A number that is no GPU changes nothing:
 * names are checked when a device is opened. */
class zonal__cuda_on {
  public:
    explicit zonal__cuda_on(int index) : changed(0) {
        if (cudaGetDevice(&before) != cudaSuccess || before == index) return;
        changed = cudaSetDevice(index) == cudaSuccess;
    }
    explicit zonal__cuda_on(const zonal__device *device)
        : zonal__cuda_on(device ? device->index : 0) {
    }
    ~zonal__cuda_on() {
        if (changed) cudaSetDevice(before);
    }
    zonal__cuda_on(const zonal__cuda_on &) = delete;
    zonal__cuda_on &operator=(const zonal__cuda_on &) = delete;

  private:
    int before, changed;
};

/* A row that cannot be used, as one number, so that the smallest (the first row) wins by an integer
 * atomic: row * 4 + kind. ZONAL__NO_BAD_ROW when there is none. */
enum { ZONAL__BAD_ZERO = 0, ZONAL__BAD_NOT_FINITE = 1, ZONAL__BAD_NOT_UNIT = 2 };
#define ZONAL__NO_BAD_ROW 0xffffffffffffffffull

/* The part every work begins with. */
typedef struct zonal__cuda_base {
    /* The path that was chosen for this work (table.cu): small batches or streaming. */
    zonal_status (*run)(zonal__work *, const void *, uint32_t, double *, void *, double);
    void (*destroy)(zonal__work *);
    zonal_status (*check)(zonal__work *); /* NULL: zonal__cuda_check */
    zonal__problem problem;
    cudaStream_t stream;
    unsigned long long *bad_row; /* device */
    size_t bytes;                /* device memory held */
    int64_t batch;               /* rows of all ranks: what means are divided by */
    void *pinned[2];             /* host memory between the ranks (ranks.cuh), or NULL */
} zonal__cuda_base;

extern "C" {
/* Copies the problem and takes the flag. Undo with zonal__cuda_base_fini (also after failure). */
zonal_status zonal__cuda_base_init(zonal__cuda_base *base, const zonal__problem *problem);
void zonal__cuda_base_fini(zonal__cuda_base *base);
/* Device memory, counted in base->bytes; zeroed. Release with cudaFree. */
zonal_status zonal__cuda_alloc(zonal__cuda_base *base, size_t bytes, const char *what, void **out);
/* The table entries shared by all operations: the work must begin with its base. */
void zonal__cuda_set_stream(zonal__work *work, void *stream);
zonal_status zonal__cuda_check(zonal__work *work);
/* The same of this rank alone; *row is the row that is bad, those of the views one after another,
 * or left as it is. */
zonal_status zonal__cuda_check_row(zonal__work *work, int64_t *row);
size_t zonal__cuda_scratch_bytes(const zonal__work *work);

/* Whether the current GPU has compute capability 9.0, for which kernels of sm_90a are made. */
int zonal__cuda_is_hopper(void);

/* The devices: device.cu. */
zonal_status zonal__cuda_count(int *count);
zonal_status zonal__cuda_describe(int index, zonal_device_info *info);
extern const zonal__runtime zonal__cuda_runtime;
/* As the runtime's, on the current GPU: for objects of a GPU, which hold a zonal__cuda_on. */
zonal_status zonal__cuda_malloc(size_t bytes, const char *what, void **out);
zonal_status zonal__cuda_write(void *to, const void *host, size_t bytes);
zonal_status zonal__cuda_read(void *host, const void *from, size_t bytes);
zonal_status zonal__cuda_open_stream(void **stream);
zonal_status zonal__cuda_time(zonal_status (*enqueue)(void *context, void *stream), void *context,
                              int graph, int warm, int runs, double *microseconds);

/* The operations, one file each; table.cu puts them together. */
/* Memory of a moments operation that it uses only while it runs; *bytes is its size. */
void *zonal__cuda_moments_lend(zonal__work *work, size_t *bytes);
/* The mean of the unit rows of its last run: [dim] doubles on the device. */
const double *zonal__cuda_moments_mean(const zonal__work *work);
extern const zonal__operation_table zonal__cuda_pairs, zonal__cuda_kl, zonal__cuda_moments,
    zonal__cuda_sliced, zonal__cuda_objective;
}

/* ---- in kernels ------------------------------------------------------------------------------ */

__device__ inline float zonal__load(const float *x) {
    return *x;
}
__device__ inline float zonal__load(const __nv_bfloat16 *x) {
    return __bfloat162float(*x);
}
__device__ inline float zonal__load(const __half *x) {
    return __half2float(*x);
}
__device__ inline void zonal__store(float *x, float value) {
    *x = value;
}
__device__ inline void zonal__store(__nv_bfloat16 *x, float value) {
    *x = __float2bfloat16_rn(value);
}
__device__ inline void zonal__store(__half *x, float value) {
    *x = __float2half_rn(value);
}

__device__ inline void zonal__report_row(unsigned long long *bad_row, long long row, int kind) {
    atomicMin(bad_row, (unsigned long long)row * 4 + (unsigned)kind);
}

/* The kind of a row's trouble from its norm (in double: a float's square may not fit a float), or
 * -1. NaN and infinity fail every comparison. */
__device__ inline int zonal__row_trouble(double norm, int unit_rows) {
    if (!(norm < INFINITY)) return ZONAL__BAD_NOT_FINITE;
    if (!(norm > 0)) return ZONAL__BAD_ZERO;
    if (unit_rows && !(fabs(norm - 1) <= 1e-3)) return ZONAL__BAD_NOT_UNIT;
    return -1;
}

/* The sum of one value per lane, the same in all lanes, in a fixed order. */
template <typename T> __device__ inline T zonal__warp_sum(T value) {
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

#endif
