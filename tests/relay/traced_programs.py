"""Random programs of the whole language over int64 scalars, closed but for their parameters, which always end.

What a program does leaves a trace: each effect multiplies a cell ``log`` by 3 and adds a number of its own, so that the
last content, which is part of the result, tells all effects and their order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback import relay
from pullback.ir import IRModule
from pullback.relay.expr import Call, Expr, Function, If, Let, RefCreate, RefRead, RefWrite, Tuple, TupleGetItem, Var
from pullback.relay.ty import FuncType, TensorType, TupleType
from tests.relay.differences import arrays

INT = TensorType((), "int64")
TO_INT = FuncType((INT,), INT)
MOST_NODES = 120


@dataclass
class Scope:
    """What a place in the program may use."""

    ints: list[Expr]
    refs: list[Expr] = field(default_factory=list)
    functions: list[Expr] = field(default_factory=list)

    def inner(self) -> Scope:
        return Scope(list(self.ints), list(self.refs), list(self.functions))


def number(value: int) -> Expr:
    return relay.const(np.int64(value))


class Program:
    """One program: ``function`` takes three int64 scalars and gives (result, log)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.left = MOST_NODES
        params = [Var(name, INT) for name in "abc"]
        self.log = Var("log")
        self.module = IRModule()
        x = Var("x", INT)
        self.module["twice"] = Function((x,), x + x, INT)
        self.module["down"] = self._down()
        a, b, _ = params
        shared = (a * b, a + number(2), number(2) + number(3))  # nodes that stand at many places
        body = self.expr(4, Scope([*params, *shared, shared[0] * shared[1]]))
        result = Var("result")
        body = Let(self.log, RefCreate(number(1)), Let(result, body, Tuple((result, RefRead(self.log)))))
        self.function = self.module["main"] = Function(tuple(params), body, TupleType((INT, INT)))

    def _down(self) -> Function:
        """A function of the module that calls itself: the sum of ``f`` of all numbers below ``n``."""
        f, n = Var("f", TO_INT), Var("n", INT)
        rest = Call(relay.GlobalVar("down"), (f, n - number(1)))
        return Function((f, n), If(relay.less(number(0), n), Call(f, (n,)) + rest, number(0)), INT)

    # ---- parts

    def trace(self, body: Expr) -> Expr:
        """An effect before the body."""
        new = RefRead(self.log) * number(3) + number(self.random.randrange(1, 100))
        return Let(Var("_"), RefWrite(self.log, new), body)

    def cond(self, depth: int, scope: Scope) -> Expr:
        kind = self.random.randrange(4)
        if kind == 0:
            return relay.less(number(self.random.randrange(4)), number(self.random.randrange(4)))
        if kind == 1:
            return relay.less(self.expr(depth - 1, scope), number(self.random.randrange(5)))
        return relay.less(self.random.choice(scope.ints), self.random.choice(scope.ints))

    def expr(self, depth: int, scope: Scope) -> Expr:
        self.left -= 1
        if depth <= 0 or self.left <= 0:
            return self.random.choice([*scope.ints, number(self.random.randrange(4))])
        made = self.random.choices(_PARTS, _WEIGHTS)[0]
        return made(self, depth - 1, scope)

    def _operator(self, depth: int, scope: Scope) -> Expr:
        op = self.random.choice([relay.add, relay.multiply, relay.subtract])
        return op(self.expr(depth, scope), self.expr(depth, scope))

    def _let(self, depth: int, scope: Scope) -> Expr:
        variable, value = Var("v"), self.expr(depth, scope)
        inner = scope.inner()
        inner.ints.append(variable)
        return Let(variable, value, self.expr(depth + 1, inner))

    def _traced(self, depth: int, scope: Scope) -> Expr:
        return self.trace(self.expr(depth + 1, scope))

    def _if(self, depth: int, scope: Scope) -> Expr:
        return If(self.cond(depth, scope), self.expr(depth, scope.inner()), self.expr(depth, scope.inner()))

    def _function(self, depth: int, scope: Scope) -> Expr:
        """A function that captures what is around, called once, twice or never."""
        variable, param = Var("f"), Var("y", INT)
        body = scope.inner()
        body.ints.append(param)
        value = Function((param,), self.expr(depth, body), INT)
        inner = scope.inner()
        inner.functions.append(variable)
        return Let(variable, value, self.expr(depth + 1, inner))

    def _call(self, depth: int, scope: Scope) -> Expr:
        functions = [*scope.functions, relay.GlobalVar("twice")]
        return Call(self.random.choice(functions), (self.expr(depth, scope),))

    def _loop(self, depth: int, scope: Scope) -> Expr:
        """A function that calls itself: as often as a constant says, or a parameter."""
        loop, n, total = Var("loop"), Var("n", INT), Var("total", INT)
        body = scope.inner()
        body.ints += [n, total]
        again = Call(loop, (n - number(1), self.expr(depth, body)))
        value = Function((n, total), If(relay.less(number(0), n), again, total), INT)
        count = number(self.random.randrange(4)) if self.random.random() < 0.5 else self._small(scope)
        return Let(loop, value, Call(loop, (count, self.expr(depth, scope))))

    def _down_to(self, depth: int, scope: Scope) -> Expr:
        functions = [*scope.functions, relay.GlobalVar("twice")]
        return Call(relay.GlobalVar("down"), (self.random.choice(functions), number(self.random.randrange(4))))

    def _small(self, scope: Scope) -> Expr:
        value = self.random.choice(scope.ints)
        return If(relay.less(value, number(3)), value, number(2))

    def _ref(self, depth: int, scope: Scope) -> Expr:
        variable = Var("r")
        inner = scope.inner()
        inner.refs.append(variable)
        return Let(variable, RefCreate(self.expr(depth, scope)), self.expr(depth + 1, inner))

    def _read(self, depth: int, scope: Scope) -> Expr:
        return RefRead(self.random.choice(scope.refs)) if scope.refs else self.expr(depth, scope)

    def _write(self, depth: int, scope: Scope) -> Expr:
        if not scope.refs:
            return self.expr(depth, scope)
        write = RefWrite(self.random.choice(scope.refs), self.expr(depth, scope))
        return Let(Var("_"), write, self.expr(depth + 1, scope))

    def _choose_ref(self, depth: int, scope: Scope) -> Expr:
        """A cell that only running tells, or another name of one."""
        if not scope.refs:
            return self.expr(depth, scope)
        variable, (one, two) = Var("s"), self.random.choices(scope.refs, k=2)
        inner = scope.inner()
        inner.refs.append(variable)
        return Let(variable, If(self.cond(depth, scope), one, two), self.expr(depth + 1, inner))

    def _choose_function(self, depth: int, scope: Scope) -> Expr:
        if not scope.functions:
            return self.expr(depth, scope)
        variable, (one, two) = Var("g"), self.random.choices(scope.functions, k=2)
        inner = scope.inner()
        inner.functions.append(variable)
        return Let(variable, If(self.cond(depth, scope), one, two), self.expr(depth + 1, inner))

    def _function_in_cell(self, depth: int, scope: Scope) -> Expr:
        """A cell of functions, as the backpropagator of a gradient: written, read, and what it holds called."""
        cell, param, last = Var("bp"), Var("y", INT), Var("last")
        body = scope.inner()
        body.ints.append(param)
        grown = Function((param,), Call(last, (self.expr(depth, body),)), INT)
        first = self.random.choice([*scope.functions, relay.GlobalVar("twice")])
        write = RefWrite(cell, grown)
        if self.random.random() < 0.3:
            write = If(self.cond(depth, scope), write, Tuple(()))
        rest = Call(RefRead(cell), (self.expr(depth, scope),))
        return Let(cell, RefCreate(first), Let(last, RefRead(cell), Let(Var("_"), write, rest)))

    def _pair(self, depth: int, scope: Scope) -> Expr:
        pair = Tuple((self.expr(depth, scope), self.expr(depth, scope)))
        if self.random.random() < 0.4:
            pair = If(self.cond(depth, scope), pair, Tuple((self.expr(depth, scope), number(1))))
        return TupleGetItem(pair, self.random.randrange(2))


_PARTS = [
    Program._operator, Program._let, Program._traced, Program._if, Program._function, Program._call, Program._loop,
    Program._down_to, Program._ref, Program._read, Program._write, Program._choose_ref, Program._choose_function,
    Program._function_in_cell, Program._pair,
]  # fmt: skip
_WEIGHTS = [3, 3, 3, 3, 3, 2, 2, 1, 2, 2, 3, 1, 1, 2, 2]

ARGS = [[np.int64(v) for v in row] for row in ((0, 1, 2), (3, -1, 0), (2, 2, 5))]


def results(module: IRModule) -> list[Any]:
    """What ``main`` gives for some arguments: (result, log) of each."""
    run = relay.create_executor("debug", module).evaluate()
    return [arrays(run(*row)) for row in ARGS]
