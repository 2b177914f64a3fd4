/*
 * CUDA's table of operations: which path serves a problem, and the objective over several views
 * where no single launch does.
 */
#include "backend/cuda/common.cuh"
#include "backend/cuda/fused.cuh"
#include "backend/cuda/gathered.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/ranks.cuh"
#include "backend/cuda/small.cuh"
#include "backend/cuda/stream.cuh"

extern "C" {
#include "backend/device.h"
}

/* ---- pairs and KL: one launch for small batches, fused or in tiles beyond -------------------- */

/* A small batch, whose operation is PAIRS, KL or OBJECTIVE. */
static zonal_status create_small(const zonal__problem *problem, zonal__operation operation,
                                 zonal__work **work) {
    ZONAL_TRY(problem->ranks ? zonal__cuda_gathered_create(problem, operation, work)
                             : zonal__cuda_small_create(problem, operation, work));
    zonal__cuda_base *base = (zonal__cuda_base *)*work;
    base->run = problem->ranks ? zonal__cuda_gathered_run : zonal__cuda_small_run;
    base->destroy = problem->ranks ? zonal__cuda_gathered_destroy : zonal__cuda_small_destroy;
    base->check = problem->ranks ? zonal__cuda_gathered_check : NULL;
    return ZONAL_OK;
}

static zonal_status create_pairwise(const zonal__problem *problem, zonal__operation operation,
                                    zonal__work **work) {
    if (zonal__cuda_small_serves(problem)) return create_small(problem, operation, work);
    int fused = zonal__cuda_fused_serves(problem, operation);
    ZONAL_TRY(fused ? zonal__cuda_fused_create(problem, operation, work)
                    : zonal__cuda_stream_create(problem, operation, work));
    zonal__cuda_base *base = (zonal__cuda_base *)*work;
    base->run = fused ? zonal__cuda_fused_run : zonal__cuda_stream_run;
    base->destroy = fused ? zonal__cuda_fused_destroy : zonal__cuda_stream_destroy;
    return ZONAL_OK;
}

static zonal_status create_pairs(const zonal__problem *problem, zonal__work **work) {
    return create_pairwise(problem, ZONAL__PAIRS, work);
}

static zonal_status create_kl(const zonal__problem *problem, zonal__work **work) {
    return create_pairwise(problem, ZONAL__KL, work);
}

static zonal_status run_chosen(zonal__work *work, const void *x, uint32_t step, double *value,
                               void *gradient, double factor) {
    return ((zonal__cuda_base *)work)->run(work, x, step, value, gradient, factor);
}

static zonal_status check_chosen(zonal__work *work) {
    zonal__cuda_base *base = (zonal__cuda_base *)work;
    return base->check ? base->check(work) : zonal__cuda_check(work);
}

static void destroy_chosen(zonal__work *work) {
    if (work) ((zonal__cuda_base *)work)->destroy(work);
}

const zonal__operation_table zonal__cuda_pairs = {create_pairs,           run_chosen,
                                                  destroy_chosen,         zonal__cuda_scratch_bytes,
                                                  zonal__cuda_set_stream, check_chosen};
const zonal__operation_table zonal__cuda_kl = {
    create_kl,   run_chosen, destroy_chosen, zonal__cuda_scratch_bytes, zonal__cuda_set_stream,
    check_chosen};

/* ---- the objective --------------------------------------------------------------------------- */

/* Where one launch does not serve: the regulariser's operation view by view, then one kernel for
 * the alignment, which adds to the gradient, and one for the parts. */
typedef struct objective_work {
    zonal__cuda_base base;
    const zonal__operation_table *table;
    zonal__work *inner;
    double *view_value; /* [views] D of each view */
    double *row_value;  /* [rows] alignment of each sample */
    double *all_value;  /* ranks: of all samples of all of them */
} objective_work;

/* A warp per sample. Rows of all views are normalised on the fly (raw_rows: taken as they are);
 * elements are read again from the cache where they are needed a second time. */
