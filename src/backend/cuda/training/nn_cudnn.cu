/*
 * Convolutions by cuDNN's engines: its backend (graph) interface, one operation to a graph,
 * channels last, sums in fp32.
 *
 * cuDNN's heuristics name engines with settings ("knobs"). Of these a contender's text keeps the
 * engine's number and its knobs,
 *
 *     cudnn 65 2=5 13=1 18=1
 *
 * and every plan is built from such a text, so that one from a file is the same as one just
 * measured. The engines' notes tell which may compete: see may_compete.
 *
 * In bf16 no engine that comes compiled writes the filter's gradient as fp32 (asked of cuDNN 9.19
 * for an H200): they add in fp32 and round the sum to bf16, into the workspace, from where a kernel
 * widens it. With "accumulate" fp32 goes the same way, since cuDNN's graphs do not add to their
 * output.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/training/nn_libraries.cuh"
#include "backend/cuda/training/nn_plan.cuh"

enum {
    MOST_CONFIGS = 24,    /* asked of one heuristic */
    MOST_CONTENDERS = 16, /* of all heuristics; some 5 ms each to measure */
    MOST_DESCRIPTORS = 64
};

/* ---- descriptors ----------------------------------------------------------------------------- */

/* All descriptors that were made for something, to be destroyed together, the last one first. */
typedef struct descriptors {
    int count;
    cudnnBackendDescriptor_t item[MOST_DESCRIPTORS];
} descriptors;

static void drop(descriptors *all) {
    while (all->count > 0) zonal__cudnn.cudnnBackendDestroyDescriptor(all->item[--all->count]);
}

static zonal_status make(descriptors *all, cudnnBackendDescriptorType_t type,
                         cudnnBackendDescriptor_t *out) {
    if (all->count == MOST_DESCRIPTORS)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED, "cuDNN needs more than %d descriptors for a layer",
                          (int)MOST_DESCRIPTORS);
    ZONAL_TRY(ZONAL_CUDNN(cudnnBackendCreateDescriptor(type, out)));
    all->item[all->count++] = *out;
    return ZONAL_OK;
}

static zonal_status set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    return ZONAL_CUDNN(cudnnBackendSetAttribute(descriptor, name, type, count, values));
}

static zonal_status set_descriptor(cudnnBackendDescriptor_t descriptor,
                                   cudnnBackendAttributeName_t name,
                                   cudnnBackendDescriptor_t value) {
    return set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static zonal_status finish(cudnnBackendDescriptor_t descriptor) {
    return ZONAL_CUDNN(cudnnBackendFinalize(descriptor));
}

/* ---- the graph of one operation -------------------------------------------------------------- */

/* The names under which the three operations know the same things. */
typedef struct operation_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t array[3]; /* x, weight, y */
    cudnnBackendAttributeName_t convolution, alpha, beta;
} operation_names;

static const operation_names operations[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

static const int64_t array_ids[] = {1, 2, 3}; /* x, weight, y in a variant pack */

/* cuDNN names the sides in the order n, c, h, w, wherever they lie; here c is the innermost. */
static zonal_status make_array(descriptors *all, int which, const zonal__plan_shape *s,
                               cudnnBackendDescriptor_t *out) {
    const int64_t sides[3][4] = {{s->n, s->c, s->h, s->w},
                                 {s->k, s->c, s->kernel, s->kernel},
                                 {s->n, s->k, s->out_h, s->out_w}};
    const int64_t *side = sides[which];
    const int64_t strides[4] = {side[1] * side[2] * side[3], 1, side[3] * side[1], side[1]};
    const int64_t alignment = 16;
    cudnnDataType_t type = s->dtype == ZONAL_DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    ZONAL_TRY(make(all, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out));
    ZONAL_TRY(set(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    ZONAL_TRY(set(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, side));
    ZONAL_TRY(set(*out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides));
    ZONAL_TRY(set(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &array_ids[which]));
    ZONAL_TRY(set(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
    return finish(*out);
}

static zonal_status make_convolution(descriptors *all, const zonal__plan_shape *s,
                                     cudnnBackendDescriptor_t *out) {
    const int64_t sides = 2, pads[2] = {s->pad, s->pad}, strides[2] = {s->stride, s->stride};
    const int64_t dilations[2] = {1, 1};
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    ZONAL_TRY(make(all, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out));
    ZONAL_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &sides));
    ZONAL_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    ZONAL_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    ZONAL_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads));
    ZONAL_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads));
    ZONAL_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides));
    ZONAL_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations));
    return finish(*out);
}

