"""The losses on a GPU: the same numbers as plain PyTorch in float64 on the CPU, on any stream, in CUDA
graphs, under torch.compile, and without waiting for the device. Run by `make gpu-check`."""
import os
import threading
import unittest

import plain
from torch_case import Case, gradient, rows, torch
from zonal import _library, _plans
from zonal.losses import KL, KSD, MMD, SIGReg, SUSReg, SphereJEPALoss

D = 8
HEAT = plain.heat(D, 5 / D)
LOSSES = [
    (MMD(), lambda z: plain.mmd(z, HEAT)),
    (MMD("band"), lambda z: plain.mmd(z, plain.band(D, 2))),
    (MMD("induced"), lambda z: plain.mmd_of(z, lambda c: plain.induced(c, D, D))),
    (KSD(), lambda z: plain.ksd(z, HEAT)),
    (KL(), lambda z: plain.kl(z, plain.heat(D, 2 / D))),
    (SUSReg(slices=40).eval(), lambda z: plain.susreg(z, 40)),
    (SIGReg(slices=40).eval(), lambda z: plain.sigreg(z, 40)),
]


def missing():
    if not torch.cuda.is_available():
        return "PyTorch sees no GPU"
    reason = _library.lib.zonal_device_missing(b"cuda")
    return reason and reason.decode()


def setUpModule():
    reason = missing()
    if reason and os.environ.get("ZONAL_REQUIRE_GPU"):
        raise AssertionError(f"ZONAL_REQUIRE_GPU is set, but {reason}")
    if reason:
        raise unittest.SkipTest(reason)


def on_gpu(*shape, dtype=torch.float32, **options):
    return rows(*shape, dtype=dtype, device="cuda", **options)


def exact(z):
    """The same rows for plain PyTorch."""
    return z.detach().cpu().double().requires_grad_()


class Numbers(Case):
    def test_float(self):
        """Stated: 2e-6 D (KL: 2e-6 (1 + ...)), 1e-5 of the gradient's norm. Batches on both sides of what one
        launch serves."""
        for loss, stated in LOSSES:
            # Plain PyTorch takes 400 nodes for each pair of rows under the induced kernel.
            for n in (9, 300) if loss.method == "mmd-induced" else (9, 300, 1500):
                with self.subTest(loss.method, n=n):
                    z = on_gpu(n, D)
                    value = loss(z)
                    self.assertEqual((value.dtype, value.device), (torch.float32, z.device))
                    least = 2e-6 if loss.method == "kl-heat" else 1e-7
                    self.assert_close(value, stated(exact(z)), 2.1e-6, least)
                    self.assert_close(gradient(loss, z), gradient(stated, exact(z)), 1e-5)

    def test_half(self):
        """bfloat16 is read and written by the kernels, float16 by PyTorch; both round the gradient alone."""
        for dtype, rounding in ((torch.bfloat16, 2**-8), (torch.float16, 2**-11)):
            for loss, stated in LOSSES:
                with self.subTest(loss.method, dtype=dtype):
                    z = on_gpu(50, D, dtype=dtype)
                    value = loss(z)
                    self.assertEqual(value.dtype, torch.float32)
                    self.assert_close(value, stated(exact(z)), 2.1e-6, 2e-6)
                    got = gradient(loss, z)
                    self.assertEqual(got.dtype, dtype)
                    self.assert_close(got, gradient(stated, exact(z)), rounding)

    def test_faster_precisions(self):
        """tf32 keeps 11 bits of a cosine, bf16 8: the value of a batch of which nothing cancels."""
        z = on_gpu(500, D)
        for precision, tolerance in (("tf32", 2e-3), ("bf16", 2e-2)):
            with self.subTest(precision):
                self.assert_close(MMD(precision=precision)(z), LOSSES[0][1](exact(z)), tolerance)

    def test_objective(self):
        for method, discrepancy in (("mmd-heat", LOSSES[0][1]), ("kl-heat", LOSSES[4][1])):
            with self.subTest(method):
                loss = SphereJEPALoss(method, lam=0.1)
                z = on_gpu(4, 60, D)
                value, derivative = loss(z), gradient(loss, z)
                gain = loss.parts.gain.item()

                def stated(z):
                    return plain.objective(z, discrepancy, 0.1, gain, 2)

                self.assert_close(value, stated(exact(z)), 1e-5)
                self.assert_close(derivative, gradient(stated, exact(z)), 2e-5)
                self.assert_close(loss.parts.invariance, plain.invariance(exact(z), 2), 1e-6)
                self.assertEqual(loss.parts.margin.device, z.device)

    def test_float64_is_refused(self):
        self.refused(TypeError, "float64 on the CPU alone", MMD(), on_gpu(9, D, dtype=torch.float64))

    def test_strides(self):
        z = on_gpu(50, D, grad=False)
        self.assertEqual(MMD()(z.T.contiguous().T).item(), MMD()(z).item())

    def test_gradients_do_not_underflow_in_float16(self):
        """At B = 8192 an element is 1e-8 or so, below float16's smallest: a GradScaler must still save it."""
        z = on_gpu(8192, D, dtype=torch.float16)
        (65536 * MMD()(z)).backward()
        expected = gradient(lambda z: MMD()(z), z.detach().float().requires_grad_())
        self.assert_close(z.grad.double() / 65536, expected, 2**-10)

    def test_autocast(self):
        layer = torch.nn.Linear(4, D).cuda()
        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(dtype=dtype), torch.autocast("cuda", dtype=dtype):
                value = MMD()(layer(torch.randn(50, 4, device="cuda")))
                self.assertEqual(value.dtype, torch.float32)
                value.backward()
        self.assertTrue(bool(layer.weight.grad.isfinite().all()))

    def test_the_last_gpu(self):
        device = f"cuda:{torch.cuda.device_count() - 1}"
        z = rows(50, D, dtype=torch.float32, device=device)
        self.assert_close(MMD()(z), LOSSES[0][1](exact(z)), 2.1e-6)
        self.assertEqual(gradient(MMD(), z).device, z.device)


