#!/usr/bin/env python3
"""Writes tests/golden/distributions.h: distribution functions to full double precision.

Run with Python 3 and mpmath (python3-mpmath):  python3 make_distributions.py > distributions.h
It takes about ten minutes without gmpy2.

Every argument is first rounded to a double; the distribution at exactly that double is then computed by a
formula that shares nothing with the library's (which integrates through a saddle point):
  one chi-square            mpmath's incomplete gamma function, above N = 1e5 that of the density;
  even freedoms             partial fractions of the moment-generating function (residues);
  freedoms (1, 1)           the integral over the polar angle of two normals;
  everything else           Gil-Pelaez inversion on the imaginary axis by the midpoint rule (Davies
                            1973), with as many digits as the tail is deep: its only error is the
                            probability beyond a full period, which Chernoff's bound keeps away;
  heat spectra, d = 3, 64   the Bromwich integral on a parabola: deep tails would need 1e8 nodes on
                            the imaginary axis. Checked against Gil-Pelaez at d = 64;
  caps                      the regularised incomplete beta function;
  nearest angles            the reduction formula of the integral of sin^m, inside mp.quad.
Where two of these apply they are compared (see check).
"""

import math
import sys

from mpmath import mp, mpf, mpc


# ---- Where to look: arguments near wanted tail probabilities ------------------------------------


def normal_quantile(p):
    """w with P(N(0,1) > w) = p, roughly; p may be given as a negative logarithm."""
    log_p = p if p < 0 else math.log(p)
    low, high = -40.0, 1e6
    for _ in range(200):
        w = (low + high) / 2
        if w < 30:
            value = math.log(math.erfc(w / math.sqrt(2)) / 2)
        else:
            value = -w * w / 2 - math.log(w * math.sqrt(2 * math.pi))
        low, high = (w, high) if value > log_p else (low, w)
    return low


def saddle_argument(distribution, w):
    return saddle(distribution, w)[1]


def saddle(distribution, w):
    """s and x = K'(s) such that the signed root of the large-deviation rate is w: P(T > x) is
    then about P(N(0,1) > w)."""
    weight, freedom, extra = distribution
    terms = [(2 * b / n, 2 * b * b / n, n) for b, n in zip(weight, freedom)]

    def rate(s):
        total = extra * s * s / 2
        for c, v, n in terms:
            u = s * c
            if abs(u) < 1e-4:
                total += v * s * s * (0.5 + u * (2 / 3))
            else:
                total += n / 2 * (math.log1p(-u) + u / (1 - u))
        return math.copysign(math.sqrt(2 * total), s)

    top = 1 / max((c for c, _, _ in terms), default=0)
    if w >= 0:
        low, high = 0.0, top
    else:
        low = -1.0
        while rate(low) > w and low > -1e200:
            low *= 2
        high = 0.0
    for _ in range(200):
        s = (low + high) / 2
        if s in (low, high) or s >= top:
            break
        low, high = (s, high) if rate(s) < w else (low, s)
    return low, low * (extra + sum(v / (1 - low * c) for c, v, _ in terms))


# ---- Four ways to the distribution --------------------------------------------------------------


def one_chi_square(distribution, x):
    """The small tail by the incomplete gamma function; mpmath gives the other no digits."""
    (b,), (n,), _ = distribution
    a = mpf(n) / 2
    y = a * (1 + mpf(x) / mpf(b))
    if x > 0:
        upper = mp.gammainc(a, y, mp.inf, regularized=True)
        return upper, 1 - upper
    lower = mp.gammainc(a, 0, y, regularized=True)
    return 1 - lower, lower


