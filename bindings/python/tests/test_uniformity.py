"""Tests of uniformity: against sums over pairs in numpy, and against `zonal test`."""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from xml.etree import ElementTree

import numpy as np
import zonal

PROGRAM = os.environ.get("ZONAL_PROGRAM")


def draw(rows=60, dim=7, seed=0, **kind):
    """Rows with a preferred direction and unequal lengths."""
    x = np.random.default_rng(seed).standard_normal((rows, dim)) + 0.3
    return (x * np.linspace(0.5, 3, rows)[:, None]).astype(kind.get("dtype", np.float64))


def cosines(x):
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit, unit @ unit.T


class Mathematics(unittest.TestCase):
    def test_statistics_from_all_pairs(self):
        x = draw()
        n, d = x.shape
        unit, c = cosines(x)
        apart = ~np.eye(n, dtype=bool)
        report = zonal.test_uniformity(x)
        self.assertAlmostEqual(report["rayleigh"].statistic, c[apart].sum() / n, delta=1e-10)
        second = (d * c**2 - 1) / (d - 1)
        self.assertAlmostEqual(report["bingham"].statistic, second[apart].sum() / n, delta=1e-10)
        self.assertAlmostEqual(report.mean_cosine, c[apart].mean(), delta=1e-12)
        self.assertAlmostEqual(report.mean_resultant, np.linalg.norm(unit.mean(0)), delta=1e-12)
        shares = np.linalg.svd(unit, compute_uv=False)
        shares /= shares.sum()
        self.assertAlmostEqual(report.effective_rank, np.exp(-(shares * np.log(shares)).sum()), delta=1e-9)
        nearest = np.degrees(np.arccos(np.where(apart, c, -2).max(1)))
        self.assertAlmostEqual(report.nearest_angle, nearest.mean(), delta=1e-6)

    def test_uniform_points_are_not_rejected_and_a_cone_is(self):
        uniform = np.random.default_rng(1).standard_normal((400, 16))
        self.assertEqual(zonal.test_uniformity(uniform).collapse, "none")
        self.assertTrue(all(test.p > 1e-4 for test in zonal.test_uniformity(uniform).tests))
        self.assertLess(zonal.test_uniformity(uniform + 1)["rayleigh"].p, 1e-10)

    def test_monte_carlo_p_values(self):
        """The share of simulated batches at least as extreme; a cone's is the least there can be."""
        report = zonal.test_uniformity(draw() + 1, monte_carlo=19, seed=4, t="3/d")
        self.assertEqual(report["rayleigh"].p, 1 / 20)
        self.assertEqual(report["rayleigh"].p_monte_carlo, 1 / 20)
        self.assertEqual(report.monte_carlo, 19)
        self.assertEqual(report["heat-t"].name, "heat-t")

    def test_collapse(self):
        x = np.random.default_rng(2).standard_normal((300, 64))
        self.assertFalse(zonal.collapse_report(x).collapsed)
        point = zonal.collapse_report(np.ones(64) + 0.01 * x)
        self.assertEqual((point.collapse, point.collapsed), ("point", True))
        few = x.copy()
        few[:, 2:] *= 1e-9
        self.assertEqual(zonal.collapse_report(few).collapse, "directions")
        self.assertAlmostEqual(zonal.collapse_report(few).effective_rank, 2, delta=0.05)

    def test_monitor_is_the_pair_of_linear_tests(self):
        x = draw(200, 12)
        whole, short = zonal.test_uniformity(x), zonal.collapse_report(x)
        for name in ("n", "d", "collapse", "mean_cosine", "effective_rank", "effective_rank_expected"):
            self.assertEqual(getattr(whole, name), getattr(short, name), name)
        least = min(whole["rayleigh"].log10_p, whole["bingham"].log10_p)
        self.assertAlmostEqual(short.log10_p, least + math.log10(2), delta=1e-12)


