/* The evaluation on the way: zonal__training_open_online. */
#include <string.h>

#include "train/training_parts.h"

static zonal_status open_retrieval(zonal__training *t) {
    t->eval_augmentations[0] = t->augmentations[0];
    t->eval_augmentations[1] = t->augmentations[t->settings.views > 1];
    if (t->queries->count >= 2) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "retrieval needs 2 images or more in the validation part of %s; give "
                      "--eval none, or more by --val-share",
                      t->settings.data);
}

static zonal_status open_knn(zonal__training *t) {
    zonal__training_eval_augmentation(t, &t->eval_augmentations[0]);
    if (t->queries->classes < 2)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s has no classes for --eval knn; use retrieval or none",
                          t->settings.data);
    ZONAL_TRY(zonal__training_source(t, ZONAL__SPLIT_TRAIN, t->settings.eval_memory, &t->memory));
    t->online.memory = t->memory;
    t->online.k = (int)t->settings.eval_k;
    if (t->online.k > t->memory->count) t->online.k = (int)t->memory->count;
    t->online.temperature = t->settings.eval_temperature;
    return ZONAL_OK;
}

/* Nobody has asked for an evaluation where there is nothing to evaluate on. */
static int choose_protocol(const zonal__training *t) {
    if (t->queries->count < 2) return ZONAL__EVAL_NONE;
    if (t->queries->classes >= 2 && t->settings.augmentation == ZONAL__AUGMENTATION_BYOL)
        return ZONAL__EVAL_KNN;
    return ZONAL__EVAL_RETRIEVAL;
}

zonal_status zonal__training_open_online(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    int automatic = s->eval == ZONAL__EVAL_AUTO;
    zonal_status status;
    if (s->eval == ZONAL__EVAL_NONE) return ZONAL_OK;
    status = zonal__training_source(t, ZONAL__SPLIT_VAL, s->eval_count, &t->queries);
    if (status != ZONAL_OK && (!automatic || status == ZONAL_MEMORY)) return status;
    if (automatic)
        zonal__settle_word(t, "eval", status == ZONAL_OK ? choose_protocol(t) : ZONAL__EVAL_NONE,
                           &s->eval);
    if (s->eval == ZONAL__EVAL_NONE) return ZONAL_OK;
    t->online = (zonal__online_options){
        .protocol = s->eval == ZONAL__EVAL_KNN ? ZONAL__ONLINE_KNN : ZONAL__ONLINE_RETRIEVAL,
        .queries = t->queries,
        .augmentations = t->eval_augmentations,
        .side = (int)s->side,
        .max_side = (int)s->max_side,
        .seed = (uint64_t)s->seed,
        .device = t->trainer.device,
        .threads = (int)s->threads};
    memcpy(t->online.mean, t->trainer.loader.mean, sizeof t->online.mean);
    memcpy(t->online.std, t->trainer.loader.std, sizeof t->online.std);
    return s->eval == ZONAL__EVAL_KNN ? open_knn(t) : open_retrieval(t);
}
