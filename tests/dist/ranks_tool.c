/*
 * One rank of a job, for the tests of src/dist: they start several of it under a launcher.
 *
 *     ranks_tool MODE [--rank-timeout S] [--launcher L] [--rendezvous FOLDER] [WORD...]
 *
 * A failure is one line on stderr, from the rank that speaks, and exit status 1 or 2, as in the
 * program.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives.h"
#include "core/thread.h"
#include "dist/job.h"
#include "nccl_device.h"

typedef struct settings {
    zonal__job_options ranks;
} settings;

static const zonal__option table[] = {
    {.name = "ranks", .type = ZONAL__OPTION_TABLE, .target = 0, .table = zonal__job_option}, {0}};

typedef struct state {
    zonal__job *job;
    const zonal_communicator *c;
    char *const *word;
    int words;
} state;

static zonal_status collectives(state *j) {
    return j->c ? check_collectives(j->c)
                : ZONAL_FAIL(ZONAL_ARGUMENT, "collectives need several ranks");
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* RANK:WORD: what is for one rank; the word, or NULL. */
static const char *own_word(const state *j, int i) {
    char *end;
    return i < j->words && strtol(j->word[i], &end, 10) == zonal__job_rank(j->job) && *end == ':'
               ? end + 1
               : NULL;
}

/* Ranks fail as RANK:SENTENCE says. */
static zonal_status fail(state *j) {
    zonal_status status = ZONAL_OK;
    for (int i = 0; i < j->words; i++)
        if (own_word(j, i)) status = ZONAL_FAIL(ZONAL_FORMAT, "%s", own_word(j, i));
    return status;
}

/* key=value of all ranks, RANK:key=value of one, in place of an earlier value. The words are cut in
 * place. */
static zonal_status same(state *j) {
    enum { MOST = 32 };
    zonal__agreement list[MOST];
    int64_t count = 0, at;
    for (int i = 0; i < j->words && count < MOST; i++) {
        const char *own = own_word(j, i);
        char *key = j->word[i] + (own ? own - j->word[i] : 0), *equals = strchr(key, '=');
        if (!equals || (!own && strspn(key, "0123456789") && strchr(key, ':'))) continue;
        *equals = '\0';
        for (at = 0; at < count && strcmp(list[at].key, key) != 0;) at++;
        list[at] = (zonal__agreement){key, equals + 1};
        count += at == count;
    }
    return zonal__job_same(j->job, list, count);
}

static zonal_status text(state *j) {
    char *got;
    int any;
    size_t long_text = 3000000;
    char *sent = malloc(long_text + 1);
    if (!sent) return ZONAL_FAIL(ZONAL_MEMORY, "no memory");
    memset(sent, 'x', long_text);
    sent[long_text] = '\0';
    ZONAL_TRY(zonal__job_text(j->job, zonal__job_rank(j->job) ? NULL : sent, &got));
    EXPECT(strcmp(got, sent) == 0);
    zonal__free(got);
    free(sent);
    ZONAL_TRY(zonal__job_text(j->job, zonal__job_rank(j->job) ? NULL : "", &got));
    EXPECT(strcmp(got, "") == 0);
    zonal__free(got);
    ZONAL_TRY(zonal__job_any(j->job, 0, &any));
    EXPECT(any == 0);
    ZONAL_TRY(zonal__job_any(j->job, zonal__job_rank(j->job) == 1, &any));
    EXPECT(any == (zonal__job_count(j->job) > 1));
    return ZONAL_OK;
}

static zonal_status describe(state *j) {
    int share = zonal__processors() / zonal__job_count(j->job);
    EXPECT(zonal__job_threads(j->job, 3) == 3);
    if (zonal__job_count(j->job) == 1) EXPECT(zonal__job_threads(j->job, 0) == 0);
    /* started on one machine, without processors of their own */
    if (j->words > 0) EXPECT(zonal__job_threads(j->job, 0) == (share > 1 ? share : 1));
    printf("%d of %d, local %d, %s\n", zonal__job_rank(j->job), zonal__job_count(j->job),
           zonal__job_local(j->job), zonal__job_transport(j->job));
    fflush(stdout);
    return ZONAL_OK;
}

/* One rank (RANK:SECONDS) is busy for so long while the others wait; it shows life, unless it is
 * told to be "silent". */
