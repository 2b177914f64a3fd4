/* Weights from files: weights.h. */
#include "nn/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"

/* ---- which network --------------------------------------------------------------------------- */

static int begins(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The tensor of a name made like printf does, NULL if there is none. */
__attribute__((format(printf, 2, 3))) static const zonal__safetensor *
find(const zonal__safetensors *file, const char *format, ...) {
    char name[80];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    return zonal__safetensors_find(file, name);
}

static zonal_status need_rank_4(const zonal__safetensors *file, const char *name,
                                const zonal__safetensor **tensor) {
    *tensor = zonal__safetensors_find(file, name);
    if (!*tensor)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s contains no ResNet: it has no tensor \"%s\"; the names must be "
                          "torchvision's",
                          file->path, name);
    if ((*tensor)->rank != 4)
        return ZONAL_FAIL(ZONAL_SHAPE, "%s contains no ResNet: \"%s\" has rank %d, not 4",
                          file->path, name, (*tensor)->rank);
    return ZONAL_OK;
}

/* A width w gives group g round(2^g 64 w / 8) eights of channels, at least one. Every group's
 * channels therefore bound w; the middle of what all of them allow is taken. */
static zonal_status infer_width(const zonal__safetensors *file, double *width) {
    double low = 1.0 / 64, high = 8;
    for (int g = 0; g < 4; g++) {
        const double whole = 64 << g;
        const zonal__safetensor *tensor;
        char name[32];
        snprintf(name, sizeof name, "layer%d.0.conv1.weight", g + 1);
        ZONAL_TRY(need_rank_4(file, name, &tensor));
        const double channels = (double)tensor->shape[0];
        if (channels > 8) low = fmax(low, (channels - 4) / whole);
        high = fmin(high, (channels + 4) / whole);
    }
    if (!(low < high))
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "%s contains no supported ResNet: the channels of its four groups "
                          "do not double from one to the next",
                          file->path);
    *width = (low + high) / 2;
    return ZONAL_OK;
}

static zonal_status infer_encoder(const zonal__safetensors *file, zonal__network_spec *network) {
    const zonal__safetensor *stem;
    ZONAL_TRY(need_rank_4(file, "conv1.weight", &stem));
    if (stem->shape[2] != 7 && stem->shape[2] != 3)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "the tensor \"conv1.weight\" of %s is %" PRId64 " pixels wide; stems of "
                          "7 and of 3 are supported",
                          file->path, stem->shape[2]);
    network->stem = stem->shape[2] == 7 ? ZONAL__STEM_IMAGENET : ZONAL__STEM_SMALL;
    if (stem->shape[1] != 1 && stem->shape[1] != 3)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "the tensor \"conv1.weight\" of %s is for images of %" PRId64
                          " channels; 1 and 3 are supported",
                          file->path, stem->shape[1]);
    network->channels = (int)stem->shape[1];
    network->depth = find(file, "layer1.0.conv3.weight")   ? 50
                     : find(file, "layer1.2.conv1.weight") ? 34
                                                           : 18;
    return infer_width(file, &network->width);
}

/* The projector is a Sequential: Linear (, norm), activation, ..., Linear. */
static zonal_status infer_projector(const zonal__safetensors *file, zonal__network_spec *network) {
    const char *note = zonal__safetensors_note_text(file, "zonal.network");
    const zonal__safetensor *linear;
    int number = 0, last = 0;
    network->projector_layers = 0;
    network->projector_norm = find(file, "projector.1.running_mean") != NULL;
    while ((linear = find(file, "projector.%d.weight", number)) != NULL) {
        if (network->projector_layers == ZONAL__MOST_PROJECTOR_LAYERS)
            return ZONAL_FAIL(ZONAL_FORMAT, "the projector of %s has more than %d layers",
                              file->path, ZONAL__MOST_PROJECTOR_LAYERS);
        if (linear->rank != 2 || linear->shape[0] > INT32_MAX)
            return ZONAL_FAIL(ZONAL_SHAPE,
                              "the tensor \"%s\" of %s is no weight of a linear layer, as a "
                              "projector has them",
                              linear->name, file->path);
        network->projector_width[network->projector_layers++] = (int)linear->shape[0];
        last = number;
        number += network->projector_norm ? 3 : 2;
    }
    network->projector_last_bias = find(file, "projector.%d.bias", last) != NULL;
    network->projector_activation =
        note && strstr(note, ", relu") ? ZONAL__ACTIVATION_RELU : ZONAL__ACTIVATION_GELU;
    return ZONAL_OK;
}

