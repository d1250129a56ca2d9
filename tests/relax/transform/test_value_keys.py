"""Which values are common subexpressions: whatever makes a difference is in the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback import tir
from pullback.ir import GlobalVar, IRModule, Op
from pullback.relax import BlockBuilder, Call, Constant, TensorStructInfo, Tuple, TupleGetItem, Var, op
from pullback.relax.interpreter import evaluate
from pullback.relax.transform import EliminateCommonSubexpr
from pullback.relax.transform.eliminate_common_subexpr import value_key
from pullback.target import Target

N, M = tir.Var("n"), tir.Var("m")


def var(name: str, *shape: Any, dtype: str = "float32") -> Var:
    return Var(name, TensorStructInfo(shape, dtype))


X, Y, K = var("x", 4, 4), var("y", 4, 4), var("k", 4, dtype="int64")
WIDE, SINGLE = TensorStructInfo((4,), "float64"), TensorStructInfo((4,), "float32")


def constant(values: Any, dtype: str) -> Constant:
    return Constant(np.array(values, dtype))


def kernel(name: str, out: Any, *arguments: Var) -> Call:
    return op.call_tir(GlobalVar(name), list(arguments), out)


@pytest.mark.parametrize("first, second", [
    (lambda: op.exp(X), lambda: op.exp(Y)),
    (lambda: op.exp(X), lambda: op.log(X)),
    (lambda: op.subtract(X, Y), lambda: op.subtract(Y, X)),
    (lambda: op.sum(X, 0), lambda: op.sum(X, 1)),
    (lambda: op.sum(X, 0), lambda: op.sum(X, 0, keepdims=True)),
    (lambda: op.sum(X, 0), lambda: op.sum(X, (0, 1))),
    (lambda: op.full((4,), 0.0), lambda: op.full((4,), -0.0)),
    (lambda: op.full((4,), 1.0), lambda: op.full((4,), 1.0, "float64")),
    (lambda: op.reshape(X, (16,)), lambda: op.reshape(X, (2, 8))),
    (lambda: op.broadcast_to(var("a", 1), (N,)), lambda: op.broadcast_to(var("a", 1), (M,))),
    (lambda: op.astype(X, "float16"), lambda: op.astype(X, "bfloat16")),
    (lambda: op.add(X, constant(0, "float32")), lambda: op.add(X, constant(-0.0, "float32"))),
    (lambda: op.add(X, constant([1.0], "float32")), lambda: op.add(X, constant([[1.0]], "float32"))),
    (lambda: op.add(X, constant([1.0], "float32")), lambda: op.add(X, constant([2.0], "float32"))),
    (lambda: op.concat([X, Y]), lambda: op.concat([Y, X])),
    (lambda: op.concat([X, Y]), lambda: op.concat([X, Y, X])),
    (lambda: op.split(X, 2), lambda: op.split(X, [2])),
    (lambda: TupleGetItem(op.split(X, 2), 0), lambda: TupleGetItem(op.split(X, 2), 1)),
    (lambda: kernel("f", SINGLE, K), lambda: kernel("g", SINGLE, K)),
    (lambda: kernel("f", SINGLE, K), lambda: kernel("f", WIDE, K)),
    (lambda: kernel("f", SINGLE, K), lambda: kernel("f", [SINGLE, SINGLE], K)),
    (lambda: Call(Op.get("exp"), (X,), {"note": 1}), lambda: Call(Op.get("exp"), (X,), {"note": True})),
    (lambda: Call(Op.get("exp"), (X,), {"note": 1}), lambda: Call(Op.get("exp"), (X,), {"other": 1})),
    (lambda: Call(Op.get("exp"), (X,), {"note": (1, 2)}), lambda: Call(Op.get("exp"), (X,), {"note": (12,)})),
])  # fmt: skip
def test_what_makes_a_difference(first: Callable[[], Any], second: Callable[[], Any]) -> None:
    assert value_key(first()) != value_key(second())


@pytest.mark.parametrize("dtypes", [
    ("float32", "int32"), ("float32", "uint32"), ("int64", "float64"), ("int8", "bool"), ("float16", "bfloat16"),
])  # fmt: skip
def test_constants_of_equal_bytes_are_others(dtypes: tuple[str, str]) -> None:
    """Zeros, of which all types have the same bytes."""
    from pullback.runtime.dtype import numpy_dtype

    keys = [value_key(Constant(np.zeros(3, numpy_dtype(dtype)))) for dtype in dtypes]
    assert keys[0] != keys[1]
    with_them = [value_key(Tuple((Constant(np.zeros(3, numpy_dtype(dtype))),))) for dtype in dtypes]
    assert with_them[0] != with_them[1]


def test_what_makes_none() -> None:
    a = var("a", 1)
    for build in (
        lambda: op.add(X, constant([1.0], "float32")),
        lambda: op.broadcast_to(a, (N * 2,)),
        lambda: op.exp(X),
    ):
        assert value_key(build()) == value_key(build())
    assert value_key(op.broadcast_to(a, (N + N,))) == value_key(op.broadcast_to(a, (N * 2,)))


def merged(*values: Any, dataflow: bool = True) -> tuple[IRModule, IRModule]:
    """A function of several values before and after."""
    builder = BlockBuilder()
    with builder.function("main", [X, Y]):
        with builder.dataflow():
            found = [builder.emit(v) for v in values]
            out = builder.emit_output(op.concat(found))
        builder.emit_func_output(out)
    module = builder.get()
    return module, EliminateCommonSubexpr()(module)


def test_the_first_of_equal_values_stays() -> None:
    before, after = merged(op.exp(X), op.exp(Y), op.exp(X), op.subtract(X, Y), op.subtract(Y, X), op.subtract(X, Y))
    assert len(list(before["main"].bindings)) - len(list(after["main"].bindings)) == 2
    arrays = [np.random.default_rng(k).standard_normal((4, 4)).astype("float32") for k in range(2)]
    np.testing.assert_array_equal(evaluate(before, "main", arrays), evaluate(after, "main", arrays))


def test_constants_of_other_types_are_not_merged() -> None:
    zero, none = constant(np.zeros((4, 4)), "float32"), constant(np.zeros((4, 4)), "int32")
    before, after = merged(
        op.add(X, zero), op.astype(op.add(none, none), "float32"), op.add(X, op.astype(none, "float32"))
    )
    arrays = [np.full((4, 4), 2.0, "float32")] * 2
    np.testing.assert_array_equal(evaluate(before, "main", arrays), evaluate(after, "main", arrays))


def test_all_of_a_target_is_in_its_key() -> None:
    base = "llvm -mtriple=x86_64-unknown-linux-gnu"
    others = [base, f"{base} -mcpu=znver4", f"{base} -mcpu=haswell", f"{base} -mcpu=znver4 -mattr=-avx512f",
              "llvm -mtriple=aarch64-unknown-linux-gnu", "llvm"]  # fmt: skip
    keys = {Target(text).key for text in others}
    assert len(keys) >= 5 and Target(base).key == Target(base).key
    found = Target(f"{base} -mcpu=znver4 -mattr=-avx512f,+sse3")
    for part in (found.kind, found.triple, found.cpu, *found.features):
        assert part in found.key
    twice = [Target(f"{base} -mattr={text}").key for text in ("+avx,-sse3", "-sse3,+avx")]
    assert twice[0] == twice[1]
