"""What the tests of zonal reproduce share: miniature settings and images, and calls of the program."""
import json
import os

from harness import run

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # tests run side by side

NETWORK = "width=0.015625,projector=16-8,batch=8,precision=fp32,workers=1"
TINY = ["--side", 16, "--device", "cpu", "--threads", 1]
TEXTURES = ["table-textures", *TINY, "--options", NETWORK + ",texture-count=32,texture-size=24"]


def reproduce(*arguments):
    return run("reproduce", *arguments)


def records(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def make_images(folder):
    """Class folders as ImageNet's, train/ and val/."""
    for split, count in (("train", 12), ("val", 6)):
        os.makedirs(f"{folder}/{split}")
        for family in ("disk", "cloud", "wood"):
            done = run("data", "textures", "--family", family, "--count", count, "--size", 24,
                       "--split", split, "--out", f"{folder}/{split}/n0{family}", "--quiet")
            assert done.returncode == 0, done.stderr
    with open("classes.txt", "w") as file:
        file.write("n0wood\nn0disk\n")
