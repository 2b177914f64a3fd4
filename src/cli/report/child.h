/*
 * This program once more, as a child process that works on its own.
 */
#ifndef ZONAL_CLI_REPORT_CHILD_H
#define ZONAL_CLI_REPORT_CHILD_H

#include <stddef.h>
#include <sys/types.h>

#include "core/error.h"

enum { ZONAL__ARGUMENTS = 200 };

/* A command line, without the name of the program; zero-initialise. What does not fit is noticed
 * when it is started. */
typedef struct zonal__arguments {
    int count, overflow;
    size_t used;
    char *at[ZONAL__ARGUMENTS + 2];
    char text[1 << 16];
} zonal__arguments;

__attribute__((format(printf, 2, 3))) void zonal__arguments_add(zonal__arguments *arguments,
                                                                const char *format, ...);

/* Starts it, with all that it prints appended to the file "log". Once this process has ended, in
 * whatever way, the child is asked to end too (SIGTERM). It is in a process group of its own: who
 * gets a signal that is meant for all hands it on. */
zonal_status zonal__child_start(zonal__arguments *arguments, const char *log, pid_t *child);

/* Whether it has ended; *good tells whether with status 0. */
int zonal__child_ended(pid_t child, int *good);

#endif
