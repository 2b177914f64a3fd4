/*
 * Training: a small network learns on textures, the same weights come out every time, and a run
 * that goes on from a checkpoint ends as one that was never interrupted.
 */
#include "backend/device.h"
#include "core/memory.h"
#include "failing_alloc.h"
#include "folder.h"
#include "setting.h"
#include "train/checkpoint.h"

static int prepare(setting *s, const char *method, zonal_dtype dtype) {
    return setting_open(s, &setting_small, method, dtype);
}

/* The loss falls: by how much differs between seeds, that it does not. KL's falls least, because it
 * is far from 0 for uniform points too. */
static void check_learns(const char *method) {
    setting s;
    zonal__trainer *t;
    zonal__metrics m;
    double first = 0, last = 0;
    if (!prepare(&s, method, ZONAL_DTYPE_FP32)) return;
    if (CHECK_OK(zonal__trainer_create(&s.options, &t))) {
        for (int i = 0; i < 30; i++) {
            if (!CHECK_OK(zonal__trainer_step(t)) || !CHECK_OK(zonal__trainer_metrics(t, &m)))
                break;
            CHECK(m.step == i && m.epoch == i / 4 && m.gradient_norm > 0);
            if (i < 5) first += m.loss.total / 5;
            if (i >= 25) last += m.loss.total / 5;
        }
        printf("# %-9s loss %.4f at the beginning, %.4f at the end\n", method, first, last);
        CHECK_MSG(last < 0.98 * first, "%s: %.4f, then %.4f", method, first, last);
    }
    zonal__trainer_destroy(t);
    zonal__source_close(s.source);
}

static void test_learns(void) {
    check_learns("mmd-heat");
    check_learns("kl-heat");
    check_learns("susreg");
}

static void test_same_every_time(void) {
    setting s;
    zonal__trainer *one = NULL, *other = NULL;
    for (int dtype = 0; dtype < 2; dtype++) {
        if (!prepare(&s, "mmd-heat", dtype ? ZONAL_DTYPE_BF16 : ZONAL_DTYPE_FP32)) return;
        s.options.threads = 1;
        CHECK_OK(zonal__trainer_create(&s.options, &one));
        s.options.threads = 2;
        s.options.loader.workers = 1;
        CHECK_OK(zonal__trainer_create(&s.options, &other));
        if (one && other && make_steps(one, 4) && make_steps(other, 4))
            CHECK_MSG(same_weights(one, other), "dtype %d differs by the number of threads", dtype);
        zonal__trainer_destroy(one);
        zonal__trainer_destroy(other);
        zonal__source_close(s.source);
    }
}

/* ---- what a step leaves ---------------------------------------------------------------------- */

/* The loss of the projections that the trainer shows is the loss that it reports: to the rounding
 * of the sums, or of z to bf16, which both have seen. */
static void check_projections(zonal_dtype dtype) {
    setting s;
    zonal__trainer *t = NULL;
    zonal__metrics m;
    zonal_objective *objective = NULL;
    zonal_objective_parts loss;
    float *z = NULL;
    if (!prepare(&s, "mmd-heat", dtype)) return;
    s.options.objective.loss.precision = ZONAL_PRECISION_FP32;
    if (CHECK_OK(zonal__trainer_create(&s.options, &t)) && make_steps(t, 2) &&
        CHECK(zonal__trainer_views(t) == 4 && zonal__trainer_steps_per_epoch(t) == 4) &&
        CHECK_OK(zonal__trainer_metrics(t, &m)) &&
        CHECK_OK(ZONAL_NEW(&z, 4 * 16 * 16, "projections")) &&
        CHECK_OK(zonal__trainer_projections(t, z)) &&
        CHECK_OK(zonal_objective_create(&s.options.objective, 4, 2, 16, 16, &objective)) &&
        CHECK_OK(zonal_objective_execute(objective, z, &loss, NULL))) {
        CHECK_CLOSE(loss.total, m.loss.total, 1e-6 * loss.total);
        CHECK(m.step == 1 && m.loss.gain == 16);
    }
    zonal__free(z);
    zonal_objective_destroy(objective);
    zonal__trainer_destroy(t);
    zonal__source_close(s.source);
}

