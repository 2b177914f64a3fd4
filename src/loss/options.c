#include "loss/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/sized.h"
#include "loss/family.h"
#include "loss/objective.h"
#include "loss/plan.h"

const char *const zonal__estimator_words[] = {"auto", "v", "u", NULL};
const char *const zonal__kl_norm_words[] = {"auto", "paper", NULL};
const char *const zonal__precision_words[] = {"double", "fp32", "tf32", "bf16", NULL};
const char *const zonal__dtype_words[] = {"auto", "fp32", "bf16", "fp16", "double", NULL};
const char *const zonal__implementation_words[] = {"auto",    "ref",    "pairs",
                                                   "moments", "slices", NULL};

/* ---- values that are not one number ---------------------------------------------------------- */

/* The text is kept and read again when the kernel is made; here it is only looked through. */
static zonal_status check_spectrum(void *values, const zonal__option *option, const char *shown,
                                   const char *text) {
    double weights[ZONAL__MOST_WEIGHTS];
    int count;
    (void)values, (void)option;
    return zonal__list_double(text, shown, ZONAL__MOST_WEIGHTS, weights, &count);
}

static zonal_status set_range(void *values, const zonal__option *option, const char *shown,
                              const char *text) {
    zonal_sliced_options *sliced = (void *)((char *)values + option->target);
    double range[2];
    int count = 0;
    ZONAL_TRY(zonal__list_double(text, shown, 2, range, &count));
    if (count != 2 || !(range[0] < range[1]))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be LOW,HIGH with LOW below HIGH, got %s", shown,
                          text);
    sliced->low = range[0];
    sliced->high = range[1];
    return ZONAL_OK;
}

/* Whether there is such a device is asked when it is opened; here the name must fit. */
static zonal_status set_device(void *values, const zonal__option *option, const char *shown,
                               const char *text) {
    char *device = (char *)values + option->target;
    if (strlen(text) >= ZONAL_DEVICE_NAME)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s is a device such as cpu or cuda:0, got \"%.60s\"",
                          shown, text);
    memset(device, 0, ZONAL_DEVICE_NAME);
    memcpy(device, text, strlen(text));
    return ZONAL_OK;
}

static zonal_objective_options *objective_at(void *values, const zonal__option *option,
                                             size_t member) {
    return (void *)((char *)values + option->target - member);
}

/* "margin:1.15" sets a gain by its margin. */
static zonal_status set_gain_by(const char *text, const char *shown, zonal_gain kind,
                                zonal_objective_options *objective) {
    char what[96];
    double value;
    snprintf(what, sizeof what, "%.40s, if not auto, batch or unit,", shown);
    ZONAL_TRY(zonal__text_double(text, what, &value));
    if (!(value > 0)) return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be above 0, got %s", shown, text);
    objective->gain = kind;
    objective->gain_value = value;
    return ZONAL_OK;
}

static zonal_status set_gain(void *values, const zonal__option *option, const char *shown,
                             const char *text) {
    static const char *const words[] = {"auto", "unit", "batch"}; /* by zonal_gain */
    zonal_objective_options *objective =
        objective_at(values, option, offsetof(zonal_objective_options, gain));
    for (int i = 0; i < 3; i++)
        if (strcmp(text, words[i]) == 0) {
            objective->gain = (zonal_gain)i;
            objective->gain_value = 0;
            return ZONAL_OK;
        }
    if (strncmp(text, "margin:", 7) == 0)
        return set_gain_by(text + 7, shown, ZONAL_GAIN_MARGIN, objective);
    if (strncmp(text, "selectivity:", 12) == 0)
        return set_gain_by(text + 12, shown, ZONAL_GAIN_SELECTIVITY, objective);
    return set_gain_by(text, shown, ZONAL_GAIN_VALUE, objective);
}

static zonal_status mark_gain(void *values, const zonal__option *option, const char *shown,
                              const char *text) {
    zonal_objective_options *objective =
        objective_at(values, option, offsetof(zonal_objective_options, gain_value));
    (void)shown, (void)text;
    objective->gain =
        strcmp(option->name, "margin") == 0 ? ZONAL_GAIN_MARGIN : ZONAL_GAIN_SELECTIVITY;
    return ZONAL_OK;
}

/* ---- the tables ------------------------------------------------------------------------------ */

