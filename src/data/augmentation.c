#include "data/augmentation.h"

#include <math.h>

#include "core/random.h"

/* ---- the augmentations ----------------------------------------------------------------------- */

void zonal__augmentation_identity(int kind, zonal__augmentation *augmentation) {
    *augmentation = (zonal__augmentation){.kind = kind,
                                          .crop = ZONAL__CROP_WHOLE,
                                          .area = {1, 1},
                                          .aspect = {1, 1},
                                          .centre_share = 1,
                                          .blur_sigma = {1, 1},
                                          .scale = {1, 1},
                                          .times = {1, 1}};
}

void zonal__augmentation_byol(int view_number, zonal__augmentation *augmentation) {
    int first = view_number % 2 == 0;
    zonal__augmentation_identity(ZONAL__VIEW_PHOTOGRAPH, augmentation);
    augmentation->crop = ZONAL__CROP_RANDOM;
    augmentation->area = (zonal__range){0.08, 1};
    augmentation->aspect = (zonal__range){3.0 / 4, 4.0 / 3};
    augmentation->flip = 0.5;
    augmentation->jitter = 0.8;
    augmentation->brightness = augmentation->contrast = 0.4;
    augmentation->saturation = 0.2;
    augmentation->hue = 0.1;
    augmentation->grey = 0.2;
    augmentation->blur = first ? 1 : 0.1;
    augmentation->blur_sigma = (zonal__range){0.1, 2};
    augmentation->solarise = first ? 0 : 0.2;
}

void zonal__augmentation_local(zonal__augmentation *augmentation) {
    zonal__augmentation_byol(0, augmentation);
    augmentation->area = (zonal__range){0.05, 0.4};
    augmentation->blur = 0.5;
}

void zonal__augmentation_texture(zonal__augmentation *augmentation) {
    zonal__augmentation_identity(ZONAL__VIEW_TEXTURE, augmentation);
    augmentation->rotation = M_PI;
    augmentation->shift = 0.2;
    augmentation->scale = (zonal__range){0.8, 1.25};
    augmentation->shear = 0.2;
    augmentation->added = (zonal__range){-0.2, 0.2};
    augmentation->times = (zonal__range){0.7, 1.3};
    augmentation->noise = 0.05;
    augmentation->erase = 1;
    augmentation->erase_side = (zonal__range){0.1, 0.4};
}

void zonal__augmentation_center_crop(zonal__augmentation *augmentation) {
    zonal__augmentation_identity(ZONAL__VIEW_PHOTOGRAPH, augmentation);
    augmentation->crop = ZONAL__CROP_CENTER;
    augmentation->centre_share = 7.0 / 8;
}

static zonal_status check_range(const char *name, zonal__range range, double least, double most) {
    if (range.low >= least && range.low <= range.high && range.high <= most) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "the views' %s goes from %g to %g; it must go upwards and stay within %g to "
                      "%g",
                      name, range.low, range.high, least, most);
}

static zonal_status check_number(const char *name, double x, double least, double most) {
    if (x >= least && x <= most) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT, "the views' %s is %g; it must lie within %g to %g", name, x,
                      least, most);
}

