#include "cli/eval/model_card.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/eval/store.h"
#include "core/file.h"
#include "core/file_read.h"
#include "core/memory.h"
#include "core/text.h"

static const char MARK[] =
    "<!-- Written by zonal export, which replaces a card that has this line; "
    "remove it to keep what you write here. -->";
static const size_t LONGEST_CARD = (size_t)1 << 22;

/* ---- where ----------------------------------------------------------------------------------- */

static zonal_status card_path(const char *weights, char out[ZONAL__TRAINING_PATH]) {
    const char *slash = strrchr(weights, '/');
    const int folder = slash ? (int)(slash + 1 - weights) : 0;
    if (snprintf(out, ZONAL__TRAINING_PATH, "%.*sREADME.md", folder, weights) <
        ZONAL__TRAINING_PATH)
        return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT, "the name %.80s... is too long", weights);
}

zonal_status zonal__card_check(const char *weights) {
    char path[ZONAL__TRAINING_PATH], *text;
    struct stat there;
    size_t length;
    int ours;
    ZONAL_TRY(card_path(weights, path));
    if (stat(path, &there) != 0) return ZONAL_OK;
    ZONAL_TRY(zonal__file_read(path, LONGEST_CARD, &text, &length));
    ours = strstr(text, MARK) != NULL;
    zonal__free(text);
    if (ours) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_IO,
                      "%s already exists and was not written by zonal export; move it, or export "
                      "into a folder of its own",
                      path);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* In double quotes, as YAML and Python read it alike: names come from outside. */
static void put_quoted(zonal__file *file, const char *text) {
    zonal__file_print(file, "\"");
    for (const char *c = text; *c;) {
        const int bytes = zonal__text_utf8(c);
        if (bytes == 0 || (unsigned char)*c < ' ' || *c == 127)
            zonal__file_print(file, "?");
        else
            zonal__file_print(file, "%s%.*s", *c == '"' || *c == '\\' ? "\\" : "", bytes, c);
        c += bytes ? bytes : 1;
    }
    zonal__file_print(file, "\"");
}

/* In a line of Markdown: what could end a cell or begin markup is replaced. */
static void put_plain(zonal__file *file, const char *text) {
    for (const char *c = text; *c;) {
        const int bytes = zonal__text_utf8(c);
        if (bytes == 0 || (unsigned char)*c < ' ' || *c == 127 || strchr("|<>`[]!", *c))
            zonal__file_print(file, "?");
        else
            zonal__file_print(file, "%.*s", bytes, c);
        c += bytes ? bytes : 1;
    }
}

static const char *get(const zonal__card *card, const char *name) {
    return zonal__preprocessing_get(&card->preprocessing, name);
}

static int is_texture(const zonal__card *card) {
    return strcmp(get(card, "augmentation"), "texture") == 0;
}

static int is_centre(const zonal__card *card) {
    return strcmp(get(card, "crop"), "center") == 0;
}

/* ---- the network ----------------------------------------------------------------------------- */

int zonal__card_is_standard(const zonal__network_spec *network) {
    return !(network->width < 1 || network->width > 1);
}

void zonal__card_adapt(const zonal__network_spec *network, char out[ZONAL__CARD_CODE]) {
    const int small = network->stem == ZONAL__STEM_SMALL;
    int used = 0;
    out[0] = '\0';
    if (small || network->channels != 3)
        used = snprintf(out, ZONAL__CARD_CODE,
                        "model.conv1 = torch.nn.Conv2d(%d, 64, %s, bias=False)\n",
                        network->channels, small ? "3, 1, 1" : "7, 2, 3");
    if (small)
        snprintf(out + used, (size_t)(ZONAL__CARD_CODE - used),
                 "model.maxpool = torch.nn.Identity()\n");
}

/* ---- metrics --------------------------------------------------------------------------------- */

typedef struct writer {
    const zonal__card *card;
    zonal__file *file;
    int yaml;  /* the front matter; 0: the table */
    int count; /* of the results written */
} writer;

/* Whether a result was found with the preprocessing that the card states. */
static int is_as_stated(const zonal__card *card, const zonal__stored_result *r) {
    static const char *const checkpoints[] = {"last", "best"};
    char view[ZONAL__PREPROCESSING_SENTENCE], part[ZONAL__PREPROCESSING_SENTENCE + 32];
    zonal__preprocessing_describe(&card->preprocessing, view);
    for (int i = 0; i < 2; i++) {
        snprintf(part, sizeof part, "; checkpoint %s; %s; ", checkpoints[i], view);
        if (strstr(r->conditions, part)) return 1;
    }
    return 0;
}

