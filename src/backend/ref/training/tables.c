/* The tables for training: backend/training/tables.h. */
#include "backend/training/tables.h"

#include <pthread.h>

static int never(void) {
    return 0;
}

static zonal__training_tables tables;

static void fill(void) {
    tables = (zonal__training_tables){.backend = "ref",
                                      .layers = zonal__nn_ref(),
                                      .views = zonal__views_ref(),
                                      .optimisers = zonal__optimiser_ref(),
                                      .neighbours = zonal__neighbours_ref(),
                                      .softmax = zonal__softmax_ref(),
                                      .classifier = zonal__classifier_ref(),
                                      .bf16_pays = never};
}

const zonal__training_tables *zonal__training_ref(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill);
    return &tables;
}
