"""Python's operators on graph values: each builds a call of the op that it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from pullback.ir.errors import UserError
from pullback.ir.node import current_span
from pullback.ir.op import Op
from pullback.relax.struct_info import StructInfo, TensorStructInfo

if TYPE_CHECKING:
    from pullback.relax.expr import Call

T = TypeVar("T")

_UFUNCS = {  # NumPy's functions behind its operators
    "add": "add", "subtract": "subtract", "multiply": "multiply", "divide": "divide", "true_divide": "divide",
    "floor_divide": "floor_divide", "remainder": "mod", "power": "power", "matmul": "matmul", "equal": "equal",
    "not_equal": "not_equal", "less": "less", "less_equal": "less_equal", "greater": "greater",
    "greater_equal": "greater_equal", "left_shift": "left_shift", "right_shift": "right_shift",
    "bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor",
}  # fmt: skip


def _foreign_call(library: str, name: str) -> UserError:
    """The error of a function of another library that is called with a graph value."""
    return UserError(
        f"{name} of {library} computes with arrays, and a graph value is none at compile time",
        hint=f"ops do: x.{name}(), nn.functional.{name}(x) or R.{name}(x), where there is one",
        span=current_span(),
    )


def _infix(name: str, swapped: bool = False) -> Any:
    def method(self: Operators, other: Any) -> Call:
        return Op.get(name)(other, self) if swapped else Op.get(name)(self, other)

    return method


def _equal(self: Operators, other: Any) -> Any:
    """``x == y`` of tensors compares their elements, as in NumPy and PyTorch. ``x == x`` is True, which weak
    dictionaries need, and so is it of what is no tensor: the question is then whether the two are one object."""
    return Op.get("equal")(self, other) if other is not self and _comparable(self, other) else NotImplemented


def _not_equal(self: Operators, other: Any) -> Any:
    """``x != y`` of tensors compares their elements; ``x != x`` finds NaN."""
    return Op.get("not_equal")(self, other) if _comparable(self, other) else NotImplemented


def _comparable(x: Operators, y: Any) -> bool:
    if not isinstance(x.struct_info, TensorStructInfo):
        return False
    if isinstance(y, Operators):
        return isinstance(y.struct_info, TensorStructInfo)
    return isinstance(y, (bool, int, float, np.ndarray, np.generic))


class Operators:
    """A base of graph expressions. NumPy and PyTorch ask it, too, when one of theirs meets an expression."""

    if TYPE_CHECKING:

        @property
        def struct_info(self) -> StructInfo: ...

        @property
        def dtype(self) -> str: ...

    __add__, __radd__ = _infix("add"), _infix("add", True)
    __sub__, __rsub__ = _infix("subtract"), _infix("subtract", True)
    __mul__, __rmul__ = _infix("multiply"), _infix("multiply", True)
    __truediv__, __rtruediv__ = _infix("divide"), _infix("divide", True)
    __floordiv__, __rfloordiv__ = _infix("floor_divide"), _infix("floor_divide", True)
    __mod__, __rmod__ = _infix("mod"), _infix("mod", True)
    __pow__, __rpow__ = _infix("power"), _infix("power", True)
    __matmul__, __rmatmul__ = _infix("matmul"), _infix("matmul", True)
    __lt__, __le__, __gt__, __ge__ = _infix("less"), _infix("less_equal"), _infix("greater"), _infix("greater_equal")
    __eq__, __ne__ = _equal, _not_equal
    __hash__ = object.__hash__  # by identity, as Python wants it beside an __eq__ of one's own
    __lshift__, __rshift__ = _infix("left_shift"), _infix("right_shift")
    __and__, __or__, __xor__ = _infix("logical_and"), _infix("logical_or"), _infix("logical_xor")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Call:
        """``ndarray + expr`` is a call of the op; other functions of NumPy are refused, with what to write."""
        if method == "__call__" and ufunc.__name__ in _UFUNCS and not options:
            return Op.get(_UFUNCS[ufunc.__name__])(*inputs)
        raise _foreign_call("NumPy", ufunc.__name__)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise _foreign_call("NumPy", function.__name__)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _foreign_call("PyTorch", getattr(function, "__name__", str(function)))

    def __neg__(self) -> Call:
        return Op.get("negative")(self)

    def __pos__(self: T) -> T:
        return self

    def __invert__(self) -> Call:
        return Op.get("logical_not" if self.dtype == "bool" else "bitwise_not")(self)

    def __abs__(self) -> Call:
        return Op.get("abs")(self)

    def __round__(self) -> Call:
        return Op.get("round")(self)
