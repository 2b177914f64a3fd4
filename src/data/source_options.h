/*
 * The options that say which images a command works on, once for all commands that take them.
 *
 *     typedef struct settings {
 *         zonal__source_settings source;
 *         ...
 *     } settings;
 *     static const zonal__option table[] = {ZONAL__SOURCE_OPTIONS(settings, source), ..., {0}};
 */
#ifndef ZONAL_DATA_SOURCE_OPTIONS_H
#define ZONAL_DATA_SOURCE_OPTIONS_H

#include <math.h>
#include <stddef.h>

#include "core/options.h"
#include "data/source.h"

typedef struct zonal__source_settings {
    int64_t seed, channels, min_side, count, size;
    double val_share, test_share, max_corrupt;
    const char *class_list;
} zonal__source_settings;

#define ZONAL__SOURCE_OPTIONS(settings_type, member)                                               \
    {.name = "class-list",                                                                         \
     .type = ZONAL__OPTION_STRING,                                                                 \
     .target = offsetof(settings_type, member.class_list),                                         \
     .metavar = "FILE",                                                                            \
     .help = "only these classes, one name per line, in this order"},                              \
        {.name = "channels",                                                                       \
         .type = ZONAL__OPTION_INT,                                                                \
         .target = offsetof(settings_type, member.channels),                                       \
         .initial = "0",                                                                           \
         .least = 0,                                                                               \
         .most = 3,                                                                                \
         .help = "1: grey, 3: RGB, 0: as in the files"},                                           \
        {.name = "min-side",                                                                       \
         .type = ZONAL__OPTION_INT,                                                                \
         .target = offsetof(settings_type, member.min_side),                                       \
         .initial = "0",                                                                           \
         .least = 0,                                                                               \
         .most = 32768,                                                                            \
         .metavar = "PIXELS",                                                                      \
         .help = "JPEG: decode at 1/2, 1/4 or 1/8 of the size if both sides stay at least "        \
                 "this long; 0: full size"},                                                       \
        {.name = "max-corrupt",                                                                    \
         .type = ZONAL__OPTION_DOUBLE,                                                             \
         .target = offsetof(settings_type, member.max_corrupt),                                    \
         .initial = "0.01",                                                                        \
         .least = 0,                                                                               \
         .most = 1,                                                                                \
         .rules = ZONAL__OPTION_OVER,                                                              \
         .metavar = "SHARE",                                                                       \
         .help = "the largest share of corrupt images that is accepted"},                          \
        {.name = "val-share",                                                                      \
         .type = ZONAL__OPTION_DOUBLE,                                                             \
         .target = offsetof(settings_type, member.val_share),                                      \
         .initial = "0.1",                                                                         \
         .least = 0,                                                                               \
         .most = 1,                                                                                \
         .metavar = "SHARE",                                                                       \
         .help = "share of each class for validation, if the data set has no splits"},             \
        {.name = "test-share",                                                                     \
         .type = ZONAL__OPTION_DOUBLE,                                                             \
         .target = offsetof(settings_type, member.test_share),                                     \
         .initial = "0.1",                                                                         \
         .least = 0,                                                                               \
         .most = 1,                                                                                \
         .metavar = "SHARE",                                                                       \
         .help = "the same for testing"},                                                          \
        {.name = "count",                                                                          \
         .type = ZONAL__OPTION_INT,                                                                \
         .target = offsetof(settings_type, member.count),                                          \
         .least = 1,                                                                               \
         .most = 1 << 24,                                                                          \
         .help = "textures: how many; 10,000 / 500 / 10,000 by split unless given"},               \
        {.name = "size",                                                                           \
         .type = ZONAL__OPTION_INT,                                                                \
         .target = offsetof(settings_type, member.size),                                           \
         .least = 8,                                                                               \
         .most = 4096,                                                                             \
         .metavar = "PIXELS",                                                                      \
         .help = "textures: their width and height; 256 unless given"},                            \
    {                                                                                              \
        .name = "seed", .type = ZONAL__OPTION_INT, .target = offsetof(settings_type, member.seed), \
        .initial = "0", .least = 0, .most = INFINITY, .help = "seed of the split, and of textures" \
    }

/* The words of --split, in the order of zonal__split. */
extern const char *const zonal__split_words[];

/* Refuses --count and --size for what are no textures: that many images were not what was asked
 * for. */
zonal_status zonal__source_settings_check(const zonal__source_settings *settings, const char *path);

zonal__source_options zonal__source_settings_apply(const zonal__source_settings *settings,
                                                   const char *path, zonal__split split);

#endif
