/*
 * zonal report: runs side by side on one page that needs nothing but itself.
 */
#include <stdio.h>

#include "cli/common/cli.h"
#include "cli/common/inputs.h"
#include "cli/report/examples.h"
#include "cli/report/kernels.h"
#include "core/memory.h"

typedef struct settings {
    const char *out;
    int64_t images;
    int examples, quiet;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "out",
     .type = ZONAL__OPTION_STRING,
     AT(out),
     .initial = "report.html",
     .metavar = "FILE",
     .help = "the page to write"},
    {.name = "examples",
     .type = ZONAL__OPTION_FLAG,
     AT(examples),
     .initial = "yes",
     .help = "show sample views and the embeddings of test images"},
    {.name = "images",
     .type = ZONAL__OPTION_INT,
     AT(images),
     .initial = "500",
     .least = 20,
     .most = 1000,
     .help = "test images to embed, for maps, spectra and classes"},
    {.name = "quiet", .type = ZONAL__OPTION_FLAG, AT(quiet), .help = "print nothing"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal report RUN... [--out FILE]",
    .description =
        "Compares runs of zonal train on one HTML page: tables with the best in bold, the\n"
        "curves of the training, maps and singular values of the embeddings of test\n"
        "images, a confusion matrix of their nearest neighbours, retrieval examples,\n"
        "sample views, the energy by degree, the kernels, and the settings in which the\n"
        "runs differ. The page is a single file and loads nothing from elsewhere.\n"
        "\n"
        "examples:\n"
        "  zonal report runs/textures-1 runs/textures-2 --out textures.html\n"
        "  zonal report runs/* --no-examples\n",
    .argument = "RUN",
    .least = 1,
    .most = ZONAL__REPORT_RUNS};

static void say_notes(const zonal__report *report) {
    for (int i = 0; i < report->count; i++)
        for (int n = 0; n < report->runs[i].notes_count; n++)
            zonal__cli_say("%s: %s", report->runs[i].folder, report->runs[i].notes[n]);
}

static zonal_status run(const settings *s, int count, char *const *folders) {
    zonal__report *report; /* too large for the stack */
    zonal_status status;
    for (int i = 0; i < count; i++) ZONAL_TRY(zonal__cli_keep_input("--out", s->out, folders[i]));
    ZONAL_TRY(ZONAL_NEW(&report, 1, "the report"));
    status = zonal__report_read(report, count, folders);
    if (status == ZONAL_OK) say_notes(report);
    if (status == ZONAL_OK) status = zonal__report_make_kernels(report);
    if (status == ZONAL_OK && s->examples)
        status = zonal__report_make_examples(report, s->images, s->quiet);
    if (!s->examples) zonal__report_omit_examples(report, "--no-examples was given");
    if (status == ZONAL_OK) status = zonal__report_write(report, s->out);
    zonal__report_fini(report);
    zonal__free(report);
    return status;
}

int zonal__cli_report(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (run(&s, options.argument_count, options.arguments) != ZONAL_OK) return zonal__cli_failed();
    if (!s.quiet) printf("%s\n", zonal__cli_plain(s.out).text);
    return ZONAL__EXIT_OK;
}
