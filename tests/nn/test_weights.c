/*
 * Weights from files: a network is known again by its tensors, every value arrives, and what does
 * not fit is refused by name. That torchvision takes the files is shown in eval_cli_test.py.
 */
#include "nn/weights.h"

#include <stdlib.h>

#include "core/bf16.h"
#include "core/memory.h"
#include "failing_alloc.h"
#include "folder.h"
#include "nn/network.h"
#include "test.h"

enum { MOST_TENSORS = ZONAL__MOST_ENTRIES + 8 };

static zonal__network_spec small_network(void) {
    zonal__network_spec spec = zonal__network_defaults();
    spec.stem = ZONAL__STEM_SMALL;
    spec.channels = 1;
    spec.width = 0.125;
    spec.projector_layers = 2;
    spec.projector_width[0] = 24;
    spec.projector_width[1] = 12;
    return spec;
}

/* A file's content made of a model, for a test to spoil before it is written. */
typedef struct content {
    zonal__safetensor tensors[MOST_TENSORS];
    float *values[MOST_TENSORS];
    int64_t count;
    zonal__safetensors_note note;
} content;

static content *make_content(const zonal__model *model) {
    content *c = calloc(1, sizeof *c);
    for (int i = 0; i < model->graph.entry_count; i++) {
        const zonal__entry *entry = &model->graph.entries[i];
        zonal__safetensor *tensor = &c->tensors[c->count];
        *tensor = (zonal__safetensor){.name = entry->name, .rank = entry->rank};
        memcpy(tensor->shape, entry->shape, sizeof entry->shape);
        if (entry->kind == ZONAL__ENTRY_BATCHES) {
            tensor->type = ZONAL__SAFETENSORS_I64;
            tensor->data = &model->batches;
        } else {
            float *values = malloc((size_t)entry->count * sizeof(float));
            zonal__entry_export(
                entry, zonal__entry_is_trained(entry) ? model->parameters : model->statistics,
                values);
            tensor->type = ZONAL__SAFETENSORS_F32;
            tensor->data = c->values[c->count] = values;
        }
        c->count++;
    }
    return c;
}

static void add_tensor(content *c, const char *name, int64_t count, float *values) {
    c->tensors[c->count++] = (zonal__safetensor){
        .name = name, .type = ZONAL__SAFETENSORS_F32, .rank = 1, .shape = {count}, .data = values};
}

static int number_of(const content *c, const char *name) {
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->tensors[i].name, name) == 0) return i;
    test_fail(__FILE__, __LINE__, "no tensor %s", name);
    return 0;
}

static void drop_content(content *c) {
    for (int i = 0; i < MOST_TENSORS; i++) free(c->values[i]);
    free(c);
}

static zonal_status write_content(const content *c, const char *path) {
    return zonal__safetensors_write(
        path, &(zonal__safetensors_content){.tensors = c->tensors,
                                            .count = c->count,
                                            .notes = &c->note,
                                            .note_count = c->note.key ? 1 : 0});
}

static zonal__model *make_model(const zonal__network_spec *spec) {
    zonal__model *model;
    if (!CHECK_OK(zonal__model_create(spec, zonal__device_ref(), &model))) return NULL;
    CHECK_OK(zonal__model_initialise(model, test_seed, 0));
    /* Statistics that are not 0 and 1, or a file without them would look right. */
    for (int64_t i = 0; i < model->graph.statistic_size; i++)
        model->statistics[i] = 0.5f + (float)(i % 97) / 97;
    return model;
}

/* Entry by entry, so that the gaps between them do not matter. */
static int same_values(const zonal__model *a, const zonal__model *b) {
    if (a->graph.entry_count != b->graph.entry_count) return 0;
    for (int i = 0; i < a->graph.entry_count; i++) {
        const zonal__entry *x = &a->graph.entries[i], *y = &b->graph.entries[i];
        const int trained = zonal__entry_is_trained(x);
        if (strcmp(x->name, y->name) != 0 || x->count != y->count) return 0;
        if (x->kind == ZONAL__ENTRY_BATCHES) continue;
        if (memcmp((trained ? a->parameters : a->statistics) + x->offset,
                   (trained ? b->parameters : b->statistics) + y->offset,
                   (size_t)x->count * sizeof(float)) != 0)
            return 0;
    }
    return 1;
}

