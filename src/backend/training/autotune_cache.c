/* The autotuning cache and its file: autotune_cache.h. */
#include "backend/training/autotune_cache.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/file_read.h"
#include "core/memory.h"

static const char first_line[] = "zonal autotune 1";

/* A full table with its separators, and a machine's name. */
enum {
    MOST_BYTES = ZONAL__AUTOTUNE_ENTRIES * (ZONAL__AUTOTUNE_KEY + ZONAL__AUTOTUNE_TEXT + 2) + 4096
};

static int find(const zonal__autotune_cache *cache, const char *key) {
    for (int i = 0; i < cache->count; i++)
        if (strcmp(cache->entry[i].key, key) == 0) return i;
    return -1;
}

const char *zonal__autotune_cache_find(const zonal__autotune_cache *cache, const char *key) {
    int i = find(cache, key);
    return i < 0 ? NULL : cache->entry[i].text;
}

/* Fits "size" bytes and can stand in a line of the file. */
static int is_storable(const char *text, size_t size) {
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ') return 0;
    return length > 0 && length < size;
}

int zonal__autotune_cache_put(zonal__autotune_cache *cache, const char *key, const char *text) {
    int i = find(cache, key);
    if (!is_storable(key, ZONAL__AUTOTUNE_KEY) || !is_storable(text, ZONAL__AUTOTUNE_TEXT))
        return 0;
    if (i < 0) {
        if (cache->count == ZONAL__AUTOTUNE_ENTRIES) return 0;
        i = cache->count++;
        memcpy(cache->entry[i].key, key, strlen(key) + 1);
    }
    memcpy(cache->entry[i].text, text, strlen(text) + 1);
    return 1;
}

zonal_status zonal__autotune_cache_write(const zonal__autotune_cache *cache, const char *machine,
                                         const char *path) {
    zonal__file *file;
    ZONAL_TRY(zonal__file_create(path, &file));
    zonal__file_print(file, "%s\n%s\n", first_line, machine);
    for (int i = 0; i < cache->count; i++)
        zonal__file_print(file, "%s\t%s\n", cache->entry[i].key, cache->entry[i].text);
    return zonal__file_commit(file);
}

/* The line at *rest, ended by a zero byte in place of its newline; *rest moves behind it. NULL at
 * the end of the text, and for a last line that is cut off. */
static char *next_line(char **rest) {
    char *line = *rest, *end = strchr(line, '\n');
    if (!end) return NULL;
    *end = '\0';
    *rest = end + 1;
    return line;
}

static zonal_status not_a_cache(const char *path, int line) {
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "%s: line %d does not belong in an autotuning cache; remove the file, and "
                      "the algorithms are measured again",
                      path, line);
}

/* Takes the entries of "text" into an empty table. */
static zonal_status parse(char *text, const char *machine, const char *path,
                          zonal__autotune_cache *found) {
    char *rest = text, *line = next_line(&rest);
    if (!line || strcmp(line, first_line) != 0) return not_a_cache(path, 1);
    line = next_line(&rest);
    if (!line) return not_a_cache(path, 2);
    if (strcmp(line, machine) != 0) {
        zonal__log("%s is left out: it was measured on %s, and this is %s", path, line, machine);
        return ZONAL_OK;
    }
    for (int number = 3; *rest; number++) {
        line = next_line(&rest);
        char *tab = line ? strchr(line, '\t') : NULL;
        if (!tab) return not_a_cache(path, number);
        *tab = '\0';
        if (!zonal__autotune_cache_put(found, line, tab + 1)) return not_a_cache(path, number);
    }
    return ZONAL_OK;
}

static zonal_status read_into(zonal__autotune_cache *found, const char *machine, const char *path) {
    char *text;
    size_t length;
    ZONAL_TRY(zonal__file_read(path, MOST_BYTES, &text, &length));
    zonal_status status =
        strlen(text) == length ? parse(text, machine, path, found) : not_a_cache(path, 1);
    zonal__free(text);
    return status;
}

/* Into "cache", all of "found" or nothing. */
static zonal_status take_over(zonal__autotune_cache *cache, const zonal__autotune_cache *found,
                              const char *path) {
    int count = cache->count;
    for (int i = 0; i < found->count; i++) count += find(cache, found->entry[i].key) < 0;
    if (count > ZONAL__AUTOTUNE_ENTRIES)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s would make more than %d entries; remove the file, and the algorithms "
                          "are measured again",
                          path, ZONAL__AUTOTUNE_ENTRIES);
    for (int i = 0; i < found->count; i++)
        zonal__autotune_cache_put(cache, found->entry[i].key, found->entry[i].text);
    return ZONAL_OK;
}

zonal_status zonal__autotune_cache_read(zonal__autotune_cache *cache, const char *machine,
                                        const char *path) {
    struct stat about;
    zonal__autotune_cache *found;
    if (stat(path, &about) != 0 && errno == ENOENT) return ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&found, 1, "the autotuning cache"));
    zonal_status status = read_into(found, machine, path);
    if (status == ZONAL_OK) status = take_over(cache, found, path);
    zonal__free(found);
    return status;
}
