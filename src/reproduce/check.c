#include "reproduce/check.h"

#include <stdio.h>

#include "core/memory.h"
#include "core/safetensors.h"
#include "train/training.h"

/* The packs of textures are made later; opened by their family they are as many, at no cost. */
static zonal_status set_data(const zonal__matrix *matrix, const zonal__cell *cell,
                             zonal__training *training) {
    const zonal__matrix_set *set = &matrix->set[cell->set];
    char textures[64];
    if (!matrix->experiment->textures) return zonal__training_set(training, "data", set->path);
    snprintf(textures, sizeof textures, "textures:%s", set->set->name);
    return zonal__training_set(training, "data", textures);
}

/* Which network the weights fit is not known yet. */
static zonal_status check_init(const char *path) {
    zonal__safetensors *file;
    if (!path) return ZONAL_OK;
    ZONAL_TRY(zonal__safetensors_open(path, ZONAL__SAFETENSORS_ANY, &file));
    zonal__safetensors_close(file);
    return ZONAL_OK;
}

static zonal_status put_together(const zonal__matrix *matrix, const zonal__cell *cell,
                                 const char *device, zonal__training *training) {
    ZONAL_TRY(zonal__training_init(training));
    ZONAL_TRY(zonal__cell_read(matrix, cell, &training->options, &training->config));
    ZONAL_TRY(set_data(matrix, cell, training));
    if (device && !zonal__assigned(&cell->options, "device"))
        ZONAL_TRY(zonal__training_set(training, "device", device));
    ZONAL_TRY(zonal__training_open(training));
    ZONAL_TRY(zonal__training_open_online(training));
    return check_init(training->settings.init);
}

static zonal_status explain(const zonal__matrix *matrix, const zonal__cell *cell) {
    zonal_error inner = *zonal_last_error(); /* a copy: the sentence is about to change */
    char title[ZONAL__CELL_NAME];
    zonal__cell_title(matrix, cell, title, sizeof title);
    return ZONAL_FAIL(inner.status, "%s would fail: %.600s%s", title, inner.message,
                      inner.status == ZONAL_ARGUMENT
                          ? " (options of zonal train go into --options KEY=VALUE)"
                          : "");
}

static zonal_status check_cell(const zonal__matrix *matrix, const zonal__cell *cell,
                               const char *device) {
    zonal__training *training; /* too large for the stack */
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&training, 1, "the settings of a cell"));
    status = put_together(matrix, cell, device, training);
    if (status != ZONAL_OK) status = explain(matrix, cell);
    zonal__training_close(training);
    zonal__free(training);
    return status;
}

/* The first cell of this data set and method that has no record; the others differ in nothing but
 * the seed. NULL: all have one. */
static const zonal__cell *first_to_run(const zonal__matrix *matrix, const zonal__records *records,
                                       int64_t number) {
    for (; number < matrix->count; number += (int64_t)matrix->sets * matrix->methods)
        if (!zonal__matrix_record(matrix, &matrix->cell[number], records))
            return &matrix->cell[number];
    return NULL;
}

zonal_status zonal__matrix_check(const zonal__matrix *matrix, const zonal__records *records,
                                 const char *device) {
    for (int64_t i = 0; i < (int64_t)matrix->sets * matrix->methods; i++) {
        const zonal__cell *cell = first_to_run(matrix, records, i);
        if (cell) ZONAL_TRY(check_cell(matrix, cell, device));
    }
    return ZONAL_OK;
}
