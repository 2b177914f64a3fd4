/*
 * Safetensors files, reading: safetensors.h has the format. safetensors_write.c is the other half.
 */
#include "core/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/bf16.h"
#include "core/checksum.h"
#include "core/file_read.h"
#include "core/json_read.h"
#include "core/memory.h"
#include "core/npy.h"
#include "core/safetensors_format.h"
#include "core/text.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the data is read as it lies in memory");

/* ---- types ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t size;
} types[] = {
    [ZONAL__SAFETENSORS_F64] = {"F64", 8}, [ZONAL__SAFETENSORS_F32] = {"F32", 4},
    [ZONAL__SAFETENSORS_F16] = {"F16", 2}, [ZONAL__SAFETENSORS_BF16] = {"BF16", 2},
    [ZONAL__SAFETENSORS_I64] = {"I64", 8}, [ZONAL__SAFETENSORS_I32] = {"I32", 4},
    [ZONAL__SAFETENSORS_I16] = {"I16", 2}, [ZONAL__SAFETENSORS_I8] = {"I8", 1},
    [ZONAL__SAFETENSORS_U8] = {"U8", 1},   [ZONAL__SAFETENSORS_BOOL] = {"BOOL", 1},
};
enum { TYPES = sizeof types / sizeof types[0] };

const char *zonal__safetensors_type_name(zonal__safetensors_type type) {
    return types[type].name;
}

size_t zonal__safetensors_type_size(zonal__safetensors_type type) {
    return types[type].size;
}

int zonal__safetensors_count(const zonal__safetensor *tensor, int64_t *count, int64_t *bytes) {
    int64_t product = 1;
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] < 0) return 0;
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] == 0) product = 0;
    for (int i = 0; product > 0 && i < tensor->rank; i++)
        if (__builtin_mul_overflow(product, tensor->shape[i], &product)) return 0;
    *count = product;
    return !__builtin_mul_overflow(product, (int64_t)types[tensor->type].size, bytes);
}

/* ---- the header ------------------------------------------------------------------------------ */

typedef struct parser {
    zonal__safetensors *file;
    zonal__json_reader json;
    const uint8_t *data; /* the section */
    int64_t data_bytes;
    int64_t tensor_room, note_room;
    int has_notes;
} parser;

static zonal_status damaged(const zonal__safetensors *file, const char *what) {
    return ZONAL_FAIL(ZONAL_FORMAT, "%s is a damaged safetensors file: %s; copy or save it again",
                      file->path, what);
}

static zonal_status damaged_tensor(const zonal__safetensors *file, const char *name,
                                   const char *what) {
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "%s is a damaged safetensors file: %s of the tensor \"%.100s\"; copy or save "
                      "it again",
                      file->path, what, name);
}

static const char TABLE[] = "the table of a safetensors file";

static zonal_status parse_notes(parser *p) {
    zonal__safetensors *file = p->file;
    int more;
    if (p->has_notes++) return damaged(file, "__metadata__ is there twice");
    ZONAL_TRY(zonal__json_read_begin(&p->json, '{'));
    for (;;) {
        zonal__safetensors_note note;
        ZONAL_TRY(zonal__json_read_more(&p->json, '}', &more));
        if (!more) return ZONAL_OK;
        ZONAL_TRY(zonal__json_read_key(&p->json, &note.key));
        ZONAL_TRY(zonal__json_read_text(&p->json, &note.text));
        ZONAL_TRY(ZONAL_GROW(&file->notes, file->note_count, &p->note_room, TABLE));
        file->notes[file->note_count++] = note;
    }
}

static zonal_status parse_type(parser *p, zonal__safetensor *tensor) {
    const char *name;
    ZONAL_TRY(zonal__json_read_text(&p->json, &name));
    for (int i = 0; i < TYPES; i++) {
        if (strcmp(name, types[i].name) != 0) continue;
        tensor->type = (zonal__safetensors_type)i;
        return ZONAL_OK;
    }
    return ZONAL_FAIL(ZONAL_DTYPE,
                      "%s holds the tensor \"%.100s\" of type %.20s, but F64, F32, F16, BF16, I64, "
                      "I32, I16, I8, U8 and BOOL are read; convert it before saving",
                      p->file->path, tensor->name, name);
}

