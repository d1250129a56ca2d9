"""Vectors that run on from one row of an image to the next."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pullback import te
from pullback.ir.op import Op
from pullback.schedule.choose import lower, recognize
from pullback.schedule.contraction.plan import runs
from pullback.schedule.contraction.plan import tails as cuts
from pullback.schedule.contraction.plan.blocking import Blocking
from pullback.schedule.contraction.plan.runs import row_length, run_length
from pullback.schedule.group import Group, Machine
from pullback.te import interpreter as te_interpreter
from pullback.tir import call
from tests.schedule.limits import limit
from tests.schedule.native import natively
from tests.schedule.test_contraction import UNFILTERED, data_gradient, product
from tests.schedule.test_schedules import group_of, run

WIDE = Machine(vector_bytes=64, registers=32, without=("Winograd",))
SHAPES = [  # images, channels, height, width, filters, taps, stride, padding
    (2, 5, 11, 9, 6, 3, 1, 1),
    (2, 3, 9, 7, 11, 3, 1, 0),  # rows of filters that fill no whole tile
    (1, 4, 8, 21, 3, 5, 1, 2),
    (2, 2, 13, 5, 4, 3, 2, 1),  # the gradient has four phases
]


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever may run on does."""
    limit(monkeypatch, _RUNS=(1000.0, 1000.0), _TAPS=0.0)
    monkeypatch.setattr(cuts, "may_run", lambda problem, blocking: True)
    monkeypatch.setattr(runs, "_LEAST", 1)


def blockings(group: Group) -> list[Blocking]:
    return [blocking for _, blocking in recognize(group).parts]


