/*
 * The augmentations: src/data/augmentation.h. Ranges, probabilities and independence are measured
 * on many draws; what they should be is computed from the definitions, by integration where the
 * distribution of crops has no closed form. The seed is fixed unless given, so that the margins
 * (four standard deviations and more) fail by chance only for one seed in thousands.
 */
#include "data/augmentation.h"

#include <stdlib.h>

#include "core/memory.h"
#include "test.h"

enum { DRAWS = 20000 };

static zonal__view draw(const zonal__augmentation *augmentation, int64_t sample, int view_number) {
    zonal__view view;
    zonal__view_draw(augmentation, test_seed, 3, sample, view_number, 500, 375, 224, 224, &view);
    return view;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Are the n numbers uniform between low and high? Kolmogorov's distance exceeds 2.2/sqrt(n) once in
 * 8000 times; "slack" is for numbers that were rounded. */
static void check_uniform(const char *name, int64_t n, double *x, double low, double high,
                          double slack) {
    double worst = 0;
    qsort(x, (size_t)n, sizeof *x, ascending);
    for (int64_t i = 0; i < n; i++) {
        double f = (x[i] - low) / (high - low);
        worst = fmax(worst, fmax((double)(i + 1) / (double)n - f, f - (double)i / (double)n));
    }
    CHECK_MSG(worst < 2.2 / sqrt((double)n) + slack, "%s: %g away from uniform on %g ... %g", name,
              worst, low, high);
}

static void check_share(const char *name, int64_t hits, int64_t n, double p) {
    double share = (double)hits / (double)n, sd = sqrt(p * (1 - p) / (double)n);
    CHECK_MSG(fabs(share - p) <= 4.5 * sd, "%s: %g of %lld draws, expected %g", name, share,
              (long long)n, p);
}

/* ---- crops ----------------------------------------------------------------------------------- */

/* Where every crop fits, area and logarithm of the aspect are uniform, and so is the place. */
static void test_crops_that_fit(void) {
    static double area[DRAWS], aspect[DRAWS], left[DRAWS], top[DRAWS];
    zonal__augmentation augmentation;
    zonal__augmentation_byol(0, &augmentation);
    augmentation.area = (zonal__range){0.1, 0.5};
    for (int i = 0; i < DRAWS; i++) {
        zonal__view view;
        zonal__view_draw(&augmentation, test_seed, 0, i, 0, 3000, 3000, 224, 224, &view);
        area[i] = (double)view.width * view.height / 9e6;
        aspect[i] = log((double)view.width / view.height);
        left[i] = (view.left + 0.5) / (3001 - view.width);
        top[i] = (view.top + 0.5) / (3001 - view.height);
        CHECK(view.left >= 0 && view.left + view.width <= 3000);
        CHECK(view.top >= 0 && view.top + view.height <= 3000);
    }
    /* sides of 800 and more are rounded to whole pixels, 1/1600 off */
    check_uniform("area", DRAWS, area, 0.1, 0.5, 0.003);
    check_uniform("aspect", DRAWS, aspect, log(0.75), log(4.0 / 3), 0.003);
    check_uniform("left", DRAWS, left, 0, 1, 0.001);
    check_uniform("top", DRAWS, top, 0, 1, 0.001);
}

/* The distribution of one try, by the midpoint rule over area and log aspect: how likely it fits,
 * and the mean sides of those that do. */
typedef struct one_try {
    double fits, width, height;
} one_try;

static one_try integrate_try(const zonal__augmentation *augmentation, int width, int height) {
    enum { STEPS = 1000 };
    one_try sum = {0};
    for (int i = 0; i < STEPS; i++)
        for (int k = 0; k < STEPS; k++) {
            double a = augmentation->area.low +
                       (augmentation->area.high - augmentation->area.low) * (i + 0.5) / STEPS;
            double shape =
                pow(augmentation->aspect.high / augmentation->aspect.low, (k + 0.5) / STEPS);
            double s = augmentation->aspect.low * shape;
            double w = nearbyint(sqrt(width * height * a * s));
            double h = nearbyint(sqrt(width * height * a / s));
            if (w < 1 || h < 1 || w > width || h > height) continue;
            sum.fits += 1, sum.width += w, sum.height += h;
        }
    sum.width /= sum.fits;
    sum.height /= sum.fits;
    sum.fits /= (double)STEPS * STEPS;
    return sum;
}

static void test_crops_of_photographs(void) {
    zonal__augmentation augmentation;
    zonal__augmentation_byol(0, &augmentation);
    one_try expected = integrate_try(&augmentation, 500, 375);
    double width = 0, height = 0;
    for (int i = 0; i < DRAWS; i++) {
        zonal__view view = draw(&augmentation, i, 0);
        width += view.width;
        height += view.height;
    }
    /* ten tries practically always find one that fits; the sides' deviations are below 110 */
    CHECK(expected.fits > 0.7);
    CHECK_CLOSE(width / DRAWS, expected.width, 4.5 * 110 / sqrt(DRAWS));
    CHECK_CLOSE(height / DRAWS, expected.height, 4.5 * 110 / sqrt(DRAWS));
}

/* In a strip few tries fit, and after ten the centre is taken. */
static void check_strip(int width, int height, int centre_width, int centre_height) {
    zonal__augmentation augmentation;
    int64_t centred = 0;
    zonal__augmentation_byol(0, &augmentation);
    double misses = pow(1 - integrate_try(&augmentation, width, height).fits, 10);
    for (int i = 0; i < DRAWS; i++) {
        zonal__view view;
        zonal__view_draw(&augmentation, test_seed, 1, i, 0, width, height, 224, 224, &view);
        CHECK(view.left >= 0 && view.top >= 0 && view.left + view.width <= width &&
              view.top + view.height <= height);
        centred += view.width == centre_width && view.height == centre_height &&
                   view.left == (width - centre_width) / 2 &&
                   view.top == (height - centre_height) / 2;
    }
    CHECK(misses > 0.2);
    check_share("centred crops", centred, DRAWS, misses);
}

static void test_crops_of_strips(void) {
    check_strip(1000, 100, 133, 100);
    check_strip(100, 1100, 100, 133);
}

static void test_smallest_images(void) {
    zonal__augmentation augmentation;
    zonal__augmentation_byol(0, &augmentation);
    for (int width = 1; width <= 4; width++)
        for (int height = 1; height <= 4; height++)
            for (int i = 0; i < 200; i++) {
                zonal__view view;
                zonal__view_draw(&augmentation, test_seed, 0, i, 0, width, height, 8, 8, &view);
                CHECK(view.width >= 1 && view.height >= 1 && view.left >= 0 && view.top >= 0 &&
                      view.left + view.width <= width && view.top + view.height <= height);
            }
}

static void test_centre_and_whole(void) {
    static const struct {
        int image[2], out[2], crop[4];
    } cases[] = {{{256, 256}, {224, 224}, {16, 16, 224, 224}},
                 {{512, 256}, {224, 224}, {144, 16, 224, 224}},
                 {{256, 640}, {224, 112}, {16, 264, 224, 112}},
                 {{1, 1}, {224, 224}, {0, 0, 1, 1}}};
    zonal__augmentation augmentation;
    zonal__view view;
    zonal__augmentation_center_crop(&augmentation);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        zonal__view_draw(&augmentation, test_seed, 0, 0, 0, cases[i].image[0], cases[i].image[1],
                         cases[i].out[0], cases[i].out[1], &view);
        CHECK(view.left == cases[i].crop[0] && view.top == cases[i].crop[1]);
        CHECK(view.width == cases[i].crop[2] && view.height == cases[i].crop[3]);
        CHECK(!view.flip && !view.adjustments && !view.grey && !view.solarise && view.blur == 0);
    }
    zonal__augmentation_identity(ZONAL__VIEW_PHOTOGRAPH, &augmentation);
    view = draw(&augmentation, 0, 0);
    CHECK(view.left == 0 && view.top == 0 && view.width == 500 && view.height == 375);
    CHECK(!view.flip && !view.adjustments && !view.grey && !view.solarise && view.blur == 0);
}

