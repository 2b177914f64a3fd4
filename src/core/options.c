#include "core/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"

enum { HELP_WIDTH = 80, HELP_INDENT = 26 };

static void *target_of(void *values, const zonal__option *option) {
    return (char *)values + option->target;
}

static const zonal__option *find(const zonal__option *table, const char *name) {
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0) return table;
    return NULL;
}

/* ---- tables in tables ------------------------------------------------------------------------ */

/* An entry that stands for a table, and the one that this table lies in. */
typedef struct frame {
    const zonal__option *entry;
    const struct frame *around;
} frame;

typedef struct gathering {
    const zonal__option *outer;
    zonal__option *flat;
    int count;
} gathering;

static int is_left_out(const gathering *g, const frame *in, const char *name) {
    for (; in; in = in->around)
        for (const char *const *word = in->entry->without; word && *word; word++)
            if (strcmp(*word, name) == 0) return 1;
    return find(g->outer, name) != NULL;
}

static zonal_status gather(gathering *g, const zonal__option *entry, const frame *around) {
    const frame here = {entry, around};
    zonal__option inner;
    if (entry->type != ZONAL__OPTION_TABLE) {
        if (g->count == ZONAL__OPTIONS_MOST)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "the table has more than %d options", g->count);
        g->flat[g->count++] = *entry;
        return ZONAL_OK;
    }
    for (int i = 0; entry->table(i, &inner); i++) {
        if (is_left_out(g, &here, inner.name)) continue;
        inner.target += entry->target;
        if (inner.type != ZONAL__OPTION_TABLE) inner.table = entry->table;
        ZONAL_TRY(gather(g, &inner, &here));
    }
    return ZONAL_OK;
}

/* All entries of a table one after the other, ended by zeros. */
static zonal_status flatten(const zonal__option *table, zonal__option *flat) {
    gathering g = {.outer = table, .flat = flat};
    for (; table->name; table++) ZONAL_TRY(gather(&g, table, NULL));
    flat[g.count] = (zonal__option){0};
    return ZONAL_OK;
}

int zonal__option_entry(const zonal__option *table, int i, zonal__option *entry) {
    zonal__option flat[ZONAL__OPTIONS_MOST + 1];
    if (i < 0 || flatten(table, flat) != ZONAL_OK) return 0;
    for (int k = 0; k <= i; k++)
        if (!flat[k].name) return 0;
    *entry = flat[i];
    return 1;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static int has_bounds(const zonal__option *option) {
    return option->least != 0 || option->most != 0;
}

/* "between 2 and 4096", "above 0"; bounds are printed as the user would type them. */
static void describe_bounds(const zonal__option *option, char *out, size_t size) {
    const char *low = option->rules & ZONAL__OPTION_OVER ? "above" : "at least";
    const char *high = option->rules & ZONAL__OPTION_UNDER ? "below" : "at most";
    int has_low = isfinite(option->least), has_high = isfinite(option->most);
    if (has_low && has_high && !(option->rules & (ZONAL__OPTION_OVER | ZONAL__OPTION_UNDER)))
        snprintf(out, size, "between %.10g and %.10g", option->least, option->most);
    else if (has_low && has_high)
        snprintf(out, size, "%s %.10g and %s %.10g", low, option->least, high, option->most);
    else if (has_low)
        snprintf(out, size, "%s %.10g", low, option->least);
    else if (has_high)
        snprintf(out, size, "%s %.10g", high, option->most);
    else
        snprintf(out, size, "any number");
}

static zonal_status check_bounds(const zonal__option *option, const char *shown, const char *text,
                                 double value) {
    int low = option->rules & ZONAL__OPTION_OVER ? value > option->least : value >= option->least;
    int high = option->rules & ZONAL__OPTION_UNDER ? value < option->most : value <= option->most;
    char bounds[96];
    if (!has_bounds(option) || (low && high)) return ZONAL_OK;
    describe_bounds(option, bounds, sizeof bounds);
    return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be %s, got %s", shown, bounds, text);
}

/* ---- setting one value ----------------------------------------------------------------------- */

static void list_words(const char *const *words, char *out, size_t size) {
    out[0] = '\0';
    for (int i = 0; words[i]; i++) zonal__text_append(out, size, i ? " %s" : "%s", words[i]);
}

static zonal_status set_word(const zonal__option *option, const char *shown, const char *text,
                             int *out) {
    const char *near;
    char list[400];
    for (int i = 0; option->words[i]; i++) {
        if (strcmp(option->words[i], text) != 0) continue;
        *out = i;
        return ZONAL_OK;
    }
    near = zonal__text_nearest(text, option->words);
    list_words(option->words, list, sizeof list);
    if (near)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s does not know \"%s\"; did you mean %s? (one of: %s)",
                          shown, text, near, list);
    return ZONAL_FAIL(ZONAL_ARGUMENT, "%s does not know \"%s\"; it is one of: %s", shown, text,
                      list);
}

