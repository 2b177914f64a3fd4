#include "train/estimate.h"

#include <stdio.h>

/* Seconds. "early" leaves room for the layer under way. */
static const double enough = 8, early = 14, latest = 19, least_timed = 1, second_look = 120;
static const double least_share = .01; /* of a step */
enum { ENOUGH_STEPS = 30 };

void zonal__estimate_begin(zonal__estimate *e, double now) {
    e->began = e->step_began = now;
    e->first_ended = e->loaded = e->aside = e->waited = e->eval_seconds = e->said = 0;
    e->steps = 0;
    e->said_least = e->done = 0;
}

static void put_aside(zonal__estimate *e, double seconds) {
    e->aside += seconds;
    e->step_began += seconds;
}

void zonal__estimate_evaluated(zonal__estimate *e, double seconds) {
    e->eval_seconds = seconds;
    put_aside(e, seconds);
}

void zonal__estimate_saved(zonal__estimate *e, double seconds) {
    e->save_seconds = seconds;
    put_aside(e, seconds);
}

void zonal__estimate_waited(zonal__estimate *e, double seconds) {
    if (e->steps > 0) e->waited += seconds;
}

/* How many of "every" come after step "from", the last step's included. */
static double count_after(int64_t from, int64_t total, int64_t every) {
    if (every <= 0) return 0;
    return (double)(total / every - from / every + (total % every != 0));
}

static void add_up(const zonal__estimate *e, double step_seconds, zonal__estimated *out) {
    double evaluation = e->eval_seconds > 0 ? e->eval_seconds : e->eval_work * step_seconds / 3;
    *out = (zonal__estimated){.step = step_seconds};
    out->evaluations = evaluation * count_after(e->first, e->total, e->eval_every);
    out->seconds = step_seconds * (double)(e->total - e->first) + out->evaluations +
                   e->save_seconds * count_after(e->first, e->total, e->checkpoint_every);
}

/* ---- within a step --------------------------------------------------------------------------- */

/* Of the reading of images alone nothing is known but that a step takes no less. */
static int say_least(zonal__estimate *e, double loaded, double now, zonal__estimated *out) {
    if (e->said_least || loaded <= 0) return 0;
    *out = (zonal__estimated){.step = (now - e->step_began) / loaded, .at_least = 1};
    out->waiting = out->step;
    out->seconds = out->step * (double)(e->total - e->first);
    e->said_least = 1;
    return 1;
}

/* What a step will take, by what the one under way has shown: the seconds until its images were
 * there, and those that its computing takes in all. In the first step nothing is computed while
 * images are read, and then images of two more steps are read on the same processors, which are
 * shared evenly: computing takes twice as long until they are there. Later a step is as long as it
 * looks. */
static double later_step(const zonal__estimate *e, double reading, double computing) {
    if (e->steps > 0) return reading + computing;
    return reading <= computing / 4 ? computing - reading : computing / 2 + reading;
}

/* Memory is touched for the first time in the first step, by the system, and on a virtual machine
 * that can take longer than the rest: of its time only the program's share counts. */
static double own_share(const zonal__estimate *e, const zonal__estimate_part *part) {
    double user = part->user - e->user, system = part->system - e->system;
    return e->steps == 0 && user > 0 && system > 0 ? user / (user + system) : 1;
}

static void note_loaded(zonal__estimate *e, const zonal__estimate_part *part) {
    if (part->loaded < 1 || e->loaded > 0) return;
    e->loaded = part->now;
    e->user = part->user;
    e->system = part->system;
}

int zonal__estimate_within(zonal__estimate *e, const zonal__estimate_part *part,
                           zonal__estimated *out) {
    double reading, computing;
    if (e->said > 0 || e->steps > 1) return 0;
    note_loaded(e, part);
    if (part->now - e->started < early) return 0;
    if (e->loaded == 0) return say_least(e, part->loaded, part->now, out);
    if (part->computed < least_share) return 0;
    reading = e->loaded - e->step_began;
    computing = (part->now - e->loaded) * own_share(e, part) / part->computed;
    add_up(e, later_step(e, reading, computing), out);
    out->waiting = reading > computing / 4 ? reading : 0;
    e->said = out->seconds;
    return 1;
}

/* ---- after a step ---------------------------------------------------------------------------- */

/* Whether it is time to speak: another step would come too late, or enough have been timed. */
static int is_time(const zonal__estimate *e, int64_t timed, double now, double step_seconds) {
    double elapsed = now - e->started;
    if (e->said > 0) return elapsed > second_look;
    if (timed == 0 || now - e->first_ended < least_timed) return 0;
    if (elapsed + step_seconds > latest) return 1;
    return timed >= ENOUGH_STEPS && now - e->began >= enough;
}

int zonal__estimate_step(zonal__estimate *e, int64_t step, double now, zonal__estimated *out) {
    int64_t timed = step - e->first - 1;
    double seconds = now - e->began, before = e->said;
    if (e->done || timed < 0) return 0;
    e->steps = timed + 1;
    e->step_began = now;
    e->loaded = 0;
    if (timed == 0) {
        e->first_ended = now;
        e->aside = 0;
    } else {
        seconds = (now - e->first_ended - e->aside) / (double)timed;
    }
    if (!is_time(e, timed, now, seconds)) return 0;
    add_up(e, seconds, out);
    if (timed > 0) out->waiting = e->waited / (double)timed;
    e->said = out->seconds;
    e->done = before > 0;
    return before == 0 || out->seconds > 1.2 * before || out->seconds < before / 1.2;
}

/* ---- words ----------------------------------------------------------------------------------- */

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
