#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

/* As many files at once as the program has worker threads (256), and some. */
enum { SLOTS = 320, SLOT_FREE = 0, SLOT_TAKEN = 1, SLOT_IN_FLIGHT = 2 };

/* The names of the temporaries are static so that a signal handler can read them at any moment: it
 * looks only at slots in flight, whose name does not change. */
static struct slot {
    _Atomic int state;
    char temporary[PATH_MAX];
} slots[SLOTS];

static _Atomic unsigned temporaries; /* made so far; part of their names */

struct zonal__file {
    FILE *stream;
    struct slot *slot;     /* NULL when the target is written directly */
    int error;             /* errno of the first failure, or 0 */
    char name[PATH_MAX];   /* as the caller gave it, for the sentences */
    char target[PATH_MAX]; /* with links followed */
};

static zonal_status fail_write(const char *name, int error) {
    const char *remedy = "";
    if (error == ENOSPC || error == EDQUOT)
        remedy = "; free some space or choose another folder";
    else if (error == ENOENT)
        remedy = "; does its folder exist?";
    else if (error == EACCES || error == EPERM || error == EROFS)
        remedy = "; choose a place that you may write to";
    else if (error == ENAMETOOLONG)
        remedy = "; choose a name that is shorter by 20 characters";
    else if (error == EFBIG)
        remedy = "; allow larger files (ulimit -f)";
    return ZONAL_FAIL(ZONAL_IO, "cannot write %s: %s%s", name, strerror(error), remedy);
}

static zonal_status take_slot(const char *name, struct slot **out) {
    for (int i = 0; i < SLOTS; i++) {
        int expected = SLOT_FREE;
        if (atomic_compare_exchange_strong(&slots[i].state, &expected, SLOT_TAKEN)) {
            *out = &slots[i];
            return ZONAL_OK;
        }
    }
    return ZONAL_FAIL(ZONAL_IO,
                      "cannot write %s: %d files are being written already; end one first", name,
                      SLOTS);
}

/* Opens a new file beside the target. Its name is in flight before the file exists: a signal in
 * between must find it. */
static int open_temporary(struct slot *slot, const char *target) {
    for (;;) {
        int length = snprintf(slot->temporary, sizeof slot->temporary, "%s.tmp.%ld-%u", target,
                              (long)getpid(), atomic_fetch_add(&temporaries, 1));
        int descriptor;
        if (length < 0 || (size_t)length >= sizeof slot->temporary) {
            errno = ENAMETOOLONG;
            return -1;
        }
        atomic_store(&slot->state, SLOT_IN_FLIGHT);
        descriptor = open(slot->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor >= 0 || errno != EEXIST) return descriptor;
        atomic_store(&slot->state, SLOT_TAKEN); /* a stranger's file has this name */
    }
}

static void drop_slot(struct slot *slot) {
    if (slot) atomic_store(&slot->state, SLOT_FREE);
}

/* The target is new or a regular file: "old" is its state, or NULL when it is new. */
static zonal_status open_beside(zonal__file *file, const struct stat *old) {
    int descriptor, error;
    if (old && access(file->name, W_OK) != 0) return fail_write(file->name, errno);
    if (old && !realpath(file->name, file->target)) return fail_write(file->name, errno);
    ZONAL_TRY(take_slot(file->name, &file->slot));
    descriptor = open_temporary(file->slot, file->target);
    if (descriptor < 0) return fail_write(file->name, errno);
    if (!old || fchmod(descriptor, old->st_mode & 07777) == 0)
        file->stream = fdopen(descriptor, "wb");
    if (file->stream) return ZONAL_OK;
    error = errno;
    close(descriptor);
    unlink(file->slot->temporary);
    return fail_write(file->name, error);
}

static zonal_status open_directly(zonal__file *file) {
    int descriptor = open(file->name, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return fail_write(file->name, errno);
    file->stream = fdopen(descriptor, "wb");
    if (file->stream) return ZONAL_OK;
    close(descriptor);
    return fail_write(file->name, ENOMEM);
}

static zonal_status refuse_odd(const char *name, mode_t mode) {
    return ZONAL_FAIL(ZONAL_IO,
                      "%s is %s where a file of zonal's own is expected; it is left alone: move it "
                      "away, or put the file itself there",
                      name,
                      S_ISLNK(mode)   ? "a link"
                      : S_ISDIR(mode) ? "a folder"
                                      : "a device or pipe");
}

static zonal_status open_target(zonal__file *file, int plain) {
    struct stat old;
    if ((plain ? lstat : stat)(file->name, &old) != 0) {
        if (errno != ENOENT) return fail_write(file->name, errno);
        if (lstat(file->name, &old) == 0)
            return ZONAL_FAIL(ZONAL_IO,
                              "cannot write %s: it is a link to a file that is not there; make "
                              "that file (touch), or remove the link",
                              file->name);
        return open_beside(file, NULL);
    }
    if (plain && !S_ISREG(old.st_mode)) return refuse_odd(file->name, old.st_mode);
    if (S_ISDIR(old.st_mode))
        return ZONAL_FAIL(ZONAL_IO, "cannot write %s: it is a folder; give the name of a file",
                          file->name);
    return S_ISREG(old.st_mode) ? open_beside(file, &old) : open_directly(file);
}

static zonal_status create(const char *path, int plain, zonal__file **out) {
    zonal__file *file;
    zonal_status status;
    *out = NULL;
    if (!path || !path[0])
        return ZONAL_FAIL(ZONAL_ARGUMENT, "an output file needs a name, got an empty one");
    if (strcmp(path, "-") == 0)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "cannot write a file to standard output (-); give the name of a file");
    if (strlen(path) >= PATH_MAX) return fail_write("the output file", ENAMETOOLONG);
    ZONAL_TRY(ZONAL_NEW(&file, 1, "an output file"));
    strcpy(file->name, path);
    strcpy(file->target, path);
    status = open_target(file, plain);
    if (status != ZONAL_OK) {
        drop_slot(file->slot);
        zonal__free(file);
        return status;
    }
    *out = file;
    return ZONAL_OK;
}

