"""Modules whose forward pass calls itself, against the same one written out by Python."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.optim import Adam
from pullback.relax import BlockBuilder, Var
from pullback.script import relax as R

COUNT = R.Tensor((), "int64")


class Tree(nn.Module):
    """Complete trees of 15 nodes: what a node is comes of those under it, and at last a class of the root."""

    def __init__(self):
        self.left, self.right, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def inner(self, own, left, right):
        return R.tanh(own + self.left(left) + self.right(right))


class Recursive(Tree):
    def forward(self, x):
        def node(node, k):
            own = R.take(x, k, axis=1)
            return R.cond(k < 7, lambda: self.inner(own, node(k * 2 + 1), node(k * 2 + 2)), lambda: own)

        root = R.recursive(node, (COUNT,), R.Tensor((x.shape[0], 6), "float32"))
        return self.head(root(R.const(0)))


class WrittenOut(Tree):
    def forward(self, x):
        def node(k):
            own = x[:, k]
            return self.inner(own, node(k * 2 + 1), node(k * 2 + 2)) if k < 7 else own

        return self.head(node(0))


def test_training():
    """The losses of all epochs, and the parameters after them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 15, 6)).astype("float32")
    y = (x[..., 0].sum(1) > 0).astype("int64") + (x[..., 1].sum(1) > 0)
    trained = []
    for module in (Recursive(), WrittenOut()):
        trainer = pullback.trainer(module, "cross_entropy", Adam(0.01), example=x[:32], seed=0)
        trainer.fit(x, y, epochs=3, seed=1, verbose=0)
        trained.append((trainer.evaluate(x, y).loss, {k: v.numpy() for k, v in trainer.params.items()}))
    (loss, params), (other_loss, others) = trained
    assert loss == pytest.approx(other_loss, rel=1e-4)
    assert list(params) == list(others)
    for name, value in params.items():
        np.testing.assert_allclose(value, others[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision(precision):
    """What a function takes and gives keeps its type."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 15, 6)).astype("float32")
    y = (x[..., 0].sum(1) > 0).astype("int64")
    losses = []
    for module in (Recursive(), WrittenOut()):
        trainer = pullback.trainer(module, "cross_entropy", Adam(0.01), example=x, seed=0, precision=precision)
        losses.append([float(trainer.update(x, y)) for _ in range(3)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=5e-3)
    assert losses[0][-1] < losses[0][0]


def test_recursive_functions_outside_of_scripts():
    builder, n = BlockBuilder(), Var("n", COUNT)
    with builder.function("main", [n]):
        fibonacci = R.recursive(lambda f, n: R.cond(n < 2, lambda: n, lambda: f(n - 1) + f(n - 2)), (COUNT,), COUNT)
        builder.emit_func_output(builder.emit(fibonacci(n)))
    native = pullback.compile(builder.get()).function("main")
    assert [native(np.array(k)).numpy().item() for k in range(12)] == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]


def test_what_recursive_takes():
    with pytest.raises(UserError, match="recursive is called where no function is built"):
        R.recursive(lambda f, n: n, (COUNT,), COUNT)
    builder, n = BlockBuilder(), Var("n", COUNT)
    with builder.function("main", [n]):
        with pytest.raises(ArgumentError, match="function must be a function, got 3"):
            R.recursive(3, (COUNT,), COUNT)
        with pytest.raises(ShapeError, match=r"was said to give Tensor\(\(\), int64\)"):
            R.recursive(lambda f, n: R.astype(n, "float32"), (COUNT,), COUNT)
        builder.emit_func_output(n)
