#include "backend/cuda/training/nn_norm_ranks.cuh"

enum { THREADS = 128 }; /* one for each channel */

__global__ static void join_statistics(const __grid_constant__ norm_args args) {
    int channel = (int)(blockIdx.x * THREADS + threadIdx.x), channels = args.shape.channels;
    if (channel >= channels) return;
    double sum = args.joined[channel];
    channel_statistics all = {sum / args.elements, 0, 0};
    all.squares = args.joined[channels + channel] - sum * all.mean;
    if (all.squares < 0) all.squares = 0; /* a rounding; NaN stays */
    all.inverse = (float)(1 / sqrt(all.squares / args.elements + (double)args.epsilon));
    norm_keep_statistics(args, channel, all);
}

__global__ static void join_sums(const __grid_constant__ norm_args args) {
    int channel = (int)(blockIdx.x * THREADS + threadIdx.x), channels = args.shape.channels;
    if (channel >= channels) return;
    double inverse = (double)args.inverse[channel];
    double dscale = args.joined[channels + channel] * inverse;
    args.mean_g[channel] = (float)(args.joined[channel] / args.elements);
    args.slope[channel] = (float)(dscale * inverse / args.elements);
}

zonal_status zonal__norm_ranks_make(const zonal__layer_spec *spec, norm_ranks *ranks) {
    size_t bytes = 2 * (size_t)spec->channels * sizeof(double);
    cudaFuncAttributes attributes;
    void *memory;
    if (!spec->communicator) return ZONAL_OK;
    ranks->communicator = spec->communicator;
    /* Loaded now: a first launch would be too late for a graph's capture. */
    ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, (const void *)join_statistics)));
    ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, (const void *)join_sums)));
    ZONAL_TRY(zonal__cuda_malloc(bytes, "the sums of a batch norm", &memory));
    ranks->joined = (double *)memory;
    if (spec->communicator->on_device) return ZONAL_OK;
    return ZONAL_CUDA(cudaMallocHost((void **)&ranks->pinned, bytes));
}

void zonal__norm_ranks_drop(norm_ranks *ranks) {
    cudaFree(ranks->joined);
    cudaFreeHost(ranks->pinned);
}

static zonal_status add_up(const norm_ranks *ranks, int channels, cudaStream_t stream) {
    const zonal_communicator *c = ranks->communicator;
    size_t bytes = 2 * (size_t)channels * sizeof(double);
    int64_t count = 2 * (int64_t)channels;
    if (!ranks->pinned)
        return c->all_reduce(c->context, ranks->joined, count, ZONAL_REDUCE_DOUBLE, stream);
    ZONAL_TRY(ZONAL_CUDA(
        cudaMemcpyAsync(ranks->pinned, ranks->joined, bytes, cudaMemcpyDeviceToHost, stream)));
    ZONAL_TRY(ZONAL_CUDA(cudaStreamSynchronize(stream)));
    ZONAL_TRY(c->all_reduce(c->context, ranks->pinned, count, ZONAL_REDUCE_DOUBLE, NULL));
    /* The next exchange writes pinned memory after it has waited for the stream, and so for this.
     */
    return ZONAL_CUDA(
        cudaMemcpyAsync(ranks->joined, ranks->pinned, bytes, cudaMemcpyHostToDevice, stream));
}

static zonal_status join(const norm_ranks *ranks, norm_kernel kernel, const norm_args &args,
                         cudaStream_t stream) {
    int channels = args.shape.channels;
    if (!ranks->communicator) return ZONAL_OK;
    ZONAL_TRY(add_up(ranks, channels, stream));
    return zonal__launch(stream, dim3((unsigned)((channels + THREADS - 1) / THREADS)), THREADS, 0,
                         1, kernel, args);
}

zonal_status zonal__norm_join_statistics(const norm_ranks *ranks, const norm_args &args,
                                         cudaStream_t stream) {
    return join(ranks, join_statistics, args, stream);
}

zonal_status zonal__norm_join_sums(const norm_ranks *ranks, const norm_args &args,
                                   cudaStream_t stream) {
    return join(ranks, join_sums, args, stream);
}
