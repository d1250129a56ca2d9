"""What a user's kernel reads or gives before it wrote it is 0, and nothing is added where it writes all of it first."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.ir import GlobalVar, IRModule
from pullback.relax.op.call.call_tir import call_tir
from pullback.script import from_source
from pullback.tir import PrimFunc
from pullback.tir.defined import defined
from pullback.tir.interpreter import run

HEAD = "from pullback.script import tir as T\n@T.prim_func\ndef k(x: T.Buffer((3, 4), 'float32'), {}):\n"
Y = "y: T.Buffer((3, 4), 'float32')"


def kernel(output: str, *lines: str) -> PrimFunc:
    function = from_source(HEAD.format(output) + "".join(f"    {line}\n" for line in lines))
    assert isinstance(function, PrimFunc)
    return function


WHOLE = {  # all of y is written first
    "store": (Y, "for i, j in T.grid(3, 4):", "    y[i, j] = x[i, j]"),
    "another order": (Y, "for j, i in T.grid(4, 3):", "    y[i, j] = x[i, j]"),
    "lanes and tasks": (Y, "for i in T.parallel(3):", "    for j in T.vectorized(4):", "        y[i, j] = x[i, j]"),
    "sums": (
        "y: T.Buffer((3,), 'float32')",
        "for i in range(3):",
        "    y[i] = T.float32(0)",
        "    for j in range(4):",
        "        y[i] = y[i] + x[i, j]",
    ),
    "zeros, then anywhere": (
        Y,
        "for i, j in T.grid(3, 4):",
        "    y[i, j] = T.float32(0)",
        "for i, j in T.grid(3, 4):",
        "    y[2 - i, 3 - j] = y[i, j] + x[i, j]",
    ),
    "repeated": (Y, "for k, i, j in T.grid(2, 3, 4):", "    y[i, j] = x[i, j]"),
    "an axis of one": ("y: T.Buffer((3, 1), 'float32')", "for i in range(3):", "    y[i, 0] = x[i, 0]"),
    "a scalar": ("y: T.Buffer((), 'float32')", "y[()] = x[0, 0]"),
    "local": (
        Y,
        "for i, j in T.grid(3, 4):",
        "    a = T.alloc_buffer((1,), 'float32')",
        "    a[0] = x[i, j]",
        "    y[i, j] = a[0] + a[0]",
    ),
    "a local that nobody uses": (
        Y,
        "a = T.alloc_buffer((1,), 'float32')",
        "for i, j in T.grid(3, 4):",
        "    y[i, j] = x[i, j]",
    ),
}
PART = {  # with the value that is right
    "a shorter loop": ((Y, "for i, j in T.grid(3, 3):", "    y[i, j] = x[i, j]"), lambda x: x * [1, 1, 1, 0]),
    "a loop that does not run": ((Y, "for k, i, j in T.grid(0, 3, 4):", "    y[i, j] = x[i, j]"), lambda x: x * 0),
    "a loop inside that does not run": (
        (Y, "for i in range(3):", "    for j in range(0):", "        y[i, j] = x[i, j]"),
        lambda x: x * 0,
    ),
    "a branch": (
        (Y, "for i, j in T.grid(3, 4):", "    if x[i, j] > T.float32(0):", "        y[i, j] = x[i, j]"),
        lambda x: np.maximum(x, 0),
    ),
    "a diagonal": ((Y, "for i in range(3):", "    y[i, i] = x[i, i]"), lambda x: np.eye(3, 4) * x),
    "every other": ((Y, "for i, j in T.grid(3, 2):", "    y[i, j * 2] = x[i, j * 2]"), lambda x: x * [1, 0, 1, 0]),
    "adding up": ((Y, "for i, j in T.grid(3, 4):", "    y[i, j] = y[i, j] + x[i, j]"), lambda x: x),
    "read elsewhere": (
        (Y, "for i, j in T.grid(3, 4):", "    y[i, j] = x[i, j]", "    y[2 - i, j] = y[2 - i, j] + T.float32(1)"),
        None,
    ),
    "a condition": (
        (Y, "for i in range(3):", "    for j in range(4):", "        y[i, j] = T.select(y[i, j] > T.float32(0), "
         "x[i, j], T.float32(3))"),
        lambda x: x * 0 + 3,
    ),
    "a local": (
        (
            Y,
            "for i in range(3):",
            "    a = T.alloc_buffer((4,), 'float32')",
            "    for j in range(2):",
            "        a[j] = x[i, j]",
            "    for j in range(4):",
            "        y[i, j] = a[j]",
        ),
        lambda x: x * [1, 1, 0, 0],
    ),
    "a sum in a local": (
        (
            "y: T.Buffer((3,), 'float32')",
            "for i in T.parallel(3):",
            "    a = T.alloc_buffer((1,), 'float32')",
            "    for j in range(4):",
            "        a[0] = a[0] + x[i, j]",
            "    y[i] = a[0]",
        ),
        lambda x: x.sum(1),
    ),
    "a local of lanes": (
        (
            Y,
            "for i in range(3):",
            "    for j in T.vectorized(4):",
            "        a = T.alloc_buffer((2,), 'float32')",
            "        a[0] = x[i, j]",
            "        y[i, j] = a[0] + a[1]",
        ),
        lambda x: x,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_nothing_is_added(name):
    function = kernel(*WHOLE[name])
    assert defined(function, function.buffers[1:]) is function


@pytest.mark.parametrize("name", PART)
def test_the_rest_is_zero(name):
    """As a kernel, whatever memory holds; and in a graph, compiled and interpreted, again and again."""
    lines, right = PART[name]
    function = kernel(*lines)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    output = function.buffers[1]
    found = []
    for fill in (0.0, 7.0, np.nan):
        y = np.full(output.shape, fill, np.float32)
        run(defined(function, [output]), [x, y])
        found.append(y)
    wanted = found[0] if right is None else right(x)
    for y in found:
        np.testing.assert_allclose(y, wanted, rtol=1e-6)
    builder = relax.BlockBuilder(IRModule({"k": function}))
    a = relax.Var("a", relax.TensorStructInfo((3, 4), "float32"))
    info = relax.TensorStructInfo(output.shape, "float32")
    with builder.function("main", [a]), builder.dataflow():
        # values before and after it in the arena, so that its memory has been used
        before = builder.emit(relax.op.exp(a))
        middle = builder.emit(call_tir(GlobalVar("k"), (relax.op.log(before),), info))
        builder.emit_func_output(builder.emit_output(relax.op.nn.relu(middle) - relax.op.nn.relu(-middle)))
    for target in ("debug", "llvm"):
        main = pullback.compile(builder.get(), target).function("main")
        for _ in range(3):
            np.testing.assert_allclose(main(x), wanted, rtol=1e-5, atol=1e-5)