def right_natively(group: Group) -> None:
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(t.dtype) for t in group.inputs}
    for result, expected in zip(natively(group, feeds), te_interpreter.evaluate(group.outputs, feeds), strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("kind", ["forward", "data"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("machine", [UNFILTERED, WIDE], ids=["small", "wide"])
def test_convolutions(shape, kind, machine) -> None:
    group = group_of(product(kind, shape, False), machine=machine)
    stride = shape[6]
    assert any(b.run is not None for b in blockings(group)) == (stride == 1 or kind == "data")
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize(("groups", "shape"), [(3, (2, 6, 9, 7, 9, 3, 1, 1)), (2, (1, 8, 7, 10, 4, 3, 1, 0))], ids=str)
@pytest.mark.parametrize("kind", ["forward", "data"])
def test_groups(groups, shape, kind) -> None:
    group = group_of(product(kind, shape, False, groups), machine=WIDE)
    assert all(b.run is not None for b in blockings(group))
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
def test_dilation() -> None:
    group = group_of(data_gradient((2, 5, 9, 11), 4, 3, 1, 2, 2, False), machine=WIDE)
    assert all(b.run is not None for b in blockings(group))
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("kind", ["forward", "data"])
@pytest.mark.parametrize("height", [10, 11, 13])
def test_a_last_task_of_fewer_rows(height, kind, monkeypatch) -> None:
    """Its region ends before the others' do, and what lies behind is zeros."""
    limit(monkeypatch, region=1200)
    group = group_of(product(kind, (4, 4, height, 7, 5, 3, 1, 1), False), machine=WIDE)
    (blocking,) = blockings(group)
    assert blocking.run is not None and 1 < blocking.inner[blocking.run] < height
    assert height % blocking.inner[blocking.run]
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
def test_work_on_the_results() -> None:
    y = product("forward", (2, 3, 8, 9, 7, 3, 1, 1), False)
    bias, other = te.placeholder((7,), name="bias"), te.placeholder(y.shape, name="other")
    total = te.compute(y.shape, lambda n, c, h, w: y[n, c, h, w] * 2.0 + bias[c] + other[n, c, h, w], "total")
    group = group_of(total, machine=WIDE)
    assert all(b.run is not None for b in blockings(group))
    run(group)
    right_natively(group)


@pytest.mark.parametrize(
    ("shape", "is_run"),
    [
        ((8, 14, 13, 9, 4, 3, 1, 1), True),  # 9 of 16 lanes, so 9 of 10
        ((8, 24, 32, 22, 5, 3, 1, 1), True),  # 22 of 32, so 22 of 23
        ((8, 24, 32, 48, 5, 3, 1, 1), False),  # whole vectors
        ((64, 24, 3, 9, 5, 3, 1, 0), False),  # one row
        ((8, 24, 13, 9, 16, 3, 1, 1), False),  # vectors of filters are full
    ],
    ids=str,
)
def test_where_rows_leave_lanes_idle(shape, is_run) -> None:
    group = group_of(product("forward", shape, False), machine=WIDE)
    assert any(b.run is not None for b in blockings(group)) == is_run


@pytest.mark.parametrize("second_bytes", [64 * 1024, 1024 * 1024])
def test_results_that_leave_the_second_cache_are_put_there_at_once(
    second_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """61 of 64 lanes are as good as 61 of 62: rows run on where their results stay near, 171 KiB."""
    limit(monkeypatch, NOMINAL_BYTES=second_bytes)
    machine = dataclasses.replace(WIDE, second_bytes=second_bytes)
    ((_, blocking),) = recognize(
        group_of(product("forward", (2, 28, 44, 61, 8, 3, 1, 1), False), machine=machine)
    ).parts
    assert (blocking.run is not None) == (second_bytes > 171 * 1024)


def test_lanes_between_rows_are_the_only_idle_ones() -> None:
    group = group_of(product("forward", (8, 14, 13, 9, 4, 3, 1, 1), False), machine=WIDE)
    ((problem, blocking),) = recognize(group).parts
    length = run_length(problem, blocking.b, blocking.inner)
    assert 0 <= length - (blocking.inner[blocking.run] * 10 - 1) < 16 and length % 16 == 0


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize(
    ("padding", "taps", "row"),
    [
        ((1, 1), 3, 10),
        ((2, 2), 5, 11),
        ((0, 0), 3, 9),
        ((0, 2), 3, 11),  # zeros at one end only
        ((1, 2), 3, 11),
        ((3, 1), 3, 12),
        ((5, 5), 1, 14),  # results of zeros alone between two rows
    ],
    ids=str,
)
def test_zeros_between_two_rows_belong_to_both(padding: tuple[int, int], taps: int, row: int) -> None:
    data, weight = te.placeholder((2, 3, 7, 9), name="x"), te.placeholder((4, 3, taps, taps), name="w")
    result = Op.get("nn.conv2d").te(
        data, weight, strides=1, padding=(1, padding[0], 1, padding[1]), dilation=1, groups=1, data_layout="NCHW",
        kernel_layout="OIHW", out_layout=None, out_dtype="float32",
    )  # fmt: skip
    group = group_of(result, machine=WIDE)
    ((problem, blocking),) = recognize(group).parts
    assert row_length(problem, blocking.b, blocking.inner) == row
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("order", [(0, 2, 1, 3), (1, 0, 2, 3), (2, 0, 1, 3), (1, 2, 0, 3), (0, 1, 3, 2)], ids=str)
def test_images_whose_rows_are_not_neighbours_in_memory(order: tuple[int, ...]) -> None:
    """A region's axes lie as those of memory do: rows run on only where they follow one another there."""
    shape = (20, 5, 11, 9)
    memory = te.placeholder(tuple(shape[k] for k in order), name="x")
    data = te.compute(shape, lambda *i: memory[tuple(i[k] for k in order)], "logical")
    weight = te.placeholder((6, 5, 3, 3), name="w")
    result = Op.get("nn.conv2d").te(
        data, weight, strides=1, padding=1, dilation=1, groups=1, data_layout="NCHW", kernel_layout="OIHW",
        out_layout=None, out_dtype="float32",
    )  # fmt: skip
    group = group_of(result, machine=WIDE)
    assert any(b.run is not None for b in blockings(group)) == (order[-2:] == (2, 3))
    run(group)
    right_natively(group)


def test_channels_innermost_and_functions_do_not(monkeypatch) -> None:
    """There vectors are channels; and an elementary function is computed for a whole tile of results."""
    monkeypatch.setattr(cuts, "_RUNS", (1000.0, 1000.0))
    shape = (8, 14, 13, 9, 4, 3, 1, 1)
    assert all(b.run is None for b in blockings(group_of(product("forward", shape, True), machine=WIDE)))
    y = product("forward", shape, False)
    group = group_of(te.compute(y.shape, lambda *i: call("exp", y[i]), "exp"), machine=WIDE)
    assert all(b.run is None for b in blockings(group))


def test_padding_that_others_leave_out_is_not_computed() -> None:
    """The gradient of an image that 5 taps have made half as large: most of its terms are zeros."""
    group = group_of(product("data", (24, 6, 49, 9, 14, 5, 1, 0), False), machine=WIDE)
    assert all(b.run is None for b in blockings(group))
    assert lower(group, "kernel")
