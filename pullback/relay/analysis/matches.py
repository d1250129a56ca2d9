"""Which values the clauses of a match do not cover."""

from __future__ import annotations

import itertools
from enum import Enum, auto
from typing import Any

from pullback.ir.errors import NameNotFound
from pullback.relay.adt import Match, Pattern, PatternConstructor, PatternTuple, PatternVar, PatternWildcard


class _Fit(Enum):
    MATCH = auto()  # the clause takes every value of the candidate
    CLASH = auto()  # it takes none
    OPEN = auto()  # that depends on what the candidate leaves open


def _fit(pattern: Pattern, candidate: Pattern) -> _Fit:
    if isinstance(pattern, (PatternWildcard, PatternVar)):
        return _Fit.MATCH
    if isinstance(candidate, PatternWildcard):
        return _Fit.OPEN
    assert isinstance(pattern, (PatternConstructor, PatternTuple))
    assert isinstance(candidate, (PatternConstructor, PatternTuple))
    if _head(pattern) != _head(candidate):
        return _Fit.CLASH
    inner = [_fit(p, c) for p, c in zip(pattern.patterns, candidate.patterns, strict=True)]
    return next((fit for fit in (_Fit.CLASH, _Fit.OPEN) if fit in inner), _Fit.MATCH)


def _head(pattern: PatternConstructor | PatternTuple) -> tuple[Any, int]:
    """What made the values that the pattern is for, and of how many parts."""
    return getattr(pattern, "constructor", None), len(pattern.patterns)


def _expanded(candidate: Pattern, pattern: Pattern, module: Any) -> list[Pattern]:
    """The candidates that together are ``candidate``, as much more special as ``pattern`` asks for."""
    if isinstance(pattern, (PatternWildcard, PatternVar)):
        return [candidate]
    assert isinstance(pattern, (PatternConstructor, PatternTuple))
    if isinstance(candidate, PatternWildcard):
        if isinstance(pattern, PatternTuple):
            return [PatternTuple(_wildcards(len(pattern.patterns)))]
        constructors = _definition(pattern, module).constructors
        return [PatternConstructor(c, _wildcards(len(c.inputs))) for c in constructors]
    assert isinstance(candidate, (PatternConstructor, PatternTuple))
    fields = [_expanded(c, p, module) for c, p in zip(candidate.patterns, pattern.patterns, strict=True)]
    choices = itertools.product(*fields)
    if isinstance(candidate, PatternTuple):
        return [PatternTuple(choice) for choice in choices]
    return [PatternConstructor(candidate.constructor, choice) for choice in choices]


def _wildcards(count: int) -> tuple[Pattern, ...]:
    return tuple(PatternWildcard() for _ in range(count))


def _definition(pattern: PatternConstructor, module: Any) -> Any:
    name = pattern.constructor.belong_to
    definitions = {} if module is None else module.type_definitions
    if name not in definitions:
        hint = "unmatched_cases(match, module) takes the module that defines it"
        message = f"{name.name}, the type of {pattern.constructor.name}, is not defined"
        raise NameNotFound(message, span=pattern.span, hint=hint)
    return definitions[name]


def unmatched_cases(match: Match, mod: Any = None) -> list[Pattern]:
    """Patterns that together cover the values which no clause of the match does: an empty list for a complete one.

    ``mod`` defines the data types. Raises NameNotFound where it does not.
    """
    missing: list[Pattern] = []
    pending: list[Pattern] = [PatternWildcard()]
    while pending:
        candidate = pending.pop()
        for clause in match.clauses:
            fit = _fit(clause.lhs, candidate)
            if fit is _Fit.MATCH:
                break
            if fit is _Fit.OPEN:
                pending.extend(reversed(_expanded(candidate, clause.lhs, mod)))
                break
        else:
            missing.append(candidate)
    return missing
