"""Vectorized loops whose lanes read what others write: statement by statement, whatever the width of vectors."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir.errors import ShapeError
from pullback.ir.module import IRModule
from pullback.relax.interpreter import evaluate
from pullback.relax.transform.gradient import Gradient
from pullback.script import from_source
from pullback.tir import Buffer, For, PrimFunc, loop, seq, store
from pullback.tir.expr import BufferLoad, minimum, select
from pullback.tir.independent import independent
from pullback.tir.interpreter import run
from pullback.tir.lanes import independent_lanes
from pullback.tir.stmt import BufferStore
from pullback.tir.visitor import walk

SIZES = (5, 9, 37)  # more lanes than a vector of any CPU has, whole vectors or not
PROGRAMS = {  # kernels of x (4, n), w (n,), whole numbers i (n,) below n, and the result y (4, n)
    "a second statement reads other lanes": """
    t = T.alloc_buffer(({n},), {dtype})
    for a in range(4):
        for b in T.vectorized({n}):
            t[b] = x[a, b] * w[b]
            y[a, b] = t[b] * t[{n} - 1 - b]
""",
    "a statement reads what it overwrites": """
    for a in range(4):
        for b in T.vectorized({n}):
            y[a, b] = x[a, b] * w[b]
        for b in T.vectorized({n}):
            y[a, b] = y[a, b] + y[a, ({n} - 1 - b)] * w[b]
""",
    "elements that indices of memory name": """
    for a in range(4):
        for b in T.vectorized({n}):
            y[a, b] = x[a, b] * w[b]
            y[a, i[b]] = y[a, i[b]] * y[a, b] + x[a, b]
""",
    "a condition": """
    for a in T.parallel(4):
        for b in T.vectorized({n}):
            y[a, b] = x[a, b] * w[b]
            if y[a, ({n} - 1 - b)] > 0.0:
                y[a, b] = y[a, b] + x[a, b]
                if b > 2:
                    y[a, b] = y[a, b] * y[a, {n} - b]
            else:
                y[a, b] = y[a, ({n} - 1 - b)] - w[b]
""",
    "names, unrolled loops and what a lane has for itself": """
    for a in T.parallel(4):
        for b in T.vectorized({n}):
            own = T.alloc_buffer((2,), {dtype})
            y[a, b] = x[a, b]
            before = y[a, ({n} - 1 - b)]
            for k in T.unrolled(2):
                own[k] = y[a, (b + k) % {n}] * w[b]
                y[a, b] = own[k] + before * x[a, k]
            y[a, b] = y[a, b] + own[0] * own[1]
""",
    "one element of all lanes": """
    s = T.alloc_buffer((1,), {dtype})
    for a in range(4):
        for b in T.vectorized({n}):
            s[0] = x[a, b]
            y[a, b] = s[0] * x[a, b]
""",
    "as many lanes as the loop around says": """
    for a in T.parallel(4):
        for b in T.vectorized({n}):
            y[a, b] = x[a, b]
        for b in T.vectorized(a + 2):
            y[a, b] = y[a, b] * w[b]
            y[a, b] = y[a, b] + y[a, a + 1 - b]
""",
}
SOURCE = """
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def kernel(x: T.Buffer((4, {n}), {dtype}), w: T.Buffer(({n},), {dtype}), i: T.Buffer(({n},), "int64"),
               y: T.Buffer((4, {n}), {dtype})):
{body}
    @R.function
    def main(x: R.Tensor((4, {n}), {dtype}), w: R.Tensor(({n},), {dtype}), i: R.Tensor(({n},), "int64")):
        cls = Module
        y = R.call_tir(cls.kernel, (x, w, i), out_sinfo=R.Tensor((4, {n}), {dtype}))
        z = R.sum(R.multiply(y, R.multiply(y, y)))
        return {result}
"""


def module_of(body: str, n: int, dtype: str, result: str = "y") -> IRModule:
    body = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return from_source(SOURCE.replace("{body}", body).format(n=n, dtype=repr(dtype), result=result))


def values(n: int, dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    x, w = rng.standard_normal((4, n)).astype(dtype), rng.standard_normal(n).astype(dtype)
    return [x, w, rng.integers(0, n, n)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_native_as_interpreted(body: str, n: int, dtype: str) -> None:
    module, given = module_of(body, n, dtype), values(n, dtype)
    expected = evaluate(module, "main", given)
    found = pullback.compile(module)["main"](*given).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == "float32" else 1e-13, atol=1e-6)


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_gradients(body: str) -> None:
    n, h = 9, 1e-5
    given, rng = values(n, "float64"), np.random.default_rng(1)
    ways = [rng.standard_normal(v.shape) for v in given[:2]]
    module = Gradient("main", ["x", "w"])(module_of(body, n, "float64", "z"))

    def at(step: float) -> float:
        moved = [v + step * d for v, d in zip(given, ways, strict=False)]
        return float(evaluate(module, "main", [*moved, given[2]]))

    expected = (at(-2 * h) - 8 * at(-h) + 8 * at(h) - at(2 * h)) / (12 * h)
    adjoints = pullback.compile(module)["main_adjoint"](*given)[1]
    total = sum(float((a.numpy() * d).sum()) for a, d in zip(adjoints, ways, strict=True))
    assert abs(expected) > 1e-3
    np.testing.assert_allclose(total, expected, rtol=1e-6)


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_lanes_are_independent(body: str) -> None:
    """Afterwards each loop may be cut anywhere: its lanes one after the other give the same."""
    kernel = module_of(body, 9, "float64")["kernel"]
    separate = independent_lanes(kernel.body)
    for node in (n for n in walk(separate) if isinstance(n, For) and n.kind == "vectorized"):
        stores = [n for n in walk(node) if isinstance(n, BufferStore)]
        read = {n.buffer for n in walk(node) if isinstance(n, BufferLoad)}
        assert independent(node.var, node.body) or (len(stores) == 1 and stores[0].buffer not in read)


def test_independent_lanes_stay() -> None:
    x, y = Buffer("x", (16,)), Buffer("y", (16,))
    body = loop("b", 16, lambda b: seq(store(y, b, x[b]), store(y, b, y[b] * select(b < 3, y[b], 1.0))), "vectorized")
    assert independent_lanes(body) is body


def test_an_unknown_number_of_lanes() -> None:
    n, x = Buffer("n", (1,), "int64"), Buffer("x", (16,))
    body = loop("b", n[0], lambda b: store(x, b, x[n[0] - 1 - b]), "vectorized")
    with pytest.raises(ShapeError, match=r"lanes of b read what others write.*\n?.*T\.vectorized\(T\.min"):
        independent_lanes(body)
    bounded = loop("b", minimum(n[0], 16), lambda b: store(x, b, x[n[0] - 1 - b]), "vectorized")
    out = np.arange(16, dtype="f")
    assert run(PrimFunc("reverse", (n, x), independent_lanes(bounded)), [np.array([11]), out]) == 0
    assert out.tolist() == [*range(10, -1, -1), *range(11, 16)]
