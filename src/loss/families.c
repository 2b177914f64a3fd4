/*
 * The kernel families and the methods made of them. To add a family: its functions here with its
 * record in the table at the end, and a value of zonal_family with its line in the table of
 * zonal/kernel.h.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"
#include "loss/family.h"
#include "loss/induced.h"
#include "loss/log_profile.h"
#include "loss/options.h"
#include "loss/sliced.h"
#include "math/harmonics.h"

enum {
    MAX_BAND = 64,
    CHORDAL_DEGREES =
        4000 /* its spectrum falls like a power: cut here, the distribution adds the rest */
};

/* ---- heat: w_l = exp(-t L_l) ------------------------------------------------------------------
 */

static zonal_number heat_initial(int64_t dim, zonal_discrepancy discrepancy) {
    (void)dim;
    return (zonal_number){discrepancy == ZONAL_DISCREPANCY_KL ? 2 : 5, -1};
}

static long double heat_ratio(const zonal_kernel *kernel, int64_t l) {
    return expl(-(long double)kernel->parameter * (long double)(2 * l + kernel->dim - 1));
}

static zonal_status endless_build(zonal_kernel *kernel) {
    return zonal__spectrum_chain(kernel, ZONAL__SPECTRUM_DEGREES);
}

/* ---- band: w_l = 1 for l <= L -----------------------------------------------------------------
 */

static zonal_number band_initial(int64_t dim, zonal_discrepancy discrepancy) {
    (void)dim, (void)discrepancy;
    return (zonal_number){2, 0};
}

static long double band_ratio(const zonal_kernel *kernel, int64_t l) {
    (void)kernel, (void)l;
    return 1;
}

static zonal_status band_build(zonal_kernel *kernel) {
    return zonal__spectrum_chain(kernel, (int)kernel->parameter);
}

/* ---- induced (induced.c) ----------------------------------------------------------------------
 */

static zonal_number induced_initial(int64_t dim, zonal_discrepancy discrepancy) {
    (void)dim, (void)discrepancy;
    return (zonal_number){1, 1};
}

/* ---- poisson: w_l = r^l -----------------------------------------------------------------------
 */

static zonal_number poisson_initial(int64_t dim, zonal_discrepancy discrepancy) {
    (void)discrepancy;
    return (zonal_number){0.3 * log((double)dim), -1};
}

static long double poisson_ratio(const zonal_kernel *kernel, int64_t l) {
    (void)l;
    return (long double)kernel->parameter;
}

/* phi = (1 + 2r(1-c)/(1-r)^2)^(-d/2), which is exact near c = 1 too. */
static long double poisson_log(const zonal_kernel *kernel, long double c) {
    long double r = kernel->parameter;
    return -(long double)kernel->dim / 2 * log1pl(2 * r * (1 - c) / ((1 - r) * (1 - r)));
}

static long double poisson_derivative(const zonal_kernel *kernel, int order, long double c) {
    long double r = kernel->parameter, q = (1 - r) * (1 - r) + 2 * r * (1 - c);
    long double value = expl(poisson_log(kernel, c));
    for (int k = 0; k < order; k++) value *= ((long double)kernel->dim / 2 + k) * 2 * r / q;
    return value;
}

static long double poisson_deficit(const zonal_kernel *kernel, long double c) {
    return -expm1l(poisson_log(kernel, c));
}

/* ---- chordal: phi = 1 - sqrt((1-c)/2) ---------------------------------------------------------
 */

/* phi(c) = 1 - sqrt((1-c)/2): a_0 = 1 - h_0 and a_l = -N_l h_l with h_l = h_0 (-1/2)_l/(d-1/2)_l,
 * the mean of sqrt((1-c)/2) P_l(c), and h_0 = E/2, half the mean chord. */
static zonal_status chordal_build(zonal_kernel *kernel) {
    int64_t d = kernel->dim;
    long double log_h0 = (long double)(d - 2) * logl(2) + 2 * zonal__log_gamma_half(d) -
                         zonal__log_gamma_half(1) - zonal__log_gamma_half(2 * d - 1);
    long double term = expl(log_h0), tail_start = term;
    int n = 1;
    ZONAL_TRY(ZONAL_NEW(&kernel->a, CHORDAL_DEGREES, "the spectrum"));
    kernel->one_minus_a0 = term;
    kernel->log_a0 = log1pl(-term);
    kernel->a[0] = 1 - term;
    for (int l = 0; l + 1 < CHORDAL_DEGREES; l++) {
        /* N_l h_l; the sign of (-1/2)_l makes a_l positive */
        term *= zonal__multiplicity_ratio(l, d) * fabsl(l - 0.5L) / ((long double)d - 0.5L + l);
        kernel->a[l + 1] = term;
        n = l + 2;
        if (term < 1e-25L * tail_start) break;
    }
    kernel->degrees = n;
    return ZONAL_OK;
}

