"""What an operator means: a function of the graph IR, its type and its value, from ``Op.lower``."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

from pullback import relax, tir
from pullback.ir.errors import InternalError, UserError
from pullback.ir.op import is_required
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.interpreter import evaluate
from pullback.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from pullback.relay.attrs import Attrs
from pullback.relay.op.registry import Op, get
from pullback.relay.op.rules import is_known
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, TupleType, Type

_REMEMBERED = 4096  # meanings of calls of one op, attributes and types


def info_of(type_: Type, size: tir.Var | None = None) -> StructInfo:
    """The graph IR's type of a tensor, or of a tuple of such; each ``Any`` becomes a symbolic size of its own, or
    ``size``. A size that is an expression becomes a variable, the same one each time."""
    if isinstance(type_, TensorType):
        sizes = [(size or tir.Var("any", "int64")) if isinstance(s, AnySize) else _symbol(s) for s in type_.shape]
        return TensorStructInfo(sizes, type_.dtype)
    if isinstance(type_, TupleType):
        return TupleStructInfo(tuple(info_of(f, size) for f in type_.fields))
    raise UserError(f"{type(type_).__name__} is no type of the graph IR", hint="tensors and tuples of them are")


def type_of(info: StructInfo) -> Type:
    """relay's type of a graph IR's tensor or tuple; what is no constant size, nor one that ``info_of`` has made a
    variable of, becomes ``Any``."""
    if isinstance(info, TupleStructInfo):
        return TupleType(tuple(type_of(f) for f in info.fields))
    if isinstance(info, TensorStructInfo) and info.shape is not None:
        return TensorType(tuple(s if isinstance(s, int) else _written(s) for s in info.shape), info.dtype)
    raise UserError(f"{info} is no type of relay", hint="tensors of known rank and tuples of them are")


_symbols: WeakKeyDictionary[Any, tir.Var] = WeakKeyDictionary()  # of sizes that are expressions
_sizes: WeakKeyDictionary[tir.Var, Any] = WeakKeyDictionary()  # the other way around


def _symbol(size: Any) -> Any:
    """A variable of the graph IR for a size that is an expression, of whatever dtype; an int is itself."""
    if isinstance(size, int):
        return size
    if size not in _symbols:
        known = isinstance(size, tir.Var) and size.dtype == "int64"
        _symbols[size] = size if known else tir.Var(getattr(size, "name", "size"), "int64")
        _sizes[_symbols[size]] = ref(size)
    return _symbols[size]


def _written(size: Any) -> Any:
    """The size that became this variable; ``Any`` for all else."""
    found = _sizes.get(size)
    return AnySize() if found is None or found() is None else found()


def lower_call(op: Op, args: Sequence[Any], attrs: Any) -> Any:
    """The operator's call in ops of the graph IR; ``args`` are graph expressions, tuples among them."""
    if op.lower is None:
        raise UserError(f"operator {op.name} cannot be computed: it has no meaning in the graph IR")
    found = op.lower(*(list(fields_of(a)) if is_tuple(a) else a for a in args), **attrs)
    return relax.Tuple(tuple(found)) if isinstance(found, (tuple, list)) else found


def is_tuple(expr: relax.Expr) -> bool:
    return isinstance(expr.struct_info, TupleStructInfo)


def fields_of(expr: relax.Expr) -> list[relax.Expr]:
    """The fields of a graph expression that is a tuple."""
    if isinstance(expr, relax.Tuple):
        return list(expr.fields)
    if not isinstance(expr.struct_info, TupleStructInfo):
        raise InternalError("only tuples have fields")
    return [relax.TupleGetItem(expr, i) for i in range(len(expr.struct_info.fields))]


@functools.lru_cache(_REMEMBERED)
def _meaning(op: Op, arg_types: tuple[Type, ...], attrs: tuple[tuple[str, Any], ...], one_size: bool = False) -> Any:
    builder = BlockBuilder()
    size = tir.Var("any", "int64") if one_size else None
    params = [relax.Var(f"x{i}", info_of(t, size)) for i, t in enumerate(arg_types)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(lower_call(op, params, dict(attrs)))
        builder.emit_func_output(result)
    return builder.get()


def meaning(op: Op, arg_types: Sequence[Type], attrs: Attrs) -> Any:
    """A module of the graph IR whose ``main`` computes the operator for arguments of such types. Calls of the same
    types and attributes share one."""
    return _meaning(op, tuple(arg_types), tuple(attrs.items()))


def resolve(op: Op, values: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Op, tuple[int, ...], Attrs] | None:
    """What a call of an operator of values is where these values are known (None: one that is not): the operator, the
    places of the arguments that it keeps, and its attributes. None where it is none, or more has to be known."""
    found = op.static(list(values), attrs) if op.static is not None else None
    if found is None:
        return None
    name, kept, static_attrs = found
    other = get(name)
    defaults = {n: d for n, d in other.signature.attrs.items() if not is_required(d)}
    return other, tuple(kept), Attrs({n: (defaults | static_attrs)[n] for n in other.signature.attrs})


def result_type(op: Op, arg_types: Sequence[Type], attrs: Attrs) -> Type:
    """The type of a call's result.

    Sizes that are not known are taken for different ones, and where that does not fit, for one.

    Raises UserError where the arguments do not fit.
    """
    if op.relation is not None:
        found = op.relation(list(arg_types), attrs)
        if found is not None:
            return found
    try:
        return type_of(meaning(op, arg_types, attrs)["main"].ret_struct_info)
    except UserError as error:
        if all(is_known(t) for t in arg_types):
            raise in_words(error, op) from None
        try:
            found = _meaning(op, tuple(arg_types), tuple(attrs.items()), one_size=True)
        except UserError:
            raise in_words(error, op) from None
    return type_of(found["main"].ret_struct_info)


_NAMES = {"astype": "cast", "concat": "concatenate", "permute_dims": "transpose", "flip": "reverse", "const": "const"}


def in_words(error: UserError, op: Op) -> UserError:
    """A complaint of the graph IR about what an operator became, in relay's names."""

    def named(match: re.Match[str]) -> str:
        name = _NAMES.get(match[1], match[1])
        return f"relay.{name}" if name in Op.registry or name == "const" else match[0]

    message = re.sub(r"^[\w.]+(?=: )", op.name, error.message)
    message, hint = (re.sub(r"\bR\.([\w.]*\w)", named, text) for text in (message, error.hint or ""))
    if re.search(r"\bR\.", hint):  # of an op that relay has not
        hint = f"relay.{op.name}({op.signature})"
    return type(error)(message, span=error.span, hint=hint or None)


def type_of_value(value: Any) -> Type:
    """The type of an array, or of a tuple of arrays."""
    if isinstance(value, tuple):
        return TupleType(tuple(type_of_value(v) for v in value))
    return TensorType(value.shape, value.dtype.name)


def value(op: Op, args: Sequence[Any], arg_types: Sequence[Type], attrs: Attrs) -> Any:
    """The result over NumPy: of arrays and tuples of arrays, one of them or a tuple."""
    if op.numpy is not None:
        return op.numpy(list(args), attrs)
    if not all(map(is_known, arg_types)):
        arg_types = [type_of_value(a) for a in args]
    found = resolve(op, args, attrs)
    if found is not None:
        other, kept, static_attrs = found
        return value(other, [args[i] for i in kept], [arg_types[i] for i in kept], static_attrs)
    return evaluate(meaning(op, arg_types, attrs), "main", args)
