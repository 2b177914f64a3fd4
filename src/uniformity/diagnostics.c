#include "uniformity/diagnostics.h"

#include <math.h>

static double positive(double x) {
    return x > 0 ? x : 0;
}

double zonal__effective_rank(int64_t d, const double *eigenvalues) {
    double total = 0, entropy = 0;
    for (int64_t k = 0; k < d; k++) total += sqrt(positive(eigenvalues[k]));
    for (int64_t k = 0; k < d; k++) {
        double share = sqrt(positive(eigenvalues[k])) / total;
        if (share > 0) entropy -= share * log(share);
    }
    return exp(entropy);
}

double zonal__effective_rank_expected(int64_t n, int64_t d) {
    /* Singular values s = sqrt(lambda) of the smaller side: with gamma = small/large, lambda has
     * density sqrt((hi-x)(x-lo))/(2 pi gamma x) on [lo, hi] = (1 -+ sqrt gamma)^2. The substitution
     * x = 1 + gamma + 2 sqrt(gamma) cos(theta) makes the integrand smooth; the midpoint rule does.
     */
    double small = (double)(n < d ? n : d), large = (double)(n < d ? d : n);
    double gamma = small / large, mean = 0, mean_log = 0, mass = 0;
    enum { POINTS = 4000 };
    for (int i = 0; i < POINTS; i++) {
        double theta = 3.141592653589793 * (i + 0.5) / POINTS;
        double x = 1 + gamma + 2 * sqrt(gamma) * cos(theta);
        double density = sin(theta) * sin(theta) / x, s = sqrt(x);
        mass += density;
        mean += density * s;
        mean_log += density * s * log(s);
    }
    mean /= mass;
    mean_log /= mass;
    return small * mean * exp(-mean_log / mean);
}

double zonal__participation(int64_t d, const double *eigenvalues) {
    double total = 0, square = 0;
    for (int64_t k = 0; k < d; k++) {
        total += positive(eigenvalues[k]);
        square += positive(eigenvalues[k]) * positive(eigenvalues[k]);
    }
    return total * total / square;
}

double zonal__participation_expected(int64_t n, int64_t d) {
    return 1 / (1 / (double)d + (1 - 1 / (double)d) / (double)n);
}

zonal_collapse zonal__collapse(double mean_cosine, double rank, double expected_rank,
                               double cosine_limit, double rank_limit) {
    if (!(mean_cosine <= cosine_limit)) return ZONAL_COLLAPSE_TO_POINT;
    if (!(rank >= rank_limit * expected_rank)) return ZONAL_COLLAPSE_TO_DIRECTIONS;
    return ZONAL_COLLAPSE_NONE;
}