class Streams(Case):
    def test_nothing_waits(self):
        """PyTorch's own check: an operation that waits for the GPU is an error."""
        z, views = on_gpu(300, D), on_gpu(2, 300, D)
        losses = [MMD(), KL(), SUSReg(slices=40)]
        objective = SphereJEPALoss()
        for loss in losses:
            loss(z)
        objective(views)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for loss in losses:
                loss(z).backward()
            objective(views).backward()
            objective.parts
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_a_stream_of_the_callers(self):
        """The rows are written on the stream just before: on another stream the old ones would be read."""
        loss, expected = MMD(), MMD()(on_gpu(1500, 64, grad=False)).item()
        fresh = on_gpu(1500, 64, grad=False)
        stream = torch.cuda.Stream()
        z = torch.ones_like(fresh)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            z.copy_(fresh)
            value = loss(z)
        stream.synchronize()
        self.assertEqual(value.item(), expected)

    def test_threads_with_streams_of_their_own(self):
        loss = KL()
        batches = [on_gpu(700, 32, seed=seed, grad=False) for seed in range(6)]
        expected = [loss(z).item() for z in batches]
        wrong = []

        def work(z, value):
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(30):
                    if loss(z).item() != value:
                        wrong.append(value)

        threads = [threading.Thread(target=work, args=pair) for pair in zip(batches, expected)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_bad_rows(self):
        """NaN at once, and the reason when it is asked for; then all is well again."""
        loss = MMD("heat", t=0.77)  # settings of its own: check() is for all losses that share them
        z = on_gpu(50, D, grad=False)
        for spoil, words in ((float("nan"), "row 31 is not finite"), (0.0, "row 31 is zero")):
            with self.subTest(words):
                bad = z.clone()
                bad[31] = spoil
                self.assertTrue(bool(loss(bad).isnan()))
                self.refused(ValueError, words, loss.check)
                loss.check()
                self.assertFalse(bool(loss(z).isnan()))
                loss.check()


class Graphs(Case):
    def warmed_up(self, loss, z):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                torch.autograd.grad(loss(z), z)
        torch.cuda.current_stream().wait_stream(side)

    def test_replays_give_the_same_bits(self):
        for loss in (MMD(), MMD("band"), KL(), SUSReg(slices=40).eval(), SphereJEPALoss()):
            with self.subTest(loss.method, kind=type(loss).__name__):
                shape = (2, 300, D) if isinstance(loss, SphereJEPALoss) else (300, D)
                z = on_gpu(*shape)
                self.warmed_up(loss, z)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    value = loss(z)
                    (derivative,) = torch.autograd.grad(value, z)
                for seed in (1, 2):
                    with torch.no_grad():
                        z.copy_(on_gpu(*shape, seed=seed, grad=False))
                    graph.replay()
                    other = z.detach().clone().requires_grad_()
                    self.assertEqual(value.item(), loss(other).item())
                    self.assertTrue(torch.equal(derivative, gradient(loss, other)))

    def test_twice_in_one_graph(self):
        z = on_gpu(300, D)
        loss = MMD()
        self.warmed_up(loss, z)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), torch.no_grad():
            both = loss(z), loss(2 * z)
        graph.replay()
        self.assertEqual(both[0].item(), loss(z).item())
        self.assert_close(both[1], both[0], 1e-6)

    def test_without_a_warm_up(self):
        _plans.pool.clear()
        z = on_gpu(77, D, grad=False)
        loss = MMD("heat", t=0.51)
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            z.add(1)  # an empty graph is a warning
            self.refused(RuntimeError, "call it once with this shape", loss, z)
        self.assertTrue(bool(loss(z).isfinite()))

    def test_sliced_losses_in_training_mode(self):
        """Each replay draws the directions that a call would, and counts."""
        z, views = on_gpu(77, D, grad=False), on_gpu(2, 77, D, grad=False)
        for make, rows in ((lambda: SUSReg(slices=40), z), (lambda: SIGReg(slices=40), z),
                           (lambda: SphereJEPALoss("susreg", slices=40), views)):
            plain, loss = make(), make()
            expected = [plain(rows).item() for _ in range(5)]
            self.assertEqual(len(set(expected)), 5)
            got = [loss(rows).item()]
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                value = loss(rows)
            for _ in range(4):
                graph.replay()
                got.append(value.item())
            self.assertEqual(got, expected)
            self.assertEqual(loss.step, 5)
        loss = SUSReg(slices=40)
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            z.add(1)
            self.refused(RuntimeError, "call the loss once with this shape", loss, z)

    def test_bad_rows_in_a_replay(self):
        loss = MMD("heat", t=0.78)
        z = on_gpu(300, D)
        self.warmed_up(loss, z)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), torch.no_grad():
            value = loss(z)
        with torch.no_grad():
            z[5] = 0
        graph.replay()
        self.assertTrue(bool(value.isnan()))
        self.refused(ValueError, "row 5 is zero", loss.check)