/* ---- probabilities and ranges ---------------------------------------------------------------- */

static void check_byol(int view_number, double blur, double solarise) {
    int64_t mirrored = 0, jittered = 0, greyed = 0, blurred = 0, solarised = 0;
    static double factor[4][DRAWS], sigma[DRAWS];
    static const double low[4] = {0.6, 0.6, 0.8, -0.1}, high[4] = {1.4, 1.4, 1.2, 0.1};
    zonal__augmentation augmentation;
    zonal__augmentation_byol(view_number, &augmentation);
    CHECK_OK(zonal__augmentation_check(&augmentation));
    for (int i = 0; i < DRAWS; i++) {
        zonal__view view = draw(&augmentation, i, view_number);
        mirrored += view.flip;
        jittered += view.adjustments == 4;
        CHECK(view.adjustments == 0 || view.adjustments == 4);
        greyed += view.grey;
        solarised += view.solarise;
        for (int a = 0; a < 4; a++) factor[a][i] = (double)view.factor[a];
        if (view.blur > 0) sigma[blurred++] = (double)view.blur;
    }
    check_share("flip", mirrored, DRAWS, 0.5);
    check_share("jitter", jittered, DRAWS, 0.8);
    check_share("grey", greyed, DRAWS, 0.2);
    check_share("blur", blurred, DRAWS, blur);
    check_share("solarise", solarised, DRAWS, solarise);
    for (int a = 0; a < 4; a++) check_uniform("a factor", DRAWS, factor[a], low[a], high[a], 0);
    check_uniform("sigma", blurred, sigma, 0.1, 2, 0);
}

