#!/usr/bin/env python3
"""zonal reproduce with miniature settings: whole matrices, cut off by SIGKILL, Ctrl-C and --minutes, failing
cells, records that are merged, tables that are printed. With the argument "long": twenty kills into one
matrix. ZONAL_PROGRAM is the program to test, ZONAL_TEST_SEED repeats the moments."""
import glob
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

from harness import PROGRAM, SOURCE, case, run, run_tests, skip
from matrices import NETWORK, TEXTURES, TINY, make_images, records, reproduce

SEED = int(os.environ.get("ZONAL_TEST_SEED") or random.SystemRandom().randrange(2**32))


# Steps of some milliseconds, and checkpoints several times a second.
def lengthy(steps):
    return ["table-textures", *TINY, "--steps", steps, "--options",
            NETWORK + ",texture-count=32,texture-size=24,checkpoint-minutes=0.003",
            "--families", "disk", "--methods", "mmd-band,kl-heat"]


LONG = lengthy(1500)


def by_cell(path):
    """The metrics of each cell: what must not depend on how often it was cut off."""
    found = {}
    for record in records(path):
        cell = record["data"], record["method"], record["seed"]
        assert cell not in found, f"{cell} has two records"
        found[cell] = record["metrics"]
    return found


def start(*arguments, **keywords):
    return subprocess.Popen([PROGRAM, "reproduce", *map(str, arguments)], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, **keywords)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def wait_for(condition, process, seconds=60):
    until = time.monotonic() + seconds
    while not condition() and process.poll() is None:
        assert time.monotonic() < until, "nothing happens"
        time.sleep(0.005)


def checkpoints(folder):
    return {p for p in glob.glob(f"{folder}/runs/*/checkpoints/step-*.safetensors")
            if "step-00000000" not in p}


# ---- figures -------------------------------------------------------------------------------------


