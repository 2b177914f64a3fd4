/*
 * Two devices, "fake:0" and "fake:1", in the host's memory, so that what lies above the backends is
 * tested without a GPU: they compute by the CPU's tables, at once, and catch what a GPU would not
 * forgive. Their pointers are the host's moved to addresses that no process has, so that the
 * processor cannot follow one; every pointer that they are given must lie inside a block of the
 * very device; streams and events must be its own. What is wrong is a failed check of the test.
 *
 * Views, and the way back of a layer on another stream than that of its forward, are run as late as
 * can be: when a stream or the processor waits for them, or more work comes on their stream.
 */
#ifndef ZONAL_TESTS_FAKE_DEVICE_H
#define ZONAL_TESTS_FAKE_DEVICE_H

#include "backend/training/tables.h"

enum { FAKE_DEVICES = 2 };

typedef struct fake_counts {
    int blocks, streams, events, pinned; /* that are alive */
    int runs;                            /* of operations, layers, views and optimisers, so far */
    int copies;                          /* that were put on a stream, so far */
} fake_counts;

/* JPEG files that were decoded so far; set "refuses" to have the next calls fail as for a bad file.
 */
typedef struct fake_jpegs {
    int decoded, refuses;
} fake_jpegs;
extern fake_jpegs fake_jpeg;

/* Registers the backend, once a process; false after a failed check. */
int fake_register(void);
fake_counts fake_count(int index);
/* Memory of the device as it is now, whatever is late. */
const void *fake_see(int index, const void *pointer, size_t bytes);

#endif
