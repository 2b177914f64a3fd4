/*
 * The ranks of a job: processes that a launcher has started together, and that find each other.
 *
 *     zonal__ranks *ranks;
 *     ZONAL_TRY(zonal__ranks_open(&options, &ranks));         alone where nothing was launched
 *     loss.communicator = zonal__ranks_on(ranks, device) ...
 *     status = work(ranks);
 *     if (status != ZONAL_OK && zonal__ranks_speaks(ranks)) print the sentence
 *     zonal__ranks_close(ranks, status);
 *
 * All that is called collective is called by every rank, in the same order. Each such call fails
 * after options.timeout seconds at the latest; then, or when a rank has ended, the sentence names
 * the rank, is the same on all ranks that are left, and just one of them speaks
 * (zonal__ranks_speaks). A failure of this kind is final: close is all that is left to do.
 *
 * A rank that fails by itself, as of a full disk, must come to zonal__ranks_all with its status, so
 * that the others fail as well; otherwise they wait for it until the deadline.
 *
 * How ranks find each other (options.launcher; the variables are read by "auto" in this order):
 *
 *     mpi     mpirun, or srun with PMI: OMPI_COMM_WORLD_SIZE, PMIX_RANK, PMI_RANK
 *     env     RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun sets them; TCP to rank 0
 *     slurm   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NODELIST: srun without PMI; TCP
 *     none    one rank, whatever the variables say
 *
 * With options.rendezvous rank 0's address is passed by a file, in a folder that all ranks see,
 * instead of by MASTER_ADDR and MASTER_PORT.
 */
#ifndef ZONAL_DIST_RANKS_H
#define ZONAL_DIST_RANKS_H

#include "backend/device.h"
#include "core/error.h"
#include "core/options.h"
#include "zonal/communicator.h"

typedef struct zonal__ranks zonal__ranks;

typedef enum zonal__launcher {
    ZONAL__LAUNCHER_AUTO = 0,
    ZONAL__LAUNCHER_NONE,
    ZONAL__LAUNCHER_MPI,
    ZONAL__LAUNCHER_ENV,
    ZONAL__LAUNCHER_SLURM
} zonal__launcher;

typedef struct zonal__ranks_options {
    int launcher;           /* a zonal__launcher */
    double timeout;         /* seconds, above 0 */
    const char *rendezvous; /* a folder, or NULL */
} zonal__ranks_options;

/* --launcher, --rank-timeout and --rendezvous: a table for a zonal__ranks_options inside a
 * command's settings (ZONAL__OPTION_TABLE). None of them belongs into a configuration file. */
extern const zonal__option zonal__ranks_option[];

/* Collective. *out is NULL on failure. Alone, this reads a few variables and cannot wait. */
zonal_status zonal__ranks_open(const zonal__ranks_options *options, zonal__ranks **out);

/* Collective where "status" is ZONAL_OK. Otherwise the job is over: this rank leaves without
 * waiting for the others' consent, and they fail. The rank that speaks must have spoken before; the
 * others give it a moment to do so, as launchers end all ranks once one has ended. Accepts NULL. */
void zonal__ranks_close(zonal__ranks *ranks, zonal_status status);

int zonal__ranks_rank(const zonal__ranks *ranks);  /* from 0 on; 0 also for NULL */
int zonal__ranks_count(const zonal__ranks *ranks); /* 1 when alone, and for NULL */
/* This rank's place among those of its machine, from 0 on: the GPU to take. */
int zonal__ranks_local(const zonal__ranks *ranks);
/* "alone", "mpi" or "tcp": what host buffers travel by. */
const char *zonal__ranks_transport(const zonal__ranks *ranks);

/* Whether this rank prints: rank 0, and after a failure the first rank that is left. A rank that
 * has failed alone, before or without zonal__ranks_all, speaks as well: only it knows why. */
int zonal__ranks_speaks(const zonal__ranks *ranks);

/* For host memory; NULL when alone, as plans and objectives take it. */
const zonal_communicator *zonal__ranks_host(zonal__ranks *ranks);

/* Collective. The communicator for work on a device, which may differ from rank to rank: NCCL's
 * (on_device = 1) where every rank has a GPU of its own and can open NCCL, else that for host
 * memory (a log line says why); NULL when alone. Made once for a device and kept until close. */
zonal_status zonal__ranks_on(zonal__ranks *ranks, const zonal__device *device,
                             const zonal_communicator **out);

/* "cuda" becomes "cuda:LOCAL" (modulo the GPUs there are) for ranks of one machine; any other name,
 * and every name when alone, stays as it is. */
zonal_status zonal__ranks_device_name(const zonal__ranks *ranks, const char *name,
                                      char out[ZONAL_DEVICE_NAME]);

/* Waits until the work on a stream is done, as zonal__device_event_wait does, but no longer than
 * the deadline: collectives of a device can hang there alone. Not collective. */
zonal_status zonal__ranks_wait(zonal__ranks *ranks, const zonal__device *device, void *stream);

/* Collective. ZONAL_OK if every rank comes with ZONAL_OK; else every rank gets the status and the
 * sentence of the first rank that does not, with "rank N: " before it unless it is alone. */
zonal_status zonal__ranks_all(zonal__ranks *ranks, zonal_status status);

/* Collective. *any = 1 on all ranks if "flag" is set on one: whether somebody was asked to stop. */
zonal_status zonal__ranks_any(zonal__ranks *ranks, int flag, int *any);

/* Collective. The text of rank 0, on all ranks: *out is a new text, released with zonal__free.
 * "text" is looked at on rank 0 alone, and may be NULL elsewhere. */
zonal_status zonal__ranks_text(zonal__ranks *ranks, const char *text, char **out);

/* Collective. Refuses ranks that differ: ZONAL_ARGUMENT, with the first key whose value is another
 * one than rank 0's (or is missing), both values and both ranks. Keys come in any order; the
 * version of the program is always among them. */
typedef struct zonal__agreement {
    const char *key, *value;
} zonal__agreement;
zonal_status zonal__ranks_same(zonal__ranks *ranks, const zonal__agreement *list, int64_t count);

/* Rows are shared out in the order of the ranks, as evenly as they go: those of rank r of "ranks"
 * are *first to *first + *count. */
void zonal__ranks_share(int64_t rows, int ranks, int rank, int64_t *first, int64_t *count);

#endif
