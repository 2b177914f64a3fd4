/* What every device asks of views before it makes them: backend/training/views.h. */
#include "backend/training/views.h"

#include <math.h>

enum { LONGEST_SIDE = 32768, LARGEST_IMAGE = 1 << 28 };

int64_t zonal__views_longest(const zonal__views_spec *spec, int side) {
    return (int64_t)((double)spec->most_shrink * side * (1 + 1e-6));
}

static zonal_status check_shape(const zonal__views_spec *spec) {
    int shorter = spec->width < spec->height ? spec->width : spec->height;
    if (spec->kind != ZONAL__VIEW_PHOTOGRAPH && spec->kind != ZONAL__VIEW_TEXTURE)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no kind %d of views", spec->kind);
    if (spec->width < 1 || spec->height < 1 || spec->width > LONGEST_SIDE ||
        spec->height > LONGEST_SIDE)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "views of %d x %d pixels: sides must be from 1 to %d",
                          spec->width, spec->height, LONGEST_SIDE);
    if (spec->channels != 1 && spec->channels != 3)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "views have 1 or 3 channels, not %d", spec->channels);
    if (spec->count < 1 || spec->count > INT32_MAX)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the number of views must be at least 1, got %lld",
                          (long long)spec->count);
    if (spec->blur_taps < 0 || (spec->blur_taps > 0 && spec->blur_taps % 2 == 0))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the taps of the blur must be odd (0: none), got %d",
                          spec->blur_taps);
    if (spec->blur_taps / 2 >= shorter)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a blur of %d taps reaches beyond a view of %d x %d pixels; use at most "
                          "%d",
                          spec->blur_taps, spec->width, spec->height, 2 * shorter - 1);
    return ZONAL_OK;
}

zonal_status zonal__views_check_spec(const zonal__views_spec *spec) {
    ZONAL_TRY(check_shape(spec));
    for (int c = 0; c < spec->channels; c++)
        if (!isfinite(spec->mean[c]) || !isfinite(spec->std[c]) || !(spec->std[c] > 0))
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "channel %d of the views has mean %g and std %g; both must be "
                              "finite, the std positive",
                              c, (double)spec->mean[c], (double)spec->std[c]);
    if (spec->dtype != ZONAL_DTYPE_FP32 && spec->dtype != ZONAL_DTYPE_BF16)
        return ZONAL_FAIL(ZONAL_DTYPE, "views are made as fp32 or bf16, not as type %d",
                          (int)spec->dtype);
    if (spec->threads < 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the number of threads must not be negative, got %d",
                          spec->threads);
    if (spec->kind == ZONAL__VIEW_PHOTOGRAPH &&
        !(spec->most_shrink > 0 && spec->most_shrink <= (float)LONGEST_SIDE))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the most that crops shrink must lie between 0 and %d, got %g",
                          LONGEST_SIDE, (double)spec->most_shrink);
    return ZONAL_OK;
}

static zonal_status check_crop(const zonal__views_spec *spec, const zonal__image_place *image,
                               const zonal__view *view, int64_t index) {
    if (view->left < 0 || view->top < 0 || view->width < 1 || view->height < 1 ||
        view->width > image->width - view->left || view->height > image->height - view->top)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "view %lld: the crop of %d x %d at (%d, %d) is not inside its image of "
                          "%d x %d",
                          (long long)index, view->width, view->height, view->left, view->top,
                          image->width, image->height);
    if (view->width > zonal__views_longest(spec, spec->width) ||
        view->height > zonal__views_longest(spec, spec->height))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "view %lld: the crop of %d x %d shrinks by more than %g, for which the "
                          "views were created; raise most_shrink",
                          (long long)index, view->width, view->height, (double)spec->most_shrink);
    return ZONAL_OK;
}

