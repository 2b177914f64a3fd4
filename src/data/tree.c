#include "data/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/memory.h"

enum {
    TEXT_BLOCK = 1 << 16,
    MOST_LINKED = 1 << 16,  /* folders by way of links; whole data sets have some thousands */
    MOST_PROBLEMS = 1 << 16 /* after as many the list is not of use to anybody */
};

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
    int linked; /* a link leads to it, or to a folder that it lies in */
} ancestor;

/* ---- lists ----------------------------------------------------------------------------------- */

static const char NAMES[] = "the names of the images";

zonal_status zonal__names_add(zonal__names *names, const char *text) {
    ZONAL_TRY(ZONAL_GROW(&names->at, names->count + 1, &names->room, NAMES));
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

void zonal__names_drop_repeated(zonal__names *names) {
    int64_t kept = 0;
    for (int64_t i = 0; i < names->count; i++)
        if (i == 0 || strcmp(names->at[i], names->at[kept - 1]) != 0)
            names->at[kept++] = names->at[i];
    names->count = kept;
    if (names->at) names->at[kept] = NULL;
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
    zonal__free(tree->images);
    zonal__names_fini(&tree->folders);
    zonal__names_fini(&tree->files);
    zonal__names_fini(&tree->problems);
    while (tree->text) {
        struct zonal__tree_text *next = tree->text->next;
        zonal__free(tree->text);
        tree->text = next;
    }
    *tree = (zonal__tree){0};
}

zonal_status zonal__tree_problem(zonal__tree *tree, const char *format, ...) {
    char text[PATH_MAX + 256];
    const char *kept;
    va_list arguments;
    if (tree->problems.count == MOST_PROBLEMS) return ZONAL_OK;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ZONAL_TRY(zonal__tree_copy(tree, text, NULL, &kept));
    return zonal__names_add(&tree->problems, kept);
}

void zonal__tree_settle(zonal__tree *tree) {
    zonal__names_sort(&tree->problems);
    zonal__names_drop_repeated(&tree->problems);
}

/* ---- one folder ------------------------------------------------------------------------------ */

static zonal_status cannot_read(const char *path, int error) {
    return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s%s", path, strerror(error),
                      error == EACCES ? "; make it readable" : "");
}

/* A link that leads nowhere matters if it was to be an image or, having no ending, a folder. */
static zonal_status leads_nowhere(zonal__tree *tree, const char *path, const char *name,
                                  int error) {
    if (!zonal__image_named(name) && strchr(name, '.')) return ZONAL_OK;
    return zonal__tree_problem(tree, "the link %s/%s leads nowhere: %s; remove or mend it", path,
                               name, strerror(error));
}

/* DT_REG, DT_DIR, or DT_UNKNOWN for what is neither. */
static zonal_status find_type(zonal__tree *tree, DIR *dir, const char *path,
                              const struct dirent *entry, int *type) {
    struct stat about;
    *type = entry->d_type;
    if (*type == DT_REG || *type == DT_DIR) return ZONAL_OK;
    if (*type != DT_LNK && *type != DT_UNKNOWN) {
        *type = DT_UNKNOWN;
        return ZONAL_OK;
    }
    *type = DT_UNKNOWN;
    if (fstatat(dirfd(dir), entry->d_name, &about, 0) != 0)
        return leads_nowhere(tree, path, entry->d_name, errno);
    if (S_ISREG(about.st_mode)) *type = DT_REG;
    if (S_ISDIR(about.st_mode)) *type = DT_DIR;
    return ZONAL_OK;
}

/* Adds an entry to tree->files or to "folders", or to none. */
static zonal_status take_entry(zonal__tree *tree, DIR *dir, const char *path,
                               const struct dirent *entry, zonal__names *folders) {
    const char *name;
    zonal__image_kind kind;
    int type;
    if (entry->d_name[0] == '.') return ZONAL_OK;
    ZONAL_TRY(find_type(tree, dir, path, entry, &type));
    kind = type == DT_REG ? zonal__image_named(entry->d_name) : ZONAL__IMAGE_NONE;
    if (type != DT_DIR && kind == ZONAL__IMAGE_NONE) return ZONAL_OK;
    if (type != DT_DIR && zonal__image_unread(kind)) {
        tree->unread_here[kind]++;
        return ZONAL_OK;
    }
    ZONAL_TRY(zonal__tree_copy(tree, entry->d_name, NULL, &name));
    return zonal__names_add(type == DT_DIR ? folders : &tree->files, name);
}

