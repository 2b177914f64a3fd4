#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/checksum.h"
#include "core/file.h"
#include "core/file_read.h"
#include "core/memory.h"
#include "core/text.h"
#include "dist/clock.h"
#include "dist/tcp.h"

/* What a rank says first. Numbers are as the machine has them: a machine with others does not
 * recognise the word. */
typedef struct greeting {
    uint64_t word;
    uint32_t version, rank, ranks, zero;
    uint64_t run; /* the checksum of its name */
} greeting;

/* What rank 0 answers once all have come, or when it refuses. */
typedef struct answer {
    uint64_t word;
    uint32_t refused, zero;
    char why[240];
} answer;

static const uint64_t the_word = 0x6b6e6172616e6f7aULL; /* "zonarank" */
enum { VERSION = 1, GREETING_SECONDS = 5 };

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Waits until the socket is ready; 0, or an errno. */
static int await(int socket, short events, double until) {
    struct pollfd one = {.fd = socket, .events = events};
    for (;;) {
        double left = until - zonal__clock();
        int ready;
        if (left <= 0) return ETIMEDOUT;
        ready = poll(&one, 1, left > 1 ? 1000 : (int)(left * 1000) + 1);
        if (ready > 0) return 0;
        if (ready < 0 && errno != EINTR) return errno;
    }
}

static int again(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

int zonal__tcp_send(int socket, const void *bytes, size_t count, double seconds) {
    double until = zonal__clock() + seconds;
    const char *at = bytes;
    while (count > 0) {
        ssize_t n = send(socket, at, count, MSG_NOSIGNAL);
        if (n < 0 && !again()) return errno;
        if (n < 0) {
            int failed = await(socket, POLLOUT, until);
            if (failed) return failed;
            continue;
        }
        at += n;
        count -= (size_t)n;
    }
    return 0;
}

int zonal__tcp_receive(int socket, void *bytes, size_t count, double seconds) {
    double until = zonal__clock() + seconds;
    char *at = bytes;
    while (count > 0) {
        ssize_t n = recv(socket, at, count, 0);
        if (n == 0) return ECONNRESET;
        if (n < 0 && !again()) return errno;
        if (n < 0) {
            int failed = await(socket, POLLIN, until);
            if (failed) return failed;
            continue;
        }
        at += n;
        count -= (size_t)n;
    }
    return 0;
}

static void tune(int socket) {
    int on = 1;
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

static greeting greet_as(const zonal__launch *launch) {
    return (greeting){.word = the_word,
                      .version = VERSION,
                      .rank = (uint32_t)launch->rank,
                      .ranks = (uint32_t)launch->ranks,
                      .run = zonal__checksum_of(launch->run, strlen(launch->run))};
}

/* ---- a rendezvous by file -------------------------------------------------------------------- */

static const char file_head[] = "zonal rendezvous 1\n";

static void file_name(const zonal__launch *launch, char out[PATH_MAX]) {
    out[0] = '\0';
    zonal__text_append(out, PATH_MAX, "%s/zonal-%s.rendezvous", launch->rendezvous, launch->run);
}

/* The addresses of this machine, a line each; those that only the machine itself knows last. */
static void put_addresses(zonal__file *file, int port) {
    struct ifaddrs *all, *one;
    char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 1];
    if (getifaddrs(&all) != 0) return;
    for (int loopback = 0; loopback < 2; loopback++)
        for (one = all; one; one = one->ifa_next) {
            int family = one->ifa_addr ? one->ifa_addr->sa_family : AF_UNSPEC;
            socklen_t size =
                family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
            if ((family != AF_INET && family != AF_INET6) || !(one->ifa_flags & IFF_UP) ||
                loopback != ((one->ifa_flags & IFF_LOOPBACK) != 0))
                continue;
            if (getnameinfo(one->ifa_addr, size, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0)
                zonal__file_print(file, "%s %d\n", text, port);
        }
    freeifaddrs(all);
}

static zonal_status write_file(const zonal__launch *launch, int listener) {
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof own;
    char path[PATH_MAX];
    zonal__file *file;
    if (getsockname(listener, (struct sockaddr *)&own, &size) != 0)
        return ZONAL_FAIL(ZONAL_IO, "rank 0 has no address: %s", strerror(errno));
    file_name(launch, path);
    ZONAL_TRY(zonal__file_create_plain(path, &file));
    zonal__file_print(file, "%s", file_head);
    put_addresses(file, ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port
                                                        : ((struct sockaddr_in *)&own)->sin_port));
    return zonal__file_commit(file);
}

/* ---- the other ranks ------------------------------------------------------------------------- */

/* One attempt at one address: a connected socket, or -1. */
static int reach(const struct addrinfo *to, double until) {
    int failed = 0, s = socket(to->ai_family, SOCK_STREAM, 0);
    socklen_t size = sizeof failed;
    if (s < 0) return -1;
    tune(s);
    if (connect(s, to->ai_addr, to->ai_addrlen) != 0) {
        double limit = zonal__clock() + 2;
        if (errno != EINPROGRESS || await(s, POLLOUT, limit < until ? limit : until) != 0 ||
            getsockopt(s, SOL_SOCKET, SO_ERROR, &failed, &size) != 0 || failed) {
            close(s);
            return -1;
        }
    }
    return s;
}

/* Greets whoever is there. The socket after "welcome", -1 if it was somebody else, -2 if rank 0
 * refuses, with a sentence. */
static int greet(const zonal__launch *launch, int s, double until) {
    greeting own = greet_as(launch);
    answer got;
    char why[sizeof got.why * 4];
    double left = until - zonal__clock();
    if (zonal__tcp_send(s, &own, sizeof own, GREETING_SECONDS) != 0 ||
        zonal__tcp_receive(s, &got, sizeof got, left > 0 ? left : 0) != 0 || got.word != the_word) {
        close(s);
        return -1;
    }
    if (!got.refused) return s;
    close(s);
    got.why[sizeof got.why - 1] = '\0';
    (void)ZONAL_FAIL(ZONAL_IO, "rank 0 refuses rank %d: %s", launch->rank,
                     zonal__text_plain(got.why, why, sizeof why));
    return -2;
}

static int try_address(const zonal__launch *launch, const char *host, int port, double until) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *all, *one;
    char service[16] = "";
    int s = -1;
    zonal__text_append(service, sizeof service, "%d", port);
    if (getaddrinfo(host, service, &hints, &all) != 0) return -1;
    for (one = all; one && s == -1; one = one->ai_next) {
        s = reach(one, until);
        if (s >= 0) s = greet(launch, s, until);
    }
    freeaddrinfo(all);
    return s;
}

