"""What must hold of the values an op is given is looked at when the module is compiled, where they are constants.

    y = R.take(x, R.const([7]), axis=0)        x has 3 rows: an error, at this call
    y = R.floor_divide(n, R.const(0))          integers: an error, at this call

Ops look at other values while they run, if they have a ``check``; a ``constant_check`` is of constants alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relax.expr import Call, Constant, Expr, Function, Var
from pullback.relax.op_calls import inner_op
from pullback.relax.struct_info import StructInfo, TensorStructInfo
from pullback.relax.transform.compose import stand_ins
from pullback.te.graph import placeholders
from pullback.te.interpreter import evaluate
from pullback.tir import PrimExpr


def check_constants(module: IRModule) -> None:
    """Raise an ArgumentError at the first call in the module whose constants do not do."""
    for function in module.functions.values():
        if isinstance(function, Function):
            known: dict[Var, Constant] = {}
            for binding in function.bindings:
                if isinstance(binding.value, Constant):
                    known[binding.var] = binding.value
                if isinstance(binding.value, Call):
                    _check(binding.value, known)


def _check(call: Call, known: Mapping[Var, Constant]) -> None:
    op, args, infos = call.op, [_constant(a, known) for a in call.args], [a.struct_info for a in call.args]
    if not isinstance(op, Op) or not any(isinstance(a, Constant) for a in args) or not _is_static(infos, call.attrs):
        return
    rule = op.check or op.constant_check
    if rule is None:
        return
    tensors = stand_ins(call)
    result = rule(*tensors, **call.attrs)
    constants = {t: (k, a.data) for k, (t, a) in enumerate(zip(tensors, args, strict=True)) if isinstance(a, Constant)}
    read = placeholders([result]) if result is not None else []
    if result is None or not all(t in constants for t in read):
        return
    if not evaluate([result], {t: constants[t][1] for t in read})[0].all():
        hint = " and ".join(_shown(op, *constants[t]) for t in read)
        raise ArgumentError(inner_op(call).check_message, span=call.span, hint=hint)


def _shown(op: Op, k: int, value: np.ndarray) -> str:
    """The argument ``k`` of an op, and its value."""
    name = "an argument" if op.signature.variadic else op.signature.tensors[k]
    return (
        f"{name} is the constant {' '.join(np.array2string(value, separator=', ', threshold=8, edgeitems=3).split())}"
    )


def _constant(arg: Expr, known: Mapping[Var, Constant]) -> Expr:
    return known.get(arg, arg) if isinstance(arg, Var) else arg


def _is_static(infos: Sequence[StructInfo], attrs: Mapping[str, object]) -> bool:
    """Whether all sizes are numbers."""
    values = [v for a in attrs.values() for v in (a if isinstance(a, tuple) else (a,))]
    tensors = all(isinstance(i, TensorStructInfo) and i.is_static for i in infos)
    return tensors and not any(isinstance(v, PrimExpr) for v in values)
