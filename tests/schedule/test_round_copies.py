"""A round copies what it reads of a matrix that comes from beyond the second cache."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pullback import te
from pullback.schedule.choose import recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.contraction.emit.round_copy import RoundCopy, _apart
from pullback.schedule.contraction.figures import KBlock
from pullback.schedule.contraction.plan.blocking import Packing
from pullback.schedule.contraction.plan.choice import _along
from pullback.schedule.contraction.plan.cost import cost
from pullback.schedule.contraction.plan.counts import round_count
from pullback.schedule.contraction.plan.k_rounds import PANEL_ROWS
from pullback.schedule.contraction.plan.one_pass import is_read_once, is_streamed
from pullback.schedule.contraction.plan.register_tiles import register_tiles
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.group import Group, Machine
from pullback.schedule.tiles import Tile
from tests.schedule.limits import limit
from tests.schedule.test_schedules import SMALL, group_of, run


def product(batch: tuple[int, ...], m: int, n: int, depths: tuple[int, ...], a_first: bool) -> te.Tensor:
    """Σ a · b, whose lines of ``b`` lie along the columns, and those of ``a`` along the rows or the terms."""
    sums = [te.reduce_axis(depth) for depth in depths]
    a = te.placeholder((*batch, *depths, m) if a_first else (*batch, m, *depths), name="a")
    b = te.placeholder((*batch, *depths, n), name="b")
    terms = tuple(k.var for k in sums)

    def term(*at):
        *outer, i, j = at
        return a[(*outer, *terms, i) if a_first else (*outer, i, *terms)] * b[(*outer, *terms, j)]

    return te.compute((*batch, m, n), lambda *at: te.sum(term(*at), sums), "product")


def ways_of(group: Group) -> tuple[str, str, int]:
    ((problem, blocking),) = recognize(group).parts
    ways = {f.source.name: way for f, way in blocking.packing.items()}
    return ways["a"], ways["b"], round_count(problem, blocking.inner)


@pytest.mark.parametrize("a_first", [False, True])
@pytest.mark.parametrize(
    ("batch", "m", "n", "depths"),
    [((), 27, 45, (37,)), ((3,), 27, 45, (37,)), ((2, 2), 19, 33, (3, 13)), ((), 16, 32, (32,))],
    ids=str,
)
def test_sums_are_those_of_the_matrices_where_they_lie(batch, m, n, depths, a_first, monkeypatch):
    """With shorter last blocks of rows, of columns and of terms; bit for bit, as rounds keep the order of a sum."""
    limit(
        monkeypatch,
        TASKS=4,
        _APART=64,
        _RUN=4,
        packed_k_block=KBlock(depth=10, columns=1200, rows=800, sums=4096),
        whole_lines=False,
    )
    result = product(batch, m, n, depths, a_first)
    plain = group_of(result, machine=dataclasses.replace(SMALL, second_bytes=1 << 20))
    assert Packing.ROUND not in ways_of(plain)
    copying = group_of(result, machine=dataclasses.replace(SMALL, second_bytes=0))
    a, b, rounds = ways_of(copying)
    assert b == Packing.ROUND and (a == Packing.ROUND) == a_first and rounds > 1
    assert [x.tobytes() for x in run(copying)] == [x.tobytes() for x in run(plain)]


@pytest.mark.parametrize("rows", range(1, 9))
def test_copies_have_lines_of_each_tile(rows, monkeypatch):
    """Of columns, and of as many rows as fill most of a vector, which copies them at once; else as long as in memory,
    but an odd number of lines of the cache. Bit for bit, beside the end of a matrix too."""
    monkeypatch.setattr(register_tiles, "best_tile", lambda *sizes, **reads: (1.0, Tile(rows, 16)))
    result = product((3,), 14 // rows * rows + rows + 1, 45, (26,), True)
    limit(monkeypatch, TASKS=4, _APART=16, _RUN=1, packed_k_block=KBlock(10, 1200, 800, 4096), whole_lines=False)
    plain, copying = (
        group_of(result, machine=dataclasses.replace(SMALL, second_bytes=second)) for second in (1 << 20, 0)
    )
    ((problem, blocking),) = recognize(copying).parts
    terms = blocking.inner[problem.reduced[0]]
    tiles, _, *copied = RoundCopy.of(problem, blocking.b, blocking).buffer.shape
    assert blocking.packing[blocking.b] == Packing.ROUND and copied == [terms | 1, blocking.tile.columns]
    assert tiles == -(-blocking.inner[blocking.column] // blocking.tile.columns)
    is_copied = blocking.packing[blocking.a] == Packing.ROUND
    assert is_copied == (blocking.tile.rows in (1, 2, 3, 4, 6, 7, 8))
    if is_copied:
        width = 1 << (blocking.tile.rows - 1).bit_length()
        assert RoundCopy.of(problem, blocking.a, blocking).buffer.shape[-2:] == (terms | 1, width)
    assert [x.tobytes() for x in run(copying)] == [x.tobytes() for x in run(plain)]


def test_long_lines_of_a_copy_take_all_sets_of_the_cache():
    """Those along the terms: an odd number of the cache's lines each."""
    assert [_apart(count, 4) for count in (7, 15, 16, 17, 32, 100, 128)] == [7, 15, 16, 48, 48, 112, 144]


