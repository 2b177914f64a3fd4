/*
 * Hostile image files (fuzz.h says how to run this). The test mutates the files of
 * tests/data/images. What the decoder accepts must have the size that the probe told.
 */
#include "data/codec.h"

#define FUZZ_LARGEST 2048
#include "fuzz.h"

/* Sizes within the limits may still take a second each; the limits have tests of their own. */
enum { MOST_PIXELS = 1 << 16 };

static zonal__decoder *decoder; /* one for all inputs: damage must not outlive its image */
static zonal__image image;

static void require_refusal(zonal_status status) {
    REQUIRE(status == ZONAL_FORMAT || status == ZONAL_UNSUPPORTED);
    REQUIRE(strncmp(zonal_last_error()->message, "fuzz ", 5) == 0);
}

static zonal_status decode(const uint8_t *data, size_t size, const zonal__image_info *info,
                           int channels, int min_side) {
    zonal__decode_options options = {.channels = channels, .min_side = min_side};
    zonal_status status = zonal__image_decode(decoder, data, size, "fuzz", &options, &image);
    if (status != ZONAL_OK) {
        require_refusal(status);
        return status;
    }
    REQUIRE(image.channels == (channels ? channels : info->channels));
    if (min_side == 0) REQUIRE(image.width == info->width && image.height == info->height);
    REQUIRE(image.width >= 1 && image.width <= info->width);
    REQUIRE(image.height >= 1 && image.height <= info->height);
    return ZONAL_OK;
}

/* Left as it is for a device, which relies on the size that was told. */
static void leave_encoded(const uint8_t *data, size_t size, const zonal__image_info *info) {
    zonal__decode_options options = {.encoded_side = 512};
    if (zonal__image_decode(decoder, data, size, "fuzz", &options, &image) != ZONAL_OK) return;
    REQUIRE(image.width == info->width && image.height == info->height);
    REQUIRE(image.encoded == 0 || (image.encoded == size && size <= image.room));
}

/* Returns whether the input is an image. */
static int try_input(const uint8_t *data, size_t size) {
    uint8_t *copy = exact_copy(data, size);
    zonal__image_info info;
    zonal_status status;
    if (!decoder) REQUIRE(zonal__decoder_create(&decoder) == ZONAL_OK);
    status = zonal__image_probe(copy, size, "fuzz", &info);
    if (status != ZONAL_OK) {
        require_refusal(status);
    } else if ((int64_t)info.width * info.height <= MOST_PIXELS) {
        status = decode(copy, size, &info, 0, 0);
        decode(copy, size, &info, size % 2 ? 1 : 3, (int)(size % 7));
        leave_encoded(copy, size, &info);
    }
    free(copy);
    return status == ZONAL_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_input(data, size);
    return 0;
}

#ifndef ZONAL_LIBFUZZER

enum { ROUNDS = 200000 };

static const char *const names[] = {
    "colour.jpg",     "progressive.jpg", "grey.jpg",       "turned.jpg",  "cmyk.jpg",
    "cmyk_plain.jpg", "colour.png",      "grey.png",       "palette.png", "interlaced.png",
    "lossy.webp",     "lossless.webp",   "frames.webp",    "colour.bmp",  "palette.bmp",
    "grey.bmp",       "frames.gif",      "interlaced.gif", "colour.tif",  "grey.tif",
    "jpeg.tif",
};
enum { NAMES = sizeof names / sizeof names[0] };
static input good[NAMES];

