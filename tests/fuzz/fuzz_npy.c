/*
 * Hostile .npy headers (fuzz.h says how to run this).
 */
#include "core/npy.h"

#define FUZZ_LARGEST 512
#include "fuzz.h"

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
    uint8_t *copy = exact_copy(data, size);
    zonal__npy_header header;
    zonal_status status;
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

enum { ROUNDS = 200000 };

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

static void start_from_good(input *in) {
    const char *header = DRAW_FROM(good_headers);
    int version = 1 + (int)draw(3);
    size_t length = strlen(header), begin = version == 1 ? 10 : 12;
    memset(in, 0, sizeof *in);
    memcpy(in->at, "\x93NUMPY", 6);
    in->at[6] = (uint8_t)version;
    in->at[8] = (uint8_t)length;
    memcpy(in->at + begin, header, length);
    in->size = begin + length;
}

static void mutate(input *in) {
    if (in->size == 0) return;
    switch (draw(6)) {
    case 0:
        flip_bit(in, draw(in->size));
        break;
    case 1:
        in->at[draw(in->size)] = (uint8_t)draw(256);
        break;
    case 2: {
        const char *piece = DRAW_FROM(pieces);
        insert(in, piece, strlen(piece));
        break;
    }
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
    check_share(accepted, ROUNDS, 50);
}

static const test_case tests[] = {{"mutations", test_mutations}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}

#endif
