"""Integer arithmetic wraps: what the code generator knows of indices must not make it forget that."""

from __future__ import annotations

import random

import numpy as np
import pytest

import pullback
from pullback.script import from_source

EDGES = [-(2**63), 2**63 - 1, 2**62, -(2**62), 2**61 + 1, 2**32, -1, 0, 1, 5]


def expression(r: random.Random, depth: int) -> str:
    if not depth or r.random() < 0.15:
        kind = r.randrange(4)
        number = r.choice([1, 2, 3, 4, 8, 2**20, 2**31, 2**40, 2**60, 2**62])
        return ["i", "j", "x[i]" if r.random() < 0.6 else "v", f"T.int64({number})"][kind]
    a, b = expression(r, depth - 1), expression(r, depth - 1)
    kind = r.choice(["+", "-", "*", "*", "//", "//", "%", "min", "max", "if"])
    if kind in ("//", "%"):
        return f"({a} {kind} {r.choice([2, 4, 6, 8, 2**20, 2**31, 2**62])})"
    if kind in ("min", "max"):
        return f"T.{kind}({a}, {b})"
    if kind == "if":
        return f"({a} if {expression(r, depth - 1)} {r.choice(['<', '<=', '==', '!='])} {a} else {b})"
    return f"({a} {kind} {b})"


@pytest.mark.parametrize("inner", ["range", "T.vectorized", "T.unrolled"])
@pytest.mark.parametrize("seed", range(12))
def test_random_integers(seed: int, inner: str) -> None:
    r = random.Random(seed)
    lines = [f"            out[{k}, i, j] = {expression(r, 4)}" for k in range(6)]
    text = f"""
@I.ir_module
class M:
    @T.prim_func
    def k(x: T.Buffer((10,), "int64"), out: T.Buffer((6, 10, 9), "int64")):
        for i in range(10):
          v = x[i] * 8
          for j in {inner}(9):
{chr(10).join(lines)}

    @R.function
    def main(x: R.Tensor((10,), "int64")):
        y = R.call_tir(M.k, (x,), R.Tensor((6, 10, 9), "int64"))
        return y
"""
    x = np.array(EDGES, np.int64)
    expected, found = (np.array(pullback.compile(from_source(text), t).function("main")(x)) for t in ("debug", "llvm"))
    for k, line in enumerate(lines):
        np.testing.assert_array_equal(found[k], expected[k], line)


def test_graph_ops() -> None:
    module = from_source("""
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((10,), "int64")):
        with R.dataflow():
            times = R.multiply(x, R.const(4, "int64"))
            quotient = R.floor_divide(times, R.const(4, "int64"))
            rest = R.mod(times, R.const(8, "int64"))
            more = R.greater(R.add(x, R.const(1, "int64")), x)
            most = R.maximum(R.add(x, R.const(1, "int64")), x)
            R.output(quotient, rest, more, most)
        return (quotient, rest, more, most)
""")
    x = np.array(EDGES, np.int64)
    with np.errstate(over="ignore"):
        expected = [x * 4 // 4, x * 4 % 8, x + 1 > x, np.maximum(x + 1, x)]
    for target in ("debug", "llvm"):
        for a, b in zip(pullback.compile(module, target).function("main")(x), expected, strict=True):
            np.testing.assert_array_equal(np.array(a), b)
