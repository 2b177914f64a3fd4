#!/usr/bin/env python3
"""The commands data, reproduce and bench augment|data from the outside: what they write, against
Pillow and numpy, and how they refuse bad input. ZONAL_PROGRAM is the program to test."""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

try:
    import numpy as np
    from PIL import Image
except ImportError:
    print("ok 1 - all # SKIP this Python has no numpy or no PIL")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)

from harness import PROGRAM, case, kept, refused, report, run, run_json, run_tests

probe = run("data", "textures", "--family", "disk", "--count", 1, "--sheet", "/dev/null")
if "no libpng" in probe.stderr or "libpng" in probe.stderr:
    print("ok 1 - all # SKIP this build has no libpng")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)


def write_image(path, width, height, mode="RGB", seed=0, **options):
    """Smooth enough that JPEG does not change its mean by much."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    image = Image.fromarray(coarse).resize((width, height), Image.BICUBIC).convert(mode)
    image.save(path, **options)
    return np.asarray(Image.open(path)) if path.endswith("png") else None


def classes(folder, counts, size=(24, 20)):
    for label, count in counts.items():
        for i in range(count):
            write_image(f"{folder}/{label}/{i:03}.png", *size, seed=1000 * len(label) + ord(label[0]) * 50 + i)


# ---- textures ------------------------------------------------------------------------------------


def test_textures():
    @case("textures: the files asked for, of the size asked for, grey")
    def _():
        done = run("data", "textures", "--family", "wood", "--count", 5, "--size", 48, "--out", "w")
        assert done.returncode == 0 and not done.stderr, done.stderr
        names = sorted(os.listdir("w"))
        assert names == [f"wood-train-{i:05}.png" for i in range(5)], names
        for name in names:
            image = Image.open("w/" + name)
            assert image.size == (48, 48) and image.mode == "L"

    @case("textures: the same bytes by one thread and by three; others for another seed or split")
    def _():
        base = ("data", "textures", "--family", "disk", "--count", 7, "--size", 40, "--quiet")
        run(*base, "--threads", 1, "--out", "a")
        run(*base, "--threads", 3, "--out", "b")
        run(*base, "--seed", 1, "--out", "c")
        run(*base, "--split", "test", "--out", "d")
        read = lambda f: [open(p, "rb").read() for p in sorted(glob.glob(f + "/*"))]
        assert read("a") == read("b") and len(set(read("a"))) == 7
        assert not set(read("a")) & set(read("c")) and not set(read("a")) & set(read("d"))

    @case("textures: the four families look as they are described")
    def _():
        for family in ("cloud", "disk", "flake", "wood"):
            run("data", "textures", "--family", family, "--count", 9, "--out", family, "--quiet")
            x = np.stack([np.asarray(Image.open(p)) for p in glob.glob(family + "/*")]) / 255.0
            step = np.abs(np.diff(x, axis=2)).mean()
            if family == "cloud":
                assert step < 0.02 and 0.3 < x.mean() < 0.7 and x.std() > 0.1, (step, x.mean())
            elif family == "wood":
                assert x.mean() > 0.6 and (x > 0.9).mean() > 0.5 and (x < 0.1).mean() > 0.1
            else:
                assert abs(x.mean() - 0.5) < 0.01 and abs(np.median(x) - 0.5) < 0.02
                assert 0.002 < (x > 0.99).mean() < 0.02 and 0.002 < (x < 0.01).mean() < 0.02

    @case("textures: a sheet has room for all of them")
    def _():
        done = run("data", "textures", "--family", "flake", "--count", 6, "--columns", 3,
                   "--size", 32, "--sheet", "s.png")
        assert done.returncode == 0, done.stderr
        width, height = Image.open("s.png").size
        assert width >= 3 * 32 and height >= 2 * 32 and width < 4 * 48

    @case("textures: more threads than files are open elsewhere")
    def _():
        done = run("data", "textures", "--family", "disk", "--count", 90, "--size", 8,
                   "--threads", 90, "--out", "w", "--quiet")
        assert done.returncode == 0 and len(glob.glob("w/disk-train-*.png")) == 90, done.stderr

    @case("reproduce figure-kernels: one drawing, named unless --quiet")
    def _():
        done = run("reproduce", "figure-kernels", "--out", "fig")
        assert done.returncode == 0 and done.stdout == "fig/kernels.svg\n", done.stdout
        assert run("reproduce", "figure-kernels", "--out", "fig", "--quiet").stdout == ""

    @case("reproduce figure-textures: two images, four rows of three, regions beside views")
    def _():
        done = run("reproduce", "figure-textures", "--out", "fig")
        assert done.returncode == 0, done.stderr
        width, height = Image.open("fig/textures.png").size
        assert height > width and width > 3 * 256
        assert Image.open("fig/views.png").mode == "RGB"

    @case("reproduce figure-samples: a row for each data set, its classes in order, no image twice")
    def _():
        def single_colours(folder, counts, size):
            for c, count in enumerate(counts):
                os.makedirs(f"{folder}/train/c{c}")
                for i in range(count):
                    Image.new("RGB", size, (60 * c, 10 * i, 200)).save(f"{folder}/train/c{c}/{i}.png")

        def drawn(out, *more):
            done = run("reproduce", "figure-samples", "--data", "imagenette=few,imagenet100=w:class-list=list",
                       "--out", out, *more)
            assert done.returncode == 0 and f"{out}/samples.png" in done.stdout, done.stderr
            pixels = np.asarray(Image.open(f"{out}/samples.png"))
            assert pixels.shape == (2 * 224 + 3 * 8, 8 * 224 + 9 * 8, 3)
            assert (pixels[:8] == 255).all() and (pixels[:, -8:] == 255).all()
            for row in range(2):  # one colour is one colour at any size
                for column in range(8):
                    y, x = 8 + 232 * row, 8 + 232 * column
                    assert np.ptp(pixels[y:y + 224, x:x + 224], axis=(0, 1)).max() == 0
            return pixels[20::232, 20::232].tolist()

        single_colours("few", [1, 12], (30, 20))   # a class with fewer images than columns
        single_colours("w", [12, 12, 12, 12], (16, 24))
        with open("list", "w") as file:
            file.write("c3\nc0\n")
        shares = ("val", "test")  # folders of their own, so that all of train/ is there
        for folder in ("few", "w"):
            for share in shares:
                shutil.copytree(f"{folder}/train", f"{folder}/{share}")
        few, listed = drawn("fig")
        assert sorted(pixel[0] for pixel in few) == [0] + 7 * [60], few
        assert [pixel[0] for pixel in listed] == 4 * [180] + 4 * [0], listed
        for row in few, listed:
            assert len({tuple(pixel) for pixel in row}) == 8, row
        assert drawn("fig") == [few, listed] != drawn("fig", "--seed", 1)
        os.remove("list")
        shutil.rmtree("few")

    for name in ("a", "b", "c", "d", "w", "fig", "cloud", "disk", "flake", "wood"):
        shutil.rmtree(name, ignore_errors=True)
    os.remove("s.png")
    refused("no place for textures", 2, "--out DIR", "data", "textures", "--family", "disk")
    refused("a sheet that is too large, before its textures are made", 1, "pixels in all", "data",
            "textures", "--family", "disk", "--size", 4096, "--count", 4096, "--sheet", "x.png")
    refused("an unknown family", 2, "disk", "data", "textures", "--family", "disc", "--sheet", "x")
    refused("a radius out of range", 2, "radius", "data", "textures", "--family",
            "disk,radius=1000", "--sheet", "x.png")
    refused("an unknown setting", 2, "radius", "data", "textures", "--family", "disk,radios=3",
            "--sheet", "x.png")
    refused("a folder in no folder", 1, "no/such", "data", "textures", "--family", "disk",
            "--out", "no/such")
    open("file", "w").close()
    refused("a folder that is a file", 1, "a file has that name", "reproduce", "figure-kernels",
            "--out", "file")
    os.remove("file")
    refused("an unknown figure", 2, "figure-textures", "reproduce", "figure-texture")

    @case("samples of no data set: refused before a folder is made")
    def _():
        done = run("reproduce", "figure-samples", "--out", "new")
        assert done.returncode == 2 and "--data" in done.stderr and not os.path.exists("new"), done.stderr

    refused("samples of an unknown data set", 2, "imagenette", "reproduce", "figure-samples", "--data",
            "imagenet=w")
    refused("samples of images that are not there", 1, "nowhere", "reproduce", "figure-samples", "--data",
            "imagenette=nowhere")
    refused("images for a figure without", 2, "figure-kernels", "reproduce", "figure-kernels", "--data",
            "imagenette=w")


# ---- info and pack -------------------------------------------------------------------------------


def test_sources():
    classes("set", {"ant": 6, "bee": 4, "cat": 9})

    @case("info: counts, sizes, mean and std as numpy has them")
    def _():
        x = np.concatenate([np.asarray(Image.open(p)).reshape(-1, 3)
                            for p in glob.glob("set/*/*.png")]) / 255.0
        r = run_json("data", "info", "set")
        assert (r["kind"], r["count"], r["bad"]) == ("folder", 19, 0)
        assert r["smallest"] == r["largest"] == [24, 20] and r["channels"] == 3
        assert [(c["name"], c["count"]) for c in r["classes"]] == [("ant", 6), ("bee", 4), ("cat", 9)]
        assert np.allclose(r["mean"], x.mean(0), atol=1e-12)
        assert np.allclose(r["std"], x.std(0), atol=1e-12)

    @case("info: the text fits 80 columns and names the classes")
    def _():
        done = run("data", "info", "set")
        assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 80
        assert "19 images" in done.stdout and "bee" in done.stdout

    @case("info: a class list chooses and orders")
    def _():
        with open("list", "w") as file:
            file.write("# two of them\ncat some words\n\nant\n")
        r = run_json("data", "info", "set", "--class-list", "list")
        assert [(c["name"], c["count"]) for c in r["classes"]] == [("cat", 9), ("ant", 6)]

    @case("info: the parts of a divided set add up, and are the same twice")
    def _():
        parts = [run_json("data", "info", "set", "--split", s, "--seed", 3)["count"]
                 for s in ("train", "val", "test")]
        assert sum(parts) == 19 and parts[1] >= 1 and parts[2] >= 1, parts

    @case("info: shares of 0 leave everything to train")
    def _():
        r = run_json("data", "info", "set", "--split", "train", "--val-share", 0, "--test-share", 0)
        assert r["count"] == 19, r["count"]

    @case("info: a set whose images lie partly in no class says so")
    def _():
        write_image("set/stray.png", 24, 20)
        done = run("data", "info", "set")
        os.remove("set/stray.png")
        assert "19 images" in done.stdout and "no class's folder" in done.stderr, done.stderr

    @case("info: names from outside cannot move the cursor or break a line")
    def _():
        classes("odd", {"b\n\x1b[31mc": 2})
        for i in range(23):
            open(f"odd/b\n\x1b[31mc/bad{i:02}.png", "w").close()
        done = run("data", "info", "odd")
        shutil.rmtree("odd")
        assert done.returncode == 0 and "\x1b" not in done.stdout, done.stdout
        assert "b\\x0a\\x1b[31mc" in done.stdout and "\n    ... and 3 more\n" in done.stdout

    @case("info: WebP, BMP, GIF and TIFF are read, or named with their number")
    def _():
        os.makedirs("kinds")
        for i, ending in enumerate(("png", "webp", "bmp", "gif", "tif", "TIFF")):
            Image.new("RGB", (10, 8), (40 * i, 90, 200)).save(f"kinds/{i}.{ending}")
        done = run("data", "info", "kinds", "--json")
        skipped = sum(int(line.split("skipped ")[1].split()[0])
                      for line in done.stderr.splitlines() if "skipped" in line)
        assert json.loads(done.stdout)["count"] + skipped == 6, done.stderr
        assert all("this build has no lib" in line or "giflib" in line
                   for line in done.stderr.splitlines()), done.stderr
        shutil.rmtree("kinds")

    @case("pack: the same images, labels and names as the folder")
    def _():
        done = run("data", "pack", "set", "--out", "set.zpk")
        assert done.returncode == 0 and "19 images (train " in done.stdout, done.stderr
        a, b = run_json("data", "info", "set"), run_json("data", "info", "set.zpk")
        assert b["kind"] == "pack"
        for key in ("count", "classes", "smallest", "largest"):
            assert a[key] == b[key], key
        for key in ("mean", "std"):  # the pack has them part by part
            assert np.allclose(a[key], b[key], rtol=1e-12), key

    @case("pack: parts are marked, and fitted to a square")
    def _():
        done = run("data", "pack", "set", "--split", "train,val", "--fit", "center", "--side", 16,
                   "--out", "parts.zpk")
        assert done.returncode == 0, done.stderr
        whole = run_json("data", "info", "parts.zpk")
        train = run_json("data", "info", "parts.zpk", "--split", "train")
        val = run_json("data", "info", "parts.zpk", "--split", "val")
        assert whole["largest"] == [16, 16] and train["count"] + val["count"] == whole["count"]
        assert train["count"] == run_json("data", "info", "set", "--split", "train")["count"]

    @case("pack: keeps the division, of a set with parts and of one that is divided by the seed")
    def _():
        classes("parts/train", {"ant": 6, "bee": 5})
        classes("parts/val", {"ant": 2, "bee": 3})
        for source, options in (("parts", ()), ("set", ("--seed", 3, "--val-share", 0.2))):
            done = run("data", "pack", source, *options, "--out", "kept.zpk")
            assert done.returncode == 0, done.stderr
            counts = {}
            for split in ("train", "val", "test"):
                a = run_json("data", "info", source, "--split", split, "--quiet", *options)
                b = run_json("data", "info", "kept.zpk", "--split", split, "--quiet", "--seed", 99)
                for key in ("count", "classes", "mean", "std"):
                    assert a[key] == b[key], (source, split, key, a[key], b[key])
                counts[split] = a["count"]
            if source == "parts":  # val serves as test, and is packed once
                assert counts == {"train": 11, "val": 5, "test": 5}
                assert "16 images (train 11, val 5)" in done.stdout, done.stdout
            else:
                assert sum(counts.values()) == 19 and min(counts.values()) > 0
        whole = run("data", "pack", "parts", "--split", "all", "--out", "kept.zpk")
        assert "16 images\n" in whole.stdout, whole.stdout
        shutil.rmtree("parts")

    @case("pack: does not enlarge unless it is told to")
    def _():
        write_image("tiny/a/0.png", 24, 20)
        write_image("tiny/a/1.png", 60, 50)
        for flags, smallest, largest in (((), [20, 20], [32, 32]),
                                         (("--enlarge",), [32, 32], [32, 32])):
            for fit in ("center", "stretch"):
                done = run("data", "pack", "tiny", "--split", "all", "--fit", fit, "--side", 32,
                           "--out", "t.zpk", *flags)
                r = run_json("data", "info", "t.zpk")
                assert (r["smallest"], r["largest"]) == (smallest, largest), (fit, r)
                assert ("1 are smaller than 32 x 32" in done.stdout) != bool(flags), done.stdout
        shutil.rmtree("tiny")

    @case("a truncated image is named, counted and left out")
    def _():
        good = open("set/cat/000.png", "rb").read()
        with open("set/cat/zzz.png", "wb") as file:
            file.write(good[: len(good) // 2])
        r = run_json("data", "info", "set")
        assert r["bad"] == 1 and r["count"] == 19 and "zzz.png" in r["why_bad"][0]
        done = run("data", "pack", "set", "--out", "rest.zpk", "--max-corrupt", 0.2)
        assert done.returncode == 0 and "zzz.png" in done.stderr, done.stderr
        assert "1 corrupt" in done.stdout

    @case("too many corrupt images end the run, and no pack is left")
    def _():
        for i in range(6):
            open(f"set/bee/bad{i}.png", "wb").close()
        done = run("data", "pack", "set", "--out", "none.zpk")
        assert done.returncode == 1 and not os.path.exists("none.zpk")
        assert "--max-corrupt" in done.stderr or "corrupt" in done.stderr, done.stderr

    for name in glob.glob("*.zpk") + ["list"]:
        os.remove(name)
    shutil.rmtree("set")


def test_bad_sources():
    os.makedirs("empty")
    classes("gap", {"ant": 2})
    os.makedirs("gap/bee")
    os.makedirs("gap/cow")
    with open("list", "w") as file:
        file.write("ant\nbeee\n")
    open("zero.jpg", "wb").close()
    with open("text.h5", "w") as file:
        file.write("not HDF5")
    classes("loop", {"ant": 2})
    os.symlink("..", "loop/ant/again")
    os.symlink(".", "loop/ant/round")
    refused("a path that is not there", 1, "nowhere", "data", "info", "nowhere")
    refused("an empty folder", 1, "empty", "data", "info", "empty")

    @case("two classes without images, two loops of links: both are named, and why this is the end")
    def _():
        for name, problems in (("gap", ("class bee has no image", "class cow has no image")),
                               ("loop", ("loop/ant/again is a link", "loop/ant/round is a link"))):
            done = run("data", "info", name)
            lines = done.stderr.splitlines()
            assert done.returncode == 1 and done.stdout == "" and len(lines) == 3, done.stderr
            assert all(p in line for p, line in zip(problems, lines)), done.stderr
            assert "too many broken links" in lines[2], done.stderr
            assert run("data", "info", name, "--max-corrupt", 0.5, "--quiet").returncode == 0

    refused("more textures than can be put in order", 2, "--count", "data", "info",
            "textures:disk", "--count", 1000000000)
    @case("a large file that is no image is not read to its end")
    def _():
        classes("hog", {"ant": 3})
        with open("hog/ant/zeros.jpg", "wb") as file:
            file.truncate(1000 << 20)
        process = subprocess.Popen([PROGRAM, "data", "info", "hog", "--max-corrupt", "0.5", "--quiet"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0 and used.ru_maxrss < 500 << 10, (process.returncode, used.ru_maxrss)
        shutil.rmtree("hog")

    refused("so many images of a folder", 2, "--count is for textures", "data", "info", "loop", "--count", 2)
    refused("a folder in textures' size", 2, "--size is for textures", "data", "pack", "loop", "--size", 64,
            "--out", "x.zpk")
    refused("a class that is not there", 1, "bee", "data", "info", "gap", "--class-list", "list")
    refused("a file that is no source", 1, "text.h5", "data", "info", "text.h5")
    classes("half/val", {"ant": 2, "bee": 2})
    write_image("half/train/0.png", 24, 20)
    refused("parts with and without classes", 1, "no classes", "data", "pack", "half", "--split",
            "val,train", "--out", "x.zpk")
    refused("parts without and with classes", 1, "have classes", "data", "pack", "half", "--split",
            "train,val", "--out", "x.zpk")
    shutil.rmtree("half")
    refused("a side that nothing is fitted to", 2, "--fit", "data", "pack", "loop", "--side", 16,
            "--out", "x.zpk")
    refused("a list of parts that is none", 2, "--split", "data", "pack", "gap", "--split",
            "train,all", "--out", "x.zpk")
    refused("textures of no family", 2, "wood", "data", "info", "textures:woot")
    refused("no room for a pack", 1, "No space", "data", "pack", "textures:disk", "--count", 3, "--size",
            64, "--out", "/dev/full")
    assert run("data", "pack", "textures:disk", "--count", 2, "--out", "x.zpk").returncode == 0
    kept("a pack", "x.zpk", "data", "pack", "x.zpk", "--out", "x.zpk")
    os.remove("x.zpk")
    done = run("data", "pack", "textures:disk", "--count", 2, "--out", "a\x1b[31mb\n.zpk")
    assert done.returncode == 0 and "\x1b" not in done.stdout and done.stdout.count("\n") == 1, done.stdout
    os.remove("a\x1b[31mb\n.zpk")
    kept("a pack of some classes", "list", "data", "pack", "loop", "--class-list", "list", "--out",
         "./list")
    refused("a pack in the place of an image", 2, "let its name end in .zpk", "data", "pack", "loop",
            "--out", "zero.jpg")
    refused("no folder for a pack", 1, "no/such", "data", "pack", "textures:disk", "--count", 2,
            "--out", "no/such/x.zpk")

    @case("Ctrl-C while packing leaves nothing behind")
    def _():
        child = subprocess.Popen([PROGRAM, "data", "pack", "textures:flake", "--out", "big.zpk"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=20)
        assert child.returncode == 130 and not glob.glob("big*"), glob.glob("big*")

    shutil.rmtree("empty")
    shutil.rmtree("gap")
    shutil.rmtree("loop")
    for name in ("list", "zero.jpg", "text.h5"):
        os.remove(name)


def test_bench():
    @case("bench augment: a line for each kind")
    def _():
        done = run("bench", "augment", "--views", 4, "--side", 32, "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["kind"] for line in lines] == ["photograph", "texture"], done.stderr
        assert all(line["views_per_s"] > 0 for line in lines)

    @case("bench data: reading, cropping, loading")
    def _():
        done = run("bench", "data", "textures:disk", "--count", 40, "--size", 64, "--side", 32,
                   "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["what"] for line in lines] == ["read", "crop", "loader", "stream"], done.stderr
        assert lines[0]["images"] == 40
        # Of a whole texture as it is stored: 64 x 64 bytes.
        assert abs(lines[3]["gb_per_s"] * lines[3]["seconds"] / (40 * 64 * 64 / 1e9) - 1) < 1e-4, lines[3]

    refused("a comparison of textures", 2, "--torch", "bench", "augment", "--kind", "texture",
            "--torch")
    for part in ("data textures", "data info", "data pack", "bench augment", "bench data", "data",
                 "reproduce"):
        done = run(*part.split(), "--help")
        report(done.returncode == 0 and done.stdout.startswith("usage: zonal")
               and max(map(len, done.stdout.splitlines())) <= 80, f"zonal {part} --help")


run_tests(test_textures, test_sources, test_bad_sources, test_bench)
