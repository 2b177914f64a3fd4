"""The losses against a plain re-statement of their formulas, by differences, and at known points."""
import math

import numpy as np
import plain
from torch_case import Case, gradient, rows, torch
from zonal import _library
from zonal.losses import KL, KSD, MMD, SIGReg, SUSReg, SphereJEPALoss, option_help

# name, module, the same in plain PyTorch for rows of dimension d
D = 6
PAIRS = [
    ("mmd-heat", MMD(), lambda z: plain.mmd(z, plain.heat(D, 5 / D))),
    ("mmd-heat t", MMD(t=0.3), lambda z: plain.mmd(z, plain.heat(D, 0.3))),
    ("mmd-heat t/d", MMD("heat", t="3/d"), lambda z: plain.mmd(z, plain.heat(D, 3 / D))),
    ("mmd-heat other reading", MMD(without_multiplicity=True),
     lambda z: plain.mmd(z, plain.heat(D, 5 / D, with_multiplicity=False))),
    ("mmd-heat u", MMD(estimator="u"), lambda z: plain.u_statistic(z, plain.heat(D, 5 / D))),
    ("mmd-heat raw", MMD(raw=True),
     lambda z: plain.mmd(z, plain.heat(D, 5 / D)) * (1 - plain.heat(D, 5 / D)[0])),
    ("mmd-band", MMD("band"), lambda z: plain.mmd(z, plain.band(D, 2))),
    ("mmd-band 4", MMD("band", band=4), lambda z: plain.mmd(z, plain.band(D, 4))),
    ("mmd-band by pairs", MMD("band", implementation="pairs"), lambda z: plain.mmd(z, plain.band(D, 2))),
    ("mmd-induced", MMD("induced"), lambda z: plain.mmd_of(z, lambda c: plain.induced(c, D, D))),
    ("mmd-induced scale", MMD("induced", scale=1),
     lambda z: plain.mmd_of(z, lambda c: plain.induced(c, D, 1))),
    ("mmd-poisson", MMD("poisson", r=0.25), lambda z: plain.mmd_of(z, lambda c: plain.poisson(c, D, 0.25))),
    ("mmd-spectrum", MMD("spectrum", spectrum=[1, 0.5, 0.25]),
     lambda z: plain.mmd(z, plain.normalised([1, 0.5, 0.25], D))),
    ("ksd-heat", KSD(), lambda z: plain.ksd(z, plain.heat(D, 5 / D))),
    ("ksd-band", KSD("band", band=3), lambda z: plain.ksd(z, plain.band(D, 3))),
    ("kl-heat", KL(), lambda z: plain.kl(z, plain.heat(D, 2 / D))),
    ("kl-heat t", KL(t=0.5), lambda z: plain.kl(z, plain.heat(D, 0.5))),
    ("susreg", SUSReg(slices=40).eval(), lambda z: plain.susreg(z, 40)),
    ("susreg seed", SUSReg(slices=40, seed=2**40 + 5).eval(), lambda z: plain.susreg(z, 40, seed=2**40 + 5)),
    ("sigreg", SIGReg(slices=40).eval(), lambda z: plain.sigreg(z, 40)),
]


