"""Rough costs, in nanoseconds of one core: enough to decide what is worth dividing among threads."""

from __future__ import annotations

from collections.abc import Iterable

from pullback.te.graph import body_expr
from pullback.te.tensor import Tensor, TensorLoad
from pullback.tir.expr import Binary, BufferLoad, Call, PrimExpr
from pullback.tir.figures import Figures
from pullback.tir.visitor import walk

FORK_JOIN = Figures.fork_join_ns
NANOSECONDS_PER_FMA = 1 / 50  # of vectors of 32 bytes, which are the common ones
TRANSCENDENTAL = 0.5
_SIMPLE = 0.03
_GATHERED = 1.0  # one element of a line of its own, in the second cache or further
_CHEAP_CALLS = ("abs", "sqrt", "floor", "ceil", "trunc", "round", "not", "fma", "isnan", "isinf", "isfinite",
                "multiply_no_nan", "xdivy")  # fmt: skip


def element_cost(stages: Iterable[Tensor]) -> float:
    """Nanoseconds for one element of each stage, vectorized."""
    return sum(expression_cost(body_expr(stage)) for stage in stages)


def expression_cost(expr: PrimExpr) -> float:
    """Nanoseconds for one lane of an expression, its loads and its store; what occurs twice is computed once."""
    total = _SIMPLE  # the store
    for node in dict.fromkeys(walk(expr)):
        if isinstance(node, Call):
            total += _SIMPLE if node.name in _CHEAP_CALLS else TRANSCENDENTAL
        elif isinstance(node, Binary):
            total += _SIMPLE
        elif isinstance(node, (BufferLoad, TensorLoad)):
            total += _GATHERED if _is_gather(node) else _SIMPLE
    return total


def _is_gather(load: BufferLoad | TensorLoad) -> bool:
    """Whether the element's place is read from memory."""
    return any(isinstance(n, (BufferLoad, TensorLoad)) for i in load.indices for n in walk(i))


def is_costly(stage: Tensor) -> bool:
    """Whether computing an element twice is worse than writing and reading it."""
    return calls_function(body_expr(stage))


def calls_function(expr: PrimExpr) -> bool:
    """Whether an expression has calls that are many instructions."""
    return any(isinstance(n, Call) and n.name not in _CHEAP_CALLS for n in walk(expr))


def worth_threads(nanoseconds: float) -> bool:
    """Whether work of this size gains from the pool."""
    return nanoseconds > 2 * FORK_JOIN
