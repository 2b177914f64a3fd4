#include "backend/ranks.h"

#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/sized.h"

/* How a rank fared, as it is told to the others. */
typedef struct report {
    int64_t status;
    char message[sizeof((zonal_error *)0)->message];
} report;

static zonal_status check_functions(const zonal_communicator *c) {
    const struct {
        const char *name;
        int there;
    } list[] = {{"all_reduce", c->all_reduce != NULL},
                {"all_gather", c->all_gather != NULL},
                {"shift_begin", c->shift_begin != NULL},
                {"shift_end", c->shift_end != NULL},
                {"broadcast", c->broadcast != NULL}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (!list[i].there)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "the communicator has no %s; fill all its functions",
                              list[i].name);
    return ZONAL_OK;
}

static zonal_status read_communicator(const zonal_communicator *given, const zonal__device *device,
                                      zonal_communicator *c) {
    ZONAL_TRY(zonal__sized_read(ZONAL__SIZED(zonal_communicator, broadcast), given, c));
    if (c->ranks < 1 || c->rank < 0 || c->rank >= c->ranks)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the communicator's rank is %d of %d; it must be from 0 to ranks - 1",
                          c->rank, c->ranks);
    if (c->on_device != 0 && c->on_device != 1)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "on_device of the communicator must be 0 or 1, got %d",
                          c->on_device);
    ZONAL_TRY(check_functions(c));
    if (c->on_device && (!device || zonal__device_is_host(device)))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the communicator takes device memory, but the plan is on %s; give it "
                          "one for host memory (on_device = 0)",
                          device ? device->name : "no device");
    return ZONAL_OK;
}

/* ---- words between the ranks ----------------------------------------------------------------- */

static zonal_status sum(const zonal__ranks *ranks, double *number, int64_t count) {
    const zonal_communicator *c = &ranks->communicator;
    size_t bytes = (size_t)count * sizeof *number;
    if (!ranks->message) return c->all_reduce(c->context, number, count, ZONAL_REDUCE_DOUBLE, NULL);
    ZONAL_TRY(zonal__device_write(ranks->device, ranks->message, number, bytes));
    ZONAL_TRY(c->all_reduce(c->context, ranks->message, count, ZONAL_REDUCE_DOUBLE, NULL));
    return zonal__device_read(ranks->device, number, ranks->message, bytes);
}

static zonal_status broadcast(const zonal__ranks *ranks, report *block, int root) {
    const zonal_communicator *c = &ranks->communicator;
    if (!ranks->message) return c->broadcast(c->context, block, sizeof *block, root, NULL);
    ZONAL_TRY(zonal__device_write(ranks->device, ranks->message, block, sizeof *block));
    ZONAL_TRY(c->broadcast(c->context, ranks->message, sizeof *block, root, NULL));
    return zonal__device_read(ranks->device, block, ranks->message, sizeof *block);
}

/* Rank after rank until one has something to tell: it takes no memory, of which there may be none,
 * and only happens when all is over. */
static zonal_status hear_failure(const zonal__ranks *ranks, zonal_status status) {
    report own = {.status = status}, heard;
    if (status != ZONAL_OK)
        snprintf(own.message, sizeof own.message, "%s", zonal_last_error()->message);
    for (int r = 0; r < ranks->communicator.ranks; r++) {
        heard = own;
        ZONAL_TRY(broadcast(ranks, &heard, r));
        if (heard.status == ZONAL_OK) continue;
        heard.message[sizeof heard.message - 1] = '\0';
        return ZONAL_FAIL((zonal_status)heard.status, "rank %d: %.700s", r, heard.message);
    }
    return ZONAL_FAIL(ZONAL_DEVICE, "a rank failed and does not say why; the communicator adds up "
                                    "or broadcasts wrongly");
}

zonal_status zonal__ranks_sum(const zonal__ranks *ranks, double *number, int64_t count) {
    return sum(ranks, number, count);
}

zonal_status zonal__ranks_sum_or_fail(const zonal__ranks *ranks, zonal_status status,
                                      double *number, int64_t count) {
    number[count] = status != ZONAL_OK;
    if (status != ZONAL_OK) /* what a failed rank holds may be anything */
        for (int64_t i = 0; i < count; i++) number[i] = 0;
    ZONAL_TRY(sum(ranks, number, count + 1));
    return number[count] == 0 ? ZONAL_OK : hear_failure(ranks, status);
}

zonal_status zonal__ranks_agree(const zonal__ranks *ranks, zonal_status status) {
    double failed;
    return ranks ? zonal__ranks_sum_or_fail(ranks, status, &failed, 0) : status;
}

zonal_status zonal__ranks_gather_rows(const zonal__ranks *ranks, void *all, size_t row_bytes) {
    const zonal_communicator *c = &ranks->communicator;
    const char *own = (char *)all + (size_t)ranks->first * row_bytes;
    for (int r = 0; r < c->ranks; r++) ranks->bytes[r] = ranks->rows[r] * (int64_t)row_bytes;
    return c->all_gather(c->context, own, all, ranks->bytes, NULL);
}

zonal_status zonal__ranks_refuse(const zonal__ranks *ranks, const char *what) {
    if (!ranks) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                      "%s is computed on one rank alone; leave the communicator "
                      "out",
                      what);
}

/* ---- who is there ---------------------------------------------------------------------------- */

