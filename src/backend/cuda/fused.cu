/*
 * Pairs and KL of large batches on compute capability 9.0: cosines, weights and the gradient's sums
 * stay in registers (fused_kernel.cuh), and every row of the batch is read from the L2 cache once
 * for 128 rows, or 64 in `fp32`.
 *
 *     image of the rows           normalised, in halves, as shared memory wants them; their mean
 *     KL: densities of the rows   the first product alone, of every pair once
 *     O = W X                     both products
 *     gradient = projection of O, value
 *
 * Work: 4 B^2 d operations, 5 for KL, thrice that in `fp32`. Symmetry could save a quarter of the
 * former, but its share of O would have to be added in device memory, in order; it halves the
 * evaluations of psi instead. Without a gradient it halves all of it (fused_sum_kernel.cuh).
 *
 * Precision. `tf32` and `bf16` multiply halves, which have TF32's mantissa; unit rows do not need
 * the exponents. Weights are halves too, less psi'(0): what that adds is the mean of the rows,
 * which is in double. The functions of the cosine are economised polynomials: psi to 1e-4/B, a
 * ten-thousandth of the least D there is, log phi to 1e-5, psi' and (log phi)' to 1e-5 of their
 * value at 0, of which KL's densities can use 1e-4. `fp32` multiplies hi + lo
 * (fused_split_kernel.cuh), and takes the degrees 1 and 2 of the pairs' value from the moments,
 * because tensor cores cut sums off (stream.cu); psi is then good to 1e-12 and psi' to 1e-8 of its
 * value at 0, log phi to 1e-7 and (log phi)' to 1e-6.
 *
 * Served are kernels tame enough for that, rows of up to 256 elements, and one rank; stream.cu
 * serves the rest.
 */
#include <math.h>

#include "backend/cuda/fused.cuh"
#include "backend/cuda/fused_kernel.cuh"
#include "backend/cuda/fused_split_kernel.cuh"
#include "backend/cuda/fused_sum_kernel.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/unit_rows.cuh"

/* Terms of the polynomials that kernels are made for, [fp32][KL][many]: few are enough for the heat
 * kernel at its usual times. */
typedef struct lengths {
    int values, weights;
} lengths;
constexpr lengths LENGTHS[2][2][2] = {
    {{{12, 9}, {ZONAL__FUSED_MANY, ZONAL__FUSED_MANY}},
     {{14, 11}, {ZONAL__FUSED_MANY, ZONAL__FUSED_MANY}}},
    {{{14, 12}, {ZONAL__FUSED_TERMS, 24}}, {{19, 15}, {ZONAL__FUSED_TERMS, 24}}}};
static const int IMAGE_ROWS = 64, IMAGE_WARPS = 8; /* of a block of make_image */
static_assert(32 * IMAGE_WARPS == 256, "a thread of make_image for each element");
/* log phi(1) - log phi(0), so that densities against phi(0) and their sums are plain floats. */
static const double WIDEST = 60;

typedef struct fused_work {
    zonal__cuda_base base;
    int kl, split; /* split: `fp32`, rows as hi + lo */
    int many;      /* terms: which of LENGTHS */
    int panels;    /* of 64 elements */
    zonal__fused_cut cut;
    zonal__sum_cut sum_cut; /* of the densities, and of a value without a gradient */
    zonal__fused_profile profile;
    double constant;    /* psi or log phi at c = 0, which the profile leaves out */
    double base_weight; /* taken off every weight */
    float weight_scale; /* a power of two that keeps weights inside half's range */
    char *image, *lo;   /* [panels][padded][128 bytes]; lo: split */
    float *o;           /* [ranges][rows][dim]; NULL where the gradient itself serves */
    double *sum;        /* [ranges][blocks][8]; KL: [ranges][rows] */
    float *mirror;      /* KL: [mirrored steps][128 blocks], what rows have of others' sums */
    double *log_s;      /* [rows], KL */
    float *share;       /* [padded], KL: weight_scale phi(0)/S_i */
    double *row_sums;   /* [blocks of make_image][256] */
    double *mean;       /* [256] */
    zonal__work *low;   /* pairs, split: the moments, for the mean and the value's degrees 1, 2 */
    double *low_value;  /* device: its value */
} fused_work;

/* ---- kernels --------------------------------------------------------------------------------- */

