#include "cli/eval/store.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common/cli.h"
#include "core/file.h"
#include "core/file_read.h"
#include "core/json_read.h"
#include "core/memory.h"

enum { PATH_ROOM = ZONAL__TRAINING_PATH + 64 };
static const size_t LONGEST_FILE = (size_t)1 << 28;

/* ---- what is there already ------------------------------------------------------------------- */

typedef struct span {
    size_t begin, end; /* of a value's text; the same: there is none */
} span;

/* The results of a file, as they stand there. */
typedef struct stored {
    char *text, *scratch; /* the reader changes the text that it reads */
    size_t length;
    span energy;
    int64_t count;
    span *result;            /* [count] */
    const char **conditions; /* [count], in "scratch"; NULL: an earlier version's, without them */
} stored;

static void drop(stored *s) {
    zonal__free(s->text);
    zonal__free(s->scratch);
    zonal__free(s->result);
    zonal__free(s->conditions);
}

static size_t begin_value(zonal__json_reader *reader) {
    reader->at += strspn(reader->at, " \n\t\r");
    return (size_t)(reader->at - reader->text);
}

static zonal_status read_result(zonal__json_reader *reader, stored *s) {
    const int64_t i = s->count;
    const char *key;
    int more;
    s->result[i].begin = begin_value(reader);
    s->conditions[i] = NULL;
    ZONAL_TRY(zonal__json_read_begin(reader, '{'));
    for (;;) {
        ZONAL_TRY(zonal__json_read_more(reader, '}', &more));
        if (!more) break;
        ZONAL_TRY(zonal__json_read_key(reader, &key));
        if (strcmp(key, "conditions") == 0)
            ZONAL_TRY(zonal__json_read_text(reader, &s->conditions[i]));
        else
            ZONAL_TRY(zonal__json_read_skip(reader));
    }
    s->result[i].end = (size_t)(reader->at - reader->text);
    s->count++;
    return ZONAL_OK;
}

static zonal_status read_list(zonal__json_reader *reader, stored *s) {
    int more;
    ZONAL_TRY(zonal__json_read_begin(reader, '['));
    for (;;) {
        ZONAL_TRY(zonal__json_read_more(reader, ']', &more));
        if (!more) return ZONAL_OK;
        ZONAL_TRY(read_result(reader, s));
    }
}

static zonal_status read_members(zonal__json_reader *reader, stored *s) {
    const char *key;
    int more;
    ZONAL_TRY(zonal__json_read_begin(reader, '{'));
    for (;;) {
        ZONAL_TRY(zonal__json_read_more(reader, '}', &more));
        if (!more) return zonal__json_read_end(reader);
        ZONAL_TRY(zonal__json_read_key(reader, &key));
        if (strcmp(key, "results") == 0 && s->count == 0) {
            ZONAL_TRY(read_list(reader, s));
            continue;
        }
        const size_t begin = begin_value(reader);
        ZONAL_TRY(zonal__json_read_skip(reader));
        if (strcmp(key, "energy") == 0)
            s->energy = (span){begin, (size_t)(reader->at - reader->text)};
    }
}

static zonal_status parse(const char *path, stored *s) {
    zonal__json_reader reader;
    int64_t most = 1;
    for (size_t i = 0; i < s->length; i++) most += s->text[i] == '{';
    ZONAL_TRY(ZONAL_NEW(&s->result, most, "the results that are there"));
    ZONAL_TRY(ZONAL_NEW(&s->conditions, most, "the results that are there"));
    ZONAL_TRY(ZONAL_NEW(&s->scratch, (int64_t)s->length + 1, "the results that are there"));
    memcpy(s->scratch, s->text, s->length);
    zonal__json_reader_init(&reader, s->scratch, s->length, path);
    return read_members(&reader, s);
}

/* Under the first free name: what was put aside earlier stays. */
static zonal_status put_aside(const char *path) {
    char aside[PATH_ROOM + 32];
    struct stat there;
    snprintf(aside, sizeof aside, "%s.damaged", path);
    for (int i = 2; lstat(aside, &there) == 0 && i < 1000; i++)
        snprintf(aside, sizeof aside, "%s.damaged-%d", path, i);
    zonal__log("%s; it is now %s", zonal_last_error()->message, aside);
    if (rename(path, aside) == 0) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_IO, "%s is damaged and cannot be renamed: %s", path, strerror(errno));
}

/* The run may be somebody else's: no link is followed. No file is an empty one. */
static zonal_status read_text(const char *path, stored *s) {
    struct stat there;
    int descriptor;
    zonal_status status;
    *s = (stored){0};
    if (lstat(path, &there) != 0 && (errno == ENOENT || errno == ENOTDIR)) return ZONAL_OK;
    ZONAL_TRY(zonal__file_open_plain(path, O_RDONLY, &descriptor));
    status = zonal__file_read_open(descriptor, path, LONGEST_FILE, &s->text, &s->length);
    close(descriptor);
    return status;
}

