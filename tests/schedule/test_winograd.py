"""Winograd's filters: the transforms are an identity, and kernels mean what the tensor expressions mean."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pullback import te, tir
from pullback.schedule import winograd
from pullback.schedule.choose import is_one_kernel, recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.group import Machine
from pullback.schedule.winograd import Winograd, plan
from pullback.schedule.winograd.algebra import DATA, RESULTS, WEIGHTS
from pullback.schedule.winograd.order import Order
from pullback.tir import as_expr
from pullback.tir.polynomial import simplify
from tests.schedule.test_across import check_natively, times_written, updated
from tests.schedule.test_contraction import product, stored, turned
from tests.schedule.test_schedules import SMALL, group_of, run

SHAPES = [  # N, C, H, W, O, kernel, stride, padding
    (2, 4, 4, 6, 4, 3, 1, 1), (1, 5, 5, 4, 3, 3, 1, 1), (3, 2, 4, 6, 5, 3, 1, 0), (1, 3, 5, 2, 6, 3, 1, 2),
    (17, 2, 4, 2, 3, 3, 1, 1), (1, 2, 34, 2, 3, 3, 1, 1), (3, 4, 7, 5, 4, 3, 1, 1), (2, 3, 3, 9, 4, 3, 1, 1),
]  # fmt: skip


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters of a few channels too, for which the transforms would take longer than they save."""
    monkeypatch.setattr(plan, "_is_faster", lambda _: True)


def rational(matrix) -> np.ndarray:
    return np.array([[Fraction(c) * Fraction(factor) for c in row] for row, factor in matrix], object)


@pytest.mark.parametrize("results", [2, 3])
def test_the_transforms_are_an_identity(results):
    """y[i] = Σ_s d[i + s]·g[s], exactly: as a polynomial in d and g, that is for each pair of unit vectors."""
    terms = 4 - results + 1
    for k in range(4):
        for s in range(terms):
            d, g = np.eye(4, dtype=int)[k], np.eye(terms, dtype=int)[s]
            y = rational(RESULTS[results]) @ ((rational(DATA) @ d) * (rational(WEIGHTS[terms]) @ g))
            assert [int(v) for v in y] == [int(i + s == k) for i in range(results)]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_convolution(shape, kind, channels_last):
    group = group_of(product(kind, shape, channels_last))
    assert isinstance(recognize(group), Winograd)
    run(group)


@pytest.mark.parametrize("without", [(), ("Contraction",), ("Winograd",)], ids=str)
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
@pytest.mark.parametrize("shape", [*SHAPES, (8, 64, 14, 14, 64, 3, 1, 1), (8, 64, 14, 14, 64, 3, 2, 1)], ids=str)
def test_fusion_gets_the_same_answer_without_asking_which_is_faster(shape, kind, without):
    """And for whatever follows the sum, of which blockings are asked for once."""
    machine, known = replace(SMALL, without=without), {}
    plain = product(kind, shape, False)
    scaled = te.compute(plain.shape, lambda *at: plain[at] * 2.0, "scaled")
    k = te.reduce_axis(plain.shape[-1])
    summed = te.compute(plain.shape[:-1], lambda *at: te.sum(plain[(*at, k.var)], k), "summed")
    for result in (plain, scaled, summed):
        group = group_of(result, machine=machine)
        assert is_one_kernel(replace(group, of_stages=known)) == (recognize(group) is not None)
    assert len(known) == ("Contraction" not in without)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
def test_half_types_are_transformed_in_float32(kind, dtype):
    group = group_of(product(kind, SHAPES[1], True, dtype=dtype))
    assert isinstance(recognize(group), Winograd)
    run(group)


def test_pairs_of_bfloat16_need_no_transforms():
    shape = (4, 64, 16, 16, 64, 3, 1, 1)
    for machine, kind in ((Machine(), Winograd), (Machine(pair_dot=True), Contraction)):
        assert isinstance(recognize(group_of(product("forward", shape, True, dtype="bfloat16"), machine=machine)), kind)


@pytest.mark.parametrize(
    ("kind", "shape", "groups"),
    [
        ("forward", (2, 16, 8, 8, 16, 3, 2, 1), 1),  # windows of stride 2
        ("weight", (2, 16, 8, 8, 16, 3, 2, 1), 1),
        ("data", (2, 16, 8, 8, 16, 3, 2, 1), 1),  # zeros between
        ("forward", (2, 16, 8, 8, 16, 5, 1, 2), 1),  # five taps
        ("forward", (2, 16, 8, 8, 16, 1, 1, 0), 1),
        ("forward", (2, 16, 8, 8, 16, 3, 1, 1), 16),  # depthwise: no channels to sum
        ("forward", (2, 3, 8, 8, 16, 3, 1, 1), 1),  # few channels: the transforms would take longer
        ("forward", (1, 256, 4, 4, 256, 3, 1, 1), 1),  # the weights' transforms would leave the cache
    ],
)
def test_others_decline(kind, shape, groups):
    assert isinstance(recognize(group_of(product(kind, shape, True, groups))), Contraction)


