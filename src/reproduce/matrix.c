#include "reproduce/matrix.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/checksum.h"
#include "core/memory.h"
#include "core/text.h"
#include "train/options.h"
#include "train/run_group.h"

/* ---- lists ----------------------------------------------------------------------------------- */

/* Copies the next item of a list with commas; 0 at its end. */
static int next_item(const char **list, char *out, size_t size) {
    size_t length = strcspn(*list, ",");
    if (**list == '\0') return 0;
    snprintf(out, size, "%.*s", length < size ? (int)length : (int)size - 1, *list);
    *list += length + (((*list)[length]) == ',');
    return 1;
}

/* What a matrix says of each cell, by other options: they would be overridden, or fail every cell.
 */
static zonal_status check_own(const zonal__assignments *given) {
    static const struct {
        const char *key, *remedy;
    } own[] = {{"method", "--methods says which losses are trained"},
               {"seed", "--seeds says with which seeds"},
               {"data", "--data or --families says on which images"},
               {"out", "each cell has a run folder in that of --out"},
               {"resume", "a cell that was interrupted goes on when the command is given again"},
               {"config", "each data set has its recipe; give what differs from it"},
               {"set", "give NAME=VALUE alone"},
               {"dump-config", "--dry-run lists what would run"},
               {"quiet", "what a cell prints goes to its log"}};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (zonal__assigned(given, own[i].key))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "%s is not among the options that cells take: %s",
                              own[i].key, own[i].remedy);
    return ZONAL_OK;
}

static zonal_status take_methods(zonal__matrix *matrix, const char *list) {
    char item[ZONAL__CELL_METHOD];
    while (next_item(&list, item, sizeof item)) {
        for (int i = 0; i < matrix->methods; i++)
            if (strcmp(matrix->method[i], item) == 0)
                return ZONAL_FAIL(ZONAL_ARGUMENT, "--methods has %s twice; leave one out", item);
        if (matrix->methods == ZONAL__MATRIX_METHODS)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "--methods takes at most %d; run some later",
                              ZONAL__MATRIX_METHODS);
        memcpy(matrix->method[matrix->methods++], item, sizeof item);
    }
    if (matrix->methods == 0) return ZONAL_FAIL(ZONAL_ARGUMENT, "--methods names no method");
    return ZONAL_OK;
}

/* "NAME", or "NAME=PATH:KEY=VALUE:KEY=VALUE". A colon with no "=" behind it is the path's. */
static zonal_status take_set(zonal__matrix *matrix, char *item) {
    zonal__matrix_set *set = &matrix->set[matrix->sets];
    char *equals = strchr(item, '='), *colon = equals ? strchr(equals, ':') : NULL;
    while (colon && !strchr(colon, '=')) colon = NULL;
    if (equals) *equals = '\0';
    if (colon) *colon = '\0';
    ZONAL_TRY(zonal__data_set_find(matrix->experiment, item, &set->set));
    for (int i = 0; i < matrix->sets; i++)
        if (matrix->set[i].set == set->set)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "%s is given twice; leave one out", item);
    if (equals && matrix->experiment->textures)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "textures are made by the program: give %s alone", item);
    if (equals) snprintf(set->path, sizeof set->path, "%s", equals + 1);
    if (colon) ZONAL_TRY(zonal__assign_text(&set->options, colon + 1, ':'));
    ZONAL_TRY(check_own(&set->options));
    matrix->sets++;
    return ZONAL_OK;
}

static zonal_status take_seeds(zonal__matrix *matrix, const char *list) {
    ZONAL_TRY(zonal__list_int64(list, "--seeds", 0, INT32_MAX, ZONAL__MATRIX_SEEDS, matrix->seed,
                                &matrix->seeds));
    for (int i = 1; i < matrix->seeds; i++)
        for (int k = 0; k < i; k++)
            if (matrix->seed[k] == matrix->seed[i])
                return ZONAL_FAIL(ZONAL_ARGUMENT, "--seeds has %" PRId64 " twice; leave one out",
                                  matrix->seed[i]);
    return ZONAL_OK;
}

