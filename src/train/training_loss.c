/* The loss of a training, and the weight of its uniformity: zonal/loss.h derives it, and says what
 * it came to. */
#include <stdio.h>
#include <string.h>

#include "core/text.h"
#include "train/training_parts.h"

static int64_t dimension(const zonal__training *t) {
    const zonal__network_spec *network = &t->trainer.network;
    return network->projector_width[network->projector_layers - 1];
}

/* One of --gain, --margin and --selectivity sets the gain. */
static zonal_status choose_gain(zonal__training *t, zonal_objective_options *objective) {
    const zonal__train_settings *s = &t->settings;
    const char *gain = zonal__training_state(t, "gain")->text;
    if (zonal__training_given(t, "margin") + zonal__training_given(t, "selectivity") +
            (strcmp(gain, "auto") != 0) >
        1)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "--gain, --margin and --selectivity all set the weight of uniformity; "
                          "give one of them");
    t->weight = (zonal_objective_info)ZONAL_OBJECTIVE_INFO_INIT;
    return zonal_objective_describe(objective, s->views + s->local_views, s->views, s->batch,
                                    dimension(t), &t->weight);
}

/* The weight of uniformity depends on the method and the batch; the configuration says what it came
 * to. A gain by its word stays one, so that a run with another batch has the gain of that. */
static void settle_weight(zonal__training *t) {
    zonal__option_state *lambda = zonal__training_state(t, "lambda"),
                        *gain = zonal__training_state(t, "gain");
    if (!zonal__training_given(t, "lambda")) {
        snprintf(t->lambda_note, sizeof t->lambda_note, "that of %.40s", t->settings.method);
        t->settings.objective.lambda = t->trainer.objective.lambda;
        *lambda = (zonal__option_state){
            .source = ZONAL__SOURCE_DEFAULT, .text = "", .note = t->lambda_note};
    }
    snprintf(t->gain_note, sizeof t->gain_note, "here %.10g", t->weight.gain);
    gain->note = t->gain_note;
}

zonal_status zonal__training_fill_objective(zonal__training *t) {
    zonal__train_settings *s = &t->settings;
    zonal_objective_options *objective = &t->trainer.objective;
    char unused[400];
    objective->size = sizeof *objective;
    ZONAL_TRY(zonal_objective_defaults(s->method, objective));
    zonal__loss_unused(&objective->loss, &t->options, unused, sizeof unused);
    if (unused[0])
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s does not use %s; leave it out", s->method, unused);
    ZONAL_TRY(
        zonal__objective_apply(&t->options, offsetof(zonal__train_settings, objective), objective));
    ZONAL_TRY(choose_gain(t, objective));
    settle_weight(t);
    return ZONAL_OK;
}

zonal_status zonal__training_objective(zonal__training *t) {
    zonal__network_spec *network = &t->trainer.network;
    ZONAL_TRY(zonal__projector_parse(t->settings.projector, "--projector",
                                     ZONAL__MOST_PROJECTOR_LAYERS, network->projector_width,
                                     &network->projector_layers));
    return zonal__training_fill_objective(t);
}