def density_integral(distribution, x):
    """The small tail from the density in units of its own decay, for large freedoms, where mpmath's
    series are too slow."""
    (b,), (n,), _ = distribution
    a, x = mpf(n) / 2, mpf(x) / mpf(b)
    defect = lambda e: e - mp.log1p(e)
    start = defect(x)
    unit = 1 / (mp.sqrt(a) + a * abs(x)) * (1 if x > 0 else -1)
    f = lambda v: mp.exp(-a * (defect(x + v * unit) - start)) / (1 + x + v * unit)
    edges = [mpf(k) for k in range(0, 16)] + [mpf(k) for k in range(20, 152, 12)]
    total = mp.quad(f, edges, method="gauss-legendre", maxdegree=5) * abs(unit)
    with mp.workdps(mp.dps + 30):
        log_factor = a * mp.log(a) - a - mp.loggamma(a)
    small = mp.exp(log_factor - a * start) * total
    return (small, 1 - small) if x > 0 else (1 - small, small)


def multiply(f, g, n):
    return [mp.fsum(f[i] * g[k - i] for i in range(k + 1)) for k in range(n)]


def partial_fractions(distribution, x, poles=None):
    """P(sum c_j/2 chi2(2 m_j) > y) as minus the sum of the residues of M(s) exp(-s y)/s."""
    weight, freedom, _ = distribution
    c = [2 * mpf(b) / mpf(n) for b, n in zip(weight, freedom)]
    m = [int(n) // 2 for n in freedom]
    y = mpf(x) + mp.fsum(mpf(b) for b in weight)
    total = mpf(0)
    for l in range(len(c) if poles is None else poles):
        n = m[l]
        # s = (1 + e)/c_l; power series in e of exp(-s y)/s and of the other factors
        series = [mp.exp(-y / c[l]) * (-y / c[l]) ** k / mp.factorial(k) for k in range(n)]
        series = multiply(series, [c[l] * (-1) ** k for k in range(n)], n)
        for j, other in enumerate(c):
            if j == l:
                continue
            ratio = other / c[l]
            base = 1 - ratio  # (base - ratio e)^-m_j
            factor = [base ** (-m[j] - k) * ratio ** k * mp.binomial(m[j] + k - 1, k)
                      for k in range(n)]
            series = multiply(series, factor, n)
        total -= (-1) ** n * series[n - 1] / c[l]
    return total, 1 - total


def polar(distribution, x):
    (b1, b2), _, _ = distribution
    b1, b2 = mpf(b1), mpf(b2)
    y = mpf(x) + b1 + b2

    def mean(n):
        return mp.fsum(mp.exp(-y / 2 / (b1 * mp.cos(2 * mp.pi * k / n) ** 2 +
                                        b2 * mp.sin(2 * mp.pi * k / n) ** 2)) for k in range(n)) / n

    n, last = 64, mpf(0)
    while True:
        value = mean(n)
        if abs(value - last) < mpf(10) ** -40 * value:
            return value, 1 - value
        n, last = 2 * n, value


class Inversion:
    """P(T <= x) = 1/2 - 1/pi sum_k Im[phi(t_k) exp(-i t_k x)]/(k + 1/2), t_k = (k + 1/2) h."""

    def __init__(self, distribution, digits, x_range):
        weight, freedom, extra = distribution
        mp.dps = digits + 20
        self.digits = digits
        terms = [(2 * mpf(b) / mpf(n), mpf(n)) for b, n in zip(weight, freedom)]
        period = self.period(distribution, digits, x_range)
        self.h = 2 * mp.pi / mpf(period)
        self.phi = []
        k = 0
        while True:
            t = (k + mpf(0.5)) * self.h
            exponent = -mpf(extra) * t * t / 2 + mp.fsum(self.exponent(t * c, n) for c, n in terms)
            if exponent.real < -(digits + 5) * math.log(10):
                break
            self.phi.append(mp.exp(exponent))
            k += 1

    @staticmethod
    def exponent(v, n):
        """n/2 (-log(1 - i v) - i v)"""
        if v > mpf(10) ** -4:
            with mp.workdps(mp.dps + 2 * max(0, int(mp.log10(n / v)))):
                u = mpc(0, v)
                return +(n / 2 * (-mp.log(1 - u) - u))
        real, imag, power, k = mpf(0), mpf(0), v, 1
        while True:  # sum (i v)^k/k from k = 2
            power *= v
            k += 1
            if k % 2 == 0:
                real += power / k * (-1) ** (k // 2)
            else:
                imag += power / k * (-1) ** (k // 2)
            if power * n < mpf(10) ** (-mp.dps - 5):
                return mpc(real, imag) * (n / 2)

    @staticmethod
    def period(distribution, digits, x_range):
        """So long that P(T > x_min + period) and P(T < x_max - period) are below 10^-digits."""
        w = math.sqrt(2 * (digits + 5) * math.log(10))
        low, high = saddle_argument(distribution, -w), saddle_argument(distribution, w)
        return 1.02 * max(high - x_range[0], x_range[1] - low)

    def __call__(self, x):
        mp.dps = self.digits + 20
        x = mpf(x)
        turn = mp.expj(-self.h * x)
        at = mp.expj(-self.h * x / 2)
        terms = []
        for k, value in enumerate(self.phi):
            terms.append((value * at).imag / (k + mpf(0.5)))
            at *= turn
        total = mp.fsum(terms) / mp.pi
        return mpf(0.5) + total, mpf(0.5) - total


def parabola(distribution, x, s0):
    """1/(2 pi i) int exp(K(s) - s x) ds/s on s = s0 + r (i t + t^2/60), s0 near the saddle
    point: bent enough for few chi-squares, straight enough for the nearly normal."""
    weight, freedom, _ = distribution
    terms = [(2 * mpf(b) / mpf(n), mpf(n)) for b, n in zip(weight, freedom)]
    x, s0 = mpf(x), mpf(s0)
    y = x + mp.fsum(mpf(b) for b in weight)
    r = 1 / mp.sqrt(1 / s0 ** 2 + mp.fsum(n / 2 * (c / (1 - s0 * c)) ** 2 for c, n in terms))

    def f(t):
        s = s0 + r * mpc(t * t / 60, t)
        value = mp.exp(-s * y - mp.fsum(n / 2 * mp.log(1 - s * c) for c, n in terms)) / s
        return (value * r * mpc(t / 30, 1)).imag

    step, last = mpf(1) / 4, mpf(0)
    peak = abs(f(mpf(0)))
    end = 1
    while any(abs(f(mpf(end + k) / 3)) > peak * mpf(10) ** -45 for k in range(3)):
        end += 1
    total = f(mpf(0)) / 2 + mp.fsum(f(k * step) for k in range(1, int(end / step) + 1))
    while True:
        value = total * step / mp.pi
        if abs(value - last) < mpf(10) ** -22 * abs(value):
            break
        last = value
        total += mp.fsum(f((k + mpf(0.5)) * step) for k in range(int(end / step) + 1))
        step /= 2
    return (value, 1 - value) if s0 > 0 else (1 + value, -value)


def check(one, other, what):
    smaller = min(one)
    error = max(abs(a - b) for a, b in zip(one, other))
    if not error <= mpf(10) ** -17 * smaller:
        sys.exit(f"{what}: two formulas differ by {mp.nstr(error, 5)} at {mp.nstr(smaller, 5)}")


# ---- The cases ----------------------------------------------------------------------------------

distributions = [] # name, (weight, freedom, extra), stored?
points = []  # distribution, x, upper, log upper, lower


def add_point(index, x, value):
    upper, lower = value
    log_upper = mp.log(upper) if upper < 0.5 else mp.log1p(-lower)
    points.append((index, x, upper, log_upper, lower))


def add_distribution(name, distribution):
    distributions.append((name, distribution))
    return len(distributions) - 1


UPPER = (0.999999, 0.9, 0.5, 0.1, 1e-3, 1e-10, 1e-50, 1e-150, 1e-298)


def wanted(uppers, lowers):
    return [normal_quantile(p) for p in uppers] + [-normal_quantile(p) for p in lowers]


def single_chi_squares():
    for n in (1, 2, 3, 256, 32895, 1e6, 1e12):
        distribution = ([1.0], [float(n)], 0.0)
        index = add_distribution(f"chi2({n:g})", distribution)
        for w in wanted(UPPER + (-1e5,), (1e-10, 1e-50, 1e-298)):
            x = saddle_argument(distribution, w)
            if x <= -0.9999999:  # one ulp of x is then too much of 1 + x to show anything
                continue
            mp.dps = 60
            add_point(index, x, (one_chi_square if n < 1e5 else density_integral)(distribution, x))
        if n == 32895:
            for x in (saddle_argument(distribution, w) for w in (-12.0, 1.0, 30.0)):
                check(one_chi_square(distribution, x), density_integral(distribution, x), "chi-square")
        if n <= 3:
            for x in (-0.9, -0.999, -1 + 2.0**-40):
                add_point(index, x, one_chi_square(distribution, x))


def closed_forms():
    squares = lambda n: ([0.6 / (l * l) for l in range(1, n + 1)], [2.0] * n, 0.0)
    cases = [("five squares", squares(5)), ("twenty squares", squares(20)),
             ("2, 4, 6", ([0.5, 0.3, 0.2], [2.0, 4.0, 6.0], 0.0)),
             ("6, 4, 2", ([0.5, 0.3, 0.2], [6.0, 4.0, 2.0], 0.0))]
    for name, distribution in cases:
        index = add_distribution(name, distribution)
        mp.dps = 400
        xs = [saddle_argument(distribution, w) for w in wanted(UPPER + (-1e5,), (1e-4, 1e-10, 1e-30))]
        for x in xs:
            add_point(index, x, partial_fractions(distribution, x))
    # against inversion, where that is feasible
    distribution = cases[1][1]
    x = saddle_argument(distribution, 3.0)
    mp.dps = 60
    check(partial_fractions(distribution, x), Inversion(distribution, 24, (x, x))(x), "squares")
    # the chordal kernel's spectrum on the circle has thousands of degrees; far poles do not count
    distribution = squares(3000)
    index = add_distribution("three thousand squares", distribution)
    for w in wanted((0.99, 0.5, 1e-3, 1e-50, 1e-298), (1e-6, 1e-20)):
        x = saddle_argument(distribution, w)
        mp.dps = 120
        y = mpf(x) + mp.fsum(distribution[0])
        poles = int(mp.sqrt(200 * 0.6 / y)) + 3
        add_point(index, x, partial_fractions(distribution, x, poles))
    mp.dps = 60
    for b in ((0.7, 0.3), (0.999, 0.001)):
        distribution = (list(b), [1.0, 1.0], 0.0)
        index = add_distribution(f"1, 1 with {b[0]}", distribution)
        for w in wanted((0.9, 0.5, 0.1, 1e-3, 1e-10, 1e-100, 1e-298), (1e-4,)):
            x = saddle_argument(distribution, w)
            if x > -1:
                add_point(index, x, polar(distribution, x))


def heat_spectrum(d, t):
    mp.dps = 40
    rows, n, l = [], mpf(d), 1
    while True:
        rows.append((mp.exp(-t * l * (l + d - 2)) * n, n))
        if l > 3 and rows[-1][0] < mpf(10) ** -17 * max(r[0] for r in rows):
            break
        n = n * (2 * l + d) * (l + d - 2) / ((2 * l + d - 2) * (l + 1))
        l += 1
    total = mp.fsum(r[0] for r in rows)
    return [float(r[0] / total) for r in rows], [float(r[1]) for r in rows], 0.0


def invert(name, distribution, digits, targets):
    index = add_distribution(name, distribution)
    xs = [saddle_argument(distribution, w) for w in targets]
    inversion = Inversion(distribution, digits, (min(xs), max(xs)))
    for x in xs:
        add_point(index, x, inversion(x))
    print(f"{name}: {len(distribution[0])} terms, {len(inversion.phi)} nodes", file=sys.stderr)


def bend(name, distribution, targets, checked):
    """Points by the parabola; those of the "checked" targets by inversion too."""
    index = add_distribution(name, distribution)
    places = [saddle(distribution, w) for w in targets + checked]
    inversion = None
    if checked:
        xs = [x for _, x in places[len(targets):]]
        inversion = Inversion(distribution, 55, (min(xs), max(xs)))
    for k, (s, x) in enumerate(places):
        with mp.workdps(60 + int(math.log10(max(distribution[1])))):
            value = parabola(distribution, x, s)
        if k >= len(targets):
            check(value, inversion(x), name)
        add_point(index, x, value)
    print(f"{name}: {len(distribution[0])} terms", file=sys.stderr)


def realistic():
    for d in (3, 64, 256, 2048):
        for factor in (0.7, 1, 1.4):
            distribution = heat_spectrum(d, factor * mp.log(d) / d)
            name = f"heat, d = {d}, t = {factor} log(d)/d"
            if d == 3:
                bend(name, distribution, wanted((0.99, 0.4, 0.05, 1e-6, 1e-60, 1e-298),
                                       (1e-6, 1e-30, 1e-60)), [])
            elif d == 64:
                bend(name, distribution, wanted((1e-60, 1e-298), (1e-60, 1e-298)),
                     wanted((0.99, 0.4, 0.05, 1e-6), (1e-6, 1e-25)))
            else:
                invert(name, distribution, 320, wanted((0.99, 0.5, 0.05, 1e-6, 1e-100, 1e-298),
                                              (1e-6, 1e-100, 1e-298)))


def with_normal():
    targets = wanted((0.99, 0.5, 0.05, 1e-6, 1e-30), (1e-6, 1e-30))
    invert("chi2(3), normal .01", ([1.0], [3.0], 0.01), 55, targets)
    invert("chi2(1), normal .001", ([0.5], [1.0], 0.001), 55, targets)
    invert("chi2(256), normal 1e-3", ([0.8], [256.0], 1e-3), 320,
           wanted((0.5, 0.05, 1e-6, 1e-100, 1e-298), (1e-6, 1e-100, 1e-298)))


# ---- Caps ---------------------------------------------------------------------------------------


def caps():
    mp.dps = 60
    rows = []
    for d in (2, 3, 4, 17, 64, 256, 2048, 4096):
        angles = [1e-3, 0.3, 1.0, 1.4, 1.5, 1.55, 1.5707, 1.58, 1.7, 2.5]
        for angle in angles:
            a = mpf(d - 1) / 2
            near = mpf(angle) if angle < 1.57079 else mp.pi - mpf(angle)
            share = mp.betainc(a, mpf(0.5), 0, mp.sin(near) ** 2, regularized=True) / 2
            far = angle > 1.57079
            rows.append((d, angle, 1 - share if far else share,
                         mp.log1p(-share) if far else mp.log(share)))
    return rows


def cap_by_reduction(d, angle):
    """The share of the cap from int sin^m = ((m-1) int sin^(m-2) - cos sin^(m-1))/m."""
    s, c = mp.sin(angle), mp.cos(angle)
    if d % 2 == 0:
        value, whole, m, power = angle, mp.pi, 0, s
    else:
        value, whole, m, power = 1 - c, mpf(2), 1, s * s
    while m < d - 2:
        m += 2
        value = ((m - 1) * value - c * power) / m
        whole = (m - 1) * whole / m
        power *= s * s
    return value / whole


def nearest():
    mp.dps = 60
    for d, angle in ((4, 1.0), (17, 1.3), (256, 1.45)):
        x = mp.sin(mpf(angle)) ** 2
        other = mp.betainc(mpf(d - 1) / 2, mpf(0.5), 0, x, regularized=True) / 2
        share = cap_by_reduction(d, mpf(angle))
        check((share, 1 - share), (other, 1 - other), "caps")
    rows = []
    for d in (2, 3, 4, 64, 256, 4096):
        for n in (2, 10, 1000, 10**7):
            mp.dps = 50

            def empty(angle):
                return (1 - cap_by_reduction(d, angle)) ** (n - 1)

            def crossing(level):
                low, high = mpf(0), mp.pi
                for _ in range(24):
                    middle = (low + high) / 2
                    low, high = (middle, high) if empty(middle) > level else (low, middle)
                return middle

            edges = [crossing(level) for level in (1 - mpf(10) ** -8, 0.999, 0.9, 0.5, 0.1, 1e-4,
                                                   1e-10, 1e-16)]
            edges = [mpf(0), crossing(1 - mpf(10) ** -20)] + edges + [crossing(1e-24), mp.pi]
            edges = [e for i, e in enumerate(edges) if i == 0 or e > edges[i - 1] + mpf(10) ** -30]
            mp.dps = 40
            value = mpf(0)
            for low, high in zip(edges, edges[1:]):
                value += mp.quad(empty, [low, high], method="gauss-legendre", maxdegree=4)
            rows.append((n, d, value))
        print(f"nearest: d = {d}", file=sys.stderr)
    return rows


# ---- The file -----------------------------------------------------------------------------------


def number(value):
    if abs(value) < mpf(10) ** -305:
        return "0"
    return mp.nstr(mpf(value), 17, min_fixed=0, max_fixed=0)


def array(name, values):
    print(f"static const double {name}[] = {{")
    line = "   "
    for value in values:
        text = f" {value!r},"
        if len(line) + len(text) > 98:
            print(line)
            line = "   "
        line += text
    print(line)
    print("};")


def main():
    single_chi_squares()
    closed_forms()
    realistic()
    with_normal()
    print("""/*
 * Distribution functions to full double precision. Made by make_distributions.py, which says how;
 * do not edit.
 */
#ifndef ZONAL_TESTS_GOLDEN_DISTRIBUTIONS_H
#define ZONAL_TESTS_GOLDEN_DISTRIBUTIONS_H

/* clang-format off */
/* weight NULL: weight[l] = 0.6/((l+1)^2), freedom[l] = 2, rounded as C rounds it. */
typedef struct golden_distribution {
    const char *name;
    int n;
    const double *weight, *freedom;
    double extra;
} golden_distribution;

/* P(T > x), its logarithm and P(T <= x); a 0 stands for what double cannot hold. */
typedef struct golden_point {
    int distribution;
    double x, upper, log_upper, lower;
} golden_point;

typedef struct golden_cap {
    int d;
    double angle, share, log_share;
} golden_cap;

typedef struct golden_nearest {
    int n, d;
    double angle;
} golden_nearest;
""")
    for i, (name, (weight, freedom, _)) in enumerate(distributions):
        if "squares" not in name:
            array(f"golden_weight_{i}", weight)
            array(f"golden_freedom_{i}", freedom)
    print("\nstatic const golden_distribution golden_distributions[] = {")
    for i, (name, (weight, _, extra)) in enumerate(distributions):
        arrays = "NULL, NULL" if "squares" in name else f"golden_weight_{i}, golden_freedom_{i}"
        print(f'    {{"{name}", {len(weight)}, {arrays}, {extra!r}}},')
    print("};\n\nstatic const golden_point golden_points[] = {")
    for index, x, upper, log_upper, lower in points:
        texts = (number(v) for v in (upper, log_upper, lower))
        print(f"    {{{index}, {x!r}, {', '.join(texts)}}},")
    print("};\n\nstatic const golden_cap golden_caps[] = {")
    for d, angle, share, log_share in caps():
        print(f"    {{{d}, {angle!r}, {number(share)}, {number(log_share)}}},")
    print("};\n\nstatic const golden_nearest golden_nearests[] = {")
    for n, d, value in nearest():
        print(f"    {{{n}, {d}, {number(value)}}},")
    print("};\n/* clang-format on */\n\n#endif")


if __name__ == "__main__":
    main()
