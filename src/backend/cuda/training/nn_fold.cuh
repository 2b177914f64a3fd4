/*
 * What a PRODUCT_NORM on Hopper is made of (nn_fold.cu): two large kernels, whose rows are the
 * pixels of all images.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_FOLD_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_FOLD_CUH

#include "backend/cuda/training/nn.cuh"

extern "C" {
/* For the table, on the current GPU. */
int zonal__cuda_folds(const zonal__layer_spec *spec);
zonal__layer_mask zonal__cuda_fold_mask(const zonal__layer *layer, void *saved);
}

/* ---- products (nn_fold_product.cu) ---------------------------------------------------------- */

enum { ZONAL__FOLD_WORKSPACE = 1 << 19 };

/* With t = x weight^T, x being both sources side by side,
 *
 *     y = t factor + offset                            or, with a residual,
 *     y = relu(t factor + offset + residual)           or, with sums,
 *     y = t + residual where "positive" has a bit, else 0
 *
 * for rows of bf16; depths are multiples of 64, columns of 64 (of 128 with a residual). */
typedef struct zonal__fold_product {
    int64_t rows;
    int columns;
    const void *x[2];
    int depth[2];       /* the second may be 0 */
    const void *weight; /* [columns][both depths] */
    const float2 *line; /* [columns]: factor, offset */
    const void *residual;
    /* With a residual: a bit for each element, whether y > 0, in [columns/64][rows][8] bytes, so
     * that a tile's lie together. NULL: not wanted. */
    uint8_t *positive;
    void *y;
    double *sums;    /* [columns]: y's columns, summed over the rows as they are stored; or NULL */
    void *workspace; /* with sums: ZONAL__FOLD_WORKSPACE bytes */
} zonal__fold_product;

extern "C" {
/* Loads the kernels, which a first launch would do too late for a graph's capture. */
zonal_status zonal__fold_product_load(void);
zonal_status zonal__fold_product_run(const zonal__fold_product *product, cudaStream_t stream);
}

/* ---- masked convolutions (nn_fold_masked.cu) --------------------------------------------------
 */

extern "C" {
zonal_status zonal__fold_masked_load(void);
size_t zonal__fold_masked_workspace(const zonal__layer_spec *spec);
/* dx and the mask's sums, as backend/training/nn.h says. */
zonal_status zonal__fold_masked_run(const zonal__layer_spec *spec, cudaStream_t stream,
                                    const zonal__layer_arrays *arrays, void *workspace);
}

/* ---- means and covariances of channels (nn_fold_gram.cu) ------------------------------------- */

/* Of bf16 x [rows][channels], channels 64 or a multiple of 128: mean [channels] and covariance
 * [channels][channels], the mean of (x - mean)(x - mean)^T. */
typedef struct zonal__fold_moments {
    int64_t rows;
    int channels;
    const void *x;
    float *mean, *covariance;
    void *workspace; /* zonal__fold_moments_workspace bytes */
} zonal__fold_moments;

extern "C" {
zonal_status zonal__fold_moments_load(void);
size_t zonal__fold_moments_workspace(int channels);
zonal_status zonal__fold_moments_run(const zonal__fold_moments *moments, cudaStream_t stream);
}

#endif
