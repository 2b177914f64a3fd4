/*
 * Times the layers of a ResNet-18 on the CPU, forward and backward, one after the other as a step
 * of training runs them: what bench/nn_torch.py is compared with.
 *
 *     nn_layers [--batch 128] [--side 64] [--threads 2] [--runs 5] [--bf16] [--verbose]
 *
 * Convolutions, norms (with relu and residual, the first one with its max pool), the mean pool and
 * the last linear layer, with the shapes, strides and order of torchvision's resnet18; arrays are
 * zeros and random numbers, for times do not depend on them. Prints one JSON line, the fastest of
 * the runs, and with --verbose a line per layer before it, the fastest of each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/training/nn.h"
#include "core/memory.h"

enum { MOST_LAYERS = 64 };

typedef struct bench_layer {
    zonal__layer_spec spec;
    zonal__layer *layer;
    zonal__layer_arrays arrays;
    double forward_ms, backward_ms;
} bench_layer;

typedef struct network {
    int batch, threads;
    zonal_dtype dtype;
    int layers;
    bench_layer layer[MOST_LAYERS];
    double bytes;
    double forward_ms, backward_ms; /* of the fastest run */
} network;

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static void *array(network *net, int64_t count, int narrow) {
    void *out;
    int64_t size = narrow && net->dtype == ZONAL_DTYPE_BF16 ? 2 : 4;
    if (zonal__alloc(count * size, 1, "an array", &out) != ZONAL_OK) {
        fprintf(stderr, "nn_layers: %s\n", zonal_last_error()->message);
        exit(1);
    }
    for (int64_t i = 0; i < count; i++) { /* about 1/2, with both signs */
        float value = (float)(i * 2654435761u % 1024) / 1024 - 0.5f;
        memcpy((char *)out + i * size, (char *)&value + (4 - size), (size_t)size);
    }
    net->bytes += (double)(count * size);
    return out;
}

static void give_arrays(network *net, bench_layer *own, int h, int w, int channels) {
    const zonal__layer_spec *spec = &own->spec;
    zonal__layer_arrays *a = &own->arrays;
    int64_t x = spec->n * spec->h * spec->w * spec->channels, y = spec->n * h * w * channels;
    int64_t taps = spec->kind == ZONAL__LAYER_LINEAR ? 1 : spec->kernel * spec->kernel;
    int64_t saved = (int64_t)zonal__nn_cpu()->saved_bytes(own->layer);
    int64_t scratch = (int64_t)zonal__nn_cpu()->scratch_bytes(own->layer);
    a->x = array(net, x, 1);
    a->y = array(net, y, 1);
    a->dy = array(net, y, 1);
    a->dx = net->layers == 0 ? NULL : array(net, x, 1);
    if (spec->residual) a->residual = array(net, y, 1), a->dresidual = array(net, y, 1);
    a->weight = array(net, channels * taps * spec->channels, 1);
    a->dweight = array(net, channels * taps * spec->channels, 0);
    a->bias = array(net, channels, 0);
    a->dbias = array(net, channels, 0);
    a->scale = array(net, channels, 0);
    a->dscale = array(net, channels, 0);
    a->running_mean = array(net, channels, 0);
    a->running_variance = array(net, channels, 0);
    a->saved = array(net, (saved + 3) / 4, 0);
    a->scratch = array(net, (scratch + 3) / 4, 0);
}

/* Appends a layer; returns the side of its output. */
static int append(network *net, zonal__layer_spec spec) {
    bench_layer *own = &net->layer[net->layers];
    int h = 0, w = 0, channels = 0;
    spec.n = net->batch;
    spec.w = spec.h;
    spec.dtype = net->dtype;
    spec.threads = net->threads;
    own->spec = spec;
    if (net->layers == MOST_LAYERS || zonal__layer_shape(&spec, &h, &w, &channels) != ZONAL_OK ||
        zonal__nn_cpu()->create(&spec, &own->layer) != ZONAL_OK) {
        fprintf(stderr, "nn_layers: %s\n", zonal_last_error()->message);
        exit(1);
    }
    give_arrays(net, own, h, w, channels);
    net->layers++;
    return h;
}

static int append_convolution(network *net, int side, int in, int out, int kernel, int stride) {
    return append(net, (zonal__layer_spec){.kind = ZONAL__LAYER_CONVOLUTION,
                                           .h = side,
                                           .channels = in,
                                           .out_channels = out,
                                           .kernel = kernel,
                                           .stride = stride,
                                           .pad = kernel / 2});
}

/* A convolution and its norm. */
static int append_pair(network *net, int side, int in, int out, int kernel, int stride, int relu,
                       int residual) {
    side = append_convolution(net, side, in, out, kernel, stride);
    return append(net, (zonal__layer_spec){.kind = ZONAL__LAYER_NORM,
                                           .h = side,
                                           .channels = out,
                                           .residual = residual,
                                           .activation = relu ? ZONAL__ACTIVATION_RELU
                                                              : ZONAL__ACTIVATION_NONE});
}

