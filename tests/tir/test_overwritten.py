"""Which values the adjoint of a kernel keeps: those overwritten after a derivative has read them, and no others."""

from __future__ import annotations

import random
import textwrap

import numpy as np
import pytest

import pullback
from pullback.ir.module import IRModule
from pullback.relax.interpreter import evaluate
from pullback.relax.transform.gradient import Gradient
from pullback.script import from_source

SOURCE = """
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def kernel(x: T.Buffer((5, 5), "float64"), w: T.Buffer((5,), "float64"), y: T.Buffer((5, 5), "float64")):
{body}
    @R.function
    def main(x: R.Tensor((5, 5), "float64"), w: R.Tensor((5,), "float64"), c: R.Tensor((5, 5), "float64")):
        cls = Module
        y = R.call_tir(cls.kernel, (x, w), out_sinfo=R.Tensor((5, 5), "float64"))
        z = R.sum(R.multiply(y, c))
        return z
"""
COPY = """
for a in range(5):
    for b in range(5):
        y[a, b] = x[a, b]
"""
TAPES = {  # bodies, with the shapes of the tapes that their adjoints have
    "a triangular system": (
        """
s = T.alloc_buffer((1,), "float64")
for a in range(5):
    s[0] = w[a]
    for b in range(a):
        s[0] = s[0] - x[a, b] * y[b, 0]
    y[a, 0] = s[0] / (x[a, a] + 4.0)
    for b in range(4):
        y[a, b + 1] = 0.0
""",
        [(5,)],
    ),
    "LU, in place": (
        COPY
        + """
for a in range(5):
    for k in range(a):
        y[a, k] = y[a, k] / (y[k, k] + 4.0)
        for b in range(4 - k):
            y[a, k + 1 + b] = y[a, k + 1 + b] - y[a, k] * y[k, k + 1 + b]
""",
        [(5, 4)],
    ),
    "Cholesky, in place": (
        COPY
        + """
for a in range(5):
    for b in range(a):
        for k in range(b):
            y[a, b] = y[a, b] - y[a, k] * y[b, k]
        y[a, b] = y[a, b] / (y[b, b] + 4.0)
    for k in range(a):
        y[a, a] = y[a, a] - y[a, k] * y[a, k]
""",
        [(5, 4)],
    ),
    "rows after each other": (
        COPY
        + """
for a in range(4):
    for b in range(5):
        y[a + 1, b] = y[a + 1, b] * y[a, b]
""",
        [(4, 5)],
    ),
    "rows that are read after they are written": (
        COPY
        + """
for a in range(4):
    for b in range(5):
        y[a + 1, b] = y[a, b] * y[a, b] * w[b]
""",
        [],
    ),
    "only where a condition holds": (
        COPY
        + """
for a in range(5):
    for b in range(5):
        if a < b:
            y[a, b] = y[b, a] * w[a]
""",
        [],
    ),
    "names of what is overwritten": (
        COPY
        + """
for t in range(3):
    for a in range(5):
        for b in range(4):
            d: T.float64 = y[a, b + 1] - y[a, b]
            e: T.float64 = T.sin(d) * w[b]
            y[a, b] = y[a, b] + e * e
""",
        [(3, 5, 4)],
    ),
    "names of what is there": (
        """
s = T.alloc_buffer((1,), "float64")
for a in range(5):
    for b in range(5):
        y[a, b] = x[a, b] * x[a, b]
for a in range(5):
    for b in range(5):
        d: T.float64 = y[a, b] * w[b]
        s[0] = s[0] + d * d * y[a, 0]
""",
        [],
    ),
    "a value that is used and begun anew": (
        """
s = T.alloc_buffer((1,), "float64")
for a in range(5):
    for b in range(5):
        s[0] = x[a, b]
        s[0] = s[0] + w[b]
        s[0] = s[0] + x[b, a]
        y[a, b] = s[0] * s[0]
""",
        [(5, 5)],
    ),
    "a value that only one branch uses": (
        """
s = T.alloc_buffer((1,), "float64")
for a in range(5):
    for b in range(5):
        s[0] = x[a, b]
        if a < b:
            y[a, b] = s[0] * s[0]
        else:
            s[0] = s[0] + w[b]
            y[a, b] = s[0]
""",
        [(5, 5)],
    ),
}
WANTED = ["x", "w"]
rng = np.random.default_rng(5)
VALUES = [rng.uniform(0.5, 1.5, (5, 5)), rng.uniform(0.5, 1.5, 5), rng.standard_normal((5, 5))]
WAYS = [rng.standard_normal(v.shape) for v in VALUES[:2]]


