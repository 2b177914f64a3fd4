#include "train/online_probe.h"

#include <stdio.h>

#include "core/memory.h"

enum { WEIGHT, BIAS };

struct zonal__online_probe {
    zonal__online_probe_spec spec;
    const zonal__device *device;
    const zonal__classifier_table *table;
    zonal__classifier *classifier;
    const zonal__optimiser_table *optimisers;
    zonal__optimiser_spec optimiser_spec;
    zonal__optimiser *optimiser;
    zonal__entry entries[ZONAL__ONLINE_PROBE_ENTRIES];
    size_t row_bytes; /* of features */
    /* memory of the device */
    void *gathered;                /* [rows][dim], of the network's dtype; NULL: not needed */
    const void *features;          /* the same of the step under way, here or elsewhere */
    float *parameters, *gradients; /* weight [classes][dim], bias [classes] */
    /* A stream beside the network's, and events on the two; NULL: there is but that one. */
    void *side, *taken, *stepped;
};

/* ---- create and destroy ---------------------------------------------------------------------- */

static zonal__entry make_entry(const char *name, zonal__entry_kind kind, int64_t offset,
                               int64_t out, int64_t in) {
    zonal__entry entry = {.kind = kind,
                          .rank = in > 0 ? 2 : 1,
                          .shape = {out, in > 0 ? in : 1, 1, 1},
                          .offset = offset,
                          .count = out * (in > 0 ? in : 1)};
    snprintf(entry.name, sizeof entry.name, "%s", name);
    return entry;
}

static void lay_out(zonal__online_probe *p) {
    const zonal__classifier_spec *c = &p->spec.classifier;
    p->entries[WEIGHT] = make_entry("probe.weight", ZONAL__ENTRY_WEIGHT, 0, c->classes, c->dim);
    p->entries[BIAS] =
        make_entry("probe.bias", ZONAL__ENTRY_BIAS, c->classes * c->dim, c->classes, 0);
}

/* On which it computes. */
static void *stream_of(const zonal__online_probe *p) {
    return p->side ? p->side : p->spec.stream;
}

static zonal_status make_side(zonal__online_probe *p) {
    if (zonal__device_is_host(p->device) || p->spec.in_line) return ZONAL_OK;
    ZONAL_TRY(zonal__device_stream_create(p->device, &p->side));
    ZONAL_TRY(zonal__device_event_create(p->device, &p->taken));
    return zonal__device_event_create(p->device, &p->stepped);
}

static zonal_status make_optimiser(zonal__online_probe *p) {
    zonal__optimiser_segment segments[ZONAL__ONLINE_PROBE_ENTRIES];
    zonal_status status;
    for (int i = 0; i < ZONAL__ONLINE_PROBE_ENTRIES; i++)
        segments[i] = (zonal__optimiser_segment){.name = p->entries[i].name,
                                                 .offset = p->entries[i].offset,
                                                 .count = p->entries[i].count};
    p->optimiser_spec = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW);
    p->optimiser_spec.count = zonal__online_probe_size(p);
    p->optimiser_spec.threads = p->spec.classifier.threads;
    p->optimiser_spec.device = p->device;
    ZONAL_TRY(zonal__device_optimisers(p->device, &p->optimisers));
    status = p->optimisers->create(&p->optimiser_spec, segments, ZONAL__ONLINE_PROBE_ENTRIES,
                                   &p->optimiser);
    if (status == ZONAL_OK && p->optimisers->set_stream)
        p->optimisers->set_stream(p->optimiser, stream_of(p));
    return status;
}

static zonal_status make_classifier(zonal__online_probe *p) {
    ZONAL_TRY(zonal__device_classifier(p->device, &p->table));
    ZONAL_TRY(p->table->create(&p->spec.classifier, &p->classifier));
    if (p->table->set_stream) p->table->set_stream(p->classifier, stream_of(p));
    return ZONAL_OK;
}

static zonal_status make_arrays(zonal__online_probe *p) {
    size_t rows = (size_t)p->spec.classifier.rows;
    size_t block = (size_t)zonal__online_probe_size(p) * sizeof(float);
    void *memory;
    ZONAL_TRY(zonal__device_alloc(p->device, block, "the probe", &memory));
    p->parameters = memory;
    ZONAL_TRY(zonal__device_alloc(p->device, block, "the probe's gradient", &memory));
    p->gradients = memory;
    if (p->spec.micro == p->spec.classifier.rows) return ZONAL_OK;
    return zonal__device_alloc(p->device, rows * p->row_bytes, "the probe's features",
                               &p->gathered);
}

