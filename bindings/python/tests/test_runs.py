"""Run folders and networks: the features of `zonal embed` from torchvision; files that are not trusted."""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import types
import unittest

import numpy as np
import zonal
from zonal._safetensors import Safetensors

PROGRAM = os.environ.get("ZONAL_PROGRAM")
HERE = os.path.dirname(os.path.abspath(__file__))
HEIGHT, WIDTH, SIDE, TRAIN, TEST = 37, 42, 24, 24, 6

try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None
try:
    import torchvision
except ImportError:
    sys.path.append(os.path.join(HERE, "../../../tests/common"))
    from own_resnet import own_resnet18

    torchvision = types.ModuleType("torchvision")
    torchvision.models = types.SimpleNamespace(resnet18=own_resnet18)
    if torch is not None:
        sys.modules["torchvision"] = torchvision


def write_safetensors(path, tensors, metadata=None, change=lambda header: None, tail=b""):
    """A file of arrays, written from the format's description; `change` may spoil the header."""
    kinds = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "uint8": "U8"}
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, array in tensors.items():
        begin, data = len(data), data + array.tobytes()
        header[name] = {
            "dtype": kinds[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [begin, len(data)],
        }
    header = change(header) or header
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data + tail)


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def random_resnet():
    """torchvision's ResNet-18 without its fc, as arrays."""
    torch.manual_seed(1)
    state = torchvision.models.resnet18().state_dict()
    return {name: tensor.numpy() for name, tensor in state.items() if not name.startswith("fc.")}


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = folder.name


