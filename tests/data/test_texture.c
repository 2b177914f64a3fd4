/*
 * Procedural textures, their source and contact sheets: src/data/texture.h, textures_source.c,
 * sheet.h. Pixels against golden/make_textures.py, then what a family must look like, in numbers,
 * and that nothing but (spec, number) decides what is drawn.
 */
#include <pthread.h>
#include <stdlib.h>

#include "core/memory.h"
#include "data/sheet.h"
#include "data/texture.h"
#include "failing_alloc.h"
#include "golden/textures.h"
#include "test.h"

#define COUNT(array) (int)(sizeof(array) / sizeof(array)[0])

/* One texture of a family, its defaults at this size. */
static int make(zonal__texture_family family, int size, uint64_t seed, int64_t number,
                zonal__image *image) {
    zonal__texture_spec spec;
    zonal__texture_maker *maker;
    int made;
    zonal__texture_defaults(family, &spec);
    spec.size = size;
    spec.seed = seed;
    if (!CHECK_OK(zonal__texture_maker_create(&spec, &maker))) return 0;
    made = CHECK_OK(zonal__texture_make(maker, number, image));
    zonal__texture_maker_destroy(maker);
    return made;
}

static int64_t area(const zonal__image *image) {
    return (int64_t)image->width * image->height;
}

/* The mean of |a - b| in grey levels. */
static double distance(const zonal__image *a, const zonal__image *b) {
    double sum = 0;
    for (int64_t i = 0; i < area(a); i++) sum += abs(a->pixels[i] - b->pixels[i]);
    return sum / (double)area(a);
}

/* ---- pixels ---------------------------------------------------------------------------------- */

/* The library computes in float where the script has doubles: a value near the middle between two
 * grey levels may go either way. */
static void test_golden(void) {
    for (int k = 0; k < COUNT(golden_textures); k++) {
        zonal__texture_spec spec;
        zonal__texture_maker *maker;
        zonal__image image = {0};
        int worst = 0, off = 0;
        if (!CHECK_OK(zonal__texture_parse(golden_textures[k].spec, &spec))) continue;
        spec.seed = golden_textures[k].seed;
        if (!CHECK_OK(zonal__texture_maker_create(&spec, &maker))) continue;
        if (CHECK_OK(zonal__texture_make(maker, golden_textures[k].number, &image))) {
            CHECK(image.width == spec.size && image.height == spec.size && image.channels == 1);
            for (int64_t i = 0; i < area(&image); i++) {
                int error = abs(image.pixels[i] - golden_textures[k].pixels[i]);
                if (error > worst) worst = error;
                off += error > 0;
            }
            CHECK_MSG(worst <= 1 && off <= 3, "%s: %d pixels differ, by up to %d",
                      golden_textures[k].spec, off, worst);
        }
        zonal__image_fini(&image);
        zonal__texture_maker_destroy(maker);
    }
}

/* ---- looks ----------------------------------------------------------------------------------- */

typedef struct looks {
    double mean;         /* of 0 to 1 */
    double black, white; /* shares of the pixels */
    double dark, light;  /* shares below 1/4 and above 3/4 */
    double difference;   /* mean difference between neighbours in a row, 0 to 1 */
} looks;

enum { SAMPLES = 24 };

/* Of SAMPLES textures together; the mean of the worst single one goes into *furthest. */
static looks look_at(zonal__texture_family family, double *furthest) {
    zonal__image image = {0};
    looks all = {0};
    double pixels = 0;
    *furthest = 0.5;
    for (int number = 0; number < SAMPLES; number++) {
        double sum = 0;
        if (!make(family, 256, 1, number, &image)) break;
        for (int64_t i = 0; i < area(&image); i++) {
            int p = image.pixels[i], left = i % image.width ? image.pixels[i - 1] : p;
            sum += p / 255.0;
            all.black += p == 0;
            all.white += p == 255;
            all.dark += p < 64;
            all.light += p > 191;
            all.difference += abs(p - left) / 255.0;
        }
        all.mean += sum;
        pixels += (double)area(&image);
        sum /= (double)area(&image);
        if (fabs(sum - 0.5) > fabs(*furthest - 0.5)) *furthest = sum;
    }
    zonal__image_fini(&image);
    all.mean /= pixels;
    all.black /= pixels;
    all.white /= pixels;
    all.dark /= pixels;
    all.light /= pixels;
    all.difference /= pixels;
    printf("# %s: mean %.3f, black %.4f, white %.4f, dark %.3f, light %.3f, difference %.4f\n",
           zonal__texture_name(family), all.mean, all.black, all.white, all.dark, all.light,
           all.difference);
    return all;
}

