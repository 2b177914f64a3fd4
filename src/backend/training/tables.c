/* The tables for training, by device: backend/training/tables.h. */
#include "backend/training/tables.h"

#include <pthread.h>
#include <string.h>

enum { MOST_ADDED = 8 };

static struct {
    pthread_mutex_t lock;
    int count;
    const zonal__training_tables *tables[MOST_ADDED];
} added = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const zonal__training_tables *find(const char *backend) {
    const zonal__training_tables *found = NULL;
    for (int i = 0; zonal__trainings_built[i]; i++)
        if (strcmp(zonal__trainings_built[i]()->backend, backend) == 0)
            return zonal__trainings_built[i]();
    pthread_mutex_lock(&added.lock);
    for (int i = 0; i < added.count; i++)
        if (strcmp(added.tables[i]->backend, backend) == 0) found = added.tables[i];
    pthread_mutex_unlock(&added.lock);
    return found;
}

const zonal__training_tables *zonal__training_host(void) {
    return find(zonal__device_cpu()->backend->name);
}

zonal_status zonal__training_register(const zonal__training_tables *tables) {
    int room;
    pthread_mutex_lock(&added.lock);
    room = added.count < MOST_ADDED;
    if (room) added.tables[added.count++] = tables;
    pthread_mutex_unlock(&added.lock);
    if (room) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT, "no more than %d backends can be added", MOST_ADDED);
}

zonal_status zonal__device_training(const zonal__device *device,
                                    const zonal__training_tables **out) {
    *out = find(device->backend->name);
    if (*out) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                      "the device %s computes losses and trains no networks; use the device cpu",
                      device->name);
}

static zonal_status lacks(const zonal__device *device, const char *what) {
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "the device %s has no %s; use the device cpu",
                      device->name, what);
}

zonal_status zonal__device_layers(const zonal__device *device, const zonal__nn_table **out) {
    const zonal__training_tables *tables;
    *out = NULL;
    ZONAL_TRY(zonal__device_training(device, &tables));
    *out = tables->layers;
    if (*out) return ZONAL_OK;
    return tables->no_layers ? ZONAL_FAIL(ZONAL_UNSUPPORTED, "%s", tables->no_layers)
                             : lacks(device, "layers of networks");
}

zonal_status zonal__device_views(const zonal__device *device, const zonal__views_table **out) {
    const zonal__training_tables *tables;
    *out = NULL;
    ZONAL_TRY(zonal__device_training(device, &tables));
    *out = tables->views;
    return *out ? ZONAL_OK : lacks(device, "augmentation");
}

zonal_status zonal__device_optimisers(const zonal__device *device,
                                      const zonal__optimiser_table **out) {
    const zonal__training_tables *tables;
    *out = NULL;
    ZONAL_TRY(zonal__device_training(device, &tables));
    *out = tables->optimisers;
    return *out ? ZONAL_OK : lacks(device, "optimisers");
}

zonal_status zonal__device_neighbours(const zonal__device *device,
                                      const zonal__neighbours_table **out) {
    const zonal__training_tables *tables;
    *out = NULL;
    ZONAL_TRY(zonal__device_training(device, &tables));
    *out = tables->neighbours;
    return *out ? ZONAL_OK : lacks(device, "search of nearest neighbours");
}

zonal_status zonal__device_classifier(const zonal__device *device,
                                      const zonal__classifier_table **out) {
    const zonal__training_tables *tables;
    *out = NULL;
    ZONAL_TRY(zonal__device_training(device, &tables));
    *out = tables->classifier;
    return *out ? ZONAL_OK : lacks(device, "classifier to train along");
}

zonal_status zonal__device_jpeg(const zonal__device *device, const zonal__jpeg_table **out) {
    const zonal__training_tables *tables;
    *out = NULL;
    ZONAL_TRY(zonal__device_training(device, &tables));
    *out = tables->jpeg;
    if (*out) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "the device %s decodes no JPEG files; use --decoder host",
                      device->name);
}

int zonal__device_autotunes(const zonal__device *device) {
    const zonal__training_tables *tables = find(device->backend->name);
    return tables && tables->autotune_read;
}
