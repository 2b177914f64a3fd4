/* Named tensors in safetensors files: src/core/safetensors.h, with checksum.h and json_read.h. */
#include <sys/stat.h>

#include "core/checksum.h"
#include "core/json_read.h"
#include "core/memory.h"
#include "core/safetensors.h"
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"

enum { LARGEST = 8192 };

typedef struct file_bytes {
    char at[LARGEST];
    size_t size;
} file_bytes;

static int load(const char *path, file_bytes *out) {
    FILE *stream = fopen(path, "rb");
    if (!CHECK_MSG(stream != NULL, "%s is not there", path)) return 0;
    out->size = fread(out->at, 1, sizeof out->at, stream);
    fclose(stream);
    return CHECK(out->size < sizeof out->at);
}

static void save(const char *path, const file_bytes *in) {
    FILE *stream = fopen(path, "wb");
    if (!CHECK(stream != NULL)) return;
    CHECK(fwrite(in->at, 1, in->size, stream) == in->size);
    fclose(stream);
}

/* A file in memory from the text of its header and the bytes of its data. */
static void make(file_bytes *out, const char *header, const void *data, size_t bytes) {
    uint64_t length = strlen(header);
    memcpy(out->at, &length, 8);
    memcpy(out->at + 8, header, length);
    if (bytes) memcpy(out->at + 8 + length, data, bytes);
    out->size = 8 + length + bytes;
}

/* Opens a copy of exactly this size: one byte too far is then seen by the address sanitizer. */
static zonal_status open_content(const file_bytes *in, zonal__safetensors_trust trust) {
    char *copy = malloc(in->size ? in->size : 1);
    zonal__safetensors *file;
    zonal_status status;
    memcpy(copy, in->at, in->size);
    status = zonal__safetensors_open_memory(copy, in->size, "x.safetensors", trust, &file);
    CHECK((status == ZONAL_OK) == (file != NULL));
    zonal__safetensors_close(file);
    free(copy);
    return status;
}

/* ---- round trips ----------------------------------------------------------------------------- */

static const double f64[2] = {1.0 / 3, -1e300};
static const float f32[6] = {1, -2, 0.5f, 1e30f, -0.0f, 3};
static const uint16_t f16[3] = {0x3c00, 0xc000, 0x0001};
static const uint16_t bf16[2] = {0x3f80, 0xc049};
static const int64_t i64[1] = {INT64_MIN};
static const int32_t i32[2] = {7, -7};
static const int16_t i16[1] = {-32768};
static const int8_t i8[3] = {-128, 0, 127};
static const uint8_t u8[1] = {255};
static const uint8_t truth[2] = {0, 1};

static const zonal__safetensor all_types[] = {
    {.name = "bytes", .type = ZONAL__SAFETENSORS_U8, .rank = 1, .shape = {1}, .data = u8},
    {.name = "a.weight", .type = ZONAL__SAFETENSORS_F32, .rank = 2, .shape = {2, 3}, .data = f32},
    {.name = "half", .type = ZONAL__SAFETENSORS_F16, .rank = 1, .shape = {3}, .data = f16},
    {.name = "step", .type = ZONAL__SAFETENSORS_I64, .rank = 0, .data = i64},
    {.name = "brain", .type = ZONAL__SAFETENSORS_BF16, .rank = 1, .shape = {2}, .data = bf16},
    {.name = "d", .type = ZONAL__SAFETENSORS_F64, .rank = 3, .shape = {1, 2, 1}, .data = f64},
    {.name = "i", .type = ZONAL__SAFETENSORS_I32, .rank = 1, .shape = {2}, .data = i32},
    {.name = "none", .type = ZONAL__SAFETENSORS_F32, .rank = 2, .shape = {3, 0}},
    {.name = "s", .type = ZONAL__SAFETENSORS_I16, .rank = 1, .shape = {1}, .data = i16},
    {.name = "c", .type = ZONAL__SAFETENSORS_I8, .rank = 1, .shape = {3}, .data = i8},
    {.name = "mask \"\\\n\xc3\xa9",
     .type = ZONAL__SAFETENSORS_BOOL,
     .rank = 1,
     .shape = {2},
     .data = truth},
};
static const zonal__safetensors_note notes[] = {
    {"format", "pt"}, {"epoch", "12"}, {"empty", ""}, {"said", "\"zonal.xxh64\": \"0000\"\n"}};
