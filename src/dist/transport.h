/*
 * What carries host memory between ranks: MPI or TCP. ranks.c is all that knows of them.
 */
#ifndef ZONAL_DIST_TRANSPORT_H
#define ZONAL_DIST_TRANSPORT_H

#include "dist/launch.h"
#include "dist/machine.h"
#include "zonal/communicator.h"

typedef struct zonal__transport zonal__transport;
struct zonal__transport {
    zonal_communicator communicator;
    const char *name;
    zonal__place place;
    /* A rank has ended or does not answer: nothing can be done together any more. The first rank
     * that is left is to say so. */
    int lost, speaker;
    /* Sends all others a sign of life; they wait for longer after one. */
    void (*show_life)(zonal__transport *transport);
    /* When a sign of life was last seen (dist/clock.h); 0: never. Looks for new ones. */
    double (*last_life)(zonal__transport *transport);
    /* This rank has waited in vain for others elsewhere, as inside of NCCL. Finds out who is left,
     * and fails with a sentence about the others. */
    zonal_status (*call_roll)(zonal__transport *transport);
    /* In order: collective, and returns when every rank has come, or the deadline has passed.
     * Otherwise the job is ended as the transport can: MPI does not come back from that. */
    void (*close)(zonal__transport *transport, int in_order, int exit_status);
};

/* Collective; *out is NULL on failure. ZONAL_UNSUPPORTED in a build without MPI. */
zonal_status zonal__transport_mpi(const zonal__launch *launch, double timeout,
                                  zonal__transport **out);
zonal_status zonal__transport_tcp(const zonal__launch *launch, double timeout,
                                  zonal__transport **out);

/* How much longer than the deadline ranks may take to find out who is left: a quarter of it, and
 * at least a second. */
double zonal__transport_grace(double timeout);

/* The sentence about ranks that are missing, for both transports: those with present[r] = 0 have
 * not answered for "timeout" seconds or, with ended = 1, have ended. Returns ZONAL_IO; "speaker"
 * becomes the first rank that is present. */
zonal_status zonal__transport_lose(zonal__transport *transport, const char *present, int ended,
                                   double timeout);

#endif
