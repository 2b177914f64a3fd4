/*
 * A libnccl.so.2 that does nothing but keep to NCCL's manners, so that those of src/dist/nccl.c are
 * tested without a GPU: calls of a nonblocking communicator are in progress for a while, group
 * calls come in pairs, what is created is destroyed or aborted. FAKE_NCCL in the environment:
 *
 *     old     the version is 2.10
 *     stuck   a communicator is never ready
 *     lost    a communicator is ready, and an error of another rank comes up later
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct comm {
    int ranks, rank, progress;
} comm;

typedef struct identifier {
    char bytes[128];
} identifier;

/* Its beginning, as of version 2.18. */
typedef struct configuration {
    size_t size;
    unsigned magic, version;
    int blocking;
} configuration;

enum { SUCCESS = 0, INVALID_ARGUMENT = 4, REMOTE_ERROR = 6, IN_PROGRESS = 7 };

static int depth;     /* of groups */
static int calls[16]; /* by the letters below */
static const char letters[] = "cfdargbsv";

#define API __attribute__((visibility("default")))
API int ncclGetVersion(int *version);
API int ncclGetUniqueId(identifier *id);
API int ncclCommInitRankConfig(comm **out, int ranks, identifier id, int rank,
                               configuration *config);
API int ncclCommGetAsyncError(comm *c, int *state);
API int ncclCommFinalize(comm *c);
API int ncclCommDestroy(comm *c);
API int ncclCommAbort(comm *c);
API const char *ncclGetErrorString(int result);
API int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, comm *c,
                      void *stream);
API int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, comm *c,
                      void *stream);
API int ncclSend(const void *from, size_t count, int type, int peer, comm *c, void *stream);
API int ncclRecv(void *to, size_t count, int type, int peer, comm *c, void *stream);
API int ncclGroupStart(void);
API int ncclGroupEnd(void);
/* How often the calls of a letter were made: create, finalize, destroy, abort, reduce, group,
 * broadcast, send, receive ("v"). */
API int fake_nccl_count(char letter);

static int is(const char *mode) {
    const char *set = getenv("FAKE_NCCL");
    return set && strcmp(set, mode) == 0;
}

static void note(char letter) {
    calls[strchr(letters, letter) - letters]++;
}

int fake_nccl_count(char letter) {
    return calls[strchr(letters, letter) - letters];
}

int ncclGetVersion(int *version) {
    *version = is("old") ? 21003 : 22809;
    return SUCCESS;
}

int ncclGetUniqueId(identifier *id) {
    memset(id->bytes, 'i', sizeof id->bytes);
    return SUCCESS;
}

int ncclCommInitRankConfig(comm **out, int ranks, identifier id, int rank, configuration *config) {
    if (config->magic != 0xcafebeef || config->blocking != 0 || config->size < sizeof *config ||
        id.bytes[127] != 'i' || rank < 0 || rank >= ranks)
        return INVALID_ARGUMENT;
    *out = calloc(1, sizeof **out);
    **out = (comm){.ranks = ranks, .rank = rank, .progress = 3};
    note('c');
    return IN_PROGRESS;
}

int ncclCommGetAsyncError(comm *c, int *state) {
    *state = is("stuck")       ? IN_PROGRESS
             : c->progress > 0 ? IN_PROGRESS
             : is("lost")      ? REMOTE_ERROR
                               : SUCCESS;
    if (c->progress > 0) c->progress--;
    return SUCCESS;
}

int ncclCommFinalize(comm *c) {
    note('f');
    c->progress = 2;
    return IN_PROGRESS;
}

int ncclCommDestroy(comm *c) {
    note('d');
    free(c);
    return SUCCESS;
}

int ncclCommAbort(comm *c) {
    note('a');
    free(c);
    return SUCCESS;
}

const char *ncclGetErrorString(int result) {
    return result == REMOTE_ERROR ? "remote process exited" : "invalid argument";
}

/* A call is in progress until the group that it is in ends. */
static int begin(comm *c, char letter) {
    note(letter);
    c->progress = 2;
    return depth > 0 ? SUCCESS : IN_PROGRESS;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, comm *c,
                  void *stream) {
    (void)count, (void)stream;
    if (op != 0 || (type != 7 && type != 8) || from != to) return INVALID_ARGUMENT;
    return begin(c, 'r');
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, comm *c,
                  void *stream) {
    (void)stream;
    if (type != 1 || root < 0 || root >= c->ranks || count == 0) return INVALID_ARGUMENT;
    if (root == c->rank && from != to) memcpy(to, from, count);
    return begin(c, 'b');
}

int ncclSend(const void *from, size_t count, int type, int peer, comm *c, void *stream) {
    (void)from, (void)count, (void)stream;
    if (type != 1 || peer != (c->rank + 1) % c->ranks || depth != 1) return INVALID_ARGUMENT;
    return begin(c, 's');
}

int ncclRecv(void *to, size_t count, int type, int peer, comm *c, void *stream) {
    (void)to, (void)count, (void)stream;
    if (type != 1 || peer != (c->rank + c->ranks - 1) % c->ranks || depth != 1)
        return INVALID_ARGUMENT;
    return begin(c, 'v');
}

int ncclGroupStart(void) {
    depth++;
    note('g');
    return SUCCESS;
}

int ncclGroupEnd(void) {
    depth--;
    return IN_PROGRESS;
}
