"""Kernels on the sphere: their profiles, spectra and constants; and how noisy sliced losses are."""

from __future__ import annotations

import ctypes
import operator
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from ._library import Plan, declare, is_forked, names, options_text
from ._tables import Part, Printable, Table, number

__all__ = ["KernelProfile", "SlicedVariance", "VarianceReport", "kernel_profile", "variance"]

_make = declare("zonal_kernel_make", [c_char_p, c_char_p, c_int64, POINTER(c_void_p)])
_get = declare("zonal_kernel_get", [c_void_p, c_char_p, POINTER(c_double)])
_eval = declare("zonal_kernel_eval", [c_void_p, c_int, c_int64, c_void_p, c_void_p])
_log_eval = declare("zonal_kernel_log_eval", [c_void_p, c_int64, c_void_p, c_void_p])
_weight = declare("zonal_kernel_weight", [c_void_p, c_int], c_double, fallible=False)
_log_multiplicity = declare("zonal_kernel_log_multiplicity", [c_void_p, c_int], c_double, fallible=False)
_destroy = declare("zonal_kernel_destroy", [c_void_p], fallible=False)
declare("zonal_kernel_constant_name", [c_int], c_char_p, fallible=False)

# ---- profiles ----------------------------------------------------------------------------------------------


class _Kernel:
    def __init__(self, kernel: str, dim: int, options: Dict[str, Any]) -> None:
        self._handle = c_void_p()
        _make(kernel.encode(), options_text(options).encode(), dim, ctypes.byref(self._handle))

    def __del__(self) -> None:
        if self._handle:
            _destroy(self._handle)

    def constants(self) -> Dict[str, float]:
        found, value = {}, c_double()
        for name in names("zonal_kernel_constant_name"):
            _get(self._handle, name.encode(), ctypes.byref(value))
            found[name.replace("-", "_")] = value.value
        return found

    def derivative(self, order: int, cosines: np.ndarray) -> np.ndarray:
        out = np.empty_like(cosines)
        _eval(self._handle, order, len(cosines), cosines.ctypes.data, out.ctypes.data)
        return out

    def log(self, cosines: np.ndarray) -> Optional[np.ndarray]:
        """None where the kernel is not positive everywhere."""
        out = np.empty_like(cosines)
        try:
            _log_eval(self._handle, len(cosines), cosines.ctypes.data, out.ctypes.data)
        except ValueError:
            return None
        return out

    def spectrum(self, degrees: int) -> Tuple[np.ndarray, np.ndarray]:
        return (
            np.array([_weight(self._handle, degree) for degree in range(degrees)]),
            np.array([_log_multiplicity(self._handle, degree) for degree in range(degrees)]),
        )


@dataclass(frozen=True, repr=False, eq=False)
class KernelProfile(Printable):
    """A kernel on the unit sphere of R^d, at ``cosines``."""

    kernel: str
    d: int
    cosines: np.ndarray
    phi: np.ndarray  #: the kernel, 1 at cosine 1
    phi_prime: np.ndarray
    phi_second: np.ndarray
    log_phi: Optional[np.ndarray]  #: None where phi is not positive
    psi_mmd: np.ndarray  #: what the mean over all pairs of is the MMD, 1 at cosine 1
    psi_ksd: np.ndarray  #: the same of the KSD
    spectrum: np.ndarray  #: a_l by degree; they add up to 1
    log_multiplicity: np.ndarray  #: log N_l: how many harmonics a degree has
    constants: Dict[str, float]  #: bias, mmd_norm, ksd_norm, kl_norm, derivative ... (zonal/kernel.h)

    def _parts(self) -> List[Part]:
        some = np.unique(np.linspace(0, len(self.cosines) - 1, min(11, len(self.cosines))).astype(int))
        columns = [self.cosines, self.phi, self.phi_prime, self.psi_mmd, self.psi_ksd]
        profile = [[number(float(column[i]), 6) for column in columns] for i in some]
        share = [[str(degree), number(float(weight), 6)] for degree, weight in enumerate(self.spectrum[:8])]
        return [
            f"the {self.kernel} kernel on the unit sphere of R^{self.d}",
            Table(
                ["constant", "value"], [[name, number(value, 8)] for name, value in self.constants.items()]
            ),
            Table(["cosine", "phi", "phi'", "psi (MMD)", "psi (KSD)"], profile),
            Table(["degree", "a"], share),
        ]


