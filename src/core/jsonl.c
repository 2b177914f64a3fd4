#include "core/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"
#include "core/file_read.h"
#include "core/json_read.h"
#include "core/memory.h"

static const size_t LONGEST_FILE = (size_t)1 << 31;

struct zonal__jsonl {
    int descriptor;
    char *line; /* the one being written */
    size_t room;
    char path[]; /* for the sentences */
};

static zonal_status cannot_write(const char *path, int error) {
    if (error == ELOOP)
        return ZONAL_FAIL(ZONAL_IO,
                          "cannot write %s: it is a link, which is not followed; put the file "
                          "itself there",
                          path);
    return ZONAL_FAIL(ZONAL_IO, "cannot write %s: %s%s", path, strerror(error),
                      error == ENOSPC || error == EDQUOT ? "; free some space" : "");
}

/* ---- appending ------------------------------------------------------------------------------- */

static zonal_status check_last_line(const zonal__jsonl *jsonl) {
    struct stat state;
    char last = '\n';
    if (fstat(jsonl->descriptor, &state) != 0) return cannot_write(jsonl->path, errno);
    if (!S_ISREG(state.st_mode) || state.st_size == 0) return ZONAL_OK;
    if (pread(jsonl->descriptor, &last, 1, state.st_size - 1) != 1)
        return cannot_write(jsonl->path, errno);
    if (last == '\n') return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_FORMAT, "%s ends inside a line; remove its last line", jsonl->path);
}

zonal_status zonal__jsonl_open(const char *path, zonal__jsonl **out) {
    zonal__jsonl *jsonl;
    size_t length = strlen(path);
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__alloc((int64_t)(sizeof *jsonl + length + 1), 1, path, (void **)&jsonl));
    memcpy(jsonl->path, path, length);
    jsonl->descriptor = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    status = jsonl->descriptor < 0 ? cannot_write(path, errno) : check_last_line(jsonl);
    if (status == ZONAL_OK)
        *out = jsonl;
    else
        zonal__jsonl_close(jsonl);
    return status;
}

void zonal__jsonl_close(zonal__jsonl *jsonl) {
    if (!jsonl) return;
    if (jsonl->descriptor >= 0) close(jsonl->descriptor);
    zonal__free(jsonl->line);
    zonal__free(jsonl);
}

/* The text on one line, with its newline, in jsonl->line. */
static zonal_status make_line(zonal__jsonl *jsonl, const char *json, size_t *length) {
    size_t needed = strlen(json) + 1;
    char *out;
    if (needed > jsonl->room)
        ZONAL_TRY(ZONAL_RENEW(&jsonl->line, 2 * needed, &jsonl->room, "a line of JSON"));
    out = jsonl->line;
    while (*json) {
        if (*json == '\n')
            json += 1 + strspn(json + 1, " ");
        else
            *out++ = *json++;
    }
    *out++ = '\n';
    *length = (size_t)(out - jsonl->line);
    return ZONAL_OK;
}

zonal_status zonal__jsonl_append(zonal__jsonl *jsonl, const char *json) {
    size_t length;
    int error;
    ZONAL_TRY(make_line(jsonl, json, &length));
    error = zonal__file_append(jsonl->descriptor, jsonl->line, length);
    return error ? cannot_write(jsonl->path, error) : ZONAL_OK;
}

zonal_status zonal__jsonl_sync(zonal__jsonl *jsonl) {
    /* EINVAL: a device or pipe, which has no disk to wait for. */
    if (fsync(jsonl->descriptor) == 0 || errno == EINVAL) return ZONAL_OK;
    return cannot_write(jsonl->path, errno);
}

/* ---- cutting --------------------------------------------------------------------------------- */

/* Whether the line is a JSON object; *found: it has the key, with this number. */
static zonal_status read_number(zonal__json_reader *reader, const char *wanted, int *found,
                                int64_t *number) {
    const char *key;
    int more;
    *found = 0;
    ZONAL_TRY(zonal__json_read_begin(reader, '{'));
    for (;;) {
        ZONAL_TRY(zonal__json_read_more(reader, '}', &more));
        if (!more) return zonal__json_read_end(reader);
        ZONAL_TRY(zonal__json_read_key(reader, &key));
        if (strcmp(key, wanted) == 0) {
            ZONAL_TRY(zonal__json_read_int(reader, number));
            *found = 1;
        } else {
            ZONAL_TRY(zonal__json_read_skip(reader));
        }
    }
}

/* What a search for the place to cut finds. */
typedef struct cut {
    size_t at;
    int64_t bad_line; /* the first that is damaged, counted from 1; 0: none */
    int unfinished;   /* that one is the end of a file that was being written */
    int reached;      /* a line with the number "value" itself is kept */
} cut;

/* Where to cut a text of "length" bytes, which is spoiled by the search. */
static zonal_status find_cut(const char *path, char *text, size_t length, const char *key,
                             int64_t value, cut *found_cut) {
    size_t at = 0;
    int64_t line = 0;
    *found_cut = (cut){.at = length};
    while (at < length) {
        char *start = text + at, *newline = memchr(start, '\n', length - at);
        zonal__json_reader reader;
        int64_t number = 0;
        int found = 0, good = 0, cut_before = found_cut->at < length;
        line++;
        if (newline) {
            *newline = '\0';
            zonal__json_reader_init(&reader, start, (size_t)(newline - start), path);
            good = read_number(&reader, key, &found, &number) == ZONAL_OK;
        }
        if (good && found && number <= value && cut_before)
            return ZONAL_FAIL(ZONAL_FORMAT,
                              "%s: line %lld, with %s %lld, comes after a line that is damaged or "
                              "belongs to a later %s; fix the file or move it away",
                              path, (long long)line, key, (long long)number, key);
        if (!good && found_cut->bad_line == 0) {
            found_cut->bad_line = line;
            /* zeros: after a loss of power */
            found_cut->unfinished = !newline && (*start == '{' || *start == '\0');
        }
        if ((!good || (found && number > value)) && !cut_before) found_cut->at = at;
        if (good && found && number == value) found_cut->reached = 1;
        at = newline ? (size_t)(newline - text) + 1 : length;
    }
    return ZONAL_OK;
}

static zonal_status cut_open(int descriptor, const char *path, const char *key, int64_t value) {
    char *text;
    size_t length;
    cut found;
    zonal_status status;
    ZONAL_TRY(zonal__file_read_open(descriptor, path, LONGEST_FILE, &text, &length));
    status = find_cut(path, text, length, key, value, &found);
    zonal__free(text);
    ZONAL_TRY(status);
    if (found.bad_line > 0 && value < 0 && !found.unfinished)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s: line %lld is no JSON object, so it is damaged or another file; it "
                          "is left alone: fix it or move it away",
                          path, (long long)found.bad_line);
    if (found.bad_line > 0 && value >= 0 && !found.reached)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s: line %lld is no JSON object, and no line before it has %s %lld, so "
                          "more than an unfinished end is damaged, or it is another file; it is "
                          "left alone: fix it or move it away",
                          path, (long long)found.bad_line, key, (long long)value);
    if (found.at < length && ftruncate(descriptor, (off_t)found.at) != 0)
        return cannot_write(path, errno);
    return ZONAL_OK;
}

zonal_status zonal__jsonl_truncate_after(const char *path, const char *key, int64_t value) {
    int descriptor;
    zonal_status status;
    if (access(path, F_OK) != 0 && errno == ENOENT) return ZONAL_OK;
    ZONAL_TRY(zonal__file_open_plain(path, O_RDWR, &descriptor));
    status = cut_open(descriptor, path, key, value);
    close(descriptor);
    return status;
}
