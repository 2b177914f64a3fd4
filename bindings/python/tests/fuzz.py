"""Calls the losses with shapes, strides, dtypes and options at random: every call must give a finite value
and gradient, or raise one of the exceptions that are promised.

    python fuzz.py [calls] [seed]
"""
import math
import random
import sys

import torch
from zonal.losses import KL, KSD, MMD, SIGReg, SUSReg, SphereJEPALoss

PROMISED = (ValueError, TypeError, MemoryError, NotImplementedError)
FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
OTHERS = [torch.int32, torch.bool, torch.complex64]
SIZES = [0, 1, 2, 3, 5, 8, 17, 64, 65, 200]


def loss_of(rng):
    kernel = rng.choice(["heat", "band", "induced", "poisson", "chordal", "spectrum", "", "héat", "heat\0"])
    option = rng.choice([{}, {}, {"t": rng.choice([0, 1e-300, 1e300, "5/d", "d", "", "x", -1, math.nan])},
                         {"band": rng.choice([0, 1, 2, 64, 65, 2.5])}, {"estimator": "u"}, {"raw": True},
                         {"spectrum": rng.choice([[], [1], [1, 1], [0, 0, 1], [1, -1], "1,0.5"])},
                         {"threads": rng.choice([0, 1, 3, 4096, 5000, -1])}, {"implementation": "ref"},
                         {"slices": rng.choice([0, 1, 7, 2**40])},
                         {"precision": rng.choice(["double", "fp32"])}])
    made = rng.choice([lambda: MMD(kernel, **option), lambda: MMD(**option), lambda: KSD(kernel, **option),
                       lambda: KL(kernel, **option), lambda: SUSReg(**option), lambda: SIGReg(**option),
                       lambda: SphereJEPALoss(rng.choice(["mmd-heat", "kl-heat", "susreg"]),
                                              global_views=rng.choice([-1, 0, 1, 2, 3]), **option)])
    return made()


def tensor_of(rng, dims):
    dims = dims if rng.random() < 0.9 else rng.choice([0, 1, 2, 3, 4])
    shape = [rng.choice(SIZES[:6] if i < dims - 2 else SIZES) for i in range(dims)]
    x = torch.randn(shape, dtype=torch.float64)
    if dims and rng.random() < 0.1 and x.numel():
        x.view(-1)[rng.randrange(x.numel())] = rng.choice([math.nan, math.inf, 0, 1e308, 1e-308])
    dtype = rng.choice(FLOATS if rng.random() < 0.95 else OTHERS)
    x = x.to(dtype)
    change = rng.randrange(6)
    if change == 0 and dims >= 2:
        x = x.transpose(-1, -2)
    elif change == 1 and dims:
        x = x[..., ::2]
    elif change == 2 and dims and x.shape[0]:
        x = x[:1].expand(rng.choice(SIZES[1:6]), *x.shape[1:])
    elif change == 3 and dims:
        x = x[1:]
    return x.detach().requires_grad_() if x.is_floating_point() and rng.random() < 0.7 else x


def call(rng):
    """1: a value, 0: refused."""
    try:
        loss = loss_of(rng)
        z = tensor_of(rng, 3 if isinstance(loss, SphereJEPALoss) else 2)
        value = loss(z)
        if z.requires_grad:
            value.backward()
            assert z.grad.shape == z.shape and z.grad.dtype == z.dtype
            assert bool(torch.isfinite(z.grad.double()).all()) or z.dtype == torch.float16, (loss, z)
        assert math.isfinite(value.item()), (loss, z.shape, z.dtype, value)
        return 1
    except PROMISED as error:
        assert str(error) and "\n" not in str(error), repr(error)
        return 0


def main():
    calls, seed = (int(a) for a in (sys.argv[1:] + ["1000", "0"][len(sys.argv) - 1:]))
    rng = random.Random(seed)
    torch.manual_seed(seed)
    values = sum(call(rng) for _ in range(calls))
    print(f"{calls} calls: {values} values, {calls - values} refusals")


if __name__ == "__main__":
    main()
