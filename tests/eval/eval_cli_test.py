#!/usr/bin/env python3
"""zonal eval, embed and export. The oracle for networks is torchvision: it loads what is exported
with strict=True, its own weights are read, and both give the same features for the same images.
The oracle for metrics is numpy, brute force, on the features that zonal embed writes."""
import json
import os
import shutil
import struct
import sys

from harness import case, kept, refused, report, run, run_json, run_tests, skip

try:
    import numpy as np
except ImportError:
    print("ok 1 - all # SKIP this Python has no numpy")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(77)
try:
    import torch
    import torchvision
except ImportError:
    torch = None

SIDE, CLASSES = 32, 10
TRAIN, TEST = 200, 60  # zonal sets a tenth of the training images aside for validation
SMALL = ("--width", "0.125", "--projector", "24-12")


# ---- files ---------------------------------------------------------------------------------------


def write_idx(folder, part, images, labels):
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/{part}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">IIII", 0x803, *images.shape) + images.tobytes())
    with open(f"{folder}/{part}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">II", 0x801, len(labels)) + labels.astype("u1").tobytes())


def make_images(folder, side=SIDE):
    """Noise whose level depends on the class: features of any network tell something about it.
    Returns all images as [n][side][side], the training ones first."""
    generator = np.random.default_rng(1)
    images, labels = {}, {}
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        labels[part] = np.arange(count) % CLASSES
        noise = generator.integers(0, 128, (count, side, side))
        images[part] = (noise + 12 * labels[part][:, None, None]).astype("u1")
        write_idx(folder, part, images[part], labels[part])
    return np.concatenate([images["train"], images["t10k"]])


def read_tensors(path):
    content = open(path, "rb").read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "I64": "<i8"}
    return {name: np.frombuffer(content[8 + length:][slice(*entry["data_offsets"])],
                                types[entry["dtype"]]).reshape(entry["shape"]).copy()
            for name, entry in header.items()}


def write_tensors(path, tensors, kind="F32"):
    """Floating tensors as F32, F16 or BF16."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            half = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
            tensor, label = tensor.to(half), kind
            raw = (tensor.view(torch.int16) if kind == "BF16" else tensor).numpy().tobytes()
        else:
            label, raw = "I64", tensor.numpy().tobytes()
        header[name] = {"dtype": label, "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def done_well(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, f"{arguments}: status {done.returncode}: {done.stderr}"
    return done.stdout


def train(out, *arguments, side=SIDE, protocol="none"):
    done_well("train", "mnist", "--out", out, "--steps", 2, "--batch", 8, "--side", side,
              "--device", "cpu", "--precision", "fp32", "--eval", protocol, "--quiet", *arguments)


def remove(*names):
    """Also the index that lies beside rows of features."""
    for name in names:
        shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)
        index = name[:-len("npy")] + "csv"
        if name.endswith(".npy") and os.path.exists(index):
            os.remove(index)


# ---- torchvision ---------------------------------------------------------------------------------


def random_network(depth, seed):
    """torchvision's network with statistics and scales that are not 0 and 1."""
    torch.manual_seed(seed)
    model = getattr(torchvision.models, f"resnet{depth}")()
    for name, tensor in model.state_dict().items():
        if name.endswith(("running_mean", "bias")):
            tensor.normal_(0, 0.1)
        if name.endswith("running_var") or "bn" in name and name.endswith("weight"):
            tensor.uniform_(0.7, 1.3)
    return model


def features_of(model, images, channels, mean, std):
    """[n][side][side] bytes through a network; grey images are repeated where it sees RGB."""
    x = torch.from_numpy(images.astype(np.float32) / 255)[:, None].expand(-1, channels, -1, -1)
    shape = (1, channels, 1, 1)
    x = (x - torch.tensor(mean).reshape(shape)) / torch.tensor(std).reshape(shape)
    model.eval()
    with torch.no_grad():
        return model(x).numpy()


def check_close(got, want):
    """Both compute in float32, in another order: up to 53 layers add some 1e-6 of relative error,
    a wrong stride, padding, statistic or layout far more than 1e-2."""
    assert got.shape == want.shape, (got.shape, want.shape)
    scale = np.abs(want).max()
    worst = np.abs(got - want).max() / scale
    assert worst < 1e-4, f"features differ by {worst:.1e} of the largest, {scale:.3g}"


IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def test_torchvision_to_zonal():
    if torch is None:
        return skip("weights of torchvision", "there is no torchvision")
    images = make_images("mnist")
    for depth in (18, 34, 50):
        @case(f"torchvision's resnet{depth} gives the same features here")
        def _(depth=depth):
            model = random_network(depth, depth)
            write_tensors("w.safetensors", model.state_dict())
            done = run("embed", "w.safetensors", "--data", "mnist", "--side", SIDE, "--out",
                       "E.npy", "--labels", "L.npy", "--limit", 40)
            assert done.returncode == 0, done.stderr
            assert "fc" in done.stderr and "left out" in done.stderr, done.stderr
            model.fc = torch.nn.Identity()
            chosen = np.arange(40) * len(images) // 40
            check_close(np.load("E.npy"), features_of(model, images[chosen], 3, *IMAGENET))
            labels = np.load("L.npy")
            assert labels.dtype == np.int32
            both = np.concatenate([np.arange(TRAIN), np.arange(TEST)]) % CLASSES
            assert (labels == both[chosen]).all()
            remove("w.safetensors", "E.npy", "L.npy")

    @case("half precision")
    def _():
        model = random_network(18, 5)
        for kind in ("F16", "BF16"):
            write_tensors("w.safetensors", model.state_dict(), kind)
            done_well("embed", "w.safetensors", "--data", "mnist", "--side", SIDE, "--out",
                      "E.npy", "--limit", 8, "--quiet")
            rounded = random_network(18, 5)
            half = torch.float16 if kind == "F16" else torch.bfloat16
            rounded.load_state_dict({name: tensor.to(half).float() if tensor.is_floating_point()
                                     else tensor for name, tensor in model.state_dict().items()})
            rounded.fc = torch.nn.Identity()
            chosen = np.arange(8) * len(images) // 8
            check_close(np.load("E.npy"), features_of(rounded, images[chosen], 3, *IMAGENET))
        remove("w.safetensors", "E.npy")

    @case("bf16 arithmetic is near float32's")
    def _():
        write_tensors("w.safetensors", random_network(18, 6).state_dict())
        for precision in ("fp32", "bf16"):
            done_well("embed", "w.safetensors", "--data", "mnist", "--side", SIDE, "--quiet",
                      "--limit", 8, "--out", f"{precision}.npy", "--precision", precision)
        exact, near = np.load("fp32.npy"), np.load("bf16.npy")
        # 8 significant bits through 18 layers.
        assert 0 < np.abs(exact - near).max() < 0.1 * np.abs(exact).max()
        remove("w.safetensors", "fp32.npy", "bf16.npy")

    remove("mnist")


def test_zonal_to_torchvision():
    if torch is None:
        return skip("export to torchvision", "there is no torchvision")
    images = make_images("mnist")

    @case("an exported run loads in torchvision with strict=True and gives the same features")
    def _():
        train("run", "--network", "resnet18", "--projector", "24-12")
        said = done_well("export", "run", "--out", "b.safetensors")
        model = torchvision.models.resnet18()
        for line in said.splitlines()[1:]:  # what export says has to be changed
            assert line.startswith("  model."), line
            exec(line.strip(), {"model": model, "torch": torch})
        state = {name: torch.from_numpy(array)
                 for name, array in read_tensors("b.safetensors").items()}
        model.load_state_dict(state, strict=True)
        done_well("embed", "run", "--out", "E.npy", "--split", "test", "--quiet")
        check_close(np.load("E.npy"), features_of(model, images[TRAIN:], 1, [0.5], [0.25]))
        # The exported file is a file of weights for zonal too, and the round trip changes nothing.
        done_well("embed", "b.safetensors", "--data", "mnist", "--side", SIDE, "--split", "test",
                  "--out", "F.npy", "--quiet")
        assert (np.load("E.npy") == np.load("F.npy")).all()
        remove("run", "b.safetensors", "E.npy", "F.npy")

    @case("which checkpoint")
    def _():
        train("run", *SMALL, "--checkpoint-every", 1, "--keep", 3)
        files = {}
        for name in ("last", "best", "run/checkpoints/step-00000001.safetensors"):
            done_well("export", "run", "--out", "b.safetensors", "--checkpoint", name, "--quiet")
            files[name] = read_tensors("b.safetensors")
        last = files["last"]
        first = files["run/checkpoints/step-00000001.safetensors"]
        assert any((last[name] != first[name]).any() for name in last)
        # A checkpoint alone: the same weights, without what only the run's configuration says.
        done_well("export", "run/checkpoints/step-00000002.safetensors", "--out", "b.safetensors",
                  "--quiet")
        alone = read_tensors("b.safetensors")
        assert list(alone) == list(last) and all((last[name] == alone[name]).all() for name in last)
        remove("run", "b.safetensors")

    remove("mnist")


