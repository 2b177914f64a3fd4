/*
 * A JSON text as a flat list of names and values, for files whose members are only partly known.
 *
 *     {"protocol": "knn", "sweep": [{"k": 5}, {"k": 20}]}
 *
 * becomes protocol = "knn", sweep.0.k = 5, sweep.1.k = 20. True and false are 1 and 0, null is NaN.
 * Of lists only the objects in them are taken: the numbers of a confusion matrix have no names.
 */
#ifndef ZONAL_REPORT_FLAT_H
#define ZONAL_REPORT_FLAT_H

#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

enum { ZONAL__FLAT_MOST = 100000 };

typedef struct zonal__flat_entry {
    char name[96];    /* a value with a longer name is passed over */
    const char *text; /* in the text that was read; NULL: a number */
    double number;
} zonal__flat_entry;

/* Zero-initialise; the memory is kept from text to text. */
typedef struct zonal__flat {
    zonal__flat_entry *entry;
    int64_t count, room;
} zonal__flat;

/* Reads an object; text[length] must be a zero byte. The text is changed and must outlive the list.
 * ZONAL_FORMAT for what is no JSON, with "name" and the byte in the sentence, and for more than
 * ZONAL__FLAT_MOST values. */
zonal_status zonal__flat_read(zonal__flat *flat, char *text, size_t length, const char *name);
void zonal__flat_fini(zonal__flat *flat);

/* NULL, or NaN, where there is no such entry. */
const char *zonal__flat_text(const zonal__flat *flat, const char *name);
double zonal__flat_number(const zonal__flat *flat, const char *name);

/* "PROTOCOL.FEATURES." of the evaluation whose members begin with "prefix"; "" for none. */
void zonal__flat_protocol(const zonal__flat *flat, const char *prefix, char *out, size_t size);

#endif
