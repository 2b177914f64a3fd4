#include "dist/transport.h"

#include <string.h>

#include "core/text.h"

double zonal__transport_grace(double timeout) {
    return timeout < 4 ? 1 : timeout / 4;
}

/* "rank 3", "ranks 1, 2", "ranks 1, 2, 3 and 61 more": those with present[r] = 0. */
static int list_missing(const zonal__transport *t, const char *present, char *out, size_t size) {
    enum { SHOWN = 3 };
    int count = 0;
    char names[64] = "";
    for (int r = 0; r < t->communicator.ranks; r++)
        if (!present[r] && ++count <= SHOWN)
            zonal__text_append(names, sizeof names, "%s%d", count > 1 ? ", " : "", r);
    if (count > SHOWN) zonal__text_append(names, sizeof names, " and %d more", count - SHOWN);
    out[0] = '\0';
    zonal__text_append(out, size, "rank%s %s", zonal__text_plural(count), names);
    return count;
}

zonal_status zonal__transport_lose(zonal__transport *transport, const char *present, int ended,
                                   double timeout) {
    char names[96];
    int missing = list_missing(transport, present, names, sizeof names);
    const char *first = memchr(present, 1, (size_t)transport->communicator.ranks);
    transport->lost = 1;
    transport->speaker = first ? (int)(first - present) : 0;
    if (missing == 0)
        return ZONAL_FAIL(ZONAL_IO,
                          "all ranks answer, but wait for each other in different calls: this is a "
                          "fault of the program");
    if (ended)
        return ZONAL_FAIL(ZONAL_IO, "%s of %d %s ended without finishing; start the job again",
                          names, transport->communicator.ranks, missing > 1 ? "have" : "has");
    return ZONAL_FAIL(ZONAL_IO,
                      "%s of %d %s not answered for %g s: stuck, stopped or cut off; start the job "
                      "again, or give ranks more time with --rank-timeout",
                      names, transport->communicator.ranks, missing > 1 ? "have" : "has", timeout);
}
