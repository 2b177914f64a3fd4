/*
 * What follows is NCCL's own interface as far as it is used, of version 2.18 and later; a newer
 * library takes the shorter configuration of an older one. Declared here, zonal needs no header of
 * it, and CUDA's streams are pointers.
 */
#include "dist/nccl.h"

#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/shared_library.h"
#include "dist/clock.h"

typedef struct identifier {
    char bytes[128];
} identifier;

typedef struct configuration {
    size_t size;
    unsigned magic, version;
    int blocking;
    int cluster_size, least_blocks, most_blocks;
    const char *net_name;
    int split_share;
} configuration;

enum { SUCCESS = 0, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum { BYTES = 1, FLOAT = 7, DOUBLE = 8 }; /* element types */
enum { SUM = 0 };
enum { OLDEST = 21800 }; /* 2.18.0: nonblocking communicators, and how they are ended */

typedef struct functions {
    int (*version)(int *version);
    int (*identify)(identifier *id);
    int (*create)(void **comm, int ranks, identifier id, int rank, configuration *config);
    int (*state)(void *comm, int *state);
    int (*finalize)(void *comm);
    int (*destroy)(void *comm);
    int (*give_up)(void *comm);
    const char *(*text)(int result);
    int (*all_reduce)(const void *from, void *to, size_t count, int type, int op, void *comm,
                      void *stream);
    int (*broadcast)(const void *from, void *to, size_t count, int type, int root, void *comm,
                     void *stream);
    int (*send)(const void *from, size_t count, int type, int peer, void *comm, void *stream);
    int (*receive)(void *to, size_t count, int type, int peer, void *comm, void *stream);
    int (*group_begin)(void);
    int (*group_end)(void);
} functions;

struct zonal__nccl {
    zonal_communicator communicator;
    const zonal__device *device;
    void *comm;
    double seconds;
    /* A shift runs beside the work of the stream that it was begun on. */
    void *side, *begun, *done;
};

/* ---- the library ----------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    int loaded;
    functions f;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static zonal_status load(functions *f) {
    static const char *const names[] = {"libnccl.so.2", NULL};
    static const zonal__shared_library library = {
        "NCCL", names, NULL, "install libnccl2, or name its folder in LD_LIBRARY_PATH"};
    const struct {
        const char *name;
        void *out;
    } list[] = {{"ncclGetVersion", &f->version},
                {"ncclGetUniqueId", &f->identify},
                {"ncclCommInitRankConfig", &f->create},
                {"ncclCommGetAsyncError", &f->state},
                {"ncclCommFinalize", &f->finalize},
                {"ncclCommDestroy", &f->destroy},
                {"ncclCommAbort", &f->give_up},
                {"ncclGetErrorString", &f->text},
                {"ncclAllReduce", &f->all_reduce},
                {"ncclBroadcast", &f->broadcast},
                {"ncclSend", &f->send},
                {"ncclRecv", &f->receive},
                {"ncclGroupStart", &f->group_begin},
                {"ncclGroupEnd", &f->group_end}};
    void *handle;
    int version = 0;
    ZONAL_TRY(zonal__shared_library_open(&library, &handle));
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        ZONAL_TRY(zonal__shared_library_function(&library, handle, list[i].name, list[i].out));
    if (f->version(&version) != SUCCESS || version < OLDEST)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED, "NCCL has version %d, but 2.18 or later is needed: %s",
                          version, library.remedy);
    return ZONAL_OK;
}

static zonal_status open_library(const functions **out) {
    zonal_status status = ZONAL_OK;
    pthread_mutex_lock(&process.lock);
    if (!process.loaded) {
        status = load(&process.f);
        process.loaded = status == ZONAL_OK;
    }
    pthread_mutex_unlock(&process.lock);
    *out = &process.f;
    return status;
}

zonal_status zonal__nccl_available(const zonal__device *device) {
    const char *collectives = device->backend->runtime->collectives;
    const functions *f;
    if (!collectives || strcmp(collectives, "nccl") != 0)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED, "the device %s has no NCCL", device->name);
    return open_library(&f);
}

/* ---- results --------------------------------------------------------------------------------- */

static zonal_status fail(int result) {
    if (result == SUCCESS || result == IN_PROGRESS) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_IO,
                      result == REMOTE_ERROR
                          ? "NCCL has lost a rank or its network (%s); NCCL_DEBUG=INFO says more"
                          : "NCCL failed: %s; NCCL_DEBUG=INFO says more",
                      process.f.text(result));
}

