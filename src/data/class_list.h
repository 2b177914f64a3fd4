/*
 * Class lists: a text with the name of one class per line, to take only those, in that order.
 * What stands after the first blank is ignored ("n01440764 tench"), unless the whole line is the
 * name of a class ("golden retriever"). Lines that begin with # and empty ones are passed over.
 */
#ifndef ZONAL_DATA_CLASS_LIST_H
#define ZONAL_DATA_CLASS_LIST_H

#include "data/source.h"
#include "data/tree.h"

/* Appends to "chosen" those of the known names that the file at "path" lists. "owner" has the
 * classes, and "is" says what is one of them ("folder", "class"), for sentences. */
zonal_status zonal__class_list_read(const char *path, const char *owner, const char *is,
                                    const zonal__names *known, zonal__names *chosen);

/* Leaves the images of the classes of options->class_list in a source that is open. One whose
 * classes have no names is refused, and one that is left without an image, unless
 * options->strict_split. */
zonal_status zonal__class_list_apply(zonal__source *source, const zonal__source_options *options);

#endif
