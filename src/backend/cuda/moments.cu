/*
 * MOMENTS: kernels of degree 1 and 2 in time linear in the batch. With m = mean x, M = mean x x^T,
 * E = M - I/d and q = b_2 d/(d-1):
 *
 *     value       b_1 |m|^2 + q |E|_F^2 - (b_1 + b_2)/B
 *     gradient    1/B (2 b_1 m + 4 q E x_i), projected
 *
 * Six launches, whatever the batch (four without b_2, five without a gradient):
 *
 *     measure_rows    norms; sums of the unit rows
 *     find_centre     m, and c: m rounded to single precision
 *     second_moment   sums of y y^T, y = x - c, a tile and a range of rows per block
 *     join_tiles      E from the tiles: M = mean y y^T + c (m-c)^T + (m-c) c^T + c c^T
 *     finish          |E|^2, the value, E c and what follows for the gradient
 *     gradient_tiles  E y on the tensor cores, projected before it leaves the block
 *
 * Three of them read z, one writes the gradient; that is all the traffic there is for large B. Rows
 * longer than a cluster of blocks holds (1024; 512 in a small batch) take one launch more, which
 * projects what gradient_tiles then leaves in memory.
 *
 * Precision. At B = 2^20 a uniform batch has |E|^2 = 1e-6, to be known to 2e-11; a collapsed one
 * has 1, to be known to 2e-6. The products are split (split_product.cuh), added in fp32 over R rows
 * and in double beyond. Rounding in those R rows leaves a relative error of 1.4e-8 R/d^1.5 in the
 * value of a uniform batch and of 5e-9 R/sqrt(d) in its gradient, so R depends on d.
 *
 * Near collapse only the small tangent part of the gradient is left, so rows are centred, and of
 * the part that is common to all rows, v = 4 q E c + 2 b_1 m = alpha c + w, the part along c is
 * turned around: the projection does not see multiples of x = y + c, so alpha c counts as -alpha y.
 * That is the smaller of the two when |c|^2 > 1/2, and alpha is 0 otherwise.
 *
 * On Hopper, rows of 256 elements are read twice instead (moments_hopper_kernel.cuh; one rank, rows
 * and gradient at multiples of four elements). Sums of y y^T about any c do for E, so c is the mean
 * of a thousand rows there, and norms and the mean come with the sums; the gradient has the mean
 * for its centre, as above:
 *
 *     measure_rows, find_centre    c, from a thousand rows
 *     zonal__hopper_moment         norms, sums of the unit rows, sums of y y^T
 *     find_centre, join_blocks     m and E
 *     finish                       as above
 *     zonal__hopper_gradient       E y, projected
 *
 * Several ranks add up their sums of rows, and then their sums of y y^T about the mean that follows
 * (add_ranges brings them together first); all else they do alike, or for their own rows.
 */
#include <math.h>

#include "backend/cuda/moments_hopper_kernel.cuh"
#include "backend/cuda/ranks.cuh"
#include "backend/cuda/split_product.cuh"
#include "backend/cuda/tiled_work.cuh"

