#!/usr/bin/env python3
"""Ten whole steps of training beside PyTorch: the same weights, views, objective and AdamW.

    torch_steps_test.py STEPS_TOOL [cpu|cuda [part of a case's name]]

PyTorch first trains the network for some steps by itself: a ResNet at its first weights is chaotic,
and one gradient there says nothing about another. From those weights, with a new AdamW, all sides
then make the same ten steps:

    reference   PyTorch in a finer precision: float64 for fp32, fp32 for bf16
    controls    PyTorch in the precision of the case (bf16: autocast), with images laid out as NCHW
                and as NHWC: how far rounding alone leads away from the reference
    ours        steps_tool, in bf16 on a GPU with norms folded into products and without

Compared are the four numbers of every step (loss, invariance, discrepancy, norm of the gradient)
and what ten steps leave: the update of the weights, AdamW's mean of the gradients, which knows no
signs that rounding turns round, and the running statistics of the norms, each as a whole and tensor
by tensor. Ours may be as far from the reference as the farther control, times a factor (below).
Steps with a mistake ("departures") must be farther away than that.
"""
import argparse
import json
import math
import os
import struct
import subprocess
import tempfile

import numpy as np

from harness import finish, report, skip
from own_resnet import own_resnet

try:
    import torch
    from torch import nn

    from torch_objective import objective
except ImportError as missing:
    skip("ten steps beside PyTorch", missing)
    finish()

STEPS, VIEWS, LAMBDA, BETAS = 10, 2, 0.05, (0.9, 0.999)
NUMBERS = ("loss", "invariance", "discrepancy", "gradient_norm")
TENSORS = ("update", "gradient", "statistics")

# How many controls ours may be away: in one of the NUMBERS, a mean over ten steps, which scatters by a
# third between equals; in all tensors of a kind, which hardly does; and in one tensor, where AdamW
# moves an element whose gradient is all rounding as far as any other (2.4 was seen among 430).
NUMBER, WHOLE, TENSOR = 2.0, 1.5, 4.0

# In fp32 an input of a relu, or a pair of a max pool's, that lies within rounding of a tie takes one
# branch here and the other there, and one such flip moves more than all rounding. What is allowed
# for it, as a whole and in a tensor by itself: some twice the farthest that PyTorch or we were away
# from float64 in twelve trainings of the first case (as a whole 2e-5, 2e-5, 1e-5, 9e-4, 3e-3, 8e-3,
# 3e-4, in a tensor 8e-3, 6e-2, 8e-4). The "flips" of a case are the share of this that it gets:
# less where more images share the gradient.
FLIPS = {"loss": (5e-5, 0), "invariance": (5e-5, 0), "discrepancy": (5e-5, 0),
         "gradient_norm": (2e-3, 0), "update": (6e-3, 0.02), "gradient": (0.02, 0.15),
         "statistics": (6e-4, 2e-3)}

# A decay that shows in ten steps: 5e-4 would be lost in rounding.
CASES = {
    "cpu": [dict(name="resnet18, an eighth as wide, 32 px, fp32", depth=18, width=0.125, side=32,
                 batch=32, projector=(64, 64, 32), precision="fp32", flips=1, warm=40, rate=1e-4,
                 decay=5.0)],
    "cuda": [dict(name="resnet18, 64 px, fp32", depth=18, width=1, side=64, batch=64,
                  projector=(2048, 2048, 256), precision="fp32", flips=0.2, warm=150, rate=1e-5,
                  decay=5.0),
             dict(name="resnet50, 224 px, bf16", depth=50, width=1, side=224, batch=64,
                  projector=(2048, 2048, 256), precision="bf16", flips=0, warm=150, rate=1e-5,
                  decay=5.0)],
}


# ---- views ---------------------------------------------------------------------------------------


