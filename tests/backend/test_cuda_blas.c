/* cuBLAS as a build with CUDA finds it (src/backend/cuda/blas.cu): every function under the name
 * that this version gives it. A GPU is not needed. */
#include "core/error.h"
#include "test.h"

typedef struct zonal__blas zonal__blas;
zonal_status zonal__cuda_blas(const zonal__blas **out);

static void test_functions(void) {
    const zonal__blas *first = NULL, *second = NULL;
    if (!CHECK_OK(zonal__cuda_blas(&first))) return;
    CHECK(first != NULL);
    CHECK_OK(zonal__cuda_blas(&second)); /* the same, not loaded anew */
    CHECK(second == first);
}

static const test_case tests[] = {{"functions", test_functions}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