@pytest.mark.parametrize("shape", [(2, 4, 3), (40, 37, 45)], ids=str)
def test_a_vector_that_all_matrices_of_a_batch_share(shape):
    """Rows of a tile may be of an axis that the factor of rows does not have."""
    count, depth, n = shape
    a, b, k = te.placeholder((depth,), name="a"), te.placeholder(shape, name="b"), te.reduce_axis(depth)
    result = te.compute((count, n), lambda i, j: te.sum(a[k.var] * b[i, k.var, j], k), "product")
    group = group_of(result, machine=dataclasses.replace(SMALL, second_bytes=0))
    assert isinstance(recognize(group), Contraction)
    run(group)


@pytest.mark.parametrize("machine", [Machine(32, 16), Machine(64, 32)], ids=["small", "large"])
@pytest.mark.parametrize(
    ("batch", "sizes", "is_copied"),
    [
        ((16,), (24, 400, 800), "small"),  # large tiles ask for the lines of some terms ahead instead
        ((16,), (200, 400, 800), "both"),
        ((16,), (200, 4000, 80), "small"),  # few terms
        ((16,), (4, 400, 800), "neither"),  # few rows: a copy would take as long as the products
        ((), (24, 100, 300), "neither"),  # it stays in the second cache
        ((64,), (24, 48, 400), "neither"),  # lines side by side
    ],
    ids=str,
)
def test_large_matrices_that_are_read_often_are_copied(machine, batch, sizes, is_copied):
    m, n, depth = sizes
    tiles = "small" if machine.registers == 16 else "large"
    machine = dataclasses.replace(machine, second_bytes=512 << 10)
    _, b, _ = ways_of(group_of(product(batch, m, n, (depth,), False), machine=machine))
    assert (b == Packing.ROUND) == (is_copied in (tiles, "both"))


@pytest.mark.parametrize(("columns", "is_copied"), [(2560, True), (1536, False)], ids=str)
def test_panels_are_made_of_what_stays_near(columns, is_copied):
    """Lines whole powers of two apart compete for a few sets of the caches: else the matrix would be read in place. Nor
    does a task copy all terms of a few columns."""
    for m in (24, 48):
        _, b, _ = ways_of(group_of(product((), m, columns, (1024,), False), machine=Machine(32, 16)))
        assert (b == Packing.ROUND) == is_copied


SMALL_TILES = Machine(32, 16, second_bytes=512 << 10)
LARGE_TILES = Machine(64, 32, second_bytes=2 << 20)


@pytest.mark.parametrize(("depth", "terms"), [(512, 128), (1024, 1024), (2048, 2048), (8192, 2048)], ids=str)
def test_panels_of_a_large_matrix_stay_in_the_second_cache_for_many_rows(depth, terms):
    """Whole sums where two panels of columns and some rows fit, else rounds that are as long as do; a few terms are
    taken in rounds whose columns stay in the first cache."""
    group = group_of(product((), 1024, 2048, (depth,), False), machine=LARGE_TILES)
    ((problem, blocking),) = recognize(group).parts
    (row, step), column = blocking.rows[-1], blocking.column
    assert blocking.packing[blocking.b] == Packing.PANELS
    assert [blocking.inner[k] for k in problem.reduced] == [terms]
    assert step < blocking.inner[row] <= PANEL_ROWS + step
    panels = blocking.inner[column] // blocking.tile.columns
    assert panels > 1 and panels * blocking.tile.columns * terms * 4 <= LARGE_TILES.second_bytes