enum { TENSORS = sizeof all_types / sizeof all_types[0], NOTES = 4 };

static zonal__safetensors_content everything(int checksum) {
    return (zonal__safetensors_content){all_types, TENSORS, notes, NOTES, checksum, 0};
}

static void check_everything(const zonal__safetensors *file) {
    CHECK(file->count == TENSORS && file->note_count == NOTES);
    for (int i = 0; i < TENSORS; i++) {
        const zonal__safetensor *want = &all_types[i], *got;
        size_t size = zonal__safetensors_type_size(want->type);
        int64_t count = 1;
        for (int k = 0; k < want->rank; k++) count *= want->shape[k];
        if (!CHECK_OK(zonal__safetensors_get(file, want->name, want->rank, want->shape, &got)))
            continue;
        CHECK(got->type == want->type && got->count == count);
        CHECK_MSG(((uintptr_t)got->data - (uintptr_t)file->base) % size == 0,
                  "%s is not aligned to its elements", want->name);
        if (count) CHECK(memcmp(got->data, want->data, (size_t)count * size) == 0);
    }
    for (int i = 0; i < NOTES; i++) {
        const char *text = zonal__safetensors_note_text(file, notes[i].key);
        CHECK(text != NULL && strcmp(text, notes[i].text) == 0);
    }
    CHECK(zonal__safetensors_note_text(file, "zonal.xxh64") == NULL);
    CHECK(zonal__safetensors_find(file, "nothing") == NULL);
}

static void test_round_trip(void) {
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    for (int checksum = 0; checksum <= 1; checksum++) {
        zonal__safetensors_content content = everything(checksum);
        zonal__safetensors *file;
        CHECK_OK(zonal__safetensors_write(test_folder_file(&folder, "x"), &content));
        CHECK(test_folder_count(&folder) == 1);
        if (!CHECK_OK(zonal__safetensors_open(folder.name, ZONAL__SAFETENSORS_ANY, &file)))
            continue;
        check_everything(file);
        zonal__safetensors_close(file);
        if (checksum)
            CHECK_OK(zonal__safetensors_open(folder.name, ZONAL__SAFETENSORS_SUMMED, &file));
        else
            CHECK_FAILS(zonal__safetensors_open(folder.name, ZONAL__SAFETENSORS_SUMMED, &file),
                        ZONAL_FORMAT, "it has no checksum");
        zonal__safetensors_close(file);
    }
    zonal__safetensors_close(NULL);
    test_folder_remove(&folder);
}

/* A file from before XXH64 is read, but not where a checksum is insisted on. */
static void test_earlier_checksum(void) {
    zonal__safetensors_note note = {"zonal.checksum", "0123456789abcdef"};
    zonal__safetensors_content content = {all_types, TENSORS, &note, 1, 0, 0};
    zonal__safetensors *file;
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__safetensors_write(test_folder_file(&folder, "x"), &content));
    CHECK_OK(zonal__safetensors_open(folder.name, ZONAL__SAFETENSORS_ANY, &file));
    zonal__safetensors_close(file);
    CHECK_FAILS(zonal__safetensors_open(folder.name, ZONAL__SAFETENSORS_SUMMED, &file),
                ZONAL_FORMAT, "a checksum of an earlier kind");
    test_folder_remove(&folder);
}

