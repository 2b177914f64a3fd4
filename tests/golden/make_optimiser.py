#!/usr/bin/env python3
"""Writes tests/golden/optimiser.h: ten steps of torch.optim in float64, and of LARS written out.

Run with Python 3, numpy and torch (1.13 made the stored numbers):
    python3 make_optimiser.py > optimiser.h

The problem, for parameters q cut into four tensors:
    f(q) = sum_i a_i (q_i - t_i)^2/2 + sum_i .3 cos(q_i q_{i+1})
with its gradient by autograd. Start, target t and stiffness a are rounded to float first. The
learning rate changes from step to step. Decay and, for LARS, the trust ratio leave out the second
and third tensor where a case says so, as one does for biases and scales.
"""

import numpy as np
import torch

COUNTS = (7, 1, 5, 6)
WEIGHTS = (True, False, False, True)
RATES = [.01, .02, .03, .04, .05, .05, .045, .03, .01, .002]
ADAMW, SGD, LARS = range(3)

CASES = [
    dict(name="adamw", kind=ADAMW, weight_decay=.1),
    dict(name="adamw, large epsilon", kind=ADAMW, weight_decay=0., beta2=.95, epsilon=.05),
    dict(name="adamw, decay of weights alone", kind=ADAMW, weight_decay=.4, beta1=.8, flags=1),
    dict(name="adamw, clipped", kind=ADAMW, weight_decay=.01, beta2=.9, epsilon=.1, clip=2.),
    dict(name="sgd", kind=SGD, weight_decay=0., momentum=0.),
    dict(name="sgd, momentum", kind=SGD, weight_decay=.1, momentum=.9),
    dict(name="sgd, nesterov", kind=SGD, weight_decay=.1, momentum=.8, nesterov=1, flags=1),
    dict(name="sgd, clipped", kind=SGD, weight_decay=.1, momentum=.9, clip=9.),
    dict(name="lars", kind=LARS, weight_decay=.05, trust=.5),
    dict(name="lars, weights alone, clipped", kind=LARS, weight_decay=.05, trust=.7, momentum=.8,
         flags=1, clip=1.5),
]


def objective(tensors, stiffness, target):
    q = torch.cat(tensors)
    return (stiffness * (q - target) ** 2).sum() / 2 + .3 * torch.cos(q[1:] * q[:-1]).sum()


class Lars:
    """You, Gitman, Ginsburg 2017, algorithm 1."""

    def __init__(self, tensors, case, decays, adapts):
        self.tensors, self.case, self.decays, self.adapts = tensors, case, decays, adapts
        self.buffers = [np.zeros(t.numel()) for t in tensors]

    def step(self, rate):
        for n, tensor in enumerate(self.tensors):
            w, g = tensor.detach().numpy(), tensor.grad.numpy()
            ratio = 1.
            if self.adapts[n]:
                ratio = self.case["trust"] * np.linalg.norm(w) / (
                    np.linalg.norm(g) + self.decays[n] * np.linalg.norm(w))
            self.buffers[n] = (self.case["momentum"] * self.buffers[n]
                               + rate * ratio * (g + self.decays[n] * w))
            w -= self.buffers[n]


def clip(tensors, limit):
    """The norm, after which all gradients together are no longer than the limit."""
    norm = float(torch.sqrt(sum((t.grad ** 2).sum() for t in tensors)))
    if limit and norm > limit:
        for t in tensors:
            t.grad *= limit / norm
    return norm


def make_optimiser(case, tensors, decays):
    if case["kind"] == LARS:
        adapts = [w or not case["flags"] for w in WEIGHTS]
        return Lars(tensors, case, decays, adapts)
    groups = [dict(params=[t], weight_decay=d) for t, d in zip(tensors, decays)]
    if case["kind"] == ADAMW:
        return torch.optim.AdamW(groups, lr=1., betas=(case["beta1"], case["beta2"]),
                                 eps=case["epsilon"])
    return torch.optim.SGD(groups, lr=1., momentum=case["momentum"],
                           nesterov=bool(case["nesterov"]))


def states(case, optimiser, tensors):
    """The state's arrays as lists; SGD without momentum has none in PyTorch."""
    if case["kind"] == LARS:
        return [np.concatenate(optimiser.buffers)]
    names = ["exp_avg", "exp_avg_sq"] if case["kind"] == ADAMW else ["momentum_buffer"]
    parts = [[optimiser.state[t].get(n) for t in tensors] for n in names]
    return [torch.cat(p).numpy() for p in parts if p[0] is not None]


def run(case, start, stiffness, target):
    tensors = [t.clone().requires_grad_() for t in torch.split(start, COUNTS)]
    decays = [case["weight_decay"] * (w or not case["flags"]) for w in WEIGHTS]
    optimiser = make_optimiser(case, tensors, decays)
    norms, after = [], []
    for rate in RATES:
        for t in tensors:
            t.grad = None
        objective(tensors, stiffness, target).backward()
        norms.append(clip(tensors, case["clip"]))
        if case["kind"] == LARS:
            optimiser.step(rate)
        else:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()
        after.append(torch.cat([t.detach().clone() for t in tensors]).numpy())
    return norms, after[0], after[-1], states(case, optimiser, tensors)


def array(values, cast=""):
    lines, line = [], "       "
    for v in values:
        text = " " + repr(float(v)) + cast + ","
        if len(line) + len(text) > 98:
            lines.append(line)
            line = "       "
        line += text
    return "{\n" + "\n".join(lines + [line]) + "}"


def main():
    random = np.random.RandomState(5)
    n = sum(COUNTS)
    start, target = random.uniform(-1, 1, n), random.uniform(-2, 2, n)
    stiffness = random.uniform(.2, 3, n)
    inputs = [np.float32(x).astype(np.float64) for x in (start, target, stiffness)]
    print("/* Made by make_optimiser.py with torch.optim in float64; do not edit. */")
    print("/* clang-format off */")
    for name, values in zip(("start", "target", "stiffness"), inputs):
        print(f"static const double golden_{name}[{n}] = {array(values)};")
    print(f"static const double golden_rates[{len(RATES)}] = {array(RATES)};")
    print("static const golden_run golden_runs[] = {")
    for case in CASES:
        case = dict(dict(beta1=.9, beta2=.999, epsilon=1e-8, momentum=.9, nesterov=0, trust=.001,
                         clip=0., flags=0), **case)
        start, target, stiffness = (torch.from_numpy(x) for x in inputs)
        norms, first, last, state = run(case, start, stiffness, target)
        fields = ("kind", "weight_decay", "clip", "beta1", "beta2", "epsilon", "momentum",
                  "nesterov", "trust")
        spec = ", ".join(f".{f} = {case[f]}" for f in fields)
        print(f'{{.name = "{case["name"]}", .flags = {case["flags"]}, .states = {len(state)},')
        print(f"    .spec = {{{spec}}},")
        print(f"    .norm = {array(norms)},")
        print(f"    .first = {array(first)},")
        print(f"    .last = {array(last)},")
        print("    .state = {" + ", ".join(array(s) for s in state) + "}},")
    print("};")


main()
