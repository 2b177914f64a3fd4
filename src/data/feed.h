/*
 * Views on a device, step by step: the CUDA side of loading.
 *
 *     zonal__feed_options options = {.loader = {...}};             as for a loader
 *     ZONAL_TRY(zonal__feed_create(&options, &feed));
 *     while (training) {
 *         ZONAL_TRY(zonal__feed_next(feed, stream, &batch));
 *         ... work on the stream that uses batch->views[0], an array in device memory ...
 *     }
 *     zonal__feed_destroy(feed);
 *
 * The source's images lie on the device as bytes:
 *
 *     resident    all of them, uploaded once; a step sends its parameters alone. For sources whose
 *                 images have one size, and for packs.
 *     streamed    those of a step, read by the loader's workers into pinned memory and copied while
 *                 the step before computes; two buffers take turns.
 *
 * A step's views are the same either way, and the same as the loader makes on the host to 1/255:
 * images over the loader's largest side are shrunk alike in all three places. JPEG files that the
 * device decodes (device_decodes) have its decoder's pixels instead of libjpeg's:
 * backend/training/jpeg.h. Those that it cannot decode are decoded here; one that is damaged in a
 * way that only shows then ends the run, by a sentence that names it.
 *
 * Ahead (options.ahead), the views of a step are made while the step before computes, on a stream
 * of the feed's own:
 *
 *     while (training) {
 *         ZONAL_TRY(zonal__feed_prepare(feed, stream, &batch, &turn));
 *         ... work on the stream that uses batch->views[0] ...
 *         ZONAL_TRY(zonal__feed_release(feed, stream));
 *     }
 *
 * There are then two sets of views, by turns, so that there are two forms of that work, and a graph
 * can be recorded of each.
 */
#ifndef ZONAL_DATA_FEED_H
#define ZONAL_DATA_FEED_H

#include "data/loader.h"

typedef enum zonal__data_location {
    ZONAL__DATA_AUTO = 0, /* on the device where it can be and fits into half of the free memory */
    ZONAL__DATA_ON_DEVICE = 1,
    ZONAL__DATA_ON_HOST = 2
} zonal__data_location;

typedef struct zonal__feed_options {
    const zonal__device *device;  /* NULL: the CPU */
    zonal__loader_options loader; /* raw and device are the feed's own */
    zonal__data_location data_location;
    int ahead;          /* 1: views are made ahead; twice the memory for them */
    int device_decodes; /* 1: streamed JPEG files are decoded by the device, where it can */
    /* Called while resident images are read; a non-zero return stops with ZONAL_CANCELLED. */
    int (*progress)(void *context, int64_t done);
    void *progress_context;
} zonal__feed_options;

typedef struct zonal__feed zonal__feed;

zonal_status zonal__feed_create(const zonal__feed_options *options, zonal__feed **feed);
/* Waits for what it has put on streams. Accepts NULL. */
void zonal__feed_destroy(zonal__feed *feed);

int zonal__feed_is_resident(const zonal__feed *feed);
int64_t zonal__feed_steps_per_epoch(const zonal__feed *feed);

/* Not ahead: puts the making of the next step's views on the stream. batch->views[g] is the same
 * device array in every step, [views][count][height][width][channels]; samples and labels are host
 * memory, valid until the next call. */
zonal_status zonal__feed_next(zonal__feed *feed, void *stream, const zonal__batch **batch);

/* Prepare copies what the next step's views are made of and has them made; the stream waits for
 * them. Release: what the stream has so far is all that reads them, and the next step may be
 * prepared. *turn, 0 or 1, says which of two sets batch->views are. */
enum { ZONAL__FEED_TURNS = 2 };
zonal_status zonal__feed_prepare(zonal__feed *feed, void *stream, const zonal__batch **batch,
                                 int *turn);
zonal_status zonal__feed_release(zonal__feed *feed, void *stream);

/* As zonal__loader_listen, where images are streamed; until zonal__feed_seek. */
void zonal__feed_listen(zonal__feed *feed, zonal__loader_listener *listener, void *context);

/* The next step will be this one. Resident images stay where they are. Waits for the device; on
 * failure the feed goes on where it was. */
zonal_status zonal__feed_seek(zonal__feed *feed, int64_t step);

#endif
