/* Matrices in .npy files: src/core/npy.h. */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>

#include "core/memory.h"
#include "core/npy.h"
#include "failing_alloc.h"
#include "folder.h"
#include "test.h"

/* The bytes of a file: prefix of the given version, header text, data. */
typedef struct bytes {
    unsigned char at[8192];
    size_t count;
} bytes;

static void make_bytes(bytes *out, int version, const char *header, const void *data,
                       size_t data_bytes) {
    size_t length = strlen(header);
    memset(out, 0, sizeof *out);
    memcpy(out->at, "\x93NUMPY", 6);
    out->at[6] = (unsigned char)version;
    out->at[8] = (unsigned char)length;
    out->at[9] = (unsigned char)(length >> 8);
    out->count = version == 1 ? 10 : 12;
    memcpy(out->at + out->count, header, length);
    out->count += length;
    if (data_bytes) memcpy(out->at + out->count, data, data_bytes);
    out->count += data_bytes;
}

static void save(const char *path, const bytes *content) {
    FILE *stream = fopen(path, "wb");
    if (!CHECK(stream != NULL)) return;
    CHECK(fwrite(content->at, 1, content->count, stream) == content->count);
    fclose(stream);
}

/* A folder with one file of these bytes; the path is folder->name. */
static int save_in(test_folder *folder, int version, const char *header, const void *data,
                   size_t data_bytes) {
    static bytes content;
    if (!CHECK(test_folder_make(folder))) return 0;
    make_bytes(&content, version, header, data, data_bytes);
    save(test_folder_file(folder, "x.npy"), &content);
    return 1;
}

static void check_refused(int version, const char *header, const void *data, size_t data_bytes,
                          zonal_status status, const char *sentence) {
    test_folder folder;
    zonal__npy npy;
    if (!save_in(&folder, version, header, data, data_bytes)) return;
    CHECK_FAILS(zonal__npy_open(folder.name, &npy), status, sentence);
    CHECK_MSG(strstr(zonal_last_error()->message, folder.name) != NULL, "the file is not named: %s",
              zonal_last_error()->message);
    CHECK(npy.descriptor == -1);
    zonal__npy_close(&npy);
    test_folder_remove(&folder);
}

/* ---- round trips ----------------------------------------------------------------------------- */

static void test_round_trip_double(void) {
    static const double data[6] = {1.5, -2, 1.0 / 3, 1e300, -0.0, 5e-324};
    test_folder folder;
    zonal__npy npy;
    double back[6];
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__npy_write(test_folder_file(&folder, "x.npy"), ZONAL__NPY_F8, 2, 3, data));
    if (CHECK_OK(zonal__npy_open(folder.name, &npy))) {
        CHECK(npy.rows == 2 && npy.cols == 3 && !npy.header.fortran);
        CHECK(npy.header.data_at == 128 && npy.header.data_bytes == 48);
        CHECK_OK(zonal__npy_read_f8(&npy, 0, 2, back));
        CHECK(memcmp(back, data, sizeof data) == 0);
        CHECK_OK(zonal__npy_read_f8(&npy, 1, 1, back));
        CHECK(memcmp(back, data + 3, 24) == 0);
        CHECK_OK(zonal__npy_read_f8(&npy, 2, 0, back));
        zonal__npy_close(&npy);
        zonal__npy_close(&npy);
    }
    test_folder_remove(&folder);
}

static void test_round_trip_float(void) {
    static const float data[6] = {1.5f, -2, 1.0f / 3, 1e30f, -0.0f, 1e-45f};
    test_folder folder;
    zonal__npy npy;
    float back[6];
    double wide[6];
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__npy_write(test_folder_file(&folder, "x.npy"), ZONAL__NPY_F4, 3, 2, data));
    if (CHECK_OK(zonal__npy_open(folder.name, &npy))) {
        CHECK(npy.rows == 3 && npy.cols == 2);
        CHECK_OK(zonal__npy_read_f4(&npy, 0, 3, back));
        CHECK(memcmp(back, data, sizeof data) == 0);
        CHECK_OK(zonal__npy_read_f8(&npy, 0, 3, wide));
        for (int i = 0; i < 6; i++) CHECK_CLOSE(wide[i], (double)data[i], 0);
        zonal__npy_close(&npy);
    }
    test_folder_remove(&folder);
}

