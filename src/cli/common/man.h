/*
 * zonal man: the manual pages, as roff. A page is made from what --help prints, so it comes from
 * the same usage records and option tables and cannot say anything else. The build writes them all,
 * for the installation; the command is not listed, because readers have man.
 */
#ifndef ZONAL_CLI_COMMON_MAN_H
#define ZONAL_CLI_COMMON_MAN_H

#include "cli/common/parts.h"

/* argv[0] is "man". Then come the words of a command ("data pack"; none: the program itself), or
 * --list, which prints those words for every page, one page a line. Returns the exit status. */
int zonal__cli_man(const zonal__cli_part *program, int argc, char **argv);

#endif
