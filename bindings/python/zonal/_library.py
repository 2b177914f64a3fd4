"""libzonal by ctypes: where it lies, its functions, its failures as exceptions.

No struct of options is known here. Plans and objectives are made from texts (zonal_plan_make), and asked
by name (zonal_plan_get), so a library that knows more options needs no change.
"""

from __future__ import annotations

import ctypes
import operator
import os
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_int64, c_uint32, c_void_p
from pathlib import Path
from typing import Any, Iterator, List, Mapping, Optional, Tuple, Type

from ._version import __version__


class ZonalError(RuntimeError):
    """A failure that is not the caller's: of a device, or of something that this build cannot do."""


class _LastError(ctypes.Structure):
    """zonal_error of zonal/status.h."""

    _fields_ = [("status", c_int), ("file", c_char_p), ("line", c_int), ("message", c_char * 768)]


# By zonal_status; all others are a ZonalError.
_EXCEPTIONS: Mapping[int, Type[Exception]] = {
    10: ValueError,  # ARGUMENT
    11: ValueError,  # SHAPE
    12: TypeError,  # DTYPE
    20: MemoryError,  # MEMORY
    30: OSError,  # IO
    31: ValueError,  # FORMAT
    50: ValueError,  # NUMERIC
}

# Functions that return a zonal_status, and so raise; then those that return something else.
_FALLIBLE: Mapping[str, List[Any]] = {
    "zonal_plan_make_with": [c_void_p, c_char_p, c_char_p, c_int64, c_int64, POINTER(c_void_p)],
    "zonal_plan_execute": [c_void_p, c_void_p, c_void_p, c_void_p],
    "zonal_plan_status": [c_void_p],
    "zonal_plan_get": [c_void_p, c_char_p, POINTER(c_double)],
    "zonal_plan_get_text": [c_void_p, c_char_p, POINTER(c_char_p)],
    "zonal_objective_make_with": [c_void_p, c_char_p, c_char_p, c_int64, c_int64, c_int64, c_int64,
                                  POINTER(c_void_p)],
    "zonal_objective_execute": [c_void_p, c_void_p, c_void_p, c_void_p],
    "zonal_objective_status": [c_void_p],
    "zonal_objective_get": [c_void_p, c_char_p, POINTER(c_double)],
    "zonal_objective_get_text": [c_void_p, c_char_p, POINTER(c_char_p)],
}
_OTHERS: Mapping[str, Tuple[Any, List[Any]]] = {
    "zonal_version": (c_char_p, []),
    "zonal_last_error": (POINTER(_LastError), []),
    "zonal_method_name": (c_char_p, [c_int]),
    "zonal_loss_option_name": (c_char_p, [c_int]),
    "zonal_loss_option_help": (c_char_p, [c_int]),
    "zonal_objective_option_name": (c_char_p, [c_int]),
    "zonal_objective_option_help": (c_char_p, [c_int]),
    "zonal_plan_info_name": (c_char_p, [c_int]),
    "zonal_objective_info_name": (c_char_p, [c_int]),
    "zonal_device_missing": (c_char_p, [c_char_p]),
    "zonal_plan_destroy": (None, [c_void_p]),
    "zonal_plan_set_stream": (None, [c_void_p, c_void_p]),
    "zonal_plan_set_step": (None, [c_void_p, c_uint32]),
    "zonal_plan_set_device_step": (None, [c_void_p, c_void_p]),
    "zonal_objective_destroy": (None, [c_void_p]),
    "zonal_objective_set_stream": (None, [c_void_p, c_void_p]),
    "zonal_objective_set_step": (None, [c_void_p, c_uint32]),
    "zonal_objective_set_device_step": (None, [c_void_p, c_void_p]),
}


# ---- loading -------------------------------------------------------------------------------------


def path() -> str:
    """ZONAL_LIBRARY, or the library that lies in this package."""
    return os.environ.get("ZONAL_LIBRARY") or str(Path(__file__).with_name("libzonal.so"))


_REMEDY = "install zonal anew (pip install .), or set ZONAL_LIBRARY to the path of a libzonal.so"


def _open(file: str) -> ctypes.CDLL:
    if not os.path.exists(file):
        raise ImportError(f"there is no libzonal at {file}: {_REMEDY}")
    try:
        library = ctypes.CDLL(file)
    except OSError as error:
        raise ImportError(f"libzonal could not be loaded ({error}): {_REMEDY}") from None
    _check_version(library, file)
    return library


def _check_version(library: ctypes.CDLL, file: str) -> None:
    """Before 1.0 every version may change the interface, so it must be the very same one."""
    try:
        library.zonal_version.restype = c_char_p
        version = library.zonal_version().decode()
    except AttributeError:
        raise ImportError(f"{file} is not libzonal: {_REMEDY}") from None
    if version != __version__:
        raise ImportError(f"{file} is libzonal {version}, but this package is zonal {__version__}: {_REMEDY}")


def declare(name: str, arguments: List[Any], result: Any = None, fallible: bool = True) -> Any:
    """The library's function of that name. A fallible one returns a zonal_status, which is raised."""
    try:
        function = getattr(lib, name)
    except AttributeError:
        raise ImportError(f"{path()} has no {name}, as it was built from other sources: {_REMEDY}") from None
    function.argtypes = arguments
    function.restype = c_int if fallible else result
    if fallible:
        function.errcheck = _raise_status
    return function


# ---- failures ------------------------------------------------------------------------------------


