#include "train/data_record.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/checksum.h"
#include "core/file.h"
#include "core/file_read.h"
#include "core/memory.h"
#include "core/text.h"

enum { MOST_LISTED = 32768, PART_NAME = 16, SHOWN_NAME = 80 };
static const size_t LONGEST_FILE = (size_t)1 << 28;

typedef struct part {
    char name[PART_NAME];
    int64_t count;
    uint64_t names, images;
} part;

typedef struct image {
    char *name;
    uint64_t fingerprint;
    int part;
} image;

struct zonal__data_record {
    int64_t one_in;
    int part_count;
    part parts[ZONAL__DATA_PARTS];
    int64_t count, room;
    image *images; /* by name */
};

/* ---- making ---------------------------------------------------------------------------------- */

static zonal_status add_image(zonal__data_record *r, const char *name, image what) {
    size_t length = strlen(name) + 1;
    ZONAL_TRY(ZONAL_GROW(&r->images, r->count, &r->room, "the record of the images"));
    ZONAL_TRY(ZONAL_NEW(&what.name, length, "the name of an image"));
    memcpy(what.name, name, length);
    r->images[r->count++] = what;
    return ZONAL_OK;
}

/* Which images are looked at does not depend on how many there are of others. */
static int is_chosen(const zonal__data_record *r, const char *name, size_t length) {
    return r->one_in == 1 || zonal__checksum_of(name, length) % (uint64_t)r->one_in == 0;
}

/* Textures are settings and numbers: all of them are as the first is. */
static int is_drawn(const zonal__source *source) {
    return strcmp(source->table->kind, "textures") == 0;
}

static zonal_status add_part(zonal__data_record *r, const zonal__data_part *from) {
    part *to = &r->parts[r->part_count];
    int64_t count = is_drawn(from->source) ? 1 : from->source->count;
    zonal__checksum names, images;
    char name[ZONAL__NAME_ROOM];
    zonal__checksum_init(&names);
    zonal__checksum_init(&images);
    for (int64_t i = 0; i < count; i++) {
        image what = {.part = r->part_count};
        size_t length;
        zonal__source_name(from->source, i, name);
        length = strlen(name);
        zonal__checksum_add(&names, name, length + 1);
        if (!is_chosen(r, name, length)) continue;
        ZONAL_TRY(zonal__source_fingerprint(from->source, i, &what.fingerprint));
        zonal__checksum_add(&images, &what.fingerprint, sizeof what.fingerprint);
        if (!is_drawn(from->source)) ZONAL_TRY(add_image(r, name, what));
    }
    snprintf(to->name, sizeof to->name, "%s", from->name);
    to->count = from->source->count;
    to->names = zonal__checksum_value(&names);
    to->images = zonal__checksum_value(&images);
    r->part_count++;
    return ZONAL_OK;
}

static int by_name(const void *a, const void *b) {
    const image *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->part - y->part;
}

static void sort_images(zonal__data_record *r) {
    if (r->count > 0) qsort(r->images, (size_t)r->count, sizeof *r->images, by_name);
}

zonal_status zonal__data_record_make(const zonal__data_part *parts, int count, int64_t one_in,
                                     zonal__data_record **out) {
    zonal__data_record *r;
    int64_t images = 0;
    zonal_status status = ZONAL_OK;
    *out = NULL;
    if (count > ZONAL__DATA_PARTS)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "images have at most %d parts, not %d", ZONAL__DATA_PARTS,
                          count);
    ZONAL_TRY(ZONAL_NEW(&r, 1, "the record of the images"));
    for (int i = 0; i < count; i++)
        if (!is_drawn(parts[i].source)) images += parts[i].source->count;
    r->one_in = one_in > 0 ? one_in : 1 + (images - 1) / MOST_LISTED;
    for (int i = 0; i < count && status == ZONAL_OK; i++) status = add_part(r, &parts[i]);
    sort_images(r);
    if (status == ZONAL_OK)
        *out = r;
    else
        zonal__data_record_destroy(r);
    return status;
}

void zonal__data_record_destroy(zonal__data_record *r) {
    if (!r) return;
    for (int64_t i = 0; i < r->count; i++) zonal__free(r->images[i].name);
    zonal__free(r->images);
    zonal__free(r);
}

int64_t zonal__data_record_one_in(const zonal__data_record *r) {
    return r->one_in;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_name(zonal__file *file, const char *name) {
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 127 || *name == '%')
            zonal__file_print(file, "%%%02X", (unsigned)(unsigned char)*name);
        else
            zonal__file_write(file, name, 1);
}

