#include "cli/common/rows.h"

#include <stdio.h>
#include <string.h>

#include "cli/common/progress.h"
#include "core/memory.h"
#include "core/npy.h"

static zonal_status read_all(const zonal__npy *npy, int quiet, zonal__cli_rows *rows) {
    enum { CHUNK = 1 << 22 }; /* elements at a time: 16 to 32 MiB */
    zonal__progress progress;
    zonal_status status = ZONAL_OK;
    int64_t step = CHUNK / npy->cols + 1;
    zonal__progress_begin(&progress, "reading", npy->rows, quiet);
    for (int64_t first = 0; first < npy->rows && status == ZONAL_OK; first += step) {
        int64_t count = npy->rows - first < step ? npy->rows - first : step;
        int64_t at = first * npy->cols;
        status = rows->precision == ZONAL_PRECISION_DOUBLE
                     ? zonal__npy_read_f8(npy, first, count, (double *)rows->x + at)
                     : zonal__npy_read_f4(npy, first, count, (float *)rows->x + at);
        zonal__progress_update(&progress, first + count);
    }
    zonal__progress_end(&progress);
    return status;
}

zonal_status zonal__cli_load(const char *path, zonal__load_type type, int quiet,
                             zonal__cli_rows *rows) {
    zonal__npy npy;
    *rows = (zonal__cli_rows){0};
    ZONAL_TRY(zonal__npy_open(path, &npy));
    int as_double = type == ZONAL__LOAD_DOUBLE ||
                    (type == ZONAL__LOAD_AS_STORED && npy.header.type == ZONAL__NPY_F8);
    rows->n = npy.rows;
    rows->d = npy.cols;
    rows->precision = as_double ? ZONAL_PRECISION_DOUBLE : ZONAL_PRECISION_FP32;
    zonal_status status = zonal__alloc(npy.rows * npy.cols, as_double ? 8 : 4, path, &rows->x);
    if (status == ZONAL_OK) status = read_all(&npy, quiet, rows);
    if (status != ZONAL_OK) {
        zonal__free(rows->x);
        rows->x = NULL;
    }
    zonal__npy_close(&npy);
    return status;
}

void zonal__cli_wrap(const char *lead, const char *text) {
    size_t column = strlen(lead);
    int fresh = 1; /* nothing but the lead on this line yet */
    fputs(lead, stdout);
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column > 0 && column + 1 + word > 79) {
            putchar('\n');
            column = 0;
        } else if (!fresh) {
            putchar(' ');
            column++;
        }
        fresh = 0;
        fwrite(text, 1, word, stdout);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    putchar('\n');
}
