"""The metrics that a call of ``fit`` or ``evaluate`` is asked for: checked, and while batches come."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.ir.words import guided
from pullback.relax.training.interface import Interface
from pullback.relax.training.loss import Loss
from pullback.relax.training.metrics.accumulators import Collected
from pullback.relax.training.metrics.named import LABELLED, named_metric
from pullback.relax.training.metrics.reading import MARGINS, VALUES, Examples, Reading

NEEDS = ("classes", "probabilities", "outputs")


@guided
@dataclass(frozen=True)
class Metric:
    """A metric of one's own: ``function(y_true, y_pred)`` returns a number, of all rows of a data set.

    ``name``: what it is called in histories; by default as the function. ``needs``: what ``y_pred`` is, "classes",
    "probabilities" or "outputs"; by default class indices where the loss has classes, else the outputs (see the
    module). ``mode``: "min" or "max", whether less or more is better, for callbacks that compare epochs.

    >>> metrics=[Metric(sklearn.metrics.log_loss, needs="probabilities", mode="min")]
    """

    function: Callable[[Any, Any], Any]
    name: str = ""
    needs: str = ""
    mode: str = ""

    def __post_init__(self) -> None:
        if not callable(self.function) or isinstance(self.function, (type, Loss, IRModule)):
            raise ArgumentError(
                f"a metric is a function f(y_true, y_pred), got {self.function!r}",
                hint="such as sklearn.metrics.f1_score; it computes with NumPy's arrays",
            )
        try:
            inspect.signature(self.function).bind(None, None)
        except TypeError:
            message = f"a metric is called as f(y_true, y_pred), and {_name_of(self.function)} takes"
            raise ArgumentError(
                f"{message} {inspect.signature(self.function)}", hint="functools.partial gives it what else it needs"
            ) from None
        except ValueError:  # what is built in need not tell
            pass
        for field, value, allowed in (("needs", self.needs, NEEDS), ("mode", self.mode, ("min", "max"))):
            if not isinstance(value, str) or value not in ("", *allowed):
                choices = ", ".join(map(repr, allowed))
                raise ArgumentError(f"{field} of a metric must be one of {choices}, got {value!r}")
        name = _name_of(self.function) if isinstance(self.name, str) and not self.name else self.name
        if not isinstance(name, str) or not name or name == "<lambda>":
            raise ArgumentError(
                "a metric needs a name to appear in the history", hint='write metrics={"my_metric": lambda …: …}'
            )
        object.__setattr__(self, "name", name)


def _name_of(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


@dataclass(frozen=True)
class Metrics:
    """The metrics of a call of ``fit`` or ``evaluate``, checked: each a name, how it starts, and whether "min" or "max"
    is best ("" where nobody said)."""

    reading: Reading
    chosen: tuple[tuple[str, Callable[[], Any], str], ...]
    asked: bool = False  # whether there are any besides those that the loss has by itself

    @staticmethod
    def of(asked: Any, interface: Interface) -> Metrics:
        """Those that are asked for, after the accuracy where the loss has classes. Raises ArgumentError."""
        reading = Reading.of(interface)
        defaults = ["accuracy"] if reading.kind in LABELLED and interface.targets else []
        chosen: dict[str, tuple[str, Callable[[], Any], str]] = {}
        wanted = list(_several(asked))
        for given in [*defaults, *wanted]:
            entry = named_metric(given, reading) if isinstance(given, str) else _own(given, reading)
            if entry[0] in chosen and (given not in defaults or entry[0] != given):
                raise ArgumentError(f"the metric {entry[0]} is given twice", hint='{"another name": f} renames one')
            chosen.setdefault(entry[0], entry)
        if chosen and not interface.targets:
            raise UserError("metrics compare predictions with targets, and this loss has none")
        return Metrics(reading, tuple(chosen.values()), bool(wanted))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _, _ in self.chosen)

    @property
    def modes(self) -> dict[str, str]:
        return {name: mode for name, _, mode in self.chosen}

    def start(self) -> Running:
        return Running(self)


class Running:
    """Metrics while batches come."""

    def __init__(self, metrics: Metrics) -> None:
        self._reading = metrics.reading
        self._running = [(name, start()) for name, start, _ in metrics.chosen]

    def update(self, targets: Sequence[Any], outputs: Any, counts: bool = True) -> None:
        """Take a batch: its targets, and the model's first output; and whether its rows count, or another rank's do."""
        if self._running:
            examples = Examples(self._reading, outputs, targets[0])
            for _, running in self._running:
                if counts:
                    running.update(examples)
                elif isinstance(running, Collected):
                    running.leave_out(examples)

    @property
    def found(self) -> list[Any]:
        """What this rank has found so far: plain values."""
        return [running.found for _, running in self._running]

    def join(self, several: Sequence[list[Any]]) -> None:
        """Take what all ranks have found in the place of what this one has."""
        for (_, running), own in zip(self._running, zip(*several, strict=True), strict=True):
            running.join(own)

    def results(self) -> dict[str, float]:
        """NaN for what nothing was counted of."""
        return {name: running.result() for name, running in self._running}


def _several(asked: Any) -> Iterable[Any]:
    """One metric after the other."""
    if asked is None:
        return []
    if isinstance(asked, Mapping):
        return list(asked.items())
    if isinstance(asked, (str, Metric)) or callable(asked) or _is_named(asked):
        return [asked]
    if isinstance(asked, (list, tuple)):
        return [one for given in asked for one in (given.items() if isinstance(given, Mapping) else [given])]
    raise ArgumentError(
        f"metrics must be a list of names and functions, got {type(asked).__name__}",
        hint='such as metrics=["f1", sklearn.metrics.matthews_corrcoef]',
    )


def _is_named(given: Any) -> bool:
    """Whether it is a pair of a name and a function."""
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str) and not isinstance(given[1], str)


def _own(given: Any, reading: Reading) -> tuple[str, Callable[[], Any], str]:
    name = ""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        name, given = given
    if isinstance(given, str):  # {"score": "f1"}
        _, start, mode = named_metric(given, reading)
        return name, start, mode
    metric = given if isinstance(given, Metric) else Metric(given, name)
    metric = replace(metric, name=name) if name else metric
    needs = metric.needs or ("outputs" if reading.kind == VALUES else "classes")
    if needs != "outputs" and reading.kind == VALUES:
        raise ArgumentError(
            f"the metric {metric.name} needs {needs}, and the loss is for numbers",
            hint='needs="outputs" gives the model\'s own outputs',
        )
    if needs == "probabilities" and reading.scores == MARGINS:
        raise ArgumentError(f"the metric {metric.name} needs probabilities, and this loss takes margins")
    return metric.name, partial(Collected, metric.function, needs, metric.name), metric.mode
