#include "math/fft.h"

#include <math.h>
#include <string.h>

#include "core/memory.h"

enum { MOST_PASSES = 16 }; /* 2^15 = 2 4^7 takes 8; 3^9 < 2^15 takes 9 */

struct zonal__fft {
    int n, passes;
    int radix[MOST_PASSES];
    float *cosine, *sine; /* [n]: of 2 pi k / n; sine with the transform's minus sign */
};

/* A pass reads one field as [radix][rows][run] and writes the other as [rows][radix][run]. */
typedef struct field {
    float *re, *im;
} field;

int zonal__fft_length(int least) {
    for (int n = least;; n++) {
        int rest = n;
        while (rest % 2 == 0) rest /= 2;
        while (rest % 3 == 0) rest /= 3;
        while (rest % 5 == 0) rest /= 5;
        if (rest == 1) return n;
    }
}

zonal_status zonal__fft_create(int n, zonal__fft **out) {
    static const int radices[] = {4, 2, 3, 5};
    zonal_status status;
    zonal__fft *fft;
    *out = NULL;
    if (n < 1 || n > ZONAL__FFT_MOST || zonal__fft_length(n) != n)
        return ZONAL_FAIL(ZONAL_ARGUMENT,
                          "a transform of %d points is not possible: take a number from 1 to %d "
                          "without prime factors beyond 5",
                          n, ZONAL__FFT_MOST);
    ZONAL_TRY(ZONAL_NEW(&fft, 1, "a Fourier transform"));
    fft->n = n;
    for (int rest = n, i = 0; rest > 1; i++)
        for (; rest % radices[i] == 0; rest /= radices[i]) fft->radix[fft->passes++] = radices[i];
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&fft->cosine, n, "a Fourier transform"));
    ZONAL_TRY_GOTO(status, failed, ZONAL_NEW(&fft->sine, n, "a Fourier transform"));
    for (int k = 0; k < n; k++) {
        fft->cosine[k] = (float)cos(2 * M_PI * k / n);
        fft->sine[k] = (float)-sin(2 * M_PI * k / n);
    }
    *out = fft;
    return ZONAL_OK;
failed:
    zonal__fft_destroy(fft);
    return status;
}

void zonal__fft_destroy(zonal__fft *fft) {
    if (!fft) return;
    zonal__free(fft->cosine);
    zonal__free(fft->sine);
    zonal__free(fft);
}

/* ---- one pass --------------------------------------------------------------------------------
 *
 * A transform of length m = radix * rows becomes "radix" interleaved ones of length "rows":
 *     y[p][k] = w^(p k) sum over j of x[j][p] exp(-2 pi i j k / radix),   w = exp(-2 pi i / m).
 * Every element is a run of floats that share their factor. */

static void pass_2(int64_t run, int rows, const float *restrict xr, const float *restrict xi,
                   float *restrict yr, float *restrict yi, const zonal__fft *fft) {
    int64_t step = fft->n / (2 * rows), half = rows * run;
    for (int p = 0; p < rows; p++, xr += run, xi += run, yr += 2 * run, yi += 2 * run) {
        float c = fft->cosine[p * step], s = fft->sine[p * step];
        for (int64_t q = 0; q < run; q++) {
            float dr = xr[q] - xr[q + half], di = xi[q] - xi[q + half];
            yr[q] = xr[q] + xr[q + half];
            yi[q] = xi[q] + xi[q + half];
            yr[q + run] = dr * c - di * s;
            yi[q + run] = dr * s + di * c;
        }
    }
}

