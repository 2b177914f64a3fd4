/*
 * Optimisers on CUDA: backend/training/optimiser.h. Segments are cut into chunks, one block each;
 * memory sets the pace. A step is two kernels. "sums" adds up the squares of each chunk, in double;
 * its last block adds those up by segments, in their order, and makes of them the norm, the refusal
 * and the numbers that "update" needs for each segment. So the host has no part in a step, and a
 * graph can hold it.
 *
 * The formulas are arranged so that what is small is rounded while it is small: p - (rate wd p +
 * ...), and m + (1 - beta)(g - m).
 */
#include "backend/cuda/unit_rows.cuh"

extern "C" {
#include "backend/device.h"
#include "backend/training/optimiser.h"
}

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    CHUNK = 8192, /* elements, at most */
    NONE_REFUSED = INT32_MAX
};

typedef struct chunk {
    int64_t offset;
    int count;
    int segment;
    int vector; /* 1: the offset is a multiple of 4, so that 4 elements are aligned */
} chunk;

/* A segment, and the sums and numbers of the current step. */
typedef struct segment_state {
    int64_t first_chunk, chunk_count;
    int decay, adapt;
    /* What "update" needs to know. */
    float decay_factor; /* wd; AdamW: rate wd */
    float rate;         /* AdamW: rate/correction1; LARS: rate ratio */
} segment_state;

typedef struct step_state {
    float factor;       /* clips the gradient */
    float root;         /* AdamW: 1/sqrt(correction2) */
    int refused;        /* the first segment at fault in this step; NONE_REFUSED */
    int refused_before; /* in the first refused step since "status" asked */
    unsigned ticket;
} step_state;

typedef struct step_args {
    zonal__optimiser_spec spec;
    float *parameters;
    const float *gradients;
    __nv_bfloat16 *copy; /* NULL: not wanted */
    float *state[2];
    const zonal__optimiser_numbers *numbers;
    double *norm;
    const chunk *chunks;
    double *squares; /* [chunks][2]: of gradients and, for LARS, of parameters */
    segment_state *segments;
    int64_t segment_count;
    double *totals; /* [segments][2] */
    step_state *step;
    int aligned; /* 1: all blocks begin at multiples of 16 bytes, the copy of 8 */
} step_args;

struct zonal__optimiser {
    zonal__optimiser_spec spec;
    zonal__optimiser_segment *segments; /* host, [segment_count] */
    int64_t segment_count, chunk_count;
    step_args args; /* device memory; all but what a step is given */
    cudaStream_t stream;
};

/* ---- sums ------------------------------------------------------------------------------------ */

/* This thread's part of a chunk's sum of squares. */
__device__ static double own_squares(const float *x, const chunk &c, int vector) {
    const float *from = x + c.offset;
    double sum = 0;
    int done = 0;
    if (vector) {
        const float4 *four = (const float4 *)from;
        done = c.count / 4 * 4;
#pragma unroll 4
        for (int i = (int)threadIdx.x; i < c.count / 4; i += THREADS) {
            float4 v = four[i];
            sum += (double)v.x * (double)v.x + (double)v.y * (double)v.y;
            sum += (double)v.z * (double)v.z + (double)v.w * (double)v.w;
        }
    }
    for (int i = done + (int)threadIdx.x; i < c.count; i += THREADS)
        sum += (double)from[i] * (double)from[i];
    return sum;
}

/* A warp for each segment adds its chunks. */
__device__ static void add_chunks(const step_args &args) {
    for (int64_t s = threadIdx.x / 32; s < args.segment_count; s += WARPS) {
        const segment_state &segment = args.segments[s];
        double gradient = 0, parameter = 0;
#pragma unroll 4
        for (int64_t i = threadIdx.x % 32; i < segment.chunk_count; i += 32) {
            gradient += args.squares[2 * (segment.first_chunk + i)];
            parameter += args.squares[2 * (segment.first_chunk + i) + 1];
        }
        gradient = zonal__warp_sum(gradient);
        parameter = zonal__warp_sum(parameter);
        if (threadIdx.x % 32 == 0) {
            args.totals[2 * s] = gradient;
            args.totals[2 * s + 1] = parameter;
        }
    }
}

