/* The estimate of a run's time (src/train/estimate.h), on runs that are played through with a
 * clock of our own: it must come within 20 s of the beginning, or after the first step where that
 * is longer, and be right within 20 %. */
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
    double busy; /* seconds for which the machine is busy, and steps take three times as long */
} play;

/* Plays the run; *at is when the first estimate came, *said what the last was. The true time is
 * returned. */
static double play_through(const play *p, int64_t from, double *at, double *said) {
    zonal__estimate e = {.first = from,
                         .total = p->total,
                         .eval_every = p->eval_every,
                         .checkpoint_every = p->checkpoint_every,
                         .eval_work = p->eval_work,
                         .save_seconds = p->save};
    const double beginning = 1000;
    double clock = beginning;
    *at = *said = -1;
    zonal__estimate_begin(&e, clock);
    for (int64_t step = from + 1; step <= p->total; step++) {
        zonal__estimated out;
        double took = step == from + 1 ? p->first : p->step;
        took *= 1 + (step % 2 ? p->jitter : -p->jitter);
        clock += clock - beginning < p->busy ? 3 * took : took;
        if (zonal__estimate_step(&e, step, clock, &out)) {
            CHECK_MSG(*at < 0 || p->busy > 0 || p->first > 12, "steps of %g s: %g s, then %g s",
                      p->step, *said, out.seconds);
            if (*at < 0) *at = clock - beginning;
            *said = out.seconds;
        }
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
        {7, 4, .1, 31, .5, 3900, 39, 100, 6000. / 512, 0},
        /* textures, many small steps */
        {.2, .02, .3, .6, .05, 4000, 100, 100, 2000. / 32, 0},
        /* an evaluation before anything is said */
        {.5, .1, .2, 3, .2, 5000, 10, 100, 64, 0},
        /* steps of half a minute: nothing can be said before the first has ended */
        {35, 31, .05, 0, 1, 300, 0, 100, 0, 0},
        /* steps of five seconds */
        {9, 5, .1, 0, 1, 720, 0, 100, 0, 0},
        /* a GPU */
        {4, .003, .5, 2, .3, 100000, 390, 390, 6000. / 512, 0},
        /* a machine that was busy in the first half-minute */
        {3, 1, .1, 5, .5, 6000, 100, 100, 15, 30},
    };
    for (size_t i = 0; i < sizeof plays / sizeof plays[0]; i++)
        for (int resumed = 0; resumed < 2; resumed++) {
            double at, said, took;
            took = play_through(&plays[i], resumed ? plays[i].total / 3 : 0, &at, &said);
            CHECK_MSG(at > 0 && (at <= 20 || at <= plays[i].first * (1 + plays[i].jitter)),
                      "play %zu: said after %g s", i, at);
            CHECK_MSG(said > .8 * took && said < 1.2 * took, "play %zu: %g s said, %g s taken", i,
                      said, took);
        }
}

/* A run that is over before anything is known says nothing. */
static void test_short(void) {
    const play p = {1, .1, 0, 0, 0, 50, 0, 100, 0, 0};
    double at, said;
    play_through(&p, 0, &at, &said);
    CHECK(at < 0);
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

static const test_case tests[] = {
    {"estimates", test_estimates}, {"short", test_short}, {"words", test_words}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
