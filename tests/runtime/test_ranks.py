"""The native engine of collectives against their meaning in NumPy, bit for bit, with ranks that are threads."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError, UserError
from pullback.runtime import collectives, ranks
from pullback.runtime.dtype import NUMPY_DTYPES
from pullback.runtime.engine import Engine
from pullback.runtime.ranks import RankError, current, run_local

# Sizes of the arrays of a collective: one or several, none, fewer than there are ranks, more than a small message has.
SIZES = [(1,), (7, 130), (0, 5), (5000, 3), (9001,), (40, 40, 6000)]


def engine() -> Engine:
    """The native engine of the calling thread's rank."""
    rank = current()
    assert isinstance(rank, ranks.Local)
    return rank._meeting.engines[rank.rank]


def values(random: np.random.Generator, size: int, dtype: np.dtype) -> np.ndarray:
    """Numbers of all sizes that a dtype has: of integers such that sums wrap around, of floats some that are none."""
    if dtype == np.bool_:
        return random.integers(0, 2, size).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, size, dtype=dtype, endpoint=True)
    found = random.standard_normal(size) * 10.0 ** random.integers(-6, 4, size)
    found[random.random(size) < 0.01] = np.nan
    found[random.random(size) < 0.01] = np.inf
    return found.astype(dtype)