#define IN_KERNEL(field)    .target = offsetof(zonal_kernel_spec, field)
#define IN_LOSS(field)      .target = offsetof(zonal_loss_options, field)
#define IN_OBJECTIVE(field) .target = offsetof(zonal_objective_options, field)

static int entry_of(const zonal__option *list, int count, int i, zonal__option *entry) {
    if (i < 0 || i >= count) return 0;
    *entry = list[i];
    return 1;
}
#define ENTRY_OF(list, i, entry) entry_of(list, (int)(sizeof(list) / sizeof(list)[0]), i, entry)

static int family_option(const zonal__family *family, zonal__option *entry) {
    *entry = (zonal__option){.name = family->option,
                             .type = ZONAL__OPTION_SCALE,
                             IN_KERNEL(parameter),
                             .rules = (family->above ? ZONAL__OPTION_OVER : 0) |
                                      (family->below ? ZONAL__OPTION_UNDER : 0),
                             .least = family->least,
                             .most = family->option_most ? family->option_most : family->most,
                             .metavar = family->metavar,
                             .help = family->help};
    return 1;
}

int zonal__kernel_option(int i, zonal__option *entry) {
    static const zonal__option others[] = {
        {.name = "spectrum",
         .type = ZONAL__OPTION_STRING,
         IN_KERNEL(spectrum),
         .metavar = "W0,W1,...",
         .set = check_spectrum,
         .help = "spectrum: the weight of each degree, from 0 on, none negative"},
        {.name = "without-multiplicity",
         .type = ZONAL__OPTION_FLAG,
         IN_KERNEL(without_multiplicity),
         .help = "kernels made of weights: do not multiply a degree's weight by the number "
                 "of its harmonics, the other reading of the paper's normalised polynomials"}};
    for (int f = 0; f < zonal__family_count; f++)
        if (zonal__families[f].option && i-- == 0) return family_option(&zonal__families[f], entry);
    return ENTRY_OF(others, i, entry);
}

int zonal__loss_option(int i, zonal__option *entry) {
    static const zonal__option list[] = {
        {.name = "the kernel",
         .type = ZONAL__OPTION_TABLE,
         IN_LOSS(kernel),
         .table = zonal__kernel_option},
        {.name = "kl-norm",
         .type = ZONAL__OPTION_WORD,
         IN_LOSS(kl_norm),
         .words = zonal__kl_norm_words,
         .initial = "auto",
         .help = "kl: its normaliser"},
        {.name = "estimator",
         .type = ZONAL__OPTION_WORD,
         IN_LOSS(estimator),
         .words = zonal__estimator_words,
         .initial = "auto",
         .help = "v keeps each row's pair with itself, u leaves it out; auto is v, for kl u"},
        {.name = "slices",
         .type = ZONAL__OPTION_INT,
         IN_LOSS(sliced.slices),
         .least = 1,
         .most = 1 << 24,
         .help = "susreg, sigreg: random directions; 1024 unless given"},
        {.name = "knots",
         .type = ZONAL__OPTION_INT,
         IN_LOSS(sliced.knots),
         .least = 2,
         .most = 4096,
         .help = "susreg, sigreg: points of the quadrature; 17 unless given"},
        {.name = "range",
         .type = ZONAL__OPTION_CUSTOM,
         IN_LOSS(sliced),
         .metavar = "LOW,HIGH",
         .set = set_range,
         .help = "susreg, sigreg: where the knots lie; -5,5 (sigreg 0,3) unless given"},
        {.name = "times-n",
         .type = ZONAL__OPTION_FLAG,
         IN_LOSS(sliced.times_n),
         .help = "susreg, sigreg: multiply by the number of rows, or --no-times-n; sigreg does"},
        {.name = "collapse-norm",
         .type = ZONAL__OPTION_FLAG,
         IN_LOSS(sliced.collapse_normalised),
         .help = "susreg, sigreg: divide by the value at collapse, or --no-collapse-norm; "
                 "susreg does"},
        {.name = "raw",
         .type = ZONAL__OPTION_FLAG,
         IN_LOSS(raw_value),
         .help = "the value before its division by the norm, which makes it 1 at collapse"},
        {.name = "unit",
         .type = ZONAL__OPTION_FLAG,
         IN_LOSS(unit_rows),
         .help = "the rows are unit vectors already: check, do not normalise"},
        {.name = "seed",
         .type = ZONAL__OPTION_INT,
         IN_LOSS(sliced.seed),
         .initial = "0",
         .least = 0,
         .most = INFINITY,
         .help = "susreg, sigreg: of the directions"},
        {.name = "device",
         .type = ZONAL__OPTION_CUSTOM,
         IN_LOSS(device),
         .initial = "cpu",
         .metavar = "NAME",
         .set = set_device,
         .help = "where to compute: cpu, cuda, cuda:1 (zonal devices lists them)"},
        {.name = "precision",
         .type = ZONAL__OPTION_WORD,
         IN_LOSS(precision),
         .words = zonal__precision_words,
         .help = "of the arithmetic; tf32 and bf16 are for cuda; fp32 unless given"},
        {.name = "dtype",
         .type = ZONAL__OPTION_WORD,
         IN_LOSS(dtype),
         .words = zonal__dtype_words,
         .initial = "auto",
         .help = "cuda: of rows and gradient; auto is fp32"},
        {.name = "implementation",
         .type = ZONAL__OPTION_WORD,
         IN_LOSS(implementation),
         .words = zonal__implementation_words,
         .initial = "auto",
         .help = "which code computes it; ref is slow and plain"},
        {.name = "threads",
         .type = ZONAL__OPTION_INT,
         IN_LOSS(threads),
         .initial = "0",
         .least = 0,
         .most = 4096,
         .help = "threads to use; 0: one for each processor"}};
    return ENTRY_OF(list, i, entry);
}

