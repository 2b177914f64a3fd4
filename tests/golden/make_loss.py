#!/usr/bin/env python3
"""Writes tests/golden/loss.h: values and gradients of the losses and of the objective.

Run with Python 3 and mpmath (python3-mpmath):  python3 make_loss.py > loss.h
It takes about half a minute without gmpy2.

The rows are small integers over 16, made by the same arithmetic in test_loss.c, so that float,
double and this script start from the same numbers. Dot products are exact integers; everything else
is computed with 60 digits (360 where a narrow kernel's series cancels) from the definitions:
  MMD    (mean of phi - a_0)/(1 - a_0) over all pairs          kernels: make_kernel.py
  KSD    mean of ((c^2-1) phi'' + (d-1) c phi') / ((d-1) phi'(1))
  KL     1 + mean of log( mean over the others of phi )/C_norm
  sliced directions by Philox4x32-10 and Box and Muller from their papers, the knots and weights of
         the trapezoid rule, the sphere's characteristic function 0F1
Gradients are analytic, and on small batches compared with differences of the value (see check).
Stored of a gradient: its norm, four sums of its elements with pseudo-random signs (an error e of
any kind shows in them with the size of its norm), and all elements where there are few.
"""

import math
import sys

from mpmath import mp, mpf

from make_kernel import Poisson, Series, chordal, heat_weights, induced, multiplicity, number

DIGITS = 60
mp.dps = DIGITS


# ---- Rows: the kinds of test_loss.c -------------------------------------------------------------

MIXED, ORTHONORMAL, THIRD, HALF, NEAR, TWINS, SCALED, UNIT = range(8)
TETRAHEDRON = ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))
TRIANGLE = ((1, -1, 0), (0, 1, -1), (-1, 0, 1))


def mixed(i, k):
    return (13 * i + 29 * k + 7 * i * k + 3 * k * k + 11 * i * i) % 97 - 48