namespace { /* and kernels are templates: nvcc makes the stubs of others global */

enum {
    MOST_BLOCKS = 1056, /* of measure_rows: 8 per multiprocessor */
    MOST_CLUSTER = 8,   /* what every Hopper GPU runs */
    PARTS = 18,
    PIVOT_ROWS = 1056,  /* of which a centre is made on Hopper */
    LEAST_HOPPER = 4096 /* rows: below, launches count for more than passes */
};
static const size_t MOST_PARTIAL = 96 << 20; /* bytes for the ranges' sums, if more than one */
static const size_t MOST_PRODUCT = 64 << 20; /* bytes for products that do not fit the gradient */

/* What finish needs to know besides arrays. */
typedef struct finish_numbers {
    double degree1, degree2, quadratic; /* b_1, b_2, q */
    double rows, offset, factor;
} finish_numbers;

typedef struct moments_work {
    zonal__cuda_base base;
    const char *what;            /* tiled_work.cuh, as are memory and n_memory */
    int matrix, products, large; /* large: of the gradient's tiles */
    int tiles, pairs, ranges;    /* of columns; of tiles; of rows */
    int processors;
    int64_t range_rows;
    int exact_rows; /* whose products are added in single precision */
    int measure_blocks;
    int hopper; /* the kernels of moments_hopper_kernel.cuh serve */
    int hopper_ranges;
    int64_t hopper_rows;  /* of a range */
    int64_t product_rows; /* of "product" at a time */
    finish_numbers numbers;
    zonal__row_scale *scale;      /* [rows] */
    double *row_sums;             /* [measure_blocks][dim] */
    double *all_sums;             /* [dim]: of all ranks */
    double *mean;                 /* [dim] */
    float *centre;                /* [tiles * 128]: ROW_UNIT c */
    double *pivot_mean;           /* [dim], hopper */
    float *pivot;                 /* [dim], hopper: ROW_UNIT times that mean */
    double *partial;              /* [ranges][pairs][64][256]: see second_moment */
    double *excess;               /* [dim][dim]: E */
    float *excess_single;         /* [dim][pitch] */
    double *square, *image;       /* [dim]: of E's rows: the sum of squares; times c */
    float *offset;                /* [tiles * 128]: w */
    zonal__gradient_terms *terms; /* one */
    unsigned *count;              /* one: blocks done */
    float *product;               /* [product_rows][dim], where it is needed */
    void *memory[PARTS];
    int n_memory;
} moments_work;

/* ---- norms and the mean --------------------------------------------------------------------- */

/* GROUP threads hold a row in V x 4 elements each, read it once, and add up what they hold. With a
 * step above 1, of every so many rows one; x.rows counts those. */
template <typename T, int GROUP, int V>
__global__ void __launch_bounds__(256)
    measure_rows(zonal__row_operand<T, false> x, int64_t step, zonal__row_rules rules,
                 zonal__row_scale *scale, double *row_sums) {
    constexpr int GROUPS = 256 / GROUP, COLUMNS = GROUP == 32 ? GROUP * V * 4 : 1;
    __shared__ double part[8], total[COLUMNS];
    int group = (int)threadIdx.x / GROUP, member = (int)threadIdx.x % GROUP;
    double sum[4 * V] = {};
    for (int64_t row = (int64_t)blockIdx.x * GROUPS + group; row < x.rows;
         row += (int64_t)gridDim.x * GROUPS) {
        zonal__four<T> data[V];
        double square = 0;
#pragma unroll
        for (int i = 0; i < V; i++) {
            int column = (i * GROUP + member) * 4;
            data[i] = zonal__load4(x.z + row * step * x.dim + column, x.dim - column, x.vector);
        }
#pragma unroll
        for (int i = 0; i < V; i++) {
            float4 v = zonal__widen(data[i]);
            square = fma((double)v.x, (double)v.x, fma((double)v.y, (double)v.y, square));
            square = fma((double)v.z, (double)v.z, fma((double)v.w, (double)v.w, square));
        }
        square = GROUP == 32 ? zonal__warp_sum(square) : zonal__block_sum(square, part);
        zonal__row_scale own = zonal__scale_row(rules, square, row * step);
        if (member == 0 && scale) scale[row] = own;
        double inverse = (double)own.p * own.q; /* what the products will use */
#pragma unroll
        for (int i = 0; i < V; i++) {
            float4 v = zonal__widen(data[i]);
            sum[4 * i] = fma((double)v.x, inverse, sum[4 * i]);
            sum[4 * i + 1] = fma((double)v.y, inverse, sum[4 * i + 1]);
            sum[4 * i + 2] = fma((double)v.z, inverse, sum[4 * i + 2]);
            sum[4 * i + 3] = fma((double)v.w, inverse, sum[4 * i + 3]);
        }
    }
    for (int g = 0; GROUP == 32 && g < GROUPS; g++) { /* one group after the other */
        if (group == g)
#pragma unroll
            for (int i = 0; i < 4 * V; i++) {
                double *at = &total[(i / 4 * GROUP + member) * 4 + i % 4];
                sum[i] = *at = g ? *at + sum[i] : sum[i];
            }
        __syncthreads();
    }
    if (group == GROUPS - 1)
#pragma unroll
        for (int i = 0; i < 4 * V; i++) {
            int column = (i / 4 * GROUP + member) * 4 + i % 4;
            if (column < x.dim) row_sums[(int64_t)blockIdx.x * x.dim + column] = sum[i];
        }
}

/* 32 columns per block, THREADS / 32 threads for each. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    find_centre(const double *row_sums, int blocks, double rows, int dim, double *mean,
                float *centre) {
    __shared__ double part[THREADS / 32][32];
    int column = (int)(blockIdx.x * 32 + threadIdx.x % 32), turn = (int)threadIdx.x / 32;
    double sum = 0;
#pragma unroll 8
    for (int i = turn; i < blocks && column < dim; i += THREADS / 32)
        sum += row_sums[(int64_t)i * dim + column];
    part[turn][threadIdx.x % 32] = sum;
    __syncthreads();
    if (turn > 0 || column >= dim) return;
    sum = 0;
    for (int i = 0; i < THREADS / 32; i++) sum += part[i][threadIdx.x];
    mean[column] = sum / rows;
    centre[column] = (float)mean[column] * ZONAL__ROW_UNIT;
}

/* The sums of all ranges of this rank's rows, of which there may be none, in the first one's
 * place. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS) add_ranges(int64_t count, int ranges, double *partial) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double sum = 0;
    if (i >= count) return;
    for (int r = 0; r < ranges; r++) sum += partial[r * count + i];
    partial[i] = sum;
}

/* ---- the second moment ---------------------------------------------------------------------- */

/* Pair number n of "tiles" columns of tiles: (0,0), (0,1), ..., (1,1), ... */
__device__ static void tile_pair(int n, int tiles, int *i, int *j) {
    *i = 0;
    while (n >= tiles - *i) n -= tiles - (*i)++;
    *j = *i + n;
}

/* A tile of the sums of ROW_UNIT^2 y y^T over a range of rows, in double, in the order of the
 * registers: [register][thread], so that a thread meets only what it wrote itself. */
template <typename T, int PRODUCTS>
__global__ void __launch_bounds__(256, 1)
    second_moment(zonal__row_operand<T, true> x, int tiles, int64_t range_rows, int exact_rows,
                  double *partial) {
    using tile_type = zonal__large_tile<true, PRODUCTS>;
    extern __shared__ __align__(16) unsigned char shared[];
    int i, j;
    tile_pair((int)blockIdx.x, tiles, &i, &j);
    int64_t begin = blockIdx.y * range_rows;
    int64_t end = begin + range_rows < x.rows ? begin + range_rows : x.rows;
    double *own = partial +
                  ((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * tile_type::M * tile_type::N +
                  threadIdx.x;
    for (int64_t first = begin; first < end; first += exact_rows) {
        tile_type tile;
        int64_t last = first + exact_rows < end ? first + exact_rows : end;
        tile.clear();
        tile.run(x, x, i * tile_type::M, j * tile_type::N, first, last, (__half *)shared, i == j);
#pragma unroll
        for (int r = 0; r < tile_type::REGISTERS; r++) {
            double *at = own + r * tile_type::THREADS;
            double value = tile.sum[r / 16][r / 4 % 4][r % 4];
            if (i * tile_type::M + tile_type::row_of((int)threadIdx.x, r) < x.dim &&
                j * tile_type::N + tile_type::column_of((int)threadIdx.x, r) < x.dim)
                *at = first > begin ? *at + value : value;
        }
    }
}

/* An element of E from the sum of ROW_UNIT^2 y y^T about "centre"; with "mirror", its mirror image
 * too. */
__device__ static void put_excess(double sum, int row, int column, bool mirror, double rows,
                                  int dim, int pitch, const double *mean, const float *centre,
                                  double *excess, float *excess_single) {
    double unit = 1 / (double)ZONAL__ROW_UNIT;
    double c = centre[row] * unit, other = centre[column] * unit;
    sum = sum * unit * unit / rows;
    sum += c * (mean[column] - other) + (mean[row] - c) * other;
    sum += c * other - (row == column ? 1.0 / dim : 0.0);
    excess[(int64_t)row * dim + column] = sum;
    excess_single[(int64_t)row * pitch + column] = (float)sum;
    if (!mirror) return;
    excess[(int64_t)column * dim + row] = sum;
    excess_single[(int64_t)column * pitch + row] = (float)sum;
}

/* E from the tiles: a block per register number and pair. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    join_tiles(const double *partial, int tiles, int pairs, int ranges, int dim, int pitch,
               double rows, const double *mean, const float *centre, double *excess,
               float *excess_single) {
    using tile_type = zonal__large_tile<true, 3>;
    static_assert(THREADS == tile_type::THREADS, "as in second_moment");
    int i, j;
    tile_pair((int)blockIdx.y, tiles, &i, &j);
    int row = i * tile_type::M + tile_type::row_of((int)threadIdx.x, (int)blockIdx.x);
    int column = j * tile_type::N + tile_type::column_of((int)threadIdx.x, (int)blockIdx.x);
    const double *at = partial + (int64_t)blockIdx.y * tile_type::M * tile_type::N +
                       blockIdx.x * tile_type::THREADS + threadIdx.x;
    double sum = 0;
    if (row >= dim || column >= dim) return;
#pragma unroll 8
    for (int r = 0; r < ranges; r++) sum += at[(int64_t)r * pairs * tile_type::M * tile_type::N];
    put_excess(sum, row, column, i != j, rows, dim, pitch, mean, centre, excess, excess_single);
}

/* The same from the blocks of zonal__hopper_moment: a thread block per number and block of E. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    join_blocks(const double *partial, int ranges, double rows, const double *mean,
                const float *pivot, double *excess, float *excess_single) {
    static_assert(THREADS == 128, "a warpgroup");
    int i, j;
    zonal__hopper_block((int)blockIdx.y, &i, &j);
    int row = 64 * i + zonal__hopper_row((int)threadIdx.x, (int)blockIdx.x);
    int column = 64 * j + zonal__hopper_column((int)threadIdx.x, (int)blockIdx.x);
    const double *at = partial + (blockIdx.y * 32 + blockIdx.x) * 128 + threadIdx.x;
    double sum = 0;
#pragma unroll 8
    for (int r = 0; r < ranges; r++)
        sum += at[(int64_t)r * ZONAL__HOPPER_BLOCKS * ZONAL__HOPPER_BLOCK];
    put_excess(sum, row, column, i != j, rows, ZONAL__HOPPER_DIM, ZONAL__HOPPER_DIM, mean, pivot,
               excess, excess_single);
}

/* ---- the value ------------------------------------------------------------------------------ */

typedef struct finish_arrays {
    const double *mean, *excess; /* excess NULL: no matrix */
    const float *centre;
    double *square, *image; /* [dim] */
    float *offset;
    zonal__gradient_terms *terms;
    unsigned *count;
    double *value;
} finish_arrays;

/* The value, and v = 4 q E c + 2 b_1 m = alpha c + w for the gradient; by the last block. */
__device__ static void conclude(const finish_numbers &n, const finish_arrays &a, int dim,
                                double *part) {
    double unit = 1 / (double)ZONAL__ROW_UNIT, square = 0, mean_square = 0, centre_square = 0;
    double along = 0;
    for (int k = (int)threadIdx.x; k < dim; k += (int)blockDim.x) {
        double c = a.centre[k] * unit, m = a.mean[k];
        double image = a.excess ? __ldcg(a.image + k) : 0;
        square += a.excess ? __ldcg(a.square + k) : 0;
        mean_square += m * m;
        centre_square += c * c;
        along += (4 * n.quadratic * image + 2 * n.degree1 * m) * c;
    }
    square = zonal__block_sum(square, part);
    mean_square = zonal__block_sum(mean_square, part);
    centre_square = zonal__block_sum(centre_square, part);
    along = zonal__block_sum(along, part);
    double alpha = centre_square > 0.5 ? along / centre_square : 0;
    for (int k = (int)threadIdx.x; k < dim; k += (int)blockDim.x) {
        double image = a.excess ? __ldcg(a.image + k) : 0;
        a.offset[k] = (float)(4 * n.quadratic * image + 2 * n.degree1 * a.mean[k] -
                              alpha * (a.centre[k] * unit));
    }
    if (threadIdx.x > 0) return;
    /* E's elements are at most |E|: its power of two brings them below half's 2^15. */
    int exponent = square > 0 && square < INFINITY ? 13 - ilogb(sqrt(square)) : 0;
    float e_unit = zonal__power_of_two(exponent > 126 ? 126 : exponent < -126 ? -126 : exponent);
    a.terms->unit = e_unit;
    a.terms->scale = (float)(4 * n.quadratic * unit / e_unit);
    a.terms->alpha = (float)alpha;
    *a.value = n.offset + n.factor * (n.degree1 * mean_square + n.quadratic * square -
                                      (n.degree1 + n.degree2) / n.rows);
}

/* A block per row of E. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    finish(finish_numbers numbers, finish_arrays arrays, int dim) {
    __shared__ double part[THREADS / 32];
    if (arrays.excess) {
        const double *row = arrays.excess + (int64_t)blockIdx.x * dim;
        double square = 0, image = 0;
        for (int k = (int)threadIdx.x; k < dim; k += THREADS) {
            square = fma(row[k], row[k], square);
            image = fma(row[k], (double)arrays.centre[k], image);
        }
        square = zonal__block_sum(square, part);
        image = zonal__block_sum(image, part);
        if (threadIdx.x == 0) {
            arrays.square[blockIdx.x] = square;
            arrays.image[blockIdx.x] = image / ZONAL__ROW_UNIT;
        }
    }
    if (zonal__last_block(arrays.count)) conclude(numbers, arrays, dim, part);
}

/* ---- the gradient --------------------------------------------------------------------------- */

template <int PRODUCTS, bool LARGE> struct gradient_tile {
    using type = zonal__large_tile<false, PRODUCTS>;
};
template <int PRODUCTS> struct gradient_tile<PRODUCTS, false> {
    using type = zonal__small_tile<false, PRODUCTS>;
};

/* E y for a tile; with "product" it is left there, else the gradient is made of it at once. */
template <typename T, int PRODUCTS, bool LARGE>
__global__ void __launch_bounds__(LARGE ? 256 : 128, 1)
    gradient_tiles(zonal__gradient_task<T, true> task, zonal__flat_operand excess, float *product) {
    using tile_type = typename gradient_tile<PRODUCTS, LARGE>::type;
    extern __shared__ __align__(16) unsigned char shared[];
    tile_type tile;
    int64_t row0 = (int64_t)blockIdx.y * tile_type::M;
    int column0 = (int)blockIdx.x * tile_type::N;
    excess.unit = task.terms->unit;
    tile.clear();
    tile.run(task.x, excess, row0, column0, 0, task.x.dim, (__half *)shared);
    if (product)
        zonal__store_tile(tile, task.x.rows, task.x.dim, row0, column0, false, product);
    else
        zonal__finish_tile(tile, task, row0, column0, (float *)shared);
}

template <typename T, int PRODUCTS, bool LARGE>
static zonal_status launch_gradient(const moments_work *work,
                                    const zonal__gradient_task<T, true> &task, float *product) {
    using tile_type = typename gradient_tile<PRODUCTS, LARGE>::type;
    int pitch = (task.x.dim + 3) / 4 * 4;
    zonal__flat_operand excess = {work->excess_single, task.x.dim, pitch, 1};
    dim3 grid((unsigned)((task.x.dim + tile_type::N - 1) / tile_type::N),
              (unsigned)((task.x.rows + tile_type::M - 1) / tile_type::M));
    return zonal__launch(work->base.stream, grid, tile_type::THREADS, tile_type::BYTES,
                         product ? 1 : (int)grid.x, gradient_tiles<T, PRODUCTS, LARGE>, task,
                         excess, product);
}

template <typename T>
static zonal_status multiply(const moments_work *work, const zonal__gradient_task<T, true> &task,
                             float *product) {
    if (work->products == 3)
        return work->large ? launch_gradient<T, 3, true>(work, task, product)
                           : launch_gradient<T, 3, false>(work, task, product);
    return work->large ? launch_gradient<T, 1, true>(work, task, product)
                       : launch_gradient<T, 1, false>(work, task, product);
}

/* Whether a cluster holds whole rows of the gradient's tiles. */
static int whole_rows(const moments_work *work) {
    return work->base.problem.dim <= MOST_CLUSTER * (work->large ? 128 : 64);
}

template <typename T>
static zonal_status enqueue_gradient(const moments_work *work, zonal__gradient_task<T, true> task) {
    cudaStream_t stream = work->base.stream;
    if (work->matrix && whole_rows(work)) return multiply<T>(work, task, NULL);
    /* The product is left in memory: in the gradient's own, where that is fp32. */
    zonal__gradient_task<T, true> some = task;
    int64_t rows = work->product ? work->product_rows : task.x.rows;
    for (int64_t first = 0; first < task.x.rows; first += rows) {
        some.x.z = task.x.z + first * task.x.dim;
        some.x.scale = task.x.scale + first;
        some.x.rows = task.x.rows - first < rows ? task.x.rows - first : rows;
        some.gradient = task.gradient + first * task.x.dim;
        float *product = work->product ? work->product : (float *)some.gradient;
        if (work->matrix) ZONAL_TRY(multiply<T>(work, some, product));
        ZONAL_TRY(zonal__launch(stream, dim3((unsigned)((some.x.rows + 7) / 8)), 256, 0, 1,
                                zonal__finish_rows<T, true>, some, product, work->matrix));
    }
    return ZONAL_OK;
}

/* ---- the passes ------------------------------------------------------------------------------ */

template <typename T>
static zonal_status enqueue_measure(const moments_work *work,
                                    const zonal__row_operand<T, false> &x) {
    zonal__row_rules rules = {work->base.problem.unit_rows, 0, 1, work->base.bad_row};
    void (*kernel)(zonal__row_operand<T, false>, int64_t, zonal__row_rules, zonal__row_scale *,
                   double *) = x.dim <= 256    ? measure_rows<T, 32, 2>
                               : x.dim <= 1024 ? measure_rows<T, 32, 8>
                                               : measure_rows<T, 256, 4>;
    ZONAL_TRY(zonal__launch(work->base.stream, dim3((unsigned)work->measure_blocks), 256, 0, 1,
                            kernel, x, 1, rules, work->scale, work->row_sums));
    dim3 grid((unsigned)((x.dim + 31) / 32));
    if (work->base.problem.ranks) {
        ZONAL_TRY(zonal__launch(work->base.stream, grid, 1024, 0, 1, find_centre<1024>,
                                work->row_sums, work->measure_blocks, 1.0, x.dim, work->all_sums,
                                work->centre));
        ZONAL_TRY(zonal__cuda_ranks_sum(&work->base, work->all_sums, x.dim));
        return zonal__launch(work->base.stream, grid, 1024, 0, 1, find_centre<1024>, work->all_sums,
                             1, work->numbers.rows, x.dim, work->mean, work->centre);
    }
    return zonal__launch(work->base.stream, grid, 1024, 0, 1, find_centre<1024>, work->row_sums,
                         work->measure_blocks, work->numbers.rows, x.dim, work->mean, work->centre);
}

template <typename T>
static zonal_status enqueue_matrix(const moments_work *work, const zonal__row_operand<T, true> &x) {
    cudaStream_t stream = work->base.stream;
    dim3 grid((unsigned)work->pairs, (unsigned)work->ranges);
    if (work->products == 3)
        ZONAL_TRY(zonal__launch(stream, grid, 256, zonal__large_tile<true, 3>::BYTES, 1,
                                second_moment<T, 3>, x, work->tiles, work->range_rows,
                                work->exact_rows, work->partial));
    else
        ZONAL_TRY(zonal__launch(stream, grid, 256, zonal__large_tile<true, 1>::BYTES, 1,
                                second_moment<T, 1>, x, work->tiles, work->range_rows,
                                work->exact_rows, work->partial));
    int ranges = work->ranges;
    if (work->base.problem.ranks) {
        int64_t count = (int64_t)work->pairs * 128 * 128;
        ZONAL_TRY(zonal__launch(stream, dim3((unsigned)(count / 256)), 256, 0, 1, add_ranges<256>,
                                count, ranges, work->partial));
        ZONAL_TRY(zonal__cuda_ranks_sum(&work->base, work->partial, count));
        ranges = 1;
    }
    return zonal__launch(stream, dim3(zonal__large_tile<true, 3>::REGISTERS, (unsigned)work->pairs),
                         256, 0, 1, join_tiles<256>, work->partial, work->tiles, work->pairs,
                         ranges, x.dim, (x.dim + 3) / 4 * 4, work->numbers.rows, work->mean,
                         work->centre, work->excess, work->excess_single);
}

/* ---- the same on Hopper ---------------------------------------------------------------------- */

/* A centre from some of the rows, evenly spread. Any would do that is about as near to the mean as
 * a row's neighbours are. */
template <typename T>
static zonal_status enqueue_pivot(const moments_work *work, const zonal__row_operand<T, false> &x) {
    zonal__row_rules rules = {work->base.problem.unit_rows, 0, 1, work->base.bad_row};
    zonal__row_operand<T, false> some = x;
    int64_t step = (x.rows + PIVOT_ROWS - 1) / PIVOT_ROWS;
    some.rows = (x.rows + step - 1) / step;
    int blocks = (int)((some.rows + 7) / 8);
    ZONAL_TRY(zonal__launch(work->base.stream, dim3((unsigned)blocks), 256, 0, 1,
                            measure_rows<T, 32, 2>, some, step, rules, (zonal__row_scale *)NULL,
                            work->row_sums));
    return zonal__launch(work->base.stream, dim3(ZONAL__HOPPER_DIM / 32), 1024, 0, 1,
                         find_centre<1024>, work->row_sums, blocks, (double)some.rows,
                         ZONAL__HOPPER_DIM, work->pivot_mean, work->pivot);
}

/* Norms, the mean and E, in one pass over the rows. */
template <typename T>
static zonal_status enqueue_hopper(const moments_work *work,
                                   const zonal__row_operand<T, false> &x) {
    cudaStream_t stream = work->base.stream;
    zonal__row_rules rules = {work->base.problem.unit_rows, 0, 1, work->base.bad_row};
    zonal__hopper_sums<T> sums = {x.z,         x.rows,      work->hopper_rows, rules,
                                  work->pivot, work->scale, work->row_sums,    work->partial};
    dim3 grid(2 * (unsigned)work->hopper_ranges);
    ZONAL_TRY(enqueue_pivot<T>(work, x));
    if (work->products == 3)
        ZONAL_TRY(zonal__launch(stream, grid, 512, zonal__hopper_stage<3>::ALL, 1,
                                zonal__hopper_moment<T, 3>, sums));
    else
        ZONAL_TRY(zonal__launch(stream, grid, 512, zonal__hopper_stage<1>::ALL, 1,
                                zonal__hopper_moment<T, 1>, sums));
    ZONAL_TRY(zonal__launch(stream, dim3(ZONAL__HOPPER_DIM / 32), 1024, 0, 1, find_centre<1024>,
                            work->row_sums, work->hopper_ranges * ZONAL__HOPPER_READERS,
                            work->numbers.rows, ZONAL__HOPPER_DIM, work->mean, work->centre));
    return zonal__launch(stream, dim3(32, ZONAL__HOPPER_BLOCKS), 128, 0, 1, join_blocks<128>,
                         work->partial, work->hopper_ranges, work->numbers.rows, work->mean,
                         work->pivot, work->excess, work->excess_single);
}

template <typename T>
static zonal_status enqueue_hopper_gradient(const moments_work *work,
                                            const zonal__gradient_task<T, true> &task) {
    zonal__hopper_task<T> same = {
        task.x.z,    (int)task.x.rows, task.x.scale,     work->excess_single, task.x.centre,
        task.offset, task.terms,       task.coefficient, task.gradient,       {0, 0}};
    int64_t pairs = (task.x.rows + 2 * ZONAL__HOPPER_ROWS - 1) / (2 * ZONAL__HOPPER_ROWS);
    dim3 grid((unsigned)(pairs < work->processors ? pairs : work->processors));
    if (work->products == 3)
        return zonal__launch(work->base.stream, grid, 256, zonal__hopper_layout<3>::BYTES, 1,
                             zonal__hopper_gradient<T, 3>, same);
    return zonal__launch(work->base.stream, grid, 256, zonal__hopper_layout<1>::BYTES, 1,
                         zonal__hopper_gradient<T, 1>, same);
}

template <typename T> static zonal_status allow_hopper(const T *) {
    ZONAL_TRY(zonal__allow_shared(zonal__hopper_moment<T, 3>, zonal__hopper_stage<3>::ALL));
    ZONAL_TRY(zonal__allow_shared(zonal__hopper_moment<T, 1>, zonal__hopper_stage<1>::ALL));
    ZONAL_TRY(zonal__allow_shared(zonal__hopper_gradient<T, 3>, zonal__hopper_layout<3>::BYTES));
    return zonal__allow_shared(zonal__hopper_gradient<T, 1>, zonal__hopper_layout<1>::BYTES);
}

/* ---- the operation -------------------------------------------------------------------------- */

template <typename T>
static zonal_status enqueue(const moments_work *work, const void *z, double *value, void *gradient,
                            double factor) {
    const zonal__problem *problem = &work->base.problem;
    int dim = (int)problem->dim;
    bool vector = dim % 4 == 0 && (uintptr_t)z % (4 * sizeof(T)) == 0;
    zonal__row_operand<T, false> plain = {(const T *)z,  work->scale, NULL,
                                          problem->rows, dim,         vector};
    zonal__row_operand<T, true> x = {(const T *)z,  work->scale, work->centre,
                                     problem->rows, dim,         vector};
    finish_arrays arrays = {work->mean,   work->matrix ? work->excess : NULL,
                            work->centre, work->square,
                            work->image,  work->offset,
                            work->terms,  work->count,
                            value};
    bool hopper = work->hopper && vector && (uintptr_t)gradient % (4 * sizeof(T)) == 0;
    if (hopper) {
        ZONAL_TRY(enqueue_hopper<T>(work, plain));
    } else {
        ZONAL_TRY(enqueue_measure<T>(work, plain));
        if (work->matrix) ZONAL_TRY(enqueue_matrix<T>(work, x));
    }
    ZONAL_TRY(zonal__launch(work->base.stream, dim3(work->matrix ? (unsigned)dim : 1u), 128, 0, 1,
                            finish<128>, work->numbers, arrays, dim));
    if (!gradient) return ZONAL_OK;
    zonal__gradient_task<T, true> task = {};
    task.x = x;
    task.terms = work->terms;
    task.offset = work->offset;
    task.coefficient = (float)(factor / work->numbers.rows);
    task.gradient = (T *)gradient;
    task.pairs = dim % 2 == 0 && (uintptr_t)gradient % (2 * sizeof(T)) == 0;
    return hopper ? enqueue_hopper_gradient<T>(work, task) : enqueue_gradient<T>(work, task);
}

template <typename T> static zonal_status allow_shared(const T *rows) {
    if (zonal__cuda_is_hopper()) ZONAL_TRY(allow_hopper(rows));
    ZONAL_TRY(zonal__allow_shared(second_moment<T, 3>, zonal__large_tile<true, 3>::BYTES));
    ZONAL_TRY(zonal__allow_shared(second_moment<T, 1>, zonal__large_tile<true, 1>::BYTES));
    ZONAL_TRY(zonal__allow_shared(gradient_tiles<T, 3, true>, zonal__large_tile<false, 3>::BYTES));
    ZONAL_TRY(zonal__allow_shared(gradient_tiles<T, 1, true>, zonal__large_tile<false, 1>::BYTES));
    ZONAL_TRY(zonal__allow_shared(gradient_tiles<T, 3, false>, zonal__small_tile<false, 3>::BYTES));
    return zonal__allow_shared(gradient_tiles<T, 1, false>, zonal__small_tile<false, 1>::BYTES);
}

static zonal_status run(zonal__work *opaque, const void *x, uint32_t step, double *value,
                        void *gradient, double factor) {
    const moments_work *work = (const moments_work *)opaque;
    (void)step;
    switch (work->base.problem.dtype) {
    case ZONAL_DTYPE_BF16:
        return enqueue<__nv_bfloat16>(work, x, value, gradient, factor);
    case ZONAL_DTYPE_FP16:
        return enqueue<__half>(work, x, value, gradient, factor);
    default:
        return enqueue<float>(work, x, value, gradient, factor);
    }
}

/* How many ranges of rows: those that leave the fewest multiprocessors idle in their last turn,
 * with at least 128 rows (64 in a small batch) and not too much memory. */
static void choose_ranges(moments_work *work, int processors) {
    int64_t rows = work->base.problem.rows, least = rows < 1024 ? 64 : 128;
    int64_t most = rows / least < 1 ? 1 : rows / least;
    int64_t held = (int64_t)(MOST_PARTIAL / ((size_t)work->pairs * 128 * 128 * sizeof(double)));
    if (most > held) most = held < 1 ? 1 : held;
    double best = 0;
    work->ranges = 1;
    for (int turns = 1; turns <= 4; turns++) {
        int64_t ranges = (int64_t)turns * processors / work->pairs;
        if (ranges > most) ranges = most;
        if (ranges < 1) continue;
        int64_t blocks = ranges * work->pairs, used = (blocks + processors - 1) / processors;
        double share = (double)blocks / (double)(used * processors);
        if (share > best + 0.03) {
            best = share;
            work->ranges = (int)ranges;
        }
    }
    int64_t each = (rows + work->ranges - 1) / work->ranges;
    work->range_rows = each > 0 ? (each + 31) / 32 * 32 : 32;
    work->ranges = (int)((rows + work->range_rows - 1) / work->range_rows);
}

/* A range for two multiprocessors. Whether rows lie as the kernels need them, a run will see. */
static void choose_hopper(moments_work *work) {
    const zonal__problem *problem = &work->base.problem;
    work->hopper = work->matrix && !problem->ranks && problem->dim == ZONAL__HOPPER_DIM &&
                   problem->rows >= LEAST_HOPPER && work->processors > 1 && zonal__cuda_is_hopper();
    if (!work->hopper) return;
    int64_t tiles = (problem->rows + ZONAL__HOPPER_ROWS - 1) / ZONAL__HOPPER_ROWS;
    int64_t each = (tiles + work->processors / 2 - 1) / (work->processors / 2);
    work->hopper_rows = each * ZONAL__HOPPER_ROWS;
    work->hopper_ranges = (int)((tiles + each - 1) / each);
}

/* Doubles of the sums of so many ranges; there is room for one in any case. */
static int64_t held_ranges(const moments_work *work, int ranges) {
    int64_t doubles = (int64_t)(ranges > 1 ? ranges : 1) * work->pairs * 128 * 128;
    int64_t blocks = (int64_t)work->hopper_ranges * ZONAL__HOPPER_BLOCKS * ZONAL__HOPPER_BLOCK;
    return doubles > blocks ? doubles : blocks;
}

static zonal_status fill(moments_work *work) {
    const zonal__problem *problem = &work->base.problem;
    int64_t rows = problem->rows, d = problem->dim, padded, tiles;
    ZONAL_TRY(zonal__tiled_processors(&work->processors));
    work->matrix = problem->degree2 != 0;
    work->products = problem->precision == ZONAL_PRECISION_FP32 ? 3 : 1;
    work->tiles = (int)((d + 127) / 128);
    work->pairs = work->tiles * (work->tiles + 1) / 2;
    padded = (int64_t)work->tiles * 128;
    tiles = (rows + 127) / 128 * work->tiles;
    work->large = tiles >= work->processors;
    choose_ranges(work, work->processors);
    choose_hopper(work);
    work->exact_rows = d <= 8 ? 128 : d <= 32 ? 512 : d < 256 ? 1024 : 4096;
    work->numbers = finish_numbers{
        problem->degree1,         problem->degree2, problem->degree2 * (double)d / (double)(d - 1),
        (double)work->base.batch, problem->offset,  problem->factor};
    int64_t groups = d <= 1024 ? (rows + 7) / 8 : rows, few = (int64_t)(8 << 20) / (8 * d);
    groups = groups < few ? groups : few;
    work->measure_blocks = groups < MOST_BLOCKS ? (int)groups : (int)MOST_BLOCKS;
    ZONAL_TRY(zonal__tiled_take(work, rows, &work->scale));
    int64_t sums = work->hopper_ranges * ZONAL__HOPPER_READERS; /* and PIVOT_ROWS / 8 are fewer */
    ZONAL_TRY(zonal__tiled_take(
        work, (sums > work->measure_blocks ? sums : work->measure_blocks) * d, &work->row_sums));
    if (work->hopper) {
        ZONAL_TRY(zonal__tiled_take(work, d, &work->pivot_mean));
        ZONAL_TRY(zonal__tiled_take(work, d, &work->pivot));
    }
    ZONAL_TRY(zonal__tiled_take(work, d, &work->mean));
    if (problem->ranks) ZONAL_TRY(zonal__tiled_take(work, d, &work->all_sums));
    int64_t most_sums = work->matrix ? held_ranges(work, 1) : d;
    ZONAL_TRY(zonal__cuda_ranks_room(&work->base, (size_t)most_sums * sizeof(double)));
    ZONAL_TRY(zonal__tiled_take(work, padded, &work->centre));
    ZONAL_TRY(zonal__tiled_take(work, padded, &work->offset));
    ZONAL_TRY(zonal__tiled_take(work, 1, &work->terms));
    ZONAL_TRY(zonal__tiled_take(work, 1, &work->count));
    if (!work->matrix) return ZONAL_OK;
    ZONAL_TRY(zonal__tiled_take(work, held_ranges(work, work->ranges), &work->partial));
    ZONAL_TRY(zonal__tiled_take(work, d * d, &work->excess));
    ZONAL_TRY(zonal__tiled_take(work, d * ((d + 3) / 4 * 4), &work->excess_single));
    ZONAL_TRY(zonal__tiled_take(work, d, &work->square));
    ZONAL_TRY(zonal__tiled_take(work, d, &work->image));
    if (whole_rows(work) || problem->dtype == ZONAL_DTYPE_FP32) return ZONAL_OK;
    int64_t most = (int64_t)(MOST_PRODUCT / sizeof(float)) / d / 128 * 128;
    work->product_rows = rows < most ? rows : most;
    return zonal__tiled_take(work, work->product_rows * d, &work->product);
}

static void destroy(zonal__work *work) {
    zonal__tiled_destroy<moments_work>(work);
}

static zonal_status create(const zonal__problem *problem, zonal__work **out) {
    return zonal__tiled_create(
        problem, "the moments", [](auto *rows) { return allow_shared(rows); }, fill, out);
}

} // namespace

extern "C" const zonal__operation_table zonal__cuda_moments = {
    create, run, destroy, zonal__cuda_scratch_bytes, zonal__cuda_set_stream, zonal__cuda_check};

extern "C" void *zonal__cuda_moments_lend(zonal__work *opaque, size_t *bytes) {
    moments_work *work = (moments_work *)opaque;
    *bytes = work->partial ? (size_t)held_ranges(work, work->ranges) * sizeof(double) : 0;
    return work->partial;
}

extern "C" const double *zonal__cuda_moments_mean(const zonal__work *opaque) {
    return ((const moments_work *)opaque)->mean;
}
