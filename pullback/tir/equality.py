"""Expressions that surely have the same value: numbered, so that equal ones get equal numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.tir.expr import BufferLoad, FloatImm, IntImm, PrimExpr, Var
from pullback.tir.visitor import children


class Equality:
    """``equal(a) == equal(b)`` when a and b are written the same, of the same variables and buffers.

    Loads count as equal whenever their places are: that nothing is written in between is the caller's knowledge.
    Constants are compared as numbers of their dtype.
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._known: dict[int, tuple[PrimExpr, int]] = {}  # keeps the nodes alive, so that their ids stay their own

    def __call__(self, expr: PrimExpr) -> int:
        known = self._known.get(id(expr))
        if known is None:
            number = self._numbers.setdefault(self._key(expr), len(self._numbers))
            known = self._known[id(expr)] = (expr, number)
        return known[1]

    def _key(self, expr: PrimExpr) -> Any:
        if isinstance(expr, Var):
            return expr
        if isinstance(expr, FloatImm):
            with np.errstate(over="ignore"):
                value = np.asarray(expr.value, "float32" if expr.dtype == "float32" else "float64")
            return "const", expr.dtype, value.tobytes()
        if isinstance(expr, IntImm):
            return "const", expr.dtype, expr.value
        own = (expr.buffer,) if isinstance(expr, BufferLoad) else (getattr(expr, "kind", ""), getattr(expr, "name", ""))
        return type(expr), expr.dtype, *own, *(self(c) for c in children(expr))