/* Dots and stars: mid grey with 1 % of black or white, as much of one as of the other. Rounding
 * makes a pixel white from 0.996 on, which adds to the share. A texture has about 25 saturated
 * shapes, 600 in all: the difference of two counts of 300 has standard error 25, 4 % of 600. */
static void check_shapes(zonal__texture_family family) {
    double furthest;
    looks all = look_at(family, &furthest);
    CHECK_CLOSE(all.mean, 0.5, 0.005);
    CHECK_CLOSE(furthest, 0.5, 0.03);
    CHECK(all.black + all.white >= 0.01 && all.black + all.white < 0.0115);
    CHECK_CLOSE(all.black / (all.black + all.white), 0.5, 0.1);
    CHECK(all.dark + all.light < 0.05);
}

static void test_disk_looks(void) {
    check_shapes(ZONAL__TEXTURE_DISK);
}

static void test_flake_looks(void) {
    check_shapes(ZONAL__TEXTURE_FLAKE);
}

/* Every grey, in large patches: neighbours differ by less than 4 levels of 256. */
static void test_cloud_looks(void) {
    double furthest;
    looks all = look_at(ZONAL__TEXTURE_CLOUD, &furthest);
    CHECK_CLOSE(all.mean, 0.5, 0.01);
    CHECK_CLOSE(furthest, 0.5, 0.02);
    CHECK(all.black + all.white >= 0.01 && all.black + all.white < 0.02);
    CHECK(all.dark > 0.1 && all.light > 0.1);
    CHECK(all.difference < 4 / 256.0);
}

/* Brownian motion: the variance of differences is proportional to the distance, so from 4 pixels to
 * 8 it doubles. (With an exponent of 1.8 it would grow by 3.) The field is periodic, which takes
 * off some percent at these distances; the scatter over 64 textures is another. */
static void test_cloud_is_brownian(void) {
    enum { SIZE = 128, NEAR = 4, FAR = 8 };
    zonal__texture_spec spec;
    zonal__texture_maker *maker;
    zonal__image image = {0};
    double square[2] = {0};
    zonal__texture_defaults(ZONAL__TEXTURE_CLOUD, &spec);
    spec.size = SIZE;
    spec.blur = spec.saturation = 0;
    if (!CHECK_OK(zonal__texture_maker_create(&spec, &maker))) return;
    for (int k = 0; k < 64 && CHECK_OK(zonal__texture_make(maker, k, &image)); k++)
        for (int y = 0; y < SIZE; y++)
            for (int x = 0; x + FAR < SIZE; x++) {
                const uint8_t *at = image.pixels + y * SIZE + x;
                square[0] += (at[NEAR] - at[0]) * (at[NEAR] - at[0]);
                square[1] += (at[FAR] - at[0]) * (at[FAR] - at[0]);
            }
    CHECK_CLOSE(square[1] / square[0], 2, 0.15);
    zonal__image_fini(&image);
    zonal__texture_maker_destroy(maker);
}

/* White with dark lines, a quarter of it, and little in between. */
static void test_wood_looks(void) {
    double furthest;
    looks all = look_at(ZONAL__TEXTURE_WOOD, &furthest);
    CHECK_CLOSE(all.mean, 0.75, 0.03);
    CHECK(furthest > 0.65 && furthest < 0.85);
    CHECK_CLOSE(all.dark, 0.25, 0.05);
    CHECK(1 - all.dark - all.light < 0.15);
}