/* The addresses that the file has now, which may be one of an earlier job: then nobody answers. */
static int try_file(const zonal__launch *launch, double until) {
    char path[PATH_MAX], *text, *line, *rest;
    size_t bytes;
    int s = -1;
    file_name(launch, path);
    if (access(path, R_OK) != 0 || zonal__file_read(path, 1 << 16, &text, &bytes) != ZONAL_OK)
        return -1;
    if (strncmp(text, file_head, sizeof file_head - 1) == 0)
        for (line = strtok_r(text + sizeof file_head - 1, "\n", &rest); line && s == -1;
             line = strtok_r(NULL, "\n", &rest)) {
            char host[128];
            int port;
            if (sscanf(line, "%127s %d", host, &port) == 2 && port > 0 && port < 65536)
                s = try_address(launch, host, port, until);
        }
    zonal__free(text);
    return s;
}

static zonal_status come_to_first(const zonal__launch *launch, double seconds, int *out) {
    double until = zonal__clock() + seconds;
    int s = -1;
    while (s == -1 && zonal__clock() < until) {
        s = launch->rendezvous[0] ? try_file(launch, until)
                                  : try_address(launch, launch->host, launch->port, until);
        if (s == -1) usleep(100000);
    }
    if (s == -2) return ZONAL_IO; /* the sentence is set */
    *out = s;
    if (s >= 0) return ZONAL_OK;
    if (launch->rendezvous[0])
        return ZONAL_FAIL(ZONAL_IO,
                          "rank %d found no rank 0 through %s in %g s: is it the same folder for "
                          "all ranks, and has rank 0 been started?",
                          launch->rank, launch->rendezvous, seconds);
    return ZONAL_FAIL(
        ZONAL_IO,
        "rank %d got no answer from rank 0 at %s, port %d, in %g s: has it been started, "
        "and can the port be reached (MASTER_ADDR, MASTER_PORT)?",
        launch->rank, launch->host, launch->port, seconds);
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static int is_loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static int listen_at(const struct sockaddr *address, socklen_t size) {
    int on = 1, off = 0, s = socket(address->sa_family, SOCK_STREAM, 0);
    if (s < 0) return -1;
    tune(s);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->sa_family == AF_INET6) setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(s, address, size) == 0 && listen(s, SOMAXCONN) == 0) return s;
    close(s);
    return -1;
}

