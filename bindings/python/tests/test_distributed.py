"""Losses over several ranks: one process with the whole batch is what they must agree with."""

import copy
import os
import pickle
import signal
import tempfile
import traceback
import unittest
from unittest import mock

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as multiprocessing
    from torch.nn.parallel import DistributedDataParallel
except ImportError:
    torch = None

import zonal

if torch is not None:
    from zonal._collectives import Communicator

DIM = 12
# Rows of each rank: even, uneven, some without any.
SHARDS = {
    1: [[9]],
    2: [[8, 8], [13, 2], [0, 7]],
    3: [[5, 5, 5], [9, 0, 4], [1, 1, 1]],
    4: [[4, 4, 4, 4], [7, 0, 1, 6]],
}
METHODS = [
    "mmd-heat",
    "mmd-band",
    "mmd-induced",
    "mmd-poisson",
    "ksd-heat",
    "ksd-band",
    "kl-heat",
    "kl-poisson",
    "susreg",
    "sigreg",
]
TOLERANCE = {"float64": 1e-12, "float32": 1e-6}


def make_loss(method):
    kind, _, kernel = method.partition("-")
    if kind in ("susreg", "sigreg"):
        return {"susreg": zonal.losses.SUSReg, "sigreg": zonal.losses.SIGReg}[kind](slices=64)
    return {"mmd": zonal.losses.MMD, "ksd": zonal.losses.KSD, "kl": zonal.losses.KL}[kind](kernel)


def draw(rows, dtype, views=0, seed=0):
    shape = (views, rows, DIM) if views else (rows, DIM)
    generator = torch.Generator().manual_seed(seed + rows)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) + 0.3).to(dtype)


def mine(whole, shard, rank):
    """This rank's rows of the whole batch, which needs a gradient of its own."""
    return whole.split(shard, dim=-2)[rank].clone().requires_grad_()


def assert_near(found, want, tolerance, what):
    scale = float(want.abs().max()) if want.numel() else 1.0
    worst = float((found - want).abs().max()) if want.numel() else 0.0
    assert worst <= tolerance * scale, f"{what}: {worst / scale:.2e} of the largest"  # NaN loses


def with_gradient(loss, z):
    value = loss(z)
    value.backward()
    return value.detach(), z.grad


# ---- what each rank does ---------------------------------------------------------------------------------


def check_losses(rank, ranks):
    for shard in SHARDS[ranks]:
        for dtype in (torch.float64, torch.float32):
            tolerance = TOLERANCE[str(dtype)[6:]]
            for method in METHODS:
                if method.startswith("kl") and sum(shard) < 3:
                    continue
                whole = draw(sum(shard), dtype).requires_grad_()
                value, gradient = with_gradient(make_loss(method), whole)
                module = zonal.distributed.GlobalBatch(make_loss(method), average_gradients=False)
                z = mine(whole.detach(), shard, rank)
                found, own = with_gradient(module, z)
                what = f"{method}, {dtype}, rows {shard}"
                assert_near(found, value, tolerance, what + ", value")
                assert own.shape == (shard[rank], DIM)
                # Of the largest element of the whole gradient, also for a rank whose own is small.
                scale = gradient.abs().max()
                worst = (own - gradient.split(shard)[rank]).abs().max() if own.numel() else scale * 0
                assert worst <= 10 * tolerance * scale, f"{what}, gradient: {worst / scale:.2e}"
                same_everywhere(found, what)


def same_everywhere(value, what):
    values = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(values, value)
    assert all(bool(other == value) for other in values), f"{what}: ranks differ: {values}"


def check_objective(rank, ranks):
    for shard in SHARDS[ranks]:
        for method in ("mmd-heat", "kl-heat", "susreg"):
            whole = draw(sum(shard), torch.float64, views=3).requires_grad_()
            alone = zonal.losses.SphereJEPALoss(method, global_views=2)
            value, gradient = with_gradient(alone, whole)
            together = zonal.losses.SphereJEPALoss(method, global_views=2)
            module = zonal.distributed.GlobalBatch(together, average_gradients=False)
            z = mine(whole.detach(), shard, rank)
            found, own = with_gradient(module, z)
            what = f"objective {method}, rows {shard}"
            assert_near(found, value, 1e-12, what)
            share = gradient.split(shard, dim=1)[rank]
            assert (own - share).abs().max() <= 1e-11 * gradient.abs().max() if own.numel() else True, what
            for name, one, other in zip(alone.parts._fields, alone.parts, together.parts):
                assert_near(other, one, 1e-12, f"{what}, {name}")


