"""The contraction schedule on convolutions: its kernels mean what the tensor expressions mean, in every layout."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

from pullback import te, tir
from pullback.codegen import compile_assembly, emit_module
from pullback.ir.op import Op
from pullback.schedule.choose import lower, recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.contraction.emit.region import Region
from pullback.schedule.contraction.figures import BlockingFigures, KBlock
from pullback.schedule.contraction.plan.blocking import Packing
from pullback.schedule.contraction.plan.choice import blocking_of
from pullback.schedule.contraction.plan.counts import region_bytes, round_count, tasks_of_rows
from pullback.schedule.contraction.plan.skips import skips_of
from pullback.schedule.contraction.plan.vector_axis import vector_axes
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.group import Machine
from pullback.target import Target
from pullback.tir.visitor import walk
from tests.schedule.limits import limit
from tests.schedule.test_schedules import SMALL, group_of, run

UNFILTERED = dataclasses.replace(SMALL, without=("Winograd",))
NHWC = (0, 2, 3, 1)
SHAPES = [  # N, C, H, W, O, kernel, stride, padding
    (2, 3, 7, 6, 5, 3, 1, 1), (1, 4, 8, 8, 8, 3, 2, 1), (3, 1, 9, 9, 2, 5, 1, 2), (2, 5, 4, 4, 6, 1, 1, 0),
    (2, 4, 5, 5, 4, 3, 1, 0), (2, 4, 6, 6, 3, 1, 2, 0), (2, 3, 7, 9, 4, 3, 2, 1), (1, 3, 8, 7, 4, 2, 3, 0),
    (2, 3, 8, 8, 4, 5, 3, 2), (1, 4, 1, 6, 3, 1, 2, 0), (17, 2, 5, 5, 3, 3, 1, 1),
]  # fmt: skip


def stored(shape: tuple[int, ...], name: str, order: bool | tuple[int, ...], dtype: str = "float32") -> te.Tensor:
    """A tensor of (N, C, H, W), in memory as it is, with channels innermost (true), or with its axes in an order."""
    if not order:
        return te.placeholder(shape, dtype, name)
    axes = NHWC if order is True else order
    memory = te.placeholder(tuple(shape[k] for k in axes), dtype, name)
    return te.compute(shape, lambda *i: memory[tuple(i[k] for k in axes)], f"{name}_logical")


def turned(x: te.Tensor, order: bool | tuple[int, ...]) -> te.Tensor:
    """The result in memory."""
    if not order:
        return x
    axes = NHWC if order is True else order
    return te.compute(
        tuple(x.shape[k] for k in axes), lambda *i: x[tuple(i[axes.index(k)] for k in range(4))], "turned"
    )


def product(
    kind: str, shape: tuple[int, ...], channels_last: bool | tuple[int, ...], groups: int = 1, dtype: str = "float32"
) -> te.Tensor:
    """A convolution of the shape, or its gradient by the data or by the weight; the result is in float32. All but the
    weight lie as :func:`stored` has it."""
    n, c, h, w, o, kernel, stride, padding = shape
    sizes = [(s + 2 * padding - kernel) // stride + 1 for s in (h, w)]
    rest = [(s + 2 * padding - kernel) % stride for s in (h, w)]
    data = stored((n, c, h, w), "x", channels_last, dtype)
    weight = te.placeholder((o, c // groups, kernel, kernel), dtype, "w")
    dy = stored((n, o, *sizes), "dy", channels_last, dtype)
    window = {"strides": stride, "padding": padding, "dilation": 1, "groups": groups}
    layouts = {"data_layout": "NCHW", "out_layout": None, "out_dtype": "float32"}
    if kind == "forward":
        rule = Op.get("nn.conv2d").te
        return turned(rule(data, weight, **window, **layouts, kernel_layout="OIHW"), channels_last)
    if kind == "data":
        rule, extra = Op.get("nn.conv2d_transpose").te, tuple(rest)
        result = rule(dy, weight, **window, **layouts, kernel_layout="IOHW", output_padding=extra)
        return turned(result, channels_last)
    rule = Op.get("grad.conv2d_weight").te
    return rule(data, dy, **window, **layouts, kernel_layout="OIHW", kernel_size=kernel)


def data_gradient(shape, channels, kernel, strides, padding, dilation, channels_last: bool) -> te.Tensor:
    """The gradient of a convolution by its data, ``channels`` of them; ``shape`` is that of ``dy``."""
    dy, weight = stored(shape, "dy", channels_last), te.placeholder((shape[1], channels, kernel, kernel), name="w")
    return Op.get("nn.conv2d_transpose").te(
        dy, weight, strides=strides, padding=padding, output_padding=0, dilation=dilation, groups=1,
        data_layout="NCHW", kernel_layout="IOHW", out_layout=None, out_dtype=None,
    )  # fmt: skip


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolution(shape, kind, channels_last):
    group = group_of(product(kind, shape, channels_last), machine=UNFILTERED)
    assert isinstance(recognize(group), Contraction)
    run(group)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("sizes", "kernel", "strides", "dilation"),
    [((6, 7), 5, (2, 3), (2, 1)), ((6, 7), 7, (3, 2), (2, 1)), ((8, 5), 7, (2, 3), (1, 1))],
)
def test_taps_in_blocks(sizes, kernel, strides, dilation, channels_last, monkeypatch):
    """Where regions are small, a round takes some of the taps, through which the window of a convolution's gradient
    runs backwards. With as much padding as there can be, nothing lies before the first element of ``dy``."""
    limit(monkeypatch, region=128, most_region=128)
    padding = tuple(d * (kernel - 1) for d in dilation)
    y = data_gradient((1, 3, *sizes), 2, kernel, strides, padding, dilation, channels_last)
    group = group_of(turned(y, channels_last))
    assert any(0 < b.inner[k] < p.extents[k] for p, b in recognize(group).parts for k in p.reduced)
    run(group)


@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
@pytest.mark.parametrize(("channels", "outputs", "groups"), [(4, 8, 2), (6, 6, 6), (3, 6, 3)])
def test_grouped_convolution(channels, outputs, groups, kind):
    run(group_of(product(kind, (2, channels, 6, 5, outputs, 3, 1, 1), True, groups)))


@pytest.mark.parametrize("left", [False, True])
def test_matrices_whose_lines_compete_for_cache_sets_are_copied_into_panels(left):
    """Lines whole powers of two apart, or far from one another. Elsewhere they are read where they lie."""
    for m, k, n, packed in (
        (256, 1024, 1024, (True, True)), (512, 700, 700, (True, True)), (1024, 1024, 384, (True, True)),
        (128, 300, 384, (False, False)), (1000, 1024, 1000, (True, True)),
    ):  # fmt: skip
        a = te.placeholder((k, m) if left else (m, k), name="a")
        b, axis = te.placeholder((k, n), name="b"), te.reduce_axis(k)

        def element(i, j, a=a, b=b, axis=axis):
            return te.sum((a[axis.var, i] if left else a[i, axis.var]) * b[axis.var, j], axis)

        ((_, blocking),) = recognize(group_of(te.compute((m, n), element, "matmul"), machine=Machine())).parts
        assert (blocking.packing[blocking.a] is Packing.PANELS) == (left and packed[0])
        assert (blocking.packing[blocking.b] is Packing.PANELS) == packed[1]


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(("m", "k", "n"), [(26, 9, 34), (24, 5, 32), (25, 7, 31), (8, 3, 8)])
def test_panels_of_rows_and_columns(m, k, n, left, batch, monkeypatch):
    limit(monkeypatch, _is_apart=lambda _, f: not f.is_window and f.is_input)
    a = te.placeholder((*batch, k, m) if left else (*batch, m, k), name="a")
    b, axis = te.placeholder((*batch, k, n), name="b"), te.reduce_axis(k)

    def element(*at):
        *lead, i, j = at
        return te.sum(a[(*lead, axis.var, i) if left else (*lead, i, axis.var)] * b[(*lead, axis.var, j)], axis)

    machine = dataclasses.replace(SMALL, second_bytes=0)  # else tasks would copy their own columns
    group = group_of(te.compute((*batch, m, n), element, "matmul"), machine=machine)
    ((_, blocking),) = recognize(group).parts
    assert set(blocking.packing.values()) == {Packing.PANELS}
    run(group)


def test_a_region_has_the_axis_of_memory_innermost_also_beside_axes_of_one_element():
    """So that it is copied by vectors: an image of one channel."""
    ((problem, blocking),) = recognize(group_of(product("forward", (2, 1, 12, 12, 6, 5, 1, 2), False))).parts
    (factor,) = (f for f, way in blocking.packing.items() if way is Packing.REGION)
    assert Region(problem, factor, blocking.inner, blocking.column).shape[-1] > 1


def test_the_gradient_of_a_strided_convolution_skips_the_zeros():
    found = recognize(group_of(product("data", (1, 4, 8, 8, 8, 3, 2, 1), True)))
    assert len(found.parts) == 4
    works = [problem.work for problem, _ in found.parts]
    assert sum(works) == 4 * 4 * 4 * 8 * 9  # places of dy times channels times taps


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("forward", (2, 70, 6, 4, 5, 5, 1, 2)),
        ("data", (2, 9, 5, 4, 70, 3, 1, 0)),
    ],
)
@pytest.mark.parametrize("registers", [32, 16])
def test_weights_that_lie_apart_are_copied_with_the_rows_innermost(kind, shape, registers, monkeypatch):
    """Those of a tile, if they are along one axis: of a line that has more rows, each tile would read but a part."""
    limit(monkeypatch, NEAR=256, transpose=16, gather=8)
    limit(monkeypatch, vector_axes=lambda problem: problem.outputs[-1:])
    group = dataclasses.replace(
        group_of(product(kind, shape, False)), machine=Machine(registers=registers, without=("Winograd",))
    )
    ((_, blocking),) = recognize(group).parts
    assert blocking.packing[blocking.a] == (Packing.PANELS if len(blocking.rows) == 1 else Packing.TRANSPOSED)
    run(group)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize(
    "shape", [(2, 13, 9, 8, 3, 3, 1, 1), (1, 21, 7, 19, 4, 3, 1, 0), (1, 9, 5, 17, 2, 3, 1, 1)], ids=str
)
def test_regions_across_memory_are_turned_in_registers(shape, lanes, monkeypatch):
    """Channels innermost, where memory has the image's rows innermost: also in blocks of channels, the last shorter."""
    channels = lambda problem: [v for v in problem.outputs if v.name == "i1"]  # noqa: E731
    limit(monkeypatch, region=4096, vector_axes=channels, _IDLE=math.inf)
    machine = Machine(vector_bytes=4 * lanes, registers=16)
    group = group_of(product("weight", shape, False), machine=machine)
    assert any(blocking.has_region for _, blocking in Contraction.recognize(group).parts)
    run(group)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("data", (1, 2, 5, 9, 30, 5, 1, 0)),
        ("forward", (2, 2, 4, 9, 20, 3, 1, 2)),
        ("forward", (1, 30, 6, 7, 2, 5, 1, 3)),
    ],
)
def test_tasks_that_would_copy_the_same_elements_take_parts_of_the_sums(kind, shape, monkeypatch):
    """Of all rows of the image, instead of all terms of a few rows; zeros are left out all the same."""
    limit(monkeypatch, region=1024, pack=1000, pack_row=1000, PARTS=2)
    group = group_of(product(kind, shape, False))
    ((problem, blocking),) = recognize(group).parts
    assert blocking.split_k is not None and problem.extents[problem.reduced[-1]] > 1
    assert all(blocking.inner[k] == problem.extents[k] for k in problem.reduced[:-1])
    assert skips_of(problem, blocking)
    run(group)


