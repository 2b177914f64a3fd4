/*
 * Image files: src/data/codec.h. What the images must look like is told by
 * tests/data/images/make.py (four flat rectangles), and against Pillow by codec_test.py; here are
 * damage, limits and memory.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/formats.h"
#include "failing_alloc.h"
#include "folder.h"
#include "image_file.h"
#include "made_jpeg.h"
#include "test.h"

enum { WIDTH = 32, HEIGHT = 16 };

typedef struct kept_image {
    const char *name;
    int channels;
    int tolerance; /* of JPEG at quality 95 where the rectangles are whole blocks */
} kept_image;

static const kept_image kept_images[] = {
    {"colour.jpg", 3, 4},     {"turned.jpg", 3, 4},     {"grey.jpg", 1, 4},
    {"cmyk.jpg", 3, 4},       {"cmyk_plain.jpg", 3, 4}, {"colour.png", 3, 0},
    {"interlaced.png", 3, 0}, {"palette.png", 3, 0},    {"grey.png", 1, 0},
};
enum { KEPT = sizeof kept_images / sizeof kept_images[0] };

static int save(const char *path, const void *data, size_t count) {
    FILE *stream = fopen(path, "wb");
    if (!CHECK(stream != NULL)) return 0;
    CHECK(fwrite(data, 1, count, stream) == count);
    return CHECK(fclose(stream) == 0);
}

/* Whether this build can decode the kinds of files that the tests need. */
static int can_decode(const char *name) {
    zonal__decoder *decoder;
    zonal__image image = {0};
    image_file file;
    zonal_status status = ZONAL_UNSUPPORTED;
    if (!image_file_load(name, &file) || !CHECK_OK(zonal__decoder_create(&decoder))) return 0;
    status = zonal__image_decode(decoder, file.at, file.count, name, NULL, &image);
    if (status == ZONAL_UNSUPPORTED)
        CHECK_MSG(strstr(zonal_last_error()->message, "install lib") != NULL,
                  "no package is named: %s", zonal_last_error()->message);
    zonal__image_fini(&image);
    zonal__decoder_destroy(decoder);
    return status != ZONAL_UNSUPPORTED;
}

#define NEED_BOTH()                                                                                \
    do {                                                                                           \
        if (!can_decode("grey.jpg") || !can_decode("grey.png"))                                    \
            SKIP("built without libjpeg or libpng");                                               \
    } while (0)

/* The largest difference from the rectangles of make.py. */
static int worst_difference(const zonal__image *image) {
    static const int colours[4][3] = {{200, 40, 30}, {40, 180, 60}, {30, 60, 200}, {250, 250, 250}};
    int worst = 0;
    if (image->width != WIDTH || image->height != HEIGHT) return 256;
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            for (int c = 0; c < image->channels; c++) {
                int which = 2 * (y >= HEIGHT / 2) + (x >= WIDTH / 2);
                int want = image->channels == 1 ? 85 * which : colours[which][c];
                int off = abs(image->pixels[(y * WIDTH + x) * image->channels + c] - want);
                worst = off > worst ? off : worst;
            }
    return worst;
}

/* ---- images ---------------------------------------------------------------------------------- */

static void test_kept_images(void) {
    zonal__decoder *decoder;
    zonal__image image = {0};
    NEED_BOTH();
    if (!CHECK_OK(zonal__decoder_create(&decoder))) return;
    for (int i = 0; i < KEPT; i++) {
        const kept_image *kept = &kept_images[i];
        char path[1024];
        snprintf(path, sizeof path, "%s/data/images/%s", ZONAL_TESTS_DIR, kept->name);
        if (!CHECK_OK(zonal__image_read(decoder, path, NULL, &image))) continue;
        CHECK_MSG(image.channels == kept->channels, "%s: %d channels", kept->name, image.channels);
        CHECK_MSG(worst_difference(&image) <= kept->tolerance, "%s is off by %d", kept->name,
                  worst_difference(&image));
    }
    zonal__image_fini(&image);
    zonal__decoder_destroy(decoder);
}

