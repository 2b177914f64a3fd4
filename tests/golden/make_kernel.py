#!/usr/bin/env python3
"""Writes tests/golden/kernel.h: profiles, derivatives and constants of zonal kernels.

Run with Python 3 and mpmath (python3-mpmath):  python3 make_kernel.py > kernel.h
It takes about a minute without gmpy2.

Only the definitions are used, and none of the library's ways of computing them:
  heat, band, spectrum   the Gegenbauer series with exact integer multiplicities, summed with 360
                         digits (up to 250 cancel); derivatives by differentiating the recurrence;
  induced                1F1(1/2; d/2; -(1-c) s^2) and its derivative formula; the spectrum by
                         integrating against P_l over the angle;
  poisson                the closed form, compared with the series;
  chordal                the closed form; the spectrum by integration.
Every parameter and cosine is the double that the C code receives, written in hexadecimal. Numbers
are correct to the digits printed, 16 for profiles and 17 for constants. Where a logarithm is not wanted (phi is below 1e-250 or not
positive everywhere) it is NONE.
"""

import math
import sys

from mpmath import mp, mpf

mp.dps = 50

COSINES = [-1.0, -0.87654321, -0.5, -1 / 3, -0.123456789, 0.0, 0.2718281828, 0.95, 0.99999]
DIMS = [2, 3, 4, 19, 64, 256, 1024, 2048, 4096]
SMALLEST = mpf(10) ** -250


def multiplicity(l, d):
    """dim of the harmonics of degree l: homogeneous polynomials less r^2 times those of l - 2."""
    lower = math.comb(l + d - 3, d - 1) if l >= 2 else 0
    return math.comb(l + d - 1, d - 1) - lower


def polynomials(d, c, n, orders=3):
    """P_l and its derivatives at c for l < n, by the recurrence and its derivatives."""
    zero = [mpf(0)] * orders
    before, now = zero, [mpf(1)] + zero[1:]
    for l in range(n):
        yield now
        if l == 0:
            before, now = now, ([c, mpf(1)] + zero)[:orders]
            continue
        up, down, after = 2 * l + d - 2, l + d - 2, []
        for k in range(orders):
            derivative = c * now[k] + (k * now[k - 1] if k else 0)
            after.append((up * derivative - l * before[k]) / down)
        before, now = now, after


class Series:
    """phi = sum a_l P_l with a_l proportional to w_l N_l, or (flat) to w_l alone."""

    def __init__(self, d, weights, flat=False):
        u = [w * (1 if flat else multiplicity(l, d)) for l, w in enumerate(weights)]
        total = mp.fsum(u)
        self.d = d
        self.a = [x / total for x in u]
        self.log_bias = mp.log(self.a[0]) if self.a[0] > 0 else -mp.inf
        self.mmd_norm = mp.fsum(self.a[1:])

    def profile(self, c, orders=3):
        sums = [mpf(0)] * orders
        for a, p in zip(self.a, polynomials(self.d, c, len(self.a), orders)):
            for i in range(orders):
                sums[i] += a * p[i]
        return sums

    def weight(self, l):
        return self.a[l] if l < len(self.a) else mpf(0)


def heat_weights(d, t):
    """exp(-t L_l) until the terms are below 1e-330 of the largest."""
    t, weights, top, l = mpf(t), [], mpf(0), 0
    while True:
        w = mp.exp(-t * l * (l + d - 2))
        u = w * multiplicity(l, d)
        top = max(top, u)
        weights.append(w)
        if u * (l + 1) ** 4 < top * mpf(10) ** -330:
            return weights
        l += 1