static zonal_status take_sets(zonal__matrix *matrix, const char *list, int needs_paths) {
    char item[ZONAL__MATRIX_PATH];
    const char *option = matrix->experiment->textures ? "--families" : "--data";
    while (next_item(&list, item, sizeof item)) {
        if (matrix->sets == ZONAL__MATRIX_SETS)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "%s takes at most %d", option, ZONAL__MATRIX_SETS);
        ZONAL_TRY(take_set(matrix, item));
        if (needs_paths && !matrix->experiment->textures && !matrix->set[matrix->sets - 1].path[0])
            return ZONAL_FAIL(ZONAL_ARGUMENT, "where are the images? Give %s %s=PATH", option,
                              matrix->set[matrix->sets - 1].set->name);
    }
    if (matrix->sets == 0) return ZONAL_FAIL(ZONAL_ARGUMENT, "%s names no data set", option);
    return ZONAL_OK;
}

/* ---- options --------------------------------------------------------------------------------- */

static zonal_status assign_number(zonal__assignments *list, const char *key, int64_t number) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, number);
    return zonal__assign(list, key, text);
}

/* Threads, devices and the like make no other variant. */
static zonal_status name_variant(zonal__matrix *matrix, const zonal__assignments *list) {
    zonal__assignments counting = {0};
    for (int i = 0; i < list->count; i++)
        if (zonal__run_setting_counts(list->at[i].key))
            ZONAL_TRY(zonal__assign(&counting, list->at[i].key, list->at[i].value));
    return zonal__assignments_text(&counting, ',', &matrix->variant);
}

static zonal_status take_request(const zonal__matrix_request *r, zonal__assignments *asked) {
    if (r->side > 0) ZONAL_TRY(assign_number(asked, "side", r->side));
    if (r->steps > 0) ZONAL_TRY(assign_number(asked, "steps", r->steps));
    if (r->epochs > 0) ZONAL_TRY(assign_number(asked, "epochs", r->epochs));
    if (r->options) ZONAL_TRY(zonal__assign_text(asked, r->options, ','));
    return check_own(asked);
}

/* What all cells share. Textures are a quarter wider than the views that are cut out of them. */
static zonal_status take_variant(zonal__matrix *matrix, const zonal__matrix_request *r,
                                 zonal__assignments *list) {
    zonal__assignments asked = {0};
    const char *side;
    int64_t pixels;
    ZONAL_TRY(zonal__assign_text(list, matrix->experiment->variant, ','));
    ZONAL_TRY(take_request(r, &asked));
    ZONAL_TRY(zonal__assign_all(list, &asked));
    side = zonal__assigned(list, "side");
    if (matrix->experiment->textures && side && !zonal__assigned(list, "texture-size")) {
        ZONAL_TRY(zonal__text_int64(side, "side", &pixels));
        ZONAL_TRY(assign_number(list, "texture-size", pixels + pixels / 4));
    }
    return name_variant(matrix, list);
}

static zonal_status cell_options(const zonal__matrix *matrix, const zonal__assignments *variant,
                                 zonal__cell *cell) {
    char name[ZONAL__CELL_METHOD];
    zonal__assignments of_method = {0};
    const char *own = strchr(cell->method, ':');
    snprintf(name, sizeof name, "%.*s", (int)strcspn(cell->method, ":"), cell->method);
    ZONAL_TRY(zonal__assign_text(&cell->options, matrix->experiment->options, ','));
    ZONAL_TRY(zonal__assign_all(&cell->options, variant));
    ZONAL_TRY(zonal__assign_all(&cell->options, &matrix->set[cell->set].options));
    if (own) ZONAL_TRY(zonal__assign_text(&of_method, own + 1, ':'));
    ZONAL_TRY(check_own(&of_method));
    ZONAL_TRY(zonal__assign_all(&cell->options, &of_method));
    ZONAL_TRY(zonal__assign(&cell->options, "method", name));
    return assign_number(&cell->options, "seed", cell->seed);
}

/* ---- the configuration of a cell ------------------------------------------------------------- */

