/*
 * Loading: what a batch holds depends on seed and step alone, every epoch visits everything once,
 * and trouble in a worker reaches the caller. The source is made up here, so that each image's
 * bytes, and with them the right answers, are known in closed form.
 */
#include <stdlib.h>

#include "core/memory.h"
#include "data/loader.h"
#include "data/source.h"
#include "failing_alloc.h"
#include "test.h"

/* ---- a source in closed form ---------------------------------------------------------------- */

enum { SIDE = 9 };

typedef struct made_up {
    zonal__source source;
    int64_t corrupt, unreadable; /* images that cannot be had; -1: none */
    int varied;
} made_up;

static uint8_t pixel(int64_t index, int64_t at) {
    return (uint8_t)((index * 7 + at * 3) % 251);
}

static zonal_status read_made_up(zonal__source *source, int64_t index, zonal__image *out) {
    const made_up *m = (const made_up *)source;
    int height = m->varied ? SIDE + (int)(index % 5) : SIDE;
    if (index == m->unreadable) return ZONAL_FAIL(ZONAL_IO, "image %d is away", (int)index);
    if (index == m->corrupt) return ZONAL_FAIL(ZONAL_FORMAT, "image %d is torn", (int)index);
    ZONAL_TRY(zonal__image_shape(out, SIDE, height, 1));
    for (int64_t i = 0; i < SIDE * height; i++) out->pixels[i] = pixel(index, i);
    return ZONAL_OK;
}

static const zonal__source_table made_up_table = {.kind = "made up", .read = read_made_up};

static int32_t labels[1000];

static made_up make_source(int64_t count) {
    for (int i = 0; i < 1000; i++) labels[i] = i % 3;
    return (made_up){.source = {.table = &made_up_table,
                                .count = count,
                                .labels = labels,
                                .classes = 3,
                                .width = SIDE,
                                .height = SIDE,
                                .channels = 1,
                                .path = "made-up",
                                .max_corrupt = 0.5},
                     .corrupt = -1,
                     .unreadable = -1};
}

static zonal__augmentation texture_augmentation[2];

static zonal__loader_options options_for(made_up *m, int64_t batch) {
    zonal__augmentation_texture(&texture_augmentation[0]);
    texture_augmentation[1] = texture_augmentation[0];
    return (zonal__loader_options){
        .source = &m->source,
        .batch = batch,
        .groups = 1,
        .group = {{.views = 2, .width = 7, .height = 5, .augmentations = texture_augmentation}},
        .channels = 1,
        .seed = test_seed};
}

/* ---- the order ------------------------------------------------------------------------------- */

static void test_order(void) {
    enum { N = 1001 };
    int64_t a[N], b[N], moved = 0, seen[N] = {0};
    zonal__order_shuffle(5, 2, N, a);
    zonal__order_shuffle(5, 2, N, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
    for (int i = 0; i < N; i++) seen[a[i]]++;
    for (int i = 0; i < N; i++) CHECK_MSG(seen[i] == 1, "%d comes %d times", i, (int)seen[i]);
    zonal__order_shuffle(5, 3, N, b);
    for (int i = 0; i < N; i++) moved += a[i] != b[i];
    CHECK(moved > N - 10); /* about one stays where it is */
    zonal__order_shuffle(6, 2, N, b);
    CHECK(memcmp(a, b, sizeof a) != 0);
}

/* Where a given element lands is uniform: chi-square over 16 places, 4000 epochs. */
static void test_order_uniform(void) {
    enum { N = 16, EPOCHS = 4000 };
    int64_t order[N], count[N] = {0};
    double chi2 = 0, expected = (double)EPOCHS / N;
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        zonal__order_shuffle(test_seed, epoch, N, order);
        for (int i = 0; i < N; i++)
            if (order[i] == 3) count[i]++;
    }
    for (int i = 0; i < N; i++)
        chi2 += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
    CHECK_MSG(chi2 < 44.3, "chi-square %.1f of 15 degrees of freedom", chi2); /* p = 1e-4 */
}

/* ---- batches --------------------------------------------------------------------------------- */

/* A number for all that a batch holds. */
static uint64_t digest(const zonal__batch *batch, size_t view_bytes) {
    uint64_t hash = 1469598103934665603u;
    const unsigned char *parts[] = {(const unsigned char *)batch->samples,
                                    (const unsigned char *)batch->labels, batch->views[0]};
    size_t sizes[] = {(size_t)batch->count * 8, (size_t)batch->count * 4, view_bytes};
    for (int p = 0; p < 3; p++)
        for (size_t i = 0; i < sizes[p]; i++) hash = (hash ^ parts[p][i]) * 1099511628211u;
    return hash;
}

