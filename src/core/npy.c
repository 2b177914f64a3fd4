#include "core/npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file_read.h"
#include "core/memory.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "elements are read as they lie in memory");
_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "float and double are the file's types");

enum {
    PREFIX = 12,              /* bytes before the longest kind of header */
    LONGEST_HEADER = 1 << 20, /* numpy's own limit is 10,000; a version 2 length may claim 4 GiB */
    CHUNK = 32768,            /* bytes converted at a time, on the stack */
    COLUMN_ROWS = 4096,       /* rows read of each column in Fortran order: 64-byte lines of that
                                 many rows stay in the second-level cache between columns */
    LARGEST_READ = 1 << 30    /* Linux returns at most 2 GiB from one call */
};

/* ---- the header ------------------------------------------------------------------------------ */

typedef struct parser {
    const char *at, *end;
    const char *name;
} parser;

typedef struct found_keys {
    int descr, fortran_order, shape;
} found_keys;

static zonal_status damaged(const parser *p, const char *what) {
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "%s has a damaged .npy header: %s; save it again with numpy.save", p->name,
                      what);
}

static void skip_blanks(parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
}

/* Takes one character, after blanks, when it is the next. */
static int take(parser *p, char wanted) {
    skip_blanks(p);
    if (p->at == p->end || *p->at != wanted) return 0;
    p->at++;
    return 1;
}

static int take_word(parser *p, const char *word) {
    size_t length = strlen(word);
    skip_blanks(p);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0) return 0;
    p->at += length;
    return 1;
}

/* A quoted text of printable characters without escapes, cut to the size of "out". */
static zonal_status parse_quoted(parser *p, char *out, size_t size) {
    size_t length = 0;
    char quote;
    skip_blanks(p);
    if (p->at == p->end || (*p->at != '\'' && *p->at != '"'))
        return damaged(p, "a quoted text is missing");
    quote = *p->at++;
    for (; p->at < p->end && *p->at != quote; p->at++) {
        if (*p->at == '\\' || (unsigned char)*p->at < ' ')
            return damaged(p, "a quoted text holds a strange character");
        if (length + 1 < size) out[length++] = *p->at;
    }
    out[length] = '\0';
    if (p->at == p->end) return damaged(p, "a quoted text has no end");
    p->at++;
    return ZONAL_OK;
}

