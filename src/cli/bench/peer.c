#include "cli/bench/peer.h"

#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/common/cli.h"
#include "core/json_read.h"

/* Status of a script where PyTorch is not installed. */
enum { NO_TORCH = 3 };

void zonal__peer_program(char *out, size_t size) {
    ssize_t length = readlink("/proc/self/exe", out, size - 1);
    out[length > 0 ? length : 0] = '\0';
}

/* Beside the program, and nowhere else: a script of the same name in whatever folder the program is
 * started from is not ours to run. The build gives the way from an installed program to its
 * scripts; a build folder has a link to bench/ of its source tree. */
static int find_script(const char *name, char *out, size_t size) {
    static const char *const places[] = {"share/zonal/bench", ZONAL_BENCH_FROM_PROGRAM};
    char program[4096];
    zonal__peer_program(program, sizeof program);
    char *slash = strrchr(program, '/');
    for (int i = 0; i < 2 && slash; i++) {
        int length =
            snprintf(out, size, "%.*s/%s/%s", (int)(slash - program), program, places[i], name);
        if (length > 0 && (size_t)length < size && access(out, R_OK) == 0) return 1;
    }
    return 0;
}

/* The value of a key in a line that is one JSON object: a text, or else a number. The copy in
 * "room" is the reader's to change, and *text points into it. */
static zonal_status read_member(const char *line, const char *key, char room[ZONAL__PEER_LINE],
                                const char **text, double *number) {
    zonal__json_reader reader;
    const char *name;
    int more, length = snprintf(room, ZONAL__PEER_LINE, "%s", line);
    if (length < 0 || length >= ZONAL__PEER_LINE)
        return ZONAL_FAIL(ZONAL_FORMAT, "a line of the script is too long");
    zonal__json_reader_init(&reader, room, (size_t)length, "the script's line");
    ZONAL_TRY(zonal__json_read_begin(&reader, '{'));
    for (;;) {
        ZONAL_TRY(zonal__json_read_more(&reader, '}', &more));
        if (!more) return zonal__json_read_end(&reader);
        ZONAL_TRY(zonal__json_read_key(&reader, &name));
        if (strcmp(name, key) != 0)
            ZONAL_TRY(zonal__json_read_skip(&reader));
        else if (text)
            ZONAL_TRY(zonal__json_read_text(&reader, text));
        else
            ZONAL_TRY(zonal__json_read_double(&reader, number));
    }
}

double zonal__peer_number(const char *line, const char *key) {
    char room[ZONAL__PEER_LINE];
    double number = NAN;
    return read_member(line, key, room, NULL, &number) == ZONAL_OK ? number : NAN;
}

void zonal__peer_text(const char *line, const char *key, char *out, size_t size) {
    char room[ZONAL__PEER_LINE];
    const char *text = "";
    if (read_member(line, key, room, &text, NULL) != ZONAL_OK) text = "";
    snprintf(out, size, "%s", text);
}

/* Starts the script with its output in a pipe. */
static pid_t start(const char *python, const char *script, const char *const *arguments,
                   FILE **lines) {
    extern char **environ;
    char *line[ZONAL__PEER_ARGUMENTS + 3] = {(char *)python, (char *)script};
    posix_spawn_file_actions_t actions;
    int ends[2], failed;
    pid_t child;
    for (int i = 0; arguments[i] && i < ZONAL__PEER_ARGUMENTS; i++)
        line[i + 2] = (char *)arguments[i];
    if (pipe(ends) != 0) return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    failed = posix_spawnp(&child, python, &actions, NULL, line, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *lines = failed ? NULL : fdopen(ends[0], "r");
    if (*lines) return child;
    close(ends[0]);
    return -1;
}

static const char *choose_python(int on_gpu) {
    static const char debian[] = "/usr/bin/python3";
    const char *asked = getenv("ZONAL_PYTHON");
    if (asked && asked[0]) return asked;
    return !on_gpu && access(debian, X_OK) == 0 ? debian : "python3";
}

zonal_status zonal__peer_run(const char *script, const char *const *arguments, int on_gpu,
                             void (*line)(void *context, const char *text), void *context) {
    const char *python = choose_python(on_gpu);
    char path[4200], text[ZONAL__PEER_LINE];
    FILE *lines = NULL;
    int status = 0;
    if (!find_script(script, path, sizeof path)) {
        zonal__cli_say("share/zonal/bench/%s was not installed with this program: nothing to "
                       "compare with",
                       script);
        return ZONAL_OK;
    }
    fflush(stdout);
    pid_t child = start(python, path, arguments, &lines);
    if (child < 0) {
        zonal__cli_say("%s cannot be started: nothing to compare with", python);
        return ZONAL_OK;
    }
    while (fgets(text, sizeof text, lines)) line(context, text);
    fclose(lines);
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_TORCH)
        zonal__cli_say("%s has no torch module: nothing to compare with", python);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return ZONAL_FAIL(ZONAL_IO, "the comparison with PyTorch failed; run %s for the details",
                          path);
    return ZONAL_OK;
}
