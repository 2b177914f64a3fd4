/* cuBLAS at run time: blas.cuh. */
#include "backend/cuda/blas.cuh"

#include <pthread.h>

extern "C" {
#include "core/shared_library.h"
}

/* cublas_v2.h gives functions other names by macros, so the macros' values are what is looked up.
 */
#define TEXT(name) #name
#define NAME(name) TEXT(name)

/* Of the toolkit's version first. The functions are the same in 12 and 13. */
static const char *const names[] = {"libcublas.so." NAME(CUBLAS_VER_MAJOR), "libcublas.so.13",
                                    "libcublas.so.12", "libcublas.so", NULL};
static const zonal__shared_library library = {
    "cuBLAS, which pairwise losses of more than 1024 rows and k-NN use on CUDA,", names,
    ZONAL_CUDA_FOLDER,
    "install it with the CUDA toolkit, or name its folder in LD_LIBRARY_PATH; batches of up to "
    "1024 rows, the methods of degree 2 (mmd-band, ksd-band) and the sliced ones do without it"};

static struct {
    pthread_mutex_t lock;
    int loaded;
    zonal__blas blas;
} process = {PTHREAD_MUTEX_INITIALIZER, 0, {}};

static zonal_status load(zonal__blas *blas) {
    void *handle;
    ZONAL_TRY(zonal__shared_library_open(&library, &handle));
    const struct {
        const char *name;
        void *out;
    } functions[] = {{NAME(cublasCreate), &blas->create},
                     {NAME(cublasDestroy), &blas->destroy},
                     {NAME(cublasSetStream), &blas->set_stream},
                     {NAME(cublasSetWorkspace), &blas->set_workspace},
                     {NAME(cublasSetPointerMode), &blas->set_pointer_mode},
                     {NAME(cublasSetMathMode), &blas->set_math_mode},
                     {NAME(cublasGetStatusString), &blas->status_text},
                     {NAME(cublasSgemm), &blas->sgemm},
                     {NAME(cublasGemmEx), &blas->gemm}};
    for (const auto &function : functions)
        ZONAL_TRY(zonal__shared_library_function(&library, handle, function.name, function.out));
    return ZONAL_OK;
}

zonal_status zonal__cuda_blas(const zonal__blas **out) {
    zonal_status status = ZONAL_OK;
    *out = NULL;
    pthread_mutex_lock(&process.lock);
    if (!process.loaded) {
        status = load(&process.blas);
        process.loaded = status == ZONAL_OK;
    }
    pthread_mutex_unlock(&process.lock);
    if (status == ZONAL_OK) *out = &process.blas;
    return status;
}
