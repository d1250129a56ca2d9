"""Losses: formulas against NumPy, types, errors, and a loss of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir import ArgumentError, DTypeError, IRModule, ShapeError, assert_structural_equal
from pullback.relax import BlockBuilder, TensorStructInfo, Var, op
from pullback.relax.analysis import check_well_formed
from pullback.relax.interpreter import evaluate
from pullback.relax.training.loss import CategoricalCrossEntropyLoss, CrossEntropyLoss, L1Loss, Loss, MSELoss
from pullback.script import relax as R

generator = np.random.default_rng(0)


def info(array: np.ndarray) -> TensorStructInfo:
    return TensorStructInfo(array.shape, array.dtype.name)


def value(loss: Loss, *arrays: np.ndarray) -> np.ndarray:
    function = loss(*map(info, arrays))
    check_well_formed(function)
    assert len(function.body.blocks) == 1
    return evaluate(IRModule({"loss": function}), "loss", arrays)


def log_softmax(x: np.ndarray, axis: int) -> np.ndarray:
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def reduced(each: np.ndarray, reduction: str, divisor: Any = None) -> np.ndarray:
    if reduction == "none":
        return each
    return each.sum() if reduction == "sum" else each.sum() / (each.size if divisor is None else divisor)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(4, 3), (7,), (2, 3, 4), ()])
def test_regression(reduction: str, shape: tuple[int, ...]) -> None:
    p, t = np.asarray(generator.standard_normal(shape)), np.asarray(generator.standard_normal(shape))
    np.testing.assert_allclose(value(L1Loss(reduction), p, t), reduced(np.abs(p - t), reduction))
    np.testing.assert_allclose(value(MSELoss(reduction), p, t), reduced((p - t) ** 2, reduction))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [-100, 2])
@pytest.mark.parametrize("shape", [(6, 5), (5,), (2, 5, 3, 2)])
def test_cross_entropy_of_indices(reduction: str, weighted: bool, ignored: int, shape: tuple[int, ...]) -> None:
    axis = 1 if len(shape) > 1 else 0
    p, w = generator.standard_normal(shape), generator.random(5) + 0.5
    t = np.asarray(generator.choice([0, 1, 3, 4], shape[:axis] + shape[axis + 1 :]), np.int64)
    if len(shape) > 1:
        t.reshape(-1)[0] = ignored  # one that counts for nothing
    valid = t != ignored
    index = np.where(valid, t, 0)
    picked = np.take_along_axis(log_softmax(p, axis), np.expand_dims(index, axis), axis).squeeze(axis)
    factor = np.where(valid, w[index] if weighted else 1.0, 0.0)
    found = value(CrossEntropyLoss(reduction, ignored), p, t, *([w] if weighted else []))
    np.testing.assert_allclose(found, reduced(-picked * factor, reduction, factor.sum()), rtol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32"])
@pytest.mark.parametrize("kind", [CrossEntropyLoss, CategoricalCrossEntropyLoss])
@pytest.mark.parametrize("shape", [(6, 5), (5,), (2, 5, 3)])
def test_cross_entropy_of_probabilities(
    kind: type[Loss], reduction: str, weighted: bool, dtype: str, shape: tuple[int, ...]
) -> None:
    axis = 1 if len(shape) > 1 else 0
    p, w = generator.standard_normal(shape), generator.random(5) + 0.5
    q = generator.random(shape).astype(dtype) if "float" in dtype else generator.integers(0, 2, shape).astype(dtype)
    factors = w.reshape([-1 if k == axis else 1 for k in range(len(shape))]) if weighted else 1.0
    each = -(factors * q.astype(np.float64) * log_softmax(p, axis)).sum(axis)
    found = value(kind(reduction), p, q, *([w] if weighted else []))
    np.testing.assert_allclose(found, reduced(each, reduction), rtol=1e-12)


def test_categorical_ignores_a_class() -> None:
    p, labels = generator.standard_normal((6, 4)), np.array([0, 1, 2, 3, 1, 1])
    found = value(CategoricalCrossEntropyLoss("mean", ignore_index=1), p, np.eye(4)[labels])
    assert found == value(CrossEntropyLoss("mean", ignore_index=1), p, labels)


def test_structure() -> None:
    @R.function
    def expected_mse(predictions: R.Tensor((3, 3), "float32"), targets: R.Tensor((3, 3), "float32")):
        with R.dataflow():
            lv = R.subtract(predictions, targets)
            lv1 = R.multiply(lv, lv)
            loss = R.mean(lv1)
            R.output(loss)
        return loss

    @R.function
    def expected_entropy(
        predictions: R.Tensor((3, 5), "float32"), targets: R.Tensor((3,), "int64"), weights: R.Tensor((5,), "float32")
    ):
        with R.dataflow():
            lv = R.nn.log_softmax(predictions, axis=-1)
            loss = R.nn.nll_loss(lv, targets, weights, reduction="sum", ignore_index=1)
            R.output(loss)
        return loss

    x = TensorStructInfo((3, 3), "float32")
    assert_structural_equal(MSELoss()(x, x), expected_mse)
    infos = TensorStructInfo((3, 5)), TensorStructInfo((3,), "int64"), TensorStructInfo((5,))
    assert_structural_equal(CrossEntropyLoss("sum", 1)(*infos), expected_entropy)


def test_variables_give_their_names() -> None:
    function = L1Loss()(Var("logits", TensorStructInfo((2,))), TensorStructInfo((2,)))
    assert [p.name for p in function.params] == ["logits", "targets"]


class HuberLoss(Loss):
    """The documented way to a loss of one's own."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("huber_loss", 1, reduction)

    def expression(self, predictions: Var, targets: Var) -> Any:  # type: ignore[override]
        distance = op.abs(predictions - targets)
        return self._with_reduction(op.where(op.less(distance, 1.0), distance * distance * 0.5, distance - 0.5))


