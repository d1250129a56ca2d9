"""The meaning of the graph IR, over NumPy: slow, simple, and the oracle for every other backend.

Values are NumPy arrays, tuples of values, shapes (tuples of ints), and functions. Handles are arrays of objects: a
:class:`Box`, or the number 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback import te
from pullback.ir.depth import deep
from pullback.ir.errors import ArgumentError, InternalError, UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.op import Op
from pullback.relax.boxes import BOX, NULL, UNBOX
from pullback.relax.control import BRANCH, CUSTOM, CUSTOM_GRADIENT, FORI, LOOP, SCAN, WHILE
from pullback.relax.expr import (
    Binding,
    Call,
    Constant,
    Expr,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from pullback.relax.matching import bind_size, bind_sizes, match_info
from pullback.relax.mutator import check_origin
from pullback.relax.op_calls import is_call_tir, is_packed, kernel_name
from pullback.relax.recursion import RECURSE, most_calls
from pullback.relax.regions import is_self, regions
from pullback.relax.struct_info import (
    Dim,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_tensor,
    as_tuple,
    fields_of,
    format_info,
)
from pullback.runtime import packed
from pullback.runtime.dtype import numpy_dtype
from pullback.runtime.ranks import RankError
from pullback.te import interpreter as te_interpreter
from pullback.tir import interpreter as tir_interpreter
from pullback.tir.checked import checked
from pullback.tir.defined import defined
from pullback.tir.expr import HANDLE, PrimExpr
from pullback.tir.expr import Var as SizeVar


def evaluate(module: IRModule, name: str, arguments: Sequence[Any], observe: Any = None) -> Any:
    """Run the graph function ``name`` on arrays and nested tuples of arrays.

    ``observe(binding, value)``, when given, sees every bound value in order.
    """
    if observe is not None:
        return _Frame(module, observe).call(name, module[name], arguments)
    return _evaluate(module, name, arguments)


@deep
def _evaluate(module: IRModule, name: str, arguments: Sequence[Any]) -> Any:
    return _Frame(module).call(name, module[name], arguments)


@dataclass(frozen=True)
class _Closure:
    """A function as a value, with the frame whose variables it reads (None: it reads none)."""

    name: str
    function: Function
    frame: _Frame | None


@dataclass
class _Recursion:
    """A closed recursive function. ``depth``, one list for all of them: how many calls are inside of one another."""

    closure: _Closure
    call: Call
    depth: list[int]


@dataclass(frozen=True, eq=False)
class Box:
    """What a handle stands for."""

    fields: tuple[np.ndarray, ...]


class _Frame:
    """One call of a function: its variables and symbolic sizes, with those around it."""

    def __init__(self, module: IRModule, observe: Any = None, outer: _Frame | None = None) -> None:
        self.module, self.observe = module, observe
        self.env: dict[Var, Any] = dict(outer.env) if outer is not None else {}
        self.sizes: dict[SizeVar, Dim] = dict(outer.sizes) if outer is not None else {}
        self.recursions: dict[str, _Recursion] = dict(outer.recursions) if outer is not None else {}

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
            return self.body(function.body)

    def body(self, body: SeqExpr) -> Any:
        for binding in body.bindings:
            self.bind(binding)
        return self.eval(body.body)

    def apply(self, function: Any, arguments: Sequence[Any]) -> Any:
        """What a function value gives."""
        frame = _Frame(self.module, self.observe, function.frame)
        return frame.call(function.name, function.function, arguments)

    def bind(self, binding: Binding) -> None:
        if isinstance(binding.value, Function):  # it reads this frame when it is called, and may call itself
            self.env[binding.var] = _Closure(binding.var.name, binding.value, self)
            return
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
        if isinstance(expr, If):
            chosen = expr.then if self.eval(expr.condition) else expr.otherwise
            return _Frame(self.module, self.observe, self).body(chosen)
        if isinstance(expr, Function):
            return _Closure("function", expr, self)
        if isinstance(expr, GlobalVar):
            return _Closure(expr.name, self.module[expr], None)
        raise InternalError(f"the interpreter does not know {type(expr).__name__}")

    def eval_call(self, call: Call) -> Any:
        if isinstance(call.op, (GlobalVar, Expr)):
            return self.apply(self.eval(call.op), [self.eval(a) for a in call.args])
        if call.op.family == "control":
            return self.eval_control(call)
        if is_self(call):
            return self.recurse(self.recursions[call.attrs["label"]], self.eval(call.args[0]))
        if is_call_tir(call):
            return self.eval_call_tir(call)
        if is_packed(call):
            infos = [bind_sizes(s, self.sizes) for s in call.sinfo_args]
            kinds = [(i.static_shape, i.dtype) for i in map(as_tensor, infos)]
            results = packed.call(call.attrs["func"], [self.eval(a) for a in call.args], kinds)
            return results[0] if len(results) == 1 else tuple(results)
        if not isinstance(call.op, Op) or call.op.numpy is None:
            raise InternalError(f"{call.op} has no NumPy meaning")
        arguments = [self.eval(a) for a in call.args]
        attrs = {k: self.attr(v) for k, v in call.attrs.items()}
        if self.sizes:
            self.check_types(call, arguments, attrs)
        try:
            result = call.op.numpy(*arguments, **attrs)
        except RankError:  # the fault is another rank's
            raise
        except UserError as error:
            raise ArgumentError(error.message, span=error.span or call.span, hint=error.hint) from None
        return conform(result, bind_sizes(call.struct_info, self.sizes), call)

    def eval_control(self, call: Call) -> Any:
        """Branches, loops and boxes."""
        arguments = [self.eval(a) for a in call.args]
        if call.op in (BOX, UNBOX, NULL):
            return self.boxing(call, arguments)
        region = {
            name: _Closure(name, function, _Frame(self.module, self.observe, self)) for name, function in regions(call)
        }
        if call.op is BRANCH:
            return self.apply(region["then" if arguments[0] else "otherwise"], arguments[1])
        if call.op is RECURSE:
            closure = region["function"]
            assert closure.frame is not None
            depth = next((r.depth for r in self.recursions.values()), [0])
            recursion = _Recursion(closure, call, depth)
            closure.frame.recursions[call.attrs["label"]] = recursion
            return self.recurse(recursion, arguments[0])
        if call.op is CUSTOM:
            return self.apply(region["function"], arguments[0])
        if call.op is CUSTOM_GRADIENT:
            return self.apply(arguments[0], arguments[2])
        if call.op is LOOP:
            count, carries, xs, invariants = arguments
            body = lambda k, values, rows: self.apply(region["body"], (k, *values, *rows, *invariants))  # noqa: E731
            ask = region.get("condition")
            condition = ask and (lambda k, values: self.apply(ask, (k, *values, *invariants)))
            length = self.attr(call.attrs["length"])
            count = None if call.args[0].struct_info == TupleStructInfo(()) else int(count)
            values, ys, steps = self.run_loop(call, body, condition, carries, xs, count, length)
            return values, ys, steps
        attrs = {k: self.attr(v) for k, v in call.attrs.items()}
        if call.op is WHILE:
            ask, function, carries = arguments
            body = lambda k, values, rows: (self.apply(function, values), ())  # noqa: E731
            condition = lambda k, values: self.apply(ask, values)  # noqa: E731
            return self.run_loop(call, body, condition, carries, (), None, attrs["max_steps"])[0]
        if call.op is FORI:
            count, function, carries = arguments
            body = lambda k, values, rows: (self.apply(function, (k, *values)), ())  # noqa: E731
            return self.run_loop(call, body, None, carries, (), int(count), attrs["max_steps"])[0]
        function, carries, xs = arguments
        body = lambda k, values, rows: self.apply(function, (*values, *rows))  # noqa: E731
        length = len(xs[0]) if xs else attrs["length"]
        lengths = sorted({len(x) for x in xs} | {length})
        if len(lengths) > 1:
            raise ArgumentError(f"scan: xs differ in length: {lengths}", span=call.span)
        return self.run_loop(call, body, None, carries, xs, None, length)[:2]

    def recurse(self, recursion: _Recursion, arguments: tuple) -> tuple:
        """A call of a recursive function."""
        if recursion.depth[0] >= most_calls(recursion.call):
            raise too_many_calls(recursion.call)
        recursion.depth[0] += 1
        result = self.apply(recursion.closure, arguments)
        recursion.depth[0] -= 1
        return result

    def boxing(self, call: Call, arguments: Sequence[Any]) -> Any:
        if call.op is NULL:
            return np.zeros(self.attr(call.attrs["shape"]), object)
        if call.op is BOX:
            return np.array(Box(tuple(np.array(a) for a in arguments)), object)
        content = arguments[0].item()
        infos = fields_of(bind_sizes(call.struct_info, self.sizes))
        if isinstance(content, Box):
            if tuple(map(value_info, content.fields)) != infos:
                raise ArgumentError("what is unboxed is not what was boxed", span=call.span)
            return content.fields
        return tuple(_zeros(i.static_shape, i.dtype) for i in map(as_tensor, infos))

    def run_loop(
        self, call: Call, body: Any, condition: Any, carries: tuple, xs: tuple, count: int | None, length: int | None
    ) -> tuple[tuple, tuple, np.ndarray]:
        """The carries, the stacked ys, and the number of steps."""
        limit = length if count is None else max(0, count)
        most = call.attrs["body"].attrs.get("max_steps", length) if call.op is LOOP else length
        if length is not None and limit is not None and limit > length:
            raise too_many_steps(most, call.span)
        numbers: Iterable[int] = itertools.count() if limit is None else range(limit)
        if call.attrs.get("reverse", False):
            assert limit is not None
            numbers = reversed(range(limit))
        rows: dict[int, tuple] = {}
        steps = 0
        for k in numbers:
            number = np.array(k, np.int64)
            if condition is not None and not condition(number, carries):
                break
            carries, rows[k] = body(number, carries, tuple(x[k, ...] for x in xs))
            steps += 1
        else:
            if condition is not None and condition(np.array(limit, np.int64), carries):
                raise too_many_steps(limit if most is None else most, call.span)
        return carries, self.stacked(call, rows, length), np.array(steps, np.int64)

    def stacked(self, call: Call, rows: dict[int, tuple], length: int | None) -> tuple:
        """The rows as arrays, with zeros where there are none."""
        info = call.struct_info
        if call.op not in (SCAN, LOOP):
            return ()
        results = []
        for i, field in enumerate(map(as_tensor, fields_of(as_tuple(bind_sizes(info, self.sizes)).fields[1]))):
            whole = _zeros(field.static_shape, field.dtype)
            for k, values in rows.items():
                whole[k, ...] = values[i]
            results.append(whole)
        return tuple(results)

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
        results = [np.empty(i.static_shape, numpy_dtype(i.dtype)) for i in map(as_tensor, infos)]
        scalars = list(self.eval(call.args[2])) if len(call.args) > 2 else []
        kernel = self.module[kernel_name(call)]
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
        if not origin:
            return
        op = Op.get(origin["op"])
        if op.check is None:
            return
        tensors = [te.placeholder(a.shape, a.dtype.name) for a in arguments]
        result = op.check(*tensors, **{k: self.attr(v) for k, v in origin["attrs"].items()})
        feeds = dict(zip(tensors, arguments, strict=True))
        if result is not None and not te_interpreter.evaluate([result], feeds)[0].all():
            raise ArgumentError(op.check_message, span=call.span)


def too_many_steps(length: int | None, span: Any) -> ArgumentError:
    """The error of a loop that would go on after as many steps as it may take."""
    hint = "allow more, or look at why the condition stays true"
    return ArgumentError(f"the loop did not end within max_steps={length}", span=span, hint=hint)


def too_many_calls(call: Call) -> ArgumentError:
    """The error of a recursive function that would call itself more often than it may."""
    message = f"the recursion of {call.attrs['label']} did not end within max_depth={most_calls(call)} calls"
    hint = f'allow more by R.func_attr({{"max_depth": …}}) in {call.attrs["label"]}, or look at why it goes on'
    return ArgumentError(message, span=call.span, hint=hint)


def value_info(value: Any) -> StructInfo:
    """The static type of a run-time value."""
    if isinstance(value, tuple):
        return TupleStructInfo(tuple(value_info(v) for v in value))
    if isinstance(value, _Closure):
        return value.function.struct_info
    return TensorStructInfo(value.shape, HANDLE if value.dtype == object else value.dtype.name)


def _zeros(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Zeros; of handles null ones."""
    return np.zeros(shape, object if dtype == HANDLE else numpy_dtype(dtype))


def conform(value: Any, info: StructInfo, call: Call) -> Any:
    """The result of an op's NumPy meaning, in the dtype and layout that its struct info promises."""
    if isinstance(info, TupleStructInfo):
        return tuple(conform(v, i, call) for v, i in zip(value, info.fields, strict=True))
    array, tensor = np.asarray(value), as_tensor(info)
    if array.shape != tensor.shape:
        raise InternalError(f"{call.op} gave shape {array.shape}, its struct info says {format_info(info)}")
    return np.ascontiguousarray(array.astype(numpy_dtype(tensor.dtype), copy=False)).reshape(array.shape)
