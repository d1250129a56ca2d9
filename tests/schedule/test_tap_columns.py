"""Vectors that go on from the last channel of a tap to the next tap's first one."""

from __future__ import annotations

import pytest

from pullback import te
from pullback.ir.op import Op
from pullback.schedule.choose import lower, recognize
from pullback.schedule.contraction.plan import tails as cuts
from pullback.schedule.contraction.plan.alternatives import choice_of, chosen, other_tasks, other_tiles
from pullback.schedule.contraction.plan.tap_columns import tap_length
from pullback.schedule.group import Group, Machine
from pullback.tir.in_place import may_share
from tests.schedule.limits import limit
from tests.schedule.test_contraction import UNFILTERED, product
from tests.schedule.test_runs import blockings, right_natively
from tests.schedule.test_schedules import group_of, run

WIDE = Machine(vector_bytes=64, registers=32, without=("Winograd",))
SHAPES = [  # images, channels, height, width, filters, taps, stride, padding
    (2, 5, 11, 9, 6, 3, 1, 1),  # 15 columns
    (3, 19, 7, 8, 4, 5, 1, 2),  # 95
    (1, 3, 21, 20, 11, 7, 1, 0),  # one image
    (2, 6, 13, 9, 3, 3, 2, 1),  # of the places, every second
    (2, 7, 5, 5, 3, 5, 1, 2),  # as many taps as places
]


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever may go on from tap to tap does."""
    monkeypatch.setattr(cuts, "_TAPS", 1000.0)
    monkeypatch.setattr(cuts, "_WASTES", (0.0, 0.0))


def weight_gradient(x, dy, taps, dtype="float32", strides=1, padding=0, dilation=1, groups=1, is_last=True) -> Group:
    """The gradient by the weight; sizes have channels innermost, memory has them there if ``is_last``."""
    layout = "NHWC" if is_last else "NCHW"
    x, dy = ((n, h, w, c) if is_last else (n, c, h, w) for n, h, w, c in (x, dy))
    data, grad = te.placeholder(x, dtype, "x"), te.placeholder(dy, dtype, "dy")
    result = Op.get("grad.conv2d_weight").te(
        data, grad, strides=strides, padding=padding, dilation=dilation, groups=groups, data_layout=layout,
        kernel_layout="OIHW", out_layout=layout, out_dtype=dtype, kernel_size=taps,
    )  # fmt: skip
    return group_of(result, machine=WIDE)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("is_last", [False, True], ids=["channels outside", "channels innermost"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("machine", [UNFILTERED, WIDE], ids=["small", "wide"])
def test_gradients_of_weights(shape, machine, is_last) -> None:
    group = group_of(product("weight", shape, is_last), machine=machine)
    assert all(b.taps is not None for b in blockings(group))
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize(("groups", "shape"), [(3, (2, 6, 9, 7, 9, 3, 1, 1)), (2, (1, 8, 7, 10, 4, 3, 2, 1))], ids=str)
def test_groups(groups, shape) -> None:
    """A region holds the channels of one group: those of the next are no columns."""
    group = group_of(product("weight", shape, False, groups), machine=WIDE)
    ((problem, blocking),) = recognize(group).parts
    outer = next(v for v in problem.outputs if all(v in f.axes for f in problem.factors))
    assert blocking.taps is not None and blocking.inner[outer] == 1
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("height", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tiles_of_few_rows(groups, height, dtype) -> None:
    """They get several values of one more axis, but not those of the groups."""
    group = weight_gradient((4, 9, 5, 12), (4, 10 - height, 3, 8), (height, 3), dtype, groups=groups)
    assert all(b.taps is not None for b in blockings(group))
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize(
    ("dilation", "stride", "size"), [(2, 1, 11), (3, 1, 12), (2, 2, 13), (2, 3, 14), (3, 2, 15)], ids=str
)
@pytest.mark.parametrize("most", [600, 65536], ids=["rounds", "whole"])
@pytest.mark.parametrize("is_last", [False, True], ids=["channels outside", "channels innermost"])
def test_taps_apart(dilation, stride, size, most, is_last, monkeypatch) -> None:
    """Places that are as far apart as taps lie side by side in a region, in the last, shorter round as well."""
    limit(monkeypatch, region=most)
    reach = (3 - 1) * dilation
    places = (size + 2 - reach - 1) // stride + 1
    window = {"strides": stride, "padding": 1, "dilation": dilation}
    group = weight_gradient((2, size, size, 5), (2, places, places, 6), (3, 3), **window, is_last=is_last)
    assert all(b.taps is not None for b in blockings(group))
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
def test_padding_is_skipped_for_other_taps_only(kind) -> None:
    """In a small image the taps that go on are all in one vector: none of their terms may be left out for another's."""
    group = group_of(product(kind, (3, 4, 6, 5, 3, 5, 1, 2), False), machine=WIDE)
    assert all(b.taps is not None for b in blockings(group))
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("rounds", [1200, 4000])
def test_rounds_and_parts(rounds, monkeypatch) -> None:
    limit(monkeypatch, region=rounds)
    group = group_of(product("weight", (9, 5, 13, 11, 6, 3, 1, 1), False), machine=WIDE)
    (blocking,) = blockings(group)
    assert blocking.taps is not None and (blocking.split_k or 0) > 1
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("taps", [2, 3, 5, 7])
def test_work_on_the_results(taps) -> None:
    """Results are turned in registers, and with them what an optimizer reads at their places."""
    y = product("weight", (4, 5, 12, 12, 6, taps, 1, 0), False)
    other = te.placeholder(y.shape, name="other")
    group = group_of(te.compute(y.shape, lambda *i: other[i] - y[i] * 0.5, "updated"), machine=WIDE)
    assert all(b.taps is not None for b in blockings(group))
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
def test_weights_are_updated_in_place_all_the_same() -> None:
    gradient = product("weight", (2, 3, 9, 8, 9, 3, 1, 1), False)
    w = te.placeholder(gradient.shape, name="old")
    group = group_of(te.compute(w.shape, lambda *i: w[i] - gradient[i] * 0.1, "new"), machine=WIDE)
    assert all(b.taps is not None for b in blockings(group))
    kernel = lower(group, "kernel")
    assert may_share(kernel, kernel.params[[p.name for p in kernel.params].index("old")], kernel.params[-1])


