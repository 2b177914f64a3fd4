/*
 * The online probe: a linear classifier of the backbone's features that is trained along with the
 * network, so that the curve of its accuracy costs no training of its own.
 *
 * In each step it sees the features of the first global view of each image, as the network has
 * computed them for its own step, with the images' labels, and makes one step of AdamW at a
 * constant rate on the cross-entropy. It begins with zeros. Nothing of it goes back into the
 * network: the weights of a run are the same, bit for bit, with and without it. Ranks add up their
 * gradients and have the same probe.
 *
 *     create;  in every step: take the features, step, join;  destroy
 *
 * On a device of one rank it works on a stream of its own, beside the network's way back.
 */
#ifndef ZONAL_TRAIN_ONLINE_PROBE_H
#define ZONAL_TRAIN_ONLINE_PROBE_H

#include "backend/training/tables.h"
#include "nn/resnet.h"
#include "train/exchange.h"

typedef struct zonal__online_probe_spec {
    zonal__classifier_spec classifier; /* with its device */
    int64_t micro;                     /* rows that come at a time: all, or a part of them */
    void *stream;                      /* of the network; NULL: on the host */
    int in_line; /* 1: on that stream, as ranks must that exchange gradients on it */
} zonal__online_probe_spec;

typedef struct zonal__online_probe zonal__online_probe;

zonal_status zonal__online_probe_create(const zonal__online_probe_spec *spec,
                                        zonal__online_probe **out);
void zonal__online_probe_destroy(zonal__online_probe *probe); /* accepts NULL */

/* Features [micro][dim] are those of rows "first" and on; device memory, which stays as it is until
 * the step if these are all rows, and is copied otherwise. */
zonal_status zonal__online_probe_take(zonal__online_probe *probe, const void *features,
                                      int64_t first);

/* What its optimiser needs for step "step", counted from 1. */
zonal_status zonal__online_probe_numbers(const zonal__online_probe *probe, double rate,
                                         int64_t step, zonal__optimiser_numbers *out);

/* One step with these labels [rows]. They, "numbers" and "norm" are device memory; exchange: of
 * several ranks, or NULL. */
zonal_status zonal__online_probe_step(zonal__online_probe *probe, const int32_t *labels,
                                      zonal__exchange *exchange,
                                      const zonal__optimiser_numbers *numbers, double *norm);

/* Whether a step runs beside what is put on the network's stream after it, and should therefore
 * come as early as it can. Until join that must leave features and labels alone. */
int zonal__online_probe_is_beside(const zonal__online_probe *probe);
/* What comes next on the network's stream waits for the step. */
zonal_status zonal__online_probe_join(const zonal__online_probe *probe);

/* What it carries from step to step, for checkpoints: blocks in device memory of the same size,
 * with what their names begin with, and how a block lies ("probe.weight", "probe.bias"). */
enum { ZONAL__ONLINE_PROBE_BLOCKS = 3, ZONAL__ONLINE_PROBE_ENTRIES = 2 };
zonal_status zonal__online_probe_block(zonal__online_probe *probe, int number, const char **prefix,
                                       float **block);
const zonal__entry *zonal__online_probe_entries(const zonal__online_probe *probe);
int64_t zonal__online_probe_size(const zonal__online_probe *probe); /* elements of a block */

#endif
