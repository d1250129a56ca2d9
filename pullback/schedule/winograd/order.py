"""In which order a task numbers its tiles and points, so that no product is computed in vain.

An axis of odd length ends with a tile of one value. Along it, that tile needs three of the four points: the last takes
part in the second result only (Aᵀ), or is the second term (G). So tiles that need the same points are neighbours, and
points that the same tiles need are, too:

    last tile along both axes cut:  tiles   (last, *)  (*, *)  (*, last)  (last, last)
                                    points  (3, *) take the middle two, (*, 3) the first two, (3, 3) the second alone

Blocks that hold only a part of an odd axis have all their tiles in the plain order, and all points for each.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pullback.schedule.winograd.algebra import POINTS, grid_points
from pullback.schedule.winograd.plan import Filter
from pullback.tir import PrimExpr, Var, as_expr

Flags = tuple[bool, ...]  # one for each pair of the filter
_LAST = POINTS - 1  # of the points along an axis
_GROUPS: dict[int, tuple[Flags, ...]] = {  # of tiles, for so many axes, along which they are the last or not
    1: ((False,), (True,)),
    2: ((True, False), (False, False), (False, True), (True, True)),
}


@dataclass(frozen=True)
class Part:
    """Points, and the tiles that need them."""

    first_point: int
    points: int
    first_tile: int
    tiles: int


class Order:
    """The order of the tiles of a task, and of the points."""

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self.apart = tuple(  # whether the last tile along the axis has numbers of its own
            filter.problem.extents[p.long] % 2 == 1 and filter.count(p.long) == filter.blocks[p.long]
            for p in filter.pairs
        )

    @cached_property
    def points(self) -> list[tuple[int, ...]]:
        """All points, those that fewer tiles need after the others."""
        return sorted(grid_points(len(self.apart), POINTS), key=self._spared)

    def _spared(self, point: tuple[int, ...]) -> Flags:
        """Along which axes the last tile does not need a point."""
        return tuple(apart and at == _LAST for apart, at in zip(self.apart, point, strict=True))

    def _lasts(self, sizes: tuple[int, ...]) -> Flags:
        """Along which axes a tile of so many values is the last, with a number of its own."""
        return tuple(apart and size == 1 for apart, size in zip(self.apart, sizes, strict=True))

    def needs(self, sizes: tuple[int, ...], point: tuple[int, ...]) -> bool:
        """Whether a tile of so many values along each axis needs a point."""
        return not _meet(self._lasts(sizes), self._spared(point))

    @cached_property
    def _groups(self) -> dict[Flags, tuple[int, int]]:
        """Tiles that are the last along the same axes: the number of the first of them, and how many they are."""
        groups, first = {}, 0
        for lasts in _GROUPS[len(self.apart)]:
            if all(map(operator.le, lasts, self.apart)):
                groups[lasts] = first, math.prod(self._sizes(lasts))
                first += groups[lasts][1]
        return groups

    def _sizes(self, lasts: Flags) -> list[int]:
        """How many tiles of a group there are along each axis."""
        blocks = [self.filter.blocks[v] for v in self.filter.batch]
        for pair, apart, last in zip(self.filter.pairs, self.apart, lasts, strict=True):
            blocks.append(1 if last else self.filter.blocks[pair.long] - apart)
        return blocks

    def number(self, offsets: Mapping[Var, PrimExpr], sizes: tuple[int, ...]) -> PrimExpr:
        """The number of a tile of so many values along each axis. ``offsets``: its place among those of the task."""
        lasts = self._lasts(sizes)
        number: PrimExpr = as_expr(0)
        is_last = (*(False for _ in self.filter.batch), *lasts)
        for v, extent, last in zip(self.filter.tiled, self._sizes(lasts), is_last, strict=True):
            number = number if last else number * extent + offsets[v]
        return number + self._groups[lasts][0]

    def parts(self) -> list[Part]:
        """What is to be multiplied."""
        parts, first = [], 0
        for spared, points in itertools.groupby(self.points, self._spared):
            groups = [group for lasts, group in self._groups.items() if not _meet(lasts, spared)]
            begin, tiles = min(g[0] for g in groups), sum(g[1] for g in groups)
            parts.append(Part(first, len(list(points)), begin, tiles))
            first += parts[-1].points
        return [part for part in parts if part.tiles]


def _meet(a: Flags, b: Flags) -> bool:
    """Whether both name an axis."""
    return any(map(operator.and_, a, b))
