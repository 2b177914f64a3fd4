"""Exact uniformity losses on the sphere, and the sliced ones they replace, as PyTorch modules.

    loss = zonal.losses.MMD(kernel="heat", t="5/d")        # on a batch z [B, d]
    loss = zonal.losses.SphereJEPALoss("mmd-heat")         # on views z [V, B, d], with alignment
    loss(z).backward()

Rows need not be of unit length (SIGReg takes them as they are). MMD, KSD and KL are 1 at total collapse, and
for uniform rows MMD and KSD are 1/B on average. Value and gradient come from one call, and backward only
multiplies. Results are the same bit for bit every time.

Keywords are the options of libzonal's losses (zonal/loss.h; zonal.losses.option_help() lists them). A number
that goes with the dimension is a text: t="5/d".

    rows                        computed in
    float64, float32 (CPU)      their own precision
    bfloat16, float16 (CPU)     float32
    float32 (CUDA)              float32; precision="tf32" or "bf16" is faster
    bfloat16 (CUDA)             float32, from and to bfloat16
    float16 (CUDA)              float32, since a gradient in float16 underflows before it is scaled

On CUDA nothing waits for the GPU. A row that is zero or not finite, which is a ValueError on the CPU, gives
NaN there, and check() says which row it was. For a CUDA graph, call the loss once with that shape before the
capture; graphs that hold the same loss must not be replayed at the same time. Sliced losses in training mode
draw new directions at each replay.
"""

from __future__ import annotations

import operator
from typing import Any, Dict, NamedTuple, Optional, Sequence, Union

from . import _library, _torch  # _torch first: it has a sentence where PyTorch is missing
from ._plans import pool

import torch

Number = Union[float, str]

__all__ = ["KL", "KSD", "MMD", "SIGReg", "SUSReg", "SphereJEPALoss", "Parts", "clear_plans", "option_help"]


def option_help() -> Dict[str, str]:
    """The keywords that losses take, with a line about each.

    >>> option_help()["slices"]
    'susreg, sigreg: random directions; 1024 unless given'
    """
    return {name.replace("-", "_"): _library.text_of("zonal_loss_option_help", i)
            for i, name in enumerate(_library.names("zonal_loss_option_name"))
            if name not in ("device", "dtype")}


def clear_plans() -> None:
    """Gives back the memory that losses keep for their next call, on the GPU as well: that of at most 32
    plans. What CUDA graphs have captured stays.

    >>> clear_plans()
    """
    pool.clear()


def _whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None


_MOST_THREADS, _MOST_SLICES = 4096, 2**24


def _check_values(method: str, options: Dict[str, Any], objective: bool) -> None:
    """Refuses what no batch could make right, rather than at the first batch. It is refused in the same words
    in every dimension: what depends on the dimension is named with numbers that do too."""
    slices = options.get("slices")
    if isinstance(slices, int) and 1 < slices <= _MOST_SLICES:
        options = {**options, "slices": 1}  # they cost
    text = _library.options_text(options)
    refusals = []
    for d in (8, 2, 64, 512):
        try:
            _library.Objective(method, text, 2, 2, 4, d) if objective else _library.Plan(method, text, 4, d)
            return
        except (TypeError, ValueError) as error:
            refusals.append(error)
        if str(refusals[-1]) != str(refusals[0]):
            return
    raise refusals[0] from None