static void test_channels_asked_for(void) {
    zonal__decoder *decoder;
    zonal__image image = {0}, grey = {0}, want = {0};
    NEED_BOTH();
    if (!CHECK_OK(zonal__decoder_create(&decoder))) return;
    for (int i = 0; i < KEPT; i++) {
        const kept_image *kept = &kept_images[i];
        zonal__decode_options rgb = {.channels = 3}, one = {.channels = 1};
        image_file file;
        int worst = 0;
        if (!image_file_load(kept->name, &file)) continue;
        CHECK_OK(zonal__image_decode(decoder, file.at, file.count, "x", &rgb, &image));
        CHECK_OK(zonal__image_decode(decoder, file.at, file.count, "x", &one, &grey));
        if (!CHECK(image.channels == 3 && grey.channels == 1)) continue;
        if (!CHECK(grey.width == WIDTH && grey.height == HEIGHT)) continue;
        CHECK_OK(zonal__image_convert(&image, 1, &want));
        for (int k = 0; k < WIDTH * HEIGHT; k++) {
            int off = abs(grey.pixels[k] - want.pixels[k]);
            worst = off > worst ? off : worst;
        }
        /* A JPEG's own luma is rounded once, that of its rounded colours twice. */
        CHECK_MSG(worst <= 1, "%s: grey differs from its colours' by %d", kept->name, worst);
    }
    zonal__image_fini(&image);
    zonal__image_fini(&grey);
    zonal__image_fini(&want);
    zonal__decoder_destroy(decoder);
}

static void test_png_round_trip(void) {
    static const int shapes[][3] = {{1, 1, 1}, {1, 1, 3}, {17, 5, 3}, {300, 2, 1}, {2, 700, 3}};
    zonal__decoder *decoder;
    zonal__image image = {0}, back = {0};
    test_folder folder;
    NEED_BOTH();
    if (!CHECK(test_folder_make(&folder)) || !CHECK_OK(zonal__decoder_create(&decoder))) return;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int *s = shapes[i];
        size_t count = (size_t)s[0] * (size_t)s[1] * (size_t)s[2];
        CHECK_OK(zonal__image_shape(&image, s[0], s[1], s[2]));
        for (size_t k = 0; k < count; k++) image.pixels[k] = (uint8_t)(k * k * 31 + k * 7 + i);
        CHECK_OK(zonal__image_write_png(test_folder_file(&folder, "x.png"), &image));
        if (!CHECK_OK(zonal__image_read(decoder, folder.name, NULL, &back))) continue;
        CHECK(back.width == s[0] && back.height == s[1] && back.channels == s[2]);
        CHECK(memcmp(back.pixels, image.pixels, count) == 0);
    }
    CHECK_FAILS(zonal__image_write_png(test_folder_file(&folder, "no/x.png"), &image), ZONAL_IO,
                "no/x.png");
    image.width = 0;
    CHECK_FAILS(zonal__image_write_png(test_folder_file(&folder, "y.png"), &image), ZONAL_SHAPE,
                "y.png");
    CHECK(test_folder_count(&folder) == 1);
    zonal__image_fini(&image);
    zonal__image_fini(&back);
    zonal__decoder_destroy(decoder);
    test_folder_remove(&folder);
}

/* ---- damage ---------------------------------------------------------------------------------- */

/* From a block of exactly this size, so that the address sanitizer sees one byte too far. */
static zonal_status decode_exactly(zonal__decoder *decoder, const unsigned char *at, size_t count,
                                   zonal__image *image) {
    unsigned char *copy = malloc(count ? count : 1);
    zonal_status status;
    if (!CHECK(copy != NULL)) return ZONAL_MEMORY;
    memcpy(copy, at, count);
    status = zonal__image_decode(decoder, copy, count, "some.file", NULL, image);
    free(copy);
    return status;
}

