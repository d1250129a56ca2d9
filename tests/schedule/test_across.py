"""Results whose vectors lie apart in memory, and the rows of a register tile side by side."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import te, tir
from pullback.schedule.choose import lower
from pullback.schedule.group import Group, Machine
from pullback.te import interpreter as te_interpreter
from pullback.tir.visitor import children, walk
from tests.schedule.limits import limit
from tests.schedule.native import natively
from tests.schedule.test_contraction import product
from tests.schedule.test_schedules import group_of, run

CASES = [  # bytes of a vector; kind; N, C, H, W, O, kernel, stride, padding
    (16, "forward", (2, 5, 7, 13, 24, 3, 2, 1)), (32, "weight", (1, 9, 11, 12, 35, 4, 1, 2)),
    (32, "weight", (3, 5, 10, 11, 16, 4, 1, 0)), (32, "forward", (1, 8, 7, 12, 16, 4, 2, 0)),
    (64, "weight", (3, 5, 10, 7, 26, 5, 2, 1)), (64, "weight", (3, 5, 10, 7, 32, 5, 2, 1)),
    (64, "forward", (3, 3, 8, 7, 31, 7, 1, 3)),
    (64, "forward", (2, 4, 7, 20, 15, 7, 2, 3)), (64, "weight", (3, 5, 10, 7, 24, 4, 2, 1)),  # less than a vector
    (64, "weight", (3, 5, 10, 7, 27, 5, 2, 1)), (64, "weight", (3, 5, 10, 7, 19, 5, 2, 1)),  # and part of a second one
]  # fmt: skip


@pytest.fixture(autouse=True)
def whole_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop that adds up partial sums stores them along their columns."""
    limit(
        monkeypatch, is_better_split=lambda *_: False, divided=lambda _, draft: draft, split_over_tasks=lambda *_: None
    )


def is_turned(group: Group) -> bool:
    stores = [
        n for n in walk(lower(group, "kernel").body) if isinstance(n, tir.BufferStore) and n.buffer.name == "tile"
    ]
    return any(
        isinstance(m, tir.BufferLoad) and m.buffer.name in ("acc", "kept") for n in stores for m in walk(n.value)
    )


def times_written(group: Group, result: te.Tensor) -> int:
    """How often the code has the statement that writes a result, once for each iteration of an unrolled loop."""

    def count(node: tir.Stmt) -> int:
        own = isinstance(node, tir.BufferStore) and node.buffer.name == group.buffers[result].name
        inside = own + sum(count(n) for n in children(node) if isinstance(n, tir.Stmt))
        return inside * node.extent.value if isinstance(node, tir.For) and node.kind == "unrolled" else inside

    return count(lower(group, "kernel").body)


def check_natively(group: Group) -> None:
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(t.dtype) for t in group.inputs}
    for result, expected in zip(natively(group, feeds), te_interpreter.evaluate(group.outputs, feeds), strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


def result_of(size: int, kind: str, shape: tuple[int, ...]) -> tuple[te.Tensor, Machine]:
    return product(kind, shape, False), Machine(size, 32 if size == 64 else 16, without=("Winograd",))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_are_stored_side_by_side(case: tuple) -> None:
    result, machine = result_of(*case)
    group = group_of(result, machine=machine)
    assert is_turned(group)
    run(group)
    check_natively(group)


@pytest.mark.parametrize("case", CASES[1:3] + CASES[4:6], ids=str)
def test_what_is_read_with_them_too(case: tuple) -> None:
    """As an optimizer reads and writes the weights and their moments."""
    gradient, machine = result_of(*case)
    weight, moment = (te.placeholder(gradient.shape, name=n) for n in ("weight", "moment"))
    moved = te.compute(gradient.shape, lambda *i: moment[i] * 0.5 + gradient[i], "moved")
    updated = te.compute(gradient.shape, lambda *i: weight[i] - moved[i] * 0.125, "updated")
    group = group_of(moved, updated, machine=machine)
    assert is_turned(group)
    run(group)
    check_natively(group)


@pytest.mark.parametrize(("channels", "turned"), [(32, 32), (27, 24), (30, 30), (18, 16)])
def test_few_columns_are_stored_one_by_one(channels: int, turned: int) -> None:
    """As the square in which they would be turned takes longer."""
    result, machine = result_of(64, "weight", (3, 5, 10, 7, channels, 5, 2, 1))
    body = lower(group_of(result, machine=machine), "kernel").body
    squares = {
        id(n): block.extent.value
        for block in walk(body)
        if isinstance(block, tir.For) and block.var.name == "block"
        for n in walk(block.body)
    }
    columns = [n for n in walk(body) if isinstance(n, tir.For) and n.var.name == "column"]
    assert sum(n.extent.value * squares.get(id(n), 1) for n in columns) == turned


@pytest.mark.parametrize("kernel", [3, 6])
def test_the_code_of_many_results_apart_in_memory_is_a_loop(kernel: int) -> None:
    """Squares that are turned, or vectors whose lanes are stores by themselves, are written out once."""
    gradient, machine = result_of(64, "weight", (3, 24, 9, 9, 64, kernel, 2, 1))
    group = group_of(gradient, machine=machine)
    check_natively(group)
    assert 0 < times_written(group, gradient) <= 2 * 16  # columns of a square, of a whole tile and of the rest


def updated(gradient: te.Tensor) -> te.Tensor:
    """A weight after a step of an optimizer with two moments: much to read and write for each element."""
    weight, first, second = (te.placeholder(gradient.shape, name=n) for n in ("weight", "first", "second"))

    def update(*i: tir.Var) -> tir.PrimExpr:
        mean, square = first[i] * 0.5 + gradient[i] * 0.5, second[i] * 0.75 + gradient[i] * gradient[i] * 0.25
        return weight[i] - mean * 0.125 / (tir.call("sqrt", tir.call("abs", square)) + 0.5)

    return te.compute(gradient.shape, update, "updated")


@pytest.mark.parametrize(("channels", "kernel", "count"), [(32, 4, 4), (32, 5, 8)])
def test_a_long_finish_of_one_square_is_a_loop_over_its_columns(channels: int, kernel: int, count: int) -> None:
    gradient, machine = result_of(64, "weight", (3, 5, 10, 7, channels, kernel, 2, 1))
    brief, result = group_of(gradient, machine=machine), updated(gradient)
    long = group_of(result, machine=machine)
    assert is_turned(brief)
    assert is_turned(long)
    assert times_written(brief, gradient) == count
    assert 0 < times_written(long, result) <= 2
    run(long)
    check_natively(long)


@pytest.mark.parametrize(("size", "turned"), [(64, True), (32, False)])
def test_results_with_gaps_are_turned_where_a_part_of_a_vector_is_stored_at_once(size: int, turned: bool) -> None:
    """Every other column of a strided gradient is a sum of its own."""
    gradient = product("data", (2, 64, 9, 9, 16, 3, 2, 1), False)
    group = group_of(gradient, machine=Machine(size, 32))
    assert is_turned(group) == turned
    check_natively(group)
