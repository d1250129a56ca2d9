"""Index arithmetic that depends on one axis alone: its values at all places of the axis, as numbers.

They answer what no algebra does in general: where ⌊(3·i + 2) / 7⌋ changes, and whether it is ever more than 5.
"""

from __future__ import annotations

import numpy as np

from pullback.tir.expr import COMPARISONS, Binary, IntImm, PrimExpr, Var

_LONGEST = 1 << 16  # an axis that is looked at
_MEANING = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide, "floormod": np.mod,
    "min": np.minimum, "max": np.maximum, "and": np.logical_and, "or": np.logical_or,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


class Along:
    """Expressions at the places 0 … extent - 1 of an axis; each is evaluated once while this lives."""

    def __init__(self, axis: Var, extent: int) -> None:
        self.axis = axis
        self.places = np.arange(extent) if extent <= _LONGEST else None
        self._known: dict[int, tuple[PrimExpr, np.ndarray | None]] = {}

    def values(self, expr: PrimExpr) -> np.ndarray | None:
        """The values of an index or a condition on indices, of shape (extent,) or (); None where it depends on
        something else, or the axis is too long to look at."""
        known = self._known.get(id(expr))
        if known is None:
            known = self._known[id(expr)] = expr, self._values(expr)  # keeps expr alive, so that its id stays its own
        return known[1]

    def _values(self, expr: PrimExpr) -> np.ndarray | None:
        if isinstance(expr, IntImm):
            return np.asarray(expr.value)
        if expr is self.axis:
            return self.places
        if not isinstance(expr, Binary) or expr.kind not in _MEANING or expr.a.dtype not in ("int64", "bool"):
            return None
        b = self.values(expr.b)
        a = self.values(expr.a) if b is not None else None
        if a is None or b is None or (expr.kind in ("floordiv", "floormod") and not np.all(b > 0)):
            return None
        return np.asarray(_MEANING[expr.kind](a, b))

    def range(self, expr: PrimExpr) -> tuple[int, int] | None:
        """The least and the largest value, where they are known."""
        values = self.values(expr)
        return None if values is None else (int(values.min()), int(values.max()))

    def steps(self, node: Binary) -> list[int] | None:
        """The places from which on a quotient or a comparison has another value than before, or a minimum or maximum
        is another side; None where that is not known."""
        if node.kind in ("min", "max"):
            a, b = self.values(node.a), self.values(node.b)
            if a is None or b is None:
                return None
            if not np.any(a < b):  # one side will do everywhere
                return []
            values: np.ndarray | None = np.asarray(a > b)
        else:
            values = self.values(node) if node.kind == "floordiv" or node.kind in COMPARISONS else None
        if values is None:
            return None
        return [] if values.ndim == 0 else (np.flatnonzero(np.diff(values)) + 1).tolist()
