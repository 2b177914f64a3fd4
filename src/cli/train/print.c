#include "cli/train/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "backend/device.h"
#include "cli/common/cli.h"
#include "core/text.h"
#include "train/collapse.h"

enum { LINE = 1024, COLUMNS = 80, INDENT = 10 /* where the text begins after its first word */ };

/* ---- lines ----------------------------------------------------------------------------------- */

static void put_in_log(zonal__train_print *print, const char *line) {
    if (!print->log) return;
    fprintf(print->log, "%s\n", line);
    fflush(print->log); /* a run may be killed at any instant */
}

/* A line of text without what could disturb a terminal. */
static void fill_line(const char *format, va_list arguments, char line[LINE]) {
    char raw[LINE];
    vsnprintf(raw, sizeof raw, format, arguments);
    zonal__text_plain(raw, line, LINE);
}

/* Where a line is to be broken so that at most "room" columns stay before it: at a blank, or, where
 * a name is longer than that, after it; but not within the first "least" columns, nor within a name
 * in quotes, which is to be copied. */
static size_t find_break(const char *text, size_t least, size_t room) {
    size_t at = 0, length = strlen(text);
    int quoted = text[0] == '\'';
    if (length <= room) return length;
    for (size_t i = 1; i < length; i++) {
        if (text[i] == '\'' && (quoted || text[i - 1] == ' ' || text[i - 1] == '\''))
            quoted = !quoted; /* an apostrophe within a word opens nothing */
        if (i > least && !quoted && text[i] == ' ' && text[i - 1] != ' ' && (i <= room || at == 0))
            at = i;
    }
    return at > 0 ? at : length;
}

void zonal__train_say(zonal__train_print *print, const char *format, ...) {
    char line[LINE], shown[LINE + INDENT + 1];
    const char *rest = line;
    int indent = 0;
    va_list arguments;
    va_start(arguments, format);
    fill_line(format, arguments, line);
    va_end(arguments);
    if (!print->quiet) zonal__progress_end(&print->bar);
    do {
        size_t length = find_break(rest, (size_t)(INDENT - indent), (size_t)(COLUMNS - indent));
        snprintf(shown, sizeof shown, "%*s%.*s", indent, "", (int)length, rest);
        put_in_log(print, shown);
        if (!print->quiet) printf("%s\n", shown);
        rest += length;
        rest += strspn(rest, " ");
        indent = INDENT;
    } while (*rest);
    fflush(stdout);
}

void zonal__train_warn(zonal__train_print *print, const char *format, ...) {
    char line[LINE];
    va_list arguments;
    va_start(arguments, format);
    fill_line(format, arguments, line);
    va_end(arguments);
    put_in_log(print, line);
    zonal__progress_end(&print->bar);
    zonal__cli_say("%s", line);
}

void zonal__train_print_failure(zonal__train_print *print) {
    zonal__progress_end(&print->bar);
    put_in_log(print, zonal__cli_plain(zonal_last_error()->message).text);
}

static void take_log_line(void *context, const char *line) {
    if (!zonal__cli_said_before(line)) zonal__train_warn(context, "%s", line);
}

void zonal__train_print_begin(zonal__train_print *print, int quiet) {
    *print = (zonal__train_print){.quiet = quiet};
    zonal_set_log(take_log_line, print);
}

void zonal__train_print_open_log(zonal__train_print *print, const zonal__run_folder *folder) {
    if (zonal__run_folder_open_log(folder, &print->log) != ZONAL_OK)
        zonal__train_warn(print, "%s", zonal_last_error()->message);
}

void zonal__train_print_end(zonal__train_print *print) {
    zonal__progress_end(&print->bar);
    zonal_set_log(NULL, NULL);
    if (print->log) fclose(print->log);
    print->log = NULL;
}

/* ---- the beginning --------------------------------------------------------------------------- */

static const char *word(const zonal__training *t, const char *name, int choice) {
    for (const zonal__option *option = t->options.table; option->name; option++)
        if (strcmp(option->name, name) == 0) return option->words[choice];
    return "";
}

