/*
 * Products of bf16 matrices with the tile registers of AMX, sums in fp32, on one thread.
 *
 * The second factor is packed: panels of ZONAL__AMX_SIDE columns, in which two rows that follow
 * each other are interleaved, [columns / side][rows / 2][side][2]. Sides are multiples of
 * ZONAL__AMX_SIDE; what is missing is zeros.
 */
#ifndef ZONAL_BACKEND_CPU_TRAINING_NN_AMX_H
#define ZONAL_BACKEND_CPU_TRAINING_NN_AMX_H

#include <stdint.h>

enum { ZONAL__AMX_SIDE = 32 };

/* 1 where the processor has bf16 tiles and the system lets this process use them; asks it to. */
int zonal__amx_usable(void);

/* c[m][n] = a[m][k] b[k][n] + beta c, beta 0 or 1; b packed. Leading dimensions in elements. Only
 * where zonal__amx_usable. */
void zonal__amx_multiply(int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
                         const uint16_t *b, int beta, float *c, int64_t ldc);

static inline int64_t zonal__amx_round_up(int64_t n) {
    return (n + ZONAL__AMX_SIDE - 1) / ZONAL__AMX_SIDE * ZONAL__AMX_SIDE;
}

#endif
