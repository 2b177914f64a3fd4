#!/usr/bin/env python3
"""The losses in plain PyTorch, timed: what zonal is compared with.

    bench/loss_torch.py [--dim 256] [--batch 256,1024] [--method NAME,...] [--threads 2]
                        [--zonal build/zonal] [--limit SECONDS] [--device cuda]

Each loss is written as a careful user of PyTorch would write it: vectorised, float32, autograd for
the gradient, every constant computed once outside the timed part. A JSON line is printed for each
method and batch,

    {"method": "mmd-heat", "B": 1024, "ms": 220.1, "least_ms": 214.0, ...}

with the median and the least time of value and gradient. Given --zonal, value and gradient are
compared with "zonal loss" on the same rows, so that the comparison is one of equals ("value",
"zonal", and "error" in units of what float32 allows); the exit status is 1 when they disagree, 3
when there is no PyTorch. Works with PyTorch 1.13 and 2.x.

On a GPU (--device cuda) TF32 products are allowed, times are the medians of CUDA events, the
compiled loss (torch.compile) is timed too ("compile_ms"), the peak of allocated memory is given
("peak_mib"), and what does not fit is null.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"loss_torch: {missing}", file=sys.stderr)
    sys.exit(3)


# ---- kernels: constants, made once per loss ------------------------------------------------------


def heat_spectrum(d, t, tail):
    """a_l proportional to exp(-t l(l+d-2)) N_l, sum 1, cut where the rest is below "tail"."""
    log_n = [0.0, math.log(d)]
    log_w = [0.0, math.log(d) - t * (d - 1)]
    l = 1
    while True:
        ratio = (2 * l + d) * (l + d - 2) / ((2 * l + d - 2) * (l + 1))
        log_n.append(log_n[-1] + math.log(ratio))
        l += 1
        log_w.append(log_n[-1] - t * l * (l + d - 2))
        if log_w[-1] < log_w[-2] and log_w[-1] < max(log_w) + math.log(tail):
            break
    a = np.exp(np.array(log_w) - max(log_w))
    return a / a.sum()


def band_spectrum(d, band):
    n = [1.0, float(d)]
    for l in range(1, band):
        n.append(n[-1] * (2 * l + d) * (l + d - 2) / ((2 * l + d - 2) * (l + 1)))
    a = np.array(n[: band + 1])
    return a / a.sum()


def sphere_rule(n, d):
    """Gauss-Jacobi nodes and weights for the marginal of the sphere, (1-u^2)^((d-3)/2)."""
    k = np.arange(1, n)
    beta = np.sqrt(k * (k + d - 3) / ((2 * k + d - 2) * (2 * k + d - 4.0)))
    if d == 2:
        beta[0] = math.sqrt(0.5)
    node, vector = np.linalg.eigh(np.diag(beta, 1) + np.diag(beta, -1))
    return node, vector[0] ** 2


def series(c, weight, d):
    """sum of weight[l] P_l(c), P_l(1) = 1, by the three-term recurrence."""
    older, old = torch.ones_like(c), c
    total = weight[0] + weight[1] * c
    for l in range(1, len(weight) - 1):
        up, down = (2 * l + d - 2) / (l + d - 2), l / (l + d - 2)
        older, old = old, up * c * old - down * older
        total = total + weight[l + 1] * old
    return total


# ---- losses: each returns a function of the raw rows ---------------------------------------------


def series_loss(d, weight):
    """mean of psi over all pairs, psi = sum over l >= 1 of b_l P_l: MMD and KSD alike."""
    weight = [0.0] + [float(w) for w in weight[1:] / weight[1:].sum()]

    def loss(z):
        x = F.normalize(z, dim=1)
        return series(x @ x.T, weight, d).mean()

    return loss


def mmd_heat(d):
    return series_loss(d, heat_spectrum(d, 5 / d, 1e-9))


def ksd_heat(d):
    # The Stein kernel is minus half the Laplacian of phi: the weights are multiplied by l(l+d-2),
    # and the same series serves.
    a = heat_spectrum(d, 5 / d, 1e-9)
    l = np.arange(len(a))
    return series_loss(d, a * l * (l + d - 2))


def mmd_band(d):
    return series_loss(d, band_spectrum(d, 2))


def mmd_induced(d):
    # A loop over the 64 nodes: a [B, B, 64] array at once is slower and takes 64 times the memory.
    node, weight = sphere_rule(64, d)
    rate = [float(r) for r in d * node**2]
    weight = [float(w) for w in weight]
    # The mean of phi over uniform pairs, by the same rule: cosines are distributed like the nodes.
    bias = sum(
        w * v * math.exp(-(1 - u) * r)
        for r, w in zip(rate, weight)
        for u, v in zip(node, weight)
    )

    def loss(z):
        x = F.normalize(z, dim=1)
        gap = 1 - x @ x.T
        total = torch.zeros_like(gap)
        for r, w in zip(rate, weight):
            total = total + w * torch.exp(-r * gap)
        return (total.mean() - bias) / (1 - bias)

    return loss


def kl_heat(d):
    # At t = 2/d the kernel falls to 1e-14 between orthogonal rows, where a float32 sum of terms up
    # to 1 is noise. What one can honestly do with a series is float64 and a clamp below its own
    # rounding; the rows and the gradient stay float32.
    weight = [float(w) for w in heat_spectrum(d, 2 / d, 1e-18)]
    log_area = math.log(2) + d / 2 * math.log(math.pi) - math.lgamma(d / 2)
    norm = max(-log_area, -math.log(weight[0]))

    def loss(z):
        x = F.normalize(z.double(), dim=1)
        n = x.shape[0]
        phi = series(x @ x.T, weight, d).clamp(min=1e-18)
        phi = phi.masked_fill(torch.eye(n, dtype=torch.bool, device=z.device), 0)
        return 1 + torch.log(phi.sum(dim=1) / (n - 1)).mean() / norm

    return loss


def susreg(d, slices=1024, knots=17):
    t = torch.linspace(-5, 5, knots)
    weight = torch.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) * (t[1] - t[0])
    weight[0] /= 2
    weight[-1] /= 2
    node, share = sphere_rule(256, d)
    target = np.cos(np.outer(t.numpy(), node) * math.sqrt(d)) @ share
    target = torch.tensor(target, dtype=torch.float32)
    collapse = float((weight * (1 - target**2)).sum())

    def statistics_of(z):
        x = F.normalize(z, dim=1) * math.sqrt(d)
        direction = F.normalize(torch.randn(d, slices, device=z.device), dim=0)
        angle = (x @ direction).unsqueeze(-1) * t.to(z.device)
        cosine = angle.cos().mean(0) - target.to(z.device)
        sine = angle.sin().mean(0)
        return (cosine**2 + sine**2) @ weight.to(z.device) / collapse

    def loss(z):
        return statistics_of(z).mean()

    loss.slices = statistics_of
    return loss


METHODS = {
    "mmd-heat": mmd_heat,
    "ksd-heat": ksd_heat,
    "mmd-band": mmd_band,
    "mmd-induced": mmd_induced,
    "kl-heat": kl_heat,
    "susreg": susreg,
}


# ---- timing and checking -------------------------------------------------------------------------


def value_and_gradient(loss, z):
    z = z.detach().requires_grad_(True)
    value = loss(z)
    value.backward()
    return float(value.detach()), z.grad


def measure_ms(loss, z):
    """Median and least over warm runs: at least 5, or 3 where one takes over a second."""
    value_and_gradient(loss, z)
    times = []
    while len(times) < 5 or (sum(times) < 0.5 and len(times) < 100):
        if len(times) >= 3 and sum(times) > 3:
            break
        begin = time.perf_counter()
        value_and_gradient(loss, z)
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times), 1e3 * min(times)


def measure_gpu_ms(loss, z):
    """Median of CUDA events over warm runs, or None where memory does not suffice."""

    def once():
        leaf = z.detach().requires_grad_(True)
        loss(leaf).backward()

    try:
        for _ in range(3):
            once()
        torch.cuda.synchronize()
        times = []
        for _ in range(20):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            once()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times)
    except torch.cuda.OutOfMemoryError:
        return None
    finally:
        torch.cuda.empty_cache()


def gpu_line(method, batch, loss, z):
    torch.cuda.reset_peak_memory_stats()
    line = {"method": method, "B": batch, "ms": measure_gpu_ms(loss, z)}
    line["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    torch._dynamo.reset()
    line["compile_ms"] = measure_gpu_ms(torch.compile(loss), z)
    return line


def run_zonal(program, method, z):
    """Value and gradient of the same rows, in double."""
    with tempfile.TemporaryDirectory() as folder:
        rows, gradient = os.path.join(folder, "x.npy"), os.path.join(folder, "g.npy")
        np.save(rows, z.numpy())
        command = [program, "loss", rows, "--method", method, "--grad", gradient, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["value"], np.load(gradient)


def disagreement(program, method, loss, z):
    """Both values, and their distance in units of what is allowed."""
    torch.manual_seed(1)
    value, gradient = value_and_gradient(loss, z)
    other, other_gradient = run_zonal(program, method, z)
    if method == "susreg":
        # Other directions: the means differ by chance, with a spread known from the slices. The
        # gradients are as noisy as they are large, and are not compared.
        with torch.no_grad():
            each = loss.slices(z)
        spread = float(each.std()) / math.sqrt(len(each)) * math.sqrt(2)
        return value, other, abs(value - other) / (6 * spread)
    # float32 sums of B^2 terms of which each is right to 1e-7 or so.
    error = abs(value - other) / (1e-6 + 1e-4 * abs(other))
    apart = np.linalg.norm(gradient.numpy() - other_gradient) / np.linalg.norm(other_gradient)
    return value, other, max(error, apart / 2e-3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--batch", default="256,1024")
    parser.add_argument("--method", default=",".join(METHODS))
    parser.add_argument("--threads", type=int, default=0, help="0: all this process may use")
    parser.add_argument("--zonal", help="the program to compare values with")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--limit", type=float, default=60, help="seconds a run may take")
    options = parser.parse_args()
    options.device, _, number = options.device.partition(":")
    if options.device == "cuda":
        torch.cuda.set_device(int(number or 0))
    torch.set_num_threads(options.threads or len(os.sched_getaffinity(0)))
    if options.device == "cuda":
        torch.set_float32_matmul_precision("high")
    agree = True
    for method in options.method.split(","):
        if method not in METHODS:
            print(f"loss_torch: there is no {method} here", file=sys.stderr)
            continue
        loss, before = METHODS[method](options.dim), None
        for batch in (int(b) for b in options.batch.split(",")):
            if before and before[1] * (batch / before[0]) ** 2 > 1e3 * options.limit:
                print(f"loss_torch: {method} at B = {batch} left out: too slow", file=sys.stderr)
                continue
            generator = torch.Generator().manual_seed(0)
            z = torch.randn(batch, options.dim, generator=generator)
            if options.device == "cuda":
                print(json.dumps(gpu_line(method, batch, loss, z.cuda())), flush=True)
                continue
            ms, least = measure_ms(loss, z)
            before = (batch, ms)
            line = {"method": method, "B": batch, "ms": ms, "least_ms": least}
            if options.zonal:
                line["value"], line["zonal"], line["error"] = disagreement(
                    options.zonal, method, loss, z
                )
                if not line["error"] <= 1:
                    agree = False
                    print(
                        f"loss_torch: {method} at B = {batch}: {line['value']} here, "
                        f"{line['zonal']} by zonal",
                        file=sys.stderr,
                    )
            print(json.dumps(line), flush=True)
    sys.exit(0 if agree else 1)


if __name__ == "__main__":
    main()
