/*
 * One table of options. Parsing, bounds, help and error sentences all come from it, so that they
 * cannot disagree.
 *
 *     typedef struct settings {
 *         int64_t dim;
 *         zonal__scale t;
 *         int method, json;
 *         const char *grad;
 *     } settings;
 *     static const zonal__option table[] = {
 *         {.name = "dim", .type = ZONAL__OPTION_INT, .target = offsetof(settings, dim),
 *          .initial = "256", .least = 2, .most = 4096, .metavar = "D",
 *          .help = "dimension of the embeddings"},
 *         {.name = "t", .type = ZONAL__OPTION_SCALE, .target = offsetof(settings, t),
 *          .initial = "5/d", .least = 0, .most = INFINITY, .rules = ZONAL__OPTION_OVER,
 *          .help = "time of the heat kernel"},
 *         {.name = "method", .type = ZONAL__OPTION_WORD, .target = offsetof(settings, method),
 *          .words = methods, .rules = ZONAL__OPTION_REQUIRED, .help = "the loss"},
 *         {.name = "json", .type = ZONAL__OPTION_FLAG, .target = offsetof(settings, json),
 *          .help = "print JSON"},
 *         {.name = "grad", .type = ZONAL__OPTION_STRING, .target = offsetof(settings, grad),
 *          .metavar = "FILE", .help = "write the gradient here"},
 *         {0}};
 *
 *     ZONAL_TRY(zonal__options_init(&options, table, &settings));
 *     ZONAL_TRY(zonal__options_parse(&options, argc, argv));
 *     if (options.help) ...
 *
 * On the command line: --key value, --key=value, --flag, --no-flag; "--" ends the options; all else
 * is an argument. A value that begins with "--" must be written with "=". --help and -h are known
 * everywhere. An option given twice is an error: one of the two would be ignored in silence.
 *
 * A value from the command line overrides one from a configuration file (config.h), and that a
 * default. Of every option is kept where its value came from and the text it was given as.
 *
 * A table may hold another one, of a struct inside the caller's; there, or with a name of its own
 * in the outer table, an option is left out of it:
 *
 *     {.name = "a loss", .type = ZONAL__OPTION_TABLE, .table = zonal__loss_option,
 *      .target = offsetof(settings, loss), .without = (const char *const[]){"dtype", NULL}},
 *
 * Nothing here prints or exits. Mistakes are ZONAL_ARGUMENT with a sentence for the user.
 */
#ifndef ZONAL_CORE_OPTIONS_H
#define ZONAL_CORE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "core/text.h"

enum { ZONAL__OPTIONS_MOST = 128 }; /* entries of one table */

/* The type decides what lies at the target. */
typedef enum zonal__option_type {
    ZONAL__OPTION_FLAG = 1, /* int: 0 or 1 */
    ZONAL__OPTION_INT,      /* int64_t */
    ZONAL__OPTION_DOUBLE,   /* double */
    ZONAL__OPTION_STRING,   /* const char *, points into argv, the table or the text of a
                               configuration file; NULL when not given */
    ZONAL__OPTION_WORD,     /* int: the index in "words"; -1 when not given */
    ZONAL__OPTION_SCALE,    /* zonal__scale; the bounds hold for the factor */
    ZONAL__OPTION_CUSTOM,   /* whatever "set" does */
    ZONAL__OPTION_ASSIGN,   /* no target: --set lr=0.1 does what --lr 0.1 does (flags: =yes, =no);
                               dots in the name count as dashes; may be given several times */
    ZONAL__OPTION_TABLE     /* stands for all entries of "table", whose targets lie in a struct at
                               this entry's target */
} zonal__option_type;

/* Rules, to be combined by |. OVER and UNDER exclude the bound itself. LINE keeps an option to the
 * command line: it has no place in a configuration file. */
enum {
    ZONAL__OPTION_REQUIRED = 1,
    ZONAL__OPTION_OVER = 2,
    ZONAL__OPTION_UNDER = 4,
    ZONAL__OPTION_LINE = 8
};

typedef struct zonal__option zonal__option;
struct zonal__option {
    const char *name; /* without dashes; NULL ends the table */
    zonal__option_type type;
    int rules;
    size_t target;            /* offset into the caller's struct */
    const char *initial;      /* the default, as the user would type it; flags: NULL or "yes" */
    double least, most;       /* bounds; both 0: none. One side open: -INFINITY or INFINITY */
    const char *const *words; /* of a WORD, NULL-terminated */
    const char *metavar;      /* in the help; NULL: one that fits the type */
    const char *help;         /* a phrase; default, bounds and words are added to it */
    /* CUSTOM: parse "text" and store it; "shown" is the name for sentences ("--t"). Other types:
     * NULL, or what is to be done once the value is stored. */
    zonal_status (*set)(void *values, const zonal__option *option, const char *shown,
                        const char *text);
    /* TABLE: fills the i-th entry and returns 1; 0 past the last. A function, since entries may be
     * made from other records. Of an entry that came from a table: that table's. */
    int (*table)(int i, zonal__option *entry);
    const char *const *without; /* TABLE: names that are left out of it; NULL: none */
};

