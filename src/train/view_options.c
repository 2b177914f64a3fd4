/* The --view-... options: which laws they are of, and where in a law they lie. */
#include <stddef.h>
#include <string.h>

#include "train/options.h"

#define VIEW(law, name, field)                                                                     \
    {                                                                                              \
        name, ZONAL__LAW_##law, offsetof(zonal__view_law, field),                                  \
            sizeof(((zonal__view_law *)0)->field)                                                  \
    }

/* The options that every view of a law takes, and where in the law they lie. */
static const struct {
    const char *name;
    int law;
    size_t at, size;
} view_options[] = {
    VIEW(BYOL, "view-aspect", aspect),
    VIEW(BYOL, "view-mirror", mirror),
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
    VIEW(TEXTURE, "view-added", added),
    VIEW(TEXTURE, "view-times", times),
    VIEW(TEXTURE, "view-noise", noise),
    VIEW(TEXTURE, "view-erase", erase),
    VIEW(TEXTURE, "view-erase-side", erase_side),
};
enum { VIEW_OPTIONS = sizeof view_options / sizeof view_options[0] };

static int is_given(const zonal__options *options, const char *name) {
    return zonal__options_source(options, name) != ZONAL__SOURCE_NONE;
}

void zonal__train_apply_views(const zonal__train_settings *settings, const zonal__options *options,
                              int local, zonal__view_law *law) {
    for (int i = 0; i < VIEW_OPTIONS; i++)
        if (is_given(options, view_options[i].name))
            memcpy((char *)law + view_options[i].at,
                   (const char *)&settings->view + view_options[i].at, view_options[i].size);
    if (!local && is_given(options, "view-area")) law->area = settings->view.area;
    if (local && is_given(options, "local-area")) law->area = settings->local_area;
}

const char *zonal__train_unused_view(const zonal__train_settings *settings,
                                     const zonal__options *options) {
    int byol = settings->law == ZONAL__LAW_BYOL;
    for (int i = 0; i < VIEW_OPTIONS; i++)
        if (view_options[i].law != settings->law && is_given(options, view_options[i].name))
            return view_options[i].name;
    if (!byol && is_given(options, "view-area")) return "view-area";
    if ((!byol || settings->local_views == 0) && is_given(options, "local-area"))
        return "local-area";
    return NULL;
}