static void test_byol(void) {
    check_byol(0, 1, 0);
    check_byol(1, 0.1, 0.2);
}

/* All 24 orders equally often: chi-square with 23 degrees of freedom is above 58 once in 10,000. */
/* Drawn once for each view of an image, then in turns; nothing else of a view changes. */
static void test_alternate_flips(void) {
    zonal__augmentation random, turns;
    int64_t first = 0, both = 0;
    zonal__augmentation_byol(0, &random);
    turns = random;
    turns.flip_alternates = 1;
    for (int i = 0; i < DRAWS; i++) {
        zonal__view begun, other, view, usual;
        zonal__view_draw(&turns, test_seed, 0, i, 0, 500, 375, 224, 224, &begun);
        zonal__view_draw(&turns, test_seed, 0, i, 1, 500, 375, 224, 224, &other);
        first += begun.flip;
        both += begun.flip == other.flip;
        for (uint32_t epoch = 0; epoch < 5; epoch++) {
            zonal__view_draw(&turns, test_seed, epoch, i, 0, 500, 375, 224, 224, &view);
            zonal__view_draw(&random, test_seed, epoch, i, 0, 500, 375, 224, 224, &usual);
            if (!CHECK(view.flip == (begun.flip + (int)epoch) % 2)) return;
            usual.flip = view.flip;
            if (!CHECK(memcmp(&view, &usual, sizeof view) == 0)) return;
        }
    }
    check_share("first flips", first, DRAWS, .5);
    check_share("equal flips of two views", both, DRAWS, .5);
}

static void test_orders(void) {
    int64_t count[256] = {0}, jittered = 0, kinds = 0;
    double chi2 = 0;
    zonal__augmentation augmentation;
    zonal__augmentation_byol(0, &augmentation);
    for (int i = 0; i < DRAWS; i++) {
        zonal__view view = draw(&augmentation, i, 0);
        if (view.adjustments < 4) continue;
        jittered++;
        count[view.order[0] << 6 | view.order[1] << 4 | view.order[2] << 2 | view.order[3]]++;
    }
    for (int k = 0; k < 256; k++) {
        double expected = (double)jittered / 24;
        if (!count[k]) continue;
        kinds++;
        chi2 += ((double)count[k] - expected) * ((double)count[k] - expected) / expected;
    }
    CHECK(kinds == 24);
    CHECK_MSG(chi2 < 58, "chi-square %g for the orders of adjustments", chi2);
}

