"""What was chosen for a filter, in the field's words."""

from __future__ import annotations

import math

from pullback.schedule.contraction.describe import epilogue_nanoseconds, name_of
from pullback.schedule.describe import named
from pullback.schedule.tiles import choose_tile
from pullback.schedule.winograd.algebra import POINTS
from pullback.schedule.winograd.plan import Filter, vectors
from pullback.tir.description import Nest


def nest_of_filter(found: Filter) -> Nest:
    """Transforms, products and results as one: a task does all of them for its tiles."""
    problem, machine, lanes = found.problem, found.problem.group.machine, found.problem.lanes
    channels, columns = problem.extents[found.channel], problem.extents[found.column]
    tile = choose_tile(channels if found.summed else found.tiles, columns, lanes, machine.registers)
    return Nest(
        named(problem.outputs, [problem.extents[v] for v in problem.outputs]),
        vectors(found) * lanes * machine.multiply_add_ns(lanes) + epilogue_nanoseconds(problem),
        named(problem.reduced, [problem.extents[k] for k in problem.reduced]),
        loops=_form(found),
        vector_axis=found.column.name,
        tile=(tile.rows, tile.columns),
        packing=((name_of(problem, found.data), "transformed"), (name_of(problem, found.weights), "transformed")),
        split_k=found.chunks,
        tasks=found.tasks if found.threads else 1,
    )


def filter_flops(found: Filter) -> int:
    """Of the products at the points, without the transforms: fewer than the convolution has."""
    extents, long = found.problem.extents, [found.problem.extents[p.long] for p in found.pairs]
    points = math.prod(POINTS * (n // 2) + (POINTS - 1) * (n % 2) for n in long)
    return 2 * points * math.prod(extents[v] for v in (*found.batch, found.channel, found.column))


def _form(found: Filter) -> str:
    """``F(2x2, 3x3)``: of the results of a tile, and the taps; the gradient by the weights has them the other way."""
    results, taps = ("x".join([n] * len(found.pairs)) for n in ("32" if found.summed else "23"))
    return f"F({results}, {taps})"