/* What make_image is made of: the rows as they come, and where they go. */
typedef struct image_place {
    int rows, dim, panels;
    int64_t panel_bytes;
    char *hi, *lo;    /* images; lo may be NULL */
    double *row_sums; /* [blocks][256]: of the unit rows; may be NULL */
    double scale;     /* of a unit row in the image */
    int unit_rows;
    bool vector; /* rows begin at multiples of four elements */
    unsigned long long *bad_row;
} image_place;

/* Eight elements of a row that is "inverse" times too long, in the image's order; what rounding
 * leaves goes to lo. */
__device__ inline void place_elements(const image_place &to, int row, const float *element,
                                      double inverse) {
    int lane = (int)threadIdx.x % 32;
    alignas(16) __half high[8], low[8];
    if (lane / 8 >= to.panels) return;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float scaled = (float)(element[i] * inverse * to.scale);
        high[i] = __float2half_rn(scaled);
        low[i] = __float2half_rn(scaled - __half2float(high[i]));
    }
    int64_t at = lane / 8 * to.panel_bytes + (int64_t)row * 128 + ((lane % 8) ^ (row % 8)) * 16;
    *(uint4 *)(to.hi + at) = *(const uint4 *)high;
    if (to.lo) *(uint4 *)(to.lo + at) = *(const uint4 *)low;
}

/* The block's sums of unit rows, of which a lane has eight elements. */
__device__ inline void store_sums(const double *sum, double *row_sums) {
    __shared__ double part[IMAGE_WARPS][256];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 8; i++) part[warp][8 * lane + i] = sum[i];
    __syncthreads();
    double all = 0;
    for (int w = 0; w < IMAGE_WARPS; w++) all += part[w][threadIdx.x];
    row_sums[(int64_t)blockIdx.x * 256 + threadIdx.x] = all;
}

/* A warp per row, eight elements a lane: x/|x| as an image, and the sums of these. */
template <typename In>
static __global__ void __launch_bounds__(32 * IMAGE_WARPS)
    make_image(const In *x, const image_place to) {
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    double sum[8] = {};
    for (int r = warp; r < IMAGE_ROWS; r += IMAGE_WARPS) {
        int row = (int)blockIdx.x * IMAGE_ROWS + r;
        alignas(16) float element[8];
        double square = 0;
        if (row >= to.rows) break;
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            int k = 8 * lane + i;
            *(float4 *)(element + i) =
                zonal__widen(zonal__load4(x + (int64_t)row * to.dim + k, to.dim - k, to.vector));
        }
#pragma unroll
        for (int i = 0; i < 8; i++) square += (double)element[i] * element[i];
        double length = sqrt(zonal__warp_sum(square));
        int trouble = zonal__row_trouble(length, to.unit_rows);
        if (trouble >= 0 && lane == 0) zonal__report_row(to.bad_row, row, trouble);
        double inverse = trouble >= 0 ? 0 : to.unit_rows ? 1 : 1 / length;
        place_elements(to, row, element, inverse);
#pragma unroll
        for (int i = 0; i < 8; i++) sum[i] += element[i] * inverse;
    }
    if (to.row_sums) store_sums(sum, to.row_sums);
}

/* A block per 32 columns: the mean of all rows. */
static __global__ void __launch_bounds__(1024)
    find_mean(int blocks, const double *row_sums, double rows, double *mean) {
    __shared__ double part[32][32];
    int column = (int)blockIdx.x * 32 + (int)threadIdx.x % 32, share = (int)threadIdx.x / 32;
    double sum = 0;
    for (int i = share; i < blocks; i += 32) sum += row_sums[(int64_t)i * 256 + column];
    part[share][threadIdx.x % 32] = sum;
    __syncthreads();
    if (share > 0) return;
    for (int i = 1; i < 32; i++) sum += part[i][threadIdx.x];
    mean[column] = sum / rows;
}

/* KL: log S_i of a row from its ranges' sums and those of the blocks that met it, which count every
 * column that was cleared or is not there as phi(0); and the row's share in the weights. */
static __global__ void close_densities(int rows, int ranges, const double *sum, int mirrored,
                                       int64_t mirror_rows, const float *mirror, double cleared,
                                       double centre, double weight_scale, int keep_diagonal,
                                       double *log_s, float *share) {
    int row = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (row >= rows) return;
    double all = -cleared;
    for (int i = 0; i < ranges; i++) all += sum[(int64_t)i * rows + row];
    for (int i = 0; i < mirrored; i++) all += mirror[i * mirror_rows + row];
    if (keep_diagonal) all += exp(-centre); /* phi(1) = 1 */
    log_s[row] = centre + log(all);
    share[row] = (float)(weight_scale / all);
}

