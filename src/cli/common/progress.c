#include "cli/common/progress.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static const double first_bar = .5, next_bar = .1, next_line = 10; /* seconds */

static volatile sig_atomic_t line_is_open; /* a bar is on the terminal */

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int is_terminal(void) {
    const char *kind = getenv("TERM");
    return isatty(STDERR_FILENO) && kind && strcmp(kind, "dumb") != 0;
}

static int terminal_width(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

/* "0:07", "12:34", "3:04:05" */
static void print_time(double seconds, char out[24]) {
    long long s = seconds < 1e9 ? (long long)(seconds + .5) : 1000000000;
    if (s < 3600)
        snprintf(out, 24, "%lld:%02lld", s / 60, s % 60);
    else
        snprintf(out, 24, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}

void zonal__progress_render(char out[128], int width, const char *label, double fraction,
                            double elapsed) {
    char left[24] = "", tail[40], *at;
    int columns = width > 81 ? 80 : width - 1, room, full;
    if (!(fraction > 0)) fraction = 0;
    if (fraction > 1) fraction = 1;
    if (fraction > 0) print_time(elapsed * (1 - fraction) / fraction, left);
    snprintf(tail, sizeof tail, "%3d %%%s%s%s", (int)(100 * fraction), left[0] ? "  " : "", left,
             left[0] ? " left" : "");
    if (width <= 0) {
        snprintf(out, 128, "%.60s: %s", label, tail + strspn(tail, " "));
        return;
    }
    /* What does not fit goes: first the bar, then the end of the text. */
    room = columns - (int)strlen(label) - (int)strlen(tail) - 6;
    if (room < 8) {
        snprintf(out, 128, "%.60s  %s", label, tail);
        if (columns < (int)strlen(out)) out[columns > 0 ? columns : 0] = '\0';
        return;
    }
    full = (int)(fraction * room + .5);
    /* "room" has seen to it that all of the label and the rest are at most 80 columns */
    at = out + snprintf(out, 128, "%.80s  [", label);
    memset(at, '#', (size_t)full);
    memset(at + full, '-', (size_t)(room - full));
    snprintf(at + room, (size_t)(out + 128 - at - room), "]  %s", tail);
}

void zonal__progress_begin(zonal__progress *progress, const char *label, int64_t total, int quiet) {
    progress->label = label;
    progress->total = total;
    progress->terminal = is_terminal();
    progress->silent = quiet || total <= 0;
    progress->began = now();
    progress->next = progress->began + (progress->terminal ? first_bar : next_line);
}

void zonal__progress_update(zonal__progress *progress, int64_t done) {
    char line[128];
    double time, fraction;
    if (progress->silent) return;
    time = now();
    if (time < progress->next) return;
    fraction = (double)done / (double)progress->total;
    progress->next = time + (progress->terminal ? next_bar : next_line);
    zonal__progress_render(line, progress->terminal ? terminal_width() : 0, progress->label,
                           fraction, time - progress->began);
    if (progress->terminal) {
        line_is_open = 1;
        fprintf(stderr, "\r%s\033[K", line);
    } else {
        fprintf(stderr, "%s\n", line);
    }
}

void zonal__progress_end(zonal__progress *progress) {
    (void)progress;
    if (line_is_open) fputs("\r\033[K", stderr);
    line_is_open = 0;
}

void zonal__progress_interrupted(void) {
    if (!line_is_open) return;
    line_is_open = 0;
    if (write(STDERR_FILENO, "\n", 1) < 0) return; /* nowhere left to say so */
}
