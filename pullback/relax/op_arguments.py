"""Calls of ops on what users write: ``R.add(x, 1.0)`` with tensors, numbers, arrays and attributes of any form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, UserError
from pullback.ir.op import Op
from pullback.relax.expr import Call, Expr, PrimValue, as_relax
from pullback.relax.struct_info import ShapeStructInfo, TensorStructInfo, format_info
from pullback.tir.expr import PrimExpr


def build(op: Op, tensors: Sequence[Any], attrs: dict[str, Any]) -> Call:
    """A call of an op on what the user wrote: Python numbers take the dtype of the tensors beside them."""
    dtypes = [t.struct_info.dtype for t in tensors if isinstance(getattr(t, "struct_info", None), TensorStructInfo)]
    dtypes += [t.dtype.name for t in tensors if isinstance(t, np.ndarray)]
    weak = dtypes[0] if dtypes else None
    args = []
    for name, tensor in zip(op.signature.tensors * max(1, len(tensors)), tensors, strict=False):
        if isinstance(tensor, float) and weak is not None and "float" not in weak:
            raise DTypeError(
                f"{op.short}: the Python number {tensor!r} does not fit the {weak} tensor beside it",
                hint=f"cast the tensor with R.astype, or write R.const({tensor!r}, dtype)",
            )
        expr = as_relax(tensor, weak)
        if not isinstance(expr.struct_info, TensorStructInfo):
            hint = "the items of a tuple are x[0], x[1], …; a shape becomes a tensor with R.shape_to_tensor"
            if isinstance(tensor, list):
                hint = "lists of numbers become a tensor with R.const(…)"
            if isinstance(tensor, PrimExpr):
                hint = "R works on tensors: T has the functions of the scalars in @T.prim_func"
            given = format_info(expr.struct_info)
            raise UserError(f"{op.short}: argument {name!r} must be a tensor, got {given}", hint=hint)
        args.append(expr)
    return Call(op, tuple(args), {k: _checked(op, k, _attr(op, k, v)) for k, v in attrs.items()})


_KINDS: dict[type, tuple[Any, str]] = {bool: (bool, "True or False"), float: ((int, float), "a number")}


def _checked(op: Op, name: str, value: Any) -> Any:
    """An attribute whose default is a bool or a float is of that kind; type rules look at the others."""
    kind, wanted = _KINDS.get(type(op.signature.attrs[name]), (object, ""))
    if not isinstance(value, kind):
        raise ArgumentError(
            f"{op.short}: {name} must be {wanted}, got {value!r}", hint="write it without quotes: a value of Python"
        )
    return value


def _attr(op: Op, name: str, value: Any) -> Any:
    """Attributes in canonical form: tuples for sequences, names for dtypes, sizes for shapes."""
    if (
        isinstance(value, Expr)
        and isinstance(value.struct_info, ShapeStructInfo)
        and value.struct_info.values is not None
    ):
        return value.struct_info.values  # also of a variable: a shape's type says which sizes it has
    if isinstance(value, PrimValue):
        return value.value
    if isinstance(value, (list, tuple)):
        return tuple(_attr(op, name, v) for v in value)
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    if isinstance(value, np.generic):
        return value.item()
    if name == "out_dtype" and isinstance(value, str) and value in ("", "void") and op.signature.attrs[name] is None:
        return None  # the reference's words for a dtype that is not given
    if value is None or isinstance(value, (bool, int, float, str, PrimExpr)):
        return value
    kind = "a tensor" if isinstance(value, Expr) else f"{value!r}"
    hint = f"it is known when the program is compiled; its arguments are ({op.signature})"
    raise ArgumentError(f"{op.short}: argument {name!r} cannot be {kind}", hint=hint)