template <typename In>
static __global__ void align_views(const In *z, int64_t rows, int64_t dim, int views, int globals,
                                   int raw_rows, int unit_rows, double factor, double *row_value,
                                   In *gradient) {
    int64_t n = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    extern __shared__ double shared[]; /* per warp: views norms, views inner products */
    double *inverse = shared + (threadIdx.x / 32) * 2 * views, *along = inverse + views;
    if (n >= rows) return;
    for (int v = 0; v < views; v++) {
        const In *x = z + ((int64_t)v * rows + n) * dim;
        double sum = 0;
        for (int64_t k = lane; k < dim; k += 32) {
            double element = zonal__load(x + k);
            sum += element * element;
        }
        sum = zonal__warp_sum(sum);
        if (lane == 0) inverse[v] = raw_rows || unit_rows ? 1 : 1 / sqrt(sum);
    }
    __syncwarp();
    double total = 0;
    for (int v = 0; v < views; v++) { /* the inner products g.x, and the value */
        double product = 0;
        for (int64_t k = lane; k < dim; k += 32) {
            double mu = 0, pull = 0, own = 0;
            for (int w = 0; w < globals; w++)
                mu += zonal__load(z + ((int64_t)w * rows + n) * dim + k) * inverse[w];
            mu /= globals;
            for (int w = 0; w < views; w++) {
                double x = zonal__load(z + ((int64_t)w * rows + n) * dim + k) * inverse[w];
                pull += x - mu;
                if (w == v) own = x;
            }
            total += (own - mu) * (own - mu);
            product += (own - mu - (v < globals ? pull / globals : 0)) * own;
        }
        product = zonal__warp_sum(product);
        if (lane == 0) along[v] = raw_rows ? 0 : product;
    }
    total = zonal__warp_sum(total);
    if (lane == 0) row_value[n] = total;
    __syncwarp();
    if (!gradient) return;
    for (int64_t k = lane; k < dim; k += 32) {
        double mu = 0, pull = 0;
        for (int w = 0; w < globals; w++)
            mu += zonal__load(z + ((int64_t)w * rows + n) * dim + k) * inverse[w];
        mu /= globals;
        for (int w = 0; w < views; w++)
            pull += zonal__load(z + ((int64_t)w * rows + n) * dim + k) * inverse[w] - mu;
        for (int v = 0; v < views; v++) {
            int64_t at = ((int64_t)v * rows + n) * dim + k;
            double x = zonal__load(z + at) * inverse[v];
            double g = x - mu - (v < globals ? pull / globals : 0);
            double add = factor * (g - along[v] * x) * inverse[v];
            zonal__store(gradient + at, (float)(zonal__load(gradient + at) + add));
        }
    }
}

/* The sum of n doubles by one block, in a fixed order; right in thread 0. */
__device__ inline double block_sum(int64_t n, const double *value) {
    __shared__ double part[32];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += value[i];
    sum = zonal__warp_sum(sum);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (unsigned i = 0; i < blockDim.x / 32; i++) sum += part[i];
    return sum;
}

static __global__ void add_samples(int64_t rows, const double *row_value, double *sum) {
    double all = block_sum(rows, row_value);
    if (threadIdx.x == 0) *sum = all;
}

/* "count" divides the sum of row_value, which has one for each of "rows", or one for all. */
static __global__ void write_parts(int64_t rows, double count, int views, const double *row_value,
                                   const double *view_value, double lambda, double gain,
                                   double threshold, zonal_objective_parts *parts) {
    double sum = block_sum(rows, row_value), d = 0;
    if (threadIdx.x != 0) return;
    for (int v = 0; v < views; v++) d += view_value[v];
    parts->invariance = sum / count;
    parts->discrepancy = d / views;
    parts->gain = gain;
    parts->threshold = threshold;
    parts->total = (1 - lambda) * parts->invariance + lambda * gain * parts->discrepancy;
}

static size_t element_size(const zonal__problem *problem) {
    return problem->dtype == ZONAL_DTYPE_FP32 ? 4 : 2;
}

