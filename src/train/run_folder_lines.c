/* The lines of metrics.jsonl, which train/run_folder.h lists: written, and read when a run goes on.
 */
#include "train/run_folder_lines.h"

#include <string.h>
#include <unistd.h>

#include "core/file_read.h"
#include "core/json.h"
#include "core/json_read.h"
#include "core/memory.h"

static const size_t LONGEST_METRICS = (size_t)1 << 31;

/* ---- writing --------------------------------------------------------------------------------- */

static void begin_line(zonal__json *json, const char *kind, int64_t step) {
    zonal__json_init(json, NULL);
    zonal__json_begin_object(json);
    zonal__json_key_text(json, "kind", kind);
    zonal__json_key_int(json, "step", step);
}

static zonal_status end_line(zonal__run_folder *folder, zonal__json *json) {
    const char *text;
    zonal_status status;
    zonal__json_end_object(json);
    status = zonal__json_finish(json, &text);
    if (status == ZONAL_OK) status = zonal__jsonl_append(folder->metrics, text);
    zonal__json_fini(json);
    return status;
}

zonal_status zonal__run_folder_add_step(zonal__run_folder *folder, const zonal__step_line *line) {
    const zonal__metrics *metrics = &line->metrics;
    zonal__json json;
    begin_line(&json, "step", line->step);
    zonal__json_key_double(&json, "epoch", line->epoch);
    zonal__json_key_double(&json, "loss", metrics->loss.total);
    zonal__json_key_double(&json, "invariance", metrics->loss.invariance);
    zonal__json_key_double(&json, "discrepancy", metrics->loss.discrepancy);
    zonal__json_key_double(&json, "rate", metrics->rate);
    zonal__json_key_double(&json, "gradient_norm", metrics->gradient_norm);
    zonal__json_key_double(&json, "images_per_second", line->images_per_second);
    zonal__json_key_double(&json, "seconds", line->seconds);
    zonal__event_log_step(folder->events, line);
    return end_line(folder, &json);
}

zonal_status zonal__run_folder_add_monitor(zonal__run_folder *folder, int64_t step,
                                           const zonal__monitor *monitor) {
    zonal__json json;
    begin_line(&json, "monitor", step);
    zonal__json_key_double(&json, "mean_cosine", monitor->mean_cosine);
    zonal__json_key_double(&json, "effective_rank", monitor->effective_rank);
    zonal__json_key_double(&json, "expected_rank", monitor->expected_rank);
    zonal__json_key_double(&json, "log10_p", monitor->log10_p);
    zonal__json_key_double(&json, "rho", monitor->rho);
    zonal__json_key_double(&json, "scale", monitor->scale);
    zonal__event_log_monitor(folder->events, step, monitor);
    return end_line(folder, &json);
}

zonal_status zonal__run_folder_add_eval(zonal__run_folder *folder, int64_t step,
                                        const zonal__online_result *result) {
    int retrieval = result->protocol == ZONAL__ONLINE_RETRIEVAL;
    zonal__json json;
    begin_line(&json, "eval", step);
    zonal__json_key_text(&json, "protocol", retrieval ? "retrieval" : "knn");
    zonal__json_key_text(&json, "features", retrieval ? "projector" : "backbone");
    if (retrieval) {
        zonal__json_key_double(&json, "r1", result->r1);
        zonal__json_key_double(&json, "r3", result->r3);
        zonal__json_key_double(&json, "r5", result->r5);
        zonal__json_key_double(&json, "map", result->map);
    } else {
        zonal__json_key_double(&json, "accuracy", result->accuracy);
    }
    zonal__event_log_eval(folder->events, step, result);
    return end_line(folder, &json);
}

zonal_status zonal__run_folder_add_probe(zonal__run_folder *folder, int64_t step, double epoch,
                                         double accuracy) {
    zonal__json json;
    begin_line(&json, "probe", step);
    zonal__json_key_double(&json, "epoch", epoch);
    zonal__json_key_text(&json, "protocol", "probe");
    zonal__json_key_text(&json, "features", "backbone");
    zonal__json_key_double(&json, "accuracy", accuracy);
    zonal__event_log_probe(folder->events, step, accuracy);
    return end_line(folder, &json);
}

