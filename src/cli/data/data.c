/*
 * zonal data: makes, describes and packs images.
 */
#include "cli/data/data.h"

#include <stddef.h>

#include "cli/common/cli.h"

const zonal__cli_part zonal__data_parts[] = {
    {"textures", "make procedural textures: disk, cloud, flake, wood", zonal__cli_data_textures,
     NULL},
    {"info", "describe a source: counts, classes, sizes, mean, corrupt files", zonal__cli_data_info,
     NULL},
    {"pack", "write a source into one file that reads at memory speed", zonal__cli_data_pack, NULL},
    {0}};

int zonal__cli_data(int argc, char **argv) {
    return zonal__cli_run_part("data", zonal__data_parts,
                               "A source is a folder of images (DIR/train/CLASS/*.jpg, "
                               "DIR/CLASS/*.png or just\nimages), a pack, a Galaxy10 .h5 file, a "
                               "folder with CIFAR's or MNIST's files,\nor textures:FAMILY.\n\n",
                               argc, argv);
}
