/*
 * Configuration files, reading: config.h says what they may hold. config_dump.c is the other half.
 *
 * Values are unescaped, joined and ended where they stand in the text of the file, which the
 * options then point into: nothing that is read becomes longer than it was written.
 */
#include "core/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/file_read.h"
#include "core/memory.h"

enum { LONGEST_FILE = 1 << 20, LONGEST_KEY = 63 };

struct zonal__config {
    char *path, *text;
};

typedef struct parser {
    zonal__options *options; /* NULL: "take" is told */
    zonal__config_take take;
    void *context;
    const char *path;
    char *at; /* in a text that ends with a zero byte */
    int line;
    char prefix[LONGEST_KEY + 2]; /* of the section, with a dash behind; "" at first */
    const char *sections[ZONAL__OPTIONS_MOST];
    int section_count;
} parser;

typedef enum kind { TEXT, WHOLE, NUMBER, TRUTH, LIST } kind;

/* A value from "text" up to "end", where a zero byte is put once the line has been checked: a
 * number ends at a character that is still needed. */
typedef struct value {
    kind kind;
    char *text, *end;
} value;

__attribute__((format(printf, 4, 5))) static zonal_status
fail_at(const parser *p, int line, zonal_status status, const char *format, ...) {
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return ZONAL_FAIL(status, "%.200s:%d: %s", p->path, line, what);
}

static zonal_status no_toml(const parser *p, const char *what) {
    return fail_at(p, p->line, ZONAL_FORMAT, "%s", what);
}

/* ---- characters ------------------------------------------------------------------------------ */

static zonal_status check_characters(parser *p, const char *text, const char *end) {
    p->line = 1;
    for (int bytes; text < end; text += bytes) {
        unsigned char c = (unsigned char)*text;
        bytes = zonal__text_utf8(text);
        if (bytes == 0) return no_toml(p, "bytes that are not UTF-8; save the file as UTF-8");
        if ((c < ' ' && c != '\t' && c != '\n' && !(c == '\r' && text[1] == '\n')) || c == 127)
            return no_toml(p, "a control character; remove it");
        p->line += c == '\n';
    }
    p->line = 1;
    return ZONAL_OK;
}

static void skip_blanks(parser *p) {
    while (*p->at == ' ' || *p->at == '\t') p->at++;
}

/* Blanks, a comment and the newline, which is counted; the end of the file is as good. */
static zonal_status take_line_end(parser *p) {
    skip_blanks(p);
    if (*p->at == '#') p->at += strcspn(p->at, "\r\n");
    if (*p->at == '\r') p->at++;
    if (*p->at == '\0') return ZONAL_OK;
    if (*p->at != '\n') return no_toml(p, "something follows on the line; one key = value on each");
    p->at++;
    p->line++;
    return ZONAL_OK;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* A character by its code, "digits" hexadecimal digits. */
static zonal_status take_code(parser *p, int digits, char **out) {
    static const char known[] = "0123456789abcdef0123456789ABCDEF";
    uint32_t code = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        const char *found = *p->at ? strchr(known, *p->at) : NULL;
        if (!found) return no_toml(p, "\\u wants 4 hexadecimal digits, \\U 8");
        code = code << 4 | (uint32_t)((found - known) % 16);
    }
    if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return no_toml(p, "the code after \\u or \\U is no character");
    *out += zonal__text_put_utf8(code, *out);
    return ZONAL_OK;
}

static zonal_status take_escape(parser *p, char **out) {
    static const char letters[] = "\"\\btnfr", meanings[] = "\"\\\b\t\n\f\r";
    char letter = *p->at;
    const char *found = letter ? strchr(letters, letter) : NULL;
    if (!found && letter != 'u' && letter != 'U')
        return no_toml(p, "an unknown escape in a text; write \\\\ for a backslash");
    p->at++;
    if (!found) return take_code(p, letter == 'u' ? 4 : 8, out);
    *(*out)++ = meanings[found - letters];
    return ZONAL_OK;
}

static zonal_status take_text(parser *p, value *v) {
    char *out = ++p->at;
    v->kind = TEXT;
    v->text = out;
    if (p->at[0] == '"' && p->at[1] == '"')
        return no_toml(p, "texts over several lines (\"\"\") are not read; use \\n");
    while (*p->at != '"') {
        if (*p->at == '\0' || *p->at == '\n' || *p->at == '\r')
            return no_toml(p, "a text has no closing quote");
        if (*p->at == '\\') {
            p->at++;
            ZONAL_TRY(take_escape(p, &out));
        } else {
            *out++ = *p->at++;
        }
    }
    p->at++;
    v->end = out;
    return ZONAL_OK;
}

/* ---- numbers and truth values ---------------------------------------------------------------- */

