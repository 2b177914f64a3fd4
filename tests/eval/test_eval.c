/*
 * Evaluations, src/eval: values known in closed form, brute force written out here, ties, and what
 * is refused. scikit-learn's and numpy's answers are compared in eval_test.py.
 */
#include <stdlib.h>

#include "backend/training/neighbours.h"
#include "core/memory.h"
#include "core/random.h"
#include "eval/lbfgs.h"
#include "eval/neighbours.h"
#include "eval/probe.h"
#include "eval/retrieval.h"
#include "failing_alloc.h"
#include "test.h"

/* ---- made-up data ---------------------------------------------------------------------------- */

/* n rows around one of "classes" random centres each, spread out by "noise". Label i % classes. */
static void make_blobs(int64_t n, int64_t dim, int classes, double noise, uint32_t step, float *x,
                       int32_t *labels) {
    zonal__random centres = {test_seed, ZONAL__STREAM_TEST, 0}, rows = centres;
    double centre[64], off[64];
    rows.step = step;
    for (int64_t i = 0; i < n; i++) {
        labels[i] = (int32_t)(i % classes);
        zonal__random_direction(&centres, (uint64_t)labels[i], dim, centre);
        zonal__random_normal(&rows, (uint64_t)i, dim, off);
        for (int64_t j = 0; j < dim; j++) x[i * dim + j] = (float)(centre[j] + noise * off[j]);
    }
}

/* ---- scores ---------------------------------------------------------------------------------- */

static void test_scores(void) {
    static const double score[][6] = {{9, 1, 1, 1, 1, 1},  /* class 0 is first */
                                      {1, 2, 3, 4, 5, 6},  /* ... sixth */
                                      {7, 7, 0, 0, 0, 0},  /* ties: 0 before 1 */
                                      {0, 0, 0, 0, 0, 0},  /* 5 comes last */
                                      {1, 2, 3, 4, 5, 6}}; /* 1 is fifth */
    static const int32_t label[] = {0, 0, 1, 5, 1};
    zonal__scores scores;
    if (!CHECK_OK(zonal__scores_init(6, &scores))) return;
    CHECK(isnan(zonal__scores_accuracy(&scores)) && isnan(zonal__scores_top5(&scores)));
    for (int i = 0; i < 5; i++) CHECK_OK(zonal__scores_add(&scores, label[i], score[i]));
    CHECK_CLOSE(zonal__scores_accuracy(&scores), .2, 0);
    CHECK_CLOSE(zonal__scores_top5(&scores), .6, 0);
    CHECK_CLOSE(zonal__scores_class_accuracy(&scores, 0), .5, 0);
    CHECK_CLOSE(zonal__scores_class_accuracy(&scores, 1), 0, 0);
    CHECK(isnan(zonal__scores_class_accuracy(&scores, 2)));
    CHECK(scores.confusion[0] == 1 && scores.confusion[5] == 1);     /* of class 0 */
    CHECK(scores.confusion[6] == 1 && scores.confusion[6 + 5] == 1); /* of class 1 */
    CHECK(scores.confusion[5 * 6] == 1);
    CHECK_FAILS(zonal__scores_add(&scores, 0, (double[]){0, 0, 0, NAN, 0, 0}), ZONAL_NUMERIC,
                "sample 5 has a score that is not a number");
    CHECK(scores.count == 5);
    zonal__scores_fini(&scores);
    zonal__scores_fini(&scores);
}

static void test_spread(void) {
    double mean, std;
    zonal__scores_spread(4, (double[]){1, 2, 3, 6}, &mean, &std);
    CHECK_CLOSE(mean, 3, 0);
    CHECK_CLOSE(std, sqrt(14.0 / 3), 1e-15);
    zonal__scores_spread(1, (double[]){5}, &mean, &std);
    CHECK(mean == 5 && isnan(std));
}

/* ---- diagnostics ----------------------------------------------------------------------------- */

/* Two opposite points, each twice: of the 12 ordered pairs 4 have |x - y|^2 = 0 and 8 have 4, so
 * uniformity = log((4 + 8 e^-8)/12). The other view is turned by 90 degrees: |x - y|^2 = 2. The
 * backend's fp32 rows give 1e-6. */
static void test_diagnostics(void) {
    static const float x[] = {1, 0, -2, 0, 3, 0, -4, 0}, other[] = {0, 1, 0, 1, 0, 1, 0, 1};
    zonal_uniformity_options options = ZONAL_UNIFORMITY_OPTIONS_INIT;
    zonal__diagnostics diagnostics;
    if (!CHECK_OK(zonal__diagnostics_run(&options, 4, 2, x, other, &diagnostics))) return;
    CHECK_CLOSE(diagnostics.uniformity, log((4 + 8 * exp(-8)) / 12), 1e-6);
    CHECK_CLOSE(diagnostics.alignment, 2, 1e-6);
    CHECK_CLOSE(diagnostics.report.effective_rank, 1, 1e-6); /* they lie on a line */
    CHECK(diagnostics.report.n == 4 && diagnostics.report.d == 2);
    options.pair_limit = 3;
    CHECK_OK(zonal__diagnostics_run(&options, 4, 2, x, NULL, &diagnostics));
    CHECK(isnan(diagnostics.uniformity) && isnan(diagnostics.alignment));
}

