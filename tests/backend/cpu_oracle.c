#include "cpu_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"

static const long double pi = 3.141592653589793238462643383279502884L;

static void *alloc(int64_t count, size_t size) {
    void *memory = calloc((size_t)count, size);
    if (!memory) abort();
    return memory;
}

/* ---- functions and fits ---- */

static long double cubic_value(const void *context, long double c) {
    const double *a = context;
    return a[0] + c * (a[1] + c * (a[2] + c * a[3]));
}

static long double cubic_derivative(const void *context, long double c) {
    const double *a = context;
    return a[1] + c * (2 * a[2] + c * 3 * a[3]);
}

static long double exponential_value(const void *context, long double c) {
    return expl(*(const double *)context * (c - 1));
}

static long double exponential_derivative(const void *context, long double c) {
    return *(const double *)context * exponential_value(context, c);
}

const oracle_function oracle_cubic = {cubic_value, cubic_derivative, NULL};
const oracle_function oracle_exponential = {exponential_value, exponential_derivative, NULL};

oracle_function oracle_with(oracle_function f, const void *context) {
    f.context = context;
    return f;
}

/* The coefficients of the polynomial that agrees with f at the Chebyshev points of [low, 1]. */
static double *chebyshev(long double (*f)(const void *, long double), const void *context,
                         int terms, long double low) {
    double *a = alloc(terms, sizeof *a);
    for (int k = 0; k < terms; k++) {
        long double sum = 0;
        for (int j = 0; j < terms; j++) {
            long double angle = pi * (j + 0.5L) / terms;
            sum += f(context, (1 + low) / 2 + (1 - low) / 2 * cosl(angle)) * cosl(k * angle);
        }
        a[k] = (double)(sum * (k == 0 ? 1 : 2) / terms);
    }
    return a;
}

/* The same in powers of u: T_k is expanded by its recurrence. */
static double *powers(const double *a, int terms) {
    double *out = alloc(terms, sizeof *out);
    long double *t = alloc(3 * terms, sizeof *t), *before = t, *now = t + terms,
                *next = now + terms;
    before[0] = 1;
    if (terms > 1) now[1] = 1;
    for (int k = 0; k < terms; k++) {
        for (int j = 0; j < terms; j++) out[j] += (double)(a[k] * before[j]);
        for (int j = 0; j < terms; j++) next[j] = 2 * (j > 0 ? now[j - 1] : 0) - before[j];
        long double *old = before;
        before = now, now = next, next = old;
    }
    free(t);
    return out;
}

zonal__fit *oracle_fit(const oracle_function *f, int terms, double low, int monomials) {
    zonal__fit *fit = alloc(1, sizeof *fit);
    fit->low = low;
    fit->middle = (1 + low) / 2;
    fit->half = (1 - low) / 2;
    fit->n_value = fit->n_derivative = terms;
    fit->value = chebyshev(f->value, f->context, terms, low);
    fit->derivative = chebyshev(f->derivative, f->context, terms, low);
    fit->n_monomial = monomials ? terms : 0;
    fit->monomial = powers(fit->value, terms);
    fit->monomial_derivative = powers(fit->derivative, terms);
    fit->low_value = (double)f->value(f->context, low);
    fit->low_derivative = (double)f->derivative(f->context, low);
    return fit;
}

void oracle_fit_free(zonal__fit *fit) {
    if (!fit) return;
    free(fit->value);
    free(fit->derivative);
    free(fit->monomial);
    free(fit->monomial_derivative);
    free(fit);
}

/* ---- rows ---- */

typedef struct rows {
    int64_t n, d;
    long double *x, *norm; /* [n][d], [n] */
} rows;

static rows make_rows(int64_t n, int64_t d, const double *z, int as_they_are) {
    rows r = {n, d, alloc(n * d, sizeof *r.x), alloc(n, sizeof *r.norm)};
    for (int64_t i = 0; i < n; i++) {
        long double square = 0; /* the exponent of a long double has room for any square */
        for (int64_t k = 0; k < d; k++) square += (long double)z[i * d + k] * z[i * d + k];
        r.norm[i] = as_they_are ? 1 : sqrtl(square);
        for (int64_t k = 0; k < d; k++) r.x[i * d + k] = z[i * d + k] / r.norm[i];
    }
    return r;
}

static void free_rows(rows *r) {
    free(r->x);
    free(r->norm);
}

static long double dot(int64_t d, const long double *a, const long double *b) {
    long double sum = 0;
    for (int64_t k = 0; k < d; k++) sum += a[k] * b[k];
    return sum;
}

