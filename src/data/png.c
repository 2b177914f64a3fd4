/*
 * PNG by libpng 1.6.
 *
 * libpng reports errors by a call that may not return; here it jumps back to the function that
 * called libpng. Between that setjmp and the jump no local variable is changed: what has to outlive
 * a jump is kept in the state.
 *
 * libpng allocates memory anew for each image. It gets it from a list of blocks that is kept:
 * giving back does nothing, and all is free again when the next image begins.
 */
#include "data/formats.h"

#include "core/file.h"
#include "core/memory.h"

#ifdef ZONAL_HAVE_PNG

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

enum {
    BLOCK_HEAD = 64,         /* keeps what follows aligned as zonal__alloc does */
    BLOCK_LEAST = 1 << 17,   /* holds what libpng wants for an image of common size */
    LARGEST_CHUNK = 8 << 20, /* bytes libpng may take for one chunk; the pixels are none */
    LONGEST_MESSAGE = 128
};

typedef struct block {
    struct block *next;
    size_t size, used; /* bytes after the head */
} block;
_Static_assert(sizeof(block) <= BLOCK_HEAD, "the head of a block holds its fields");

struct zonal__png {
    block *blocks;
    int out_of_memory;
    png_structp codec;
    png_infop info;
    const uint8_t *at; /* what is still to be read */
    size_t left;
    jmp_buf failed;
    char message[LONGEST_MESSAGE];
};

/* ---- memory ---------------------------------------------------------------------------------- */

static void *alloc(zonal__png *png, size_t bytes) {
    block *b = png->blocks;
    void *memory;
    bytes = (bytes + 63) / 64 * 64;
    while (b && b->size - b->used < bytes) b = b->next;
    if (!b) {
        size_t size = bytes > BLOCK_LEAST ? bytes : BLOCK_LEAST;
        if (zonal__alloc((int64_t)(size + BLOCK_HEAD), 1, "libpng", &memory) != ZONAL_OK) {
            png->out_of_memory = 1;
            return NULL;
        }
        b = memory;
        *b = (block){.next = png->blocks, .size = size};
        png->blocks = b;
    }
    memory = (char *)b + BLOCK_HEAD + b->used;
    b->used += bytes;
    return memory;
}

static void forget_all(zonal__png *png) {
    for (block *b = png->blocks; b; b = b->next) b->used = 0;
    png->codec = NULL;
    png->info = NULL;
    png->out_of_memory = 0;
}

static png_voidp on_alloc(png_structp codec, png_alloc_size_t bytes) {
    return alloc(png_get_mem_ptr(codec), bytes);
}

static void on_free(png_structp codec, png_voidp memory) {
    (void)codec, (void)memory;
}

zonal_status zonal__png_create(zonal__png **out) {
    return ZONAL_NEW(out, 1, "the PNG decoder");
}

static void release_blocks(zonal__png *png) {
    while (png->blocks) {
        block *next = png->blocks->next;
        zonal__free(png->blocks);
        png->blocks = next;
    }
}