/* An array of up to "most" numbers that are not negative; *count is how many there were. */
static zonal_status parse_numbers(parser *p, const char *name, int most, int64_t *out, int *count) {
    int more;
    *count = 0;
    ZONAL_TRY(zonal__json_read_begin(&p->json, '['));
    for (;;) {
        ZONAL_TRY(zonal__json_read_more(&p->json, ']', &more));
        if (!more) return ZONAL_OK;
        if (*count == most && most > 2)
            return ZONAL_FAIL(ZONAL_FORMAT,
                              "%s holds the tensor \"%.100s\" of more than %d dimensions; reshape "
                              "it before saving, or leave it out",
                              p->file->path, name, most);
        if (*count == most) return damaged_tensor(p->file, name, "too many numbers in a list");
        ZONAL_TRY(zonal__json_read_int(&p->json, &out[*count]));
        if (out[(*count)++] < 0) return damaged_tensor(p->file, name, "a negative number");
    }
}

enum { HAS_TYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

static zonal_status parse_fields(parser *p, zonal__safetensor *tensor, int64_t offsets[2]) {
    int found = 0, count = 0, more;
    ZONAL_TRY(zonal__json_read_begin(&p->json, '{'));
    for (;;) {
        const char *key;
        int field;
        ZONAL_TRY(zonal__json_read_more(&p->json, '}', &more));
        if (!more) break;
        ZONAL_TRY(zonal__json_read_key(&p->json, &key));
        field = strcmp(key, "dtype") == 0          ? HAS_TYPE
                : strcmp(key, "shape") == 0        ? HAS_SHAPE
                : strcmp(key, "data_offsets") == 0 ? HAS_OFFSETS
                                                   : 0;
        if (!field) return damaged_tensor(p->file, tensor->name, "an unknown field");
        if (found & field) return damaged_tensor(p->file, tensor->name, "a field there twice");
        found |= field;
        if (field == HAS_TYPE)
            ZONAL_TRY(parse_type(p, tensor));
        else if (field == HAS_SHAPE)
            ZONAL_TRY(parse_numbers(p, tensor->name, ZONAL__SAFETENSORS_RANK, tensor->shape,
                                    &tensor->rank));
        else
            ZONAL_TRY(parse_numbers(p, tensor->name, 2, offsets, &count));
    }
    if (found != HAS_ALL || count != 2)
        return damaged_tensor(p->file, tensor->name, "dtype, shape or data_offsets incomplete");
    return ZONAL_OK;
}

static zonal_status parse_tensor(parser *p, const char *name) {
    zonal__safetensors *file = p->file;
    zonal__safetensor tensor = {.name = name};
    int64_t offsets[2], bytes;
    ZONAL_TRY(parse_fields(p, &tensor, offsets));
    if (!zonal__safetensors_count(&tensor, &tensor.count, &bytes))
        return damaged_tensor(file, name, "too large a shape");
    if (offsets[1] < offsets[0] || offsets[1] - offsets[0] != bytes)
        return damaged_tensor(file, name, "data_offsets that do not fit the shape");
    if (offsets[1] > p->data_bytes)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is cut short: its tensor \"%.100s\" ends at byte %" PRId64
                          " of the data, of which there are %" PRId64 "; copy or save it again",
                          file->path, name, offsets[1], p->data_bytes);
    tensor.data = p->data + offsets[0];
    ZONAL_TRY(ZONAL_GROW(&file->tensors, file->count, &p->tensor_room, TABLE));
    file->tensors[file->count++] = tensor;
    return ZONAL_OK;
}

static zonal_status parse_header(parser *p) {
    int more;
    ZONAL_TRY(zonal__json_read_begin(&p->json, '{'));
    for (;;) {
        const char *name;
        ZONAL_TRY(zonal__json_read_more(&p->json, '}', &more));
        if (!more) return zonal__json_read_end(&p->json);
        ZONAL_TRY(zonal__json_read_key(&p->json, &name));
        if (strcmp(name, "__metadata__") == 0)
            ZONAL_TRY(parse_notes(p));
        else
            ZONAL_TRY(parse_tensor(p, name));
    }
}

