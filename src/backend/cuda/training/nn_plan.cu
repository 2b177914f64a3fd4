/* Choosing the fastest way: nn_plan.cuh. */
#include "backend/cuda/training/nn_plan.cuh"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/training/nn_libraries.cuh"

extern "C" {
#include "backend/device.h"
}

/* A contender that is faster by less than this is not preferred to an earlier one: the libraries
 * put the more likely ones first, and noise shall seldom decide which bits come out. */
static const double CLEARLY_FASTER = 0.97;
static const int RUNS = 5;

struct zonal__plan {
    const zonal__way *way;
    void *object;
    zonal__plan_shape shape;
};

/* ---- shapes ---------------------------------------------------------------------------------- */

int64_t zonal__plan_elements(const zonal__plan_shape *shape, int which) {
    if (which == 0) return shape->n * shape->h * shape->w * shape->c;
    if (which == 1) return (int64_t)shape->k * shape->kernel * shape->kernel * shape->c;
    return shape->n * shape->out_h * shape->out_w * shape->k;
}

int zonal__plan_output(const zonal__plan_shape *shape) {
    return shape->direction == ZONAL__FORWARD ? 2 : shape->direction == ZONAL__DATA ? 0 : 1;
}

static const char *dtype_name(zonal_dtype dtype) {
    return dtype == ZONAL_DTYPE_BF16 ? "bf16" : "fp32";
}

void zonal__plan_describe(const zonal__plan_shape *shape, char out[ZONAL__AUTOTUNE_KEY]) {
    static const char *const names[] = {"forward", "data", "filter"};
    snprintf(out, ZONAL__AUTOTUNE_KEY,
             "%s %s to %s, %lldx%dx%dx%d to %d, kernel %d stride %d pad %d",
             names[shape->direction], dtype_name(shape->dtype), dtype_name(shape->out_dtype),
             (long long)shape->n, shape->h, shape->w, shape->c, shape->k, shape->kernel,
             shape->stride, shape->pad);
}

static size_t bytes_of(const zonal__plan_shape *shape, int which) {
    zonal_dtype dtype = which == zonal__plan_output(shape) ? shape->out_dtype : shape->dtype;
    return (size_t)zonal__plan_elements(shape, which) * (dtype == ZONAL_DTYPE_BF16 ? 2 : 4);
}

/* ---- one plan -------------------------------------------------------------------------------- */

char *zonal__contenders_next(zonal__contenders *contenders) {
    if (contenders->count == ZONAL__PLAN_CONTENDERS) return NULL;
    return contenders->text[contenders->count++];
}

static const zonal__way *way_of(const char *text) {
    static const zonal__way *const ways[] = {&zonal__way_cudnn, &zonal__way_product,
                                             &zonal__way_direct};
    for (const zonal__way *way : ways) {
        size_t length = strlen(way->name);
        if (strncmp(text, way->name, length) == 0 && (text[length] == ' ' || !text[length]))
            return way;
    }
    return NULL;
}

void zonal__plan_destroy(zonal__plan *plan) {
    if (!plan) return;
    if (plan->object) plan->way->destroy(plan->object);
    zonal__free(plan);
}

static zonal_status build(const zonal__plan_shape *shape, const char *text, zonal__plan **out) {
    void *memory;
    const zonal__way *way = way_of(text);
    *out = NULL;
    if (!way) return ZONAL_FAIL(ZONAL_FORMAT, "there is no implementation \"%s\"", text);
    ZONAL_TRY(zonal__alloc(1, sizeof(zonal__plan), "a plan", &memory));
    zonal__plan *plan = (zonal__plan *)memory;
    plan->way = way;
    plan->shape = *shape;
    zonal_status status = way->create(shape, text, &plan->object);
    if (status == ZONAL_OK && zonal__plan_workspace(plan) > (size_t)ZONAL__PLAN_WORKSPACE)
        status = ZONAL_FAIL(ZONAL_UNSUPPORTED, "%s needs too large a workspace", text);
    if (status == ZONAL_OK)
        *out = plan;
    else
        zonal__plan_destroy(plan);
    return status;
}

size_t zonal__plan_workspace(const zonal__plan *plan) {
    return plan->way->workspace(plan->object);
}

zonal_status zonal__plan_run(zonal__plan *plan, cudaStream_t stream,
                             const zonal__plan_arrays *arrays) {
    return plan->way->run(plan->object, stream, arrays);
}

/* ---- measuring ------------------------------------------------------------------------------- */

/* Numbers in [-1, 1) from a hash: data that switch all bits, unlike zeros, on which the arithmetic
 * draws less power and runs faster than it will. */
template <typename T> static __global__ void fill_random(T *out, int64_t count) {
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        uint32_t hash = (uint32_t)i * 2654435761u + 974711u;
        hash = (hash ^ hash >> 15) * 2246822519u;
        zonal__store(out + i, (float)(int32_t)(hash ^ hash >> 13) * 0x1p-31f);
    }
}

/* One shape's arrays while its contenders are measured. */
typedef struct contest {
    const zonal__plan_shape *shape;
    void *array[3];
    zonal__plan *plan;
    zonal__plan_arrays arrays;
} contest;