class Files(InFolder):
    tensors = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array(7, dtype=np.int64),
        "c": np.zeros((0, 4), np.float32),
        "d": np.array([1.5, -2], np.float16),
    }

    def write(self, **keywords):
        path = self.path + "/x.safetensors"
        write_safetensors(path, self.tensors, **keywords)
        return path

    def test_reads_what_was_written(self):
        file = Safetensors(self.write(metadata={"k": "text"}))
        self.assertEqual(file.metadata, {"k": "text"})
        self.assertEqual(file.shapes, {name: array.shape for name, array in self.tensors.items()})
        for name, array in self.tensors.items():
            found = file.read(name)
            self.assertEqual((found.dtype, found.shape), (array.dtype, array.shape))
            self.assertTrue((found == array).all())

    def test_bfloat16(self):
        path = self.path + "/x.safetensors"
        values = np.array([1, -2.5, 3.0e38, 1e-30], np.float32)
        upper = (values.view(np.uint32) >> 16).astype(np.uint16)
        header = {"x": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}
        text = json.dumps(header).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + upper.tobytes())
        found = Safetensors(path).read("x")
        np.testing.assert_allclose(found, values, rtol=2**-7)
        self.assertEqual(found[1], -2.5)

    def test_spoilt_headers(self):
        def entry(**changes):
            return lambda header: header["a"].update(changes)

        cases = {
            "gap or an overlap": entry(data_offsets=[4, 28]),
            "as its shape needs": entry(shape=[2, 4]),
            "type that is not read": entry(dtype="F8"),
            "impossible shape": entry(shape=[-2, -3]),
            "impossible shape .*": entry(shape=[1] * 9),
            "impossible data_offsets": entry(data_offsets=[0]),
            "impossible data_offsets .*": entry(data_offsets=[0, True]),
            "dtype, shape and data_offsets alone": entry(more=1),
            "metadata are not texts": lambda header: header.update(__metadata__={"k": 1}),
            "not a JSON object": lambda header: b"[1]",
            "not the JSON expected": lambda header: b"{'a': 1}",
            "not the JSON expected .*twice": lambda header: b'{"a": {}, "a": {}}',
            "not the JSON expected .*NaN": lambda header: b'{"a": NaN}',
            "not the JSON expected .*": lambda header: b"[" * 100000,
            "its tensors": lambda header: header.pop("d") and None,
        }
        for sentence, change in cases.items():
            with self.assertRaisesRegex(ValueError, sentence.replace(" .*", ".*")):
                Safetensors(self.write(change=change))
        with self.assertRaisesRegex(ValueError, "its tensors"):
            Safetensors(self.write(tail=b"x"))

    def test_cut_off_anywhere(self):
        content = read_bytes(self.write())
        for length in range(len(content)):
            with open(self.path + "/cut.safetensors", "wb") as file:
                file.write(content[:length])
            with self.assertRaises(ValueError):
                Safetensors(self.path + "/cut.safetensors")

    def test_random_damage(self):
        content, chance = read_bytes(self.write(metadata={"k": "v"})), random.Random(5)
        for _ in range(2000):
            damaged = bytearray(content)
            for _ in range(chance.randint(1, 4)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            with open(self.path + "/damaged.safetensors", "wb") as file:
                file.write(damaged)
            try:
                found = Safetensors(self.path + "/damaged.safetensors")
                for name in found.shapes:
                    found.read(name)
            except ValueError as error:
                self.assertIn("damaged.safetensors", str(error))

    def test_other_files(self):
        with self.assertRaises(FileNotFoundError):
            Safetensors(self.path + "/none")
        with self.assertRaises(IsADirectoryError):
            Safetensors(self.path)


class Folders(InFolder):
    CONFIGURATION = (
        'data = "a \\"b\\" \\\\ \\u00e9"        # --data\nlr = 1e-3  # default\nsteps = 2\n'
        'graph = true\nclip = -0.5\n\n# a line\nmethod = "mmd-band" # x = 1\n'
    )

    def make(self, configuration=CONFIGURATION, metrics=None, results=None):
        os.makedirs(self.path + "/run/eval", exist_ok=True)
        with open(self.path + "/run/config.toml", "w", encoding="utf-8") as file:
            file.write(configuration)
        if metrics is not None:
            with open(self.path + "/run/metrics.jsonl", "w") as file:
                file.write(metrics)
        if results is not None:
            with open(self.path + "/run/eval/knn.json", "w") as file:
                file.write(results)
        return self.path + "/run"

    def test_configuration(self):
        self.assertEqual(
            zonal.read_run(self.make())["configuration"],
            {
                "data": 'a "b" \\ \u00e9',
                "lr": 1e-3,
                "steps": 2,
                "graph": True,
                "clip": -0.5,
                "method": "mmd-band",
            },
        )

    def test_metrics_and_results(self):
        lines = '{"kind": "step", "step": 1, "loss": null}\n{"kind": "monitor", "step": 1, "rho": 0.5}\n'
        run = zonal.read_run(
            self.make(metrics=lines + '{"kind": "st', results='{"results": [{"accuracy": 0.5}]}')
        )
        self.assertEqual(
            run["metrics"],
            [{"kind": "step", "step": 1, "loss": None}, {"kind": "monitor", "step": 1, "rho": 0.5}],
        )
        self.assertEqual(run["results"], {"knn": [{"accuracy": 0.5}]})
        self.assertEqual(zonal.read_run(self.path + "/run")["path"], self.path + "/run")

    def test_frame(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            with self.assertRaisesRegex(ImportError, "pip install pandas"):
                zonal.read_run(self.make(metrics='{"kind": "step", "step": 1}\n')).frame()
            return
        run = zonal.read_run(self.make(metrics='{"kind": "step", "step": 1, "loss": 2.5}\n'))
        self.assertEqual(run.frame()["loss"].tolist(), [2.5])
        self.assertEqual(run.frame().index.tolist(), [1])
        with self.assertRaisesRegex(ValueError, "no metrics of kind 'eval'; it has step"):
            run.frame("eval")

    def test_refused(self):
        with self.assertRaisesRegex(FileNotFoundError, "is no run folder"):
            zonal.read_run(self.path)
        for sentence, parts in (
            ("line 1 of .*metrics.jsonl is not JSON", {"metrics": "{]\n"}),
            (
                "line 2 of .*no kind or no step",
                {"metrics": '{"kind": "step", "step": 1}\n{"kind": "step"}\n'},
            ),
            ("not a JSON object", {"metrics": "[]\n"}),
            ("line 1 of the configuration", {"configuration": "a = {}\n"}),
            ("line 1 of the configuration", {"configuration": 'a = "b\n'}),
            ("line 1 of the configuration", {"configuration": "a = 1.2.3\n"}),
            ("no list of results", {"results": '{"results": 3}'}),
        ):
            with self.assertRaisesRegex(ValueError, sentence):
                zonal.read_run(self.make(**{"metrics": "", "results": '{"results": []}', **parts}))


@unittest.skipUnless(PROGRAM, "ZONAL_PROGRAM names no zonal to train with")
@unittest.skipIf(torch is None, "this Python has no torch")
class Networks(InFolder):
    def make_images(self):
        """Smooth waves, so that resampling matters but is well conditioned."""
        generator = np.random.default_rng(3)
        y, x = np.mgrid[:HEIGHT, :WIDTH]
        os.makedirs(self.path + "/images")
        for part, count in (("train", TRAIN), ("t10k", TEST)):
            waves = generator.uniform(0.05, 0.6, (count, 2, 1, 1))
            pixels = (127 + 60 * np.sin(waves[:, 0] * x + 1) + 60 * np.cos(waves[:, 1] * y)).clip(0, 255)
            with open(f"{self.path}/images/{part}-images-idx3-ubyte", "wb") as file:
                file.write(struct.pack(">IIII", 0x803, count, HEIGHT, WIDTH) + pixels.astype("u1").tobytes())
            with open(f"{self.path}/images/{part}-labels-idx1-ubyte", "wb") as file:
                file.write(struct.pack(">II", 0x801, count) + bytes(count))
        return torch.from_numpy(pixels.astype("u1"))[:, None]

    def zonal(self, *arguments):
        subprocess.run(
            [PROGRAM, *map(str, arguments), "--quiet"], cwd=self.path, check=True, stderr=subprocess.PIPE
        )

    def train(self, *more):
        self.zonal(
            "train",
            "images",
            "--out",
            "run",
            "--steps",
            1,
            "--batch",
            4,
            "--side",
            SIDE,
            "--device",
            "cpu",
            "--precision",
            "fp32",
            "--eval",
            "none",
            "--projector",
            "8",
            "--optimiser",
            "sgd",
            *more,
        )

    def compare(self, what, images, *source):
        """zonal's features of a run, or of a file with the flags in `source`, and those of the loaded model.
        Single precision on both sides, sums in another order."""
        self.zonal(
            "embed",
            *(source or ["run"]),
            "--split",
            "test",
            "--out",
            "E.npy",
            "--index",
            "none",
            "--precision",
            "fp32",
        )
        want = np.load(self.path + "/E.npy")
        model = zonal.load_backbone(f"{self.path}/{what}")
        with torch.no_grad():
            found = model(model.preprocessing(images)).numpy()
        self.assertFalse(model.training)
        self.assertLess(np.abs(found - want).max(), 1e-4 * np.abs(want).max(), what)

    def change(self, old, new):
        path = self.path + "/run/config.toml"
        text = read_bytes(path).decode()
        self.assertEqual(text.count(old), 1)
        with open(path, "w") as file:
            file.write(text.replace(old, new))

    def test_a_run(self):
        images = self.make_images()
        self.train()
        self.zonal("export", "run", "--out", "exported.safetensors")
        for what in ("run", "run/checkpoints/step-00000001.safetensors", "exported.safetensors"):
            self.compare(what, images)
        self.change('crop = "center"', 'crop = "whole"')
        self.compare("run", images)
        self.change('augmentation = "byol"', 'augmentation = "texture"')
        self.compare("run", images)
        run = zonal.read_run(self.path + "/run")
        self.assertEqual(run["configuration"]["stem"], "small")
        self.assertEqual([line["kind"] for line in run["metrics"]][-1], "checkpoint")

    def test_evaluated_at_another_side(self):
        images = self.make_images()
        self.train("--eval-side", 32)
        self.zonal("export", "run", "--out", "exported.safetensors")
        for what in ("run", "run/checkpoints/step-00000001.safetensors", "exported.safetensors"):
            self.assertEqual(zonal.load_backbone(f"{self.path}/{what}").preprocessing.side, 32)
            self.compare(what, images)
        self.change("eval-side = 32", "eval-side = 0")
        self.assertEqual(zonal.load_backbone(self.path + "/run").preprocessing.side, SIDE)
        self.compare("run", images)

    def test_weights_of_others(self):
        """RGB, the large stem, constants by channel."""
        images = self.make_images()
        write_safetensors(
            self.path + "/rgb.safetensors",
            random_resnet(),
            {
                "zonal.side": "40",
                "zonal.crop": "center",
                "zonal.augmentation": "byol",
                "zonal.mean": "0.4,0.5,0.45",
                "zonal.std": "0.2,0.3,0.25",
            },
        )
        self.compare("rgb.safetensors", images, "rgb.safetensors", "--data", "images")
        self.assertEqual(
            zonal.load_backbone(self.path + "/rgb.safetensors").preprocessing.std, (0.2, 0.3, 0.25)
        )


@unittest.skipIf(torch is None, "this Python has no torch")
class Refused(InFolder):
    def refused(self, sentence, tensors, metadata=None):
        path = self.path + "/x.safetensors"
        write_safetensors(path, tensors, metadata)
        with self.assertRaisesRegex(ValueError, sentence):
            zonal.load_backbone(path)

    def test_what_is_no_resnet(self):
        stem = {"conv1.weight": np.zeros((64, 3, 7, 7), np.float32)}
        first = {"layer1.0.conv1.weight": np.zeros((64, 64, 3, 3), np.float32)}
        self.refused("contains no ResNet", {})
        self.refused("contains no ResNet", stem)
        self.refused("1 or 3 channels", {**first, "conv1.weight": np.zeros((64, 4, 7, 7), np.float32)})
        self.refused("width 0.5", {**first, "conv1.weight": np.zeros((32, 3, 7, 7), np.float32)})
        self.refused("has not the tensors bn1.bias", {**stem, **first})

    def test_wrong_tensors(self):
        good = random_resnet()
        self.refused("beside a ResNet's, the tensors other", {**good, "other": np.zeros(3, np.float32)})
        self.refused("has the shape", {**good, "layer4.1.bn2.weight": np.zeros(511, np.float32)})
        bad = good["bn1.weight"].copy()
        bad[3] = np.nan
        self.refused("not finite", {**good, "bn1.weight": bad})

    def test_metadata(self):
        good = random_resnet()
        self.refused("no number", good, {"zonal.side": "x"})
        self.refused("not known here", good, {"zonal.crop": "$(rm)"})
        self.refused("no number", good, {"zonal.mean": "1,2"})
        write_safetensors(self.path + "/plain.safetensors", good)
        model = zonal.load_backbone(self.path + "/plain.safetensors")
        image = torch.zeros(3, 8, 8, dtype=torch.uint8)
        with self.assertRaisesRegex(ValueError, "does not say how images are prepared"):
            model.preprocessing(image)
        with self.assertRaisesRegex(ValueError, "takes uint8 images"):
            model.preprocessing(image.float())

    def test_checkpoints(self):
        os.makedirs(self.path + "/run/checkpoints")
        with open(self.path + "/run/config.toml", "w") as file:
            file.write("side = 8\n")
        with self.assertRaisesRegex(FileNotFoundError, "no checkpoint yet"):
            zonal.load_backbone(self.path + "/run")
        with self.assertRaisesRegex(ValueError, '"last" or "best"'):
            zonal.load_backbone(self.path + "/run", checkpoint="first")


if __name__ == "__main__":
    unittest.main()
