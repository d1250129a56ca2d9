"""Reductions by rows, by columns, written out and in phases: what the te interpreter says, in every layout."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pullback import te, tir
from pullback.schedule import order
from pullback.schedule.choose import lower, recognize
from pullback.schedule.group import Group, Machine
from pullback.schedule.reduction import Reduction, columns, rows
from pullback.schedule.reduction.build import LOCAL_ROW
from pullback.schedule.strides import coefficients, contiguity, outermost_first, strides
from pullback.target import Target
from pullback.te import interpreter as te_interpreter
from pullback.tir import Allocate, Buffer, BufferStore, Call, For, Let, Var
from pullback.tir.equality import Equality
from pullback.tir.visitor import walk
from pullback.tir.workspace import lift_workspaces
from tests.schedule.native import natively
from tests.schedule.test_schedules import group_of, run

REDUCTIONS = ("sum", "max", "min", "prod")


@pytest.fixture(autouse=True)
def narrow_blocks(monkeypatch):
    """Blocks of 16 columns: sizes a little above reach every edge."""
    monkeypatch.setattr(columns, "BLOCK_BYTES", 64)


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of sums of any size worth two of 32 elements."""
    monkeypatch.setattr(order, "CHUNK", 32)
    monkeypatch.setattr(order, "LEAST", 1)
    monkeypatch.setattr(order, "MANY", 0)


def logical(x: te.Tensor) -> te.Tensor:
    """NCHW of what lies in memory as NHWC."""
    n, h, w, c = x.shape
    return te.compute((n, c, h, w), lambda i, j, y, z: x[i, y, z, j], "logical")


def channels(kind: str, x: te.Tensor, name: str = "total") -> te.Tensor:
    """A reduction of NCHW to C."""
    n, c, h, w = x.shape
    i, y, z = te.reduce_axis(n), te.reduce_axis(h), te.reduce_axis(w)
    return te.compute((c,), lambda j: te.reduction(kind, x[i.var, j, y.var, z.var], (i, y, z)), name)


def over(kind: str, x: te.Tensor, axis: int, name: str = "total", keep: bool = False) -> te.Tensor:
    """A reduction over one axis."""
    k = te.reduce_axis(x.shape[axis])
    shape = (*x.shape[:axis], *((1,) if keep else ()), *x.shape[axis + 1 :])

    def element(*i):
        kept = [v for a, v in enumerate(i) if not (keep and a == axis)]
        return te.reduction(kind, x[(*kept[:axis], k.var, *kept[axis:])], k)

    return te.compute(shape, element, name)


def phased(group: Group) -> bool:
    return bool(lift_workspaces(lower(group, "kernel"))[1])


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("shape", [(3, 5, 7, 1), (2, 3, 3, 4), (5, 4, 2, 17), (1, 9, 1, 33), (2, 0, 3, 5)])
def test_channels_of_either_layout(kind, shape):
    x = te.placeholder(shape, name="x")
    run(group_of(channels(kind, logical(x))))
    run(group_of(channels(kind, x)))


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("shape", [(9, 7, 5), (64, 3, 4), (100, 1, 6), (3, 130, 2), (7, 4, 40)])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.usefixtures("small_chunks")
def test_phases_over_any_axis(kind, shape, axis):
    x = te.placeholder(shape, name="x")
    y = te.compute(shape, lambda *i: x[i] * 0.25 + 1.0, "y")
    run(group_of(over(kind, y, axis)))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("shape", [(12, 6, 6, 3), (15, 5, 7, 17), (2, 16, 16, 8)])
def test_phases_with_what_follows(shape):
    """Mean, variance, 1/deviation and running mean of the channels in one kernel, whichever axis is innermost."""
    for channels_last in (True, False):
        x = te.placeholder(shape, name="x")
        data = logical(x) if channels_last else x
        n, c = data.shape[0] * data.shape[2] * data.shape[3], data.shape[1]
        old = te.placeholder((c,), name="old")
        total = channels("sum", data)
        mean = te.compute((c,), lambda j, t=total, n=n: t[j] / float(n), "mean")
        square = te.compute(
            data.shape, lambda i, j, y, z, d=data, m=mean: (d[i, j, y, z] - m[j]) * (d[i, j, y, z] - m[j]), "square"
        )
        variance = channels("sum", square, "variance")
        inverse = te.compute((c,), lambda j, v=variance: tir.call("rsqrt", v[j] + 1e-5), "inverse")
        running = te.compute((c,), lambda j, m=mean, o=old: o[j] * 0.9 + m[j] * 0.1, "running")
        group = group_of(mean, inverse, running)
        assert phased(group)
        run(group)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("is_output", [False, True])
