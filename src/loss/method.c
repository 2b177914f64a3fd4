/*
 * Methods by name: a discrepancy and a kernel, with the defaults of the paper and of the design.
 */
#include <stdio.h>
#include <string.h>

#include "core/text.h"
#include "loss/family.h"
#include "loss/options.h"

typedef struct named_loss {
    const char *name;
    zonal_discrepancy discrepancy;
    zonal_family family;
} named_loss;

enum { METHODS = 3 * ZONAL__FAMILIES + 2 }; /* at most */

/* The discrepancies with each family that has them, then the sliced losses, whose limit is the
 * induced kernel's. Returns how many there are. */
static int list_methods(named_loss list[METHODS]) {
    int count = 0;
    for (int d = ZONAL_DISCREPANCY_MMD; d <= ZONAL_DISCREPANCY_KL; d++)
        for (int f = 0; f < ZONAL__FAMILIES; f++)
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
