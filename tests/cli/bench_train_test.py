#!/usr/bin/env python3
"""zonal bench train from the outside: the fields of its lines, that they agree with each other and
with a count of the network's work made here, and how bad input is refused. ZONAL_PROGRAM is the
program to test."""
import json

from harness import SOURCE, case, refused, report, run, run_tests, skip

SMALL = ("--device", "cpu", "--batch", 2, "--width", 0.125, "--threads", 1)


def lines_of(*arguments):
    done = run("bench", "train", *SMALL, *arguments, "--json")
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def work_of_resnet18(side, views):
    """Multiply-adds of one forward of the encoder with an eighth of the channels, by hand."""
    after = lambda s: (s - 1) // 2 + 1  # a padded layer of stride 2
    side = after(side)
    total = side * side * 8 * 49 * 3
    side, inputs = after(side), 8
    for outputs in (8, 16, 32, 64):
        for block in range(2):
            if outputs > 8 and block == 0:
                side = after(side)
                total += side * side * outputs * inputs  # the shortcut
            total += side * side * outputs * 9 * (inputs + outputs)
            inputs = outputs
    return views * total


def test_lines():
    @case("a line for each row, whose numbers agree with each other")
    def _():
        first, second = lines_of("--rows", "resnet18@32,resnet50@24/1")
        assert (first["row"], second["row"]) == ("resnet18@32", "resnet50@24/1")
        for line in (first, second):
            assert line["device"] == "cpu" and line["precision"] == "bf16"
            assert line["batch"] == 2 and line["views"] == 2 and line["width"] == 0.125
            assert 0 < line["least_ms"] <= line["ms"] and line["steps"] >= 3
            assert abs(line["images_per_s"] * line["ms"] / 2000 - 1) < 1e-12
            assert abs(line["with_views_speed"] * line["with_views_ms"] / line["ms"] - 1) < 1e-12
            assert line["device_mib"] is None  # the host's memory is not counted
            assert line["objective_ms"] > 0 and line["optimiser_ms"] > 0
            assert 0 <= line["loss"] < 10

    @case("--bare leaves the second measurement out; fp32")
    def _():
        (line,) = lines_of("--rows", "resnet18@16", "--bare", "--precision", "fp32")
        assert line["with_views_ms"] is None and line["with_views_speed"] is None
        assert line["precision"] == "fp32" and line["ms"] > 0

    @case("--profile: every layer once, with the work that a count by hand gives")
    def _():
        step, *layers = lines_of("--rows", "resnet18@32", "--bare", "--profile")
        assert step["row"] == "resnet18@32" and all(l["row"] == "resnet18@32" for l in layers)
        convolutions = [l for l in layers if l["layer"].startswith("convolution")]
        assert sum(l["layers"] for l in convolutions) == 20
        assert sum(l["layers"] for l in layers if l["layer"].startswith("norm")) == 22
        assert sum(l["layers"] for l in layers if l["layer"].startswith("linear")) == 3
        work = sum(l["layers"] * l["forward"]["gflop"] for l in convolutions)
        assert abs(work / (2e-9 * work_of_resnet18(32, 4)) - 1) < 1e-12, work
        stem = convolutions[0]
        assert "data" not in stem and stem["filter"]["gflop"] == stem["forward"]["gflop"]
        # Inputs 4 x 32 x 32 x 3 and outputs 4 x 16 x 16 x 8 in bf16, 8 x 7 x 7 x 3 weights.
        assert stem["forward"]["mib"] * 2**20 == 2 * (12288 + 8192 + 1176), stem
        assert stem["filter"]["mib"] * 2**20 == 2 * (12288 + 8192) + 4 * 1176, stem
        assert all(part["ms"] >= 0 and part["floor_ms"] is None
                   for l in layers for part in l.values() if isinstance(part, dict))

    @case("/small and /v3: another stem, more views")
    def _():
        step, *layers = lines_of("--rows", "resnet18@16/small/v3", "--bare", "--profile")
        assert step["views"] == 3 and abs(step["images_per_s"] * step["ms"] / 2000 - 1) < 1e-12
        stem = layers[0]
        assert stem["layer"].startswith("convolution 3x3/1 3-8 @16"), stem
        # Three views of two images: every pixel has 27 products for each of 8 outputs.
        assert abs(stem["forward"]["gflop"] / (2e-9 * 6 * 16 * 16 * 27 * 8) - 1) < 1e-12, stem

    done = run("bench", "train", *SMALL, "--rows", "resnet18@16/small/v3,resnet50@32/1", "--bare", "--json",
               "--precision", "fp32", "--torch", cwd=SOURCE)
    name = "--torch: the same networks, a line of PyTorch's for each row"
    if "no torch module" in done.stderr:
        skip(name, done.stderr.strip())
    else:
        @case(name)
        def _():
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            assert done.returncode == 0 and len(lines) == 4, done.stderr
            for ours, other in zip(lines[:2], lines[2:]):
                assert other["row"] == ours["row"] == other["torch"]["row"]
                assert other["ms"] == ours["ms"] and other["torch"]["ms"] > 0
                assert other["torch"]["parameters"] == ours["parameters"], other

    @case("the table fits 80 columns and names its rows")
    def _():
        done = run("bench", "train", *SMALL, "--rows", "resnet18@16,resnet34@16/1", "--bare",
                   "--profile")
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert max(map(len, done.stdout.splitlines())) <= 80
        assert "\nresnet18@16 " in done.stdout and "\nresnet34@16/1 " in done.stdout
        assert "convolution 7x7/2 1-8 @16" in done.stdout


def test_refusals():
    for row in ("resnet19@32", "resnet18", "resnet18@", "resnet18@4", "resnet18@64/2", "vit@224",
                "resnet18@64x", "resnet18@64,", "resnet18@64/1/1", "resnet18@64/v1", "resnet18@64/v33",
                "resnet18@64/v", "resnet18@64/v8x", "resnet18@64/v4/v8", "resnet18@64/smal", "resnet18@64/",
                "r" * 100):
        refused(f"--rows {row[:20]}", 2, "--rows", "bench", "train", "--rows", row)
    refused("too many rows", 2, "at most 16", "bench", "train", "--rows",
            ",".join(["resnet18@16"] * 17))
    refused("a batch of one", 2, "--batch", "bench", "train", "--batch", 1)
    refused("an unknown loss", 2, "mmd-heat", "bench", "train", "--method", "mmd-heet")
    refused("a comparison of another loss", 2, "--torch", "bench", "train", "--method", "mmd-band",
            "--torch")
    done = run("bench", "train", "--help")
    report(done.returncode == 0 and done.stdout.startswith("usage: zonal")
           and max(map(len, done.stdout.splitlines())) <= 80, "zonal bench train --help")


run_tests(test_lines, test_refusals)
