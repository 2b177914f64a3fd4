/*
 * Optimisers on the GPU (src/backend/cuda/training/optimiser.cu) against the reference: ten steps
 * of every kind, refusals, graphs, the same bits every time. "speed" prints times. Skipped where
 * there is no GPU, unless ZONAL_REQUIRE_GPU is set.
 */

#include "backend/device.h"
#include "backend/training/optimiser.h"
#include "core/memory.h"
#include "core/random.h"
#include "failing_alloc.h"
#include "gpu.h"

enum { STEPS = 10, MOST_SEGMENTS = 6 };

static int no_gpu(void) {
    return gpu_is_missing(gpu_optimisers() != NULL);
}

/* ---- a problem ------------------------------------------------------------------------------- */

static const char *const names[MOST_SEGMENTS] = {"zero", "one", "two", "three", "four", "five"};

/* Segments of these sizes, some with a gap behind them, so that offsets are odd as well. */
static const int64_t layouts[][MOST_SEGMENTS] = {
    {1}, {3}, {4}, {5, 2, 9}, {8192}, {8193, 1, 4095}, {64, 64, 20000, 7, 8191, 12288}};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

/* One optimiser with its arrays: on the host as the tests see them, and where the table wants
 * them. The gradient pulls each parameter to a place of its own. */
typedef struct problem {
    const zonal__optimiser_table *table;
    const zonal__device *device;
    zonal__optimiser_spec spec;
    zonal__optimiser_segment segments[MOST_SEGMENTS];
    int64_t segment_count, count;
    zonal__optimiser *optimiser;
    float *parameters, *gradients, *target; /* host */
    uint16_t *copy;
    zonal__optimiser_arrays arrays; /* the table's */
    zonal__optimiser_numbers *numbers;
    double *norm;
} problem;

static void lay_out(problem *p, const int64_t *counts) {
    for (int s = 0; s < MOST_SEGMENTS && counts[s]; s++) {
        p->segments[s] =
            (zonal__optimiser_segment){names[s], p->count, counts[s], s % 2 == 0, s % 3 == 0};
        p->count += counts[s] + (s % 2 ? 3 : 4 - counts[s] % 4); /* odd and even offsets */
        p->segment_count++;
    }
}

static int alloc(problem *p, void *out, size_t bytes) {
    return CHECK_OK(zonal__device_alloc(p->device, bytes, "an array", (void **)out));
}

static int take_all(problem *p) {
    size_t floats = (size_t)p->count * sizeof(float), halves = (size_t)p->count * sizeof(uint16_t);
    return CHECK_OK(ZONAL_NEW(&p->parameters, p->count, "parameters")) &&
           CHECK_OK(ZONAL_NEW(&p->gradients, p->count, "gradients")) &&
           CHECK_OK(ZONAL_NEW(&p->target, p->count, "targets")) &&
           CHECK_OK(ZONAL_NEW(&p->copy, p->count, "the copy")) &&
           alloc(p, &p->arrays.parameters, floats) &&
           alloc(p, (void *)&p->arrays.gradients, floats) && alloc(p, &p->arrays.copy, halves) &&
           alloc(p, &p->numbers, sizeof *p->numbers) && alloc(p, &p->norm, sizeof *p->norm);
}

static void problem_fini(problem *p) {
    p->table->destroy(p->optimiser);
    zonal__free(p->parameters);
    zonal__free(p->gradients);
    zonal__free(p->target);
    zonal__free(p->copy);
    zonal__device_free(p->device, p->arrays.parameters);
    zonal__device_free(p->device, (void *)(uintptr_t)p->arrays.gradients);
    zonal__device_free(p->device, p->arrays.copy);
    zonal__device_free(p->device, p->numbers);
    zonal__device_free(p->device, p->norm);
}

static int problem_init(problem *p, const zonal__optimiser_table *table, zonal__optimiser_spec spec,
                        const int64_t *counts) {
    zonal__random random = {.seed = test_seed, .stream = ZONAL__STREAM_TEST};
    *p = (problem){.table = table, .spec = spec};
    p->device = table == zonal__optimiser_ref() ? zonal__device_cpu() : gpu_device();
    lay_out(p, counts);
    p->spec.count = p->count;
    if (!take_all(p) ||
        !CHECK_OK(table->create(&p->spec, p->segments, p->segment_count, &p->optimiser))) {
        problem_fini(p);
        return 0;
    }
    for (int64_t i = 0; i < p->count; i++) {
        double u[2];
        zonal__random_uniform(&random, (uint64_t)i, 0, u);
        p->parameters[i] = (float)(2 * u[0] - 1);
        p->target[i] = (float)(2 * u[1] - 1);
        p->gradients[i] = NAN; /* what lies in a gap must not matter */
        p->copy[i] = 0x1234;
    }
    CHECK_OK(zonal__device_write(p->device, p->arrays.copy, p->copy,
                                 (size_t)p->count * sizeof *p->copy));
    return 1;
}

