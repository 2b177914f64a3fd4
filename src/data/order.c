#include "data/order.h"

#include "core/memory.h"
#include "core/random.h"

/* The upper half of a product: uniform below "bound" up to bound/2^64. */
static int64_t below(uint32_t high, uint32_t low, int64_t bound) {
    uint64_t word = (uint64_t)high << 32 | low;
    return (int64_t)((unsigned __int128)word * (uint64_t)bound >> 64);
}

void zonal__order_shuffle(uint64_t seed, uint32_t epoch, int64_t n, int64_t *order) {
    const zonal__random random = {.seed = seed, .stream = ZONAL__STREAM_ORDER, .step = epoch};
    uint32_t word[4] = {0};
    for (int64_t i = 0; i < n; i++) order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t draw = n - 1 - i, other, held = order[i];
        if (draw % 2 == 0) zonal__random_words(&random, (uint64_t)(draw / 2), 0, word);
        other = below(word[draw % 2 * 2], word[draw % 2 * 2 + 1], i + 1);
        order[i] = order[other];
        order[other] = held;
    }
}

zonal_status zonal__steps_init(int64_t count, int64_t batch, uint64_t seed, int in_order,
                               zonal__steps *steps) {
    *steps = (zonal__steps){.count = count,
                            .batch = batch,
                            .seed = seed,
                            .in_order = in_order,
                            .per_epoch = in_order ? (count + batch - 1) / batch : count / batch,
                            .order_epoch = -1};
    return in_order ? ZONAL_OK : ZONAL_NEW(&steps->order, count, "the order of an epoch");
}

void zonal__steps_fini(zonal__steps *steps) {
    zonal__free(steps->order);
    steps->order = NULL;
}

int64_t zonal__steps_samples(zonal__steps *steps, int64_t step, int64_t *epoch, int64_t *samples) {
    int64_t first = step % steps->per_epoch * steps->batch, left = steps->count - first;
    int64_t n = left < steps->batch ? left : steps->batch;
    *epoch = step / steps->per_epoch;
    if (!steps->in_order && *epoch != steps->order_epoch) {
        zonal__order_shuffle(steps->seed, (uint32_t)*epoch, steps->count, steps->order);
        steps->order_epoch = *epoch;
    }
    for (int64_t i = 0; i < n; i++)
        samples[i] = steps->in_order ? first + i : steps->order[first + i];
    return n;
}
