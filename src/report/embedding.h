/*
 * What the network of a run makes of test images: two maps, singular values, and whom the nearest
 * neighbours take them for.
 */
#ifndef ZONAL_REPORT_EMBEDDING_H
#define ZONAL_REPORT_EMBEDDING_H

#include "data/image.h"
#include "data/source.h"
#include "eval/scores.h"

enum {
    ZONAL__REPORT_TILE = 32,    /* side of a thumbnail in the sheet */
    ZONAL__REPORT_COLUMNS = 25, /* of the sheet */
    ZONAL__REPORT_CLASS = 40
};

typedef struct zonal__report_spectrum {
    int64_t count, dim;
    double *value;   /* [count]: singular values / sqrt(rows), descending */
    double *uniform; /* [count]: of as many points drawn uniformly; NULL: not meant to be */
} zonal__report_spectrum;

/* Zeroed: none. */
typedef struct zonal__report_embedding {
    int64_t count, all; /* images that were embedded, of how many there are */
    double *pca, *tsne; /* [count][2], of the backbone's features */
    double share[2];    /* of the variance, along the axes of pca */
    zonal__report_spectrum projections, features;
    int32_t *labels; /* [count]; NULL: there are no classes */
    int classes;
    char (*class_names)[ZONAL__REPORT_CLASS]; /* [classes] */
    zonal__scores scores; /* of k-NN on the features, each image by the others; classes 0: none */
    int k;
    int sheet;         /* number of its thumbnails in the page, from 1 */
    char missing[320]; /* why there is none; "" */
} zonal__report_embedding;

/* Looks at features [n][feature_dim] and projections [n][projection_dim] (not normalised) of the
 * images of a source, of which n are left after a choice among "all". ZONAL_NUMERIC for embeddings
 * that are all the same. */
zonal_status zonal__report_embedding_fill(zonal__report_embedding *embedding,
                                          const zonal__source *source, int64_t all,
                                          int64_t feature_dim, const float *features,
                                          int64_t projection_dim, const float *projections);
void zonal__report_embedding_fini(zonal__report_embedding *embedding);

/* The images of a source, small, in rows of ZONAL__REPORT_COLUMNS. */
zonal_status zonal__report_make_sheet(zonal__source *source, zonal__image *sheet);

#endif