zonal_status zonal__augmentation_check(const zonal__augmentation *augmentation) {
    static const double tiny = 1e-6, large = 1e6;
    const struct {
        const char *name;
        zonal__range range;
        double least, most;
    } ranges[] = {{"area", augmentation->area, tiny, 1},
                  {"aspect", augmentation->aspect, tiny, large},
                  {"blur sigma", augmentation->blur_sigma, tiny, large},
                  {"scale", augmentation->scale, tiny, large},
                  {"added brightness", augmentation->added, -1, 1},
                  {"contrast factor", augmentation->times, 0, large},
                  {"erased side", augmentation->erase_side, 0, 1}};
    const struct {
        const char *name;
        double value, least, most;
    } numbers[] = {{"centre share", augmentation->centre_share, tiny, 1},
                   {"flip probability", augmentation->flip, 0, 1},
                   {"jitter probability", augmentation->jitter, 0, 1},
                   {"brightness strength", augmentation->brightness, 0, large},
                   {"contrast strength", augmentation->contrast, 0, large},
                   {"saturation strength", augmentation->saturation, 0, large},
                   {"hue strength", augmentation->hue, 0, 0.5},
                   {"grey probability", augmentation->grey, 0, 1},
                   {"blur probability", augmentation->blur, 0, 1},
                   {"solarise probability", augmentation->solarise, 0, 1},
                   {"rotation", augmentation->rotation, 0, M_PI},
                   {"shift", augmentation->shift, 0, large},
                   {"shear", augmentation->shear, 0, large},
                   {"noise", augmentation->noise, 0, large},
                   {"erase probability", augmentation->erase, 0, 1},
                   {"erased value", augmentation->erase_value, 0, 1}};
    if (augmentation->kind != ZONAL__VIEW_PHOTOGRAPH && augmentation->kind != ZONAL__VIEW_TEXTURE)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no kind %d of views", augmentation->kind);
    if (augmentation->crop < ZONAL__CROP_RANDOM || augmentation->crop > ZONAL__CROP_WHOLE)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no kind %d of crops", (int)augmentation->crop);
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        ZONAL_TRY(check_range(ranges[i].name, ranges[i].range, ranges[i].least, ranges[i].most));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        ZONAL_TRY(
            check_number(numbers[i].name, numbers[i].value, numbers[i].least, numbers[i].most));
    return ZONAL_OK;
}

int zonal__view_blur_taps(int side) {
    return side / 10 | 1;
}

/* ---- the draw -------------------------------------------------------------------------------- */

/* Which random number decides what. Results depend on them: append, never renumber. */
enum {
    DRAW_FLIP,
    DRAW_JITTER,
    DRAW_ORDER,                   /* 3 of them */
    DRAW_FACTOR = DRAW_ORDER + 3, /* 4 of them, by adjustment */
    DRAW_GREY = DRAW_FACTOR + 4,
    DRAW_BLUR,
    DRAW_SIGMA,
    DRAW_SOLARISE,
    DRAW_ROTATION,
    DRAW_SCALE,
    DRAW_SHEAR,
    DRAW_SHIFT, /* 2 of them */
    DRAW_ADDED = DRAW_SHIFT + 2,
    DRAW_TIMES,
    DRAW_ERASE,
    DRAW_ERASE_WIDTH,
    DRAW_ERASE_HEIGHT,
    DRAW_ERASE_LEFT,
    DRAW_ERASE_TOP,
    DRAW_CROP /* 4 for every try: area, aspect, left, top */
};

typedef struct draws {
    zonal__random random;
    uint64_t key;
} draws;

/* Number n of this view, uniform on (0, 1). */
static double unit(const draws *d, int n) {
    double pair[2];
    zonal__random_uniform(&d->random, d->key, (uint32_t)(n / 2), pair);
    return pair[n % 2];
}

static int happens(const draws *d, int n, double probability) {
    return unit(d, n) < probability;
}

static double within(const draws *d, int n, double low, double high) {
    return low + (high - low) * unit(d, n);
}

static double within_log(const draws *d, int n, zonal__range range) {
    return exp(within(d, n, log(range.low), log(range.high)));
}

/* One of the whole numbers 0 ... most. */
static int whole(const draws *d, int n, int most) {
    int k = (int)(unit(d, n) * (most + 1.0));
    return k < most ? k : most;
}

static void place_centred(int width, int height, int image_width, int image_height,
                          zonal__view *view) {
    view->width = width < 1 ? 1 : width < image_width ? width : image_width;
    view->height = height < 1 ? 1 : height < image_height ? height : image_height;
    view->left = (image_width - view->width) / 2;
    view->top = (image_height - view->height) / 2;
}

