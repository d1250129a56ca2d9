"""What an exported method takes: a mapping from the names of methods to one from the names of arguments to these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from pullback.tir.expr import PrimExpr
from pullback.tir.expr import Var as Size


class Tensor:
    """A tensor of a shape, whose sizes are ints or names of symbolic sizes, and a dtype.

    >>> spec.Tensor([1, "length", 64], "float32")
    """

    def __init__(self, shape: Sequence[int | str | PrimExpr], dtype: str) -> None:
        if not isinstance(shape, (list, tuple)):
            raise ArgumentError(f"the shape of a spec must be a list, got {shape!r}", hint='such as [1, "n", 64]')
        self.shape, self.dtype = list(shape), dtype

    def __repr__(self) -> str:
        return f"Tensor([{', '.join(map(str, self.shape))}], '{self.dtype}')"


class Int:
    """An integer argument. There are none here: sizes come from the shapes of tensors."""

    def __repr__(self) -> str:
        return "int"


class Tuple:
    """A tuple or a list of arguments. A tuple or a list of specs is one, too."""

    def __init__(self, name: str, elements: Sequence[Any]) -> None:
        self.name, self.elements = name, elements

    def __repr__(self) -> str:
        return repr(self.elements)


def info_of(given: Any, name: str, sizes: dict[str, Size]) -> StructInfo:
    """The type of an argument. Equal names of sizes are one size; ``sizes`` keeps them."""
    if isinstance(given, StructInfo):
        return given
    if isinstance(given, Tensor):
        shape = [sizes.setdefault(s, Size(s, "int64")) if isinstance(s, str) else s for s in given.shape]
        return TensorStructInfo(tuple(shape), given.dtype)
    if isinstance(given, Tuple):
        given = given.elements
    if isinstance(given, (tuple, list)):
        return TupleStructInfo(tuple(info_of(g, f"{name}[{k}]", sizes) for k, g in enumerate(given)))
    if isinstance(given, Int) or given in (Int, int, "int"):
        raise UserError(
            f"argument {name} is an integer, and functions take tensors only",
            hint='a size is that of a tensor: spec.Tensor(["n", 64], "float32"); another number is a'
            ' spec.Tensor([], "int64")',
        )
    raise ArgumentError(
        f"the spec of argument {name} must be a spec.Tensor, got {given!r}",
        hint='such as {"forward": {"x": spec.Tensor([1, 784], "float32")}}',
    )
