"""Whether integers exist that satisfy linear inequalities: the elimination of Fourier and Motzkin.

    i ≥ 0, k - 1 - i ≥ 0, i - k ≥ 0          no: the sum of the last two is -1 ≥ 0

An unknown that one row bounds from below and another from above is eliminated by adding these, times factors that
cancel it (Schrijver, Theory of Linear and Integer Programming, 12.2). Rows are rounded to integers on the way, as all
unknowns are integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

Row = Mapping[tuple[str, ...], int]  # factors of the unknowns, and the constant under (); the sum is at least 0
CONSTANT = ()
_MOST_ROWS = 256


def can_hold(rows: Iterable[Row]) -> bool:
    """Whether the rows may hold at once: False only where they certainly do not."""
    system = _tidy(rows)
    while system is not None:
        unknowns = {u for row in system for u, _ in row if u != CONSTANT}
        if not unknowns:
            return True
        growth, unknown = min(((_growth(system, u), u) for u in unknowns), key=lambda pair: pair[0])
        if len(system) + growth > _MOST_ROWS:
            return True
        system = _tidy(_without(list(map(dict, system)), unknown))
    return False


def _growth(system: set[frozenset], unknown: tuple[str, ...]) -> int:
    signs = [factor > 0 for row in system for u, factor in row if u == unknown]
    above = sum(signs)
    below = len(signs) - above
    return above * below - above - below


def _without(rows: list[dict], unknown: tuple[str, ...]) -> Iterable[Row]:
    """What follows of the rows for the other unknowns."""
    yield from (row for row in rows if unknown not in row)
    for low in rows:
        for high in rows:
            a, b = low.get(unknown, 0), high.get(unknown, 0)
            if a > 0 > b:
                yield {u: low.get(u, 0) * -b + high.get(u, 0) * a for u in (low | high) if u != unknown}


def _tidy(rows: Iterable[Row]) -> set[frozenset] | None:
    """The rows in lowest terms, of those alike the strictest; None where one cannot hold."""
    strictest: dict[frozenset, int] = {}
    for row in rows:
        factors = {u: f for u, f in row.items() if f and u != CONSTANT}
        constant = row.get(CONSTANT, 0)
        if not factors:
            if constant < 0:
                return None
            continue
        common = math.gcd(*factors.values())
        left = frozenset((u, f // common) for u, f in factors.items())
        strictest[left] = min(constant // common, strictest.get(left, constant // common))
    return {left | {(CONSTANT, constant)} for left, constant in strictest.items()}
