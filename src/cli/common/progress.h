/*
 * How far a long piece of work has come, on stderr.
 *
 *     zonal__progress progress;
 *     zonal__progress_begin(&progress, "sampling", rows, quiet);
 *     for (...) zonal__progress_update(&progress, done);
 *     zonal__progress_end(&progress);
 *
 * On a terminal: one line that is drawn again at most ten times a second, from half a second after
 * the beginning on, and is removed at the end. Elsewhere (a log file): a plain line every ten
 * seconds. Work that is quicker prints nothing; neither does anything when "quiet" is not 0. One at
 * a time, from one thread.
 */
#ifndef ZONAL_CLI_COMMON_PROGRESS_H
#define ZONAL_CLI_COMMON_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

typedef struct zonal__progress {
    const char *label;
    int64_t total;
    double began, next; /* seconds; "next" is when to print again */
    int terminal, silent;
} zonal__progress;

void zonal__progress_begin(zonal__progress *progress, const char *label, int64_t total, int quiet);
void zonal__progress_update(zonal__progress *progress, int64_t done);
void zonal__progress_end(zonal__progress *progress);

/* For a signal handler: leaves the line of a bar that is on the terminal. Async-signal-safe. */
void zonal__progress_interrupted(void);

/* The text of the line for a terminal of "width" columns (0: no bar, for a log): at most 80 and at
 * most width - 1 columns, "out" must hold 128 bytes. "fraction" is clamped to [0, 1]. */
void zonal__progress_render(char out[128], int width, const char *label, double fraction,
                            double elapsed);

#endif