class Formulas(Case):
    def test_double(self):
        """The library states 1e-12 and 1e-11; the plain series in double, and KL's logarithm, have 1e-10."""
        for name, loss, stated in PAIRS:
            for n in (3, 17):
                with self.subTest(name, n=n):
                    z = rows(n, D)
                    self.assert_close(loss(z), stated(z), 1e-10)
                    self.assert_close(gradient(loss, z), gradient(stated, z), 1e-9)

    def test_float(self):
        """Stated: 2e-6 D + 2e-11 and 1e-5 of the gradient's norm, KL 2e-6 (1 + |mean log p|/C)."""
        for name, loss, stated in PAIRS:
            with self.subTest(name):
                z = rows(50, D, dtype=torch.float32)
                exact = rows(50, D, dtype=torch.float32).detach().double().requires_grad_()
                value = loss(z)
                self.assertEqual(value.dtype, torch.float32)
                self.assert_close(value, stated(exact), 2.1e-6, 2e-6 if name.startswith("kl") else 1e-7)
                self.assert_close(gradient(loss, z), gradient(stated, exact), 1e-5)

    def test_half(self):
        """bfloat16 and float16 are read exactly, computed in float32, and the gradient is rounded back."""
        for dtype, rounding in ((torch.bfloat16, 2**-8), (torch.float16, 2**-11)):
            for name, loss, stated in PAIRS[:1] + PAIRS[-1:]:
                with self.subTest(name, dtype=dtype):
                    z = rows(50, D, dtype=dtype)
                    exact = z.detach().double().requires_grad_()
                    value = loss(z)
                    self.assertEqual(value.dtype, torch.float32)
                    self.assert_close(value, stated(exact), 2.1e-6, 1e-7)
                    got = gradient(loss, z)
                    self.assertEqual(got.dtype, dtype)
                    self.assert_close(got, gradient(stated, exact), rounding)

    def test_a_large_dimension(self):
        """d = 256, where KL's kernel spans 35 decades: rows on which the plain series is still exact."""
        z = rows(12, 256, grad=False) * 0.05 + 1
        z.requires_grad_()
        for loss, stated in ((MMD(), lambda z: plain.mmd(z, plain.heat(256, 5 / 256))),
                             (KL(), lambda z: plain.kl(z, plain.heat(256, 2 / 256)))):
            with self.subTest(loss.method):
                self.assert_close(loss(z), stated(z), 1e-9)
                self.assert_close(gradient(loss, z), gradient(stated, z), 1e-8)

    def test_gradcheck(self):
        for name, loss, _ in PAIRS:
            with self.subTest(name):
                self.assertTrue(torch.autograd.gradcheck(loss, rows(5, D)))


class KnownPoints(Case):
    def test_collapse_is_one(self):
        for loss in (MMD(), MMD("band"), MMD("induced"), KSD(), KL()):
            for dtype in (torch.float64, torch.float32):
                with self.subTest(loss.method, dtype=dtype):
                    self.assert_close(loss(torch.ones(7, 10, dtype=dtype)), 1.0, 2e-6)

    def test_orthonormal_rows(self):
        """m = 1/d and M = I/d: D = b_1/d; b_1 is d : d + (d-1)(d+2)/2 under band(2)."""
        d = 16
        value = MMD("band")(torch.eye(d, dtype=torch.float64))
        self.assert_close(value, 1 / (d + (d - 1) * (d + 2) / 2), 1e-12)

    def test_lengths_and_rotations_do_not_matter(self):
        z = rows(20, D, grad=False)
        rotation = torch.linalg.qr(rows(D, D, seed=1, grad=False))[0]
        for loss in (MMD(), KSD(), KL(), MMD("band")):
            with self.subTest(loss.method):
                self.assert_close(loss(z * torch.linspace(1, 9, 20)[:, None]), loss(z), 1e-12)
                self.assert_close(loss(z @ rotation), loss(z), 1e-11)

    def test_the_same_bits_every_time_and_on_any_number_of_threads(self):
        z = rows(300, 32, dtype=torch.float32)
        for method in ("mmd-heat", "kl-heat", "susreg"):
            kind, _, kernel = method.partition("-")
            made = {"mmd": MMD, "kl": KL}.get(kind)
            results = []
            for threads in (1, 2, 3):
                loss = made(kernel, threads=threads) if made else SUSReg(threads=threads).eval()
                results.append((loss(z).item(), gradient(loss, z)))
            for value, derivative in results[1:]:
                self.assertEqual(value, results[0][0])
                self.assertTrue(torch.equal(derivative, results[0][1]))

    def test_sliced_losses_tend_to_the_induced_kernel(self):
        """One draw of 4096 slices scatters by about 1 %; [-8, 8] with 65 knots makes the quadrature exact."""
        z = rows(30, D)
        many = SUSReg(slices=4096, knots=65, range=(-8, 8)).eval()
        self.assert_close(many(z), MMD("induced")(z), 0.03)