zonal_status zonal__weights_network(const zonal__safetensors *file, zonal__network_spec *network) {
    *network = zonal__network_defaults();
    ZONAL_TRY(infer_encoder(file, network));
    return infer_projector(file, network);
}

/* ---- every tensor in its place --------------------------------------------------------------- */

static int is_left_aside(const char *name, int with_projector) {
    return begins(name, "optimiser.") || begins(name, "probe.") || begins(name, "fc.") ||
           (!with_projector && begins(name, "projector."));
}

static int has_entry(const zonal__graph *graph, const char *name) {
    for (int i = 0; i < graph->entry_count; i++)
        if (strcmp(graph->entries[i].name, name) == 0) return 1;
    return 0;
}

static zonal_status check_all_have_a_place(const zonal__safetensors *file,
                                           const zonal__network_spec *network,
                                           const zonal__graph *graph) {
    for (int64_t i = 0; i < file->count; i++) {
        const char *name = file->tensors[i].name;
        if (is_left_aside(name, network->projector_layers > 0)) continue;
        if (!has_entry(graph, name))
            return ZONAL_FAIL(ZONAL_FORMAT,
                              "%s has the tensor \"%.100s\", which has no place in a ResNet-%d: "
                              "these are weights of another architecture",
                              file->path, name, network->depth);
    }
    return ZONAL_OK;
}

static zonal_status check_values(const zonal__safetensors *file, const zonal__safetensor *tensor,
                                 const float *values) {
    for (int64_t i = 0; i < tensor->count; i++)
        if (!isfinite(values[i]))
            return ZONAL_FAIL(ZONAL_NUMERIC,
                              "the tensor \"%s\" of %s holds the value %g: a network cannot work "
                              "with that; use an earlier checkpoint",
                              tensor->name, file->path, (double)values[i]);
    return ZONAL_OK;
}

/* Host copies of the model's blocks, filled from the file before anything is changed. */
typedef struct blocks {
    float *parameters, *statistics;
    float *values; /* of one tensor */
} blocks;

static zonal_status take_entry(const zonal__safetensors *file, const zonal__entry *entry,
                               blocks *b) {
    const zonal__safetensor *tensor;
    if (entry->kind == ZONAL__ENTRY_BATCHES) return ZONAL_OK;
    ZONAL_TRY(zonal__safetensors_get(file, entry->name, entry->rank, entry->shape, &tensor));
    if (tensor->type > ZONAL__SAFETENSORS_BF16)
        return ZONAL_FAIL(ZONAL_DTYPE,
                          "the tensor \"%s\" of %s is of type %s; weights are F32, "
                          "BF16, F16 or F64",
                          tensor->name, file->path, zonal__safetensors_type_name(tensor->type));
    zonal__safetensors_floats(tensor, b->values);
    ZONAL_TRY(check_values(file, tensor, b->values));
    zonal__entry_import(entry, b->values,
                        zonal__entry_is_trained(entry) ? b->parameters : b->statistics);
    return ZONAL_OK;
}

static zonal_status make_blocks(const zonal__graph *graph, blocks *b) {
    int64_t largest = 1;
    for (int i = 0; i < graph->entry_count; i++)
        if (graph->entries[i].count > largest) largest = graph->entries[i].count;
    ZONAL_TRY(ZONAL_NEW(&b->parameters, graph->parameter_size, "the weights of a file"));
    ZONAL_TRY(ZONAL_NEW(&b->statistics, graph->statistic_size, "the statistics of a file"));
    return ZONAL_NEW(&b->values, largest, "the values of a tensor");
}

static zonal_status fill_blocks(const zonal__safetensors *file, const zonal__network_spec *network,
                                const zonal__graph *graph, blocks *b) {
    ZONAL_TRY(check_all_have_a_place(file, network, graph));
    ZONAL_TRY(make_blocks(graph, b));
    for (int i = 0; i < graph->entry_count; i++) ZONAL_TRY(take_entry(file, &graph->entries[i], b));
    return ZONAL_OK;
}

static void drop_blocks(blocks *b) {
    zonal__free(b->parameters);
    zonal__free(b->statistics);
    zonal__free(b->values);
}

static void say_what_is_left_out(const zonal__safetensors *file) {
    if (find(file, "fc.weight"))
        zonal__log("%s: fc, torchvision's classifier, is left out", file->path);
}

