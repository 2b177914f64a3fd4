#include "train/exchange.h"

#include <string.h>

enum {
    USUAL_BUCKET = 25 << 20
}; /* bytes: long enough to be limited by bandwidth, not by latency */

static int is_staged(const zonal__exchange_options *o) {
    return !o->communicator->on_device && !zonal__device_is_host(o->device);
}

zonal_status zonal__exchange_init(zonal__exchange *e, const zonal__exchange_options *options) {
    size_t bytes = options->bucket_size > 0 ? options->bucket_size : USUAL_BUCKET;
    void *memory;
    memset(e, 0, sizeof *e);
    if (!options->communicator) return ZONAL_OK;
    e->options = *options;
    e->bucket = bytes > sizeof(float) ? (int64_t)(bytes / sizeof(float)) : 1;
    if (options->communicator->on_device) {
        ZONAL_TRY(zonal__device_stream_create(options->device, &e->side));
        ZONAL_TRY(zonal__device_event_create(options->device, &e->complete));
        return zonal__device_event_create(options->device, &e->added);
    }
    if (!is_staged(options)) return ZONAL_OK;
    ZONAL_TRY(
        zonal__device_pinned_alloc(options->device, (size_t)e->bucket * sizeof(float), &memory));
    e->pinned = memory;
    return ZONAL_OK;
}

void zonal__exchange_fini(zonal__exchange *e) {
    const zonal__device *device = e->options.device;
    if (device) {
        zonal__device_event_destroy(device, e->complete);
        zonal__device_event_destroy(device, e->added);
        zonal__device_stream_destroy(device, e->side);
        if (e->pinned) zonal__device_pinned_free(device, e->pinned);
    }
    memset(e, 0, sizeof *e);
}

static zonal_status reduce(const zonal__exchange *e, float *numbers, int64_t count) {
    const zonal_communicator *c = e->options.communicator;
    return c->all_reduce(c->context, numbers, count, ZONAL_REDUCE_FP32, e->side);
}

static zonal_status add_up(const zonal__exchange *e, float *numbers, int64_t count) {
    const zonal__device *device = e->options.device;
    size_t bytes = (size_t)count * sizeof *numbers;
    if (e->side) {
        ZONAL_TRY(zonal__device_event_record(device, e->complete, e->options.stream));
        ZONAL_TRY(zonal__device_event_hold(device, e->complete, e->side));
    }
    if (!e->pinned) return reduce(e, numbers, count);
    ZONAL_TRY(zonal__device_read(device, e->pinned, numbers, bytes));
    ZONAL_TRY(reduce(e, e->pinned, count));
    return zonal__device_write(device, numbers, e->pinned, bytes);
}

/* Whole buckets, and at the end what is left. */
static zonal_status add_buckets(zonal__exchange *e, int64_t first, int last) {
    while (e->open - first >= e->bucket || (last && e->open > first)) {
        int64_t count = e->open - first < e->bucket ? e->open - first : e->bucket;
        e->open -= count;
        ZONAL_TRY(add_up(e, e->gradients + e->open, count));
    }
    return ZONAL_OK;
}

void zonal__exchange_begin(zonal__exchange *e, float *gradients, int64_t count) {
    e->gradients = gradients;
    e->open = count;
}

zonal_status zonal__exchange_complete(void *context, int64_t first) {
    zonal__exchange *e = context;
    return e->gradients ? add_buckets(e, first, 0) : ZONAL_OK;
}

zonal_status zonal__exchange_end(zonal__exchange *e) {
    ZONAL_TRY(add_buckets(e, 0, 1));
    e->gradients = NULL;
    if (!e->side) return ZONAL_OK;
    ZONAL_TRY(zonal__device_event_record(e->options.device, e->added, e->side));
    return zonal__device_event_hold(e->options.device, e->added, e->options.stream);
}
