#include "backend/cpu/kernels.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/cpu/vector_math.h"

#if defined(__GNUC__) && !defined(__clang__)
/* Vectors pass between inlined functions only, never across a call: their ABI does not matter. */
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

/* The matrix product is most of all work. Checked at every element it would make the sanitizers'
 * tests tens of times slower; a BLAS would not be checked either. */
#ifdef __SANITIZE_ADDRESS__
#define UNCHECKED __attribute__((no_sanitize("address"), no_sanitize("undefined"), optimize("O3")))
#else
#define UNCHECKED
#endif

#define REAL   float
#define SINGLE 1
#define VECTOR 16
#define TARGET
#define NAME(name) name##_f32_plain
#define TITLE      "plain"
#include "backend/cpu/kernels_template.h"
#define REAL   double
#define SINGLE 0
#define VECTOR 16
#define TARGET
#define NAME(name) name##_f64_plain
#define TITLE      "plain"
#include "backend/cpu/kernels_template.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(ZONAL_PLAIN_KERNELS)
#define HAVE_LEVELS 1

#define AVX2_TARGET __attribute__((target("avx2,fma,bmi,bmi2")))
#if defined(__clang__)
#define AVX512_TARGET                                                                              \
    __attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi,bmi2")))
#else
#define AVX512_TARGET                                                                              \
    __attribute__((target("avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi,bmi2,"         \
                          "prefer-vector-width=512")))
#endif

#define REAL       float
#define SINGLE     1
#define VECTOR     32
#define TARGET     AVX2_TARGET
#define NAME(name) name##_f32_avx2
#define TITLE      "avx2"
#include "backend/cpu/kernels_template.h"
#define REAL       double
#define SINGLE     0
#define VECTOR     32
#define TARGET     AVX2_TARGET
#define NAME(name) name##_f64_avx2
#define TITLE      "avx2"
#include "backend/cpu/kernels_template.h"
#define REAL       float
#define SINGLE     1
#define VECTOR     64
#define TARGET     AVX512_TARGET
#define NAME(name) name##_f32_avx512
#define TITLE      "avx512"
#include "backend/cpu/kernels_template.h"
#define REAL       double
#define SINGLE     0
#define VECTOR     64
#define TARGET     AVX512_TARGET
#define NAME(name) name##_f64_avx512
#define TITLE      "avx512"
#include "backend/cpu/kernels_template.h"
#endif

static _Atomic int level_limit = 2;

/* The compiler's own test: it also asks whether the operating system saves the wide registers. */
static int machine_level(void) {
#ifdef HAVE_LEVELS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("bmi2"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"))
        return 1;
#endif
    return 0;
}

int zonal__cpu_kernels_limit(int level) {
    atomic_store(&level_limit, level);
    return level < machine_level() ? level : machine_level();
}

const zonal__cpu_kernels *zonal__cpu_kernels_get(zonal_precision precision) {
    int level = machine_level(), limit = atomic_load(&level_limit);
    if (level > limit) level = limit;
    if (precision != ZONAL_PRECISION_DOUBLE && precision != ZONAL_PRECISION_FP32) return NULL;
#ifdef HAVE_LEVELS
    if (level == 2)
        return precision == ZONAL_PRECISION_DOUBLE ? &table_f64_avx512 : &table_f32_avx512;
    if (level == 1) return precision == ZONAL_PRECISION_DOUBLE ? &table_f64_avx2 : &table_f32_avx2;
#endif
    return precision == ZONAL_PRECISION_DOUBLE ? &table_f64_plain : &table_f32_plain;
}
