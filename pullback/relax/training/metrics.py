"""Metrics: numbers that say how good predictions are, computed over whole epochs and data sets.

    trainer.fit(x, y, validation=(x_test, y_test), metrics=["f1", "top5", sklearn.metrics.matthews_corrcoef])
    trainer.evaluate(x_test, y_test, metrics={"kappa": sklearn.metrics.cohen_kappa_score}).metrics

A metric is a name of :data:`NAMES`, or a function ``f(y_true, y_pred)`` that returns a number, such as those of
``sklearn.metrics``. A function is called once, with all rows: a mean of batches is in general another number. It is
called by its own name; ``("name", f)`` and ``{"name": f}`` give it another. What it gets follows from the loss, which
is what says how predictions are to be read:

- of a classification (cross entropies, NLL, multi-margin), ``y_true`` and ``y_pred`` are class indices, int64, one for
  each row (pixel, token, …) whose target is not ignored, in one axis;
- of a binary loss (binary cross entropies, soft margin, hinge), they are 0 or 1, int64: in one axis, or of several
  labels a row in shape (rows, labels);
- else, targets and predictions as the model has them, float64 or an integer dtype, in their own shape.

``Metric(f, needs=…)`` asks for something else as ``y_pred``: "probabilities" (softmax or sigmoid of the outputs, if the
loss takes logits: shape (rows, classes), of two classes those of the second, as ``sklearn.metrics.roc_auc_score`` wants
it), or "outputs", the model's own outputs, with classes in the last axis. A model of several outputs is measured by the
first, and by the first target. Weights of rows do not count in metrics.

The named metrics keep sums, not predictions, but for "auc" and "average_precision", which need all scores.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError, suggestion
from pullback.ir.module import IRModule
from pullback.ir.words import guided
from pullback.relax.training.interface import Interface
from pullback.relax.training.loss import Loss, class_axis

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

NEEDS = ("classes", "probabilities", "outputs")


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


# ---- what is kept while batches come -------------------------------------------------------------------------------
#
# Each has ``found``, plain values of the batches that came, and ``join(several)``, which puts those of all ranks, in
# their order, in the place of its own.


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
        found, wanted = _alike(examples)
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


# ---- the named metrics ---------------------------------------------------------------------------------------------


def _alike(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Predictions and targets, float64."""
    found, wanted = examples.values, examples.targets
    if found.shape != wanted.shape:
        raise ArgumentError(
            f"predictions of shape {found.shape} cannot be compared with targets of shape {wanted.shape}",
            hint="give a function that knows what they are: metrics=[f], called as f(y_true, y_pred)",
        )
    return found.astype(np.float64), wanted.astype(np.float64)


def _errors(examples: Examples) -> np.ndarray:
    found, wanted = _alike(examples)
    return np.abs(found - wanted)


def _relative_errors(examples: Examples) -> np.ndarray:
    found, wanted = _alike(examples)
    return np.abs(found - wanted) / np.maximum(np.abs(wanted), np.finfo(np.float64).eps)


def _in_top(most: int, examples: Examples) -> np.ndarray:
    """Whether the label is among the ``most`` largest outputs; of equal ones, the first are the larger."""
    outputs, labels = examples.outputs, examples.labels
    own = np.take_along_axis(outputs, labels[:, None], 1)
    before = np.arange(outputs.shape[1]) < labels[:, None]
    return (~(outputs <= own) | ((outputs == own) & before)).sum(1) < most


def _log_likelihoods(examples: Examples) -> np.ndarray:
    return -np.take_along_axis(examples.log_probabilities, examples.labels[:, None], 1)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """0 where there is nothing to divide by."""
    return np.divide(above, below, out=np.zeros(above.shape), where=below != 0)


def _score(kind: str, average: str, counts: Counts) -> float:
    """Precision, recall, F1 or Jaccard index; ``average`` as in scikit-learn, "" for that of the positive class where
    there are two, else "macro"."""
    right, predicted, actual = counts.right, counts.predicted, counts.actual
    if not average and counts.is_binary and len(right) <= 2:
        right, predicted, actual = (a[-1:] for a in (right, predicted, actual))
    elif average == "micro":
        right, predicted, actual = (a.sum(keepdims=True) for a in (right, predicted, actual))
    above = 2 * right if kind == "f1" else right
    below = {
        "precision": predicted,
        "recall": actual,
        "f1": predicted + actual,
        "iou": predicted + actual - right,
    }[kind]
    scores = _ratio(above, below)
    if average == "weighted":
        return float((scores * actual).sum() / actual.sum()) if actual.sum() else 0.0
    occurs = (predicted + actual > 0) if not counts.is_binary or len(right) > 2 else np.ones(len(right), bool)
    return float(scores[occurs].mean()) if occurs.any() else 0.0