def _raise_status(status: int, function: Any, arguments: Any) -> int:
    """The errcheck of every fallible function: it is called by the thread that failed."""
    if status != 0:
        error = lib.zonal_last_error().contents
        message = error.message.decode(errors="replace") if error.status == status else f"status {status}"
        raise _EXCEPTIONS.get(status, ZonalError)(message)
    return status


# ---- texts and names -----------------------------------------------------------------------------


def names(function: str) -> List[str]:
    """What a function such as zonal_method_name lists, from 0 to its last."""
    return [name.decode() for name in _until_null(getattr(lib, function))]


def text_of(function: str, i: int) -> str:
    """What a function such as zonal_loss_option_help says of the i-th name."""
    return (getattr(lib, function)(i) or b"").decode()


def _until_null(function: Any) -> Iterator[bytes]:
    i = 0
    while True:
        name = function(i)
        if name is None:
            return
        yield name
        i += 1


def option_text(name: str, value: Any) -> str:
    """One option as libzonal reads it.

    >>> option_text("times_n", True), option_text("range", (-5, 5)), option_text("t", "5/d")
    ('times-n=yes', 'range=-5,5', 't=5/d')
    """
    if hasattr(value, "tolist"):  # of numpy or PyTorch: a number, or a list of them
        value = value.tolist()
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, (list, tuple)):
        text = ",".join(_number_text(name, part) for part in value)
    elif isinstance(value, str):
        text = value
    else:
        text = _number_text(name, value)
    if "=" in text or "\0" in text or not text.strip():
        raise ValueError(f"{name} must be a value such as 0.5 or 5/d, got {value!r}")
    return f"{name.replace('_', '-')}={text}"


def _number_text(name: str, value: Any) -> str:
    try:
        return str(operator.index(value))
    except TypeError:
        pass
    try:
        return repr(float(value))
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number or a text, got {type(value).__name__}") from None


def options_text(options: Mapping[str, Any]) -> str:
    """Options for zonal_plan_make; what is None is left at its default.

    >>> options_text({"t": "5/d", "estimator": None, "threads": 2})
    't=5/d,threads=2'
    """
    given = {name: value for name, value in options.items() if value is not None}
    return ",".join(option_text(name, value) for name, value in given.items())


# ---- plans and objectives ------------------------------------------------------------------------

# GNU's OpenMP hangs in a forked child whose parent ran parallel code; with one thread it does not.
_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)


def is_forked() -> bool:
    """Whether this process is a fork of one that had the library loaded: then use one thread."""
    return _forked


class Made:
    """A plan or an objective: what libzonal makes from texts (options_text). Not for two threads at once.

    Addresses are integers, as of tensor.data_ptr(): host memory, or that of the device it was made for.
    """

    _kind: str

    def __init__(self, method: str, options: str, *shape: int, communicator: Any = None) -> None:
        self._handle = c_void_p()
        self._process = os.getpid()
        self._bind()
        self._communicator = communicator  # it must outlive the plan
        ranks = communicator.address() if communicator else None
        make = getattr(lib, f"zonal_{self._kind}_make_with")
        make(ranks, method.encode(), options.encode(), *shape, ctypes.byref(self._handle))

    def _bind(self) -> None:
        """The functions of the hot path, looked up once."""
        self._execute = getattr(lib, f"zonal_{self._kind}_execute")
        self._set_stream = getattr(lib, f"zonal_{self._kind}_set_stream")
        self._set_step = getattr(lib, f"zonal_{self._kind}_set_step")
        self._set_device_step = getattr(lib, f"zonal_{self._kind}_set_device_step")
        self._destroy = getattr(lib, f"zonal_{self._kind}_destroy")

    def execute(self, x: int, out: int, gradient: Optional[int]) -> None:
        self._execute(self._handle, x, out, gradient)

    def set_stream(self, stream: int) -> None:
        self._set_stream(self._handle, stream)

    def set_step(self, step: int) -> None:
        self._set_step(self._handle, step % 2**32)

    def set_device_step(self, address: int) -> None:
        """The step is read from there, four bytes of the device's memory, whenever the loss is computed."""
        self._set_device_step(self._handle, address)

    def status(self) -> None:
        """Waits for the stream, and raises for the first bad row since the last call."""
        getattr(lib, f"zonal_{self._kind}_status")(self._handle)

    def number(self, name: str) -> float:
        number = c_double()
        getattr(lib, f"zonal_{self._kind}_get")(self._handle, name.encode(), ctypes.byref(number))
        return number.value

    def text(self, name: str) -> str:
        text = c_char_p()
        getattr(lib, f"zonal_{self._kind}_get_text")(self._handle, name.encode(), ctypes.byref(text))
        return (text.value or b"").decode()

    def __del__(self) -> None:
        # A fork's copy of device memory is not its own to release.
        handle = getattr(self, "_handle", None)
        if handle and self._process == os.getpid():
            self._destroy(handle)


class Plan(Made):
    """zonal_plan: Plan(method, options, batch, dim). execute() writes one double."""

    _kind = "plan"


class Objective(Made):
    """zonal_objective: Objective(method, options, views, global_views, batch, dim).

    execute() writes five doubles: total, invariance, discrepancy, gain, threshold.
    """

    _kind = "objective"


lib = _open(path())
for _name, _arguments in _FALLIBLE.items():
    declare(_name, _arguments)
for _name, (_result, _arguments) in _OTHERS.items():
    declare(_name, _arguments, _result, fallible=False)