static void test_projections(void) {
    check_projections(ZONAL_DTYPE_FP32);
    check_projections(ZONAL_DTYPE_BF16);
}

/* ---- without images ---------------------------------------------------------------------------
 */

/* The views are random numbers, which the test may overwrite. Nothing moves. */
static void fix_views(setting *s, const char *method, zonal_dtype dtype) {
    s->source = NULL;
    setting_fill(s, &setting_small, method, dtype);
    s->options.fixed_views = 1;
    s->options.optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_SGD);
    s->options.schedule = (zonal__schedule){.kind = ZONAL__SCHEDULE_CONSTANT, .total = 100};
}

static double distance(int64_t n, const float *a, const float *b) {
    double square = 0, error = 0;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        square += (double)b[i] * (double)b[i];
    }
    return sqrt(error / square);
}

/* ---- many views ------------------------------------------------------------------------------ */

enum { ROWS = 16, DIM = 16 }; /* of setting_small */

/* Rows of unit length, in double. */
static void unit_rows(int64_t rows, const float *z, double *x) {
    for (int64_t i = 0; i < rows; i++) {
        double square = 0;
        for (int j = 0; j < DIM; j++) square += (double)z[i * DIM + j] * (double)z[i * DIM + j];
        for (int j = 0; j < DIM; j++) x[i * DIM + j] = (double)z[i * DIM + j] / sqrt(square);
    }
}

/* The mean over images and views of |x - mu|^2, mu being the mean of an image's views. */
static double invariance(int views, const double *x) {
    double sum = 0;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < DIM; j++) {
            double mu = 0;
            for (int v = 0; v < views; v++) mu += x[(v * ROWS + i) * DIM + j] / views;
            for (int v = 0; v < views; v++) sum += pow(x[(v * ROWS + i) * DIM + j] - mu, 2);
        }
    return sum / (views * ROWS);
}

/* mmd-band of one view: the mean over all pairs of the kernel of degrees 1 and 2, by their
 * Gegenbauer polynomials c and (d c^2 - 1)/(d - 1), weighted by the multiplicities of the degrees.
 */
static double discrepancy(const double *x) {
    const double one = DIM, two = (DIM - 1) * (DIM + 2) / 2.;
    double sum = 0;
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < ROWS; k++) {
            double c = 0;
            for (int j = 0; j < DIM; j++) c += x[i * DIM + j] * x[k * DIM + j];
            sum += (one * c + two * (DIM * c * c - 1) / (DIM - 1)) / (one + two);
        }
    return sum / (ROWS * ROWS);
}

/* The loss is that of the formulas, on the projections that the trainer shows. */
static void check_formulas(zonal__trainer *t, int views) {
    static float z[16 * ROWS * DIM];
    static double x[16 * ROWS * DIM];
    double d = 0, aligned;
    zonal__metrics m;
    if (!CHECK_OK(zonal__trainer_projections(t, z)) || !CHECK_OK(zonal__trainer_metrics(t, &m)))
        return;
    unit_rows(views * ROWS, z, x);
    aligned = invariance(views, x);
    for (int v = 0; v < views; v++) d += discrepancy(x + v * ROWS * DIM) / views;
    CHECK_CLOSE(m.loss.invariance, aligned, 2e-6 * aligned);
    CHECK_CLOSE(m.loss.discrepancy, d, 2e-6 * d);
    CHECK_CLOSE(m.loss.total, .95 * aligned + .05 * m.loss.gain * d, 2e-6 * m.loss.total);
}