# ---- embed and eval ------------------------------------------------------------------------------


def unit(x):
    x = x.astype(np.float64)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def knn_accuracy(train_x, train_y, x, y, k, temperature):
    cosines = unit(x) @ unit(train_x).T
    right = 0
    for row, label in zip(cosines, y):
        nearest = np.argsort(-row, kind="stable")[:k]
        votes = np.bincount(train_y[nearest], np.exp(row[nearest] / temperature), CLASSES)
        right += votes.argmax() == label
    return right / len(y)


def test_eval():
    make_images("mnist")
    train("run", *SMALL)

    @case("embed writes the same rows in batches of any size, on any number of threads")
    def _():
        done_well("embed", "run", "--out", "E.npy", "--projections", "P.npy", "--quiet")
        done_well("embed", "run", "--out", "F.npy", "--batch", 7, "--threads", 1, "--quiet")
        a, b = np.load("E.npy"), np.load("F.npy")
        assert a.dtype == np.float32 and a.shape == (TRAIN + TEST, 64), (a.dtype, a.shape)
        assert np.load("P.npy").shape == (TRAIN + TEST, 12)
        # Another batch may sum in another order.
        assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()
        remove("E.npy", "F.npy", "P.npy")

    @case("k-NN on the features that embed writes")
    def _():
        for part in ("train", "test"):
            done_well("embed", "run", "--out", f"{part}.npy", "--projections", f"{part}-p.npy",
                      "--labels", f"{part}-l.npy", "--split", part, "--quiet")
        results = run_json("eval", "run", "--protocol", "knn", "--k", "1,5,20", "--temperature",
                           "0.07,0.5", "--quiet")["results"]
        assert len(results) == 12
        for result in results:
            end = "-p.npy" if result["features"] == "projector" else ".npy"
            want = knn_accuracy(np.load("train" + end), np.load("train-l.npy"),
                                np.load("test" + end), np.load("test-l.npy"), int(result["k"]),
                                result["temperature"])
            assert abs(result["accuracy"] - want) < 1e-9, (result, want)
            assert result["train"] == len(np.load("train-l.npy")) and result["test"] == TEST
        remove(*(f"{part}{end}" for part in ("train", "test")
                 for end in (".npy", "-p.npy", "-l.npy")))

    @case("retrieval, diagnostics and the linear probe")
    def _():
        found = run_json("eval", "run", "--quiet", "--features", "backbone", "--gallery", 20,
                         "--l2", "0.01", "--detail")["results"]
        by = {result["protocol"]: result for result in found}
        assert set(by) == {"knn", "linear", "retrieval", "diagnostics"} and len(found) == 4
        assert by["retrieval"]["candidates"] == 39 and by["retrieval"]["test"] == TEST
        assert 0 <= by["retrieval"]["r1"] <= by["retrieval"]["r3"] <= by["retrieval"]["r5"] <= 1
        assert by["linear"]["l2"] == 0.01 and by["linear"]["accuracy"] > 2 / CLASSES
        confusion = np.array(by["linear"]["confusion"])
        assert confusion.shape == (CLASSES, CLASSES) and confusion.sum() == TEST
        assert abs(confusion.trace() / TEST - by["linear"]["accuracy"]) < 1e-12
        assert by["diagnostics"]["alignment"] > 0 > by["diagnostics"]["uniformity"]
        for protocol in by:  # the same is kept in the run's folder
            kept = json.load(open(f"run/eval/{protocol}.json"))["results"]
            assert by[protocol] in kept

    @case("the linear probe by SGD")
    def _():
        (result,) = run_json("eval", "run", "--protocol", "linear", "--sgd", 30, "--lr", 0.1,
                             "--features", "backbone", "--quiet")["results"]
        assert result["epochs"] == 30 and result["accuracy"] > 2 / CLASSES, result

    @case("the same views for the same seed, others for another; the mean over seeds")
    def _():
        arguments = ("eval", "run", "--protocol", "retrieval", "--quiet", "--features", "projector")
        first = run_json(*arguments)["results"]
        assert first == run_json(*arguments, "--batch", 11)["results"]
        both = run_json(*arguments, "--seeds", 3)
        maps = [result["map"] for result in both["results"]]
        assert maps[0] == first[0]["map"] and len(set(maps)) == 3
        (mean,) = both["means"]
        assert abs(mean["map"]["mean"] - np.mean(maps)) < 1e-12 and mean["count"] == 3
        assert abs(mean["map"]["std"] - np.std(maps, ddof=1)) < 1e-12

    @case("several runs, a row each, within 80 columns")
    def _():
        shutil.copytree("run", "a-run-with-quite-a-long-name")
        text = done_well("eval", "run", "a-run-with-quite-a-long-name", "--quiet", "--l2", "0.1",
                         "--detail", "--seeds", 2)
        assert all(len(line) <= 80 for line in text.splitlines()), text
        assert "mean" in text and "+-" in text and "long-name" in text

    @case("runs of one method and two seeds have a mean, those of two methods have not")
    def _():
        arguments = ("--protocol", "retrieval", "--features", "projector", "--quiet")
        shutil.copytree("run", "same")
        shutil.copytree("run", "other")
        with open("run/config.toml") as file:
            config = file.read()
        assert 'method = "mmd-band"' in config
        with open("other/config.toml", "w") as file:
            file.write(config.replace('method = "mmd-band"', 'method = "mmd-heat"'))
        assert "seed = 0 " in config
        with open("same/config.toml", "w") as file:
            file.write(config.replace("\nseed = 0 ", "\nseed = 1 "))
        assert run_json("eval", "run", "other", *arguments)["means"] == []
        (mean,) = run_json("eval", "run", "other", "same", *arguments)["means"]
        assert mean["count"] == 2 and mean["method"] == "mmd-band"
        remove("same", "other")

    for command in ("eval", "embed", "export"):
        text = done_well(command, "--help")
        report(all(len(line) <= 80 for line in text.splitlines()), f"{command} --help: 80 columns")
    remove("run", "mnist", "a-run-with-quite-a-long-name")


