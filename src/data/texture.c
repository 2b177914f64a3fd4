#include "data/texture.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/random_scalar.h"
#include "math/fft.h"
#include "math/stable.h"

/* One pixel of a filter: adds weight times the noise at this distance from the upper left corner
 * of the filter's square. */
typedef struct tap {
    int64_t offset; /* in the noise */
    float weight;
} tap;

struct zonal__texture_maker {
    zonal__texture_spec spec;
    int side;        /* of the noise or of the periodic field that the texture is cut from */
    float *value;    /* [size][size]: the texture before it becomes 8 bits */
    int32_t *counts; /* [1 << 16]: of magnitudes */

    float *noise; /* disk, flake: [side][side] */
    tap *taps;    /* disk, flake: [tap_count] */
    int tap_count;

    zonal__fft *fft;         /* cloud */
    float *amplitude;        /* cloud: [side][side]: the spectrum's */
    float *real, *imaginary; /* cloud: [side][side] */
    float *scratch;          /* cloud: [2][side][side] */

    float *gradient; /* wood: [rows][columns][2], of one octave's lattice */
};

/* "use" keeps the draws of one family apart. */
static zonal__random draws(const zonal__texture_spec *spec, uint32_t use) {
    return (zonal__random){.seed = spec->seed,
                           .stream = ZONAL__STREAM_TEXTURE,
                           .step = (uint32_t)spec->family << 8 | use};
}

/* ---- disk, flake: noise through a filter ----------------------------------------------------- */

static int inside(const zonal__texture_spec *spec, double x, double y) {
    double distance = hypot(x, y), sector = 2 * M_PI / spec->arms, angle, along, across;
    if (spec->family == ZONAL__TEXTURE_DISK) return distance <= spec->radius;
    angle = remainder(atan2(y, x) + M_PI / 2, sector); /* from the nearest arm; one points up */
    along = distance * cos(angle);
    across = distance * fabs(sin(angle));
    return 2 * across <= spec->arm_width * (1 - along / spec->radius);
}

/* The share of a pixel that lies in the shape, by 8 x 8 points. */
static double coverage(const zonal__texture_spec *spec, int x, int y) {
    enum { FINE = 8 };
    int hits = 0;
    for (int i = 0; i < FINE; i++)
        for (int j = 0; j < FINE; j++)
            hits += inside(spec, x - 0.5 + (j + 0.5) / FINE, y - 0.5 + (i + 0.5) / FINE);
    return (double)hits / (FINE * FINE);
}

static zonal_status filter_create(zonal__texture_maker *maker) {
    const zonal__texture_spec *spec = &maker->spec;
    int reach = (int)ceil(spec->radius + 0.5), across = 2 * reach + 1;
    maker->side = spec->size + 2 * reach;
    ZONAL_TRY(ZONAL_NEW(&maker->noise, (int64_t)maker->side * maker->side, "a texture's noise"));
    ZONAL_TRY(ZONAL_NEW(&maker->taps, (int64_t)across * across, "a texture's filter"));
    for (int y = -reach; y <= reach; y++)
        for (int x = -reach; x <= reach; x++) {
            float weight = (float)coverage(spec, x, y);
            if (weight > 0)
                maker->taps[maker->tap_count++] =
                    (tap){(int64_t)(y + reach) * maker->side + x + reach, weight};
        }
    return ZONAL_OK;
}

/* Summed tap by tap, not by a Fourier transform: there the rounding errors of one huge draw would
 * cover the whole image. */
static void make_filtered(zonal__texture_maker *maker, uint64_t number) {
    zonal__random random = draws(&maker->spec, 0);
    int size = maker->spec.size, side = maker->side;
    zonal__stable_draw(&random, number, maker->spec.alpha, (int64_t)side * side, maker->noise);
    for (int y = 0; y < size; y++) {
        float *restrict row = maker->value + (int64_t)y * size;
        memset(row, 0, (size_t)size * sizeof *row);
        for (int k = 0; k < maker->tap_count; k++) {
            const float *noise = maker->noise + (int64_t)y * side + maker->taps[k].offset;
            float weight = maker->taps[k].weight;
            for (int x = 0; x < size; x++) row[x] += weight * noise[x];
        }
    }
}

/* ---- cloud: a random spectrum ---------------------------------------------------------------- */

/* Of a coefficient with "waves" waves over the whole field. */
static double amplitude(const zonal__texture_spec *spec, int side, double waves) {
    double blur = M_PI * spec->blur * waves / side;
    return waves > 0 ? pow(waves, -spec->exponent) * exp(-2 * blur * blur) : 0;
}

