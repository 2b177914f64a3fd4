/* All that is asked of oneDNN: nn_onednn.h. */
#include "backend/cpu/nn_onednn.h"

#if defined(ZONAL_HAVE_ONEDNN) && defined(_OPENMP)

#include <oneapi/dnnl/dnnl.h>

int zonal__onednn_multiply(const zonal__cpu_product *p) {
    return dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', p->m, p->n, p->k, 1,
                      p->a, p->lda, p->b, p->ldb, (float)p->beta, p->c, p->ldc) == dnnl_success;
}

#else

int zonal__onednn_multiply(const zonal__cpu_product *p) {
    (void)p;
    return 0;
}

#endif
