#!/usr/bin/env python3
"""One step of training in PyTorch, timed: what "zonal bench train" is compared with.

    bench/train_torch.py [--device cpu|cuda] [--rows resnet18@64,resnet18@128/1,...] [--batch 256]
                         [--width 1] [--precision bf16|fp32] [--threads 2] [--form compile+graph]
                         [--compile-mode default]

A step is what "zonal bench train" makes: two views of each of --batch images through a ResNet
(ImageNet's stem) and a projector 2048-2048-256 with norms and GELU, alignment and MMD under the
heat kernel, backward, AdamW. The views lie on the device already. Behind a side, "/1" means images
of one channel instead of three, "/small" CIFAR's stem (3 x 3, no pooling), "/v8" eight views.
Networks are written out here: torchvision is not needed.

On a GPU, --form is the strongest way of running the step that is tried:

    compile+graph    forward and loss by torch.compile, the whole step replayed as one CUDA graph
    compile          the same without the graph
    graph            eager, replayed as one CUDA graph
    eager

in bf16 by autocast, channels last, cuDNN's algorithms by measurement, fused AdamW. Where a form
fails, that is said on stderr and the next one is taken. On the CPU the step is eager.

A JSON line is printed for each row:

    {"row": "resnet18@64", "ms": 4.37, "peak_mib": 3012.5, "mode": "compile+graph", ...}

"ms" is the median over windows of steps after the warm-up, "peak_mib" the most that tensors held
during a step once algorithms were chosen (null on the CPU). The exit status is 3 when there is no
PyTorch. Works with PyTorch 1.13 (CPU) and 2.x.

On virtual machines that claim AMX and do not have all of it, oneDNN under PyTorch 1.13 ends with an
illegal instruction in bf16. A child process tries that out first; where it dies, oneDNN is held to
AVX512-BF16, and the line says so ("isa").
"""
import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time

try:
    import torch
    from torch import nn
except ImportError as missing:
    print(f"train_torch: {missing}", file=sys.stderr)
    sys.exit(3)

from loss_torch import heat_spectrum, series

LAMBDA, DIM = 0.05, 256
FORMS = ("compile+graph", "compile", "graph", "eager")


# ---- the network ---------------------------------------------------------------------------------


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    """A basic block (two 3 x 3), or a bottleneck (1 x 1, 3 x 3 with the stride, 1 x 1)."""

    def __init__(self, inputs, inner, outputs, stride, bottleneck):
        super().__init__()
        if bottleneck:
            plan = [(inputs, inner, 1, 1), (inner, inner, 3, stride), (inner, outputs, 1, 1)]
        else:
            plan = [(inputs, inner, 3, stride), (inner, outputs, 3, 1)]
        layers = []
        for i, (a, b, kernel, s) in enumerate(plan):
            layers += [convolution(a, b, kernel, s), nn.BatchNorm2d(b)]
            if i + 1 < len(plan):
                layers.append(nn.ReLU(inplace=True))
        self.branch = nn.Sequential(*layers)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)
            )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        past = x if self.shortcut is None else self.shortcut(x)
        return self.relu(self.branch(x) + past)


def scaled(channels, width):
    """As zonal's --width: rounded to a multiple of 8, at least 8."""
    return max(8, 8 * int(channels * width / 8 + 0.5))


class Network(nn.Module):
    """Images to projections."""

    def __init__(self, row, width):
        super().__init__()
        depth, channels = row.depth, row.channels
        blocks = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}[depth]
        inputs = scaled(64, width)
        stem = (3, 1) if row.small_stem else (7, 2)
        layers = [convolution(channels, inputs, *stem), nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)]
        if not row.small_stem:
            layers.append(nn.MaxPool2d(3, 2, 1))
        for group, count in enumerate(blocks):
            inner = scaled(64 << group, width)
            outputs = scaled(256 << group, width) if depth == 50 else inner
            for i in range(count):
                stride = 2 if group > 0 and i == 0 else 1
                layers.append(Block(inputs, inner, outputs, stride, depth == 50))
                inputs = outputs
        self.encoder = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.projector = nn.Sequential(
            nn.Linear(inputs, 2048, bias=False),
            nn.BatchNorm1d(2048),
            nn.GELU(),
            nn.Linear(2048, 2048, bias=False),
            nn.BatchNorm1d(2048),
            nn.GELU(),
            nn.Linear(2048, DIM),
        )

    def forward(self, x):
        return self.projector(self.encoder(x))


