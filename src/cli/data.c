/*
 * zonal data: makes, describes and packs pictures.
 */
#include "cli/data.h"

#include <stddef.h>

#include "cli/cli.h"
#include "cli/parts.h"

static const zonal__cli_part parts[] = {
    {"textures", "make procedural textures: disk, cloud, flake, wood", zonal__cli_data_textures},
    {"info", "describe a source: counts, classes, sizes, mean, bad files", zonal__cli_data_info},
    {"pack", "write a source into one file that reads at memory speed", zonal__cli_data_pack},
    {NULL, NULL, NULL}};

int zonal__cli_data(int argc, char **argv) {
    return zonal__cli_run_part(
        "data", parts,
        "A source is a folder of images (DIR/train/CLASS/*.jpg, DIR/CLASS/*.png or just\n"
        "pictures), a pack, a Galaxy10 .h5 file, a folder with CIFAR's or MNIST's files,\n"
        "or textures:FAMILY.\n\n",
        argc, argv);
}
