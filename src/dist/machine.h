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
    int32_t processors, online; /* that it may run on, and of the machine */
} zonal__process;

/* This rank's place. */
typedef struct zonal__place {
    int local;   /* among the ranks of its machine, from 0 on */
    int sharing; /* ranks that share a processor, at least 1; ranks with processors of their own: 1
                  */
} zonal__place;

/* Collective. *all [ranks] is released with zonal__free. */
zonal_status zonal__machine_gather(const zonal_communicator *communicator, zonal__process **all,
                                   zonal__place *place);

int zonal__machine_same(const zonal__process *a, const zonal__process *b);

/* A descriptor that polls as readable when the process ends; -1 where the numbers do not mean the
 * same, or the system cannot do it. */
int zonal__machine_watch(const zonal__process *own, const zonal__process *other);

#endif
