"""Ops of the user's that read by indices from data: what lies inside is read, all else is an error."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import te, tir
from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.relax.interpreter import evaluate
from pullback.relax.op import register_op
from pullback.relax.training.optimizer import SGD
from pullback.relax.transform import Gradient, LegalizeOps
from pullback.script import from_source
from tests.relax.op.test_own import registry  # noqa: F401  (what is registered here is gone after each test)

X = np.arange(12.0).reshape(4, 3) + 1
INDICES = [
    [0, 1, 2, 3, 0],
    [3, 3, 3, 3, 3],
    [0, 1, 2, 3, 4],
    [-1, 0, 0, 0, 0],
    [0, 0, 2**62, 0, 0],
    [-(2**62), 0, 0, 0, 0],
]


def gather(x: Any, idx: Any) -> Any:
    return te.compute((5,), lambda i: x[idx[i], 0])


def gather_twice(x: Any, idx: Any) -> Any:
    return te.compute((5,), lambda i: x[idx[idx[i]], 1] + x[idx[i], 2])


def through_stages(x: Any, idx: Any) -> Any:
    t = te.compute((5,), lambda i: x[idx[i], 0] * 2.0)
    return te.compute((5,), lambda i: t[4 - i] + t[idx[i]])


def sum_of_rows(x: Any, idx: Any) -> Any:
    k = te.reduce_axis(5)
    return te.compute((3,), lambda j: te.sum(x[idx[k.var], j], k))


def shifted(x: Any, idx: Any) -> Any:
    return te.compute((5,), lambda i: x[i - 1, 0] + tir.cast("float64", idx[i]))


def shifted_where_it_can(x: Any, idx: Any) -> Any:
    return te.compute((4,), lambda i: tir.select(i > 0, x[i - 1, 0], -1.0))


def window(x: Any, idx: Any) -> Any:
    k = te.reduce_axis(3)
    place = lambda i: i + k.var - 1  # noqa: E731
    return te.compute((4,), lambda i: te.sum(tir.select((place(i) >= 0) & (place(i) < 4), x[place(i), 1], 0.0), k))


def chosen(x: Any, idx: Any) -> Any:
    return te.compute((5,), lambda i: tir.select((idx[i] >= 0) & (idx[i] < 4), x[idx[i], 0], 9.0))


def chosen_otherwise(x: Any, idx: Any) -> Any:
    return te.compute((5,), lambda i: tir.select((idx[i] < 0) | (idx[i] > 3), 9.0, x[idx[i], 0]))


def chosen_too_widely(x: Any, idx: Any) -> Any:
    return te.compute((5,), lambda i: tir.select((idx[i] >= 0) & (idx[i] <= 4), x[idx[i], 0], 9.0))


def chosen_twice(x: Any, idx: Any) -> Any:
    def element(i: Any) -> Any:
        before, row = x[i - 1, 0], x[idx[i], 0]
        first = tir.select(i > 0, before, 0.0) + tir.select(i > 1, before * 2.0, 0.0)
        return (
            first
            + tir.select(idx[i] > 3, 5.0, tir.select(idx[i] < 0, 6.0, row))
            + tir.select(idx[i].equal(3), row, 0.0)
        )

    return te.compute((5,), element)


def chosen_apart(x: Any, idx: Any) -> Any:
    def element(i: Any) -> Any:
        row = x[idx[i], 0]
        return tir.select(i < 2, row, 0.0) + tir.select(i > 2, row, 0.0)

    return te.compute((5,), element)


def clamped(x: Any, idx: Any) -> Any:
    return te.compute((5,), lambda i: x[tir.maximum(tir.minimum(idx[i], 3), 0), 0])


def around(x: Any, idx: Any) -> Any:
    return te.compute((5,), lambda i: x[idx[i] % 4, 0])


def inside(n: int, size: int = 4) -> int:
    if not 0 <= n < size:
        raise IndexError(n)
    return n


MEANINGS: dict[Callable[..., Any], Callable[[list[int]], Any]] = {
    gather: lambda idx: [X[inside(n), 0] for n in idx],
    gather_twice: lambda idx: [X[inside(idx[inside(n, 5)]), 1] + X[inside(n), 2] for n in idx],
    through_stages: lambda idx: [
        2 * X[inside(idx[4 - i]), 0] + 2 * X[inside(idx[inside(n, 5)]), 0] for i, n in enumerate(idx)
    ],
    sum_of_rows: lambda idx: sum(X[inside(n)] for n in idx),
    shifted: lambda idx: [X[inside(i - 1), 0] + n for i, n in enumerate(idx)],
    shifted_where_it_can: lambda idx: [-1, *X[:3, 0]],
    window: lambda idx: np.convolve(X[:, 1], np.ones(3), "same"),
    chosen: lambda idx: [X[n, 0] if 0 <= n < 4 else 9 for n in idx],
    chosen_otherwise: lambda idx: [X[n, 0] if 0 <= n < 4 else 9 for n in idx],
    chosen_too_widely: lambda idx: [X[inside(n), 0] if 0 <= n <= 4 else 9 for n in idx],
    chosen_twice: lambda idx: [
        (X[i - 1, 0] if i > 0 else 0) + (2 * X[i - 1, 0] if i > 1 else 0)
        + (5 if n > 3 else 6 if n < 0 else X[n, 0]) + (X[n, 0] if n == 3 else 0) for i, n in enumerate(idx)
    ],
    chosen_apart: lambda idx: [X[inside(n), 0] if i != 2 else 0 for i, n in enumerate(idx)],
    clamped: lambda idx: [X[min(max(n, 0), 3), 0] for n in idx],
    around: lambda idx: [X[n % 4, 0] for n in idx],
}  # fmt: skip


def module_of(name: str) -> IRModule:
    return from_source(f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 3), "float64"), idx: R.Tensor((5,), "int64")):
        y = R.{name}(x, idx)
        return y

    @R.function
    def loss(x: R.Tensor((4, 3), "float64"), idx: R.Tensor((5,), "int64")):
        y = R.{name}(x, idx)
        z = R.sum(y * y)
        return z
""")


