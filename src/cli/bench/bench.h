/* The parts of zonal bench, each in a file of its own. */
#ifndef ZONAL_CLI_BENCH_BENCH_H
#define ZONAL_CLI_BENCH_BENCH_H

#include "cli/common/parts.h"

extern const zonal__cli_part zonal__bench_parts[];

int zonal__cli_bench_augment(int argc, char **argv);
int zonal__cli_bench_data(int argc, char **argv);
int zonal__cli_bench_dist(int argc, char **argv);
int zonal__cli_bench_loss(int argc, char **argv);
int zonal__cli_bench_train(int argc, char **argv);

#endif
