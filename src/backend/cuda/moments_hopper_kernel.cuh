/*
 * The two passes over the rows that MOMENTS takes on Hopper, for rows of 256 elements: see
 * moments.cu. Matrices of 256 x 256 are cut into blocks of 64 x 64, of which symmetry leaves ten.
 *
 * Sums. Two thread blocks share a range of rows and have five blocks of y y^T each: registers hold
 * no more, because tensor cores cut their sums off (split_product.cuh), so that those of 64 rows go
 * to others, which round. Of four warpgroups two read rows, measure them and write halves to shared
 * memory; the other two multiply.
 *
 * Gradient. Shared memory holds the ten blocks of E, hi and lo. A warpgroup takes 64 rows by
 * itself: from memory to the registers of a left operand, products, projection, memory. Of E's rows
 * and columns sixteen at a time are permuted so that a thread has four neighbours of a row in both
 * operands and in the product, and nothing passes between threads but g.x. The other warpgroup of
 * the block multiplies meanwhile.
 */
#ifndef ZONAL_BACKEND_CUDA_MOMENTS_HOPPER_KERNEL_CUH
#define ZONAL_BACKEND_CUDA_MOMENTS_HOPPER_KERNEL_CUH

#include "backend/cuda/split_product.cuh"
#include "backend/cuda/wgmma.cuh"

enum {
    ZONAL__HOPPER_DIM = 256,
    ZONAL__HOPPER_PANELS = 4,   /* of 64 elements */
    ZONAL__HOPPER_PANEL = 8192, /* bytes: 64 rows of 64 halves */
    ZONAL__HOPPER_BLOCKS = 10,  /* of 64 x 64 of a symmetric matrix */
    ZONAL__HOPPER_BLOCK = 4096, /* elements */
    ZONAL__HOPPER_ROWS = 64,    /* of a tile */
    ZONAL__HOPPER_EXACT = 4096, /* rows whose products are added in single precision */
    ZONAL__HOPPER_READERS = 8,  /* warps that read rows for the sums */
    ZONAL__HOPPER_AHEAD = 4     /* pairs of rows that a reader has on their way: those of a tile */
};

/* ---- the sums of y y^T ----------------------------------------------------------------------- */

/* Block n has rows from 64 i and columns from 64 j, i <= j. The first five are one thread block's,
 * and of those the first three the first warpgroup's. */
__host__ __device__ inline void zonal__hopper_block(int n, int *i, int *j) {
    *i = (int)(0xa5430u >> 2 * n & 3); /* 0 0 3 0 0 1 1 1 2 2 */
    *j = (int)(0xee7b4u >> 2 * n & 3); /* 0 1 3 2 3 1 2 3 2 3 */
}

