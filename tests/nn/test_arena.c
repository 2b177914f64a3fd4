/* Arrays that share memory by their lifetimes: src/nn/arena.h. */
#include "core/random.h"
#include "failing_alloc.h"
#include "nn/arena.h"
#include "test.h"

static int overlap(const zonal__lifetime *a, const zonal__lifetime *b) {
    return a->bytes && b->bytes && a->first <= b->last && b->first <= a->last &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Bytes alive at the fullest time: no plan can do with less. */
static size_t fullest(const zonal__lifetime *arrays, int count, int times) {
    size_t most = 0;
    for (int time = 0; time < times; time++) {
        size_t bytes = 0;
        for (int i = 0; i < count; i++)
            if (arrays[i].first <= time && time <= arrays[i].last)
                bytes += (arrays[i].bytes + 63) / 64 * 64;
        if (bytes > most) most = bytes;
    }
    return most;
}

static void test_random_lifetimes(void) {
    const zonal__random random = {.seed = test_seed, .stream = ZONAL__STREAM_TEST};
    enum { MOST = 40, TIMES = 30 };
    for (int trial = 0; trial < 200; trial++) {
        zonal__lifetime arrays[MOST];
        int count = 1 + trial % MOST, wrong = 0;
        size_t bytes;
        for (int i = 0; i < count; i++) {
            uint32_t word[4];
            zonal__random_words(&random, (uint64_t)trial, (uint32_t)i, word);
            arrays[i].bytes = word[0] % 4 ? word[1] % 1000 : 0;
            arrays[i].first = (int)(word[2] % TIMES);
            arrays[i].last = arrays[i].first + (int)(word[3] % 8);
        }
        if (!CHECK_OK(zonal__arena_plan(arrays, count, &bytes))) return;
        for (int i = 0; i < count; i++) {
            for (int k = 0; k < i; k++) wrong += overlap(&arrays[i], &arrays[k]);
            if (arrays[i].bytes)
                wrong += arrays[i].offset % 64 != 0 || arrays[i].offset + arrays[i].bytes > bytes;
        }
        CHECK_MSG(wrong == 0, "trial %d: %d arrays overlap or lie outside", trial, wrong);
        CHECK_MSG((double)bytes <= 2 * (double)fullest(arrays, count, TIMES + 8),
                  "trial %d: %zu bytes, the fullest time has %zu", trial, bytes,
                  fullest(arrays, count, TIMES + 8));
    }
}

static void test_too_much(void) {
    zonal__lifetime arrays[2] = {{.bytes = PTRDIFF_MAX / 2 + 1}, {.bytes = PTRDIFF_MAX / 2 + 1}};
    size_t bytes;
    CHECK_FAILS(zonal__arena_plan(arrays, 2, &bytes), ZONAL_MEMORY, "more than can be addressed");
    arrays[0].bytes = SIZE_MAX;
    CHECK_FAILS(zonal__arena_plan(arrays, 1, &bytes), ZONAL_MEMORY, "more than can be addressed");
}

/* A chain, as an inference makes it: each array is read by the next one. */
static void test_chain(void) {
    zonal__lifetime arrays[10];
    size_t bytes;
    for (int i = 0; i < 10; i++)
        arrays[i] = (zonal__lifetime){.bytes = 640, .first = i, .last = i + 1};
    CHECK_OK(zonal__arena_plan(arrays, 10, &bytes));
    CHECK(bytes == 1280);
    CHECK_OK(zonal__arena_plan(arrays, 0, &bytes));
    CHECK(bytes == 0);
}

static zonal_status plan_two(void *context) {
    zonal__lifetime arrays[2] = {{.bytes = 1}, {.bytes = 2}};
    size_t bytes;
    (void)context;
    return zonal__arena_plan(arrays, 2, &bytes);
}

static void test_allocations(void) {
    test_every_allocation("a plan", plan_two, NULL);
}

static const test_case tests[] = {
    {"random lifetimes", test_random_lifetimes},
    {"chain", test_chain},
    {"too much", test_too_much},
    {"allocations", test_allocations},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
