/*
 * A training run as its options describe it: the images, the augmentations and what the
 * trainer is made with. For whoever trains (train/training_run.h), and for whoever rebuilds the
 * network and the data of a run from RUN/config.toml.
 *
 *     zonal__training training;
 *     ZONAL_TRY(zonal__training_read("RUN/config.toml", &training));     or zonal__training_init
 *     ZONAL_TRY(zonal__training_set(&training, "lr", "1e-3"));
 *     ZONAL_TRY(zonal__training_network(&training, &spec));              the network alone
 *     ZONAL_TRY(zonal__training_open(&training));                        opens the images too
 *     ... training.trainer, training.source ...
 *     zonal__training_close(&training);
 *
 * What is "auto" is settled by open: by the images, the device and the method. The settings then
 * hold what was decided, and so does a configuration that is written afterwards
 * (zonal__config_dump of training.options): one read from a run folder has nothing left to settle.
 */
#ifndef ZONAL_TRAIN_TRAINING_H
#define ZONAL_TRAIN_TRAINING_H

#include "core/config.h"
#include "dist/job.h"
#include "train/data_record.h"
#include "train/online.h"
#include "train/options.h"
#include "train/trainer.h"

enum { ZONAL__TRAINING_VIEWS = 32, ZONAL__TRAINING_PATH = 4096 };

/* A text that a setting was given as. */
typedef struct zonal__training_text zonal__training_text;

/* Must not be moved: its parts point to each other. */
typedef struct zonal__training {
    zonal__train_settings settings;
    zonal__options options;      /* where each setting came from */
    zonal__config *config;       /* NULL: no file was read */
    zonal__training_text *texts; /* those of zonal__training_set, the last first */

    /* The ranks that train together, each with a training of the same settings; NULL: one. Set
     * before anything is opened, and closed after the training. */
    zonal__job *job;
    const zonal__device *device; /* set by zonal__training_open */
    zonal__source *source;
    zonal__augmentation
        augmentations[ZONAL__TRAINING_VIEWS]; /* of the global views, then of the local ones */
    zonal__trainer_options trainer;
    int64_t steps_per_epoch;
    zonal_objective_info weight; /* of uniformity: gain, threshold, selectivity */

    zonal__source *queries, *memory; /* of the evaluation on the way; NULL: none needed */
    zonal__augmentation eval_augmentations[2];
    zonal__online_options online;
    char data[ZONAL__TRAINING_PATH], class_list[ZONAL__TRAINING_PATH]; /* absolute */
    char init[ZONAL__TRAINING_PATH];                                   /* likewise */
    char lambda_note[64], gain_note[32]; /* for the configuration that is written */
} zonal__training;

/* A training with the defaults; from a configuration file; and one that goes on with the run in a
 * folder. Release with zonal__training_close, also after failure. */
zonal_status zonal__training_init(zonal__training *training);
zonal_status zonal__training_read(const char *path, zonal__training *training);
zonal_status zonal__training_resume(const char *run, zonal__training *training);

/* Sets an option of the table (train/options.h) as the command line would, before anything is
 * opened; flags are "yes" or "no". Overrides a file, and what was set before. The texts are copied.
 * ZONAL_ARGUMENT, with the value as before, for a name that is not in the table, one that is the
 * program's own, and a value that cannot be taken. */
zonal_status zonal__training_set(zonal__training *training, const char *name, const char *text);

/* The network. Before zonal__training_open only of a configuration in which nothing about it is
 * left to settle: one from a run folder. */
zonal_status zonal__training_network(const zonal__training *training, zonal__network_spec *spec);

/* The loss of a configuration and the weight of its uniformity, without opening anything: fills
 * trainer.objective, weight and the projector's widths in trainer.network. */
zonal_status zonal__training_objective(zonal__training *training);

/* The paths become absolute, so that a run can be resumed from another folder
 * and its options be compared with those of its configuration. Once more changes nothing. */
void zonal__training_settle_paths(zonal__training *training);

/* Opens the images, settles what is left open and fills "trainer". A training that was parsed
 * from a command line is zeroed but for settings, options and config. ZONAL_ARGUMENT for what
 * cannot be combined. */
zonal_status zonal__training_open(zonal__training *training);

/* Of that only what concerns images and views: the source, the augmentations and trainer.loader,
 * for who looks at the images without training on them. */
zonal_status zonal__training_open_views(zonal__training *training);

/* How many steps the whole training has, once the source is open. */
int64_t zonal__training_steps(const zonal__training *training);

/* Whether the device computes faster in bf16 than in fp32. */
int zonal__training_gains_by_bf16(const zonal__training *training);

/* Opens what the evaluation on the way needs and fills "online". */
zonal_status zonal__training_open_online(zonal__training *training);

/* Another part of the same images, thinned out evenly to at most "most" (0: all of them). */
zonal_status zonal__training_source(const zonal__training *training, zonal__split split,
                                    int64_t most, zonal__source **source);
zonal_status zonal__training_thin(zonal__source *source,
                                  int64_t most); /* the same of an open one */

/* What is taken off the elements of an image and what they are then divided by, once the channels
 * are settled. */
void zonal__training_normalisation(const zonal__training *training, float mean[3], float std[3]);

/* The images as they are now, for a new run's folder; release with zonal__data_record_destroy. */
zonal_status zonal__training_record(const zonal__training *training, zonal__data_record **record);

/* Whether there is something where the images of a run's configuration are said to be; ZONAL_IO,
 * with the remedy, if not. */
zonal_status zonal__training_check_place(const zonal__training *training, const char *run);

/* Compares the images of a configuration that was read, before zonal__training_open, with those
 * that the run in this folder has recorded. ZONAL_IO for images that are no longer where they were.
 */
zonal_status zonal__training_check_data(const zonal__training *training, const char *run,
                                        zonal__data_changes *changes);
/* The sentence for changes that nobody has allowed; ZONAL_IO. */
zonal_status zonal__training_refuse_changed(const char *run, const zonal__data_changes *changes);

/* How an image is looked at when it is evaluated, by the settled augmentation and crop: its centre
 * or the whole of it; a texture always whole. */
void zonal__training_eval_augmentation(const zonal__training *training,
                                       zonal__augmentation *augmentation);
/* Its width and height then. */
int zonal__training_eval_side(const zonal__training *training);

/* Whether this rank writes the run folder, evaluates and tells: rank 0. */
int zonal__training_leads(const zonal__training *training);

/* Collective: refuses ranks whose settings or images differ, by the first that does. */
zonal_status zonal__training_agree(const zonal__training *training);

void zonal__training_close(zonal__training *training);

#endif
