/*
 * TensorBoard's event files: numbers over steps, for the curves of a run.
 *
 *     zonal__event_file *file;
 *     ZONAL_TRY(zonal__event_file_truncate_after(old, step));          on resume, each old file
 *     ZONAL_TRY(zonal__event_file_create(path, step + 1, &file));
 *     ZONAL_TRY(zonal__event_file_add(file, step, 2, scalars));
 *     ZONAL_TRY(zonal__event_file_sync(file));
 *     zonal__event_file_close(file);
 *
 * The file is a sequence of records, all integers little-endian,
 *
 *     u64 length, u32 masked CRC-32C of those 8 bytes, length bytes, u32 masked CRC-32C of them,
 *     masked(c) = (c rotated by 15 bits to the right) + 0xa282ead8 modulo 2^32,
 *
 * and a record's bytes are a protocol buffer, of whose fields these are in use:
 *
 *     Event    1 wall_time: double    2 step: int64    3 file_version: string, "brain.Event:2"
 *              5 summary: Summary     7 session_log: SessionLog
 *     Summary  1 value: repeated Value        Value  1 tag: string    2 simple_value: float
 *     SessionLog  1 status: enum, 1 is START
 *
 * A record goes out in one write to a file opened for appending, so a process that is killed leaves
 * whole records behind. TensorBoard reads the files of a folder in the order of their names and
 * goes from one to the next at its end, never back: a run that goes on begins a new file. The event
 * START tells a TensorBoard that is running to forget the steps from there on.
 */
#ifndef ZONAL_CORE_EVENT_FILE_H
#define ZONAL_CORE_EVENT_FILE_H

#include <stdint.h>

#include "core/error.h"

typedef struct zonal__event_file zonal__event_file;

typedef struct zonal__scalar {
    const char *tag; /* "loss/total": up to the slash, the group of charts; at most 63 bytes */
    double value;    /* stored as a float */
} zonal__scalar;

enum { ZONAL__EVENT_SCALARS = 16 };

/* Makes a file that is not there yet; "step" is the first that it will have. *out is NULL on
 * failure: ZONAL_IO or ZONAL_MEMORY. */
zonal_status zonal__event_file_create(const char *path, int64_t step, zonal__event_file **out);

/* Appends the numbers of a step, 1 to ZONAL__EVENT_SCALARS of them. When the write fails (ZONAL_IO)
 * the file is as it was before. */
zonal_status zonal__event_file_add(zonal__event_file *file, int64_t step, int count,
                                   const zonal__scalar *scalars);

/* Waits until all records are on the disk. */
zonal_status zonal__event_file_sync(zonal__event_file *file);
void zonal__event_file_close(zonal__event_file *file); /* accepts NULL */

/* Cuts the file off before the first record of a later step, or that is unfinished or damaged. */
zonal_status zonal__event_file_truncate_after(const char *path, int64_t step);

#endif