/* ---- what must hold between the entries ------------------------------------------------------ */

/* By place; of those at one place, the empty ones first. */
static int compare_places(const void *a, const void *b) {
    const zonal__safetensor *x = a, *y = b;
    if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return (x->count > y->count) - (x->count < y->count);
}

static int compare_names(const void *a, const void *b) {
    const zonal__safetensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int compare_keys(const void *a, const void *b) {
    const zonal__safetensors_note *x = a, *y = b;
    return strcmp(x->key, y->key);
}

static zonal_status check_places(const parser *p) {
    const zonal__safetensors *file = p->file;
    const uint8_t *end = p->data;
    if (file->count)
        qsort(file->tensors, (size_t)file->count, sizeof *file->tensors, compare_places);
    for (int64_t i = 0; i < file->count; i++) {
        const zonal__safetensor *tensor = &file->tensors[i];
        if (tensor->data != end)
            return damaged_tensor(file, tensor->name, "a gap or an overlap before the data");
        end += (size_t)tensor->count * types[tensor->type].size;
    }
    return end == p->data + p->data_bytes ? ZONAL_OK
                                          : damaged(file, "bytes that belong to no tensor");
}

static zonal_status check_names(zonal__safetensors *file) {
    ZONAL_TRY(ZONAL_NEW(&file->by_name, file->count, "the names of a safetensors file"));
    for (int64_t i = 0; i < file->count; i++) file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
    for (int64_t i = 1; i < file->count; i++)
        if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) == 0)
            return damaged_tensor(file, file->by_name[i]->name, "a second one");
    return ZONAL_OK;
}

/* Sorts the notes, and takes the checksum out of them. */
static zonal_status check_notes(zonal__safetensors *file) {
    int64_t kept = 0;
    if (file->note_count)
        qsort(file->notes, (size_t)file->note_count, sizeof *file->notes, compare_keys);
    for (int64_t i = 0; i < file->note_count; i++) {
        if (i > 0 && strcmp(file->notes[i - 1].key, file->notes[i].key) == 0)
            return damaged(file, "a key of its metadata is there twice");
    }
    for (int64_t i = 0; i < file->note_count; i++) {
        if (strcmp(file->notes[i].key, ZONAL__SAFETENSORS_SUM_KEY) == 0)
            file->checksum = file->notes[i].text;
        else
            file->notes[kept++] = file->notes[i];
    }
    file->note_count = kept;
    return ZONAL_OK;
}

static zonal_status no_checksum(const zonal__safetensors *file) {
    if (zonal__safetensors_note_text(file, ZONAL__SAFETENSORS_OLD_KEY))
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s has a checksum of an earlier kind (" ZONAL__SAFETENSORS_OLD_KEY
                          ", now XXH64), which this zonal cannot compare; make the file again, or "
                          "use the zonal that wrote it",
                          file->path);
    return damaged(file, "it has no checksum");
}

static zonal_status compare_checksum(const zonal__safetensors *file,
                                     zonal__safetensors_trust trust) {
    zonal__checksum sum;
    char digits[ZONAL__SAFETENSORS_SUM_DIGITS + 1];
    size_t at, after;
    if (!file->checksum && trust == ZONAL__SAFETENSORS_SUMMED) return no_checksum(file);
    if (!file->checksum) return ZONAL_OK;
    at = 8 + (size_t)(file->checksum - file->header);
    after = at + ZONAL__SAFETENSORS_SUM_DIGITS;
    /* Digits written as escapes would stand elsewhere than in the copy. */
    if (strlen(file->checksum) != ZONAL__SAFETENSORS_SUM_DIGITS || after > file->bytes ||
        memcmp(file->base + at, file->checksum, ZONAL__SAFETENSORS_SUM_DIGITS) != 0)
        return damaged(file, "its checksum is not one");
    zonal__checksum_init(&sum);
    zonal__checksum_add(&sum, file->base, at);
    zonal__checksum_add(&sum, ZONAL__SAFETENSORS_NO_SUM, ZONAL__SAFETENSORS_SUM_DIGITS);
    zonal__checksum_add(&sum, file->base + after, file->bytes - after);
    snprintf(digits, sizeof digits, "%016" PRIx64, zonal__checksum_value(&sum));
    return strcmp(digits, file->checksum) == 0 ? ZONAL_OK : damaged(file, "its checksum is wrong");
}

