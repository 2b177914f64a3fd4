/*
 * The training objective: two views of 64 samples, alignment against uniformity, and 300 steps of
 * gradient descent on the embeddings themselves. The views begin close to one point, where training
 * would collapse if the gain were below the threshold f*; here it is twice that.
 *
 *     cc 02_objective.c $(pkg-config --cflags --libs zonal) -lm -o 02_objective
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <zonal/zonal.h>

enum { V = 2, B = 64, D = 16 };

static float z[V * B * D], gradient[V * B * D];

static int fail(void) {
    fprintf(stderr, "02_objective: %s\n", zonal_last_error()->message);
    return 1;
}

static float noise(float size) {
    return size * ((float)rand() / (float)RAND_MAX - 0.5f);
}

int main(void) {
    zonal_objective_options options = ZONAL_OBJECTIVE_OPTIONS_INIT;
    zonal_objective_info info = ZONAL_OBJECTIVE_INFO_INIT;
    zonal_objective_parts parts = {0};
    zonal_objective *objective;

    /* What the views of a sample share, and what each has for itself. */
    srand(1);
    for (int i = 0; i < B * D; i++) {
        float shared = (i % D == 0) + noise(0.2f);
        for (int v = 0; v < V; v++) z[v * B * D + i] = shared + noise(0.05f);
    }

    if (zonal_objective_defaults("mmd-heat", &options) != ZONAL_OK ||
        zonal_objective_set(&options, "lambda", "0.1") != ZONAL_OK ||
        zonal_objective_set(&options, "margin", "2") != ZONAL_OK ||
        zonal_objective_create(&options, V, V, B, D, &objective) != ZONAL_OK)
        return fail();
    if (zonal_objective_info_get(objective, &info) != ZONAL_OK) return fail();
    printf("kernel %s\n", info.plan.kernel);
    printf("gain %.4f, collapse threshold %.4f, margin %.1f\n", info.gain, info.threshold,
           info.margin);
    for (int step = 0; step <= 300; step++) {
        if (zonal_objective_execute(objective, z, &parts, gradient) != ZONAL_OK) return fail();
        if (step % 100 == 0)
            printf("step %3d  L = %.6f, alignment %.6f, D = %.6f\n", step, parts.total,
                   parts.invariance, parts.discrepancy);
        for (int i = 0; i < V * B * D; i++) z[i] -= 20.0f * gradient[i];
    }
    zonal_objective_destroy(objective);
    return parts.discrepancy < 0.2 && parts.invariance < 0.2 ? 0 : 1;
}
