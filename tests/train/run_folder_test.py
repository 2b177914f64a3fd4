#!/usr/bin/env python3
"""What zonal train --resume takes from a run folder, and what it refuses: links, files of others,
an edited configuration, images that have changed; runs that are made longer. ZONAL_PROGRAM is the
program to test."""
import glob
import json
import math
import os
import re
import shutil
import struct
import zlib

from harness import case, refused, run, run_tests, skip, write_mnist

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # tests run side by side

# A network of some thousand weights on textures of 24 pixels: a step takes a few milliseconds.
TINY = (
    "--side 16 --width 0.015625 --projector 16-8 --batch 8 --threads 1 --workers 1 "
    "--precision fp32 --device cpu --eval none --log-every 1"
).split()
TEXTURES = ["textures:disk", "--texture-count", "32", "--texture-size", "24", *TINY]


def train(*arguments):
    return run("train", *arguments)


def trained(*arguments):
    done = train(*arguments)
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stderr)
    return done


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def content(folder):
    """Every file under a folder; links are not followed."""
    return {
        os.path.join(at, name): read(os.path.join(at, name))
        for at, _, names in os.walk(folder)
        for name in names
        if not os.path.islink(os.path.join(at, name))
    }


def last(folder):
    return read(sorted(glob.glob(folder + "/checkpoints/step-*.safetensors"))[-1])


def clear():
    for name in os.listdir():
        shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)


def refused_unchanged(name, status, text, *arguments):
    """Refused, and nothing in the present folder was changed."""
    before = content(".")
    refused(name, status, text, *arguments)

    @case(f"{name}: nothing was changed")
    def _():
        assert content(".") == before


# ---- links and files of others -------------------------------------------------------------------


def test_trust():
    trained(*TEXTURES, "--steps", 6, "--checkpoint-every", 2, "--out", "run", "--quiet")
    os.mkdir("elsewhere")

    def with_link(name, target):
        """A copy of the run in which a file or folder has been moved away and linked to."""
        shutil.rmtree("copy", ignore_errors=True)
        shutil.rmtree("elsewhere")
        shutil.copytree("run", "copy")
        os.mkdir("elsewhere")
        os.rename("copy/" + name, "elsewhere/" + target)
        os.symlink("../" * (1 + name.count("/")) + "elsewhere/" + target, "copy/" + name)

    for name, target in (
        ("metrics.jsonl", "m"),
        ("log.txt", "l"),
        ("config.toml", "c"),
        ("checkpoints", "folder"),
        ("checkpoints/step-00000006.safetensors", "s"),
        ("checkpoints/best.safetensors", "b"),
    ):
        with_link(name, target)
        refused_unchanged(f"a link: {name}", 1, "is a link", "train", "--resume", "copy")

    with_link("metrics.jsonl", "m")
    write("elsewhere/m", "not a line of this is JSON\n")
    refused_unchanged("a link to a file that is no JSON", 1, "is a link", "train", "--resume", "copy")
    os.remove("copy/metrics.jsonl")
    os.symlink("../elsewhere/nothing", "copy/metrics.jsonl")
    refused_unchanged("a link to nothing", 1, "is a link", "train", "--resume", "copy")
    os.remove("copy/metrics.jsonl")
    os.mkfifo("copy/metrics.jsonl")
    refused("a pipe for metrics", 1, "not a file", "train", "--resume", "copy")
    shutil.rmtree("copy")

    shutil.copytree("run", "copy")
    write("copy/metrics.jsonl", "dear diary,\ntoday nothing happened\n")
    refused_unchanged("metrics that are no JSON", 1, "metrics.jsonl", "train", "--resume", "copy")
    shutil.rmtree("copy")

    @case("a run may be reached by a link, and its metrics may be missing")
    def _():
        shutil.copytree("run", "copy")
        os.symlink("copy", "link")
        os.remove("copy/metrics.jsonl")
        trained("--resume", "link", "--quiet")
        os.remove("link")
        shutil.rmtree("copy")

    @case("of temporaries only those of the run's own files are removed")
    def _():
        shutil.copytree("run", "copy")
        ours = ["config.toml.tmp.12-3", "checkpoints/step-00000006.safetensors.tmp.1-0"]
        ours += ["checkpoints/best.safetensors.tmp.77-12"]
        theirs = ["notes.tmp.txt", "my.tmp.12-3", "config.toml.tmp.12", "config.toml.tmp.a-3"]
        theirs += ["checkpoints/step-6.safetensors.tmp.1-0", "checkpoints/old.tmp.backup"]
        theirs += ["checkpoints/config.toml.tmp.1-2", "config.toml.tmp.12-3.old"]
        for name in ours + theirs:
            write("copy/" + name, name)
        trained("--resume", "copy", "--quiet")
        left = [name for name in ours if os.path.exists("copy/" + name)]
        gone = [name for name in theirs if not os.path.exists("copy/" + name)]
        assert not left and not gone, (left, gone)
        shutil.rmtree("copy")

    clear()