static void pass_4(int64_t run, int rows, const float *restrict xr, const float *restrict xi,
                   float *restrict yr, float *restrict yi, const zonal__fft *fft) {
    int64_t step = fft->n / (4 * rows), part = rows * run;
    for (int p = 0; p < rows; p++, xr += run, xi += run, yr += 4 * run, yi += 4 * run) {
        float c1 = fft->cosine[p * step], s1 = fft->sine[p * step];
        float c2 = fft->cosine[2 * p * step], s2 = fft->sine[2 * p * step];
        float c3 = fft->cosine[3 * p * step], s3 = fft->sine[3 * p * step];
        for (int64_t q = 0; q < run; q++) {
            float ar = xr[q] + xr[q + 2 * part], ai = xi[q] + xi[q + 2 * part];
            float br = xr[q] - xr[q + 2 * part], bi = xi[q] - xi[q + 2 * part];
            float cr = xr[q + part] + xr[q + 3 * part], ci = xi[q + part] + xi[q + 3 * part];
            /* -i (x1 - x3) */
            float dr = xi[q + part] - xi[q + 3 * part], di = xr[q + 3 * part] - xr[q + part];
            yr[q] = ar + cr;
            yi[q] = ai + ci;
            yr[q + run] = (br + dr) * c1 - (bi + di) * s1;
            yi[q + run] = (br + dr) * s1 + (bi + di) * c1;
            yr[q + 2 * run] = (ar - cr) * c2 - (ai - ci) * s2;
            yi[q + 2 * run] = (ar - cr) * s2 + (ai - ci) * c2;
            yr[q + 3 * run] = (br - dr) * c3 - (bi - di) * s3;
            yi[q + 3 * run] = (br - dr) * s3 + (bi - di) * c3;
        }
    }
}

/* Any radix, by the sum as it stands: for 3 and 5, of which a length has few. */
static void pass_odd(int radix, int64_t run, int rows, const float *restrict xr,
                     const float *restrict xi, float *restrict yr, float *restrict yi,
                     const zonal__fft *fft) {
    int64_t n = fft->n, step = n / (radix * rows), part = rows * run;
    for (int p = 0; p < rows; p++, xr += run, xi += run)
        for (int k = 0; k < radix; k++, yr += run, yi += run) {
            memset(yr, 0, (size_t)run * sizeof *yr);
            memset(yi, 0, (size_t)run * sizeof *yi);
            for (int j = 0; j < radix; j++) {
                int64_t turn = (p * k * step + j * k * (n / radix)) % n;
                float c = fft->cosine[turn], s = fft->sine[turn];
                for (int64_t q = 0; q < run; q++) {
                    yr[q] += xr[q + j * part] * c - xi[q + j * part] * s;
                    yi[q] += xr[q + j * part] * s + xi[q + j * part] * c;
                }
            }
        }
}

void zonal__fft_columns(const zonal__fft *fft, int64_t width, float *re, float *im,
                        float *scratch) {
    size_t bytes = (size_t)(fft->n * width) * sizeof *re;
    field x = {re, im}, y = {scratch, scratch + fft->n * width};
    int64_t run = width;
    int rows = fft->n;
    for (int i = 0; i < fft->passes; i++) {
        int radix = fft->radix[i];
        field next = x;
        rows /= radix;
        if (radix == 4)
            pass_4(run, rows, x.re, x.im, y.re, y.im, fft);
        else if (radix == 2)
            pass_2(run, rows, x.re, x.im, y.re, y.im, fft);
        else
            pass_odd(radix, run, rows, x.re, x.im, y.re, y.im, fft);
        run *= radix;
        x = y;
        y = next;
    }
    if (x.re != re) {
        memcpy(re, x.re, bytes);
        memcpy(im, x.im, bytes);
    }
}

/* ---- both sides ------------------------------------------------------------------------------ */

static void transpose(int n, float *a) {
    enum { TILE = 32 }; /* two tiles of 4 KiB stay in the first cache */
    for (int top = 0; top < n; top += TILE)
        for (int left = top; left < n; left += TILE)
            for (int i = top; i < n && i < top + TILE; i++)
                for (int j = left > i ? left : i + 1; j < n && j < left + TILE; j++) {
                    float kept = a[(int64_t)i * n + j];
                    a[(int64_t)i * n + j] = a[(int64_t)j * n + i];
                    a[(int64_t)j * n + i] = kept;
                }
}

void zonal__fft_square(const zonal__fft *fft, float *re, float *im, float *scratch) {
    for (int side = 0; side < 2; side++) {
        zonal__fft_columns(fft, fft->n, re, im, scratch);
        transpose(fft->n, re);
        transpose(fft->n, im);
    }
}
