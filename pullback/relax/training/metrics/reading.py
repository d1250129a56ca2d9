"""How a trainer's outputs and targets are read, and the forms in which metrics want them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.relax.training.interface import Interface
from pullback.relax.training.loss import class_axis

CLASSES, BINARY, VALUES = "classes", "binary", "values"  # what a loss says that predictions are
LOGITS, LOG_PROBABILITIES, PROBABILITIES, MARGINS = "logits", "log probabilities", "probabilities", "margins"
_SCORES = {  # what the outputs are of which a loss is taken; a loss of one's own classification takes logits
    "nll_loss": LOG_PROBABILITIES,
    "multi_margin_loss": MARGINS,
    "bce_loss": PROBABILITIES,
    "bce_with_logits_loss": LOGITS,
    "multilabel_soft_margin_loss": LOGITS,
    "soft_margin_loss": LOGITS,  # log(1 + exp(-y·x)) is the binary cross entropy for targets of -1 and 1
    "hinge_loss": MARGINS,
}
_BINARY = ("bce_loss", "bce_with_logits_loss", "multilabel_soft_margin_loss", "soft_margin_loss", "hinge_loss")
_SIGNS = ("soft_margin_loss", "hinge_loss")  # whose targets are -1 and 1


@dataclass(frozen=True)
class Reading:
    """How the outputs and targets of a trainer are read."""

    kind: str
    scores: str = ""
    ignored: int | None = None
    signs: bool = False

    @staticmethod
    def of(interface: Interface) -> Reading:
        record = interface.record
        kind = CLASSES if record.classification else BINARY if record.loss in _BINARY else VALUES
        scores = "" if kind == VALUES else _SCORES.get(record.loss, LOGITS)
        return Reading(kind, scores, record.ignore_index, record.loss in _SIGNS)


class Examples:
    """Outputs and targets of some rows, in the forms in which metrics want them; each is made once."""

    def __init__(self, reading: Reading, outputs: Any, targets: Any) -> None:
        self.reading = reading
        given, self._targets = _plain(outputs), _plain(targets)
        if reading.kind == CLASSES:
            axis = class_axis(given.ndim)
            labels = self._targets if self._targets.ndim < given.ndim else self._targets.argmax(axis)
            self._labels = labels.reshape(-1)
            self._counted = None if reading.ignored is None else self._labels != reading.ignored
            given = np.moveaxis(given, axis, -1).reshape(-1, given.shape[axis])
        elif reading.kind == BINARY:
            several = given.ndim == 2 and given.shape[1] > 1
            given = given if several else given.reshape(-1)
            self._labels = (self._targets.reshape(given.shape) > (0 if reading.signs else 0.5)).astype(np.int64)
            self._counted = None
        self._given = given

    @cached_property
    def outputs(self) -> np.ndarray:
        """Of classes, (rows, classes); those that count."""
        return self._kept(self._given)

    @cached_property
    def classes(self) -> np.ndarray:
        """Predicted class indices, or 0 and 1."""
        if self.reading.kind == CLASSES:
            return self.outputs.argmax(-1)
        return (self.outputs > (0.5 if self.reading.scores == PROBABILITIES else 0)).astype(np.int64)

    @cached_property
    def labels(self) -> np.ndarray:
        """The class indices of the targets, or 0 and 1."""
        return self._kept(self._labels)

    @cached_property
    def values(self) -> np.ndarray:
        """The predictions to compare with targets that are numbers."""
        return self.probabilities if self.reading.kind == BINARY else self.outputs

    @cached_property
    def targets(self) -> np.ndarray:
        """Targets that are numbers."""
        return self._labels if self.reading.kind == BINARY else self._targets

    @cached_property
    def log_probabilities(self) -> np.ndarray:
        """Of classes; float64."""
        given = self.outputs.astype(np.float64)
        if self.reading.scores == LOG_PROBABILITIES:
            return given
        shifted = given - given.max(-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Of each class, of two classes of the second, of a binary prediction that of 1; float64."""
        if self.reading.kind == BINARY:
            given = self.outputs.astype(np.float64)
            return given if self.reading.scores == PROBABILITIES else 0.5 * (1 + np.tanh(0.5 * given))
        found = np.exp(self.log_probabilities)
        return found[:, 1] if found.shape[1] == 2 else found

    def predictions(self, needs: str) -> tuple[np.ndarray, np.ndarray]:
        """``y_true`` and ``y_pred`` of a function; arrays of their own."""
        truth = self.labels if self.reading.kind != VALUES else self.targets
        found = {"classes": "classes", "probabilities": "probabilities", "outputs": "outputs"}[needs]
        return np.array(truth), np.array(getattr(self, found))

    def _kept(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.reading.kind == VALUES or self._counted is None else rows[self._counted]


def _plain(tensor: Any) -> np.ndarray:
    """An array of a dtype that NumPy computes with."""
    array = np.asarray(tensor)
    return array.astype(np.float32) if array.dtype.kind not in "biufc" or array.dtype.itemsize < 4 else array


def alike(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Predictions and targets, float64."""
    found, wanted = examples.values, examples.targets
    if found.shape != wanted.shape:
        raise ArgumentError(
            f"predictions of shape {found.shape} cannot be compared with targets of shape {wanted.shape}",
            hint="give a function that knows what they are: metrics=[f], called as f(y_true, y_pred)",
        )
    return found.astype(np.float64), wanted.astype(np.float64)
