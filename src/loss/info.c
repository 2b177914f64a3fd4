/*
 * What is known of a plan, an objective or a kernel, by name: for bindings that do not know the
 * structs.
 */
#include <stdio.h>
#include <string.h>

#include "core/text.h"
#include "loss/family.h"
#include "loss/objective.h"
#include "loss/options.h"
#include "loss/plan.h"

/* What lies at the offset. */
typedef enum kind { NUMBER, WHOLE, BYTES, COUNT, TEXT, POINTER, WORD, FAMILY } kind;

typedef struct property {
    const char *name;
    kind kind;
    size_t at;
    const char *const *words; /* WORD: by the enumeration's numbers */
} property;

#define OF_PLAN(field)      offsetof(zonal_plan_info, field)
#define OF_OBJECTIVE(field) offsetof(zonal_objective_info, field)
#define OF_KERNEL(field)    offsetof(zonal_kernel_constants, field)

static const property of_plans[] = {
    {"bias", NUMBER, OF_PLAN(bias), NULL},
    {"norm", NUMBER, OF_PLAN(norm), NULL},
    {"derivative", NUMBER, OF_PLAN(derivative), NULL},
    {"anisotropy", NUMBER, OF_PLAN(anisotropy), NULL},
    {"fit-error", NUMBER, OF_PLAN(fit_error), NULL},
    {"scratch-bytes", BYTES, OF_PLAN(scratch_bytes), NULL},
    {"batch", WHOLE, OF_PLAN(batch), NULL},
    {"dim", WHOLE, OF_PLAN(dim), NULL},
    {"parameter", NUMBER, OF_PLAN(parameter), NULL},
    {"kernel", TEXT, OF_PLAN(kernel), NULL},
    {"family", FAMILY, OF_PLAN(family), NULL},
    {"implementation", WORD, OF_PLAN(implementation), zonal__implementation_words},
    {"precision", WORD, OF_PLAN(precision), zonal__precision_words},
    {"dtype", WORD, OF_PLAN(dtype), zonal__dtype_words},
    {"backend", POINTER, OF_PLAN(backend), NULL},
    {"device", TEXT, OF_PLAN(device), NULL},
    {"rows", WHOLE, OF_PLAN(rows), NULL},
    {"first-row", WHOLE, OF_PLAN(first_row), NULL},
};
static const property of_objectives[] = {
    {"gain", NUMBER, OF_OBJECTIVE(gain), NULL},
    {"k", NUMBER, OF_OBJECTIVE(k), NULL},
    {"threshold", NUMBER, OF_OBJECTIVE(threshold), NULL},
    {"margin", NUMBER, OF_OBJECTIVE(margin), NULL},
    {"anisotropy", NUMBER, OF_OBJECTIVE(anisotropy), NULL},
    {"selectivity", NUMBER, OF_OBJECTIVE(selectivity), NULL},
};
static const property of_kernels[] = {
    {"bias", NUMBER, OF_KERNEL(bias), NULL},
    {"log-bias", NUMBER, OF_KERNEL(log_bias), NULL},
    {"mmd-norm", NUMBER, OF_KERNEL(mmd_norm), NULL},
    {"ksd-norm", NUMBER, OF_KERNEL(ksd_norm), NULL},
    {"kl-norm", NUMBER, OF_KERNEL(kl_norm), NULL},
    {"kl-norm-paper", NUMBER, OF_KERNEL(kl_norm_paper), NULL},
    {"log-area", NUMBER, OF_KERNEL(log_area), NULL},
    {"derivative", NUMBER, OF_KERNEL(derivative), NULL},
    {"curvature", NUMBER, OF_KERNEL(curvature), NULL},
    {"degrees", COUNT, OF_KERNEL(degrees), NULL},
    {"nodes", COUNT, OF_KERNEL(nodes), NULL},
};
enum {
    PLANS = sizeof of_plans / sizeof of_plans[0],
    OBJECTIVES = sizeof of_objectives / sizeof of_objectives[0],
    KERNELS = sizeof of_kernels / sizeof of_kernels[0],
    MOST = PLANS + OBJECTIVES
};

static int find(const property *list, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0) return i;
    return -1;
}

/* The i-th property of an objective: its own, then those of its plan that it does not have itself.
 */
static int objective_property(int i, property *out) {
    for (int k = 0; k < MOST; k++) {
        if (k < OBJECTIVES) {
            *out = of_objectives[k];
        } else {
            *out = of_plans[k - OBJECTIVES];
            out->at += OF_OBJECTIVE(plan);
            if (find(of_objectives, OBJECTIVES, out->name) >= 0) continue;
        }
        if (i-- == 0) return 1;
    }
    return 0;
}

