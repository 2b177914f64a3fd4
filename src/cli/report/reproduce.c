/*
 * zonal reproduce: the paper's figures, each by one command with the paper's settings.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/cli.h"
#include "cli/report/figure_textures.h"

static const char *const figures[] = {"figure-kernels", "figure-textures", "figure-variance", NULL};
enum { KERNELS, TEXTURES, VARIANCE };

typedef struct settings {
    const char *out;
    int64_t seed;
    int quiet;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "out",
     .type = ZONAL__OPTION_STRING,
     AT(out),
     .initial = ".",
     .metavar = "DIR",
     .help = "the folder to write to; it is made if it is missing"},
    ZONAL__SEED_OPTION(settings, "seed of textures, views, batches and directions"),
    {.name = "quiet", .type = ZONAL__OPTION_FLAG, AT(quiet), .help = "print nothing"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal reproduce FIGURE [--out DIR]",
    .description = "Reproduces a figure of the paper.\n\n"
                   "  figure-kernels    kernels.svg: the profiles of five kernels (Figure 3)\n"
                   "  figure-textures   textures.png: three samples of each of the four families;\n"
                   "                    views.png: source regions of random views, and the views\n"
                   "  figure-variance   variance.svg: the noise of the sliced loss (Figure 1)\n",
    .argument = "FIGURE",
    .least = 1,
    .most = 1};

/* Runs another command of this program: the figure is what that one draws. */
static int forward(int (*command)(int, char **), const char *name, const char *option,
                   const settings *s, const char *file) {
    char path[4096], seed[32];
    char *line[] = {(char *)name, (char *)option, path, "--seed", seed, "--quiet", NULL};
    int kernels = command == zonal__cli_kernel; /* which takes neither of the last two */
    int status;
    if (snprintf(path, sizeof path, "%s/%s", s->out, file) >= (int)sizeof path)
        return zonal__cli_misused("--out is too long a name");
    snprintf(seed, sizeof seed, "%lld", (long long)s->seed);
    status = command(kernels ? 3 : s->quiet ? 6 : 5, line);
    if (status == ZONAL__EXIT_OK && !s->quiet)
        printf("%s/%s\n", zonal__cli_plain(s->out).text, file);
    return status;
}

int zonal__cli_reproduce(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options), figure = -1;
    if (status != ZONAL__EXIT_CONTINUE) return status;
    for (int i = 0; figures[i]; i++)
        if (strcmp(figures[i], options.arguments[0]) == 0) figure = i;
    if (figure < 0) {
        const char *near = zonal__text_nearest(options.arguments[0], figures);
        return zonal__cli_misused("there is no %s to reproduce; %s%s%s", options.arguments[0],
                                  near ? "did you mean "
                                       : "zonal reproduce --help lists what there "
                                         "is",
                                  near ? near : "", near ? "?" : "");
    }
    if (zonal__cli_make_folder(s.out) != ZONAL_OK) return zonal__cli_failed();
    if (figure == KERNELS)
        return forward(zonal__cli_kernel, "kernel", "--figure", &s, "kernels.svg");
    if (figure == VARIANCE)
        return forward(zonal__cli_variance, "variance", "--plot", &s, "variance.svg");
    if (zonal__figure_textures(s.out, (uint64_t)s.seed) != ZONAL_OK) return zonal__cli_failed();
    if (!s.quiet)
        printf("%s/textures.png, %s/views.png\n", zonal__cli_plain(s.out).text,
               zonal__cli_plain(s.out).text);
    return ZONAL__EXIT_OK;
}