# ---- the configuration ---------------------------------------------------------------------------


def test_configuration():
    trained(*TEXTURES, "--steps", 4, "--t", "5/d", "--method", "mmd-heat", "--margin", 2, "--out", "run", "--quiet")
    config = read("run/config.toml").decode()

    def value_of(key):
        (line,) = [line for line in config.splitlines() if line.split(" = ")[0] == key]
        return line, line.split(" = ")[1].split("#")[0].strip()

    for key, new in (
        ("lr", "0.5"),
        ("method", '"ksd-heat"'),
        ("batch", "4"),
        ("seed", "7"),
        ("t", '"4/d"'),
        ("schedule", '"constant"'),
        ("steps", "9"),
        ("projector-norm", "false"),
        ("texture-count", "40"),
    ):
        line, old = value_of(key)
        write("run/config.toml", config.replace(line + "\n", f"{key} = {new}\n"))
        said = f"{key} was {old} and is {new} now"
        refused_unchanged(f"an edited {key}", 2, said, "train", "--resume", "run")
    line, old = value_of("t")
    write("run/config.toml", config.replace(line + "\n", ""))
    refused("a removed line", 2, f"t was {old} and is not given now", "train", "--resume", "run")
    write("run/config.toml", config + 'view-scale = "0.9,1.1"\n')
    refused("an added line", 2, "view-scale was not given", "train", "--resume", "run")

    write("run/config.toml", config)
    for flags, said in (
        (("--batch", 4), "--batch cannot be changed when a run is resumed: it is 8"),
        (("--device", "cpu", "--method", "ksd-heat"), '--method cannot be changed when a run is resumed: it is "mmd-heat"'),
        (("--view-scale", "0.9,1.1"), "--view-scale cannot be changed when a run is resumed; leave it out"),
        (("--gain", 3), "--gain cannot be changed"),
        (("--device", "cuda"), '--device cannot be changed when a run is resumed: it is "cpu"'),
        (("--out", "other"), "--out cannot be changed"),
    ):
        refused_unchanged(f"another {flags[-2]}", 2, said, "train", "--resume", "run", *flags)

    @case("options that are the run's own may be given again")
    def _():
        trained("--resume", "run", "--quiet", "--device", "cpu", "--batch", 8, "--t", "5/d", "--margin", 2, "--set", "seed=0")

    # Without a GPU the sentence about the missing one shows that the option itself was accepted.
    line, old = value_of("device")
    write("run/config.toml", config.replace(line + "\n", 'device = "cuda:9"\n'))
    for device, said in (("cuda:8", "cuda:8"), ("cuda", "cuda"), ("cpu", 'it is "cuda:9"')):
        done = train("--resume", "run", "--quiet", "--device", device)

        @case(f"--device {device} for a run on cuda:9")
        def _():
            assert done.returncode != 0 and said in done.stderr, done.stderr
            assert ("cannot be changed" in done.stderr) == (device == "cpu"), done.stderr

    write("run/config.toml", config)

    @case("what decides no number may be edited, and comments too")
    def _():
        line, _ = value_of("keep")
        write("run/config.toml", config.replace(line, "keep = 3 # more of them"))
        trained("--resume", "run", "--quiet")

    clear()


# ---- images --------------------------------------------------------------------------------------


def write_png(path, brightness, side=20):
    """A grey image with a gradient."""
    rows = b"".join(
        b"\0" + bytes((brightness + 3 * x + 5 * y) % 256 for x in range(side)) for y in range(side)
    )

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)))
        file.write(chunk(b"IEND", b""))


def write_folder(folder):
    for c, name in enumerate(("ant", "bee")):
        os.makedirs(f"{folder}/{name}")
        for i in range(20):
            write_png(f"{folder}/{name}/{i:02}.png", 40 * c + 7 * i)


def write_idx(folder, count, side=12):
    os.makedirs(folder)
    for part in ("train", "t10k"):
        pixels = bytes((i * 31 + p * 7) % 256 for i in range(count) for p in range(side * side))
        write_mnist(folder, part, side, [i % 3 for i in range(count)], pixels)


