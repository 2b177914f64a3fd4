#include "report/tsne.h"

#include <math.h>

#include "core/memory.h"

enum { EARLY = 250, ITERATIONS = 750 }; /* with p exaggerated, and in all */
static const double exaggeration = 12;

static double square_distance(int64_t dim, const double *a, const double *b) {
    double sum = 0;
    for (int64_t k = 0; k < dim; k++) sum += (a[k] - b[k]) * (a[k] - b[k]);
    return sum;
}

/* exp(-beta d) for each j but i, made to add up to 1; returns the entropy. */
static double fill_row(int64_t n, int64_t i, const double *distance, double least, double beta,
                       double *row) {
    double sum = 0, mean = 0;
    for (int64_t j = 0; j < n; j++) {
        row[j] = j == i ? 0 : exp(-beta * (distance[j] - least));
        sum += row[j];
        mean += row[j] * (distance[j] - least);
    }
    for (int64_t j = 0; j < n; j++) row[j] /= sum;
    return log(sum) + beta * mean / sum;
}

/* Finds the width by halving: the entropy falls as beta grows. */
static void choose_row(int64_t n, int64_t i, double perplexity, double *distance, double *row) {
    double low = 0, high = INFINITY, beta, least = INFINITY, mean = 0;
    for (int64_t j = 0; j < n; j++) {
        if (j == i) continue;
        least = fmin(least, distance[j]);
        mean += distance[j] / (double)(n - 1);
    }
    beta = mean > least ? 1 / (mean - least) : 1;
    for (int k = 0; k < 60; k++) {
        double entropy = fill_row(n, i, distance, least, beta, row);
        if (fabs(entropy - log(perplexity)) < 1e-6) return;
        if (entropy > log(perplexity))
            low = beta;
        else
            high = beta;
        beta = isinf(high) ? 2 * beta : (low + high) / 2;
    }
}

zonal_status zonal__tsne_chances(int64_t n, int64_t dim, const double *x, double perplexity,
                                 double *p) {
    double *distance;
    ZONAL_TRY(ZONAL_NEW(&distance, n, "a map"));
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++)
            distance[j] = square_distance(dim, x + i * dim, x + j * dim);
        choose_row(n, i, perplexity, distance, p + i * n);
    }
    zonal__free(distance);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) {
            double both = (p[i * n + j] + p[j * n + i]) / (2 * (double)n);
            p[i * n + j] = p[j * n + i] = both;
        }
    return ZONAL_OK;
}

/* 1/(1 + |y_i - y_j|^2) of each pair in "near"; returns their sum over all i != j. */
static double fill_near(int64_t n, const double *y, double *near) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        near[i * n + i] = 0;
        for (int64_t j = 0; j < i; j++) {
            double across = y[2 * i] - y[2 * j], up = y[2 * i + 1] - y[2 * j + 1];
            near[i * n + j] = near[j * n + i] = 1 / (1 + across * across + up * up);
            sum += 2 * near[i * n + j];
        }
    }
    return sum;
}

/* Of KL(factor p || q), as far as it depends on y: 4 sum_j (factor p - q) (y_i - y_j) near. */
static void find_gradient(int64_t n, const double *p, double factor, const double *y,
                          const double *near, double sum, double *gradient) {
    for (int64_t i = 0; i < n; i++) {
        double across = 0, up = 0;
        for (int64_t j = 0; j < n; j++) {
            double pull = (factor * p[i * n + j] - near[i * n + j] / sum) * near[i * n + j];
            across += pull * (y[2 * i] - y[2 * j]);
            up += pull * (y[2 * i + 1] - y[2 * j + 1]);
        }
        gradient[2 * i] = 4 * across;
        gradient[2 * i + 1] = 4 * up;
    }
}

double zonal__tsne_loss(int64_t n, const double *p, const double *y, double *scratch,
                        double *gradient) {
    double sum = fill_near(n, y, scratch), loss = 0;
    for (int64_t i = 0; i < n * n; i++)
        if (p[i] > 0) loss += p[i] * log(p[i] / (scratch[i] / sum));
    if (gradient) find_gradient(n, p, 1, y, scratch, sum, gradient);
    return loss;
}

/* ---- the descent ----------------------------------------------------------------------------- */

/* Around 0 and small: at first the points must be able to pass each other. */
static void prepare(int64_t n, double *y) {
    double mean[2] = {0, 0}, square = 0;
    for (int64_t i = 0; i < 2 * n; i++) mean[i % 2] += y[i] / (double)n;
    for (int64_t i = 0; i < 2 * n; i++) {
        y[i] -= mean[i % 2];
        if (i % 2 == 0) square += y[i] * y[i] / (double)n;
    }
    for (int64_t i = 0; i < 2 * n && square > 0; i++) y[i] *= 1e-4 / sqrt(square);
}

/* memory: [n][n] p, [n][n] near, then [n][2] each of gradient, velocity and gain. */
static void descend(int64_t n, double *memory, double *y) {
    const double rate = fmax((double)n / exaggeration, 5);
    double *p = memory, *near = p + n * n, *gradient = near + n * n, *velocity = gradient + 2 * n,
           *gain = velocity + 2 * n;
    for (int64_t i = 0; i < 2 * n; i++) gain[i] = 1;
    for (int step = 0; step < ITERATIONS; step++) {
        double momentum = step < EARLY ? .5 : .8;
        double sum = fill_near(n, y, near);
        find_gradient(n, p, step < EARLY ? exaggeration : 1, y, near, sum, gradient);
        for (int64_t i = 0; i < 2 * n; i++) {
            int onwards = gradient[i] * velocity[i] < 0;
            gain[i] = fmax(onwards ? gain[i] + .2 : gain[i] * .8, .01);
            velocity[i] = momentum * velocity[i] - rate * gain[i] * gradient[i];
            y[i] += velocity[i];
        }
    }
}

zonal_status zonal__tsne(int64_t n, int64_t dim, const double *x, double perplexity, double *y) {
    double *memory;
    zonal_status status;
    if (perplexity == 0) perplexity = 30;
    perplexity = fmin(perplexity, (double)(n - 1) / 3);
    ZONAL_TRY(ZONAL_NEW(&memory, 2 * n * n + 6 * n, "a map"));
    status = zonal__tsne_chances(n, dim, x, perplexity, memory);
    if (status == ZONAL_OK) {
        prepare(n, y);
        descend(n, memory, y);
    }
    zonal__free(memory);
    return status;
}
