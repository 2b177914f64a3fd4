/* Arrays that grow: src/core/memory.h. */
#include "core/memory.h"
#include "failing_alloc.h"
#include "test.h"

/* What was put in stays, whatever moves; the room is never less than what is in use. */
static void test_grow(void) {
    int64_t *list = NULL, room = 0, wrong = 0, moves = 0;
    for (int64_t count = 0; count < 5000; count++) {
        int64_t before = room;
        if (!CHECK_OK(ZONAL_GROW(&list, count, &room, "a list"))) break;
        CHECK(room > count);
        moves += room != before;
        list[count] = count * count;
    }
    for (int64_t i = 0; i < 5000; i++) wrong += list[i] != i * i;
    CHECK_MSG(wrong == 0, "%d elements were lost", (int)wrong);
    CHECK_MSG(moves <= 8, "%d moves", (int)moves); /* 64, 128, ... 8192 */
    zonal__free(list);
}

/* A list that keeps one element more than it counts, as names with a NULL at the end do. */
static void test_grow_ahead(void) {
    const char **names = NULL;
    int64_t room = 0;
    for (int64_t count = 0; count < 300; count++) {
        if (!CHECK_OK(ZONAL_GROW(&names, count + 1, &room, "names"))) break;
        CHECK(room > count + 1 && (count == 0 || names[count] == NULL));
        names[count] = "x";
        names[count + 1] = NULL;
    }
    zonal__free((void *)names);
}

static void test_renew(void) {
    float *buffer = NULL;
    size_t room = 0;
    CHECK_OK(ZONAL_RENEW(&buffer, 10, &room, "a buffer"));
    CHECK(buffer && room == 10 * sizeof *buffer);
    float *first = buffer;
    CHECK_OK(ZONAL_RENEW(&buffer, 3, &room, "a buffer"));
    CHECK(buffer == first && room == 10 * sizeof *buffer);
    CHECK_OK(ZONAL_RENEW(&buffer, 11, &room, "a buffer"));
    CHECK(room == 11 * sizeof *buffer);
    CHECK_FAILS(ZONAL_RENEW(&buffer, INT64_MAX, &room, "a buffer"), ZONAL_MEMORY, "a buffer");
    CHECK(buffer == NULL && room == 0);
}

/* A list that cannot grow stays as it is: it is used and released once more. */
static zonal_status grow_twice(void *context) {
    int64_t room = 0, had;
    char *bytes = NULL, *before;
    zonal_status status = ZONAL_GROW(&bytes, 0, &room, "bytes");
    (void)context;
    if (status != ZONAL_OK) return status;
    before = bytes;
    had = room;
    bytes[had - 1] = 'a';
    status = ZONAL_GROW(&bytes, had, &room, "bytes");
    CHECK(bytes[had - 1] == 'a');
    CHECK(status == ZONAL_OK ? room > had : bytes == before && room == had);
    zonal__free(bytes);
    return status;
}

static void test_allocations(void) {
    test_every_allocation("a list that grows", grow_twice, NULL);
}

static const test_case tests[] = {{"grow", test_grow},
                                  {"grow_ahead", test_grow_ahead},
                                  {"renew", test_renew},
                                  {"allocations", test_allocations},
                                  {0}};

int main(int argc, char **argv) {
    return test_main(argc, argv, tests);
}
