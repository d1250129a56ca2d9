"""Contractions whose vectors lie along an axis of the sum."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pullback import te, tir
from pullback.schedule.choose import lower, recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.contraction.plan.alternatives import other_tasks, other_tiles
from pullback.schedule.contraction.plan.blocking import Blocking, Packing
from pullback.schedule.contraction.plan.counts import round_count
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.group import Group, Machine
from pullback.tir.visitor import walk
from tests.schedule.limits import limit
from tests.schedule.native import natively
from tests.schedule.test_across import check_natively
from tests.schedule.test_contraction import product
from tests.schedule.test_schedules import group_of, run

CASES = [  # bytes of a vector; N, C, H, W, O, kernel, stride, padding; groups
    (64, (2, 3, 7, 40, 4, 3, 1, 0), 1), (64, (2, 3, 7, 40, 4, 5, 1, 2), 1), (64, (3, 4, 5, 9, 4, 3, 1, 1), 4),
    (64, (9, 6, 5, 32, 4, 3, 1, 1), 2), (64, (20, 4, 6, 17, 3, 3, 1, 1), 1), (32, (2, 3, 7, 21, 4, 3, 1, 1), 1),
    (16, (2, 6, 5, 13, 6, 3, 1, 1), 6), (16, (2, 3, 7, 11, 2, 3, 1, 0), 1), (64, (2, 5, 6, 50, 3, 7, 1, 3), 1),
    (64, (2, 7, 9, 24, 13, 1, 1, 0), 1),
]  # fmt: skip


@pytest.fixture
def preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems have them, too."""
    limit(monkeypatch, _IDLE=0.0, _ALL=0.001)


def machine_of(size: int) -> Machine:
    return Machine(size, 32 if size == 64 else 16, without=("Winograd",))


def gradient(size: int, shape: tuple[int, ...], groups: int) -> Group:
    return group_of(product("weight", shape, False, groups), machine=machine_of(size))


def parts_of(group: Group) -> tuple[tuple[Problem, Blocking], ...]:
    schedule = recognize(group)
    assert isinstance(schedule, Contraction)
    return schedule.parts


def is_in_lanes(group: Group) -> bool:
    return any(blocking.lane_axis is not None for _, blocking in parts_of(group))


@pytest.mark.usefixtures("preferred")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_of_few_weights(case: tuple) -> None:
    group = gradient(*case)
    assert is_in_lanes(group)
    run(group)
    check_natively(group)


@pytest.mark.usefixtures("preferred")
@pytest.mark.parametrize(("m", "n", "k"), [(3, 7, 100), (4, 33, 154), (6, 5, 33), (2, 9, 16), (19, 2, 9)])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_products_of_few_rows_along_the_terms(m: int, n: int, k: int, batch: tuple[int, ...]) -> None:
    """Both matrices have the axis of the sum innermost."""
    a, b = te.placeholder((*batch, m, k), name="a"), te.placeholder((*batch, n, k), name="b")
    axis = te.reduce_axis(k)
    result = te.compute(
        (*batch, m, n), lambda *at: te.sum(a[(*at[:-1], axis.var)] * b[(*at[:-2], at[-1], axis.var)], axis), "y"
    )
    group = group_of(result, machine=machine_of(64))
    assert is_in_lanes(group)
    run(group)
    check_natively(group)


def matrix_product(
    m: int, n: int, k: int, batch: tuple[int, ...] = (), a_first: str = "m", b_first: str = "k"
) -> Group:
    """``a_first``, ``b_first``: the axis that comes first in memory."""
    a = te.placeholder((*batch, *((m, k) if a_first == "m" else (k, m))), name="a")
    b = te.placeholder((*batch, *((k, n) if b_first == "k" else (n, k))), name="b")
    axis = te.reduce_axis(k)

    def term(*at: te.PrimExpr) -> te.PrimExpr:
        *outer, i, j = at
        left = (i, axis.var) if a_first == "m" else (axis.var, i)
        right = (axis.var, j) if b_first == "k" else (j, axis.var)
        return te.sum(a[(*outer, *left)] * b[(*outer, *right)], axis)

    return group_of(te.compute((*batch, m, n), term, "y"), machine=machine_of(64))