zonal_status zonal__weights_load(const zonal__safetensors *file, zonal__model *model) {
    blocks b = {0};
    zonal_status status = fill_blocks(file, &model->spec, &model->graph, &b);
    if (status == ZONAL_OK) status = zonal__model_write(model, b.parameters, b.statistics);
    drop_blocks(&b);
    if (status == ZONAL_OK) say_what_is_left_out(file);
    return status;
}

zonal_status zonal__weights_model(const zonal__safetensors *file, const zonal__device *device,
                                  zonal_dtype dtype, zonal__model **model) {
    zonal__network_spec network;
    zonal_status status;
    *model = NULL;
    ZONAL_TRY(zonal__weights_network(file, &network));
    network.dtype = dtype;
    ZONAL_TRY(zonal__model_create(&network, device, model));
    status = zonal__weights_load(file, *model);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__model_destroy(*model);
    *model = NULL;
    return status;
}

zonal_status zonal__weights_open(const char *path, const zonal__device *device, zonal_dtype dtype,
                                 zonal__model **model) {
    zonal__safetensors *file;
    zonal_status status;
    *model = NULL;
    ZONAL_TRY(zonal__safetensors_open(path, ZONAL__SAFETENSORS_ANY, &file));
    status = zonal__weights_model(file, device, dtype, model);
    zonal__safetensors_close(file);
    return status;
}

/* ---- a beginning for training ---------------------------------------------------------------- */

/* Tensors that do not fit in one way: how many, and the first names. */
typedef struct misfits {
    const char *word;
    int count;
    char names[180];
} misfits;

enum { MISSING, OTHER_SHAPE, NO_PLACE, MISFITS, SHOWN = 3 };

__attribute__((format(printf, 2, 3))) static void add_misfit(misfits *m, const char *format, ...) {
    size_t used = strlen(m->names);
    va_list arguments;
    if (m->count++ > SHOWN) return;
    used += (size_t)snprintf(m->names + used, sizeof m->names - used, m->count > 1 ? ", " : "");
    if (used >= sizeof m->names) return;
    va_start(arguments, format);
    if (m->count > SHOWN)
        snprintf(m->names + used, sizeof m->names - used, "...");
    else
        vsnprintf(m->names + used, sizeof m->names - used, format, arguments);
    va_end(arguments);
}

static void print_shape(int rank, const int64_t *shape, char out[96]) {
    int used = 0;
    out[0] = '\0';
    for (int i = 0; i < rank && used < 90; i++)
        used += snprintf(out + used, (size_t)(96 - used), "%s%" PRId64, i ? "x" : "", shape[i]);
}

static int fits(const zonal__safetensor *tensor, const zonal__entry *entry) {
    return tensor && tensor->rank == entry->rank &&
           memcmp(tensor->shape, entry->shape, (size_t)entry->rank * sizeof *entry->shape) == 0;
}

static void compare_entry(const zonal__safetensors *file, const zonal__entry *entry,
                          misfits found[MISFITS]) {
    const zonal__safetensor *tensor = zonal__safetensors_find(file, entry->name);
    char theirs[96], ours[96];
    if (entry->kind == ZONAL__ENTRY_BATCHES || fits(tensor, entry)) return;
    if (!tensor) {
        add_misfit(&found[MISSING], "%s", entry->name);
        return;
    }
    print_shape(tensor->rank, tensor->shape, theirs);
    print_shape(entry->rank, entry->shape, ours);
    add_misfit(&found[OTHER_SHAPE], "%s is %s, not %s", entry->name, theirs, ours);
}

static int is_of_projector(const char *name) {
    return begins(name, "projector.");
}

/* Of the backbone, or of the projector alone. */
static void compare_all(const zonal__safetensors *file, const zonal__graph *graph, int projector,
                        misfits found[MISFITS]) {
    for (int i = 0; i < graph->entry_count; i++)
        if (is_of_projector(graph->entries[i].name) == projector)
            compare_entry(file, &graph->entries[i], found);
    for (int64_t i = 0; i < file->count; i++) {
        const char *name = file->tensors[i].name;
        if (!is_left_aside(name, 1) && is_of_projector(name) == projector &&
            !has_entry(graph, name))
            add_misfit(&found[NO_PLACE], "%.60s", name);
    }
}

static int count_misfits(const misfits found[MISFITS]) {
    return found[MISSING].count + found[OTHER_SHAPE].count + found[NO_PLACE].count;
}

