/* Opening HDF5 files, and what all parts of the reader share: hdf5.h says what is read. */
#include "data/hdf5.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"

enum { SIGNATURE = 8, LONGEST_SUPERBLOCK = 100 };

zonal_status zonal__hdf5_damaged(const zonal__hdf5 *file, const char *what) {
    return ZONAL_FAIL(ZONAL_FORMAT, "%s is damaged: %s; get the file again", file->path, what);
}

zonal_status zonal__hdf5_refused(const zonal__hdf5 *file, const char *name, const char *what) {
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "\"%s\" in %s has %s, which is not supported; write the file again with "
                      "h5py's default settings",
                      name, file->path, what);
}

uint64_t zonal__hdf5_number(zonal__hdf5_cursor *cursor, int bytes) {
    uint64_t value = 0;
    if (cursor->left < (size_t)bytes) {
        cursor->ended = 1;
        cursor->left = 0;
        return 0;
    }
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | cursor->at[i];
    cursor->at += bytes;
    cursor->left -= (size_t)bytes;
    return value;
}

void zonal__hdf5_skip(zonal__hdf5_cursor *cursor, size_t bytes) {
    if (cursor->left < bytes) cursor->ended = 1;
    if (cursor->left < bytes) bytes = cursor->left;
    cursor->at += bytes;
    cursor->left -= bytes;
}

