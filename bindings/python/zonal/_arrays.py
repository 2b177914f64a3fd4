"""Rows of embeddings from numpy, PyTorch, JAX, or whatever else holds an array, as libzonal reads them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

__all__ = ["as_rows"]


def as_rows(x: Any, name: str = "x") -> np.ndarray:
    """``x`` as a contiguous float32 or float64 array [rows, dimensions] in host memory.

    Half precision (bfloat16 too) becomes float32. Tensors of a GPU are copied to the host. Nothing is copied
    that is as it should be.

    >>> as_rows([[3.0, 4.0], [0.0, 1.0]]).dtype
    dtype('float64')
    """
    array = _to_numpy(x, name)
    dtype = _dtype_for(array, name)
    if array.ndim != 2:
        raise ValueError(
            f"{name} must be [rows, dimensions], got {array.ndim} axes: {list(array.shape)}; reshape it"
        )
    return np.ascontiguousarray(array, dtype)


def _to_numpy(x: Any, name: str) -> np.ndarray:
    torch = sys.modules.get("torch")  # a tensor can only be there once its module is
    try:
        if torch is not None and isinstance(x, torch.Tensor):
            return _from_torch(x, name)
        if isinstance(x, np.ma.MaskedArray) and x.mask.any():
            raise ValueError(f"{name} is masked; leave out the rows that are not there")
        if isinstance(x, (list, tuple)) or hasattr(x, "__array__"):
            return np.asarray(x)
        if hasattr(x, "__dlpack__"):
            return np.from_dlpack(x)
    except (TypeError, RuntimeError, BufferError) as error:
        raise TypeError(
            f"{name}, a {type(x).__name__}, cannot be read from here ({error}); "
            "copy it to host memory first"
        ) from None
    raise TypeError(
        f"{name} must be an array (numpy, torch, or with __array__ or __dlpack__), " f"got {type(x).__name__}"
    )


def _from_torch(x: Any, name: str) -> np.ndarray:
    import torch

    if x.device.type == "meta":
        raise TypeError(f"{name} is a meta tensor and has no values")
    x = x.detach()
    if x.dtype == torch.bfloat16:
        x = x.float()
    array: np.ndarray = x.cpu().numpy()
    return array


def _dtype_for(array: np.ndarray, name: str) -> Any:
    kind = array.dtype
    if kind.kind == "f":
        return np.float32 if kind.itemsize <= 4 else np.float64
    if kind.name == "bfloat16":  # of the package ml_dtypes, which JAX uses
        return np.float32
    raise TypeError(f"{name} must hold floating-point numbers, got {kind}; convert it to float32")
