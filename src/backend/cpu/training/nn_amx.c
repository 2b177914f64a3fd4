/* The tiles of AMX, and what stands in for them where the compiler or system has none: nn_amx.h. */
#include "backend/cpu/training/nn_amx.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) &&       \
    __GNUC__ >= 12 && !defined(ZONAL_PLAIN_KERNELS)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The tiles' state is large, so Linux wants to be asked before a process may use it. That the
 * processor has tiles is read from its features and not from the leaf that lists their shapes:
 * some virtual machines hide the list. Shape 1, eight tiles of 16 rows of 64 bytes, always is. */
int zonal__amx_usable(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-bf16")) return 0;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

typedef struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

static const tile_shapes all_full __attribute__((aligned(64))) = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

/* Tiles 0 to 3 are a square of c, 4 and 5 of a, 6 and 7 of b: 32 x 32 results at a time. */
__attribute__((target("amx-tile,amx-bf16"))) static void
multiply_square(int64_t k, const uint16_t *a, int64_t lda, const uint16_t *b, int beta, float *c,
                int64_t ldc) {
    const int64_t a_bytes = lda * 2, b_bytes = ZONAL__AMX_SIDE * 4, c_bytes = ldc * 4;
    if (beta) {
        _tile_loadd(0, c, c_bytes);
        _tile_loadd(1, c + 16, c_bytes);
        _tile_loadd(2, c + 16 * ldc, c_bytes);
        _tile_loadd(3, c + 16 * ldc + 16, c_bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t p = 0; p < k; p += 32) {
        _tile_loadd(4, a + p, a_bytes);
        _tile_loadd(6, b + p * ZONAL__AMX_SIDE, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + p * ZONAL__AMX_SIDE + 32, b_bytes);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 16 * lda + p, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_bytes);
    _tile_stored(1, c + 16, c_bytes);
    _tile_stored(2, c + 16 * ldc, c_bytes);
    _tile_stored(3, c + 16 * ldc + 16, c_bytes);
}

__attribute__((target("amx-tile,amx-bf16"))) void
zonal__amx_multiply(int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                    const uint16_t *b, int beta, float *c, int64_t ldc) {
    /* the compiler does not know that the tile instructions read memory */
    __asm__ volatile("" ::: "memory");
    _tile_loadconfig(&all_full);
    for (int64_t j = 0; j < n; j += ZONAL__AMX_SIDE)
        for (int64_t i = 0; i < m; i += ZONAL__AMX_SIDE)
            multiply_square(k, a + i * lda, lda, b + j * k, beta, c + i * ldc + j, ldc);
    _tile_release();
}

#else

int zonal__amx_usable(void) {
    return 0;
}

void zonal__amx_multiply(int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                         const uint16_t *b, int beta, float *c, int64_t ldc) {
    (void)m, (void)n, (void)k, (void)a, (void)lda, (void)b, (void)beta, (void)c, (void)ldc;
}

#endif
