/*
 * What the environment says about this process's place in a job.
 */
#ifndef ZONAL_DIST_LAUNCH_H
#define ZONAL_DIST_LAUNCH_H

#include "core/error.h"

typedef struct zonal__launch {
    int launcher; /* NONE, MPI, ENV or SLURM of dist/job.h */
    int ranks;    /* with MPI 0 where the launcher does not say, and nothing below is set */
    int rank;
    /* Where rank 0 listens; "" with a rendezvous by file. */
    char host[256];
    int port;
    char rendezvous[1024]; /* a folder, or "" */
    char run[128];         /* names the run and its restart: ranks of others are refused */
} zonal__launch;

/* "launcher" is what was asked for, "rendezvous" a folder or NULL. ZONAL_ARGUMENT where a variable
 * is missing or makes no sense. */
zonal_status zonal__launch_read(int launcher, const char *rendezvous, zonal__launch *out);

/* The first name in Slurm's list of nodes, "gpu[07-09,12],big1": "gpu07". ZONAL_ARGUMENT for what
 * is no such list. */
zonal_status zonal__launch_first_node(const char *list, char *out, size_t size);

#endif
