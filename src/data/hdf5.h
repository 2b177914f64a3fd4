/*
 * A strict reader of HDF5 files, for arrays of whole numbers such as Galaxy10's. It is our own
 * because files come from elsewhere: libhdf5 reads beyond its memory when some of them are damaged,
 * and opens any other file that they name.
 *
 *     ZONAL_TRY(zonal__hdf5_open(path, &file));
 *     ZONAL_TRY(zonal__hdf5_find(file, "images", &set));
 *     ZONAL_TRY(zonal__hdf5_read(&set, first, rows, out));
 *
 * What it reads, by the HDF5 File Format Specification, version 3.0: superblocks 0 to 3; datasets
 * in the root group, by symbol tables or by links in its header; fixed-point numbers; compact,
 * contiguous and chunked storage with any of the filters gzip, shuffle and Fletcher's checksum,
 * chunks being found by a version-1 B-tree, or a single chunk, or chunks one behind the other. This
 * is what h5py and PyTables write unless they are asked for libver="latest". Everything else is
 * refused with a sentence that names it, above all what leads out of the file: external storage,
 * virtual datasets, links.
 *
 * Every address, size and count is held against the size of the file before it is used; no part of
 * the file belongs to two chunks, so that what unpacks is at most 1032 times what the file holds,
 * and a chunk must unpack to exactly its size. Checksums are compared where the format has some.
 */
#ifndef ZONAL_DATA_HDF5_H
#define ZONAL_DATA_HDF5_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum {
    ZONAL__HDF5_RANK = 4,        /* datasets of more dimensions are refused */
    ZONAL__HDF5_FILTERS = 8,     /* of one dataset */
    ZONAL__HDF5_CHUNK = 1 << 26, /* bytes: larger chunks are refused */
    ZONAL__HDF5_LIST = 256       /* bytes for the names in a file */
};

typedef struct zonal__hdf5 {
    const char *path; /* as given to open, not copied */
    int descriptor;
    int64_t size;                 /* bytes, when it was opened */
    uint64_t root;                /* where the header of the root group lies */
    char names[ZONAL__HDF5_LIST]; /* of what was seen in the root group, for a sentence */
} zonal__hdf5;

typedef struct zonal__hdf5_chunk {
    uint64_t address; /* 0: not there */
    uint32_t size;    /* bytes as stored */
    uint32_t mask;    /* bit k: filter k was not applied */
} zonal__hdf5_chunk;

typedef struct zonal__hdf5_filter {
    enum { ZONAL__HDF5_GZIP = 1, ZONAL__HDF5_SHUFFLE = 2, ZONAL__HDF5_FLETCHER = 3 } kind;
} zonal__hdf5_filter;

typedef struct zonal__hdf5_dataset {
    const zonal__hdf5 *file;
    const char *name; /* as given to find, not copied */
    int rank;
    int64_t shape[ZONAL__HDF5_RANK]; /* 1 after the rank */
    int bytes;                       /* of an element, 1 to 8 */
    int is_signed, big_endian;

    int64_t address;                 /* contiguous, compact: of the first element */
    int64_t chunk[ZONAL__HDF5_RANK]; /* the sides of a chunk; 0: not stored in chunks */
    int64_t chunk_bytes;
    int filters;
    zonal__hdf5_filter filter[ZONAL__HDF5_FILTERS]; /* in the order of writing */
    int64_t chunks;                                 /* in all */
    int64_t across[ZONAL__HDF5_RANK];               /* how many along each dimension */
    zonal__hdf5_chunk *table;                       /* [chunks], in row-major order */
    uint8_t *buffer[2];                             /* [room]: a chunk on its way */
    size_t room;
} zonal__hdf5_dataset;

/* Opens a file and reads its first block. *file is NULL on failure. "path" must last. */
zonal_status zonal__hdf5_open(const char *path, zonal__hdf5 **file);
void zonal__hdf5_close(zonal__hdf5 *file); /* accepts NULL */

/* Finds a dataset of the root group, and all of its chunks. The set must be released by fini, after
 * a failure too. */
zonal_status zonal__hdf5_find(zonal__hdf5 *file, const char *name, zonal__hdf5_dataset *set);
void zonal__hdf5_fini(zonal__hdf5_dataset *set);

/* Reads rows "first" to first + rows - 1 of the first dimension, elements as they are stored, row
 * by row. For one thread at a time. A row of chunks is unpacked whole: ask for
 * zonal__hdf5_step rows, from a multiple of it on. */
zonal_status zonal__hdf5_read(zonal__hdf5_dataset *set, int64_t first, int64_t rows, uint8_t *out);
int64_t zonal__hdf5_step(const zonal__hdf5_dataset *set);

/* ---- between the files of the reader --------------------------------------------------------- */

/* Numbers of a block, one after another, little-endian. One that lies beyond the end is 0, and
 * "ended" says so: it is looked at after all have been taken. */
typedef struct zonal__hdf5_cursor {
    const uint8_t *at;
    size_t left;
    int ended;
} zonal__hdf5_cursor;

uint64_t zonal__hdf5_number(zonal__hdf5_cursor *cursor, int bytes);
void zonal__hdf5_skip(zonal__hdf5_cursor *cursor, size_t bytes);

/* The address that stands for none. */
static const uint64_t ZONAL__HDF5_NOWHERE = UINT64_MAX;

/* Reads bytes at an address: ZONAL_FORMAT where they do not lie in the file. */
zonal_status zonal__hdf5_bytes(const zonal__hdf5 *file, uint64_t address, uint64_t bytes,
                               void *out);

/* One message of an object's header. */
typedef struct zonal__hdf5_message {
    int type, shared;
    zonal__hdf5_cursor body;
    uint64_t address; /* of the body */
} zonal__hdf5_message;
typedef zonal_status zonal__hdf5_on_message(void *context, const zonal__hdf5_message *message);

/* Calls "use" for each message of the header at an address (hdf5_header.c). */
zonal_status zonal__hdf5_messages(const zonal__hdf5 *file, uint64_t address,
                                  zonal__hdf5_on_message *use, void *context);

/* Where the header of an object of the root group lies (hdf5_group.c). */
zonal_status zonal__hdf5_lookup(zonal__hdf5 *file, const char *name, uint64_t *address);

/* Fills set->table from the chunks' B-tree at an address (hdf5_chunks.c). */
zonal_status zonal__hdf5_read_tree(zonal__hdf5_dataset *set, uint64_t address);
/* No two chunks may share a byte. */
zonal_status zonal__hdf5_check_chunks(const zonal__hdf5_dataset *set);

/* Undoes the filters of a chunk of "size" bytes in buffer[0]; *plain is where its chunk_bytes bytes
 * are, in one of the buffers (hdf5_filter.c). */
zonal_status zonal__hdf5_unpack(const zonal__hdf5_dataset *set, const zonal__hdf5_chunk *chunk,
                                const uint8_t **plain);

/* "%s is damaged: ..." and "... is stored in a way that is not read here: ..." */
zonal_status zonal__hdf5_damaged(const zonal__hdf5 *file, const char *what);
zonal_status zonal__hdf5_refused(const zonal__hdf5 *file, const char *name, const char *what);

/* The checksum that newer parts of a file end with: Jenkins's lookup3, from 0. */
uint32_t zonal__hdf5_checksum(const uint8_t *bytes, size_t n);

#endif