static void make_gradient(problem *p) {
    for (int64_t s = 0; s < p->segment_count; s++) {
        const zonal__optimiser_segment *segment = &p->segments[s];
        for (int64_t i = segment->offset; i < segment->offset + segment->count; i++)
            p->gradients[i] = (float)(1 + i % 7) * (p->parameters[i] - p->target[i]);
    }
}

static int send(problem *p) {
    size_t bytes = (size_t)p->count * sizeof(float);
    return CHECK_OK(zonal__device_write(p->device, p->arrays.parameters, p->parameters, bytes)) &&
           CHECK_OK(zonal__device_write(p->device, (void *)(uintptr_t)p->arrays.gradients,
                                        p->gradients, bytes));
}

static int fetch(problem *p, double *norm) {
    return CHECK_OK(zonal__device_read(p->device, p->parameters, p->arrays.parameters,
                                       (size_t)p->count * sizeof(float))) &&
           CHECK_OK(zonal__device_read(p->device, p->copy, p->arrays.copy,
                                       (size_t)p->count * sizeof *p->copy)) &&
           CHECK_OK(zonal__device_read(p->device, norm, p->norm, sizeof *norm));
}

static int set_numbers(problem *p, int step) {
    zonal__optimiser_numbers numbers;
    return CHECK_OK(zonal__optimiser_numbers_make(&p->spec, 0.01 / step, step, &numbers)) &&
           CHECK_OK(zonal__device_write(p->device, p->numbers, &numbers, sizeof numbers));
}

/* Step number "step" (from 1) with the gradient that is there. */
static int run_step(problem *p, int step, double *norm) {
    return send(p) && set_numbers(p, step) &&
           CHECK_OK(p->table->step(p->optimiser, &p->arrays, p->numbers, p->norm)) &&
           fetch(p, norm);
}

/* Variant 1 has all options on. */
static zonal__optimiser_spec spec_of(int kind, int variant) {
    zonal__optimiser_spec spec = zonal__optimiser_defaults((zonal__optimiser_kind)kind);
    if (variant) {
        spec.weight_decay = 0.05;
        spec.clip = 0.5;
        spec.nesterov = kind == ZONAL__OPTIMISER_SGD;
    }
    return spec;
}

/* ---- against the reference ------------------------------------------------------------------- */

static double distance(int64_t n, const float *a, const float *b) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sqrt(sum);
}

static void check_state(problem *got, problem *want) {
    const char *const *parts = zonal__optimiser_state_names(got->spec.kind);
    for (int k = 0; parts[k]; k++) {
        float *device, *host, *fetched = NULL;
        if (CHECK_OK(got->table->state(got->optimiser, parts[k], &device)) &&
            CHECK_OK(want->table->state(want->optimiser, parts[k], &host)) &&
            CHECK_OK(ZONAL_NEW(&fetched, got->count, "a state")) &&
            CHECK_OK(zonal__device_read(got->device, fetched, device,
                                        (size_t)got->count * sizeof(float)))) {
            double norm = 0;
            for (int64_t i = 0; i < got->count; i++) norm += (double)host[i] * (double)host[i];
            CHECK(distance(got->count, fetched, host) <= 2e-6 * sqrt(norm) + 1e-9);
        }
        zonal__free(fetched);
    }
}

/* Both go their own way for ten steps. A step rounds each parameter, which is at most 1, by some
 * 6e-8; the gradient multiplies by up to 7, Adam's quotient by its own, and ten of them add up. */