/* Fills tree->files and adds to "folders", both sorted. */
static zonal_status list(zonal__tree *tree, const char *path, zonal__names *folders) {
    DIR *dir = opendir(path);
    zonal_status status = ZONAL_OK;
    if (!dir) return cannot_read(path, errno);
    tree->files.count = 0;
    memset(tree->unread_here, 0, sizeof tree->unread_here);
    while (status == ZONAL_OK) {
        struct dirent *entry;
        errno = 0;
        entry = readdir(dir);
        if (!entry && errno) status = cannot_read(path, errno);
        if (!entry) break;
        status = take_entry(tree, dir, path, entry, folders);
    }
    closedir(dir);
    ZONAL_TRY(status);
    zonal__names_sort(&tree->files);
    zonal__names_sort(folders);
    return ZONAL_OK;
}

zonal_status zonal__tree_folders(zonal__tree *tree, const char *path, zonal__names *folders,
                                 int64_t *images) {
    ZONAL_TRY(list(tree, path, folders));
    *images = tree->files.count;
    return ZONAL_OK;
}

/* ---- all under a folder ---------------------------------------------------------------------- */

static void identify(const char *path, ancestor *here) {
    struct stat about = {0}; /* of a folder that is gone the listing will tell */
    if (stat(path, &about) != 0) return;
    here->device = about.st_dev;
    here->inode = about.st_ino;
}

/* Whether the folder lies in itself. */
static int is_loop(const ancestor *here) {
    for (const ancestor *a = here->above; a; a = a->above)
        if (here->inode != 0 && a->device == here->device && a->inode == here->inode) return 1;
    return 0;
}

static zonal_status count_links(zonal__tree *tree, const char *path, ancestor *here) {
    struct stat about;
    here->linked = (here->above && here->above->linked) ||
                   (lstat(path, &about) == 0 && S_ISLNK(about.st_mode));
    if (!here->linked || tree->linked++ < MOST_LINKED) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_IO,
                      "more than %d folders are reached through links, the last of them %.300s; "
                      "remove links between folders",
                      MOST_LINKED, path);
}

static zonal_status keep_files(zonal__tree *tree, const char *path) {
    for (int k = 0; k < ZONAL__IMAGE_KINDS; k++) tree->unread[k] += tree->unread_here[k];
    if (tree->files.count == 0) return ZONAL_OK;
    ZONAL_TRY(zonal__names_add(&tree->folders, path));
    for (int64_t i = 0; i < tree->files.count; i++) {
        ZONAL_TRY(ZONAL_GROW(&tree->images, tree->count, &tree->room, NAMES));
        tree->images[tree->count++] =
            (zonal__tree_image){tree->files.at[i], (int32_t)(tree->folders.count - 1)};
    }
    return ZONAL_OK;
}

static zonal_status scan(zonal__tree *tree, const char *path, const ancestor *above) {
    ancestor here = {.above = above};
    zonal__names folders = {0};
    zonal_status status;
    ZONAL_TRY_GOTO(status, done, count_links(tree, path, &here));
    identify(path, &here);
    if (is_loop(&here)) {
        status = zonal__tree_problem(
            tree, "%s is a link to a folder that it lies in, a loop; remove the link", path);
        goto done;
    }
    ZONAL_TRY_GOTO(status, done, list(tree, path, &folders));
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

zonal_status zonal__tree_scan(zonal__tree *tree, const char *top, const char *path) {
    ancestor highest = {0}, parent = {.above = &highest};
    char *slash, folder[PATH_MAX];
    const char *kept;
    ZONAL_TRY(zonal__tree_copy(tree, path, NULL, &kept));
    if (strcmp(top, path) == 0) return scan(tree, kept, NULL);
    snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    identify(top, &highest);
    identify(folder, &parent);
    return scan(tree, kept, &parent);
}