static void check_known_again(const char *path, const char *what, zonal__network_spec spec) {
    zonal__model *model = make_model(&spec), *read = NULL;
    content *c;
    if (!model) return;
    c = make_content(model);
    if (spec.projector_activation == ZONAL__ACTIVATION_RELU)
        c->note = (zonal__safetensors_note){"zonal.network", "resnet18, projector 4, relu"};
    if (CHECK_OK(write_content(c, path)) &&
        CHECK_OK(zonal__weights_open(path, zonal__device_ref(), ZONAL_DTYPE_FP32, &read))) {
        const zonal__network_spec *got = &read->spec;
        CHECK_MSG(same_values(model, read), "%s: other values", what);
        CHECK_MSG(got->depth == spec.depth && got->stem == spec.stem &&
                      got->channels == spec.channels &&
                      got->projector_activation == spec.projector_activation,
                  "%s: another network", what);
    }
    zonal__model_destroy(read);
    zonal__model_destroy(model);
    drop_content(c);
}

static void test_known_again(void) {
    test_folder folder;
    char path[800];
    zonal__network_spec spec;
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "w.safetensors"));
    check_known_again(path, "small", small_network());
    spec = small_network();
    spec.depth = 34;
    spec.stem = ZONAL__STEM_IMAGENET;
    spec.channels = 3;
    check_known_again(path, "34", spec);
    spec.depth = 50;
    check_known_again(path, "50", spec);
    spec = small_network();
    spec.projector_norm = 0;
    spec.projector_last_bias = 0;
    spec.projector_activation = ZONAL__ACTIVATION_RELU;
    check_known_again(path, "plain projector", spec);
    spec.projector_layers = 1;
    check_known_again(path, "one layer", spec);
    spec.projector_layers = 0;
    spec.projector_activation = ZONAL__ACTIVATION_GELU;
    check_known_again(path, "no projector", spec);
    spec.projector_layers = 8;
    for (int i = 0; i < 8; i++) spec.projector_width[i] = 5 + i;
    spec.projector_norm = 1;
    check_known_again(path, "eight layers", spec);
    /* Channels are rounded to eights: at these widths not to doubles of one another. */
    for (int i = 1; i <= 40; i++) {
        char what[32];
        spec = small_network();
        spec.width = 1.0 / 64 + 0.013 * i;
        snprintf(what, sizeof what, "width %g", spec.width);
        check_known_again(path, what, spec);
    }
    spec.depth = 18;
    spec.width = 1.0 / 64;
    check_known_again(path, "least width", spec);
    test_folder_remove(&folder);
}

/* A backbone's file with torchvision's classifier, and one with an optimiser's state. */
static void test_left_aside(void) {
    test_folder folder;
    char path[800];
    float numbers[7] = {1, 2, 3};
    zonal__network_spec spec = small_network();
    zonal__model *model, *read = NULL;
    content *c;
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "w.safetensors"));
    spec.projector_layers = 0;
    if (!(model = make_model(&spec))) return;
    c = make_content(model);
    add_tensor(c, "fc.weight", 7, numbers);
    add_tensor(c, "fc.bias", 7, numbers);
    add_tensor(c, "optimiser.exp_avg.conv1.weight", 7, numbers);
    if (CHECK_OK(write_content(c, path)) &&
        CHECK_OK(zonal__weights_open(path, zonal__device_ref(), ZONAL_DTYPE_FP32, &read)))
        CHECK(same_values(model, read));
    zonal__model_destroy(read);
    /* num_batches_tracked is younger than batch normalisation: old files lack it. */
    for (int i = 0; i < c->count; i++)
        if (strstr(c->tensors[i].name, "num_batches")) c->tensors[i--] = c->tensors[--c->count];
    if (CHECK_OK(write_content(c, path)) &&
        CHECK_OK(zonal__weights_open(path, zonal__device_ref(), ZONAL_DTYPE_FP32, &read)))
        CHECK(same_values(model, read));
    zonal__model_destroy(read);
    zonal__model_destroy(model);
    drop_content(c);
    test_folder_remove(&folder);
}

