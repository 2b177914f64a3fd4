/* Output files that appear whole or not at all: src/core/file.h. */
#define _GNU_SOURCE /* AT_EMPTY_PATH */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/file.h"
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"

static int failing_stat; /* the errno that fstat is to fail with; 0: it works */

/* In the place of the C library's: no file that could be opened makes that one fail. */
int fstat(int descriptor, struct stat *state) {
    if (!failing_stat) return fstatat(descriptor, "", state, AT_EMPTY_PATH);
    errno = failing_stat;
    return -1;
}

static void write_plain(const char *path, const char *text) {
    FILE *stream = fopen(path, "w");
    if (!CHECK(stream != NULL)) return;
    fputs(text, stream);
    fclose(stream);
}

static void check_content(const char *path, const char *want) {
    char got[256] = "";
    FILE *stream = fopen(path, "r");
    if (!CHECK_MSG(stream != NULL, "%s is not there", path)) return;
    got[fread(got, 1, sizeof got - 1, stream)] = '\0';
    fclose(stream);
    CHECK_MSG(strcmp(got, want) == 0, "%s holds \"%s\", want \"%s\"", path, got, want);
}

static zonal_status write_words(const char *path) {
    zonal__file *file;
    ZONAL_TRY(zonal__file_create(path, &file));
    zonal__file_write(file, "two ", 4);
    zonal__file_print(file, "%s %d\n", "words", 2);
    return zonal__file_commit(file);
}

static void test_new_file(void) {
    test_folder folder;
    zonal__file *file;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__file_create(test_folder_file(&folder, "a"), &file));
    CHECK_MSG(access(folder.name, F_OK) != 0, "the name is there before the commit");
    CHECK(test_folder_count(&folder) == 1);
    CHECK_OK(zonal__file_write(file, "abc", 3));
    CHECK_OK(zonal__file_commit(file));
    check_content(folder.name, "abc");
    CHECK(test_folder_count(&folder) == 1);
    test_folder_remove(&folder);
}

static void test_replaces_and_keeps_mode(void) {
    test_folder folder;
    struct stat state;
    if (!CHECK(test_folder_make(&folder))) return;
    write_plain(test_folder_file(&folder, "a"), "old");
    chmod(folder.name, 0640);
    CHECK_OK(write_words(folder.name));
    check_content(folder.name, "two words 2\n");
    CHECK(stat(folder.name, &state) == 0 && (state.st_mode & 07777) == 0640);
    CHECK(test_folder_count(&folder) == 1);
    test_folder_remove(&folder);
}

static void test_new_file_obeys_umask(void) {
    test_folder folder;
    struct stat state;
    mode_t old;
    if (!CHECK(test_folder_make(&folder))) return;
    old = umask(027);
    CHECK_OK(write_words(test_folder_file(&folder, "a")));
    umask(old);
    CHECK(stat(folder.name, &state) == 0 && (state.st_mode & 07777) == 0640);
    test_folder_remove(&folder);
}

static void test_abandon(void) {
    test_folder folder;
    zonal__file *file;
    if (!CHECK(test_folder_make(&folder))) return;
    write_plain(test_folder_file(&folder, "a"), "old");
    CHECK_OK(zonal__file_create(folder.name, &file));
    zonal__file_write(file, "new", 3);
    zonal__file_abandon(file);
    zonal__file_abandon(NULL);
    check_content(folder.name, "old");
    CHECK(test_folder_count(&folder) == 1);
    CHECK_FAILS(zonal__file_commit(NULL), ZONAL_ARGUMENT, "there is no file to commit");
    test_folder_remove(&folder);
}

static void test_follows_links(void) {
    test_folder folder;
    char link[768];
    struct stat state;
    zonal__file *file;
    if (!CHECK(test_folder_make(&folder))) return;
    strcpy(link, test_folder_file(&folder, "link"));
    write_plain(test_folder_file(&folder, "real"), "old");
    CHECK(symlink("real", link) == 0);
    CHECK_OK(write_words(link));
    check_content(test_folder_file(&folder, "real"), "two words 2\n");
    CHECK(lstat(link, &state) == 0 && S_ISLNK(state.st_mode));
    CHECK(test_folder_count(&folder) == 2);
    /* One that leads nowhere is not replaced by a file. */
    CHECK(unlink(test_folder_file(&folder, "real")) == 0);
    CHECK_FAILS(zonal__file_create(link, &file), ZONAL_IO,
                "it is a link to a file that is not there");
    CHECK(lstat(link, &state) == 0 && S_ISLNK(state.st_mode));
    CHECK(test_folder_count(&folder) == 1);
    test_folder_remove(&folder);
}

