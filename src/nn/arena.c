/* Places for arrays by their lifetimes: arena.h. */
#include "nn/arena.h"

#include "core/memory.h"

enum { ALIGNMENT = 64 };

static size_t rounded(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int meet(const zonal__lifetime *a, const zonal__lifetime *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* Inserts array "index" before the first one with fewer bytes, so that equal ones keep their order.
 */
static void insert_by_size(const zonal__lifetime *lifetimes, int *order, int count, int index) {
    int at = count;
    for (; at > 0 && lifetimes[order[at - 1]].bytes < lifetimes[index].bytes; at--)
        order[at] = order[at - 1];
    order[at] = index;
}

static void insert_by_offset(const zonal__lifetime *lifetimes, int *placed, int count, int index) {
    int at = count;
    for (; at > 0 && lifetimes[placed[at - 1]].offset > lifetimes[index].offset; at--)
        placed[at] = placed[at - 1];
    placed[at] = index;
}

/* The lowest offset at which "array" misses all placed ones that it meets in time. */
static size_t lowest_gap(const zonal__lifetime *lifetimes, const int *placed, int count,
                         const zonal__lifetime *array) {
    size_t end = 0;
    for (int i = 0; i < count; i++) {
        const zonal__lifetime *other = &lifetimes[placed[i]];
        size_t other_end = other->offset + rounded(other->bytes);
        if (!meet(array, other)) continue;
        if (other->offset >= end && other->offset - end >= rounded(array->bytes)) break;
        if (other_end > end) end = other_end;
    }
    return end;
}

/* The sum of all arrays fits into a size_t, hence every offset does. */
static zonal_status check_sum(const zonal__lifetime *lifetimes, int count) {
    size_t sum = 0;
    for (int i = 0; i < count; i++)
        if (lifetimes[i].bytes > PTRDIFF_MAX - ALIGNMENT ||
            __builtin_add_overflow(sum, rounded(lifetimes[i].bytes), &sum) || sum > PTRDIFF_MAX)
            return ZONAL_FAIL(ZONAL_MEMORY, "the activations are more than can be addressed; use "
                                            "fewer or smaller images");
    return ZONAL_OK;
}

zonal_status zonal__arena_plan(zonal__lifetime *lifetimes, int count, size_t *bytes) {
    int *order, *placed, used = 0;
    ZONAL_TRY(check_sum(lifetimes, count));
    ZONAL_TRY(ZONAL_NEW(&order, 2 * (int64_t)count, "the plan of the activations"));
    placed = order + count;
    *bytes = 0;
    for (int i = 0; i < count; i++)
        if (lifetimes[i].bytes) insert_by_size(lifetimes, order, used++, i);
    for (int i = 0; i < used; i++) {
        zonal__lifetime *array = &lifetimes[order[i]];
        array->offset = lowest_gap(lifetimes, placed, i, array);
        insert_by_offset(lifetimes, placed, i, order[i]);
        if (array->offset + rounded(array->bytes) > *bytes)
            *bytes = array->offset + rounded(array->bytes);
    }
    zonal__free(order);
    return ZONAL_OK;
}
