"""How far a loop runs at the most, where its extent depends on the loops around it: intervals."""

from __future__ import annotations

from collections.abc import Mapping

from pullback.tir.expr import Binary, IntImm, PrimExpr, Select, Var, as_expr

Interval = tuple[int, int]


def greatest(expr: PrimExpr, extents: Mapping[Var, PrimExpr]) -> int | None:
    """The greatest value of an expression over loops that begin at 0, the outermost first; None where not known."""
    intervals: dict[Var, Interval] = {}
    for var, extent in extents.items():
        bound = interval(as_expr(extent), intervals)
        if bound is not None:
            intervals[var] = (0, max(0, bound[1] - 1))
    sides = [as_expr(expr)]
    while any(len(_sides(side)) > 1 for side in sides):  # one side that is known is enough
        sides = [s for side in sides for s in _sides(side)]
    found = [bound[1] for side in sides if (bound := interval(side, intervals)) is not None]
    return max(0, min(found)) if found else None


def _sides(expr: PrimExpr) -> tuple[PrimExpr, ...]:
    """The sides of a minimum, or the expression."""
    return (expr.a, expr.b) if isinstance(expr, Binary) and expr.kind == "min" else (expr,)


def interval(expr: PrimExpr, known: Mapping[Var, Interval]) -> Interval | None:
    """The least and the greatest value."""
    if isinstance(expr, IntImm):
        return expr.value, expr.value
    if isinstance(expr, Var):
        return known.get(expr)
    if not isinstance(expr, (Binary, Select)):
        return None
    a, b = interval(expr.a, known), interval(expr.b, known)
    if a is None or b is None:
        return None
    if isinstance(expr, Select):
        return min(a[0], b[0]), max(a[1], b[1])
    return _combined(expr.kind, a, b)


def _combined(kind: str, a: Interval, b: Interval) -> Interval | None:
    if kind == "add":
        return a[0] + b[0], a[1] + b[1]
    if kind == "sub":
        return a[0] - b[1], a[1] - b[0]
    if kind == "mul":
        products = [x * y for x in a for y in b]
        return min(products), max(products)
    if kind in ("min", "max"):
        choose = min if kind == "min" else max
        return choose(a[0], b[0]), choose(a[1], b[1])
    if kind == "floordiv" and b[0] > 0:
        quotients = [x // y for x in a for y in b]
        return min(quotients), max(quotients)
    if kind == "floormod" and b[0] > 0:
        return (a[0], a[1]) if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)
    return None