/* The file holds the backbone alone, and only what was found for these very weights counts, by the
 * settings of their run: other classes or another split are another task. */
static int belongs(const writer *w, const zonal__stored_result *r) {
    return strcmp(r->features, "backbone") == 0 && w->card->step >= 0 && r->step == w->card->step &&
           !r->overrides[0] && is_as_stated(w->card, r);
}

static void describe(const zonal__stored_result *r, char *out, size_t size) {
    char seed[32] = "";
    if (r->seed >= 0) snprintf(seed, sizeof seed, ", seed %.0f", r->seed);
    if (strcmp(r->protocol, "knn") == 0)
        snprintf(out, size, "k-NN, k %.0f, T %.4g", r->k, r->temperature);
    else if (strcmp(r->protocol, "lightly-knn") == 0)
        snprintf(out, size, "k-NN as lightly's benchmark, k %.0f, T %.4g", r->k, r->temperature);
    else if (strcmp(r->protocol, "solo-linear") == 0)
        snprintf(out, size, "linear probe as solo-learn's, SGD of %.0f epoch%s%s", r->epochs,
                 zonal__text_plural((int64_t)r->epochs), seed);
    else if (strcmp(r->protocol, "retrieval") == 0)
        snprintf(out, size, "retrieval of views among %.0f candidates%s", r->candidates, seed);
    else if (r->epochs >= 0)
        snprintf(out, size, "linear probe, SGD of %.0f epoch%s%s", r->epochs,
                 zonal__text_plural((int64_t)r->epochs), seed);
    else
        snprintf(out, size, "linear probe, L-BFGS, l2 %.4g%s", r->l2, seed);
}

static void put_metric(const writer *w, const char *type, const char *name, double share) {
    if (!isfinite(share)) return;
    if (w->yaml)
        zonal__file_print(w->file, "    - type: %s\n      value: %.2f\n      name: %s, percent\n",
                          type, 100 * share, name);
    else
        zonal__file_print(w->file, " %s %.2f %%", name, 100 * share);
}

static void put_metrics(const writer *w, const zonal__stored_result *r) {
    put_metric(w, "accuracy", "top 1", r->accuracy);
    put_metric(w, "top_5_accuracy", "top 5", r->top5);
    put_metric(w, "recall_at_1", "R@1", r->r1);
    put_metric(w, "mean_average_precision", "mAP", r->map);
}

static zonal_status put_result(void *context, const zonal__stored_result *r) {
    writer *w = context;
    char how[96];
    if (!belongs(w, r)) return ZONAL_OK;
    describe(r, how, sizeof how);
    if (w->yaml) {
        if (w->count == 0) {
            zonal__file_print(w->file, "model-index:\n- name: ");
            put_quoted(w->file, base_name(w->card->weights));
            zonal__file_print(w->file, "\n  results:\n");
        }
        zonal__file_print(w->file, "  - task:\n      type: %s\n      name: %s\n    dataset:\n",
                          r->accuracy >= 0 ? "image-classification" : "image-feature-extraction",
                          how);
        zonal__file_print(w->file, "      type: ");
        put_quoted(w->file, base_name(r->data));
        zonal__file_print(w->file, "\n      name: ");
        put_quoted(w->file, base_name(r->data));
        zonal__file_print(w->file, "\n      split: ");
        put_quoted(w->file, r->part);
        zonal__file_print(w->file, "\n    metrics:\n");
        put_metrics(w, r);
    } else {
        if (w->count == 0)
            zonal__file_print(w->file, "| protocol | images | result |\n|---|---|---|\n");
        zonal__file_print(w->file, "| %s | %" PRId64 " of the ", how, r->test);
        put_plain(w->file, r->part);
        zonal__file_print(w->file, " part of ");
        put_plain(w->file, base_name(r->data));
        zonal__file_print(w->file, " |");
        put_metrics(w, r);
        zonal__file_print(w->file, " |\n");
    }
    w->count++;
    return ZONAL_OK;
}