/* ---- k-NN ------------------------------------------------------------------------------------ */

/* One query along the first axis, cosines .8, .6, .6, 0: with k = 1 class 1 wins, with k = 3 and a
 * large T the two of class 0 do, with a small T the nearest alone counts; with k = 4 class 2 joins.
 */
static void test_knn_votes(void) {
    static const float x[] = {.8f, .6f, .6f, .8f, .6f, -.8f, 0, 1}, q[] = {3, 0};
    static const int32_t labels[] = {1, 0, 0, 2}, expected[] = {1};
    static const int k[] = {1, 3, 4};
    static const double temperature[] = {.01, 1};
    static const int right[3][2] = {{1, 1}, {1, 0}, {1, 0}};
    zonal__labelled train = {4, x, 4, labels}, test = {1, q, 1, expected};
    zonal__knn_options options = {
        .dim = 2, .classes = 3, .ks = 3, .k = k, .temperatures = 2, .temperature = temperature};
    zonal__scores scores[6];
    if (!CHECK_OK(zonal__knn_run(&options, &train, &test, scores))) return;
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < 2; t++) {
            CHECK_MSG(scores[i * 2 + t].top1 == right[i][t], "k = %d, T = %g", k[i],
                      temperature[t]);
            zonal__scores_fini(&scores[i * 2 + t]);
        }
}

/* Leave one out: each sample has one copy, so k = 1 finds it and never itself; a label that differs
 * from the copy's is always wrong. */
static void test_knn_leave_one_out(void) {
    enum { N = 40, DIM = 8 };
    static float x[N * DIM];
    static int32_t labels[N];
    static const int k = 1;
    zonal__labelled set = {N, x, N, labels};
    zonal__knn_options options = {.dim = DIM, .classes = 5, .ks = 1, .k = &k};
    zonal__scores scores;
    make_blobs(N, DIM, 5, 1, 1, x, labels);
    memcpy(x + N / 2 * DIM, x, sizeof x / 2);
    if (CHECK_OK(zonal__knn_run(&options, &set, NULL, &scores)))
        CHECK_CLOSE(zonal__scores_accuracy(&scores), 1, 0);
    zonal__scores_fini(&scores);
    labels[0] = 3; /* its copy has 0 */
    if (CHECK_OK(zonal__knn_run(&options, &set, NULL, &scores)))
        CHECK_CLOSE(zonal__scores_accuracy(&scores), (N - 2.0) / N, 0);
    zonal__scores_fini(&scores);
}

/* More test samples than one call of the search takes, against votes counted here. */
static void test_knn_brute(void) {
    enum { TRAIN = 300, TEST = 2500, DIM = 6, CLASSES = 4, K = 7 };
    static float x[TRAIN * DIM], q[TEST * DIM];
    static int32_t labels[TRAIN], expected[TEST];
    static const int k = K;
    zonal__labelled train = {TRAIN, x, TRAIN, labels}, test = {TEST, q, TEST, expected};
    zonal__knn_options options = {.dim = DIM, .classes = CLASSES, .ks = 1, .k = &k};
    zonal__scores scores;
    int64_t right = 0;
    make_blobs(TRAIN, DIM, CLASSES, .4, 1, x, labels);
    make_blobs(TEST, DIM, CLASSES, .4, 2, q, expected);
    for (int i = 0; i < TEST; i++) {
        double votes[CLASSES] = {0}, cosine[TRAIN];
        int best = 0;
        for (int r = 0; r < TRAIN; r++) {
            double ab = 0, aa = 0, bb = 0;
            for (int j = 0; j < DIM; j++) {
                ab += (double)x[r * DIM + j] * (double)q[i * DIM + j];
                aa += (double)x[r * DIM + j] * (double)x[r * DIM + j];
                bb += (double)q[i * DIM + j] * (double)q[i * DIM + j];
            }
            cosine[r] = ab / sqrt(aa * bb);
        }
        for (int n = 0; n < K; n++) {
            int nearest = 0;
            for (int r = 1; r < TRAIN; r++)
                if (cosine[r] > cosine[nearest]) nearest = r;
            votes[labels[nearest]] += exp(cosine[nearest] / .07);
            cosine[nearest] = -2;
        }
        for (int c = 1; c < CLASSES; c++)
            if (votes[c] > votes[best]) best = c;
        right += best == expected[i];
    }
    if (CHECK_OK(zonal__knn_run(&options, &train, &test, &scores)))
        CHECK_MSG(scores.top1 == right && right > TEST / 2, "%lld right, by brute force %lld",
                  (long long)scores.top1, (long long)right);
    zonal__scores_fini(&scores);
}

