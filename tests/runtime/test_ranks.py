"""The native engine of collectives against their meaning in NumPy, bit for bit, with ranks that are threads."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError, UserError
from pullback.runtime import collectives, ranks
from pullback.runtime.dtype import NUMPY_DTYPES
from pullback.runtime.engine import Engine
from pullback.runtime.ranks import RankError, current, run_local

# Sizes of the arrays of a collective: one or several, none, fewer than there are ranks, more than a small message has.
SIZES = [(1,), (7, 130), (0, 5), (), (5000, 3), (9001,), (40, 40, 20000)]


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
        numbers = own == own  # noqa: PLR0124
        assert np.array_equal(numbers, other == other)  # noqa: PLR0124
        assert own[numbers].tobytes() == other[numbers].tobytes()


def compare(kind: str, arrays: list[np.ndarray], shapes: list[tuple[int, ...]], **options) -> None:
    """One collective by the engine and by NumPy."""
    if not arrays and kind != "rank":
        return
    expected = current().collective(kind, arrays, shapes, **options)
    result = engine().collective(kind, arrays, shapes, **options)
    current().check()
    assert_same(result, expected)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("size", range(1, 10))
def test_reductions(size: int, dtype: str) -> None:
    def run(rank: int) -> None:
        random, kind = np.random.default_rng([rank, size]), NUMPY_DTYPES[dtype]
        for reduction, shards, sizes in itertools.product(collectives.REDUCTIONS, (1, 2, 3), SIZES):
            arrays = [values(random, n, kind) for n in sizes for _ in range(shards)]
            for name in ("reduce", "reduce_pieces"):
                compare(name, arrays, [(n,) for n in sizes], reduction=reduction, shards=shards)

    run_local(size, run)


@pytest.mark.parametrize("shards", [4, 6, 12])
@pytest.mark.parametrize("size", [2, 3, 5, 9])
def test_many_shards(size: int, shards: int) -> None:
    def run(rank: int) -> None:
        random = np.random.default_rng(rank)
        for sizes in ((3, 4), (6000,)):
            arrays = [values(random, n, np.dtype("float32")) for n in sizes for _ in range(shards)]
            for name in ("reduce", "reduce_pieces"):
                compare(name, arrays, [(n,) for n in sizes], shards=shards)

    run_local(size, run)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("size", range(1, 10))
def test_what_is_moved(size: int, dtype: str) -> None:
    def run(rank: int) -> None:
        random, kind = np.random.default_rng([rank, size]), NUMPY_DTYPES[dtype]
        for sizes in SIZES:
            shapes = [(n,) for n in sizes]
            whole = [values(random, n, kind) for n in sizes]
            compare("piece", whole, shapes)
            compare("gather_pieces", [values(random, -(-n // size), kind) for n in sizes], shapes)
            compare("all_to_all", [values(random, n * size, kind) for n in sizes], [(n * size,) for n in sizes])
            for root in range(size):
                compare("broadcast", whole, shapes, root=root)
        compare("rank", [], [()])

    run_local(size, run)


def test_arrays_of_several_axes() -> None:
    def run(rank: int) -> None:
        random = np.random.default_rng(rank)
        compare("all_to_all", [random.standard_normal((6, 2, 5))], [(6, 2, 5)])
        compare("reduce", [random.standard_normal((3, 4)), random.standard_normal(())], [(3, 4), ()])
        compare("gather_pieces", [random.standard_normal(3)], [(2, 4)])

    run_local(3, run)


def test_of_signed_zeros_the_same_one_is_taken() -> None:
    def run(rank: int) -> None:
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            zeros = np.array([0.0, -0.0, 0.0, -0.0]).astype(NUMPY_DTYPES[dtype])
            for reduction in collectives.REDUCTIONS:
                compare("reduce", [zeros if rank else zeros[::-1]], [(4,)], reduction=reduction)

    run_local(2, run)


def test_a_failing_rank_ends_what_the_others_wait_for() -> None:
    def run(rank: int) -> None:
        if rank == 1:
            raise ValueError("no more")
        engine().collective("reduce", [np.ones(3)], [(3,)])
        with pytest.raises(RankError, match="rank 1 failed: ValueError: no more"):
            current().check()

    with pytest.raises(ValueError, match="no more"):
        run_local(3, run)


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
        return mine.failure

    found = run_local(3, run)
    assert found[0] == found[1] == found[2]
    assert found[0] is not None and found[0].endswith(
        "nothing has come for 1 s: it is in a reduce of 1 array of float32 (6 elements), which waits for rank 2"
    )


def test_ranks_that_run_different_programs_are_told() -> None:
    def run(rank: int) -> str | None:
        mine = engine()
        mine.collective("reduce", [np.ones(3 + rank)], [(3 + rank,)])
        return mine.failure

    found = run_local(2, run)
    assert found[0] is not None and "the ranks run different programs" in found[0]
    assert found[0] == found[1]


def test_a_timeout_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_RANKS_TIMEOUT", "soon")
    with pytest.raises(UserError, match="PULLBACK_RANKS_TIMEOUT must be a whole number of seconds"):
        run_local(2, lambda rank: current().table)


def test_the_number_of_ranks() -> None:
    with pytest.raises(ArgumentError, match="the number of ranks must be an int of at least 1, got 0"):
        run_local(0, lambda rank: None)