def module_of(body: str) -> IRModule:
    return from_source(SOURCE.format(body=textwrap.indent(body.strip("\n"), " " * 8)))


def check(body: str) -> IRModule:
    """The module with its gradient, which is that of numeric differences."""
    module = Gradient("main", WANTED)(module_of(body))
    h = 1e-5
    moved = {k: [VALUES[0] + k * h * WAYS[0], VALUES[1] + k * h * WAYS[1], VALUES[2]] for k in (-2, -1, 1, 2)}
    at = {k: float(evaluate(module, "main", values)) for k, values in moved.items()}
    expected = (at[-2] - 8 * at[-1] + 8 * at[1] - at[2]) / (12 * h)
    adjoints = pullback.compile(module)["main_adjoint"](*VALUES)[1]
    total = sum(float((a.numpy() * w).sum()) for a, w in zip(adjoints, WAYS, strict=True))
    np.testing.assert_allclose(total, expected, rtol=1e-7, atol=1e-8)
    return module


def tapes(module: IRModule) -> list[tuple[int, ...]]:
    lines = [line for line in module["kernel_adjoint"].script().splitlines() if "alloc_buffer" in line]
    found = [line.partition("((")[2].partition(")")[0] for line in lines if line.strip().startswith("tape")]
    return sorted(tuple(int(n) for n in shape.split(",") if n) for shape in found)


@pytest.mark.parametrize("name", TAPES)
def test_tapes(name: str) -> None:
    body, expected = TAPES[name]
    assert tapes(check(body)) == expected


def drawn(seed: int) -> str:
    """A kernel that overwrites its result here and there."""
    draw = random.Random(seed)
    names: list[str] = []

    def index() -> str:
        return draw.choice(["a", "b", "4 - a", "4 - b", "(a + b) % 5", "a // 2", "2", "T.min(a, b)", "T.max(a - 1, 0)"])

    def term() -> str:
        return draw.choice([f"x[{index()}, {index()}]", f"w[{index()}]", *[f"y[{index()}, {index()}]"] * 3, "s[0]"])

    def statement() -> str:
        value = draw.choice(["T.sin({0} * {1})", "0.5 * {0} + {1}", "{0} / (1.0 + {1} * {1})"]).format(term(), term())
        target = draw.choice(["s[0]", f"y[{index()}, {index()}]"])
        kind = draw.random()
        if kind < 0.2:
            return f"if {draw.choice(['a < b', 'a + b > 4', 's[0] > 0.3'])}:\n    {target} = {value}"
        if kind < 0.35:
            names.append(f"v{len(names)}")
            return f"{names[-1]}: T.float64 = {term()} * {term()}\n{target} = {value} + {names[-1]}"
        return f"{target} = {value}"

    body = COPY + 's = T.alloc_buffer((1,), "float64")\ns[0] = w[0]\n'
    for _ in range(2):
        inner = "\n".join(statement() for _ in range(draw.randint(1, 3)))
        extent = draw.choice(["5", "5 - a", "a + 1"])
        body += f"for a in range(5):\n    {statement_of_rows(draw)}\n    for b in range({extent}):\n"
        body += textwrap.indent(inner, " " * 8) + "\n"
    return body


def statement_of_rows(draw: random.Random) -> str:
    return draw.choice(["s[0] = s[0] * w[a]", "s[0] = y[a, a]", "y[a, 0] = y[a, 0] * y[0, a]", "y[4 - a, a] = s[0]"])


@pytest.mark.parametrize("seed", range(40))
def test_drawn_kernels(seed: int) -> None:
    check(drawn(seed))