static void test_saturation(void) {
    static const double shares[] = {0, 0.001, 0.05, 0.5};
    for (int family = ZONAL__TEXTURE_CLOUD; family <= ZONAL__TEXTURE_FLAKE; family++)
        for (int k = 0; k < COUNT(shares); k++) {
            zonal__texture_spec spec;
            zonal__texture_maker *maker;
            zonal__image image = {0};
            int64_t extreme = 0, asked;
            zonal__texture_defaults((zonal__texture_family)family, &spec);
            spec.size = 100;
            spec.saturation = shares[k];
            if (!CHECK_OK(zonal__texture_maker_create(&spec, &maker))) continue;
            CHECK_OK(zonal__texture_make(maker, 3, &image));
            for (int64_t i = 0; i < area(&image); i++)
                extreme += image.pixels[i] == 0 || image.pixels[i] == 255;
            asked = (int64_t)(shares[k] * 10000 + 0.5);
            /* At 0 the strongest pixel alone decides, with those of its shape or crest. */
            CHECK_MSG(extreme >= (asked ? asked : 1) && extreme <= asked + 200,
                      "%s: %lld of 10000 pixels are black or white, not %lld",
                      zonal__texture_name(spec.family), (long long)extreme, (long long)asked);
            zonal__image_fini(&image);
            zonal__texture_maker_destroy(maker);
        }
}

/* The first and the last row, and the first and the last column, of a periodic cloud would be
 * neighbours. */
static void test_not_periodic(void) {
    zonal__image image = {0};
    double across = 0, inside = 0;
    for (int number = 0; number < 8; number++) {
        if (!make(ZONAL__TEXTURE_CLOUD, 128, 2, number, &image)) break;
        for (int k = 0; k < 128; k++) {
            across += abs(image.pixels[k * 128] - image.pixels[k * 128 + 127]);
            across += abs(image.pixels[k] - image.pixels[127 * 128 + k]);
            inside += abs(image.pixels[k * 128 + 63] - image.pixels[k * 128 + 64]);
            inside += abs(image.pixels[63 * 128 + k] - image.pixels[64 * 128 + k]);
        }
    }
    CHECK_MSG(across > 5 * inside, "edge to edge %g, neighbours %g", across, inside);
    zonal__image_fini(&image);
}

/* ---- what decides a texture ------------------------------------------------------------------ */

static void test_any_order(void) {
    enum { N = 6 };
    for (int family = 0; family < ZONAL__TEXTURE_FAMILIES; family++) {
        zonal__texture_spec spec;
        zonal__texture_maker *one, *other;
        zonal__image forward[N] = {0}, backward = {0};
        zonal__texture_defaults((zonal__texture_family)family, &spec);
        spec.size = 64;
        if (!CHECK_OK(zonal__texture_maker_create(&spec, &one))) continue;
        if (CHECK_OK(zonal__texture_maker_create(&spec, &other))) {
            for (int i = 0; i < N; i++) CHECK_OK(zonal__texture_make(one, i, &forward[i]));
            for (int i = N - 1; i >= 0; i--) {
                CHECK_OK(zonal__texture_make(other, i, &backward));
                CHECK(memcmp(backward.pixels, forward[i].pixels, 64 * 64) == 0);
            }
        }
        for (int i = 0; i < N; i++) zonal__image_fini(&forward[i]);
        zonal__image_fini(&backward);
        zonal__texture_maker_destroy(one);
        zonal__texture_maker_destroy(other);
    }
}

/* Another number, seed or split gives a texture as far from the first as any two are. Dots on grey
 * differ in few pixels, hence the low bounds. */
