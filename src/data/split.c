/* Splits by lots that images draw (split.h), and splits of rows by a shuffle. */
#include "data/split.h"

#include <math.h>
#include <string.h>

#include "core/checksum.h"
#include "core/memory.h"
#include "core/random.h"

static const double USUAL_SHARE = 0.1;

const char *zonal__split_name(zonal__split split) {
    static const char *const names[] = {"all", "train", "val", "test"};
    return names[split];
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The images sorted by class, ascending within a class: those of class c are
 * member[begin[c]] ... member[begin[c + 1] - 1]. */
typedef struct grouping {
    int64_t *begin;  /* [classes + 2]; the last serves the sorting only */
    int64_t *member; /* [n] */
} grouping;

static void grouping_fini(grouping *group) {
    zonal__free(group->begin);
    zonal__free(group->member);
}

/* A counting sort. Sizes are counted two places up, so that after their summation begin[c + 1] is
 * where class c begins; placing its members moves that to where class c + 1 does. */
static zonal_status grouping_init(int64_t n, const int32_t *labels, int classes, grouping *group) {
    ZONAL_TRY(ZONAL_NEW(&group->begin, (int64_t)classes + 2, "the split"));
    ZONAL_TRY(ZONAL_NEW(&group->member, n, "the split"));
    for (int64_t i = 0; i < n; i++) {
        int32_t label = labels ? labels[i] : 0;
        if (label < 0 || label >= classes)
            return ZONAL_FAIL(
                ZONAL_ARGUMENT,
                "image %lld has label %d, which is not one of the %d classes to split",
                (long long)i, (int)label, classes);
        group->begin[label + 2]++;
    }
    for (int c = 0; c < classes; c++) group->begin[c + 2] += group->begin[c + 1];
    for (int64_t i = 0; i < n; i++) group->member[group->begin[(labels ? labels[i] : 0) + 1]++] = i;
    return ZONAL_OK;
}

/* Fisher and Yates, from the end; draw k comes from sample k. The remainder of 64 random bits
 * favours small numbers by less than n / 2^64. */
static void shuffle(uint64_t seed, int class_number, int64_t n, int64_t *member) {
    zonal__random random = {seed, ZONAL__STREAM_SPLIT, (uint32_t)class_number};
    for (int64_t k = n - 1; k > 0; k--) {
        uint32_t words[4];
        int64_t other, moved = member[k];
        zonal__random_words(&random, (uint64_t)k, 0, words);
        other = (int64_t)(((uint64_t)words[1] << 32 | words[0]) % (uint64_t)(k + 1));
        member[k] = member[other];
        member[other] = moved;
    }
}

/* The part of n shuffled images, first to end, that a split takes. */
static void cut(int64_t n, zonal__split split, double val_share, double test_share, int64_t *first,
                int64_t *end) {
    int64_t val = llround(val_share * (double)n), test = llround(test_share * (double)n);
    if (test > n - val) test = n - val; /* two halves of an odd number, both rounded up */
    *first = split == ZONAL__SPLIT_TRAIN ? val + test : split == ZONAL__SPLIT_TEST ? val : 0;
    *end = split == ZONAL__SPLIT_VAL ? val : split == ZONAL__SPLIT_TEST ? val + test : n;
}

static zonal_status check_shares(double val_share, double test_share) {
    if (val_share >= 0 && test_share >= 0 && val_share + test_share <= 1) return ZONAL_OK;
    return ZONAL_FAIL(ZONAL_ARGUMENT,
                      "the shares of the split must be from 0 to 1 and at most 1 together, got %g "
                      "for val and %g for test",
                      val_share, test_share);
}

zonal_status zonal__split_choose(int64_t n, const int32_t *labels, int classes, zonal__split split,
                                 double val_share, double test_share, uint64_t seed, int64_t *keep,
                                 int64_t *kept) {
    grouping group = {0};
    uint8_t *chosen = NULL;
    zonal_status status;
    *kept = 0;
    ZONAL_TRY(check_shares(val_share, test_share));
    if (!labels) classes = 1;
    ZONAL_TRY_GOTO(status, done, grouping_init(n, labels, classes, &group));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&chosen, n, "the split"));
    for (int c = 0; c < classes; c++) {
        int64_t *member = group.member + group.begin[c];
        int64_t size = group.begin[c + 1] - group.begin[c], first, end;
        shuffle(seed, c, size, member);
        cut(size, split, val_share, test_share, &first, &end);
        for (int64_t i = first; i < end; i++) chosen[member[i]] = 1;
    }
    for (int64_t i = 0; i < n; i++)
        if (chosen[i]) keep[(*kept)++] = i;
done:
    grouping_fini(&group);
    zonal__free(chosen);
    return status;
}

/* ---- by name --------------------------------------------------------------------------------- */

typedef struct lots {
    double *lot;    /* [count] */
    uint8_t *split; /* [count]: of zonal__split */
} lots;

