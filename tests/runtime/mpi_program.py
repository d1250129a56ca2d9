"""What ranks do in test_mpi.py: `mpiexec -n 2 python mpi_program.py WHAT KIND`."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

from pullback.runtime import collectives, ranks
from pullback.runtime.dtype import NUMPY_DTYPES

ELEMENTS = 60_000


def arguments(kind: str, size: int, elements: int, dtype: np.dtype) -> tuple[list[list[np.ndarray]], list[tuple]]:
    """What each rank gives to a collective, and the shapes of what it is about."""
    random = np.random.default_rng(elements)
    given = -(-elements // size) if kind == "gather_pieces" else elements
    return [[(100 * random.random(given)).astype(dtype)] for _ in range(size)], [(elements,)]


def run(kind: str, elements: int = ELEMENTS, dtype: str = "float32") -> None:
    """One collective, compared with NumPy."""
    mine = ranks.current()
    given, shapes = arguments(kind, mine.size, elements, NUMPY_DTYPES[dtype])
    options = {"root": mine.size - 1} if kind == "broadcast" else {}
    result = mine.collective(kind, given[mine.rank], shapes, **options)
    expected = collectives.collective(kind, given, mine.rank, shapes, **options)
    assert [a.tobytes() for a in result] == [a.tobytes() for a in expected], (kind, elements, dtype)


def all_kinds() -> None:
    """What the engine does, and what Python's objects do over it."""
    mine = ranks.current()
    for kind in collectives.KINDS:
        for dtype in NUMPY_DTYPES:
            for elements in (2, 1000, ELEMENTS):
                run(kind, elements, dtype)
    assert mine.exchange("x" * (1 + 1000 * mine.rank)) == ["x" * (1 + 1000 * r) for r in range(mine.size)]
    assert mine.broadcast({"rank": mine.rank}, 1) == {"rank": 1}
    mine.barrier()
    mine.agree("the number of ranks", mine.size)
    try:
        mine.agree("the rank", mine.rank)
        raise AssertionError("ranks are not equal")
    except ranks.RankError as error:
        assert error.message == "the rank is 0 on rank 0 and 1 on rank 1"
    mixed = mine.collective("reduce", [np.ones(2), np.ones(1, "int8")], [(2,), (1,)])
    assert [a.dtype.name for a in mixed] == ["float64", "int8"] and mixed[0][0] == mine.size


def end(how: str) -> None:
    """Rank 1 ends in some way."""
    if how == "killed":
        print(f"killed at {time.time()}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raises":
        raise ValueError("the disk is full")
    if how == "exits":
        sys.exit(3)
    if how == "fails":
        ranks.current().fail("its data are damaged")
        time.sleep(60)


def main(what: str, kind: str) -> None:
    """Start, and do what is asked for."""
    mine = ranks.start()
    assert mine is ranks.start() is ranks.current()
    if what == "all":
        all_kinds()
    else:
        for _ in range(3):
            run(kind)
        if mine.rank == 1:
            end(what)
        while True:
            run(kind)
    sys.stdout.write(f"rank {mine.rank} of {mine.size} is done\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
