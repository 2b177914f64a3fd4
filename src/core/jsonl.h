/*
 * JSON lines: a file that grows by one JSON object per line, and survives crashes.
 *
 *     zonal__jsonl *metrics;
 *     ZONAL_TRY(zonal__jsonl_truncate_after(path, "step", checkpoint_step));   on resume
 *     ZONAL_TRY(zonal__jsonl_open(path, &metrics));
 *     ...
 *     ZONAL_TRY(zonal__json_finish(&json, &text));
 *     ZONAL_TRY(zonal__jsonl_append(metrics, text));
 *     ...
 *     ZONAL_TRY(zonal__jsonl_sync(metrics));                                   before a checkpoint
 *     zonal__jsonl_close(metrics);
 *
 * Each line goes out in one write to a file opened for appending, so a process that is killed
 * leaves whole lines behind. A machine that loses its power may leave half a line, or zeros: what
 * was appended after the last sync. Synchronise before a checkpoint is written, and what is lost or
 * spoiled belongs to steps after it, which zonal__jsonl_truncate_after removes.
 */
#ifndef ZONAL_CORE_JSONL_H
#define ZONAL_CORE_JSONL_H

#include <stdint.h>

#include "core/error.h"

typedef struct zonal__jsonl zonal__jsonl;

/* Opens a file for appending, and makes it when it is not there; a link is not followed. *out is
 * NULL on failure: ZONAL_IO, ZONAL_MEMORY, or ZONAL_FORMAT for a file whose last line has no end.
 */
zonal_status zonal__jsonl_open(const char *path, zonal__jsonl **out);

/* Appends one JSON value as one line: newlines, which in JSON are layout only, and the blanks after
 * them are left out. When the write fails (ZONAL_IO) the file is as it was before. */
zonal_status zonal__jsonl_append(zonal__jsonl *jsonl, const char *json);

/* Waits until all lines are on the disk. */
zonal_status zonal__jsonl_sync(zonal__jsonl *jsonl);
void zonal__jsonl_close(zonal__jsonl *jsonl); /* accepts NULL */

/* Cuts the file off before the first line whose whole number "key" is larger than "value", or that
 * is unfinished or no JSON object. Lines without the key are kept. No file is no failure.
 * ZONAL_FORMAT, and nothing is cut, when a line with a number up to "value" would be lost, or when
 * a line is damaged and none before it has the number "value" itself: lines up to that number were
 * synchronised, so it is another file. With a negative value nothing was, and an unfinished end is
 * cut off all the same. ZONAL_IO, and nothing is cut, for a link. */
zonal_status zonal__jsonl_truncate_after(const char *path, const char *key, int64_t value);

#endif
