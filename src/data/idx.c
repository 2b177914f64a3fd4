/*
 * MNIST, Fashion-MNIST and their like: idx files, plain or packed by gzip. All numbers are
 * big-endian:
 *
 *     images     00 00 08 03, u32 n, u32 height, u32 width, then u8 [n][height][width]
 *     labels     00 00 08 01, u32 n, then u8 [n]
 *
 * The path is a folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-... and
 * t10k-labels-..., each with or without .gz, or one such file of images, whose labels lie beside
 * it. There are 10 classes, or more where a label says so.
 *
 * Splits: of a folder, test is t10k, val a share of train that is drawn (a tenth unless
 * val_share or test_share is given), train the rest of it, and all everything, train first. One
 * file is split as a whole into the three.
 *
 * The images are kept in memory: 47 MB for the 60,000 of MNIST. A packed file may not claim more
 * than 100 times its size (and 64 MiB).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checksum.h"
#include "core/memory.h"
#include "core/text.h"
#include "data/source.h"
#include "data/split.h"

#ifdef ZONAL_HAVE_ZLIB
#include <zlib.h>
#else
typedef void *gzFile;
#endif

enum {
    FEWEST_CLASSES = 10,
    LARGEST_STEP = 1 << 30,  /* of one call to the library */
    BEST_PACKING = 100,      /* MNIST packs 5 to 1; what packs better than this is no images ... */
    ALWAYS_ALLOWED = 1 << 26 /* ... but a few bytes more do no harm */
};

/* ---- a file, plain or packed ----------------------------------------------------------------- */

typedef struct input {
    char path[PATH_MAX];
    FILE *plain;
    gzFile packed; /* NULL: plain is open */
    int64_t most;  /* bytes that the file can hold when it is unpacked */
} input;

static zonal_status cannot_read(const input *in, int error) {
    return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s", in->path, strerror(error));
}

static zonal_status damaged(const input *in, const char *what) {
    return ZONAL_FAIL(ZONAL_FORMAT, "%s is damaged: %s; get the file again", in->path, what);
}

static void input_close(input *in) {
    if (in->plain) fclose(in->plain);
#ifdef ZONAL_HAVE_ZLIB
    if (in->packed) gzclose_r(in->packed);
#endif
    in->plain = NULL;
    in->packed = NULL;
}

static zonal_status open_packed(input *in) {
#ifdef ZONAL_HAVE_ZLIB
    int descriptor = dup(fileno(in->plain));
    if (descriptor < 0) return cannot_read(in, errno);
    if (lseek(descriptor, 0, SEEK_SET) != 0) {
        int error = errno;
        close(descriptor);
        return cannot_read(in, error);
    }
    in->packed = gzdopen(descriptor, "rb");
    if (!in->packed) {
        close(descriptor);
        return ZONAL_FAIL(ZONAL_MEMORY, "out of memory: zlib");
    }
    in->most = in->most * BEST_PACKING + ALWAYS_ALLOWED;
    return ZONAL_OK;
#else
    return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                      "cannot read %s: this build cannot unpack gzip; unpack it with gunzip, or "
                      "install zlib1g-dev and build again",
                      in->path);
#endif
}

