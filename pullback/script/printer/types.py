"""Struct infos as script: ``R.Tensor((n, 784), "float32")``."""

from __future__ import annotations

from pullback.relax.struct_info import (
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from pullback.script.printer.scalars import ScalarPrinter
from pullback.tir.expr import PrimExpr


def info_text(info: StructInfo, scalars: ScalarPrinter, quote: bool = False) -> str:
    """The type as script; ``quote`` writes symbolic sizes as strings, as signatures need."""

    def size(value: int | PrimExpr) -> str:
        text = scalars.size(value)
        return quoted(text) if quote and not isinstance(value, int) else text

    def inner(value: StructInfo) -> str:
        return info_text(value, scalars, quote)

    if isinstance(info, TensorStructInfo):
        if info.shape is not None:
            return f'R.Tensor({sequence([size(s) for s in info.shape])}, "{info.dtype}")'
        rank = "" if info.unknown_ndim is None else f", ndim={info.unknown_ndim}"
        return f'R.Tensor(dtype="{info.dtype}"{rank})'
    if isinstance(info, TupleStructInfo):
        return f"R.Tuple({', '.join(map(inner, info.fields))})"
    if isinstance(info, ShapeStructInfo):
        return f"R.Shape([{', '.join(size(s) for s in info.values)}])"
    if isinstance(info, FuncStructInfo):
        return f"R.Callable({sequence([inner(p) for p in info.params])}, {inner(info.ret)})"
    return f'R.Prim("{info.dtype}")' if isinstance(info, PrimStructInfo) else "R.Object"


def quoted(text: str) -> str:
    """A string literal, in double quotes where that needs no escapes."""
    literal = repr(text)
    return literal if '"' in text or literal[1:-1] != text else f'"{text}"'


def sequence(parts: list[str]) -> str:
    """A tuple."""
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