@pytest.mark.parametrize("function", MEANINGS, ids=lambda f: f.__name__)
def test_values(function: Callable[..., Any]) -> None:
    register_op(f"own.{function.__name__}")(function)
    module = module_of(f"own.{function.__name__}")
    legalized = LegalizeOps()(module)
    runs = (
        lambda *arrays: evaluate(module, "main", arrays),
        lambda *arrays: evaluate(legalized, "main", arrays),
        pullback.compile(module, "debug").function("main"),
        pullback.compile(module, "llvm").function("main"),
        pullback.compile(legalized, "llvm").function("main"),
    )
    for idx in INDICES:
        try:
            expected = np.asarray(MEANINGS[function](idx))
        except IndexError:
            expected = None
        given = np.array(idx, np.int64)
        for run in runs:
            if expected is None:
                with pytest.raises(ArgumentError, match=f"own.{function.__name__}: an index is outside its axis"):
                    run(X, given)
            else:
                np.testing.assert_allclose(np.asarray(run(X, given)), expected, rtol=1e-12)


@pytest.mark.parametrize("function", MEANINGS, ids=lambda f: f.__name__)
def test_gradients(function: Callable[..., Any]) -> None:
    register_op(f"own.{function.__name__}")(function)
    module = Gradient("loss", require_grads=["x"])(module_of(f"own.{function.__name__}"))
    steps = np.eye(12).reshape(12, 4, 3) * 1e-4
    for idx in INDICES:
        given = np.array(idx, np.int64)
        for target in ("debug", "llvm"):
            compiled = pullback.compile(module, target)
            try:
                MEANINGS[function](idx)
            except IndexError:
                with pytest.raises(ArgumentError, match="outside"):
                    compiled.function("loss_adjoint")(X, given)
                continue
            _, (dx,) = compiled.function("loss_adjoint")(X, given)
            loss = compiled.function("loss")
            expected = [(float(loss(X + s, given)) - float(loss(X - s, given))) / 2e-4 for s in steps]
            np.testing.assert_allclose(np.asarray(dx).ravel(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["op", "kernel"])
def test_a_step_that_fails_changes_nothing(kind: str) -> None:
    register_op("own.pick")(lambda w, idx: te.compute((2,), lambda i: w[idx[i]]))
    call = "R.own.pick(w, idx)" if kind == "op" else 'R.call_tir(Model.pick, (w, idx), R.Tensor((2,), "float32"))'
    model = from_source(f"""
@I.ir_module
class Model:
    I.module_attrs({{"param_num": 1, "state_num": 0}})

    @T.prim_func
    def pick(w: T.Buffer((4,), "float32"), idx: T.Buffer((2,), "int64"), out: T.Buffer((2,), "float32")):
        for i in range(2):
            out[i] = w[idx[i]]

    @R.function
    def backbone(idx: R.Tensor((2,), "int64"), w: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = {call}
            R.output(y)
        return y
""")
    loss = pullback.relax.training.loss.MSELoss(reduction="sum")
    trainer = pullback.trainer(model, loss, SGD(0.25))
    before = np.arange(4, dtype=np.float32)
    trainer.load_params({"w": before})
    for wrong in ([0, 4], [-1, 0], [2**40, 1]):
        with pytest.raises(ArgumentError, match="pick: an index is outside"):
            trainer.update(np.array(wrong), np.zeros(2, np.float32))
    np.testing.assert_array_equal(np.array(trainer.export_params()["w"]), before)
    trainer.update(np.array([1, 1]), np.zeros(2, np.float32))
    expected = before.copy()
    expected[1] -= 0.25 * 2 * 2 * before[1]
    np.testing.assert_allclose(np.array(trainer.export_params()["w"]), expected, rtol=1e-6)


class Drawn:
    """A random element over axes i and j, as a DAG: nodes are (kind, *parts), and may be parts of several others."""

    def __init__(self, seed: int) -> None:
        r = random.Random(seed)
        indices: list[Any] = [("axis", 0), ("axis", 1), *(("number", n) for n in (-1, 0, 1, 2, 3))]
        conditions: list[Any] = [("less", indices[0], indices[5])]
        values: list[Any] = [("value", indices[1])]
        pick = lambda pool: pool[min(len(pool) - 1, int(len(pool) * r.random() ** 0.6))]  # noqa: E731 (mostly late ones)
        for _ in range(r.randrange(4, 14)):
            kind = r.choice(["add", "sub", "floordiv", "mod", "min", "max", "data", "clamp", "choose"])
            if kind == "data":
                new: Any = (
                    "data",
                    r.choice([("mod", pick(indices), ("number", 5)), ("number", r.randrange(5)), pick(indices)]),
                )
            elif kind == "clamp":
                new = ("max", ("min", pick(indices), ("number", 2)), ("number", 0))
            elif kind == "choose":
                new = ("choose", pick(conditions), pick(indices), pick(indices))
            elif kind in ("floordiv", "mod"):
                new = (kind, pick(indices), ("number", r.choice([2, 3, 4])))
            else:
                new = (kind, pick(indices), pick(indices))
            indices.append(new)
            kind = r.choice(["less", "equal", "and", "or", "not", "more"])
            pool = indices if kind in ("less", "equal") else conditions
            parts = (pick(pool),) if kind == "not" else (pick(pool), pick(pool))
            conditions.append(("more", pick(values)) if kind == "more" else (kind, *parts))
            inside = [("mod", pick(indices), ("number", n)) if r.random() < 0.6 else pick(indices) for n in (4, 3)]
            kind = r.choice(["read", "read", "choose", "choose", "plus"])
            if kind == "read":
                values.append(("read", *inside))
            elif kind == "choose":
                values.append(("choose", pick(conditions), pick(values), pick(values)))
            else:
                values.append(("plus", pick(values), pick(values)))
        self.root = values[-1]

    def in_python(self, idx: list[int]) -> list[list[float]]:
        def of(node: Any, axes: tuple[int, int]) -> Any:
            kind, *parts = node
            if kind == "choose":
                return of(parts[1] if of(parts[0], axes) else parts[2], axes)
            if kind in ("and", "or"):
                first = of(parts[0], axes)
                return first if first == (kind == "or") else of(parts[1], axes)
            if kind in ("axis", "number"):
                return axes[parts[0]] if kind == "axis" else parts[0]
            a, b = ([of(p, axes) for p in parts] + [None])[:2]
            return {
                "add": lambda: a + b, "sub": lambda: a - b, "floordiv": lambda: a // b, "mod": lambda: a % b,
                "min": lambda: min(a, b), "max": lambda: max(a, b), "data": lambda: idx[inside(a, 5)],
                "value": lambda: float(a), "less": lambda: a < b, "equal": lambda: a == b, "not": lambda: not a,
                "more": lambda: a > 5.0, "plus": lambda: a + b,
                "read": lambda: X[inside(a), inside(b, 3)],
            }[kind]()  # fmt: skip

        return [[of(self.root, (i, j)) for j in range(3)] for i in range(4)]

    def op(self, x: Any, idx: Any) -> Any:
        def element(*axes: Any) -> Any:
            @functools.cache
            def of(node: Any) -> Any:
                kind, *parts = node
                if kind in ("axis", "number"):
                    return axes[parts[0]] if kind == "axis" else tir.as_expr(parts[0])
                a, b, c = ([of(p) for p in parts] + [None, None])[:3]
                return {
                    "add": lambda: a + b, "sub": lambda: a - b, "floordiv": lambda: a // b, "mod": lambda: a % b,
                    "min": lambda: tir.minimum(a, b), "max": lambda: tir.maximum(a, b), "data": lambda: idx[a],
                    "value": lambda: tir.cast("float64", a), "less": lambda: a < b, "equal": lambda: a.equal(b),
                    "not": lambda: tir.call("not", a), "more": lambda: a > 5.0, "plus": lambda: a + b,
                    "read": lambda: x[a, b], "choose": lambda: tir.select(a, b, c), "and": lambda: a & b,
                    "or": lambda: a | b,
                }[kind]()  # fmt: skip

            return of(self.root)

        return te.compute((4, 3), element)


@pytest.mark.parametrize("seed", range(40))
def test_random_elements(seed: int) -> None:
    """An element that is a DAG reads what it reads in Python, where choices evaluate one side only."""
    drawn = Drawn(seed)
    register_op("own.drawn")(lambda x, idx: drawn.op(x, idx))
    module = module_of("own.drawn")
    for idx in ([0, 1, 2, 2, 0], [3, 1, 0, -1, 4]):
        try:
            expected = np.array(drawn.in_python(idx))
        except IndexError:
            expected = None
        for target in ("debug", "llvm"):
            main = pullback.compile(module, target).function("main")
            if expected is None:
                with pytest.raises(ArgumentError, match=r"own\.drawn: an index is outside its axis"):
                    main(X, np.array(idx))
            else:
                np.testing.assert_allclose(np.asarray(main(X, np.array(idx))), expected, rtol=1e-12)
