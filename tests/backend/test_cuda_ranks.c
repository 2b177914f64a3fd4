/*
 * CUDA losses of a batch that several ranks hold together, all on one GPU: ranks are threads, and
 * their communicator takes host memory, or device memory by a detour. The oracle is the CPU in
 * double, with all rows on one rank. Skipped where there is no GPU, unless ZONAL_REQUIRE_GPU is
 * set.
 */
#include <stdlib.h>

#include "backend/device.h"
#include "core/random.h"
#include "gpu.h"
#include "thread_ranks.h"
#include "zonal/loss.h"

static int no_gpu(void) {
    return gpu_is_missing(gpu_device() != NULL);
}

/* ---- device memory by a detour --------------------------------------------------------------- */

/* A communicator for device memory out of one for host memory. */
typedef struct detour {
    const zonal_communicator *inner;
    void *send, *receive, *device_receive;
    int64_t receive_bytes;
} detour;

static zonal_status fetch(const void *device, int64_t bytes, void **host) {
    *host = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (!*host) return zonal_error_set(ZONAL_MEMORY, "no memory for a detour");
    return bytes > 0 ? zonal__device_read(gpu_device(), *host, device, (size_t)bytes) : ZONAL_OK;
}

static zonal_status put(void *device, const void *host, int64_t bytes) {
    return bytes > 0 ? zonal__device_write(gpu_device(), device, host, (size_t)bytes) : ZONAL_OK;
}

static zonal_status all_reduce(void *context, void *number, int64_t count, zonal_reduce type,
                               void *stream) {
    const zonal_communicator *inner = ((detour *)context)->inner;
    int64_t bytes = count * (type == ZONAL_REDUCE_FP32 ? 4 : 8);
    void *host;
    zonal_status status = fetch(number, bytes, &host);
    if (status == ZONAL_OK) status = inner->all_reduce(inner->context, host, count, type, stream);
    if (status == ZONAL_OK) status = put(number, host, bytes);
    free(host);
    return status;
}

static zonal_status all_gather(void *context, const void *mine, void *all, const int64_t *bytes,
                               void *stream) {
    const zonal_communicator *inner = ((detour *)context)->inner;
    int64_t whole = 0;
    void *own, *host = NULL;
    for (int r = 0; r < inner->ranks; r++) whole += bytes[r];
    zonal_status status = fetch(mine, bytes[inner->rank], &own);
    if (status == ZONAL_OK) status = fetch(all, whole, &host);
    if (status == ZONAL_OK) status = inner->all_gather(inner->context, own, host, bytes, stream);
    if (status == ZONAL_OK) status = put(all, host, whole);
    free(own);
    free(host);
    return status;
}

static zonal_status shift_begin(void *context, const void *send, int64_t send_bytes, void *receive,
                                int64_t receive_bytes, void *stream) {
    detour *d = context;
    zonal_status status = fetch(send, send_bytes, &d->send);
    d->receive = malloc((size_t)receive_bytes + 1);
    d->device_receive = receive;
    d->receive_bytes = receive_bytes;
    if (status != ZONAL_OK) return status;
    return d->inner->shift_begin(d->inner->context, d->send, send_bytes, d->receive, receive_bytes,
                                 stream);
}

static zonal_status shift_end(void *context, void *stream) {
    detour *d = context;
    zonal_status status = d->inner->shift_end(d->inner->context, stream);
    if (status == ZONAL_OK) status = put(d->device_receive, d->receive, d->receive_bytes);
    free(d->send);
    free(d->receive);
    return status;
}

static zonal_status broadcast(void *context, void *block, int64_t bytes, int root, void *stream) {
    const zonal_communicator *inner = ((detour *)context)->inner;
    void *host;
    zonal_status status = fetch(block, bytes, &host);
    if (status == ZONAL_OK) status = inner->broadcast(inner->context, host, bytes, root, stream);
    if (status == ZONAL_OK) status = put(block, host, bytes);
    free(host);
    return status;
}

/* ---- one case -------------------------------------------------------------------------------- */

