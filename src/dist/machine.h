/*
 * Which ranks share a machine.
 */
#ifndef ZONAL_DIST_MACHINE_H
#define ZONAL_DIST_MACHINE_H

#include "core/error.h"
#include "zonal/communicator.h"

/* A rank's process, and where it runs. Numbers of processes mean the same where both the start of
 * the machine and the name space of the numbers are the same. */
typedef struct zonal__process {
    char boot[40];
    uint64_t space;
    int64_t number;
} zonal__process;

/* Collective. *all [ranks] is released with zonal__free; *local is this rank's place among those of
 * its machine. */
zonal_status zonal__machine_gather(const zonal_communicator *communicator, zonal__process **all,
                                   int *local);

int zonal__machine_same(const zonal__process *a, const zonal__process *b);

/* A descriptor that polls as readable when the process ends; -1 where the numbers do not mean the
 * same, or the system cannot do it. */
int zonal__machine_watch(const zonal__process *own, const zonal__process *other);

#endif
