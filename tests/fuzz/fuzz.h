/*
 * What the fuzzers share. Each file here is two programs. With ZONAL_LIBFUZZER it is a libFuzzer
 * target:
 *
 *     clang -std=c17 -g -O1 -fsanitize=fuzzer,address,undefined -DZONAL_LIBFUZZER -D_DEFAULT_SOURCE
 * \
 *         -Iinclude -Isrc -Itests/common tests/fuzz/fuzz_NAME.c \
 *         BUILD/src/data/libzonal_data.a BUILD/libzonal.a and the libraries that these need
 *
 * Without it, it is a test that mutates good files with a seeded generator. Both check that the
 * reader accepts or refuses, says why, and that what it accepts is consistent; the sanitizers watch
 * its memory.
 *
 * Define FUZZ_LARGEST, the most bytes of an input, before this is included.
 */
#ifndef ZONAL_TESTS_FUZZ_H
#define ZONAL_TESTS_FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zonal/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* libFuzzer keeps the input of a program that aborts. The sentence is the library's last. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s is false: %s\n", __FILE__, __LINE__, #condition,            \
                    zonal_last_error()->message);                                                  \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A copy of exactly this size: one byte too far is then seen by the address sanitizer. */
static inline uint8_t *exact_copy(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    REQUIRE(copy != NULL);
    if (size) memcpy(copy, data, size);
    return copy;
}

#ifndef ZONAL_LIBFUZZER

#include "test.h"

typedef struct input {
    uint8_t at[FUZZ_LARGEST];
    size_t size;
} input;

static uint64_t state; /* of draw; a test sets it to its seed */

/* SplitMix64 (Steele, Lea, Flood 2014): small, and good enough to choose mutations. */
static inline uint64_t draw(uint64_t below) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % below;
}

/* An element of an array, by chance. */
#define DRAW_FROM(array) ((array)[draw(sizeof(array) / sizeof *(array))])

static inline void flip_bit(input *in, size_t at) {
    in->at[at] ^= (uint8_t)(1u << draw(8));
}

/* Puts "length" bytes in the place of "gone" ones; leaves an input that would grow too long. */
static inline void replace(input *in, size_t at, size_t gone, const char *piece, size_t length) {
    if (in->size - gone + length > FUZZ_LARGEST) return;
    memmove(in->at + at + length, in->at + at + gone, in->size - at - gone);
    memcpy(in->at + at, piece, length);
    in->size = in->size - gone + length;
}

static inline void insert(input *in, const char *piece, size_t length) {
    replace(in, draw(in->size + 1), 0, piece, length);
}

static inline void cut_out(input *in) {
    size_t at = draw(in->size), length = 1 + draw(8);
    replace(in, at, length < in->size - at ? length : in->size - at, "", 0);
}

/* Reads a file of the folder tests/ whole; it must be shorter than an input. */
static inline int load(const char *path_in_tests, input *in) {
    char path[1024];
    FILE *stream;
    snprintf(path, sizeof path, "%s/%s", ZONAL_TESTS_DIR, path_in_tests);
    stream = fopen(path, "rb");
    if (!CHECK_MSG(stream != NULL, "%s cannot be read", path)) return 0;
    in->size = fread(in->at, 1, FUZZ_LARGEST, stream);
    fclose(stream);
    return CHECK(in->size > 0 && in->size < FUZZ_LARGEST);
}

/* One in "least" inputs must be accepted, and one in ten refused, or the test looks at nothing. */
static inline void check_share(int64_t accepted, int64_t rounds, int64_t least) {
    printf("# %lld inputs, %lld accepted\n", (long long)rounds, (long long)accepted);
    CHECK_MSG(accepted > rounds / least && accepted < rounds * 9 / 10,
              "the mutations are too wild or too tame: %lld of %lld accepted", (long long)accepted,
              (long long)rounds);
}

#endif

#endif
