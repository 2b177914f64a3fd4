/*
 * Folders of images:
 *
 *     DIR/train/CLASS/...  DIR/val/CLASS/...  DIR/test/CLASS/...     "divided"
 *     DIR/CLASS/...                                                  labelled
 *     DIR/...                                                        unlabelled
 *
 * Validation and valid are other names of val, of which there may be one. DIR is divided when it
 * has no other folders than those of splits, or when its train has folders: so a class may be
 * called "train". The classes of a divided set are those of all its splits together, which gives a
 * class the same number in each of them.
 *
 * Where there is a train folder but no val folder, val is a share of train that is drawn
 * (data/split.h), as in a set that is not divided; likewise test, where there is neither test nor
 * val. With a val folder but no test folder, val serves as test, unless options->strict_split.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "core/memory.h"
#include "core/text.h"
#include "data/class_list.h"
#include "data/codec.h"
#include "data/fingerprint.h"
#include "data/source.h"
#include "data/split.h"
#include "data/tree.h"

enum { MOST_IDLE = 64, SPLITS = 4, MOST_TOLD = 20 };

typedef struct folder_source {
    zonal__source source;
    zonal__tree tree;
    zonal__decode_options decode;
    pthread_mutex_t lock; /* of the decoders that no thread is using */
    zonal__decoder *idle[MOST_IDLE];
    int idle_count;
} folder_source;

/* Where the images lie. */
typedef struct layout {
    const char *split[SPLITS]; /* by zonal__split: their folders, NULL where there is none */
    const char *root[SPLITS];  /* those to read, whole; NULL after the last; none where a split has
                                * no images and need not have any */
    int to_divide;             /* the split asked for is a share of the images there */
    zonal__names classes;      /* the folders of classes; none: unlabelled */
} layout;

/* ---- reading --------------------------------------------------------------------------------- */

static zonal_status take_decoder(folder_source *f, zonal__decoder **out) {
    *out = NULL;
    pthread_mutex_lock(&f->lock);
    if (f->idle_count > 0) *out = f->idle[--f->idle_count];
    pthread_mutex_unlock(&f->lock);
    return *out ? ZONAL_OK : zonal__decoder_create(out);
}

static void give_decoder(folder_source *f, zonal__decoder *decoder) {
    pthread_mutex_lock(&f->lock);
    if (f->idle_count < MOST_IDLE) {
        f->idle[f->idle_count++] = decoder;
        decoder = NULL;
    }
    pthread_mutex_unlock(&f->lock);
    zonal__decoder_destroy(decoder);
}

static zonal_status path_of(const folder_source *f, int64_t index, char path[PATH_MAX]) {
    const zonal__tree_image *image = &f->tree.images[index];
    const char *folder = f->tree.folders.at[image->folder];
    int length = snprintf(path, PATH_MAX, "%s/%s", folder, image->name);
    if (length < 0 || length >= PATH_MAX)
        return ZONAL_FAIL(ZONAL_IO, "cannot read %s in %.200s...: its path is too long",
                          image->name, folder);
    return ZONAL_OK;
}

static zonal_status folder_read(zonal__source *source, int64_t index, zonal__image *out) {
    folder_source *f = (folder_source *)source;
    char path[PATH_MAX];
    zonal__decode_options decode = f->decode;
    zonal__decoder *decoder;
    zonal_status status;
    decode.encoded_side = source->encoded_side;
    ZONAL_TRY(path_of(f, index, path));
    ZONAL_TRY(take_decoder(f, &decoder));
    status = zonal__image_read(decoder, path, &decode, out);
    give_decoder(f, decoder);
    return status;
}

static void folder_close(zonal__source *source) {
    folder_source *f = (folder_source *)source;
    for (int i = 0; i < f->idle_count; i++) zonal__decoder_destroy(f->idle[i]);
    pthread_mutex_destroy(&f->lock);
    zonal__tree_fini(&f->tree);
}

/* All folders of the tree begin with the source's path. */
static void folder_name(const zonal__source *source, int64_t index, char name[ZONAL__NAME_ROOM]) {
    const folder_source *f = (const folder_source *)source;
    const zonal__tree_image *image = &f->tree.images[index];
    const char *below = f->tree.folders.at[image->folder] + strlen(source->path);
    while (*below == '/') below++;
    snprintf(name, ZONAL__NAME_ROOM, "%s%s%s", below, *below ? "/" : "", image->name);
}

static zonal_status folder_fingerprint(zonal__source *source, int64_t index,
                                       uint64_t *fingerprint) {
    char path[PATH_MAX];
    ZONAL_TRY(path_of((const folder_source *)source, index, path));
    return zonal__fingerprint_file(path, 2, fingerprint);
}

