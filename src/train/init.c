#include "train/init.h"

#include <math.h>
#include <stdio.h>

/* The options of a network that the file's backbone fits, where they are not those of this run. */
static void name_options(const zonal__safetensors *file, const zonal__network_spec *ours,
                         char out[160]) {
    zonal__network_spec theirs;
    int used = 0;
    out[0] = '\0';
    if (zonal__weights_network(file, &theirs) != ZONAL_OK) return;
    if (theirs.depth != ours->depth)
        used += snprintf(out + used, (size_t)(160 - used), " --network resnet%d", theirs.depth);
    if (theirs.stem != ours->stem)
        used += snprintf(out + used, (size_t)(160 - used), " --stem %s",
                         theirs.stem == ZONAL__STEM_SMALL ? "small" : "imagenet");
    if (theirs.channels != ours->channels)
        used += snprintf(out + used, (size_t)(160 - used), " --channels %d", theirs.channels);
    /* Widths are rounded to whole channels: only another rounding is another width. */
    if (round(64 * theirs.width / 8) != round(64 * ours->width / 8))
        snprintf(out + used, (size_t)(160 - used), " --width %.3g", theirs.width);
}

static zonal_status refuse(const zonal__safetensors *file, const zonal__network_spec *ours) {
    zonal_error inner = *zonal_last_error(); /* a copy: the sentence is about to change */
    char options[160];
    name_options(file, ours, options);
    if (!options[0]) return ZONAL_FAIL(inner.status, "%.700s", inner.message);
    return ZONAL_FAIL(ZONAL_SHAPE, "%.560s; it fits%s", inner.message, options);
}

zonal_status zonal__train_init(const char *path, zonal__trainer *trainer,
                               zonal__weights_begun *begun) {
    zonal__model *model = zonal__trainer_model(trainer);
    zonal__safetensors *file;
    zonal_status status;
    ZONAL_TRY(zonal__safetensors_open(path, ZONAL__SAFETENSORS_ANY, &file));
    status = zonal__weights_begin(file, model, begun);
    if (status == ZONAL_SHAPE) status = refuse(file, &model->spec);
    zonal__safetensors_close(file);
    return status;
}
