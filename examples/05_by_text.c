/*
 * A plan from texts alone, as a binding in another language makes one: no struct is known here,
 * only functions, numbers and texts.
 *
 *     cc 05_by_text.c $(pkg-config --cflags --libs zonal) -lm -o 05_by_text
 */
#include <stdio.h>

#include <zonal/zonal.h>

static int fail(void) {
    fprintf(stderr, "05_by_text: %s\n", zonal_last_error()->message);
    return 1;
}

int main(int argc, char **argv) {
    const char *method = argc > 1 ? argv[1] : "mmd-heat";
    const char *options = argc > 2 ? argv[2] : "t=3/d,precision=double";
    static const double x[4][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1}};
    zonal_plan *plan;
    double value, gradient[4][3];

    if (zonal_plan_make(method, options, 4, 3, &plan) != ZONAL_OK) return fail();
    for (int i = 0; zonal_plan_info_name(i); i++) {
        const char *name = zonal_plan_info_name(i), *text;
        double number;
        if (zonal_plan_get(plan, name, &number) == ZONAL_OK)
            printf("%-15s %.6g\n", name, number);
        else if (zonal_plan_get_text(plan, name, &text) == ZONAL_OK)
            printf("%-15s %s\n", name, text);
    }
    if (zonal_plan_execute(plan, x, &value, gradient) != ZONAL_OK) return fail();
    printf("D = %.9f\n", value);
    zonal_plan_destroy(plan);

    printf("\noptions\n");
    for (int i = 0; zonal_loss_option_name(i); i++)
        printf("  %-21s %s\n", zonal_loss_option_name(i), zonal_loss_option_help(i));
    return 0;
}