def _balanced_accuracy(counts: Counts) -> float:
    if counts.is_binary and len(counts.right) != 2:  # labels that are 0 or 1: the classes of each are these
        negative = counts.rows - counts.actual
        wrong = counts.predicted - counts.right
        shares = np.stack([_ratio(counts.right, counts.actual), _ratio(negative - wrong, negative)])
        there = np.stack([counts.actual, negative]) > 0
        return float(((shares * there).sum(0) / there.sum(0)).mean())
    there = counts.actual > 0
    return float((counts.right[there] / counts.actual[there]).mean())


def _as_classes(counts: Counts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Right, predicted and actual of both classes where one label is 0 or 1."""
    if not counts.is_binary or len(counts.right) != 1:
        return counts.right, counts.predicted, counts.actual
    negative, unpredicted = counts.rows - counts.actual, counts.rows - counts.predicted
    wrong = counts.predicted - counts.right
    pairs = ((negative - wrong, counts.right), (unpredicted, counts.predicted), (negative, counts.actual))
    right, predicted, actual = (np.concatenate(pair) for pair in pairs)
    return right, predicted, actual


def _mcc(counts: Counts) -> float:
    """Matthews' correlation coefficient of any number of classes (Gorodkin 2004)."""
    right, predicted, actual = (a.astype(np.float64) for a in _as_classes(counts))
    rows = float(counts.rows)
    below = math.sqrt((rows**2 - (predicted**2).sum()) * (rows**2 - (actual**2).sum()))
    return float((right.sum() * rows - predicted @ actual) / below) if below else 0.0


def _kappa(counts: Counts) -> float:
    """Cohen's kappa."""
    right, predicted, actual = (a.astype(np.float64) / counts.rows for a in _as_classes(counts))
    chance = float(predicted @ actual)
    return float((right.sum() - chance) / (1 - chance)) if chance != 1 else math.nan


def _auc_of(labels: np.ndarray, scores: np.ndarray) -> float:
    """The area under the ROC curve: the share of pairs of a positive and a negative row of which the positive one has
    the larger score, equal ones counting half. NaN without one of each."""
    positive = int(labels.sum())
    negative = len(labels) - positive
    if not positive or not negative or np.isnan(scores).any():
        return math.nan
    _, place, alike = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(alike) - (alike - 1) / 2)[place]
    return float((ranks[labels == 1].sum() - positive * (positive + 1) / 2) / (positive * negative))


def _average_precision_of(labels: np.ndarray, scores: np.ndarray) -> float:
    """Σ (R_n - R_{n-1}) · P_n over the thresholds, from the largest score down."""
    if not labels.any() or np.isnan(scores).any():
        return math.nan
    order = np.argsort(-scores, kind="stable")
    sorted_scores, hits = scores[order], np.cumsum(labels[order])
    last = np.append(sorted_scores[1:] != sorted_scores[:-1], True)
    hits, taken = hits[last], np.flatnonzero(last) + 1
    return float((np.diff(hits, prepend=0) * hits / taken).sum() / hits[-1])


def _of_each(function: Callable[[np.ndarray, np.ndarray], float], labels: np.ndarray, scores: np.ndarray) -> float:
    """A score of binary labels; the mean over the classes, one against the rest, or over labels. Classes of which it
    is not defined, as they do not occur, do not count."""
    if scores.ndim == 1:
        return function(labels, scores)
    columns = labels.T if labels.ndim == 2 else [labels == k for k in range(scores.shape[1])]
    found = [function(c.astype(np.int64), s) for c, s in zip(columns, scores.T, strict=True)]
    defined = [v for v in found if not math.isnan(v)]
    return float(np.mean(defined)) if defined else math.nan


@dataclass(frozen=True)
class _Named:
    start: Callable[[], Any]
    kinds: tuple[str, ...]
    mode: str = "max"


def _counting(final: Callable[[Counts], float]) -> Callable[[], Any]:
    return partial(Counts, final)


def _all_scores(name: str, function: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[], Any]:
    return partial(Collected, partial(_of_each, function), "probabilities", name)