def test_arrays():
    """Images of one file: they have numbers, no names."""
    write_idx("squares", 60)
    trained("squares", *TINY, "--steps", 4, "--out", "run", "--quiet")
    whole = last("run")

    @case("images that are the same are accepted")
    def _():
        trained("--resume", "run", "--quiet")
        assert last("run") == whole

    with open("squares/train-images-idx3-ubyte", "r+b") as file:
        file.seek(16 + 12 * 12 * 7 + 5)
        file.write(b"\xff\x00\xff")
    refused_unchanged("a replaced image of many", 1, "1 replaced", "train", "--resume", "run")
    shutil.rmtree("squares")
    write_idx("squares", 61)
    refused_unchanged("an image more", 1, "--changed-data allow", "train", "--resume", "run")
    clear()


def test_images():
    write_folder("photos")
    arguments = ["photos", *TINY, "--steps", 6, "--out", "run", "--quiet"]
    done = train(*arguments)
    if "this build cannot read" in done.stderr:
        skip("folders of images", done.stderr.splitlines()[-1])
        return clear()
    assert done.returncode == 0, done.stderr
    whole = last("run")

    def changed(name, text, change):
        """Refused after a change, which is taken back."""
        shutil.copytree("photos", "kept")
        change()
        refused_unchanged(name, 1, text, "train", "--resume", "run")
        shutil.rmtree("photos")
        os.rename("kept", "photos")

    @case("zonal eval compares them too")
    def _():
        few = ["--protocol", "knn", "--device", "cpu", "--threads", 1]
        assert run("eval", "run", *few).returncode == 0
        write_png("photos/bee/new.png", 9)
        done = run("eval", "run", *few)
        assert done.returncode == 1 and "1 added (bee/new.png)" in done.stderr, done.stderr
        done = run("eval", "run", *few, "--changed-data", "allow")
        assert done.returncode == 0 and "1 added (bee/new.png)" in done.stderr, done.stderr
        assert run("eval", "run", *few, "--data", "photos").returncode == 0
        os.remove("photos/bee/new.png")

    changed("an image removed", "1 removed (ant/03.png)", lambda: os.remove("photos/ant/03.png"))
    changed("an image added", "1 added (bee/new.png)", lambda: write_png("photos/bee/new.png", 9))
    changed("an image replaced", "1 replaced (bee/04.png)", lambda: write_png("photos/bee/04.png", 251))

    def rename():
        os.rename("photos/ant/03.png", "photos/ant/99.png")

    changed("an image renamed", "1 added (ant/99.png), 1 removed (ant/03.png)", rename)

    def add_class():
        os.mkdir("photos/cow")
        for i in range(5):
            write_png(f"photos/cow/{i}.png", i)

    changed("a class added", "5 added (cow/0.png, cow/1.png, cow/2.png, ...)", add_class)

    @case("the same images, touched and copied, are the same")
    def _():
        shutil.copytree("photos", "kept")
        shutil.rmtree("photos")
        os.rename("kept", "photos")
        trained("--resume", "run", "--quiet")
        assert last("run") == whole

    os.rename("photos", "moved")
    refused("--data that is not there", 1, "cannot read --data nowhere", "train", "--resume", "run", "--data", "nowhere")
    refused_unchanged("images that are gone", 1, "photos; if they have been moved, give --data",
                      "train", "--resume", "run")
    refused("a folder beside --resume", 2, "--data moved", "train", "moved", "--resume", "run")

    @case("--data: the same images elsewhere, which the run then remembers")
    def _():
        shutil.copytree("run", "copy")
        os.remove("copy/checkpoints/step-00000006.safetensors")
        trained("--resume", "copy", "--data", "moved", "--quiet")
        assert last("copy") == whole
        trained("--resume", "copy", "--quiet")
        shutil.rmtree("copy")

    @case("--class-list: the same list elsewhere, which the run then remembers")
    def _():
        write("list", "bee\nant\n")
        trained("moved", *TINY, "--steps", 2, "--class-list", "list", "--out", "listed", "--quiet")
        os.rename("list", "list of classes")
        trained("--resume", "listed", "--class-list", "list of classes", "--quiet")
        assert f'class-list = "{os.getcwd()}/list of classes"' in read("listed/config.toml").decode()
        trained("--resume", "listed", "--quiet")
        shutil.rmtree("listed")

    @case("what is new in a configuration is not put into a section at its end")
    def _():
        write("list of classes", "ant\nbee\n")
        trained("moved", *TINY, "--steps", 2, "--out", "listed", "--quiet")
        config = read("listed/config.toml").decode()
        every = re.search(r"(?m)^checkpoint-every = .*\n", config)[0]
        write("listed/config.toml", config.replace(every, "") + "[checkpoint]\n" + every.partition("-")[2])
        trained("--resume", "listed", "--class-list", "list of classes", "--quiet")
        trained("--resume", "listed", "--quiet")
        shutil.rmtree("listed")
        os.remove("list of classes")

    os.remove("moved/ant/00.png")
    refused_unchanged("--data with other images", 1, "1 removed (ant/00.png)", "train", "--resume",
                      "run", "--data", "moved")

    @case("--changed-data allow: with a warning, and once")
    def _():
        done = train("--resume", "run", "--data", "moved", "--changed-data", "allow", "--quiet")
        assert done.returncode == 0 and "1 removed (ant/00.png)" in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
        assert "1 removed (ant/00.png)" in read("run/log.txt").decode()
        trained("--resume", "run", "--quiet")

    write("run/data.txt", "what is this?\n")
    refused("a record that is none", 1, "data.txt is not a record", "train", "--resume", "run")

    @case("a run of an earlier version has no record, and gets one")
    def _():
        os.remove("run/data.txt")
        trained("--resume", "run", "--quiet")
        assert read("run/data.txt").count(b"\nimage ") == 39

    clear()


