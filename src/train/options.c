#include "train/options.h"

#include <stdlib.h>
#include <string.h>

#include "nn/resnet.h"
#include "zonal/uniformity.h"

static const char *const augmentations[] = {"auto", "byol", "texture", NULL};
static const char *const crops[] = {"auto", "center", "whole", NULL};
static const char *const networks[] = {"resnet18", "resnet34", "resnet50", NULL};
static const char *const stems[] = {"auto", "imagenet", "small", NULL};
static const char *const activations[] = {"gelu", "relu", NULL};
static const char *const optimisers[] = {"adamw", "sgd", "lars", NULL};
static const char *const schedules[] = {"constant", "linear", "cosine", NULL};
static const char *const precisions[] = {"auto", "fp32", "bf16", NULL};
static const char *const data_locations[] = {"auto", "device", "host", NULL};
static const char *const decoders[] = {"host", "device", NULL};
static const char *const protocols[] = {"auto", "retrieval", "knn", "none", NULL};
static const char *const eval_splits[] = {"val", "test", NULL};
static const char *const on_collapse[] = {"warn", "stop", NULL};

const char *const zonal__changed_data_words[] = {"refuse", "allow", NULL};

/* ---- values of several numbers --------------------------------------------------------------- */

static zonal_status set_range(void *values, const zonal__option *option, const char *shown,
                              const char *text) {
    zonal__range *range = (zonal__range *)((char *)values + option->target);
    double number[2];
    int count;
    ZONAL_TRY(zonal__list_double(text, shown, 2, number, &count));
    if (count != 2 || !(number[0] <= number[1]))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be LOW,HIGH with LOW at most HIGH, got %s",
                          shown, text);
    *range = (zonal__range){number[0], number[1]};
    return ZONAL_OK;
}

static zonal_status set_per_channel(void *values, const zonal__option *option, const char *shown,
                                    const char *text) {
    zonal__per_channel numbers = {0};
    ZONAL_TRY(zonal__list_double(text, shown, 3, numbers.value, &numbers.count));
    if (numbers.count == 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s takes one number, or one for each of 3 channels",
                          shown);
    for (int c = 0; c < numbers.count; c++)
        if (!(fabs(numbers.value[c]) <= 1e6) ||
            (strcmp(option->name, "std") == 0 && numbers.value[c] < 1e-6))
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "%s is for pixels from 0 to 1: a mean must be at most 1e6, a "
                              "std from 1e-6 to 1e6, got %s",
                              shown, text);
    *(zonal__per_channel *)((char *)values + option->target) = numbers;
    return ZONAL_OK;
}

zonal_status zonal__projector_parse(const char *text, const char *shown, int most, int *width,
                                    int *count) {
    const char *at = text;
    int n = 0, good = 1, more = 1;
    while (good && more) {
        size_t digits = strspn(at, "0123456789");
        long value = digits > 0 && digits <= 6 ? strtol(at, NULL, 10) : 0;
        if (n == most)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "%s has at most %d layers, got %s", shown, most,
                              text);
        width[n++] = (int)value;
        at += digits;
        more = *at++ == '-';
        good = value >= 1 && value <= 65536 && (more || at[-1] == '\0');
    }
    if (!good)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "%s is the width of each layer, from 1 to 65536, with dashes between "
                          "them, as in 2048-2048-256; got %s",
                          shown, text);
    *count = n;
    return ZONAL_OK;
}