static void test_distinct(void) {
    static const double least[] = {20, 5, 4, 60}; /* mean grey levels, by family */
    for (int family = 0; family < ZONAL__TEXTURE_FAMILIES; family++) {
        static const struct {
            uint64_t seed;
            zonal__split split;
            int64_t i;
        } others[] = {{1, ZONAL__SPLIT_TRAIN, 1}, {1, ZONAL__SPLIT_TRAIN, 1 << 20},
                      {1, ZONAL__SPLIT_VAL, 0},   {1, ZONAL__SPLIT_TEST, 0},
                      {2, ZONAL__SPLIT_TRAIN, 0}, {(uint64_t)1 << 40, ZONAL__SPLIT_TRAIN, 0}};
        zonal__image first = {0}, other = {0};
        if (!make((zonal__texture_family)family, 128, 1, 0, &first)) return;
        for (int k = 0; k < COUNT(others); k++) {
            int64_t number = zonal__texture_number(others[k].split, others[k].i);
            if (!make((zonal__texture_family)family, 128, others[k].seed, number, &other)) break;
            CHECK_MSG(distance(&first, &other) > least[family], "%s %d: distance %g",
                      zonal__texture_name((zonal__texture_family)family), k,
                      distance(&first, &other));
        }
        zonal__image_fini(&first);
        zonal__image_fini(&other);
    }
}

static void test_numbers(void) {
    CHECK(zonal__texture_number(ZONAL__SPLIT_TRAIN, 12345) == 12345);
    CHECK(zonal__texture_number(ZONAL__SPLIT_VAL, 3) == ((int64_t)1 << 40) + 3);
    CHECK(zonal__texture_number(ZONAL__SPLIT_TEST, 9999) == ((int64_t)1 << 41) + 9999);
    CHECK(zonal__texture_number(ZONAL__SPLIT_ALL, 9999) == 9999);
    CHECK(zonal__texture_number(ZONAL__SPLIT_ALL, 10000) == (int64_t)1 << 40);
    CHECK(zonal__texture_number(ZONAL__SPLIT_ALL, 10499) == ((int64_t)1 << 40) + 499);
    CHECK(zonal__texture_number(ZONAL__SPLIT_ALL, 10500) == (int64_t)1 << 41);
}

/* ---- settings -------------------------------------------------------------------------------- */

static void test_parse(void) {
    zonal__texture_spec spec, usual;
    for (int family = 0; family < ZONAL__TEXTURE_FAMILIES; family++) {
        const char *name = zonal__texture_name((zonal__texture_family)family);
        if (!CHECK_OK(zonal__texture_parse(name, &spec))) continue;
        zonal__texture_defaults((zonal__texture_family)family, &usual);
        CHECK((int)spec.family == family && spec.size == 256 && spec.seed == 0);
        CHECK(spec.radius == usual.radius && spec.alpha == 1 && spec.saturation == 0.01);
        CHECK_OK(zonal__texture_check(&usual));
    }
    if (CHECK_OK(zonal__texture_parse("flake,arms=8,radius=9.5,size=160", &spec))) {
        CHECK(spec.family == ZONAL__TEXTURE_FLAKE && spec.arms == 8 && spec.size == 160);
        CHECK_CLOSE(spec.radius, 9.5, 0);
        CHECK_CLOSE(spec.arm_width, 5, 0);
    }
}

