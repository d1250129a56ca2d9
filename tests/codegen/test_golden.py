"""The LLVM text of one small kernel, to be read by people."""

from pathlib import Path

import pytest

from pullback.codegen import emit_module
from pullback.target import Target
from pullback.tir import Allocate, Buffer, PrimFunc, fma, loop, seq, store

GOLDEN = Path(__file__).parent.parent / "golden" / "scaled_row_sums.ll"


def kernel():
    """y[i] = bias[i] + sum over k of x[i, k] * w[k], by partial sums in eight lanes."""
    x, w, bias, y = Buffer("x", (10, 24)), Buffer("w", (24,)), Buffer("bias", (10,)), Buffer("y", (10,))
    acc = Buffer("acc", (8,), "float32", "local")

    def halve(width):
        return loop("l", width, lambda i: store(acc, i, acc[i] + acc[i + width]), "vectorized")

    def row(i):
        add = lambda k, j: store(acc, j, fma(x[i, k * 8 + j], w[k * 8 + j], acc[j]))  # noqa: E731
        return Allocate(acc, seq(
            loop("l", 8, lambda j: store(acc, j, 0.0), "vectorized"),
            loop("k", 3, lambda k: loop("l", 8, lambda j: add(k, j), "vectorized")),
            halve(4), halve(2), halve(1), store(y, i, acc[0] + bias[i]),
        ))  # fmt: skip

    return PrimFunc("scaled_row_sums", (x, w, bias, y), loop("i", 10, row, "parallel"))


def test_golden(request):
    text = emit_module([kernel()], Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4"))
    if request.config.getoption("--update-golden", default=False):
        GOLDEN.write_text(text)
    if not GOLDEN.exists():
        pytest.fail(f"{GOLDEN} is missing: run pytest with --update-golden")
    assert text == GOLDEN.read_text(), "the generated text changed: look, then run pytest with --update-golden"