static int64_t count_parameters(const zonal__graph *graph) {
    int64_t count = 0;
    for (int i = 0; i < graph->entry_count; i++)
        if (zonal__entry_is_trained(&graph->entries[i])) count += graph->entries[i].count;
    return count;
}

static void say_network(zonal__train_print *print, const zonal__training *t,
                        zonal__trainer *trainer) {
    const zonal__train_settings *s = &t->settings;
    zonal__train_say(print, "network   %s, width %g, %s stem, %" PRId64 " parameters, %s",
                     word(t, "network", s->network), s->width, word(t, "stem", s->stem),
                     count_parameters(&zonal__trainer_model(trainer)->graph),
                     word(t, "precision", s->precision));
    zonal__train_say(print, "projector %s, %s%s", s->projector,
                     word(t, "activation", s->activation), s->projector_norm ? ", batch norm" : "");
}

static void say_data(zonal__train_print *print, const zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    char local[64] = "", evaluated[48] = "";
    if (s->eval_side > 0 && s->eval_side != s->side)
        snprintf(evaluated, sizeof evaluated, "; evaluated at %" PRId64, s->eval_side);
    if (s->local_views > 0)
        snprintf(local, sizeof local, " and %" PRId64 " of %" PRId64, s->local_views,
                 s->local_side);
    zonal__train_say(print, "data      %s: %" PRId64 " image%s (%s)", s->data, t->source->count,
                     zonal__text_plural(t->source->count), zonal__split_words[s->split]);
    zonal__train_say(print, "views     %" PRId64 " of %" PRId64 "%s pixels, %d channel%s, %s%s",
                     s->views, s->side, local, t->trainer.network.channels,
                     zonal__text_plural(t->trainer.network.channels),
                     word(t, "augmentation", s->augmentation), evaluated);
}

static void say_run(zonal__train_print *print, const zonal__training *t) {
    const zonal__train_settings *s = &t->settings;
    zonal_device_info info;
    const char *device = "the processor";
    char epochs[24];
    if (!zonal__device_is_host(t->device))
        device = zonal__device_describe(t->device, &info) == ZONAL_OK && info.model[0]
                     ? info.model
                     : t->device->name;
    snprintf(epochs, sizeof epochs, "%.3g",
             (double)t->trainer.schedule.total / (double)t->steps_per_epoch);
    zonal__train_say(
        print, "steps     %" PRId64 " of %" PRId64 " images, %s epoch%s; %s, rate %g; on %s",
        t->trainer.schedule.total, s->batch, epochs, strcmp(epochs, "1") == 0 ? "" : "s",
        word(t, "optimiser", s->optimiser), s->lr, device);
    if (zonal__job_count(t->job) > 1)
        zonal__train_say(print,
                         "ranks     %d over %s, at most %" PRId64 " images of a step on "
                         "each%s",
                         zonal__job_count(t->job), zonal__job_transport(t->job),
                         (s->batch + zonal__job_count(t->job) - 1) / zonal__job_count(t->job),
                         s->sync_norm ? "" : "; batch norms of each rank's own images");
}

static void warn_of_weight(zonal__train_print *print, const zonal__training *t) {
    const zonal_objective_info *weight = &t->weight;
    const zonal_objective_options *objective = &t->trainer.objective;
    const char *flat = zonal__collapse_flat(objective->loss.discrepancy, weight);
    char remedy[ZONAL__COLLAPSE_REMEDY];
    zonal__collapse_remedy(objective->loss.discrepancy, objective->gain, weight, remedy);
    if (weight->margin < 1)
        zonal__train_warn(print,
                          "the gain %.4g is below the collapse threshold %.4g: with strong "
                          "augmentation training will collapse; %s",
                          weight->gain, weight->threshold, remedy);
    if (flat)
        zonal__train_warn(print,
                          "the gain %.4g is %.3g times the collapse threshold: a heat kernel of "
                          "t = %.3g/d is nearly flat in %" PRId64 " dimensions; %s",
                          weight->gain, weight->margin,
                          weight->plan.parameter * (double)weight->plan.dim, weight->plan.dim,
                          flat);
}

