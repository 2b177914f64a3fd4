/*
 * Small files read whole into memory.
 */
#ifndef ZONAL_CORE_FILE_READ_H
#define ZONAL_CORE_FILE_READ_H

#include <stddef.h>

#include "core/error.h"

/* Sets *text to the bytes of a regular file, followed by a zero byte, and *length to how many there
 * are; release it with zonal__free. ZONAL_IO when the file cannot be read, ZONAL_FORMAT when it has
 * more than "most" bytes, or ZONAL_MEMORY; *text is then NULL. */
zonal_status zonal__file_read(const char *path, size_t most, char **text, size_t *length);

/* The same of a file that is open for reading, from its beginning; "path" is for sentences. */
zonal_status zonal__file_read_open(int descriptor, const char *path, size_t most, char **text,
                                   size_t *length);

/* What to do about the errno of a file that could not be opened for reading, to end a sentence:
 * "; check the name". Empty where nothing is to be advised. */
const char *zonal__file_read_remedy(int error);

#endif