def test_eval_side():
    """--eval-side changes what evaluations look at, and nothing that is trained."""
    make_images("mnist")
    train("plain", *SMALL, "--crop", "whole", side=24, protocol="knn")
    train("larger", *SMALL, "--eval-side", SIDE, side=24, protocol="knn")

    def rows(name, *arguments):
        done_well("embed", name, "--out", "E.npy", "--split", "test", "--quiet", *arguments)
        features = np.load("E.npy")
        remove("E.npy")
        return features

    def lines(name, kind):
        with open(f"{name}/metrics.jsonl", encoding="utf-8") as file:
            return [line for line in map(json.loads, file) if line["kind"] == kind]

    @case("--eval-side: features are of larger images, the weights the same")
    def _():
        assert [line["loss"] for line in lines("plain", "step")] == \
               [line["loss"] for line in lines("larger", "step")]
        got = rows("larger")
        assert (got == rows("plain", "--side", SIDE)).all()
        assert not (got == rows("plain")).all()
        assert (got != rows("larger", "--side", 24)).any()
        assert (rows("plain") == rows("larger", "--side", 24)).all()

    @case("--eval-side: the crop is chosen for it")
    def _():
        train("small", *SMALL, side=24)
        for name, crop in (("small", "center"), ("larger", "whole")):
            with open(f"{name}/config.toml", encoding="utf-8") as file:
                assert f'crop = "{crop}"' in file.read(), name
        remove("small")

    @case("--eval-side: so does the evaluation on the way, and an exported file")
    def _():
        (last,) = lines("larger", "eval")[-1:]
        results = run_json("eval", "larger", "--protocol", "knn", "--features", "backbone", "--split",
                           "val", "--quiet")["results"]
        assert [result["accuracy"] for result in results] == [last["accuracy"]]
        assert f"{SIDE} px, whole" in results[0]["conditions"], results
        done_well("export", "larger", "--out", "larger.safetensors", "--quiet")
        assert (rows("larger.safetensors", "--data", "mnist") == rows("larger")).all()
        remove("larger.safetensors")

    @case("--eval-side: random views stay as they were trained")
    def _():
        found = {}
        for name in ("plain", "larger"):
            (found[name],) = run_json("eval", name, "--protocol", "retrieval", "--features",
                                      "backbone", "--quiet")["results"]
            assert "24 px" in found[name]["conditions"]
        assert found["plain"]["map"] == found["larger"]["map"]

    remove("plain", "larger", "mnist")


# ---- bad input -----------------------------------------------------------------------------------