/* With V global views K is 1 - 1/V, and the threshold of the gain goes with it. */
static void check_threshold(const zonal_objective_options *options, int views) {
    zonal_objective_info two = ZONAL_OBJECTIVE_INFO_INIT, many = ZONAL_OBJECTIVE_INFO_INIT;
    if (CHECK_OK(zonal_objective_describe(options, 2, 2, ROWS, DIM, &two)) &&
        CHECK_OK(zonal_objective_describe(options, views, views, ROWS, DIM, &many)))
        CHECK_CLOSE(many.threshold / two.threshold, 2 * (1 - 1. / views), 1e-12);
}

/* 4, 8 or 16 global views and none local. The gradient of all weights is the reference's, to the
 * rounding of fp32 through some 20 layers, in which relu now and then changes a sign; a view left
 * out or counted twice would move it by more than a tenth. */
static void check_many_views(int views, int reference) {
    setting s;
    zonal__trainer *t = NULL, *ref = NULL;
    fix_views(&s, "mmd-band", ZONAL_DTYPE_FP32);
    s.options.threads = 1;
    s.options.loader.groups = 1;
    s.options.loader.group[0].views = views;
    s.options.loader.group[0].width = s.options.loader.group[0].height = 16;
    check_threshold(&s.options.objective, views);
    if (!CHECK_OK(zonal__trainer_create(&s.options, &t))) return;
    if (make_steps(t, 1)) check_formulas(t, views);
    if (reference && CHECK_OK(zonal__device_open("ref", &s.options.device)) &&
        CHECK_OK(zonal__trainer_create(&s.options, &ref)) && make_steps(ref, 1)) {
        double off =
            distance(t->model->graph.parameter_size, t->model->gradients, ref->model->gradients);
        printf("# %d views: the gradient is off by %.2g of the reference's\n", views, off);
        CHECK(off <= 1e-2);
    }
    zonal__trainer_destroy(t);
    zonal__trainer_destroy(ref);
}

static void test_many_views(void) {
    check_many_views(4, 0);
    check_many_views(8, 1);
    check_many_views(16, 0);
}

/* ---- two passes ------------------------------------------------------------------------------ */

/* The first "micro" images take the place of all others, view by view. */
static void repeat_images(zonal__trainer *t, int64_t micro) {
    int64_t batch = t->options.loader.batch;
    for (int g = 0; g < t->options.loader.groups; g++)
        for (int v = 0; v < t->options.loader.group[g].views; v++) {
            size_t bytes = t->groups[g].view_bytes;
            char *view = (char *)t->groups[g].fixed + (size_t)(v * batch) * bytes;
            for (int64_t i = micro; i < batch; i++)
                memcpy(view + (size_t)i * bytes, view + (size_t)(i % micro) * bytes, bytes);
        }
}

/* Global views with means b and local ones with c move running means r to .9 (.9 r + .1 b) + .1 c,
 * and four times that, from 0, is (1 - .81^4)/(1 - .81) of the first: each micro-batch counts once.
 * Returns the relative distance from this. */
static double means_apart(const zonal__trainer *parts, const zonal__trainer *whole) {
    const zonal__graph *graph = &whole->model->graph;
    double factor = (1 - pow(0.81, 4)) / (1 - 0.81), error = 0, square = 0;
    for (int e = 0; e < graph->entry_count; e++) {
        const zonal__entry *entry = &graph->entries[e];
        if (entry->kind != ZONAL__ENTRY_RUNNING_MEAN) continue;
        for (int64_t i = entry->offset; i < entry->offset + entry->count; i++) {
            double want = factor * (double)whole->model->statistics[i];
            double off = (double)parts->model->statistics[i] - want;
            error += off * off;
            square += want * want;
        }
    }
    return sqrt(error / square);
}

/* Where all micro-batches hold the same images, norms see the same statistics in each as in the
 * whole, so both ways have one loss and one gradient. In fp32 sums are in another order, and what
 * 20 layers make of that is 1e-5; in bf16 they agree where roundings do, which is nearly
 * everywhere: a micro-batch left out, or counted twice, is off by a quarter. */
