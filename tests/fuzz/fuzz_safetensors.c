/*
 * Hostile safetensors files (fuzz.h says how to run this). What the reader accepts must be readable
 * to its last element.
 */
#include "core/safetensors.h"

#define FUZZ_LARGEST 1024
#include "fuzz.h"

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
    uint8_t *copy = exact_copy(data, size);
    zonal__safetensors *file;
    zonal_status status;
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

enum { ROUNDS = 100000 };

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

/* A header with its true length before it, and eight bytes of data. */
static void start_from_good(input *in) {
    const char *header = DRAW_FROM(good_headers);
    uint64_t length = strlen(header);
    memcpy(in->at, &length, 8);
    memcpy(in->at + 8, header, length);
    memset(in->at + 8 + length, 0x81, 8);
    in->size = 16 + length;
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
        flip_bit(in, draw(in->size));
        break;
    case 1:
        in->at[at] = (uint8_t) "0123456789,[]{}\" "[draw(17)];
        break;
    case 2: {
        const char *piece = DRAW_FROM(pieces);
        replace(in, at, 0, piece, strlen(piece));
        break;
    }
    case 3:
        replace(in, at, 1, "", 0);
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
    check_share(accepted, ROUNDS, 20);
}

static const test_case tests[] = {{"mutations", test_mutations}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}

#endif