static const zonal__source_table folder_table = {.kind = "folder",
                                                 .read = folder_read,
                                                 .close = folder_close,
                                                 .name = folder_name,
                                                 .fingerprint = folder_fingerprint,
                                                 .takes_class_list = 1};

/* ---- splits ---------------------------------------------------------------------------------- */

/* The split that a folder's name stands for, compared as asked; ZONAL__SPLIT_ALL: none. */
static zonal__split split_named(const char *name, int (*compare)(const char *, const char *)) {
    static const struct {
        const char *name;
        zonal__split split;
    } known[] = {{"train", ZONAL__SPLIT_TRAIN},
                 {"val", ZONAL__SPLIT_VAL},
                 {"validation", ZONAL__SPLIT_VAL},
                 {"valid", ZONAL__SPLIT_VAL},
                 {"test", ZONAL__SPLIT_TEST}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (compare(name, known[i].name) == 0) return known[i].split;
    return ZONAL__SPLIT_ALL;
}

static int is_divided(const layout *where) {
    return where->split[ZONAL__SPLIT_TRAIN] || where->split[ZONAL__SPLIT_VAL] ||
           where->split[ZONAL__SPLIT_TEST];
}

static void hint_at_letters(const folder_source *f, const char *name) {
    if (split_named(name, strcasecmp) != ZONAL__SPLIT_ALL)
        zonal__log("%s/%s is taken for a class: the folder of a split has small letters",
                   f->source.path, name);
}

/* A folder beside those of the splits leaves the set divided only if train has folders too. */
static zonal_status judge_division(folder_source *f, int64_t others, layout *where) {
    zonal__names in_train = {0};
    int64_t images;
    zonal_status status = ZONAL_OK;
    if (others == 0) return ZONAL_OK;
    if (where->split[ZONAL__SPLIT_TRAIN])
        status =
            zonal__tree_folders(&f->tree, where->split[ZONAL__SPLIT_TRAIN], &in_train, &images);
    if (in_train.count == 0) memset(where->split, 0, sizeof where->split);
    zonal__names_fini(&in_train);
    return status;
}

/* Finds the folders of splits, if the set is divided. */
static zonal_status find_splits(folder_source *f, const zonal__names *folders, layout *where) {
    const char *first = NULL, *second = NULL; /* two names of val */
    int64_t others = 0;
    for (int64_t i = 0; i < folders->count; i++) {
        const char *name = folders->at[i];
        zonal__split split = split_named(name, strcmp);
        if (split == ZONAL__SPLIT_ALL) {
            others++;
            hint_at_letters(f, name);
            continue;
        }
        if (where->split[split]) {
            second = name;
            continue;
        }
        if (split == ZONAL__SPLIT_VAL) first = name;
        ZONAL_TRY(zonal__tree_copy(&f->tree, f->source.path, name, &where->split[split]));
    }
    ZONAL_TRY(judge_division(f, others, where));
    if (second && is_divided(where))
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s has both %s and %s for its validation images; put them into one",
                          f->source.path, first, second);
    return ZONAL_OK;
}

/* Which folder holds the split asked for, of a set that is divided. */
static zonal_status choose_root(const folder_source *f, zonal__split split, int strict,
                                layout *where) {
    const char *train = where->split[ZONAL__SPLIT_TRAIN], *val = where->split[ZONAL__SPLIT_VAL];
    const char *path = f->source.path;
    where->root[0] = where->split[split];
    if (split == ZONAL__SPLIT_TEST && !where->root[0] && val) {
        if (strict) return ZONAL_OK;
        zonal__log("%s has no test folder: %s serves as test", path, val);
        where->root[0] = val;
    }
    if (!where->root[0]) where->root[0] = train;
    if (!where->root[0] && strict) return ZONAL_OK;
    if (!where->root[0])
        return ZONAL_FAIL(ZONAL_FORMAT, "%s has no %s folder, nor a train folder to take it from",
                          path, zonal__split_name(split));
    where->to_divide = where->root[0] == train && !val;
    if (where->to_divide)
        zonal__log("%s has no val folder: a share of %s is set aside for it", path, train);
    return ZONAL_OK;
}

static zonal_status choose_roots(folder_source *f, zonal__split split, int strict, layout *where) {
    int roots = 0;
    if (!is_divided(where)) {
        where->root[0] = f->source.path;
        where->to_divide = split != ZONAL__SPLIT_ALL;
        return ZONAL_OK;
    }
    if (split != ZONAL__SPLIT_ALL) return choose_root(f, split, strict, where);
    for (int s = ZONAL__SPLIT_TRAIN; s <= ZONAL__SPLIT_TEST; s++)
        if (where->split[s]) where->root[roots++] = where->split[s];
    return ZONAL_OK;
}

