"""Trains a small torchvision ResNet on Fashion-MNIST without labels, with each loss in turn, and prints how
well its features classify: k-NN on 5,000 labelled images, beside the same network before training.

    python train_small.py [--methods mmd-heat,kl-heat] [--steps 100] [--batch 128] [--data FOLDER]

FOLDER has MNIST's files (the Debian package dataset-fashion-mnist, or what torchvision downloads). At its
defaults it takes two to three minutes on two cores.
"""

import argparse
import copy
import gzip
import os
import struct
import time

import numpy as np
import torch
import torchvision
from torch.nn import functional

import zonal.losses
from zonal.callbacks import CollapseMonitor

METHODS = "mmd-band,mmd-heat,ksd-heat,kl-heat,susreg,sigreg"
DATA = "/usr/share/datasets/fashion-mnist"


def read_images(folder, part):
    """uint8 [n, 1, 28, 28] and labels, from files that may be compressed."""

    def content(name, head):
        path = os.path.join(folder, f"{part}-{name}-ubyte")
        with gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb") as file:
            data = file.read()
        count, *shape = struct.unpack(f">{head}I", data[4 : 4 + 4 * head])
        array = np.frombuffer(data, np.uint8, offset=4 + 4 * head).reshape(count, *shape)
        return torch.from_numpy(array.copy())

    return content("images-idx3", 3)[:, None], content("labels-idx1", 1)


def augment(images, generator):
    """Random crops of at least half the area, flips, contrast and brightness; float [n, 1, 28, 28]."""
    n = len(images)
    x = images.float() / 255
    side = torch.empty(n).uniform_(0.5, 1, generator=generator).sqrt()
    flip = torch.randint(0, 2, (n,), generator=generator) * 2.0 - 1
    place = torch.empty(n, 2).uniform_(-1, 1, generator=generator) * (1 - side)[:, None]
    zero = torch.zeros(n)
    rows = [torch.stack([side * flip, zero, place[:, 0]], 1), torch.stack([zero, side, place[:, 1]], 1)]
    grid = functional.affine_grid(torch.stack(rows, 1), list(x.shape), align_corners=False)
    x = functional.grid_sample(x, grid, align_corners=False)
    contrast, brightness = torch.empty(2, n, 1, 1, 1).uniform_(-1, 1, generator=generator)
    return normalise(x * (1 + 0.4 * contrast) + 0.2 * brightness)


def normalise(x):
    return (x - 0.29) / 0.35


def make_network(seed):
    """The first blocks of a ResNet-18 for small grey images, and a projector, of use in training only."""
    torch.manual_seed(seed)
    backbone = torchvision.models.resnet18()
    backbone.conv1 = torch.nn.Conv2d(1, 64, 3, 2, 1, bias=False)
    backbone.layer1, backbone.layer2 = backbone.layer1[:1], backbone.layer2[:1]
    backbone.layer3 = backbone.layer4 = backbone.fc = torch.nn.Identity()
    projector = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.BatchNorm1d(256), torch.nn.GELU(), torch.nn.Linear(256, 64)
    )
    return backbone, projector


def train(method, network, images, steps, batch, rate):
    backbone, projector = network
    loss = zonal.losses.SphereJEPALoss(method)  # alignment and uniformity of views [2, B, d]
    monitor = CollapseMonitor(every=max(1, steps // 4), loss=loss, log=lambda line: None)
    generator = torch.Generator().manual_seed(1)
    parameters = [*backbone.parameters(), *projector.parameters()]
    optimiser = torch.optim.AdamW(parameters, rate, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    for _ in range(steps):
        chosen = images[torch.randint(0, len(images), (batch,), generator=generator)]
        views = torch.cat([augment(chosen, generator), augment(chosen, generator)])
        z = projector(backbone(views)).reshape(2, batch, -1)
        value = loss(z)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        schedule.step()
        monitor(z)
    return value.item(), monitor.report


@torch.no_grad()
def features(backbone, images):
    backbone.eval()
    found = torch.cat([backbone(normalise(part.float() / 255)) for part in images.split(500)])
    backbone.train()
    return functional.normalize(found)


def knn(backbone, train_set, test_set, k=20, temperature=0.07):
    """The share of test images whose neighbours vote for their class."""
    (labelled, labels), (images, truth) = train_set, test_set
    cosine, nearest = (features(backbone, images) @ features(backbone, labelled).T).topk(k)
    votes = torch.zeros(len(images), 10).scatter_add_(1, labels.long()[nearest], (cosine / temperature).exp())
    return (votes.argmax(1) == truth).float().mean().item()


def main():
    as_written = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_written)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--labelled", type=int, default=5000)
    parser.add_argument("--tested", type=int, default=2000)
    parser.add_argument("--data", default=DATA)
    chosen = parser.parse_args()

    images, labels = read_images(chosen.data, "train")
    test_images, test_labels = read_images(chosen.data, "t10k")
    train_set = images[: chosen.labelled], labels[: chosen.labelled]
    test_set = test_images[: chosen.tested], test_labels[: chosen.tested]
    start = make_network(0)
    print(f"{'method':10} {'loss':>8} {'effective rank':>15} {'k-NN, %':>8} {'seconds':>8}")
    print(f"{'untrained':10} {'':8} {'':15} {100 * knn(start[0], train_set, test_set):8.1f}", flush=True)
    for method in chosen.methods.split(","):
        network = copy.deepcopy(start)
        begun = time.time()
        value, report = train(method, network, images, chosen.steps, chosen.batch, chosen.rate)
        seconds = time.time() - begun
        rank = f"{report.effective_rank:.1f} of {report.effective_rank_expected:.1f}"
        accuracy = 100 * knn(network[0], train_set, test_set)
        print(f"{method:10} {value:8.4f} {rank:>15} {accuracy:8.1f} {seconds:8.1f}", flush=True)


if __name__ == "__main__":
    main()
