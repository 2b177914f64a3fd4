/*
 * zonal data textures: procedural textures as PNG files, or many of them on one sheet.
 */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/common/cli.h"
#include "cli/common/progress.h"
#include "cli/data/data.h"
#include "core/memory.h"
#include "data/codec.h"
#include "data/pool.h"
#include "data/sheet.h"
#include "data/source_options.h"
#include "data/texture.h"

static const char *const splits[] = {"train", "val", "test", NULL};

enum { MOST_ON_SHEET = 4096 };

typedef struct settings {
    const char *family, *out, *sheet;
    int split, quiet;
    int64_t count, seed, size, threads, columns;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "family",
     .type = ZONAL__OPTION_STRING,
     AT(family),
     .metavar = "NAME[,SETTING=VALUE...]",
     .rules = ZONAL__OPTION_REQUIRED,
     .help = "disk, cloud, flake or wood, with any of its settings"},
    {.name = "count",
     .type = ZONAL__OPTION_INT,
     AT(count),
     .initial = "16",
     .least = 1,
     .most = 1e7,
     .help = "how many"},
    {.name = "out",
     .type = ZONAL__OPTION_STRING,
     AT(out),
     .metavar = "DIR",
     .help = "write each as DIR/FAMILY-SPLIT-NUMBER.png; DIR is made if it is missing"},
    {.name = "sheet",
     .type = ZONAL__OPTION_STRING,
     AT(sheet),
     .metavar = "FILE.png",
     .help = "write all of them side by side"},
    {.name = "columns",
     .type = ZONAL__OPTION_INT,
     AT(columns),
     .initial = "0",
     .least = 0,
     .most = MOST_ON_SHEET,
     .help = "columns of the sheet; 0: about as many as rows"},
    {.name = "size",
     .type = ZONAL__OPTION_INT,
     AT(size),
     .least = 8,
     .most = 4096,
     .metavar = "PIXELS",
     .help = "width and height; 256 unless given"},
    {.name = "split",
     .type = ZONAL__OPTION_WORD,
     AT(split),
     .words = splits,
     .initial = "train",
     .help = "the split; no texture is in two of them"},
    ZONAL__SEED_OPTION(settings, "a different seed gives different textures"),
    ZONAL__THREADS_OPTION(settings, "threads to use; 0: one for each processor"),
    {.name = "quiet", .type = ZONAL__OPTION_FLAG, AT(quiet), .help = "print nothing"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal data textures --family NAME [--out DIR] [--sheet FILE.png]",
    .description = "Makes procedural textures: black and white dots (disk), stars (flake), soft\n"
                   "clouds, wavy lines (wood). Each is a function of family, seed, split and\n"
                   "number alone, so the same command always writes the same images.\n\n"
                   "settings (lengths in pixels), with their defaults:\n"
                   "  cloud        exponent=1.5 of the spectrum (1.5: Brownian), blur=2\n"
                   "  disk, flake  alpha=1, the index of the stable noise (1: Cauchy's, 2:\n"
                   "               normal), radius=5 of a dot, 12 of a star\n"
                   "  flake        arms=6, arm_width=5\n"
                   "  wood         spacing=20 of the lines, line=0.25 of it dark, period=90 of\n"
                   "               the noise, stretch=1, waviness=60, octaves=2, roughness=0.35\n"
                   "  all but wood saturation=0.01, the share of pixels black or white\n\n"
                   "examples:\n"
                   "  zonal data textures --family disk --count 16 --sheet disks.png\n"
                   "  zonal data textures --family wood,spacing=30 --count 10000 --out wood\n",
    .argument = NULL,
    .least = 0,
    .most = 0};

typedef struct job {
    const settings *settings;
    const char *family;
    zonal__texture_maker **makers; /* [workers] */
    zonal__image *kept;            /* [count], for the sheet; NULL: none */
    zonal__image sheet;
    zonal__progress progress;
} job;

