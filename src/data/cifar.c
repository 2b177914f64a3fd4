/*
 * CIFAR-10 and CIFAR-100, the binary versions: a folder with
 *
 *     CIFAR-10     data_batch_1.bin ... data_batch_5.bin, test_batch.bin; batches.meta.txt
 *     CIFAR-100    train.bin, test.bin; fine_label_names.txt
 *
 * Each file is a row of records: the label (CIFAR-100: the coarse label, which is not used, then
 * the fine one), one byte each, and the pixels, uint8 [3][32][32]. The text files have the names of
 * the classes, one per line; without them the classes have numbers only.
 *
 * Splits: test is the set's own. Val is a share of the training images that is drawn (a
 * tenth unless val_share or test_share is given), and train is the rest of them. All is everything,
 * the training images first.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checksum.h"
#include "core/memory.h"
#include "data/source.h"
#include "data/split.h"

enum { SIDE = 32, PLANE = SIDE * SIDE, PIXELS = 3 * PLANE, MOST_FILES = 6 };

typedef struct version {
    zonal__source_table table;
    int classes;
    int label_bytes;                   /* the last of them is the label */
    const char *files[MOST_FILES + 1]; /* the last one is the test's; NULL: no more */
    const char *names;
} version;

typedef struct cifar {
    zonal__source source;
    const version *version;
    int files;
    struct {
        int descriptor;
        int64_t first; /* the number of its first record */
        const char *name;
    } file[MOST_FILES];
} cifar;

static size_t record_bytes(const version *v) {
    return (size_t)v->label_bytes + PIXELS;
}

static zonal_status cannot_read(const cifar *c, const char *name, int error) {
    return ZONAL_FAIL(ZONAL_IO, "cannot read %s/%s: %s", c->source.path, name, strerror(error));
}

/* Reads "bytes" bytes at "offset"; the file was long enough when it was opened. */
static zonal_status read_at(const cifar *c, int file, off_t offset, uint8_t *out, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t got =
            pread(c->file[file].descriptor, out + done, bytes - done, offset + (off_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cannot_read(c, c->file[file].name, errno);
        if (got == 0)
            return ZONAL_FAIL(ZONAL_IO, "%s/%s was truncated while it was read", c->source.path,
                              c->file[file].name);
        done += (size_t)got;
    }
    return ZONAL_OK;
}

static int file_of(const cifar *c, int64_t index) {
    int file = c->files - 1;
    while (c->file[file].first > index) file--;
    return file;
}

static zonal_status read_planes(const cifar *c, int64_t index, uint8_t planes[PIXELS]) {
    int file = file_of(c, index);
    off_t record = (off_t)(index - c->file[file].first) * (off_t)record_bytes(c->version);
    return read_at(c, file, record + c->version->label_bytes, planes, PIXELS);
}

static zonal_status cifar_read(zonal__source *source, int64_t index, zonal__image *out) {
    uint8_t planes[PIXELS], pixels[PIXELS];
    zonal__image image = {.width = SIDE, .height = SIDE, .channels = 3, .pixels = pixels};
    ZONAL_TRY(read_planes((const cifar *)source, index, planes));
    for (int i = 0; i < PLANE; i++)
        for (int k = 0; k < 3; k++) pixels[3 * i + k] = planes[k * PLANE + i];
    return zonal__image_convert(&image, source->channels, out);
}

static void cifar_close(zonal__source *source) {
    cifar *c = (cifar *)source;
    for (int i = 0; i < c->files; i++) close(c->file[i].descriptor);
}

static void cifar_name(const zonal__source *source, int64_t index, char name[ZONAL__NAME_ROOM]) {
    const cifar *c = (const cifar *)source;
    int file = file_of(c, index);
    snprintf(name, ZONAL__NAME_ROOM, "%s index %lld", c->file[file].name,
             (long long)(index - c->file[file].first));
}

static zonal_status cifar_fingerprint(zonal__source *source, int64_t index, uint64_t *fingerprint) {
    uint8_t planes[PIXELS];
    ZONAL_TRY(read_planes((const cifar *)source, index, planes));
    *fingerprint = zonal__checksum_of(planes, sizeof planes);
    return ZONAL_OK;
}

#define CIFAR_TABLE(what)                                                                          \
    {                                                                                              \
        .kind = what, .read = cifar_read, .close = cifar_close, .name = cifar_name,                \
        .fingerprint = cifar_fingerprint                                                           \
    }

static const version cifar10 = {
    .table = CIFAR_TABLE("cifar10"),
    .classes = 10,
    .label_bytes = 1,
    .files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
              "data_batch_5.bin", "test_batch.bin"},
    .names = "batches.meta.txt",
};

static const version cifar100 = {
    .table = CIFAR_TABLE("cifar100"),
    .classes = 100,
    .label_bytes = 2,
    .files = {"train.bin", "test.bin"},
    .names = "fine_label_names.txt",
};

/* ---- opening --------------------------------------------------------------------------------- */

/* Opens a file of records and counts them. */
static zonal_status open_file(cifar *c, int folder, const char *name) {
    size_t record = record_bytes(c->version);
    struct stat state;
    int descriptor = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return cannot_read(c, name, errno);
    c->file[c->files].descriptor = descriptor;
    c->file[c->files].first = c->source.count;
    c->file[c->files].name = name;
    c->files++;
    if (fstat(descriptor, &state) != 0) return cannot_read(c, name, errno);
    if (state.st_size < 1 || (uint64_t)state.st_size % record != 0)
        return ZONAL_FAIL(
            ZONAL_FORMAT,
            "%s/%s has %lld bytes, which is not a whole number of records of %zu bytes; "
            "get the file again",
            c->source.path, name, (long long)state.st_size, record);
    c->source.count += state.st_size / (off_t)record;
    return ZONAL_OK;
}

