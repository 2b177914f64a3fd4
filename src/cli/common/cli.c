#include "cli/common/cli.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/checksum.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/thread.h"

void zonal__cli_make_plain(char *text) {
    char *out = text;
    int bytes;
    for (; *text; text += bytes) {
        int hidden = zonal__text_hidden(text, &bytes);
        if (hidden) *out = '?';
        if (!hidden) memmove(out, text, (size_t)bytes);
        out += hidden ? 1 : bytes;
    }
    *out = '\0';
}

zonal__cli_text zonal__cli_plain(const char *text) {
    zonal__cli_text plain;
    zonal__text_plain(text, plain.text, sizeof plain.text);
    return plain;
}

/* Bytes beyond ASCII are letters to a shell. */
static int is_simple(const char *name) {
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && (unsigned char)*c < 0x80 && !strchr("_@%+=:,./-", *c))
            return 0;
    return *name != '\0';
}

zonal__cli_text zonal__cli_quoted(const char *name) {
    zonal__cli_text quoted, plain = zonal__cli_plain(name);
    size_t used = 1;
    if (is_simple(name) || strcmp(plain.text, name) != 0) return plain;
    quoted.text[0] = '\'';
    for (; *name && used + 6 < sizeof quoted.text; name++) {
        const char *piece = *name == '\'' ? "'\\''" : (const char[]){*name, '\0'};
        used += (size_t)snprintf(quoted.text + used, sizeof quoted.text - used, "%s", piece);
    }
    snprintf(quoted.text + used, sizeof quoted.text - used, "'");
    return quoted;
}

int zonal__cli_said_before(const char *line) {
    enum { PLACES = 256 };
    static _Atomic uint64_t said[PLACES]; /* checksums of the lines; 0: free */
    uint64_t sum = zonal__checksum_of(line, strlen(line)) | 1;
    for (uint64_t i = 0; i < PLACES; i++) {
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&said[(sum + i) % PLACES], &found, sum)) return 0;
        if (found == sum) return 1;
    }
    return 0;
}

void zonal__cli_say(const char *format, ...) {
    char whole[8192], line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(whole, sizeof whole, format, arguments);
    va_end(arguments);
    zonal__text_shorten(whole, line, sizeof line);
    fprintf(stderr, "zonal: %s\n", zonal__cli_plain(line).text);
}

zonal_status zonal__cli_make_folder(const char *path) {
    struct stat there;
    const char *remedy = "";
    int error;
    if (mkdir(path, 0777) == 0) return ZONAL_OK;
    error = errno;
    if (error == ENOENT) remedy = "; make the folder that it lies in first";
    if (error == EACCES || error == EROFS) remedy = "; choose a place that you may write to";
    if (error != EEXIST)
        return ZONAL_FAIL(ZONAL_IO, "cannot make the folder %s: %s%s", path, strerror(error),
                          remedy);
    if (stat(path, &there) == 0 && !S_ISDIR(there.st_mode))
        return ZONAL_FAIL(ZONAL_IO, "cannot make the folder %s: a file has that name; give another",
                          path);
    return ZONAL_OK;
}

int zonal__cli_check_ending(const char *option, const char *path, const char *ending) {
    static const char *const others[] = {".svg", ".png", ".jpg", ".jpeg", ".pdf", ".gif", NULL};
    const char *found = path ? strrchr(path, '.') : NULL;
    if (!found || strcmp(found, ending) == 0) return ZONAL__EXIT_CONTINUE;
    for (int i = 0; others[i]; i++)
        if (strcmp(found, others[i]) == 0)
            return zonal__cli_misused("%s writes a %s file, got %s; let its name end in %s", option,
                                      ending, path, ending);
    return ZONAL__EXIT_CONTINUE;
}

int zonal__cli_failed(void) {
    const zonal_error *error = zonal_last_error();
    zonal__cli_say("%s", error->message);
    return error->status == ZONAL_ARGUMENT ? ZONAL__EXIT_USAGE : ZONAL__EXIT_FAILED;
}

int zonal__cli_misused(const char *format, ...) {
    char line[8192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    zonal__cli_say("%s", line);
    return ZONAL__EXIT_USAGE;
}

static int print_help(const zonal__cli_usage *usage, const zonal__option *table) {
    char *text;
    if (zonal__options_help(table, usage->layout, &text) != ZONAL_OK) return zonal__cli_failed();
    printf("usage: %s\n\n%s\noptions:\n%s", usage->synopsis, usage->description, text);
    zonal__free(text);
    return ZONAL__EXIT_OK;
}

static int check_arguments(const zonal__cli_usage *usage, const char *command,
                           const zonal__options *options) {
    int count = options->argument_count;
    if (count > usage->most && usage->most == 0)
        return zonal__cli_misused("%s takes no argument, got \"%s\"", command,
                                  options->arguments[0]);
    if (count > usage->most)
        return zonal__cli_misused("%s takes %s and nothing more, got \"%s\" as well", command,
                                  usage->argument, options->arguments[usage->most]);
    for (int i = 0; i < count; i++)
        if (!options->arguments[i][0])
            return zonal__cli_misused("the name of %s is empty: %s", usage->argument,
                                      usage->synopsis);
    if (count < usage->least)
        return zonal__cli_misused("%s is missing: %s", usage->argument, usage->synopsis);
    return ZONAL__EXIT_CONTINUE;
}

/* More threads than are ever taken (core/thread.h) may well be meant for another machine. */
static void hint_at_threads(const zonal__options *options) {
    int processors = zonal__processors();
    for (const zonal__option *option = options->table; option->name; option++) {
        int64_t asked;
        if (strcmp(option->name, "threads") != 0 && strcmp(option->name, "workers") != 0) continue;
        memcpy(&asked, (const char *)options->values + option->target, sizeof asked);
        if (asked > zonal__thread_count(asked))
            zonal__cli_say("hint: --%s %lld: %d are used, %d for each of %d processor%s",
                           option->name, (long long)asked, zonal__thread_count(asked),
                           ZONAL__THREADS_PER_PROCESSOR, processors, processors == 1 ? "" : "s");
    }
}

int zonal__cli_parse_file(const zonal__cli_usage *usage, const zonal__option *table, void *settings,
                          int argc, char **argv, const char *file, zonal__options *options,
                          zonal__config **config) {
    const char *command = argv[0]; /* parsing rearranges argv */
    *config = NULL;
    if (zonal__options_init(options, table, settings) != ZONAL_OK ||
        (file && zonal__config_read(file, options, config) != ZONAL_OK) ||
        zonal__options_parse(options, argc, argv) != ZONAL_OK)
        return zonal__cli_failed();
    if (options->help) return print_help(usage, table);
    hint_at_threads(options);
    return check_arguments(usage, command, options);
}

int zonal__cli_parse(const zonal__cli_usage *usage, const zonal__option *table, void *settings,
                     int argc, char **argv, zonal__options *options) {
    zonal__config *config;
    return zonal__cli_parse_file(usage, table, settings, argc, argv, NULL, options, &config);
}
