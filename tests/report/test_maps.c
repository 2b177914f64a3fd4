/* Maps of embeddings: src/report/pca.h, tsne.h, embedding.h. */
#include <stdlib.h>

#include "core/memory.h"
#include "core/random.h"
#include "failing_alloc.h"
#include "report/embedding.h"
#include "report/pca.h"
#include "report/tsne.h"
#include "test.h"

enum { POINTS = 40, DIM = 7 };

/* Two orthogonal unit vectors of R^DIM. */
static void draw_plane(double plane[2][DIM]) {
    const zonal__random random = {.seed = test_seed};
    double along = 0, square = 0;
    for (int k = 0; k < 2; k++) zonal__random_direction(&random, (uint64_t)k, DIM, plane[k]);
    for (int k = 0; k < DIM; k++) along += plane[0][k] * plane[1][k];
    for (int k = 0; k < DIM; k++) plane[1][k] -= along * plane[0][k];
    for (int k = 0; k < DIM; k++) square += plane[1][k] * plane[1][k];
    for (int k = 0; k < DIM; k++) plane[1][k] /= sqrt(square);
}

/* An ellipse with these half axes, somewhere in R^DIM. */
static void draw_ellipse(double a, double b, double x[POINTS][DIM]) {
    double plane[2][DIM];
    draw_plane(plane);
    for (int i = 0; i < POINTS; i++) {
        double angle = 2 * 3.14159265358979323846 * i / POINTS;
        for (int k = 0; k < DIM; k++)
            x[i][k] = .3 * k + a * cos(angle) * plane[0][k] + b * sin(angle) * plane[1][k];
    }
}

/* ---- principal components -------------------------------------------------------------------- */

/* Its variances along the axes are a^2/2 and b^2/2, and the coordinates are known. */
static void test_ellipse(void) {
    double x[POINTS][DIM], scores[POINTS][2], share[2];
    draw_ellipse(3, 1, x);
    if (!CHECK_OK(zonal__pca(POINTS, DIM, x[0], 2, scores[0], share))) return;
    CHECK_CLOSE(share[0], .9, 1e-12);
    CHECK_CLOSE(share[1], .1, 1e-12);
    for (int i = 0; i < POINTS; i++) {
        double angle = 2 * 3.14159265358979323846 * i / POINTS;
        CHECK_CLOSE(fabs(scores[i][0]), fabs(3 * cos(angle)), 1e-10);
        CHECK_CLOSE(fabs(scores[i][1]), fabs(sin(angle)), 1e-10);
    }
}

/* A circle has no axes of its own, but any two that are orthogonal show it as a circle. */
static void test_circle(void) {
    double x[POINTS][DIM], scores[POINTS][2], share[2];
    draw_ellipse(2, 2, x);
    if (!CHECK_OK(zonal__pca(POINTS, DIM, x[0], 2, scores[0], share))) return;
    CHECK_CLOSE(share[0] + share[1], 1, 1e-12);
    for (int i = 0; i < POINTS; i++) CHECK_CLOSE(hypot(scores[i][0], scores[i][1]), 2, 1e-10);
}

static void test_one_point(void) {
    double x[POINTS][DIM], scores[POINTS][2], share[2];
    draw_ellipse(0, 0, x);
    CHECK_FAILS(zonal__pca(POINTS, DIM, x[0], 2, scores[0], share), ZONAL_NUMERIC, "the same");
}

/* Rows that are multiples of orthogonal vectors have their lengths as singular values; more rows
 * than columns, and the other way round. */
static void test_singular_values(void) {
    static const double length[] = {5, 2, .5};
    double plane[2][DIM], tall[DIM][3], wide[2][DIM], value[3];
    draw_plane(plane);
    for (int k = 0; k < DIM; k++) {
        tall[k][0] = length[1] * plane[0][k];
        tall[k][1] = length[0] * plane[1][k];
        tall[k][2] = 0;
        wide[0][k] = length[2] * plane[0][k];
        wide[1][k] = length[1] * plane[1][k];
    }
    if (CHECK_OK(zonal__singular_values(DIM, 3, tall[0], value)))
        CHECK(fabs(value[0] - 5) < 1e-12 && fabs(value[1] - 2) < 1e-12 && value[2] < 1e-7);
    if (CHECK_OK(zonal__singular_values(2, DIM, wide[0], value)))
        CHECK(fabs(value[0] - 2) < 1e-12 && fabs(value[1] - .5) < 1e-12);
}

/* ---- t-SNE ----------------------------------------------------------------------------------- */

/* Points that are all equally far from each other take each other for neighbours alike. */
static void test_simplex(void) {
    enum { N = 9 };
    double x[N][N] = {{0}}, p[N * N], sum = 0;
    for (int i = 0; i < N; i++) x[i][i] = 1;
    if (!CHECK_OK(zonal__tsne_chances(N, N, x[0], 5, p))) return;
    for (int i = 0; i < N * N; i++) {
        CHECK_CLOSE(p[i], i % (N + 1) == 0 ? 0 : 1. / (N * (N - 1)), 1e-12);
        sum += p[i];
    }
    CHECK_CLOSE(sum, 1, 1e-12);
}

