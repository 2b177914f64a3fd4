/* Optimisers: src/backend/training/optimiser.h. */
#include <time.h>

#include "backend/training/optimiser.h"
#include "core/memory.h"
#include "core/random.h"
#include "failing_alloc.h"
#include "measure.h"
#include "test.h"

enum { ELEMENTS = 19, STEPS = 10 };

/* Ten steps on the small problem of golden/make_optimiser.py. */
typedef struct golden_run {
    const char *name;
    int flags;  /* 1: decay and trust ratio leave out the second and third segment */
    int states; /* how many arrays of the state are stored */
    zonal__optimiser_spec spec;
    double norm[STEPS];
    double first[ELEMENTS], last[ELEMENTS]; /* parameters after the first and the last step */
    double state[2][ELEMENTS];
} golden_run;

#include "golden/optimiser.h"

/* ---- the small problem ----------------------------------------------------------------------- */

/* Segments with gaps between them and odd sizes. What lies in a gap must not matter. */
enum { SEGMENTS = 4, BLOCK_ELEMENTS = 23 };
static const int small_offset[SEGMENTS] = {0, 8, 9, 16}, small_count[SEGMENTS] = {7, 1, 5, 6};

typedef struct small_problem {
    zonal__optimiser_segment segment[SEGMENTS];
    float parameters[BLOCK_ELEMENTS], gradients[BLOCK_ELEMENTS];
    uint16_t copy[BLOCK_ELEMENTS];
    zonal__optimiser_arrays arrays;
} small_problem;

/* The elements of the segments out of a block, or into it. */
static void gather(const float *block, double *out) {
    for (int s = 0, n = 0; s < SEGMENTS; s++)
        for (int i = 0; i < small_count[s]; i++) out[n++] = (double)block[small_offset[s] + i];
}

static void scatter(const double *x, float *block) {
    for (int s = 0, n = 0; s < SEGMENTS; s++)
        for (int i = 0; i < small_count[s]; i++) block[small_offset[s] + i] = (float)x[n++];
}

static void small_init(small_problem *small, int flags) {
    static const char *const names[SEGMENTS] = {"conv.weight", "conv.bias", "norm.weight",
                                                "fc.weight"};
    memset(small, 0, sizeof *small);
    for (int s = 0; s < SEGMENTS; s++) {
        int weight = s == 0 || s == 3 || !flags;
        small->segment[s] =
            (zonal__optimiser_segment){names[s], small_offset[s], small_count[s], weight, weight};
    }
    for (int i = 0; i < BLOCK_ELEMENTS; i++) {
        small->parameters[i] = 77;
        small->gradients[i] = NAN;
        small->copy[i] = 0x1234;
    }
    scatter(golden_start, small->parameters);
    small->arrays = (zonal__optimiser_arrays){small->parameters, small->gradients, small->copy};
}

static void small_gradient(small_problem *small) {
    double q[ELEMENTS], g[ELEMENTS];
    gather(small->parameters, q);
    for (int i = 0; i < ELEMENTS; i++) {
        g[i] = golden_stiffness[i] * (q[i] - golden_target[i]);
        if (i > 0) g[i] -= 0.3 * sin(q[i] * q[i - 1]) * q[i - 1];
        if (i + 1 < ELEMENTS) g[i] -= 0.3 * sin(q[i] * q[i + 1]) * q[i + 1];
    }
    scatter(g, small->gradients);
}

static zonal_status small_step(const zonal__optimiser_table *table, zonal__optimiser *optimiser,
                               const zonal__optimiser_spec *spec, small_problem *small, int step,
                               double *norm) {
    zonal__optimiser_numbers numbers;
    small_gradient(small);
    ZONAL_TRY(zonal__optimiser_numbers_make(spec, golden_rates[step], step + 1, &numbers));
    return table->step(optimiser, &small->arrays, &numbers, norm);
}

static zonal__optimiser *small_create(const zonal__optimiser_table *table,
                                      zonal__optimiser_spec *spec, const small_problem *small) {
    zonal__optimiser *optimiser;
    spec->count = BLOCK_ELEMENTS;
    CHECK_OK(table->create(spec, small->segment, SEGMENTS, &optimiser));
    return optimiser;
}

static const zonal__optimiser_table *const *host_tables(void) {
    static const zonal__optimiser_table *tables[3];
    tables[0] = zonal__optimiser_ref();
    tables[1] = zonal__optimiser_cpu();
    return tables;
}

/* ---- against PyTorch ------------------------------------------------------------------------- */

/* Gradients and parameters are rounded to float in every step, by 6e-8 of their size each. One step
 * therefore differs by 2 such roundings, with float arithmetic by some more; over ten steps they
 * add up, and Adam's quotient multiplies those of small gradients by a few. */
