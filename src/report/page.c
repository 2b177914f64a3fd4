/*
 * The page as a whole: reading the runs, the header, and the parts in their order.
 */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"
#include "report/html.h"
#include "report/report.h"
#include "report/svg.h"

/* ---- the runs -------------------------------------------------------------------------------- */

static int is_key(const zonal__report *report, const char *key) {
    for (int64_t k = 0; k < report->keys_count; k++)
        if (strcmp(report->keys[k], key) == 0) return 1;
    return 0;
}

static zonal_status gather_keys(zonal__report *report) {
    int64_t most = 0;
    for (int i = 0; i < report->count; i++) most += report->runs[i].config.count;
    ZONAL_TRY(ZONAL_NEW(&report->keys, most, "the keys of the settings"));
    for (int i = 0; i < report->count; i++)
        for (int64_t s = 0; s < report->runs[i].config.count; s++)
            if (!is_key(report, report->runs[i].config.at[s].key))
                report->keys[report->keys_count++] = report->runs[i].config.at[s].key;
    return ZONAL_OK;
}

/* The last part of the folder's name will do, unless two runs share it. */
static void choose_names(zonal__report *report) {
    int clash = 0;
    for (int i = 0; i < report->count; i++)
        for (int k = 0; k < i; k++)
            clash |= strcmp(report->runs[i].name, report->runs[k].name) == 0;
    for (int i = 0; clash && i < report->count; i++) report->runs[i].name = report->runs[i].folder;
}

zonal_status zonal__report_read(zonal__report *report, int count, char *const *folders) {
    *report = (zonal__report){0};
    if (count < 1 || count > ZONAL__REPORT_RUNS)
        return ZONAL_FAIL(ZONAL_ARGUMENT, "a report compares 1 to %d runs, got %d",
                          ZONAL__REPORT_RUNS, count);
    for (int i = 0; i < count; i++) {
        report->count = i + 1;
        ZONAL_TRY(zonal__report_run_read(&report->runs[i], folders[i]));
    }
    choose_names(report);
    return gather_keys(report);
}

void zonal__report_fini(zonal__report *report) {
    for (int i = 0; i < report->count; i++) {
        zonal__report_run_fini(&report->runs[i]);
        zonal__gallery_fini(&report->retrieved[i]);
        zonal__gallery_fini(&report->views[i]);
        zonal__report_embedding_fini(&report->embeddings[i]);
        zonal__image_fini(&report->sheets[i]);
    }
    zonal__free(report->keys);
    *report = (zonal__report){0};
}

/* ---- what the parts share -------------------------------------------------------------------- */

const char *zonal__report_result_title(const char *name) {
    static const struct {
        const char *member, *title;
    } list[] = {{"r1", "R@1"},
                {"r3", "R@3"},
                {"r5", "R@5"},
                {"map", "mAP"},
                {"accuracy", "Top\xe2\x80\x91"
                             "1"},
                {"top1", "Top\xe2\x80\x91"
                         "1"},
                {"top5", "Top\xe2\x80\x91"
                         "5"}};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof list / sizeof list[0]; i++)
        if (strcmp(dot + 1, list[i].member) == 0) return list[i].title;
    return NULL;
}