class _Loss(torch.nn.Module):
    """A method with its options; the plans are in a pool that all losses share. `weights` are an objective's
    own options."""

    def __init__(self, method: str, options: Dict[str, Any],
                 weights: Optional[Dict[str, Any]] = None) -> None:
        super().__init__()
        if not isinstance(method, str):
            raise TypeError(f'method must be a text such as "mmd-heat", got {method!r}')
        _torch.check_method(method)
        known = option_help()
        for name in options:
            if name in ("device", "dtype"):
                raise TypeError(f"{type(self).__name__} takes no {name}: it is that of the rows")
            if name not in known:
                raise TypeError(f"{type(self).__name__} has no option {name!r}; it has {', '.join(known)}")
        self.method = method
        self.precision: Optional[str] = options.pop("precision", None)
        self.threads = _whole("threads", options.pop("threads", None) or 0)
        if self.precision not in (None, "double", "fp32", "tf32", "bf16"):
            raise ValueError(f"precision must be double, fp32, tf32 or bf16, got {self.precision!r}")
        weights = weights or {}
        self.options = _library.options_text({**options, **weights})
        if not 0 <= self.threads <= _MOST_THREADS:
            options["threads"] = self.threads  # it is about to be refused
        _check_values(method, {"threads": 1, **options, **weights}, bool(weights))

    def check(self) -> None:
        """Waits for the GPU and raises a ValueError if this loss, or another one with the same settings, has
        met a row that was zero or not finite since the last check."""
        pool.check(self.method, self.options)

    def extra_repr(self) -> str:
        precision = f", precision={self.precision}" if self.precision else ""
        return f"{self.method}{', ' if self.options else ''}{self.options}{precision}"


class _Exact(_Loss):
    def forward(self, z: torch.Tensor) -> torch.Tensor:
        z = _torch.rows_of(z, 2, self.precision)
        value, _ = _torch.evaluate(z, None, self.method, self.options, self.precision or "", self.threads)
        return value


class MMD(_Exact):
    """Maximum mean discrepancy from the uniform distribution, as its share of the value at collapse.

    kernel: heat, band, induced, poisson, spectrum, or chordal (which has no gradient); its parameter is t,
    band, scale (s^2), r or spectrum. Under band=1 and band=2 the cost is linear in the batch.

    >>> loss = MMD(kernel="heat", t="5/d")
    >>> round(loss(torch.ones(4, 16)).item(), 6)  # collapse
    1.0
    >>> z = torch.randn(64, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    >>> loss(z).backward()
    >>> z.grad.shape
    torch.Size([64, 16])
    """

    def __init__(self, kernel: str = "heat", *, t: Optional[Number] = None, band: Optional[Number] = None,
                 scale: Optional[Number] = None, r: Optional[Number] = None,
                 spectrum: Union[None, str, Sequence[float]] = None, **options: Any) -> None:
        own = _given(options, t=t, band=band, scale=scale, r=r, spectrum=spectrum)
        super().__init__(f"mmd-{kernel}", own)


class KSD(_Exact):
    """Kernel Stein discrepancy: as MMD, with degree l of the kernel weighted by its eigenvalue l (l + d - 2).

    >>> round(KSD(kernel="band", band=2)(torch.eye(8)).item(), 6)  # orthogonal rows: 1/88
    0.011364
    """

    def __init__(self, kernel: str = "heat", *, t: Optional[Number] = None, band: Optional[Number] = None,
                 scale: Optional[Number] = None, r: Optional[Number] = None,
                 spectrum: Union[None, str, Sequence[float]] = None, **options: Any) -> None:
        own = _given(options, t=t, band=band, scale=scale, r=r, spectrum=spectrum)
        super().__init__(f"ksd-{kernel}", own)


class KL(_Exact):
    """Kullback-Leibler divergence from the uniform distribution, by a leave-one-out density estimate; at
    least three rows.

    kernel: heat (t="2/d" unless given), induced, poisson or spectrum. Their parameters are those of MMD, and
    kl_norm is "auto" or "paper".

    >>> round(KL()(torch.ones(4, 16)).item(), 6)  # collapse
    1.0
    """

    def __init__(self, kernel: str = "heat", *, t: Optional[Number] = None, scale: Optional[Number] = None,
                 r: Optional[Number] = None, spectrum: Union[None, str, Sequence[float]] = None,
                 **options: Any) -> None:
        super().__init__(f"kl-{kernel}", _given(options, t=t, scale=scale, r=r, spectrum=spectrum))


def _given(options: Dict[str, Any], **named: Any) -> Dict[str, Any]:
    return {**{name: value for name, value in named.items() if value is not None}, **options}