typedef struct golden_tolerance {
    double first, last;
} golden_tolerance;

static void check_golden(const zonal__optimiser_table *table, const golden_run *golden,
                         golden_tolerance tolerance, measure *first, measure *last) {
    const char *const *names = zonal__optimiser_state_names(golden->spec.kind);
    zonal__optimiser_spec spec = golden->spec;
    small_problem small;
    double got[ELEMENTS], norm;
    small_init(&small, golden->flags);
    zonal__optimiser *optimiser = small_create(table, &spec, &small);
    if (!optimiser) return;
    for (int step = 0; step < STEPS; step++) {
        CHECK_OK(small_step(table, optimiser, &spec, &small, step, &norm));
        CHECK_MSG(fabs(norm / golden->norm[step] - 1) <= tolerance.last,
                  "%s, %s: norm %.9g in step %d, want %.9g", table->name, golden->name, norm, step,
                  golden->norm[step]);
        gather(small.parameters, got);
        for (int i = 0; step == 0 && i < ELEMENTS; i++)
            MEASURE(first, got[i], golden->first[i], tolerance.first * fabs(golden_start[i]),
                    "%s, element %d", golden->name, i);
    }
    for (int i = 0; i < ELEMENTS; i++)
        MEASURE(last, got[i], golden->last[i], tolerance.last, "%s, element %d", golden->name, i);
    for (int k = 0; k < golden->states; k++) {
        float *memory;
        if (!CHECK_OK(table->state(optimiser, names[k], &memory))) continue;
        gather(memory, got);
        CHECK_NORM(ELEMENTS, got, golden->state[k], tolerance.last);
    }
    for (int i = 0, in_gap[4] = {7, 14, 15, 22}; i < 4; i++)
        CHECK(small.parameters[in_gap[i]] == 77 && small.copy[in_gap[i]] == 0x1234);
    table->destroy(optimiser);
}

static void check_all_golden(const zonal__optimiser_table *table, golden_tolerance tolerance) {
    measure first = {.name = "parameters, 1 step"}, last = {.name = "parameters, 10 steps"};
    for (size_t i = 0; i < sizeof golden_runs / sizeof golden_runs[0]; i++)
        check_golden(table, &golden_runs[i], tolerance, &first, &last);
    measure_print(&first);
    measure_print(&last);
}

static void test_golden_ref(void) {
    check_all_golden(zonal__optimiser_ref(), (golden_tolerance){2e-7, 1e-6});
}

static void test_golden_cpu(void) {
    check_all_golden(zonal__optimiser_cpu(), (golden_tolerance){4e-7, 1e-6});
}

/* ---- known in closed form -------------------------------------------------------------------- */

/* The first step of a new optimiser; returns the norm. */
static double step_once(const zonal__optimiser_table *table, zonal__optimiser_spec spec,
                        const zonal__optimiser_segment *segments, int64_t segment_count,
                        double rate, float *parameters, const float *gradients) {
    const zonal__optimiser_segment *last = &segments[segment_count - 1];
    zonal__optimiser_numbers numbers;
    zonal__optimiser *optimiser;
    double norm = NAN;
    spec.count = last->offset + last->count;
    CHECK_OK(zonal__optimiser_numbers_make(&spec, rate, 1, &numbers));
    if (!CHECK_OK(table->create(&spec, segments, segment_count, &optimiser))) return norm;
    CHECK_OK(table->step(optimiser, &(zonal__optimiser_arrays){parameters, gradients, NULL},
                         &numbers, &norm));
    table->destroy(optimiser);
    return norm;
}

/* Without momentum and decay a step of rate 1 is the clipped gradient itself. */
static void test_clipping(void) {
    static const zonal__optimiser_segment segments[2] = {{"a", 0, 1, 1, 1}, {"b", 1, 2, 1, 1}};
    static const float gradient[3] = {1, -2, 2};
    for (const zonal__optimiser_table *const *table = host_tables(); *table; table++)
        for (int clipped = 0; clipped < 2; clipped++) {
            zonal__optimiser_spec spec = zonal__optimiser_defaults(ZONAL__OPTIMISER_SGD);
            float p[3] = {0};
            double factor = clipped ? 0.25 : 1;
            spec.momentum = 0;
            spec.clip = clipped ? 0.75 : 3; /* a norm at the limit is left alone */
            CHECK_CLOSE(step_once(*table, spec, segments, 2, 1, p, gradient), 3, 0);
            for (int i = 0; i < 3; i++) CHECK_CLOSE((double)p[i], -factor * (double)gradient[i], 0);
        }
}

/* Without a gradient AdamW multiplies by 1 - rate wd where there is decay and keeps the rest to the
 * bit; SGD and LARS, whose ratio is 1 at |g| = 0, do the same in the first step. */
