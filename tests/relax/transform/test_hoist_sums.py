"""HoistSums: sums of products leave loops of a known length, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.ir.module import IRModule
from pullback.relax import BlockBuilder, TensorStructInfo, Var, op
from pullback.relax.control import fori_loop, scan
from pullback.relax.interpreter import evaluate
from pullback.relax.op_calls import is_op
from pullback.relax.transform import CanonicalizeBindings, Gradient
from pullback.relax.transform.hoist_sums import HoistSums
from pullback.relax.transform.inline_functions import inline_calls

RNG = np.random.default_rng(0)
STEPS, ROWS, WIDE, HIGH = 5, 3, 4, 2


def module(shapes, write):
    """A module whose main gives ``write(*parameters)``."""
    params = [Var(name, TensorStructInfo(shape, "float64")) for name, shape in shapes.items()]
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(write(*params))
        builder.emit_func_output(result)
    return builder.get()


def closed(given: IRModule, name: str = "main") -> IRModule:
    return CanonicalizeBindings()(IRModule({name: inline_calls(given[name], given)}, given.attrs))


def carries(given: IRModule, name: str = "main") -> list[int]:
    """How many carries each loop has."""
    return [len(b.value.args[1].fields) for b in given[name].bindings if is_op(b.value, "loop")]


def drawn(shapes):
    return [RNG.normal(size=shape) for shape in shapes.values()]


SHAPES = {"begin": (WIDE, HIGH), "x": (STEPS, ROWS, WIDE), "y": (STEPS, ROWS, HIGH)}


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("left", "right"),
    [("xt", "y"), ("x", "y"), ("x", "yt"), ("xt", "yt")],
)
def test_products(left, right, reverse, swapped):
    """Of rows and of their transposes."""
    shapes = {
        "begin": (WIDE, HIGH),
        "x": (STEPS, ROWS, WIDE) if left == "xt" else (STEPS, WIDE, ROWS),
        "y": (STEPS, HIGH, ROWS) if right == "yt" else (STEPS, ROWS, HIGH),
    }

    def write(begin, x, y):
        def body(total, a, b):
            a = op.permute_dims(a) if left == "xt" else a
            term = op.matmul(a, op.permute_dims(b) if right == "yt" else b)
            return (op.add(term, total) if swapped else op.add(total, term),), ()

        return scan(body, (begin,), (x, y), reverse=reverse)[0][0]

    before = closed(module(shapes, write))
    after = HoistSums()(before)
    assert (carries(before), carries(after)) == ([1], [0])
    begin, x, y = values = drawn(shapes)
    a = x.swapaxes(1, 2) if left == "xt" else x
    b = y.swapaxes(1, 2) if right == "yt" else y
    np.testing.assert_allclose(evaluate(after, "main", values), begin + np.einsum("tij,tjk->ik", a, b), rtol=1e-12)


def test_gradient_of_a_recurrence():
    """Of the adjoint's four carries the sums of weight and bias leave, as values and adjoints are kept anyway."""
    shapes = {"w": (WIDE, WIDE), "b": (WIDE,), "x": (STEPS, ROWS, WIDE)}

    def write(w, b, x):
        def body(h, row):
            return (op.tanh(op.add(op.add(op.matmul(h, w), b), row)),), ()

        begin = op.zeros((ROWS, WIDE), "float64")
        return op.sum(scan(body, (begin,), (x,))[0][0])

    before = closed(Gradient("main", list(shapes))(module(shapes, write)), "main_adjoint")
    after = HoistSums()(before)
    assert (carries(before, "main_adjoint")[1] - carries(after, "main_adjoint")[1]) == 2
    w, b, x = values = drawn(shapes)
    states = [np.zeros((ROWS, WIDE))]
    for row in x:
        states.append(np.tanh(states[-1] @ w + b + row))
    dw, db, dx, dh = np.zeros_like(w), np.zeros_like(b), np.zeros_like(x), np.ones((ROWS, WIDE))
    for t in reversed(range(STEPS)):
        dx[t] = dh * (1 - states[t + 1] ** 2)
        dw, db, dh = dw + states[t].T @ dx[t], db + dx[t].sum(0), dx[t] @ w.T
    for found, expected in zip(evaluate(after, "main_adjoint", values)[1], (dw, db, dx), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


def _read(begin, x, y):
    """The sum is read in the loop."""

    def body(total, a, b):
        new = op.add(total, op.matmul(op.permute_dims(a), b))
        return (new,), (op.sum(new),)

    return scan(body, (begin,), (x, y))[0][0]


def _computed(begin, x, y):
    """A factor is not kept."""

    def body(total, a, b):
        return (op.add(total, op.matmul(op.permute_dims(op.exp(a)), b)),), ()

    return scan(body, (begin,), (x, y))[0][0]


def _times(begin, x, y):
    """It is no sum."""

    def body(total, a, b):
        return (op.multiply(total, op.matmul(op.permute_dims(a), b)),), ()

    return scan(body, (begin,), (x, y))[0][0]


def _rows_of_some_steps(begin, x, y):
    """It is not known which rows are read."""

    def body(step, total):
        return (op.add(total, op.matmul(op.permute_dims(x[0]), y[0])),)

    return fori_loop(3, body, (begin,))[0]


@pytest.mark.parametrize("write", [_read, _computed, _times, _rows_of_some_steps])
def test_stay(write):
    before = closed(module(SHAPES, write))
    after = HoistSums()(before)
    assert carries(before) == carries(after) == [1]
    values = drawn(SHAPES)
    np.testing.assert_array_equal(evaluate(after, "main", values), evaluate(before, "main", values))
