/*
 * What all sources of images have in common, and telling which kind of source lies at a path.
 */
#include "data/source.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/random.h"
#include "data/class_list.h"
#include "data/fingerprint.h"
#include "data/pack.h"

static const double USUAL_BAD_LIMIT = 0.01;

zonal_status zonal__source_init(zonal__source *source, const zonal__source_table *table,
                                const zonal__source_options *options) {
    size_t length = strlen(options->path) + 1;
    source->table = table;
    source->channels = options->channels;
    source->max_corrupt = options->max_corrupt == 0 ? USUAL_BAD_LIMIT : options->max_corrupt;
    if (options->channels != 0 && options->channels != 1 && options->channels != 3)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "images have 1 or 3 channels, not %d", options->channels);
    if (!(source->max_corrupt >= 0 && source->max_corrupt <= 1))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the share of corrupt images to accept must be from 0 to 1, got %g",
                          source->max_corrupt);
    ZONAL_TRY(ZONAL_NEW(&source->path, length, "the name of a source"));
    memcpy(source->path, options->path, length);
    return ZONAL_OK;
}

static void forget_bad(zonal__source *source) {
    zonal__free((void *)atomic_load(&source->known_bad));
    atomic_store(&source->known_bad, NULL);
    atomic_store(&source->bad, 0);
}

void zonal__source_close(zonal__source *source) {
    if (!source) return;
    if (source->table && source->table->close) source->table->close(source);
    for (int i = 0; source->class_names && i < source->classes; i++)
        zonal__free(source->class_names[i]);
    zonal__free(source->class_names);
    zonal__free(source->labels);
    zonal__free(source->order);
    zonal__free(source->path);
    forget_bad(source);
    zonal__free(source);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Marks an image as corrupt; *first tells whether it was not known yet. The marks are made when
 * the first is needed, by whichever thread comes first. */
static zonal_status mark_bad(zonal__source *source, int64_t index, int *first) {
    _Atomic(uint8_t) *marks = atomic_load(&source->known_bad);
    if (!marks) {
        _Atomic(uint8_t) *made;
        ZONAL_TRY(ZONAL_NEW(&made, source->count, "the list of corrupt images"));
        if (atomic_compare_exchange_strong(&source->known_bad, &marks, made))
            marks = made;
        else
            zonal__free((void *)made);
    }
    *first = atomic_exchange(&marks[index], 1) == 0;
    return ZONAL_OK;
}

/* An image was found corrupt, and the last error says how. */
static zonal_status put_up_with(zonal__source *source, int64_t index) {
    zonal_error found = *zonal_last_error();
    double most = source->max_corrupt * (double)source->count;
    int64_t bad;
    int first;
    ZONAL_TRY(mark_bad(source, index, &first));
    bad = first ? atomic_fetch_add(&source->bad, 1) + 1 : atomic_load(&source->bad);
    if (first) zonal__log("%s", found.message);
    if (bad <= 1 || (double)bad <= most)
        return zonal__fail(ZONAL_FORMAT, found.file, found.line, "%s", found.message);
    return ZONAL_FAIL(ZONAL_IO,
                      "%s has too many corrupt images: %lld of %lld, where %g are accepted; "
                      "remove them or allow more (--max-corrupt); the latest: %.400s",
                      source->path, (long long)bad, (long long)source->count,
                      most < 1 ? 1 : (double)(int64_t)most, found.message);
}

zonal_status zonal__source_read(zonal__source *source, int64_t index, zonal__image *out) {
    zonal_status status;
    if (index < 0 || index >= source->count)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s has images 0 to %lld, not %lld", source->path,
                          (long long)source->count - 1, (long long)index);
    status = source->table->read(source, source->order ? source->order[index] : index, out);
    return status == ZONAL_FORMAT ? put_up_with(source, index) : status;
}

int64_t zonal__source_replacement(const zonal__source *source, int64_t index) {
    int64_t next = index + 1 < source->count ? index + 1 : 0;
    if (!source->labels) return next;
    for (int64_t i = 1, other = next; i < source->count; i++) {
        if (source->labels[other] == source->labels[index]) return other;
        other = other + 1 < source->count ? other + 1 : 0;
    }
    return next;
}

