#include "cli/train_estimate.h"

#include <stdio.h>

static const double enough = 8, long_step = 10; /* seconds */

void zonal__estimate_begin(zonal__estimate *e, double now) {
    e->began = now;
    e->first_ended = e->aside = e->eval_seconds = 0;
    e->done = 0;
}

void zonal__estimate_evaluated(zonal__estimate *e, double seconds) {
    e->eval_seconds = seconds;
    e->aside += seconds;
}

void zonal__estimate_saved(zonal__estimate *e, double seconds) {
    e->save_seconds = seconds;
    e->aside += seconds;
}

/* How many of "every" come after step "from", the last step's included. */
static double count_after(int64_t from, int64_t total, int64_t every) {
    if (every <= 0) return 0;
    return (double)(total / every - from / every + (total % every != 0));
}

static void add_up(const zonal__estimate *e, double step_seconds, zonal__estimated *out) {
    double evaluation = e->eval_seconds > 0 ? e->eval_seconds : e->eval_work * step_seconds / 3;
    out->step = step_seconds;
    out->evaluations = evaluation * count_after(e->first, e->total, e->eval_every);
    out->seconds = step_seconds * (double)(e->total - e->first) + out->evaluations +
                   e->save_seconds * count_after(e->first, e->total, e->checkpoint_every);
}

int zonal__estimate_step(zonal__estimate *e, int64_t step, double now, zonal__estimated *out) {
    int64_t timed = step - e->first - 1;
    double seconds;
    if (e->done) return 0;
    if (timed == 0) {
        e->first_ended = now;
        e->aside = 0;
        seconds = now - e->began;
        if (seconds < long_step) return 0;
    } else {
        if (now - e->began < enough) return 0;
        seconds = (now - e->first_ended - e->aside) / (double)timed;
    }
    e->done = 1;
    add_up(e, seconds, out);
    return 1;
}

void zonal__estimate_words(double seconds, char out[40]) {
    long long minutes = (long long)(seconds / 60 + .5), hours = minutes / 60;
    if (seconds < 90)
        snprintf(out, 40, "%.0f s", seconds);
    else if (minutes < 90)
        snprintf(out, 40, "%lld min", minutes);
    else if (hours < 48)
        snprintf(out, 40, "%lld h %lld min", hours, minutes % 60);
    else
        snprintf(out, 40, "%lld days %lld h", hours / 24, hours % 24);
}