@pytest.mark.usefixtures("preferred")
@pytest.mark.parametrize(("m", "n", "k"), [(37, 4, 100), (9, 3, 33), (41, 7, 16), (5, 5, 200)])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("is_second", [True, False])
def test_a_matrix_of_few_columns_is_turned(m: int, n: int, k: int, batch: tuple[int, ...], is_second: bool) -> None:
    """Of the two factors one lies along the terms, and tasks turn their part of the other."""
    group = matrix_product(m, n, k, batch) if is_second else matrix_product(n, m, k, batch, "k", "n")
    ways = [blocking.packing for _, blocking in parts_of(group) if blocking.lane_axis is not None]
    assert ways and all({*way.values()} == {Packing.DIRECT, Packing.REGION} for way in ways)
    run(group)
    check_natively(group)


@pytest.mark.parametrize(
    ("sizes", "batch", "orders", "summed"),
    [
        ((883, 4, 400), (), ("m", "k"), True),  # four of sixteen lanes
        ((25, 5, 1021), (26,), ("m", "k"), True),
        ((959, 7, 286), (), ("m", "n"), True),  # a large matrix, of which each tile reads its own rows
        ((128, 128, 128), (), ("m", "k"), False),  # columns fill vectors
        ((128, 4, 12), (), ("m", "k"), False),  # terms do not
    ],
)
def test_where_columns_fill_few_lanes(sizes, batch, orders, summed) -> None:
    group = matrix_product(*sizes, batch, *orders)
    assert is_in_lanes(group) == summed


def test_vectors_lie_along_the_longer_axis_where_columns_are_few() -> None:
    """Though its results are turned in registers before they are stored."""
    group = matrix_product(1021, 5, 25, (26,), "k", "k")
    ((problem, blocking),) = parts_of(group)
    assert problem.extents[blocking.column] == 1021
    run(matrix_product(83, 5, 25, (2,), "k", "k"))


@pytest.mark.usefixtures("preferred")
def test_rows_that_go_on_in_memory_are_one() -> None:
    """The gradient of 1 x 1 weights sums over the whole image."""
    ((problem, blocking),) = parts_of(gradient(64, (2, 7, 9, 24, 13, 1, 1, 0), 1))
    assert blocking.lane_axis is problem.reduced[-1] and problem.extents[blocking.lane_axis] == 9 * 24


@pytest.mark.usefixtures("preferred")
@pytest.mark.parametrize("padding", [0, 1])
def test_what_lies_behind_a_row_does_not_matter(padding: int) -> None:
    """Taps that do not read the first column stay numbers where that one is none: the last vector of each row is
    filled with zeros, as what follows in memory is the next row."""
    group = gradient(64, (2, 3, 5, 21, 4, 3, 1, padding), 1)
    assert is_in_lanes(group)
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(t.dtype) for t in group.inputs}
    data = next(t for t in group.inputs if t.name == "x")
    (plain,) = natively(group, feeds)
    feeds[data][..., 0] = np.nan
    (result,) = natively(group, feeds)
    clean = slice(1 + padding, None)
    assert np.isnan(result[..., : 1 + padding]).all()
    assert np.isfinite(result[..., clean]).all()
    if padding == 0:
        np.testing.assert_array_equal(result[..., clean], plain[..., clean])


@pytest.mark.usefixtures("preferred")
@pytest.mark.parametrize(
    ("shape", "rounds", "parts"),
    [
        ((9, 3, 7, 40, 4, 3, 1, 1), 5, 5), ((9, 3, 7, 40, 4, 3, 1, 0), 9, 9), ((8, 2, 6, 33, 3, 5, 1, 2), 4, 4),
        ((37, 3, 7, 40, 4, 3, 1, 1), 19, 5), ((37, 3, 7, 40, 4, 3, 1, 0), 8, 8),
    ],
)  # fmt: skip
def test_in_rounds_and_parts_whose_last_one_is_shorter(
    shape: tuple[int, ...], rounds: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, region=4000, NOMINAL_BYTES=0)
    machine = dataclasses.replace(machine_of(64), second_bytes=0)
    group = group_of(product("weight", shape, False), machine=machine)
    ((problem, blocking),) = parts_of(group)
    assert blocking.lane_axis is not None
    assert (round_count(problem, blocking.inner), blocking.split_k) == (rounds, parts)
    run(group)
    check_natively(group)