static void check_ten_steps(int kind, int variant, const int64_t *counts) {
    problem got, want;
    zonal__optimiser_spec spec = spec_of(kind, variant);
    double got_norm, want_norm;
    if (!problem_init(&got, gpu_optimisers(), spec, counts)) return;
    if (problem_init(&want, zonal__optimiser_ref(), spec, counts)) {
        for (int step = 1; step <= STEPS; step++) {
            make_gradient(&got);
            make_gradient(&want);
            if (!run_step(&got, step, &got_norm) || !run_step(&want, step, &want_norm)) break;
            CHECK_CLOSE(got_norm, want_norm, 1e-5 * want_norm);
        }
        double off = distance(got.count, got.parameters, want.parameters);
        CHECK_MSG(off <= 2e-6 * sqrt((double)got.count), "kind %d, variant %d, %lld elements: %g",
                  kind, variant, (long long)got.count, off);
        check_state(&got, &want);
        for (int64_t i = 0, wrong = 0; i < got.count; i++) {
            uint32_t bits;
            memcpy(&bits, &got.parameters[i], sizeof bits);
            bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16; /* rounded to bf16 */
            wrong += want.copy[i] == 0x1234 ? got.copy[i] != 0x1234 : got.copy[i] != bits;
            if (i == got.count - 1)
                CHECK_MSG(wrong == 0, "%lld copies are wrong", (long long)wrong);
        }
        CHECK_OK(got.table->status(got.optimiser));
        problem_fini(&want);
    }
    problem_fini(&got);
}

static void test_ten_steps(void) {
    if (no_gpu()) return;
    for (int kind = 0; kind < 3; kind++)
        for (int variant = 0; variant < 2; variant++)
            for (int i = 0; i < LAYOUTS; i++) check_ten_steps(kind, variant, layouts[i]);
}

static void test_tiny(void) {
    if (no_gpu()) return;
    for (int kind = 0; kind < 3; kind++) check_ten_steps(kind, 1, layouts[3]);
}

/* ---- refusal --------------------------------------------------------------------------------- */

/* A refused step changes nothing; status names the first one's segment, once. */
static void check_refused(int kind, int64_t segment, float bad) {
    problem p, clean;
    double norm;
    zonal__optimiser_spec spec = spec_of(kind, 0);
    if (!problem_init(&p, gpu_optimisers(), spec, layouts[3])) return;
    if (problem_init(&clean, gpu_optimisers(), spec, layouts[3])) {
        make_gradient(&p);
        p.gradients[p.segments[segment].offset + p.segments[segment].count - 1] = bad;
        CHECK(run_step(&p, 1, &norm));
        CHECK(isfinite(bad) ? norm >= (double)bad : !isfinite(norm));
        CHECK(memcmp(p.parameters, clean.parameters, (size_t)p.count * sizeof(float)) == 0);
        CHECK(memcmp(p.copy, clean.copy, (size_t)p.count * sizeof *p.copy) == 0);
        make_gradient(&p);
        p.gradients[p.segments[2].offset] = NAN;
        CHECK(run_step(&p, 1, &norm));
        CHECK_FAILS(p.table->status(p.optimiser), ZONAL_NUMERIC, names[segment]);
        CHECK_OK(p.table->status(p.optimiser));
        make_gradient(&p);
        make_gradient(&clean);
        CHECK(run_step(&p, 1, &norm));
        CHECK(run_step(&clean, 1, &norm));
        CHECK(memcmp(p.parameters, clean.parameters, (size_t)p.count * sizeof(float)) == 0);
        CHECK_OK(p.table->status(p.optimiser));
        problem_fini(&clean);
    }
    problem_fini(&p);
}

static void test_refusal(void) {
    static const float bad[] = {NAN, INFINITY, 2e18f};
    if (no_gpu()) return;
    for (int kind = 0; kind < 3; kind++)
        for (int64_t segment = 0; segment < 3; segment++)
            for (int b = 0; b < 3; b++) check_refused(kind, segment, bad[b]);
}

/* ---- graphs, copies, memory ------------------------------------------------------------------ */

static zonal_status enqueue(void *context, void *stream) {
    problem *p = context;
    p->table->set_stream(p->optimiser, stream);
    return p->table->step(p->optimiser, &p->arrays, p->numbers, p->norm);
}