static int stop_at_once(void *context, double share) {
    *(double *)context = share;
    return 1;
}

static void test_knn_refused(void) {
    float x[] = {1, 0, 0, 1, 1, 1}, q[] = {1, 2};
    int32_t labels[] = {0, 1, 2}, expected[] = {1};
    int k = 4;
    double temperature = 0, share = 0;
    zonal__labelled train = {3, x, 3, labels}, test = {1, q, 1, expected};
    zonal__knn_options options = {.dim = 2, .classes = 3, .ks = 1, .k = &k};
    zonal__scores scores;
    CHECK_FAILS(zonal__knn_run(&options, &train, &test, &scores), ZONAL_ARGUMENT,
                "k = 4 neighbours cannot be found among 3 training samples; choose k from 1 to 3");
    CHECK(scores.confusion == NULL);
    k = 3;
    CHECK_FAILS(zonal__knn_run(&options, &train, NULL, &scores), ZONAL_ARGUMENT,
                "among 2 training samples");
    options.temperatures = 1, options.temperature = &temperature;
    CHECK_FAILS(zonal__knn_run(&options, &train, &test, &scores), ZONAL_ARGUMENT,
                "the temperature must be positive and finite, got 0");
    options.temperatures = 0;
    train.label_count = 2;
    CHECK_FAILS(zonal__knn_run(&options, &train, &test, &scores), ZONAL_SHAPE,
                "the training set has 3 rows of features but 2 labels");
    train.label_count = 3;
    expected[0] = 3;
    CHECK_FAILS(zonal__knn_run(&options, &train, &test, &scores), ZONAL_ARGUMENT,
                "row 0 of the test set has label 3, which is not one of the 3 classes");
    expected[0] = 1;
    x[4] = NAN;
    CHECK_FAILS(zonal__knn_run(&options, &train, &test, &scores), ZONAL_NUMERIC,
                "row 2 of the training set is not finite");
    x[4] = x[5] = 0;
    CHECK_FAILS(zonal__knn_run(&options, &train, &test, &scores), ZONAL_NUMERIC,
                "row 2 of the training set is zero");
    x[4] = 1;
    options.classes = 1;
    CHECK_FAILS(zonal__knn_run(&options, &train, &test, &scores), ZONAL_ARGUMENT,
                "at least 2 classes, got 1");
    options.classes = 3;
    options.progress = (zonal__eval_progress){stop_at_once, &share};
    CHECK_FAILS(zonal__knn_run(&options, &train, &test, &scores), ZONAL_CANCELLED, "stopped");
    CHECK_CLOSE(share, 1, 0);
    CHECK(scores.confusion == NULL);
}

/* ---- retrieval ------------------------------------------------------------------------------- */

/* By the definition, in double, with a full sort's ranks counted naively. */
static zonal__retrieval retrieve_by_hand(int64_t views, int64_t samples, int64_t dim, int64_t batch,
                                         const float *x) {
    zonal__retrieval sum = {0};
    int64_t groups = samples / batch;
    for (int64_t g = 0; g < groups; g++)
        for (int64_t query = 0; query < views * batch; query++) {
            double right[8], wrong[512], precision = 0;
            int64_t rights = 0, wrongs = 0, ahead_of_first = 0;
            for (int64_t other = 0; other < views * batch; other++) {
                const float *a = x + (query / batch * samples + g * batch + query % batch) * dim;
                const float *b = x + (other / batch * samples + g * batch + other % batch) * dim;
                double ab = 0, aa = 0, bb = 0;
                for (int64_t j = 0; j < dim; j++)
                    ab += (double)a[j] * (double)b[j], aa += (double)a[j] * (double)a[j],
                        bb += (double)b[j] * (double)b[j];
                if (other == query) continue;
                if (other % batch == query % batch)
                    right[rights++] = ab / sqrt(aa * bb);
                else
                    wrong[wrongs++] = ab / sqrt(aa * bb);
            }
            for (int64_t r = 0; r < rights; r++) {
                int64_t place = 1, ahead = 0;
                for (int64_t o = 0; o < rights; o++)
                    place += right[o] > right[r] || (right[o] == right[r] && o < r);
                for (int64_t w = 0; w < wrongs; w++) ahead += wrong[w] >= right[r] - 1e-6;
                precision += (double)place / (double)(place + ahead) / (double)rights;
                if (place == 1) ahead_of_first = ahead;
            }
            sum.queries++;
            sum.r1 += ahead_of_first < 1, sum.r3 += ahead_of_first < 3,
                sum.r5 += ahead_of_first < 5;
            sum.map += precision;
        }
    double n = (double)sum.queries;
    sum.r1 /= n, sum.r3 /= n, sum.r5 /= n, sum.map /= n;
    sum.candidates = views * batch - 1;
    return sum;
}

