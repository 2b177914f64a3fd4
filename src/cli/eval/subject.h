/*
 * What zonal eval and zonal embed work on: a network, by the name of its run folder or of a file
 * of weights, and images.
 *
 * A run brings its configuration (RUN/config.toml): where its images are, how they are divided,
 * the size and the augmentation of its views. A file of weights has none, so --data must be given;
 * how its network is to see them it says in its metadata (train/preprocessing.h) if zonal export
 * made it, and the rest is settled as zonal train settles it. Options given on the command line
 * override both, and what they override in a file is said.
 */
#ifndef ZONAL_CLI_EVAL_SUBJECT_H
#define ZONAL_CLI_EVAL_SUBJECT_H

#include <stddef.h>

#include "eval/features.h"
#include "train/preprocessing.h"
#include "train/training.h"

/* The options of zonal train that may be overridden. */
enum {
    ZONAL__SUBJECT_OVERRIDES = 12,
    ZONAL__SUBJECT_VIEWS = 32,
    ZONAL__SUBJECT_CHANGES = ZONAL__TRAINING_PATH + 512
};
extern const char *const zonal__subject_overrides[ZONAL__SUBJECT_OVERRIDES];

typedef struct zonal__subject_settings {
    const char *checkpoint; /* "last", "best" or a file */
    const char *overrides[ZONAL__SUBJECT_OVERRIDES];
    const char *device;
    int precision;    /* of the words below */
    int changed_data; /* of zonal__changed_data_words */
    int64_t threads, batch, limit;
} zonal__subject_settings;

extern const char *const zonal__subject_precisions[]; /* fp32, bf16 */

#define ZONAL__SUBJECT_OVERRIDE(settings_type, member, number, name_, meta, text)                  \
    {                                                                                              \
        .name = name_, .type = ZONAL__OPTION_STRING,                                               \
        .target = offsetof(settings_type, member.overrides[number]), .metavar = meta, .help = text \
    }

#define ZONAL__SUBJECT_OPTIONS(settings_type, member)                                              \
    ZONAL__CHECKPOINT_OPTION(settings_type, member.checkpoint),                                    \
        ZONAL__SUBJECT_OVERRIDE(                                                                   \
            settings_type, member, 0, "data", "PATH",                                              \
            "the images: a folder, a file or textures:FAMILY; the run's own unless given"),        \
        ZONAL__SUBJECT_OVERRIDE(                                                                   \
            settings_type, member, 1, "side", "PIXELS",                                            \
            "width and height of the network's input; the run's unless given"),                    \
        ZONAL__SUBJECT_OVERRIDE(                                                                   \
            settings_type, member, 2, "mean", "X[,Y,Z]",                                           \
            "subtracted from pixels in [0, 1]; the run's, or as in zonal train"),                  \
        ZONAL__SUBJECT_OVERRIDE(settings_type, member, 3, "std", "X[,Y,Z]",                        \
                                "divides them afterwards; the run's, or as in zonal train"),       \
        ZONAL__SUBJECT_OVERRIDE(settings_type, member, 4, "augmentation", "WORD",                  \
                                "of random views: byol or texture; the run's unless given"),       \
        ZONAL__SUBJECT_OVERRIDE(settings_type, member, 5, "class-list", "FILE",                    \
                                "only these classes, one name per line"),                          \
        ZONAL__SUBJECT_OVERRIDE(settings_type, member, 6, "val-share", "SHARE",                    \
                                "share for validation, if the data set has no splits"),            \
        ZONAL__SUBJECT_OVERRIDE(settings_type, member, 7, "test-share", "SHARE",                   \
                                "the same for testing"),                                           \
        ZONAL__SUBJECT_OVERRIDE(settings_type, member, 8, "data-seed", "N",                        \
                                "seed of that split, and of textures"),                            \
        ZONAL__SUBJECT_OVERRIDE(settings_type, member, 9, "texture-count", "N",                    \
                                "textures: how many"),                                             \
        ZONAL__SUBJECT_OVERRIDE(settings_type, member, 10, "texture-size", "PIXELS",               \
                                "textures: their width and height"),                               \
        {.name = "changed-data",                                                                   \
         .type = ZONAL__OPTION_WORD,                                                               \
         .target = offsetof(settings_type, member.changed_data),                                   \
         .words = zonal__changed_data_words,                                                       \
         .initial = "refuse",                                                                      \
         .help =                                                                                   \
             "what to do if the run's images were added to, removed or replaced since it began"},  \
        ZONAL__SUBJECT_OVERRIDE(                                                                   \
            settings_type, member, 11, "crop", "WORD",                                             \
            "center (7/8 of the shorter side) or whole; the run's unless given"),                  \
        {.name = "limit",                                                                          \
         .type = ZONAL__OPTION_INT,                                                                \
         .target = offsetof(settings_type, member.limit),                                          \
         .initial = "0",                                                                           \
         .least = 0,                                                                               \
         .most = 1e12,                                                                             \
         .help = "use this many images of each split, evenly spread; 0: all"},                     \
        {.name = "batch",                                                                          \
         .type = ZONAL__OPTION_INT,                                                                \
         .target = offsetof(settings_type, member.batch),                                          \
         .initial = "0",                                                                           \
         .least = 0,                                                                               \
         .most = 1e6,                                                                              \
         .help = "images that go through the network at once; 0: 128"},                            \
        ZONAL__DEVICE_OPTION(settings_type, member.device, "auto",                                 \
                             "cpu, cuda, cuda:1 ...; auto: CUDA if there is a device"),            \
        {.name = "precision",                                                                      \
         .type = ZONAL__OPTION_WORD,                                                               \
         .target = offsetof(settings_type, member.precision),                                      \
         .words = zonal__subject_precisions,                                                       \
         .initial = "fp32",                                                                        \
         .help = "of the network"},                                                                \
    {                                                                                              \
        .name = "threads", .type = ZONAL__OPTION_INT,                                              \
        .target = offsetof(settings_type, member.threads), .initial = "0", .least = 0,             \
        .most = 4096, .help = "threads to use; 0: one for each processor"                          \
    }