static void test_decay_alone(void) {
    static const zonal__optimiser_segment segments[2] = {{"a", 0, 3, 1, 1}, {"b", 3, 2, 0, 1}};
    static const float before[5] = {1, -0.3f, 1e-3f, 0.7f, -2}, gradient[5];
    for (const zonal__optimiser_table *const *table = host_tables(); *table; table++)
        for (int kind = 0; kind < 3; kind++) {
            zonal__optimiser_spec spec = zonal__optimiser_defaults((zonal__optimiser_kind)kind);
            float p[5];
            memcpy(p, before, sizeof p);
            spec.weight_decay = 0.5;
            CHECK(step_once(*table, spec, segments, 2, 0.01, p, gradient) == 0);
            for (int i = 0; i < 3; i++) /* one rounding of the new p, and some of the change */
                CHECK_CLOSE((double)p[i], 0.995 * (double)before[i],
                            7e-8 * fabs((double)before[i]));
            CHECK(p[3] == before[3] && p[4] == before[4]);
        }
}

/* LARS' ratio is 1 where the parameters are all 0, and where the gradient is so small that the
 * quotient of the norms would leave the range of float. */
static void test_lars_without_ratio(void) {
    static const zonal__optimiser_segment segment = {"a", 0, 2, 1, 1};
    static const float plain[2] = {3, -4}, tiny[2] = {1e-44f, 0};
    zonal__optimiser_spec spec = zonal__optimiser_defaults(ZONAL__OPTIMISER_LARS);
    for (const zonal__optimiser_table *const *table = host_tables(); *table; table++) {
        float zeros[2] = {0, 0}, others[2] = {1, 2};
        CHECK(step_once(*table, spec, &segment, 1, 0.5, zeros, plain) == 5);
        CHECK(zeros[0] == -1.5f && zeros[1] == 2);
        step_once(*table, spec, &segment, 1, 0.5, others, tiny);
        CHECK(others[0] == 1 && others[1] == 2);
    }
}

/* The nearest number of 8 significant bits, ties to even, by arithmetic instead of bits. */
static double nearest_bf16(double x) {
    int exponent;
    double fraction = frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

static double bf16_value(uint16_t bits) {
    int exponent = bits >> 7 & 255;
    double sign = bits & 0x8000 ? -1 : 1;
    return sign * ldexp(128 + (bits & 127), exponent - 134); /* of normal numbers */
}

static void check_copy(const small_problem *small) {
    for (int s = 0; s < SEGMENTS; s++)
        for (int i = small_offset[s]; i < small_offset[s] + small_count[s]; i++)
            CHECK_CLOSE(bf16_value(small->copy[i]), nearest_bf16((double)small->parameters[i]), 0);
}

static void test_copy(void) {
    for (const zonal__optimiser_table *const *table = host_tables(); *table; table++) {
        zonal__optimiser_spec spec = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW);
        small_problem small;
        double norm;
        small_init(&small, 0);
        small.parameters[0] = 1 + 0x1p-8f; /* ties: down to 1, up to 1 + 2^-6 */
        small.parameters[1] = 1 + 3 * 0x1p-8f;
        zonal__optimiser *optimiser = small_create(*table, &spec, &small);
        if (!optimiser) continue;
        CHECK_OK((*table)->copy(optimiser, &small.arrays));
        check_copy(&small);
        CHECK(small.copy[0] == 0x3f80 && small.copy[1] == 0x3f82 && small.copy[7] == 0x1234);
        for (int step = 0; step < 3; step++) {
            CHECK_OK(small_step(*table, optimiser, &spec, &small, step, &norm));
            check_copy(&small);
        }
        (*table)->destroy(optimiser);
    }
}

/* ---- refusal --------------------------------------------------------------------------------- */

/* The first step is refused and leaves no trace: the second is as the first of a run without it. */
static void check_refused(const zonal__optimiser_table *table, int kind, double clip, int at,
                          float bad, const char *name) {
    zonal__optimiser_spec spec = zonal__optimiser_defaults((zonal__optimiser_kind)kind);
    zonal__optimiser_numbers numbers;
    small_problem small, clean;
    double norm = 0, clean_norm;
    spec.clip = clip;
    small_init(&small, 0);
    small_init(&clean, 0);
    zonal__optimiser *optimiser = small_create(table, &spec, &small);
    zonal__optimiser *other = small_create(table, &spec, &clean);
    CHECK_OK(zonal__optimiser_numbers_make(&spec, golden_rates[0], 1, &numbers));
    small_gradient(&small);
    small.gradients[at] = bad;
    CHECK_FAILS(table->step(optimiser, &small.arrays, &numbers, &norm), ZONAL_NUMERIC, name);
    CHECK_MSG(isfinite(bad) ? norm >= fabs((double)bad) : !isfinite(norm), "norm %g of %g", norm,
              (double)bad);
    CHECK(memcmp(small.parameters, clean.parameters, sizeof small.parameters) == 0);
    CHECK(memcmp(small.copy, clean.copy, sizeof small.copy) == 0);
    CHECK_OK(small_step(table, optimiser, &spec, &small, 0, &norm));
    CHECK_OK(small_step(table, other, &spec, &clean, 0, &clean_norm));
    CHECK(norm == clean_norm);
    CHECK(memcmp(small.parameters, clean.parameters, sizeof small.parameters) == 0);
    CHECK_OK(table->status(optimiser));
    table->destroy(optimiser);
    table->destroy(other);
}

