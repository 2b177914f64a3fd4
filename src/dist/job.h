/*
 * The ranks of a job: processes that a launcher has started together, and that find each other.
 *
 *     zonal__job *job;
 *     ZONAL_TRY(zonal__job_open(&options, &job));         alone where nothing was launched
 *     loss.communicator = zonal__job_on(job, device) ...
 *     status = work(job);
 *     status = zonal__job_all(job, status);               what one fails at, all fail at
 *     if (zonal__job_speaks(job, status)) print the results or the sentence
 *     zonal__job_close(job, status);
 *
 * All that is called collective is called by every rank, in the same order. Each such call fails
 * after 1.25 times options.timeout at the latest; then, or when a rank has ended, the sentence
 * names the rank, and just one of those that are left speaks (zonal__job_speaks). A failure of this
 * kind is final: close is all that is left to do.
 *
 * A rank that fails by itself, as of a full disk, must come to zonal__job_all with its status, so
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
#ifndef ZONAL_DIST_JOB_H
#define ZONAL_DIST_JOB_H

#include "backend/device.h"
#include "core/error.h"
#include "core/options.h"
#include "zonal/communicator.h"

typedef struct zonal__job zonal__job;

typedef enum zonal__launcher {
    ZONAL__LAUNCHER_AUTO = 0,
    ZONAL__LAUNCHER_NONE,
    ZONAL__LAUNCHER_MPI,
    ZONAL__LAUNCHER_ENV,
    ZONAL__LAUNCHER_SLURM
} zonal__launcher;

typedef struct zonal__job_options {
    int launcher;           /* a zonal__launcher */
    double timeout;         /* seconds, above 0 */
    const char *rendezvous; /* a folder, or NULL */
} zonal__job_options;

/* Entry i of a table for a zonal__job_options (ZONAL__OPTION_TABLE): --launcher, --rank-timeout
 * and --rendezvous. None of them belongs into a configuration file. */
int zonal__job_option(int i, zonal__option *entry);

/* Collective. *out is NULL on failure. Alone, this reads a few variables and cannot wait. */
zonal_status zonal__job_open(const zonal__job_options *options, zonal__job **out);

/* Collective after success, and after a failure that zonal__job_all has shared. After any other
 * failure the job is over: all ranks are ended, and over MPI this call does not come back. Speak
 * before it: launchers end all ranks once one has failed. Ranks that do not speak give the one that
 * does a moment. Accepts NULL. */
void zonal__job_close(zonal__job *job, zonal_status status);

int zonal__job_rank(const zonal__job *job);  /* from 0 on; 0 also for NULL */
int zonal__job_count(const zonal__job *job); /* 1 when alone, and for NULL */
/* This rank's place among those of its machine, from 0 on: the GPU to take. */
int zonal__job_local(const zonal__job *job);
/* The threads for this rank when so many are asked for; 0, one for each processor, becomes its
 * share of the processors where ranks of one machine have not been given processors of their own.
 */
int64_t zonal__job_threads(const zonal__job *job, int64_t asked);
/* "alone", "mpi" or "tcp": what host buffers travel by. */
const char *zonal__job_transport(const zonal__job *job);

/* Whether this rank prints what became of the work: rank 0, and after the loss of a rank the first
 * that is left. A rank that has failed without a last zonal__job_all speaks as well: nobody else
 * may know why. */
int zonal__job_speaks(const zonal__job *job, zonal_status status);

/* For host memory; NULL when alone, as plans and objectives take it. */
const zonal_communicator *zonal__job_host(zonal__job *job);

/* Collective. The communicator for work on a device, which may differ from rank to rank: NCCL's
 * (on_device = 1) where every rank has a GPU of its own and can open NCCL, else that for host
 * memory (a log line says why); NULL when alone. Made once for a device and kept until close. */
zonal_status zonal__job_on(zonal__job *job, const zonal__device *device,
                           const zonal_communicator **out);

/* "cuda" becomes "cuda:LOCAL" (modulo the GPUs there are) for ranks of one machine; any other name,
 * and every name when alone, stays as it is. */
zonal_status zonal__job_device_name(const zonal__job *job, const char *name,
                                    char out[ZONAL_DEVICE_NAME]);

/* Waits until the work on a stream is done, as zonal__device_event_wait does, but no longer than
 * the deadline: collectives of a device can hang there alone. Not collective. */
zonal_status zonal__job_wait(zonal__job *job, const zonal__device *device, void *stream);

/* Not collective. A sign of life to the ranks that wait, whose deadline then begins anew: for what
 * one rank does alone and may take long, as evaluation does. Call it as often as you like. */
void zonal__job_alive(zonal__job *job);

/* Collective. ZONAL_OK if every rank comes with ZONAL_OK; else every rank gets the status and the
 * sentence of the first rank that does not, with "rank N: " before it unless it is alone. */
zonal_status zonal__job_all(zonal__job *job, zonal_status status);

/* Collective. *any = 1 on all ranks if "flag" is set on one: whether somebody was asked to stop. */
zonal_status zonal__job_any(zonal__job *job, int flag, int *any);

/* Collective. The text of rank 0, on all ranks: *out is a new text, released with zonal__free.
 * "text" is looked at on rank 0 alone, and may be NULL elsewhere. */
zonal_status zonal__job_text(zonal__job *job, const char *text, char **out);

/* Collective. Refuses ranks that differ: ZONAL_ARGUMENT, with the first key whose value is another
 * one than rank 0's (or is missing), both values and both ranks. Keys come in any order; the
 * version of the program is always among them. */
typedef struct zonal__agreement {
    const char *key, *value;
} zonal__agreement;
zonal_status zonal__job_same(zonal__job *job, const zonal__agreement *list, int64_t count);

/* Rows are shared out in the order of the ranks, as evenly as they go: those of rank r of "ranks"
 * are *first to *first + *count. */
void zonal__job_share(int64_t rows, int ranks, int rank, int64_t *first, int64_t *count);

#endif
