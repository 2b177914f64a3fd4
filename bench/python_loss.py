#!/usr/bin/env python3
"""What the Python package costs, and what it saves, as JSON lines.

    bench/python_loss.py [--device cuda] [--part overhead,table,resnet] [--dim 256] [--batch 256,4096]
                         [--method mmd-heat,kl-heat] [--form zonal,torch,torch_compiled]

    overhead  a loss at B = 256, value and gradient: the bare C call, the module's forward and backward, and
              both replayed from a CUDA graph; beside them a function of autograd's that computes nothing
              but the product of its backward (idle), the least that PyTorch takes; microseconds of wall
              time per iteration
    table     the modules against plain PyTorch (loss_torch.py), eager and compiled: milliseconds and peak
              memory
    resnet    a step of a compiled ResNet-18 with the module inside (train_torch.py's network), launched and
              replayed from a CUDA graph: graph breaks, and the share of the loss

Every line names its part. What does not fit into memory is null. On the CPU it runs too, with small batches.
PYTHONPATH and ZONAL_LIBRARY say which zonal is measured; the exit status is 3 where there is no PyTorch.
"""
import argparse
import gc
import json
import os
import sys
import time
import types

try:
    import torch
except ImportError as missing:
    print(f"python_loss: {missing}", file=sys.stderr)
    sys.exit(3)

import loss_torch
import train_torch
from zonal import _plans
from zonal._library import Plan
from zonal.losses import KL, KSD, MMD, SUSReg, SphereJEPALoss

MODULES = {"mmd-heat": MMD, "mmd-band": lambda: MMD("band"), "ksd-heat": KSD, "kl-heat": KL, "susreg": SUSReg}
FORMS = ("zonal", "torch", "torch_compiled")
MIB = 2**20


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_each(run, device, least=0.2):
    """Wall time of one call in a long row of them: the larger of what the host and what the device take."""
    for _ in range(20):
        run()
    count = 20
    while True:
        wait(device)
        begin = time.perf_counter()
        for _ in range(count):
            run()
        wait(device)
        taken = time.perf_counter() - begin
        if taken > least:
            return taken / count
        count *= 2


def best_us(run, device):
    return 1e6 * min(seconds_each(run, device) for _ in range(5))