static void test_refusal(void) {
    static const struct {
        int at;
        const char *name;
    } places[] = {{0, "conv.weight"},  {6, "conv.weight"}, {8, "conv.bias"},
                  {13, "norm.weight"}, {16, "fc.weight"},  {21, "fc.weight"}};
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (const zonal__optimiser_table *const *table = host_tables(); *table; table++)
        for (int kind = 0; kind < 3; kind++)
            for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
                for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++)
                    for (int clip = 0; clip < 2; clip++)
                        check_refused(*table, kind, clip, places[p].at, bad[b], places[p].name);
                check_refused(*table, kind, 0, places[p].at, 2e18f, places[p].name);
            }
}

/* A gradient near the limit, or clipped to below it, is used and leaves everything finite. */
static void test_large_gradients(void) {
    for (const zonal__optimiser_table *const *table = host_tables(); *table; table++)
        for (int kind = 0; kind < 3; kind++)
            for (int clip = 0; clip < 2; clip++) {
                zonal__optimiser_spec spec = zonal__optimiser_defaults((zonal__optimiser_kind)kind);
                zonal__optimiser_numbers numbers;
                small_problem small;
                double norm;
                int finite = 1;
                spec.clip = clip;
                small_init(&small, 0);
                zonal__optimiser *optimiser = small_create(*table, &spec, &small);
                if (!optimiser) continue;
                for (int step = 1; step <= 3; step++) {
                    CHECK_OK(zonal__optimiser_numbers_make(&spec, 0.1, step, &numbers));
                    small_gradient(&small);
                    small.gradients[9] = clip ? 3e38f : 9e17f;
                    CHECK_OK((*table)->step(optimiser, &small.arrays, &numbers, &norm));
                }
                for (int i = 0; i < BLOCK_ELEMENTS; i++) finite &= isfinite(small.parameters[i]);
                CHECK_MSG(finite, "%s, kind %d: not finite", (*table)->name, kind);
                (*table)->destroy(optimiser);
            }
}

/* ---- cpu against ref ------------------------------------------------------------------------- */

/* Blocks with random contents. Parameter, gradient and momentum of an element have one sign, so
 * that no sum in a formula cancels and errors can be held against the results. */
typedef struct large_problem {
    int64_t count, segment_count;
    zonal__optimiser_segment segments[8];
    float *memory[5]; /* [count] each, of one piece: parameters, gradients, two parts of the state,
                         the copy */
} large_problem;

static const char *const large_names[8] = {"0", "1", "2", "3", "4", "5", "6", "7"};

static int large_init(large_problem *large, const int64_t *counts, int64_t segment_count) {
    zonal__random random = {.seed = test_seed, .stream = ZONAL__STREAM_TEST};
    memset(large, 0, sizeof *large);
    large->segment_count = segment_count;
    for (int64_t s = 0; s < segment_count; s++) {
        large->segments[s] = (zonal__optimiser_segment){large_names[s], large->count, counts[s],
                                                        s % 2 == 0, s % 3 == 0};
        large->count += counts[s] + s % 2;
    }
    if (!CHECK_OK(ZONAL_NEW(&large->memory[0], 5 * large->count, "the blocks"))) return 0;
    for (int k = 1; k < 5; k++) large->memory[k] = large->memory[k - 1] + large->count;
    for (int64_t i = 0; i < large->count; i++) {
        double u[2], w[2], sign = i % 3 ? 1 : -1;
        zonal__random_uniform(&random, (uint64_t)i, 0, u);
        zonal__random_uniform(&random, (uint64_t)i, 1, w);
        large->memory[0][i] = (float)(sign * u[0]);
        large->memory[1][i] = (float)(sign * u[1] * pow(10, -6 * w[0]));
        large->memory[2][i] = (float)(sign * w[0] * u[1]);
        large->memory[3][i] = (float)(w[1] * u[0] * u[0]);
    }
    return 1;
}

static void large_fini(large_problem *large) {
    zonal__free(large->memory[0]);
}