zonal_status zonal__nccl_check(zonal__nccl *nccl) {
    int state = SUCCESS, result = process.f.state(nccl->comm, &state);
    ZONAL_TRY(fail(result));
    return fail(state);
}

/* A nonblocking call has returned: waits until NCCL has taken the work, which is not until the
 * device has done it. */
static zonal_status settle(zonal__nccl *nccl, int result) {
    double until = zonal__clock() + nccl->seconds;
    while (result == IN_PROGRESS) {
        int called = process.f.state(nccl->comm, &result);
        ZONAL_TRY(fail(called));
        if (result != IN_PROGRESS) break;
        if (zonal__clock() > until)
            return ZONAL_FAIL(ZONAL_IO, "NCCL has waited %g s for other ranks", nccl->seconds);
        usleep(20);
    }
    return fail(result);
}

/* ---- the collectives ------------------------------------------------------------------------- */

static zonal_status enter(const zonal__nccl *nccl, int *before) {
    return nccl->device->backend->runtime->enter(nccl->device, before);
}

static void leave(const zonal__nccl *nccl, int before) {
    nccl->device->backend->runtime->leave(before);
}

static zonal_status all_reduce(void *context, void *number, int64_t count, zonal_reduce type,
                               void *stream) {
    zonal__nccl *nccl = context;
    zonal_status status;
    int before;
    if (count == 0) return ZONAL_OK;
    ZONAL_TRY(enter(nccl, &before));
    status = settle(nccl, process.f.all_reduce(number, number, (size_t)count,
                                               type == ZONAL_REDUCE_FP32 ? FLOAT : DOUBLE, SUM,
                                               nccl->comm, stream));
    leave(nccl, before);
    return status;
}

static zonal_status broadcast(void *context, void *block, int64_t bytes, int root, void *stream) {
    zonal__nccl *nccl = context;
    zonal_status status;
    int before;
    if (bytes == 0) return ZONAL_OK;
    ZONAL_TRY(enter(nccl, &before));
    status = settle(
        nccl, process.f.broadcast(block, block, (size_t)bytes, BYTES, root, nccl->comm, stream));
    leave(nccl, before);
    return status;
}

/* Calls between begin and end are one operation, and end is called whatever they return. */
static zonal_status end_group(zonal__nccl *nccl, int result) {
    int ended = process.f.group_end();
    return settle(nccl, result != SUCCESS && result != IN_PROGRESS ? result : ended);
}

/* Blocks of different sizes are a broadcast of each rank. */
static zonal_status all_gather(void *context, const void *mine, void *all, const int64_t *bytes,
                               void *stream) {
    zonal__nccl *nccl = context;
    char *at = all;
    zonal_status status;
    int before, result = SUCCESS;
    ZONAL_TRY(enter(nccl, &before));
    process.f.group_begin();
    for (int r = 0; r < nccl->communicator.ranks; at += bytes[r++]) {
        if (bytes[r] == 0 || (result != SUCCESS && result != IN_PROGRESS)) continue;
        result = process.f.broadcast(r == nccl->communicator.rank ? mine : at, at, (size_t)bytes[r],
                                     BYTES, r, nccl->comm, stream);
    }
    status = end_group(nccl, result);
    leave(nccl, before);
    return status;
}

static zonal_status shift_begin(void *context, const void *send, int64_t send_bytes, void *receive,
                                int64_t receive_bytes, void *stream) {
    zonal__nccl *nccl = context;
    int ranks = nccl->communicator.ranks, rank = nccl->communicator.rank;
    int before, result = SUCCESS;
    zonal_status status;
    ZONAL_TRY(zonal__device_event_record(nccl->device, nccl->begun, stream));
    ZONAL_TRY(zonal__device_event_hold(nccl->device, nccl->begun, nccl->side));
    ZONAL_TRY(enter(nccl, &before));
    process.f.group_begin();
    if (send_bytes > 0)
        result = process.f.send(send, (size_t)send_bytes, BYTES, (rank + 1) % ranks, nccl->comm,
                                nccl->side);
    if (receive_bytes > 0 && (result == SUCCESS || result == IN_PROGRESS))
        result = process.f.receive(receive, (size_t)receive_bytes, BYTES,
                                   (rank + ranks - 1) % ranks, nccl->comm, nccl->side);
    status = end_group(nccl, result);
    leave(nccl, before);
    ZONAL_TRY(status);
    return zonal__device_event_record(nccl->device, nccl->done, nccl->side);
}

