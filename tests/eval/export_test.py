#!/usr/bin/env python3
"""zonal export: what an exported file says of itself is enough to use it. The Python of the model
card is run as it stands, and its features must be those of zonal embed; where torchvision or
safetensors is not installed, a network of the same names and a reader of a few lines take their
place."""
import json
import os
import re
import shutil
import struct
import sys
import types

from harness import case, refused, run, run_tests, skip
from own_resnet import own_resnet18

try:
    import numpy as np
except ImportError:
    print("ok 1 - all # SKIP this Python has no numpy")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # small networks, and tests run side by side
try:
    import torch
    torch.set_num_threads(1)
except ImportError:
    torch = None

HEIGHT, WIDTH, SIDE, TRAIN, TEST = 37, 42, 24, 40, 8
BF16 = 2.0**-8  # relative error of one rounding


def make_images():
    """Smooth blobs, so that resampling matters but is well conditioned. Returns those of the test
    part as uint8 [n][height][width]."""
    generator, parts = np.random.default_rng(3), {}
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    os.makedirs("images", exist_ok=True)
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        waves = generator.uniform(0.05, 0.6, (count, 2, 1, 1))
        pixels = 127 + 60 * np.sin(waves[:, 0] * x + 1) + 60 * np.cos(waves[:, 1] * y)
        parts[part] = pixels.clip(0, 255).astype("u1")
        with open(f"images/{part}-images-idx3-ubyte", "wb") as file:
            file.write(struct.pack(">IIII", 0x803, count, HEIGHT, WIDTH) + parts[part].tobytes())
        with open(f"images/{part}-labels-idx1-ubyte", "wb") as file:
            file.write(struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count)))
    return parts["t10k"]