enum { STEPS = 23, BATCH = 6, COUNT = 40 };

static void digests(int workers, int ahead, int64_t first, uint64_t out[STEPS]) {
    made_up m = make_source(COUNT);
    zonal__loader_options options = options_for(&m, BATCH);
    zonal__loader *loader;
    const zonal__batch *batch;
    options.workers = workers;
    options.ahead = ahead;
    options.first_step = first;
    if (!CHECK_OK(zonal__loader_create(&options, &loader))) return;
    for (int64_t step = first; step < STEPS; step++) {
        if (!CHECK_OK(zonal__loader_next(loader, &batch))) break;
        CHECK(batch->step == step && batch->count == BATCH && batch->epoch == step / 6);
        out[step] = digest(batch, 2 * BATCH * 7 * 5 * sizeof(float));
    }
    zonal__loader_destroy(loader);
}

static void test_same_batches(void) {
    uint64_t one[STEPS] = {0}, other[STEPS] = {0};
    digests(1, 1, 0, one);
    for (int workers = 1; workers <= 5; workers += 2)
        for (int ahead = 1; ahead <= 4; ahead++) {
            digests(workers, ahead, 0, other);
            CHECK_MSG(memcmp(one, other, sizeof one) == 0, "%d workers, %d ahead differ", workers,
                      ahead);
        }
    for (int64_t first = 1; first < STEPS; first += 5) { /* a run resumed there */
        digests(3, 3, first, other);
        CHECK(memcmp(one + first, other + first, (size_t)(STEPS - first) * sizeof *one) == 0);
    }
    for (int i = 1; i < STEPS; i++) CHECK(one[i] != one[0]);
}

static void test_epochs(void) {
    made_up m = make_source(COUNT);
    zonal__loader_options options = options_for(&m, BATCH);
    zonal__loader *loader;
    const zonal__batch *batch;
    if (!CHECK_OK(zonal__loader_create(&options, &loader))) return;
    CHECK(zonal__loader_steps_per_epoch(loader) == COUNT / BATCH);
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen[COUNT] = {0};
        for (int step = 0; step < COUNT / BATCH; step++) {
            if (!CHECK_OK(zonal__loader_next(loader, &batch))) break;
            for (int64_t i = 0; i < batch->count; i++) {
                CHECK(seen[batch->samples[i]]++ == 0);
                CHECK(batch->labels[i] == batch->samples[i] % 3);
            }
        }
    }
    zonal__loader_destroy(loader);
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* Copies the views of a share's sample i into the place that it has in the whole batch. */
static void put_share(const zonal__batch *part, const zonal__share *share, int64_t batch,
                      float *views, int64_t *samples) {
    enum { VIEW = 7 * 5 };
    for (int64_t i = 0; i < part->count; i++) {
        int64_t at = i / share->count * share->of + share->first + i % share->count;
        samples[at] = part->samples[i];
        for (int64_t v = 0; v < 2; v++)
            memcpy(views + (v * batch + at) * VIEW,
                   (const float *)part->views[0] + (v * part->count + i) * VIEW,
                   VIEW * sizeof(float));
    }
}

/* Three ranks' shares, of whole batches of 12 or of every 6 images of them, are the batches of one
 * loader: the same images in the same order, and the same views to the bit. */
static void check_shares(int64_t of, int in_order) {
    enum { WHOLE = 12, TURNS = 5, VALUES = 2 * WHOLE * 7 * 5 };
    static const int64_t first[] = {0, 1, 4}, count[] = {1, 3, 2};
    made_up m = make_source(50);
    zonal__loader_options options = options_for(&m, WHOLE);
    zonal__loader *whole, *part[3] = {0};
    const zonal__batch *all, *own;
    options.in_order = in_order;
    if (!CHECK_OK(zonal__loader_create(&options, &whole))) return;
    for (int r = 0; r < 3; r++) {
        options.share = (zonal__share){of, of / 6 * first[r], of / 6 * count[r]};
        CHECK_OK(zonal__loader_create(&options, &part[r]));
    }
    for (int step = 0; step < TURNS && part[0] && part[1] && part[2]; step++) {
        float views[VALUES];
        int64_t samples[WHOLE], rows = 0;
        if (!CHECK_OK(zonal__loader_next(whole, &all))) break;
        for (int r = 0; r < 3; r++) {
            const zonal__share share = {of, of / 6 * first[r], of / 6 * count[r]};
            if (!CHECK_OK(zonal__loader_next(part[r], &own))) break;
            CHECK(own->step == all->step && own->epoch == all->epoch);
            rows += own->count;
            put_share(own, &share, all->count, views, samples);
        }
        if (!CHECK(rows == all->count)) break;
        CHECK(!memcmp(samples, all->samples, (size_t)rows * sizeof *samples));
        CHECK(!memcmp(views, all->views[0], (size_t)(rows * 2 * 7 * 5) * sizeof *views));
    }
    zonal__loader_destroy(whole);
    for (int r = 0; r < 3; r++) zonal__loader_destroy(part[r]);
}

