#include "core/thread.h"

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
