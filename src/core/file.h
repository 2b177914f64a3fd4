/*
 * Output files that appear whole or not at all.
 *
 *     zonal__file *file;
 *     ZONAL_TRY(zonal__file_create("G.npy", &file));
 *     zonal__file_write(file, data, bytes);          failures are remembered ...
 *     zonal__file_print(file, "%d rows\n", n);
 *     return zonal__file_commit(file);               ... and reported here
 *
 * The bytes go to a temporary beside the target (G.npy.tmp.PID-N) which takes the target's name
 * only after everything, including the flush to the disk, has succeeded. A full disk, a crash or
 * Ctrl-C therefore leaves the old file as it was. When the target is a link to a regular file, the
 * file it leads to is replaced; the mode bits of a file that is replaced are kept, and one that may
 * not be written is not replaced. A target that exists and is not a regular file (/dev/null, a
 * named pipe) is written directly.
 *
 * After the rename the folder is flushed too, without which a loss of power could take the name
 * back.
 *
 * A zonal__file belongs to one thread at a time; different files may be written by different
 * threads.
 */
#ifndef ZONAL_CORE_FILE_H
#define ZONAL_CORE_FILE_H

#include <stddef.h>

#include "core/error.h"

typedef struct zonal__file zonal__file;

/* Starts writing to "path". Sets *out to NULL on failure: ZONAL_IO with a sentence that names the
 * path, or ZONAL_MEMORY. The file must be ended by commit or abandon. */
zonal_status zonal__file_create(const char *path, zonal__file **out);

/* The same in a folder that others may have put things into: where the target is a link, or exists
 * and is not a regular file, it is refused. */
zonal_status zonal__file_create_plain(const char *path, zonal__file **out);

/* Opens a file of such a folder: open(2) with these flags (mode 0666) that follows no link in the
 * last part of the path and waits for nobody. ZONAL_IO for a link and for what is not a regular
 * file; *descriptor is -1 on failure. */
zonal_status zonal__file_open_plain(const char *path, int flags, int *descriptor);

/* Both return the first failure of this file, now or earlier, so that the result of all but the
 * commit may be ignored. */
zonal_status zonal__file_write(zonal__file *file, const void *data, size_t bytes);
__attribute__((format(printf, 2, 3))) zonal_status zonal__file_print(zonal__file *file,
                                                                     const char *format, ...);

/* Ends the file, in every case: flushes, gives it its name and releases "file". On failure the
 * temporary is gone and the target is untouched, unless it was the last flush, of the folder.
 * Accepts NULL (then fails with ZONAL_ARGUMENT). */
zonal_status zonal__file_commit(zonal__file *file);

/* Ends the file and removes what was written. Accepts NULL. */
void zonal__file_abandon(zonal__file *file);

/* For files that grow: appends all bytes in one write to a descriptor opened with O_APPEND, or
 * nothing. Returns 0, or the errno; the file is then as it was before. */
int zonal__file_append(int descriptor, const void *bytes, size_t n);

/* The length of TARGET in a temporary's name, TARGET.tmp.PID-N; 0: the name is of no temporary. */
size_t zonal__file_temporary_of(const char *name);

/* Waits until what was made, renamed or removed in a folder is on the disk. ZONAL_IO where the disk
 * fails; a file system that cannot do it is no failure. */
zonal_status zonal__file_sync_folder(const char *path);

/* Removes the temporaries of all files in flight. Async-signal-safe: meant for a signal handler
 * that ends the process. Files still open fail at their commit. */
void zonal__file_abandon_all(void);

#endif
