"""Sums in lanes in adjoints of kernels: against numeric differences; and the loops that have none."""

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
from pullback.tir.checked import checked

N = 21
SOURCE = """
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def kernel(x: T.Buffer((21, 21), "float64"), w: T.Buffer((21,), "float64"), y: T.Buffer((21, 21), "float64")):
{body}
    @R.function
    def main(x: R.Tensor((21, 21), "float64"), w: R.Tensor((21,), "float64"), c: R.Tensor((21, 21), "float64")):
        cls = Module
        y = R.call_tir(cls.kernel, (x, w), out_sinfo=R.Tensor((21, 21), "float64"))
        z = R.sum(R.multiply(y, c))
        return z
"""
COPY = """
for a in range(21):
    for b in range(21):
        y[a, b] = x[a, b] * 0.5
"""
LANES = {
    "a factor of a row": COPY
    + """
for a in range(21):
    for b in range(21):
        y[a, b] = y[a, b] + w[a] * x[b, a]
""",
    "rank-one updates of a triangle": COPY
    + """
for k in range(21):
    for a in range(20 - k):
        for b in range(20 - k - a):
            y[k + 1 + a, k + 1 + a + b] = y[k + 1 + a, k + 1 + a + b] - x[k, k + 1 + a] * x[k, k + 1 + a + b] * 0.1
""",
    "LU, in place": COPY
    + """
for a in range(21):
    for k in range(a):
        y[a, k] = y[a, k] / (y[k, k] + 9.0)
        for b in range(20 - k):
            y[a, k + 1 + b] = y[a, k + 1 + b] - y[a, k] * y[k, k + 1 + b]
""",
    "pairs": COPY
    + """
for a in range(21):
    for b in range(21):
        d: T.float64 = w[a] - w[b]
        e: T.float64 = T.exp(-(d * d))
        y[0, b] = y[0, b] + d * e
        y[1, b] = y[1, b] + x[0, a] * e
""",
}
NONE = {
    "the sum is read": COPY
    + """
s = T.alloc_buffer((1,), "float64")
for a in range(21):
    s[0] = 0.0
    for b in range(21):
        s[0] = s[0] * w[a] + x[a, b]
    y[a, 0] = s[0]
""",
    "few iterations": COPY
    + """
for a in range(21):
    for b in range(15):
        y[a, b] = y[a, b] + w[a] * x[b, a]
""",
    "an element of the row itself": COPY
    + """
for a in range(21):
    for b in range(21):
        y[a, b] = y[a, b] + y[a, 3] * w[b]
""",
}
rng = np.random.default_rng(13)
VALUES = [rng.standard_normal((N, N)), rng.standard_normal(N), rng.standard_normal((N, N))]
WAYS = [rng.standard_normal(v.shape) / 4 for v in VALUES]


def module_of(body: str) -> IRModule:
    return Gradient("main")(from_source(SOURCE.replace("{body}", textwrap.indent(body.strip("\n"), " " * 8))))


def check(module: IRModule) -> None:
    machine, h = pullback.compile(module), 1e-5
    moved = {k: [v + k * h * w for v, w in zip(VALUES, WAYS, strict=True)] for k in (-2, -1, 1, 2)}
    at = {k: float(machine["main"](*values).numpy()) for k, values in moved.items()}
    adjoints = machine["main_adjoint"](*VALUES)[1]
    total = sum(float((a.numpy() * w).sum()) for a, w in zip(adjoints, WAYS, strict=True))
    np.testing.assert_allclose(total, (at[-2] - 8 * at[-1] + 8 * at[1] - at[2]) / (12 * h), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", LANES)
def test_sums_are_taken_in_lanes(name: str) -> None:
    module = module_of(LANES[name])
    text = module["kernel_adjoint"].script()
    assert "sum0" in text
    assert "vectorized" in text[text.index("sum0[lane") :]
    check(module)


def test_lanes_are_interpreted_alike() -> None:
    module = module_of(LANES["a factor of a row"])
    for native, interpreted in zip(
        pullback.compile(module)["main_adjoint"](*VALUES)[1], evaluate(module, "main_adjoint", VALUES)[1], strict=True
    ):
        np.testing.assert_allclose(native.numpy(), interpreted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NONE)
def test_others_are_not(name: str) -> None:
    module = module_of(NONE[name])
    assert "sum0" not in module["kernel_adjoint"].script()
    check(module)


def test_no_access_is_checked_when_it_runs() -> None:
    """The indices of a triangle's lanes are proven: 8 * (n // 8) + lane is one of n."""
    for name in ("rank-one updates of a triangle", "LU, in place"):
        module = module_of(LANES[name])
        assert checked(module["kernel_adjoint"])[1] == ()


@pytest.mark.parametrize("seed", range(25))
def test_drawn_loops(seed: int) -> None:
    draw = random.Random(seed)

    def index(*names: str) -> str:
        return draw.choice([*names, *names, "3", "20 - a", "k"])

    def term() -> str:
        buffer = draw.choice(["x", "x", "y", "y", "w"])
        return f"w[{index('a', 'b')}]" if buffer == "w" else f"{buffer}[{index('a')}, {index('b', 'b', '20 - b')}]"

    body = COPY + "for k in range(3):\n    for a in range(21):\n        for b in range(21):\n"
    lines = []
    for n in range(draw.randint(1, 3)):
        target = f"y[{index('a')}, {index('b')}]"
        value = draw.choice(["0.2 * {0} + {1} * 0.1", "T.sin({0} * {1})", "{0} / (2.0 + {1} * {1})"])
        value = value.format(term(), term())
        if draw.random() < 0.4:
            lines.append(f"v{n}: T.float64 = {term()} * {term()}")
            value = f"T.tanh({value} + v{n})"
        lines.append(f"{target} = {f'{target} * 0.9 + ' if draw.random() < 0.5 else ''}{value}")
    check(module_of(body + textwrap.indent("\n".join(lines), " " * 12)))