/* LARS' ratio from the sums of squares of a segment's parameters and clipped gradient. */
__device__ static double trust_ratio(const step_args &args, const segment_state &segment,
                                     double parameter_squares, double gradient_squares) {
    double p = sqrt(parameter_squares), g = sqrt(gradient_squares);
    if (!segment.adapt || !(p > ZONAL__OPTIMISER_SMALLEST) || !(g > ZONAL__OPTIMISER_SMALLEST))
        return 1;
    return args.spec.trust * p / (g + (segment.decay ? args.spec.weight_decay * p : 0));
}

/* Whether the segment's gradient can be used; then its numbers. */
__device__ static bool prepare_segment(const step_args &args, int64_t s, double factor) {
    segment_state &segment = args.segments[s];
    double gradient_squares = args.totals[2 * s] * factor * factor, rate = args.numbers->rate;
    double decay = segment.decay ? args.spec.weight_decay : 0;
    if (!(gradient_squares <= ZONAL__OPTIMISER_LARGEST)) return false;
    if (args.spec.kind == ZONAL__OPTIMISER_ADAMW) {
        decay *= rate;
        rate /= args.numbers->correction1;
    } else if (args.spec.kind == ZONAL__OPTIMISER_LARS) {
        rate *= trust_ratio(args, segment, args.totals[2 * s + 1], gradient_squares);
    }
    segment.decay_factor = (float)decay;
    segment.rate = (float)rate;
    return true;
}

/* By the last block, from the sums of all chunks. */
__device__ static void prepare_step(const step_args &args, double *part) {
    __shared__ int refused;
    double sum = 0, clip = args.spec.clip;
    add_chunks(args);
    if (threadIdx.x == 0) refused = NONE_REFUSED;
    __syncthreads();
    for (int64_t s = threadIdx.x; s < args.segment_count; s += THREADS) sum += args.totals[2 * s];
    double norm = sqrt(zonal__block_sum(sum, part));
    double factor = clip > 0 && norm > clip ? clip / norm : 1;
    for (int64_t s = threadIdx.x; s < args.segment_count; s += THREADS)
        if (!prepare_segment(args, s, factor)) atomicMin(&refused, (int)s);
    __syncthreads();
    if (threadIdx.x > 0) return;
    *args.norm = norm;
    args.step->factor = (float)factor;
    args.step->root = (float)(1 / sqrt(args.numbers->correction2));
    args.step->refused = refused;
    if (args.step->refused_before == NONE_REFUSED) args.step->refused_before = refused;
}

static __global__ void __launch_bounds__(THREADS)
    optimiser_sums(const __grid_constant__ step_args args) {
    __shared__ double part[WARPS];
    chunk c = args.chunks[blockIdx.x];
    int vector = c.vector && args.aligned;
    double gradient = zonal__block_sum(own_squares(args.gradients, c, vector), part);
    double parameter = 0;
    if (args.spec.kind == ZONAL__OPTIMISER_LARS)
        parameter = zonal__block_sum(own_squares(args.parameters, c, vector), part);
    if (threadIdx.x == 0) {
        args.squares[2 * (int64_t)blockIdx.x] = gradient;
        args.squares[2 * (int64_t)blockIdx.x + 1] = parameter;
    }
    if (zonal__last_block(&args.step->ticket)) prepare_step(args, part);
}

/* ---- the update ------------------------------------------------------------------------------ */

/* The numbers of the step and the segment. */
typedef struct coefficients {
    float factor, decay, rate, root;
    float new1, new2, epsilon;  /* AdamW: 1 - beta1, 1 - beta2 */
    float momentum, look_ahead; /* SGD with nesterov: look_ahead is the momentum, else 0 */
} coefficients;

__device__ static coefficients coefficients_of(const step_args &args, int segment) {
    coefficients c;
    c.factor = args.step->factor;
    c.root = args.step->root;
    c.decay = args.segments[segment].decay_factor;
    c.rate = args.segments[segment].rate;
    c.new1 = (float)(1 - args.spec.beta1);
    c.new2 = (float)(1 - args.spec.beta2);
    c.epsilon = (float)args.spec.epsilon;
    c.momentum = (float)args.spec.momentum;
    c.look_ahead = args.spec.nesterov ? c.momentum : 0;
    return c;
}