template <typename In>
static zonal_status align(const objective_work *work, const void *z, double factor,
                          void *gradient) {
    const zonal__problem *problem = &work->base.problem;
    enum { WARPS = 4 };
    size_t shared = WARPS * 2 * (size_t)problem->views * sizeof(double);
    if (problem->rows == 0) return ZONAL_OK;
    align_views<In>
        <<<(unsigned)((problem->rows + WARPS - 1) / WARPS), 32 * WARPS, shared,
           work->base.stream>>>((const In *)z, problem->rows, problem->dim, (int)problem->views,
                                (int)problem->global_views, problem->raw_rows, problem->unit_rows,
                                2 * factor / zonal__invariance_count(problem, work->base.batch),
                                work->row_value, (In *)gradient);
    return ZONAL_CUDA_LAUNCHED();
}

static zonal_status run_views(zonal__work *opaque, const void *z, uint32_t step, double *value,
                              void *gradient, double factor) {
    objective_work *work = (objective_work *)opaque;
    const zonal__problem *problem = &work->base.problem;
    size_t view = (size_t)(problem->rows * problem->dim) * element_size(problem);
    double share =
        factor * problem->lambda * problem->gain * problem->factor / (double)problem->views;
    work->table->set_stream(work->inner, work->base.stream);
    for (int64_t v = 0; v < problem->views; v++)
        ZONAL_TRY(work->table->run(work->inner, (const char *)z + (size_t)v * view, step,
                                   work->view_value + v,
                                   gradient ? (char *)gradient + (size_t)v * view : NULL, share));
    double rest = factor * (1 - problem->lambda);
    switch (problem->dtype) {
    case ZONAL_DTYPE_BF16:
        ZONAL_TRY(align<__nv_bfloat16>(work, z, rest, gradient));
        break;
    case ZONAL_DTYPE_FP16:
        ZONAL_TRY(align<__half>(work, z, rest, gradient));
        break;
    default:
        ZONAL_TRY(align<float>(work, z, rest, gradient));
        break;
    }
    int64_t rows = problem->rows;
    const double *row_value = work->row_value;
    if (problem->ranks) {
        add_samples<<<1, 1024, 0, work->base.stream>>>(rows, row_value, work->all_value);
        ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
        ZONAL_TRY(zonal__cuda_ranks_sum(&work->base, work->all_value, 1));
        rows = 1;
        row_value = work->all_value;
    }
    write_parts<<<1, 1024, 0, work->base.stream>>>(
        rows, zonal__invariance_count(problem, work->base.batch), (int)problem->views, row_value,
        work->view_value, problem->lambda, problem->gain, problem->threshold,
        (zonal_objective_parts *)value);
    return ZONAL_CUDA_LAUNCHED();
}

static void destroy_views(zonal__work *opaque) {
    objective_work *work = (objective_work *)opaque;
    if (!work) return;
    if (work->inner) work->table->destroy(work->inner);
    cudaFree(work->view_value);
    cudaFree(work->row_value);
    cudaFree(work->all_value);
    zonal__cuda_base_fini(&work->base);
    zonal__free(work);
}

static zonal_status build_views(objective_work *work) {
    zonal__problem inner = work->base.problem;
    void *memory;
    inner.views = inner.global_views = 1;
    work->table = inner.psi       ? &zonal__cuda_pairs
                  : inner.log_phi ? &zonal__cuda_kl
                  : inner.sliced  ? &zonal__cuda_sliced
                                  : &zonal__cuda_moments;
    ZONAL_TRY(work->table->create(&inner, &work->inner));
    ZONAL_TRY(zonal__cuda_alloc(&work->base, (size_t)work->base.problem.views * sizeof(double),
                                "the views' values", &memory));
    work->view_value = (double *)memory;
    ZONAL_TRY(zonal__cuda_alloc(&work->base, (size_t)inner.rows * sizeof(double),
                                "the samples' alignment", &memory));
    work->row_value = (double *)memory;
    ZONAL_TRY(zonal__cuda_alloc(&work->base, sizeof(double), "the alignment", &memory));
    work->all_value = (double *)memory;
    ZONAL_TRY(zonal__cuda_ranks_room(&work->base, sizeof(double)));
    work->base.bytes += work->table->scratch_bytes(work->inner);
    return ZONAL_OK;
}

