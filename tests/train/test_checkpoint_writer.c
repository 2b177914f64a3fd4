/*
 * Checkpoints written by a thread: what is written is what the trainer was when it was saved, in
 * the order that is promised, whatever the disk's speed; and failures are told.
 */
#include <semaphore.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file_read.h"
#include "core/memory.h"
#include "failing_alloc.h"
#include "folder.h"
#include "small_trainer.h"
#include "test.h"
#include "train/checkpoint_writer.h"

/* A disk that waits until it is told to go on, and notes what it was given: "b3" is the best, of
 * step 3, "l4" the latest and "bl5" both. */
typedef struct disk {
    sem_t begun, allowed;
    char done[256];
    const char *path; /* NULL: nothing is written */
    int fail_at;      /* the step whose writing fails; -1: none */
} disk;

static zonal_status store(void *context, const zonal__snapshot *snapshot, int best, int latest) {
    disk *d = context;
    size_t used = strlen(d->done);
    int step = (int)zonal__snapshot_step(snapshot);
    sem_post(&d->begun);
    sem_wait(&d->allowed);
    snprintf(d->done + used, sizeof d->done - used, "%s%s%d ", best ? "b" : "", latest ? "l" : "",
             step);
    if (step == d->fail_at) return ZONAL_FAIL(ZONAL_IO, "the disk of the test is full");
    return d->path ? zonal__snapshot_write(snapshot, d->path) : ZONAL_OK;
}

static void disk_init(disk *d, int allowed) {
    *d = (disk){.fail_at = -1};
    sem_init(&d->begun, 0, 0);
    sem_init(&d->allowed, 0, (unsigned)allowed);
}

static void disk_fini(disk *d) {
    sem_destroy(&d->begun);
    sem_destroy(&d->allowed);
}

typedef struct fixture {
    zonal__trainer *trainer;
    zonal__checkpoint_writer *writer;
    disk disk;
} fixture;

static int begin(fixture *f, int allowed, int all) {
    *f = (fixture){0};
    disk_init(&f->disk, allowed);
    return CHECK_OK(make_trainer(&f->trainer)) &&
           CHECK_OK(zonal__checkpoint_writer_create(store, &f->disk, f->trainer, all, &f->writer));
}

static void end(fixture *f) {
    zonal__checkpoint_writer_destroy(f->writer);
    zonal__trainer_destroy(f->trainer);
    disk_fini(&f->disk);
}

static int step_and_save(fixture *f, int best) {
    return CHECK_OK(zonal__trainer_step(f->trainer)) &&
           CHECK_OK(zonal__checkpoint_writer_save(f->writer, best));
}

static int same_files(const char *a, const char *b) {
    char *text[2] = {NULL, NULL};
    size_t length[2] = {0, 1};
    int same = CHECK_OK(zonal__file_read(a, 1 << 24, &text[0], &length[0])) &&
               CHECK_OK(zonal__file_read(b, 1 << 24, &text[1], &length[1])) &&
               length[0] == length[1] && memcmp(text[0], text[1], length[0]) == 0;
    zonal__free(text[0]);
    zonal__free(text[1]);
    return same;
}

/* The trainer goes on while the disk waits, and the file is that of the step that was saved. */
static void test_content(void) {
    test_folder folder;
    fixture f;
    char want[800], got[800];
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(want, sizeof want, "%s", test_folder_file(&folder, "want.safetensors"));
    snprintf(got, sizeof got, "%s", test_folder_file(&folder, "got.safetensors"));
    if (begin(&f, 0, 0)) {
        f.disk.path = got;
        if (step_and_save(&f, 1) && CHECK_OK(zonal__checkpoint_save(f.trainer, want)) &&
            CHECK_OK(zonal__trainer_step(f.trainer)) && CHECK_OK(zonal__trainer_step(f.trainer))) {
            sem_post(&f.disk.allowed);
            CHECK_OK(zonal__checkpoint_writer_finish(f.writer));
            CHECK(same_files(want, got));
            CHECK_OK(zonal__checkpoint_save(f.trainer, want));
            CHECK(!same_files(want, got)); /* the steps since have changed something */
        }
    }
    sem_post(&f.disk.allowed);
    end(&f);
    unlink(want);
    unlink(got);
    test_folder_remove(&folder);
}

