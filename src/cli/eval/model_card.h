/*
 * The model card that goes with exported weights: README.md, with the front matter that model hubs
 * read (YAML: library, tags, metrics), what the network is and was trained on, how an image has to
 * be prepared, how torchvision and timm load the file, and what zonal eval found for these weights.
 */
#ifndef ZONAL_CLI_EVAL_MODEL_CARD_H
#define ZONAL_CLI_EVAL_MODEL_CARD_H

#include "nn/network.h"
#include "train/preprocessing.h"

/* The commit that this program was built from; empty: not known. The build makes it. */
extern const char *const zonal__commit;

typedef struct zonal__card {
    const char *weights; /* the exported file */
    const char *run;     /* its folder; NULL: a file was exported */
    zonal__network_spec network;
    zonal__preprocessing preprocessing;
    const char *method, *data; /* "": not known */
    int64_t step;              /* of the weights; -1: not known */
} zonal__card;

/* Whether a card may be written beside the file: there is none yet, or one that was written here
 * and still says so. ZONAL_IO otherwise. */
zonal_status zonal__card_check(const char *weights);

/* Writes it; the file appears whole or not at all. */
zonal_status zonal__card_write(const zonal__card *card);

/* What has to be changed in torchvision's network before it takes the file, as lines of Python; ""
 * where nothing has. ZONAL__CARD_CODE is enough room. */
enum { ZONAL__CARD_CODE = 256 };
void zonal__card_adapt(const zonal__network_spec *network, char out[ZONAL__CARD_CODE]);

/* Whether torchvision and timm have a network of this width. */
int zonal__card_is_standard(const zonal__network_spec *network);

#endif