static const char *kind_of_elements(const char *descr) {
    static const struct {
        char letter;
        const char *kind;
    } kinds[] = {{'i', "whole numbers"},
                 {'u', "whole numbers without sign"},
                 {'c', "complex numbers"},
                 {'b', "truth values"},
                 {'f', "floating-point numbers of another size"},
                 {'O', "Python objects"},
                 {'S', "texts"},
                 {'U', "texts"},
                 {'M', "dates"},
                 {'m', "durations"},
                 {'V', "raw records or bfloat16"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (descr[0] && descr[1] == kinds[i].letter) return kinds[i].kind;
    return "elements of an unknown type";
}

static zonal_status refuse_structured(const parser *p) {
    return ZONAL_FAIL(
        ZONAL_DTYPE,
        "%s holds records (a structured dtype); save one field as a matrix of float32, "
        "in numpy: numpy.save(file, x['field'].astype('<f4'))",
        p->name);
}

static zonal_status parse_descr(parser *p, zonal__npy_header *out) {
    char descr[24];
    skip_blanks(p);
    if (p->at < p->end && (*p->at == '[' || *p->at == '(')) return refuse_structured(p);
    ZONAL_TRY(parse_quoted(p, descr, sizeof descr));
    if (strcmp(descr, "<f2") == 0)
        out->type = ZONAL__NPY_F2;
    else if (strcmp(descr, "<f4") == 0)
        out->type = ZONAL__NPY_F4;
    else if (strcmp(descr, "<f8") == 0)
        out->type = ZONAL__NPY_F8;
    else if (descr[0] == '>' && descr[1] == 'f')
        return ZONAL_FAIL(ZONAL_DTYPE,
                          "%s is big-endian (dtype %s), which is not read; "
                          "convert it, in numpy: x.astype('<f4')",
                          p->name, descr);
    else
        return ZONAL_FAIL(ZONAL_DTYPE,
                          "%s holds %s (dtype %s), but float16, float32 or float64 is needed; "
                          "convert it, in numpy: x.astype('<f4')",
                          p->name, kind_of_elements(descr), descr);
    return ZONAL_OK;
}

static zonal_status parse_fortran_order(parser *p, zonal__npy_header *out) {
    if (take_word(p, "True"))
        out->fortran = 1;
    else if (take_word(p, "False"))
        out->fortran = 0;
    else
        return damaged(p, "fortran_order is neither True nor False");
    return ZONAL_OK;
}

static zonal_status parse_dimension(parser *p, int64_t *out) {
    int64_t value = 0;
    const char *start;
    if (take(p, '-')) return damaged(p, "shape has a negative number");
    for (start = p->at; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *p->at - '0', &value))
            return damaged(p, "shape has a number that does not fit into 64 bits");
    if (p->at == start) return damaged(p, "shape is not a tuple of whole numbers");
    if (p->at < p->end && *p->at == 'L') p->at++; /* Python 2 wrote long integers so */
    *out = value;
    return ZONAL_OK;
}

static zonal_status parse_shape(parser *p, zonal__npy_header *out) {
    if (!take(p, '(')) return damaged(p, "shape is not a tuple");
    while (!take(p, ')')) {
        if (out->rank == ZONAL__NPY_RANK) return damaged(p, "shape has more than 32 numbers");
        ZONAL_TRY(parse_dimension(p, &out->shape[out->rank++]));
        if (take(p, ',')) continue;
        if (out->rank == 1 || !take(p, ')')) return damaged(p, "shape is not a tuple");
        break;
    }
    return ZONAL_OK;
}

static zonal_status parse_item(parser *p, found_keys *found, zonal__npy_header *out) {
    char key[16];
    int repeated;
    ZONAL_TRY(parse_quoted(p, key, sizeof key));
    if (!take(p, ':')) return damaged(p, "a colon is missing");
    if (strcmp(key, "descr") == 0) {
        repeated = found->descr++;
        if (!repeated) return parse_descr(p, out);
    } else if (strcmp(key, "fortran_order") == 0) {
        repeated = found->fortran_order++;
        if (!repeated) return parse_fortran_order(p, out);
    } else if (strcmp(key, "shape") == 0) {
        repeated = found->shape++;
        if (!repeated) return parse_shape(p, out);
    } else {
        return damaged(p, "a key is not descr, fortran_order or shape");
    }
    return damaged(p, "a key is there twice");
}

static zonal_status parse_dictionary(parser *p, zonal__npy_header *out) {
    found_keys found = {0};
    if (!take(p, '{')) return damaged(p, "it does not begin with {");
    while (!take(p, '}')) {
        ZONAL_TRY(parse_item(p, &found, out));
        if (take(p, ',')) continue;
        if (!take(p, '}')) return damaged(p, "a comma or the closing } is missing");
        break;
    }
    skip_blanks(p);
    if (p->at != p->end) return damaged(p, "something follows the closing }");
    if (!found.descr) return damaged(p, "descr is missing");
    if (!found.fortran_order) return damaged(p, "fortran_order is missing");
    if (!found.shape) return damaged(p, "shape is missing");
    return ZONAL_OK;
}

/* What people pass by mistake is recognised by its first bytes. */
static zonal_status not_npy(const unsigned char *bytes, size_t count, const char *name) {
    if (count == 0)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s is empty (0 bytes), not a .npy file; write it again",
                          name);
    if (count >= 4 && memcmp(bytes, "PK\003\004", 4) == 0)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is an archive (.npz?), not a .npy file; save one array of it, "
                          "in numpy: numpy.save(file, numpy.load(archive)['name'])",
                          name);
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "%s is not a .npy file; write one with numpy.save(file, x.astype('<f4'))",
                      name);
}

/* Checks the magic and the version; sets where the header begins and how long it is. "count" is at
 * least what a prefix needs unless the file is shorter. */
static zonal_status parse_prefix(const unsigned char *bytes, size_t count, const char *name,
                                 size_t *begin, size_t *length) {
    static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    if (count < sizeof magic || memcmp(bytes, magic, sizeof magic) != 0)
        return not_npy(bytes, count, name);
    if (count >= 8 && (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0))
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is a .npy file of version %d.%d; 1.0, 2.0 and 3.0 are read: save it "
                          "again by numpy",
                          name, bytes[6], bytes[7]);
    *begin = count >= 8 && bytes[6] > 1 ? 12 : 10;
    if (count < *begin)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s is cut short inside its header; copy it again", name);
    *length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (*begin == 12) *length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (*length > LONGEST_HEADER)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s has a damaged .npy header: it claims to be %zu bytes long; "
                          "save it again with numpy.save",
                          name, *length);
    return ZONAL_OK;
}