zonal_status zonal__hdf5_bytes(const zonal__hdf5 *file, uint64_t address, uint64_t bytes,
                               void *out) {
    uint64_t size = (uint64_t)file->size, done = 0;
    if (address > size || bytes > size - address)
        return zonal__hdf5_damaged(file, "a part of it lies beyond its end");
    while (done < bytes) {
        ssize_t got =
            pread(file->descriptor, (uint8_t *)out + done, bytes - done, (off_t)(address + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s", file->path, strerror(errno));
        if (got == 0)
            return ZONAL_FAIL(ZONAL_IO,
                              "%s was truncated while it was read; wait until it is written, "
                              "or get the file again",
                              file->path);
        done += (uint64_t)got;
    }
    return ZONAL_OK;
}

static uint32_t turn(uint32_t x, int by) {
    return x << by | x >> (32 - by);
}

/* Three words at a time go through mix, the last one to three, filled up by zeros, through the
 * longer end. */
uint32_t zonal__hdf5_checksum(const uint8_t *bytes, size_t n) {
    static const int by[2][6] = {{4, 6, 8, 16, 19, 4}, {14, 11, 25, 16, 4, 14}};
    uint32_t s[3], word[3];
    s[0] = s[1] = s[2] = 0xdeadbeef + (uint32_t)n;
    for (; n > 12; bytes += 12, n -= 12) {
        memcpy(word, bytes, 12);
        for (int k = 0; k < 3; k++) s[k] += word[k];
        for (int k = 0; k < 6; k++) { /* a -= c, a ^= c turned, c += b; then b, a, c; c, b, a */
            uint32_t *a = &s[k % 3], *c = &s[(k + 2) % 3], *b = &s[(k + 1) % 3];
            *a -= *c;
            *a ^= turn(*c, by[0][k]);
            *c += *b;
        }
    }
    if (n == 0) return s[2];
    memset(word, 0, sizeof word);
    memcpy(word, bytes, n);
    for (int k = 0; k < 3; k++) s[k] += word[k];
    for (int k = 0; k < 7; k++) { /* c ^= b, c -= b turned; then a, c; b, a; ... */
        uint32_t *c = &s[(k + 2) % 3], *b = &s[(k + 1) % 3];
        *c ^= *b;
        *c -= turn(*b, k < 6 ? by[1][k] : 24);
    }
    return s[2];
}

/* ---- the first block ------------------------------------------------------------------------- */

typedef struct superblock {
    int version, offset_bytes, length_bytes;
    uint64_t base, end, elsewhere, root;
} superblock;

static superblock parse_old(zonal__hdf5_cursor *in, int version) {
    superblock s = {.version = version};
    zonal__hdf5_skip(in, 4); /* versions of other parts */
    s.offset_bytes = (int)zonal__hdf5_number(in, 1);
    s.length_bytes = (int)zonal__hdf5_number(in, 1);
    zonal__hdf5_skip(in, version == 0 ? 9 : 13); /* sizes of nodes, flags */
    s.base = zonal__hdf5_number(in, 8);
    zonal__hdf5_skip(in, 8); /* free space */
    s.end = zonal__hdf5_number(in, 8);
    s.elsewhere = zonal__hdf5_number(in, 8); /* a driver that puts parts into other files */
    zonal__hdf5_skip(in, 8);                 /* the root has no name */
    s.root = zonal__hdf5_number(in, 8);
    return s;
}

static superblock parse_new(zonal__hdf5_cursor *in, int version) {
    superblock s = {.version = version};
    s.offset_bytes = (int)zonal__hdf5_number(in, 1);
    s.length_bytes = (int)zonal__hdf5_number(in, 1);
    zonal__hdf5_skip(in, 1); /* flags */
    s.base = zonal__hdf5_number(in, 8);
    s.elsewhere = ZONAL__HDF5_NOWHERE;
    zonal__hdf5_skip(in, 8); /* the extension, which may name a driver: checked by its effects */
    s.end = zonal__hdf5_number(in, 8);
    s.root = zonal__hdf5_number(in, 8);
    return s;
}

static zonal_status check(const zonal__hdf5 *file, const superblock *s) {
    if (s->offset_bytes != 8 || s->length_bytes != 8)
        return zonal__hdf5_refused(file, "/", "addresses of other than 8 bytes");
    if (s->base != 0 || s->elsewhere != ZONAL__HDF5_NOWHERE)
        return zonal__hdf5_refused(file, "/", "a user block or parts in other files");
    if (s->end > (uint64_t)file->size) return zonal__hdf5_damaged(file, "it is cut short");
    return ZONAL_OK;
}

static zonal_status read_superblock(zonal__hdf5 *file) {
    uint8_t block[LONGEST_SUPERBLOCK] = {0};
    size_t bytes = file->size < LONGEST_SUPERBLOCK ? (size_t)file->size : LONGEST_SUPERBLOCK;
    zonal__hdf5_cursor in = {block, bytes, 0};
    superblock s;
    int version;
    ZONAL_TRY(zonal__hdf5_bytes(file, 0, bytes, block));
    if (bytes < SIGNATURE || memcmp(block, "\x89HDF\r\n\x1a\n", SIGNATURE) != 0)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s cannot be opened as an HDF5 file: it does not begin like one; get it "
                          "again",
                          file->path);
    zonal__hdf5_skip(&in, SIGNATURE);
    version = (int)zonal__hdf5_number(&in, 1);
    if (version > 3)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s cannot be opened as an HDF5 file: its superblock has version %d, and "
                          "0 to 3 are supported; get it again",
                          file->path, version);
    s = version < 2 ? parse_old(&in, version) : parse_new(&in, version);
    if (in.ended) return zonal__hdf5_damaged(file, "it is cut short");
    if (version >= 2 && zonal__hdf5_checksum(block, 44) != zonal__hdf5_number(&in, 4))
        return zonal__hdf5_damaged(file, "the checksum of its first block is wrong");
    ZONAL_TRY(check(file, &s));
    file->root = s.root;
    return ZONAL_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static zonal_status open_file(zonal__hdf5 *file) {
    struct stat about;
    /* O_NONBLOCK: opening a named pipe must not wait for a writer. */
    file->descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->descriptor < 0 || fstat(file->descriptor, &about) != 0)
        return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s", file->path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return ZONAL_FAIL(ZONAL_IO, "%s is not a file; give the name of an HDF5 file", file->path);
    file->size = about.st_size;
    return read_superblock(file);
}

zonal_status zonal__hdf5_open(const char *path, zonal__hdf5 **out) {
    zonal__hdf5 *file;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&file, 1, "an HDF5 file"));
    file->path = path;
    status = open_file(file);
    if (status == ZONAL_OK)
        *out = file;
    else
        zonal__hdf5_close(file);
    return status;
}

void zonal__hdf5_close(zonal__hdf5 *file) {
    if (!file) return;
    if (file->descriptor >= 0) close(file->descriptor);
    zonal__free(file);
}