/* More elements than one conversion step holds, at every alignment of the steps to the rows. */
static void check_large(const char *order, int64_t rows, int64_t cols) {
    test_folder folder;
    char header[128];
    unsigned char prefix[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0};
    int fortran = strcmp(order, "True") == 0;
    zonal__npy npy;
    double *back;
    FILE *stream;
    int64_t wrong = 0;
    if (!CHECK(test_folder_make(&folder))) return;
    prefix[8] = (unsigned char)snprintf(header, sizeof header,
                                        "{'descr': '<f4', 'fortran_order': %s, 'shape': (%" PRId64
                                        ", %" PRId64 "), }\n",
                                        order, rows, cols);
    stream = fopen(test_folder_file(&folder, "x.npy"), "wb");
    fwrite(prefix, 1, sizeof prefix, stream);
    fputs(header, stream);
    for (int64_t i = 0; i < rows * cols; i++) {
        int64_t row = fortran ? i % rows : i / cols, col = fortran ? i / rows : i % cols;
        float value = (float)(row * 1000 + col);
        fwrite(&value, sizeof value, 1, stream);
    }
    fclose(stream);
    if (CHECK_OK(ZONAL_NEW(&back, rows * cols, "a copy")) &&
        CHECK_OK(zonal__npy_open(folder.name, &npy))) {
        int64_t first = rows / 7, count = rows - 2 * first;
        CHECK_OK(zonal__npy_read_f8(&npy, first, count, back));
        for (int64_t i = 0; i < count * cols; i++)
            wrong += back[i] != (double)((first + i / cols) * 1000 + i % cols);
        CHECK_MSG(wrong == 0, "%lld of %lld elements are wrong", (long long)wrong,
                  (long long)(count * cols));
        zonal__npy_close(&npy);
    }
    zonal__free(back);
    test_folder_remove(&folder);
}

static void test_large_c_order(void) {
    check_large("False", 1000, 37);
    check_large("False", 3, 20001);
    check_large("False", 30000, 1);
}

static void test_large_fortran_order(void) {
    check_large("True", 10001, 7);
    check_large("True", 2, 9000);
    check_large("True", 30000, 1);
}

static void test_fortran_order(void) {
    static const double data[6] = {1, 4, 2, 5, 3, 6};
    test_folder folder;
    zonal__npy npy;
    double back[6];
    float narrow[6];
    if (!save_in(&folder, 1, "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }\n", data,
                 sizeof data))
        return;
    if (CHECK_OK(zonal__npy_open(folder.name, &npy))) {
        CHECK_OK(zonal__npy_read_f8(&npy, 0, 2, back));
        CHECK_OK(zonal__npy_read_f4(&npy, 0, 2, narrow));
        for (int i = 0; i < 6; i++) {
            CHECK_CLOSE(back[i], i + 1, 0);
            CHECK_CLOSE((double)narrow[i], i + 1, 0);
        }
        CHECK_OK(zonal__npy_read_f8(&npy, 1, 1, back));
        CHECK(back[0] == 4 && back[1] == 5 && back[2] == 6);
        zonal__npy_close(&npy);
    }
    test_folder_remove(&folder);
}

