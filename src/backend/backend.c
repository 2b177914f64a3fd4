#include "backend/backend.h"

#include "core/thread.h"

int zonal__backend_threads(int asked) {
    return zonal__thread_count(asked);
}
