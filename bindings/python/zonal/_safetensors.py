"""Named tensors from a safetensors file, whose header is trusted in nothing.

A file is 8 bytes of length N, N bytes of JSON and the data of all tensors. Before any of it is used, names,
types, shapes and offsets have been checked against each other and against the length of the file: the
tensors must cover the data without gaps or overlaps. The checksum that `zonal` writes into its own files is
not compared: in Python that would take seconds for each hundred megabytes.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any, Dict, List, NamedTuple, Tuple, Union

import numpy as np

_HEADER_MOST = 100_000_000  # bytes: the limit of the format's own library
_RANK_MOST = 8
_BF16 = "BF16"  # numpy has no such type: its two bytes are the upper ones of a float
_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    _BF16: "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "u1",
}


class _Entry(NamedTuple):
    dtype: str
    shape: Tuple[int, ...]
    begin: int
    end: int


class Safetensors:
    """A checked file: ``metadata`` (texts by key), ``shapes`` by name, and ``read(name)`` for one tensor."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self.path = os.fspath(path)
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = self._read_header(file.read(8), size, file)
        self.metadata = self._check_metadata(header.pop("__metadata__", {}))
        self._entries = {name: self._check_entry(name, entry) for name, entry in header.items()}
        self._check_cover(size - self._data)

    @property
    def shapes(self) -> Dict[str, Tuple[int, ...]]:
        return {name: entry.shape for name, entry in self._entries.items()}

    def read(self, name: str) -> np.ndarray:
        """The tensor as an array of its own; bfloat16 becomes float32."""
        entry = self._entries[name]
        with open(self.path, "rb") as file:
            file.seek(self._data + entry.begin)
            content = file.read(entry.end - entry.begin)
        if len(content) != entry.end - entry.begin:
            raise self._bad("it was cut off while it was read")
        array = np.frombuffer(content, _TYPES[entry.dtype]).reshape(entry.shape)
        if entry.dtype == _BF16:
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(array.dtype.newbyteorder("="))

    def _bad(self, why: str) -> ValueError:
        return ValueError(f"{self.path} is no safetensors file that can be used: {why}")

    def _read_header(self, first: bytes, size: int, file: Any) -> Dict[str, Any]:
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if not 2 <= length <= min(_HEADER_MOST, size - 8):
            raise self._bad(f"its length of {size} bytes does not fit its header")
        self._data = 8 + length
        try:
            header = json.loads(
                file.read(length).decode("utf-8"),
                object_pairs_hook=_without_doubles,
                parse_constant=_refuse_constant,
            )
        except (ValueError, RecursionError) as error:
            raise self._bad(f"its header is not the JSON expected ({error})") from None
        if not isinstance(header, dict):
            raise self._bad("its header is not a JSON object")
        return header

    def _check_metadata(self, metadata: Any) -> Dict[str, str]:
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise self._bad("its metadata are not texts")
        return metadata

    def _check_entry(self, name: str, entry: Any) -> _Entry:
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise self._bad(f'the entry of "{name:.80}" has not dtype, shape and data_offsets alone')
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in _TYPES:
            raise self._bad(f'the tensor "{name:.80}" has a type that is not read here: {dtype!r:.40}')
        if not _are_counts(shape) or len(shape) > _RANK_MOST:
            raise self._bad(f'the tensor "{name:.80}" has an impossible shape')
        if not _are_counts(offsets) or len(offsets) != 2:
            raise self._bad(f'the tensor "{name:.80}" has impossible data_offsets')
        wanted = np.dtype(_TYPES[dtype]).itemsize
        for count in shape:
            wanted *= count
        if offsets[1] - offsets[0] != wanted:
            raise self._bad(f'the tensor "{name:.80}" has not as many bytes as its shape needs')
        return _Entry(dtype, tuple(shape), offsets[0], offsets[1])

    def _check_cover(self, data_bytes: int) -> None:
        end = 0
        for name, entry in sorted(self._entries.items(), key=lambda item: item[1][2:]):
            if entry.begin != end:
                raise self._bad(f'there is a gap or an overlap before the tensor "{name:.80}"')
            end = entry.end
        if end != data_bytes:
            raise self._bad(f"it has {data_bytes} bytes of data, its tensors {end}")


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _without_doubles(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
