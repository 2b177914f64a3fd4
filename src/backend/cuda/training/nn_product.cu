/*
 * Convolutions with a 1 x 1 kernel of stride 1, and linear layers, as matrix products of cuBLASLt.
 * With m = n h w rows, row-major x [m][c], weight [k][c], y [m][k]:
 *
 *     FORWARD   y = x weight^T
 *     DATA      dx = dy weight
 *     FILTER    dweight = dy^T x (+ dweight)
 *
 * cuBLASLt's matrices are column-major: a row-major [r][s] is its s x r. So the transposes of these
 * equations are what it is asked for. Sums are fp32. A sum over m may be cut in parts, which are
 * kept in the workspace and added in a fixed order; schemes that add in the output are left out.
 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/training/nn_libraries.cuh"
#include "backend/cuda/training/nn_plan.cuh"

static const int CONTENDERS = 8;
static const size_t WORKSPACE = 64 << 20;
static const uint32_t ALIGNMENT = 16; /* of arrays, in bytes; they have 64 */

/* out = op(a) op(b), the output's sides being rows x columns in cuBLASLt's order. */
typedef struct product {
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
    zonal__direction direction;
} product;

static void destroy(void *object) {
    product *p = (product *)object;
    if (p->how) zonal__lt.cublasLtMatmulDescDestroy(p->how);
    if (p->a) zonal__lt.cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) zonal__lt.cublasLtMatrixLayoutDestroy(p->b);
    if (p->out) zonal__lt.cublasLtMatrixLayoutDestroy(p->out);
    zonal__free(p);
}

static zonal_status set_transposed(product *p, cublasLtMatmulDescAttributes_t which) {
    int32_t transposed = CUBLAS_OP_T;
    return ZONAL_LT(cublasLtMatmulDescSetAttribute(p->how, which, &transposed, sizeof transposed));
}