static void test_half(void) {
    int wrong = 0;
    for (uint32_t half = 0; half < 65536; half++) {
        int exponent = (int)(half >> 10 & 31), fraction = (int)(half & 1023);
        double sign = half & 0x8000 ? -1 : 1, want;
        float got = zonal__npy_half((uint16_t)half);
        if (exponent == 31 && fraction) {
            wrong += !isnan(got) || !!signbit(got) != (sign < 0);
            continue;
        }
        if (exponent == 31)
            want = sign * INFINITY;
        else if (exponent)
            want = sign * ldexp(1024 + fraction, exponent - 25);
        else
            want = sign * ldexp(fraction, -24);
        wrong += (double)got != want || !!signbit(got) != (sign < 0);
    }
    CHECK_MSG(wrong == 0, "%d of 65536 halves are wrong", wrong);
    CHECK_CLOSE((double)zonal__npy_half(0x3c00), 1, 0);
    CHECK_CLOSE((double)zonal__npy_half(0x7bff), 65504, 0);
    CHECK_CLOSE((double)zonal__npy_half(0x0001), 0x1p-24, 0);
}

static void test_half_file(void) {
    static const uint16_t data[4] = {0x3c00, 0xc000, 0x0001, 0x7c00};
    test_folder folder;
    zonal__npy npy;
    double back[4];
    float narrow[4];
    if (!save_in(&folder, 1, "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 2), }\n", data,
                 sizeof data))
        return;
    if (CHECK_OK(zonal__npy_open(folder.name, &npy))) {
        CHECK_OK(zonal__npy_read_f8(&npy, 0, 2, back));
        CHECK_OK(zonal__npy_read_f4(&npy, 0, 2, narrow));
        CHECK(back[0] == 1 && back[1] == -2 && back[2] == 0x1p-24 && back[3] == (double)INFINITY);
        for (int i = 0; i < 4; i++) CHECK_CLOSE((double)narrow[i], back[i], 0);
        zonal__npy_close(&npy);
    }
    test_folder_remove(&folder);
}

static void test_double_to_float(void) {
    static const double data[2] = {1e300, 1.0 / 3};
    test_folder folder;
    zonal__npy npy;
    float back[2];
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__npy_write(test_folder_file(&folder, "x.npy"), ZONAL__NPY_F8, 1, 2, data));
    if (CHECK_OK(zonal__npy_open(folder.name, &npy))) {
        CHECK_OK(zonal__npy_read_f4(&npy, 0, 1, back));
        CHECK(isinf(back[0]) && back[1] == (float)(1.0 / 3));
        zonal__npy_close(&npy);
    }
    test_folder_remove(&folder);
}

/* ---- headers --------------------------------------------------------------------------------- */

static void test_accepted_headers(void) {
    static const char *const headers[] = {
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), }            \n",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2)}",
        "{'shape':(1,2,),'fortran_order':False,'descr':'<f8'}",
        "  {\t\"descr\" : \"<f8\" ,\r\n \"fortran_order\" : False , \"shape\" : ( 1 , 2 ) , } ",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1L, 2L), }\n",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (0001, 2), }\n",
    };
    static const double data[2] = {1, 2};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        for (int version = 1; version <= 3; version++) {
            test_folder folder;
            zonal__npy npy;
            if (!save_in(&folder, version, headers[i], data, sizeof data)) continue;
            if (CHECK_OK(zonal__npy_open(folder.name, &npy))) {
                double back[2];
                CHECK(npy.rows == 1 && npy.cols == 2);
                CHECK_OK(zonal__npy_read_f8(&npy, 0, 1, back));
                CHECK(back[0] == 1 && back[1] == 2);
                zonal__npy_close(&npy);
            }
            test_folder_remove(&folder);
        }
}