class Images:
    """Coloured sums of a few waves. The views of an image differ in place, scale, colour and noise."""

    WAVES = 4

    def __init__(self, case, device, seed):
        self.side, self.batch, self.device = case["side"], case["batch"], device
        self.generator = torch.Generator(device).manual_seed(seed)
        self.at = (torch.arange(self.side, device=device) + 0.5) / self.side

    def normal(self, *shape):
        return torch.randn(shape, generator=self.generator, device=self.device)

    def view(self, waves, colours, phases):
        """[batch][3][side][side]"""
        scale = 1 + 0.1 * self.normal(self.batch, 1, 1)
        moved = 2 * math.pi * (scale * waves * (0.2 * self.normal(self.batch, 1, 2))).sum(2)
        turns = 2 * math.pi * scale * waves
        angle = (turns[:, :, :1, None] * self.at[:, None] + turns[:, :, 1:, None] * self.at
                 + (phases + moved)[:, :, None, None])
        colours = colours * (1 + 0.2 * self.normal(self.batch, self.WAVES, 3))
        x = torch.einsum("bwij,bwc->bcij", angle.sin(), colours)
        x = x + 0.1 * self.normal(*x.shape)
        # Sixty-fourths are what bf16 holds without rounding, and float16 in a file too.
        return (64 * x).round().clamp(-128, 127) / 64

    def draw(self):
        """The views of one step, [VIEWS batch][3][side][side]"""
        waves = 4 * self.normal(self.batch, self.WAVES, 2)
        colours = 0.5 * self.normal(self.batch, self.WAVES, 3)
        phases = 2 * math.pi * self.normal(self.batch, self.WAVES)
        return torch.cat([self.view(waves, colours, phases) for _ in range(VIEWS)])


def write_views(path, steps):
    """As steps_tool takes them: a matrix with a view in each row, channels last"""
    rows = [views.permute(0, 2, 3, 1).flatten(1).half().cpu().numpy() for views in steps]
    np.save(path, np.concatenate(rows))


# ---- weights -------------------------------------------------------------------------------------


def write_tensors(path, tensors):
    """A safetensors file of float32"""
    header, at = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [at, at + 4 * tensor.numel()]}
        at += 4 * tensor.numel()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.float().cpu().contiguous().numpy().tobytes())


def read_tensors(path, device):
    with open(path, "rb") as file:
        content = bytearray(file.read())
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    return {name: torch.frombuffer(content, dtype=torch.float32, count=math.prod(entry["shape"]),
                                   offset=8 + length + entry["data_offsets"][0])
            .reshape(entry["shape"]).to(device).double()
            for name, entry in header.items()
            if name != "__metadata__" and entry["dtype"] == "F32" and "exp_avg_sq" not in name}


# ---- steps in PyTorch ----------------------------------------------------------------------------


def network(case):
    net = own_resnet(case["depth"], case["width"])
    widths = (net.fc.in_features, *case["projector"])
    layers = []
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        last = i + 2 == len(widths)
        layers += [nn.Linear(a, b, bias=last)] + ([] if last else [nn.BatchNorm1d(b), nn.GELU()])
    net.fc, net.projector = nn.Identity(), nn.Sequential(*layers)
    if case.get("constant_statistics"):
        spoil_norm(net.layer2[1])
    return net.train()


def blocks(net):
    return [block for i in range(1, 5) for block in getattr(net, f"layer{i}")]


def last_norm(block):
    return f"bn{block.count}"


def spoil_norm(block):
    name = last_norm(block)
    setattr(block, name, ConstantStatistics(getattr(block, name).num_features))


class ConstantStatistics(nn.BatchNorm2d):
    """A batch norm that goes back as if mean and variance did not depend on its input."""

    def forward(self, x):
        with torch.no_grad():
            super().forward(x)
            variance, mean = torch.var_mean(x.float(), (0, 2, 3), unbiased=False)
        return nn.functional.batch_norm(x, mean, variance, self.weight, self.bias, False, 0, self.eps)


class Training:
    """A network with its AdamW. "precision": float64, fp32 or bf16."""

    def __init__(self, case, device, precision, layout=torch.contiguous_format):
        self.device, self.precision, self.layout = device, precision, layout
        self.weight = case.get("lambda", LAMBDA)
        self.dtype = torch.float64 if precision == "float64" else torch.float32
        self.net = network(case).to(device, self.dtype, memory_format=layout)
        weights = [p for p in self.net.parameters() if p.dim() > 1]
        others = [p for p in self.net.parameters() if p.dim() == 1]
        self.adamw = torch.optim.AdamW(
            [dict(params=weights, weight_decay=case["decay"]),
             dict(params=others, weight_decay=case.get("other_decay", 0.0))],
            lr=case["rate"], betas=case.get("betas", BETAS))

    def begin(self, weights):
        self.net.load_state_dict(weights)
        return self

    def step(self, views):
        """Its NUMBERS"""
        x = views.to(self.dtype).contiguous(memory_format=self.layout)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16"):
            z = self.net.projector(self.net(x))
        parts = objective(z.to(self.dtype), VIEWS, self.weight)
        self.adamw.zero_grad()
        parts[0].backward()
        squares = sum(p.grad.double().pow(2).sum() for p in self.net.parameters())
        self.adamw.step()
        return [float(part.detach()) for part in parts] + [math.sqrt(float(squares))]

    def tensors(self):
        """All that steps leave, by a checkpoint's names"""
        left = {name: t.detach().double() for name, t in self.net.state_dict().items()
                if t.is_floating_point()}
        for name, parameter in self.net.named_parameters():
            left["optimiser.exp_avg." + name] = self.adamw.state[parameter]["exp_avg"].double()
        return left


