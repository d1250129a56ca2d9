"""Random programs with branches, closures, references, tuples and calls of module functions: their gradients against
differences, and the same after passes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from pullback.ir.module import IRModule
from pullback.relay.expr import (
    Call,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    call_op,
    const,
    var,
)
from pullback.relay.infer import infer_module
from pullback.relay.transform import (
    DeadCodeElimination,
    LazyGradientInit,
    PartialEvaluate,
    ToANormalForm,
    ToBasicBlockNormalForm,
    gradient,
)
from pullback.relay.ty import FuncType, TensorType
from tests.relay.differences import differences, run

VECTOR = TensorType((2,), "float64")
UNARY = ("sin", "cos", "tanh", "negative", "sigmoid", "atan")
BINARY = ("add", "multiply", "subtract")


class Maker:
    """Makes expressions of vectors from those in a scope; functions and references stand in scopes of their own."""

    def __init__(self, seed: int, helpers: list[str]) -> None:
        self.random, self.helpers = random.Random(seed), helpers
        self.names = 0

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def vector(self, scope: list[Any], functions: list[Var], refs: list[Var], depth: int) -> Any:
        """A vector of the scope, or made from it; what is made joins the scope, so that it is shared."""
        choices = [self.unary, self.binary, self.binary]
        if depth > 0:
            choices += [self.branch, self.let, self.closure, self.reference, self.pair, self.checkpoint]
            choices += (
                [self.called] * bool(functions) + [self.written] * bool(refs) + [self.helper] * bool(self.helpers)
            )
        made = self.random.choice(choices)(scope, functions, refs, depth - 1)
        scope.append(made)
        return made

    def some(self, scope: list[Any], functions: list[Var], refs: list[Var], depth: int) -> Any:
        if depth <= 0 or self.random.random() < 0.4:
            return self.random.choice(scope)
        return self.vector(scope, functions, refs, depth - 1)

    def unary(self, *given: Any) -> Any:
        return call_op(self.random.choice(UNARY), self.some(*given))

    def binary(self, *given: Any) -> Any:
        return call_op(self.random.choice(BINARY), self.some(*given), self.some(*given))

    def checkpoint(self, *given: Any) -> Any:
        return call_op("annotation.checkpoint", self.vector(*given))

    def branch(self, scope: list[Any], functions: list[Var], refs: list[Var], depth: int) -> Any:
        pivot = const(self.random.choice([-3.0, -0.7, 0.2, 0.9, 3.0]), "float64")
        condition = call_op("less", call_op("sum", self.random.choice(scope)), pivot)
        sides = [self.vector(list(scope), functions, refs, depth) for _ in range(2)]
        return If(condition, *sides)

    def let(self, scope: list[Any], functions: list[Var], refs: list[Var], depth: int) -> Any:
        bound = Var(self.name("v"), VECTOR)
        value = self.some(scope, functions, refs, depth)
        return Let(bound, value, self.vector([*scope, bound], functions, refs, depth))

    def closure(self, scope: list[Any], functions: list[Var], refs: list[Var], depth: int) -> Any:
        function, param = Var(self.name("f"), FuncType((VECTOR,), VECTOR)), Var(self.name("p"), VECTOR)
        body = self.vector([*scope, param, param], functions, refs, depth)
        inner = self.vector(list(scope), [*functions, function], refs, depth)
        return Let(function, Function((param,), body, VECTOR), inner + function(self.random.choice(scope)))

    def called(self, scope: list[Any], functions: list[Var], refs: list[Var], depth: int) -> Any:
        return self.random.choice(functions)(self.some(scope, functions, refs, depth))

    def helper(self, scope: list[Any], functions: list[Var], refs: list[Var], depth: int) -> Any:
        return Call(GlobalVar(self.random.choice(self.helpers)), (self.some(scope, functions, refs, depth),))

    def reference(self, scope: list[Any], functions: list[Var], refs: list[Var], depth: int) -> Any:
        ref = Var(self.name("r"))
        value = self.some(scope, functions, refs, depth)
        use = self.written if self.random.random() < 0.7 else self.vector
        return Let(ref, RefCreate(value), use(list(scope), functions, [*refs, ref], depth))

    def written(self, scope: list[Any], functions: list[Var], refs: list[Var], depth: int) -> Any:
        ref, before = self.random.choice(refs), Var(self.name("v"), VECTOR)
        value = self.some([*scope, before], functions, refs, depth)
        then = Let(Var(self.name("u")), RefWrite(ref, value * before), RefRead(ref) + before)
        return Let(before, RefRead(ref), then)

    def pair(self, scope: list[Any], functions: list[Var], refs: list[Var], depth: int) -> Any:
        both = Tuple(tuple(self.some(scope, functions, refs, depth) for _ in range(2)))
        return TupleGetItem(both, 0) * TupleGetItem(both, self.random.randint(0, 1))


def program(seed: int) -> tuple[Function, IRModule]:
    mod, helpers = IRModule(), []
    for name in ("first", "second"):
        x = var("x", VECTOR)
        mod[name] = Function((x,), Maker(3 * seed + len(helpers), list(helpers)).vector([x], [], [], 2), VECTOR)
        helpers.append(name)
    x, y = var("x", VECTOR), var("y", VECTOR)
    return Function((x, y), Maker(3 * seed + 2, helpers).vector([x, y], [], [], 5)), mod


ARGS = [np.array([0.3, -0.8]), np.array([0.9, 0.45])]


@pytest.mark.parametrize("seed", range(40))
def test_gradients_of_random_programs(seed: int) -> None:
    function, mod = program(seed)
    expected = differences(lambda *xs: run(function, *xs, mod=mod), ARGS, 1e-6)
    value = run(function, *ARGS, mod=mod)
    derivative = gradient(function, mod)
    for label, found in forms(derivative, mod).items():
        result, adjoints = run(found["main"], *ARGS, mod=found)
        np.testing.assert_allclose(result, value, rtol=1e-12, err_msg=label)
        for adjoint, wanted in zip(adjoints, expected, strict=True):
            np.testing.assert_allclose(adjoint, wanted, rtol=1e-5, atol=1e-7, err_msg=label)


def forms(derivative: Function, mod: IRModule) -> dict[str, IRModule]:
    """The gradient as it is, and after passes."""
    mod = mod.copy()
    mod["main"] = derivative
    typed = infer_module(mod)
    evaluated = PartialEvaluate()(typed)
    return {
        "as it is": typed,
        "in A-normal form": ToANormalForm()(typed),
        "in basic blocks": ToBasicBlockNormalForm()(typed),
        "partially evaluated": evaluated,
        "without dead code": DeadCodeElimination(inline_once=True)(evaluated),
        "with cells": LazyGradientInit()(typed),
    }