static void test_bad_names(void) {
    test_folder folder;
    zonal__file *file = (zonal__file *)&folder;
    char endless[8000];
    if (!CHECK(test_folder_make(&folder))) return;
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    CHECK_FAILS(zonal__file_create(NULL, &file), ZONAL_ARGUMENT, "needs a name");
    CHECK(file == NULL);
    CHECK_FAILS(zonal__file_create("", &file), ZONAL_ARGUMENT, "needs a name");
    CHECK_FAILS(zonal__file_create("-", &file), ZONAL_ARGUMENT, "standard output");
    CHECK_FAILS(zonal__file_create(endless, &file), ZONAL_IO, "File name too long");
    CHECK_FAILS(zonal__file_create(endless + 7700, &file), ZONAL_IO, "File name too long");
    CHECK_FAILS(zonal__file_create(folder.path, &file), ZONAL_IO, "it is a folder");
    CHECK_FAILS(zonal__file_create(test_folder_file(&folder, "none/a"), &file), ZONAL_IO,
                "No such file or directory; does its folder exist?");
    CHECK_MSG(strstr(zonal_last_error()->message, folder.name) != NULL, "the path is not named: %s",
              zonal_last_error()->message);
    write_plain(test_folder_file(&folder, "a"), "old");
    CHECK_FAILS(zonal__file_create(test_folder_file(&folder, "a/b"), &file), ZONAL_IO,
                "Not a directory");
    CHECK(test_folder_count(&folder) == 1);
    test_folder_remove(&folder);
}

/* Root may write everywhere, so the attempt is made by a child process that is nobody. */
static int as_nobody(zonal_status (*attempt)(const char *), const char *path,
                     const char *sentence) {
    int outcome = -1;
    pid_t child;
    fflush(stdout);
    child = fork();
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534) != 0) _exit(77);
        _exit(attempt(path) == ZONAL_IO && strstr(zonal_last_error()->message, sentence) ? 0 : 1);
    }
    waitpid(child, &outcome, 0);
    return WIFEXITED(outcome) ? WEXITSTATUS(outcome) : -1;
}

static void test_no_permission(void) {
    test_folder folder;
    int closed_folder, closed_file;
    if (!CHECK(test_folder_make(&folder))) return;
    write_plain(test_folder_file(&folder, "a"), "old");
    chmod(folder.name, 0444);
    chmod(folder.path, 0777);
    closed_file = as_nobody(write_words, folder.name, "Permission denied; choose a place");
    chmod(folder.path, 0555);
    closed_folder =
        as_nobody(write_words, test_folder_file(&folder, "b"), "Permission denied; choose a place");
    chmod(folder.path, 0755);
    if (closed_file != 77)
        CHECK_MSG(closed_file == 0, "a file without write permission was written");
    if (closed_folder != 77) CHECK_MSG(closed_folder == 0, "the closed folder gave no clear error");
    check_content(test_folder_file(&folder, "a"), "old");
    CHECK(test_folder_count(&folder) == 1);
    test_folder_remove(&folder);
}

static void test_devices_are_written_directly(void) {
    struct stat state;
    if (access("/dev/full", W_OK) != 0) SKIP("no /dev/full");
    CHECK_OK(write_words("/dev/null"));
    CHECK(stat("/dev/null", &state) == 0 && S_ISCHR(state.st_mode));
    CHECK_FAILS(write_words("/dev/full"), ZONAL_IO,
                "cannot write /dev/full: No space left on device; free some space");
    CHECK(stat("/dev/full", &state) == 0 && S_ISCHR(state.st_mode));
}

static void test_pipes_are_written_directly(void) {
    test_folder folder;
    struct stat state;
    char got[64] = "";
    int reader;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK(mkfifo(test_folder_file(&folder, "pipe"), 0600) == 0);
    reader = open(folder.name, O_RDONLY | O_NONBLOCK);
    CHECK_OK(write_words(folder.name));
    CHECK(read(reader, got, sizeof got - 1) == 12 && strcmp(got, "two words 2\n") == 0);
    close(reader);
    CHECK(stat(folder.name, &state) == 0 && S_ISFIFO(state.st_mode));
    CHECK(test_folder_count(&folder) == 1);
    test_folder_remove(&folder);
}

