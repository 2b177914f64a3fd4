/*
 * NCCL's collectives on a GPU: one rank, on a stream and in a captured graph, which is all that one
 * GPU can show; with two GPUs and mpirun the ranks test has more. Without a GPU: what is said.
 */
#include "dist/nccl.h"

#include <string.h>

#include "gpu.h"

enum { COUNT = 4097 };

typedef struct bench {
    const zonal__device *device;
    const zonal_communicator *c;
    double *number, *other; /* [COUNT], on the device */
} bench;

static int fill(const bench *b, double *host) {
    for (int i = 0; i < COUNT; i++) host[i] = i * 0.25 - 3;
    return CHECK_OK(zonal__device_write(b->device, b->number, host, COUNT * sizeof(double)));
}

/* All of them, on one stream. Of one rank, a sum is the number and the rank before is itself. */
static zonal_status enqueue(void *context, void *stream) {
    const bench *b = context;
    const int64_t bytes[] = {COUNT * sizeof(double)};
    ZONAL_TRY(b->c->all_reduce(b->c->context, b->number, COUNT, ZONAL_REDUCE_DOUBLE, stream));
    ZONAL_TRY(b->c->broadcast(b->c->context, b->number, bytes[0], 0, stream));
    ZONAL_TRY(b->c->shift_begin(b->c->context, b->number, bytes[0], b->other, bytes[0], stream));
    ZONAL_TRY(b->c->shift_end(b->c->context, stream));
    return b->c->all_gather(b->c->context, b->other, b->number, bytes, stream);
}

static void check_numbers(const bench *b, const double *want) {
    static double got[COUNT];
    if (CHECK_OK(zonal__device_read(b->device, got, b->number, sizeof got)))
        CHECK(memcmp(got, want, sizeof got) == 0);
    if (CHECK_OK(zonal__device_read(b->device, got, b->other, sizeof got)))
        CHECK(memcmp(got, want, sizeof got) == 0);
}

static void run_in_graph(const bench *b, void *stream, const double *want) {
    void *graph = NULL;
    zonal_status status;
    if (!CHECK_OK(zonal__device_graph_begin(b->device, stream))) return;
    status = enqueue((void *)b, stream);
    if (CHECK_OK(zonal__device_graph_end(b->device, stream, &graph)) && CHECK_OK(status))
        for (int i = 0; i < 3; i++) CHECK_OK(zonal__device_graph_launch(b->device, graph, stream));
    CHECK_OK(zonal__device_synchronise(b->device));
    check_numbers(b, want);
    zonal__device_graph_destroy(b->device, graph);
}

static zonal_status reduce(void *context, void *stream) {
    const bench *b = context;
    return b->c->all_reduce(b->c->context, b->number, COUNT, ZONAL_REDUCE_DOUBLE, stream);
}

static void test_one_rank(void) {
    static double host[COUNT];
    bench b = {.device = gpu_device()};
    zonal__nccl *nccl = NULL;
    void *stream = NULL;
    double us;
    if (gpu_is_missing(b.device != NULL)) return;
    if (zonal__nccl_available(b.device) != ZONAL_OK) {
        test_skip("no NCCL");
        return;
    }
    if (!CHECK_OK(zonal__nccl_create(NULL, b.device, 60, &nccl))) return;
    b.c = zonal__nccl_communicator(nccl);
    CHECK(b.c->on_device == 1 && b.c->rank == 0 && b.c->ranks == 1);
    CHECK_OK(zonal__device_stream_create(b.device, &stream));
    if (CHECK_OK(zonal__device_alloc(b.device, sizeof host, "numbers", (void **)&b.number)) &&
        CHECK_OK(zonal__device_alloc(b.device, sizeof host, "numbers", (void **)&b.other)) &&
        fill(&b, host) && CHECK_OK(enqueue(&b, stream))) {
        CHECK_OK(zonal__device_synchronise(b.device));
        check_numbers(&b, host);
        run_in_graph(&b, stream, host);
        CHECK_OK(zonal__nccl_check(nccl));
        if (CHECK_OK(zonal__device_time(b.device, reduce, &b, 1, 10, 100, &us)))
            printf("# all_reduce of %d doubles, one rank, in a graph: %.2f us\n", COUNT, us);
    }
    zonal__device_free(b.device, b.number);
    zonal__device_free(b.device, b.other);
    zonal__device_stream_destroy(b.device, stream);
    zonal__nccl_destroy(nccl, 1);
}

static void test_no_gpu(void) {
    zonal__nccl *nccl;
    CHECK_FAILS(zonal__nccl_available(zonal__device_cpu()), ZONAL_UNSUPPORTED, "cpu has no NCCL");
    CHECK_FAILS(zonal__nccl_create(NULL, zonal__device_cpu(), 1, &nccl), ZONAL_UNSUPPORTED,
                "no NCCL");
    CHECK(nccl == NULL);
    zonal__nccl_destroy(NULL, 1);
}

static const test_case tests[] = {{"no_gpu", test_no_gpu}, {"one_rank", test_one_rank}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