static zonal_status count_data(const parser *p, zonal__npy_header *out) {
    int64_t bytes = (int64_t)out->type, end;
    for (int i = 0; i < out->rank; i++)
        if (out->shape[i] == 0) bytes = 0;
    for (int i = 0; bytes > 0 && i < out->rank; i++)
        if (__builtin_mul_overflow(bytes, out->shape[i], &bytes))
            return damaged(p, "shape is too large for any file");
    if (__builtin_add_overflow(bytes, out->data_at, &end))
        return damaged(p, "shape is too large for any file");
    out->data_bytes = bytes;
    return ZONAL_OK;
}

zonal_status zonal__npy_parse(const void *bytes, size_t count, const char *name,
                              zonal__npy_header *out) {
    size_t begin, length;
    parser p = {.name = name};
    memset(out, 0, sizeof *out);
    ZONAL_TRY(parse_prefix(bytes, count, name, &begin, &length));
    if (length > count - begin)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s is cut short inside its header; copy it again", name);
    p.at = (const char *)bytes + begin;
    p.end = p.at + length;
    ZONAL_TRY(parse_dictionary(&p, out));
    out->data_at = (int64_t)(begin + length);
    return count_data(&p, out);
}

/* ---- reading --------------------------------------------------------------------------------- */

static zonal_status fail_read(const zonal__npy *npy, int error) {
    return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s%s", npy->path, strerror(error),
                      zonal__file_read_remedy(error));
}

/* Reads up to "bytes" bytes; *got is less only at the end of the file. */
static zonal_status read_upto(const zonal__npy *npy, int64_t at, void *out, size_t bytes,
                              size_t *got) {
    *got = 0;
    while (*got < bytes) {
        size_t rest = bytes - *got;
        ssize_t n = pread(npy->descriptor, (char *)out + *got,
                          rest < LARGEST_READ ? rest : LARGEST_READ, (off_t)(at + (int64_t)*got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_read(npy, errno);
        if (n == 0) break;
        *got += (size_t)n;
    }
    return ZONAL_OK;
}

static zonal_status read_all(const zonal__npy *npy, int64_t at, void *out, size_t bytes) {
    size_t got;
    ZONAL_TRY(read_upto(npy, at, out, bytes, &got));
    if (got < bytes)
        return ZONAL_FAIL(ZONAL_IO, "cannot read %s: it was truncated while it was read",
                          npy->path);
    return ZONAL_OK;
}

static zonal_status read_header(zonal__npy *npy) {
    unsigned char prefix[PREFIX];
    size_t begin, length, got;
    char *text;
    zonal_status status;
    ZONAL_TRY(read_upto(npy, 0, prefix, sizeof prefix, &got));
    ZONAL_TRY(parse_prefix(prefix, got, npy->path, &begin, &length));
    ZONAL_TRY(ZONAL_NEW(&text, begin + length, "a .npy header"));
    status = read_upto(npy, 0, text, begin + length, &got);
    if (status == ZONAL_OK) status = zonal__npy_parse(text, got, npy->path, &npy->header);
    zonal__free(text);
    return status;
}

static zonal_status check_length(const zonal__npy *npy, int64_t length) {
    int64_t wanted = npy->header.data_at + npy->header.data_bytes;
    if (length < wanted)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is cut short: its header promises %" PRId64 " bytes, it has %" PRId64
                          "; copy or save it again",
                          npy->path, wanted, length);
    if (length > wanted)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s has %" PRId64 " bytes too many after its data; save it again",
                          npy->path, length - wanted);
    return ZONAL_OK;
}

/* As Python writes it: (), (2,), (2, 3). */
static void print_shape(const zonal__npy_header *header, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "(");
    for (int i = 0; i < header->rank && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, i ? ", %" PRId64 : "%" PRId64,
                                 header->shape[i]);
    if (used < size) snprintf(out + used, size - used, header->rank == 1 ? ",)" : ")");
}