int zonal__objective_option(int i, zonal__option *entry) {
    static const zonal__option list[] = {
        {.name = "the loss",
         .type = ZONAL__OPTION_TABLE,
         IN_OBJECTIVE(loss),
         .table = zonal__loss_option},
        {.name = "lambda",
         .type = ZONAL__OPTION_DOUBLE,
         IN_OBJECTIVE(lambda),
         .least = 0,
         .most = 1,
         .help =
             "weight of uniformity against 1 - lambda of alignment; 0.05 (kl: 0.5) unless given"},
        {.name = "gain",
         .type = ZONAL__OPTION_CUSTOM,
         IN_OBJECTIVE(gain),
         .initial = "auto",
         .metavar = "auto|batch|unit|NUMBER",
         .set = set_gain,
         .help =
             "factor of the uniformity loss; auto: a selectivity of 10 (band kernels: 10 d/256, "
             "susreg: 20) at the usual lambda, at least 1.15 times the collapse threshold; sigreg: "
             "1"},
        {.name = "margin",
         .type = ZONAL__OPTION_DOUBLE,
         IN_OBJECTIVE(gain_value),
         .most = INFINITY,
         .rules = ZONAL__OPTION_OVER | ZONAL__OPTION_UNDER,
         .set = mark_gain,
         .help = "set the gain to this multiple of the collapse threshold"},
        {.name = "selectivity",
         .type = ZONAL__OPTION_DOUBLE,
         IN_OBJECTIVE(gain_value),
         .most = INFINITY,
         .rules = ZONAL__OPTION_OVER | ZONAL__OPTION_UNDER,
         .set = mark_gain,
         .help = "set the gain so that the selectivity S has this value: how strongly directions "
                 "follow "
                 "what views share"}};
    return ENTRY_OF(list, i, entry);
}

static const zonal__option kernel_table[] = {
    {.name = "a kernel", .type = ZONAL__OPTION_TABLE, .table = zonal__kernel_option}, {0}};
static const zonal__option loss_table[] = {
    {.name = "a loss", .type = ZONAL__OPTION_TABLE, .table = zonal__loss_option}, {0}};
static const zonal__option objective_table[] = {
    {.name = "an objective", .type = ZONAL__OPTION_TABLE, .table = zonal__objective_option}, {0}};

/* ---- what a loss has a use for --------------------------------------------------------------- */

/* 1: the name of some kernel's parameter. */
static int is_parameter(const char *name) {
    for (int i = 0; i < zonal__family_count; i++)
        if (zonal__families[i].option && strcmp(zonal__families[i].option, name) == 0) return 1;
    return 0;
}

