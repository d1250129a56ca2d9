"""The interpreter of the graph IR for straight code whose types are known: what it would find out in each call is
found out once.

An evaluator calls the meaning of an operator again and again on arguments of the same types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pullback import relax
from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.optional import all_known
from pullback.relax.interpreter import conform, evaluate
from pullback.relax.op_calls import is_call_tir
from pullback.relax.struct_info import symbolic_vars
from pullback.tir.expr import PrimExpr

Getter = Callable[[list[Any]], Any]


def evaluator(module: IRModule) -> Callable[[Sequence[Any]], Any]:
    """A function of the arguments of ``main`` that gives what the interpreter does."""
    made = _straight(module["main"])
    return partial(evaluate, module, "main") if made is None else made


def _straight(main: relax.Function) -> Callable[[Sequence[Any]], Any] | None:
    """The function's steps, or None where it is more than calls of operators."""
    if symbolic_vars(main.struct_info):
        return None
    places: dict[relax.Var, int] = {p: k for k, p in enumerate(main.params)}
    steps: list[tuple[Any, list[Getter], Mapping[str, Any], relax.Call]] = []
    for binding in main.bindings:
        call = binding.value
        if not isinstance(binding, relax.VarBinding) or not isinstance(call, relax.Call):
            return None
        function, getters = _plain(call), all_known(_getter(a, places) for a in call.args)
        if function is None or getters is None:
            return None
        steps.append((function, getters, dict(call.attrs), call))
        places[binding.var] = len(main.params) + len(steps) - 1
    result = _getter(main.body.body, places)
    return None if result is None else partial(_run, steps, result)


def _plain(call: relax.Call) -> Callable[..., Any] | None:
    """The NumPy meaning of a call of an operator whose attributes are known; None where there is none."""
    op = call.op
    if not isinstance(op, Op) or op.family in ("control", "recursion") or is_call_tir(call):
        return None
    return None if any(map(_has_sizes, call.attrs.values())) else op.numpy


def _has_sizes(value: Any) -> bool:
    return any(map(_has_sizes, value)) if isinstance(value, tuple) else isinstance(value, PrimExpr)


def _getter(expr: Any, places: Mapping[relax.Var, int]) -> Getter | None:
    """A function of the frame that gives an atom's value."""
    if isinstance(expr, relax.Var) and expr in places:
        place = places[expr]
        return lambda frame: frame[place]
    if isinstance(expr, relax.Constant):
        data = expr.data
        return lambda frame: data
    if isinstance(expr, relax.Tuple):
        fields = all_known(_getter(f, places) for f in expr.fields)
        return None if fields is None else lambda frame: tuple([field(frame) for field in fields])
    if isinstance(expr, relax.TupleGetItem):
        whole, index = _getter(expr.tuple_value, places), expr.index
        return None if whole is None else lambda frame: whole(frame)[index]
    return None


def _run(steps: Sequence[Any], result: Getter, arguments: Sequence[Any]) -> Any:
    frame = list(arguments)
    with np.errstate(all="ignore"):
        for function, getters, attrs, call in steps:
            try:
                value = function(*[get(frame) for get in getters], **attrs)
            except UserError as error:
                raise ArgumentError(error.message, span=error.span or call.span, hint=error.hint) from None
            frame.append(conform(value, call.struct_info, call))
    return result(frame)
