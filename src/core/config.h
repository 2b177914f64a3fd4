/*
 * Configuration files: the option table (options.h) read from, and written as, TOML.
 *
 *     ZONAL_TRY(zonal__options_init(&options, table, &settings));
 *     path = zonal__options_peek(argc, argv, "config");
 *     if (path) ZONAL_TRY(zonal__config_read(path, &options, &config));
 *     ZONAL_TRY(zonal__options_parse(&options, argc, argv));       flags override the file
 *     ...
 *     zonal__config_destroy(config);                               when the options are done with
 *
 * A key sets the option of the same name; what stands in [section] or before a dot is put before it
 * with a dash. These three set the option "data-workers":
 *
 *     data-workers = 4                data.workers = 4                [data]
 *                                                                     workers = 4
 *
 * Read is a part of TOML 1.0: comments, [section], bare keys with dots, texts in double quotes with
 * TOML's escapes, decimal whole numbers and floats (with _ between digits), true, false, and lists
 * of numbers or of texts, on one line or several. A file that uses anything else is refused, and
 * one that is accepted is TOML (but for a section that is opened both by its header and by dotted
 * keys).
 *
 *     option             takes
 *     FLAG               true or false
 *     INT                a whole number
 *     DOUBLE             a number
 *     STRING, WORD       a text
 *     SCALE              a number, or a text such as "5/d"
 *     CUSTOM             any of these, as text (true is "yes"), or a list: [0.9, 0.999] arrives as
 *                        "0.9,0.999"
 *
 * Mistakes are one sentence that begins with file:line. ZONAL_FORMAT: no such TOML; ZONAL_ARGUMENT:
 * a key or section that is not known (the nearest is offered), a key that is there twice, a value
 * of the wrong type or out of its range.
 */
#ifndef ZONAL_CORE_CONFIG_H
#define ZONAL_CORE_CONFIG_H

#include "core/options.h"

/* Holds the texts that the options were set from. */
typedef struct zonal__config zonal__config;

/* Sets options from a file. *out is NULL on failure; some options may then have been set, and their
 * texts are gone: the options must not be used. Keep *out as long as the options. A second file
 * overrides the first. */
zonal_status zonal__config_read(const char *path, zonal__options *options, zonal__config **out);
/* The same from a text in memory; "name" stands for the file in sentences. */
zonal_status zonal__config_read_text(const char *name, const char *text, zonal__options *options,
                                     zonal__config **out);
void zonal__config_destroy(zonal__config *config); /* accepts NULL */

/* The same reader without a table, for who shows a file and does not act on it: calls "take" for
 * every key in turn, with the name of the option that it would set, its value as text (true is
 * "true", lists are joined by commas) and the comment behind it, "" where there is none. The name
 * lasts for the call, the other texts as long as *out. A key that is there twice is given twice. A
 * failure of "take" ends the reading and is returned. */
typedef zonal_status (*zonal__config_take)(void *context, const char *name, const char *value,
                                           const char *comment);
zonal_status zonal__config_list(const char *path, zonal__config_take take, void *context,
                                zonal__config **out);

/* The effective configuration as a file that reads back to the same values, with the source of each
 * in a comment: "# default", "# recipes/x.toml:12", "# --lr"; "# auto by default", "# 0 by --side"
 * where the value was settled by the program. A file whose name has " by " in it is in quotes:
 * "# \"made by me.toml\":12". Options that are not set and those of the command line alone
 * (ZONAL__OPTION_LINE) are left out. Release *out with zonal__free; it is NULL on failure:
 * ZONAL_MEMORY, or ZONAL_ARGUMENT for a text that is not UTF-8, which no configuration file can
 * hold. */
zonal_status zonal__config_dump(const zonal__options *options, char **out);

/* Whether such a comment says that the program has settled the value. */
int zonal__config_is_settled(const char *comment);

/* What was asked for, to be kept and compared with later: as the dump, but without comments and
 * without the options that "left_out" (NULL: none) names. */
typedef int zonal__config_filter(const char *name);
zonal_status zonal__config_values(const zonal__options *options, zonal__config_filter *left_out,
                                  char **out);

/* An option whose value is another now than in a text of zonal__config_values. Both are as in a
 * file; "" where the option is not set. */
typedef struct zonal__config_change {
    char name[64], before[256], now[256]; /* longer values are cut */
} zonal__config_change;

/* The first such option in *change, and *found 1; else *found 0. An option that is not in the text
 * and has its default now is taken for one that a later version has brought. ZONAL_MEMORY. */
zonal_status zonal__config_compare(const zonal__options *options, zonal__config_filter *left_out,
                                   const char *before, zonal__config_change *change, int *found);

#endif
