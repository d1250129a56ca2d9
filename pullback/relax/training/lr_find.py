"""Finding a learning rate: a short training on a copy of the trainer, in which the rate grows from step to step.

The method is that of Leslie Smith, "Cyclical Learning Rates for Training Neural Networks" (2017), §3.3: while the rate
is too small the loss stays, then it falls, and where the rate is too large it rises. The suggestion is where the
smoothed loss falls most steeply over the logarithm of the rate, as in fastai and Lightning.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.words import guided
from pullback.relax.training.history import figure_of
from pullback.relax.training.optimizer import Optimizer, ParameterGroups, RunTime
from pullback.relax.training.optimizer.value import hyperparameter
from pullback.relax.training.optimizer.wrapper import layers
from pullback.runtime.tables import sparkline

_LR = "lr"
_MEMORY = 0.85  # of the mean of the losses so far
_RISEN = 4.0  # times the least smoothed loss: it is too large from here on
_LARGEST = 1e30  # of learning rates
_FEWEST = 10  # steps before that counts


@guided
@dataclass(frozen=True)
class LRCurve:
    """What ``lr_find`` measured: the loss of the step made with each learning rate.

    ``suggestion``: the rate at which the loss fell most steeply; None where it fell nowhere.
    """

    lrs: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def smoothed(self) -> tuple[float, ...]:
        """The mean around each step, of a fifth of all; the nearest weigh most."""
        radius = max(1, len(self.losses) // 10)
        weights = np.bartlett(2 * radius + 3)[1:-1]
        above, below = (np.convolve(a, weights)[radius:-radius] for a in (self.losses, np.ones(len(self.losses))))
        return tuple((above / below).tolist())

    @property
    def suggestion(self) -> float | None:
        """The rate at which the smoothed loss falls most steeply, over the logarithm of the rate, on its last way from
        where it began down to its least; None where it falls nowhere."""
        smoothed = np.array(self.smoothed)
        last = int(smoothed.argmin()) if len(smoothed) > 2 else 0
        begins = smoothed[: max(1, len(smoothed) // 10)].mean()
        high = np.flatnonzero(smoothed[:last] >= begins - 0.1 * (begins - smoothed[last]))
        if not last or not len(high):
            return None
        first = int(high[-1])
        slopes = np.gradient(smoothed, np.log(self.lrs))[first : last + 1]
        return self.lrs[first + int(slopes.argmin())]

    def plot(self) -> Any:
        """A matplotlib figure: the losses over the learning rate, and the suggestion. Needs matplotlib."""
        figure, (axis,) = figure_of("plot", 1)
        axis.plot(self.lrs, self.losses, alpha=0.4, label="loss")
        axis.plot(self.lrs, self.smoothed, label="smoothed")
        if self.suggestion is not None:
            axis.axvline(self.suggestion, color="gray", linestyle=":", label=f"suggestion {self.suggestion:.2g}")
        axis.set_xscale("log")
        axis.set_xlabel("learning rate")
        axis.set_ylabel("loss")
        low, high = np.quantile(self.losses, [0.02, 0.85])  # not where it explodes
        margin = 0.3 * max(high - low, 1e-6)
        axis.set_ylim(low - margin, high + margin)
        axis.grid(alpha=0.3)
        axis.legend()
        return figure

    @property
    def _summary(self) -> str:
        found = "the loss fell nowhere" if self.suggestion is None else f"suggestion {self.suggestion:.2g}"
        return f"learning rates from {self.lrs[0]:.2g} to {self.lrs[-1]:.2g} in {len(self.lrs)} steps: {found}"

    def __repr__(self) -> str:
        return f"LRCurve({self._summary})"

    def _repr_html_(self) -> str:
        return f"<div>{self._summary}</div>{sparkline(self.smoothed, 320, 80)}"


def lr_curve(trainer: Any, x: Any, y: Any, start: Any, end: Any, steps: Any, batch_size: int | None) -> LRCurve:
    """Train a copy of a trainer, with learning rates from ``start`` to ``end`` in equal ratios."""
    for name, value in (("start", start), ("end", end)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST:
            raise ArgumentError(f"{name} must be a learning rate > 0, got {value!r}", hint="such as 1e-7 and 1.0")
    if start >= end:
        raise ArgumentError(f"start must be less than end, got {start!r} and {end!r}")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < _FEWEST:
        raise ArgumentError(f"steps must be an int ≥ {_FEWEST}, got {steps!r}", hint="100 is the default")
    copied = copy.deepcopy(trainer) if _LR in trainer._interface.record.run_time else _with_run_time_rate(trainer)
    lrs = np.geomspace(start, end, steps).tolist()
    losses: list[float] = []
    mean, least = 0.0, math.inf
    for loss in copied._steps_one_by_one(x, y, batch_size, lambda k: copied.set_hyperparameter(_LR, lrs[k])):
        if not math.isfinite(loss):
            break
        losses.append(loss)
        mean = _MEMORY * mean + (1 - _MEMORY) * loss
        smoothed = mean / (1 - _MEMORY ** len(losses))
        least = min(least, smoothed)
        if len(losses) == steps or (len(losses) > _FEWEST and smoothed > _RISEN * least > 0):
            break
    return LRCurve(tuple(lrs[: len(losses)]), tuple(losses))


def _with_run_time_rate(trainer: Any) -> Any:
    """A trainer of the same model with the same parameters and states, whose learning rate is a run-time value."""
    if trainer._setup is None:
        raise UserError(
            "lr_find cannot make the optimizer anew: this trainer does not hold what it was made from",
            hint="give it a learning rate that can be set: Adam(RunTime(1e-3)), with RunTime of pullback.optim",
        )
    model, setup = trainer._setup
    changed = type(trainer)(model, int(model.attrs["param_num"]), replace(setup, optimizer=_changed(setup.optimizer)))
    target = trainer.vm.executable.target
    changed.build("debug" if target is None else target, trainer.device)
    changed.seed(trainer._seed)
    changed.load_params(trainer.export_params())
    changed.load_states(trainer.export_states())
    return changed


def _changed(optimizer: Optimizer) -> Optimizer:
    """The optimizer with a learning rate that can be set. Groups with a rate of their own keep it."""
    result = copy.deepcopy(optimizer)
    parts = list(layers(result))
    for part in list(parts):
        if isinstance(part, ParameterGroups):
            rates = {name for name, options in part.groups.items() if _LR in options}
            parts += [own for name, own in part._optimizers.items() if name not in rates]
    rated = [part for part in parts if hasattr(part, _LR)]
    if not rated:
        raise UserError(f"the optimizer {optimizer.name} has no learning rate lr", hint="lr_find sets one")
    rated_parts: list[Any] = rated
    for part in rated_parts:
        part.lr = hyperparameter(_LR, RunTime(1e-3, _LR), 0.0)
    return result
