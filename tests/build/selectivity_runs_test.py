#!/usr/bin/env python3
"""scripts/selectivity_runs.sh: a line for each method, S and seed, none twice, options of a method's own,
and a first half at another S.
ZONAL_PROGRAM is the program to test."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from harness import PROGRAM, SOURCE, case, run_tests, write_mnist

sys.path.insert(0, f"{SOURCE}/scripts")
from run_record import NO_SETTINGS  # noqa: E402

MORE = ["--texture-count", "64", "--width", "0.0625", "--batch", "16", "--warmup", "0"]


def runs(status=0, data="demo", more=MORE, **environment):
    done = subprocess.run([f"{SOURCE}/scripts/selectivity_runs.sh", PROGRAM, "runs", data, *more],
                          env={**os.environ, "STEPS": "2", **environment}, capture_output=True, text=True)
    assert done.returncode == status, (done.returncode, done.stderr)
    with open("runs/records.jsonl", encoding="utf-8") as file:
        return done, [json.loads(line) for line in file]


def setting(run, name):
    with open(f"runs/{run}/config.toml", encoding="utf-8") as file:
        return next(line.split("#")[0].split("=")[1].strip() for line in file if line.startswith(name + " ="))


def made_by(line):
    """What the program says of itself, and of a device that it lists."""
    _, version, *commit = re.split(r",? ", subprocess.check_output([PROGRAM, "--version"], text=True).strip())
    listed = json.loads(subprocess.check_output([PROGRAM, "devices", "--json"], text=True))["devices"]
    assert line["device"] in [entry["model"] for entry in listed], line["device"]
    assert (line["version"], line["commit"]) == (version, commit[-1] if commit else ""), line
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["date"]), line["date"]
    return True


def differing(a, b):
    """The options that were asked for, or decided, in which two records differ."""
    return {key for part in ("configuration", "decided") for key in a[part] | b[part]
            if a[part].get(key) != b[part].get(key)}


def test_refused():
    @case("a program that does not tell what made a run is refused before anything is trained")
    def _():
        script = f"{SOURCE}/scripts/selectivity_runs.sh"
        done = subprocess.run([script, "/bin/false", "none", "demo"], capture_output=True, text=True)
        assert done.returncode == 1 and "so a run could not be recorded" in done.stderr, done.stderr
        assert not os.path.exists("none")

    @case("a run that was stopped before its end is not recorded")
    def _():
        with open("stopping", "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n[ "$1" = train ] || exec {PROGRAM} "$@"\ntimeout --preserve-status 1 {PROGRAM} "$@"\n')
        os.chmod("stopping", 0o755)
        script = f"{SOURCE}/scripts/selectivity_runs.sh"
        done = subprocess.run([script, "./stopping", "cut", "demo", *MORE], capture_output=True, text=True,
                              env={**os.environ, "STEPS": "100000", "METHODS": "mmd-band", "VALUES": "5"})
        assert done.returncode == 1 and "did not come to its end, so it is not recorded" in done.stderr, \
            (done.returncode, done.stderr)
        assert not os.path.exists("cut/records.jsonl")
        shutil.rmtree("cut")
        os.remove("stopping")

    @case("Ctrl-C ends all of it")
    def _():
        script = f"{SOURCE}/scripts/selectivity_runs.sh"
        process = subprocess.Popen([script, PROGRAM, "cut", "demo", *MORE], start_new_session=True,
                                   env={**os.environ, "STEPS": "100000", "METHODS": "mmd-band", "VALUES": "5 10"})
        for _ in range(300):
            if glob.glob("cut/*/metrics.jsonl"):
                break
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)
        assert process.returncode in (130, -signal.SIGTERM), process.returncode
        assert not os.path.exists("cut/records.jsonl")
        for _ in range(300):  # until the last of the group has gone
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("a training goes on")
        shutil.rmtree("cut")

    @case("settings that make no other experiment are those of zonal eval's means")
    def _():
        with open(f"{SOURCE}/src/train/run_group.c", encoding="utf-8") as file:
            text = file.read()
        listed = re.search(r"names\[\] = \{(.*?)\};", text[text.index("int zonal__run_setting_counts"):], re.DOTALL)[1]
        assert NO_SETTINGS == set(re.findall(r'"([a-z-]+)"', listed)) | {"data", "class-list"}


def test_stamp():
    @case("lines of zonal bench are told what made them, those of other programs too")
    def _():
        options = ["--batch", "64", "--dim", "8", "--method", "mmd-heat,mmd-band"]
        with open("lines", "w", encoding="utf-8") as file:
            subprocess.run([PROGRAM, "bench", "loss", "--json", *options], stdout=file, check=True)
            file.write('{"teraflops": 790}\n')
        with open("lines", encoding="utf-8") as file:
            before = [json.loads(line) for line in file]
        subprocess.run([sys.executable, f"{SOURCE}/scripts/run_record.py", "--stamp", PROGRAM, "cpu", "lines"], check=True)
        with open("lines", encoding="utf-8") as file:
            after = [json.loads(line) for line in file]
        _, _, *commit = re.split(r",? ", subprocess.check_output([PROGRAM, "--version"], text=True).strip())
        devices = json.loads(subprocess.check_output([PROGRAM, "devices", "--json"], text=True))["devices"]
        made = {"model": devices[0]["model"] or "cpu", "commit": commit[-1] if commit else ""}
        assert len(before) == 3 and after == [line | made for line in before], (before, after)
        os.remove("lines")


def test_runs():
    @case("a record for each method and seed, with the method's own options and KL's usual temperature")
    def _():
        _, lines = runs(METHODS="susreg:slices=8 kl-heat kl-heat:t=5/d", VALUES="5", SEEDS="0 1", PARALLEL="1")
        assert [(line["method"], line["t"], line["seed"]) for line in lines] == \
            [(method, t, seed) for seed in (0, 1)
             for method, t in (("susreg:slices=8", ""), ("kl-heat", "2/d"), ("kl-heat:t=5/d", ""))], lines
        assert all(line["selectivity"] == 5 and line["step"]["step"] == 2 for line in lines)
        assert setting("demo-susreg-slices-8-S5-0", "slices") == "8"
        assert setting("demo-kl-heat-S5-1", "t") == '"2/d"' and setting("demo-kl-heat-t-5-d-S5-1", "t") == '"5/d"'

    @case("a record says what made it, and how it was asked for: seeds differ in nothing else")
    def _():
        _, lines = runs(METHODS="kl-heat", VALUES="5")
        assert all(made_by(line) and line["steps"] == 2 and line["batch"] == 16 for line in lines)
        sliced, kl, warmer, _, other, _ = lines
        assert sliced["configuration"]["slices"] == "8" and "seed" not in sliced["configuration"]
        assert sliced["configuration"]["selectivity"] == "5" and float(sliced["decided"]["gain"]) > 0
        assert (kl["seed"], other["seed"]) == (0, 1) and differing(kl, other) == set()
        assert kl["images"] == other["images"] and differing(kl, warmer) == {"t", "gain"}

    @case("what has a record is not made again, be it of before there was more in it than results")
    def _():
        with open("runs/records.jsonl", encoding="utf-8") as file:
            kept = [line.split(', "steps":')[0] + "}" for line in file]
        with open("runs/records.jsonl", "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in kept))
        before = os.path.getmtime("runs/demo-kl-heat-S5-0")
        _, lines = runs(METHODS="kl-heat susreg:slices=16", VALUES="5")
        assert [line["method"] for line in lines[6:]] == ["susreg:slices=16"], lines[6:]
        assert os.path.getmtime("runs/demo-kl-heat-S5-0") == before

    @case("a run that fails, the first or a later one, is told by the status and keeps no other from running")
    def _():
        for methods in ("mmd-hat mmd-band", "mmd-heat susreg:slices=none"):
            done, lines = runs(1, METHODS=methods, VALUES="5")
            assert "mmd-hat" in done.stderr or "slices" in done.stderr, done.stderr
        assert [line["method"] for line in lines[7:]] == ["mmd-band", "mmd-heat"], lines[7:]

    @case("FIRST: a run starts from the weights of one at another S, and has a record of its own")
    def _():
        done, lines = runs(METHODS="kl-heat", VALUES="5", FIRST="10")
        assert [(line["method"], line["selectivity"], line["t"]) for line in lines[9:]] == \
            [("kl-heat:first=10", 5, "2/d")], lines[9:]
        run = "demo-kl-heat-first-10-S5-0"
        assert setting(run, "init").endswith(f'/{run}-first/checkpoints/step-00000002.safetensors"')
        assert not os.path.exists(f"runs/{run}-first"), os.listdir("runs")
        assert runs(METHODS="kl-heat", VALUES="5", FIRST="10")[1] == lines
        done, lines = runs(1, METHODS="kl-heat", VALUES="5", FIRST="0")
        assert "selectivity" in done.stderr and len(lines) == 10, done.stderr

    shutil.rmtree("runs")


def test_photographs():
    @case("the features of small photographs are scored by k-NN and the linear probe, as zonal eval does")
    def _():
        os.mkdir("images")
        labels = [i % 10 for i in range(200)]
        for part in ("train", "t10k"):
            pixels = [noise // 2 + 12 * label for label in labels for noise in os.urandom(64)]
            write_mnist("images", part, 8, labels, pixels)
        _, lines = runs(data="imagenette-32px=images", METHODS="mmd-band", VALUES="5", EPOCHS="2",
                        more=["--side", "8", "--width", "0.0625", "--batch", "32", "--warmup", "0", "--val-share", "0.25"])
        assert len(lines) == 1 and lines[0]["data"] == "imagenette-32px" and lines[0]["steps"] == 8, lines
        assert "eval" not in lines[0] and lines[0]["configuration"]["selectivity"] == "5", lines
        told = {}
        for path in glob.glob("runs/imagenette-32px-mmd-band-S5-0/eval/*.json"):
            with open(path, encoding="utf-8") as file:
                told |= {result["protocol"]: result["accuracy"] for result in json.load(file)["results"]
                         if (result["part"], result["features"]) == ("val", "backbone")}
        assert set(told) == {"knn", "linear"} and lines[0]["backbone"] == told, (lines, told)
        shutil.rmtree("runs")
        shutil.rmtree("images")


run_tests(test_refused, test_stamp, test_runs, test_photographs)