static void test_empty(void) {
    zonal__safetensors_content nothing = {0};
    test_folder folder;
    zonal__safetensors *file;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__safetensors_write(test_folder_file(&folder, "x"), &nothing));
    if (CHECK_OK(zonal__safetensors_open(folder.name, ZONAL__SAFETENSORS_ANY, &file)))
        CHECK(file->count == 0 && file->note_count == 0 && file->bytes == 16 &&
              zonal__safetensors_find(file, "x") == NULL);
    zonal__safetensors_close(file);
    test_folder_remove(&folder);
}

static void check_floats(const zonal__safetensors *file, const char *name, const float *want,
                         int64_t count) {
    const zonal__safetensor *tensor = zonal__safetensors_find(file, name);
    float got[8];
    if (!CHECK(tensor != NULL && tensor->count == count)) return;
    zonal__safetensors_floats(tensor, got);
    for (int64_t i = 0; i < count; i++)
        CHECK_MSG(memcmp(&got[i], &want[i], 4) == 0, "%s[%d] = %g, want %g", name, (int)i,
                  (double)got[i], (double)want[i]);
}

/* Values known in closed form: conversion is exact or rounds to the nearest. */
static void test_floats(void) {
    zonal__safetensors_content content = everything(0);
    test_folder folder;
    zonal__safetensors *file;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__safetensors_write(test_folder_file(&folder, "x"), &content));
    if (CHECK_OK(zonal__safetensors_open(folder.name, ZONAL__SAFETENSORS_ANY, &file))) {
        check_floats(file, "a.weight", f32, 6);
        check_floats(file, "d", (float[]){1.0f / 3, -INFINITY}, 2);
        check_floats(file, "half", (float[]){1, -2, 0x1p-24f}, 3);
        check_floats(file, "brain", (float[]){1, -3.140625f}, 2);
        check_floats(file, "step", (float[]){-0x1p63f}, 1);
        check_floats(file, "i", (float[]){7, -7}, 2);
        check_floats(file, "s", (float[]){-32768}, 1);
        check_floats(file, "c", (float[]){-128, 0, 127}, 3);
        check_floats(file, "bytes", (float[]){255}, 1);
        check_floats(file, "mask \"\\\n\xc3\xa9", (float[]){0, 1}, 2);
        check_floats(file, "none", NULL, 0);
    }
    zonal__safetensors_close(file);
    test_folder_remove(&folder);
}

/* A network's tensor of a few MiB made on the fly: byte i is i * 31 mod 251. */
static zonal_status fetch_pattern(void *context, size_t offset, size_t bytes, void *out) {
    int64_t *calls = context;
    if (++*calls == 5) return ZONAL_FAIL(ZONAL_DEVICE, "the device is gone");
    for (size_t i = 0; i < bytes; i++) ((uint8_t *)out)[i] = (uint8_t)((offset + i) * 31 % 251);
    return ZONAL_OK;
}

static void test_fetched(void) {
    int64_t calls = -100, wrong = 0;
    zonal__safetensor tensors[] = {
        {.name = "w",
         .type = ZONAL__SAFETENSORS_U8,
         .rank = 1,
         .shape = {3000001},
         .fetch = fetch_pattern,
         .context = &calls},
        {.name = "v", .type = ZONAL__SAFETENSORS_F32, .rank = 1, .shape = {6}, .data = f32}};
    zonal__safetensors_content content = {tensors, 2, NULL, 0, 1, 0};
    test_folder folder;
    zonal__safetensors *file;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__safetensors_write(test_folder_file(&folder, "x"), &content));
    if (CHECK_OK(zonal__safetensors_open(folder.name, ZONAL__SAFETENSORS_SUMMED, &file))) {
        const uint8_t *data = zonal__safetensors_find(file, "w")->data;
        for (size_t i = 0; i < 3000001; i++) wrong += data[i] != i * 31 % 251;
        CHECK(wrong == 0);
        CHECK(memcmp(zonal__safetensors_find(file, "v")->data, f32, sizeof f32) == 0);
    }
    zonal__safetensors_close(file);
    /* Three calls a pass: the fifth is in the second pass, or with three made before, in the first.
     */
    for (int before = 0; before <= 3; before += 3) {
        calls = before;
        CHECK_FAILS(zonal__safetensors_write(folder.name, &content), ZONAL_DEVICE,
                    "the device is gone");
    }
    CHECK_OK(zonal__safetensors_open(folder.name, ZONAL__SAFETENSORS_SUMMED, &file));
    zonal__safetensors_close(file);
    CHECK_MSG(test_folder_count(&folder) == 1, "a temporary was left behind");
    test_folder_remove(&folder);
}

