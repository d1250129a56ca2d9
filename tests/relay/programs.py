"""Programs that tests of executors and of lowering share: each with arguments, and what NumPy says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback import relay
from pullback.relay.expr import call_op
from pullback.relay.ty import TensorType

COUNT = TensorType((), "int32")
X = np.linspace(-1.0, 2.0, 6, dtype="float32").reshape(2, 3)
W = np.linspace(0.5, -1.5, 6, dtype="float32").reshape(2, 3)


@dataclass(frozen=True)
class Case:
    """``make`` builds the function; ``expected`` computes the same in float64. ``native``: it compiles as a whole."""

    name: str
    make: Callable[[], relay.Function]
    arguments: tuple[Any, ...]
    expected: Callable[..., Any]
    native: bool = True

    def __str__(self) -> str:
        return self.name


def matrix(name: str) -> relay.Var:
    return relay.var(name, shape=(2, 3))


def straight() -> relay.Function:
    x, w = matrix("x"), matrix("w")
    return relay.Function([x, w], relay.tanh(x * w) + relay.const(1.0))


def shared() -> relay.Function:
    """One node in several places, of a depth at which paths could not be counted."""
    x = matrix("x")
    y = x
    for _ in range(100):
        y = (y + y) * relay.const(0.5)
    return relay.Function([x], y)


def nested_tuples() -> relay.Function:
    x, w = matrix("x"), matrix("w")
    pair = relay.Tuple([x + w, relay.Tuple([x, x * w])])
    return relay.Function([x, w], relay.Tuple([relay.TupleGetItem(relay.TupleGetItem(pair, 1), 1), pair]))


def references() -> relay.Function:
    x, w, cell, new = matrix("x"), matrix("w"), relay.var("cell"), relay.var("new")
    body = relay.Tuple([relay.RefRead(cell), new])
    body = relay.Let(relay.var("_"), relay.RefWrite(cell, relay.RefRead(cell) * w), body)
    body = relay.Let(new, relay.RefRead(cell) + x, body)
    return relay.Function([x, w], relay.Let(cell, relay.RefCreate(x), body))


def closures() -> relay.Function:
    """A function that makes functions, each with a value of its own."""
    x, w, v, u = matrix("x"), matrix("w"), matrix("v"), matrix("u")
    make = relay.var("make")
    made = relay.Function([v], relay.Function([u], u * v + x))
    return relay.Function([x, w], relay.Let(make, made, make(x)(w) - make(w)(x) * relay.const(3.0)))


def branch() -> relay.Function:
    x, w = matrix("x"), matrix("w")
    condition = call_op("greater", relay.sum(x), relay.const(0.0))
    return relay.Function([x, w], relay.If(condition, x * w, x - w) + x)


def branch_on_references() -> relay.Function:
    """Branches that write to a cell; what it holds afterwards depends on a tensor."""
    x, w, cell = matrix("x"), matrix("w"), relay.var("cell")
    condition = call_op("greater", relay.sum(w), relay.const(0.0))
    writes = relay.If(condition, relay.RefWrite(cell, relay.RefRead(cell) * w), relay.Tuple([]))
    body = relay.Let(relay.var("_"), writes, relay.RefRead(cell) - w)
    return relay.Function([x, w], relay.Let(cell, relay.RefCreate(x), body))


def tail_recursion() -> relay.Function:
    """Halves x until its largest element is below a thousandth."""
    x, y, n = matrix("x"), matrix("y"), relay.var("n", COUNT)
    loop = relay.var("loop")
    small = call_op("less", relay.max(relay.abs(y)), relay.const(1e-3))
    result = relay.If(small, relay.Tuple([y, n]), loop(y * relay.const(0.5), n + relay.const(1)))
    kind = relay.TupleType([TensorType((2, 3)), COUNT])
    function = relay.Function([y, n], result, kind)
    return relay.Function([x], relay.Let(loop, function, loop(x, relay.const(0))))


def halved(x: np.ndarray) -> Any:
    count = 0
    while not np.abs(x).max() < 1e-3:
        x, count = x * 0.5, count + 1
    return x, np.int32(count)


def recursion() -> relay.Function:
    n, k, f = relay.var("n", COUNT), relay.var("k", COUNT), relay.var("f")
    less = call_op("less", k, relay.const(2))
    body = relay.If(less, k, f(k - relay.const(1)) + f(k - relay.const(2)))
    return relay.Function([n], relay.Let(f, relay.Function([k], body, COUNT), f(n)))


def fibonacci(n: Any) -> Any:
    a, b = 0, 1
    for _ in range(int(n)):
        a, b = b, a + b
    return np.int32(a)


def branch_gradient() -> relay.Function:
    """The gradient of a branch: each gives functions and cells, so what follows is part of both."""
    x, w = matrix("x"), matrix("w")
    condition = call_op("greater", relay.sum(x), relay.const(0.0))
    chosen = relay.If(condition, x * w, relay.exp(x))
    return relay.transform.gradient(relay.Function([x, w], relay.sum(chosen * x)))


def _branch_gradient(x: Any, w: Any) -> Any:
    if x.sum() > 0:
        return (x * w * x).sum(), (2 * x * w, x * x)
    return (np.exp(x) * x).sum(), (np.exp(x) * (x + 1), np.zeros_like(w))


def chosen_function() -> relay.Function:
    """A branch gives a function: no form in the graph IR."""
    x, w, v, u = matrix("x"), matrix("w"), matrix("v"), matrix("u")
    condition = call_op("greater", relay.sum(x), relay.const(0.0))
    either = relay.If(condition, relay.Function([v], v * w), relay.Function([u], u + w))
    return relay.Function([x, w], either(x))


def double(*arrays: Any) -> list[Any]:
    return [np.asarray(a, "float64") for a in arrays]


def _branch(x: Any, w: Any) -> Any:
    return (x * w if x.sum() > 0 else x - w) + x


CASES = [
    Case("straight", straight, (X, W), lambda x, w: np.tanh(x * w) + 1),
    Case("shared", shared, (X,), lambda x: x),
    Case("nested_tuples", nested_tuples, (X, W), lambda x, w: (x * w, (x + w, (x, x * w)))),
    Case("references", references, (X, W), lambda x, w: (x * w, x + x)),
    Case("closures", closures, (X, W), lambda x, w: (w * x + x) - (x * w + x) * 3),
    Case("branch", branch, (X, W), _branch),
    Case("other_branch", branch, (-X, W), _branch),
    Case("branch_on_references", branch_on_references, (X, W), lambda x, w: (x * w if w.sum() > 0 else x) - w),
    Case("branch_writes", branch_on_references, (X, -W), lambda x, w: (x * w if w.sum() > 0 else x) - w),
    Case("branch_gradient", branch_gradient, (X, W), _branch_gradient),
    Case("other_branch_gradient", branch_gradient, (-X, W), _branch_gradient),
    Case("tail_recursion", tail_recursion, (X,), halved),
    Case("recursion", recursion, (np.int32(10),), fibonacci),
    Case("chosen_function", chosen_function, (X, W), lambda x, w: x * w if x.sum() > 0 else x + w, native=False),
]


def check(result: Any, expected: Any, rtol: float = 1e-5) -> None:
    """The result is what is expected, tensor by tensor, in the same nesting."""
    if isinstance(expected, tuple):
        assert isinstance(result, list)
        assert len(result) == len(expected)
        for one, other in zip(result, expected, strict=True):
            check(one, other, rtol)
    else:
        assert result.shape == np.shape(expected)
        np.testing.assert_allclose(result.numpy(), expected, rtol=rtol, atol=1e-6)
