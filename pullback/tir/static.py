"""Shapes and numbers that are known when the compiler runs, as what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from pullback.ir.errors import InternalError
from pullback.tir.expr import IntImm, PrimExpr


def is_static(shape: Sequence[PrimExpr | int]) -> TypeGuard[tuple[int, ...]]:
    """Whether all sizes of a shape are numbers."""
    return all(isinstance(size, int) for size in shape)


def static(shape: Sequence[PrimExpr | int]) -> tuple[int, ...]:
    """A shape all of whose sizes are numbers, as what it is."""
    if not is_static(shape):
        raise InternalError(f"the sizes of {shape} are not all known")
    return shape


def number(expr: PrimExpr | int) -> int:
    """What a constant of whole numbers is."""
    if isinstance(expr, int):
        return expr
    if not isinstance(expr, IntImm):
        raise InternalError(f"{expr} is no constant")
    return expr.value
