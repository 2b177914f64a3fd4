/*
 * The classifier that is trained along with a network, on CUDA: backend/training/classifier.h. Two
 * kernels: a block for 2 rows makes their shares, a warp for each class; then a block for 32
 * columns of 8 classes adds them up over the rows, in a fixed order. It is a few megaflops beside a
 * network's teraflops, so latency is what counts: no library, no tensor cores, fp32, many warps and
 * many loads at a time.
 */
#include "backend/cuda/common.cuh"

extern "C" {
#include "backend/training/classifier.h"
}

enum {
    ROWS = 2,     /* of a block that makes shares */
    WARPS = 32,   /* of it: at least as many as rows */
    COLUMNS = 32, /* of a gradient's block */
    CLASSES = 8,  /* the same */
    DEPTH = 16    /* rows that it adds side by side */
};

struct zonal__classifier {
    zonal__classifier_spec spec;
    float *shares; /* device, [rows][classes] */
    cudaStream_t stream;
};

__device__ static float warp_max(float value) {
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

/* By one warp. fmaxf passes over a NaN, and the sum does not. */
__device__ static void softmax(float *score, int classes, int label, float all_rows) {
    int lane = (int)threadIdx.x % 32;
    float most = -INFINITY, sum = 0;
    for (int c = lane; c < classes; c += 32) most = fmaxf(most, score[c]);
    most = warp_max(most);
    for (int c = lane; c < classes; c += 32) sum += expf(score[c] - most);
    sum = zonal__warp_sum(sum);
    for (int c = lane; c < classes; c += 32)
        score[c] = (expf(score[c] - most) / sum - (c == label ? 1.f : 0.f)) / all_rows;
}

/* Of the block's rows the scores of one class, by a warp. Rows beyond the last are that one again.
 */
template <typename T>
__device__ static void score_rows(const T *x, const int64_t (&row)[ROWS], const float *weight,
                                  float bias, int64_t dim, int classes, float *score) {
    int lane = (int)threadIdx.x % 32;
    float sum[ROWS] = {};
#pragma unroll 4
    for (int64_t j = lane; j < dim; j += 32) {
        float w = weight[j];
        for (int r = 0; r < ROWS; r++) sum[r] += zonal__load(x + row[r] * dim + j) * w;
    }
    for (int r = 0; r < ROWS; r++) {
        float total = zonal__warp_sum(sum[r]);
        if (lane == 0) score[row[r] * classes] = total + bias;
    }
}

template <typename T>
static __global__ void __launch_bounds__(32 * WARPS)
    classifier_shares(const T *x, const int32_t *labels, const float *parameters, int64_t rows,
                      int64_t dim, int classes, float all_rows, float *shares) {
    const float *bias = parameters + classes * dim;
    int64_t row[ROWS];
    int warp = (int)threadIdx.x / 32;
    for (int r = 0; r < ROWS; r++) row[r] = min((int64_t)blockIdx.x * ROWS + r, rows - 1);
    for (int c = warp; c < classes; c += WARPS)
        score_rows(x, row, parameters + c * dim, bias[c], dim, classes, shares + c);
    __syncthreads();
    int64_t own = (int64_t)blockIdx.x * ROWS + warp;
    if (warp < ROWS && own < rows) softmax(shares + own * classes, classes, labels[own], all_rows);
}

/* Column "dim" is the bias, whose feature is 1. */
template <typename T>
static __global__ void __launch_bounds__(COLUMNS *DEPTH)
    classifier_gradient(const T *x, const float *shares, int64_t rows, int64_t dim, int classes,
                        float *gradients) {
    __shared__ float part[DEPTH][CLASSES][COLUMNS];
    int64_t column = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    int first = (int)blockIdx.y * CLASSES, most = min(CLASSES, classes - first);
    float sum[CLASSES] = {};
#pragma unroll 4
    for (int64_t i = threadIdx.y; i < rows && column <= dim; i += DEPTH) {
        float value = column < dim ? zonal__load(x + i * dim + column) : 1.f;
        const float *share = shares + i * classes + first;
        for (int k = 0; k < CLASSES; k++) sum[k] += share[min(k, most - 1)] * value;
    }
    for (int k = 0; k < CLASSES; k++) part[threadIdx.y][k][threadIdx.x] = sum[k];
    __syncthreads();
    int k = (int)threadIdx.y, c = first + k;
    if (k >= most || column > dim) return;
    float total = 0;
    for (int d = 0; d < DEPTH; d++) total += part[d][k][threadIdx.x];
    gradients[column < dim ? c * dim + column : classes * dim + c] = total;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void destroy(zonal__classifier *self) {
    if (!self) return;
    zonal__cuda_on on(self->spec.device);
    cudaFree(self->shares);
    zonal__free(self);
}

/* Loads the kernels, which a first launch would do too late for a graph's capture. */
static zonal_status load_kernels(void) {
    cudaFuncAttributes attributes;
    const void *const kernels[] = {
        (const void *)classifier_shares<float>, (const void *)classifier_shares<__nv_bfloat16>,
        (const void *)classifier_gradient<float>, (const void *)classifier_gradient<__nv_bfloat16>};
    for (const void *kernel : kernels)
        ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, kernel)));
    return ZONAL_OK;
}

static zonal_status create(const zonal__classifier_spec *spec, zonal__classifier **out) {
    zonal__cuda_on on(spec->device);
    zonal__classifier *self;
    void *memory = NULL;
    *out = NULL;
    ZONAL_TRY(zonal__classifier_check(spec));
    ZONAL_TRY(ZONAL_NEW(&self, 1, "a classifier"));
    self->spec = *spec;
    zonal_status status = zonal__cuda_malloc((size_t)(spec->rows * spec->classes) * sizeof(float),
                                             "a classifier's shares", &memory);
    self->shares = (float *)memory;
    if (status == ZONAL_OK) status = load_kernels();
    if (status == ZONAL_OK)
        *out = self;
    else
        destroy(self);
    return status;
}

template <typename T>
static zonal_status launch(const zonal__classifier *self, const T *x, const int32_t *labels,
                           const float *parameters, float *gradients) {
    const zonal__classifier_spec *s = &self->spec;
    dim3 grid((unsigned)(s->dim / COLUMNS + 1), (unsigned)((s->classes + CLASSES - 1) / CLASSES));
    classifier_shares<<<(unsigned)((s->rows + ROWS - 1) / ROWS), 32 * WARPS, 0, self->stream>>>(
        x, labels, parameters, s->rows, s->dim, s->classes, (float)s->all_rows, self->shares);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    classifier_gradient<<<grid, dim3(COLUMNS, DEPTH), 0, self->stream>>>(
        x, self->shares, s->rows, s->dim, s->classes, gradients);
    return ZONAL_CUDA_LAUNCHED();
}

static zonal_status gradient(zonal__classifier *self, const void *x, const int32_t *labels,
                             const float *parameters, float *gradients) {
    zonal__cuda_on on(self->spec.device);
    if (self->spec.dtype == ZONAL_DTYPE_BF16)
        return launch(self, (const __nv_bfloat16 *)x, labels, parameters, gradients);
    return launch(self, (const float *)x, labels, parameters, gradients);
}

static void set_stream(zonal__classifier *self, void *stream) {
    self->stream = (cudaStream_t)stream;
}

static const zonal__classifier_table table = {"cuda", create, destroy, gradient, set_stream};

extern "C" const zonal__classifier_table *zonal__classifier_cuda(void) {
    return &table;
}