def kernel_profile(
    kernel: str = "heat",
    *,
    d: int = 256,
    cosines: Union[int, Sequence[float], np.ndarray] = 201,
    **options: Any,
) -> KernelProfile:
    """The profile of a kernel family (heat, band, induced, poisson, chordal, spectrum) in ``d`` dimensions.

    ``options`` are the family's, as of the losses: ``t``, ``band``, ``scale``, ``r``, ``spectrum``,
    ``without_multiplicity``; ``cosines`` are the places, or their number between -1 and 1.

    >>> profile = kernel_profile("heat", t="5/d", d=256)
    >>> round(float(profile.phi[0]), 4)                 # at c = -1: the paper's Figure 3
    0.0295
    >>> kernel_profile("band", band=1, d=3, cosines=[0.5]).phi      # (1 + d c)/(1 + d)
    array([0.625])
    """
    made = _Kernel(kernel, d, options)
    if isinstance(cosines, int):
        if cosines < 2:
            raise ValueError(f"a profile needs at least 2 cosines, got {cosines}")
        cosines = np.arange(1 - cosines, cosines, 2) / (
            cosines - 1
        )  # as far from 0 on either side, to the bit
    c = np.ascontiguousarray(cosines, np.float64)
    if c.ndim != 1 or not np.all(np.abs(c) <= 1):
        raise ValueError("cosines must be a list of numbers from -1 to 1")
    constants = made.constants()
    phi, first, second = (made.derivative(order, c) for order in range(3))
    logarithm = made.log(c)
    if logarithm is not None:
        # The sum is right to 1e-13 of phi(1); far down only the logarithm knows.
        phi = np.where(phi < 1e-6, np.exp(logarithm), phi)
    spectrum, multiplicity = made.spectrum(int(constants["degrees"]))
    with np.errstate(invalid="ignore"):  # chordal has no derivative at c = 1
        psi_ksd = ((c**2 - 1) * second + (d - 1) * c * first) / ((d - 1) * constants["derivative"])
    return KernelProfile(
        kernel,
        d,
        c,
        phi,
        first,
        second,
        logarithm,
        (phi - constants["bias"]) / constants["mmd_norm"],
        psi_ksd,
        spectrum,
        multiplicity,
        constants,
    )


# ---- the noise of slices -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlicedVariance:
    """SUSReg over ``slices`` random directions, on uniform batches of ``batch`` rows."""

    batch: int
    slices: int
    total: float  #: variance with batch and directions drawn anew each time
    projection: float  #: variance over the directions alone: the noise added to every training step
    exact: float  #: measured variance of mmd-induced, the limit of many slices
    exact_closed_form: float


@dataclass(frozen=True, repr=False)
class VarianceReport(Printable):
    """What :func:`variance` measures, a row for each batch size and number of slices."""

    d: int
    scale: str
    replicates: int
    rows: Tuple[SlicedVariance, ...]

    def _parts(self) -> List[Part]:
        scatter = 100 * (2 / (self.replicates - 1)) ** 0.5
        head = ["batch", "slices", "total", "x exact", "projection", "x exact", "exact"]
        rows = [
            [
                str(row.batch),
                str(row.slices),
                number(row.total, 3),
                number(row.total / row.exact_closed_form, 3),
                number(row.projection, 3),
                number(row.projection / row.exact_closed_form, 3),
                number(row.exact_closed_form, 3),
            ]
            for row in self.rows
        ]
        return [
            f"Variance of SUSReg and of its exact limit over uniform batches, d = {self.d}, "
            f"s^2 = {self.scale}; {self.replicates} replicates, so each measured variance is uncertain by "
            f"{scatter:.0f} %",
            Table(head, rows),
        ]