typedef struct cuda_ranks {
    const char *method, *options;
    int64_t views, dim; /* 1 view: a plan */
    int ranks, on_device;
    int64_t rows[THREAD_RANKS];
    const float *x; /* [views][batch][dim] */
    float *gradient;
    double value[THREAD_RANKS];
    zonal_status status[THREAD_RANKS];
    char message[THREAD_RANKS][800];
} cuda_ranks;

static int64_t batch_of(const cuda_ranks *c) {
    int64_t sum = 0;
    for (int r = 0; r < c->ranks; r++) sum += c->rows[r];
    return sum;
}

static int64_t first_of(const cuda_ranks *c, int rank) {
    int64_t sum = 0;
    for (int r = 0; r < rank; r++) sum += c->rows[r];
    return sum;
}

/* x, value and gradient are device memory. */
static zonal_status compute(const cuda_ranks *c, const zonal_communicator *communicator,
                            int64_t rows, const void *x, void *value, void *gradient) {
    zonal_status status;
    if (c->views == 1) {
        zonal_plan *plan;
        status = zonal_plan_make_with(communicator, c->method, c->options, rows, c->dim, &plan);
        if (status == ZONAL_OK) status = zonal_plan_execute(plan, x, value, gradient);
        if (status == ZONAL_OK) status = zonal_plan_status(plan);
        zonal_plan_destroy(plan);
        return status;
    }
    zonal_objective *objective;
    status = zonal_objective_make_with(communicator, c->method, c->options, c->views, 1, rows,
                                       c->dim, &objective);
    if (status == ZONAL_OK) status = zonal_objective_execute(objective, x, value, gradient);
    if (status == ZONAL_OK) status = zonal_objective_status(objective);
    zonal_objective_destroy(objective);
    return status;
}

/* One view of this rank's rows: there and back. */
static zonal_status copy_views(const cuda_ranks *c, int rank, char *device, int out) {
    size_t row = (size_t)c->dim * sizeof(float), own = (size_t)c->rows[rank] * row;
    for (int64_t v = 0; v < c->views && own > 0; v++) {
        int64_t at = (v * batch_of(c) + first_of(c, rank)) * c->dim;
        zonal_status status =
            out ? zonal__device_read(gpu_device(), c->gradient + at, device + (size_t)v * own, own)
                : zonal__device_write(gpu_device(), device + (size_t)v * own, c->x + at, own);
        if (status != ZONAL_OK) return status;
    }
    return ZONAL_OK;
}

/* The others would wait for a rank that gave up here, so there is no way out. */
static void need(zonal_status status) {
    if (status == ZONAL_OK) return;
    fprintf(stderr, "%s\n", zonal_last_error()->message);
    exit(1);
}

/* What rank "rank" does, with its communicator; NULL: one rank without. */
static void run_rank(cuda_ranks *c, int rank, const zonal_communicator *communicator) {
    void *x = NULL, *value = NULL, *gradient = NULL;
    size_t bytes = (size_t)(c->views * c->rows[rank] * c->dim) * sizeof(float) + 16;
    need(zonal__device_alloc(gpu_device(), bytes, "x", &x));
    need(zonal__device_alloc(gpu_device(), bytes, "g", &gradient));
    need(zonal__device_alloc(gpu_device(), sizeof(zonal_objective_parts), "v", &value));
    need(copy_views(c, rank, x, 0));
    c->status[rank] = compute(c, communicator, c->rows[rank], x, value, gradient);
    snprintf(c->message[rank], sizeof c->message[rank], "%s",
             c->status[rank] == ZONAL_OK ? "" : zonal_last_error()->message);
    need(zonal__device_read(gpu_device(), &c->value[rank], value, sizeof(double)));
    need(copy_views(c, rank, gradient, 1));
    zonal__device_free(gpu_device(), x);
    zonal__device_free(gpu_device(), gradient);
    zonal__device_free(gpu_device(), value);
}

static void body(const zonal_communicator *inner, void *context) {
    cuda_ranks *c = context;
    detour by = {.inner = inner};
    const zonal_communicator on_device = {.size = sizeof on_device,
                                          .rank = inner->rank,
                                          .ranks = inner->ranks,
                                          .on_device = 1,
                                          .context = &by,
                                          .all_reduce = all_reduce,
                                          .all_gather = all_gather,
                                          .shift_begin = shift_begin,
                                          .shift_end = shift_end,
                                          .broadcast = broadcast};
    run_rank(c, inner->rank, c->on_device ? &on_device : inner);
}

