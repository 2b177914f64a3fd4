#include "cli/common/man.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/cli.h"
#include "core/memory.h"

/* ---- what --help prints ---------------------------------------------------------------------- */

/* Standard output goes to "file" while the command runs: commands print by printf. */
static int print_help_to(FILE *file, const zonal__cli_part *part) {
    char name[64];
    char *arguments[] = {name, "--help", NULL};
    int status, terminal;
    snprintf(name, sizeof name, "%s", part->name);
    if (fflush(stdout) != 0 || (terminal = dup(STDOUT_FILENO)) < 0) return -1;
    status = dup2(fileno(file), STDOUT_FILENO) < 0 ? -1 : part->run(2, arguments);
    if (fflush(stdout) != 0 || dup2(terminal, STDOUT_FILENO) < 0) status = -1;
    close(terminal);
    return status;
}

static zonal_status read_all(FILE *file, char **out) {
    long size;
    if (fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0)
        return ZONAL_FAIL(ZONAL_IO, "cannot read back the help text");
    rewind(file);
    ZONAL_TRY(ZONAL_NEW(out, (size_t)size + 1, "the help text"));
    (*out)[fread(*out, 1, (size_t)size, file)] = '\0';
    return ZONAL_OK;
}

/* The help of a command; release *out with zonal__free. */
static zonal_status read_help(const zonal__cli_part *part, char **out) {
    FILE *file = tmpfile();
    zonal_status status;
    if (!file) return ZONAL_FAIL(ZONAL_IO, "cannot make a temporary file for the help text");
    if (print_help_to(file, part) == ZONAL__EXIT_OK)
        status = read_all(file, out);
    else
        status = ZONAL_FAIL(ZONAL_IO, "the help of zonal %s cannot be printed", part->name);
    fclose(file);
    return status;
}

/* ---- roff ------------------------------------------------------------------------------------ */

/* A plain "-" may be set as a hyphen and "'" as a quote, which do not work when they are copied
 * into a shell. A dot at the beginning of a line would be a request. */
static void put_text(const char *text, size_t length) {
    if (length > 0 && text[0] == '.') fputs("\\&", stdout);
    for (size_t i = 0; i < length; i++) {
        switch (text[i]) {
        case '\\':
            fputs("\\e", stdout);
            break;
        case '-':
            fputs("\\-", stdout);
            break;
        case '\'':
            fputs("\\(aq", stdout);
            break;
        case '`':
            fputs("\\(ga", stdout);
            break;
        case '^':
            fputs("\\(ha", stdout);
            break;
        case '~':
            fputs("\\(ti", stdout);
            break;
        default:
            putchar(text[i]);
        }
    }
}

static void put_line(const char *text, size_t length) {
    put_text(text, length);
    putchar('\n');
}

static void put_heading(const char *request, const char *title, size_t length, int capitals) {
    printf("%s ", request);
    for (size_t i = 0; i < length; i++)
        putchar(capitals || i == 0 ? toupper((unsigned char)title[i]) : title[i]);
    putchar('\n');
}

/* ---- the page -------------------------------------------------------------------------------- */

/* A help text is lines: "usage: ...", paragraphs, indented lines that stay as they are, titles such
 * as "examples:" directly above indented lines, and under "options:" the entries. */
typedef struct reader {
    const char *line;
    int in_options, after_heading;
} reader;

static size_t line_length(const char *line) {
    return strcspn(line, "\n");
}

static const char *next_line(const char *line) {
    line += line_length(line);
    return *line ? line + 1 : line;
}

static int is_blank(const char *line) {
    return *line == '\n' || *line == '\0';
}

static int is_title(const char *line) {
    size_t length = line_length(line);
    return length > 1 && line[0] != ' ' && line[length - 1] == ':' && next_line(line)[0] == ' ';
}

static void put_synopsis(reader *r) {
    const size_t margin = strlen("usage: ");
    puts(".SH SYNOPSIS\n.nf");
    for (; !is_blank(r->line); r->line = next_line(r->line)) {
        size_t length = line_length(r->line);
        if (length > margin) put_line(r->line + margin, length - margin);
    }
    puts(".fi");
}

static void begin_paragraph(reader *r) {
    if (!r->after_heading) puts(".PP");
    r->after_heading = 0;
}

static void put_title(reader *r) {
    size_t length = line_length(r->line) - 1;
    int options = strncmp(r->line, "options:", length + 1) == 0;
    put_heading(r->in_options ? ".SS" : ".SH", r->line, length, !r->in_options);
    r->in_options = r->in_options || options;
    r->after_heading = 1;
    r->line = next_line(r->line);
}

static void put_paragraph(reader *r) {
    begin_paragraph(r);
    for (; !is_blank(r->line) && r->line[0] != ' '; r->line = next_line(r->line))
        put_line(r->line, line_length(r->line));
}

