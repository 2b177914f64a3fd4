/*
 * The program: chooses the subcommand, and sees to signals and to what becomes of the output.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "cli/common/cli.h"
#include "cli/common/man.h"
#include "cli/common/progress.h"
#include "cli/data/data.h"
#include "cli/eval/model_card.h"
#include "core/file.h"
#include "core/text.h"
#include "core/thread.h"

static const zonal__cli_part commands[] = {
    {"loss", "a uniformity loss of an embedding file, and its gradient", zonal__cli_loss, NULL},
    {"test", "is an embedding file uniform or collapsed? With p-values", zonal__cli_test, NULL},
    {"kernel", "profile, constants and spectrum of a kernel", zonal__cli_kernel, NULL},
    {"variance", "the noise of the sliced loss against its exact limit", zonal__cli_variance, NULL},
    {"sample", "write embeddings of a known distribution, to try things on", zonal__cli_sample,
     NULL},
    {"data", "make textures, describe a data set, pack it into one file", zonal__cli_data,
     zonal__data_parts},
    {"train", "pretrain a network on images, in a run that can be resumed", zonal__cli_train, NULL},
    {"eval", "how good the features of a trained network are", zonal__cli_eval, NULL},
    {"embed", "the features of images, as .npy files", zonal__cli_embed, NULL},
    {"export", "the backbone of a run, for torchvision", zonal__cli_export, NULL},
    {"metrics", "the metrics of a run: a summary, CSV or JSON", zonal__cli_metrics, NULL},
    {"report", "runs side by side on one page: tables, curves, images", zonal__cli_report, NULL},
    {"reproduce", "the paper's tables and figures", zonal__cli_reproduce, NULL},
    {"devices", "the processor and the GPUs that can compute here", zonal__cli_devices, NULL},
    {"bench", "how long losses and training take, also in PyTorch", zonal__cli_bench,
     zonal__bench_parts},
    {0}};
enum { COMMANDS = sizeof commands / sizeof commands[0] - 1 };

static void print_overview(FILE *stream) {
    fputs("usage: zonal COMMAND [arguments] [options]\n\n"
          "Keeps embeddings uniform on the unit sphere: exact losses with gradients, tests\n"
          "of uniformity, training on images and evaluation.\n\ncommands:\n",
          stream);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(stream, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\n\"zonal COMMAND --help\" explains one command; \"zonal --version\" prints "
          "the\nversion and, where it is known, the commit.\n",
          stream);
}

static int fail_unknown(const char *name) {
    const char *names[COMMANDS + 1] = {0}, *near;
    for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    near = zonal__text_nearest(name, names);
    if (near) return zonal__cli_misused("there is no command %s; did you mean %s?", name, near);
    return zonal__cli_misused("there is no command %s; \"zonal --help\" lists the commands", name);
}

static int run_command(int argc, char **argv) {
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, argv[0]) == 0) return commands[i].run(argc, argv);
    return fail_unknown(argv[0]);
}

static int run(int argc, char **argv);
static const zonal__cli_part whole = {
    "zonal", "uniform embeddings: exact losses, tests and training", run, commands};

static int run(int argc, char **argv) {
    const char *first = argc > 1 ? argv[1] : "";
    if (argc < 2) {
        print_overview(stderr);
        return ZONAL__EXIT_USAGE;
    }
    if (strcmp(first, "--version") == 0) {
        printf("zonal %s%s%s\n", zonal_version(), zonal__commit[0] ? ", commit " : "",
               zonal__commit);
        return ZONAL__EXIT_OK;
    }
    if (strcmp(first, "help") == 0 && argc > 2) {
        char *help[] = {argv[2], "--help", NULL};
        return run_command(2, help);
    }
    if (strcmp(first, "help") == 0 || strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) {
        print_overview(stdout);
        return ZONAL__EXIT_OK;
    }
    if (strcmp(first, "man") == 0) return zonal__cli_man(&whole, argc - 1, argv + 1);
    if (first[0] == '-')
        return zonal__cli_misused("options follow the command: zonal COMMAND %s; \"zonal --help\" "
                                  "lists the commands",
                                  first);
    return run_command(argc - 1, argv + 1);
}

/* ---- the surroundings ------------------------------------------------------------------------ */

/* Libraries read their settings before main, so the program begins once more with those that it
 * wants, unless the user has chosen. What is set is set for good: it does not begin a third time.
 *
 * A network, and a loss on a thousand small batches, is thousands of short parallel loops, between
 * which OpenMP's threads spin. On processors that others use as well they spin away each other's
 * time: training took ten times as long, and "test --mc" eight. Threads that sleep instead cost
 * nothing that could be measured on two cores. What measures times shows those of the library as it
 * comes.
 *
 * CUDA puts the streams of a program into 8 queues of the GPU, and those of its JPEG decoders then
 * stand behind a training step: files took 23 ms to decode instead of 9 (results/data.md). It reads
 * its setting when it begins, which is later.
 *
 * OpenBLAS, below LAPACK, starts a thread for each processor, and each takes 128 MiB of addresses
 * or, where they are limited (ulimit -v), asks for them for ever. One thread is all that is used.
 */