void zonal__png_destroy(zonal__png *png) {
    if (!png) return;
    release_blocks(png);
    zonal__free(png);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void on_error(png_structp codec, png_const_charp message) {
    zonal__png *png = png_get_error_ptr(codec);
    snprintf(png->message, sizeof png->message, "%s", message);
    longjmp(png->failed, 1);
}

static _Noreturn void does_not_start(zonal__png *png) {
    snprintf(png->message, sizeof png->message, "libpng %s does not start",
             png_get_libpng_ver(NULL));
    longjmp(png->failed, 1);
}

/* Warnings are about chunks that do not touch the pixels. */
static void on_warning(png_structp codec, png_const_charp message) {
    (void)codec, (void)message;
}

/* After a failed allocation its own sentence stands already. */
static zonal_status failure(const zonal__png *png, const char *name) {
    if (png->out_of_memory) return ZONAL_MEMORY;
    return ZONAL_FAIL(ZONAL_FORMAT, "%s is a damaged PNG: %s; remove it or save it again", name,
                      png->message);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void on_read(png_structp codec, png_bytep out, size_t bytes) {
    zonal__png *png = png_get_io_ptr(codec);
    if (bytes > png->left) png_error(codec, "it ends early");
    memcpy(out, png->at, bytes);
    png->at += bytes;
    png->left -= bytes;
}

static void open_reader(zonal__png *png, const zonal__encoded *in) {
    png->at = in->bytes;
    png->left = in->size;
    png->codec = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, png, on_error, on_warning, png,
                                          on_alloc, on_free);
    if (png->codec) png->info = png_create_info_struct(png->codec);
    if (!png->info) does_not_start(png);
    png_set_user_limits(png->codec, ZONAL__IMAGE_SIDE, ZONAL__IMAGE_SIDE);
    png_set_chunk_malloc_max(png->codec, LARGEST_CHUNK);
    /* -1: pass over every chunk that is not needed for the pixels, texts and profiles too. */
    png_set_keep_unknown_chunks(png->codec, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_read_fn(png->codec, png, on_read);
}

static zonal_status read_image(zonal__png *png, const zonal__encoded *in, zonal__image *image) {
    size_t line;
    int passes;
    open_reader(png, in);
    png_read_info(png->codec, png->info);
    png_set_expand(png->codec);
    png_set_strip_16(png->codec);
    png_set_strip_alpha(png->codec);
    passes = png_set_interlace_handling(png->codec);
    png_read_update_info(png->codec, png->info);
    ZONAL_TRY(zonal__image_shape(image, in->info.width, in->info.height, in->info.channels));
    line = (size_t)image->width * (size_t)image->channels;
    if (png_get_rowbytes(png->codec, png->info) != line ||
        png_get_image_height(png->codec, png->info) != (png_uint_32)image->height)
        png_error(png->codec, "its head contradicts itself");
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < image->height; y++)
            png_read_row(png->codec, image->pixels + (size_t)y * line, NULL);
    png_read_end(png->codec, NULL); /* sees whether the end is there */
    return ZONAL_OK;
}

zonal_status zonal__png_decode(zonal__png *png, const zonal__encoded *in, zonal__image *image) {
    forget_all(png);
    if (setjmp(png->failed)) return failure(png, in->name);
    return read_image(png, in, image);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A failure is remembered by the file and reported at its commit. */
static void on_write(png_structp codec, png_bytep data, size_t bytes) {
    (void)zonal__file_write(png_get_io_ptr(codec), data, bytes);
}

/* The file is flushed at its commit. */
static void on_flush(png_structp codec) {
    (void)codec;
}

static void write_image(zonal__png *png, zonal__file *file, const zonal__image *image) {
    size_t line = (size_t)image->width * (size_t)image->channels;
    png->codec = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, png, on_error, on_warning, png,
                                           on_alloc, on_free);
    if (png->codec) png->info = png_create_info_struct(png->codec);
    if (!png->info) does_not_start(png);
    png_set_write_fn(png->codec, file, on_write, on_flush);
    png_set_IHDR(png->codec, png->info, (png_uint_32)image->width, (png_uint_32)image->height, 8,
                 image->channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    /* Textures are noise, which no effort makes small: a quarter of the default's time for files a
     * sixth larger. */
    png_set_compression_level(png->codec, 2);
    png_set_filter(png->codec, PNG_FILTER_TYPE_BASE, PNG_FAST_FILTERS);
    png_write_info(png->codec, png->info);
    for (int y = 0; y < image->height; y++)
        png_write_row(png->codec, image->pixels + (size_t)y * line);
    png_write_end(png->codec, png->info);
}

/* Returns 0 when libpng failed. */
static int try_to_write(zonal__png *png, zonal__file *file, const zonal__image *image) {
    if (setjmp(png->failed)) return 0;
    write_image(png, file, image);
    return !png->out_of_memory;
}

zonal_status zonal__image_can_write_png(void) {
    return ZONAL_OK;
}

zonal_status zonal__image_write_png(const char *path, const zonal__image *image) {
    zonal__png *png;
    zonal__file *file = NULL;
    zonal_status status;
    ZONAL_TRY(zonal__png_create(&png));
    ZONAL_TRY_GOTO(status, done, zonal__file_create(path, &file));
    if (try_to_write(png, file, image)) {
        status = zonal__file_commit(file);
        goto done;
    }
    zonal__file_abandon(file);
    status = png->out_of_memory
                 ? ZONAL_MEMORY
                 : ZONAL_FAIL(ZONAL_SHAPE, "cannot write %s: %s", path, png->message);
done:
    zonal__png_destroy(png);
    return status;
}

#else

static const char no_png[] = "this build cannot read or write PNG: install libpng-dev and build "
                             "again";

zonal_status zonal__png_create(zonal__png **out) {
    *out = NULL;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "%s", no_png);
}

void zonal__png_destroy(zonal__png *png) {
    (void)png;
}

zonal_status zonal__png_decode(zonal__png *png, const zonal__encoded *in, zonal__image *image) {
    (void)png, (void)image;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "%s is a PNG: this build cannot read it", in->name);
}

zonal_status zonal__image_can_write_png(void) {
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "no PNG files are written: %s", no_png);
}

zonal_status zonal__image_write_png(const char *path, const zonal__image *image) {
    (void)image;
    return ZONAL_FAIL(ZONAL_UNSUPPORTED, "%s is not written: %s", path, no_png);
}

#endif