/* One element: a is m or b, v is AdamW's. */
template <zonal__optimiser_kind KIND>
__device__ static inline void update_element(const coefficients &c, float g, float &p, float &a,
                                             float &v) {
    g *= c.factor;
    if (KIND == ZONAL__OPTIMISER_ADAMW) {
        a += c.new1 * (g - a);
        v += c.new2 * (g * g - v);
        p -= c.decay * p + c.rate * a / (sqrtf(v) * c.root + c.epsilon);
    } else if (KIND == ZONAL__OPTIMISER_SGD) {
        float direction = g + c.decay * p;
        a = c.momentum * a + direction;
        p -= c.rate * (c.look_ahead > 0 ? direction + c.look_ahead * a : a);
    } else {
        a = c.momentum * a + c.rate * (g + c.decay * p);
        p -= a;
    }
}

__device__ static inline void store_copy(__nv_bfloat16 *to, const float4 &p) {
    __nv_bfloat162 low = __floats2bfloat162_rn(p.x, p.y), high = __floats2bfloat162_rn(p.z, p.w);
    *(uint2 *)to = make_uint2(*(const unsigned *)&low, *(const unsigned *)&high);
}

/* Four elements from "at" on. */
template <zonal__optimiser_kind KIND>
__device__ static inline void update_four(const step_args &args, const coefficients &c,
                                          int64_t at) {
    constexpr bool TWO = KIND == ZONAL__OPTIMISER_ADAMW;
    float4 g = *(const float4 *)(args.gradients + at), p = *(const float4 *)(args.parameters + at);
    float4 a = *(const float4 *)(args.state[0] + at), v = {};
    if (TWO) v = *(const float4 *)(args.state[1] + at);
    update_element<KIND>(c, g.x, p.x, a.x, v.x);
    update_element<KIND>(c, g.y, p.y, a.y, v.y);
    update_element<KIND>(c, g.z, p.z, a.z, v.z);
    update_element<KIND>(c, g.w, p.w, a.w, v.w);
    *(float4 *)(args.parameters + at) = p;
    *(float4 *)(args.state[0] + at) = a;
    if (TWO) *(float4 *)(args.state[1] + at) = v;
    if (args.copy) store_copy(args.copy + at, p);
}

template <zonal__optimiser_kind KIND>
__device__ static inline void update_one(const step_args &args, const coefficients &c, int64_t at) {
    float p = args.parameters[at], a = args.state[0][at], v = 0;
    if (KIND == ZONAL__OPTIMISER_ADAMW) v = args.state[1][at];
    update_element<KIND>(c, args.gradients[at], p, a, v);
    args.parameters[at] = p;
    args.state[0][at] = a;
    if (KIND == ZONAL__OPTIMISER_ADAMW) args.state[1][at] = v;
    if (args.copy) args.copy[at] = __float2bfloat16_rn(p);
}

template <zonal__optimiser_kind KIND>
static __global__ void __launch_bounds__(THREADS)
    optimiser_update(const __grid_constant__ step_args args) {
    /* From the last chunk to the first: gradients that were summed last are still in the cache. */
    chunk own = args.chunks[gridDim.x - 1 - blockIdx.x];
    int done = 0;
    if (args.step->refused != NONE_REFUSED) return;
    coefficients c = coefficients_of(args, own.segment);
    if (own.vector && args.aligned) {
        done = own.count / 4 * 4;
#pragma unroll 2
        for (int i = 4 * (int)threadIdx.x; i < done; i += 4 * THREADS)
            update_four<KIND>(args, c, own.offset + i);
    }
    for (int i = done + (int)threadIdx.x; i < own.count; i += THREADS)
        update_one<KIND>(args, c, own.offset + i);
}

static __global__ void __launch_bounds__(THREADS)
    optimiser_copy(const __grid_constant__ step_args args) {
    chunk own = args.chunks[blockIdx.x];
    for (int i = (int)threadIdx.x; i < own.count; i += THREADS)
        args.copy[own.offset + i] = __float2bfloat16_rn(args.parameters[own.offset + i]);
}

/* ---- making ---------------------------------------------------------------------------------- */

static void destroy(zonal__optimiser *optimiser) {
    if (!optimiser) return;
    zonal__cuda_on on(optimiser->spec.device);
    step_args *args = &optimiser->args;
    cudaFree((void *)args->chunks);
    cudaFree(args->squares);
    cudaFree(args->segments);
    cudaFree(args->totals);
    cudaFree(args->step);
    cudaFree(args->state[0]);
    cudaFree(args->state[1]);
    zonal__free(optimiser->segments);
    zonal__free(optimiser);
}

template <typename T> static zonal_status alloc(int64_t count, const char *what, T **out) {
    void *memory;
    zonal_status status = zonal__cuda_malloc((size_t)count * sizeof(T), what, &memory);
    *out = (T *)memory;
    return status;
}