static void test_parse_refused(void) {
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"", "one of: cloud, disk, flake, wood"},
        {"dsik", "did you mean disk?"},
        {"marble", "no texture family \"marble\"; it is one of: cloud, disk, flake, wood"},
        {"Disk", "did you mean disk?"},
        {"disk,", "no texture setting \"\""},
        {"disk,raduis=3", "did you mean radius?"},
        {"disk,radius", "write radius=NUMBER"},
        {"disk,radius=", "radius"},
        {"disk,radius=big", "radius"},
        {"disk,radius=nan", "radius"},
        {"disk,radius=0.1", "radius must be from 0.5 to 64, got 0.1"},
        {"disk,alpha=2.5", "alpha must be from 0.5 to 2, got 2.5"},
        {"disk,size=7", "size must be from 8 to 4096, got 7"},
        {"disk,size=99999999999", "size must be from 8 to 4096"},
        {"disk,size=64.5", "size"},
        {"flake,arms=2", "arms must be from 3 to 16, got 2"},
        {"wood,octaves=0", "octaves must be from 1 to 8, got 0"},
        {"wood,spacing=1", "spacing must be from 2 to 1024, got 1"},
        {"wood,period=50,octaves=7", "7 octaves of wood has cells of 0.78125 pixels"},
        {"wood,period=20,stretch=0.1,octaves=3", "cells of 0.5 pixels"},
        {"cloud,blur=-1", "blur must be from 0 to 64, got -1"},
    };
    zonal__texture_spec spec;
    char longer[600];
    for (int i = 0; i < COUNT(cases); i++)
        CHECK_FAILS(zonal__texture_parse(cases[i].text, &spec), ZONAL_ARGUMENT, cases[i].sentence);
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    CHECK_FAILS(zonal__texture_parse(longer, &spec), ZONAL_ARGUMENT, "shorter than 512");
}

static void test_maker_refuses(void) {
    zonal__texture_spec spec;
    zonal__texture_maker *maker;
    zonal__image image = {0};
    zonal__texture_defaults(ZONAL__TEXTURE_WOOD, &spec);
    spec.line = NAN;
    CHECK_FAILS(zonal__texture_maker_create(&spec, &maker), ZONAL_ARGUMENT, "line must be from");
    CHECK(maker == NULL);
    zonal__texture_maker_destroy(maker);
    zonal__texture_defaults(ZONAL__TEXTURE_WOOD, &spec);
    spec.family = (zonal__texture_family)4;
    CHECK_FAILS(zonal__texture_maker_create(&spec, &maker), ZONAL_ARGUMENT, "family");
    spec.family = ZONAL__TEXTURE_WOOD;
    if (!CHECK_OK(zonal__texture_maker_create(&spec, &maker))) return;
    CHECK_FAILS(zonal__texture_make(maker, -1, &image), ZONAL_ARGUMENT, "got -1");
    CHECK_FAILS(zonal__texture_make(maker, (int64_t)1 << 56, &image), ZONAL_ARGUMENT, "2^56 - 1");
    CHECK_OK(zonal__texture_make(maker, ((int64_t)1 << 56) - 1, &image));
    zonal__image_fini(&image);
    zonal__texture_maker_destroy(maker);
}

/* The ends of every range, at sizes that no transform or lattice divides: nothing is read or
 * written out of bounds, and there is something to see. */
static void test_extremes(void) {
    static const char *const texts[] = {
        "cloud,size=8",
        "cloud,size=97,exponent=0,blur=0",
        "cloud,size=33,exponent=4,blur=64",
        "disk,size=97,radius=64",
        "disk,size=97,radius=0.5,alpha=2",
        "disk,size=64,alpha=0.5",
        "flake,size=97,arms=3,arm_width=64,radius=64",
        "flake,size=31,arms=16,arm_width=0.5,radius=0.5",
        "wood,size=97,period=4096,stretch=10,waviness=1024",
        "wood,size=97,period=2,octaves=2,roughness=1",
        "wood,size=97,period=4096,stretch=0.1,octaves=8,roughness=1",
        "wood,size=8,period=128,stretch=10,octaves=8",
        "wood,size=33,spacing=2,line=0.9,waviness=0",
    };
    for (int k = 0; k < COUNT(texts); k++) {
        zonal__texture_spec spec;
        zonal__texture_maker *maker;
        zonal__image image = {0};
        int least = 255, most = 0;
        if (!CHECK_OK(zonal__texture_parse(texts[k], &spec)) ||
            !CHECK_OK(zonal__texture_maker_create(&spec, &maker)))
            continue;
        CHECK_OK(zonal__texture_make(maker, k, &image));
        for (int64_t i = 0; i < area(&image); i++) {
            if (image.pixels[i] < least) least = image.pixels[i];
            if (image.pixels[i] > most) most = image.pixels[i];
        }
        CHECK_MSG(most - least > 30, "%s is flat: %d to %d", texts[k], least, most);
        zonal__image_fini(&image);
        zonal__texture_maker_destroy(maker);
    }
}