/* Where number "i" of thread "thread" of a warpgroup lies in a block. */
__host__ __device__ inline int zonal__hopper_row(int thread, int i) {
    return thread / 32 * 16 + thread % 32 / 4 + (i & 2 ? 8 : 0);
}
__host__ __device__ inline int zonal__hopper_column(int thread, int i) {
    return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

template <typename T> struct zonal__hopper_sums {
    const T *z;
    int64_t rows, range_rows; /* range_rows: a multiple of 64 */
    zonal__row_rules rules;
    const float *pivot;      /* [256]: ROW_UNIT c */
    zonal__row_scale *scale; /* [rows] */
    double *row_sums;        /* [ranges][8][256]: of unit rows */
    double *partial;         /* [ranges][10][32][128]: of ROW_UNIT^2 y y^T */
};

template <int PRODUCTS> struct zonal__hopper_stage {
    static constexpr int PART = ZONAL__HOPPER_PANELS * ZONAL__HOPPER_PANEL;
    static constexpr int BYTES = PRODUCTS == 3 ? 2 * PART : PART;
    static constexpr int COUNT = PRODUCTS == 3 ? 2 : 4;
    static constexpr int RAW = COUNT * BYTES; /* where rows arrive: [AHEAD][4][256] pieces of 16 */
    static constexpr int ALL = RAW + ZONAL__HOPPER_AHEAD * 4 * 256 * 16;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ inline uint32_t zonal__hopper_bits(__half2 pair) {
    return *(const uint32_t *)&pair;
}

/* Two numbers as halves, and what rounding has left of them as halves. */
__device__ inline void zonal__hopper_split(float a, float b, uint32_t *hi, uint32_t *lo) {
    __half2 high = __floats2half2_rn(a, b);
    float2 back = __half22float2(high);
    *hi = zonal__hopper_bits(high);
    *lo = zonal__hopper_bits(__floats2half2_rn(a - back.x, b - back.y));
}

/* 16 lanes have a row: lane l four elements from 64 p + 4 l of panel p. */
template <typename T, int PRODUCTS> struct zonal__hopper_reader {
    using stage = zonal__hopper_stage<PRODUCTS>;
    const zonal__hopper_sums<T> &x;
    int64_t end;
    bool records; /* this thread block keeps what is of rows alone */
    float pivot[16], sum[16];
    int count; /* rows in sum */

    /* The thread's own place for piece p of its pair of rows number i. */
    static __device__ inline int place_of(int i, int p) {
        return stage::RAW + ((i * 4 + p) * 256 + (int)threadIdx.x % 256) * 16;
    }

    /* Four pieces of a row, or zeros behind the last one. */
    __device__ inline void load(int64_t row, int i, char *shared) const {
        const T *from = x.z + (row < end ? row : 0) * ZONAL__HOPPER_DIM + threadIdx.x % 16 * 4;
#pragma unroll
        for (int p = 0; p < 4; p++)
            zonal__copy_piece<4 * sizeof(T)>(zonal__shared_address(shared) + place_of(i, p),
                                             from + 64 * p, row < end);
        zonal__copies_commit();
    }

    /* Any row's numbers, and the row times p. */
    __device__ inline zonal__row_scale measure_in_double(float (&v)[16], int64_t row) const {
        double square = 0;
#pragma unroll
        for (int i = 0; i < 16; i++) square = fma((double)v[i], (double)v[i], square);
        for (int offset = 8; offset > 0; offset /= 2)
            square += __shfl_xor_sync(0xffffffffu, square, offset);
        zonal__row_scale own = {0, 0, 0, 0};
        if (row < end) own = zonal__scale_row(x.rules, square, row);
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] *= own.p;
        return own;
    }

    /* The same; p is 1 where single precision does. */
    __device__ inline zonal__row_scale measure(float (&v)[16], int64_t row) const {
        float part[4] = {};
#pragma unroll
        for (int i = 0; i < 16; i++) part[i % 4] = fmaf(v[i], v[i], part[i % 4]);
        float square = (part[0] + part[1]) + (part[2] + part[3]);
#pragma unroll
        for (int offset = 8; offset > 0; offset /= 2)
            square += __shfl_xor_sync(0xffffffffu, square, offset);
        bool plain =
            x.rules.unit_rows ? fabsf(square - 1) < 1.5e-3f : square > 0x1p-80f && square < 0x1p80f;
        if (!__all_sync(0xffffffffu, plain)) return measure_in_double(v, row);
        float inverse = rsqrtf(square);
        inverse = fmaf(0.5f * inverse, fmaf(-inverse, square * inverse, 1.0f), inverse);
        return x.rules.unit_rows ? zonal__row_scale{1, 1, 1 / square, 1}
                                 : zonal__row_scale{1, inverse, 1, 1};
    }

    /* Row "at" of the tile, as halves. */
    __device__ inline void put(const char *shared, int pair, int64_t row, int at, char *tile) {
        int lane = (int)threadIdx.x % 16;
        char *to = tile + at * 128 + ((lane / 2) ^ (at % 8)) * 16 + lane % 2 * 8;
        float v[16];
#pragma unroll
        for (int p = 0; p < 4; p++)
            *(float4 *)(v + 4 * p) =
                zonal__widen(*(const zonal__four<T> *)(shared + place_of(pair, p)));
        zonal__row_scale own = measure(v, row);
        bool inside = row < end;
        if (records && inside && lane == 0) x.scale[row] = own;
        float q = own.q * ZONAL__ROW_UNIT;
        count += inside;
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint32_t hi[2] = {0, 0}, lo[2] = {0, 0};
            if (inside) {
#pragma unroll
                for (int i = 4 * p; i < 4 * p + 4; i++) sum[i] += v[i] = fmaf(v[i], q, -pivot[i]);
                zonal__hopper_split(v[4 * p], v[4 * p + 1], &hi[0], &lo[0]);
                zonal__hopper_split(v[4 * p + 2], v[4 * p + 3], &hi[1], &lo[1]);
            }
            *(uint2 *)(to + p * ZONAL__HOPPER_PANEL) = make_uint2(hi[0], hi[1]);
            if (PRODUCTS == 3)
                *(uint2 *)(to + stage::PART + p * ZONAL__HOPPER_PANEL) = make_uint2(lo[0], lo[1]);
        }
    }

    /* All tiles from row "first" on. */
    __device__ inline void run(uint32_t full, uint32_t empty, char *shared, int64_t first) {
        int warp = (int)threadIdx.x / 32 % ZONAL__HOPPER_READERS;
        int at = 8 * warp + (int)threadIdx.x % 32 / 16; /* and +2, +4, +6 */
        for (int i = 0; i < ZONAL__HOPPER_AHEAD; i++) load(first + at + 2 * i, i, shared);
        int tile = 0;
        for (int64_t begin = first; begin < end; begin += ZONAL__HOPPER_ROWS, tile++) {
            int place = tile % stage::COUNT, round = tile / stage::COUNT;
            if (round > 0) zonal__barrier_wait(empty + 8 * place, (round - 1) & 1);
#pragma unroll
            for (int i = 0; i < ZONAL__HOPPER_AHEAD; i++) {
                int64_t row = begin + at + 2 * i;
                zonal__copies_wait<ZONAL__HOPPER_AHEAD - 1>();
                put(shared, i, row, at + 2 * i, shared + place * stage::BYTES);
                load(row + ZONAL__HOPPER_ROWS, i, shared);
            }
            zonal__shared_publish();
            __syncwarp();
            if (threadIdx.x % 32 == 0) zonal__barrier_arrive(full + 8 * place);
        }
        zonal__copies_wait<0>();
    }

    /* The sums of this warp's unit rows. */
    __device__ inline void store_sums(int range) const {
        int warp = (int)threadIdx.x / 32 % ZONAL__HOPPER_READERS, lane = (int)threadIdx.x % 32;
        double unit = 1 / (double)ZONAL__ROW_UNIT;
        double *to = x.row_sums + (int64_t)(range * ZONAL__HOPPER_READERS + warp) * 256 + 4 * lane;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            double own = (sum[i] + (double)count * pivot[i]) * unit;
            own += __shfl_xor_sync(0xffffffffu, own, 16);
            if (lane < 16) to[i / 4 * 64 + i % 4] = own;
        }
    }
};