static int64_t chunks_of(const zonal__optimiser_segment *segment) {
    return (segment->count + CHUNK - 1) / CHUNK;
}

static zonal_status allocate(zonal__optimiser *optimiser) {
    const char *const *names = zonal__optimiser_state_names(optimiser->spec.kind);
    step_args *args = &optimiser->args;
    chunk *chunks;
    ZONAL_TRY(alloc(optimiser->chunk_count, "an optimiser's chunks", &chunks));
    args->chunks = chunks;
    ZONAL_TRY(alloc(2 * optimiser->chunk_count, "an optimiser's sums", &args->squares));
    ZONAL_TRY(alloc(optimiser->segment_count, "an optimiser's segments", &args->segments));
    ZONAL_TRY(alloc(2 * optimiser->segment_count, "an optimiser's sums", &args->totals));
    ZONAL_TRY(alloc(1, "an optimiser's step", &args->step));
    for (int i = 0; names[i]; i++)
        ZONAL_TRY(alloc(optimiser->spec.count, "the optimiser's state", &args->state[i]));
    return ZONAL_OK;
}

/* Writes the segments and their chunks to the device, by way of "host". */
static zonal_status write_segments(const zonal__optimiser *optimiser, segment_state *host) {
    int64_t first = 0;
    for (int64_t s = 0; s < optimiser->segment_count; s++) {
        const zonal__optimiser_segment *segment = &optimiser->segments[s];
        host[s].first_chunk = first;
        host[s].chunk_count = chunks_of(segment);
        host[s].decay = segment->decay != 0;
        host[s].adapt = segment->adapt != 0;
        first += host[s].chunk_count;
    }
    return zonal__cuda_write(optimiser->args.segments, host,
                             (size_t)optimiser->segment_count * sizeof *host);
}

static zonal_status write_chunks(const zonal__optimiser *optimiser, chunk *host) {
    chunk *next = host;
    for (int64_t s = 0; s < optimiser->segment_count; s++) {
        const zonal__optimiser_segment *segment = &optimiser->segments[s];
        for (int64_t at = 0; at < segment->count; at += CHUNK, next++) {
            int64_t left = segment->count - at;
            next->offset = segment->offset + at;
            next->count = (int)(left < CHUNK ? left : (int64_t)CHUNK);
            next->segment = (int)s;
            next->vector = segment->offset % 4 == 0;
        }
    }
    return zonal__cuda_write((void *)optimiser->args.chunks, host,
                             (size_t)optimiser->chunk_count * sizeof *host);
}

/* Loads the kernels, which a first launch would do too late for a graph's capture. */
static zonal_status load_kernels(void) {
    cudaFuncAttributes attributes;
    const void *const kernels[] = {(const void *)optimiser_sums, (const void *)optimiser_copy,
                                   (const void *)optimiser_update<ZONAL__OPTIMISER_ADAMW>,
                                   (const void *)optimiser_update<ZONAL__OPTIMISER_SGD>,
                                   (const void *)optimiser_update<ZONAL__OPTIMISER_LARS>};
    for (const void *kernel : kernels)
        ZONAL_TRY(ZONAL_CUDA(cudaFuncGetAttributes(&attributes, kernel)));
    return ZONAL_OK;
}

static zonal_status clear_refusal(zonal__optimiser *optimiser) {
    static const int none = NONE_REFUSED;
    return zonal__cuda_write(&optimiser->args.step->refused_before, &none, sizeof none);
}

static zonal_status fill(zonal__optimiser *optimiser) {
    void *segments = NULL, *chunks = NULL;
    zonal_status status;
    ZONAL_TRY(allocate(optimiser));
    ZONAL_TRY_GOTO(
        status, done,
        zonal__alloc(optimiser->segment_count, sizeof(segment_state), "the segments", &segments));
    ZONAL_TRY_GOTO(status, done,
                   zonal__alloc(optimiser->chunk_count, sizeof(chunk), "the chunks", &chunks));
    ZONAL_TRY_GOTO(status, done, write_segments(optimiser, (segment_state *)segments));
    ZONAL_TRY_GOTO(status, done, write_chunks(optimiser, (chunk *)chunks));
    ZONAL_TRY_GOTO(status, done, clear_refusal(optimiser));
    ZONAL_TRY_GOTO(status, done, load_kernels());
    status = ZONAL_CUDA(cudaStreamSynchronize(NULL)); /* other streams do not wait for it */
done:
    zonal__free(segments);
    zonal__free(chunks);
    return status;
}

