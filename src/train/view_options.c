/* The --view-... options: which augmentations they are of, and where in an augmentation they lie.
 */
#include <stddef.h>
#include <string.h>

#include "train/options.h"

#define VIEW(augmentation, name, field)                                                            \
    {                                                                                              \
        name, ZONAL__AUGMENTATION_##augmentation, offsetof(zonal__augmentation, field),            \
            sizeof(((zonal__augmentation *)0)->field)                                              \
    }

/* The options that every view of an augmentation takes, and where in the augmentation they lie. */
static const struct {
    const char *name;
    int augmentation;
    size_t at, size;
} view_options[] = {
    VIEW(BYOL, "view-aspect", aspect),
    VIEW(BYOL, "view-flip", flip),
    VIEW(BYOL, "view-jitter", jitter),
    VIEW(BYOL, "view-brightness", brightness),
    VIEW(BYOL, "view-contrast", contrast),
    VIEW(BYOL, "view-saturation", saturation),
    VIEW(BYOL, "view-hue", hue),
    VIEW(BYOL, "view-grey", grey),
    VIEW(BYOL, "view-blur", blur),
    VIEW(BYOL, "view-solarise", solarise),
    VIEW(TEXTURE, "view-rotation", rotation),
    VIEW(TEXTURE, "view-shift", shift),
    VIEW(TEXTURE, "view-scale", scale),
    VIEW(TEXTURE, "view-shear", shear),
    VIEW(TEXTURE, "view-brightness-added", added),
    VIEW(TEXTURE, "view-contrast-factor", times),
    VIEW(TEXTURE, "view-noise", noise),
    VIEW(TEXTURE, "view-erase", erase),
    VIEW(TEXTURE, "view-erase-side", erase_side),
};
enum { VIEW_OPTIONS = sizeof view_options / sizeof view_options[0] };

static int is_given(const zonal__options *options, const char *name) {
    return zonal__options_source(options, name) != ZONAL__SOURCE_NONE;
}

void zonal__train_apply_views(const zonal__train_settings *settings, const zonal__options *options,
                              int local, zonal__augmentation *augmentation) {
    for (int i = 0; i < VIEW_OPTIONS; i++)
        if (is_given(options, view_options[i].name))
            memcpy((char *)augmentation + view_options[i].at,
                   (const char *)&settings->view + view_options[i].at, view_options[i].size);
    if (!local && is_given(options, "view-area")) augmentation->area = settings->view.area;
    if (local && is_given(options, "local-area")) augmentation->area = settings->local_area;
}

const char *zonal__train_unused_view(const zonal__train_settings *settings,
                                     const zonal__options *options) {
    int byol = settings->augmentation == ZONAL__AUGMENTATION_BYOL;
    for (int i = 0; i < VIEW_OPTIONS; i++)
        if (view_options[i].augmentation != settings->augmentation &&
            is_given(options, view_options[i].name))
            return view_options[i].name;
    if (!byol && is_given(options, "view-area")) return "view-area";
    if ((!byol || settings->local_views == 0) && is_given(options, "local-area"))
        return "local-area";
    return NULL;
}
