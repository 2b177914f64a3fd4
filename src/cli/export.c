/*
 * zonal export: the backbone of a run as torchvision takes it.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/eval_subject.h"
#include "nn/weights.h"

typedef struct settings {
    const char *checkpoint, *out;
    int quiet;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "out",
     .type = ZONAL__OPTION_STRING,
     AT(out),
     .rules = ZONAL__OPTION_REQUIRED,
     .metavar = "FILE",
     .help = "the file to write, backbone.safetensors"},
    ZONAL__CHECKPOINT_OPTION(settings, checkpoint),
    {.name = "quiet", .type = ZONAL__OPTION_FLAG, AT(quiet), .help = "print errors alone"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal export RUN|WEIGHTS --out backbone.safetensors [options]",
    .description =
        "Writes the backbone of a trained network, without projector and optimiser, as a\n"
        "safetensors file that torchvision's resnet18, resnet34 and resnet50 load:\n\n"
        "    model = torchvision.models.resnet18()\n"
        "    model.fc = torch.nn.Identity()\n"
        "    model.load_state_dict(safetensors.torch.load_file(FILE), strict=True)\n\n"
        "There is no fc in the file: put a classifier of your own in its place after\n"
        "loading. Other networks differ from torchvision's in what is said on export:\n"
        "replace model.conv1 (and, for the small stem, model.maxpool) first.\n",
    .argument = "RUN|WEIGHTS",
    .least = 1,
    .most = 1};

/* What has to be changed in torchvision's network before it takes the file. */
static void say_how_to_load(const zonal__network_spec *network, int64_t tensors, const char *path) {
    const int small = network->stem == ZONAL__STEM_SMALL;
    printf("%s: %" PRId64 " tensors of a ResNet-%d\n", zonal__cli_plain(path).text, tensors,
           network->depth);
    if (network->width < 1 || network->width > 1) {
        printf("  width %g: torchvision has no such network; zonal reads the file\n",
               network->width);
        return;
    }
    if (small || network->channels != 3)
        printf("  model.conv1 = torch.nn.Conv2d(%d, 64, %s, bias=False)\n", network->channels,
               small ? "3, 1, 1" : "7, 2, 3");
    if (small) puts("  model.maxpool = torch.nn.Identity()");
    puts("  model.fc = torch.nn.Identity()");
}

static zonal_status run(const settings *s, const char *name) {
    char weights[ZONAL__TRAINING_PATH];
    zonal__safetensors *file, *made;
    zonal__network_spec network;
    zonal_status status;
    int is_run;
    ZONAL_TRY(zonal__subject_weights(name, s->checkpoint, &is_run, weights));
    ZONAL_TRY(zonal__safetensors_open(weights, ZONAL__SAFETENSORS_ANY, &file));
    status = zonal__weights_export(file, s->out);
    zonal__safetensors_close(file);
    ZONAL_TRY(status);
    if (s->quiet) return ZONAL_OK;
    ZONAL_TRY(zonal__safetensors_open(s->out, ZONAL__SAFETENSORS_ANY, &made));
    status = zonal__weights_network(made, &network);
    if (status == ZONAL_OK) say_how_to_load(&network, made->count, s->out);
    zonal__safetensors_close(made);
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
