/*
 * zonal bench dist --model: from the times of one device and the speeds of links to the times of
 * many. What of it was measured and what is assumed is printed with it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/dist.h"
#include "cli/common/json_line.h"
#include "core/text.h"

typedef zonal__dist_bench bench;

enum { FIRST_RANKS = 8, MOST_RANKS = 4096, MOST_ROWS = 1 << 20 };

/* ---- the times of one device ----------------------------------------------------------------- */

/* NAME:B:MS of this method in --times; without any the cost has no points. */
static zonal_status read_times(const char *text, const char *method, zonal__cost *cost) {
    while (text && *text) {
        char name[32], number[32], ms[32];
        int length = 0, i = cost->points;
        if (sscanf(text, "%31[^:,]:%31[^:,]:%31[^:,]%n", name, number, ms, &length) != 3)
            return ZONAL_FAIL(ZONAL_ARGUMENT, "--times: expected NAME:B:MS, got \"%s\"", text);
        if (strcmp(name, method) == 0) {
            int64_t rows;
            double time;
            if (i == ZONAL__COST_POINTS)
                return ZONAL_FAIL(ZONAL_ARGUMENT, "--times takes at most %d of a method",
                                  ZONAL__COST_POINTS);
            ZONAL_TRY(zonal__text_int64(number, "--times", &rows));
            ZONAL_TRY(zonal__text_double(ms, "--times", &time));
            if (rows < 2 || !(time > 0) || (i > 0 && rows <= cost->point[i - 1].rows))
                return ZONAL_FAIL(ZONAL_ARGUMENT, "--times: B must grow and MS be positive");
            cost->point[i].rows = rows;
            cost->point[i].seconds = 1e-3 * time;
            cost->points++;
        }
        text += length;
        if (*text == ',') text++;
    }
    return ZONAL_OK;
}

static zonal_status measure_times(const bench *b, const zonal_loss_options *loss,
                                  zonal__cost *cost) {
    static const int64_t sizes[] = {512, 4096};
    for (int i = 0; i < 2; i++) {
        cost->point[i].rows = sizes[i];
        ZONAL_TRY(zonal__dist_time(b, loss, 0, sizes[i], &cost->point[i].seconds, NULL));
        cost->points++;
    }
    return ZONAL_OK;
}

/* By the path that large batches take: moments where they pay. */
static zonal_status find_cost(const bench *b, const char *method, zonal__cost *cost) {
    zonal_loss_options loss;
    ZONAL_TRY(zonal__dist_loss(b, method, &loss));
    ZONAL_TRY(zonal__dist_cost(b, &loss, 1 << 20, cost));
    ZONAL_TRY(read_times(b->settings->times, method, cost));
    if (cost->path == ZONAL__PATH_MOMENTS) loss.implementation = ZONAL_IMPLEMENTATION_MOMENTS;
    if (cost->points == 0) return measure_times(b, &loss, cost);
    cost->foreign = 1; /* of another machine, and of a GPU, which has no cheaper own block */
    return ZONAL_OK;
}

/* ---- predictions ----------------------------------------------------------------------------- */

/* A ring is as fast as its slowest link. */
static zonal__link link_of(const zonal__dist_settings *s, int ranks) {
    return ranks <= s->node
               ? (zonal__link){.latency = 1e-6 * s->node_us, .bandwidth = 1e9 * s->node_gb}
               : (zonal__link){.latency = 1e-6 * s->net_us, .bandwidth = 1e9 * s->net_gb};
}

static zonal__prediction predict(const bench *b, const zonal__cost *cost, int ranks, int64_t rows) {
    zonal__link link = link_of(b->settings, ranks);
    return zonal__predict(cost, ranks, rows, b->settings->dim, &link, 1);
}

/* The loss of all views as a part of a step. */
static double share(const bench *b, const zonal__prediction *p, int64_t rows) {
    const zonal__dist_settings *s = b->settings;
    double step = 1e-3 * s->step_ms * (double)rows / (double)s->step_rows;
    return (double)s->views * p->seconds / step;
}

static void print_line(const bench *b, const char *method, int ranks, int64_t rows,
                       const zonal__prediction *p) {
    zonal__json json;
    if (!b->settings->json) {
        printf("%-12s %6d %8lld %10lld %11.3f %11.3f %11.3f %7.2f %%  %s\n", method, ranks,
               (long long)rows, (long long)(ranks * rows), 1e3 * p->seconds, 1e3 * p->compute,
               1e3 * p->exchange, 100 * share(b, p, rows), p->hidden ? "hidden" : "");
        return;
    }
    zonal__json_line_begin(&json);
    zonal__json_key_text(&json, "method", method);
    zonal__json_key_int(&json, "ranks", ranks);
    zonal__json_key_int(&json, "rows", rows);
    zonal__json_key_int(&json, "n", ranks * rows);
    zonal__json_key_double(&json, "model_ms", 1e3 * p->seconds);
    zonal__json_key_double(&json, "compute_ms", 1e3 * p->compute);
    zonal__json_key_double(&json, "exchange_ms", 1e3 * p->exchange);
    zonal__json_key_double(&json, "share", share(b, p, rows));
    zonal__json_key_bool(&json, "hidden", p->hidden);
    zonal__json_line_end(&json);
}