static void draw_random_crop(const zonal__augmentation *augmentation, const draws *d, int width,
                             int height, zonal__view *view) {
    enum { TRIES = 10 };
    double aspect = (double)width / height;
    for (int t = 0; t < TRIES; t++) {
        int n = DRAW_CROP + 4 * t;
        double area =
            (double)width * height * within(d, n, augmentation->area.low, augmentation->area.high);
        double shape = within_log(d, n + 1, augmentation->aspect);
        double w = nearbyint(sqrt(area * shape)), h = nearbyint(sqrt(area / shape));
        if (w < 1 || h < 1 || w > width || h > height) continue;
        view->width = (int)w;
        view->height = (int)h;
        view->left = whole(d, n + 2, width - view->width);
        view->top = whole(d, n + 3, height - view->height);
        return;
    }
    if (aspect < augmentation->aspect.low)
        place_centred(width, (int)nearbyint(width / augmentation->aspect.low), width, height, view);
    else if (aspect > augmentation->aspect.high)
        place_centred((int)nearbyint(height * augmentation->aspect.high), height, width, height,
                      view);
    else
        place_centred(width, height, width, height, view);
}

/* The largest part of the shape out_width : out_height, times the share. */
static void crop_centre(double share, int width, int height, int out_width, int out_height,
                        zonal__view *view) {
    double across = (double)width / out_width, down = (double)height / out_height;
    double scale = share * (across < down ? across : down);
    place_centred((int)nearbyint(scale * out_width), (int)nearbyint(scale * out_height), width,
                  height, view);
}

/* A random order of those adjustments that have a strength. */
static void draw_adjustments(const zonal__augmentation *augmentation, const draws *d,
                             zonal__view *view) {
    const double strength[4] = {augmentation->brightness, augmentation->contrast,
                                augmentation->saturation, augmentation->hue};
    int order[4] = {ZONAL__ADJUST_BRIGHTNESS, ZONAL__ADJUST_CONTRAST, ZONAL__ADJUST_SATURATION,
                    ZONAL__ADJUST_HUE};
    for (int i = 3; i > 0; i--) {
        int k = whole(d, DRAW_ORDER + 3 - i, i), swap = order[i];
        order[i] = order[k];
        order[k] = swap;
    }
    for (int a = 0; a < 4; a++) {
        double centre = a == ZONAL__ADJUST_HUE ? 0 : 1;
        double low = a == ZONAL__ADJUST_HUE ? -strength[a] : fmax(0, 1 - strength[a]);
        view->factor[a] = (float)within(d, DRAW_FACTOR + a, low, centre + strength[a]);
    }
    if (!happens(d, DRAW_JITTER, augmentation->jitter)) return;
    for (int i = 0; i < 4; i++)
        if (strength[order[i]] > 0) view->order[view->adjustments++] = order[i];
}

static int draw_flip(const zonal__augmentation *augmentation, const draws *d) {
    draws first = *d;
    if (!augmentation->flip_alternates) return happens(d, DRAW_FLIP, augmentation->flip);
    first.random.step = 0;
    return happens(&first, DRAW_FLIP, augmentation->flip) ^ (int)(d->random.step % 2);
}

static void draw_photograph(const zonal__augmentation *augmentation, const draws *d, int width,
                            int height, int out_width, int out_height, zonal__view *view) {
    if (augmentation->crop == ZONAL__CROP_RANDOM)
        draw_random_crop(augmentation, d, width, height, view);
    else if (augmentation->crop == ZONAL__CROP_CENTER)
        crop_centre(augmentation->centre_share, width, height, out_width, out_height, view);
    else
        place_centred(width, height, width, height, view);
    view->flip = draw_flip(augmentation, d);
    draw_adjustments(augmentation, d, view);
    view->grey = happens(d, DRAW_GREY, augmentation->grey);
    if (happens(d, DRAW_BLUR, augmentation->blur))
        view->blur = (float)within(d, DRAW_SIGMA, augmentation->blur_sigma.low,
                                   augmentation->blur_sigma.high);
    view->solarise = happens(d, DRAW_SOLARISE, augmentation->solarise);
}

/* What is seen at p (from the view's centre, in source pixels) moved there from q (from the
 * source's centre) by p = scale turn(angle) shear q + shift. A view pixel therefore comes from
 *     q = shear^-1 turn(-angle) (p - shift)/scale,     shear^-1 = (1, -shear; 0, 1). */
