/*
 * zonal bench: how long things take.
 */
#include "cli/bench/bench.h"

#include <stddef.h>

#include "cli/common/cli.h"

const zonal__cli_part zonal__bench_parts[] = {
    {"loss", "value and gradient of the losses, also in PyTorch", zonal__cli_bench_loss, NULL},
    {"dist", "ranks: collective calls, losses, and a model of many", zonal__cli_bench_dist, NULL},
    {"train", "one step of training, also in PyTorch", zonal__cli_bench_train, NULL},
    {"augment", "views of photographs and textures", zonal__cli_bench_augment, NULL},
    {"data", "reading images: decoding, cropping, packs", zonal__cli_bench_data, NULL},
    {0}};

int zonal__cli_bench(int argc, char **argv) {
    return zonal__cli_run_part("bench", zonal__bench_parts, "", argc, argv);
}
