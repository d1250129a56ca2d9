"""Kernels over a batch: each element by itself, in parallel where nothing is shared."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.script import tir as T
from pullback.tir import Buffer, For, PrimFunc
from pullback.tir.batched import batched
from pullback.tir.interpreter import run


@T.prim_func
def plain(x: T.Buffer((4,), "float64"), w: T.Buffer((4,), "float64"), y: T.Buffer((4,), "float64")):
    for i in T.vectorized(4):
        y[i] = x[i] * w[3 - i]


@T.prim_func
def parallel(x: T.Buffer((4,), "float64"), w: T.Buffer((4,), "float64"), y: T.Buffer((4,), "float64")):
    for i in T.parallel(4):
        y[i] = x[i] * w[3 - i]


@T.prim_func
def scratch(x: T.Buffer((4,), "float64"), w: T.Buffer((4,), "float64"), y: T.Buffer((4,), "float64")):
    s = T.alloc_buffer((4,), "float64", "workspace")
    for i in range(4):
        s[i] = x[i]
    for i in range(4):
        y[i] = s[i] * w[3 - i]


@T.prim_func
def large(x: T.Buffer((4,), "float64"), w: T.Buffer((4,), "float64"), y: T.Buffer((4,), "float64")):
    s = T.alloc_buffer((1 << 15,), "float64", "local")
    for i in range(4):
        s[i] = x[i]
    for i in range(4):
        y[i] = s[i] * w[3 - i]


@pytest.mark.parametrize(
    ("kernel", "kind"), [(plain, "parallel"), (parallel, "serial"), (scratch, "serial"), (large, "serial")]
)
@pytest.mark.parametrize("shared", [False, True])
def test_each_element(kernel, kind, shared):
    size = 3
    x, w, y = kernel.buffers
    wider = {b: Buffer(b.name, (size, *b.shape), b.dtype) for b in ((x, y) if shared else (x, w, y))}
    body = batched(kernel.body, wider, size)
    assert isinstance(body, For) and body.kind == kind
    rng = np.random.default_rng(0)
    xs, ws, ys = rng.standard_normal((size, 4)), rng.standard_normal(4 if shared else (size, 4)), np.empty((size, 4))
    run(PrimFunc("kernel", tuple(wider.get(b, b) for b in (x, w, y)), body), [xs, ws, ys])
    np.testing.assert_array_equal(ys, xs * ws[..., ::-1])
