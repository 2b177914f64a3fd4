/* The tables for training: backend/training/tables.h. */
#include "backend/training/tables.h"

#include <pthread.h>

#include "backend/cpu/training/nn_amx.h"

static zonal__training_tables tables;

static void fill(void) {
    tables = (zonal__training_tables){.backend = "cpu",
                                      .layers = zonal__nn_cpu(),
                                      .views = zonal__views_cpu(),
                                      .optimisers = zonal__optimiser_cpu(),
                                      .neighbours = zonal__neighbours_cpu(),
                                      .softmax = zonal__softmax_cpu(),
                                      .classifier = zonal__classifier_cpu(),
                                      .bf16_pays = zonal__amx_usable};
}

const zonal__training_tables *zonal__training_cpu(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill);
    return &tables;
}