static zonal_status refuse_backbone(const zonal__safetensors *file, const misfits found[MISFITS]) {
    char list[640] = "";
    for (int i = 0; i < MISFITS; i++) {
        size_t used = strlen(list);
        if (found[i].count > 0)
            snprintf(list + used, sizeof list - used, "%s%d %s (%s)", used ? ", " : "",
                     found[i].count, found[i].word, found[i].names);
    }
    return ZONAL_FAIL(ZONAL_SHAPE, "the weights of %.160s are for another network: %.500s",
                      file->path, list);
}

/* Host copies of what the model has, with the file's tensors put over it. */
static zonal_status fill_over(const zonal__safetensors *file, const zonal__model *model,
                              zonal__weights_begun *begun, blocks *b) {
    const zonal__graph *graph = &model->graph;
    ZONAL_TRY(make_blocks(graph, b));
    ZONAL_TRY(zonal__model_read(model, b->parameters, b->statistics));
    for (int i = 0; i < graph->entry_count; i++) {
        const zonal__entry *entry = &graph->entries[i];
        if (entry->kind == ZONAL__ENTRY_BATCHES) continue;
        if (is_of_projector(entry->name) && !begun->projector) continue;
        ZONAL_TRY(take_entry(file, entry, b));
        begun->tensors++;
    }
    return ZONAL_OK;
}

zonal_status zonal__weights_begin(const zonal__safetensors *file, zonal__model *model,
                                  zonal__weights_begun *begun) {
    misfits backbone[MISFITS] = {
        {.word = "missing"}, {.word = "of another shape"}, {.word = "without a place"}};
    misfits projector[MISFITS] = {{0}};
    blocks b = {0};
    zonal_status status;
    *begun = (zonal__weights_begun){0};
    compare_all(file, &model->graph, 0, backbone);
    compare_all(file, &model->graph, 1, projector);
    if (count_misfits(backbone) > 0) return refuse_backbone(file, backbone);
    for (int64_t i = 0; i < file->count; i++)
        begun->has_projector |= is_of_projector(file->tensors[i].name);
    begun->projector = begun->has_projector && count_misfits(projector) == 0;
    status = fill_over(file, model, begun, &b);
    if (status == ZONAL_OK) status = zonal__model_write(model, b.parameters, b.statistics);
    drop_blocks(&b);
    if (status == ZONAL_OK) say_what_is_left_out(file);
    return status;
}

/* ---- the backbone alone ---------------------------------------------------------------------- */

static zonal_status check_backbone(const zonal__safetensors *file) {
    zonal__network_spec network;
    zonal__graph *graph;
    blocks b = {0};
    zonal_status status;
    ZONAL_TRY(zonal__weights_network(file, &network));
    network.projector_layers = 0;
    ZONAL_TRY(ZONAL_NEW(&graph, 1, "a network"));
    status = zonal__network_build(&network, graph);
    if (status == ZONAL_OK) status = fill_blocks(file, &network, graph, &b);
    drop_blocks(&b);
    zonal__free(graph);
    return status;
}

static zonal_status write_backbone(const zonal__safetensors *file,
                                   const zonal__safetensors_note *notes, int64_t note_count,
                                   const char *path, zonal__safetensor *backbone) {
    zonal__safetensors_content content = {
        .tensors = backbone, .notes = notes, .note_count = note_count};
    for (int64_t i = 0; i < file->count; i++)
        if (!is_left_aside(file->tensors[i].name, 0)) backbone[content.count++] = file->tensors[i];
    return zonal__safetensors_write(path, &content);
}

zonal_status zonal__weights_export(const zonal__safetensors *file,
                                   const zonal__safetensors_note *notes, int64_t note_count,
                                   const char *path) {
    zonal__safetensors_note *all;
    zonal__safetensor *backbone = NULL;
    zonal_status status;
    ZONAL_TRY(check_backbone(file));
    ZONAL_TRY(ZONAL_NEW(&all, note_count + 1, "the metadata"));
    all[0] = (zonal__safetensors_note){"format", "pt"}; /* what readers for PyTorch look for */
    for (int64_t i = 0; i < note_count; i++) all[i + 1] = notes[i];
    status = ZONAL_NEW(&backbone, file->count, "the list of tensors");
    if (status == ZONAL_OK) status = write_backbone(file, all, note_count + 1, path, backbone);
    zonal__free(all);
    zonal__free(backbone);
    return status;
}
