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
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pullback.schedule.winograd.algebra import POINTS, grid_points
from pullback.schedule.winograd.plan import Filter
from pullback.tir import PrimExpr, Var, as_expr

Flags = tuple[bool, ...]  # one for each pair of the filter
_LAST = POINTS - 1  # of the points along an axis


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

    def needs(self, sizes: tuple[int, ...], point: tuple[int, ...]) -> bool:
        """Whether a tile of so many values along each axis needs a point."""
        return not any(spared and size == 1 for spared, size in zip(self._spared(point), sizes, strict=True))

    @cached_property
    def _groups(self) -> dict[Flags, tuple[int, int]]:
        """Tiles that are the last along the same axes: the number of the first of them, and how many they are."""
        found = list(itertools.product(*((False, True) if apart else (False,) for apart in self.apart)))
        if all(self.apart) and len(self.apart) == 2:
            found = [(True, False), (False, False), (False, True), (True, True)]
        groups, first = {}, 0
        for flags in found:
            groups[flags] = first, math.prod(self._sizes(flags))
            first += groups[flags][1]
        return groups

    def _sizes(self, flags: Flags) -> list[int]:
        """How many tiles of a group there are along each axis."""
        blocks = [self.filter.blocks[v] for v in self.filter.batch]
        for pair, apart, last in zip(self.filter.pairs, self.apart, flags, strict=True):
            blocks.append(1 if last else self.filter.blocks[pair.long] - apart)
        return blocks

    def number(self, offsets: Mapping[Var, PrimExpr], sizes: tuple[int, ...]) -> PrimExpr:
        """The number of a tile of so many values along each axis. ``offsets``: its place among those of the task."""
        flags = tuple(apart and size == 1 for apart, size in zip(self.apart, sizes, strict=True))
        number: PrimExpr = as_expr(0)
        is_last = (*(False for _ in self.filter.batch), *flags)
        for v, extent, last in zip(self.filter.tiled, self._sizes(flags), is_last, strict=True):
            number = number if last else number * extent + offsets[v]
        return number + self._groups[flags][0]

    def parts(self) -> list[Part]:
        """What is to be multiplied."""
        parts, first = [], 0
        for spared, points in itertools.groupby(self.points, self._spared):
            groups = [
                g for flags, g in self._groups.items() if not any(a and b for a, b in zip(spared, flags, strict=True))
            ]
            begin, tiles = min(g[0] for g in groups), sum(g[1] for g in groups)
            parts.append(Part(first, len(list(points)), begin, tiles))
            first += parts[-1].points
        return [part for part in parts if part.tiles]
