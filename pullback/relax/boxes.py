"""Boxes: values that are kept while a function runs, as many as there will be.

    h = R.box([a, b, g])                                        copies tensors, handles among them, to new memory
    a, b, g = R.unbox(h, (R.Tensor(…), R.Tensor(…), R.Tensor((), "handle")))        what was put there
    h = R.null(())                                              no box

A *handle* is a scalar tensor of the dtype ``handle`` that says where a box is. It may be carried by a loop, stacked,
chosen by a branch and put into other boxes, so a list of boxes is as long as a loop makes it: what a loop of unknown
length saves for its gradient (``transform/loop_gradients.py``). A null handle unboxes to zeros and null handles.

These ops are the compiler's: users have no use for them. No function takes a handle or gives one to its caller, since
boxes live as long as the call that makes them, or less: what a loop's step boxes and does not hand on, till its end.

The adjoint of a handle is a handle, of a box with the adjoints of what moves in the other one, and so is its tangent; a
null handle is zero. A box is unboxed once, or its adjoints would have to be added up, which nothing can.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeGuard

from pullback.ir.errors import InternalError, UserError
from pullback.ir.op import define
from pullback.relax.expr import Call, Expr, TupleGetItem
from pullback.relax.op_calls import OpCall
from pullback.relax.struct_info import (
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    fields_of,
    format_info,
    has_adjoint,
)
from pullback.tir.expr import HANDLE

HANDLE_INFO = TensorStructInfo((), HANDLE)


def is_handle(info: StructInfo) -> bool:
    """Whether values of the type are handles."""
    return isinstance(info, TensorStructInfo) and info.dtype == HANDLE


def _infer_box(*values: StructInfo) -> StructInfo:
    if not values or not all(isinstance(v, TensorStructInfo) for v in values):
        raise UserError(f"box: its fields are tensors, got {', '.join(map(format_info, values)) or 'none'}")
    return HANDLE_INFO


def _infer_unbox(handle: StructInfo) -> StructInfo:
    raise InternalError("unbox: nobody says what is in the box")  # relax.boxes.unbox does


def _infer_null(*, shape: Sequence[Any]) -> StructInfo:
    return TensorStructInfo(shape, HANDLE)


def _box_gradient(dy: Expr, y: Expr, *values: Expr) -> list[Expr | None]:
    moving = [v.struct_info for v in values if has_adjoint(v.struct_info)]
    if not moving:
        return [None] * len(values)
    whole = unbox(dy, moving)
    parts = iter([TupleGetItem(whole, k) for k in range(len(moving))])
    return [next(parts) if has_adjoint(v.struct_info) else None for v in values]


def _unbox_gradient(dy: Sequence[Expr], y: Expr, handle: Expr) -> list[Expr | None]:
    moving = [d for d, info in zip(dy, fields_of(y.struct_info), strict=True) if has_adjoint(info)]
    return [box(moving) if moving else None]


def _null_gradient(dy: Expr, y: Expr, *, shape: Sequence[Any]) -> list[Expr | None]:
    return []


BOX = define(
    "box", "values*", infer=_infer_box, gradient=_box_gradient, zeros="makes",
    family="control", doc="A handle of new memory with copies of tensors.",
)  # fmt: skip
UNBOX = define(
    "unbox", "handle", infer=_infer_unbox, gradient=_unbox_gradient, zeros="makes",
    family="control", doc="The tensors in the memory of a handle: zeros if that is null.",
)  # fmt: skip
NULL = define(
    "null", "| shape", infer=_infer_null, gradient=_null_gradient,
    family="control", doc="Null handles.",
)  # fmt: skip


def box(values: Sequence[Expr]) -> Call:
    """A handle of a box of these tensors."""
    return Call(BOX, tuple(values))


def unbox(handle: Expr, infos: Sequence[StructInfo]) -> Call:
    """The tuple of the tensors in a box, of these types."""
    if not is_handle(handle.struct_info) or handle.shape != ():
        message = f"unbox: takes one handle, got {format_info(handle.struct_info)}"
        raise UserError(message, hint="R.box([x, …]) gives one")
    if not isinstance(infos, (tuple, list)) or not all(isinstance(i, TensorStructInfo) for i in infos):
        message = f"unbox: what is in a box is said by the types of its tensors, got {infos!r:.80}"
        raise UserError(message, hint='R.unbox(h, (R.Tensor((3,), "float32"), …))')
    return Call(UNBOX, (handle,), sinfo_args=(TupleStructInfo(tuple(infos)),))


def null(shape: Sequence[Any] = ()) -> Call:
    """Null handles."""
    return Call(NULL, (), {"shape": tuple(shape)})


def kind_of(infos: Sequence[StructInfo]) -> int:
    """A number that tells a box of tensors of these types from others: what is unboxed must have been boxed."""
    digest = hashlib.sha256(", ".join(map(format_info, infos)).encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def is_boxing(expr: Any) -> TypeGuard[OpCall]:
    """Whether it is a call of ``box``, ``unbox`` or ``null``."""
    return isinstance(expr, Call) and expr.op in (BOX, UNBOX, NULL)
