/*
 * Sources of images: image folders, packs, Galaxy10, CIFAR, MNIST, textures. One interface, so
 * that nothing above knows where an image comes from.
 *
 *     zonal__source *source;
 *     zonal__source_options options = {.path = "photos", .split = ZONAL__SPLIT_TRAIN};
 *     ZONAL_TRY(zonal__source_open(&options, &source));
 *     for (int64_t i = 0; i < source->count; i++)
 *         ZONAL_TRY(zonal__source_read(source, i, &image));
 *     zonal__source_close(source);
 *
 * Reading is thread-safe: workers read different images of one source at the same time, each into
 * an image of its own.
 */
#ifndef ZONAL_DATA_SOURCE_H
#define ZONAL_DATA_SOURCE_H

#include <stdatomic.h>

#include "data/image.h"

typedef enum zonal__split {
    ZONAL__SPLIT_ALL = 0,
    ZONAL__SPLIT_TRAIN = 1,
    ZONAL__SPLIT_VAL = 2,
    ZONAL__SPLIT_TEST = 3
} zonal__split;

typedef struct zonal__source zonal__source;

enum { ZONAL__NAME_ROOM = 4096 }; /* of an image's name, with its zero byte; longer ones are cut */

typedef struct zonal__source_table {
    const char *kind; /* "folder", "pack", "galaxy10", "cifar10", "idx", "textures", ... */
    /* Image number "index" of the source's own order. ZONAL_FORMAT for a corrupt image, with a
     * sentence that names it; ZONAL_IO where it cannot be read. */
    zonal_status (*read)(zonal__source *source, int64_t index, zonal__image *out);
    /* Releases what the source keeps beyond the fields below. May be NULL. */
    void (*close)(zonal__source *source);
    /* Both for a number of the source's own order, as zonal__source_name and _fingerprint have it
     * below. NULL: "index N"; the number alone. */
    void (*name)(const zonal__source *source, int64_t index, char name[ZONAL__NAME_ROOM]);
    zonal_status (*fingerprint)(zonal__source *source, int64_t index, uint64_t *fingerprint);
    int takes_class_list; /* it obeys the option itself; else zonal__source_open does */
} zonal__source_table;

/* A reader embeds this as its first member and fills it through zonal__source_init. */
struct zonal__source {
    const zonal__source_table *table;
    int64_t count;
    int32_t *labels;     /* [count]; NULL: unlabelled */
    int classes;         /* 0: unlabelled */
    char **class_names;  /* [classes], each allocated; NULL: the classes have numbers only */
    int width, height;   /* of every image; 0: they differ */
    int channels;        /* of what read gives: 1 or 3; 0: they differ */
    int64_t *order;      /* [count]: the reader's own number of each image; NULL: the same */
    char *path;          /* as given, for sentences */
    double max_corrupt;  /* largest share of corrupt images that is accepted */
    int encoded_side;    /* as in zonal__decode_options; set by a reader that can decode, before it
                          * reads, and obeyed by folders */
    _Atomic int64_t bad; /* images found corrupt so far, each counted once */
    _Atomic(_Atomic(uint8_t) *) known_bad; /* [count]: which; NULL: none yet */
};

enum { ZONAL__NO_SHARE = -1 };

typedef struct zonal__source_options {
    const char *path;   /* a folder, a file, or "textures:FAMILY" */
    zonal__split split; /* where the source has no splits of its own, by a draw: data/split.h */
    double val_share, test_share; /* of that split; 0, 0: 0.1 each; ZONAL__NO_SHARE: none */
    uint64_t seed;                /* of that split, and of textures */
    const char *class_list;       /* a file (data/class_list.h): only those classes, in that order;
                                   * NULL: all, of a folder sorted by name */
    int channels;                 /* 1 or 3: convert to it; 0: as the file has it */
    int min_side; /* JPEG may be decoded at a half, a quarter or an eighth of its size as long as
                   * both sides stay at least this long; 0: always at full size */
    double max_corrupt;    /* 0: 0.01 */
    int strict_split;      /* 1: no other split stands in for one that is missing, and a split may
                            * be empty (count 0); 0: val stands in for test, empty is an error */
    int64_t texture_count; /* textures; 0: 10,000 / 500 / 10,000 by split */
    int texture_size;      /* textures; 0: their default */
} zonal__source_options;

/* Opens whatever lies at options->path, telling the kind by what it finds there: a folder of
 * CIFAR's binaries, of MNIST's idx files or of images; a pack, an HDF5 file, an idx file;
 * textures. *source is NULL on failure; the sentence names the path and what is expected. */
zonal_status zonal__source_open(const zonal__source_options *options, zonal__source **source);
int zonal__source_is_textures(const char *path); /* "textures:FAMILY" */
/* Whether there is anything to open: the same sentence where there is not, at no cost. */
zonal_status zonal__source_check_path(const char *path);
void zonal__source_close(zonal__source *source); /* accepts NULL */