def check_training(rank, ranks):
    """Parameters after some steps of DistributedDataParallel are those of one process."""
    for shard in SHARDS[ranks]:
        for average in (True, False):
            torch.manual_seed(1)
            layers = [torch.nn.Linear(DIM, 16), torch.nn.GELU(), torch.nn.Linear(16, 8)]
            models = [copy.deepcopy(torch.nn.Sequential(*layers).double()) for _ in range(2)]
            shared = DistributedDataParallel(models[0]) if average else models[0]
            module = zonal.distributed.GlobalBatch(zonal.losses.MMD(), average_gradients=average)
            rates = [torch.optim.SGD(model.parameters(), 0.5) for model in models]
            for step in range(3):
                whole = draw(sum(shard), torch.float64, seed=step)
                rates[0].zero_grad()
                module(shared(whole.split(shard)[rank])).backward()
                if not average:
                    for parameter in models[0].parameters():
                        dist.all_reduce(parameter.grad)
                rates[0].step()
                rates[1].zero_grad()
                zonal.losses.MMD()(models[1](whole)).backward()
                rates[1].step()
            for one, other in zip(models[0].parameters(), models[1].parameters()):
                assert_near(
                    one.detach(), other.detach(), 1e-12, f"parameters, rows {shard}, average {average}"
                )


def raised(call):
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def check_refusals(rank, ranks):
    """What is wrong on one rank is an exception on all, and afterwards all goes on."""
    module = zonal.distributed.GlobalBatch(zonal.losses.MMD())
    last = ranks - 1
    for _ in range(2):
        z = draw(4, torch.float32)
        if rank == last:
            z[2, 1] = float("nan")
        error = raised(lambda: module(z))
        assert isinstance(error, ValueError) and f"row {4 * last + 2} of the whole batch" in str(error), error
        assert float(module(draw(4, torch.float32))) > 0
    error = raised(lambda: module(draw(4, torch.float32)[0] if rank == last else draw(4, torch.float32)))
    if rank == last:
        assert isinstance(error, ValueError) and "[B, d]" in str(error), error
    else:
        assert isinstance(error, RuntimeError) and f"rank {last} cannot take part" in str(error), error
    if ranks > 1:
        error = raised(lambda: module(torch.ones(3, DIM + (rank == last))))
        assert isinstance(error, ValueError) and "differ in kind" in str(error), error
        error = raised(lambda: module(torch.ones(3, DIM, dtype=torch.float64 if rank else torch.float32)))
        assert isinstance(error, ValueError) and "torch.float64" in str(error), error
        sliced = zonal.distributed.GlobalBatch(zonal.losses.SUSReg(slices=8))
        sliced.loss.step = rank
        error = raised(lambda: sliced(draw(4, torch.float32)))
        assert isinstance(error, ValueError) and "at step 0, rank 1 has" in str(error), error
    error = raised(lambda: module(torch.ones(1, DIM) if rank == 0 else torch.ones(0, DIM)))
    assert isinstance(error, ValueError) and "2" in str(error), error


def check_failing_collectives(rank, ranks):
    """An exception in a callback from C comes out as itself, at whichever call it happens."""
    for method in ("mmd-heat", "kl-heat", "mmd-band", "susreg"):
        failures, at = 0, 0
        while True:
            module = zonal.distributed.GlobalBatch(make_loss(method), same_rows=True)
            with Cables(at) as cables:
                try:
                    module(draw(4, torch.float32).requires_grad_()).backward()
                except KeyError as error:
                    assert "cable" in str(error), error
                    failures += 1
                else:
                    assert not cables.cut
                    break
                finally:
                    at += 1
            dist.barrier()
            assert float(module(draw(4, torch.float32))) > 0
        assert failures >= (2 if ranks > 1 else 0), f"{method}: {failures} calls"


class Cables:
    """Cuts the connection at the n-th collective that libzonal asks for, on every rank alike."""

    NAMES = ("_all_reduce", "_all_gather", "_shift_begin", "_shift_end", "_broadcast")

    def __init__(self, at):
        self.left, self.cut = at, False
        self.patches = []

    def __enter__(self):
        for name in self.NAMES:
            patch = mock.patch.object(Communicator, name, self.wrap(getattr(Communicator, name)))
            patch.start()
            self.patches.append(patch)
        return self

    def wrap(self, function):
        def call(communicator, *arguments):
            self.left -= 1
            if self.left == -1:
                self.cut = True
                raise KeyError("the cable was cut")
            return function(communicator, *arguments)

        return call

    def __exit__(self, *_):
        for patch in self.patches:
            patch.stop()


