#include "cli/common/profile_table.h"

#include <math.h>
#include <stdio.h>

#include "cli/common/json_line.h"

static const char *const kind_names[] = {"convolution", "linear",    "norm",     "activation",
                                         "max pool",    "mean pool", "norm+pool"};
enum { KINDS = sizeof kind_names / sizeof kind_names[0] };

/* Milliseconds; 0 where the rates are not known. */
static double floor_ms(const zonal__work_cost *cost, const zonal__rates *rates) {
    if (!(rates->teraflops > 0 && rates->terabytes > 0)) return 0;
    return fmax(cost->flop / rates->teraflops, cost->bytes / rates->terabytes) * 1e-9;
}

static const char *part_name(zonal__layer_kind kind, int part) {
    if (part == ZONAL__PART_FORWARD) return "forward";
    if (kind != ZONAL__LAYER_CONVOLUTION && kind != ZONAL__LAYER_LINEAR) return "backward";
    return part == ZONAL__PART_DATA ? "data" : "filter";
}

static void print_line(const char *name, double ms, double step_ms, double floor) {
    printf("  %-21s %9.3f %5.1f %%", name, ms, 100 * ms / step_ms);
    if (floor > 0) printf(" %9.3f %5.0f %%", floor, 100 * floor / ms);
    putchar('\n');
}

/* One line for each part of each kind of layer, all layers together; returns their time. */
static double print_kinds(const zonal__layer_profile *profile, int count, double step_ms,
                          const zonal__rates *rates) {
    double all = 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (int part = 0; part < ZONAL__PARTS; part++) {
            double ms = 0, floor = 0;
            char name[40];
            for (int i = 0; i < count; i++) {
                const zonal__layer_profile *p = &profile[i];
                if ((int)p->spec.kind != kind) continue;
                ms += p->layers * p->part[part].ms;
                floor += p->layers * floor_ms(&p->part[part], rates);
            }
            if (ms == 0) continue;
            snprintf(name, sizeof name, "%s %s", kind_names[kind],
                     part_name((zonal__layer_kind)kind, part));
            print_line(name, ms, step_ms, floor);
            all += ms;
        }
    return all;
}

/* "convolution 3x3/2 64-128 @56": kernel, stride, channels in and out, side of the input;
 * "norm+residual+relu 128 @28*": with what follows; a star where the output is read twice. */
static void describe(const zonal__layer_profile *p, char *out, size_t size) {
    static const char *const activations[] = {"", "+relu", "+gelu"};
    const zonal__layer_spec *s = &p->spec;
    const char *kind = kind_names[s->kind];
    if (s->kind == ZONAL__LAYER_CONVOLUTION)
        snprintf(out, size, "%s %dx%d/%d %d-%d @%d", kind, s->kernel, s->kernel, s->stride,
                 s->channels, s->out_channels, s->h);
    else if (s->kind == ZONAL__LAYER_LINEAR)
        snprintf(out, size, "%s %d-%d", kind, s->channels, s->out_channels);
    else
        snprintf(out, size, "%s%s%s %d @%d%s", kind, s->residual ? "+residual" : "",
                 activations[s->activation], s->channels, s->h, p->two_gradients ? "*" : "");
}

/* A time, and behind it the floor's share of it. */
static void print_part(const zonal__work_cost *cost, const zonal__rates *rates) {
    if (cost->bytes == 0) {
        printf(" %8s%s", "", rates->teraflops > 0 ? "     " : "");
        return;
    }
    printf(" %8.4f", cost->ms);
    if (rates->teraflops > 0) printf(" %3.0f%%", 100 * floor_ms(cost, rates) / cost->ms);
}

static void print_layer(const zonal__layer_profile *p, const zonal__rates *rates) {
    char name[80];
    describe(p, name, sizeof name);
    printf("  %-32s %2d", name, p->layers);
    for (int part = 0; part < ZONAL__PARTS; part++) print_part(&p->part[part], rates);
    putchar('\n');
}

void zonal__profile_print(const zonal__step_profile *step, const zonal__layer_profile *profile,
                          int count, const zonal__rates *rates) {
    int floors = rates->teraflops > 0;
    double parts;
    printf("\n%s, parts by themselves:\n  %-21s %9s %7s%s\n", step->title, "", "ms", "share",
           floors ? "     floor   of it" : "");
    parts = print_kinds(profile, count, step->ms, rates);
    print_line("loss", step->objective.ms, step->ms, 0);
    print_line("optimiser", step->optimiser.ms, step->ms, floor_ms(&step->optimiser, rates));
    parts += step->objective.ms + step->optimiser.ms;
    print_line("rest", step->ms - parts, step->ms, 0);
    printf("\n  %-32s %2s %8s%s %8s%s %8s\n", "each; * its output is read twice", "of", "forward",
           floors ? "     " : "", "data", floors ? "     " : "", "filter");
    for (int i = 0; i < count; i++) print_layer(&profile[i], rates);
    putchar('\n');
    fflush(stdout);
}

void zonal__profile_print_json(const char *title, const zonal__layer_profile *profile, int count,
                               const zonal__rates *rates) {
    for (int i = 0; i < count; i++) {
        const zonal__layer_profile *p = &profile[i];
        zonal__json json;
        char name[80];
        describe(p, name, sizeof name);
        zonal__json_line_begin(&json);
        zonal__json_key_text(&json, "row", title);
        zonal__json_key_text(&json, "layer", name);
        zonal__json_key_int(&json, "layers", p->layers);
        for (int part = 0; part < ZONAL__PARTS; part++) {
            if (p->part[part].bytes == 0) continue;
            zonal__json_key(&json, part_name(p->spec.kind, part));
            zonal__json_begin_object(&json);
            zonal__json_key_double(&json, "ms", p->part[part].ms);
            zonal__json_key_double(&json, "gflop", 1e-9 * p->part[part].flop);
            zonal__json_key_double(&json, "mib", p->part[part].bytes / 1048576);
            zonal__json_key_double(&json, "floor_ms",
                                   rates->teraflops > 0 ? floor_ms(&p->part[part], rates) : NAN);
            zonal__json_end_object(&json);
        }
        zonal__json_line_end(&json);
    }
}
