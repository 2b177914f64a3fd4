/*
 * Ranks over TCP, for jobs without MPI: rank 0 has a socket to each other rank, and everything goes
 * through it. That is enough to start jobs whose numbers travel by NCCL, and for a few ranks that
 * share machines; many ranks of processors should have MPI, as rank 0 carries all traffic.
 *
 * All is made of rounds. In a round each rank sends rank 0 one message of up to a piece, rank 0
 * makes the replies, and each rank receives one. A sum is added up in the order of the ranks, in
 * double, and sent to all: the same bits everywhere.
 *
 * Rank 0 waits for the messages of a round until the deadline. Meanwhile it sends those who have
 * come a sign of life, so that they wait for the same rank as it does and not for it. A socket that
 * closes is a rank that has ended. Either way rank 0 tells all others who it was.
 */
#include "dist/tcp.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/text.h"
#include "dist/clock.h"
#include "dist/transport.h"

/* Of a round, which all ranks must agree on, or of rank 0's answers. */
typedef enum kind {
    REDUCE_DOUBLE = 1,
    REDUCE_FP32,
    SPREAD, /* the message of one rank for all */
    SHIFT,
    ROLL, /* who is there? */
    LEAVE,
    REPLY = 100,
    WAIT, /* a sign of life */
    LOST  /* a sentence follows, and nothing after it */
} kind;

typedef struct head {
    uint32_t kind;
    uint32_t owner;  /* SPREAD: whose message it is */
    uint64_t number; /* of the round */
    uint64_t bytes;  /* that follow */
    uint64_t more;   /* 1: there is another round of this call */
} head;

/* One message as it comes in. */
typedef struct message {
    head head;
    size_t got; /* bytes, the head's first */
} message;

typedef struct tcp_transport {
    zonal__transport base;
    double timeout, patience; /* what is said, and how long a round waits: less in a roll call */
    size_t piece;
    uint64_t round;
    double life;           /* when another rank last showed life */
    int *socket;           /* [ranks] */
    char *present;         /* [ranks] */
    message *message;      /* [ranks]; on rank 0 */
    char *inbox;           /* [ranks][piece]; on rank 0 */
    struct pollfd *polled; /* [ranks]; on rank 0 */
    /* A shift that has begun. */
    const void *send;
    void *receive;
    int64_t send_bytes, receive_bytes;
} tcp_transport;

/* What this rank brings to a round, and what it gets. */
typedef struct turn {
    kind kind;
    int owner;
    const void *mine;
    size_t bytes;
    int more;
    void *reply;
    size_t room, got;
} turn;

static char *inbox_of(const tcp_transport *t, int rank) {
    return t->inbox + (size_t)rank * t->piece;
}

static size_t next_piece(const tcp_transport *t, int64_t left) {
    return left < (int64_t)t->piece ? (size_t)left : t->piece;
}

/* ---- rank 0: a rank is lost ------------------------------------------------------------------ */

/* Tells all others why nothing goes on, which is the last sentence, and fails with it. One that is
 * late hears it when it comes, and then has nothing to say itself. */
static zonal_status tell_all(tcp_transport *t, zonal_status status) {
    const char *sentence = zonal_last_error()->message;
    head lost = {.kind = LOST, .bytes = strlen(sentence)};
    t->base.lost = 1;
    for (int r = 1; r < t->base.communicator.ranks; r++)
        if (zonal__tcp_send(t->socket[r], &lost, sizeof lost, 1) == 0)
            zonal__tcp_send(t->socket[r], sentence, lost.bytes, 1);
    return status;
}

static zonal_status lose(tcp_transport *t, int ended) {
    return tell_all(t, zonal__transport_lose(&t->base, t->present, ended, t->timeout));
}

static zonal_status lose_one(tcp_transport *t, int rank, int error) {
    memset(t->present, 1, (size_t)t->base.communicator.ranks);
    t->present[rank] = 0;
    return lose(t, error != ETIMEDOUT);
}

/* ---- rank 0: a round ------------------------------------------------------------------------- */

static int is_whole(const message *m) {
    return m->got >= sizeof m->head && m->got == sizeof m->head + m->head.bytes;
}

/* Reads what there is of a rank's message: 0, or an errno at the end of the stream and for a
 * message that cannot be. */
