#include "train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/safetensors.h"
#include "core/text.h"
#include "train/trainer_state.h"

enum { NAME = 128, MOST_STATES = 2, NOTE = 512 };
enum { MOST_PARTS = 2 + MOST_STATES + ZONAL__ONLINE_PROBE_BLOCKS };

/* A block, what lies where in it, and what its tensors' names begin with. */
typedef struct part {
    const char *prefix; /* "", "optimiser.exp_avg." */
    float *block;       /* memory of the trainer's device */
    int trained;        /* 1: of the entries those that are trained; 0: the statistics */
    const zonal__entry *entries;
    int entry_count;
    int64_t size; /* elements of the block */
} part;

/* ---- what is in it --------------------------------------------------------------------------- */

static zonal_status list_probe(zonal__online_probe *probe, part *parts, int *count) {
    for (int i = 0; i < ZONAL__ONLINE_PROBE_BLOCKS; i++) {
        part *p = &parts[(*count)++];
        *p = (part){.trained = 1,
                    .entries = zonal__online_probe_entries(probe),
                    .entry_count = ZONAL__ONLINE_PROBE_ENTRIES,
                    .size = zonal__online_probe_size(probe)};
        ZONAL_TRY(zonal__online_probe_block(probe, i, &p->prefix, &p->block));
    }
    return ZONAL_OK;
}

static zonal_status list_parts(zonal__trainer *t, char prefix[MOST_STATES][NAME], part *parts,
                               int *count) {
    const char *const *names = zonal__optimiser_state_names(t->options.optimiser.kind);
    const zonal__graph *g = &t->model->graph;
    *count = 0;
    parts[(*count)++] =
        (part){"", t->model->parameters, 1, g->entries, g->entry_count, g->parameter_size};
    parts[(*count)++] =
        (part){"", t->model->statistics, 0, g->entries, g->entry_count, g->statistic_size};
    for (int i = 0; names[i] && i < MOST_STATES; i++) {
        float *state;
        ZONAL_TRY(t->optimisers->state(t->optimiser, names[i], &state));
        snprintf(prefix[i], NAME, "optimiser.%s.", names[i]);
        parts[(*count)++] =
            (part){prefix[i], state, 1, g->entries, g->entry_count, g->parameter_size};
    }
    return t->probe ? list_probe(t->probe, parts, count) : ZONAL_OK;
}

static int belongs(const zonal__entry *entry, const part *p) {
    if (entry->kind == ZONAL__ENTRY_BATCHES) return 0;
    return zonal__entry_is_trained(entry) == p->trained;
}

static size_t part_bytes(const part *p) {
    return (size_t)p->size * sizeof(float);
}

/* Where a part's block can be read and written by the processor: itself, or on a device a copy in
 * "staging", which has room for any part. put_back brings the copy to the device again. */
static zonal_status reach(const zonal__trainer *t, const part *p, float *staging, float **block) {
    *block = zonal__device_is_host(t->device) ? p->block : staging;
    if (zonal__device_is_host(t->device)) return ZONAL_OK;
    return zonal__device_read(t->device, staging, p->block, part_bytes(p));
}

static zonal_status put_back(const zonal__trainer *t, const part *p, const float *block) {
    if (zonal__device_is_host(t->device)) return ZONAL_OK;
    return zonal__device_write(t->device, p->block, block, part_bytes(p));
}

static zonal_status alloc_staging(const zonal__trainer *t, const part *parts, int count,
                                  float **staging) {
    int64_t most = 0;
    for (int k = 0; k < count; k++)
        if (parts[k].size > most) most = parts[k].size;
    *staging = NULL;
    return zonal__device_is_host(t->device) ? ZONAL_OK : ZONAL_NEW(staging, most, "a checkpoint");
}

/* What must agree between the trainer that saves and the one that loads. */
static void describe_network(const zonal__trainer *t, char out[NOTE]) {
    const zonal__network_spec *n = &t->options.network;
    int used = snprintf(out, NOTE, "resnet%d, %s stem, %d channels, width %g, projector", n->depth,
                        n->stem == ZONAL__STEM_SMALL ? "small" : "imagenet", n->channels, n->width);
    for (int i = 0; i < n->projector_layers && used < NOTE; i++)
        used += snprintf(out + used, (size_t)(NOTE - used), "%s%d", i ? "-" : " ",
                         n->projector_width[i]);
    if (used < NOTE)
        snprintf(out + used, (size_t)(NOTE - used), ", %s%s%s",
                 n->projector_activation == ZONAL__ACTIVATION_GELU ? "gelu" : "relu",
                 n->projector_norm ? ", batch norm" : "",
                 n->projector_last_bias ? ", last bias" : "");
}