static void test_damaged_headers(void) {
    static const struct {
        const char *header, *sentence;
    } cases[] = {
        {"", "it does not begin with {"},
        {"garbage", "it does not begin with {"},
        {"{", "a quoted text is missing"},
        {"{}", "descr is missing"},
        {"{'descr': '<f8', 'fortran_order': False}", "shape is missing"},
        {"{'descr': '<f8', 'shape': (1, 2)}", "fortran_order is missing"},
        {"{'fortran_order': False, 'shape': (1, 2)}", "descr is missing"},
        {"{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (1, 2)}",
         "a key is there twice"},
        {"{'shape': (1, 2), 'shape': (1, 2), 'descr': '<f8', 'fortran_order': False}",
         "a key is there twice"},
        {"{'fortran_order': False, 'fortran_order': True}", "a key is there twice"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), 'extra': 1}",
         "a key is not descr, fortran_order or shape"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2)} x",
         "something follows the closing }"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2)",
         "a comma or the closing } is missing"},
        {"{'descr': '<f8' 'fortran_order': False}", "a comma or the closing } is missing"},
        {"{'descr' '<f8'}", "a colon is missing"},
        {"{'descr: <f8}", "a quoted text has no end"},
        {"{'de\\scr': 1}", "a quoted text holds a strange character"},
        {"{'descr': 8}", "a quoted text is missing"},
        {"{'fortran_order': false}", "fortran_order is neither True nor False"},
        {"{'fortran_order': 'False'}", "fortran_order is neither True nor False"},
        {"{'shape': [1, 2]}", "shape is not a tuple"},
        {"{'shape': (2)}", "shape is not a tuple"},
        {"{'shape': (1 2)}", "shape is not a tuple"},
        {"{'shape': (1, x)}", "shape is not a tuple of whole numbers"},
        {"{'shape': (1, ", "shape is not a tuple of whole numbers"},
        {"{'shape': (,)}", "shape is not a tuple of whole numbers"},
        {"{'shape': (1, +2)}", "shape is not a tuple of whole numbers"},
        {"{'shape': (1.5, 2)}", "shape is not a tuple"},
        {"{'shape': (-1, 2)}", "shape has a negative number"},
        {"{'shape': (1, 9223372036854775808)}", "does not fit into 64 bits"},
        {"{'shape': (1, 99999999999999999999999999)}", "does not fit into 64 bits"},
        {"{'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}",
         "more than 32 numbers"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
         "shape is too large for any file"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1152921504606846976)}",
         "shape is too large for any file"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1152921504606846975)}",
         "shape is too large for any file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int version = 1; version <= 3; version++)
            check_refused(version, cases[i].header, "0123456789abcdef", 16, ZONAL_FORMAT,
                          cases[i].sentence);
}

static void test_dtypes_refused(void) {
    static const struct {
        const char *descr, *sentence;
    } cases[] = {
        {"'>f4'", "is big-endian (dtype >f4), which is not read; convert it, in numpy: "
                  "x.astype('<f4')"},
        {"'>f8'", "is big-endian (dtype >f8)"},
        {"'<i8'", "holds whole numbers (dtype <i8), but float16, float32 or float64 is needed; "
                  "convert it, in numpy: x.astype('<f4')"},
        {"'|u1'", "holds whole numbers without sign (dtype |u1)"},
        {"'|b1'", "holds truth values (dtype |b1)"},
        {"'<c16'", "holds complex numbers (dtype <c16)"},
        {"'|O'", "holds Python objects (dtype |O)"},
        {"'<U5'", "holds texts (dtype <U5)"},
        {"'|S5'", "holds texts (dtype |S5)"},
        {"'<M8[ns]'", "holds dates (dtype <M8[ns])"},
        {"'<m8[ns]'", "holds durations (dtype <m8[ns])"},
        {"'|V2'", "holds raw records or bfloat16 (dtype |V2)"},
        {"'<f16'", "holds floating-point numbers of another size (dtype <f16)"},
        {"'|f4'", "floating-point numbers of another size (dtype |f4)"},
        {"'<f44'", "floating-point numbers of another size (dtype <f44)"},
        {"'q'", "holds elements of an unknown type (dtype q)"},
        {"''", "holds elements of an unknown type (dtype )"},
        {"[('a', '<f4'), ('b', '<f4')]", "holds records (a structured dtype)"},
        {"('<f4', (2,))", "holds records (a structured dtype)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char header[160];
        snprintf(header, sizeof header, "{'descr': %s, 'fortran_order': False, 'shape': (1, 2), }",
                 cases[i].descr);
        check_refused(1, header, "0123456789abcdef", 16, ZONAL_DTYPE, cases[i].sentence);
    }
}

static void test_shapes_refused(void) {
    static const struct {
        const char *shape, *sentence;
    } cases[] = {
        {"()", "has shape (), but a matrix with one embedding per row is needed; reshape it, in "
               "numpy: x.reshape(1, -1)"},
        {"(2,)", "has shape (2,), but a matrix"},
        {"(1, 2, 1)", "has shape (1, 2, 1), but a matrix with one embedding per row is needed; "
                      "reshape it, in numpy: x.reshape(-1, x.shape[-1])"},
        {"(0, 2)", "is empty: its shape is (0, 2)"},
        {"(2, 0)", "is empty: its shape is (2, 0)"},
        {"(9223372036854775807, 0)", "is empty: its shape is (9223372036854775807, 0)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char header[160];
        snprintf(header, sizeof header, "{'descr': '<f8', 'fortran_order': False, 'shape': %s, }",
                 cases[i].shape);
        check_refused(2, header, "0123456789abcdef", 16, ZONAL_SHAPE, cases[i].sentence);
    }
}

static void test_wrong_length(void) {
    static const char header[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), }\n";
    check_refused(1, header, "0123456789abcde", 15, ZONAL_FORMAT,
                  "is cut short: its header promises 86 bytes, it has 85; copy or save it again");
    check_refused(1, header, NULL, 0, ZONAL_FORMAT, "is cut short");
    check_refused(1, header, "0123456789abcdefg", 17, ZONAL_FORMAT,
                  "has 1 bytes too many after its data; save it again");
    check_refused(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000, 1000000)}",
                  "0123456789abcdef", 16, ZONAL_FORMAT, "is cut short");
}