zonal_status zonal__data_record_write(const zonal__data_record *r, const char *path) {
    zonal__file *file;
    ZONAL_TRY(zonal__file_create_plain(path, &file));
    zonal__file_print(file, "zonal-data 2 %" PRId64 "\n", r->one_in);
    for (int i = 0; i < r->part_count; i++)
        zonal__file_print(file, "part %s %" PRId64 " %016" PRIx64 " %016" PRIx64 "\n",
                          r->parts[i].name, r->parts[i].count, r->parts[i].names,
                          r->parts[i].images);
    for (int64_t i = 0; i < r->count; i++) {
        zonal__file_print(file, "image %s %016" PRIx64 " ", r->parts[r->images[i].part].name,
                          r->images[i].fingerprint);
        put_name(file, r->images[i].name);
        zonal__file_print(file, "\n");
    }
    return zonal__file_commit(file);
}

/* ---- reading --------------------------------------------------------------------------------- */

static zonal_status no_record(const char *path, int64_t line) {
    return ZONAL_FAIL(ZONAL_FORMAT,
                      "%s is not a record of a run's images: line %" PRId64
                      " is not understood; restore the file, or remove it to skip that check",
                      path, line);
}

static zonal_status earlier_record(const char *path) {
    return ZONAL_FAIL(
        ZONAL_FORMAT,
        "%s was written by an earlier zonal, with another checksum, by which it also "
        "divided images that had no splits of their own: it cannot be compared with the present "
        "images; train again, or, if they have splits of their own and are "
        "the same, remove it to skip that check",
        path);
}