static void say_loss(zonal__train_print *print, const zonal__training *t) {
    const zonal_objective_info *weight = &t->weight;
    const char *parameter = strchr(weight->plan.kernel, ','); /* "heat, t = 2/d = 0.0078125" */
    char selectivity[48] = "";
    zonal__train_say(print, "loss      %s%s, lambda %g, gain %.6g", t->settings.method,
                     parameter ? parameter : "", t->trainer.objective.lambda, weight->gain);
    if (weight->selectivity > 0)
        snprintf(selectivity, sizeof selectivity, "; selectivity S = %.3g", weight->selectivity);
    if (!(weight->threshold > 0)) {
        zonal__train_say(print, "          its collapse threshold f* is not known");
        return;
    }
    zonal__train_say(print, "          collapse threshold f* = %.4g, margin %.3g%s",
                     weight->threshold, weight->margin, selectivity);
    warn_of_weight(print, t);
}

static void say_init(zonal__train_print *print, const char *path,
                     const zonal__weights_begun *begun) {
    zonal__train_say(print, "init      %.300s: %" PRId64 " tensors; %s", path, begun->tensors,
                     begun->projector       ? "the projector too"
                     : begun->has_projector ? "not its projector, which has another shape"
                                            : "it has no projector, which begins anew");
}

static void say_resumed(zonal__train_print *print, const zonal__training *t,
                        const zonal__training_start *start) {
    zonal__train_say(print, "resumed   after step %" PRId64, start->step);
    if (start->changed_data[0])
        zonal__train_warn(print,
                          "the images have changed: %s; the weights will not be those of a run "
                          "that was never interrupted",
                          start->changed_data);
    if (start->other_length)
        zonal__train_say(print,
                         "length    now %" PRId64
                         " step%s; from here on the learning rates are those of "
                         "a run of that length, which would have other weights by now",
                         t->trainer.schedule.total, zonal__text_plural(t->trainer.schedule.total));
}

void zonal__train_print_start(zonal__train_print *print, const zonal__training *t,
                              const zonal__training_start *start, const char *run) {
    const zonal__train_settings *s = &t->settings;
    zonal__train_say(print, "run       %s", run);
    say_network(print, t, start->trainer);
    say_data(print, t);
    say_run(print, t);
    say_loss(print, t);
    if (t->queries)
        zonal__train_say(print, "eval      %s%s on %" PRId64 " image%s, every %" PRId64 " step%s",
                         word(t, "eval", s->eval), s->probe ? " and the online probe" : "",
                         t->queries->count, zonal__text_plural(t->queries->count), s->eval_every,
                         zonal__text_plural(s->eval_every));
    if (start->init) say_init(print, s->init, start->init);
    if (start->resumed) say_resumed(print, t, start);
}

/* ---- steps ----------------------------------------------------------------------------------- */

enum { SHORTENERS = 600 };

static void add_text(char out[SHORTENERS], const char *format, ...) {
    size_t used = strlen(out);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out + used, SHORTENERS - used, format, arguments);
    va_end(arguments);
}

/* Options that would have an effect, with what they are now. */
static void name_shorteners(const zonal__training *t, const zonal__estimated *e,
                            char out[SHORTENERS]) {
    const zonal__train_settings *s = &t->settings;
    out[0] = '\0';
    if (s->steps > 0)
        add_text(out, "--steps (now %" PRId64 ")", s->steps);
    else
        add_text(out, "--epochs (now %" PRId64 ")", s->epochs);
    if (e->waiting > .3 * e->step)
        add_text(out, ", images made smaller once (zonal data pack --side %" PRId64 ")",
                 s->side > 224 ? s->side : 256);
    if (e->at_least) return; /* of computing nothing is known */
    add_text(out, ", --side (%" PRId64 ")", s->side);
    if (s->network != 0) add_text(out, ", --network resnet18");
    add_text(out, ", --width (%g)", s->width);
    if (s->precision == ZONAL__PRECISION_FP32 && zonal__training_gains_by_bf16(t))
        add_text(out, ", --precision bf16");
    if (e->evaluations > .2 * e->seconds)
        add_text(out, ", --eval-every (%" PRId64 ")", s->eval_every);
    if (zonal__device_is_host(t->device))
        add_text(out, zonal_device_count() > 1 ? ", --device cuda"
                                               : "; or on a machine with a GPU (--device cuda)");
}

