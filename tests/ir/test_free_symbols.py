"""``map_free_vars``: whether symbols that nothing binds correspond to others."""

from __future__ import annotations

import pytest

from pullback import relax, relay, tir
from pullback.ir import IRModule, assert_structural_equal, structural_equal, structural_hash
from pullback.relay.adt import Clause, Match, PatternVar
from pullback.relay.expr import Function, Let
from pullback.relay.expr import var as relay_var
from pullback.script import relax as R

X, Y = (relax.Var(name, R.Tensor((3,))) for name in "xy")


def doubled(var: relax.Var) -> relax.Function:
    builder = relax.BlockBuilder()
    with builder.function("main", [var]):
        builder.emit_func_output(builder.emit(R.add(var, var)))
    return builder.get()["main"]


def sized(name: str) -> relax.Function:
    n = tir.Var(name)
    x = relax.Var("x", R.Tensor((n, 2)))
    return relax.Function((x,), R.reshape(x, (n * 2,)))


def cast(name: str) -> relax.Function:
    x, m = relax.Var("x", R.Tensor(ndim=1)), tir.Var(name)
    builder = relax.BlockBuilder()
    builder.begin(["x"])
    return relax.Function((x,), builder.finish(builder.match_cast(x, R.Tensor((m,)))))


def kernel(name: str) -> tir.PrimFunc:
    a = tir.Buffer(name, (tir.Var(name),))
    return tir.PrimFunc("k", (a,), tir.loop(name, 4, lambda i: tir.store(a, i, a[i] * 2.0)))


def let(name: str) -> Let:
    v = relay_var(name, shape=(2,))
    return Let(v, relay_var("free") if name == "free" else relay.expr.const(1.0), v)


def match(name: str) -> Match:
    v = relay_var(name)
    return Match(relay.expr.const(1.0), (Clause(PatternVar(v), v),))


def identity(name: str) -> Function:
    v = relay_var(name, shape=(2,))
    return Function((v,), v)


BOUND = [lambda n: doubled(relax.Var(n, R.Tensor((3,)))), sized, cast, kernel, let, match, identity]


@pytest.mark.parametrize("make", BOUND)
def test_bound_symbols_correspond(make):
    assert_structural_equal(make("a"), make("b"), map_free_vars=False)
    assert_structural_equal(IRModule({"main": make("a")}) if make is sized else [make("a")],
                            IRModule({"main": make("b")}) if make is sized else [make("b")], False)  # fmt: skip


FREE = [
    (X, Y),
    (R.add(X, X), R.add(Y, Y)),
    (R.broadcast_to(X, (tir.Var("n"), 3)), R.broadcast_to(X, (tir.Var("n"), 3))),
    (relay_var("x"), relay_var("x")),
    (let("free"), let("free")),
    (tir.Var("i") + 1, tir.Var("i") + 1),
]


@pytest.mark.parametrize(("a", "b"), FREE)
def test_free_symbols_correspond_unless_it_is_said(a, b):
    assert structural_equal(a, b)
    assert structural_equal(a, b, map_free_vars=True)
    assert structural_equal(a, a, map_free_vars=False)
    assert not structural_equal(a, b, map_free_vars=False)


@pytest.mark.parametrize(("a", "b"), FREE)
def test_hashes_agree(a, b):
    assert structural_hash(a) == structural_hash(b) == structural_hash(a, map_free_vars=False)


def test_the_difference_says_what_is_free():
    with pytest.raises(ValueError, match="x against y, which nothing binds"):
        assert_structural_equal(R.exp(X), R.exp(Y), map_free_vars=False)
