/* The first values of parameters and statistics: init.h. */
#include "nn/init.h"

#include "core/memory.h"
#include "core/random_scalar.h"

/* FNV-1a, folded to the 56 bits that a sample has. */
static uint64_t hash_of(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return (hash >> 56 ^ hash) & 0xffffffffffffffu;
}

static void fill_constant(int64_t count, float value, float *out) {
    for (int64_t i = 0; i < count; i++) out[i] = value;
}

static void fill_normal(const zonal__random *random, const zonal__entry *entry, double std,
                        float *out) {
    uint64_t sample = hash_of(entry->name);
    for (int64_t i = 0; i < entry->count; i += 2) {
        double pair[2];
        zonal__normal_pair(random, sample, (uint32_t)(i / 2), pair);
        out[i] = (float)(std * pair[0]);
        if (i + 1 < entry->count) out[i + 1] = (float)(std * pair[1]);
    }
}

static void fill_uniform(const zonal__random *random, const zonal__entry *entry, double bound,
                         float *out) {
    uint64_t sample = hash_of(entry->name);
    for (int64_t i = 0; i < entry->count; i += 2) {
        double pair[2];
        zonal__uniform_pair(random, sample, (uint32_t)(i / 2), pair);
        out[i] = (float)(bound * (2 * pair[0] - 1));
        if (i + 1 < entry->count) out[i + 1] = (float)(bound * (2 * pair[1] - 1));
    }
}

static void initialise_parameter(const zonal__random *random, const zonal__entry *entry,
                                 float *out) {
    if (entry->kind == ZONAL__ENTRY_SCALE)
        fill_constant(entry->count, 1, out);
    else if (entry->fan_in == 0)
        fill_constant(entry->count, 0, out); /* a batch norm's bias */
    else if (entry->rank == 4)
        fill_normal(random, entry,
                    sqrt(2.0 / (double)(entry->shape[0] * entry->shape[2] * entry->shape[3])), out);
    else
        fill_uniform(random, entry, 1 / sqrt((double)entry->fan_in), out);
}

static void draw(const zonal__graph *graph, uint64_t seed, int zero_init_residual,
                 float *parameters, float *statistics) {
    const zonal__random random = {.seed = seed, .stream = ZONAL__STREAM_INIT};
    for (int i = 0; i < graph->entry_count; i++) {
        const zonal__entry *entry = &graph->entries[i];
        if (zonal__entry_is_trained(entry))
            initialise_parameter(&random, entry, parameters + entry->offset);
        else if (entry->kind != ZONAL__ENTRY_BATCHES)
            fill_constant(entry->count, entry->kind == ZONAL__ENTRY_RUNNING_VARIANCE ? 1 : 0,
                          statistics + entry->offset);
    }
    for (int i = 0; zero_init_residual && i < graph->node_count; i++)
        if (graph->nodes[i].residual != ZONAL__NODE_NONE) {
            const zonal__entry *scale = &graph->entries[graph->nodes[i].entry];
            fill_constant(scale->count, 0, parameters + scale->offset);
        }
}

zonal_status zonal__model_initialise(zonal__model *model, uint64_t seed, int zero_init_residual) {
    const zonal__graph *graph = &model->graph;
    float *parameters = NULL, *statistics = NULL;
    zonal_status status;
    ZONAL_TRY_GOTO(status, done,
                   ZONAL_NEW(&parameters, graph->parameter_size, "the first parameters"));
    ZONAL_TRY_GOTO(status, done,
                   ZONAL_NEW(&statistics, graph->statistic_size, "the first statistics"));
    draw(graph, seed, zero_init_residual, parameters, statistics);
    status = zonal__model_write(model, parameters, statistics);
    model->batches = 0;
done:
    zonal__free(parameters);
    zonal__free(statistics);
    return status;
}