static zonal_status open_files(cifar *c, int folder, zonal__split split) {
    for (int i = 0; c->version->files[i]; i++) {
        int test = !c->version->files[i + 1];
        if (split == ZONAL__SPLIT_ALL || test == (split == ZONAL__SPLIT_TEST))
            ZONAL_TRY(open_file(c, folder, c->version->files[i]));
    }
    return ZONAL_OK;
}

static zonal_status read_labels(cifar *c) {
    const version *v = c->version;
    ZONAL_TRY(ZONAL_NEW(&c->source.labels, c->source.count, "the labels"));
    for (int f = 0; f < c->files; f++) {
        int64_t end = f + 1 < c->files ? c->file[f + 1].first : c->source.count;
        for (int64_t i = c->file[f].first; i < end; i++) {
            int64_t record = i - c->file[f].first;
            uint8_t label;
            ZONAL_TRY(read_at(c, f, (off_t)record * (off_t)record_bytes(v) + v->label_bytes - 1,
                              &label, 1));
            if (label >= v->classes)
                return ZONAL_FAIL(
                    ZONAL_FORMAT,
                    "record %lld of %s/%s has label %d, but there are %d classes; get "
                    "the file again",
                    (long long)record, c->source.path, c->file[f].name, label, v->classes);
            c->source.labels[i] = label;
        }
    }
    return ZONAL_OK;
}

static zonal_status wrong_names(const cifar *c) {
    return ZONAL_FAIL(
        ZONAL_FORMAT,
        "%s/%s must have the names of %d classes, one per line; get the file again or "
        "remove it",
        c->source.path, c->version->names, c->version->classes);
}

/* One name per line; blank lines do not count. */
static zonal_status parse_names(cifar *c, FILE *stream) {
    char line[256];
    int found = 0;
    ZONAL_TRY(ZONAL_NEW(&c->source.class_names, c->version->classes, "the names of the classes"));
    while (fgets(line, sizeof line, stream)) {
        size_t length = strcspn(line, "\r\n");
        if (length == 0) continue;
        if (length == sizeof line - 1 || found == c->version->classes) return wrong_names(c);
        line[length] = '\0';
        ZONAL_TRY(ZONAL_NEW(&c->source.class_names[found], length + 1, "the name of a class"));
        memcpy(c->source.class_names[found++], line, length + 1);
    }
    if (ferror(stream)) return cannot_read(c, c->version->names, errno);
    return found == c->version->classes ? ZONAL_OK : wrong_names(c);
}

static zonal_status read_names(cifar *c, int folder) {
    int descriptor = openat(folder, c->version->names, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *stream;
    zonal_status status;
    if (descriptor < 0 && errno == ENOENT) return ZONAL_OK;
    stream = descriptor < 0 ? NULL : fdopen(descriptor, "r");
    if (!stream) {
        int error = errno;
        if (descriptor >= 0) close(descriptor);
        return cannot_read(c, c->version->names, error);
    }
    status = parse_names(c, stream);
    fclose(stream);
    return status;
}

/* The version of which the folder has a file; NULL where it has none. */
static const version *find_version(int folder) {
    const version *const versions[] = {&cifar10, &cifar100};
    for (int v = 0; v < 2; v++)
        for (int i = 0; versions[v]->files[i]; i++)
            if (faccessat(folder, versions[v]->files[i], F_OK, 0) == 0) return versions[v];
    return NULL;
}

static zonal_status open_cifar(cifar *c, int folder, const zonal__source_options *options) {
    ZONAL_TRY(zonal__source_init(&c->source, &c->version->table, options));
    ZONAL_TRY(open_files(c, folder, options->split));
    c->source.classes = c->version->classes;
    c->source.width = c->source.height = SIDE;
    c->source.channels = options->channels ? options->channels : 3;
    ZONAL_TRY(read_labels(c));
    ZONAL_TRY(read_names(c, folder));
    return options->split == ZONAL__SPLIT_TEST ? ZONAL_OK
                                               : zonal__split_keep(&c->source, options, 1);
}

static zonal_status create_cifar(int folder, const zonal__source_options *options,
                                 zonal__source **source) {
    const version *found = find_version(folder);
    cifar *c;
    zonal_status status;
    if (!found)
        return ZONAL_FAIL(ZONAL_IO,
                          "%s has no CIFAR files; data_batch_1.bin ... data_batch_5.bin and "
                          "test_batch.bin, or train.bin and test.bin, are expected there",
                          options->path);
    ZONAL_TRY(ZONAL_NEW(&c, 1, "a CIFAR set"));
    c->version = found;
    status = open_cifar(c, folder, options);
    if (status == ZONAL_OK)
        *source = &c->source;
    else
        zonal__source_close(&c->source);
    return status;
}

zonal_status zonal__source_cifar(const zonal__source_options *options, zonal__source **source) {
    int folder = open(options->path, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    zonal_status status;
    *source = NULL;
    if (folder < 0)
        return ZONAL_FAIL(ZONAL_IO, "cannot read the folder %s: %s", options->path,
                          strerror(errno));
    status = create_cifar(folder, options, source);
    close(folder);
    return status;
}
