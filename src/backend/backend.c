#include "backend/backend.h"

#include "core/thread.h"

double zonal__problem_value(const zonal__problem *problem, double raw) {
    return problem->offset + problem->factor * raw;
}

int zonal__backend_threads(int asked) {
    return zonal__thread_count(asked);
}
