#define _GNU_SOURCE /* the processors of a process */
#include "core/thread.h"

#include <sched.h>
#include <unistd.h>

int zonal__processors(void) {
#ifdef CPU_COUNT
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int zonal__thread_count(int64_t asked) {
    int64_t processors = zonal__processors(), most = processors * ZONAL__THREADS_PER_PROCESSOR;
    if (asked <= 0) return (int)processors;
    return (int)(asked < most ? asked : most);
}

void zonal__thread_block_signals(sigset_t *before) {
    static const int own_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own_faults / sizeof own_faults[0]; i++)
        sigdelset(&blocked, own_faults[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, before);
}

void zonal__thread_restore_signals(const sigset_t *before) {
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

int zonal__thread_start(pthread_t *thread, void *(*body)(void *), void *context) {
    sigset_t before;
    int error;
    zonal__thread_block_signals(&before);
    error = pthread_create(thread, NULL, body, context);
    zonal__thread_restore_signals(&before);
    return error;
}
