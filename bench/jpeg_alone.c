/*
 * How fast libjpeg-turbo alone decodes the JPEG files given, at full size, from memory, on one
 * thread: what the lines of "zonal bench data" are held against.
 *
 *     jpeg_alone FILE.jpg...
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <jpeglib.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

typedef struct file {
    unsigned char *bytes;
    unsigned long size;
} file;

static file read_file(const char *path) {
    FILE *stream = fopen(path, "rb");
    file f = {0};
    if (!stream) {
        perror(path);
        exit(1);
    }
    fseek(stream, 0, SEEK_END);
    f.size = (unsigned long)ftell(stream);
    rewind(stream);
    f.bytes = malloc(f.size + 1);
    if (!f.bytes || fread(f.bytes, 1, f.size, stream) != f.size) exit(1);
    fclose(stream);
    return f;
}

/* libjpeg's own error handler ends the program: good enough here. */
static size_t decode(const file *f, unsigned char **line, size_t *room) {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, f->bytes, f->size);
    jpeg_read_header(&jpeg, TRUE);
    jpeg_start_decompress(&jpeg);
    size_t wide = (size_t)jpeg.output_width * (size_t)jpeg.output_components;
    size_t bytes = wide * jpeg.output_height;
    if (bytes > *room) {
        *line = realloc(*line, bytes);
        *room = bytes;
        if (!*line) exit(1);
    }
    while (jpeg.output_scanline < jpeg.output_height) {
        JSAMPROW row = *line + jpeg.output_scanline * wide;
        jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
    return bytes;
}

int main(int argc, char **argv) {
    file *files = calloc((size_t)argc, sizeof *files);
    unsigned char *pixels = NULL;
    size_t room = 0, bytes = 0;
    if (argc < 2 || !files) {
        fprintf(stderr, "usage: jpeg_alone FILE.jpg...\n");
        return 2;
    }
    for (int i = 1; i < argc; i++) files[i] = read_file(argv[i]);
    decode(&files[1], &pixels, &room);
    double begin = now();
    for (int i = 1; i < argc; i++) bytes += decode(&files[i], &pixels, &room);
    double seconds = now() - begin;
    printf("libjpeg alone: %d images, %.3f s, %.1f images/s, %.3f GB/s\n", argc - 1, seconds,
           (argc - 1) / seconds, (double)bytes / seconds / 1e9);
    return 0;
}