def variance(
    *,
    d: int = 256,
    batch: Union[int, Sequence[int]] = 256,
    slices: Union[int, Sequence[int]] = (16, 64, 256, 1024, 4096),
    replicates: int = 200,
    scale: Union[str, float] = "d",
    knots: int = 17,
    seed: int = 0,
    threads: Optional[int] = None,
) -> VarianceReport:
    """How noisy the sliced loss SUSReg is beside its exact limit, on uniform batches (the paper's Figure 1).

    The exact loss has no projection noise at all. ``slices`` must ascend; those of one replicate are nested,
    so that the largest decides the price.

    >>> report = variance(d=8, batch=32, slices=[4, 64], replicates=50)
    >>> report.rows[0].projection > report.rows[1].projection > 0
    True
    """
    batches, slices = _whole_numbers("batch", batch), _whole_numbers("slices", slices)
    if replicates < 2:
        raise ValueError(f"a variance needs at least 2 replicates, got {replicates}")
    if not slices or slices[0] < 1 or any(b <= a for a, b in zip(slices, slices[1:])):
        raise ValueError(f"slices must be positive and ascend, got {slices}")
    threads = threads or int(is_forked())  # in a fork more than one would hang
    rows: List[SlicedVariance] = []
    for index, size in enumerate(batches):
        random = np.random.default_rng([seed, index])  # batch sizes are independent of each other
        rows += _Experiment(d, size, slices, scale, knots, seed, threads).run(replicates, random)
    return VarianceReport(d, str(scale), replicates, tuple(rows))


def _whole_numbers(name: str, given: Any) -> List[int]:
    """One, or a list of them."""
    try:
        return [operator.index(given)]
    except TypeError:
        pass
    try:
        return [operator.index(number) for number in given]
    except TypeError:
        raise TypeError(f"{name} must be a whole number or a list of them, got {given!r}") from None


class _Experiment:
    """The plans for one batch size: the exact loss, and SUSReg over the directions that each count has
    beyond the one before."""

    def __init__(
        self,
        d: int,
        batch: int,
        slices: Sequence[int],
        scale: Union[str, float],
        knots: int,
        seed: int,
        threads: Optional[int],
    ) -> None:
        self._d, self._batch, self._slices = d, batch, slices
        self._added = np.diff(slices, prepend=0)
        common = {"scale": scale, "threads": threads, "precision": "fp32"}
        self._exact = Plan("mmd-induced", options_text(common), batch, d)
        sliced = {**common, "knots": knots, "seed": seed}
        self._sliced = [
            Plan("susreg", options_text({**sliced, "slices": int(count)}), batch, d) for count in self._added
        ]
        self._closed_form = _closed_form(d, batch, scale)

    def run(self, replicates: int, random: np.random.Generator) -> List[SlicedVariance]:
        kept = self._draw(random)
        exact, total, projection = [], [], []
        for draw in range(replicates):
            fresh = self._draw(random)
            exact.append(_value(self._exact, fresh))
            total.append(self._measure(fresh, draw))
            projection.append(
                self._measure(kept, draw)
            )  # the same directions: each variance is right by itself
        return [
            SlicedVariance(
                self._batch,
                int(count),
                float(np.var(totals, ddof=1)),
                float(np.var(projections, ddof=1)),
                float(np.var(exact, ddof=1)),
                self._closed_form,
            )
            for count, totals, projections in zip(self._slices, zip(*total), zip(*projection))
        ]

    def _draw(self, random: np.random.Generator) -> np.ndarray:
        return random.standard_normal((self._batch, self._d)).astype(
            np.float32
        )  # the loss normalises the rows

    def _measure(self, x: np.ndarray, draw: int) -> List[float]:
        """SUSReg for each number of slices: means over 1 to k of them."""
        values = []
        for k, plan in enumerate(self._sliced):
            plan.set_step(draw * len(self._sliced) + k)
            values.append(_value(plan, x))
        means: List[float] = (np.cumsum(values * self._added) / self._slices).tolist()
        return means


def _value(plan: Plan, x: np.ndarray) -> float:
    out = c_double()
    plan.execute(x.ctypes.data, ctypes.addressof(out), None)
    return out.value


def _closed_form(d: int, batch: int, scale: Union[str, float]) -> float:
    """2 (B-1)/B^3 sum over l >= 1 of b_l^2/N_l: harmonics of different degree or pair are uncorrelated."""
    profile = kernel_profile("induced", scale=scale, d=d, cosines=2)
    shares = profile.spectrum[1:] / profile.constants["mmd_norm"]
    return float(2 * (batch - 1) / batch**3 * np.sum(shares**2 * np.exp(-profile.log_multiplicity[1:])))
