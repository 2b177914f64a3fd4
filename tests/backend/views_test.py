#!/usr/bin/env python3
"""Are the numbers in golden/views.h what the installed torchvision computes? Runs make_views.py
again and compares; skipped where there is no torchvision. The C code is held to those numbers by
test_views.c, which needs no Python."""
import importlib.util
import pathlib
import re
import subprocess
import sys

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"


def split(text):
    """The part that names the cases, word by word, and the stored elements."""
    cases, values = text.split("static const double golden_values[]")
    values = values[values.index("{") + 1:values.index("}")]
    return cases, [float(v) for v in re.findall(r"[-+.\deE]+", values)]


def finish(passed, failed, skipped):
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(77 if skipped and not passed and not failed else failed > 0)


def main():
    for module in ("torch", "torchvision"):
        if importlib.util.find_spec(module) is None:
            print(f"ok 1 - golden views # SKIP no {module} (python3-torchvision)")
            finish(0, 0, 1)
    made = subprocess.run([sys.executable, GOLDEN / "make_views.py"], capture_output=True, text=True,
                          check=True).stdout
    cases, values = split((GOLDEN / "views.h").read_text())
    new_cases, new_values = split(made)
    # versions of torch may add up in another order; blurs have float32 taps
    worst = max((abs(a - b) for a, b in zip(values, new_values)), default=1)
    good = cases == new_cases and len(values) == len(new_values) and worst <= 2e-7
    print(f"# {len(values)} elements, largest difference {worst:.2g}")
    print(f"{'ok' if good else 'not ok'} 1 - golden views")
    finish(int(good), int(not good), 0)


main()