static long double chordal_derivative(const zonal_kernel *kernel, int order, long double c) {
    (void)kernel;
    long double s = sqrtl((1 - c) / 2); /* half the chord; s' = -1/(4 s) */
    switch (order) {
    case 0:
        return 1 - s;
    case 1:
        return 1 / (4 * s);
    case 2:
        return 1 / (16 * s * s * s);
    default:
        return 3 / (64 * s * s * s * s * s);
    }
}

static long double chordal_deficit(const zonal_kernel *kernel, long double c) {
    (void)kernel;
    return sqrtl((1 - c) / 2);
}

/* ---- spectrum: w_l given ----------------------------------------------------------------------
 */

static zonal_status spectrum_check(const zonal_kernel_spec *spec) {
    int beyond = 0;
    if (!spec->weights)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the spectrum kernel needs the option spectrum (--spectrum W0,W1,...): 2 "
                          "to %d weights, one for each degree",
                          ZONAL__MOST_WEIGHTS);
    if (spec->n_weights < 2 || spec->n_weights > ZONAL__MOST_WEIGHTS)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a spectrum needs 2 to %d weights, got %d",
                          ZONAL__MOST_WEIGHTS, spec->n_weights);
    for (int l = 0; l < spec->n_weights; l++) {
        if (!(spec->weights[l] >= 0 && spec->weights[l] < INFINITY))
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "weight %d of the spectrum is %g; weights must be finite and not "
                              "negative",
                              l, spec->weights[l]);
        beyond |= l > 0 && spec->weights[l] > 0;
    }
    if (!beyond)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the spectrum has no weight beyond degree 0, so every batch looks the "
                          "same to it; make one of the later weights positive");
    return ZONAL_OK;
}

/* ---- the table --------------------------------------------------------------------------------
 */

const zonal__family zonal__families[] = {
    [ZONAL_FAMILY_HEAT] = {.name = "heat",
                           .option = "t",
                           .symbol = "t",
                           .metavar = "NUMBER[/d]",
                           .help = "heat: the time; 5/d unless given (KL: 2/d)",
                           .most = INFINITY,
                           .above = 1,
                           .below = 1,
                           .initial = heat_initial,
                           .method = {"mmd-heat", "ksd-heat", "kl-heat"},
                           .weighted = 1,
                           .build = endless_build,
                           .ratio = heat_ratio,
                           .fit_log = zonal__fit_log_heat},
    [ZONAL_FAMILY_BAND] = {.name = "band",
                           .option = "band",
                           .symbol = "L",
                           .metavar = "L",
                           .help = "band: the highest degree; 2 unless given",
                           .whole = 1,
                           .least = 1,
                           .most = MAX_BAND,
                           .initial = band_initial,
                           .method = {"mmd-band", "ksd-band"},
                           .not_positive = "negative at some cosines",
                           .series = 1,
                           .weighted = 1,
                           .build = band_build,
                           .ratio = band_ratio,
                           .fit_log = zonal__fit_log_band},
    [ZONAL_FAMILY_INDUCED] =
        {.name = "induced",
         .option = "scale",
         .symbol = "s^2",
         .metavar = "NUMBER|d",
         .help = "induced, susreg: s^2; d unless given, 1 is the paper's formula as "
                 "printed",
         .most = 1e4,
         .option_most = ZONAL__SLICED_SCALE,
         .above = 1,
         .initial = induced_initial,
         .method = {"mmd-induced", "ksd-induced", "kl-induced"},
         .build = zonal__induced_build,
         .derivative = zonal__induced_derivative,
         .deficit = zonal__induced_deficit,
         .log = zonal__induced_log},
    [ZONAL_FAMILY_POISSON] = {.name = "poisson",
                              .option = "r",
                              .symbol = "r",
                              .help = "poisson: the radius; 0.3 log(d)/d unless given",
                              .most = 1,
                              .above = 1,
                              .below = 1,
                              .initial = poisson_initial,
                              .method = {"mmd-poisson", "ksd-poisson", "kl-poisson"},
                              .weighted = 1,
                              .build = endless_build,
                              .ratio = poisson_ratio,
                              .derivative = poisson_derivative,
                              .deficit = poisson_deficit,
                              .log = poisson_log},
    [ZONAL_FAMILY_CHORDAL] = {.name = "chordal",
                              .method = {"mmd-chordal"},
                              .not_positive = "0 at c = -1",
                              .infinite_derivative = 1,
                              .build = chordal_build,
                              .derivative = chordal_derivative,
                              .deficit = chordal_deficit},
    [ZONAL_FAMILY_SPECTRUM] = {.name = "spectrum",
                               .method = {"mmd-spectrum", "ksd-spectrum", "kl-spectrum"},
                               .series = 1,
                               .weighted = 1,
                               .given = 1,
                               .check = spectrum_check,
                               .build = zonal__spectrum_given,
                               .fit_log = zonal__fit_log_given},
};
enum { FAMILIES = sizeof zonal__families / sizeof zonal__families[0] };
const int zonal__family_count = FAMILIES;

