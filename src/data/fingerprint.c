#include "data/fingerprint.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checksum.h"

enum { BLOCK = 4096 };

/* Adds up to "bytes" bytes at "offset"; a file that has become shorter gives fewer. */
static zonal_status add_block(int descriptor, const char *path, off_t offset, size_t bytes,
                              zonal__checksum *sum) {
    uint8_t block[BLOCK];
    while (bytes > 0) {
        ssize_t got = pread(descriptor, block, bytes, offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s", path, strerror(errno));
        if (got == 0) return ZONAL_OK;
        zonal__checksum_add(sum, block, (size_t)got);
        offset += got;
        bytes -= (size_t)got;
    }
    return ZONAL_OK;
}

zonal_status zonal__fingerprint_descriptor(int descriptor, const char *path, int samples,
                                           uint64_t *fingerprint) {
    struct stat about;
    zonal__checksum sum;
    int64_t size, blocks;
    if (fstat(descriptor, &about) != 0)
        return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return ZONAL_FAIL(ZONAL_IO, "%s is not a file; remove it, or put the image back there",
                          path);
    size = about.st_size;
    blocks = (size + BLOCK - 1) / BLOCK;
    if (blocks > samples) blocks = samples;
    zonal__checksum_init(&sum);
    zonal__checksum_add(&sum, &size, sizeof size);
    for (int64_t i = 0; i < blocks; i++) {
        int64_t all = size <= (int64_t)samples * BLOCK;
        int64_t at =
            all ? i * BLOCK : (int64_t)((double)(size - BLOCK) / (double)(blocks - 1) * (double)i);
        int64_t left = size - at;
        ZONAL_TRY(add_block(descriptor, path, at, (size_t)(left < BLOCK ? left : BLOCK), &sum));
    }
    *fingerprint = zonal__checksum_value(&sum);
    return ZONAL_OK;
}

zonal_status zonal__fingerprint_file(const char *path, int samples, uint64_t *fingerprint) {
    /* O_NONBLOCK: opening a named pipe must not wait for a writer. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    zonal_status status;
    if (descriptor < 0) return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s", path, strerror(errno));
    status = zonal__fingerprint_descriptor(descriptor, path, samples, fingerprint);
    close(descriptor);
    return status;
}

uint64_t zonal__fingerprint_element(uint64_t whole, int64_t number) {
    const uint64_t both[2] = {whole, (uint64_t)number};
    return zonal__checksum_of(both, sizeof both);
}
