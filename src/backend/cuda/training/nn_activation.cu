/*
 * Activations alone, on CUDA: backend/training/nn.h, ACTIVATION. One pass over the elements, 8 to a
 * thread.
 */
#include "backend/cuda/training/nn_launch.h"
#include "backend/cuda/training/nn_vector.cuh"
#include "backend/cuda/unit_rows.cuh"

enum { THREADS = 256, BLOCKS = 1 << 14 };

typedef struct activation_args {
    int64_t count;
    const void *x, *dy; /* dy NULL: forward */
    void *out;          /* y or dx */
} activation_args;

template <typename T, int V, zonal__activation A>
__device__ static inline void activate_at(const activation_args &args, int64_t i) {
    float x[V], dy[V];
    nn_widen(nn_read<T, V>((const T *)args.x + i), x);
    if (args.dy) nn_widen(nn_read<T, V>((const T *)args.dy + i), dy);
#pragma unroll
    for (int k = 0; k < V; k++)
        x[k] = args.dy ? dy[k] * nn_derivative<A>(x[k]) : nn_activate<A>(x[k]);
    nn_write((T *)args.out + i, x);
}

template <typename T, zonal__activation A>
__global__ void __launch_bounds__(THREADS)
    activation_pass(const __grid_constant__ activation_args args) {
    constexpr int V = ZONAL__NN_VECTOR;
    int64_t step = (int64_t)gridDim.x * THREADS * V;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V; i < args.count; i += step) {
        if (i + V <= args.count)
            activate_at<T, V, A>(args, i);
        else
            for (int64_t k = i; k < args.count; k++) activate_at<T, 1, A>(args, k);
    }
}

template <typename T>
static zonal_status launch(const zonal__layer *layer, const activation_args &args) {
    int64_t blocks = (args.count + THREADS * ZONAL__NN_VECTOR - 1) / (THREADS * ZONAL__NN_VECTOR);
    auto kernel = layer->spec.activation == ZONAL__ACTIVATION_RELU
                      ? activation_pass<T, ZONAL__ACTIVATION_RELU>
                  : layer->spec.activation == ZONAL__ACTIVATION_GELU
                      ? activation_pass<T, ZONAL__ACTIVATION_GELU>
                      : activation_pass<T, ZONAL__ACTIVATION_NONE>;
    return zonal__launch(layer->stream,
                         dim3((unsigned)(blocks < BLOCKS ? blocks : (int64_t)BLOCKS)), THREADS, 0,
                         1, kernel, args);
}

static zonal_status run(const zonal__layer *layer, const void *x, const void *dy, void *out) {
    const zonal__layer_spec *spec = &layer->spec;
    activation_args args = {spec->n * spec->h * spec->w * spec->channels, x, dy, out};
    return spec->dtype == ZONAL_DTYPE_BF16 ? launch<__nv_bfloat16>(layer, args)
                                           : launch<float>(layer, args);
}

static zonal_status forward(zonal__layer *layer, const zonal__layer_arrays *arrays, int training) {
    (void)training;
    return run(layer, arrays->x, NULL, arrays->y);
}

static zonal_status backward(zonal__layer *layer, const zonal__layer_arrays *arrays) {
    return arrays->dx ? run(layer, arrays->x, arrays->dy, arrays->dx) : ZONAL_OK;
}

const zonal__cuda_layer_kind zonal__cuda_activation = {
    sizeof(zonal__layer), NULL, NULL, NULL, NULL, forward, backward};