const char *zonal__report_protocol_title(const char *protocol) {
    static const struct {
        const char *protocol, *title;
    } list[] = {{"retrieval", "Retrieval"},
                {"knn", "k-NN"},
                {"linear", "Linear probe"},
                {"lightly-knn", "k-NN (lightly)"},
                {"solo-linear", "Linear probe (solo-learn)"},
                {"probe", "Online probe"}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (strcmp(protocol, list[i].protocol) == 0) return list[i].title;
    return protocol;
}

void zonal__report_result_origin(const char *name, char *out, size_t size) {
    const char *features = strchr(name, '.'), *member = strrchr(name, '.');
    char protocol[48];
    snprintf(protocol, sizeof protocol, "%.*s", (int)(features - name), name);
    snprintf(out, size, "%s", zonal__report_protocol_title(protocol));
    if (member > features)
        snprintf(out + strlen(out), size - strlen(out), ", %.*s", (int)(member - features - 1),
                 features + 1);
}

const char *zonal__report_online(const zonal__report *report) {
    for (int i = 0; i < report->count; i++)
        for (int64_t s = 0; s < report->runs[i].series_count; s++)
            if (zonal__report_result_title(report->runs[i].series[s].name))
                return report->runs[i].series[s].name;
    return NULL;
}

void zonal__report_put_section(zonal__report *report, const char *id, const char *title,
                               const char *text) {
    zonal__file_print(report->file, "<section id=\"%s\"><h2>%s</h2>\n", id, title);
    if (text) zonal__file_print(report->file, "<p>%s</p>\n", text);
}

void zonal__report_put_swatch(zonal__report *report, int colour, int dashes) {
    zonal__file_print(report->file,
                      "<svg class=\"swatch c%d\" viewBox=\"0 0 30 8\" aria-hidden=\"true\">"
                      "<path d=\"M2 4h26\" stroke-dasharray=\"%s\"/></svg>",
                      colour, zonal__svg_pattern(dashes));
}

void zonal__report_put_name(zonal__report *report, int run) {
    zonal__report_put_swatch(report, zonal__report_colour(run), zonal__report_dashes(run));
    zonal__file_print(report->file, "<bdi class=\"name\">");
    zonal__html_text(report->file, report->runs[run].name);
    zonal__file_print(report->file, "</bdi>");
}

void zonal__report_put_state(zonal__report *report, int run) {
    if (zonal__report_is_unfinished(&report->runs[run]))
        zonal__file_print(report->file, " <small class=\"badge\">unfinished</small>");
    if (zonal__report_is_collapsed(&report->runs[run]))
        zonal__file_print(report->file, " <small class=\"badge bad\">collapsed</small>");
}

void zonal__report_put_missing(zonal__report *report, int run, const char *reason) {
    zonal__file_print(report->file, "<p class=\"hint\">Left out");
    if (run >= 0) {
        zonal__file_print(report->file, " for ");
        zonal__html_text(report->file, report->runs[run].name);
    }
    zonal__file_print(report->file, ": ");
    zonal__html_text(report->file, reason);
    zonal__file_print(report->file, ".</p>\n");
}

/* ---- the header ------------------------------------------------------------------------------ */

/* The methods compared, each once, as a list in words. */
static void put_methods(zonal__report *report) {
    int shown = 0;
    for (int i = 0; i < report->count; i++) {
        const char *method = zonal__report_setting_of(&report->runs[i], "method");
        int seen = 0;
        for (int k = 0; k < i && method; k++) {
            const char *other = zonal__report_setting_of(&report->runs[k], "method");
            seen |= other && strcmp(other, method) == 0;
        }
        if (!method || seen) continue;
        zonal__file_print(report->file, shown++ ? ", " : ": ");
        zonal__html_text(report->file, method);
    }
}

/* An argument as a shell takes it. */
static void put_argument(zonal__file *file, const char *argument) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:=,+@%";
    if (argument[0] && strspn(argument, plain) == strlen(argument)) {
        zonal__html_text(file, argument);
        return;
    }
    zonal__file_print(file, "&#39;");
    for (int bytes; *argument; argument += bytes) {
        char letter[5] = {0};
        bytes = zonal__text_utf8(argument);
        if (bytes == 0) bytes = 1;
        memcpy(letter, argument, (size_t)bytes);
        zonal__html_text(file, *argument == '\'' ? "'\\''" : letter);
    }
    zonal__file_print(file, "&#39;");
}

static void put_run(zonal__report *report, int i) {
    const zonal__report_run *run = &report->runs[i];
    zonal__file *file = report->file;
    zonal__file_print(file, "<li>");
    zonal__report_put_name(report, i);
    if (run->began[0]) zonal__file_print(file, " <small>begun %s", run->began);
    if (run->ended[0]) zonal__file_print(file, ", last logged %s", run->ended);
    if (run->began[0]) zonal__file_print(file, "</small>");
    zonal__file_print(file, "<br><code>zonal train --config ");
    put_argument(file, run->folder);
    zonal__file_print(file, "/config.toml</code></li>\n");
}

