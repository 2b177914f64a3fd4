/*
 * Safetensors files, writing: safetensors.h has the format.
 *
 * The header, which comes first, holds the checksum of what follows it, so the data is gone through
 * twice: once to add it up, at some 5 GB/s, which is little beside the flush to the disk, and once
 * to write it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/checksum.h"
#include "core/file.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/safetensors_format.h"
#include "core/text.h"

enum { CHUNK = 1 << 20 }; /* bytes fetched at a time */

typedef struct writer {
    const char *path;
    const zonal__safetensors_content *content;
    const zonal__safetensor **order; /* as the data lies in the file */
    int64_t *bytes;                  /* of each, in that order */
    uint8_t *chunk;                  /* NULL when nothing is fetched */
    char *header;
    size_t header_bytes;
} writer;

/* ---- checks ---------------------------------------------------------------------------------- */

static zonal_status check_word(const writer *w, const char *what, const char *word) {
    if (!word || !word[0])
        return ZONAL_FAIL(ZONAL_ARGUMENT, "cannot write %s: %s is empty", w->path, what);
    for (const char *at = word; *at; at += zonal__text_utf8(at))
        if (zonal__text_utf8(at) == 0)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "cannot write %s: %s is not UTF-8", w->path, what);
    return ZONAL_OK;
}

static int compare_words(const void *a, const void *b) {
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

/* Sorts the words. */
static zonal_status check_distinct(const writer *w, const char **words, int64_t count) {
    qsort(words, (size_t)count, sizeof *words, compare_words);
    for (int64_t i = 1; i < count; i++)
        if (strcmp(words[i - 1], words[i]) == 0)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "cannot write %s: \"%.100s\" is there twice", w->path,
                              words[i]);
    return ZONAL_OK;
}

static zonal_status check_notes(const writer *w, const char **words) {
    const zonal__safetensors_content *content = w->content;
    for (int64_t i = 0; i < content->note_count; i++) {
        ZONAL_TRY(check_word(w, "a key of the metadata", content->notes[i].key));
        if (content->notes[i].text[0])
            ZONAL_TRY(check_word(w, "a text of the metadata", content->notes[i].text));
        if (strcmp(content->notes[i].key, ZONAL__SAFETENSORS_SUM_KEY) == 0)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "cannot write %s: the key %s is for its checksum",
                              w->path, content->notes[i].key);
        words[i] = content->notes[i].key;
    }
    return check_distinct(w, words, content->note_count);
}

static zonal_status check_tensors(const writer *w, const char **words) {
    int64_t total = 0;
    for (int64_t i = 0; i < w->content->count; i++) {
        const zonal__safetensor *tensor = &w->content->tensors[i];
        int64_t count, bytes;
        ZONAL_TRY(check_word(w, "a tensor's name", tensor->name));
        if (strcmp(tensor->name, "__metadata__") == 0)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "cannot write %s: no tensor can be called %s",
                              w->path, tensor->name);
        if (tensor->rank < 0 || tensor->rank > ZONAL__SAFETENSORS_RANK ||
            !zonal__safetensors_count(tensor, &count, &bytes))
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "cannot write %s: the shape of the tensor \"%.100s\" is invalid",
                              w->path, tensor->name);
        if (__builtin_add_overflow(total, bytes, &total))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "cannot write %s: it is too large for any file",
                              w->path);
        if (bytes > 0 && !tensor->data && !tensor->fetch)
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "cannot write %s: the tensor \"%.100s\" is given no data", w->path,
                              tensor->name);
        words[i] = tensor->name;
    }
    return check_distinct(w, words, w->content->count);
}

static zonal_status check_content(const writer *w) {
    const zonal__safetensors_content *content = w->content;
    int64_t most = content->count > content->note_count ? content->count : content->note_count;
    const char **words;
    zonal_status status;
    ZONAL_TRY(ZONAL_NEW(&words, most, "the names of a safetensors file"));
    status = check_notes(w, words);
    if (status == ZONAL_OK) status = check_tensors(w, words);
    zonal__free((void *)words);
    return status;
}

/* ---- the header ------------------------------------------------------------------------------ */

/* Larger elements first, else as given: every tensor is then aligned to its elements. */
static zonal_status put_in_order(writer *w) {
    const zonal__safetensors_content *content = w->content;
    int64_t placed = 0, count;
    int fetched = 0;
    ZONAL_TRY(ZONAL_NEW(&w->order, content->count, "the order of a safetensors file"));
    ZONAL_TRY(ZONAL_NEW(&w->bytes, content->count, "the sizes of a safetensors file"));
    for (size_t size = 8; size >= 1; size /= 2)
        for (int64_t i = 0; i < content->count; i++) {
            const zonal__safetensor *tensor = &content->tensors[i];
            if (zonal__safetensors_type_size(tensor->type) != size) continue;
            w->order[placed] = tensor;
            zonal__safetensors_count(tensor, &count, &w->bytes[placed++]);
            fetched |= !tensor->data;
        }
    return fetched ? ZONAL_NEW(&w->chunk, CHUNK, "a piece of a safetensors file") : ZONAL_OK;
}

static void put_notes(const writer *w, zonal__json *json) {
    const zonal__safetensors_content *content = w->content;
    if (content->note_count == 0 && !content->checksum) return;
    zonal__json_key(json, "__metadata__");
    zonal__json_begin_object(json);
    if (content->checksum)
        zonal__json_key_text(json, ZONAL__SAFETENSORS_SUM_KEY, ZONAL__SAFETENSORS_NO_SUM);
    for (int64_t i = 0; i < content->note_count; i++)
        zonal__json_key_text(json, content->notes[i].key, content->notes[i].text);
    zonal__json_end_object(json);
}

