#!/usr/bin/env python3
"""Options of zonal train: --init, absurd numbers, the help, what config.toml says, the estimate of
the whole time. ZONAL_PROGRAM is the program to test."""
import json
import os
import struct

from harness import case, refused, run_tests
from run_folder_test import TEXTURES, TINY, clear, read, train, trained, write

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


if __name__ == "__main__":
    run_tests(test_init)