/* A warpgroup with up to three blocks, from number "block" on. */
template <int PRODUCTS> struct zonal__hopper_adder {
    using stage = zonal__hopper_stage<PRODUCTS>;
    float sum[3][32];

    __device__ static inline uint64_t at(uint32_t panel, int k) {
        return zonal__matrix(panel + 2048 * k, ZONAL__HOPPER_PANEL);
    }

    /* part = A^T B over the tile's rows. The small products come first: every sum that is cut off
     * is cut off in proportion to its size. */
    __device__ static inline void multiply(uint32_t a, uint32_t b, float (&part)[32]) {
        zonal__hold(part);
        zonal__products_fence();
#pragma unroll
        for (int k = 0; PRODUCTS == 3 && k < 4; k++) {
            zonal__products<64>::columns(part, at(a + stage::PART, k), at(b, k), k > 0);
            zonal__products<64>::columns(part, at(a, k), at(b + stage::PART, k), 1);
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            zonal__products<64>::columns(part, at(a, k), at(b, k), PRODUCTS == 3 || k > 0);
        zonal__products_commit();
        zonal__products_wait<0>();
        zonal__hold(part);
    }

    __device__ inline void clear() {
#pragma unroll
        for (int i = 0; i < 96; i++) sum[i / 32][i % 32] = 0;
    }

    /* Adds to what is in memory, or begins it; sixteen numbers at a time are on their way. */
    __device__ inline void flush(int blocks, bool begin, double *to) {
        to += threadIdx.x % 128;
#pragma unroll
        for (int first = 0; first < 96; first += 16) {
            double old[16] = {};
            if (first / 32 >= blocks) continue;
            if (!begin) {
#pragma unroll
                for (int i = 0; i < 16; i++) old[i] = __ldcg(to + (first + i) * 128);
            }
#pragma unroll
            for (int i = 0; i < 16; i++)
                to[(first + i) * 128] = old[i] + sum[(first + i) / 32][(first + i) % 32];
        }
        clear();
    }

    __device__ inline void run(uint32_t full, uint32_t empty, uint32_t stages, int tiles, int block,
                               int blocks, double *to) {
        constexpr int EXACT = ZONAL__HOPPER_EXACT / ZONAL__HOPPER_ROWS;
        int i[3], j[3];
#pragma unroll
        for (int b = 0; b < 3; b++) zonal__hopper_block(block + b, &i[b], &j[b]);
        clear();
        for (int tile = 0; tile < tiles; tile++) {
            int place = tile % stage::COUNT;
            uint32_t at = stages + place * stage::BYTES;
            zonal__barrier_wait(full + 8 * place, (tile / stage::COUNT) & 1);
#pragma unroll
            for (int b = 0; b < 3; b++) {
                float part[32];
                if (b >= blocks) continue;
                multiply(at + i[b] * ZONAL__HOPPER_PANEL, at + j[b] * ZONAL__HOPPER_PANEL, part);
#pragma unroll
                for (int k = 0; k < 32; k++) sum[b][k] += part[k];
            }
            if (threadIdx.x % 32 == 0) zonal__barrier_arrive(empty + 8 * place);
            if (tile % EXACT == EXACT - 1 || tile == tiles - 1) flush(blocks, tile < EXACT, to);
        }
    }
};

#endif

template <typename T, int PRODUCTS>
__global__ void __launch_bounds__(512, 1)
    zonal__hopper_moment(const __grid_constant__ zonal__hopper_sums<T> x) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using stage = zonal__hopper_stage<PRODUCTS>;
    extern __shared__ __align__(1024) char shared[];
    __shared__ __align__(8) uint64_t barrier[2 * stage::COUNT];
    uint32_t full = zonal__shared_address(barrier), empty = full + 8 * stage::COUNT;
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0); /* uniform, for the compiler */
    int range = (int)blockIdx.x / 2, half = (int)blockIdx.x % 2;
    int64_t first = range * x.range_rows;
    int64_t end = first + x.range_rows < x.rows ? first + x.range_rows : x.rows;
    if (threadIdx.x == 0) {
        for (int s = 0; s < stage::COUNT; s++) {
            zonal__barrier_init(full + 8 * s, ZONAL__HOPPER_READERS);
            zonal__barrier_init(empty + 8 * s, 8); /* warps */
        }
        zonal__barrier_publish();
    }
    __syncthreads();
    if (group < 2) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
        int tiles = (int)((end - first + ZONAL__HOPPER_ROWS - 1) / ZONAL__HOPPER_ROWS);
        int block = 5 * half + 3 * group;
        zonal__hopper_adder<PRODUCTS> adder;
        adder.run(full, empty, zonal__shared_address(shared), tiles, block, 3 - group,
                  x.partial +
                      ((int64_t)range * ZONAL__HOPPER_BLOCKS + block) * ZONAL__HOPPER_BLOCK);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 104;");
        zonal__hopper_reader<T, PRODUCTS> reader = {x, end, half == 0, {}, {}, 0};
