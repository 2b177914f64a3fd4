"""Are these embeddings uniform on the sphere? Have they collapsed?"""

from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy as np

from ._arrays import as_rows
from ._interrupts import DeferredInterrupt
from ._library import ZonalError, declare, is_forked, options_text
from ._tables import Part, Printable, Table, number, p_value

__all__ = [
    "CollapseReport",
    "Degree",
    "UniformityReport",
    "UniformityTest",
    "collapse_report",
    "test_uniformity",
]

_PROGRESS = ctypes.CFUNCTYPE(c_int, c_void_p, c_double)
_make = declare(
    "zonal_uniformity_make", [c_char_p, c_int64, c_int64, c_void_p, _PROGRESS, c_void_p, POINTER(c_void_p)]
)
_get = declare("zonal_uniformity_get", [c_void_p, c_char_p, POINTER(c_double)])
_get_text = declare("zonal_uniformity_get_text", [c_void_p, c_char_p, POINTER(c_char_p)])
_name = declare("zonal_uniformity_name", [c_void_p, c_int], c_char_p, fallible=False)
_destroy = declare("zonal_uniformity_destroy", [c_void_p], fallible=False)

# ---- what is found -----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class UniformityTest(Printable):
    """One test. ``statistic`` is T = n D - 1: 0 on average for uniform points, larger where they cluster."""

    name: str
    statistic: float
    sd: float  #: of T for as many uniform points
    p: float  #: the upper tail: by Monte Carlo where that was asked for, else from the limit distribution
    p_lower: float  #: the lower tail: points that repel each other
    p_asymptotic: float
    p_asymptotic_lower: float
    log10_p: float  #: of p_asymptotic, also where that underflows
    p_monte_carlo: float
    p_monte_carlo_lower: float
    note: str

    def _parts(self) -> List[Part]:
        return [_test_table([self])]


@dataclass(frozen=True)
class Degree:
    """The statistic of one degree alone, and its standard deviation for uniform points."""

    degree: int
    excess: float
    sd: float


@dataclass(frozen=True, repr=False)
class UniformityReport(Printable):
    """What :func:`test_uniformity` finds. ``report["bingham"]`` is the test of that name."""

    n: int
    d: int
    verdict: str
    collapse: str  #: "none", "point" or "directions"
    mean_cosine: float  #: between different points: 0 for uniform ones, 1 at collapse
    effective_rank: float
    effective_rank_expected: float  #: for as many uniform points
    mean_resultant: float
    mean_resultant_expected: float
    directions: float  #: the participation ratio
    directions_expected: float
    nearest_angle: float  #: mean angle to the nearest neighbour, degrees; NaN where pairs were skipped
    nearest_angle_expected: float
    monte_carlo: int
    skipped: str
    tests: Tuple[UniformityTest, ...]
    degrees: Tuple[Degree, ...]

    def __getitem__(self, name: str) -> UniformityTest:
        for test in self.tests:
            if test.name == name:
                return test
        raise KeyError(f"no test is called {name!r}; there are {', '.join(test.name for test in self.tests)}")

    def _parts(self) -> List[Part]:
        parts: List[Part] = [f"{self.n} points on the unit sphere of R^{self.d}", _test_table(self.tests)]
        parts += [f"* {test.name}: {test.note}" for test in self.tests if test.note]
        parts.append(
            Table(
                ["degree", *(str(degree.degree) for degree in self.degrees)],
                [["excess/sd", *(number(degree.excess / degree.sd, 3) for degree in self.degrees)]],
            )
        )
        parts.append(self._diagnostics())
        if self.skipped:
            parts.append(f"Skipped: {self.skipped}")
        return [*parts, self.verdict]

    def _diagnostics(self) -> Table:
        rows = [
            ["mean resultant length", number(self.mean_resultant), number(self.mean_resultant_expected)],
            ["mean cosine", number(self.mean_cosine), "0"],
            ["effective rank (RankMe)", number(self.effective_rank), number(self.effective_rank_expected)],
            ["participation ratio", number(self.directions), number(self.directions_expected)],
        ]
        if not math.isnan(self.nearest_angle):
            rows.append(
                ["nearest neighbour, deg", number(self.nearest_angle), number(self.nearest_angle_expected)]
            )
        return Table(["", "here", "uniform points"], rows)


@dataclass(frozen=True, repr=False)
class CollapseReport(Printable):
    """What :func:`collapse_report` finds: the monitor of ``zonal train``, for one set of embeddings."""

    n: int
    d: int
    verdict: str
    collapse: str  #: "none", "point" or "directions"
    mean_cosine: float
    effective_rank: float
    effective_rank_expected: float
    log10_p: float  #: of the p-value of uniformity by Rayleigh's and Bingham's tests together

    @property
    def collapsed(self) -> bool:
        return self.collapse != "none"

    def _parts(self) -> List[Part]:
        rows = [
            ["mean cosine", number(self.mean_cosine), "0"],
            ["effective rank (RankMe)", number(self.effective_rank), number(self.effective_rank_expected)],
            ["p of uniformity", p_value(self.log10_p), ""],
        ]
        head = f"{self.n} points on the unit sphere of R^{self.d}"
        return [head, Table(["", "here", "uniform points"], rows), self.verdict]


def _test_table(tests: Any) -> Table:
    simulated = any(not math.isnan(test.p_monte_carlo) for test in tests)
    rows = [
        [
            test.name + (" *" if test.note else ""),
            number(test.statistic, 6),
            number(test.sd, 2),
            p_value(test.log10_p),
            *([number(test.p_monte_carlo, 2)] if simulated else []),
        ]
        for test in tests
    ]
    return Table(["test", "statistic", "sd", "p", *(["p (mc)"] if simulated else [])], rows)