static zonal_status make_operation(descriptors *all, const zonal__plan_shape *shape,
                                   cudnnBackendDescriptor_t *out) {
    const operation_names *names = &operations[shape->direction];
    cudnnBackendDescriptor_t array[3], convolution;
    const float one = 1, zero = 0;
    for (int i = 0; i < 3; i++) ZONAL_TRY(make_array(all, i, shape, &array[i]));
    ZONAL_TRY(make_convolution(all, shape, &convolution));
    ZONAL_TRY(make(all, names->type, out));
    for (int i = 0; i < 3; i++) ZONAL_TRY(set_descriptor(*out, names->array[i], array[i]));
    ZONAL_TRY(set_descriptor(*out, names->convolution, convolution));
    ZONAL_TRY(set(*out, names->alpha, CUDNN_TYPE_FLOAT, 1, &one));
    ZONAL_TRY(set(*out, names->beta, CUDNN_TYPE_FLOAT, 1, &zero));
    return finish(*out);
}

static zonal_status make_graph(descriptors *all, cudnnHandle_t handle,
                               const zonal__plan_shape *shape, cudnnBackendDescriptor_t *out) {
    cudnnBackendDescriptor_t operation;
    ZONAL_TRY(make_operation(all, shape, &operation));
    ZONAL_TRY(make(all, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, out));
    ZONAL_TRY(set(*out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
    ZONAL_TRY(set_descriptor(*out, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation));
    return finish(*out);
}

/* ---- contenders ------------------------------------------------------------------------------ */

/* Only engines that give the same bits every time and add in fp32. Tensor cores are for bf16: in
 * fp32 they would multiply TF32. Winograd's and Fourier's transforms lose digits in both. */
static int is_allowed(const cudnnBackendNumericalNote_t *notes, int64_t count, zonal_dtype dtype) {
    for (int64_t i = 0; i < count; i++) {
        int tensor_core = notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        int harmless = notes[i] == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
        if (!harmless && !(tensor_core && dtype == ZONAL_DTYPE_BF16)) return 0;
    }
    return 1;
}

/* Also left out are engines that are compiled when a plan is built: a network has dozens. */
static zonal_status may_compete(cudnnBackendDescriptor_t engine, zonal_dtype dtype, int *may) {
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t ways[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t note_count = 0, way_count = 0;
    *may = 0;
    ZONAL_TRY(ZONAL_CUDNN(cudnnBackendGetAttribute(
        engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &note_count, notes)));
    ZONAL_TRY(ZONAL_CUDNN(
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                 CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &way_count, ways)));
    *may = is_allowed(notes, note_count, dtype);
    for (int64_t i = 0; i < way_count; i++)
        if (ways[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) *may = 0;
    return ZONAL_OK;
}

static zonal_status write_knob(cudnnBackendDescriptor_t knob, char *text, size_t size) {
    cudnnBackendKnobType_t type;
    int64_t value, count;
    ZONAL_TRY(ZONAL_CUDNN(cudnnBackendGetAttribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                                   CUDNN_TYPE_KNOB_TYPE, 1, &count, &type)));
    ZONAL_TRY(ZONAL_CUDNN(cudnnBackendGetAttribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                                   CUDNN_TYPE_INT64, 1, &count, &value)));
    size_t length = strlen(text);
    int more = snprintf(text + length, size - length, " %d=%lld", (int)type, (long long)value);
    if ((size_t)more >= size - length)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED, "an engine of cuDNN has too many knobs");
    return ZONAL_OK;
}