static zonal_status check_photograph(const zonal__views_spec *spec, const zonal__view *view,
                                     int64_t index) {
    if (view->adjustments < 0 || view->adjustments > 4)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "view %lld: %d adjustments; there are 0 to 4",
                          (long long)index, view->adjustments);
    for (int i = 0, seen = 0; i < view->adjustments; i++) {
        int which = view->order[i];
        if (which < ZONAL__ADJUST_BRIGHTNESS || which > ZONAL__ADJUST_HUE)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "view %lld: there is no adjustment %d",
                              (long long)index, which);
        if (seen >> which & 1) /* devices keep one mean for the contrast */
            return ZONAL_FAIL(ZONAL_ARGUMENT, "view %lld: adjustment %d is made twice",
                              (long long)index, which);
        seen |= 1 << which;
        float factor = view->factor[which];
        if (which == ZONAL__ADJUST_HUE ? !(factor >= -0.5f && factor <= 0.5f)
                                       : !(factor >= 0 && isfinite(factor)))
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "view %lld: factor %g of adjustment %d is out of range",
                              (long long)index, (double)factor, which);
    }
    if (!(view->blur >= 0 && isfinite(view->blur)) || (view->blur > 0 && spec->blur_taps == 0))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "view %lld: blur %g; it must be finite, not negative, and 0 without taps",
                          (long long)index, (double)view->blur);
    return ZONAL_OK;
}

static zonal_status check_texture(const zonal__views_spec *spec, const zonal__view *view,
                                  int64_t index) {
    for (int k = 0; k < 6; k++)
        if (!isfinite(view->affine[k]))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "view %lld: its affine map is not finite",
                              (long long)index);
    if (!isfinite(view->brightness) || !isfinite(view->contrast) || !isfinite(view->noise) ||
        !isfinite(view->erase_value))
        return ZONAL_FAIL(
            ZONAL_ARGUMENT,
            "view %lld: brightness %g, contrast %g, noise %g and erased value %g must "
            "be finite",
            (long long)index, (double)view->brightness, (double)view->contrast, (double)view->noise,
            (double)view->erase_value);
    if (view->draw >> 56)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "view %lld: its draw must be below 2^56",
                          (long long)index);
    if (view->erase_width < 0 || view->erase_height < 0 || view->erase_left < 0 ||
        view->erase_top < 0 || view->erase_width > spec->width - view->erase_left ||
        view->erase_height > spec->height - view->erase_top)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "view %lld: the erased %d x %d at (%d, %d) is not inside the view",
                          (long long)index, view->erase_width, view->erase_height, view->erase_left,
                          view->erase_top);
    return ZONAL_OK;
}

static zonal_status check_image(const zonal__image_place *image, int64_t index) {
    if (image->width < 1 || image->height < 1 || image->offset < 0 ||
        (int64_t)image->width * image->height > LARGEST_IMAGE ||
        (image->channels != 1 && image->channels != 3))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "view %lld: its image has %d x %d pixels and %d channels; at most 2^28 "
                          "pixels and 1 or 3 channels are taken",
                          (long long)index, image->width, image->height, image->channels);
    return ZONAL_OK;
}

zonal_status zonal__views_check_run(const zonal__views_spec *spec, const zonal__image_place *images,
                                    const zonal__view *view, int64_t count) {
    if (count < 0 || count > spec->count)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%lld views in one run, but room was made for %lld",
                          (long long)count, (long long)spec->count);
    for (int64_t i = 0; i < count; i++) {
        if (view[i].kind != spec->kind || view[i].image < 0)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "view %lld is of kind %d, not %d, or of no image (%d)", (long long)i,
                              view[i].kind, spec->kind, view[i].image);
        const zonal__image_place *image = &images[view[i].image];
        ZONAL_TRY(check_image(image, i));
        if (spec->kind == ZONAL__VIEW_TEXTURE) {
            ZONAL_TRY(check_texture(spec, &view[i], i));
        } else {
            ZONAL_TRY(check_crop(spec, image, &view[i], i));
            ZONAL_TRY(check_photograph(spec, &view[i], i));
        }
    }
    return ZONAL_OK;
}
