#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/memory.h"

void zonal__cli_say(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    /* Names of files come from outside: one line must stay one line, on any terminal. */
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    fprintf(stderr, "zonal: %s\n", line);
}

int zonal__cli_failed(void) {
    const zonal_error *error = zonal_last_error();
    zonal__cli_say("%s", error->message);
    return error->status == ZONAL_ARGUMENT ? ZONAL__EXIT_USAGE : ZONAL__EXIT_FAILED;
}

int zonal__cli_misused(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    zonal__cli_say("%s", line);
    return ZONAL__EXIT_USAGE;
}

static int print_help(const zonal__cli_usage *usage, const zonal__option *table) {
    char *text;
    if (zonal__options_help(table, &text) != ZONAL_OK) return zonal__cli_failed();
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
    if (count < usage->least)
        return zonal__cli_misused("%s is missing: %s", usage->argument, usage->synopsis);
    return ZONAL__EXIT_CONTINUE;
}

int zonal__cli_parse(const zonal__cli_usage *usage, const zonal__option *table, void *settings,
                     int argc, char **argv, zonal__options *options) {
    const char *command = argv[0]; /* parsing rearranges argv */
    if (zonal__options_init(options, table, settings) != ZONAL_OK ||
        zonal__options_parse(options, argc, argv) != ZONAL_OK)
        return zonal__cli_failed();
    if (options->help) return print_help(usage, table);
    return check_arguments(usage, command, options);
}
