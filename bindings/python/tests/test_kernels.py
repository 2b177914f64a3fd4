"""Kernels against series and closed forms, the noise of slices against its known variance."""

import json
import math
import os
import subprocess
import unittest

import numpy as np
import zonal

PROGRAM = os.environ.get("ZONAL_PROGRAM")


def gegenbauer(degrees, d, c):
    """P_l(c), scaled to P_l(1) = 1, for l from 0 to degrees - 1."""
    found = [np.ones_like(c), c]
    for degree in range(1, degrees):
        found.append(((2 * degree + d - 2) * c * found[-1] - degree * found[-2]) / (degree + d - 2))
    return np.array(found[:degrees])


def multiplicity(degree, d):
    if degree == 0:
        return 1
    return (2 * degree + d - 2) * math.comb(degree + d - 3, degree - 1) // degree


class Profiles(unittest.TestCase):
    def test_heat_is_its_series(self):
        d, t = 24, 5 / 24
        c = np.linspace(-1, 1, 41)
        degrees = np.arange(60)
        weights = np.array([math.exp(-t * k * (k + d - 2)) * multiplicity(k, d) for k in range(60)])
        weights /= weights.sum()
        phi = weights @ gegenbauer(60, d, c)
        found = zonal.kernel_profile("heat", t="5/d", d=d, cosines=c)
        np.testing.assert_allclose(found.phi, phi, atol=1e-13)
        np.testing.assert_allclose(np.exp(found.log_phi), phi, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(found.spectrum, weights[: len(found.spectrum)], atol=1e-13)
        own = weights.copy()
        own[0] = 0
        psi = own @ gegenbauer(60, d, c)
        np.testing.assert_allclose(found.psi_mmd, psi / own.sum(), atol=1e-12)
        stein = own * degrees * (degrees + d - 2)
        np.testing.assert_allclose(found.psi_ksd, stein @ gegenbauer(60, d, c) / stein.sum(), atol=1e-11)
        np.testing.assert_allclose(np.gradient(found.phi, c)[1:-1], found.phi_prime[1:-1], atol=2e-2)
        np.testing.assert_allclose(
            np.exp(found.log_multiplicity[:9]), [multiplicity(k, d) for k in range(9)], rtol=1e-12
        )

    def test_closed_forms(self):
        band = zonal.kernel_profile("band", band=1, d=3, cosines=[-1, 0, 0.5, 1])
        np.testing.assert_allclose(band.phi, [-0.5, 0.25, 0.625, 1], atol=1e-15)
        self.assertIsNone(band.log_phi)
        np.testing.assert_allclose(band.spectrum, [0.25, 0.75], atol=1e-15)
        r, d = 0.2, 6
        poisson = zonal.kernel_profile("poisson", r=r, d=d)
        want = ((1 - r) ** 2 / (1 - 2 * r * poisson.cosines + r * r)) ** (d / 2)
        np.testing.assert_allclose(poisson.phi, want, rtol=1e-12)
        given = zonal.kernel_profile("spectrum", spectrum=[1, 0, 2], d=3, cosines=[0.0])
        np.testing.assert_allclose(given.spectrum, np.array([1, 0, 10]) / 11, atol=1e-15)

    def test_chordal_has_no_derivative_at_one(self):
        chordal = zonal.kernel_profile("chordal", d=8, cosines=[0.0, 1.0])
        self.assertTrue(np.isinf(chordal.phi_prime[1]) and np.isfinite(chordal.phi_prime[0]))
        self.assertTrue(np.isinf(chordal.constants["derivative"]))

    @unittest.skipUnless(PROGRAM, "ZONAL_PROGRAM names no zonal to compare with")
    def test_program(self):
        done = subprocess.run(
            [PROGRAM, "kernel", "--kernel", "induced", "--dim", "32", "--json"],
            stdout=subprocess.PIPE,
            check=True,
        )
        want, found = json.loads(done.stdout), zonal.kernel_profile("induced", d=32)
        for name in ("c", "phi", "dphi", "d2phi"):
            values = {
                "c": found.cosines,
                "phi": found.phi,
                "dphi": found.phi_prime,
                "d2phi": found.phi_second,
            }
            np.testing.assert_allclose(
                values[name], [row[name] for row in want["profile"]], rtol=1e-15, atol=1e-300
            )
        self.assertEqual(found.constants["bias"], want["constants"]["bias"])
        self.assertEqual(found.spectrum.tolist(), [row["a"] for row in want["spectrum"]])

    def test_printing(self):
        profile = zonal.kernel_profile("heat", d=256)
        self.assertLessEqual(max(map(len, str(profile).split("\n"))), 80)
        self.assertIn("<td>mmd_norm</td>", profile._repr_html_())
        self.assertEqual(len(profile.to_dict()["phi"]), 201)

    def test_refused(self):
        for sentence, call in (
            ("no use for band", lambda: zonal.kernel_profile("heat", band=2)),
            ("haet", lambda: zonal.kernel_profile("haet")),
            ("t must be above 0", lambda: zonal.kernel_profile("heat", t=-1)),
            ("dimension", lambda: zonal.kernel_profile("heat", d=1)),
            ("from -1 to 1", lambda: zonal.kernel_profile(cosines=[2.0])),
            ("from -1 to 1", lambda: zonal.kernel_profile(cosines=[math.nan])),
        ):
            with self.assertRaisesRegex(ValueError, sentence):
                call()


class Variance(unittest.TestCase):
    def test_laws(self):
        """Exact: the measured variance is that of the closed form. Projection: independent directions, so it
        goes as 1/slices. 400 replicates leave each variance uncertain by 7 %; five times that is allowed."""
        report = zonal.variance(d=12, batch=[16, 64], slices=[8, 128], replicates=400, seed=1, threads=1)
        self.assertEqual(
            [(row.batch, row.slices) for row in report.rows], [(16, 8), (16, 128), (64, 8), (64, 128)]
        )
        for row in report.rows:
            self.assertLess(abs(row.exact / row.exact_closed_form - 1), 0.35)
            self.assertGreater(row.total, 0.65 * row.exact_closed_form)
        for few, many in (report.rows[:2], report.rows[2:]):
            self.assertLess(abs(few.projection / many.projection / 16 - 1), 0.5)

    @unittest.skipUnless(PROGRAM, "ZONAL_PROGRAM names no zonal to compare with")
    def test_program(self):
        """Other draws of the same numbers."""
        done = subprocess.run(
            [
                PROGRAM,
                "variance",
                "--dim",
                "12",
                "--batch",
                "64",
                "--slices",
                "8,128",
                "--replicates",
                "400",
                "--threads",
                "1",
                "--json",
                "--quiet",
            ],
            stdout=subprocess.PIPE,
            check=True,
        )
        want = json.loads(done.stdout)["batches"][0]
        found = zonal.variance(d=12, batch=64, slices=[8, 128], replicates=400, threads=1)
        self.assertAlmostEqual(found.rows[0].exact_closed_form / want["exact_closed_form"], 1, delta=1e-14)
        for row, other in zip(found.rows, want["susreg"]):
            self.assertLess(abs(row.total / other["variance"] - 1), 0.5)
            self.assertLess(abs(math.log(row.projection / other["projection_variance"])), 1.5)

    def test_repeatable_and_printed(self):
        once, twice = (zonal.variance(d=4, batch=8, slices=[2], replicates=3) for _ in range(2))
        self.assertEqual(once, twice)
        for two in (2, np.int64(2), np.array([2])):
            self.assertEqual(zonal.variance(d=4, batch=np.int64(8), slices=two, replicates=3), once)
        self.assertLessEqual(max(map(len, str(once).split("\n"))), 80)

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "must be positive and ascend"):
            zonal.variance(slices=[8, 8])
        with self.assertRaisesRegex(ValueError, "at least 2 replicates"):
            zonal.variance(replicates=1)
        for name in ("batch", "slices"):
            for wrong in ("8", 2.5, [2.5], None):
                with self.assertRaisesRegex(TypeError, name + " must be a whole number or a list of them"):
                    zonal.variance(**{name: wrong})


if __name__ == "__main__":
    unittest.main()
