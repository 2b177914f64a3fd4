/*
 * Words and numbers that people type: strict parsing, and guessing what was meant.
 *
 * The parsers accept the whole text or nothing (no blanks, no trailing characters) and fail with
 * ZONAL_ARGUMENT and a sentence that begins with "option", the name of what was set ("--t",
 * "batch in run.toml"). On failure the output is left alone.
 */
#ifndef ZONAL_CORE_TEXT_H
#define ZONAL_CORE_TEXT_H

#include <stdint.h>

#include "core/error.h"

/* The number of letters to insert, delete, replace or swap with a neighbour to get from a to b.
 * Words longer than 63 letters count as far apart: the length of the longer one. */
int zonal__text_distance(const char *a, const char *b);

/* The entry of a NULL-terminated list that "word" most likely meant, or NULL when none is near:
 * either "word" is the beginning (3 letters or more) of just one entry, or at most a third of its
 * letters (and no more than 3) are wrong. Of several equally near, the first. */
const char *zonal__text_nearest(const char *word, const char *const *names);

/* A finite decimal number. Hexadecimal, inf and nan are refused. */
zonal_status zonal__text_double(const char *text, const char *option, double *out);
zonal_status zonal__text_int64(const char *text, const char *option, int64_t *out);

/* A number that may depend on the dimension d of the embeddings, which is often known only after a
 * file has been opened: value = factor * d^power. Written NUMBER, NUMBER/d (power -1) or d. */
typedef struct zonal__scale {
    double factor;
    int power;
} zonal__scale;
zonal_status zonal__text_scale(const char *text, const char *option, zonal__scale *out);
double zonal__scale_value(zonal__scale scale, int64_t d);

/* Parses "256,512,1024" into at most "most" whole numbers between low and high; *count is how many
 * there are, at least one. "shown" names the option in sentences. */
zonal_status zonal__list_int64(const char *text, const char *shown, int64_t low, int64_t high,
                               int most, int64_t *out, int *count);
/* The same for finite numbers, without bounds. */
zonal_status zonal__list_double(const char *text, const char *shown, int most, double *out,
                                int *count);

/* The end of a noun after a number: "" after 1, else "s". printf("%lld image%s", n, ...). */
const char *zonal__text_plural(int64_t count);

/* The text behind the byte order mark that some editors put at the beginning of a file. */
char *zonal__text_behind_mark(char *text);

/* The bytes of the UTF-8 character at "text" (1 to 4), or 0 when they are not valid UTF-8. The end
 * of the text counts as a character of 1 byte. */
int zonal__text_utf8(const char *text);

/* Whether the character at "text" must not go to a terminal: a control character (which could move
 * the cursor or end the line), a mark that turns the direction of writing (which could make a name
 * look like another), or a byte that is not valid UTF-8. *bytes is its length, at least 1. */
int zonal__text_hidden(const char *text, int *bytes);

/* Copies "text" into "out" as it may go to a terminal: hidden characters as \x1b (a byte) or
 * \u202e (a character), all others as they are. What does not fit into "size" bytes (at least 8)
 * is left out, and "..." stands for it. Returns out. */
char *zonal__text_plain(const char *text, char *out, size_t size);

/* Copies a sentence, without its middle where it is longer than size - 1 bytes: it begins with the
 * thing and ends with the remedy, and what is long is a name in between. */
void zonal__text_shorten(const char *sentence, char *out, size_t size);

/* Appends to the text in "out", of "size" bytes in all; what does not fit is left out. */
__attribute__((format(printf, 3, 4))) void zonal__text_append(char *out, size_t size,
                                                              const char *format, ...);

/* A p-value for people, from its decimal logarithm: "0.0342", "1.2e-07", "1e-5120" (the nearest
 * whole exponent), "<1e-99999" beyond, "<1e-300" for -INFINITY, which is a p that has underflowed,
 * and "-" for NaN. */
enum { ZONAL__P_TEXT = 24 };
char *zonal__text_p(double log10_p, char out[ZONAL__P_TEXT]);

/* Writes a character in UTF-8 and returns how many bytes it took (1 to 4). "code" must be a
 * character: no surrogate, at most 0x10ffff. */
int zonal__text_put_utf8(uint32_t code, char out[4]);

#endif