static void check_micro_batches(zonal_dtype dtype, double tolerance) {
    setting s;
    zonal__trainer *whole = NULL, *parts = NULL;
    zonal__metrics a, b;
    fix_views(&s, "mmd-heat", dtype);
    CHECK_OK(zonal__trainer_create(&s.options, &whole));
    s.options.micro_batch = 4;
    CHECK_OK(zonal__trainer_create(&s.options, &parts));
    if (whole && parts) {
        const zonal__graph *graph = &whole->model->graph;
        repeat_images(whole, 4);
        repeat_images(parts, 4);
        if (make_steps(whole, 1) && make_steps(parts, 1) &&
            CHECK_OK(zonal__trainer_metrics(whole, &a)) &&
            CHECK_OK(zonal__trainer_metrics(parts, &b))) {
            double off =
                distance(graph->parameter_size, parts->model->gradients, whole->model->gradients);
            printf("# dtype %d: micro-batches' gradient is off by %.2g\n", (int)dtype, off);
            CHECK_CLOSE(b.loss.total, a.loss.total, tolerance * a.loss.total);
            CHECK_MSG(off <= tolerance, "dtype %d: the gradient is off by %.2g", (int)dtype, off);
            CHECK_CLOSE(means_apart(parts, whole), 0, tolerance);
            CHECK(whole->model->batches == 2 && parts->model->batches == 8);
        }
    }
    zonal__trainer_destroy(whole);
    zonal__trainer_destroy(parts);
}

/* Micro-batches that differ: the gradient is that of the loss they have together. Along itself the
 * loss changes by its norm; differences of fp32 losses over steps that short tell two digits. */
static void test_micro_batches_gradient(void) {
    setting s;
    zonal__trainer *t;
    zonal__metrics m, ahead, behind;
    fix_views(&s, "mmd-heat", ZONAL_DTYPE_FP32);
    s.options.micro_batch = 4;
    if (!CHECK_OK(zonal__trainer_create(&s.options, &t))) return;
    int64_t size = t->model->graph.parameter_size;
    float *first, *gradient;
    if (CHECK_OK(ZONAL_NEW(&first, size, "parameters")) &
            CHECK_OK(ZONAL_NEW(&gradient, size, "a gradient")) &&
        make_steps(t, 1) && CHECK_OK(zonal__trainer_metrics(t, &m))) {
        double h = 1e-3 / m.gradient_norm;
        memcpy(first, t->model->parameters, (size_t)size * sizeof *first);
        memcpy(gradient, t->model->gradients, (size_t)size * sizeof *first);
        for (int64_t i = 0; i < size; i++)
            t->model->parameters[i] = first[i] + (float)h * gradient[i];
        CHECK(make_steps(t, 2));
        CHECK_OK(zonal__trainer_metrics(t, &ahead));
        for (int64_t i = 0; i < size; i++)
            t->model->parameters[i] = first[i] - (float)h * gradient[i];
        CHECK(make_steps(t, 3));
        CHECK_OK(zonal__trainer_metrics(t, &behind));
        double difference = (ahead.loss.total - behind.loss.total) / (2 * h);
        double want = m.gradient_norm * m.gradient_norm;
        CHECK_CLOSE(difference, want, 0.03 * want);
    }
    zonal__free(first);
    zonal__free(gradient);
    zonal__trainer_destroy(t);
}

/* As many images at a time as there are is the ordinary way, bit for bit; a number that does not
 * divide them is refused. */
