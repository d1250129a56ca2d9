"""Arithmetic of sizes: of nodes that compute with them, and of the expressions by which PyTorch writes them."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.tir.expr import PrimExpr, maximum, minimum
from pullback.tir.expr import Var as Size

__all__ = ["PYTHON", "SizeNames", "add_functions_of", "number"]


def _whole(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers, which sizes that are not known yet do not have."""

    def computed(*values: Any) -> Any:
        if any(isinstance(value, PrimExpr) for value in values):
            raise ArgumentError(
                f"{name} of a size that is not known cannot be converted",
                hint="from_torch(…, dynamic_shapes=…) says which sizes are not fixed; without this one it works",
            )
        return function(*values)

    return computed


def _ceil(value: Any) -> Any:
    return value if isinstance(value, PrimExpr) and value.dtype == "int64" else _whole("ceil", math.ceil)(value)


def _floor(value: Any) -> Any:
    return value if isinstance(value, PrimExpr) and value.dtype == "int64" else _whole("floor", math.floor)(value)


PYTHON: dict[Any, Callable[..., Any]] = {  # Python's functions, of sizes, and of several results one
    f: f
    for f in (
        operator.getitem, operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg,
        operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.and_, operator.or_,
    )
}  # fmt: skip
PYTHON |= {
    operator.truediv: _whole("a quotient", operator.truediv),
    operator.pow: _whole("a power", operator.pow),
    math.ceil: _ceil,
    math.floor: _floor,
    math.trunc: _floor,
    round: _whole("round", round),
    min: lambda a, b: min(a, b) if isinstance(a, int) and isinstance(b, int) else minimum(a, b),
    max: lambda a, b: max(a, b) if isinstance(a, int) and isinstance(b, int) else maximum(a, b),
}


def add_functions_of(torch: Any) -> None:
    """PyTorch's own functions of sizes, once it is imported."""
    PYTHON.update(
        {
            torch.sym_max: PYTHON[max],
            torch.sym_min: PYTHON[min],
            torch.sym_int: _floor,
            torch.sym_float: lambda value: value if isinstance(value, PrimExpr) else float(value),
            torch.sym_not: operator.not_,
            torch.sym_sum: lambda values: functools.reduce(operator.add, values),
        }
    )


def number(size: Any) -> int | None:
    """A size of a tensor in PyTorch as a number, or None for one that is free."""
    if isinstance(size, int):
        return size
    found = size.node.maybe_as_int()
    return None if found is None else int(found)


class SizeNames:
    """The symbols of sizes, by those of PyTorch: the first axis of inputs is the batch ``n``, others are ``t``, ``t1``
    and so on, in the order in which they come. First axes that are of one size in the example are one batch."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._batches: dict[Any, Size] = {}  # by the size in the example

    def size(self, size: Any, axis: int) -> int | PrimExpr:
        """A size of a tensor's type in PyTorch."""
        known = number(size)
        if known is not None:
            return known
        expr, example = size.node.expr, size.node.hint
        if axis == 0 and expr.is_Symbol and example is not None:
            if str(expr) in self._known:
                return self._batches.setdefault(example, self._known[str(expr)])
            if example in self._batches:
                self._known[str(expr)] = self._batches[example]
            return self._batches.setdefault(example, self._symbol(str(expr), axis))
        return self.of(expr, axis)

    @staticmethod
    def bound(shapes: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> SizeNames:
        """The symbols where inputs have certain sizes: pairs of a shape in PyTorch, and the one that is given."""
        found = SizeNames()
        for theirs, given in shapes:
            for size, own in zip(theirs, given, strict=False):
                if number(size) is None and size.node.expr.is_Symbol:
                    found._known.setdefault(str(size.node.expr), own)
        return found

    def known(self, size: Any, otherwise: Any) -> Any:
        """A size of a result, if all of its symbols are those of inputs."""
        found = number(size)
        if found is not None:
            return found
        if not all(str(symbol) in self._known for symbol in size.node.expr.free_symbols):
            return otherwise
        try:
            return self.of(size.node.expr)
        except ArgumentError:
            return otherwise

    def of(self, expr: Any, axis: int = 1) -> Any:
        """A size that PyTorch writes as an expression."""
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            return self._symbol(str(expr), axis)
        parts = [self.of(part, axis) for part in expr.args]
        kind = type(expr).__name__
        if kind in ("Add", "Mul"):
            return functools.reduce(operator.add if kind == "Add" else operator.mul, parts)
        if kind in ("FloorDiv", "CleanDiv"):
            return parts[0] // parts[1]
        if kind in ("Mod", "PythonMod"):
            return parts[0] % parts[1]
        if kind in ("Max", "Min"):
            return functools.reduce(PYTHON[max if kind == "Max" else min], parts)
        raise ArgumentError(f"a size that is {expr} cannot be converted", hint="dynamic_shapes says what is fixed")

    def _symbol(self, name: str, axis: int) -> Any:
        if name not in self._known:
            base = "n" if axis == 0 else "t"
            taken = {size.name for size in self._known.values()}
            free = base if base not in taken else next(f"{base}{k}" for k in range(1, 99) if f"{base}{k}" not in taken)
            self._known[name] = Size(free, "int64")
        return self._known[name]