/* ---- what the writer refuses ----------------------------------------------------------------- */

static void test_write_refused(void) {
    const zonal__safetensor good = {
        .name = "a", .type = ZONAL__SAFETENSORS_U8, .rank = 1, .shape = {1}, .data = u8};
    zonal__safetensor pair[2] = {good, good};
    zonal__safetensors_note two[2] = {{"k", "1"}, {"k", "2"}};
    zonal__safetensors_content content = {pair, 2, NULL, 0, 0, 0};
    test_folder folder;
    const char *path;
    if (!CHECK(test_folder_make(&folder))) return;
    path = test_folder_file(&folder, "x");
    CHECK_FAILS(zonal__safetensors_write(path, &content), ZONAL_ARGUMENT, "\"a\" is there twice");
    pair[1].name = "";
    CHECK_FAILS(zonal__safetensors_write(path, &content), ZONAL_ARGUMENT, "name is empty");
    pair[1].name = "\xff";
    CHECK_FAILS(zonal__safetensors_write(path, &content), ZONAL_ARGUMENT, "is not UTF-8");
    pair[1].name = "__metadata__";
    CHECK_FAILS(zonal__safetensors_write(path, &content), ZONAL_ARGUMENT, "can be called");
    pair[1].name = "b";
    pair[1].shape[0] = -1;
    CHECK_FAILS(zonal__safetensors_write(path, &content), ZONAL_ARGUMENT, "shape of the tensor");
    pair[1].rank = 9;
    CHECK_FAILS(zonal__safetensors_write(path, &content), ZONAL_ARGUMENT, "shape of the tensor");
    pair[1].rank = 2;
    pair[1].shape[0] = pair[1].shape[1] = INT64_MAX;
    CHECK_FAILS(zonal__safetensors_write(path, &content), ZONAL_ARGUMENT, "shape of the tensor");
    pair[1] = good;
    pair[1].name = "b";
    pair[1].data = NULL;
    CHECK_FAILS(zonal__safetensors_write(path, &content), ZONAL_ARGUMENT, "is given no data");
    pair[1].data = pair[0].data = u8;
    pair[1].shape[0] = pair[0].shape[0] = INT64_MAX;
    CHECK_FAILS(zonal__safetensors_write(path, &content), ZONAL_ARGUMENT, "too large for any file");
    content = (zonal__safetensors_content){&good, 1, two, 2, 0, 0};
    CHECK_FAILS(zonal__safetensors_write(path, &content), ZONAL_ARGUMENT, "\"k\" is there twice");
    two[1].key = "zonal.xxh64";
    CHECK_FAILS(zonal__safetensors_write(path, &content), ZONAL_ARGUMENT, "for its checksum");
    two[1] = (zonal__safetensors_note){"l", "\xc3"};
    CHECK_FAILS(zonal__safetensors_write(path, &content), ZONAL_ARGUMENT, "is not UTF-8");
    CHECK(test_folder_count(&folder) == 0);
    test_folder_remove(&folder);
}

