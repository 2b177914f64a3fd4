#include "dist/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/memory.h"

static zonal__process describe_self(void) {
    zonal__process own = {.number = (int64_t)getpid()};
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

zonal_status zonal__machine_gather(const zonal_communicator *communicator, zonal__process **all,
                                   int *local) {
    const zonal_communicator *c = communicator;
    zonal__process own = describe_self();
    int64_t *bytes = NULL;
    zonal_status status = ZONAL_NEW(all, c->ranks, "the ranks' processes");
    if (status == ZONAL_OK) status = ZONAL_NEW(&bytes, c->ranks, "the ranks' processes");
    for (int r = 0; status == ZONAL_OK && r < c->ranks; r++) bytes[r] = sizeof own;
    if (status == ZONAL_OK) status = c->all_gather(c->context, &own, *all, bytes, NULL);
    zonal__free(bytes);
    *local = 0;
    for (int r = 0; status == ZONAL_OK && r < c->rank; r++)
        *local += zonal__machine_same(&own, &(*all)[r]);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__free(*all);
    *all = NULL;
    return status;
}