/* Reads image "index" (0 <= index < count). A corrupt one is, the first time, logged with its
 * name (zonal__log, on the reading thread) and counted in source->bad, and given as status
 * ZONAL_FORMAT: the caller takes another image in its place (zonal__source_replacement), until
 * bad exceeds max_corrupt times count (but at least 1), from when on the status is ZONAL_IO and the
 * run should end. */
zonal_status zonal__source_read(zonal__source *source, int64_t index, zonal__image *out);

/* What to read in place of a corrupt image: the next one, round about; of the same class where
 * there are labels and the class has another. */
int64_t zonal__source_replacement(const zonal__source *source, int64_t index);

/* Reads image *index or, where it is corrupt, another one in its place; *index becomes the number
 * of what was read. ZONAL_FORMAT when 64 in turn are corrupt. */
zonal_status zonal__source_read_sound(zonal__source *source, int64_t *index, zonal__image *out);

/* What image "index" is called, wherever the set lies and whichever split was opened: its path
 * inside the folder ("train/cat/1.jpg"); of array formats "index N", N being its number in the
 * file, after the file's name where the set has several; of textures "index N", N being the
 * texture's number. No two images of a source have the same name. */
void zonal__source_name(const zonal__source *source, int64_t index, char name[ZONAL__NAME_ROOM]);

/* A number that tells, as far as that is cheap, whether image "index" is still what it was. It does
 * not depend on where the set lies or on times of change.
 *
 *   folder              the file's size, its first and its last 4 KiB
 *   pack, idx, CIFAR    all its pixels
 *   galaxy10            its number, the file's size and samples of the file
 *   textures            its number and the settings
 *
 * Thread-safe. ZONAL_IO where the file cannot be read. */
zonal_status zonal__source_fingerprint(zonal__source *source, int64_t index, uint64_t *fingerprint);

/* Keeps the n images "keep" (numbers of the present order) and forgets the others, and which were
 * corrupt. Not while others read. On failure nothing has changed. */
zonal_status zonal__source_select(zonal__source *source, int64_t n, const int64_t *keep);

/* A seeded, stratified split of rows that have no names: every class is shuffled by Philox (seed,
 * class) and cut, val first, then test, then train, each share rounded to the nearest whole number.
 * keep [n] is filled with the ascending numbers of the images in "split" and *kept with how many
 * they are. labels NULL: one class. */
zonal_status zonal__split_choose(int64_t n, const int32_t *labels, int classes, zonal__split split,
                                 double val_share, double test_share, uint64_t seed, int64_t *keep,
                                 int64_t *kept);

/* For readers: checks options; sets table, max_corrupt and channels (as asked for; a reader whose
 * images are alike replaces a 0) and copies path. After any later failure zonal__source_close
 * releases the source, which must be a block of its own. */
zonal_status zonal__source_init(zonal__source *source, const zonal__source_table *table,
                                const zonal__source_options *options);

/* ---- the readers; zonal__source_open chooses among them -------------------------------------- */

zonal_status zonal__source_folder(const zonal__source_options *options, zonal__source **source);
zonal_status zonal__source_pack(const zonal__source_options *options, zonal__source **source);
zonal_status zonal__source_galaxy10(const zonal__source_options *options, zonal__source **source);
zonal_status zonal__source_cifar(const zonal__source_options *options, zonal__source **source);
zonal_status zonal__source_idx(const zonal__source_options *options, zonal__source **source);
zonal_status zonal__source_textures(const zonal__source_options *options, zonal__source **source);

/*
 * Which images a step takes: a pure function of (seed, step), so that a resumed run, or any rank
 * of many, knows it without having seen the steps before.
 *
 * An epoch goes through a source once in a shuffled order; what does not fill a batch is left out.
 * Or, in_order, everything is visited as it comes, and the last batch of an epoch is smaller.
 */

/* order [n] = 0 ... n-1, shuffled (Fisher-Yates) by (seed, epoch). */
void zonal__order_shuffle(uint64_t seed, uint32_t epoch, int64_t n, int64_t *order);

/* The part of a step's images that one of several ranks takes: of every "of" in a row those from
 * number "first" on, "count" of them. All 0: all of them. */
typedef struct zonal__share {
    int64_t of, first, count;
} zonal__share;

/* How many of a step of "batch" images they are. */
int64_t zonal__share_count(const zonal__share *share, int64_t batch);

typedef struct zonal__steps {
    int64_t count, batch; /* images in all; in a step, of all ranks */
    uint64_t seed;
    int in_order;
    zonal__share share;  /* may be set after init */
    int64_t per_epoch;   /* steps */
    int64_t *order;      /* [count]; NULL: in order */
    int64_t order_epoch; /* whose order that is; -1: none */
} zonal__steps;

/* 1 <= batch <= count. */
zonal_status zonal__steps_init(int64_t count, int64_t batch, uint64_t seed, int in_order,
                               zonal__steps *steps);
void zonal__steps_fini(zonal__steps *steps);

/* The samples of a step, of its share; returns how many they are. Quickest when steps come in
 * order. */
int64_t zonal__steps_samples(zonal__steps *steps, int64_t step, int64_t *epoch, int64_t *samples);

#endif
