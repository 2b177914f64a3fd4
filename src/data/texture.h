/*
 * Four families of procedural textures, grey, for learning to tell one texture from its likes. The
 * paper has "heavy-tailed noise, Brownian motion, Perlin noise" and images of them; the numbers
 * below are ours.
 *
 *   cloud   Brownian motion on the plane, blurred: soft grey with large structure. Fourier
 *           coefficients are normal numbers times |f|^-exponent exp(-2 (pi blur |f|)^2), f in
 *           cycles a pixel. Of exponent 1 + H the field is fractional Brownian motion with Hurst
 *           index H, whose differences over a distance r have the variance r^(2 H); 1.5 is
 *           Brownian.
 *   disk    heavy-tailed noise summed over a disk: black and white dots on grey, few strong ones
 *           and many faint ones, as the noise has it.
 *   flake   the same noise summed over a star: black and white stars on grey.
 *   wood    dark wavy lines on white, the level lines of
 *               (y + waviness * P(x / stretch, y)) / spacing
 *           at whole numbers, P being Perlin's gradient noise of "octaves" octaves, the first with
 *           cells of "period" pixels, each further one with half the cells and "roughness" times
 *           the weight.
 *
 * The first three are shifted and scaled so that mid grey is zero (cloud: the mean), and the share
 * "saturation" of the pixels, those furthest from it, is black or white.
 *
 * A texture is a function of (spec, number) alone: every random draw is Philox's with seed
 * spec.seed, stream ZONAL__STREAM_TEXTURE, the family and its use as step, and the number as
 * sample. It does not depend on threads, on order or on what was made before.
 *
 * None is periodic: disk, flake and wood are made of noise that reaches beyond the image on all
 * sides, and a cloud is cut from a periodic one at least a quarter larger. A repeated edge would be
 * a mark by which views could be recognised without looking at the texture.
 */
#ifndef ZONAL_DATA_TEXTURE_H
#define ZONAL_DATA_TEXTURE_H

#include "data/source.h"

/* The numbers are part of the random key: never renumber. */
typedef enum zonal__texture_family {
    ZONAL__TEXTURE_CLOUD = 0,
    ZONAL__TEXTURE_DISK = 1,
    ZONAL__TEXTURE_FLAKE = 2,
    ZONAL__TEXTURE_WOOD = 3
} zonal__texture_family;
enum { ZONAL__TEXTURE_FAMILIES = 4 };

/* What a family does not name is not looked at. Lengths are in pixels. */
typedef struct zonal__texture_spec {
    zonal__texture_family family;
    int size;          /* width and height, 8 to 4096; default 256 */
    uint64_t seed;     /* default 0 */
    double saturation; /* cloud, disk, flake: 0 to 0.5; default 0.01 */

    double alpha;  /* disk, flake: index of the noise's stable distribution, 0.5 to 2; default 1:
                      Cauchy's */
    double radius; /* disk: its radius, default 5; flake: length of an arm, default 12; 0.5 to 64 */
    int arms;      /* flake: 3 to 16; default 6 */
    double arm_width; /* flake: of an arm where it begins, narrowing to 0; 0.5 to 64; default 5 */

    double exponent; /* cloud: 0 to 4; default 1.5 */
    double blur;     /* cloud: standard deviation of the Gaussian, 0 to 64; default 2 */

    double spacing;   /* wood: from line to line, on average; 2 to 1024; default 20 */
    double line;      /* wood: share of the spacing that is dark, 0.05 to 0.9; default 0.25 */
    double period;    /* wood: 2 to 4096; default 90 */
    double stretch;   /* wood: how much longer the noise is along the lines, 0.1 to 10; default 1 */
    double waviness;  /* wood: 0 to 1024; default 60 */
    int octaves;      /* wood: 1 to 8; default 2 */
    double roughness; /* wood: 0 to 1; default 0.35 */
} zonal__texture_spec;

void zonal__texture_defaults(zonal__texture_family family, zonal__texture_spec *spec);

/* "cloud", "disk", "flake", "wood". */
const char *zonal__texture_name(zonal__texture_family family);

/* Of all settings, those that the family does not name too (data/fingerprint.h). */
uint64_t zonal__texture_fingerprint(const zonal__texture_spec *spec);

/* Reads FAMILY[,SETTING=VALUE]..., "flake" or "flake,arms=8,size=160": the family's defaults, then
 * the settings, by their names above. Fails with ZONAL_ARGUMENT and the nearest name for a word
 * that is none, and as zonal__texture_check does. */
zonal_status zonal__texture_parse(const char *text, zonal__texture_spec *spec);

/* ZONAL_ARGUMENT names the first setting that is out of its range. Cells of wood that are finer
 * than a pixel are refused too. */
zonal_status zonal__texture_check(const zonal__texture_spec *spec);

/* The splits are made of different numbers, so that under one seed no texture is in two of them:
 * image i of train is number i, of val 2^40 + i, of test 2^41 + i. ALL is the 10,000 of train,
 * then the 500 of val, then those of test. */
enum {
    ZONAL__TEXTURE_TRAIN_COUNT = 10000,
    ZONAL__TEXTURE_VAL_COUNT = 500,
    ZONAL__TEXTURE_TEST_COUNT = 10000
};
int64_t zonal__texture_number(zonal__split split, int64_t i);

/* A maker has its filters and all its memory from the beginning. It belongs to one thread at a
 * time; different makers are independent. */
typedef struct zonal__texture_maker zonal__texture_maker;

/* Checks the spec first. *maker is NULL on failure. */
zonal_status zonal__texture_maker_create(const zonal__texture_spec *spec,
                                         zonal__texture_maker **maker);
void zonal__texture_maker_destroy(zonal__texture_maker *maker);

/* Makes texture "number", 0 <= number < 2^56, with 1 channel. Allocates only where the image has
 * not yet room for it. */
zonal_status zonal__texture_make(zonal__texture_maker *maker, int64_t number, zonal__image *image);

#endif
