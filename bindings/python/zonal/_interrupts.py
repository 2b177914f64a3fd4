"""Ctrl-C while C code calls back into Python.

An exception cannot leave a callback from C: it would be printed and forgotten, and the C code would go on as
if nothing had happened. So the signal's handler is put off until the C code has returned.
"""

from __future__ import annotations

import signal
import threading
from typing import Any, Optional, Tuple


class DeferredInterrupt:
    """``with DeferredInterrupt() as interrupt:`` puts SIGINT's handler off; ``interrupt.seen`` tells a
    callback that it is waiting. At the end it is called. Threads other than the main one get no signals."""

    def __init__(self) -> None:
        self._signal: Optional[Tuple[int, Any]] = None
        self._before: Any = None

    @property
    def seen(self) -> bool:
        return self._signal is not None

    def _note(self, number: int, frame: Any) -> None:
        self._signal = (number, frame)

    def __enter__(self) -> "DeferredInterrupt":
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGINT, self._before)
        if self._signal is not None:
            self._before(*self._signal)
