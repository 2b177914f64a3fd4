/* The ranks in threads that the tests of distributed losses and training stand on. */
#include "thread_ranks.h"

#include "core/error.h"
#include "test.h"

typedef struct outcome {
    double sum[THREAD_RANKS][600];
    float small[THREAD_RANKS][3];
    char all[THREAD_RANKS][64];
    int shifted[THREAD_RANKS], told[THREAD_RANKS];
    zonal_status status[THREAD_RANKS];
} outcome;

static zonal_status everything(const zonal_communicator *c, outcome *out) {
    int r = c->rank;
    int64_t bytes[THREAD_RANKS], at = 0;
    char mine[THREAD_RANKS];
    for (int i = 0; i < 600; i++) out->sum[r][i] = i + 1000 * r;
    for (int i = 0; i < 3; i++) out->small[r][i] = (float)(i + 1);
    ZONAL_TRY(c->all_reduce(c->context, out->sum[r], 600, ZONAL_REDUCE_DOUBLE, NULL));
    ZONAL_TRY(c->all_reduce(c->context, out->small[r], 3, ZONAL_REDUCE_FP32, NULL));
    for (int k = 0; k < c->ranks; k++) bytes[k] = k; /* rank 0 has none */
    for (int k = 0; k < r; k++) at += k;
    memset(mine, 'a' + r, sizeof mine);
    ZONAL_TRY(c->all_gather(c->context, mine, out->all[r], bytes, NULL));
    memset(out->all[r] + at, 0, (size_t)r);
    memset(out->all[r] + at, 'a' + r, (size_t)r); /* in place */
    ZONAL_TRY(c->all_gather(c->context, out->all[r] + at, out->all[r], bytes, NULL));
    ZONAL_TRY(
        c->shift_begin(c->context, &c->rank, sizeof(int), &out->shifted[r], sizeof(int), NULL));
    ZONAL_TRY(c->shift_end(c->context, NULL));
    out->told[r] = r;
    return c->broadcast(c->context, &out->told[r], sizeof(int), c->ranks - 1, NULL);
}

static void body(const zonal_communicator *communicator, void *context) {
    outcome *out = context;
    out->status[communicator->rank] = everything(communicator, out);
}

static void test_collectives(void) {
    static outcome out;
    for (int ranks = 1; ranks <= 4; ranks++) {
        memset(&out, 0, sizeof out);
        if (!CHECK_OK(thread_ranks_run(ranks, body, &out))) return;
        for (int r = 0; r < ranks; r++) {
            CHECK(out.status[r] == ZONAL_OK);
            for (int i = 0; i < 600; i++)
                CHECK_CLOSE(out.sum[r][i], i * ranks + 500.0 * ranks * (ranks - 1), 0);
            for (int i = 0; i < 3; i++) CHECK_CLOSE(out.small[r][i], ranks * (i + 1.0), 0);
            const char *want[] = {"", "", "b", "bcc", "bccddd"};
            CHECK_MSG(!strcmp(out.all[r], want[ranks]), "gathered %s", out.all[r]);
            CHECK(out.shifted[r] == (r + ranks - 1) % ranks);
            CHECK(out.told[r] == ranks - 1);
        }
    }
}

static const test_case tests[] = {{"collectives", test_collectives}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
