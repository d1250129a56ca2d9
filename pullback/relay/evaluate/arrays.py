"""Tensors as NumPy arrays, and operators on them: what the executor "debug" computes with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.relay.attrs import Attrs
from pullback.relay.evaluate.straight import evaluator
from pullback.relay.evaluate.values import what_it_is
from pullback.relay.expr import Constant
from pullback.relay.op.meaning import meaning, value
from pullback.relay.op.registry import Op
from pullback.relay.ty import TensorType, TupleType, Type
from pullback.runtime.dtype import dtype_name
from pullback.runtime.tensor import Tensor, tensor

Ready = Callable[[Sequence[Any]], Any]


def complete_attrs(op: Op, attrs: Attrs) -> Attrs:
    """The attributes of a call, with the operator's defaults for those that are not given.

    Raises CallError where one without a default lacks.
    """
    if all(name in attrs for name in op.signature.attrs) or not isinstance(op, Op):
        return attrs
    return op.make((), attrs).attrs


class NumPyArrays:
    """Tensors are NumPy arrays."""

    def constant(self, expr: Constant) -> np.ndarray:
        return np.asarray(expr.data)

    def taken(self, given: Any) -> np.ndarray:
        """A tensor that a caller passes; it is copied, as the program may keep it."""
        return np.array(given if isinstance(given, (Tensor, np.ndarray)) else tensor(given))

    def shown(self, array: np.ndarray) -> Tensor:
        """A tensor for a caller."""
        return tensor(array, copy=True)

    def truth(self, array: Any, span: Any) -> bool:
        """The truth of a condition."""
        return truth(array, span)

    def operator(self, op: Op, attrs: Attrs, span: Any) -> Ready:
        """A function of the operator's arguments; the meaning for arguments of the same types is found once."""
        return _Operator(op, complete_attrs(op, attrs), span)


def truth(array: Any, span: Any) -> bool:
    """The truth of a condition: of a tensor with one element."""
    if getattr(array, "size", 0) != 1:
        hint = "relay.where chooses by element; relay.all and relay.any make one bool of many"
        raise UserError(f"the condition of an if is {what_it_is(array)}, not one bool", span=span, hint=hint)
    return bool(array)


class _Operator:
    """A call's operator, with a ready function for each combination of argument types that it has met."""

    def __init__(self, op: Op, attrs: Attrs, span: Any) -> None:
        self.op, self.attrs, self.span = op, attrs, span
        self.ready: dict[Any, Ready] = {}

    def __call__(self, arguments: Sequence[Any]) -> Any:
        key = tuple([(a.shape, a.dtype) if type(a) is np.ndarray else self._kind(a) for a in arguments])
        ready = self.ready.get(key)
        try:
            if ready is None:
                ready = self.ready[key] = self._of([type_of_value(a) for a in arguments])
            return ready(arguments)
        except UserError as error:
            raise located(error, self.op, self.span) from None

    def _of(self, types: list[Type]) -> Ready:
        """A function of arguments of these types."""
        if self.op.lower is None:  # the meaning depends on values
            return partial(value, self.op, arg_types=types, attrs=self.attrs)
        return evaluator(meaning(self.op, types, self.attrs))

    def _kind(self, given: Any) -> Any:
        return kind(given, self.op.name, self.span)


def kind(given: Any, taker: str, span: Any) -> Any:
    """What code depends on of a tensor, or a tuple of such, that ``taker`` gets.

    Raises ArgumentError for anything else.
    """
    if isinstance(given, tuple):
        return tuple([kind(field, taker, span) for field in given])
    if hasattr(given, "dtype"):
        return given.shape, given.dtype
    raise ArgumentError(f"{taker} takes tensors, got {what_it_is(given)}", span=span)


def type_of_value(given: Any) -> Type:
    """relay's type of a tensor, or of a tuple of such."""
    if isinstance(given, tuple):
        return TupleType(tuple(type_of_value(field) for field in given))
    dtype = given.dtype
    return TensorType(given.shape, dtype if isinstance(dtype, str) else dtype_name(dtype))


def located(error: UserError, op: Op, span: Any) -> UserError:
    """The error, said of the operator and its place."""
    if error.span is not None and span is None:
        return error
    message = error.message if op.name in error.message else f"{op.name}: {error.message}"
    return type(error)(message, span=span or error.span, hint=error.hint)