/* Every beginning of a file is refused, down to the one that lacks the last byte. */
static void test_cut_off(void) {
    zonal__decoder *decoder;
    zonal__image image = {0};
    NEED_BOTH();
    if (!CHECK_OK(zonal__decoder_create(&decoder))) return;
    for (int i = 0; i <= KEPT; i++) {
        const char *name = i < KEPT ? kept_images[i].name : "progressive.jpg";
        image_file file;
        if (!image_file_load(name, &file)) continue;
        for (size_t count = 0; count < file.count; count++) {
            zonal_status status = decode_exactly(decoder, file.at, count, &image);
            CHECK_MSG(status == ZONAL_FORMAT, "%s cut off at %zu of %zu: %s", name, count,
                      file.count, zonal_status_name(status));
            CHECK_MSG(strncmp(zonal_last_error()->message, "some.file ", 10) == 0,
                      "the file is not named: %s", zonal_last_error()->message);
        }
        CHECK_OK(decode_exactly(decoder, file.at, file.count, &image));
    }
    zonal__image_fini(&image);
    zonal__decoder_destroy(decoder);
}

static void test_garbage(void) {
    static const char *const texts[] = {"GIF89a", "\xff\xd8", "\xff\xd8\xff", "\x89PNG",
                                        "hello, I am a text\n"};
    zonal__decoder *decoder;
    zonal__image_info info;
    zonal__image image = {0};
    test_folder folder;
    unsigned char zeros[300] = {0};
    if (!CHECK(test_folder_make(&folder)) || !CHECK_OK(zonal__decoder_create(&decoder))) return;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        CHECK_FAILS(zonal__image_probe(texts[i], strlen(texts[i]), "some.file", &info),
                    ZONAL_FORMAT, "some.file");
    CHECK_FAILS(zonal__image_probe(zeros, sizeof zeros, "zero", &info), ZONAL_FORMAT,
                "zero is neither JPEG, PNG, WebP");
    if (save(test_folder_file(&folder, "empty.jpg"), "", 0))
        CHECK_FAILS(zonal__image_read(decoder, folder.name, NULL, &image), ZONAL_FORMAT,
                    "empty.jpg is empty");
    zonal__image_fini(&image);
    zonal__decoder_destroy(decoder);
    test_folder_remove(&folder);
}

/* Damage in the middle of the compressed data of a JPEG that leaves its length alone. */
static void test_damaged_jpeg(void) {
    zonal__decoder *decoder;
    zonal__image image = {0};
    image_file file;
    NEED_BOTH();
    if (!image_file_load("colour.jpg", &file) || !CHECK_OK(zonal__decoder_create(&decoder))) return;
    memset(file.at + file.count - 20, 0xff, 10); /* fill bytes, then what looks like a marker */
    CHECK_FAILS(decode_exactly(decoder, file.at, file.count, &image), ZONAL_FORMAT,
                "some.file is a damaged JPEG");
    zonal__image_fini(&image);
    zonal__decoder_destroy(decoder);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static unsigned char *find(image_file *file, const char *what, size_t length) {
    for (size_t i = 0; i + length <= file->count; i++)
        if (memcmp(file->at + i, what, length) == 0) return file->at + i;
    CHECK_MSG(0, "the image has changed");
    return file->at;
}

static void put16(unsigned char *at, unsigned value) {
    at[0] = (unsigned char)(value >> 8);
    at[1] = (unsigned char)value;
}

/* A few bytes that claim many pixels are refused before any memory is taken. */
static void test_bombs(void) {
    static const unsigned sizes[][2] = {
        {65500, 65500}, {32769, 1}, {1, 32769}, {32768, 8193}, {0, 16}};
    zonal__image_info info;
    image_file file;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *at;
        if (!image_file_load("colour.jpg", &file)) return;
        at = find(&file, "\xff\xc0", 2); /* marker, length, precision, height, width */
        put16(at + 5, sizes[i][1]);
        put16(at + 7, sizes[i][0]);
        failing_alloc_install(0, 1);
        CHECK_FAILS(zonal__image_probe(file.at, file.count, "bomb.jpg", &info), ZONAL_FORMAT,
                    "bomb.jpg");
        failing_alloc_remove();
        if (!image_file_load("colour.png", &file)) return;
        put16(file.at + 18, sizes[i][0]);
        put16(file.at + 22, sizes[i][1]);
        CHECK_FAILS(zonal__image_probe(file.at, file.count, "bomb.png", &info), ZONAL_FORMAT,
                    "bomb.png");
    }
    if (!image_file_load("colour.png", &file)) return;
    memset(file.at + 16, 0xff, 8);
    CHECK_FAILS(zonal__image_probe(file.at, file.count, "bomb.png", &info), ZONAL_FORMAT,
                "4294967295 x 4294967295");
}