typedef enum zonal__option_source {
    ZONAL__SOURCE_NONE = 0, /* no default and not given: the target is zero, NULL or -1 */
    ZONAL__SOURCE_DEFAULT,
    ZONAL__SOURCE_FILE,
    ZONAL__SOURCE_FLAG
} zonal__option_source;

/* What is known of a value. The texts are those of the table, argv or a configuration file. */
typedef struct zonal__option_state {
    zonal__option_source source;
    const char *text; /* what it was set from; NULL when it was not */
    const char *file; /* of SOURCE_FILE, with its line */
    int line;
    const char *note; /* what a dump says beside the source: "auto", where the value was settled
                       * later; NULL: nothing */
} zonal__option_state;

typedef struct zonal__options {
    zonal__option table[ZONAL__OPTIONS_MOST + 1]; /* all entries, those of tables in it as well */
    void *values;
    zonal__option_state state[ZONAL__OPTIONS_MOST];
    int help; /* --help or -h was given; required options are then not missed */
    int argument_count;
    char **arguments; /* the arguments that are not options, in order */
} zonal__options;

/* Sets every target to its default. What the table points to and the values must outlive "options".
 */
zonal_status zonal__options_init(zonal__options *options, const zonal__option *table, void *values);

/* Parses argv[1] ... argv[argc - 1]. The arguments that are not options are gathered at the front
 * of argv, which is rearranged for it. */
zonal_status zonal__options_parse(zonal__options *options, int argc, char **argv);

/* Sets one option from text. "shown" is its name in sentences: "--t", or "t in run.toml". */
zonal_status zonal__options_set(zonal__options *options, const char *name, const char *shown,
                                const char *text, zonal__option_source source);

/* The same from a line of a configuration file, which may override an earlier file. All texts but
 * "shown" must outlive "options". */
zonal_status zonal__options_set_line(zonal__options *options, const char *name, const char *shown,
                                     const char *text, const char *file, int line);

/* The value that argv[1] ... argv[argc - 1] will give to an option that takes one, or NULL: for the
 * name of the configuration file, which must be read before the rest can override it. */
const char *zonal__options_peek(int argc, char **argv, const char *name);

/* Where the value of an option came from; NONE also for a name that is not in the table. */
zonal__option_source zonal__options_source(const zonal__options *options, const char *name);

/* Sets one option of a struct from text, for a caller without a command line: an unknown name is
 * ZONAL_ARGUMENT, and the sentence offers the nearest. */
zonal_status zonal__option_set(const zonal__option *table, const char *name, const char *text,
                               void *values);

/* The same for several as one text, name=value with commas between them; what has no = belongs to
 * the list before it: "spectrum=1,0.5,threads=2". NULL or "": none. "seen" gets the names that were
 * given, and NULL behind them. Options that keep their text point into *copy: release it with
 * zonal__free once they are used, after a failure too. */
typedef zonal_status zonal__option_setter(void *options, const char *name, const char *text);
zonal_status zonal__options_set_text(const char *text, zonal__option_setter *set, void *options,
                                     const char *seen[ZONAL__OPTIONS_MOST + 1], char **copy);

/* The entry of that name, or the same sentence. */
zonal_status zonal__option_find(const zonal__option *table, const char *name, zonal__option *entry);

/* Sets again, in "values", what was given (not a default) to the options whose targets lie in the
 * "size" bytes at offset "at" of the options' own values: for a struct of the same type that holds
 * other defaults. "wanted" (NULL: all) chooses by name. */
zonal_status zonal__options_repeat(const zonal__options *options, size_t at, size_t size,
                                   int (*wanted)(const void *context, const char *name),
                                   const void *context, void *values);

/* Entry i of a table, those of tables in it counted one by one: 1 and *entry, or 0 past the last.
 */
int zonal__option_entry(const zonal__option *table, int i, zonal__option *entry);

/* How a long help is laid out: the options that matter most first, then groups of the others. */
typedef struct zonal__option_group {
    const char *title, *first; /* the option that it begins with; it ends where the next begins */
} zonal__option_group;
typedef struct zonal__option_layout {
    const char *const *first;          /* names, NULL-terminated */
    const zonal__option_group *groups; /* in the order of the table, ended by zeros */
} zonal__option_layout;

/* The help: an entry per option, wrapped to 80 columns. Layout NULL: all in the order of the table.
 * Release *out with zonal__free. */
zonal_status zonal__options_help(const zonal__option *table, const zonal__option_layout *layout,
                                 char **out);

#endif
