/* The minimiser: lbfgs.h. */
#include "eval/lbfgs.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/memory.h"

enum { KEPT = 10, TRIALS = 60 };

/* Sufficient descent and curvature: the usual constants for quasi-Newton steps. */
static const double DESCENT = 1e-4, CURVATURE = .9;

/* A place, its value and its gradient. */
typedef struct point {
    double *x, *gradient; /* [n] */
    double value;
} point;

typedef struct search {
    const zonal__lbfgs_problem *problem;
    double *memory;
    point here, there;
    double *direction;    /* [n] */
    double *step[KEPT];   /* [n] x_{i+1} - x_i */
    double *change[KEPT]; /* [n] of the gradient */
    double inverse[KEPT]; /* 1/(step.change) */
    int pairs, next;      /* how many are kept; where the next one goes */
} search;

static double dot(int64_t n, const double *a, const double *b) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* to = a + factor b */
static void combine(int64_t n, const double *a, double factor, const double *b, double *to) {
    for (int64_t i = 0; i < n; i++) to[i] = a[i] + factor * b[i];
}

static double largest(int64_t n, const double *x) {
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(x[i]) <= most)) most = fabs(x[i]); /* a NaN is kept, and seen */
    return most;
}

static zonal_status init(const zonal__lbfgs_problem *problem, double *x, search *s) {
    int64_t n = problem->n;
    memset(s, 0, sizeof *s);
    s->problem = problem;
    ZONAL_TRY(ZONAL_NEW(&s->memory, n * (5 + 2 * KEPT), "the minimiser"));
    double *at = s->memory;
    s->here.x = at;
    s->here.gradient = at += n;
    s->there.x = at += n;
    s->there.gradient = at += n;
    s->direction = at += n;
    for (int i = 0; i < KEPT; i++) s->step[i] = at += n, s->change[i] = at += n;
    memcpy(s->here.x, x, (size_t)n * sizeof *x);
    return ZONAL_OK;
}

static void evaluate(const search *s, point *p) {
    s->problem->evaluate(s->problem->context, p->x, &p->value, p->gradient);
}

/* direction = -H gradient, H from the pairs kept, the newest applied first and last. */
static void set_direction(search *s) {
    int64_t n = s->problem->n;
    double alpha[KEPT];
    combine(n, s->here.gradient, -2, s->here.gradient, s->direction);
    for (int i = 1; i <= s->pairs; i++) {
        int p = (s->next - i + KEPT) % KEPT;
        alpha[p] = s->inverse[p] * dot(n, s->step[p], s->direction);
        combine(n, s->direction, -alpha[p], s->change[p], s->direction);
    }
    if (s->pairs) {
        int newest = (s->next - 1 + KEPT) % KEPT;
        double scale = 1 / (s->inverse[newest] * dot(n, s->change[newest], s->change[newest]));
        for (int64_t i = 0; i < n; i++) s->direction[i] *= scale;
    }
    for (int i = s->pairs; i >= 1; i--) {
        int p = (s->next - i + KEPT) % KEPT;
        double beta = s->inverse[p] * dot(n, s->change[p], s->direction);
        combine(n, s->direction, alpha[p] - beta, s->step[p], s->direction);
    }
}

/* Sets "there" to a place along the direction that satisfies both conditions; 0 when none was
 * found. Near the minimum values differ by rounding alone, which the descent is allowed. */
static int find_step(search *s) {
    int64_t n = s->problem->n;
    double derivative = dot(n, s->here.gradient, s->direction), low = 0, high = INFINITY;
    double slack = 8 * DBL_EPSILON * fabs(s->here.value);
    double step = s->pairs ? 1 : 1 / sqrt(dot(n, s->direction, s->direction));
    if (!(derivative < 0)) return 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        combine(n, s->here.x, step, s->direction, s->there.x);
        evaluate(s, &s->there);
        if (!(s->there.value <= s->here.value + DESCENT * step * derivative + slack))
            high = step;
        else if (!(dot(n, s->there.gradient, s->direction) >= CURVATURE * derivative))
            low = step;
        else
            return 1;
        step = high < INFINITY ? (low + high) / 2 : 2 * low;
    }
    return 0;
}

/* Moves "here" to "there" and keeps the pair. */
static void move(search *s) {
    int64_t n = s->problem->n;
    point left = s->here;
    double curvature;
    combine(n, s->there.x, -1, left.x, s->step[s->next]);
    combine(n, s->there.gradient, -1, left.gradient, s->change[s->next]);
    curvature = dot(n, s->step[s->next], s->change[s->next]);
    s->here = s->there;
    s->there = left;
    if (!(curvature > 0)) return; /* rounding ate it */
    s->inverse[s->next] = 1 / curvature;
    s->next = (s->next + 1) % KEPT;
    if (s->pairs < KEPT) s->pairs++;
}

static zonal_status descend(search *s, zonal__lbfgs_end *end) {
    const zonal__lbfgs_problem *problem = s->problem;
    evaluate(s, &s->here);
    end->gradient = largest(problem->n, s->here.gradient);
    if (!isfinite(s->here.value) || !isfinite(end->gradient))
        return ZONAL_FAIL(ZONAL_NUMERIC, "the function to minimise is not finite at its start");
    while (end->gradient > problem->tolerance && end->iterations < problem->iterations) {
        set_direction(s);
        if (!find_step(s)) break;
        move(s);
        end->iterations++;
        end->gradient = largest(problem->n, s->here.gradient);
        if (problem->report)
            ZONAL_TRY(problem->report(problem->context, end->iterations, end->gradient));
    }
    end->value = s->here.value;
    end->converged = end->gradient <= problem->tolerance;
    return ZONAL_OK;
}

zonal_status zonal__lbfgs(const zonal__lbfgs_problem *problem, double *x, zonal__lbfgs_end *end) {
    search s;
    memset(end, 0, sizeof *end);
    ZONAL_TRY(init(problem, x, &s));
    zonal_status status = descend(&s, end);
    memcpy(x, s.here.x, (size_t)problem->n * sizeof *x);
    zonal__free(s.memory);
    return status;
}