/* One step of step number 7, from the random state. */
static void large_step(const zonal__optimiser_table *table, zonal__optimiser_spec spec,
                       large_problem *large, double *norm) {
    const char *const *names = zonal__optimiser_state_names(spec.kind);
    size_t bytes = (size_t)large->count * sizeof(float);
    zonal__optimiser_arrays arrays = {large->memory[0], large->memory[1],
                                      (uint16_t *)(void *)large->memory[4]};
    zonal__optimiser_numbers numbers;
    zonal__optimiser *optimiser;
    float *state[2] = {NULL, NULL};
    *norm = NAN;
    spec.count = large->count;
    CHECK_OK(zonal__optimiser_numbers_make(&spec, 0.02, 7, &numbers));
    if (!CHECK_OK(table->create(&spec, large->segments, large->segment_count, &optimiser))) return;
    for (int k = 0; names[k]; k++) {
        CHECK_OK(table->state(optimiser, names[k], &state[k]));
        memcpy(state[k], large->memory[2 + k], bytes);
    }
    CHECK_OK(table->step(optimiser, &arrays, &numbers, norm));
    for (int k = 0; names[k]; k++) memcpy(large->memory[2 + k], state[k], bytes);
    table->destroy(optimiser);
}

static zonal__optimiser_spec large_spec(int kind, int variant) {
    zonal__optimiser_spec spec = zonal__optimiser_defaults((zonal__optimiser_kind)kind);
    spec.weight_decay = variant ? 0.1 : 5e-4;
    spec.clip = variant ? 0.5 : 0;
    spec.nesterov = variant && kind == ZONAL__OPTIMISER_SGD;
    return spec;
}

/* Sizes about those of a vector and of the blocks in which the sums are made (8192). */
static const int64_t large_counts[][8] = {{1},
                                          {2, 1},
                                          {31, 33, 32, 1, 15, 17, 16, 3},
                                          {8191, 8192, 8193, 1, 64},
                                          {3 * 8192 + 5, 7, 40000}};

static int64_t segments_of(const int64_t *counts) {
    int64_t n = 0;
    while (n < 8 && counts[n]) n++;
    return n;
}

/* Floats are off by a few roundings, 6e-8 each, of the old value, the change or the new one. */
static void compare_with_ref(int kind, int variant, const int64_t *counts, measure *parameters,
                             measure *states) {
    large_problem want = {0}, got = {0}, before = {0};
    double want_norm, got_norm;
    int64_t n = segments_of(counts);
    zonal__optimiser_spec spec = large_spec(kind, variant);
    if (!large_init(&want, counts, n) || !large_init(&got, counts, n) ||
        !large_init(&before, counts, n))
        goto done;
    large_step(zonal__optimiser_ref(), spec, &want, &want_norm);
    large_step(zonal__optimiser_cpu(), spec, &got, &got_norm);
    CHECK_CLOSE(got_norm, want_norm, 1e-14 * want_norm); /* sums of doubles in two orders */
    for (int64_t i = 0; i < want.count; i++) {
        double p = (double)before.memory[0][i], to = (double)want.memory[0][i];
        MEASURE(parameters, (double)got.memory[0][i], to, 1e-6 * (fabs(p) + fabs(to - p)),
                "kind %d, variant %d, element %lld", kind, variant, (long long)i);
        for (int k = 2; k < 4; k++) {
            double old = (double)before.memory[k][i], new = (double)want.memory[k][i];
            MEASURE(states, (double)got.memory[k][i], new, 1e-6 * (fabs(old) + fabs(new - old)),
                    "kind %d, variant %d, part %d, element %lld", kind, variant, k - 2,
                    (long long)i);
        }
    }
done:
    large_fini(&want);
    large_fini(&got);
    large_fini(&before);
}

static void test_cpu_against_ref(void) {
    measure parameters = {.name = "parameters"}, states = {.name = "state"};
    for (int kind = 0; kind < 3; kind++)
        for (int variant = 0; variant < 2; variant++)
            for (size_t c = 0; c < sizeof large_counts / sizeof large_counts[0]; c++)
                compare_with_ref(kind, variant, large_counts[c], &parameters, &states);
    measure_print(&parameters);
    measure_print(&states);
}

static void test_threads(void) {
    static const int threads[] = {2, 3, 7};
    static const int64_t counts[8] = {100000, 8193, 5, 30001};
    for (int kind = 0; kind < 3; kind++) {
        large_problem one;
        double one_norm, norm;
        zonal__optimiser_spec spec = large_spec(kind, 1);
        if (!large_init(&one, counts, 4)) return;
        spec.threads = 1;
        large_step(zonal__optimiser_cpu(), spec, &one, &one_norm);
        for (int t = 0; t < 3; t++) {
            large_problem many;
            if (!large_init(&many, counts, 4)) break;
            spec.threads = threads[t];
            large_step(zonal__optimiser_cpu(), spec, &many, &norm);
            CHECK(norm == one_norm);
            for (int k = 0; k < 5; k++)
                CHECK_MSG(
                    memcmp(one.memory[k], many.memory[k], (size_t)one.count * sizeof(float)) == 0,
                    "kind %d, block %d: %d threads give other bits", kind, k, threads[t]);
            large_fini(&many);
        }
        large_fini(&one);
    }
}

