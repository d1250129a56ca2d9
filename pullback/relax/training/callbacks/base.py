"""What a callback is: hooks that are called, and one whose hooks are functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.ir.words import guided
from pullback.relax.training.callbacks.arguments import count

HOOKS = {  # what each is called with
    "on_train_begin": ("logs",),
    "on_train_end": ("logs",),
    "on_epoch_begin": ("epoch", "logs"),
    "on_epoch_end": ("epoch", "logs"),
    "on_batch_end": ("step", "logs"),
    "on_steps": ("step", "logs"),
}
Logs = dict[str, float]


class Callback:
    """Base of the callbacks: override the hooks that are wanted.

    ``self.trainer`` is the trainer; ``self.trainer.stop_training = True`` ends the training: after the epoch, if it is
    set at its end, and in an epoch after the slice of steps that runs (within about a twentieth of a second), or in
    ``on_epoch_begin`` after the first slice; that epoch ends then as any other, with validation and a record of the
    rows that were trained on. ``self.history`` is the history of this call of ``fit``; what it holds of the epoch,
    ``logs`` holds too.

    ``adds``: the names of the metrics that the callback will put into ``logs``, so that others may monitor them.
    ``every_n_steps``: after how many steps of the trainer ``on_steps`` is called; None: never.

    Of a trainer over several ranks (``distributed=``), each rank calls its callbacks, after the same steps and with the
    same ``logs``, and they do the same everywhere: what one does with the trainer, the others do too.
    ``on_every_rank = False``: only the first rank's is called, as is right for what writes and prints.
    """

    trainer: Any = None
    history: Any = None
    adds: tuple[str, ...] = ()
    on_every_rank = True
    every_n_steps: int | None = None

    def __init_subclass__(cls) -> None:
        guided(cls)

    def on_train_begin(self, logs: Logs) -> None:
        """Before the first epoch, when all is compiled; ``logs`` is empty."""

    def on_train_end(self, logs: Logs) -> None:
        """After the last epoch, also when it was the last since somebody stopped the training; not after an exception.
        ``logs`` are the last epoch's."""

    def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
        """Before an epoch; ``epoch`` counts from 1 over all calls of ``fit``, ``logs`` is empty."""

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """After an epoch and its validation."""

    def on_batch_end(self, step: int, logs: Logs) -> None:
        """Twenty times a second, and once at the end of each epoch: not for every batch, since steps run in native
        code. ``step`` is how many steps the trainer has made, ``logs["loss"]`` the loss of the last one."""

    def on_steps(self, step: int, logs: Logs) -> None:
        """After each ``every_n_steps`` steps of the trainer, at just these: ``step`` is a multiple of that. Of several
        ranks all are called at the same step."""

    def check(self, known: Sequence[str], modes: dict[str, str]) -> None:
        """Before anything is compiled: raise an error for what cannot work. ``known`` are the names that logs will
        have, ``modes`` says of metrics whether "min" or "max" is best; ``self.trainer`` is set."""


class LambdaCallback(Callback):
    """Hooks that are functions.

    Args:
        on_train_begin: called with logs.
        on_train_end: called with logs.
        on_epoch_begin: called with the epoch and logs.
        on_epoch_end: called with the epoch and logs, which hold its metrics.
        on_batch_end: called with the step and logs.
        on_steps: called with the step and logs, after each ``every_n_steps`` steps.
        every_n_steps: after how many steps.

    Examples:
        >>> show = callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, sorted(logs)))
        >>> history = trainer.fit(x, y, epochs=1, callbacks=[show], verbose=0)
        1 ['loss']
    """

    def __init__(
        self,
        on_train_begin: Callable[[Logs], Any] | None = None,
        on_train_end: Callable[[Logs], Any] | None = None,
        on_epoch_begin: Callable[[int, Logs], Any] | None = None,
        on_epoch_end: Callable[[int, Logs], Any] | None = None,
        on_batch_end: Callable[[int, Logs], Any] | None = None,
        on_steps: Callable[[int, Logs], Any] | None = None,
        every_n_steps: int | None = None,
    ) -> None:
        if every_n_steps is not None:
            self.every_n_steps = count("every_n_steps", every_n_steps, least=1)
        given = (on_train_begin, on_train_end, on_epoch_begin, on_epoch_end, on_batch_end, on_steps)
        for name, function in zip(HOOKS, given, strict=True):
            if function is not None and not callable(function):
                raise ArgumentError(
                    f"{name} must be a function of ({', '.join(HOOKS[name])}), got {type(function).__name__}"
                )
            if function is not None:
                setattr(self, name, function)