@pytest.mark.parametrize(("shape", "kept"), [((40, 13), 0), ((300,), 0), ((90, 3), 1), ((90, 2, 3), 2)], ids=str)
def test_phases_that_read_a_value_of_the_row(shape, kept, is_output):
    """It is there before the chunks are, and before those of a second sum that reads the first one."""
    lead = len(shape) - kept
    x, s = te.placeholder(shape, name="x"), te.placeholder(shape[lead:], name="s")
    value = te.compute(s.shape, lambda *i: tir.call("tanh", s[i]), "value")

    def summed(name, term):
        axes = [te.reduce_axis(n) for n in shape[:lead]]
        at = tuple(a.var for a in axes)
        return te.compute(s.shape, lambda *i: te.sum(term(x[(*at, *i)], i), axes), name)

    first = summed("first", lambda element, i: element * value[i])
    second = summed("second", lambda element, i: (element - first[i]) * value[i])
    for results in ((first,), (first, second)):
        group = group_of(*results, *((value,) if is_output else ()))
        assert isinstance(recognize(group), Reduction) and phased(group)
        run(group)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("size", [128, 129, 257, 1000])
def test_phases_to_a_scalar(size):
    x = te.placeholder((size,), name="x")
    group = group_of(over("sum", x, 0), over("max", x, 0, "largest"))
    assert phased(group)
    run(group)


@pytest.mark.parametrize("size", [8193, 10_000, 123_457, 10_000_000])
def test_chunks_of_one_sum_are_equal_but_for_a_short_last_one(size):
    """Those of another size are a loop of their own, for which other threads would wait."""
    cut = order.Order.of((size,), 1).cut
    assert cut is not None and (cut.count - 1) * cut.size <= size <= cut.count * cut.size
    left = size - size // cut.size * cut.size
    assert left < cut.size / 2


def test_many_sums_are_cut_only_where_they_are_long():
    assert order.Order.of((512,), 256).cut is None
    cut = order.Order.of((200_000,), 512).cut
    assert cut is not None and cut.count >= 4


@pytest.mark.parametrize("gathered", [False, True])
def test_a_sum_of_what_lies_apart_is_worth_threads_sooner(gathered):
    size = 10_000
    x, t, i = te.placeholder((size, 16), "float32"), te.placeholder((size,), "int64"), te.reduce_axis(size)
    y = te.compute((), lambda: te.sum(x[i.var, t[i.var] if gathered else 0], i))
    kernel = lower(group_of(y), "kernel")
    tasks = [n.extent.value for n in walk(kernel.body) if isinstance(n, tir.For) and n.kind == "parallel"]
    assert any(n > 1 for n in tasks) == gathered


def test_several_sums_read_each_input_once():
    """The gradient of a norm's scale and shift: one loop, one load of each."""
    dy, x = te.placeholder((2, 3, 130, 8), name="dy"), te.placeholder((2, 3, 130, 8), name="x")
    a, b = logical(dy), logical(x)
    product = te.compute(a.shape, lambda *i: a[i] * b[i], "product")
    group = group_of(channels("sum", a, "beta"), channels("sum", product, "gamma"))
    text = lower(group, "kernel").script()
    assert text.count("step, lane in T.grid") == 1
    run(group)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("shape", [(12, 6, 6, 3), (15, 5, 7, 17), (1, 2, 3, 1)])
