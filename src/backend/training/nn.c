/* What every device asks of a layer before it makes or runs it: backend/training/nn.h. */
#include "backend/training/nn.h"

/* Of images and kernels; keeps sums of sides and paddings within an int. */
enum { LONGEST_SIDE = 1 << 20 };

static int has_window(const zonal__layer_spec *spec) {
    return spec->kind == ZONAL__LAYER_CONVOLUTION || spec->kind == ZONAL__LAYER_MAX_POOL ||
           spec->kind == ZONAL__LAYER_NORM_POOL || spec->kind == ZONAL__LAYER_PRODUCT_NORM;
}

static int has_weight(const zonal__layer_spec *spec) {
    return spec->kind == ZONAL__LAYER_CONVOLUTION || spec->kind == ZONAL__LAYER_LINEAR ||
           spec->kind == ZONAL__LAYER_PRODUCT_NORM;
}

static zonal_status check_options(const zonal__layer_spec *spec) {
    if (spec->kind < ZONAL__LAYER_CONVOLUTION || spec->kind > ZONAL__LAYER_PRODUCT_NORM)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no kind %d of layers", (int)spec->kind);
    if (spec->activation < ZONAL__ACTIVATION_NONE || spec->activation > ZONAL__ACTIVATION_GELU)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no activation %d; use none, relu or gelu",
                          (int)spec->activation);
    if (spec->dtype != ZONAL_DTYPE_FP32 && spec->dtype != ZONAL_DTYPE_BF16)
        return ZONAL_FAIL(ZONAL_DTYPE, "layers compute in fp32 or bf16, not in type %d",
                          (int)spec->dtype);
    if (spec->communicator && spec->all_n < spec->n)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "all ranks together have at least this one's %lld images, not %lld",
                          (long long)spec->n, (long long)spec->all_n);
    if (spec->threads < 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "the number of threads must not be negative, got %d",
                          spec->threads);
    if (!(spec->epsilon >= 0 && spec->epsilon <= 1))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the epsilon of a batch norm must lie between 0 (for 1e-5) and 1, got %g",
                          (double)spec->epsilon);
    if (!(spec->momentum >= 0 && spec->momentum <= 1))
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the momentum of a batch norm must lie between 0 (for 0.1) and 1, got %g",
                          (double)spec->momentum);
    if (spec->kind == ZONAL__LAYER_NORM_POOL &&
        (spec->residual || spec->activation == ZONAL__ACTIVATION_GELU))
        return ZONAL_FAIL(
            ZONAL_ARGUMENT,
            "a batch norm with a max pool takes relu or no activation, and no residual; use "
            "a batch norm and a max pool one after the other");
    return ZONAL_OK;
}

static zonal_status check_input(const zonal__layer_spec *spec) {
    if (spec->n < 1 || spec->h < 1 || spec->w < 1 || spec->channels < 1)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "a layer's input of %lld x %d x %d with %d channels is empty; each must "
                          "be at least 1",
                          (long long)spec->n, spec->h, spec->w, spec->channels);
    if (spec->h > LONGEST_SIDE || spec->w > LONGEST_SIDE)
        return ZONAL_FAIL(ZONAL_SHAPE, "a layer's input of %d x %d pixels is longer than %d",
                          spec->h, spec->w, LONGEST_SIDE);
    if (has_weight(spec) && spec->out_channels < 1)
        return ZONAL_FAIL(ZONAL_SHAPE, "a layer must have at least 1 output channel, got %d",
                          spec->out_channels);
    if (spec->kind == ZONAL__LAYER_LINEAR && (spec->h != 1 || spec->w != 1))
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "a linear layer takes rows, not %d x %d pixels; pool them first, or use "
                          "a convolution of kernel 1",
                          spec->h, spec->w);
    return ZONAL_OK;
}

