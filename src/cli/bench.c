/*
 * zonal bench: how long things take.
 */
#include "cli/bench.h"

#include <stddef.h>

#include "cli/cli.h"
#include "cli/parts.h"

static const zonal__cli_part parts[] = {
    {"loss", "value and gradient of the losses, also beside PyTorch", zonal__cli_bench_loss},
    {"train", "one step of training, also beside PyTorch", zonal__cli_bench_train},
    {"augment", "views of photographs and textures", zonal__cli_bench_augment},
    {"data", "reading pictures: decoding, cropping, packs", zonal__cli_bench_data},
    {NULL, NULL, NULL}};

int zonal__cli_bench(int argc, char **argv) {
    return zonal__cli_run_part("bench", parts, "", argc, argv);
}