static void put_verbatim(reader *r) {
    begin_paragraph(r);
    puts(".nf");
    for (; r->line[0] == ' '; r->line = next_line(r->line)) put_line(r->line, line_length(r->line));
    puts(".fi");
}

/* "  --dim D        dimension": the flag, its value, and at least two blanks before the text. */
static void put_option(const char *line, size_t length) {
    const char *end = line + length, *value = memchr(line, ' ', length), *text;
    puts(".TP");
    fputs("\\fB", stdout);
    put_text(line, value ? (size_t)(value - line) : length);
    fputs("\\fR", stdout);
    if (!value) value = end;
    for (text = value; text + 1 < end && !(text[0] == ' ' && text[1] == ' '); text++) continue;
    if (text + 1 >= end) text = end;
    if (text > value) {
        fputs(" \\fI", stdout);
        put_text(value + 1, (size_t)(text - value - 1));
        fputs("\\fR", stdout);
    }
    putchar('\n');
    while (text < end && *text == ' ') text++;
    if (text < end) put_line(text, (size_t)(end - text));
}

static void put_entry_line(reader *r) {
    size_t length = line_length(r->line), margin = strspn(r->line, " ");
    if (margin == 2)
        put_option(r->line + margin, length - margin);
    else
        put_line(r->line + margin, length - margin);
    r->line = next_line(r->line);
}

static void put_help(const char *help) {
    reader r = {.line = help, .after_heading = 1};
    put_synopsis(&r);
    puts(".SH DESCRIPTION");
    while (*r.line) {
        if (is_blank(r.line))
            r.line = next_line(r.line);
        else if (is_title(r.line))
            put_title(&r);
        else if (r.line[0] != ' ')
            put_paragraph(&r);
        else if (r.in_options)
            put_entry_line(&r);
        else
            put_verbatim(&r);
    }
}

static void put_reference(const char *page, const char *child, const char *end) {
    fputs(".BR ", stdout);
    put_text(page, strlen(page));
    if (child) printf("\\-%s", child);
    printf(" (1)%s\n", end);
}

/* The pages below, or the one above. */
static void put_see_also(const zonal__cli_part *part, const char *page, const char *above) {
    puts(".SH SEE ALSO");
    for (const zonal__cli_part *p = part->parts; p && p->name; p++)
        put_reference(page, p->name, p[1].name ? "," : "");
    if (!part->parts) put_reference(above, NULL, "");
}

static void put_page(const zonal__cli_part *part, const char *page, const char *above,
                     const char *help) {
    puts(".\\\" Made by \"zonal man\" from the help and the option tables of the program.");
    fputs(".TH ", stdout);
    for (const char *c = page; *c; c++)
        if (*c == '-')
            fputs("\\-", stdout);
        else
            putchar(toupper((unsigned char)*c));
    printf(" 1 \"\" \"zonal %s\" \"zonal\"\n.SH NAME\n", zonal_version());
    put_text(page, strlen(page));
    fputs(" \\- ", stdout);
    put_line(part->summary, strlen(part->summary));
    put_help(help);
    puts(
        ".SH EXIT STATUS\n"
        "0 on success, 1 if the data, a file, memory or a device failed, 2 if the command line is\n"
        "wrong. An error is one line on standard error.");
    put_see_also(part, page, above);
}

/* ---- the command ----------------------------------------------------------------------------- */

/* The first line is empty: the program itself is the page without words. */
static void list(const zonal__cli_part *program) {
    putchar('\n');
    for (const zonal__cli_part *command = program->parts; command->name; command++) {
        puts(command->name);
        for (const zonal__cli_part *p = command->parts; p && p->name; p++)
            printf("%s %s\n", command->name, p->name);
    }
}

static const zonal__cli_part *find(const zonal__cli_part *part, const char *name) {
    for (const zonal__cli_part *p = part->parts; p && p->name; p++)
        if (strcmp(p->name, name) == 0) return p;
    return NULL;
}

int zonal__cli_man(const zonal__cli_part *program, int argc, char **argv) {
    const zonal__cli_part *part = program;
    char page[128], above[128] = "", *help = NULL;
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        list(program);
        return ZONAL__EXIT_OK;
    }
    snprintf(page, sizeof page, "%s", program->name);
    for (int i = 1; i < argc; i++) {
        size_t length = strlen(page);
        part = find(part, argv[i]);
        if (!part)
            return zonal__cli_misused("there is no manual page for %s; \"zonal man --list\" lists "
                                      "the words of each page",
                                      argv[i]);
        memcpy(above, page, sizeof above);
        snprintf(page + length, sizeof page - length, "-%s", part->name);
    }
    if (read_help(part, &help) != ZONAL_OK) return zonal__cli_failed();
    put_page(part, page, above, help);
    zonal__free(help);
    return ZONAL__EXIT_OK;
}
