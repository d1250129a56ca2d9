"""Recursive functions whose calls of themselves are no tail calls, in their closed form.

    def f(x):                                 @R.region
        if x > 1.0:                           def function(x, w):
            y = w * f(x - 1.0)                    y = R.branch(x > 1.0, (x, w), then=…, otherwise=…)     # R.call_self
        else:                                     return (y[0],)
            y = x                   →
        return y                              z = R.recurse((a, w), function=function, label="f")[0]
    z = f(a)

What the function reads around it are operands, which all calls hand on as they are. Of functions that call one another
the first that is called becomes the ``recurse``. The others are inlined until they call it again; one that calls itself
besides is a ``recurse`` inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pullback.ir.errors import ShapeError, UserError
from pullback.relax.control import BRANCH
from pullback.relax.expr import Expr, Function, Tuple, Var
from pullback.relax.matching import bind_sizes
from pullback.relax.recursion import RECURSE, SELF, call_self, check_depth, recurse
from pullback.relax.struct_info import StructInfo, TensorStructInfo, flat_infos, format_info, same_info
from pullback.relax.transform.closed_form import (
    Known,
    closed,
    items_of,
    leaves_of,
    name_of,
    nested_value,
    parts_of,
    sizes_of,
)
from pullback.relax.transform.self_calls import captured

if TYPE_CHECKING:
    from pullback.relax.transform.inline_functions import Inliner


@dataclass(frozen=True, eq=False)
class Recursion:
    """A recursive function that is being written; ``given``: the arguments of its first call, ``outer``: what it reads
    around it, ``ret``: the type of what it gives."""

    known: Known
    given: Sequence[Any]
    infos: Sequence[StructInfo]
    outer: Sequence[Var]
    ret: StructInfo
    label: str

    def again(self, inliner: Inliner, arguments: Sequence[Any], call: Any) -> Expr:
        """What the function gives for other arguments."""
        flat = handed_on(self.known, self.given, self.infos, arguments, call)
        builder = inliner.builder
        outer = [leaf for v in self.outer for leaf in leaves_of(parts_of(v, builder))]
        result = builder.emit(call_self([*flat, *outer], self.label, flat_infos(self.ret)), self.known.name)
        return nested_value(self.ret, items_of(result), builder)


def recursive_call(inliner: Inliner, known: Known, arguments: Sequence[Any], call: Any) -> Expr:
    """The first call of a recursive function."""
    builder, attrs = inliner.builder, known.function.attrs
    values = Tuple(tuple(a for a in arguments if not isinstance(a, Known)))
    flat = leaves_of(values)
    for value in flat:
        if not isinstance(value.struct_info, TensorStructInfo):
            message = f"an argument of the recursive function {known.name} is {format_info(value.struct_info)}"
            raise UserError(message, span=call.span, hint="it takes tensors, tuples of tensors, and functions")
    ret = bind_sizes(known.function.ret_struct_info, sizes_of(known, arguments))
    outer = captured([known, *(a for a in arguments if isinstance(a, Known))])
    label = _label(known.name, {r.label for r in inliner.recursions})
    check_depth(known.name, attrs.get("max_depth"), known.function.span)
    recursion = Recursion(known, arguments, [v.struct_info for v in flat], outer, ret, label)
    params = [Var(name_of(v), v.struct_info) for v in flat]

    def emit() -> Expr:
        fields = iter(nested_value(values.struct_info, params, builder).fields)
        now = [a if isinstance(a, Known) else next(fields) for a in arguments]
        return inliner.entered(known, now, recursion).body(known.function.body)

    (function,), operands = closed([inliner.region(params, emit)], builder, outer)
    if _always_calls(function, label):
        raise endless(known, call)
    first = builder.emit(recurse([*flat, *operands], function, label, attrs.get("max_depth")), known.name)
    return nested_value(ret, items_of(first), builder)


def _label(name: str, taken: set[str]) -> str:
    return next(n for n in (name, *(f"{name}_{k}" for k in range(1, len(taken) + 1))) if n not in taken)


def _always_calls(function: Function, label: str) -> bool:
    """Whether every way through the function calls it again."""
    for binding in function.bindings:
        value: Any = binding.value
        op = getattr(value, "op", None)
        if op is SELF and value.attrs["label"] == label:
            return True
        if op is BRANCH and all(_always_calls(value.attrs[name], label) for name in ("then", "otherwise")):
            return True
        if op is RECURSE and value.attrs["label"] != label and _always_calls(value.attrs["function"], label):
            return True
    return False


def endless(known: Known, call: Any) -> UserError:
    """The error of a function every way through which calls it again."""
    hint = "one way through it has to return something else: if …: return x"
    return UserError(f"{known.name} calls itself without end", span=call.span, hint=hint)


def handed_on(
    known: Known, given: Sequence[Any], infos: Sequence[StructInfo], arguments: Sequence[Any], call: Any
) -> list[Expr]:
    """The tensors that a recursive function calls itself with, which have the types of those of its first call, and
    whose functions are the same."""
    flat = []
    for first, argument in zip(given, arguments, strict=True):
        if not isinstance(argument, Known):
            flat += leaves_of(argument)
        elif not isinstance(first, Known) or not argument.is_same(first):
            message = f"{known.name} calls itself with another function"
            raise UserError(message, span=call.span, hint="a recursive function hands its functions on as they are")
    changed = [
        f"{format_info(old)} to {format_info(new.struct_info)}"
        for old, new in zip(infos, flat, strict=True)
        if not same_info(old, new.struct_info)
    ]
    if changed:
        raise ShapeError(
            f"{known.name} calls itself with arguments of other types: {', '.join(changed)}",
            span=call.span,
            hint="the arguments of a recursive function keep their types",
        )
    return flat
