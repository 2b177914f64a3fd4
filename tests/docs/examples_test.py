#!/usr/bin/env python3
"""The programs in examples/ and the C of the documentation compile without a warning; the programs run
with the library of the build, and what they print is looked at."""
import glob
import math
import os
import re
import subprocess
import tempfile

from harness import PROGRAM, SOURCE, finish, report, skip

BUILD = os.path.dirname(PROGRAM)
COMPILE = [os.environ.get("CC", "cc"), "-std=c17", "-Wall", "-Wextra", "-Werror", "-I",
           os.path.join(SOURCE, "include")]
LINK = ["-L", BUILD, "-lzonal", "-lm", "-Wl,-rpath," + BUILD]


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)


def example(folder, name, *arguments, extra=()):
    """Compiles and runs a program; its output, or None after a report."""
    program = os.path.join(folder, name)
    made = run(*COMPILE, os.path.join(SOURCE, "examples", name + ".c"), "-o", program, *LINK, *extra)
    report(made.returncode == 0, f"{name} compiles without a warning", made.stderr)
    if made.returncode:
        return None
    done = run(program, *arguments)
    if done.returncode == 77:
        skip(f"{name} runs", done.stdout.strip())
        return None
    report(done.returncode == 0 and not done.stderr, f"{name} runs", done.stdout + done.stderr)
    return done.stdout


def numbers(pattern, text):
    return [float(found) for found in re.findall(pattern, text or "")]


def heat_loss(t):
    """MMD of 05_by_text's rows on the 2-sphere, from the spectrum a_l ~ (2l + 1) exp(-t l(l+1))."""
    rows = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1 / math.sqrt(3),) * 3]
    weights = [(2 * l + 1) * math.exp(-t * l * (l + 1)) for l in range(60)]
    total, tail = sum(weights), sum(weights[1:])

    def centred(c):
        older, old, value = 1.0, c, weights[1] * c
        for l in range(2, 60):
            older, old = old, ((2 * l - 1) * c * old - (l - 1) * older) / l
            value += weights[l] * old
        return value / tail

    assert total > tail > 0
    return sum(centred(min(1.0, sum(a * b for a, b in zip(x, y)))) for x in rows for y in rows) / 16


def main():
    with tempfile.TemporaryDirectory() as folder:
        values = numbers(r"D = ([\d.]+)", example(folder, "01_loss"))
        report(len(values) == 5 and values == sorted(values, reverse=True) and values[-1] < 0.1 * values[0],
               "01_loss: D falls", values)

        text = example(folder, "02_objective") or ""
        found = re.search(r"gain ([\d.]+), collapse threshold ([\d.]+), margin 2.0", text)
        report(found and abs(float(found[1]) / float(found[2]) - 2) < 1e-3, "02_objective: the margin", text)
        values = numbers(r"L = ([\d.]+)", text)
        report(len(values) == 4 and values[-1] < values[0], "02_objective: L falls", text)

        text = example(folder, "04_uniformity") or ""
        report("Collapsed to about 3" in text and text.count("rayleigh") == 2, "04_uniformity: verdicts", text)

        text = example(folder, "05_by_text") or ""
        values = numbers(r"D = ([\d.]+)", text)
        report(len(values) == 1 and abs(values[0] - heat_loss(1.0)) < 1e-8, "05_by_text: the value by the "
               "series", f"{values} {heat_loss(1.0)}")
        report("kernel          heat, t = 1\n" in text and "  slices" in text, "05_by_text: names", text)

        cuda = next((p for p in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda")
                     if p and os.path.exists(os.path.join(p, "include/cuda_runtime_api.h"))), None)
        if cuda:
            lib = os.path.join(cuda, "lib64")
            values = numbers(r"D = ([\d.]+)", example(folder, "03_cuda_stream", extra=(
                "-isystem", os.path.join(cuda, "include"), "-L", lib, "-lcudart", "-Wl,-rpath," + lib)))
            report(not values or 0.5 < values[0] < 1, "03_cuda_stream: a value", values)
        else:
            skip("03_cuda_stream", "there are no headers of CUDA")

        pages = [os.path.join(SOURCE, "README.md")] + sorted(glob.glob(os.path.join(SOURCE, "docs/*.md")))
        count = 0
        for page in pages:
            with open(page, encoding="utf-8") as file:
                snippets = re.findall(r"^```c\n(.*?)^```$", file.read(), re.M | re.S)
            for snippet in snippets:
                count += 1
                path = os.path.join(folder, f"snippet{count}.c")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(snippet)
                made = run(*COMPILE, "-fsyntax-only", path)
                report(made.returncode == 0, f"C of {os.path.basename(page)} compiles", made.stderr)
        report(count >= 1, "there is C in the documentation")
    finish()


main()
