#!/usr/bin/env python3
"""docs/tutorial.md: its commands run in the order of the page, on fewer and smaller images and for a few
steps; what it shows has the shape of what the program prints. ZONAL_PROGRAM is the program to test."""
import os
import re
import shlex
import shutil
import subprocess

from harness import PROGRAM, SOURCE, case, report, run, run_tests, skip

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # tests run side by side
DOCS = os.path.join(SOURCE, "docs")
with open(os.path.join(DOCS, "tutorial.md")) as page:
    PAGE = page.read()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.M | re.S)

# What the test puts in the place of an option's value, and adds to a command.
SHORTER = {"--count": "24", "--size": "40", "--side": "16", "--batch": "16", "--epochs": "3"}
ADDED = {
    "train": "--width 0.015625 --projector 16-8 --threads 1 --workers 1 --precision fp32 --device cpu "
    "--log-every 2 --eval-every 4 --eval-count 8".split(),
    "eval": ["--device", "cpu"],
    "embed": ["--device", "cpu"],
    "report": ["--images", "20"],
}


def shortened(line):
    words = shlex.split(line)
    for i, word in enumerate(words[:-1]):
        words[i + 1] = SHORTER.get(word, words[i + 1])
    if words[0] == "zonal":
        words[0] = PROGRAM
        words += ADDED.get(words[1], []) if "--resume" not in words else []
    return words


def shape(line):
    """A line without its numbers. Of those that describe what was asked for, the first word alone."""
    if re.match(r"(network|projector|data|views|steps|loss|eval|run) +", line):
        return line.split()[0]
    return " ".join(re.sub(r"[<+-]?\d[\d.]*(e[+-]?\d+)?", "#", line).split())


def compare_output(shown, printed):
    printed = {shape(line) for line in printed.splitlines()}
    lines = [line for line in shown.splitlines() if line.strip() and not line.startswith(("...", "time "))]
    strange = [line for line in lines if shape(line) not in printed]
    report(not strange and lines, "what the page shows: " + lines[0].strip(), f"{strange}\n{printed}")


def test_commands():
    has_png = run("data", "textures", "--family", "disk", "--count", 1, "--size", 8, "--out", "one")
    if has_png.returncode != 0:
        return skip("the commands of the tutorial", "this build writes no PNG files")
    shutil.rmtree("one")
    commands, printed = 0, ""
    for kind, text in BLOCKS:
        if kind == "sh":
            printed = ""
            for line in text.splitlines():
                done = subprocess.run(shortened(line), capture_output=True, text=True, timeout=100)
                report(done.returncode == 0, line, done.stderr + done.stdout)
                printed += done.stdout + done.stderr
                commands += 1
        elif kind == "text":
            compare_output(text, printed)
        elif kind == "python":
            check_python(text)
    report(commands >= 14, "the page has commands", commands)
    made = ("backbone.safetensors", "README.md", "report.html", "features.npy", "features.csv")
    report(all(os.path.getsize(name) > 0 for name in made), "they leave what the page says", made)
    for name in made:
        os.remove(name)
    shutil.rmtree("photos")
    shutil.rmtree("runs")


def check_python(text):
    code = compile(text, "tutorial.md", "exec")
    modules = re.findall(r"^import (\w+)", text, re.M)
    name = "Python with " + ", ".join(modules)
    if "torch" in modules:  # export_test.py loads a whole ResNet; the one here is too narrow
        return skip(name, "it compiles; a narrow network does not fit torchvision's")
    try:
        __import__("numpy")
    except ImportError:
        return skip(name, "numpy is not installed")

    @case(name)
    def _():
        exec(code, {})


run_tests(test_commands)