/* In bf16 a file holds the rounded values, and so does the copy that a bf16 model computes with. */
static void test_bf16(void) {
    test_folder folder;
    char path[800];
    zonal__network_spec spec = small_network();
    zonal__model *model, *read = NULL;
    content *c;
    if (!CHECK(test_folder_make(&folder)) || !(model = make_model(&spec))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "w.safetensors"));
    for (int64_t i = 0; i < model->graph.parameter_size; i++)
        model->parameters[i] = zonal__bf16_to_float(zonal__bf16_from_float(model->parameters[i]));
    c = make_content(model);
    for (int i = 0; i < c->count; i++) {
        const zonal__entry *entry = &model->graph.entries[i];
        uint16_t *halves = (uint16_t *)c->values[i];
        if (!zonal__entry_is_trained(entry)) continue;
        for (int64_t k = 0; k < entry->count; k++)
            halves[k] = zonal__bf16_from_float(c->values[i][k]);
        c->tensors[i].type = ZONAL__SAFETENSORS_BF16;
    }
    if (CHECK_OK(write_content(c, path)) &&
        CHECK_OK(zonal__weights_open(path, zonal__device_ref(), ZONAL_DTYPE_BF16, &read))) {
        CHECK(same_values(model, read));
        const zonal__entry *entry = zonal__model_find(read, "layer1.0.conv1.weight");
        for (int64_t k = 0; k < entry->count; k++)
            if (!CHECK(zonal__bf16_to_float(read->bf16[entry->offset + k]) ==
                       model->parameters[entry->offset + k]))
                break;
    }
    zonal__model_destroy(read);
    zonal__model_destroy(model);
    drop_content(c);
    test_folder_remove(&folder);
}

/* Spoils one tensor, writes, expects a refusal of opening and of exporting, and mends it. */
typedef struct spoiling {
    const char *path, *target;
    content *c;
} spoiling;

static void expect_refused(const spoiling *s, zonal_status status, const char *text) {
    zonal__model *read;
    zonal__safetensors *file;
    if (!CHECK_OK(write_content(s->c, s->path))) return;
    CHECK_FAILS(zonal__weights_open(s->path, zonal__device_ref(), ZONAL_DTYPE_FP32, &read), status,
                text);
    CHECK(read == NULL);
    if (!CHECK_OK(zonal__safetensors_open(s->path, ZONAL__SAFETENSORS_ANY, &file))) return;
    CHECK_FAILS(zonal__weights_export(file, NULL, 0, s->target), status, text);
    CHECK(access(s->target, F_OK) != 0);
    zonal__safetensors_close(file);
}

static void check_renamed(const spoiling *s, const char *name, const char *other,
                          const char *text) {
    zonal__safetensor *tensor = &s->c->tensors[number_of(s->c, name)];
    tensor->name = other;
    expect_refused(s, ZONAL_FORMAT, text);
    tensor->name = name;
}

static void check_reshaped(const spoiling *s, const char *name, int axis, int64_t side,
                           const char *text) {
    zonal__safetensor *tensor = &s->c->tensors[number_of(s->c, name)], kept = *tensor;
    tensor->shape[axis] = side;
    expect_refused(s, ZONAL_SHAPE, text);
    *tensor = kept;
}

static void check_valued(const spoiling *s, const char *name, float value) {
    float *values = s->c->values[number_of(s->c, name)], kept = values[1];
    values[1] = value;
    expect_refused(s, ZONAL_NUMERIC, name);
    values[1] = kept;
}

static void test_refusals(void) {
    test_folder folder;
    char path[800], target[800];
    float numbers[4] = {0};
    zonal__network_spec spec = small_network();
    zonal__model *model;
    spoiling s = {path, target, NULL};
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "w.safetensors"));
    snprintf(target, sizeof target, "%s", test_folder_file(&folder, "out.safetensors"));
    if (!(model = make_model(&spec))) return;
    s.c = make_content(model);
    check_renamed(&s, "conv1.weight", "stem.weight", "\"conv1.weight\"");
    check_renamed(&s, "layer4.0.conv1.weight", "x", "\"layer4.0.conv1.weight\"");
    check_renamed(&s, "layer3.1.bn2.bias", "layer3.1.bn2.shift", "\"layer3.1.bn2.shift\"");
    check_reshaped(&s, "conv1.weight", 2, 1, "conv1.weight");
    check_reshaped(&s, "layer2.0.conv1.weight", 0, 8, "four groups");
    check_reshaped(&s, "layer2.0.downsample.0.weight", 1, 4, "[16, 4, 1, 1]");
    check_reshaped(&s, "layer2.0.downsample.0.weight", 1, 4, "[16, 8, 1, 1]");
    check_valued(&s, "layer1.0.conv2.weight", NAN);
    check_valued(&s, "bn1.running_var", INFINITY);
    s.c->tensors[number_of(s.c, "bn1.weight")].type = ZONAL__SAFETENSORS_I32;
    expect_refused(&s, ZONAL_DTYPE, "\"bn1.weight\"");
    s.c->tensors[number_of(s.c, "bn1.weight")].type = ZONAL__SAFETENSORS_F32;
    add_tensor(s.c, "layer3.6.conv1.weight", 4, numbers);
    expect_refused(&s, ZONAL_FORMAT, "another architecture");
    s.c->count = 0;
    expect_refused(&s, ZONAL_FORMAT, "no ResNet");
    drop_content(s.c);
    zonal__model_destroy(model);
    test_folder_remove(&folder);
}