static void check_retrieval(int64_t views, int64_t samples, int64_t dim, int64_t batch,
                            double noise) {
    zonal__retrieval_options options = {
        .views = views, .samples = samples, .dim = dim, .batch = batch, .threads = 2};
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, 7};
    zonal__retrieval got, want;
    float *x;
    if (!CHECK_OK(ZONAL_NEW(&x, views * samples * dim, "views"))) return;
    for (int64_t i = 0; i < views * samples; i++) {
        double sample[64], off[64];
        zonal__random_normal(&random, (uint64_t)(i % samples), dim, sample);
        zonal__random_normal(&random, (uint64_t)(10000 + i), dim, off);
        for (int64_t j = 0; j < dim; j++) x[i * dim + j] = (float)(sample[j] + noise * off[j]);
    }
    want = retrieve_by_hand(views, samples, dim, batch ? batch : samples, x);
    if (CHECK_OK(zonal__retrieval_run(&options, x, &got))) {
        /* Counts are equal; mAP is a mean of quotients added up in another order. */
        CHECK(got.queries == want.queries && got.candidates == want.candidates);
        CHECK_CLOSE(got.r1, want.r1, 1e-12);
        CHECK_CLOSE(got.r3, want.r3, 1e-12);
        CHECK_CLOSE(got.r5, want.r5, 1e-12);
        CHECK_CLOSE(got.map, want.map, 1e-12);
        CHECK_MSG(got.r1 < got.r5 && got.r5 < 1, "the case is too easy or too hard to tell: %g",
                  got.r1);
    }
    zonal__free(x);
}

static void test_retrieval_brute(void) {
    check_retrieval(2, 20, 8, 10, .7);
    check_retrieval(2, 107, 16, 50, .9);
    check_retrieval(2, 60, 5, 0, .5);
    check_retrieval(3, 40, 8, 20, .8);
    check_retrieval(5, 33, 12, 0, 1.2);
}

/* Views that are copies are found at once; a collapsed embedding finds nothing, though every
 * candidate ties with the right one. */
static void test_retrieval_extremes(void) {
    enum { SAMPLES = 30, DIM = 16 };
    static float x[2 * SAMPLES * DIM];
    zonal__retrieval_options options = {.views = 2, .samples = SAMPLES, .dim = DIM, .batch = 15};
    zonal__random random = {test_seed, ZONAL__STREAM_TEST, 8};
    zonal__retrieval result;
    double row[DIM];
    for (int i = 0; i < 2 * SAMPLES; i++) {
        zonal__random_direction(&random, (uint64_t)(i % SAMPLES), DIM, row);
        for (int j = 0; j < DIM; j++) x[i * DIM + j] = (float)((i + 1) * row[j]);
    }
    CHECK_OK(zonal__retrieval_run(&options, x, &result));
    CHECK(result.r1 == 1 && result.r5 == 1 && result.map == 1);
    CHECK(result.queries == 60 && result.candidates == 29);
    for (int i = 0; i < 2 * SAMPLES; i++)
        for (int j = 0; j < DIM; j++) x[i * DIM + j] = (float)((i + 1) * row[j]);
    CHECK_OK(zonal__retrieval_run(&options, x, &result));
    CHECK(result.r1 == 0 && result.r5 == 0);
    CHECK_CLOSE(result.map, 1.0 / 29, 1e-12); /* the right one is the last of 29 */
}

/* Points on a circle at i degrees, the other view half a degree on: neighbours are known. */
static void test_retrieval_top(void) {
    enum { SAMPLES = 40 };
    static float x[2 * SAMPLES * 2];
    zonal__retrieval_options options = {.views = 2, .samples = SAMPLES, .dim = 2, .batch = 20};
    zonal__retrieval_hit hits[39];
    for (int i = 0; i < 2 * SAMPLES; i++) {
        double angle = (i % SAMPLES + (i < SAMPLES ? 0 : .4)) * M_PI / 180;
        x[2 * i] = (float)cos(angle), x[2 * i + 1] = (float)sin(angle);
    }
    if (!CHECK_OK(zonal__retrieval_top(&options, x, 1, 25, 3, hits))) return;
    CHECK(hits[0].view == 0 && hits[0].sample == 25);
    CHECK(hits[1].view == 0 && hits[1].sample == 26);
    CHECK(hits[2].sample == 24 || hits[2].sample == 26); /* both 1 degree away */
    CHECK_CLOSE(hits[0].cosine, cos(.4 * M_PI / 180), 1e-7);
    CHECK_OK(zonal__retrieval_top(&options, x, 0, 0, 39, hits));
    CHECK(hits[38].view == 1 && hits[38].sample == 19);
    CHECK_FAILS(zonal__retrieval_top(&options, x, 2, 0, 3, hits), ZONAL_ARGUMENT,
                "view 2 of sample 0 takes no part");
    CHECK_FAILS(zonal__retrieval_top(&options, x, 0, 40, 3, hits), ZONAL_ARGUMENT, "takes no part");
    CHECK_FAILS(zonal__retrieval_top(&options, x, 0, 0, 40, hits), ZONAL_ARGUMENT,
                "40 hits cannot be found among 39 candidates");
    CHECK_FAILS(zonal__retrieval_top(&options, x, 0, 0, 0, hits), ZONAL_ARGUMENT, "at least 1");
}