/* An adjustment without strength is left out, and the others keep their order and factors. */
static void test_no_hue(void) {
    zonal__augmentation augmentation, without;
    zonal__augmentation_byol(0, &augmentation);
    without = augmentation;
    without.hue = 0;
    for (int i = 0; i < 200; i++) {
        zonal__view with_hue = draw(&augmentation, i, 0), no_hue = draw(&without, i, 0);
        int at = 0;
        for (int a = 0; a < with_hue.adjustments; a++)
            if (with_hue.order[a] != ZONAL__ADJUST_HUE)
                CHECK(no_hue.order[at++] == with_hue.order[a]);
        CHECK(no_hue.adjustments == at);
        CHECK(no_hue.factor[ZONAL__ADJUST_CONTRAST] == with_hue.factor[ZONAL__ADJUST_CONTRAST]);
    }
}

/* ---- textures -------------------------------------------------------------------------------- */

/* Takes an affine map apart again: as a map from the source to the view, both in source pixels from
 * the centre, its linear part is scale * turn * shear. */
typedef struct parts {
    double angle, scale, shear, upright, shift_x, shift_y;
} parts;

static parts take_apart(const zonal__view *view, int width, int height, int out_width,
                        int out_height) {
    const float *f = view->affine;
    double a = (double)f[0] * out_width / width, b = (double)f[1] * out_height / height;
    double c = (double)f[3] * out_width / width, d = (double)f[4] * out_height / height;
    double det = a * d - b * c, f00 = d / det, f01 = -b / det, f10 = -c / det, f11 = a / det;
    parts p = {.angle = atan2(f10, f00), .scale = hypot(f00, f10)};
    double cosine = f00 / p.scale, sine = f10 / p.scale;
    p.shear = (cosine * f01 + sine * f11) / p.scale;
    p.upright = (-sine * f01 + cosine * f11) / p.scale; /* 1, or it is no such product */
    /* where the source's centre comes to lie, from the view's centre */
    double x = width / 2.0 - (double)f[2], y = height / 2.0 - (double)f[5];
    double j = ((double)f[4] * x - (double)f[1] * y), i = ((double)f[0] * y - (double)f[3] * x);
    double area = (double)f[0] * (double)f[4] - (double)f[1] * (double)f[3];
    p.shift_x = j / area / out_width - 0.5;
    p.shift_y = i / area / out_height - 0.5;
    return p;
}

static void test_texture(void) {
    static double angle[DRAWS], scale[DRAWS], shear[DRAWS], across[DRAWS], down[DRAWS];
    static double added[DRAWS], times[DRAWS], sides[2 * DRAWS];
    zonal__augmentation augmentation;
    int64_t inside = 0;
    zonal__augmentation_texture(&augmentation);
    CHECK_OK(zonal__augmentation_check(&augmentation));
    for (int i = 0; i < DRAWS; i++) {
        zonal__view view;
        zonal__view_draw(&augmentation, test_seed, 0, i, 1, 300, 256, 2000, 1000, &view);
        parts p = take_apart(&view, 300, 256, 2000, 1000);
        CHECK_CLOSE(p.upright, 1, 1e-5); /* the map is kept in floats */
        angle[i] = p.angle, scale[i] = log(p.scale), shear[i] = p.shear;
        across[i] = p.shift_x, down[i] = p.shift_y;
        added[i] = (double)view.brightness, times[i] = (double)view.contrast;
        sides[2 * i] = view.erase_width / 2000.0, sides[2 * i + 1] = view.erase_height / 1000.0;
        CHECK(view.noise == 0.05f && view.erase_value == 0);
        inside += view.erase_left >= 0 && view.erase_top >= 0 &&
                  view.erase_left + view.erase_width <= 2000 &&
                  view.erase_top + view.erase_height <= 1000;
    }
    check_uniform("angle", DRAWS, angle, -M_PI, M_PI, 0);
    check_uniform("log scale", DRAWS, scale, log(0.8), log(1.25), 0);
    check_uniform("shear", DRAWS, shear, -0.2, 0.2, 0);
    check_uniform("shift across", DRAWS, across, -0.2, 0.2, 0);
    check_uniform("shift down", DRAWS, down, -0.2, 0.2, 0);
    check_uniform("brightness", DRAWS, added, -0.2, 0.2, 0);
    check_uniform("contrast", DRAWS, times, 0.7, 1.3, 0);
    check_uniform("erased sides", 2 * DRAWS, sides, 0.1, 0.4, 0.002);
    CHECK(inside == DRAWS);
}