/* A warp per row: g = O + common_weight mean, then scale (g - (g.x) x)/|z|. O and the gradient may
 * be the same memory: a row is read before it is written. */
template <typename In>
static __global__ void project_rows(const In *x, const float *o, int ranges, const double *mean,
                                    double common_weight, int rows, int dim, int unit_rows,
                                    double scale, In *gradient) {
    int row = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32), lane = threadIdx.x % 32;
    float z[8];
    double g[8], along = 0, square = 0;
    if (row >= rows) return;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int k = lane + 32 * i;
        if (k >= dim) continue;
        float sum = 0;
        for (int r = 0; r < ranges; r++) sum += o[((int64_t)r * rows + row) * dim + k];
        z[i] = zonal__load(x + (int64_t)row * dim + k);
        g[i] = sum + common_weight * mean[k];
        along += z[i] * g[i];
        square += (double)z[i] * z[i];
    }
    along = zonal__warp_sum(along);
    square = zonal__warp_sum(square);
    double radial = along / square, factor = unit_rows ? scale : scale / sqrt(square);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int k = lane + 32 * i;
        if (k < dim)
            zonal__store(gradient + (int64_t)row * dim + k,
                         (float)(factor * (g[i] - radial * z[i])));
    }
}

/* One block: value = offset + factor (low + constant + sum of (number - shift) / divisor). */
static __global__ void finish_value(int64_t n, const double *number, double shift, double divisor,
                                    double constant, const double *low, double offset,
                                    double factor, double *value) {
    __shared__ double part[32];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += number[i] - shift;
    sum = zonal__block_sum(sum, part);
    if (threadIdx.x == 0) *value = offset + factor * ((low ? *low : 0) + constant + sum / divisor);
}

/* ---- launches -------------------------------------------------------------------------------- */

typedef void (*fused_kernel)(const zonal__fused_profile, const zonal__fused_problem);
typedef void (*sum_kernel)(const zonal__fused_profile, const zonal__sum_problem);

/* The kernels of a problem, and the shared memory that they take. */
typedef struct kernels {
    fused_kernel gradient;
    sum_kernel sum;
    size_t gradient_bytes, sum_bytes;
} kernels;

template <int PANELS, bool SPLIT, bool KL, bool MANY> static kernels kernels_made() {
    constexpr int MODE = KL ? ZONAL__FUSED_KL : ZONAL__FUSED_PAIRS;
    constexpr int KIND = KL ? ZONAL__SUM_DENSITIES : ZONAL__SUM_VALUES;
    constexpr lengths OWN = LENGTHS[SPLIT][KL][MANY];
    /* The value of pairs alone is wanted less often: one kernel for both lengths. */
    constexpr int TERMS = KL ? OWN.values : LENGTHS[SPLIT][KL][1].values;
    kernels all = {NULL, zonal__fused_sum<PANELS, SPLIT, KIND, TERMS>, 0,
                   zonal__sum_layout<PANELS, SPLIT>::BYTES};
    if constexpr (SPLIT) {
        all.gradient = zonal__fused_split<PANELS, MODE, OWN.values, OWN.weights>;
        all.gradient_bytes = zonal__split_layout<PANELS, MODE>::BYTES;
    } else {
        all.gradient = zonal__fused<PANELS, MODE, OWN.values, OWN.weights>;
        all.gradient_bytes = zonal__fused_layout<PANELS, MODE>::BYTES;
    }
    return all;
}

template <int PANELS, bool SPLIT> static kernels kernels_by_terms(const fused_work *work) {
    if (work->kl)
        return work->many ? kernels_made<PANELS, SPLIT, true, true>()
                          : kernels_made<PANELS, SPLIT, true, false>();
    return work->many ? kernels_made<PANELS, SPLIT, false, true>()
                      : kernels_made<PANELS, SPLIT, false, false>();
}

static kernels choose_kernels(const fused_work *work) {
    if (work->panels == 2)
        return work->split ? kernels_by_terms<2, true>(work) : kernels_by_terms<2, false>(work);
    return work->split ? kernels_by_terms<4, true>(work) : kernels_by_terms<4, false>(work);
}

static float row_scale(const fused_work *work) {
    return work->split ? ZONAL__SPLIT_SCALE : 1;
}