/* NULL with errno where it cannot be read. */
static FILE *open_stream(const char *path) {
    /* O_NONBLOCK: opening a named pipe must not wait for a writer. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *stream = descriptor < 0 ? NULL : fdopen(descriptor, "rb");
    if (!stream && descriptor >= 0) close(descriptor);
    return stream;
}

/* Opens in->path; whether it is packed is told by its first two bytes. */
static zonal_status input_open(input *in) {
    uint8_t first[2] = {0, 0};
    struct stat state;
    in->packed = NULL;
    in->plain = open_stream(in->path);
    if (!in->plain || fstat(fileno(in->plain), &state) != 0) return cannot_read(in, errno);
    if (!S_ISREG(state.st_mode))
        return ZONAL_FAIL(ZONAL_IO, "%s is not a file; give an idx file or its folder", in->path);
    in->most = state.st_size;
    if (fread(first, 1, 2, in->plain) == 2 && first[0] == 0x1f && first[1] == 0x8b)
        return open_packed(in);
    rewind(in->plain);
    return ZONAL_OK;
}

#ifdef ZONAL_HAVE_ZLIB
/* At the end of what could be unpacked: to zlib a file that was cut off is no error of reading. */
static zonal_status check_end(input *in) {
    int error;
    gzerror(in->packed, &error);
    return error == Z_OK || error == Z_STREAM_END ? ZONAL_OK : damaged(in, "it is cut short");
}
#endif

/* Up to "bytes" bytes; *got is less at the end of the file only. */
static zonal_status input_read(input *in, void *out, int64_t bytes, int64_t *got) {
    *got = 0;
    if (!in->packed) {
        *got = (int64_t)fread(out, 1, (size_t)bytes, in->plain);
        return ferror(in->plain) ? cannot_read(in, errno) : ZONAL_OK;
    }
#ifdef ZONAL_HAVE_ZLIB
    while (*got < bytes) {
        int64_t left = bytes - *got;
        int step = gzread(in->packed, (uint8_t *)out + *got,
                          (unsigned)(left < LARGEST_STEP ? left : LARGEST_STEP));
        if (step < 0) return damaged(in, "it cannot be unpacked");
        if (step == 0) return check_end(in);
        *got += step;
    }
#endif
    return ZONAL_OK;
}

/* ---- the format ------------------------------------------------------------------------------ */

static uint32_t big_endian(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static zonal_status read_sizes(input *in, int rank, uint32_t *size) {
    uint8_t head[4 + 3 * 4];
    int64_t got, wanted = 4 + 4 * rank;
    ZONAL_TRY(input_read(in, head, wanted, &got));
    if (got < 4 || head[0] != 0 || head[1] != 0)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is not an idx file: it does not begin with two zeros; get it "
                          "again",
                          in->path);
    if (head[2] != 8 || head[3] != rank)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s holds an idx array of type %d with %d dimensions, but type 8 (bytes) "
                          "with %d is expected; give one of %s",
                          in->path, head[2], head[3], rank,
                          rank == 1 ? "labels (idx1-ubyte)" : "images (idx3-ubyte)");
    if (got < wanted) return damaged(in, "it ends within its header");
    for (int i = 0; i < rank; i++) size[i] = big_endian(head + 4 + 4 * i);
    return ZONAL_OK;
}

/* Whether the file can hold as many bytes: asked before memory is allocated for them. */
static zonal_status check_claim(const input *in, int64_t bytes) {
    if (bytes <= in->most) return ZONAL_OK;
    if (!in->packed) return damaged(in, "it is shorter than its header says");
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "%s claims to unpack to %lld bytes, far more than images of its size do; get "
                      "the file again, or unpack it with gunzip",
                      in->path, (long long)bytes);
}

/* Reads the elements behind the header: no more are asked for than the file can hold. */
static zonal_status read_elements(input *in, int64_t bytes, uint8_t *out) {
    uint8_t beyond;
    int64_t got;
    ZONAL_TRY(input_read(in, out, bytes, &got));
    if (got < bytes) return damaged(in, "it is shorter than its header says");
    ZONAL_TRY(input_read(in, &beyond, 1, &got));
    return got == 0 ? ZONAL_OK : damaged(in, "it is longer than its header says");
}

/* ---- the source ------------------------------------------------------------------------------ */

/* One file of images with its labels. */
typedef struct part {
    const char *name;     /* of the file, without .gz; empty: there is one only */
    int64_t first, count; /* images */
    uint8_t *pixels;      /* [count][height][width] */
    uint8_t *labels;      /* [count] */
} part;

typedef struct idx {
    zonal__source source;
    int parts;
    part part[2];
} idx;

static const part *part_of(const idx *set, int64_t index) {
    return &set->part[set->parts > 1 && index >= set->part[1].first];
}

static zonal_status idx_read(zonal__source *source, int64_t index, zonal__image *out) {
    const idx *set = (const idx *)source;
    const part *p = part_of(set, index);
    zonal__image stored = {
        .width = source->width,
        .height = source->height,
        .channels = 1,
        .pixels = p->pixels + (index - p->first) * source->height * source->width,
    };
    return zonal__image_convert(&stored, source->channels, out);
}

static void idx_close(zonal__source *source) {
    idx *set = (idx *)source;
    for (int i = 0; i < set->parts; i++) {
        zonal__free(set->part[i].pixels);
        zonal__free(set->part[i].labels);
    }
}

