/*
 * zonal bench augment: how fast views are made of images that lie in memory.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/peer.h"
#include "cli/bench/views.h"
#include "cli/common/cli.h"
#include "data/pool.h"
#include "loss/options.h"

static const char *const kinds[] = {"both", "photograph", "texture", NULL};
enum { BOTH, PHOTOGRAPH, TEXTURE };
static const char *const dtypes[] = {"fp32", "bf16", NULL};

typedef struct settings {
    const char *device_name;
    const zonal__device *device;
    int kind, dtype, torch, json;
    int64_t views, side, threads;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "kind",
     .type = ZONAL__OPTION_WORD,
     AT(kind),
     .words = kinds,
     .initial = "both",
     .help = "which augmentation: BYOL's two pipelines for photographs, or that of textures"},
    {.name = "views",
     .type = ZONAL__OPTION_INT,
     AT(views),
     .initial = "512",
     .least = 1,
     .most = 1 << 20,
     .help = "views at a time"},
    {.name = "side",
     .type = ZONAL__OPTION_INT,
     AT(side),
     .initial = "224",
     .least = 1,
     .most = 2048,
     .metavar = "PIXELS",
     .help = "width and height of a view"},
    ZONAL__DEVICE_OPTION(settings, device_name, "cpu",
                         "where to run; on cuda the time of a CUDA graph's replay"),
    {.name = "dtype",
     .type = ZONAL__OPTION_WORD,
     AT(dtype),
     .words = dtypes,
     .initial = "bf16",
     .help = "elements of the views"},
    ZONAL__THREADS_OPTION(settings, "threads to use; 0: one for each processor"),
    {.name = "torch",
     .type = ZONAL__OPTION_FLAG,
     AT(torch),
     .help = "run the photographs' pipeline in torchvision too (bench/augment_torch.py)"},
    {.name = "json", .type = ZONAL__OPTION_FLAG, AT(json), .help = "print a JSON line for each"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal bench augment [--kind WORD] [--device NAME] [options]",
    .description = "Times augmentation, from images in memory (photographs of 500 x 375, textures "
                   "of\n256 x 256 pixels) to normalised arrays: the median over warm runs.\n",
    .argument = NULL,
    .least = 0,
    .most = 0};

static void print_row(const settings *s, int texture, double ms) {
    const char *kind = kinds[texture ? TEXTURE : PHOTOGRAPH];
    double rate = (double)s->views / ms * 1e3;
    if (s->json)
        printf("{\"kind\": \"%s\", \"views\": %lld, \"side\": %lld, \"device\": \"%s\", \"dtype\": "
               "\"%s\", \"ms\": %.6g, \"views_per_s\": %.6g}\n",
               kind, (long long)s->views, (long long)s->side, s->device->name, dtypes[s->dtype], ms,
               rate);
    else
        printf("%-12s %8lld %6lld %12.3f %12.0f\n", kind, (long long)s->views, (long long)s->side,
               ms, rate);
    fflush(stdout);
}

typedef struct comparison {
    const settings *settings;
    double rate; /* ours, of photographs */
} comparison;

static void print_ratio(void *context, const char *line) {
    const comparison *c = context;
    double rate = zonal__peer_number(line, "views_per_s");
    if (isnan(rate)) return;
    if (c->settings->json)
        printf("{\"views_per_s\": %.6g, \"torchvision\": %.*s}\n", c->rate,
               (int)strcspn(line, "\n"), line);
    else
        printf("\ntorchvision  %8s %6s %12s %12.0f   zonal makes %.1f times as many\n", "", "", "",
               rate, c->rate / rate);
}

static zonal_status compare_with_torchvision(const settings *s, double rate) {
    char side[16], views[16], workers[16];
    const char *arguments[] = {"--side", side, "--views", views, "--workers", workers, NULL};
    comparison c = {s, rate};
    snprintf(side, sizeof side, "%lld", (long long)s->side);
    snprintf(views, sizeof views, "%lld", (long long)s->views);
    snprintf(workers, sizeof workers, "%d", zonal__pool_workers((int)s->threads));
    return zonal__peer_run("augment_torch.py", arguments, 0, print_ratio, &c);
}

static zonal_status run(const settings *s) {
    double rate = NAN;
    if (!s->json)
        printf("%s on %s\n\n%-12s %8s %6s %12s %12s\n", dtypes[s->dtype], s->device->name, "kind",
               "views", "side", "ms", "views/s");
    for (int texture = 0; texture < 2; texture++) {
        const zonal__view_bench_options options = {
            .kind = texture ? ZONAL__VIEW_TEXTURE : ZONAL__VIEW_PHOTOGRAPH,
            .count = s->views,
            .side = (int)s->side,
            .device = s->device,
            .threads = (int)s->threads,
            .dtype = s->dtype ? ZONAL_DTYPE_BF16 : ZONAL_DTYPE_FP32};
        double ms;
        if (s->kind != BOTH && (s->kind == TEXTURE) != texture) continue;
        ZONAL_TRY(zonal__view_bench(&options, &ms));
        print_row(s, texture, ms);
        if (!texture) rate = (double)s->views / ms * 1e3;
    }
    return s->torch && !isnan(rate) ? compare_with_torchvision(s, rate) : ZONAL_OK;
}

int zonal__cli_bench_augment(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (s.torch && s.kind == TEXTURE)
        return zonal__cli_misused("--torch compares photographs; use --kind both or photograph");
    if (zonal__device_open(s.device_name, &s.device) != ZONAL_OK || run(&s) != ZONAL_OK)
        return zonal__cli_failed();
    return ZONAL__EXIT_OK;
}