#pragma unroll
        for (int i = 0; i < 16; i++)
            reader.pivot[i] = x.pivot[i / 4 * 64 + threadIdx.x % 16 * 4 + i % 4];
        reader.run(full, empty, shared, first);
        if (half == 0) reader.store_sums(range);
    }
#endif
}

/* ---- the gradient ---------------------------------------------------------------------------- */

template <typename T> struct zonal__hopper_task {
    const T *z;
    int rows;                           /* fewer than 2^31 / 256 */
    const zonal__row_scale *scale;      /* [rows] */
    const float *excess;                /* [256][256]: E */
    const float *centre, *offset;       /* [256]: ROW_UNIT c; w */
    const zonal__gradient_terms *terms; /* one */
    float coefficient;
    T *gradient;      /* [rows][256] */
    uint32_t zero[2]; /* which the compiler does not know to be 0 */
};

template <int PRODUCTS> struct zonal__hopper_layout {
    static constexpr int PART = ZONAL__HOPPER_BLOCKS * ZONAL__HOPPER_PANEL; /* hi or lo of E */
    static constexpr int KEPT = PRODUCTS == 3 ? 2 * PART : PART;            /* two panels of g */
    static constexpr int CENTRE = KEPT + 2 * 8 * 256 * (int)sizeof(float4);
    static constexpr int OFFSET = CENTRE + 1024;
    static constexpr int BYTES = OFFSET + 1024;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Four elements by one instruction: the compiler would rather have four. */
__device__ inline void zonal__store4(float *at, const float *v) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(v[0]), "f"(v[1]),
                 "f"(v[2]), "f"(v[3])
                 : "memory");
}
__device__ inline void zonal__store4(__half *at, const float *v) {
    __half2 a = __floats2half2_rn(v[0], v[1]), b = __floats2half2_rn(v[2], v[3]);
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(*(unsigned *)&a),
                 "r"(*(unsigned *)&b)
                 : "memory");
}
__device__ inline void zonal__store4(__nv_bfloat16 *at, const float *v) {
    __nv_bfloat162 a = __floats2bfloat162_rn(v[0], v[1]), b = __floats2bfloat162_rn(v[2], v[3]);
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(*(unsigned *)&a),
                 "r"(*(unsigned *)&b)
                 : "memory");
}