static zonal_status launch_gradient(const fused_work *work, float *o) {
    kernels use = choose_kernels(work);
    zonal__fused_problem problem = {work->image,
                                    work->lo,
                                    work->cut.padded * 128,
                                    (int)work->base.problem.rows,
                                    (int)work->base.problem.dim,
                                    work->cut.tiles,
                                    work->cut.tiles_each,
                                    work->share,
                                    1 / (work->weight_scale * row_scale(work)),
                                    o,
                                    work->base.problem.dim % 2 == 0 && (uintptr_t)o % 8 == 0,
                                    work->sum};
    dim3 grid((unsigned)work->cut.blocks, (unsigned)work->cut.ranges);
    return zonal__launch(work->base.stream, grid, ZONAL__FUSED_THREADS, use.gradient_bytes, 1,
                         use.gradient, work->profile, problem);
}

static zonal_status launch_sum(const fused_work *work) {
    kernels use = choose_kernels(work);
    const zonal__sum_cut *cut = &work->sum_cut;
    zonal__sum_problem problem = {
        work->image,  work->lo,   work->cut.padded * 128, (int)work->base.problem.rows,
        cut->blocks,  cut->steps, cut->steps_each,        cut->mirrored,
        work->mirror, work->sum};
    dim3 grid((unsigned)cut->blocks, (unsigned)cut->ranges);
    return zonal__launch(work->base.stream, grid, ZONAL__FUSED_THREADS, use.sum_bytes, 1, use.sum,
                         work->profile, problem);
}

static unsigned row_blocks(const fused_work *work) { /* of 8 warps, a row each */
    return (unsigned)((work->base.problem.rows + 7) / 8);
}

/* The image, and the mean by the moments where those are needed for the value too. */
template <typename In> static zonal_status image(const fused_work *work, const void *x) {
    const zonal__problem *problem = &work->base.problem;
    int blocks = (int)((problem->rows + IMAGE_ROWS - 1) / IMAGE_ROWS);
    bool vector = problem->dim % 4 == 0 && (uintptr_t)x % (4 * sizeof(In)) == 0;
    image_place to = {
        (int)problem->rows, (int)problem->dim, work->panels,    work->cut.padded * 128, work->image,
        work->lo,           work->row_sums,    row_scale(work), problem->unit_rows,     vector,
        work->base.bad_row};
    if (work->low) {
        zonal__cuda_moments.set_stream(work->low, work->base.stream);
        ZONAL_TRY(zonal__cuda_moments.run(work->low, x, 0, work->low_value, NULL, 0));
    }
    make_image<In><<<(unsigned)blocks, 32 * IMAGE_WARPS, 0, work->base.stream>>>((const In *)x, to);
    if (work->row_sums)
        find_mean<<<8, 1024, 0, work->base.stream>>>(blocks, work->row_sums, (double)problem->rows,
                                                     work->mean);
    return ZONAL_CUDA_LAUNCHED();
}

template <typename In>
static zonal_status project(const fused_work *work, const void *x, const float *o, double scale,
                            void *gradient) {
    const zonal__problem *problem = &work->base.problem;
    project_rows<In><<<row_blocks(work), 256, 0, work->base.stream>>>(
        (const In *)x, o, work->cut.ranges,
        work->low ? zonal__cuda_moments_mean(work->low) : work->mean,
        work->base_weight * (double)problem->rows, (int)problem->rows, (int)problem->dim,
        problem->unit_rows, scale, (In *)gradient);
    return ZONAL_CUDA_LAUNCHED();
}

static zonal_status finish(const fused_work *work, int64_t n, const double *number, double shift,
                           double divisor, double constant, double *value) {
    const zonal__problem *problem = &work->base.problem;
    finish_value<<<1, 1024, 0, work->base.stream>>>(n, number, shift, divisor, constant,
                                                    work->low ? work->low_value : NULL,
                                                    problem->offset, problem->factor, value);
    return ZONAL_CUDA_LAUNCHED();
}

/* ---- run ------------------------------------------------------------------------------------- */

