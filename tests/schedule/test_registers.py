"""The sums of a register tile are registers: none is put into memory and taken up again at every term.

LLVM's allocator does so where one register more is wanted than there are, and now and then of its own accord; such a
kernel takes twice the time. So the machine code is looked at, of AVX2, whose 16 registers are the fewest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from pullback import te, tir
from pullback.codegen import compile_assembly, emit_module
from pullback.driver.pipeline import machine_of
from pullback.schedule.choose import lower, recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.contraction.plan import task_order as contraction_order
from pullback.schedule.group import Group
from pullback.target import Target
from pullback.tir import Allocate, Buffer, BufferLoad, For, PrimFunc, fma, loop, seq, store
from pullback.tir.visitor import walk
from pullback.tir.workspace import lift_workspaces
from tests.schedule.limits import limit
from tests.schedule.native import natively
from tests.schedule.test_contraction import product
from tests.schedule.test_schedules import group_of, matmul

HASWELL = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
REGISTER = r"%ymm\d+"
LEAST = 8  # multiply-adds of a loop over terms


def innermost_loops(assembly: str) -> Iterator[list[str]]:
    """The instructions of each block that jumps to itself."""
    label, lines = None, []
    for line in assembly.splitlines():
        if match := re.match(r"(\.\w+):", line):
            label, lines = match[1], []
        elif match := re.match(r"\s+j\w+\s+(\.\w+)", line):
            if match[1] == label:
                yield lines
            label, lines = None, []
        else:
            lines.append(line)


def loops_of_terms(group: Group) -> list[list[str]]:
    """Those of multiply-adds, and not of erf, which has the sign of its argument apart."""
    kernel, _ = lift_workspaces(lower(group, "kernel"))
    found = innermost_loops(compile_assembly(emit_module([kernel], HASWELL), HASWELL))
    return [n for n in found if sum("vfmadd" in i for i in n) >= LEAST and not any("vandps" in i for i in n)]


def sums_in_memory(loop: list[str]) -> list[str]:
    return [line for line in loop if re.search(rf"\bvmov\w+\s+{REGISTER},\s*-?\d*\(%rsp\)", line)]


def with_gelu(m: int, n: int, k: int) -> Group:
    """x @ w and gelu(x @ w + bias), as a training step keeps both."""
    total, bias = matmul(m, n, k), te.placeholder((n,), name="bias")

    def gelu(x: tir.PrimExpr) -> tir.PrimExpr:
        return x * (tir.call("erf", x * 0.7071) + 1.0) * 0.5

    out = te.compute((m, n), lambda i, j: gelu(total[i, j] + bias[j]), "out")
    return group_of(total, out, machine=machine_of(HASWELL))


def convolution(kind: str, *shape: int) -> Group:
    return group_of(product(kind, shape, False), machine=machine_of(HASWELL))


def narrow() -> Group:
    """x @ wᵀ of few columns, which are copied into panels narrower than a vector."""
    return group_of(matmul(959, 7, 286, transposed=True), machine=machine_of(HASWELL))


GROUPS: dict[str, Callable[[], Group]] = {
    "rows together, two results": lambda: with_gelu(1024, 1536, 384),
    "two results": lambda: with_gelu(64, 96, 48),
    "a window of three vectors, the last one cut": lambda: convolution("forward", 8, 16, 20, 22, 8, 7, 1, 3),
    "its data gradient": lambda: convolution("data", 1, 12, 37, 22, 42, 5, 1, 2),
    "panels of less than a vector": narrow,
    "terms that are written out": lambda: convolution("weight", 1, 28, 60, 7, 96, 7, 2, 3),
    "whole vectors": lambda: group_of(matmul(96, 64, 80), machine=machine_of(HASWELL)),
    "columns that are cut": lambda: group_of(matmul(96, 62, 80), machine=machine_of(HASWELL)),
}


@pytest.mark.parametrize("name", GROUPS)
def test_sums_stay_in_registers(name: str) -> None:
    group = GROUPS[name]()
    assert isinstance(recognize(group), Contraction)
    found = loops_of_terms(group)
    assert found
    for terms in found:
        assert not sums_in_memory(terms), "\n".join(terms)


def test_a_sum_in_memory_would_be_seen() -> None:
    loop = ["\tvfmadd231ps\t%ymm4, %ymm5, %ymm6", "\tvmovaps\t%ymm6, 96(%rsp)"]
    assert sums_in_memory(loop) == loop[1:]
    assert list(innermost_loops(".LBB0_4:\n" + "\n".join(loop) + "\n\tjl\t.LBB0_4")) == [loop]


@pytest.mark.parametrize("sizes", [(96, 32, 40), (97, 45, 16), (110, 45, 33)], ids=str)
def test_rows_together(sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither factor stays in the second cache, tasks have several tiles of rows, and go along them first."""
    limit(monkeypatch, l2=256, rows_of_l2=1.0, _MANY_TASKS=4)
    machine = replace(machine_of(HASWELL), second_bytes=20 * 4 * sizes[2])
    group = group_of(matmul(*sizes), machine=machine)
    ((problem, blocking),) = recognize(group).parts
    (row, step), column = blocking.rows[-1], blocking.column
    assert step < blocking.inner[row] <= 4 * step and blocking.inner[column] == blocking.tile.columns
    assert contraction_order.is_by_rows(problem, blocking)
    feeds = {t: np.random.default_rng(0).standard_normal(t.shape).astype(t.dtype) for t in group.inputs}
    (result,) = natively(group, feeds)
    a, b = feeds.values()
    np.testing.assert_allclose(result, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


def test_panels_end_in_zeros() -> None:
    """What whole vectors read behind the columns is no number that happened to lie there."""
    kernel = lower(narrow(), "kernel")
    panels = next(n.buffer for n in walk(kernel.body) if isinstance(n, Allocate) and n.buffer.name == "panels")
    assert panels.shape[-1] == 8
    assert any(isinstance(n, BufferLoad) and n.buffer is panels for n in walk(kernel.body))
    loops = [n for n in walk(kernel.body) if isinstance(n, For) and n.kind == "vectorized"]
    zeros = [n for n in loops if getattr(n.body, "buffer", None) is panels and not list(walk(n.body.value))[1:]]
    assert [n.extent.value for n in zeros] == [1]


def test_sums_side_by_side_share_what_they_load() -> None:
    """Iterations that each add to another sum are no terms of one tile: what all of them read is loaded once."""
    sums, x = Buffer("sums", (12, 8), "float32", "local"), Buffer("x", (2,))
    out, n = Buffer("out", (12, 8)), tir.Var("n")

    def each(value: Callable[[tir.Var, tir.Var], tir.Stmt]) -> tir.Stmt:
        return loop("r", 12, lambda r: loop("v", 8, lambda v: value(r, v), "vectorized"), "unrolled")

    body = seq(
        each(lambda r, v: store(sums, (r, v), 0.0)),
        loop("k", n, lambda _: each(lambda r, v: store(sums, (r, v), fma(sums[r, v], x[0], x[1])))),
        each(lambda r, v: store(out, (r, v), sums[r, v])),
    )
    kernel = PrimFunc("kernel", (x, out, n), Allocate(sums, body))
    (terms,) = (n for n in innermost_loops(compile_assembly(emit_module([kernel], HASWELL), HASWELL)))
    assert sum("vfmadd" in line for line in terms) >= 12
    assert not any("vbroadcastss" in line for line in terms), "\n".join(terms)