static int is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Passes over digits, with single _ between them; 0 when there are none. */
static int pass_digits(const char **at) {
    if (!is_digit(**at)) return 0;
    while (is_digit(**at) || (**at == '_' && is_digit((*at)[1]))) (*at)++;
    return 1;
}

/* Whether the text up to "end" is a number, and of which kind. */
static int is_number(const char *at, const char *end, kind *found) {
    *found = WHOLE;
    at += *at == '+' || *at == '-';
    if (at[0] == '0' && (is_digit(at[1]) || at[1] == '_')) return 0;
    if (!pass_digits(&at)) return 0;
    if (*at == '.') {
        at++;
        *found = NUMBER;
        if (!pass_digits(&at)) return 0;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-';
        *found = NUMBER;
        if (!pass_digits(&at)) return 0;
    }
    return at == end;
}

static char *drop_underscores(char *from, const char *end) {
    char *out = from;
    for (; from < end; from++)
        if (*from != '_') *out++ = *from;
    return out;
}

static zonal_status take_word(parser *p, value *v) {
    size_t length = strcspn(p->at, " \t\r\n#,[]={}\"'");
    v->text = p->at;
    v->end = p->at + length;
    p->at += length;
    v->kind = TRUTH;
    if ((length == 4 && memcmp(v->text, "true", 4) == 0) ||
        (length == 5 && memcmp(v->text, "false", 5) == 0))
        return ZONAL_OK;
    if (!is_number(v->text, v->end, &v->kind))
        return fail_at(p, p->line, ZONAL_FORMAT,
                       "%.*s is no value; texts stand in double quotes, numbers are decimal",
                       length < 60 ? (int)length : 60, v->text);
    v->end = drop_underscores(v->text, v->end);
    return ZONAL_OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static zonal_status take_scalar(parser *p, value *v) {
    switch (*p->at) {
    case '"':
        return take_text(p, v);
    case '\'':
        return no_toml(p, "texts stand in double quotes");
    case '{':
        return no_toml(p, "tables in braces are not read; use a [section]");
    case '\0':
    case '\r':
    case '\n':
    case '#':
        return no_toml(p, "a value is missing");
    default:
        return take_word(p, v);
    }
}

/* Blanks, comments and newlines, between the elements of a list. */
static zonal_status skip_lines(parser *p) {
    for (;;) {
        skip_blanks(p);
        if (*p->at != '#' && *p->at != '\r' && *p->at != '\n') return ZONAL_OK;
        ZONAL_TRY(take_line_end(p));
    }
}

static zonal_status check_element(const parser *p, const value *element, kind first) {
    if (element->kind == TRUTH || (element->kind == TEXT) != (first == TEXT))
        return no_toml(p, "a list holds numbers or texts, one kind of them");
    if (memchr(element->text, ',', (size_t)(element->end - element->text)))
        return no_toml(p, "a text in a list cannot have a comma");
    return ZONAL_OK;
}

/* Joins the elements by commas, to the left of where they are read. */
static zonal_status take_list(parser *p, value *v) {
    kind first = TEXT;
    int count = 0;
    v->kind = LIST;
    v->text = v->end = p->at++;
    for (;;) {
        value element;
        size_t length;
        ZONAL_TRY(skip_lines(p));
        if (*p->at == ']') break;
        if (*p->at == '[') return no_toml(p, "lists of lists are not read");
        if (*p->at == '\0') return no_toml(p, "a list has no end");
        ZONAL_TRY(take_scalar(p, &element));
        if (count == 0) first = element.kind;
        ZONAL_TRY(check_element(p, &element, first));
        if (count++ > 0) *v->end++ = ',';
        length = (size_t)(element.end - element.text);
        memmove(v->end, element.text, length);
        v->end += length;
        ZONAL_TRY(skip_lines(p));
        if (*p->at == ']') break;
        if (*p->at != ',') return no_toml(p, "a comma or ] is missing in a list");
        p->at++;
    }
    p->at++;
    return ZONAL_OK;
}

/* ---- keys and sections ----------------------------------------------------------------------- */

static int is_key_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '-';
}

/* A key with dots, as it stands, appended to "out"; "size" is what out has room for. */
static zonal_status take_key(parser *p, char *out, size_t size) {
    size_t length = 0;
    while (is_key_character(p->at[length]) ||
           (p->at[length] == '.' && length > 0 && is_key_character(p->at[length - 1]) &&
            is_key_character(p->at[length + 1])))
        length++;
    if (length == 0)
        return no_toml(p, "a key is missing; it has letters, digits, - and _, with dots between");
    if (length >= size) return no_toml(p, "a key is too long");
    memcpy(out, p->at, length);
    out[length] = '\0';
    p->at += length;
    return ZONAL_OK;
}

static void dots_to_dashes(char *name) {
    for (; *name; name++)
        if (*name == '.') *name = '-';
}