static zonal_status check_matrix(zonal__npy *npy) {
    const zonal__npy_header *header = &npy->header;
    char shape[200];
    print_shape(header, shape, sizeof shape);
    if (header->rank != 2)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "%s has shape %s, but a matrix with one embedding per row is needed; "
                          "reshape it, in numpy: x.reshape(%s)",
                          npy->path, shape, header->rank < 2 ? "1, -1" : "-1, x.shape[-1]");
    if (header->shape[0] == 0 || header->shape[1] == 0)
        return ZONAL_FAIL(ZONAL_SHAPE, "%s is empty: its shape is %s; give at least one embedding",
                          npy->path, shape);
    npy->rows = header->shape[0];
    npy->cols = header->shape[1];
    return ZONAL_OK;
}

static zonal_status examine(zonal__npy *npy) {
    struct stat state;
    if (fstat(npy->descriptor, &state) != 0) return fail_read(npy, errno);
    if (S_ISDIR(state.st_mode))
        return ZONAL_FAIL(ZONAL_IO, "cannot read %s: it is a folder; give the name of a .npy file",
                          npy->path);
    if (!S_ISREG(state.st_mode))
        return ZONAL_FAIL(ZONAL_IO,
                          "cannot read %s: it is a pipe or a device; save it as a .npy file first",
                          npy->path);
    ZONAL_TRY(read_header(npy));
    ZONAL_TRY(check_matrix(npy));
    return check_length(npy, (int64_t)state.st_size);
}

zonal_status zonal__npy_open(const char *path, zonal__npy *npy) {
    zonal_status status;
    memset(npy, 0, sizeof *npy);
    npy->path = path;
    npy->descriptor = -1;
    if (strcmp(path, "-") == 0)
        return ZONAL_FAIL(
            ZONAL_ARGUMENT,
            "reading standard input (-) is not supported; give the name of a .npy file");
    /* Without O_NONBLOCK a named pipe would wait here for a writer; it means nothing for files. */
    npy->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (npy->descriptor < 0) return fail_read(npy, errno);
    status = examine(npy);
    if (status != ZONAL_OK) {
        zonal__npy_close(npy);
        return status;
    }
    posix_fadvise(npy->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
    return ZONAL_OK;
}

void zonal__npy_close(zonal__npy *npy) {
    if (npy->descriptor >= 0) close(npy->descriptor);
    npy->descriptor = -1;
}

float zonal__npy_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 31;
    uint32_t fraction = half & 1023, bits;
    float value;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | fraction << 13;
    } else if (exponent > 0) {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    } else {
        value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Elements n of "in" go to out, "stride" elements apart. */
static void to_double(zonal__npy_type type, const void *in, size_t n, double *out, size_t stride) {
    if (type == ZONAL__NPY_F8)
        for (size_t i = 0; i < n; i++) out[i * stride] = ((const double *)in)[i];
    else if (type == ZONAL__NPY_F4)
        for (size_t i = 0; i < n; i++) out[i * stride] = (double)((const float *)in)[i];
    else
        for (size_t i = 0; i < n; i++)
            out[i * stride] = (double)zonal__npy_half(((const uint16_t *)in)[i]);
}

static void to_float(zonal__npy_type type, const void *in, size_t n, float *out, size_t stride) {
    if (type == ZONAL__NPY_F8)
        for (size_t i = 0; i < n; i++) out[i * stride] = (float)((const double *)in)[i];
    else if (type == ZONAL__NPY_F4)
        for (size_t i = 0; i < n; i++) out[i * stride] = ((const float *)in)[i];
    else
        for (size_t i = 0; i < n; i++) out[i * stride] = zonal__npy_half(((const uint16_t *)in)[i]);
}

static void convert(zonal__npy_type from, const void *in, size_t n, zonal__npy_type to, void *out,
                    size_t at, size_t stride) {
    if (to == ZONAL__NPY_F8)
        to_double(from, in, n, (double *)out + at, stride);
    else
        to_float(from, in, n, (float *)out + at, stride);
}

/* A run of n elements of the file, from element "from" on, to out[at], out[at + stride], ... */
static zonal_status read_run(const zonal__npy *npy, int64_t from, int64_t n, zonal__npy_type to,
                             void *out, int64_t at, int64_t stride) {
    _Alignas(16) unsigned char chunk[CHUNK];
    int64_t size = (int64_t)npy->header.type, most = CHUNK / size;
    if (npy->header.type == to && stride == 1)
        return read_all(npy, npy->header.data_at + from * size, (char *)out + at * size,
                        (size_t)(n * size));
    for (int64_t done = 0; done < n; done += most) {
        int64_t now = n - done < most ? n - done : most;
        ZONAL_TRY(
            read_all(npy, npy->header.data_at + (from + done) * size, chunk, (size_t)(now * size)));
        convert(npy->header.type, chunk, (size_t)now, to, out, (size_t)(at + done * stride),
                (size_t)stride);
    }
    return ZONAL_OK;
}

static zonal_status read_rows(const zonal__npy *npy, int64_t first, int64_t count,
                              zonal__npy_type to, void *out) {
    if (first < 0 || count < 0 || first > npy->rows - count)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "%" PRId64 " rows from row %" PRId64
                          " on were asked for, %s has %" PRId64,
                          count, first, npy->path, npy->rows);
    if (!npy->header.fortran)
        return read_run(npy, first * npy->cols, count * npy->cols, to, out, 0, 1);
    for (int64_t row = 0; row < count; row += COLUMN_ROWS) {
        int64_t now = count - row < COLUMN_ROWS ? count - row : COLUMN_ROWS;
        for (int64_t col = 0; col < npy->cols; col++)
            ZONAL_TRY(read_run(npy, col * npy->rows + first + row, now, to, out,
                               row * npy->cols + col, npy->cols));
    }
    return ZONAL_OK;
}

