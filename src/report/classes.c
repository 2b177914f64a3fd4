/*
 * The part of the page about classes: whom the nearest neighbours take each image for, as bars by
 * class, all runs together, and as a confusion matrix of each run.
 */
#include <math.h>
#include <string.h>

#include "report/html.h"
#include "report/report.h"

enum { MOST_CLASSES = 20, MOST_BARS = 40 }; /* in a matrix, and as bars; beyond, the worst */

static int64_t images_of(const zonal__scores *scores, int c) {
    int64_t sum = 0;
    for (int p = 0; p < scores->classes; p++) sum += scores->confusion[c * scores->classes + p];
    return sum;
}

/* ---- bars ------------------------------------------------------------------------------------ */

static void put_bar(zonal__report *report, int run, int c) {
    const zonal__scores *scores = &report->embeddings[run].scores;
    double share = zonal__scores_class_accuracy(scores, c);
    if (!isfinite(share)) return;
    zonal__file_print(report->file,
                      "<div class=\"bar\"><span class=\"fill f%d\" style=\"width:%.1f%%\"></span>"
                      "<span class=\"sum\">%.0f\xe2\x80\x89%% <small>%lld of %lld</small></span>"
                      "</div>",
                      zonal__report_colour(run), 100 * share, 100 * share,
                      (long long)scores->confusion[c * scores->classes + c],
                      (long long)images_of(scores, c));
}

/* Whether two runs tell the same classes apart, by their names. */
static int same_classes(const zonal__report *report, int a, int b) {
    const zonal__report_embedding *x = &report->embeddings[a], *y = &report->embeddings[b];
    if (x->scores.classes != y->scores.classes) return 0;
    for (int c = 0; c < x->classes; c++)
        if (strcmp(x->class_names[c], y->class_names[c]) != 0) return 0;
    return 1;
}

/* The bars of a run and of all later ones with the same classes. */
static void put_bars(zonal__report *report, int first) {
    const zonal__report_embedding *e = &report->embeddings[first];
    zonal__file_print(report->file, "<dl class=\"bars\">\n");
    for (int c = 0; c < e->classes && c < MOST_BARS; c++) {
        zonal__file_print(report->file, "<div><dt>");
        zonal__html_text(report->file, e->class_names[c]);
        zonal__file_print(report->file, "</dt><dd>");
        for (int i = first; i < report->count; i++)
            if (report->embeddings[i].scores.classes && same_classes(report, first, i))
                put_bar(report, i, c);
        zonal__file_print(report->file, "</dd></div>\n");
    }
    zonal__file_print(report->file, "</dl>\n");
    if (e->classes > MOST_BARS)
        zonal__file_print(report->file, "<p class=\"hint\">The first %d of %d classes.</p>\n",
                          MOST_BARS, e->classes);
}

static void put_all_bars(zonal__report *report) {
    zonal__file_print(report->file, "<h3>Accuracy by class</h3>\n");
    zonal__report_put_legend(report);
    for (int i = 0; i < report->count; i++) {
        int seen = !report->embeddings[i].scores.classes;
        for (int k = 0; k < i; k++)
            seen |= report->embeddings[k].scores.classes && same_classes(report, k, i);
        if (!seen) put_bars(report, i);
    }
}

/* ---- confusion matrices ---------------------------------------------------------------------- */

static void put_matrix_head(zonal__report *report, const zonal__report_embedding *e) {
    zonal__file_print(report->file, "<thead><tr><td></td>");
    for (int p = 0; p < e->classes; p++) {
        zonal__file_print(report->file, "<th scope=\"col\"><span>");
        zonal__html_text(report->file, e->class_names[p]);
        zonal__file_print(report->file, "</span></th>");
    }
    zonal__file_print(report->file, "</tr></thead><tbody>\n");
}

