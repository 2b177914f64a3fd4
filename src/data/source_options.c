#include "data/source_options.h"

const char *const zonal__split_words[] = {"all", "train", "val", "test", NULL};

/* A 0 that a user asks for is none; to the library it is the usual share. */
static double share(double asked) {
    return asked > 0 ? asked : ZONAL__NO_SHARE;
}

zonal_status zonal__source_settings_check(const zonal__source_settings *settings,
                                          const char *path) {
    if ((!settings->count && !settings->size) || zonal__source_is_textures(path)) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "--%s is for textures, and %s is not one of their families; "
                      "leave it out",
                      settings->count ? "count" : "size", path);
}

zonal__source_options zonal__source_settings_apply(const zonal__source_settings *settings,
                                                   const char *path, zonal__split split) {
    return (zonal__source_options){.path = path,
                                   .split = split,
                                   .val_share = share(settings->val_share),
                                   .test_share = share(settings->test_share),
                                   .seed = (uint64_t)settings->seed,
                                   .class_list = settings->class_list,
                                   .channels = (int)settings->channels,
                                   .min_side = (int)settings->min_side,
                                   .max_corrupt = settings->max_corrupt,
                                   .texture_count = settings->count,
                                   .texture_size = (int)settings->size};
}