class Objectives(Case):
    METHODS = [
        ("mmd-heat", 0.05, lambda z: plain.mmd(z, plain.heat(D, 5 / D)), None),
        ("ksd-band", 0.2, lambda z: plain.ksd(z, plain.band(D, 2)), None),
        ("kl-heat", 0.5, lambda z: plain.kl(z, plain.heat(D, 2 / D)), None),
        ("susreg", 0.05, lambda z: plain.susreg(z, 30), None),
        ("sigreg", 0.05, lambda z: plain.sigreg(z, 30), 1.0),
    ]

    def loss(self, method, **options):
        if method in ("susreg", "sigreg"):
            options["slices"] = 30
        return SphereJEPALoss(method, **options).eval()

    def test_formula(self):
        for method, lam, discrepancy, gain in self.METHODS:
            for views, global_views in ((2, 2), (4, 2), (3, 1)):
                with self.subTest(method, views=views, global_views=global_views):
                    loss = self.loss(method, lam=lam, global_views=global_views)
                    z = rows(views, 9, D)
                    value, derivative = loss(z), gradient(loss, z)
                    parts = loss.parts
                    if gain is not None:
                        self.assertEqual(parts.gain.item(), gain)

                    def stated(z):
                        return plain.objective(z, discrepancy, lam, parts.gain.item(), global_views,
                                               method != "sigreg")

                    self.assert_close(value, stated(z), 1e-10)
                    self.assert_close(derivative, gradient(stated, z), 1e-9)
                    self.assert_close(parts.total, value.detach(), 1e-15)
                    alignment = plain.invariance(z, global_views, method != "sigreg")
                    self.assert_close(parts.invariance, alignment, 1e-12)
                    self.assert_close(parts.discrepancy, sum(map(discrepancy, z)) / views, 1e-10)

    def test_gradcheck(self):
        for method, lam, _, _ in self.METHODS:
            with self.subTest(method):
                self.assertTrue(torch.autograd.gradcheck(self.loss(method, lam=lam), rows(3, 4, D)))

    def test_defaults(self):
        """lambda is .05, for KL .5; the gain has a selectivity of 10, band kernels' of 10 d/256, or is 1.15 times the threshold."""
        z = rows(2, 9, 64)
        for method, selectivity in (("mmd-heat", 10), ("mmd-band", 10 * 64 / 256)):
            loss, same = SphereJEPALoss(method), SphereJEPALoss(method, lam=0.05, selectivity=selectivity)
            self.assert_close(same(z), loss(z), 1e-12)
        loss = SphereJEPALoss("kl-heat")
        self.assert_close(loss(z), plain.objective(z, lambda x: plain.kl(x, plain.heat(64, 2 / 64)), 0.5,
                                                   loss.parts.gain.item(), 2), 1e-10)
        self.assert_close(loss.parts.margin, 1.15, 1e-12)

    def test_threshold(self):
        """f* = (1-lambda) K/(lambda psi'(1)), K = 1 - 1/V; psi'(1) = sum b_l L_l/(d-1)."""
        loss = SphereJEPALoss("mmd-band", lam=0.1, margin=3)
        loss(rows(2, 9, D))
        a = plain.band(D, 2)
        derivative = sum(x * plain.eigenvalue(l, D) for l, x in enumerate(a)) / (1 - a[0]) / (D - 1)
        threshold = 0.9 * 0.5 / (0.1 * derivative)
        self.assert_close(loss.parts.threshold, threshold, 1e-12)
        self.assert_close(loss.parts.gain, 3 * threshold, 1e-12)
        self.assert_close(loss.parts.margin, 3.0, 1e-12)

    def test_gains(self):
        z = rows(2, 9, D)
        for gain, expected in (("unit", 1), ("batch", 9), (2.5, 2.5)):
            with self.subTest(gain=gain):
                loss = SphereJEPALoss("mmd-heat", gain=gain)
                loss(z)
                self.assertEqual(loss.parts.gain.item(), expected)
        loss = SphereJEPALoss("mmd-heat", selectivity=15)
        loss(z)
        self.assertTrue(loss.parts.gain.item() > 0)

    def test_a_list_of_views(self):
        z = rows(4, 9, D)
        loss = SphereJEPALoss()
        separate = [view.detach().clone().requires_grad_() for view in z]
        value = loss(separate)
        self.assertEqual(value.item(), loss(z).item())
        for got, expected in zip(torch.autograd.grad(value, separate), gradient(loss, z)):
            self.assertTrue(torch.equal(got, expected))

    def test_parts_before_a_call(self):
        self.refused(RuntimeError, "there has been none", lambda: SphereJEPALoss().parts)


