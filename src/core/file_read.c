#include "core/file_read.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"

const char *zonal__file_read_remedy(int error) {
    if (error == ENOENT || error == ENOTDIR) return "; check the name";
    return error == EACCES ? "; ask its owner for it, or make it readable by chmod" : "";
}

static zonal_status cannot_read(const char *path, int error) {
    return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s%s", path, strerror(error),
                      zonal__file_read_remedy(error));
}

static zonal_status read_bytes(int descriptor, const char *path, char *out, size_t count) {
    size_t done = 0;
    while (done < count) {
        ssize_t n = pread(descriptor, out + done, count - done, (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return cannot_read(path, errno);
        if (n == 0)
            return ZONAL_FAIL(ZONAL_IO, "cannot read %s: it was truncated while it was read", path);
        done += (size_t)n;
    }
    return ZONAL_OK;
}

static zonal_status read_descriptor(int descriptor, const char *path, size_t most, char **text,
                                    size_t *length) {
    struct stat state;
    if (fstat(descriptor, &state) != 0) return cannot_read(path, errno);
    if (!S_ISREG(state.st_mode))
        return ZONAL_FAIL(ZONAL_IO, "cannot read %s: it is not a file; give the name of one", path);
    if ((uint64_t)state.st_size > most)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s has %lld bytes; more than %zu are not read: is it the "
                          "right file?",
                          path, (long long)state.st_size, most);
    *length = (size_t)state.st_size;
    ZONAL_TRY(ZONAL_NEW(text, *length + 1, path));
    return read_bytes(descriptor, path, *text, *length);
}

zonal_status zonal__file_read_open(int descriptor, const char *path, size_t most, char **text,
                                   size_t *length) {
    zonal_status status;
    *text = NULL;
    *length = 0;
    status = read_descriptor(descriptor, path, most, text, length);
    if (status == ZONAL_OK) return ZONAL_OK;
    zonal__free(*text);
    *text = NULL;
    return status;
}

zonal_status zonal__file_read(const char *path, size_t most, char **text, size_t *length) {
    /* Without O_NONBLOCK a named pipe would wait here for a writer; it means nothing for files. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    zonal_status status;
    *text = NULL;
    *length = 0;
    if (descriptor < 0) return cannot_read(path, errno);
    status = zonal__file_read_open(descriptor, path, most, text, length);
    close(descriptor);
    return status;
}
