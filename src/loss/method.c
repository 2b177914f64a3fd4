/*
 * Methods by name: a discrepancy and a kernel, with the defaults of the paper and of the design.
 */
#include <string.h>

#include "core/text.h"
#include "zonal/loss.h"

static const struct method {
    const char *name;
    zonal_discrepancy discrepancy;
    zonal_family family;
} methods[] = {
    {"mmd-heat", ZONAL_MMD, ZONAL_HEAT},         {"mmd-band", ZONAL_MMD, ZONAL_BAND},
    {"mmd-induced", ZONAL_MMD, ZONAL_INDUCED},   {"mmd-poisson", ZONAL_MMD, ZONAL_POISSON},
    {"mmd-chordal", ZONAL_MMD, ZONAL_CHORDAL},   {"mmd-spectrum", ZONAL_MMD, ZONAL_SPECTRUM},
    {"ksd-heat", ZONAL_KSD, ZONAL_HEAT},         {"ksd-band", ZONAL_KSD, ZONAL_BAND},
    {"ksd-induced", ZONAL_KSD, ZONAL_INDUCED},   {"ksd-poisson", ZONAL_KSD, ZONAL_POISSON},
    {"ksd-spectrum", ZONAL_KSD, ZONAL_SPECTRUM}, {"kl-heat", ZONAL_KL, ZONAL_HEAT},
    {"kl-induced", ZONAL_KL, ZONAL_INDUCED},     {"kl-poisson", ZONAL_KL, ZONAL_POISSON},
    {"kl-spectrum", ZONAL_KL, ZONAL_SPECTRUM},   {"susreg", ZONAL_SUSREG, ZONAL_INDUCED},
    {"sigreg", ZONAL_SIGREG, ZONAL_INDUCED},
};
enum { METHODS = sizeof methods / sizeof methods[0] };

const char *zonal_method_name(int i) {
    return i >= 0 && i < METHODS ? methods[i].name : NULL;
}

zonal_status zonal_loss_defaults(const char *method, zonal_loss_options *options) {
    const char *names[METHODS + 1] = {0};
    ZONAL_NEED(method, "method");
    ZONAL_NEED(options, "options");
    for (int i = 0; i < METHODS; i++) {
        names[i] = methods[i].name;
        if (strcmp(method, methods[i].name) != 0) continue;
        int sliced = methods[i].discrepancy >= ZONAL_SUSREG;
        int lejepa = methods[i].discrepancy == ZONAL_SIGREG;
        *options = (zonal_loss_options){
            .discrepancy = methods[i].discrepancy,
            .kernel = {.family = methods[i].family},
            .precision = ZONAL_FP32,
        };
        if (sliced)
            options->sliced = (zonal_sliced_options){.slices = 1024,
                                                     .knots = 17,
                                                     .low = lejepa ? 0 : -5,
                                                     .high = lejepa ? 3 : 5,
                                                     .times_n = lejepa,
                                                     .collapse_normalised = !lejepa};
        return ZONAL_OK;
    }
    const char *nearest = zonal__text_nearest(method, names);
    if (nearest)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "unknown method '%s'; did you mean '%s'?", method,
                          nearest);
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "unknown method '%s'; methods are mmd-, ksd- or kl- with heat, induced, "
                      "poisson or spectrum, mmd-band, ksd-band, mmd-chordal, susreg and sigreg",
                      method);
}