static zonal_status set_flag(const char *shown, const char *text, int *out) {
    int on = strcmp(text, "yes") == 0 || strcmp(text, "true") == 0;
    if (!on && strcmp(text, "no") != 0 && strcmp(text, "false") != 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be yes or no, got \"%s\"", shown, text);
    *out = on;
    return ZONAL_OK;
}

static zonal_status store(void *values, const zonal__option *option, const char *shown,
                          const char *text) {
    void *target = target_of(values, option);
    int64_t whole;
    double number;
    zonal__scale scale;
    switch (option->type) {
    case ZONAL__OPTION_FLAG:
        return set_flag(shown, text, target);
    case ZONAL__OPTION_INT:
        ZONAL_TRY(zonal__text_int64(text, shown, &whole));
        ZONAL_TRY(check_bounds(option, shown, text, (double)whole));
        *(int64_t *)target = whole;
        return ZONAL_OK;
    case ZONAL__OPTION_DOUBLE:
        ZONAL_TRY(zonal__text_double(text, shown, &number));
        ZONAL_TRY(check_bounds(option, shown, text, number));
        *(double *)target = number;
        return ZONAL_OK;
    case ZONAL__OPTION_STRING:
        if (!text[0]) return ZONAL_FAIL(ZONAL_ARGUMENT, "%s is empty", shown);
        *(const char **)target = text;
        return ZONAL_OK;
    case ZONAL__OPTION_WORD:
        return set_word(option, shown, text, target);
    case ZONAL__OPTION_SCALE:
        ZONAL_TRY(zonal__text_scale(text, shown, &scale));
        ZONAL_TRY(check_bounds(option, shown, text, scale.factor));
        *(zonal__scale *)target = scale;
        return ZONAL_OK;
    case ZONAL__OPTION_CUSTOM:
        return option->set(values, option, shown, text);
    case ZONAL__OPTION_ASSIGN:
    case ZONAL__OPTION_TABLE:
        break;
    }
    return ZONAL_FAIL(ZONAL_ARGUMENT, "the table gives %s no type", shown);
}

static zonal_status set_value(void *values, const zonal__option *option, const char *shown,
                              const char *text) {
    ZONAL_TRY(store(values, option, shown, text));
    if (!option->set || option->type == ZONAL__OPTION_CUSTOM) return ZONAL_OK;
    return option->set(values, option, shown, text);
}

/* Targets without a default must not be left to chance. CUSTOM targets are their setter's. */
static void clear_value(void *values, const zonal__option *option) {
    void *target = target_of(values, option);
    switch (option->type) {
    case ZONAL__OPTION_FLAG:
        *(int *)target = 0;
        break;
    case ZONAL__OPTION_INT:
        *(int64_t *)target = 0;
        break;
    case ZONAL__OPTION_DOUBLE:
        *(double *)target = 0;
        break;
    case ZONAL__OPTION_STRING:
        *(const char **)target = NULL;
        break;
    case ZONAL__OPTION_WORD:
        *(int *)target = -1;
        break;
    case ZONAL__OPTION_SCALE:
        *(zonal__scale *)target = (zonal__scale){0, 0};
        break;
    case ZONAL__OPTION_CUSTOM:
    case ZONAL__OPTION_ASSIGN:
    case ZONAL__OPTION_TABLE:
        break;
    }
}

zonal_status zonal__options_init(zonal__options *options, const zonal__option *given,
                                 void *values) {
    const zonal__option *table = options->table;
    memset(options, 0, sizeof *options);
    ZONAL_TRY(flatten(given, options->table));
    options->values = values;
    for (int i = 0; table[i].name; i++) {
        clear_value(values, &table[i]);
        if (!table[i].initial) continue;
        ZONAL_TRY(set_value(values, &table[i], table[i].name, table[i].initial));
        options->state[i] =
            (zonal__option_state){.source = ZONAL__SOURCE_DEFAULT, .text = table[i].initial};
    }
    return ZONAL_OK;
}

