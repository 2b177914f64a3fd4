/* The classifier that is trained along with a network: backend/training/classifier.h. */
#include "backend/training/classifier.h"

static zonal_status create(const zonal__classifier_spec *spec, zonal__classifier **out) {
    return zonal__classifier_host_create(zonal__softmax_cpu(), spec, out);
}

const zonal__classifier_table *zonal__classifier_cpu(void) {
    static const zonal__classifier_table table = {.name = "cpu",
                                                  .create = create,
                                                  .destroy = zonal__classifier_host_destroy,
                                                  .gradient = zonal__classifier_host_gradient};
    return &table;
}