/* Where block (i, j), i <= j, lies among the ten. */
__device__ constexpr int zonal__hopper_place(int i, int j) {
    return j * (j + 1) / 2 + i;
}

/* E times unit, as halves, permuted: of sixteen elements, number 2q + e and 8 + 2q + e are 4q + e
 * and 4q + 2 + e in memory (q < 4, e < 2). */
template <int PRODUCTS>
__device__ inline void zonal__hopper_place_matrix(const float *excess, float unit, char *shared) {
    for (int n = (int)threadIdx.x; n < ZONAL__HOPPER_BLOCKS * 512; n += 256) {
        int block = n / 512, r = n / 8 % 64, piece = n % 8;
        int j = block >= 6 ? 3 : block >= 3 ? 2 : block >= 1 ? 1 : 0, i = block - j * (j + 1) / 2;
        int row = 64 * i + r / 16 * 16 + r % 8 / 2 * 4 + r / 8 % 2 * 2 + r % 2;
        const float *from =
            excess + row * ZONAL__HOPPER_DIM + 64 * j + piece / 2 * 16 + piece % 2 * 2;
        uint32_t hi[4], lo[4];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            float2 pair = *(const float2 *)(from + 4 * q);
            zonal__hopper_split(pair.x * unit, pair.y * unit, &hi[q], &lo[q]);
        }
        char *to = shared + block * ZONAL__HOPPER_PANEL + r * 128 + (piece ^ (r % 8)) * 16;
        *(uint4 *)to = *(const uint4 *)hi;
        if (PRODUCTS == 3)
            *(uint4 *)(to + zonal__hopper_layout<PRODUCTS>::PART) = *(const uint4 *)lo;
    }
}