static void test_bad_options(void) {
    zonal__decode_options four = {.channels = 4}, negative = {.min_side = -1};
    zonal__decoder *decoder;
    zonal__image image = {0};
    image_file file;
    if (!image_file_load("colour.png", &file) || !CHECK_OK(zonal__decoder_create(&decoder))) return;
    CHECK_FAILS(zonal__image_decode(decoder, file.at, file.count, "x", &four, &image),
                ZONAL_ARGUMENT, "1 or 3 channels");
    CHECK_FAILS(zonal__image_decode(decoder, file.at, file.count, "x", &negative, &image),
                ZONAL_ARGUMENT, "least side");
    zonal__decoder_destroy(decoder);
}

/* The first scan of progressive.jpg, told to be complete, as often as asked. */
static size_t repeat_scan(int times, unsigned char *out) {
    image_file file;
    size_t scan, end, count;
    if (!image_file_load("progressive.jpg", &file)) return 0;
    scan = (size_t)(find(&file, "\xff\xda", 2) - file.at);
    file.at[scan + 1 + file.at[scan + 3]] = 0; /* the last byte of its head: no bits come later */
    for (end = scan + 2; end + 1 < file.count; end++)
        if (file.at[end] == 0xff && file.at[end + 1] != 0) break;
    memcpy(out, file.at, scan);
    for (count = scan; times > 0; times--, count += end - scan)
        memcpy(out + count, file.at + scan, end - scan);
    memcpy(out + count, "\xff\xd9", 2);
    return count + 2;
}

/* A few bytes more, and the decoder would go over a large image once more. */
static void test_many_scans(void) {
    static unsigned char many[1 << 16];
    zonal__decoder *decoder;
    zonal__image image = {0};
    size_t count;
    NEED_BOTH();
    if (!CHECK_OK(zonal__decoder_create(&decoder))) return;
    count = repeat_scan(50, many);
    CHECK_OK(zonal__image_decode(decoder, many, count, "x", NULL, &image));
    count = repeat_scan(200, many);
    CHECK_FAILS(zonal__image_decode(decoder, many, count, "x", NULL, &image), ZONAL_FORMAT,
                "x is a damaged JPEG: more than 100 scans");
    zonal__image_fini(&image);
    zonal__decoder_destroy(decoder);
}

/* ---- EXIF ------------------------------------------------------------------------------------ */

/* colour.jpg with an APP1 segment of this text after its first marker. */
static int insert_segment(image_file *file, const char *text, size_t length) {
    if (!image_file_load("colour.jpg", file)) return 0;
    memmove(file->at + 2 + 4 + length, file->at + 2, file->count - 2);
    memcpy(file->at + 2, "\xff\xe1", 2);
    put16(file->at + 4, (unsigned)length + 2);
    memcpy(file->at + 6, text, length);
    file->count += 4 + length;
    return 1;
}

#define TEXT(text) text, sizeof text - 1