static void test_unwritable(void) {
    zonal__safetensors_content content = everything(1);
    test_folder folder;
    if (access("/dev/full", W_OK) != 0) SKIP("no /dev/full");
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_FAILS(zonal__safetensors_write("/dev/full", &content), ZONAL_IO,
                "No space left on device");
    CHECK_FAILS(zonal__safetensors_write(test_folder_file(&folder, "none/x"), &content), ZONAL_IO,
                "does its folder exist?");
    CHECK_FAILS(zonal__safetensors_write(folder.path, &content), ZONAL_IO, "it is a folder");
    test_folder_remove(&folder);
}

/* ---- what the reader refuses ----------------------------------------------------------------- */

static void test_unreadable(void) {
    test_folder folder;
    zonal__safetensors *file;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_FAILS(zonal__safetensors_open(test_folder_file(&folder, "x"), 0, &file), ZONAL_IO,
                "No such file");
    CHECK(file == NULL);
    CHECK_FAILS(zonal__safetensors_open(folder.path, 0, &file), ZONAL_IO, "is not a file");
    CHECK(mkfifo(test_folder_file(&folder, "pipe"), 0600) == 0);
    CHECK_FAILS(zonal__safetensors_open(folder.name, 0, &file), ZONAL_IO, "is not a file");
    test_folder_remove(&folder);
}

/* Eight bytes of data. */
static void test_damaged_headers(void) {
    static const struct {
        const char *header, *sentence;
    } cases[] = {
        {"{}", "bytes that belong to no tensor"},
        {"[]", "not a safetensors file"},
        {" {}", "not a safetensors file"},
        {"{} x", "something follows its end"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},}", "a text is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],}}", "a text is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,],\"data_offsets\":[0,8]}}", "a whole number"},
        {"{\"a\":{\"dtype\":\"F32\" \"shape\":[2],\"data_offsets\":[0,8]}}", "a comma is missing"},
        {"{\"a\" {\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "a colon is missing"},
        {"{a:{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "a text is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[02],\"data_offsets\":[0,8]}}", "a whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", "a whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[+2],\"data_offsets\":[0,8]}}", "a whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2e0],\"data_offsets\":[0,8]}}", "a whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", "a negative number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,8]}}",
         "does not fit into 64 bits"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,8]}}",
         "too large a shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}",
         "too large a shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}",
         "of more than 8 dimensions; reshape it"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", "an array is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[[2]],\"data_offsets\":[0,8]}}", "a whole number"},
        {"{\"a\":[]}", "an object is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", "incomplete"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", "incomplete"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "incomplete"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8]}}", "incomplete"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", "too many numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "a field there twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}",
         "an unknown field"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}",
         "data_offsets that do not fit the shape of the tensor \"a\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}",
         "do not fit the shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", "is cut short"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "belong to no tensor"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", "a gap or an overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         "a gap or an overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         "a second one of the tensor \"a\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         "a second one of the tensor \"a\""},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", "__metadata__ is there twice"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "a key of its metadata is there twice"},
        {"{\"__metadata__\":{\"a\":1}}", "a text is missing"},
        {"{\"__metadata__\":{\"a\":{}}}", "a text is missing"},
        {"{\"__metadata__\":null}", "an object is missing"},
        {"{\"a\\u0000\":{}}", "\\u0000"},
        {"{\"a\\ud800\":{}}", "half of a surrogate pair"},
        {"{\"a\\udc00\":{}}", "half of a surrogate pair"},
        {"{\"a\\ud800\\u0041\":{}}", "half of a surrogate pair"},
        {"{\"a\\u00g0\":{}}", "four hexadecimal digits"},
        {"{\"a\\x\":{}}", "an unknown escape"},
        {"{\"a\n\":{}}", "a control character"},
        {"{\"a\xff\":{}}", "not UTF-8"},
        {"{\"a", "a text has no end"},
        {"{\"a\\", "an unknown escape"},
        {"{\"a\xf0\x90", "not UTF-8"},
        {"{\"__metadata__\":{\"zonal.xxh64\":\"12\"},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "its checksum is not one"},
        {"{\"__metadata__\":{\"zonal.xxh64\":\"0123456789abcdef\"},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "its checksum is wrong"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        file_bytes c;
        make(&c, cases[i].header, "12345678", 8);
        CHECK_FAILS(open_content(&c, ZONAL__SAFETENSORS_ANY), ZONAL_FORMAT, cases[i].sentence);
        CHECK(strstr(zonal_last_error()->message, "x.safetensors") != NULL);
    }
}

