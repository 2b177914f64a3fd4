/*
 * All images of a source in one block of memory, for a device that keeps them there: which there
 * are, where each lies, and their pixels, brought down to the largest side as the loader brings
 * them down (data/loader.h), so that views do not depend on where the images lie.
 *
 *     zonal__resident resident;
 *     ZONAL_TRY(zonal__resident_init(source, max_side, &resident));
 *     ... resident.bytes of memory; 0: the sizes are not known without reading all images ...
 *     ZONAL_TRY(zonal__resident_load(&resident, workers, &sink));
 *     ... resident.places, resident.numbers ...
 *     zonal__resident_fini(&resident);
 *
 * A pack whose images are all small enough and have the channels asked for is copied as the file
 * has it, which is several times as fast.
 */
#ifndef ZONAL_DATA_RESIDENT_H
#define ZONAL_DATA_RESIDENT_H

#include "backend/training/views.h"
#include "data/source.h"

typedef struct zonal__resident {
    zonal__source *source; /* not owned */
    int max_side;
    int whole_file;             /* 1: a pack as its file has it */
    size_t bytes;               /* of the block; 0: not known */
    int longest;                /* side of an image, as it lies in the block */
    zonal__image_place *places; /* [count]: shapes, and where the pixels lie in the block */
    int64_t *numbers;           /* [count]: what stands for each, itself unless it is corrupt */
} zonal__resident;

/* Finds the layout; reads no image. Release with zonal__resident_fini, also after failure. */
zonal_status zonal__resident_init(zonal__source *source, int max_side, zonal__resident *resident);
void zonal__resident_fini(zonal__resident *resident);

/* Where the pixels go. Both are called on the thread that loads. */
typedef struct zonal__resident_sink {
    /* Puts n bytes, of one image or of several, at "offset" of the block. */
    zonal_status (*write)(void *context, size_t offset, const void *bytes, size_t n);
    void *context;
    /* Told how many images have been read; a non-zero return stops with ZONAL_CANCELLED. NULL:
     * not called; nor is it for a whole file. */
    int (*progress)(void *context, int64_t done);
    void *progress_context;
} zonal__resident_sink;

/* Reads all images, by "workers" threads (0: as many as there are processors). */
zonal_status zonal__resident_load(zonal__resident *resident, int workers,
                                  const zonal__resident_sink *sink);

#endif
