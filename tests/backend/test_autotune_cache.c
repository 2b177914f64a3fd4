/* The autotuning cache and its file (backend/training/autotune_cache.h). */
#include "backend/training/autotune_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "failing_alloc.h"
#include "test.h"

static const char machine[] = "NVIDIA H200, cuDNN 91400, cuBLASLt 130100";
static char path[64];
static zonal__autotune_cache first, second;

static void clear(void) {
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
}

static void write_text(const char *text, size_t length) {
    FILE *file = fopen(path, "wb");
    if (!CHECK(file != NULL)) return;
    CHECK(fwrite(text, 1, length, file) == length);
    CHECK(fclose(file) == 0);
}

static int same(const char *a, const char *b) {
    return a && b && strcmp(a, b) == 0;
}

static void test_table(void) {
    char text[ZONAL__AUTOTUNE_TEXT + 1];
    clear();
    CHECK(zonal__autotune_cache_find(&first, "a") == NULL);
    CHECK(zonal__autotune_cache_put(&first, "a", "1") &&
          zonal__autotune_cache_put(&first, "ab", "2"));
    CHECK(zonal__autotune_cache_put(&first, "a", "one"));
    CHECK(first.count == 2 && same(zonal__autotune_cache_find(&first, "a"), "one"));
    CHECK(same(zonal__autotune_cache_find(&first, "ab"), "2"));
    CHECK(!zonal__autotune_cache_put(&first, "", "1") &&
          !zonal__autotune_cache_put(&first, "x", ""));
    CHECK(!zonal__autotune_cache_put(&first, "x\ty", "1") &&
          !zonal__autotune_cache_put(&first, "x", "1\n2"));
    memset(text, 'x', sizeof text);
    text[ZONAL__AUTOTUNE_TEXT] = '\0';
    CHECK(!zonal__autotune_cache_put(&first, "x", text) &&
          !zonal__autotune_cache_put(&first, text, "1"));
    text[ZONAL__AUTOTUNE_TEXT - 1] = '\0';
    CHECK(zonal__autotune_cache_put(&first, "x", text) &&
          same(zonal__autotune_cache_find(&first, "x"), text));
}

static void fill(zonal__autotune_cache *cache, int count) {
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "key %d", i);
        CHECK(zonal__autotune_cache_put(cache, key, "cudnn fp32 7 2=1 4=0"));
    }
}

static void test_full(void) {
    clear();
    fill(&first, ZONAL__AUTOTUNE_ENTRIES);
    CHECK(!zonal__autotune_cache_put(&first, "another", "1"));
    CHECK(zonal__autotune_cache_put(&first, "key 5", "five"));
    CHECK_OK(zonal__autotune_cache_write(&first, machine, path));
    CHECK_OK(zonal__autotune_cache_read(&first, machine, path)); /* the same keys once more */
    CHECK(first.count == ZONAL__AUTOTUNE_ENTRIES);
    CHECK(zonal__autotune_cache_put(&second, "another", "1"));
    CHECK_FAILS(zonal__autotune_cache_read(&second, machine, path), ZONAL_FORMAT,
                "remove the file");
    CHECK(second.count == 1);
}

static void test_file(void) {
    clear();
    CHECK(zonal__autotune_cache_put(&first, "forward bf16 512x56x56x64", "cudnn bf16 57 2=3"));
    CHECK(zonal__autotune_cache_put(&first, "filter = fp32", "lt 00ff"));
    CHECK_OK(zonal__autotune_cache_write(&first, machine, path));
    CHECK(zonal__autotune_cache_put(&second, "filter = fp32", "direct"));
    CHECK(zonal__autotune_cache_put(&second, "mine", "stays"));
    CHECK_OK(zonal__autotune_cache_read(&second, machine, path));
    CHECK(second.count == 3 &&
          same(zonal__autotune_cache_find(&second, "filter = fp32"), "lt 00ff"));
    CHECK(same(zonal__autotune_cache_find(&second, "forward bf16 512x56x56x64"),
               "cudnn bf16 57 2=3"));
    CHECK(same(zonal__autotune_cache_find(&second, "mine"), "stays"));
}

static void count_line(void *context, const char *line) {
    *(int *)context += strstr(line, "another GPU") != NULL;
}

static void test_other_machine(void) {
    int lines = 0;
    clear();
    CHECK(zonal__autotune_cache_put(&first, "a", "1"));
    CHECK_OK(zonal__autotune_cache_write(&first, "another GPU, cuDNN 1", path));
    zonal_set_log(count_line, &lines);
    CHECK_OK(zonal__autotune_cache_read(&second, machine, path));
    zonal_set_log(NULL, NULL);
    CHECK(second.count == 0 && lines == 1);
    CHECK(remove(path) == 0);
    CHECK_OK(zonal__autotune_cache_read(&second, machine, path));
    CHECK(second.count == 0);
}

/* Whatever the file says, all of it is taken or nothing. A cut at the end of a line leaves a
 * shorter file that is good. */
static void test_cut_off(void) {
    char text[256];
    int length =
        snprintf(text, sizeof text, "zonal autotune 1\n%s\nkey a\tone\nkey b\ttwo\n", machine);
    for (int i = 0; i <= length; i++) {
        int lines = 0;
        for (int j = 0; j < i; j++) lines += text[j] == '\n';
        int good = i > 0 && text[i - 1] == '\n' && lines >= 2;
        clear();
        write_text(text, (size_t)i);
        if (good)
            CHECK_OK(zonal__autotune_cache_read(&second, machine, path));
        else
            CHECK_FAILS(zonal__autotune_cache_read(&second, machine, path), ZONAL_FORMAT,
                        "measured again");
        CHECK_MSG(second.count == (good ? lines - 2 : 0), "cut at %d: %d entries", i, second.count);
    }
}

static void test_bad_lines(void) {
    static const char *const lines[] = {"no tab\n",  "\tno key\n", "no entry\t\n",
                                        "a\tb\tc\n", "\n",         "a\tb\r\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char text[256];
        int length =
            snprintf(text, sizeof text, "zonal autotune 1\n%s\nx\ty\n%s", machine, lines[i]);
        clear();
        write_text(text, (size_t)length);
        CHECK_FAILS(zonal__autotune_cache_read(&second, machine, path), ZONAL_FORMAT, "line 4");
        CHECK(second.count == 0);
    }
    clear();
    write_text("zonal autotune 1\n\0\n", 19);
    CHECK_FAILS(zonal__autotune_cache_read(&second, machine, path), ZONAL_FORMAT, "line 1");
    CHECK_FAILS(zonal__autotune_cache_read(&second, machine, "/"), ZONAL_IO, "/");
}

static zonal_status write_and_read(void *context) {
    (void)context;
    ZONAL_TRY(zonal__autotune_cache_write(&first, machine, path));
    return zonal__autotune_cache_read(&second, machine, path);
}

static void test_memory(void) {
    clear();
    CHECK(zonal__autotune_cache_put(&first, "a", "1"));
    test_every_allocation("autotune_cache", write_and_read, NULL);
}

static const test_case tests[] = {{"table", test_table},     {"full", test_full},
                                  {"file", test_file},       {"other_machine", test_other_machine},
                                  {"cut_off", test_cut_off}, {"bad_lines", test_bad_lines},
                                  {"memory", test_memory},   {0}};

int main(int argc, char **argv) {
    snprintf(path, sizeof path, "/tmp/zonal-autotune-%ld.txt", (long)getpid());
    int result = test_main(argc, argv, tests);
    remove(path);
    return result;
}