static zonal_status fail_unknown(const zonal__option *table, const char *name, const char *shown) {
    const char *names[ZONAL__OPTIONS_MOST + 2], *near;
    int count = 0;
    for (; table->name && count < ZONAL__OPTIONS_MOST; table++) names[count++] = table->name;
    names[count++] = "help";
    names[count] = NULL;
    near = zonal__text_nearest(name, names);
    if (near)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no option %s; did you mean --%s?", shown, near);
    return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no option %s; --help lists the options", shown);
}

static zonal_status fail_unset(const zonal__option *table, const char *name) {
    const char *names[ZONAL__OPTIONS_MOST + 1], *near;
    char list[600] = "";
    int count = 0;
    for (; table->name; table++) {
        zonal__text_append(list, sizeof list, count ? ", %s" : "%s", table->name);
        names[count++] = table->name;
    }
    names[count] = NULL;
    near = zonal__text_nearest(name, names);
    if (near)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no option \"%.60s\"; did you mean \"%s\"?",
                          name, near);
    return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no option \"%.60s\"; there are %s", name, list);
}

zonal_status zonal__option_find(const zonal__option *table, const char *name,
                                zonal__option *entry) {
    zonal__option flat[ZONAL__OPTIONS_MOST + 1];
    const zonal__option *option;
    ZONAL_TRY(flatten(table, flat));
    option = find(flat, name);
    if (!option) return fail_unset(flat, name);
    *entry = *option;
    return ZONAL_OK;
}

zonal_status zonal__option_set(const zonal__option *table, const char *name, const char *text,
                               void *values) {
    zonal__option option;
    ZONAL_TRY(zonal__option_find(table, name, &option));
    return set_value(values, &option, option.name, text);
}

zonal_status zonal__options_repeat(const zonal__options *options, size_t at, size_t size,
                                   int (*wanted)(const void *context, const char *name),
                                   const void *context, void *values) {
    char shown[320];
    for (int i = 0; options->table[i].name; i++) {
        zonal__option option = options->table[i];
        const zonal__option_state *state = &options->state[i];
        if (state->source <= ZONAL__SOURCE_DEFAULT || option.type == ZONAL__OPTION_ASSIGN ||
            option.target < at || option.target >= at + size ||
            (wanted && !wanted(context, option.name)))
            continue;
        if (state->source == ZONAL__SOURCE_FILE)
            snprintf(shown, sizeof shown, "%.200s:%d: %s", state->file, state->line, option.name);
        else
            snprintf(shown, sizeof shown, "--%s", option.name);
        option.target -= at;
        ZONAL_TRY(set_value(values, &option, shown, state->text));
    }
    return ZONAL_OK;
}

static zonal_status set_option(zonal__options *options, const zonal__option *option,
                               const char *shown, zonal__option_state state) {
    zonal__option_state *old = &options->state[option - options->table];
    if (old->source == state.source && old->file == state.file)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s is given twice; leave one out", shown);
    ZONAL_TRY(set_value(options->values, option, shown, state.text));
    *old = state;
    return ZONAL_OK;
}

/* "lr=0.1", as if --lr 0.1 had been given. */
static zonal_status assign(zonal__options *options, const char *shown, const char *text,
                           zonal__option_source source) {
    const char *equals = strchr(text, '=');
    char name[64], both[96];
    const zonal__option *option;
    if (!equals || equals == text || (size_t)(equals - text) >= sizeof name)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must look like key=value, got \"%s\"", shown, text);
    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    for (char *c = name; *c; c++)
        if (*c == '.') *c = '-';
    snprintf(both, sizeof both, "%.20s %s", shown, name);
    option = find(options->table, name);
    if (!option) return fail_unknown(options->table, name, both);
    if (option->rules & ZONAL__OPTION_LINE || option->type == ZONAL__OPTION_ASSIGN)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s does not work; write --%s", both, name);
    return set_option(options, option, both,
                      (zonal__option_state){.source = source, .text = equals + 1});
}

zonal_status zonal__options_set(zonal__options *options, const char *name, const char *shown,
                                const char *text, zonal__option_source source) {
    const zonal__option *option = find(options->table, name);
    if (!option) return fail_unknown(options->table, name, shown);
    if (option->type == ZONAL__OPTION_ASSIGN) return assign(options, shown, text, source);
    return set_option(options, option, shown,
                      (zonal__option_state){.source = source, .text = text});
}

