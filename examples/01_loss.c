/*
 * A loss and its gradient: 256 embeddings in 64 dimensions, MMD under the heat kernel, and 200
 * steps of gradient descent that spread them over the sphere.
 *
 *     cc 01_loss.c $(pkg-config --cflags --libs zonal) -lm -o 01_loss
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <zonal/zonal.h>

enum { B = 256, D = 64 };

static float z[B * D], gradient[B * D];

static int fail(void) {
    fprintf(stderr, "01_loss: %s\n", zonal_last_error()->message);
    return 1;
}

int main(void) {
    zonal_loss_options options = ZONAL_LOSS_OPTIONS_INIT;
    zonal_plan *plan;
    double value = 0, first = 0;

    /* Embeddings near collapse: one direction, and a little noise. */
    srand(1);
    for (int i = 0; i < B * D; i++)
        z[i] = (i % D == 0) + 0.3f * ((float)rand() / (float)RAND_MAX - 0.5f);

    if (zonal_loss_defaults("mmd-heat", &options) != ZONAL_OK) return fail();
    options.precision = ZONAL_PRECISION_FP32;
    if (zonal_plan_create(&options, B, D, &plan) != ZONAL_OK) return fail();
    for (int step = 0; step <= 200; step++) {
        if (zonal_plan_execute(plan, z, &value, gradient) != ZONAL_OK) return fail();
        if (step == 0) first = value;
        if (step % 50 == 0) printf("step %3d  D = %.6f\n", step, value);
        for (int i = 0; i < B * D; i++) z[i] -= 20.0f * gradient[i];
    }
    zonal_plan_destroy(plan);

    printf("uniform points would show about 1/B = %.6f\n", 1.0 / B);
    return isfinite(value) && value < 0.1 * first ? 0 : 1;
}