static void test_types_refused(void) {
    file_bytes c;
    make(&c, "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,8]}}", "12345678", 8);
    CHECK_FAILS(open_content(&c, ZONAL__SAFETENSORS_ANY), ZONAL_DTYPE,
                "holds the tensor \"a\" of type F8_E4M3, but F64, F32");
}

static void test_accepted_headers(void) {
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"a\":{\"data_offsets\":[0,8],\"shape\":[1,2],\"dtype\":\"F32\"}}        ",
        "{ \"a\" :\t{\r\n\"dtype\" : \"U8\", \"shape\" : [ 8 ] , \"data_offsets\" : [ 0 , 8 ] } } ",
        "{\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
        "{\"n\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]},"
        "\"m\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,0],\"data_offsets\":[0,0]},"
        "\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}",
        "{\"\\u0061\\ud83d\\ude00\\/\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
        "\"__metadata__\":{}}",
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        file_bytes c;
        make(&c, headers[i], "12345678", 8);
        CHECK_OK(open_content(&c, ZONAL__SAFETENSORS_ANY));
    }
}

static void test_header_lengths(void) {
    static const uint64_t lengths[] = {0, 1, 100000001, 1ull << 32, ~0ull, ~0ull - 7, 1ull << 63};
    file_bytes c;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        make(&c, "{}", NULL, 0);
        memcpy(c.at, &lengths[i], 8);
        CHECK_FAILS(open_content(&c, ZONAL__SAFETENSORS_ANY), ZONAL_FORMAT,
                    "not a safetensors file, or its beginning is damaged");
    }
    make(&c, "{}", NULL, 0);
    c.at[0] = 3;
    CHECK_FAILS(open_content(&c, ZONAL__SAFETENSORS_ANY), ZONAL_FORMAT, "cut short inside its");
    c.at[0] = 2;
    CHECK_OK(open_content(&c, ZONAL__SAFETENSORS_ANY));
}

static int write_good(test_folder *folder, int checksum, file_bytes *good) {
    zonal__safetensors_content all = everything(checksum);
    return CHECK(test_folder_make(folder)) &&
           CHECK_OK(zonal__safetensors_write(test_folder_file(folder, "x"), &all)) &&
           load(folder->name, good);
}

/* Cut off at every length, and with a byte too many: from the file, and from memory. */
static void test_truncations(void) {
    test_folder folder;
    file_bytes good, cut;
    zonal__safetensors *file;
    if (!write_good(&folder, 0, &good)) return;
    for (size_t size = 0; size < good.size; size++) {
        cut = good;
        cut.size = size;
        CHECK_MSG(open_content(&cut, ZONAL__SAFETENSORS_ANY) == ZONAL_FORMAT,
                  "cut to %zu of %zu bytes and accepted", size, good.size);
        if (size % 16 != 0) continue;
        save(folder.name, &cut);
        CHECK(zonal__safetensors_open(folder.name, ZONAL__SAFETENSORS_ANY, &file) == ZONAL_FORMAT);
    }
    good.size++;
    CHECK_FAILS(open_content(&good, ZONAL__SAFETENSORS_ANY), ZONAL_FORMAT, "belong to no tensor");
    test_folder_remove(&folder);
}

