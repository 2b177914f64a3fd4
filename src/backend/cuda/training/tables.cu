/* CUDA's tables for training: backend/training/tables.h. */
#include "backend/cuda/common.cuh"

extern "C" {
#include "backend/training/tables.h"

/* Their files define them. */
const zonal__nn_table *zonal__nn_cuda(void); /* NULL without cuDNN */
const zonal__views_table *zonal__views_cuda(void);
const zonal__optimiser_table *zonal__optimiser_cuda(void);
const zonal__neighbours_table *zonal__neighbours_cuda(void);
const zonal__classifier_table *zonal__classifier_cuda(void);
const zonal__jpeg_table *zonal__jpeg_cuda(void);
#ifdef ZONAL_HAVE_CUDNN
zonal_status zonal__cuda_autotune_read(const zonal__device *device, const char *path);
zonal_status zonal__cuda_autotune_write(const zonal__device *device, const char *path);
#endif
}

static int bf16_pays(void) {
    return 1;
}

static zonal__training_tables make(void) {
    zonal__training_tables tables = {};
    tables.backend = "cuda";
    tables.layers = zonal__nn_cuda();
    tables.views = zonal__views_cuda();
    tables.optimisers = zonal__optimiser_cuda();
    tables.neighbours = zonal__neighbours_cuda();
    tables.classifier = zonal__classifier_cuda();
    tables.jpeg = zonal__jpeg_cuda();
    tables.bf16_pays = bf16_pays;
#ifdef ZONAL_HAVE_CUDNN
    tables.autotune_read = zonal__cuda_autotune_read;
    tables.autotune_write = zonal__cuda_autotune_write;
#else
    tables.no_layers = "this build of zonal has CUDA without cuDNN, which networks need there; "
                       "install cuDNN and build anew, or use the device cpu";
#endif
    return tables;
}

extern "C" const zonal__training_tables *zonal__training_cuda(void) {
    static const zonal__training_tables tables = make(); /* once, whichever thread is first */
    return &tables;
}
