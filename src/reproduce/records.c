#include "reproduce/records.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/file_read.h"
#include "core/jsonl.h"
#include "core/memory.h"
#include "core/text.h"

enum { MOST_RECORDS = 20000, MOST_SAID = 3 };
static const size_t LONGEST_FILE = (size_t)1 << 27;

static void record_fini(zonal__record *record) {
    zonal__free(record->text);
    zonal__free(record->copy);
    zonal__free(record->configuration);
    zonal__free(record->decided);
    zonal__flat_fini(&record->flat);
}

void zonal__records_fini(zonal__records *records) {
    for (int64_t i = 0; i < records->count; i++) record_fini(&records->at[i]);
    zonal__free(records->at);
    *records = (zonal__records){0};
}

double zonal__record_metric(const zonal__record *record, const char *name) {
    char whole[160];
    snprintf(whole, sizeof whole, "metrics.%s", name);
    return zonal__flat_number(&record->flat, whole);
}

/* ---- reading --------------------------------------------------------------------------------- */

static zonal_status copy_text(const char *text, size_t length, char **out) {
    ZONAL_TRY(ZONAL_NEW(out, length + 1, "a record"));
    memcpy(*out, text, length);
    return ZONAL_OK;
}

static int by_name(const void *a, const void *b) {
    const zonal__flat_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* The entries "PREFIX.key" of a record, sorted, as lines "key=value". */
static zonal_status gather(const zonal__flat *flat, const char *prefix, char **out) {
    const zonal__flat_entry **found;
    size_t length = strlen(prefix), room = 1, at = 0;
    int64_t count = 0;
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&found, flat->count + 1, "the options of a record"));
    for (int64_t i = 0; i < flat->count; i++)
        if (strncmp(flat->entry[i].name, prefix, length) == 0 && flat->entry[i].text) {
            found[count++] = &flat->entry[i];
            room += strlen(flat->entry[i].name) + strlen(flat->entry[i].text) + 2;
        }
    qsort(found, (size_t)count, sizeof *found, by_name);
    status = ZONAL_NEW(out, room, "the options of a record");
    for (int64_t i = 0; i < count && status == ZONAL_OK; i++)
        at += (size_t)snprintf(*out + at, room - at, "%s=%s\n", found[i]->name + length,
                               found[i]->text);
    zonal__free(found);
    return status;
}

static zonal_status take_members(zonal__record *r, const char *name) {
    const zonal__flat *flat = &r->flat;
    double seed = zonal__flat_number(flat, "seed");
    r->experiment = zonal__flat_text(flat, "experiment");
    r->method = zonal__flat_text(flat, "method");
    r->data = zonal__flat_text(flat, "data");
    r->variant = zonal__flat_text(flat, "variant");
    if (!r->experiment || !r->method || !r->data || !r->variant || !(seed >= 0 && seed < 9e15))
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s is no record: experiment, method, data, variant and seed are needed",
                          name);
    r->seed = (int64_t)seed;
    ZONAL_TRY(gather(flat, "configuration.", &r->configuration));
    return gather(flat, "decided.", &r->decided);
}

static zonal_status read_record(zonal__record *record, const char *text, size_t length,
                                const char *name) {
    ZONAL_TRY(copy_text(text, length, &record->text));
    ZONAL_TRY(copy_text(text, length, &record->copy));
    ZONAL_TRY(zonal__flat_read(&record->flat, record->copy, length, name));
    return take_members(record, name);
}

zonal_status zonal__records_add(zonal__records *records, const char *text, size_t length,
                                const char *name) {
    zonal__record record = {0};
    zonal_status status;
    if (records->count == MOST_RECORDS)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "more than %d records are not read; use several files",
                          MOST_RECORDS);
    ZONAL_TRY(ZONAL_GROW(&records->at, records->count, &records->room, "the records"));
    status = read_record(&record, text, length, name);
    if (status == ZONAL_OK)
        records->at[records->count++] = record;
    else
        record_fini(&record);
    return status;
}

/* The bytes of the line that begins at "at", without its newline. */
static size_t line_bytes(const char *at, const char *end) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    return (size_t)((newline ? newline : end) - at);
}

/* Whether a line is what a crash has left of a record: those that are written begin alike. Of the
 * last line of a file less may have been left than that. */
static int is_cut_record(const char *at, size_t bytes, int last) {
    static const char begin[] = "{\"experiment\":";
    const size_t length = sizeof begin - 1;
    if (bytes >= length) return memcmp(at, begin, length) == 0;
    return last && memcmp(at, begin, bytes) == 0;
}

/* Whether a text has lines, but no record and nothing that is left of one. */
static int is_of_another_kind(const char *text, size_t length) {
    const char *end = text + length;
    zonal__records found = {0};
    int lines = 0, ours = 0;
    for (const char *at = text; at < end && !ours;) {
        size_t bytes = line_bytes(at, end);
        if (bytes > 0) {
            lines = 1;
            ours = is_cut_record(at, bytes, (size_t)(end - at) <= bytes + 1) ||
                   zonal__records_add(&found, at, bytes, "the line") != ZONAL_FORMAT;
        }
        at += bytes + 1;
    }
    zonal__records_fini(&found);
    return lines && !ours;
}

