/*
 * The names of the pictures under a folder, for sets of millions of files: 16 bytes and its name
 * for each, and no look at a file where the folder already tells that it is one.
 *
 * Names that begin with a dot are passed over. Links are followed; one that leads back to a folder
 * on the way to itself is an error, as is a picture's name that leads nowhere.
 */
#ifndef ZONAL_DATA_TREE_H
#define ZONAL_DATA_TREE_H

#include <stdint.h>

#include "core/error.h"

/* A list of texts; zero-initialise, and release with zonal__names_fini. There is room for a NULL
 * after the last, and it is set. */
typedef struct zonal__names {
    const char **at;
    int64_t count, room;
} zonal__names;

typedef struct zonal__tree_picture {
    const char *name;
    int32_t folder; /* its number */
} zonal__tree_picture;

typedef struct zonal__tree {
    zonal__tree_picture *pictures; /* in the order of scanning */
    int64_t count, room;
    zonal__names folders; /* their paths */
    zonal__names files;   /* scratch: the pictures of one folder */
    struct zonal__tree_text *text;
} zonal__tree;

/* Zero-initialise a tree before the first call; this releases it and the texts it gave out. */
void zonal__tree_fini(zonal__tree *tree);

/* Adds the pictures (by their names: .jpg, .jpeg, .png) in a folder and in all folders under it:
 * first its own, sorted by name in byte order, then those of each folder in it, sorted alike. */
zonal_status zonal__tree_scan(zonal__tree *tree, const char *path);

/* Adds to "folders" the names of the folders in a folder, sorted, and counts the pictures beside
 * them. The names are of the tree and last as long. */
zonal_status zonal__tree_folders(zonal__tree *tree, const char *path, zonal__names *folders,
                                 int64_t *pictures);

/* Appends a text, which is not copied. */
zonal_status zonal__names_add(zonal__names *names, const char *text);
void zonal__names_sort(zonal__names *names);
void zonal__names_fini(zonal__names *names);

/* A copy of "first", and of "/" and "second" where that is not NULL, that lasts as long as the
 * tree. */
zonal_status zonal__tree_copy(zonal__tree *tree, const char *first, const char *second,
                              const char **out);

#endif
