#!/usr/bin/env python3
"""zonal embed: the index beside the rows. The oracle is Python's csv module and the images as they
lie in the folder or in the file."""
import csv
import os
import shutil
import struct
import subprocess
import sys
import zlib

from harness import case, refused, run, run_tests, skip

try:
    import numpy as np
except ImportError:
    print("ok 1 - all # SKIP this Python has no numpy")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)

SIDE, TRAIN, TEST = 8, 40, 10
CLASSES = ["ankle boot", 'a "quoted", class', "Ωmega"]
NAMES = ["plain.png", "with, comma.png", 'with "quotes".png', "two\nlines.png", "é.png"]


def write_idx():
    os.makedirs("mnist", exist_ok=True)
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        pixels = bytes(37 * i * i % 251 for i in range(count * SIDE * SIDE))
        with open(f"mnist/{part}-images-idx3-ubyte", "wb") as file:
            file.write(struct.pack(">IIII", 0x803, count, SIDE, SIDE) + pixels)
        with open(f"mnist/{part}-labels-idx1-ubyte", "wb") as file:
            file.write(struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count)))


def png(level):
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    rows = b"".join(b"\0" + bytes((level + 3 * x * y) % 256 for x in range(SIDE))
                    for y in range(SIDE))
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 0, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))