static zonal_status create(const zonal__optimiser_spec *spec,
                           const zonal__optimiser_segment *segments, int64_t segment_count,
                           zonal__optimiser **out) {
    zonal__cuda_on on(spec->device);
    zonal__optimiser *optimiser;
    *out = NULL;
    ZONAL_TRY(zonal__optimiser_check(spec, segments, segment_count));
    ZONAL_TRY(ZONAL_NEW(&optimiser, 1, "the optimiser"));
    optimiser->spec = optimiser->args.spec = *spec;
    optimiser->segment_count = optimiser->args.segment_count = segment_count;
    for (int64_t s = 0; s < segment_count; s++) optimiser->chunk_count += chunks_of(&segments[s]);
    zonal_status status = ZONAL_NEW(&optimiser->segments, segment_count, "the segments");
    if (status == ZONAL_OK) {
        for (int64_t s = 0; s < segment_count; s++) optimiser->segments[s] = segments[s];
        status = fill(optimiser);
    }
    if (status == ZONAL_OK)
        *out = optimiser;
    else
        destroy(optimiser);
    return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

static zonal_status state(zonal__optimiser *optimiser, const char *name, float **memory) {
    int index;
    *memory = NULL;
    ZONAL_TRY(zonal__optimiser_state_index(optimiser->spec.kind, name, &index));
    *memory = optimiser->args.state[index];
    return ZONAL_OK;
}

static step_args make_args(const zonal__optimiser *optimiser,
                           const zonal__optimiser_arrays *arrays) {
    step_args args = optimiser->args;
    args.parameters = arrays->parameters;
    args.gradients = arrays->gradients;
    args.copy = (__nv_bfloat16 *)arrays->copy;
    args.aligned = ((uintptr_t)arrays->parameters | (uintptr_t)arrays->gradients) % 16 == 0 &&
                   (uintptr_t)arrays->copy % 8 == 0;
    return args;
}

static zonal_status launch(const zonal__optimiser *optimiser, void (*kernel)(const step_args),
                           const step_args &args) {
    return zonal__launch(optimiser->stream, dim3((unsigned)optimiser->chunk_count), THREADS, 0, 1,
                         kernel, args);
}

static zonal_status step(zonal__optimiser *optimiser, const zonal__optimiser_arrays *arrays,
                         const zonal__optimiser_numbers *numbers, double *norm) {
    zonal__cuda_on on(optimiser->spec.device);
    step_args args = make_args(optimiser, arrays);
    args.numbers = numbers;
    args.norm = norm;
    ZONAL_TRY(launch(optimiser, optimiser_sums, args));
    return launch(
        optimiser,
        optimiser->spec.kind == ZONAL__OPTIMISER_ADAMW ? optimiser_update<ZONAL__OPTIMISER_ADAMW>
        : optimiser->spec.kind == ZONAL__OPTIMISER_SGD ? optimiser_update<ZONAL__OPTIMISER_SGD>
                                                       : optimiser_update<ZONAL__OPTIMISER_LARS>,
        args);
}

static zonal_status status(zonal__optimiser *optimiser) {
    zonal__cuda_on on(optimiser->spec.device);
    int refused;
    ZONAL_TRY(ZONAL_CUDA(cudaStreamSynchronize(optimiser->stream)));
    ZONAL_TRY(zonal__cuda_read(&refused, &optimiser->args.step->refused_before, sizeof refused));
    if (refused == NONE_REFUSED) return ZONAL_OK;
    ZONAL_TRY(clear_refusal(optimiser));
    return zonal__optimiser_refuse(&optimiser->segments[refused]);
}

static zonal_status copy(zonal__optimiser *optimiser, const zonal__optimiser_arrays *arrays) {
    zonal__cuda_on on(optimiser->spec.device);
    if (!arrays->copy) return ZONAL_OK;
    return launch(optimiser, optimiser_copy, make_args(optimiser, arrays));
}

static void set_stream(zonal__optimiser *optimiser, void *stream) {
    optimiser->stream = (cudaStream_t)stream;
}

static const zonal__optimiser_table table = {"cuda", create, destroy, state,
                                             step,   status, copy,    set_stream};

extern "C" const zonal__optimiser_table *zonal__optimiser_cuda(void) {
    return &table;
}
