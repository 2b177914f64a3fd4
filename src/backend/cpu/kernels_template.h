/*
 * The inner loops for one element type and one instruction set. Parameters, undefined at the end:
 *
 *     REAL, SINGLE   float and 1, or double and 0
 *     VECTOR         bytes of a vector register: 16, 32 or 64
 *     TARGET         the attribute that makes the compiler use them, or nothing
 *     NAME(name)     the name with a suffix of its own
 *     TITLE          the table's name
 *
 * Loops whose turns are independent are left to the compiler. Two kinds are written with vector
 * types: sums, whose order the compiler may not change, and polynomials of a degree known only at
 * run time, whose accumulators it would not keep in registers.
 */
#define LANES ((int64_t)(VECTOR / sizeof(double)))
typedef double NAME(vector) __attribute__((vector_size(VECTOR)));
typedef REAL NAME(wide) __attribute__((vector_size(VECTOR)));

ZONAL__INLINE TARGET NAME(vector) NAME(load)(const double *p) {
    NAME(vector) v;
    memcpy(&v, p, sizeof v);
    return v;
}

ZONAL__INLINE TARGET void NAME(store)(double *p, NAME(vector) v) {
    memcpy(p, &v, sizeof v);
}

/* LANES elements as doubles. One by one it becomes one instruction; of __builtin_convertvector GCC
 * makes five. */
ZONAL__INLINE TARGET NAME(vector) NAME(load_real)(const REAL *p) {
#if VECTOR == 64
    return (NAME(vector)){p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]};
#elif VECTOR == 32
    return (NAME(vector)){p[0], p[1], p[2], p[3]};
#else
    return (NAME(vector)){p[0], p[1]};
#endif
}

ZONAL__INLINE TARGET double NAME(add_lanes)(NAME(vector) v) {
    double lane[VECTOR / sizeof(double)], sum = 0;
    memcpy(lane, &v, sizeof v);
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

/* The sum of n doubles; four chains of additions hide their latency. */
ZONAL__INLINE TARGET double NAME(sum)(int64_t n, const double *a) {
    NAME(vector) s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        s0 += NAME(load)(a + i);
        s1 += NAME(load)(a + i + LANES);
        s2 += NAME(load)(a + i + 2 * LANES);
        s3 += NAME(load)(a + i + 3 * LANES);
    }
    for (; i + LANES <= n; i += LANES) s0 += NAME(load)(a + i);
    double total = NAME(add_lanes)((s0 + s1) + (s2 + s3));
    for (; i < n; i++) total += a[i];
    return total;
}

#include "backend/cpu/kernels_rows.h"

#include "backend/cpu/kernels_fit.h"

#include "backend/cpu/kernels_tiles.h"

#include "backend/cpu/kernels_sliced.h"

#include "backend/cpu/kernels_gemm.h"

static const zonal__cpu_kernels NAME(table) = {
    .name = TITLE,
    .vector_bytes = VECTOR,
    .size = sizeof(REAL),
    .gemm_cols = 2 * VECTOR / sizeof(REAL),
    .norm = NAME(norm),
    .accumulate = NAME(accumulate),
    .centre = NAME(centre),
    .project = NAME(project),
    .scale = NAME(scale),
    .narrow = NAME(narrow),
    .add = NAME(add),
    .dot = NAME(dot),
    .moment_row = NAME(moment_row),
    .pair_tile = NAME(pair_tile),
    .survey_tile = NAME(survey_tile),
    .kl_sum_tile = NAME(kl_sum_tile),
    .kl_weight_tile = NAME(kl_weight_tile),
    .slice_units = NAME(slice_units),
    .slice_sums = NAME(slice_sums),
    .slice_gradients = NAME(slice_gradients),
    .gemm = NAME(gemm),
    .gemm_pack = NAME(gemm_pack),
    .gemm_panels = NAME(gemm_panels),
};

#undef LANES
#undef REAL
#undef SINGLE
#undef VECTOR
#undef TARGET
#undef NAME
#undef TITLE
