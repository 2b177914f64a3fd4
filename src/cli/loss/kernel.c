/*
 * zonal kernel: the profile, the constants and the spectrum of a kernel, as a table, as JSON, as
 * CSV and as a plot; and the paper's Figure 3.
 */
#include <math.h>
#include <stdio.h>

#include "cli/common/cli.h"
#include "core/json.h"
#include "core/memory.h"
#include "loss/family.h"
#include "loss/options.h"
#include "report/svg.h"

typedef struct settings {
    int family;
    int64_t dim, points;
    zonal_kernel_spec kernel; /* as given */
    const char *plot, *figure;
    int json, csv;
} settings;

static const zonal__option table[] = {
    {.name = "kernel",
     .type = ZONAL__OPTION_WORD,
     .target = offsetof(settings, family),
     .words = zonal__family_words,
     .initial = "heat",
     .help = "the family"},
    {.name = "dim",
     .type = ZONAL__OPTION_INT,
     .target = offsetof(settings, dim),
     .initial = "256",
     .least = 2,
     .most = 4096,
     .metavar = "D",
     .help = "dimension d of the embeddings"},
    {.name = "the kernel",
     .type = ZONAL__OPTION_TABLE,
     .target = offsetof(settings, kernel),
     .table = zonal__kernel_option},
    {.name = "points",
     .type = ZONAL__OPTION_INT,
     .target = offsetof(settings, points),
     .least = 2,
     .most = 1000001,
     .help = "number of cosines from -1 to 1; 201 unless given, 21 in the printed table"},
    {.name = "json",
     .type = ZONAL__OPTION_FLAG,
     .target = offsetof(settings, json),
     .help = "print constants, spectrum and profile as JSON"},
    {.name = "csv",
     .type = ZONAL__OPTION_FLAG,
     .target = offsetof(settings, csv),
     .help = "print the profile as CSV"},
    {.name = "plot",
     .type = ZONAL__OPTION_STRING,
     .target = offsetof(settings, plot),
     .metavar = "FILE.svg",
     .help = "draw the profile"},
    {.name = "figure",
     .type = ZONAL__OPTION_STRING,
     .target = offsetof(settings, figure),
     .metavar = "FILE.svg",
     .help = "draw the five kernels of the paper's Figure 3, and nothing else"},
    {0}};

static const zonal__cli_usage usage = {
    .synopsis = "zonal kernel [--kernel FAMILY] [--dim D] [options]",
    .description =
        "Shows a rotation-invariant kernel: its profile phi(c) with two derivatives, the\n"
        "constants that bias and normalise the losses, and its spectrum by degree l: the\n"
        "eigenvalue l(l+d-2), the number N_l of harmonics and the share a_l, with\n"
        "phi(c) = sum of a_l P_l(c) and P_l(1) = 1.\n"
        "\n"
        "examples:\n"
        "  zonal kernel --kernel heat --t 5/d --dim 256\n"
        "  zonal kernel --kernel induced --scale 1 --json\n"
        "  zonal kernel --figure kernels.svg --dim 256\n",
    .argument = "no argument",
    .least = 0,
    .most = 0};

/* Everything that is shown about one kernel. */
typedef struct portrait {
    int64_t dim, points;
    zonal_kernel_spec spec;
    zonal_kernel *kernel;
    zonal_kernel_constants constants;
    double *memory;                                /* one block for the five columns */
    double *c, *phi, *derivative, *bend, *log_phi; /* [points] each */
    int has_log;
    char parameter[96];
} portrait;

/* ---- making it ------------------------------------------------------------------------------- */

/* With log phi where the kernel is positive; without it where it is not. */
static zonal_status create_kernel(portrait *p) {
    zonal_status status;
    p->spec.log_profile = 1;
    status = zonal_kernel_create(&p->spec, p->dim, &p->kernel);
    p->has_log = status == ZONAL_OK;
    if (status != ZONAL_ARGUMENT) return status;
    p->spec.log_profile = 0;
    return zonal_kernel_create(&p->spec, p->dim, &p->kernel);
}