/* A warpgroup with 64 rows. A thread has two of them, 8 apart, and of every sixteen elements four,
 * from 4 (lane % 4) on: of a panel eight pieces, [4 sixteens][2 rows]. It holds its part of the
 * rows as left operands, hi and lo, from their reading to the last of the gradient. */
template <typename T, int PRODUCTS> struct zonal__hopper_projector {
    using layout = zonal__hopper_layout<PRODUCTS>;
    const zonal__hopper_task<T> &task;
    const zonal__gradient_terms terms;
    char *shared;
    uint32_t matrix; /* E's address */
    int group;
    zonal__row_scale scale[2];
    zonal__four<T> raw[32];
    uint32_t hi[64], lo[64]; /* [4 panels][4 sixteens][4] */
    float along[2];          /* ROW_UNIT g.x */

    __device__ inline zonal__hopper_projector(const zonal__hopper_task<T> &of, char *memory,
                                              int which)
        : task(of), terms(*of.terms), shared(memory), matrix(zonal__shared_address(memory)),
          group(which) {
    }

    static __device__ inline int row_of(int row0) {
        return row0 + (int)threadIdx.x / 32 % 4 * 16 + (int)threadIdx.x % 32 / 4;
    }
    /* The first column of piece i of a panel. */
    static __device__ inline int column_of(int panel, int i) {
        return 64 * panel + i / 2 * 16 + (int)threadIdx.x % 4 * 4;
    }

    template <int PANEL> __device__ inline void load(int row0) {
        int row = row_of(row0);
#pragma unroll
        for (int i = 0; i < 8; i++)
            raw[8 * PANEL + i] =
                row + i % 2 * 8 < task.rows
                    ? *(const zonal__four<T> *)(task.z + (row + i % 2 * 8) * ZONAL__HOPPER_DIM +
                                                column_of(PANEL, i))
                    : zonal__four<T>{};
    }
    __device__ inline void load_scale(int row0) {
        int row = row_of(row0);
#pragma unroll
        for (int r = 0; r < 2; r++)
            scale[r] = row + 8 * r < task.rows ? task.scale[row + 8 * r] : zonal__row_scale{};
    }

    __device__ inline float4 constants(int at, int panel, int i) const { /* of CENTRE, OFFSET */
        return *(const float4 *)(shared + at + column_of(panel, i) * (int)sizeof(float));
    }
    __device__ inline float4 *kept(int panel, int i) const {
        return (float4 *)(shared + layout::KEPT) + (panel * 8 + i) * 256 + threadIdx.x;
    }

    /* ROW_UNIT y of what was loaded, as halves. */
    __device__ inline void split() {
#pragma unroll
        for (int n = 0; n < 32; n++) {
            int panel = n / 8, i = n % 8, at = 16 * panel + i / 2 * 4 + i % 2;
            float4 v = zonal__widen(raw[n]), c = constants(layout::CENTRE, panel, i);
            float p = scale[i % 2].p, q = scale[i % 2].q * ZONAL__ROW_UNIT;
            zonal__hopper_split(fmaf(v.x * p, q, -c.x), fmaf(v.y * p, q, -c.y), &hi[at], &lo[at]);
            zonal__hopper_split(fmaf(v.z * p, q, -c.z), fmaf(v.w * p, q, -c.w), &hi[at + 2],
                                &lo[at + 2]);
        }
    }

    /* The same four numbers again, for the USE-th time: where the compiler sees that, it holds 128
     * numbers for later, and keeps others in memory. */
    template <int USE> __device__ inline float4 centred(int panel, int i) const {
        int at = 16 * panel + i / 2 * 4 + i % 2;
        uint32_t bits[4] = {hi[at] ^ task.zero[USE], hi[at + 2] ^ task.zero[USE],
                            lo[at] ^ task.zero[USE], lo[at + 2] ^ task.zero[USE]};
        float2 a = __half22float2(*(const __half2 *)&bits[0]);
        float2 b = __half22float2(*(const __half2 *)&bits[1]);
        float2 c = __half22float2(*(const __half2 *)&bits[2]);
        float2 d = __half22float2(*(const __half2 *)&bits[3]);
        return make_float4(a.x + c.x, a.y + c.y, b.x + d.x, b.y + d.y);
    }

    /* g = or += rows times E: sixteen k of a panel, columns of panel J. Part 0 of E is hi, 1 lo.
     * Below the diagonal E lies as [n][k], else as [k][n]. */
    template <int J>
    __device__ inline void multiply_block(int part, const uint32_t *a, int k, int add,
                                          float (&g)[32]) const {
        int panel = k / 4, sixteen = k % 4;
        uint32_t block = matrix + part * layout::PART;
        if (panel <= J) {
            block += zonal__hopper_place(panel, J) * ZONAL__HOPPER_PANEL + 2048 * sixteen;
            zonal__products<64>::held(g, a + 4 * k, zonal__matrix(block, ZONAL__HOPPER_PANEL), add);
        } else {
            block += zonal__hopper_place(J, panel) * ZONAL__HOPPER_PANEL + 32 * sixteen;
            zonal__products<64>::held_rows(g, a + 4 * k, zonal__matrix(block, 16), add);
        }
    }

    /* g = rows times E's columns of panel J, the small products first. */
    template <int J> __device__ inline void multiply(float (&g)[32]) {
        zonal__hold(g);
        zonal__products_fence();
#pragma unroll
        for (int k = 0; PRODUCTS == 3 && k < 16; k++) {
            multiply_block<J>(0, lo, k, k > 0, g);
            multiply_block<J>(1, hi, k, 1, g);
        }
#pragma unroll
        for (int k = 0; k < 16; k++) multiply_block<J>(0, hi, k, PRODUCTS == 3 || k > 0, g);
        zonal__products_commit();
    }

    /* scale G - alpha y + offset in place of G, and its share in g.x. Two panels make room for the
     * next two. */
    template <int J> __device__ inline void combine(float (&g)[32]) {
        float alpha = -terms.alpha * (1 / ZONAL__ROW_UNIT);
        zonal__hold(g);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float *here = g + i / 2 * 8 + i % 2 * 2;
            float4 y = centred<0>(J, i), c = constants(layout::CENTRE, J, i);
            float4 w = constants(layout::OFFSET, J, i);
            here[0] = fmaf(terms.scale, here[0], fmaf(alpha, y.x, w.x));
            here[1] = fmaf(terms.scale, here[1], fmaf(alpha, y.y, w.y));
            here[4] = fmaf(terms.scale, here[4], fmaf(alpha, y.z, w.z));
            here[5] = fmaf(terms.scale, here[5], fmaf(alpha, y.w, w.w));
            float dot = fmaf(here[0], y.x + c.x, here[1] * (y.y + c.y));
            along[i % 2] += fmaf(here[4], y.z + c.z, fmaf(here[5], y.w + c.w, dot));
            if (J < 2) *kept(J, i) = make_float4(here[0], here[1], here[4], here[5]);
        }
    }

    /* The gradient of panel J, and the next rows into its registers. */
    template <int J>
    __device__ inline void project(const float (&g)[32], const float (&radial)[2], int row0,
                                   int next) {
        int row = row_of(row0);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int r = i % 2;
            const float *here = g + i / 2 * 8 + i % 2 * 2;
            float4 y = centred<1>(J, i), c = constants(layout::CENTRE, J, i);
            float4 v = J < 2 ? *kept(J, i) : make_float4(here[0], here[1], here[4], here[5]);
            float q = task.coefficient * scale[r].q, p = scale[r].p;
            float out[4] = {
                fmaf(radial[r], y.x + c.x, v.x) * q * p, fmaf(radial[r], y.y + c.y, v.y) * q * p,
                fmaf(radial[r], y.z + c.z, v.z) * q * p, fmaf(radial[r], y.w + c.w, v.w) * q * p};
            if (row + 8 * r < task.rows)
                zonal__store4(task.gradient + (row + 8 * r) * ZONAL__HOPPER_DIM + column_of(J, i),
                              out);
        }
        load<J>(next);
    }

    /* Everything of rows from "row0" on. */
    __device__ inline void load_all(int row0) {
        load<0>(row0);
        load<1>(row0);
        load<2>(row0);
        load<3>(row0);
        load_scale(row0);
    }

    /* Rows from row0 on, which have been read; then those from "next" on are being read. Products
     * are one warpgroup's turn. */
    __device__ inline void tile(int row0, int next, bool last) {
        constexpr float unit = 1 / ZONAL__ROW_UNIT;
        float g[2][32];
        along[0] = along[1] = 0;
        split();
        zonal__hold(hi);
        zonal__hold(lo);
        zonal__turn_wait(1 + group);
        multiply<0>(g[0]);
        multiply<1>(g[1]);
        zonal__products_wait<1>();
        combine<0>(g[0]);
        multiply<2>(g[0]);
        zonal__products_wait<1>();
        combine<1>(g[1]);
        multiply<3>(g[1]);
        if (!last) zonal__turn_pass(2 - group);
        zonal__products_wait<1>();
        combine<2>(g[0]);
        zonal__products_wait<0>();
        combine<3>(g[1]);
        float radial[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            along[r] += __shfl_xor_sync(0xffffffffu, along[r], 1);
            along[r] += __shfl_xor_sync(0xffffffffu, along[r], 2);
            radial[r] = -(along[r] * unit * scale[r].inverse_square * unit);
        }
        project<2>(g[0], radial, row0, next);
        project<3>(g[1], radial, row0, next);
        project<0>(g[0], radial, row0, next);
        project<1>(g[1], radial, row0, next);
        load_scale(next);
    }
};