def test_switched_off():
    convolution = product("forward", (2, 16, 8, 8, 16, 3, 1, 1), True)
    assert isinstance(recognize(group_of(convolution)), Winograd)
    machine = replace(SMALL, without=("Winograd",))
    assert isinstance(recognize(group_of(convolution, machine=machine)), Contraction)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
def test_wide_vectors(kind):
    group = group_of(product(kind, (1, 33, 4, 6, 40, 3, 1, 1), True), machine=Machine(64, 32))
    assert isinstance(recognize(group), Winograd)
    run(group)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
def test_columns_that_would_fill_few_lanes_are_a_plain_contraction(kind, channels_last, monkeypatch):
    """33 channels are 32 and one, where that is faster; with a bias and relu on all of them."""
    sizes = (2, 33, 6, 5, 33, 3, 1, 1)
    filtered = product(kind, sizes, channels_last)
    bias = te.placeholder(filtered.shape[-1:], name="bias")
    result = te.compute(filtered.shape, lambda *at: tir.maximum(filtered[at] + bias[at[-1]], 0.0), "relu")
    for better, is_cut in ((0.0, False), (100.0, True)):
        monkeypatch.setattr(winograd, "_BETTER", better)
        group = group_of(result, machine=Machine(64, 32))
        found = recognize(group)
        assert isinstance(found, Winograd) and bool(found.rest) == is_cut
        assert found.filter.problem.extents[found.filter.column] == (32 if is_cut else 33)
        run(group)


def test_a_cut_filter_is_chosen_by_its_time():
    for channels, is_cut in ((33, True), (48, False), (60, False)):
        group = group_of(product("forward", (64, 32, 16, 16, channels, 3, 1, 1), False), machine=Machine(64, 32))
        assert bool(recognize(group).rest) == is_cut


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
def test_blocks_that_do_not_come_out_even(kind, monkeypatch):
    """47 tiles in a row, more than a task takes."""
    monkeypatch.setattr(plan, "_BUFFER_BYTES", 16 * 4 * 4 * 24)
    group = group_of(product(kind, (1, 4, 3, 94, 4, 3, 1, 1), True))
    assert {16, 24}.intersection(recognize(group).filter.blocks.values())
    run(group)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", ["forward", "weight"])