zonal_status zonal__source_read_sound(zonal__source *source, int64_t *index, zonal__image *out) {
    enum { TRIES = 64 };
    zonal_status status = zonal__source_read(source, *index, out);
    for (int n = 1; n < TRIES && status == ZONAL_FORMAT; n++) {
        *index = zonal__source_replacement(source, *index);
        status = zonal__source_read(source, *index, out);
    }
    return status;
}

zonal_status zonal__source_select(zonal__source *source, int64_t n, const int64_t *keep) {
    int32_t *labels = NULL;
    int64_t *order;
    ZONAL_TRY(ZONAL_NEW(&order, n, "the order of the images"));
    if (source->labels) {
        zonal_status status = ZONAL_NEW(&labels, n, "the labels");
        if (status != ZONAL_OK) {
            zonal__free(order);
            return status;
        }
    }
    for (int64_t i = 0; i < n; i++) {
        order[i] = source->order ? source->order[keep[i]] : keep[i];
        if (labels) labels[i] = source->labels[keep[i]];
    }
    zonal__free(source->order);
    zonal__free(source->labels);
    source->order = order;
    source->labels = labels;
    source->count = n;
    forget_bad(source);
    return ZONAL_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int64_t own_number(const zonal__source *source, int64_t index) {
    return source->order ? source->order[index] : index;
}

void zonal__source_name(const zonal__source *source, int64_t index, char name[ZONAL__NAME_ROOM]) {
    int64_t own = own_number(source, index);
    if (source->table->name)
        source->table->name(source, own, name);
    else
        snprintf(name, ZONAL__NAME_ROOM, "index %lld", (long long)own);
}

zonal_status zonal__source_fingerprint(zonal__source *source, int64_t index,
                                       uint64_t *fingerprint) {
    int64_t own = own_number(source, index);
    if (source->table->fingerprint) return source->table->fingerprint(source, own, fingerprint);
    *fingerprint = zonal__fingerprint_element(0, own);
    return ZONAL_OK;
}

/* ---- which kind ------------------------------------------------------------------------------ */

typedef zonal_status opener(const zonal__source_options *options, zonal__source **source);

static int has_file(const char *folder, const char *name) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Any file of a set tells its kind: the reader says which ones are missing. */
static opener *kind_of_folder(const char *path) {
    static const struct {
        const char *file;
        opener *open_it;
    } kinds[] = {{"data_batch_1.bin", zonal__source_cifar},
                 {"test_batch.bin", zonal__source_cifar},
                 {"train.bin", zonal__source_cifar},
                 {"fine_label_names.txt", zonal__source_cifar},
                 {"train-images-idx3-ubyte", zonal__source_idx},
                 {"train-images-idx3-ubyte.gz", zonal__source_idx},
                 {"t10k-images-idx3-ubyte", zonal__source_idx},
                 {"t10k-images-idx3-ubyte.gz", zonal__source_idx}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (has_file(path, kinds[i].file)) return kinds[i].open_it;
    return zonal__source_folder;
}

/* NULL for a file of no known kind. */
static opener *kind_of_file(const char *path, const void *head, size_t bytes) {
    if (zonal__pack_is(head, bytes)) return zonal__source_pack;
    if ((bytes >= 8 && memcmp(head, "\x89HDF\r\n\x1a\n", 8) == 0) || ends_with(path, ".h5") ||
        ends_with(path, ".hdf5"))
        return zonal__source_galaxy10;
    if ((bytes >= 4 && memcmp(head, "\0\0\10\3", 4) == 0) || ends_with(path, "idx3-ubyte") ||
        ends_with(path, "idx3-ubyte.gz"))
        return zonal__source_idx;
    return NULL;
}

static zonal_status open_file(const zonal__source_options *options, zonal__source **source) {
    unsigned char head[64];
    size_t bytes;
    FILE *stream = fopen(options->path, "rb");
    opener *open_it;
    if (!stream) return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s", options->path, strerror(errno));
    bytes = fread(head, 1, sizeof head, stream);
    fclose(stream);
    open_it = kind_of_file(options->path, head, bytes);
    if (open_it) return open_it(options, source);
    return ZONAL_FAIL(
        ZONAL_FORMAT,
        "%s is not a source of images: give a folder of .jpg and .png files, a folder "
        "with CIFAR's .bin files, an MNIST ...-idx3-ubyte[.gz] file or the folder "
        "with it, a Galaxy10 .h5 file, a pack made by \"zonal data pack\", or "
        "textures:FAMILY",
        options->path);
}

static zonal_status open_folder(const zonal__source_options *options, zonal__source **source) {
    return kind_of_folder(options->path)(options, source);
}

/* Folders of images take only the classes of a list from the beginning; others leave out the rest.
 */
static zonal_status take_classes(const zonal__source_options *options, zonal__source **source) {
    zonal_status status;
    if (!options->class_list || (*source)->table->takes_class_list) return ZONAL_OK;
    status = zonal__class_list_apply(*source, options);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__source_close(*source);
    *source = NULL;
    return status;
}

int zonal__source_is_textures(const char *path) {
    return strncmp(path, "textures:", 9) == 0;
}

zonal_status zonal__source_check_path(const char *path) {
    struct stat about;
    if (!path || !path[0])
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a source of images needs a name, got an empty one");
    if (zonal__source_is_textures(path)) return ZONAL_OK;
    if (stat(path, &about) != 0)
        return ZONAL_FAIL(ZONAL_IO,
                          "cannot read %s: %s; give the name of a folder or file of images, or "
                          "textures:FAMILY",
                          path, strerror(errno));
    if (S_ISDIR(about.st_mode) || S_ISREG(about.st_mode)) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_IO,
                      "cannot read %s: it is neither a file nor a folder; give one of them", path);
}

zonal_status zonal__source_open(const zonal__source_options *options, zonal__source **source) {
    const char *path = options->path;
    struct stat about;
    *source = NULL;
    ZONAL_TRY(zonal__source_check_path(path));
    if (zonal__source_is_textures(path))
        ZONAL_TRY(zonal__source_textures(options, source));
    else if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        ZONAL_TRY(open_folder(options, source));
    else
        ZONAL_TRY(open_file(options, source));
    return take_classes(options, source);
}

/* ---- which images a step takes --------------------------------------------------------------- */

/* The upper half of a product: uniform below "bound" up to bound/2^64. */
static int64_t below(uint32_t high, uint32_t low, int64_t bound) {
    uint64_t word = (uint64_t)high << 32 | low;
    return (int64_t)((unsigned __int128)word * (uint64_t)bound >> 64);
}

void zonal__order_shuffle(uint64_t seed, uint32_t epoch, int64_t n, int64_t *order) {
    const zonal__random random = {.seed = seed, .stream = ZONAL__STREAM_ORDER, .step = epoch};
    uint32_t word[4] = {0};
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t draw = n - 1 - i, other, held = order[i];
        if (draw % 2 == 0) zonal__random_words(&random, (uint64_t)(draw / 2), 0, word);
        other = below(word[draw % 2 * 2], word[draw % 2 * 2 + 1], i + 1);
        order[i] = order[other];
        order[other] = held;
    }
}

