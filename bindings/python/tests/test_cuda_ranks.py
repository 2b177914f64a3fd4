"""Losses over several ranks with rows on a GPU: NCCL with one rank, also in a CUDA graph, and ranks that
share the GPU through gloo, staged by libzonal. Run by `make gpu-check`."""

import os
import tempfile
import traceback
import unittest

from torch_case import rows, torch  # isort: skip  # skips all of it without PyTorch
from test_cuda import setUpModule  # noqa: F401  # ... and without a GPU

import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import zonal.distributed
from zonal.losses import KL, KSD, MMD, SIGReg, SUSReg, SphereJEPALoss

LOSSES = [MMD, lambda: MMD("band"), KSD, KL, lambda: SUSReg(slices=64), lambda: SIGReg(slices=64)]
SHARDS = {1: [[64]], 2: [[32, 32], [70, 3]], 3: [[20, 0, 41], [300, 400, 500]]}


def compare(loss, alone, whole, shard, rank):
    """fp32 on both sides; the stated bound of a gradient is 1e-5 of its norm, for each of them."""
    whole = whole.clone().requires_grad_()
    want = alone(whole)
    want.backward()
    z = whole.detach().split(shard, -2)[rank].clone().requires_grad_()
    value = zonal.distributed.GlobalBatch(loss, average_gradients=False)(z)
    value.backward()
    what = f"{loss}, rows {shard}"
    assert abs(value.item() - want.item()) <= 5e-6 * (1 + abs(want.item())), f"{what}: {value} and {want}"
    error = (z.grad - whole.grad.split(shard, -2)[rank]).norm()
    assert float(error) <= 2e-5 * float(whole.grad.norm()), f"{what}: gradient off by {error}"


def check(rank, ranks):
    for shard in SHARDS[ranks]:
        whole = rows(sum(shard), 24, dtype=torch.float32, grad=False, device="cuda")
        for make in LOSSES:
            compare(make(), make(), whole, shard, rank)
        views = torch.stack([whole, whole.flip(1)])
        for method in ("mmd-heat", "kl-heat"):
            compare(SphereJEPALoss(method), SphereJEPALoss(method), views, shard, rank)


def check_graph():
    """One rank of NCCL inside a captured graph, replayed on other rows."""
    loss = zonal.distributed.GlobalBatch(MMD(), same_rows=True)
    z = rows(256, 64, dtype=torch.float32, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            z.grad = None
            loss(z).backward()
        z.grad = None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            value = loss(z)
            value.backward()
    other = rows(256, 64, dtype=torch.float32, device="cuda", seed=5)
    with torch.no_grad():
        z.copy_(other)
    graph.replay()
    torch.cuda.synchronize()
    MMD()(other).backward()
    assert torch.equal(value, MMD()(other)), "the value of a replay"
    assert (z.grad - other.grad).norm() <= 1e-5 * other.grad.norm(), "the gradient of a replay"


def work(rank, ranks, backend, store, results):
    try:
        dist.init_process_group(backend, init_method="file://" + store, rank=rank, world_size=ranks)
        check(rank, ranks)
        if backend == "nccl":
            check_graph()
        results.put("")
    except BaseException:
        results.put(traceback.format_exc())
    results.close()
    results.join_thread()
    os._exit(0)  # a rank whose peers hang must not wait for them


class Ranks(unittest.TestCase):
    def run_ranks(self, ranks, backend):
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        results = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            arguments = (ranks, backend, folder + "/store", results)
            processes = [
                context.Process(target=work, args=(rank, *arguments), daemon=True) for rank in range(ranks)
            ]
            for process in processes:
                process.start()
            found = [results.get(timeout=240)]
            while len(found) < ranks and not found[-1]:
                found.append(results.get(timeout=60))
            for process in processes:
                process.kill() if found[-1] else process.join(30)
        self.assertEqual(found, [""] * ranks, found[-1])

    @unittest.skipUnless(dist.is_available() and dist.is_nccl_available(), "this PyTorch has no NCCL")
    def test_nccl_with_one_rank(self):
        self.run_ranks(1, "nccl")

    def test_two_ranks_that_share_the_gpu(self):
        self.run_ranks(2, "gloo")

    def test_three_ranks_that_share_the_gpu(self):
        self.run_ranks(3, "gloo")


if __name__ == "__main__":
    unittest.main()