def done_well(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, f"{arguments}: status {done.returncode}: {done.stderr}"
    return done


def train(out, *arguments):
    done_well("train", "images", "--out", out, "--steps", 1, "--batch", 4, "--side", SIDE,
              "--device", "cpu", "--precision", "fp32", "--eval", "none", "--quiet",
              "--projector", "8", *arguments)


def read_safetensors(path):
    content = open(path, "rb").read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__", {})
    data, kinds = memoryview(content)[8 + length:], {"F32": "<f4", "I64": "<i8"}
    return metadata, {
        name: np.frombuffer(data[slice(*entry["data_offsets"])],
                            kinds[entry["dtype"]]).reshape(entry["shape"]).copy()
        for name, entry in header.items()}


def rewrite_metadata(path, out, **changes):
    content = open(path, "rb").read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header["__metadata__"].update({"zonal." + key: text for key, text in changes.items()})
    text = json.dumps(header).encode()
    with open(out, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + content[8 + length:])


# ---- the modules that a card imports -------------------------------------------------------------


def offer_modules():
    """Puts stand-ins for what is not installed where import finds them. Returns torchvision."""
    try:
        import torchvision
    except ImportError:
        torchvision = types.ModuleType("torchvision")
        torchvision.models = types.SimpleNamespace(resnet18=own_resnet18)
        torchvision.io = types.SimpleNamespace()
        sys.modules["torchvision"] = torchvision
    try:
        import safetensors.torch  # noqa: F401
    except ImportError:
        def load_file(path):
            return {name: torch.from_numpy(np.asarray(array))
                    for name, array in read_safetensors(path)[1].items()}
        sys.modules["safetensors"] = types.ModuleType("safetensors")
        sys.modules["safetensors.torch"] = types.ModuleType("safetensors.torch")
        sys.modules["safetensors.torch"].load_file = load_file
    return torchvision


def features_by_card(folder, images):
    """Runs the card's first block of Python once for each image."""
    code = re.findall("```python\n(.*?)```", open(f"{folder}/README.md").read(), re.S)[0]
    torchvision, found = offer_modules(), []
    here = os.getcwd()
    os.chdir(folder)
    load, show = code.split("\n\ndef preprocess", 1)
    names = {}
    exec(load, names)
    for image in images:
        torchvision.io.read_image = lambda path, image=image: torch.from_numpy(image)[None]
        exec("def preprocess" + show, names)
        found.append(names["features"][0].numpy())
    os.chdir(here)
    return np.array(found)


# ---- tests ---------------------------------------------------------------------------------------


def change(path, old, new):
    text = open(path).read()
    assert len(re.findall(old, text, re.M)) == 1, f"{path}: {old}"
    with open(path, "w") as file:
        file.write(re.sub(old, new, text, flags=re.M))


def compare_features(run_name, images):
    """zonal embed of a run, against the card's Python and against the exported file."""
    done_well("export", run_name, "--out", "out/b.safetensors", "--card", "--quiet")
    by_card = features_by_card("out", images)
    for precision, tolerance in (("fp32", 1e-4), ("bf16", 20 * BF16)):
        done_well("embed", run_name, "--split", "test", "--out", "E.npy", "--quiet",
                  "--index", "none", "--precision", precision)
        want = np.load("E.npy")
        worst = np.abs(by_card - want).max() / np.abs(want).max()
        assert worst < tolerance, f"{precision}: features differ by {worst:.1e}"
    done_well("embed", run_name, "--split", "test", "--out", "E.npy", "--index", "none", "--quiet")
    done_well("embed", "out/b.safetensors", "--data", "images", "--split", "test", "--out",
              "F.npy", "--index", "none", "--quiet")
    assert (np.load("E.npy") == np.load("F.npy")).all()


def test_card_and_features():
    if torch is None:
        return skip("features by the card's Python", "this Python has no torch")
    images = make_images()
    os.mkdir("out")
    train("grey", "--optimiser", "sgd")
    train("rgb", "--optimiser", "sgd", "--channels", 3, "--mean", "0.4,0.5,0.45", "--std",
          "0.2,0.3,0.25")

    @case("the card's Python gives the features of zonal embed: grey, the centre")
    def _():
        compare_features("grey", images)

    @case("the same for RGB")
    def _():
        compare_features("rgb", images)

    @case("the same for the whole image")
    def _():
        change("grey/config.toml", '^crop = "center"', 'crop = "whole"')
        compare_features("grey", images)

    @case("the same for textures")
    def _():
        change("grey/config.toml", '^augmentation = "byol"', 'augmentation = "texture"')
        compare_features("grey", images)

    for path in ("grey", "rgb", "out", "images"):
        shutil.rmtree(path)
    os.remove("E.npy")
    os.remove("F.npy")


def test_metadata():
    make_images()
    train("run", "--width", "0.125", "--crop", "center", "--mean", "0.3", "--std", "0.7")
    done_well("eval", "run", "--protocol", "knn", "--quiet")
    done_well("eval", "run", "--protocol", "linear", "--l2", "0.1", "--limit", 27, "--quiet")
    os.mkdir("out")

    @case("the metadata of the file")
    def _():
        done_well("export", "run", "--out", "out/b.safetensors", "--quiet")
        assert os.listdir("out") == ["b.safetensors"]
        metadata, _ = read_safetensors("out/b.safetensors")
        want = {"format": "pt", "side": str(SIDE), "crop": "center", "augmentation": "byol", "mean": "0.3",
                "std": "0.7", "stem": "small", "channels": "1", "architecture": "resnet18",
                "method": "mmd-band", "data": "images", "step": "1"}
        for key, value in want.items():
            assert metadata[key if key == "format" else "zonal." + key] == value, (key, metadata)
        assert re.fullmatch(r"\d+\.\d+\.\d+", metadata["zonal.version"])

    @case("flags override it, and that is said")
    def _():
        files = {}
        for key, more in (("as it says", ()), ("mean", ("--mean", "0.1")),
                          ("crop", ("--crop", "whole")), ("the same", ("--mean", "0.3"))):
            done = done_well("embed", "out/b.safetensors", "--data", "images", "--split", "test",
                             "--out", "E.npy", "--index", "none", *more)
            said = f"was trained with {key} " in done.stderr
            assert said == (key in ("mean", "crop")), (key, done.stderr)
            files[key] = open("E.npy", "rb").read()
        assert files["as it says"] == files["the same"]
        assert len(set(files.values())) == 3
        os.remove("E.npy")

    @case("exported again, it says the same")
    def _():
        done_well("export", "out/b.safetensors", "--out", "out/c.safetensors", "--quiet")
        assert open("out/b.safetensors", "rb").read() == open("out/c.safetensors", "rb").read()
        os.remove("out/c.safetensors")

    @case("the card: front matter, the results of these weights, nothing partial")
    def _():
        done_well("export", "run", "--out", "out/b.safetensors", "--card", "--quiet")
        text = open("out/README.md").read()
        assert text.startswith("---\nlibrary_name: zonal\n"), text
        (result,) = [r for r in json.load(open("run/eval/knn.json"))["results"]
                     if r["features"] == "backbone"]
        assert f"value: {100 * result['accuracy']:.2f}" in text
        assert f"| k-NN, k 20, T 0.07 | {TEST} of the test part of images |" in text, text
        assert "linear probe" not in text and "no ResNet of this width" in text
        assert ", 1 step. Exported by zonal" in text, text
        try:
            import yaml
        except ImportError:
            return
        front = yaml.safe_load(text.split("---\n")[1])
        (entry,) = front["model-index"][0]["results"]
        assert entry["metrics"][0]["type"] == "accuracy"
        assert entry["metrics"][0]["value"] == round(100 * result["accuracy"], 2)

    @case("the card takes no results with other preprocessing than it states")
    def _():
        before = open("out/README.md").read()
        kept = open("run/eval/knn.json").read()
        for other in (("--side", 8), ("--mean", "0.1"), ("--crop", "whole"),
                      ("--checkpoint", "run/checkpoints/step-00000001.safetensors")):
            done_well("eval", "run", "--protocol", "knn", "--quiet", *other)
        assert len(json.load(open("run/eval/knn.json"))["results"]) == 10
        done_well("export", "run", "--out", "out/b.safetensors", "--card", "--quiet")
        assert open("out/README.md").read() == before
        with open("run/eval/knn.json", "w") as file:
            file.write(kept)

    @case("the card takes no results by other settings than the run's")
    def _():
        before = open("out/README.md").read()
        kept = open("run/eval/knn.json").read()
        for other in (("--data-seed", 3), ("--val-share", "0.5"), ("--data-seed", 3, "--k", 1)):
            done_well("eval", "run", "--protocol", "knn", "--quiet", *other)
        done_well("export", "run", "--out", "out/b.safetensors", "--card", "--quiet")
        assert open("out/README.md").read() == before
        with open("run/eval/knn.json", "w") as file:
            file.write(kept)

    @case("a card is replaced, somebody's own README.md is not")
    def _():
        done_well("export", "run", "--out", "out/b.safetensors", "--card", "--quiet")
        with open("out/README.md", "w") as file:
            file.write("# My model\n")
        before = open("out/b.safetensors", "rb").read()
        done = run("export", "run", "--out", "out/b.safetensors", "--card")
        assert done.returncode == 1 and "out/README.md" in done.stderr, done.stderr
        assert open("out/README.md").read() == "# My model\n"
        assert open("out/b.safetensors", "rb").read() == before
        os.remove("out/README.md")

    @case("results of other weights are not in the card")
    def _():
        path = "run/eval/knn.json"
        text = open(path).read()
        with open(path, "w") as file:
            file.write(text.replace('"step": 1,', '"step": 2,'))
        done_well("export", "run", "--out", "out/b.safetensors", "--card", "--quiet")
        assert "no result of `zonal eval` for these weights" in open("out/README.md").read()
        with open(path, "w") as file:
            file.write(text)
        os.remove("out/README.md")

    @case("what a results file says is text in the card, and no markup")
    def _():
        path = "run/eval/knn.json"
        text = open(path).read()
        found = json.loads(text)
        for r in found["results"]:
            r["part"] = "test: {a\n  b | [x](http://x) ![y](z) <b> `c`"
        with open(path, "w") as file:
            json.dump(found, file)
        done_well("export", "run", "--out", "out/b.safetensors", "--card", "--quiet")
        card = open("out/README.md").read()
        assert 'split: "test: {a?  b | [x](http://x) ![y](z) <b> `c`"\n' in card, card
        (row,) = [line for line in card.splitlines() if line.startswith("| k-NN")]
        assert row.count("|") == 4 and not set("[]!<>`") & set(row), row
        with open(path, "w") as file:
            file.write(text)
        os.remove("out/README.md")

    rewrite_metadata("out/b.safetensors", "w.safetensors", mean="0.5]); print('code'")
    for command in ("embed", "export"):
        refused(f"metadata that cannot be meant: {command}", 1, "zonal.mean", command,
                "w.safetensors", *(("--data", "images") if command == "embed" else ()), "--out",
                "E.npy")
    rewrite_metadata("out/b.safetensors", "w.safetensors", side="999999")
    refused("a side that cannot be", 2, "zonal.side", "embed", "w.safetensors", "--data", "images",
            "--out", "E.npy")
    os.remove("w.safetensors")
    shutil.copy("run/checkpoints/step-00000001.safetensors", "w.safetensors")
    refused("a card of a file that says nothing", 2, "--card", "export", "w.safetensors", "--out",
            "E.safetensors", "--card")
    os.remove("w.safetensors")
    for path in ("run", "out", "images"):
        shutil.rmtree(path)


if "features" in sys.argv[1:]:  # whole ResNets: slow under the sanitizers
    run_tests(test_card_and_features)
run_tests(test_metadata)