/* While one is written others come: the best and the latest of them stay. */
static void test_order(void) {
    fixture f;
    if (begin(&f, 0, 0) && step_and_save(&f, 1)) {
        sem_wait(&f.disk.begun);                                   /* step 1 is being written */
        int good = step_and_save(&f, 0) && step_and_save(&f, 1) && /* 2 gives way to 3 */
                   step_and_save(&f, 1) &&                         /* 3 gives way to 4 */
                   step_and_save(&f, 0) && step_and_save(&f, 0);   /* 5 gives way to 6 */
        CHECK(strcmp(f.disk.done, "") == 0);
        for (int i = 0; i < 8; i++) sem_post(&f.disk.allowed);
        if (good && CHECK_OK(zonal__checkpoint_writer_finish(f.writer)) && step_and_save(&f, 0) &&
            CHECK_OK(zonal__checkpoint_writer_finish(f.writer)))
            CHECK_MSG(strcmp(f.disk.done, "bl1 b4 l6 l7 ") == 0, "written: %s", f.disk.done);
    }
    for (int i = 0; i < 8; i++) sem_post(&f.disk.allowed);
    end(&f);
}

/* Where all are wanted, none gives way. */
static void test_all(void) {
    fixture f;
    if (begin(&f, 8, 1)) {
        int good = 1;
        for (int i = 0; i < 6 && good; i++) good = step_and_save(&f, i == 1 || i == 2);
        if (good && CHECK_OK(zonal__checkpoint_writer_finish(f.writer)))
            CHECK_MSG(strcmp(f.disk.done, "l1 bl2 bl3 l4 l5 l6 ") == 0, "written: %s", f.disk.done);
    }
    end(&f);
}

/* What waits when the writer is destroyed is written. */
static void test_end(void) {
    fixture f;
    if (begin(&f, 8, 0) && step_and_save(&f, 0) && step_and_save(&f, 1) && step_and_save(&f, 0)) {
        zonal__checkpoint_writer_destroy(f.writer);
        f.writer = NULL;
        const char *last = strstr(f.disk.done, "l3 ");
        CHECK_MSG(last && strstr(f.disk.done, "2 ") && last[3] == '\0', "written: %s", f.disk.done);
    }
    end(&f);
}

static void test_failure(void) {
    fixture f;
    if (begin(&f, 8, 0)) {
        f.disk.fail_at = 2;
        CHECK_OK(zonal__checkpoint_writer_finish(f.writer)); /* nothing to wait for */
        if (step_and_save(&f, 0) && CHECK_OK(zonal__checkpoint_writer_finish(f.writer)) &&
            step_and_save(&f, 0)) {
            CHECK_FAILS(zonal__checkpoint_writer_finish(f.writer), ZONAL_IO, "disk of the test");
            CHECK_FAILS(zonal__checkpoint_writer_status(f.writer), ZONAL_IO, "disk of the test");
            CHECK_FAILS(zonal__checkpoint_writer_save(f.writer, 1), ZONAL_IO, "disk of the test");
            CHECK_FAILS(zonal__checkpoint_writer_finish(f.writer), ZONAL_IO, "disk of the test");
            CHECK_MSG(strcmp(f.disk.done, "l1 l2 ") == 0, "written: %s", f.disk.done);
        }
    }
    end(&f);
}

static zonal_status make_save_and_drop(void *context) {
    fixture f = {0};
    zonal_status status;
    (void)context;
    disk_init(&f.disk, 8);
    status = make_trainer(&f.trainer);
    if (status == ZONAL_OK)
        status = zonal__checkpoint_writer_create(store, &f.disk, f.trainer, 0, &f.writer);
    if (status == ZONAL_OK) status = zonal__checkpoint_writer_save(f.writer, 1);
    if (status == ZONAL_OK) status = zonal__checkpoint_writer_finish(f.writer);
    end(&f);
    return status;
}

static void test_memory(void) {
    test_every_allocation("a writer of checkpoints", make_save_and_drop, NULL);
}

static const test_case tests[] = {{"content", test_content},
                                  {"order", test_order},
                                  {"all", test_all},
                                  {"end", test_end},
                                  {"failure", test_failure},
                                  {"memory", test_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
