"""Values that are computed when a model is imported: of constants, and small."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Call, Constant, Expr, Function, PrimValue, ShapeExpr, Tuple, TupleGetItem
from pullback.relax.interpreter import evaluate
from pullback.relax.struct_info import TensorStructInfo
from pullback.tir.expr import PrimExpr

FOLD_LIMIT = 1 << 20  # elements of a constant that is computed when a model is imported
_RANDOM = ("relax.random.", "relax.dropout", "relax.nn.dropout")  # ops that are never computed at once


def operands(expr: Any) -> list[Any]:
    if isinstance(expr, Call):
        return list(expr.args)
    if isinstance(expr, Tuple):
        return list(expr.fields)
    return [expr.tuple_value] if isinstance(expr, TupleGetItem) else []


def is_foldable(value: Expr) -> bool:
    """Whether an expression is made of constants, and small enough to be computed at once."""
    info = value.struct_info
    if not isinstance(value, (Call, TupleGetItem)) or not isinstance(info, TensorStructInfo) or not info.is_static:
        return False
    if math.prod(info.shape or ()) > FOLD_LIMIT:
        return False
    waiting: list[Any] = [value]
    seen: set[Expr] = set()
    while waiting:
        expr = waiting.pop()
        if expr in seen:
            continue
        seen.add(expr)
        if isinstance(expr, Call):
            if not isinstance(expr.op, Op) or expr.op.numpy is None or expr.op.name.startswith(_RANDOM):
                return False
            if any(_is_symbolic(v) for v in expr.attrs.values()):
                return False
        elif isinstance(expr, ShapeExpr):
            if any(isinstance(s, PrimExpr) for s in expr.values):
                return False
        elif not isinstance(expr, (Constant, Tuple, TupleGetItem, PrimValue)):
            return False
        waiting += operands(expr)
    return True


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_is_symbolic, value))
    return isinstance(value, (PrimExpr, Function))


def folded(value: Expr) -> np.ndarray:
    builder = BlockBuilder()
    builder.begin()
    function = Function((), builder.finish(value))
    return np.asarray(evaluate(IRModule({"main": function}), "main", []))
