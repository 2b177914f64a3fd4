#include "cli/bench/dist_model.h"

#include <math.h>

double zonal__cost_seconds(const zonal__cost *cost, int64_t rows) {
    int last = cost->points - 1, above = 1;
    double b = (double)rows, growth = cost->path == ZONAL__PATH_PAIRS ? 2 : 1;
    if (rows >= cost->point[last].rows || last == 0)
        return cost->point[last].seconds * pow(b / (double)cost->point[last].rows, growth);
    if (rows <= cost->point[0].rows) return cost->point[0].seconds;
    while (cost->point[above].rows < rows) above++;
    double b0 = (double)cost->point[above - 1].rows, t0 = cost->point[above - 1].seconds;
    double b1 = (double)cost->point[above].rows, t1 = cost->point[above].seconds;
    return t0 * pow(t1 / t0, log(b / b0) / log(b1 / b0));
}

double zonal__link_seconds(const zonal__link *link, double bytes) {
    int above = 1;
    if (link->points < 2) return link->latency + bytes / link->bandwidth;
    while (above + 1 < link->points && link->point[above].bytes < bytes) above++;
    double x0 = link->point[above - 1].bytes, y0 = link->point[above - 1].seconds;
    double x1 = link->point[above].bytes, y1 = link->point[above].seconds;
    return fmax(0, y0 + (bytes - x0) * (y1 - y0) / (x1 - x0));
}

/* A sum over the ranks of so many bytes. */
static double sum_seconds(double bytes, int ranks, const zonal__link *link) {
    double steps = log2(ranks); /* there and back */
    if (ranks == 1) return 0;
    return 2 * steps * zonal__link_seconds(link, (ranks - 1.) / ranks * bytes / steps);
}

static zonal__prediction predict_ring(const zonal__cost *cost, int ranks, int64_t rows, int64_t dim,
                                      const zonal__link *link, int overlapped) {
    double own = zonal__cost_seconds(cost, rows);
    double block = own * cost->foreign; /* KL's two rounds are both in it */
    double bytes = (double)rows * (16 + 4 * (double)dim);
    double shift = cost->rounds * zonal__link_seconds(link, bytes);
    /* The first shift runs beside the own block, the next ones beside those of others. */
    double step = overlapped ? fmax(block, shift) : block + shift;
    double begin = overlapped ? fmax(own, shift) : own + shift;
    zonal__prediction p = {.compute = own + (ranks - 1) * block,
                           .exchange = (ranks - 1) * shift,
                           .hidden = overlapped && shift <= own};
    p.seconds = ranks == 1 ? own : begin + (ranks - 2) * step + block;
    return p;
}

zonal__prediction zonal__predict(const zonal__cost *cost, int ranks, int64_t rows, int64_t dim,
                                 const zonal__link *link, int overlapped) {
    double d = (double)dim, small = 2 * sum_seconds(8 * (d + 2), ranks, link);
    zonal__prediction p;
    if (cost->path == ZONAL__PATH_PAIRS) {
        p = predict_ring(cost, ranks, rows, dim, link, overlapped);
    } else {
        double numbers = cost->path == ZONAL__PATH_MOMENTS
                             ? d * d
                             : 2 * (double)cost->knots * (double)cost->slices;
        p = (zonal__prediction){.compute = zonal__cost_seconds(cost, rows),
                                .exchange = sum_seconds(8 * numbers, ranks, link)};
        p.seconds = p.compute + p.exchange;
    }
    p.exchange += small; /* who has failed, and the mean */
    p.seconds += small;
    return p;
}
