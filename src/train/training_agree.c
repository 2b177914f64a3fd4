/* What the ranks of a training must have in common: settings, and the images behind them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/checksum.h"
#include "core/memory.h"
#include "train/training.h"

enum { SAMPLED_IMAGES = 64 }; /* of a split, spread evenly: a look at the start of every rank */

int zonal__training_leads(const zonal__training *t) {
    return zonal__job_rank(t->job) == 0;
}

/* Ranks may work on other devices, and find the images at another place. */
static int may_differ(const char *name) {
    return zonal__train_option_may_change(name) || strcmp(name, "device") == 0 ||
           strcmp(name, "data-location") == 0;
}

/* How many images there are, and a checksum of some of their names and fingerprints. */
static zonal_status describe_images(zonal__source *source, char out[64]) {
    int64_t looks = source->count < SAMPLED_IMAGES ? source->count : SAMPLED_IMAGES;
    char name[ZONAL__NAME_ROOM];
    zonal__checksum sum;
    zonal__checksum_init(&sum);
    for (int64_t i = 0; i < looks; i++) {
        int64_t index = i * source->count / looks;
        uint64_t fingerprint;
        ZONAL_TRY(zonal__source_fingerprint(source, index, &fingerprint));
        zonal__source_name(source, index, name);
        zonal__checksum_add(&sum, name, strlen(name) + 1);
        zonal__checksum_add(&sum, &fingerprint, sizeof fingerprint);
    }
    snprintf(out, 64, "%" PRId64 " of fingerprint %016" PRIx64, source->count,
             zonal__checksum_value(&sum));
    return ZONAL_OK;
}

/* Lines "key = value" of a text, which is cut up for it, behind what the list has already. */
static int64_t cut_lines(char *text, zonal__agreement *list, int64_t count) {
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) {
        char *equals = strstr(line, " = ");
        if (!equals) continue;
        *equals = '\0';
        list[count++] = (zonal__agreement){line, equals + strlen(" = ")};
    }
    return count;
}

zonal_status zonal__training_agree(const zonal__training *t) {
    zonal__agreement *list = NULL;
    char *text = NULL, images[64];
    int64_t count = 0;
    zonal_status status;
    if (zonal__job_count(t->job) == 1) return ZONAL_OK;
    status = zonal__config_values(&t->options, may_differ, &text);
    if (status == ZONAL_OK)
        status = ZONAL_NEW(&list, (int64_t)strlen(text) + 1, "the settings to be compared");
    if (status == ZONAL_OK) status = describe_images(t->source, images);
    status = zonal__job_all(t->job, status);
    if (status == ZONAL_OK) {
        list[count++] = (zonal__agreement){"the images", images};
        count = cut_lines(text, list, count);
        status = zonal__job_same(t->job, list, count);
    }
    zonal__free(list);
    zonal__free(text);
    return status;
}
