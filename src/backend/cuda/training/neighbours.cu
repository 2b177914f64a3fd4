/*
 * Nearest neighbours on CUDA: fp32 products by cuBLAS, a panel of the bank at a time; a block for
 * each query that keeps its best candidates of all panels; and one that orders them again by
 * cosines in double. Every sum has a fixed order and every order among candidates is total, so the
 * results do not depend on which thread came first.
 */
#include "backend/cuda/blas.cuh"
#include "backend/cuda/common.cuh"

extern "C" {
#include "backend/device.h"
#include "backend/training/neighbours.h"
}

enum {
    THREADS = 256,
    POOL = 1024,             /* candidates of a query in shared memory: those kept, and new ones */
    KEPT = 512,              /* a power of two from ZONAL__NEIGHBOURS_MOST + SPARE on */
    PANEL = 64 * 1024 * 1024 /* cosines held at a time, at most: 256 MiB */
};

struct zonal__neighbours {
    zonal__neighbours_spec spec;
    int64_t bank;  /* rows in it */
    int64_t width; /* of a panel: rows of the bank */
    int keep;      /* candidates of a query */
    const zonal__blas *cublas;
    cublasHandle_t blas;
    cudaStream_t stream;
    float *rows;              /* [spec.rows][dim], of unit length */
    float *unit;              /* [spec.queries][dim]: the queries, of unit length */
    float *panel;             /* [spec.queries][width] */
    unsigned long long *best; /* [spec.queries][keep]: candidates, see key_of */
    double *cosine;           /* [spec.queries][k] */
    int32_t *row;             /* [spec.queries][k] */
    unsigned long long *bad;  /* the first row without a direction */
};

/* ---- kernels --------------------------------------------------------------------------------- */

/* A warp brings a row to unit length; one without a direction is reported. */
static __global__ void __launch_bounds__(THREADS)
    make_unit(int64_t count, int64_t dim, float *x, unsigned long long *bad) {
    int64_t i = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (i >= count) return;
    double sum = 0;
    for (int64_t j = lane; j < dim; j += 32) sum += (double)x[i * dim + j] * (double)x[i * dim + j];
    double norm = sqrt(zonal__warp_sum(sum));
    if (!(norm > 0 && norm < INFINITY)) {
        if (lane == 0) atomicMin(bad, (unsigned long long)i);
        return;
    }
    for (int64_t j = lane; j < dim; j += 32)
        x[i * dim + j] = (float)((double)x[i * dim + j] / norm);
}

/* A candidate as one number that is larger for a larger cosine and, of equal ones, for the lower
 * row. 0 is none. */
__device__ static unsigned long long key_of(float cosine, unsigned row) {
    unsigned bits = __float_as_uint(cosine);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (unsigned long long)bits << 32 | ~row;
}

__device__ static unsigned row_of(unsigned long long key) {
    return ~(unsigned)key;
}

typedef struct candidate {
    double cosine;
    int32_t row;
} candidate;

__device__ static bool before(unsigned long long a, unsigned long long b) {
    return a > b;
}

__device__ static bool before(const candidate &a, const candidate &b) {
    return a.cosine > b.cosine || (a.cosine == b.cosine && a.row < b.row);
}

/* Sorts n = 2^m items by a bitonic network; all threads of the block take part. */
template <typename T> __device__ static void sort(int n, T *item) {
    for (int run = 2; run <= n; run *= 2)
        for (int apart = run / 2; apart > 0; apart /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n; i += THREADS) {
                int other = i ^ apart;
                if (other < i) continue;
                T a = item[i], b = item[other];
                if (i & run ? before(a, b) : before(b, a)) item[i] = b, item[other] = a;
            }
        }
    __syncthreads();
}

/* Sorts the pool, which holds at least "keep", and forgets all after those. */
__device__ static void settle(int keep, unsigned long long *pool, int *count) {
    for (int i = *count + threadIdx.x; i < POOL; i += THREADS) pool[i] = 0;
    sort(POOL, pool);
    if (threadIdx.x == 0) *count = keep;
    __syncthreads();
}

/* Offers a panel's cosines with rows first ... first + width - 1 to the best of its query, block by
 * block; "self" as for nearest. */
static __global__ void __launch_bounds__(THREADS)
    keep_best(int64_t width, int64_t pitch, const float *panel, int64_t first, int64_t self,
              int keep, unsigned long long *best) {
    __shared__ unsigned long long pool[POOL];
    __shared__ int count;
    const float *cosines = panel + blockIdx.x * pitch;
    unsigned long long *own = best + (int64_t)blockIdx.x * keep;
    int64_t hidden = self < 0 ? -1 : self + blockIdx.x;
    for (int i = threadIdx.x; i < keep; i += THREADS) pool[i] = own[i];
    if (threadIdx.x == 0) count = keep; /* those that are none are 0 and last */
    __syncthreads();
    for (int64_t start = 0; start < width; start += THREADS) {
        int64_t i = start + threadIdx.x;
        unsigned long long key = 0;
        if (i < width && first + i != hidden) key = key_of(cosines[i], (unsigned)(first + i));
        if (key > pool[keep - 1]) pool[atomicAdd(&count, 1)] = key;
        __syncthreads();
        int now = count;
        __syncthreads(); /* all have read it before the first adds to it again */
        if (now > POOL - THREADS) settle(keep, pool, &count);
    }
    settle(keep, pool, &count);
    for (int i = threadIdx.x; i < keep; i += THREADS) own[i] = pool[i];
}

