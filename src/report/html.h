/*
 * Text, numbers and images as parts of an HTML page that is being written. Failures are the
 * file's: it keeps them until its commit (core/file.h).
 */
#ifndef ZONAL_REPORT_HTML_H
#define ZONAL_REPORT_HTML_H

#include "core/file.h"
#include "data/image.h"

/* Escaped for the inside of elements and of quoted attributes. Names and files come from outside:
 * what is no UTF-8, control characters and marks that turn the direction of the text around them
 * become U+FFFD; a tab or newline stays. */
void zonal__html_text(zonal__file *file, const char *text);
/* The same of at most "most" characters: a longer text ends in an ellipsis. */
void zonal__html_short(zonal__file *file, const char *text, int64_t most);

/* "decimals" digits behind the point, a true minus sign; a dash for what is not finite. */
void zonal__html_number(zonal__file *file, double value, int decimals);

/* <img class="..." alt="..." src="data:image/png;base64,...">: the image lies in the page itself.
 * Its bytes are not compressed: the build may have no zlib, and thumbnails are small. Needs memory
 * of about the image's size. */
zonal_status zonal__html_image(zonal__file *file, const zonal__image *image, const char *class_name,
                               const char *alt);

#endif