static zonal_status put_results(const zonal__card *card, zonal__file *file, int yaml, int *count) {
    static const char *const protocols[] = {"knn", "linear", "lightly-knn", "solo-linear",
                                            "retrieval"};
    writer w = {.card = card, .file = file, .yaml = yaml};
    for (size_t p = 0; card->run && p < sizeof protocols / sizeof protocols[0]; p++)
        ZONAL_TRY(zonal__eval_stored_read(card->run, protocols[p], put_result, &w));
    *count = w.count;
    return ZONAL_OK;
}

/* ---- the parts of the card ------------------------------------------------------------------- */

static zonal_status put_front_matter(const zonal__card *card, zonal__file *file) {
    int count;
    zonal__file_print(file,
                      "---\nlibrary_name: zonal\npipeline_tag: image-feature-extraction\ntags:\n"
                      "- zonal\n- self-supervised-learning\n- resnet%d\n",
                      card->network.depth);
    if (card->method[0]) {
        zonal__file_print(file, "- ");
        put_quoted(file, card->method);
        zonal__file_print(file, "\n");
    }
    ZONAL_TRY(put_results(card, file, 1, &count));
    zonal__file_print(file, "---\n%s\n\n", MARK);
    return ZONAL_OK;
}

static void put_description(const zonal__card *card, zonal__file *file) {
    const zonal__network_spec *n = &card->network;
    zonal__file_print(file, "# ");
    put_plain(file, base_name(card->weights));
    zonal__file_print(
        file,
        "\n\nThe backbone of a ResNet-%d (%s stem, %d channel%s, width %g), pretrained "
        "without labels",
        n->depth, n->stem == ZONAL__STEM_SMALL ? "small" : "ImageNet", n->channels,
        n->channels == 1 ? "" : "s", n->width);
    if (card->data[0]) {
        zonal__file_print(file, " on ");
        put_plain(file, base_name(card->data));
    }
    if (card->method[0]) {
        zonal__file_print(file, " with the uniformity loss ");
        put_plain(file, card->method);
    }
    if (card->step >= 0)
        zonal__file_print(file, ", %" PRId64 " step%s", card->step, zonal__text_plural(card->step));
    zonal__file_print(file, ". Exported by zonal %s%s%s.\n\n", zonal_version(),
                      zonal__commit[0] ? ", commit " : "", zonal__commit);
}

static void put_preprocessing(const zonal__card *card, zonal__file *file) {
    const char *side = get(card, "side");
    zonal__file_print(file,
                      "## Preprocessing\n\n| | |\n|---|---|\n| channels | %d |\n| crop | %s |\n"
                      "| resize | to %s x %s, %s |\n| mean | %s |\n| std | %s |\n\n"
                      "Mean and std are of elements in [0, 1]. The same is in the file's "
                      "metadata, where zonal finds it.\n\n",
                      card->network.channels,
                      is_centre(card) ? "the square in the middle, 7/8 of the shorter side"
                                      : "the whole image",
                      side, side,
                      is_texture(card) ? "bilinear without antialiasing, zeros outside"
                                       : "bilinear with antialiasing",
                      get(card, "mean"), get(card, "std"));
}

static void put_load(const zonal__card *card, zonal__file *file, const char *make) {
    char adapt[ZONAL__CARD_CODE];
    zonal__card_adapt(&card->network, adapt);
    zonal__file_print(file, "%s\n%s", make, adapt);
    zonal__file_print(file, "model.fc = torch.nn.Identity()\nmodel.load_state_dict(load_file(");
    put_quoted(file, base_name(card->weights));
    zonal__file_print(file, "), strict=True)\nmodel.eval()\n");
}

static void put_channels(const zonal__card *card, zonal__file *file) {
    if (card->network.channels == 3)
        zonal__file_print(file, "    x = x.expand(-1, 3, -1, -1)  # grey images are repeated\n");
    else
        zonal__file_print(file,
                          "    if x.shape[1] == 3:  # RGB to grey\n"
                          "        grey = torch.tensor([0.2989, 0.587, 0.114])\n"
                          "        x = (x * grey.reshape(1, 3, 1, 1)).sum(1, keepdim=True)\n");
}

