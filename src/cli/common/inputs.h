/*
 * What a command reads is not replaced by what it writes.
 */
#ifndef ZONAL_CLI_COMMON_INPUTS_H
#define ZONAL_CLI_COMMON_INPUTS_H

#include "core/error.h"

/* Whether two names, NULL: none, are of one file, by links and other spellings too. */
int zonal__cli_is_same_file(const char *a, const char *b);

/* ZONAL_ARGUMENT where "out", which "option" gives, is the input; of a run folder, where it is a
 * file that zonal train or zonal eval has made there. NULL: none. */
zonal_status zonal__cli_keep_input(const char *option, const char *out, const char *input);

#endif