def done_well(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, f"{arguments}: status {done.returncode}: {done.stderr}"
    return done


def read_index(path):
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["index", "name", "label", "class"], rows[0]
    assert [row[0] for row in rows[1:]] == [str(i) for i in range(len(rows) - 1)]
    return rows[1:]


def test_index():
    write_idx()
    done_well("train", "mnist", "--out", "run", "--steps", 1, "--batch", 4, "--width", "0.015625",
              "--projector", "4", "--device", "cpu", "--eval", "none", "--quiet")

    @case("a line for each row: number, name, label and class")
    def _():
        done = done_well("embed", "run", "--split", "test", "--out", "E.npy", "--labels", "L.npy")
        assert "E.csv" in done.stdout
        rows = read_index("E.csv")
        assert len(rows) == TEST == len(np.load("E.npy"))
        assert [int(row[2]) for row in rows] == [i % 10 for i in range(TEST)]
        assert [int(row[2]) for row in rows] == list(np.load("L.npy"))
        assert len({row[1] for row in rows}) == TEST and all(row[1] for row in rows)
        assert all(row[1].endswith(f"index {i}") for i, row in enumerate(rows)), rows
        try:
            import pandas
        except ImportError:
            return
        images = pandas.read_csv("E.csv").assign(row=list(np.load("E.npy")))
        assert list(images.label) == [i % 10 for i in range(TEST)]

    @case("the same image has the same name in another part, and the same row")
    def _():
        done_well("embed", "run", "--out", "A.npy", "--quiet", "--batch", TEST)
        of = {row[1]: np.load("A.npy")[i] for i, row in enumerate(read_index("A.csv"))}
        assert len(of) == TRAIN + TEST
        for i, row in enumerate(read_index("E.csv")):
            assert np.abs(of[row[1]] - np.load("E.npy")[i]).max() < 1e-5

    @case("--index: another place, or none")
    def _():
        done_well("embed", "run", "--split", "test", "--out", "B.npy", "--index", "i.csv")
        assert not os.path.exists("B.csv") and read_index("i.csv") == read_index("E.csv")
        os.remove("i.csv")
        done_well("embed", "run", "--split", "test", "--projections", "P", "--quiet")
        assert len(read_index("P.csv")) == TEST
        done_well("embed", "run", "--split", "test", "--out", "C.npy", "--index", "none")
        assert not os.path.exists("C.csv")

    @case("a file that nobody named is replaced only if it is an index")
    def _():
        with open("F.csv", "w") as file:
            file.write("mine\n")
        done = run("embed", "run", "--split", "test", "--out", "F.npy")
        assert done.returncode == 1 and "F.csv" in done.stderr and "--index" in done.stderr, done
        assert open("F.csv").read() == "mine\n" and not os.path.exists("F.npy")
        done_well("embed", "run", "--split", "test", "--out", "F.npy", "--index", "F.csv")
        for i in range(2):  # given by name; then an index, which is replaced
            assert len(read_index("F.csv")) == TEST
            done_well("embed", "run", "--split", "test", "--out", "F.npy", "--quiet")

    @case("a pipe has no index beside it")
    def _():
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            os.symlink(f"/proc/{os.getpid()}/fd/{other.stdin.fileno()}", "pipe.npy")
            done = run("embed", "run", "--split", "test", "--out", "pipe.npy", "--quiet")
            rows = other.communicate()[0]
        assert done.returncode == 0, done.stderr
        assert rows.startswith(b"\x93NUMPY") and not os.path.exists("pipe.csv")

    @case("--side: large images are shrunk no further than its views allow, unless the run was told")
    def _():
        side, count = 1100, 4
        os.makedirs("large")
        pixels = np.random.default_rng(5).integers(0, 256, (count, side, side), "u1")
        for part in ("train", "t10k"):
            with open(f"large/{part}-images-idx3-ubyte", "wb") as file:
                file.write(struct.pack(">IIII", 0x803, count, side, side) + pixels.tobytes())
            with open(f"large/{part}-labels-idx1-ubyte", "wb") as file:
                file.write(struct.pack(">II", 0x801, count) + bytes(count))
        done_well("train", "large", "--out", "wide", "--steps", 1, "--batch", 2, "--width", "0.015625",
                  "--projector", "4", "--device", "cpu", "--precision", "fp32", "--eval", "none",
                  "--side", 16, "--stem", "imagenet", "--val-share", 0, "--quiet")
        config = open("wide/config.toml").read()
        (line,) = [line for line in config.splitlines() if line.startswith("max-side = ")]
        assert line.split() == "max-side = 512 # 0 by default".split(), line

        def rows(told, *more):
            with open("wide/config.toml", "w") as file:
                file.write(config.replace(line, told))
            done_well("embed", "wide", "--split", "test", "--out", "E.npy", "--quiet", *more)
            return open("E.npy", "rb").read()

        whole, small = (f"max-side = {n}  # --max-side" for n in (side, 512))
        assert rows(whole) != rows(small) == rows(line)
        assert rows(whole, "--side", 600) == rows(line, "--side", 600) != rows(small, "--side", 600)
        shutil.rmtree("wide")
        shutil.rmtree("large")

    @case("images without labels")
    def _():
        done_well("embed", "run", "--data", "textures:disk", "--texture-count", 3,
                  "--texture-size", SIDE, "--split", "test", "--out", "T.npy", "--quiet")
        assert [row[2:] for row in read_index("T.csv")] == [["", ""]] * 3

    for name in os.listdir():
        if not os.path.isdir(name):
            os.remove(name)
    refused("an index in the place of the rows", 2, "--index", "embed", "run", "--out", "E.npy",
            "--index", "E.npy")
    refused("an index nowhere", 1, "nowhere/i.csv", "embed", "run", "--out", "E.npy", "--index",
            "nowhere/i.csv")
    os.makedirs("folder")
    for c, name in enumerate(CLASSES):
        os.makedirs(f"folder/{name}")
        for i, file in enumerate(NAMES):
            open(f"folder/{name}/{file}", "wb").write(png(40 * c + 7 * i))
    if "libpng" in run("data", "info", "folder").stderr:
        skip("names of files", "this build has no libpng")
    else:
        check_folder()
    for name in os.listdir():
        shutil.rmtree(name)


def check_folder():
    @case("names and classes with commas, quotes, line ends and letters of all kinds")
    def _():
        done_well("embed", "run", "--data", "folder", "--out", "E.npy", "--quiet")
        rows = read_index("E.csv")
        want = {(f"{name}/{file}", name) for name in CLASSES for file in NAMES}
        assert {(row[1], row[3]) for row in rows} == want, rows
        for row in rows:
            assert sorted(CLASSES)[int(row[2])] == row[3]

    @case("a corrupt image: its line names the one that took its place")
    def _():
        path = f"folder/{CLASSES[0]}/plain.png"
        good = open(path, "rb").read()
        before = read_index("E.csv")
        open(path, "wb").write(good[:60])
        config = open("run/config.toml").read()
        assert "max-corrupt = 0.01 " in config
        with open("run/config.toml", "w") as file:
            file.write(config.replace("max-corrupt = 0.01 ", "max-corrupt = 0.5 "))
        done_well("embed", "run", "--data", "folder", "--out", "E.npy", "--quiet")
        rows, values = read_index("E.csv"), np.load("E.npy")
        (changed,) = [i for i in range(len(rows)) if rows[i] != before[i]]
        assert before[changed][1] == f"{CLASSES[0]}/plain.png"
        (other,) = [i for i in range(len(rows)) if rows[i][1] == rows[changed][1] and i != changed]
        # Another place in the batch may sum in another order.
        assert np.abs(values[changed] - values[other]).max() <= 1e-5 * np.abs(values).max()
        assert rows[changed][3] == CLASSES[0]

    for name in ("E.npy", "E.csv"):
        os.remove(name)


run_tests(test_index)
