"""With what parameters begin: weights drawn, biases zeros, whatever their rank."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.relax import BlockBuilder, TensorStructInfo, Var, op
from pullback.relax.training.initialize import generator, xavier_uniform
from pullback.relax.training.interface import Slot
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.optimizer import SGD


def trainer_of(bias: tuple[int, ...], head: tuple[int, ...]) -> pullback.relax.training.Trainer:
    """A convolution with a bias, a second one with the weight ``head``."""
    shapes = {"x": (2, 3, 6, 6), "w": (4, 3, 3, 3), "b": bias, "h": head}
    params = [Var(name, TensorStructInfo(shape)) for name, shape in shapes.items()]
    x, w, b, h = params
    builder = BlockBuilder()
    with builder.function("backbone", params):
        with builder.dataflow():
            y = builder.emit(op.nn.relu(op.add(op.nn.conv2d(x, w), b)))
            y = builder.emit(op.nn.conv2d(y, h))
            out = builder.emit_output(op.reshape(y, (2, 16 * head[0])))
        builder.emit_func_output(out)
    module = builder.get().with_attrs({"param_num": 3, "state_num": 0})
    return pullback.trainer(module, CrossEntropyLoss(), SGD(0.1), seed=0)


@pytest.mark.parametrize("bias", [(4, 1, 1), (1, 4, 1, 1), (1, 1, 1, 1), (1,), ()])
def test_biases_are_zeros(bias: tuple[int, ...]) -> None:
    assert (trainer_of(bias, (2, 4, 1, 1)).params["b"].numpy() == 0).all()


def test_what_is_added_along_two_axes_is_drawn() -> None:
    assert (trainer_of((4, 4, 1), (2, 4, 1, 1)).params["b"].numpy() != 0).all()


def test_a_weight_along_one_axis_is_drawn() -> None:
    """A 1x1 convolution to one channel has the shape of a bias, and is none."""
    found = trainer_of((4, 1, 1), (1, 4, 1, 1)).params["h"].numpy()
    assert (found != 0).all() and np.abs(found).max() <= np.sqrt(6 / 5)


@pytest.mark.parametrize("shape, fans", [
    ((64, 32), 96), ((32, 64), 96), ((24, 8, 3, 3), 32 * 9), ((8, 24, 5), 32 * 5), ((4, 6, 2, 3, 4), 10 * 24),
])  # fmt: skip
def test_the_bound_is_that_of_both_fans(shape: tuple[int, ...], fans: int) -> None:
    """Kernel positions multiply both fans; enough numbers are drawn to come near the bound, and none passes it."""
    slot = Slot("parameter", "w", TensorStructInfo(shape, "float32"))
    values = np.concatenate([xavier_uniform(slot, generator(seed)).numpy().ravel() for seed in range(8)])
    bound = np.sqrt(6 / fans)
    assert np.float32(bound) >= np.abs(values).max() > 0.99 * bound and abs(values.mean()) < 0.1 * bound
    half = Slot("parameter", "w", TensorStructInfo(shape, "float16"))
    assert xavier_uniform(half, generator(1)).dtype == "float16"


def test_vectors_begin_at_zero() -> None:
    for shape in ((), (5,)):
        slot = Slot("parameter", "b", TensorStructInfo(shape, "float32"))
        assert not xavier_uniform(slot, generator(1)).numpy().any()
