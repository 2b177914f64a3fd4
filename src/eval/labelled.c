/* Features with labels, and progress: labelled.h. */
#include "eval/labelled.h"

#include <math.h>

static int is_finite_row(int64_t dim, const float *row) {
    for (int64_t j = 0; j < dim; j++)
        if (!isfinite(row[j])) return 0;
    return 1;
}

zonal_status zonal__labelled_check(const zonal__labelled *set, int64_t dim, int classes,
                                   const char *name) {
    if (set->count < 1 || dim < 1)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "%s has %lld rows of %lld features; it needs at least 1 "
                          "of each",
                          name, (long long)set->count, (long long)dim);
    if (!set->labels)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s has no labels; classification needs them", name);
    if (set->label_count != set->count)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "%s has %lld rows of features but %lld labels; they must "
                          "come from the same samples",
                          name, (long long)set->count, (long long)set->label_count);
    if (classes < 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "classification needs at least 2 classes, got %d",
                          classes);
    for (int64_t i = 0; i < set->count; i++) {
        if (set->labels[i] < 0 || set->labels[i] >= classes)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "row %lld of %s has label %d, which is not one of the "
                              "%d classes",
                              (long long)i, name, (int)set->labels[i], classes);
        if (!is_finite_row(dim, set->x + i * dim))
            return ZONAL_FAIL(ZONAL_NUMERIC,
                              "row %lld of %s is not finite; fix its source or "
                              "remove it",
                              (long long)i, name);
    }
    return ZONAL_OK;
}

zonal_status zonal__eval_report(const zonal__eval_progress *progress, double share) {
    if (progress->report && progress->report(progress->context, share))
        return ZONAL_FAIL(ZONAL_CANCELLED, "stopped at %.0f %%", 100 * share);
    return ZONAL_OK;
}