/* The text of one configuration; empty when it may not compete. */
static zonal_status write_config(descriptors *all, cudnnBackendDescriptor_t config,
                                 zonal_dtype dtype, char text[ZONAL__AUTOTUNE_TEXT]) {
    cudnnBackendDescriptor_t engine, knob[CUDNN_KNOB_TYPE_COUNTS];
    int64_t number, count;
    int may;
    text[0] = '\0';
    ZONAL_TRY(make(all, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    ZONAL_TRY(ZONAL_CUDNN(cudnnBackendGetAttribute(
        config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine)));
    ZONAL_TRY(may_compete(engine, dtype, &may));
    if (!may) return ZONAL_OK;
    ZONAL_TRY(ZONAL_CUDNN(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                                   CUDNN_TYPE_INT64, 1, &count, &number)));
    for (cudnnBackendDescriptor_t &each : knob)
        ZONAL_TRY(make(all, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &each));
    ZONAL_TRY(ZONAL_CUDNN(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                   CUDNN_KNOB_TYPE_COUNTS, &count, knob)));
    snprintf(text, ZONAL__AUTOTUNE_TEXT, "%s %lld", zonal__way_cudnn.name, (long long)number);
    for (int64_t i = 0; i < count && i < CUDNN_KNOB_TYPE_COUNTS; i++)
        ZONAL_TRY(write_knob(knob[i], text, ZONAL__AUTOTUNE_TEXT));
    return ZONAL_OK;
}

/* Adds a text that is not there yet. */
static void add_contender(zonal__contenders *contenders, const char *text) {
    for (int i = 0; i < contenders->count; i++)
        if (strcmp(contenders->text[i], text) == 0) return;
    char *next = zonal__contenders_next(contenders);
    if (next) memcpy(next, text, strlen(text) + 1);
}

/* What one heuristic proposes. An answer that cannot be read is passed over: there are others. */
static zonal_status ask_heuristic(descriptors *all, cudnnBackendDescriptor_t graph,
                                  cudnnBackendHeurMode_t mode, zonal_dtype dtype, int most,
                                  zonal__contenders *contenders) {
    cudnnBackendDescriptor_t heuristic, config[MOST_CONFIGS];
    int64_t count = 0;
    ZONAL_TRY(make(all, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic));
    ZONAL_TRY(set_descriptor(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
    ZONAL_TRY(set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    ZONAL_TRY(finish(heuristic));
    for (cudnnBackendDescriptor_t &each : config)
        ZONAL_TRY(make(all, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &each));
    ZONAL_TRY(ZONAL_CUDNN(cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CONFIGS,
                                                   &count, config)));
    for (int64_t i = 0; i < count && i < MOST_CONFIGS && contenders->count < most; i++) {
        char text[ZONAL__AUTOTUNE_TEXT];
        descriptors read = {};
        zonal_status status = write_config(&read, config[i], dtype, text);
        drop(&read);
        if (status == ZONAL_OK && text[0]) add_contender(contenders, text);
    }
    return ZONAL_OK;
}

/* The more careful heuristic first; the fallback, which names slow engines that do more shapes, is
 * asked only where the others know nothing. */
static void ask_all(cudnnHandle_t handle, const zonal__plan_shape *shape,
                    zonal__contenders *contenders) {
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_A,
                                                   CUDNN_HEUR_MODE_FALLBACK};
    int before = contenders->count, most = before + MOST_CONTENDERS;
    for (cudnnBackendHeurMode_t mode : modes) {
        cudnnBackendDescriptor_t graph;
        descriptors all = {};
        if (mode == CUDNN_HEUR_MODE_FALLBACK && contenders->count > before) break;
        if (contenders->count == most) break;
        if (make_graph(&all, handle, shape, &graph) == ZONAL_OK)
            (void)ask_heuristic(&all, graph, mode, shape->dtype, most, contenders);
        drop(&all);
    }
}

/* Whether the output is of the inputs' type, or can be brought from there. */
static int is_possible(const zonal__plan_shape *shape) {
    return shape->out_dtype == shape->dtype || shape->direction == ZONAL__FILTER;
}

static zonal_status list(const zonal__plan_shape *shape, zonal__contenders *contenders) {
    cudnnHandle_t handle;
    if (!is_possible(shape)) return ZONAL_OK;
    ZONAL_TRY(zonal__libraries_cudnn(&handle));
    zonal__libraries_lock();
    ask_all(handle, shape, contenders);
    zonal__libraries_unlock();
    return ZONAL_OK;
}

/* ---- one plan -------------------------------------------------------------------------------- */

typedef struct cudnn_plan {
    zonal__plan_shape shape;
    size_t engine_bytes; /* workspace of the engine, rounded up */
    size_t staged_bytes; /* behind it: an output that a kernel takes on from there */
    descriptors all;     /* what the plan is made of, which lives as long as it does */
    cudnnBackendDescriptor_t plan;
} cudnn_plan;

/* A number of a text at *at, which moves behind it. */
static int read_number(const char **at, int64_t *out) {
    const char *digit = **at == '-' ? *at + 1 : *at;
    char *end;
    if (*digit < '0' || *digit > '9') return 0;
    *out = strtoll(*at, &end, 10);
    *at = end;
    return 1;
}

static zonal_status make_knobs(descriptors *all, const char *at, cudnnBackendDescriptor_t *knob,
                               int64_t *count) {
    for (*count = 0; *at; ++*count) {
        int64_t number, value;
        if (*count == CUDNN_KNOB_TYPE_COUNTS || *at++ != ' ' || !read_number(&at, &number) ||
            number < 0 || number >= CUDNN_KNOB_TYPE_COUNTS || *at++ != '=' ||
            !read_number(&at, &value))
            return ZONAL_FAIL(ZONAL_FORMAT, "a knob of cuDNN is not understood");
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)number;
        ZONAL_TRY(make(all, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knob[*count]));
        ZONAL_TRY(
            set(knob[*count], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type));
        ZONAL_TRY(
            set(knob[*count], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value));
        ZONAL_TRY(finish(knob[*count]));
    }
    return ZONAL_OK;
}

