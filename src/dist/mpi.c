/*
 * Ranks over MPI.
 *
 * Who is missing is found out in two ways. A rank of this machine that has ended is seen by its
 * process (pidfd), at once. For all others there is a roll call: the first rank whose deadline
 * passes sends a note to every other; whoever finds one while it waits answers with notes of its
 * own; whoever has sent none when the grace is over is missing. Notes travel by a communicator of
 * their own and need no answer, so a rank that is gone holds up nobody.
 */
#ifdef ZONAL_HAVE_MPI
#include "zonal/mpi.h"
#endif

#include "dist/transport.h"

#ifndef ZONAL_HAVE_MPI

zonal_status zonal__transport_mpi(const zonal__launch *launch, double timeout,
                                  zonal__transport **out) {
    (void)launch;
    (void)timeout;
    *out = NULL;
    return ZONAL_FAIL(
        ZONAL_UNSUPPORTED,
        "this zonal was built without MPI: install libopenmpi-dev and build it again, "
        "or start the ranks with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set");
}

#else

#include <math.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "dist/clock.h"

enum { ABORT_SECONDS = 10 };
enum { NOTE = 1, LIFE = 2 }; /* tags: a roll call, a sign of life */

typedef struct mpi_transport {
    zonal__transport base;
    zonal_mpi mpi;
    MPI_Comm notes;
    MPI_Request *sent;     /* [ranks]: notes that nobody waits for */
    char *present;         /* [ranks] */
    struct pollfd *nearby; /* [ranks]: the processes of this machine, -1 for the others */
    double looked;         /* when they were last looked at */
    double life;           /* when another rank last showed life */
} mpi_transport;

/* ---- who is there ---------------------------------------------------------------------------- */

static void read_notes(mpi_transport *t) {
    MPI_Status note;
    int there = 1;
    while (MPI_Iprobe(MPI_ANY_SOURCE, NOTE, t->notes, &there, &note) == MPI_SUCCESS && there) {
        MPI_Recv(NULL, 0, MPI_BYTE, note.MPI_SOURCE, NOTE, t->notes, MPI_STATUS_IGNORE);
        t->present[note.MPI_SOURCE] = 1;
    }
}

static void show_life(zonal__transport *transport) {
    mpi_transport *t = (mpi_transport *)transport;
    for (int r = 0; r < t->mpi.ranks; r++) {
        MPI_Request sent;
        if (r == t->mpi.rank) continue;
        MPI_Isend(NULL, 0, MPI_BYTE, r, LIFE, t->notes, &sent);
        MPI_Request_free(&sent);
    }
}

static double last_life(zonal__transport *transport) {
    mpi_transport *t = (mpi_transport *)transport;
    MPI_Status note;
    int there = 1;
    while (MPI_Iprobe(MPI_ANY_SOURCE, LIFE, t->notes, &there, &note) == MPI_SUCCESS && there) {
        MPI_Recv(NULL, 0, MPI_BYTE, note.MPI_SOURCE, LIFE, t->notes, MPI_STATUS_IGNORE);
        t->life = zonal__clock();
    }
    return t->life;
}

static int count_present(const mpi_transport *t) {
    int count = 0;
    for (int r = 0; r < t->mpi.ranks; r++) count += t->present[r];
    return count;
}

static zonal_status call_roll(zonal__transport *transport) {
    mpi_transport *t = (mpi_transport *)transport;
    double begun = MPI_Wtime(), grace = zonal__transport_grace(t->mpi.timeout);
    for (int r = 0; r < t->mpi.ranks; r++)
        if (r != t->mpi.rank) MPI_Isend(NULL, 0, MPI_BYTE, r, NOTE, t->notes, &t->sent[r]);
    while (count_present(t) < t->mpi.ranks && MPI_Wtime() - begun < grace) {
        read_notes(t);
        usleep(1000);
    }
    /* All here: perhaps because this rank was stopped, and goes on only since the others have given
     * up and the launcher ends it. It is given the time to do so. */
    if (count_present(t) == t->mpi.ranks) usleep((useconds_t)(grace * 1e6));
    return zonal__transport_lose(&t->base, t->present, 0, t->mpi.timeout);
}

/* A rank that has called the roll and ended since has spoken for all: it was this one that was
 * late, as after having been stopped. */
static zonal_status fall_silent(mpi_transport *t, int speaker) {
    t->base.lost = 1;
    t->base.speaker = speaker;
    return ZONAL_FAIL(ZONAL_IO, "the other ranks have given up on rank %d", t->mpi.rank);
}

/* A rank of this machine whose process has ended, without waiting for any deadline. */
static zonal_status look_nearby(mpi_transport *t) {
    int ended = 0;
    if (poll(t->nearby, (nfds_t)t->mpi.ranks, 0) <= 0) return ZONAL_OK;
    for (int r = 0; r < t->mpi.ranks; r++) {
        if (t->nearby[r].fd < 0 || !(t->nearby[r].revents & POLLIN)) continue;
        if (t->present[r]) return fall_silent(t, r);
        ended = 1;
    }
    if (!ended) return ZONAL_OK;
    for (int r = 0; r < t->mpi.ranks; r++)
        t->present[r] = t->nearby[r].fd < 0 || !(t->nearby[r].revents & POLLIN);
    return zonal__transport_lose(&t->base, t->present, 1, t->mpi.timeout);
}