# ---- sliced losses -------------------------------------------------------------------------------


class _Stepped(_Loss):
    """A loss whose directions are drawn anew for each step. The counter advances in training mode alone. It
    is part of the state_dict, and lies where the rows of the last call did: a GPU reads it there, so that
    nothing waits, and so that each replay of a CUDA graph draws directions of its own."""

    def __init__(self, method: str, options: Dict[str, Any],
                 weights: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(method, options, weights)
        self._step = _counter(0, torch.device("cpu")) if method in ("susreg", "sigreg") else None
        self._counters: Dict[torch.device, torch.Tensor] = {}  # kept: CUDA graphs hold their addresses

    @property
    def step(self) -> int:
        """The step whose directions the next call draws. After calls on a GPU, reading it waits for them."""
        return 0 if self._step is None else int(self._step) % 2**32

    @step.setter
    def step(self, step: int) -> None:
        if self._step is not None:
            self._step.fill_(_signed(step))

    def _evaluate(self, z: torch.Tensor, global_views: int) -> Any:
        step = self._step
        if step is not None and step.device != z.device and z.device.type != "meta":
            step = self._step = self._moved(z)
        result = _torch.evaluate(z, step, self.method, self.options, self.precision or "", self.threads,
                                 global_views)
        if step is not None and self.training:
            step.add_(1)
        return result

    def _moved(self, z: torch.Tensor) -> torch.Tensor:
        if _torch.is_capturing(z):
            raise RuntimeError(f"{self.method} has its step elsewhere, and it cannot be brought to {z.device} "
                               "while a CUDA graph is being captured: call the loss once with this shape and "
                               "dtype before the capture, as in any warm-up")
        now = self.step
        counter = self._counters.get(z.device)
        if counter is None:
            counter = self._counters[z.device] = _counter(now, z.device)
        else:
            counter.fill_(_signed(now))
        return counter

    def __getstate__(self) -> Dict[str, Any]:
        """A counter of its own: multiprocessing would share the tensor between processes."""
        step = None if self._step is None else _counter(self.step, torch.device("cpu"))
        return {**self.__dict__, "_step": step, "_counters": {}}

    def get_extra_state(self) -> torch.Tensor:
        return torch.tensor(self.step, dtype=torch.int64)

    def set_extra_state(self, state: torch.Tensor) -> None:
        self.step = int(state)


def _signed(step: int) -> int:
    """As the four bytes that libzonal reads without a sign."""
    return (step + 2**31) % 2**32 - 2**31


def _counter(step: int, device: torch.device) -> torch.Tensor:
    return torch.full((), _signed(step), dtype=torch.int32, device=device)


class _Sliced(_Stepped):
    def forward(self, z: torch.Tensor) -> torch.Tensor:
        value, _ = self._evaluate(_torch.rows_of(z, 2, self.precision), 0)
        return value  # type: ignore[no-any-return]


class SUSReg(_Sliced):
    """Epps-Pulley's test against the sphere's marginal along random directions: the noisy estimate of MMD
    under the induced kernel. Directions follow from seed and step.

    >>> loss = SUSReg(slices=256, seed=1)
    >>> z = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    >>> first, second = loss(z), loss(z)
    >>> bool(first != second), loss.step
    (True, 2)
    """

    def __init__(self, *, slices: Optional[int] = None, seed: Optional[int] = None, **options: Any) -> None:
        super().__init__("susreg", _given(options, slices=slices, seed=seed))


class SIGReg(_Sliced):
    """LeJEPA's loss: rows as they are, against N(0, 1), along random directions; multiplied by B.

    >>> loss = SIGReg(slices=256).eval()
    >>> z = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    >>> bool(loss(z) == loss(z)), loss.step  # in evaluation mode directions stay
    (True, 0)
    """

    def __init__(self, *, slices: Optional[int] = None, seed: Optional[int] = None, **options: Any) -> None:
        super().__init__("sigreg", _given(options, slices=slices, seed=seed))


# ---- the objective -------------------------------------------------------------------------------


class Parts(NamedTuple):
    """What the last call of SphereJEPALoss found, in float64 on the device of the views."""

    total: torch.Tensor
    invariance: torch.Tensor  # mean of |x_nv - mu_n|^2; sigreg: divided by d
    discrepancy: torch.Tensor  # mean over views of D
    gain: torch.Tensor  # the factor of the discrepancy
    threshold: torch.Tensor  # of the gain, below which training collapses; 0: not known for this method
    margin: torch.Tensor  # gain / threshold; 0: not known


class SphereJEPALoss(_Stepped):
    """Alignment of views plus uniformity of each, the training objective of SPHERE-JEPA:

        L = (1 - lam) mean |x_nv - mu_n|^2 + lam gain mean over v of D(z_v)

    with x = z/|z| and mu_n the mean over the first `global_views` views of sample n.

    method: mmd-heat, mmd-band, ksd-heat, kl-heat, susreg ...; lam: 0.05 (KL: 0.5) unless given; gain:
    "auto" (a selectivity of 10, band kernels' 10 d/256, SUSReg's 20), "batch", "unit" or a number, or instead of it margin= or
    selectivity=. All options of the loss are keywords.

    Views are a tensor [V, B, d] or a list of V tensors [B, d], global ones first: crops of any size, as long
    as every view has a row for every sample. Samples without some view have no place in the equation.

    >>> loss = SphereJEPALoss("mmd-heat", lam=0.05, gain="auto", global_views=2)
    >>> z = torch.randn(2, 64, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    >>> loss(z).backward()
    >>> bool(loss.parts.invariance > 0), round(float(loss.parts.gain), 1)
    (True, 178.5)
    """

    def __init__(self, method: str = "mmd-heat", lam: Optional[float] = None, gain: Number = "auto",
                 global_views: int = 2, *, margin: Optional[float] = None,
                 selectivity: Optional[float] = None, **options: Any) -> None:
        if gain == "auto" and (margin is not None or selectivity is not None):
            gain_option: Optional[Number] = None
        else:
            gain_option = gain
        own = {"lambda": lam, "gain": gain_option, "margin": margin, "selectivity": selectivity}
        super().__init__(method, options, own)
        self.global_views = _whole("global_views", global_views)
        if self.global_views < 1:
            raise ValueError(f"global_views must be at least 1, got {self.global_views}")
        self._parts: Optional[torch.Tensor] = None
        self._dim = 0  # of the last call

    def forward(self, views: Union[torch.Tensor, Sequence[torch.Tensor]]) -> torch.Tensor:
        if not isinstance(views, torch.Tensor):
            views = _stacked(views)
        value, self._parts = self._evaluate(_torch.rows_of(views, 3, self.precision), self.global_views)
        self._dim = views.shape[-1]
        return value  # type: ignore[no-any-return]

    @property
    def parts(self) -> Parts:
        """Of the last call; nothing waits for the GPU until a number is looked at."""
        if self._parts is None:
            raise RuntimeError("SphereJEPALoss.parts are those of the last call, and there has been none")
        total, invariance, discrepancy, gain, threshold = self._parts.unbind()
        margin = torch.where(threshold > 0, gain / threshold, torch.zeros_like(gain))
        return Parts(total, invariance, discrepancy, gain, threshold, margin)

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), "_parts": None}


def _stacked(views: Sequence[torch.Tensor]) -> torch.Tensor:
    views = list(views)
    if not views or not all(isinstance(view, torch.Tensor) for view in views):
        raise TypeError("SphereJEPALoss takes a tensor [V, B, d] or a list of tensors [B, d]")
    for view in views[1:]:
        for what in ("shape", "dtype", "device"):
            if getattr(view, what) != getattr(views[0], what):
                raise ValueError(f"all views must have one {what}, since every sample has a row in every "
                                 f"view: got {getattr(views[0], what)} and {getattr(view, what)}")
    return torch.stack(views)