/* Every beginning of a good file is refused in words. */
static void test_every_truncation(void) {
    static const char header[] = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), }\n";
    static bytes content;
    test_folder folder;
    for (int version = 1; version <= 2; version++) {
        size_t whole;
        if (!CHECK(test_folder_make(&folder))) return;
        make_bytes(&content, version, header, "0123456789abcdef", 16);
        whole = content.count;
        for (content.count = 0; content.count < whole; content.count++) {
            zonal__npy npy;
            const char *sentence = "is cut short";
            if (content.count == 0)
                sentence = "is empty (0 bytes), not a .npy file";
            else if (content.count < 6)
                sentence = "is not a .npy file; write one with numpy.save";
            save(test_folder_file(&folder, "x.npy"), &content);
            CHECK_FAILS(zonal__npy_open(folder.name, &npy), ZONAL_FORMAT, sentence);
        }
        test_folder_remove(&folder);
    }
}

static void test_not_npy(void) {
    static const struct {
        const char *content, *sentence;
        size_t count;
    } cases[] = {
        {"1.0,2.0\n3.0,4.0\n", "is not a .npy file; write one with numpy.save", 16},
        {"PK\003\004xxxxxxxxxxxx", "is an archive (.npz?), not a .npy file; save one array", 16},
        {"\x93NUMPY\x04\x00xxxxxxxx", "is a .npy file of version 4.0; 1.0, 2.0 and 3.0 are read",
         16},
        {"\x93NUMPY\x01\x01xxxxxxxx", "of version 1.1", 16},
        {"\x93NUMPY\x00\x00xxxxxxxx", "of version 0.0", 16},
        {"\x93NUMPY\x02\x00\xff\xff\xff\xffxxxx", "claims to be 4294967295 bytes long", 16},
    };
    test_folder folder;
    static bytes content;
    if (!CHECK(test_folder_make(&folder))) return;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        zonal__npy npy;
        memcpy(content.at, cases[i].content, cases[i].count);
        content.count = cases[i].count;
        save(test_folder_file(&folder, "x.npy"), &content);
        CHECK_FAILS(zonal__npy_open(folder.name, &npy), ZONAL_FORMAT, cases[i].sentence);
    }
    test_folder_remove(&folder);
}

