/*
 * The options that describe a kernel or a whole method, once for all commands that take them.
 *
 *     typedef struct settings {
 *         zonal__kernel_settings kernel;
 *         zonal__method_settings method;
 *         int json;
 *     } settings;
 *     static const zonal__option table[] = {
 *         ZONAL__KERNEL_OPTIONS(settings, kernel),
 *         ZONAL__METHOD_OPTIONS(settings, method, "double"),
 *         {.name = "json", ...},
 *         {0}};
 *
 * Many values depend on the dimension of the embeddings, which is known only after a file has been
 * opened; so the text is parsed and its bounds are checked first, and the numbers are made later.
 * An option that was not given leaves its setting at zero, which the makers below replace by the
 * method's own default.
 */
#ifndef ZONAL_TRAIN_METHOD_OPTIONS_H
#define ZONAL_TRAIN_METHOD_OPTIONS_H

#include <math.h>
#include <stddef.h>

#include "core/json.h"
#include "core/options.h"
#include "loss/family.h"

/* ---- a kernel -------------------------------------------------------------------------------- */

typedef struct zonal__kernel_settings {
    zonal__scale parameter[ZONAL__FAMILIES]; /* by zonal_family */
    const char *spectrum;
    int without_multiplicity;
} zonal__kernel_settings;

#define ZONAL__KERNEL_OPTIONS(settings_type, member)                                               \
    {.name = "t",                                                                                  \
     .type = ZONAL__OPTION_SCALE,                                                                  \
     .target = offsetof(settings_type, member.parameter[ZONAL_FAMILY_HEAT]),                       \
     .least = 0,                                                                                   \
     .most = INFINITY,                                                                             \
     .rules = ZONAL__OPTION_OVER,                                                                  \
     .metavar = "NUMBER[/d]",                                                                      \
     .help = "heat: the time; 5/d unless given (KL: 2/d)"},                                        \
        {.name = "band",                                                                           \
         .type = ZONAL__OPTION_SCALE,                                                              \
         .target = offsetof(settings_type, member.parameter[ZONAL_FAMILY_BAND]),                   \
         .least = 1,                                                                               \
         .most = 64,                                                                               \
         .metavar = "L",                                                                           \
         .help = "band: the highest degree; 2 unless given"},                                      \
        {.name = "scale",                                                                          \
         .type = ZONAL__OPTION_SCALE,                                                              \
         .target = offsetof(settings_type, member.parameter[ZONAL_FAMILY_INDUCED]),                \
         .least = 0,                                                                               \
         .most = INFINITY,                                                                         \
         .rules = ZONAL__OPTION_OVER,                                                              \
         .metavar = "NUMBER|d",                                                                    \
         .help = "induced, susreg: s^2; d unless given, 1 is the paper's formula as printed"},     \
        {.name = "r",                                                                              \
         .type = ZONAL__OPTION_SCALE,                                                              \
         .target = offsetof(settings_type, member.parameter[ZONAL_FAMILY_POISSON]),                \
         .least = 0,                                                                               \
         .most = 1,                                                                                \
         .rules = ZONAL__OPTION_OVER | ZONAL__OPTION_UNDER,                                        \
         .help = "poisson: the radius; 0.3 log(d)/d unless given"},                                \
        {.name = "spectrum",                                                                       \
         .type = ZONAL__OPTION_STRING,                                                             \
         .target = offsetof(settings_type, member.spectrum),                                       \
         .metavar = "W0,W1,...",                                                                   \
         .help = "spectrum: the weight of each degree, from 0 on, none negative"},                 \
    {                                                                                              \
        .name = "without-multiplicity", .type = ZONAL__OPTION_FLAG,                                \
        .target = offsetof(settings_type, member.without_multiplicity),                            \
        .help = "heat, band, poisson, spectrum: do not multiply a degree's weight by the number "  \
                "of its harmonics, the other reading of the paper's normalised polynomials"        \
    }