zonal_status zonal__npy_read_f8(const zonal__npy *npy, int64_t first, int64_t count, double *out) {
    return read_rows(npy, first, count, ZONAL__NPY_F8, out);
}

zonal_status zonal__npy_read_f4(const zonal__npy *npy, int64_t first, int64_t count, float *out) {
    return read_rows(npy, first, count, ZONAL__NPY_F4, out);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Starts a file with its header: type and shape as numpy writes them. */
static zonal_status begin(const char *path, const char *type, const char *shape,
                          zonal__file **out) {
    static const unsigned char prefix[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
    char header[129];
    int length;
    ZONAL_TRY(zonal__file_create(path, out));
    /* Readers that map the file want the data aligned to 64 bytes. 128 hold the longest shape. */
    length = snprintf(header, sizeof header,
                      "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type, shape);
    snprintf(header + length, sizeof header - (size_t)length, "%*s\n", 117 - length, "");
    zonal__file_write(*out, prefix, sizeof prefix);
    zonal__file_write(*out, header, 118);
    return ZONAL_OK;
}

zonal_status zonal__npy_create(const char *path, zonal__npy_type type, int64_t rows, int64_t cols,
                               zonal__file **out) {
    char shape[48];
    *out = NULL;
    if (type != ZONAL__NPY_F4 && type != ZONAL__NPY_F8)
        return ZONAL_FAIL(ZONAL_DTYPE, "%s: only float32 and float64 are written", path);
    if (rows < 0 || cols < 0)
        return ZONAL_FAIL(ZONAL_SHAPE, "%s cannot have shape (%" PRId64 ", %" PRId64 ")", path,
                          rows, cols);
    snprintf(shape, sizeof shape, "(%" PRId64 ", %" PRId64 ")", rows, cols);
    return begin(path, type == ZONAL__NPY_F4 ? "<f4" : "<f8", shape, out);
}

zonal_status zonal__npy_write(const char *path, zonal__npy_type type, int64_t rows, int64_t cols,
                              const void *data) {
    zonal__file *file;
    int64_t bytes;
    ZONAL_TRY(zonal__npy_create(path, type, rows, cols, &file));
    if (__builtin_mul_overflow(rows, cols, &bytes) ||
        __builtin_mul_overflow(bytes, (int64_t)type, &bytes)) {
        zonal__file_abandon(file);
        return ZONAL_FAIL(ZONAL_SHAPE, "%s: the shape is too large for any file", path);
    }
    zonal__file_write(file, data, (size_t)bytes);
    return zonal__file_commit(file);
}

zonal_status zonal__npy_write_labels(const char *path, int64_t count, const int32_t *labels) {
    zonal__file *file;
    char shape[32];
    snprintf(shape, sizeof shape, "(%" PRId64 ",)", count);
    ZONAL_TRY(begin(path, "<i4", shape, &file));
    zonal__file_write(file, labels, (size_t)count * sizeof *labels);
    return zonal__file_commit(file);
}