static zonal_status spectrum_create(zonal__texture_maker *maker) {
    const zonal__texture_spec *spec = &maker->spec;
    int side = zonal__fft_length(spec->size + spec->size / 4);
    int64_t area = (int64_t)side * side;
    /* Smaller coefficients, all together, stay far below one grey level and are not drawn. */
    double least = 1e-6 * amplitude(spec, side, 1);
    maker->side = side;
    ZONAL_TRY(zonal__fft_create(side, &maker->fft));
    ZONAL_TRY(ZONAL_NEW(&maker->amplitude, area, "a cloud's spectrum"));
    ZONAL_TRY(ZONAL_NEW(&maker->real, area, "a cloud"));
    ZONAL_TRY(ZONAL_NEW(&maker->imaginary, area, "a cloud"));
    ZONAL_TRY(ZONAL_NEW(&maker->scratch, 2 * area, "a cloud"));
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++) {
            double y = i <= side / 2 ? i : i - side, x = j <= side / 2 ? j : j - side;
            double value = amplitude(spec, side, hypot(x, y));
            maker->amplitude[(int64_t)i * side + j] = value > least ? (float)value : 0;
        }
    return ZONAL_OK;
}

/* Independent complex coefficients make the real part a stationary normal field with the wanted
 * spectrum (and the imaginary part another one, which is not used). */
static void make_cloud(zonal__texture_maker *maker, uint64_t number) {
    zonal__random random = draws(&maker->spec, 0);
    int size = maker->spec.size, side = maker->side;
    double mean = 0;
    for (int64_t k = 0; k < (int64_t)side * side; k++) {
        double pair[2] = {0, 0};
        if (maker->amplitude[k] > 0) zonal__normal_pair(&random, number, (uint32_t)k, pair);
        maker->real[k] = maker->amplitude[k] * (float)pair[0];
        maker->imaginary[k] = maker->amplitude[k] * (float)pair[1];
    }
    zonal__fft_square(maker->fft, maker->real, maker->imaginary, maker->scratch);
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++) mean += (double)maker->real[(int64_t)y * side + x];
    mean /= (double)size * size;
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++)
            maker->value[(int64_t)y * size + x] =
                (float)((double)maker->real[(int64_t)y * side + x] - mean);
}

/* ---- 8 bits about mid grey ------------------------------------------------------------------- */

static uint32_t magnitude_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffff; /* ordered as |x| is */
}

/* The digit at which "above" elements, counted from the largest digit down, are reached; takes
 * those of larger digits off "above". */
static uint32_t digit_reached(const int32_t *counts, int64_t *above) {
    uint32_t digit = 0xffff;
    while (digit > 0 && *above > counts[digit]) *above -= counts[digit--];
    return digit;
}

/* The largest t such that at least "above" of the n magnitudes are t or more: found by their upper
 * 16 bits first, then by the lower ones of those that share the upper. */
static float magnitude_quantile(const float *value, int64_t n, int64_t above, int32_t *counts) {
    uint32_t upper, bits;
    float t;
    memset(counts, 0, sizeof *counts << 16);
    for (int64_t i = 0; i < n; i++) counts[magnitude_bits(value[i]) >> 16]++;
    upper = digit_reached(counts, &above);
    memset(counts, 0, sizeof *counts << 16);
    for (int64_t i = 0; i < n; i++) {
        bits = magnitude_bits(value[i]);
        if (bits >> 16 == upper) counts[bits & 0xffff]++;
    }
    bits = upper << 16 | digit_reached(counts, &above);
    memcpy(&t, &bits, sizeof t);
    return t;
}

static void saturate(zonal__texture_maker *maker, uint8_t *pixels) {
    int64_t n = (int64_t)maker->spec.size * maker->spec.size;
    int64_t above = (int64_t)(maker->spec.saturation * (double)n + 0.5);
    float limit = magnitude_quantile(maker->value, n, above > 0 ? above : 1, maker->counts);
    if (!(limit > 0)) limit = 1;
    for (int64_t i = 0; i < n; i++) {
        float x = maker->value[i] / limit;
        pixels[i] = (uint8_t)(127.5f * (1 + (x < -1 ? -1 : x > 1 ? 1 : x)) + 0.5f);
    }
}

/* ---- wood: level lines of gradient noise ----------------------------------------------------- */

typedef struct lattice {
    double across, down; /* pixels a cell */
    int columns, rows;   /* corners that the image touches */
} lattice;

static lattice lattice_of(const zonal__texture_spec *spec, int octave) {
    double cell = ldexp(spec->period, -octave);
    lattice grid = {.across = cell * spec->stretch, .down = cell};
    /* The image begins anywhere in the first cell. */
    grid.columns = (int)(spec->size / grid.across) + 3;
    grid.rows = (int)(spec->size / grid.down) + 3;
    return grid;
}

static zonal_status lattice_create(zonal__texture_maker *maker) {
    lattice finest = lattice_of(&maker->spec, maker->spec.octaves - 1);
    return ZONAL_NEW(&maker->gradient, (int64_t)2 * finest.columns * finest.rows,
                     "a texture's lattice");
}

/* Perlin's weight: 0 to 1 with two derivatives that vanish at both ends. */
static float fade(float t) {
    return t * t * t * (t * (6 * t - 15) + 10);
}

static float between(float a, float b, float share) {
    return a + share * (b - a);
}

/* One row of noise: between the four corners of a cell, each giving the height of a plane that
 * rises along its gradient. */