/* Fills the parameter of spec->family, which is set already, with its number in dimension dim: what
 * was given, or the default for the discrepancy. A spectrum's weights are allocated:
 * *weights is then to be released with zonal__free after the kernel or plan is made, and
 * NULL otherwise. ZONAL_ARGUMENT when the text is wrong or a spectrum is missing. */
zonal_status zonal__kernel_settings_apply(const zonal__kernel_settings *settings, int64_t dim,
                                          zonal_discrepancy discrepancy, zonal_kernel_spec *spec,
                                          double **weights);

/* The parameter as people write it: "t = 5/d = 0.01953125", "L = 2"; "" where there is none. */
void zonal__kernel_describe(const zonal_kernel_spec *spec, int64_t dim, char *out, size_t size);

/* The same as a member of a JSON object; nothing where there is none. */
void zonal__kernel_put_json(const zonal_kernel_spec *spec, zonal__json *json);

/* ---- a method -------------------------------------------------------------------------------- */

typedef struct zonal__method_settings {
    int estimator, kl_norm, raw, unit;
    int64_t slices, knots, seed, step;
    const char *range;
    int times_n, collapse_norm;
    int device, precision, implementation;
    int64_t threads;
} zonal__method_settings;

/* The words are in the order of the enumerations of zonal/loss.h. NULL-terminated. */
extern const char *const zonal__estimator_words[];
extern const char *const zonal__kl_norm_words[];
extern const char *const zonal__device_words[];
extern const char *const zonal__precision_words[];
extern const char *const zonal__implementation_words[];

/* What a loss is, whoever computes it. */
#define ZONAL__LOSS_OPTIONS(settings_type, member)                                                 \
    {.name = "kl-norm",                                                                            \
     .type = ZONAL__OPTION_WORD,                                                                   \
     .target = offsetof(settings_type, member.kl_norm),                                            \
     .words = zonal__kl_norm_words,                                                                \
     .initial = "auto",                                                                            \
     .help = "kl: its normaliser"},                                                                \
        {.name = "estimator",                                                                      \
         .type = ZONAL__OPTION_WORD,                                                               \
         .target = offsetof(settings_type, member.estimator),                                      \
         .words = zonal__estimator_words,                                                          \
         .initial = "auto",                                                                        \
         .help = "v keeps each row's pair with itself, u leaves it out; auto is v, for kl u"},     \
        {.name = "slices",                                                                         \
         .type = ZONAL__OPTION_INT,                                                                \
         .target = offsetof(settings_type, member.slices),                                         \
         .least = 1,                                                                               \
         .most = 1 << 24,                                                                          \
         .help = "susreg, sigreg: random directions; 1024 unless given"},                          \
        {.name = "knots",                                                                          \
         .type = ZONAL__OPTION_INT,                                                                \
         .target = offsetof(settings_type, member.knots),                                          \
         .least = 2,                                                                               \
         .most = 4096,                                                                             \
         .help = "susreg, sigreg: points of the quadrature; 17 unless given"},                     \
        {.name = "range",                                                                          \
         .type = ZONAL__OPTION_STRING,                                                             \
         .target = offsetof(settings_type, member.range),                                          \
         .metavar = "LOW,HIGH",                                                                    \
         .help = "susreg, sigreg: where the knots lie; -5,5 (sigreg 0,3) unless given"},           \
        {.name = "times-n",                                                                        \
         .type = ZONAL__OPTION_FLAG,                                                               \
         .target = offsetof(settings_type, member.times_n),                                        \
         .help = "susreg, sigreg: multiply by the number of rows, or --no-times-n; sigreg does"},  \
    {                                                                                              \
        .name = "collapse-norm", .type = ZONAL__OPTION_FLAG,                                       \
        .target = offsetof(settings_type, member.collapse_norm),                                   \
        .help = "susreg, sigreg: divide by the value at collapse, or --no-collapse-norm; "         \
                "susreg does"                                                                      \
    }