class Objective:
    """(1 - lambda) L_inv + lambda B D over views z [views, B, d], D the mean over the views of MMD
    under the heat kernel, t = 5/d; all views' pairs at once."""

    def __init__(self):
        weight = heat_spectrum(DIM, 5 / DIM, 1e-9)
        self.weight = [0.0] + [float(w) for w in weight[1:] / weight[1:].sum()]

    def __call__(self, z):
        x = nn.functional.normalize(z, dim=2)
        alignment = (x - x.mean(0)).square().sum(2).mean()
        discrepancy = series(x @ x.transpose(1, 2), self.weight, DIM).mean()
        return (1 - LAMBDA) * alignment + LAMBDA * z.shape[1] * discrepancy


# ---- a step --------------------------------------------------------------------------------------


class Step:
    """A network, its optimiser and its fixed views; run() makes one step."""

    def __init__(self, row, options):
        self.cuda = options.device == "cuda"
        torch.manual_seed(0)
        layout = torch.channels_last if self.cuda else torch.contiguous_format
        net = Network(row, options.width).train()
        self.net = net.to(options.device, memory_format=layout)
        views = torch.randn(row.views * options.batch, row.channels, row.side, row.side)
        bf16 = options.precision == "bf16"
        self.views = views.to(options.device, torch.bfloat16 if bf16 and self.cuda else None)
        self.views = self.views.contiguous(memory_format=layout)
        self.shape = (row.views, options.batch, DIM)
        self.bf16, self.objective = bf16, Objective()
        self.loss = self.forward
        # No decay on norms and biases, as zonal trains.
        decayed = [p for p in self.net.parameters() if p.ndim > 1]
        others = [p for p in self.net.parameters() if p.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": 5e-4}, {"params": others, "weight_decay": 0}]
        fast = {"fused": True, "capturable": True} if self.cuda else {}
        self.optimiser = torch.optim.AdamW(groups, lr=1e-4, **fast)
        self.last = None

    def forward(self):
        kind = "cuda" if self.cuda else "cpu"
        with torch.autocast(kind, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            z = self.net(self.views)
        return self.objective(z.float().view(self.shape))

    def compile(self, mode):
        self.loss = torch.compile(self.forward, mode=mode)

    def run(self):
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.loss()
        loss.backward()
        self.optimiser.step()
        # Without its graph, whose nodes would tie a later capture to the stream of the warm-up.
        self.last = loss.detach()


# ---- timing --------------------------------------------------------------------------------------


def measure_cpu_ms(run):
    """Median over warm steps: at least 5 of them, or 3 where they are slow."""
    run()
    times = []
    while len(times) < 5 or (sum(times) < 1 and len(times) < 100):
        if len(times) >= 3 and sum(times) > 3:
            break
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times), len(times)


def measure_gpu_ms(run):
    """Median over windows of about a tenth of a second, by CUDA events."""

    def window(steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(steps):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / steps

    steps = max(1, min(200, int(100 / window(5))))
    times = [window(steps) for _ in range(12)]
    return statistics.median(times[2:]), steps * len(times[2:])


def warm_up(run):
    """On a side stream, as capturing asks for; also compiles, and lets cuDNN choose."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()


def capture(step):
    graph = torch.cuda.CUDAGraph()
    step.optimiser.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step.run()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def measure_form(row, form, options):
    """The row's line, by one way of running the step."""
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    begin = time.perf_counter()
    step = Step(row, options)
    if form.startswith("compile"):
        step.compile(options.compile_mode)
    warm_up(step.run)
    prepared = time.perf_counter() - begin
    step.optimiser.zero_grad(set_to_none=True)
    torch.cuda.reset_peak_memory_stats()
    run = capture(step) if form.endswith("graph") else step.run
    ms, steps = measure_gpu_ms(run)
    peak = torch.cuda.max_memory_allocated() / 2**20
    return {"ms": ms, "peak_mib": peak, "mode": form, "steps": steps, "prepare_s": prepared,
            "loss": float(step.last)}


def measure_cuda(row, options):
    for form in FORMS[FORMS.index(options.form):]:
        try:
            return measure_form(row, form, options)
        except Exception as error:  # compilers and capturing fail in many ways
            first = str(error).splitlines()[0] if str(error) else ""
            print(f"train_torch: {row.name}: {form} failed ({type(error).__name__}: {first})",
                  file=sys.stderr)
    return {"ms": None, "peak_mib": None, "mode": None}


def measure_cpu(row, options):
    step = Step(row, options)
    ms, steps = measure_cpu_ms(step.run)
    return {"ms": ms, "peak_mib": None, "mode": "eager", "steps": steps, "isa": options.isa,
            "loss": float(step.last)}


def choose_isa():
    """What oneDNN must be held to for bf16 to live; None: nothing. To be set before its first use."""
    trial = (
        "import torch; net = torch.nn.Conv2d(64, 64, 3, padding=1)\n"
        "with torch.autocast('cpu', torch.bfloat16):\n"
        "    net(torch.randn(8, 64, 16, 16, requires_grad=True)).float().sum().backward()\n"
    )
    if subprocess.run([sys.executable, "-c", trial], capture_output=True).returncode >= 0:
        return None
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    return os.environ["ONEDNN_MAX_CPU_ISA"]


# ---- the program ---------------------------------------------------------------------------------


class Row:
    """NETWORK@SIDE, and behind it "/1", "/small" and "/v8" in any order: resnet18@32/small."""

    def __init__(self, name):
        self.name = name
        network, _, size = name.partition("@")
        side, *suffixes = size.split("/")
        views = [suffix[1:] for suffix in suffixes if suffix.startswith("v")]
        known = all(suffix in ("1", "small", *("v" + v for v in views)) for suffix in suffixes)
        if (network not in ("resnet18", "resnet34", "resnet50") or not known
                or not all(number.isdigit() for number in [side, *views])):
            sys.exit(f"train_torch: {name} is no row: write resnet18@64, resnet18@128/1, "
                     "resnet18@32/small or resnet18@64/v8")
        self.depth, self.side = int(network[6:]), int(side)
        self.channels = 1 if "1" in suffixes else 3
        self.small_stem = "small" in suffixes
        self.views = int(views[-1]) if views else 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--rows", default="resnet18@64")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--width", type=float, default=1)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--threads", type=int, default=0, help="0: all this process may use")
    parser.add_argument("--form", choices=FORMS, default=FORMS[0])
    parser.add_argument("--compile-mode", default="default")
    parser.set_defaults(isa=None)
    options = parser.parse_args()
    options.device, _, number = options.device.partition(":")
    if options.device == "cuda":
        torch.cuda.set_device(int(number or 0))
    rows = [Row(name) for name in options.rows.split(",")]
    torch.set_num_threads(options.threads or len(os.sched_getaffinity(0)))
    if options.device == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    elif options.precision == "bf16":
        options.isa = choose_isa()
    for row in rows:
        line = {"row": row.name}
        line.update((measure_cuda if options.device == "cuda" else measure_cpu)(row, options))
        line["parameters"] = sum(p.numel() for p in Network(row, options.width).parameters())
        line["torch"] = torch.__version__
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
