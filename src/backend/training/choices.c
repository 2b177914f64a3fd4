/* Measured choices and their file: choices.h. */
#include "backend/training/choices.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "core/file.h"
#include "core/file_read.h"
#include "core/memory.h"

static const char first_line[] = "zonal choices 1";

/* A full table with its separators, and a machine's name. */
enum { MOST_BYTES = ZONAL__MOST_CHOICES * (ZONAL__CHOICE_KEY + ZONAL__CHOICE_TEXT + 2) + 4096 };

static int find(const zonal__choices *choices, const char *key) {
    for (int i = 0; i < choices->count; i++)
        if (strcmp(choices->entry[i].key, key) == 0) return i;
    return -1;
}

const char *zonal__choices_find(const zonal__choices *choices, const char *key) {
    int i = find(choices, key);
    return i < 0 ? NULL : choices->entry[i].text;
}

/* Fits "size" bytes and can stand in a line of the file. */
static int is_storable(const char *text, size_t size) {
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ') return 0;
    return length > 0 && length < size;
}

int zonal__choices_put(zonal__choices *choices, const char *key, const char *text) {
    int i = find(choices, key);
    if (!is_storable(key, ZONAL__CHOICE_KEY) || !is_storable(text, ZONAL__CHOICE_TEXT)) return 0;
    if (i < 0) {
        if (choices->count == ZONAL__MOST_CHOICES) return 0;
        i = choices->count++;
        memcpy(choices->entry[i].key, key, strlen(key) + 1);
    }
    memcpy(choices->entry[i].text, text, strlen(text) + 1);
    return 1;
}

zonal_status zonal__choices_write(const zonal__choices *choices, const char *machine,
                                  const char *path) {
    zonal__file *file;
    ZONAL_TRY(zonal__file_create(path, &file));
    zonal__file_print(file, "%s\n%s\n", first_line, machine);
    for (int i = 0; i < choices->count; i++)
        zonal__file_print(file, "%s\t%s\n", choices->entry[i].key, choices->entry[i].text);
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

static zonal_status not_choices(const char *path, int line) {
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "%s: line %d is not what a file of measured choices has there; remove the "
                      "file, and they are measured again",
                      path, line);
}

/* Takes the choices of "text" into an empty table. */
static zonal_status parse(char *text, const char *machine, const char *path,
                          zonal__choices *found) {
    char *rest = text, *line = next_line(&rest);
    if (!line || strcmp(line, first_line) != 0) return not_choices(path, 1);
    line = next_line(&rest);
    if (!line) return not_choices(path, 2);
    if (strcmp(line, machine) != 0) {
        zonal__log("%s is left out: its choices were measured on %s, and this is %s", path, line,
                   machine);
        return ZONAL_OK;
    }
    for (int number = 3; *rest; number++) {
        line = next_line(&rest);
        char *tab = line ? strchr(line, '\t') : NULL;
        if (!tab) return not_choices(path, number);
        *tab = '\0';
        if (!zonal__choices_put(found, line, tab + 1)) return not_choices(path, number);
    }
    return ZONAL_OK;
}

static zonal_status read_into(zonal__choices *found, const char *machine, const char *path) {
    char *text;
    size_t length;
    ZONAL_TRY(zonal__file_read(path, MOST_BYTES, &text, &length));
    zonal_status status =
        strlen(text) == length ? parse(text, machine, path, found) : not_choices(path, 1);
    zonal__free(text);
    return status;
}

/* Into "choices", all of "found" or nothing. */
static zonal_status take_over(zonal__choices *choices, const zonal__choices *found,
                              const char *path) {
    int count = choices->count;
    for (int i = 0; i < found->count; i++) count += find(choices, found->entry[i].key) < 0;
    if (count > ZONAL__MOST_CHOICES)
        return ZONAL_FAIL(ZONAL_FORMAT,
                          "%s: with it there were more than %d measured choices; remove the file, "
                          "and they are measured again",
                          path, ZONAL__MOST_CHOICES);
    for (int i = 0; i < found->count; i++)
        zonal__choices_put(choices, found->entry[i].key, found->entry[i].text);
    return ZONAL_OK;
}

zonal_status zonal__choices_read(zonal__choices *choices, const char *machine, const char *path) {
    struct stat about;
    zonal__choices *found;
    if (stat(path, &about) != 0 && errno == ENOENT) return ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&found, 1, "the table of choices"));
    zonal_status status = read_into(found, machine, path);
    if (status == ZONAL_OK) status = take_over(choices, found, path);
    zonal__free(found);
    return status;
}