static zonal_status set_projector(void *values, const zonal__option *option, const char *shown,
                                  const char *text) {
    int width[ZONAL__MOST_PROJECTOR_LAYERS], count;
    ZONAL_TRY(zonal__projector_parse(text, shown, ZONAL__MOST_PROJECTOR_LAYERS, width, &count));
    *(const char **)((char *)values + option->target) = text;
    return ZONAL_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define AT(field) .target = offsetof(zonal__train_settings, field)
#define FLAG(name_, field, first, text)                                                            \
    { .name = name_, .type = ZONAL__OPTION_FLAG, AT(field), .initial = first, .help = text }
#define WHOLE(name_, field, first, low, high, text)                                                \
    {                                                                                              \
        .name = name_, .type = ZONAL__OPTION_INT, AT(field), .initial = first, .least = low,       \
        .most = high, .help = text                                                                 \
    }
#define NUMBER(name_, field, first, low, high, limits, text)                                       \
    {                                                                                              \
        .name = name_, .type = ZONAL__OPTION_DOUBLE, AT(field), .initial = first, .least = low,    \
        .most = high, .rules = limits, .help = text                                                \
    }
#define SHARE(name_, field, first, text) NUMBER(name_, field, first, 0, 1, 0, text)
#define WORD(name_, field, list, first, text)                                                      \
    {                                                                                              \
        .name = name_, .type = ZONAL__OPTION_WORD, AT(field), .words = list, .initial = first,     \
        .help = text                                                                               \
    }
#define TEXT(name_, field, first, meta, limits, text)                                              \
    {                                                                                              \
        .name = name_, .type = ZONAL__OPTION_STRING, AT(field), .initial = first, .metavar = meta, \
        .rules = limits, .help = text                                                              \
    }
#define RANGE(name_, field, text)                                                                  \
    {                                                                                              \
        .name = name_, .type = ZONAL__OPTION_CUSTOM, AT(field), .metavar = "LOW,HIGH",             \
        .set = set_range, .help = text                                                             \
    }
#define PER_CHANNEL(name_, field, text)                                                            \
    {                                                                                              \
        .name = name_, .type = ZONAL__OPTION_CUSTOM, AT(field), .metavar = "X[,Y,Z]",              \
        .set = set_per_channel, .help = text                                                       \
    }
/* A number of a header as the user would type it. */
#define TEXT_OF(macro)    TEXT_OF_(macro)
#define TEXT_OF_(number_) #number_
enum { OVER = ZONAL__OPTION_OVER, UNDER = ZONAL__OPTION_UNDER, LINE = ZONAL__OPTION_LINE };

/* Options of an objective that a run decides by itself. */
static const char *const not_for_training[] = {"raw", "unit", "dtype", "implementation", NULL};

const zonal__option zonal__train_table[] = {
    /* images */
    TEXT("data", data, NULL, "PATH", 0,
         "a folder or file of images, or textures:FAMILY; the same as DIR"),
    WORD("split", split, zonal__split_words, "train", "the split to train on"),
    TEXT("class-list", source.class_list, NULL, "FILE", 0,
         "only these classes, one name per line, in this order"),
    WHOLE("channels", source.channels, "0", 0, 3,
          "1: grey, 3: RGB, 0: as in the images; 3 for a folder of files, which may differ"),
    WHOLE("min-side", source.min_side, "0", 0, 32768,
          "JPEG: decode at 1/2, 1/4 or 1/8 of the size if both sides stay at least this long; 0: "
          "full size"),
    WHOLE(
        "max-side", max_side, "0", 0, 32768,
        "images with a longer side are shrunk to it when they are read; 0: 512, or twice the side "
        "of the views if that is more"),
    NUMBER("max-corrupt", source.max_corrupt, "0.01", 0, 1, OVER,
           "the largest share of corrupt images that is accepted"),
    SHARE("val-share", source.val_share, "0.1",
          "share of each class for validation, if the data set has no splits"),
    SHARE("test-share", source.test_share, "0.1", "the same for testing"),
    WHOLE("data-seed", source.seed, "0", 0, INFINITY, "seed of that split, and of textures"),
    WHOLE("texture-count", source.count, NULL, 1, 1 << 24,
          "textures: how many; 10,000 / 500 / 10,000 by split unless given"),
    WHOLE("texture-size", source.size, NULL, 8, 4096,
          "textures: their width and height; 256 unless given"),
    PER_CHANNEL("mean", mean,
                "subtracted from pixels in [0, 1]; ImageNet's for RGB, 0.5 for grey unless given"),
    PER_CHANNEL("std", std,
                "divides them afterwards; ImageNet's for RGB, 0.25 for grey unless given"),

    /* views */
    WHOLE("views", views, "2", 1, 16, "global views of each image"),
    WHOLE("side", side, "0", 0, 1024,
          "width and height of the views; 0: 224, or the shorter side of the images if that is "
          "less"),
    WHOLE("local-views", local_views, "0", 0, 16, "local views of each image"),
    WHOLE("local-side", local_side, "0", 0, 1024,
          "their width and height; 0: three sevenths of the side, as 96 of 224"),
    WORD("augmentation", augmentation, augmentations, "auto",
         "byol: crops and colours, for photographs; texture: rotation, scale, contrast, erasing; "
         "auto: texture for textures"),
    WORD("crop", crop, crops, "auto",
         "the part of an image that evaluations use: its centre, 7/8 of the shorter side, or the "
         "whole; auto: the whole of textures and of images no larger than they are evaluated at"),
    WHOLE("eval-side", eval_side, "0", 0, 1024,
          "width and height at which images are evaluated, but for random views; 0: the side of "
          "the views"),
    RANGE("view-area", view.area, "byol: share of the image; 0.08,1 unless given"),
    RANGE("local-area", local_area, "byol: the same for local views; 0.05,0.4 unless given"),
    RANGE("view-aspect", view.aspect, "byol: width over height; 0.75,1.333 unless given"),
    SHARE("view-flip", view.flip, NULL, "byol: probability of a horizontal flip; 0.5 unless given"),
    FLAG("view-flip-alternate", view.flip_alternates, NULL,
         "byol: draw the flip of an image in the first epoch only, and alternate it by epoch"),
    SHARE("view-jitter", view.jitter, NULL, "byol: probability of colour jitter; 0.8"),
    NUMBER("view-brightness", view.brightness, NULL, 0, INFINITY, 0, "byol: strength; 0.4"),
    NUMBER("view-contrast", view.contrast, NULL, 0, INFINITY, 0, "byol: strength; 0.4"),
    NUMBER("view-saturation", view.saturation, NULL, 0, INFINITY, 0, "byol: strength; 0.2"),
    NUMBER("view-hue", view.hue, NULL, 0, 0.5, 0, "byol: strength in turns; 0.1"),
    SHARE("view-grey", view.grey, NULL, "byol: probability; 0.2"),
    SHARE("view-blur", view.blur, NULL, "byol: probability; alternately 1 and 0.1, local 0.5"),
    SHARE("view-solarise", view.solarise, NULL, "byol: probability; alternately 0 and 0.2"),
    NUMBER("view-rotation", view.rotation, NULL, 0, 3.1415926535897932, 0,
           "texture: at most this many radians either way; any angle unless given"),
    SHARE("view-shift", view.shift, NULL, "texture: share of the side; 0.2"),
    RANGE("view-scale", view.scale, "texture: magnification; 0.8,1.25"),
    NUMBER("view-shear", view.shear, NULL, 0, INFINITY, 0, "texture: tangent; 0.2"),
    RANGE("view-brightness-added", view.added, "texture: brightness added; -0.2,0.2"),
    RANGE("view-contrast-factor", view.times, "texture: contrast factor; 0.7,1.3"),
    NUMBER("view-noise", view.noise, NULL, 0, INFINITY, 0,
           "texture: standard deviation of the noise; 0.05"),
    SHARE("view-erase", view.erase, NULL, "texture: probability of a black rectangle; 1"),
    RANGE("view-erase-side", view.erase_side,
          "texture: its sides as shares of the view's; 0.1,0.4"),

    /* network */
    WORD("network", network, networks, "resnet18", "the encoder"),
    WORD("stem", stem, stems, "auto", "auto: small for views of up to 64 pixels"),
    NUMBER("width", width, "1", 1. / 64, 8, 0, "factor of the encoder's channels"),
    {.name = "projector",
     .type = ZONAL__OPTION_CUSTOM,
     AT(projector),
     .initial = "2048-2048-256",
     .metavar = "A-B-...",
     .set = set_projector,
     .help = "outputs of its layers; the last is the dimension d"},
    WORD("activation", activation, activations, "gelu", "of the projector"),
    FLAG("projector-norm", projector_norm, "yes", "batch norms between the projector's layers"),
    FLAG("projector-bias", projector_bias, "yes", "a bias in its last layer"),
    FLAG("zero-init-residual", zero_init_residual, NULL,
         "initialise the last scale of each block to 0, so that it starts as its shortcut"),

    TEXT("init", init, NULL, "FILE", 0,
         "start from these weights: a safetensors file of torchvision or of a run; the projector "
         "may be missing"),

    /* loss */
    TEXT("method", method, "mmd-band", "NAME", 0,
         "the uniformity loss: mmd-band, mmd-heat, ksd-heat, kl-heat, susreg and more: see zonal "
         "loss --help"),
    {.name = "the objective",
     .type = ZONAL__OPTION_TABLE,
     AT(objective),
     .table = zonal__objective_option,
     .without = not_for_training},

    /* optimiser */
    WORD("optimiser", optimiser, optimisers, "adamw", "the optimiser"),
    NUMBER("lr", lr, "0.001", 0, INFINITY, OVER | UNDER, "learning rate"),
    WORD("schedule", schedule, schedules, "cosine", "of the learning rate, after the warm-up"),
    NUMBER("final-lr", final_lr, "0", 0, INFINITY, UNDER, "the learning rate at the end"),
    NUMBER("warmup", warmup, NULL, 0, INFINITY, UNDER,
           "epochs of warm-up; 1, but at most a tenth of the run, unless given"),
    NUMBER("weight-decay", weight_decay, "0.0005", 0, INFINITY, UNDER, "weight decay"),
    FLAG("decay-all", decay_all, NULL, "decay batch norms and biases as well"),
    NUMBER("clip", clip, "0", 0, INFINITY, UNDER, "clip the gradient to this norm; 0: no clipping"),
    NUMBER("momentum", momentum, "0.9", 0, 1, UNDER, "sgd, lars: momentum"),
    FLAG("nesterov", nesterov, NULL, "sgd: Nesterov's momentum"),
    NUMBER("trust", trust, "0.001", 0, INFINITY, OVER | UNDER, "lars: trust ratio"),
    NUMBER("beta1", beta1, "0.9", 0, 1, UNDER, "adamw: decay of the mean gradient"),
    NUMBER("beta2", beta2, "0.999", 0, 1, UNDER, "adamw: decay of the mean square"),
    NUMBER("epsilon", epsilon, "1e-8", 0, INFINITY, OVER | UNDER,
           "adamw: added to the square root"),

    /* run */
    WHOLE("epochs", epochs, "100", 1, 1e6, "passes over the images"),
    WHOLE("steps", steps, "0", 0, ZONAL__MOST_STEPS, "length in steps instead; 0: by --epochs"),
    WHOLE("batch", batch, "256", 1, 1e6, "images in a step; unless given, all if there are fewer"),
    WHOLE("micro-batch", micro_batch, "0", 0, 1e6,
          "images that go through the network at once, to save memory; the loss still sees the "
          "whole batch; 0: all"),
    WORD("precision", precision, precisions, "auto",
         "of the network; auto: bf16 on CUDA and on processors with AMX, else fp32"),
    TEXT("device", device, "auto", "NAME", 0,
         "cpu, cuda, cuda:1 ...; auto: CUDA if there is a device"),
    WORD("data-location", data_location, data_locations, "auto",
         "CUDA: where the images lie: on the device, or on the host, copied step by step"),
    WORD("decoder", decoder, decoders, "host",
         "CUDA: what decodes the JPEG files of a folder: libjpeg, or the GPU's decoders, which are "
         "faster and do not notice damage within a file"),
    FLAG("graph", graph, "yes", "CUDA: replay a step as one graph"),
    FLAG("fold-norms", fold_norms, "yes",
         "CUDA, bf16: fold batch norms into the 1 x 1 convolutions before them: faster, with less "
         "memory"),
    FLAG("sync-norm", sync_norm, "yes",
         "several ranks: batch norms use the images of all ranks, as on one rank"),
    NUMBER("bucket-size", bucket_size, "25", 0.001, 4096, 0,
           "several ranks: MiB of gradients that are added up at a time"),
    WHOLE("seed", seed, "0", 0, INFINITY, "seed of weights, order, views and sliced losses"),
    WHOLE("threads", threads, "0", 0, 4096, "threads to use; 0: one for each processor"),
    WHOLE("workers", workers, "0", 0, 256, "threads that read images; 0: one for each processor"),

    /* the command line's own */
    TEXT("config", config, NULL, "FILE", LINE, "a recipe: options as TOML; flags override it"),
    {.name = "set",
     .type = ZONAL__OPTION_ASSIGN,
     .metavar = "KEY=VALUE",
     .help = "the same as --KEY VALUE; may be repeated"},
    {.name = "dump-config",
     .type = ZONAL__OPTION_FLAG,
     AT(dump_config),
     .rules = LINE,
     .help = "print the effective configuration and exit"},
    TEXT("out", out, NULL, "RUN", LINE, "the run folder to make; runs/NAME-N unless given"),
    TEXT("resume", resume, NULL, "RUN", LINE, "continue from this run's last checkpoint"),
    {.name = "changed-data",
     .type = ZONAL__OPTION_WORD,
     AT(changed_data),
     .words = zonal__changed_data_words,
     .initial = "refuse",
     .rules = LINE,
     .help = "--resume: what to do if images were added, removed or replaced since"},
    TEXT("autotune-cache", autotune_cache, NULL, "FILE", LINE,
         "CUDA: another run's autotuning cache, for the same bits as that run's; none: measure "
         "anew"),
    {.name = "retries",
     .type = ZONAL__OPTION_INT,
     AT(retries),
     .initial = "0",
     .least = 0,
     .most = 1e6,
     .rules = LINE,
     .help =
         "how often a launcher may start this command again; with --out RUN it then continues from "
         "that run's last checkpoint"},
    {.name = "the ranks", .type = ZONAL__OPTION_TABLE, AT(job), .table = zonal__job_option},
    {.name = "quiet",
     .type = ZONAL__OPTION_FLAG,
     AT(quiet),
     .rules = LINE,
     .help = "print only warnings and errors"},

    /* watching */
    WHOLE("log-every", log_every, "0", 0, 1e9, "steps between lines of the log; 0: 10, on CUDA 50"),
    WHOLE("checkpoint-every", checkpoint_every, "0", 0, 1e9,
          "steps between checkpoints; 0: by the clock"),
    NUMBER("checkpoint-minutes", checkpoint_minutes, "5", 0, 1e6, OVER,
           "minutes between checkpoints, besides those of a new best; unless --checkpoint-every"),
    WHOLE("keep", keep, "2", 1, 1000, "checkpoints to keep besides the best"),
    FLAG("tensorboard", tensorboard, "yes", "also write the curves for TensorBoard, in RUN/events"),
    WORD("on-collapse", on_collapse, on_collapse, "warn",
         "what to do if the embeddings have collapsed"),
    SHARE("collapse-cosine", collapse_cosine, TEXT_OF(ZONAL_COLLAPSE_COSINE),
          "a mean cosine above this is collapse"),
    SHARE("collapse-rank", collapse_rank, TEXT_OF(ZONAL_COLLAPSE_RANK),
          "an effective rank below this share of that of uniform points is collapse"),
    WORD("eval", eval, protocols, "auto",
         "evaluation during training; auto: retrieval for textures, k-NN if there are classes"),
    WORD("eval-split", eval_split, eval_splits, "val",
         "the images to evaluate on during training; test: for runs that train on all others"),
    WHOLE("eval-every", eval_every, "0", 0, 1e9,
          "steps between evaluations; 0: one epoch, but at least 100, on CUDA 1000"),
    WHOLE("eval-count", eval_count, "1000", 2, 1e9, "images of that split to use"),
    WHOLE("eval-memory", eval_memory, "5000", 1, 1e9, "knn: labelled images to compare with"),
    WHOLE("eval-k", eval_k, "20", 1, 256, "knn: neighbours that vote"),
    NUMBER("eval-temperature", eval_temperature, "0.07", 0, INFINITY, OVER | UNDER,
           "knn: temperature of the votes"),
    FLAG("probe", probe, NULL,
         "knn: also train a linear classifier of the features along with the network and test it "
         "in each evaluation; the network is not changed by it"),
    NUMBER("probe-lr", probe_lr, "0.001", 0, INFINITY, OVER | UNDER,
           "probe: its learning rate, constant, with AdamW"),
    {0}};

static const char *const most_used[] = {"config",      "out",     "resume", "method",
                                        "selectivity", "epochs",  "batch",  "lr",
                                        "side",        "network", NULL};
static const zonal__option_group groups[] = {{"data", "data"},
                                             {"augmentation", "views"},
                                             {"network", "network"},
                                             {"loss", "method"},
                                             {"optimiser", "optimiser"},
                                             {"run", "epochs"},
                                             {0}};
const zonal__option_layout zonal__train_layout = {most_used, groups};

int zonal__train_option_is_free(const char *name) {
    static const char *const names[] = {
        "quiet",        "resume",      "log-every",   "checkpoint-every", "checkpoint-minutes",
        "threads",      "keep",        "on-collapse", "workers",          "tensorboard",
        "changed-data", "bucket-size", "launcher",    "rank-timeout",     "rendezvous",
        "retries"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return 1;
    return 0;
}

int zonal__train_option_may_change(const char *name) {
    return zonal__train_option_is_free(name) || strcmp(name, "data") == 0 ||
           strcmp(name, "class-list") == 0;
}