static void idx_name(const zonal__source *source, int64_t index, char name[ZONAL__NAME_ROOM]) {
    const part *p = part_of((const idx *)source, index);
    snprintf(name, ZONAL__NAME_ROOM, "%s%sindex %lld", p->name, p->name[0] ? " " : "",
             (long long)(index - p->first));
}

static zonal_status idx_fingerprint(zonal__source *source, int64_t index, uint64_t *fingerprint) {
    const part *p = part_of((const idx *)source, index);
    size_t bytes = (size_t)source->height * (size_t)source->width;
    *fingerprint = zonal__checksum_of(p->pixels + (size_t)(index - p->first) * bytes, bytes);
    return ZONAL_OK;
}

static const zonal__source_table idx_table = {.kind = "idx",
                                              .read = idx_read,
                                              .close = idx_close,
                                              .name = idx_name,
                                              .fingerprint = idx_fingerprint};

static zonal_status load_images(idx *set, input *in, part *p) {
    zonal__source *source = &set->source;
    uint32_t size[3] = {0};
    int64_t bytes;
    ZONAL_TRY(read_sizes(in, 3, size));
    if (size[0] < 1 || size[1] < 1 || size[2] < 1 || size[1] > ZONAL__IMAGE_SIDE ||
        size[2] > ZONAL__IMAGE_SIDE || (int64_t)size[1] * size[2] > ZONAL__IMAGE_AREA)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s claims %u images of %u x %u pixels; get the file again",
                          in->path, size[0], size[2], size[1]);
    if (source->count > 0 && ((int)size[1] != source->height || (int)size[2] != source->width))
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "the images of %s have %u x %u pixels, but those of train %d x %d; "
                          "get both files again",
                          in->path, size[2], size[1], source->width, source->height);
    bytes = (int64_t)size[0] * (size[1] * size[2]);
    ZONAL_TRY(check_claim(in, bytes));
    p->first = source->count;
    p->count = size[0];
    source->count += p->count;
    source->height = (int)size[1];
    source->width = (int)size[2];
    ZONAL_TRY(ZONAL_NEW(&p->pixels, bytes, "the images of an idx file"));
    return read_elements(in, bytes, p->pixels);
}

/* p->count is that of the images; 0: not known. */
static zonal_status load_labels(input *in, part *p) {
    uint32_t count = 0;
    ZONAL_TRY(read_sizes(in, 1, &count));
    if (p->count > 0 && count != p->count)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s has %u label%s, but there %s %lld image%s; get both files again",
                          in->path, count, zonal__text_plural(count), p->count == 1 ? "is" : "are",
                          (long long)p->count, zonal__text_plural(p->count));
    ZONAL_TRY(check_claim(in, count));
    p->count = count;
    ZONAL_TRY(ZONAL_NEW(&p->labels, count, "labels"));
    return read_elements(in, count, p->labels);
}

static int exists(const char *path) {
    return access(path, F_OK) == 0;
}

/* Makes "path" name an existing file by adding or taking away .gz; 0: neither is there. */
static int settle_suffix(char *path, size_t room) {
    size_t length = strlen(path);
    if (exists(path)) return 1;
    if (length > 3 && strcmp(path + length - 3, ".gz") == 0)
        path[length - 3] = '\0';
    else if (length + 4 <= room)
        strcat(path, ".gz");
    return exists(path);
}

/* Turns the path of images into that of their labels: images to labels, idx3 to idx1. */
static zonal_status name_labels(input *in) {
    char *slash = strrchr(in->path, '/'), *name = slash ? slash + 1 : in->path;
    char *images = strstr(name, "images"), *rank = strstr(name, "idx3");
    if (!images || !rank)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "%s must be named like train-images-idx3-ubyte, so that its labels, "
                          "train-labels-idx1-ubyte, can be found beside it",
                          in->path);
    memcpy(images, "labels", 6);
    memcpy(rank, "idx1", 4);
    if (!settle_suffix(in->path, sizeof in->path))
        return ZONAL_FAIL(
            ZONAL_IO, "the labels %s are missing, packed (.gz) or not; put them beside the images",
            in->path);
    return ZONAL_OK;
}

