/*
 * Collective calls between GPUs, by NCCL, which is opened when it is first needed: zonal is built
 * and runs without it. Its communicators are nonblocking, so that a rank that is lost cannot hold
 * up the others for ever.
 */
#ifndef ZONAL_DIST_NCCL_H
#define ZONAL_DIST_NCCL_H

#include "backend/device.h"
#include "core/error.h"
#include "zonal/communicator.h"

typedef struct zonal__nccl zonal__nccl;

/* Whether the device's backend works with NCCL, and NCCL can be opened: ZONAL_UNSUPPORTED, with the
 * reason, where not. */
zonal_status zonal__nccl_available(const zonal__device *device);

/* Collective. "host" is the ranks' communicator for host memory, by which they exchange NCCL's
 * identifier; NULL: one rank. Each rank has a device of its own. Fails after "seconds". */
zonal_status zonal__nccl_create(const zonal_communicator *host, const zonal__device *device,
                                double seconds, zonal__nccl **out);

/* Waits for the work of the communicator, or gives it up (in_order = 0). Accepts NULL. */
void zonal__nccl_destroy(zonal__nccl *nccl, int in_order);

/* On the device (on_device = 1); its calls can be captured in a graph after the first of their kind
 * and size has run outside of one. */
const zonal_communicator *zonal__nccl_communicator(const zonal__nccl *nccl);

/* Whether an error has come up in what was put on streams: a rank or a connection is lost. */
zonal_status zonal__nccl_check(zonal__nccl *nccl);

#endif
