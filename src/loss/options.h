/*
 * The options of losses and objectives by name: one list for the library's setters, the program's
 * flags, recipes, configuration files and help. The parameters of kernel families are taken from
 * their records (family.h).
 *
 * A command that takes the options of a loss has a zonal_loss_options among its settings and the
 * list in its table (core/options.h). What was given is checked there and then, but means something
 * only beside a method, which may be named later: zonal__loss_apply then sets it over the method's
 * defaults.
 *
 *     typedef struct settings {
 *         const char *method;
 *         zonal_loss_options loss;
 *     } settings;
 *     static const zonal__option table[] = {
 *         {.name = "method", ...},
 *         {.name = "the loss", .type = ZONAL__OPTION_TABLE, .table = zonal__loss_option,
 *          .target = offsetof(settings, loss)},
 *         {0}};
 *
 *     ZONAL_TRY(zonal_loss_defaults(s.method, &loss));
 *     ZONAL_TRY(zonal__loss_apply(&options, offsetof(settings, loss), &loss));
 */
#ifndef ZONAL_LOSS_OPTIONS_H
#define ZONAL_LOSS_OPTIONS_H

#include "core/options.h"
#include "zonal/loss.h"

/* Entry i of a table for a zonal_kernel_spec, a zonal_loss_options, a zonal_objective_options. */
int zonal__kernel_option(int i, zonal__option *entry);
int zonal__loss_option(int i, zonal__option *entry);
int zonal__objective_option(int i, zonal__option *entry);

/* Words in the order of the enumerations of zonal/loss.h; NULL-terminated. */
extern const char *const zonal__estimator_words[];
extern const char *const zonal__kl_norm_words[];
extern const char *const zonal__precision_words[];
extern const char *const zonal__dtype_words[];
extern const char *const zonal__implementation_words[];

/* The name of a device, a text: zonal__device_open says what is wrong with it. */
#define ZONAL__DEVICE_OPTION(settings_type, member, default_device, text)                          \
    {                                                                                              \
        .name = "device", .type = ZONAL__OPTION_STRING, .target = offsetof(settings_type, member), \
        .initial = default_device, .metavar = "NAME", .help = text                                 \
    }

/* The lambda of an objective that was given none. */
double zonal__usual_lambda(zonal_discrepancy discrepancy);

/* What works without tuning: in 256 dimensions exact losses are best at a selectivity of 10 to 20
 * on photographs, of 10 and less in long runs on textures (results/selectivity.md). Band kernels,
 * of which next to all is degree 2, are best at as much for each dimension in others; under heat
 * kernels there is more of degree 1 the fewer the dimensions, and less selectivity would weigh it
 * too much (results/dimension.md). Sliced losses want more, as their random directions push towards
 * uniformity too. */
double zonal__usual_selectivity(zonal_discrepancy discrepancy, zonal_family family, int64_t dim);

/* Whether the loss has a use for an option: --t is for heat alone, --slices for sliced losses. */
int zonal__loss_uses(const zonal_loss_options *loss, const char *name);

/* Names the options given on the command line that the loss has no use for, "--t, --slices"; an
 * empty text when there are none. A file may hold options for several methods. */
void zonal__loss_unused(const zonal_loss_options *loss, const zonal__options *options, char *out,
                        size_t size);

/* Sets in *loss, or *objective, what was given and is of use. "at" is the offset of their kind in
 * the settings. */
zonal_status zonal__loss_apply(const zonal__options *options, size_t at, zonal_loss_options *loss);
zonal_status zonal__objective_apply(const zonal__options *options, size_t at,
                                    zonal_objective_options *objective);
/* The same of a kernel of the family in *spec. */
zonal_status zonal__kernel_apply(const zonal__options *options, size_t at, zonal_kernel_spec *spec);

/* The caller's options with all members of this version. */
zonal_status zonal__loss_read(const zonal_loss_options *given, zonal_loss_options *full);
zonal_status zonal__objective_read(const zonal_objective_options *given,
                                   zonal_objective_options *full);

/* Defaults (families.c): of a method by name, ZONAL_ARGUMENT with the nearest name; of a
 * discrepancy with a family; and the method's name, "?" for none. */
zonal_status zonal__method_find(const char *method, zonal_loss_options *options);
void zonal__loss_initial(zonal_discrepancy discrepancy, zonal_family family,
                         zonal_loss_options *options);
const char *zonal__method_of(const zonal_loss_options *loss);

#endif