/* ---- classes --------------------------------------------------------------------------------- */

static void tell_unused(const folder_source *f, int64_t images) {
    if (images > 0)
        zonal__log("%s: %lld image%s in no class's folder %s not used", f->source.path,
                   (long long)images, zonal__text_plural(images), images == 1 ? "is" : "are");
}

/* The folders in the folders of all splits, or in DIR; none where those to be read have none. */
static zonal_status find_classes(folder_source *f, const zonal__names *folders, layout *where) {
    int64_t of_roots = 0, beside = 0;
    if (!is_divided(where)) {
        for (int64_t i = 0; i < folders->count; i++)
            ZONAL_TRY(zonal__names_add(&where->classes, folders->at[i]));
        return ZONAL_OK;
    }
    for (int s = ZONAL__SPLIT_TRAIN; s <= ZONAL__SPLIT_TEST; s++) {
        int64_t before = where->classes.count, images;
        if (!where->split[s]) continue;
        ZONAL_TRY(zonal__tree_folders(&f->tree, where->split[s], &where->classes, &images));
        for (int r = 0; where->root[r]; r++)
            if (where->root[r] == where->split[s]) {
                of_roots += where->classes.count - before;
                beside += images;
            }
    }
    if (of_roots == 0)
        where->classes.count = 0;
    else
        tell_unused(f, beside);
    zonal__names_sort(&where->classes);
    zonal__names_drop_repeated(&where->classes);
    return ZONAL_OK;
}

/* Puts the classes of a list, in its order, in the place of all classes. */
static zonal_status apply_class_list(folder_source *f, const char *path, zonal__names *classes) {
    zonal__names chosen = {0};
    zonal_status status = zonal__class_list_read(path, f->source.path, "folder", classes, &chosen);
    if (status != ZONAL_OK) {
        zonal__names_fini(&chosen);
        return status;
    }
    zonal__names_fini(classes);
    *classes = chosen;
    return ZONAL_OK;
}

static zonal_status keep_class_names(zonal__source *source, const zonal__names *classes) {
    ZONAL_TRY(ZONAL_NEW(&source->class_names, classes->count, "the classes"));
    source->classes = (int)classes->count;
    for (int i = 0; i < source->classes; i++) {
        size_t length = strlen(classes->at[i]) + 1;
        ZONAL_TRY(ZONAL_NEW(&source->class_names[i], length, "a class"));
        memcpy(source->class_names[i], classes->at[i], length);
    }
    return ZONAL_OK;
}

/* ---- images ---------------------------------------------------------------------------------- */

/* A folder that is there and may not be looked at is not absent: scanning it tells why. */
static int is_absent(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 ? !S_ISDIR(about.st_mode) : errno == ENOENT;
}

/* A class that a split lacks has no images in it; one that has a folder should have some. */
static zonal_status scan_class(folder_source *f, const layout *where, const char *name) {
    for (int r = 0; where->root[r]; r++) {
        int64_t before = f->tree.count;
        const char *path;
        ZONAL_TRY(zonal__tree_copy(&f->tree, where->root[r], name, &path));
        if (is_absent(path)) continue;
        ZONAL_TRY(zonal__tree_scan(&f->tree, f->source.path, path));
        if (f->tree.count == before)
            ZONAL_TRY(zonal__tree_problem(
                &f->tree, "class %s has no image in %s; put some there or remove the folder", name,
                path));
    }
    return ZONAL_OK;
}

static zonal_status scan_classes(folder_source *f, const layout *where) {
    zonal__source *source = &f->source;
    int64_t *end; /* [classes]: where the images of each class end */
    zonal_status status = ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&end, where->classes.count, "the classes"));
    for (int64_t c = 0; status == ZONAL_OK && c < where->classes.count; c++) {
        status = scan_class(f, where, where->classes.at[c]);
        end[c] = f->tree.count;
    }
    if (status == ZONAL_OK) status = ZONAL_NEW(&source->labels, f->tree.count, "the labels");
    if (status == ZONAL_OK)
        for (int64_t c = 0, i = 0; c < where->classes.count; c++)
            while (i < end[c]) source->labels[i++] = (int32_t)c;
    zonal__free(end);
    return status == ZONAL_OK ? keep_class_names(source, &where->classes) : status;
}