int zonal__loss_uses(const zonal_loss_options *loss, const char *name) {
    int sliced = loss->discrepancy >= ZONAL_DISCREPANCY_SUSREG;
    int sigreg = loss->discrepancy == ZONAL_DISCREPANCY_SIGREG;
    const zonal__family *family = &zonal__families[loss->kernel.family];
    const struct {
        const char *name;
        int used;
    } list[] = {
        {"spectrum", !sliced && family->given},
        {"without-multiplicity", !sliced}, /* a kernel without weights refuses it */
        {"kl-norm", loss->discrepancy == ZONAL_DISCREPANCY_KL},
        {"estimator", !sliced},
        {"slices", sliced},
        {"knots", sliced},
        {"range", sliced},
        {"times-n", sliced},
        {"collapse-norm", sliced},
        {"seed", sliced},
        {"unit", !sigreg}, /* it takes rows as they are */
    };
    if (is_parameter(name)) /* SUSReg has its limit's scale */
        return family->option && strcmp(family->option, name) == 0 && !sigreg;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (strcmp(list[i].name, name) == 0) return list[i].used;
    return 1;
}

/* An option of the same name may be the command's own. */
void zonal__loss_unused(const zonal_loss_options *loss, const zonal__options *options, char *out,
                        size_t size) {
    out[0] = '\0';
    for (int i = 0; options->table[i].name; i++) {
        const zonal__option *option = &options->table[i];
        size_t length = strlen(out);
        int ours = option->table == zonal__loss_option || option->table == zonal__kernel_option;
        if (ours && options->state[i].source == ZONAL__SOURCE_FLAG &&
            !zonal__loss_uses(loss, option->name))
            snprintf(out + length, size - length, "%s--%s", length ? ", " : "", option->name);
    }
}

/* Whoever gave another kernel's parameter wants to know which one this kernel has. */
static zonal_status fail_unused(const zonal_loss_options *loss, const char *name) {
    const zonal__family *family = &zonal__families[loss->kernel.family];
    int named =
        is_parameter(name) && family->option && loss->discrepancy <= ZONAL_DISCREPANCY_SUSREG;
    return ZONAL_FAIL(
        ZONAL_ARGUMENT, "%s has no use for %s; leave it out%s%s", zonal__method_of(loss), name,
        named ? ": the parameter of its kernel is " : "", named ? family->option : "");
}

static int is_used(const void *loss, const char *name) {
    return zonal__loss_uses(loss, name);
}

zonal_status zonal__loss_apply(const zonal__options *options, size_t at, zonal_loss_options *loss) {
    const zonal_loss_options as_it_is = *loss;
    return zonal__options_repeat(options, at, sizeof *loss, is_used, &as_it_is, loss);
}

zonal_status zonal__objective_apply(const zonal__options *options, size_t at,
                                    zonal_objective_options *objective) {
    const zonal_loss_options as_it_is = objective->loss;
    return zonal__options_repeat(options, at, sizeof *objective, is_used, &as_it_is, objective);
}

zonal_status zonal__kernel_apply(const zonal__options *options, size_t at,
                                 zonal_kernel_spec *spec) {
    const zonal_loss_options loss = {.kernel.family = spec->family};
    return zonal__options_repeat(options, at, sizeof *spec, is_used, &loss, spec);
}

/* ---- the caller's structs -------------------------------------------------------------------- */

#define LOSS_SIZED      ZONAL__SIZED(zonal_loss_options, kernel)
#define OBJECTIVE_SIZED ZONAL__SIZED(zonal_objective_options, loss.kernel)

zonal_status zonal__loss_read(const zonal_loss_options *given, zonal_loss_options *full) {
    ZONAL_TRY(zonal__sized_check(LOSS_SIZED, given));
    zonal__loss_initial(given->discrepancy, given->kernel.family, full);
    return zonal__sized_read(LOSS_SIZED, given, full);
}

zonal_status zonal__objective_read(const zonal_objective_options *given,
                                   zonal_objective_options *full) {
    size_t room;
    ZONAL_TRY(zonal__sized_check(OBJECTIVE_SIZED, given));
    room = given->size - offsetof(zonal_objective_options, loss);
    if (given->loss.size > room)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a zonal_objective_options of size %zu cannot hold loss options of size "
                          "%zu; begin with zonal_objective_defaults, which sets both",
                          given->size, given->loss.size);
    memcpy(full, given, offsetof(zonal_objective_options, loss));
    full->size = sizeof *full;
    return zonal__loss_read(&given->loss, &full->loss);
}