/* A graph that is made once and replayed with new numbers takes the steps that calls take. */
static void test_graph(void) {
    if (no_gpu()) return;
    for (int kind = 0; kind < 3; kind++) {
        problem called, replayed;
        double norm[2];
        void *stream = NULL, *graph = NULL;
        if (!problem_init(&called, gpu_optimisers(), spec_of(kind, 1), layouts[6])) return;
        if (problem_init(&replayed, gpu_optimisers(), spec_of(kind, 1), layouts[6])) {
            if (CHECK_OK(zonal__device_stream_create(gpu_device(), &stream)) &&
                CHECK_OK(zonal__device_graph_begin(gpu_device(), stream))) {
                CHECK_OK(enqueue(&replayed, stream));
                CHECK_OK(zonal__device_graph_end(gpu_device(), stream, &graph));
            }
            for (int step = 1; graph && step <= STEPS; step++) {
                make_gradient(&called);
                make_gradient(&replayed);
                CHECK(run_step(&called, step, &norm[0]));
                CHECK(send(&replayed) && set_numbers(&replayed, step));
                CHECK_OK(zonal__device_graph_launch(gpu_device(), graph, stream));
                CHECK_OK(zonal__device_synchronise(gpu_device()));
                CHECK(fetch(&replayed, &norm[1]) && norm[0] == norm[1]);
                CHECK(memcmp(called.parameters, replayed.parameters,
                             (size_t)called.count * sizeof(float)) == 0);
            }
            CHECK_OK(replayed.table->status(replayed.optimiser));
            zonal__device_graph_destroy(gpu_device(), graph);
            zonal__device_stream_destroy(gpu_device(), stream);
            problem_fini(&replayed);
        }
        problem_fini(&called);
    }
}

static void test_copy(void) {
    problem p;
    double norm;
    if (no_gpu() ||
        !problem_init(&p, gpu_optimisers(), spec_of(ZONAL__OPTIMISER_ADAMW, 0), layouts[3]))
        return;
    p.parameters[0] = 1 + 0x1p-8f; /* ties: down to 1, up to 1 + 2^-6 */
    p.parameters[1] = 1 + 3 * 0x1p-8f;
    CHECK(send(&p));
    CHECK_OK(p.table->copy(p.optimiser, &p.arrays));
    CHECK(fetch(&p, &norm));
    CHECK(p.copy[0] == 0x3f80 && p.copy[1] == 0x3f82 && p.copy[5] == 0x1234);
    problem_fini(&p);
}

static zonal_status make_and_drop(void *context) {
    zonal__optimiser_spec spec = spec_of(*(const int *)context, 0);
    zonal__optimiser_segment segment = {"a", 0, 3, 1, 1};
    zonal__optimiser *optimiser;
    spec.count = 3;
    ZONAL_TRY(gpu_optimisers()->create(&spec, &segment, 1, &optimiser));
    gpu_optimisers()->destroy(optimiser);
    return ZONAL_OK;
}

static void test_allocations(void) {
    if (no_gpu()) return;
    for (int kind = 0; kind < 3; kind++)
        test_every_allocation("an optimiser", make_and_drop, &kind);
    gpu_optimisers()->destroy(NULL);
}

/* ---- speed ----------------------------------------------------------------------------------- */

/* As many parameters as a ResNet-18 with the projector has. A step reads 20 bytes for each (the
 * gradient twice) and writes 14. */
static void test_speed(void) {
    static const int64_t counts[MOST_SEGMENTS] = {9408, 2359296, 4194304, 8388608, 2048, 1572864};
    problem p;
    double us;
    if (no_gpu()) return;
    for (int kind = 0; kind < 3; kind++) {
        if (!problem_init(&p, gpu_optimisers(), spec_of(kind, 1), counts)) return;
        if (send(&p) && set_numbers(&p, 1)) {
            CHECK_OK(zonal__device_write(p.device, (void *)(uintptr_t)p.arrays.gradients,
                                         p.parameters, (size_t)p.count * sizeof(float)));
            CHECK_OK(zonal__device_time(gpu_device(), enqueue, &p, 1, 3, 15, &us));
            p.table->set_stream(p.optimiser, NULL); /* the timer's is gone */
            double bytes = kind == ZONAL__OPTIMISER_ADAMW  ? 34
                           : kind == ZONAL__OPTIMISER_LARS ? 30
                                                           : 26;
            printf("# kind %d, %lld parameters: %.1f us, %.2f TB/s\n", kind, (long long)p.count, us,
                   1e-6 * bytes * (double)p.count / us);
            CHECK_OK(p.table->status(p.optimiser));
        }
        problem_fini(&p);
    }
}

static const test_case tests[] = {
    {"tiny", test_tiny},       {"ten_steps", test_ten_steps},
    {"refusal", test_refusal}, {"graph", test_graph},
    {"copy", test_copy},       {"allocations", test_allocations},
    {"speed", test_speed},     {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