def alike(made, kept, least=0.0):
    """Two texts with the same words, and numbers that differ by a percent, or "least": what was measured moves
    in its last digit where sums are added up in another order, and a curve by that."""
    number = re.compile(r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
    made, kept = (number.split(" ".join(text.split())) for text in (made, kept))
    return made[::2] == kept[::2] and all(abs(float(x) - float(y)) <= max(0.01 * abs(float(y)), least)
                                          for x, y in zip(made[1::2], kept[1::2]))


def test_variance():
    @case("figure-variance: numbers and drawings, against directions and batch, are those of results/variance.md")
    def _():
        done = reproduce("figure-variance", "--out", "f")
        assert done.returncode == 0, done.stderr
        blocks = re.findall(r"```\n(.*?)```", read(SOURCE, "results/variance.md"), re.DOTALL)
        assert len(blocks) == 2
        assert alike(done.stdout, f"{blocks[0]}f/variance.svg\n{blocks[1]}f/variance-batch.svg\n"), done.stdout
        for name in ("variance.svg", "variance-batch.svg"):
            assert alike(read("f", name), read(SOURCE, "docs", name), 0.1), name

    shutil.rmtree("f")


# ---- whole tables --------------------------------------------------------------------------------


def test_textures():
    matrix = [*TEXTURES, "--steps", 6, "--families", "disk,wood", "--methods",
              "susreg,kl-heat:t=3/d", "--seeds", "0,1", "--out", "w"]

    @case("table-textures: a record for each cell, textures made once, no weights left")
    def _():
        listed = reproduce(*matrix, "--dry-run")
        assert listed.returncode == 0 and "8 of 8 cells to run" in listed.stdout, listed
        assert not os.path.exists("w")
        done = reproduce(*matrix, "--parallel", 2)
        assert done.returncode == 0, done.stderr
        found = records("w/records.jsonl")
        assert len(found) == 8 and len(by_cell("w/records.jsonl")) == 8
        for r in found:
            assert r["configuration"]["side"] == "16" and r["configuration"]["steps"] == "6"
            assert "seed" not in r["configuration"] and "workers" not in r["variant"]
            assert r["metrics"]["retrieval.projector.test"] == 32 and r["seconds"] > 0
            assert r["version"] and r["device"] and r["images"] and float(r["decided"]["gain"]) > 0
            assert 1 <= r["at_once"] <= 2, r["at_once"]
        assert max(r["at_once"] for r in found) > 1.3
        assert len(os.listdir("w/data")) == 2
        assert not glob.glob("w/runs/*/checkpoints")
        assert max(len(line) for line in done.stdout.splitlines()) <= 80, done.stdout

    @case("a record has the selectivity; earlier records have none, and are averaged with those that do")
    def _():
        done = reproduce(*TEXTURES, "--steps", 1, "--families", "disk", "--methods",
                         "susreg:selectivity=7,kl-heat,susreg:lambda=0", "--seeds", "0,1", "--records",
                         "s.jsonl", "--out", "s", "--quiet")
        assert done.returncode == 0 and not done.stderr, done.stderr
        found = records("s.jsonl")
        of = {r["method"]: r["selectivity"] for r in found}
        with open(glob.glob("s/runs/disk-kl-heat-0-*/log.txt")[0]) as file:
            said = float(re.search("selectivity S = ([0-9.]+)", file.read()).group(1))
        assert abs(of["susreg:selectivity=7"] - 7) < 1e-9 and of["susreg:lambda=0"] is None, of
        assert abs(of["kl-heat"] / said - 1) < 0.005, (of, said)  # said with three digits
        del found[0]["selectivity"]
        with open("s.jsonl", "w") as file:
            file.writelines(json.dumps(r) + "\n" for r in found)
        done = reproduce("table-textures", "--records", "s.jsonl", "--print", "--markdown")
        row = next(line for line in done.stdout.splitlines() if "selectivity=7" in line)
        assert row.endswith("| 2 |") and not done.stderr, (row, done.stderr)
        os.remove("s.jsonl")
        shutil.rmtree("s")

    @case("--epochs takes the place of the steps that a table has")
    def _():
        done = reproduce(*TEXTURES, "--epochs", 2, "--families", "disk", "--methods", "susreg", "--out", "e")
        assert done.returncode == 0, done.stderr
        (r,) = records("e/records.jsonl")
        assert r["metrics"]["retrieval.projector.step"] == 2 * 32 // 8, r
        assert r["configuration"]["epochs"] == "2" and "steps" not in r["configuration"], r
        shutil.rmtree("e")

    @case("what was decided does not depend on the folder's name")
    def _():
        decided = []
        for folder in ("plain", "here by me"):
            done = reproduce(*TEXTURES, "--steps", 1, "--families", "disk", "--methods", "kl-heat", "--out", folder)
            assert done.returncode == 0, done.stderr
            decided.append(records(folder + "/records.jsonl")[0]["decided"])
            shutil.rmtree(folder)
        assert decided[0] == decided[1] and "gain" in decided[0], decided

    @case("the tables are the mean and the sample deviation of the records, the paper beside them")
    def _():
        text = reproduce(*matrix, "--print", "--markdown").stdout
        shares = [100 * r["metrics"]["retrieval.projector.r1"] for r in records("w/records.jsonl")
                  if r["data"] == "wood" and r["method"] == "susreg"]
        mean, std = statistics.mean(shares), statistics.stdev(shares)
        wood = text[text.index("Table 6: wood"):]
        row = next(line for line in wood.splitlines() if line.startswith("| `susreg`"))
        want = f"| {mean:.1f} ± {std:.1f} (93.3, {mean - 93.3:+.1f}) |"
        assert want in row and row.endswith("| 2 |"), (want, row)
        assert "| `kl-heat, t=3/d` |" in wood and "Table 5" not in text

    @case("a record by hand: without it the cell runs again, to the same numbers")
    def _():
        before = by_cell("w/records.jsonl")
        with open("w/records.jsonl") as file:
            lines = file.readlines()
        with open("w/records.jsonl", "w") as file:
            file.writelines(lines[1:])
        done = reproduce(*matrix)
        assert done.returncode == 0 and done.stderr.count("\n") == 1, done.stderr
        assert by_cell("w/records.jsonl") == before

    @case("another setting is another table: nothing is mixed")
    def _():
        other = [*matrix, "--methods", "susreg", "--families", "wood", "--seeds", "0"]
        first = [a for a in matrix]
        for option in ("--methods", "--families", "--seeds"):
            at = first.index(option)
            del first[at:at + 2]
        first[first.index("--steps") + 1] = 3
        assert reproduce(*first, *other[len(matrix):], "--quiet").returncode == 0
        text = reproduce("table-textures", "--records", "w/records.jsonl", "--print").stdout
        assert text.count("Table 6") == 2 and "steps=3" in text and "steps=6" in text
        text = reproduce("table-textures", "--records", "w/records.jsonl", "--print", "--steps",
                         3).stdout
        assert text.count("Table 6") == 1 and "steps=6" not in text

    @case("records of two machines are merged: each line once")
    def _():
        with open("w/records.jsonl") as file:
            lines = file.readlines()
        for name, part in (("a.jsonl", lines[:5]), ("b.jsonl", lines[3:])):
            with open(name, "w") as file:
                file.writelines(part)
        done = reproduce("table-textures", "--records", "a.jsonl", "--merge", "b.jsonl", "--print")
        assert done.returncode == 0, done.stderr
        with open("a.jsonl") as file:
            assert file.readlines() == lines
        text = reproduce("table-textures", "--records", "w/records.jsonl", "--print").stdout
        assert text == done.stdout

    @case("--print --seeds: the records of these seeds alone; without it, of all")
    def _():
        printed = [reproduce("table-textures", "--records", "w/records.jsonl", "--print", "--steps", 6,
                             "--families", "disk", "--methods", "susreg", "--markdown", *more).stdout
                   for more in ([], ["--seeds", 1], ["--seeds", "1,0"], ["--seeds", 77])]
        rows = [next(line for line in text.splitlines() if line.startswith("| `susreg`"))
                for text in printed]
        assert [row[-5:] for row in rows] == ["| 2 |", "| 1 |", "| 2 |", "| 0 |"], rows
        one = next(r for r in records("w/records.jsonl")
                   if (r["data"], r["method"], r["seed"]) == ("disk", "susreg", 1))
        assert f"| {100 * one['metrics']['retrieval.projector.r1']:.1f} (" in rows[1], rows

    @case("a line that was cut off is passed over, and the next record is whole")
    def _():
        with open("a.jsonl", "a") as file:
            file.write('{"experiment": "table-te')
        done = reproduce(*TEXTURES, "--steps", 6, "--families", "wood", "--methods", "susreg",
                         "--seeds", 2, "--out", "w", "--records", "a.jsonl")
        assert done.returncode == 0, done.stderr
        assert "a.jsonl:10 is passed over: the line is damaged: " in done.stderr, done.stderr
        with open("a.jsonl") as file:
            lines = file.readlines()
        assert len(lines) == 11 and json.loads(lines[10])["seed"] == 2

    for name in ("a.jsonl", "b.jsonl"):
        os.remove(name)
    shutil.rmtree("w")


def test_pretrain():
    options = [*TINY, "--options", NETWORK + ",network=resnet18", "--steps", 4, "--out", "w"]

    @case("table-pretrain: ImageNet-100 with its list of classes, stand-ins, every method")
    def _():
        make_images("images")
        done = reproduce("table-pretrain", "--data",
                         "imagenet100=images:class-list=classes.txt,imagenette=images", *options,
                         "--parallel", 2)
        assert done.returncode == 0, done.stderr
        found = records("w/records.jsonl")
        assert len(found) == 16 and {r["method"] for r in found} >= {"sigreg", "kl-heat"}
        for r in found:
            assert r["metrics"]["linear.backbone.test"] == (12 if r["data"] == "imagenet100" else 18)
            assert 0 <= r["metrics"]["knn.backbone.accuracy"] <= 1
        assert "71.22 ± 0.58" in done.stdout and "Imagenette (not in the paper)" in done.stdout

    @case("table-temperature: six rows, three seeds")
    def _():
        done = reproduce("table-temperature", "--data", "imagenette=images", *options, "--parallel",
                         2, "--markdown", "--quiet")
        assert done.returncode == 0 and not done.stderr, done.stderr
        rows = [line for line in done.stdout.splitlines() if line.startswith("| `")]
        assert len(rows) == 6 and all(row.endswith("| 3 |") for row in rows), rows
        found = [r for r in records("w/records.jsonl") if r["experiment"] == "table-temperature"]
        assert len(found) == 18
        for r in found:  # one weight for all temperatures
            assert float(r["decided"]["gain"]) == int(r["configuration"]["batch"]), r
        assert "gain=batch" in done.stdout, done.stdout

    @case("a cell that fails is said in a line, the others go on, status 1")
    def _():
        shutil.copytree("images", "broken")
        for path in glob.glob("broken/*/*/*.*"):
            os.truncate(path, 40)
        done = reproduce("table-pretrain", "--data", "imagenette=broken,efigi=images", *options,
                         "--methods", "susreg", "--records", "w/others.jsonl")
        assert done.returncode == 1, done.stderr
        lines = done.stderr.splitlines()
        assert len(lines) == 3 and lines[0].startswith("zonal: imagenette susreg seed 0 failed: ")
        assert "broken" in lines[0] and "efigi susreg seed 0" in lines[1], lines
        assert "1 of 2 cells have a record; 1 failed: read why in w/logs" in lines[2], lines
        assert "--options KEY=VALUE" in lines[2] and "the same command" not in lines[2], lines

    @case("images that are not there are one error before any cell, where a cell needs them")
    def _():
        arguments = ["table-pretrain", "--data", "imagenette=nowhere,efigi=images", *options,
                     "--methods", "susreg,mmd-heat", "--records", "w/none.jsonl"]
        done = reproduce(*arguments)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
        assert "cannot read nowhere" in done.stderr and not os.path.exists("w/none.jsonl"), done
        arguments[2] = "efigi=nowhere"
        done = reproduce(*arguments[:-4], "--methods", "susreg", "--records", "w/others.jsonl")
        assert done.returncode == 0 and not done.stderr, done.stderr

    for name in ("broken", "images", "w"):
        shutil.rmtree(name)
    os.remove("classes.txt")


def test_galaxy10():
    try:
        import h5py
        import numpy as np
    except ImportError:
        return skip("table-pretrain: Galaxy10", "this Python has no h5py")

    @case("table-pretrain: Galaxy10 as an HDF5 file")
    def _():
        draw, labels = np.random.default_rng(0), np.arange(300) % 10
        images = draw.integers(0, 90, (300, 24, 24, 3)) + labels[:, None, None, None] * 15
        with h5py.File("galaxy.h5", "w") as file:
            file["images"] = images.astype("u1")
            file["ans"] = labels.astype("u1")
        done = reproduce("table-pretrain", "--data", "galaxy10=galaxy.h5", "--methods",
                         "susreg,mmd-band", *TINY, "--steps", 4, "--options",
                         NETWORK + ",network=resnet18,warmup=0", "--out", "w", "--quiet")
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert "72.13 ± 1.39" in done.stdout and len(records("w/records.jsonl")) == 2
        assert records("w/records.jsonl")[0]["metrics"]["knn.backbone.accuracy"] > 0

    os.remove("galaxy.h5")
    shutil.rmtree("w")


def test_dynamics():
    if "--probe" not in run("train", "--help").stdout:
        return skip("figure-dynamics", "zonal train has no online probe")

    @case("figure-dynamics: the probe's curves are in the records, and drawn from them alone")
    def _():
        make_images("images")
        matrix = ["figure-dynamics", *TINY, "--steps", 20, "--options", NETWORK + ",eval-every=5"]
        done = reproduce(*matrix, "--data", "imagenette=images", "--out", "w", "--quiet")
        assert done.returncode == 0 and not done.stderr, done.stderr
        for record in records("w/records.jsonl"):
            assert [point["epoch"] for point in record["curve"]] == [1.25, 2.5, 3.75, 5]
            logged = [json.loads(line) for line in
                      open(glob.glob(f"w/runs/imagenette-{record['method']}-*/metrics.jsonl")[0])]
            assert [point["accuracy"] for point in record["curve"]] == \
                [line["accuracy"] for line in logged if line["kind"] == "probe"]
        done = reproduce("figure-dynamics", "--records", "w/records.jsonl", "--print", "--out", "drawn")
        assert done.returncode == 0 and len(os.listdir("drawn")) == 1, done.stderr
        with open(os.path.join("drawn", os.listdir("drawn")[0])) as file:
            text = file.read()
        assert "susreg" in text and "mmd-induced" in text and text.count("<path") == 2, text

    for name in ("images", "w", "drawn"):
        shutil.rmtree(name)
    os.remove("classes.txt")


# ---- cut off -------------------------------------------------------------------------------------


def killed(matrix, folder, kills):
    """So many SIGKILLs into a matrix, each at a random moment after a new checkpoint."""
    draw = random.Random(SEED)
    for i in range(kills):
        process = start(*matrix, "--out", folder, "--parallel", 1 + i % 2)
        known = checkpoints(folder)
        wait_for(lambda: checkpoints(folder) - known, process)
        time.sleep(draw.random() * 0.3)
        assert process.poll() is None, f"all was done before kill {i}: make the runs longer"
        process.kill()
        process.communicate()
    return reproduce(*matrix, "--out", folder, "--quiet")


def compare_killed(matrix, kills):
    @case(f"{kills} SIGKILLs, and it ends with the same numbers, seed {SEED}")
    def _():
        whole = reproduce(*matrix, "--out", "whole", "--quiet", "--parallel", 2)
        assert whole.returncode == 0 and not whole.stderr, whole.stderr
        done = killed(matrix, "cut", kills)
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert by_cell("cut/records.jsonl") == by_cell("whole/records.jsonl")
        assert done.stdout == whole.stdout

    shutil.rmtree("whole")
    shutil.rmtree("cut")


def test_killed():
    compare_killed(LONG, 2)


def long_killed():
    compare_killed(lengthy(12000), 20)


def test_stopped():
    @case("Ctrl-C: status 0, a checkpoint for what was under way, and how to go on")
    def _():
        process = start(*LONG, "--out", "w")
        wait_for(lambda: checkpoints("w"), process)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0 and "the same command continues" in error, error
        assert checkpoints("w") and not records("w/records.jsonl")

    @case("one signal to the whole group: the step is finished, with a checkpoint, and no run is killed")
    def _():
        slow = ["table-textures", *TINY[2:], "--side", 64, "--steps", 1000, "--options",
                "width=0.5,projector=16-8,batch=32,precision=fp32,workers=1,texture-count=64,"
                "texture-size=80,checkpoint-minutes=5,log-every=1", "--families", "disk", "--methods",
                "mmd-band"]
        process = start(*slow, "--out", "g", start_new_session=True)
        wait_for(lambda: glob.glob("g/runs/*/metrics.jsonl") and '"step"' in
                 read(*glob.glob("g/runs/*/metrics.jsonl")), process)
        for _ in range(2):  # as GNU timeout: once to the group, and once to its own child
            os.killpg(process.pid, signal.SIGTERM)
            time.sleep(0.06)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0 and "the same command continues" in error, error
        (log,) = glob.glob("g/runs/*/log.txt")
        assert "stopped after step" in read(log) and checkpoints("g"), read(log)

    shutil.rmtree("g", ignore_errors=True)

    @case("Ctrl-Z stops the runs too, and they go on with it")
    def _():
        process = start(*LONG, "--out", "z", preexec_fn=os.setpgrp)
        wait_for(lambda: checkpoints("z"), process)
        (metrics,) = glob.glob("z/runs/*/metrics.jsonl")
        process.send_signal(signal.SIGTSTP)
        wait_for(lambda: f"{process.pid} (zonal) T" in read(f"/proc/{process.pid}/stat"), process)
        time.sleep(0.1)  # what it has told its children arrives
        length = os.path.getsize(metrics)
        time.sleep(0.5)
        assert os.path.getsize(metrics) == length, "the run goes on"
        process.send_signal(signal.SIGCONT)
        wait_for(lambda: os.path.getsize(metrics) > length, process)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error

    shutil.rmtree("z", ignore_errors=True)

    @case("Ctrl-Z where no shell could continue it stops nothing")
    def _():
        process = start(*LONG, "--out", "z", start_new_session=True)
        wait_for(lambda: checkpoints("z"), process)
        (metrics,) = glob.glob("z/runs/*/metrics.jsonl")
        process.send_signal(signal.SIGTSTP)
        time.sleep(0.1)
        length = os.path.getsize(metrics)
        wait_for(lambda: os.path.getsize(metrics) > length, process)
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error

    shutil.rmtree("z", ignore_errors=True)

    @case("--minutes: cut by the clock; a cell that fits into no sitting is begun all the same")
    def _():
        began = time.monotonic()
        done = reproduce(*LONG, "--out", "w", "--minutes", 0.005)
        assert done.returncode == 0 and time.monotonic() - began < 30, done.stderr
        assert reproduce(*LONG, "--out", "w", "--quiet").returncode == 0
        found = records("w/records.jsonl")
        assert any(r["at_once"] is None for r in found) and any(r["at_once"] == 1 for r in found)  # one was cut
        seconds = max(r["seconds"] for r in found)
        more = [*LONG, "--out", "w", "--seeds", "1"]
        done = reproduce(*more, "--dry-run")
        predicted = [int(s) for s in re.findall(r"to run, (\d+) s", done.stdout)]
        assert len(predicted) == 2 and abs(predicted[0] - seconds) <= 1, (done.stdout, seconds)
        done = reproduce(*more, "--dry-run", "--parallel", 3)  # of two cells, which share the machine
        predicted = [int(s) for s in re.findall(r"to run, (\d+) s", done.stdout)]
        assert abs(predicted[0] - 2 * seconds) <= 2, (done.stdout, seconds)

    @case("--minutes: no cell is started that would not fit, by the time of earlier ones")
    def _():
        path = "w/records.jsonl"
        with open(path) as file:
            text = file.read()
        with open(path, "w") as file:  # as if each had taken 50 s
            file.write(re.sub(r'"seconds": [0-9.e+-]+', '"seconds": 50', text))
        before = set(os.listdir("w/runs"))
        began = time.monotonic()
        process = start(*LONG, "--out", "w", "--seeds", "1", "--minutes", 50.05 / 60)
        _, error = process.communicate(timeout=100)
        assert process.returncode == 0, error
        made = set(os.listdir("w/runs")) - before
        assert len(made) == 1 and time.monotonic() - began < 49, (made, error)
        assert "1 of 2 cells have a record" in error, error

    @case("two at once in one folder: the second waits, and finds all done")
    def _():
        arguments = [*LONG, "--out", "w", "--seeds", "2"]
        first, second = start(*arguments), start(*arguments)
        for process in (first, second):
            process.communicate(timeout=100)
            assert process.returncode == 0
        by_cell("w/records.jsonl")

    shutil.rmtree("w")


def test_moved():
    @case("a cell that was cut off goes on with images and a list of classes that have moved")
    def _():
        make_images("images")
        options = [*TINY, "--options", NETWORK + ",network=resnet18,checkpoint-minutes=0.003", "--steps",
                   6000, "--methods", "mmd-band", "--out", "w"]
        process = start("table-pretrain", "--data", "imagenet100=images:class-list=classes.txt", *options)
        wait_for(lambda: checkpoints("w"), process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0 and not records("w/records.jsonl")
        os.makedirs("elsewhere")
        shutil.move("images", "elsewhere/images")
        shutil.move("classes.txt", "elsewhere/classes.txt")
        done = reproduce("table-pretrain", "--data",
                         "imagenet100=elsewhere/images:class-list=elsewhere/classes.txt", *options)
        assert done.returncode == 0, done.stderr
        (config,) = glob.glob("w/runs/*/config.toml")
        with open(config) as file:
            text = file.read()
        for name in ("images", "classes.txt"):
            assert f'{os.getcwd()}/elsewhere/{name}"' in text, text
        assert len(records("w/records.jsonl")) == 1

    for name in ("elsewhere", "w"):
        shutil.rmtree(name)


if sys.argv[1:] == ["long"]:
    run_tests(long_killed)
else:
    run_tests(test_variance, test_textures, test_pretrain, test_galaxy10, test_dynamics, test_killed, test_stopped,
              test_moved)
