#include "cli/report/reproduce_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/common/cli.h"
#include "cli/common/show_log.h"
#include "cli/report/matrix_run.h"
#include "cli/report/result_table.h"
#include "core/memory.h"
#include "reproduce/dynamics.h"

/* ---- tables ---------------------------------------------------------------------------------- */

static zonal_status draw_curves(const zonal__table_settings *s, const zonal__matrix *matrix,
                                const char *variant, const zonal__records *records) {
    char path[ZONAL__MATRIX_PATH + 256], name[160];
    int drawn;
    snprintf(name, sizeof name, "%s%.150s", variant[0] ? "-" : "", variant);
    for (char *c = name; *c; c++)
        if (*c == '/') *c = '_';
    for (int i = 0; i < matrix->sets; i++) {
        snprintf(path, sizeof path, "%.*s/dynamics-%s%s.svg", ZONAL__MATRIX_PATH, s->out,
                 matrix->set[i].set->name, name);
        ZONAL_TRY(zonal__dynamics_draw(matrix, i, variant, records, path, &drawn));
        if (drawn && !s->quiet) printf("%s\n", zonal__cli_plain(path).text);
    }
    return ZONAL_OK;
}

static zonal_status print_variant(const zonal__table_settings *s, const zonal__matrix *matrix,
                                  const char *variant, const zonal__records *records) {
    zonal__result_tables *tables;
    if (matrix->experiment->curves) ZONAL_TRY(draw_curves(s, matrix, variant, records));
    ZONAL_TRY(zonal__result_tables_make(matrix, variant, records, !s->methods, &tables));
    zonal__result_tables_print(tables, s->markdown);
    zonal__free(tables);
    return ZONAL_OK;
}

/* Whether a variant has what was asked for on the command line. */
static zonal_status is_asked_for(const zonal__table_settings *s, const char *variant, int *asked) {
    zonal__assignments has = {0}, wanted = {0};
    char number[32];
    const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"side", s->side}, {"steps", s->steps}, {"epochs", s->epochs}};
    ZONAL_TRY(zonal__assign_text(&has, variant, ','));
    if (s->options) ZONAL_TRY(zonal__assign_text(&wanted, s->options, ','));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        snprintf(number, sizeof number, "%" PRId64, sizes[i].value);
        if (sizes[i].value > 0) ZONAL_TRY(zonal__assign(&wanted, sizes[i].key, number));
    }
    *asked = 1;
    for (int i = 0; i < wanted.count; i++) {
        const char *value = zonal__assigned(&has, wanted.at[i].key);
        if (!value || strcmp(value, wanted.at[i].value) != 0) *asked = 0;
    }
    return ZONAL_OK;
}

static int is_first(const zonal__records *records, int64_t i) {
    for (int64_t k = 0; k < i; k++)
        if (strcmp(records->at[k].variant, records->at[i].variant) == 0 &&
            strcmp(records->at[k].experiment, records->at[i].experiment) == 0)
            return 0;
    return 1;
}

/* Every variant that the records have: their tables are never mixed. Where cells are run a file
 * that is not there is begun; here its name is mistaken. */
static zonal_status print_all(const zonal__table_settings *s, const zonal__matrix *matrix,
                              const char *path, zonal__records *records) {
    int printed = 0, asked;
    if (s->records) ZONAL_TRY(zonal__records_need(path));
    if (s->seeds) zonal__records_keep_seeds(records, matrix->seed, matrix->seeds);
    for (int64_t i = 0; i < records->count; i++) {
        const zonal__record *r = &records->at[i];
        if (strcmp(r->experiment, matrix->experiment->name) != 0 || !is_first(records, i)) continue;
        ZONAL_TRY(is_asked_for(s, r->variant, &asked));
        if (!asked) continue;
        if (printed++ > 0) putchar('\n');
        ZONAL_TRY(print_variant(s, matrix, r->variant, records));
    }
    return printed > 0 ? ZONAL_OK : print_variant(s, matrix, matrix->variant, records);
}

/* ---- the command ----------------------------------------------------------------------------- */

