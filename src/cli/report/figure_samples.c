#include "cli/report/figure_samples.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/memory.h"
#include "data/codec.h"
#include "data/pack.h"
#include "data/sheet.h"
#include "reproduce/matrix.h"
#include "train/training.h"

enum { COLUMNS = 8, SIDE = 224, MARGIN = 8, WHITE = 255 };

/* One cell for each data set. Nothing is trained: the method is any. */
static const zonal__experiment experiment = {
    .name = "figure-samples",
    .methods = "mmd-band",
    .seeds = "0",
    .sets = "imagenet100,galaxy10,imagenette,efigi,cifar10,cifar100",
    .options = "",
    .variant = ""};

/* The training images, found as a training of that data set would find them. */
static zonal_status open_set(const zonal__matrix *matrix, const zonal__cell *cell,
                             zonal__source **source) {
    zonal__training *training; /* too large for the stack */
    zonal_status status;
    *source = NULL;
    ZONAL_TRY(ZONAL_NEW(&training, 1, "the settings of a data set"));
    status = zonal__training_init(training);
    if (status == ZONAL_OK)
        status = zonal__cell_read(matrix, cell, &training->options, &training->config);
    if (status == ZONAL_OK)
        status = zonal__training_set(training, "data", matrix->set[cell->set].path);
    if (status == ZONAL_OK)
        status = zonal__training_source(training, ZONAL__SPLIT_TRAIN, 0, source);
    zonal__training_close(training);
    zonal__free(training);
    return status;
}

/* The first image of the order that is of this class and has not been taken, else any other. */
static int64_t take(const zonal__source *source, int label, int64_t *order) {
    int64_t found = -1, number;
    for (int64_t i = 0; i < source->count; i++) {
        if (order[i] < 0) continue;
        if (found < 0) found = i;
        if (source->labels && source->labels[order[i]] != label) continue;
        found = i;
        break;
    }
    number = order[found];
    order[found] = -1;
    return number;
}

static zonal_status draw_numbers(const zonal__source *source, uint64_t seed,
                                 int64_t number[COLUMNS]) {
    int64_t *order;
    if (source->count < COLUMNS)
        return ZONAL_FAIL(ZONAL_SHAPE,
                          "%s has only %" PRId64
                          " training image%s, and a row has %d; give a larger set",
                          source->path, source->count, source->count == 1 ? "" : "s", COLUMNS);
    ZONAL_TRY(ZONAL_NEW(&order, source->count, "the order of the images"));
    zonal__order_shuffle(seed, 0, source->count, order);
    for (int k = 0; k < COLUMNS; k++)
        number[k] = take(source, k * source->classes / COLUMNS, order);
    zonal__free(order);
    return ZONAL_OK;
}

static zonal_status make_row(zonal__source *source, uint64_t seed, zonal__image row[COLUMNS]) {
    zonal__pack_scratch scratch = {0};
    zonal__image image = {0};
    int64_t number[COLUMNS];
    zonal_status status = draw_numbers(source, seed, number);
    for (int k = 0; k < COLUMNS && status == ZONAL_OK; k++) {
        status = zonal__source_read_sound(source, &number[k], &image);
        if (status == ZONAL_OK)
            status = zonal__pack_fit(&image, ZONAL__PACK_CENTER, SIDE, &scratch, &row[k]);
    }
    zonal__image_fini(&image);
    zonal__pack_scratch_fini(&scratch);
    return status;
}

static zonal_status make_rows(const zonal__matrix *matrix, uint64_t seed, zonal__image *sample) {
    for (int i = 0; i < matrix->sets; i++) {
        zonal__source *source;
        ZONAL_TRY(open_set(matrix, &matrix->cell[i], &source));
        zonal_status status = make_row(source, seed, sample + i * COLUMNS);
        zonal__source_close(source);
        ZONAL_TRY(status);
    }
    return ZONAL_OK;
}

static zonal_status draw(const zonal__matrix *matrix, const char *path, uint64_t seed) {
    const zonal__sheet_options options = {.columns = COLUMNS, .margin = MARGIN, .ground = WHITE};
    zonal__image sample[ZONAL__MATRIX_SETS * COLUMNS] = {0}, sheet = {0};
    int count = matrix->sets * COLUMNS;
    zonal_status status = make_rows(matrix, seed, sample);
    if (status == ZONAL_OK) status = zonal__sheet_make(sample, count, &options, &sheet);
    if (status == ZONAL_OK) status = zonal__image_write_png(path, &sheet);
    for (int i = 0; i < count; i++) zonal__image_fini(&sample[i]);
    zonal__image_fini(&sheet);
    return status;
}

zonal_status zonal__figure_samples(const char *folder, const char *data, uint64_t seed) {
    const zonal__matrix_request request = {
        .experiment = &experiment, .sets = data, .needs_paths = 1};
    zonal__matrix *matrix; /* too large for the stack */
    char path[4096];
    zonal_status status;
    if (snprintf(path, sizeof path, "%s/samples.png", folder) >= (int)sizeof path)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--out is too long a name; choose a shorter one");
    ZONAL_TRY(ZONAL_NEW(&matrix, 1, "the data sets"));
    status = zonal__matrix_init(matrix, &request);
    if (status == ZONAL_OK) status = draw(matrix, path, seed);
    zonal__matrix_fini(matrix);
    zonal__free(matrix);
    return status;
}