def test_zeros_are_left_out_along_the_last_tap():
    """Vectors lie along the long side of the image, and the zeros along the short one."""
    group = group_of(data_gradient((2, 40, 12, 1), 6, 5, 1, 0, 1, False))
    (part,) = recognize(group).parts
    assert [k.name for k in skips_of(*part)] == ["kw"]
    run(group)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("data", (2, 3, 9, 8, 4, 5, 1, 0)), ("data", (1, 2, 14, 14, 3, 5, 1, 0)), ("forward", (2, 3, 4, 6, 4, 5, 1, 4)),
        ("forward", (1, 2, 3, 9, 17, 4, 1, 3)), ("data", (1, 4, 6, 5, 3, 4, 1, 1)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("channels_last", [False, True])
def test_terms_that_padding_makes_zero_are_left_out(kind, shape, channels_last):
    group = group_of(product(kind, shape, channels_last))
    (part,) = recognize(group).parts
    assert skips_of(*part)
    run(group)


def test_work_before_and_after_the_sum():
    x = stored((2, 4, 6, 6), "x", True)
    scale, kept = te.placeholder((4,), name="scale"), te.placeholder((2, 6, 6, 5), name="kept")
    scaled = te.compute(x.shape, lambda n, c, h, w: tir.maximum(x[n, c, h, w] * scale[c], 0.0), "scaled")
    rule, weight = Op.get("nn.conv2d").te, te.placeholder((5, 4, 3, 3), name="w")
    attrs = {"strides": 1, "padding": 1, "dilation": 1, "groups": 1, "data_layout": "NCHW", "kernel_layout": "OIHW"}
    y = rule(scaled, weight, **attrs, out_layout=None, out_dtype=None)
    total = te.compute(y.shape, lambda n, c, h, w: y[n, c, h, w] + kept[n, h, w, c], "total")
    group = group_of(turned(total, True), machine=UNFILTERED)
    assert isinstance(recognize(group), Contraction)
    run(group)


@pytest.mark.parametrize("depth", [1024, 5000])
def test_long_sums_are_divided_by_their_shape(depth):
    a, b = te.placeholder((depth, 5), name="a"), te.placeholder((depth, 6), name="b")
    k = te.reduce_axis(depth)
    group = group_of(te.compute((5, 6), lambda i, j: te.sum(a[k.var, i] * b[k.var, j], k), "product"))
    ((_, blocking),) = recognize(group).parts
    assert blocking.split_k == depth // 512
    run(group)


@pytest.mark.parametrize("a_first", [True, False])
@pytest.mark.parametrize("b_first", [True, False])
@pytest.mark.parametrize("sizes", [(13, 19, 29), (8, 8, 14), (3, 33, 7), (40, 5, 16)], ids=str)
def test_long_sums_take_rounds(sizes, a_first, b_first, monkeypatch):
    """Of two axes of the sum, too, in a batch, with work on the result; the sums have the bits of those without."""
    m, n, depth = sizes
    a, b = (te.placeholder((2, 3, *((depth, s) if first else (s, depth))), name=name)
            for name, s, first in (("a", m, a_first), ("b", n, b_first)))  # fmt: skip
    bias = te.placeholder((n,), name="bias")
    o, k = te.reduce_axis(3), te.reduce_axis(depth)

    def term(batch, i, j):
        left = a[(batch, o.var, *((k.var, i) if a_first else (i, k.var)))]
        return left * b[(batch, o.var, *((k.var, j) if b_first else (j, k.var)))]

    y = te.compute((2, m, n), lambda batch, i, j: te.sum(term(batch, i, j), [o, k]), "product")
    machine = dataclasses.replace(SMALL, second_bytes=0)  # else tasks would copy their own columns
    group = group_of(te.compute(y.shape, lambda batch, i, j: y[batch, i, j] + bias[j], "total"), machine=machine)
    ((_, whole),) = recognize(group).parts
    assert whole.inner[k.var] == depth
    expected = run(group)
    limits = {
        "l2": 0,
        "k_block": KBlock(depth=8, columns=512, rows=512, sums=4096),
        "TASKS": 4,
    }
    limit(monkeypatch, **limits)
    group = dataclasses.replace(group)  # of which nothing is known yet
    ((problem, blocking),) = recognize(group).parts
    is_small = m * n <= 64  # tasks of one tile, which has nothing to share from round to round
    rounds = round_count(problem, blocking.inner)
    assert blocking.split_k is None and (rounds == 1 if is_small else rounds >= 3)
    found = run(group)
    assert [x.tobytes() for x in found] == [x.tobytes() for x in expected]


@pytest.mark.parametrize("a_first", [True, False])
@pytest.mark.parametrize("b_first", [True, False])
@pytest.mark.parametrize("sizes", [(13, 19, 97), (8, 25, 120), (40, 5, 111), (5, 70, 90)], ids=str)
def test_very_long_sums_are_parted_among_tasks_that_take_rounds(sizes, a_first, b_first, monkeypatch):
    """Where a factor would be turned as a whole and one task has all rows, each round turns its own part."""
    m, n, depth = sizes
    a, b = (te.placeholder((3, depth, s) if first else (s, 3, depth), name=name)
            for name, s, first in (("a", m, a_first), ("b", n, b_first)))  # fmt: skip
    o, k = te.reduce_axis(3), te.reduce_axis(depth)

    def term(i, j):
        left = a[(o.var, k.var, i) if a_first else (i, o.var, k.var)]
        return left * b[(o.var, k.var, j) if b_first else (j, o.var, k.var)]

    y = te.compute((m, n), lambda i, j: te.sum(term(i, j), [o, k]), "product")
    machine = dataclasses.replace(SMALL, second_bytes=0)  # else tasks would copy their own columns
    group = group_of(te.compute(y.shape, lambda i, j: tir.maximum(y[i, j], 0.0), "relu"), machine=machine)
    limits = {
        "l2": 0, "leaves_l2": 0, "_LEAST_SPLIT_DEPTH": 12, "TASKS": 24, "PARTS": 2, "region": 256, "NOMINAL_BYTES": 0,
        "k_block": BlockingFigures().k_block._replace(depth=8),
    }  # fmt: skip
    limit(monkeypatch, **limits)
    ((problem, blocking),) = recognize(group).parts
    assert blocking.split_k > 1 and round_count(problem, blocking.inner) > blocking.split_k
    if Packing.PANELS in blocking.packing.values():  # of rows in several tasks
        assert tasks_of_rows(problem, blocking.b, blocking.inner) > 1
    run(group)


@pytest.mark.parametrize(
    ("shape", "column"),
    [((31, 60, 14, 50, 65, 7, 2, 3), "i1_inner")],
    ids=str,
)
def test_vectors_lie_where_sums_are_not_put_away_after_a_few_terms(shape, column):
    """Not along a batch of which a region holds no more than a few taps; nor along a strided matrix, which loads would
    gather, or which would be copied."""
    groups = 5 if shape[4] == 65 else 1
    machine = Machine(vector_bytes=64, registers=32)
    ((problem, blocking),) = recognize(group_of(product("forward", shape, False, groups), machine=machine)).parts
    assert blocking.column.name == column
    assert round_count(problem, blocking.inner) == 1


@pytest.mark.parametrize(("shape", "column"), [((13, 8, 36, 7, 7, 7, 1, 3), "i2")], ids=str)
def test_vectors_do_not_lie_where_tasks_copy_the_same_rows_again_and_again(shape, column):
    """Not along a batch whose regions are of a row or two, as 7 rows are read for each; nor would they store well."""
    machine = Machine(vector_bytes=64, registers=32)
    problem = Problem.of(group_of(product("forward", shape, False), machine=machine))  # as a whole: it may be cut
    assert blocking_of(problem.merged).column.name == column


@pytest.mark.parametrize("vectors", [True, False])
def test_sums_are_not_parted_to_spare_copies_that_take_no_longer_than_their_terms(vectors):
    """Without vectors a multiply-add takes as long as an element that is copied: 16 results of 4 x 4 images of 16 stay
    whole sums, where partial ones would take three times the memory of the results."""
    machine = Machine(vector_bytes=16, registers=8, vectors=vectors)
    group = group_of(product("forward", (16, 8, 8, 8, 16, 3, 2, 1), False), machine=machine)
    ((_, blocking),) = recognize(group).parts
    assert blocking.split_k == (3 if vectors else None)
    run(group)


def test_sums_of_few_terms_do_not_come_back_from_beyond_the_second_cache():
    """16 partial sums of each of 44 x 61 x 3 x 3 weights, of 16 terms, would be 1.5 MB; fewer have more terms."""
    machine = Machine(vector_bytes=64, registers=32, second_bytes=2 << 20, without=("Winograd",))
    group = group_of(product("weight", (4, 122, 7, 31, 44, 3, 2, 1), False, 2), machine=machine)
    ((problem, blocking),) = recognize(group).parts
    assert math.prod(blocking.inner[k] for k in problem.reduced) >= 24


@pytest.mark.parametrize(
    "shape", [(6, 3, 9, 8, 16, 5, 1, 2), (40, 8, 9, 9, 16, 3, 2, 1), (5, 9, 7, 9, 8, 2, 1, 0)], ids=str
)
def test_the_gradient_of_a_weight_is_parted_where_every_tap_would_read_all_of_dy(shape, monkeypatch):
    """A task copies its part of dy once for all taps, beside its part of the padded data."""
    limits = {"leaves_l2": 0, "_LEAST_SPLIT_DEPTH": 12, "TASKS": 24, "PARTS": 2, "region": 8192}
    limit(monkeypatch, **limits)
    limit(monkeypatch, vector_axes=lambda *args: vector_axes(*args)[:1])
    group = group_of(product("weight", shape, False))
    ((problem, blocking),) = recognize(group).parts
    assert blocking.a.is_window and blocking.split_k > 1 and blocking.packing[blocking.b] is Packing.REGION
    assert tasks_of_rows(problem, blocking.b, blocking.inner) < problem.work / problem.depth / 8
    run(group)


@pytest.mark.parametrize(
    ("sizes", "way"),
    [
        ((64, 72, 16384), Packing.DIRECT), ((128, 500, 8192), Packing.DIRECT), ((128, 784, 8192), None),
        ((64, 64, 4096), None),
        ((512, 512, 1024), None),
        ((114, 25, 33600), Packing.REGION), ((100, 500, 4500), Packing.REGION), ((384, 4096, 1024), None),
    ],
    ids=str,
)  # fmt: skip
def test_which_sums_are_parted(sizes, way):
    """Those of a matrix that leaves the second cache, where a few thousand terms remain for each part, unless each
    thread has many columns for few rows."""
    m, n, depth = sizes
    turned_too = way is Packing.REGION
    a, b = te.placeholder((m, depth), name="a"), te.placeholder((n, depth) if turned_too else (depth, n), name="b")
    k = te.reduce_axis(depth)
    product = te.compute(
        (m, n), lambda i, j: te.sum(a[i, k.var] * b[(j, k.var) if turned_too else (k.var, j)], k), "product"
    )
    ((problem, blocking),) = recognize(group_of(product, machine=Machine(vector_bytes=64, registers=32))).parts
    parted = blocking.split_k is not None and round_count(problem, blocking.inner) > blocking.split_k
    assert parted == (way is not None)
    assert not parted or blocking.packing[blocking.b] == way


@pytest.mark.parametrize("columns", range(3, 34))
def test_a_register_tile_stays_in_registers(columns):
    """Whatever its last vector is: else each of its sums would go to memory and back for every term."""
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")  # 16 registers
    for m in (7, 60, 64):
        for transposed in (False, True):
            a, b = te.placeholder((80, m) if transposed else (m, 80), name="a"), te.placeholder((80, columns), name="b")
            k = te.reduce_axis(80)

            def term(i, j, a=a, b=b, k=k, transposed=transposed):
                return te.sum((a[k.var, i] if transposed else a[i, k.var]) * b[k.var, j], k)

            group = group_of(te.compute((m, columns), term, "product"), machine=Machine(32, 16))
            text = compile_assembly(emit_module([lower(group, "kernel")], target), target)
            blocks = [b for b in re.split(r"^\.L\w+:|^\s+j\w+\s.*$", text, flags=re.M) if "vfmadd" in b]
            assert blocks
            assert not any(re.search(r"vmov[au]ps\s+%[xy]mm\d+, -?\d*\(%rsp\)", block) for block in blocks)


@pytest.mark.parametrize("columns_last", [False, True])
def test_sums_between_rounds_lie_as_vectors(columns_last):
    """Wherever the columns lie in the result: else each lane would be a load and a store by itself, in every round."""
    m, n, depth = (773, 24, 408) if columns_last else (24, 773, 408)
    a, b = te.placeholder((depth, m), name="a"), te.placeholder((n, depth), name="b")
    if columns_last:
        a, b = te.placeholder((m, depth), name="a"), te.placeholder((depth, n), name="b")
    k = te.reduce_axis(depth)

    def term(i, j):
        return te.sum(a[i, k.var] * b[k.var, j] if columns_last else a[k.var, i] * b[j, k.var], k)

    group = group_of(te.compute((m, n), term, "product"), machine=Machine(32, 16))
    ((problem, blocking),) = recognize(group).parts
    assert round_count(problem, blocking.inner) > 1
    assert (blocking.column is problem.outputs[-1]) == columns_last
    (sums,) = {
        n.buffer for n in walk(lower(group, "kernel").body) if isinstance(n, tir.Allocate) and n.buffer.name == "sums"
    }
    assert sums.shape[-1] == 24 and math.prod(sums.shape) == 24 * blocking.inner[blocking.rows[-1][0]]


def test_columns_of_pages_that_lie_apart_take_rounds():
    """So does the gradient of a layer's weight: a column of 8 would touch a page for each term. (Small tiles read such
    a matrix from panels.)"""
    for sizes, many in (((1024, 2000, 200), True), ((100, 384, 256), False), ((16384, 64, 64), True)):
        depth, m, n = sizes
        a, b = te.placeholder((depth, m), name="a"), te.placeholder((depth, n), name="b")
        k = te.reduce_axis(depth)
        group = group_of(
            te.compute((m, n), lambda i, j, a=a, b=b, k=k: te.sum(a[k.var, i] * b[k.var, j], k), "product"),
            machine=Machine(),
        )
        ((problem, blocking),) = recognize(group).parts
        assert (round_count(problem, blocking.inner) > 1) == many


@pytest.mark.parametrize(
    ("sizes", "many"),
    [((1000, 256, 256), True), ((1000, 1536, 384), True), ((1000, 256, 100), False), ((16, 256, 256), False)],
    ids=str,
)
def test_columns_that_leave_the_first_cache_take_rounds(sizes, many):
    """Unless their sums are short, or few rows read them."""
    m, n, depth = sizes
    a, b = te.placeholder((m, depth), name="a"), te.placeholder((depth, n), name="b")
    k = te.reduce_axis(depth)
    product = te.compute((m, n), lambda i, j: te.sum(a[i, k.var] * b[k.var, j], k), "product")
    ((problem, blocking),) = recognize(group_of(product, machine=Machine(vector_bytes=64, registers=32))).parts
    assert (round_count(problem, blocking.inner) > 1) == many


@pytest.mark.parametrize(
    ("rows", "machine"),
    [(8, Machine(32, 16)), (12, Machine(32, 16)), (8, Machine(64, 32)), (12, Machine(64, 32)), (16, Machine(64, 32))],
)
def test_few_rows_do_not_read_a_large_matrix_from_page_to_page(rows, machine):
    """Vectors along the rows would do so, a part of each line: a layer of a small batch. A matrix whose pages the TLB
    knows may be read either way."""
    a, b = te.placeholder((rows, 2048), name="a"), te.placeholder((2048, 2048), name="b")
    k = te.reduce_axis(2048)
    product = te.compute((rows, 2048), lambda i, j: te.sum(a[i, k.var] * b[k.var, j], k), "product")
    ((problem, blocking),) = recognize(group_of(product, machine=machine)).parts
    assert blocking.column is problem.outputs[-1]
    assert blocking.b.source is b and blocking.packing[blocking.b] is Packing.DIRECT


def test_register_tiles_fit_the_registers():
    for shape in SHAPES:
        for kind in ("forward", "data", "weight"):
            for problem, blocking in recognize(group_of(product(kind, shape, True), machine=UNFILTERED)).parts:
                rows, vectors = blocking.tile.rows, -(-blocking.tile.columns // 4)
                assert rows * vectors < SMALL.registers, (shape, kind, problem.outputs)


def test_rows_of_a_tile_lie_where_regions_stay_in_the_cache():
    """Rows of the batch divide evenly, but each would bring a box of its own into the region, and all of them together
    would not stay in the cache; rows of an image share theirs."""
    x, w = te.placeholder((16, 32, 27, 27, 27), name="x"), te.placeholder((32, 32, 3, 3, 3), name="w")
    product = Op.get("nn.conv3d").te(
        x, w, strides=1, padding=1, dilation=1, groups=1, data_layout="NCDHW", kernel_layout="OIDHW", out_layout=None,
        out_dtype="float32",
    )  # fmt: skip
    group = group_of(product, machine=Machine(vector_bytes=64, registers=32))
    ((problem, blocking),) = recognize(group).parts
    assert [v.name for v, _ in blocking.rows] == ["i4"]
    assert region_bytes(blocking.packing, blocking.inner) <= problem.figures.region


@pytest.mark.parametrize(
    "sizes, machine, expected",
    [
        ((64, 8, 256), Machine(cached_bytes=65536), (2,)),
        ((64, 8, 256), Machine(cached_bytes=65537), ()),  # a cache holds it
        ((64, 8, 260), Machine(cached_bytes=65536), ()),  # lines end in other places than rows
        ((64, 8, 256), Machine(32, 16, cached_bytes=65536), ()),  # half a line at a time
    ],
)
def test_large_results_that_are_read_late_are_written_past_the_caches(sizes, machine, expected):
    """In whole lines. What the next kernel reads is left in the caches: the sums take longer than to fetch a line."""
    m, depth, n = sizes
    a, b, k = te.placeholder((m, depth)), te.placeholder((depth, n)), te.reduce_axis(depth)
    group = group_of(te.compute((m, n), lambda i, j: te.sum(a[i, k.var] * b[k.var, j], k), "product"), machine=machine)
    assert "streamed" not in recognize(group).lower("kernel").attrs
    late = dataclasses.replace(group, late=frozenset({0}))
    assert recognize(late).lower("kernel").attrs.get("streamed", ()) == expected


@pytest.mark.parametrize(("filters", "rows"), [(256, 14), (64, 7)])
def test_tiles_are_taller_where_filters_leave_the_second_cache(filters, rows):
    """14 places of an image lie side by side, and 2.4 MB of filters come from afar for each tile."""
    machine = Machine(vector_bytes=64, registers=32, second_bytes=2 << 20, without=("Winograd",))
    group = group_of(product("forward", (8, 256, 14, 14, filters, 3, 1, 1), False), machine=machine)
    ((_, blocking),) = recognize(group).parts
    assert [count for _, count in blocking.rows] == [rows]