/* In order the last batch has 2 images, and so nothing for the last rank. */
static void test_shares(void) {
    made_up m = make_source(50);
    zonal__loader_options options = options_for(&m, 12);
    static const zonal__share wrong[] = {
        {5, 0, 1}, {12, 10, 3}, {12, 0, 0}, {12, -1, 2}, {0, 0, 1}};
    zonal__loader *loader;
    check_shares(12, 0);
    check_shares(6, 0);
    check_shares(12, 1);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        options.share = wrong[i];
        CHECK_FAILS(zonal__loader_create(&options, &loader), ZONAL_ARGUMENT, "share");
    }
}

/* Everything once, in order, the last batch smaller; identity views give the pixels back. */
static void test_in_order(void) {
    made_up m = make_source(COUNT);
    zonal__loader_options options = options_for(&m, 16);
    zonal__augmentation identity;
    zonal__loader *loader;
    const zonal__batch *batch;
    int64_t next = 0;
    zonal__augmentation_identity(ZONAL__VIEW_PHOTOGRAPH, &identity);
    options.in_order = 1;
    options.group[0] =
        (zonal__view_group){.views = 1, .width = SIDE, .height = SIDE, .augmentations = &identity};
    if (!CHECK_OK(zonal__loader_create(&options, &loader))) return;
    for (int step = 0; step < 3; step++) {
        if (!CHECK_OK(zonal__loader_next(loader, &batch))) break;
        CHECK(batch->count == (step < 2 ? 16 : COUNT - 32));
        const float *view = batch->views[0];
        for (int64_t i = 0; i < batch->count; i++, next++) {
            CHECK(batch->samples[i] == next);
            for (int k = 0; k < SIDE * SIDE; k++)
                CHECK_CLOSE(view[i * SIDE * SIDE + k], pixel(next, k) / 255.0, 1e-6);
        }
    }
    CHECK(next == COUNT);
    zonal__loader_destroy(loader);
}

/* Raw batches hold the images' own bytes, and parameters that make the same views. */
static void test_raw(void) {
    made_up m = make_source(COUNT);
    zonal__loader_options options = options_for(&m, BATCH);
    zonal__loader *loader, *made;
    const zonal__batch *raw, *views;
    zonal__views_spec spec = {.kind = ZONAL__VIEW_TEXTURE,
                              .width = 7,
                              .height = 5,
                              .channels = 1,
                              .count = 2 * BATCH,
                              .std = {1, 1, 1},
                              .dtype = ZONAL_DTYPE_FP32};
    zonal__views *engine = NULL;
    float out[2 * BATCH * 35];
    m.varied = 1;
    m.source.width = m.source.height = 0;
    options.raw = 1;
    if (!CHECK_OK(zonal__loader_create(&options, &loader))) return;
    options.raw = 0;
    if (CHECK_OK(zonal__loader_create(&options, &made)) &&
        CHECK_OK(zonal__views_cpu()->create(&spec, &engine)))
        for (int step = 0; step < 4; step++) {
            if (!CHECK_OK(zonal__loader_next(loader, &raw)) ||
                !CHECK_OK(zonal__loader_next(made, &views)))
                break;
            for (int64_t i = 0; i < BATCH; i++) {
                const zonal__image_place *p = &raw->places[i];
                CHECK(p->height == SIDE + raw->samples[i] % 5 && p->width == SIDE);
                for (int64_t k = 0; k < SIDE * p->height; k++)
                    CHECK(raw->pixels[p->offset + k] == pixel(raw->samples[i], k));
                CHECK((size_t)p->offset + (size_t)(SIDE * p->height) <= raw->bytes);
            }
            CHECK_OK(zonal__views_cpu()->run(engine, raw->pixels, raw->places, raw->parameters[0],
                                             2 * BATCH, out));
            CHECK(memcmp(out, views->views[0], sizeof out) == 0);
        }
    zonal__views_cpu()->destroy(engine);
    zonal__loader_destroy(loader);
    zonal__loader_destroy(made);
}

/* Images over the raw limit are shrunk to it. */
static void test_raw_limit(void) {
    made_up m = make_source(COUNT);
    zonal__loader_options options = options_for(&m, BATCH);
    zonal__loader *loader;
    const zonal__batch *batch;
    options.raw = 1;
    options.max_side = 5;
    if (!CHECK_OK(zonal__loader_create(&options, &loader))) return;
    if (CHECK_OK(zonal__loader_next(loader, &batch)))
        for (int i = 0; i < BATCH; i++)
            CHECK(batch->places[i].width == 5 && batch->places[i].height == 5);
    zonal__loader_destroy(loader);
}

