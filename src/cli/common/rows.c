#include "cli/common/rows.h"

#include <stdio.h>
#include <string.h>

#include "cli/common/progress.h"
#include "cli/common/timing.h"
#include "core/memory.h"
#include "core/npy.h"
#include "core/random.h"
#include "dist/job.h"

static zonal_status read_rows(const zonal__npy *npy, int64_t begin, int quiet,
                              zonal__cli_rows *rows) {
    enum { CHUNK = 1 << 22 }; /* elements at a time: 16 to 32 MiB */
    zonal__progress progress;
    zonal_status status = ZONAL_OK;
    int64_t step = CHUNK / npy->cols + 1;
    zonal__progress_begin(&progress, "reading", rows->n, quiet);
    for (int64_t first = 0; first < rows->n && status == ZONAL_OK; first += step) {
        int64_t count = rows->n - first < step ? rows->n - first : step;
        int64_t at = first * npy->cols;
        status = rows->precision == ZONAL_PRECISION_DOUBLE
                     ? zonal__npy_read_f8(npy, begin + first, count, (double *)rows->x + at)
                     : zonal__npy_read_f4(npy, begin + first, count, (float *)rows->x + at);
        zonal__progress_update(&progress, first + count);
    }
    zonal__progress_end(&progress);
    return status;
}

zonal_status zonal__cli_load(const char *path, zonal__load_type type, int quiet,
                             zonal__cli_rows *rows) {
    return zonal__cli_load_share(path, type, quiet, 0, 1, rows);
}

zonal_status zonal__cli_load_share(const char *path, zonal__load_type type, int quiet, int rank,
                                   int ranks, zonal__cli_rows *rows) {
    zonal__npy npy;
    int64_t begin;
    *rows = (zonal__cli_rows){0};
    ZONAL_TRY(zonal__npy_open(path, &npy));
    int as_double = type == ZONAL__LOAD_DOUBLE ||
                    (type == ZONAL__LOAD_AS_STORED && npy.header.type == ZONAL__NPY_F8);
    rows->all = npy.rows;
    zonal__job_share(npy.rows, ranks, rank, &begin, &rows->n);
    rows->d = npy.cols;
    rows->precision = as_double ? ZONAL_PRECISION_DOUBLE : ZONAL_PRECISION_FP32;
    zonal_status status = zonal__alloc(rows->n * npy.cols, as_double ? 8 : 4, path, &rows->x);
    if (status == ZONAL_OK) status = read_rows(&npy, begin, quiet, rows);
    if (status != ZONAL_OK) {
        zonal__free(rows->x);
        rows->x = NULL;
    }
    zonal__npy_close(&npy);
    return status;
}

zonal_status zonal__cli_name_file(zonal_status status, const char *path) {
    char sentence[sizeof zonal_last_error()->message];
    if (status != ZONAL_SHAPE && status != ZONAL_NUMERIC) return status;
    strcpy(sentence, zonal_last_error()->message);
    return ZONAL_FAIL(status, "%s: %s", path, sentence);
}

zonal_status zonal__cli_draw(int64_t first, int64_t n, int64_t d, zonal_precision precision,
                             void **out) {
    const zonal__random random = {.stream = ZONAL__STREAM_UNIFORM};
    int is_double = precision == ZONAL_PRECISION_DOUBLE;
    double *line;
    zonal_status status;
    ZONAL_TRY(zonal__alloc(n * d, is_double ? sizeof(double) : sizeof(float), "the rows", out));
    status = ZONAL_NEW(&line, d, "a row");
    for (int64_t i = 0; i < n && status == ZONAL_OK; i++) {
        zonal__random_normal(&random, (uint64_t)(first + i), d, line);
        for (int64_t k = 0; k < d; k++) {
            if (is_double)
                ((double *)*out)[i * d + k] = line[k];
            else
                ((float *)*out)[i * d + k] = (float)line[k];
        }
    }
    zonal__free(line);
    return status;
}

/* ---- on a device ----------------------------------------------------------------------------- */

/* A plan's arguments in device memory. */
typedef struct device_rows {
    const zonal__device *device;
    zonal_plan *plan;
    void *x, *gradient, *value;
    size_t bytes;
} device_rows;

static void release(device_rows *d) {
    zonal__device_free(d->device, d->x);
    zonal__device_free(d->device, d->gradient);
    zonal__device_free(d->device, d->value);
}

static zonal_status place(zonal_plan *plan, const zonal__device *device,
                          const zonal__cli_rows *rows, device_rows *d) {
    *d = (device_rows){
        .device = device, .plan = plan, .bytes = (size_t)(rows->n * rows->d) * sizeof(float)};
    ZONAL_TRY(zonal__device_alloc(d->device, d->bytes, "the rows", &d->x));
    ZONAL_TRY(zonal__device_alloc(d->device, d->bytes, "the gradient", &d->gradient));
    ZONAL_TRY(zonal__device_alloc(d->device, sizeof(double), "the value", &d->value));
    return zonal__device_write(d->device, d->x, rows->x, d->bytes);
}

static zonal_status run_there(device_rows *d, double *value, void *gradient) {
    ZONAL_TRY(zonal_plan_execute(d->plan, d->x, d->value, gradient ? d->gradient : NULL));
    ZONAL_TRY(zonal_plan_status(d->plan));
    ZONAL_TRY(zonal__device_read(d->device, value, d->value, sizeof *value));
    return gradient ? zonal__device_read(d->device, gradient, d->gradient, d->bytes) : ZONAL_OK;
}

zonal_status zonal__cli_execute(zonal_plan *plan, const zonal__device *device,
                                const zonal__cli_rows *rows, double *value, void *gradient) {
    device_rows d;
    if (zonal__device_is_host(device)) return zonal_plan_execute(plan, rows->x, value, gradient);
    zonal_status status = place(plan, device, rows, &d);
    if (status == ZONAL_OK) status = run_there(&d, value, gradient);
    release(&d);
    return status;
}

static zonal_status enqueue(void *context, void *stream) {
    device_rows *d = context;
    zonal_plan_set_stream(d->plan, stream);
    return zonal_plan_execute(d->plan, d->x, d->value, d->gradient);
}

zonal_status zonal__cli_time_on(zonal_plan *plan, const zonal__device *device,
                                const zonal__cli_rows *rows, double *microseconds, int *runs) {
    device_rows d;
    double first;
    zonal_status status = place(plan, device, rows, &d);
    /* A first look decides how many replays make about half a second. */
    if (status == ZONAL_OK) status = zonal__device_time(device, enqueue, &d, 1, 2, 3, &first);
    if (status == ZONAL_OK) {
        *runs = zonal__replays(first);
        status = zonal__device_time(device, enqueue, &d, 1, *runs / 10 + 1, *runs, microseconds);
    }
    zonal_plan_set_stream(plan, NULL); /* the timer's stream is gone */
    if (status == ZONAL_OK) status = zonal_plan_status(plan);
    release(&d);
    return status;
}

/* ---- text ------------------------------------------------------------------------------------ */

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