static int read_some(tcp_transport *t, int rank) {
    message *m = &t->message[rank];
    while (!is_whole(m)) {
        int in_head = m->got < sizeof m->head;
        char *to =
            in_head ? (char *)&m->head + m->got : inbox_of(t, rank) + m->got - sizeof m->head;
        size_t want = (in_head ? 0 : m->head.bytes) + sizeof m->head - m->got;
        ssize_t n = recv(t->socket[rank], to, want, 0);
        if (n == 0) return ECONNRESET;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : errno;
        m->got += (size_t)n;
        if (m->got < sizeof m->head) continue;
        if (m->head.kind == WAIT) {
            m->got = 0; /* the message is still to come */
            t->life = zonal__clock();
        } else if (m->head.bytes > t->piece)
            return EPROTO;
    }
    return 0;
}

/* How many ranks are still to come; their sockets are set for polling, the others' are not. */
static int count_missing(tcp_transport *t) {
    int count = 0;
    t->present[0] = 1;
    for (int r = 1; r < t->base.communicator.ranks; r++) {
        t->present[r] = (char)is_whole(&t->message[r]);
        t->polled[r] = (struct pollfd){.fd = t->present[r] ? -1 : t->socket[r], .events = POLLIN};
        count += !t->present[r];
    }
    t->polled[0].fd = -1;
    return count;
}

static const head life = {.kind = WAIT};

static void show_life_to(tcp_transport *t, int present_alone) {
    for (int r = 0; r < t->base.communicator.ranks; r++)
        if (t->socket[r] >= 0 && (t->present[r] || !present_alone))
            zonal__tcp_send(t->socket[r], &life, sizeof life, 1);
}

/* Receives the messages of all others. */
static zonal_status hear_all(tcp_transport *t) {
    int ranks = t->base.communicator.ranks;
    double begun = zonal__clock(), shown = begun, often = zonal__transport_grace(t->timeout) / 2;
    for (int r = 1; r < ranks; r++) t->message[r].got = 0;
    while (count_missing(t) > 0) {
        double now = zonal__clock();
        if (now - fmax(begun, t->life) > t->patience) return lose(t, 0);
        if (now - shown > often) {
            show_life_to(t, 1);
            shown = now;
        }
        poll(t->polled, (nfds_t)ranks, 100);
        for (int r = 1; r < ranks; r++) {
            int error = t->polled[r].fd >= 0 && t->polled[r].revents ? read_some(t, r) : 0;
            if (error) return lose_one(t, r, error);
        }
    }
    return ZONAL_OK;
}

static int is_sum(kind of) {
    return of == REDUCE_DOUBLE || of == REDUCE_FP32;
}

static zonal_status check_agreed(tcp_transport *t, const turn *own) {
    for (int r = 1; r < t->base.communicator.ranks; r++) {
        const head *h = &t->message[r].head;
        if (h->kind != own->kind || h->owner != (uint32_t)own->owner || h->number != t->round)
            return lose(t, 0); /* all are present */
        if (is_sum(own->kind) && h->bytes != own->bytes)
            return tell_all(t, ZONAL_FAIL(ZONAL_SHAPE, "rank %d adds up %llu bytes, and rank 0 %zu",
                                          r, (unsigned long long)h->bytes, own->bytes));
    }
    return ZONAL_OK;
}

static void add_up(const tcp_transport *t, const turn *own) {
    int ranks = t->base.communicator.ranks;
    int64_t count =
        (int64_t)(own->bytes / (own->kind == REDUCE_FP32 ? sizeof(float) : sizeof(double)));
    for (int64_t i = 0; i < count; i++) {
        double sum = own->kind == REDUCE_FP32 ? (double)((const float *)own->mine)[i]
                                              : ((const double *)own->mine)[i];
        for (int r = 1; r < ranks; r++)
            sum += own->kind == REDUCE_FP32 ? (double)((const float *)inbox_of(t, r))[i]
                                            : ((const double *)inbox_of(t, r))[i];
        if (own->kind == REDUCE_FP32)
            ((float *)own->reply)[i] = (float)sum;
        else
            ((double *)own->reply)[i] = sum;
    }
}

