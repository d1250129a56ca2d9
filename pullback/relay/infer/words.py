"""Expressions in messages: one short line each. Types are written by ``str``."""

from __future__ import annotations

from typing import Any

from pullback.ir.op import Op
from pullback.relay.adt import Constructor, Match
from pullback.relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from pullback.relay.ty import TensorType

_DEEPEST = 2  # levels of an expression that are written out
_LONGEST = 6  # items of a list


def _listed(items: tuple[Any, ...], text: Any) -> str:
    return ", ".join([text(i) for i in items[:_LONGEST]] + ["…"] * (len(items) > _LONGEST))


def expr_text(expr: Any, depth: int = _DEEPEST) -> str:
    """The expression in one line, without what is deep inside."""
    if isinstance(expr, Var):
        return f"%{expr.name}"
    if isinstance(expr, GlobalVar):
        return f"@{expr.name}"
    if isinstance(expr, (Constructor, Op)):
        return expr.name
    if isinstance(expr, Constant):
        return (
            f"{expr.data.numpy()!s}"
            if not expr.data.shape
            else f"const({TensorType(expr.data.shape, expr.data.dtype)})"
        )
    if isinstance(expr, TupleGetItem):
        return f"{expr_text(expr.tuple_value, depth)}.{expr.index}"
    if not depth:
        return "…"
    return _compound(expr, lambda inner: expr_text(inner, depth - 1))


def _compound(expr: Any, text: Any) -> str:
    if isinstance(expr, Call):
        return f"{text(expr.op)}({_listed(expr.args, text)})"
    if isinstance(expr, Tuple):
        return f"({_listed(expr.fields, text)}{',' * (len(expr.fields) == 1)})"
    if isinstance(expr, Let):
        return f"let %{expr.variable.name} = {text(expr.value)}; …"
    if isinstance(expr, If):
        return f"if ({text(expr.cond)}) {{…}} else {{…}}"
    if isinstance(expr, Function):
        return f"fn ({_listed(expr.params, text)}) {{…}}"
    if isinstance(expr, Match):
        return f"match ({text(expr.data)}) {{…}}"
    if isinstance(expr, RefCreate):
        return f"ref({text(expr.value)})"
    if isinstance(expr, RefRead):
        return f"ref_read({text(expr.ref)})"
    if isinstance(expr, RefWrite):
        return f"ref_write({text(expr.ref)}, {text(expr.value)})"
    return type(expr).__name__