static void test_paths_refused(void) {
    test_folder folder;
    zonal__npy npy;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_FAILS(zonal__npy_open("-", &npy), ZONAL_ARGUMENT,
                "reading standard input (-) is not supported; give the name of a .npy file");
    CHECK_FAILS(zonal__npy_open(test_folder_file(&folder, "none.npy"), &npy), ZONAL_IO,
                "none.npy: No such file or directory");
    CHECK_FAILS(zonal__npy_open(folder.path, &npy), ZONAL_IO, "it is a folder");
    CHECK_FAILS(zonal__npy_open("/dev/null", &npy), ZONAL_IO, "it is a pipe or a device");
    CHECK(mkfifo(test_folder_file(&folder, "pipe"), 0600) == 0);
    CHECK_FAILS(zonal__npy_open(folder.name, &npy), ZONAL_IO, "it is a pipe or a device");
    test_folder_remove(&folder);
}

static void test_rows_out_of_range(void) {
    static const double data[2] = {1, 2};
    test_folder folder;
    zonal__npy npy;
    double back[2];
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__npy_write(test_folder_file(&folder, "x.npy"), ZONAL__NPY_F8, 2, 1, data));
    if (CHECK_OK(zonal__npy_open(folder.name, &npy))) {
        CHECK_FAILS(zonal__npy_read_f8(&npy, 0, 3, back), ZONAL_ARGUMENT,
                    "3 rows from row 0 on were asked for");
        CHECK_FAILS(zonal__npy_read_f8(&npy, 2, 1, back), ZONAL_ARGUMENT, "1 rows from row 2 on");
        CHECK_FAILS(zonal__npy_read_f8(&npy, -1, 1, back), ZONAL_ARGUMENT, "from row -1 on");
        CHECK_FAILS(zonal__npy_read_f8(&npy, 0, -1, back), ZONAL_ARGUMENT, "-1 rows");
        CHECK_FAILS(zonal__npy_read_f8(&npy, INT64_MAX, INT64_MAX, back), ZONAL_ARGUMENT, "rows");
        zonal__npy_close(&npy);
    }
    test_folder_remove(&folder);
}

static void test_shrinks_while_read(void) {
    static const double data[4] = {1, 2, 3, 4};
    test_folder folder;
    zonal__npy npy;
    double back[4];
    float narrow[4];
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__npy_write(test_folder_file(&folder, "x.npy"), ZONAL__NPY_F8, 2, 2, data));
    if (CHECK_OK(zonal__npy_open(folder.name, &npy))) {
        CHECK(truncate(folder.name, 130) == 0);
        CHECK_FAILS(zonal__npy_read_f8(&npy, 0, 2, back), ZONAL_IO,
                    "it was truncated while it was read");
        CHECK_FAILS(zonal__npy_read_f4(&npy, 0, 2, narrow), ZONAL_IO, "it was truncated");
        zonal__npy_close(&npy);
    }
    test_folder_remove(&folder);
}