static zonal_status shift_end(void *context, void *stream) {
    zonal__nccl *nccl = context;
    return zonal__device_event_hold(nccl->device, nccl->done, stream);
}

/* ---- create and destroy ---------------------------------------------------------------------- */

const zonal_communicator *zonal__nccl_communicator(const zonal__nccl *nccl) {
    return &nccl->communicator;
}

static void release(zonal__nccl *nccl) {
    zonal__device_event_destroy(nccl->device, nccl->begun);
    zonal__device_event_destroy(nccl->device, nccl->done);
    zonal__device_stream_destroy(nccl->device, nccl->side);
    zonal__free(nccl);
}

void zonal__nccl_destroy(zonal__nccl *nccl, int in_order) {
    int before;
    if (!nccl) return;
    if (nccl->comm && enter(nccl, &before) == ZONAL_OK) {
        if (in_order && settle(nccl, process.f.finalize(nccl->comm)) == ZONAL_OK)
            process.f.destroy(nccl->comm);
        else
            process.f.give_up(nccl->comm);
        leave(nccl, before);
    }
    release(nccl);
}

/* What a rank makes alone. */
static zonal_status prepare(const zonal_communicator *host, const zonal__device *device,
                            double seconds, zonal__nccl **out) {
    zonal__nccl *nccl;
    zonal_status status;
    ZONAL_TRY(zonal__nccl_available(device));
    ZONAL_TRY(ZONAL_NEW(&nccl, 1, "NCCL's communicator"));
    *nccl = (zonal__nccl){.communicator = {.size = sizeof nccl->communicator,
                                           .rank = host ? host->rank : 0,
                                           .ranks = host ? host->ranks : 1,
                                           .on_device = 1,
                                           .context = nccl,
                                           .all_reduce = all_reduce,
                                           .all_gather = all_gather,
                                           .shift_begin = shift_begin,
                                           .shift_end = shift_end,
                                           .broadcast = broadcast},
                          .device = device,
                          .seconds = seconds};
    status = zonal__device_stream_create(device, &nccl->side);
    if (status == ZONAL_OK) status = zonal__device_event_create(device, &nccl->begun);
    if (status == ZONAL_OK) status = zonal__device_event_create(device, &nccl->done);
    if (status == ZONAL_OK)
        *out = nccl;
    else
        release(nccl);
    return status;
}

static zonal_status join(zonal__nccl *nccl, identifier id) {
    configuration config = {.size = sizeof config,
                            .magic = 0xcafebeef,
                            .version = OLDEST,
                            .blocking = 0,
                            .cluster_size = INT_MIN, /* NCCL's own choice, as all that follows */
                            .least_blocks = INT_MIN,
                            .most_blocks = INT_MIN,
                            .split_share = INT_MIN};
    zonal_status status;
    int before;
    ZONAL_TRY(enter(nccl, &before));
    status = settle(nccl, process.f.create(&nccl->comm, nccl->communicator.ranks, id,
                                           nccl->communicator.rank, &config));
    leave(nccl, before);
    return status;
}

/* Ranks that cannot take part are counted before any rank waits for the others inside of NCCL. */
static zonal_status exchange(const zonal_communicator *host, zonal_status own, identifier *id) {
    double failed;
    if (own == ZONAL_OK && (!host || host->rank == 0)) own = fail(process.f.identify(id));
    if (!host) return own;
    failed = own != ZONAL_OK;
    ZONAL_TRY(host->all_reduce(host->context, &failed, 1, ZONAL_REDUCE_DOUBLE, NULL));
    ZONAL_TRY(own);
    if (failed > 0) return ZONAL_FAIL(ZONAL_UNSUPPORTED, "NCCL cannot be used by another rank");
    return host->broadcast(host->context, id, sizeof *id, 0, NULL);
}

zonal_status zonal__nccl_create(const zonal_communicator *host, const zonal__device *device,
                                double seconds, zonal__nccl **out) {
    identifier id = {{0}};
    zonal_status status;
    *out = NULL;
    status = prepare(host, device, seconds, out);
    status = exchange(host, status, &id);
    if (status == ZONAL_OK) status = join(*out, id);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__nccl_destroy(*out, 0);
    *out = NULL;
    return status;
}
