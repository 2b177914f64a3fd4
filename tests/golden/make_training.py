#!/usr/bin/env python3
"""Writes tests/golden/training.h: ten steps of training whole networks, by PyTorch in float64.

Run with Python 3, torch and torchvision (1.13 and 0.14 made the stored numbers):
    python3 make_training.py > training.h
It takes a few seconds.

The networks are those of make_network.py: torchvision's blocks, narrow, with a projector. First
weights and images come from its hash, which train/test_training.c repeats. The two views of an
image have part of their numbers in common; every step has images of its own. Both views go
through the network as one batch.

The loss is that of common/torch_objective.py, which has nothing of zonal's. AdamW then moves all
parameters, with decay on the weights of convolutions and linear layers alone.

Rounding grows over the steps: AdamW divides a gradient by its size, so that an element whose
gradient is all rounding moves as far as any other. How fast is measured here by float32 runs that
differ in the order of their sums: "drift" is the largest relative distance of any of them from
float64, of any of the four numbers, in this step or one before.

Where the derivative of relu or of a max pool jumps, two runs that pass on different sides go apart
a hundred times faster. A case's seed is one with which no such place of any step comes nearer than
MARGIN (in units of the array's root mean square), so that all runs take the same branches: that is
what keeps the drift, and the test's tolerance, small. The search for it begins at the seed of the
case, where it ended last; from 1 it takes minutes.
"""

import math
import os
import sys

import torch

from make_network import Margin, Network, fill, noise

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../common"))
from torch_objective import objective

STEPS, BATCH, VIEWS, LAMBDA, RATE = 10, 8, 2, 0.05, 1e-3
MARGIN = 1e-5
PARTS = ("total", "invariance", "discrepancy", "gradient_norm")

# What the hash is asked for: COMMON + step and OWN + VIEWS step + view.
COMMON, OWN = 4000, 5000

# A decay of 5e-4 over ten steps is lost in rounding; the second case has one that shows.
CASES = [
    dict(name="resnet18", depth=18, stem="IMAGENET", channels=3, h=24, w=20, decay=5e-4, seed=55,
         projector=[32, 32, 16], activation="GELU", norm=1, last_bias=1),
    dict(name="resnet18_small_grey", depth=18, stem="SMALL", channels=1, h=8, w=9, decay=20.0,
         seed=4592, projector=[48, 32], activation="GELU", norm=1, last_bias=1),
]

# Float32 in several orders of summation.
ROUNDINGS = [dict(mkldnn=True, layout=torch.contiguous_format),
             dict(mkldnn=True, layout=torch.channels_last),
             dict(mkldnn=False, layout=torch.contiguous_format),
             dict(mkldnn=False, layout=torch.channels_last)]


def images(case, seed, step):
    """[views][batch] of them, as float32"""
    shape = (BATCH, case["h"], case["w"], case["channels"])
    count = math.prod(shape)
    common = 3 * noise(seed, COMMON + step, count)
    views = [common + 2 * noise(seed, OWN + VIEWS * step + v, count) for v in range(VIEWS)]
    x = torch.cat([torch.from_numpy(view).float().reshape(shape) for view in views])
    return x.permute(0, 3, 1, 2)


def optimiser(network, decay):
    weights = [p for p in network.parameters() if p.dim() > 1]
    others = [p for p in network.parameters() if p.dim() == 1]
    return torch.optim.AdamW([dict(params=weights, weight_decay=decay),
                              dict(params=others, weight_decay=0.0)], lr=RATE)


def train(case, seed, dtype, layout=torch.contiguous_format, mkldnn=True):
    """Step by step its numbers, and how near all so far have come to a jump."""
    network = Network(case).to(dtype)
    fill(network, seed)
    network.to(memory_format=layout).train()
    margin = Margin(network)
    adamw = optimiser(network, case["decay"])
    for step in range(STEPS):
        with torch.backends.mkldnn.flags(enabled=mkldnn):
            x = images(case, seed, step).to(dtype).contiguous(memory_format=layout)
            parts = objective(network(x), VIEWS, LAMBDA)
            adamw.zero_grad()
            parts[0].backward()
        squares = sum(float(p.grad.double().pow(2).sum()) for p in network.parameters())
        yield [float(part) for part in parts] + [math.sqrt(squares)], margin.least
        adamw.step()


def find_seed(case):
    for seed in range(case["seed"], 10000):
        if all(margin > MARGIN for _, margin in train(case, seed, torch.float64)):
            return seed
    sys.exit(f"{case['name']}: no seed keeps the margin")


def measure_drift(case, seed, want):
    runs = [[row for row, _ in train(case, seed, torch.float32, **rounding)]
            for rounding in ROUNDINGS]
    drift, largest = [], 0.0
    for step, row in enumerate(want):
        largest = max([largest] + [abs(run[step][i] / row[i] - 1)
                                   for run in runs for i in range(len(PARTS))])
        drift.append(largest)
    return drift


def write_case(case):
    case["width"] = 0.125
    seed = find_seed(case)
    want, margins = zip(*train(case, seed, torch.float64))
    drift = measure_drift(case, seed, want)
    print(f"{case['name']}: seed {seed}, margin {margins[-1]:.1e}, drift "
          + " ".join(f"{d:.1e}" for d in drift), file=sys.stderr)
    print(f"""    {{.name = "{case["name"]}",
     .network = {{.depth = {case["depth"]}, .stem = ZONAL__STEM_{case["stem"]},
                 .channels = {case["channels"]}, .width = {case["width"]},
                 .projector_layers = {len(case["projector"])},
                 .projector_width = {{{", ".join(map(str, case["projector"]))}}},
                 .projector_activation = ZONAL__ACTIVATION_{case["activation"]},
                 .projector_norm = {case["norm"]}, .projector_last_bias = {case["last_bias"]},
                 .dtype = ZONAL_DTYPE_FP32}},
     .h = {case["h"]}, .w = {case["w"]}, .seed = {seed}, .weight_decay = {case["decay"]},
     .steps = {{""")
    for row, distance in zip(want, drift):
        fields = [f".{part} = {value:.15g}" for part, value in zip(PARTS, row)]
        print(f"         {{{fields[0]}, {fields[1]},\n          {fields[2]}, {fields[3]}, "
              f".drift = {distance:.2g}}},")
    print("     }},")


def main():
    torch.set_num_threads(1)
    print("/* Made by make_training.py with PyTorch; do not edit. */")
    print("/* clang-format off */")
    print("static const golden_training golden_trainings[] = {")
    for case in CASES:
        write_case(case)
    print("};")


if __name__ == "__main__":
    main()