static zonal_status merge(const zonal__table_settings *s, const char *path,
                          zonal__records *records) {
    char name[4096];
    int64_t added;
    for (const char *at = s->merge; at && *at;) {
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        ZONAL_TRY(zonal__records_merge(records, path, name, &added));
        if (!s->quiet)
            zonal__cli_say("%" PRId64 " new record%s from %s", added, added == 1 ? "" : "s", name);
        at += length + (at[length] == ',');
    }
    return ZONAL_OK;
}

static void say_end(const zonal__table_settings *s, const zonal__matrix *matrix,
                    const zonal__matrix_run_result *result) {
    const int64_t left = matrix->count - result->done;
    char failed[ZONAL__MATRIX_PATH + 160] = "";
    if (left == 0 || s->quiet) return;
    if (result->failed > 0)
        snprintf(failed, sizeof failed,
                 "; %" PRId64 " failed: read why in %.*s/logs; options of zonal train go into "
                 "--options KEY=VALUE",
                 result->failed, ZONAL__MATRIX_PATH, s->out);
    zonal__cli_say("%" PRId64 " of %" PRId64 " cells have a record%s%s%s", result->done,
                   matrix->count,
                   result->stopped ? ", and the runs that were under way a checkpoint" : "", failed,
                   left > result->failed ? "; the same command continues with the rest" : "");
}

static zonal_status run(const zonal__table_settings *s, const zonal__matrix *matrix,
                        zonal__records *records, const char *path, int *failed) {
    const zonal__matrix_run_options options = {.folder = s->out,
                                               .records = path,
                                               .device = s->device,
                                               .threads = s->threads,
                                               .parallel = s->parallel,
                                               .minutes = s->minutes,
                                               .keep_checkpoints = s->keep_checkpoints,
                                               .quiet = s->quiet};
    zonal__matrix_run_result result;
    if (s->dry_run) {
        zonal__matrix_list(matrix, &options, records);
        return ZONAL_OK;
    }
    ZONAL_TRY(zonal__matrix_run(matrix, &options, records, &result));
    say_end(s, matrix, &result);
    *failed = result.failed > 0;
    return print_variant(s, matrix, matrix->variant, records);
}

static zonal_status reproduce(const zonal__experiment *experiment, const zonal__table_settings *s,
                              zonal__matrix *matrix, zonal__records *records, int *failed) {
    const zonal__matrix_request request = {.experiment = experiment,
                                           .methods = s->methods,
                                           .sets = experiment->textures ? s->families : s->data,
                                           .seeds = s->seeds,
                                           .options = s->options,
                                           .side = s->side,
                                           .steps = s->steps,
                                           .epochs = s->epochs,
                                           .needs_paths = !s->print && !s->dry_run};
    char path[4096];
    ZONAL_TRY(zonal__matrix_init(matrix, &request));
    snprintf(path, sizeof path, "%s%s", s->records ? s->records : s->out,
             s->records ? "" : "/records.jsonl");
    if (s->print ? experiment->curves : !s->dry_run) {
        if (s->above) ZONAL_TRY(zonal__cli_make_folder(s->above));
        ZONAL_TRY(zonal__cli_make_folder(s->out));
    }
    ZONAL_TRY(zonal__records_read(records, path));
    ZONAL_TRY(merge(s, path, records));
    if (s->print) return print_all(s, matrix, path, records);
    return run(s, matrix, records, path, failed);
}

int zonal__reproduce_table(const zonal__experiment *experiment, const zonal__table_settings *s) {
    zonal__matrix *matrix;
    zonal__records records = {0};
    int failed = 0;
    zonal_status status = ZONAL_NEW(&matrix, 1, "a matrix of runs");
    zonal__cli_show_log(s->quiet);
    if (status == ZONAL_OK) {
        status = reproduce(experiment, s, matrix, &records, &failed);
        zonal__matrix_fini(matrix);
    }
    zonal__records_fini(&records);
    zonal__free(matrix);
    if (status != ZONAL_OK) return zonal__cli_failed();
    return failed ? ZONAL__EXIT_FAILED : ZONAL__EXIT_OK;
}
