"""A process group of torch.distributed as libzonal's communicator: a table of functions that it calls.

The group must have collectives for the memory that is given: gloo (or MPI) for host memory, NCCL for that of
a GPU. A plan on a GPU with a group that has none of those is staged through the host by libzonal.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist

from ._library import declare

_DEVICE_FAILED = 40  # ZONAL_DEVICE
_REDUCED = (torch.float64, torch.float32)  # by zonal_reduce
_TYPES = {torch.float64: "<f8", torch.float32: "<f4", torch.uint8: "|u1"}

_set_error = declare("zonal_error_set", [c_int, c_char_p], c_int, fallible=False)

_AllReduce = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int64, c_int, c_void_p)
_AllGather = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, POINTER(c_int64), c_void_p)
_ShiftBegin = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p)
_ShiftEnd = CFUNCTYPE(c_int, c_void_p, c_void_p)
_Broadcast = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int64, c_int, c_void_p)


def backend_of(group: Any, kind: str) -> str:
    """The backend that a group has for memory of the "cpu" or of "cuda"; empty where it has none."""
    if hasattr(dist, "get_backend_config"):
        pairs = [pair.partition(":") for pair in str(dist.get_backend_config(group)).split(",")]
        return dict((name, backend) for name, _, backend in pairs).get(kind, "")
    backend = str(dist.get_backend(group))  # before PyTorch 2.0 a group had one for all
    return "" if backend == "nccl" and kind == "cpu" else backend


class _Table(ctypes.Structure):
    """zonal_communicator of zonal/communicator.h."""

    _fields_ = [
        ("size", c_size_t),
        ("rank", c_int),
        ("ranks", c_int),
        ("on_device", c_int),
        ("context", c_void_p),
        ("all_reduce", _AllReduce),
        ("all_gather", _AllGather),
        ("shift_begin", _ShiftBegin),
        ("shift_end", _ShiftEnd),
        ("broadcast", _Broadcast),
    ]


class Communicator:
    """One process group, for plans on one device. ``error`` is what a function raised, for the caller of the
    plan to raise: libzonal only gets a sentence."""

    def __init__(self, group: Any, device: torch.device) -> None:
        self._group = group
        self._device = device
        self._shifts: List[Any] = []
        self._sent: List[Any] = []
        self.error: Optional[BaseException] = None
        self.rank = dist.get_rank(group)
        self.ranks = dist.get_world_size(group)
        self.on_device = device.type == "cuda" and "nccl" in backend_of(group, "cuda")
        self.table = _Table(
            ctypes.sizeof(_Table),
            self.rank,
            self.ranks,
            int(self.on_device),
            None,
            _AllReduce(self._guard(self._all_reduce)),
            _AllGather(self._guard(self._all_gather)),
            _ShiftBegin(self._guard(self._shift_begin)),
            _ShiftEnd(self._guard(self._shift_end)),
            _Broadcast(self._guard(self._broadcast)),
        )

    def address(self) -> Any:
        return ctypes.byref(self.table)

    def _guard(self, function: Callable[..., None]) -> Callable[..., int]:
        """No exception leaves a callback: C would go on as if all were well."""

        def call(_: Any, *arguments: Any) -> int:
            try:
                function(*arguments)
                return 0
            except BaseException as error:
                self.error = error
                sentence = f"torch.distributed failed on rank {self.rank}: {error}"
                return int(_set_error(_DEVICE_FAILED, sentence.encode()[:700]))

        return call

    # ---- memory as tensors ----

    def _tensor(self, address: Optional[int], count: int, dtype: torch.dtype) -> torch.Tensor:
        """libzonal's memory itself, not a copy."""
        if count == 0 or address is None:
            return torch.empty(0, dtype=dtype, device=self._device if self.on_device else "cpu")
        if self.on_device:
            return torch.as_tensor(_CudaMemory(address, count, _TYPES[dtype]), device=self._device)
        width = torch.empty(0, dtype=dtype).element_size()
        return torch.frombuffer((ctypes.c_char * (count * width)).from_address(address), dtype=dtype)

    def _bytes(self, address: Optional[int], count: int) -> torch.Tensor:
        return self._tensor(address, count, torch.uint8)

    def _global_rank(self, rank: int) -> int:
        return rank if self._group is None else dist.get_global_rank(self._group, rank % self.ranks)

    # ---- the collectives; the stream is PyTorch's current one, on which the plan was put ----

    def _all_reduce(self, number: int, count: int, kind: int, _: Any) -> None:
        dist.all_reduce(self._tensor(number, count, _REDUCED[kind]), group=self._group)

    def _all_gather(self, mine: Optional[int], everything: Optional[int], sizes: Any, _: Any) -> None:
        counts = [int(sizes[rank]) for rank in range(self.ranks)]
        most = max(counts)
        if most == 0:
            return
        blocks = torch.split(self._bytes(everything, sum(counts)), counts)
        # Blocks of one size are all that every backend and version takes.
        padded = self._bytes(None, 0).new_zeros(most)
        padded[: counts[self.rank]] = self._bytes(mine, counts[self.rank])
        received = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(received, padded, group=self._group)
        for block, found in zip(blocks, received):
            block.copy_(found[: len(block)])

    def _shift_begin(
        self, send: Optional[int], send_bytes: int, receive: Optional[int], receive_bytes: int, _: Any
    ) -> None:
        following, before = ((self.rank + step) % self.ranks for step in (1, -1))
        operations = []
        if send_bytes:
            block = self._bytes(send, send_bytes)
            operations.append(dist.P2POp(dist.isend, block, self._global_rank(following), self._group))
        if receive_bytes:
            block = self._bytes(receive, receive_bytes)
            operations.append(dist.P2POp(dist.irecv, block, self._global_rank(before), self._group))
        if self.on_device:
            self._shifts = dist.batch_isend_irecv(operations) if operations else []
        else:
            self._shifts = [one.op(one.tensor, one.peer, one.group) for one in operations]
        self._sent = operations  # the tensors live until shift_end

    def _shift_end(self, _: Any) -> None:
        for work in self._shifts:
            work.wait()
        self._shifts, self._sent = [], []

    def _broadcast(self, block: int, count: int, root: int, _: Any) -> None:
        dist.broadcast(self._bytes(block, count), self._global_rank(root), group=self._group)


class _CudaMemory:
    """What torch.as_tensor takes for memory of a GPU that others own."""

    def __init__(self, address: int, count: int, kind: str) -> None:
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": kind,
            "data": (address, False),
            "version": 2,
        }