@pytest.mark.parametrize("sizes", [(27, 45, 37), (32, 64, 32), (43, 50, 64)], ids=str)
def test_blocks_of_panels_compute_the_same_sums(sizes, monkeypatch):
    """With shorter last blocks, whole sums and rounds of them, bit for bit."""
    m, n, depth = sizes
    a, b, k = te.placeholder((m, depth), name="a"), te.placeholder((n, depth), name="b"), te.reduce_axis(depth)
    result = te.compute((m, n), lambda i, j: te.sum(a[i, k.var] * b[j, k.var], k), "product")
    large = Machine(16, 32, second_bytes=1 << 20)
    expected = run(group_of(result, machine=large))
    limit(monkeypatch, l2=256, l1=256, TASKS=2, _MANY_TASKS=2, PANEL_ROWS=8, _MOST_PANELS=2)
    for second, is_whole in ((180 * depth, True), (100 * depth, False)):
        group = group_of(result, machine=dataclasses.replace(large, second_bytes=second))
        _, b, rounds = ways_of(group)
        assert b == Packing.PANELS and (rounds == 1) == is_whole
        assert [x.tobytes() for x in run(group)] == [x.tobytes() for x in expected]


@pytest.mark.parametrize(
    ("batch", "sizes", "a_first", "terms"),
    [
        (14, (128, 128, 512), True, 32),
        (16, (64, 64, 256), True, 64),
        (12, (200, 120, 250), True, 25),
        (26, (14, 263, 356), True, 28),
        (24, (64, 64, 197), True, 50),  # nothing would be copied
        (20, (60, 300, 180), True, None),  # nor here: lines are too long for that
        (14, (128, 128, 512), False, None),  # rows lie along the terms
        (14, (128, 512, 128), True, None),  # too many sums
        (24, (500, 60, 400), True, None),  # lines so long that a round would be of few
    ],
    ids=str,
)
def test_whole_lines_of_matrices_of_a_batch_are_read_as_they_come(batch, sizes, a_first, terms):
    m, n, depth = sizes
    result = product((batch,), m, n, (depth,), a_first)
    for machine in (dataclasses.replace(SMALL, second_bytes=1 << 19), LARGE_TILES):
        ((problem, blocking),) = recognize(group_of(result, machine=machine)).parts
        covered = [blocking.inner[v] for v in (*problem.outputs[1:], *problem.reduced)]
        is_taken = covered == [m, n, terms] and set(blocking.packing.values()) == {Packing.DIRECT}
        assert is_taken == (terms is not None and machine is not LARGE_TILES)


def test_matrices_without_neighbours_in_memory_have_no_lines():
    """Every second element, of either factor or of both."""
    a, b, k = te.placeholder((30, 90, 40), name="a"), te.placeholder((30, 90, 48), name="b"), te.reduce_axis(90)
    for first, second in ((2, 2), (1, 2), (2, 1)):
        shape = (30, 40 // first, 48 // second)
        result = te.compute(
            shape, lambda n, i, j, f=first, s=second: te.sum(a[n, k.var, i * f] * b[n, k.var, j * s], [k]), "product"
        )
        group = group_of(result, machine=dataclasses.replace(SMALL, second_bytes=1 << 19))
        ((problem, blocking),) = recognize(group).parts
        assert [blocking.inner[v] for v in problem.outputs] != [1, *shape[1:]]
        for values, expected in zip(run(group), run(group_of(result, machine=LARGE_TILES)), strict=True):
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [(27, 45, 37), (16, 32, 64), (20, 70, 50)], ids=str)
def test_rounds_of_whole_lines_keep_the_order_of_a_sum(sizes, monkeypatch):
    """Bit for bit, with shorter last rounds and tiles."""
    result = product((3,), *sizes[:2], sizes[2:], True)
    expected = run(group_of(result, machine=dataclasses.replace(SMALL, second_bytes=1 << 20)))
    limit(monkeypatch, TASKS=4, _APART=64, _FEW_LINES=(2, 2), l1=3000)
    group = group_of(result, machine=dataclasses.replace(SMALL, second_bytes=0))
    a, b, rounds = ways_of(group)
    assert (a, b) == (Packing.DIRECT, Packing.DIRECT) and rounds > 3
    assert [x.tobytes() for x in run(group)] == [x.tobytes() for x in expected]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((16, 3072, 1024), (16, 528, 32)),
        ((16, 3001, 1024), (16, 192, 128)),  # lines begin anywhere
        ((100, 3072, 1024), (100, 192, 128)),
        ((64, 1024, 4096), (64, 192, 128)),
        ((64, 4096, 4096), (64, 192, 32)),  # lines compete for few sets
        ((200, 3072, 1024), None),
        ((4, 3072, 1024), None),
        ((64, 1000, 1000), None),  # two threads keep half of the matrix each
    ],
    ids=str,
)
def test_few_rows_read_a_large_matrix_once(sizes, expected):
    m, n, depth = sizes
    ((problem, blocking),) = recognize(group_of(product((), m, n, (depth,), False), machine=LARGE_TILES)).parts
    column, (term,) = blocking.column, problem.reduced
    (row,) = (v for v in problem.outputs if v is not column)
    found = (blocking.inner[row], blocking.inner[column], blocking.inner[term])
    if expected is None:
        assert not is_read_once(problem, blocking.b, column)
    else:
        assert found == expected and blocking.packing[blocking.b] == Packing.DIRECT and blocking.split_k is None