static zonal_status evaluate(portrait *p) {
    int64_t n = p->points;
    ZONAL_TRY(ZONAL_NEW(&p->memory, 5 * n, "the profile"));
    p->c = p->memory;
    p->phi = p->c + n;
    p->derivative = p->phi + n;
    p->bend = p->derivative + n;
    p->log_phi = p->bend + n;
    for (int64_t i = 0; i < n; i++) p->c[i] = (double)(2 * i - (n - 1)) / (double)(n - 1);
    ZONAL_TRY(zonal_kernel_eval(p->kernel, 0, n, p->c, p->phi));
    ZONAL_TRY(zonal_kernel_eval(p->kernel, 1, n, p->c, p->derivative));
    ZONAL_TRY(zonal_kernel_eval(p->kernel, 2, n, p->c, p->bend));
    if (!p->has_log) return ZONAL_OK;
    ZONAL_TRY(zonal_kernel_log_eval(p->kernel, n, p->c, p->log_phi));
    /* The sum is right to 1e-13 of phi(1); far down only the logarithm knows. */
    for (int64_t i = 0; i < n; i++)
        if (p->phi[i] < 1e-6) p->phi[i] = exp(p->log_phi[i]);
    p->log_phi[n - 1] = 0; /* phi(1) = 1 by definition */
    return ZONAL_OK;
}

static void portrait_fini(portrait *p) {
    zonal_kernel_destroy(p->kernel);
    zonal__free(p->memory);
    *p = (portrait){0};
}

/* To be undone by portrait_fini, also after a failure. */
static zonal_status portrait_init(portrait *p, const zonal_kernel_spec *spec, int64_t dim,
                                  int64_t points) {
    *p = (portrait){
        .spec = *spec, .dim = dim, .points = points, .constants = ZONAL_KERNEL_CONSTANTS_INIT};
    zonal__family_describe(spec, dim, ZONAL_DISCREPANCY_MMD, p->parameter, sizeof p->parameter);
    ZONAL_TRY(create_kernel(p));
    ZONAL_TRY(zonal_kernel_constants_get(p->kernel, &p->constants));
    return evaluate(p);
}

/* ---- showing it ------------------------------------------------------------------------------ */

static double eigenvalue(const portrait *p, int l) {
    return (double)l * (double)(l + p->dim - 2);
}

static void print_constants(const portrait *p) {
    const zonal_kernel_constants *k = &p->constants;
    printf("constants\n"
           "  C_bias of MMD   %-22.12g a_0; its logarithm is %.8g\n"
           "  C_norm of MMD   %-22.12g 1 - a_0\n"
           "  C_norm of KSD   %-22.12g (d-1) phi'(1)/2; its C_bias is 0\n"
           "  C_norm of KL    %-22.12g max(-log|S|, -log a_0) = -C_bias\n"
           "  ... as printed  %-22.12g -log|S|, |S| the area of the sphere\n"
           "  phi'(1)         %.12g\n"
           "  phi''(1)        %.12g\n",
           k->bias, k->log_bias, k->mmd_norm, k->ksd_norm, k->kl_norm, k->kl_norm_paper,
           k->derivative, k->curvature);
    if (k->nodes > 0) printf("  quadrature      %d nodes\n", k->nodes);
}

/* The degrees that people look at: a page of them, around the largest share where that lies high,
 * without those at the end that hold next to nothing. */
static void print_spectrum(const portrait *p) {
    enum { PAGE = 24 };
    int degrees = p->constants.degrees, peak = 0, first, last;
    for (int l = 1; l < degrees; l++)
        if (zonal_kernel_weight(p->kernel, l) > zonal_kernel_weight(p->kernel, peak)) peak = l;
    first = peak > PAGE / 2 ? peak - PAGE / 2 : 0;
    last = first + PAGE < degrees ? first + PAGE - 1 : degrees - 1;
    while (last > peak && zonal_kernel_weight(p->kernel, last) < 1e-9) last--;
    printf("\nspectrum: %d degrees%s\n"
           "    l     eigenvalue          log N_l                  a_l\n",
           degrees, first > 0 || last + 1 < degrees ? ", of which (--json prints all)" : "");
    for (int l = first; l <= last; l++)
        printf("%5d %14.0f %16.9g %20.12g\n", l, eigenvalue(p, l),
               zonal_kernel_log_multiplicity(p->kernel, l), zonal_kernel_weight(p->kernel, l));
}

static void print_profile(const portrait *p) {
    printf("\nprofile\n      c %17s %17s %17s", "phi", "phi'", "phi''");
    printf(p->has_log ? " %17s\n" : "%s\n", p->has_log ? "log phi" : "");
    for (int64_t i = 0; i < p->points; i++) {
        printf("%7.4f %17.10g %17.10g %17.10g", p->c[i], p->phi[i], p->derivative[i], p->bend[i]);
        if (p->has_log) printf(" %17.10g", p->log_phi[i]);
        putchar('\n');
    }
    if (!p->has_log) printf("log phi does not exist: phi is not positive everywhere\n");
}