static void make_resnet18(network *net, int side) {
    int channels = 64;
    side = append_convolution(net, side, 3, 64, 7, 2);
    side = append(net, (zonal__layer_spec){.kind = ZONAL__LAYER_NORM_POOL,
                                           .h = side,
                                           .channels = 64,
                                           .activation = ZONAL__ACTIVATION_RELU,
                                           .kernel = 3,
                                           .stride = 2,
                                           .pad = 1});
    for (int stage = 0; stage < 4; stage++) {
        int out = 64 << stage;
        for (int block = 0; block < 2; block++) {
            int stride = stage > 0 && block == 0 ? 2 : 1;
            int after = append_pair(net, side, channels, out, 3, stride, 1, 0);
            append_pair(net, after, out, out, 3, 1, 1, 1);
            if (stride == 2) append_pair(net, side, channels, out, 1, 2, 0, 0);
            side = after;
            channels = out;
        }
    }
    append(net, (zonal__layer_spec){.kind = ZONAL__LAYER_MEAN_POOL, .h = side, .channels = 512});
    append(
        net,
        (zonal__layer_spec){
            .kind = ZONAL__LAYER_LINEAR, .h = 1, .channels = 512, .out_channels = 1000, .bias = 1});
}

static double run_layer(bench_layer *own, int backward) {
    double begin = now_ms(), ms, *best = backward ? &own->backward_ms : &own->forward_ms;
    zonal_status status = backward ? zonal__nn_cpu()->backward(own->layer, &own->arrays)
                                   : zonal__nn_cpu()->forward(own->layer, &own->arrays, 1);
    ms = now_ms() - begin;
    if (status != ZONAL_OK) {
        fprintf(stderr, "nn_layers: %s\n", zonal_last_error()->message);
        exit(1);
    }
    if (*best == 0 || ms < *best) *best = ms;
    return ms;
}

static void run_once(network *net) {
    double forward = 0, backward = 0;
    for (int i = 0; i < net->layers; i++) forward += run_layer(&net->layer[i], 0);
    for (int i = net->layers - 1; i >= 0; i--) backward += run_layer(&net->layer[i], 1);
    if (net->forward_ms > 0 && forward + backward >= net->forward_ms + net->backward_ms) return;
    net->forward_ms = forward;
    net->backward_ms = backward;
}

static void report(const network *net, int side, int verbose) {
    static const char *const names[] = {"convolution", "linear",    "norm",     "activation",
                                        "max pool",    "mean pool", "norm pool"};
    enum { KINDS = sizeof names / sizeof *names };
    double forward[KINDS] = {0}, backward[KINDS] = {0};
    for (int i = 0; i < net->layers; i++) {
        const bench_layer *own = &net->layer[i];
        forward[own->spec.kind] += own->forward_ms;
        backward[own->spec.kind] += own->backward_ms;
        if (verbose)
            printf("%-11s %3d px, %4d to %4d channels, kernel %d, stride %d: %8.2f %8.2f ms\n",
                   names[own->spec.kind], own->spec.h, own->spec.channels, own->spec.out_channels,
                   own->spec.kernel, own->spec.stride, own->forward_ms, own->backward_ms);
    }
    if (verbose)
        for (int k = 0; k < KINDS; k++)
            printf("%-11s forward %8.2f backward %8.2f ms\n", names[k], forward[k], backward[k]);
    printf("{\"batch\": %d, \"side\": %d, \"threads\": %d, \"dtype\": \"%s\", \"forward_ms\": "
           "%.1f, \"backward_ms\": %.1f, \"ms\": %.1f, \"array_mib\": %.0f}\n",
           net->batch, side, net->threads, net->dtype == ZONAL_DTYPE_BF16 ? "bf16" : "fp32",
           net->forward_ms, net->backward_ms, net->forward_ms + net->backward_ms,
           net->bytes / 1048576);
}

int main(int argc, char **argv) {
    static network net = {.batch = 128, .threads = 2, .dtype = ZONAL_DTYPE_FP32};
    int side = 64, runs = 5, verbose = 0;
    for (int i = 1; i < argc; i++) {
        int *number = strcmp(argv[i], "--batch") == 0     ? &net.batch
                      : strcmp(argv[i], "--side") == 0    ? &side
                      : strcmp(argv[i], "--threads") == 0 ? &net.threads
                      : strcmp(argv[i], "--runs") == 0    ? &runs
                                                          : NULL;
        if (strcmp(argv[i], "--bf16") == 0)
            net.dtype = ZONAL_DTYPE_BF16;
        else if (strcmp(argv[i], "--verbose") == 0)
            verbose = 1;
        else if (number && i + 1 < argc)
            *number = atoi(argv[++i]);
        else {
            fprintf(stderr, "usage: nn_layers [--batch N] [--side N] [--threads N] [--runs N] "
                            "[--bf16] [--verbose]\n");
            return 2;
        }
    }
    make_resnet18(&net, side);
    for (int run = 0; run < runs; run++) run_once(&net);
    report(&net, side, verbose);
    return 0;
}
