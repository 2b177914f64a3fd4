#!/usr/bin/env python3
"""Writes tests/golden/nn.h: layers forward and backward, by PyTorch in float64.

Run with Python 3 and torch (1.13 made the stored numbers):
    python3 make_nn.py > nn.h

Inputs are multiples of 1/64 between -2 and 2, made by a hash that backend/test_nn.c repeats, so that
they are exact in fp32 and in bf16 and only results are stored. Arrays are channels last here and in
C; PyTorch sees them with channels first. The gradients are those of sum(y * dy).
"""

import numpy as np
import torch
import torch.nn.functional as F

ACTIVATIONS = {
    "NONE": lambda z: z,
    "RELU": torch.relu,
    "GELU": F.gelu,  # the exact one is torch's default
}
# The numbers of the arrays, which keep their elements apart; backend/test_nn.c has the same.
X, RESIDUAL, WEIGHT, BIAS, SCALE, DY = range(6)
STEPS = 3  # of a norm in training


def mix(n):
    mask = 0xFFFFFFFF
    n = (n * 2654435761 + 974711) & mask
    n = ((n ^ n >> 15) * 2246822519) & mask
    return n ^ n >> 13


def array(which, step, shape, grid=257):
    """grid: how many different values there are; few of them make ties."""
    count = int(np.prod(shape))
    values = [(mix(i * 4096 + which * 256 + step) % grid - grid // 2) / 64 for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape).requires_grad_()


def first(x):
    return x.permute(0, 3, 1, 2)


def last(x):
    return x.permute(0, 2, 3, 1)


def forward(case, a, running):
    kind = case["kind"]
    x = first(a["x"])
    activation = ACTIVATIONS[case.get("activation", "NONE")]
    if kind == "CONVOLUTION":
        return last(F.conv2d(x, first(a["weight"]), stride=case["stride"], padding=case["pad"]))
    if kind == "LINEAR":
        y = F.linear(a["x"].flatten(1), a["weight"].flatten(1), a.get("bias"))
        return y[:, None, None, :]
    if kind == "NORM":
        z = F.batch_norm(x, running[0], running[1], a["scale"], a["bias"],
                         training=not case.get("inference"), momentum=case["momentum"],
                         eps=case["epsilon"])
        return activation(last(z) + a["residual"] if "residual" in a else last(z))
    if kind == "ACTIVATION":
        return activation(a["x"])
    if kind == "MAX_POOL":
        return last(F.max_pool2d(x, case["kernel"], case["stride"], case["pad"]))
    return last(F.adaptive_avg_pool2d(x, 1))


def arrays(case, step):
    n, h, w, c = case["x"]
    k, kernel = case.get("out", c), case.get("kernel", 1)
    a = {"x": array(X, step, (n, h, w, c), case.get("grid", 257))}
    if case["kind"] in ("CONVOLUTION", "LINEAR"):
        a["weight"] = array(WEIGHT, 0, (k, kernel, kernel, c))
    if case["kind"] == "NORM":
        a["scale"] = array(SCALE, 0, (c,))
    if case["kind"] == "NORM" or case.get("bias"):
        a["bias"] = array(BIAS, 0, (k,))
    if case.get("residual"):
        a["residual"] = array(RESIDUAL, step, (n, h, w, c))
    return a


def run(case):
    """The results by name. A norm is trained STEPS times, and the gradients are the last step's."""
    c = case["x"][3]
    # Buffers that PyTorch updates in place; started where no average hides a mistake.
    running = [torch.full((c,), 0.5, dtype=torch.float64),
               torch.full((c,), 2.0, dtype=torch.float64)]
    for step in range(STEPS if case["kind"] == "NORM" and not case.get("inference") else 1):
        a = arrays(case, step)
        y = forward(case, a, running)
    results = {"y": y.detach()}
    if not case.get("inference"):
        torch.sum(y * array(DY, 0, tuple(y.shape)).detach()).backward()
        results.update({"d" + name: value.grad for name, value in a.items()})
        if case["kind"] == "NORM":
            results["running_mean"], results["running_variance"] = running
    return results


def window(x, out, kernel, stride, pad, **more):
    return dict(kind="CONVOLUTION", x=x, out=out, kernel=kernel, stride=stride, pad=pad, **more)


def pool(x, kernel, stride, pad, **more):
    return dict(kind="MAX_POOL", x=x, kernel=kernel, stride=stride, pad=pad, **more)


def norm(x, activation, **more):
    values = dict(kind="NORM", x=x, activation=activation, momentum=0.125, epsilon=2.0**-10)
    values.update(more)
    return values


CASES = {
    "one_pixel": window((1, 1, 1, 1), 1, 1, 1, 0),
    "kernel_1": window((2, 3, 4, 5), 3, 1, 1, 0),
    "kernel_1_stride_2": window((1, 5, 4, 3), 2, 1, 2, 0),
    "kernel_3": window((2, 5, 3, 2), 3, 3, 1, 1),
    "kernel_3_no_pad": window((1, 4, 5, 2), 2, 3, 1, 0),
    "kernel_3_stride_2_odd": window((1, 5, 7, 3), 2, 3, 2, 1),
    "kernel_3_stride_2_even": window((2, 4, 6, 1), 3, 3, 2, 1),
    "kernel_3_stride_5": window((1, 7, 9, 2), 2, 3, 5, 2),
    "kernel_7_stride_2": window((1, 9, 8, 3), 2, 7, 2, 3),
    "kernel_7_in_padding": window((1, 1, 2, 2), 2, 7, 1, 3),
    "linear": dict(kind="LINEAR", x=(3, 1, 1, 5), out=4),
    "linear_bias": dict(kind="LINEAR", x=(2, 1, 1, 7), out=3, bias=1),
    "norm": norm((2, 2, 3, 3), "NONE"),
    "norm_relu": norm((2, 3, 2, 3), "RELU"),
    "norm_gelu": norm((3, 1, 2, 4), "GELU"),
    "norm_residual": norm((2, 3, 2, 2), "NONE", residual=1),
    "norm_residual_relu": norm((2, 2, 2, 4), "RELU", residual=1),
    "norm_residual_gelu": norm((2, 2, 2, 3), "GELU", residual=1),
    "norm_rows": norm((5, 1, 1, 6), "GELU"),
    "norm_two_values": norm((2, 1, 1, 3), "RELU"),
    "norm_defaults": norm((2, 2, 2, 2), "RELU", momentum=float(np.float32(0.1)),
                          epsilon=float(np.float32(1e-5)), defaults=1),
    "norm_inference": norm((2, 2, 3, 3), "RELU", residual=1, inference=1),
    "norm_inference_gelu": norm((1, 1, 1, 3), "GELU", inference=1),
    "relu": dict(kind="ACTIVATION", x=(3, 1, 1, 7), activation="RELU", grid=9),
    "gelu": dict(kind="ACTIVATION", x=(2, 2, 3, 3), activation="GELU"),
    "max_pool": pool((1, 5, 6, 2), 3, 2, 1),
    "max_pool_ties": pool((2, 7, 5, 2), 3, 2, 1, grid=3),
    "max_pool_overlapping_ties": pool((1, 5, 5, 2), 3, 1, 1, grid=2),
    "max_pool_apart": pool((1, 5, 7, 3), 2, 3, 0),
    "mean_pool": dict(kind="MEAN_POOL", x=(2, 3, 5, 3)),
}


def spec_of(case):
    n, h, w, c = case["x"]
    fields = [f".kind = ZONAL__LAYER_{case['kind']}", f".n = {n}", f".h = {h}", f".w = {w}",
              f".channels = {c}"]
    for name, field in (("out", "out_channels"), ("kernel", "kernel"), ("stride", "stride"),
                        ("pad", "pad"), ("bias", "bias"), ("residual", "residual")):
        if name in case:
            fields.append(f".{field} = {case[name]}")
    if "activation" in case:
        fields.append(f".activation = ZONAL__ACTIVATION_{case['activation']}")
    if case["kind"] == "NORM" and not case.get("defaults"):
        fields.append(f".epsilon = {case['epsilon']!r}f, .momentum = {case['momentum']!r}f")
    return ", ".join(fields)


def main():
    values = [0.0]  # place 0 means "not there"
    print("/* Made by make_nn.py with PyTorch; do not edit. */")
    print("/* clang-format off */")
    print("static const golden_layer golden_layers[] = {")
    for name, case in CASES.items():
        results = run(case)
        places = []
        for result, numbers in results.items():
            places.append(f"[{result.upper()}] = {len(values)}")
            values += numbers.reshape(-1).tolist()
        print(f'    {{.name = "{name}",')
        print(f"     .grid = {case.get('grid', 257)}, .training = {int(not case.get('inference'))},")
        print(f"     .at = {{{', '.join(places)}}},")
        print(f"     .spec = {{{spec_of(case)}}}}},")
    print("};\n")
    print("/* The arrays of every layer, each from its place .at on. */")
    print("static const double golden_values[] = {")
    for i in range(0, len(values), 6):
        print("    " + ", ".join(f"{v:.13g}" for v in values[i:i + 6]) + ",")
    print("};")
    print("/* clang-format on */")


main()