static void test_retrieval_refused(void) {
    float x[2 * 4 * 2] = {1, 0, 0, 1, 1, 1, 2, 1, 1, 0, 0, 1, 1, 1, 2, 1};
    zonal__retrieval_options options = {.views = 1, .samples = 4, .dim = 2, .batch = 2};
    zonal__retrieval result;
    double share;
    CHECK_FAILS(zonal__retrieval_run(&options, x, &result), ZONAL_SHAPE, "at least 2 views");
    options.views = 2, options.batch = 5;
    CHECK_FAILS(zonal__retrieval_run(&options, x, &result), ZONAL_SHAPE,
                "4 samples are less than one group of 5");
    options.batch = 1;
    CHECK_FAILS(zonal__retrieval_run(&options, x, &result), ZONAL_SHAPE, "at least 2 samples");
    options.batch = 2;
    x[13] = NAN;
    CHECK_FAILS(zonal__retrieval_run(&options, x, &result), ZONAL_NUMERIC,
                "view 1 of sample 2 is not finite");
    options.batch = 0;
    x[13] = x[12] = 0;
    CHECK_FAILS(zonal__retrieval_run(&options, x, &result), ZONAL_NUMERIC,
                "view 1 of sample 2 is zero");
    options.samples = 4, options.batch = 3, x[12] = 1;
    x[7] = NAN; /* sample 3, which is left over */
    CHECK_OK(zonal__retrieval_run(&options, x, &result));
    CHECK(result.queries == 6);
    options.progress = (zonal__eval_progress){stop_at_once, &share};
    CHECK_FAILS(zonal__retrieval_run(&options, x, &result), ZONAL_CANCELLED, "stopped");
    CHECK(result.queries == 0);
}

/* ---- the minimiser --------------------------------------------------------------------------- */

/* Rosenbrock's valley in pairs of variables: minimum 0 at 1, 1, ... */
static void valley(void *context, const double *x, double *value, double *gradient) {
    ++*(int *)context;
    *value = 0;
    for (int i = 0; i < 20; i += 2) {
        double bend = x[i + 1] - x[i] * x[i], off = 1 - x[i];
        *value += 100 * bend * bend + off * off;
        gradient[i] = -400 * bend * x[i] - 2 * off;
        gradient[i + 1] = 200 * bend;
    }
}

static void nowhere(void *context, const double *x, double *value, double *gradient) {
    (void)context, (void)x;
    *value = *gradient = NAN;
}

static void test_lbfgs(void) {
    int evaluations = 0;
    zonal__lbfgs_problem problem = {
        .n = 20, .evaluate = valley, .context = &evaluations, .tolerance = 1e-9, .iterations = 500};
    zonal__lbfgs_end end;
    double x[20];
    for (int i = 0; i < 20; i++) x[i] = i % 2 ? 1 + .1 * i : -1.2;
    CHECK_OK(zonal__lbfgs(&problem, x, &end));
    CHECK(end.converged && end.gradient <= 1e-9 && evaluations < 1000);
    for (int i = 0; i < 20; i++) CHECK_CLOSE(x[i], 1, 1e-8); /* curvature .5 at least */
    CHECK_CLOSE(end.value, 0, 1e-16);
    for (int i = 0; i < 20; i++) x[i] = -1.2;
    problem.iterations = 3;
    CHECK_OK(zonal__lbfgs(&problem, x, &end));
    CHECK(!end.converged && end.iterations == 3 && end.gradient > 1e-9);
    problem.n = 1, problem.evaluate = nowhere;
    CHECK_FAILS(zonal__lbfgs(&problem, x, &end), ZONAL_NUMERIC, "not finite at its start");
}

/* ---- probes ---------------------------------------------------------------------------------- */

/* One feature, -1 or 1, and two classes that agree with it for 80 of 100 samples. By symmetry the
 * weights are -w and w and the biases 0, and the objective is
 *     .8 log(1 + exp(-2 w)) + .2 log(1 + exp(2 w)) + l2 w^2,
 * whose minimum is found here by bisection of its derivative. */
