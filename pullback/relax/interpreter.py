"""The meaning of the graph IR, over NumPy: slow, simple, and the oracle for every other backend.

Values are NumPy arrays, tuples of values, and shapes (tuples of ints).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import te
from pullback.ir.errors import ArgumentError, InternalError, UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.op import Op
from pullback.relax.expr import (
    Binding,
    Call,
    Constant,
    Function,
    MatchCast,
    PrimValue,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from pullback.relax.matching import bind_size, bind_sizes, match_info
from pullback.relax.mutator import check_origin
from pullback.relax.op_calls import is_call_tir
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, format_info
from pullback.runtime.dtype import numpy_dtype
from pullback.te import interpreter as te_interpreter
from pullback.tir import interpreter as tir_interpreter
from pullback.tir.checked import checked
from pullback.tir.defined import defined
from pullback.tir.expr import PrimExpr


def evaluate(module: IRModule, name: str, arguments: Sequence[Any], observe: Any = None) -> Any:
    """Run the graph function ``name`` on arrays and nested tuples of arrays.

    ``observe(binding, value)``, when given, sees every bound value in order.
    """
    return _Frame(module, observe).call(name, module[name], arguments)


class _Frame:
    """One call of a function: its variables and symbolic sizes."""

    def __init__(self, module: IRModule, observe: Any = None) -> None:
        self.module, self.observe = module, observe
        self.env: dict[Var, Any] = {}
        self.sizes: dict[Any, int] = {}

    def call(self, name: str, function: Function, arguments: Sequence[Any]) -> Any:
        if len(arguments) != len(function.params):
            raise ArgumentError(f"{name} takes {len(function.params)} arguments, got {len(arguments)}")
        for param, value in zip(function.params, arguments, strict=True):
            given = value_info(value)
            if not match_info(param.struct_info, given, self.sizes):
                expected, found = format_info(param.struct_info), format_info(given)
                raise ArgumentError(f"{name}: argument {param.name} must be {expected}, got {found}")
            self.env[param] = value
        with np.errstate(all="ignore"):
            for binding in function.bindings:
                self.bind(binding)
            return self.eval(function.body.body)

    def bind(self, binding: Binding) -> None:
        value = self.eval(binding.value)
        if isinstance(binding, MatchCast) and not match_info(binding.target, value_info(value), self.sizes):
            expected, found = format_info(binding.target), format_info(value_info(value))
            raise ArgumentError(f"match_cast expected {expected}, got {found}", span=binding.span)
        self.env[binding.var] = value
        if self.observe is not None:
            self.observe(binding, value)

    def eval(self, expr: Any) -> Any:
        if isinstance(expr, Var):
            return self.env[expr]
        if isinstance(expr, Constant):
            return expr.data
        if isinstance(expr, Tuple):
            return tuple(self.eval(f) for f in expr.fields)
        if isinstance(expr, TupleGetItem):
            return self.eval(expr.tuple_value)[expr.index]
        if isinstance(expr, ShapeExpr):
            return tuple(bind_size(s, self.sizes) for s in expr.values)
        if isinstance(expr, PrimValue):
            return bind_size(expr.value, self.sizes) if isinstance(expr.value, PrimExpr) else expr.value
        if isinstance(expr, Call):
            return self.eval_call(expr)
        raise InternalError(f"the interpreter does not know {type(expr).__name__}")

    def eval_call(self, call: Call) -> Any:
        if isinstance(call.op, GlobalVar):
            arguments = [self.eval(a) for a in call.args]
            return _Frame(self.module, self.observe).call(call.op.name, self.module[call.op], arguments)
        if is_call_tir(call):
            return self.eval_call_tir(call)
        if not isinstance(call.op, Op) or call.op.numpy is None:
            raise InternalError(f"{call.op} has no NumPy meaning")
        arguments = [self.eval(a) for a in call.args]
        attrs = {k: self.attr(v) for k, v in call.attrs.items()}
        if self.sizes:
            self.check_types(call, arguments, attrs)
        try:
            result = call.op.numpy(*arguments, **attrs)
        except UserError as error:
            raise ArgumentError(error.message, span=error.span or call.span, hint=error.hint) from None
        return conform(result, bind_sizes(call.struct_info, self.sizes), call)

    def check_types(self, call: Call, arguments: Sequence[Any], attrs: dict[str, Any]) -> None:
        """The type rule once more, now that the sizes are known: native code does the same before it is compiled."""
        try:
            Call(call.op, tuple(Var("x", value_info(a)) for a in arguments), attrs, span=call.span)
        except UserError:
            check_origin(call, self.sizes)
            raise

    def attr(self, value: Any) -> Any:
        if isinstance(value, PrimExpr):
            return bind_size(value, self.sizes)
        return tuple(self.attr(v) for v in value) if isinstance(value, tuple) else value

    def eval_call_tir(self, call: Call) -> Any:
        arguments = [np.ascontiguousarray(a).reshape(np.shape(a)) for a in self.eval(call.args[1])]
        self.check_origin(call, arguments)
        infos = [bind_sizes(s, self.sizes) for s in call.sinfo_args]
        results = [np.empty(i.shape, numpy_dtype(i.dtype)) for i in infos]  # type: ignore[attr-defined]
        scalars = list(self.eval(call.args[2])) if len(call.args) > 2 else []
        kernel = self.module[call.args[0]]  # type: ignore[index]
        kernel, accesses = checked(defined(kernel, kernel.buffers[len(arguments) :]))
        flags = [np.empty((), bool) for _ in accesses]
        tir_interpreter.run(kernel, [*arguments, *results, *flags, *scalars])
        for flag, access in zip(flags, accesses, strict=True):
            if not flag:
                raise ArgumentError(access.message, span=access.span, hint=access.hint)
        return results[0] if len(results) == 1 else tuple(results)

    def check_origin(self, call: Call, arguments: Sequence[np.ndarray]) -> None:
        """The run-time check of the op that a legalised kernel came from."""
        origin = call.attrs.get("origin")
        op = Op.get(origin["op"]) if origin else None
        if op is None or op.check is None:
            return
        tensors = [te.placeholder(a.shape, a.dtype.name) for a in arguments]
        result = op.check(*tensors, **{k: self.attr(v) for k, v in origin["attrs"].items()})
        feeds = dict(zip(tensors, arguments, strict=True))
        if result is not None and not te_interpreter.evaluate([result], feeds)[0].all():
            raise ArgumentError(op.check_message, span=call.span)


def value_info(value: Any) -> StructInfo:
    """The static type of a run-time value."""
    if isinstance(value, tuple):
        return TupleStructInfo(tuple(value_info(v) for v in value))
    return TensorStructInfo(value.shape, value.dtype.name)


def conform(value: Any, info: StructInfo, call: Call) -> Any:
    """The result of an op's NumPy meaning, in the dtype and layout that its struct info promises."""
    if isinstance(info, TupleStructInfo):
        return tuple(conform(v, i, call) for v, i in zip(value, info.fields, strict=True))
    array = np.asarray(value)
    if array.shape != info.shape:  # type: ignore[attr-defined]
        raise InternalError(f"{call.op} gave shape {array.shape}, its struct info says {format_info(info)}")
    return np.ascontiguousarray(array.astype(numpy_dtype(info.dtype), copy=False)).reshape(array.shape)  # type: ignore[attr-defined]
