#include "cli/common/stop.h"

#include <time.h>

static const int64_t SECOND = 1000000000;

zonal__stop_meaning zonal__stop_asked(zonal__stop_request *request, const siginfo_t *info) {
    const int pressed = info->si_signo == SIGINT && info->si_code == SI_KERNEL;
    int64_t first = 0;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int64_t now = t.tv_sec * SECOND + t.tv_nsec + 1; /* never 0 */
    if (atomic_compare_exchange_strong(&request->first, &first, now)) return ZONAL__STOP_FIRST;
    return pressed || now - first >= SECOND ? ZONAL__STOP_AT_ONCE : ZONAL__STOP_REPEATED;
}