/* The candidates of a query by their cosines in double: a block for a query, a warp for a cosine.
 */
static __global__ void __launch_bounds__(THREADS)
    order_again(int64_t dim, const float *unit, const float *rows, int keep,
                const unsigned long long *best, int k, double *cosine, int32_t *row) {
    __shared__ candidate item[KEPT];
    const float *query = unit + blockIdx.x * dim;
    int lane = threadIdx.x % 32;
    for (int c = threadIdx.x / 32; c < KEPT; c += THREADS / 32) {
        unsigned long long key = c < keep ? best[(int64_t)blockIdx.x * keep + c] : 0;
        double sum = 0;
        if (key) {
            const float *other = rows + (int64_t)row_of(key) * dim;
            for (int64_t j = lane; j < dim; j += 32) sum += (double)query[j] * (double)other[j];
            sum = zonal__warp_sum(sum);
        }
        if (lane == 0) {
            item[c].cosine = key ? sum : -INFINITY;
            item[c].row = key ? (int32_t)row_of(key) : INT32_MAX;
        }
    }
    sort(KEPT, item);
    for (int c = threadIdx.x; c < k; c += THREADS) {
        cosine[(int64_t)blockIdx.x * k + c] = item[c].cosine;
        row[(int64_t)blockIdx.x * k + c] = item[c].row;
    }
}

/* ---- making ---------------------------------------------------------------------------------- */

static zonal_status blas_status(const zonal__neighbours *self, cublasStatus_t status) {
    if (status == CUBLAS_STATUS_SUCCESS) return ZONAL_OK;
    return ZONAL_FAIL(status == CUBLAS_STATUS_ALLOC_FAILED ? ZONAL_MEMORY : ZONAL_DEVICE,
                      "cuBLAS failed: %s", self->cublas->status_text(status));
}

static void destroy(zonal__neighbours *self) {
    if (!self) return;
    zonal__cuda_on on(self->spec.device);
    if (self->blas) self->cublas->destroy(self->blas);
    if (self->stream) cudaStreamDestroy(self->stream);
    void *memory[] = {self->rows,   self->unit, self->panel, self->best,
                      self->cosine, self->row,  self->bad};
    for (void *block : memory) cudaFree(block);
    zonal__free(self);
}

template <typename T> static zonal_status alloc(int64_t count, const char *what, T **out) {
    return zonal__cuda_malloc((size_t)count * sizeof(T), what, (void **)out);
}

static zonal_status allocate(zonal__neighbours *self) {
    const zonal__neighbours_spec *spec = &self->spec;
    int64_t k = spec->k > 0 ? spec->k : 1;
    ZONAL_TRY(alloc(spec->rows * spec->dim, "the bank", &self->rows));
    ZONAL_TRY(alloc(spec->queries * spec->dim, "the queries", &self->unit));
    ZONAL_TRY(alloc(spec->queries * self->width, "a panel of cosines", &self->panel));
    ZONAL_TRY(alloc(spec->queries * self->keep, "the candidates", &self->best));
    ZONAL_TRY(alloc(spec->queries * k, "the neighbours", &self->cosine));
    ZONAL_TRY(alloc(spec->queries * k, "the neighbours", &self->row));
    return alloc(1, "the flag for bad rows", &self->bad);
}

static zonal_status prepare(zonal__neighbours *self) {
    ZONAL_TRY(allocate(self));
    ZONAL_TRY(zonal__cuda_open_stream((void **)&self->stream));
    ZONAL_TRY(zonal__cuda_blas(&self->cublas));
    ZONAL_TRY(blas_status(self, self->cublas->create(&self->blas)));
    ZONAL_TRY(blas_status(self, self->cublas->set_math_mode(self->blas, CUBLAS_DEFAULT_MATH)));
    return blas_status(self, self->cublas->set_stream(self->blas, self->stream));
}