static void test_texture_identity(void) {
    zonal__augmentation augmentation;
    zonal__view view;
    zonal__augmentation_identity(ZONAL__VIEW_TEXTURE, &augmentation);
    zonal__view_draw(&augmentation, test_seed, 0, 0, 0, 256, 128, 64, 64, &view);
    static const double expected[6] = {4, 0, 0, 0, 2, 0};
    for (int k = 0; k < 6; k++) CHECK_CLOSE((double)view.affine[k], expected[k], 0);
    CHECK(view.brightness == 0 && view.contrast == 1 && view.noise == 0 && view.erase_width == 0);
}

static void test_region(void) {
    static const double plain[4][2] = {{10, 20}, {40, 20}, {40, 60}, {10, 60}};
    static const double mirrored[4][2] = {{40, 20}, {10, 20}, {10, 60}, {40, 60}};
    static const double turned[4][2] = {{0, 100}, {0, 0}, {100, 0}, {100, 100}};
    zonal__view view = {.left = 10, .top = 20, .width = 30, .height = 40};
    /* a quarter turn: the view's x runs up the source */
    zonal__view quarter = {.kind = ZONAL__VIEW_TEXTURE, .affine = {0, 2, 0, -4, 0, 100}};
    double corners[4][2];
    zonal__view_region(&view, 224, 224, corners);
    CHECK(memcmp(corners, plain, sizeof plain) == 0);
    view.flip = 1;
    zonal__view_region(&view, 224, 224, corners);
    CHECK(memcmp(corners, mirrored, sizeof mirrored) == 0);
    zonal__view_region(&quarter, 25, 50, corners);
    CHECK(memcmp(corners, turned, sizeof turned) == 0);
}

/* ---- randomness ------------------------------------------------------------------------------ */

/* A view is the same whenever it is drawn, and after whatever. */
static void test_repeatable(void) {
    enum { N = 500 };
    static zonal__view forward[N];
    zonal__augmentation augmentation;
    zonal__augmentation_byol(1, &augmentation);
    for (int i = 0; i < N; i++) forward[i] = draw(&augmentation, i / 5, i % 5);
    for (int i = N - 1; i >= 0; i--) {
        zonal__view again = draw(&augmentation, i / 5, i % 5);
        CHECK(memcmp(&again, &forward[i], sizeof again) == 0);
    }
}

/* Neighbouring seeds, epochs, samples and views share nothing: correlations of the 20,000 numbers
 * are within 4.5 standard deviations of 0. */
static void test_independence(void) {
    static const struct {
        const char *name;
        uint64_t seed;
        uint32_t epoch;
        int64_t sample;
        int view;
    } others[] = {{"seed", 1, 0, 0, 0},
                  {"epoch", 0, 1, 0, 0},
                  {"sample", 0, 0, 1, 0},
                  {"view", 0, 0, 0, 1},
                  {"far sample", 0, 0, (int64_t)1 << 39, 0},
                  {"far view", 0, 0, 0, 65535}};
    zonal__augmentation augmentation;
    zonal__augmentation_byol(0, &augmentation);
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
        double sum = 0;
        for (int i = 0; i < DRAWS; i++) {
            zonal__view a, b;
            zonal__view_draw(&augmentation, test_seed, 0, i, 0, 500, 375, 224, 224, &a);
            zonal__view_draw(&augmentation, test_seed + others[k].seed, others[k].epoch,
                             i + others[k].sample, others[k].view, 500, 375, 224, 224, &b);
            sum += ((double)a.blur - 1.05) * ((double)b.blur - 1.05);
        }
        double correlation = sum / DRAWS / (1.9 * 1.9 / 12);
        CHECK_MSG(fabs(correlation) < 4.5 / sqrt(DRAWS), "%s: correlation %g", others[k].name,
                  correlation);
    }
}

