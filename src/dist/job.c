#include "dist/job.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/text.h"
#include "core/thread.h"
#include "dist/clock.h"
#include "dist/nccl.h"
#include "dist/transport.h"

struct zonal__job {
    zonal__transport *transport; /* NULL: alone */
    double timeout;
    double shown;    /* when this rank last showed life */
    double *numbers; /* [ranks]: what gather_numbers has heard */
    /* What zonal__job_on has found for a device; NULL: not asked yet. */
    const zonal__device *device;
    const zonal_communicator *on_device;
    zonal__nccl *nccl;  /* NULL: on_device is for host memory */
    int shared_failure; /* the last zonal__job_all has failed: all ranks know, and come to close
                         */
};

#define AT(field) .target = offsetof(zonal__job_options, field)
int zonal__job_option(int i, zonal__option *entry) {
    static const char *const launchers[] = {"auto", "none", "mpi", "env", "slurm", NULL};
    static const zonal__option list[] = {
        {.name = "launcher",
         .type = ZONAL__OPTION_WORD,
         AT(launcher),
         .words = launchers,
         .initial = "auto",
         .rules = ZONAL__OPTION_LINE,
         .help = "what started the ranks of this job; none: each process works alone"},
        {.name = "rank-timeout",
         .type = ZONAL__OPTION_DOUBLE,
         AT(timeout),
         .initial = "60",
         .least = 0.5,
         .most = 86400,
         .rules = ZONAL__OPTION_LINE,
         .metavar = "SECONDS",
         .help = "give up on a rank that does not answer for this long"},
        {.name = "rendezvous",
         .type = ZONAL__OPTION_STRING,
         AT(rendezvous),
         .rules = ZONAL__OPTION_LINE,
         .metavar = "FOLDER",
         .help = "where the ranks find rank 0's address, instead of in MASTER_ADDR"}};
    if (i < 0 || i >= (int)(sizeof list / sizeof list[0])) return 0;
    *entry = list[i];
    return 1;
}

/* ---- open and close -------------------------------------------------------------------------- */

static zonal_status connect_ranks(const zonal__job_options *options, zonal__job *job) {
    zonal__launch launch;
    ZONAL_TRY(zonal__launch_read(options->launcher, options->rendezvous, &launch));
    if (launch.launcher == ZONAL__LAUNCHER_NONE) return ZONAL_OK;
    ZONAL_TRY(launch.launcher == ZONAL__LAUNCHER_MPI
                  ? zonal__transport_mpi(&launch, options->timeout, &job->transport)
                  : zonal__transport_tcp(&launch, options->timeout, &job->transport));
    return ZONAL_NEW(&job->numbers, job->transport->communicator.ranks, "the ranks' answers");
}

zonal_status zonal__job_open(const zonal__job_options *options, zonal__job **out) {
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(out, 1, "the ranks"));
    (*out)->timeout = options->timeout;
    status = connect_ranks(options, *out);
    if (status == ZONAL_OK) return ZONAL_OK;
    if ((*out)->transport) (*out)->transport->close((*out)->transport, 0, 1);
    zonal__free(*out);
    *out = NULL;
    return status;
}

void zonal__job_close(zonal__job *job, zonal_status status) {
    if (!job) return;
    if (job->transport) {
        int in_order = !job->transport->lost && (status == ZONAL_OK || job->shared_failure);
        zonal__nccl_destroy(job->nccl, in_order);
        if (!in_order && !zonal__job_speaks(job, status))
            usleep((useconds_t)(zonal__transport_grace(job->timeout) * 1e6));
        job->transport->close(job->transport, in_order, status == ZONAL_ARGUMENT ? 2 : 1);
    }
    zonal__free(job->numbers);
    zonal__free(job);
}

/* ---- who is who ------------------------------------------------------------------------------ */

static const zonal__transport *transport_of(const zonal__job *job) {
    return job ? job->transport : NULL;
}

int zonal__job_rank(const zonal__job *job) {
    return transport_of(job) ? job->transport->communicator.rank : 0;
}

int zonal__job_count(const zonal__job *job) {
    return transport_of(job) ? job->transport->communicator.ranks : 1;
}

int zonal__job_local(const zonal__job *job) {
    return transport_of(job) ? job->transport->place.local : 0;
}

int64_t zonal__job_threads(const zonal__job *job, int64_t asked) {
    int share;
    if (asked > 0 || !transport_of(job)) return asked;
    share = zonal__processors() / job->transport->place.sharing;
    return share > 1 ? share : 1;
}

const char *zonal__job_transport(const zonal__job *job) {
    return transport_of(job) ? job->transport->name : "alone";
}

