/*
 * Convolutions on the GPU beyond what test_cuda_nn.c asks of every layer: the first layer, by
 * own kernels or with filled channels, and the autotuning cache. "speed" prints the times
 * of networks' layers. Skipped where there is no GPU, unless ZONAL_REQUIRE_GPU is set.
 */
#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "backend/device.h"
#include "gpu.h"
#include "nn_trial.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static char path[64];

static int no_gpu(void) {
    return gpu_is_missing(gpu_layers() != NULL);
}

/* n, side, other side, channels in and out, kernel, stride, pad */
static zonal__layer_spec spec_of(const int *c) {
    return LAYER_SPEC(CONVOLUTION, .n = c[0], .h = c[1], .w = c[2], .channels = c[3],
                      .out_channels = c[4], .kernel = c[5], .stride = c[6], .pad = c[7],
                      .dtype = ZONAL_DTYPE_BF16);
}

/* ---- the first layer ------------------------------------------------------------------------- */

/* 7 x 7: images smaller than a window; sides odd and even, multiples of 8 and not; a tile of
 * columns (112), one more, and several; output channels fewer and more than a block's 64, and a
 * number that own kernels do not; more tiles than there are blocks. The last one has more
 * images than a grid has places. */
static const int stems[][8] = {
    {3, 10, 12, 3, 16, 7, 2, 3}, {2, 8, 6, 1, 8, 7, 2, 3},      {2, 2, 2, 3, 8, 7, 2, 3},
    {1, 1, 1, 1, 8, 7, 2, 3},    {2, 9, 7, 3, 24, 7, 2, 3},     {1, 15, 33, 1, 64, 7, 2, 3},
    {5, 64, 32, 3, 64, 7, 2, 3}, {2, 2, 40, 1, 24, 7, 2, 3},    {1, 9, 224, 3, 64, 7, 2, 3},
    {2, 5, 226, 3, 8, 7, 2, 3},  {1, 4, 480, 1, 72, 7, 2, 3},   {1, 13, 531, 3, 136, 7, 2, 3},
    {2, 10, 12, 3, 33, 7, 2, 3}, {600, 16, 16, 3, 16, 7, 2, 3}, {3, 9, 7, 3, 16, 3, 1, 1},
    {2, 1, 1, 1, 8, 3, 1, 1},    {2, 28, 28, 1, 64, 3, 1, 1},   {2, 32, 32, 3, 33, 3, 1, 1},
    {65540, 2, 2, 1, 8, 7, 2, 3}};

static int is_own(const int *c) {
    return c[5] == 7 && c[4] % 8 == 0;
}

/* The 3 x 3 layer saves its filled images for backward; the others save nothing. */
static int is_filled(const int *c) {
    return c[5] == 3;
}

/* Sums are fp32. y and dx are rounded to bf16, where a sum next to a tie may go the other way. The
 * weight's gradient is rounded to bf16 by cuDNN (1.1e-3 in the mean square), twice when added up;
 * own kernels do not round it. */
static void test_stems(void) {
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(stems); i++) {
        trial got, want;
        int own = is_own(stems[i]);
        if (!trial_make(&got, gpu_layers(), spec_of(stems[i]))) continue;
        CHECK((gpu_layers()->saved_bytes(got.layer) > 0) == is_filled(stems[i]));
        if (trial_make(&want, zonal__nn_ref(), spec_of(stems[i]))) {
            for (int step = 0; step < 2; step++) {
                trial_fill_all(&got, step);
                trial_fill_all(&want, step);
                got.accumulate = want.accumulate = step;
                CHECK_OK(trial_forward(&got, 1));
                CHECK_OK(trial_forward(&want, 1));
                CHECK_OK(trial_backward(&got));
                CHECK_OK(trial_backward(&want));
                trial_check(&got, &want, Y, 1e-3, "stem");
                trial_check(&got, &want, DX, 1e-3, "stem");
                trial_check(&got, &want, DWEIGHT, own ? 1e-5 : 4e-3, "stem");
            }
            trial_drop(&want);
        }
        trial_drop(&got);
    }
}

static int64_t differing_nans(const trial *a, const trial *b, int array, int64_t *nans) {
    int64_t count = 0;
    for (int64_t i = 0; i < a->count[array]; i++) {
        count += isnan(a->wide[array][i]) != isnan(b->wide[array][i]);
        *nans += isnan(b->wide[array][i]) != 0;
    }
    return count;
}

/* One NaN in an image reaches the outputs whose windows have it, and through them the weights, and
 * no others: not those beside it that the kernels read along. */