static void test_micro_batches(void) {
    setting s;
    zonal__trainer *whole = NULL, *one = NULL;
    check_micro_batches(ZONAL_DTYPE_FP32, 1e-4);
    check_micro_batches(ZONAL_DTYPE_BF16, 0.1);
    fix_views(&s, "kl-heat", ZONAL_DTYPE_FP32);
    s.options.schedule.base = 1e-2;
    CHECK_OK(zonal__trainer_create(&s.options, &whole));
    s.options.micro_batch = 16;
    CHECK_OK(zonal__trainer_create(&s.options, &one));
    if (whole && one && make_steps(whole, 3) && make_steps(one, 3))
        CHECK(same_weights(whole, one) && whole->model->batches == one->model->batches);
    zonal__trainer_destroy(whole);
    zonal__trainer_destroy(one);
    s.options.micro_batch = 5;
    CHECK_FAILS(zonal__trainer_create(&s.options, &one), ZONAL_ARGUMENT, "must divide");
    s.options.micro_batch = -1;
    CHECK_FAILS(zonal__trainer_create(&s.options, &one), ZONAL_ARGUMENT, "must divide");
}

/* ---- going on -------------------------------------------------------------------------------- */

/* "far" has the blocks read and written as if they did not lie in the host's memory. */
static void check_resumes(zonal__optimiser_kind kind, zonal_dtype dtype, int64_t micro, int far) {
    zonal__backend backend = *zonal__backend_cpu();
    const zonal__device elsewhere = {.backend = &backend, .name = "elsewhere"};
    test_folder folder;
    char path[800];
    setting s;
    zonal__trainer *whole = NULL, *begun = NULL, *resumed = NULL;
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "step.safetensors"));
    if (!prepare(&s, "mmd-heat", dtype)) return;
    backend.is_host = 0;
    s.options.optimiser = zonal__optimiser_defaults(kind);
    s.options.micro_batch = micro;
    CHECK_OK(zonal__trainer_create(&s.options, &whole));
    CHECK_OK(zonal__trainer_create(&s.options, &begun));
    CHECK_OK(zonal__trainer_create(&s.options, &resumed));
    if (whole && begun && resumed && make_steps(whole, 5) && make_steps(begun, 2)) {
        begun->device = resumed->device = far ? &elsewhere : zonal__device_cpu();
        CHECK_OK(zonal__checkpoint_save(begun, path));
        CHECK_OK(zonal__checkpoint_load(resumed, path));
        begun->device = resumed->device = zonal__device_cpu();
        CHECK(make_steps(resumed, 5));
        CHECK_MSG(same_weights(whole, resumed), "optimiser %d, dtype %d: another end", (int)kind,
                  (int)dtype);
        CHECK(whole->model->batches == resumed->model->batches);
    }
    zonal__trainer_destroy(whole);
    zonal__trainer_destroy(begun);
    zonal__trainer_destroy(resumed);
    zonal__source_close(s.source);
    test_folder_remove(&folder);
}

static void test_resumes(void) {
    check_resumes(ZONAL__OPTIMISER_ADAMW, ZONAL_DTYPE_FP32, 0, 0);
    check_resumes(ZONAL__OPTIMISER_ADAMW, ZONAL_DTYPE_BF16, 0, 1);
    check_resumes(ZONAL__OPTIMISER_SGD, ZONAL_DTYPE_FP32, 8, 0);
    check_resumes(ZONAL__OPTIMISER_LARS, ZONAL_DTYPE_FP32, 0, 1);
}

