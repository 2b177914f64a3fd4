/*
 * Threads of the library's own. Handlers of signals belong to the program that uses the library and
 * are written for its threads, so ours block every signal but those that a thread causes itself
 * (SIGSEGV and its like): whatever arrives is handled on a thread of the program.
 */
#ifndef ZONAL_CORE_THREAD_H
#define ZONAL_CORE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

enum { ZONAL__THREADS_PER_PROCESSOR = 4 };

/* Processors that this process may run on, at least 1. */
int zonal__processors(void);

/* The threads to use when so many are asked for; 0: one for each processor. More than 4 for each
 * processor are never taken: they would wait for each other and want memory each. */
int zonal__thread_count(int64_t asked);

/* pthread_create with default attributes and signals blocked in the new thread; 0 or an errno. */
int zonal__thread_start(pthread_t *thread, void *(*body)(void *), void *context);

/* Around code that starts threads by itself, which inherit what is blocked. */
void zonal__thread_block_signals(sigset_t *before);
void zonal__thread_restore_signals(const sigset_t *before);

#endif
