/* What is read from the environment of a launcher, and how rows are shared out. */
#include <stdlib.h>

#include "core/memory.h"
#include "dist/job.h"
#include "dist/launch.h"
#include "failing_alloc.h"
#include "test.h"

static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE",
                                        "PMIX_RANK",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "SLURM_PROCID",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_NODELIST",
                                        "SLURM_NTASKS",
                                        "SLURM_RESTART_COUNT",
                                        "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "TORCHELASTIC_USE_AGENT_STORE"};

static void clear(void) {
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
}

static void set_torch(const char *rank, const char *ranks) {
    setenv("RANK", rank, 1);
    setenv("WORLD_SIZE", ranks, 1);
    setenv("MASTER_ADDR", "node7", 1);
    setenv("MASTER_PORT", "4000", 1);
}

static void set_slurm(void) {
    setenv("SLURM_PROCID", "3", 1);
    setenv("SLURM_STEP_NUM_TASKS", "8", 1);
    setenv("SLURM_STEP_NODELIST", "gpu[07-09,12],big1", 1);
    setenv("SLURM_JOB_ID", "1234", 1);
    setenv("SLURM_STEP_ID", "2", 1);
}

static void test_launchers(void) {
    zonal__launch l;
    clear();
    CHECK_OK(zonal__launch_read(ZONAL__LAUNCHER_AUTO, NULL, &l));
    CHECK(l.launcher == ZONAL__LAUNCHER_NONE && l.ranks == 1);

    set_torch("1", "4");
    CHECK_OK(zonal__launch_read(ZONAL__LAUNCHER_AUTO, NULL, &l));
    CHECK(l.launcher == ZONAL__LAUNCHER_ENV && l.rank == 1 && l.ranks == 4 && l.port == 4000);
    CHECK(!strcmp(l.host, "node7") && !strcmp(l.run, "run-0"));

    /* torchrun keeps the port to itself. */
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    setenv("TORCHELASTIC_RUN_ID", "../my run", 1);
    setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
    CHECK_OK(zonal__launch_read(ZONAL__LAUNCHER_AUTO, NULL, &l));
    CHECK(l.port == 4001 && !strcmp(l.run, ".._my_run-2"));

    set_slurm();
    CHECK_OK(zonal__launch_read(ZONAL__LAUNCHER_SLURM, NULL, &l));
    CHECK(l.rank == 3 && l.ranks == 8 && l.port == 4000 && !strcmp(l.host, "gpu07"));
    CHECK(!strcmp(l.run, "1234.2-0"));

    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    CHECK_OK(zonal__launch_read(ZONAL__LAUNCHER_AUTO, NULL, &l));
    CHECK(l.launcher == ZONAL__LAUNCHER_MPI && l.ranks == 2);
    clear();
}

static void test_alone(void) {
    zonal__launch l;
    clear();
    setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    CHECK_OK(zonal__launch_read(ZONAL__LAUNCHER_AUTO, NULL, &l));
    CHECK(l.launcher == ZONAL__LAUNCHER_NONE);
    clear();
    set_torch("0", "1");
    CHECK_OK(zonal__launch_read(ZONAL__LAUNCHER_ENV, NULL, &l));
    CHECK(l.launcher == ZONAL__LAUNCHER_NONE);
    clear();
    /* A batch script, which is one process, has these; what srun starts has a step. */
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "8", 1);
    setenv("SLURM_JOB_ID", "5", 1);
    CHECK_OK(zonal__launch_read(ZONAL__LAUNCHER_AUTO, NULL, &l));
    CHECK(l.launcher == ZONAL__LAUNCHER_NONE);
    clear();
}

static void test_refused(void) {
    zonal__launch l;
    clear();
    CHECK_FAILS(zonal__launch_read(ZONAL__LAUNCHER_ENV, NULL, &l), ZONAL_ARGUMENT, "WORLD_SIZE");
    set_torch("4", "4");
    CHECK_FAILS(zonal__launch_read(ZONAL__LAUNCHER_AUTO, NULL, &l), ZONAL_ARGUMENT, "from 0 to 3");
    set_torch("-1", "4");
    CHECK_FAILS(zonal__launch_read(ZONAL__LAUNCHER_AUTO, NULL, &l), ZONAL_ARGUMENT, "RANK");
    set_torch("0", "99999999");
    CHECK_FAILS(zonal__launch_read(ZONAL__LAUNCHER_AUTO, NULL, &l), ZONAL_ARGUMENT, "WORLD_SIZE");
    set_torch("0", "2");
    unsetenv("MASTER_ADDR");
    CHECK_FAILS(zonal__launch_read(ZONAL__LAUNCHER_AUTO, NULL, &l), ZONAL_ARGUMENT, "MASTER_ADDR");
    CHECK_OK(zonal__launch_read(ZONAL__LAUNCHER_AUTO, "folder", &l)); /* a file will tell */
    CHECK(!strcmp(l.rendezvous, "folder") && l.host[0] == '\0' && l.port == 0);
    clear();
}

static void test_nodes(void) {
    static const char *const good[][2] = {{"a", "a"},
                                          {"a,b", "a"},
                                          {"n[1-4]", "n1"},
                                          {"n[007,9-12],m", "n007"},
                                          {"n[3]-ib,n[4]-ib", "n3-ib"},
                                          {"r[1-2]n[05-06]", "r1n05"}};
    static const char *const bad[] = {"", ",a", "n[1-4", "[]", "[-3]"};
    char name[64], tiny[4];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK_OK(zonal__launch_first_node(good[i][0], name, sizeof name));
        CHECK_MSG(!strcmp(name, good[i][1]), "%s gives %s", good[i][0], name);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_FAILS(zonal__launch_first_node(bad[i], name, sizeof name), ZONAL_ARGUMENT, "nodes");
    CHECK_FAILS(zonal__launch_first_node("longer", tiny, sizeof tiny), ZONAL_ARGUMENT, "nodes");
}

/* All rows once, in order, and no rank has two more than another. */
static void test_shares(void) {
    for (int64_t rows = 0; rows < 40; rows++)
        for (int ranks = 1; ranks < 9; ranks++) {
            int64_t next = 0;
            for (int r = 0; r < ranks; r++) {
                int64_t first, count;
                zonal__job_share(rows, ranks, r, &first, &count);
                CHECK(first == next && count >= rows / ranks && count <= rows / ranks + 1);
                next = first + count;
            }
            CHECK(next == rows);
        }
}

static zonal_status open_alone(void *context) {
    zonal__job *job;
    int any;
    char *text;
    ZONAL_TRY(zonal__job_open(context, &job));
    zonal_status status = zonal__job_text(job, "words", &text);
    if (status == ZONAL_OK) CHECK(!strcmp(text, "words"));
    zonal__free(text);
    CHECK(zonal__job_count(job) == 1 && zonal__job_rank(job) == 0 && !zonal__job_host(job));
    CHECK(zonal__job_any(job, 1, &any) == ZONAL_OK && any == 1);
    CHECK(zonal__job_all(job, status) == status && zonal__job_speaks(job, status));
    CHECK(zonal__job_same(job, NULL, 0) == ZONAL_OK);
    zonal__job_alive(job);
    zonal__job_close(job, status);
    return status;
}

static void test_job_alone(void) {
    zonal__job_options options = {.timeout = 60};
    clear();
    test_every_allocation("a job", open_alone, &options);
}

static const test_case tests[] = {{"launchers", test_launchers},
                                  {"alone", test_alone},
                                  {"refused", test_refused},
                                  {"nodes", test_nodes},
                                  {"shares", test_shares},
                                  {"job_alone", test_job_alone},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
