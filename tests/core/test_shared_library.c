/* Libraries opened at run time: src/core/shared_library.h. opened_library.c, of which there are two
 * copies of one name, tells which of them is open. */
#include <dlfcn.h>

#include "core/shared_library.h"
#include "test.h"

static const char *const probe_names[] = {"libzonal_probe.so", NULL};
static const zonal__shared_library probe = {"the probe", probe_names, PROBES "/probe2",
                                            "build it first"};

static int number_of(const zonal__shared_library *library, void *handle) {
    int (*number)(void) = NULL;
    if (!CHECK_OK(
            zonal__shared_library_function(library, handle, "opened_library_number", &number)))
        return -1;
    return number();
}

/* The loader does not know the folders of the probes, so the folder given is what finds one. */
static void test_folder(void) {
    void *handle;
    if (!CHECK_OK(zonal__shared_library_open(&probe, &handle))) return;
    CHECK(number_of(&probe, handle) == 2);
    dlclose(handle);
}

static void test_loaded_before(void) {
    void *first = dlopen(PROBES "/probe1/libzonal_probe.so", RTLD_NOW | RTLD_LOCAL), *handle;
    if (!CHECK_MSG(first != NULL, "%s", dlerror())) return;
    if (CHECK_OK(zonal__shared_library_open(&probe, &handle))) {
        CHECK(number_of(&probe, handle) == 1);
        dlclose(handle);
    }
    dlclose(first);
}

/* The names are tried one after the other. */
static void test_names(void) {
    static const char *const names[] = {"libzonal_none.so.7", "libm.so.6", "libc.so.6", NULL};
    const zonal__shared_library library = {"mathematics", names, NULL, "install it"};
    double (*cosine)(double) = NULL;
    void *handle;
    if (!CHECK_OK(zonal__shared_library_open(&library, &handle))) return;
    if (CHECK_OK(zonal__shared_library_function(&library, handle, "cos", &cosine)))
        CHECK_CLOSE(cosine(0), 1, 0);
    dlclose(handle);
}

static void test_missing(void) {
    static const char *const names[] = {"libzonal_none.so.7", "libzonal_none.so", NULL};
    const zonal__shared_library none = {"nothing", names, NULL, "ask for something"};
    const zonal__shared_library elsewhere = {"nothing", names, PROBES "/probe1", "look again"};
    void *handle = (void *)&none;
    CHECK_FAILS(zonal__shared_library_open(&none, &handle), ZONAL_UNSUPPORTED,
                "nothing cannot be opened (libzonal_none.so.7: ");
    CHECK(handle == NULL);
    CHECK(strstr(zonal_last_error()->message, "; ask for something") != NULL);
    CHECK_FAILS(zonal__shared_library_open(&elsewhere, &handle), ZONAL_UNSUPPORTED, "; look again");
}

static void test_another_version(void) {
    void (*function)(void) = (void (*)(void))test_missing;
    void *handle;
    if (!CHECK_OK(zonal__shared_library_open(&probe, &handle))) return;
    CHECK_FAILS(zonal__shared_library_function(&probe, handle, "opened_library_letter", &function),
                ZONAL_UNSUPPORTED, "the probe has no function opened_library_letter");
    CHECK(strstr(zonal_last_error()->message, "; build it first") != NULL);
    CHECK(function == NULL);
    dlclose(handle);
}

static const test_case tests[] = {
    {"folder", test_folder},   {"loaded_before", test_loaded_before},     {"names", test_names},
    {"missing", test_missing}, {"another_version", test_another_version}, {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
