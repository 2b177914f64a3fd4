#!/usr/bin/env python3
"""The commands kernel, loss, variance and bench from the outside: what they print, against numpy
and closed forms, and how they refuse bad input. ZONAL_PROGRAM is the program to test."""
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

try:
    import numpy as np
except ImportError:
    print("ok 1 - all # SKIP this Python has no numpy")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)

from harness import PROGRAM, case, kept, refused, report, run, run_json, run_tests, skip


def near(a, b, relative=1e-12, absolute=0.0):
    return bool(np.all(np.abs(np.subtract(a, b)) <= absolute + relative * np.abs(b)))


def rows(n, d, seed=0, scale=True):
    """Raw rows of different lengths, far enough from uniform for values of order 0.1."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, d)) + 0.7
    return x * generator.uniform(0.5, 2, size=(n, 1)) if scale else x


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def save(name, x):
    np.save(name, x)
    return name


def loss(path, method, *arguments):
    return run_json("loss", path, "--method", method, *arguments)


# ---- oracles: written from the formulas, in the plainest way ------------------------------------


def multiplicities(d, count):
    n = [1.0, float(d)]
    for l in range(1, count):
        n.append(n[-1] * (2 * l + d) * (l + d - 2) / ((2 * l + d - 2) * (l + 1)))
    return np.array(n[:count])


def polynomials(c, d, count):
    p = [np.ones_like(c), c]
    for l in range(1, count):
        p.append(((2 * l + d - 2) * c * p[-1] - l * p[-2]) / (l + d - 2))
    return p[:count]


def heat_spectrum(d, t, count=80):
    l = np.arange(count)
    a = np.exp(-t * l * (l + d - 2)) * multiplicities(d, count)
    return a / a.sum()


def series(c, a, d):
    return sum(weight * p for weight, p in zip(a, polynomials(c, d, len(a))))


def numpy_mmd(x, a):
    c = unit(x) @ unit(x).T
    return (series(c, a, x.shape[1]).mean() - a[0]) / (1 - a[0])


def numpy_ksd(x, a):
    d = x.shape[1]
    l = np.arange(len(a))
    b = a * l * (l + d - 2)
    return series(unit(x) @ unit(x).T, b / b.sum(), d).mean()


def log_area(d):
    return math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2)


def numpy_kl_poisson(x, r):
    """Closed form of phi and of a_0; returns D and C_norm."""
    n, d = x.shape
    c = unit(x) @ unit(x).T
    phi = ((1 - r) ** 2 / (1 - 2 * r * c + r * r)) ** (d / 2)
    np.fill_diagonal(phi, 0)
    norm = max(-log_area(d), -((d - 1) * math.log(1 - r) - math.log(1 + r)))
    return 1 + np.log(phi.sum(1) / (n - 1)).mean() / norm, norm


# ---- kernel --------------------------------------------------------------------------------------


def test_kernel():
    @case("kernel: the profiles of the paper's Figure 3")
    def _():
        wanted = [
            (("heat", "--t", "4/d"), 0.0001),
            (("heat", "--t", "5/d"), 0.0295),
            (("heat", "--t", "6/d"), 0.2726),
            (("induced",), 0.446),
            (("induced", "--scale", "1"), 0.992),
        ]
        for arguments, value in wanted:
            k = run_json("kernel", "--kernel", *arguments, "--dim", "256")
            first, last = k["profile"][0], k["profile"][-1]
            assert (first["c"], last["c"], last["phi"]) == (-1, 1, 1), arguments
            assert abs(first["phi"] - value) <= 10.0 ** -str(value)[::-1].find(".") / 2 * 1.01, (
                arguments,
                first,
            )

    @case("kernel: heat against the series, in JSON")
    def _():
        d, t = 24, 5 / 24
        k = run_json("kernel", "--kernel", "heat", "--t", "5/d", "--dim", d, "--points", 41)
        c = np.array([p["c"] for p in k["profile"]])
        a = heat_spectrum(d, t)
        assert len(c) == 41 and near(c, np.linspace(-1, 1, 41), absolute=1e-15)
        assert near([p["phi"] for p in k["profile"]], series(c, a, d), absolute=1e-12)
        assert near(np.exp([p["log_phi"] for p in k["profile"]]), series(c, a, d), 1e-9)
        constants = k["constants"]
        assert near(constants["bias"], a[0]) and near(constants["mmd_norm"], 1 - a[0])
        derivative = sum(a * np.arange(80) * (np.arange(80) + d - 2)) / (d - 1)
        assert near(constants["derivative"], derivative)
        assert near(constants["ksd_norm"], (d - 1) * derivative / 2)
        assert near(constants["kl_norm_paper"], -log_area(d), 1e-11)
        assert near(constants["kl_norm"], max(-log_area(d), -math.log(a[0])), 1e-11)
        for row in k["spectrum"]:
            assert row["eigenvalue"] == row["l"] * (row["l"] + d - 2)
            assert near(row["log_multiplicity"], math.log(multiplicities(d, 80)[row["l"]]), 1e-12)
            assert near(row["a"], a[row["l"]], 1e-11, 1e-18)

    @case("kernel: derivatives agree with differences, for every family")
    def _():
        for family in (["heat"], ["band"], ["induced"], ["poisson"], ["chordal"],
                       ["spectrum", "--spectrum", "1,0.5,0.25,0.1"]):
            k = run_json("kernel", "--kernel", *family, "--dim", 12, "--points", 4001)
            c, phi, derivative, bend = (
                np.array([p[key] for p in k["profile"][:3801]])
                for key in ("c", "phi", "dphi", "d2phi")
            )
            h = c[1] - c[0]
            middle = (phi[2:] - phi[:-2]) / (2 * h)
            assert near(middle, derivative[1:-1], 1e-3, 1e-4), family
            assert near((derivative[2:] - derivative[:-2]) / (2 * h), bend[1:-1], 1e-2, 1e-3), family

    @case("kernel: no logarithm where the kernel is not positive")
    def _():
        k = run_json("kernel", "--kernel", "band", "--dim", 16)
        assert k["profile"][3]["log_phi"] is None

    @case("kernel: CSV")
    def _():
        lines = run("kernel", "--csv", "--dim", 8, "--points", 11).stdout.splitlines()
        assert lines[0] == "c,phi,dphi,d2phi,log_phi" and len(lines) == 12
        assert np.loadtxt(lines[1:], delimiter=",").shape == (11, 5)

    @case("kernel: the table fits 80 columns")
    def _():
        for arguments in ([], ["--kernel", "chordal"], ["--t", "2/d", "--dim", "2048"],
                          ["--kernel", "band", "--band", "64", "--dim", "2"]):
            done = run("kernel", *arguments)
            assert done.returncode == 0 and not done.stderr, done.stderr
            assert max(map(len, done.stdout.splitlines())) <= 80, arguments

    @case("kernel: plots")
    def _():
        for option in ("--plot", "--figure"):
            assert run("kernel", option, "k.svg", "--dim", 64).returncode == 0
            root = xml.etree.ElementTree.parse("k.svg").getroot()
            assert root.tag.endswith("svg")
            text = "".join(root.itertext())
            assert option == "--plot" or all(
                word in text for word in ("4/d", "5/d", "6/d", "L = 2", "SUSReg")
            )
            os.remove("k.svg")


# ---- loss ----------------------------------------------------------------------------------------


def test_values():
    x = rows(50, 12)
    path = save("x.npy", x)

    @case("loss: the fields of the JSON")
    def _():
        r = loss(path, "mmd-heat")
        assert list(r)[:6] == ["method", "n", "d", "value", "bias", "norm"]
        assert (r["method"], r["n"], r["d"], r["precision"]) == ("mmd-heat", 50, 12, "double")

    @case("loss: numbers have all their digits")
    def _():
        text = run("loss", path, "--method", "mmd-heat", "--json").stdout
        value = re.search(r'"value": ([-+0-9.e]+)', text).group(1)
        assert float(value) == json.loads(text)["value"]
        assert len(re.sub(r"e.*|[-.]", "", value).lstrip("0")) >= 15, value

    @case("loss: mmd-band is the closed form in two moments, by every implementation")
    def _():
        d, u = 12, unit(x)
        a = multiplicities(d, 3) / multiplicities(d, 3).sum()
        b = a[1:] / a[1:].sum()
        mean, second = u.mean(0), u.T @ u / 50
        wanted = b[0] * mean @ mean + b[1] * d / (d - 1) * ((second - np.eye(d) / d) ** 2).sum()
        for how in ("auto", "ref", "pairs", "moments"):
            r = loss(path, "mmd-band", "--implementation", how)
            assert near(r["value"], wanted), (how, r["value"], wanted)
            assert near(r["bias"], a[0]) and near(r["norm"], 1 - a[0])

    @case("loss: mmd-heat and ksd-heat are their series")
    def _():
        for t in (5 / 12, 0.3):
            a = heat_spectrum(12, t)
            text = "5/d" if t == 5 / 12 else t
            assert near(loss(path, "mmd-heat", "--t", text)["value"], numpy_mmd(x, a), 1e-11)
            r = loss(path, "ksd-heat", "--t", text)
            l = np.arange(80)
            assert near(r["value"], numpy_ksd(x, a), 1e-11)
            assert near(r["norm"], (a * l * (l + 10)).sum() / 2) and r["bias"] == 0

    @case("loss: the other reading of the polynomials has weights without multiplicities")
    def _():
        a = np.ones(4) / 4
        got = loss(path, "mmd-band", "--band", 3, "--without-multiplicity")
        assert near(got["value"], numpy_mmd(x, a), 1e-11) and near(got["bias"], 0.25)
        l = np.arange(80)
        a = np.exp(-0.3 * l * (l + 10))
        got = loss(path, "ksd-heat", "--t", 0.3, "--without-multiplicity")
        assert near(got["value"], numpy_ksd(x, a / a.sum()), 1e-11)
        refused_kernel = run("kernel", "--kernel", "chordal", "--dim", 8, "--without-multiplicity")
        assert refused_kernel.returncode in (1, 2) and "chordal" in refused_kernel.stderr

    @case("loss: kl-poisson is its closed form, also where the paper's normaliser is negative")
    def _():
        for data, r in ((x, 0.2), (rows(40, 64), 0.05)):
            value, norm = numpy_kl_poisson(data, r)
            got = loss(save("kl.npy", data), "kl-poisson", "--r", r)
            assert near(got["value"], value, 1e-10), (got["value"], value)
            assert near(got["norm"], norm, 1e-11) and near(got["bias"], -norm, 1e-11)
        os.remove("kl.npy")

    @case("loss: the induced kernel at both scales")
    def _():
        for scale, s2 in (("d", 12.0), ("1", 1.0), ("2.5", 2.5)):
            node, weight = np.polynomial.legendre.leggauss(200)
            weight = weight * (1 - node**2) ** (9 / 2)
            weight /= weight.sum()
            phi = lambda c: np.tensordot(weight, np.exp(-np.multiply.outer(s2 * node**2, 1 - c)), 1)
            bias = weight @ phi(node)
            wanted = (phi(unit(x) @ unit(x).T).mean() - bias) / (1 - bias)
            got = loss(path, "mmd-induced", "--scale", scale)
            assert near(got["value"], wanted, 1e-10) and near(got["bias"], bias, 1e-11)

    @case("loss: a spectrum of one's own is a band")
    def _():
        given = loss(path, "mmd-spectrum", "--spectrum", "1,1,1")["value"]
        assert near(given, loss(path, "mmd-band")["value"])

    @case("loss: collapse gives 1, and U is V without the diagonal")
    def _():
        same = save("same.npy", np.outer([1.0, 2.0, 3.0, 0.5], rows(1, 12)[0]))
        for method in ("mmd-heat", "mmd-band", "mmd-induced", "ksd-heat", "ksd-band", "kl-heat"):
            assert near(loss(same, method)["value"], 1), method
        os.remove(same)
        for method in ("mmd-heat", "mmd-band", "ksd-poisson"):
            v = loss(path, method, "--estimator", "v")["value"]
            u = loss(path, method, "--estimator", "u")["value"]
            assert near(u, (50 * v - 1) / 49, 1e-11), method

    @case("loss: --raw multiplies by the norm")
    def _():
        for method in ("mmd-heat", "ksd-band", "kl-heat"):
            r = loss(path, method)
            assert near(loss(path, method, "--raw")["value"], r["value"] * r["norm"]), method

    @case("loss: element types and orders of the file")
    def _():
        half = x.astype(np.float16)
        wanted = loss(save("a.npy", half.astype(float)), "mmd-heat")["value"]
        for same in (half, half.astype(np.float32), np.asfortranarray(half.astype(float)),
                     np.asfortranarray(half)):
            assert loss(save("a.npy", same), "mmd-heat")["value"] == wanted
        os.remove("a.npy")

    @case("loss: fp32 is near, threads change nothing")
    def _():
        for method in ("mmd-heat", "kl-heat", "ksd-induced", "susreg"):
            double = loss(path, method)["value"]
            assert near(loss(path, method, "--precision", "fp32")["value"], double, 1e-5), method
            assert loss(path, method, "--threads", 1)["value"] == double, method

    @case("loss: --unit takes unit rows as they are")
    def _():
        u = save("u.npy", unit(x))
        assert near(loss(u, "mmd-heat", "--unit")["value"], loss(path, "mmd-heat")["value"], 1e-12)
        os.remove(u)

    @case("loss: susreg depends on seed and step and is near its limit")
    def _():
        first = loss(path, "susreg")["value"]
        assert loss(path, "susreg")["value"] == first
        assert loss(path, "susreg", "--seed", 1)["value"] != first
        assert loss(path, "susreg", "--step", 1)["value"] != first
        limit = loss(path, "mmd-induced")["value"]
        wide = ("--slices", 8192, "--knots", 65, "--range=-8,8")
        assert near(loss(path, "susreg", *wide)["value"], limit, 0.05)

    @case("loss: the switches of the sliced losses")
    def _():
        for method in ("susreg", "sigreg"):
            once = loss(path, method, "--no-times-n")["value"]
            assert near(loss(path, method, "--times-n")["value"], 50 * once), method
            r = loss(path, method, "--no-times-n", "--collapse-norm")
            bare = loss(path, method, "--no-times-n", "--no-collapse-norm")
            assert near(r["value"] * r["norm"], bare["value"]) and bare["norm"] == 1, method
        assert loss(path, "sigreg")["times_n"] and not loss(path, "susreg")["times_n"]

    os.remove(path)


def test_gradients():
    def difference(z, method, arguments, direction, h=1e-5):
        plus = loss(save("p.npy", z + h * direction), method, *arguments)["value"]
        minus = loss(save("p.npy", z - h * direction), method, *arguments)["value"]
        os.remove("p.npy")
        return (plus - minus) / (2 * h)

    for method in ("mmd-heat", "mmd-band", "mmd-induced", "mmd-poisson", "ksd-heat", "kl-heat",
                   "kl-induced", "susreg", "sigreg"):
        @case(f"loss: the gradient of {method} is its derivative with respect to the raw rows")
        def _():
            z = rows(20, 8, seed=3)
            direction = np.random.default_rng(4).normal(size=z.shape)
            arguments = ("--slices", 64) if method in ("susreg", "sigreg") else ()
            loss(save("z.npy", z), method, "--grad", "g.npy", *arguments)
            g = np.load("g.npy")
            assert g.shape == z.shape and g.dtype == np.float64 and g.flags.c_contiguous
            wanted = difference(z, method, arguments, direction)
            assert near((g * direction).sum(), wanted, 1e-6, 1e-9), ((g * direction).sum(), wanted)
            if method != "sigreg":  # the value does not depend on the rows' lengths
                assert np.abs((g * z).sum(1)).max() < 1e-12 * np.abs(g).max() * 100
            os.remove("z.npy")
            os.remove("g.npy")

    @case("loss: a refused command leaves the old gradient alone, fp32 is near it")
    def _():
        save("z.npy", rows(33, 8).astype(np.float32))
        loss("z.npy", "mmd-heat", "--grad", "g.npy", "--precision", "fp32")
        near_by = np.load("g.npy")
        loss("z.npy", "mmd-heat", "--grad", "g.npy")
        exact = np.load("g.npy")
        assert near_by.dtype == np.float64
        assert np.linalg.norm(near_by - exact) < 1e-5 * np.linalg.norm(exact)
        wrong = run("loss", "z.npy", "--method", "mmd-heat", "--t", "0", "--grad", "g.npy")
        assert wrong.returncode == 2
        assert (np.load("g.npy") == exact).all() and sorted(os.listdir()) == ["g.npy", "z.npy"]
        os.remove("z.npy")
        os.remove("g.npy")


def test_remarks():
    narrow, wide = save("narrow.npy", rows(20, 16)), save("wide.npy", rows(20, 256))

    @case("loss: a hint at the critical scale, far from d = 256 only")
    def _():
        done = run("loss", narrow, "--method", "mmd-heat", "--t", "5/d")
        assert "log(d)/d" in done.stderr and done.stderr.count("\n") == 1, done.stderr
        for arguments in ((narrow, "--quiet"), (narrow, "--json"), (narrow, "--t", "0.3"), (wide,)):
            done = run("loss", "--method", "mmd-heat", *arguments)
            assert not done.stderr and done.returncode == 0, (arguments, done.stderr)

    @case("loss: an option without use is mentioned")
    def _():
        done = run("loss", wide, "--method", "mmd-band", "--t", "5/d", "--slices", 3)
        assert "does not use --t, --slices" in done.stderr and done.returncode == 0

    @case("loss: a negative normaliser is mentioned")
    def _():
        done = run("loss", narrow, "--method", "kl-poisson", "--kl-norm", "paper")
        assert done.returncode == 0 and "negative" in done.stderr, done.stderr

    @case("loss: the table for people")
    def _():
        done = run("loss", wide, "--method", "mmd-heat")
        assert "20 rows in 256 dimensions" in done.stdout and "t = 5/d" in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80

    @case("test: what was skipped is said, in lines that keep their words apart")
    def _():
        said = run_json("test", wide, "--pair-limit", 10)["skipped"]
        done = run("test", wide, "--pair-limit", 10)
        assert said and said in " ".join(done.stdout.split()), done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80

    for path in (narrow, wide):
        os.remove(path)


# ---- variance and bench --------------------------------------------------------------------------


def test_variance():
    small = ("variance", "--dim", 16, "--batch", "16,32", "--slices", "4,16,64", "--quiet")

    @case("variance: measured and closed form agree, noise falls with the slices")
    def _():
        r = run_json(*small, "--replicates", 400)
        assert [b["batch"] for b in r["batches"]] == [16, 32]
        for b in r["batches"]:
            # 400 replicates: the variance of the variance is about 2/400 of its square, and more
            # for the heavier tail of a quadratic form; five of these deviations
            assert near(b["exact_variance"], b["exact_closed_form"], 0.5), b
            assert near(b["exact_mean"], 1 / b["batch"], 0.1)
            noise = [s["projection_variance"] for s in b["susreg"]]
            assert [s["slices"] for s in b["susreg"]] == [4, 16, 64]
            assert 2.5 < noise[0] / noise[1] < 6.4 and 2.5 < noise[1] / noise[2] < 6.4, noise
            assert b["susreg"][0]["variance"] > b["exact_variance"]

    @case("variance: the closed form at d = 256")
    def _():
        r = run_json("variance", "--batch", "256", "--slices", "1", "--replicates", 2)
        assert near(r["batches"][0]["exact_closed_form"], 2.5e-8, 0.02)

    @case("variance: the seed decides")
    def _():
        few = (*small, "--replicates", 5, "--csv")
        first = run(*few).stdout
        assert run(*few).stdout == first and run(*few, "--seed", 1).stdout != first
        lines = first.splitlines()
        assert lines[0].startswith("batch,slices,total,projection,exact") and len(lines) == 7

    @case("variance: the table fits 80 columns, and the figure is drawn")
    def _():
        done = run(*small, "--replicates", 5, "--plot", "v.svg")
        assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 80
        text = "".join(xml.etree.ElementTree.parse("v.svg").getroot().itertext())
        assert all(word in text for word in ("SUSReg, B = 16", "exact, B = 32"))
        assert run(*small, "--replicates", 5, "--plot-batch", "v.svg").returncode == 0
        text = "".join(xml.etree.ElementTree.parse("v.svg").getroot().itertext())
        assert all(word in text for word in ("4 directions", "64 directions", "exact"))
        os.remove("v.svg")

    @case("variance: interrupted, it leaves nothing behind")
    def _():
        child = subprocess.Popen(
            [PROGRAM, "variance", "--plot", "v.svg", "--replicates", "100000"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        time.sleep(0.7)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=20)
        assert child.returncode == 130 and not out and not os.listdir(), os.listdir()


def test_bench():
    @case("bench: a line for each, in JSON and as a table")
    def _():
        few = ("bench", "loss", "--dim", 16, "--batch", "32,64", "--method", "mmd-band,kl-heat")
        lines = [json.loads(line) for line in run(*few, "--json").stdout.splitlines()]
        assert [(r["method"], r["n"]) for r in lines] == [
            ("mmd-band", 32), ("mmd-band", 64), ("kl-heat", 32), ("kl-heat", 64)]
        assert all(r["ms"] > 0 and r["runs"] >= 3 for r in lines)
        assert lines[0]["implementation"] == "moments" and near(lines[0]["gflop"], 3e-9 * 32 * 256)
        done = run(*few, "--peak", "100")
        assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 80

    @case("bench: what would take too long is left out")
    def _():
        done = run("bench", "loss", "--batch", "256,65536", "--method", "mmd-heat", "--limit", "1")
        assert done.returncode == 0 and "left out" in done.stdout, done.stdout


# ---- refusals ------------------------------------------------------------------------------------


def test_bad_files():
    x = rows(20, 8)
    save("good.npy", x)
    good = open("good.npy", "rb").read()

    def bad(name, text, content, method="mmd-heat"):
        if isinstance(content, bytes):
            with open("bad.npy", "wb") as file:
                file.write(content)
        else:
            np.save("bad.npy", content)
        refused(name, 1, text, "loss", "bad.npy", "--method", method, "--grad", "g.npy", "--json")
        os.remove("bad.npy")

    refused("no such file", 1, "none.npy", "loss", "none.npy", "--method", "mmd-heat")
    refused("a folder", 1, "", "loss", ".", "--method", "mmd-heat")
    bad("an empty file", "bad.npy", b"")
    bad("text", "bad.npy", b"these are not embeddings\n" * 20)
    bad("cut short in the header", "bad.npy", good[:50])
    bad("cut short in the data", "bad.npy", good[:-1])
    bad("bytes left over", "bad.npy", good + b"x")
    bad("integers", "bad.npy", np.ones((4, 4), dtype=np.int32))
    bad("complex numbers", "bad.npy", np.ones((4, 4), dtype=complex))
    bad("big-endian", "bad.npy", x.astype(">f8"))
    bad("one axis", "bad.npy", x[0])
    bad("three axes", "bad.npy", x.reshape(4, 5, 8))
    bad("no rows", "bad.npy", x[:0])
    bad("one row", "2 rows", x[:1])
    bad("two rows for KL", "3 rows", x[:2], "kl-heat")
    bad("one column", "dimension", x[:, :1])
    for value, word in ((0.0, "zero"), (np.nan, "finite"), (np.inf, "finite"), (-np.inf, "finite")):
        y = x.copy()
        y[13, :] = value if value == 0 else y[13, :]
        y[13, 5] = value
        for method in ("mmd-heat", "mmd-band", "kl-heat", "susreg"):
            bad(f"{value} in a row, {method}", "row 13", y, method)
        bad(f"{value} in a row is described", word, y)
        save("bad.npy", y)
        refused(f"{value} in a row, zonal test", 1, "bad.npy: row 13", "test", "bad.npy")
        os.remove("bad.npy")
    refused("rows that are not unit", 1, "row", "loss", "good.npy", "--method", "mmd-heat",
            "--unit")
    os.remove("good.npy")


def test_bad_options():
    save("x.npy", rows(20, 8))

    def bad(text, *arguments, method="mmd-heat"):
        refused(" ".join(map(str, arguments)), 2, text,
                "loss", "x.npy", "--method", method, *arguments)

    refused("no method", 2, "--method", "loss", "x.npy")
    refused("no file", 2, "X.npy", "loss", "--method", "mmd-heat")
    refused("two files", 2, "x.npy", "loss", "x.npy", "x.npy", "--method", "mmd-heat")
    for wrong, right in (("mmd-haet", "mmd-heat"), ("kl_heat", "kl-heat"), ("susrge", "susreg")):
        refused(f"method {wrong}", 2, right, "loss", "x.npy", "--method", wrong)
    refused("a KL without logarithm", 2, "band is negative at some cosines; use one of kl-heat", "loss",
            "x.npy", "--method", "kl-band")
    refused("method nonsense", 2, "nonsense", "loss", "x.npy", "--method", "nonsense")
    bad("--bnad", "--bnad", 2)
    bad("--band", "--bnad", 2)
    for value in ("0", "-1", "0/d", "-5/d", "nan", "inf", "5/e", "", "1e999"):
        bad("--t", f"--t={value}")
    for value in ("0", "-1", "65"):
        bad("--band", "--band", value, method="mmd-band")
    bad("the band must be a whole number", "--band", "1.5", method="mmd-band")
    for value in ("0", "-1", "0/d"):
        bad("--scale", "--scale", value, method="mmd-induced")
    for value in ("0", "1", "-0.5", "2"):
        bad("--r", "--r", value, method="mmd-poisson")
    bad("--slices", "--slices", 0, method="susreg")
    bad("--knots", "--knots", 1, method="susreg")
    bad("--range", "--range", "5,1", method="susreg")
    bad("--range", "--range", "5", method="susreg")
    bad("--seed", "--seed=-1", method="susreg")
    bad("--step", "--step", 2**32, method="susreg")
    bad("--threads", "--threads=-1")
    bad("--precision", "--precision", "fp64")
    bad("--t", "--t", "5/d", "--t", "6/d")
    bad("--spectrum", method="mmd-spectrum")
    bad("spectrum", "--spectrum", "1", method="mmd-spectrum")
    bad("spectrum", "--spectrum", "1,-1", method="mmd-spectrum")
    bad("spectrum", "--spectrum", "1,0,0", method="mmd-spectrum")
    bad("positive", "--spectrum", "1,1,1", method="kl-spectrum")
    bad("gradient", "--grad", "g.npy", method="mmd-chordal")
    bad("moments", "--implementation", "moments")
    bad("slice", "--implementation", "pairs", method="susreg")
    refused("tf32 on the CPU", 1, "tf32", "loss", "x.npy", "--method", "mmd-heat",
            "--precision", "tf32")
    done = run("loss", "x.npy", "--method", "mmd-heat", "--device", "cuda", "--precision", "fp32")
    if done.returncode == 0:
        skip("refused: cuda", "there is a device")
    else:
        refused("cuda without a device", 1, "", "loss", "x.npy", "--method", "mmd-heat",
                "--device", "cuda", "--precision", "fp32")

    refused("a device of no known kind", 2, "there is no device gpu; use one of cpu", "loss",
            "x.npy", "--method", "mmd-heat", "--device", "gpu")
    refused("a second processor", 1, "this machine has cpu", "bench", "loss", "--device", "cpu:1")
    refused("train: a device of no known kind", 2, "there is no device cuda:x", "train",
            "textures:disk", "--device", "cuda:x", "--out", "run")

    refused("kernel: unknown family", 2, "heat", "kernel", "--kernel", "haet")
    refused("kernel: t = 0", 2, "--t", "kernel", "--t", "0")
    refused("kernel: dim 1", 2, "--dim", "kernel", "--dim", "1")
    refused("kernel: one point", 2, "--points", "kernel", "--points", "1")
    refused("kernel: JSON and CSV", 2, "--csv", "kernel", "--json", "--csv")
    refused("kernel: an argument", 2, "x.npy", "kernel", "x.npy")
    refused("variance: a batch of 1", 2, "--batch", "variance", "--batch", "1")
    refused("variance: no number", 2, "--batch", "variance", "--batch", "256,")
    refused("variance: a curve over one batch", 2, "--batch 64,256", "variance", "--plot-batch", "v.svg")
    refused("variance: slices descend", 2, "ascending", "variance", "--slices", "32,16")
    refused("variance: one replicate", 2, "--replicates", "variance", "--replicates", "1")
    done = run("bench")
    report(done.returncode == 2 and not done.stdout and "  loss " in done.stderr,
           "bench: nothing to measure lists what can be", done.stderr)
    refused("bench: something else", 2, "loss", "bench", "lost")
    refused("bench: unknown method", 2, "mmd-heat", "bench", "loss", "--method", "mmd-haet")
    os.remove("x.npy")


def test_bad_outputs():
    save("x.npy", rows(20, 8))
    write = ("loss", "x.npy", "--method", "mmd-heat", "--json", "--grad")
    os.mkdir("folder")
    refused("the gradient into no folder", 1, "none/g.npy", *write, "none/g.npy")
    refused("the gradient over a folder", 1, "folder", *write, "folder")
    os.symlink("../x.npy", "folder/link.npy")
    os.link("x.npy", "folder/hard.npy")
    for name in ("x.npy", "./folder/../x.npy", "folder/link.npy", "folder/hard.npy"):
        kept(f"the gradient to {name}", "x.npy", *write, name)
    for name in os.listdir("folder"):
        os.remove(f"folder/{name}")
    refused("a plot into no folder", 1, "none/k.svg", "kernel", "--plot", "none/k.svg")
    refused("a figure into no folder", 1, "none/k.svg", "kernel", "--figure", "none/k.svg")
    refused("a variance plot into no folder, before any work", 1, "none/v.svg", "variance",
            "--replicates", 1000000, "--plot", "none/v.svg")
    if os.path.exists("/dev/full"):
        refused("the gradient on a full disk", 1, "No space", *write, "/dev/full")
        refused("a plot on a full disk", 1, "No space", "kernel", "--plot", "/dev/full")
        for command in (("kernel", "--json"), ("kernel",),
                        ("loss", "x.npy", "--method", "mmd-band")):
            with open("/dev/full", "w") as full:
                done = run(*command, stdout=full)
            report(done.returncode == 1 and "standard output" in done.stderr
                   and done.stderr.count("\n") == 1,
                   f"refused: a full standard output, {command[0]}", done.stderr)
    else:
        skip("refused: a full disk", "no /dev/full")
    if os.geteuid() != 0:
        os.chmod("folder", 0o555)
        refused("the gradient into a folder that is not ours", 1, "Permission", *write,
                "folder/g.npy")
    else:
        skip("refused: a folder that is not ours", "root may write anywhere")
    os.rmdir("folder")
    os.remove("x.npy")


def test_devices():
    done = run_json("devices")
    first, missing = done["devices"][0], {m["backend"]: m["reason"] for m in done["missing"]}
    report(first["name"] == "cpu" and first["index"] == 0 and first["compute_capability"] == "",
           "devices: the processor comes first", str(done))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    report(first["total_memory"] == pages and 0 < first["free_memory"] <= pages,
           "devices: its memory", str(first))
    names = [device["name"] for device in done["devices"]]
    report(all(re.fullmatch(r"cuda:[0-9]+", name) for name in names[1:])
           and ("cuda" in missing) == (len(names) == 1), "devices: GPUs, or why there are none",
           str(done))
    text = run("devices")
    report(text.returncode == 0 and all(f"{name} " in text.stdout for name in names)
           and all(reason in " ".join(text.stdout.split()) for reason in missing.values())
           and all(len(line) <= 80 for line in text.stdout.splitlines()), "devices: the table",
           text.stdout)
    save("x.npy", rows(20, 6))
    by_name = loss("x.npy", "mmd-heat", "--device", "cpu:0")
    report(by_name["device"] == "cpu" and by_name["value"] == loss("x.npy", "mmd-heat")["value"],
           "devices: the processor by its full name", str(by_name))
    os.remove("x.npy")


def test_help():
    for command in ("kernel", "loss", "variance", "bench", "devices"):
        done = run(command, "--help")
        report(done.returncode == 0 and done.stdout.startswith(f"usage: zonal {command}")
               and max(map(len, done.stdout.splitlines())) <= 80 and not done.stderr,
               f"{command} --help fits 80 columns", done.stdout)


run_tests(test_help, test_kernel, test_values, test_gradients, test_remarks, test_variance,
          test_bench, test_devices, test_bad_files, test_bad_options, test_bad_outputs)
