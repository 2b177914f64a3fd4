/*
 * zonal reproduce: the paper's tables and figures, each by one command with the paper's settings.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/cli.h"
#include "cli/report/figure_samples.h"
#include "cli/report/figure_textures.h"
#include "cli/report/reproduce_table.h"
#include "core/text.h"

typedef struct settings {
    zonal__table_settings table;
    const char *out;
    int64_t seed;
} settings;

#define AT(field) .target = offsetof(settings, field)
#define TEXT(name_, field, meta, text)                                                             \
    { .name = name_, .type = ZONAL__OPTION_STRING, AT(field), .metavar = meta, .help = text }
#define WHOLE(name_, field, first, low, high, text)                                                \
    {                                                                                              \
        .name = name_, .type = ZONAL__OPTION_INT, AT(field), .initial = first, .least = low,       \
        .most = high, .help = text                                                                 \
    }
#define FLAG(name_, field, text)                                                                   \
    { .name = name_, .type = ZONAL__OPTION_FLAG, AT(field), .help = text }

static const zonal__option table[] = {
    TEXT("out", out, "DIR",
         "the folder to write to; figures: . unless given; tables: the folder to work in, "
         "runs/TABLE"),
    ZONAL__SEED_OPTION(settings,
                       "figures: seed of textures, views, images, batches and directions"),
    TEXT(
        "methods", table.methods, "NAME,...",
        "the losses, each with options of its own if need be: susreg,kl-heat:t=3/d:selectivity=10; "
        "the paper's unless given"),
    TEXT("families", table.families, "NAME,...", "table-textures: of disk, cloud, wood, flake"),
    TEXT("data", table.data, "NAME=PATH,...",
         "other tables and figure-samples: the data sets and where they are, with options of their "
         "own if need be: imagenet100=DIR:class-list=FILE"),
    TEXT("seeds", table.seeds, "N,...",
         "of the runs; 0 unless given, table-temperature: 0,1,2; with --print: all unless given"),
    WHOLE("side", table.side, "0", 0, 1024,
          "width and height of the views; 0: 128 for textures, else the recipe's"),
    WHOLE("steps", table.steps, "0", 0, 1e9,
          "length of a run; 0: 6400 for textures, else the recipe's epochs"),
    WHOLE("epochs", table.epochs, "0", 0, 1e6, "the same in epochs"),
    TEXT("options", table.options, "KEY=VALUE,...", "more options of zonal train, for all cells"),
    TEXT("records", table.records, "FILE",
         "where each finished cell appends a line; OUT/records.jsonl unless given"),
    TEXT("merge", table.merge, "FILE,...", "first add the records of other files"),
    WHOLE("parallel", table.parallel, "1", 1, 64, "cells at a time"),
    {.name = "minutes",
     .type = ZONAL__OPTION_DOUBLE,
     AT(table.minutes),
     .initial = "0",
     .least = 0,
     .most = 1e6,
     .help = "start no cell that would take longer, and stop after so many; 0: no limit"},
    TEXT("device", table.device, "NAME", "as in zonal train"),
    WHOLE("threads", table.threads, "0", 0, 4096,
          "threads of each cell; 0: one for each processor"),
    FLAG("keep-checkpoints", table.keep_checkpoints, "keep the weights of finished cells"),
    FLAG("dry-run", table.dry_run, "list the cells and their predicted time, and run nothing"),
    FLAG("print", table.print, "print the tables that the records give, and run nothing"),
    FLAG("markdown", table.markdown, "print the tables as Markdown"),
    FLAG("quiet", table.quiet, "no progress, no hints"),
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal reproduce TABLE|FIGURE [--out DIR] [options]",
    .description =
        "Reproduces a table or figure of the paper.\n\n"
        "  table-textures     Tables 2, 4 to 7: retrieval of textures, seven losses\n"
        "  table-pretrain     Table 1: linear probe and k-NN after pretraining\n"
        "  table-temperature  Table 3: the heat kernel at 4/d, 5/d and 6/d\n"
        "  figure-dynamics    dynamics-DATA.svg: an online probe's accuracy by epoch, the\n"
        "                     sliced loss and its exact limit (Figure 2); runs as a table\n"
        "  figure-kernels     kernels.svg: the profiles of five kernels (Figure 3)\n"
        "  figure-samples     samples.png: training images of the data sets of --data, a\n"
        "                     row of each (Figure 4)\n"
        "  figure-textures    textures.png: three samples of each of the four families;\n"
        "                     views.png: source regions of random views, and the views\n"
        "                     (Figures 5 and 6)\n"
        "  figure-variance    variance.svg: the noise of the sliced loss (Figure 1);\n"
        "                     variance-batch.svg: the same against the batch\n\n"
        "A table is a matrix of runs: methods x data sets x seeds. Each cell is a\n"
        "training and its evaluation, and leaves one line in the records. A command that\n"
        "was interrupted in any way continues when it is given again: cells with a record\n"
        "are not run again, and a run that was under way resumes from its checkpoint. The\n"
        "paper's values are printed beside ours. Means are over records that differ only\n"
        "in the seed.\n\n"
        "examples:\n"
        "  zonal reproduce table-textures --parallel 2 --minutes 9\n"
        "  zonal reproduce table-pretrain --data imagenette=DIR,efigi=DIR\n"
        "  zonal reproduce table-textures --records results/table-textures.jsonl --print\n",
    .argument = "TABLE or FIGURE",
    .least = 1,
    .most = 1};

/* ---- figures --------------------------------------------------------------------------------- */

typedef struct drawing {
    int (*command)(int, char **); /* which draws it */
    const char *file;
    const char *line[8]; /* its name and options; the last takes the file */
    int takes_seed;      /* and --quiet */
} drawing;