static zonal_status take_arrays(contest *c) {
    for (int i = 0; i < 3; i++) {
        int64_t count = zonal__plan_elements(c->shape, i);
        ZONAL_TRY(zonal__cuda_malloc(bytes_of(c->shape, i), "measuring a layer", &c->array[i]));
        if (i == zonal__plan_output(c->shape)) continue;
        if (c->shape->dtype == ZONAL_DTYPE_BF16)
            fill_random<<<1024, 256>>>((__nv_bfloat16 *)c->array[i], count);
        else
            fill_random<<<1024, 256>>>((float *)c->array[i], count);
        ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    }
    c->arrays = {c->array[0], c->array[1], c->array[2], NULL, 0};
    return ZONAL_CUDA(cudaStreamSynchronize(NULL));
}

static void give_arrays_back(contest *c) {
    for (void *array : c->array) cudaFree(array);
}

static zonal_status enqueue(void *context, void *stream) {
    contest *c = (contest *)context;
    return zonal__plan_run(c->plan, (cudaStream_t)stream, &c->arrays);
}

static zonal_status time_plan(contest *c, zonal__plan *plan, double *microseconds) {
    c->plan = plan;
    ZONAL_TRY(zonal__cuda_malloc(zonal__plan_workspace(plan) + 1, "measuring a layer",
                                 &c->arrays.workspace));
    zonal_status status = zonal__cuda_time(enqueue, c, 1, 1, RUNS, microseconds);
    cudaFree(c->arrays.workspace);
    c->arrays.workspace = NULL;
    return status;
}

/* Builds and measures one contender. One that fails is out of the race, which is no error unless
 * memory is short: a library may list what it then refuses. */
static zonal_status try_one(contest *c, const char *text, zonal__plan **plan, double *time) {
    zonal_status status = build(c->shape, text, plan);
    if (status == ZONAL_OK) status = time_plan(c, *plan, time);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__plan_destroy(*plan);
    *plan = NULL;
    cudaGetLastError(); /* a refused launch is not to be found by the next one's check */
    return status == ZONAL_MEMORY ? status : ZONAL_OK;
}

static int fastest_of(zonal__plan *const *plan, const double *time, int count) {
    int best = -1;
    for (int i = 0; i < count; i++)
        if (plan[i] && (best < 0 || time[i] < time[best])) best = i;
    for (int i = 0; i < best; i++)
        if (plan[i] && time[i] * CLEARLY_FASTER <= time[best]) return i;
    return best;
}

/* Measures all contenders; *winner is -1 when none works. */
static zonal_status race(const zonal__plan_shape *shape, const zonal__contenders *contenders,
                         int *winner, zonal__plan **out) {
    contest c = {};
    zonal__plan *plan[ZONAL__PLAN_CONTENDERS] = {};
    double time[ZONAL__PLAN_CONTENDERS] = {};
    c.shape = shape;
    *winner = -1;
    zonal_status status = take_arrays(&c);
    for (int i = 0; status == ZONAL_OK && i < contenders->count; i++)
        status = try_one(&c, contenders->text[i], &plan[i], &time[i]);
    give_arrays_back(&c);
    if (status == ZONAL_OK) *winner = fastest_of(plan, time, contenders->count);
    for (int i = 0; i < contenders->count; i++)
        if (i == *winner)
            *out = plan[i];
        else
            zonal__plan_destroy(plan[i]);
    return status;
}

static zonal_status choose(const zonal__plan_shape *shape, const char *key,
                           zonal__contenders *contenders, zonal__plan **out) {
    int winner;
    ZONAL_TRY(zonal__way_product.list(shape, contenders));
    ZONAL_TRY(zonal__way_cudnn.list(shape, contenders));
    if (contenders->count > 0) {
        ZONAL_TRY(race(shape, contenders, &winner, out));
        if (winner >= 0) {
            zonal__libraries_put(key, contenders->text[winner]);
            return ZONAL_OK;
        }
    }
    zonal__log("neither cuDNN nor cuBLASLt supports %s here; slow plain loops are used", key);
    ZONAL_TRY(build(shape, zonal__way_direct.name, out));
    zonal__libraries_put(key, zonal__way_direct.name);
    return ZONAL_OK;
}

static zonal_status create(const zonal__plan_shape *shape, zonal__plan **out) {
    char key[ZONAL__AUTOTUNE_KEY], text[ZONAL__AUTOTUNE_TEXT];
    void *memory;
    zonal__plan_describe(shape, key);
    if (zonal__libraries_find(key, text)) {
        zonal_status status = build(shape, text, out);
        if (status == ZONAL_OK || status == ZONAL_MEMORY) return status;
        zonal__log("the entry \"%s\" for %s does not work here; measuring again", text, key);
    }
    ZONAL_TRY(zonal__alloc(1, sizeof(zonal__contenders), "the contenders", &memory));
    zonal_status status = choose(shape, key, (zonal__contenders *)memory, out);
    zonal__free(memory);
    return status;
}

zonal_status zonal__plan_create(const zonal__plan_shape *shape, zonal__plan **out) {
    /* One at a time: two that measure at once would disturb each other. */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    *out = NULL;
    pthread_mutex_lock(&lock);
    zonal_status status = create(shape, out);
    pthread_mutex_unlock(&lock);
    return status;
}