@pytest.mark.parametrize("a_first", [False, True])
@pytest.mark.parametrize("sizes", [(11, 45, 37), (16, 64, 32), (9, 70, 50)], ids=str)
def test_rounds_of_few_rows_keep_the_order_of_a_sum(sizes, a_first, monkeypatch):
    """Bit for bit, with shorter last rounds and pieces."""
    result = product((), *sizes[:2], sizes[2:], a_first)
    machine = Machine(16, 32, second_bytes=1 << 20)
    expected = run(group_of(result, machine=machine))
    limit(monkeypatch, _LONG=(20, 8), _SHORT=(12, 10), _NARROW=8, _APART=16)
    group = group_of(result, machine=dataclasses.replace(machine, second_bytes=0))
    ((problem, blocking),) = recognize(group).parts
    assert is_read_once(problem, blocking.b, blocking.column) and round_count(problem, blocking.inner) > 1
    assert [x.tobytes() for x in run(group)] == [x.tobytes() for x in expected]


@pytest.mark.parametrize(("columns", "parts"), [(16384, None), (65536, 1)], ids=str)
def test_a_task_keeps_the_sums_of_streamed_lines_itself(columns, parts):
    """Unless they are too many for its stack."""
    problem = Problem.of(group_of(product((), 8, columns, (512,), True), machine=Machine(32, 16)))
    blocking = _along(problem, problem.outputs[-1])
    assert is_streamed(problem, blocking) and blocking.split_k == parts


def test_a_few_columns_are_not_cut_off_where_lines_lie_across_and_come_from_afar():
    """Else all of them would come a second time (7 x 911 x 28 sums of 526 terms: 0.72 of the time in one)."""
    for a_first, parts in ((True, 1), (False, 2)):
        group = group_of(product((7,), 911, 28, (526,), a_first), machine=SMALL_TILES)
        assert len(recognize(group).parts) == parts


def test_a_matrix_that_lies_across_is_copied_along_its_lines():
    """Whole vectors of columns, not a few rows at a time."""
    for m, n in ((1500, 32), (32, 1500)):
        group = group_of(product((), m, n, (700,), True), machine=SMALL_TILES)
        ((problem, blocking),) = recognize(group).parts
        assert problem.extents[blocking.column] == 1500 and blocking.packing[blocking.b] == Packing.ROUND


def test_columns_are_copied_beside_rows():
    """Although they would stay in the second cache: lines of both do not stay in the first one."""
    problem = Problem.of(group_of(product((2,), 280, 93, (240,), True), machine=SMALL_TILES))
    blocking = _along(problem, problem.outputs[-1])
    assert [blocking.packing[f] for f in (blocking.a, blocking.b)] == [Packing.ROUND, Packing.ROUND]


def test_lines_of_a_matrix_from_afar_are_streamed_to_few_rows():
    """A copy, made for other vectors, waits for each element, as much as the sums that streamed lines put away."""
    machine = Machine(32, 16)
    problem = Problem.of(group_of(product((), 8, 2048, (2048,), False), machine=machine))
    rows, columns = (_along(problem, v) for v in problem.outputs)
    assert cost(problem, columns) < cost(problem, rows)
