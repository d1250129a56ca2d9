"""Questions about calls that rooms below ``relax/op`` need to ask."""

from __future__ import annotations

from typing import Any

from pullback.ir.op import Op
from pullback.relax.expr import Call


def is_call_tir(expr: Any) -> bool:
    """Whether the expression calls a kernel of the loop IR."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == "relax.call_tir"


def is_op(expr: Any, name: str) -> bool:
    """Whether the expression is a call of the op ``relax.<name>``."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == f"relax.{name}"