def test_elements_are_written_as_the_data_are_read(shape):
    """The masked gradient of a relu before a norm: written, and summed over the channels, in one pass."""
    for channels_last in (True, False):
        dy, y = te.placeholder(shape, name="dy"), te.placeholder(shape, name="y")
        zero = tir.const(0.0, "float32")
        masked = te.compute(shape, lambda *i, dy=dy, y=y, zero=zero: tir.select(y[i] > 0.0, dy[i], zero), "masked")
        product = te.compute(shape, lambda *i, m=masked, y=y: m[i] * y[i], "product")
        parts = [
            channels("sum", logical(t) if channels_last else t, f"sum{k}") for k, t in enumerate((masked, product))
        ]
        group = group_of(masked, *parts)
        assert isinstance(recognize(group), Reduction)
        assert phased(group) == (np.prod(shape) > 100)
        run(group)


@pytest.mark.parametrize(
    ("vector_bytes", "dtype", "width"), [(32, "float32", 64), (16, "float64", 32), (64, "float32", 64)]
)
def test_a_block_is_several_lines_of_memory(vector_bytes, dtype, width, monkeypatch):
    """Whatever the vectors are: one line of each row would leave memory waiting."""
    monkeypatch.undo()  # of narrow_blocks
    for size in (width - 1, 2 * width, 2 * width + 3):
        group = group_of(over("sum", te.placeholder((70, size), dtype, "x"), 0), machine=Machine(vector_bytes))
        assert columns.block_width(recognize(group).program) == min(size, width)
        run(group)


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 4, 3, 20)])
def test_softmax_along_a_middle_axis(shape):
    """Along the channels: columns, with whole rows of elements."""
    x = te.placeholder(shape, name="x")
    largest = over("max", x, 1, "largest", keep=True)
    e = te.compute(shape, lambda n, c, h, w: tir.call("exp", x[n, c, h, w] - largest[n, 0, h, w]), "e")
    total = over("sum", e, 1, "total", keep=True)
    group = group_of(te.compute(shape, lambda n, c, h, w: e[n, c, h, w] / total[n, 0, h, w], "softmax"))
    assert isinstance(recognize(group), Reduction)
    run(group)


@pytest.mark.parametrize("columns", [1, 3, 20, 64, 200])
@pytest.mark.parametrize("lead", [(8,), (3, 4), (7,), (2, 5), (2, 3)])
def test_rows_side_by_side_are_those_one_by_one(lead, columns, monkeypatch):
    """Softmax and what is scaled along the row, in blocks of four, two and one rows, some of which are left over:
    bit for bit."""
    shape = (*lead, columns)
    x, gamma = te.placeholder(shape, name="x"), te.placeholder((columns,), name="gamma")
    largest = over("max", x, len(lead), "largest", keep=True)
    e = te.compute(shape, lambda *i: tir.call("exp", x[i] - largest[(*i[:-1], 0)]), "e")
    total = over("sum", e, len(lead), "total", keep=True)
    result = te.compute(shape, lambda *i: e[i] / total[(*i[:-1], 0)] * gamma[i[-1]], "result")
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in (x, gamma)}
    found = []
    for count in (1, 2, 4):
        monkeypatch.setattr(rows, "_side_by_side", lambda _, count=count: count)
        group = group_of(result)
        assert isinstance(recognize(group), Reduction)
        run(group)
        found.append(natively(group, feeds)[0])
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_lanes_of_several_sums_side_by_side(count, vector_bytes, monkeypatch):
    """Three sums and two maxima of rows, in vectors of any width: each has the bits of one by itself."""
    monkeypatch.setattr(rows, "_side_by_side", lambda _: count)
    x, y = (te.placeholder((64, 75), name=name) for name in "xy")
    product = te.compute(x.shape, lambda i, j: x[i, j] * y[i, j], "product")
    results = [
        over(kind, source, 1)
        for kind, source in (("sum", x), ("max", y), ("sum", y), ("sum", product), ("max", product))
    ]
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in (x, y)}
    machine = Machine(vector_bytes, 32)
    together = group_of(*results, machine=machine)
    run(together)
    found = natively(together, {t: feeds[t] for t in together.inputs})
    for result, one in zip(results, found, strict=True):
        alone = group_of(result, machine=machine)
        assert natively(alone, {t: feeds[t] for t in alone.inputs})[0].tobytes() == one.tobytes()


