#include "train/estimate.h"

#include <stdio.h>

static const double enough = 8, latest = 19, long_step = 12, second_look = 120; /* seconds */
enum { ENOUGH_STEPS = 30 };

void zonal__estimate_begin(zonal__estimate *e, double now) {
    e->began = now;
    e->first_ended = e->aside = e->eval_seconds = e->said = 0;
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

/* Whether it is time to speak: another step would come too late, or enough have been timed. */
static int is_time(const zonal__estimate *e, int64_t timed, double elapsed, double step_seconds) {
    if (e->said > 0) return elapsed > second_look;
    if (timed == 0) return step_seconds > long_step; /* a first step tells little */
    if (elapsed + step_seconds > latest) return 1;
    return timed >= ENOUGH_STEPS && elapsed >= enough;
}

int zonal__estimate_step(zonal__estimate *e, int64_t step, double now, zonal__estimated *out) {
    int64_t timed = step - e->first - 1;
    double seconds = now - e->began, before = e->said;
    if (e->done || timed < 0) return 0;
    if (timed == 0) {
        e->first_ended = now;
        e->aside = 0;
    } else {
        seconds = (now - e->first_ended - e->aside) / (double)timed;
    }
    if (!is_time(e, timed, now - e->began, seconds)) return 0;
    add_up(e, seconds, out);
    e->said = out->seconds;
    e->done = before > 0;
    return before == 0 || out->seconds > 1.2 * before || out->seconds < before / 1.2;
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