/* The reply to a rank, from what all have brought. */
static const void *reply_to(const tcp_transport *t, const turn *own, int rank, size_t *bytes) {
    int from = own->kind == SHIFT
                   ? (rank + t->base.communicator.ranks - 1) % t->base.communicator.ranks
                   : own->owner;
    *bytes = 0;
    if (own->kind == LEAVE || own->kind == ROLL || (own->kind == SPREAD && rank == own->owner))
        return NULL;
    if (is_sum(own->kind)) {
        *bytes = own->bytes;
        return own->reply;
    }
    *bytes = from == 0 ? own->bytes : (size_t)t->message[from].head.bytes;
    return from == 0 ? own->mine : inbox_of(t, from);
}

static zonal_status answer_all(tcp_transport *t, turn *own) {
    int ranks = t->base.communicator.ranks;
    head reply = {.kind = REPLY, .number = t->round, .more = (uint64_t)own->more};
    for (int r = 1; r < ranks; r++) reply.more |= t->message[r].head.more != 0;
    own->more = (int)reply.more;
    for (int r = 1; r < ranks; r++) {
        size_t bytes;
        const void *block = reply_to(t, own, r, &bytes);
        reply.bytes = bytes;
        int error = zonal__tcp_send(t->socket[r], &reply, sizeof reply, t->patience);
        if (!error) error = zonal__tcp_send(t->socket[r], block, bytes, t->patience);
        if (error) return lose_one(t, r, error);
    }
    return ZONAL_OK;
}

static zonal_status take_own(tcp_transport *t, turn *own) {
    size_t bytes;
    const void *block = reply_to(t, own, 0, &bytes);
    if (is_sum(own->kind)) return ZONAL_OK; /* it is in place */
    if (bytes > own->room)
        return ZONAL_FAIL(ZONAL_SHAPE, "a rank has sent %zu bytes where %zu were expected", bytes,
                          own->room);
    if (bytes > 0) memcpy(own->reply, block, bytes);
    own->got = bytes;
    return ZONAL_OK;
}

static zonal_status lead(tcp_transport *t, turn *own) {
    ZONAL_TRY(hear_all(t));
    ZONAL_TRY(check_agreed(t, own));
    if (is_sum(own->kind)) add_up(t, own);
    ZONAL_TRY(answer_all(t, own));
    return take_own(t, own);
}

/* ---- the other ranks: a round ---------------------------------------------------------------- */

/* Rank 0 cannot be reached any more, or says that another rank cannot. */
static zonal_status lose_first(tcp_transport *t, int error) {
    memset(t->present, 1, (size_t)t->base.communicator.ranks);
    t->present[0] = 0;
    return zonal__transport_lose(&t->base, t->present, error != ETIMEDOUT, t->timeout);
}

static zonal_status lose_as_told(tcp_transport *t, uint64_t bytes) {
    char sentence[sizeof zonal_last_error()->message] = "", plain[sizeof sentence];
    size_t n = bytes < sizeof sentence ? (size_t)bytes : sizeof sentence - 1;
    if (zonal__tcp_receive(t->socket[0], sentence, n, 1) != 0)
        strcpy(sentence, "rank 0 has lost a rank");
    t->base.lost = 1;
    t->base.speaker = 0;
    return ZONAL_FAIL(ZONAL_IO, "%s", zonal__text_plain(sentence, plain, sizeof plain));
}

/* After a failure of sending, rank 0's last words may still be there. */
static zonal_status hear_reply(tcp_transport *t, turn *own, int failed) {
    double patience = t->patience + zonal__transport_grace(t->timeout);
    head h = {.kind = WAIT};
    while (h.kind == WAIT) {
        int error = zonal__tcp_receive(t->socket[0], &h, sizeof h, failed ? 1 : patience);
        if (error) return lose_first(t, failed ? failed : error);
    }
    if (h.kind == LOST) return lose_as_told(t, h.bytes);
    if (h.kind != REPLY || h.number != t->round || failed) return lose_first(t, EPROTO);
    if (h.bytes > own->room)
        return ZONAL_FAIL(ZONAL_SHAPE, "a rank has sent %llu bytes where %zu were expected",
                          (unsigned long long)h.bytes, own->room);
    own->got = (size_t)h.bytes;
    own->more = h.more != 0;
    failed = zonal__tcp_receive(t->socket[0], own->reply, own->got, patience);
    return failed ? lose_first(t, failed) : ZONAL_OK;
}