zonal_status zonal_loss_defaults(const char *method, zonal_loss_options *options) {
    zonal_loss_options full;
    ZONAL_NEED(method, "method");
    ZONAL_NEED(options, "options");
    ZONAL_TRY(zonal__sized_check(LOSS_SIZED, options));
    ZONAL_TRY(zonal__method_find(method, &full));
    return zonal__sized_write(LOSS_SIZED, &full, options);
}

double zonal__usual_lambda(zonal_discrepancy discrepancy) {
    return discrepancy == ZONAL_DISCREPANCY_KL ? 0.5 : 0.05;
}

double zonal__usual_selectivity(zonal_discrepancy discrepancy, zonal_family family, int64_t dim) {
    if (discrepancy == ZONAL_DISCREPANCY_SUSREG) return 20;
    return family == ZONAL_FAMILY_BAND ? 10 * (double)dim / 256 : 10;
}

zonal_status zonal_objective_defaults(const char *method, zonal_objective_options *options) {
    zonal_objective_options full = {.size = sizeof full};
    ZONAL_NEED(method, "method");
    ZONAL_NEED(options, "options");
    ZONAL_TRY(zonal__sized_check(OBJECTIVE_SIZED, options));
    ZONAL_TRY(zonal__method_find(method, &full.loss));
    full.lambda = zonal__usual_lambda(full.loss.discrepancy);
    full.loss.size = options->size - offsetof(zonal_objective_options, loss);
    return zonal__sized_write(OBJECTIVE_SIZED, &full, options);
}

/* ---- setting by name ------------------------------------------------------------------------- */

/* Sets one option in *full, of which the caller has "size" bytes. */
static zonal_status set_one(const zonal__option *table, const char *name, const char *text,
                            const zonal_loss_options *loss, size_t size, void *full) {
    zonal__option entry;
    ZONAL_TRY(zonal__option_find(table, name, &entry));
    if (entry.target >= size)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "%s is newer than the headers that the program was built with; build it "
                          "with those of zonal %s",
                          entry.name, zonal_version());
    if ((unsigned)loss->discrepancy > ZONAL_DISCREPANCY_SIGREG ||
        !zonal__family_of(loss->kernel.family))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the options name no discrepancy and kernel; begin with their defaults");
    if (!zonal__loss_uses(loss, entry.name)) return fail_unused(loss, entry.name);
    return zonal__option_set(table, name, text, full);
}

zonal_status zonal_loss_set(zonal_loss_options *options, const char *name, const char *text) {
    zonal_loss_options full;
    ZONAL_NEED(options, "options");
    ZONAL_NEED(name, "name");
    ZONAL_NEED(text, "text");
    ZONAL_TRY(zonal__loss_read(options, &full));
    ZONAL_TRY(set_one(loss_table, name, text, &full, options->size, &full));
    return zonal__sized_write(LOSS_SIZED, &full, options);
}

zonal_status zonal_objective_set(zonal_objective_options *options, const char *name,
                                 const char *text) {
    zonal_objective_options full;
    size_t loss_size;
    ZONAL_NEED(options, "options");
    ZONAL_NEED(name, "name");
    ZONAL_NEED(text, "text");
    ZONAL_TRY(zonal__objective_read(options, &full));
    loss_size = options->loss.size;
    ZONAL_TRY(set_one(objective_table, name, text, &full.loss,
                      offsetof(zonal_objective_options, loss) + loss_size, &full));
    full.loss.size = loss_size;
    return zonal__sized_write(OBJECTIVE_SIZED, &full, options);
}

/* ---- the list for bindings ------------------------------------------------------------------- */

const char *zonal_loss_option_name(int i) {
    zonal__option entry;
    return zonal__option_entry(loss_table, i, &entry) ? entry.name : NULL;
}

const char *zonal_loss_option_help(int i) {
    zonal__option entry;
    return zonal__option_entry(loss_table, i, &entry) ? entry.help : NULL;
}

const char *zonal_objective_option_name(int i) {
    zonal__option entry;
    return zonal__option_entry(objective_table, i, &entry) ? entry.name : NULL;
}

const char *zonal_objective_option_help(int i) {
    zonal__option entry;
    return zonal__option_entry(objective_table, i, &entry) ? entry.help : NULL;
}

/* ---- options as one text --------------------------------------------------------------------- */

static zonal_status set_loss(void *options, const char *name, const char *text) {
    return zonal_loss_set(options, name, text);
}

