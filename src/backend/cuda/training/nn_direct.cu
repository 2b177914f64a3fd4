/*
 * A convolution by its formula (backend/training/nn.h), in plain loops: a thread per output
 * element, and for the filter's gradient a block per weight. Slow, needs nothing, does every shape:
 * what is left where neither library has an engine, and the gradient of a network's input, which no
 * training asks for. Sums are fp32, in a fixed order.
 */
#include "backend/cuda/training/nn_direct.cuh"

#include <string.h>

static const int THREADS = 256;

template <typename In, typename Out>
static __global__ void forward(zonal__plan_shape s, const In *x, const In *weight, Out *y,
                               int64_t count) {
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    int k = (int)(at % s.k), j = (int)(at / s.k % s.out_w), i = (int)(at / s.k / s.out_w % s.out_h);
    int64_t n = at / s.k / s.out_w / s.out_h;
    float sum = 0;
    for (int r = 0; r < s.kernel; r++)
        for (int t = 0; t < s.kernel; t++) {
            int row = i * s.stride + r - s.pad, column = j * s.stride + t - s.pad;
            if (row < 0 || row >= s.h || column < 0 || column >= s.w) continue;
            const In *pixel = x + ((n * s.h + row) * s.w + column) * s.c;
            const In *tap = weight + (((int64_t)k * s.kernel + r) * s.kernel + t) * s.c;
            for (int c = 0; c < s.c; c++) sum += zonal__load(pixel + c) * zonal__load(tap + c);
        }
    zonal__store(y + at, sum);
}

/* The output row (or column) that tap r of input row "at" belongs to; -1: none. */
__device__ inline int output_of(int at, int r, int pad, int stride, int side) {
    int shifted = at + pad - r;
    if (shifted < 0 || shifted % stride != 0 || shifted / stride >= side) return -1;
    return shifted / stride;
}

template <typename In, typename Out>
static __global__ void data(zonal__plan_shape s, const In *dy, const In *weight, Out *dx,
                            int64_t count) {
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    int c = (int)(at % s.c), column = (int)(at / s.c % s.w), row = (int)(at / s.c / s.w % s.h);
    int64_t n = at / s.c / s.w / s.h;
    float sum = 0;
    for (int r = 0; r < s.kernel; r++)
        for (int t = 0; t < s.kernel; t++) {
            int i = output_of(row, r, s.pad, s.stride, s.out_h);
            int j = output_of(column, t, s.pad, s.stride, s.out_w);
            if (i < 0 || j < 0) continue;
            const In *pixel = dy + ((n * s.out_h + i) * s.out_w + j) * s.k;
            const In *tap = weight + ((int64_t)r * s.kernel + t) * s.c + c;
            for (int k = 0; k < s.k; k++)
                sum += zonal__load(pixel + k) *
                       zonal__load(tap + (int64_t)k * s.kernel * s.kernel * s.c);
        }
    zonal__store(dx + at, sum);
}

/* The sum of one float per thread of the block, in a fixed order; right in thread 0. */
__device__ inline float block_sum(float value) {
    __shared__ float part[THREADS / 32];
    value = zonal__warp_sum(value);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < THREADS / 32; i++) sum += part[i];
    return sum;
}

template <typename In>
static __global__ void filter(zonal__plan_shape s, const In *x, const In *dy, float *dweight,
                              int accumulate) {
    int64_t at = blockIdx.x, pixels = s.n * s.out_h * s.out_w;
    int c = (int)(at % s.c), t = (int)(at / s.c % s.kernel);
    int r = (int)(at / s.c / s.kernel % s.kernel), k = (int)(at / s.c / s.kernel / s.kernel);
    float sum = 0;
    for (int64_t pixel = threadIdx.x; pixel < pixels; pixel += THREADS) {
        int j = (int)(pixel % s.out_w), i = (int)(pixel / s.out_w % s.out_h);
        int64_t n = pixel / s.out_w / s.out_h;
        int row = i * s.stride + r - s.pad, column = j * s.stride + t - s.pad;
        if (row < 0 || row >= s.h || column < 0 || column >= s.w) continue;
        sum += zonal__load(dy + pixel * s.k + k) *
               zonal__load(x + ((n * s.h + row) * s.w + column) * s.c + c);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) dweight[at] = accumulate ? dweight[at] + sum : sum;
}

template <typename In, typename Out>
static void launch(const zonal__plan_shape *shape, cudaStream_t stream,
                   const zonal__plan_arrays *arrays) {
    const In *x = (const In *)arrays->x, *weight = (const In *)arrays->weight;
    const In *y = (const In *)arrays->y;
    int64_t count = zonal__plan_elements(shape, zonal__plan_output(shape));
    unsigned blocks = (unsigned)((count + THREADS - 1) / THREADS);
    if (shape->direction == ZONAL__FORWARD)
        forward<<<blocks, THREADS, 0, stream>>>(*shape, x, weight, (Out *)arrays->y, count);
    else if (shape->direction == ZONAL__DATA)
        data<<<blocks, THREADS, 0, stream>>>(*shape, y, weight, (Out *)arrays->x, count);
    else
        filter<<<(unsigned)count, THREADS, 0, stream>>>(*shape, x, y, (float *)arrays->weight,
                                                        arrays->accumulate);
}

zonal_status zonal__direct_run(const zonal__plan_shape *shape, cudaStream_t stream,
                               const zonal__plan_arrays *arrays) {
    if (shape->dtype == ZONAL_DTYPE_FP32)
        launch<float, float>(shape, stream, arrays);
    else if (shape->out_dtype == ZONAL_DTYPE_FP32)
        launch<__nv_bfloat16, float>(shape, stream, arrays);
    else
        launch<__nv_bfloat16, __nv_bfloat16>(shape, stream, arrays);
    return ZONAL_CUDA_LAUNCHED();
}

/* ---- as a way -------------------------------------------------------------------------------- */

/* Never in the race: it is what is left when nobody else is there. */
static zonal_status list(const zonal__plan_shape *shape, zonal__contenders *contenders) {
    (void)shape, (void)contenders;
    return ZONAL_OK;
}

static zonal_status create(const zonal__plan_shape *shape, const char *text, void **out) {
    void *memory;
    *out = NULL;
    if (strcmp(text, zonal__way_direct.name) != 0)
        return ZONAL_FAIL(ZONAL_FORMAT, "there is no implementation \"%s\"", text);
    /* A block per weight, or per 256 outputs: as many as a launch takes. */
    int64_t count = zonal__plan_elements(shape, zonal__plan_output(shape));
    int64_t blocks = shape->direction == ZONAL__FILTER ? count : (count + THREADS - 1) / THREADS;
    if (blocks > INT32_MAX)
        return ZONAL_FAIL(ZONAL_SHAPE, "the layer has too many elements for one launch");
    ZONAL_TRY(zonal__alloc(1, sizeof(zonal__plan_shape), "a plan", &memory));
    *(zonal__plan_shape *)memory = *shape;
    *out = memory;
    return ZONAL_OK;
}

static size_t no_workspace(const void *object) {
    (void)object;
    return 0;
}

static zonal_status run(void *object, cudaStream_t stream, const zonal__plan_arrays *arrays) {
    return zonal__direct_run((const zonal__plan_shape *)object, stream, arrays);
}

const zonal__way zonal__way_direct = {"direct", list, create, zonal__free, no_workspace, run};