template <typename In>
static zonal_status run_pairs(const fused_work *work, const void *x, double *value, void *gradient,
                              double factor) {
    double b = (double)work->base.problem.rows;
    float *o = work->o ? work->o : (float *)gradient;
    int64_t sums = (int64_t)work->cut.ranges * work->cut.blocks * ZONAL__FUSED_SUMS;
    if (gradient) {
        ZONAL_TRY(launch_gradient(work, o));
        ZONAL_TRY(project<In>(work, x, o, 2 * factor / (b * b), gradient));
    } else {
        ZONAL_TRY(launch_sum(work));
        sums = (int64_t)work->sum_cut.ranges * work->sum_cut.blocks * ZONAL__FUSED_SUMS;
    }
    return finish(work, sums, work->sum, 0, b * b / 2, work->constant * (b - 1) / b, value);
}

template <typename In>
static zonal_status run_kl(const fused_work *work, const void *x, double *value, void *gradient,
                           double factor) {
    const zonal__problem *problem = &work->base.problem;
    int rows = (int)problem->rows;
    double b = rows, n = problem->keep_diagonal ? b : b - 1;
    int64_t met = (int64_t)work->sum_cut.blocks * ZONAL__SUM_ROWS; /* by each row */
    float *o = work->o ? work->o : (float *)gradient;
    ZONAL_TRY(launch_sum(work));
    close_densities<<<(unsigned)((rows + 255) / 256), 256, 0, work->base.stream>>>(
        rows, work->sum_cut.ranges, work->sum, work->sum_cut.mirrored, met, work->mirror,
        (double)met - b + 1, work->constant, work->weight_scale, problem->keep_diagonal,
        work->log_s, work->share);
    ZONAL_TRY(ZONAL_CUDA_LAUNCHED());
    if (gradient) {
        ZONAL_TRY(launch_gradient(work, o));
        ZONAL_TRY(project<In>(work, x, o, factor / b, gradient));
    }
    return finish(work, rows, work->log_s, log(n), b, 0, value);
}

template <typename In>
static zonal_status run_as(const fused_work *work, const void *x, double *value, void *gradient,
                           double factor) {
    ZONAL_TRY(image<In>(work, x));
    return work->kl ? run_kl<In>(work, x, value, gradient, factor)
                    : run_pairs<In>(work, x, value, gradient, factor);
}

zonal_status zonal__cuda_fused_run(zonal__work *opaque, const void *x, uint32_t step, double *value,
                                   void *gradient, double factor) {
    const fused_work *work = (const fused_work *)opaque;
    (void)step;
    switch (work->base.problem.dtype) {
    case ZONAL_DTYPE_BF16:
        return run_as<__nv_bfloat16>(work, x, value, gradient, factor);
    case ZONAL_DTYPE_FP16:
        return run_as<__half>(work, x, value, gradient, factor);
    default:
        return run_as<float>(work, x, value, gradient, factor);
    }
}

/* ---- profiles -------------------------------------------------------------------------------- */

/* To 2^12: weights of a thousandth keep all their bits. KL's weights are 1/B of what they may be,
 * if one pair is all of a density: in `fp32` up to the end of half's range. */
static float scale_for(const fused_work *work, double largest) {
    int to = work->kl && work->split ? 15 : 12;
    return largest > 0 ? ldexpf(1, to - (int)ceil(log2(largest))) : 1;
}

/* Whether polynomials and single precision do for a fit, and densities against phi(0) for KL. */
static int is_tame(const zonal__fit *fit, int kl) {
    if (!fit || fit->n_monomial == 0 || fit->low > -1) return 0;
    double at_zero = zonal__fit_value(fit, 0), at_low = zonal__fit_value(fit, -1);
    if (!(fabs(zonal__fit_derivative(fit, 0)) > fabs(zonal__fit_derivative(fit, 1)) / 32)) return 0;
    /* A broad log phi has small differences, for log1p. */
    return !kl || (at_low <= -1 && at_zero > -WIDEST && at_low > at_zero - WIDEST);
}

/* A logarithm's powers from ZONAL__FUSED_LOW on are summed in halves, right to 2^-11 of this. */
static int halves_hold(const double *value) {
    double most = 0;
    for (int k = ZONAL__FUSED_LOW; k < ZONAL__FUSED_TERMS; k++) most += fabs(value[k]);
    return most <= 1;
}