static zonal_status create(const zonal__neighbours_spec *spec, zonal__neighbours **out) {
    zonal__cuda_on on(spec->device);
    void *memory;
    *out = NULL;
    ZONAL_TRY(zonal__neighbours_check(spec));
    ZONAL_TRY(zonal__alloc(1, sizeof(zonal__neighbours), "nearest neighbours", &memory));
    zonal__neighbours *self = (zonal__neighbours *)memory;
    self->spec = *spec;
    self->keep = spec->k + ZONAL__NEIGHBOURS_SPARE;
    self->width = PANEL / spec->queries < 1 ? 1 : PANEL / spec->queries;
    if (self->width > spec->rows) self->width = spec->rows;
    zonal_status status = prepare(self);
    if (status != ZONAL_OK) {
        destroy(self);
        return status;
    }
    *out = self;
    return ZONAL_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Uploads rows and brings them to unit length. */
static zonal_status upload(zonal__neighbours *self, int64_t count, const float *from,
                           const char *what, float *to) {
    int64_t dim = self->spec.dim;
    unsigned long long bad;
    ZONAL_TRY(ZONAL_CUDA(cudaMemcpyAsync(to, from, (size_t)(count * dim) * sizeof *to,
                                         cudaMemcpyHostToDevice, self->stream)));
    ZONAL_TRY(ZONAL_CUDA(cudaMemsetAsync(self->bad, 0xff, sizeof bad, self->stream)));
    unsigned blocks = (unsigned)((count + THREADS / 32 - 1) / (THREADS / 32));
    make_unit<<<blocks, THREADS, 0, self->stream>>>(count, dim, to, self->bad);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    ZONAL_TRY(ZONAL_CUDA(
        cudaMemcpyAsync(&bad, self->bad, sizeof bad, cudaMemcpyDeviceToHost, self->stream)));
    ZONAL_TRY(ZONAL_CUDA(cudaStreamSynchronize(self->stream)));
    if (bad != ZONAL__NO_BAD_ROW)
        return zonal__neighbours_bad_row(dim, from + (int64_t)bad * dim, what, (int64_t)bad);
    return ZONAL_OK;
}

static zonal_status set_bank(zonal__neighbours *self, int64_t count, const float *rows) {
    zonal__cuda_on on(self->spec.device);
    ZONAL_TRY(zonal__neighbours_check_bank(&self->spec, count));
    self->bank = 0;
    ZONAL_TRY(upload(self, count, rows, "row", self->rows));
    self->bank = count;
    return ZONAL_OK;
}

/* panel [count][self->width]: the cosines of all queries with "width" rows from "first" on. */
static zonal_status multiply(zonal__neighbours *self, int64_t count, int64_t first, int64_t width) {
    const float one = 1, zero = 0;
    int dim = (int)self->spec.dim;
    return blas_status(self,
                       self->cublas->sgemm(self->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)width,
                                           (int)count, dim, &one, self->rows + first * dim, dim,
                                           self->unit, dim, &zero, self->panel, (int)self->width));
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static zonal_status nearest(zonal__neighbours *self, int64_t count, const float *queries,
                            int64_t first_self, double *cosine, int32_t *row) {
    zonal__cuda_on on(self->spec.device);
    int k = self->spec.k;
    size_t results = (size_t)(count * k);
    ZONAL_TRY(zonal__neighbours_check_nearest(&self->spec, self->bank, count, first_self));
    ZONAL_TRY(upload(self, count, queries, "query", self->unit));
    ZONAL_TRY(ZONAL_CUDA(cudaMemsetAsync(
        self->best, 0, (size_t)(count * self->keep) * sizeof *self->best, self->stream)));
    for (int64_t first = 0; first < self->bank; first += self->width) {
        int64_t width = least(self->width, self->bank - first);
        ZONAL_TRY(multiply(self, count, first, width));
        keep_best<<<(unsigned)count, THREADS, 0, self->stream>>>(
            width, self->width, self->panel, first, first_self, self->keep, self->best);
        ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    }
    order_again<<<(unsigned)count, THREADS, 0, self->stream>>>(
        self->spec.dim, self->unit, self->rows, self->keep, self->best, k, self->cosine, self->row);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    ZONAL_TRY(ZONAL_CUDA(cudaMemcpyAsync(cosine, self->cosine, results * sizeof *cosine,
                                         cudaMemcpyDeviceToHost, self->stream)));
    ZONAL_TRY(ZONAL_CUDA(cudaMemcpyAsync(row, self->row, results * sizeof *row,
                                         cudaMemcpyDeviceToHost, self->stream)));
    return ZONAL_CUDA(cudaStreamSynchronize(self->stream));
}

static zonal_status cosines(zonal__neighbours *self, int64_t count, const float *queries,
                            float *out) {
    zonal__cuda_on on(self->spec.device);
    ZONAL_TRY(zonal__neighbours_check_queries(&self->spec, self->bank, count));
    ZONAL_TRY(upload(self, count, queries, "query", self->unit));
    for (int64_t first = 0; first < self->bank; first += self->width) {
        int64_t width = least(self->width, self->bank - first);
        ZONAL_TRY(multiply(self, count, first, width));
        ZONAL_TRY(ZONAL_CUDA(cudaMemcpy2DAsync(out + first, (size_t)self->bank * sizeof *out,
                                               self->panel, (size_t)self->width * sizeof *out,
                                               (size_t)width * sizeof *out, (size_t)count,
                                               cudaMemcpyDeviceToHost, self->stream)));
    }
    return ZONAL_CUDA(cudaStreamSynchronize(self->stream));
}

extern "C" const zonal__neighbours_table *zonal__neighbours_cuda(void) {
    static const zonal__neighbours_table table = {"cuda",   create,  destroy,
                                                  set_bank, nearest, cosines};
    return &table;
}
