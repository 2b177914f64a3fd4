/*
 * Hostile .npy headers. Two programs from one file:
 *
 *     clang -std=c17 -g -O1 -fsanitize=fuzzer,address,undefined -DZONAL_LIBFUZZER \
 *         -D_DEFAULT_SOURCE -Iinclude -Isrc tests/fuzz/fuzz_npy.c
 * src/core/{error,memory,file,npy}.c -o fuzz_npy
 *
 * is a libFuzzer target; without ZONAL_LIBFUZZER it is a test that mutates good headers with a
 * seeded generator. Both check that the parser accepts or refuses, says why, and that what it
 * accepts is consistent; the sanitizers watch its memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "fuzz_npy: %s is false\n", #condition);                                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void require_consistent(const zonal__npy_header *header, size_t size) {
    __int128 bytes = header->type;
    REQUIRE(header->type == ZONAL__NPY_F2 || header->type == ZONAL__NPY_F4 ||
            header->type == ZONAL__NPY_F8);
    REQUIRE(header->fortran == 0 || header->fortran == 1);
    REQUIRE(header->rank >= 0 && header->rank <= ZONAL__NPY_RANK);
    REQUIRE(header->data_at >= 10 && (size_t)header->data_at <= size);
    REQUIRE(header->data_bytes >= 0 && header->data_bytes <= INT64_MAX - header->data_at);
    for (int i = 0; i < header->rank; i++) {
        REQUIRE(header->shape[i] >= 0);
        if (header->shape[i] == 0) bytes = 0;
    }
    for (int i = 0; bytes > 0 && i < header->rank; i++) bytes *= header->shape[i];
    REQUIRE(bytes == header->data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* A copy of exactly this size: one byte too far is then seen by the address sanitizer. */
    uint8_t *copy = malloc(size ? size : 1);
    zonal__npy_header header;
    zonal_status status;
    REQUIRE(copy != NULL);
    if (size) memcpy(copy, data, size);
    status = zonal__npy_parse(copy, size, "fuzz.npy", &header);
    free(copy);
    if (status == ZONAL_OK) {
        require_consistent(&header, size);
    } else {
        REQUIRE(status == ZONAL_FORMAT || status == ZONAL_DTYPE);
        REQUIRE(strncmp(zonal_last_error()->message, "fuzz.npy ", 9) == 0);
    }
    return 0;
}

#ifndef ZONAL_LIBFUZZER

#include "test.h"

enum { ROUNDS = 200000, LARGEST = 512 };

typedef struct input {
    uint8_t at[LARGEST];
    size_t size;
} input;

static const char *const good_headers[] = {
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2000, 256), }          \n",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }\n",
    "{'shape': (1,), \"descr\": \"<f2\", 'fortran_order': False}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n",
    "{'descr': [('a', '<f4'), ('b', '>i4')], 'fortran_order': False, 'shape': (3,), }\n",
    "{'descr': '>f8', 'fortran_order': False, 'shape': (4611686018427387904, 1, 0), }\n",
};

/* Pieces that mean something to the parser, so that mutations get past its first checks. */
static const char *const pieces[] = {
    "'",        "\"",      "{",    "}",     "(",    ")",
    ",",        ":",       "L",    "-",     "\\",   "\n",
    "True",     "False",   "None", "'<f4'", "'|O'", "9223372036854775807",
    "'descr':", "'shape'", "0",    "1,",    "\xff", "99999999999999999999"};

static uint64_t state;

/* SplitMix64 (Steele, Lea, Flood 2014): small, and good enough to choose mutations. */
static uint64_t draw(uint64_t below) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % below;
}

static void start_from_good(input *in) {
    const char *header = good_headers[draw(sizeof good_headers / sizeof good_headers[0])];
    int version = 1 + (int)draw(3);
    size_t length = strlen(header), begin = version == 1 ? 10 : 12;
    memset(in, 0, sizeof *in);
    memcpy(in->at, "\x93NUMPY", 6);
    in->at[6] = (uint8_t)version;
    in->at[8] = (uint8_t)length;
    memcpy(in->at + begin, header, length);
    in->size = begin + length;
}

static void insert(input *in, const char *piece) {
    size_t length = strlen(piece), at = draw(in->size + 1);
    if (in->size + length > LARGEST) return;
    memmove(in->at + at + length, in->at + at, in->size - at);
    memcpy(in->at + at, piece, length);
    in->size += length;
}

static void cut_out(input *in) {
    size_t at = draw(in->size), length = 1 + draw(8);
    if (length > in->size - at) length = in->size - at;
    memmove(in->at + at, in->at + at + length, in->size - at - length);
    in->size -= length;
}

static void mutate(input *in) {
    if (in->size == 0) return;
    switch (draw(6)) {
    case 0:
        in->at[draw(in->size)] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        in->at[draw(in->size)] = (uint8_t)draw(256);
        break;
    case 2:
        insert(in, pieces[draw(sizeof pieces / sizeof pieces[0])]);
        break;
    case 3:
        cut_out(in);
        break;
    case 4:
        in->size = draw(in->size + 1);
        break;
    default: /* make the length of the header true again */
        if (in->size > 12) in->at[8] = (uint8_t)(in->size - (in->at[6] == 1 ? 10 : 12));
        if (in->size > 12) in->at[9] = (uint8_t)((in->size - (in->at[6] == 1 ? 10 : 12)) >> 8);
        break;
    }
}

static void test_mutations(void) {
    int64_t accepted = 0;
    state = test_seed;
    for (int round = 0; round < ROUNDS; round++) {
        input in;
        zonal__npy_header header;
        start_from_good(&in);
        for (uint64_t i = draw(6); i > 0; i--) mutate(&in);
        LLVMFuzzerTestOneInput(in.at, in.size);
        accepted += zonal__npy_parse(in.at, in.size, "fuzz.npy", &header) == ZONAL_OK;
    }
    printf("# %d inputs, %lld accepted\n", ROUNDS, (long long)accepted);
    CHECK_MSG(accepted > ROUNDS / 50 && accepted < ROUNDS * 9 / 10,
              "the mutations are too wild or too tame: %lld of %d accepted", (long long)accepted,
              ROUNDS);
}

static const test_case tests[] = {{"mutations", test_mutations}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}

#endif
