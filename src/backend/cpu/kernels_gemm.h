/* Part of kernels_template.h: the matrix product. The second factor is packed into panels of
 * GEMM_COLS columns, zeros for those that are missing, and GEMM_ROWS rows of C at a time are kept
 * in registers. An element of C is the same sum wherever it lies and however many rows and columns
 * there are: products in order, by parts of GEMM_DEEP. */
#define WIDE      ((int64_t)(VECTOR / sizeof(REAL)))
#define GEMM_COLS (2 * WIDE)
#define GEMM_DEEP 256
#define GEMM_ROWS (VECTOR == 64 ? 8 : 6) /* accumulators: 16 of 32 registers, else 12 of 16 */
#define FEW_ROWS  4

/* out[p][j] = b[j][p] for four by four. */
ZONAL__INLINE UNCHECKED TARGET void NAME(transpose)(const REAL *b, int64_t across, REAL *out) {
#if defined(__clang__) || __GNUC__ >= 12 /* of GCC, the first with __builtin_shufflevector */
    typedef REAL quad __attribute__((vector_size(4 * sizeof(REAL))));
    quad row[4], low[2], high[2];
    for (int j = 0; j < 4; j++) memcpy(&row[j], b + j * across, sizeof *row);
    for (int j = 0; j < 2; j++) {
        low[j] = __builtin_shufflevector(row[2 * j], row[2 * j + 1], 0, 4, 1, 5);
        high[j] = __builtin_shufflevector(row[2 * j], row[2 * j + 1], 2, 6, 3, 7);
    }
    row[0] = __builtin_shufflevector(low[0], low[1], 0, 1, 4, 5);
    row[1] = __builtin_shufflevector(low[0], low[1], 2, 3, 6, 7);
    row[2] = __builtin_shufflevector(high[0], high[1], 0, 1, 4, 5);
    row[3] = __builtin_shufflevector(high[0], high[1], 2, 3, 6, 7);
    for (int p = 0; p < 4; p++) memcpy(out + p * GEMM_COLS, &row[p], sizeof *row);
#else
    for (int p = 0; p < 4; p++)
        for (int j = 0; j < 4; j++) out[p * GEMM_COLS + j] = b[j * across + p];
#endif
}

/* A whole panel of a B that is transposed. */
ZONAL__INLINE UNCHECKED TARGET void NAME(pack_transposed)(int64_t k, const REAL *b, int64_t across,
                                                          REAL *out) {
    int64_t p = 0;
    for (; p + 4 <= k; p += 4)
        for (int64_t j = 0; j < GEMM_COLS; j += 4)
            NAME(transpose)(b + p + j * across, across, out + p * GEMM_COLS + j);
    for (; p < k; p++)
        for (int64_t j = 0; j < GEMM_COLS; j++) out[p * GEMM_COLS + j] = b[p + j * across];
}

static UNCHECKED TARGET void NAME(gemm_pack)(int64_t k, int64_t cols, const void *second,
                                             int64_t down, int64_t across, void *panel) {
    const REAL *b = second;
    REAL *out = panel;
    if (cols == GEMM_COLS && across == 1)
        for (int64_t p = 0; p < k; p++)
            memcpy(out + p * GEMM_COLS, b + p * down, GEMM_COLS * sizeof *b);
    else if (cols == GEMM_COLS && down == 1)
        NAME(pack_transposed)(k, b, across, out);
    else if (cols == GEMM_COLS)
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < GEMM_COLS; j++)
                out[p * GEMM_COLS + j] = b[p * down + j * across];
    else
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < GEMM_COLS; j++)
                out[p * GEMM_COLS + j] = j < cols ? b[p * down + j * across] : (REAL)0;
}

/* out[rows][GEMM_COLS] = rows of op(A) times a part of a panel, plus out where "add" is set. "rows"
 * is a constant, GEMM_ROWS or FEW_ROWS. */
ZONAL__INLINE UNCHECKED TARGET void NAME(gemm_micro)(int rows, int64_t deep,
                                                     const REAL *const a[GEMM_ROWS], int64_t step,
                                                     const REAL *panel, int add, REAL *out,
                                                     int64_t ld) {
    NAME(wide) c[2 * GEMM_ROWS] = {{0}}, b0, b1;
    for (int r = 0; add && r < rows; r++) __builtin_prefetch(out + r * ld); /* needed at the end */
    for (int64_t p = 0; p < deep; p++) {
        memcpy(&b0, panel + p * GEMM_COLS, sizeof b0);
        memcpy(&b1, panel + p * GEMM_COLS + WIDE, sizeof b1);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
            c[2 * r] += a[r][p * step] * b0, c[2 * r + 1] += a[r][p * step] * b1;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        if (add) {
            memcpy(&b0, out + r * ld, sizeof b0);
            memcpy(&b1, out + r * ld + WIDE, sizeof b1);
            c[2 * r] += b0;
            c[2 * r + 1] += b1;
        }
        memcpy(out + r * ld, &c[2 * r], sizeof b0);
        memcpy(out + r * ld + WIDE, &c[2 * r + 1], sizeof b1);
    }
}