/* ---- opening --------------------------------------------------------------------------------- */

static zonal_status find_header(const zonal__safetensors *file, size_t *length) {
    uint64_t claimed;
    if (file->bytes < 8)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s has %zu bytes: it is cut short, or no safetensors file; "
                          "copy or save it again",
                          file->path, file->bytes);
    memcpy(&claimed, file->base, sizeof claimed);
    if (claimed < 2 || claimed > ZONAL__SAFETENSORS_HEADER_MOST ||
        (file->bytes > 8 && file->base[8] != '{'))
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is not a safetensors file, or its beginning is damaged; save it "
                          "again",
                          file->path);
    if (claimed > file->bytes - 8)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s is cut short inside its header; copy or save it again",
                          file->path);
    *length = (size_t)claimed;
    return ZONAL_OK;
}

static zonal_status examine(zonal__safetensors *file, zonal__safetensors_trust trust) {
    parser p = {.file = file};
    size_t length = 0;
    ZONAL_TRY(find_header(file, &length));
    ZONAL_TRY(ZONAL_NEW(&file->header, length + 1, "the header of a safetensors file"));
    memcpy(file->header, file->base + 8, length);
    p.data = file->base + 8 + length;
    p.data_bytes = (int64_t)(file->bytes - 8 - length);
    zonal__json_reader_init(&p.json, file->header, length, file->path);
    ZONAL_TRY(parse_header(&p));
    ZONAL_TRY(check_places(&p));
    ZONAL_TRY(check_names(file));
    ZONAL_TRY(check_notes(file));
    return compare_checksum(file, trust);
}

static zonal_status map_descriptor(zonal__safetensors *file, int descriptor) {
    struct stat state;
    void *memory;
    if (fstat(descriptor, &state) != 0)
        return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s", file->path, strerror(errno));
    if (!S_ISREG(state.st_mode))
        return ZONAL_FAIL(ZONAL_IO, "%s is not a file; give the name of a safetensors file",
                          file->path);
    file->bytes = (size_t)state.st_size;
    if (file->bytes == 0) return ZONAL_OK; /* cannot be mapped */
    memory = mmap(NULL, file->bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (memory == MAP_FAILED)
        return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s", file->path, strerror(errno));
    file->base = memory;
    file->mapped = 1;
    return ZONAL_OK;
}

static zonal_status map_file(zonal__safetensors *file) {
    /* Without O_NONBLOCK a named pipe would wait here for a writer; it means nothing for files. */
    int descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    zonal_status status;
    if (descriptor < 0)
        return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s%s", file->path, strerror(errno),
                          zonal__file_read_remedy(errno));
    status = map_descriptor(file, descriptor);
    close(descriptor);
    return status;
}

static zonal_status finish_open(zonal__safetensors *file, zonal_status status,
                                zonal__safetensors_trust trust, zonal__safetensors **out) {
    if (status == ZONAL_OK) status = examine(file, trust);
    if (status == ZONAL_OK)
        *out = file;
    else
        zonal__safetensors_close(file);
    return status;
}

zonal_status zonal__safetensors_open(const char *path, zonal__safetensors_trust trust,
                                     zonal__safetensors **out) {
    zonal__safetensors *file;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&file, 1, "a safetensors file"));
    file->path = path;
    return finish_open(file, map_file(file), trust, out);
}

zonal_status zonal__safetensors_open_memory(const void *bytes, size_t count, const char *name,
                                            zonal__safetensors_trust trust,
                                            zonal__safetensors **out) {
    zonal__safetensors *file;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&file, 1, "a safetensors file"));
    file->path = name;
    file->base = bytes;
    file->bytes = count;
    return finish_open(file, ZONAL_OK, trust, out);
}

void zonal__safetensors_close(zonal__safetensors *file) {
    if (!file) return;
    if (file->mapped) munmap((void *)file->base, file->bytes);
    zonal__free(file->tensors);
    zonal__free(file->notes);
    zonal__free((void *)file->by_name);
    zonal__free(file->header);
    zonal__free(file);
}