static void put_matrix_row(zonal__report *report, const zonal__report_embedding *e, int c) {
    int64_t all = images_of(&e->scores, c);
    zonal__file_print(report->file, "<tr><th scope=\"row\">");
    zonal__html_text(report->file, e->class_names[c]);
    zonal__file_print(report->file, "</th>");
    for (int p = 0; p < e->classes; p++) {
        int64_t count = e->scores.confusion[c * e->classes + p];
        double share = all > 0 ? (double)count / (double)all : 0;
        if (count == 0)
            zonal__file_print(report->file, "<td class=\"none\">0</td>");
        else
            zonal__file_print(report->file, "<td class=\"%s\" style=\"--share:%.0f%%\">%lld</td>",
                              c == p ? "hit" : "miss", 100 * share, (long long)count);
    }
    zonal__file_print(report->file, "</tr>\n");
}

static void put_matrix(zonal__report *report, int run) {
    const zonal__report_embedding *e = &report->embeddings[run];
    int upright = 0; /* names that are too long for their columns */
    for (int c = 0; c < e->classes; c++) upright |= strlen(e->class_names[c]) > 3;
    zonal__file_print(report->file, "<div class=\"matrix\"><h4>");
    zonal__report_put_name(report, run);
    zonal__report_put_state(report, run);
    zonal__file_print(report->file,
                      " <small>%.1f\xe2\x80\x89%% of %lld, k = %d</small></h4>"
                      "<div class=\"scroll\"><table class=\"confusion%s\">",
                      100 * zonal__scores_accuracy(&e->scores), (long long)e->scores.count, e->k,
                      upright ? " long" : "");
    put_matrix_head(report, e);
    for (int c = 0; c < e->classes; c++) put_matrix_row(report, e, c);
    zonal__file_print(report->file, "</tbody></table></div></div>\n");
}

/* Of many classes the pairs that are mixed up most often. */
static void put_worst(zonal__report *report, int run) {
    const zonal__report_embedding *e = &report->embeddings[run];
    int64_t limit = INT64_MAX;
    int shown = 0;
    zonal__file_print(report->file, "<div class=\"matrix\"><h4>");
    zonal__report_put_name(report, run);
    zonal__file_print(report->file, " <small>most often mixed up</small></h4><ol>\n");
    while (shown < 10 && limit > 0) {
        int64_t next = 0;
        for (int k = 0; k < e->classes * e->classes; k++) {
            int64_t count = e->scores.confusion[k];
            if (k / e->classes == k % e->classes) continue;
            if (count < limit && count > next) next = count;
            if (count != limit || shown == 10) continue;
            zonal__file_print(report->file, "<li>");
            zonal__html_text(report->file, e->class_names[k / e->classes]);
            zonal__file_print(report->file, " taken for ");
            zonal__html_text(report->file, e->class_names[k % e->classes]);
            zonal__file_print(report->file, ": %lld</li>\n", (long long)count);
            shown++;
        }
        limit = next;
    }
    zonal__file_print(report->file, "</ol></div>\n");
}

void zonal__report_put_classes(zonal__report *report) {
    int any = 0;
    for (int i = 0; i < report->count; i++) any |= report->embeddings[i].scores.classes > 0;
    if (!any) return;
    zonal__report_put_section(
        report, "classes", "Classes",
        "Each of the embedded test images classified by the votes of its nearest neighbours among "
        "the others, on backbone features. So few images learn from each other here that the "
        "accuracy is below that of zonal eval, which learns from the training images.");
    put_all_bars(report);
    zonal__file_print(report->file,
                      "<h3>Confusion</h3><p>Rows: the class; columns: what it was taken for; "
                      "numbers of images, shaded by their share of the row.</p>\n"
                      "<div class=\"matrices\">\n");
    for (int i = 0; i < report->count; i++)
        if (report->embeddings[i].scores.classes > MOST_CLASSES)
            put_worst(report, i);
        else if (report->embeddings[i].scores.classes > 0)
            put_matrix(report, i);
    zonal__file_print(report->file, "</div></section>\n");
}
