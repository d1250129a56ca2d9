"""PyTorch's type promotion: what the dtype of a result is, and operands made alike.

Tensors with axes decide first, then tensors of shape (), then Python's numbers; the others count only where they are of
a higher kind: bool, integer, float. (torch.result_type; PyTorch, Tensor Attributes, Type Promotion.)
"""

from __future__ import annotations

import sys
from functools import reduce
from typing import Any

import numpy as np

from pullback.relax import op
from pullback.relax.expr import Constant, Expr
from pullback.relax.frontend.torch.dtypes import name_of
from pullback.relax.struct_info import TensorStructInfo
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.expr import FLOATS, PrimExpr, is_float

__all__ = ["as_dtype", "floating", "promoted", "promoted_dtype", "rank", "result_dtype", "same", "tensor", "truth"]


def default_float() -> str:
    """The dtype of Python's floats: what torch.set_default_dtype said, float32 where PyTorch is not loaded."""
    torch = sys.modules.get("torch")
    return "float32" if torch is None else name_of(torch.get_default_dtype())


_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}


def kind_of(dtype: str) -> int:
    """0 of bool, 1 of integers, 2 of floats."""
    return 0 if dtype == "bool" else 2 if is_float(dtype) else 1


def promoted_dtype(a: str, b: str) -> str:
    """The dtype that holds both, as torch.promote_types."""
    if a == b or kind_of(b) < kind_of(a):
        return a
    if kind_of(a) < kind_of(b):
        return b
    if kind_of(a) == 2:
        return "float32" if {a, b} == {"float16", "bfloat16"} else max(a, b, key=FLOATS.index)
    (signed_a, size_a), (signed_b, size_b) = ((not d.startswith("u"), _size(d)) for d in (a, b))
    if signed_a == signed_b:
        return a if size_a > size_b else b
    signed, unsigned = (size_a, size_b) if signed_a else (size_b, size_a)
    return f"int{8 * min(max(signed, 2 * unsigned), 8)}"


def _size(dtype: str) -> int:
    return _BYTES[dtype.lstrip("uint")]


def rank(value: Any) -> int:
    """The number of axes of a tensor; 0 of a number."""
    info = getattr(value, "struct_info", None)
    return len(info.sizes) if isinstance(info, TensorStructInfo) else 0


def dtype_of(value: Any) -> str:
    """The dtype of a tensor, or the one that PyTorch gives a number."""
    if isinstance(value, (Expr, PrimExpr, np.ndarray)):
        return str(value.dtype)
    return "bool" if isinstance(value, bool) else default_float() if isinstance(value, float) else "int64"


def _combined(higher: str | None, lower: str | None) -> str | None:
    if higher is None or lower is None:
        return higher or lower
    if kind_of(higher) == 2 or kind_of(lower) <= kind_of(higher) != 0:
        return higher
    return promoted_dtype(higher, lower)


def result_dtype(*values: Any) -> str:
    """The dtype of an elementwise result of tensors and numbers, as torch.result_type."""
    groups: list[list[str]] = [[], [], []]
    for value in values:
        groups[2 if not isinstance(value, Expr) else 1 if rank(value) == 0 else 0].append(dtype_of(value))
    found = [reduce(promoted_dtype, group) if group else None for group in groups]
    dtype = _combined(found[0], _combined(found[1], found[2]))
    assert dtype is not None
    return dtype


def as_dtype(x: Any, dtype: str | None) -> Any:
    """A tensor in another dtype; None is its own."""
    return x if dtype is None or x.dtype == dtype else op.astype(x, dtype)


def tensor(value: Any, dtype: str | None = None) -> Any:
    """A tensor, number or symbolic size as a tensor of a dtype, by default its own."""
    if isinstance(value, Expr):
        return as_dtype(value, dtype)
    if isinstance(value, PrimExpr):
        return op.full((), value, dtype or value.dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # as PyTorch: 1e40 is an infinity in float32
        return Constant(np.asarray(value).astype(numpy_dtype(dtype or dtype_of(value))))


def promoted(*values: Any) -> tuple[Any, ...]:
    """The values as tensors of their common dtype."""
    dtype = result_dtype(*values)
    return tuple(tensor(v, dtype) for v in values)


def floating(*values: Any) -> Any:
    """The values as tensors of their common dtype, or of the default one where that is no float; one by itself."""
    dtype = result_dtype(*values)
    dtype = dtype if is_float(dtype) else default_float()
    found = tuple(tensor(v, dtype) for v in values)
    return found[0] if len(found) == 1 else found


def truth(x: Any) -> Any:
    """Whether elements are not 0."""
    return tensor(x, "bool")


def same(x: Any, *_: Any, **__: Any) -> Any:
    """What PyTorch tells from ``x`` by where it lies in memory, which is nothing here."""
    return x