static int plan_property(int i, property *out) {
    if (i < 0 || i >= PLANS) return 0;
    *out = of_plans[i];
    return 1;
}

static int kernel_property(int i, property *out) {
    if (i < 0 || i >= KERNELS) return 0;
    *out = of_kernels[i];
    return 1;
}

typedef int lister(int i, property *out);

static zonal_status choose(lister *list, const char *name, int wants_text, property *out) {
    const char *names[MOST + 1] = {0}, *near;
    for (int i = 0; list(i, out); i++) {
        int is_text = out->kind >= TEXT;
        names[i] = out->name;
        if (strcmp(out->name, name) != 0) continue;
        if (is_text == wants_text) return ZONAL_OK;
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s is a %s; call the function for those", name,
                          is_text ? "text" : "number");
    }
    near = zonal__text_nearest(name, names);
    return ZONAL_FAIL(ZONAL_ARGUMENT, "there is nothing called \"%.60s\"; did you mean \"%s\"?",
                      name, near ? near : names[0]);
}

static double number_at(const void *info, const property *p) {
    const void *at = (const char *)info + p->at;
    if (p->kind == WHOLE) return (double)*(const int64_t *)at;
    if (p->kind == COUNT) return *(const int *)at;
    return p->kind == BYTES ? (double)*(const size_t *)at : *(const double *)at;
}

static const char *text_at(const void *info, const property *p) {
    const void *at = (const char *)info + p->at;
    if (p->kind == TEXT) return at;
    if (p->kind == POINTER) return *(const char *const *)at;
    return p->kind == WORD ? p->words[*(const int *)at]
                           : zonal_family_name(*(const zonal_family *)at);
}

const char *zonal_plan_info_name(int i) {
    property p;
    return plan_property(i, &p) ? p.name : NULL;
}

const char *zonal_objective_info_name(int i) {
    property p;
    return i >= 0 && objective_property(i, &p) ? p.name : NULL;
}

const char *zonal_kernel_constant_name(int i) {
    property p;
    return kernel_property(i, &p) ? p.name : NULL;
}

zonal_status zonal_kernel_get(const zonal_kernel *kernel, const char *name, double *number) {
    zonal_kernel_constants constants = ZONAL_KERNEL_CONSTANTS_INIT;
    property p;
    ZONAL_NEED(kernel, "kernel");
    ZONAL_NEED(name, "name");
    ZONAL_NEED(number, "number");
    ZONAL_TRY(choose(kernel_property, name, 0, &p));
    ZONAL_TRY(zonal_kernel_constants_get(kernel, &constants));
    *number = number_at(&constants, &p);
    return ZONAL_OK;
}

zonal_status zonal_plan_get(const zonal_plan *plan, const char *name, double *number) {
    property p;
    ZONAL_NEED(plan, "plan");
    ZONAL_NEED(name, "name");
    ZONAL_NEED(number, "number");
    ZONAL_TRY(choose(plan_property, name, 0, &p));
    *number = number_at(zonal__plan_info(plan), &p);
    return ZONAL_OK;
}

zonal_status zonal_plan_get_text(const zonal_plan *plan, const char *name, const char **text) {
    property p;
    ZONAL_NEED(text, "text");
    *text = NULL;
    ZONAL_NEED(plan, "plan");
    ZONAL_NEED(name, "name");
    ZONAL_TRY(choose(plan_property, name, 1, &p));
    *text = text_at(zonal__plan_info(plan), &p);
    return ZONAL_OK;
}

zonal_status zonal_objective_get(const zonal_objective *objective, const char *name,
                                 double *number) {
    property p;
    ZONAL_NEED(objective, "objective");
    ZONAL_NEED(name, "name");
    ZONAL_NEED(number, "number");
    ZONAL_TRY(choose(objective_property, name, 0, &p));
    *number = number_at(zonal__objective_info(objective), &p);
    return ZONAL_OK;
}

zonal_status zonal_objective_get_text(const zonal_objective *objective, const char *name,
                                      const char **text) {
    property p;
    ZONAL_NEED(text, "text");
    *text = NULL;
    ZONAL_NEED(objective, "objective");
    ZONAL_NEED(name, "name");
    ZONAL_TRY(choose(objective_property, name, 1, &p));
    *text = text_at(zonal__objective_info(objective), &p);
    return ZONAL_OK;
}
