#include "train/method_options.h"

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
                                          zonal_discrepancy discrepancy, zonal_kernel_spec *spec,
                                          double **weights) {
    zonal__scale parameter = settings->parameter[spec->family];
    *weights = NULL;
    spec->without_multiplicity = settings->without_multiplicity;
    spec->parameter = (zonal_number){parameter.factor, parameter.power};
    spec->parameter = (zonal_number){zonal__family_parameter(spec, dim, discrepancy), 0};
    if (zonal__families[spec->family].given)
        return apply_spectrum(settings->spectrum, spec, weights);
    return ZONAL_OK;
}

void zonal__kernel_describe(const zonal_kernel_spec *spec, int64_t dim, char *out, size_t size) {
    const zonal__family *family = &zonal__families[spec->family];
    double value = spec->parameter.factor, times_d = value * (double)dim;
    double whole = round(times_d);
    int divided = !family->whole && whole >= 1 && whole < 1e6 && value < 1 &&
                  fabs(times_d - whole) < 1e-12 * whole;
    out[0] = '\0';
    if (family->given) snprintf(out, size, "%d weights", spec->n_weights);
    if (!family->option) return;
    if (divided)
        snprintf(out, size, "%s = %.0f/d = %.8g", family->symbol, whole, value);
    else
        snprintf(out, size, value == (double)dim && !family->whole ? "%s = d = %.8g" : "%s = %.8g",
                 family->symbol, value);
}

void zonal__kernel_put_json(const zonal_kernel_spec *spec, zonal__json *json) {
    const zonal__family *family = &zonal__families[spec->family];
    double value = spec->parameter.factor;
    if (!family->option) return;
    if (family->whole)
        zonal__json_key_int(json, family->option, (int64_t)value);
    else
        zonal__json_key_double(json, family->option, value);
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
        loss->precision = ZONAL_PRECISION_FP32; /* the most it has */
    loss->implementation = (zonal_implementation)settings->implementation;
    loss->threads = (int)settings->threads;
    sliced->seed = (uint64_t)settings->seed;
    if (settings->slices > 0) sliced->slices = settings->slices;
    if (settings->knots > 0) sliced->knots = (int)settings->knots;
    if (given(options, "times-n")) sliced->times_n = settings->times_n;
    if (given(options, "collapse-norm")) sliced->collapse_normalised = settings->collapse_norm;
    return apply_range(settings->range, sliced);
}

static void append_name(const zonal__options *options, const char *name, char *out, size_t size) {
    size_t length = strlen(out);
    /* A file may hold options for several methods; on the command line it is a mistake. */
    if (zonal__options_source(options, name) == ZONAL__SOURCE_FLAG)
        snprintf(out + length, size - length, "%s--%s", length ? ", " : "", name);
}

void zonal__loss_unused(const zonal_loss_options *loss, const zonal__options *options, char *out,
                        size_t size) {
    int sliced = loss->discrepancy >= ZONAL_DISCREPANCY_SUSREG;
    const zonal__family *family = &zonal__families[loss->kernel.family];
    const struct {
        const char *name;
        int used;
    } list[] = {
        {"spectrum", !sliced && family->given},
        {"without-multiplicity", !sliced && family->weighted},
        {"kl-norm", loss->discrepancy == ZONAL_DISCREPANCY_KL},
        {"estimator", !sliced},
        {"slices", sliced},
        {"knots", sliced},
        {"range", sliced},
        {"times-n", sliced},
        {"collapse-norm", sliced},
    };
    out[0] = '\0';
    for (int i = 0; i < ZONAL__FAMILIES; i++) {
        /* SUSReg has the scale of its limit. */
        int used = &zonal__families[i] == family &&
                   (!sliced || loss->discrepancy == ZONAL_DISCREPANCY_SUSREG);
        if (zonal__families[i].option && !used)
            append_name(options, zonal__families[i].option, out, size);
    }
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (!list[i].used) append_name(options, list[i].name, out, size);
}

void zonal__method_unused(const zonal_loss_options *loss, const zonal__options *options, char *out,
                          size_t size) {
    zonal__loss_unused(loss, options, out, size);
    if (loss->discrepancy >= ZONAL_DISCREPANCY_SUSREG) return;
    append_name(options, "seed", out, size);
    append_name(options, "step", out, size);
}
