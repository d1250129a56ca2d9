"""Which rows of a batch are a rank's: each batch of a training is computed by all ranks, a run of its rows by each.

Of a batch of B rows, rank r of n takes the rows r·B/n to (r + 1)·B/n. Where n does not divide B, as in the last batch
of an epoch, the first B mod n ranks take one row more; or every rank computes the batch as a whole, which counts once:
where there are fewer rows than ranks, and where results would depend on the number of ranks otherwise. ``Distributed``
says what is done with which batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pullback.relax.transform.distributed import Distributed


@dataclass(frozen=True)
class Part:
    """The ``rows`` rows from ``first`` on of a batch of ``whole`` rows. ``counts``: whether they add to sums over the
    ranks; of a batch that every rank computes, only the first rank's do."""

    first: int
    rows: int
    whole: int
    counts: bool = True

    @property
    def slice(self) -> slice:
        return slice(self.first, self.first + self.rows)


@dataclass(frozen=True)
class Share:
    """What rank number ``rank`` of ``size`` takes of batches."""

    rank: int = 0
    size: int = 1
    distributed: Distributed | None = None

    def of(self, whole: int) -> Part:
        """Its part of a batch of so many rows."""
        if self.distributed is None or self.distributed.of_batch(whole).batch == "same":
            return Part(0, whole, whole, self.rank == 0)
        each, more = divmod(whole, self.size)
        return Part(self.rank * each + min(self.rank, more), each + (self.rank < more), whole)

    def order(self, order: np.ndarray | None, first: int, whole: int, batches: int) -> tuple[np.ndarray | None, int]:
        """Of batches of ``whole`` rows, which begin at position ``first`` of an order (None: 0, 1, 2 …), the order of
        its own rows, and where in that they begin."""
        if self.size == 1:
            return order, first
        last = first + whole * batches
        rows = np.arange(first, last) if order is None else order[first:last]
        return rows.reshape(batches, whole)[:, self.of(whole).slice].ravel(), 0


ALONE = Share()