static int is_settable(const zonal__option *option) {
    return !(option->rules & ZONAL__OPTION_LINE) && option->type != ZONAL__OPTION_ASSIGN;
}

/* The nearest of the names that the section in force allows, without the section. */
static zonal_status fail_unknown(const parser *p, int line, const char *key, const char *name) {
    const char *names[ZONAL__OPTIONS_MOST + 1], *near;
    size_t length = strlen(p->prefix);
    int count = 0;
    for (const zonal__option *option = p->options->table; option->name; option++)
        if (is_settable(option) && strncmp(option->name, p->prefix, length) == 0)
            names[count++] = option->name + length;
    names[count] = NULL;
    near = zonal__text_nearest(name + length, names);
    if (near)
        return fail_at(p, line, ZONAL_ARGUMENT, "there is no option %s; did you mean %s?", key,
                       near);
    return fail_at(p, line, ZONAL_ARGUMENT, "there is no option %s; --help lists the options", key);
}

static zonal_status fail_unknown_section(const parser *p, const char *section) {
    static const size_t room = LONGEST_KEY + 1;
    char words[ZONAL__OPTIONS_MOST][LONGEST_KEY + 1];
    const char *names[ZONAL__OPTIONS_MOST + 1], *near;
    int count = 0;
    for (const zonal__option *option = p->options->table; option->name; option++) {
        size_t length = strcspn(option->name, "-");
        if (!option->name[length] || !is_settable(option)) continue;
        snprintf(words[count], room, "%.*s", (int)length, option->name);
        names[count] = words[count];
        count++;
    }
    names[count] = NULL;
    near = zonal__text_nearest(section, names);
    if (near)
        return fail_at(p, p->line, ZONAL_ARGUMENT, "there is no section [%s]; did you mean [%s]?",
                       section, near);
    return fail_at(p, p->line, ZONAL_ARGUMENT, "there is no section [%s]", section);
}

static int is_section(const zonal__option *table, const char *prefix) {
    for (; table->name; table++)
        if (is_settable(table) && strncmp(table->name, prefix, strlen(prefix)) == 0) return 1;
    return 0;
}

static zonal_status take_section(parser *p) {
    char section[LONGEST_KEY + 1], *start;
    if (p->at[1] == '[') return no_toml(p, "lists of tables ([[...]]) are not read");
    p->at++;
    skip_blanks(p);
    start = p->at;
    ZONAL_TRY(take_key(p, section, sizeof section));
    snprintf(p->prefix, sizeof p->prefix, "%s-", section);
    dots_to_dashes(p->prefix);
    if (p->options && !is_section(p->options->table, p->prefix))
        return fail_unknown_section(p, section);
    for (int i = 0; i < p->section_count; i++)
        if (strcmp(p->sections[i], section) == 0)
            return fail_at(p, p->line, ZONAL_ARGUMENT, "[%s] is there twice; join the two",
                           section);
    skip_blanks(p);
    if (*p->at != ']') return no_toml(p, "the ] of a section is missing");
    start[strlen(section)] = '\0'; /* over a blank or the ] */
    p->at++;
    /* Sections differ and, where there are options, each has one of its own, or of a section around
     * it. */
    if (p->section_count < ZONAL__OPTIONS_MOST) p->sections[p->section_count++] = start;
    return take_line_end(p);
}

/* ---- values to options ----------------------------------------------------------------------- */

static zonal_status check_kind(const parser *p, int line, const char *key,
                               const zonal__option *option, kind given) {
    static const char *const shown[] = {"a text", "a whole number", "a number", "true or false",
                                        "a list"};
    kind wanted;
    switch (option->type) {
    case ZONAL__OPTION_FLAG:
        wanted = TRUTH;
        break;
    case ZONAL__OPTION_INT:
        wanted = WHOLE;
        break;
    case ZONAL__OPTION_DOUBLE:
        wanted = given == WHOLE ? WHOLE : NUMBER;
        break;
    case ZONAL__OPTION_STRING:
    case ZONAL__OPTION_WORD:
        wanted = TEXT;
        break;
    case ZONAL__OPTION_SCALE:
        wanted = given == TEXT || given == WHOLE ? given : NUMBER;
        break;
    default:
        wanted = given;
    }
    if (given == wanted) return ZONAL_OK;
    return fail_at(p, line, ZONAL_ARGUMENT, "%s must be %s%s, got %s", key, shown[wanted],
                   wanted == TEXT ? " in double quotes" : "", shown[given]);
}