zonal_status zonal__online_probe_create(const zonal__online_probe_spec *spec,
                                        zonal__online_probe **out) {
    zonal__online_probe *p;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&p, 1, "the online probe"));
    p->spec = *spec;
    p->device = zonal__device_or_cpu(spec->classifier.device);
    p->row_bytes = (size_t)spec->classifier.dim *
                   (spec->classifier.dtype == ZONAL_DTYPE_BF16 ? sizeof(uint16_t) : sizeof(float));
    lay_out(p);
    status = make_side(p);
    if (status == ZONAL_OK) status = make_classifier(p);
    if (status == ZONAL_OK) status = make_optimiser(p);
    if (status == ZONAL_OK) status = make_arrays(p);
    if (status == ZONAL_OK)
        *out = p;
    else
        zonal__online_probe_destroy(p);
    return status;
}

void zonal__online_probe_destroy(zonal__online_probe *p) {
    if (!p) return;
    if (p->table) p->table->destroy(p->classifier);
    if (p->optimisers) p->optimisers->destroy(p->optimiser);
    zonal__device_free(p->device, p->gathered);
    zonal__device_free(p->device, p->parameters);
    zonal__device_free(p->device, p->gradients);
    zonal__device_event_destroy(p->device, p->taken);
    zonal__device_event_destroy(p->device, p->stepped);
    zonal__device_stream_destroy(p->device, p->side);
    zonal__free(p);
}

/* ---- a step ---------------------------------------------------------------------------------- */

zonal_status zonal__online_probe_take(zonal__online_probe *p, const void *features, int64_t first) {
    p->features = p->gathered ? p->gathered : features;
    if (!p->gathered) return ZONAL_OK;
    return zonal__device_copy_on(p->device, p->spec.stream,
                                 (char *)p->gathered + (size_t)first * p->row_bytes, features,
                                 (size_t)p->spec.micro * p->row_bytes);
}

zonal_status zonal__online_probe_numbers(const zonal__online_probe *p, double rate, int64_t step,
                                         zonal__optimiser_numbers *out) {
    return zonal__optimiser_numbers_make(&p->optimiser_spec, rate, step, out);
}

static zonal_status add_up(const zonal__online_probe *p, zonal__exchange *exchange) {
    zonal__exchange_begin(exchange, p->gradients, zonal__online_probe_size(p));
    return zonal__exchange_end(exchange);
}

int zonal__online_probe_is_beside(const zonal__online_probe *p) {
    return p->side != NULL;
}

/* The side waits for what has been put on the network's stream so far. */
static zonal_status fork_off(const zonal__online_probe *p) {
    if (!p->side) return ZONAL_OK;
    ZONAL_TRY(zonal__device_event_record(p->device, p->taken, p->spec.stream));
    return zonal__device_event_hold(p->device, p->taken, p->side);
}

/* A step that its optimiser refuses leaves the probe as it is: what only looks on does not end a
 * run. */
zonal_status zonal__online_probe_step(zonal__online_probe *p, const int32_t *labels,
                                      zonal__exchange *exchange,
                                      const zonal__optimiser_numbers *numbers, double *norm) {
    const zonal__optimiser_arrays arrays = {.parameters = p->parameters, .gradients = p->gradients};
    zonal_status status;
    ZONAL_TRY(fork_off(p));
    ZONAL_TRY(p->table->gradient(p->classifier, p->features, labels, p->parameters, p->gradients));
    if (exchange) ZONAL_TRY(add_up(p, exchange));
    status = p->optimisers->step(p->optimiser, &arrays, numbers, norm);
    if (status != ZONAL_OK && status != ZONAL_NUMERIC) return status;
    return p->side ? zonal__device_event_record(p->device, p->stepped, p->side) : ZONAL_OK;
}

zonal_status zonal__online_probe_join(const zonal__online_probe *p) {
    if (!p->side) return ZONAL_OK;
    return zonal__device_event_hold(p->device, p->stepped, p->spec.stream);
}

/* ---- what it carries ------------------------------------------------------------------------- */

zonal_status zonal__online_probe_block(zonal__online_probe *p, int number, const char **prefix,
                                       float **block) {
    static const char *const prefixes[ZONAL__ONLINE_PROBE_BLOCKS] = {"", "optimiser.exp_avg.",
                                                                     "optimiser.exp_avg_sq."};
    *prefix = prefixes[number];
    *block = p->parameters;
    if (number == 0) return ZONAL_OK;
    return p->optimisers->state(
        p->optimiser, zonal__optimiser_state_names(ZONAL__OPTIMISER_ADAMW)[number - 1], block);
}

const zonal__entry *zonal__online_probe_entries(const zonal__online_probe *p) {
    return p->entries;
}

int64_t zonal__online_probe_size(const zonal__online_probe *p) {
    return zonal__classifier_parameters(&p->spec.classifier);
}