/* At every address of this machine, but where the ranks come by the loopback at that one alone:
 * then nobody else can. */
static int listen_for(const zonal__launch *launch) {
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6,
                                .sin6_port = htons((uint16_t)launch->port)};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)launch->port)};
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *all;
    char service[16] = "";
    int s = -1;
    zonal__text_append(service, sizeof service, "%d", launch->port);
    if (launch->host[0] && getaddrinfo(launch->host, service, &hints, &all) == 0) {
        int alone = is_loopback(all->ai_addr);
        if (alone) s = listen_at(all->ai_addr, all->ai_addrlen);
        freeaddrinfo(all);
        if (alone) return s;
    }
    s = listen_at((struct sockaddr *)&any6, sizeof any6);
    if (s < 0 && errno != EADDRINUSE) s = listen_at((struct sockaddr *)&any4, sizeof any4);
    return s;
}

/* Those who have come and not greeted yet. */
enum { MOST_GUESTS = 256 };
typedef struct guest {
    int socket;
    size_t got; /* bytes of the greeting */
    double until;
    greeting greeting;
} guest;

typedef struct lobby {
    const zonal__launch *launch;
    int listener, guests, come;
    int *socket; /* [ranks] */
    guest guest[MOST_GUESTS];
} lobby;

static void refuse(int s, const char *why) {
    answer no = {.word = the_word, .refused = 1};
    zonal__text_append(no.why, sizeof no.why, "%s", why);
    zonal__tcp_send(s, &no, sizeof no, 1);
    close(s);
}

static int has_gone(int s) {
    char byte;
    ssize_t n = recv(s, &byte, 1, MSG_PEEK);
    return n == 0 || (n < 0 && !again());
}

/* A whole greeting: the guest becomes a rank, or is told why not. */
static void receive_guest(lobby *l, const guest *g) {
    const greeting want = greet_as(l->launch), *got = &g->greeting;
    char why[160] = "";
    uint32_t r = got->rank;
    if (got->word != want.word) {
        close(g->socket); /* no rank of any job */
        return;
    }
    if (got->version != want.version)
        zonal__text_append(why, sizeof why, "it is another version of zonal");
    else if (got->run != want.run)
        zonal__text_append(why, sizeof why,
                           "it belongs to another run; another job may use this port");
    else if (got->ranks != want.ranks)
        zonal__text_append(why, sizeof why, "it counts %u ranks, and rank 0 counts %u", got->ranks,
                           want.ranks);
    else if (r == 0 || r >= want.ranks)
        zonal__text_append(why, sizeof why, "there is no such rank besides rank 0");
    else if (l->socket[r] >= 0 && !has_gone(l->socket[r]))
        zonal__text_append(why, sizeof why, "another process is rank %u already", r);
    if (why[0]) {
        refuse(g->socket, why);
        return;
    }
    if (l->socket[r] >= 0)
        close(l->socket[r]);
    else
        l->come++;
    l->socket[r] = g->socket;
}

static void admit(lobby *l) {
    int s = accept(l->listener, NULL, NULL);
    if (s < 0) return;
    tune(s);
    if (l->guests == MOST_GUESTS) {
        close(s);
        return;
    }
    l->guest[l->guests++] = (guest){.socket = s, .until = zonal__clock() + GREETING_SECONDS};
}

