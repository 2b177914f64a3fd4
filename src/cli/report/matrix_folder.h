/*
 * The folder that a matrix of runs works in (matrix_run.h), and what is found there.
 */
#ifndef ZONAL_CLI_REPORT_MATRIX_FOLDER_H
#define ZONAL_CLI_REPORT_MATRIX_FOLDER_H

#include "reproduce/matrix.h"

enum { ZONAL__FOLDER_PATH = ZONAL__MATRIX_PATH + ZONAL__CELL_NAME + 64 };

/* FOLDER/PART/NAME and an ending. A folder's name was checked by zonal__folder_make. */
void zonal__folder_path(const char *folder, const char *part, const char *name, const char *ending,
                        char path[ZONAL__FOLDER_PATH]);

/* The pack of a family of textures, of the size and number that the options say. */
void zonal__folder_pack(const char *folder, const char *family, const zonal__assignments *options,
                        char path[ZONAL__FOLDER_PATH]);

/* Makes the folder, its parts, and the recipes. */
zonal_status zonal__folder_make(const char *folder, const zonal__matrix *matrix);
/* Waits a while for whoever works there; ZONAL_IO where it takes too long. Children inherit the
 * lock, so it is free only once they have ended. */
zonal_status zonal__folder_lock(const char *folder, int *lock);

/* Whether a run has a checkpoint to go on from; *logged: the bytes of its metrics; *seconds: how
 * long it has been trained. */
int zonal__folder_begun(const char *folder, const char *cell, int64_t *logged, double *seconds);
int64_t zonal__folder_logged(const char *folder, const char *cell);

/* Removes a run that has no checkpoint; nothing else. */
zonal_status zonal__folder_remove_run(const char *folder, const char *cell);
void zonal__folder_remove_checkpoints(const char *folder, const char *cell);

/* What a cell's children have said last, for a sentence. */
void zonal__folder_last_line(const char *folder, const char *cell, char *out, size_t size);

#endif