static zonal_status recipe_text(const char *name, char **out) {
    const char *const *lines = zonal__recipe_lines(name);
    size_t room = 1, at = 0;
    for (int i = 0; lines[i]; i++) room += strlen(lines[i]) + 1;
    ZONAL_TRY(ZONAL_NEW(out, room, "a recipe"));
    for (int i = 0; lines[i]; i++) at += (size_t)snprintf(*out + at, room - at, "%s\n", lines[i]);
    return ZONAL_OK;
}

/* Where the images lie is not what is asked: a record has a checksum of them. */
static int is_asked(const zonal__options *options, int i) {
    const char *name = options->table[i].name;
    const zonal__option_source source = options->state[i].source;
    if (source != ZONAL__SOURCE_FILE && source != ZONAL__SOURCE_FLAG) return 0;
    if (strcmp(name, "data") == 0 || strcmp(name, "class-list") == 0) return 0;
    return zonal__run_setting_counts(name);
}

static zonal_status list_asked(const zonal__options *options, char **out) {
    zonal__assignments asked = {0};
    char *text;
    size_t length;
    for (int i = 0; options->table[i].name; i++)
        if (is_asked(options, i))
            ZONAL_TRY(zonal__assign(&asked, options->table[i].name, options->state[i].text));
    ZONAL_TRY(zonal__assignments_text(&asked, '\n', &text));
    length = strlen(text);
    zonal_status status = ZONAL_NEW(out, length + 2, "a configuration");
    if (status == ZONAL_OK) snprintf(*out, length + 2, "%s\n", text);
    zonal__free(text);
    return status;
}

static zonal_status set_options(const zonal__cell *cell, zonal__options *options) {
    for (int i = 0; i < cell->options.count; i++) {
        const zonal__assignment *a = &cell->options.at[i];
        ZONAL_TRY(zonal__options_set(options, a->key, a->key, a->value, ZONAL__SOURCE_FLAG));
    }
    return ZONAL_OK;
}

zonal_status zonal__cell_read(const zonal__matrix *matrix, const zonal__cell *cell,
                              zonal__options *options, zonal__config **config) {
    const char *recipe = matrix->set[cell->set].set->recipe;
    char *text;
    zonal_status status = recipe_text(recipe, &text);
    *config = NULL;
    if (status == ZONAL_OK) status = zonal__config_read_text(recipe, text, options, config);
    if (status == ZONAL_OK) status = set_options(cell, options);
    zonal__free(text);
    return status;
}

