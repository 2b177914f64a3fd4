/* Images in memory: src/data/image.h. readers_test.py compares resampling with Pillow. */
#include "data/image.h"
#include "failing_alloc.h"
#include "test.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

static void test_shapes_refused(void) {
    static const int sizes[][2] = {{0, 1},         {1, 0},          {-1, 5},
                                   {5, -1},        {32769, 1},      {1, 32769},
                                   {32768, 32768}, {2147483647, 1}, {16385, 16384}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        zonal__image image = {0};
        CHECK_FAILS(zonal__image_shape(&image, sizes[i][0], sizes[i][1], 3), ZONAL_SHAPE,
                    "sides must be from 1 to 32768");
        CHECK(image.pixels == NULL && image.width == 0 && image.room == 0);
    }
}

/* A refusal empties an image that was in use; it can be used again. */
static void test_shape_again(void) {
    zonal__image image = {0};
    CHECK_OK(zonal__image_shape(&image, 4, 4, 3));
    CHECK_FAILS(zonal__image_shape(&image, 0, 4, 3), ZONAL_SHAPE, "0 x 4");
    CHECK(image.pixels == NULL && image.height == 0);
    CHECK_OK(zonal__image_shape(&image, 32768, 1, 1));
    CHECK(image.width == 32768 && image.height == 1 && image.channels == 1);
    zonal__image_fini(&image);
    zonal__image_fini(&image);
}

static void test_memory_is_kept(void) {
    zonal__image image = {0};
    const uint8_t *first;
    CHECK_OK(zonal__image_shape(&image, 10, 10, 3));
    first = image.pixels;
    CHECK_OK(zonal__image_shape(&image, 17, 17, 1));
    CHECK(image.pixels == first && image.room == 300);
    CHECK(image.width == 17 && image.height == 17 && image.channels == 1);
    CHECK_OK(zonal__image_shape(&image, 100, 1, 3));
    CHECK(image.pixels == first);
    zonal__image_fini(&image);
}

/* ---- conversion ------------------------------------------------------------------------------ */

static void test_to_grey(void) {
    static uint8_t rgb[] = {255, 255, 255, 255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30, 0, 12, 4};
    /* .299 x 255 = 76.245, .587 x 255 = 149.685, .114 x 255 = 29.07, 2.99 + 11.74 + 3.42 = 18.15,
     * 7.044 + .456 = 7.5 */
    static const uint8_t want[] = {255, 76, 150, 29, 18, 8};
    zonal__image in = {3, 2, 3, rgb, 0, 0}, out = {0};
    CHECK_OK(zonal__image_convert(&in, 1, &out));
    CHECK(out.width == 3 && out.height == 2 && out.channels == 1);
    CHECK(memcmp(out.pixels, want, sizeof want) == 0);
    zonal__image_fini(&out);
}

/* Grey in colour and back is the same: the three weights add up to 1. */
static void test_there_and_back(void) {
    uint8_t grey[256];
    zonal__image in = {16, 16, 1, grey, 0, 0}, colour = {0}, back = {0};
    for (int i = 0; i < 256; i++) grey[i] = (uint8_t)i;
    CHECK_OK(zonal__image_convert(&in, 3, &colour));
    for (int i = 0; i < 768; i++) CHECK(colour.pixels[i] == i / 3);
    CHECK_OK(zonal__image_convert(&colour, 1, &back));
    CHECK(memcmp(back.pixels, grey, 256) == 0);
    CHECK_OK(zonal__image_convert(&colour, 3, &back));
    CHECK(back.channels == 3 && memcmp(back.pixels, colour.pixels, 768) == 0);
    zonal__image_fini(&colour);
    zonal__image_fini(&back);
}

/* ---- resampling ------------------------------------------------------------------------------ */

static void check_resampled(zonal__image in, int width, int height, const uint8_t *want) {
    zonal__image out = {0};
    zonal__resampler resampler = {0};
    if (CHECK_OK(zonal__image_resample(&resampler, &in, width, height, &out))) {
        CHECK(out.width == width && out.height == height && out.channels == in.channels);
        for (int i = 0; i < width * height * in.channels; i++)
            CHECK_MSG(out.pixels[i] == want[i], "element %d is %d, want %d", i, out.pixels[i],
                      want[i]);
    }
    zonal__resampler_fini(&resampler);
    zonal__image_fini(&out);
}

static void test_same_size(void) {
    uint8_t pixels[5 * 7 * 3];
    for (int i = 0; i < 105; i++) pixels[i] = (uint8_t)(i * 37);
    check_resampled((zonal__image){5, 7, 3, pixels, 0, 0}, 5, 7, pixels);
}

/* By hand. To a half, at the border: weights 3, 3, 1 over 7. To the double: 3/4 and 1/4 of the
 * nearest two, the border pixel alone at the border. */