static void check_nan(const int *c, int64_t place) {
    trial got, want;
    if (!trial_make(&got, gpu_layers(), spec_of(c))) return;
    if (trial_make(&want, zonal__nn_ref(), spec_of(c))) {
        int64_t nans = 0, outputs, weights;
        trial_fill_all(&got, 0);
        trial_fill_all(&want, 0);
        got.wide[X][place] = want.wide[X][place] = NAN;
        CHECK_OK(trial_forward(&got, 1));
        CHECK_OK(trial_forward(&want, 1));
        CHECK_OK(trial_backward(&got));
        CHECK_OK(trial_backward(&want));
        outputs = differing_nans(&got, &want, Y, &nans);
        weights = differing_nans(&got, &want, DWEIGHT, &nans);
        CHECK(nans > 0);
        CHECK_MSG(outputs == 0 && weights == 0,
                  "%d x %d x %d, a NaN at %lld: %lld outputs and %lld weights are wrong", c[1],
                  c[2], c[3], (long long)place, (long long)outputs, (long long)weights);
        trial_drop(&want);
    }
    trial_drop(&got);
}

/* Every number of one row of pixels in turn, edges included. */
static void test_stem_nans(void) {
    static const int cases[][8] = {{1, 6, 16, 3, 8, 7, 2, 3},
                                   {1, 5, 11, 3, 8, 7, 2, 3},
                                   {1, 6, 16, 1, 8, 7, 2, 3},
                                   {1, 5, 9, 1, 8, 7, 2, 3}};
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t row = cases[i][2] * cases[i][3];
        for (int64_t at = 0; at < row; at++) check_nan(cases[i], 2 * row + at);
    }
}

/* ---- the autotuning cache -------------------------------------------------------------------- */

static const int chosen[8] = {4, 13, 11, 24, 40, 3, 1, 1}; /* a shape that no other test has */

/* One step of the layer with the entries of the process; the outputs are in *t. After a failure
 * there is nothing to drop. */
static int step(trial *t) {
    if (!trial_make(t, gpu_layers(), spec_of(chosen))) return 0;
    trial_fill_all(t, 0);
    if (CHECK_OK(trial_forward(t, 1)) && CHECK_OK(trial_backward(t))) return 1;
    trial_drop(t);
    return 0;
}

static int64_t differing(const trial *a, const trial *b) {
    return trial_differing(a->count[Y], a->wide[Y], b->wide[Y]) +
           trial_differing(a->count[DX], a->wide[DX], b->wide[DX]) +
           trial_differing(a->count[DWEIGHT], a->wide[DWEIGHT], b->wide[DWEIGHT]);
}

/* Rewrites the file with "entry" for every key of the layer above. */
static int replace_entries(const char *entry) {
    static char lines[1 << 20];
    int replaced = 0;
    size_t length = 0;
    FILE *file = fopen(path, "r");
    if (!CHECK(file != NULL)) return 0;
    char line[1024];
    while (fgets(line, sizeof line, file)) {
        char *tab = strchr(line, '\t');
        if (tab && strstr(line, "4x13x11x24 to 40")) {
            snprintf(tab + 1, sizeof line - (size_t)(tab + 1 - line), "%s\n", entry);
            replaced++;
        }
        length += (size_t)snprintf(lines + length, sizeof lines - length, "%s", line);
    }
    fclose(file);
    file = fopen(path, "w");
    if (!CHECK(file != NULL)) return 0;
    CHECK(fwrite(lines, 1, length, file) == length);
    CHECK(fclose(file) == 0);
    return CHECK_MSG(replaced == 3, "%d entries of the layer in the file, not 3", replaced);
}

static void count_line(void *context, const char *line) {
    *(int *)context += strstr(line, "does not work here") != NULL;
}

static void compare(const trial *first, const char *when, int same_bits) {
    trial other;
    if (!step(&other)) return;
    trial_check(&other, first, Y, 1e-3, when);
    trial_check(&other, first, DX, 1e-3, when);
    trial_check(&other, first, DWEIGHT, 4e-3, when);
    if (same_bits >= 0) CHECK_MSG((differing(first, &other) == 0) == same_bits, "%s", when);
    trial_drop(&other);
}

/* What the file says is what is done: plain loops when it says so (which do not round the weight's
 * gradient to bf16, as cuDNN does), cuDNN's engines again when they are read back, with the bits
 * they had; and something that cannot be is measured anew. */
static void test_autotune_cache(void) {
    trial first;
    int lines = 0;
    char kept[80];
    if (no_gpu() || !step(&first)) return;
    snprintf(kept, sizeof kept, "%s.kept", path);
    CHECK_OK(gpu_training()->autotune_write(gpu_device(), kept));
    CHECK_OK(gpu_training()->autotune_write(gpu_device(), path));
    if (replace_entries("direct") && CHECK_OK(gpu_training()->autotune_read(gpu_device(), path)))
        compare(&first, "plain loops", 0);
    if (CHECK_OK(gpu_training()->autotune_read(gpu_device(), kept)))
        compare(&first, "read back", 1);
    zonal_set_log(count_line, &lines);
    if (replace_entries("cudnn 9999 1=1") &&
        CHECK_OK(gpu_training()->autotune_read(gpu_device(), path)))
        compare(&first, "measured anew", -1);
    zonal_set_log(NULL, NULL);
    CHECK_MSG(lines == 3, "%d lines in the log, not 3", lines);
    trial_drop(&first);
    remove(kept);
    remove(path);
}

/* ---- speed ----------------------------------------------------------------------------------- */