/* ---- using ----------------------------------------------------------------------------------- */

const zonal__safetensor *zonal__safetensors_find(const zonal__safetensors *file, const char *name) {
    zonal__safetensor wanted = {.name = name}, *key = &wanted, **found;
    found = bsearch(&key, file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
    return found ? *found : NULL;
}

const char *zonal__safetensors_note_text(const zonal__safetensors *file, const char *key) {
    zonal__safetensors_note wanted = {.key = key}, *found;
    if (file->note_count == 0) return NULL;
    found = bsearch(&wanted, file->notes, (size_t)file->note_count, sizeof *found, compare_keys);
    return found ? found->text : NULL;
}

static zonal_status no_such_tensor(const zonal__safetensors *file, const char *name) {
    const zonal__safetensor *nearest = NULL;
    int best = 4;
    for (int64_t i = 0; i < file->count; i++) {
        int distance = zonal__text_distance(name, file->tensors[i].name);
        if (distance >= best) continue;
        best = distance;
        nearest = &file->tensors[i];
    }
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "%s has no tensor \"%.100s\"%s%.100s%s; was it saved from another network?",
                      file->path, name, nearest ? " (the nearest is \"" : "",
                      nearest ? nearest->name : "", nearest ? "\")" : "");
}

/* "[64, 3, 7, 7]" */
static void print_shape(int rank, const int64_t *shape, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, i ? ", %" PRId64 : "%" PRId64, shape[i]);
    if (used < size) snprintf(out + used, size - used, "]");
}

zonal_status zonal__safetensors_get(const zonal__safetensors *file, const char *name, int rank,
                                    const int64_t *shape, const zonal__safetensor **out) {
    const zonal__safetensor *tensor = zonal__safetensors_find(file, name);
    char has[200], needed[200];
    *out = NULL;
    if (!tensor) return no_such_tensor(file, name);
    if (tensor->rank != rank ||
        (rank > 0 && memcmp(tensor->shape, shape, (size_t)rank * sizeof *shape) != 0)) {
        print_shape(tensor->rank, tensor->shape, has, sizeof has);
        print_shape(rank, shape, needed, sizeof needed);
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "%s has the tensor \"%.100s\" with shape %s, but %s is needed; was it "
                          "saved from another network?",
                          file->path, name, has, needed);
    }
    *out = tensor;
    return ZONAL_OK;
}

/* One element; the data need not be aligned, so it is copied out. */
static float element(zonal__safetensors_type type, const uint8_t *at) {
    union {
        double f64;
        float f32;
        uint16_t u16;
        int64_t i64;
        int32_t i32;
        int16_t i16;
    } value;
    memcpy(&value, at, types[type].size);
    switch (type) {
    case ZONAL__SAFETENSORS_F64:
        return (float)value.f64;
    case ZONAL__SAFETENSORS_F32:
        return value.f32;
    case ZONAL__SAFETENSORS_F16:
        return zonal__npy_half(value.u16);
    case ZONAL__SAFETENSORS_BF16:
        return zonal__bf16_to_float(value.u16);
    case ZONAL__SAFETENSORS_I64:
        return (float)value.i64;
    case ZONAL__SAFETENSORS_I32:
        return (float)value.i32;
    case ZONAL__SAFETENSORS_I16:
        return value.i16;
    case ZONAL__SAFETENSORS_I8:
        return (int8_t)*at;
    case ZONAL__SAFETENSORS_U8:
        return *at;
    case ZONAL__SAFETENSORS_BOOL:
        return *at != 0;
    }
    return 0;
}

void zonal__safetensors_floats(const zonal__safetensor *tensor, float *out) {
    const uint8_t *at = tensor->data;
    size_t size = types[tensor->type].size;
    if (tensor->type == ZONAL__SAFETENSORS_F32) {
        if (tensor->count) memcpy(out, at, (size_t)tensor->count * size);
        return;
    }
    for (int64_t i = 0; i < tensor->count; i++, at += size) out[i] = element(tensor->type, at);
}