static void test_by_hand(void) {
    static uint8_t four[] = {0, 70, 140, 210}, two[] = {0, 100};
    static const uint8_t half[] = {50, 160}, twice[] = {0, 25, 75, 100};
    check_resampled((zonal__image){4, 1, 1, four, 0, 0}, 2, 1, half);
    check_resampled((zonal__image){1, 4, 1, four, 0, 0}, 1, 2, half);
    check_resampled((zonal__image){2, 1, 1, two, 0, 0}, 4, 1, twice);
    check_resampled((zonal__image){1, 2, 1, two, 0, 0}, 1, 4, twice);
}

/* A constant stays what it is, at any size: the weights add up to 1. */
static void test_constant(void) {
    static const int sizes[][4] = {{1, 1, 9, 9}, {100, 3, 7, 50}, {13, 17, 5, 4}, {64, 64, 1, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int value = 0; value < 256; value += 51) {
            zonal__image in = {0};
            uint8_t want[450];
            memset(want, value, sizeof want);
            if (!CHECK_OK(zonal__image_shape(&in, sizes[i][0], sizes[i][1], 1))) continue;
            memset(in.pixels, value, (size_t)(sizes[i][0] * sizes[i][1]));
            check_resampled(in, sizes[i][2], sizes[i][3], want);
            zonal__image_fini(&in);
        }
}

/* Turning the image over turns the result over. */
static void test_mirrored(void) {
    uint8_t pixels[31 * 9], mirrored[31 * 9];
    zonal__image in = {31, 9, 1, pixels, 0, 0}, over = {31, 9, 1, mirrored, 0, 0}, a = {0}, b = {0};
    zonal__resampler resampler = {0};
    for (int i = 0; i < 31 * 9; i++) pixels[i] = (uint8_t)(i * i * 5 + i);
    for (int i = 0; i < 31 * 9; i++) mirrored[i] = pixels[31 * 9 - 1 - i];
    CHECK_OK(zonal__image_resample(&resampler, &in, 12, 14, &a));
    CHECK_OK(zonal__image_resample(&resampler, &over, 12, 14, &b));
    for (int i = 0; i < 12 * 14; i++) {
        int difference = a.pixels[i] - b.pixels[12 * 14 - 1 - i];
        CHECK(difference >= -1 && difference <= 1); /* a float sum in another order, rounded */
    }
    zonal__resampler_fini(&resampler);
    zonal__image_fini(&a);
    zonal__image_fini(&b);
}

/* The second image of a kind finds all its memory there, and a smaller one after it too. */
static void test_resample_keeps_memory(void) {
    uint8_t pixels[40 * 30] = {0};
    zonal__image in = {40, 30, 1, pixels, 0, 0}, out = {0};
    zonal__resampler resampler = {0};
    failing_alloc_install(-1, 0);
    CHECK_OK(zonal__image_resample(&resampler, &in, 17, 11, &out));
    int64_t calls = failing_alloc_calls();
    CHECK(calls > 0);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(zonal__image_resample(&resampler, &in, 17, 11, &out));
        CHECK_OK(zonal__image_resample(&resampler, &in, 17, 10, &out));
    }
    CHECK(failing_alloc_calls() == calls);
    zonal__resampler_fini(&resampler);
    zonal__image_fini(&out);
    CHECK(failing_alloc_remove() == 0);
}

static void test_resample_refused(void) {
    uint8_t pixel = 0;
    zonal__image in = {1, 1, 1, &pixel, 0, 0}, out = {0};
    zonal__resampler resampler = {0};
    CHECK_FAILS(zonal__image_resample(&resampler, &in, 0, 5, &out), ZONAL_SHAPE, "0 x 5");
    CHECK_FAILS(zonal__image_resample(&resampler, &in, 40000, 5, &out), ZONAL_SHAPE, "40000 x 5");
    CHECK(out.pixels == NULL);
}

static zonal_status resample_once(void *context) {
    zonal__image out = {0};
    zonal__resampler resampler = {0};
    zonal_status status = zonal__image_resample(&resampler, context, 3, 3, &out);
    zonal__resampler_fini(&resampler);
    zonal__image_fini(&out);
    return status;
}

static void test_allocations(void) {
    uint8_t pixels[20] = {0};
    zonal__image in = {5, 4, 1, pixels, 0, 0};
    test_every_allocation("resampling", resample_once, &in);
}

static const test_case tests[] = {
    {"shapes_refused", test_shapes_refused},
    {"shape_again", test_shape_again},
    {"memory_is_kept", test_memory_is_kept},
    {"to_grey", test_to_grey},
    {"there_and_back", test_there_and_back},
    {"same_size", test_same_size},
    {"by_hand", test_by_hand},
    {"constant", test_constant},
    {"mirrored", test_mirrored},
    {"resample_keeps_memory", test_resample_keeps_memory},
    {"resample_refused", test_resample_refused},
    {"allocations", test_allocations},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
