/* The estimate of a run's time (src/train/estimate.h), on runs that are played through with a
 * clock of our own: it must come within 20 s of the beginning and be right within 20 %, or 30 %
 * where it is made within a step, whose layers are not equally fast. */
#include <stdio.h>
#include <string.h>

#include "test.h"
#include "train/estimate.h"

typedef struct play {
    double first, step; /* seconds of the first step, and of the others */
    double jitter;      /* share by which every other step is longer, the rest shorter */
    double eval, save;  /* seconds */
    int64_t total, eval_every, checkpoint_every;
    double eval_work;
    double busy;     /* seconds for which the machine is busy, and steps take three times as long */
    double opening;  /* seconds before the steps */
    double loading;  /* share of a step that goes by before its images are there */
    int silent;      /* 1: a device that tells nothing within a step */
    double touching; /* share of the first step that goes into touching memory */
} play;

typedef struct heard {
    double first_at, said; /* when the first estimate came, and what the last was; -1: none */
    double least;          /* what it was said to take at least; -1: nothing */
    int times;
} heard;

enum { LAYERS = 50 };

static void hear(heard *h, const zonal__estimated *out, double elapsed) {
    if (h->first_at < 0) h->first_at = elapsed;
    if (out->at_least)
        h->least = out->seconds;
    else
        h->said = out->seconds;
    h->times += !out->at_least;
}

/* A step as a trainer tells of it: images by the second, then layer by layer, the late ones slower
 * than their share of the work says. */
static void play_step(const play *p, zonal__estimate *e, double clock, double took, heard *h) {
    zonal__estimated out;
    double loading = p->loading * took, computing = took - loading;
    for (double t = 1; t < loading; t++)
        if (zonal__estimate_within(
                e, &(zonal__estimate_part){.loaded = t / loading, .now = clock + t}, &out))
            hear(h, &out, clock + t - e->started);
    for (int i = 0; i <= LAYERS && !p->silent; i++) {
        double share = (double)i / LAYERS, now = clock + loading + share * computing;
        zonal__estimate_part part = {
            .loaded = 1, .computed = share * (1.2 - .2 * share), .now = now};
        part.user = 2 * now * (1 - p->touching);
        part.system = 2 * now * p->touching;
        if (zonal__estimate_within(e, &part, &out)) hear(h, &out, now - e->started);
    }
}

/* Plays the run; the true time of its steps is returned. */
static double play_through(const play *p, int64_t from, heard *h) {
    const double beginning = 1000 + p->opening;
    zonal__estimate e = {.first = from,
                         .total = p->total,
                         .eval_every = p->eval_every,
                         .checkpoint_every = p->checkpoint_every,
                         .eval_work = p->eval_work,
                         .save_seconds = p->save,
                         .started = 1000};
    double clock = beginning;
    *h = (heard){.first_at = -1, .said = -1, .least = -1};
    zonal__estimate_begin(&e, clock);
    for (int64_t step = from + 1; step <= p->total; step++) {
        zonal__estimated out;
        double took = step == from + 1 ? p->first : p->step;
        took *= 1 + (step % 2 ? p->jitter : -p->jitter);
        if (clock - beginning < p->busy) took *= 3;
        play_step(p, &e, clock, took, h);
        clock += took;
        zonal__estimate_waited(&e, p->loading * took);
        if (zonal__estimate_step(&e, step, clock, &out)) hear(h, &out, clock - e.started);
        if (p->eval_every > 0 && (step % p->eval_every == 0 || step == p->total)) {
            clock += p->eval;
            zonal__estimate_evaluated(&e, p->eval);
        }
        if (step % p->checkpoint_every == 0 || step == p->total) {
            clock += p->save;
            zonal__estimate_saved(&e, p->save);
        }
    }
    return clock - beginning;
}