static void put_resize(const zonal__card *card, zonal__file *file) {
    const char *side = get(card, "side");
    if (is_centre(card))
        zonal__file_print(file,
                          "    side = round(7 / 8 * min(x.shape[2:]))\n"
                          "    top, left = (x.shape[2] - side) // 2, (x.shape[3] - side) // 2\n"
                          "    x = x[:, :, top:top + side, left:left + side]\n");
    if (is_texture(card))
        zonal__file_print(file,
                          "    grid = torch.nn.functional.affine_grid(\n"
                          "        torch.eye(2, 3)[None], (1, x.shape[1], %s, %s), "
                          "align_corners=False)\n"
                          "    x = torch.nn.functional.grid_sample(x, grid, align_corners=False)\n",
                          side, side);
    else
        zonal__file_print(file,
                          "    x = torch.nn.functional.interpolate(\n"
                          "        x, (%s, %s), mode=\"bilinear\", align_corners=False, "
                          "antialias=True)\n",
                          side, side);
}

static void put_torchvision(const zonal__card *card, zonal__file *file) {
    char make[80];
    snprintf(make, sizeof make, "\nmodel = torchvision.models.resnet%d()", card->network.depth);
    zonal__file_print(file, "## torchvision\n\n```python\nimport torch\nimport torchvision\n"
                            "from safetensors.torch import load_file\n");
    put_load(card, file, make);
    zonal__file_print(file, "\n\ndef preprocess(image):\n"
                            "    \"\"\"A uint8 tensor [channels, height, width].\"\"\"\n"
                            "    x = image[None].float() / 255\n");
    put_channels(card, file);
    put_resize(card, file);
    zonal__file_print(file,
                      "    mean = torch.tensor([%s]).reshape(1, -1, 1, 1)\n"
                      "    std = torch.tensor([%s]).reshape(1, -1, 1, 1)\n"
                      "    return (x - mean) / std\n\n\n"
                      "image = torchvision.io.read_image(\"image.png\")\n"
                      "with torch.no_grad():\n"
                      "    features = model(preprocess(image))\n```\n\n",
                      get(card, "mean"), get(card, "std"));
}

static void put_timm(const zonal__card *card, zonal__file *file) {
    char make[120];
    snprintf(make, sizeof make, "\nmodel = timm.create_model(\"resnet%d\", in_chans=%d)",
             card->network.depth, card->network.channels);
    zonal__file_print(file, "## timm\n\nThe same with timm's network; `preprocess` is the one "
                            "above.\n\n```python\nimport timm\nimport torch\n"
                            "from safetensors.torch import load_file\n");
    put_load(card, file, make);
    zonal__file_print(file, "```\n\n");
    if (is_centre(card) && !is_texture(card))
        zonal__file_print(file,
                          "A transform of timm's, `timm.data.create_transform((%d, %s, %s), "
                          "interpolation=\"bilinear\", crop_pct=0.875, mean=(...), std=(...))`, "
                          "resizes before it crops; the features are nearly the same.\n\n",
                          card->network.channels, get(card, "side"), get(card, "side"));
}

static zonal_status put_evaluation(const zonal__card *card, zonal__file *file) {
    int count;
    zonal__file_print(file, "## Evaluation\n\n");
    ZONAL_TRY(put_results(card, file, 0, &count));
    if (count == 0)
        zonal__file_print(file, "There is no result of `zonal eval` for these weights.\n");
    else
        zonal__file_print(file, "\nFrozen features of the backbone, by `zonal eval`.\n");
    return ZONAL_OK;
}

static zonal_status put_card(const zonal__card *card, zonal__file *file) {
    ZONAL_TRY(put_front_matter(card, file));
    put_description(card, file);
    put_preprocessing(card, file);
    if (zonal__card_is_standard(&card->network)) {
        put_torchvision(card, file);
        put_timm(card, file);
    } else {
        zonal__file_print(file, "torchvision and timm have no ResNet of this width; `zonal embed` "
                                "and `zonal eval --weights` read the file.\n\n");
    }
    return put_evaluation(card, file);
}

zonal_status zonal__card_write(const zonal__card *card) {
    char path[ZONAL__TRAINING_PATH];
    zonal__file *file;
    zonal_status status;
    ZONAL_TRY(card_path(card->weights, path));
    ZONAL_TRY(zonal__file_create(path, &file));
    status = put_card(card, file);
    if (status == ZONAL_OK) return zonal__file_commit(file);
    zonal__file_abandon(file);
    return status;
}
