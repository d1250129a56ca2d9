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
    """The number of this rank, from 0 on.

    Returns:
        the number, less than ``size()``.

    Raises:
        UserError: where several processes were started that do not know each other.
    """
    return start().rank


def size() -> int:
    """How many ranks there are.

    Returns:
        the number, 1 without a launcher.

    Raises:
        UserError: where several processes were started that do not know each other.

    Examples:
        >>> pullback.distributed.rank(), pullback.distributed.size()
        (0, 1)
    """
    return start().size


def is_first() -> bool:
    """Whether this is rank 0, which prints and writes what is to be printed or written once.

    Returns:
        whether it is.

    Raises:
        UserError: where several processes were started that do not know each other.

    Examples:
        >>> if pullback.distributed.is_first():
        ...     print("done")
        done
    """
    return start().is_first


def broadcast(value: T, root: int = 0) -> T:
    """The value of rank ``root``: anything that pickles. All ranks call it.

    Args:
        value: what this rank gives; that of other ranks than ``root`` is not sent.
        root: the number of the rank whose value all get.

    Returns:
        the value of that rank.

    Raises:
        RankError: where another rank ended or failed.

    Examples:
        >>> pullback.distributed.run_local(3, lambda rank: pullback.distributed.broadcast(rank * 10, root=2))
        [20, 20, 20]
    """
    return start().broadcast(value, root)


def exchange(value: T) -> list[T]:
    """The values of all ranks, by rank: anything that pickles. All ranks call it.

    Args:
        value: what this rank gives.

    Returns:
        a list of as many values as there are ranks.

    Raises:
        RankError: where another rank ended or failed.

    Examples:
        >>> pullback.distributed.run_local(3, lambda rank: sum(pullback.distributed.exchange(rank)))
        [3, 3, 3]
    """
    return start().exchange(value)


def barrier() -> None:
    """Wait until all ranks are here. All ranks call it.

    Raises:
        RankError: where another rank ended or failed.
    """
    start().barrier()


__getattr__ = missing_from(globals())