# ---- the tests ---------------------------------------------------------------------------------------------


def test_uniformity(
    x: Any,
    *,
    monte_carlo: int = 0,
    seed: int = 0,
    t: Union[None, str, float] = None,
    pair_limit: Optional[int] = None,
    level: Optional[float] = None,
    unit: bool = False,
    threads: Optional[int] = None,
    progress: Optional[Callable[[float], None]] = None,
) -> UniformityReport:
    """Tests whether the rows of ``x`` are uniform on the unit sphere, as ``zonal test`` does.

    ``x`` is [rows, dimensions]: numpy, torch, or anything with ``__array__`` or ``__dlpack__``. Rows are
    scaled to unit length unless ``unit``. The computation is on the CPU; a tensor of a GPU is copied.

    - ``monte_carlo``: also p-values from so many simulated uniform batches, by ``seed``; Ctrl-C stops it, and
      ``progress`` is called with the share done;
    - ``t``: also test with the heat kernel at this t: a number or a text such as ``"5/d"``;
    - ``pair_limit``: beyond so many rows (20,000) only the tests that are linear in them;
    - ``level``: of the verdict (0.01), shared among the tests.

    >>> import numpy as np
    >>> report = test_uniformity(np.random.default_rng(0).standard_normal((500, 32)))
    >>> report.collapse, report["bingham"].p > 0.001
    ('none', True)
    >>> test_uniformity(np.ones((9, 4)) + 1e-3 * np.eye(9, 4)).verdict
    'Collapsed to a point: all 9 points are the same direction to 6 digits.'
    """
    found = _run(
        as_rows(x),
        progress,
        mc=monte_carlo,
        seed=seed,
        t=t,
        pair_limit=pair_limit,
        level=level,
        unit=unit,
        threads=threads,
    )
    return _make_report(found)


test_uniformity.__test__ = False  # type: ignore[attr-defined]  # it is no test of this package


def collapse_report(x: Any, *, unit: bool = False, threads: Optional[int] = None) -> CollapseReport:
    """Has ``x`` [rows, dimensions] collapsed? Linear in the rows: cheap enough for every few steps.

    Points have collapsed when the mean cosine between them is above 0.95, or their effective rank is below a
    tenth of that of as many uniform points.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((200, 16))
    >>> collapse_report(x).collapsed, collapse_report(np.abs(x[:, :1]) + 1e-3 * x).collapse
    (False, 'point')
    """
    found = _run(as_rows(x), None, pair_limit=2, unit=unit, threads=threads)
    logs = [found[name + ".log10-p"] for name in ("rayleigh", "bingham")]
    together = min(0.0, min(logs) + math.log10(len(logs)))  # Bonferroni
    return CollapseReport(
        int(found["n"]),
        int(found["d"]),
        found["verdict"],
        found["collapse"],
        found["mean-cosine"],
        found["effective-rank"],
        found["effective-rank-expected"],
        together,
    )


def _run(x: np.ndarray, progress: Optional[Callable[[float], None]], **options: Any) -> Dict[str, Any]:
    """All that libzonal's report knows, by its names."""
    options["precision"] = "double" if x.dtype == np.float64 else "fp32"
    options["threads"] = options.get("threads") or int(is_forked())  # in a fork more than one would hang
    handle = c_void_p()
    text = options_text(options).encode()
    with DeferredInterrupt() as interrupt:
        watch = _Progress(progress, interrupt)
        try:
            _make(text, x.shape[0], x.shape[1], x.ctypes.data, watch.callback, None, ctypes.byref(handle))
        except ZonalError:
            if watch.error is None:
                raise
            raise watch.error from None
    try:
        return _read_all(handle)
    finally:
        _destroy(handle)


def _read_all(handle: c_void_p) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    value, text = c_double(), c_char_p()
    while True:
        name = _name(handle, len(found))
        if name is None:
            return found
        if name in (b"verdict", b"skipped", b"collapse") or name.endswith(b".note"):
            _get_text(handle, name, ctypes.byref(text))
            found[name.decode()] = (text.value or b"").decode()
        else:
            _get(handle, name, ctypes.byref(value))
            found[name.decode()] = value.value


def _make_report(found: Dict[str, Any]) -> UniformityReport:
    members: Dict[str, Dict[str, Any]] = {"": {}}
    for name, value in found.items():
        of, _, member = name.rpartition(".")
        members.setdefault(of, {})[member.replace("-", "_")] = value
    own = members.pop("")
    degrees = [
        Degree(degree, **members.pop(f"degree-{degree}")) for degree in range(1, int(own.pop("degrees")) + 1)
    ]
    own.pop("tests")
    for count in ("n", "d", "monte_carlo"):
        own[count] = int(own[count])
    return UniformityReport(
        **own,
        tests=tuple(UniformityTest(name, **test) for name, test in members.items()),
        degrees=tuple(degrees),
    )


# ---- stopping ----------------------------------------------------------------------------------------------


class _Progress:
    """The caller's progress function and Ctrl-C, for libzonal to ask between two simulated batches."""

    def __init__(self, function: Optional[Callable[[float], None]], interrupt: DeferredInterrupt) -> None:
        self._function = function
        self._interrupt = interrupt
        self.error: Optional[BaseException] = None
        self.callback = _PROGRESS(self._call)

    def _call(self, _: Any, share: float) -> int:
        try:
            if self._function is not None:
                self._function(share)
        except BaseException as error:  # it is raised again where it can be caught
            self.error = error
        return int(self._interrupt.seen or self.error is not None)