/* ---- state and memory ------------------------------------------------------------------------ */

/* Ten steps are five, a saved and restored state, and five more, to the bit. */
static void test_resume(void) {
    for (const zonal__optimiser_table *const *table = host_tables(); *table; table++)
        for (size_t g = 0; g < sizeof golden_runs / sizeof golden_runs[0]; g++) {
            zonal__optimiser_spec spec = golden_runs[g].spec;
            const char *const *names = zonal__optimiser_state_names(spec.kind);
            small_problem whole, cut;
            double norm;
            small_init(&whole, 1);
            small_init(&cut, 1);
            zonal__optimiser *through = small_create(*table, &spec, &whole);
            zonal__optimiser *half = small_create(*table, &spec, &cut);
            zonal__optimiser *rest = small_create(*table, &spec, &cut);
            for (int step = 0; step < STEPS; step++)
                CHECK_OK(small_step(*table, through, &spec, &whole, step, &norm));
            for (int step = 0; step < 5; step++)
                CHECK_OK(small_step(*table, half, &spec, &cut, step, &norm));
            for (int k = 0; names[k]; k++) {
                float *from, *to;
                CHECK_OK((*table)->state(half, names[k], &from));
                CHECK_OK((*table)->state(rest, names[k], &to));
                memcpy(to, from, BLOCK_ELEMENTS * sizeof *to);
            }
            for (int step = 5; step < STEPS; step++)
                CHECK_OK(small_step(*table, rest, &spec, &cut, step, &norm));
            CHECK(memcmp(whole.parameters, cut.parameters, sizeof cut.parameters) == 0);
            (*table)->destroy(through);
            (*table)->destroy(half);
            (*table)->destroy(rest);
        }
}

static void test_state_names(void) {
    for (const zonal__optimiser_table *const *table = host_tables(); *table; table++) {
        zonal__optimiser_spec spec = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW);
        small_problem small;
        float *first = NULL, *second = NULL, *none = small.parameters;
        small_init(&small, 0);
        zonal__optimiser *optimiser = small_create(*table, &spec, &small);
        CHECK_OK((*table)->state(optimiser, "exp_avg", &first));
        CHECK_OK((*table)->state(optimiser, "exp_avg_sq", &second));
        CHECK(first && second && first != second);
        for (int i = 0; i < BLOCK_ELEMENTS; i++) CHECK(first[i] == 0 && second[i] == 0);
        CHECK_FAILS((*table)->state(optimiser, "momentum", &none), ZONAL_ARGUMENT,
                    "no part momentum; it has exp_avg and exp_avg_sq");
        CHECK(none == NULL);
        (*table)->destroy(optimiser);
        (*table)->destroy(NULL);
    }
}

typedef struct making {
    const zonal__optimiser_table *table;
    int kind;
} making;

static zonal_status make_and_drop(void *context) {
    const making *m = context;
    zonal__optimiser_spec spec = zonal__optimiser_defaults((zonal__optimiser_kind)m->kind);
    small_problem small;
    zonal__optimiser *optimiser;
    small_init(&small, 0);
    spec.count = BLOCK_ELEMENTS;
    ZONAL_TRY(m->table->create(&spec, small.segment, SEGMENTS, &optimiser));
    m->table->destroy(optimiser);
    return ZONAL_OK;
}

static void test_allocation_failures(void) {
    for (const zonal__optimiser_table *const *table = host_tables(); *table; table++)
        for (int kind = 0; kind < 3; kind++)
            test_every_allocation("an optimiser", make_and_drop, &(making){*table, kind});
}

static void test_step_takes_no_memory(void) {
    for (const zonal__optimiser_table *const *table = host_tables(); *table; table++)
        for (int kind = 0; kind < 3; kind++) {
            zonal__optimiser_spec spec = zonal__optimiser_defaults((zonal__optimiser_kind)kind);
            small_problem small;
            double norm;
            small_init(&small, 0);
            zonal__optimiser *optimiser = small_create(*table, &spec, &small);
            failing_alloc_install(0, 1);
            CHECK_OK(small_step(*table, optimiser, &spec, &small, 0, &norm));
            CHECK_OK((*table)->copy(optimiser, &small.arrays));
            CHECK(failing_alloc_calls() == 0);
            CHECK(failing_alloc_remove() == 0);
            (*table)->destroy(optimiser);
        }
}