def check_interrupt(rank, ranks):
    """Ctrl-C in the middle of a call: the call is finished, so that the ranks stay together, and then raises."""
    if ranks == 1:
        return
    module = zonal.distributed.GlobalBatch(zonal.losses.MMD("band"))
    z = draw(4, torch.float32)
    value = module(z)
    reduce = Communicator._all_reduce

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return reduce(*arguments)

    with mock.patch.object(Communicator, "_all_reduce", interrupted):
        fresh = zonal.distributed.GlobalBatch(zonal.losses.MMD("band"))
        try:
            fresh(z)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("not interrupted")
    assert bool(module(z) == value)


def check_module(rank, ranks):
    """Same shapes promised; plans are kept; copies and groups of some ranks."""
    module = zonal.distributed.GlobalBatch(zonal.losses.SUSReg(slices=32), same_rows=True)
    whole = draw(6 * ranks, torch.float64)
    z = whole.split(6)[rank]
    values = [module(z) for _ in range(3)]
    alone = zonal.losses.SUSReg(slices=32)
    for step, value in enumerate(values):
        assert_near(value, alone(whole), 1e-12, f"step {step}")
    assert module.loss.step == 3 and len(module._made) == 1
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert other.loss.step == 3 and not other._made
        assert_near(other(z), alone(whole), 1e-12, "a copy")
        alone.step = 3
    with torch.no_grad():
        assert not module(z).requires_grad
    x = z.clone().requires_grad_()
    value = zonal.distributed.GlobalBatch(zonal.losses.MMD())(x)
    (gradient,) = torch.autograd.grad(value, x, create_graph=True)
    error = raised(lambda: torch.autograd.grad(gradient.sum(), x))
    assert "no second derivative" in str(error), error
    if ranks >= 3:
        group = dist.new_group([0, ranks - 1])
        if rank in (0, ranks - 1):
            rows = torch.cat([whole.split(6)[0], whole.split(6)[-1]])
            found = zonal.distributed.GlobalBatch(zonal.losses.MMD(), group)(z)
            assert_near(found, zonal.losses.MMD()(rows), 1e-12, "a group of two")
        dist.barrier()


CHECKS = [
    check_losses,
    check_objective,
    check_training,
    check_refusals,
    check_failing_collectives,
    check_interrupt,
    check_module,
]


def work(rank, ranks, store, results):
    torch.set_num_threads(1)
    failed = []
    try:
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
        for check in CHECKS:
            check(rank, ranks)
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        failed.append(traceback.format_exc())
    results.put((rank, failed))
    results.close()
    results.join_thread()
    os._exit(bool(failed))  # a rank whose peers hang must not wait for them


@unittest.skipIf(torch is None, "this Python has no torch")
class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            import torch._dynamo  # noqa: F401  # as DistributedDataParallel does: here once, not in each rank
        except ImportError:
            pass

    def run_ranks(self, ranks):
        context = multiprocessing.get_context(
            "fork"
        )  # spawn imports torch anew in each; plans survive a fork
        results = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            processes = [
                context.Process(target=work, args=(rank, ranks, folder + "/store", results), daemon=True)
                for rank in range(ranks)
            ]
            for process in processes:
                process.start()
            found = [results.get(timeout=240)]
            while len(found) < ranks and not found[-1][1]:
                found.append(results.get(timeout=60))
            for process in processes:
                if found[-1][1]:
                    process.kill()  # the others wait for the one that failed
                process.join(30)
        for rank, failed in found:
            self.assertEqual(failed, [], f"rank {rank}: {''.join(failed)}")

    def test_1_rank(self):
        self.run_ranks(1)

    def test_2_ranks(self):
        self.run_ranks(2)

    def test_3_ranks(self):
        self.run_ranks(3)

    def test_4_ranks(self):
        self.run_ranks(4)

    def test_backends_of_a_group(self):
        from zonal._collectives import backend_of

        for config, cpu, cuda in (
            ("cpu:gloo,cuda:nccl", "gloo", "nccl"),
            ("cuda:nccl", "", "nccl"),
            ("cpu:gloo,cuda:gloo", "gloo", "gloo"),
        ):
            with mock.patch.object(dist, "get_backend_config", lambda group: config, create=True):
                self.assertEqual((backend_of(None, "cpu"), backend_of(None, "cuda")), (cpu, cuda))

    def test_without_a_group(self):
        with self.assertRaisesRegex(RuntimeError, "init_process_group first"):
            zonal.distributed.GlobalBatch(zonal.losses.MMD())(torch.ones(4, 4))
        with self.assertRaisesRegex(TypeError, "takes a loss of zonal.losses, got Linear"):
            zonal.distributed.GlobalBatch(torch.nn.Linear(2, 2))


if __name__ == "__main__":
    unittest.main()
