"""Values that are used again and again, each by the next: a tree of them has 2 to the power of n nodes, a graph n."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pullback
from pullback import relax, te, tir
from pullback.ir import IRModule
from pullback.relax import op
from pullback.relax.expr import Expr
from pullback.relax.op import register_op
from pullback.relax.transform import Gradient, LegalizeOps

TIMES = 40
SHAPE = (16, 16)
X = np.random.default_rng(0).uniform(0.5, 1.5, SHAPE).astype(np.float32)


def step(y: Expr) -> Expr:
    return y * 0.5 + op.abs(y) * 0.5


ENDS: dict[str, Callable[[Expr], Expr]] = {
    "sum": op.sum,
    "sums of sums": lambda y: op.sum(op.sum(y, axis=1)),
    "mean": lambda y: op.mean(y * y),
    "softmax": lambda y: op.sum(op.nn.softmax(y) * y),
    "maxima": lambda y: op.sum(op.max(y, axis=0)),
    "product": lambda y: op.sum(op.matmul(y, y)),
    "turned": lambda y: op.sum(op.permute_dims(y) * y),
    "scan": lambda y: op.sum(op.cumsum(y, axis=1)),
    "window": lambda y: op.sum(op.nn.avg_pool2d(op.reshape(y, (1, 1, *SHAPE)), (3, 3))),
    "norm": lambda y: op.sum(op.nn.layer_norm(y, op.ones((16,)), op.zeros((16,)), axes=[-1]) * y),
    "rows": lambda y: op.sum(op.take(y, relax.const(np.array([1, 3, 3])), axis=0)),
}


def module_of(function: Callable[[Expr], Expr], emitted: bool = True) -> IRModule:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo(SHAPE, "float32"))
    with builder.function("main", [x]), builder.dataflow():
        y: Expr = x
        for _ in range(TIMES):
            y = builder.emit(step(y)) if emitted else step(y)
        builder.emit_func_output(builder.emit_output(function(y)))
    return builder.get()


def agree(module: IRModule) -> None:
    (a, (da,)), (b, (db,)) = (
        pullback.compile(module, target).function("main_adjoint")(X) for target in ("debug", "llvm")
    )
    np.testing.assert_allclose(a, b, rtol=1e-4)
    np.testing.assert_allclose(da, db, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("end", ENDS)
def test_before_what_sums_up(end: str) -> None:
    agree(Gradient("main")(module_of(ENDS[end])))


HALF = SHAPE[0] // 2
MOVES: dict[str, Callable[[Expr], Expr]] = {  # each element is used at two places
    "rolled": lambda y: op.roll(y, 1, 0),
    "flipped": lambda y: op.flip(y, 0),
    "turned": op.permute_dims,
    "padded": lambda y: op.nn.pad(y, [(1, 0), (0, 0)])[:-1],
    "halves exchanged": lambda y: op.concat([y[HALF:], y[:HALF]], axis=0),
    "parts exchanged": lambda y: op.concat(list(op.split(y, 2, 0))[::-1], axis=0),
    "repeated": lambda y: op.repeat(y[:HALF], 2, 0),
    "tiled": lambda y: op.tile(y[:HALF], (2, 1)),
    "taken": lambda y: op.take(y, relax.const(np.arange(SHAPE[0])[::-1].copy()), axis=0),
    "a row": lambda y: y[0:1],
    "reshaped": lambda y: op.reshape(op.reshape(y, (SHAPE[0] * SHAPE[1],)), SHAPE),
}


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("move", MOVES)
def test_at_several_places(move: str, summed: bool) -> None:
    """As in a simulation: each step reads neighbours."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo(SHAPE, "float32"))
    with builder.function("main", [x]), builder.dataflow():
        y: Expr = x
        for _ in range(20):
            y = builder.emit((y + MOVES[move](y)) * 0.5)
        builder.emit_func_output(builder.emit_output(op.sum(y * y) if summed else y))
    if summed:
        agree(Gradient("main")(builder.get()))
    else:
        a, b = (pullback.compile(builder.get(), target).function("main")(X) for target in ("debug", "llvm"))
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_without_names() -> None:
    agree(Gradient("main")(module_of(op.sum, emitted=False)))


@pytest.fixture(scope="module")
def solver() -> pullback.ir.Op:
    """An op whose formula is a loop of Python: Newton's iterations for the square root, three uses in each."""

    def root(x: te.Tensor) -> te.Tensor:
        def element(*i: tir.Var) -> tir.PrimExpr:
            y: tir.PrimExpr = tir.const(1.0, x.dtype)
            for _ in range(TIMES // 2):
                y = (y + x[i] / y) * 0.5 + (y - y)
            return y

        return te.compute(x.shape, element)

    return register_op("own.repeated_root")(root)


def test_in_the_formula_of_an_own_op(solver: pullback.ir.Op) -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo(SHAPE, "float32"))
    with builder.function("main", [x]), builder.dataflow():
        builder.emit_func_output(builder.emit_output(op.sum(solver(x))))
    module = Gradient("main")(builder.get())
    agree(module)
    value, (dx,) = pullback.compile(module).function("main_adjoint")(X)
    np.testing.assert_allclose(value, np.sqrt(X.astype(np.float64)).sum(), rtol=1e-5)
    np.testing.assert_allclose(dx, 0.5 / np.sqrt(X), rtol=1e-4)
    assert len(LegalizeOps()(builder.get()).script()) < 50_000


def test_texts_have_each_value_once() -> None:
    y: Expr = relax.Var("x", relax.TensorStructInfo(SHAPE, "float32"))
    for _ in range(TIMES):
        y = y + y
    lines = str(y).splitlines()
    assert lines[:2] == ["gv = R.add(x, x)", "gv_1 = R.add(gv, gv)"] and len(lines) == TIMES + 1
    assert len(repr(y)) < 5000


def test_outlines_of_nodes() -> None:
    x, i = relax.Var("x", relax.TensorStructInfo((3,), "float32")), tir.Var("i")
    assert repr(x) == "Var(name='x', info=Tensor((3,), float32))"
    assert repr(i + 1) == "Binary(kind='add', a=Var(name='i', type='int64'), b=IntImm(value=1, type='int64'))"
    deep: tir.PrimExpr = i
    for _ in range(20_000):
        deep = deep + i
    assert repr(deep).count("Binary(") == 5 and "Binary(…)" in repr(deep)
    assert repr(relax.Tuple([x] * 9)).endswith("…))")


@pytest.mark.parametrize("size", [3, 16, 64])
def test_a_scalar_as_a_matrix(size: int) -> None:
    """A product with a matrix that is one number everywhere."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((size, size), "float32"))
    s = relax.Var("s", relax.TensorStructInfo((), "float32"))
    with builder.function("main", [x, s]):
        whole = builder.emit(op.broadcast_to(s, (size, size)))
        y = builder.emit(op.nn.relu(op.matmul(x, whole)))
        builder.emit_func_output(builder.emit(op.matmul(whole, y)))
    a, b = np.random.default_rng(0).random((size, size), "float32"), np.full((size, size), 0.5, "float32")
    found = pullback.compile(builder.get()).function("main")(a, np.float32(0.5))
    np.testing.assert_allclose(found.numpy(), b @ np.maximum(a @ b, 0), rtol=1e-5)