@pytest.mark.parametrize("shape", [(64, 75), (64, 8, 16), (48, 9, 5), (64, 3, 40)], ids=str)
def test_sums_of_one_row_after_another(shape, monkeypatch):
    """From beyond the second cache, unless something is shared; bit for bit those of rows side by side."""
    monkeypatch.setattr(rows, "_side_by_side", lambda _: 4)

    def of_rows(kind: str, x: te.Tensor) -> te.Tensor:
        axes = [te.reduce_axis(n) for n in shape[1:]]
        return te.compute(shape[:1], lambda i: te.reduction(kind, x[(i, *(k.var for k in axes))], axes), kind)

    x, scale = te.placeholder(shape, name="x"), te.placeholder(shape[1:], name="scale")
    scaled = te.compute(shape, lambda i, *j: x[(i, *j)] * scale[j], "scaled")
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in (x, scale)}
    for source in (x, scaled):
        found = []
        for second in (1 << 30, 16):
            machine = Machine(64, 32, second_bytes=second)
            group = group_of(of_rows("sum", source), of_rows("max", source), machine=machine)
            run(group)
            found.append(natively(group, {t: feeds[t] for t in group.inputs}))
            body = lower(group, "kernel").body
            inner = [n.var.name for n in walk(body) if isinstance(n, For) and n.var.name in ("lane", "r")]
            assert inner[0] == ("r" if second == 16 and source is x else "lane")
        for one, other in zip(*found, strict=True):
            assert one.tobytes() == other.tobytes()


SMALL_TILES, LARGE_TILES = Machine(32, 16, second_bytes=512 << 10), Machine(64, 32, second_bytes=512 << 10)
MEMORY, LARGE_MEMORY = (dataclasses.replace(m, cached_bytes=1 << 20) for m in (SMALL_TILES, LARGE_TILES))  # with less


@pytest.mark.parametrize(
    ("shape", "machine", "counts"),
    [
        ((1024, 384), LARGE_TILES, {4}),
        ((1022, 384), LARGE_TILES, {4, 2}),
        ((1021, 384), LARGE_TILES, {4, order.LANES}),  # the last one for itself
        ((64, 384), LARGE_TILES, {order.LANES}),
        ((1024, 100000), LARGE_TILES, {order.LANES}),
        ((1024, 768), LARGE_TILES, {2}),  # from the last cache
        ((1024, 1792), LARGE_TILES, {order.LANES}),
        ((20000, 96), LARGE_MEMORY, {2}),
        ((20000, 384), LARGE_MEMORY, {order.LANES}),
        ((256, 384), SMALL_TILES, {4}),
        ((8192, 128), SMALL_TILES, {4}),  # from the last cache
        ((4096, 256), SMALL_TILES, {2}),
        ((1024, 384), SMALL_TILES, {order.LANES}),
        ((20000, 64), MEMORY, {4}),
        ((20000, 128), MEMORY, {2}),
        ((20000, 384), MEMORY, {order.LANES}),
    ],
)
def test_how_many_rows_are_taken_together(shape, machine, counts):
    """Four, and those that are left over, where tasks enough are left, and rows are not long: the shorter the farther
    they come from, and with 16 registers."""
    x = te.placeholder(shape, name="x")
    largest = over("max", x, 1, "largest", keep=True)
    e = te.compute(shape, lambda i, j: tir.call("exp", x[i, j] - largest[i, 0]), "e")
    total = over("sum", e, 1, "total", keep=True)
    group = group_of(te.compute(shape, lambda i, j: e[i, j] / total[i, 0], "softmax"), machine=machine)
    kernel = lower(group, "kernel")
    shapes = {n.buffer.shape[0] for n in walk(kernel.body) if isinstance(n, Allocate) and n.buffer.name == "partial"}
    assert shapes == counts


def test_rows_may_name_their_axes_in_another_order():
    """A norm over the channels of NCHW data that lie in memory as NHWC, written NHWC."""
    x = te.placeholder((2, 3, 4, 21), name="x")
    data = logical(x)
    total = over("sum", data, 1, keep=True)
    shifted = te.compute(data.shape, lambda n, c, h, w: data[n, c, h, w] - total[n, 0, h, w] / 21.0, "shifted")
    out = te.compute(x.shape, lambda n, h, w, c: shifted[n, c, h, w], "out")
    group = group_of(out)
    assert isinstance(recognize(group), Reduction)
    run(group)