static zonal_status read_stored(const char *path, stored *s) {
    zonal_status status;
    ZONAL_TRY(read_text(path, s));
    if (!s->text) return ZONAL_OK;
    status = parse(path, s);
    if (status == ZONAL_OK) return ZONAL_OK;
    drop(s);
    *s = (stored){0};
    return status == ZONAL_FORMAT ? put_aside(path) : status;
}

/* ---- what comes to it ------------------------------------------------------------------------ */

static int is_new(const zonal__eval_results *results, int run, const char *protocol, int partial,
                  int64_t i) {
    const zonal__eval_result *r = &results->at[i];
    return r->run == run && strcmp(r->protocol, protocol) == 0 && (r->limit > 0) == partial;
}

static int is_replaced(const zonal__eval_results *results, int run, const char *protocol,
                       int partial, const char *conditions) {
    char ours[ZONAL__EVAL_CONDITIONS];
    if (!conditions) return !results->runs[run].changes[0];
    for (int64_t i = 0; i < results->count; i++) {
        if (!is_new(results, run, protocol, partial, i)) continue;
        zonal__eval_result_conditions(results, &results->at[i], ours);
        if (strcmp(ours, conditions) == 0) return 1;
    }
    return 0;
}

static void write_new(zonal__json *json, const zonal__eval_results *results, int run,
                      const char *protocol, int partial) {
    for (int64_t i = 0; i < results->count; i++)
        if (is_new(results, run, protocol, partial, i))
            zonal__eval_result_json(json, results, &results->at[i], 1);
}

static void write_kept(zonal__json *json, const zonal__eval_results *results, int run,
                       const char *protocol, int partial, const stored *s) {
    for (int64_t i = 0; i < s->count; i++)
        if (!is_replaced(results, run, protocol, partial, s->conditions[i]))
            zonal__json_raw(json, s->text + s->result[i].begin,
                            s->result[i].end - s->result[i].begin);
}

static void write_merged(zonal__json *json, const zonal__eval_results *results, int run,
                         const char *protocol, int partial, const stored *s) {
    const int own = results->runs[run].own_data && !results->runs[run].changes[0];
    zonal__json_begin_object(json);
    if (own && strcmp(protocol, "diagnostics") == 0) {
        zonal__eval_results_energy(json, results, run);
    } else if (s->energy.end > s->energy.begin) {
        zonal__json_key(json, "energy");
        zonal__json_raw(json, s->text + s->energy.begin, s->energy.end - s->energy.begin);
    }
    zonal__json_key(json, "results");
    zonal__json_begin_array(json);
    if (own) write_new(json, results, run, protocol, partial);
    write_kept(json, results, run, protocol, partial, s);
    if (!own) write_new(json, results, run, protocol, partial);
    zonal__json_end_array(json);
    zonal__json_end_object(json);
}

static zonal_status store_protocol(const zonal__eval_results *results, int run,
                                   const char *protocol, int partial, const char *folder) {
    char path[PATH_ROOM];
    zonal__json json;
    const char *text;
    zonal__file *file;
    stored s;
    zonal_status status;
    snprintf(path, sizeof path, "%s/%s.json", folder, protocol);
    ZONAL_TRY(read_stored(path, &s));
    zonal__json_init(&json, NULL);
    write_merged(&json, results, run, protocol, partial, &s);
    status = zonal__json_finish(&json, &text);
    if (status == ZONAL_OK) status = zonal__file_create_plain(path, &file);
    if (status == ZONAL_OK) {
        zonal__file_write(file, text, strlen(text));
        status = zonal__file_commit(file);
    }
    zonal__json_fini(&json);
    drop(&s);
    return status;
}

/* A folder of the run, which may be somebody else's: a link could lead anywhere. */
static zonal_status make_own_folder(const char *path) {
    struct stat there;
    ZONAL_TRY(zonal__cli_make_folder(path));
    if (lstat(path, &there) == 0 && S_ISDIR(there.st_mode)) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_IO,
                      "%s is a link, which a run's own folders must not be; remove the link", path);
}

static int is_to_store(const zonal__eval_results *results, int run, const char *protocol,
                       int partial) {
    for (int64_t i = results->stored; i < results->count; i++)
        if (is_new(results, run, protocol, partial, i)) return 1;
    return 0;
}

/* A file of its own for each protocol, among those of whole or of partial results. */
static zonal_status store_kind(const zonal__eval_results *results, int run, const char *protocol,
                               int partial) {
    char folder[PATH_ROOM - 24];
    if (!is_to_store(results, run, protocol, partial)) return ZONAL_OK;
    snprintf(folder, sizeof folder, "%s/eval%s", results->runs[run].name,
             partial ? "/partial" : "");
    if (partial) ZONAL_TRY(make_own_folder(folder));
    return store_protocol(results, run, protocol, partial, folder);
}