/* The polynomials of a fit, in double; returns 0 where they have too many terms. */
static int economise_fit(const zonal__problem *problem, const zonal__fit *fit, fused_work *work,
                         double *value, double *weight) {
    const lengths *few = &LENGTHS[work->split][work->kl][0], *many = few + 1;
    double middle = fabs(zonal__fit_derivative(fit, 0)), values_to, weights_to;
    if (work->split) {
        values_to = work->kl ? 1e-7 : 1e-12;
        weights_to = work->kl ? 1e-6 : 1e-8;
    } else {
        values_to = work->kl ? 1e-5 : 1e-4 / (double)problem->rows;
        weights_to = work->kl ? 1e-4 : 1e-5;
    }
    int values = zonal__fused_economise(fit->n_value, fit->value, values_to, value);
    int weights =
        zonal__fused_economise(fit->n_derivative, fit->derivative, weights_to * middle, weight);
    if (values == 0 || weights == 0 || values > many->values || weights > many->weights) return 0;
    work->many = values > few->values || weights > few->weights ||
                 (work->kl && !work->split && !halves_hold(value));
    if (work->split && !work->kl) { /* psi less b_1 P_1(c) + b_2 P_2(c) */
        double b2 = problem->degree2 / (double)(problem->dim - 1);
        value[0] += b2;
        value[1] -= problem->degree1;
        value[2] -= b2 * (double)problem->dim;
    }
    return 1;
}

/* Coefficients as kernels have them: a logarithm's to base 2, and of rows that are scaled. */
static void fill_coefficients(fused_work *work, const double *value, const double *weight) {
    zonal__fused_profile *profile = &work->profile;
    for (int k = 0; k < ZONAL__FUSED_TERMS; k++) {
        double unscale = pow(row_scale(work), -2 * k); /* a power of two */
        double v = k == 0 ? 0 : work->kl ? value[k] * 1.4426950408889634 : value[k]; /* log2(e) */
        double w = work->kl ? weight[k] : k > 0 ? weight[k] * work->weight_scale : 0;
        profile->value[k] = (float)(v * unscale);
        profile->weight[k] = (float)(w * unscale);
        profile->value_halves[k] = __floats2half2_rn((float)v, (float)v);
        profile->halves[k] = __floats2half2_rn((float)w, (float)w);
    }
}

/* Fills what follows from the fit, "kl" and "split"; returns 0 where the kernels do not serve it.
 */
static int fill_profile(const zonal__problem *problem, fused_work *work) {
    int kl = work->kl;
    const zonal__fit *fit = kl ? problem->log_phi : problem->psi ? problem->psi->fit : NULL;
    double value[ZONAL__FUSED_TERMS], weight[ZONAL__FUSED_TERMS], largest = 0;
    if (!is_tame(fit, kl) || !economise_fit(problem, fit, work, value, weight)) return 0;
    for (int k = 0; k < ZONAL__FUSED_TERMS; k++) largest += fabs(weight[k]);
    work->constant = value[0];
    work->base_weight = kl ? weight[0] * 2 / (double)problem->rows : weight[0];
    work->weight_scale = scale_for(work, kl ? 2 * largest : largest);
    work->profile.base = (float)(work->base_weight * work->weight_scale);
    fill_coefficients(work, value, weight);
    return 1;
}

/* ---- create and destroy ---------------------------------------------------------------------- */

int zonal__cuda_fused_serves(const zonal__problem *problem, zonal__operation operation) {
    fused_work work = {};
    work.kl = operation == ZONAL__KL;
    work.split = problem->precision == ZONAL_PRECISION_FP32;
    return !problem->ranks && problem->precision != ZONAL_PRECISION_DOUBLE && problem->dim <= 256 &&
           problem->rows <= INT32_MAX / 2 && fill_profile(problem, &work) &&
           zonal__cuda_is_hopper();
}

static zonal_status cut_work(fused_work *work) {
    const zonal__problem *problem = &work->base.problem;
    int device, processors;
    ZONAL_TRY(ZONAL_CUDA(cudaGetDevice(&device)));
    ZONAL_TRY(
        ZONAL_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)));
    zonal__fused_cut_make(problem->rows, problem->dim, work->split, processors, &work->cut);
    zonal__sum_cut_make(problem->rows, work->kl, processors, &work->sum_cut);
    return ZONAL_OK;
}

template <typename P>
static zonal_status alloc(fused_work *work, int64_t count, size_t size, const char *what, P **out) {
    void *memory = NULL;
    zonal_status status = zonal__cuda_alloc(&work->base, (size_t)count * size, what, &memory);
    *out = (P *)memory;
    return status;
}

/* Memory whose padding is zero for good. */
template <typename P>
static zonal_status alloc_zeros(fused_work *work, int64_t count, size_t size, const char *what,
                                P **out) {
    ZONAL_TRY(alloc(work, count, size, what, out));
    return ZONAL_CUDA(cudaMemset(*out, 0, (size_t)count * size));
}

