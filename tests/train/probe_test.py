#!/usr/bin/env python3
"""zonal train --probe from the outside: its lines and curves, the same weights as without it, going on
after a stop, what is refused; and --eval-split. ZONAL_PROGRAM is the program to test."""
import json
import os
import struct

from harness import case, refused, run, run_tests
from train_test import clear, lines, read, train, trained, write_idx

SMALL = (
    "--side 12 --width 0.0625 --projector 16-8 --batch 16 --steps 24 --eval knn --eval-every 8 "
    "--threads 1 --workers 1 --precision fp32 --device cpu --view-brightness 0 --view-contrast 0 "
    "--view-solarise 0 --log-every 4 --checkpoint-every 12"
).split()


def weights(path):
    """Of a checkpoint: name to bytes, without the probe's own."""
    data = read(path)
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    return {
        name: data[8 + size :][slice(*about["data_offsets"])]
        for name, about in header.items()
        if name != "__metadata__" and "probe." not in name
    }


def probe_lines(folder):
    return [line for line in lines(folder) if line["kind"] == "probe"]


def test_probe():
    write_idx("images", 120)
    last = "/checkpoints/step-00000024.safetensors"
    done = trained("images", *SMALL, "--probe", "--probe-lr", 0.02, "--out", "with")
    trained("images", *SMALL, "--out", "without", "--quiet")

    @case("--probe: a line for each evaluation, and it learns what is easy")
    def _():
        found = probe_lines("with")
        assert [line["step"] for line in found] == [8, 16, 24], found
        assert all(line["epoch"] == line["step"] / 6 for line in found), found
        assert found[-1]["accuracy"] > 0.6, found  # of three classes
        assert not probe_lines("without") and "online probe" in done.stdout, done.stdout

    @case("--probe: the weights are those of a run without it, bit for bit")
    def _():
        assert weights("with" + last) == weights("without" + last)
        assert [l for l in lines("with") if l["kind"] != "probe"] == lines("without")

    @case("--probe: goes on after a stop with the same probe")
    def _():
        trained("images", *SMALL, "--probe", "--probe-lr", 0.02, "--out", "cut", "--quiet")
        os.remove("cut" + last)
        trained("--resume", "cut", "--quiet")
        assert read("cut" + last) == read("with" + last)
        assert probe_lines("cut") == probe_lines("with")

    @case("--probe: zonal metrics, the report, export and eval know the run")
    def _():
        table = run("metrics", "with", "--csv").stdout.splitlines()
        assert "probe_accuracy" in table[0] and "probe_epoch" not in table[0], table[0]
        assert "probe_accuracy" in run("metrics", "with", "--kind", "probe").stdout
        assert run("report", "with", "--no-examples", "--out", "r.html").returncode == 0
        assert b"Online probe" in read("r.html")
        exported = run("export", "with", "--out", "b.safetensors")
        assert exported.returncode == 0 and b"probe." not in read("b.safetensors")
        assert run("eval", "with", "--protocol", "knn").returncode == 0
        more = train("images", *SMALL, "--init", "with" + last, "--out", "more")
        assert more.returncode == 0, more.stderr

    @case("--val-share 0 --eval-split test: all images are trained on, the test set is looked at")
    def _():
        options = [*SMALL, "--val-share", 0, "--probe", "--quiet"]
        trained("images", *options, "--eval-split", "test", "--out", "all")
        assert [line["epoch"] for line in probe_lines("all")] == [8 / 7, 16 / 7, 24 / 7]  # 120 // 16

    refused("--val-share 0 without images to evaluate on", 2, "--eval-split test", "train", "images", *SMALL,
            "--val-share", 0)  # fmt: skip
    refused("--probe without an evaluation", 2, "--eval knn", "train", "images", "--batch", 16,
            "--device", "cpu", "--eval", "none", "--probe")  # fmt: skip
    refused("--probe with retrieval", 2, "retrieval", "train", "textures:disk", "--texture-count", 16,
            "--texture-size", 16, "--side", 16, "--batch", 8, "--device", "cpu", "--probe")  # fmt: skip
    clear()


if __name__ == "__main__":
    run_tests(test_probe)