static zonal_status busy(state *j) {
    int any, silent = j->words > 1;
    for (int i = 0; own_word(j, 0) && i < 20 * strtol(own_word(j, 0), NULL, 10); i++) {
        if (!silent) zonal__job_alive(j->job);
        usleep(50000);
    }
    return zonal__job_any(j->job, 0, &any);
}

/* Adds up for ever, or for so many rounds; each rank says where its process is. With "after": one
 * of a rank's rounds takes so many seconds more. */
static zonal_status work(state *j) {
    int64_t rounds = j->words > 0 ? strtoll(j->word[0], NULL, 10) : INT64_MAX;
    static double block[50000];
    printf("rank %d is process %ld\n", zonal__job_rank(j->job), (long)getpid());
    fflush(stdout);
    for (int64_t i = 0; i < rounds; i++) {
        const struct timespec moment = {0, 1000000L * ((i + zonal__job_rank(j->job)) % 3)};
        if (own_word(j, 1) && i == 1) sleep((unsigned)strtol(own_word(j, 1), NULL, 10));
        nanosleep(&moment, NULL);
        block[0] = 1;
        ZONAL_TRY(j->c->all_reduce(j->c->context, block, 50000, ZONAL_REDUCE_DOUBLE, NULL));
        EXPECT(block[0] == j->c->ranks);
        ZONAL_TRY(j->c->shift_begin(j->c->context, block, 8, block + 8, 8, NULL));
        ZONAL_TRY(j->c->shift_end(j->c->context, NULL));
    }
    return ZONAL_OK;
}

/* A device of NCCL's for each rank ("own") or one for all ("shared"); "hang": its work never ends,
 * and one rank (RANK:asleep) does not even wait for it. */
static zonal_status device(state *j) {
    const zonal_communicator *c, *again;
    const zonal__device *d = nccl_device();
    char id[32];
    int own = strcmp(j->word[0], "shared") != 0;
    snprintf(id, sizeof id, "bus %d", own ? zonal__job_rank(j->job) : 7);
    nccl_device_id = id;
    ZONAL_TRY(zonal__job_on(j->job, d, &c));
    EXPECT(c && c->on_device == own && c->ranks == zonal__job_count(j->job));
    ZONAL_TRY(zonal__job_on(j->job, d, &again));
    EXPECT(again == c);
    ZONAL_TRY(zonal__job_wait(j->job, d, NULL));
    if (own_word(j, 1)) sleep(60);
    nccl_device_done = strcmp(j->word[0], "hang") != 0;
    return zonal__job_wait(j->job, d, NULL);
}

static const struct {
    const char *name;
    zonal_status (*run)(state *j);
} modes[] = {{"collectives", collectives}, {"fail", fail}, {"same", same}, {"text", text},
             {"describe", describe},       {"busy", busy}, {"work", work}, {"device", device}};

static int speak(const state *j, zonal_status status) {
    if (status == ZONAL_OK) return 0;
    if (zonal__job_speaks(j->job, status))
        fprintf(stderr, "tool: %s\n", zonal_last_error()->message);
    fflush(stderr);
    return status == ZONAL_ARGUMENT ? 2 : 1;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : ""; /* parsing moves the arguments */
    settings s;
    zonal__options options;
    state j = {0};
    zonal_status status = zonal__options_init(&options, table, &s);
    int exit_status;
    if (status == ZONAL_OK && argc > 1) status = zonal__options_parse(&options, argc - 1, argv + 1);
    if (status != ZONAL_OK || argc < 2) return 3;
    j.word = options.arguments;
    j.words = options.argument_count;
    status = zonal__job_open(&s.ranks, &j.job);
    if (status != ZONAL_OK) {
        fprintf(stderr, "tool: %s\n", zonal_last_error()->message);
        return status == ZONAL_ARGUMENT ? 2 : 1;
    }
    j.c = zonal__job_host(j.job);
    status = ZONAL_ARGUMENT;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(modes[i].name, mode) == 0) status = modes[i].run(&j);
    status = zonal__job_all(j.job, status);
    if (status == ZONAL_OK && zonal__job_speaks(j.job, status)) puts("done");
    fflush(stdout);
    exit_status = speak(&j, status);
    zonal__job_close(j.job, status);
    return exit_status;
}
