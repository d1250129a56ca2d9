"""What the small passes leave alone, since it would change a bit: each pair of programs differs in one thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback.ir import IRModule, structural_equal
from pullback.relax import BlockBuilder, Tuple, Var, const
from pullback.relax.expr import Call, Expr
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.namespace import ops
from pullback.relax.transform import (
    DeadCodeElimination,
    EliminateCommonSubexpr,
    FoldConstant,
    FoldTranspose,
    Simplify,
)

X = np.array([[-0.0, 1.5], [np.nan, -3.0]], np.float32)
F32 = np.float32


def module_of(f: Callable[..., Any], *values: np.ndarray) -> IRModule:
    """``main`` = f, its calls and those of its operands emitted."""
    params = [Var(f"x{k}", value_info(v)) for k, v in enumerate(values)]
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            found = f(*params)
            fields = found if isinstance(found, tuple) else (found,)
            results = [builder.emit_output(builder.emit(v) if isinstance(v, Call) else v) for v in fields]
        builder.emit_func_output(Tuple(tuple(results)) if isinstance(found, tuple) else results[0])
    return builder.get()


def calls(module: IRModule) -> list[str]:
    return [b.value.op.short for b in module["main"].bindings if isinstance(b.value, Call)]


def check(step: Any, f: Callable[..., Any], *values: np.ndarray) -> list[str]:
    """The names of the calls after the pass, which changes no bit of the results."""
    before = module_of(f, *values)
    after = step(before)
    with np.errstate(all="ignore"):
        results = [evaluate(m, "main", list(values)) for m in (before, after)]
    for old, new in zip(*(r if isinstance(r, tuple) else (r,) for r in results), strict=True):
        assert np.asarray(old).tobytes() == np.asarray(new).tobytes()
    return calls(after)


# -- Simplify


@pytest.mark.parametrize("name", ["multiply", "divide", "power"])
@pytest.mark.parametrize("other", [2.0, -1.0, 0.0])
def test_one_element_that_is_not_neutral_counts(name: str, other: float) -> None:
    op = getattr(ops, name)
    for row in ([1.0, other], [other, 1.0]):
        assert check(Simplify(), lambda x, row=row: op(x, const(F32(row))), X) == [name]
    assert check(Simplify(), lambda x: op(x, const(F32([1.0, 1.0]))), X) == []


def test_factors_before_and_differences() -> None:
    assert check(Simplify(), lambda x: const(F32([1.0, 2.0])) * x, X) == ["multiply"]
    assert check(Simplify(), lambda x: const(F32([1.0, 1.0])) * x, X) == []
    assert check(Simplify(), lambda x: const(F32(1.0)) / x, X) == ["divide"]
    assert check(Simplify(), lambda x: const(F32(0.0)) - x, X) == ["subtract"]
    assert check(Simplify(), lambda x: x - const(F32([0.0, 1.0])), X) == ["subtract"]
    assert check(Simplify(), lambda x: x - const(F32([0.0, 0.0])), X) == []


def test_zeros_with_a_sign() -> None:
    assert check(Simplify(), lambda x: x - const(F32(-0.0)), X) == ["subtract"]
    assert check(Simplify(), lambda x: x - const(F32([0.0, -0.0])), X) == ["subtract"]
    assert "subtract" in check(Simplify(), lambda x: x - ops.full((2, 2), -0.0, "float32"), X)
    assert check(Simplify(), lambda x: x - ops.full((2, 2), 0.0, "float32"), X) == []
    assert check(Simplify(), lambda x: x + const(F32(0.0)), X) == ["add"]


def test_filled_values_are_told_apart() -> None:
    for fill, left in ((1.0, []), (2.0, ["full", "multiply"]), (0.0, ["full", "multiply"])):
        assert check(Simplify(), lambda x, fill=fill: x * ops.full((2, 2), fill, "float32"), X) == left
    assert check(Simplify(), lambda x: x * ops.zeros((2, 2), "float32"), X) == ["zeros", "multiply"]
    assert check(Simplify(), lambda x: x * ops.broadcast_to(ops.ones((1, 2), "float32"), (2, 2)), X) == []
    assert "multiply" in check(Simplify(), lambda x: x * ops.ones((3, 2, 2), "float32"), X)  # of another shape


def test_casts_that_round_stay() -> None:
    wide = X.astype(np.float64) + 1e-9
    assert check(Simplify(), lambda x: x.astype("float16").astype("float32"), X) == ["astype", "astype"]
    assert check(Simplify(), lambda x: x.astype("float32").astype("float64"), wide) == ["astype", "astype"]
    assert check(Simplify(), lambda x: x.astype("float32").astype("float16"), wide) == ["astype", "astype"]
    assert check(Simplify(), lambda x: x.astype("float64").astype("float16"), X) == ["astype"]
    assert check(Simplify(), lambda x: x.astype("bfloat16").astype("float16"), X) == ["astype", "astype"]
    assert check(Simplify(), lambda x: x.astype("int32").astype("float32"), X) == ["astype", "astype"]


def test_other_shapes_and_orders_stay() -> None:
    assert check(Simplify(), lambda x: ops.permute_dims(x, (1, 0)), X) == ["permute_dims"]
    assert check(Simplify(), lambda x: ops.permute_dims(x, (0, -1)), X) == []
    assert check(Simplify(), lambda x: ops.reshape(x, (1, 4)), X) == ["reshape"]
    assert check(Simplify(), lambda x: ops.broadcast_to(x, (1, 2, 2)), X) == ["broadcast_to"]


# -- EliminateCommonSubexpr

ONE = F32(1.0)
PAIRS: dict[str, tuple[Callable[..., Expr], Callable[..., Expr]]] = {
    "dtypes of constants": (
        lambda x: x + ops.astype(const(ONE), "float32"),
        lambda x: x + ops.astype(const(ONE.view(np.int32)), "float32"),
    ),
    "shapes of constants": (lambda x: x * const(F32([[2.0], [3.0]])), lambda x: x * const(F32([[2.0, 3.0]]))),
    "values of constants": (lambda x: x * const(F32(2.0)), lambda x: x * const(F32(3.0))),
    "signs of zeros": (lambda x: ops.atan2(x, const(F32(0.0))), lambda x: ops.atan2(x, const(F32(-0.0)))),
    "attributes": (lambda x: ops.sum(x, 0), lambda x: ops.sum(x, 1)),
    "types of attributes": (lambda x: ops.full((2,), 1), lambda x: ops.full((2,), True)),
    "order of operands": (lambda x: x - const(F32(2.0)), lambda x: const(F32(2.0)) - x),
    "ops": (ops.exp, ops.log),
    "dtypes of casts": (lambda x: x.astype("float16"), lambda x: x.astype("bfloat16")),
    "numbers in lists": (lambda x: ops.permute_dims(x, (0, 1)), lambda x: ops.permute_dims(x, (1, 0))),
}


@pytest.mark.parametrize("name", PAIRS)
def test_values_that_differ_are_not_merged(name: str) -> None:
    first, second = PAIRS[name]
    both = module_of(lambda x: (first(x), second(x)), X)
    assert check(EliminateCommonSubexpr(), lambda x: (first(x), second(x)), X) == calls(both)
    twice = module_of(lambda x: (first(x), first(x)), X)
    assert len(check(EliminateCommonSubexpr(), lambda x: (first(x), first(x)), X)) < len(calls(twice))


def test_parts_of_a_tuple_are_told_apart() -> None:
    builder = BlockBuilder()
    x = Var("x", value_info(X))
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = builder.emit(ops.split(x, 2, axis=0))
            first, second, again = (builder.emit(parts[k]) for k in (0, 1, 0))
            out = [builder.emit_output(ops.negative(v)) for v in (first, second, again)]
        builder.emit_func_output(Tuple(tuple(out)))
    module = builder.get()
    merged = EliminateCommonSubexpr()(module)
    for old, new in zip(evaluate(module, "main", [X]), evaluate(merged, "main", [X]), strict=True):
        np.testing.assert_array_equal(old, new)


# -- FoldConstant


def test_only_what_is_constant_and_small_is_folded() -> None:
    two = const(F32([1.0, 2.0]))
    assert check(FoldConstant(), lambda x: x + ops.exp(two), X) == ["add"]
    assert check(FoldConstant(), lambda x: x + ops.broadcast_to(two, (2, 2)), X) == ["broadcast_to", "add"]
    assert check(FoldConstant(), lambda x: x + ops.sum(two * two), X) == ["add"]
    assert check(FoldConstant(), lambda x: x * ops.where(const(np.bool_(True)), x, two), X) == ["where", "multiply"]


def test_folding_rounds_to_the_type() -> None:
    small = X[:1, :].astype(np.float16)
    third = const(np.float16(1.0)) / const(np.float16(3.0))
    assert check(FoldConstant(), lambda x: x * third, small) == ["multiply"]
    integers = const(np.int8(100)) + const(np.int8(100))
    assert check(FoldConstant(), lambda x: x + integers, np.zeros(2, np.int8)) == ["add"]


def test_what_fails_when_it_runs_is_not_folded() -> None:
    index = const(np.array([7]))
    module = module_of(lambda x: x + ops.take(const(F32([1.0, 2.0])), index, 0), X)
    assert calls(FoldConstant()(module)) == ["take", "add"]


# -- FoldTranspose

A, B = (np.arange(12.0, dtype=np.float32).reshape(s) for s in ((3, 4), (4, 3)))


def test_only_the_last_two_axes_are_a_transpose() -> None:
    cube = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    for axes in ((2, 1, 0), (1, 0, 2), (2, 0, 1)):
        twice = check(FoldTranspose(), lambda x, a=axes: ops.permute_dims(ops.permute_dims(x, a), a), cube)
        assert twice == ["permute_dims", "permute_dims"]
    assert check(FoldTranspose(), lambda x: ops.permute_dims(ops.permute_dims(x, (0, 2, 1)), (0, 2, 1)), cube) == []


def test_products_are_transposed_by_their_factors() -> None:
    found = check(FoldTranspose(), lambda a, b: ops.permute_dims(ops.matmul(a, b)), A, B)
    assert found == ["permute_dims", "permute_dims", "matmul"]
    found = check(FoldTranspose(), lambda a, b: ops.permute_dims(ops.matmul(ops.permute_dims(a), b)), B, B)
    assert found == ["permute_dims", "matmul"]


def test_a_product_with_another_reader_stays() -> None:
    def both(a: Expr, b: Expr) -> tuple[Expr, ...]:
        return ops.permute_dims(ops.matmul(a, b)), ops.matmul(a, b)

    builder = BlockBuilder()
    params = [Var(n, value_info(v)) for n, v in (("a", A), ("b", B))]
    with builder.function("main", params):
        with builder.dataflow():
            product = builder.emit(ops.matmul(*params))
            out = [builder.emit_output(f(product)) for f in (ops.permute_dims, ops.exp)]
        builder.emit_func_output(Tuple(tuple(out)))
    module = builder.get()
    assert calls(FoldTranspose()(module)) == ["matmul", "permute_dims", "exp"]


def test_the_type_of_a_product_is_kept() -> None:
    def product(a: Expr, b: Expr) -> Expr:
        return ops.permute_dims(ops.matmul(a, b, out_dtype="float64"))

    assert check(FoldTranspose(), product, A, B)[-1] == "matmul"


# -- DeadCodeElimination


def test_what_is_read_through_others_stays() -> None:
    def chain(x: Expr) -> Expr:
        return ops.exp(ops.negative(x))

    builder = BlockBuilder()
    x = Var("x", value_info(X))
    with builder.function("main", [x]):
        with builder.dataflow():
            dead = builder.emit(ops.exp(x))
            builder.emit(ops.log(dead))
            kept = builder.emit(ops.negative(x))
            alias = builder.emit(kept)
            out = builder.emit_output(ops.exp(alias))
        builder.emit_func_output(out)
    module = builder.get()
    after = DeadCodeElimination()(module)
    assert calls(after) == ["negative", "exp"]
    assert structural_equal(after, DeadCodeElimination()(after))
    np.testing.assert_array_equal(evaluate(after, "main", [X]), evaluate(module_of(chain, X), "main", [X]))
