"""Phases: a source that is zero except at every s-th place is summed only where it is not.

The gradient of a strided convolution reads its data dilated, with s - 1 zeros between neighbours:

    dx[y] = Σ_k d[y + K - 1 - k] · w[k],    d[u] = dy[(u + a) / s] where s divides u + a, else 0

For the results y = s·y' + r of one residue, s divides u + a for one residue of k alone. So each residue is a
contraction of its own, over that residue's k and over the places where d is not zero; where no k is left the sum is 0,
and so are those of all rows where no row of k is left.
In a dilated convolution k is multiplied by c. With g the greatest common divisor of c and s, the residues of k are then
those of s / g, and there is none where g does not divide the rest of u + a.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from pullback.schedule.affine import Affine, affine
from pullback.schedule.contraction.problem.problem import Factor, Problem, conjuncts
from pullback.te.graph import body_expr
from pullback.tir import Binary, IntImm, PrimExpr, Select, Var


@dataclass(frozen=True)
class Sieve:
    """Axis ``axis`` of a source is zero except where ``divisor`` divides the index plus ``shift``.

    ``moving``: the axis of the result in that index; ``tap``: that of the sum, if there is one.
    """

    axis: int
    divisor: int
    shift: int
    moving: Var
    tap: Var | None


def phases(problem: Problem) -> list[Problem]:
    """The contractions that a problem consists of; itself alone, mostly. One whose sum is empty has ``terms`` 0."""
    if any(f.windows is None for f in problem.factors):
        return [problem]
    for number, factor in enumerate(problem.factors):
        sieves = list(_sieves(problem, factor))
        if sieves:
            choices = itertools.product(*(range(s.divisor) for s in sieves))
            settled = dict.fromkeys(_settling(problem, number, sieves, residues) for residues in choices)
            parts = [_phase(problem, number, sieves[: len(residues)], residues) for residues in settled]
            return [part for part in parts if all(part.extents[v] for v in part.outputs)]
    return [problem]


def _settling(problem: Problem, number: int, sieves: list[Sieve], residues: tuple[int, ...]) -> tuple[int, ...]:
    """The first residues that leave no terms, whatever the others are: all their results are one part, whose zeros lie
    side by side; all residues where there are terms."""
    for count, (sieve, residue) in enumerate(zip(sieves, residues, strict=True), 1):
        if not _terms(problem, number, sieve, residue).number:
            return residues[:count]
    return residues


def _sieves(problem: Problem, factor: Factor) -> Iterator[Sieve]:
    if factor.is_input:
        return
    body = body_expr(factor.source)
    if not isinstance(body, Select):
        return
    sizes = {axis: int(size) for axis, size in zip(factor.source.axes, factor.source.shape, strict=True)}
    for condition in conjuncts(body.condition):
        found = _multiple(condition, sizes)
        if found is None:
            continue
        axis, divisor, shift = found
        d = factor.source.axes.index(axis)
        index = factor.window(d)
        moving = [v for v, c in index.terms.items() if v in problem.outputs and abs(c) == 1]
        taps = [v for v in index.terms if v in problem.reduced]
        if len(moving) == 1 and len(moving) + len(taps) == len(index.terms):
            yield Sieve(d, divisor, shift, moving[0], taps[0] if taps else None)


def _multiple(condition: PrimExpr, sizes: Mapping[Var, int]) -> tuple[Var, int, int] | None:
    """(axis, s, a) of a condition ``(axis + a) % s == 0``."""
    if not isinstance(condition, Binary) or condition.kind != "eq" or getattr(condition.b, "value", None) != 0:
        return None
    modulo = condition.a
    if not isinstance(modulo, Binary) or modulo.kind != "floormod" or not isinstance(modulo.b, IntImm):
        return None
    index = affine(modulo.a, sizes)
    if index is None or len(index.terms) != 1 or list(index.terms.values()) != [1]:
        return None
    return next(iter(index.terms)), modulo.b.value, index.const


class Terms(NamedTuple):
    """Which values of a tap meet what is not zero: ``first`` and each one ``every`` values later."""

    every: int
    first: int
    number: int


def _terms(problem: Problem, number: int, sieve: Sieve, residue: int) -> Terms:
    """Those of the results with this residue."""
    window = problem.factors[number].window(sieve.axis)
    rest = window.terms[sieve.moving] * residue + window.const + sieve.shift
    step = window.terms[sieve.tap] if sieve.tap is not None else 0
    common = math.gcd(step, sieve.divisor)
    if sieve.tap is None:
        return Terms(1, 0, int(rest % common == 0))
    every = sieve.divisor // common
    inverse = pow(step // common, -1, every) if every > 1 else 0
    first = -(rest // common) * inverse % every
    count = max(0, -(-(problem.extents[sieve.tap] - first) // every)) if rest % common == 0 else 0
    return Terms(every, first, count)


def _phase(problem: Problem, number: int, sieves: list[Sieve], residues: tuple[int, ...]) -> Problem:
    """The part of a problem whose results have these residues."""
    splits: dict[Var, tuple[Var, int, int]] = {}  # axis: (new axis, divisor, residue)
    extents, terms = dict(problem.extents), problem.terms
    for sieve, residue in zip(sieves, residues, strict=True):
        found = _terms(problem, number, sieve, residue)
        splits[sieve.moving] = new = Var(sieve.moving.name), sieve.divisor, residue
        extents[new[0]] = max(0, -(-(extents.pop(sieve.moving) - residue) // sieve.divisor))
        if sieve.tap is not None:
            splits[sieve.tap] = new = Var(sieve.tap.name), found.every, found.first
            del extents[sieve.tap]
            extents[new[0]] = max(1, found.number)
        if not found.number:
            terms = 0
    first, second = (
        _split_factor(f, splits, extents, sieves if n == number else []) for n, f in enumerate(problem.factors)
    )
    return replace(
        problem,
        factors=(first, second),
        outputs=tuple(splits.get(v, (v,))[0] for v in problem.outputs),
        reduced=tuple(splits.get(k, (k,))[0] for k in problem.reduced),
        extents=extents,
        place={axis: _split(affine(e, problem.extents), splits).expr() for axis, e in problem.place.items()},
        terms=terms,
    )


def _split(index: Affine | None, splits: Mapping[Var, tuple[Var, int, int]]) -> Affine:
    assert index is not None
    result = Affine({}, index.const)
    for v, c in index.terms.items():
        new, divisor, residue = splits.get(v, (v, 1, 0))
        result = result.plus(Affine({new: divisor}, residue), c)
    return result


def _split_factor(
    factor: Factor, splits: Mapping[Var, tuple[Var, int, int]], extents: Mapping[Var, int], sieves: list[Sieve]
) -> Factor:
    indices = [_split(index, splits) for index in factor.windows or ()]
    steps = [(1, 0)] * len(indices)
    for sieve in sieves:
        steps[sieve.axis] = sieve.divisor, indices[sieve.axis].const % sieve.divisor
    return Factor.of(factor.dtype, factor.source, indices, extents, steps, factor.is_view)