static long double cosine(const rows *r, int64_t i, int64_t j) {
    long double c = dot(r->d, r->x + i * r->d, r->x + j * r->d);
    return c > 1 ? 1 : c < -1 ? -1 : c;
}

/* gradient_i = factor (g - (g.x) x / x.x)/|z| */
static void project(const rows *r, int64_t i, const long double *g, long double factor,
                    double *gradient) {
    const long double *x = r->x + i * r->d;
    long double along = dot(r->d, g, x) / dot(r->d, x, x);
    for (int64_t k = 0; k < r->d; k++)
        gradient[i * r->d + k] = (double)(factor * (g[k] - along * x[k]) / r->norm[i]);
}

/* gradient_i = factor sum over j != i of w_ij x_j, projected; w is symmetric. */
static void spread(const rows *r, const long double *w, long double factor, double *gradient) {
    long double *g = alloc(r->d, sizeof *g);
    for (int64_t i = 0; i < r->n; i++) {
        memset(g, 0, (size_t)r->d * sizeof *g);
        for (int64_t j = 0; j < r->n; j++)
            for (int64_t k = 0; j != i && k < r->d; k++)
                /* x_j - x_i: what is along x_i goes away, and need not be rounded */
                g[k] += w[i * r->n + j] * (r->x[j * r->d + k] - r->x[i * r->d + k]);
        project(r, i, g, factor, gradient);
    }
    free(g);
}

/* ---- operations ---- */

void oracle_pairs(const zonal__problem *problem, const oracle_function *psi, const double *x,
                  double *value, double *gradient) {
    int64_t n = problem->rows;
    rows r = make_rows(n, problem->dim, x, problem->unit_rows);
    long double *w = alloc(n * n, sizeof *w), sum = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) {
            long double c = cosine(&r, i, j);
            sum += 2 * psi->value(psi->context, c);
            if (gradient) w[i * n + j] = w[j * n + i] = psi->derivative(psi->context, c);
        }
    *value = (double)(sum / n / n);
    if (gradient) spread(&r, w, 2.0L / n / n, gradient);
    free(w);
    free_rows(&r);
}

void oracle_kl(const zonal__problem *problem, const oracle_function *log_phi, const double *x,
               double *value, double *gradient) {
    int64_t n = problem->rows;
    long double count = problem->keep_diagonal ? n : n - 1, sum = 0;
    rows r = make_rows(n, problem->dim, x, problem->unit_rows);
    long double *w = alloc(n * n, sizeof *w), *log_s = alloc(n, sizeof *log_s);
    for (int64_t i = 0; i < n; i++) {
        /* log of the mean of exp(l) through expm1, with the largest taken out */
        long double top = problem->keep_diagonal ? 0 : -HUGE_VALL, less = 0;
        for (int64_t j = 0; j < n; j++) {
            if (j == i) continue;
            w[i * n + j] = log_phi->value(log_phi->context, cosine(&r, i, j));
            top = fmaxl(top, w[i * n + j]);
        }
        for (int64_t j = 0; j < n; j++)
            if (j != i || problem->keep_diagonal) less += expm1l((j == i ? 0 : w[i * n + j]) - top);
        long double mean = less / count;
        /* log1p cancels where almost all terms vanish */
        if (mean < -0.5L) {
            mean = 0;
            for (int64_t j = 0; j < n; j++)
                if (j != i || problem->keep_diagonal)
                    mean += expl((j == i ? 0 : w[i * n + j]) - top);
            mean = logl(mean / count);
        } else {
            mean = log1pl(mean);
        }
        sum += top + mean;
        log_s[i] = top + mean + logl(count);
    }
    *value = (double)(sum / n);
    for (int64_t i = 0; gradient && i < n; i++)
        for (int64_t j = 0; j < n; j++)
            if (j != i)
                w[i * n + j] = (expl(w[i * n + j] - log_s[i]) + expl(w[i * n + j] - log_s[j])) *
                               log_phi->derivative(log_phi->context, cosine(&r, i, j));
    if (gradient) spread(&r, w, 1.0L / n, gradient);
    free(w);
    free(log_s);
    free_rows(&r);
}

