/*
 * The library's log lines on stderr, while a command works on images: which of them are corrupt.
 */
#ifndef ZONAL_CLI_COMMON_SHOW_LOG_H
#define ZONAL_CLI_COMMON_SHOW_LOG_H

void zonal__cli_show_log(int quiet); /* quiet: nowhere */

#endif
