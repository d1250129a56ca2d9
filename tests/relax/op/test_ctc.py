"""The CTC loss: against all alignments, rows that end early, labels that do not fit, and calls that do not."""

from __future__ import annotations

from itertools import groupby, product
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Var
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.gradient import Gradient

rng = np.random.default_rng(11)
TIMES, ROWS, CLASSES = 6, 3, 4
LOGS = np.log(rng.dirichlet(np.ones(CLASSES), (TIMES, ROWS)))
LABELS = np.array([[1, 2, 3], [2, 2, 1], [3, 1, 1]])


def results(arrays: list[Any], **attrs: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """The loss and the adjoint of log_probs, interpreted and native."""
    params = [Var(n, value_info(a)) for n, a in zip(("logs", "labels", "lengths", "counts"), arrays, strict=True)]
    builder = BlockBuilder()
    with builder.function("main", params):
        each = builder.emit(ops.nn.ctc_loss(*params, reduction="none", **attrs))
        builder.emit_func_output((ops.sum(each), each))
    module = Gradient("main", params[:1])(builder.get())
    (_, interpreted), (adjoint,) = evaluate(module, "main_adjoint", arrays)
    (_, each), (native,) = pullback.compile(module).function("main_adjoint")(*arrays)
    return [(interpreted, adjoint), (each.numpy(), native.numpy())]


def alignments(length: int, labels: list[int], blank: int) -> np.ndarray:
    """All sequences of classes that become the labels when repeated ones are merged and blanks removed."""
    every = (p for p in product(range(CLASSES), repeat=length))
    found = [p for p in every if [c for c, _ in groupby(p) if c != blank] == labels]
    return np.array(found, np.int64).reshape(len(found), length)


@pytest.mark.parametrize(
    ("lengths", "counts"), [((6, 6, 6), (3, 3, 3)), ((6, 4, 2), (2, 3, 1)), ((3, 1, 0), (3, 0, 0))]
)
def test_all_alignments(lengths: tuple[int, ...], counts: tuple[int, ...]) -> None:
    """The loss is -log Σ p, and the adjoint of a log-probability the share of the alignments that emit it there."""
    expected, gradient = np.zeros(ROWS), np.zeros_like(LOGS)
    for n, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        paths = alignments(length, LABELS[n, :count].tolist(), 0)
        chances = np.exp(sum(LOGS[t, n, paths[:, t]] for t in range(length)) + np.zeros(len(paths)))
        expected[n] = -np.log(chances.sum())
        for t in range(length):
            np.subtract.at(gradient[t, n], paths[:, t], chances / chances.sum())
    for value, adjoint in results([LOGS, LABELS, np.array(lengths), np.array(counts)]):
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(adjoint, gradient, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("zero", [False, True])
def test_labels_that_do_not_fit(zero: bool, dtype: str) -> None:
    lengths, counts = np.array([2, 3, 0]), np.array([3, 3, 1])  # 2, 2, 1 takes a blank and so four times
    for value, adjoint in results([LOGS.astype(dtype), LABELS, lengths, counts], zero_infinity=zero):
        np.testing.assert_array_equal(value, np.full(3, 0 if zero else np.inf))
        np.testing.assert_array_equal(adjoint, 0)


def test_what_lies_behind_the_lengths_does_not_matter() -> None:
    lengths, counts = np.array([4, 5, 3]), np.array([2, 3, 1])
    logs, labels = LOGS.copy(), LABELS.copy()
    logs[np.arange(TIMES)[:, None] >= lengths] = np.nan
    labels[np.arange(3) >= counts[:, None]] = -7
    expected = results([LOGS, LABELS, lengths, counts])
    for (value, adjoint), (whole, whole_adjoint) in zip(
        results([logs, labels, lengths, counts]), expected, strict=True
    ):
        np.testing.assert_array_equal(value, whole)
        np.testing.assert_array_equal(adjoint, whole_adjoint)


def test_a_class_of_probability_zero() -> None:
    logs = LOGS.copy()
    logs[:, 0, 1] = -np.inf
    for value, adjoint in results([logs, LABELS, np.full(3, 6), np.array([1, 3, 3])]):
        assert np.isinf(value[0]) and np.isfinite(value[1:]).all() and np.isfinite(adjoint).all()


def test_long_sequences_in_float32_keep_their_mass() -> None:
    """The adjoints of a row add up to -1 at each time: the probabilities of its classes there."""
    logs = np.log(rng.dirichlet(np.ones(30), (800, 2)))
    arrays = [logs, rng.integers(1, 30, (2, 150)), np.array([800, 700]), np.array([150, 100])]
    (exact, _), (_, exact_adjoint) = results(arrays)
    (_, (value, adjoint)) = results([logs.astype(np.float32), *arrays[1:]])
    np.testing.assert_allclose(value, exact, rtol=1e-5)
    np.testing.assert_allclose(adjoint.sum(2), np.where(np.arange(800)[:, None] < arrays[2], -1, 0), atol=1e-4)
    np.testing.assert_allclose(adjoint, exact_adjoint, atol=2e-3)


@pytest.mark.parametrize("change", ["label", "blank label", "long", "longer", "negative", "negative count"])
def test_out_of_range(change: str) -> None:
    labels, lengths, counts = LABELS.copy(), np.full(3, 6), np.full(3, 3)
    if change in ("label", "blank label"):
        labels[1, 2] = CLASSES if change == "label" else 0
    elif change in ("long", "negative"):
        lengths[2] = TIMES + 1 if change == "long" else -1
    else:
        counts[0] = 4 if change == "longer" else -1
    params = [Var(n, value_info(a)) for n, a in zip("plic", (LOGS, labels, lengths, counts), strict=True)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(ops.nn.ctc_loss(*params)))
    for target in ("debug", "llvm"):
        with pytest.raises(ArgumentError, match="a length is outside its axis, or a label is the blank or no class"):
            pullback.compile(builder.get(), target).function("main")(LOGS, labels, lengths, counts)


def _var(shape: tuple[int, ...], dtype: str = "int64") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


P, K, L = _var((6, 3, 4), "float32"), _var((3, 2)), _var((3,))
ERRORS: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[UserError], str]] = {
    "rank": ((_var((6, 4), "float32"), K, L, L), {}, ShapeError, r"log_probs must have the shape \(T, N, C\), got"),
    "dtype": ((_var((6, 3, 4)), K, L, L), {}, DTypeError, "log_probs must have a floating-point dtype, got int64"),
    "one axis": ((P, _var((6,)), L, L), {}, ShapeError, r"targets must have the shape \(N, L\), got \(6,\)"),
    "labels": ((P, _var((3, 2), "float32"), L, L), {}, DTypeError, "targets must have an integer dtype, got float32"),
    "rows": ((P, _var((2, 2)), _var((2,)), _var((2,))), {}, ShapeError, "log_probs have 3 rows, targets 2"),
    "lengths": ((P, K, _var((2,)), L), {}, ShapeError, r"input_lengths must have the shape \(3,\), got \(2,\)"),
    "counts": ((P, K, L, _var((3, 1))), {}, ShapeError, r"target_lengths must have the shape \(3,\), got \(3, 1\)"),
    "blank": ((P, K, L, L), {"blank": 4}, UserError, "blank must be one of the 4 classes, got 4"),
    "reduction": (
        (P, K, L, L),
        {"reduction": "batchmean"},
        UserError,
        "reduction must be one of 'mean', 'sum', 'none'",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    args, attrs, kind, message = ERRORS[name]
    with pytest.raises(kind, match="nn.ctc_loss: " + message):
        ops.nn.ctc_loss(*args, **attrs)
