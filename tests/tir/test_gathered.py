"""Adjoints of stencils: gathered, against numeric differences; and what is no stencil, which is not."""

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
    def kernel(x: T.Buffer((6, 9), "{dtype}"), w: T.Buffer((9,), "{dtype}"), y: T.Buffer((6, 9), "{dtype}")):
{body}
    @R.function
    def main(x: R.Tensor((6, 9), "{dtype}"), w: R.Tensor((9,), "{dtype}"), c: R.Tensor((6, 9), "{dtype}")):
        cls = Module
        y = R.call_tir(cls.kernel, (x, w), out_sinfo=R.Tensor((6, 9), "{dtype}"))
        z = R.sum(R.multiply(y, c))
        return z
"""
COPY = """
for a in range(6):
    for b in range(9):
        y[a, b] = x[a, b] * 0.5
"""
STENCILS = {
    "along a line": COPY
    + """
for a in range(6):
    for b in range(7):
        y[a, b + 1] = 0.25 * x[a, b] + x[a, b + 1] * w[b] + 0.25 * x[a, b + 2]
""",
    "in two dimensions": COPY
    + """
for a in range(4):
    for b in range(7):
        y[a + 1, b + 1] = x[a + 1, b + 1] * w[b] - 0.5 * (x[a, b + 1] + x[a + 2, b + 1] + x[a + 1, b] + x[a + 1, b + 2])
""",
    "not linear": COPY
    + """
for a in range(4):
    for b in range(8):
        y[a + 2, b] = T.sin(x[a, b] * x[a + 1, b + 1]) + x[a + 2, b] / (1.0 + x[a, b + 1] * x[a, b + 1])
""",
    "between two grids": """
u = T.alloc_buffer((6, 9), "{dtype}")
for a in range(6):
    for b in range(9):
        y[a, b] = x[a, b]
        u[a, b] = x[a, b]
for t in range(3):
    for a in T.parallel(4):
        for b in T.vectorized(7):
            u[a + 1, b + 1] = 0.3 * (y[a, b + 1] + y[a + 2, b + 1] + y[a + 1, b] + y[a + 1, b + 2])
    for a in T.parallel(4):
        for b in T.vectorized(7):
            y[a + 1, b + 1] = 0.3 * (u[a, b + 1] + u[a + 2, b + 1] + u[a + 1, b] + u[a + 1, b + 2])
""",
    "a row from the rows before": COPY
    + """
for a in range(4):
    for b in range(7):
        y[a + 2, b + 1] = y[a + 1, b] * 0.5 + y[a + 1, b + 2] * 0.25 + y[a, b + 1] * w[b]
""",
    "added to what is there": COPY
    + """
for a in range(6):
    for b in range(8):
        y[a, b] = y[a, b] + 0.5 * x[a, b] - x[a, b + 1] * w[b]
""",
    "axes exchanged": """
for a in range(6):
    for b in range(9):
        y[a, b] = w[b]
for b in range(7):
    for a in range(5):
        y[a, b + 1] = x[a + 1, b] + 2.0 * x[a, b + 2]
""",
}
NONE = {
    "in place": COPY
    + """
for a in range(6):
    for b in range(7):
        y[a, b + 1] = (y[a, b] + y[a, b + 1] + y[a, b + 2]) / 3.0
""",
    "strides": COPY
    + """
for a in range(6):
    for b in range(4):
        y[a, b] = x[a, 2 * b] + x[a, 2 * b + 1]
""",
    "a diagonal": COPY
    + """
for a in range(6):
    y[a, 0] = x[a, a] + x[a, a + 1] * w[a]
""",
    "a sum": COPY
    + """
for a in range(6):
    for b in range(7):
        y[a, 0] = y[a, 0] + w[b] * w[b + 2]
""",
    "a triangle": COPY
    + """
for a in range(6):
    for b in range(a + 1):
        y[a, b] = x[a, b] + x[a, b + 1]