static void test_exif(void) {
    static const struct {
        const char *text;
        size_t length;
        int orientation;
    } cases[] = {
        {TEXT("Exif\0\0II*\0\10\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0"), 6},
        {TEXT("Exif\0\0MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\3\0\0\0\0\0\0"), 3},
        {TEXT("Exif\0\0MM\0*\0\0\0\11x\0\1\1\x12\0\3\0\0\0\1\0\3\0\0"), 3}, /* nothing after it */
        {TEXT("Exif\0\0MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\x9\0\0\0\0\0\0"), 1}, /* 9 */
        {TEXT("Exif\0\0MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\0\0\0\0\0\0\0"), 1},  /* 0 */
        {TEXT("Exif\0\0MM\0*\0\0\0\10\0\1\1\x12\0\4\0\0\0\1\0\3\0\0\0\0\0\0"), 1},  /* a long */
        {TEXT("Exif\0\0MM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0"), 1},                /* cut off */
        {TEXT("Exif\0\0MM\0*\0\0\0\10\xff\xff\1\x11\0\3\0\0\0\1\0\3\0\0"), 1}, /* 65535 entries */
        {TEXT("Exif\0\0MM\0*\xff\xff\xff\xff\0\1\1\x12\0\3\0\0\0\1\0\3\0\0"), 1}, /* far away */
        {TEXT("Exif\0\0MM\0*\0\0\0\x17\0\1\1\x12\0\3\0\0\0\1\0\3\0\0"), 1},       /* just beyond */
        {TEXT("Exif\0\0MM\0*\0\0\0\6"), 1},
        {TEXT("Exif\0\0MM\0*"), 1},
        {TEXT("Exif\0\0XX\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\3\0\0\0\0\0\0"), 1},
        {TEXT("Exif\0\0"), 1},
        {TEXT(""), 1},
        {TEXT("http://ns.adobe.com/xap/1.0/"), 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        zonal__image_info info;
        image_file file;
        if (!insert_segment(&file, cases[i].text, cases[i].length)) return;
        if (!CHECK_OK(zonal__image_probe(file.at, file.count, "x", &info))) continue;
        CHECK_MSG(info.orientation == cases[i].orientation, "case %zu: orientation %d, want %d", i,
                  info.orientation, cases[i].orientation);
        CHECK(info.width == (info.orientation == 6 ? HEIGHT : WIDTH));
        CHECK(info.height == (info.orientation == 6 ? WIDTH : HEIGHT));
        CHECK(info.kind == ZONAL__IMAGE_JPEG && info.channels == 3);
    }
}

static void test_names(void) {
    CHECK(zonal__image_named("a.jpg") && zonal__image_named("a.b.JPEG"));
    CHECK(zonal__image_named("x.Png") && zonal__image_named(".png"));
    CHECK(!zonal__image_named("a.svg") && !zonal__image_named("jpg"));
    CHECK(!zonal__image_named("a.jpg.txt") && !zonal__image_named(""));
}

/* ---- files ----------------------------------------------------------------------------------- */

static void test_unreadable(void) {
    zonal__decoder *decoder;
    zonal__image image = {0};
    test_folder folder;
    if (!CHECK(test_folder_make(&folder)) || !CHECK_OK(zonal__decoder_create(&decoder))) return;
    CHECK_FAILS(zonal__image_read(decoder, test_folder_file(&folder, "none.jpg"), NULL, &image),
                ZONAL_IO, "none.jpg: No such file");
    CHECK_FAILS(zonal__image_read(decoder, folder.path, NULL, &image), ZONAL_IO, "not a file");
    if (CHECK(mkfifo(test_folder_file(&folder, "pipe.jpg"), 0600) == 0))
        CHECK_FAILS(zonal__image_read(decoder, folder.name, NULL, &image), ZONAL_IO, "not a file");
    if (save(test_folder_file(&folder, "secret.jpg"), "x", 1) && geteuid() != 0) {
        chmod(folder.name, 0);
        CHECK_FAILS(zonal__image_read(decoder, folder.name, NULL, &image), ZONAL_IO,
                    "make it readable");
    }
    zonal__decoder_destroy(decoder);
    test_folder_remove(&folder);
}

static void test_full_disk(void) {
    zonal__image image = {0};
    if (access("/dev/full", W_OK) != 0) SKIP("there is no /dev/full");
    if (!can_decode("grey.png")) SKIP("built without libpng");
    CHECK_OK(zonal__image_shape(&image, 100, 100, 3));
    CHECK_FAILS(zonal__image_write_png("/dev/full", &image), ZONAL_IO, "/dev/full");
    zonal__image_fini(&image);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static zonal_status decode_once(void *context) {
    const char *name = context;
    zonal__decode_options grey = {.channels = 1};
    zonal__decoder *decoder;
    zonal__image image = {0};
    zonal_status status;
    char path[1024];
    snprintf(path, sizeof path, "%s/data/images/%s", ZONAL_TESTS_DIR, name);
    ZONAL_TRY(zonal__decoder_create(&decoder));
    status = zonal__image_read(decoder, path, NULL, &image);
    if (status == ZONAL_OK) status = zonal__image_read(decoder, path, &grey, &image);
    zonal__image_fini(&image);
    zonal__decoder_destroy(decoder);
    return status;
}

static zonal_status write_once(void *context) {
    zonal__image image = {0};
    zonal_status status = zonal__image_shape(&image, 40, 30, 3);
    if (status == ZONAL_OK) status = zonal__image_write_png(context, &image);
    zonal__image_fini(&image);
    return status;
}

static void test_no_memory(void) {
    test_folder folder;
    NEED_BOTH();
    for (int i = 0; i < KEPT; i++)
        test_every_allocation(kept_images[i].name, decode_once, (void *)kept_images[i].name);
    if (!CHECK(test_folder_make(&folder))) return;
    test_every_allocation("writing a PNG", write_once, (void *)test_folder_file(&folder, "x.png"));
    test_folder_remove(&folder);
}

/* The second time round nothing is allocated, whatever the kind of image. */
static void test_steady_state(void) {
    zonal__decode_options options[] = {{0}, {.channels = 1}, {.channels = 3, .min_side = 4}};
    zonal__decoder *decoder;
    zonal__image image = {0};
    int64_t after_first = 0;
    NEED_BOTH();
    failing_alloc_install(-1, 0);
    if (CHECK_OK(zonal__decoder_create(&decoder))) {
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 3 * KEPT; i++) {
                char path[1024];
                snprintf(path, sizeof path, "%s/data/images/%s", ZONAL_TESTS_DIR,
                         kept_images[i % KEPT].name);
                CHECK_OK(zonal__image_read(decoder, path, &options[i / KEPT], &image));
            }
            if (round == 0) after_first = failing_alloc_calls();
        }
        CHECK_MSG(failing_alloc_calls() == after_first, "%lld allocations after the first round",
                  (long long)(failing_alloc_calls() - after_first));
        zonal__decoder_destroy(decoder);
    }
    zonal__image_fini(&image);
    CHECK(failing_alloc_remove() == 0);
}

