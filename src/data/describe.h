/*
 * What a source holds, found by reading all of it: what zonal data info shows.
 */
#ifndef ZONAL_DATA_DESCRIBE_H
#define ZONAL_DATA_DESCRIBE_H

#include "data/source.h"

enum { ZONAL__DESCRIPTION_BAD = 20 };

typedef struct zonal__size {
    int width, height;
} zonal__size;

typedef struct zonal__description {
    int64_t count;         /* images that could be read */
    int64_t *class_counts; /* [classes of the source], bad images not counted; NULL: unlabelled */
    zonal__size smallest;  /* the image of least area; the first of equals */
    zonal__size largest;   /* that of greatest area */
    zonal__size typical;   /* the medians of the widths and of the heights */
    int channels;          /* 1: all are grey; 3: at least one is in colour */
    int64_t grey;          /* how many are grey */
    /* Over all pixels of all images, by channel, of elements divided by 255. A grey image
     * counts in every channel. */
    double mean[3], std[3];
    int64_t bad;                           /* images that could not be read */
    char *bad_why[ZONAL__DESCRIPTION_BAD]; /* the first of them, a sentence each that names it */
} zonal__description;

typedef struct zonal__describe_options {
    int workers; /* threads that read; 0: as many as there are processors */
    /* Called on the calling thread after each image, with how many are done; a non-zero return
     * stops with ZONAL_CANCELLED. NULL: not called. */
    int (*progress)(void *context, int64_t done);
    void *progress_context;
} zonal__describe_options;

/* Reads every image once. The result is the same for any number of workers. Images that cannot
 * be read are counted, and do not make it fail however many they are; source->bad is left alone. On
 * failure the description is empty. */
zonal_status zonal__describe(zonal__source *source, const zonal__describe_options *options,
                             zonal__description *out);

void zonal__description_fini(zonal__description *description);

#endif
