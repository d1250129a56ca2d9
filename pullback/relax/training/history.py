"""What ``fit`` did, epoch by epoch: a history is read by name, by number, as a table and as a picture.

>>> history = trainer.fit(x, y, epochs=10, validation=(x_test, y_test))
>>> history["val_loss"], history[-1].loss, len(history)
>>> history.plot().savefig("training.png")
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from pullback.ir.errors import NameNotFound, UserError, suggestion
from pullback.ir.words import guided
from pullback.relax.training.notebook import Area, cell, in_notebook
from pullback.runtime.tables import Table

VALIDATION = "val_"  # begins the names of what is measured on validation rows
_FIRST, _LAST = 5, 35  # rows of a table that is too long


@guided
@dataclass(frozen=True)
class EpochRecord:
    """One epoch of ``fit``.

    ``metrics`` by name: "loss", the mean loss of its rows, each at the moment it was trained on; "val_loss",
    "val_accuracy" and so on of the validation rows; those of training rows ("accuracy") where ``fit`` got
    ``train_metrics=True``; "lr" where the learning rate is a run-time value; and what callbacks added.
    ``record["loss"]`` reads them.

    Args:
        epoch: its number, from 1.
        metrics: by name.
        seconds: how long it took.
    """

    epoch: int  # counted from 1 over all calls of fit
    metrics: dict[str, float]
    seconds: float

    def __getitem__(self, name: str) -> float:
        if name in self.metrics:
            return self.metrics[name]
        raise _unknown(name, self.metrics)

    def keys(self) -> list[str]:
        """The names of the metrics."""
        return list(self.metrics)

    @property
    def loss(self) -> float:
        """The mean loss of the training rows."""
        return self.metrics["loss"]

    @property
    def validation_loss(self) -> float | None:
        """The mean loss of the validation rows; None where fit got none."""
        return self.metrics.get("val_loss")

    @property
    def validation_accuracy(self) -> float | None:
        """The share of right predictions on the validation rows; None without them, without classes, and where no row
        counts."""
        return counted(self.metrics.get("val_accuracy"))

    @property
    def line(self) -> str:
        """``epoch 3: loss 0.4321, val_loss 0.4512, val_accuracy 0.8412, 1.20 s``."""
        told = ((n, v) for n, v in self.metrics.items() if n.endswith("loss") or not _is_empty(v))
        shown = [f"{name} {_number(value)}" for name, value in told]
        return f"epoch {self.epoch}: {', '.join(shown)}, {self.seconds:.2f} s"


@guided
@dataclass
class History:
    """The epochs of one call of ``fit``, or of all (``trainer.history``).

    ``history["val_loss"]`` is a list with a number for each epoch (NaN for those that did not measure it),
    ``history[-1]`` the last epoch's record, ``history[2:5]`` a list of records.

    Args:
        epochs: the records.
        best_epoch: the number of the epoch that ``EarlyStopping`` found best, or None.
        stopped_epoch: the number of the epoch that it stopped at, or None.
        stopped_because: why, as "val_loss has not become better for 5 epochs".

    Examples:
        >>> history = trainer.fit(x, y, epochs=3, verbose=0)
        >>> len(history["loss"]), history[-1].epoch
        (3, 3)
    """

    epochs: list[EpochRecord] = field(default_factory=list)
    best_epoch: int | None = None
    stopped_epoch: int | None = None
    stopped_because: str = ""
    _shown_in: Any = field(default=None, repr=False, compare=False)  # the notebook's cell that shows it already

    @overload
    def __getitem__(self, key: str) -> list[float]: ...
    @overload
    def __getitem__(self, key: int) -> EpochRecord: ...
    @overload
    def __getitem__(self, key: slice) -> list[EpochRecord]: ...
    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self.epochs[key]
        if key not in self.keys():
            raise _unknown(key, self.keys())
        return [record.metrics.get(key, math.nan) for record in self.epochs]

    def __len__(self) -> int:
        return len(self.epochs)

    def __iter__(self) -> Iterator[EpochRecord]:
        return iter(self.epochs)

    def __contains__(self, item: object) -> bool:
        return item in self.keys() if isinstance(item, str) else item in self.epochs

    def keys(self) -> list[str]:
        """The names of all that was measured."""
        return list(dict.fromkeys(name for record in self.epochs for name in record.metrics))

    @property
    def note(self) -> str:
        """How the training ended, where it was stopped: ``stopped at epoch 12: val_loss has not become …``."""
        because = f": {self.stopped_because}" if self.stopped_because else ""
        return "" if self.stopped_epoch is None else f"stopped at epoch {self.stopped_epoch}{because}"

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row for each epoch, indexed by its number, and a column for each metric and
        "seconds". Needs pandas."""
        try:
            import pandas
        except ImportError:
            raise _missing("to_pandas", "pandas", "pip install pandas") from None
        columns = {name: self[name] for name in self.keys()} | {"seconds": [r.seconds for r in self.epochs]}
        return pandas.DataFrame(columns, index=pandas.Index([r.epoch for r in self.epochs], name="epoch"))

    def plot(self) -> Any:
        """A matplotlib figure: the loss and each metric by epoch, of training and of validation rows. Needs matplotlib.

        ``history.plot().savefig("training.png")`` writes it to a file; in a script, ``matplotlib.pyplot.show()`` shows
        it. A notebook shows the last value of a cell.
        """
        names = list(dict.fromkeys(name.removeprefix(VALIDATION) for name in self.keys()))
        if not names:
            raise UserError("this history has no epoch to plot", hint="it is what trainer.fit(…) returns")
        figure, axes = figure_of("plot", len(names))
        epochs = [record.epoch for record in self.epochs]
        marker = "o" if len(epochs) < 30 else ""
        for axis, name in zip(axes, names, strict=True):
            for key, label in ((name, "training"), (VALIDATION + name, "validation")):
                if key in self:
                    axis.plot(epochs, self[key], label=label, marker=marker, markersize=3)
            axis.set_title(name)
            axis.set_xlabel("epoch")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.grid(alpha=0.3)
            if self.best_epoch in epochs:
                axis.axvline(self.best_epoch, color="gray", linestyle=":", label=f"best epoch {self.best_epoch}")
            axis.legend()
        return figure

    def table(self) -> Table:
        """The epochs as a table; of many, the first and the last."""
        names = self.keys()
        rows = [[str(r.epoch), *(_cell(r.metrics.get(n)) for n in names), f"{r.seconds:.2f}"] for r in self.epochs]
        if len(rows) > _FIRST + _LAST:
            rows = [*rows[:_FIRST], ["…"] * len(rows[0]), *rows[-_LAST:]]
        curves: dict[int, Sequence[float]] = {k: self[name] for k, name in enumerate(names, 1)} if len(self) > 1 else {}
        notes = [f"best epoch {self.best_epoch}"] if self.best_epoch is not None else []
        notes += [self.note] if self.note else []
        heading = ["epoch", *(name.replace(VALIDATION, "validation ").replace("_", " ") for name in names), "seconds"]
        return Table(heading, rows, ", ".join(notes), left=0, curves=curves)

    def __repr__(self) -> str:
        note = [f"  {self.note}"] if self.note else []
        return "\n".join(["History:", *(f"  {record.line}" for record in self.epochs), *note])

    def _repr_html_(self) -> str:
        return self.table().html() if self.epochs else "History without an epoch"

    def _ipython_display_(self) -> None:
        """As the last value of a cell: nothing where the table that fit drew stands in the same cell."""
        if self._shown_in is None or self._shown_in != cell():
            Area().show(self._repr_html_(), repr(self))