/* The same, and how it is computed. */
#define ZONAL__METHOD_OPTIONS(settings_type, member, default_precision)                            \
    ZONAL__LOSS_OPTIONS(settings_type, member),                                                    \
        {.name = "raw",                                                                            \
         .type = ZONAL__OPTION_FLAG,                                                               \
         .target = offsetof(settings_type, member.raw),                                            \
         .help = "do not divide by the norm, which makes the value 1 at collapse"},                \
        {.name = "unit",                                                                           \
         .type = ZONAL__OPTION_FLAG,                                                               \
         .target = offsetof(settings_type, member.unit),                                           \
         .help = "the rows are unit vectors already: check, do not normalise"},                    \
        {.name = "seed",                                                                           \
         .type = ZONAL__OPTION_INT,                                                                \
         .target = offsetof(settings_type, member.seed),                                           \
         .initial = "0",                                                                           \
         .least = 0,                                                                               \
         .most = INFINITY,                                                                         \
         .help = "susreg, sigreg: of the directions"},                                             \
        {.name = "step",                                                                           \
         .type = ZONAL__OPTION_INT,                                                                \
         .target = offsetof(settings_type, member.step),                                           \
         .initial = "0",                                                                           \
         .least = 0,                                                                               \
         .most = 4294967295.,                                                                      \
         .help = "susreg, sigreg: another step has other directions"},                             \
        {.name = "device",                                                                         \
         .type = ZONAL__OPTION_WORD,                                                               \
         .target = offsetof(settings_type, member.device),                                         \
         .words = zonal__device_words,                                                             \
         .initial = "cpu",                                                                         \
         .help = "where to compute"},                                                              \
        {.name = "precision",                                                                      \
         .type = ZONAL__OPTION_WORD,                                                               \
         .target = offsetof(settings_type, member.precision),                                      \
         .words = zonal__precision_words,                                                          \
         .initial = default_precision,                                                             \
         .help = "of the arithmetic; tf32 and bf16 are for cuda"},                                 \
        {.name = "implementation",                                                                 \
         .type = ZONAL__OPTION_WORD,                                                               \
         .target = offsetof(settings_type, member.implementation),                                 \
         .words = zonal__implementation_words,                                                     \
         .initial = "auto",                                                                        \
         .help = "which code computes it; ref is slow and plain"},                                 \
    {                                                                                              \
        .name = "threads", .type = ZONAL__OPTION_INT,                                              \
        .target = offsetof(settings_type, member.threads), .initial = "0", .least = 0,             \
        .most = 4096, .help = "threads to use; 0: all there are"                                   \
    }

/* Sets what was given in *loss, which holds the defaults of a method (zonal_loss_defaults), except
 * for the kernel. "options" tells which flags were given. */
zonal_status zonal__method_settings_apply(const zonal__method_settings *settings,
                                          const zonal__options *options, zonal_loss_options *loss);

/* Names the options that were given although the method has no use for them, "--t, --slices"; an
 * empty text when there are none. zonal__loss_unused looks at the options of the kernel and the
 * loss, zonal__method_unused at --seed and --step too. */
void zonal__loss_unused(const zonal_loss_options *loss, const zonal__options *options, char *out,
                        size_t size);
void zonal__method_unused(const zonal_loss_options *loss, const zonal__options *options, char *out,
                          size_t size);

/* ---- lists ----------------------------------------------------------------------------------- */

/* Parses "256,512,1024" into at most "most" whole numbers between low and high; *count is how many
 * there are, at least one. "shown" names the option in sentences. */
zonal_status zonal__list_int64(const char *text, const char *shown, int64_t low, int64_t high,
                               int most, int64_t *out, int *count);
/* The same for finite numbers, without bounds. */
zonal_status zonal__list_double(const char *text, const char *shown, int most, double *out,
                                int *count);

#endif