_LABELLED, _NUMBERS = (CLASSES, BINARY), (BINARY, VALUES)
NAMES: Mapping[str, _Named] = {
    "accuracy": _Named(lambda: Mean(lambda e: e.classes == e.labels), _LABELLED),
    "balanced_accuracy": _Named(_counting(_balanced_accuracy), _LABELLED),
    **{
        f"{kind}{ending}": _Named(_counting(partial(_score, kind, ending[1:])), _LABELLED)
        for kind in ("precision", "recall", "f1", "iou")
        for ending in ("", "_macro", "_micro", "_weighted")
    },
    "mcc": _Named(_counting(_mcc), _LABELLED),
    "kappa": _Named(_counting(_kappa), _LABELLED),
    "auc": _Named(_all_scores("auc", _auc_of), _LABELLED),
    "average_precision": _Named(_all_scores("average_precision", _average_precision_of), _LABELLED),
    "perplexity": _Named(lambda: Mean(_log_likelihoods, _exp), (CLASSES,), "min"),
    "mae": _Named(lambda: Mean(_errors), _NUMBERS, "min"),
    "mse": _Named(lambda: Mean(lambda e: _errors(e) ** 2), _NUMBERS, "min"),
    "rmse": _Named(lambda: Mean(lambda e: _errors(e) ** 2, math.sqrt), _NUMBERS, "min"),
    "mape": _Named(lambda: Mean(_relative_errors), _NUMBERS, "min"),
    "max_error": _Named(lambda: Largest(_errors), _NUMBERS, "min"),
    "r2": _Named(Moments, _NUMBERS),
}
_TOP = re.compile(r"top([1-9]\d{0,5})")
_WORDS = {
    "acc": "did you mean accuracy?", "categorical_accuracy": "did you mean accuracy?",
    "sparse_categorical_accuracy": "did you mean accuracy?", "binary_accuracy": "did you mean accuracy?",
    "roc_auc": "did you mean auc?", "auroc": "did you mean auc?", "ap": "did you mean average_precision?",
    "mean_absolute_error": "did you mean mae?", "mean_squared_error": "did you mean mse?",
    "root_mean_squared_error": "did you mean rmse?", "r2_score": "did you mean r2?", "f1_score": "did you mean f1?",
    "jaccard": "did you mean iou?", "mean_iou": "did you mean iou?", "matthews_corrcoef": "did you mean mcc?",
    "cohen_kappa": "did you mean kappa?", "top_k": 'write "top5"', "topk": 'write "top5"',
    "loss": "the loss is measured in any case",
}  # fmt: skip
_OF_PROBABILITIES = ("perplexity", "auc", "average_precision", "mae", "mse", "rmse", "mape", "max_error", "r2")


def _exp(value: float) -> float:
    return math.inf if value > 709 else math.exp(value)


# ---- what users give -----------------------------------------------------------------------------------------------


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
        defaults = ["accuracy"] if reading.kind in _LABELLED and interface.targets else []
        chosen: dict[str, tuple[str, Callable[[], Any], str]] = {}
        wanted = list(_several(asked))
        for given in [*defaults, *wanted]:
            entry = _named(given, reading) if isinstance(given, str) else _own(given, reading)
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


def _named(name: str, reading: Reading) -> tuple[str, Callable[[], Any], str]:
    top = _TOP.fullmatch(name)
    if top is not None:
        named: _Named | None = _Named(lambda: Mean(partial(_in_top, int(top[1]))), (CLASSES,))
    else:
        named = NAMES.get(name)
    known = [n for n, of in NAMES.items() if reading.kind in of.kinds] + (["top5"] if reading.kind == CLASSES else [])
    listed = f"those of this trainer's loss are: {', '.join(known)}"
    own = "; any f(y_true, y_pred) is one too, such as those of sklearn.metrics"
    if named is None:
        raise ArgumentError(f"there is no metric {name!r}{suggestion(name, known, _WORDS)}; {listed}{own}")
    if reading.kind not in named.kinds:
        message = f"the metric {name} is for {' and '.join(map(_SAID.__getitem__, named.kinds))}"
        raise ArgumentError(f"{message}, and the loss for {_SAID[reading.kind]}", hint=listed + own)
    ranks = reading.kind == BINARY and name in ("auc", "average_precision")  # which want the order of scores alone
    if reading.scores == MARGINS and name in _OF_PROBABILITIES and not ranks:
        raise ArgumentError(f"the metric {name} needs probabilities, and this loss takes margins")
    return name, named.start, named.mode


_SAID = {CLASSES: "classes", BINARY: "binary labels", VALUES: "numbers"}


def _own(given: Any, reading: Reading) -> tuple[str, Callable[[], Any], str]:
    name = ""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        name, given = given
    if isinstance(given, str):  # {"score": "f1"}
        _, start, mode = _named(given, reading)
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
