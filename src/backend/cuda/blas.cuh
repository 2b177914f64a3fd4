/*
 * cuBLAS, opened when the first work needs it: only pairs and KL in tiles (stream.cu) and nearest
 * neighbours do, so the library loads and serves all other losses without it. Types are cuBLAS's
 * own; no function of it is called but through these pointers.
 */
#ifndef ZONAL_BACKEND_CUDA_BLAS_CUH
#define ZONAL_BACKEND_CUDA_BLAS_CUH

#include <cublas_v2.h>

extern "C" {
#include "core/error.h"
}

typedef struct zonal__blas {
    decltype(&cublasCreate) create;
    decltype(&cublasDestroy) destroy;
    decltype(&cublasSetStream) set_stream;
    decltype(&cublasSetWorkspace) set_workspace;
    decltype(&cublasSetPointerMode) set_pointer_mode;
    decltype(&cublasSetMathMode) set_math_mode;
    decltype(&cublasGetStatusString) status_text;
    decltype(&cublasSgemm) sgemm;
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                           const void *, const void *, cudaDataType, int, const void *,
                           cudaDataType, int, const void *, void *, cudaDataType, int,
                           cublasComputeType_t, cublasGemmAlgo_t); /* cublasGemmEx, overloaded */
} zonal__blas;

/* The functions, for the rest of the process. ZONAL_UNSUPPORTED where there is no cuBLAS; a later
 * call looks again. */
extern "C" zonal_status zonal__cuda_blas(const zonal__blas **out);

#endif
