#include "reproduce/experiment.h"

#include <string.h>

#include "core/text.h"
#include "reproduce/recipes.h"

#define SEVEN "susreg,mmd-induced,mmd-heat,mmd-band,ksd-heat,ksd-band,kl-heat"
#define CLASSIFIED                                                                                 \
    .protocols = {"linear", "knn"}, .columns = 2,                                                  \
    .column = {{"linear", "linear.backbone.accuracy"}, {"k-NN", "knn.backbone.accuracy"}}

/* Evaluations on the way cost time and are not in the tables, so they are few or left out. */
static const zonal__experiment experiments[] = {
    {.name = "table-textures",
     .title = "retrieval of textures",
     .methods = SEVEN,
     .seeds = "0",
     .sets = "disk,cloud,wood,flake",
     .textures = 1,
     .averaged = 1,
     .options = "augmentation=texture,eval-every=1600",
     .variant = "side=128,steps=6400",
     .protocols = {"retrieval"},
     .columns = 5,
     .column = {{"R@1", "retrieval.projector.r1"},
                {"R@3", "retrieval.projector.r3"},
                {"R@5", "retrieval.projector.r5"},
                {"mAP", "retrieval.projector.map"},
                {"mAP (emb)", "retrieval.backbone.map"}}},
    {.name = "table-pretrain",
     .title = "pretraining",
     .methods = SEVEN ",sigreg",
     .seeds = "0",
     .sets = "imagenet100,galaxy10,imagenette,efigi,cifar10,cifar100",
     .options = "eval=none",
     .variant = "",
     CLASSIFIED},
    {.name = "table-temperature",
     .title = "temperature of the heat kernel",
     .methods = "mmd-heat:t=4/d,mmd-heat:t=5/d,mmd-heat:t=6/d,ksd-heat:t=4/d,ksd-heat:t=5/d,"
                "ksd-heat:t=6/d",
     .seeds = "0,1,2",
     .sets = "imagenet100,galaxy10,imagenette,efigi",
     .options = "eval=none",
     /* The paper has one weight for all temperatures; the usual gain would follow them. */
     .variant = "gain=batch",
     CLASSIFIED},
    {.name = "figure-dynamics",
     .title = "dynamics of training",
     .methods = "susreg,mmd-induced",
     .seeds = "0",
     .sets = "imagenet100,galaxy10,imagenette,efigi",
     .curves = 1,
     /* Some 30 points of Imagenette's 7200 steps, 11 of EFIGI's and 400 of ImageNet-100's. */
     .options = "eval=knn,eval-count=5000,eval-every=250,probe=yes",
     .variant = "",
     .protocols = {"linear"},
     .columns = 1,
     .column = {{"linear", "linear.backbone.accuracy"}}},
};
enum { EXPERIMENTS = sizeof experiments / sizeof experiments[0] };

const zonal__experiment *zonal__experiment_at(int i) {
    return i < EXPERIMENTS ? &experiments[i] : NULL;
}

const zonal__experiment *zonal__experiment_find(const char *name) {
    for (int i = 0; i < EXPERIMENTS; i++)
        if (strcmp(experiments[i].name, name) == 0) return &experiments[i];
    return NULL;
}

/* ---- data sets ------------------------------------------------------------------------------- */

/* Where a set has no test images that others report, its validation images are what is tested. */
static const zonal__data_set sets[] = {
    {"disk", "disks", "textures", "test"},
    {"cloud", "clouds", "textures", "test"},
    {"wood", "wood", "textures", "test"},
    {"flake", "flakes", "textures", "test"},
    {"imagenet100", "ImageNet-100", "imagenet100", "val"},
    {"galaxy10", "Galaxy10", "galaxy10", "test"},
    {"imagenette", "Imagenette", "imagenette", "val"},
    {"efigi", "EFIGI galaxies", "efigi", "val"},
    {"cifar10", "CIFAR-10", "cifar10", "test"},
    {"cifar100", "CIFAR-100", "cifar100", "test"},
};
enum { SETS = sizeof sets / sizeof sets[0] };

/* Whether a list with commas has the name. */
static int has(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) return 1;
    }
    return 0;
}

zonal_status zonal__data_set_find(const zonal__experiment *experiment, const char *name,
                                  const zonal__data_set **out) {
    for (int i = 0; i < SETS; i++)
        if (strcmp(sets[i].name, name) == 0 && has(experiment->sets, name)) {
            *out = &sets[i];
            return ZONAL_OK;
        }
    return ZONAL_FAIL(ZONAL_ARGUMENT, "%s has no data set %.60s; it knows %s", experiment->name,
                      name, experiment->sets);
}

const char *const *zonal__recipe_lines(const char *name) {
    static const struct {
        const char *name;
        const char *const *lines;
    } recipes[] = {{"textures", zonal__recipe_textures}, {"imagenet100", zonal__recipe_imagenet100},
                   {"galaxy10", zonal__recipe_galaxy10}, {"imagenette", zonal__recipe_imagenette},
                   {"efigi", zonal__recipe_efigi},       {"cifar10", zonal__recipe_cifar10},
                   {"cifar100", zonal__recipe_cifar100}};
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++)
        if (strcmp(recipes[i].name, name) == 0) return recipes[i].lines;
    return NULL;
}
