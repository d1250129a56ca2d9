"""What all tasks of a parallel loop would fill with the same is filled once by each thread."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.codegen import emit_module
from pullback.codegen.own_copies import OwnCopies
from pullback.target import Target
from pullback.tir import Allocate, Buffer, For, PrimFunc, loop, seq, store

ROWS, TERMS, COLUMNS = 21, 5, 19


def product(change=None):
    """out = x @ w, where each task copies w across. ``change``: what a test makes of the copy, the task's statements,
    and the task's number."""
    x, w, out = Buffer("x", (ROWS, TERMS)), Buffer("w", (COLUMNS, TERMS)), Buffer("out", (ROWS, COLUMNS))
    across = Buffer("across", (TERMS, COLUMNS), "float32", "local")

    def task(i):
        copy = loop("k", TERMS, lambda k: loop("j", COLUMNS, lambda j: store(across, (k, j), w[j, k]), "vectorized"))
        sums = loop("j", COLUMNS, lambda j: store(out, (i, j), 0.0), "vectorized")
        add = lambda k, j: store(out, (i, j), out[i, j] + x[i, k] * across[k, j])  # noqa: E731
        terms = loop("k", TERMS, lambda k: loop("j", COLUMNS, lambda j: add(k, j), "vectorized"))
        parts = [copy, sums, terms]
        if change is not None:
            parts = change(parts, i, (x, w, out, across))
        return Allocate(across, seq(*parts))

    return PrimFunc("product", (x, w, out), loop("i", ROWS, task, "parallel"))


def arrays():
    generator = np.random.default_rng(3)
    return [generator.standard_normal(s).astype(np.float32) for s in ((ROWS, TERMS), (COLUMNS, TERMS))]


def own_copies(function):
    assert isinstance(function.body, For)
    return OwnCopies.of(function.body)


def test_filled_once_by_each_thread(native):
    function, (x, w), before = product(), arrays(), native.runtime.shares
    found = own_copies(function)
    assert [b.name for b in found.buffers] == ["across"]
    assert len(found.fills) == 1
    out = np.full((ROWS, COLUMNS), np.nan, np.float32)
    native(function, x, w, out)
    np.testing.assert_allclose(out, x @ w.T, rtol=1e-5, atol=1e-6)
    assert native.runtime.shares == before + 2


def test_the_copy_is_not_in_the_tasks():
    text = emit_module([product()], Target("llvm"))
    entry = text[text.index("define internal void @product.task0(ptr %closure, ptr %share)") :]
    entry = entry[: entry.index("\n}")]
    assert entry.index("call void @product.task0.fill(") < entry.index("head") < entry.index("@product.task0.body(")
    assert "i32 0, i32 3" in text  # parallel_share's place in the table


def test_rows_behind_the_copy_are_zeros(native):
    """Where a row is filled up to a whole vector, that is no subnormal number: it is multiplied as the others."""
    text = emit_module([product()], Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"))
    fill = text[text.index("@product.task0.fill(") :]
    assert "zeroinitializer" in fill[: fill.index("\n}")]


@pytest.mark.parametrize("case", ["the task's number", "stored again", "read from what tasks write", "nothing else"])
def test_what_differs_stays_in_the_task(native, case):
    def change(parts, i, buffers):
        _, w, out, across = buffers
        if case == "the task's number":
            parts[0] = seq(parts[0], store(across, (0, 0), w[0, 0] + i.astype("float32") * 0.0))
        elif case == "stored again":
            parts.append(store(across, (0, 0), 1.0))
        elif case == "read from what tasks write":
            parts = [parts[1], loop("j", COLUMNS, lambda j: store(across, (0, j), out[i, j])), *parts]
        else:
            parts = parts[:1]
        return parts

    function, (x, w), before = product(change), arrays(), native.runtime.shares
    assert own_copies(function) is None
    if case != "nothing else":
        out = np.full((ROWS, COLUMNS), np.nan, np.float32)
        native(function, x, w, out)
        np.testing.assert_allclose(out, x @ w.T, rtol=1e-5, atol=1e-6)
        assert native.runtime.shares == before


def test_one_of_two_buffers(native):
    """A buffer that each task fills for itself, from the one that its thread has filled."""
    x, w, out = Buffer("x", (ROWS, TERMS)), Buffer("w", (COLUMNS, TERMS)), Buffer("out", (ROWS, COLUMNS))
    across = Buffer("across", (TERMS, COLUMNS), "float32", "local")
    row = Buffer("row", (COLUMNS,), "float32", "local")

    def task(i):
        copy = loop("k", TERMS, lambda k: loop("j", COLUMNS, lambda j: store(across, (k, j), w[j, k])))
        clear = loop("j", COLUMNS, lambda j: store(row, j, x[i, 0] * 0.0), "vectorized")
        add = lambda k, j: store(row, j, row[j] + x[i, k] * across[k, j])  # noqa: E731
        terms = loop("k", TERMS, lambda k: loop("j", COLUMNS, lambda j: add(k, j), "vectorized"))
        put = loop("j", COLUMNS, lambda j: store(out, (i, j), row[j]), "vectorized")
        return Allocate(row, Allocate(across, seq(copy, clear, terms, put)))

    function, (a, b) = PrimFunc("product", (x, w, out), loop("i", ROWS, task, "parallel")), arrays()
    found = own_copies(function)
    assert [buffer.name for buffer in found.buffers] == ["across"]
    result = np.full((ROWS, COLUMNS), np.nan, np.float32)
    native(function, a, b, result)
    np.testing.assert_allclose(result, a @ b.T, rtol=1e-5, atol=1e-6)
