/* Files of records, and what differs between two of them: src/reproduce/records.h. */
#include "folder.h"
#include "record_text.h"
#include "test.h"

static void test_records_file(void) {
    test_folder folder;
    zonal__records records = {0};
    char path[768], other[768];
    int64_t added;
    FILE *file;
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "here.jsonl"));
    snprintf(other, sizeof other, "%s", test_folder_file(&folder, "there.jsonl"));
    CHECK_OK(zonal__records_read(&records, path)); /* not there: none */
    CHECK_OK(zonal__records_append(path, record_text("susreg", "disk", 0, 0.5, "")));
    file = fopen(path, "ab");
    if (CHECK(file != NULL)) {
        fputs("{\"experiment\": \"table-tex", file); /* a loss of power */
        fclose(file);
    }
    CHECK_OK(zonal__records_append(path, record_text("susreg", "disk", 1, 0.6, "")));
    CHECK_OK(zonal__records_append(other, record_text("susreg", "disk", 1, 0.6, "")));
    CHECK_OK(zonal__records_append(other, record_text("susreg", "disk", 2, 0.7, "")));
    CHECK_OK(zonal__records_append(other, "{\"experiment\": \"x\"}"));
    CHECK_OK(zonal__records_read(&records, path));
    CHECK_OK(zonal__records_merge(&records, path, other, &added));
    CHECK(added == 1 && records.count == 3);
    CHECK_OK(zonal__records_merge(&records, path, other, &added));
    CHECK(added == 0);
    CHECK_FAILS(zonal__records_merge(&records, path, "/nowhere/x.jsonl", &added), ZONAL_IO,
                "/nowhere");
    zonal__records_fini(&records);
    CHECK_OK(zonal__records_read(&records, path));
    if (CHECK_MSG(records.count == 3, "%lld records", (long long)records.count))
        for (int i = 0; i < 3; i++) {
            CHECK(records.at[i].seed == i);
            CHECK_CLOSE(zonal__record_metric(&records.at[i], "retrieval.projector.r1"),
                        0.5 + 0.1 * i, 1e-15);
            CHECK(strcmp(records.at[i].configuration, "a=1\nb=2\n") == 0);
        }
    zonal__records_fini(&records);
    CHECK_FAILS(zonal__records_check("/nowhere/x.jsonl"), ZONAL_IO, "/nowhere");
    test_folder_remove(&folder);
}

static void put_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    if (!CHECK(file != NULL)) return;
    fputs(text, file);
    fclose(file);
}

/* A file of other lines is refused; what a crash can have left of records is not. */
static void test_records_kinds(void) {
    static const char *const others[] = {"# notes\n",
                                         "notes",
                                         "\n\nnotes\n\n",
                                         "{\n  \"experiment\": \"table-textures\"\n}\n",
                                         "{\"kind\": \"step\",\"step\": 1}\n",
                                         "{\"\nnotes\n"};
    static const char *const crashed[] = {"",
                                          "\n",
                                          "{",
                                          "{\"exper",
                                          "{\"exper\n",
                                          "{\"experiment\": \"table-te\n",
                                          "notes\n{\"experiment\": \"table-te"};
    test_folder folder;
    zonal__records records = {0};
    char path[768], text[2200];
    int64_t added;
    if (!CHECK(test_folder_make(&folder))) return;
    snprintf(path, sizeof path, "%s", test_folder_file(&folder, "a.jsonl"));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        put_text(path, others[i]);
        CHECK_FAILS(zonal__records_read(&records, path), ZONAL_FORMAT, "a.jsonl holds something");
        CHECK_FAILS(zonal__records_merge(&records, "/nowhere/x.jsonl", path, &added), ZONAL_FORMAT,
                    "a.jsonl holds something");
    }
    for (size_t i = 0; i < sizeof crashed / sizeof crashed[0]; i++) {
        put_text(path, crashed[i]);
        CHECK_OK(zonal__records_read(&records, path));
    }
    CHECK(records.count == 0);
    /* The members of a record may stand in another order, and other lines before it. */
    snprintf(text, sizeof text, "notes\n{\"a\": 1, %s\n",
             record_text("susreg", "disk", 0, 0.5, "") + 1);
    put_text(path, text);
    CHECK_OK(zonal__records_read(&records, path));
    CHECK(records.count == 1);
    zonal__records_fini(&records);
    test_folder_remove(&folder);
}

static void test_records_refused(void) {
    static const char *const wrong[] = {
        "",
        "{",
        "[]",
        "{}",
        "{\"experiment\": 1, \"method\": \"a\", \"data\": \"b\", \"variant\": \"\", \"seed\": 0}",
        ("{\"experiment\": \"e\", \"method\": \"a\", \"data\": \"b\", \"variant\": \"\", "
         "\"seed\": -1}"),
        "{\"experiment\": \"e\", \"method\": \"a\", \"data\": \"b\", \"variant\": \"\"}"};
    zonal__records records = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK_FAILS(add_record(&records, wrong[i]), ZONAL_FORMAT, "");
    CHECK(records.count == 0);
    zonal__records_fini(&records);
}

static void test_alike(void) {
    static const char *const others[] = {", \"decided\": {\"gain\": \"7\"}",
                                         ", \"images\": \"0123456789abcdef\""};
    zonal__records records = {0};
    char text[256];
    CHECK_OK(add_record(&records, record_text("susreg", "disk", 0, 0.5, "")));
    CHECK_OK(
        add_record(&records, record_text("susreg", "disk", 1, 0.6, ", \"device\": \"other\"")));
    CHECK(zonal__records_alike(&records.at[0], &records.at[1]));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(add_record(&records, record_text("susreg", "disk", 1, 0.6, others[i])));
        CHECK(!zonal__records_alike(&records.at[0], &records.at[2 + i]));
    }
    zonal__records_difference(&records.at[0], &records.at[2], text, sizeof text);
    CHECK_MSG(strcmp(text, "gain (7 and the default)") == 0, "%s", text);
    zonal__records_difference(&records.at[0], &records.at[3], text, sizeof text);
    CHECK_MSG(strcmp(text, "the images") == 0, "%s", text);
    zonal__records_fini(&records);
}

static const test_case tests[] = {{"file", test_records_file},
                                  {"kinds", test_records_kinds},
                                  {"refused", test_records_refused},
                                  {"alike", test_alike},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
