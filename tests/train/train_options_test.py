#!/usr/bin/env python3
"""Options of zonal train: --init, absurd numbers, the help, what config.toml says, the estimate of
the whole time. ZONAL_PROGRAM is the program to test."""
import json
import os
import struct
import subprocess
import sys
import time

from harness import case, refused, run_tests, skip
from run_folder_test import TEXTURES, TINY, clear, read, train, trained, write, write_folder

# ---- --init --------------------------------------------------------------------------------------


def tensors(path):
    """Of a safetensors file: name to (dtype, shape, bytes)."""
    data = read(path)
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    body = data[8 + size :]
    return {
        name: (about["dtype"], about["shape"], body[slice(*about["data_offsets"])])
        for name, about in header.items()
        if name != "__metadata__"
    }


def write_tensors(path, content):
    header, body = {}, b""
    for name, (dtype, shape, data) in content.items():
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def test_init():
    first = "/checkpoints/step-00000000.safetensors"
    trained(*TEXTURES, "--steps", 4, "--seed", 5, "--out", "old", "--quiet")
    weights = tensors("old/checkpoints/step-00000004.safetensors")
    backbone = {
        name: value
        for name, value in weights.items()
        if not name.startswith(("optimiser.", "projector."))
    }

    def taken(folder):
        """The names of the weights that a run began with as they are in the file."""
        begun = tensors(folder + first)
        return {n for n in begun if weights[n] == begun[n] and not n.endswith("_tracked")}

    wanted = {name for name in backbone if not name.endswith("_tracked")}

    @case("--init: the weights of a run, projector and all; the optimiser begins anew")
    def _():
        source = "old/checkpoints/step-00000004.safetensors"
        done = trained(*TEXTURES, "--steps", 1, "--init", source, "--out", "a")
        projector = {n for n in weights if n.startswith("projector.") and not n.endswith("_tracked")}
        assert taken("a") == wanted | projector
        assert "the projector too" in " ".join(done.stdout.split()), done.stdout
        moments = [v for n, v in tensors("a" + first).items() if n.startswith("optimiser.")]
        assert moments and not any(data.strip(b"\0") for _, _, data in moments)
        assert f'init = "{os.path.realpath(source)}"' in read("a/config.toml").decode()

    @case("--init: a backbone with a classifier, as torchvision has it")
    def _():
        classifier = {"fc.weight": ("F32", [2, 2], b"\0" * 16), "fc.bias": ("F32", [2], b"\0" * 8)}
        write_tensors("tv.safetensors", {**backbone, **classifier})
        done = train(*TEXTURES, "--steps", 1, "--init", "tv.safetensors", "--out", "b")
        assert done.returncode == 0 and done.stderr.count("\n") == 1 and "fc" in done.stderr
        assert taken("b") == wanted and "no projector" in " ".join(done.stdout.split())

    @case("--init, and then on to the same weights after a stop")
    def _():
        base = [*TEXTURES, "--steps", 4, "--checkpoint-every", 2, "--quiet"]
        write_tensors("bare.safetensors", backbone)
        trained(*base, "--init", "bare.safetensors", "--out", "c")
        newest = "c/checkpoints/step-00000004.safetensors"
        whole = read(newest)
        os.remove(newest)
        os.remove("bare.safetensors")  # it has done its work
        trained("--resume", "c", "--quiet")
        assert read(newest) == whole

    del backbone["layer4.1.bn2.bias"]
    backbone["surprise"] = ("F32", [1], b"\0" * 4)
    write_tensors("bad.safetensors", backbone)
    refused("--init with misfits, which are listed", 1,
            "1 missing (layer4.1.bn2.bias), 1 without a place (surprise)",
            "train", *TEXTURES, "--init", "bad.safetensors", "--out", "no")
    small = [word if word != "0.015625" else "0.25" for word in TEXTURES]
    refused("--init of another network, with the options it asks for", 1, "it fits --width 0.0",
            "train", *small, "--init", "old/checkpoints/step-00000004.safetensors", "--out", "no")
    refused("--init of no file", 1, "nowhere", "train", *TEXTURES, "--init", "nowhere", "--out", "no")
    refused("--init in a run that goes on", 2, "--init", "train", "--resume", "old", "--init", "x")
    clear()


