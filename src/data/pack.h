/*
 * Packs: a whole set of images in one file, as they are in memory.
 *
 *     zonal__pack_options options = {.fit = ZONAL__PACK_CENTER, .side = 256, .classes = 10};
 *     ZONAL_TRY(zonal__pack_create("set.zpk", &options, &writer));
 *     for (...) ZONAL_TRY_GOTO(status, fail, zonal__pack_add(writer, &image, label, split));
 *     return zonal__pack_commit(writer);                 fail: zonal__pack_abandon(writer)
 *
 * The format, version 2. All numbers are little-endian; u8, u16, u32 and u64 are unsigned.
 *
 *     head     64 bytes: "ZONALPK2", then zeros
 *     pixels   of each image, u8 [height][width][channels], beginning at a multiple of 64; the
 *              gaps are zeros
 *     table    begins at a multiple of 64; 32 bytes for each image:
 *                  u64 offset      of its pixels, from the beginning of the file
 *                  u64 checksum    of its pixels
 *                  u32 width       1 to 32768
 *                  u32 height      1 to 32768
 *                  u32 label       0 to classes - 1; 0xffffffff where classes is 0
 *                  u16 channels    1 (grey) or 3 (RGB)
 *                  u16 split       1 train, 2 val, 3 test; 0: not divided (either all or none)
 *     names    of the classes, in order, each followed by a zero byte; or nothing
 *     foot     the last 64 bytes of the file:
 *                  u64 table       where the table begins
 *                  u64 count       of the images, at least 1
 *                  u64 names       bytes
 *                  u32 classes     at most 2^20; 0: unlabelled
 *                  u32 version     2
 *                  u64 checksum    of table and names
 *                  u64 zero
 *                  u64 checksum    of the 48 bytes before
 *                  "ZONALEND"
 *
 * What says how many images there are stands at the end, so a pack is written in one go, and a
 * file that was cut off anywhere has no foot.
 *
 * The checksum is XXH64 with seed 0 (core/checksum.h). It is no guard against malice. Version 1 had
 * another checksum; such a pack is refused with a sentence that says to make it again.
 *
 * Foot, table and names are checked when a pack is opened: all that the reader relies on. Pixels
 * are checked when an image is read for the first time, or by zonal__pack_verify. The file is read
 * by pread, not mapped: one that somebody shortens meanwhile is an error (ZONAL_IO) and not the end
 * of the process. The writer here never does that: it puts a new file in the place of the old.
 */
#ifndef ZONAL_DATA_PACK_H
#define ZONAL_DATA_PACK_H

#include "backend/training/views.h"
#include "data/source.h"

/* ---- writing --------------------------------------------------------------------------------- */

typedef enum zonal__pack_fitting {
    ZONAL__PACK_AS_IS = 0,  /* every image in its own size */
    ZONAL__PACK_CENTER = 1, /* the largest square about the centre, resampled to side x side */
    ZONAL__PACK_STRETCH = 2 /* the whole image, resampled to side x side */
} zonal__pack_fitting;

typedef struct zonal__pack_options {
    zonal__pack_fitting fit;
    int side;
    int classes;                    /* 0: unlabelled; the labels given are then ignored */
    const char *const *class_names; /* [classes]; NULL: none; copied */
} zonal__pack_options;

typedef struct zonal__pack_writer zonal__pack_writer;

/* Starts a pack. *writer is NULL on failure. It must be ended by commit or abandon, and belongs to
 * one thread at a time. */
zonal_status zonal__pack_create(const char *path, const zonal__pack_options *options,
                                zonal__pack_writer **writer);

/* Appends an image. split says which part of the set it belongs to; ZONAL__SPLIT_ALL: the set is
 * not divided, which then must hold for all its images. An image that is refused leaves the pack
 * as it was; a failure to write (ZONAL_IO) comes again from every later call. */
zonal_status zonal__pack_add(zonal__pack_writer *writer, const zonal__image *image, int32_t label,
                             zonal__split split);

/* Ends the pack, in every case, and releases the writer. On failure nothing is left behind, and a
 * file that was there before is untouched. */
zonal_status zonal__pack_commit(zonal__pack_writer *writer);
void zonal__pack_abandon(zonal__pack_writer *writer); /* accepts NULL */

/* What zonal__pack_fit needs besides the images. Zero-initialise. */
typedef struct zonal__pack_scratch {
    zonal__image square;
    zonal__resampler resampler;
} zonal__pack_scratch;
void zonal__pack_scratch_fini(zonal__pack_scratch *scratch);

/* What zonal__pack_add does to an image first, for callers that do it in threads of their own:
 * an image that has been fitted is added as it is. out differs from in. */
zonal_status zonal__pack_fit(const zonal__image *in, zonal__pack_fitting fit, int side,
                             zonal__pack_scratch *scratch, zonal__image *out);

/* ---- reading: zonal__source_pack, and what only packs can do --------------------------------- */

/* Whether n bytes are the beginning of a pack, of whichever version. */
int zonal__pack_is(const void *bytes, size_t n);

/* For sending a pack whole to a device; the source must be a pack's. The shape of image "index"
 * and where its pixels lie in the file; how many bytes the file has; and a piece of it as it is.
 * Checksums are not looked at: call zonal__pack_verify once. */
zonal__image_place zonal__pack_image(const zonal__source *source, int64_t index);
size_t zonal__pack_bytes(const zonal__source *source);
zonal_status zonal__pack_copy(const zonal__source *source, size_t offset, size_t bytes, void *out);

/* Compares the checksums of all images of the source (of its split, that is). ZONAL_FORMAT with
 * the number of the first damaged one. */
zonal_status zonal__pack_verify(zonal__source *source);

/* The checksum that the format uses. */
uint64_t zonal__pack_checksum(const void *bytes, size_t n);

#endif