class Compiled(Case):
    def equal_to_eager(self, made, *shape, **options):
        torch._dynamo.reset()
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, D).cuda()
        eager, compiled = made(), made()
        run = torch.compile(lambda x: compiled(layer(x)), fullgraph=True, **options)
        for seed in range(4):
            x = on_gpu(*shape, 4, seed=seed, grad=False)
            got = torch.autograd.grad(run(x), layer.weight)[0].clone()
            expected = torch.autograd.grad(eager(layer(x)), layer.weight)[0]
            self.assert_close(got, expected, 1e-5)  # inductor may round the layer's products otherwise

    def test_every_loss(self):
        for made in (MMD, KL, lambda: MMD("band"), lambda: SUSReg(slices=40)):
            with self.subTest(made().method):
                self.equal_to_eager(made, 300)

    def test_objective(self):
        self.equal_to_eager(SphereJEPALoss, 2, 300)

    def test_cuda_graphs_of_torch_compile(self):
        self.equal_to_eager(MMD, 300, mode="reduce-overhead")
        self.equal_to_eager(SphereJEPALoss, 2, 300, mode="reduce-overhead")

    def test_opcheck(self):
        z = on_gpu(50, D, grad=False)
        for arguments in ((z, None, "mmd-heat", "", "", 0, 0, True),
                          (z.bfloat16(), None, "kl-heat", "", "", 0, 0, True),
                          (on_gpu(2, 50, D, grad=False), None, "mmd-heat", "", "tf32", 0, 2, True)):
            torch.library.opcheck(torch.ops.zonal.execute, arguments)


if __name__ == "__main__":
    unittest.main()
