#include "cli/common/on_device.h"

#include "backend/device.h"
#include "cli/common/timing.h"

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
