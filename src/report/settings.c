/*
 * The settings: those in which the runs differ, or of a single run all of them.
 */
#include <string.h>

#include "report/html.h"
#include "report/report.h"

int zonal__report_differs(const zonal__report *report, const char *key) {
    const char *first = zonal__report_setting_of(&report->runs[0], key);
    for (int i = 1; i < report->count; i++) {
        const char *value = zonal__report_setting_of(&report->runs[i], key);
        if (!first != !value || (first && strcmp(first, value) != 0)) return 1;
    }
    return 0;
}

static void put_difference(zonal__report *report, const char *key) {
    zonal__file_print(report->file, "<tr><th scope=\"row\"><code>");
    zonal__html_text(report->file, key);
    zonal__file_print(report->file, "</code></th>");
    for (int i = 0; i < report->count; i++) {
        const char *value = zonal__report_setting_of(&report->runs[i], key);
        zonal__file_print(report->file, "<td>");
        zonal__html_text(report->file, value ? value : "\xe2\x80\x93");
        zonal__file_print(report->file, "</td>");
    }
    zonal__file_print(report->file, "</tr>\n");
}

static void put_differences(zonal__report *report) {
    int differ = 0;
    for (int64_t k = 0; k < report->keys_count; k++)
        differ += zonal__report_differs(report, report->keys[k]);
    if (differ == 0) {
        zonal__file_print(report->file, "<p>The runs have the same settings throughout.</p>\n");
        return;
    }
    zonal__file_print(report->file, "<div class=\"scroll\"><table class=\"settings\"><thead><tr>"
                                    "<th scope=\"col\">Setting</th>");
    for (int i = 0; i < report->count; i++) {
        zonal__file_print(report->file, "<th scope=\"col\">");
        zonal__report_put_name(report, i);
        zonal__file_print(report->file, "</th>");
    }
    zonal__file_print(report->file, "</tr></thead><tbody>\n");
    for (int64_t k = 0; k < report->keys_count; k++)
        if (zonal__report_differs(report, report->keys[k])) put_difference(report, report->keys[k]);
    zonal__file_print(report->file, "</tbody></table></div>\n");
}

static void put_all(zonal__report *report, const zonal__report_run *run) {
    zonal__file *file = report->file;
    zonal__file_print(file,
                      "<details><summary>%lld settings</summary><div class=\"scroll\">"
                      "<table class=\"settings\"><thead><tr><th scope=\"col\">Setting</th>"
                      "<th scope=\"col\">Value</th><th scope=\"col\">From</th></tr></thead>"
                      "<tbody>\n",
                      (long long)run->config.count);
    for (int64_t i = 0; i < run->config.count; i++) {
        zonal__file_print(file, "<tr><th scope=\"row\"><code>");
        zonal__html_text(file, run->config.at[i].key);
        zonal__file_print(file, "</code></th><td>");
        zonal__html_text(file, run->config.at[i].value);
        zonal__file_print(file, "</td><td class=\"quiet\">");
        zonal__html_text(file, run->config.at[i].source);
        zonal__file_print(file, "</td></tr>\n");
    }
    zonal__file_print(file, "</tbody></table></div></details>\n");
}

void zonal__report_put_config(zonal__report *report) {
    int several = report->count > 1;
    zonal__report_put_section(report, "configuration", "Configuration",
                              several ? "The settings in which the runs differ." : NULL);
    if (several)
        put_differences(report);
    else
        put_all(report, &report->runs[0]);
    zonal__file_print(report->file, "</section>\n");
}
