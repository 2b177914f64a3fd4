/*
 * recipes/NAME.toml as lines of text, NULL-terminated; the build makes them of the files.
 */
#ifndef ZONAL_REPRODUCE_RECIPES_H
#define ZONAL_REPRODUCE_RECIPES_H

extern const char *const zonal__recipe_textures[];
extern const char *const zonal__recipe_imagenet100[];
extern const char *const zonal__recipe_galaxy10[];
extern const char *const zonal__recipe_imagenette[];
extern const char *const zonal__recipe_efigi[];
extern const char *const zonal__recipe_cifar10[];
extern const char *const zonal__recipe_cifar100[];

#endif
