"""Plans that are made once and used again.

A plan must not run in two threads at once, so it is taken out of the pool while it runs. On CUDA its work
goes on after the call, so a plan also belongs to one stream. One that a CUDA graph has captured belongs to
that graph for good: replays write to its memory at any time.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any, Dict, List, NamedTuple, Tuple

from ._library import Made, Objective, Plan


class Key(NamedTuple):
    """What a plan is made for. A shape of two is a plan's, of three an objective's."""

    method: str
    options: str  # as zonal_plan_make takes them
    shape: Tuple[int, ...]  # [B, d] or [V, B, d]
    global_views: int  # of an objective
    dtype: str  # of rows and gradient, in libzonal's words
    device: str  # "cpu", "cuda:0"
    precision: str  # of the arithmetic; "": the default
    threads: int  # 0: the default
    stream: int  # 0 on the CPU


def make(key: Key, communicator: Any = None) -> Made:
    """The only place where plans and objectives are made; with a communicator every rank makes its own."""
    own = {"device": key.device, "precision": key.precision, "threads": key.threads or ""}
    if key.device != "cpu":
        own["dtype"] = key.dtype
    options = ",".join([key.options] * bool(key.options) + [f"{n}={v}" for n, v in own.items() if v])
    made: Made
    if len(key.shape) == 2:
        made = Plan(key.method, options, *key.shape, communicator=communicator)
    else:
        views, batch, dim = key.shape
        made = Objective(key.method, options, views, key.global_views, batch, dim, communicator=communicator)
    # A mistake here would have libzonal read past the end of a tensor.
    if made.text("dtype") != key.dtype:
        raise TypeError(f"{key.method} with {options} takes rows of {made.text('dtype')}, not {key.dtype}")
    return made


class Pool:
    """Idle plans, the least recently used first; at most `limit` of them are kept."""

    def __init__(self, limit: int = 32) -> None:
        self.limit = limit
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A fork's child starts without plans: its copies hold threads and device memory it does not have."""
        self._lock = threading.Lock()
        self._idle: OrderedDict[Key, List[Made]] = OrderedDict()
        self._captured: Dict[Key, Made] = {}
        self._count = 0

    def take(self, key: Key) -> Made:
        with self._lock:
            idle = self._idle.get(key)
            if idle:
                self._count -= 1
                return idle.pop()
        return make(key)

    def give(self, key: Key, made: Made) -> None:
        dropped = []
        with self._lock:
            self._idle.setdefault(key, []).append(made)
            self._idle.move_to_end(key)
            self._count += 1
            while self._count > self.limit:
                dropped += self._drop_oldest()
        del dropped  # destroyed outside the lock: on CUDA that waits for the device

    def _drop_oldest(self) -> List[Made]:
        _, made = self._idle.popitem(last=False)
        self._count -= len(made)
        return made

    def take_for_capture(self, key: Key) -> Made:
        """Under capture no memory can be had: an idle plan of any stream, kept for captures from now on."""
        key = key._replace(stream=0)
        with self._lock:
            if key not in self._captured:
                idle = [k for k, made in self._idle.items() if made and k._replace(stream=0) == key]
                if not idle:
                    raise RuntimeError(
                        "a zonal loss cannot make its plan while a CUDA graph is being captured: call it "
                        "once with this shape and dtype before the capture, as in any warm-up")
                self._captured[key] = self._idle[idle[-1]].pop()
                self._count -= 1
            return self._captured[key]

    def check(self, method: str, options: str) -> None:
        """Raises for a bad row that a plan of these settings has met, of any shape and device. What runs in
        another thread right now is left out."""
        with self._lock:
            keys = [key for key in self._idle if key[:2] == (method, options)]
            taken = [(key, made) for key in keys for made in self._idle.pop(key)]
            self._count -= len(taken)
            captured = [made for key, made in self._captured.items() if key[:2] == (method, options)]
        try:
            for made in captured + [made for _, made in taken]:
                made.status()
        finally:
            for key, made in taken:
                self.give(key, made)

    def clear(self) -> None:
        """Releases all that is idle; what CUDA graphs have captured stays."""
        with self._lock:
            dropped, self._idle, self._count = self._idle, OrderedDict(), 0
        dropped.clear()


pool = Pool()