/* Reads what has come of a greeting; 0: the guest has left the lobby. */
static int listen_to(lobby *l, guest *g) {
    ssize_t n = recv(g->socket, (char *)&g->greeting + g->got, sizeof g->greeting - g->got, 0);
    if (n > 0) g->got += (size_t)n;
    if (g->got == sizeof g->greeting) {
        receive_guest(l, g);
        return 0;
    }
    if (n == 0 || (n < 0 && !again()) || zonal__clock() > g->until) {
        close(g->socket);
        return 0;
    }
    return 1;
}

static void attend(lobby *l) {
    struct pollfd fd[MOST_GUESTS + 1];
    fd[0] = (struct pollfd){.fd = l->listener, .events = POLLIN};
    for (int i = 0; i < l->guests; i++)
        fd[i + 1] = (struct pollfd){.fd = l->guest[i].socket, .events = POLLIN};
    poll(fd, (nfds_t)l->guests + 1, 100);
    for (int i = l->guests - 1; i >= 0; i--)
        if (!listen_to(l, &l->guest[i])) l->guest[i] = l->guest[--l->guests];
    if (fd[0].revents & POLLIN) admit(l);
}

static zonal_status wait_for_all(lobby *l, double seconds) {
    double until = zonal__clock() + seconds;
    int missing = 1;
    while (l->come < l->launch->ranks - 1 && zonal__clock() < until) attend(l);
    for (int i = 0; i < l->guests; i++) close(l->guest[i].socket);
    if (l->come == l->launch->ranks - 1) return ZONAL_OK;
    while (l->socket[missing] >= 0) missing++;
    return ZONAL_FAIL(ZONAL_IO,
                      "only %d of %d ranks have joined rank 0 within %g s; the first one missing "
                      "is rank %d: has it been started?",
                      l->come + 1, l->launch->ranks, seconds, missing);
}

/* Everybody has come, and is told so, or that it is over. */
static zonal_status dismiss(const zonal__launch *launch, zonal_status status, int *socket) {
    answer yes = {.word = the_word};
    for (int r = 1; r < launch->ranks; r++) {
        if (socket[r] < 0) continue;
        if (status == ZONAL_OK && zonal__tcp_send(socket[r], &yes, sizeof yes, 5) != 0)
            status = ZONAL_FAIL(ZONAL_IO, "rank %d left before all ranks had joined", r);
        else if (status != ZONAL_OK) {
            refuse(socket[r], zonal_last_error()->message);
            socket[r] = -1;
        }
    }
    return status;
}

static zonal_status receive_ranks(const zonal__launch *launch, double seconds, int *socket) {
    lobby *l;
    char path[PATH_MAX];
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&l, 1, "the ranks that come"));
    *l = (lobby){.launch = launch, .listener = listen_for(launch), .socket = socket};
    if (l->listener < 0)
        status = ZONAL_FAIL(ZONAL_IO,
                            "rank 0 cannot listen at port %d: %s; choose another one "
                            "(MASTER_PORT)",
                            launch->port, strerror(errno));
    else
        status = launch->rendezvous[0] ? write_file(launch, l->listener) : ZONAL_OK;
    if (status == ZONAL_OK) status = wait_for_all(l, seconds);
    if (l->listener >= 0) close(l->listener);
    if (launch->rendezvous[0]) {
        file_name(launch, path);
        unlink(path);
    }
    zonal__free(l);
    return dismiss(launch, status, socket);
}

zonal_status zonal__tcp_join(const zonal__launch *launch, double seconds, int *socket) {
    zonal_status status;
    for (int r = 0; r < launch->ranks; r++) socket[r] = -1;
    status = launch->rank == 0 ? receive_ranks(launch, seconds, socket)
                               : come_to_first(launch, seconds, &socket[0]);
    for (int r = 0; status != ZONAL_OK && r < launch->ranks; r++) {
        if (socket[r] >= 0) close(socket[r]);
        socket[r] = -1;
    }
    return status;
}
