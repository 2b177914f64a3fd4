"""The collapse monitor of `zonal train` for any training loop in PyTorch.

    monitor = zonal.callbacks.CollapseMonitor(every=100, loss=loss)
    for step, batch in enumerate(loader):
        ...
        monitor(projections)                                       # a plain loop, or
    monitor.attach(model.projector)                                # whatever the projector puts out, or
    trainer = lightning.Trainer(callbacks=[monitor.for_lightning("projections")])

Every N-th batch is looked at: at most 2048 of its rows are copied to the host; mean cosine, effective rank
and the p-value of uniformity are logged; the other steps cost a comparison. A collapse is warned of once.
"""

from __future__ import annotations

import logging
import math
import warnings
from typing import Any, Callable, Dict, Optional, Tuple

from ._arrays import as_rows
from ._library import Objective
from .uniformity import CollapseReport, collapse_report

__all__ = ["CollapseMonitor", "CollapseWarning"]

_ROWS = 2048  # enough for every number that is logged
_logger = logging.getLogger("zonal")

Log = Callable[[Dict[str, float]], None]


class CollapseWarning(UserWarning):
    """Embeddings have collapsed, or the loss says that they will."""


class CollapseMonitor:
    """Looks at every `every`-th batch of embeddings that it is shown, and logs what it finds.

    - ``log``: is called with a dict of numbers: ``step`` (batches shown so far), ``mean_cosine``,
      ``effective_rank``, ``effective_rank_expected``, ``log10_p``, ``collapsed`` (0 or 1), and with a loss
      ``threshold`` and ``margin`` too; without it they go to the logger "zonal" at level INFO;
    - ``loss``: a :class:`zonal.losses.SphereJEPALoss`, whose last call is asked for threshold and margin;
    - ``prefix``: of the names, as in ``"train/"``;
    - ``warn``: False keeps it from warning of anything.

    A batch of less than two rows is passed over, and one with a row that is zero or not finite too, with a
    warning: a monitor does not end a training.

    ``report`` is the last :class:`zonal.uniformity.CollapseReport`.

    >>> import numpy as np
    >>> lines = []
    >>> monitor = CollapseMonitor(every=2, log=lines.append)
    >>> random = np.random.default_rng(0)
    >>> for step in range(4):
    ...     found = monitor(random.standard_normal((64, 16)))
    >>> [line["step"] for line in lines], lines[0]["collapsed"]
    ([0, 2], 0.0)
    """

    def __init__(
        self,
        every: int = 100,
        log: Optional[Log] = None,
        loss: Any = None,
        prefix: str = "",
        warn: bool = True,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        self.every = every
        self.report: Optional[CollapseReport] = None
        self._log = log or _log_line
        self._loss = loss
        self._prefix = prefix
        self._may_warn = {"rows": warn, "collapse": warn, "weight": warn}
        self._shown = 0

    def __call__(self, embeddings: Any) -> Optional[CollapseReport]:
        """Counts the batch [rows, dimensions] (or views [V, B, d]), and reports on it if it is its turn."""
        step, self._shown = self._shown, self._shown + 1
        if step % self.every:
            return None
        return self._look(step, embeddings, self._log)

    def attach(self, module: Any) -> Any:
        """Looks at what a PyTorch module puts out in training mode. ``remove()`` of what is returned ends it.
        A hook breaks the graph of torch.compile in two; call the monitor in the loop instead."""

        def hook(module: Any, _: Any, output: Any) -> None:
            if module.training:
                self(output)

        return module.register_forward_hook(hook)

    def for_lightning(self, key: str = "projections") -> Any:
        """A callback for Lightning's Trainer: it looks at ``key`` of what training_step returns beside its
        loss, at every `every`-th step, and logs by ``log_dict`` of the LightningModule."""
        monitor = self

        class LightningCollapseMonitor(_lightning_callback()):  # type: ignore[misc]
            def on_train_batch_end(
                self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
            ) -> None:
                if trainer.global_step % monitor.every:
                    return
                if not isinstance(outputs, dict) or key not in outputs:
                    raise KeyError(
                        f'training_step must return {{"loss": ..., "{key}": ...}} for the collapse monitor'
                    )
                monitor._look(trainer.global_step, outputs[key], pl_module.log_dict)

        return LightningCollapseMonitor()

    def _look(self, step: int, embeddings: Any, log: Log) -> Optional[CollapseReport]:
        rows, apart = _some_rows(embeddings)
        if len(rows) < 2:
            return None
        rows = as_rows(rows)
        try:
            self.report = collapse_report(rows)
        except ValueError as error:
            of_sample = f" (of those looked at, one in {apart})" if apart > 1 else ""
            self._warn_once("rows", step, f"{error}{of_sample}")
            return None
        values = {
            "step": step,
            "mean_cosine": self.report.mean_cosine,
            "effective_rank": self.report.effective_rank,
            "effective_rank_expected": self.report.effective_rank_expected,
            "log10_p": self.report.log10_p,
            "collapsed": float(self.report.collapsed),
            **_weights(self._loss),
        }
        log({self._prefix + name: value for name, value in values.items()})
        if self.report.collapsed:
            self._warn_once("collapse", step, self.report.verdict)
        elif self._may_warn["weight"]:
            sentence = _weight_warning(self._loss, values.get("margin", 0.0))
            self._warn_once("weight", step, sentence)
        return self.report

    def _warn_once(self, kind: str, step: int, sentence: str) -> None:
        if not sentence or not self._may_warn[kind]:
            return
        self._may_warn[kind] = False
        warnings.warn(f"step {step}: {sentence}", CollapseWarning, stacklevel=4)


def _some_rows(embeddings: Any) -> Tuple[Any, int]:
    """At most _ROWS rows, evenly spaced, so that little is copied, and how far apart they are; views are
    taken together."""
    if getattr(embeddings, "ndim", 2) == 3:
        embeddings = embeddings.reshape(-1, embeddings.shape[-1])
    apart = -(-len(embeddings) // _ROWS)
    return (embeddings[::apart] if apart > 1 else embeddings), apart


def _weights(loss: Any) -> Dict[str, float]:
    """Threshold and margin of the last call; nothing before it, or without such a loss."""
    try:
        parts = loss.parts
    except (AttributeError, RuntimeError):
        return {}
    return {"threshold": float(parts.threshold), "margin": float(parts.margin)}


def _weight_warning(loss: Any, margin: float) -> str:
    """What is wrong with the weight of uniformity; "" if nothing is. The dimension is the loss's own: a
    monitor may watch other embeddings."""
    d = getattr(loss, "_dim", 0)
    if margin <= 0 or not d:  # not known
        return ""
    if margin < 1:
        return (
            f"the loss's gain is {margin:.3g} times the collapse threshold: with strong augmentation "
            f"training will collapse; give SphereJEPALoss selectivity=10 (band kernels {10 * d / 256:.3g}, "
            "sliced losses 20, KL margin=1.15)"
        )
    # The limits are those of zonal train, src/train/collapse.c, where the reasons are.
    method = getattr(loss, "method", "")
    kl = method.startswith("kl-")
    if margin <= (50 if kl else 1000) or not method.endswith("-heat"):
        return ""
    wide = d * Objective(method, loss.options, 2, 2, 4, d).number("parameter")
    if wide <= (5.05 if kl else 8.05):
        return ""
    return (
        f"the loss's gain is {margin:.3g} times the collapse threshold: a heat kernel of t = {wide:.3g}/d is "
        f'nearly flat in {d} dimensions; give SphereJEPALoss t="{4 if kl else 8}/d" or less'
    )


def _log_line(values: Dict[str, float]) -> None:
    _logger.info(", ".join(f"{name} {value:.4g}" for name, value in values.items()))


def _lightning_callback() -> Any:
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return __import__(name, fromlist=["Callback"]).Callback
        except ImportError:
            continue
    raise ImportError("for_lightning needs Lightning: pip install lightning")