@pytest.mark.parametrize("sizes", [(8, 8), (7, 8), (8, 7), (7, 9), (3, 3)], ids=str)
def test_tiles_are_multiplied_at_the_points_that_they_need(sizes, kind):
    """At each once. A tile of one value along an axis needs three of the four points there."""
    filter = recognize(group_of(product(kind, (2, 4, *sizes, 4, 3, 1, 1), True))).filter
    order, needed = Order(filter), Counter()
    ranges = [range(filter.blocks[v]) for v in filter.tiled]
    for place in itertools.product(*ranges):
        offsets = {v: as_expr(i) for v, i in zip(filter.tiled, place, strict=True)}
        values = tuple(1 if 2 * i + 1 == n else 2 for i, n in zip(place[-2:], sizes, strict=True))
        number = simplify(order.number(offsets, values)).value
        needed.update((number, p) for p, at in enumerate(order.points) if order.needs(values, at))
    tiles, points = filter.blocks[filter.batch[0]], math.prod(4 * (n // 2) + 3 * (n % 2) for n in sizes)
    assert sum(needed.values()) == tiles * points and set(needed.values()) == {1}
    computed = Counter(
        (part.first_tile + tile, part.first_point + point)
        for part in order.parts()
        for tile in range(part.tiles)
        for point in range(part.points)
    )
    assert computed == needed


def windows(rank: int) -> te.Tensor:
    """A convolution of ``rank`` axes, without padding, channels last."""
    sizes = (9, 6, 5)[:rank]
    x, w = te.placeholder((2, *sizes, 3), name="x"), te.placeholder((5, 3, *([3] * rank)), name="w")
    taps, c = [te.reduce_axis(3, f"k{d}") for d in range(rank)], te.reduce_axis(3, "c")

    def element(n, *rest):
        places = [y + t.var for y, t in zip(rest, taps, strict=False)]
        return te.sum(x[(n, *places, c.var)] * w[(rest[-1], c.var, *(t.var for t in taps))], [*taps, c])

    return te.compute((2, *(s - 2 for s in sizes), 5), lambda *axes: element(*axes), f"conv{rank}d")


def test_three_axes_decline(always):
    assert isinstance(recognize(group_of(windows(3))), Contraction)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("rank", [1, 2])
def test_axes(rank):
    group = group_of(windows(rank))
    assert isinstance(recognize(group), Winograd)
    run(group)


@pytest.mark.usefixtures("always")
def test_work_before_and_after_the_sum():
    x = stored((2, 4, 6, 7), "x", True)
    relu = te.compute(x.shape, lambda n, c, h, w: tir.maximum(x[n, c, h, w], 0), "relu")
    shape = (2, 4, 7, 9)

    def around(n, c, h, w):  # a row before, a column on either side
        inside = (h >= 1) & (w >= 1) & (w < 8)
        return tir.select(inside, relu[n, c, tir.maximum(h - 1, 0), tir.minimum(tir.maximum(w - 1, 0), 6)], 0.0)

    padded = te.compute(shape, around, "padded")
    weight, bias = te.placeholder((5, 4, 3, 3), name="w"), te.placeholder((5,), name="bias")
    kh, kw, c = te.reduce_axis(3), te.reduce_axis(3), te.reduce_axis(4)
    total = te.compute(
        (2, 5, 5, 7),
        lambda n, o, h, w: te.sum(
            padded[n, c.var, h + kh.var, w + kw.var] * weight[o, c.var, kh.var, kw.var], [kh, kw, c]
        ),
        "total",
    )
    result = turned(te.compute(total.shape, lambda n, o, h, w: total[n, o, h, w] + bias[o], "result"), True)
    group = group_of(result)
    assert isinstance(recognize(group), Winograd)
    run(group)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("machine", [SMALL, Machine(64, 32)], ids=["4 lanes", "16 lanes"])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("columns", [32, 37])
def test_what_follows_the_gradient_of_weights_is_written_once_for_all_taps(channels_last, machine, columns):
    """As an optimizer, which is long."""
    gradient = product("weight", (2, 4, 6, 6, columns, 3, 1, 1), channels_last)
    result = updated(gradient)
    group = group_of(result, machine=machine)
    assert isinstance(recognize(group), Winograd)
    assert 0 < times_written(group, result) <= 2  # for whole vectors, and for what is left of the columns
    run(group)
    check_natively(group)


def test_blocks_are_even():
    """Five tiles in one block, where four are wanted: two blocks of three would compute a sixth."""
    assert plan._even(5, 4) == 5
    assert plan._even(4, 16 / 5) == 4  # rows of five tiles: 20 of 16 in one block, rather than twice ten
    for count in range(1, 40):
        for most in range(1, 40):
            size = plan._even(count, most)
            assert plan._even(count, float(most)) == size
            assert 1 <= size <= max(1, most * 5 // 4) and (count % size == 0 or size <= most)


@pytest.mark.parametrize(("registers", "vector_bytes", "is_taken"), [(16, 32, True), (32, 64, False)])
def test_weights_that_leave_the_second_cache_pay_where_tiles_are_small(registers, vector_bytes, is_taken):
    """4 MB of transformed weights: small tiles multiply long enough for each byte of them."""
    machine = Machine(vector_bytes=vector_bytes, registers=registers)
    group = replace(group_of(product("forward", (4, 256, 14, 14, 256, 3, 1, 1), False)), machine=machine)
    assert isinstance(recognize(group), Winograd) == is_taken


@pytest.mark.parametrize(
    ("shape", "kind", "is_taken"),
    [
        ((4, 16, 32, 32, 16, 3, 1, 1), "forward", True),
        ((4, 16, 32, 32, 16, 3, 1, 1), "data", True),
        ((8, 6, 10, 10, 8, 3, 1, 1), "forward", False),  # no whole squares to turn
        ((4, 8, 64, 64, 32, 3, 1, 1), "forward", False),  # many results for few channels: they cost more than they save
    ],
    ids=str,
)
def test_few_channels_are_worth_transforms_where_tiles_are_small(shape, kind, is_taken):
    for machine, taken in ((Machine(32, 16), is_taken), (Machine(64, 32), False)):
        group = replace(group_of(product(kind, shape, False)), machine=machine)
        assert isinstance(recognize(group), Winograd) == taken


@pytest.mark.parametrize(("images", "is_taken"), [(6, False), (64, True)])
@pytest.mark.parametrize("kind", ["forward", "data", "weight"])
def test_few_tiles_are_left_to_the_plain_contraction(images, kind, is_taken):
    """What comes once, for all tiles or for those of a task, is too much beside them."""
    group = group_of(product(kind, (images, 34, 8, 18, 41, 3, 1, 1), False), machine=Machine(64, 32))
    assert isinstance(recognize(group), Winograd) == is_taken