static zonal_status describe(product *p, const zonal__plan_shape *shape) {
    cudaDataType_t in = shape->dtype == ZONAL_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    cudaDataType_t result = shape->out_dtype == ZONAL_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    int64_t m = shape->n * shape->h * shape->w, c = shape->c, k = shape->k;
    p->direction = shape->direction;
    ZONAL_TRY(ZONAL_LT(cublasLtMatmulDescCreate(&p->how, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    switch (shape->direction) {
    case ZONAL__FORWARD: /* y' = weight'^T x' */
        ZONAL_TRY(set_transposed(p, CUBLASLT_MATMUL_DESC_TRANSA));
        ZONAL_TRY(ZONAL_LT(cublasLtMatrixLayoutCreate(&p->a, in, c, k, c)));
        ZONAL_TRY(ZONAL_LT(cublasLtMatrixLayoutCreate(&p->b, in, c, m, c)));
        return ZONAL_LT(cublasLtMatrixLayoutCreate(&p->out, result, k, m, k));
    case ZONAL__DATA: /* dx' = weight' dy' */
        ZONAL_TRY(ZONAL_LT(cublasLtMatrixLayoutCreate(&p->a, in, c, k, c)));
        ZONAL_TRY(ZONAL_LT(cublasLtMatrixLayoutCreate(&p->b, in, k, m, k)));
        return ZONAL_LT(cublasLtMatrixLayoutCreate(&p->out, result, c, m, c));
    default: /* dweight' = x' dy'^T */
        ZONAL_TRY(set_transposed(p, CUBLASLT_MATMUL_DESC_TRANSB));
        ZONAL_TRY(ZONAL_LT(cublasLtMatrixLayoutCreate(&p->a, in, c, m, c)));
        ZONAL_TRY(ZONAL_LT(cublasLtMatrixLayoutCreate(&p->b, in, k, m, k)));
        return ZONAL_LT(cublasLtMatrixLayoutCreate(&p->out, result, c, k, c));
    }
}

static zonal_status make(const zonal__plan_shape *shape, product **out) {
    void *memory;
    *out = NULL;
    ZONAL_TRY(zonal__libraries_open());
    ZONAL_TRY(zonal__alloc(1, sizeof(product), "a product", &memory));
    zonal_status status = describe((product *)memory, shape);
    if (status == ZONAL_OK)
        *out = (product *)memory;
    else
        destroy(memory);
    return status;
}

/* ---- contenders ------------------------------------------------------------------------------ */

static int is_product(const zonal__plan_shape *shape) {
    return shape->kernel == 1 && shape->stride == 1 && shape->pad == 0;
}

static zonal_status prefer(cublasLtMatmulPreference_t preference) {
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint64_t workspace = WORKSPACE;
    for (cublasLtMatmulPreferenceAttributes_t which : aligned)
        ZONAL_TRY(ZONAL_LT(
            cublasLtMatmulPreferenceSetAttribute(preference, which, &ALIGNMENT, sizeof ALIGNMENT)));
    ZONAL_TRY(ZONAL_LT(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes)));
    return ZONAL_LT(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
}

/* "product " and the algorithm's bytes: cuBLASLt lets them be kept for the same version. */
static void write_algorithm(const cublasLtMatmulAlgo_t *algorithm, char *text) {
    text += sprintf(text, "%s ", zonal__way_product.name);
    for (uint64_t word : algorithm->data)
        text += sprintf(text, "%016llx", (unsigned long long)word);
}

static int read_algorithm(const char *text, cublasLtMatmulAlgo_t *algorithm) {
    text += strlen(zonal__way_product.name);
    if (*text++ != ' ' || strlen(text) != 16 * 8) return 0;
    for (uint64_t &word : algorithm->data) {
        word = 0;
        for (int i = 0; i < 16; i++, text++) {
            const char *digits = "0123456789abcdef", *digit = strchr(digits, *text);
            if (!digit) return 0;
            word = word << 4 | (uint64_t)(digit - digits);
        }
    }
    return 1;
}

static zonal_status ask(const product *p, zonal__contenders *contenders) {
    cublasLtMatmulHeuristicResult_t results[CONTENDERS];
    cublasLtMatmulPreference_t preference;
    cublasLtHandle_t handle;
    int count = 0;
    ZONAL_TRY(zonal__libraries_lt(&handle));
    ZONAL_TRY(ZONAL_LT(cublasLtMatmulPreferenceCreate(&preference)));
    zonal_status status = prefer(preference);
    /* A shape that it cannot do is answered by an error; there are then no contenders. */
    if (status == ZONAL_OK && zonal__lt.cublasLtMatmulAlgoGetHeuristic(
                                  handle, p->how, p->a, p->b, p->out, p->out, preference,
                                  CONTENDERS, results, &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    zonal__lt.cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; i < count; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS) continue;
        char *text = zonal__contenders_next(contenders);
        if (text) write_algorithm(&results[i].algo, text);
    }
    return status;
}

static zonal_status list(const zonal__plan_shape *shape, zonal__contenders *contenders) {
    product *p;
    if (!is_product(shape)) return ZONAL_OK;
    ZONAL_TRY(make(shape, &p));
    zonal_status status = ask(p, contenders);
    destroy(p);
    return status;
}

/* ---- one product ----------------------------------------------------------------------------- */

static zonal_status check_algorithm(product *p, const char *text) {
    cublasLtMatmulHeuristicResult_t result = {};
    cublasLtHandle_t handle;
    if (!read_algorithm(text, &p->algorithm))
        return ZONAL_FAIL(ZONAL_FORMAT, "\"%s\" is not an algorithm of cuBLASLt", text);
    ZONAL_TRY(zonal__libraries_lt(&handle));
    ZONAL_TRY(ZONAL_LT(cublasLtMatmulAlgoCheck(handle, p->how, p->a, p->b, p->out, p->out,
                                               &p->algorithm, &result)));
    p->workspace = result.workspaceSize;
    return ZONAL_OK;
}

static zonal_status create(const zonal__plan_shape *shape, const char *text, void **out) {
    product *p;
    *out = NULL;
    if (!is_product(shape))
        return ZONAL_FAIL(ZONAL_UNSUPPORTED, "this convolution is no matrix product");
    ZONAL_TRY(make(shape, &p));
    zonal_status status = check_algorithm(p, text);
    if (status == ZONAL_OK)
        *out = p;
    else
        destroy(p);
    return status;
}

static size_t workspace_of(const void *object) {
    return ((const product *)object)->workspace;
}

static zonal_status run(void *object, cudaStream_t stream, const zonal__plan_arrays *arrays) {
    product *p = (product *)object;
    const void *a = p->direction == ZONAL__FILTER ? arrays->x : arrays->weight;
    const void *b = p->direction == ZONAL__FORWARD ? arrays->x : arrays->y;
    const void *written[] = {arrays->y, arrays->x, arrays->weight};
    void *out = (void *)written[p->direction];
    float one = 1, keep = arrays->accumulate ? 1.0f : 0.0f;
    cublasLtHandle_t handle;
    ZONAL_TRY(zonal__libraries_lt(&handle));
    return ZONAL_LT(cublasLtMatmul(handle, p->how, &one, a, p->a, b, p->b, &keep, out, p->out, out,
                                   p->out, &p->algorithm, arrays->workspace, p->workspace, stream));
}

const zonal__way zonal__way_product = {"product", list, create, destroy, workspace_of, run};