static zonal_status create_objective(const zonal__problem *problem, zonal__work **out) {
    *out = NULL;
    if ((problem->psi || problem->log_phi) && zonal__cuda_small_serves(problem))
        return create_small(problem, ZONAL__OBJECTIVE, out);
    void *memory;
    ZONAL_TRY(zonal__alloc(1, sizeof(objective_work), "the work space", &memory));
    objective_work *work = (objective_work *)memory;
    zonal_status status = zonal__cuda_base_init(&work->base, problem);
    work->base.run = run_views;
    work->base.destroy = destroy_views;
    if (status == ZONAL_OK) status = build_views(work);
    if (status == ZONAL_OK)
        *out = (zonal__work *)work;
    else
        destroy_views((zonal__work *)work);
    return status;
}

/* The rows of a view are the inner operation's to judge; alignment sees the same ones. */
static zonal_status check_objective(zonal__work *work) {
    zonal__cuda_base *base = (zonal__cuda_base *)work;
    if (base->run != run_views) return check_chosen(work);
    objective_work *views = (objective_work *)work;
    return views->table->check(views->inner);
}

const zonal__operation_table zonal__cuda_objective = {
    create_objective,       run_chosen,     destroy_chosen, zonal__cuda_scratch_bytes,
    zonal__cuda_set_stream, check_objective};

/* ---- the table ------------------------------------------------------------------------------- */

/* An operation's entry points on the GPU that its problem names. */
template <const zonal__operation_table *op> struct on_its_device {
    static const zonal__device *device_of(const zonal__work *work) {
        return ((const zonal__cuda_base *)work)->problem.device;
    }
    static zonal_status create(const zonal__problem *problem, zonal__work **work) {
        zonal__cuda_on on(problem->device);
        return op->create(problem, work);
    }
    static zonal_status run(zonal__work *work, const void *x, uint32_t step, double *value,
                            void *gradient, double scale) {
        zonal__cuda_on on(device_of(work));
        const zonal__problem *problem = &((const zonal__cuda_base *)work)->problem;
        /* Inside, losses are told the factor of the bare value's gradient. */
        double factor = op == &zonal__cuda_objective ? scale : scale * problem->factor;
        return op->run(work, x, step, value, gradient, factor);
    }
    static void destroy(zonal__work *work) {
        if (!work) return;
        zonal__cuda_on on(device_of(work));
        op->destroy(work);
    }
    static zonal_status check(zonal__work *work) {
        zonal__cuda_on on(device_of(work));
        return op->check(work);
    }
    static constexpr zonal__operation_table table = {
        create, run, destroy, zonal__cuda_scratch_bytes, zonal__cuda_set_stream, check};
};

/* In the order of enum zonal__operation: C++17 has no designators for arrays. Surveys, moments of
 * the data and eigenvalues are not losses; they stay on the CPU. */
static_assert(ZONAL__PAIRS == 0 && ZONAL__KL == 1 && ZONAL__MOMENTS == 2 && ZONAL__SLICED == 3 &&
                  ZONAL__OBJECTIVE == 8 && ZONAL__OPERATIONS == 9,
              "the table below follows enum zonal__operation");
static const zonal__backend table = {
    "cuda",
    0, /* a device, */
    0, /* and no oracle */
    zonal__cuda_count,
    zonal__cuda_describe,
    &zonal__cuda_runtime,
    1u << ZONAL_PRECISION_FP32 | 1u << ZONAL_PRECISION_TF32 | 1u << ZONAL_PRECISION_BF16,
    1u << ZONAL_DTYPE_FP32 | 1u << ZONAL_DTYPE_BF16 | 1u << ZONAL_DTYPE_FP16,
    1, /* takes ranks */
    ZONAL__SMALL_BATCH,
    {&on_its_device<&zonal__cuda_pairs>::table, &on_its_device<&zonal__cuda_kl>::table,
     &on_its_device<&zonal__cuda_moments>::table, &on_its_device<&zonal__cuda_sliced>::table, NULL,
     NULL, NULL, NULL, &on_its_device<&zonal__cuda_objective>::table}};

extern "C" const zonal__backend *zonal__backend_cuda(void) {
    return &table;
}
