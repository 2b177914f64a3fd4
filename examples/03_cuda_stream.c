/*
 * A loss on the GPU: the rows, the value and the gradient are device memory, and the work goes to a
 * stream of yours. Nothing waits until the value is wanted. Ends with status 77 and a reason where
 * there is no GPU.
 *
 *     cc 03_cuda_stream.c $(pkg-config --cflags --libs zonal) -lcudart -lm -o 03_cuda_stream
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <zonal/zonal.h>

enum { B = 256, D = 64, SKIPPED = 77 };

static float rows[B * D];

static int fail(const char *what) {
    fprintf(stderr, "03_cuda_stream: %s\n", what);
    return 1;
}

int main(void) {
    const size_t bytes = sizeof rows;
    float *x = NULL, *gradient = NULL;
    double *value = NULL, found = NAN;
    cudaStream_t stream;
    zonal_plan *plan;
    zonal_status status = zonal_plan_make("mmd-heat", "device=cuda", B, D, &plan);

    if (status == ZONAL_DEVICE || status == ZONAL_UNSUPPORTED) {
        printf("skipped: %s\n", zonal_last_error()->message);
        return SKIPPED;
    }
    if (status != ZONAL_OK) return fail(zonal_last_error()->message);
    srand(1);
    for (int i = 0; i < B * D; i++)
        rows[i] = (i % D == 0) + 0.3f * ((float)rand() / (float)RAND_MAX - 0.5f);
    if (cudaStreamCreate(&stream) != cudaSuccess || cudaMalloc((void **)&x, bytes) != cudaSuccess ||
        cudaMalloc((void **)&gradient, bytes) != cudaSuccess ||
        cudaMalloc((void **)&value, sizeof *value) != cudaSuccess ||
        cudaMemcpyAsync(x, rows, bytes, cudaMemcpyHostToDevice, stream) != cudaSuccess)
        return fail("no memory or stream on the device");

    zonal_plan_set_stream(plan, stream);
    if (zonal_plan_execute(plan, x, value, gradient) != ZONAL_OK) /* enqueues, does not wait */
        return fail(zonal_last_error()->message);
    cudaMemcpyAsync(&found, value, sizeof found, cudaMemcpyDeviceToHost, stream);
    if (zonal_plan_status(plan) != ZONAL_OK) /* waits, and says if a row was bad */
        return fail(zonal_last_error()->message);
    if (cudaStreamSynchronize(stream) != cudaSuccess) return fail("the stream failed");
    printf("D = %.6f\n", found);

    zonal_plan_destroy(plan);
    cudaFree(x);
    cudaFree(gradient);
    cudaFree(value);
    cudaStreamDestroy(stream);
    return found > 0.5 && found < 1 ? 0 : 1;
}
