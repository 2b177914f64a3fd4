#include "backend/backend.h"

#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#endif

int zonal__backend_threads(int asked) {
    if (asked > 0) return asked;
#ifdef CPU_COUNT
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