/* A file that fails at its last tensor leaves the model as it was. */
static void test_unchanged_on_failure(void) {
    test_folder folder;
    char path[800];
    zonal__network_spec spec = small_network();
    zonal__model *model, *other;
    zonal__safetensors *file;
    content *c;
    if (!CHECK(test_folder_make(&folder)) || !(model = make_model(&spec))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "w.safetensors"));
    other = make_model(&spec);
    c = make_content(model);
    for (int i = 0; i < c->count; i++)
        if (c->values[i]) c->values[i][0] += 1;
    c->values[number_of(c, "projector.3.bias")][3] = NAN;
    if (CHECK_OK(write_content(c, path)) &&
        CHECK_OK(zonal__safetensors_open(path, ZONAL__SAFETENSORS_ANY, &file))) {
        CHECK_FAILS(zonal__weights_load(file, model), ZONAL_NUMERIC, "projector.3.bias");
        CHECK(same_values(model, other));
        zonal__safetensors_close(file);
    }
    zonal__model_destroy(model);
    zonal__model_destroy(other);
    drop_content(c);
    test_folder_remove(&folder);
}

static zonal_status begin_with(const char *path, zonal__model *model, zonal__weights_begun *begun) {
    zonal__safetensors *file;
    zonal_status status;
    ZONAL_TRY(zonal__safetensors_open(path, ZONAL__SAFETENSORS_ANY, &file));
    status = zonal__weights_begin(file, model, begun);
    zonal__safetensors_close(file);
    return status;
}

/* One value of a tensor in a model on the host. */
static float value_of(const zonal__model *model, const char *name) {
    const zonal__entry *entry = zonal__model_find(model, name);
    return (zonal__entry_is_trained(entry) ? model->parameters : model->statistics)[entry->offset];
}

/* Training begins with a file: what fits is taken, a projector that does not is left as it is. */
static void test_begin(void) {
    test_folder folder;
    char path[800];
    zonal__network_spec spec = small_network(), other = spec;
    zonal__model *model, *target, *wider;
    zonal__weights_begun begun;
    content *c;
    if (!CHECK(test_folder_make(&folder)) || !(model = make_model(&spec))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "w.safetensors"));
    for (int64_t i = 0; i < model->graph.parameter_size; i++) model->parameters[i] += 1;
    other.projector_width[0] = 32;
    target = make_model(&spec);
    wider = make_model(&other);
    c = make_content(model);
    CHECK_OK(write_content(c, path));
    if (CHECK_OK(begin_with(path, target, &begun))) {
        CHECK(same_values(model, target) && begun.projector && begun.has_projector);
        CHECK(begun.tensors == c->count - 21); /* norms count their batches, which is not taken */
    }
    float first = value_of(wider, "projector.0.weight"), bias = value_of(wider, "projector.3.bias");
    if (CHECK_OK(begin_with(path, wider, &begun))) {
        CHECK(!begun.projector && begun.has_projector && begun.tensors == 100);
        CHECK(value_of(wider, "conv1.weight") == value_of(model, "conv1.weight"));
        CHECK(value_of(wider, "bn1.running_var") == value_of(model, "bn1.running_var"));
        /* Of its last layer the bias alone would fit: half a projector is none. */
        CHECK(value_of(wider, "projector.0.weight") == first);
        CHECK(value_of(wider, "projector.3.bias") == bias);
    }
    c->tensors[number_of(c, "layer1.0.conv1.weight")].name = "layer1.0.conv7.weight";
    c->tensors[number_of(c, "conv1.weight")].shape[0] = 4;
    CHECK_OK(write_content(c, path));
    zonal__model_destroy(target);
    target = make_model(&spec);
    CHECK_FAILS(begin_with(path, target, &begun), ZONAL_SHAPE,
                "1 missing (layer1.0.conv1.weight), 1 of another shape (conv1.weight is 4x1x3x3, "
                "not 8x1x3x3), 1 without a place (layer1.0.conv7.weight)");
    for (int64_t i = 0; i < model->graph.parameter_size; i++) model->parameters[i] -= 1;
    CHECK(value_of(target, "bn1.weight") == value_of(model, "bn1.weight"));
    zonal__model_destroy(model);
    zonal__model_destroy(target);
    zonal__model_destroy(wider);
    drop_content(c);
    test_folder_remove(&folder);
}