@unittest.skipUnless(PROGRAM, "ZONAL_PROGRAM names no zonal to compare with")
class Program(unittest.TestCase):
    def compare(self, x, flags, **options):
        with tempfile.TemporaryDirectory() as folder:
            np.save(folder + "/x.npy", x)
            done = subprocess.run(
                [PROGRAM, "test", folder + "/x.npy", "--json", *flags], stdout=subprocess.PIPE, check=True
            )
        want, found = json.loads(done.stdout), zonal.test_uniformity(x, **options)
        for name in ("n", "d", "mean_cosine", "verdict", "skipped"):
            self.assertEqual(getattr(found, name), want[name], name)
        # The program may have LAPACK, and a wheel has not: their eigenvalues differ in the last digits.
        for name in ("effective_rank", "directions"):
            self.assertAlmostEqual(getattr(found, name), want[name], delta=1e-12 * want[name])
        self.assertEqual([test.name for test in found.tests], [test["name"] for test in want["tests"]])
        for test, other in zip(found.tests, want["tests"]):
            for name in ("statistic", "sd", "p", "p_lower"):
                value = getattr(test, name)
                self.assertEqual(None if math.isnan(value) else value, other[name], (test.name, name))
        for degree, other in zip(found.degrees, want["energy"]):
            self.assertEqual((degree.degree, degree.excess, degree.sd), tuple(other.values()))

    def test_double(self):
        self.compare(draw(), ["--mc", "9", "--seed", "3", "--t", "2/d"], monte_carlo=9, seed=3, t="2/d")

    def test_float_without_pairs(self):
        self.compare(draw(dtype=np.float32), ["--pair-limit", "10"], pair_limit=10)


class Stopping(unittest.TestCase):
    def test_progress_and_its_exceptions(self):
        shares = []
        zonal.test_uniformity(draw(), monte_carlo=4, progress=shares.append)
        self.assertEqual(shares, [0.25, 0.5, 0.75, 1.0])

        def fail(share):
            raise LookupError("mine")

        with self.assertRaisesRegex(LookupError, "mine"):
            zonal.test_uniformity(draw(), monte_carlo=4, progress=fail)

    def test_interrupt_in_the_callback(self):
        handler, calls = signal.getsignal(signal.SIGINT), []

        def interrupt(share):
            calls.append(share)
            signal.raise_signal(signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            zonal.test_uniformity(draw(), monte_carlo=1000, progress=interrupt)
        self.assertEqual(len(calls), 1)
        self.assertIs(signal.getsignal(signal.SIGINT), handler)

    def test_interrupt_from_outside(self):
        code = (
            "import numpy as np, zonal\nx = np.random.default_rng(0).standard_normal((50, 8))\n"
            "print('begun', flush=True)\n"
            "try: zonal.test_uniformity(x, monte_carlo=100_000_000)\n"
            "except KeyboardInterrupt: print('stopped', flush=True)\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.assertEqual(child.stdout.readline(), "begun\n")
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
        self.assertEqual((out, err), ("stopped\n", ""))


class Printing(unittest.TestCase):
    def test_text_fits_a_terminal(self):
        for report in (
            zonal.test_uniformity(draw(), monte_carlo=9, t=0.01),
            zonal.test_uniformity(draw(), pair_limit=5),
            zonal.collapse_report(draw()),
        ):
            text = str(report)
            self.assertLessEqual(max(map(len, text.split("\n"))), 80)
            self.assertEqual(repr(report), text)
            self.assertIn(report.verdict[:40], text)

    def test_html_is_well_formed(self):
        root = ElementTree.fromstring("<div>" + zonal.test_uniformity(draw())._repr_html_() + "</div>")
        self.assertIn("bingham", [cell.text for cell in root.iter("td")])

    def test_dict_is_all(self):
        found = zonal.test_uniformity(draw()).to_dict()
        self.assertEqual(found["tests"][0]["name"], "rayleigh")
        self.assertEqual(json.loads(json.dumps(found))["degrees"][5]["degree"], 6)

    def test_unknown_test(self):
        with self.assertRaisesRegex(KeyError, "there are rayleigh, bingham"):
            zonal.test_uniformity(draw())["ratleigh"]


if __name__ == "__main__":
    unittest.main()