static void test_gradient(void) {
    enum { N = 12 };
    const zonal__random random = {.seed = test_seed};
    double x[N][DIM], y[N][2], p[N * N], scratch[N * N], gradient[N][2];
    for (int i = 0; i < N; i++) {
        zonal__random_normal(&random, (uint64_t)i, DIM, x[i]);
        zonal__random_normal(&random, (uint64_t)(100 + i), 2, y[i]);
    }
    if (!CHECK_OK(zonal__tsne_chances(N, DIM, x[0], 3, p))) return;
    zonal__tsne_loss(N, p, y[0], scratch, gradient[0]);
    for (int i = 0; i < 2 * N; i++) {
        const double h = 1e-5;
        double up, down, *at = &y[i / 2][i % 2];
        *at += h;
        up = zonal__tsne_loss(N, p, y[0], scratch, NULL);
        *at -= 2 * h;
        down = zonal__tsne_loss(N, p, y[0], scratch, NULL);
        *at += h;
        CHECK_CLOSE((up - down) / (2 * h), gradient[i / 2][i % 2], 1e-8);
    }
}

/* Three groups, each within a small ball: every point ends nearest to one of its own group, the
 * loss falls, and a second time gives the same bits. */
static void test_groups(void) {
    enum { N = 60 };
    static double x[N][DIM], y[2][N][2], p[N * N], scratch[N * N];
    const zonal__random random = {.seed = test_seed};
    double share[2], before;
    for (int i = 0; i < N; i++) {
        zonal__random_normal(&random, (uint64_t)i, DIM, x[i]);
        for (int k = 0; k < DIM; k++) x[i][k] = .1 * x[i][k] + (k == i % 3);
    }
    if (!CHECK_OK(zonal__pca(N, DIM, x[0], 2, y[0][0], share))) return;
    memcpy(y[1], y[0], sizeof y[1]);
    CHECK_OK(zonal__tsne_chances(N, DIM, x[0], 10, p));
    before = zonal__tsne_loss(N, p, y[0][0], scratch, NULL);
    for (int k = 0; k < 2; k++) CHECK_OK(zonal__tsne(N, DIM, x[0], 10, y[k][0]));
    CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
    CHECK(zonal__tsne_loss(N, p, y[0][0], scratch, NULL) < .5 * before);
    for (int i = 0; i < N; i++) {
        int nearest = -1;
        double least = INFINITY;
        for (int j = 0; j < N; j++) {
            double distance = hypot(y[0][i][0] - y[0][j][0], y[0][i][1] - y[0][j][1]);
            if (j == i || !(distance < least)) continue;
            nearest = j;
            least = distance;
        }
        CHECK_MSG(nearest % 3 == i % 3, "point %d lies beside %d", i, nearest);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

enum { IMAGES = 30 };

typedef struct sample {
    zonal__source source;
    int32_t labels[IMAGES];
    float features[IMAGES][4], projections[IMAGES][3];
} sample;

static void draw_sample(sample *s) {
    *s = (sample){.source = {.count = IMAGES, .labels = s->labels, .classes = 2}};
    for (int i = 0; i < IMAGES; i++) {
        s->labels[i] = i % 2;
        s->features[i][i % 2] = 5;
        s->features[i][2] = .1f * (float)i;
        for (int k = 0; k < 3; k++) s->projections[i][k] = k == i % 3 ? 2 : 0;
    }
}

static zonal_status fill(void *context) {
    sample *s = context;
    zonal__report_embedding e = {0};
    zonal_status status =
        zonal__report_embedding_fill(&e, &s->source, 100, 4, s->features[0], 3, s->projections[0]);
    zonal__report_embedding_fini(&e);
    return status;
}

static void test_embedding(void) {
    static sample s;
    zonal__report_embedding e = {0};
    draw_sample(&s);
    if (CHECK_OK(zonal__report_embedding_fill(&e, &s.source, 100, 4, s.features[0], 3,
                                              s.projections[0]))) {
        CHECK(e.count == IMAGES && e.all == 100 && e.classes == 2 && e.k == 20);
        CHECK(strcmp(e.class_names[1], "1") == 0);
        /* The classes lie apart, so each finds its own kind: 14 of the 20 nearest. */
        CHECK(e.scores.count == IMAGES && e.scores.top1 == IMAGES);
        /* Unit rows along three axes, as many on each: all singular values are sqrt(1/3). */
        CHECK(e.projections.count == 3 && e.projections.dim == 3);
        for (int k = 0; k < 3; k++) CHECK_CLOSE(e.projections.value[k], sqrt(1. / 3), 1e-12);
        CHECK(e.projections.uniform && !e.features.uniform && e.pca && e.tsne);
    }
    zonal__report_embedding_fini(&e);
    memset(s.features, 0, sizeof s.features);
    for (int i = 0; i < IMAGES; i++) s.features[i][1] = 2; /* a collapsed network */
    if (CHECK_OK(zonal__report_embedding_fill(&e, &s.source, 100, 4, s.features[0], 3,
                                              s.projections[0])))
        CHECK(!e.pca && !e.tsne && strstr(e.missing, "the same") && e.features.value);
    zonal__report_embedding_fini(&e);
    draw_sample(&s);
    test_every_allocation("an embedding", fill, &s);
}

static const test_case tests[] = {{"ellipse", test_ellipse},
                                  {"circle", test_circle},
                                  {"one point", test_one_point},
                                  {"singular values", test_singular_values},
                                  {"simplex", test_simplex},
                                  {"gradient", test_gradient},
                                  {"groups", test_groups},
                                  {"embedding", test_embedding},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