/* ---- the source ------------------------------------------------------------------------------ */

static void test_source_counts(void) {
    static const struct {
        zonal__split split;
        int64_t asked, count;
    } cases[] = {{ZONAL__SPLIT_ALL, 0, 20500}, {ZONAL__SPLIT_TRAIN, 0, 10000},
                 {ZONAL__SPLIT_VAL, 0, 500},   {ZONAL__SPLIT_TEST, 0, 10000},
                 {ZONAL__SPLIT_ALL, 16, 16},   {ZONAL__SPLIT_VAL, 7, 7},
                 {ZONAL__SPLIT_TRAIN, 1, 1}};
    for (int i = 0; i < COUNT(cases); i++) {
        zonal__source_options options = {
            .path = "textures:wood", .split = cases[i].split, .texture_count = cases[i].asked};
        zonal__source *source;
        if (!CHECK_OK(zonal__source_textures(&options, &source))) continue;
        CHECK(source->count == cases[i].count);
        CHECK(source->classes == 0 && source->labels == NULL && source->channels == 1);
        CHECK(source->width == 256 && source->height == 256);
        CHECK(strcmp(source->table->kind, "textures") == 0);
        zonal__source_close(source);
    }
}

static void test_source_reads(void) {
    zonal__source_options options = {.path = "textures:disk,radius=3",
                                     .split = ZONAL__SPLIT_TEST,
                                     .seed = 9,
                                     .channels = 3,
                                     .texture_count = 5,
                                     .texture_size = 40};
    zonal__texture_spec spec;
    zonal__texture_maker *maker;
    zonal__source *source;
    zonal__image colour = {0}, grey = {0};
    int wrong = 0;
    if (!CHECK_OK(zonal__source_textures(&options, &source))) return;
    CHECK_OK(zonal__texture_parse("disk,radius=3,size=40", &spec));
    spec.seed = 9;
    if (CHECK_OK(zonal__texture_maker_create(&spec, &maker))) {
        CHECK_OK(zonal__source_read(source, 4, &colour));
        CHECK_OK(zonal__texture_make(maker, zonal__texture_number(ZONAL__SPLIT_TEST, 4), &grey));
        CHECK(colour.channels == 3 && colour.width == 40 && source->channels == 3);
        for (int i = 0; i < 3 * 40 * 40; i++) wrong += colour.pixels[i] != grey.pixels[i / 3];
        CHECK(wrong == 0);
    }
    CHECK_FAILS(zonal__source_read(source, 5, &colour), ZONAL_ARGUMENT, "textures:disk");
    zonal__texture_maker_destroy(maker);
    zonal__image_fini(&colour);
    zonal__image_fini(&grey);
    zonal__source_close(source);
}

static void test_source_refuses(void) {
    static const struct {
        zonal__source_options options;
        const char *sentence;
    } cases[] = {
        {{.path = "textures:would"}, "did you mean wood?"},
        {{.path = "textures:"}, "cloud, disk, flake, wood"},
        {{.path = "photos"}, "write textures:FAMILY"},
        {{.path = "textures:disk", .texture_count = -1}, "-1 textures are not possible"},
        {{.path = "textures:disk", .texture_size = 5000}, "size must be from 8 to 4096"},
        {{.path = "textures:disk", .channels = 2}, "1 or 3 channels, not 2"},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        zonal__source *source = (zonal__source *)&cases;
        CHECK_FAILS(zonal__source_textures(&cases[i].options, &source), ZONAL_ARGUMENT,
                    cases[i].sentence);
        CHECK(source == NULL);
    }
}

enum { READERS = 4, IMAGES = 24, SIDE = 48 };