/* Others evaluate the run at the same time: each takes its turn to read a file and to write it. */
static zonal_status lock(const char *folder, int *descriptor) {
    *descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*descriptor < 0)
        return ZONAL_FAIL(ZONAL_IO, "cannot open %s, where results are stored: %s", folder,
                          strerror(errno));
    while (flock(*descriptor, LOCK_EX) != 0)
        if (errno != EINTR) break; /* a file system without locks */
    return ZONAL_OK;
}

static zonal_status store_all(const zonal__eval_results *results, int run) {
    static const char *const protocols[] = {"knn",         "linear",    "lightly-knn",
                                            "solo-linear", "retrieval", "diagnostics"};
    for (size_t p = 0; p < sizeof protocols / sizeof protocols[0]; p++)
        for (int partial = 0; partial < 2; partial++)
            ZONAL_TRY(store_kind(results, run, protocols[p], partial));
    return ZONAL_OK;
}

zonal_status zonal__eval_store(zonal__eval_results *results, int run) {
    char folder[PATH_ROOM - 24];
    int descriptor;
    zonal_status status;
    if (results->stored == results->count) return ZONAL_OK;
    snprintf(folder, sizeof folder, "%s/eval", results->runs[run].name);
    ZONAL_TRY(make_own_folder(folder));
    ZONAL_TRY(lock(folder, &descriptor));
    status = store_all(results, run);
    close(descriptor);
    if (status == ZONAL_OK) results->stored = results->count;
    return status;
}

/* ---- for others ------------------------------------------------------------------------------ */

static double *number_of(zonal__stored_result *r, const char *key) {
    const struct {
        const char *key;
        double *at;
    } known[] = {{"accuracy", &r->accuracy},
                 {"top5", &r->top5},
                 {"r1", &r->r1},
                 {"r3", &r->r3},
                 {"r5", &r->r5},
                 {"map", &r->map},
                 {"k", &r->k},
                 {"temperature", &r->temperature},
                 {"l2", &r->l2},
                 {"epochs", &r->epochs},
                 {"seed", &r->seed},
                 {"candidates", &r->candidates}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].key, key) == 0) return known[i].at;
    return NULL;
}

static const char **text_of(zonal__stored_result *r, const char *key) {
    const struct {
        const char *key, **at;
    } known[] = {
        {"protocol", &r->protocol}, {"features", &r->features},     {"part", &r->part},
        {"data", &r->data},         {"conditions", &r->conditions}, {"overrides", &r->overrides}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].key, key) == 0) return known[i].at;
    return NULL;
}

static zonal_status take_member(zonal__json_reader *reader, zonal__stored_result *r) {
    const char *key;
    ZONAL_TRY(zonal__json_read_key(reader, &key));
    if (strcmp(key, "step") == 0) return zonal__json_read_int(reader, &r->step);
    if (strcmp(key, "test") == 0) return zonal__json_read_int(reader, &r->test);
    if (number_of(r, key)) return zonal__json_read_double(reader, number_of(r, key));
    if (text_of(r, key)) return zonal__json_read_text(reader, text_of(r, key));
    return zonal__json_read_skip(reader);
}

static zonal_status take_result(char *text, size_t length, const char *path,
                                zonal__stored_result *r) {
    zonal__json_reader reader;
    int more;
    *r = (zonal__stored_result){.protocol = "",
                                .features = "",
                                .part = "",
                                .data = "",
                                .conditions = "",
                                .overrides = "",
                                .step = -1,
                                .test = -1,
                                .accuracy = NAN,
                                .top5 = NAN,
                                .r1 = NAN,
                                .r3 = NAN,
                                .r5 = NAN,
                                .map = NAN,
                                .k = NAN,
                                .temperature = NAN,
                                .l2 = NAN,
                                .epochs = NAN,
                                .candidates = NAN,
                                .seed = NAN};
    zonal__json_reader_init(&reader, text, length, path);
    ZONAL_TRY(zonal__json_read_begin(&reader, '{'));
    for (;;) {
        ZONAL_TRY(zonal__json_read_more(&reader, '}', &more));
        if (!more) return ZONAL_OK;
        ZONAL_TRY(take_member(&reader, r));
    }
}

zonal_status zonal__eval_stored_read(const char *run, const char *protocol,
                                     zonal__stored_visit *visit, void *context) {
    char path[PATH_ROOM];
    stored s;
    zonal__stored_result result;
    zonal_status status;
    snprintf(path, sizeof path, "%s/eval/%s.json", run, protocol);
    ZONAL_TRY(read_text(path, &s));
    if (!s.text) return ZONAL_OK;
    status = parse(path, &s);
    for (int64_t i = 0; i < s.count && status == ZONAL_OK; i++) {
        char *text = s.text + s.result[i].begin;
        const size_t length = s.result[i].end - s.result[i].begin;
        text[length] = '\0'; /* a comma or bracket that is not needed any more */
        status = take_result(text, length, path, &result);
        if (status == ZONAL_OK) status = visit(context, &result);
    }
    drop(&s);
    return status;
}