/* A limit on the size of files stands in for a full disk under the temporary. */
static void test_disk_full_under_temporary(void) {
    static char block[65536];
    test_folder folder;
    struct rlimit old, small;
    zonal__file *file;
    void (*old_handler)(int) = signal(SIGXFSZ, SIG_IGN);
    if (!CHECK(test_folder_make(&folder))) return;
    write_plain(test_folder_file(&folder, "a"), "old");
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small = old;
    small.rlim_cur = 100000;
    CHECK_OK(zonal__file_create(folder.name, &file));
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK_OK(zonal__file_write(file, block, sizeof block));
    CHECK_FAILS(zonal__file_write(file, block, sizeof block), ZONAL_IO, "File too large");
    CHECK_FAILS(zonal__file_write(file, "x", 1), ZONAL_IO, "File too large");
    CHECK_FAILS(zonal__file_print(file, "x"), ZONAL_IO, "File too large");
    CHECK_FAILS(zonal__file_commit(file), ZONAL_IO, folder.name);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, old_handler);
    check_content(folder.name, "old");
    CHECK_MSG(test_folder_count(&folder) == 1, "a temporary was left behind");
    test_folder_remove(&folder);
}

/* The text still lies in the stream's buffer when the limit falls: only the commit can notice. */
static void test_disk_full_at_commit(void) {
    test_folder folder;
    struct rlimit old, small;
    zonal__file *file;
    void (*old_handler)(int) = signal(SIGXFSZ, SIG_IGN);
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small = old;
    small.rlim_cur = 1;
    CHECK_OK(zonal__file_create(test_folder_file(&folder, "a"), &file));
    CHECK_OK(zonal__file_print(file, "buffered"));
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK_FAILS(zonal__file_commit(file), ZONAL_IO, "File too large");
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, old_handler);
    CHECK(test_folder_count(&folder) == 0);
    test_folder_remove(&folder);
}

static void test_rename_fails(void) {
    test_folder folder;
    zonal__file *file;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__file_create(test_folder_file(&folder, "a"), &file));
    CHECK(mkdir(folder.name, 0700) == 0);
    CHECK_FAILS(zonal__file_commit(file), ZONAL_IO, "cannot write");
    CHECK(test_folder_count(&folder) == 1);
    test_folder_remove(&folder);
}

static void test_abandon_all(void) {
    test_folder folder;
    zonal__file *first, *second;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__file_create(test_folder_file(&folder, "a"), &first));
    CHECK_OK(zonal__file_create(test_folder_file(&folder, "b"), &second));
    CHECK(test_folder_count(&folder) == 2);
    zonal__file_abandon_all();
    CHECK(test_folder_count(&folder) == 0);
    CHECK_FAILS(zonal__file_commit(first), ZONAL_IO, "cannot write");
    zonal__file_abandon(second);
    CHECK(test_folder_count(&folder) == 0);
    test_folder_remove(&folder);
}

static void test_many_at_once(void) {
    test_folder folder;
    zonal__file *files[400] = {0};
    char name[16];
    int opened = 0;
    if (!CHECK(test_folder_make(&folder))) return;
    for (; opened < 400; opened++) {
        snprintf(name, sizeof name, "f%d", opened);
        if (zonal__file_create(test_folder_file(&folder, name), &files[opened]) != ZONAL_OK) break;
    }
    CHECK_MSG(opened == 320, "%d files in flight", opened);
    CHECK(strstr(zonal_last_error()->message, "end one first") != NULL);
    for (int i = 0; i < opened; i++) CHECK_OK(zonal__file_commit(files[i]));
    CHECK(test_folder_count(&folder) == opened);
    CHECK_OK(write_words(test_folder_file(&folder, "after")));
    test_folder_remove(&folder);
}

/* A dead process with the same number may have left its temporaries: they are not touched. */
static void test_name_is_taken(void) {
    test_folder folder;
    char name[64];
    if (!CHECK(test_folder_make(&folder))) return;
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "a.tmp.%ld-%d", (long)getpid(), i);
        write_plain(test_folder_file(&folder, name), "theirs");
    }
    CHECK_OK(write_words(test_folder_file(&folder, "a")));
    CHECK(test_folder_count(&folder) == 201);
    check_content(test_folder_file(&folder, name), "theirs");
    test_folder_remove(&folder);
}