/* The noise of a view has a key of its own: no two (sample, view) share it. */
static void test_keys(void) {
    zonal__augmentation augmentation;
    zonal__augmentation_texture(&augmentation);
    CHECK(draw(&augmentation, 0, 1).draw != draw(&augmentation, 1, 0).draw);
    CHECK(draw(&augmentation, 0, 65535).draw != draw(&augmentation, 1, 0).draw);
    CHECK(draw(&augmentation, ((int64_t)1 << 40) - 1, 65535).draw >> 56 == 0);
    CHECK(draw(&augmentation, 5, 2).seed == test_seed && draw(&augmentation, 5, 2).epoch == 3);
}

/* To change one option leaves everything else as it was. */
static void test_options_are_separate(void) {
    zonal__augmentation augmentation, other;
    zonal__augmentation_byol(1, &augmentation);
    other = augmentation;
    other.grey = 0.9;
    other.flip = 0;
    other.jitter = 0;
    for (int i = 0; i < 500; i++) {
        zonal__view a = draw(&augmentation, i, 1), b = draw(&other, i, 1);
        CHECK(a.left == b.left && a.top == b.top && a.width == b.width && a.height == b.height);
        CHECK(a.blur == b.blur && a.solarise == b.solarise);
        CHECK(a.grey <= b.grey && b.flip == 0 && b.adjustments == 0);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void test_bad_augmentations(void) {
    zonal__augmentation good, bad;
    zonal__augmentation_byol(0, &good);
#define REFUSED(change, sentence)                                                                  \
    (bad = good, bad.change, CHECK_FAILS(zonal__augmentation_check(&bad), ZONAL_ARGUMENT, sentence))
    REFUSED(kind = 7, "kind 7");
    REFUSED(crop = (zonal__view_crop)9, "kind 9 of crops");
    REFUSED(area.low = 0, "area goes from 0");
    REFUSED(area.high = 1.5, "area");
    REFUSED(area.low = NAN, "area");
    REFUSED(aspect.high = 0.5, "aspect");
    REFUSED(flip = -0.1, "flip probability is -0.1");
    REFUSED(jitter = 1.1, "jitter probability");
    REFUSED(hue = 0.6, "hue strength");
    REFUSED(brightness = NAN, "brightness strength");
    REFUSED(grey = NAN, "grey probability");
    REFUSED(blur_sigma.low = 0, "blur sigma");
    REFUSED(solarise = 2, "solarise probability");
    REFUSED(scale.low = 0, "scale");
    REFUSED(rotation = 4, "rotation");
    REFUSED(shift = INFINITY, "shift");
    REFUSED(shear = -1, "shear");
    REFUSED(noise = NAN, "noise");
    REFUSED(erase_side.high = 1.2, "erased side");
    REFUSED(erase_value = 2, "erased value");
#undef REFUSED
    zonal__augmentation_local(&good);
    CHECK_OK(zonal__augmentation_check(&good));
    zonal__augmentation_center_crop(&good);
    CHECK_OK(zonal__augmentation_check(&good));
    zonal__augmentation_identity(ZONAL__VIEW_TEXTURE, &good);
    CHECK_OK(zonal__augmentation_check(&good));
}

static void test_blur_taps(void) {
    CHECK(zonal__view_blur_taps(224) == 23);
    CHECK(zonal__view_blur_taps(96) == 9);
    for (int side = 1; side <= 1000; side++) {
        int taps = zonal__view_blur_taps(side);
        CHECK(taps % 2 == 1 && taps / 2 < side);
    }
}

static const test_case tests[] = {{"crops_that_fit", test_crops_that_fit},
                                  {"crops_of_photographs", test_crops_of_photographs},
                                  {"crops_of_strips", test_crops_of_strips},
                                  {"smallest_images", test_smallest_images},
                                  {"centre_and_whole", test_centre_and_whole},
                                  {"byol", test_byol},
                                  {"alternate_flips", test_alternate_flips},
                                  {"orders", test_orders},
                                  {"no_hue", test_no_hue},
                                  {"texture", test_texture},
                                  {"texture_identity", test_texture_identity},
                                  {"region", test_region},
                                  {"repeatable", test_repeatable},
                                  {"independence", test_independence},
                                  {"keys", test_keys},
                                  {"options_are_separate", test_options_are_separate},
                                  {"bad_augmentations", test_bad_augmentations},
                                  {"blur_taps", test_blur_taps},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
