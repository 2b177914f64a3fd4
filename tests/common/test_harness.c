/*
 * The harness tests itself. A check that ought to fail cannot be tried in the process that reports
 * it, so this program starts itself again with "--probe NAME" and looks at the exit status and at
 * what was printed. "--canary" runs one test that fails: CTest expects that (WILL_FAIL).
 */
#include "test.h"

#include <stdlib.h>
#include <sys/wait.h>

static const char *program;

/* ---- probes: each is run alone, in a child ---- */

static zonal_status refuses(void) {
    return ZONAL_ARGUMENT;
}

static volatile int yes = 1; /* not a constant, which compilers would remark on */

static void probe_true(void) {
    CHECK(yes);
}
static void probe_false(void) {
    CHECK(!yes);
}
static void probe_close(void) {
    CHECK_CLOSE(1.0, 1.25, 0.25);
}
static void probe_far(void) {
    CHECK_CLOSE(1.0, 1.25, 0.24);
}
static void probe_nan_got(void) {
    CHECK_CLOSE((double)NAN, 1.0, 1.0);
}
static void probe_nan_want(void) {
    CHECK_CLOSE(1.0, (double)NAN, 1.0);
}
static void probe_nan_both(void) {
    CHECK_CLOSE((double)NAN, (double)NAN, 1.0);
}
static void probe_nan_tolerance(void) {
    CHECK_CLOSE(1.0, 2.0, (double)NAN);
}
static void probe_inf_got(void) {
    CHECK_CLOSE((double)INFINITY, 1.0, 1e300);
}
static void probe_inf_sign(void) {
    CHECK_CLOSE((double)INFINITY, -(double)INFINITY, 1e300);
}
static void probe_inf_same(void) {
    CHECK_CLOSE((double)INFINITY, (double)INFINITY, 0.0);
}
static void probe_array(void) {
    const double got[3] = {1, 2, 3}, want[3] = {1, 2, 3.5};
    CHECK_ARRAY(3, got, want, 0.5);
}
static void probe_array_far(void) {
    const double got[3] = {1, 2, 3}, want[3] = {1, 2, 3.5};
    CHECK_ARRAY(3, got, want, 0.25);
}
static void probe_array_nan(void) {
    const double got[3] = {1, NAN, 3}, want[3] = {1, 2, 3};
    CHECK_ARRAY(3, got, want, 1e300);
}
static void probe_array_empty(void) {
    const double nothing[1] = {0};
    CHECK_ARRAY(0, nothing, nothing, 1.0);
}
static void probe_norm(void) {
    const double got[2] = {3, 4}, want[2] = {3, 4.5};
    CHECK_NORM(2, got, want, 0.1);
}
static void probe_norm_far(void) {
    const double got[2] = {3, 4}, want[2] = {3, 4.5};
    CHECK_NORM(2, got, want, 0.09);
}
static void probe_norm_nan(void) {
    const double got[2] = {3, NAN}, want[2] = {3, 4};
    CHECK_NORM(2, got, want, 1e300);
}
static void probe_norm_empty(void) {
    const double nothing[1] = {0};
    CHECK_NORM(0, nothing, nothing, 1.0);
}
static void probe_status(void) {
    CHECK_OK(refuses());
}
static void probe_status_other(void) {
    CHECK_FAILS(refuses(), ZONAL_MEMORY, "");
}
static void probe_status_text(void) {
    CHECK_FAILS(refuses(), ZONAL_ARGUMENT, "words that nobody recorded");
}
static void probe_status_right(void) {
    CHECK_FAILS(refuses(), ZONAL_ARGUMENT, "");
}
static void probe_skip(void) {
    SKIP("there is no reason");
}
static void probe_skip_late(void) { /* a failure before the skip stays a failure */
    CHECK(!yes);
    SKIP("too late");
}
static void probe_flood(void) {
    for (int i = 0; i < 1000; i++) CHECK_MSG(0, "flooded %d", i);
}
static void probe_crash(void) {
    abort();
}

/* What the child must do: its exit status, a closing line, a piece of text. */
typedef struct probe {
    const char *name; /* between bars, since the harness selects by a part of the name */
    void (*run)(void);
    int exit_status;
    const char *text;
} probe;

#define GOOD "1 passed, 0 failed, 0 skipped\n"
#define BAD  "0 passed, 1 failed, 0 skipped\n"

