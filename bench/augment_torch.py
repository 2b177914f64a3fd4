#!/usr/bin/env python3
"""BYOL's two pipelines in torchvision and Pillow, timed: what "zonal bench augment" is compared with.

    bench/augment_torch.py [--views 512] [--side 224] [--workers 2] [--blur pillow|torchvision]
                           [--runs 5]

Written as a careful user would: images decoded beforehand, transforms on PIL images (faster than
on float tensors), one process per worker, each with one torch thread and its share of the views.
Every view goes through RandomResizedCrop, flip, ColorJitter, grey, blur, solarise, ToTensor and
Normalize. torchvision's own GaussianBlur is a convolution with all taps of the square; the blur
used unless asked otherwise is Pillow's, which is several times faster and only near a Gaussian.
What is timed is the making of the views inside the workers: results are not sent back.

A JSON line is printed: {"views": 512, "workers": 2, "ms": ..., "views_per_s": ...}, the median over
the runs; "cpu_ms_per_view" is the processor's time, which others
on the machine disturb less. The exit status is 3 when there is no torchvision.
"""
import argparse
import json
import multiprocessing
import random
import statistics
import sys
import time

try:
    import numpy as np
    import torch
    import torchvision
    from PIL import Image, ImageFilter
    from torchvision import transforms as T
except ImportError as missing:
    print(f"augment_torch: {missing}", file=sys.stderr)
    sys.exit(3)

IMAGES, WIDTH, HEIGHT = 64, 500, 375


class PillowBlur:
    def __call__(self, image):
        return image.filter(ImageFilter.GaussianBlur(radius=random.uniform(0.1, 2.0)))


def pipeline(first, side, blur_kind):
    blur = PillowBlur()
    if blur_kind == "torchvision":
        blur = T.GaussianBlur(side // 10 | 1, sigma=(0.1, 2.0))
    return T.Compose([
        T.RandomResizedCrop(side, scale=(0.08, 1), ratio=(3 / 4, 4 / 3)),
        T.RandomHorizontalFlip(0.5),
        T.RandomApply([T.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
        T.RandomGrayscale(0.2),
        T.RandomApply([blur], p=1.0 if first else 0.1),
        T.RandomSolarize(128, p=0.0 if first else 0.2),
        T.ToTensor(),
        T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ])


def make_images(seed):
    """Smooth noise: resampling and colours cost the same for every content."""
    generator = np.random.default_rng(seed)
    small = generator.integers(0, 256, (IMAGES, HEIGHT // 5, WIDTH // 5, 3), dtype=np.uint8)
    return [Image.fromarray(p).resize((WIDTH, HEIGHT), Image.BILINEAR) for p in small]


def work(number, options, start, done):
    """Makes this worker's share of the views once per message; answers when it is made."""
    torch.set_num_threads(1)
    torch.manual_seed(number)
    random.seed(number)
    both = [pipeline(True, options.side, options.blur), pipeline(False, options.side, options.blur)]
    images = make_images(number)
    out = torch.empty(2, 3, options.side, options.side)
    while start.get():
        begin = time.process_time()
        for n in range(number, options.views // 2, options.workers):
            for v in range(2):
                out[v] = both[v](images[n % IMAGES])
        done.put(time.process_time() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--views", type=int, default=512)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--blur", choices=("pillow", "torchvision"), default="pillow")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    done = multiprocessing.Queue()
    starts = [multiprocessing.Queue() for _ in range(options.workers)]
    workers = [multiprocessing.Process(target=work, args=(k, options, starts[k], done), daemon=True)
               for k in range(options.workers)]
    for worker in workers:
        worker.start()
    times, seconds = [], []
    for run in range(options.runs + 1):
        begin = time.perf_counter()
        for start in starts:
            start.put(True)
        used = sum(done.get() for _ in workers)
        if run > 0:  # the first warms up
            times.append(time.perf_counter() - begin)
            seconds.append(used)
    for start in starts:
        start.put(False)
    for worker in workers:
        worker.join()
    median = statistics.median(times)
    print(json.dumps({"views": options.views, "side": options.side, "workers": options.workers,
                      "blur": options.blur, "ms": round(1e3 * median, 1),
                      "views_per_s": round(options.views / median, 1),
                      "cpu_ms_per_view": round(1e3 * statistics.median(seconds) / options.views, 3),
                      "torchvision": torchvision.__version__, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
