"""Functions that call themselves and go on with what that gives.

In scripts they are functions as others, that name themselves. Outside of scripts :func:`recursive` makes one:

    f = R.recursive(lambda f, n: R.cond(n < 2, lambda: n, lambda: f(n - 1) + f(n - 2)), (COUNT,), COUNT)

``InlineFunctions`` makes calls of two ops of them:

    R.recurse((x, y), function=f, label="f", max_depth=None)         f(x, y): a tuple of tensors
    R.call_self((x, y), "f", (R.Tensor(…), …))                       inside of f: f(x, y)

``function`` is a region: it reads nothing but its parameters, all tensors, and gives a tuple of tensors. Inside it, in
its regions too, ``call_self`` with its label calls it again, with arguments and results of the same types. A label is
that of the innermost ``recurse`` around. To have more than ``max_depth`` calls of recursive functions inside of one
another is an error when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.ir.node import Span
from pullback.ir.op import define
from pullback.relax.block_builder import open_builder
from pullback.relax.control import called, check_number, traced, values_of
from pullback.relax.expr import Call, Function, Var, VarBinding
from pullback.relax.regions import regions
from pullback.relax.struct_info import FuncStructInfo, StructInfo, TupleStructInfo, format_info, same_info

MAX_DEPTH = 1000  # calls inside of one another, where a function says nothing


def _infer_recurse(operands: StructInfo, *, function: Function, label: str, max_depth: int | None) -> StructInfo:
    check_depth(label, max_depth)
    if not isinstance(operands, TupleStructInfo):
        raise UserError(f"recurse: operands must be a tuple, got {format_info(operands)}", hint="of one value: (x,)")
    result = called("recurse", "function", function.struct_info, operands.fields)
    if not isinstance(result, TupleStructInfo):
        raise UserError(f"recurse: function must give a tuple, got {format_info(result)}", hint="of one value: (x,)")
    return result


def _infer_self(operands: StructInfo, *, label: str) -> StructInfo:
    raise UserError(f"call_self: nothing says which types the results of {label} have", hint="give their types")


RECURSE = define(
    "recurse", "operands | function, label, max_depth=None", infer=_infer_recurse,
    family="control", doc="The first call of a closed recursive function.",
)  # fmt: skip
SELF = define(
    "call_self", "operands | label", infer=_infer_self,
    family="recursion", doc="What a recursive function calls itself by in its closed form.",
)  # fmt: skip


def check_depth(name: str, value: Any, span: Span | None = None) -> None:
    """Raise an ArgumentError for a ``max_depth`` that is no number of calls."""
    check_number(name, "max_depth", value, f"leave it out: it is {MAX_DEPTH} then", span)


def most_calls(call: Call) -> int:
    """How many calls of a ``recurse`` may be inside of one another."""
    return call.attrs["max_depth"] or MAX_DEPTH


def recursive(function: Callable[..., Any], params: Sequence[StructInfo], result: StructInfo) -> Var:
    """A function that calls itself, to be called as a Python function is.

    ``function(itself, *arguments)`` computes graph values; ``params`` are the types of the arguments, ``result`` is
    that of what it gives. It may read the values around it. All of its calls have these types; it ends by ``R.cond``.

    Raises ShapeError where it gives another type.

    >>> kind = R.Tensor((), "int64")
    >>> fibonacci = R.recursive(lambda f, n: R.cond(n < 2, lambda: n, lambda: f(n - 1) + f(n - 2)), (kind,), kind)
    >>> y = fibonacci(x)
    """
    if not callable(function):
        raise ArgumentError(f"recursive: function must be a function, got {function!r:.80}", hint="a def or a lambda")
    builder, name = open_builder("recursive"), getattr(function, "__name__", "function")
    itself = Var(builder.unique(name if name.isidentifier() else "function"), FuncStructInfo(tuple(params), result))
    whole = traced(partial(function, itself), params)
    found = whole.ret_struct_info
    if not same_info(found, result):
        message = f"recursive: {name} gives {format_info(found)}, and was said to give {format_info(result)}"
        raise ShapeError(message, hint="all calls of a recursive function have the same types")
    builder.emit_binding(VarBinding(itself, whole))
    return itself


def recurse(operands: Sequence[Any], function: Function, label: str, max_depth: int | None = None) -> Call:
    """``function(*operands)``, in which ``call_self`` with this label calls it again."""
    return Call(RECURSE, (values_of(operands),), {"function": function, "label": label, "max_depth": max_depth})


def call_self(operands: Sequence[Any], label: str, results: Sequence[StructInfo]) -> Call:
    """A call of the function around it that has this label, whose results have these types."""
    return Call(SELF, (values_of(operands),), {"label": label}, (TupleStructInfo(tuple(results)),))


def own_calls(function: Function, label: str) -> Iterator[Call]:
    """The calls in a function, and in its regions, of what has the label around it."""
    for binding in function.bindings:
        value = binding.value
        if not isinstance(value, Call):
            continue
        if value.op is SELF and value.attrs["label"] == label:
            yield value
        elif value.op is not RECURSE or value.attrs["label"] != label:
            for _, region in regions(value):
                yield from own_calls(region, label)


def outer_labels(expr: Any) -> set[str]:
    """The labels of those functions around an expression that are called in it."""
    if not isinstance(expr, Call):
        return set()
    if expr.op is SELF:
        return {expr.attrs["label"]}
    found = {label for _, region in regions(expr) for b in region.bindings for label in outer_labels(b.value)}
    return found - {expr.attrs["label"]} if expr.op is RECURSE else found


def has_recursion(expr: Any) -> bool:
    """Whether a recursive function is called in a region of the call."""
    values = (b.value for _, region in regions(expr) for b in region.bindings)
    return any(getattr(value, "op", None) is RECURSE or has_recursion(value) for value in values)


def check_self(call: Call, around: Call | None) -> None:
    """Raise unless the ``recurse`` with the label of a ``call_self`` takes what that gives it, and gives what it says.
    ``around``: None if there is none."""
    label = call.attrs["label"]
    if around is None:
        hint = "it stands in the function of an R.recurse with this label"
        raise UserError(f"call_self: no function around it has the label {label!r}", span=call.span, hint=hint)
    function: Function = around.attrs["function"]
    wanted = TupleStructInfo(tuple(p.struct_info for p in function.params))
    pairs = ((wanted, call.args[0].struct_info, "takes"), (function.ret_struct_info, call.struct_info, "gives"))
    for expected, found, verb in pairs:
        if not same_info(expected, found):
            message = f"call_self: {label} {verb} {format_info(expected)}, not {format_info(found)}"
            raise ShapeError(message, span=call.span, hint="all calls of a recursive function have the same types")