/* Loads the file of images in->path and its labels. */
static zonal_status load_part(idx *set, input *in, const char *name) {
    part *p = &set->part[set->parts++];
    zonal_status status = input_open(in);
    p->name = name;
    if (status == ZONAL_OK) status = load_images(set, in, p);
    input_close(in);
    if (status != ZONAL_OK) return status;
    ZONAL_TRY(name_labels(in));
    status = input_open(in);
    if (status == ZONAL_OK) status = load_labels(in, p);
    input_close(in);
    return status;
}

static zonal_status name_file(input *in, const char *path, const char *name) {
    int length = snprintf(in->path, sizeof in->path, "%s%s%s", path, name[0] ? "/" : "", name);
    if (length < 0 || (size_t)length >= sizeof in->path)
        return ZONAL_FAIL(ZONAL_IO, "cannot read %s: the path is too long", path);
    return ZONAL_OK;
}

static void count_classes(zonal__source *source, const part *p) {
    for (int64_t k = 0; k < p->count; k++)
        if (p->labels[k] >= source->classes) source->classes = p->labels[k] + 1;
}

/* All parts of a folder have the same classes: the labels of one that is not read count too, if
 * they are there. */
static zonal_status count_other_classes(idx *set, input *in, const char *folder, const char *name) {
    part other = {0};
    zonal_status status;
    ZONAL_TRY(name_file(in, folder, name));
    if (!settle_suffix(in->path, sizeof in->path) || name_labels(in) != ZONAL_OK) return ZONAL_OK;
    status = input_open(in);
    if (status == ZONAL_OK) status = load_labels(in, &other);
    input_close(in);
    if (status == ZONAL_OK) count_classes(&set->source, &other);
    zonal__free(other.labels);
    return status;
}

static zonal_status load_from_folder(idx *set, input *in, const zonal__source_options *options) {
    static const char *const names[] = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"};
    for (int test = 0; test < 2; test++) {
        if (options->split != ZONAL__SPLIT_ALL && test != (options->split == ZONAL__SPLIT_TEST)) {
            ZONAL_TRY(count_other_classes(set, in, options->path, names[test]));
            continue;
        }
        ZONAL_TRY(name_file(in, options->path, names[test]));
        if (!settle_suffix(in->path, sizeof in->path))
            return ZONAL_FAIL(ZONAL_IO, "%s has no file %s, packed (.gz) or not; put it there",
                              options->path, names[test]);
        ZONAL_TRY(load_part(set, in, names[test]));
    }
    return ZONAL_OK;
}

static zonal_status join_labels(idx *set) {
    zonal__source *source = &set->source;
    ZONAL_TRY(ZONAL_NEW(&source->labels, source->count, "the labels"));
    for (int i = 0; i < set->parts; i++) {
        part *p = &set->part[i];
        for (int64_t k = 0; k < p->count; k++) source->labels[p->first + k] = p->labels[k];
        count_classes(source, p);
    }
    return ZONAL_OK;
}

static zonal_status open_idx(idx *set, const zonal__source_options *options) {
    struct stat state;
    int folder = stat(options->path, &state) == 0 && S_ISDIR(state.st_mode);
    input *in;
    zonal_status status;
    ZONAL_TRY(zonal__source_init(&set->source, &idx_table, options));
    set->source.classes = FEWEST_CLASSES;
    ZONAL_TRY(ZONAL_NEW(&in, 1, "an idx file"));
    if (folder)
        status = load_from_folder(set, in, options);
    else if ((status = name_file(in, options->path, "")) == ZONAL_OK)
        status = load_part(set, in, "");
    zonal__free(in);
    ZONAL_TRY(status);
    set->source.channels = options->channels ? options->channels : 1;
    ZONAL_TRY(join_labels(set));
    if (folder && options->split == ZONAL__SPLIT_TEST) return ZONAL_OK;
    return zonal__split_keep(&set->source, options, folder);
}

zonal_status zonal__source_idx(const zonal__source_options *options, zonal__source **source) {
    idx *set;
    zonal_status status;
    *source = NULL;
    ZONAL_TRY(ZONAL_NEW(&set, 1, "an idx set"));
    status = open_idx(set, options);
    if (status == ZONAL_OK)
        *source = &set->source;
    else
        zonal__source_close(&set->source);
    return status;
}