zonal_status zonal__options_set_line(zonal__options *options, const char *name, const char *shown,
                                     const char *text, const char *file, int line) {
    const zonal__option *option = find(options->table, name);
    if (!option) return fail_unknown(options->table, name, shown);
    return set_option(options, option, shown,
                      (zonal__option_state){
                          .source = ZONAL__SOURCE_FILE, .text = text, .file = file, .line = line});
}

zonal__option_source zonal__options_source(const zonal__options *options, const char *name) {
    const zonal__option *option = find(options->table, name);
    if (!option) return ZONAL__SOURCE_NONE;
    return options->state[option - options->table].source;
}

/* ---- the command line ------------------------------------------------------------------------ */

/* "--no-json", when json is a flag and no option is called no-json. */
static const zonal__option *find_negated(const zonal__option *table, const char *name) {
    const zonal__option *option = strncmp(name, "no-", 3) == 0 ? find(table, name + 3) : NULL;
    return option && option->type == ZONAL__OPTION_FLAG && !find(table, name) ? option : NULL;
}

/* Parses the option at argv[*at]; *at ends on the last word that belongs to it. */
static zonal_status parse_option(zonal__options *options, int argc, char **argv, int *at) {
    char name[64], shown[68];
    const char *word = argv[*at] + 2, *equals = strchr(word, '=');
    const char *text = equals ? equals + 1 : NULL;
    const zonal__option *option, *negated;
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    snprintf(name, sizeof name, "%.*s", length < sizeof name ? (int)length : (int)sizeof name - 1,
             word);
    snprintf(shown, sizeof shown, "--%s", name);
    option = find(options->table, name);
    negated = find_negated(options->table, name);
    if (negated || (option && option->type == ZONAL__OPTION_FLAG)) {
        if (text) return ZONAL_FAIL(ZONAL_ARGUMENT, "%s takes no value, got \"%s\"", shown, text);
        return zonal__options_set(options, negated ? negated->name : name, shown,
                                  negated ? "no" : "yes", ZONAL__SOURCE_FLAG);
    }
    if (!option) return fail_unknown(options->table, name, shown);
    if (!text && (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0))
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s needs a value: %s", shown, option->help);
    if (!text) text = argv[++*at];
    return zonal__options_set(options, name, shown, text, ZONAL__SOURCE_FLAG);
}

static zonal_status check_required(const zonal__options *options) {
    char list[400];
    for (int i = 0; options->table[i].name; i++) {
        const zonal__option *option = &options->table[i];
        if (!(option->rules & ZONAL__OPTION_REQUIRED) ||
            options->state[i].source != ZONAL__SOURCE_NONE)
            continue;
        if (option->type != ZONAL__OPTION_WORD)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "--%s is required: %s", option->name, option->help);
        list_words(option->words, list, sizeof list);
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--%s is required, one of: %s", option->name, list);
    }
    return ZONAL_OK;
}

zonal_status zonal__options_parse(zonal__options *options, int argc, char **argv) {
    int only_arguments = 0;
    options->arguments = argv;
    options->argument_count = 0;
    for (int i = 1; i < argc; i++) {
        if (only_arguments || argv[i][0] != '-' || argv[i][1] == '\0')
            argv[options->argument_count++] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            only_arguments = 1;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            options->help = 1;
        else if (argv[i][1] != '-')
            return ZONAL_FAIL(ZONAL_ARGUMENT,
                              "there is no option %s; options begin with two dashes and are listed "
                              "by --help",
                              argv[i]);
        else
            ZONAL_TRY(parse_option(options, argc, argv, &i));
    }
    return options->help ? ZONAL_OK : check_required(options);
}

/* A value never begins with "--" unless it stands after "=", so words need not be told apart. */
const char *zonal__options_peek(int argc, char **argv, const char *name) {
    size_t length = strlen(name);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--", 2) != 0 || strncmp(argv[i] + 2, name, length) != 0) continue;
        if (argv[i][2 + length] == '=') return argv[i] + 3 + length;
        if (argv[i][2 + length] == '\0' && i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0)
            return argv[i + 1];
    }
    return NULL;
}

/* ---- help ------------------------------------------------------------------------------------ */

typedef struct page {
    char *text; /* NULL while only counting */
    size_t length;
    int column;
} page;

static void put(page *p, const char *text, size_t count) {
    if (p->text) memcpy(p->text + p->length, text, count);
    p->length += count;
    p->column += (int)count;
}

static void new_line(page *p) {
    put(p, "\n", 1);
    p->column = 0;
}

static void indent(page *p, int column) {
    while (p->column < column) put(p, " ", 1);
}