static float *draw(int64_t n, int64_t dim) {
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, (uint32_t)dim};
    float *x = malloc((size_t)(n * dim) * sizeof *x);
    double *row = malloc((size_t)dim * sizeof *row);
    for (int64_t i = 0; i < n; i++) {
        zonal__random_direction(&random, (uint64_t)i, dim, row);
        row[0] += 0.3;
        for (int64_t k = 0; k < dim; k++)
            x[i * dim + k] = (float)((0.5 + (double)(i % 7)) * row[k]);
    }
    free(row);
    return x;
}

/* The CPU's answer, in double. */
static int oracle(const cuda_ranks *c, double *value, double *gradient) {
    int64_t n = c->views * batch_of(c) * c->dim;
    double *x = malloc((size_t)n * sizeof *x);
    zonal_objective_parts parts;
    zonal_objective *objective = NULL;
    zonal_plan *plan = NULL;
    int ok;
    for (int64_t i = 0; i < n; i++) x[i] = c->x[i];
    const char *options =
        strstr(c->options, "slices") ? "precision=double,slices=64" : "precision=double";
    if (c->views == 1) {
        ok = CHECK_OK(zonal_plan_make(c->method, options, batch_of(c), c->dim, &plan)) &&
             CHECK_OK(zonal_plan_execute(plan, x, value, gradient));
    } else {
        ok = CHECK_OK(zonal_objective_make(c->method, options, c->views, 1, batch_of(c), c->dim,
                                           &objective)) &&
             CHECK_OK(zonal_objective_execute(objective, x, &parts, gradient));
        *value = ok ? parts.total : NAN;
    }
    zonal_plan_destroy(plan);
    zonal_objective_destroy(objective);
    free(x);
    return ok;
}

/* As zonal/loss.h promises for fp32. */
static void compare(const cuda_ranks *c, double value, const double *want) {
    int64_t n = c->views * batch_of(c) * c->dim;
    double size = strncmp(c->method, "kl", 2) == 0 ? 1 + fabs(value - 1) : fabs(value);
    double difference = 0, norm = 0;
    for (int r = 0; r < c->ranks; r++) {
        if (!CHECK_MSG(c->status[r] == ZONAL_OK, "%s, rank %d: %s", c->method, r, c->message[r]))
            return;
        CHECK_MSG(memcmp(&c->value[r], &c->value[0], sizeof(double)) == 0,
                  "%s: rank %d has another value", c->method, r);
    }
    CHECK_MSG(fabs(c->value[0] - value) <= 2e-6 * size + 2e-11, "%s on %d ranks: %.12g, want %.12g",
              c->method, c->ranks, c->value[0], value);
    for (int64_t i = 0; i < n; i++) {
        difference += (c->gradient[i] - want[i]) * (c->gradient[i] - want[i]);
        norm += want[i] * want[i];
    }
    CHECK_MSG(sqrt(difference) <= 1e-5 * sqrt(norm),
              "%s on %d ranks, %lld x %lld x %lld: gradient off by %.3g of its norm", c->method,
              c->ranks, (long long)c->views, (long long)batch_of(c), (long long)c->dim,
              sqrt(difference / norm));
}

typedef struct parts {
    int ranks;
    int64_t rows[THREAD_RANKS];
} parts;

