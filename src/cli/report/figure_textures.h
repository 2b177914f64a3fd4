/* The paper's two figures of textures. */
#ifndef ZONAL_CLI_REPORT_FIGURE_TEXTURES_H
#define ZONAL_CLI_REPORT_FIGURE_TEXTURES_H

#include <stdint.h>

#include "core/error.h"

/* Writes DIR/textures.png, three samples of each family, a row each (cloud, disk, flake, wood), and
 * DIR/views.png: on the left a texture with the outlines of the regions that four random views take
 * from it, on the right the views. */
zonal_status zonal__figure_textures(const char *folder, uint64_t seed);

#endif
