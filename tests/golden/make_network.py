#!/usr/bin/env python3
"""Writes tests/golden/network.h: whole networks, forward and backward, by torchvision in float64.

Run with Python 3, torch and torchvision (0.14 made the stored numbers):
    python3 make_network.py > network.h
It takes a few seconds.

Parameters, images and the loss's coefficients come from a hash that nn/test_network.c repeats,
rounded to float32 first, so only results are stored. Of an array that is not stored whole there is
its norm and a sum of its elements with pseudo-random signs, in PyTorch's order: an error of any
kind, a wrong layout among them, shows in the sum with about the size of its own norm.

Each case, on a model in training mode:
  1. forward on images 0; loss = sum of coefficients times projections; its gradients
  2. forward on images 1; then the running statistics are those after two batches
  3. in inference mode, forward on images 0
The derivative of relu jumps at 0 and that of a max pool where the largest two of a window are
equal. A case's seed is the first with which no such place comes nearer than MARGIN (in units of the
array's root mean square), several times what float32 strays: it takes the same branches everywhere.
The last norm of a bottleneck has a small scale: with branches as large as the shortcut, sixteen
blocks would multiply rounding errors by a thousand.
"""

import math
import sys

import numpy as np
import torch
from torch import nn
from torchvision.models import resnet as tv

MARGIN = 1.5e-5
BLOCKS = {18: (tv.BasicBlock, [2, 2, 2, 2]), 34: (tv.BasicBlock, [3, 4, 6, 3]),
          50: (tv.Bottleneck, [3, 4, 6, 3])}

# What the hash is asked for; an entry's own number is added.
PARAMETER, SIGN, IMAGES, COEFFICIENT = 0, 1000, 2000, 3000


def mix(n):
    n = (n * 2654435761 + 974711) & 0xFFFFFFFF
    n = ((n ^ (n >> 15)) * 2246822519) & 0xFFFFFFFF
    return (n ^ (n >> 13)) & 0xFFFFFFFF


def noise(seed, what, count):
    """count numbers in [-1/2, 1/2)"""
    start = mix(10000 * seed + what)
    index = np.arange(count, dtype=np.uint64)
    return mix((index + start) & 0xFFFFFFFF).astype(np.float64) / 2**32 - 0.5