/* The names once more, as a list that tables of options point to. */
const char *const zonal__family_words[] = {"heat",    "band",     "induced", "poisson",
                                           "chordal", "spectrum", NULL};
_Static_assert(sizeof zonal__family_words / sizeof zonal__family_words[0] == FAMILIES + 1,
               "a word for each family");

const zonal__family *zonal__family_of(zonal_family family) {
    if ((unsigned)family < FAMILIES) return &zonal__families[family];
    (void)ZONAL_FAIL(ZONAL_ARGUMENT, "there is no kernel family %d", (int)family);
    return NULL;
}

double zonal__family_parameter(const zonal_kernel_spec *spec, int64_t dim,
                               zonal_discrepancy discrepancy) {
    const zonal__family *family = &zonal__families[spec->family];
    zonal_number number = spec->parameter;
    if (!family->initial) return 0;
    if (number.factor == 0) number = family->initial(dim, discrepancy);
    if (number.power < 0) return number.factor / (double)dim;
    return number.power > 0 ? number.factor * (double)dim : number.factor;
}

void zonal__family_describe(const zonal_kernel_spec *spec, int64_t dim,
                            zonal_discrepancy discrepancy, char *out, size_t size) {
    const zonal__family *family = &zonal__families[spec->family];
    double value = zonal__family_parameter(spec, dim, discrepancy), times_d = value * (double)dim;
    double whole = round(times_d);
    int divided = !family->whole && whole >= 1 && whole < 1e6 && value < 1 &&
                  fabs(times_d - whole) < 1e-12 * whole;
    int weights = spec->n_weights;
    out[0] = '\0';
    if (!spec->weights && spec->spectrum) {
        weights = 1;
        for (const char *c = spec->spectrum; *c; c++) weights += *c == ',';
    }
    if (family->given) snprintf(out, size, "%d weights", weights);
    if (!family->option) return;
    if (divided)
        snprintf(out, size, "%s = %.0f/d = %.8g", family->symbol, whole, value);
    else
        snprintf(out, size, value == (double)dim && !family->whole ? "%s = d = %.8g" : "%s = %.8g",
                 family->symbol, value);
}

void zonal__family_put_json(zonal_family family, double value, zonal__json *json) {
    const zonal__family *record = &zonal__families[family];
    if (!record->option) return;
    if (record->whole)
        zonal__json_key_int(json, record->option, (int64_t)value);
    else
        zonal__json_key_double(json, record->option, value);
}

const char *zonal_family_name(zonal_family family) {
    return (unsigned)family < FAMILIES ? zonal__families[family].name : "?";
}

zonal_status zonal_family_parse(const char *name, zonal_family *family) {
    char names[128] = "";
    size_t length = 0;
    ZONAL_NEED(name, "name");
    ZONAL_NEED(family, "family");
    for (int i = 0; i < FAMILIES; i++) {
        const char *word = zonal__families[i].name;
        if (strcmp(name, word) == 0) {
            *family = (zonal_family)i;
            return ZONAL_OK;
        }
        if (length >= sizeof names) continue;
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                   i == 0              ? ""
                                   : i == FAMILIES - 1 ? " and "
                                                       : ", ",
                                   word);
    }
    return ZONAL_FAIL(ZONAL_ARGUMENT, "unknown kernel '%s'; there are %s", name, names);
}

/* ---- methods by name: a discrepancy and a kernel, with the defaults of the paper and the design
 */

typedef struct named_loss {
    const char *name;
    zonal_discrepancy discrepancy;
    zonal_family family;
} named_loss;

enum { METHODS = 3 * FAMILIES + 2 }; /* at most */

