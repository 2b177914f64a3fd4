#include "dist/launch.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"
#include "dist/job.h"

enum { MOST_RANKS = 1 << 20 };

/* A variable that must be there, as the texts of "who" say. */
static zonal_status get_text(const char *name, const char *who, const char **out) {
    *out = getenv(name);
    if (*out && (*out)[0]) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "%s is not set: %s sets it for every rank, or set it yourself", name, who);
}

static zonal_status get_number(const char *name, const char *who, int least, int most, int *out) {
    const char *text;
    int64_t number;
    ZONAL_TRY(get_text(name, who, &text));
    ZONAL_TRY(zonal__text_int64(text, name, &number));
    if (number < least || number > most)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "%s must be from %d to %d, got %s", name, least, most,
                          text);
    *out = (int)number;
    return ZONAL_OK;
}

/* A variable that counts ranks, where it is there and counts more than one. */
static int several(const char *name) {
    const char *text = getenv(name);
    return text && strtol(text, NULL, 10) > 1;
}

static int is_set(const char *name) {
    return getenv(name) != NULL;
}

/* ---- mpirun ---------------------------------------------------------------------------------- */

/* How many ranks mpirun has started; 0 where it does not say. */
static int mpi_ranks(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (is_set(names[i])) return (int)strtol(getenv(names[i]), NULL, 10);
    return 0;
}

static int by_mpi(void) {
    return (is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK") || is_set("PMI_RANK")) &&
           mpi_ranks() != 1;
}

/* ---- torchrun's variables -------------------------------------------------------------------- */

static zonal_status read_address(zonal__launch *out) {
    const char *who = "torchrun", *host, *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    ZONAL_TRY(get_text("MASTER_ADDR", who, &host));
    if (strlen(host) >= sizeof out->host)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "MASTER_ADDR is too long for the name of a host");
    strcpy(out->host, host);
    ZONAL_TRY(get_number("MASTER_PORT", who, 1, 65534, &out->port));
    /* torchrun itself listens at the port, for PyTorch; the next one is ours. */
    if (agent && strcmp(agent, "True") == 0) out->port++;
    return ZONAL_OK;
}

/* Names of runs come from outside and become parts of names of files. */
static void name_run(zonal__launch *out, const char *run, const char *part, const char *restart) {
    out->run[0] = '\0';
    zonal__text_append(out->run, sizeof out->run, "%.80s%s%.16s-%.16s", run ? run : "run",
                       part ? "." : "", part ? part : "", restart ? restart : "0");
    for (char *c = out->run; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", *c))
            *c = '_';
}

static zonal_status read_env(zonal__launch *out) {
    ZONAL_TRY(get_number("WORLD_SIZE", "torchrun", 1, MOST_RANKS, &out->ranks));
    ZONAL_TRY(get_number("RANK", "torchrun", 0, out->ranks - 1, &out->rank));
    name_run(out, getenv("TORCHELASTIC_RUN_ID"), NULL, getenv("TORCHELASTIC_RESTART_COUNT"));
    return out->rendezvous[0] ? ZONAL_OK : read_address(out);
}

/* ---- Slurm's --------------------------------------------------------------------------------- */

zonal_status zonal__launch_first_node(const char *list, char *out, size_t size) {
    size_t length = 0;
    int inside = 0, skip = 0; /* in brackets, and behind their first entry */
    for (; *list && (inside || *list != ','); list++) {
        if (*list == '[' && !inside)
            inside = 1, skip = 0;
        else if (*list == ']' && inside)
            inside = 0;
        else if (inside && (*list == ',' || *list == '-'))
            skip = 1;
        else if (!inside || !skip) {
            if (length + 1 >= size) break;
            out[length++] = *list;
        }
    }
    out[length] = '\0';
    if (inside || length == 0 || length + 1 >= size)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "SLURM_STEP_NODELIST is not a list of nodes");
    return ZONAL_OK;
}

/* A port that jobs on one machine are unlikely to share, below those that Linux gives away. */
static int choose_port(const char *job, const char *step) {
    long number = strtol(job, NULL, 10) * 7 + strtol(step ? step : "0", NULL, 10);
    return 20000 + (int)((unsigned long)number % 12000);
}

static zonal_status read_slurm(zonal__launch *out) {
    const char *who = "srun", *nodes, *job, *step = getenv("SLURM_STEP_ID");
    ZONAL_TRY(get_number("SLURM_STEP_NUM_TASKS", who, 1, MOST_RANKS, &out->ranks));
    ZONAL_TRY(get_number("SLURM_PROCID", who, 0, out->ranks - 1, &out->rank));
    ZONAL_TRY(get_text("SLURM_JOB_ID", who, &job));
    name_run(out, job, step, getenv("SLURM_RESTART_COUNT"));
    if (out->rendezvous[0]) return ZONAL_OK;
    ZONAL_TRY(get_text("SLURM_STEP_NODELIST", who, &nodes));
    ZONAL_TRY(zonal__launch_first_node(nodes, out->host, sizeof out->host));
    out->port = choose_port(job, step);
    return is_set("MASTER_PORT") ? get_number("MASTER_PORT", who, 1, 65535, &out->port) : ZONAL_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int find_launcher(void) {
    if (by_mpi()) return ZONAL__LAUNCHER_MPI;
    if (is_set("RANK") && several("WORLD_SIZE")) return ZONAL__LAUNCHER_ENV;
    /* A batch script has no step: what srun starts in it has. */
    if (is_set("SLURM_PROCID") && several("SLURM_STEP_NUM_TASKS")) return ZONAL__LAUNCHER_SLURM;
    return ZONAL__LAUNCHER_NONE;
}

zonal_status zonal__launch_read(int launcher, const char *rendezvous, zonal__launch *out) {
    *out = (zonal__launch){.launcher = launcher, .ranks = 1};
    if (launcher == ZONAL__LAUNCHER_AUTO) out->launcher = find_launcher();
    if (rendezvous) {
        if (strlen(rendezvous) >= sizeof out->rendezvous)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "--rendezvous: the folder's name is too long");
        strcpy(out->rendezvous, rendezvous);
    }
    if (out->launcher == ZONAL__LAUNCHER_MPI) out->ranks = mpi_ranks();
    if (out->launcher == ZONAL__LAUNCHER_ENV) ZONAL_TRY(read_env(out));
    if (out->launcher == ZONAL__LAUNCHER_SLURM) ZONAL_TRY(read_slurm(out));
    if (out->ranks == 1) out->launcher = ZONAL__LAUNCHER_NONE;
    return ZONAL_OK;
}