zonal_status zonal__file_create(const char *path, zonal__file **out) {
    return create(path, 0, out);
}

zonal_status zonal__file_create_plain(const char *path, zonal__file **out) {
    return create(path, 1, out);
}

static zonal_status cannot_open(const char *path, int error) {
    return ZONAL_FAIL(ZONAL_IO, "cannot open %s: %s", path, strerror(error));
}

zonal_status zonal__file_open_plain(const char *path, int flags, int *descriptor) {
    struct stat state;
    int error;
    /* Without O_NONBLOCK a named pipe would wait for its other end; it means nothing for files. */
    *descriptor = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*descriptor < 0) {
        error = errno;
        if (lstat(path, &state) == 0 && !S_ISREG(state.st_mode))
            return refuse_odd(path, state.st_mode);
        return cannot_open(path, error);
    }
    error = fstat(*descriptor, &state) == 0 ? 0 : errno;
    if (!error && S_ISREG(state.st_mode)) return ZONAL_OK;
    close(*descriptor);
    *descriptor = -1;
    return error ? cannot_open(path, error) : refuse_odd(path, state.st_mode);
}

zonal_status zonal__file_write(zonal__file *file, const void *data, size_t bytes) {
    if (!file->error && bytes > 0 && fwrite(data, 1, bytes, file->stream) != bytes)
        file->error = errno ? errno : EIO;
    return file->error ? fail_write(file->name, file->error) : ZONAL_OK;
}

zonal_status zonal__file_print(zonal__file *file, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!file->error && vfprintf(file->stream, format, arguments) < 0)
        file->error = errno ? errno : EIO;
    va_end(arguments);
    return file->error ? fail_write(file->name, file->error) : ZONAL_OK;
}

/* 0, or the errno of a disk that fails. Some file systems cannot flush a folder: EINVAL. */
static int sync_folder(const char *path) {
    int error = 0, descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return 0; /* one that may be written to but not read: nothing can be done */
    if (fsync(descriptor) != 0 && errno != EINVAL) error = errno;
    close(descriptor);
    return error;
}

static int sync_folder_of(const char *target) {
    char folder[PATH_MAX];
    const char *slash = strrchr(target, '/');
    if (!slash) return sync_folder(".");
    /* One byte more than the folder's name: of "/name" the slash is all there is. */
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - target) + 1, target);
    return sync_folder(folder);
}

zonal_status zonal__file_sync_folder(const char *path) {
    int error = sync_folder(path);
    return error ? fail_write(path, error) : ZONAL_OK;
}

zonal_status zonal__file_commit(zonal__file *file) {
    zonal_status status = ZONAL_OK;
    int error;
    if (!file) return ZONAL_FAIL(ZONAL_ARGUMENT, "there is no file to commit");
    error = file->error;
    if (!error && fflush(file->stream) != 0) error = errno;
    /* Devices and pipes cannot be synchronised; only a file that will be renamed must be. */
    if (!error && file->slot && fsync(fileno(file->stream)) != 0) error = errno;
    if (fclose(file->stream) != 0 && !error) error = errno;
    if (!error && file->slot && rename(file->slot->temporary, file->target) != 0) error = errno;
    if (!error && file->slot) error = sync_folder_of(file->target);
    if (error) {
        if (file->slot) unlink(file->slot->temporary);
        status = fail_write(file->name, error);
    }
    drop_slot(file->slot);
    zonal__free(file);
    return status;
}

void zonal__file_abandon(zonal__file *file) {
    if (!file) return;
    fclose(file->stream);
    if (file->slot) unlink(file->slot->temporary);
    drop_slot(file->slot);
    zonal__free(file);
}

size_t zonal__file_temporary_of(const char *name) {
    static const char mark[] = ".tmp.", digits[] = "0123456789";
    const char *at = NULL, *next = name;
    size_t pid, number;
    while ((next = strstr(next, mark)) != NULL) at = next++; /* the last one */
    if (!at || at == name) return 0;
    next = at + strlen(mark);
    pid = strspn(next, digits);
    if (pid == 0 || next[pid] != '-') return 0;
    next += pid + 1;
    number = strspn(next, digits);
    return number > 0 && next[number] == '\0' ? (size_t)(at - name) : 0;
}

void zonal__file_abandon_all(void) {
    for (int i = 0; i < SLOTS; i++)
        if (atomic_load(&slots[i].state) == SLOT_IN_FLIGHT) unlink(slots[i].temporary);
}

int zonal__file_append(int descriptor, const void *bytes, size_t n) {
    struct stat before;
    ssize_t written;
    int error;
    if (fstat(descriptor, &before) != 0) return errno;
    do written = write(descriptor, bytes, n);
    while (written < 0 && errno == EINTR);
    if (written == (ssize_t)n) return 0;
    /* A write that is only begun is a disk that is full. */
    error = written < 0 ? errno : ENOSPC;
    if (written > 0 && ftruncate(descriptor, before.st_size) != 0) error = errno;
    return error;
}