def warm_up(case, device):
    """The weights from which all sides begin, as PyTorch's state_dict"""
    torch.manual_seed(1)
    images = Images(case, device, 1)
    training = Training(dict(case, rate=1e-3, decay=5e-4), device, case["precision"],
                        torch.channels_last)
    for block in blocks(training.net):
        nn.init.constant_(getattr(block, last_norm(block)).weight, 0.2)
    losses = [training.step(images.draw())[0] for _ in range(case["warm"])]
    print(f"# warm-up: loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
    return {name: tensor.clone() for name, tensor in training.net.state_dict().items()}


# ---- comparison ----------------------------------------------------------------------------------


class Trace:
    """Ten steps: rows of NUMBERS, and what they leave"""

    def __init__(self, rows, left, start):
        self.rows, self.parts = rows, {kind: {} for kind in TENSORS}
        for name, tensor in left.items():
            if name in start and "running_" in name:
                self.parts["statistics"][name] = tensor - start[name]
            elif name in start:
                self.parts["update"][name] = tensor - start[name]
            elif name.startswith("optimiser.exp_avg."):
                self.parts["gradient"][name[len("optimiser.exp_avg."):]] = tensor


def in_torch(case, device, start, steps, precision, layout):
    training = Training(case, device, precision, layout).begin(start)
    rows = [training.step(views) for views in steps]
    return Trace(rows, training.tensors(), start)


def in_zonal(case, device, start, tool, *words):
    numbers = dict(side=case["side"], batch=case["batch"], steps=STEPS, rate=case["rate"],
                   decay=case["decay"], **{"lambda": LAMBDA})
    words = ([f"{name}={value}" for name, value in numbers.items()]
             + ["cuda"] * (device == "cuda") + ["bf16"] * (case["precision"] == "bf16") + list(words))
    done = subprocess.run([tool, "start.safetensors", "views.npy", "end.safetensors", *words],
                          capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(done.stderr or f"status {done.returncode}")
    rows = [[line[name] for name in NUMBERS] for line in map(json.loads, done.stdout.splitlines())]
    return Trace(rows, read_tensors("end.safetensors", device), start)


def relative(error, size):
    value = float(error) / float(size) if float(size) > 0 else math.inf
    return value if math.isfinite(value) else math.inf


def distances(trace, reference):
    """Of the whole by name, and of single tensors by kind and name. All relative."""
    whole, single = {}, {}
    got, want = np.array(trace.rows), np.array(reference.rows)
    for i, name in enumerate(NUMBERS):
        whole[name] = relative(np.sqrt(np.mean((got[:, i] / want[:, i] - 1) ** 2)), 1)
    for kind in TENSORS:
        errors, sizes = [], []
        for name, tensor in reference.parts[kind].items():
            errors.append((trace.parts[kind][name] - tensor).norm())
            sizes.append(tensor.norm())
            single[kind, name] = relative(errors[-1], sizes[-1])
        whole[kind] = relative(torch.stack(errors).norm(), torch.stack(sizes).norm())
    return whole, single


def cosine(trace, reference, kind):
    pairs = [(trace.parts[kind][name], tensor) for name, tensor in reference.parts[kind].items()]
    dot = sum((a * b).sum() for a, b in pairs)
    return relative(dot, math.sqrt(float(sum(a.pow(2).sum() for a, _ in pairs)
                                         * sum(b.pow(2).sum() for _, b in pairs))))


class Bounds:
    """How far from the reference steps may be, by the distances of the controls from it."""

    def __init__(self, reference, controls, flips):
        self.reference = reference
        found = [distances(control, reference) for control in controls]
        self.whole = {name: max((NUMBER if name in NUMBERS else WHOLE)
                                * max(whole[name] for whole, _ in found),
                                flips * FLIPS[name][0]) for name in found[0][0]}
        self.single = {key: max(TENSOR * max(single[key] for _, single in found),
                                flips * FLIPS[key[0]][1]) for key in found[0][1]}
        if not all(map(math.isfinite, [*self.whole.values(), *self.single.values()])):
            raise AssertionError("a control is not finite: it bounds nothing")

    def shares(self, trace):
        """Of what is allowed, how much is used at the worst place: as a whole, and by one tensor
        with its name."""
        whole, single = distances(trace, self.reference)
        worst = max(single, key=lambda key: relative(single[key], self.single[key]))
        return (max(relative(whole[name], self.whole[name]) for name in whole),
                relative(single[worst], self.single[worst]), " of ".join(worst))

    def hold(self, trace):
        whole, single, _ = self.shares(trace)
        return whole <= 1 and single <= 1


def show(what, trace, bounds):
    whole, _ = distances(trace, bounds.reference)
    most, single, name = bounds.shares(trace)
    print(f"# {what}: " + ", ".join(f"{key} {value:.2g}" for key, value in whole.items())
          + f"; cosine of updates {cosine(trace, bounds.reference, 'update'):.4f}; of the bounds "
          + f"{most:.2g}, and {single:.2g} by the {name}", flush=True)


# ---- the cases -----------------------------------------------------------------------------------


def departures(case):
    """Mistakes, as changes of the case."""
    more = 10 if case["precision"] == "bf16" else 2
    return {f"a rate {more} % too large": {"rate": (1 + more / 100) * case["rate"]},
            "a lambda 10 % too large": {"lambda": 1.1 * LAMBDA},
            "decay of norms and biases": {"other_decay": case["decay"]},
            "no decay": {"decay": 0.0},
            "a beta1 of 0.8": {"betas": (0.8, BETAS[1])},
            "a norm with constant statistics": {"constant_statistics": True}}


def run_case(case, device, tool):
    finer = "fp32" if case["precision"] == "bf16" else "float64"
    start = warm_up(case, device)
    images = Images(case, device, 2)
    steps = [images.draw() for _ in range(STEPS)]
    write_views("views.npy", steps)
    write_tensors("start.safetensors", {n: t for n, t in start.items() if t.is_floating_point()})

    def torch_steps(precision, layout=torch.contiguous_format, **mistake):
        return in_torch(dict(case, **mistake), device, start, steps, precision, layout)

    controls = [torch_steps(case["precision"]), torch_steps(case["precision"], torch.channels_last)]
    bounds = Bounds(torch_steps(finer), controls, case["flips"])
    for control, layout in zip(controls, ("NCHW", "NHWC")):
        show(f"PyTorch, {case['precision']}, {layout}", control, bounds)
    folds = case["precision"] == "bf16" and device == "cuda"
    ours = {}
    for words in (("fold",), ()) if folds else ((),):
        ours[words] = in_zonal(case, device, start, tool, *words)
        what = case["name"] + (", norms folded" if words else ", norms by themselves" if folds else "")
        show(what, ours[words], bounds)
        report(bounds.hold(ours[words]), f"{what}: ten steps as in PyTorch")
    if folds:  # they round elsewhere: where no bit differs, nothing was folded
        report(ours[()].rows != ours["fold",].rows, f"{case['name']}: norms are folded")
    for what, mistake in departures(case).items():
        trace = torch_steps(case["precision"], **mistake)
        show(what, trace, bounds)
        report(not bounds.hold(trace), f"{case['name']}: {what} shows")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool", type=os.path.abspath)
    parser.add_argument("device", nargs="?", choices=CASES, default="cpu")
    parser.add_argument("part", nargs="?", default="", help="of the name of a case")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if options.device == "cuda" and not torch.cuda.is_available():
        skip("ten steps beside PyTorch on a GPU", "PyTorch finds no GPU")
        finish()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for case in (case for case in CASES[options.device] if options.part in case["name"]):
            try:
                run_case(case, options.device, options.tool)
            except Exception as error:  # the other cases are still worth running
                report(False, case["name"], f"{type(error).__name__}: {error}")
        os.chdir("/")
    finish()


main()
