#include "backend/cuda/small.cuh"

#include "backend/cuda/small_kernel.cuh"

typedef void (*small_kernel)(const small_args);

typedef struct small_work {
    zonal__cuda_base base;
    small_args args; /* all but x, value, gradient and the weights of one run */
    int kl;
    small_kernel pass[3];
} small_work;

/* ---- the kernels by type and shape ---------------------------------------------------------- */

template <typename E, int PASS> static small_kernel kernel_of(const zonal__small_shape &shape) {
    if (shape.quads == 0) return small_long<E, PASS>;
    if (shape.quads == 4) return small_short<E, 4, 2, 1, PASS>;
    if (shape.tile_rows == 16) return small_short<E, 2, 1, 1, PASS>;
    return shape.per == 2 ? small_short<E, 4, 1, 2, PASS> : small_short<E, 4, 1, 1, PASS>;
}

template <typename E> static void choose_kernels(small_work *work) {
    if (work->kl) {
        work->pass[KL_SUMS] = kernel_of<E, KL_SUMS>(work->args.shape);
        work->pass[KL_GRADIENT] = kernel_of<E, KL_GRADIENT>(work->args.shape);
    } else {
        work->pass[PAIRS] = kernel_of<E, PAIRS>(work->args.shape);
    }
}

static zonal_status prepare_kernels(small_work *work) {
    switch (work->base.problem.dtype) {
    case ZONAL_DTYPE_BF16:
        choose_kernels<__nv_bfloat16>(work);
        break;
    case ZONAL_DTYPE_FP16:
        choose_kernels<__half>(work);
        break;
    default:
        choose_kernels<float>(work);
        break;
    }
    for (int pass = 0; pass < 3; pass++) {
        const void *kernel = (const void *)work->pass[pass];
        if (!kernel) continue;
        ZONAL_TRY(ZONAL_CUDA(cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, ZONAL__SMALL_SHARED)));
        ZONAL_TRY(
            ZONAL_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                            cudaSharedmemCarveoutMaxShared)));
    }
    return ZONAL_OK;
}

/* What the device has room for, asked with the largest of the kernels that share it by two. */
static zonal_status find_room(zonal__small_room *room) {
    small_kernel kernel = small_short<float, 4, 1, 1, PAIRS>;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    config.blockDim = dim3(ZONAL__SMALL_THREADS);
    config.dynamicSmemBytes = ZONAL__SMALL_HALF;
    config.attrs = &attribute;
    config.numAttrs = 1;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    ZONAL_TRY(ZONAL_CUDA(cudaFuncSetAttribute(
        (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, ZONAL__SMALL_SHARED)));
    for (int log = 0; log < 4; log++) {
        attribute.val.clusterDim.x = 1u << log;
        config.gridDim = dim3(1u << log);
        ZONAL_TRY(ZONAL_CUDA(
            cudaOccupancyMaxActiveClusters(&room->clusters[log], (const void *)kernel, &config)));
    }
    return ZONAL_OK;
}

/* ---- create --------------------------------------------------------------------------------- */

int zonal__cuda_small_serves(const zonal__problem *problem) {
    const zonal__small_room room = {{132, 66, 31, 15}}; /* the answer is the same for any */
    zonal__small_shape shape;
    int64_t views = problem->views > 1 ? problem->views : 1;
    if (!problem->psi == !problem->log_phi || problem->precision == ZONAL_PRECISION_DOUBLE)
        return 0;
    return zonal__small_shape_make(views, zonal__ranks_batch(problem->ranks, problem->rows),
                                   problem->dim, &room, &shape);
}

/* Whether |log phi| stays below .9, as on the CPU: then sums of expm1 keep the digits. */
static int is_broad(const zonal__fit *log_phi) {
    double least, most;
    zonal__fit_range(log_phi, &least, &most);
    return least > -0.9 && most < 0.9;
}

static void describe(small_work *work, int objective) {
    const zonal__problem *problem = &work->base.problem;
    small_args *args = &work->args;
    double rows = (double)problem->rows, views = (double)args->shape.views;
    args->bad_row = work->base.bad_row;
    args->unit_rows = problem->unit_rows;
    args->objective = objective;
    args->global_views = objective ? (int)problem->global_views : 1;
    args->keep_diagonal = problem->keep_diagonal;
    args->broad = work->kl && is_broad(problem->log_phi);
    args->pair_mean = 1 / (work->kl ? rows * views : rows * rows * views);
    args->align_mean = 1 / (rows * views);
    args->offset = problem->offset;
    args->factor = problem->factor;
    args->lambda = problem->lambda;
    args->gain = problem->gain;
    args->threshold = problem->threshold;
}

static zonal_status allocate(small_work *work) {
    small_args *args = &work->args;
    const zonal__small_shape *shape = &args->shape;
    size_t rows = (size_t)(shape->views * shape->rows);
    void *memory;
    ZONAL_TRY(zonal__cuda_alloc(&work->base, (size_t)shape->blocks * sizeof *args->sums,
                                "the blocks' sums", &memory));
    args->sums = (double2 *)memory;
    ZONAL_TRY(zonal__cuda_alloc(&work->base, sizeof *args->ticket, "the ticket", &memory));
    args->ticket = (unsigned *)memory;
    if (work->kl) {
        ZONAL_TRY(zonal__cuda_alloc(&work->base, rows * sizeof *args->log_sums, "the rows' sums",
                                    &memory));
        args->log_sums = (double *)memory;
        ZONAL_TRY(zonal__cuda_alloc(&work->base, (size_t)shape->cosines * sizeof *args->cosines,
                                    "the cosines", &memory));
        args->cosines = (float *)memory;
    }
    if (args->objective || shape->quads == 0) {
        ZONAL_TRY(zonal__cuda_alloc(&work->base, (size_t)shape->pulls * sizeof *args->pulls,
                                    "the gradient in fp32", &memory));
        args->pulls = (float *)memory;
    }
    return ZONAL_OK;
}

static zonal_status fill(small_work *work, const zonal__problem *problem,
                         zonal__operation operation) {
    zonal__small_room room;
    int objective = operation == ZONAL__OBJECTIVE;
    int64_t views = objective ? problem->views : 1;
    ZONAL_TRY(zonal__cuda_base_init(&work->base, problem));
    work->kl = operation == ZONAL__KL || (objective && problem->log_phi);
    if (problem->precision == ZONAL_PRECISION_DOUBLE ||
        !(work->kl ? !!problem->log_phi : !!problem->psi))
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "small batches on CUDA are for MMD, KSD and KL in fp32");
    if (objective && (problem->global_views < 1 || problem->global_views > views))
        return ZONAL_FAIL(ZONAL_SHAPE, "global views must be from 1 to all %lld views, got %lld",
                          (long long)views, (long long)problem->global_views);
    ZONAL_TRY(find_room(&room));
    if (!zonal__small_shape_make(views, problem->rows, problem->dim, &room, &work->args.shape))
        return ZONAL_FAIL(ZONAL_SHAPE, "%lld views of %lld rows are not a small batch",
                          (long long)views, (long long)problem->rows);
    ZONAL_TRY(zonal__device_fit_init(&work->base, work->kl ? NULL : problem->psi, problem->log_phi,
                                     &work->args.fit));
    describe(work, objective);
    ZONAL_TRY(allocate(work));
    return prepare_kernels(work);
}