static void put_wrapped(page *p, const char *text) {
    while (*text) {
        size_t length = strcspn(text, " ");
        int first = p->column <= HELP_INDENT;
        if (!first && p->column + 1 + (int)length > HELP_WIDTH) {
            new_line(p);
            first = 1;
        }
        indent(p, HELP_INDENT);
        if (!first) put(p, " ", 1);
        put(p, text, length);
        text += length;
        text += strspn(text, " ");
    }
}

static const char *metavar(const zonal__option *option) {
    if (option->metavar) return option->metavar;
    switch (option->type) {
    case ZONAL__OPTION_INT:
        return "N";
    case ZONAL__OPTION_DOUBLE:
        return "NUMBER";
    case ZONAL__OPTION_STRING:
        return "TEXT";
    case ZONAL__OPTION_WORD:
        return "WORD";
    case ZONAL__OPTION_SCALE:
        return "NUMBER[/d]|d";
    case ZONAL__OPTION_FLAG:
        return NULL;
    case ZONAL__OPTION_CUSTOM:
        return "VALUE";
    case ZONAL__OPTION_ASSIGN:
        return "KEY=VALUE";
    case ZONAL__OPTION_TABLE:
        break;
    }
    return NULL;
}

/* What the table knows beyond the phrase: "(required)", "(default 5/d; above 0)". */
static void describe_limits(const zonal__option *option, char *out, size_t size) {
    const char *separator = "";
    char bounds[96];
    out[0] = '\0';
    zonal__text_append(out, size, "(");
    if (option->rules & ZONAL__OPTION_REQUIRED) {
        zonal__text_append(out, size, "required");
        separator = "; ";
    } else if (option->initial && option->type != ZONAL__OPTION_FLAG) {
        zonal__text_append(out, size, "default %s", option->initial);
        separator = "; ";
    } else if (option->initial && strcmp(option->initial, "yes") == 0) {
        zonal__text_append(out, size, "on by default: --no-%s", option->name);
        separator = "; ";
    }
    if (has_bounds(option)) {
        describe_bounds(option, bounds, sizeof bounds);
        zonal__text_append(out, size, "%s%s", separator, bounds);
    }
    zonal__text_append(out, size, ")");
    if (strcmp(out, "()") == 0) out[0] = '\0';
}

static void put_entry(page *p, const zonal__option *option) {
    char head[96], extra[512];
    const char *value = metavar(option);
    snprintf(head, sizeof head, "  --%s%s%s", option->name, value ? " " : "", value ? value : "");
    put(p, head, strlen(head));
    if (p->column + 2 > HELP_INDENT) new_line(p);
    if (option->help) put_wrapped(p, option->help);
    if (option->words) {
        put_wrapped(p, "- one of:");
        list_words(option->words, extra, sizeof extra);
        put_wrapped(p, extra);
    }
    describe_limits(option, extra, sizeof extra);
    put_wrapped(p, extra);
    new_line(p);
}

static int is_first(const zonal__option_layout *layout, const char *name) {
    for (const char *const *first = layout->first; *first; first++)
        if (strcmp(*first, name) == 0) return 1;
    return 0;
}

static void put_title(page *p, const zonal__option_layout *layout, const char *name) {
    for (const zonal__option_group *group = layout->groups; group->title; group++)
        if (strcmp(group->first, name) == 0) {
            put(p, "\n", 1);
            put(p, group->title, strlen(group->title));
            put(p, ":", 1);
            new_line(p);
        }
}

static void put_page(page *p, const zonal__option *table, const zonal__option_layout *layout) {
    static const zonal__option help = {
        .name = "help", .type = ZONAL__OPTION_FLAG, .help = "print this help"};
    for (const char *const *first = layout ? layout->first : NULL; first && *first; first++)
        if (find(table, *first)) put_entry(p, find(table, *first));
    for (; table->name; table++) {
        if (layout) put_title(p, layout, table->name);
        if (!layout || !is_first(layout, table->name)) put_entry(p, table);
    }
    put_entry(p, &help);
}

zonal_status zonal__options_help(const zonal__option *table, const zonal__option_layout *layout,
                                 char **out) {
    zonal__option flat[ZONAL__OPTIONS_MOST + 1];
    page p = {0};
    ZONAL_TRY(flatten(table, flat));
    put_page(&p, flat, layout);
    ZONAL_TRY(ZONAL_NEW(out, p.length + 1, "the help text"));
    p = (page){.text = *out};
    put_page(&p, flat, layout);
    return ZONAL_OK;
}
