/* cuBLAS, cuDNN and cuBLASLt as a build with CUDA finds them at run time (src/backend/cuda/blas.cu,
 * training/nn_libraries.cu): every function under the name that this version gives it. A GPU is not
 * needed. */
#include "core/error.h"
#include "test.h"

typedef struct zonal__blas zonal__blas;
zonal_status zonal__cuda_blas(const zonal__blas **out);

static void test_losses(void) {
    const zonal__blas *first = NULL, *second = NULL;
    if (!CHECK_OK(zonal__cuda_blas(&first))) return;
    CHECK(first != NULL);
    CHECK_OK(zonal__cuda_blas(&second)); /* the same, not loaded anew */
    CHECK(second == first);
}

#ifdef ZONAL_HAVE_CUDNN
zonal_status zonal__libraries_open(void);

static void test_networks(void) {
    CHECK_OK(zonal__libraries_open());
    CHECK_OK(zonal__libraries_open());
}
#else
static void test_networks(void) {
    SKIP("this build has no cuDNN");
}
#endif

static const test_case tests[] = {{"losses", test_losses}, {"networks", test_networks}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