static void print_text(const portrait *p) {
    printf("%s kernel, d = %lld%s%s\n\n", zonal_family_name(p->spec.family), (long long)p->dim,
           p->parameter[0] ? ", " : "", p->parameter);
    print_constants(p);
    print_spectrum(p);
    print_profile(p);
}

static void print_csv(const portrait *p) {
    printf("c,phi,dphi,d2phi,log_phi\n");
    for (int64_t i = 0; i < p->points; i++) {
        printf("%.17g,%.17g,%.17g,%.17g,", p->c[i], p->phi[i], p->derivative[i], p->bend[i]);
        if (p->has_log) printf("%.17g", p->log_phi[i]);
        putchar('\n');
    }
}

static void put_constants(zonal__json *json, const portrait *p) {
    const zonal_kernel_constants *k = &p->constants;
    zonal__json_key(json, "constants");
    zonal__json_begin_object(json);
    zonal__json_key_double(json, "bias", k->bias);
    zonal__json_key_double(json, "log_bias", k->log_bias);
    zonal__json_key_double(json, "mmd_norm", k->mmd_norm);
    zonal__json_key_double(json, "ksd_norm", k->ksd_norm);
    zonal__json_key_double(json, "kl_norm", k->kl_norm);
    zonal__json_key_double(json, "kl_norm_paper", k->kl_norm_paper);
    zonal__json_key_double(json, "log_area", k->log_area);
    zonal__json_key_double(json, "derivative", k->derivative);
    zonal__json_key_double(json, "curvature", k->curvature);
    zonal__json_key_int(json, "degrees", k->degrees);
    zonal__json_key_int(json, "nodes", k->nodes);
    zonal__json_end_object(json);
}

static void put_spectrum(zonal__json *json, const portrait *p) {
    zonal__json_key(json, "spectrum");
    zonal__json_begin_array(json);
    for (int l = 0; l < p->constants.degrees; l++) {
        zonal__json_begin_object(json);
        zonal__json_key_int(json, "l", l);
        zonal__json_key_double(json, "eigenvalue", eigenvalue(p, l));
        zonal__json_key_double(json, "log_multiplicity",
                               zonal_kernel_log_multiplicity(p->kernel, l));
        zonal__json_key_double(json, "a", zonal_kernel_weight(p->kernel, l));
        zonal__json_end_object(json);
    }
    zonal__json_end_array(json);
}

static void put_profile(zonal__json *json, const portrait *p) {
    zonal__json_key(json, "profile");
    zonal__json_begin_array(json);
    for (int64_t i = 0; i < p->points; i++) {
        zonal__json_begin_object(json);
        zonal__json_key_double(json, "c", p->c[i]);
        zonal__json_key_double(json, "phi", p->phi[i]);
        zonal__json_key_double(json, "dphi", p->derivative[i]);
        zonal__json_key_double(json, "d2phi", p->bend[i]);
        zonal__json_key_double(json, "log_phi", p->has_log ? p->log_phi[i] : NAN);
        zonal__json_end_object(json);
    }
    zonal__json_end_array(json);
}

static zonal_status print_json(const portrait *p) {
    zonal__json json;
    zonal_status status;
    const char *text;
    zonal__json_init(&json, NULL);
    zonal__json_begin_object(&json);
    zonal__json_key_text(&json, "kernel", zonal_family_name(p->spec.family));
    zonal__json_key_int(&json, "d", p->dim);
    zonal__family_put_json(p->spec.family,
                           zonal__family_parameter(&p->spec, p->dim, ZONAL_DISCREPANCY_MMD), &json);
    put_constants(&json, p);
    put_spectrum(&json, p);
    put_profile(&json, p);
    zonal__json_end_object(&json);
    status = zonal__json_finish(&json, &text);
    if (status == ZONAL_OK) fputs(text, stdout);
    zonal__json_fini(&json);
    return status;
}

/* ---- plots ----------------------------------------------------------------------------------- */

static zonal_status draw(const char *path, const char *title, int64_t dim,
                         const zonal__svg_series *series, int count) {
    char subtitle[96];
    double low = 0;
    const zonal__svg_chart chart = {.title = title,
                                    .subtitle = subtitle,
                                    .x_label = "cosine c = x\xc2\xb7y",
                                    .y_label = "\xcf\x86(c)",
                                    .x_low = -1,
                                    .x_high = 1,
                                    .y_low = 0,
                                    .y_high = 1,
                                    .series = series,
                                    .series_count = count};
    zonal__svg_chart fitted = chart;
    snprintf(subtitle, sizeof subtitle,
             "normalised to \xcf\x86(1) = 1, on the unit sphere in %lld dimensions",
             (long long)dim);
    for (int s = 0; s < count; s++)
        for (int64_t i = 0; i < series[s].count; i++) low = fmin(low, series[s].y[i]);
    /* Odd degrees take a profile below zero; room for them comes in tenths. */
    if (low < -1e-9) fitted.y_low = floor(low * 10) / 10;
    return zonal__svg_write(path, &fitted);
}

