"""The metrics that have names, and their formulas."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, suggestion
from pullback.relax.training.metrics.accumulators import Collected, Counts, Largest, Mean, Moments
from pullback.relax.training.metrics.reading import BINARY, CLASSES, MARGINS, VALUES, Examples, Reading, alike


def _errors(examples: Examples) -> np.ndarray:
    found, wanted = alike(examples)
    return np.abs(found - wanted)


def _relative_errors(examples: Examples) -> np.ndarray:
    found, wanted = alike(examples)
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


LABELLED, _NUMBERS = (CLASSES, BINARY), (BINARY, VALUES)
NAMES: Mapping[str, _Named] = {
    "accuracy": _Named(lambda: Mean(lambda e: e.classes == e.labels), LABELLED),
    "balanced_accuracy": _Named(_counting(_balanced_accuracy), LABELLED),
    **{
        f"{kind}{ending}": _Named(_counting(partial(_score, kind, ending[1:])), LABELLED)
        for kind in ("precision", "recall", "f1", "iou")
        for ending in ("", "_macro", "_micro", "_weighted")
    },
    "mcc": _Named(_counting(_mcc), LABELLED),
    "kappa": _Named(_counting(_kappa), LABELLED),
    "auc": _Named(_all_scores("auc", _auc_of), LABELLED),
    "average_precision": _Named(_all_scores("average_precision", _average_precision_of), LABELLED),
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


_SAID = {CLASSES: "classes", BINARY: "binary labels", VALUES: "numbers"}


def named_metric(name: str, reading: Reading) -> tuple[str, Callable[[], Any], str]:
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
