"""Ranks that share one GPU (their collectives go through host memory) against one rank on it: losses and
training, as a user starts them. Needs a GPU."""
import json
import os
import tempfile

import numpy as np

import launcher
from harness import PROGRAM, case, finish, run, run_json, skip

METHODS = ["mmd-heat", "mmd-band", "ksd-heat", "kl-heat", "susreg"]
KINDS = ["tcp"] + (["mpi"] if launcher.has_mpi(PROGRAM) else [])
LOSS = 1e-6      # of the value and of the gradient's norm: what is promised
TRAINING = 1e-5  # of what is logged over 20 steps
TRAIN = ("textures:disk --texture-count 80 --texture-size 64 --side 32 --width 0.25 --projector 64-32 "
         "--view-erase 0 --optimiser sgd --schedule constant --warmup 0 --lr 1e-6 --precision fp32 --device cuda "
         "--batch 40 --steps 20 --eval-count 20 --eval-every 10 --no-tensorboard --log-every 1").split()


def loss(ranks, method, kind):
    words = ["loss", "x.npy", "--method", method, "--device", "cuda", "--precision", "fp32", "--quiet"]
    one = run_json(*words, "--grad", "one.npy")
    job = launcher.run(kind, ranks, [PROGRAM, *words, "--grad", "many.npy", "--json"])
    assert job.status == 0, job.text()
    many = json.loads(job.text())
    assert many["ranks"] == ranks
    apart = abs(many["value"] - one["value"]) / max(abs(one["value"]), 1 if method.startswith("kl") else 0)
    got, exact = np.load("many.npy"), np.load("one.npy")
    error = np.linalg.norm(got - exact) / np.linalg.norm(exact)
    print(f"# {method}, {ranks} ranks: value apart by {apart:.1e}, gradient by {error:.1e}")
    assert got.shape == exact.shape and apart <= LOSS and error <= LOSS, (apart, error)


def logged(folder, kind):
    with open(f"{folder}/metrics.jsonl") as file:
        return {line["step"]: line for line in map(json.loads, file) if line["kind"] == kind}


def training(ranks, kind):
    folder = f"{kind}{ranks}"
    job = launcher.run(kind, ranks, [PROGRAM, "train", *TRAIN, "--out", folder], seconds=120)
    assert job.status == 0 and f"ranks     {ranks} over" in job.text(), job.text()
    ours, theirs = logged(folder, "step"), logged("one", "step")
    assert ours.keys() == theirs.keys() and len(ours) == 20
    apart = max(abs(ours[s][n] / theirs[s][n] - 1) for s in ours for n in ("loss", "invariance", "discrepancy"))
    print(f"# {kind}, {ranks} ranks: 20 steps apart by {apart:.1e}")
    assert apart <= TRAINING, apart


with tempfile.TemporaryDirectory() as where:
    os.chdir(where)
    if "\ncuda" not in run("devices").stdout:
        skip("ranks that share a GPU", "no GPU")
    else:
        np.save("x.npy", np.random.default_rng(1).normal(size=(1003, 96)) + 0.3)
        for method in METHODS:
            for kind, ranks in [("tcp", 2), ("tcp", 3), ("tcp", 4), *((k, 4) for k in KINDS[1:])]:
                case(f"{kind}, {ranks} ranks: {method}")(lambda: loss(ranks, method, kind))

        @case("one rank trains")
        def _():
            alone = run("train", *TRAIN, "--out", "one")
            assert alone.returncode == 0, alone.stderr

        for kind, ranks in [("tcp", 2), ("tcp", 4), *((k, 4) for k in KINDS[1:])]:
            case(f"{kind}, {ranks} ranks train as one does")(lambda: training(ranks, kind))
    os.chdir("/")
finish()