class Network(tv.ResNet):
    """torchvision's blocks and forward, with narrow layers, another stem, a projector for fc."""

    def __init__(self, case):
        nn.Module.__init__(self)
        block, counts = BLOCKS[case["depth"]]
        channels = [max(8, 8 * math.floor(64 * 2**i * case["width"] / 8 + 0.5)) for i in range(4)]
        small = case["stem"] == "SMALL"
        self._norm_layer = nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = channels[0], 1, 1, 64
        self.conv1 = nn.Conv2d(case["channels"], channels[0], 3 if small else 7,
                               1 if small else 2, 1 if small else 3, bias=False)
        self.bn1 = nn.BatchNorm2d(channels[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        for i in range(4):
            layer = self._make_layer(block, channels[i], counts[i], stride=2 if i else 1)
            setattr(self, f"layer{i + 1}", layer)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Identity()
        self.projector = projector(case, channels[3] * block.expansion)

    def forward(self, x):
        self.features = super().forward(x)
        return self.projector(self.features)


def projector(case, width):
    layers = []
    for i, out in enumerate(case["projector"]):
        last = i + 1 == len(case["projector"])
        layers.append(nn.Linear(width, out, bias=case["last_bias"] if last else not case["norm"]))
        width = out
        if not last:
            layers += [nn.BatchNorm1d(out)] if case["norm"] else []
            layers.append(nn.GELU() if case["activation"] == "GELU" else nn.ReLU())
    return nn.Sequential(*layers)


def fill(network, seed):
    trained = {name for name, _ in network.named_parameters()}
    for number, (name, entry) in enumerate(network.state_dict().items()):
        if name not in trained:
            continue
        values = noise(seed, PARAMETER + number, entry.numel())
        if entry.dim() > 1:
            values = values * math.sqrt(24 / entry[0].numel())
        elif name.endswith(".bn3.weight"):
            values = (1 + values / 2) / 4
        elif name.endswith("weight"):
            values = 1 + values / 2
        else:
            values = values / 2
        values = torch.from_numpy(values.astype(np.float32))
        entry.copy_(values.reshape(entry.shape))


def images(case, seed, number, dtype):
    shape = (case["n"], case["h"], case["w"], case["channels"])
    x = 4 * noise(seed, IMAGES + number, math.prod(shape))
    return torch.from_numpy(x.astype(np.float32)).reshape(shape).permute(0, 3, 1, 2).to(dtype)


def coefficients(shape, seed, dtype):
    c = noise(seed, COEFFICIENT, math.prod(shape)).astype(np.float32)
    return torch.from_numpy(c).reshape(shape).to(dtype)


class Margin:
    """The nearest that an input of a relu comes to 0, or of a max pool to a tie."""

    def __init__(self, network):
        self.least = math.inf
        for module in network.modules():
            if isinstance(module, nn.ReLU):
                module.register_forward_pre_hook(self.relu)
            if isinstance(module, nn.MaxPool2d):
                module.register_forward_pre_hook(self.max_pool)

    def note(self, distance, x):
        self.least = min(self.least, float(distance.min() / x.pow(2).mean().sqrt()))

    def relu(self, module, inputs):
        self.note(inputs[0].detach().abs(), inputs[0].detach())

    def max_pool(self, module, inputs):
        x = inputs[0].detach()
        padded = nn.functional.pad(x, (1, 1, 1, 1))
        windows = padded.unfold(2, 3, 2).unfold(3, 3, 2).flatten(4)
        two = windows.topk(2, dim=-1).values
        self.note((two[..., 0] - two[..., 1])[two[..., 0] > 0], x)


def probe(g, seed, number):
    g = g.detach().double().reshape(-1).numpy()
    signs = np.where(noise(seed, SIGN + number, g.size) < 0, -1.0, 1.0)
    return float(np.sqrt(np.sum(g * g))), float(np.sum(signs * g))


def run(case, seed, dtype):
    network = Network(case).to(dtype)
    fill(network, seed)
    margin = Margin(network)
    result = {}
    network.train()
    y = network(images(case, seed, 0, dtype))
    result["margin"] = margin.least
    result["features"] = [probe(network.features, seed, 0)]
    result["projections"] = y.detach().double().reshape(-1).tolist()
    loss = (coefficients(y.shape, seed, dtype) * y).sum()
    result["loss"] = float(loss)
    loss.backward()
    network(images(case, seed, 1, dtype))
    gradient = {name: p.grad for name, p in network.named_parameters()}
    result["entries"] = [probe(gradient.get(name, entry), seed, number)
                         for number, (name, entry) in enumerate(network.state_dict().items())]
    network.eval()
    y = network(images(case, seed, 0, dtype))
    result["inference"] = y.detach().double().reshape(-1).tolist()
    return result


def deviation(got, want):
    """The largest error of float32, of arrays by their norms."""
    worst = abs(got["loss"] / want["loss"] - 1)
    for part in ("projections", "inference"):
        a, b = np.array(got[part]), np.array(want[part])
        worst = max(worst, np.linalg.norm(a - b) / np.linalg.norm(b))
    for part in ("features", "entries"):
        for a, b in zip(got[part], want[part]):
            worst = max(worst, abs(a[0] - b[0]) / b[0], abs(a[1] - b[1]) / b[0])
    return worst


def numbers(name, values):
    print(f"static const double {name}[] = {{")
    for i in range(0, len(values), 4):
        print("    " + ", ".join(f"{v:.15g}" for v in values[i:i + 4]) + ",")
    print("};")


CASES = [
    dict(name="resnet18", depth=18, stem="IMAGENET", channels=3, n=4, h=40, w=33,
         projector=[24, 20, 10], activation="GELU", norm=1, last_bias=1),
    dict(name="resnet50", depth=50, stem="IMAGENET", channels=3, n=3, h=33, w=40,
         projector=[16, 12], activation="RELU", norm=0, last_bias=0),
    dict(name="resnet34_small_grey", depth=34, stem="SMALL", channels=1, n=3, h=11, w=14,
         projector=[], activation="RELU", norm=1, last_bias=1),
    dict(name="resnet18_small", depth=18, stem="SMALL", channels=3, n=5, h=12, w=9,
         projector=[16, 16, 7], activation="RELU", norm=1, last_bias=0),
    dict(name="resnet50_small_grey", depth=50, stem="SMALL", channels=1, n=3, h=10, w=11,
         projector=[18, 9], activation="GELU", norm=0, last_bias=1),
]


def write_case(case, rows):
    case["width"] = 0.125
    for seed in range(1, 100):
        want = run(case, seed, torch.float64)
        if want["margin"] > MARGIN:
            break
    else:
        sys.exit(f"{case['name']}: no seed keeps the margin")
    got = run(case, seed, torch.float32)
    print(f"{case['name']}: seed {seed}, margin {want['margin']:.1e}, float32 is off by "
          f"{deviation(got, want):.1e}", file=sys.stderr)
    name = case["name"]
    numbers(f"{name}_projections", want["projections"])
    numbers(f"{name}_inference", want["inference"])
    numbers(f"{name}_entries", [v for pair in want["entries"] for v in pair])
    widths = ", ".join(map(str, case["projector"])) or "0"
    rows.append(f"""    {{.name = "{name}",
     .spec = {{.depth = {case["depth"]}, .stem = ZONAL__STEM_{case["stem"]},
              .channels = {case["channels"]}, .width = 0.125,
              .projector_layers = {len(case["projector"])}, .projector_width = {{{widths}}},
              .projector_activation = ZONAL__ACTIVATION_{case["activation"]},
              .projector_norm = {case["norm"]}, .projector_last_bias = {case["last_bias"]},
              .dtype = ZONAL_DTYPE_FP32}},
     .n = {case["n"]}, .h = {case["h"]}, .w = {case["w"]}, .seed = {seed},
     .loss = {want["loss"]:.15g},
     .features = {{{want["features"][0][0]:.15g}, {want["features"][0][1]:.15g}}},
     .entry_count = {len(want["entries"])}, .projections = {name}_projections,
     .inference = {name}_inference, .entries = {name}_entries}},""")


def write_table(depth):
    network = getattr(tv, f"resnet{depth}")()
    table = [(name, list(entry.shape)) for name, entry in network.state_dict().items()
             if not name.startswith("fc.")]
    print(f"static const golden_entry resnet{depth}_table[] = {{")
    for name, shape in table:
        print(f'    {{"{name}", {len(shape)}, {{{", ".join(map(str, shape)) or "0"}}}}},')
    print("};")


def main():
    rows = []
    print("/* Made by make_network.py with torchvision; do not edit. */")
    print("/* clang-format off */")
    for depth in BLOCKS:
        write_table(depth)
    for case in CASES:
        write_case(case, rows)
    print("static const golden_network golden_networks[] = {")
    print("\n".join(rows))
    print("};")


if __name__ == "__main__":
    main()