/* ---- files that a device may decode ---------------------------------------------------------- */

static int is_plain(const image_file *file) {
    const zonal__encoded in = {.bytes = file->at, .size = file->count, .name = "file"};
    return zonal__jpeg_is_plain(&in);
}

/* Cut off anywhere it is no longer plain; and any byte may be any other. */
static void test_plain_jpeg(void) {
    static const char *const others[] = {"grey.jpg", "cmyk.jpg", "progressive.jpg", "colour.png"};
    image_file file, part;
    if (!image_file_load("colour.jpg", &file)) return;
    CHECK(is_plain(&file));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (image_file_load(others[i], &part)) CHECK_MSG(!is_plain(&part), "%s", others[i]);
    for (part = file; part.count > 0;) {
        part.count--;
        CHECK_MSG(!is_plain(&part), "the first %zu bytes", part.count);
    }
    for (size_t i = 0; i < file.count; i++) {
        zonal__image_info info;
        part = file;
        part.at[i] ^= 0xff;
        if (is_plain(&part) && zonal__image_probe(part.at, part.count, "part", &info) == ZONAL_OK)
            CHECK_MSG(info.kind == ZONAL__IMAGE_JPEG && info.channels == 3, "byte %zu", i);
    }
}

/* A stray marker among the codes, and a restart out of turn. */
static void test_plain_markers(void) {
    image_file file;
    size_t scan = 2;
    if (!image_file_load("colour.jpg", &file)) return;
    while (file.at[scan] != 0xff || file.at[scan + 1] != 0xda) scan++;
    scan += 2 + (size_t)file.at[scan + 3]; /* the first byte of the codes */
    for (int marker = 1; marker < 256; marker++) {
        image_file with = file;
        memmove(with.at + scan + 2, with.at + scan, with.count - scan);
        with.count += 2;
        with.at[scan] = 0xff;
        with.at[scan + 1] = (unsigned char)marker;
        /* An end is an end wherever it comes. */
        CHECK_MSG(is_plain(&with) == (marker == 0xd9), "marker %02x", marker);
    }
}