zonal_status zonal__steps_init(int64_t count, int64_t batch, uint64_t seed, int in_order,
                               zonal__steps *steps) {
    *steps = (zonal__steps){.count = count,
                            .batch = batch,
                            .seed = seed,
                            .in_order = in_order,
                            .per_epoch = in_order ? (count + batch - 1) / batch : count / batch,
                            .order_epoch = -1};
    return in_order ? ZONAL_OK : ZONAL_NEW(&steps->order, count, "the order of an epoch");
}

void zonal__steps_fini(zonal__steps *steps) {
    zonal__free(steps->order);
    steps->order = NULL;
}

static int is_shared(const zonal__share *share, int64_t i) {
    int64_t number = share->of > 0 ? i % share->of - share->first : 0;
    return share->of == 0 || (number >= 0 && number < share->count);
}

int64_t zonal__share_count(const zonal__share *share, int64_t batch) {
    int64_t count = 0;
    for (int64_t i = 0; i < batch; i++) count += is_shared(share, i);
    return count;
}

int64_t zonal__steps_samples(zonal__steps *steps, int64_t step, int64_t *epoch, int64_t *samples) {
    int64_t first = step % steps->per_epoch * steps->batch, left = steps->count - first;
    int64_t n = left < steps->batch ? left : steps->batch, own = 0;
    *epoch = step / steps->per_epoch;
    if (!steps->in_order && *epoch != steps->order_epoch) {
        zonal__order_shuffle(steps->seed, (uint32_t)*epoch, steps->count, steps->order);
        steps->order_epoch = *epoch;
    }
    for (int64_t i = 0; i < n; i++)
        if (is_shared(&steps->share, i))
            samples[own++] = steps->in_order ? first + i : steps->order[first + i];
    return own;
}