/* Of XXH64 of the name Philox, which takes samples of 56 bits, makes a number without a pattern. */
static double draw_lot(const zonal__source *source, int64_t index, uint64_t seed) {
    zonal__random random = {seed, ZONAL__STREAM_SPLIT, 0};
    char name[ZONAL__NAME_ROOM];
    uint32_t words[4];
    zonal__source_name(source, index, name);
    zonal__random_words(&random, zonal__checksum_of(name, strlen(name)) >> 8, 0, words);
    return ldexp((double)(((uint64_t)words[1] << 32 | words[0]) >> 11), -53);
}

/* Gives a class that has nothing of a part one image of the part that has most: for training the
 * highest lot, otherwise the lowest, and only if that part keeps another. */
static void spare_one(const lots *l, const int64_t *member, int64_t n, zonal__split part) {
    int64_t count[ZONAL__SPLIT_TEST + 1] = {0}, chosen = -1;
    int donor = ZONAL__SPLIT_TRAIN;
    for (int64_t i = 0; i < n; i++) count[l->split[member[i]]]++;
    for (int s = ZONAL__SPLIT_TRAIN; s <= ZONAL__SPLIT_TEST; s++)
        if (count[s] > count[donor]) donor = s;
    if (count[part] > 0 || count[donor] < (part == ZONAL__SPLIT_TRAIN ? 1 : 2)) return;
    for (int64_t i = 0; i < n; i++) {
        int64_t image = member[i];
        if (l->split[image] != donor) continue;
        if (chosen < 0 || (part == ZONAL__SPLIT_TRAIN ? l->lot[image] > l->lot[chosen]
                                                      : l->lot[image] < l->lot[chosen]))
            chosen = image;
    }
    l->split[chosen] = (uint8_t)part;
}

static void divide(const zonal__source *source, const grouping *group, double val, double test,
                   uint64_t seed, const lots *l) {
    int classes = source->labels ? source->classes : 1;
    for (int64_t i = 0; i < source->count; i++) {
        l->lot[i] = draw_lot(source, i, seed);
        l->split[i] = l->lot[i] < val          ? ZONAL__SPLIT_VAL
                      : l->lot[i] < val + test ? ZONAL__SPLIT_TEST
                                               : ZONAL__SPLIT_TRAIN;
    }
    for (int c = 0; c < classes; c++) {
        const int64_t *member = group->member + group->begin[c];
        int64_t n = group->begin[c + 1] - group->begin[c];
        if (val + test < 1) spare_one(l, member, n, ZONAL__SPLIT_TRAIN);
        if (val > 0) spare_one(l, member, n, ZONAL__SPLIT_VAL);
        if (test > 0) spare_one(l, member, n, ZONAL__SPLIT_TEST);
    }
}

/* keep [count] is filled with the images of "split". */
static zonal_status choose_by_name(const zonal__source *source, zonal__split split, double val,
                                   double test, uint64_t seed, int64_t *keep, int64_t *kept) {
    grouping group = {0};
    lots l = {0};
    zonal_status status;
    *kept = 0;
    ZONAL_TRY(check_shares(val, test));
    ZONAL_TRY_GOTO(
        status, done,
        grouping_init(source->count, source->labels, source->labels ? source->classes : 1, &group));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&l.lot, source->count, "the split"));
    ZONAL_TRY_GOTO(status, done, ZONAL_NEW(&l.split, source->count, "the split"));
    divide(source, &group, val, test, seed, &l);
    for (int64_t i = 0; i < source->count; i++)
        if (l.split[i] == split) keep[(*kept)++] = i;
done:
    grouping_fini(&group);
    zonal__free(l.lot);
    zonal__free(l.split);
    return status;
}

/* The share that options ask for: 0 where there shall be none, or the usual one. */
static double share_of(double asked, int unset) {
    return unset ? USUAL_SHARE : asked == ZONAL__NO_SHARE ? 0 : asked;
}

zonal_status zonal__split_keep(zonal__source *source, const zonal__source_options *options,
                               int own_test) {
    int unset = options->val_share == 0 && options->test_share == 0;
    double val = share_of(options->val_share, unset);
    double test = own_test ? 0 : share_of(options->test_share, unset);
    int64_t *keep, kept;
    zonal_status status;
    if (options->split == ZONAL__SPLIT_ALL) return ZONAL_OK;
    ZONAL_TRY(ZONAL_NEW(&keep, source->count, "the split"));
    status = choose_by_name(source, options->split, val, test, options->seed, keep, &kept);
    if (status == ZONAL_OK && kept == 0 && !options->strict_split)
        status =
            ZONAL_FAIL(ZONAL_ARGUMENT,
                       "%s has no image for the %s split: it has %lld in all; choose other "
                       "shares or another split",
                       source->path, zonal__split_name(options->split), (long long)source->count);
    if (status == ZONAL_OK) status = zonal__source_select(source, kept, keep);
    zonal__free(keep);
    return status;
}
