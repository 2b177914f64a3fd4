#include "cli/report/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void zonal__arguments_add(zonal__arguments *a, const char *format, ...) {
    va_list values;
    size_t room = sizeof a->text - a->used;
    va_start(values, format);
    int length = vsnprintf(a->text + a->used, room, format, values);
    va_end(values);
    if (length < 0 || (size_t)length >= room || a->count == ZONAL__ARGUMENTS) {
        a->overflow = 1;
        return;
    }
    a->at[1 + a->count++] = a->text + a->used;
    a->used += (size_t)length + 1;
}

/* Between fork and exec: nothing that could wait for a lock of another thread. A group of its own:
 * a signal to this program's group (Ctrl-C, GNU timeout) is handed on once, and does not also come
 * from the group. */
static void become(char **line, const char *program, int log, int nothing, pid_t parent) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127); /* it has ended before that was said */
    if (dup2(nothing, STDIN_FILENO) < 0 || dup2(log, STDOUT_FILENO) < 0 ||
        dup2(log, STDERR_FILENO) < 0)
        _exit(127);
    execv(program, line);
    _exit(127);
}

zonal_status zonal__child_start(zonal__arguments *a, const char *log, pid_t *child) {
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    int out, nothing, error;
    pid_t parent = getpid();
    *child = -1;
    if (a->overflow || length <= 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a run cannot be started: %s",
                          a->overflow ? "its options are too long" : "/proc is not there");
    program[length] = '\0';
    a->at[0] = program;
    a->at[a->count + 1] = NULL;
    out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (out < 0) return ZONAL_FAIL(ZONAL_IO, "cannot write to %s: %s", log, strerror(errno));
    nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    *child = fork();
    if (*child == 0) become(a->at, program, out, nothing, parent);
    error = errno;
    close(out);
    if (nothing >= 0) close(nothing);
    if (*child < 0)
        return ZONAL_FAIL(ZONAL_MEMORY, "a process cannot be started: %s", strerror(error));
    return ZONAL_OK;
}

int zonal__child_ended(pid_t child, int *good) {
    int status;
    pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return 0;
    *good = ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return 1;
}