# ---- numbers and words ---------------------------------------------------------------------------


def test_absurd():
    refused("a warm-up beyond all bounds", 2, "--warmup", "train", *TEXTURES, "--warmup", 1e300)
    refused("a GPU's decoder on the processor", 2, "--decoder device needs a GPU", "train", *TEXTURES,
            "--decoder", "device")
    refused("steps beyond counting", 2, "4294967295", "train", *TEXTURES, "--steps", 10**11)
    refused("epochs beyond counting", 2, "at most 4294967295", "train", "textures:disk",
            "--texture-count", 2**24, "--batch", 2, "--epochs", 10**6)
    refused("a batch for which there is no memory", 1, "GiB are left; a smaller batch", "train",
            "textures:disk", "--texture-count", 10**6, "--batch", 10**6, "--side", 256, "--device",
            "cpu", "--out", "no")
    for text in ("10,20", "10-", "-10", "10--20", "1x", "0-3", "99999"):
        refused(f"--projector {text}", 2, "as in 2048-2048-256", "train", "textures:disk",
                "--projector=" + text)
    refused("nine layers", 2, "at most 8", "train", "textures:disk", "--projector", "1-2-3-4-5-6-7-8-9")
    write("list.toml", "projector = [16, 8]\n")
    refused("a list for the projector", 2, "list.toml:1", "train", "textures:disk", "--config",
            "list.toml")
    os.remove("list.toml")

    refused("one image", 2, "is 1 image in the train split", "train", "textures:disk", "--texture-count", 1, "--out", "one")

    @case("one image, one step: no plural")
    def _():
        done = trained(*TEXTURES, "--steps", 1, "--out", "one")
        assert "done: 1 step; next" in done.stdout, done.stdout

    clear()


def test_warnings():
    write_folder("divided/train")
    probe = train("divided", *TINY, "--steps", 1, "--out", "probe", "--quiet")
    if "this build cannot read" in probe.stderr:
        skip("warnings about a folder", probe.stderr.splitlines()[-1])
        return clear()

    @case("what is said of a folder is said once, however often it is opened")
    def _():
        evaluated = [word for word in TINY if word not in ("--eval", "none")]
        done = train("divided", *evaluated, "--eval", "knn", "--steps", 1, "--out", "run")
        assert done.returncode == 0 and done.stderr.count("no val folder") == 1, done.stderr
        assert read("run/log.txt").decode().count("no val folder") <= 1

    clear()


# ---- help and configuration ----------------------------------------------------------------------


def test_help():
    text = train("--help").stdout

    @case("the help has groups, with the ten options that matter before them")
    def _():
        places = [text.index(f"\n{name}:\n") for name in
                  ("options", "data", "augmentation", "network", "loss", "optimiser", "run")]
        assert places == sorted(places), places
        first = text[places[0] : places[1]]
        assert first.count("\n  --") == 10, first
        for name in ("config", "resume", "method", "epochs", "batch", "lr"):
            assert f"\n  --{name} " in first, name

    @case("every option is there once, in at most 80 columns")
    def _():
        names = [line.split()[0] for line in text.splitlines() if line.startswith("  --")]
        assert len(names) == len(set(names)) > 90
        assert max(map(len, text.splitlines())) <= 80
        keys = train("textures:disk", "--dump-config").stdout.splitlines()
        assert {"--" + key.split()[0] for key in keys} <= set(names)


