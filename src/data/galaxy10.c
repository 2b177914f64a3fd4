/*
 * Galaxy10 SDSS (69 x 69) and Galaxy10 DECaLS (256 x 256): HDF5 files with the datasets
 *
 *     images   uint8   [n][height][width][3]
 *     ans      integer [n], the class from 0 to 9
 *
 * Any other size is read as well; its classes then have no names. The sets have no split of their
 * own, so theirs is drawn (data/split.h).
 *
 * A compressed file is stored in chunks that hold a small tile of many images, and one image
 * can only be had by unpacking all that are stored with it. The reader therefore unpacks a slab,
 * the images of one row of chunks, and keeps the latest: going through the set in order unpacks
 * each chunk once. Reading in random order does not; pack such a set first (zonal data pack).
 *
 * The files come from elsewhere and are read by data/hdf5.h, which trusts nothing in them.
 */
#include <pthread.h>
#include <string.h>

#include "core/memory.h"
#include "data/fingerprint.h"
#include "data/hdf5.h"
#include "data/source.h"
#include "data/split.h"

enum {
    CLASSES = 10,
    MOST_IMAGES = 1 << 24,     /* a file of a few bytes can claim any number */
    MOST_SLAB_BYTES = 1 << 28, /* of images kept unpacked */
    LABEL_ROWS = 1 << 16,      /* labels read at a time where they lie one behind the other */
    FILE_SAMPLES = 256         /* of the fingerprint */
};

static const char *const sdss_names[CLASSES] = {
    "Disk, Face-on, No Spiral",    "Smooth, Completely round",     "Smooth, in-between round",
    "Smooth, Cigar shaped",        "Disk, Edge-on, Rounded Bulge", "Disk, Edge-on, Boxy Bulge",
    "Disk, Edge-on, No Bulge",     "Disk, Face-on, Tight Spiral",  "Disk, Face-on, Medium Spiral",
    "Disk, Face-on, Loose Spiral",
};

static const char *const decals_names[CLASSES] = {
    "Disturbed Galaxies",
    "Merging Galaxies",
    "Round Smooth Galaxies",
    "In-between Round Smooth Galaxies",
    "Cigar Shaped Smooth Galaxies",
    "Barred Spiral Galaxies",
    "Unbarred Tight Spiral Galaxies",
    "Unbarred Loose Spiral Galaxies",
    "Edge-on Galaxies without Bulge",
    "Edge-on Galaxies with Bulge",
};

typedef struct galaxy10 {
    zonal__source source;
    zonal__hdf5 *file;
    zonal__hdf5_dataset images;
    pthread_mutex_t lock; /* of images and the slab */
    uint8_t *slab;        /* [slab_rows][height][width][3]; NULL: nothing was read yet */
    int64_t slab_rows;
    int64_t slab_first;   /* the first image in the slab; -1: it is empty */
    uint64_t fingerprint; /* of the file */
} galaxy10;

/* ---- opening --------------------------------------------------------------------------------- */

static zonal_status check_rank(const galaxy10 *g, const zonal__hdf5_dataset *set, int rank) {
    if (set->rank == rank) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "\"%s\" in %s has %d dimensions, but %d are expected; store it as %s",
                      set->name, g->source.path, set->rank, rank,
                      rank == 1 ? "[n], a label for each image" : "[n][height][width][3]");
}

static zonal_status check_images(const galaxy10 *g) {
    const int64_t *shape = g->images.shape;
    if (g->images.bytes != 1 || g->images.is_signed)
        return ZONAL_FAIL(
            ZONAL_FORMAT,
            "\"images\" in %s has elements of another type than uint8, which Galaxy10 "
            "files have; convert it to 0 to 255 in uint8",
            g->source.path);
    ZONAL_TRY(check_rank(g, &g->images, 4));
    if (shape[0] < 1 || shape[0] > MOST_IMAGES || shape[1] < 1 || shape[2] < 1 ||
        shape[1] > ZONAL__IMAGE_SIDE || shape[2] > ZONAL__IMAGE_SIDE ||
        shape[1] * shape[2] * 3 > MOST_SLAB_BYTES || shape[3] != 3)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "\"images\" in %s has the shape [%lld][%lld][%lld][%lld], but "
                          "[n][height][width][3] is expected; store at most %d images, of at "
                          "most %d MiB each, in that shape",
                          g->source.path, (long long)shape[0], (long long)shape[1],
                          (long long)shape[2], (long long)shape[3], MOST_IMAGES,
                          MOST_SLAB_BYTES >> 20);
    return ZONAL_OK;
}