static void run_parts(const char *method, int64_t views, int64_t dim, int on_device,
                      const parts *p) {
    int sliced = strcmp(method, "susreg") == 0 || strcmp(method, "sigreg") == 0;
    cuda_ranks c = {.method = method, .views = views, .dim = dim, .on_device = on_device};
    c.options = sliced ? "device=cuda,slices=64" : "device=cuda";
    c.ranks = p->ranks;
    memcpy(c.rows, p->rows, sizeof c.rows);
    size_t n = (size_t)(views * batch_of(&c) * dim);
    float *x = draw(views * batch_of(&c), dim), *gradient = malloc(n * sizeof *gradient);
    double *want = malloc(n * sizeof *want), value;
    c.x = x;
    c.gradient = gradient;
    if (oracle(&c, &value, want))
        for (; p->ranks; p++) {
            c.ranks = p->ranks;
            memcpy(c.rows, p->rows, sizeof c.rows);
            memset(gradient, 0xff, n * sizeof *gradient);
            if (CHECK_OK(thread_ranks_run(c.ranks, body, &c))) compare(&c, value, want);
        }
    free(x);
    free(gradient);
    free(want);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static const char *const methods[] = {"mmd-heat",   "ksd-heat", "kl-heat",
                                      "mmd-band",   "ksd-band", "mmd-induced",
                                      "kl-poisson", "susreg",   "sigreg"};
enum { METHODS = sizeof methods / sizeof methods[0] };

static const parts small_parts[] = {{1, {37}},
                                    {2, {20, 17}},
                                    {3, {13, 0, 24}},
                                    {3, {1, 35, 1}},
                                    {4, {10, 9, 9, 9}},
                                    {4, {0, 35, 1, 1}},
                                    {0}};

static void test_small(void) {
    if (no_gpu()) return;
    for (int m = 0; m < METHODS; m++)
        for (int on_device = 0; on_device <= 1; on_device++) {
            run_parts(methods[m], 1, 24, on_device, small_parts);
            run_parts(methods[m], 3, 33, on_device, small_parts);
        }
}

/* More rows than a panel of tiles has, on one rank and on all together. */
static void test_large(void) {
    static const parts list[] = {{1, {4500}}, {2, {2100, 2400}}, {4, {3000, 1, 0, 1499}}, {0}};
    if (no_gpu()) return;
    for (int m = 0; m < METHODS; m++) run_parts(methods[m], 1, 256, 0, list);
    run_parts("mmd-band", 1, 1100, 0, list); /* rows longer than a cluster holds */
    run_parts("mmd-heat", 2, 128, 0, list);
    run_parts("kl-heat", 1, 256, 1, list);
}

static void test_bad_row(void) {
    static float gradient[37 * 24];
    if (no_gpu()) return;
    for (int m = 0; m < METHODS; m++) {
        float *x = draw(37, 24);
        cuda_ranks c = {.method = methods[m],
                        .options = "device=cuda",
                        .views = 1,
                        .dim = 24,
                        .ranks = 3,
                        .rows = {13, 0, 24},
                        .x = x,
                        .gradient = gradient};
        x[20 * 24] = NAN;
        CHECK_OK(thread_ranks_run(3, body, &c));
        for (int r = 0; r < 3; r++)
            CHECK_MSG(c.status[r] == ZONAL_NUMERIC &&
                          strstr(c.message[r], "rank 2: row 20 of the whole batch is not finite"),
                      "%s, rank %d: %s", methods[m], r, c.message[r]);
        free(x);
    }
}

/* Small batches of pairs are gathered: the result is one rank's, bit for bit. */
static void test_same_bits(void) {
    static const char *const gathered[] = {"mmd-heat", "ksd-heat", "kl-heat", "mmd-band"};
    static float alone[2 * 37 * 24], together[2 * 37 * 24];
    if (no_gpu()) return;
    for (int m = 0; m < 4; m++)
        for (int64_t views = 1; views <= 2; views++) {
            cuda_ranks c = {.method = gathered[m],
                            .options = "device=cuda",
                            .views = views,
                            .dim = 24,
                            .ranks = 1,
                            .rows = {37},
                            .gradient = alone};
            float *x = draw(2 * 37, 24);
            c.x = x;
            run_rank(&c, 0, NULL);
            double value = c.value[0];
            c.gradient = together;
            c.ranks = 3;
            memcpy(c.rows, (int64_t[]){13, 0, 24}, 3 * sizeof(int64_t));
            CHECK_OK(thread_ranks_run(3, body, &c));
            for (int r = 0; r < 3; r++)
                CHECK_MSG(c.status[r] == ZONAL_OK && c.value[r] == value, "%s, rank %d: %s",
                          gathered[m], r, c.message[r]);
            CHECK_MSG(memcmp(alone, together, (size_t)views * 37 * 24 * sizeof(float)) == 0, "%s",
                      gathered[m]);
            free(x);
        }
}

static const test_case tests[] = {{"small", test_small},
                                  {"large", test_large},
                                  {"a bad row", test_bad_row},
                                  {"same bits", test_same_bits},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
