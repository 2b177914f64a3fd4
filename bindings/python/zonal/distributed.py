"""Losses of a batch that several processes hold together, under DistributedDataParallel or torchrun.

    loss = zonal.distributed.GlobalBatch(zonal.losses.MMD("heat", t="5/d"))
    loss(projector(images)).backward()                   # each rank has rows of its own

The value is that of all ranks' rows as one batch, the same bits on every rank, and does not depend on how
many ranks there are, nor on how they share the rows: shards may be uneven, and some empty. It is not the mean
of the ranks' own losses, which is another loss: for uniform rows MMD is 1/B on average.

Each rank gets the gradient with respect to its own rows, so gradients of shared parameters are sums over
ranks. DistributedDataParallel takes their mean; with average_gradients=True, the default, they are multiplied
by the number of ranks beforehand, and its mean is then the gradient that one process would have.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _plans, _torch  # _torch first: it has a sentence where PyTorch is missing
from ._collectives import Communicator, backend_of
from ._interrupts import DeferredInterrupt
from ._library import Made, ZonalError
from .losses import SphereJEPALoss, _Loss, _stacked

import torch
import torch.distributed as dist

__all__ = ["GlobalBatch"]

_PLANS = 8  # kept for as many different divisions of a batch among the ranks


class _Shard(NamedTuple):
    """What the ranks must know of each other before a call. All but rows and wants_gradient must agree."""

    rows: int  # -1: this rank cannot take part
    dim: int
    views: int
    dtype: int
    step: int  # of a sliced loss: its directions must be the same everywhere
    wants_gradient: int

    def must_agree(self) -> Tuple[int, ...]:
        return self[1:5]

    def __str__(self) -> str:
        views = f"{self.views} views of " if self.views else ""
        return f"{views}{self.dim} dimensions in {_DTYPES[self.dtype]} at step {self.step}"


_NOBODY = _Shard(-1, 0, 0, 0, 0, 0)
_DTYPES = (torch.float64, torch.float32, torch.bfloat16)

# One graph break instead of one at each thing that torch.compile does not know.
_not_compiled: Any = torch.compiler.disable if _torch.MODERN else lambda function: function


class GlobalBatch(torch.nn.Module):
    """A loss of :mod:`zonal.losses` over the rows of all ranks of a process group (None: all processes).

    Every rank calls it at the same time, with rows [rows, d] or views [V, rows, d] of its own. What one rank
    cannot take (a NaN, another dimension) is an exception on all of them.

    - ``average_gradients``: True if the ranks' gradients are averaged later, as DistributedDataParallel does;
      False if they are added up.
    - ``same_rows``: promises that the ranks' numbers of rows only change all at once. The ranks then need not
      tell each other their shapes at each call, which in a group of NCCL alone waits for the GPU.

    Under torch.compile it is a graph break. ``loss.parts`` of SphereJEPALoss are those of the whole batch.

    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # torchrun's, in truth
    >>> from zonal.losses import MMD
    >>> z = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    >>> bool(GlobalBatch(MMD())(z) == MMD()(z))
    True
    >>> dist.destroy_process_group()
    """

    def __init__(
        self, loss: _Loss, group: Any = None, *, average_gradients: bool = True, same_rows: bool = False
    ) -> None:
        super().__init__()
        if not isinstance(loss, _Loss):
            raise TypeError(f"GlobalBatch takes a loss of zonal.losses, got {type(loss).__name__}")
        self.loss = loss
        self.group = group
        self.average_gradients = average_gradients
        self.same_rows = same_rows
        self._forget()

    def _forget(self) -> None:
        self._communicators: Dict[torch.device, Communicator] = {}
        self._made: "OrderedDict[Any, Made]" = OrderedDict()

    @_not_compiled  # type: ignore[untyped-decorator]
    def forward(self, z: Union[torch.Tensor, Sequence[torch.Tensor]]) -> torch.Tensor:
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError(
                "GlobalBatch needs a process group: call torch.distributed.init_process_group first"
            )
        rows, shards = self._agree(z)
        out: List[torch.Tensor] = []
        value = _Global.apply(rows, self, shards, out)
        loss: Any = self.loss
        if isinstance(loss, SphereJEPALoss):
            loss._parts = out[0]
        if self._step() is not None and loss.training:
            loss.step += 1
        return value  # type: ignore[no-any-return]

    def check(self) -> None:
        """As of a loss; on a GPU every rank must call it."""
        for made in self._made.values():
            made.status()

    def _step(self) -> Optional[int]:
        loss: Any = self.loss
        return None if getattr(loss, "_step", None) is None else int(loss.step)

    # ---- what all ranks know ----

    def _agree(self, z: Any) -> Tuple[torch.Tensor, Tuple[_Shard, ...]]:
        """This rank's rows, and everybody's shapes. A rank that fails tells the others, who fail too."""
        try:
            rows = self._rows_of(z)
        except Exception:
            if not self.same_rows:
                self._exchange(_NOBODY, z.device if isinstance(z, torch.Tensor) else torch.device("cpu"))
            raise
        mine = self._shard_of(rows)
        if self.same_rows:
            return rows, (mine,)
        shards = self._exchange(mine, rows.device)
        for rank, other in enumerate(shards):
            if other.rows < 0:
                raise RuntimeError(f"rank {rank} cannot take part in the loss: see its exception")
            if other.must_agree() != shards[0].must_agree():
                raise ValueError(
                    f"the ranks' rows differ in kind: rank 0 has {shards[0]}, rank {rank} has {other}"
                )
        return rows, shards

    def _rows_of(self, z: Any) -> torch.Tensor:
        views = isinstance(self.loss, SphereJEPALoss)
        if views and not isinstance(z, torch.Tensor):
            z = _stacked(z)
        rows = _torch.rows_of(z, 3 if views else 2, self.loss.precision)
        if rows.device.type == "meta":
            raise TypeError("GlobalBatch takes rows with values, got a meta tensor")
        if rows.device.type == "cpu" and not backend_of(self.group, "cpu"):
            raise ValueError(
                "the process group has no collectives for rows on the CPU: give it gloo too, or use z.cuda()"
            )
        return rows

    def _shard_of(self, z: torch.Tensor) -> _Shard:
        wants_gradient = torch.is_grad_enabled() and z.requires_grad
        views = z.shape[0] if z.dim() == 3 else 0
        dtype = _DTYPES.index(z.dtype)
        return _Shard(z.shape[-2], z.shape[-1], views, dtype, self._step() or 0, int(wants_gradient))

    def _exchange(self, mine: _Shard, device: torch.device) -> Tuple[_Shard, ...]:
        where = torch.device("cpu")
        if not backend_of(self.group, "cpu"):
            where = device if device.type == "cuda" else torch.device("cuda", torch.cuda.current_device())
        ours = torch.tensor(mine, dtype=torch.int64, device=where)
        theirs = [torch.empty_like(ours) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(theirs, ours, group=self.group)
        return tuple(_Shard(*shard) for shard in torch.stack(theirs).tolist())

    def _communicator(self, device: torch.device) -> Communicator:
        if device not in self._communicators:
            self._communicators[device] = Communicator(self.group, device)
        return self._communicators[device]

    # ---- the call ----

    def _execute(self, z: torch.Tensor, shards: Tuple[_Shard, ...]) -> _torch.Result:
        z = z.contiguous()
        with_gradient = any(shard.wants_gradient for shard in shards)
        parts, gradient = _torch.buffers(z, with_gradient)
        communicator = self._communicator(z.device)
        communicator.error = None
        try:
            with DeferredInterrupt():
                made = self._plan(z, shards, communicator)
                if z.device.type == "cuda":
                    made.set_stream(torch.cuda.current_stream(z.device).cuda_stream)
                step = self._step()
                if step is not None:
                    made.set_step(step)
                made.execute(
                    z.data_ptr(), parts.data_ptr(), _address(gradient, parts) if with_gradient else None
                )
        except ZonalError:
            self._forget()  # after a failed collective nobody knows what the others have
            if communicator.error is None:
                raise
            raise communicator.error from None
        return _torch.value_of(z, parts), parts, gradient

    def _plan(self, z: torch.Tensor, shards: Tuple[_Shard, ...], communicator: Communicator) -> Made:
        """Making one is collective. All ranks keep theirs by the same shapes: all make one, or none does."""
        global_views = self.loss.global_views if isinstance(self.loss, SphereJEPALoss) else 0
        key = _torch.key_of(
            z, self.loss.method, self.loss.options, self.loss.precision or "", self.loss.threads, global_views
        )
        # Threads and streams are this rank's own affair.
        name = (key._replace(threads=0, stream=0), tuple(shard.rows for shard in shards))
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = _plans.make(key, communicator)
        self._made.move_to_end(name)
        while len(self._made) > _PLANS:
            self._made.popitem(last=False)
        return made

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_communicators": {}, "_made": OrderedDict()}

    def extra_repr(self) -> str:
        return f"average_gradients={self.average_gradients}"


class _Global(torch.autograd.Function):
    """Backward is this rank's own: all that needs the others was done in forward."""

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, module: GlobalBatch, shards: Any, out: List[torch.Tensor]) -> Any:
        value, parts, gradient = module._execute(z, shards)
        out.append(parts)
        ctx.save_for_backward(gradient, z)
        ctx.scale = dist.get_world_size(module.group) if module.average_gradients else 1
        return value

    @staticmethod
    def backward(ctx: Any, *factors: Any) -> Any:
        gradient, z = ctx.saved_tensors
        factor = factors[0] * ctx.scale
        if torch.is_grad_enabled():
            return _torch.Product.apply(z, gradient, factor), None, None, None
        return gradient * factor, None, None, None


def _address(gradient: torch.Tensor, other: torch.Tensor) -> int:
    """A rank without rows has no memory for a gradient, but wants one as the others do."""
    return gradient.data_ptr() or other.data_ptr()