typedef struct timed {
    zonal__layer *layer;
    zonal__layer_arrays arrays;
    int backward;
} timed;

static zonal_status enqueue(void *context, void *stream) {
    timed *t = context;
    const zonal__nn_table *table = gpu_layers();
    table->set_stream(t->layer, stream);
    return t->backward ? table->backward(t->layer, &t->arrays)
                       : table->forward(t->layer, &t->arrays, 1);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* On zeros: the times are for looking at, the algorithms were chosen on random data. */
static void print_speed(const int *c, int first_layer) {
    const zonal__nn_table *table = gpu_layers();
    zonal__layer_spec spec = spec_of(c);
    timed t = {0};
    void *array[7] = {0};
    int h, w, k;
    double forward = 0, backward = 0, begin = seconds();
    CHECK_OK(zonal__layer_shape(&spec, &h, &w, &k));
    if (!CHECK_OK(table->create(&spec, &t.layer))) return;
    double made = seconds() - begin;
    size_t x = (size_t)spec.n * (size_t)(c[1] * c[2] * c[3]),
           y = (size_t)spec.n * (size_t)(h * w * k);
    size_t taps = (size_t)(c[5] * c[5] * c[3]), weight = taps * (size_t)k;
    size_t bytes[7] = {2 * x,
                       2 * x,
                       2 * y,
                       2 * weight,
                       4 * weight,
                       table->saved_bytes(t.layer) + 1,
                       table->scratch_bytes(t.layer) + 1};
    int good = 1;
    for (int i = 0; i < 7; i++)
        good = good && CHECK_OK(zonal__device_alloc(gpu_device(), bytes[i], "an array", &array[i]));
    t.arrays = (zonal__layer_arrays){.x = array[0],
                                     .dx = first_layer ? NULL : array[1],
                                     .y = array[2],
                                     .dy = array[2],
                                     .weight = array[3],
                                     .dweight = array[4],
                                     .saved = array[5],
                                     .scratch = array[6]};
    if (good && CHECK_OK(zonal__device_time(gpu_device(), enqueue, &t, 1, 2, 9, &forward))) {
        t.backward = 1;
        CHECK_OK(zonal__device_time(gpu_device(), enqueue, &t, 1, 2, 9, &backward));
        double tera = 2e-12 * (double)y * (double)taps;
        printf("# %3d x %3d x %4d to %4d, kernel %d stride %d: forward %7.1f us %4.0f TFLOP/s, "
               "backward %7.1f us %4.0f TFLOP/s, scratch %5.1f MiB, made in %.2f s\n",
               c[1], c[2], c[3], c[4], c[5], c[6], forward, tera / forward * 1e6, backward,
               (first_layer ? 1 : 2) * tera / backward * 1e6, (double)bytes[6] / (1 << 20), made);
    }
    for (int i = 0; i < 7; i++) zonal__device_free(gpu_device(), array[i]);
    table->destroy(t.layer);
}

/* ResNet-18 and ResNet-50 at 224 pixels, 512 views; the first ones are first layers. */
static void test_speed(void) {
    static const int firsts[][8] = {{512, 224, 224, 3, 64, 7, 2, 3},
                                    {512, 224, 224, 3, 32, 7, 2, 3},
                                    {512, 225, 225, 3, 64, 7, 2, 3},
                                    {512, 128, 128, 1, 64, 7, 2, 3},
                                    {512, 32, 32, 3, 64, 3, 1, 1}};
    static const int others[][8] = {
        {512, 56, 56, 64, 64, 3, 1, 1},    {512, 56, 56, 64, 128, 3, 2, 1},
        {512, 56, 56, 64, 128, 1, 2, 0},   {512, 28, 28, 128, 128, 3, 1, 1},
        {512, 28, 28, 128, 256, 3, 2, 1},  {512, 14, 14, 256, 256, 3, 1, 1},
        {512, 14, 14, 256, 512, 3, 2, 1},  {512, 7, 7, 512, 512, 3, 1, 1},
        {512, 56, 56, 64, 256, 1, 1, 0},   {512, 56, 56, 256, 64, 1, 1, 0},
        {512, 28, 28, 128, 512, 1, 1, 0},  {512, 28, 28, 512, 128, 1, 1, 0},
        {512, 14, 14, 256, 1024, 1, 1, 0}, {512, 14, 14, 1024, 256, 1, 1, 0},
        {512, 7, 7, 512, 2048, 1, 1, 0},   {512, 7, 7, 2048, 512, 1, 1, 0}};
    if (no_gpu()) return;
    for (size_t i = 0; i < COUNT(firsts); i++) print_speed(firsts[i], 1);
    for (size_t i = 0; i < COUNT(others); i++) print_speed(others[i], 0);
}

static const test_case tests[] = {{"stems", test_stems},
                                  {"stem_nans", test_stem_nans},
                                  {"autotune_cache", test_autotune_cache},
                                  {"speed", test_speed},
                                  {0}};

int main(int argc, char **argv) {
    snprintf(path, sizeof path, "/tmp/zonal-cuda-autotune-%ld.txt", (long)getpid());
    return test_main(argc, argv, tests);
}
