/*
 * The smallest trainer: a network of a few hundred weights that sees random numbers.
 */
#ifndef ZONAL_TESTS_SMALL_TRAINER_H
#define ZONAL_TESTS_SMALL_TRAINER_H

#include "core/error.h"
#include "train/trainer.h"

static inline zonal_status make_trainer(zonal__trainer **trainer) {
    zonal__trainer_options options = {.network = zonal__network_defaults(), .fixed_views = 1};
    options.network.stem = ZONAL__STEM_SMALL;
    options.network.channels = 1;
    options.network.width = 1. / 64;
    options.network.projector_layers = 1;
    options.network.projector_width[0] = 4;
    options.objective.size = sizeof options.objective;
    ZONAL_TRY(zonal_objective_defaults("mmd-band", &options.objective));
    options.loader = (zonal__loader_options){
        .batch = 4, .groups = 1, .group = {{.views = 2, .width = 8, .height = 8}}};
    options.optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW);
    options.schedule =
        (zonal__schedule){.kind = ZONAL__SCHEDULE_CONSTANT, .total = 100, .base = 1e-3};
    options.threads = 1;
    return zonal__trainer_create(&options, trainer);
}

#endif