static zonal_status follow(tcp_transport *t, turn *own) {
    const head h = {.kind = own->kind,
                    .owner = (uint32_t)own->owner,
                    .number = t->round,
                    .bytes = own->bytes,
                    .more = (uint64_t)own->more};
    double patience = t->patience + zonal__transport_grace(t->timeout);
    int failed = zonal__tcp_send(t->socket[0], &h, sizeof h, patience);
    if (!failed) failed = zonal__tcp_send(t->socket[0], own->mine, own->bytes, patience);
    return hear_reply(t, own, failed);
}

static zonal_status take_turn(tcp_transport *t, turn *own) {
    if (t->base.lost) return ZONAL_FAIL(ZONAL_IO, "a rank is missing");
    t->round++;
    return t->base.communicator.rank == 0 ? lead(t, own) : follow(t, own);
}

/* ---- the collectives ------------------------------------------------------------------------- */

static zonal_status all_reduce(void *context, void *number, int64_t count, zonal_reduce type,
                               void *stream) {
    tcp_transport *t = context;
    char *at = number;
    int64_t left = count * (int64_t)(type == ZONAL_REDUCE_FP32 ? sizeof(float) : sizeof(double));
    (void)stream;
    while (left > 0) {
        size_t n = next_piece(t, left);
        turn own = {.kind = type == ZONAL_REDUCE_FP32 ? REDUCE_FP32 : REDUCE_DOUBLE,
                    .mine = at,
                    .bytes = n,
                    .reply = at,
                    .room = n};
        ZONAL_TRY(take_turn(t, &own));
        at += n;
        left -= (int64_t)n;
    }
    return ZONAL_OK;
}

static zonal_status broadcast(void *context, void *block, int64_t bytes, int root, void *stream) {
    tcp_transport *t = context;
    int own_block = root == t->base.communicator.rank;
    char *at = block;
    (void)stream;
    while (bytes > 0) {
        size_t n = next_piece(t, bytes);
        turn own = {.kind = SPREAD,
                    .owner = root,
                    .mine = own_block ? at : NULL,
                    .bytes = own_block ? n : 0,
                    .reply = at,
                    .room = n};
        ZONAL_TRY(take_turn(t, &own));
        if (!own_block && own.got != n)
            return ZONAL_FAIL(ZONAL_SHAPE, "rank %d has sent %zu bytes where %zu were expected",
                              root, own.got, n);
        at += n;
        bytes -= (int64_t)n;
    }
    return ZONAL_OK;
}

static zonal_status all_gather(void *context, const void *mine, void *all, const int64_t *bytes,
                               void *stream) {
    tcp_transport *t = context;
    char *at = all;
    for (int r = 0; r < t->base.communicator.ranks; at += bytes[r++]) {
        if (r == t->base.communicator.rank && at != mine && bytes[r] > 0)
            memcpy(at, mine, (size_t)bytes[r]);
        ZONAL_TRY(broadcast(t, at, bytes[r], r, stream));
    }
    return ZONAL_OK;
}

static zonal_status shift_begin(void *context, const void *send, int64_t send_bytes, void *receive,
                                int64_t receive_bytes, void *stream) {
    tcp_transport *t = context;
    (void)stream;
    t->send = send;
    t->receive = receive;
    t->send_bytes = send_bytes;
    t->receive_bytes = receive_bytes;
    return ZONAL_OK;
}

static zonal_status shift_end(void *context, void *stream) {
    tcp_transport *t = context;
    const char *from = t->send;
    char *to = t->receive;
    int64_t out = t->send_bytes, in = t->receive_bytes;
    turn own;
    (void)stream;
    do {
        size_t n = next_piece(t, out);
        own = (turn){.kind = SHIFT,
                     .mine = from,
                     .bytes = n,
                     .more = out > (int64_t)n,
                     .reply = to,
                     .room = next_piece(t, in)};
        ZONAL_TRY(take_turn(t, &own));
        from = from ? from + n : NULL;
        to = to ? to + own.got : NULL;
        out -= (int64_t)n;
        in -= (int64_t)own.got;
    } while (own.more);
    return in == 0 ? ZONAL_OK
                   : ZONAL_FAIL(ZONAL_SHAPE, "the rank before has sent %lld bytes too few",
                                (long long)in);
}

/* Rank 0 passes on what it hears when it waits itself. */
static void show_life(zonal__transport *transport) {
    show_life_to((tcp_transport *)transport, 0);
}

