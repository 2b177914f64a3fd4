/*
 * Records: a file with one JSON object per line for every cell that was finished, small enough to
 * be brought from one machine to another and appended to each other.
 *
 *     experiment, method, data, seed    the cell: "table-textures", "kl-heat:t=3/d", "disk", 0
 *     variant          what the command line asked for beyond the recipe: "side=128,steps=6400"
 *     configuration    options of zonal train that were asked for, by the recipe or the command
 *                      line, but for the seed and where the images lie
 *     decided          what the program made of options that were left to it: the gain, lambda ...
 *     metrics          what was found: "retrieval.projector.r1" ...
 *     curve            accuracies of an online probe: [{"epoch": 1, "accuracy": 0.5}, ...]
 *     selectivity      S of the loss at its gain and lambda (zonal/loss.h); null: not known
 *     images           a checksum of the run's record of its images
 *     seconds, at_once, train_seconds, device, version, commit, date
 *
 * Two records are samples of one experiment, of which a mean may be taken, where nothing differs
 * but the seed: cell, variant, configuration, what was decided, images. Times, device and commit
 * may differ.
 *
 * The file may come from anywhere. A line that is no record is passed over; the log has a line for
 * each of the first few of them, and how many more there are. A file that has other lines alone is
 * something else, and is refused.
 */
#ifndef ZONAL_REPRODUCE_RECORDS_H
#define ZONAL_REPRODUCE_RECORDS_H

#include "report/flat.h"
#include "reproduce/assignments.h"

typedef struct zonal__record {
    char *text; /* as in the file, where "flat" points into a copy */
    char *copy;
    zonal__flat flat;
    int64_t seed;
    const char *experiment, *method, *data, *variant;
    char *configuration, *decided; /* "key=value" on a line each, in the order of the keys */
} zonal__record;

/* Zero-initialise. */
typedef struct zonal__records {
    zonal__record *at;
    int64_t count, room;
} zonal__records;

/* Adds the records of a file; none where there is no such file. ZONAL_IO where it cannot be read,
 * ZONAL_FORMAT where it is too large or a file of another kind: one with lines, of which none is a
 * record or what a crash has left of one. */
zonal_status zonal__records_read(zonal__records *records, const char *path);
/* ZONAL_IO where there is no such file. */
zonal_status zonal__records_need(const char *path);
/* Adds a record by its text, one JSON object. ZONAL_FORMAT where it is none. */
zonal_status zonal__records_add(zonal__records *records, const char *text, size_t length,
                                const char *name);
/* Leaves the records of these seeds. */
void zonal__records_keep_seeds(zonal__records *records, const int64_t *seed, int count);
void zonal__records_fini(zonal__records *records);

/* Appends a record to a file, which is made if need be, and waits until it is on the disk. A line
 * that was cut off there stays a line of its own. */
zonal_status zonal__records_append(const char *path, const char *text);
/* Whether the file can be appended to, before hours are spent: ZONAL_IO where it cannot. An empty
 * file is left where there was none. */
zonal_status zonal__records_check(const char *path);
/* Appends those records of another file that "records", those of the file "path", do not have, and
 * adds them; *added is how many. */
zonal_status zonal__records_merge(zonal__records *records, const char *path, const char *other,
                                  int64_t *added);

/* NaN where there is none. */
double zonal__record_metric(const zonal__record *record, const char *name);

/* Whether two records differ in nothing but the seed (and what does not count). */
int zonal__records_alike(const zonal__record *a, const zonal__record *b);
/* The first option in which they differ, for a sentence: "gain (256 and 9.1)"; "" where none. */
void zonal__records_difference(const zonal__record *a, const zonal__record *b, char *out,
                               size_t size);

#endif