/* What every rank tells of itself: its rows, then the values that must agree. */
typedef struct roll {
    int count;      /* of numbers of a rank */
    double *number; /* [ranks][count] */
} roll;

static zonal_status gather(const zonal__ranks *ranks, roll *all) {
    const zonal_communicator *c = &ranks->communicator;
    size_t own = (size_t)all->count * sizeof(double), whole = (size_t)c->ranks * own;
    double *mine = all->number + (int64_t)c->rank * all->count;
    for (int r = 0; r < c->ranks; r++) ranks->bytes[r] = (int64_t)own;
    if (!ranks->message) return c->all_gather(c->context, mine, all->number, ranks->bytes, NULL);
    char *place = (char *)ranks->message + (size_t)c->rank * own;
    ZONAL_TRY(zonal__device_write(ranks->device, place, mine, own));
    ZONAL_TRY(c->all_gather(c->context, place, ranks->message, ranks->bytes, NULL));
    return zonal__device_read(ranks->device, all->number, ranks->message, whole);
}

/* The value in words, or as a number. */
static void write_value(const zonal__agreed *agreed, double value, char out[64]) {
    const char *word = agreed->word && value >= 0 && value < 1e6 ? agreed->word((int)value) : NULL;
    if (word)
        snprintf(out, 64, "%s", word);
    else
        snprintf(out, 64, "%.12g", value);
}

/* Bit by bit: a NaN is equal to itself. */
static zonal_status compare(const zonal__ranks *ranks, const roll *all,
                            const zonal__agreed *values) {
    for (int r = 1; r < ranks->communicator.ranks; r++)
        for (int k = 1; k < all->count; k++) {
            double first = all->number[k], other = all->number[r * all->count + k];
            char first_text[64], other_text[64];
            if (memcmp(&first, &other, sizeof first) == 0) continue;
            write_value(&values[k - 1], first, first_text);
            write_value(&values[k - 1], other, other_text);
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "%s is %s on rank %d and %s on rank 0; all ranks must make the same "
                              "plan",
                              values[k - 1].name, other_text, r, first_text);
        }
    return ZONAL_OK;
}

static zonal_status count_rows(zonal__ranks *ranks, const roll *all) {
    for (int r = 0; r < ranks->communicator.ranks; r++) {
        int64_t rows = (int64_t)all->number[r * all->count];
        if (r == ranks->communicator.rank) ranks->first = ranks->batch;
        if (rows < 0 || __builtin_add_overflow(ranks->batch, rows, &ranks->batch))
            return ZONAL_FAIL(ZONAL_SHAPE, "rank %d has %lld rows; it must be 0 or more", r,
                              (long long)rows);
        if (rows > ranks->most) ranks->most = rows;
        ranks->rows[r] = rows;
    }
    return ZONAL_OK;
}

static zonal_status take_memory(zonal__ranks *ranks, roll *all) {
    const zonal_communicator *c = &ranks->communicator;
    ZONAL_TRY(ZONAL_NEW(&ranks->rows, c->ranks, "the ranks"));
    ZONAL_TRY(ZONAL_NEW(&ranks->bytes, c->ranks, "the ranks"));
    return ZONAL_NEW(&all->number, (int64_t)c->ranks * all->count, "the ranks");
}

static zonal_status call_roll(zonal__ranks *ranks, int64_t rows, const zonal__agreed *values,
                              roll *all, zonal_status status) {
    if (status == ZONAL_OK) status = take_memory(ranks, all);
    ZONAL_TRY(zonal__ranks_agree(ranks, status));
    double *own = all->number + (int64_t)ranks->communicator.rank * all->count;
    own[0] = (double)rows;
    for (int k = 1; k < all->count; k++) own[k] = values[k - 1].value;
    ZONAL_TRY(gather(ranks, all));
    ZONAL_TRY(compare(ranks, all, values));
    return count_rows(ranks, all);
}

zonal_status zonal__ranks_create(const zonal_communicator *communicator,
                                 const zonal__device *device, int64_t rows,
                                 const zonal__agreed *values, int count, zonal_status status,
                                 zonal__ranks **out) {
    roll all = {.count = count + 1};
    zonal__ranks here = {.device = device}, *ranks = NULL;
    *out = NULL;
    if (!communicator) return status;
    ZONAL_TRY(read_communicator(communicator, device, &here.communicator));
    if (here.communicator.on_device) {
        size_t whole = (size_t)here.communicator.ranks * (size_t)all.count * sizeof(double);
        if (whole < sizeof(report)) whole = sizeof(report);
        /* without it this rank can say nothing, and the others wait as long as they ever do */
        ZONAL_TRY(zonal__device_alloc(device, whole, "the ranks' messages", &here.message));
    }
    if (status == ZONAL_OK) status = ZONAL_NEW(&ranks, 1, "the ranks");
    status = call_roll(&here, rows, values, &all, status);
    zonal__free(all.number);
    if (status == ZONAL_OK) {
        *ranks = here;
        *out = ranks;
        return ZONAL_OK;
    }
    zonal__free(ranks);
    zonal__free(here.rows);
    zonal__free(here.bytes);
    if (here.message) zonal__device_free(device, here.message);
    return status;
}

void zonal__ranks_destroy(zonal__ranks *ranks) {
    if (!ranks) return;
    if (ranks->message) zonal__device_free(ranks->device, ranks->message);
    zonal__free(ranks->rows);
    zonal__free(ranks->bytes);
    zonal__free(ranks);
}
