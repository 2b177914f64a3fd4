/*
 * Named tensors in one file, in the public safetensors format:
 *
 *     8 bytes    N, the length of the header, little-endian
 *     N bytes    the header, JSON that begins with {, padded with blanks at its end:
 *                    {"__metadata__": {"key": "text", ...},                         optional
 *                     "name": {"dtype": "F32", "shape": [64, 3], "data_offsets": [b, e]}, ...}
 *
 *     the data   of all tensors, little-endian, in C order; data_offsets count from its beginning,
 *                and the tensors cover it without gaps or overlaps
 *
 * A header is trusted in nothing: before a file is used, its JSON, names, types, shapes, offsets
 * and lengths have been checked against each other and against the length of the file.
 *
 * The checksum. The format has none, so a file written here may carry one as a metadata entry,
 * "zonal.xxh64", which other readers pass over: 16 hexadecimal digits, XXH64 (checksum.h) of the
 * whole file with "0000000000000000" in the place of these digits. Where it is present it is
 * compared when the file is opened. A reader that insists on it (ZONAL__SAFETENSORS_SUMMED) finds
 * damage in the data as in the header. Earlier files had a checksum of another kind under the key
 * "zonal.checksum": such a reader refuses them, the others take the entry for a note.
 *
 * The file is mapped: somebody who shortens it meanwhile ends the process with SIGBUS. The writer
 * here never does that, it puts a new file in the place of the old.
 */
#ifndef ZONAL_CORE_SAFETENSORS_H
#define ZONAL_CORE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum { ZONAL__SAFETENSORS_RANK = 8 }; /* the largest rank */

typedef enum zonal__safetensors_type {
    ZONAL__SAFETENSORS_F64,
    ZONAL__SAFETENSORS_F32,
    ZONAL__SAFETENSORS_F16,
    ZONAL__SAFETENSORS_BF16,
    ZONAL__SAFETENSORS_I64,
    ZONAL__SAFETENSORS_I32,
    ZONAL__SAFETENSORS_I16,
    ZONAL__SAFETENSORS_I8,
    ZONAL__SAFETENSORS_U8,
    ZONAL__SAFETENSORS_BOOL /* a byte each, 0 or 1 */
} zonal__safetensors_type;

const char *zonal__safetensors_type_name(zonal__safetensors_type type); /* "F64" ... */
size_t zonal__safetensors_type_size(zonal__safetensors_type type);      /* in bytes */

typedef struct zonal__safetensor {
    const char *name;
    zonal__safetensors_type type;
    int rank; /* 0: one element */
    int64_t shape[ZONAL__SAFETENSORS_RANK];
    const void *data; /* read: in the mapped file, aligned to 1 byte only; valid until the close */
    int64_t count;    /* of the elements; set by the reader, not looked at by the writer */
    /* Written where data is NULL: gives "bytes" bytes of the data from byte "offset" on. Called for
     * consecutive pieces; with a checksum twice for each, and must then give the same bytes. */
    zonal_status (*fetch)(void *context, size_t offset, size_t bytes, void *out);
    void *context;
} zonal__safetensor;

typedef struct zonal__safetensors_note {
    const char *key, *text;
} zonal__safetensors_note;

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct zonal__safetensors_content {
    const zonal__safetensor *tensors;
    int64_t count;
    const zonal__safetensors_note *notes; /* the metadata */
    int64_t note_count;
    int checksum; /* 1: add one */
    int plain;    /* 1: a link in the file's place is refused, not followed */
} zonal__safetensors_content;

/* Writes a whole file, which appears complete or not at all (file.h). The tensors lie in the order
 * given but with larger elements first, so that each is aligned to its elements. ZONAL_ARGUMENT for
 * names and keys that are empty, not UTF-8 or there twice, and shapes that are none. */
zonal_status zonal__safetensors_write(const char *path, const zonal__safetensors_content *content);

/* ---- reading --------------------------------------------------------------------------------- */

typedef enum zonal__safetensors_trust {
    ZONAL__SAFETENSORS_ANY = 0,   /* a checksum is compared where there is one */
    ZONAL__SAFETENSORS_SUMMED = 1 /* a file without a checksum is refused */
} zonal__safetensors_trust;

typedef struct zonal__safetensors {
    const char *path; /* the caller's, used in sentences: keep it until the close */
    int64_t count;
    zonal__safetensor *tensors; /* in the order of the data */
    int64_t note_count;
    zonal__safetensors_note *notes; /* by key; without the checksum's */
    /* The rest is the reader's own. */
    const uint8_t *base;
    size_t bytes;
    int mapped;
    char *header;                /* a copy; names and texts point into it */
    zonal__safetensor **by_name; /* [count] */
    const char *checksum;        /* its digits in "header"; NULL: none */
} zonal__safetensors;

/* Opens and checks a file. *out is NULL on failure: ZONAL_IO (cannot be opened), ZONAL_FORMAT (not
 * this format, damaged, cut short, a wrong checksum), ZONAL_DTYPE (a type that is not read) or
 * ZONAL_MEMORY. */
zonal_status zonal__safetensors_open(const char *path, zonal__safetensors_trust trust,
                                     zonal__safetensors **out);
/* The same for bytes in memory, which must outlive it. */
zonal_status zonal__safetensors_open_memory(const void *bytes, size_t count, const char *name,
                                            zonal__safetensors_trust trust,
                                            zonal__safetensors **out);
void zonal__safetensors_close(zonal__safetensors *file); /* accepts NULL */

/* NULL when there is none of that name or key. */
const zonal__safetensor *zonal__safetensors_find(const zonal__safetensors *file, const char *name);
const char *zonal__safetensors_note_text(const zonal__safetensors *file, const char *key);

/* The tensor of this name and shape: ZONAL_FORMAT when there is none (the sentence offers the
 * nearest name), ZONAL_SHAPE when it has another shape. *out is NULL on failure. */
zonal_status zonal__safetensors_get(const zonal__safetensors *file, const char *name, int rank,
                                    const int64_t *shape, const zonal__safetensor **out);

/* All elements of a tensor as floats, rounded to the nearest; too large a number becomes an
 * infinity, what is not 0 in a BOOL becomes 1. */
void zonal__safetensors_floats(const zonal__safetensor *tensor, float *out);

#endif
