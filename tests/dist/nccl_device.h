/*
 * A device in the host's memory that says it works with NCCL, for the tests that load the fake one.
 */
#ifndef ZONAL_TESTS_NCCL_DEVICE_H
#define ZONAL_TESTS_NCCL_DEVICE_H

#include <stdio.h>

#include "backend/device.h"

static int nccl_device_current = -1; /* as CUDA's current device; -1: nobody has entered */
static int nccl_device_done = 1;     /* what events say */
static const char *nccl_device_id = "0000:01:00.0";

static zonal_status nccl_device_enter(const zonal__device *device, int *before) {
    *before = nccl_device_current;
    nccl_device_current = device->index;
    return ZONAL_OK;
}

static void nccl_device_leave(int before) {
    nccl_device_current = before;
}

static zonal_status nccl_device_identify(const zonal__device *device, char *out, size_t size) {
    (void)device;
    snprintf(out, size, "%s", nccl_device_id);
    return ZONAL_OK;
}

static zonal_status nccl_device_event_done(const zonal__device *device, void *event, int *done) {
    (void)device, (void)event;
    *done = nccl_device_done;
    return ZONAL_OK;
}

static const zonal__device *nccl_device(void) {
    static zonal__runtime runtime;
    static zonal__backend backend;
    static zonal__device device;
    runtime = *zonal__device_cpu()->backend->runtime;
    runtime.collectives = "nccl";
    runtime.enter = nccl_device_enter;
    runtime.leave = nccl_device_leave;
    runtime.identify = nccl_device_identify;
    runtime.event_done = nccl_device_event_done;
    backend = *zonal__device_cpu()->backend;
    backend.runtime = &runtime;
    backend.is_host = 0;
    device = (zonal__device){.backend = &backend, .index = 1, .name = "fake:1"};
    return &device;
}

#endif
