"""The losses as citizens of PyTorch: autograd, autocast, torch.compile, state, and input that is refused."""
import copy
import io
import pickle
import threading
import unittest
import warnings

import plain
from torch_case import CUDA, Case, gradient, modern, rows, slow, torch
from zonal import _plans
from zonal.losses import KL, KSD, MMD, SIGReg, SUSReg, SphereJEPALoss, clear_plans

D = 6
ALL = [MMD, KSD, KL, lambda: MMD("band"), lambda: SUSReg(slices=16), lambda: SIGReg(slices=16)]


class Autograd(Case):
    def test_backward_multiplies_and_accumulates(self):
        z = rows(9, D)
        loss = MMD()
        (3 * loss(z)).backward()
        loss(z).backward()
        self.assert_close(z.grad, 4 * gradient(loss, z), 1e-14)

    def test_backward_twice_with_retain_graph(self):
        z = rows(9, D)
        value = MMD()(z)
        first = torch.autograd.grad(value, z, retain_graph=True)[0]
        self.assertTrue(torch.equal(first, torch.autograd.grad(value, z)[0]))

    def test_no_gradient_where_none_is_asked_for(self):
        loss = MMD()
        self.assertFalse(loss(rows(9, D, grad=False)).requires_grad)
        with torch.no_grad():
            self.assertFalse(loss(rows(9, D)).requires_grad)
        self.assertEqual(loss(rows(9, D, grad=False)).item(), loss(rows(9, D)).item())

    def test_inference_mode(self):
        with torch.inference_mode():
            self.assert_close(MMD()(rows(9, D, grad=False)), MMD()(rows(9, D)), 0)

    def test_through_a_network(self):
        """Against the plain statement, through a layer and a slice."""
        layer = torch.nn.Linear(4, D).double()
        x = rows(20, 4, grad=False)
        MMD()(layer(x)[::2]).backward()
        got = layer.weight.grad.clone()
        layer.weight.grad = None
        plain.mmd(layer(x)[::2], plain.heat(D, 5 / D)).backward()
        self.assert_close(got, layer.weight.grad, 1e-9)

    def test_strides(self):
        z = rows(9, D, grad=False)
        expected = MMD()(z).item()
        wide = torch.zeros(9, 2 * D, dtype=z.dtype)
        wide[:, ::2] = z
        for name, strided in (("transposed", z.T.contiguous().T), ("columns", wide[:, ::2]),
                              ("reversed", z.flip(0).flip(0)), ("expanded", z[None].expand(3, 9, D)[1])):
            with self.subTest(name):
                strided = strided.requires_grad_()
                self.assertEqual(MMD()(strided).item(), expected)
                self.assert_close(gradient(MMD(), strided), gradient(MMD(), rows(9, D)), 1e-14)

    def test_anomaly_mode(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autograd.detect_anomaly():
                MMD()(rows(9, D)).backward()

    def test_second_derivatives_are_refused(self):
        z = rows(9, D)
        first = torch.autograd.grad(MMD()(z), z, create_graph=True)[0]
        self.assert_close(first.detach(), gradient(MMD(), z), 1e-15)
        self.refused(NotImplementedError, "no second derivative", lambda: first.pow(2).sum().backward())
        self.refused(NotImplementedError, "no second derivative", torch.autograd.functional.hessian, MMD(), z)

    def test_forward_mode_is_refused(self):
        from torch.autograd import forward_ad

        z = rows(9, D, grad=False)
        for no_grad in (False, True):
            with forward_ad.dual_level(), torch.set_grad_enabled(not no_grad):
                dual = forward_ad.make_dual(z, torch.ones_like(z))
                self.refused(NotImplementedError, "no forward-mode", MMD(), dual)

    @modern
    def test_functional_transforms(self):
        z = rows(9, D, grad=False)
        expected = gradient(MMD(), rows(9, D))
        self.assertTrue(torch.equal(torch.func.grad(MMD())(z), expected))
        self.assertTrue(torch.equal(torch.func.jacrev(MMD())(z), expected))
        self.refused(NotImplementedError, "one batch at a time", torch.func.vmap(MMD()), z.expand(2, 9, D))
        self.refused(NotImplementedError, "forward-mode", torch.func.jacfwd(MMD()), z)
        self.refused(NotImplementedError, "second", torch.func.jacrev(torch.func.jacrev(MMD())), z)

    def test_autocast(self):
        layer = torch.nn.Linear(4, D)
        for made in ALL:
            with self.subTest(made().method), torch.autocast("cpu", dtype=torch.bfloat16):
                z = layer(torch.randn(9, 4))
                self.assertEqual(z.dtype, torch.bfloat16)
                value = made()(z)
                self.assertEqual(value.dtype, torch.float32)
                value.backward()
        self.assertTrue(bool(layer.weight.grad.isfinite().all()))


@modern
class Compiled(Case):
    """aot_eager goes all the way but for the code; the code itself, by inductor, is made in the slow run."""

    BACKEND = "aot_eager"

    def equal_to_eager(self, made, x, **options):
        torch._dynamo.reset()
        layer = torch.nn.Linear(4, D).double()
        eager, compiled = made(), made()

        def step(x):
            return 2 * compiled(layer(x))

        run = torch.compile(step, fullgraph=True, backend=self.BACKEND, **options)
        for _ in range(3):
            got = torch.autograd.grad(run(x), layer.weight)[0]
            expected = torch.autograd.grad(2 * eager(layer(x)), layer.weight)[0]
            self.assert_close(got, expected, 1e-14)
        return eager, compiled

    def test_every_loss(self):
        for made in ALL:
            with self.subTest(made().method):
                eager, compiled = self.equal_to_eager(made, rows(9, 4, grad=False))
                if hasattr(eager, "step"):
                    self.assertEqual(compiled.step, 3)

    def test_objective(self):
        for method in ("mmd-heat", "susreg"):
            with self.subTest(method):
                views = rows(3, 9, 4, grad=False)
                eager, compiled = self.equal_to_eager(lambda: SphereJEPALoss(method), views)
                for got, expected in zip(compiled.parts, eager.parts):
                    self.assert_close(got, expected, 1e-14)

    def test_no_graph_break_and_one_compilation(self):
        """The step of a sliced loss changes at each call and must not compile it anew."""
        torch._dynamo.reset()
        counter = torch._dynamo.testing.CompileCounterWithBackend(self.BACKEND)
        loss = torch.compile(SUSReg(slices=8), fullgraph=True, backend=counter)
        for _ in range(5):
            loss(rows(9, D)).backward()
        self.assertEqual(counter.frame_count, 1)

    def test_dynamic_shapes(self):
        torch._dynamo.reset()
        loss = torch.compile(MMD(), fullgraph=True, dynamic=True, backend=self.BACKEND)
        for n in (4, 9, 30):
            self.assertEqual(loss(rows(n, D)).item(), MMD()(rows(n, D)).item())

    def test_bad_rows(self):
        torch._dynamo.reset()
        loss = torch.compile(MMD(), fullgraph=True, backend=self.BACKEND)
        with self.assertRaisesRegex(ValueError, "row 0 is zero"):  # to which PyTorch may add where it was
            loss(torch.zeros(4, D))

    def test_opcheck(self):
        op = torch.ops.zonal.execute
        z = rows(9, D, grad=False)
        for name, arguments in (("plan", (z, None, "mmd-heat", "t=5/d", "", 0, 0, True)),
                                ("float", (z.float(), None, "kl-heat", "", "", 0, 0, True)),
                                ("value alone", (z, None, "mmd-heat", "", "", 1, 0, False)),
                                ("with a step", (z, torch.tensor(3), "susreg", "slices=8", "", 0, 0, True)),
                                ("transposed", (z.T.contiguous().T, None, "mmd-heat", "", "", 0, 0, True)),
                                ("views", (rows(2, 9, D, grad=False), None, "mmd-heat", "", "", 0, 2, True))):
            with self.subTest(name):
                torch.library.opcheck(op, arguments)

    def test_export(self):
        program = torch.export.export(MMD(), (rows(9, D, grad=False),))
        z = rows(9, D, seed=1, grad=False)
        self.assertEqual(program.module()(z).item(), MMD()(z).item())


@slow
class CompiledByInductor(Compiled):
    BACKEND = "inductor"


class State(Case):
    def copies(self, loss):
        stream = io.BytesIO()
        torch.save(loss.state_dict(), stream)
        stream.seek(0)
        other = copy.deepcopy(loss)
        other.load_state_dict(torch.load(stream))
        return copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), other

    def test_copies_go_on_alike(self):
        z = rows(9, D)
        for made in ALL:
            loss = made()
            loss(z)
            with self.subTest(loss.method):
                copies = self.copies(loss)
                expected = loss(z).item()
                for other in copies:
                    self.assertEqual(other(z).item(), expected)

    def test_objective(self):
        z = rows(2, 9, D)
        loss = SphereJEPALoss("susreg", slices=8)
        loss(z)
        copies = self.copies(loss)
        expected = loss(z).item()
        for other in copies:
            self.assertEqual(other(z).item(), expected)

    def test_steps_are_saved(self):
        loss, other = SUSReg(slices=8), SUSReg(slices=8)
        for _ in range(4):
            loss(rows(9, D))
        other.load_state_dict(loss.state_dict())
        self.assertEqual(other.step, 4)
        self.assertEqual(loss.to(torch.float16).step, 4)

    def test_exact_losses_have_no_state(self):
        self.assertEqual(len(MMD().state_dict()), 0)
        self.assertEqual(list(MMD().parameters()), [])