@dataclass(frozen=True)
class Evaluation:
    """What ``evaluate`` found on ``count`` rows: the mean loss, and the metrics by name. ``found["f1"]`` reads them.

    Args:
        loss: the mean loss.
        metrics: by name.
        count: rows.
    """

    loss: float
    metrics: dict[str, float]
    count: int

    @property
    def accuracy(self) -> float | None:
        """The share of right predictions; None without classes, and where no row counts."""
        return counted(self.metrics.get("accuracy"))

    def __getitem__(self, name: str) -> float:
        values = {"loss": self.loss, **self.metrics}
        if name not in values:
            raise NameNotFound(f"there is no metric {name!r}; there are: {', '.join(values)}{suggestion(name, values)}")
        return values[name]

    def __repr__(self) -> str:
        values = "".join(f", {name}={value:.6g}" for name, value in self.metrics.items())
        return f"Evaluation(loss={self.loss:.6g}{values}, count={self.count})"


def counted(value: float | None) -> float | None:
    """None for what nothing was counted of."""
    return None if _is_empty(value) else value


def figure_of(method: str, panels: int) -> tuple[Any, list[Any]]:
    """A matplotlib figure with panels in a row of at most three, and their axes. In a notebook it is not kept by
    pyplot, which would show it a second time."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise _missing(method, "matplotlib", 'pip install "pullback[plot]"') from None
    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(4.2 * columns, 3.2 * rows), squeeze=False, layout="constrained"
    )
    if in_notebook():
        pyplot.close(figure)
    flat = list(axes.flat)
    for axis in flat[panels:]:
        axis.set_visible(False)
    return figure, flat[:panels]


def _missing(method: str, package: str, command: str) -> UserError:
    return UserError(f"{method} needs the package {package}, which is missing", hint=f"`{command}`")


def _unknown(name: str, known: Any) -> NameNotFound:
    there = ", ".join(known) or "none, as there is no epoch yet"
    return NameNotFound(f"the history has no {name!r}; it has: {there}{suggestion(name, known)}")


def _is_empty(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _number(value: float) -> str:
    """Four decimals; of small and large numbers, four digits."""
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.4g}"


def _cell(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else _number(value)