# ---- length --------------------------------------------------------------------------------------


def rates(folder):
    with open(folder + "/metrics.jsonl") as file:
        found = [json.loads(line) for line in file]
    return {line["step"]: line["rate"] for line in found if line["kind"] == "step"}


def test_length():
    constant = [*TEXTURES, "--schedule", "constant", "--warmup", "0.5", "--quiet"]

    @case("at a constant rate a longer run is bit for bit one that was begun with that length")
    def _():
        trained(*constant, "--steps", 8, "--out", "long")
        trained(*constant, "--steps", 5, "--out", "short")
        trained("--resume", "short", "--steps", 8, "--quiet")
        weights = lambda folder: last(folder)[-4096:]  # behind the header, which has the length
        assert weights("short") == weights("long") and rates("short") == rates("long")
        trained("--resume", "short", "--epochs", 3, "--quiet")  # 4 steps an epoch
        assert max(rates("short")) == 12
        trained("--resume", "short", "--quiet")

    @case("else the rates after it are those of a run of the new length, by the formula")
    def _():
        done = trained(*TEXTURES, "--gain", "batch", "--lr", 0.25, "--warmup", 0, "--steps", 4, "--out", "c")
        assert ", 1 epoch;" in done.stdout, done.stdout
        done = trained("--resume", "c", "--steps", 10, "--log-every", 1)
        assert "now 10 steps" in done.stdout and "learning rates" in done.stdout, done.stdout
        cosine = lambda step, total: 0.25 * (1 + math.cos(math.pi * (step - 1) / total)) / 2
        for step, rate in rates("c").items():
            wanted = cosine(step, 4 if step <= 4 else 10)
            assert abs(rate - wanted) < 1e-12, (step, rate, wanted)
        config = read("c/config.toml").decode()
        assert "steps = 10  # --resume at step 4; 4 steps before\n" in config, config
        assert max(map(len, done.stdout.splitlines())) <= 80, done.stdout

    @case("a run that is killed after it was made longer goes on with the new length")
    def _():
        trained(*TEXTURES, "--steps", 4, "--checkpoint-every", 2, "--out", "k", "--quiet")
        trained("--resume", "k", "--steps", 6, "--checkpoint-every", 1, "--quiet")
        os.remove("k/checkpoints/step-00000006.safetensors")
        trained("--resume", "k", "--quiet")
        assert max(rates("k")) == 6

    refused_unchanged("fewer steps than were made", 2, "has made 10 steps", "train", "--resume", "c",
                      "--steps", 7)
    refused_unchanged("epochs and steps", 2, "both say", "train", "--resume", "c", "--steps", 20,
                      "--epochs", 30)
    config = read("c/config.toml").decode()
    write("c/config.toml", config.replace("steps = 10", "steps = 20"))
    refused("an edited length", 2, "give --steps 20 with --resume", "train", "--resume", "c")

    @case("as many steps as it has: nothing to do")
    def _():
        write("c/config.toml", config)
        trained("--resume", "c", "--steps", 10, "--quiet")
        assert read("c/config.toml").decode() == config

    clear()


if __name__ == "__main__":
    run_tests(test_trust, test_configuration, test_arrays, test_images, test_length)
