"""Which loops have independent iterations."""

from __future__ import annotations

import textwrap

import pytest

from pullback.script import from_source
from pullback.tir.independent import independent
from pullback.tir.stmt import For
from pullback.tir.visitor import distinct

BODIES = {  # of loops over i and j, with the ones that are independent
    "elementwise": ("ij", "y[i, j] = x[i, j] * 2.0"),
    "a row after another": ("j", "y[i + 1, j] = y[i, j] + x[i, j]"),
    "a column after another": ("i", "y[i, j + 1] = y[i, j] + x[j, i]"),
    "both": ("", "y[i + 1, j + 1] = y[i, j]"),
    "a sum": ("i", "s[i] = s[i] + x[i, j]"),
    "a sum over rows": ("j", "s[j] = s[j] + x[i, j]"),
    "only reads": ("ij", "y[i, j] = s[0]"),
    "one place": ("", "s[0] = x[i, j]"),
    "two accesses alike": ("ij", "y[2 * i, j + 1] = y[i + i, 1 + j] + 1.0"),
    "two accesses that differ": ("", "y[i, j] = y[2 * i, 2 * j]"),
    "diagonals": ("j", "s[i + j] = s[i + j] + 1.0"),
    "backwards": ("ij", "y[7 - i, 7 - j] = x[i, j]"),
    "gathered": ("j", "y[n[i], j] = y[n[i], j] + x[i, j]"),
    "scattered": ("", "s[n[j]] = s[n[j]] + x[i, j]"),
    "a quotient": ("j", "y[i // 2, j] = x[i, j]"),
    "names": ("ij", "k: T.int64 = i * 2 + 1\ny[k, j] = x[i, j]"),
    "a name that is read": ("j", "k: T.int64 = n[i]\ny[k, j] = x[i, j]"),
    "its own memory": ("ij", 'b = T.alloc_buffer((1,), "float32", scope="local")\nb[0] = x[i, j]\ny[i, j] = b[0]'),
    "a condition": ("ij", "if x[i, j] > 0.0:\n    y[i, j] = x[i, j]"),
}


@pytest.mark.parametrize("name", BODIES)
def test_independent(name: str) -> None:
    wanted, body = BODIES[name]
    text = f"""
@T.prim_func
def k(x: T.Buffer((8, 8), "float32"), n: T.Buffer((8,), "int64"), y: T.Buffer((16, 16), "float32"),
      s: T.Buffer((16,), "float32")):
    for i in range(8):
        for j in range(8):
{textwrap.indent(body, " " * 12)}
"""
    loops = [n for n in distinct(from_source(text).body) if isinstance(n, For)]
    assert "".join(sorted(f.var.name for f in loops if independent(f.var, f.body))) == wanted
