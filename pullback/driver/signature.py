"""What a compiled function takes and returns: arguments are checked here, before any memory is touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError
from pullback.relax.advice import shape_advice
from pullback.relax.boxes import is_handle
from pullback.relax.expr import Function
from pullback.relax.struct_info import (
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    flat_infos,
    format_info,
    format_shape,
    same_info,
    symbolic_vars,
)
from pullback.runtime.tensor import Tensor, tensor
from pullback.tir.expr import Var
from pullback.tir.polynomial import same
from pullback.tir.visitor import substitute


class Signature:
    """The parameters of a graph function, with names, and its result."""

    def __init__(self, name: str, function: Function) -> None:
        _refuse_handles(name, function)
        self.name = name
        self.params = [(p.name, p.struct_info) for p in function.params]
        self.result = function.ret_struct_info

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{n}: {format_info(i)}' for n, i in self.params)})"

    def flatten(self, args: Sequence[Any]) -> tuple[list[Tensor], dict[str, int]]:
        """The arguments as a flat list of tensors, and the symbolic sizes that they bind.

        Raises ArgumentError, ShapeError or DTypeError naming the argument, what was expected and what came.
        """
        if len(args) != len(self.params):
            raise ArgumentError(
                f"{self.name} takes {len(self.params)} arguments, got {len(args)}", hint=f"its signature is {self}"
            )
        flat: list[Tensor] = []
        sizes: dict[Var, int] = {}
        for (name, info), value in zip(self.params, args, strict=True):
            self._argument(name, info, value, flat, sizes)
        return flat, {v.name: s for v, s in sizes.items()}

    def _argument(self, name: str, info: StructInfo, value: Any, flat: list[Tensor], sizes: dict[Var, int]) -> None:
        if isinstance(info, TupleStructInfo):
            if not isinstance(value, (tuple, list)) or len(value) != len(info.fields):
                given = f"{len(value)} values" if isinstance(value, (tuple, list)) else type(value).__name__
                raise ArgumentError(
                    f"{self.name}: {name} must be a tuple of {len(info.fields)} values, got {given}",
                    hint="nest the arguments as the parameters are",
                )
            for k, (field, item) in enumerate(zip(info.fields, value, strict=True)):
                self._argument(f"{name}[{k}]", field, item, flat, sizes)
            return
        if not isinstance(info, TensorStructInfo):
            raise ArgumentError(f"{self.name}: {name} is {format_info(info)}, which cannot be passed from Python")
        flat.append(self._tensor(name, info, value, sizes))

    def _tensor(self, name: str, info: TensorStructInfo, value: Any, sizes: dict[Var, int]) -> Tensor:
        if not isinstance(value, Tensor):
            try:
                value = tensor(value)
            except UserError as error:
                raise type(error)(f"{self.name}: {name}: {error.message}", hint=error.hint) from None
        if value.dtype != info.dtype:
            message = f"{self.name}: {name} must have dtype {info.dtype}, got {value.dtype}"
            raise DTypeError(message, hint=f'convert it first: array.astype("{info.dtype}")')
        shape = info.shape or ()
        before = dict(sizes)
        if len(value.shape) != len(shape) or not all(map(lambda e, g: _fits(e, g, sizes), shape, value.shape)):
            known = ", ".join(f"{v.name} = {before[v]}" for v in symbolic_vars(info) if v in before)
            expected, given = format_shape(shape), format_shape(value.shape)
            where = f" with {known}" if known else ""
            hint = shape_advice(shape, value.shape, info.dtype)
            raise ShapeError(f"{self.name}: {name} must have shape {expected}{where}, got {given}", hint=hint)
        return value

    def unflatten(self, values: Sequence[Any]) -> Any:
        """Flat results as nested tuples."""
        return nested(self.result, iter(values))


def _refuse_handles(name: str, function: Function) -> None:
    """Raise a UserError where values that live no longer than a call would come into it, or out of it."""
    infos = {p.name: p.struct_info for p in function.params} | {"what it gives": function.ret_struct_info}
    for what, info in infos.items():
        if any(map(is_handle, flat_infos(info))):
            message = f"{name} cannot be called from outside: {what} is {format_info(info)}"
            raise UserError(
                message, span=function.span, hint="a handle is of use inside of the call that makes its box"
            )


def donated_inputs(function: Function) -> tuple[int, ...]:
    """The flattened inputs that the function's last results overwrite, by its attribute ``donate``. A UserError where
    these do not fit: a text may say anything."""
    given = function.attrs.get("donate", ())
    inputs = [info for p in function.params for info in flat_infos(p.struct_info)]
    results = flat_infos(function.ret_struct_info)
    numbers: tuple[Any, ...] = tuple(given) if isinstance(given, (tuple, list)) else (None,)
    fits = len(set(numbers)) == len(numbers) <= len(results) and all(
        type(i) is int and 0 <= i < len(inputs) and same_info(inputs[i], result)
        for i, result in zip(numbers, results[len(results) - len(numbers) :], strict=False)
    )
    if not fits:
        message = f"the attribute 'donate' names inputs that the last results overwrite, each once: {given!r:.80}"
        hint = f"there are {len(inputs)} inputs, counted from 0, and {len(results)} results; types have to be equal"
        raise UserError(message, span=function.span, hint=hint)
    return numbers


def nested(info: StructInfo, flat: Iterator[Any]) -> Any:
    """The next values, nested as a type is, shapes and scalars of the host as Python has them; StopIteration when there
    are too few.

    No closure that calls itself: such a one is garbage only the collector finds, and would keep the values until then.
    """
    if isinstance(info, TupleStructInfo):
        return tuple([nested(field, flat) for field in info.fields])
    value = next(flat)
    if isinstance(info, ShapeStructInfo):
        return tuple(value.numpy().tolist())
    return value.numpy().item() if isinstance(info, PrimStructInfo) else value


def _fits(expected: Any, given: int, sizes: dict[Var, int]) -> bool:
    if isinstance(expected, int):
        return expected == given
    if isinstance(expected, Var) and expected not in sizes:
        sizes[expected] = given
        return True
    return same(substitute(expected, sizes), given)
