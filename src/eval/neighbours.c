/* Classification by nearest neighbours: neighbours.h. */
#include "eval/neighbours.h"

#include <math.h>
#include <string.h>

#include "backend/training/tables.h"
#include "core/memory.h"

/* Queries of one call of the search: enough for all threads or a device, and about a second of
 * work on two cores for a bank of 50,000, so that progress moves. */
enum { QUERIES = 2048 };

static const int usual_k = 20;
static const double usual_temperature = .07;

typedef struct session {
    const zonal__knn_options *options;
    int ks, temperatures, k_most;
    const int *k;
    const double *temperature;
    const zonal__labelled *train, *test;
    int leave_one_out; /* test is train */
    const zonal__neighbours_table *table;
    zonal__neighbours *search;
    double *cosine; /* [QUERIES][k_most] */
    int32_t *row;   /* [QUERIES][k_most] */
    double *votes;  /* [classes] */
    zonal__scores *scores;
} session;

/* Beyond what all classification refuses: a zero row, which has no cosine. */
static zonal_status check_set(const zonal__labelled *set, const zonal__knn_options *options,
                              const char *name) {
    ZONAL_TRY(zonal__labelled_check(set, options->dim, options->classes, name));
    for (int64_t i = 0; i < set->count; i++) {
        const float *row = set->x + i * options->dim;
        int64_t j = 0;
        while (j < options->dim && row[j] == 0) j++;
        if (j == options->dim)
            return ZONAL_FAIL(ZONAL_NUMERIC,
                              "row %lld of %s is zero and has no direction; remove "
                              "it or fix its source",
                              (long long)i, name);
    }
    return ZONAL_OK;
}

static zonal_status check_sweep(session *s, int64_t offered) {
    for (int i = 0; i < s->ks; i++) {
        if (s->k[i] < 1 || s->k[i] > ZONAL__NEIGHBOURS_MOST || s->k[i] > offered)
            return ZONAL_FAIL(
                ZONAL_ARGUMENT,
                "k = %d neighbours cannot be found among %lld training samples; "
                "choose k from 1 to %lld",
                s->k[i], (long long)offered,
                (long long)(offered < ZONAL__NEIGHBOURS_MOST ? offered : ZONAL__NEIGHBOURS_MOST));
        if (s->k[i] > s->k_most) s->k_most = s->k[i];
    }
    for (int i = 0; i < s->temperatures; i++)
        if (!(s->temperature[i] > 0 && s->temperature[i] < INFINITY))
            return ZONAL_FAIL(ZONAL_ARGUMENT, "the temperature must be positive and finite, got %g",
                              s->temperature[i]);
    return ZONAL_OK;
}

/* The votes of the first k neighbours. Weights are relative to the nearest one's, which changes no
 * vote and cannot overflow. */
static void vote(const session *s, const double *cosine, const int32_t *row, int k,
                 double temperature) {
    memset(s->votes, 0, (size_t)s->options->classes * sizeof *s->votes);
    for (int i = 0; i < k; i++)
        s->votes[s->train->labels[row[i]]] += exp((cosine[i] - cosine[0]) / temperature);
}

/* Adds a block's samples, from sample "first" on, to the scores of every k and T. */
static zonal_status add_block(const session *s, int64_t first, int64_t count) {
    for (int64_t q = 0; q < count; q++)
        for (int i = 0; i < s->ks; i++)
            for (int t = 0; t < s->temperatures; t++) {
                vote(s, s->cosine + q * s->k_most, s->row + q * s->k_most, s->k[i],
                     s->temperature[t]);
                ZONAL_TRY(zonal__scores_add(&s->scores[i * s->temperatures + t],
                                            s->test->labels[first + q], s->votes));
            }
    return ZONAL_OK;
}

static zonal_status search_all(const session *s) {
    int64_t dim = s->options->dim, all = s->test->count;
    ZONAL_TRY(s->table->set_bank(s->search, s->train->count, s->train->x));
    for (int64_t first = 0; first < all; first += QUERIES) {
        int64_t count = all - first < QUERIES ? all - first : QUERIES;
        ZONAL_TRY(s->table->nearest(s->search, count, s->test->x + first * dim,
                                    s->leave_one_out ? first : -1, s->cosine, s->row));
        ZONAL_TRY(add_block(s, first, count));
        ZONAL_TRY(zonal__eval_report(&s->options->progress, (double)(first + count) / (double)all));
    }
    return ZONAL_OK;
}

static zonal_status prepare(session *s) {
    const zonal__knn_options *options = s->options;
    ZONAL_TRY(check_set(s->train, options, "the training set"));
    if (!s->leave_one_out) ZONAL_TRY(check_set(s->test, options, "the test set"));
    ZONAL_TRY(check_sweep(s, s->train->count - s->leave_one_out));
    zonal__neighbours_spec spec = {.dim = options->dim,
                                   .rows = s->train->count,
                                   .queries = s->test->count < QUERIES ? s->test->count : QUERIES,
                                   .k = s->k_most,
                                   .threads = options->threads,
                                   .device = zonal__device_or_cpu(options->device)};
    ZONAL_TRY(zonal__device_neighbours(spec.device, &s->table));
    ZONAL_TRY(s->table->create(&spec, &s->search));
    ZONAL_TRY(ZONAL_NEW(&s->cosine, QUERIES * s->k_most, "the neighbours"));
    ZONAL_TRY(ZONAL_NEW(&s->row, QUERIES * s->k_most, "the neighbours"));
    ZONAL_TRY(ZONAL_NEW(&s->votes, options->classes, "the votes"));
    for (int i = 0; i < s->ks * s->temperatures; i++)
        ZONAL_TRY(zonal__scores_init(options->classes, &s->scores[i]));
    return ZONAL_OK;
}

zonal_status zonal__knn_run(const zonal__knn_options *options, const zonal__labelled *train,
                            const zonal__labelled *test, zonal__scores *scores) {
    session s = {.options = options,
                 .ks = options->ks ? options->ks : 1,
                 .k = options->ks ? options->k : &usual_k,
                 .temperatures = options->temperatures ? options->temperatures : 1,
                 .temperature = options->temperatures ? options->temperature : &usual_temperature,
                 .train = train,
                 .test = test ? test : train,
                 .leave_one_out = !test,
                 .scores = scores};
    int settings = s.ks * s.temperatures;
    zonal_status status;
    memset(scores, 0, (size_t)settings * sizeof *scores);
    ZONAL_TRY_GOTO(status, done, prepare(&s));
    ZONAL_TRY_GOTO(status, done, search_all(&s));
done:
    for (int i = 0; status != ZONAL_OK && i < settings; i++) zonal__scores_fini(&scores[i]);
    if (s.table) s.table->destroy(s.search);
    zonal__free(s.cosine);
    zonal__free(s.row);
    zonal__free(s.votes);
    return status;
}
