/*
 * Linear layers on CUDA: plans (nn_plan.cuh) for a 1 x 1 convolution of n pixels, and two kernels
 * for the bias. With a bias the product is written as fp32 to scratch and rounded once, after the
 * bias is added: cuBLASLt's own bias would have to be of the output's type.
 *
 * Scratch, each part aligned to ZONAL__PLAN_ALIGNMENT: the plans' workspace, the product in fp32.
 */
#include "backend/cuda/training/nn.cuh"
#include "backend/cuda/training/nn_plan.cuh"

typedef struct linear {
    zonal__layer layer;
    zonal__plan *plan[3]; /* by direction; NULL: not wanted */
    size_t workspace;     /* of the plans, rounded up */
} linear;

static zonal_status create(zonal__layer *layer) {
    linear *l = (linear *)layer;
    const zonal__layer_spec *spec = &layer->spec;
    for (int i = 0; i < (spec->forward_only ? 1 : 3); i++) {
        int wide = i == ZONAL__FILTER || (i == ZONAL__FORWARD && spec->bias);
        zonal__plan_shape shape = {(zonal__direction)i,
                                   spec->dtype,
                                   wide ? ZONAL_DTYPE_FP32 : spec->dtype,
                                   spec->n,
                                   1,
                                   1,
                                   spec->channels,
                                   1,
                                   1,
                                   layer->out_channels,
                                   1,
                                   1,
                                   0};
        ZONAL_TRY(zonal__plan_create(&shape, &l->plan[i]));
        size_t bytes = zonal__plan_round_up(zonal__plan_workspace(l->plan[i]));
        if (bytes > l->workspace) l->workspace = bytes;
    }
    return ZONAL_OK;
}

static void destroy(zonal__layer *layer) {
    for (zonal__plan *plan : ((linear *)layer)->plan) zonal__plan_destroy(plan);
}

static size_t saved_bytes(const zonal__layer *layer) {
    (void)layer;
    return 0;
}

static int64_t outputs_of(const zonal__layer *layer) {
    return layer->spec.n * layer->out_channels;
}

static size_t scratch_bytes(const zonal__layer *layer) {
    size_t bytes = ((const linear *)layer)->workspace;
    if (layer->spec.bias) bytes += (size_t)outputs_of(layer) * sizeof(float);
    return bytes ? bytes + ZONAL__PLAN_ALIGNMENT : 0; /* scratch is aligned to 64 only */
}

static char *workspace_in(const zonal__layer_arrays *arrays) {
    return (char *)zonal__plan_round_up((size_t)arrays->scratch);
}

/* ---- the bias -------------------------------------------------------------------------------- */

template <typename T>
static __global__ void add_bias(const float *product, const float *bias, int64_t count,
                                int channels, T *y) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) zonal__store(y + i, product[i] + bias[i % channels]);
}

/* A block sums 32 columns of dy [rows][channels]: 32 threads side by side, 32 deep. */
template <typename T>
static __global__ void sum_columns(const T *dy, int64_t rows, int channels, int accumulate,
                                   float *dbias) {
    __shared__ float part[32][33];
    int column = (int)blockIdx.x * 32 + (int)threadIdx.x;
    float sum = 0;
    if (column < channels)
        for (int64_t row = threadIdx.y; row < rows; row += 32)
            sum += zonal__load(dy + row * channels + column);
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= channels) return;
    for (int i = 1; i < 32; i++) sum += part[i][threadIdx.x];
    dbias[column] = accumulate ? dbias[column] + sum : sum;
}

static zonal_status launch_bias(const zonal__layer *layer, const float *product,
                                const zonal__layer_arrays *arrays) {
    int64_t count = outputs_of(layer);
    unsigned blocks = (unsigned)((count + 255) / 256);
    if (layer->spec.dtype == ZONAL_DTYPE_BF16)
        add_bias<<<blocks, 256, 0, layer->stream>>>(
            product, arrays->bias, count, layer->out_channels, (__nv_bfloat16 *)arrays->y);
    else
        add_bias<<<blocks, 256, 0, layer->stream>>>(product, arrays->bias, count,
                                                    layer->out_channels, (float *)arrays->y);
    return ZONAL_CUDA_LAUNCHED();
}

static zonal_status launch_dbias(const zonal__layer *layer, const zonal__layer_arrays *arrays) {
    dim3 block(32, 32);
    unsigned blocks = (unsigned)(layer->out_channels + 31) / 32;
    if (layer->spec.dtype == ZONAL_DTYPE_BF16)
        sum_columns<<<blocks, block, 0, layer->stream>>>((const __nv_bfloat16 *)arrays->dy,
                                                         layer->spec.n, layer->out_channels,
                                                         arrays->accumulate, arrays->dbias);
    else
        sum_columns<<<blocks, block, 0, layer->stream>>>((const float *)arrays->dy, layer->spec.n,
                                                         layer->out_channels, arrays->accumulate,
                                                         arrays->dbias);
    return ZONAL_CUDA_LAUNCHED();
}

/* ---- runs ------------------------------------------------------------------------------------ */

static zonal_status forward(zonal__layer *layer, const zonal__layer_arrays *arrays, int training) {
    linear *l = (linear *)layer;
    char *workspace = workspace_in(arrays);
    void *product = layer->spec.bias ? (void *)(workspace + l->workspace) : arrays->y;
    zonal__plan_arrays plain = {arrays->x, arrays->weight, product, workspace, 0};
    (void)training;
    ZONAL_TRY(zonal__plan_run(l->plan[ZONAL__FORWARD], layer->stream, &plain));
    return layer->spec.bias ? launch_bias(layer, (const float *)product, arrays) : ZONAL_OK;
}

static zonal_status backward_to_weight(linear *l, const zonal__layer_arrays *arrays) {
    zonal__plan_arrays filter = {arrays->x, arrays->dweight, arrays->dy, workspace_in(arrays),
                                 arrays->accumulate};
    ZONAL_TRY(zonal__plan_run(l->plan[ZONAL__FILTER], l->layer.stream, &filter));
    return l->layer.spec.bias ? launch_dbias(&l->layer, arrays) : ZONAL_OK;
}

static zonal_status backward(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    linear *l = (linear *)layer;
    char *workspace = workspace_in(arrays);
    if (arrays->dweight) ZONAL_TRY(backward_to_weight(l, arrays));
    if (!arrays->dx) return ZONAL_OK;
    zonal__plan_arrays data = {arrays->dx, arrays->weight, arrays->dy, workspace, 0};
    return zonal__plan_run(l->plan[ZONAL__DATA], layer->stream, &data);
}

const zonal__cuda_layer_kind zonal__cuda_linear = {sizeof(linear), create,  destroy, saved_bytes,
                                                   scratch_bytes,  forward, backward};
