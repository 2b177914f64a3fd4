/*
 * Galaxy10 SDSS (69 x 69) and Galaxy10 DECaLS (256 x 256): HDF5 files with the datasets
 *
 *     images   uint8   [n][height][width][3]
 *     ans      integer [n], the class from 0 to 9
 *
 * Any other size is read as well; its classes then have no names. The sets have no split of their
 * own, so theirs is the seeded, stratified one.
 *
 * A compressed file is stored in chunks that hold a small tile of many pictures, and one picture
 * can only be had by unpacking all that are stored with it. The reader therefore unpacks a slab,
 * the pictures of one row of chunks, and keeps the latest: going through the set in order unpacks
 * each chunk once. Reading in random order does not; pack such a set first (zonal data pack).
 */
#include <string.h>

#include "core/memory.h"
#include "data/fingerprint.h"
#include "data/source.h"
#include "data/split.h"

#ifdef ZONAL_HAVE_HDF5

#include <errno.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum {
    CLASSES = 10,
    MOST_PICTURES = 1 << 24,   /* a file of a few bytes can claim any number */
    MOST_SLAB_BYTES = 1 << 28, /* of pictures kept unpacked */
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

/* Debian's libhdf5 is not thread-safe, not even between files: one lock for all of them. */
static pthread_mutex_t hdf5_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct galaxy10 {
    zonal__source source;
    hid_t file, images; /* 0: not open */
    hsize_t shape[4];   /* n, height, width, 3 */
    uint8_t *slab;      /* [slab_rows][height][width][3] */
    int64_t slab_rows;
    int64_t slab_first;   /* the first picture in the slab; -1: it is empty */
    uint64_t fingerprint; /* of the file */
} galaxy10;

/* ---- asking the file; the lock is held ------------------------------------------------------- */

/* The names of what lies at the top of the file, for the sentence that misses something there. */
typedef struct listing {
    char text[256];
    size_t length;
} listing;

static herr_t list_one(hid_t group, const char *name, const H5L_info_t *info, void *context) {
    listing *list = context;
    (void)group;
    (void)info;
    if (list->length + strlen(name) + 3 > sizeof list->text) return 1; /* no more of them */
    list->length +=
        (size_t)sprintf(list->text + list->length, "%s%s", list->length ? ", " : "", name);
    return 0;
}

static zonal_status missing(const galaxy10 *g, const char *name) {
    listing list = {"", 0};
    H5Literate(g->file, H5_INDEX_NAME, H5_ITER_INC, NULL, list_one, &list);
    for (size_t i = 0; i < list.length; i++) /* a damaged name may be anything */
        if (list.text[i] < ' ' || list.text[i] > '~') list.text[i] = '?';
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "%s has no dataset \"%s\", so it is no Galaxy10 file; what it has is: %s",
                      g->source.path, name, list.text[0] ? list.text : "nothing");
}

/* Opens a dataset and gives its shape; *dataset is to be closed unless this fails. */
static zonal_status open_dataset(const galaxy10 *g, const char *name, int rank, hsize_t *shape,
                                 hid_t *dataset) {
    hid_t space;
    int found;
    if (H5Lexists(g->file, name, H5P_DEFAULT) <= 0) return missing(g, name);
    *dataset = H5Dopen2(g->file, name, H5P_DEFAULT);
    if (*dataset < 0)
        return ZONAL_FAIL(ZONAL_FORMAT, "\"%s\" in %s is damaged or no dataset; get the file again",
                          name, g->source.path);
    space = H5Dget_space(*dataset);
    found = H5Sget_simple_extent_ndims(space);
    if (found == rank) H5Sget_simple_extent_dims(space, shape, NULL);
    H5Sclose(space);
    if (found == rank) return ZONAL_OK;
    H5Dclose(*dataset);
    return ZONAL_FAIL(ZONAL_FORMAT, "\"%s\" in %s has %d dimensions, but %d are expected", name,
                      g->source.path, found, rank);
}

static int has_integers(hid_t dataset) {
    hid_t type = H5Dget_type(dataset);
    int yes = H5Tget_class(type) == H5T_INTEGER;
    H5Tclose(type);
    return yes;
}

static int has_uint8(hid_t dataset) {
    hid_t type = H5Dget_type(dataset);
    int yes = H5Tget_class(type) == H5T_INTEGER && H5Tget_size(type) == 1 &&
              H5Tget_sign(type) == H5T_SGN_NONE;
    H5Tclose(type);
    return yes;
}

