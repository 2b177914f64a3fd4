#!/usr/bin/env python3
"""torchvision's resnet18 in PyTorch on the CPU, timed: what bench/nn_layers.c is compared with.

    bench/nn_torch.py [--batch 128] [--side 64] [--threads 2] [--runs 5] [--layout nchw|nhwc]
                      [--layers build/bench/nn_layers]

Training mode, fp32, gradients of all parameters; the gradient with respect to the images is not
asked for, and there is neither loss nor optimiser. The fastest run counts. A JSON line is printed:
{"batch": 128, "side": 64, "threads": 2, "forward_ms": ..., "backward_ms": ..., "ms": ...}.
With --layers, that program is run in turns with PyTorch, in fp32 and bf16 with the same batch, side
and threads, so that what else the machine does meets both alike, and "ratio" says how many times
faster it is. The exit status is 3 when there is no torchvision.
"""
import argparse
import json
import subprocess
import sys
import time

try:
    import torch
    import torchvision
except ImportError as missing:
    print(f"nn_torch: {missing}", file=sys.stderr)
    sys.exit(3)


class Step:
    """One forward and backward of a resnet18."""

    def __init__(self, options):
        layout = torch.channels_last if options.layout == "nhwc" else torch.contiguous_format
        torch.manual_seed(0)
        torch.set_num_threads(options.threads)
        self.net = torchvision.models.resnet18().train().to(memory_format=layout)
        self.images = torch.randn(options.batch, 3, options.side, options.side)
        self.images = self.images.contiguous(memory_format=layout)
        self.gradient = torch.randn(options.batch, 1000)

    def run(self):
        """Milliseconds of forward and of backward."""
        self.net.zero_grad()
        begin = time.perf_counter()
        y = self.net(self.images)
        middle = time.perf_counter()
        y.backward(self.gradient)
        return 1e3 * (middle - begin), 1e3 * (time.perf_counter() - middle)


def layers_ms(options, dtype):
    command = [options.layers, "--batch", str(options.batch), "--side", str(options.side),
               "--threads", str(options.threads), "--runs", "2"]
    out = subprocess.run(command + (["--bf16"] if dtype == "bf16" else []), check=True,
                         capture_output=True, text=True).stdout
    return json.loads(out)["ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--layout", choices=("nchw", "nhwc"), default="nchw")
    parser.add_argument("--layers")
    options = parser.parse_args()
    step = Step(options)
    step.run()  # warms up
    times, ours = [], {"fp32": [], "bf16": []}
    for _ in range(options.runs):
        times.append(step.run())
        for dtype in ours if options.layers else ():
            ours[dtype].append(layers_ms(options, dtype))
    forward, backward = min(times, key=sum)
    report = {"batch": options.batch, "side": options.side, "threads": options.threads,
              "layout": options.layout, "forward_ms": round(forward, 1),
              "backward_ms": round(backward, 1), "ms": round(forward + backward, 1),
              "torch": torch.__version__}
    for dtype, measured in ours.items():
        if measured:
            report[f"layers_{dtype}_ms"] = round(min(measured), 1)
            report[f"ratio_{dtype}"] = round((forward + backward) / min(measured), 2)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