/* From "65 2=5 13=1 18=1". */
static zonal_status make_config(descriptors *all, cudnnBackendDescriptor_t graph, const char *at,
                                cudnnBackendDescriptor_t *out) {
    cudnnBackendDescriptor_t engine, knob[CUDNN_KNOB_TYPE_COUNTS];
    int64_t number, count;
    if (!read_number(&at, &number))
        return ZONAL_FAIL(ZONAL_FORMAT, "the number of cuDNN's engine is not understood");
    ZONAL_TRY(make(all, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    ZONAL_TRY(set_descriptor(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph));
    ZONAL_TRY(set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number));
    ZONAL_TRY(finish(engine));
    ZONAL_TRY(make_knobs(all, at, knob, &count));
    ZONAL_TRY(make(all, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, out));
    ZONAL_TRY(set_descriptor(*out, CUDNN_ATTR_ENGINECFG_ENGINE, engine));
    if (count > 0)
        ZONAL_TRY(set(*out, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                      knob));
    return finish(*out);
}

static zonal_status make_plan(cudnn_plan *p, cudnnHandle_t handle, const char *engine) {
    cudnnBackendDescriptor_t graph, config;
    int64_t bytes = 0, count;
    ZONAL_TRY(make_graph(&p->all, handle, &p->shape, &graph));
    ZONAL_TRY(make_config(&p->all, graph, engine, &config));
    ZONAL_TRY(make(&p->all, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p->plan));
    ZONAL_TRY(set(p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
    ZONAL_TRY(set_descriptor(p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
    ZONAL_TRY(finish(p->plan));
    ZONAL_TRY(ZONAL_CUDNN(cudnnBackendGetAttribute(
        p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes)));
    p->engine_bytes = zonal__plan_round_up((size_t)bytes);
    if (p->shape.direction == ZONAL__FILTER)
        p->staged_bytes = (size_t)zonal__plan_elements(&p->shape, 1) *
                          (p->shape.dtype == ZONAL_DTYPE_BF16 ? 2 : 4);
    return ZONAL_OK;
}

static void destroy(void *object) {
    cudnn_plan *p = (cudnn_plan *)object;
    zonal__libraries_lock();
    drop(&p->all);
    zonal__libraries_unlock();
    zonal__free(p);
}

static zonal_status create(const zonal__plan_shape *shape, const char *text, void **out) {
    cudnnHandle_t handle;
    void *memory;
    const char *engine = text + strlen(zonal__way_cudnn.name);
    *out = NULL;
    if (*engine++ != ' ' || !is_possible(shape))
        return ZONAL_FAIL(ZONAL_FORMAT, "\"%s\" is not an engine of cuDNN for this", text);
    ZONAL_TRY(zonal__libraries_cudnn(&handle));
    ZONAL_TRY(zonal__alloc(1, sizeof(cudnn_plan), "a plan of cuDNN", &memory));
    cudnn_plan *p = (cudnn_plan *)memory;
    p->shape = *shape;
    zonal__libraries_lock();
    zonal_status status = make_plan(p, handle, engine);
    zonal__libraries_unlock();
    if (status == ZONAL_OK)
        *out = p;
    else
        destroy(p);
    return status;
}

static size_t workspace_of(const void *object) {
    const cudnn_plan *p = (const cudnn_plan *)object;
    return p->engine_bytes + p->staged_bytes;
}

/* ---- running --------------------------------------------------------------------------------- */

template <typename T>
static __global__ void take_on(const T *staged, int64_t count, int accumulate, float *out) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float value = zonal__load(staged + i);
    out[i] = accumulate ? out[i] + value : value;
}

static zonal_status take_staged_on(const cudnn_plan *p, cudaStream_t stream, const void *staged,
                                   int accumulate, float *out) {
    int64_t count = zonal__plan_elements(&p->shape, 1);
    unsigned blocks = (unsigned)((count + 255) / 256);
    if (p->shape.dtype == ZONAL_DTYPE_BF16)
        take_on<<<blocks, 256, 0, stream>>>((const __nv_bfloat16 *)staged, count, accumulate, out);
    else
        take_on<<<blocks, 256, 0, stream>>>((const float *)staged, count, accumulate, out);
    return ZONAL_CUDA_LAUNCHED();
}

static cudnnStatus_t fill_pack(cudnnBackendDescriptor_t pack, const void *const array[3],
                               void *workspace) {
    cudnnStatus_t status = zonal__cudnn.cudnnBackendSetAttribute(
        pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, array);
    if (status == CUDNN_STATUS_SUCCESS)
        status = zonal__cudnn.cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                                       CUDNN_TYPE_INT64, 3, array_ids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = zonal__cudnn.cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                                       CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS) status = zonal__cudnn.cudnnBackendFinalize(pack);
    return status;
}

static cudnnStatus_t execute(const cudnn_plan *p, cudnnHandle_t handle, cudaStream_t stream,
                             const void *const array[3], void *workspace) {
    cudnnBackendDescriptor_t pack;
    cudnnStatus_t status =
        zonal__cudnn.cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    status = fill_pack(pack, array, workspace);
    if (status == CUDNN_STATUS_SUCCESS) status = zonal__cudnn.cudnnSetStream(handle, stream);
    if (status == CUDNN_STATUS_SUCCESS)
        status = zonal__cudnn.cudnnBackendExecute(handle, p->plan, pack);
    zonal__cudnn.cudnnBackendDestroyDescriptor(pack);
    return status;
}

static zonal_status run(void *object, cudaStream_t stream, const zonal__plan_arrays *arrays) {
    const cudnn_plan *p = (const cudnn_plan *)object;
    const void *array[3] = {arrays->x, arrays->weight, arrays->y};
    int staged = arrays->accumulate || p->shape.dtype != p->shape.out_dtype;
    void *stage = (char *)arrays->workspace + p->engine_bytes;
    cudnnHandle_t handle;
    if (staged) array[1] = stage;
    ZONAL_TRY(zonal__libraries_cudnn(&handle));
    zonal__libraries_lock();
    cudnnStatus_t status = execute(p, handle, stream, array, arrays->workspace);
    zonal__libraries_unlock();
    if (status != CUDNN_STATUS_SUCCESS) {
        char what[ZONAL__AUTOTUNE_KEY];
        zonal__plan_describe(&p->shape, what);
        return ZONAL_FAIL(ZONAL_DEVICE, "cuDNN failed at %s: %s", what,
                          zonal__cudnn.cudnnGetErrorString(status));
    }
    if (!staged) return ZONAL_OK;
    return take_staged_on(p, stream, stage, arrays->accumulate, (float *)arrays->weight);
}

const zonal__way zonal__way_cudnn = {"cudnn", list, create, destroy, workspace_of, run};