/* The next word of a line, ended where it stands; "" after the last. */
static char *next_word(char **at) {
    char *word = *at, *end = word + strcspn(word, " ");
    *at = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

static int read_hex(const char *word, uint64_t *out) {
    if (strlen(word) != 16 || strspn(word, "0123456789abcdef") != 16) return 0;
    *out = strtoull(word, NULL, 16);
    return 1;
}

static int read_count(const char *word, int64_t least, int64_t *out) {
    size_t length = strlen(word);
    if (length < 1 || length > 18 || strspn(word, "0123456789") != length) return 0;
    *out = strtoll(word, NULL, 10);
    return *out >= least;
}

/* Puts the characters of a name in the place of their %XX. */
static int unescape(char *name) {
    char *out = name;
    for (const char *at = name; *at; at++) {
        unsigned code = (unsigned char)*at;
        if (code == '%') {
            if (strspn(at + 1, "0123456789ABCDEF") < 2) return 0;
            sscanf(at + 1, "%2X", &code);
            at += 2;
        }
        if (code == 0) return 0;
        *out++ = (char)code;
    }
    *out = '\0';
    return out > name;
}

static int read_part(zonal__data_record *r, char *rest) {
    part *p = &r->parts[r->part_count];
    const char *name = next_word(&rest);
    if (r->part_count == ZONAL__DATA_PARTS || !name[0] || strlen(name) >= PART_NAME) return 0;
    snprintf(p->name, sizeof p->name, "%s", name);
    if (!read_count(next_word(&rest), 0, &p->count) || !read_hex(next_word(&rest), &p->names) ||
        !read_hex(next_word(&rest), &p->images) || *rest)
        return 0;
    r->part_count++;
    return 1;
}

static int find_part(const zonal__data_record *r, const char *name) {
    for (int i = 0; i < r->part_count; i++)
        if (strcmp(r->parts[i].name, name) == 0) return i;
    return -1;
}

static int read_image(const zonal__data_record *r, char *rest, image *what, char **name) {
    what->part = find_part(r, next_word(&rest));
    if (what->part < 0 || !read_hex(next_word(&rest), &what->fingerprint)) return 0;
    *name = rest;
    return unescape(rest);
}

static zonal_status read_lines(zonal__data_record *r, const char *path, char *text) {
    int64_t line = 0;
    for (char *at = text, *newline; *at; at = newline + 1) {
        char *name;
        image what = {0};
        int good = 0;
        newline = strchr(at, '\n');
        if (!newline) return no_record(path, line + 1);
        *newline = '\0';
        if (line++ == 0) {
            if (strncmp(at, "zonal-data 1 ", 13) == 0) return earlier_record(path);
            good = strncmp(at, "zonal-data 2 ", 13) == 0 && read_count(at + 13, 1, &r->one_in);
        } else if (strncmp(at, "part ", 5) == 0) {
            good = read_part(r, at + 5);
        } else if (strncmp(at, "image ", 6) == 0) {
            good = read_image(r, at + 6, &what, &name);
            if (good) ZONAL_TRY(add_image(r, name, what));
        }
        if (!good) return no_record(path, line);
    }
    if (r->part_count == 0) return no_record(path, line + 1);
    sort_images(r);
    return ZONAL_OK;
}

static zonal_status read_open(int descriptor, const char *path, zonal__data_record *r) {
    char *text;
    size_t length;
    zonal_status status;
    ZONAL_TRY(zonal__file_read_open(descriptor, path, LONGEST_FILE, &text, &length));
    status = memchr(text, '\0', length) ? no_record(path, 1) : read_lines(r, path, text);
    zonal__free(text);
    return status;
}

zonal_status zonal__data_record_read(const char *path, zonal__data_record **out) {
    zonal__data_record *r;
    int descriptor;
    zonal_status status;
    *out = NULL;
    ZONAL_TRY(zonal__file_open_plain(path, O_RDONLY, &descriptor));
    status = ZONAL_NEW(&r, 1, "the record of the images");
    if (status == ZONAL_OK) status = read_open(descriptor, path, r);
    close(descriptor);
    if (status == ZONAL_OK)
        *out = r;
    else
        zonal__data_record_destroy(r);
    return status;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* One way to differ: how often, and the first names. */
typedef struct kind {
    const char *word;
    int64_t count;
    char names[ZONAL__DATA_SHOWN * (SHOWN_NAME + 4) + 8];
} kind;

static void count_one(kind *k, const char *name) {
    size_t length = strlen(name);
    /* The end of a long path tells more than its beginning. */
    const char *shown = length > SHOWN_NAME ? name + length - SHOWN_NAME : name;
    if (k->count++ < ZONAL__DATA_SHOWN)
        zonal__text_append(k->names, sizeof k->names, "%s%s%s", k->count > 1 ? ", " : "",
                           shown > name ? "..." : "", shown);
    else if (k->count == ZONAL__DATA_SHOWN + 1)
        zonal__text_append(k->names, sizeof k->names, ", ...");
}

/* Whether the other record has this image's part at all. */
static int is_shared(const zonal__data_record *r, const image *what,
                     const zonal__data_record *other) {
    return find_part(other, r->parts[what->part].name) >= 0;
}

enum { ADDED, REMOVED, REPLACED, MOVED, KINDS };

/* Both lists are in the order of names: a walk along the two. */
static void count_changes(const zonal__data_record *before, const zonal__data_record *now,
                          kind kinds[KINDS]) {
    int64_t i = 0, k = 0;
    while (i < before->count || k < now->count) {
        const image *old = i < before->count ? &before->images[i] : NULL;
        const image *new = k < now->count ? &now->images[k] : NULL;
        int order = !old ? 1 : !new ? -1 : strcmp(old->name, new->name);
        if (order < 0) {
            if (is_shared(before, old, now)) count_one(&kinds[REMOVED], old->name);
        } else if (order > 0) {
            if (is_shared(now, new, before)) count_one(&kinds[ADDED], new->name);
        } else {
            if (old->fingerprint != new->fingerprint) count_one(&kinds[REPLACED], new->name);
            if (strcmp(before->parts[old->part].name, now->parts[new->part].name) != 0 &&
                is_shared(before, old, now) && is_shared(now, new, before))
                count_one(&kinds[MOVED], new->name);
        }
        i += order <= 0;
        k += order >= 0;
    }
}

/* For sets, or changes, of which no image is listed. */
static void describe_parts(const zonal__data_record *before, const zonal__data_record *now,
                           zonal__data_changes *changes) {
    for (int i = 0; i < before->part_count; i++) {
        const part *old = &before->parts[i];
        int k = find_part(now, old->name);
        const part *new = k >= 0 ? &now->parts[k] : NULL;
        const char *between = changes->text[0] ? ", " : "";
        if (!new ||
            (old->count == new->count && old->names == new->names && old->images == new->images))
            continue;
        if (old->count != new->count)
            zonal__text_append(changes->text, sizeof changes->text,
                               "%s%s had %" PRId64 " image%s and has %" PRId64, between, old->name,
                               old->count, zonal__text_plural(old->count), new->count);
        else
            zonal__text_append(changes->text, sizeof changes->text, "%s%s has other images",
                               between, old->name);
    }
}

void zonal__data_record_compare(const zonal__data_record *before, const zonal__data_record *now,
                                zonal__data_changes *changes) {
    kind kinds[KINDS] = {{.word = "added"},
                         {.word = "removed"},
                         {.word = "replaced"},
                         {.word = "moved to another part"}};
    *changes = (zonal__data_changes){.recorded = 1};
    describe_parts(before, now, changes);
    changes->changed = changes->text[0] != '\0';
    if (!changes->changed) return;
    count_changes(before, now, kinds);
    if (kinds[ADDED].count + kinds[REMOVED].count + kinds[REPLACED].count + kinds[MOVED].count == 0)
        return; /* the parts' numbers are all that is known */
    changes->text[0] = '\0';
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].count > 0)
            zonal__text_append(changes->text, sizeof changes->text, "%s%" PRId64 " %s (%s)",
                               changes->text[0] ? ", " : "", kinds[i].count, kinds[i].word,
                               kinds[i].names);
    if (before->one_in > 1)
        zonal__text_append(changes->text, sizeof changes->text, ", counting one image in %" PRId64,
                           before->one_in);
}