static zonal_status build_mean(fused_work *work) {
    zonal__problem low = work->base.problem;
    low.offset = 0;
    low.factor = 1;
    if (!work->split || work->kl) {
        int64_t blocks = (low.rows + IMAGE_ROWS - 1) / IMAGE_ROWS;
        ZONAL_TRY(alloc(work, blocks * 256, sizeof(double), "the mean", &work->row_sums));
        return alloc(work, 256, sizeof(double), "the mean", &work->mean);
    }
    ZONAL_TRY(zonal__cuda_moments.create(&low, &work->low));
    work->base.bytes += zonal__cuda_moments.scratch_bytes(work->low);
    return alloc(work, 1, sizeof(double), "the moments' value", &work->low_value);
}

static zonal_status allow_kernels(const fused_work *work) {
    kernels use = choose_kernels(work);
    ZONAL_TRY(zonal__allow_shared(use.gradient, use.gradient_bytes));
    return zonal__allow_shared(use.sum, use.sum_bytes);
}

/* The sums of either kernel. */
static zonal_status alloc_sums(fused_work *work) {
    const zonal__sum_cut *cut = &work->sum_cut;
    int64_t rows = work->base.problem.rows, blocks = (int64_t)work->cut.ranges * work->cut.blocks;
    int64_t sum_blocks = (int64_t)cut->ranges * cut->blocks;
    int64_t most = (blocks > sum_blocks ? blocks : sum_blocks) * ZONAL__FUSED_SUMS;
    ZONAL_TRY(
        alloc(work, work->kl ? cut->ranges * rows : most, sizeof(double), "the sums", &work->sum));
    if (!work->kl) return ZONAL_OK;
    if (cut->mirrored > 0)
        ZONAL_TRY(alloc(work, (int64_t)cut->mirrored * cut->blocks * ZONAL__SUM_ROWS, sizeof(float),
                        "the sums", &work->mirror));
    ZONAL_TRY(alloc(work, rows, sizeof(double), "the densities", &work->log_s));
    return alloc_zeros(work, work->cut.padded, sizeof(float), "the densities", &work->share);
}

static zonal_status build(fused_work *work) {
    zonal__problem *problem = &work->base.problem;
    int64_t rows = problem->rows;
    if (problem->dtype == ZONAL_DTYPE_AUTO) problem->dtype = ZONAL_DTYPE_FP32;
    fill_profile(problem, work);
    work->panels = problem->dim <= 128 ? 2 : 4; /* of 64: kernels take their time to compile */
    ZONAL_TRY(cut_work(work));
    ZONAL_TRY(build_mean(work));
    ZONAL_TRY(alloc_zeros(work, work->panels * work->cut.padded, 128, "the rows", &work->image));
    if (work->split)
        ZONAL_TRY(alloc_zeros(work, work->panels * work->cut.padded, 128, "the rows", &work->lo));
    if (work->cut.ranges > 1 || problem->dtype != ZONAL_DTYPE_FP32)
        ZONAL_TRY(alloc(work, work->cut.ranges * rows * problem->dim, sizeof(float),
                        "the gradient in fp32", &work->o));
    ZONAL_TRY(alloc_sums(work));
    return allow_kernels(work);
}

zonal_status zonal__cuda_fused_create(const zonal__problem *problem, zonal__operation operation,
                                      zonal__work **out) {
    fused_work *work;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&work, 1, "the work space"));
    work->kl = operation == ZONAL__KL;
    work->split = problem->precision == ZONAL_PRECISION_FP32;
    zonal_status status = zonal__cuda_base_init(&work->base, problem);
    if (status == ZONAL_OK) status = build(work);
    if (status == ZONAL_OK)
        *out = (zonal__work *)work;
    else
        zonal__cuda_fused_destroy((zonal__work *)work);
    return status;
}

void zonal__cuda_fused_destroy(zonal__work *opaque) {
    fused_work *work = (fused_work *)opaque;
    if (!work) return;
    if (work->low) zonal__cuda_moments.destroy(work->low);
    void *memory[] = {work->image, work->lo,    work->o,         work->sum,      work->mirror,
                      work->log_s, work->share, work->low_value, work->row_sums, work->mean};
    for (void *block : memory) cudaFree(block);
    zonal__cuda_base_fini(&work->base);
    zonal__free(work);
}