int zonal__job_speaks(const zonal__job *job, zonal_status status) {
    if (!transport_of(job)) return 1;
    if (job->transport->lost) return job->transport->speaker == job->transport->communicator.rank;
    return zonal__job_rank(job) == 0 || (status != ZONAL_OK && !job->shared_failure);
}

const zonal_communicator *zonal__job_host(zonal__job *job) {
    return transport_of(job) ? &job->transport->communicator : NULL;
}

zonal_status zonal__job_device_name(const zonal__job *job, const char *name,
                                    char out[ZONAL_DEVICE_NAME]) {
    const zonal__device *device;
    int count;
    ZONAL_TRY(zonal__device_choose(name, &device));
    memcpy(out, device->name, ZONAL_DEVICE_NAME);
    if (zonal__job_count(job) == 1 || zonal__device_is_host(device) || strchr(name, ':'))
        return ZONAL_OK;
    ZONAL_TRY(device->backend->count(&count));
    out[0] = '\0';
    zonal__text_append(out, ZONAL_DEVICE_NAME, "%s:%d", device->backend->name,
                       zonal__job_local(job) % count);
    return ZONAL_OK;
}

void zonal__job_share(int64_t rows, int ranks, int rank, int64_t *first, int64_t *count) {
    int64_t each = rows / ranks, more = rows % ranks; /* the first "more" ranks have one more */
    *first = rank * each + (rank < more ? rank : more);
    *count = each + (rank < more);
}

/* ---- together -------------------------------------------------------------------------------- */

/* Every rank's number, on every rank, in job->numbers: a sum in which each has a place of its own,
 * which takes one exchange. */
static zonal_status gather_numbers(zonal__job *job, int own) {
    const zonal_communicator *c = &job->transport->communicator;
    for (int r = 0; r < c->ranks; r++) job->numbers[r] = r == c->rank ? own : 0;
    return c->all_reduce(c->context, job->numbers, c->ranks, ZONAL_REDUCE_DOUBLE, NULL);
}

/* The status and the sentence of the first rank that fails, on all ranks. "own" is a failure of
 * this rank or ZONAL_OK; "named": whether the sentence says which rank it is about. */
static zonal_status share_failure(zonal__job *job, zonal_status own, int named) {
    const zonal_communicator *c = &job->transport->communicator;
    char sentence[sizeof zonal_last_error()->message] = "";
    int first = 0;
    zonal_status status;
    if (own != ZONAL_OK) strcpy(sentence, zonal_last_error()->message);
    ZONAL_TRY(gather_numbers(job, (int)own));
    while (first < c->ranks && (int)job->numbers[first] == ZONAL_OK) first++;
    status = first < c->ranks ? (zonal_status)(int)job->numbers[first] : ZONAL_OK;
    job->shared_failure = status != ZONAL_OK;
    if (status == ZONAL_OK) return ZONAL_OK;
    ZONAL_TRY(c->broadcast(c->context, sentence, sizeof sentence, first, NULL));
    sentence[sizeof sentence - 1] = '\0';
    if (named || first == 0) return ZONAL_FAIL(status, "%s", sentence);
    return ZONAL_FAIL(status, "rank %d: %s", first, sentence);
}

/* Whether a rank was lost before: then the first sentence about it stays. */
static int is_lost(const zonal__job *job) {
    return transport_of(job) && job->transport->lost;
}

static zonal_status still_lost(zonal_status status) {
    return status != ZONAL_OK ? status : ZONAL_FAIL(ZONAL_IO, "a rank is missing");
}

zonal_status zonal__job_all(zonal__job *job, zonal_status status) {
    if (!transport_of(job)) return status;
    if (is_lost(job)) return still_lost(status);
    return share_failure(job, status, 0);
}

zonal_status zonal__job_any(zonal__job *job, int flag, int *any) {
    *any = flag != 0;
    if (!transport_of(job)) return ZONAL_OK;
    ZONAL_TRY(gather_numbers(job, flag != 0));
    for (int r = 0; r < zonal__job_count(job); r++) *any |= job->numbers[r] != 0;
    return ZONAL_OK;
}

void zonal__job_alive(zonal__job *job) {
    double now = zonal__clock();
    if (!transport_of(job) || job->transport->lost ||
        now - job->shown < zonal__transport_grace(job->timeout) / 2)
        return;
    job->shown = now;
    job->transport->show_life(job->transport);
}

