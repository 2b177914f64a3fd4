#include "uniformity/verdict.h"

#include <math.h>
#include <stdio.h>

#include "core/text.h"
#include "uniformity/null_distribution.h"

static const double DEGREES_PER_RADIAN = 57.29577951308232;

/* "5,000" */
static void with_commas(int64_t n, char out[32]) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
}

/* "p = 0.0034", "p < 1e-300" */
static void p_text(double log10_p, char out[32]) {
    char p[ZONAL__P_TEXT];
    zonal__text_p(log10_p, p);
    if (p[0] == '<')
        snprintf(out, 32, "p < %s", p + 1);
    else
        snprintf(out, 32, "p = %s", p);
}

static const char *degree_meaning(int l) {
    switch (l) {
    case 1:
        return "the points lean to one side";
    case 2:
        return "some axes hold more of the points than others";
    default:
        return "the points gather in clusters";
    }
}

/* The degree whose excess is largest in units of its standard deviation. */
static int strongest_degree(const zonal_uniformity_report *report) {
    int best = 1;
    for (int l = 2; l <= report->degrees; l++)
        if (report->degree[l - 1].excess / report->degree[l - 1].sd >
            report->degree[best - 1].excess / report->degree[best - 1].sd)
            best = l;
    return best;
}

/* The angle around the mean direction, in degrees: its cosine is the mean projection on it. */
static double cone_angle(const zonal_uniformity_report *report) {
    double resultant = report->mean_resultant;
    return acos(resultant < 1 ? resultant : 1) * DEGREES_PER_RADIAN;
}

/* Returns 0, and writes nothing, where the points have not collapsed. */
static int say_collapse(const char *n, zonal_uniformity_report *report) {
    char *out = report->verdict;
    const size_t size = sizeof report->verdict;
    if (report->collapse == ZONAL_COLLAPSE_NONE) return 0;
    if (report->collapse == ZONAL_COLLAPSE_TO_DIRECTIONS)
        snprintf(out, size,
                 "Collapsed to about %.0f directions of %lld (effective rank %.1f; uniform points "
                 "would show %.1f).",
                 report->effective_rank, (long long)report->d, report->effective_rank,
                 report->effective_rank_expected);
    else if (report->mean_resultant > 1 - 1e-6)
        snprintf(out, size,
                 "Collapsed to a point: all %s points are the same direction to 6 digits.", n);
    else
        snprintf(out, size,
                 "Collapsed almost to a point: the points lie about %.0f degrees around one "
                 "direction (mean cosine %.3f; uniform points would show 0).",
                 cone_angle(report), report->mean_cosine);
    return 1;
}

/* The same for points that are far from uniform in a way that has a name. */
static int say_shape(zonal_uniformity_report *report) {
    char *out = report->verdict;
    const size_t size = sizeof report->verdict;
    if (report->mean_resultant > 0.5)
        snprintf(out, size,
                 "Not uniform: a cone. The points lie about %.0f degrees around one direction "
                 "(mean resultant length %.3f; uniform points would show %.3f).",
                 cone_angle(report), report->mean_resultant, report->mean_resultant_expected);
    else if (report->effective_rank < 0.5 * report->effective_rank_expected)
        snprintf(out, size,
                 "Not uniform: the points fill about %.0f directions of %lld (effective rank %.1f; "
                 "uniform points would show %.1f).",
                 report->effective_rank, (long long)report->d, report->effective_rank,
                 report->effective_rank_expected);
    else
        return 0;
    return 1;
}

void zonal__verdict(double level, zonal_uniformity_report *report) {
    const zonal_uniformity_test *upper = NULL, *lower = NULL;
    double upper_log10 = 0, lower_log10 = 0; /* of the smallest p-values on either side */
    int counted = 0;
    char n[32], p[32];
    with_commas(report->n, n);
    for (int k = 0; k < report->tests; k++) {
        /* The limit distribution first: Monte Carlo cannot show less than one in its replicates. */
        const zonal_uniformity_test *test = &report->test[k];
        int limit = !isnan(test->p_asymptotic);
        if (!limit && isnan(test->p_monte_carlo)) continue;
        double up = limit ? test->log10_p : log10(test->p_monte_carlo);
        double down = log10(limit ? test->p_asymptotic_lower : test->p_monte_carlo_lower);
        counted++;
        if (!upper || up < upper_log10) upper = test, upper_log10 = up;
        if (!lower || down < lower_log10) lower = test, lower_log10 = down;
    }
    double share = counted ? level / counted : 0; /* Bonferroni: the tests look at one batch */
    int rejected = upper && upper_log10 < log10(share);
    if (say_collapse(n, report) || (rejected && say_shape(report))) return;
    if (rejected) {
        p_text(upper_log10, p);
        snprintf(report->verdict, sizeof report->verdict,
                 "Not uniform: %s says %s. Degree %d stands out: %s.", upper->name, p,
                 strongest_degree(report), degree_meaning(strongest_degree(report)));
    } else if (lower && lower_log10 < log10(share) && report->n >= ZONAL__FEW_POINTS) {
        p_text(lower_log10, p);
        snprintf(report->verdict, sizeof report->verdict,
                 "More even than independent uniform points would be (%s: %s on the lower "
                 "side): the points repel each other, as training for uniformity makes them.",
                 lower->name, p);
    } else {
        snprintf(report->verdict, sizeof report->verdict, "Uniform as far as %s points can tell.",
                 n);
    }
}