class Profile:
    """A kernel given by its profile; the spectrum by integration over the angle."""

    def __init__(self, d, profile):
        self.d, self.profile = d, profile
        self.cache = {}
        half = min(mp.pi / 2, 16 / mp.sqrt(d))
        cuts = [mp.pi / 2 - half, mp.pi / 2 - half / 4, mp.pi / 2, mp.pi / 2 + half / 4,
                mp.pi / 2 + half]
        if half < mp.pi / 2:  # beyond, sin^(d-2) is below 1e-55
            assert mp.sin(cuts[0]) ** (d - 2) < mpf(10) ** -50
        else:
            # Narrow kernels bend within 1/s of the angle 0.
            cuts = [mpf(0), mpf("0.01"), mpf("0.05"), mpf("0.2"), mp.pi / 4, mp.pi / 2, mp.pi]
        self.cuts = cuts
        mass = self.integrate(lambda c: mpf(1))
        self.mmd_norm = self.integrate(lambda c: 1 - self.value(c)) / mass
        self.log_bias = mp.log(1 - self.mmd_norm)
        self.first = [self.integrate(lambda c: self.value(c) * c) / mass,
                      self.integrate(lambda c: self.value(c) * (d * c * c - 1) / (d - 1)) / mass]

    def value(self, c):
        if c not in self.cache:
            self.cache[c] = self.profile(c, 1)[0]
        return self.cache[c]

    def integrate(self, f):
        d = self.d
        return mp.quad(lambda x: f(mp.cos(x)) * mp.sin(x) ** (d - 2), self.cuts)

    def weight(self, l):
        return self.first[l - 1] * multiplicity(l, self.d)


def induced(d, scale):
    s, half = mpf(scale), mpf(d) / 2

    def profile(c, orders=3):
        x, a = -(1 - c) * s, mpf(1) / 2
        return [s ** k * mp.rf(a, k) / mp.rf(half, k) * mp.hyp1f1(a + k, half + k, x)
                for k in range(orders)]

    return Profile(d, profile)


def chordal(d):
    def profile(c, orders=3):
        if c == 1:
            return [mpf(1), mp.inf, mp.inf][:orders]
        s = mp.sqrt((1 - c) / 2)
        return [1 - s, 1 / (4 * s), 1 / (16 * s ** 3)][:orders]

    kernel = Profile(d, profile)
    chord = 2 ** (mpf(d) - 1) * mp.gamma(mpf(d) / 2) ** 2 / (mp.sqrt(mp.pi) * mp.gamma(d - mpf(1) / 2))
    assert abs(kernel.mmd_norm - chord / 2) < mpf(10) ** -40
    return kernel


class Poisson:
    def __init__(self, d, r):
        r = mpf(r)
        self.d, self.r = d, r
        self.log_bias = (d - 1) * mp.log(1 - r) - mp.log(1 + r)
        self.mmd_norm = -mp.expm1(self.log_bias)
        self.check()

    def profile(self, c, orders=3):
        r, d = self.r, mpf(self.d)
        q = 1 - 2 * r * c + r * r
        value = ((1 - r) ** 2 / q) ** (d / 2)
        return [value * mp.rf(d / 2, k) * (2 * r / q) ** k for k in range(orders)]

    def weight(self, l):
        return mp.exp(self.log_bias) * multiplicity(l, self.d) * self.r ** l

    def check(self):
        """The series agrees with the closed form, where it is short."""
        weights, l = [], 0
        while l < 3000:
            weights.append(self.r ** l)
            l += 1
            if weights[-1] * multiplicity(l, self.d) * l ** 4 < mpf(10) ** -50:
                break
        if l == 3000:
            return
        series = Series(self.d, weights)
        for c in (mpf(-1), mpf("0.3")):
            for x, y in zip(series.profile(c), self.profile(c)):
                assert abs(x - y) < mpf(10) ** -25 * (1 + abs(y)), (self.d, self.r)


def number(x, digits=17):
    if x == mp.inf:
        return "INFINITY"
    if x == -mp.inf:
        return "-INFINITY"
    if abs(x) < mpf(10) ** -307:
        return "0.0"
    return mp.nstr(x, digits, strip_zeros=True, min_fixed=-4, max_fixed=6)