static void add_noise_row(const lattice *grid, const float *gradient, double left, double top,
                          float weight, int size, float *row) {
    int64_t i = (int64_t)top;
    float y = (float)(top - (double)i), down = fade(y);
    for (int k = 0; k < size; k++) {
        double at = left + (k + 0.5) / grid->across;
        int64_t j = (int64_t)at;
        float x = (float)(at - (double)j), right = fade(x);
        const float *a = gradient + 2 * (i * grid->columns + j),
                    *b = a + 2 * (int64_t)grid->columns;
        float upper = between(a[0] * x + a[1] * y, a[2] * (x - 1) + a[3] * y, right);
        float lower = between(b[0] * x + b[1] * (y - 1), b[2] * (x - 1) + b[3] * (y - 1), right);
        row[k] += weight * between(upper, lower, down);
    }
}

static void add_octave(zonal__texture_maker *maker, uint64_t number, int octave) {
    const zonal__texture_spec *spec = &maker->spec;
    zonal__random random = draws(spec, (uint32_t)octave);
    lattice grid = lattice_of(spec, octave);
    float weight = (float)pow(spec->roughness, octave);
    double start[2];
    zonal__uniform_pair(&random, number, 0, start);
    for (int64_t k = 0; k < (int64_t)grid.rows * grid.columns; k++) {
        double u[2], sine, cosine;
        zonal__uniform_pair(&random, number, (uint32_t)(1 + k), u);
        zonal__portable_sincos_turn(u[0], &sine, &cosine);
        maker->gradient[2 * k] = (float)cosine;
        maker->gradient[2 * k + 1] = (float)sine;
    }
    for (int y = 0; y < spec->size; y++)
        add_noise_row(&grid, maker->gradient, start[0], start[1] + (y + 0.5) / grid.down, weight,
                      spec->size, maker->value + (int64_t)y * spec->size);
}

static void make_wood(zonal__texture_maker *maker, uint64_t number, uint8_t *pixels) {
    const zonal__texture_spec *spec = &maker->spec;
    int size = spec->size;
    float half = (float)spec->line / 2, waviness = (float)spec->waviness;
    float spacing = (float)spec->spacing, soft = 1 / spacing; /* an edge is two pixels wide */
    memset(maker->value, 0, (size_t)size * (size_t)size * sizeof *maker->value);
    for (int octave = 0; octave < spec->octaves; octave++) add_octave(maker, number, octave);
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++) {
            int64_t k = (int64_t)y * size + x;
            float phase = ((float)y + waviness * maker->value[k]) / spacing;
            float off = fabsf(phase - rintf(phase)); /* from the line, in spacings */
            float white = (off - half) / (2 * soft) + 0.5f;
            pixels[k] = (uint8_t)(255 * fade(white < 0 ? 0 : white > 1 ? 1 : white) + 0.5f);
        }
}

/* ---- makers ---------------------------------------------------------------------------------- */

zonal_status zonal__texture_maker_create(const zonal__texture_spec *spec,
                                         zonal__texture_maker **out) {
    zonal_status status;
    zonal__texture_maker *maker;
    *out = NULL;
    ZONAL_TRY(zonal__texture_check(spec));
    ZONAL_TRY(ZONAL_NEW(&maker, 1, "a maker of textures"));
    maker->spec = *spec;
    ZONAL_TRY_GOTO(status, failed,
                   ZONAL_NEW(&maker->value, (int64_t)spec->size * spec->size, "a texture"));
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&maker->counts, 1 << 16, "a texture's histogram"));
    if (spec->family == ZONAL__TEXTURE_CLOUD)
        status = spectrum_create(maker);
    else if (spec->family == ZONAL__TEXTURE_WOOD)
        status = lattice_create(maker);
    else
        status = filter_create(maker);
    if (status != ZONAL_OK) goto failed;
    *out = maker;
    return ZONAL_OK;
failed:
    zonal__texture_maker_destroy(maker);
    return status;
}

void zonal__texture_maker_destroy(zonal__texture_maker *maker) {
    if (!maker) return;
    zonal__free(maker->value);
    zonal__free(maker->counts);
    zonal__free(maker->noise);
    zonal__free(maker->taps);
    zonal__fft_destroy(maker->fft);
    zonal__free(maker->amplitude);
    zonal__free(maker->real);
    zonal__free(maker->imaginary);
    zonal__free(maker->scratch);
    zonal__free(maker->gradient);
    zonal__free(maker);
}

zonal_status zonal__texture_make(zonal__texture_maker *maker, int64_t number, zonal__image *image) {
    int size = maker->spec.size;
    if (number < 0 || number >= (int64_t)1 << 56)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a texture's number must be from 0 to 2^56 - 1, got %lld",
                          (long long)number);
    ZONAL_TRY(zonal__image_shape(image, size, size, 1));
    if (maker->spec.family == ZONAL__TEXTURE_WOOD) {
        make_wood(maker, (uint64_t)number, image->pixels);
        return ZONAL_OK;
    }
    if (maker->spec.family == ZONAL__TEXTURE_CLOUD)
        make_cloud(maker, (uint64_t)number);
    else
        make_filtered(maker, (uint64_t)number);
    saturate(maker, image->pixels);
    return ZONAL_OK;
}
