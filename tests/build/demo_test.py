#!/usr/bin/env python3
"""scripts/demo.sh: that it runs to its end and shows what was measured. With the argument "learns":
that the whole demo learns, and that the exact loss wins. ZONAL_PROGRAM is the program to test."""
import json
import os
import re
import shutil
import subprocess
import sys

from harness import PROGRAM, SOURCE, case, run_tests

SCRIPT = os.path.join(SOURCE, "scripts", "demo.sh")
METHODS = ("susreg", "kl-heat")
CHANCE = 1 / 199  # 100 images of 2 views, less the view that looks

# The demo with four steps of a network of a few thousand weights.
SHORT = (
    "--texture-count 256 --width 0.03125 --projector 32-16 --steps 4 --log-every 2 --eval-every 2 "
    "--eval-count 100 --device cpu --precision fp32"
).split()


def demo(*options, timeout=100):
    return subprocess.run(
        [SCRIPT, "copy/zonal", *options], capture_output=True, text=True, timeout=timeout
    )


def evaluations(method):
    """R@1 by step, as the run has recorded them."""
    with open(f"copy/demo/{method}/metrics.jsonl") as file:
        found = [json.loads(line) for line in file]
    return {line["step"]: line["r1"] for line in found if line["kind"] == "eval"}


def recall(method):
    """R@1 of the evaluation at the end."""
    with open(f"copy/demo/{method}/eval/retrieval.json") as file:
        (result,) = json.load(file)["results"]
    return result["r1"]


def copy_program():
    os.mkdir("copy")
    shutil.copy(PROGRAM, "copy/zonal")


def test_short():
    copy_program()

    @case("the demo runs to its end, in 80 columns, also a second time")
    def _():
        for _ in range(2):
            done = demo(*SHORT)
            assert done.returncode == 0 and not done.stderr, done.stderr
            output = done.stdout.replace(os.getcwd() + "/", "").splitlines()
            assert max(map(len, output)) <= 80, output
            assert os.path.getsize("copy/demo/report.html") > 10000

        susreg, exact = map(evaluations, METHODS)
        rows = re.findall(r"^ +(\d+)  +([\d.]+) #* +([\d.]+) #*$", done.stdout, re.MULTILINE)
        shown = [(int(step), float(a), float(b)) for step, a, b in rows]
        assert shown == [
            (step, round(100 * susreg[step], 1), round(100 * exact[step], 1)) for step in (2, 4)
        ], (shown, susreg, exact)
        for method in METHODS:
            row = re.search(rf"^  \S*{method} +{method} +projector +(\S+)", done.stdout, re.MULTILINE)
            assert float(row.group(1)) == round(100 * recall(method), 2)

    @case("the demo fails when a step fails")
    def _():
        for step in ("train", "report", "eval", "sample", "test", "none"):
            with open("copy/zonal", "w") as file:
                file.write(
                    "#!/bin/sh\n"
                    'if [ "$1" = train ]; then mkdir -p "$7" && : > "$7/metrics.jsonl"; fi\n'
                    f'[ "$1" != {step} ]\n'
                )
            done = demo()
            assert (done.returncode == 0) == (step == "none"), (step, done.stderr)

    shutil.rmtree("copy")


def test_learns():
    copy_program()

    @case("the demo learns, and the exact loss wins")
    def _():
        done = demo(timeout=550)
        assert done.returncode == 0, done.stderr
        susreg, exact = map(recall, METHODS)
        print(f"# R@1: susreg {susreg:.3f}, kl-heat {exact:.3f}")
        assert susreg > 20 * CHANCE and exact > susreg + 0.05, (susreg, exact)

    shutil.rmtree("copy")


run_tests(test_learns if sys.argv[1:] == ["learns"] else test_short)
