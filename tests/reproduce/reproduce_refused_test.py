#!/usr/bin/env python3
"""What zonal reproduce refuses before anything runs: mistakes on the command line, options that a cell would fail
by, files that are no records. ZONAL_PROGRAM is the program to test."""
import glob
import json
import os
import re
import shutil

from harness import SOURCE, case, refused, report, run, run_tests, skip
from matrices import NETWORK, TEXTURES, TINY, make_images, reproduce


def test_refused():
    refused("an unknown table", 2, "did you mean table-textures?", "reproduce", "table-texture")
    refused("a table by its number", 2, "there are figure-kernels, ", "reproduce", "table-1")
    refused("a table by its number: all are named", 2, "table-textures, ", "reproduce", "table-1")
    refused("nothing to reproduce", 2, "TABLE or FIGURE is missing", "reproduce")
    refused("an unknown method", 2, "mmd-heat", "reproduce", "table-textures", "--methods", "mmd-hat")
    refused("an unknown family", 2, "disk,cloud,wood,flake", "reproduce", "table-textures",
            "--families", "brick")
    refused("an option that zonal train does not have", 2, "no option", "reproduce",
            "table-textures", "--options", "learning-rate=1")
    for given, remedy in (("method=kl-heat", "--methods"), ("seed=3", "--seeds"), ("data=x", "--families"),
                          ("out=x", "--out"), ("resume=x", "given again"), ("config=x.toml", "recipe"),
                          ("set=lr=1", "NAME=VALUE"), ("dump-config=yes", "--dry-run"), ("quiet=yes", "log")):
        key = given.split("=")[0] + " is not among the options"
        for where in (("--options", given), ("--methods", "susreg:" + given)):
            done = run("reproduce", "table-textures", *where, "--dry-run")
            report(done.returncode == 2 and key in done.stderr and remedy in done.stderr
                   and done.stderr.count("\n") == 1 and not done.stdout, f"refused: {where}", done.stderr)
        refused(f"{given} of a data set", 2, key, "reproduce", "table-pretrain", "--data",
                "imagenette=images:" + given)
    refused("data for textures", 2, "--families", "reproduce", "table-textures", "--data", "a=b")
    refused("families for photographs", 2, "--data NAME=PATH", "reproduce", "table-pretrain",
            "--families", "disk")
    refused("no data", 2, "imagenet100=PATH", "reproduce", "table-pretrain")
    refused("a seed for a table", 2, "--seeds", "reproduce", "table-textures", "--seed", 1)
    refused("methods for a figure", 2, "has no use in figure-kernels; leave it out", "reproduce",
            "figure-kernels", "--methods", "susreg")
    refused("nowhere to work", 1, "make the folder that it lies in first", "reproduce",
            "table-textures", "--out", "a/b")
    refused("records to merge that are not there", 1, "nowhere.jsonl", "reproduce",
            "table-textures", "--records", "a.jsonl", "--merge", "nowhere.jsonl", "--print")

    refused("records to print that are not there", 1, "cannot read nowhere.jsonl", "reproduce",
            "table-textures", "--records", "nowhere.jsonl", "--print")
    refused("a seed twice", 2, "--seeds has 9 twice; leave one out", "reproduce", "table-textures",
            "--seeds", "9,8,9")

    @case("the records that the help names are there")
    def _():
        named = re.findall(r"--records (\S+)", reproduce("--help").stdout)
        named = [name for name in named if "/" in name]
        assert named and all(os.path.exists(os.path.join(SOURCE, name)) for name in named), named

    @case("records that cannot be written are refused before any run")
    def _():
        os.mkdir("folder.jsonl")
        done = reproduce(*TEXTURES, "--steps", 2, "--out", "w", "--records", "folder.jsonl")
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
        assert "folder.jsonl" in done.stderr and not os.path.exists("w/runs")
        done = reproduce(*TEXTURES, "--steps", 2, "--out", "w", "--records", "nowhere/r.jsonl")
        assert done.returncode == 1 and "nowhere/r.jsonl" in done.stderr, done.stderr

    os.rmdir("folder.jsonl")
    shutil.rmtree("w")

    @case("a folder that is full of something else: one line, status 1")
    def _():
        with open("w", "w") as file:
            file.write("x")
        done = reproduce(*TEXTURES, "--steps", 2, "--out", "w")
        assert done.returncode == 1 and "a file has that name" in done.stderr, done.stderr

    os.remove("w")