static zonal_status read_lines(zonal__records *records, const char *path, const char *text,
                               size_t length) {
    int64_t number = 0, passed_over = 0, more;
    for (const char *at = text; at < text + length;) {
        size_t bytes = line_bytes(at, text + length);
        zonal_status status =
            bytes > 0 ? zonal__records_add(records, at, bytes, "the line") : ZONAL_OK;
        number++;
        at += bytes + 1;
        if (status != ZONAL_FORMAT)
            ZONAL_TRY(status);
        else if (passed_over++ < MOST_SAID) /* a file of another kind would fill the screen */
            zonal__log("%.256s:%lld is passed over: %s", path, (long long)number,
                       zonal_last_error()->message);
    }
    more = passed_over - MOST_SAID;
    if (more > 0)
        zonal__log("%.256s: %lld more line%s passed over", path, (long long)more,
                   more == 1 ? " is" : "s are");
    return ZONAL_OK;
}

zonal_status zonal__records_need(const char *path) {
    if (access(path, F_OK) == 0) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_IO, "cannot read %s: %s; check the name", path, strerror(errno));
}

zonal_status zonal__records_read(zonal__records *records, const char *path) {
    char *text;
    size_t length;
    struct stat there;
    zonal_status status;
    if (stat(path, &there) != 0 && errno == ENOENT) return ZONAL_OK;
    ZONAL_TRY(zonal__file_read(path, LONGEST_FILE, &text, &length));
    if (is_of_another_kind(text, length))
        status = ZONAL_FAIL(ZONAL_FORMAT,
                            "%s holds something else than records, and is left as it is; give a "
                            "file that zonal reproduce has written, or for --records a new name",
                            path);
    else
        status = read_lines(records, path, text, length);
    zonal__free(text);
    return status;
}

void zonal__records_keep_seeds(zonal__records *records, const int64_t *seed, int count) {
    int64_t kept = 0;
    for (int64_t i = 0; i < records->count; i++) {
        int asked = 0;
        for (int k = 0; k < count; k++) asked |= records->at[i].seed == seed[k];
        if (asked)
            records->at[kept++] = records->at[i];
        else
            record_fini(&records->at[i]);
    }
    records->count = kept;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* What a loss of power has cut off becomes a line by itself, so that the next is whole. */
static zonal_status end_last_line(const char *path) {
    int descriptor = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char last;
    off_t length;
    int error = 0;
    if (descriptor < 0) return ZONAL_OK; /* not there yet; else opening it below says why */
    length = lseek(descriptor, 0, SEEK_END);
    if (length > 0 && pread(descriptor, &last, 1, length - 1) == 1 && last != '\n')
        error = zonal__file_append(descriptor, "\n", 1);
    close(descriptor);
    return error == 0 ? ZONAL_OK
                      : ZONAL_FAIL(ZONAL_IO, "cannot write to %s: %s", path, strerror(error));
}

zonal_status zonal__records_append(const char *path, const char *text) {
    zonal__jsonl *file;
    zonal_status status;
    ZONAL_TRY(end_last_line(path));
    ZONAL_TRY(zonal__jsonl_open(path, &file));
    status = zonal__jsonl_append(file, text);
    if (status == ZONAL_OK) status = zonal__jsonl_sync(file);
    zonal__jsonl_close(file);
    return status;
}

zonal_status zonal__records_check(const char *path) {
    zonal__jsonl *file;
    ZONAL_TRY(end_last_line(path));
    ZONAL_TRY(zonal__jsonl_open(path, &file));
    zonal__jsonl_close(file);
    return ZONAL_OK;
}

static int has(const zonal__records *records, const char *text) {
    for (int64_t i = 0; i < records->count; i++)
        if (strcmp(records->at[i].text, text) == 0) return 1;
    return 0;
}

zonal_status zonal__records_merge(zonal__records *records, const char *path, const char *other,
                                  int64_t *added) {
    zonal__records there = {0};
    zonal_status status = zonal__records_need(other);
    *added = 0;
    if (status == ZONAL_OK) status = zonal__records_read(&there, other);
    for (int64_t i = 0; i < there.count && status == ZONAL_OK; i++) {
        const char *text = there.at[i].text;
        if (has(records, text)) continue;
        status = zonal__records_append(path, text);
        if (status == ZONAL_OK) status = zonal__records_add(records, text, strlen(text), other);
        if (status == ZONAL_OK) ++*added;
    }
    zonal__records_fini(&there);
    return status;
}

/* ---- what differs ---------------------------------------------------------------------------- */

static int same(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

int zonal__records_alike(const zonal__record *a, const zonal__record *b) {
    return same(a->experiment, b->experiment) && same(a->method, b->method) &&
           same(a->data, b->data) && same(a->variant, b->variant) &&
           same(a->configuration, b->configuration) && same(a->decided, b->decided) &&
           same(zonal__flat_text(&a->flat, "images"), zonal__flat_text(&b->flat, "images"));
}

static void compare(const zonal__record *a, const zonal__record *b, const char *prefix, char *out,
                    size_t size) {
    for (int64_t i = 0; i < a->flat.count && !out[0]; i++) {
        const char *name = a->flat.entry[i].name, *x = a->flat.entry[i].text, *y;
        if (strncmp(name, prefix, strlen(prefix)) != 0 || !x) continue;
        y = zonal__flat_text(&b->flat, name);
        if (!same(x, y))
            zonal__text_append(out, size, "%s (%s and %s)", name + strlen(prefix), x,
                               y ? y : "the default");
    }
}

void zonal__records_difference(const zonal__record *a, const zonal__record *b, char *out,
                               size_t size) {
    static const char *const prefixes[] = {"configuration.", "decided."};
    out[0] = '\0';
    for (int i = 0; i < 2; i++) {
        compare(a, b, prefixes[i], out, size);
        if (!out[0]) compare(b, a, prefixes[i], out, size);
    }
    if (!out[0] && !zonal__records_alike(a, b)) zonal__text_append(out, size, "the images");
}