/* ---- what follows ---------------------------------------------------------------------------- */

/* The rows of a rank from which on the ring is hidden; 0: not even at the most. */
static int64_t hidden_from(const bench *b, const zonal__cost *cost, int ranks) {
    int64_t from = 16, rows;
    for (rows = from; rows <= MOST_ROWS; rows += rows / 16)
        if (!predict(b, cost, ranks, rows).hidden) from = rows + rows / 16;
    return from < rows ? from : 0;
}

/* The largest batch, over all numbers of ranks up to 4096, whose loss takes less than 5 % of a
 * step; 0: none. */
static int64_t largest_batch(const bench *b, const zonal__cost *cost, int64_t rows, int *ranks) {
    int64_t largest = 0;
    for (int n = 1; n <= MOST_RANKS; n++) {
        zonal__prediction p = predict(b, cost, n, rows);
        if (share(b, &p, rows) < 0.05) {
            largest = n * rows;
            *ranks = n;
        }
    }
    return largest;
}

static void print_hidden(int64_t rows, const char *where) {
    if (rows > 0)
        printf("from %lld rows a rank %s", (long long)rows, where);
    else
        printf("not up to %d rows a rank %s", MOST_ROWS, where);
}

static void print_consequences(const bench *b, const char *method, const zonal__cost *cost,
                               const int64_t *rows, int count) {
    if (cost->path == ZONAL__PATH_PAIRS) {
        printf("%-12s the ring is hidden ", method);
        print_hidden(hidden_from(b, cost, (int)b->settings->node), "inside a machine, ");
        print_hidden(hidden_from(b, cost, MOST_RANKS), "between machines\n");
    }
    for (int i = 0; i < count; i++) {
        int ranks = 0;
        int64_t batch = largest_batch(b, cost, rows[i], &ranks);
        if (batch == 0)
            printf("%-12s %lld rows a rank: over 5 %% of a step on any number of ranks\n", method,
                   (long long)rows[i]);
        else
            printf("%-12s %lld rows a rank: under 5 %% of a step up to B = %lld, on %d ranks%s\n",
                   method, (long long)rows[i], (long long)batch, ranks,
                   ranks == MOST_RANKS ? " (the most that was tried)" : "");
    }
}

static void print_assumptions(const bench *b, const zonal__cost *cost) {
    const zonal__dist_settings *s = b->settings;
    printf(
        "links: %g GB/s and %g us inside machines of %lld ranks, %g GB/s and %g us between them\n"
        "step: %g ms for %lld images on each rank, in proportion to its rows; %lld views\n",
        s->node_gb, s->node_us, (long long)s->node, s->net_gb, s->net_us, s->step_ms,
        (long long)s->step_rows, (long long)s->views);
    for (int m = 0; m < b->methods; m++) {
        printf("%-12s one device:", b->method[m]);
        for (int i = 0; i < cost[m].points; i++)
            printf("%s %.4g ms for %lld rows", i > 0 ? "," : "", 1e3 * cost[m].point[i].seconds,
                   (long long)cost[m].point[i].rows);
        putchar('\n');
    }
    printf("\n%-12s %6s %8s %10s %11s %11s %11s %9s\n", "loss", "ranks", "rows", "B", "ms",
           "compute ms", "exchange ms", "of a step");
}

zonal_status zonal__dist_look_ahead(const bench *b) {
    zonal__cost cost[ZONAL__DIST_METHODS];
    int64_t rows[ZONAL__DIST_BATCHES];
    int count;
    ZONAL_TRY(zonal__list_int64(b->settings->rows, "--rows", 2, 1 << 20, ZONAL__DIST_BATCHES, rows,
                                &count));
    for (int m = 0; m < b->methods; m++) ZONAL_TRY(find_cost(b, b->method[m], &cost[m]));
    if (!b->settings->json) print_assumptions(b, cost);
    for (int m = 0; m < b->methods; m++)
        for (int i = 0; i < count; i++)
            for (int ranks = FIRST_RANKS; ranks <= MOST_RANKS; ranks *= 8) {
                zonal__prediction p = predict(b, &cost[m], ranks, rows[i]);
                print_line(b, b->method[m], ranks, rows[i], &p);
            }
    if (b->settings->json) return ZONAL_OK;
    putchar('\n');
    for (int m = 0; m < b->methods; m++) print_consequences(b, b->method[m], &cost[m], rows, count);
    return ZONAL_OK;
}
