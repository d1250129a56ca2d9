"""Random programs: each is built together with its value, which NumPy computes in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback import relay
from pullback.relax.interpreter import evaluate
from pullback.relay.expr import call_op
from pullback.relay.lower import lower
from tests.relay.programs import check

SHAPE = (2, 2)


class Writer:
    """Writes statements and executes them: ``cells`` maps the variables of references to what they hold."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0

    def var(self, name: str) -> relay.Var:
        self.count += 1
        return relay.var(f"{name}{self.count}")

    def pick(self, items: list[Any]) -> Any:
        return items[self.rng.integers(len(items))]

    def combined(self, known: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """A node of an operator on values that are known."""
        (a, x), (b, y) = self.pick(known), self.pick(known)
        kind = self.rng.integers(4)
        if kind == 0:
            return a + b, x + y
        if kind == 1:
            return relay.tanh(a) * b, np.tanh(x) * y
        if kind == 2:
            return a - b * relay.const(0.5), x - y * 0.5
        pair = relay.Tuple([relay.sin(a), b])
        return relay.TupleGetItem(pair, 0), np.sin(x)

    def block(self, known: list[tuple[Any, Any]], cells: dict[Any, Any], depth: int) -> tuple[Any, Any]:
        """An expression of several statements, and its value."""
        known, lets = list(known), []
        for _ in range(self.rng.integers(2, 6)):
            kind = self.pick(["node", "node", "let", "cell", "write", "read", "if", "call"])
            if kind in ("if", "call") and not depth:
                kind = "let"
            if kind in ("write", "read") and not cells:
                kind = "cell"
            node, value = self.combined(known)
            name = self.var(kind)
            if kind == "node":  # stands wherever it is used
                known.append((node, value))
                continue
            if kind == "cell":
                node, cells[name] = relay.RefCreate(node), value
            elif kind == "write":
                cell = self.pick(list(cells))
                cells[cell] = value
                node = relay.RefWrite(cell, node)
            elif kind == "read":
                cell = self.pick(list(cells))
                node, value = relay.RefRead(cell), cells[cell]
            elif kind == "if":
                node, value = self.branch(known, cells, depth)
            elif kind == "call":
                node, value = self.call(known, cells, depth, lets)
            lets.append((name, node))
            if kind not in ("cell", "write"):
                known.append((name, value))
        node, value = self.combined(known[-3:])
        for name, bound in reversed(lets):
            node = relay.Let(name, bound, node)
        return node, value

    def branch(self, known: list[Any], cells: dict[Any, Any], depth: int) -> tuple[Any, Any]:
        expr, value = self.pick(known)
        total = float(np.sum(value))
        bound = np.float32(total + self.pick([-1.0, 1.0]))
        condition = call_op("greater", relay.sum(expr), relay.const(bound))
        taken = total > bound
        inside = dict(cells)
        chosen, result = self.block(known, inside, depth - 1)
        other, _ = self.block(known, dict(cells), depth - 1)
        cells.update({cell: inside[cell] for cell in cells})
        return relay.If(condition, *((chosen, other) if taken else (other, chosen))), result

    def call(self, known: list[Any], cells: dict[Any, Any], depth: int, lets: list[Any]) -> tuple[Any, Any]:
        """A call of a function that is made before, with a value of its own."""
        expr, value = self.pick(known)
        param, function, inside = self.var("p"), self.var("f"), dict(cells)
        body, result = self.block([*known, (param, value)], inside, depth - 1)
        cells.update({cell: inside[cell] for cell in cells})
        lets.append((function, relay.Function([param], body)))
        return function(expr), result


def program(seed: int) -> tuple[relay.Function, list[np.ndarray], Any]:
    """A function of two tensors, arguments, and the value for them."""
    writer = Writer(seed)
    x, y = relay.var("x", shape=SHAPE), relay.var("y", shape=SHAPE)
    arguments = [writer.rng.standard_normal(SHAPE).astype("float32") for _ in range(2)]
    known = [(v, a.astype("float64")) for v, a in zip((x, y), arguments, strict=True)]
    cells: dict[Any, Any] = {}
    first, one = writer.block(known, cells, 3)
    second, two = writer.block([*known, (first, one)], cells, 2)
    return relay.Function([x, y], relay.Tuple([first, second])), arguments, (one, two)


@pytest.mark.parametrize("seed", range(12))
def test_every_kind_computes_what_numpy_does(seed):
    function, arguments, expected = program(seed)
    for kind in ("debug", "vm", "graph"):
        check(relay.create_executor(kind).evaluate(function)(*arguments), expected, rtol=1e-4)


@pytest.mark.parametrize("seed", range(12, 60))
def test_lowered_programs_compute_the_same(seed):
    function, arguments, expected = program(seed)
    results = evaluate(lower(function), "main", arguments)
    check(relay.create_executor().evaluate(function)(*arguments), expected, rtol=1e-4)
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-6)
