#include "core/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/checksum.h"
#include "core/file.h"
#include "core/file_read.h"
#include "core/memory.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are stored as they lie");

enum {
    HEAD = 12, /* length and its checksum */
    TAIL = 4,
    LONGEST_TAG = 63,
    LONGEST_EVENT = 64 + ZONAL__EVENT_SCALARS * (LONGEST_TAG + 16)
};
static const size_t LONGEST_FILE = (size_t)1 << 31;

struct zonal__event_file {
    int descriptor;
    char path[]; /* for the sentences */
};

static zonal_status cannot_write(const char *path, int error) {
    return ZONAL_FAIL(ZONAL_IO, "cannot write %s: %s%s", path, strerror(error),
                      error == ENOSPC || error == EDQUOT ? "; free some space" : "");
}

/* ---- protocol buffers: as much as an event needs --------------------------------------------- */

typedef struct message {
    uint8_t bytes[LONGEST_EVENT];
    size_t length;
} message;

enum wire { VARINT = 0, EIGHT_BYTES = 1, BYTES = 2, FOUR_BYTES = 5 };

static void put(message *m, const void *bytes, size_t n) {
    memcpy(m->bytes + m->length, bytes, n);
    m->length += n;
}

static void put_varint(message *m, uint64_t value) {
    for (; value >= 0x80; value >>= 7) m->bytes[m->length++] = (uint8_t)(value | 0x80);
    m->bytes[m->length++] = (uint8_t)value;
}

static void put_key(message *m, int field, enum wire type) {
    put_varint(m, (uint64_t)field << 3 | type);
}

static void put_bytes(message *m, int field, const void *bytes, size_t n) {
    put_key(m, field, BYTES);
    put_varint(m, n);
    put(m, bytes, n);
}

static void begin_event(message *event, int64_t step) {
    struct timespec now;
    double wall_time;
    clock_gettime(CLOCK_REALTIME, &now);
    wall_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    event->length = 0;
    put_key(event, 1, EIGHT_BYTES);
    put(event, &wall_time, sizeof wall_time);
    put_key(event, 2, VARINT);
    put_varint(event, (uint64_t)step);
}

/* The bytes of one Value. */
static size_t value_size(const zonal__scalar *scalar) {
    return 2 + strlen(scalar->tag) + 5; /* a tag is shorter than 128 bytes: its length is one */
}

static void put_value(message *m, const zonal__scalar *scalar) {
    float value = (float)scalar->value;
    put_bytes(m, 1, scalar->tag, strlen(scalar->tag));
    put_key(m, 2, FOUR_BYTES);
    put(m, &value, sizeof value);
}

static void put_summary(message *event, int count, const zonal__scalar *scalars) {
    size_t size = 0;
    for (int i = 0; i < count; i++) size += 2 + value_size(&scalars[i]);
    put_key(event, 5, BYTES);
    put_varint(event, size);
    for (int i = 0; i < count; i++) {
        put_key(event, 1, BYTES);
        put_varint(event, value_size(&scalars[i]));
        put_value(event, &scalars[i]);
    }
}

/* ---- records --------------------------------------------------------------------------------- */

static uint32_t masked_checksum(const void *bytes, size_t n) {
    uint32_t sum = zonal__crc32c(bytes, n);
    return (sum >> 15 | sum << 17) + 0xa282ead8;
}

static zonal_status append(zonal__event_file *file, const message *event) {
    uint8_t record[HEAD + LONGEST_EVENT + TAIL];
    uint64_t length = event->length;
    uint32_t sum = masked_checksum(&length, sizeof length);
    int error;
    memcpy(record, &length, sizeof length);
    memcpy(record + 8, &sum, sizeof sum);
    memcpy(record + HEAD, event->bytes, event->length);
    sum = masked_checksum(event->bytes, event->length);
    memcpy(record + HEAD + event->length, &sum, sizeof sum);
    error = zonal__file_append(file->descriptor, record, HEAD + event->length + TAIL);
    return error ? cannot_write(file->path, error) : ZONAL_OK;
}

