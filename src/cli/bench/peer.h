/*
 * Scripts of bench/ that do the same work in PyTorch, run beside ours. They print a JSON line for
 * each measurement and exit with 3 where PyTorch is not installed.
 */
#ifndef ZONAL_CLI_BENCH_PEER_H
#define ZONAL_CLI_BENCH_PEER_H

#include "core/error.h"

enum { ZONAL__PEER_ARGUMENTS = 24, ZONAL__PEER_LINE = 1024 /* bytes of a line */ };

/* Runs bench/SCRIPT with the arguments (NULL-terminated, at most ZONAL__PEER_ARGUMENTS) and calls
 * line(context, text) for each line it prints. The script is the one that was installed with the
 * program (share/zonal/bench) or belongs to its build folder, never one of the current folder.
 * Where there is no script, no Python or no PyTorch, that is said on stderr, and the status is
 * ZONAL_OK. The Python is $ZONAL_PYTHON; unless that is set Debian's own, which sees Debian's
 * packages, or, on_gpu, the first on PATH, which is the one with a GPU's. */
zonal_status zonal__peer_run(const char *script, const char *const *arguments, int on_gpu,
                             void (*line)(void *context, const char *text), void *context);

/* The path of this program, for scripts that compare values with it; "" where it is not known. */
void zonal__peer_program(char *out, size_t size);

/* A member of a line that is one JSON object: a number, NAN for null or where there is none; a
 * text,
 * "" where there is none. */
double zonal__peer_number(const char *line, const char *key);
void zonal__peer_text(const char *line, const char *key, char *out, size_t size);

#endif