void oracle_sliced(const zonal__problem *problem, uint32_t step, const double *x, double *value,
                   double *gradient) {
    const zonal__sliced *s = problem->sliced;
    zonal__random random = {s->seed, ZONAL__STREAM_SLICES, step};
    int64_t n = problem->rows, d = problem->dim;
    rows r = make_rows(n, d, x, s->raw_rows || problem->unit_rows);
    long double *g = alloc(n * d, sizeof *g), *u = alloc(n, sizeof *u), total = 0;
    double *a = alloc(d, sizeof *a);
    for (int64_t slice = 0; slice < s->slices; slice++) {
        zonal__random_direction(&random, (uint64_t)slice, d, a);
        for (int64_t i = 0; i < n; i++) {
            u[i] = 0;
            for (int64_t k = 0; k < d; k++) u[i] += s->row_scale * a[k] * r.x[i * d + k];
        }
        for (int q = 0; q < s->knots; q++) {
            long double t = s->knot0 + (long double)q * s->step, c = 0, z = 0;
            for (int64_t i = 0; i < n; i++) c += cosl(t * u[i]), z += sinl(t * u[i]);
            c = c / n - s->target[q];
            z /= n;
            total += s->weight[q] * (c * c + z * z);
            for (int64_t i = 0; gradient && i < n; i++) {
                long double du = 2 * s->weight[q] * t / n * s->row_scale *
                                 (z * cosl(t * u[i]) - c * sinl(t * u[i]));
                for (int64_t k = 0; k < d; k++) g[i * d + k] += du * a[k];
            }
        }
    }
    *value = (double)(total / s->slices);
    for (int64_t i = 0; gradient && i < n; i++) {
        if (!s->raw_rows)
            project(&r, i, g + i * d, 1.0L / s->slices, gradient);
        else
            for (int64_t k = 0; k < d; k++)
                gradient[i * d + k] = (double)(g[i * d + k] / s->slices);
    }
    free(g);
    free(u);
    free(a);
    free_rows(&r);
}

void oracle_invariance(const zonal__problem *problem, const double *x, double *value,
                       double *gradient) {
    int64_t n = problem->rows, d = problem->dim, views = problem->views;
    int64_t globals = problem->global_views;
    rows r = make_rows(views * n, d, x, problem->raw_rows || problem->unit_rows);
    long double *mu = alloc(d, sizeof *mu), *pull = alloc(d, sizeof *pull),
                *g = alloc(d, sizeof *g);
    long double sum = 0, count = (long double)(n * views) * (problem->raw_rows ? d : 1);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < d; k++) {
            mu[k] = pull[k] = 0;
            for (int64_t v = 0; v < globals; v++) mu[k] += r.x[(v * n + i) * d + k] / globals;
            for (int64_t v = 0; v < views; v++) {
                long double away = r.x[(v * n + i) * d + k] - mu[k];
                sum += away * away;
                pull[k] += away / globals;
            }
        }
        for (int64_t v = 0; gradient && v < views; v++) {
            int64_t at = v * n + i;
            for (int64_t k = 0; k < d; k++)
                g[k] = r.x[at * d + k] - mu[k] - (v < globals ? pull[k] : 0);
            if (!problem->raw_rows)
                project(&r, at, g, 2 / count, gradient);
            else
                for (int64_t k = 0; k < d; k++) gradient[at * d + k] = (double)(2 * g[k] / count);
        }
    }
    *value = (double)(sum / count);
    free(mu);
    free(pull);
    free(g);
    free_rows(&r);
}

void oracle_survey(const zonal__problem *problem, const oracle_function *psi, const double *x,
                   double *value) {
    rows r = make_rows(problem->rows, problem->dim, x, problem->unit_rows);
    for (int k = 0; k < problem->n_psi; k++) oracle_pairs(problem, &psi[k], x, &value[k], NULL);
    for (int64_t i = 0; i < r.n; i++) {
        long double best = -1;
        for (int64_t j = 0; j < r.n; j++)
            if (j != i) best = fmaxl(best, cosine(&r, i, j));
        value[problem->n_psi + i] = (double)best;
    }
    free_rows(&r);
}

void oracle_covariance(const zonal__problem *problem, const double *x, double *value) {
    rows r = make_rows(problem->rows, problem->dim, x, problem->unit_rows);
    int64_t d = r.d;
    for (int64_t a = 0; a < d; a++) {
        long double mean = 0;
        for (int64_t i = 0; i < r.n; i++) mean += r.x[i * d + a];
        value[a] = (double)(mean / r.n);
        for (int64_t b = 0; b < d; b++) {
            long double sum = 0;
            for (int64_t i = 0; i < r.n; i++) sum += r.x[i * d + a] * r.x[i * d + b];
            value[d + a * d + b] = (double)(sum / r.n);
        }
    }
    free_rows(&r);
}