/* On a worker: the texture, and its file. */
static zonal_status make(void *context, int worker, int64_t i, zonal__image *image) {
    const job *j = context;
    const settings *s = j->settings;
    char path[4096];
    int64_t number = zonal__texture_number((zonal__split)(s->split + ZONAL__SPLIT_TRAIN), i);
    ZONAL_TRY(zonal__texture_make(j->makers[worker], number, image));
    if (!s->out) return ZONAL_OK;
    int length = snprintf(path, sizeof path, "%s/%s-%s-%05" PRId64 ".png", s->out, j->family,
                          splits[s->split], i);
    if (length < 0 || (size_t)length >= sizeof path)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "--out %.64s... is too long a name", s->out);
    return zonal__image_write_png(path, image);
}

static zonal_status use(void *context, int64_t i, zonal_status made, const zonal__image *image) {
    job *j = context;
    ZONAL_TRY(made);
    if (j->kept) ZONAL_TRY(zonal__image_convert(image, 1, &j->kept[i]));
    zonal__progress_update(&j->progress, i + 1);
    return ZONAL_OK;
}

static zonal__sheet_options sheet_options(const settings *s) {
    return (zonal__sheet_options){.columns = (int)s->columns, .margin = 8, .ground = 255};
}

static zonal_status write_sheet(job *j) {
    const settings *s = j->settings;
    const zonal__sheet_options options = sheet_options(s);
    ZONAL_TRY(zonal__sheet_make(j->kept, (int)s->count, &options, &j->sheet));
    return zonal__image_write_png(s->sheet, &j->sheet);
}

/* A sheet that is too large is refused before its textures are made. */
static zonal_status prepare_sheet(const settings *s, int size, job *j) {
    const zonal__sheet_options options = sheet_options(s);
    ZONAL_TRY(zonal__sheet_shape((int)s->count, size, size, 1, &options, &j->sheet));
    return ZONAL_NEW(&j->kept, s->count, "the sheet's images");
}

static zonal_status prepare(const settings *s, int workers, job *j) {
    zonal__texture_spec spec;
    ZONAL_TRY(zonal__image_can_write_png());
    ZONAL_TRY(zonal__texture_parse(s->family, &spec));
    if (s->size) spec.size = (int)s->size;
    spec.seed = (uint64_t)s->seed;
    j->family = zonal__texture_name(spec.family);
    ZONAL_TRY(ZONAL_NEW(&j->makers, workers, "the makers"));
    for (int w = 0; w < workers; w++) ZONAL_TRY(zonal__texture_maker_create(&spec, &j->makers[w]));
    if (s->sheet) ZONAL_TRY(prepare_sheet(s, spec.size, j));
    return s->out ? zonal__cli_make_folder(s->out) : ZONAL_OK;
}

static zonal_status run(const settings *s) {
    int workers = zonal__pool_workers((int)s->threads);
    job j = {.settings = s};
    const zonal__pool_task task = {.context = &j, .make = make, .use = use};
    zonal_status status = prepare(s, workers, &j);
    if (status == ZONAL_OK) {
        zonal__progress_begin(&j.progress, "making textures", s->count, s->quiet);
        status = zonal__pool_run(&task, s->count, workers);
        zonal__progress_end(&j.progress);
    }
    if (status == ZONAL_OK && s->sheet) status = write_sheet(&j);
    for (int w = 0; j.makers && w < workers; w++) zonal__texture_maker_destroy(j.makers[w]);
    for (int64_t i = 0; j.kept && i < s->count; i++) zonal__image_fini(&j.kept[i]);
    zonal__image_fini(&j.sheet);
    zonal__free(j.makers);
    zonal__free(j.kept);
    return status;
}

int zonal__cli_data_textures(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (!s.out && !s.sheet)
        return zonal__cli_misused("say where the textures go: --out DIR, --sheet FILE.png or both");
    status = zonal__cli_check_ending("--sheet", s.sheet, ".png");
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (s.sheet && s.count > MOST_ON_SHEET)
        return zonal__cli_misused("a sheet holds at most %d textures, got --count %" PRId64,
                                  (int)MOST_ON_SHEET, s.count);
    if (run(&s) != ZONAL_OK) return zonal__cli_failed();
    if (!s.quiet)
        printf("%" PRId64 " texture%s of %s%s%s%s%s\n", s.count, zonal__text_plural(s.count),
               s.family, s.out ? " in " : "", zonal__cli_plain(s.out ? s.out : "").text,
               s.sheet ? ", sheet " : "", zonal__cli_plain(s.sheet ? s.sheet : "").text);
    return ZONAL__EXIT_OK;
}