def captured(run):
    """As a replay of one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


# ---- overhead ------------------------------------------------------------------------------------


class Bare:
    """The C call alone, on tensors that are there already."""

    def __init__(self, method, z):
        device = "" if z.device.type == "cpu" else f"device=cuda:{z.device.index}"
        self.plan = Plan(method, device, *z.shape)
        self.z = z
        self.value = torch.zeros(1, dtype=torch.float64, device=z.device)
        self.gradient = torch.empty_like(z)

    def __call__(self):
        if self.z.is_cuda:
            self.plan.set_stream(torch.cuda.current_stream().cuda_stream)
        self.plan.execute(self.z.data_ptr(), self.value.data_ptr(), self.gradient.data_ptr())


def forward_and_backward(loss, z):
    leaf = z.clone().requires_grad_()

    def run():
        leaf.grad = None
        loss(leaf).backward()

    return run


class Idle(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z.new_empty(())

    @staticmethod
    def backward(ctx, factor):
        return ctx.saved_tensors[0] * factor


def overhead(options):
    for method in options.method:
        z = torch.randn(256, options.dim, device=options.device)
        bare, module = Bare(method, z.detach()), forward_and_backward(MODULES[method](), z)
        line = {"part": "overhead", "method": method, "B": 256, "d": options.dim,
                "bare_us": best_us(bare, options.device), "module_us": best_us(module, options.device),
                "idle_us": best_us(forward_and_backward(Idle.apply, z), options.device)}
        if options.device == "cuda":
            line["bare_graph_us"] = best_us(captured(bare), "cuda")
            line["module_graph_us"] = best_us(captured(module), "cuda")
        line["overhead_us"] = line["module_us"] - line["bare_us"]
        yield line


# ---- the table -----------------------------------------------------------------------------------


def scratch_mib():
    """Memory of the plans, which PyTorch does not count."""
    made = [m for group in _plans.pool._idle.values() for m in group]
    return sum(m.number("scratch-bytes") for m in made) / MIB


def measured(loss, z, options):
    """ms and peak MiB (CUDA) of value and gradient; None where memory does not suffice."""
    gc.collect()
    _plans.pool.clear()
    run = forward_and_backward(loss, z)
    if options.device != "cuda":
        return 1e3 * seconds_each(run, "cpu", 0.1), None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try:
        run()
        ms = loss_torch.measure_gpu_ms(loss, z)
    except torch.cuda.OutOfMemoryError:
        ms = None
    peak = torch.cuda.max_memory_allocated() / MIB + scratch_mib()
    return ms, None if ms is None else peak


def table(options):
    for method in options.method:
        for batch in options.batch:
            z = torch.randn(batch, options.dim, device=options.device)
            plain = loss_torch.METHODS[method](options.dim)
            torch._dynamo.reset() if hasattr(torch, "compile") else None
            forms = {"zonal": MODULES[method](), "torch": plain}
            if hasattr(torch, "compile"):
                forms["torch_compiled"] = torch.compile(plain)
            line = {"part": "table", "method": method, "B": batch, "d": options.dim}
            for name, loss in forms.items():
                if name not in options.form:
                    continue
                line[name + "_ms"], line[name + "_mib"] = measured(loss, z, options)
            yield line


# ---- a compiled step -----------------------------------------------------------------------------


def resnet(options):
    """The step with zonal's objective, with plain PyTorch's and with a sum in its place."""
    if not hasattr(torch, "compile"):
        return
    row = train_torch.Row(options.row)
    settings = types.SimpleNamespace(device=options.device, width=options.width, batch=options.views_batch,
                                     precision="bf16" if options.device == "cuda" else "fp32")
    line = {"part": "resnet", "row": options.row, "batch": options.views_batch}
    for name, objective in (("zonal", SphereJEPALoss("mmd-heat")), ("torch", train_torch.Objective()),
                            ("no_loss", lambda z: z.square().mean())):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        step = train_torch.Step(row, settings)
        step.objective = objective
        step.compile("default")
        if options.device == "cuda":
            train_torch.warm_up(step.run)
            line[name + "_ms"], _ = train_torch.measure_gpu_ms(step.run)
            line[name + "_graph_ms"], _ = train_torch.measure_gpu_ms(train_torch.capture(step))
        else:
            line[name + "_ms"], _ = train_torch.measure_cpu_ms(step.run)
        line[name + "_graph_breaks"] = sum(torch._dynamo.utils.counters["graph_break"].values())
    timed = "_graph_ms" if options.device == "cuda" else "_ms"
    line["loss_share"] = 1 - line["no_loss" + timed] / line["zonal" + timed]
    yield line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=usual)
    parser.add_argument("--part", default="overhead,table,resnet")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--batch", default="")
    parser.add_argument("--method", default="mmd-heat,mmd-band,kl-heat,susreg")
    parser.add_argument("--form", default=",".join(FORMS))
    parser.add_argument("--row", default="resnet18@64")
    parser.add_argument("--views-batch", type=int, default=256)
    parser.add_argument("--width", type=float, default=1)
    options = parser.parse_args()
    batches = "256,1024,4096,16384,65536" if options.device == "cuda" else "256,1024"
    options.batch = [int(batch) for batch in (options.batch or batches).split(",")]
    options.method = options.method.split(",")
    options.form = options.form.split(",")
    for form in options.form:
        if form not in FORMS:
            parser.error(f"--form takes {', '.join(FORMS)}, not {form}")
    torch.set_float32_matmul_precision("high")
    parts = {"overhead": overhead, "table": table, "resnet": resnet}
    about = {"torch": torch.__version__, "device": options.device,
             "model": f"{os.cpu_count()} processors"}
    if options.device == "cuda":
        about["model"] = torch.cuda.get_device_name()
    for part in options.part.split(","):
        for line in parts[part](options):
            print(json.dumps({**line, **about}), flush=True)


if __name__ == "__main__":
    main()
