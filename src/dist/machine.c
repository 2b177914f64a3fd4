#include "dist/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/thread.h"

static zonal__process describe_self(void) {
    zonal__process own = {.number = (int64_t)getpid(),
                          .processors = zonal__processors(),
                          .online = (int32_t)sysconf(_SC_NPROCESSORS_ONLN)};
    struct stat space;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file) {
        if (!fgets(own.boot, sizeof own.boot, file)) own.boot[0] = '\0';
        fclose(file);
    }
    if (!own.boot[0]) gethostname(own.boot, sizeof own.boot - 1);
    if (stat("/proc/self/ns/pid", &space) == 0) own.space = (uint64_t)space.st_ino;
    return own;
}

int zonal__machine_same(const zonal__process *a, const zonal__process *b) {
    return a->boot[0] && memcmp(a->boot, b->boot, sizeof a->boot) == 0;
}

int zonal__machine_watch(const zonal__process *own, const zonal__process *other) {
    if (!zonal__machine_same(own, other) || !own->space || own->space != other->space) return -1;
    return (int)syscall(SYS_pidfd_open, other->number, 0);
}

/* Where the ranks of a machine may run on more processors together than it has, they share them. */
static zonal__place find_place(const zonal__process *all, int ranks, int rank) {
    zonal__place place = {.sharing = 1};
    int64_t wanted = 0;
    for (int r = 0; r < ranks; r++) {
        if (!zonal__machine_same(&all[rank], &all[r])) continue;
        place.local += r < rank;
        wanted += all[r].processors;
    }
    if (all[rank].online > 0 && wanted > all[rank].online)
        place.sharing = (int)((wanted + all[rank].online - 1) / all[rank].online);
    return place;
}

zonal_status zonal__machine_gather(const zonal_communicator *communicator, zonal__process **all,
                                   zonal__place *place) {
    const zonal_communicator *c = communicator;
    zonal__process own = describe_self();
    int64_t *bytes = NULL;
    zonal_status status = ZONAL_NEW(all, c->ranks, "the ranks' processes");
    if (status == ZONAL_OK) status = ZONAL_NEW(&bytes, c->ranks, "the ranks' processes");
    for (int r = 0; status == ZONAL_OK && r < c->ranks; r++) bytes[r] = sizeof own;
    if (status == ZONAL_OK) status = c->all_gather(c->context, &own, *all, bytes, NULL);
    zonal__free(bytes);
    if (status == ZONAL_OK) {
        *place = find_place(*all, c->ranks, c->rank);
        return ZONAL_OK;
    }
    zonal__free(*all);
    *all = NULL;
    return status;
}
