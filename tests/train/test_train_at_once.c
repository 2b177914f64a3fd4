/*
 * Two trainings at once in one process, each in a thread of its own with a loader of its own: the
 * weights of each are, to the bit, those of the same training alone. Under the thread sanitizer
 * this is also a search for races in what trainings share.
 */
#include <pthread.h>

#include "setting.h"

enum { STEPS = 3 };

typedef struct training {
    setting setting;
    zonal__trainer *alone, *beside;
    zonal_status status; /* of the steps made beside the other training */
} training;

static int prepare(training *t, const char *method, uint64_t seed) {
    if (!setting_open(&t->setting, &setting_small, method, ZONAL_DTYPE_FP32)) return 0;
    t->setting.options.seed = seed;
    t->setting.options.threads = 2;
    return CHECK_OK(zonal__trainer_create(&t->setting.options, &t->alone)) &&
           make_steps(t->alone, STEPS) &&
           CHECK_OK(zonal__trainer_create(&t->setting.options, &t->beside));
}

static void *make_steps_beside(void *context) {
    training *t = context;
    for (int i = 0; i < STEPS && !t->status; i++) t->status = zonal__trainer_step(t->beside);
    return NULL;
}

static void run_both(training both[2]) {
    pthread_t other;
    if (!CHECK(pthread_create(&other, NULL, make_steps_beside, &both[1]) == 0)) return;
    make_steps_beside(&both[0]);
    pthread_join(other, NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_MSG(!both[i].status, "training %d: status %d", i, both[i].status);
        CHECK_MSG(same_weights(both[i].alone, both[i].beside), "training %d: other weights", i);
    }
    CHECK_MSG(!same_weights(both[0].alone, both[1].alone), "there was one training only");
}

static void test_two_trainings(void) {
    training both[2] = {{.status = ZONAL_OK}, {.status = ZONAL_OK}};
    if (prepare(&both[0], "mmd-heat", test_seed) && prepare(&both[1], "kl-heat", test_seed + 1))
        run_both(both);
    for (int i = 0; i < 2; i++) {
        zonal__trainer_destroy(both[i].alone);
        zonal__trainer_destroy(both[i].beside);
        zonal__source_close(both[i].setting.source);
    }
}

static const test_case tests[] = {{"two_trainings", test_two_trainings}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
