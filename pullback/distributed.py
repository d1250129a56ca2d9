"""Training over several processes: who they are, and how they share a training.

    trainer = pullback.trainer(net, "cross_entropy", "adam", example=x, distributed="zero1")
    trainer.fit(x, y, epochs=5)
    if pullback.distributed.is_first():
        print("done")

and then ``mpirun -n 4 python train.py``. Each process is a *rank*; all run the same program, and differ by their number
alone. What is here works without mpirun too: there is one rank then.
"""

from __future__ import annotations

from typing import TypeVar

from pullback.ir.words import missing_from
from pullback.relax.training.distribution import DataParallel, Distribution, Mesh, ZeRO
from pullback.runtime.ranks import RankError, run_local, start

__all__ = [
    "DataParallel", "Distribution", "Mesh", "RankError", "ZeRO", "barrier", "broadcast", "exchange", "is_first", "rank",
    "run_local", "size",
]  # fmt: skip

T = TypeVar("T")


def rank() -> int:
    """The number of this rank, from 0 on."""
    return start().rank


def size() -> int:
    """How many ranks there are."""
    return start().size


def is_first() -> bool:
    """Whether this is rank 0, which prints and writes what is to be printed or written once."""
    return start().is_first


def broadcast(value: T, root: int = 0) -> T:
    """The value of rank ``root``: anything that pickles. All ranks call it."""
    return start().broadcast(value, root)


def exchange(value: T) -> list[T]:
    """The values of all ranks, by rank: anything that pickles. All ranks call it.

    >>> sum(pullback.distributed.exchange(len(mine)))
    """
    return start().exchange(value)


def barrier() -> None:
    """Wait until all ranks are here. All ranks call it."""
    start().barrier()


__getattr__ = missing_from(globals())
