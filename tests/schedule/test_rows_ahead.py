"""What reductions by rows ask for ahead (`schedule/reduction/ahead.py`): which places, and when."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import te, tir
from pullback.schedule.choose import lower
from pullback.schedule.group import Group, Machine
from pullback.schedule.reduction import ahead
from pullback.tir import Call, Prefetch, Seq
from pullback.tir import interpreter as tir_interpreter
from pullback.tir.visitor import walk
from tests.schedule.test_reduction import channels, over
from tests.schedule.test_schedules import group_of, run


@pytest.fixture
def hinted(monkeypatch):
    """A function that runs a group and gives the places that it asked for ahead, by the name of the buffer. All of them
    exist: an index out of bounds would be an error of a load."""
    monkeypatch.setattr(ahead, "FAR", 1024)

    def places(group: Group) -> dict[str, set[tuple[int, ...]]]:
        found: dict[str, set[tuple[int, ...]]] = {}

        def record(frame, node: Prefetch) -> None:
            frame.expr(node.buffer[node.indices])
            indices = np.broadcast_arrays(*map(frame.expr, node.indices))
            found.setdefault(node.buffer.name, set()).update(zip(*(i.ravel().tolist() for i in indices), strict=True))

        monkeypatch.setattr(tir_interpreter._Frame, "stmt_prefetch", record)
        run(group)
        return found

    return places


def variance(x: te.Tensor) -> te.Tensor:
    mean = over("sum", x, len(x.shape) - 1, "mean")
    square = te.compute(x.shape, lambda *i: (x[i] - mean[i[:-1]]) * (x[i] - mean[i[:-1]]), "square")
    return over("sum", square, len(x.shape) - 1, "variance")


@pytest.mark.parametrize("rows", [3, 256])
def test_the_next_rows_are_asked_for(hinted, rows: int) -> None:
    """Each line of each row but the first, which nobody can ask for, and the last once too often."""
    x = te.placeholder((rows, 96), name="x")
    count = 4 if rows == 256 else 1
    expected = {(r, 16 * k) for r in range(count, rows) for k in range(6)}
    assert hinted(group_of(variance(x))) == {"x": expected}


def test_nothing_is_asked_for_where_one_pass_reads_memory_in_order(hinted) -> None:
    x = te.placeholder((64, 96), name="x")
    assert hinted(group_of(over("sum", x, 1))) == {}


def test_nothing_is_asked_for_that_is_near(hinted, monkeypatch) -> None:
    monkeypatch.setattr(ahead, "FAR", 64 * 96 * 4 + 1)
    assert hinted(group_of(variance(te.placeholder((64, 96), name="x")))) == {}


@pytest.mark.parametrize("cached", [64 * 96 * 4, 8 << 20])
def test_the_next_rows_are_asked_for_wherever_results_go(hinted, cached: int) -> None:
    """Past the caches, or through them: then what is written, too."""
    x = te.placeholder((64, 96), name="x")
    total = variance(x)
    out = te.compute(x.shape, lambda i, j: x[i, j] * total[i], "out")
    group = group_of(out, machine=Machine(16, 16, cached_bytes=cached))
    lines = {(r, 16 * k) for r in range(64) for k in range(6)}
    through = {"out": lines} if cached > 64 * 96 * 4 else {}
    assert hinted(group) == {"x": {(r, j) for r, j in lines if r > 0}, **through}


@pytest.mark.parametrize("function", [False, True])
def test_short_arithmetic_on_whole_lines_leaves_what_is_written_alone(hinted, function: bool) -> None:
    """Not that of functions: a hint is free beside them."""
    x = te.placeholder((64, 96), name="x")
    total = variance(x)
    out = te.compute(x.shape, lambda i, j: (tir.call("exp", x[i, j]) if function else x[i, j]) * total[i], "out")
    assert set(hinted(group_of(out, machine=Machine(64, 32)))) == ({"x", "out"} if function else {"x"})


def test_what_is_written_is_not_asked_for_beside_several_arrays(hinted) -> None:
    x, y = (te.placeholder((64, 96), name=name) for name in "xy")
    total = variance(x)
    out = te.compute(x.shape, lambda i, j: x[i, j] * total[i] + y[i, j], "out")
    assert set(hinted(group_of(out))) == {"x", "y"}


@pytest.mark.parametrize("rows", [3, 256])
def test_the_next_rows_are_asked_for_beside_elementary_functions(hinted, rows: int) -> None:
    """Not beside the sums of what these are, which take less time than memory does."""
    x = te.placeholder((rows, 300), name="x")
    peak = over("max", x, 1, "peak")
    exp = te.compute(x.shape, lambda i, j: tir.call("exp", x[i, j] - peak[i]), "exp")
    group = group_of(over("sum", exp, 1, "total"))
    count = 4 if rows == 256 else 1
    starts = [first + 16 * k for first, size in ((0, 128), (128, 128), (256, 44)) for k in range(-(-size // 16))]
    assert hinted(group) == {"x": {(r, j) for r in range(count, rows) for j in starts}}
    hints = [n for n in walk(lower(group, "kernel").body) if isinstance(n, Seq) and isinstance(n.stmts[0], Prefetch)]
    assert hints and all(any(isinstance(m, Call) and m.name == "exp" for m in walk(n)) for n in hints)


def test_the_next_stretch_of_a_row_in_many_places(hinted) -> None:
    """Channels of images, a KiB each: four KiB further, but not further than the half of them that a task adds up."""
    x = te.placeholder((12, 3, 16, 16), name="x")
    asked = hinted(group_of(channels("sum", x)))
    assert asked == {"x": {(n, c, y, 0) for n in (4, 5, 10, 11) for c in range(3) for y in range(16)}}


def test_the_next_stretch_in_chunks(hinted) -> None:
    """A task that adds up chunk after chunk goes on to the next."""
    x = te.placeholder((40, 64, 16, 16), name="x")
    total = channels("sum", x)
    out = te.compute(x.shape, lambda n, c, i, j: x[n, c, i, j] * total[c], "out")
    asked = hinted(group_of(out))["x"]
    assert asked == {(n, c, y, 0) for n in range(4, 40) for c in range(64) for y in range(16)}