class Steps(Case):
    def test_each_training_step_draws_anew(self):
        z = rows(9, D)
        for made, stated in ((SUSReg, plain.susreg), (SIGReg, plain.sigreg)):
            loss = made(slices=20, seed=3)
            for step in range(3):
                with self.subTest(loss.method, step=step):
                    self.assertEqual(loss.step, step)
                    self.assert_close(loss(z), stated(z, 20, step=step, seed=3), 1e-10)
            loss.eval()
            self.assertEqual(loss(z).item(), loss(z).item())
            self.assertEqual(loss.step, 3)

    def test_the_step_can_be_set_and_wraps(self):
        loss = SUSReg(slices=20)
        loss.step = 7
        z = rows(9, D)
        self.assert_close(loss(z), plain.susreg(z, 20, step=7), 1e-10)
        loss.step = 2**32 + 1
        self.assert_close(loss(z), plain.susreg(z, 20, step=1), 1e-10)

    def test_objective(self):
        loss = SphereJEPALoss("susreg", slices=20)
        z = rows(2, 9, D)
        self.assertNotEqual(loss(z).item(), loss(z).item())
        self.assertEqual(loss.step, 2)


class Options(Case):
    def test_every_option_of_the_library_is_a_keyword(self):
        for name in _library.names("zonal_loss_option_name"):
            if name not in ("device", "dtype"):
                self.assertIn(name.replace("-", "_"), option_help())
        values = {"kl_norm": "paper", "without_multiplicity": True, "estimator": "v", "t": 0.4, "raw": False,
                  "unit": False, "implementation": "ref", "threads": 1, "precision": "double"}
        loss = KL(**values)
        z = rows(9, 30)
        self.assertTrue(math.isfinite(loss(z).item()))
        sliced = SUSReg(slices=9, knots=33, range=(0, 3), times_n=True, collapse_norm=False, seed=4, scale=2)
        self.assertTrue(math.isfinite(sliced(z).item()))

    def test_options_may_be_arrays(self):
        z = rows(9, D)
        for weights in (np.array([0, 1, 0.5]), torch.tensor([0, 1, 0.5]), np.array([0, 2, 1], np.int32)):
            listed = MMD("spectrum", spectrum=[0, 1, 0.5])
            self.assert_close(MMD("spectrum", spectrum=weights)(z), listed(z), 1e-14)
        self.assert_close(MMD(t=np.float32(0.5))(z), MMD(t=0.5)(z), 1e-14)
        self.assert_close(MMD(t=torch.tensor(0.5))(z), MMD(t=0.5)(z), 1e-14)
        self.assertEqual(repr(MMD(unit=np.bool_(False))), "MMD(mmd-heat, unit=no)")
        self.refused(TypeError, "spectrum must be a number or a text, got list", MMD, "spectrum",
                     spectrum=np.ones((2, 2)))
        self.refused(ValueError, r"needs the option spectrum .*: 2 to 4096 weights", MMD, "spectrum")

    def test_unit_rows(self):
        z = torch.nn.functional.normalize(rows(9, D, grad=False))
        self.assert_close(MMD(unit=True)(z), MMD()(z), 1e-12)
        self.refused(ValueError, "unit", MMD(unit=True), 2 * z)

    def test_refused(self):
        z = rows(9, D)
        self.refused(TypeError, "no option 'tt'", MMD, tt=3)
        self.refused(TypeError, "it is that of the rows", MMD, device="cpu")
        self.refused(TypeError, "it is that of the rows", MMD, dtype="fp32")
        self.refused(ValueError, "did you mean 'mmd-heat'", MMD, "het")
        self.refused(ValueError, "unknown method", SphereJEPALoss, "mse")
        self.refused(ValueError, "precision must be", MMD, precision="half")
        self.refused(TypeError, "threads must be a whole number", MMD, threads="two")
        self.refused(ValueError, "threads must be between 0 and 4096, got -1", MMD, threads=-1)
        self.refused(TypeError, "global_views must be a whole number", SphereJEPALoss, global_views=1.5)
        self.refused(ValueError, "t must be", MMD, t=-1)
        self.refused(ValueError, "t must be", MMD, t=float("nan"))
        self.refused(ValueError, "a number over the dimension such as 5/d", MMD, t="5d")
        self.refused(ValueError, "must be a value", MMD, t="5/d,dtype=double")
        self.refused(TypeError, "t must be a number or a text", MMD, t=object())
        self.refused(ValueError, "no use for r", MMD, r=0.3)
        self.refused(ValueError, "slices must be between", SUSReg, slices=0)
        self.refused(ValueError, "slices must be between", SUSReg, slices=2**40)
        self.refused(ValueError, "chordal", MMD("chordal"), z)
        self.refused(ValueError, "lambda", SphereJEPALoss, lam=2)
        self.refused(ValueError, "gain", SphereJEPALoss, gain=-1)
        self.refused(ValueError, "gain, if not auto, batch or unit", SphereJEPALoss, gain="bath")
        self.refused(ValueError, "give one of them", SphereJEPALoss, gain=5, margin=2)
        self.refused(ValueError, "no use for band", SphereJEPALoss, band=3)
        self.refused(ValueError, "must be a whole number", MMD, "band", band=1.5)
        for method in (None, 3):
            self.refused(TypeError, "method must be a text", SphereJEPALoss, method)
        self.refused(ValueError, "global", SphereJEPALoss(global_views=3), rows(2, 9, D))
        self.refused(ValueError, "global_views must be at least 1", SphereJEPALoss, global_views=0)
        self.refused(ValueError, "two or more views", SphereJEPALoss(), [rows(9, D)])
        self.refused(ValueError, "band is negative at some cosines", KL, "band")
        self.refused(ValueError, "chordal is 0 at c = -1", KL, "chordal")

    def test_what_some_dimension_allows_is_not_refused_before_it_is_known(self):
        """A heat kernel is flat from some dimension on, and 1 + 0.4 d c is a positive one at d = 2 alone."""
        for loss, sentence in (
            (KL(t=8), "the kernel is flat; choose t at most"),
            (KL("spectrum", spectrum=[1, 0.4]), "this one is not at c = -"),
        ):
            self.assertTrue(math.isfinite(loss(rows(9, 2)).item()))
            self.refused(ValueError, sentence, loss, rows(9, 64))
        KL(t=100), SUSReg(slices=2**24), SphereJEPALoss(global_views=10**6)

    def test_chordal_has_a_value(self):
        value = MMD("chordal")(rows(9, D, grad=False))
        self.assertTrue(0 < value.item() < 1)

    def test_repr(self):
        self.assertEqual(repr(MMD(t="5/d", threads=2)), "MMD(mmd-heat, t=5/d)")
        self.assertEqual(repr(SphereJEPALoss(lam=0.1)), "SphereJEPALoss(mmd-heat, lambda=0.1,gain=auto)")


if __name__ == "__main__":
    import unittest

    unittest.main()
