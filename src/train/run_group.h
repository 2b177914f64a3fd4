/*
 * Which runs are samples of one experiment: those that differ in nothing but the seed. A mean and
 * a standard deviation over runs mean something for these alone, so code that averages runs asks
 * here.
 *
 *     zonal__run_settings settings;
 *     ZONAL_TRY(zonal__run_settings_read("RUN/config.toml", &settings));
 *     runs[i] = (zonal__run_sample){.settings = &settings, .step = 1000};
 *     ...
 *     zonal__run_group(count, runs, places);
 *
 * The configuration decides, never the name of the method. A key counts unless it only says how
 * fast, where or how often something is reported: zonal__run_setting_counts lists those. The path
 * of the data counts, because other data is another experiment, unless both runs have recorded
 * their images (RUN/data.txt) and the records are the same: then the data has merely moved. A key
 * that one of two runs does not have counts as a difference. So does the number of steps that were
 * done: a run that is not finished is no sample of the finished ones; and so does a length that a
 * run was given on the way (--resume --steps), since its learning rates were those of another one.
 */
#ifndef ZONAL_TRAIN_RUN_GROUP_H
#define ZONAL_TRAIN_RUN_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include "core/config.h"

enum { ZONAL__RUN_KEY = 128 }; /* a key with its section; a longer one is passed over */

/* A key of config.toml and its value as text: quotes are taken off. */
typedef struct zonal__run_setting {
    char key[ZONAL__RUN_KEY];
    const char *value, *source; /* source: "default", "--lr", "recipes/x.toml:12" ...; or "" */
} zonal__run_setting;

typedef struct zonal__run_settings {
    zonal__config *config; /* whose text the settings point into */
    zonal__run_setting *at;
    int64_t count, room;
} zonal__run_settings;

/* Reads the configuration of a run, also of one whose keys this version does not know. ZONAL_IO
 * where it cannot be read, ZONAL_FORMAT where it is no TOML that core/config.h reads. Nothing is
 * left to release on failure. */
zonal_status zonal__run_settings_read(const char *path, zonal__run_settings *settings);
void zonal__run_settings_fini(zonal__run_settings *settings); /* accepts zeroed memory */

/* The text of RUN/data.txt, what the run has recorded of its images; NULL where there is none or it
 * cannot be read: then their path decides whether they are others. Release with zonal__free. */
char *zonal__run_images_read(const char *folder);

/* The value of a key; NULL where there is none. */
const char *zonal__run_settings_of(const zonal__run_settings *settings, const char *key);

/* Whether runs in which this key differs are different experiments. */
int zonal__run_setting_counts(const char *key);

typedef struct zonal__run_sample {
    const zonal__run_settings *settings;
    int64_t step;       /* how many were done; the same number in all runs where it plays no part */
    const char *images; /* the text of RUN/data.txt; NULL: there is none */
} zonal__run_sample;

typedef struct zonal__run_place {
    int64_t group; /* the first run that differs from this one in nothing but the seed; or itself */
    int repeats;   /* an earlier run of the group has the same seed: no sample of its own */
} zonal__run_place;

void zonal__run_group(int64_t count, const zonal__run_sample *runs, zonal__run_place *places);

/* In what two runs differ apart from the seed, for a sentence: "lr (0.001 and 0.0005), batch (64
 * and 128)"; "" where they are of one group. */
void zonal__run_difference(const zonal__run_sample *a, const zonal__run_sample *b, char *out,
                           size_t size);

#endif