def element(kind, i, k, d):
    """z_ik times 16 times a power of two that only depends on the row: see power."""
    block = 1 + 5 * (k // 4) % 7
    if kind == ORTHONORMAL:
        return block * (-1 if bin(i & k % 4).count("1") % 2 else 1)
    if kind in (THIRD, HALF):
        block = 1 + 5 * (k // 3) % 7
        pattern = TETRAHEDRON if kind == THIRD else TRIANGLE
        return block * pattern[i][k % 3] if k // 3 < d // 3 else 0
    if kind == NEAR:
        return 64 * mixed(0, k) + mixed(i + 1, k)
    if kind == TWINS:  # 0 and 1 are equal, 2 is opposite
        return -mixed(0, k) if i == 2 else mixed(0 if i == 1 else i, k)
    if kind == UNIT:  # four elements of +-1/2
        if (k + i) % (d // 4) != 0:
            return 0
        return -8 if (i * i + 3 * k + i * k // 5) % 3 == 0 else 8
    return mixed(i, k)


def power(kind, i):
    return (7 * i) % 31 - 15 if kind == SCALED else 0


class Rows:
    def __init__(self, kind, n, d):
        self.n, self.d = n, d
        self.integer = [[element(kind, i, k, d) for k in range(d)] for i in range(n)]
        self.scale = [mpf(2) ** (power(kind, i) - 4) for i in range(n)]
        assert all(any(row) for row in self.integer)
        square = [sum(x * x for x in row) for row in self.integer]
        self.length = [mp.sqrt(s) for s in square]  # of the integer rows
        self.norm = [l * s for l, s in zip(self.length, self.scale)]
        self.c = [[None] * n for _ in range(n)]
        for i in range(n):
            for j in range(i):
                dot = sum(x * y for x, y in zip(self.integer[i], self.integer[j]))
                exact = dot * dot == square[i] * square[j]
                c = mpf(1 if dot > 0 else -1) if exact else dot / mp.sqrt(square[i] * square[j])
                self.c[i][j] = self.c[j][i] = c

    def unit(self, i):
        return [x / self.length[i] for x in self.integer[i]]

    def raw(self, i):
        return [x * self.scale[i] for x in self.integer[i]]


def project(g, x, norm):
    radial = mp.fsum(a * b for a, b in zip(g, x))
    return [(a - radial * b) / norm for a, b in zip(g, x)]


def pair_size(rows, weight):
    """What the gradient's norm would be if nothing cancelled."""
    return mp.sqrt(mp.fsum((mp.fsum(abs(w) for w in weight[i] if w is not None) / rows.norm[i]) ** 2
                           for i in range(rows.n)))


def pair_gradient(rows, weight):
    """Row i: sum over j of weight[i][j] x_j, made tangent and divided by |z_i|."""
    units = [rows.unit(i) for i in range(rows.n)]
    out = []
    for i in range(rows.n):
        g = [mpf(0)] * rows.d
        for j in range(rows.n):
            if j != i and weight[i][j] != 0:
                w = weight[i][j]
                g = [a + w * b for a, b in zip(g, units[j])]
        out.append(project(g, units[i], rows.norm[i]))
    return out


# ---- Kernels ------------------------------------------------------------------------------------

SHAPED = [0.0, 1.0, 0.25, 0.0, 2.0, 0.125]  # no degree 0 and a gap


def positive_weights(d):
    return [1.0, 0.5 / d, 0.3 / multiplicity(2, d), 0.0, 0.15 / multiplicity(4, d), 0.0]


def default_parameter(family, discrepancy, d):
    return {"heat": (2 if discrepancy == "kl" else 5) / d, "band": 2, "induced": float(d),
            "poisson": 0.3 * math.log(d) / d, "chordal": 0, "spectrum": 0}[family]


cache = {}


def kernel_of(family, d, parameter, weights, flat):
    key = (family, d, parameter, tuple(weights), flat)
    if key not in cache:
        if family == "heat":
            mp.dps = 360 if d >= 64 else 120
            kernel = Series(d, heat_weights(d, parameter), flat)
        elif family == "band":
            kernel = Series(d, [mpf(1)] * (parameter + 1), flat)
        elif family == "spectrum":
            kernel = Series(d, [mpf(w) for w in weights], flat)
        elif family == "induced":
            kernel = induced(d, parameter)
        elif family == "poisson":
            kernel = Poisson(d, parameter)
        else:
            kernel = chordal(d)
        kernel.known = {}
        kernel.digits = mp.dps
        mp.dps = DIGITS
        cache[key] = kernel
    return cache[key]


def derivatives(kernel, c, orders):
    if (c, orders) not in kernel.known:
        mp.dps = kernel.digits
        values = kernel.profile(c, orders)
        mp.dps = DIGITS
        kernel.known[c, orders] = [+x for x in values]
    return kernel.known[c, orders]


# ---- The discrepancies --------------------------------------------------------------------------


def pair_terms(case, rows, kernel):
    """psi and psi' of every pair, the bias and norm, psi'(1)."""
    d, n = mpf(rows.d), rows.n
    mmd = case["discrepancy"] == "mmd"
    psi = [[None] * n for _ in range(n)]
    derivative = [[None] * n for _ in range(n)]
    chordal_case = case["family"] == "chordal"
    if mmd:
        norm, bias = kernel.mmd_norm, mp.exp(kernel.log_bias)
        orders = 1 if chordal_case else 2
    else:
        one = derivatives(kernel, mpf(1), 4)
        norm, bias, orders = (d - 1) / 2 * one[1], mpf(0), 4

    def both(c):
        p = derivatives(kernel, c, orders)
        if chordal_case:
            return (p[0] - bias) / norm, mpf(0)
        if mmd:
            return (p[0] - bias) / norm, p[1] / norm
        return (((c * c - 1) * p[2] + (d - 1) * c * p[1]) / (2 * norm),
                ((c * c - 1) * p[3] + (d + 1) * c * p[2] + (d - 1) * p[1]) / (2 * norm))

    for i in range(n):
        for j in range(i):
            psi[i][j], derivative[i][j] = both(rows.c[i][j])
            psi[j][i], derivative[j][i] = psi[i][j], derivative[i][j]
    end = mp.inf if chordal_case else both(mpf(1))[1]
    return psi, derivative, bias, norm, end


def exact_pairs(case, rows):
    kernel = kernel_of(case["family"], rows.d, case["parameter"], case["weights"], case["flat"])
    psi, derivative, bias, norm, end = pair_terms(case, rows, kernel)
    n = rows.n
    off = mp.fsum(psi[i][j] for i in range(n) for j in range(n) if i != j)
    if case["estimator"] == 2:  # U
        value, factor = off / (n * (n - 1)), mpf(2) / (n * (n - 1))
    else:
        value, factor = (off + n) / (n * n), mpf(2) / (n * n)
    if case["raw"]:
        value, factor = value * norm, factor * norm
    gradient, size = None, mpf(0)
    if case["family"] != "chordal":
        weight = [[None if i == j else factor * derivative[i][j] for j in range(n)] for i in range(n)]
        gradient, size = pair_gradient(rows, weight), pair_size(rows, weight)
    return dict(value=value, gradient=gradient, norm=norm, bias=bias, derivative=end, size=size)


def kl(case, rows):
    kernel = kernel_of(case["family"], rows.d, case["parameter"], case["weights"], case["flat"])
    d, n = mpf(rows.d), rows.n
    log_area = mp.log(2) + d / 2 * mp.log(mp.pi) - mp.loggamma(d / 2)
    norm = -log_area if case["kl_norm"] else max(-log_area, -kernel.log_bias)
    keep = case["estimator"] == 1  # V
    phi = [[None] * n for _ in range(n)]
    derivative = [[None] * n for _ in range(n)]
    for i in range(n):
        for j in range(i):
            p = derivatives(kernel, rows.c[i][j], 2)
            phi[i][j] = phi[j][i] = p[0]
            derivative[i][j] = derivative[j][i] = p[1]
    total = [mp.fsum(phi[i][j] for j in range(n) if j != i) + (1 if keep else 0) for i in range(n)]
    log_p = mp.fsum(mp.log(s / (n if keep else n - 1)) for s in total) / n
    value = 1 + log_p / norm
    factor = 1 / (n * norm)
    if case["raw"]:
        value, factor = value * norm, factor * norm
    weight = [[None if i == j else factor * derivative[i][j] * (1 / total[i] + 1 / total[j])
               for j in range(n)] for i in range(n)]
    end = derivatives(kernel, mpf(1), 2)[1] / norm
    return dict(value=value, gradient=pair_gradient(rows, weight), norm=norm, bias=-norm, derivative=end,
                log_p=log_p, size=pair_size(rows, weight))


# ---- Philox and the sliced losses ---------------------------------------------------------------


def philox(seed, stream, step, sample, block):
    mask = 0xFFFFFFFF
    key = [seed & mask, seed >> 32]
    c = [block, sample & mask, step, (stream << 24 | sample >> 32) & mask]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ key[0], q & mask, (p >> 32) ^ c[3] ^ key[1], p & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c


def normals(seed, stream, step, sample, n):
    out = []
    for block in range((n + 1) // 2):
        w = philox(seed, stream, step, sample, block)
        u = [(mpf((w[2 * k] << 32 | w[2 * k + 1]) >> 11) + mpf(1) / 2) / 2 ** 53 for k in range(2)]
        radius = mp.sqrt(-2 * mp.log(u[0]))
        out += [radius * mp.cos(2 * mp.pi * u[1]), radius * mp.sin(2 * mp.pi * u[1])]
    return out[:n]


def direction(seed, step, sample, n):
    x = normals(seed, 1, step, sample, n)
    norm = mp.sqrt(mp.fsum(a * a for a in x))
    return [a / norm for a in x]


def knots(case, d):
    """(t, weight, target) of the trapezoid rule; a range from 0 up stands for both sides."""
    low, high, n = mpf(case["low"]), mpf(case["high"]), case["knots"]
    step, out = (high - low) / (n - 1), []
    susreg = case["discrepancy"] == "susreg"
    for k in range(n):
        t = low + k * step
        w = step / 2 if k in (0, n - 1) else step
        w *= mp.exp(-t * t / 2) * (2 if low >= 0 else 1)
        if susreg:
            w /= mp.sqrt(2 * mp.pi)
            target = mp.hyp0f1(mpf(d) / 2, -t * t * mpf(case["parameter"]) / 4)
        else:
            target = mp.exp(-t * t / 2)
        out.append((t, w, target))
    return out


def sliced(case, rows):
    n, d = rows.n, rows.d
    susreg = case["discrepancy"] == "susreg"
    table = knots(case, d)
    if susreg:
        collapse = mp.fsum(w * (1 - f * f) for _, w, f in table)
        scale = mp.sqrt(mpf(case["parameter"]))
        x = [rows.unit(i) for i in range(n)]
    else:
        collapse = mp.fsum(w * (1 - f) ** 2 for _, w, f in table)
        scale = mpf(1)
        x = [rows.raw(i) for i in range(n)]
    divisor = collapse if case["normalised"] else mpf(1)
    factor = (n if case["times_n"] else 1) / divisor
    value, gradient = mpf(0), [[mpf(0)] * d for _ in range(n)]
    for s in range(case["slices"]):
        a = direction(case["seed"], case["step"], s, d)
        u = [scale * mp.fsum(p * q for p, q in zip(a, row)) for row in x]
        derivative = [mpf(0)] * n
        for t, w, f in table:
            cosine, sine = [mp.cos(t * v) for v in u], [mp.sin(t * v) for v in u]
            c, q = mp.fsum(cosine) / n - f, mp.fsum(sine) / n
            value += w * (c * c + q * q)
            for i in range(n):
                derivative[i] += 2 * w * t / n * (q * cosine[i] - c * sine[i])
        for i in range(n):
            h = scale * derivative[i]
            gradient[i] = [g + h * b for g, b in zip(gradient[i], a)]
    factor /= case["slices"]
    if susreg:
        gradient = [project(gradient[i], x[i], rows.norm[i]) for i in range(n)]
    gradient = [[factor * g for g in row] for row in gradient]
    value *= factor
    if case["raw"]:
        value *= divisor
        gradient = [[divisor * g for g in row] for row in gradient]
    if susreg:  # d/dc of the expected divided statistic of two points, at c = 1, doubled for pairs
        end = mp.fsum(w * t * t for t, w, _ in table) * mpf(case["parameter"]) / d / divisor
    else:  # how fast it falls as rows leave the origin: of u = +-sqrt(v), by the variance v
        end = -mp.diff(lambda v: mp.fsum(w * (mp.cos(t * mp.sqrt(v)) - f) ** 2 for t, w, f in table),
                       0).real / divisor
    return dict(value=value, gradient=gradient, norm=divisor, bias=mpf(0), derivative=end)


def compute(case, rows):
    if case["discrepancy"] in ("mmd", "ksd"):
        return exact_pairs(case, rows)
    return kl(case, rows) if case["discrepancy"] == "kl" else sliced(case, rows)


# ---- Alignment ----------------------------------------------------------------------------------


def invariance(rows, batch, views, global_views, raw):
    """Of unit rows the squared distance; of raw ones, as in LeJEPA's code, its mean over the elements."""
    d = rows.d
    count = batch * views * (d if raw else 1)
    x = [rows.raw(i) if raw else rows.unit(i) for i in range(batch * views)]
    total, gradient = mpf(0), [None] * (batch * views)
    for n in range(batch):
        view = [x[v * batch + n] for v in range(views)]
        mu = [mp.fsum(view[v][k] for v in range(global_views)) / global_views for k in range(d)]
        away = [[view[v][k] - mu[k] for k in range(d)] for v in range(views)]
        total += mp.fsum(a * a for row in away for a in row)
        pull = [mp.fsum(row[k] for row in away) / global_views for k in range(d)]
        for v in range(views):
            g = [2 * (away[v][k] - (pull[k] if v < global_views else 0)) / count
                 for k in range(d)]
            at = v * batch + n
            gradient[at] = g if raw else project(g, view[v], rows.norm[at])
    return total / count, gradient


class Part:
    """A view: some of the rows, seen as a batch."""

    def __init__(self, rows, first, n):
        self.n, self.d, self.first, self.rows = n, rows.d, first, rows
        self.norm = rows.norm[first:first + n]
        self.c = [row[first:first + n] for row in rows.c[first:first + n]]

    def unit(self, i):
        return self.rows.unit(self.first + i)

    def raw(self, i):
        return self.rows.raw(self.first + i)


def objective(case, rows):
    batch, views, global_views = case["batch"], case["views"], case["global_views"]
    lam = mpf(case["lambda"])
    invariant, gradient = invariance(rows, batch, views, global_views,
                                     case["discrepancy"] == "sigreg")
    parts = [compute(case, Part(rows, v * batch, batch)) for v in range(views)]
    k = 1 + mpf(views - 2 * global_views) / (global_views * views)
    derivative = parts[0]["derivative"]
    slope = derivative * (batch if case.get("times_n") else 1)
    threshold = (1 - lam) * k / (lam * slope)
    gain = {"unit": mpf(1), "batch": mpf(batch), "value": mpf(case["gain_value"]),
            "margin": mpf(case["gain_value"]) * threshold}[case["gain"]]
    mean = mp.fsum(p["value"] for p in parts) / views
    out = []
    for v in range(views):
        for i in range(batch):
            out.append([(1 - lam) * a + lam * gain / views * b
                        for a, b in zip(gradient[v * batch + i], parts[v]["gradient"][i])])
    return dict(value=(1 - lam) * invariant + lam * gain * mean, gradient=out, invariance=invariant,
                discrepancy=mean, gain=gain, threshold=threshold, norm=parts[0]["norm"],
                bias=parts[0]["bias"], derivative=derivative)


# ---- Checks and output --------------------------------------------------------------------------


def check(case, rows, evaluate, result):
    """The gradient is the derivative of the value: central differences in a few elements."""
    step = mpf(10) ** -20
    for at in (0, rows.n * rows.d // 2, rows.n * rows.d - 1):
        i, k = divmod(at, rows.d)
        values = []
        for sign in (1, -1):
            moved = Moved(rows, i, k, sign * step)
            values.append(evaluate(case, moved)["value"])
        want = (values[0] - values[1]) / (2 * step)
        got = result["gradient"][i][k]
        assert abs(got - want) < mpf(10) ** -30 * (1 + abs(want)), (case, i, k, got, want)


class Moved:
    """The rows with one element moved, all in 60 digits."""

    def __init__(self, rows, i, k, by):
        self.n, self.d = rows.n, rows.d
        self.z = [rows.raw(j) for j in range(rows.n)]
        self.z[i][k] += by
        self.norm = [mp.sqrt(mp.fsum(a * a for a in row)) for row in self.z]
        self.c = [[None if a == b else
                   mp.fsum(p * q for p, q in zip(self.z[a], self.z[b])) / (self.norm[a] * self.norm[b])
                   for b in range(rows.n)] for a in range(rows.n)]

    def unit(self, i):
        return [a / self.norm[i] for a in self.z[i]]

    def raw(self, i):
        return self.z[i]


def sign(at, probe):
    return -1 if ((at + 1) * (2654435761 + 2 * probe * 2246822519) >> 31) & 1 else 1


def probes(gradient, d):
    flat = [g for row in gradient for g in row]
    norm = mp.sqrt(mp.fsum(g * g for g in flat))
    return norm, [mp.fsum(sign(at, m) * g for at, g in enumerate(flat)) for m in range(4)], flat


DEFAULTS = dict(parameter=None, flat=0, weights=(), estimator=0, kl_norm=0, raw=0, unit=0, slices=6, knots=17,
                low=None, high=None, seed=0, step=0, times_n=None, normalised=None, kind=MIXED,
                views=0, global_views=0, gain="batch", gain_value=0.0)


def complete(method, batch, d, **given):
    case = dict(DEFAULTS, method=method, batch=batch, d=d, **given)
    name, _, family = method.partition("-")
    case["discrepancy"], case["family"] = name, family
    case["given"] = given
    if name in ("susreg", "sigreg"):
        lejepa = name == "sigreg"
        for key, susreg_value, sigreg_value in (("low", -5.0, 0.0), ("high", 5.0, 3.0),
                                                ("times_n", 0, 1), ("normalised", 1, 0)):
            if case[key] is None:
                case[key] = sigreg_value if lejepa else susreg_value
        if case["parameter"] is None:
            case["parameter"] = float(d)
    elif case["parameter"] is None:
        case["parameter"] = default_parameter(family, name, d)
    if family == "spectrum" and not case["weights"]:
        case["weights"] = positive_weights(d) if name == "kl" else SHAPED
    if "lambda" not in case:
        case["lambda"] = 0.5 if name == "kl" else 0.05
    return case


full = []


def emit(case):
    d, kind = case["d"], case["kind"]
    views = case["views"]
    rows = Rows(kind, case["batch"] * max(views, 1), d)
    evaluate = objective if views else compute
    result = evaluate(case, rows)
    if rows.n * d <= 24 and result["gradient"] and kind == MIXED:
        check(case, rows, evaluate, result)
    fields = ['"%s"' % case["method"], str(case["batch"]), str(d), str(kind)]
    given = case["given"]
    for key in ("parameter", "low", "high", "lambda"):
        if given.get(key) is not None:
            fields.append(".%s = %s" % (key, float(given[key]).hex()))
    for key in ("flat", "estimator", "kl_norm", "raw", "unit", "knots", "seed", "step", "views",
                "global_views"):
        if given.get(key):
            fields.append(".%s = %d" % (key, given[key]))
    if case["discrepancy"] in ("susreg", "sigreg"):
        fields.append(".slices = %d" % case["slices"])
        for key in ("times_n", "normalised"):
            if given.get(key) is not None:
                fields.append(".%s = %d" % (key, 1 + given[key]))
    if views:
        fields.append(".gain = ZONAL_GAIN_%s, .gain_value = %r"
                      % (case["gain"].upper(), case["gain_value"]))
    if case["weights"]:
        fields.append(".n_weights = %d, .weights = {%s}"
                      % (len(case["weights"]), ", ".join(float(w).hex() for w in case["weights"])))
    for key in ("value", "bias", "norm", "derivative", "log_p", "invariance", "discrepancy", "gain",
                "threshold"):
        if key in result and not (key in ("discrepancy", "gain") and not views):
            name = {"gain": "factor", "norm": "norm"}.get(key, key)
            fields.append(".%s = %s" % (name, number(result[key])))
    if result["gradient"]:
        norm, sums, flat = probes(result["gradient"], d)
        fields.append(".gradient_norm = %s" % number(norm))
        fields.append(".probe = {%s}" % ", ".join(number(s) for s in sums))
        if norm < mpf(10) ** -30 * result.get("size", 0):  # by symmetry
            fields.append(".size = %s" % number(result["size"]))
        if rows.n * d <= 16:
            fields.append(".full = %d" % (len(full) + 1))
            full.extend(flat)
    print("    {%s}," % ",".join(fields).replace(" = ", "=").replace(", ", ","))
    sys.stdout.flush()


EXACT = ("mmd-heat", "mmd-band", "mmd-induced", "mmd-poisson", "mmd-chordal", "mmd-spectrum",
         "ksd-heat", "ksd-band", "ksd-induced", "ksd-poisson", "ksd-spectrum", "kl-heat", "kl-induced",
         "kl-poisson", "kl-spectrum")


def loss_cases():
    for method in EXACT:
        for batch, d in ((3, 2), (5, 3), (8, 8), (16, 3), (16, 256)):
            yield complete(method, batch, d)
        yield complete(method, 24, 8, kind=TWINS)
    for method in ("mmd-heat", "mmd-band", "mmd-induced", "mmd-chordal", "ksd-heat", "ksd-band",
                   "kl-heat", "kl-poisson"):
        yield complete(method, 8, 2048)
    for method in ("mmd-heat", "mmd-band", "mmd-induced", "ksd-heat", "ksd-band", "kl-heat",
                   "kl-induced"):
        for batch, d in ((8, 8), (16, 256)):
            yield complete(method, batch, d, kind=NEAR)
        yield complete(method, 8, 8, kind=SCALED)
        yield complete(method, 8, 8, kind=UNIT, unit=1)
    # The hard corner: equal angles in high dimension under a narrow kernel.
    for d in (256, 2048, 4096):
        for kind, batch in ((ORTHONORMAL, 4), (THIRD, 3), (HALF, 3)):
            if d == 4096 and kind != ORTHONORMAL:
                continue  # phi is below 1e-250 there
            yield complete("kl-heat", batch, d, kind=kind, parameter=2 / d)
            yield complete("mmd-heat", batch, d, kind=kind, parameter=2 / d)
    for method in ("mmd-heat", "ksd-heat", "kl-heat"):
        for d, ks in ((2, (1, 20)), (3, (1, 20)), (64, (1, 20))):
            for k in ks:
                if not (method == "kl-heat" and k == 20 and d == 64):
                    yield complete(method, 8, d, parameter=k / d)
    for method in ("mmd-band", "ksd-band"):
        for band in (1, 3, 8, 64):
            for d in (2, 3, 19):
                yield complete(method, 8, d, parameter=band)
        yield complete(method, 16, 256, parameter=1)
        yield complete(method, 16, 256, parameter=64)
    for method in ("mmd-induced", "ksd-induced", "kl-induced"):
        yield complete(method, 8, 3, parameter=1.0)
        yield complete(method, 8, 256, parameter=1.0)
        yield complete(method, 8, 2, parameter=1000.0)
    for method in ("mmd-poisson", "ksd-poisson", "kl-poisson"):
        yield complete(method, 8, 3, parameter=0.9)
        yield complete(method, 8, 19, parameter=0.5)
    for method in ("mmd-spectrum", "ksd-spectrum"):  # degree 2, so moments serve too
        for d in (2, 3, 19):
            yield complete(method, 8, d, weights=[0.5, 2.0, 0.25])
        yield complete(method, 8, 2, weights=[0.0] * 32 + [1.0])  # seen as constant by coarse grids
    for method in ("mmd-heat", "mmd-band", "mmd-chordal", "ksd-heat", "ksd-band"):
        yield complete(method, 8, 8, estimator=2)
        yield complete(method, 8, 8, estimator=1, raw=1)
        yield complete(method, 3, 3, estimator=2, raw=1)
    for method in ("kl-heat", "kl-induced", "kl-poisson"):
        yield complete(method, 8, 8, estimator=1)
        yield complete(method, 8, 8, raw=1)
        yield complete(method, 8, 8, kl_norm=1)
        yield complete(method, 8, 19, kl_norm=1)
        yield complete(method, 8, 256, kl_norm=1, raw=1, estimator=1)
    for method in ("mmd-heat", "mmd-band", "ksd-band", "kl-heat", "mmd-spectrum"):
        yield complete(method, 8, 8, flat=1)  # without multiplicities
    for method in ("susreg", "sigreg"):
        for batch, d in ((3, 2), (5, 3), (8, 8), (16, 256)):
            yield complete(method, batch, d)
        yield complete(method, 8, 8, kind=NEAR)
        yield complete(method, 8, 7, seed=0x123456789ABCDEF, step=77)
        yield complete(method, 8, 8, knots=65, low=-8.0, high=8.0, normalised=0)
        yield complete(method, 8, 8, knots=16, low=-3.0, high=3.0, normalised=1, raw=1)
        yield complete(method, 8, 8, knots=9, low=-1.0, high=4.0, times_n=1)
        yield complete(method, 8, 8, knots=12, low=0.25, high=2.5, times_n=0)
    yield complete("susreg", 8, 8, parameter=1.0)
    yield complete("susreg", 8, 3, parameter=1000.0, slices=3)
    yield complete("susreg", 8, 8, low=0.0, high=3.0)
    yield complete("susreg", 8, 8, kind=SCALED)
    yield complete("susreg", 8, 8, kind=UNIT, unit=1)


def gain_of(method):
    if method == "kl-heat":
        return dict(gain="margin", gain_value=1.15)
    return dict(gain="unit" if method == "sigreg" else "batch")


def objective_cases():
    for method in ("mmd-heat", "ksd-band", "kl-heat", "mmd-band", "susreg", "sigreg"):
        for global_views, views in ((2, 2), (2, 4), (1, 3)):
            yield complete(method, 4, 6, views=views, global_views=global_views, **gain_of(method))
    yield complete("mmd-heat", 3, 2, views=2, global_views=2, gain="unit")
    yield complete("kl-heat", 3, 2, views=4, global_views=2, gain="batch")
    yield complete("kl-heat", 3, 2, views=4, global_views=2, gain="value", gain_value=2.5,
                   **{"lambda": 0.25})
    yield complete("mmd-induced", 3, 2, views=4, global_views=1, **{"lambda": 1.0})
    yield complete("sigreg", 3, 2, views=2, global_views=1, slices=2, gain="unit")
    yield complete("mmd-heat", 3, 2, views=3, global_views=3, estimator=2)
    yield complete("susreg", 4, 256, views=2, global_views=2, slices=3)
    for method in ("mmd-heat", "ksd-heat", "mmd-band", "mmd-induced", "kl-heat"):
        yield complete(method, 4, 256, views=2, global_views=2, **gain_of(method))


def directions():
    print("static const golden_direction golden_directions[] = {")
    for seed, stream, step, sample, n in ((0, 1, 0, 0, 2), (1, 1, 5, 3, 7),
                                          (0xFEDCBA9876543210, 0, 0xFFFFFFFF, 0xABCDEF0123, 8),
                                          (20260615, 3, 1, 1023, 5)):
        x = normals(seed, stream, step, sample, n)
        norm = mp.sqrt(mp.fsum(a * a for a in x))
        words = philox(seed, stream, step, sample, 1)
        print("    {UINT64_C(0x%x), %d, %uu, UINT64_C(0x%x), %d, {%s},\n     {%s},\n     {%s}},"
              % (seed, stream, step, sample, n, ", ".join("0x%08xu" % w for w in words),
                 ", ".join(number(a) for a in x), ", ".join(number(a / norm) for a in x)))
    print("};")


def main():
    print("/* Made by make_loss.py; the structs are test_loss.c's. */")
    print("/* clang-format off */")
    directions()
    print("static const golden_loss golden_losses[] = {")
    for case in loss_cases():
        emit(case)
    for case in objective_cases():
        emit(case)
    print("};")
    print("static const double golden_gradients[] = {")
    for at in range(0, len(full), 4):
        print("    %s," % ",".join(number(x) for x in full[at:at + 4]))
    print("};")


if __name__ == "__main__":
    main()