typedef struct reader {
    zonal__source *source;
    uint8_t (*seen)[SIDE * SIDE]; /* [IMAGES], shared: each image by one reader */
    int which, failed;
} reader;

static void *read_share(void *context) {
    reader *r = context;
    zonal__image image = {0};
    for (int i = r->which; i < IMAGES; i += READERS) {
        if (zonal__source_read(r->source, i, &image) != ZONAL_OK)
            r->failed = 1;
        else
            memcpy(r->seen[i], image.pixels, sizeof r->seen[i]);
    }
    zonal__image_fini(&image);
    return NULL;
}

static void check_threads(const char *path) {
    static uint8_t seen[IMAGES][SIDE * SIDE];
    zonal__source_options options = {.path = path, .texture_size = SIDE, .seed = test_seed};
    zonal__source *source;
    zonal__image image = {0};
    pthread_t threads[READERS];
    reader readers[READERS];
    if (!CHECK_OK(zonal__source_textures(&options, &source))) return;
    for (int i = 0; i < READERS; i++) {
        readers[i] = (reader){source, seen, i, 0};
        CHECK(pthread_create(&threads[i], NULL, read_share, &readers[i]) == 0);
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(!readers[i].failed);
    }
    for (int i = 0; i < IMAGES; i++) {
        CHECK_OK(zonal__source_read(source, i, &image));
        CHECK(memcmp(seen[i], image.pixels, sizeof seen[i]) == 0);
    }
    zonal__image_fini(&image);
    zonal__source_close(source);
}

static void test_threads(void) {
    check_threads("textures:cloud");
    check_threads("textures:disk");
    check_threads("textures:flake");
    check_threads("textures:wood");
}

/* After the first image, reading allocates nothing. */
static void test_steady_state(void) {
    zonal__source_options options = {
        .path = "textures:cloud", .texture_size = 32, .channels = 3, .texture_count = 20};
    zonal__source *source;
    zonal__image image = {0};
    int64_t before;
    failing_alloc_install(-1, 0);
    if (CHECK_OK(zonal__source_textures(&options, &source))) {
        CHECK_OK(zonal__source_read(source, 0, &image));
        before = failing_alloc_calls();
        for (int i = 1; i < 20; i++) CHECK_OK(zonal__source_read(source, i, &image));
        CHECK(failing_alloc_calls() == before);
        zonal__image_fini(&image);
        zonal__source_close(source);
    }
    CHECK(failing_alloc_remove() == 0);
}

static zonal_status open_and_read(void *context) {
    zonal__source_options options = {.path = context, .texture_size = 16, .channels = 3};
    zonal__source *source;
    zonal__image image = {0};
    zonal_status status;
    ZONAL_TRY(zonal__source_textures(&options, &source));
    status = zonal__source_read(source, 0, &image);
    zonal__image_fini(&image);
    zonal__source_close(source);
    return status;
}

static void test_memory(void) {
    test_every_allocation("clouds", open_and_read, "textures:cloud");
    test_every_allocation("disks", open_and_read, "textures:disk");
    test_every_allocation("flakes", open_and_read, "textures:flake");
    test_every_allocation("wood", open_and_read, "textures:wood");
}

/* ---- contact sheets -------------------------------------------------------------------------- */