""",
}
rng = np.random.default_rng(11)
VALUES = [rng.standard_normal((6, 9)), rng.standard_normal(9), rng.standard_normal((6, 9))]
WAYS = [rng.standard_normal(v.shape) for v in VALUES]


def module_of(body: str, dtype: str = "float64") -> IRModule:
    source = SOURCE.replace("{body}", textwrap.indent(body.strip("\n"), " " * 8))
    return Gradient("main")(from_source(source.replace("{dtype}", dtype)))


def check(module: IRModule) -> None:
    h = 1e-5
    moved = {k: [v + k * h * w for v, w in zip(VALUES, WAYS, strict=True)] for k in (-2, -1, 1, 2)}
    at = {k: float(evaluate(module, "main", values)) for k, values in moved.items()}
    adjoints = pullback.compile(module)["main_adjoint"](*VALUES)[1]
    total = sum(float((a.numpy() * w).sum()) for a, w in zip(adjoints, WAYS, strict=True))
    np.testing.assert_allclose(total, (at[-2] - 8 * at[-1] + 8 * at[1] - at[2]) / (12 * h), rtol=1e-7, atol=1e-8)
    for native, interpreted in zip(adjoints, evaluate(module, "main_adjoint", VALUES)[1], strict=True):
        np.testing.assert_allclose(native.numpy(), interpreted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", STENCILS)
def test_stencils_are_gathered(name: str) -> None:
    module = module_of(STENCILS[name])
    assert "part0" in module["kernel_adjoint"].script()
    check(module)


@pytest.mark.parametrize("name", NONE)
def test_others_are_not(name: str) -> None:
    module = module_of(NONE[name])
    assert "part0" not in module["kernel_adjoint"].script()
    check(module)


def test_half_precision_is_added_up_in_float32() -> None:
    """Nine terms of 1/2 + 2^-10: in float16 each sum would be rounded."""
    terms = " + ".join(f"x[a, b + {k}]" for k in range(5))
    body = COPY + f"\nfor a in range(6):\n    for b in range(5):\n        y[a, b + 2] = {terms}\n"
    body = body.replace("* 0.5", "* T.float16(0.5)")
    module = module_of(body, "float16")
    assert "part0" in module["kernel_adjoint"].script()
    ones, weights = np.ones((6, 9), np.float16), np.full((6, 9), 0.5 + 2**-10, np.float16)
    dx = pullback.compile(module)["main_adjoint"](ones, ones[0], weights)[1][0].numpy()
    expected = np.zeros((6, 9), np.float32)
    for k in range(5):
        expected[:, k : k + 5] += weights[:, 2:7].astype(np.float32)
    expected[:, [0, 1, 7, 8]] += 0.5 * weights[:, [0, 1, 7, 8]].astype(np.float32)
    np.testing.assert_array_equal(dx, expected.astype(np.float16))


@pytest.mark.parametrize("seed", range(20))
def test_drawn_stencils(seed: int) -> None:
    draw = random.Random(seed)
    rows, columns = draw.randint(0, 3), draw.randint(0, 3)
    terms = [
        f"{draw.choice(['0.5', f'w[b + {draw.randint(0, columns)}]', 'w[a]'])} *"
        f" {draw.choice(['{0}', 'T.sin({0})', '{0} * {0}'])}".format(
            f"{draw.choice(['x', 'x', 'u'])}[a + {draw.randint(0, rows)}, b + {draw.randint(0, columns)}]"
        )
        for _ in range(draw.randint(2, 5))
    ]
    order = [f"a in range({6 - rows})", f"b in range({9 - columns})"]
    if draw.random() < 0.4:
        order.reverse()
    body = COPY + 'u = T.alloc_buffer((6, 9), "float64")\n' + COPY.replace("y[", "u[") + "for t in range(2):\n"
    body += f"    for {order[0]}:\n        for {order[1]}:\n"
    body += f"            y[a + {draw.randint(0, rows)}, b + {draw.randint(0, columns)}] = {' + '.join(terms)}\n"
    body += "    for a in range(6):\n        for b in range(9):\n            u[a, b] = T.sin(y[a, b])\n"
    check(module_of(body))
