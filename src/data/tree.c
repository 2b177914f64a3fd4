#include "data/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/memory.h"
#include "data/codec.h"

enum { TEXT_BLOCK = 1 << 16 };

/* Texts lie one after another in blocks that never move. */
struct zonal__tree_text {
    struct zonal__tree_text *next;
    size_t size, used; /* of bytes */
    char bytes[];
};

/* A folder that is being scanned, and the one it lies in. */
typedef struct ancestor {
    const struct ancestor *above;
    dev_t device;
    ino_t inode;
} ancestor;

/* ---- lists ----------------------------------------------------------------------------------- */

/* Makes room for one more element and a half more, moving what is there. */
static zonal_status grow(void **array, size_t size, int64_t count, int64_t *room) {
    int64_t wanted = count + count / 2 + 64;
    void *moved;
    if (count < *room) return ZONAL_OK;
    ZONAL_TRY(zonal__alloc(wanted, size, "the names of the pictures", &moved));
    if (*room > 0) memcpy(moved, *array, (size_t)*room * size);
    zonal__free(*array);
    *array = moved;
    *room = wanted;
    return ZONAL_OK;
}

zonal_status zonal__names_add(zonal__names *names, const char *text) {
    ZONAL_TRY(grow((void **)&names->at, sizeof names->at[0], names->count + 1, &names->room));
    names->at[names->count++] = text;
    names->at[names->count] = NULL;
    return ZONAL_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void zonal__names_sort(zonal__names *names) {
    if (names->count > 1)
        qsort(names->at, (size_t)names->count, sizeof names->at[0], compare_names);
}

void zonal__names_fini(zonal__names *names) {
    zonal__free(names->at);
    *names = (zonal__names){0};
}

zonal_status zonal__tree_copy(zonal__tree *tree, const char *first, const char *second,
                              const char **out) {
    size_t length = strlen(first), rest = second ? strlen(second) + 1 : 0;
    struct zonal__tree_text *text = tree->text;
    char *to;
    if (!text || text->size - text->used <= length + rest) {
        size_t size = length + rest < TEXT_BLOCK ? TEXT_BLOCK : length + rest + 1;
        void *memory;
        ZONAL_TRY(zonal__alloc((int64_t)(sizeof *text + size), 1, "names", &memory));
        text = memory;
        text->next = tree->text;
        text->size = size;
        tree->text = text;
    }
    to = text->bytes + text->used;
    text->used += length + rest + 1;
    memcpy(to, first, length + 1);
    if (second) {
        to[length] = '/';
        memcpy(to + length + 1, second, rest);
    }
    *out = to;
    return ZONAL_OK;
}

void zonal__tree_fini(zonal__tree *tree) {
    zonal__free(tree->pictures);
    zonal__names_fini(&tree->folders);
    zonal__names_fini(&tree->files);
    while (tree->text) {
        struct zonal__tree_text *next = tree->text->next;
        zonal__free(tree->text);
        tree->text = next;
    }
    *tree = (zonal__tree){0};
}

/* ---- one folder ------------------------------------------------------------------------------ */

static zonal_status cannot_read(const char *path, const char *name, int error) {
    const char *remedy = error == EACCES  ? "; make it readable"
                         : error == ELOOP ? "; remove the link"
                         : name           ? "; remove or mend the link"
                                          : "";
    return ZONAL_FAIL(ZONAL_IO, "cannot read %s%s%s: %s%s", path, name ? "/" : "", name ? name : "",
                      strerror(error), remedy);
}

/* DT_REG, DT_DIR, or DT_UNKNOWN for what is neither. */
static zonal_status find_type(DIR *dir, const char *path, const struct dirent *entry, int *type) {
    struct stat about;
    *type = entry->d_type;
    if (*type == DT_REG || *type == DT_DIR) return ZONAL_OK;
    if (*type != DT_LNK && *type != DT_UNKNOWN) {
        *type = DT_UNKNOWN;
        return ZONAL_OK;
    }
    *type = DT_UNKNOWN;
    if (fstatat(dirfd(dir), entry->d_name, &about, 0) != 0)
        return zonal__picture_named(entry->d_name) ? cannot_read(path, entry->d_name, errno)
                                                   : ZONAL_OK;
    if (S_ISREG(about.st_mode)) *type = DT_REG;
    if (S_ISDIR(about.st_mode)) *type = DT_DIR;
    return ZONAL_OK;
}

/* Adds an entry to tree->files or to "folders", or to none. */
static zonal_status take_entry(zonal__tree *tree, DIR *dir, const char *path,
                               const struct dirent *entry, zonal__names *folders) {
    const char *name;
    int type;
    if (entry->d_name[0] == '.') return ZONAL_OK;
    ZONAL_TRY(find_type(dir, path, entry, &type));
    if (type != DT_DIR && !(type == DT_REG && zonal__picture_named(entry->d_name))) return ZONAL_OK;
    ZONAL_TRY(zonal__tree_copy(tree, entry->d_name, NULL, &name));
    return zonal__names_add(type == DT_DIR ? folders : &tree->files, name);
}

/* Fills tree->files and adds to "folders", both sorted, and says in *here which folder it is. */
static zonal_status list(zonal__tree *tree, const char *path, ancestor *here,
                         zonal__names *folders) {
    DIR *dir = opendir(path);
    struct stat about;
    zonal_status status = ZONAL_OK;
    if (!dir) return cannot_read(path, NULL, errno);
    tree->files.count = 0;
    if (fstat(dirfd(dir), &about) != 0) status = cannot_read(path, NULL, errno);
    while (status == ZONAL_OK) {
        struct dirent *entry;
        errno = 0;
        entry = readdir(dir);
        if (!entry && errno) status = cannot_read(path, NULL, errno);
        if (!entry) break;
        status = take_entry(tree, dir, path, entry, folders);
    }
    closedir(dir);
    ZONAL_TRY(status);
    here->device = about.st_dev;
    here->inode = about.st_ino;
    zonal__names_sort(&tree->files);
    zonal__names_sort(folders);
    return ZONAL_OK;
}

zonal_status zonal__tree_folders(zonal__tree *tree, const char *path, zonal__names *folders,
                                 int64_t *pictures) {
    ancestor here = {0};
    ZONAL_TRY(list(tree, path, &here, folders));
    *pictures = tree->files.count;
    return ZONAL_OK;
}

/* ---- all under a folder ---------------------------------------------------------------------- */

static zonal_status refuse_loop(const ancestor *here, const char *path) {
    for (const ancestor *a = here->above; a; a = a->above)
        if (a->device == here->device && a->inode == here->inode)
            return ZONAL_FAIL(ZONAL_IO,
                              "%s is a link to a folder that it lies in, a loop; remove the link",
                              path);
    return ZONAL_OK;
}

static zonal_status keep_files(zonal__tree *tree, const char *path) {
    if (tree->files.count == 0) return ZONAL_OK;
    ZONAL_TRY(zonal__names_add(&tree->folders, path));
    for (int64_t i = 0; i < tree->files.count; i++) {
        ZONAL_TRY(
            grow((void **)&tree->pictures, sizeof tree->pictures[0], tree->count, &tree->room));
        tree->pictures[tree->count++] =
            (zonal__tree_picture){tree->files.at[i], (int32_t)(tree->folders.count - 1)};
    }
    return ZONAL_OK;
}

static zonal_status scan(zonal__tree *tree, const char *path, const ancestor *above) {
    ancestor here = {.above = above};
    zonal__names folders = {0};
    zonal_status status;
    ZONAL_TRY_GOTO(status, done, list(tree, path, &here, &folders));
    ZONAL_TRY_GOTO(status, done, refuse_loop(&here, path));
    ZONAL_TRY_GOTO(status, done, keep_files(tree, path));
    for (int64_t i = 0; i < folders.count; i++) {
        const char *below;
        ZONAL_TRY_GOTO(status, done, zonal__tree_copy(tree, path, folders.at[i], &below));
        ZONAL_TRY_GOTO(status, done, scan(tree, below, &here));
    }
done:
    zonal__names_fini(&folders);
    return status;
}

zonal_status zonal__tree_scan(zonal__tree *tree, const char *path) {
    const char *kept;
    ZONAL_TRY(zonal__tree_copy(tree, path, NULL, &kept));
    return scan(tree, kept, NULL);
}