static const probe probes[] = {
    {"|true|", probe_true, 0, GOOD},
    {"|false|", probe_false, 1, BAD},
    {"|close|", probe_close, 0, GOOD},
    {"|far|", probe_far, 1, "off by 0.25, allowed 0.24"},
    {"|nan_got|", probe_nan_got, 1, BAD},
    {"|nan_want|", probe_nan_want, 1, BAD},
    {"|nan_both|", probe_nan_both, 1, BAD},
    {"|nan_tolerance|", probe_nan_tolerance, 1, BAD},
    {"|inf_got|", probe_inf_got, 1, BAD},
    {"|inf_sign|", probe_inf_sign, 1, BAD},
    {"|inf_same|", probe_inf_same, 0, GOOD},
    {"|array|", probe_array, 0, GOOD},
    {"|array_far|", probe_array_far, 1, "got[2] = 3"},
    {"|array_nan|", probe_array_nan, 1, "got[1] = "},
    {"|array_empty|", probe_array_empty, 1, "is empty"},
    {"|norm|", probe_norm, 0, GOOD},
    {"|norm_far|", probe_norm_far, 1, BAD},
    {"|norm_nan|", probe_norm_nan, 1, BAD},
    {"|norm_empty|", probe_norm_empty, 1, BAD},
    {"|status|", probe_status, 1, BAD},
    {"|status_other|", probe_status_other, 1, "returned ARGUMENT, want MEMORY"},
    {"|status_text|", probe_status_text, 1, BAD},
    {"|status_right|", probe_status_right, 0, GOOD},
    {"|skip|", probe_skip, 77, "0 passed, 0 failed, 1 skipped\n"},
    {"|skip_late|", probe_skip_late, 1, BAD},
    {"|flood|", probe_flood, 1, "flooded 19"},
    {"|crash|", probe_crash, -1, "# seed"},
};
enum { PROBES = sizeof probes / sizeof *probes };

static int run_probes(int argc, char **argv) {
    test_case cases[PROBES + 1] = {0};
    for (int i = 0; i < PROBES; i++) cases[i] = (test_case){probes[i].name, probes[i].run};
    return test_main(argc, argv, cases);
}

/* Runs "this program + arguments", keeps the first part of its output; -1 for a death by signal. */
static int child(const char *arguments, char *output, size_t size) {
    char command[4096], rest[512];
    /* The shell of popen prints a line of its own when the child crashes: not of interest. */
    snprintf(command, sizeof command, "exec 2>/dev/null; exec '%s' %s", program, arguments);
    FILE *pipe = popen(command, "r");
    if (!pipe) return -2;
    size_t used = fread(output, 1, size - 1, pipe);
    output[used] = 0;
    while (fread(rest, 1, sizeof rest, pipe) > 0) continue;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- the tests ---- */

static void test_checks(void) {
    char arguments[256], output[8192];
    for (int i = 0; i < PROBES; i++) {
        const probe *p = &probes[i];
        snprintf(arguments, sizeof arguments, "--probe '%s'", p->name);
        int status = child(arguments, output, sizeof output);
        CHECK_MSG(status == p->exit_status, "probe %s exits with %d, want %d", p->name, status,
                  p->exit_status);
        CHECK_MSG(strstr(output, p->text) != NULL, "probe %s prints \"%s\", want \"%s\" in it",
                  p->name, output, p->text);
    }
}

static void test_flood_is_cut(void) {
    char output[65536];
    child("--probe '|flood|'", output, sizeof output);
    CHECK(strstr(output, "flooded 20") == NULL);
}

static void test_place_is_named(void) {
    char output[8192];
    child("--probe '|false|'", output, sizeof output);
    CHECK(strstr(output, "test_harness.c:") != NULL);
    CHECK(strstr(output, "not ok 1 - |false|") != NULL);
}

static void test_counts(void) {
    char output[8192];
    /* |status| alone, then all four whose names begin with "status". */
    CHECK(child("--probe status", output, sizeof output) == 1);
    CHECK(strstr(output, "1 passed, 3 failed, 0 skipped\n") != NULL);
    /* Passes and skips together are a success. */
    CHECK(child("--probe '|array|'", output, sizeof output) == 0);
    CHECK(strstr(output, "1..1\n") != NULL);
}

static void test_nothing_matches(void) {
    char output[8192];
    CHECK_MSG(child("--probe nobody-has-this-name", output, sizeof output) == 1,
              "a filter that matches nothing must not look like a success");
}

static void test_list(void) {
    char output[8192];
    CHECK(child("--probe --list", output, sizeof output) == 0);
    CHECK(strstr(output, "|nan_got|\n") != NULL);
    CHECK(strstr(output, "passed") == NULL);
}

static void test_seeds(void) {
    char output[8192];
    child("--probe '|true|' --seed 41", output, sizeof output);
    CHECK(strstr(output, "# seed 41\n") != NULL);
    setenv("ZONAL_TEST_SEED", "42", 1);
    child("--probe '|true|'", output, sizeof output);
    unsetenv("ZONAL_TEST_SEED");
    CHECK(strstr(output, "# seed 42\n") != NULL);
}

static const test_case tests[] = {
    {"checks", test_checks},
    {"flood_is_cut", test_flood_is_cut},
    {"place_is_named", test_place_is_named},
    {"counts", test_counts},
    {"nothing_matches", test_nothing_matches},
    {"list", test_list},
    {"seeds", test_seeds},
    {0},
};

static const test_case canary[] = {{"must_fail", probe_nan_got}, {0}};

int main(int argc, char **argv) {
    program = argv[0];
    if (argc > 1 && strcmp(argv[1], "--probe") == 0) return run_probes(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "--canary") == 0) return test_main(1, argv, canary);
    return test_main(argc, argv, tests);
}
