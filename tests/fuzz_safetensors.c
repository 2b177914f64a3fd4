/*
 * Hostile safetensors files. Two programs from one file:
 *
 *     clang -std=c17 -g -O1 -fsanitize=fuzzer,address,undefined -DZONAL_LIBFUZZER -D_DEFAULT_SOURCE
 *         -Iinclude -Isrc tests/fuzz_safetensors.c
 *         src/core/{checksum,error,file,json,json_read,memory,npy,safetensors,text}.c
 *
 * is a libFuzzer target; without ZONAL_LIBFUZZER it is a test that mutates good files with a seeded
 * generator. Both check that the reader accepts or refuses, says why, and that what it accepts is
 * consistent and can be read to its last element; the sanitizers watch its memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "fuzz_safetensors: %s is false\n", #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static int64_t accepted;

static void require_consistent(const zonal__safetensors *file, const uint8_t *data, size_t size) {
    uint64_t header;
    size_t covered;
    memcpy(&header, data, 8);
    covered = 8 + (size_t)header;
    for (int64_t i = 0; i < file->count; i++) {
        const zonal__safetensor *tensor = &file->tensors[i];
        __int128 count = 1;
        float *floats = malloc(tensor->count ? (size_t)tensor->count * sizeof *floats : 1);
        REQUIRE(floats != NULL);
        for (int k = 0; k < tensor->rank; k++) count *= tensor->shape[k] ? 1 : 0;
        for (int k = 0; count && k < tensor->rank; k++) count *= tensor->shape[k];
        REQUIRE(count == tensor->count);
        REQUIRE(tensor->data == data + covered);
        covered += (size_t)tensor->count * zonal__safetensors_type_size(tensor->type);
        REQUIRE(covered <= size);
        zonal__safetensors_floats(tensor, floats);
        REQUIRE(zonal__safetensors_find(file, tensor->name) == tensor);
        free(floats);
    }
    REQUIRE(covered == size);
    for (int64_t i = 0; i < file->note_count; i++)
        REQUIRE(zonal__safetensors_note_text(file, file->notes[i].key) == file->notes[i].text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* A copy of exactly this size: one byte too far is then seen by the address sanitizer. */
    uint8_t *copy = malloc(size ? size : 1);
    zonal__safetensors *file;
    zonal_status status;
    REQUIRE(copy != NULL);
    if (size) memcpy(copy, data, size);
    status = zonal__safetensors_open_memory(copy, size, "fuzz", ZONAL__SAFETENSORS_ANY, &file);
    if (status == ZONAL_OK) {
        require_consistent(file, copy, size);
        accepted++;
    } else {
        REQUIRE(status == ZONAL_FORMAT || status == ZONAL_DTYPE);
        REQUIRE(file == NULL && strstr(zonal_last_error()->message, "fuzz") != NULL);
    }
    zonal__safetensors_close(file);
    free(copy);
    return 0;
}

#ifndef ZONAL_LIBFUZZER

#include "test.h"

enum { ROUNDS = 100000, LARGEST = 1024 };

typedef struct input {
    uint8_t at[LARGEST];
    size_t size;
} input;

static const char *const good_headers[] = {
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
    ("{\"__metadata__\":{\"format\":\"pt\",\"k\":\"\\u00e9\\ud83d\\ude00\"},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[4,8]},"
     "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}   "),
    ("{\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
     "\"n\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[8,8]}}"),
};

static const char *const pieces[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     ",",
                                     ":",
                                     "\"",
                                     "\\",
                                     "\\u0061",
                                     "\\ud800",
                                     "0",
                                     "1",
                                     "8",
                                     "-",
                                     ".5",
                                     "e1",
                                     " ",
                                     "\n",
                                     "null",
                                     "\"F64\"",
                                     "\"BOOL\"",
                                     "\"a\":",
                                     "\"shape\":",
                                     "__metadata__",
                                     "\xff",
                                     "9223372036854775807",
                                     "4294967296",
                                     "\xc3\xa9",
                                     "\"zonal.xxh64\":\"0123456789abcdef\","};

static uint64_t state;

/* SplitMix64 (Steele, Lea, Flood 2014): small, and good enough to choose mutations. */
static uint64_t draw(uint64_t below) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % below;
}

/* A header with its true length before it, and eight bytes of data. */
static void start_from_good(input *in) {
    const char *header = good_headers[draw(sizeof good_headers / sizeof good_headers[0])];
    uint64_t length = strlen(header);
    memcpy(in->at, &length, 8);
    memcpy(in->at + 8, header, length);
    memset(in->at + 8 + length, 0x81, 8);
    in->size = 16 + length;
}

static void replace(input *in, size_t at, size_t gone, const char *piece) {
    size_t length = strlen(piece);
    if (in->size - gone + length > LARGEST) return;
    memmove(in->at + at + length, in->at + at + gone, in->size - at - gone);
    memcpy(in->at + at, piece, length);
    in->size = in->size - gone + length;
}

static void mend_length(input *in) {
    uint64_t length = in->size - 16;
    if (in->size >= 16) memcpy(in->at, &length, 8);
}

static void mutate(input *in) {
    size_t at;
    if (in->size < 10) return;
    at = 8 + draw(in->size - 8);
    switch (draw(6)) {
    case 0:
        in->at[draw(in->size)] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        in->at[at] = (uint8_t) "0123456789,[]{}\" "[draw(17)];
        break;
    case 2:
        replace(in, at, 0, pieces[draw(sizeof pieces / sizeof pieces[0])]);
        break;
    case 3:
        replace(in, at, 1, "");
        break;
    case 4:
        if (draw(8) == 0) in->size = draw(in->size + 1);
        break;
    default:
        in->at[in->size - 1 - draw(8)] = (uint8_t)draw(256);
        break;
    }
}

static void test_mutations(void) {
    state = test_seed;
    accepted = 0;
    for (int round = 0; round < ROUNDS; round++) {
        input in;
        start_from_good(&in);
        for (uint64_t i = draw(4); i > 0; i--) mutate(&in);
        if (draw(8) > 0) mend_length(&in);
        LLVMFuzzerTestOneInput(in.at, in.size);
    }
    printf("# %d inputs, %lld accepted\n", ROUNDS, (long long)accepted);
    CHECK_MSG(accepted > ROUNDS / 20 && accepted < ROUNDS * 9 / 10,
              "the mutations are too wild or too tame: %lld of %d accepted", (long long)accepted,
              ROUNDS);
}

static const test_case tests[] = {{"mutations", test_mutations}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}

#endif