def test_config():
    def lines(folder):
        return dict(line.split(" = ", 1) for line in read(folder + "/config.toml").decode().splitlines())

    @case("config.toml has every settled value, and says what was asked for and by whom")
    def _():
        without = [word for word in TEXTURES if word not in ("--side", "16", "--device", "cpu")]
        trained(*without, "--device", "auto", "--steps", 1, "--out", "a", "--quiet")
        found = lines("a")
        for key, value, source in (
            ("side", "24", "0 by default"),
            ("stem", '"small"', "auto by default"),
            ("augmentation", '"texture"', "auto by default"),
            ("batch", "8", "--batch"),
            ("lambda", "0.05", "that of mmd-band by default"),
            ("gain", '"auto"', "here 130.72 by default"),  # S = 10 * 8/256: the dimension is 8
        ):
            got = found[key].split("#")
            assert got[0].strip() == value and got[1].strip() == source, (key, found[key])
        assert found["device"].split("#")[1].strip() == "auto by --device", found["device"]

    @case("lambda and gain as given, and a run from that file is the same run")
    def _():
        more = ["--lambda", 0.2, "--margin", 3, "--band", 1]
        trained(*TEXTURES, *more, "--steps", 2, "--out", "b", "--quiet")
        found = lines("b")
        assert found["lambda"].split() == ["0.2", "#", "--lambda"], found["lambda"]
        # psi'(1) = 1 and K = 1/2: f* = 0.8 / 0.2 / 2 = 2
        assert found["gain"].split("#")[1].strip() == "here 6 by default", found["gain"]
        trained("--config", "b/config.toml", "--out", "c", "--quiet")
        same = "/checkpoints/step-00000002.safetensors"
        assert tensors("b" + same) == tensors("c" + same)

    @case("the loss is printed with its kernel's parameter, where it has a kernel")
    def _():
        for method, shown in (("kl-heat", "kl-heat, t = 2/d = 0.25, lambda 0.5,"),
                              ("mmd-spectrum", "mmd-spectrum, 3 weights, lambda 0.05,"),
                              ("sigreg", "sigreg, lambda 0.05, gain 1")):
            more = ["--spectrum", "1,1,0.5"] if method == "mmd-spectrum" else []
            done = train(*TEXTURES, "--method", method, *more, "--steps", 1, "--out", method)
            assert f"\nloss      {shown}" in done.stdout, done.stdout + done.stderr

    clear()


# ---- how long it will take -----------------------------------------------------------------------


def seconds_until_estimate(arguments, most=40):
    """Until the line is in the log; the run is then killed. The log goes with it."""
    began = time.monotonic()
    with subprocess.Popen([os.environ["ZONAL_PROGRAM"], "train", *map(str, arguments)],
                          stdout=subprocess.PIPE, text=True) as process:
        log = arguments[arguments.index("--out") + 1] + "/log.txt"
        took, text = None, ""
        while took is None and time.monotonic() - began < most and process.poll() is None:
            time.sleep(0.2)
            text = read(log).decode() if os.path.exists(log) else ""
            if "\ntime " in text:
                took = time.monotonic() - began
        time.sleep(0.2)
        text = read(log).decode() if os.path.exists(log) else ""
        process.kill()
        printed = process.stdout.read()
    return took, text, printed


def test_estimate():
    slow = ["textures:disk", "--side", 224, "--network", "resnet50", "--batch", 16, "--precision", "fp32",
            "--device", "cpu", "--threads", 1, "--workers", 1]

    @case("a run whose first step takes longer than 20 s says within them how long it takes")
    def _():
        took, text, printed = seconds_until_estimate([*slow, "--out", "slow"])
        assert took is not None and took <= 20, (took, text)
        estimate = text[text.index("\ntime ") :]
        for flag in ("--epochs", "--side", "--network", "--width", "--device cuda"):
            assert flag in " ".join(estimate.split()), estimate
        assert estimate.strip() in printed, printed  # a pipe has it at once

    @case("with --quiet the log alone has it")
    def _():
        took, text, printed = seconds_until_estimate([*slow, "--out", "quiet", "--quiet"])
        assert took is not None and took <= 20 and printed == "", (took, text, printed)

    clear()


if __name__ == "__main__":
    if sys.argv[1:] == ["estimate"]:
        run_tests(test_estimate)
    else:
        run_tests(test_init, test_absurd, test_warnings, test_help, test_config)
