"""Steps that return their predictions: the same training, and what the model returned in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback.driver.pipeline import plan_function, prepare
from pullback.ir import ArgumentError, IRModule
from pullback.relax import BlockBuilder, TensorStructInfo, Tuple, Var, op
from pullback.relax.convention import ADJOINT, OUTPUT, STEP, Convention
from pullback.relax.training import SetupTrainer, Trainer
from pullback.relax.training.loss import CrossEntropyLoss, MSELoss
from pullback.relax.training.observation import observed
from pullback.relax.training.optimizer import SGD, Accumulate, Adam
from pullback.script import from_source
from pullback.target import Target
from pullback.tir import Var as SizeVar
from tests.relax.training.models import classes, mlp, params, trainer_of, with_state

X, Y = classes(30)  # three batches of eight and one of six


def noisy(batch: Any = 8) -> IRModule:
    """Batch norm, whose statistics in training are the batch's, and dropout."""
    x, w = Var("x", TensorStructInfo((batch, 20))), Var("w", TensorStructInfo((20, 5)))
    rest = [Var(name, TensorStructInfo((5,))) for name in ("gamma", "beta", "mean", "var")]
    builder = BlockBuilder()
    with builder.function("backbone", [x, w, *rest]):
        with builder.dataflow():
            normed = builder.emit(op.nn.batch_norm(op.nn.dropout(op.matmul(x, w), rate=0.4)[0], *rest, axis=1))
            out, mean, var = (builder.emit_output(normed[k]) for k in range(3))
        builder.emit_func_output(Tuple((out, mean, var)))
    return builder.get().with_attrs({"param_num": 3, "state_num": 2})


def seen_in_training(trainer: Trainer, x: Any, y: Any, **options: Any) -> np.ndarray:
    """The predictions that the steps of an epoch made."""
    kept: list[np.ndarray] = []

    def keep(wanted: np.ndarray, found: np.ndarray) -> float:
        kept.append(found)
        return 0.0

    needs = pullback.training.metrics.Metric(keep, needs="outputs")
    trainer.fit(x, y, shuffle=False, train_metrics=True, metrics=[needs], verbose=0, **options)
    (found,) = kept
    return found


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize("batch", [8, SizeVar("n", "int64")], ids=["fixed", "symbolic"])
def test_they_are_those_of_the_form_for_training(target: str, batch: Any) -> None:
    """Dropout drops what it drops in the loss, and batch norm normalises with the batch: loss and outputs agree."""
    one = {"loss": MSELoss("sum"), "optimizer": SGD(0.0)}
    trainer, plain = (trainer_of(target, model=noisy(batch), **one) for _ in range(2))
    y = np.random.default_rng(0).standard_normal((30, 5)).astype(np.float32)
    found = seen_in_training(trainer, X, y, batch_size=8)
    plain.fit(X, y, shuffle=False, batch_size=8, verbose=0)
    assert ((found - y) ** 2).sum() / 30 == pytest.approx(trainer.history[0].loss, rel=1e-5)
    assert trainer.history[0].loss == pytest.approx(plain.history[0].loss, rel=1e-5)
    for name, value in plain.states.items():
        np.testing.assert_allclose(trainer.states[name].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[:8].mean(0), 0, atol=1e-5)
    again = seen_in_training(trainer, X, y, batch_size=8)
    assert not np.allclose(found, again), "another step drops others"


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": Adam(0.01)},
        {"optimizer": Accumulate(SGD(0.1), 2)},
        {"precision": "bfloat16"},
        {"precision": "float16"},
        {"loss": CrossEntropyLoss("sum", ignore_index=3)},
    ],
    ids=["Adam", "Accumulate", "bfloat16", "float16", "ignored"],
)
def test_training_is_the_same(options: dict[str, Any]) -> None:
    trainer, plain = (trainer_of("llvm", **options) for _ in range(2))
    trainer.fit(X, Y, epochs=2, seed=1, train_metrics=True, verbose=0)
    plain.fit(X, Y, epochs=2, seed=1, verbose=0)
    rough = "precision" in options
    for a, b in zip(params(trainer), params(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2 if rough else 1e-5, atol=1e-3 if rough else 1e-6)
    assert trainer.history["loss"] == pytest.approx(plain.history["loss"], rel=1e-2 if rough else 1e-5)
    assert trainer.history["accuracy"][1] > 0 and trainer.steps == plain.steps == 8


def test_the_model_runs_once() -> None:
    """What predictions and gradients have in common is one computation."""
    setup = SetupTrainer(CrossEntropyLoss(), SGD(0.1), [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")])
    module = setup(mlp())
    plain, watched = (plan_function(prepare(m), STEP, {}, Target("llvm")) for m in (module, observed(module)))
    assert len(watched.outputs) == len(plain.outputs) + 1
    assert len(watched.steps) <= len(plain.steps) + 1


@pytest.mark.parametrize("legalize", [False, True])
def test_modules_in_any_form(legalize: bool) -> None:
    """Legalised, printed and read; the convention says what the step returns."""
    infos = [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")]
    module = from_source(SetupTrainer(CrossEntropyLoss(), SGD(0.05), infos, legalize)(mlp()).script())
    convention = Convention.of(observed(module))
    assert convention[STEP].returns[:3] == (("loss", 0), ("divisor", 0), (OUTPUT, 0))
    assert convention[ADJOINT] == Convention.of(module)[ADJOINT]
    assert Convention.of(from_source(observed(module).script())) == convention
    trainer = Trainer(module, pullback.VirtualMachine(pullback.compile(module, "debug"), pullback.cpu()))
    trainer.load_params(trainer_of().params)
    plain = trainer_of()
    found = seen_in_training(trainer, X[:14], Y[:14])
    np.testing.assert_allclose(found, seen_in_training(plain, X[:14], Y[:14]), rtol=1e-5, atol=1e-6)


def test_the_first_of_several_outputs() -> None:
    trainer = trainer_of("llvm", MSELoss(), SGD(0.1), with_state())
    x = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    before = trainer.predict(x[:4])
    found = seen_in_training(trainer, x, np.zeros((8, 2), np.float32))
    np.testing.assert_allclose(found[:4], before[0] if isinstance(before, tuple) else before, rtol=1e-6)
    assert trainer.states["calls"].item() == 2


def test_a_step_that_fails_is_named() -> None:
    """As in test_fit.py, where nothing is observed."""
    table = Var("table", TensorStructInfo((10, 5)))
    tokens = Var("tokens", TensorStructInfo((4,), "int64"))
    builder = BlockBuilder()
    with builder.function("backbone", [tokens, table]):
        with builder.dataflow():
            out = builder.emit_output(op.take(table, tokens, 0), "out")
        builder.emit_func_output(out)
    model = builder.get().with_attrs({"param_num": 1, "state_num": 0})
    trainer = trainer_of("llvm", MSELoss(), Adam(0.1), model)
    given = np.arange(12) % 10
    given[9] = 10
    with pytest.raises(ArgumentError, match=r"^step 3: .*take"):
        trainer.fit(given, np.ones((12, 5)), shuffle=False, train_metrics=True, metrics=["mae"], verbose=0)
    assert trainer.steps == 2 and trainer.epochs == 0