static zonal_status check_images(const galaxy10 *g) {
    const hsize_t *shape = g->shape;
    if (!has_uint8(g->images))
        return ZONAL_FAIL(
            ZONAL_FORMAT,
            "\"images\" in %s has elements of another type than uint8, which Galaxy10 "
            "files have",
            g->source.path);
    if (shape[0] < 1 || shape[0] > MOST_PICTURES || shape[1] < 1 || shape[2] < 1 ||
        shape[1] > ZONAL__IMAGE_SIDE || shape[2] > ZONAL__IMAGE_SIDE ||
        shape[1] * shape[2] * 3 > MOST_SLAB_BYTES || shape[3] != 3)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "\"images\" in %s has the shape [%llu][%llu][%llu][%llu], but "
                          "[n][height][width][3] is expected",
                          g->source.path, (unsigned long long)shape[0],
                          (unsigned long long)shape[1], (unsigned long long)shape[2],
                          (unsigned long long)shape[3]);
    return ZONAL_OK;
}

/* The sides of a dataset's chunks; 1 where it is not stored in chunks. A chunk never exceeds a
 * dimension of fixed size. libhdf5 1.10 does not insist on that, and reads beyond its own memory
 * when damage has made a chunk larger than what was stored. */
static zonal_status check_chunks(const galaxy10 *g, const char *name, hid_t dataset, int rank,
                                 hsize_t chunk[4]) {
    hsize_t most[4];
    hid_t list = H5Dget_create_plist(dataset), space = H5Dget_space(dataset);
    for (int i = 0; i < 4; i++) chunk[i] = most[i] = 1;
    H5Sget_simple_extent_dims(space, NULL, most);
    if (H5Pget_layout(list) == H5D_CHUNKED) H5Pget_chunk(list, rank, chunk);
    H5Sclose(space);
    H5Pclose(list);
    for (int i = 0; i < rank; i++)
        if (chunk[i] < 1 || (chunk[i] > most[i] && most[i] != H5S_UNLIMITED))
            return ZONAL_FAIL(ZONAL_FORMAT,
                              "\"%s\" in %s is damaged: its chunks are larger than all of it; get "
                              "the file again",
                              name, g->source.path);
    return ZONAL_OK;
}

static zonal_status read_labels(galaxy10 *g, hid_t dataset, hsize_t count) {
    zonal__source *source = &g->source;
    hsize_t chunk[4];
    if (count != g->shape[0])
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s has %llu pictures in \"images\", but %llu labels in \"ans\"",
                          source->path, (unsigned long long)g->shape[0], (unsigned long long)count);
    if (!has_integers(dataset))
        return ZONAL_FAIL(ZONAL_FORMAT, "the labels \"ans\" in %s are not whole numbers",
                          source->path);
    ZONAL_TRY(check_chunks(g, "ans", dataset, 1, chunk));
    ZONAL_TRY(ZONAL_NEW(&source->labels, source->count, "the labels"));
    if (H5Dread(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, source->labels) < 0)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "the labels \"ans\" in %s cannot be read; get the file again",
                          source->path);
    for (int64_t i = 0; i < source->count; i++)
        if (source->labels[i] < 0 || source->labels[i] >= CLASSES)
            return ZONAL_FAIL(ZONAL_FORMAT,
                              "picture %lld in %s has label %d, but Galaxy10 has classes 0 to %d",
                              (long long)i, source->path, (int)source->labels[i], CLASSES - 1);
    return ZONAL_OK;
}

