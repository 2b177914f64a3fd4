#include "backend/cpu/second_moment.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/product.h"
#include "core/memory.h"

enum {
    PANEL = 64,   /* rows of C that one turn owns */
    STRETCH = 64, /* rows of the batch per product: their float sum may be off by as many ulp */
    MOST_GROUPS = 16
};

/* More groups, more turns to share out, and more memory: an eighth of the rows' at most. As always
 * the choice depends on the shape alone. */
static int64_t choose_groups(const zonal__cpu_rows *rows) {
    int64_t groups = (int64_t)((size_t)rows->rows * rows->kernels->size /
                               (8 * sizeof(double) * (size_t)rows->dim));
    if (groups > rows->rows / (4 * STRETCH)) groups = rows->rows / (4 * STRETCH);
    if (groups > MOST_GROUPS) groups = MOST_GROUPS;
    return groups < 1 ? 1 : groups;
}

zonal_status zonal__cpu_second_moment_init(zonal__cpu_rows *rows,
                                           zonal__cpu_second_moment *moment) {
    int64_t d = rows->dim;
    *moment = (zonal__cpu_second_moment){
        .rows = rows, .panels = (d + PANEL - 1) / PANEL, .groups = choose_groups(rows)};
    ZONAL_TRY(ZONAL_NEW(&moment->sums, moment->groups * d * d, "the second moment"));
    return zonal__alloc(rows->threads, (size_t)(PANEL * d) * rows->kernels->size,
                        "the second moment", &moment->stretch);
}

void zonal__cpu_second_moment_fini(zonal__cpu_second_moment *moment) {
    zonal__free(moment->sums);
    zonal__free(moment->stretch);
}

size_t zonal__cpu_second_moment_bytes(const zonal__cpu_second_moment *moment) {
    const zonal__cpu_rows *rows = moment->rows;
    size_t d = (size_t)rows->dim;
    return (size_t)moment->groups * d * d * sizeof(double) +
           (size_t)rows->threads * PANEL * d * rows->kernels->size;
}

/* sums[group], rows [first, first + PANEL) from the diagonal on. Turns run through the panels with
 * the longest rows first. */
static void sum_panel(void *context, int64_t turn, int thread) {
    zonal__cpu_second_moment *moment = context;
    const zonal__cpu_rows *rows = moment->rows;
    const zonal__cpu_kernels *kernels = rows->kernels;
    int64_t d = rows->dim, group = turn % moment->groups, first = turn / moment->groups * PANEL;
    int64_t tall = d - first < PANEL ? d - first : PANEL, wide = d - first;
    int64_t begin = rows->rows * group / moment->groups;
    int64_t end = rows->rows * (group + 1) / moment->groups;
    char *product = (char *)moment->stretch + (size_t)(thread * PANEL * d) * kernels->size;
    double *sums = moment->sums + group * d * d;
    for (int64_t a = first; a < first + tall; a++)
        for (int64_t b = first; b < d; b++) sums[a * d + b] = 0;
    for (int64_t i = begin; i < end; i += STRETCH) {
        const void *y = (char *)rows->centred + (size_t)(i * d + first) * kernels->size;
        zonal__cpu_multiply(kernels,
                            &(zonal__cpu_product){.transpose_a = 1,
                                                  .m = tall,
                                                  .n = wide,
                                                  .k = end - i < STRETCH ? end - i : STRETCH,
                                                  .a = y,
                                                  .lda = d,
                                                  .b = y,
                                                  .ldb = d,
                                                  .c = product,
                                                  .ldc = wide});
        for (int64_t a = 0; a < tall; a++)
            kernels->accumulate(wide, product + (size_t)(a * wide) * kernels->size, 1, 1,
                                sums + (first + a) * d + first);
    }
}

/* Rows [top, low) of C from column "top" on: groups added, divided by B. */
static void join_rows(const zonal__cpu_second_moment *moment, int64_t top, int64_t low) {
    int64_t d = moment->rows->dim;
    double scale = 1 / (double)moment->rows->batch;
    for (int64_t a = top; a < low; a++) {
        double *row = moment->sums + a * d;
        for (int64_t g = 1; g < moment->groups; g++) {
            const double *other = moment->sums + (g * d + a) * d;
            for (int64_t b = top; b < d; b++) row[b] += other[b];
        }
        for (int64_t b = top; b < d; b++) row[b] *= scale;
    }
}

/* The rows of one panel of C, mirrored by small tiles: in columns that are a power of two long,
 * more numbers than a tile has would not stay in the cache together. */
static void join_panel(void *context, int64_t panel, int thread) {
    enum { SIDE = 8 };
    zonal__cpu_second_moment *moment = context;
    int64_t d = moment->rows->dim, top = panel * PANEL, low = top + PANEL < d ? top + PANEL : d;
    double *c = moment->sums;
    (void)thread;
    join_rows(moment, top, low);
    for (int64_t up = top; up < low; up += SIDE)
        for (int64_t left = up; left < d; left += SIDE)
            for (int64_t a = up; a < up + SIDE && a < low; a++)
                for (int64_t b = left > a ? left : a + 1; b < left + SIDE && b < d; b++)
                    c[b * d + a] = c[a * d + b];
}

zonal_status zonal__cpu_second_moment_run(zonal__cpu_second_moment *moment, double **c) {
    zonal__cpu_parallel(moment->panels * moment->groups, sum_panel, moment);
    zonal__cpu_parallel(moment->panels, join_panel, moment);
    *c = moment->sums;
    return zonal__cpu_rows_sum(moment->rows, *c, moment->rows->dim * moment->rows->dim);
}