static void draw_affine(const zonal__augmentation *augmentation, const draws *d, int width,
                        int height, int out_width, int out_height, float affine[6]) {
    double angle = within(d, DRAW_ROTATION, -augmentation->rotation, augmentation->rotation);
    double scale = within_log(d, DRAW_SCALE, augmentation->scale);
    double shear = within(d, DRAW_SHEAR, -augmentation->shear, augmentation->shear);
    double shift_x = within(d, DRAW_SHIFT, -augmentation->shift, augmentation->shift) * width;
    double shift_y = within(d, DRAW_SHIFT + 1, -augmentation->shift, augmentation->shift) * height;
    double c = cos(angle) / scale, s = sin(angle) / scale;
    double m[2][2] = {{c + shear * s, s - shear * c}, {-s, c}};
    for (int row = 0; row < 2; row++) {
        double centre = (row == 0 ? width : height) / 2.0;
        affine[3 * row] = (float)(m[row][0] * width / out_width);
        affine[3 * row + 1] = (float)(m[row][1] * height / out_height);
        affine[3 * row + 2] = (float)(centre - m[row][0] * (width / 2.0 + shift_x) -
                                      m[row][1] * (height / 2.0 + shift_y));
    }
}

static int erased_side(const zonal__augmentation *augmentation, const draws *d, int n, int out) {
    int side = (int)nearbyint(
        within(d, n, augmentation->erase_side.low, augmentation->erase_side.high) * out);
    return side < out ? side : out;
}

static void draw_texture(const zonal__augmentation *augmentation, const draws *d, int width,
                         int height, int out_width, int out_height, zonal__view *view) {
    draw_affine(augmentation, d, width, height, out_width, out_height, view->affine);
    view->brightness =
        (float)within(d, DRAW_ADDED, augmentation->added.low, augmentation->added.high);
    view->contrast =
        (float)within(d, DRAW_TIMES, augmentation->times.low, augmentation->times.high);
    view->noise = (float)augmentation->noise;
    view->erase_value = (float)augmentation->erase_value;
    if (!happens(d, DRAW_ERASE, augmentation->erase)) return;
    view->erase_width = erased_side(augmentation, d, DRAW_ERASE_WIDTH, out_width);
    view->erase_height = erased_side(augmentation, d, DRAW_ERASE_HEIGHT, out_height);
    view->erase_left = whole(d, DRAW_ERASE_LEFT, out_width - view->erase_width);
    view->erase_top = whole(d, DRAW_ERASE_TOP, out_height - view->erase_height);
}

void zonal__view_draw(const zonal__augmentation *augmentation, uint64_t seed, uint32_t epoch,
                      int64_t sample, int view_number, int image_width, int image_height,
                      int out_width, int out_height, zonal__view *view) {
    draws d = {.random = {.seed = seed, .stream = ZONAL__STREAM_VIEW, .step = epoch},
               .key = (uint64_t)sample << 16 | (uint64_t)view_number};
    *view = (zonal__view){.kind = augmentation->kind, .seed = seed, .draw = d.key, .epoch = epoch};
    if (augmentation->kind == ZONAL__VIEW_PHOTOGRAPH)
        draw_photograph(augmentation, &d, image_width, image_height, out_width, out_height, view);
    else
        draw_texture(augmentation, &d, image_width, image_height, out_width, out_height, view);
}

void zonal__view_region(const zonal__view *view, int out_width, int out_height,
                        double corners[4][2]) {
    static const int right[4] = {0, 1, 1, 0}, down[4] = {0, 0, 1, 1};
    const float *a = view->affine;
    for (int k = 0; k < 4; k++) {
        double x = right[k] * out_width, y = down[k] * out_height;
        if (view->kind == ZONAL__VIEW_PHOTOGRAPH) {
            int far_side = view->flip ? !right[k] : right[k];
            corners[k][0] = view->left + (double)far_side * view->width;
            corners[k][1] = view->top + (double)down[k] * view->height;
        } else {
            corners[k][0] = (double)a[0] * x + (double)a[1] * y + (double)a[2];
            corners[k][1] = (double)a[3] * x + (double)a[4] * y + (double)a[5];
        }
    }
}