/* Most calls wait for microseconds: nothing is asked before a moment has passed. */
static zonal_status watch(void *context, double waited) {
    const double moment = 0.02;
    mpi_transport *t = context;
    if (waited < moment || MPI_Wtime() - t->looked < moment) return ZONAL_OK;
    read_notes(t);
    ZONAL_TRY(look_nearby(t));
    t->looked = MPI_Wtime();
    waited = fmin(waited, zonal__clock() - last_life(&t->base));
    return waited >= t->mpi.timeout || count_present(t) > 1 ? call_roll(&t->base) : ZONAL_OK;
}

/* Collective. */
static zonal_status find_nearby(mpi_transport *t) {
    zonal__process *all;
    ZONAL_TRY(zonal__machine_gather(&t->base.communicator, &all, &t->base.place));
    for (int r = 0; r < t->mpi.ranks; r++)
        if (r != t->mpi.rank) t->nearby[r].fd = zonal__machine_watch(&all[t->mpi.rank], &all[r]);
    zonal__free(all);
    return ZONAL_OK;
}

/* ---- open and close -------------------------------------------------------------------------- */

static void release(mpi_transport *t) {
    for (int r = 0; t->nearby && r < t->mpi.ranks; r++)
        if (t->nearby[r].fd >= 0) close(t->nearby[r].fd);
    zonal__free(t->sent);
    zonal__free(t->present);
    zonal__free(t->nearby);
    zonal__free(t);
}

static void leave(zonal__transport *transport, int in_order, int exit_status) {
    mpi_transport *t = (mpi_transport *)transport;
    MPI_Request all;
    if (in_order && (MPI_Ibarrier(t->mpi.comm, &all) != MPI_SUCCESS ||
                     zonal_mpi_wait(&t->mpi, 1, &all) != ZONAL_OK))
        in_order = 0;
    /* Ends the processes of all ranks, this one included; should MPI hang, the alarm does. */
    if (!in_order) {
        alarm(ABORT_SECONDS);
        MPI_Abort(MPI_COMM_WORLD, exit_status);
    }
    zonal_mpi_close(&t->mpi);
    MPI_Comm_free(&t->notes);
    release(t);
    MPI_Finalize();
}

static zonal_status prepare(mpi_transport *t, const zonal__launch *launch, double timeout) {
    int code, ranks = 0;
    /* Under the mpirun of another MPI every process believes that it is alone. */
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (launch->ranks > 0 && launch->ranks != ranks)
        return ZONAL_FAIL(
            ZONAL_UNSUPPORTED,
            "the launcher has started %d ranks, and MPI sees %d: this zonal was built "
            "with another MPI than that of mpirun; use the mpirun of its own",
            launch->ranks, ranks);
    ZONAL_TRY(zonal_mpi_open(&t->mpi, MPI_COMM_WORLD, timeout, &t->base.communicator));
    code = MPI_Comm_dup(MPI_COMM_WORLD, &t->notes);
    if (code != MPI_SUCCESS) return zonal_mpi_fail(code);
    ZONAL_TRY(ZONAL_NEW(&t->sent, t->mpi.ranks, "the ranks"));
    ZONAL_TRY(ZONAL_NEW(&t->present, t->mpi.ranks, "the ranks"));
    ZONAL_TRY(ZONAL_NEW(&t->nearby, t->mpi.ranks, "the ranks"));
    t->present[t->mpi.rank] = 1;
    for (int r = 0; r < t->mpi.ranks; r++)
        t->nearby[r] = (struct pollfd){.fd = -1, .events = POLLIN};
    ZONAL_TRY(find_nearby(t));
    t->mpi.watch = watch;
    t->mpi.watch_context = t;
    return ZONAL_OK;
}

zonal_status zonal__transport_mpi(const zonal__launch *launch, double timeout,
                                  zonal__transport **out) {
    mpi_transport *t;
    zonal_status status;
    int provided;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&t, 1, "the ranks"));
    t->base = (zonal__transport){.communicator = ZONAL_COMMUNICATOR_INIT,
                                 .name = "mpi",
                                 .show_life = show_life,
                                 .last_life = last_life,
                                 .call_roll = call_roll,
                                 .close = leave};
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        zonal__free(t);
        return ZONAL_FAIL(ZONAL_IO, "MPI could not be started: is this run by its own mpirun?");
    }
    status = prepare(t, launch, timeout);
    if (status != ZONAL_OK) {
        release(t); /* the others wait: only the end of all is left, by zonal__job_open's caller */
        return status;
    }
    *out = &t->base;
    return ZONAL_OK;
}

#endif