static void test_parse_from_memory(void) {
    static bytes content;
    zonal__npy_header header;
    make_bytes(&content, 1, "{'descr': '<f2', 'fortran_order': True, 'shape': (2, 3, 4)}", NULL, 0);
    CHECK_OK(zonal__npy_parse(content.at, content.count, "memory", &header));
    CHECK(header.type == ZONAL__NPY_F2 && header.fortran && header.rank == 3);
    CHECK(header.shape[2] == 4 && header.data_bytes == 48);
    CHECK(header.data_at == (int64_t)content.count);
    CHECK_FAILS(zonal__npy_parse(content.at, content.count - 1, "memory", &header), ZONAL_FORMAT,
                "memory is cut short inside its header");
    make_bytes(&content, 1, "{'descr': '<f2', 'fortran_order': True, 'shape': ()}", NULL, 0);
    CHECK_OK(zonal__npy_parse(content.at, content.count, "memory", &header));
    CHECK(header.rank == 0 && header.data_bytes == 2);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void test_writer_refuses(void) {
    double data = 1;
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    test_folder_file(&folder, "x.npy");
    CHECK_FAILS(zonal__npy_write(folder.name, ZONAL__NPY_F2, 1, 1, &data), ZONAL_DTYPE,
                "only float32 and float64 are written");
    CHECK_FAILS(zonal__npy_write(folder.name, ZONAL__NPY_F8, -1, 1, &data), ZONAL_SHAPE,
                "cannot have shape (-1, 1)");
    CHECK_FAILS(zonal__npy_write(folder.name, ZONAL__NPY_F8, INT64_MAX, INT64_MAX, &data),
                ZONAL_SHAPE, "too large");
    CHECK_FAILS(zonal__npy_write("/nowhere/at/all.npy", ZONAL__NPY_F8, 1, 1, &data), ZONAL_IO,
                "cannot write /nowhere/at/all.npy: No such file or directory");
    if (access("/dev/full", W_OK) == 0)
        CHECK_FAILS(zonal__npy_write("/dev/full", ZONAL__NPY_F8, 1, 1, &data), ZONAL_IO,
                    "cannot write /dev/full: No space left on device");
    CHECK(test_folder_count(&folder) == 0);
    test_folder_remove(&folder);
}

static void test_written_header(void) {
    static const char want[] = "{'descr': '<f8', 'fortran_order': False, 'shape': "
                               "(9223372036854775807, 0), }";
    char got[129] = "";
    test_folder folder;
    FILE *stream;
    if (!CHECK(test_folder_make(&folder))) return;
    CHECK_OK(zonal__npy_write(test_folder_file(&folder, "x.npy"), ZONAL__NPY_F8, INT64_MAX, 0, ""));
    stream = fopen(folder.name, "rb");
    if (CHECK(stream != NULL)) {
        CHECK(fread(got, 1, sizeof got, stream) == 128);
        CHECK(memcmp(got, "\x93NUMPY\x01\x00v\x00", 10) == 0);
        CHECK_MSG(memcmp(got + 10, want, sizeof want - 1) == 0, "header %s", got + 10);
        CHECK(got[126] == ' ' && got[127] == '\n');
        fclose(stream);
    }
    test_folder_remove(&folder);
}

static zonal_status write_and_read(void *context) {
    static const double data[4] = {1, 2, 3, 4};
    double back[4];
    zonal__npy npy;
    zonal_status status;
    ZONAL_TRY(zonal__npy_write(context, ZONAL__NPY_F8, 2, 2, data));
    ZONAL_TRY(zonal__npy_open(context, &npy));
    status = zonal__npy_read_f8(&npy, 0, 2, back);
    zonal__npy_close(&npy);
    return status;
}

static void test_memory(void) {
    test_folder folder;
    if (!CHECK(test_folder_make(&folder))) return;
    test_every_allocation("a matrix to disk and back", write_and_read,
                          (void *)test_folder_file(&folder, "x.npy"));
    test_folder_remove(&folder);
}

static const test_case tests[] = {{"round_trip_double", test_round_trip_double},
                                  {"round_trip_float", test_round_trip_float},
                                  {"large_c_order", test_large_c_order},
                                  {"large_fortran_order", test_large_fortran_order},
                                  {"fortran_order", test_fortran_order},
                                  {"half", test_half},
                                  {"half_file", test_half_file},
                                  {"double_to_float", test_double_to_float},
                                  {"accepted_headers", test_accepted_headers},
                                  {"damaged_headers", test_damaged_headers},
                                  {"dtypes_refused", test_dtypes_refused},
                                  {"shapes_refused", test_shapes_refused},
                                  {"wrong_length", test_wrong_length},
                                  {"every_truncation", test_every_truncation},
                                  {"not_npy", test_not_npy},
                                  {"paths_refused", test_paths_refused},
                                  {"rows_out_of_range", test_rows_out_of_range},
                                  {"shrinks_while_read", test_shrinks_while_read},
                                  {"parse_from_memory", test_parse_from_memory},
                                  {"writer_refuses", test_writer_refuses},
                                  {"written_header", test_written_header},
                                  {"memory", test_memory},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