@pytest.mark.parametrize(
    ("shape", "goes_on"),
    [
        ((8, 9, 20, 21, 27, 5, 1, 2), True),  # 27 of 32 lanes, so 45 of 48
        ((8, 13, 20, 21, 8, 3, 1, 1), True),  # 13 of 16, so 39 of 48 in more chains
        ((8, 48, 20, 21, 64, 5, 1, 2), False),  # whole vectors
    ],
    ids=str,
)
def test_where_channels_leave_lanes_idle(shape, goes_on) -> None:
    group = group_of(product("weight", shape, False), machine=WIDE)
    assert any(b.taps is not None for b in blockings(group)) == goes_on


@pytest.mark.usefixtures("forced")
def test_results_of_a_batch_are_far_apart() -> None:
    """The images of a batch could be columns as well, but each result would be put into another page."""
    group = group_of(product("forward", (24, 5, 30, 30, 8, 3, 1, 1), False), machine=WIDE)
    assert all(b.taps is None for b in blockings(group))


@pytest.mark.usefixtures("forced")
def test_the_lanes_behind_the_last_tap_are_the_only_idle_ones() -> None:
    group = group_of(product("weight", SHAPES[1], False), machine=WIDE)
    ((problem, blocking),) = recognize(group).parts
    assert tap_length(problem, blocking) == 96


@pytest.mark.usefixtures("forced")
def test_alternatives() -> None:
    """Other tiles and tasks take all channels of all taps as well."""
    group = group_of(product("weight", (4, 11, 12, 12, 40, 5, 1, 2), False), machine=WIDE)
    ((problem, blocking),) = recognize(group).parts
    others = [*other_tiles(problem, blocking), *other_tasks(problem, blocking)]
    assert others and choice_of(problem, blocking) not in others
    for choice in others:
        other = chosen(problem, blocking, choice)
        assert other.inner[other.column] == 11 and other.inner[other.taps] == 5
        assert choice_of(problem, other) == choice


@pytest.mark.usefixtures("forced")
def test_a_signal_of_one_axis_has_no_channels() -> None:
    a, b, k = te.placeholder((6, 5), name="a"), te.placeholder((24,), name="b"), te.reduce_axis(5)
    result = te.compute((6, 20), lambda i, j: te.sum(a[i, k.var] * b[j + k.var], k), "filtered")
    group = group_of(result, machine=WIDE)
    assert all(b.taps is None for b in blockings(group))
    run(group)
    right_natively(group)


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize(
    "shape", [(2, 20000, 5, 5, 4, 3, 1, 1), (64, 512, 7, 7, 512, 3, 1, 1)], ids=["region", "partial sums"]
)
def test_large_regions_and_partial_sums_are_left_alone(shape) -> None:
    group = group_of(product("weight", shape, False), machine=WIDE)
    assert all(b.taps is None for b in blockings(group))