static void put_notes(zonal__report *report, int i) {
    const zonal__report_run *run = &report->runs[i];
    for (int n = 0; n < run->notes_count; n++) {
        zonal__file_print(report->file, "<p class=\"note\">");
        zonal__html_text(report->file, run->name);
        zonal__file_print(report->file, ": ");
        zonal__html_text(report->file, run->notes[n]);
        zonal__file_print(report->file, "</p>\n");
    }
}

static void put_header(zonal__report *report) {
    zonal__file *file = report->file;
    int single = report->count == 1;
    zonal__file_print(file, "<header><p class=\"brand\">zonal</p><h1>");
    if (single)
        zonal__html_text(file, report->runs[0].name);
    else
        zonal__file_print(file, "%d runs compared", report->count);
    zonal__file_print(file, "</h1><p class=\"lead\">Embeddings trained to be uniform on the unit "
                            "sphere");
    put_methods(report);
    zonal__file_print(file, ".</p>\n<details%s><summary>%s</summary><ul class=\"runs\">\n",
                      single ? " open" : "",
                      single ? "When it was made, and how to make it again"
                             : "When they were made, and how to make them again");
    for (int i = 0; i < report->count; i++) put_run(report, i);
    zonal__file_print(file, "</ul><p>This page: <code>zonal report");
    for (int i = 0; i < report->count; i++) {
        zonal__file_print(file, " ");
        put_argument(file, report->runs[i].folder);
    }
    zonal__file_print(file, "</code></p></details>\n");
    for (int i = 0; i < report->count; i++) put_notes(report, i);
    zonal__file_print(file, "</header>\n");
}

/* ---- the page -------------------------------------------------------------------------------- */

static void put_lines(zonal__file *file, const char *const *lines) {
    for (; *lines; lines++) zonal__file_print(file, "%s\n", *lines);
}

/* The policy has the browser see to it that nothing is loaded from elsewhere. */
static void put_opening(zonal__report *report) {
    zonal__file *file = report->file;
    zonal__file_print(
        file, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
              "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
              "<meta name=\"color-scheme\" content=\"light dark\">\n"
              "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src "
              "data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>zonal: ");
    for (int i = 0; i < report->count; i++) {
        if (i > 0) zonal__file_print(file, ", ");
        zonal__html_text(file, report->runs[i].name);
    }
    zonal__file_print(file, "</title>\n<style>\n");
    put_lines(file, zonal__report_style);
    zonal__file_print(file, "</style>\n</head>\n<body>\n<main>\n");
}

static zonal_status put_body(zonal__report *report) {
    put_header(report);
    zonal__report_put_table(report);
    ZONAL_TRY(zonal__report_put_curves(report));
    ZONAL_TRY(zonal__report_put_embeddings(report));
    zonal__report_put_classes(report);
    ZONAL_TRY(zonal__report_put_images(report));
    ZONAL_TRY(zonal__report_put_degrees(report));
    ZONAL_TRY(zonal__report_put_kernels(report));
    zonal__report_put_config(report);
    return ZONAL_OK;
}

zonal_status zonal__report_write(zonal__report *report, const char *path) {
    zonal_status status;
    ZONAL_TRY(zonal__file_create(path, &report->file));
    put_opening(report);
    status = put_body(report);
    if (status != ZONAL_OK) {
        zonal__file_abandon(report->file);
        return status;
    }
    zonal__file_print(report->file, "</main>\n<div id=\"values\" role=\"status\" hidden></div>\n"
                                    "<script>\n");
    put_lines(report->file, zonal__report_script);
    zonal__file_print(report->file, "</script>\n</body>\n</html>\n");
    return zonal__file_commit(report->file);
}