static zonal_status check_window(const zonal__layer_spec *spec) {
    int shorter = spec->h < spec->w ? spec->h : spec->w;
    if (spec->kernel < 1 || spec->kernel > LONGEST_SIDE || spec->stride < 1)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "kernel %d and stride %d must be at least 1, the kernel at most %d",
                          spec->kernel, spec->stride, LONGEST_SIDE);
    if (spec->pad < 0 || spec->pad >= spec->kernel)
        return ZONAL_FAIL(
            ZONAL_SHAPE,
            "padding %d must lie between 0 and %d, below the kernel: beyond, a window "
            "would see nothing of the input",
            spec->pad, spec->kernel - 1);
    if (spec->kernel > shorter + 2 * spec->pad)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "a kernel of %d is larger than its input of %d x %d padded by %d; use "
                          "larger images or fewer strides before it",
                          spec->kernel, spec->h, spec->w, spec->pad);
    return ZONAL_OK;
}

/* Counts of elements are int64_t, and arrays of doubles of them must be addressable. */
static zonal_status check_count(const char *what, int64_t a, int64_t b, int64_t c, int64_t d) {
    int64_t count;
    if (__builtin_mul_overflow(a, b, &count) || __builtin_mul_overflow(count, c, &count) ||
        __builtin_mul_overflow(count, d, &count) ||
        __builtin_mul_overflow(count, (int64_t)sizeof(double), &count))
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "a layer's %s of %lld x %lld x %lld x %lld elements is too large to "
                          "address; use a smaller batch, images or width",
                          what, (long long)a, (long long)b, (long long)c, (long long)d);
    return ZONAL_OK;
}

static int side_of(const zonal__layer_spec *spec, int side) {
    return (side + 2 * spec->pad - spec->kernel) / spec->stride + 1;
}

zonal_status zonal__layer_shape(const zonal__layer_spec *spec, int *out_h, int *out_w,
                                int *out_channels) {
    int h = spec->h, w = spec->w, channels = has_weight(spec) ? spec->out_channels : spec->channels;
    ZONAL_TRY(check_options(spec));
    ZONAL_TRY(check_input(spec));
    ZONAL_TRY(check_count("input", spec->n, spec->h, spec->w, spec->channels));
    if (has_window(spec)) {
        ZONAL_TRY(check_window(spec));
        h = side_of(spec, spec->h);
        w = side_of(spec, spec->w);
    }
    if (spec->kind == ZONAL__LAYER_MEAN_POOL) h = w = 1;
    ZONAL_TRY(check_count("output", spec->n, h, w, channels));
    if (has_weight(spec)) {
        int64_t kernel = spec->kind == ZONAL__LAYER_LINEAR ? 1 : spec->kernel;
        ZONAL_TRY(check_count("weight", channels, kernel, kernel, spec->channels));
    }
    *out_h = h;
    *out_w = w;
    *out_channels = channels;
    return ZONAL_OK;
}

zonal_status zonal__layer_check_forward(const zonal__layer_spec *spec, int training) {
    int normalises = spec->kind == ZONAL__LAYER_NORM || spec->kind == ZONAL__LAYER_NORM_POOL ||
                     spec->kind == ZONAL__LAYER_PRODUCT_NORM;
    if (training && normalises && zonal__layer_norm_elements(spec) == 1)
        return ZONAL_FAIL(
            ZONAL_SHAPE,
            "a batch norm cannot train on one value per channel, which has no variance; "
            "use a batch of at least 2");
    return ZONAL_OK;
}

zonal_status zonal__layer_check_backward(const zonal__layer_spec *spec) {
    if (spec->forward_only)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "the layer was made for forward only; make it with forward_only 0");
    return ZONAL_OK;
}

zonal_status zonal__layer_check_host(const zonal__layer_spec *spec) {
    if (spec->kind == ZONAL__LAYER_PRODUCT_NORM)
        return ZONAL_FAIL(ZONAL_UNSUPPORTED,
                          "the host has no product with a batch norm; use a convolution and a "
                          "batch norm one after the other");
    return ZONAL_OK;
}

void zonal__layer_complete(zonal__layer_spec *spec) {
    if (spec->epsilon == 0) spec->epsilon = 1e-5f;
    if (spec->momentum == 0) spec->momentum = 0.1f;
    if (spec->kind == ZONAL__LAYER_CONVOLUTION) spec->bias = 0;
    if (spec->kind == ZONAL__LAYER_LINEAR) {
        spec->kernel = spec->stride = 1;
        spec->pad = 0;
    }
}