def test_refusals():
    make_images("mnist")
    train("run", *SMALL)
    checkpoint = "run/checkpoints/step-00000002.safetensors"
    data = ("--data", "mnist", "--side", SIDE)
    refused("nothing to evaluate", 2, "--weights", "eval")
    refused("nothing to write", 2, "--out", "embed", "run")
    refused("weights without data", 2, "--data", "embed", checkpoint, "--out", "E.npy")
    refused("no such file", 1, "missing.safetensors", "embed", "missing.safetensors", *data,
            "--out", "E.npy")
    refused("no such data", 1, "nowhere", "embed", checkpoint, "--data", "nowhere", "--out",
            "E.npy")
    refused("not a run", 1, "mnist", "eval", "mnist")
    refused("a checkpoint of no run", 2, "--checkpoint", "embed", checkpoint, *data, "--out",
            "E.npy", "--checkpoint", "best")
    refused("unwritable output", 1, "nowhere/E.npy", "embed", "run", "--out", "nowhere/E.npy",
            "--quiet")
    for path in (checkpoint, "run/config.toml", "run/metrics.jsonl", "run/log.txt", "run/data.txt"):
        kept(f"export to {path}", path, "export", "run", "--out", path)
        kept(f"embed to {path}", path, "embed", "run", "--projections", path, "--quiet")
        kept(f"eval to {path}", path, "eval", "run", "--out", path, "--quiet")
    shutil.copy(checkpoint, "w.safetensors")
    kept("export of a file", "w.safetensors", "export", "w.safetensors", "--out", "./w.safetensors")
    kept("eval of a file", "w.safetensors", "eval", "--weights", "w.safetensors", *data, "--out",
         "w.safetensors")
    kept("labels", "w.safetensors", "embed", "w.safetensors", *data, "--out", "E.npy", "--labels",
         "w.safetensors")
    os.remove("w.safetensors")
    assert run("data", "pack", "mnist", "--out", "m.zpk").returncode == 0
    kept("features of a pack", "m.zpk", "embed", "run", "--data", "m.zpk", "--out", "m.zpk",
         "--quiet")
    os.remove("m.zpk")
    refused("unwritable export", 1, "nowhere/b", "export", "run", "--out", "nowhere/b.safetensors")
    refused("labels that are not there", 2, "no labels", "embed", "run", "--data",
            "textures:disk", "--texture-count", 8, "--texture-size", SIDE, "--out", "E.npy",
            "--labels", "L.npy", "--quiet")
    refused("k-NN without labels", 2, "no labels", "eval", "run", "--protocol", "knn", "--data",
            "textures:disk", "--texture-count", 8, "--texture-size", SIDE, "--quiet")
    refused("k of nothing", 2, "--k", "eval", "run", "--k", "0")
    refused("a temperature of 0", 2, "--temperature", "eval", "run", "--temperature", "0")
    refused("an unknown augmentation", 2, "--augmentation", "embed", "run", "--augmentation", "mirror", "--out", "E.npy")

    content = open(checkpoint, "rb").read()
    open("w.safetensors", "wb").write(content[:5000])
    refused("weights cut short", 1, "w.safetensors", "embed", "w.safetensors", *data, "--out",
            "E.npy")
    open("w.safetensors", "wb").write(b"")
    refused("empty weights", 1, "w.safetensors", "export", "w.safetensors", "--out", "b")
    if torch is not None:
        refuse_networks(data)
    os.remove("w.safetensors")
    remove("run", "mnist")


def refuse_networks(data):
    """Weights of other architectures, and NaN."""
    state = torchvision.models.resnet18().state_dict()

    def check(name, status, text, tensors):
        write_tensors("w.safetensors", tensors)
        for command in (("embed", "w.safetensors", *data), ("export", "w.safetensors")):
            refused(f"{name}: {command[0]}", status, text, *command, "--out", "E.npy", "--quiet")

    spoilt = {name: tensor.clone() for name, tensor in state.items()}
    spoilt["layer2.1.conv2.weight"][3, 1, 0, 2] = float("nan")
    check("NaN", 1, '"layer2.1.conv2.weight"', spoilt)
    check("another shape", 1, '"layer3.0.conv1.weight"',
          {**state, "layer3.0.conv1.weight": torch.zeros(256, 64, 3, 3)})
    check("a tensor is missing", 1, '"bn1.running_var"',
          {name: tensor for name, tensor in state.items() if name != "bn1.running_var"})
    check("more blocks", 1, "another architecture",
          {**state, "layer3.2.conv1.weight": torch.zeros(256, 256, 3, 3)})
    check("no ResNet", 1, '"conv1.weight"', torchvision.models.squeezenet1_1().state_dict())
    check("other names", 1, '"conv1.weight"',
          {"module." + name: tensor for name, tensor in state.items()})


run_tests(test_torchvision_to_zonal, test_zonal_to_torchvision, test_eval, test_eval_side, test_refusals)
