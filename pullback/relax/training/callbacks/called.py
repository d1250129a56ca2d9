"""The callbacks of a call of ``fit``, checked, and when each is called."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from pullback.ir.errors import ArgumentError, suggestion
from pullback.relax.training.callbacks.base import HOOKS, Callback, Logs
from pullback.relax.training.callbacks.loggers import Logger
from pullback.relax.training.history import EpochRecord, History

_ELSEWHERE = {
    "on_train_batch_end": "on_batch_end", "on_batch_begin": "on_epoch_begin", "on_train_batch_begin": "on_epoch_begin",
    "on_epoch_start": "on_epoch_begin", "on_train_epoch_start": "on_epoch_begin", "on_train_epoch_end": "on_epoch_end",
    "on_validation_end": "on_epoch_end", "on_validation_epoch_end": "on_epoch_end", "on_test_end": "on_epoch_end",
    "on_fit_start": "on_train_begin", "on_fit_end": "on_train_end", "on_train_start": "on_train_begin",
    "on_step_end": "on_batch_end", "on_log": "on_epoch_end", "on_evaluate": "on_epoch_end", "on_save": "on_epoch_end",
    "on_step": "on_steps",
}  # fmt: skip


class Callbacks:
    """The callbacks of a call of ``fit``, checked."""

    def __init__(self, given: Any, loggers: Any, trainer: Any, history: History, is_first: bool = True) -> None:
        everywhere = [*_listed(given), *(Logger(one) for one in _loggers(loggers))]
        for callback in everywhere:
            _check_hooks(callback)
        self._everywhere = everywhere
        self._all = [callback for callback in everywhere if is_first or callback.on_every_rank]
        self._at_batches = [c for c in self._all if _overrides(c, "on_batch_end")]
        self._at_steps = [c for c in self._all if c.every_n_steps is not None]
        self._trainer = trainer
        self._step = -1  # at which they were called last
        self.decide_within = any(
            callback.on_every_rank and (_overrides(callback, "on_batch_end") or _overrides(callback, "on_epoch_begin"))
            for callback in everywhere
        )
        for callback in everywhere:
            callback.trainer, callback.history = trainer, history

    def check(self, known: Iterable[str], modes: dict[str, str]) -> None:
        names = list(dict.fromkeys([*known, *(name for c in self._everywhere for name in c.adds)]))
        for callback in self._everywhere:
            callback.check(names, modes)

    @property
    def names(self) -> list[str]:
        """The kinds of those that all ranks call."""
        return [type(callback).__name__ for callback in self._everywhere if callback.on_every_rank]

    @property
    def watch_batches(self) -> bool:
        """Whether any wants to be called within epochs."""
        return bool(self._at_batches)

    def train_begin(self) -> None:
        self._step = self._trainer.steps
        for callback in self._all:
            callback.on_train_begin({})

    def train_end(self, logs: Logs) -> None:
        for callback in self._all:
            callback.on_train_end(logs)

    def epoch_begin(self, epoch: int) -> None:
        for callback in self._all:
            callback.on_epoch_begin(epoch, {})

    def epoch_end(self, record: EpochRecord) -> None:
        for callback in self._all:
            before = set(record.metrics)
            callback.on_epoch_end(record.epoch, record.metrics)
            for name in set(record.metrics) - before:
                record.metrics[name] = _added(callback, name, record.metrics.pop(name))

    def steps_left(self, step: int) -> int | None:
        """How many steps there are until one that somebody wants to be called after; None where nobody does."""
        return min((c.every_n_steps - step % c.every_n_steps for c in self._at_steps if c.every_n_steps), default=None)

    def after_steps(self, step: int, loss: float) -> bool:
        """Some steps were made: call those who want to be called after this one. Returns whether there are any: all
        ranks stop at the same steps for them, so what they decide may be looked at."""
        if step == self._step:
            return False
        self._step = step
        called = [c for c in self._at_steps if c.every_n_steps and step % c.every_n_steps == 0]
        for callback in called:
            callback.on_steps(step, {"loss": loss})
        return any(callback.on_every_rank for callback in called)

    def batch_end(self, step: int, loss: float) -> None:
        for callback in self._at_batches:
            callback.on_batch_end(step, {"loss": loss})


def _listed(given: Any) -> list[Callback]:
    if given is None or isinstance(given, Callback):
        return [given] if given is not None else []
    if isinstance(given, (list, tuple)):
        for one in given:
            if not isinstance(one, Callback):
                raise _no_callback(one)
        return list(given)
    raise _no_callback(given)


def _no_callback(one: Any) -> ArgumentError:
    if isinstance(one, type) and issubclass(one, Callback):
        hint = f"make one: {one.__name__}(…)"
        return ArgumentError(f"a callback is an object, got the class {one.__name__}", hint=hint)
    if callable(one):
        hint = "LambdaCallback(on_epoch_end=f) makes one of a function"
        return ArgumentError("a callback is a Callback, got a function", hint=hint)
    hint = "one's own are subclasses of pullback.callbacks.Callback"
    return ArgumentError(f"callbacks is a list of Callbacks, got {type(one).__name__}", hint=hint)


def _loggers(given: Any) -> list[Any]:
    return [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]


def _overrides(callback: Callback, hook: str) -> bool:
    return hook in vars(callback) or getattr(type(callback), hook) is not getattr(Callback, hook)


def _check_hooks(callback: Callback) -> None:
    """The hooks take what they are called with, and those that it has are some that there are."""
    kind = type(callback).__name__
    for name in dir(callback):
        if name.startswith("on_") and name not in HOOKS and callable(getattr(callback, name)):
            meant = _ELSEWHERE.get(name)
            close = f": did you mean {meant}?" if meant else suggestion(name, HOOKS)
            raise ArgumentError(
                f"{kind}: there is no hook {name}{close}",
                hint=f"the hooks are {', '.join(HOOKS)}; a method that is none is called otherwise than on_…",
            )
    for hook, arguments in HOOKS.items():
        if not _overrides(callback, hook):
            continue
        function = getattr(callback, hook)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # what is built in need not tell
            continue
        try:
            signature.bind(*arguments)
        except TypeError:
            own = f"{kind}.{hook}" if hook not in vars(callback) else hook
            raise ArgumentError(
                f"{own} is called with ({', '.join(arguments)}), and takes {signature}",
                hint=f"write def {hook}(self, {', '.join(arguments)})",
            ) from None


def _added(callback: Callback, name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{type(callback).__name__} put {name!r} = {value!r} into logs, which holds numbers"
        ) from None