/* Every single bit, everywhere: also in names, shapes, padding and the checksum itself. */
static void test_bit_flips(void) {
    test_folder folder;
    file_bytes good;
    int64_t missed = 0;
    if (!write_good(&folder, 1, &good)) return;
    CHECK_OK(open_content(&good, ZONAL__SAFETENSORS_SUMMED));
    for (size_t i = 0; i < 8 * good.size; i++) {
        zonal_status status;
        good.at[i / 8] ^= (char)(1 << i % 8);
        status = open_content(&good, ZONAL__SAFETENSORS_SUMMED);
        /* "F32" and "U8" can become types that are not read. */
        missed += status != ZONAL_FORMAT && status != ZONAL_DTYPE;
        good.at[i / 8] ^= (char)(1 << i % 8);
    }
    CHECK_MSG(missed == 0, "%lld of %zu flipped bits were not noticed", (long long)missed,
              8 * good.size);
    CHECK_OK(open_content(&good, ZONAL__SAFETENSORS_SUMMED));
    test_folder_remove(&folder);
}

static void test_mismatches(void) {
    zonal__safetensors_content all = everything(0);
    const zonal__safetensor *tensor;
    test_folder folder;
    zonal__safetensors *file;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__safetensors_write(test_folder_file(&folder, "x"), &all));
    if (CHECK_OK(zonal__safetensors_open(folder.name, ZONAL__SAFETENSORS_ANY, &file))) {
        CHECK_FAILS(zonal__safetensors_get(file, "a.weight", 2, (const int64_t[]){3, 2}, &tensor),
                    ZONAL_SHAPE,
                    "has the tensor \"a.weight\" with shape [2, 3], but [3, 2] is needed");
        CHECK(tensor == NULL);
        CHECK_FAILS(zonal__safetensors_get(file, "step", 1, (const int64_t[]){1}, &tensor),
                    ZONAL_SHAPE, "with shape [], but [1] is needed");
        CHECK_FAILS(zonal__safetensors_get(file, "a.wieght", 0, NULL, &tensor), ZONAL_FORMAT,
                    "has no tensor \"a.wieght\" (the nearest is \"a.weight\")");
        CHECK_FAILS(zonal__safetensors_get(file, "layer4.1.bn2.running_mean", 0, NULL, &tensor),
                    ZONAL_FORMAT, "has no tensor \"layer4.1.bn2.running_mean\"; was it saved");
    }
    zonal__safetensors_close(file);
    test_folder_remove(&folder);
}

/* ---- the checksum, the JSON reader, memory --------------------------------------------------- */

/* The values of whole texts are tested with packs; here the pieces. */
static void test_checksum_pieces(void) {
    uint8_t bytes[200];
    int wrong = 0;
    for (int i = 0; i < 200; i++) bytes[i] = (uint8_t)(i * 7);
    for (size_t n = 0; n <= 200; n++)
        for (size_t piece = 1; piece <= 70; piece++) {
            zonal__checksum sum;
            zonal__checksum_init(&sum);
            for (size_t at = 0; at < n; at += piece)
                zonal__checksum_add(&sum, bytes + at, n - at < piece ? n - at : piece);
            zonal__checksum_add(&sum, NULL, 0);
            wrong += zonal__checksum_value(&sum) != zonal__checksum_of(bytes, n);
        }
    CHECK_MSG(wrong == 0, "%d ways to cut change the sum", wrong);
}

static zonal_status skip_all(const char *json) {
    char text[512];
    zonal__json_reader reader;
    snprintf(text, sizeof text, "%s", json);
    zonal__json_reader_init(&reader, text, strlen(text), "x.json");
    ZONAL_TRY(zonal__json_read_skip(&reader));
    return zonal__json_read_end(&reader);
}