static const char *describe_optimiser(const zonal__trainer *t) {
    static const char *const kinds[] = {"adamw", "sgd", "lars"};
    return kinds[t->options.optimiser.kind];
}

/* ---- snapshots ------------------------------------------------------------------------------- */

struct zonal__snapshot {
    zonal__trainer *trainer;
    int count;
    part device[MOST_PARTS]; /* the trainer's own blocks ... */
    part host[MOST_PARTS];   /* ... and the copies of them */
    char prefix[MOST_STATES][NAME];
    void *memory; /* of all copies, such that the device writes to it at full speed */
    int64_t step, batches;
};

static zonal_status fill_snapshot(zonal__trainer *t, zonal__snapshot *s) {
    size_t bytes = 0;
    s->trainer = t;
    ZONAL_TRY(list_parts(t, s->prefix, s->device, &s->count));
    for (int k = 0; k < s->count; k++) bytes += part_bytes(&s->device[k]);
    ZONAL_TRY(zonal__device_pinned_alloc(t->device, bytes, &s->memory));
    float *at = s->memory;
    for (int k = 0; k < s->count; k++) {
        s->host[k] = s->device[k];
        s->host[k].block = at;
        at += part_bytes(&s->device[k]) / sizeof *at;
    }
    return ZONAL_OK;
}

zonal_status zonal__snapshot_create(zonal__trainer *t, zonal__snapshot **out) {
    zonal__snapshot *s;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&s, 1, "a checkpoint"));
    zonal_status status = fill_snapshot(t, s);
    if (status == ZONAL_OK)
        *out = s;
    else
        zonal__snapshot_destroy(s);
    return status;
}

void zonal__snapshot_destroy(zonal__snapshot *s) {
    if (!s) return;
    zonal__device_pinned_free(s->trainer->device, s->memory);
    zonal__free(s);
}

zonal_status zonal__snapshot_take(zonal__snapshot *s) {
    zonal__trainer *t = s->trainer;
    for (int k = 0; k < s->count; k++)
        ZONAL_TRY(zonal__device_read(t->device, s->host[k].block, s->device[k].block,
                                     part_bytes(&s->device[k])));
    s->step = t->done;
    s->batches = t->model->batches;
    return ZONAL_OK;
}

int64_t zonal__snapshot_step(const zonal__snapshot *s) {
    return s->step;
}

typedef struct content {
    zonal__safetensor *tensors;
    char (*names)[2 * NAME];
    float *values; /* of all tensors, one after the other */
    int64_t count, used;
} content;

static void put_entry(content *c, const zonal__entry *entry, const part *p) {
    zonal__safetensor *tensor = &c->tensors[c->count];
    char *name = c->names[c->count++];
    snprintf(name, sizeof c->names[0], "%s%s", p->prefix, entry->name);
    *tensor = (zonal__safetensor){.name = name,
                                  .type = ZONAL__SAFETENSORS_F32,
                                  .rank = entry->rank,
                                  .data = c->values + c->used};
    memcpy(tensor->shape, entry->shape, (size_t)entry->rank * sizeof *tensor->shape);
    zonal__entry_export(entry, p->block, c->values + c->used);
    c->used += entry->count;
}

