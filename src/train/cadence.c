#include "train/cadence.h"

static int is_due(const zonal__cadence *c, int64_t every, int64_t step) {
    return every > 0 && (step % every == 0 || step == c->total);
}

int zonal__cadence_due(const zonal__cadence *c, int64_t step) {
    return (is_due(c, c->log_every, step) ? ZONAL__DUE_LOG : 0) |
           (is_due(c, c->eval_every, step) ? ZONAL__DUE_EVAL : 0) |
           (is_due(c, c->checkpoint_every, step) ? ZONAL__DUE_CHECKPOINT : 0);
}