static void test_probe_closed_form(void) {
    enum { N = 100 };
    static float x[N];
    static int32_t labels[N];
    double l2 = .05, low = 0, high = 10;
    zonal__labelled train = {N, x, N, labels};
    zonal__probe_options options = {
        .dim = 1, .classes = 2, .l2 = &l2, .l2_count = 1, .tolerance = 1e-12};
    zonal__probe probe;
    for (int i = 0; i < N; i++) {
        x[i] = i % 2 ? 1 : -1;
        labels[i] = i < 80 ? i % 2 : !(i % 2); /* 80 of 100 agree */
    }
    for (int i = 0; i < 200; i++) {
        double w = (low + high) / 2, s = 1 / (1 + exp(-2 * w));
        if (2 * (.8 - s) - 2 * l2 * w > 0)
            low = w;
        else
            high = w;
    }
    if (!CHECK_OK(zonal__probe_fit(&options, &train, &probe))) return;
    /* The objective's curvature is at least l2, so the place is off by tolerance/l2 at most. */
    CHECK_CLOSE(probe.parameters[0], -low, 1e-10);
    CHECK_CLOSE(probe.parameters[2], low, 1e-10);
    CHECK_CLOSE(probe.parameters[1], 0, 1e-10);
    CHECK_CLOSE(probe.loss, .8 * log1p(exp(-2 * low)) + .2 * log1p(exp(2 * low)) + l2 * low * low,
                1e-13);
    CHECK(probe.converged && probe.gradient <= 1e-12 && isnan(probe.held_out_accuracy));
    zonal__probe_fini(&probe);
    zonal__probe_fini(&probe);
}

/* A standardised fit is the same whatever the features' units: the classifier gives equal scores
 * for features that were shifted and stretched, up to their rounding in fp32. */
static void test_probe_standardised(void) {
    enum { N = 300, DIM = 5, CLASSES = 3 };
    static float x[N * DIM], moved[N * DIM];
    static int32_t labels[N];
    double l2 = .01;
    zonal__labelled plain = {N, x, N, labels}, other = {N, moved, N, labels};
    zonal__probe_options options = {.dim = DIM,
                                    .classes = CLASSES,
                                    .l2 = &l2,
                                    .l2_count = 1,
                                    .standardise = 1,
                                    .tolerance = 1e-8};
    zonal__probe first, second;
    make_blobs(N, DIM, CLASSES, .5, 3, x, labels);
    for (int i = 0; i < N * DIM; i++) {
        if (i % DIM == 4) x[i] = 7; /* constant: says nothing */
        moved[i] = (float)((1 + i % DIM) * 10.0 * (double)x[i] - 3);
    }
    if (CHECK_OK(zonal__probe_fit(&options, &plain, &first)) &&
        CHECK_OK(zonal__probe_fit(&options, &other, &second))) {
        CHECK_CLOSE(second.loss, first.loss, 1e-6);
        for (int c = 0; c < CLASSES; c++) {
            const double *a = first.parameters + c * (DIM + 1);
            const double *b = second.parameters + c * (DIM + 1);
            for (int j = 0; j < DIM; j++) CHECK_CLOSE((1 + j) * 10 * b[j], a[j], 1e-4);
            CHECK(a[4] == 0);
        }
        zonal__probe_fini(&second);
    }
    zonal__probe_fini(&first);
}

/* The choice of l2: features of noise alone but for one that tells the class now and then. With
 * hardly any penalty the many weights learn the noise; the choice must be at least as good on a
 * test set as the worst of the grid, and the same each time. */
static void test_probe_choice(void) {
    enum { N = 120, DIM = 60, CLASSES = 3 };
    static float x[N * DIM], q[1000 * DIM];
    static int32_t labels[N], expected[1000];
    static const double grid[] = {1e-8, 1e-1};
    zonal__labelled train = {N, x, N, labels}, test = {1000, q, 1000, expected};
    zonal__probe_options options = {.dim = DIM, .classes = CLASSES, .l2 = grid, .l2_count = 2};
    zonal__probe chosen, again, weak;
    zonal__scores scores, weak_scores;
    make_blobs(N, DIM, CLASSES, .5, 4, x, labels);
    make_blobs(1000, DIM, CLASSES, .5, 5, q, expected);
    options.held_out = .3;
    if (!CHECK_OK(zonal__probe_fit(&options, &train, &chosen))) return;
    CHECK_OK(zonal__probe_fit(&options, &train, &again));
    CHECK(memcmp(chosen.parameters, again.parameters,
                 CLASSES * (DIM + 1) * sizeof *chosen.parameters) == 0);
    CHECK(chosen.held_out_accuracy > 1.0 / CLASSES && chosen.held_out_accuracy <= 1);
    options.l2_count = 1;
    CHECK_OK(zonal__probe_fit(&options, &train, &weak));
    CHECK_OK(zonal__probe_test(&chosen, &test, &scores));
    CHECK_OK(zonal__probe_test(&weak, &test, &weak_scores));
    CHECK_MSG(chosen.l2 == .1 && scores.top1 > weak_scores.top1, "l2 = %g: %lld and %lld right",
              chosen.l2, (long long)scores.top1, (long long)weak_scores.top1);
    zonal__scores_fini(&scores);
    zonal__scores_fini(&weak_scores);
    zonal__probe_fini(&chosen);
    zonal__probe_fini(&again);
    zonal__probe_fini(&weak);
}