/* ---- bad arguments --------------------------------------------------------------------------- */

static void check_bad_spec(const zonal__optimiser_spec *spec, const char *sentence) {
    zonal__optimiser_segment segment = {"a", 0, 3, 1, 1};
    for (const zonal__optimiser_table *const *table = host_tables(); *table; table++) {
        zonal__optimiser *optimiser = (zonal__optimiser *)(void *)&segment;
        CHECK_FAILS((*table)->create(spec, &segment, 1, &optimiser), ZONAL_ARGUMENT, sentence);
        CHECK(optimiser == NULL);
    }
}

static void test_bad_specs(void) {
    zonal__optimiser_spec adamw = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW), spec;
    zonal__optimiser_spec sgd = zonal__optimiser_defaults(ZONAL__OPTIMISER_SGD);
    zonal__optimiser_spec lars = zonal__optimiser_defaults(ZONAL__OPTIMISER_LARS);
    adamw.count = sgd.count = lars.count = 3;
#define BAD(base, field, value, sentence)                                                          \
    (spec = base, spec.field = value, check_bad_spec(&spec, sentence))
    BAD(adamw, kind, (zonal__optimiser_kind)3, "no kind 3 of optimisers");
    BAD(adamw, count, 0, "needs parameters");
    BAD(adamw, count, 2, "ends beyond the 2 elements");
    BAD(adamw, weight_decay, -1, "the weight decay must be finite and not negative, got -1");
    BAD(adamw, weight_decay, NAN, "the weight decay");
    BAD(adamw, clip, INFINITY, "clipped must be finite");
    BAD(adamw, clip, NAN, "clipped must be finite");
    BAD(adamw, beta1, 1, "beta1 of AdamW must be at least 0 and below 1, got 1");
    BAD(adamw, beta2, -0.1, "beta2 of AdamW");
    BAD(adamw, beta2, NAN, "beta2 of AdamW");
    BAD(adamw, epsilon, 0, "epsilon of AdamW must be finite and positive");
    BAD(adamw, epsilon, 1e-60, "epsilon of AdamW");
    BAD(adamw, threads, -1, "the number of threads");
    BAD(sgd, momentum, 1, "the momentum");
    BAD(sgd, momentum, NAN, "the momentum");
    BAD(lars, momentum, -1, "the momentum");
    BAD(lars, trust, 0, "the trust coefficient of LARS");
    sgd.momentum = 0;
    BAD(sgd, nesterov, 1, "nesterov needs a momentum above 0");
#undef BAD
}

static void test_bad_segments(void) {
    static const struct {
        zonal__optimiser_segment segments[2];
        const char *sentence;
    } cases[] = {
        {{{"a", 0, 5, 1, 1}, {"b", 4, 2, 1, 1}}, "segment b (2 elements from 4 on)"},
        {{{"a", 5, 2, 1, 1}, {"b", 0, 2, 1, 1}}, "segment b (2 elements from 0 on)"},
        {{{"a", -1, 2, 1, 1}, {"b", 5, 2, 1, 1}}, "segment a (2 elements from -1 on)"},
        {{{"a", 0, 0, 1, 1}, {"b", 5, 2, 1, 1}}, "segment a (0 elements from 0 on)"},
        {{{"a", 0, 2, 1, 1}, {"b", 5, 6, 1, 1}}, "segment b (6 elements from 5 on)"},
        {{{"a", 0, 2, 1, 1}, {"b", 11, 1, 1, 1}}, "segment b (1 elements from 11 on)"},
        {{{"a", 0, 2, 1, 1}, {"b", 5, INT64_MAX, 1, 1}}, "segment b ("},
        {{{"a", 0, 2, 1, 1}, {NULL, 5, 2, 1, 1}}, "segment 1 has no name"},
    };
    zonal__optimiser_spec spec = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW);
    zonal__optimiser *optimiser;
    spec.count = 10;
    for (const zonal__optimiser_table *const *table = host_tables(); *table; table++) {
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
            CHECK_FAILS((*table)->create(&spec, cases[i].segments, 2, &optimiser), ZONAL_ARGUMENT,
                        cases[i].sentence);
        CHECK_FAILS((*table)->create(&spec, cases[0].segments, 0, &optimiser), ZONAL_ARGUMENT,
                    "needs parameters");
    }
}