/* Rank 0's bytes on all ranks, with a zero behind them. */
static zonal_status spread_bytes(zonal__job *job, const void *bytes, int64_t count, char **out,
                                 int64_t *got) {
    const zonal_communicator *c = &job->transport->communicator;
    zonal_status status;
    *got = count;
    ZONAL_TRY(c->broadcast(c->context, got, sizeof *got, 0, NULL));
    status = zonal__alloc(*got + 1, 1, "the text of rank 0", (void **)out);
    if (status == ZONAL_OK && c->rank == 0 && count > 0) memcpy(*out, bytes, (size_t)count);
    status = share_failure(job, status, 0);
    if (status == ZONAL_OK && *got > 0) status = c->broadcast(c->context, *out, *got, 0, NULL);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__free(*out);
    *out = NULL;
    return status;
}

zonal_status zonal__job_text(zonal__job *job, const char *text, char **out) {
    int64_t length = zonal__job_rank(job) == 0 ? (int64_t)strlen(text) : 0;
    *out = NULL;
    if (transport_of(job)) return spread_bytes(job, text, length, out, &length);
    ZONAL_TRY(zonal__alloc(length + 1, 1, "a text", (void **)out));
    memcpy(*out, text, (size_t)length);
    return ZONAL_OK;
}

/* ---- on a device ----------------------------------------------------------------------------- */

/* A rank's device as the others see it. */
typedef struct card {
    zonal__process process; /* for its machine */
    int64_t usable;         /* by NCCL */
    char name[64];          /* no other device of the machine has it */
} card;

static card describe_device(const zonal__device *device, const zonal__process *own) {
    const zonal__runtime *runtime = device->backend->runtime;
    card c = {.process = *own};
    c.usable = zonal__nccl_available(device) == ZONAL_OK &&
               runtime->identify(device, c.name, sizeof c.name) == ZONAL_OK;
    return c;
}

/* Why NCCL cannot serve these devices; NULL: it can. */
static const char *why_not(const card *all, int ranks, int *rank) {
    for (*rank = 0; *rank < ranks; ++*rank) {
        const card *own = &all[*rank];
        if (!own->usable) return "has no device that NCCL can use";
        for (int r = 0; r < *rank; r++)
            if (zonal__machine_same(&own->process, &all[r].process) &&
                memcmp(own->name, all[r].name, sizeof own->name) == 0)
                return "shares its device with another rank";
    }
    return NULL;
}

/* *why is set where NCCL cannot be used. The cards come to all ranks, so all decide alike. */
static zonal_status judge_devices(zonal__job *job, const zonal__device *device, const char **why,
                                  int *rank) {
    const zonal_communicator *c = &job->transport->communicator;
    zonal__process *processes;
    zonal__place place;
    card *all = NULL, own;
    int64_t *bytes = NULL;
    zonal_status status;
    ZONAL_TRY(zonal__machine_gather(c, &processes, &place));
    own = describe_device(device, &processes[c->rank]);
    zonal__free(processes);
    status = ZONAL_NEW(&all, c->ranks, "the ranks' devices");
    if (status == ZONAL_OK) status = ZONAL_NEW(&bytes, c->ranks, "the ranks' devices");
    for (int r = 0; status == ZONAL_OK && r < c->ranks; r++) bytes[r] = sizeof own;
    if (status == ZONAL_OK) status = c->all_gather(c->context, &own, all, bytes, NULL);
    if (status == ZONAL_OK) *why = why_not(all, c->ranks, rank);
    zonal__free(all);
    zonal__free(bytes);
    return status;
}

zonal_status zonal__job_on(zonal__job *job, const zonal__device *device,
                           const zonal_communicator **out) {
    const char *why = NULL;
    int rank = 0;
    *out = NULL;
    if (!transport_of(job)) return ZONAL_OK;
    if (job->device != device) {
        ZONAL_TRY(judge_devices(job, device, &why, &rank));
        zonal__nccl_destroy(job->nccl, 1);
        job->nccl = NULL;
        job->on_device = &job->transport->communicator;
        if (!why) {
            ZONAL_TRY(share_failure(
                job, zonal__nccl_create(job->on_device, device, job->timeout, &job->nccl), 0));
            job->on_device = zonal__nccl_communicator(job->nccl);
        } else if (!zonal__device_is_host(device) && zonal__job_rank(job) == 0)
            zonal__log("ranks exchange numbers through host memory: rank %d %s", rank, why);
        job->device = device;
    }
    *out = job->on_device;
    return ZONAL_OK;
}

/* Until the event, an error of NCCL or the deadline. Most waits are short: the processor spins
 * before it sleeps. */