/* Reads signs of life that have come, and nothing behind them. */
static double last_life(zonal__transport *transport) {
    tcp_transport *t = (tcp_transport *)transport;
    for (int r = 0; r < t->base.communicator.ranks; r++) {
        head next;
        while (t->socket[r] >= 0 &&
               recv(t->socket[r], &next, sizeof next, MSG_PEEK) == (ssize_t)sizeof next &&
               next.kind == WAIT) {
            if (zonal__tcp_receive(t->socket[r], &next, sizeof next, 1) != 0) break;
            t->life = zonal__clock();
        }
    }
    return t->life;
}

static zonal_status call_roll(zonal__transport *transport) {
    tcp_transport *t = (tcp_transport *)transport;
    turn own = {.kind = ROLL};
    zonal_status status;
    t->patience = zonal__transport_grace(t->timeout); /* all who are left have waited already */
    status = take_turn(t, &own);
    if (status != ZONAL_OK) return status;
    memset(t->present, 1, (size_t)t->base.communicator.ranks);
    return zonal__transport_lose(&t->base, t->present, 0, t->timeout);
}

/* ---- open and close -------------------------------------------------------------------------- */

static void release(tcp_transport *t) {
    for (int r = 0; t->socket && r < t->base.communicator.ranks; r++)
        if (t->socket[r] >= 0) close(t->socket[r]);
    zonal__free(t->socket);
    zonal__free(t->present);
    zonal__free(t->message);
    zonal__free(t->inbox);
    zonal__free(t->polled);
    zonal__free(t);
}

static void leave(zonal__transport *transport, int in_order, int exit_status) {
    tcp_transport *t = (tcp_transport *)transport;
    turn last = {.kind = LEAVE};
    (void)exit_status;
    if (in_order) (void)take_turn(t, &last);
    release(t); /* the others see the sockets close */
}

/* Rank 0 holds a piece of every rank: 32 MiB together, or 4 KiB of each. */
static size_t piece_for(int ranks) {
    size_t piece = ((size_t)1 << 25) / (size_t)ranks & ~(size_t)4095;
    return piece < 4096 ? 4096 : piece > 1 << 20 ? 1 << 20 : piece;
}

static zonal_status prepare(tcp_transport *t, const zonal__launch *launch) {
    int64_t ranks = launch->ranks;
    zonal__process *all;
    ZONAL_TRY(ZONAL_NEW(&t->present, ranks, "the ranks"));
    if (launch->rank == 0) {
        ZONAL_TRY(ZONAL_NEW(&t->message, ranks, "the ranks' messages"));
        ZONAL_TRY(ZONAL_NEW(&t->inbox, ranks * (int64_t)t->piece, "the ranks' messages"));
        ZONAL_TRY(ZONAL_NEW(&t->polled, ranks, "the ranks' messages"));
    }
    /* Ranks start at different times: programs are loaded, nodes wake up. */
    ZONAL_TRY(zonal__tcp_join(launch, 5 * t->timeout, t->socket));
    ZONAL_TRY(zonal__machine_gather(&t->base.communicator, &all, &t->base.place));
    zonal__free(all);
    return ZONAL_OK;
}

zonal_status zonal__transport_tcp(const zonal__launch *launch, double timeout,
                                  zonal__transport **out) {
    tcp_transport *t;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&t, 1, "the ranks"));
    t->base = (zonal__transport){.communicator = {.size = sizeof t->base.communicator,
                                                  .rank = launch->rank,
                                                  .ranks = launch->ranks,
                                                  .context = t,
                                                  .all_reduce = all_reduce,
                                                  .all_gather = all_gather,
                                                  .shift_begin = shift_begin,
                                                  .shift_end = shift_end,
                                                  .broadcast = broadcast},
                                 .name = "tcp",
                                 .show_life = show_life,
                                 .last_life = last_life,
                                 .call_roll = call_roll,
                                 .close = leave};
    t->timeout = t->patience = timeout;
    t->piece = piece_for(launch->ranks);
    status = ZONAL_NEW(&t->socket, launch->ranks, "the ranks");
    for (int r = 0; status == ZONAL_OK && r < launch->ranks; r++) t->socket[r] = -1;
    if (status == ZONAL_OK) status = prepare(t, launch);
    if (status != ZONAL_OK) {
        release(t);
        return status;
    }
    *out = &t->base;
    return ZONAL_OK;
}
