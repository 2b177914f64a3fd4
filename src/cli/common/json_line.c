#include "cli/common/json_line.h"

#include <string.h>

void zonal__json_line_begin(zonal__json *json) {
    zonal__json_init(json, NULL);
    /* An array of one object keeps the object on one line; the brackets are left out below. */
    zonal__json_begin_array(json);
    zonal__json_begin_object(json);
}

void zonal__json_line_end(zonal__json *json) {
    const char *text;
    zonal__json_end_object(json);
    zonal__json_end_array(json);
    if (zonal__json_finish(json, &text) == ZONAL_OK) {
        const char *first = strchr(text, '{'), *last = strrchr(text, '}');
        printf("%.*s\n", (int)(last - first) + 1, first);
        fflush(stdout);
    }
    zonal__json_fini(json);
}