static zonal_status poll_event(zonal__job *job, const zonal__device *device, void *event) {
    double begun = zonal__clock(), waited = 0;
    int done = 0;
    while (waited < job->timeout) {
        ZONAL_TRY(zonal__device_event_done(device, event, &done));
        if (done) return ZONAL_OK;
        waited = zonal__clock() -
                 fmax(begun, waited > 1 ? job->transport->last_life(job->transport) : 0);
        if (waited > 1e-3) {
            zonal_status status = zonal__nccl_check(job->nccl);
            if (status != ZONAL_OK) break;
            usleep(50);
        }
    }
    zonal__nccl_destroy(job->nccl, 0);
    job->nccl = NULL;
    return job->transport->call_roll(job->transport);
}

zonal_status zonal__job_wait(zonal__job *job, const zonal__device *device, void *stream) {
    void *event;
    zonal_status status;
    ZONAL_TRY(zonal__device_event_create(device, &event));
    status = zonal__device_event_record(device, event, stream);
    if (status == ZONAL_OK)
        status = job && job->nccl ? poll_event(job, device, event)
                                  : zonal__device_event_wait(device, event);
    zonal__device_event_destroy(device, event);
    return status;
}

/* ---- agreement ------------------------------------------------------------------------------- */

/* A list as one block: key, zero, value, zero, and so on. */
static zonal_status write_list(const zonal__agreement *list, int64_t count, char **out,
                               int64_t *bytes) {
    char *at;
    *bytes = 0;
    for (int64_t i = 0; i < count; i++)
        *bytes += (int64_t)(strlen(list[i].key) + strlen(list[i].value)) + 2;
    ZONAL_TRY(zonal__alloc(*bytes + 1, 1, "the ranks' settings", (void **)out));
    at = *out;
    for (int64_t i = 0; i < count; i++) {
        at = stpcpy(at, list[i].key) + 1;
        at = stpcpy(at, list[i].value) + 1;
    }
    return ZONAL_OK;
}

static const char *find_value(const zonal__agreement *list, int64_t count, const char *key) {
    for (int64_t i = 0; i < count; i++)
        if (strcmp(list[i].key, key) == 0) return list[i].value;
    return NULL;
}

/* A value as a sentence can hold it. */
static const char *show(const char *value, char out[160]) {
    char plain[512];
    if (!value) return "nothing";
    zonal__text_shorten(zonal__text_plain(value, plain, sizeof plain), out, 160);
    return out;
}

static zonal_status differ(int rank, const char *key, const char *first, const char *own) {
    char a[160], b[160];
    return ZONAL_FAIL(
        ZONAL_ARGUMENT,
        "the ranks differ in %s: rank 0 has %s, rank %d has %s; start all of them with "
        "the same program, options and data",
        key, show(first, a), rank, show(own, b));
}

/* Compares this rank's list with rank 0's block, and looks for keys that rank 0 does not have. */
static zonal_status compare(int rank, const char *block, int64_t bytes,
                            const zonal__agreement *list, int64_t count) {
    int64_t keys = 0;
    for (const char *key = block; key < block + bytes; keys++) {
        const char *value = key + strlen(key) + 1, *own = find_value(list, count, key);
        if (!own || strcmp(own, value) != 0) return differ(rank, key, value, own);
        key = value + strlen(value) + 1;
    }
    for (int64_t i = 0; i < count && keys != count; i++) {
        const char *key = block;
        while (key < block + bytes && strcmp(key, list[i].key) != 0) {
            key += strlen(key) + 1;
            key += strlen(key) + 1;
        }
        if (key >= block + bytes) return differ(rank, list[i].key, NULL, list[i].value);
    }
    return ZONAL_OK;
}

static zonal_status agree_on(zonal__job *job, const zonal__agreement *list, int64_t count) {
    char *own = NULL, *first = NULL;
    int64_t bytes = 0, got;
    zonal_status status = ZONAL_OK;
    if (zonal__job_rank(job) == 0) status = write_list(list, count, &own, &bytes);
    status = share_failure(job, status, 1);
    if (status == ZONAL_OK) status = spread_bytes(job, own, bytes, &first, &got);
    if (status == ZONAL_OK)
        status = share_failure(job, compare(zonal__job_rank(job), first, got, list, count), 1);
    zonal__free(own);
    zonal__free(first);
    return status;
}

zonal_status zonal__job_same(zonal__job *job, const zonal__agreement *list, int64_t count) {
    const zonal__agreement version = {"zonal's version", zonal_version()};
    if (!transport_of(job)) return ZONAL_OK;
    ZONAL_TRY(agree_on(job, &version, 1));
    return agree_on(job, list, count);
}
