"""detect_nan: the op whose result was the first to be no number."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.ir import IRModule, UserError
from pullback.relax import BlockBuilder, TensorStructInfo, Var, const, op
from pullback.relax.training import make_trainer
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import SGD
from tests.relax.training.models import assert_same, classes, params, trainer_of

X, Y = classes(30)  # three batches of eight and one of six
TARGETS = ("debug", "llvm")


def dividing() -> IRModule:
    """A model that divides by the sum of its parameter, and takes a logarithm."""
    x, w = Var("x", TensorStructInfo((2, 3))), Var("w", TensorStructInfo((3,)))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w]):
        with builder.dataflow():
            total = builder.emit(op.sum(w), "total")
            out = builder.emit_output(op.log(op.divide(op.multiply(x, w), total)), "out")
        builder.emit_func_output(out)
    return builder.get().with_attrs({"param_num": 1, "state_num": 0})


@pytest.mark.parametrize("target", TARGETS)
def test_detect_nan_names_the_op(target: str) -> None:
    trainer = make_trainer(dividing(), MSELoss(), SGD(100.0), target=target, init="zeros")
    trainer.load_params([np.array([1, 2, 3], np.float32)])
    x, y = np.ones((6, 3), np.float32), np.zeros((6, 3), np.float32)
    with pytest.raises(UserError, match=r"the loss of step 2 is nan: the first NaN is out = log\(") as caught:
        trainer.fit(x, y, verbose=0, detect_nan=True)
    assert "before that step" in str(caught.value)
    assert trainer.steps == 1 and np.isfinite(trainer.params["w"].numpy()).all(), "the last good step is kept"


def test_detect_nan_looks_at_data_first() -> None:
    trainer = trainer_of()
    bad = X.copy()
    bad[11, 3] = np.nan
    with pytest.raises(UserError, match="the loss of step 2 is nan: input x holds NaN"):
        trainer.fit(bad, Y, shuffle=False, verbose=0, detect_nan=True)
    assert trainer.steps == 1


def test_without_detect_nan_training_goes_on_with_one_warning() -> None:
    trainer = trainer_of()
    bad = X.copy()
    bad[11, 3] = np.inf
    with pytest.warns(RuntimeWarning, match="the loss of epoch 1 is nan; .*detect_nan=True") as warned:
        history = trainer.fit(bad, Y, epochs=3, shuffle=False, verbose=0)
    assert all(np.isnan(e.loss) for e in history.epochs)
    assert len(warned) == 1 and warned[0].filename == __file__


def test_detect_nan_changes_no_bit() -> None:
    watched, plain = trainer_of("llvm"), trainer_of("llvm")
    watched.fit(X, Y, epochs=2, seed=1, verbose=0, detect_nan=True)
    plain.fit(X, Y, epochs=2, seed=1, verbose=0)
    assert_same(params(watched), params(plain))


def test_an_infinity_that_is_meant_is_not_to_blame() -> None:
    """The NaN is named, though an infinity came before it."""
    x, w = Var("x", TensorStructInfo((2, 3))), Var("w", TensorStructInfo((3,)))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w]):
        with builder.dataflow():
            masked = builder.emit(op.subtract(x, const(np.array([np.inf, 0.0, 0.0], "float32"))), "masked")
            out = builder.emit_output(op.multiply(op.log(op.subtract(op.exp(masked), 1.0)), w), "out")
        builder.emit_func_output(out)
    module = builder.get().with_attrs({"param_num": 1, "state_num": 0})
    trainer = make_trainer(module, MSELoss(), SGD(0.1), target="debug")
    with pytest.raises(UserError, match=r"the first NaN is .* = log\("):
        trainer.fit(np.ones((2, 3), "float32"), np.zeros((2, 3), "float32"), verbose=0, detect_nan=True)