static void test_json_values(void) {
    static const char *const good[] = {
        "{}",
        " [ ] ",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1.5e+300",
        "-12E-7",
        "1e5",
        "\"\"",
        "{\"a\":[1,{\"b\":null}],\"c\":\"\\b\\f\\n\\r\\t\\\"\\\\\\/\\uD83D\\uDE00\"}",
        "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"};
    static const char *const bad[] = {
        "",           "{",     "[",       "}",
        "nul",        "True",  "01",      "-",
        "1.",         ".5",    "1e",      "1e+",
        "+1",         "0x1",   "NaN",     "[1 2]",
        "[1,]",       "[,1]",  "{\"a\"}", "{\"a\":}",
        "{\"a\":1,}", "{1:2}", "'a'",     "\"a",
        "[1]]",       "1 2",   "\"\t\"",  "[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        CHECK_MSG(skip_all(good[i]) == ZONAL_OK, "%s was refused: %s", good[i],
                  zonal_last_error()->message);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_MSG(skip_all(bad[i]) == ZONAL_FORMAT, "%s was accepted", bad[i]);
}

/* The bytes of UTF-8 at both ends of each length, from the escapes for them. */
static void test_json_texts(void) {
    static const struct {
        const char *json, *want;
    } cases[] = {
        {"\"\"", ""},
        {"\"\\b\\f\\n\\r\\t\\\"\\\\\\/\"", "\b\f\n\r\t\"\\/"},
        {"\"a\\u0001\\u007fb\"", "a\x01\x7f"
                                 "b"},
        {"\"\\u0080\\u07FF\"", "\xc2\x80\xdf\xbf"},
        {"\"\\u0800\\ufFfF\"", "\xe0\xa0\x80\xef\xbf\xbf"},
        {"\"\\ud800\\udc00\\udbff\\udfff\"", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
        {"\"\xc3\xa9\\u00e9\xf0\x9f\x98\x80\"", "\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        const char *got;
        zonal__json_reader reader;
        strcpy(text, cases[i].json);
        zonal__json_reader_init(&reader, text, strlen(text), "x.json");
        if (CHECK_OK(zonal__json_read_text(&reader, &got)))
            CHECK_MSG(strcmp(got, cases[i].want) == 0, "%s read as %s", cases[i].json, got);
        CHECK_OK(zonal__json_read_end(&reader));
    }
}

static zonal_status write_and_open(void *path) {
    int64_t calls = -100;
    zonal__safetensor tensors[] = {all_types[0],
                                   {.name = "w",
                                    .type = ZONAL__SAFETENSORS_U8,
                                    .rank = 1,
                                    .shape = {10},
                                    .fetch = fetch_pattern,
                                    .context = &calls}};
    zonal__safetensors_content content = {tensors, 2, notes, NOTES, 1, 0};
    zonal__safetensors *file;
    ZONAL_TRY(zonal__safetensors_write(path, &content));
    ZONAL_TRY(zonal__safetensors_open(path, ZONAL__SAFETENSORS_SUMMED, &file));
    zonal__safetensors_close(file);
    return ZONAL_OK;
}

static void test_memory(void) {
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    test_every_allocation("a safetensors file", write_and_open,
                          (void *)test_folder_file(&folder, "x"));
    CHECK(test_folder_count(&folder) == 1);
    test_folder_remove(&folder);
}

static const test_case tests[] = {{"round_trip", test_round_trip},
                                  {"earlier_checksum", test_earlier_checksum},
                                  {"empty", test_empty},
                                  {"floats", test_floats},
                                  {"fetched", test_fetched},
                                  {"write_refused", test_write_refused},
                                  {"unwritable", test_unwritable},
                                  {"unreadable", test_unreadable},
                                  {"damaged_headers", test_damaged_headers},
                                  {"types_refused", test_types_refused},
                                  {"accepted_headers", test_accepted_headers},
                                  {"header_lengths", test_header_lengths},
                                  {"truncations", test_truncations},
                                  {"bit_flips", test_bit_flips},
                                  {"mismatches", test_mismatches},
                                  {"checksum_pieces", test_checksum_pieces},
                                  {"json_values", test_json_values},
                                  {"json_texts", test_json_texts},
                                  {"memory", test_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
