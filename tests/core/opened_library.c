/* The library that test_shared_library.c opens: it tells which of two copies it is. */
__attribute__((visibility("default"))) int opened_library_number(void);

int opened_library_number(void) {
    return NUMBER;
}