static void test_probe_refused(void) {
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int32_t labels[4] = {0, 1, 0, 1};
    double l2 = -1, share;
    zonal__labelled train = {4, x, 4, labels};
    zonal__probe_options options = {.dim = 2, .classes = 3};
    zonal__probe probe;
    CHECK_FAILS(zonal__probe_fit(&options, &train, &probe), ZONAL_ARGUMENT,
                "class 2 has no training samples");
    options.classes = 1;
    CHECK_FAILS(zonal__probe_fit(&options, &train, &probe), ZONAL_ARGUMENT, "at least 2 classes");
    options.classes = 2;
    CHECK_FAILS(zonal__probe_fit(&options, &train, &probe), ZONAL_ARGUMENT,
                "4 training samples are too few to hold some out for the choice of l2");
    options.held_out = .5;
    CHECK_FAILS(zonal__probe_fit(&options, &train, &probe), ZONAL_ARGUMENT, "below one half");
    options.held_out = 0, options.l2 = &l2, options.l2_count = 1;
    CHECK_FAILS(zonal__probe_fit(&options, &train, &probe), ZONAL_ARGUMENT,
                "l2 must be finite and not negative, got -1");
    l2 = .1;
    train.label_count = 5;
    CHECK_FAILS(zonal__probe_fit(&options, &train, &probe), ZONAL_SHAPE,
                "4 rows of features but 5 labels");
    train.label_count = 4;
    options.progress = (zonal__eval_progress){stop_at_once, &share};
    CHECK_FAILS(zonal__probe_fit(&options, &train, &probe), ZONAL_CANCELLED, "stopped");
    x[3] = NAN;
    CHECK_FAILS(zonal__probe_fit(&options, &train, &probe), ZONAL_NUMERIC,
                "row 1 of the training set is not finite");
    CHECK(probe.parameters == NULL);
}

/* Whole-batch SGD goes to the same place as L-BFGS with l2 = weight decay. */
static void test_probe_sgd(void) {
    enum { N = 200, DIM = 4, CLASSES = 3, STEPS = 4000 };
    static float x[N * DIM];
    static int32_t labels[N];
    double l2 = .02, loss = 0;
    zonal__labelled set = {N, x, N, labels};
    zonal__probe_options fit = {
        .dim = DIM, .classes = CLASSES, .l2 = &l2, .l2_count = 1, .tolerance = 1e-10};
    zonal__probe_sgd_options options = {
        .dim = DIM, .classes = CLASSES, .steps = STEPS, .rate = .5, .weight_decay = l2};
    zonal__probe_sgd *sgd;
    zonal__probe exact, probe;
    zonal__scores scores;
    make_blobs(N, DIM, CLASSES, .5, 6, x, labels);
    if (!CHECK_OK(zonal__probe_fit(&fit, &set, &exact))) return;
    if (CHECK_OK(zonal__probe_sgd_create(&options, &sgd))) {
        for (int i = 0; i < STEPS; i++) {
            if (!CHECK_OK(zonal__probe_sgd_step(sgd, &set, &loss))) break;
            if (i == 0) CHECK_CLOSE(loss, log(CLASSES), 1e-12);
        }
        CHECK_OK(zonal__probe_sgd_probe(sgd, &probe));
        CHECK_ARRAY(CLASSES * (DIM + 1), probe.parameters, exact.parameters, 1e-6);
        CHECK_OK(zonal__probe_test(&probe, &set, &scores));
        CHECK(zonal__scores_accuracy(&scores) > .6);
        zonal__scores_fini(&scores);
        zonal__probe_fini(&probe);
        x[1] = NAN;
        CHECK_FAILS(zonal__probe_sgd_step(sgd, &set, &loss), ZONAL_NUMERIC,
                    "row 0 of the batch is not finite");
        zonal__probe_sgd_destroy(sgd);
    }
    zonal__probe_fini(&exact);
    options.momentum = 1;
    CHECK_FAILS(zonal__probe_sgd_create(&options, &sgd), ZONAL_ARGUMENT, "momentum");
    zonal__probe_sgd_destroy(NULL);
}

/* One feature that is always 1 and two classes, all samples of class 0: with weights w and -w and
 * as many biases the gradient of each is p - 1 or 1 - p, p = 1/(1 + exp(-4 w)), which is iterated
 * here with the rates 0.3, 0.03 and 0.003. */