/* ---- trouble --------------------------------------------------------------------------------- */

static void test_corrupt(void) {
    made_up m = make_source(COUNT);
    zonal__loader_options options = options_for(&m, BATCH);
    zonal__loader *loader;
    const zonal__batch *batch;
    m.corrupt = 11;
    if (!CHECK_OK(zonal__loader_create(&options, &loader))) return;
    for (int step = 0; step < 18; step++) {
        if (!CHECK_OK(zonal__loader_next(loader, &batch))) break;
        for (int i = 0; i < BATCH; i++)
            CHECK(batch->samples[i] != 11 && batch->labels[i] == batch->samples[i] % 3);
    }
    zonal__loader_destroy(loader);
    CHECK(m.source.bad == 1);
    zonal__free((void *)m.source.known_bad); /* all that a source without a file has taken */
}

static void test_failure(void) {
    made_up m = make_source(COUNT);
    zonal__loader_options options = options_for(&m, BATCH);
    zonal__loader *loader;
    const zonal__batch *batch;
    zonal_status status = ZONAL_OK;
    m.unreadable = 30;
    if (!CHECK_OK(zonal__loader_create(&options, &loader))) return;
    for (int step = 0; step < COUNT && status == ZONAL_OK; step++)
        status = zonal__loader_next(loader, &batch);
    CHECK_FAILS(status, ZONAL_IO, "image 30 is away");
    CHECK_FAILS(zonal__loader_next(loader, &batch), ZONAL_IO, "image 30");
    zonal__loader_destroy(loader);
}

/* Stopped in the middle, at once and after a batch. */
static void test_destroy_early(void) {
    made_up m = make_source(COUNT);
    zonal__loader_options options = options_for(&m, BATCH);
    const zonal__batch *batch;
    for (int i = 0; i < 20; i++) {
        zonal__loader *loader;
        options.workers = 1 + i % 4;
        if (!CHECK_OK(zonal__loader_create(&options, &loader))) return;
        if (i % 2) CHECK_OK(zonal__loader_next(loader, &batch));
        zonal__loader_destroy(loader);
    }
    zonal__loader_destroy(NULL);
}

static void test_refusals(void) {
    made_up m = make_source(COUNT);
    zonal__loader_options options = options_for(&m, COUNT + 1);
    zonal__loader *loader;
    CHECK_FAILS(zonal__loader_create(&options, &loader), ZONAL_ARGUMENT, "from 1 to 40 images");
    CHECK(loader == NULL);
    options = options_for(&m, 4);
    options.channels = 2;
    CHECK_FAILS(zonal__loader_create(&options, &loader), ZONAL_ARGUMENT, "1 or 3 channels");
    options = options_for(&m, 4);
    options.group[0].views = 0;
    CHECK_FAILS(zonal__loader_create(&options, &loader), ZONAL_ARGUMENT, "at least one view");
    options = options_for(&m, 4);
    zonal__augmentation_byol(1, &texture_augmentation[1]);
    CHECK_FAILS(zonal__loader_create(&options, &loader), ZONAL_ARGUMENT, "of another kind");
}

static zonal_status load_some(void *context) {
    made_up m = make_source(COUNT);
    zonal__loader_options options = options_for(&m, BATCH);
    zonal__loader *loader;
    const zonal__batch *batch;
    zonal_status status;
    options.raw = *(int *)context;
    options.workers = 1; /* so that the n-th allocation is always the same one */
    options.ahead = 2;
    ZONAL_TRY(zonal__loader_create(&options, &loader));
    status = zonal__loader_next(loader, &batch);
    zonal__loader_destroy(loader);
    return status;
}

static void test_allocations(void) {
    int raw = 0;
    test_every_allocation("a loader of views", load_some, &raw);
    raw = 1;
    test_every_allocation("a loader of images", load_some, &raw);
}

static const test_case tests[] = {{"order", test_order},
                                  {"order_uniform", test_order_uniform},
                                  {"same_batches", test_same_batches},
                                  {"epochs", test_epochs},
                                  {"shares", test_shares},
                                  {"in_order", test_in_order},
                                  {"raw", test_raw},
                                  {"raw_limit", test_raw_limit},
                                  {"corrupt", test_corrupt},
                                  {"failure", test_failure},
                                  {"destroy_early", test_destroy_early},
                                  {"refusals", test_refusals},
                                  {"allocations", test_allocations},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
