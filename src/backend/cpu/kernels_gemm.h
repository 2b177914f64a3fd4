/* Part of kernels_template.h: a matrix product for where there is no good BLAS. Columns of op(B)
 * are packed GEMM_COLS at a time, and GEMM_ROWS rows of C at a time are kept in registers. */
#define WIDE      ((int64_t)(VECTOR / sizeof(REAL)))
#define GEMM_COLS (2 * WIDE)
#define GEMM_DEEP 128
#define GEMM_ROWS (VECTOR == 64 ? 8 : 4) /* accumulators: 16 of 32 registers, else 8 of 16 */

/* op(B)[0..deep)[0..cols) as packed[deep][GEMM_COLS], filled up with zeros. */
ZONAL__INLINE TARGET void NAME(gemm_pack)(int64_t deep, int64_t cols, const REAL *b, int64_t down,
                                          int64_t across, REAL *packed) {
    for (int64_t p = 0; p < deep; p++) {
        REAL *row = packed + p * GEMM_COLS;
        for (int64_t j = 0; j < GEMM_COLS; j++)
            row[j] = j < cols ? b[p * down + j * across] : (REAL)0;
    }
}

/* out[GEMM_ROWS][GEMM_COLS] = rows of op(A) times the packed panel. */
ZONAL__INLINE TARGET void NAME(gemm_micro)(int64_t deep, const REAL *const a[GEMM_ROWS],
                                           int64_t step, const REAL *packed, REAL *out) {
    NAME(wide) c[2 * GEMM_ROWS] = {{0}}, b0, b1;
    for (int64_t p = 0; p < deep; p++) {
        memcpy(&b0, packed + p * GEMM_COLS, sizeof b0);
        memcpy(&b1, packed + p * GEMM_COLS + WIDE, sizeof b1);
#pragma GCC unroll 8
        for (int r = 0; r < GEMM_ROWS; r++)
            c[2 * r] += a[r][p * step] * b0, c[2 * r + 1] += a[r][p * step] * b1;
    }
    memcpy(out, c, sizeof c);
}

/* C[m][cols] += op(A) times the packed panel. */
ZONAL__INLINE TARGET void NAME(gemm_panel)(int64_t m, int64_t cols, int64_t deep, const REAL *a,
                                           int64_t down, int64_t across, const REAL *packed,
                                           REAL *c, int64_t ldc) {
    REAL out[GEMM_ROWS * GEMM_COLS];
    for (int64_t i = 0; i < m; i += GEMM_ROWS) {
        const REAL *rows[GEMM_ROWS];
        for (int64_t r = 0; r < GEMM_ROWS; r++) rows[r] = a + (i + r < m ? i + r : m - 1) * down;
        NAME(gemm_micro)(deep, rows, across, packed, out);
        for (int64_t r = 0; r < GEMM_ROWS && i + r < m; r++)
            for (int64_t j = 0; j < cols; j++) c[(i + r) * ldc + j] += out[r * GEMM_COLS + j];
    }
}

static TARGET void NAME(gemm)(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k,
                              const void *first, int64_t lda, const void *second, int64_t ldb,
                              int beta, void *result, int64_t ldc) {
    const REAL *a = first, *b = second;
    REAL *c = result, packed[GEMM_DEEP * GEMM_COLS];
    int64_t a_down = transpose_a ? 1 : lda, a_across = transpose_a ? lda : 1;
    int64_t b_down = transpose_b ? 1 : ldb, b_across = transpose_b ? ldb : 1;
    if (!beta)
        for (int64_t i = 0; i < m; i++) memset(c + i * ldc, 0, (size_t)n * sizeof(REAL));
    for (int64_t j = 0; j < n; j += GEMM_COLS) {
        int64_t cols = n - j < GEMM_COLS ? n - j : GEMM_COLS;
        for (int64_t p = 0; p < k; p += GEMM_DEEP) {
            int64_t deep = k - p < GEMM_DEEP ? k - p : GEMM_DEEP;
            NAME(gemm_pack)(deep, cols, b + p * b_down + j * b_across, b_down, b_across, packed);
            NAME(gemm_panel)(m, cols, deep, a + p * a_across, a_down, a_across, packed, c + j, ldc);
        }
    }
}

#undef WIDE
#undef GEMM_COLS
#undef GEMM_DEEP
#undef GEMM_ROWS
