/* The way back through a 1 x 1 convolution to a masked x: nn_fold.cuh. */
#include "backend/cuda/training/nn_fold.cuh"
#include "backend/cuda/training/nn_plan.cuh"

enum { SIDE = 32 };

/* weight [rows][columns] as [columns][rows], in blocks of 32 x 8 threads; both are multiples of 32.
 */
__global__ static void transpose(const __nv_bfloat16 *weight, int rows, int columns,
                                 __nv_bfloat16 *out) {
    __shared__ __nv_bfloat16 tile[SIDE][SIDE + 2];
    int row = (int)blockIdx.y * SIDE, column = (int)blockIdx.x * SIDE;
    for (int i = (int)threadIdx.y; i < SIDE; i += 8)
        tile[i][threadIdx.x] = weight[(int64_t)(row + i) * columns + column + threadIdx.x];
    __syncthreads();
    for (int i = (int)threadIdx.y; i < SIDE; i += 8)
        out[(int64_t)(column + i) * rows + row + threadIdx.x] = tile[threadIdx.x][i];
}

static size_t weight_bytes(const zonal__layer_spec *spec) {
    return zonal__plan_round_up((size_t)spec->channels * (size_t)spec->out_channels * 2);
}

zonal_status zonal__fold_masked_load(void) {
    cudaFuncAttributes attributes;
    ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, (const void *)transpose)));
    return zonal__fold_product_load();
}

size_t zonal__fold_masked_workspace(const zonal__layer_spec *spec) {
    return weight_bytes(spec) + ZONAL__FOLD_WORKSPACE;
}

zonal_status zonal__fold_masked_run(const zonal__layer_spec *spec, cudaStream_t stream,
                                    const zonal__layer_arrays *arrays, void *workspace) {
    dim3 grid((unsigned)(spec->channels / SIDE), (unsigned)(spec->out_channels / SIDE));
    __nv_bfloat16 *weight = (__nv_bfloat16 *)workspace;
    transpose<<<grid, dim3(SIDE, 8), 0, stream>>>((const __nv_bfloat16 *)arrays->weight,
                                                  spec->out_channels, spec->channels, weight);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    zonal__fold_product product = {spec->n * spec->h * spec->w,
                                   spec->channels,
                                   {arrays->dy, NULL},
                                   {spec->out_channels, 0},
                                   weight,
                                   NULL,
                                   arrays->dx_more,
                                   (uint8_t *)arrays->mask.signs,
                                   arrays->dx,
                                   (double *)arrays->mask.sums,
                                   (char *)workspace + weight_bytes(spec)};
    return zonal__fold_product_run(&product, stream);
}
