/*
 * zonal export: the backbone of a run as torchvision takes it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/cli.h"
#include "cli/common/inputs.h"
#include "cli/eval/model_card.h"
#include "cli/eval/subject.h"
#include "core/text.h"
#include "nn/weights.h"

typedef struct settings {
    const char *checkpoint, *out;
    int card, quiet;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "out",
     .type = ZONAL__OPTION_STRING,
     AT(out),
     .rules = ZONAL__OPTION_REQUIRED,
     .metavar = "FILE",
     .help = "the file to write, backbone.safetensors"},
    {.name = "card",
     .type = ZONAL__OPTION_FLAG,
     AT(card),
     .help = "write a model card, README.md, beside the file"},
    ZONAL__CHECKPOINT_OPTION(settings, checkpoint),
    {.name = "quiet", .type = ZONAL__OPTION_FLAG, AT(quiet), .help = "print only errors"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal export RUN|WEIGHTS --out backbone.safetensors [options]",
    .description =
        "Writes the backbone of a trained network, without projector and optimiser, as a\n"
        "safetensors file that torchvision's resnet18, resnet34 and resnet50 load:\n\n"
        "    model = torchvision.models.resnet18()\n"
        "    model.fc = torch.nn.Identity()\n"
        "    model.load_state_dict(safetensors.torch.load_file(FILE), strict=True)\n\n"
        "The file has no fc: put your own classifier in its place after loading. For\nother "
        "networks the export says how they differ from torchvision's: replace\nmodel.conv1 (and, "
        "for the small stem, model.maxpool) first.\n\n"
        "The file's metadata say how to prepare an image (side, crop, mean, std);\nzonal "
        "eval --weights and zonal embed read them. A model card says it in words\nand in Python, "
        "with the results of zonal eval.\n",
    .argument = "RUN|WEIGHTS",
    .least = 1,
    .most = 1};

/* ---- what is known of the weights ------------------------------------------------------------ */

enum { NOTES = 16, NOTE = 96 };

/* The metadata of the exported file, and what they are made from. */
typedef struct metadata {
    zonal__card card;
    char method[NOTE], data[NOTE], numbers[4][NOTE];
    char keys[ZONAL__PREPROCESSING_NOTES][NOTE];
    zonal__safetensors_note notes[NOTES];
    int64_t count;
} metadata;

static void add_note(metadata *m, const char *key, const char *text) {
    if (text && text[0]) m->notes[m->count++] = (zonal__safetensors_note){key, text};
}

/* A run's configuration says it, whether or not its images are there. */
static zonal_status ask_run(const char *run, metadata *m) {
    zonal__training training;
    char path[ZONAL__TRAINING_PATH + 16];
    zonal_status status;
    snprintf(path, sizeof path, "%s/config.toml", run);
    status = zonal__training_read(path, &training);
    if (status == ZONAL_OK) {
        const char *data = training.settings.data ? training.settings.data : "";
        const char *slash = strrchr(data, '/');
        zonal__preprocessing_of_run(&training, &m->card.preprocessing);
        snprintf(m->method, sizeof m->method, "%s", training.settings.method);
        snprintf(m->data, sizeof m->data, "%s", slash ? slash + 1 : data); /* a name, no path */
    }
    zonal__training_close(&training);
    return status;
}

/* What an exported file said is passed on. */
static zonal_status ask_file(const zonal__safetensors *file, metadata *m) {
    const char *method = zonal__safetensors_note_text(file, "zonal.method");
    const char *data = zonal__safetensors_note_text(file, "zonal.data");
    snprintf(m->method, sizeof m->method, "%s", method ? method : "");
    snprintf(m->data, sizeof m->data, "%s", data ? data : "");
    return zonal__preprocessing_of_file(file, &m->card.preprocessing);
}

