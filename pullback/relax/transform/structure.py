"""Keys for what bindings compute, whatever their variables are called: layers that do the same have the same key.

A pass that asks something of every call or group remembers the answers by these keys, for as long as it runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from pullback.ir.node import remembered
from pullback.relax.expr import Binding, Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, VarBinding
from pullback.relax.op_calls import as_var
from pullback.relax.struct_info import StructInfo, TensorStructInfo
from pullback.relax.transform.compose import has_te

Answer = TypeVar("Answer")


def structure(bindings: Iterable[Binding], outputs: Sequence[Var], params: Sequence[Var] = ()) -> Hashable:
    """Equal for bindings that are the same calls of ops on values of the same types, and give the same ``outputs``.

    Variables bound outside are numbered as ``params``, then as they appear. The key is valid while the bindings live.
    """
    numbers: dict[Expr, int] = {param: k for k, param in enumerate(params)}

    def atom(expr: Any) -> Hashable:
        if isinstance(expr, Tuple):
            return tuple(map(atom, expr.fields))
        if isinstance(expr, TupleGetItem):
            return atom(expr.tuple_value), expr.index
        if isinstance(expr, Constant) and expr.data.size == 1:
            return expr.data.dtype.char, expr.data.shape, expr.data.tobytes()
        number = numbers.get(expr)
        if number is not None:
            return number
        numbers[expr] = number = len(numbers)
        return number, _type(expr.struct_info)

    calls: list[Hashable] = []
    for binding in bindings:
        value = binding.value
        if isinstance(value, Call):
            attrs = tuple([(name, _exact(attr)) for name, attr in sorted(value.attrs.items())]) if value.attrs else ()
            calls.append((value.op, attrs, tuple(map(atom, value.args))))
        else:
            calls.append(atom(value))
        numbers[binding.var] = len(numbers)
    types = tuple(_type(param.struct_info) for param in params)
    return types, tuple(calls), tuple(numbers[var] for var in outputs)


def function_structure(function: Function) -> Hashable:
    """The structure of a primitive function: bindings that call ops, and variables as results."""
    return structure(tuple(function.bindings), results_of(function), function.params)


def results_of(function: Function) -> list[Var]:
    """The variables that a primitive function returns."""
    body = function.body.body
    return [as_var(v) for v in (body.fields if isinstance(body, Tuple) else (body,))]


def once(ask: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """``ask``, a question about the value of a binding, asked once for calls that do the same."""
    answers: dict[Hashable, Answer] = {}

    @functools.cache
    def answer(value: Any) -> Answer:
        if not isinstance(value, Call) or not has_te(value):
            return ask(value)
        key = _call_structure(value)
        if key not in answers:
            answers[key] = ask(value)
        return answers[key]

    return answer


@remembered
def _call_structure(call: Call) -> Hashable:
    """The structure of a call by itself: several questions are remembered by it."""
    var = Var("value", call.struct_info)
    return structure([VarBinding(var, call)], [var])


def _type(info: StructInfo) -> Hashable:
    if isinstance(info, TensorStructInfo) and info.is_static:
        return info.dtype, info.shape
    return repr(info)


def _exact(value: Any) -> Hashable:
    """A key that is equal for attributes that are the same in every respect: 0.0 is not -0.0, and 1 is not True."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_exact, value))
    return (type(value), repr(value)) if isinstance(value, (bool, int, float, str, type(None))) else id(value)
