/*
 * What the subcommands share. A subcommand is one file with one function
 *
 *     int zonal__cli_NAME(int argc, char **argv)
 *
 * (argv[0] is its name; it returns the exit status)
 *
 * declared here and listed in main.c. It looks like this:
 *
 *     int status = zonal__cli_parse(&usage, table, &settings, argc, argv, &options);
 *     if (status != ZONAL__EXIT_CONTINUE) return status;
 *     if (work(&settings, options.arguments[0]) != ZONAL_OK) return zonal__cli_failed();
 *     return ZONAL__EXIT_OK;
 *
 * Results go to stdout by printf; main flushes it and reports what could not be written. Everything
 * else that people read (progress, errors) goes to stderr.
 */
#ifndef ZONAL_CLI_COMMON_CLI_H
#define ZONAL_CLI_COMMON_CLI_H

#include <math.h>
#include <stddef.h>

#include "core/config.h"

enum {
    ZONAL__EXIT_CONTINUE = -1,
    ZONAL__EXIT_OK = 0,
    ZONAL__EXIT_FAILED = 1, /* the data, a file, memory or a device */
    ZONAL__EXIT_USAGE = 2   /* the command line */
};

typedef struct zonal__cli_usage {
    const char *synopsis;    /* "zonal loss X.npy --method WORD [options]" */
    const char *description; /* paragraphs, wrapped to 80 columns, each line ended by a newline */
    const char *argument;    /* what the arguments are, for sentences: "X.npy"; NULL: none */
    int least, most;         /* how many of them */
    const zonal__option_layout *layout; /* of the options in the help; NULL: as in the table */
} zonal__cli_usage;

/* Entries that many tables have: for a field "threads" or "seed" of the settings, an int64_t. */
#define ZONAL__THREADS_OPTION(settings_type, text)                                                 \
    {                                                                                              \
        .name = "threads", .type = ZONAL__OPTION_INT, .target = offsetof(settings_type, threads),  \
        .initial = "0", .least = 0, .most = 4096, .help = text                                     \
    }
#define ZONAL__SEED_OPTION(settings_type, text)                                                    \
    {                                                                                              \
        .name = "seed", .type = ZONAL__OPTION_INT, .target = offsetof(settings_type, seed),        \
        .initial = "0", .least = 0, .most = INFINITY, .help = text                                 \
    }

/* Parses a command line by the table. Returns ZONAL__EXIT_CONTINUE with settings and options
 * filled, or the exit status: after --help, printed here, or a mistake, reported here. */
int zonal__cli_parse(const zonal__cli_usage *usage, const zonal__option *table, void *settings,
                     int argc, char **argv, zonal__options *options);
/* The same with a configuration file (NULL: none) that the command line overrides. *config, NULL
 * without a file, is the caller's to destroy once the options are done with, whatever is returned.
 */
int zonal__cli_parse_file(const zonal__cli_usage *usage, const zonal__option *table, void *settings,
                          int argc, char **argv, const char *file, zonal__options *options,
                          zonal__config **config);

/* Prints "zonal: <sentence of the last error>" as one line on stderr and returns the exit status
 * for it: ZONAL__EXIT_USAGE for ZONAL_ARGUMENT, else ZONAL__EXIT_FAILED. */
int zonal__cli_failed(void);

/* The same for a sentence of one's own about the command line; returns ZONAL__EXIT_USAGE. */
__attribute__((format(printf, 1, 2))) int zonal__cli_misused(const char *format, ...);

/* "zonal: <sentence>" on stderr, for a warning or a hint. */
__attribute__((format(printf, 1, 2))) void zonal__cli_say(const char *format, ...);

/* Whether this very line has been asked about before, from any thread: what the library says every
 * time it opens a folder is a warning once. Of more than 256 lines some may count as new again. */
int zonal__cli_said_before(const char *line);

/* A text from outside (a name of a file or of a class) as it may go to a terminal: what core/text.h
 * calls hidden is escaped, so that one line stays one line. printf("%s\n",
 * zonal__cli_plain(path).text) */
typedef struct zonal__cli_text {
    char text[2048];
} zonal__cli_text;
zonal__cli_text zonal__cli_plain(const char *text);

/* The same in place, for the columns of a table: '?' stands for each hidden character. */
void zonal__cli_make_plain(char *text);

/* A name as a shell reads it, for a command that is to be copied: in single quotes where it has
 * blanks or special characters; as zonal__cli_plain where it has hidden ones. */
zonal__cli_text zonal__cli_quoted(const char *name);

/* A file of images by another format's name would open nowhere: ZONAL__EXIT_CONTINUE, or the exit
 * status after a sentence, where the path (NULL: none) ends in the ending of another format than
 * "ending", such as ".svg". */
int zonal__cli_check_ending(const char *option, const char *path, const char *ending);

/* Makes the folder where it is missing; the one that it lies in must be there. */
zonal_status zonal__cli_make_folder(const char *path);

int zonal__cli_bench(int argc, char **argv);
int zonal__cli_data(int argc, char **argv);
int zonal__cli_devices(int argc, char **argv);
int zonal__cli_embed(int argc, char **argv);
int zonal__cli_eval(int argc, char **argv);
int zonal__cli_export(int argc, char **argv);
int zonal__cli_kernel(int argc, char **argv);
int zonal__cli_loss(int argc, char **argv);
int zonal__cli_metrics(int argc, char **argv);
int zonal__cli_report(int argc, char **argv);
int zonal__cli_reproduce(int argc, char **argv);
int zonal__cli_sample(int argc, char **argv);
int zonal__cli_test(int argc, char **argv);
int zonal__cli_train(int argc, char **argv);
int zonal__cli_variance(int argc, char **argv);

#endif
