"""Bounds of index expressions beside all values that they take."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from pullback.ir import ShapeError
from pullback.tir.bounds import check_bounds
from pullback.tir.expr import Binary, Buffer, IntImm, PrimExpr, Select, Var, const, maximum, minimum
from pullback.tir.extents import greatest, interval
from pullback.tir.interpreter import evaluate
from pullback.tir.polynomial import Polynomial, at_most, key, same, simplify
from pullback.tir.stmt import For, If, PrimFunc, store

I, J = Var("i"), Var("j")  # noqa: E741
EXTENTS = {I: 4, J: 3}


def values(expr: PrimExpr, known: dict[Var, range] | None = None) -> list[int]:
    """All that an expression takes over its variables."""
    ranges = known or {v: range(n) for v, n in EXTENTS.items()}
    return [int(evaluate(expr, dict(zip(ranges, point, strict=True)))) for point in itertools.product(*ranges.values())]


def drawn(rng: random.Random, depth: int, kinds: tuple[str, ...]) -> PrimExpr:
    """An expression of i and j; divisors are constants."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([I, J, const(rng.randint(-3, 5), "int64")])
    kind = rng.choice(kinds)
    if kind == "select":
        a, b = drawn(rng, depth - 1, kinds), drawn(rng, depth - 1, kinds)
        return Select(I < rng.randint(0, 4), a, b)  # noqa: SIM300
    a = drawn(rng, depth - 1, kinds)
    b = const(rng.randint(2, 4), "int64") if kind in ("floordiv", "floormod") else drawn(rng, depth - 1, kinds)
    return Binary(kind, a, b)


KINDS = ("add", "sub", "mul", "min", "max", "floordiv", "floormod", "select")


@pytest.mark.parametrize("seed", range(150))
def test_intervals_hold_all_values(seed: int) -> None:
    rng = random.Random(seed)
    expr = drawn(rng, 3, KINDS)
    found = interval(expr, {I: (0, 3), J: (0, 2)})
    taken = values(expr)
    assert found is not None and found[0] <= min(taken) and max(taken) <= found[1]
    most = greatest(expr, {I: const(4, "int64"), J: const(3, "int64")})
    assert most is not None and max(0, *taken) <= most