/* "key" is as it stands in the file, "name" the option's. */
static zonal_status set_option(parser *p, int line, const char *key, const char *name,
                               const value *v) {
    const zonal__option *option = p->options->table;
    const zonal__option_state *state = p->options->state;
    const char *text = v->text;
    char shown[320];
    while (option->name && strcmp(option->name, name) != 0) option++, state++;
    if (!option->name) return fail_unknown(p, line, key, name);
    if (!is_settable(option))
        return fail_at(p, line, ZONAL_ARGUMENT, "%s has no place in a file; give --%s", key, name);
    if (state->source == ZONAL__SOURCE_FILE && state->file == p->path)
        return fail_at(p, line, ZONAL_ARGUMENT, "%s is set in line %d already; leave one out", key,
                       state->line);
    ZONAL_TRY(check_kind(p, line, key, option, v->kind));
    if (v->kind == TRUTH) text = text[0] == 't' ? "yes" : "no";
    snprintf(shown, sizeof shown, "%.200s:%d: %s", p->path, line, key);
    return zonal__options_set_line(p->options, name, shown, text, p->path, line);
}

/* Ends the line, and cuts out the comment that stands there. */
static zonal_status take_comment(parser *p, const char **comment) {
    char *start, *end;
    skip_blanks(p);
    start = *p->at == '#' ? p->at + 1 : p->at;
    start += strspn(start, " \t");
    end = start + (*p->at == '#' ? strcspn(start, "\r\n") : 0);
    ZONAL_TRY(take_line_end(p));
    *comment = end > start ? start : "";
    if (end > start) *end = '\0'; /* over the newline, which has been taken */
    return ZONAL_OK;
}

static zonal_status take_pair(parser *p) {
    char key[LONGEST_KEY + 1], name[2 * LONGEST_KEY + 3];
    const char *comment;
    int line = p->line;
    value v;
    if (*p->at == '"' || *p->at == '\'') return no_toml(p, "keys are written without quotes");
    ZONAL_TRY(take_key(p, key, sizeof key));
    snprintf(name, sizeof name, "%s%s", p->prefix, key);
    dots_to_dashes(name);
    skip_blanks(p);
    if (*p->at != '=') return fail_at(p, line, ZONAL_FORMAT, "= is missing after %s", key);
    p->at++;
    skip_blanks(p);
    ZONAL_TRY(*p->at == '[' ? take_list(p, &v) : take_scalar(p, &v));
    ZONAL_TRY(take_comment(p, &comment));
    *v.end = '\0';
    return p->options ? set_option(p, line, key, name, &v)
                      : p->take(p->context, name, v.text, comment);
}

static zonal_status parse(parser *p) {
    for (;;) {
        skip_blanks(p);
        switch (*p->at) {
        case '\0':
            return ZONAL_OK;
        case '#':
        case '\r':
        case '\n':
            ZONAL_TRY(take_line_end(p));
            break;
        case '[':
            ZONAL_TRY(take_section(p));
            break;
        default:
            ZONAL_TRY(take_pair(p));
        }
    }
}

static zonal_status copy_text(const char *text, const char *what, char **out) {
    size_t length = strlen(text);
    ZONAL_TRY(ZONAL_NEW(out, length + 1, what));
    memcpy(*out, text, length);
    return ZONAL_OK;
}

/* "text" NULL: that of the file. */
static zonal_status read_text(zonal__config *config, const char *path, const char *text,
                              parser *p) {
    size_t length = text ? strlen(text) : 0;
    ZONAL_TRY(copy_text(path, "the name of a configuration file", &config->path));
    if (text)
        ZONAL_TRY(copy_text(text, "a configuration", &config->text));
    else
        ZONAL_TRY(zonal__file_read(path, LONGEST_FILE, &config->text, &length));
    p->path = config->path;
    p->at = zonal__text_behind_mark(config->text);
    ZONAL_TRY(check_characters(p, config->text, config->text + length));
    return parse(p);
}

static zonal_status read_with(const char *path, const char *text, parser *p, zonal__config **out) {
    zonal__config *config;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(ZONAL_NEW(&config, 1, "a configuration"));
    status = read_text(config, path, text, p);
    if (status == ZONAL_OK)
        *out = config;
    else
        zonal__config_destroy(config);
    return status;
}

zonal_status zonal__config_read(const char *path, zonal__options *options, zonal__config **out) {
    parser p = {.options = options};
    return read_with(path, NULL, &p, out);
}

zonal_status zonal__config_read_text(const char *name, const char *text, zonal__options *options,
                                     zonal__config **out) {
    parser p = {.options = options};
    return read_with(name, text, &p, out);
}

zonal_status zonal__config_list(const char *path, zonal__config_take take, void *context,
                                zonal__config **out) {
    parser p = {.take = take, .context = context};
    return read_with(path, NULL, &p, out);
}

void zonal__config_destroy(zonal__config *config) {
    if (!config) return;
    zonal__free(config->path);
    zonal__free(config->text);
    zonal__free(config);
}