def test_equal_steps_are_one():
    x = te.placeholder((5, 40), name="x")
    parts = []
    for name in ("first", "second"):
        total = over("sum", x, 1, name, keep=True)
        parts.append(te.compute((5, 1), lambda i, _, t=total: t[i, 0] / 40.0, f"mean_{name}"))
    group = group_of(te.compute((5, 40), lambda i, j: x[i, j] * parts[0][i, 0] - parts[1][i, 0], "out"))
    text = lower(group, "kernel").script()
    assert text.count("partial = ") == 1
    assert "l_mean_second" not in text
    run(group)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 4), (4, 1)])
def test_axes_of_one(shape):
    """An output without axes of its own is a value of the row, wherever it is read."""
    x = te.placeholder(shape, name="x")
    twice = te.compute(shape, lambda *i: x[i] * 2.0, "twice")
    total = over("sum", twice, 0)
    more = te.compute(shape, lambda *i: twice[i] + 1.0, "more")
    last = te.compute(total.shape, lambda *i: total[i] * 3.0, "last")
    run(group_of(twice, more, last))


def pool(kind: str, x: te.Tensor, size: int, step: int) -> te.Tensor:
    n, c, h, w = x.shape
    ky, kx = te.reduce_axis(size), te.reduce_axis(size)
    shape = (n, c, (h - size) // step + 1, (w - size) // step + 1)
    element = lambda i, j, y, z: te.reduction(kind, x[i, j, y * step + ky.var, z * step + kx.var], (ky, kx))  # noqa: E731
    return te.compute(shape, element, "pool")


@pytest.mark.parametrize("kind", ["max", "sum"])
@pytest.mark.parametrize(("size", "step"), [(2, 2), (3, 2), (3, 1), (6, 3)])
def test_windows_of_either_layout(kind, size, step):
    x = te.placeholder((2, 3, 9, 12), name="x")
    pooled = pool(kind, x, size, step)
    run(group_of(te.compute(pooled.shape, lambda *i: pooled[i] * 0.25, "mean")))
    x = te.placeholder((2, 9, 12, 5), name="x")
    pooled = pool(kind, logical(x), size, step)
    n, c, h, w = pooled.shape
    group = group_of(te.compute((n, h, w, c), lambda i, y, z, j: pooled[i, j, y, z], "out"))
    assert isinstance(recognize(group), Reduction)
    run(group)


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("shape", [(4, 1), (3, 3), (2, 17), (3, 40), (2, 131)])
@pytest.mark.parametrize("axis", [0, 1])
def test_arguments(kind, shape, axis):
    x = te.placeholder(shape, name="x")
    run(group_of(over(kind, x, axis)))


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_arguments_of_ties_and_nan(kind, axis):
    nan, inf = float("nan"), float("inf")
    rows = [
        [1.0] * 40,
        [nan] * 40,
        [inf] * 40,
        [-inf] * 40,
        [0.0, -0.0] * 20,
        [2.0] * 17 + [nan, nan, 9.0] + [1.0] * 20,
    ]
    rows += [[float(j % 7) for j in range(40)], [float(-(j % 11)) for j in range(40)]]
    data = np.array(rows, "float32")
    data = np.ascontiguousarray(data if axis == 1 else data.T)
    x = te.placeholder(data.shape, name="x")
    group = group_of(over(kind, x, axis))
    (result,) = natively(group, {x: data})
    np.testing.assert_array_equal(result, getattr(np, kind)(data, axis))


def test_refuses_what_likes_different_axes_innermost():
    x, y = te.placeholder((64, 64), name="x"), te.placeholder((64, 64), name="y")
    row = over("sum", x, 1, "row")
    column = over("sum", y, 0, "column")
    assert recognize(group_of(row)) is not None
    assert recognize(group_of(row, column)) is None


@pytest.mark.parametrize("shape", [(300, 16), (257, 31), (64, 130), (5, 2000), (1, 40000)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.usefixtures("small_chunks")
def test_native_sums_are_accurate(shape, axis):
    """Within the bound of a sum in chunks, far below that of a plain one: |error| ≤ 32 eps Σ|x|."""
    target = Target("llvm")
    x = te.placeholder(shape, name="x")
    group = group_of(over("sum", x, axis), machine=Machine(target.vector_bytes, target.registers))
    data = np.random.default_rng(0).standard_normal(shape).astype("float32")
    (result,) = natively(group, {x: data})
    expected = te_interpreter.evaluate(group.outputs, {x: data.astype("float64")})[0]
    exact = data.astype("float64").sum(axis)
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)
    assert np.all(abs(result - exact) <= 32 * np.finfo("float32").eps * abs(data).sum(axis, dtype="float64"))


def test_strides():
    i, j, n = Var("i"), Var("j"), Var("n")
    a = Buffer("A", (4, 6, 5))
    load = a[j + 1, i * 2, 3]
    assert strides(load) == {i: 10, j: 30}
    assert strides(a[i // 2, j, 0]) == {i: None, j: 5}
    assert strides(a[i, j, i // 2]) == {i: None, j: 5}
    assert strides(Buffer("B", (n, 5))[i, 0]) is None
    assert coefficients(3 * (i - j) + 2 * i) == {i: 5, j: -3}
    assert coefficients(i * j - i) == {i: None, j: None}
    assert coefficients(i - i) == {i: 0}
    assert contiguity([a[0, i, j], load], [i, j], [6, 5]) == {i: 0, j: 30}
    assert outermost_first([a[0, j, i]], [i, j]) == [j, i]


def test_equality_of_expressions():
    x, y, a = Var("x", "float32"), Var("y", "float32"), Buffer("A", (4,))
    i, equal = Var("i"), Equality()
    assert equal(x * y + a[i]) == equal(x * y + a[i])
    assert equal(x + 1e-5) == equal(x + 9.999999747378752e-06)
    assert len({equal(e) for e in (x * y, y * x, x - y, a[i], a[i + 1], tir.call("exp", x), tir.call("log", x))}) == 7


def test_a_part_of_a_row_is_no_row():
    """A slice that begins where the row does has the row's indices, but not its length."""
    x = te.placeholder((2, 33), name="x")
    k = te.reduce_axis(2)
    total = te.compute((33,), lambda j: te.sum(x[k.var, j], k), "total")
    whole = te.compute((2, 33), lambda i, j: x[i, j] / total[j], "whole")
    part = te.compute((2, 20), lambda i, j: whole[i, j] + 1.0, "part")
    found = recognize(group_of(whole, part))
    assert found is None


def test_a_reduced_part_of_a_row_is_no_row():
    """An output of which the sum reads the beginning only: it would be written no further."""
    x = te.placeholder((24, 9, 4), name="x")
    whole = te.compute((24, 9, 4), lambda i, j, c: x[i, j, c] + 1.0, "whole")
    k = te.reduce_axis(2)
    total = te.compute((24, 4), lambda i, c: te.sum(whole[i, k.var, c], k), "total")
    assert recognize(group_of(whole, total)) is None


# ---- elementary functions, and what is asked for ahead


def softmax_sum(rows: int, columns: int) -> te.Tensor:
    x = te.placeholder((rows, columns), name="x")
    k = te.reduce_axis(columns)
    return te.compute((rows,), lambda i: te.sum(tir.call("exp", x[i, k.var]), k), "total")


def functions(group: Group) -> list[Let]:
    """Calls whose value is written before anything is done with it."""
    nodes = list(walk(lower(group, "kernel").body))
    found = [n for n in nodes if isinstance(n, Let) and isinstance(n.value, Call)]
    assert all(isinstance(n.body, BufferStore) and n.body.buffer.scope == "local" for n in found)
    assert len(found) in (0, sum(isinstance(n, Call) for n in nodes))
    return found


@pytest.mark.parametrize("shape", [(1, 40), (512, 40), (64, 300), (2, 2 * LOCAL_ROW)])
def test_elementary_functions_before_their_sums(shape: tuple[int, int]) -> None:
    """A loop of calls that adds nothing up, and sums that call nothing."""
    group = group_of(softmax_sum(*shape))
    run(group)
    assert functions(group)


def test_longer_rows_are_not_kept() -> None:
    assert not functions(group_of(softmax_sum(4096, LOCAL_ROW + 1)))


def test_functions_apart_change_no_bit() -> None:
    """The sum of what is computed beside it is the sum of the same numbers, read from memory."""
    total = softmax_sum(64, 300)
    (x,) = group_of(total).inputs
    exp = te.compute(x.shape, lambda i, j: tir.call("exp", x[i, j]), "exp")
    e = te.placeholder(x.shape, name="e")
    numbers = np.random.default_rng(0).standard_normal(x.shape).astype("f")
    (values,) = natively(group_of(exp), {x: numbers})
    (expected,) = natively(group_of(over("sum", e, 1)), {e: values})
    np.testing.assert_array_equal(natively(group_of(total), {x: numbers})[0], expected)


@pytest.mark.parametrize("shape", [(3, 0), (0, 5), (0, 0), (256, 0), (2, 0, 4), (2, 3, 0)])
def test_functions_of_nothing(shape: tuple[int, ...]) -> None:
    """Their sums after another over the same axis, and what is computed of both."""
    x = te.placeholder(shape, name="x")
    peak = over("sum", x, len(shape) - 1, "peak")
    exp = te.compute(shape, lambda *i: tir.call("exp", x[i] - peak[i[:-1]]), "exp")
    total = over("sum", exp, len(shape) - 1)
    out = te.compute(shape, lambda *i: exp[i] / total[i[:-1]], "out")
    run(group_of(total, out))


@pytest.mark.parametrize("shape", [(2, 5), (300, 5), (1, 2, 70)])
def test_sums_of_one_element_after_others(shape: tuple[int, ...]) -> None:
    """What the last pass goes through has no axis."""
    x = te.placeholder(shape, name="x")
    peak = over("max", x, len(shape) - 1, "peak", keep=True)
    twice = te.compute(peak.shape, lambda *i: peak[i] * 2.0, "twice")
    again = over("max", twice, len(shape) - 1, "again")
    out = te.compute(peak.shape, lambda *i: twice[i] - again[i[:-1]], "out")
    run(group_of(peak, out))


def test_rows_past_the_caches_are_written_one_after_another() -> None:
    """Each line as a whole: side by side, the lines of several rows would be sent in parts."""
    x = te.placeholder((256, 96), name="x")
    total = over("sum", x, 1)
    out = te.compute(x.shape, lambda i, j: x[i, j] * total[i], "out")

    def innermost(machine: Machine) -> set[str]:
        loops = [n for n in walk(lower(group_of(out, machine=machine), "kernel").body) if isinstance(n, For)]
        stores = [n for n in loops if any(isinstance(m, BufferStore) and m.buffer.name == "out" for m in walk(n.body))]
        return {n.kind for n in stores if not any(isinstance(m, For) for m in walk(n.body))}

    assert innermost(Machine(16, 16)) == {"unrolled"}
    assert innermost(Machine(16, 16, cached_bytes=256 * 96 * 4)) == {"vectorized"}


@pytest.mark.parametrize(
    ("shape", "joined"),
    [
        ((8, 4, 6, 6), True),  # x and out: 2304 bytes of a channel, half of the second cache
        ((9, 4, 6, 6), False),  # more
        ((2, 4, 36, 36), True),  # pieces of more than a page
        ((1, 4, 20, 20), True),  # one piece
    ],
)
def test_elements_far_apart_are_read_anew(shape: tuple[int, ...], joined: bool) -> None:
    """What waits for a sum is the same kernel where half of the second cache keeps it, or where it lies together."""
    x = te.placeholder(shape, name="x")
    total = channels("sum", x)
    out = te.compute(shape, lambda n, c, i, j: x[n, c, i, j] * total[c], "out")
    group = group_of(out, machine=Machine(16, 16, second_bytes=4608))
    assert (Reduction.recognize(group) is not None) == joined
    if joined:
        run(group)