def test_cells():
    has_png = run("data", "textures", "--family", "disk", "--count", 1, "--size", 8, "--out", "one")
    if has_png.returncode != 0:
        return skip("options that a cell would fail by", "this build writes no PNG files")
    shutil.rmtree("one")
    options = [*TINY, "--options", NETWORK + ",network=resnet18", "--out", "none"]
    make_images("images")

    @case("what zonal train would refuse in a cell is one error before any cell is started")
    def _():
        usual = ["--steps", 4]
        for data, more, status, said in (
                ("imagenette=images", ["--steps", 2], 2, "imagenette susreg seed 0 would fail: a warm-up of 1 "
                 "epoch, 4 steps, is longer than the run of 2; shorten --warmup (options of zonal train go into "
                 "--options KEY=VALUE)"),
                ("efigi=images,imagenet100=images:class-list=none.txt", usual, 1, "imagenet100 susreg seed 0 would "
                 "fail: cannot read none.txt"),
                ("imagenette=images", [*usual, "--methods", "susreg,mmd-heat:slices=9"], 2, "mmd-heat does not use"),
                ("imagenette=images", [*usual, "--seeds", "0,1", "--methods", "susreg:batch=99"], 2, "--batch 99"),
                ("imagenette=images,efigi=classes.txt", usual, 1, "classes.txt")):
            done = reproduce("table-pretrain", "--data", data, *options, *more)
            assert done.returncode == status and not done.stdout, done
            assert said in done.stderr and done.stderr.count("\n") == 1, done.stderr
            assert not os.listdir("none"), os.listdir("none")
            os.rmdir("none")

    shutil.rmtree("images")
    os.remove("classes.txt")


def test_records():
    @case("a file of another kind is no records: one line, and it stays as it was")
    def _():
        contents = b"# Notes\n\nwithout an end", b"\0\1x\n" * 500, b'{"kind": "step", "step": 1}\n'
        for content in contents:
            with open("other", "wb") as file:
                file.write(content)
            for more in (["--records", "other"], ["--records", "other", "--dry-run"],
                         ["--records", "other", "--print"], ["--records", "new", "--merge", "other"],
                         ["--records", "other", "--merge", "new"]):
                done = reproduce(*TEXTURES, "--steps", 2, *more)
                assert done.returncode == 1 and not done.stdout, done
                assert done.stderr.count("\n") == 1, done.stderr
                assert "other holds something else than records, and is left as it is; give" in done.stderr, done
                with open("other", "rb") as file:
                    assert file.read() == content
                assert not os.path.exists("new") and not glob.glob("runs/*/*")
        os.remove("other")
        shutil.rmtree("runs", ignore_errors=True)

    @case("a first record that was cut off is none of another kind")
    def _():
        for content in ('{"exper', '{"experiment": "table-te'):
            with open("cut.jsonl", "w") as file:
                file.write(content)
            done = reproduce(*TEXTURES, "--steps", 2, "--families", "disk", "--methods", "susreg", "--out", "w",
                             "--records", "cut.jsonl")
            assert done.returncode == 0 and "cut.jsonl:1 is passed over" in done.stderr, done.stderr
            with open("cut.jsonl") as file:
                first, second = file.read().splitlines()
            assert first == content and json.loads(second)["data"] == "disk"
        os.remove("cut.jsonl")
        shutil.rmtree("w")


run_tests(test_refused, test_cells, test_records)