static zonal_status write_there(void *path) {
    return write_words(path);
}

static void test_memory(void) {
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    test_every_allocation("an output file", write_there, (void *)test_folder_file(&folder, "a"));
    CHECK(test_folder_count(&folder) == 1);
    test_folder_remove(&folder);
}

static void test_plain(void) {
    test_folder folder;
    zonal__file *file;
    char target[800];
    int descriptor;
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(target, sizeof target, "%s", test_folder_file(&folder, "target"));
    write_plain(target, "theirs");
    CHECK(symlink(target, test_folder_file(&folder, "link")) == 0);
    CHECK_FAILS(zonal__file_create_plain(folder.name, &file), ZONAL_IO, "is a link");
    CHECK_FAILS(zonal__file_open_plain(folder.name, O_RDWR | O_CREAT | O_TRUNC, &descriptor),
                ZONAL_IO, "is a link");
    CHECK(descriptor == -1);
    check_content(target, "theirs");
    CHECK(mkfifo(test_folder_file(&folder, "pipe"), 0600) == 0);
    CHECK_FAILS(zonal__file_create_plain(folder.name, &file), ZONAL_IO, "pipe");
    CHECK_FAILS(zonal__file_open_plain(folder.name, O_RDONLY, &descriptor), ZONAL_IO, "pipe");
    CHECK_FAILS(zonal__file_open_plain(folder.path, O_RDONLY, &descriptor), ZONAL_IO, "a folder");
    CHECK_FAILS(zonal__file_open_plain(test_folder_file(&folder, "no"), O_RDONLY, &descriptor),
                ZONAL_IO, "cannot open");
    if (CHECK_OK(zonal__file_create_plain(target, &file))) {
        zonal__file_write(file, "ours", 4);
        CHECK_OK(zonal__file_commit(file));
        check_content(target, "ours");
    }
    if (CHECK_OK(zonal__file_open_plain(target, O_RDONLY, &descriptor))) close(descriptor);
    failing_stat = EIO;
    CHECK_FAILS(zonal__file_open_plain(target, O_RDONLY, &descriptor), ZONAL_IO, strerror(EIO));
    CHECK(descriptor == -1);
    failing_stat = 0;
    test_folder_remove(&folder);
}

static void test_temporary_names(void) {
    static const struct {
        const char *name;
        size_t length;
    } cases[] = {{"a.tmp.1-2", 1},
                 {"a.npy.tmp.123-0", 5},
                 {"a.tmp.1-2.tmp.3-4", 9},
                 {".tmp.1-2", 0},
                 {"a.tmp.", 0},
                 {"a.tmp.1", 0},
                 {"a.tmp.1-", 0},
                 {"a.tmp.-2", 0},
                 {"a.tmp.1-2x", 0},
                 {"a.tmp.x1-2", 0},
                 {"a.tmp.1-2.bak", 0},
                 {"a.tmp.1-2.tmp.", 0},
                 {"a.temporary.1-2", 0},
                 {"", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t got = zonal__file_temporary_of(cases[i].name);
        CHECK_MSG(got == cases[i].length, "%s: %zu", cases[i].name, got);
    }
}

static const test_case tests[] = {
    {"new_file", test_new_file},
    {"replaces_and_keeps_mode", test_replaces_and_keeps_mode},
    {"new_file_obeys_umask", test_new_file_obeys_umask},
    {"abandon", test_abandon},
    {"follows_links", test_follows_links},
    {"plain", test_plain},
    {"temporary_names", test_temporary_names},
    {"bad_names", test_bad_names},
    {"no_permission", test_no_permission},
    {"devices_are_written_directly", test_devices_are_written_directly},
    {"pipes_are_written_directly", test_pipes_are_written_directly},
    {"disk_full_under_temporary", test_disk_full_under_temporary},
    {"disk_full_at_commit", test_disk_full_at_commit},
    {"rename_fails", test_rename_fails},
    {"abandon_all", test_abandon_all},
    {"many_at_once", test_many_at_once},
    {"name_is_taken", test_name_is_taken},
    {"memory", test_memory},
    {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
