"""How a contraction is blocked: what the loops over tasks, rounds, register tiles and terms are, and what is packed.

``plan/`` fills a :class:`Draft`, decision by decision, and makes a :class:`Blocking` of it when all are taken
(``finish.py``). ``emit/`` writes its loops, and asks plan nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from pullback.schedule.affine import Affine
from pullback.schedule.contraction.problem.problem import Factor
from pullback.schedule.tiles import Tile
from pullback.tir import PrimExpr, Var, maximum, minimum

Rows = tuple[tuple[Var, int], ...]  # axes of a register tile with their number of rows, outermost first


class Packing(Enum):
    """How a register tile reads a factor."""

    DIRECT = "direct"  # from memory, where it lies
    REGION = "region"  # each task packs, or computes, the box that it reads
    PANELS = "panels"  # packed as a whole beforehand, in blocks of the tile's columns or rows
    TRANSPOSED = "transposed"  # packed as a whole beforehand, the tile's rows innermost


Packings = Mapping[Factor, Packing]


def packed(packing: Packings, *schemes: Packing) -> list[Factor]:
    """The factors that are read in one of these schemes."""
    return [factor for factor, scheme in packing.items() if scheme in schemes]


@dataclass(frozen=True, eq=False)
class Draft:
    """Decisions so far. ``a`` is read along rows, ``b`` along ``column``, the vector axis unless there is a
    ``lane_axis``.

    ``inner``: how many values of an axis one task (or, of an axis of the sum, one round of a task) covers. A task keeps
    its sums from round to round. ``split_k``: the rounds are divided among so many partial sums, which a second loop
    adds up; 1: there is one, in the workspace.
    """

    column: Var
    a: Factor
    b: Factor
    rows: Rows
    tile: Tile
    packing: Packings
    inner: Mapping[Var, int]
    split_k: int | None = None
    lane_axis: Var | None = None  # the vector axis, if it is one of the sum: each accumulator is a vector of one sum

    @property
    def has_region(self) -> bool:
        return Packing.REGION in self.packing.values()

    def revised(self, **changes: Any) -> Draft:
        """A draft with other values of these fields."""
        return Draft(**{f.name: getattr(self, f.name) for f in fields(Draft)} | changes)


@dataclass(frozen=True)
class Skip:
    """An axis of the sum, ``tap``, matters for a tile only where ``window``, the source's place without the tap, plus
    ``step`` times the tap comes between ``low`` and ``high``. ``reach``: by how much the place varies inside a tile,
    downwards and upwards."""

    tap: Var
    step: int
    window: Affine
    low: int
    high: int
    reach: tuple[int, int]
    extent: int

    def count(self, place: Mapping[Var, int]) -> int:
        """How many taps matter for the tile whose first values of the result's axes are ``place``."""
        first, end = self._range(self.window.const + sum(c * place[v] for v, c in self.window.terms.items()))
        return max(0, min(end, self.extent) - max(first, 0))

    def _range(self, index: Any) -> tuple[Any, Any]:
        """The taps that matter for a tile whose first place is ``index``, a number or an expression: from the first to
        the one after the last."""
        before, after = self.low - (index + self.reach[1]), self.high - 1 - (index + self.reach[0])
        least, most = (before, after) if self.step > 0 else (-1 * after, -1 * before)
        step = abs(self.step)
        return (least + (step - 1)) // step, most // step + 1

    def taps(self, place: Mapping[Var, PrimExpr]) -> tuple[PrimExpr, PrimExpr]:
        """(first tap, number of taps) of the tile whose first values of the result's axes are ``place``."""
        first, end = self._range(self.window.at(place))
        first = maximum(first, 0)
        return first, maximum(minimum(end, self.extent) - first, 0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Blocking(Draft):
    """A draft whose decisions are all taken, and what follows from them: the orders of axes are outermost first."""

    threads: bool  # whether tasks are worth dividing among threads
    task_count: int  # of whole sums
    round_count: int  # of a whole sum
    task_order: tuple[Var, ...]  # axes of the result as tasks go through them
    tile_order: tuple[Var, ...]  # and as the register tiles of a task do
    outermost: Var | None  # the first axis of several blocks as tasks go through them
    thread_private: frozenset[Factor]  # packed as a whole by each thread for itself
    widened: frozenset[Factor]  # read directly from a copy in the accumulator's type, made beforehand
    skips: Mapping[Var, Skip]