def assert_same(result: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """The same bits, but of what is no number."""
    assert len(result) == len(expected)
    for own, other in zip(result, expected, strict=True):
        assert own.dtype == other.dtype and own.shape == other.shape
        numbers = own == own
        assert np.array_equal(numbers, other == other)
        assert own[numbers].tobytes() == other[numbers].tobytes()


@dataclass
class Case:
    """One collective, and what each rank gives."""

    kind: str
    given: list[list[np.ndarray]]
    shapes: list[tuple[int, ...]]
    options: dict[str, Any] = field(default_factory=dict)


def compare(size: int, cases: list[Case]) -> None:
    """Collectives by the engines of so many ranks and by NumPy."""

    def run(rank: int) -> list[list[np.ndarray]]:
        mine = engine()
        results = [mine.collective(case.kind, case.given[rank], case.shapes, **case.options) for case in cases]
        current().check()
        return results

    for rank, results in enumerate(run_local(size, run)):
        for case, result in zip(cases, results, strict=True):
            assert_same(result, collectives.collective(case.kind, case.given, rank, case.shapes, **case.options))


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("size", range(1, 10))
def test_reductions(size: int, dtype: str) -> None:
    random, cases = np.random.default_rng(size), []
    for reduction, shards, sizes in itertools.product(collectives.REDUCTIONS, (1, 2, 3), SIZES):
        given = [[values(random, n, NUMPY_DTYPES[dtype]) for n in sizes for _ in range(shards)] for _ in range(size)]
        for kind in ("reduce", "reduce_pieces"):
            cases.append(Case(kind, given, [(n,) for n in sizes], {"reduction": reduction, "shards": shards}))
    compare(size, cases)


@pytest.mark.parametrize("shards", [4, 6, 12])
@pytest.mark.parametrize("size", [2, 3, 5, 9])
def test_many_shards(size: int, shards: int) -> None:
    random, cases = np.random.default_rng(size), []
    for sizes in ((3, 4), (6000,)):
        given = [[values(random, n, np.dtype("float32")) for n in sizes for _ in range(shards)] for _ in range(size)]
        for kind in ("reduce", "reduce_pieces"):
            cases.append(Case(kind, given, [(n,) for n in sizes], {"shards": shards}))
    compare(size, cases)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("size", range(1, 10))
def test_what_is_moved(size: int, dtype: str) -> None:
    random, cases = np.random.default_rng(size), []

    def of_all_ranks(sizes: Sequence[int]) -> list[list[np.ndarray]]:
        return [[values(random, n, NUMPY_DTYPES[dtype]) for n in sizes] for _ in range(size)]

    for sizes in SIZES:
        shapes = [(n,) for n in sizes]
        cases += [
            Case("piece", of_all_ranks(sizes), shapes),
            Case("gather_pieces", of_all_ranks([-(-n // size) for n in sizes]), shapes),
            Case("all_to_all", of_all_ranks([n * size for n in sizes]), [(n * size,) for n in sizes]),
            *(Case("broadcast", of_all_ranks(sizes), shapes, {"root": root}) for root in range(size)),
        ]
    compare(size, [*cases, Case("rank", [[] for _ in range(size)], [()])])


def test_arrays_of_several_axes() -> None:
    random = np.random.default_rng(0)

    def of_all_ranks(*shapes: tuple[int, ...]) -> list[list[np.ndarray]]:
        return [[np.asarray(random.standard_normal(shape)) for shape in shapes] for _ in range(3)]

    compare(
        3,
        [
            Case("all_to_all", of_all_ranks((6, 2, 5)), [(6, 2, 5)]),
            Case("reduce", of_all_ranks((3, 4), ()), [(3, 4), ()]),
            Case("gather_pieces", of_all_ranks((3,)), [(2, 4)]),
        ],
    )


def test_of_signed_zeros_the_same_one_is_taken() -> None:
    zeros = np.array([0.0, -0.0, 0.0, -0.0])
    cases = []
    for dtype, reduction in itertools.product(("float16", "bfloat16", "float32", "float64"), collectives.REDUCTIONS):
        given = [[zeros.astype(NUMPY_DTYPES[dtype])], [zeros[::-1].astype(NUMPY_DTYPES[dtype])]]
        cases.append(Case("reduce", given, [(4,)], {"reduction": reduction}))
    compare(2, cases)


def test_shards_are_ranks_that_share_a_process() -> None:
    """Where their number is a power of 2, the sum is the same, bit for bit."""
    random = np.random.default_rng(0)
    shards = [values(random, 30_000, np.dtype("float32")) for _ in range(8)]

    def total(size: int) -> np.ndarray:
        each = 8 // size
        given = [shards[r * each : (r + 1) * each] for r in range(size)]
        run = lambda rank: engine().collective("reduce", given[rank], [(30_000,)], shards=each)[0]  # noqa: E731
        return run_local(size, run)[0]

    for size in (1, 2, 4):
        assert_same([total(size)], [total(8)])


def test_a_failing_rank_ends_what_the_others_wait_for() -> None:
    def run(rank: int) -> None:
        if rank == 1:
            raise ValueError("no more")
        engine().collective("reduce", [np.ones(3)], [(3,)])
        with pytest.raises(RankError, match="rank 1 failed: ValueError: no more"):
            current().check()

    with pytest.raises(ValueError, match="no more"):
        run_local(3, run)


@pytest.mark.parametrize("kind", ["reduce", "reduce_pieces", "gather_pieces", "broadcast", "all_to_all"])
@pytest.mark.parametrize("elements", [6, 60_000])
def test_a_rank_that_ends_does_not_let_the_others_wait(kind: str, elements: int) -> None:
    shapes = [(elements,)]

    def run(rank: int) -> str | None:
        mine = engine()
        arrays = [np.ones(elements // (2 if kind == "gather_pieces" else 1))]
        mine.collective(kind, arrays, shapes)
        current().check()
        if rank == 1:
            mine.collective(kind, arrays, shapes)
        return mine.failure

    assert run_local(2, run) == [None, "rank 0 ended, and others wait for it"]


def test_a_rank_that_ends_does_not_let_python_wait() -> None:
    def run(rank: int) -> int:
        for _ in range(50):
            current().barrier()
        return sum(current().exchange(rank)) if rank == 1 else 0

    with pytest.raises(RankError, match="rank 0 ended, and others wait for it"):
        run_local(2, run)


def test_after_a_failure_nothing_waits() -> None:
    def run(rank: int) -> str | None:
        mine = engine()
        current().barrier()
        if rank == 0:
            mine.fail("its disk is full")
        for _ in range(100):
            mine.collective("reduce", [np.ones(9000)], [(9000,)])
        return mine.failure

    assert run_local(3, run) == ["rank 0 failed: its disk is full"] * 3


def test_a_rank_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_RANKS_TIMEOUT", "1")

    def run(rank: int) -> str | None:
        mine = engine()
        current().barrier()
        if rank != 2:
            mine.collective("reduce", [np.ones((3, 2), "float32")], [(3, 2)])
        current().barrier()
        mine.collective("reduce", [np.ones((3, 2), "float32")], [(3, 2)])
        return mine.failure

    for failure in run_local(3, run):
        assert failure is not None and failure.endswith(
            "nothing has come for 1 s: it is in a reduce of 1 array of float32 (6 elements), which waits for rank 2"
        )


def test_ranks_that_run_different_programs_are_told() -> None:
    def run(rank: int) -> str | None:
        mine = engine()
        mine.collective("reduce", [np.ones(3 + rank)], [(3 + rank,)])
        return mine.failure

    for failure in run_local(2, run):
        assert failure is not None and "the ranks run different programs" in failure


def test_a_timeout_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_RANKS_TIMEOUT", "soon")
    with pytest.raises(UserError, match="PULLBACK_RANKS_TIMEOUT must be a whole number of seconds"):
        run_local(2, lambda rank: current().table)


def test_the_number_of_ranks() -> None:
    with pytest.raises(ArgumentError, match="the number of ranks must be an int of at least 1, got 0"):
        run_local(0, lambda rank: None)