zonal_status zonal__run_folder_add_checkpoint(zonal__run_folder *folder, int64_t step, double score,
                                              int best) {
    zonal__json json;
    begin_line(&json, "checkpoint", step);
    zonal__json_key_double(&json, "score", score);
    zonal__json_key_bool(&json, "best", best);
    return end_line(folder, &json);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Takes "score", "seconds" and, after the step "judged", "loss" of one line, whatever its kind. */
static zonal_status take_line(zonal__run_folder *folder, zonal__json_reader *reader,
                              int64_t judged) {
    double value, step = 0;
    const char *key;
    int more;
    ZONAL_TRY(zonal__json_read_begin(reader, '{'));
    for (;;) {
        ZONAL_TRY(zonal__json_read_more(reader, '}', &more));
        if (!more) return zonal__json_read_end(reader);
        ZONAL_TRY(zonal__json_read_key(reader, &key));
        if (strcmp(key, "score") == 0) {
            ZONAL_TRY(zonal__json_read_double(reader, &value));
            if (value > folder->best) folder->best = value;
        } else if (strcmp(key, "step") == 0) { /* comes before the loss */
            ZONAL_TRY(zonal__json_read_double(reader, &step));
        } else if (strcmp(key, "loss") == 0) {
            ZONAL_TRY(zonal__json_read_double(reader, &value));
            if (step > (double)judged) folder->loss_sum += value;
            folder->losses += step > (double)judged;
        } else if (strcmp(key, "seconds") == 0) {
            ZONAL_TRY(zonal__json_read_double(reader, &folder->seconds));
        } else {
            ZONAL_TRY(zonal__json_read_skip(reader));
        }
    }
}

zonal_status zonal__run_folder_take_lines(zonal__run_folder *folder, const char *path,
                                          int64_t judged) {
    char *text, *at, *newline;
    size_t length;
    zonal_status status = ZONAL_OK;
    if (access(path, F_OK) != 0) return ZONAL_OK;
    ZONAL_TRY(zonal__file_read(path, LONGEST_METRICS, &text, &length));
    for (at = text; status == ZONAL_OK && (newline = strchr(at, '\n')); at = newline + 1) {
        zonal__json_reader reader;
        *newline = '\0';
        zonal__json_reader_init(&reader, at, (size_t)(newline - at), path);
        status = take_line(folder, &reader, judged);
    }
    zonal__free(text);
    return status;
}

/* The step of a line if it is a checkpoint's, else -1. */
static zonal_status take_checkpoint(zonal__json_reader *reader, int64_t *step) {
    int64_t number = -1;
    const char *key, *kind = "";
    int more;
    ZONAL_TRY(zonal__json_read_begin(reader, '{'));
    for (;;) {
        ZONAL_TRY(zonal__json_read_more(reader, '}', &more));
        if (!more) break;
        ZONAL_TRY(zonal__json_read_key(reader, &key));
        if (strcmp(key, "kind") == 0)
            ZONAL_TRY(zonal__json_read_text(reader, &kind));
        else if (strcmp(key, "step") == 0)
            ZONAL_TRY(zonal__json_read_int(reader, &number));
        else
            ZONAL_TRY(zonal__json_read_skip(reader));
    }
    *step = strcmp(kind, "checkpoint") == 0 ? number : -1;
    return zonal__json_read_end(reader);
}

zonal_status zonal__run_folder_last_checkpoint(const char *path, int64_t *step) {
    char *text, *at, *newline;
    size_t length;
    *step = -1;
    if (access(path, F_OK) != 0) return ZONAL_OK;
    ZONAL_TRY(zonal__file_read(path, LONGEST_METRICS, &text, &length));
    for (at = text; (newline = strchr(at, '\n')); at = newline + 1) {
        zonal__json_reader reader;
        int64_t found;
        *newline = '\0';
        zonal__json_reader_init(&reader, at, (size_t)(newline - at), path);
        if (take_checkpoint(&reader, &found) == ZONAL_OK && found > *step) *step = found;
    }
    zonal__free(text);
    return ZONAL_OK;
}