#endif

template <typename T, int PRODUCTS>
__global__ void __launch_bounds__(256, 1)
    zonal__hopper_gradient(const __grid_constant__ zonal__hopper_task<T> task) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using layout = zonal__hopper_layout<PRODUCTS>;
    extern __shared__ __align__(1024) char shared[];
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0); /* uniform, for the compiler */
    zonal__hopper_place_matrix<PRODUCTS>(task.excess, task.terms->unit, shared);
    ((float *)(shared + layout::CENTRE))[threadIdx.x] = task.centre[threadIdx.x];
    ((float *)(shared + layout::OFFSET))[threadIdx.x] = task.offset[threadIdx.x];
    zonal__shared_publish();
    __syncthreads();
    zonal__hopper_projector<T, PRODUCTS> work(task, shared, group);
    int step = 2 * (int)gridDim.x * ZONAL__HOPPER_ROWS;
    int first = 2 * (int)blockIdx.x * ZONAL__HOPPER_ROWS, row0 = first;
    row0 += group * ZONAL__HOPPER_ROWS;
    work.load_all(row0);
    if (group == 1) zonal__turn_pass(1);
    /* Both warpgroups take as many turns; the last of the second one's may have no rows. */
    for (; first < task.rows; first += step, row0 += step)
        work.tile(row0, row0 + step, group == 1 && first + step >= task.rows);
#endif
}

#endif
