/*
 * A folder of JPEGs that cost as much to decode as photographs do: for "zonal bench data" on a
 * machine that has none.
 *
 *     make_jpegs FOLDER [COUNT [WIDTH HEIGHT [FIRST]]]      2000 of 500 x 375, numbered from FIRST
 * 0
 *
 * An image is what photographs are to a coder: noise whose amplitude falls with its frequency, in
 * colours that go together, with the edges of some disks in front of each other. Quality 92, 4:2:0:
 * about 110 kB for an image, as ImageNet's have on average. Image i is always the same.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <jpeglib.h>

enum { OCTAVES = 8, DISKS = 24, QUALITY = 92 };

/* ---- random numbers: splitmix64 of a seed and a place ---------------------------------------- */

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* From -1 to 1. */
static float uniform(uint64_t seed, uint64_t place) {
    return (float)(mix(mix(seed) + place) >> 40) / (float)(1 << 23) - 1;
}

/* ---- an image -------------------------------------------------------------------------------- */

typedef struct image {
    int width, height;
    float *light;   /* [height][width] */
    uint8_t *bytes; /* [height][width][3] */
} image;

/* A lattice of random values every "step" pixels, bilinear between them. */
static float lattice(uint64_t seed, int step, int x, int y) {
    int i = x / step, j = y / step;
    float u = (float)(x % step) / (float)step, v = (float)(y % step) / (float)step;
    uint64_t at = (uint64_t)j << 20 | (uint64_t)i, below = at + (1u << 20);
    float upper = uniform(seed, at) * (1 - u) + uniform(seed, at + 1) * u;
    float lower = uniform(seed, below) * (1 - u) + uniform(seed, below + 1) * u;
    return upper * (1 - v) + lower * v;
}

/* Octaves from 128 pixels down to one; each finer one is weaker. */
static float noise(uint64_t seed, int x, int y) {
    float sum = 0, weight = 60;
    for (int o = 0; o < OCTAVES; o++, weight *= .88f)
        sum += weight * lattice(seed + (uint64_t)o, 128 >> o, x, y);
    return sum;
}

static void draw_disks(const image *p, uint64_t seed) {
    for (int d = 0; d < DISKS; d++) {
        uint64_t own = seed * 64 + (uint64_t)d;
        float cx = (uniform(own, 1) + 1) / 2 * (float)p->width;
        float cy = (uniform(own, 2) + 1) / 2 * (float)p->height;
        float radius = 8 + (uniform(own, 3) + 1) * 40, step = 60 * uniform(own, 4);
        for (int y = 0; y < p->height; y++)
            for (int x = 0; x < p->width; x++)
                if (hypotf((float)x - cx, (float)y - cy) < radius)
                    p->light[y * p->width + x] += step;
    }
}

static uint8_t to_byte(float value) {
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value + .5f);
}

static void draw(const image *p, uint64_t number) {
    const uint64_t seed = mix(number) & 0xffffffffffffu;
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++) p->light[y * p->width + x] = 128 + noise(seed, x, y);
    draw_disks(p, seed);
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++) {
            float light = p->light[y * p->width + x];
            for (int c = 0; c < 3; c++)
                p->bytes[3 * (y * p->width + x) + c] =
                    to_byte(light + 30 * lattice(seed + 100 + (uint64_t)c, 16, x, y));
        }
}

/* ---- files ----------------------------------------------------------------------------------- */

static long write_jpeg(const image *p, const char *path) {
    struct jpeg_compress_struct codec;
    struct jpeg_error_mgr errors;
    long size;
    FILE *file = fopen(path, "wb");
    if (!file) {
        perror(path);
        exit(1);
    }
    codec.err = jpeg_std_error(&errors);
    jpeg_create_compress(&codec);
    jpeg_stdio_dest(&codec, file);
    codec.image_width = (JDIMENSION)p->width;
    codec.image_height = (JDIMENSION)p->height;
    codec.input_components = 3;
    codec.in_color_space = JCS_RGB;
    jpeg_set_defaults(&codec);
    jpeg_set_quality(&codec, QUALITY, TRUE);
    jpeg_start_compress(&codec, TRUE);
    while (codec.next_scanline < codec.image_height) {
        JSAMPROW row = p->bytes + (size_t)codec.next_scanline * (size_t)p->width * 3;
        jpeg_write_scanlines(&codec, &row, 1);
    }
    jpeg_finish_compress(&codec);
    jpeg_destroy_compress(&codec);
    size = ftell(file);
    if (fclose(file) != 0) {
        perror(path);
        exit(1);
    }
    return size;
}

int main(int argc, char **argv) {
    int count = argc > 2 ? atoi(argv[2]) : 2000, first = argc > 5 ? atoi(argv[5]) : 0;
    image p = {.width = argc > 4 ? atoi(argv[3]) : 500, .height = argc > 4 ? atoi(argv[4]) : 375};
    double bytes = 0;
    if (argc < 2 || count < 1 || first < 0 || p.width < 16 || p.height < 16 || p.width > 4096 ||
        p.height > 4096) {
        fprintf(stderr, "usage: make_jpegs FOLDER [COUNT [WIDTH HEIGHT [FIRST]]]\n");
        return 2;
    }
    p.light = malloc((size_t)p.width * (size_t)p.height * sizeof *p.light);
    p.bytes = malloc((size_t)p.width * (size_t)p.height * 3);
    if (!p.light || !p.bytes) return 1;
    (void)mkdir(argv[1], 0777); /* where it cannot be made, the first file says so */
    for (int i = first; i < first + count; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/%06d.jpg", argv[1], i);
        draw(&p, (uint64_t)i);
        bytes += (double)write_jpeg(&p, path);
    }
    printf("%d images of %d x %d, %.1f kB each\n", count, p.width, p.height, bytes / count / 1e3);
    free(p.light);
    free(p.bytes);
    return 0;
}