/* Finds how many pictures a row of chunks holds. */
static zonal_status measure_slab(galaxy10 *g) {
    hsize_t chunk[4], room = MOST_SLAB_BYTES / (g->shape[1] * g->shape[2] * g->shape[3]);
    ZONAL_TRY(check_chunks(g, "images", g->images, 4, chunk));
    if (chunk[0] > g->shape[0]) chunk[0] = g->shape[0];
    g->slab_rows = (int64_t)(chunk[0] < room ? chunk[0] : room);
    return ZONAL_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static zonal_status open_file(galaxy10 *g) {
    const char *path = g->source.path;
    if (access(path, R_OK) != 0)
        return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s", path, strerror(errno));
    g->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (g->file >= 0) return ZONAL_OK;
    g->file = 0;
    return ZONAL_FAIL(
        ZONAL_FORMAT,
        "%s cannot be opened as an HDF5 file: it is of another kind or cut short; get "
        "it again",
        path);
}

static zonal_status copy_names(galaxy10 *g) {
    const char *const *names = g->shape[1] == 69    ? sdss_names
                               : g->shape[1] == 256 ? decals_names
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
    hid_t images;
    ZONAL_TRY(open_dataset(g, "images", 4, g->shape, &images));
    g->images = images;
    ZONAL_TRY(check_images(g));
    g->source.count = (int64_t)g->shape[0];
    g->source.height = (int)g->shape[1];
    g->source.width = (int)g->shape[2];
    g->source.classes = CLASSES;
    ZONAL_TRY(measure_slab(g));
    g->slab_first = -1;
    return zonal__alloc(g->slab_rows * g->source.height * g->source.width, 3,
                        "pictures of a Galaxy10 file", (void **)&g->slab);
}

static zonal_status open_locked(galaxy10 *g) {
    hid_t labels;
    hsize_t count;
    zonal_status status;
    ZONAL_TRY(open_file(g));
    ZONAL_TRY(open_images(g));
    ZONAL_TRY(open_dataset(g, "ans", 1, &count, &labels));
    status = read_labels(g, labels, count);
    H5Dclose(labels);
    return status;
}

/* HDF5 prints its errors unless it is told not to. It is told for good: after a damaged file it has
 * something to print even when the program ends. */
static zonal_status open_quietly(galaxy10 *g) {
    zonal_status status;
    pthread_mutex_lock(&hdf5_lock);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    status = open_locked(g);
    pthread_mutex_unlock(&hdf5_lock);
    return status;
}

static void galaxy10_close(zonal__source *source) {
    galaxy10 *g = (galaxy10 *)source;
    pthread_mutex_lock(&hdf5_lock);
    if (g->images) H5Dclose(g->images);
    if (g->file) H5Fclose(g->file);
    pthread_mutex_unlock(&hdf5_lock);
    zonal__free(g->slab);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Brings the slab that holds picture "index" into memory. */
static zonal_status load_slab(galaxy10 *g, int64_t index) {
    int64_t first = index / g->slab_rows * g->slab_rows;
    hsize_t left = g->shape[0] - (hsize_t)first, rows = (hsize_t)g->slab_rows;
    hsize_t start[4] = {(hsize_t)first, 0, 0, 0};
    hsize_t count[4] = {rows < left ? rows : left, g->shape[1], g->shape[2], 3};
    hid_t in_file, in_memory;
    herr_t error;
    if (first == g->slab_first) return ZONAL_OK;
    g->slab_first = -1;
    in_file = H5Dget_space(g->images);
    in_memory = H5Screate_simple(4, count, NULL);
    H5Sselect_hyperslab(in_file, H5S_SELECT_SET, start, NULL, count, NULL);
    error = H5Dread(g->images, H5T_NATIVE_UINT8, in_memory, in_file, H5P_DEFAULT, g->slab);
    H5Sclose(in_memory);
    H5Sclose(in_file);
    if (error < 0)
        return ZONAL_FAIL(ZONAL_FORMAT, "picture %lld of %s cannot be read; get the file again",
                          (long long)index, g->source.path);
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
    zonal_status status;
    pthread_mutex_lock(&hdf5_lock);
    status = read_locked((galaxy10 *)source, index, out);
    pthread_mutex_unlock(&hdf5_lock);
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
    ZONAL_TRY(open_quietly(g));
    ZONAL_TRY(zonal__fingerprint_file(g->source.path, FILE_SAMPLES, &g->fingerprint));
    g->source.channels = options->channels ? options->channels : 3;
    ZONAL_TRY(copy_names(g));
    return zonal__split_keep(&g->source, options, 0);
}

zonal_status zonal__source_galaxy10(const zonal__source_options *options, zonal__source **source) {
    galaxy10 *g;
    zonal_status status;
    *source = NULL;
    ZONAL_TRY(ZONAL_NEW(&g, 1, "a Galaxy10 file"));
    status = open_galaxy10(g, options);
    if (status == ZONAL_OK)
        *source = &g->source;
    else
        zonal__source_close(&g->source);
    return status;
}

#else

zonal_status zonal__source_galaxy10(const zonal__source_options *options, zonal__source **source) {
    *source = NULL;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                      "cannot read %s: this build has no HDF5; install libhdf5-dev and build again",
                      options->path);
}

#endif
