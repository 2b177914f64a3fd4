"""zonal keeps embeddings uniform on the unit sphere: exact uniformity losses, and tests of uniformity.

    import torch, zonal.losses
    loss = zonal.losses.MMD(kernel="heat", t="5/d")
    loss(torch.randn(256, 128, requires_grad=True)).backward()

numpy is all that is needed; modules that want PyTorch import it themselves, when they are asked for.
"""

from __future__ import annotations

import importlib
from typing import Any, List

from ._library import ZonalError
from ._version import __version__

# Where a name that is asked for comes from; None: it is a module.
_HOMES = {
    "callbacks": None,
    "collapse_report": "uniformity",
    "distributed": None,
    "jax": None,
    "kernel_profile": "kernels",
    "load_backbone": "runs",
    "losses": None,
    "read_run": "runs",
    "test_uniformity": "uniformity",
    "variance": "kernels",
}

__all__ = ["ZonalError", "__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zonal' has no attribute {name!r}")
    home = _HOMES[name]
    value = importlib.import_module(f"zonal.{home or name}")
    if home is not None:
        value = getattr(value, name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted(set(globals()) | set(_HOMES))