static void test_probe_sgd_steps_down(void) {
    enum { STEPS = 50 };
    float one = 1;
    int32_t label = 0;
    const zonal__labelled set = {1, &one, 1, &label};
    const zonal__probe_sgd_options options = {
        .dim = 1, .classes = 2, .steps = STEPS, .rate = .3, .steps_down = 1};
    double w = 0, momentum = 0, loss;
    zonal__probe_sgd *sgd;
    zonal__probe probe;
    if (!CHECK_OK(zonal__probe_sgd_create(&options, &sgd))) return;
    for (int i = 0; i < STEPS; i++) {
        CHECK_OK(zonal__probe_sgd_step(sgd, &set, &loss));
        momentum = .9 * momentum + 1 / (1 + exp(-4 * w)) - 1;
        w -= (i < 30 ? .3 : i < 40 ? .03 : .003) * momentum;
        CHECK_OK(zonal__probe_sgd_probe(sgd, &probe));
        CHECK_ARRAY(4, probe.parameters, ((double[]){w, w, -w, -w}), 1e-12);
        zonal__probe_fini(&probe);
    }
    zonal__probe_sgd_destroy(sgd);
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { SMALL = 24, SMALL_DIM = 3 };
static float small[SMALL * SMALL_DIM];
static int32_t small_labels[SMALL];
static const zonal__labelled small_set = {SMALL, small, SMALL, small_labels};

static zonal_status run_knn(void *context) {
    zonal__knn_options options = {.dim = SMALL_DIM, .classes = 2, .threads = 2};
    zonal__scores scores;
    (void)context;
    ZONAL_TRY(zonal__knn_run(&options, &small_set, &small_set, &scores));
    zonal__scores_fini(&scores);
    return ZONAL_OK;
}

static zonal_status run_retrieval(void *context) {
    zonal__retrieval_options options = {
        .views = 2, .samples = SMALL / 2, .dim = SMALL_DIM, .batch = 4, .threads = 2};
    zonal__retrieval result;
    zonal__retrieval_hit hits[3];
    (void)context;
    ZONAL_TRY(zonal__retrieval_run(&options, small, &result));
    return zonal__retrieval_top(&options, small, 0, 1, 3, hits);
}

static zonal_status run_probe(void *context) {
    static const double l2[] = {.1, .01};
    zonal__probe_options options = {
        .dim = SMALL_DIM, .classes = 2, .l2 = l2, .l2_count = 2, .threads = 2};
    zonal__probe probe;
    zonal__scores scores;
    (void)context;
    ZONAL_TRY(zonal__probe_fit(&options, &small_set, &probe));
    zonal_status status = zonal__probe_test(&probe, &small_set, &scores);
    zonal__probe_fini(&probe);
    if (status == ZONAL_OK) zonal__scores_fini(&scores);
    return status;
}

static zonal_status run_sgd(void *context) {
    zonal__probe_sgd_options options = {.dim = SMALL_DIM, .classes = 2, .steps = 1};
    zonal__probe_sgd *sgd;
    zonal__probe probe;
    (void)context;
    ZONAL_TRY(zonal__probe_sgd_create(&options, &sgd));
    zonal_status status = zonal__probe_sgd_probe(sgd, &probe);
    zonal__probe_fini(&probe);
    zonal__probe_sgd_destroy(sgd);
    return status;
}

static zonal_status run_diagnostics(void *context) {
    zonal_uniformity_options options = {.size = sizeof options, .threads = 1};
    zonal__diagnostics diagnostics;
    (void)context;
    return zonal__diagnostics_run(&options, SMALL, SMALL_DIM, small, small, &diagnostics);
}

static void test_out_of_memory(void) {
    make_blobs(SMALL, SMALL_DIM, 2, 1, 9, small, small_labels);
    test_every_allocation("k-NN", run_knn, NULL);
    test_every_allocation("retrieval", run_retrieval, NULL);
    test_every_allocation("a probe", run_probe, NULL);
    test_every_allocation("a probe by SGD", run_sgd, NULL);
    test_every_allocation("diagnostics", run_diagnostics, NULL);
}

static const test_case tests[] = {{"scores", test_scores},
                                  {"spread", test_spread},
                                  {"diagnostics", test_diagnostics},
                                  {"knn_votes", test_knn_votes},
                                  {"knn_leave_one_out", test_knn_leave_one_out},
                                  {"knn_brute", test_knn_brute},
                                  {"knn_refused", test_knn_refused},
                                  {"retrieval_brute", test_retrieval_brute},
                                  {"retrieval_extremes", test_retrieval_extremes},
                                  {"retrieval_top", test_retrieval_top},
                                  {"retrieval_refused", test_retrieval_refused},
                                  {"lbfgs", test_lbfgs},
                                  {"probe_closed_form", test_probe_closed_form},
                                  {"probe_standardised", test_probe_standardised},
                                  {"probe_choice", test_probe_choice},
                                  {"probe_refused", test_probe_refused},
                                  {"probe_sgd", test_probe_sgd},
                                  {"probe_sgd_steps_down", test_probe_sgd_steps_down},
                                  {"out_of_memory", test_out_of_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