/* Enough points for a line that looks smooth. */
enum { DRAWN = 401 };

static zonal_status draw_profile(const settings *s) {
    char title[160];
    portrait p;
    zonal_status status = portrait_init(&p, &s->kernel, s->dim, DRAWN);
    if (status == ZONAL_OK) {
        const zonal__svg_series series = {.count = DRAWN, .x = p.c, .y = p.phi};
        snprintf(title, sizeof title, "The %s kernel%s%s", zonal_family_name(p.spec.family),
                 p.parameter[0] ? ", " : "", p.parameter);
        status = draw(s->plot, title, s->dim, &series, 1);
    }
    portrait_fini(&p);
    return status;
}

/* The paper's Figure 3. */
static zonal_status draw_figure(const settings *s) {
    static const struct {
        zonal_family family;
        double t;
        const char *name;
    } list[] = {{ZONAL_FAMILY_HEAT, 4, "heat, t = 4/d"},
                {ZONAL_FAMILY_HEAT, 5, "heat, t = 5/d"},
                {ZONAL_FAMILY_HEAT, 6, "heat, t = 6/d"},
                {ZONAL_FAMILY_BAND, 0, "bandlimited, L = 2"},
                {ZONAL_FAMILY_INDUCED, 0, "induced by SUSReg"}};
    enum { COUNT = sizeof list / sizeof list[0] };
    portrait portraits[COUNT] = {{0}};
    zonal__svg_series series[COUNT];
    zonal_status status = ZONAL_OK;
    for (int i = 0; i < COUNT && status == ZONAL_OK; i++) {
        const zonal_kernel_spec kernel = {.family = list[i].family, .parameter = {list[i].t, -1}};
        status = portrait_init(&portraits[i], &kernel, s->dim, s->points);
        series[i] = (zonal__svg_series){
            .name = list[i].name, .count = s->points, .x = portraits[i].c, .y = portraits[i].phi};
    }
    if (status == ZONAL_OK)
        status = draw(s->figure, "Profiles of normalised zonal kernels", s->dim, series, COUNT);
    for (int i = 0; i < COUNT; i++) portrait_fini(&portraits[i]);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static zonal_status run(const settings *s) {
    portrait p;
    zonal_status status = portrait_init(&p, &s->kernel, s->dim, s->points);
    if (status == ZONAL_OK && s->plot) status = draw_profile(s);
    if (status == ZONAL_OK && s->json)
        status = print_json(&p);
    else if (status == ZONAL_OK && s->csv)
        print_csv(&p);
    else if (status == ZONAL_OK)
        print_text(&p);
    portrait_fini(&p);
    return status;
}

static void hint_at_unused(const settings *s, const zonal__options *options) {
    const zonal_loss_options loss = {.size = sizeof loss, .kernel.family = (zonal_family)s->family};
    char unused[200];
    zonal__loss_unused(&loss, options, unused, sizeof unused);
    if (unused[0])
        zonal__cli_say("hint: the %s kernel does not use %s",
                       zonal_family_name((zonal_family)s->family), unused);
}

int zonal__cli_kernel(int argc, char **argv) {
    settings s;
    zonal__options options;
    int status = zonal__cli_parse(&usage, table, &s, argc, argv, &options);
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (s.json && s.csv) return zonal__cli_misused("--json and --csv cannot be combined");
    if (s.figure && (s.json || s.csv || s.plot))
        return zonal__cli_misused("--figure draws one figure; leave out --json, --csv and --plot");
    status = zonal__cli_check_ending("--plot", s.plot, ".svg");
    if (status == ZONAL__EXIT_CONTINUE)
        status = zonal__cli_check_ending("--figure", s.figure, ".svg");
    if (status != ZONAL__EXIT_CONTINUE) return status;
    if (!s.figure) hint_at_unused(&s, &options);
    s.kernel = (zonal_kernel_spec){.family = (zonal_family)s.family};
    if (zonal__kernel_apply(&options, offsetof(settings, kernel), &s.kernel) != ZONAL_OK)
        return zonal__cli_failed();
    if (s.points == 0) s.points = s.json || s.csv || s.figure ? 201 : 21;
    if ((s.figure ? draw_figure(&s) : run(&s)) != ZONAL_OK) return zonal__cli_failed();
    return ZONAL__EXIT_OK;
}
