"""Packing: whether a register tile reads a factor where it lies, or a copy in contiguous lines.

Packing pays where what a tile reads lies so far apart that caches and prefetchers lose it, and enough reads it again.
"""

from __future__ import annotations

import math

from pullback.schedule.contraction.plan.blocking import Packing, Rows
from pullback.schedule.contraction.plan.one_pass import is_read_once
from pullback.schedule.contraction.problem.memory import elements
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.contraction.problem.widen import pays_to_widen
from pullback.tir import Var
from pullback.tir.caches import LINE, NEAR
from pullback.tir.expr import nbytes
from pullback.tir.pairs import DTYPE

_FEW_ROWS = 24  # that read the same columns: more make up for packing where lines compete for few sets of a cache


def roles(problem: Problem, column: Var) -> tuple[Factor, Factor]:
    """The factor of rows and that of columns."""
    first, second = problem.factors
    if column in first.axes and column in second.axes:
        smaller = math.prod(first.source.shape) < math.prod(second.source.shape)
        return (second, first) if smaller else (first, second)
    return (second, first) if column in first.axes else (first, second)


def plain_packing(factor: Factor, column: Var) -> Packing:
    """How a factor is read where no copy is needed for speed alone."""
    if column not in factor.axes:
        if factor.dtype == DTYPE and not factor.is_input and not factor.is_window:
            return Packing.TRANSPOSED  # pairs are made once
        return Packing.DIRECT if factor.is_input else Packing.REGION
    if factor.is_input and factor.strides[column] == 1:
        return Packing.DIRECT
    return Packing.REGION if factor.is_window else Packing.PANELS


def packing_of_columns(problem: Problem, b: Factor, column: Var) -> Packing:
    """How the factor with the vector axis is read."""
    plain = plain_packing(b, column)
    stays = plain is not Packing.DIRECT or b.is_window or is_read_once(problem, b, column)
    return plain if stays or not (pays_to_widen(problem, b) or _is_apart(problem, b)) else Packing.PANELS


def packing_of_rows(problem: Problem, a: Factor, rows: Rows, plain: Packing) -> Packing:
    """How the other factor is read, of which a tile has these rows. ``plain``: without a copy for speed."""
    is_one = plain is Packing.DIRECT and len(rows) == 1  # axis, which panels take
    if _is_scattered(problem, a, rows):  # transposed, tiles would read a part of each line, and no run of lines
        return Packing.PANELS if is_one else Packing.TRANSPOSED  # (21 convolutions: panels 0.96 of that, up to 0.84)
    return Packing.PANELS if is_one and _is_apart(problem, a) else plain


def _is_apart(problem: Problem, factor: Factor) -> bool:
    """Whether the lines of a matrix that a register tile reads in place are so far apart that panels pay: they compete
    for a few sets of L2, as lines powers of two apart do (1024 x 1024: 42 GFLOP/s, in panels 70), or each is in another
    page of many (1000 x 1000, transposed: 77, in panels 130)."""
    if factor.is_window or not factor.is_input:
        return False
    figures, terms, size = problem.figures, _terms(problem, factor), nbytes(factor.source.dtype)
    apart, count = _apart(terms, factor), elements(problem, factor)
    if math.prod(problem.extents[k] for k in terms) > figures.l2_lines(apart):
        return problem.work >= _FEW_ROWS * count
    most = min(figures.panels_size, problem.group.machine.second_bytes)
    is_large = apart >= figures.panels_apart and count * size > most
    return is_large and problem.work >= figures.panels_readers * count


def _terms(problem: Problem, factor: Factor) -> list[Var]:
    return [k for k in problem.reduced if k in factor.axes]


def _apart(terms: list[Var], factor: Factor) -> int:
    """Bytes from term to term."""
    return min((abs(factor.strides[k]) for k in terms), default=0) * nbytes(factor.source.dtype)


def _is_scattered(problem: Problem, a: Factor, rows: Rows) -> bool:
    """Whether each term of each row is in a line of its own, and so many lines come before the first is read again that
    they leave L1: so are the weights of a convolution whose vector axis is one of the image."""
    term = next((k for k in reversed(problem.reduced) if k in a.axes), None)
    own = [(v, count) for v, count in rows if v in a.axes]
    if term is None or not own or not a.is_input or a.is_window:
        return False
    step = min(a.strides[term], a.strides[own[-1][0]])
    between = math.prod(count for _, count in own) * problem.extents[term]
    is_near = between * min(step * nbytes(a.source.dtype), LINE) <= NEAR
    return step > 1 and not is_near and problem.work >= problem.figures.gather * elements(problem, a)
