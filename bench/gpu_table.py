#!/usr/bin/env python3
"""The tables of make gpu-bench, made of JSON lines.

    bench/gpu_table.py --rates          measure the GPU: a JSON line (needs PyTorch)
    bench/gpu_table.py LINES            the tables of a file of lines, by "zonal bench loss --json"
                                        and "zonal bench train --json"

Losses. The floor of a row is the larger of two times: its products over the rate of the tensor
cores in halves, and its least traffic over the bandwidth, both as measured by --rates. What is
counted:

    pairs      4 B^2 d operations (cosines and their gradient, 2 each), 6 for KL, which needs the
               cosines twice; half of the cosines suffice, as they are symmetric: 3 and 4
    moments    3 B d^2: half of x x^T, and E x
    slices     4 B d slices
    fp32       three times as many, by the split into two halves; tf32 and bf16: once
    traffic    rows read and gradient written once, 4 bytes each; moments read the rows twice more
               (norms, then sums about the mean, then the gradient)

Training. "speed" is that of the step with the making of its views, against the step alone; memory
is what the trainer took from the device, and for PyTorch the most that its tensors held.
"""
import json
import sys


def measure_rates():
    import torch

    def best_ms(work):
        for _ in range(3):
            work()
        times = []
        for _ in range(10):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return min(times)

    n = 8192
    a, b, c = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(3))
    product = best_ms(lambda: torch.matmul(a, b, out=c))
    source = torch.empty(1 << 30, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    copy = best_ms(lambda: target.copy_(source))
    return {
        "gpu": torch.cuda.get_device_name(0),
        "teraflops": 2 * n**3 / product / 1e9,
        "terabytes_per_s": 2 * 4 * source.numel() / copy / 1e9,
    }


def floor_ms(row, rates):
    b, d, method = row["n"], row["d"], row["method"]
    reads = 1
    if row["implementation"] == "slices":
        operations = 4 * b * d * 1024
    elif row["implementation"] == "moments":
        operations, reads = 3 * b * d * d, 3
    else:
        operations = (4 if method.startswith("kl") else 3) * b * b * d
    if row["precision"] == "fp32":
        operations *= 3
    by_products = operations / rates["teraflops"] / 1e9
    by_traffic = (reads + 1) * 4 * b * d / rates["terabytes_per_s"] / 1e9
    return max(by_products, by_traffic)


def print_losses(lines):
    rates = next((l for l in lines if "teraflops" in l), None)
    torch = {(l["method"], l["n"]): l["torch"] for l in lines if "torch" in l and "n" in l}
    if rates:
        print(
            f"{rates['gpu']}: {rates['teraflops']:.0f} TFLOP/s in halves, "
            f"{rates['terabytes_per_s']:.2f} TB/s"
        )
    print(
        f"{'method':<12} {'B':>8} {'':<5} {'code':<8} {'ms':>9} {'floor':>9} {'share':>6}"
        f" {'eager':>9} {'ratio':>7} {'compiled':>9} {'ratio':>7}"
    )
    for row in lines:
        if "implementation" not in row:
            continue
        text = f"{row['method']:<12} {row['n']:>8} {row['precision']:<5} {row['implementation']:<8}"
        text += f" {row['ms']:>9.4f}"
        if rates:
            floor = floor_ms(row, rates)
            text += f" {floor:>9.4f} {100 * floor / row['ms']:>5.0f}%"
        other = torch.get((row["method"], row["n"]))
        if other:
            for key in ("ms", "compile_ms"):
                if other[key] is None:
                    text += f" {'no room':>9} {'':>7}"
                else:
                    text += f" {other[key]:>9.3f} {other[key] / row['ms']:>7.1f}"
        print(text.rstrip())


def print_training(lines):
    torch = {l["row"]: l["torch"] for l in lines if "torch" in l and "row" in l}
    print(
        f"{'step of training':<21} {'ms':>8} {'images/s':>10} {'views in':>9} {'speed':>6}"
        f" {'MiB':>7} {'PyTorch':>8} {'ratio':>6} {'MiB':>7}  {'mode'}"
    )
    for row in lines:
        if "images_per_s" not in row:
            continue
        text = f"{row['row']:<21} {row['ms']:>8.3f} {row['images_per_s']:>10.0f}"
        if row["with_views_ms"] is None:
            text += f" {'':>9} {'':>6}"
        else:
            text += f" {row['with_views_ms']:>9.3f} {100 * row['with_views_speed']:>5.0f}%"
        text += f" {row['device_mib']:>7.0f}" if row["device_mib"] is not None else f" {'':>7}"
        other = torch.get(row["row"])
        if other and other["ms"] is not None:
            text += f" {other['ms']:>8.3f} {other['ms'] / row['ms']:>6.2f}"
            text += f" {other['peak_mib']:>7.0f}" if other["peak_mib"] else f" {'':>7}"
            text += f"  {other['mode']}"
        print(text.rstrip())


def main():
    if sys.argv[1:] == ["--rates"]:
        print(json.dumps(measure_rates()))
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.startswith("{")]
    if any("implementation" in line for line in lines):
        print_losses(lines)
    if any("images_per_s" in line for line in lines):
        print_training(lines)


if __name__ == "__main__":
    main()
