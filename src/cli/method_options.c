#include "cli/method_options.h"

#include <stdio.h>
#include <string.h>

#include "core/memory.h"

const char *const zonal__estimator_words[] = {"auto", "v", "u", NULL};
const char *const zonal__kl_norm_words[] = {"auto", "paper", NULL};
const char *const zonal__device_words[] = {"cpu", "cuda", NULL};
const char *const zonal__precision_words[] = {"double", "fp32", "tf32", "bf16", NULL};
const char *const zonal__implementation_words[] = {"auto", "ref", "pairs", "moments", NULL};

enum { MOST_WEIGHTS = 4096 };

/* ---- lists ----------------------------------------------------------------------------------- */

/* Copies the entry at *text, which ends at a comma, and moves *text behind it; 0 after the last. */
static int next_entry(const char **text, char entry[64]) {
    size_t length;
    if (!*text) return 0;
    length = strcspn(*text, ",");
    snprintf(entry, 64, "%.*s", length < 64 ? (int)length : 63, *text);
    *text = (*text)[length] ? *text + length + 1 : NULL;
    return 1;
}

static zonal_status too_many(const char *shown, int most) {
    return ZONAL_FAIL(ZONAL_ARGUMENT, "%s takes at most %d numbers, separated by commas", shown,
                      most);
}

zonal_status zonal__list_int64(const char *text, const char *shown, int64_t low, int64_t high,
                               int most, int64_t *out, int *count) {
    char entry[64];
    int n = 0;
    while (next_entry(&text, entry)) {
        if (n == most) return too_many(shown, most);
        ZONAL_TRY(zonal__text_int64(entry, shown, &out[n]));
        if (out[n] < low || out[n] > high)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be from %lld to %lld, got %s", shown,
                              (long long)low, (long long)high, entry);
        n++;
    }
    *count = n;
    return ZONAL_OK;
}

zonal_status zonal__list_double(const char *text, const char *shown, int most, double *out,
                                int *count) {
    char entry[64];
    int n = 0;
    while (next_entry(&text, entry)) {
        if (n == most) return too_many(shown, most);
        ZONAL_TRY(zonal__text_double(entry, shown, &out[n++]));
    }
    *count = n;
    return ZONAL_OK;
}

/* ---- a kernel -------------------------------------------------------------------------------- */

static zonal_status apply_spectrum(const char *text, zonal_kernel_spec *spec, double **weights) {
    zonal_status status;
    if (!text)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a spectrum kernel needs its weights by degree: "
                                          "--spectrum W0,W1,...");
    ZONAL_TRY(ZONAL_NEW(weights, MOST_WEIGHTS, "the spectrum's weights"));
    status = zonal__list_double(text, "--spectrum", MOST_WEIGHTS, *weights, &spec->n_weights);
    spec->weights = *weights;
    if (status == ZONAL_OK) return status;
    zonal__free(*weights);
    *weights = NULL;
    return status;
}

zonal_status zonal__kernel_settings_apply(const zonal__kernel_settings *settings, int64_t dim,
                                          double default_t, zonal_kernel_spec *spec,
                                          double **weights) {
    double d = (double)dim;
    *weights = NULL;
    spec->without_multiplicity = settings->without_multiplicity;
    switch (spec->family) {
    case ZONAL_HEAT:
        spec->t = settings->t.factor > 0 ? zonal__scale_value(settings->t, dim) : default_t / d;
        break;
    case ZONAL_BAND:
        spec->band = settings->band > 0 ? (int)settings->band : 2;
        break;
    case ZONAL_INDUCED:
        spec->scale = settings->scale.factor > 0 ? zonal__scale_value(settings->scale, dim) : d;
        break;
    case ZONAL_POISSON:
        spec->r = settings->r > 0 ? settings->r : .3 * log(d) / d;
        break;
    case ZONAL_CHORDAL:
        break;
    case ZONAL_SPECTRUM:
        return apply_spectrum(settings->spectrum, spec, weights);
    }
    return ZONAL_OK;
}

