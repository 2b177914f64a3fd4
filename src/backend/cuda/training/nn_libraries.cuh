/*
 * cuDNN and cuBLASLt as the layers use them: their errors as a status, one handle of each for every
 * device of the process, and the process's autotuning cache (backend/training/autotune_cache.h).
 *
 * Both are opened when the first layer needs them, which takes the loader a tenth of a second that
 * no other command should pay. Types are theirs; no function of them is called but through the
 * tables below, which whoever asks for a handle finds filled.
 *
 * The handles and the table are made on first use and live until the process ends: layers come and
 * go, and making a handle takes a second. cuDNN's handle is one thread's at a time: whoever calls
 * cuDNN with it holds the lock. cuBLASLt's needs none.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_LIBRARIES_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_LIBRARIES_CUH

#include <cublasLt.h>
#include <cudnn.h>

#include "backend/cuda/common.cuh"

extern "C" {
#include "backend/training/autotune_cache.h"
}

#define ZONAL_CUDNN_FUNCTIONS(X)                                                                   \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendExecute)                                                                         \
    X(cudnnBackendFinalize)                                                                        \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnCreate)                                                                                 \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnGetVersion)                                                                             \
    X(cudnnSetStream)
#define ZONAL_LT_FUNCTIONS(X)                                                                      \
    X(cublasLtCreate)                                                                              \
    X(cublasLtGetStatusString)                                                                     \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoCheck)                                                                     \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)

#define ZONAL_FUNCTION_POINTER(name) decltype(&::name) name;
typedef struct zonal__cudnn_functions {
    ZONAL_CUDNN_FUNCTIONS(ZONAL_FUNCTION_POINTER)
} zonal__cudnn_functions;
typedef struct zonal__lt_functions {
    ZONAL_LT_FUNCTIONS(ZONAL_FUNCTION_POINTER)
} zonal__lt_functions;
#undef ZONAL_FUNCTION_POINTER

/* ZONAL_CUDNN(cudnnSetStream(...)), ZONAL_LT(cublasLtMatmul(...)): a call as a status. */
#define ZONAL_CUDNN(call) zonal__cudnn_status(zonal__cudnn.call, #call, __FILE__, __LINE__)
#define ZONAL_LT(call)    zonal__lt_status(zonal__lt.call, #call, __FILE__, __LINE__)

extern "C" {
extern zonal__cudnn_functions zonal__cudnn;
extern zonal__lt_functions zonal__lt;

/* Fill the tables, once; without a GPU too. ZONAL_UNSUPPORTED where a library is not to be had. */
zonal_status zonal__libraries_open(void);

zonal_status zonal__cudnn_status(cudnnStatus_t status, const char *call, const char *file,
                                 int line);
zonal_status zonal__lt_status(cublasStatus_t status, const char *call, const char *file, int line);

/* Of the current device, with the tables filled. */
zonal_status zonal__libraries_cudnn(cudnnHandle_t *out);
zonal_status zonal__libraries_lt(cublasLtHandle_t *out);

/* For cuDNN's handle. */
void zonal__libraries_lock(void);
void zonal__libraries_unlock(void);

/* The process's cache. find: 1 and the text, or 0. put: a full table is said in the log, since a
 * later process then measures anew. */
int zonal__libraries_find(const char *key, char text[ZONAL__AUTOTUNE_TEXT]);
void zonal__libraries_put(const char *key, const char *text);
}

#endif