@pytest.mark.parametrize("expr, low, high", [
    (I - J, -2, 3), (J - I, -3, 2), (I * -2, -6, 0), ((I - 2) * (J - 1), -2, 2), (minimum(I, J), 0, 2),
    (maximum(I, J), 0, 3), (I // 2, 0, 1), ((I - 3) // 2, -2, 0), (I % 8, 0, 3), (I % 3, 0, 2), ((I - 1) % 4, 0, 3),
    (Select(I < 2, J, I + 5), 0, 8), ((I + 2) // (J + 1), 0, 5), ((I - 5) // (J + 1), -5, -1),
])  # fmt: skip
def test_intervals_are_tight(expr: PrimExpr, low: int, high: int) -> None:
    assert interval(expr, {I: (0, 3), J: (0, 2)}) == (low, high)


def test_what_is_not_known() -> None:
    assert interval(I + Var("n"), {I: (0, 3)}) is None and interval(I // J, {I: (0, 3), J: (0, 2)}) is None
    assert interval(Select(I < 2, Var("n"), I), {I: (0, 3)}) is None
    n, k = Var("n"), const(4, "int64")
    assert greatest(n, {}) is None
    assert greatest(minimum(n, 7), {}) == 7 and greatest(minimum(minimum(n, 9), 7 - I), {I: k}) == 7
    assert greatest(I - 9, {I: k}) == 0 and greatest(J, {I: k, J: I * 2}) == 5
    assert greatest(J, {I: n, J: I + 1}) is None and greatest(J, {J: const(0, "int64")}) == 0


def kernel(index: PrimExpr, size: int) -> PrimFunc:
    a = Buffer("A", (size,))
    loops = For(I, const(4, "int64"), For(J, const(3, "int64"), store(a, index, const(0.0, "float32"))))
    return PrimFunc("k", (a,), loops)


@pytest.mark.parametrize("seed", range(120))
def test_what_lies_outside_is_found_and_nothing_else(seed: int) -> None:
    """Of sums of loop variables times constants, each once: exactly when a value lies outside; of others never when
    none does."""
    rng = random.Random(seed)
    index = drawn(rng, 3, ("add", "sub", "mul"))
    taken = values(index)
    for size in {max(1, max(taken)), max(1, max(taken) + 1)}:
        inside = min(taken) >= 0 and max(taken) < size
        once = [n for n in _leaves(index) if isinstance(n, Var)]
        linear = len(once) == len(set(once)) and _is_linear(index)
        try:
            check_bounds(kernel(index, size))
        except ShapeError as error:
            assert not inside
            assert any(f"index {v} is" in str(error) for v in (min(taken), max(taken)))
        else:
            assert inside or not linear


def _leaves(expr: Any) -> list[PrimExpr]:
    return [*_leaves(expr.a), *_leaves(expr.b)] if isinstance(expr, Binary) else [expr]


def _is_linear(expr: PrimExpr) -> bool:
    if not isinstance(expr, Binary):
        return True
    constant = any(all(isinstance(n, IntImm) for n in _leaves(e)) for e in (expr.a, expr.b))
    return (expr.kind != "mul" or constant) and _is_linear(expr.a) and _is_linear(expr.b)


def test_edges_of_buffers() -> None:
    check_bounds(kernel(I * 3 + J, 12))
    check_bounds(kernel(11 - I * 3 - J, 12))
    for index, size, message in [
        (I * 3 + J, 11, "index 11 is outside axis 0 of A, which has 11 elements"),
        (I - 1, 12, "index -1 is outside axis 0 of A"),
        (10 - I * 3 - J, 12, "index -1 is outside"),
        (J - I + 2, 12, "index -1 is outside"),
        ((I - 3) * -4, 12, "index 12 is outside"),
    ]:
        with pytest.raises(ShapeError, match=message):
            check_bounds(kernel(index, size))
    a = Buffer("A", (4,))
    guarded = For(I, const(9, "int64"), If(I < 4, store(a, I, const(0.0, "float32"))))
    check_bounds(PrimFunc("k", (a,), guarded))
    a = Buffer("A", (Var("n"),))
    with pytest.raises(ShapeError, match="index -1 is outside axis 0 of A, which begins at 0"):
        check_bounds(PrimFunc("k", (a,), store(a, const(-1, "int64"), const(0.0, "float32"))))


# -- canonical forms


@pytest.mark.parametrize("seed", range(120))
def test_canonical_forms_have_the_same_values(seed: int) -> None:
    rng = random.Random(seed)
    expr = drawn(rng, 3, ("add", "sub", "mul", "floordiv", "floormod", "min", "max"))
    ranges = {I: range(-3, 4), J: range(-2, 5)}
    expected = values(expr, ranges)
    assert values(simplify(expr), ranges) == expected
    assert values(Polynomial.of(expr).divided().expr(), ranges) == expected
    other = drawn(rng, 2, ("add", "sub", "mul", "floordiv", "floormod"))
    if values(other, ranges) != expected:
        assert not same(expr, other)
    if key(expr) == key(other):
        assert values(other, ranges) == expected
    assert same(expr, simplify(expr)) and key(expr) == key(simplify(expr))
    if at_most(expr, other):
        assert all(a <= b for a, b in zip(expected, values(other, ranges), strict=True))


@pytest.mark.parametrize("a, b, known", [
    (3, 4, True), (4, 4, True), (5, 4, False), (I, I, True), (I, I + 1, True), (I + 1, I, False), (I, J, False),
    (I, I * 2, False), (I * J, J * I + 2, True), (I - 3, I - 3 + J, False), (0, I, False),
])  # fmt: skip
def test_at_most(a: Any, b: Any, known: bool) -> None:
    assert at_most(a, b) is known


@pytest.mark.parametrize("a, b", [
    (I // 4 * 4 + I % 4, I), ((I * 4 + 3) // 4, I), ((I * 6 + 1) // 3, I * 2), ((I * 4 + 3) % 4, 3),
    ((I * 4 + J) // 4 * 4 + (I * 4 + J) % 4, I * 4 + J), (I * (J + 2) - 2 * I, J * I),
])  # fmt: skip
def test_the_same_quotients(a: Any, b: Any) -> None:
    assert same(a, b) and same(b, a) and not same(a, b + 1)
