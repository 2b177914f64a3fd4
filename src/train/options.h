/*
 * The options of a training: one table for settings by name and text, flags, configuration files,
 * help and --dump-config. What is made of them is train/training.h.
 */
#ifndef ZONAL_TRAIN_OPTIONS_H
#define ZONAL_TRAIN_OPTIONS_H

#include "data/augmentation.h"
#include "data/source_options.h"
#include "dist/job.h"
#include "loss/options.h"

/* Numbers that a word stands for, in the order of the words. */
enum { ZONAL__EVAL_CROP_AUTO, ZONAL__EVAL_CROP_CENTER, ZONAL__EVAL_CROP_WHOLE };
enum { ZONAL__AUGMENTATION_AUTO, ZONAL__AUGMENTATION_BYOL, ZONAL__AUGMENTATION_TEXTURE };
enum { ZONAL__EVAL_ON_VAL, ZONAL__EVAL_ON_TEST };
enum { ZONAL__EVAL_AUTO, ZONAL__EVAL_RETRIEVAL, ZONAL__EVAL_KNN, ZONAL__EVAL_NONE };
enum { ZONAL__PRECISION_AUTO, ZONAL__PRECISION_FP32, ZONAL__PRECISION_BF16 };
enum { ZONAL__STEM_AUTO, ZONAL__STEM_AS_IMAGENET, ZONAL__STEM_AS_SMALL };
#define ZONAL__MOST_STEPS 4294967295. /* random numbers are counted by steps of 32 bits */
enum { ZONAL__CHANGED_REFUSE, ZONAL__CHANGED_ALLOW };
enum { ZONAL__ON_COLLAPSE_WARN, ZONAL__ON_COLLAPSE_STOP };

/* One number for all channels, or one for each. */
typedef struct zonal__per_channel {
    double value[3];
    int count; /* 1 or 3; 0: not given */
} zonal__per_channel;

typedef struct zonal__train_settings {
    /* images */
    const char *data;
    int split;
    zonal__source_settings source;
    int64_t max_side;
    zonal__per_channel mean, std;
    /* views; "view" holds only what was given */
    int64_t views, side, local_views, local_side, eval_side;
    int augmentation, crop;
    zonal__augmentation view;
    zonal__range local_area;
    /* network */
    int network, stem;
    double width;
    const char *projector, *init;
    int activation, projector_norm, projector_bias, zero_init_residual;
    /* loss */
    const char *method;
    zonal_objective_options objective; /* as given: the method's own are in the trainer's options */
    /* optimiser */
    int optimiser, decay_all, schedule, nesterov;
    double lr, final_lr, warmup, weight_decay, clip, momentum, beta1, beta2, epsilon, trust;
    /* run */
    int64_t epochs, steps, batch, micro_batch, seed, threads, workers;
    const char *device;
    int precision, data_location, decoder, graph, fold_norms;
    int sync_norm;
    double bucket_size; /* MiB */
    /* watching */
    int64_t log_every, checkpoint_every, keep;
    double checkpoint_minutes;
    int on_collapse, tensorboard;
    double collapse_cosine, collapse_rank;
    int eval, eval_split;
    int64_t eval_every, eval_count, eval_memory, eval_k;
    double eval_temperature;
    int probe;
    double probe_lr;
    /* this run's own: not in its configuration */
    const char *out, *resume, *config, *autotune_cache;
    int changed_data;
    int64_t retries;
    zonal__job_options job;
    int quiet, dump_config; /* the program's */
} zonal__train_settings;

extern const zonal__option zonal__train_table[];
extern const zonal__option_layout zonal__train_layout; /* of its help */

/* The words of --changed-data. */
extern const char *const zonal__changed_data_words[];

/* The options that a resumed run may be given: they do not change what it computes. */
int zonal__train_option_is_free(const char *name);

/* Those that a run's configuration may have other values of than its checkpoints: these, and paths,
 * since images may be moved; whether they are the same is asked of the images. */
int zonal__train_option_may_change(const char *name);

/* The widths in "2048-2048-256", the one reading of --projector: up to "most", each from 1 to
 * 65536. "shown" is the option's name for the sentence. */
zonal_status zonal__projector_parse(const char *text, const char *shown, int most, int *width,
                                    int *count);

#endif
