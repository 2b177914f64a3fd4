/*
 * What a run was trained on, kept in its folder as data.txt, so that images which were added,
 * removed or replaced since, and another division of them, are noticed when the run goes on or is
 * evaluated:
 *
 *     zonal-data 2 ONE_IN
 *     part NAME COUNT NAMES IMAGES          for train, val, test
 *     image PART FINGERPRINT NAME           for one image in ONE_IN
 *
 * NAMES is a checksum of all names of the part in their order, IMAGES one of the fingerprints
 * (data/source.h) of one image in ONE_IN, chosen by a hash of its name; both, and FINGERPRINT, have
 * 16 hexadecimal digits (XXH64). ONE_IN is 1 for up to 32768 images and bounds the file and the
 * time for larger sets: there every change of names is noticed, and one replaced image with the
 * probability 1/ONE_IN. Of textures, which are drawn anew every time, the first stands for all, and
 * they have no "image" lines. In names control characters and % are written %XX.
 *
 * Version 1 had another checksum, by which images without splits of their own were divided too: it
 * cannot be compared with what the images are now, and reading it says so.
 *
 *     ZONAL_TRY(zonal__data_record_make(parts, 3, 0, &now));
 *     ZONAL_TRY(zonal__data_record_write(now, "RUN/data.txt"));
 *     ...
 *     ZONAL_TRY(zonal__data_record_read("RUN/data.txt", &before));
 *     ZONAL_TRY(zonal__data_record_make(parts, 3, zonal__data_record_one_in(before), &now));
 *     zonal__data_record_compare(before, now, &changes);
 */
#ifndef ZONAL_TRAIN_DATA_RECORD_H
#define ZONAL_TRAIN_DATA_RECORD_H

#include "data/source.h"

enum { ZONAL__DATA_PARTS = 4, ZONAL__DATA_SHOWN = 3 };

/* A part of the images, under the name of its split. */
typedef struct zonal__data_part {
    const char *name; /* "train": a word */
    zonal__source *source;
} zonal__data_part;

typedef struct zonal__data_record zonal__data_record;

/* one_in 0: as many as are affordable. *record is NULL on failure: ZONAL_IO for an image that
 * cannot be read, ZONAL_MEMORY. */
zonal_status zonal__data_record_make(const zonal__data_part *parts, int count, int64_t one_in,
                                     zonal__data_record **record);
void zonal__data_record_destroy(zonal__data_record *record); /* accepts NULL */
int64_t zonal__data_record_one_in(const zonal__data_record *record);

/* The file appears whole or not at all; neither follows links. ZONAL_FORMAT for a file that is no
 * record. */
zonal_status zonal__data_record_write(const zonal__data_record *record, const char *path);
zonal_status zonal__data_record_read(const char *path, zonal__data_record **record);

/* How two records differ. "moved" is from one part to another. Counts are of the images that the
 * records list; the texts hold the first names, with "..." where there are more. */
typedef struct zonal__data_changes {
    int recorded;   /* 0: there was no record to compare with */
    int changed;    /* 0: the same images in the same parts and order */
    char text[640]; /* a phrase: "2 added (a.png, b.png), 1 removed (c.png)" */
} zonal__data_changes;

/* Parts that only one of the two has are passed over: a run need not have all. */
void zonal__data_record_compare(const zonal__data_record *before, const zonal__data_record *now,
                                zonal__data_changes *changes);

#endif
