/* Learning rates over a run: src/nn/schedule.h. */
#include "nn/schedule.h"
#include "test.h"

static void test_ends(void) {
    for (int kind = 0; kind < 3; kind++) {
        zonal__schedule s = {(zonal__schedule_kind)kind, 100, 19, 0.4, 0.1};
        int constant = kind == ZONAL__SCHEDULE_CONSTANT;
        CHECK_OK(zonal__schedule_check(&s));
        CHECK_CLOSE(zonal__schedule_rate(&s, 0), 0.02, 1e-17);
        CHECK_CLOSE(zonal__schedule_rate(&s, 9), 0.2, 1e-16);
        CHECK_CLOSE(zonal__schedule_rate(&s, 18), 0.38, 1e-16);
        CHECK_CLOSE(zonal__schedule_rate(&s, 19), 0.4, 0);
        CHECK_CLOSE(zonal__schedule_rate(&s, 100), constant ? 0.4 : 0.1, 0);
        CHECK_CLOSE(zonal__schedule_rate(&s, INT64_MAX), constant ? 0.4 : 0.1, 0);
    }
}

static void test_cosine(void) {
    zonal__schedule s = {ZONAL__SCHEDULE_COSINE, 130, 10, 0.4, 0.1};
    /* cosines of 60, 90 and 120 degrees; the last step is 1.5 degrees before the floor, where
     * 1 - cos x = x^2/2 - x^4/24 to 5e-13 */
    double x = 1.5 * 3.14159265358979323846 / 180;
    CHECK_CLOSE(zonal__schedule_rate(&s, 50), 0.325, 1e-15);
    CHECK_CLOSE(zonal__schedule_rate(&s, 70), 0.25, 1e-15);
    CHECK_CLOSE(zonal__schedule_rate(&s, 90), 0.175, 1e-15);
    CHECK_CLOSE(zonal__schedule_rate(&s, 129), 0.1 + 0.15 * (x * x / 2 - x * x * x * x / 24),
                1e-12);
    for (int step = 1; step < 131; step++) {
        double before = zonal__schedule_rate(&s, step - 1), now = zonal__schedule_rate(&s, step);
        CHECK_MSG(step <= 10 ? now > before : now < before, "step %d: %g after %g", step, now,
                  before);
    }
    for (int k = 0; k <= 60; k++) /* symmetric about its middle */
        CHECK_CLOSE(zonal__schedule_rate(&s, 70 - k) + zonal__schedule_rate(&s, 70 + k), 0.5,
                    1e-15);
}

static void test_linear(void) {
    zonal__schedule s = {ZONAL__SCHEDULE_LINEAR, 8, 0, 1, 0};
    for (int step = 0; step <= 8; step++)
        CHECK_CLOSE(zonal__schedule_rate(&s, step), 1 - step / 8.0, 0);
    s.warmup = 8; /* all of it is warm-up */
    CHECK_OK(zonal__schedule_check(&s));
    for (int step = 0; step < 8; step++)
        CHECK_CLOSE(zonal__schedule_rate(&s, step), (step + 1) / 9.0, 1e-16);
    CHECK_CLOSE(zonal__schedule_rate(&s, 8), 0, 0);
}

static void test_one_step(void) {
    for (int kind = 0; kind < 3; kind++) {
        zonal__schedule s = {(zonal__schedule_kind)kind, 1, 0, 0.3, 0};
        CHECK_OK(zonal__schedule_check(&s));
        CHECK_CLOSE(zonal__schedule_rate(&s, 0), 0.3, 0);
    }
}

static void test_refused(void) {
    static const struct {
        zonal__schedule schedule;
        const char *sentence;
    } cases[] = {
        {{(zonal__schedule_kind)3, 10, 0, 1, 0}, "no kind 3 of schedules"},
        {{ZONAL__SCHEDULE_COSINE, 0, 0, 1, 0}, "at least 1 step, got 0"},
        {{ZONAL__SCHEDULE_COSINE, 10, -1, 1, 0}, "a warm-up of -1 steps"},
        {{ZONAL__SCHEDULE_COSINE, 10, 11, 1, 0}, "a warm-up of 11 steps does not fit into 10"},
        {{ZONAL__SCHEDULE_COSINE, 10, 1, -1, 0}, "the learning rate must be finite"},
        {{ZONAL__SCHEDULE_COSINE, 10, 1, NAN, 0}, "the learning rate must be finite"},
        {{ZONAL__SCHEDULE_COSINE, 10, 1, INFINITY, 0}, "the learning rate must be finite"},
        {{ZONAL__SCHEDULE_COSINE, 10, 1, 1, 2}, "the lowest learning rate"},
        {{ZONAL__SCHEDULE_COSINE, 10, 1, 1, -1}, "the lowest learning rate"},
        {{ZONAL__SCHEDULE_COSINE, 10, 1, 1, NAN}, "the lowest learning rate"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_FAILS(zonal__schedule_check(&cases[i].schedule), ZONAL_ARGUMENT, cases[i].sentence);
}

static const test_case tests[] = {
    {"ends", test_ends},         {"cosine", test_cosine},   {"linear", test_linear},
    {"one_step", test_one_step}, {"refused", test_refused}, {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
