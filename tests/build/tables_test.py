#!/usr/bin/env python3
"""The tables of the documents agree with the records in results/, and a disagreement is found."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

from harness import SOURCE, case, finish

ROOT = pathlib.Path(SOURCE)


def tables(root, *arguments):
    return subprocess.run([sys.executable, str(root / "scripts/tables.py"), *arguments],
                          capture_output=True, text=True)


@case("the documents agree with the records")
def agree():
    done = tables(ROOT, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@case("a number that no record has is found, and mended")
def disagree():
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for part in ("results", "docs", "scripts"):
            shutil.copytree(ROOT / part, copy / part)
        shutil.copy(ROOT / "README.md", copy)
        page = copy / "results/selectivity.md"
        true = page.read_text()
        page.write_text(true.replace("| **75.9** |", "| **85.9** |", 1))
        assert page.read_text() != true
        done = tables(copy, "--check")
        assert done.returncode == 1 and "selectivity.md" in done.stdout, done.stdout + done.stderr
        assert tables(copy).returncode == 0 and page.read_text() == true


finish()
