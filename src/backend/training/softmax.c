/* What ref and cpu share: softmax.h. */
#include "backend/training/softmax.h"

zonal_status zonal__softmax_check(const zonal__softmax_spec *spec) {
    if (spec->dim < 1 || spec->dim >= INT32_MAX)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "a classifier needs features of 1 to 2^31 - 2 elements, "
                          "got %lld",
                          (long long)spec->dim);
    if (spec->classes < 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a classifier needs at least 2 classes, got %d",
                          spec->classes);
    return ZONAL_OK;
}