static void put_tensors(const writer *w, zonal__json *json) {
    int64_t at = 0;
    for (int64_t i = 0; i < w->content->count; i++) {
        const zonal__safetensor *tensor = w->order[i];
        zonal__json_key(json, tensor->name);
        zonal__json_begin_object(json);
        zonal__json_key_text(json, "dtype", zonal__safetensors_type_name(tensor->type));
        zonal__json_key(json, "shape");
        zonal__json_begin_array(json);
        for (int k = 0; k < tensor->rank; k++) zonal__json_int(json, tensor->shape[k]);
        zonal__json_end_array(json);
        zonal__json_key(json, "data_offsets");
        zonal__json_begin_array(json);
        zonal__json_int(json, at);
        at += w->bytes[i];
        zonal__json_int(json, at);
        zonal__json_end_array(json);
        zonal__json_end_object(json);
    }
}

/* The header with its length before it and its padding, and zeros for the checksum. */
static zonal_status frame_header(writer *w, const char *text) {
    size_t length = strlen(text) - 1; /* the newline at the end is no padding */
    uint64_t padded = (length + 7) / 8 * 8;
    if (padded > ZONAL__SAFETENSORS_HEADER_MOST)
        return ZONAL_FAIL(
            ZONAL_ARGUMENT,
            "cannot write %s: its header has %zu bytes, more than the %d that readers "
            "accept",
            w->path, length, ZONAL__SAFETENSORS_HEADER_MOST);
    w->header_bytes = 8 + (size_t)padded;
    ZONAL_TRY(ZONAL_NEW(&w->header, w->header_bytes + 1, "the header of a safetensors file"));
    memcpy(w->header, &padded, 8);
    memset(w->header + 8, ' ', (size_t)padded);
    memcpy(w->header + 8, text, length);
    return ZONAL_OK;
}

static zonal_status make_header(writer *w) {
    zonal__json json;
    const char *text;
    zonal_status status;
    zonal__json_init(&json, NULL);
    zonal__json_begin_object(&json);
    put_notes(w, &json);
    put_tensors(w, &json);
    zonal__json_end_object(&json);
    status = zonal__json_finish(&json, &text);
    if (status == ZONAL_OK) status = frame_header(w, text);
    zonal__json_fini(&json);
    return status;
}

/* ---- the data -------------------------------------------------------------------------------- */

/* Hands the data of one tensor, piece by piece, to the checksum or to the file. */
static zonal_status pass_tensor(const writer *w, int64_t i, zonal__checksum *sum,
                                zonal__file *file) {
    const zonal__safetensor *tensor = w->order[i];
    size_t bytes = (size_t)w->bytes[i];
    for (size_t at = 0, now; at < bytes; at += now) {
        const uint8_t *piece = (const uint8_t *)tensor->data;
        now = tensor->data || bytes - at < CHUNK ? bytes - at : CHUNK;
        if (!piece) {
            ZONAL_TRY(tensor->fetch(tensor->context, at, now, w->chunk));
            piece = w->chunk;
        }
        if (sum) zonal__checksum_add(sum, piece, now);
        if (file) ZONAL_TRY(zonal__file_write(file, piece, now));
    }
    return ZONAL_OK;
}

static zonal_status add_checksum(writer *w) {
    char digits[ZONAL__SAFETENSORS_SUM_DIGITS + 1];
    zonal__checksum sum;
    /* In no other place can the key stand unescaped and be followed by zeros. */
    char *place =
        strstr(w->header + 8, "\"" ZONAL__SAFETENSORS_SUM_KEY "\": \"" ZONAL__SAFETENSORS_NO_SUM);
    zonal__checksum_init(&sum);
    zonal__checksum_add(&sum, w->header, w->header_bytes);
    for (int64_t i = 0; i < w->content->count; i++) ZONAL_TRY(pass_tensor(w, i, &sum, NULL));
    snprintf(digits, sizeof digits, "%016" PRIx64, zonal__checksum_value(&sum));
    memcpy(place + strlen("\"" ZONAL__SAFETENSORS_SUM_KEY "\": \""), digits,
           ZONAL__SAFETENSORS_SUM_DIGITS);
    return ZONAL_OK;
}

static zonal_status write_file(const writer *w) {
    zonal__file *file;
    zonal_status status;
    ZONAL_TRY((w->content->plain ? zonal__file_create_plain : zonal__file_create)(w->path, &file));
    status = zonal__file_write(file, w->header, w->header_bytes);
    for (int64_t i = 0; i < w->content->count && status == ZONAL_OK; i++)
        status = pass_tensor(w, i, NULL, file);
    if (status == ZONAL_OK) return zonal__file_commit(file);
    zonal__file_abandon(file);
    return status;
}

zonal_status zonal__safetensors_write(const char *path, const zonal__safetensors_content *content) {
    writer w = {.path = path, .content = content};
    zonal_status status = check_content(&w);
    if (status == ZONAL_OK) status = put_in_order(&w);
    if (status == ZONAL_OK) status = make_header(&w);
    if (status == ZONAL_OK && content->checksum) status = add_checksum(&w);
    if (status == ZONAL_OK) status = write_file(&w);
    zonal__free((void *)w.order);
    zonal__free(w.bytes);
    zonal__free(w.chunk);
    zonal__free(w.header);
    return status;
}