class OldStyleLoss(Loss):
    """TVM's way: everything in ``__call__``."""

    def __init__(self) -> None:
        super().__init__("old_style", 1, "sum")

    def __call__(self, predictions: Any, targets: Any) -> Any:  # type: ignore[override]
        builder = BlockBuilder()
        params = [Var("predictions", predictions), Var("targets", targets)]
        with builder.function(self._loss_name, params):
            with builder.dataflow():
                difference = builder.emit(op.subtract(*params))
                loss = builder.emit_output(self._with_reduction(op.abs(difference)))
            builder.emit_func_output(loss)
        return builder.get()[self._loss_name]


def test_own_losses() -> None:
    p, t = generator.standard_normal(20) * 2, generator.standard_normal(20)
    d = np.abs(p - t)
    np.testing.assert_allclose(value(HuberLoss(), p, t), np.where(d < 1, d * d / 2, d - 0.5).mean())
    np.testing.assert_allclose(value(OldStyleLoss(), p, t), d.sum())
    function = HuberLoss()(info(p), info(t))
    names = [b.value.op.short for b in function.bindings]  # type: ignore[attr-defined]
    assert names.count("abs") == 1, "what is used several times is computed once"


F = TensorStructInfo


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: MSELoss("median"), ArgumentError, "reduction must be one of 'mean', 'sum', 'none', got 'median'"),
        (lambda: MSELoss()(F((2, 3)), F((3,))), ShapeError, r"must have the same shape, got \(2, 3\) and \(3,\)"),
        (lambda: MSELoss()(F((2,)), F((2,), "int64")), DTypeError, "same dtype, got float32 and int64"),
        (lambda: L1Loss()(F((2,), "int64"), F((2,), "int64")), DTypeError, "floating-point dtype, got int64"),
        (lambda: L1Loss()(F((2,))), ArgumentError, r"takes the types of \(predictions, targets\), got 1"),
        (lambda: CrossEntropyLoss()(*[F((2, 3))] * 4), ArgumentError, r"\(predictions, targets\[, weights\]\), got 4"),
        (lambda: L1Loss()(F((2,)), 3), ArgumentError, "targets must be a struct info or a variable, got int"),
        (lambda: CrossEntropyLoss()(F((2, 3)), F((2,))), DTypeError, "must have an integer dtype, got float32"),
        (lambda: CrossEntropyLoss()(F((2, 3)), F((3,), "int64")), ShapeError, r"indices of shape \(2,\) or prob"),
        (
            lambda: CrossEntropyLoss()(F((2, 3)), F((2, 1), "int64")),
            ShapeError,
            r"need their shape \(2, 3\), got \(2, 1\)",
        ),
        (lambda: CrossEntropyLoss()(F(()), F((), "int64")), ShapeError, "need a class axis"),
        (
            lambda: CrossEntropyLoss()(F((2, 3), "int32"), F((2,), "int64")),
            DTypeError,
            "floating-point dtype, got int32",
        ),
        (lambda: CrossEntropyLoss()(F((2, 3)), F((2,), "int64"), F((2,))), ShapeError, "one factor for each class"),
        (
            lambda: CrossEntropyLoss("mean", 1)(F((2, 3)), F((2, 3))),
            ArgumentError,
            "needs targets that are class indices",
        ),
        (lambda: CrossEntropyLoss("mean", 1.5), ArgumentError, "ignore_index must be an int"),
        (
            lambda: CategoricalCrossEntropyLoss()(F((2, 3)), F((2,), "int64")),
            ShapeError,
            "must be one-hot or probabilities",
        ),
    ],
)
def test_errors(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