/* Markers and chunks that mean something, so that mutations get past the first checks. */
static const struct {
    const char *text;
    size_t length;
} pieces[] = {
    {"\xff\xd8", 2},
    {"\xff\xd9", 2},
    {"\xff\xda", 2},
    {"\xff\xc0\0\x0b", 4},
    {"\xff\xc4\0\x04", 4},
    {"\xff\xe1", 2},
    {"Exif\0\0", 6},
    {"\xff\xdd\0\4\0\1", 6},
    {"\xff\xd0", 2},
    {"IDAT", 4},
    {"tRNS", 4},
    {"PLTE", 4},
    {"IEND", 4},
    {"\0\0\0\0", 4},
    {"\xff", 1},
    {"\0", 1},
    {"ANMF", 4},
    {"ALPH", 4},
    {"VP8L\x2f", 5},
    {"\x21\xf9\x04\x01", 4},
    {"\x2c\0\0\0\0", 5},
    {"\x01\x01\x03\0\x01\0\0\0", 8},
    {"\xff\xff\xff\xff", 4},
};

static int load_good(void) {
    for (int i = 0; i < NAMES; i++) {
        char path[64];
        snprintf(path, sizeof path, "data/images/%s", names[i]);
        if (!load(path, &good[i])) return 0;
    }
    return 1;
}

static void copy_within(input *in) {
    size_t from = draw(in->size), to = draw(in->size), length = 1 + draw(64);
    size_t most = in->size - (from > to ? from : to);
    memmove(in->at + to, in->at + from, length < most ? length : most);
}

static void mutate(input *in) {
    if (in->size == 0) return;
    switch (draw(7)) {
    case 0:
        flip_bit(in, draw(in->size));
        break;
    case 1:
        in->at[draw(in->size)] = (uint8_t)draw(256);
        break;
    case 2: {
        size_t which = draw(sizeof pieces / sizeof pieces[0]);
        insert(in, pieces[which].text, pieces[which].length);
        break;
    }
    case 3:
        cut_out(in);
        break;
    case 4:
        copy_within(in);
        break;
    case 5: /* near the head, where the sizes are */
        in->at[draw(in->size < 48 ? in->size : 48)] = (uint8_t)draw(256);
        break;
    default:
        if (draw(4) == 0) in->size = draw(in->size + 1);
        break;
    }
}

/* The checksum of PNG's chunks, bit by bit: CRC-32 of ISO 3309. */
static uint32_t checksum(const uint8_t *at, size_t count) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < count; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* Makes the checksums of a PNG true again, or libpng would never look at the mutated chunks. */
static void mend_checksums(input *in) {
    size_t at = 8;
    while (at + 12 <= in->size) {
        size_t length = (size_t)in->at[at] << 24 | (size_t)in->at[at + 1] << 16 |
                        (size_t)in->at[at + 2] << 8 | in->at[at + 3];
        uint32_t crc;
        if (length > in->size - at - 12) return;
        crc = checksum(in->at + at + 4, length + 4);
        for (int i = 0; i < 4; i++)
            in->at[at + 8 + length + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
        at += length + 12;
    }
}

static int is_png(const input *in) {
    return in->size >= 8 && memcmp(in->at, "\x89PNG", 4) == 0;
}

static void test_mutations(void) {
    int64_t accepted = 0;
    int read = 0; /* formats that this build reads come first */
    zonal__decode_options any = {0};
    if (!load_good() || !CHECK_OK(zonal__decoder_create(&decoder))) return;
    for (int i = 0; i < NAMES; i++) {
        zonal_status status =
            zonal__image_decode(decoder, good[i].at, good[i].size, "fuzz", &any, &image);
        CHECK_MSG(status == ZONAL_OK || status == ZONAL_UNSUPPORTED, "%s: %s", names[i],
                  zonal_last_error()->message);
        if (status == ZONAL_OK) good[read++] = good[i];
    }
    state = test_seed;
    for (int round = 0; round < ROUNDS; round++) {
        input in = good[draw((uint64_t)read)];
        for (uint64_t i = draw(6); i > 0; i--) mutate(&in);
        if (is_png(&in) && draw(4) > 0) mend_checksums(&in);
        accepted += try_input(in.at, in.size);
    }
    check_share(accepted, ROUNDS, 50);
    zonal__image_fini(&image);
    zonal__decoder_destroy(decoder);
}

static const test_case tests[] = {{"mutations", test_mutations}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}

#endif
