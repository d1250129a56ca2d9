"""append_loss and AppendLoss: before, expected, errors."""
# ruff: noqa: F841 (functions of a module have no self)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir import ArgumentError, IRModule, ShapeError, assert_structural_equal
from pullback.relax import Function, TensorStructInfo, transform
from pullback.relax.analysis import check_well_formed
from pullback.relax.interpreter import evaluate
from pullback.relax.training import AppendLoss, append_loss, loss
from pullback.relax.training.utils import append_loss as append_loss_of_utils
from pullback.script import ir as I
from pullback.script import relax as R


@R.function
def sum_loss(arg1: R.Tensor((3, 3), "float32")):
    with R.dataflow():
        gv0 = R.sum(arg1)
        R.output(gv0)
    return gv0


def test_one_output() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3, 3), "float32"), y: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                gv0 = x + y
                R.output(gv0)
            return gv0

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3, 3), "float32"), y: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                gv0 = R.add(x, y)
                R.output(gv0)
            return gv0

        @R.function
        def main_loss(x: R.Tensor((3, 3), "float32"), y: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                gv0 = R.add(x, y)
                gv0_1 = R.sum(gv0)
                R.output(gv0_1)
            return gv0_1

    assert_structural_equal(AppendLoss("main", sum_loss)(Before), Expected)
    assert "other" in AppendLoss("main", sum_loss, new_func_name="other")(Before)
    assert list(Before) == ["main"], "a pass leaves its argument alone"
    assert transform.AppendLoss is AppendLoss and append_loss is append_loss_of_utils


def test_targets_and_states() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                gv0 = R.sum(x)
                gv1 = R.add(x, x)
                gv2 = x
                R.output(gv0, gv1, gv2)
            return gv0, gv1, gv2

    @R.function
    def two(a: R.Tensor((), "float32"), b: R.Tensor((3, 3), "float32"), x: R.Tensor((3, 3), "float32")):
        with R.dataflow():
            gv0 = R.add(b, x)
            gv1 = R.sum(gv0)
            R.output(gv1)
        return gv1

    @I.ir_module
    class Expected:
        @R.function
        def main_loss(x: R.Tensor((3, 3), "float32"), x_1: R.Tensor((3, 3), "float32")):
            with R.dataflow():
                gv0 = R.sum(x)
                gv1 = R.add(x, x)
                gv2 = x
                gv0_1 = R.add(gv1, x_1)
                gv1_1 = R.sum(gv0_1)
                R.output(gv2, gv1_1)
            return (gv1_1, gv2)

    after = AppendLoss("main", two, 2)(Before)
    assert_structural_equal(after["main_loss"], Expected["main_loss"])
    assert [p.name for p in after["main_loss"].params] == ["x", "x_1"], "names stay distinct"
    assert not set(after["main_loss"].params) & set(Before["main"].params), "parameters are fresh"


def backbone_of_many_blocks() -> Function:
    @R.function
    def main(x: R.Tensor((3, 3), "float32"), w: R.Tensor((3, 3), "float32")):
        y = R.add(x, w)
        with R.dataflow():
            lv = R.exp(y)
            z = R.multiply(lv, w)
            R.output(z)
        out = R.subtract(z, y)
        return out, w

    return main


def test_several_blocks() -> None:
    joined = append_loss(backbone_of_many_blocks(), sum_loss)
    check_well_formed(joined)
    assert len(joined.body.blocks) == 1
    x, w = np.random.default_rng(0).standard_normal((2, 3, 3)).astype(np.float32)
    found, state = evaluate(IRModule({"f": joined}), "f", (x, w))
    np.testing.assert_allclose(found, (np.exp(x + w) * w - x - w).sum(), rtol=1e-5)
    assert state is w, "a state may be a parameter, unchanged"


def test_result_is_an_output_of_the_backbone() -> None:
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            total = R.sum(x)
            R.output(total)
        return total

    @R.function
    def identity(value: R.Tensor((), "float32")):
        return value

    joined = append_loss(main, identity)
    check_well_formed(joined)
    assert evaluate(IRModule({"f": joined}), "f", (np.ones(3, np.float32),)) == 3


def test_symbolic_sizes_meet() -> None:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y

    @R.function
    def mse(predictions: R.Tensor(("rows", 3), "float32"), targets: R.Tensor(("rows", 3), "float32")):
        with R.dataflow():
            lv = R.subtract(predictions, targets)
            lv1 = R.multiply(lv, lv)
            out = R.mean(lv1)
            R.output(out)
        return out

    joined = append_loss(main, mse)
    check_well_formed(joined)
    assert joined.params[1].shape[0] is joined.params[0].shape[0], "targets have the backbone's size"


def small(*infos: Any) -> Function:
    return loss.MSELoss("sum")(*infos)


FLOATS = TensorStructInfo((3, 3))


@pytest.mark.parametrize(
    ("func", "count", "error", "message"),
    [
        (small(*[TensorStructInfo((3, 3), "float64")] * 2), 1, ShapeError, "the loss takes predictions as"),
        (
            small(*[TensorStructInfo((3, 4))] * 2),
            1,
            ShapeError,
            r"output 0 of the backbone is Tensor\(\(3, 3\), float32\)",
        ),
        (small(FLOATS, FLOATS), 3, ArgumentError, "takes 3 outputs of the backbone, which has 2"),
        (sum_loss, 2, ArgumentError, "num_backbone_outputs is 2, but the loss has 1 parameters"),
        (loss.MSELoss("none")(FLOATS, FLOATS), 1, ShapeError, "the loss must be one floating-point scalar"),
    ],
)
def test_errors(func: Function, count: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        append_loss(backbone_of_many_blocks(), func, count)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"the backbone must be a graph function, not str\nhint: .*AppendLoss"):
        append_loss("backbone", sum_loss)  # type: ignore[arg-type]
    for refused in (lambda o: append_loss(sum_loss, o), lambda o: AppendLoss("main", o)(IRModule({"main": sum_loss}))):
        with pytest.raises(ArgumentError, match=r"not MSELoss\nhint: call the loss on the types of its arguments"):
            refused(loss.MSELoss())


def test_nested_results_are_refused() -> None:
    @R.function
    def main(x: R.Tensor((3, 3), "float32")):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y, (y, x)

    with pytest.raises(ArgumentError, match="must return a tensor or a tuple of tensors"):
        append_loss(main, sum_loss)
