#!/usr/bin/env python3
"""What zonal train --resume takes from a run folder, and what it refuses: links, files of others,
an edited configuration. ZONAL_PROGRAM is the program to test."""
import glob
import os
import shutil

from harness import case, refused, run, run_tests

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # tests run side by side

# A network of some thousand weights on textures of 24 pixels: a step takes a few milliseconds.
TINY = (
    "--side 16 --width 0.015625 --projector 16-8 --batch 8 --threads 1 --workers 1 "
    "--precision fp32 --device cpu --eval none --log-every 2"
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

    @case("what decides no number may be edited, and comments too")
    def _():
        line, _ = value_of("keep")
        write("run/config.toml", config.replace(line, "keep = 3 # more of them"))
        trained("--resume", "run", "--quiet")

    clear()


if __name__ == "__main__":
    run_tests(test_trust, test_configuration)