zonal_status zonal__cuda_small_create(const zonal__problem *problem, zonal__operation operation,
                                      zonal__work **out) {
    small_work *work;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&work, 1, "the work of a small batch"));
    zonal_status status = fill(work, problem, operation);
    if (status == ZONAL_OK)
        *out = (zonal__work *)work;
    else
        zonal__cuda_small_destroy((zonal__work *)work);
    return status;
}

void zonal__cuda_small_destroy(zonal__work *handle) {
    small_work *work = (small_work *)handle;
    if (!work) return;
    zonal__device_fit_fini(&work->args.fit);
    cudaFree(work->args.sums);
    cudaFree(work->args.ticket);
    cudaFree(work->args.log_sums);
    cudaFree(work->args.cosines);
    cudaFree(work->args.pulls);
    zonal__cuda_base_fini(&work->base);
    zonal__free(work);
}

/* ---- run ------------------------------------------------------------------------------------ */

static zonal_status launch(const small_work *work, small_pass pass, const small_args &args) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)args.shape.cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)args.shape.blocks);
    config.blockDim = dim3(ZONAL__SMALL_THREADS);
    config.dynamicSmemBytes = (size_t)args.shape.shared_bytes;
    config.stream = work->base.stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return ZONAL_CUDA(cudaLaunchKernelEx(&config, work->pass[pass], args));
}

/* Four elements at once need rows that begin at multiples of them. */
static int can_use_vectors(const small_args *args, zonal_dtype dtype) {
    uintptr_t bytes = dtype == ZONAL_DTYPE_BF16 || dtype == ZONAL_DTYPE_FP16 ? 8 : 16;
    return args->shape.dim % 4 == 0 && (uintptr_t)args->x % bytes == 0 &&
           (uintptr_t)args->gradient % bytes == 0;
}

zonal_status zonal__cuda_small_run(zonal__work *handle, const void *x, uint32_t step, double *value,
                                   void *gradient, double factor) {
    const small_work *work = (const small_work *)handle;
    const zonal__problem *problem = &work->base.problem;
    small_args args = work->args;
    double rows = (double)problem->rows, views = (double)args.shape.views;
    double pairs = work->kl ? 1 / rows : 2 / (rows * rows);
    (void)step;
    if (gradient && args.fit.chord)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the chordal kernel has no gradient: its derivative is "
                                          "infinite where two rows meet; use it for tests only");
    if (args.objective) pairs *= problem->lambda * problem->gain * problem->factor / views;
    args.x = x;
    args.value = value;
    args.gradient = gradient;
    args.pair_weight = (float)(factor * pairs);
    args.align_weight = (float)(factor * (1 - problem->lambda) * 2 / (rows * views));
    args.vectors = can_use_vectors(&args, problem->dtype);
    ZONAL_TRY(launch(work, work->kl ? KL_SUMS : PAIRS, args));
    return work->kl && gradient ? launch(work, KL_GRADIENT, args) : ZONAL_OK;
}