static void test_numbers(void) {
    zonal__optimiser_spec spec = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW);
    zonal__optimiser_numbers numbers;
    CHECK_OK(zonal__optimiser_numbers_make(&spec, 0.5, 2, &numbers));
    CHECK_CLOSE(numbers.rate, 0.5, 0);
    CHECK_CLOSE(numbers.correction1, 0.19, 1e-16);
    CHECK_CLOSE(numbers.correction2, 0.001999, 1e-16); /* both: 1 - x, x rounded to 1e-16 */
    CHECK_OK(zonal__optimiser_numbers_make(&spec, 0, INT64_MAX, &numbers));
    CHECK(numbers.rate == 0 && numbers.correction1 == 1 && numbers.correction2 == 1);
    CHECK_FAILS(zonal__optimiser_numbers_make(&spec, NAN, 1, &numbers), ZONAL_ARGUMENT,
                "the learning rate");
    CHECK_FAILS(zonal__optimiser_numbers_make(&spec, -1e-9, 1, &numbers), ZONAL_ARGUMENT,
                "the learning rate");
    CHECK_FAILS(zonal__optimiser_numbers_make(&spec, 1, 0, &numbers), ZONAL_ARGUMENT,
                "counted from 1");
}

/* ---- the size of a network ------------------------------------------------------------------- */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double fastest_copy(float *to, const float *from, int64_t count) {
    double best = INFINITY;
    for (int i = 0; i < 5; i++) {
        double start = seconds();
        memcpy(to, from, (size_t)count * sizeof *to);
        best = fmin(best, seconds() - start);
    }
    return best;
}

/* As many parameters as a ResNet-18 has without its classifier. Where the gradient is the same c in
 * every step, m/correction1 = c and v/correction2 = c^2, so each step subtracts the rate. The times
 * are printed: a step moves 32 bytes for each parameter, a copy 8. */
static void check_network_size(int threads) {
    enum { COUNT = 11176512, RUNS = 5 };
    zonal__optimiser_spec spec = zonal__optimiser_defaults(ZONAL__OPTIMISER_ADAMW);
    zonal__optimiser_segment segment = {"weight", 0, COUNT, 1, 1};
    zonal__optimiser *optimiser = NULL;
    const zonal__optimiser_table *table = zonal__optimiser_cpu();
    float *p = NULL, *g = NULL;
    double best = INFINITY, norm = 0;
    int64_t wrong = 0;
    spec.count = COUNT;
    spec.threads = threads;
    if (!CHECK_OK(ZONAL_NEW(&p, COUNT, "parameters")) ||
        !CHECK_OK(ZONAL_NEW(&g, COUNT, "gradients")) ||
        !CHECK_OK(table->create(&spec, &segment, 1, &optimiser)))
        goto done;
    for (int64_t i = 0; i < COUNT; i++) {
        p[i] = 1;
        g[i] = i % 2 ? 0.5f : -0.5f;
    }
    for (int step = 1; step <= RUNS; step++) {
        zonal__optimiser_numbers numbers;
        CHECK_OK(zonal__optimiser_numbers_make(&spec, 0.01, step, &numbers));
        double start = seconds();
        CHECK_OK(table->step(optimiser, &(zonal__optimiser_arrays){p, g, NULL}, &numbers, &norm));
        best = fmin(best, seconds() - start);
    }
    CHECK_CLOSE(norm, 0.5 * sqrt((double)COUNT), 1e-12 * norm);
    for (int64_t i = 0; i < COUNT; i++) /* 5 steps, each with some roundings of a number near 1 */
        wrong += !(fabs((double)p[i] - (1 + (i % 2 ? -1 : 1) * 0.01 * RUNS)) < 1e-6);
    CHECK_MSG(wrong == 0, "%lld elements are wrong", (long long)wrong);
    printf("# AdamW, %d parameters, threads %d (0: all): %.2f ms, %.1f GB/s; a copy by one thread: "
           "%.1f GB/s\n",
           COUNT, threads, best * 1e3, 32e-9 * COUNT / best,
           8e-9 * COUNT / fastest_copy(p, g, COUNT));
done:
    table->destroy(optimiser);
    zonal__free(p);
    zonal__free(g);
}

static void test_network_size(void) {
    check_network_size(1);
    check_network_size(0);
}

static const test_case tests[] = {
    {"golden_ref", test_golden_ref},
    {"golden_cpu", test_golden_cpu},
    {"clipping", test_clipping},
    {"decay_alone", test_decay_alone},
    {"lars_without_ratio", test_lars_without_ratio},
    {"copy", test_copy},
    {"refusal", test_refusal},
    {"large_gradients", test_large_gradients},
    {"cpu_against_ref", test_cpu_against_ref},
    {"threads", test_threads},
    {"resume", test_resume},
    {"state_names", test_state_names},
    {"allocation_failures", test_allocation_failures},
    {"step_takes_no_memory", test_step_takes_no_memory},
    {"bad_specs", test_bad_specs},
    {"bad_segments", test_bad_segments},
    {"numbers", test_numbers},
    {"network_size", test_network_size},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