/* Images of one grey each: 3 x 2, 3 x 2, 1 x 2 (in the middle of its cell), in two columns. */
static void test_sheet(void) {
    static uint8_t tens[6] = {10, 10, 10, 10, 10, 10}, twenties[6] = {20, 20, 20, 20, 20, 20},
                   thirties[2] = {30, 30};
    static const uint8_t want[7][9] = {
        {1, 1, 1, 1, 1, 1, 1, 1, 1},       {1, 10, 10, 10, 1, 20, 20, 20, 1},
        {1, 10, 10, 10, 1, 20, 20, 20, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1},
        {1, 1, 30, 1, 1, 1, 1, 1, 1},      {1, 1, 30, 1, 1, 1, 1, 1, 1},
        {1, 1, 1, 1, 1, 1, 1, 1, 1},
    };
    zonal__image images[3] = {{.width = 3, .height = 2, .channels = 1, .pixels = tens},
                              {.width = 3, .height = 2, .channels = 1, .pixels = twenties},
                              {.width = 1, .height = 2, .channels = 1, .pixels = thirties}};
    zonal__sheet_options options = {.columns = 2, .margin = 1, .ground = 1};
    zonal__image sheet = {0};
    if (!CHECK_OK(zonal__sheet_make(images, 3, &options, &sheet))) return;
    CHECK(sheet.width == 9 && sheet.height == 7 && sheet.channels == 1);
    CHECK(memcmp(sheet.pixels, want, sizeof want) == 0);
    options.columns = 0; /* three images: two columns again */
    CHECK_OK(zonal__sheet_make(images, 3, &options, &sheet));
    CHECK(memcmp(sheet.pixels, want, sizeof want) == 0);
    zonal__image_fini(&sheet);
}

static void test_sheet_colour(void) {
    static uint8_t grey[1] = {50}, colour[3] = {1, 2, 3};
    static const uint8_t want[6] = {50, 50, 50, 1, 2, 3};
    zonal__image images[2] = {{.width = 1, .height = 1, .channels = 1, .pixels = grey},
                              {.width = 1, .height = 1, .channels = 3, .pixels = colour}};
    zonal__sheet_options options = {.columns = 2};
    zonal__image sheet = {0};
    if (!CHECK_OK(zonal__sheet_make(images, 2, &options, &sheet))) return;
    CHECK(sheet.width == 2 && sheet.height == 1 && sheet.channels == 3);
    CHECK(memcmp(sheet.pixels, want, 6) == 0);
    zonal__image_fini(&sheet);
}

static void test_sheet_refused(void) {
    static uint8_t grey[1] = {50};
    zonal__image one = {.width = 1, .height = 1, .channels = 1, .pixels = grey}, sheet = {0};
    zonal__sheet_options options = {.columns = 1};
    CHECK_FAILS(zonal__sheet_make(&one, 0, &options, &sheet), ZONAL_ARGUMENT, "at least one");
    options.columns = -1;
    CHECK_FAILS(zonal__sheet_make(&one, 1, &options, &sheet), ZONAL_ARGUMENT, "-1 columns");
    options = (zonal__sheet_options){.columns = 1, .margin = -2};
    CHECK_FAILS(zonal__sheet_make(&one, 1, &options, &sheet), ZONAL_ARGUMENT, "margin -2");
    options = (zonal__sheet_options){.columns = 100000, .margin = 100000};
    CHECK_FAILS(zonal__sheet_make(&one, 1, &options, &sheet), ZONAL_SHAPE, "refused");
}

static const test_case tests[] = {{"golden", test_golden},
                                  {"disk_looks", test_disk_looks},
                                  {"flake_looks", test_flake_looks},
                                  {"cloud_looks", test_cloud_looks},
                                  {"cloud_is_brownian", test_cloud_is_brownian},
                                  {"wood_looks", test_wood_looks},
                                  {"saturation", test_saturation},
                                  {"not_periodic", test_not_periodic},
                                  {"any_order", test_any_order},
                                  {"distinct", test_distinct},
                                  {"numbers", test_numbers},
                                  {"parse", test_parse},
                                  {"parse_refused", test_parse_refused},
                                  {"maker_refuses", test_maker_refuses},
                                  {"extremes", test_extremes},
                                  {"source_counts", test_source_counts},
                                  {"source_reads", test_source_reads},
                                  {"source_refuses", test_source_refuses},
                                  {"threads", test_threads},
                                  {"steady_state", test_steady_state},
                                  {"memory", test_memory},
                                  {"sheet", test_sheet},
                                  {"sheet_colour", test_sheet_colour},
                                  {"sheet_refused", test_sheet_refused},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