static void add_notes(metadata *m) {
    const zonal__network_spec *n = &m->card.network;
    snprintf(m->numbers[0], NOTE, "resnet%d", n->depth);
    snprintf(m->numbers[1], NOTE, "%d", n->channels);
    snprintf(m->numbers[2], NOTE, "%g", n->width);
    add_note(m, "zonal.version", zonal_version());
    add_note(m, "zonal.commit", zonal__commit);
    add_note(m, "zonal.architecture", m->numbers[0]);
    add_note(m, "zonal.stem", n->stem == ZONAL__STEM_SMALL ? "small" : "imagenet");
    add_note(m, "zonal.channels", m->numbers[1]);
    add_note(m, "zonal.width", m->numbers[2]);
    add_note(m, "zonal.method", m->method);
    add_note(m, "zonal.data", m->data);
    if (m->card.step >= 0) {
        snprintf(m->numbers[3], NOTE, "%" PRId64, m->card.step);
        add_note(m, "zonal.step", m->numbers[3]);
    }
    for (int i = 0; i < ZONAL__PREPROCESSING_NOTES; i++) {
        snprintf(m->keys[i], NOTE, "zonal.%s", zonal__preprocessing_names[i]);
        add_note(m, m->keys[i], m->card.preprocessing.text[i]);
    }
}

static zonal_status gather(const zonal__safetensors *file, const char *name, int is_run,
                           const char *out, metadata *m) {
    const char *step = zonal__safetensors_note_text(file, "zonal.step");
    memset(m, 0, sizeof *m);
    ZONAL_TRY(is_run ? ask_run(name, m) : ask_file(file, m));
    ZONAL_TRY(zonal__weights_network(file, &m->card.network));
    if (!step || zonal__text_int64(step, "zonal.step", &m->card.step) != ZONAL_OK)
        m->card.step = -1;
    m->card.weights = out;
    m->card.run = is_run ? name : NULL;
    m->card.method = m->method;
    m->card.data = m->data;
    add_notes(m);
    return ZONAL_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* A card that does not say how to prepare an image would mislead. */
static zonal_status check_card(const settings *s, const metadata *m) {
    for (int i = 0; i < ZONAL__PREPROCESSING_NOTES; i++)
        if (!m->card.preprocessing.text[i][0])
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "--card needs to know the %s of the images, which %s does not say; "
                              "export from a run folder%s",
                              zonal__preprocessing_names[i], m->card.run ? m->card.run : "the file",
                              m->card.run ? " that this version has trained" : "");
    return zonal__card_check(s->out);
}

static void say_how_to_load(const metadata *m) {
    char adapt[ZONAL__CARD_CODE];
    const zonal__network_spec *network = &m->card.network;
    printf("%s: a ResNet-%d\n", zonal__cli_plain(m->card.weights).text, network->depth);
    if (!zonal__card_is_standard(network)) {
        printf("  width %g: torchvision has no such network; zonal reads the file\n",
               network->width);
        return;
    }
    zonal__card_adapt(network, adapt);
    for (char *line = adapt, *end; (end = strchr(line, '\n')); line = end + 1)
        printf("  %.*s\n", (int)(end - line), line);
    puts("  model.fc = torch.nn.Identity()");
}

static zonal_status export(const settings *s, const zonal__safetensors *file, const char *name,
                           int is_run) {
    metadata m;
    ZONAL_TRY(zonal__cli_keep_input("--out", s->out, name));
    ZONAL_TRY(zonal__cli_keep_input("--out", s->out, s->checkpoint));
    ZONAL_TRY(gather(file, name, is_run, s->out, &m));
    if (s->card) ZONAL_TRY(check_card(s, &m));
    ZONAL_TRY(zonal__weights_export(file, m.notes, m.count, s->out));
    if (s->card) ZONAL_TRY(zonal__card_write(&m.card));
    if (!s->quiet) say_how_to_load(&m);
    return ZONAL_OK;
}

static zonal_status run(const settings *s, const char *name) {
    char weights[ZONAL__TRAINING_PATH];
    zonal__safetensors *file;
    zonal_status status;
    int is_run;
    ZONAL_TRY(zonal__subject_weights(name, s->checkpoint, &is_run, weights));
    ZONAL_TRY(zonal__safetensors_open(weights, ZONAL__SAFETENSORS_ANY, &file));
    status = export(s, file, name, is_run);
    zonal__safetensors_close(file);
    return status;
}

int zonal__cli_export(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (run(&s, options.arguments[0]) != ZONAL_OK) return zonal__cli_failed();
    return ZONAL__EXIT_OK;
}
