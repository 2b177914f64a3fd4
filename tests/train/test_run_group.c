/*
 * Which runs are averaged: nothing but the seed may differ, and the configuration decides.
 */
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"
#include "train/run_group.h"

static const char base[] = "data = \"/data/a#b \\\"c\\\"\"   # --data\n"
                           "method = \"mmd-heat\"                   # default\n"
                           "lr = 0.001                              # recipes/x.toml:3\n";

/* A configuration of the common lines, a seed and others. */
static int read_run(test_folder *folder, const char *common, int seed, const char *more,
                    zonal__run_settings *settings) {
    const char *path = test_folder_file(folder, "config.toml");
    FILE *file = fopen(path, "w");
    if (!CHECK(file != NULL)) return 0;
    fprintf(file, "# a remark\n%sseed = %d   # --seed\n%s", common, seed, more);
    fclose(file);
    return CHECK_OK(zonal__run_settings_read(path, settings));
}

static void test_settings(void) {
    test_folder folder;
    zonal__run_settings s;
    if (!CHECK(test_folder_make(&folder)) || !read_run(&folder, base, 3, "graph = true", &s))
        return;
    CHECK(s.count == 5);
    CHECK(strcmp(zonal__run_settings_of(&s, "data"), "/data/a#b \"c\"") == 0);
    CHECK(strcmp(zonal__run_settings_of(&s, "seed"), "3") == 0);
    CHECK(strcmp(s.at[2].source, "recipes/x.toml:3") == 0 && strcmp(s.at[4].source, "") == 0);
    CHECK(strcmp(zonal__run_settings_of(&s, "graph"), "true") == 0);
    CHECK(!zonal__run_settings_of(&s, "batch"));
    zonal__run_settings_fini(&s);
    remove(test_folder_file(&folder, "config.toml"));
    CHECK_FAILS(zonal__run_settings_read(folder.name, &s), ZONAL_IO, "config.toml");
    rmdir(folder.path);
}

/* One pair of runs: are they samples of one thing, and what is said of them if not. */
static void check_pair(const char *common, const char *one, const char *other, const char *said) {
    test_folder folder;
    zonal__run_settings a, b;
    char text[200];
    if (!CHECK(test_folder_make(&folder))) return;
    if (read_run(&folder, base, 0, one, &a) && read_run(&folder, common, 1, other, &b)) {
        const zonal__run_sample runs[] = {{.settings = &a, .step = 10},
                                          {.settings = &b, .step = 10}};
        zonal__run_place places[2];
        zonal__run_group(2, runs, places);
        zonal__run_difference(&runs[0], &runs[1], text, sizeof text);
        CHECK_MSG(strcmp(text, said) == 0, "said \"%s\", not \"%s\"", text, said);
        CHECK_MSG(places[1].group == (said[0] ? 1 : 0), "%s", said);
        CHECK(places[0].group == 0 && !places[0].repeats && !places[1].repeats);
        zonal__run_settings_fini(&a);
        zonal__run_settings_fini(&b);
    }
    remove(test_folder_file(&folder, "config.toml"));
    rmdir(folder.path);
}

static void test_differences(void) {
    check_pair(base, "", "", "");
    check_pair(base, "threads = 1\ndevice = \"cpu\"\n",
               "threads = 8\ndevice = \"cuda\"\nlog-every = 50\nkeep = 9\n", "");
    check_pair(base, "tensorboard = false\n", "tensorboard = true\n", "");
    check_pair(base, "lambda = 0.05\n", "lambda = 0.5\n", "lambda (0.05 and 0.5)");
    check_pair(base, "batch = 64\n", "", "batch (64 and not given)");
    check_pair(base, "", "batch = 64\n", "batch (not given and 64)");
    check_pair(base, "data-seed = 0\n", "data-seed = 1\n", "data-seed (0 and 1)");
    check_pair(base, "precision = \"fp32\"\n", "precision = \"bf16\"\n",
               "precision (fp32 and bf16)");
    check_pair("method = \"mmd-heat\"\nlr = 0.001\ndata = \"/data/other\"\n", "", "",
               "data (/data/a#b \"c\" and /data/other)");
    check_pair(base, "a = 1\nb = 1\nc = 1\nd = 1\n", "a = 2\nb = 2\nc = 2\nd = 2\ne = 2\n",
               "a (1 and 2), b (1 and 2), c (1 and 2) and 2 more settings");
    /* A longer run from the start is another one than a run that was made longer. */
    check_pair(base, "epochs = 9\nsteps = 45 # --steps\n",
               "epochs = 9  # --resume at step 30; 30 steps before\n"
               "steps = 45  # --resume at step 30; 30 steps before\n",
               "steps (45 and 45 by --resume at step 30; 30 steps before)");
    check_pair(base, "epochs = 9  # --resume at step 30; 50 steps before\nsteps = 0\n",
               "epochs = 9\nsteps = 0\n",
               "epochs (9 by --resume at step 30; 50 steps before and 9)");
    check_pair(base, "steps = 45  # --resume at step 30; 30 steps before\n",
               "steps = 45  # --resume at step 30; 30 steps before\n", "");
    check_pair(base, "steps = 45  # --resume at step 0; 30 steps before\n", "steps = 45\n", "");
}