/* Restarts: all of them, in their order, where they are announced. */
static void test_plain_restarts(void) {
    const made_jpeg j = {100, 40, 2, 1, 3, 2}; /* 7 x 5 units: 17 restarts */
    image_file file, other;
    int found = 0;
    file.count = made_jpeg_write(&j, file.at);
    CHECK(is_plain(&file));
    for (size_t i = 0; i + 1 < file.count; i++) {
        if (file.at[i] != 0xff || file.at[i + 1] < 0xd0 || file.at[i + 1] > 0xd7) continue;
        CHECK(file.at[i + 1] == 0xd0 + found++ % 8);
        other = file;
        other.at[i + 1] = (unsigned char)(0xd0 + (found % 8));
        CHECK_MSG(!is_plain(&other), "restart %d has another number", found - 1);
        other = file;
        memmove(other.at + i, other.at + i + 2, other.count - i - 2);
        other.count -= 2;
        CHECK_MSG(!is_plain(&other), "restart %d is missing", found - 1);
    }
    CHECK(found == 17);
}

/* Changes a bit of what comes before the codes: libjpeg finds nothing wrong with the tables of what
 * still passes for plain. */
static void test_plain_tables(void) {
    static const char *const wrong[] = {"Bogus", "not defined", "Unsupported", "Invalid",
                                        "two sizes"};
    zonal__decoder *decoder;
    zonal__image image = {0};
    image_file file, other;
    int plain = 0, refused = 0;
    if (!can_decode("colour.jpg")) SKIP("this build reads no JPEG");
    if (!image_file_load("colour.jpg", &file) || !CHECK_OK(zonal__decoder_create(&decoder))) return;
    for (size_t bit = 16; file.at[bit / 8] != 0xff || file.at[bit / 8 + 1] != 0xda; bit++) {
        other = file;
        other.at[bit / 8] ^= (unsigned char)(1u << bit % 8);
        plain += is_plain(&other);
        if (zonal__image_decode(decoder, other.at, other.count, "other", NULL, &image) == ZONAL_OK)
            continue;
        refused++;
        for (size_t i = 0; is_plain(&other) && i < sizeof wrong / sizeof wrong[0]; i++)
            CHECK_MSG(!strstr(zonal_last_error()->message, wrong[i]), "bit %zu: %s", bit,
                      zonal_last_error()->message);
    }
    CHECK(plain > 100 && refused > 100);
    zonal__image_fini(&image);
    zonal__decoder_destroy(decoder);
}

/* Status and sentence of a file that is left to a device if it is plain. */
static zonal_status decode_with(zonal__decoder *decoder, const image_file *file, int encoded_side,
                                zonal__image *image, zonal_error *error) {
    const zonal__decode_options options = {.encoded_side = encoded_side};
    zonal_status status = zonal__image_decode(decoder, file->at, file->count, "f", &options, image);
    *error = *zonal_last_error();
    return status;
}

/* What libjpeg refuses by its head or for its length it refuses in the same words where a device
 * decodes, and odd files are decoded as ever. */