class Pool(Case):
    def test_it_is_bounded(self):
        for n in range(3, 3 + 2 * _plans.pool.limit):
            MMD()(rows(n, D))
        self.assertTrue(_plans.pool._count <= _plans.pool.limit)
        self.assertEqual(_plans.pool._count, sum(map(len, _plans.pool._idle.values())))

    def test_a_plan_is_used_again(self):
        clear_plans()
        for _ in range(5):
            MMD()(rows(9, D))
        self.assertEqual(_plans.pool._count, 1)

    def test_a_failure_gives_the_plan_back(self):
        clear_plans()
        self.assertRaises(ValueError, MMD(), torch.zeros(9, D))
        self.assertEqual(_plans.pool._count, 1)
        self.assertEqual(MMD()(rows(9, D, dtype=torch.float32)).dtype, torch.float32)

    def test_check_leaves_the_plans_where_they_are(self):
        clear_plans()
        loss = MMD()
        loss(rows(9, D))
        KL()(rows(9, D))
        loss.check()
        self.assertEqual(_plans.pool._count, 2)
        self.assertEqual(sum(map(len, _plans.pool._idle.values())), 2)

    def test_threads(self):
        """One loss in eight threads at once: every value is right."""
        loss = MMD()
        batches = [rows(150, 16, seed=seed) for seed in range(8)]
        expected = [(loss(z).item(), gradient(loss, z)) for z in batches]
        wrong = []

        def work(z, value, derivative):
            for _ in range(20):
                if loss(z).item() != value or not torch.equal(gradient(loss, z), derivative):
                    wrong.append(value)

        threads = [threading.Thread(target=work, args=(z, *pair)) for z, pair in zip(batches, expected)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class BadInput(Case):
    def test_rows(self):
        nan = rows(9, D, grad=False)
        nan[4, 2] = float("nan")
        infinite = rows(9, D, grad=False)
        infinite[3, 1] = float("inf")
        zero = rows(9, D, grad=False)
        zero[7] = 0
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            for loss in (MMD(), KL(), MMD("band")):
                with self.subTest(loss.method, dtype=dtype):
                    self.refused(ValueError, "row 4 holds a number that is not", loss, nan.to(dtype))
                    self.refused(ValueError, "row 3 holds a number that is not", loss, infinite.to(dtype))
                    self.refused(ValueError, "row 7 is zero", loss, zero.to(dtype))

    def test_shapes(self):
        loss = MMD()
        for shape in ((), (9,), (2, 9, D)):
            self.refused(ValueError, r"takes a tensor \[B, d\]", loss, torch.zeros(shape))
        for shape in ((), (9,), (9, D), (2, 2, 9, D)):
            self.refused(ValueError, r"takes a tensor \[V, B, d\]", SphereJEPALoss(), torch.zeros(shape))
        for shape in ((0, D), (1, D)):
            self.refused(ValueError, "at least 2 rows", loss, torch.ones(shape))
        self.refused(ValueError, "at least 3", KL(), torch.ones(2, D))
        for shape in ((9, 0), (9, 1), (9, 4097)):
            self.refused(ValueError, "dim", loss, torch.ones(shape))
        self.refused(ValueError, "at least 1 view", SphereJEPALoss(), torch.ones(0, 9, D))

    def test_types(self):
        loss = MMD()
        for other in (None, 3, [1.0], "x", rows(9, D).detach().numpy()):
            self.refused(TypeError, "takes a tensor", loss, other)
        for dtype in (torch.int64, torch.bool, torch.complex64, torch.uint8):
            self.refused(TypeError, "floating point", loss, torch.ones(9, D).to(dtype))
        self.refused(TypeError, "dense", loss, torch.ones(9, D).to_sparse())
        self.refused(ValueError, "precision", MMD(precision="tf32"), torch.ones(9, D))
        self.refused(ValueError, "precision", MMD(precision="double"), torch.ones(9, D))
        self.refused(ValueError, "precision", MMD(precision="fp32"), rows(9, D))

    def test_views(self):
        loss = SphereJEPALoss()
        self.refused(TypeError, "list of tensors", loss, [])
        self.refused(TypeError, "list of tensors", loss, [1, 2])
        self.refused(ValueError, "one shape", loss, [torch.ones(9, D), torch.ones(8, D)])
        self.refused(ValueError, "one dtype", loss, [torch.ones(9, D), rows(9, D)])
        self.refused(ValueError, "one device", loss, [torch.ones(9, D), torch.ones(9, D, device="meta")])

    @unittest.skipIf(CUDA, "asks what is said where there is no GPU")
    def test_other_devices(self):
        if torch.library and hasattr(torch.library, "register_fake"):
            self.assertEqual(MMD()(torch.ones(9, D, device="meta")).device.type, "meta")
        else:
            self.refused(ValueError, "CPU or on CUDA", MMD(), torch.ones(9, D, device="meta"))


if __name__ == "__main__":
    unittest.main()
