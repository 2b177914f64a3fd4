#include "uniformity/options.h"

#include <math.h>

#include "loss/options.h"

#define AT(field) .target = offsetof(zonal__uniformity_settings, field)

int zonal__uniformity_option(int i, zonal__option *entry) {
    static const zonal__option list[] = {
        {.name = "mc",
         .type = ZONAL__OPTION_INT,
         AT(options.monte_carlo),
         .initial = "0",
         .least = 0,
         .most = 100000000,
         .metavar = "N",
         .help = "also compute Monte Carlo p-values, from N simulated uniform batches"},
        {.name = "seed",
         .type = ZONAL__OPTION_INT,
         AT(options.seed),
         .initial = "0",
         .least = 0,
         .most = INFINITY,
         .help = "seed of the simulated batches"},
        {.name = "t",
         .type = ZONAL__OPTION_SCALE,
         AT(t),
         .least = 0,
         .most = INFINITY,
         .rules = ZONAL__OPTION_OVER,
         .help = "also test with the heat kernel at this time, such as 5/d"},
        {.name = "pair-limit",
         .type = ZONAL__OPTION_INT,
         AT(options.pair_limit),
         .initial = "20000",
         .least = 2,
         .most = INFINITY,
         .metavar = "ROWS",
         .help = "use tests of all pairs up to this many rows; beyond, only tests that are linear "
                 "in the number of rows"},
        {.name = "level",
         .type = ZONAL__OPTION_DOUBLE,
         AT(options.level),
         .initial = "0.01",
         .least = 0,
         .most = 1,
         .rules = ZONAL__OPTION_OVER | ZONAL__OPTION_UNDER,
         .help = "level of the verdict, shared among the tests"},
        {.name = "threads",
         .type = ZONAL__OPTION_INT,
         AT(options.threads),
         .initial = "0",
         .least = 0,
         .most = 4096,
         .help = "threads to use; 0: one for each processor"},
        {.name = "unit",
         .type = ZONAL__OPTION_FLAG,
         AT(options.unit_rows),
         .help = "the rows are unit vectors: do not normalise them"},
        {.name = "precision",
         .type = ZONAL__OPTION_WORD,
         AT(options.precision),
         .words = zonal__precision_words,
         .initial = "fp32",
         .help = "of the rows: double or fp32"}};
    if (i < 0 || i >= (int)(sizeof list / sizeof list[0])) return 0;
    *entry = list[i];
    return 1;
}

zonal_uniformity_options zonal__uniformity_settle(const zonal__uniformity_settings *settings,
                                                  int64_t d) {
    zonal_uniformity_options options = settings->options;
    options.size = sizeof options;
    options.t = settings->t.factor > 0 ? zonal__scale_value(settings->t, d) : 0;
    return options;
}