static void test_export(void) {
    static const zonal__safetensors_note notes[] = {{"zonal.mean", "0.5"}, {"zonal.side", "32"}};
    test_folder folder;
    char path[800], target[800];
    float numbers[4] = {0};
    zonal__network_spec spec = small_network();
    zonal__model *model;
    zonal__safetensors *file, *made;
    content *c;
    if (!CHECK(test_folder_make(&folder)) || !(model = make_model(&spec))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "w.safetensors"));
    snprintf(target, sizeof target, "%s", test_folder_file(&folder, "out.safetensors"));
    c = make_content(model);
    add_tensor(c, "optimiser.exp_avg.bn1.bias", 4, numbers);
    if (CHECK_OK(write_content(c, path)) &&
        CHECK_OK(zonal__safetensors_open(path, ZONAL__SAFETENSORS_ANY, &file))) {
        if (CHECK_OK(zonal__weights_export(file, notes, 2, target)) &&
            CHECK_OK(zonal__safetensors_open(target, ZONAL__SAFETENSORS_ANY, &made))) {
            CHECK(made->note_count == 3 &&
                  strcmp(zonal__safetensors_note_text(made, "format"), "pt") == 0 &&
                  strcmp(zonal__safetensors_note_text(made, "zonal.mean"), "0.5") == 0);
            CHECK(made->count == 120); /* 20 convolutions, each with a norm's five */
            for (int64_t i = 0; i < made->count; i++)
                CHECK_MSG(strncmp(made->tensors[i].name, "projector", 9) != 0 &&
                              strncmp(made->tensors[i].name, "optimiser", 9) != 0,
                          "%s is exported", made->tensors[i].name);
            zonal__safetensors_close(made);
        }
        zonal__safetensors_close(file);
    }
    zonal__model_destroy(model);
    drop_content(c);
    test_folder_remove(&folder);
}

static zonal_status open_and_drop(void *context) {
    zonal__model *model;
    ZONAL_TRY(zonal__weights_open(context, zonal__device_ref(), ZONAL_DTYPE_BF16, &model));
    zonal__model_destroy(model);
    return ZONAL_OK;
}

static zonal_status begin_and_drop(void *context) {
    zonal__network_spec spec = small_network();
    zonal__weights_begun begun;
    zonal__model *model;
    zonal_status status;
    ZONAL_TRY(zonal__model_create(&spec, zonal__device_ref(), &model));
    status = begin_with(context, model, &begun);
    zonal__model_destroy(model);
    return status;
}

static zonal_status export_and_drop(void *context) {
    char target[900];
    zonal__safetensors *file;
    zonal_status status;
    snprintf(target, sizeof target, "%s.out", (const char *)context);
    ZONAL_TRY(zonal__safetensors_open(context, ZONAL__SAFETENSORS_ANY, &file));
    status = zonal__weights_export(file, NULL, 0, target);
    zonal__safetensors_close(file);
    return status;
}

static void test_memory(void) {
    test_folder folder;
    char path[800];
    zonal__network_spec spec = small_network();
    zonal__model *model;
    content *c;
    if (!CHECK(test_folder_make(&folder)) || !(model = make_model(&spec))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "w.safetensors"));
    c = make_content(model);
    CHECK_OK(write_content(c, path));
    drop_content(c);
    zonal__model_destroy(model);
    test_every_allocation("opening weights", open_and_drop, path);
    test_every_allocation("beginning with weights", begin_and_drop, path);
    test_every_allocation("exporting weights", export_and_drop, path);
    test_folder_remove(&folder);
}

static const test_case tests[] = {{"a network is known again", test_known_again},
                                  {"classifier and optimiser are left aside", test_left_aside},
                                  {"bf16", test_bf16},
                                  {"refusals", test_refusals},
                                  {"unchanged on failure", test_unchanged_on_failure},
                                  {"begin", test_begin},
                                  {"export", test_export},
                                  {"every allocation fails", test_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
