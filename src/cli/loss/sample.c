/*
 * zonal sample: embeddings whose distribution is known, to try the losses and tests on.
 */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/cli.h"
#include "cli/common/progress.h"
#include "core/memory.h"
#include "core/npy.h"
#include "core/random.h"
#include "core/text.h"

static const char *const shapes[] = {"uniform", "cone", "subspace", NULL};
enum { UNIFORM, CONE, SUBSPACE };

static const char *const dtypes[] = {"f4", "f8", NULL};

/* What the draws of one seed are for: the "step" of the generator. */
enum { FOR_ROWS, FOR_BASIS, FOR_NOISE, FOR_ANGLES };

typedef struct settings {
    int64_t n, dim, rank, seed;
    double angle, noise;
    const char *out;
    int dtype, quiet;
} settings;

#define AT(field) .target = offsetof(settings, field)
static const zonal__option table[] = {
    {.name = "n",
     .type = ZONAL__OPTION_INT,
     AT(n),
     .initial = "2000",
     .least = 1,
     .most = 1e9,
     .help = "rows"},
    {.name = "dim",
     .type = ZONAL__OPTION_INT,
     AT(dim),
     .initial = "256",
     .least = 2,
     .most = 65536,
     .metavar = "D",
     .help = "columns"},
    {.name = "rank",
     .type = ZONAL__OPTION_INT,
     AT(rank),
     .initial = "7",
     .least = 1,
     .most = 65536,
     .metavar = "K",
     .help = "subspace: its dimension"},
    {.name = "noise",
     .type = ZONAL__OPTION_DOUBLE,
     AT(noise),
     .initial = "0",
     .least = 0,
     .most = 10,
     .help = "subspace: length of the Gaussian noise added to each row before it is normalised"},
    {.name = "angle",
     .type = ZONAL__OPTION_DOUBLE,
     AT(angle),
     .initial = "30",
     .least = 0,
     .most = 180,
     .metavar = "DEGREES",
     .rules = ZONAL__OPTION_OVER,
     .help = "cone: largest angle to its axis"},
    ZONAL__SEED_OPTION(settings, "the same seed gives the same rows"),
    {.name = "dtype",
     .type = ZONAL__OPTION_WORD,
     AT(dtype),
     .initial = "f4",
     .words = dtypes,
     .help = "float32 or float64"},
    {.name = "out",
     .type = ZONAL__OPTION_STRING,
     AT(out),
     .metavar = "FILE",
     .rules = ZONAL__OPTION_REQUIRED,
     .help = "the .npy file to write"},
    {.name = "quiet", .type = ZONAL__OPTION_FLAG, AT(quiet), .help = "print nothing"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal sample uniform|cone|subspace --out FILE [options]",
    .description = "Writes a matrix of unit rows with a known distribution.\n\n"
                   "  uniform   uniform on the whole sphere: what the tests should accept\n"
                   "  cone      directions around one axis, the angle to it uniform between 0\n"
                   "            and --angle: embeddings that share a large mean\n"
                   "  subspace  uniform on the sphere of a random subspace of dimension --rank:\n"
                   "            embeddings that collapsed to a few dimensions\n",
    .argument = "uniform, cone or subspace",
    .least = 1,
    .most = 1};

typedef struct source {
    const settings *settings;
    int shape;
    double *basis;  /* [K, D]: the subspace, or the axis of the cone */
    double *row;    /* [D] */
    double *inside; /* [D]: coordinates in the subspace, or noise */
} source;

static zonal__random draws_for(const settings *s, uint32_t step) {
    return (zonal__random){.seed = (uint64_t)s->seed, .stream = ZONAL__STREAM_SAMPLE, .step = step};
}

static double dot(int64_t d, const double *a, const double *b) {
    double sum = 0;
    for (int64_t k = 0; k < d; k++) sum += a[k] * b[k];
    return sum;
}

static void add(int64_t d, double factor, const double *a, double *to) {
    for (int64_t k = 0; k < d; k++) to[k] += factor * a[k];
}

static void normalise(int64_t d, double *row) {
    double norm = sqrt(dot(d, row, row));
    for (int64_t k = 0; k < d; k++) row[k] /= norm;
}

/* Orthonormal directions by Gram-Schmidt, each made orthogonal twice: once is not enough when the
 * rank comes near the dimension. */
static void make_basis(const source *from, int64_t rank) {
    int64_t d = from->settings->dim;
    zonal__random random = draws_for(from->settings, FOR_BASIS);
    for (int64_t i = 0; i < rank; i++) {
        double *direction = from->basis + i * d;
        zonal__random_direction(&random, (uint64_t)i, d, direction);
        for (int64_t j = 0; j < 2 * i; j++) {
            const double *earlier = from->basis + j % i * d;
            add(d, -dot(d, earlier, direction), earlier, direction);
        }
        normalise(d, direction);
    }
}

/* cos(a) axis + sin(a) u, with u uniform on the unit sphere orthogonal to the axis. */
static void draw_cone(const source *from, uint64_t index) {
    int64_t d = from->settings->dim;
    double *row = from->row, angle, share[2];
    zonal__random rows = draws_for(from->settings, FOR_ROWS);
    zonal__random angles = draws_for(from->settings, FOR_ANGLES);
    zonal__random_direction(&rows, index, d, row);
    add(d, -dot(d, from->basis, row), from->basis, row);
    normalise(d, row);
    zonal__random_uniform(&angles, index, 0, share);
    angle = share[0] * from->settings->angle * (M_PI / 180);
    for (int64_t k = 0; k < d; k++) row[k] *= sin(angle);
    add(d, cos(angle), from->basis, row);
}

static void draw_subspace(const source *from, uint64_t index) {
    const settings *s = from->settings;
    zonal__random rows = draws_for(s, FOR_ROWS), noise = draws_for(s, FOR_NOISE);
    zonal__random_direction(&rows, index, s->rank, from->inside);
    memset(from->row, 0, (size_t)s->dim * sizeof(double));
    for (int64_t i = 0; i < s->rank; i++)
        add(s->dim, from->inside[i], from->basis + i * s->dim, from->row);
    if (s->noise > 0) {
        zonal__random_normal(&noise, index, s->dim, from->inside);
        add(s->dim, s->noise / sqrt((double)s->dim), from->inside, from->row);
    }
    normalise(s->dim, from->row);
}

static void draw_row(const source *from, uint64_t index) {
    zonal__random random = draws_for(from->settings, FOR_ROWS);
    if (from->shape == CONE)
        draw_cone(from, index);
    else if (from->shape == SUBSPACE)
        draw_subspace(from, index);
    else
        zonal__random_direction(&random, index, from->settings->dim, from->row);
}

static void write_rows(const source *from, float *narrow, zonal__file *file) {
    const settings *s = from->settings;
    zonal__progress progress;
    zonal__progress_begin(&progress, "sampling", s->n, s->quiet);
    for (int64_t i = 0; i < s->n; i++) {
        draw_row(from, (uint64_t)i);
        for (int64_t k = 0; k < s->dim; k++) narrow[k] = (float)from->row[k];
        if (zonal__file_write(file, s->dtype ? (void *)from->row : (void *)narrow,
                              (size_t)s->dim * (s->dtype ? sizeof(double) : sizeof(float))) !=
            ZONAL_OK)
            break; /* the commit reports it */
        zonal__progress_update(&progress, i + 1);
    }
    zonal__progress_end(&progress);
}

static zonal_status sample(const settings *s, int shape) {
    source from = {.settings = s, .shape = shape};
    int64_t rank = shape == SUBSPACE ? s->rank : 1;
    zonal__file *file = NULL;
    float *narrow = NULL;
    zonal_status status;
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&from.row, s->dim, "a row"));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&from.inside, s->dim, "a row"));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&narrow, s->dim, "a row"));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&from.basis, rank * s->dim, "the subspace"));
    ZONAL_TRY_GOTO(
        status, done,
        zonal__npy_create(s->out, s->dtype ? ZONAL__NPY_F8 : ZONAL__NPY_F4, s->n, s->dim, &file));
    make_basis(&from, rank);
    write_rows(&from, narrow, file);
    status = zonal__file_commit(file);
