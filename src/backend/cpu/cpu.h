/*
 * The fast host backend's operations, as cpu.c puts them into the table. Their contract is that of
 * backend/backend.h; what they share is in rows.h (checks, norms, projection), tiles.h (all pairs),
 * second_moment.h and kernels.h, and below.
 */
#ifndef ZONAL_BACKEND_CPU_CPU_H
#define ZONAL_BACKEND_CPU_CPU_H

#include <stdatomic.h>
#include <stdint.h>

#include "backend/backend.h"

extern const zonal__operation_table zonal__cpu_pairs;
extern const zonal__operation_table zonal__cpu_survey;
extern const zonal__operation_table zonal__cpu_kl;
extern const zonal__operation_table zonal__cpu_moments;
extern const zonal__operation_table zonal__cpu_covariance;
extern const zonal__operation_table zonal__cpu_sliced;
extern const zonal__operation_table zonal__cpu_invariance;
#ifdef ZONAL_HAVE_LAPACKE
extern const zonal__operation_table zonal__cpu_eigenvalues;
#endif

/* The create of an operation: takes the work, "size" bytes and zeroed, and lets fill do the rest.
 * What fill leaves behind when it fails is destroyed. "what" is for the sentence. */
typedef zonal_status zonal__cpu_filler(const zonal__problem *problem, zonal__work *work);
zonal_status zonal__cpu_create(const zonal__problem *problem, size_t size, const char *what,
                               zonal__cpu_filler *fill, void (*destroy)(zonal__work *work),
                               zonal__work **out);

/* ---- threads ----------------------------------------------------------------------------------
 *
 * All of the backend's parallelism: loops whose turns are shared out among a team of threads.
 *
 * Who runs which turn changes from call to call; results do not, because a turn writes only what it
 * owns and reads nothing another turn may be writing. Sums over turns are made afterwards, in the
 * order of the turns. Without OpenMP the loops are plain ones.
 *
 * A run forms its team once. The calling thread goes through the run's steps and the others help it
 * with each loop; a loop ends when its turns are done, whether or not all helpers came. A helper
 * that the system has taken off its processor in between therefore holds up nobody, where one
 * OpenMP loop per step would wait for it every time.
 */

/* The body of a zonal__operation_table's run. */
typedef zonal_status (*zonal__cpu_body)(zonal__work *work, const void *x, double *value,
                                        void *gradient, double factor);

/* Calls body(...) on this thread, with a team of up to "threads" for its loops. */
zonal_status zonal__cpu_run(int threads, zonal__cpu_body body, zonal__work *work, const void *x,
                            double *value, void *gradient, double factor);

/* Calls turn(context, i, thread) for i = 0 ... turns - 1, and returns when all are done; turns is
 * below 2^40. Turns are handed out in order, so put the longest first. "thread", from 0 to threads
 * - 1, picks the caller's scratch: no two turns with the same number run at once. A turn may wait
 * for an earlier one, never for a later one, and starts no loop of its own. Outside zonal__cpu_run
 * this is a plain loop. */
typedef void (*zonal__cpu_turn)(void *context, int64_t i, int thread);
void zonal__cpu_parallel(int64_t turns, zonal__cpu_turn turn, void *context);

/* Waits until *number, which another turn raises (with release order), has come to "wanted". */
void zonal__cpu_wait(const _Atomic int64_t *number, int64_t wanted);

#endif