/* A label as it is stored; one that no int64_t holds becomes the largest. */
static int64_t label_at(const zonal__hdf5_dataset *set, const uint8_t *at) {
    uint64_t value = 0;
    int bits = 8 * set->bytes;
    for (int i = 0; i < set->bytes; i++)
        value = value << 8 | at[set->big_endian ? i : set->bytes - 1 - i];
    if (set->is_signed && bits < 64 && value >> (bits - 1)) value |= UINT64_MAX << bits;
    if (!set->is_signed && value > INT64_MAX) value = INT64_MAX;
    return (int64_t)value;
}

static zonal_status take_labels(galaxy10 *g, const zonal__hdf5_dataset *set, const uint8_t *stored,
                                int64_t first, int64_t rows) {
    for (int64_t i = 0; i < rows; i++) {
        int64_t label = label_at(set, stored + i * set->bytes);
        if (label < 0 || label >= CLASSES)
            return ZONAL_FAIL(ZONAL_FORMAT,
                              "image %lld in %s has label %lld, but Galaxy10 has classes 0 to "
                              "%d; correct it in \"ans\", or get the file again",
                              (long long)(first + i), g->source.path, (long long)label,
                              CLASSES - 1);
        g->source.labels[first + i] = (int32_t)label;
    }
    return ZONAL_OK;
}

static zonal_status read_labels(galaxy10 *g, zonal__hdf5_dataset *set) {
    int64_t step = set->chunk[0] > 0 ? zonal__hdf5_step(set) : LABEL_ROWS, count = g->source.count;
    uint8_t *stored;
    zonal_status status = ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&g->source.labels, count, "the labels"));
    ZONAL_TRY(ZONAL_NEW(&stored, step * set->bytes, "labels"));
    for (int64_t first = 0; status == ZONAL_OK && first < count; first += step) {
        int64_t rows = count - first < step ? count - first : step;
        status = zonal__hdf5_read(set, first, rows, stored);
        if (status == ZONAL_OK) status = take_labels(g, set, stored, first, rows);
    }
    zonal__free(stored);
    return status;
}

static zonal_status check_labels(galaxy10 *g, zonal__hdf5_dataset *set) {
    ZONAL_TRY(check_rank(g, set, 1));
    if (set->shape[0] != g->source.count)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s has %lld images in \"images\", but %lld labels in \"ans\"",
                          g->source.path, (long long)g->source.count, (long long)set->shape[0]);
    if (set->bytes == 0)
        return ZONAL_FAIL(ZONAL_FORMAT, "the labels \"ans\" in %s are not whole numbers",
                          g->source.path);
    return read_labels(g, set);
}

static zonal_status copy_names(galaxy10 *g) {
    const char *const *names = g->images.shape[1] == 69    ? sdss_names
                               : g->images.shape[1] == 256 ? decals_names
                                                           : NULL;
    if (!names) return ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&g->source.class_names, CLASSES, "the names of the classes"));
    for (int c = 0; c < CLASSES; c++) {
        size_t bytes = strlen(names[c]) + 1;
        ZONAL_TRY(ZONAL_NEW(&g->source.class_names[c], bytes, "the name of a class"));
        memcpy(g->source.class_names[c], names[c], bytes);
    }
    return ZONAL_OK;
}

static zonal_status open_images(galaxy10 *g) {
    int64_t room;
    ZONAL_TRY(zonal__hdf5_find(g->file, "images", &g->images));
    ZONAL_TRY(check_images(g));
    g->source.count = g->images.shape[0];
    g->source.height = (int)g->images.shape[1];
    g->source.width = (int)g->images.shape[2];
    g->source.classes = CLASSES;
    room = MOST_SLAB_BYTES / ((int64_t)g->source.height * g->source.width * 3);
    g->slab_rows = zonal__hdf5_step(&g->images);
    if (g->slab_rows > room) g->slab_rows = room;
    g->slab_first = -1;
    return ZONAL_OK;
}