/* The discrepancies with each family that has them, then the sliced losses, whose limit is the
 * induced kernel's. Returns how many there are. */
static int list_methods(named_loss list[METHODS]) {
    int count = 0;
    for (int d = ZONAL_DISCREPANCY_MMD; d <= ZONAL_DISCREPANCY_KL; d++)
        for (int f = 0; f < FAMILIES; f++)
            if (zonal__families[f].method[d])
                list[count++] = (named_loss){zonal__families[f].method[d], (zonal_discrepancy)d,
                                             (zonal_family)f};
    list[count++] = (named_loss){"susreg", ZONAL_DISCREPANCY_SUSREG, ZONAL_FAMILY_INDUCED};
    list[count++] = (named_loss){"sigreg", ZONAL_DISCREPANCY_SIGREG, ZONAL_FAMILY_INDUCED};
    return count;
}

const char *zonal_method_name(int i) {
    named_loss list[METHODS];
    int count = list_methods(list);
    return i >= 0 && i < count ? list[i].name : NULL;
}

void zonal__loss_initial(zonal_discrepancy discrepancy, zonal_family family,
                         zonal_loss_options *options) {
    int sliced = discrepancy >= ZONAL_DISCREPANCY_SUSREG;
    int lejepa = discrepancy == ZONAL_DISCREPANCY_SIGREG;
    *options = (zonal_loss_options){
        .size = sizeof *options,
        .discrepancy = discrepancy,
        .device = "cpu",
        .kernel = {.family = family},
        .precision = ZONAL_PRECISION_FP32,
    };
    if (sliced)
        options->sliced = (zonal_sliced_options){.slices = 1024,
                                                 .knots = 17,
                                                 .low = lejepa ? 0 : -5,
                                                 .high = lejepa ? 3 : 5,
                                                 .times_n = lejepa,
                                                 .collapse_normalised = !lejepa};
}

const char *zonal__method_of(const zonal_loss_options *loss) {
    named_loss list[METHODS];
    int count = list_methods(list);
    for (int i = 0; i < count; i++)
        if (list[i].discrepancy == loss->discrepancy &&
            (list[i].family == loss->kernel.family ||
             loss->discrepancy >= ZONAL_DISCREPANCY_SUSREG))
            return list[i].name;
    return "?";
}

zonal_status zonal__family_check_gradient(const zonal__family *family) {
    if (!family->infinite_derivative) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "the %s kernel has an infinite derivative at c = 1 and so no gradient; it is "
                      "for tests of uniformity: train with mmd-heat or mmd-band",
                      family->name);
}

/* The name nearest to kl-band would be no help: KSD is something else. */
static zonal_status check_density(const char *method) {
    char takes[128] = "";
    for (int f = 0; f < FAMILIES; f++)
        if (zonal__families[f].method[ZONAL_DISCREPANCY_KL])
            zonal__text_append(takes, sizeof takes, "%s%s", takes[0] ? ", " : "",
                               zonal__families[f].method[ZONAL_DISCREPANCY_KL]);
    for (int f = 0; f < FAMILIES; f++) {
        const zonal__family *family = &zonal__families[f];
        if (family->not_positive && strncmp(method, "kl-", 3) == 0 &&
            strcmp(method + 3, family->name) == 0)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "there is no method '%s': KL takes the logarithm of the kernel, and "
                              "%s is %s; use one of %s, or %s",
                              method, family->name, family->not_positive, takes,
                              family->method[ZONAL_DISCREPANCY_MMD]);
    }
    return ZONAL_OK;
}

zonal_status zonal__method_find(const char *method, zonal_loss_options *options) {
    const char *names[METHODS + 1] = {0};
    named_loss methods[METHODS];
    int count = list_methods(methods);
    for (int i = 0; i < count; i++) {
        names[i] = methods[i].name;
        if (strcmp(method, methods[i].name) != 0) continue;
        zonal__loss_initial(methods[i].discrepancy, methods[i].family, options);
        return ZONAL_OK;
    }
    ZONAL_TRY(check_density(method));
    const char *nearest = zonal__text_nearest(method, names);
    if (nearest)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "unknown method '%s'; did you mean '%s'?", method,
                          nearest);
    char all[400] = "";
    for (int i = 0, length = 0; i < count && length < (int)sizeof all; i++)
        length +=
            snprintf(all + length, sizeof all - (size_t)length, "%s%s", i ? ", " : "", names[i]);
    return ZONAL_FAIL(ZONAL_ARGUMENT, "unknown method '%s'; there are %s", method, all);
}