/* A checkpoint of another network or optimiser, one cut short, one with a flipped bit. */
static void test_wrong_checkpoints(void) {
    test_folder folder;
    char path[800];
    setting s;
    zonal__trainer *t = NULL, *other = NULL;
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "step.safetensors"));
    if (!prepare(&s, "mmd-heat", ZONAL_DTYPE_FP32)) return;
    CHECK_OK(zonal__trainer_create(&s.options, &t));
    if (t && make_steps(t, 1) && CHECK_OK(zonal__checkpoint_save(t, path))) {
        s.options.network.width = 0.25;
        if (CHECK_OK(zonal__trainer_create(&s.options, &other)))
            CHECK_FAILS(zonal__checkpoint_load(other, path), ZONAL_FORMAT, "width 0.25");
        zonal__trainer_destroy(other);
        s.options.network.width = 0.125;
        s.options.optimiser = zonal__optimiser_defaults(ZONAL__OPTIMISER_SGD);
        if (CHECK_OK(zonal__trainer_create(&s.options, &other)))
            CHECK_FAILS(zonal__checkpoint_load(other, path), ZONAL_FORMAT, "another optimiser");
        zonal__trainer_destroy(other);
        FILE *stream = fopen(path, "r+b");
        fseek(stream, -100, SEEK_END);
        fputc(fgetc(stream) ^ 1, (fseek(stream, -100, SEEK_END), stream));
        fclose(stream);
        CHECK_FAILS(zonal__checkpoint_load(t, path), ZONAL_FORMAT, "checksum");
        CHECK(truncate(path, 5000) == 0);
        CHECK_FAILS(zonal__checkpoint_load(t, path), ZONAL_FORMAT, path);
        CHECK(make_steps(t, 2)); /* it goes on as if nothing had been */
    }
    zonal__trainer_destroy(t);
    zonal__source_close(s.source);
    test_folder_remove(&folder);
}

static void test_refusals(void) {
    setting s;
    zonal__trainer *t;
    if (!prepare(&s, "mmd-heat", ZONAL_DTYPE_FP32)) return;
    s.options.loader.in_order = 1;
    CHECK_FAILS(zonal__trainer_create(&s.options, &t), ZONAL_ARGUMENT, "in_order");
    CHECK(t == NULL);
    s.options.loader.in_order = 0;
    s.options.loader.batch = 1;
    CHECK_FAILS(zonal__trainer_create(&s.options, &t), ZONAL_SHAPE, "");
    s.options.loader.batch = 16;
    s.options.schedule.total = 0;
    CHECK_FAILS(zonal__trainer_create(&s.options, &t), ZONAL_ARGUMENT, "");
    zonal__source_close(s.source);
}

/* Memory that runs out with the last thing to be made, the views: the sentence names the remedy. */
static void test_too_large(void) {
    setting s;
    zonal__trainer *t;
    int64_t calls;
    fix_views(&s, "mmd-heat", ZONAL_DTYPE_FP32);
    s.options.threads = 1;
    failing_alloc_install(-1, 0);
    CHECK_OK(zonal__trainer_create(&s.options, &t));
    zonal__trainer_destroy(t);
    calls = failing_alloc_calls();
    CHECK(failing_alloc_remove() == 0);
    failing_alloc_install(calls - 1, 0);
    CHECK_FAILS(zonal__trainer_create(&s.options, &t), ZONAL_MEMORY, "micro_batch below 16");
    CHECK(t == NULL && failing_alloc_remove() == 0);
}

/* A device that computes losses alone. */
static void test_no_layers(void) {
    zonal__backend backend = *zonal__backend_cpu();
    const zonal__device device = {.backend = &backend, .name = "plain"};
    setting s;
    zonal__trainer *t;
    backend.name = "plain";
    fix_views(&s, "mmd-heat", ZONAL_DTYPE_FP32);
    s.options.device = &device;
    CHECK_FAILS(zonal__trainer_create(&s.options, &t), ZONAL_UNSUPPORTED, "the device plain");
    CHECK(t == NULL);
}

/* Saved and loaded as if the blocks did not lie in the host's memory. */
static zonal_status save_and_load(zonal__trainer *t, const char *path) {
    zonal__backend backend = *zonal__backend_cpu();
    const zonal__device elsewhere = {.backend = &backend, .name = "elsewhere"};
    zonal_status status;
    backend.is_host = 0;
    t->device = &elsewhere;
    status = zonal__checkpoint_save(t, path);
    if (status == ZONAL_OK) status = zonal__checkpoint_load(t, path);
    t->device = zonal__device_cpu();
    return status;
}