static void test_estimates(void) {
    static const play plays[] = {
        /* a folder of photographs on two cores, batch 256, k-NN with 6000 images every epoch */
        {7, 4, .1, 31, .5, 3900, 39, 100, 6000. / 512, 0, 1, 0, 0, 0},
        /* textures, many small steps */
        {.2, .02, .3, .6, .05, 4000, 100, 100, 2000. / 32, 0, 0, 0, 0, 0},
        /* an evaluation before anything is said */
        {.5, .1, .2, 3, .2, 5000, 10, 100, 64, 0, 0, 0, 0, 0},
        /* steps of half a minute, and of ten minutes: said within the first */
        {35, 31, .05, 0, 1, 300, 0, 100, 0, 0, 2, 0, 0, 0},
        {620, 600, .05, 0, 1, 300, 0, 100, 0, 0, 2, 0, 0, 0},
        {100, 50, .05, 0, 1, 300, 0, 100, 0, 0, 2, 0, 0, .5},
        /* steps of five, ten and thirteen seconds */
        {9, 5, .1, 0, 1, 720, 0, 100, 0, 0, 0, 0, 0, 0},
        {11, 10, .1, 0, 1, 720, 0, 100, 0, 0, 1, 0, 0, 0},
        {13, 13, 0, 0, 1, 720, 0, 100, 0, 0, 0, 0, 0, 0},
        /* a GPU; and one that takes long to start and to make its first step */
        {4, .003, .5, 2, .3, 100000, 390, 390, 6000. / 512, 0, 4, 0, 1, 0},
        {13, .01, .2, 2, .3, 100000, 390, 390, 6000. / 512, 0, 3, 0, 1, 0},
        /* large images: most of a step is waiting for them */
        {60, 50, .1, 0, 1, 300, 0, 100, 0, 0, 2, .7, 0, 0},
        {9, 8, .1, 0, 1, 300, 0, 100, 0, 0, 2, .7, 0, 0},
        /* a machine that was busy in the first half-minute */
        {3, 1, .1, 5, .5, 6000, 100, 100, 15, 30, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof plays / sizeof plays[0]; i++)
        for (int resumed = 0; resumed < 2; resumed++) {
            const play *p = &plays[i];
            heard h;
            double took = play_through(p, resumed ? p->total / 3 : 0, &h);
            double off = p->first > 12 || p->step > 9 ? 1.3 : 1.2;
            CHECK_MSG(h.first_at > 0 && h.first_at <= 20, "play %zu: said after %g s", i,
                      h.first_at);
            CHECK_MSG(h.said > took / off && h.said < off * took, "play %zu: %g s said, %g s taken",
                      i, h.said, took);
            CHECK_MSG(h.least < 1.2 * took, "play %zu: at least %g s, %g s taken", i, h.least,
                      took);
            CHECK_MSG(h.times <= (p->busy > 0 || off > 1.2 ? 2 : 1), "play %zu: said %d times", i,
                      h.times);
        }
}

/* Where images are slow and one step takes a minute, their reading is said first. */
static void test_loading(void) {
    const play p = {60, 60, 0, 0, 0, 300, 0, 100, 0, 0, 2, .7, 0, 0};
    heard h;
    double took = play_through(&p, 0, &h);
    CHECK(h.first_at <= 20);
    CHECK_MSG(h.least > .65 * took && h.least < .75 * took, "%g s of %g s", h.least, took);
}

/* A start that takes longer than the twenty seconds: said as soon as a second of steps is known. */
static void test_late(void) {
    const play p = {.5, .1, 0, 0, 0, 50000, 0, 100, 0, 0, 40, 0, 1, 0};
    heard h;
    double took = play_through(&p, 0, &h);
    CHECK_MSG(h.first_at < 42, "said after %g s", h.first_at);
    CHECK_MSG(h.said > .8 * took && h.said < 1.2 * took, "%g s said, %g s taken", h.said, took);
}

/* A run that is over before anything is known says nothing. */
static void test_short(void) {
    const play p = {1, .1, 0, 0, 0, 50, 0, 100, 0, 0, 0, 0, 0, 0};
    heard h;
    play_through(&p, 0, &h);
    CHECK(h.first_at < 0);
}

static void test_words(void) {
    static const struct {
        double seconds;
        const char *words;
    } cases[] = {{40.4, "40 s"},        {100, "2 min"},         {3600, "60 min"},
                 {12000, "3 h 20 min"}, {370800, "4 days 7 h"}, {5399, "1 h 30 min"}};
    char words[40];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        zonal__estimate_words(cases[i].seconds, words);
        CHECK_MSG(strcmp(words, cases[i].words) == 0, "%g s: %s", cases[i].seconds, words);
    }
}

static const test_case tests[] = {{"estimates", test_estimates}, {"loading", test_loading},
                                  {"late", test_late},           {"short", test_short},
                                  {"words", test_words},         {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