/* Data that has moved is the same data, if both runs have recorded it and the records agree. */
static void test_moved_data(void) {
    test_folder folder;
    zonal__run_settings a, b;
    if (!CHECK(test_folder_make(&folder))) return;
    if (read_run(&folder, "data = \"/x\"\nlr = 1\n", 0, "", &a) &&
        read_run(&folder, "data = \"/y\"\nlr = 1\n", 1, "", &b)) {
        static const char *const records[][2] = {
            {NULL, NULL}, {"1 2", NULL}, {"1 2", "1 3"}, {"1 2", "1 2"}};
        for (int i = 0; i < 4; i++) {
            const zonal__run_sample runs[] = {{&a, 10, records[i][0]}, {&b, 10, records[i][1]}};
            zonal__run_place places[2];
            zonal__run_group(2, runs, places);
            CHECK_MSG(places[1].group == (i == 3 ? 0 : 1), "records %d", i);
        }
        zonal__run_settings_fini(&a);
        zonal__run_settings_fini(&b);
    }
    remove(test_folder_file(&folder, "config.toml"));
    rmdir(folder.path);
}

/* Six runs: seeds 0 and 1; seed 1 again; another rate; the first's group once more; too short. */
static void test_places(void) {
    static const struct {
        int seed;
        const char *more;
        int64_t step, group;
        int repeats;
    } run[] = {{0, "", 10, 0, 0},           {1, "", 10, 0, 0}, {1, "threads = 2\n", 10, 0, 1},
               {0, "clip = 1\n", 10, 3, 0}, {2, "", 10, 0, 0}, {3, "", 5, 5, 0}};
    enum { RUNS = sizeof run / sizeof run[0] };
    test_folder folder;
    zonal__run_settings settings[RUNS] = {{0}};
    zonal__run_sample samples[RUNS];
    zonal__run_place places[RUNS];
    char text[200];
    if (!CHECK(test_folder_make(&folder))) return;
    for (int i = 0; i < RUNS; i++) {
        if (!read_run(&folder, base, run[i].seed, run[i].more, &settings[i])) return;
        samples[i] = (zonal__run_sample){.settings = &settings[i], .step = run[i].step};
    }
    zonal__run_group(RUNS, samples, places);
    for (int i = 0; i < RUNS; i++)
        CHECK_MSG(places[i].group == run[i].group && places[i].repeats == run[i].repeats,
                  "run %d: group %d, repeats %d", i, (int)places[i].group, places[i].repeats);
    zonal__run_difference(&samples[0], &samples[5], text, sizeof text);
    CHECK(strcmp(text, "the steps done (10 and 5)") == 0);
    zonal__run_difference(&samples[3], &samples[5], text, 12); /* cut off, and ended */
    CHECK(strcmp(text, "clip (1 and") == 0);
    for (int i = 0; i < RUNS; i++) zonal__run_settings_fini(&settings[i]);
    remove(test_folder_file(&folder, "config.toml"));
    rmdir(folder.path);
}

static zonal_status read_and_drop(void *path) {
    zonal__run_settings s;
    ZONAL_TRY(zonal__run_settings_read(path, &s));
    zonal__run_settings_fini(&s);
    return ZONAL_OK;
}

static void test_memory(void) {
    test_folder folder;
    zonal__run_settings s;
    if (!CHECK(test_folder_make(&folder)) || !read_run(&folder, base, 0, "", &s)) return;
    zonal__run_settings_fini(&s);
    test_every_allocation("a run's settings", read_and_drop, folder.name);
    remove(test_folder_file(&folder, "config.toml"));
    rmdir(folder.path);
}

static const test_case tests[] = {
    {"settings", test_settings}, {"differences", test_differences}, {"moved_data", test_moved_data},
    {"places", test_places},     {"memory", test_memory},           {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
