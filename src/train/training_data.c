/* Whether the images of a run are still what they were: zonal__training_check_data. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "train/run_folder.h"
#include "train/training.h"

enum { PARTS = 3 };

static void close_parts(zonal__data_part *parts, int count) {
    for (int i = 0; i < count; i++) zonal__source_close(parts[i].source);
}

/* The part that is trained on, and those for validation and test where the images have them. */
static zonal_status open_parts(const zonal__training *t, zonal__data_part parts[PARTS],
                               int *count) {
    const zonal__split own = (zonal__split)t->settings.split;
    const zonal__split splits[PARTS] = {own, ZONAL__SPLIT_VAL, ZONAL__SPLIT_TEST};
    *count = 0;
    for (int i = 0; i < PARTS; i++) {
        zonal__source *source;
        zonal_status status;
        if (i > 0 && splits[i] == own) continue;
        status = zonal__training_source(t, splits[i], 0, &source);
        if (status != ZONAL_OK && i > 0 && status != ZONAL_MEMORY) continue;
        if (status != ZONAL_OK) {
            close_parts(parts, *count);
            return status;
        }
        parts[(*count)++] = (zonal__data_part){zonal__split_words[splits[i]], source};
    }
    return ZONAL_OK;
}

zonal_status zonal__training_record(const zonal__training *t, zonal__data_record **record) {
    zonal__data_part parts[PARTS];
    int count;
    zonal_status status;
    *record = NULL;
    ZONAL_TRY(open_parts(t, parts, &count));
    status = zonal__data_record_make(parts, count, 0, record);
    close_parts(parts, count);
    return status;
}

zonal_status zonal__training_check_place(const zonal__training *t, const char *run) {
    const char *path = t->settings.data;
    if (!path || strncmp(path, "textures:", 9) == 0 || access(path, F_OK) == 0) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_IO,
                      "cannot read the images of %.200s: %s; they were at %.300s; where they have "
                      "been moved, give --data PATH",
                      run, strerror(errno), path);
}

zonal_status zonal__training_check_data(const zonal__training *t, const char *run,
                                        zonal__data_changes *changes) {
    zonal__data_part parts[PARTS];
    int count;
    zonal_status status;
    *changes = (zonal__data_changes){0};
    ZONAL_TRY(zonal__training_check_place(t, run));
    ZONAL_TRY(open_parts(t, parts, &count));
    status = zonal__run_folder_check_data(run, parts, count, changes);
    close_parts(parts, count);
    return status;
}

zonal_status zonal__training_refuse_changed(const char *run, const zonal__data_changes *changes) {
    return ZONAL_FAIL(ZONAL_IO,
                      "the images of %.200s are not those it was trained on: %.400s; put them "
                      "back, or give --changed-data allow",
                      run, changes->text);
}
