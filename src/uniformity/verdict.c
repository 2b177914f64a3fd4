#include "uniformity/verdict.h"

#include <math.h>
#include <stdio.h>

#include "core/text.h"

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

void zonal__verdict(double level, zonal_uniformity_report *report) {
    const zonal_uniformity_test *upper = NULL, *lower = NULL;
    double upper_log10 = 0, lower_log10 = 0; /* of the smallest p-values on either side */
    int counted = 0;
    char n[32], p[32];
    with_commas(report->n, n);
    for (int k = 0; k < report->tests; k++) {
        /* The limit law first: Monte Carlo cannot show less than one in its replicates. */
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
    double resultant = report->mean_resultant;
    if (rejected && resultant > 1 - 1e-6) {
        snprintf(report->verdict, sizeof report->verdict,
                 "Collapsed to a point: all %s points are the same direction to 6 digits.", n);
    } else if (rejected && resultant > 0.5) {
        /* cos of the angle that holds the mean projection on the mean direction */
        snprintf(report->verdict, sizeof report->verdict,
                 "Collapsed into a cone: the points lie about %.0f degrees around one direction "
                 "(mean resultant length %.3f; uniform points would show %.3f).",
                 acos(resultant) * DEGREES_PER_RADIAN, resultant, report->mean_resultant_expected);
    } else if (rejected && report->directions < 0.5 * report->directions_expected) {
        snprintf(report->verdict, sizeof report->verdict,
                 "Collapsed to about %.0f directions of %lld (uniform points would fill %.0f).",
                 report->directions, (long long)report->d, report->directions_expected);
    } else if (rejected) {
        p_text(upper_log10, p);
        snprintf(report->verdict, sizeof report->verdict,
                 "Not uniform: %s says %s. Degree %d stands out: %s.", upper->name, p,
                 strongest_degree(report), degree_meaning(strongest_degree(report)));
    } else if (lower && lower_log10 < log10(share)) {
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