static zonal_status gather(const zonal__snapshot *s, content *c) {
    const zonal__graph *graph = &s->trainer->model->graph;
    int64_t values = 0, tensors = 0;
    for (int k = 0; k < s->count; k++)
        for (int i = 0; i < s->host[k].entry_count; i++)
            if (belongs(&s->host[k].entries[i], &s->host[k])) {
                values += s->host[k].entries[i].count;
                tensors++;
            }
    tensors += graph->entry_count; /* room for the batches of every norm */
    ZONAL_TRY(ZONAL_NEW(&c->values, values, "a checkpoint"));
    ZONAL_TRY(ZONAL_NEW(&c->tensors, tensors, "a checkpoint"));
    ZONAL_TRY(ZONAL_NEW(&c->names, tensors, "a checkpoint"));
    for (int k = 0; k < s->count; k++)
        for (int i = 0; i < s->host[k].entry_count; i++)
            if (belongs(&s->host[k].entries[i], &s->host[k]))
                put_entry(c, &s->host[k].entries[i], &s->host[k]);
    for (int i = 0; i < graph->entry_count; i++)
        if (graph->entries[i].kind == ZONAL__ENTRY_BATCHES)
            c->tensors[c->count++] = (zonal__safetensor){.name = graph->entries[i].name,
                                                         .type = ZONAL__SAFETENSORS_I64,
                                                         .data = &s->batches};
    return ZONAL_OK;
}

zonal_status zonal__snapshot_write(const zonal__snapshot *s, const char *path) {
    const zonal__trainer *t = s->trainer;
    char step[32], network[NOTE];
    content c = {0};
    const zonal__safetensors_note notes[] = {{"zonal.step", step},
                                             {"zonal.network", network},
                                             {"zonal.optimiser", describe_optimiser(t)},
                                             {"zonal.configuration", t->options.configuration}};
    const int64_t note_count = 3 + (t->options.configuration != NULL);
    snprintf(step, sizeof step, "%" PRId64, s->step);
    describe_network(t, network);
    zonal_status status = gather(s, &c);
    if (status == ZONAL_OK)
        status =
            zonal__safetensors_write(path, &(zonal__safetensors_content){.tensors = c.tensors,
                                                                         .count = c.count,
                                                                         .notes = notes,
                                                                         .note_count = note_count,
                                                                         .checksum = 1,
                                                                         .plain = 1});
    zonal__free(c.values);
    zonal__free(c.tensors);
    zonal__free(c.names);
    return status;
}

zonal_status zonal__checkpoint_save(zonal__trainer *t, const char *path) {
    zonal__snapshot *s;
    zonal_status status;
    ZONAL_TRY(zonal__snapshot_create(t, &s));
    status = zonal__snapshot_take(s);
    if (status == ZONAL_OK) status = zonal__snapshot_write(s, path);
    zonal__snapshot_destroy(s);
    return status;
}

/* ---- load ------------------------------------------------------------------------------------ */

static zonal_status agree(const zonal__safetensors *file, const char *key, const char *ours) {
    const char *theirs = zonal__safetensors_note_text(file, key);
    if (!theirs)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s is not a checkpoint of a training run: it has no %s",
                          file->path, key);
    if (strcmp(theirs, ours) != 0)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s was made for another %s: \"%s\" there, \"%s\" here",
                          file->path, key + strlen("zonal."), theirs, ours);
    return ZONAL_OK;
}

static zonal_status find_entry(const zonal__safetensors *file, const zonal__entry *entry,
                               const part *p, const zonal__safetensor **tensor) {
    char name[2 * NAME];
    snprintf(name, sizeof name, "%s%s", p->prefix, entry->name);
    return zonal__safetensors_get(file, name, entry->rank, entry->shape, tensor);
}

static int64_t largest_entry(const part *parts, int count) {
    int64_t most = 1;
    for (int k = 0; k < count; k++)
        for (int i = 0; i < parts[k].entry_count; i++)
            if (parts[k].entries[i].count > most) most = parts[k].entries[i].count;
    return most;
}

/* Block NULL: only looks whether all tensors are there. */
static zonal_status take_part(const zonal__safetensors *file, const part *p, float *buffer,
                              float *block) {
    for (int i = 0; i < p->entry_count; i++) {
        const zonal__entry *entry = &p->entries[i];
        const zonal__safetensor *tensor;
        if (!belongs(entry, p)) continue;
        ZONAL_TRY(find_entry(file, entry, p, &tensor));
        if (!block) continue;
        zonal__safetensors_floats(tensor, buffer);
        zonal__entry_import(entry, buffer, block);
    }
    return ZONAL_OK;
}

