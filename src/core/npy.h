/*
 * Matrices in numpy's .npy files.
 *
 * The format (numpy.lib.format, versions 1.0, 2.0 and 3.0):
 *
 *     1. "\x93NUMPY", one byte major version, one byte minor version
 *     2. the length of the header text: 2 bytes in version 1, 4 bytes in 2 and 3, little-endian
 *     3. the header: a Python dictionary with the keys descr, fortran_order and shape, in any
 *        order, padded with blanks and a newline; Latin-1 in versions 1 and 2, UTF-8 in 3
 *     4. the elements, nothing after them
 *
 * Read are matrices of little-endian float16, float32 and float64 in C or Fortran order with at
 * least one row and one column; written are float32 and float64 in C order, and vectors of int32,
 * version 1.0. Everything else is refused with a sentence that names the file, says what was found
 * and what to do. A header is trusted in nothing: every size is checked for overflow and against
 * the length of the file.
 */
#ifndef ZONAL_CORE_NPY_H
#define ZONAL_CORE_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "core/file.h"

enum { ZONAL__NPY_RANK = 32 }; /* the largest rank that is parsed */

typedef enum zonal__npy_type {
    ZONAL__NPY_F2 = 2, /* the numbers are the sizes in bytes */
    ZONAL__NPY_F4 = 4,
    ZONAL__NPY_F8 = 8
} zonal__npy_type;

typedef struct zonal__npy_header {
    zonal__npy_type type;
    int fortran; /* 1: the first index runs fastest */
    int rank;
    int64_t shape[ZONAL__NPY_RANK];
    int64_t data_at;    /* offset of the first element in the file */
    int64_t data_bytes; /* all elements together */
} zonal__npy_header;

typedef struct zonal__npy {
    const char *path; /* the caller's text, used in sentences: keep it until the file is closed */
    int descriptor;
    int64_t rows, cols;
    zonal__npy_header header;
} zonal__npy;

/* Opens a matrix for reading and checks all that can be checked without reading the elements. Fails
 * with ZONAL_IO (cannot be opened or read), ZONAL_FORMAT (not a .npy file, a damaged header, cut
 * short, bytes left over), ZONAL_DTYPE, ZONAL_SHAPE (not a matrix, or an empty one) or
 * ZONAL_MEMORY; then there is nothing to close. Closing twice is harmless. */
zonal_status zonal__npy_open(const char *path, zonal__npy *npy);
void zonal__npy_close(zonal__npy *npy);

/* Reads "count" rows from row "first" on into out (shape [count, cols], row-major), converting from
 * the type of the file. A float64 too large for a float becomes an infinity. The elements are not
 * looked at: NaN and infinities come through. Any order of calls is right; ascending rows are fast.
 * Only the part asked for is read and no memory is allocated. Re-entrant. */
zonal_status zonal__npy_read_f8(const zonal__npy *npy, int64_t first, int64_t count, double *out);
zonal_status zonal__npy_read_f4(const zonal__npy *npy, int64_t first, int64_t count, float *out);

/* Parses the beginning of a file held in memory: "count" bytes, which must reach to the end of the
 * header. "name" is used in sentences. Any rank and empty shapes are accepted; the element type
 * must be one that can be read. */
zonal_status zonal__npy_parse(const void *bytes, size_t count, const char *name,
                              zonal__npy_header *out);

/* Writes a whole matrix, data of shape [rows, cols] being float or double as "type" says (F4, F8),
 * so that the file appears complete or not at all. */
zonal_status zonal__npy_write(const char *path, zonal__npy_type type, int64_t rows, int64_t cols,
                              const void *data);

/* For a matrix made piece by piece: writes the header; the caller then writes exactly
 * rows * cols elements with zonal__file_write and commits or abandons. */
zonal_status zonal__npy_create(const char *path, zonal__npy_type type, int64_t rows, int64_t cols,
                               zonal__file **out);

/* A vector of "count" labels, as int32. */
zonal_status zonal__npy_write_labels(const char *path, int64_t count, const int32_t *labels);

/* The float with the same value as an IEEE half; exact, NaN keeps its sign and payload. */
float zonal__npy_half(uint16_t half);

#endif