void zonal__kernel_describe(const zonal_kernel_spec *spec, int64_t dim, char *out, size_t size) {
    double times_d = spec->t * (double)dim, whole = round(times_d);
    switch (spec->family) {
    case ZONAL_HEAT:
        if (whole >= 1 && whole < 1e6 && fabs(times_d - whole) < 1e-12 * whole)
            snprintf(out, size, "t = %.0f/d = %.8g", whole, spec->t);
        else
            snprintf(out, size, "t = %.8g", spec->t);
        break;
    case ZONAL_BAND:
        snprintf(out, size, "L = %d", spec->band);
        break;
    case ZONAL_INDUCED:
        snprintf(out, size, spec->scale == (double)dim ? "s^2 = d = %.8g" : "s^2 = %.8g",
                 spec->scale);
        break;
    case ZONAL_POISSON:
        snprintf(out, size, "r = %.8g", spec->r);
        break;
    case ZONAL_CHORDAL:
        out[0] = '\0';
        break;
    case ZONAL_SPECTRUM:
        snprintf(out, size, "%d weights", spec->n_weights);
        break;
    }
}

/* ---- a method -------------------------------------------------------------------------------- */

static int given(const zonal__options *options, const char *name) {
    return zonal__options_source(options, name) > ZONAL__SOURCE_DEFAULT;
}

static zonal_status apply_range(const char *text, zonal_sliced_options *sliced) {
    double range[2];
    int count = 0;
    if (!text) return ZONAL_OK;
    ZONAL_TRY(zonal__list_double(text, "--range", 2, range, &count));
    if (count != 2 || !(range[0] < range[1]))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--range must be LOW,HIGH with LOW below HIGH, got %s",
                          text);
    sliced->low = range[0];
    sliced->high = range[1];
    return ZONAL_OK;
}

zonal_status zonal__method_settings_apply(const zonal__method_settings *settings,
                                          const zonal__options *options, zonal_loss_options *loss) {
    zonal_sliced_options *sliced = &loss->sliced;
    loss->estimator = (zonal_estimator)settings->estimator;
    loss->kl_norm = (zonal_kl_norm)settings->kl_norm;
    loss->raw_value = settings->raw;
    loss->unit_rows = settings->unit;
    loss->device = (zonal_device)settings->device;
    loss->precision = (zonal_precision)settings->precision;
    if (loss->device == ZONAL_DEVICE_CUDA && !given(options, "precision"))
        loss->precision = ZONAL_FP32; /* the most it has */
    loss->implementation = (zonal_implementation)settings->implementation;
    loss->threads = (int)settings->threads;
    sliced->seed = (uint64_t)settings->seed;
    if (settings->slices > 0) sliced->slices = settings->slices;
    if (settings->knots > 0) sliced->knots = (int)settings->knots;
    if (given(options, "times-n")) sliced->times_n = settings->times_n;
    if (given(options, "collapse-norm")) sliced->collapse_normalised = settings->collapse_norm;
    return apply_range(settings->range, sliced);
}

double zonal__method_default_t(const zonal_loss_options *loss) {
    return loss->discrepancy == ZONAL_KL ? 2 : 5;
}

static void append_name(const zonal__options *options, const char *name, char *out, size_t size) {
    size_t length = strlen(out);
    /* A file may hold options for several methods; on the command line it is a mistake. */
    if (zonal__options_source(options, name) == ZONAL__SOURCE_FLAG)
        snprintf(out + length, size - length, "%s--%s", length ? ", " : "", name);
}

void zonal__loss_unused(const zonal_loss_options *loss, const zonal__options *options, char *out,
                        size_t size) {
    int sliced = loss->discrepancy >= ZONAL_SUSREG;
    zonal_family family = loss->kernel.family;
    const struct {
        const char *name;
        int used;
    } list[] = {
        {"t", !sliced && family == ZONAL_HEAT},
        {"band", !sliced && family == ZONAL_BAND},
        {"scale", family == ZONAL_INDUCED && loss->discrepancy != ZONAL_SIGREG},
        {"r", !sliced && family == ZONAL_POISSON},
        {"spectrum", !sliced && family == ZONAL_SPECTRUM},
        {"without-multiplicity", !sliced && family != ZONAL_INDUCED && family != ZONAL_CHORDAL},
        {"kl-norm", loss->discrepancy == ZONAL_KL},
        {"estimator", !sliced},
        {"slices", sliced},
        {"knots", sliced},
        {"range", sliced},
        {"times-n", sliced},
        {"collapse-norm", sliced},
    };
    out[0] = '\0';
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (!list[i].used) append_name(options, list[i].name, out, size);
}

void zonal__method_unused(const zonal_loss_options *loss, const zonal__options *options, char *out,
                          size_t size) {
    zonal__loss_unused(loss, options, out, size);
    if (loss->discrepancy >= ZONAL_SUSREG) return;
    append_name(options, "seed", out, size);
    append_name(options, "step", out, size);
}
