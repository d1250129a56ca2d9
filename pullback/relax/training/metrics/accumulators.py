"""What metrics keep while batches come.

Each has ``found``, plain values of the batches that came, and ``join(several)``, which puts those of all ranks, in
their order, in the place of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.relax.training.metrics.reading import BINARY, Examples, alike


class Mean:
    """The mean of terms, in float64, and what ``final`` makes of it."""

    def __init__(self, terms: Callable[[Examples], np.ndarray], final: Callable[[float], float] = float) -> None:
        self._terms, self._final = terms, final
        self._sum, self._count = 0.0, 0

    def update(self, examples: Examples) -> None:
        terms = self._terms(examples)
        self._sum += float(terms.sum(dtype=np.float64) if terms.dtype.kind == "f" else terms.sum())
        self._count += terms.size

    @property
    def found(self) -> tuple[float, int]:
        return self._sum, self._count

    def join(self, several: Sequence[tuple[float, int]]) -> None:
        self._sum, self._count = sum(total for total, _ in several), sum(count for _, count in several)

    def result(self) -> float:
        return self._final(self._sum / self._count) if self._count else math.nan


class Counts:
    """By class, how many were right, how many were predicted to be of it, and how many are. Of binary predictions, by
    label: what is predicted or is 1."""

    def __init__(self, final: Callable[[Counts], float]) -> None:
        self._final = final
        self.right = self.predicted = self.actual = np.zeros(0, np.int64)
        self.rows = 0
        self.is_binary = False

    def update(self, examples: Examples) -> None:
        classes, labels = examples.classes, examples.labels
        if examples.reading.kind == BINARY:
            self.is_binary = True
            classes, labels = (a.reshape(len(a), -1) for a in (classes, labels))
            found: tuple[np.ndarray, ...] = ((classes & labels).sum(0), classes.sum(0), labels.sum(0))
            self.rows += len(labels)
        else:
            count = examples.outputs.shape[-1]
            found = tuple(np.bincount(a, minlength=count) for a in (labels[classes == labels], classes, labels))
            self.is_binary = count == 2
            self.rows += labels.size
        self._add(found)

    def _add(self, counts: Sequence[np.ndarray]) -> None:
        if not self.right.size:
            self.right, self.predicted, self.actual = counts
        elif counts[0].size:
            self.right, self.predicted, self.actual = (
                a + b for a, b in zip((self.right, self.predicted, self.actual), counts, strict=True)
            )

    @property
    def found(self) -> tuple[Any, ...]:
        return self.rows, self.is_binary, (self.right, self.predicted, self.actual)

    def join(self, several: Sequence[tuple[Any, ...]]) -> None:
        self.rows, self.is_binary = sum(rows for rows, _, _ in several), any(is_binary for _, is_binary, _ in several)
        self.right = self.predicted = self.actual = np.zeros(0, np.int64)
        for _, _, counts in several:
            self._add(counts)

    def result(self) -> float:
        return self._final(self) if self.rows else math.nan


class Moments:
    """Of each column, squared errors and the spread of the targets, for R²; batches are joined as Chan, Golub and
    LeVeque do (1979), so nothing cancels."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._rows = 0
        self._errors = self._mean = self._spread = np.zeros(())

    def update(self, examples: Examples) -> None:
        found, wanted = alike(examples)
        found, wanted = (a.reshape(len(a), -1) if a.ndim else a.reshape(1, 1) for a in (found, wanted))
        mean = wanted.mean(0)
        self._add(len(wanted), mean, ((wanted - mean) ** 2).sum(0), ((found - wanted) ** 2).sum(0))

    def _add(self, rows: int, mean: np.ndarray, spread: np.ndarray, errors: np.ndarray) -> None:
        if not rows:
            return
        apart, total = mean - self._mean, self._rows + rows
        self._spread = self._spread + spread + apart**2 * (self._rows * rows / total)
        self._mean, self._rows = self._mean + apart * (rows / total), total
        self._errors = self._errors + errors

    @property
    def found(self) -> tuple[Any, ...]:
        return self._rows, self._mean, self._spread, self._errors

    def join(self, several: Sequence[tuple[Any, ...]]) -> None:
        self._begin()
        for own in several:
            self._add(*own)

    def result(self) -> float:
        if self._rows < 2:
            return math.nan
        with np.errstate(all="ignore"):
            shares = 1 - self._errors / self._spread
        constant = np.where(self._errors == 0, 1.0, 0.0)  # as scikit-learn says of targets that are all the same
        return float(np.where(self._spread == 0, constant, shares).mean())


class Largest:
    """The largest term."""

    def __init__(self, terms: Callable[[Examples], np.ndarray]) -> None:
        self._terms, self._most = terms, math.nan

    def update(self, examples: Examples) -> None:
        self._most = float(np.fmax(self._most, self._terms(examples).max(initial=0.0)))

    @property
    def found(self) -> float:
        return self._most

    def join(self, several: Sequence[float]) -> None:
        self._most = float(np.fmax.reduce(np.array(several)))

    def result(self) -> float:
        return self._most


class Collected:
    """All targets and predictions, and a function of them."""

    def __init__(self, function: Callable[[Any, Any], Any], needs: str, name: str) -> None:
        self._function, self._needs, self._name = function, needs, name
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []

    def update(self, examples: Examples) -> None:
        self._kept.append(examples.predictions(self._needs))

    def leave_out(self, examples: Examples) -> None:
        """Take a batch of which no row counts: those of all ranks stay in step."""
        truth, found = examples.predictions(self._needs)
        self._kept.append((truth[:0], found[:0]))

    @property
    def found(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return self._kept

    def join(self, several: Sequence[list[tuple[np.ndarray, np.ndarray]]]) -> None:
        self._kept = [own for batch in zip(*several, strict=True) for own in batch]  # the rows in their order

    def result(self) -> float:
        truth, found = (np.concatenate([np.atleast_1d(a) for a in arrays]) for arrays in zip(*self._kept, strict=True))
        if not len(truth):
            return math.nan
        value = self._function(truth, found)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"the metric {self._name} must return a number, it returned {type(value).__name__}",
                hint="a function of several numbers is several metrics: one for each",
            ) from None