/* All tensors are looked for first: a file that lacks one changes nothing. */
static zonal_status take_all(const zonal__trainer *t, const zonal__safetensors *file,
                             const part *parts, int count) {
    float *buffer = NULL, *staging = NULL, *block;
    zonal_status status;
    for (int k = 0; k < count; k++) ZONAL_TRY(take_part(file, &parts[k], NULL, NULL));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&buffer, largest_entry(parts, count), "a checkpoint"));
    ZONAL_TRY_GOTO(status, done, alloc_staging(t, parts, count, &staging));
    for (int k = 0; k < count; k++) {
        ZONAL_TRY_GOTO(status, done, reach(t, &parts[k], staging, &block));
        ZONAL_TRY_GOTO(status, done, take_part(file, &parts[k], buffer, block));
        ZONAL_TRY_GOTO(status, done, put_back(t, &parts[k], block));
    }
done:
    zonal__free(buffer);
    zonal__free(staging);
    return status;
}

static zonal_status load_from(zonal__trainer *t, const zonal__safetensors *file) {
    char prefix[MOST_STATES][NAME], network[NOTE];
    part parts[MOST_PARTS];
    const char *text = zonal__safetensors_note_text(file, "zonal.step");
    int64_t step;
    int count;
    describe_network(t, network);
    ZONAL_TRY(agree(file, "zonal.network", network));
    ZONAL_TRY(agree(file, "zonal.optimiser", describe_optimiser(t)));
    if (!text || zonal__text_int64(text, "zonal.step", &step) != ZONAL_OK || step < 0)
        return ZONAL_FAIL(ZONAL_FORMAT, "%s does not say at which step to resume: zonal.step is %s",
                          file->path, text ? text : "missing");
    ZONAL_TRY(list_parts(t, prefix, parts, &count));
    ZONAL_TRY(take_all(t, file, parts, count));
    return zonal__trainer_resume_at(t, step);
}

zonal_status zonal__checkpoint_load(zonal__trainer *t, const char *path) {
    zonal__safetensors *file;
    zonal_status status;
    ZONAL_TRY(zonal__safetensors_open(path, ZONAL__SAFETENSORS_SUMMED, &file));
    status = load_from(t, file);
    zonal__safetensors_close(file);
    return status;
}

/* ---- to other ranks -------------------------------------------------------------------------- */

static zonal_status spread_parts(zonal__trainer *t, const zonal_communicator *c, const part *parts,
                                 int count, float *staging) {
    for (int k = 0; k < count; k++) {
        float *block;
        ZONAL_TRY(reach(t, &parts[k], staging, &block));
        ZONAL_TRY(c->broadcast(c->context, block, (int64_t)part_bytes(&parts[k]), 0, NULL));
        ZONAL_TRY(put_back(t, &parts[k], block));
    }
    return ZONAL_OK;
}

zonal_status zonal__checkpoint_spread(zonal__trainer *t, const zonal_communicator *c) {
    char prefix[MOST_STATES][NAME];
    part parts[MOST_PARTS];
    float *staging = NULL;
    int64_t step = t->done;
    int count = 0;
    zonal_status status;
    if (!c) return ZONAL_OK;
    status = list_parts(t, prefix, parts, &count);
    if (status == ZONAL_OK) status = alloc_staging(t, parts, count, &staging);
    status = zonal__ranks_agree(t->ranks, status);
    if (status == ZONAL_OK) status = spread_parts(t, c, parts, count, staging);
    if (status == ZONAL_OK) status = c->broadcast(c->context, &step, sizeof step, 0, NULL);
    zonal__free(staging);
    ZONAL_TRY(status);
    return zonal__ranks_agree(t->ranks, c->rank > 0 ? zonal__trainer_resume_at(t, step) : ZONAL_OK);
}

zonal_status zonal__checkpoint_configuration(const char *path, char **text) {
    zonal__safetensors *file;
    const char *note;
    zonal_status status = ZONAL_OK;
    *text = NULL;
    ZONAL_TRY(zonal__safetensors_open(path, ZONAL__SAFETENSORS_SUMMED, &file));
    note = zonal__safetensors_note_text(file, "zonal.configuration");
    if (note) {
        size_t length = strlen(note) + 1;
        status = ZONAL_NEW(text, length, "a checkpoint's configuration");
        if (status == ZONAL_OK) memcpy(*text, note, length);
    }
    zonal__safetensors_close(file);
    return status;
}