static zonal_status set_objective(void *options, const char *name, const char *text) {
    return zonal_objective_set(options, name, text);
}

zonal_status zonal_plan_make_with(const zonal_communicator *communicator, const char *method,
                                  const char *options, int64_t rows, int64_t dim,
                                  zonal_plan **plan) {
    const char *seen[ZONAL__OPTIONS_MOST + 1];
    zonal_loss_options loss = ZONAL_LOSS_OPTIONS_INIT;
    char *text = NULL;
    ZONAL_NEED(plan, "plan");
    *plan = NULL;
    zonal_status status = zonal_loss_defaults(method, &loss);
    if (status == ZONAL_OK) status = zonal__options_set_text(options, set_loss, &loss, seen, &text);
    loss.communicator = communicator;
    status = zonal__plan_create_from(&loss, status, rows, dim, plan);
    zonal__free(text);
    return status;
}

zonal_status zonal_plan_make(const char *method, const char *options, int64_t rows, int64_t dim,
                             zonal_plan **plan) {
    return zonal_plan_make_with(NULL, method, options, rows, dim, plan);
}

/* One of gain, margin and selectivity sets the gain. */
static zonal_status check_gain(const char *const *seen) {
    int count = 0;
    for (; *seen; seen++)
        count += strcmp(*seen, "gain") == 0 || strcmp(*seen, "margin") == 0 ||
                 strcmp(*seen, "selectivity") == 0;
    if (count <= 1) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT, "gain, margin and selectivity all set the weight of "
                                      "uniformity; give one of them");
}

zonal_status zonal_objective_make_with(const zonal_communicator *communicator, const char *method,
                                       const char *options, int64_t views, int64_t global_views,
                                       int64_t rows, int64_t dim, zonal_objective **objective) {
    const char *seen[ZONAL__OPTIONS_MOST + 1];
    zonal_objective_options full = ZONAL_OBJECTIVE_OPTIONS_INIT;
    char *text = NULL;
    ZONAL_NEED(objective, "objective");
    *objective = NULL;
    zonal_status status = zonal_objective_defaults(method, &full);
    if (status == ZONAL_OK)
        status = zonal__options_set_text(options, set_objective, &full, seen, &text);
    if (status == ZONAL_OK) status = check_gain(seen);
    full.loss.communicator = communicator;
    status = zonal__objective_create_from(&full, status, views, global_views, rows, dim, objective);
    zonal__free(text);
    return status;
}

zonal_status zonal_objective_make(const char *method, const char *options, int64_t views,
                                  int64_t global_views, int64_t rows, int64_t dim,
                                  zonal_objective **objective) {
    return zonal_objective_make_with(NULL, method, options, views, global_views, rows, dim,
                                     objective);
}

static zonal_status set_kernel(void *spec, const char *name, const char *text) {
    const zonal_loss_options loss = {.size = sizeof loss, .kernel = *(zonal_kernel_spec *)spec};
    zonal__option entry;
    ZONAL_TRY(zonal__option_find(kernel_table, name, &entry));
    if (!zonal__loss_uses(&loss, entry.name))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the %s kernel has no use for %s; leave it out",
                          zonal_family_name(loss.kernel.family), name);
    return zonal__option_set(kernel_table, name, text, spec);
}

/* With log phi where the kernel is positive, without it where it is not. */
static zonal_status create_with_log(zonal_kernel_spec *spec, int64_t dim, zonal_kernel **kernel) {
    zonal_status status;
    spec->log_profile = 1;
    status = zonal_kernel_create(spec, dim, kernel);
    if (status != ZONAL_ARGUMENT) return status;
    spec->log_profile = 0;
    return zonal_kernel_create(spec, dim, kernel);
}

zonal_status zonal_kernel_make(const char *family, const char *options, int64_t dim,
                               zonal_kernel **kernel) {
    const char *seen[ZONAL__OPTIONS_MOST + 1];
    zonal_kernel_spec spec = {0};
    zonal_status status;
    char *text;
    ZONAL_NEED(kernel, "kernel");
    *kernel = NULL;
    ZONAL_NEED(family, "family");
    ZONAL_TRY(zonal_family_parse(family, &spec.family));
    status = zonal__options_set_text(options, set_kernel, &spec, seen, &text);
    if (status == ZONAL_OK) status = create_with_log(&spec, dim, kernel);
    zonal__free(text);
    return status;
}
