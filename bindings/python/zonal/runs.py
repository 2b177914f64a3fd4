"""What `zonal train` and `zonal eval` have written, and the trained network as a torchvision model."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple, Union

from ._safetensors import Safetensors

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, import-not-found, unused-ignore]
    import torch

__all__ = ["Preprocessing", "Run", "load_backbone", "read_run"]

Path = Union[str, "os.PathLike[str]"]

# ---- the run folder ----------------------------------------------------------------------------------------


class Run(Dict[str, Any]):
    """A run folder as a dict with four entries:

    - ``path``: of the folder;
    - ``configuration``: the options of ``zonal train`` by name;
    - ``metrics``: the lines of ``metrics.jsonl`` in order, a dict each with ``kind`` and ``step``;
    - ``results``: what ``zonal eval`` found, a list of dicts by protocol (``"knn"``, ``"linear"`` ...).
    """

    def frame(self, kind: str = "step") -> "pandas.DataFrame":
        """The metrics of one kind (``step``, ``monitor``, ``eval``, ``checkpoint``), a row for each line."""
        try:
            import pandas
        except ImportError:
            raise ImportError('Run.frame needs pandas: pip install pandas; run["metrics"] does not') from None
        lines = [line for line in self["metrics"] if line["kind"] == kind]
        if not lines:
            kinds = sorted({line["kind"] for line in self["metrics"]})
            raise ValueError(
                f"{self['path']} has no metrics of kind {kind!r}; it has {', '.join(kinds) or 'none'}"
            )
        return pandas.DataFrame(lines).drop(columns="kind").set_index("step")


def read_run(run: Path) -> Run:
    """Reads a run folder of ``zonal train``: configuration, metrics and results.

    A run that is still training can be read; a line that is just being written is left out.

    >>> run = read_run("runs/photos-1")                                     # doctest: +SKIP
    >>> run["configuration"]["method"], run["metrics"][-1]["step"]          # doctest: +SKIP
    ('mmd-band', 2000)
    >>> run.frame("monitor")["effective_rank"].plot()                       # doctest: +SKIP
    """
    folder = os.fspath(run)
    if not os.path.isfile(os.path.join(folder, "config.toml")):
        raise FileNotFoundError(f"{folder} is no run folder: it has no config.toml; zonal train makes one")
    return Run(
        path=folder,
        configuration=_parse_configuration(_text(folder, "config.toml"), folder),
        metrics=_read_metrics(folder),
        results=_read_results(folder),
    )


def _text(folder: str, *names: str) -> str:
    with open(os.path.join(folder, *names), encoding="utf-8") as file:
        return file.read()


def _read_metrics(folder: str) -> List[Dict[str, Any]]:
    if not os.path.exists(os.path.join(folder, "metrics.jsonl")):
        return []
    whole = _text(folder, "metrics.jsonl").split("\n")[:-1]  # what has no newline yet is being written
    metrics = []
    for number, line in enumerate(whole, 1):
        found = _parse_json(line, f"line {number} of {folder}/metrics.jsonl")
        if not {"kind", "step"} <= set(found):
            raise ValueError(f"line {number} of {folder}/metrics.jsonl has no kind or no step")
        metrics.append(found)
    return metrics


def _read_results(folder: str) -> Dict[str, List[Dict[str, Any]]]:
    results = {}
    where = os.path.join(folder, "eval")
    for name in sorted(os.listdir(where)) if os.path.isdir(where) else []:
        protocol, ending = os.path.splitext(name)
        if ending == ".json":
            found = _parse_json(_text(where, name), f"{where}/{name}")
            if not isinstance(found.get("results"), list):
                raise ValueError(f"{where}/{name} has no list of results; zonal eval writes it anew")
            results[protocol] = found["results"]
    return results


def _parse_json(text: str, what: str) -> Dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{what} is not a JSON object")
    return found


# What config.toml has of TOML (docs/formats.md): Python has a reader of its own from 3.11 on only.
_LINE = re.compile(
    r'([A-Za-z0-9_-]+) = ("(?:[^"\\\x00-\x1f]|\\.)*"|true|false|[-+0-9.e]+|inf|nan)\s*(?:#.*)?'
)


def _parse_configuration(text: str, where: str) -> Dict[str, Any]:
    """Strings, numbers and booleans by name. TOML's own are JSON's in all that zonal writes."""
    values: Dict[str, Any] = {}
    for number, line in enumerate(text.split("\n"), 1):
        found = _LINE.fullmatch(line)
        try:
            if found:
                values[found[1]] = float(found[2]) if found[2] in ("inf", "nan") else json.loads(found[2])
            elif line.strip() and not line.startswith("#"):
                raise ValueError
        except ValueError:
            raise ValueError(
                f'line {number} of the configuration in {where} cannot be read: "{line:.80}"'
            ) from None
    return values


# ---- what an image goes through ----------------------------------------------------------------------------

# What the network sees where the configuration names no constants: those of ImageNet for RGB.
_MEAN = {1: (0.5,), 3: (0.485, 0.456, 0.406)}
_STD = {1: (0.25,), 3: (0.229, 0.224, 0.225)}
_CENTER_SHARE = 7 / 8  # of the shorter side
_GREY = (0.2989, 0.587, 0.114)


@dataclass(frozen=True)
class Preprocessing:
    """What an image goes through before the network sees it. Call it on a uint8 image or batch of images,
    [channels, height, width] or [images, channels, height, width]; it gives float32
    [images, channels, side, side].

    What the file does not tell is None, and then the call is refused.
    """

    channels: int
    side: Optional[int]
    crop: Optional[
        str
    ]  #: "center": the square in the middle, 7/8 of the shorter side; "whole": all, stretched
    augmentation: Optional[
        str
    ]  #: "byol": resampled with antialiasing; "texture": between pixels, zeros outside
    mean: Tuple[float, ...]
    std: Tuple[float, ...]

    def __call__(self, image: "torch.Tensor") -> "torch.Tensor":
        import torch

        if image.dtype != torch.uint8 or image.dim() not in (3, 4) or image.shape[-3] not in (1, 3):
            raise ValueError(
                "preprocessing takes uint8 images [channels, height, width] of 1 or 3 channels, got "
                f"{image.dtype} {list(image.shape)}"
            )
        if not self.side or not self.crop or not self.augmentation:
            raise ValueError(
                "the file of weights does not say how images are prepared; export them with zonal export"
            )
        x = image.reshape((-1,) + tuple(image.shape[-3:])).float() / 255
        x = self._resize(self._crop(self._convert(x)))
        constants = [
            torch.tensor(values, device=x.device).reshape(1, -1, 1, 1) for values in (self.mean, self.std)
        ]
        return (x - constants[0]) / constants[1]

    def _convert(self, x: "torch.Tensor") -> "torch.Tensor":
        if x.shape[1] == self.channels:
            return x
        if self.channels == 3:
            return x.expand(-1, 3, -1, -1)
        return (x * x.new_tensor(_GREY).reshape(1, 3, 1, 1)).sum(1, keepdim=True)

    def _crop(self, x: "torch.Tensor") -> "torch.Tensor":
        if self.crop == "whole":
            return x
        side = round(_CENTER_SHARE * min(x.shape[2:]))
        top, left = (x.shape[2] - side) // 2, (x.shape[3] - side) // 2
        return x[:, :, top : top + side, left : left + side]

    def _resize(self, x: "torch.Tensor") -> "torch.Tensor":
        import torch
        from torch.nn import functional

        assert self.side is not None
        if self.augmentation == "byol":
            return functional.interpolate(
                x, (self.side, self.side), mode="bilinear", align_corners=False, antialias=True
            )
        identity = torch.eye(2, 3, device=x.device).expand(x.shape[0], 2, 3)
        grid = functional.affine_grid(
            identity, [x.shape[0], x.shape[1], self.side, self.side], align_corners=False
        )
        return functional.grid_sample(x, grid, align_corners=False)


def _preprocessing(known: Dict[str, Any], channels: int, where: str) -> Preprocessing:
    """From the options of a run, or the metadata of an exported file under the same names."""
    try:
        side = int(known.get("eval-side") or 0) or known.get("side")  # 0: that of the views
        crop = "whole" if known.get("augmentation") == "texture" else known.get("crop")
        found = Preprocessing(
            channels,
            None if side is None else int(side),
            crop,
            known.get("augmentation"),
            _constants(known.get("mean"), _MEAN[channels]),
            _constants(known.get("std"), _STD[channels]),
        )
    except (TypeError, ValueError):
        raise ValueError(f"{where} says something about the preprocessing that is no number") from None
    if (
        found.crop not in (None, "center", "whole")
        or found.augmentation not in (None, "byol", "texture")
        or not (found.side is None or 1 <= found.side <= 1024)
    ):
        raise ValueError(f"{where} names a preprocessing that is not known here: {found}")
    return found


def _constants(given: Any, default: Tuple[float, ...]) -> Tuple[float, ...]:
    """One for each channel, from a number, a text of one, or a text of one for each."""
    if given is None:
        return default
    values = tuple(float(part) for part in str(given).split(","))
    if len(values) not in (1, len(default)):
        raise ValueError
    return values if len(values) == len(default) else values * len(default)


# ---- the network -------------------------------------------------------------------------------------------


def load_backbone(run: Path, checkpoint: str = "last") -> "torch.nn.Module":
    """The trained backbone as a torchvision ResNet, in evaluation mode and with ``fc`` an Identity.

    ``run`` is a run folder, one of its checkpoints, or what ``zonal export`` wrote; any safetensors file of a
    ResNet-18, -34 or -50 with torchvision's names will do. Of a folder, ``checkpoint`` is ``"last"`` or
    ``"best"``. Runs with grey images or the small stem get a ``conv1`` that fits.

    The model's ``preprocessing`` is a :class:`Preprocessing`: what ``zonal embed`` does to an image first.

    >>> import torchvision                                                  # doctest: +SKIP
    >>> model = load_backbone("runs/photos-1")                              # doctest: +SKIP
    >>> image = torchvision.io.read_image("cat.jpg")                        # doctest: +SKIP
    >>> features = model(model.preprocessing(image))                        # doctest: +SKIP
    """
    path = os.fspath(run)
    configuration: Dict[str, Any] = {}
    if os.path.isdir(path):
        configuration = read_run(path)["configuration"]
        path = _find_checkpoint(path, checkpoint)
    file = Safetensors(path)
    if not configuration:
        configuration = _parse_configuration(file.metadata.get("zonal.configuration", ""), path)
    known = configuration or {
        key[len("zonal.") :]: text for key, text in file.metadata.items() if key.startswith("zonal.")
    }
    model: "torch.nn.Module" = _make_model(file, known)
    return model


def _find_checkpoint(folder: str, checkpoint: str) -> str:
    where = os.path.join(folder, "checkpoints")
    if checkpoint not in ("last", "best"):
        raise ValueError(f'checkpoint must be "last" or "best", got {checkpoint!r}; or give the file itself')
    names = os.listdir(where) if os.path.isdir(where) else []
    matches = (re.fullmatch(r"step-(\d{8,18})\.safetensors", name) for name in names)
    steps = [int(match[1]) for match in matches if match]
    if checkpoint == "best" and "best.safetensors" in names:
        return os.path.join(where, "best.safetensors")
    if checkpoint == "best" or not steps:
        raise FileNotFoundError(f"{folder} has no checkpoint yet that is its {checkpoint} one")
    return os.path.join(where, f"step-{max(steps):08d}.safetensors")


def _make_model(file: Safetensors, known: Dict[str, Any]) -> Any:
    try:
        import torch
        import torchvision  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError(
            f"load_backbone needs torch and torchvision: pip install torchvision ({error})"
        ) from None
    depth, small, channels = _infer_network(file)
    model = getattr(torchvision.models, f"resnet{depth}")()
    model.fc = torch.nn.Identity()
    if small or channels != 3:
        kernel, stride, padding = (3, 1, 1) if small else (7, 2, 3)
        model.conv1 = torch.nn.Conv2d(channels, 64, kernel, stride, padding, bias=False)
    if small:
        model.maxpool = torch.nn.Identity()
    _fill(model, file)
    model.preprocessing = _preprocessing(known, channels, file.path)
    return model.eval()


def _infer_network(file: Safetensors) -> Tuple[int, bool, int]:
    """Depth, whether the stem is the small one, and channels: all can be seen from names and shapes."""
    shapes = file.shapes
    stem = shapes.get("conv1.weight", ())
    if len(stem) != 4 or "layer1.0.conv1.weight" not in shapes:
        raise ValueError(
            f'{file.path} contains no ResNet with torchvision\'s names: no "conv1.weight" of rank 4'
        )
    if stem[1] not in (1, 3) or stem[2:] not in ((3, 3), (7, 7)):
        raise ValueError(
            f'"conv1.weight" of {file.path} has the shape {list(stem)}; 1 or 3 channels and 3 or 7 '
            "pixels are supported"
        )
    if stem[0] != 64:
        raise ValueError(
            f"{file.path} is a ResNet of width {stem[0] / 64:g}, which torchvision has not; zonal embed "
            "and zonal eval read it"
        )
    depth = 50 if "layer1.0.conv3.weight" in shapes else 34 if "layer1.2.conv1.weight" in shapes else 18
    return depth, stem[2] == 3, stem[1]


def _fill(model: "torch.nn.Module", file: Safetensors) -> None:
    """Every tensor of the model from the file, and every one of the file's backbone into the model."""
    import numpy as np
    import torch

    aside = ("optimiser.", "projector.", "fc.")
    state = model.state_dict()
    names = {name for name in file.shapes if not name.startswith(aside)}
    missing = sorted(name for name in set(state) - names if not name.endswith("num_batches_tracked"))
    for what, some in (("has not the", missing), ("has, beside a ResNet's, the", sorted(names - set(state)))):
        if some:
            raise ValueError(
                f"{file.path} {what} tensors {', '.join(some[:3])}; zonal export writes what fits"
            )
    for name in names:
        if file.shapes[name] != tuple(state[name].shape):
            raise ValueError(
                f'"{name}" of {file.path} has the shape {list(file.shapes[name])}, not '
                f"{list(state[name].shape)}"
            )
        array = file.read(name)
        if not np.isfinite(array).all():
            raise ValueError(f'"{name}" of {file.path} holds values that are not finite')
        state[name] = torch.from_numpy(array).to(state[name].dtype)
    model.load_state_dict(state)