/* Created, trained for a step, looked at, saved and loaded: "context" is the file. */
static zonal_status live_briefly(void *context) {
    setting s;
    zonal__trainer *t = NULL;
    float projections[2 * 4 * 16]; /* views, batch, dimensions */
    const zonal__source_options source = {
        .path = "textures:wood", .texture_count = 8, .texture_size = 16};
    zonal_status status = zonal__source_open(&source, &s.source);
    if (status == ZONAL_OK) {
        setting_fill(&s, &setting_small, "mmd-heat", ZONAL_DTYPE_BF16);
        s.options.network.width = 1.0 / 64;
        s.options.loader.batch = 4;
        s.options.loader.groups = 1;
        s.options.loader.group[0].width = s.options.loader.group[0].height = 8;
        s.options.micro_batch = 2;
        s.options.loader.workers = 1; /* so that the n-th allocation is nearly always the same */
        s.options.threads = 1;
        status = zonal__trainer_create(&s.options, &t);
    }
    if (status == ZONAL_OK) status = zonal__trainer_step(t);
    if (status == ZONAL_OK) status = zonal__trainer_projections(t, projections);
    if (status == ZONAL_OK) status = save_and_load(t, context);
    /* What fails in a worker is heard of with the next batch. */
    if (status == ZONAL_OK) status = zonal__trainer_step(t);
    zonal__trainer_destroy(t);
    zonal__source_close(s.source);
    return status;
}

static void test_allocations(void) {
    test_folder folder;
    char path[800];
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "step.safetensors"));
    test_every_allocation("a trainer", live_briefly, path);
    test_folder_remove(&folder);
}

typedef struct progress {
    double loaded, computed;
    int times, backwards; /* told; told less than before */
} progress;

static void take_progress(void *context, double loaded, double computed) {
    progress *p = context;
    p->backwards += computed < p->computed;
    p->loaded = loaded;
    p->computed = computed;
    p->times++;
}

/* What a trainer tells of a step on the way adds up to the whole of it, in one pass and in two,
 * also with views of two sizes. */
static void check_listens(int64_t micro, int groups) {
    setting s;
    zonal__trainer *t;
    if (!prepare(&s, "mmd-heat", ZONAL_DTYPE_FP32)) return;
    s.options.micro_batch = micro;
    if (groups == 2) {
        s.options.loader.groups = 2;
        s.options.loader.group[1] = s.options.loader.group[0];
        s.options.loader.group[1].width = s.options.loader.group[1].height = 12;
        s.options.loader.group[1].first = s.options.loader.group[0].views;
    }
    if (CHECK_OK(zonal__trainer_create(&s.options, &t))) {
        progress p = {0};
        zonal__trainer_listen(t, take_progress, &p);
        CHECK_OK(zonal__trainer_step(t));
        CHECK(p.loaded == 1 && p.times > 20 && p.backwards == 0);
        CHECK_MSG(p.computed > 1 - 1e-9, "%.12f of a step", p.computed);
        CHECK_OK(zonal__trainer_step(t));
        CHECK(p.backwards == 1 && p.computed > 1 - 1e-9); /* it began anew */
        p = (progress){0};
        zonal__trainer_listen(t, NULL, NULL);
        CHECK_OK(zonal__trainer_step(t));
        CHECK(p.times == 0);
    }
    zonal__trainer_destroy(t);
    zonal__source_close(s.source);
}

static void test_listens(void) {
    check_listens(0, 1);
    check_listens(4, 1);
    check_listens(0, 2);
}

static const test_case tests[] = {{"learns", test_learns},
                                  {"listens", test_listens},
                                  {"same_every_time", test_same_every_time},
                                  {"projections", test_projections},
                                  {"micro_batches", test_micro_batches},
                                  {"micro_batches_gradient", test_micro_batches_gradient},
                                  {"resumes", test_resumes},
                                  {"wrong_checkpoints", test_wrong_checkpoints},
                                  {"refusals", test_refusals},
                                  {"too_large", test_too_large},
                                  {"no_layers", test_no_layers},
                                  {"allocations", test_allocations},
                                  {"many_views", test_many_views},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