done:
    zonal__free(from.basis);
    zonal__free(from.row);
    zonal__free(from.inside);
    zonal__free(narrow);
    return status;
}

/* An option that another distribution reads would be ignored in silence. */
static int check_options(const settings *s, int shape, const zonal__options *options) {
    static const struct {
        const char *name;
        int shape;
    } owners[] = {{"rank", SUBSPACE}, {"noise", SUBSPACE}, {"angle", CONE}};
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++)
        if (owners[i].shape != shape &&
            zonal__options_source(options, owners[i].name) == ZONAL__SOURCE_FLAG)
            return zonal__cli_misused("--%s is for %s, not for %s; leave it out", owners[i].name,
                                      shapes[owners[i].shape], shapes[shape]);
    if (shape == SUBSPACE && s->rank > s->dim)
        return zonal__cli_misused("--rank must be at most --dim, got %" PRId64 " and %" PRId64,
                                  s->rank, s->dim);
    return ZONAL__EXIT_CONTINUE;
}

static int find_shape(const char *word) {
    const char *near = zonal__text_nearest(word, shapes);
    for (int i = 0; shapes[i]; i++)
        if (strcmp(shapes[i], word) == 0) return i;
    if (near)
        zonal__cli_say("there is no sample %s; did you mean %s?", word, near);
    else
        zonal__cli_say("there is no sample %s; it is uniform, cone or subspace", word);
    return -1;
}

int zonal__cli_sample(int argc, char **argv) {
    settings s;
    zonal__options options;
    int shape, status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    shape = find_shape(options.arguments[0]);
    if (shape < 0) return ZONAL__EXIT_USAGE;
    status = check_options(&s, shape, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (sample(&s, shape) != ZONAL_OK) return zonal__cli_failed();
    if (!s.quiet)
        printf("%s: %" PRId64 " row%s of %" PRId64 ", %s, seed %" PRId64 ", float%d\n",
               zonal__cli_plain(s.out).text, s.n, zonal__text_plural(s.n), s.dim, shapes[shape],
               s.seed, s.dtype ? 64 : 32);
    return ZONAL__EXIT_OK;
}
