/*
 * What training and evaluation ask of a device, beyond the losses of backend/backend.h: layers,
 * views, optimisers, nearest neighbours and classifiers. It is a record of its own because a
 * program that computes losses alone does without all of it.
 *
 * A backend's folder defines zonal__training_NAME(), and cmake/ZonalBackends.cmake puts it on the
 * list. A table may be NULL: the backend has none, and the functions below say so to those who need
 * it. A spec's "device" says on which device of the backend the object works (NULL: its first).
 */
#ifndef ZONAL_BACKEND_TRAINING_TABLES_H
#define ZONAL_BACKEND_TRAINING_TABLES_H

#include "backend/device.h"
#include "backend/training/classifier.h"
#include "backend/training/jpeg.h"
#include "backend/training/neighbours.h"
#include "backend/training/nn.h"
#include "backend/training/optimiser.h"
#include "backend/training/softmax.h"
#include "backend/training/views.h"

typedef struct zonal__training_tables {
    const char *backend; /* its name */
    const zonal__nn_table *layers;
    const zonal__views_table *views;
    const zonal__optimiser_table *optimisers;
    const zonal__neighbours_table *neighbours;
    const zonal__softmax_table *softmax;
    const zonal__classifier_table *classifier;
    const zonal__jpeg_table *jpeg;
    const char *no_layers; /* where layers is NULL: why, and the remedy */
    /* 1 where networks are faster in bf16 than in fp32. */
    int (*bf16_pays)(void);
    /* NULL for a backend that measures nothing. Layers measure which algorithm is the fastest for
     * their shape, once a process. These keep what was measured in a file, so that a resumed run
     * computes the same bits: read before the first layer is made, write after the last. A file
     * that is not there, or of another device or version of the libraries, reads as an empty one;
     * ZONAL_FORMAT for one that is damaged. */
    zonal_status (*autotune_read)(const zonal__device *device, const char *path);
    zonal_status (*autotune_write)(const zonal__device *device, const char *path);
} zonal__training_tables;

/* Those of the host, which are in every build, for what is done there whatever the device. */
const zonal__training_tables *zonal__training_host(void);

/* The same by backend, for the backends themselves and for tests. */
const zonal__training_tables *zonal__training_ref(void); /* plain loops: the oracle */
const zonal__training_tables *zonal__training_cpu(void);

/* The tables of a device; ZONAL_UNSUPPORTED where its backend has none. */
zonal_status zonal__device_training(const zonal__device *device,
                                    const zonal__training_tables **out);

/* One of them; ZONAL_UNSUPPORTED, with a sentence, where it is NULL. */
zonal_status zonal__device_layers(const zonal__device *device, const zonal__nn_table **out);
zonal_status zonal__device_views(const zonal__device *device, const zonal__views_table **out);
zonal_status zonal__device_optimisers(const zonal__device *device,
                                      const zonal__optimiser_table **out);
zonal_status zonal__device_neighbours(const zonal__device *device,
                                      const zonal__neighbours_table **out);
zonal_status zonal__device_classifier(const zonal__device *device,
                                      const zonal__classifier_table **out);

zonal_status zonal__device_jpeg(const zonal__device *device, const zonal__jpeg_table **out);

/* 0 for a device that measures no algorithms, and has nothing to keep. */
int zonal__device_autotunes(const zonal__device *device);

/* Adds the tables of a backend of the program's own, for tests. The record must stay. */
zonal_status zonal__training_register(const zonal__training_tables *tables);

/* The list that CMake makes; ends with NULL. */
extern const zonal__training_tables *(*const zonal__trainings_built[])(void);

#endif
