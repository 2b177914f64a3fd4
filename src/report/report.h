/*
 * The parts of the page that `zonal report` writes. Each is written where its data is and left out
 * otherwise; what is left out is said where people would look for it.
 */
#ifndef ZONAL_REPORT_REPORT_H
#define ZONAL_REPORT_REPORT_H

#include "core/file.h"
#include "data/image.h"
#include "report/embedding.h"
#include "report/run.h"
#include "report/svg.h"

enum { ZONAL__REPORT_RUNS = 20 }; /* compared at most: what a chart has room for */

typedef struct zonal__gallery_cell {
    zonal__image image;
    char caption[32];
    int right; /* framed */
} zonal__gallery_cell;

/* Images in rows; the first of each row stands apart from the others. Zeroed: no gallery. */
typedef struct zonal__gallery {
    int rows, columns;
    zonal__gallery_cell *cells; /* [rows][columns] */
    char missing[320];          /* why there is none; "" */
} zonal__gallery;

zonal_status zonal__gallery_shape(zonal__gallery *gallery, int rows, int columns);
void zonal__gallery_fini(zonal__gallery *gallery);

enum { ZONAL__REPORT_PROFILE = 201 };

/* What a run's settings say about its loss. */
typedef struct zonal__report_kernel {
    char label[160]; /* "heat, t = 5/d = 0.01953125, d = 256"; "": there is no kernel */
    double c[ZONAL__REPORT_PROFILE], phi[ZONAL__REPORT_PROFILE]; /* cosines and the profile there */
    double uniform;     /* the discrepancy of a batch of uniform points; NaN: not known */
    double selectivity; /* S (zonal/loss.h); NaN: not known */
} zonal__report_kernel;

typedef struct zonal__report {
    zonal__report_run runs[ZONAL__REPORT_RUNS];
    int count;
    const char **keys; /* [keys_count]: all keys of all runs, in the order of the files */
    int64_t keys_count;
    zonal__report_kernel kernels[ZONAL__REPORT_RUNS];
    zonal__gallery retrieved[ZONAL__REPORT_RUNS]; /* queries, each with its nearest five */
    zonal__gallery views[ZONAL__REPORT_RUNS];     /* images, each with views of it */
    zonal__report_embedding embeddings[ZONAL__REPORT_RUNS];
    zonal__image sheets[ZONAL__REPORT_RUNS]; /* thumbnails of what was embedded, each set once */
    int sheet_count;
    zonal__file *file;
    int charts; /* drawn so far: the number of the next is one more */
} zonal__report;

/* Reads the runs and gives them names that differ. Release with zonal__report_fini, also after
 * failure. */
zonal_status zonal__report_read(zonal__report *report, int count, char *const *folders);
void zonal__report_fini(zonal__report *report);

/* Leaves the galleries out, for this reason. */
void zonal__report_omit_examples(zonal__report *report, const char *reason);

/* Writes the page: as a whole or not at all. */
zonal_status zonal__report_write(zonal__report *report, const char *path);

/* Whether the runs do not agree on a setting; one that a run does not have counts as another. */
int zonal__report_differs(const zonal__report *report, const char *key);

/* The lines of report.css and report.js, NULL at the end; the build makes them (CMakeLists.txt). */
extern const char *const zonal__report_style[];
extern const char *const zonal__report_script[];

/* The parts, in the order of the page. */
void zonal__report_put_table(zonal__report *report);
zonal_status zonal__report_put_curves(zonal__report *report);
zonal_status zonal__report_put_embeddings(zonal__report *report);
void zonal__report_put_classes(zonal__report *report);
zonal_status zonal__report_put_images(zonal__report *report);
zonal_status zonal__report_put_degrees(zonal__report *report);
zonal_status zonal__report_put_kernels(zonal__report *report);
void zonal__report_put_config(zonal__report *report);

/* "<section id=...><h2>title</h2>" and, unless it is NULL, a paragraph. Ends with "</section>". */
void zonal__report_put_section(zonal__report *report, const char *id, const char *title,
                               const char *text);

/* A short line in a colour (1 to 7) and pattern, and a run's with its name. */
void zonal__report_put_swatch(zonal__report *report, int colour, int dashes);
void zonal__report_put_name(zonal__report *report, int run);

/* Badges for a run that is unfinished or has collapsed. */
void zonal__report_put_state(zonal__report *report, int run);
/* "Left out for RUN: reason."; run < 0: for all of them. */
void zonal__report_put_missing(zonal__report *report, int run, const char *reason);

/* A chart in its frame. One with nothing to show is no failure: a sentence stands in its place. */
zonal_status zonal__report_put_chart(zonal__report *report, const zonal__svg_chart *chart);
/* The runs with their lines; of a single one nothing. */
void zonal__report_put_legend(zonal__report *report);

/* Colour and pattern of a run's lines, for report/svg.h: with 7 colours and 4 patterns no two runs
 * of a report look the same. */
int zonal__report_colour(int run);
int zonal__report_dashes(int run);

/* How a number of an evaluation is called, "R@1" for "retrieval.projector.r1"; NULL for those that
 * are no result (how many neighbours, a seed, ...). All are shares, of which more is better. */
const char *zonal__report_result_title(const char *name);

/* "k-NN" for "knn". */
const char *zonal__report_protocol_title(const char *protocol);
/* Where a result comes from: "Retrieval, projector". */
void zonal__report_result_origin(const char *name, char *out, size_t size);

/* The online evaluation that the table shows: the first of the runs' curves that is one; or NULL.
 */
const char *zonal__report_online(const zonal__report *report);

#endif
