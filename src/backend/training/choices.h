/*
 * Which of several ways to compute something was measured to be the fastest on this machine, as
 * text: a key (the operation and its shapes) and a choice (how to build that way again). A table
 * can be kept in a file, so that a later process computes the same bits without measuring anew.
 *
 *     zonal choices 1
 *     NVIDIA H200, cuDNN 91400, cuBLASLt 130100        the machine: what a choice is good for
 *     KEY<tab>CHOICE                                   one line each
 */
#ifndef ZONAL_BACKEND_TRAINING_CHOICES_H
#define ZONAL_BACKEND_TRAINING_CHOICES_H

#include "core/error.h"

enum {
    ZONAL__MOST_CHOICES = 1024, /* a ResNet-50 with its views of two sizes makes some 250 */
    ZONAL__CHOICE_KEY = 112,    /* bytes, with the ending zero */
    ZONAL__CHOICE_TEXT = 208
};

/* Of a fixed size: it lives as long as the process, and looking up must not fail. */
typedef struct zonal__choices {
    int count;
    struct {
        char key[ZONAL__CHOICE_KEY], text[ZONAL__CHOICE_TEXT];
    } entry[ZONAL__MOST_CHOICES];
} zonal__choices;

/* The choice for a key, or NULL. */
const char *zonal__choices_find(const zonal__choices *choices, const char *key);

/* Adds a choice, or replaces that of the same key. Returns 0, and changes nothing, when the table
 * is full, or when a text is empty, too long or has a character below the blank. */
int zonal__choices_put(zonal__choices *choices, const char *key, const char *text);

/* Both take "machine", a line of text. A file that does not exist, or is of another machine, reads
 * as one without choices, the latter with a line in the log. What is read replaces choices of the
 * same keys. ZONAL_FORMAT for a file that is not one of choices: nothing of it is taken. */
zonal_status zonal__choices_write(const zonal__choices *choices, const char *machine,
                                  const char *path);
zonal_status zonal__choices_read(zonal__choices *choices, const char *machine, const char *path);

#endif