#define ZONAL__CHECKPOINT_OPTION(settings_type, member)                                            \
    {                                                                                              \
        .name = "checkpoint", .type = ZONAL__OPTION_STRING,                                        \
        .target = offsetof(settings_type, member), .initial = "last", .metavar = "last|best|FILE", \
        .help = "which checkpoint of a run"                                                        \
    }

typedef struct zonal__subject {
    const char *name; /* as it was given */
    int is_run;
    char weights[ZONAL__TRAINING_PATH]; /* the file */
    zonal__training training;
    zonal__model *model;
    const zonal__device *device;
    int64_t batch, limit;
    int threads, precision; /* of zonal__subject_precisions */
    int64_t step;           /* of training, that the weights are of; -1: they do not say */
    int own_data;           /* a run, on the images it was trained on */
    /* "--class-list two.txt, --data-seed 3": the overrides that choose or change the images and
     * that nothing else tells of, where they differ from the subject's own settings; "": none. */
    char changes[ZONAL__SUBJECT_CHANGES];
    zonal__preprocessing preprocessing; /* what a file says of itself; empty for a run */
    zonal__augmentation still;          /* for one view of each image, the same every time */
    zonal__augmentation augmentations[ZONAL__SUBJECT_VIEWS]; /* of random views */
} zonal__subject;

/* The file of weights that a name stands for: the name itself, or a run's checkpoint. */
zonal_status zonal__subject_weights(const char *name, const char *checkpoint, int *is_run,
                                    char out[ZONAL__TRAINING_PATH]);

/* Refuses a file to write that is one of those to read (cli/common/inputs.h): the network, or what
 * the settings name. */
zonal_status zonal__subject_keep_inputs(const char *option, const char *out, const char *name,
                                        const zonal__subject_settings *settings);

/* Reads the weights onto the device and settles everything. On failure nothing is left to close. */
zonal_status zonal__subject_open(const char *name, const zonal__subject_settings *settings,
                                 zonal__subject *subject);
void zonal__subject_close(zonal__subject *subject);

/* A part of the images. */
zonal_status zonal__subject_source(const zonal__subject *subject, zonal__split split,
                                   zonal__source **source);

/* What zonal__features_stream takes: one still view of each image, or "views" (at least 1, at
 * most ZONAL__SUBJECT_VIEWS) random ones as in training, drawn by the seed. */
zonal__features_options zonal__subject_still(const zonal__subject *subject, zonal__source *source);
zonal__features_options zonal__subject_random(zonal__subject *subject, zonal__source *source,
                                              int views, uint64_t seed);
/* For a classifier that is trained on augmented images: one view of each, cropped and mirrored at
 * random (textures: as in training), shuffled, for so many epochs. The crops are those of training,
 * or with "usual" torchvision's: 0.08 to 1 of the image, 3:4 to 4:3, mirrored half of the time. */
zonal__features_options zonal__subject_augmented(zonal__subject *subject, zonal__source *source,
                                                 int usual, int64_t epochs, uint64_t seed);

#endif