/* How many of the rows that are left are next. Four keep the multipliers busy too, and make up 2^k
 * rows, which are the rule, together with sixes. */
ZONAL__INLINE int64_t NAME(gemm_count)(int64_t left) {
    if (left == FEW_ROWS || (left == 2 * FEW_ROWS && GEMM_ROWS < left)) return FEW_ROWS;
    return left < GEMM_ROWS ? left : GEMM_ROWS;
}

/* C[m][cols] = op(A) times a part of a panel, plus C where "add" is set. */
ZONAL__INLINE UNCHECKED TARGET void NAME(gemm_panel)(int64_t m, int64_t cols, int64_t deep,
                                                     const REAL *a, int64_t down, int64_t across,
                                                     const REAL *panel, int add, REAL *c,
                                                     int64_t ldc) {
    REAL edge[GEMM_ROWS * GEMM_COLS];
    for (int64_t i = 0, count; i < m; i += count) {
        const REAL *rows[GEMM_ROWS];
        count = NAME(gemm_count)(m - i);
        for (int64_t r = 0; r < GEMM_ROWS; r++) rows[r] = a + (i + (r < count ? r : 0)) * down;
        if (count == GEMM_ROWS && cols == GEMM_COLS) {
            NAME(gemm_micro)(GEMM_ROWS, deep, rows, across, panel, add, c + i * ldc, ldc);
            continue;
        }
        if (count == FEW_ROWS && cols == GEMM_COLS) {
            NAME(gemm_micro)(FEW_ROWS, deep, rows, across, panel, add, c + i * ldc, ldc);
            continue;
        }
        NAME(gemm_micro)(GEMM_ROWS, deep, rows, across, panel, 0, edge, GEMM_COLS);
        for (int64_t r = 0; r < count; r++)
            for (int64_t j = 0; j < cols; j++)
                c[(i + r) * ldc + j] =
                    (add ? c[(i + r) * ldc + j] : (REAL)0) + edge[r * GEMM_COLS + j];
    }
}

static UNCHECKED TARGET void NAME(gemm_panels)(int64_t m, int64_t n, int64_t k, const void *first,
                                               int64_t down, int64_t across, const void *panels,
                                               int beta, void *result, int64_t ldc) {
    const REAL *a = first, *panel = panels;
    REAL *c = result;
    for (int64_t j = 0; j < n; j += GEMM_COLS, panel += k * GEMM_COLS) {
        int64_t cols = n - j < GEMM_COLS ? n - j : GEMM_COLS;
        for (int64_t p = 0; p == 0 || p < k; p += GEMM_DEEP) {
            int64_t deep = k - p < GEMM_DEEP ? k - p : GEMM_DEEP;
            NAME(gemm_panel)
            (m, cols, deep, a + p * across, down, across, panel + p * GEMM_COLS, beta || p > 0,
             c + j, ldc);
        }
    }
}

static UNCHECKED TARGET void NAME(gemm)(int transpose_a, int transpose_b, int64_t m, int64_t n,
                                        int64_t k, const void *first, int64_t lda,
                                        const void *second, int64_t ldb, int beta, void *result,
                                        int64_t ldc) {
    const REAL *a = first, *b = second;
    REAL *c = result, panel[GEMM_DEEP * GEMM_COLS];
    int64_t a_down = transpose_a ? 1 : lda, a_across = transpose_a ? lda : 1;
    int64_t b_down = transpose_b ? 1 : ldb, b_across = transpose_b ? ldb : 1;
    for (int64_t j = 0; j < n; j += GEMM_COLS) {
        int64_t cols = n - j < GEMM_COLS ? n - j : GEMM_COLS;
        for (int64_t p = 0; p == 0 || p < k; p += GEMM_DEEP) {
            int64_t deep = k - p < GEMM_DEEP ? k - p : GEMM_DEEP;
            NAME(gemm_pack)(deep, cols, b + p * b_down + j * b_across, b_down, b_across, panel);
            NAME(gemm_panels)
            (m, cols, deep, a + p * a_across, a_down, a_across, panel, beta || p > 0, c + j, ldc);
        }
    }
}

#undef WIDE
#undef GEMM_COLS
#undef GEMM_DEEP
#undef GEMM_ROWS
#undef FEW_ROWS
