/*
 * zonal/device.h - what can compute: the processor, and the GPUs that this build and this machine
 * have.
 *
 * A device is named by its backend and its number: "cuda:1" is the second GPU, "cuda" alone the
 * first. The processor is "cpu".
 */
#ifndef ZONAL_DEVICE_H
#define ZONAL_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "zonal/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a device's name, with the ending zero. */
#define ZONAL_DEVICE_NAME 32

typedef struct zonal_device_info {
    size_t size;                      /* ZONAL_DEVICE_INFO_INIT sets it */
    char name[ZONAL_DEVICE_NAME];     /* "cpu", "cuda:1": what options.device takes */
    char model[128];                  /* "NVIDIA H200"; empty where it is not known */
    int index;                        /* among the devices of its kind: 1 of "cuda:1" */
    int compute_major, compute_minor; /* the compute capability of a GPU; 0 for the processor */
    uint64_t total_memory;            /* bytes */
    uint64_t free_memory;             /* bytes, now */
} zonal_device_info;
#define ZONAL_DEVICE_INFO_INIT ZONAL_SIZED_INIT(zonal_device_info)

/* How many devices there are, at least 1: device 0 is the processor. Without CUDA, or without a GPU
 * that can be used, there are no others; zonal_device_missing says why. */
ZONAL_API int zonal_device_count(void);

/* Describes device i, from 0 to zonal_device_count() - 1. */
ZONAL_API ZONAL_MUST_USE zonal_status zonal_device_info_get(int i, zonal_device_info *info);

/* Why a backend ("cuda") has no device, or why there is no device of that name ("cuda:1"): a
 * sentence, good until this thread's next call. NULL where there is one. */
ZONAL_API const char *zonal_device_missing(const char *backend);

#ifdef __cplusplus
}
#endif
#endif
