"""Shapes and scalars of the host among a function's results become constants, once symbolic sizes are bound.

return (y, R.shape([3, 4]))        →        return (y, R.const([3, 4], "int64"))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.relax.expr import Constant, Expr, Function, PrimValue, SeqExpr, ShapeExpr, Tuple
from pullback.relax.struct_info import PrimStructInfo
from pullback.runtime.dtype import numpy_dtype


def sizes_as_constants(function: Function) -> Function:
    """The function with arrays in place of shapes that it returns, and scalars in place of sizes and numbers."""
    result = _as_tensors(function.body.body)
    if result is function.body.body:
        return function
    body = SeqExpr(function.body.blocks, result, span=function.body.span)
    return Function(function.params, body, None, function.attrs, span=function.span)


def _as_tensors(expr: Expr) -> Expr:
    if isinstance(expr, Tuple):
        fields = tuple(map(_as_tensors, expr.fields))
        return expr if all(a is b for a, b in zip(fields, expr.fields, strict=True)) else Tuple(fields, span=expr.span)
    if isinstance(expr, ShapeExpr):
        return Constant(np.array([_number(size) for size in expr.values], np.int64), span=expr.span)
    if isinstance(expr, PrimValue) and isinstance(expr.struct_info, PrimStructInfo):
        return Constant(np.array(_number(expr.value), numpy_dtype(expr.struct_info.dtype)), span=expr.span)
    return expr


def _number(size: Any) -> Any:
    return getattr(size, "value", size)