static void test_same_words(void) {
    static const char *const odd[] = {"grey.jpg", "cmyk.jpg", "progressive.jpg", "turned.jpg"};
    enum { NARROW = sizeof odd / sizeof odd[0], DEEP, CUT, EMPTY, NO_TABLES, CASES };
    zonal__decoder *decoder;
    zonal__image here = {0}, there = {0};
    if (!can_decode("colour.jpg")) SKIP("this build reads no JPEG");
    if (!CHECK_OK(zonal__decoder_create(&decoder))) return;
    for (int i = 0; i < CASES; i++) {
        const made_jpeg j = {60, 40, i == NARROW ? 4 : 2, 1, 9, 0};
        zonal_error words[2];
        image_file file;
        file.count = made_jpeg_write(&j, file.at);
        if (i < NARROW && !image_file_load(odd[i], &file)) break;
        if (i == DEEP) file.at[6] = 12; /* bits of a sample */
        if (i == CUT) file.count -= 30;
        if (i == EMPTY) file.count = 60;
        if (i == NO_TABLES) file.at[22] = 0xfe; /* steps become a comment */
        zonal_status want = decode_with(decoder, &file, 0, &here, &words[0]);
        CHECK_MSG((want == ZONAL_OK) == (i <= NARROW), "case %d: %s", i, words[0].message);
        CHECK_MSG(decode_with(decoder, &file, 512, &there, &words[1]) == want, "case %d", i);
        if (want == ZONAL_OK)
            CHECK(there.encoded == 0 && there.width == here.width &&
                  memcmp(here.pixels, there.pixels,
                         (size_t)here.width * (size_t)here.height * (size_t)here.channels) == 0);
        else
            CHECK_MSG(strcmp(words[0].message, words[1].message) == 0, "%s; %s", words[0].message,
                      words[1].message);
    }
    zonal__image_fini(&here);
    zonal__image_fini(&there);
    zonal__decoder_destroy(decoder);
}

static void test_stays_encoded(void) {
    static const struct {
        const char *name;
        int side, channels, min_side, stays;
    } cases[] = {{"colour.jpg", 512, 0, 0, 1},      {"colour.jpg", 512, 3, 0, 1},
                 {"colour.jpg", 0, 0, 0, 0},        {"colour.jpg", 8, 0, 0, 0},
                 {"colour.jpg", 512, 1, 0, 0},      {"colour.jpg", 512, 0, 2, 0},
                 {"turned.jpg", 512, 0, 0, 0},      {"grey.jpg", 512, 0, 0, 0},
                 {"progressive.jpg", 512, 0, 0, 0}, {"colour.png", 512, 0, 0, 0}};
    zonal__decoder *decoder;
    zonal__image image = {0}, whole = {0};
    NEED_BOTH();
    if (!CHECK_OK(zonal__decoder_create(&decoder))) return;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const zonal__decode_options options = {.channels = cases[i].channels,
                                               .min_side = cases[i].min_side,
                                               .encoded_side = cases[i].side};
        image_file file;
        if (!image_file_load(cases[i].name, &file)) break;
        CHECK_OK(zonal__image_decode(decoder, file.at, file.count, "file", &options, &image));
        CHECK_OK(zonal__image_decode(decoder, file.at, file.count, "file", NULL, &whole));
        CHECK_MSG(image.encoded == (cases[i].stays ? file.count : 0), "case %zu", i);
        if (cases[i].stays)
            CHECK(memcmp(image.pixels, file.at, file.count) == 0 && image.width == whole.width &&
                  image.height == whole.height && image.channels == whole.channels);
    }
    zonal__image_fini(&image);
    zonal__image_fini(&whole);
    zonal__decoder_destroy(decoder);
}

static const test_case tests[] = {
    {"plain jpeg", test_plain_jpeg},
    {"plain jpeg: markers", test_plain_markers},
    {"plain jpeg: restarts", test_plain_restarts},
    {"plain jpeg: tables", test_plain_tables},
    {"plain jpeg: the same words", test_same_words},
    {"stays encoded", test_stays_encoded},
    {"names", test_names},
    {"kept images", test_kept_images},
    {"channels asked for", test_channels_asked_for},
    {"png round trip", test_png_round_trip},
    {"cut off", test_cut_off},
    {"garbage", test_garbage},
    {"damaged jpeg", test_damaged_jpeg},
    {"bombs", test_bombs},
    {"many scans", test_many_scans},
    {"bad options", test_bad_options},
    {"exif", test_exif},
    {"unreadable", test_unreadable},
    {"full disk", test_full_disk},
    {"no memory", test_no_memory},
    {"steady state", test_steady_state},
    {0},
};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
