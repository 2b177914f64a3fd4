/*
 * The names of the images under a folder, for sets of millions of files: 16 bytes and its name
 * for each, and no look at a file where the folder already tells that it is one.
 *
 * Names that begin with a dot are passed over. Links are followed. One that leads back to a folder
 * on the way to itself, or nowhere, is passed over and becomes a problem, of which the tree keeps a
 * list: the caller decides what to do with them. No more than MOST_LINKED folders are visited
 * by way of links: a few links can make more paths than anybody waits for.
 */
#ifndef ZONAL_DATA_TREE_H
#define ZONAL_DATA_TREE_H

#include <stdint.h>

#include "core/error.h"
#include "data/codec.h"

/* A list of texts; zero-initialise, and release with zonal__names_fini. There is room for a NULL
 * after the last, and it is set. */
typedef struct zonal__names {
    const char **at;
    int64_t count, room;
} zonal__names;

typedef struct zonal__tree_image {
    const char *name;
    int32_t folder; /* its number */
} zonal__tree_image;

typedef struct zonal__tree {
    zonal__tree_image *images; /* in the order of scanning */
    int64_t count, room;
    zonal__names folders;  /* their paths */
    zonal__names files;    /* scratch: the images of one folder */
    zonal__names problems; /* a sentence each; maybe more than once: see zonal__tree_settle */
    int64_t unread[ZONAL__IMAGE_KINDS];      /* files of formats that this build does not read */
    int64_t unread_here[ZONAL__IMAGE_KINDS]; /* scratch: those of one folder */
    int linked;                              /* folders visited by way of links */
    struct zonal__tree_text *text;
} zonal__tree;

/* Zero-initialise a tree before the first call; this releases it and the texts it gave out. */
void zonal__tree_fini(zonal__tree *tree);

/* Adds the images (by their names, of formats that are read) in a folder and in all under it:
 * first its own, sorted by name in byte order, then those of each folder in it, sorted alike. "top"
 * is the folder of the whole set, "path" or one that it lies in: a link back to it is a loop. */
zonal_status zonal__tree_scan(zonal__tree *tree, const char *top, const char *path);

/* Adds to "folders" the names of the folders in a folder, sorted, and counts the images beside
 * them. The names are of the tree and last as long. */
zonal_status zonal__tree_folders(zonal__tree *tree, const char *path, zonal__names *folders,
                                 int64_t *images);

/* Adds a sentence to the problems, which is copied. */
__attribute__((format(printf, 2, 3))) zonal_status zonal__tree_problem(zonal__tree *tree,
                                                                       const char *format, ...);
/* Leaves each problem once, sorted. */
void zonal__tree_settle(zonal__tree *tree);

/* Appends a text, which is not copied. */
zonal_status zonal__names_add(zonal__names *names, const char *text);
void zonal__names_sort(zonal__names *names);
void zonal__names_drop_repeated(zonal__names *names); /* of a sorted list */
void zonal__names_fini(zonal__names *names);

/* A copy of "first", and of "/" and "second" where that is not NULL, that lasts as long as the
 * tree. */
zonal_status zonal__tree_copy(zonal__tree *tree, const char *first, const char *second,
                              const char **out);

#endif