static zonal_status open_file(galaxy10 *g) {
    zonal__hdf5_dataset labels = {0};
    zonal_status status;
    ZONAL_TRY(zonal__hdf5_open(g->source.path, &g->file));
    ZONAL_TRY(open_images(g));
    status = zonal__hdf5_find(g->file, "ans", &labels);
    if (status == ZONAL_OK) status = check_labels(g, &labels);
    zonal__hdf5_fini(&labels);
    ZONAL_TRY(status);
    return zonal__fingerprint_descriptor(g->file->descriptor, g->source.path, FILE_SAMPLES,
                                         &g->fingerprint);
}

static void galaxy10_close(zonal__source *source) {
    galaxy10 *g = (galaxy10 *)source;
    zonal__hdf5_fini(&g->images);
    zonal__hdf5_close(g->file);
    zonal__free(g->slab);
    pthread_mutex_destroy(&g->lock);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Brings the slab that holds image "index" into memory. */
static zonal_status load_slab(galaxy10 *g, int64_t index) {
    int64_t first = index / g->slab_rows * g->slab_rows, left = g->images.shape[0] - first;
    int64_t image = (int64_t)g->source.height * g->source.width;
    if (first == g->slab_first) return ZONAL_OK;
    if (!g->slab)
        ZONAL_TRY(
            zonal__alloc(g->slab_rows * image, 3, "images of a Galaxy10 file", (void **)&g->slab));
    g->slab_first = -1;
    ZONAL_TRY(
        zonal__hdf5_read(&g->images, first, left < g->slab_rows ? left : g->slab_rows, g->slab));
    g->slab_first = first;
    return ZONAL_OK;
}

static zonal_status read_locked(galaxy10 *g, int64_t index, zonal__image *out) {
    zonal__image in_slab = {.width = g->source.width, .height = g->source.height, .channels = 3};
    ZONAL_TRY(load_slab(g, index));
    in_slab.pixels = g->slab + (index - g->slab_first) * g->source.height * g->source.width * 3;
    return zonal__image_convert(&in_slab, g->source.channels, out);
}

static zonal_status galaxy10_read(zonal__source *source, int64_t index, zonal__image *out) {
    galaxy10 *g = (galaxy10 *)source;
    zonal_status status;
    pthread_mutex_lock(&g->lock);
    status = read_locked(g, index, out);
    pthread_mutex_unlock(&g->lock);
    return status;
}

static zonal_status galaxy10_fingerprint(zonal__source *source, int64_t index,
                                         uint64_t *fingerprint) {
    *fingerprint = zonal__fingerprint_element(((const galaxy10 *)source)->fingerprint, index);
    return ZONAL_OK;
}

static const zonal__source_table galaxy10_table = {.kind = "galaxy10",
                                                   .read = galaxy10_read,
                                                   .close = galaxy10_close,
                                                   .fingerprint = galaxy10_fingerprint};

static zonal_status open_galaxy10(galaxy10 *g, const zonal__source_options *options) {
    ZONAL_TRY(zonal__source_init(&g->source, &galaxy10_table, options));
    ZONAL_TRY(open_file(g));
    g->source.channels = options->channels ? options->channels : 3;
    ZONAL_TRY(copy_names(g));
    return zonal__split_keep(&g->source, options, 0);
}

zonal_status zonal__source_galaxy10(const zonal__source_options *options, zonal__source **source) {
    galaxy10 *g;
    zonal_status status;
    *source = NULL;
    ZONAL_TRY(ZONAL_NEW(&g, 1, "a Galaxy10 file"));
    pthread_mutex_init(&g->lock, NULL);
    status = open_galaxy10(g, options);
    if (status == ZONAL_OK)
        *source = &g->source;
    else
        zonal__source_close(&g->source);
    return status;
}