void zonal__train_print_estimate(zonal__train_print *print, const zonal__training *t,
                                 const zonal__estimated *e, int64_t steps_left) {
    char words[40], shorter[SHORTENERS], note[64] = "";
    zonal__estimate_words(e->seconds, words);
    if (e->at_least)
        snprintf(note, sizeof note, " for reading images alone");
    else if (e->evaluations > .05 * e->seconds)
        snprintf(note, sizeof note, ", %.0f %% of it evaluations",
                 100 * e->evaluations / e->seconds);
    zonal__train_say(print, "time      %s %s for %" PRId64 " step%s of %.3g s%s",
                     e->at_least ? "over" : "about", words, steps_left,
                     zonal__text_plural(steps_left), e->step, note);
    if (e->seconds < 3600) return;
    name_shorteners(t, e, shorter);
    zonal__train_say(print, "          to shorten it: %s", shorter);
}

void zonal__train_print_begin_steps(zonal__train_print *print, int64_t total, double seconds) {
    snprintf(print->label, sizeof print->label, "training");
    zonal__progress_begin(&print->bar, print->label, total, print->quiet);
    print->bar.began -= seconds;
    print->bar.next = 0;                             /* at once: the first step may take long */
    if (!print->bar.terminal) print->bar.silent = 1; /* the table says it */
}

/* On a terminal with a bar the table would only push it along. */
static void put_in_table(zonal__train_print *print, const char *line) {
    if (!print->bar.silent && isatty(STDOUT_FILENO))
        put_in_log(print, line);
    else
        zonal__train_say(print, "%s", line);
}

void zonal__train_print_step(zonal__train_print *print, const zonal__training *t,
                             const zonal__step_line *line, const zonal__monitor *monitor) {
    const zonal_objective_parts *loss = &line->metrics.loss;
    double epochs = (double)t->trainer.schedule.total / (double)t->steps_per_epoch;
    int has_scale = !isnan(monitor->scale); /* known instead of rho */
    char row[160];
    if (!print->table_begun) {
        snprintf(row, sizeof row, "%s %5s",
                 "   step   epoch    loss     inv        D     rate  img/s    cos   rank",
                 has_scale ? "scale" : "rho");
        put_in_table(print, row);
    }
    print->table_begun = 1;
    snprintf(row, sizeof row, "%7" PRId64 " %7.2f %7.4f %7.4f %8.5f %8.3g %6.0f %6.3f %6.1f %5.2f",
             line->step, line->epoch, loss->total, loss->invariance, loss->discrepancy,
             line->metrics.rate, line->images_per_second, monitor->mean_cosine,
             monitor->effective_rank, has_scale ? monitor->scale : monitor->rho);
    put_in_table(print, row);
    snprintf(print->label, sizeof print->label, "ep %.0f/%.0f inv %.4f D %.5f %.0f/s cos %.2f",
             line->epoch, epochs, loss->invariance, loss->discrepancy, line->images_per_second,
             monitor->mean_cosine);
}

void zonal__train_print_eval(zonal__train_print *print, int64_t step,
                             const zonal__online_result *result) {
    if (result->protocol == ZONAL__ONLINE_RETRIEVAL)
        zonal__train_say(print,
                         "%7" PRId64 " retrieval: R@1 %.1f %%, R@3 %.1f %%, R@5 %.1f %%, mAP %.1f "
                         "%%",
                         step, 100 * result->r1, 100 * result->r3, 100 * result->r5,
                         100 * result->map);
    else if (isnan(result->probe_accuracy))
        zonal__train_say(print, "%7" PRId64 " k-NN: accuracy %.1f %%", step,
                         100 * result->accuracy);
    else
        zonal__train_say(print, "%7" PRId64 " k-NN: accuracy %.1f %%; online probe: %.1f %%", step,
                         100 * result->accuracy, 100 * result->probe_accuracy);
}
