/* The parts of zonal data, each in a file of its own. */
#ifndef ZONAL_CLI_DATA_DATA_H
#define ZONAL_CLI_DATA_DATA_H

#include "cli/common/parts.h"

extern const zonal__cli_part zonal__data_parts[];

int zonal__cli_data_info(int argc, char **argv);
int zonal__cli_data_pack(int argc, char **argv);
int zonal__cli_data_textures(int argc, char **argv);

#endif
