#!/usr/bin/env python3
"""The tables of the documents agree with the records in results/, and a disagreement is found."""
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from harness import SOURCE, case, finish

ROOT = pathlib.Path(SOURCE)
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
from tables import BLOCK, DOCUMENTS, FIGURES, TABLES  # noqa: E402


def tables(root, *arguments):
    return subprocess.run([sys.executable, str(root / "scripts/tables.py"), *arguments],
                          capture_output=True, text=True)


@case("the documents agree with the records")
def agree():
    done = tables(ROOT, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


PLANTED = {  # a page or figure, and what a hand has changed in it: a number of a table, a name
    "README.md": ("| **79.9 ± 0.9** |", "| **89.9 ± 0.9** |"),
    "results/selectivity.md": ("| **75.9** |", "| **85.9** |"),
    "docs/dynamics-imagenette.svg": (">susreg<", ">mmd-heat<"),
    "docs/kernels.svg": ("heat, t = 4/d", "heat, t = 3/d"),
    "docs/reproduction.md": ("| 87.6 (90.5, -2.9) |", "| 91.6 (90.5, +1.1) |"),
}


def copy_of(folder):
    copy = pathlib.Path(folder)
    for part in ("results", "docs", "scripts"):
        shutil.copytree(ROOT / part, copy / part)
    shutil.copy(ROOT / "README.md", copy)
    return copy


@case("numbers that no record has are found, and mended")
def disagree():
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of(folder)
        true = {name: (copy / name).read_text() for name in PLANTED}
        for name, (old, new) in PLANTED.items():
            assert old in true[name], f"{name} has no {old}: choose another number"
            (copy / name).write_text(true[name].replace(old, new, 1))
        done = tables(copy, "--check")
        assert done.returncode == 1, done.stdout + done.stderr
        assert all(name + ": disagrees" in done.stdout for name in PLANTED), done.stdout
        assert tables(copy).returncode == 0
        assert all((copy / name).read_text() == true[name] for name in PLANTED)


@case("a record that has changed is found")
def changed():
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of(folder)
        path = copy / "results/table-textures.jsonl"
        text = path.read_text()
        path.write_text(text.replace('"retrieval.projector.r1": 0.', '"retrieval.projector.r1": 0.1'))
        done = tables(copy, "--check")
        assert done.returncode == 1 and done.stdout.startswith("docs/reproduction.md:"), done.stdout


# A file of records, a line that a table shows, what another record has otherwise, and the words for it.
NO_SAMPLE = {
    "selectivity-short.jsonl": (1, {"seed": 1, "t": "9/d"}, "in t ( and 9/d)"),
    "plateau.jsonl": (2, {}, "have the same seed, 0"),
    "selectivity-falling.jsonl": (1, {"seed": 5, "data": "easy"}, "in data (demo and easy)"),
    "table-temperature.jsonl": (1, {"seed": 3, "variant": ""}, "in variant (gain=batch and )"),
    "projector-norm.jsonl": (1, {}, "have the same seed, 0"),
    "whole-runs-h200.jsonl": (1, {"seed": 2, "step": {"step": 800, "epoch": 20}}, "in step.step (1600 and 800)"),
}


@case("a mean over runs that differ in more than the seed, or have one twice, is refused")
def refused():
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of(folder)
        for name, (line, more, words) in NO_SAMPLE.items():
            path = copy / "results" / name
            text = path.read_text()
            lines = text.splitlines()
            path.write_text(text + json.dumps(json.loads(lines[line - 1]) | more) + "\n")
            done = tables(copy, "--check")
            assert done.returncode == 1 and words in done.stderr, (name, done.stderr)
            assert f"results/{name}:{line} and results/{name}:{len(lines) + 1} " in done.stderr, done.stderr
            path.write_text(text)
        path = copy / "results/runs/disks/kl-heat-1/config.toml"
        path.write_text(path.read_text().replace("\nlr = 0.001 ", "\nlr = 0.002 "))
        done = tables(copy, "--check")
        assert "kl-heat-0 and results/runs/disks/kl-heat-1 differ in" in done.stderr, done.stderr
        assert "in lr (0.001 and 0.002)" in done.stderr, done.stderr


@case("a run beside published figures is shown with the options that it had")
def options():
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of(folder)
        path = copy / "results/cifar10-test.jsonl"
        text = path.read_text()
        assert '"--views 2 --epochs 200"' in text
        path.write_text(text.replace('"--views 2 --epochs 200"', '"--views 3 --method ksd-band --lr 1 --epochs 200"'))
        assert tables(copy).returncode == 0
        for page in ("README.md", "results/cifar10.md"):
            assert "| `ksd-band`, `--lr 1` | 200 | 3 | **87.8** | **90.2** |" in (copy / page).read_text(), page


# How many records of a file do not say by which commit, or on which machine: their pages say that it was not
# noted. A new record says both.
NOT_NOTED = {
    ("cifar10-fast-search.jsonl", "commit"): 9,
    ("demo.jsonl", "commit"): 3,
    ("demo.jsonl", "machine"): 1,  # the gains, which were tried on another than the rest
    ("python-h200.jsonl", "commit"): 32,
    ("whole-runs-h200.jsonl", "commit"): 8,  # the JPEGs beside MLPerf
}


def not_noted(root):
    found = collections.Counter()
    for path in sorted((root / "results").glob("*.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            machine = line.get("model", line.get("device", ""))
            if machine.split(":")[0] in ("", "cpu", "cuda"):  # a name of zonal devices says no more
                found[path.name, "machine"] += 1
            if not line.get("commit"):
                found[path.name, "commit"] += 1
    return dict(found)


@case("every record names its commit and its machine, and one that does not is found")
def named():
    assert not_noted(ROOT) == NOT_NOTED, not_noted(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of(folder)
        for name, old, new in (("plateau.jsonl", '"commit": "f1cd10a"', '"commit": ""'),
                               ("losses-h200.jsonl", ', "model": "NVIDIA H200"', "")):
            path = copy / "results" / name
            path.write_text(path.read_text().replace(old, new, 1))
        more = {("plateau.jsonl", "commit"): 1, ("losses-h200.jsonl", "machine"): 1}
        assert not_noted(copy) == NOT_NOTED | more, not_noted(copy)


# A cell that is a number and no more, with its unit, deviation or reference: "81.2", "**79.9 ± 0.9**",
# "87.6 (90.5, -2.9)", "126 / 4.98".
FIGURE = re.compile(r"[-+*(]*\d[-+\d.,±%/ *()]*(?:ms|us|s|x|MiB|px)?[*)]*")


def made_by_hand(text):
    """Tables outside of blocks with figures, at least two, beside their first column: none of options, members
    of a format or formulas has that."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", BLOCK.sub("", text), re.MULTILINE):
        head, _, *rows = table.splitlines()
        cells = [cell.strip() for row in rows for cell in row.strip("|").split("|")[1:]]
        if sum(bool(FIGURE.fullmatch(cell)) for cell in cells) >= 2:
            found.append(head)
    return found


@case("README and docs have no table of results that was made by hand, and one is found")
def by_hand():
    for name in ("README.md", "docs/*.md"):
        for path in ROOT.glob(name):
            text = path.read_text()
            assert not made_by_hand(text), (path, made_by_hand(text))
            for mark, _ in BLOCK.findall(text):
                assert made_by_hand(text.replace(f"<!-- {mark} -->\n", "")), (path, mark)


@case("every table and every figure that can be made is shown, and no other figure")
def shown():
    texts = {name: (ROOT / name).read_text() for name in DOCUMENTS}
    marks = {mark for text in texts.values() for mark, _ in BLOCK.findall(text)}
    assert {f"table: {name}" for name in TABLES} == {mark for mark in marks if mark.startswith("table: ")}
    figures = {((ROOT / name).parent / link).resolve().relative_to(ROOT).as_posix()
               for name, text in texts.items() for link in re.findall(r"\]\(([^)]+\.svg)\)", text)}
    # The two of results/variance.md are compared by tests/reproduce/reproduce_test.py.
    assert figures == set(FIGURES) | {"docs/variance.svg", "docs/variance-batch.svg"}, figures


finish()