def emit(family, d, parameter, kernel, positive, weights=(), flat=False):
    d = mpf(d)
    log_area = mp.log(2) + d / 2 * mp.log(mp.pi) - mp.loggamma(d / 2)
    one = kernel.profile(mpf(1))
    constants = [kernel.log_bias, kernel.mmd_norm, one[1], one[2],
                 (d - 1) / 2 * one[1] if one[1] != mp.inf else mp.inf, log_area,
                 max(-log_area, -kernel.log_bias), kernel.weight(1), kernel.weight(2)]
    rows = [kernel.profile(mpf(c)) for c in COSINES]
    for row, c in zip(rows, COSINES):
        assert abs(row[0]) <= 1, (family, d, c)
    # Below 1e-250 the logarithm is not asked for; the digits reach to 1e-300.
    assert not positive or all(row[0] > -mpf(10) ** -300 for row in rows), (family, d, parameter)
    logs = [mp.log(r[0]) if positive and r[0] >= SMALLEST else None for r in rows]
    print("    {ZONAL_FAMILY_%s, %d, %s," % (family, int(d), float(parameter).hex()))
    print("     {%s}," % ",".join(float(w).hex() for w in weights or (0.0,)))
    print("     {%s}," % ",".join(number(x) for x in constants))
    for order in range(3):
        print("     {%s}," % ",".join(number(r[order], 16) for r in rows))
    if not positive:
        print("     {NONE}, 0, %d}," % flat)
    else:
        print("     {%s}, 1, %d}," % (",".join("NONE" if x is None else number(x, 16) for x in logs), flat))
    sys.stdout.flush()


def with_digits(digits, make, *rest):
    mp.dps = digits
    try:
        make(*rest)
    finally:
        mp.dps = 50


def emit_heat(d, t):
    emit("HEAT", d, t, Series(d, heat_weights(d, t)), True)


def emit_band(d, band):
    emit("BAND", d, band, Series(d, [mpf(1)] * (band + 1)), False)


def emit_spectrum(d, weights, positive):
    emit("SPECTRUM", d, len(weights), Series(d, [mpf(w) for w in weights]), positive, weights)


def emit_flat(d):
    """Without multiplicities; the spectra are cut where nothing is left of 50 digits."""
    t, r, given = 5 / d, 0.5, [1.0, 0.5, 0.25, 0.0, 0.125, 0.0]
    heat = [mp.exp(-mpf(t) * l * (l + d - 2)) for l in range(60)]
    emit("HEAT", d, t, Series(d, heat, True), True, flat=True)
    emit("BAND", d, 2, Series(d, [mpf(1)] * 3, True), False, flat=True)
    poisson = [mpf(r) ** l for l in range(240)]
    emit("POISSON", d, r, Series(d, poisson, True), True, flat=True)
    emit("SPECTRUM", d, len(given), Series(d, [mpf(w) for w in given], True), True, given, True)


def main():
    print("/* Made by make_kernel.py; the struct and NONE are test_kernel.c's. */")
    print("/* clang-format off */")
    print("static const double golden_cosines[GOLDEN_POINTS] = {")
    print("    %s};" % ", ".join(c.hex() for c in COSINES))
    print("static const golden_kernel golden_kernels[] = {")
    for d in DIMS:
        for k in (1, 2, 5, 20):
            with_digits(360, emit_heat, d, k / d)
        for band in (1, 2, 3, 8, 64):
            emit_band(d, band)
        for scale in (1.0, float(d)) + ((10000.0,) if d == 2 else ()):
            emit("INDUCED", d, scale, induced(d, scale), True)
        for r in (0.3 * math.log(d) / d,) + ((0.9,) if d <= 256 else ()):
            emit("POISSON", d, r, Poisson(d, r), True)
        emit("CHORDAL", d, 0, chordal(d), False)
        # A gap, and no weight at degree 0; then shares 1 : .5 : .3 : 0 : .15, which are positive.
        emit_spectrum(d, [0.0, 1.0, 0.25, 0.0, 2.0, 0.125], False)
        emit_spectrum(d, [1.0, 0.5 / d, 0.3 / multiplicity(2, d), 0.0,
                          0.15 / multiplicity(4, d), 0.0], True)
        if d in (2, 19, 256):
            emit_flat(d)
    print("};")


if __name__ == "__main__":
    main()