static void begin_again(char **argv) {
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) return;
    program[length] = '\0';
    execv(program, argv); /* comes back on failure only: then it is slower, no more */
}

static int runs_short_loops(const char *command) {
    static const char *const commands_that_do[] = {"train",     "eval", "embed", "report",
                                                   "reproduce", "loss", "test",  "variance"};
    for (size_t i = 0; i < sizeof commands_that_do / sizeof commands_that_do[0]; i++)
        if (strcmp(commands_that_do[i], command) == 0) return 1;
    return 0;
}

static int addresses_limited(struct rlimit *limit) {
    return getrlimit(RLIMIT_AS, limit) == 0 && limit->rlim_cur != RLIM_INFINITY;
}

static void choose_for_libraries(int argc, char **argv) {
    struct rlimit limit;
    int sleep = argc > 1 && runs_short_loops(argv[1]) && !getenv("OMP_WAIT_POLICY") &&
                !getenv("GOMP_SPINCOUNT");
    int alone = addresses_limited(&limit) && !getenv("OPENBLAS_NUM_THREADS");
    if (setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) != 0) return;
    if (sleep && setenv("OMP_WAIT_POLICY", "PASSIVE", 1) != 0) return;
    if (alone && setenv("OPENBLAS_NUM_THREADS", "1", 1) != 0) return;
    if (sleep || alone) begin_again(argv);
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) /* which needs to come first itself */
/* OpenBLAS ends the program by a SIGINT, before main, where its threads find no room for their
 * stacks. This runs before it is initialised. */
static void check_addresses(int argc, char **argv, char **environment) {
    enum { LEAST = 128 << 20, FOR_PROCESSOR = 16 << 20 };
    char text[200];
    struct rlimit limit;
    rlim_t least = LEAST + (rlim_t)zonal__processors() * FOR_PROCESSOR;
    (void)argc, (void)argv, (void)environment;
    if (!addresses_limited(&limit) || limit.rlim_cur >= least) return;
    int length =
        snprintf(text, sizeof text,
                 "zonal: memory is limited to %llu MiB (ulimit -v), and the libraries "
                 "alone take %llu here; raise the limit\n",
                 (unsigned long long)limit.rlim_cur >> 20, (unsigned long long)least >> 20);
    if (write(STDERR_FILENO, text, (size_t)length) < 0) _exit(ZONAL__EXIT_FAILED);
    _exit(ZONAL__EXIT_FAILED);
}

__attribute__((section(".preinit_array"),
               used)) static void (*const before_libraries)(int, char **,
                                                            char **) = check_addresses;
#endif

static void stop(int signal_number) {
    zonal__file_abandon_all();
    zonal__progress_interrupted();
    _exit(128 + signal_number);
}

/* A signal that was ignored when the program started (nohup, a background job) stays ignored. */
static void stop_on(int signal_number) {
    struct sigaction action = {.sa_handler = stop}, old;
    sigfillset(&action.sa_mask);
    if (sigaction(signal_number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(signal_number, &action, NULL);
}

/* With SIGPIPE or SIGXFSZ at their defaults the program would die without removing its temporaries;
 * ignored, they become errors of write. */
static void prepare_signals(void) {
    stop_on(SIGINT);
    stop_on(SIGTERM);
    stop_on(SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

/* When the caller closed one of the three standard streams, the next file opened would get its
 * number, and messages would end up in it. Fill the gap with what fails in the same way. */
static void prepare_streams(void) {
    static const int modes[3] = {O_WRONLY, O_RDONLY, O_RDWR};
    for (int i = 0; i < 3; i++)
        if (fcntl(i, F_GETFD) < 0 && open("/dev/null", modes[i]) != i) _exit(ZONAL__EXIT_FAILED);
}

/* The reader of a pipe has gone: "zonal kernel | head" is not a failure. */
static int reader_has_gone(void) {
    struct stat state;
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (fstat(STDOUT_FILENO, &state) != 0 || S_ISREG(state.st_mode) || S_ISCHR(state.st_mode))
        return 0;
    return poll(&out, 1, 0) > 0 && out.revents & (POLLERR | POLLHUP);
}

static int finish_output(int status) {
    const char *reason = NULL;
    if (ferror(stdout)) reason = "a part of it is lost; is the disk full?"; /* errno is gone */
    if (fflush(stdout) != 0) reason = strerror(errno);
    if (!reason || reader_has_gone()) return status;
    zonal__cli_say("cannot write to standard output: %s", reason);
    return status == ZONAL__EXIT_OK ? ZONAL__EXIT_FAILED : status;
}

int main(int argc, char **argv) {
    choose_for_libraries(argc, argv);
    prepare_streams();
    prepare_signals();
    return finish_output(run(argc, argv));
}