static zonal_status begin_file(zonal__event_file *file, int64_t step) {
    static const char version[] = "brain.Event:2";
    static const uint8_t start[] = {1 << 3 | VARINT, 1}; /* status: START */
    message event;
    begin_event(&event, 0);
    put_bytes(&event, 3, version, sizeof version - 1);
    ZONAL_TRY(append(file, &event));
    begin_event(&event, step);
    put_bytes(&event, 7, start, sizeof start);
    return append(file, &event);
}

zonal_status zonal__event_file_create(const char *path, int64_t step, zonal__event_file **out) {
    zonal__event_file *file;
    size_t length = strlen(path);
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__alloc((int64_t)(sizeof *file + length + 1), 1, path, (void **)&file));
    memcpy(file->path, path, length);
    file->descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    status = file->descriptor < 0 ? cannot_write(path, errno) : begin_file(file, step);
    if (status == ZONAL_OK)
        *out = file;
    else
        zonal__event_file_close(file);
    return status;
}

zonal_status zonal__event_file_add(zonal__event_file *file, int64_t step, int count,
                                   const zonal__scalar *scalars) {
    message event;
    if (count < 1 || count > ZONAL__EVENT_SCALARS)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "an event has 1 to %d numbers, got %d",
                          ZONAL__EVENT_SCALARS, count);
    for (int i = 0; i < count; i++)
        if (strlen(scalars[i].tag) > LONGEST_TAG)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "the tag %s is longer than %d bytes", scalars[i].tag,
                              LONGEST_TAG);
    begin_event(&event, step);
    put_summary(&event, count, scalars);
    return append(file, &event);
}

zonal_status zonal__event_file_sync(zonal__event_file *file) {
    return fsync(file->descriptor) == 0 ? ZONAL_OK : cannot_write(file->path, errno);
}

void zonal__event_file_close(zonal__event_file *file) {
    if (!file) return;
    if (file->descriptor >= 0) close(file->descriptor);
    zonal__free(file);
}

/* ---- cutting --------------------------------------------------------------------------------- */

typedef struct span {
    const uint8_t *at, *end;
} span;

static int take_varint(span *s, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64 && s->at < s->end; shift += 7) {
        uint8_t byte = *s->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return 1;
    }
    return 0;
}

/* The step of an event, 0 where it has none; whether the event could be read that far. */
static int read_step(span s, int64_t *step) {
    uint64_t key, value;
    *step = 0;
    while (s.at < s.end) {
        if (!take_varint(&s, &key)) return 0;
        size_t skip = (key & 7) == EIGHT_BYTES ? 8 : (key & 7) == FOUR_BYTES ? 4 : 0;
        if ((key & 7) == VARINT || (key & 7) == BYTES) {
            if (!take_varint(&s, &value)) return 0;
            if (key == (2 << 3 | VARINT)) {
                *step = (int64_t)value;
                return 1;
            }
            if ((key & 7) == BYTES) skip = value;
        } else if (skip == 0) {
            return 0;
        }
        if (skip > (size_t)(s.end - s.at)) return 0;
        s.at += skip;
    }
    return 1;
}

/* The size of the record that the bytes begin with, and its step; 0: it is not whole. */
static size_t read_record(const uint8_t *bytes, size_t left, int64_t *step) {
    uint64_t length;
    uint32_t sum;
    if (left < HEAD + TAIL) return 0;
    memcpy(&length, bytes, sizeof length);
    memcpy(&sum, bytes + 8, sizeof sum);
    if (sum != masked_checksum(&length, sizeof length) || length > left - HEAD - TAIL) return 0;
    memcpy(&sum, bytes + HEAD + length, sizeof sum);
    if (sum != masked_checksum(bytes + HEAD, length)) return 0;
    if (!read_step((span){bytes + HEAD, bytes + HEAD + length}, step)) return 0;
    return HEAD + length + TAIL;
}

zonal_status zonal__event_file_truncate_after(const char *path, int64_t step) {
    char *text;
    size_t length, cut = 0, size;
    int64_t found;
    ZONAL_TRY(zonal__file_read(path, LONGEST_FILE, &text, &length));
    while ((size = read_record((const uint8_t *)text + cut, length - cut, &found)) > 0 &&
           found <= step)
        cut += size;
    zonal__free(text);
    if (cut < length && truncate(path, (off_t)cut) != 0) return cannot_write(path, errno);
    return ZONAL_OK;
}