@pytest.mark.usefixtures("preferred")
def test_an_update_joins_it() -> None:
    result = product("weight", (2, 3, 7, 40, 4, 3, 1, 1), False)
    weight = te.placeholder(result.shape, name="weight")
    updated = te.compute(result.shape, lambda *i: weight[i] - result[i] * 0.125, "updated")
    group = group_of(updated, machine=machine_of(64))
    assert is_in_lanes(group)
    run(group)
    check_natively(group)


@pytest.mark.parametrize(
    ("shape", "groups", "expected"),
    [
        ((9, 3, 40, 63, 4, 7, 1, 0), 1, True),
        ((8, 96, 28, 28, 96, 3, 1, 1), 96, True),  # depthwise
        ((13, 12, 16, 23, 26, 1, 1, 0), 1, True),
        ((9, 3, 40, 63, 4, 7, 2, 0), 1, False),  # every other element is none of a vector
        ((9, 3, 40, 9, 4, 7, 1, 0), 1, False),  # rows of three
        ((9, 64, 40, 63, 64, 7, 1, 0), 1, False),  # channels fill vectors
    ],
)
def test_where_results_have_few_lanes_and_rows_are_long(shape: tuple[int, ...], groups: int, expected: bool) -> None:
    assert is_in_lanes(gradient(64, shape, groups)) == expected


@pytest.mark.usefixtures("preferred")
def test_scalars_have_no_lanes() -> None:
    machine = Machine(4, 16, without=("Winograd",))
    assert not is_in_lanes(group_of(product("weight", (2, 3, 7, 40, 4, 3, 1, 0), False), machine=machine))


@pytest.mark.usefixtures("preferred")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("padding", [0, 1])
def test_half_types_are_made_wide_before(dtype: str, padding: int) -> None:
    group = group_of(product("weight", (2, 3, 7, 40, 4, 3, 1, padding), False, 1, dtype), machine=machine_of(64))
    ((problem, blocking),) = parts_of(group)
    assert blocking.lane_axis is not None and {f.dtype for f in problem.factors} == {"float32"}
    run(group)
    check_natively(group)


@pytest.mark.usefixtures("preferred")
def test_float64() -> None:
    group = group_of(product("weight", (2, 3, 7, 21, 4, 3, 1, 1), False, 1, "float64"), machine=machine_of(64))
    ((problem, blocking),) = parts_of(group)
    assert blocking.lane_axis is not None and problem.anchor.dtype == "float64"
    run(group)
    check_natively(group)


@pytest.mark.usefixtures("preferred")
def test_tuning_tries_nothing_else() -> None:
    ((problem, blocking),) = parts_of(gradient(64, (2, 3, 7, 40, 4, 3, 1, 1), 1))
    assert other_tiles(problem, blocking) == []
    assert list(other_tasks(problem, blocking)) == []


@pytest.mark.usefixtures("preferred")
def test_sums_stay_in_registers() -> None:
    """Lanes are added at the end of a tile, neighbour by neighbour, and not term by term."""
    group = gradient(64, (2, 3, 7, 40, 4, 3, 1, 0), 1)
    ((_, blocking),) = parts_of(group)
    sums = [n for n in walk(lower(group, "kernel").body) if isinstance(n, tir.Allocate) and n.buffer.name == "added"]
    per_tile = {n.buffer.shape[0] for n in sums}
    count = blocking.tile.rows * blocking.tile.columns
    assert {count * lanes for lanes in (8, 4, 2, 1)} <= per_tile