/* By the table of zonal train itself, so that a mistake is known before anything runs. */
static zonal_status cell_configuration(const zonal__matrix *matrix, zonal__cell *cell) {
    zonal__train_settings settings;
    zonal__options options;
    zonal__config *config = NULL;
    zonal_loss_options loss = ZONAL_LOSS_OPTIONS_INIT;
    zonal_status status = zonal__options_init(&options, zonal__train_table, &settings);
    if (status == ZONAL_OK) status = zonal__cell_read(matrix, cell, &options, &config);
    if (status == ZONAL_OK) status = zonal_loss_defaults(settings.method, &loss);
    if (status == ZONAL_OK) status = list_asked(&options, &cell->configuration);
    zonal__config_destroy(config);
    return status;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static void name_cell(const zonal__matrix *matrix, zonal__cell *cell) {
    uint64_t sum = zonal__checksum_of(cell->configuration, strlen(cell->configuration));
    snprintf(cell->name, sizeof cell->name, "%s-%s-%" PRId64 "-%08x",
             matrix->set[cell->set].set->name, zonal__assigned(&cell->options, "method"),
             cell->seed, (unsigned)(sum >> 32));
}

static zonal_status fill_set(zonal__matrix *matrix, const zonal__assignments *variant, int set,
                             int64_t seed, zonal__cell *cells) {
    for (int m = 0; m < matrix->methods; m++) {
        zonal__cell *cell = &cells[m];
        cell->set = set;
        cell->seed = seed;
        memcpy(cell->method, matrix->method[m], sizeof cell->method);
        ZONAL_TRY(cell_options(matrix, variant, cell));
        ZONAL_TRY(cell_configuration(matrix, cell));
        name_cell(matrix, cell);
    }
    return ZONAL_OK;
}

static zonal_status fill(zonal__matrix *matrix, const zonal__assignments *variant) {
    int64_t at = 0;
    for (int k = 0; k < matrix->seeds; k++)
        for (int s = 0; s < matrix->sets; s++, at += matrix->methods)
            ZONAL_TRY(fill_set(matrix, variant, s, matrix->seed[k], &matrix->cell[at]));
    return ZONAL_OK;
}

static const char *chosen(const char *given, const char *otherwise) {
    return given ? given : otherwise;
}

zonal_status zonal__matrix_init(zonal__matrix *matrix, const zonal__matrix_request *request) {
    const zonal__experiment *e = request->experiment;
    zonal__assignments variant = {0};
    memset(matrix, 0, sizeof *matrix);
    matrix->experiment = e;
    ZONAL_TRY(take_methods(matrix, chosen(request->methods, e->methods)));
    ZONAL_TRY(take_sets(matrix, chosen(request->sets, e->sets), request->needs_paths));
    ZONAL_TRY(take_seeds(matrix, chosen(request->seeds, e->seeds)));
    ZONAL_TRY(take_variant(matrix, request, &variant));
    matrix->count = (int64_t)matrix->methods * matrix->sets * matrix->seeds;
    ZONAL_TRY(ZONAL_NEW(&matrix->cell, matrix->count, "the cells"));
    return fill(matrix, &variant);
}

void zonal__matrix_fini(zonal__matrix *matrix) {
    for (int64_t i = 0; matrix->cell && i < matrix->count; i++)
        zonal__free(matrix->cell[i].configuration);
    zonal__free(matrix->cell);
    zonal__free(matrix->variant);
    matrix->cell = NULL;
    matrix->variant = NULL;
}

void zonal__cell_title(const zonal__matrix *matrix, const zonal__cell *cell, char *out,
                       size_t size) {
    snprintf(out, size, "%s %s seed %" PRId64, matrix->set[cell->set].set->name, cell->method,
             cell->seed);
}

/* ---- what has been run ----------------------------------------------------------------------- */

const zonal__record *zonal__matrix_record(const zonal__matrix *matrix, const zonal__cell *cell,
                                          const zonal__records *records) {
    for (int64_t i = records->count - 1; i >= 0; i--) {
        const zonal__record *r = &records->at[i];
        if (r->seed == cell->seed && strcmp(r->experiment, matrix->experiment->name) == 0 &&
            strcmp(r->method, cell->method) == 0 &&
            strcmp(r->data, matrix->set[cell->set].set->name) == 0 &&
            strcmp(r->variant, matrix->variant) == 0 &&
            strcmp(r->configuration, cell->configuration) == 0)
            return r;
    }
    return NULL;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of at most the last 64 of them, since machines change; those that say how many cells ran at once
 * ("known"), for so many, or the others. */
static double median_seconds(const zonal__matrix *matrix, const char *data,
                             const zonal__records *records, double at_once, int known) {
    double seconds[64];
    int count = 0;
    for (int64_t i = records->count - 1; i >= 0 && count < 64; i--) {
        const zonal__record *r = &records->at[i];
        double s = zonal__flat_number(&r->flat, "seconds");
        double together = zonal__flat_number(&r->flat, "at_once");
        if ((together >= 1 && isfinite(together)) != known) continue;
        if (known) s *= at_once / together;
        if (strcmp(r->experiment, matrix->experiment->name) == 0 && s > 0 && isfinite(s) &&
            strcmp(r->variant, matrix->variant) == 0 && (!data || strcmp(r->data, data) == 0))
            seconds[count++] = s;
    }
    if (count == 0) return NAN;
    qsort(seconds, (size_t)count, sizeof *seconds, ascending);
    return seconds[count / 2];
}

double zonal__matrix_seconds(const zonal__matrix *matrix, const zonal__cell *cell,
                             const zonal__records *records, double at_once) {
    const char *const sets[] = {matrix->set[cell->set].set->name, NULL};
    double seconds = NAN;
    for (int i = 0; i < 4 && isnan(seconds); i++)
        seconds = median_seconds(matrix, sets[i / 2], records, at_once, i % 2 == 0);
    return seconds;
}