/* The figure is what another command of this program draws. */
static int draw(const settings *s, const drawing *d) {
    char path[4096], seed[32], words[12][64], *line[12] = {0};
    int count = 0, status;
    for (; d->line[count]; count++) {
        snprintf(words[count], sizeof words[count], "%s", d->line[count]);
        line[count] = words[count];
    }
    if (snprintf(path, sizeof path, "%s/%s", s->out, d->file) >= (int)sizeof path)
        return zonal__cli_misused("--out is too long a name; choose a shorter one");
    snprintf(seed, sizeof seed, "--seed=%lld", (long long)s->seed);
    line[count++] = path;
    if (d->takes_seed) line[count++] = seed;
    if (d->takes_seed && s->table.quiet) line[count++] = "--quiet";
    status = d->command(count, line);
    if (status == ZONAL__EXIT_OK && !s->table.quiet)
        printf("%s/%s\n", zonal__cli_plain(s->out).text, d->file);
    return status;
}

static int figure_kernels(const settings *s) {
    return draw(s, &(drawing){.command = zonal__cli_kernel,
                              .file = "kernels.svg",
                              .line = {"kernel", "--figure"}});
}

/* Against the directions as in the paper, and against the batch. */
static int figure_variance(const settings *s) {
    int status = draw(s, &(drawing){.command = zonal__cli_variance,
                                    .file = "variance.svg",
                                    .line = {"variance", "--plot"},
                                    .takes_seed = 1});
    if (status != ZONAL__EXIT_OK) return status;
    return draw(s, &(drawing){.command = zonal__cli_variance,
                              .file = "variance-batch.svg",
                              .line = {"variance", "--batch=64,128,256,512", "--slices=64,256,1024",
                                       "--plot-batch"},
                              .takes_seed = 1});
}

static int figure_textures(const settings *s) {
    if (zonal__figure_textures(s->out, (uint64_t)s->seed) != ZONAL_OK) return zonal__cli_failed();
    if (!s->table.quiet)
        printf("%s/textures.png, %s/views.png\n", zonal__cli_plain(s->out).text,
               zonal__cli_plain(s->out).text);
    return ZONAL__EXIT_OK;
}

static int figure_samples(const settings *s) {
    if (zonal__figure_samples(s->out, s->table.data, (uint64_t)s->seed) != ZONAL_OK)
        return zonal__cli_failed();
    if (!s->table.quiet) printf("%s/samples.png\n", zonal__cli_plain(s->out).text);
    return ZONAL__EXIT_OK;
}

static const struct {
    const char *name;
    int (*draw)(const settings *s);
    int takes_data;
} figures[] = {{"figure-kernels", figure_kernels, 0},
               {"figure-samples", figure_samples, 1},
               {"figure-textures", figure_textures, 0},
               {"figure-variance", figure_variance, 0}};
enum { FIGURES = sizeof figures / sizeof figures[0] };

/* ---- the command ----------------------------------------------------------------------------- */

static int fail_unknown(const char *name) {
    const char *names[FIGURES + 8] = {0}, *near;
    char all[400] = "";
    int count = 0;
    for (int i = 0; i < FIGURES; i++) names[count++] = figures[i].name;
    for (int i = 0; zonal__experiment_at(i); i++) names[count++] = zonal__experiment_at(i)->name;
    near = zonal__text_nearest(name, names);
    if (near)
        return zonal__cli_misused("there is no %s to reproduce; did you mean %s?", name, near);
    for (int i = 0; names[i]; i++)
        zonal__text_append(all, sizeof all, "%s%s", i ? ", " : "", names[i]);
    return zonal__cli_misused("there is no %s to reproduce; there are %s", name, all);
}

static int was_given(const zonal__options *options, const char *name) {
    return zonal__options_source(options, name) == ZONAL__SOURCE_FLAG;
}

/* Every option after "seed" and before "quiet" is of tables. */
static int draw_figure(const settings *s, const zonal__options *options, int i) {
    for (int k = 2; table[k + 1].name; k++)
        if (was_given(options, table[k].name) &&
            !(figures[i].takes_data && strcmp(table[k].name, "data") == 0))
            return zonal__cli_misused("--%s has no use in %s; leave it out", table[k].name,
                                      figures[i].name);
    if (figures[i].takes_data && !s->table.data)
        return zonal__cli_misused(
            "where are the images? Give %s --data imagenet100=DIR,galaxy10=FILE", figures[i].name);
    if (zonal__cli_make_folder(s->out) != ZONAL_OK) return zonal__cli_failed();
    return figures[i].draw(s);
}

static int make_table(settings *s, const zonal__options *options, const char *name) {
    const zonal__experiment *experiment = zonal__experiment_find(name);
    char out[64];
    if (!experiment) return fail_unknown(name);
    if (was_given(options, "seed"))
        return zonal__cli_misused("--seed is for figures; give --seeds for %s", name);
    if (experiment->textures && s->table.data)
        return zonal__cli_misused("%s makes its textures; give --families, not --data", name);
    if (!experiment->textures && s->table.families)
        return zonal__cli_misused("--families is for table-textures; give --data NAME=PATH");
    snprintf(out, sizeof out, "runs/%s", name);
    s->table.out = s->out ? s->out : experiment->curves && s->table.print ? "." : out;
    s->table.above = s->out ? NULL : "runs";
    return zonal__reproduce_table(experiment, &s->table);
}

int zonal__cli_reproduce(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    for (int i = 0; i < FIGURES; i++)
        if (strcmp(figures[i].name, options.arguments[0]) == 0) {
            if (!s.out) s.out = ".";
            return draw_figure(&s, &options, i);
        }
    return make_table(&s, &options, options.arguments[0]);
}