static void tell_unread(const folder_source *f) {
    for (int k = 0; k < ZONAL__IMAGE_KINDS; k++)
        if (f->tree.unread[k] > 0)
            zonal__log("%s: skipped %lld %s files: %s", f->source.path,
                       (long long)f->tree.unread[k], zonal__image_format((zonal__image_kind)k),
                       zonal__image_unread((zonal__image_kind)k));
}

/* Broken links, loops of links and empty classes: all of them are told, and they may be as many as
 * corrupt images may. */
static zonal_status judge_problems(folder_source *f) {
    const zonal__names *problems = &f->tree.problems;
    double most;
    zonal__tree_settle(&f->tree);
    most = f->source.max_corrupt * (double)(f->tree.count + problems->count);
    for (int64_t i = 0; i < problems->count && i < MOST_TOLD; i++)
        zonal__log("%s", problems->at[i]);
    if (problems->count > MOST_TOLD)
        zonal__log("... and %lld more of this kind", (long long)problems->count - MOST_TOLD);
    if (problems->count <= 1 || (double)problems->count <= most) return ZONAL_OK;
    return ZONAL_FAIL(
        ZONAL_FORMAT,
        "%s has too many broken links, loops of links and empty classes: %lld beside "
        "%lld images, where %g are accepted; fix them or allow more (--max-corrupt); the first: "
        "%.400s",
        f->source.path, (long long)problems->count, (long long)f->tree.count,
        most < 1 ? 1 : (double)(int64_t)most, problems->at[0]);
}

static zonal_status holds_none(const folder_source *f, const layout *where) {
    for (int k = 0; k < ZONAL__IMAGE_KINDS; k++)
        if (f->tree.unread[k] > 0)
            return ZONAL_FAIL(ZONAL_FORMAT, "%s contains no readable image, but %lld %s files: %s",
                              where->root[0], (long long)f->tree.unread[k],
                              zonal__image_format((zonal__image_kind)k),
                              zonal__image_unread((zonal__image_kind)k));
    return ZONAL_FAIL(
        ZONAL_FORMAT,
        "%s contains no image: put .jpg, .png, .webp, .bmp, .gif or .tif files there, "
        "or a folder of them for each class",
        where->root[0]);
}

static zonal_status scan_images(folder_source *f, const layout *where) {
    if (where->classes.count > 0)
        ZONAL_TRY(scan_classes(f, where));
    else
        for (int r = 0; where->root[r]; r++)
            ZONAL_TRY(zonal__tree_scan(&f->tree, f->source.path, where->root[r]));
    f->source.count = f->tree.count;
    tell_unread(f);
    ZONAL_TRY(judge_problems(f));
    return f->source.count > 0 || !where->root[0] ? ZONAL_OK : holds_none(f, where);
}

/* ---- opening --------------------------------------------------------------------------------- */

static zonal_status lay_out(folder_source *f, const zonal__source_options *options,
                            zonal__names *folders, layout *where) {
    int64_t beside;
    ZONAL_TRY(zonal__tree_folders(&f->tree, f->source.path, folders, &beside));
    if (folders->count > 0) tell_unused(f, beside);
    ZONAL_TRY(find_splits(f, folders, where));
    ZONAL_TRY(choose_roots(f, options->split, options->strict_split, where));
    ZONAL_TRY(find_classes(f, folders, where));
    if (options->class_list) return apply_class_list(f, options->class_list, &where->classes);
    return ZONAL_OK;
}

static zonal_status open_folder(folder_source *f, const zonal__source_options *options) {
    layout where = {0};
    zonal__names folders = {0};
    zonal_status status;
    f->decode =
        (zonal__decode_options){.channels = options->channels, .min_side = options->min_side};
    ZONAL_TRY(zonal__source_init(&f->source, &folder_table, options));
    ZONAL_TRY_GOTO(status, done, lay_out(f, options, &folders, &where));
    ZONAL_TRY_GOTO(status, done, scan_images(f, &where));
    if (where.to_divide)
        status = zonal__split_keep(&f->source, options, where.split[ZONAL__SPLIT_TEST] != NULL);
done:
    zonal__names_fini(&folders);
    zonal__names_fini(&where.classes);
    return status;
}

zonal_status zonal__source_folder(const zonal__source_options *options, zonal__source **source) {
    folder_source *f;
    zonal_status status;
    *source = NULL;
    ZONAL_TRY(ZONAL_NEW(&f, 1, "a folder of images"));
    pthread_mutex_init(&f->lock, NULL);
    status = open_folder(f, options);
    if (status != ZONAL_OK) {
        zonal__source_close(&f->source);
        return status;
    }
    *source = &f->source;
    return ZONAL_OK;
}
