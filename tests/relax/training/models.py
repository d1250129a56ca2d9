"""Small models and data for the training tests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir import IRModule
from pullback.relax import BlockBuilder, TensorStructInfo, Tuple, Var, op
from pullback.relax.training import Trainer, make_trainer
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.optimizer import SGD

SIZES = (20, 16, 12, 5)


def mlp(batch: Any = 8, sizes: Sequence[int] = SIZES, dtype: str = "float32") -> IRModule:
    """A perceptron: relu between the layers; parameters w0, b0, w1, …"""
    x = Var("x", TensorStructInfo((batch, sizes[0]), dtype))
    params = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        params += [Var(f"w{i}", TensorStructInfo((inputs, outputs), dtype))]
        params += [Var(f"b{i}", TensorStructInfo((outputs,), dtype))]
    builder = BlockBuilder()
    with builder.function("backbone", [x, *params]):
        with builder.dataflow():
            value: Any = x
            for i in range(len(sizes) - 1):
                value = op.add(op.matmul(value, params[2 * i]), params[2 * i + 1])
                value = builder.emit(op.nn.relu(value)) if i < len(sizes) - 2 else value
            out = builder.emit_output(value, "out")
        builder.emit_func_output(out)
    return builder.get().with_attrs({"param_num": len(params), "state_num": 0})


def with_state(batch: int = 4, dtype: str = "float32") -> IRModule:
    """A linear model that also counts its calls and remembers its last prediction's sum: two states."""
    x, w = Var("x", TensorStructInfo((batch, 3), dtype)), Var("w", TensorStructInfo((3, 2), dtype))
    calls, seen = Var("calls", TensorStructInfo((), "int64")), Var("seen", TensorStructInfo((2,), dtype))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w, calls, seen]):
        with builder.dataflow():
            out = builder.emit_output(op.matmul(x, w), "out")
            new_calls = builder.emit_output(op.add(calls, 1), "new_calls")
            new_seen = builder.emit_output(op.sum(out, 0), "new_seen")
        builder.emit_func_output(Tuple((out, new_calls, new_seen)))
    return builder.get().with_attrs({"param_num": 1, "state_num": 2})


def classes(rows: int, inputs: int = SIZES[0], outputs: int = SIZES[-1], dtype: str = "float32") -> tuple[Any, Any]:
    """Rows and the class labels that a hidden linear model gives them."""
    generator = np.random.default_rng(3)
    x = generator.standard_normal((rows, inputs)).astype(dtype)
    return x, (x @ generator.standard_normal((inputs, outputs))).argmax(1)


def trainer_of(
    target: str = "debug", loss: Any = None, optimizer: Any = None, model: Any = None, **options: Any
) -> Trainer:
    """A trainer of a model, an ``mlp()`` if none is given, whose parameters are the same at every call."""
    loss, optimizer = loss or CrossEntropyLoss(), optimizer or SGD(0.05)
    return make_trainer(model or mlp(), loss, optimizer, target=target, seed=2, **options)


def params(trainer: Trainer) -> list[np.ndarray]:
    return [value.numpy() for value in trainer.params.values()]


def assert_same(first: list[np.ndarray], second: list[np.ndarray]) -> None:
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
