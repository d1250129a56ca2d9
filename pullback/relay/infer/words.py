"""Types and expressions in messages: one short line each."""

from __future__ import annotations

from typing import Any

from pullback.ir.op import Op
from pullback.relay.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
)
from pullback.relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import (
    FuncType,
    GlobalTypeVar,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)

_DEEPEST = 2  # levels of an expression that are written out
_LONGEST = 6  # items of a list


def type_text(type_: Type) -> str:
    """The type as relay writes it.

    >>> type_text(TensorType((2, AnySize()), "float32"))
    'Tensor[(2, ?), float32]'
    """
    if isinstance(type_, TensorType):
        if not type_.shape:
            return type_.dtype
        sizes = ", ".join("?" if isinstance(s, AnySize) else str(s) for s in type_.shape)
        return f"Tensor[({sizes}{',' * (type_.ndim == 1)}), {type_.dtype}]"
    if isinstance(type_, TupleType):
        return f"({_listed(type_.fields, type_text)}{',' * (len(type_.fields) == 1)})"
    if isinstance(type_, FuncType):
        params = f"<{_listed(type_.type_params, type_text)}>" if type_.type_params else ""
        return f"fn {params}({_listed(type_.arg_types, type_text)}) -> {type_text(type_.ret_type)}"
    if isinstance(type_, RefType):
        return f"ref({type_text(type_.value)})"
    if isinstance(type_, TypeCall):
        return f"{type_text(type_.func)}[{_listed(type_.args, type_text)}]"
    return type_.name if isinstance(type_, (TypeVar, GlobalTypeVar)) else "?"


def _listed(items: tuple[Any, ...], text: Any) -> str:
    return ", ".join([text(i) for i in items[:_LONGEST]] + ["…"] * (len(items) > _LONGEST))


def expr_text(expr: Any, depth: int = _DEEPEST) -> str:
    """The expression in one line, without what is deep inside."""
    if isinstance(expr, Var):
        return f"%{expr.name}"
    if isinstance(expr, GlobalVar):
        return f"@{expr.name}"
    if isinstance(expr, (Constructor, Op)):
        return expr.name
    if isinstance(expr, Constant):
        return f"{expr.data.numpy()!s}" if not expr.data.shape else f"const({type_of_constant(expr)})"
    if isinstance(expr, TupleGetItem):
        return f"{expr_text(expr.tuple_value, depth)}.{expr.index}"
    if not depth:
        return "…"
    return _compound(expr, lambda inner: expr_text(inner, depth - 1))


def _compound(expr: Any, text: Any) -> str:
    if isinstance(expr, Call):
        return f"{text(expr.op)}({_listed(expr.args, text)})"
    if isinstance(expr, Tuple):
        return f"({_listed(expr.fields, text)}{',' * (len(expr.fields) == 1)})"
    if isinstance(expr, Let):
        return f"let %{expr.variable.name} = {text(expr.value)}; …"
    if isinstance(expr, If):
        return f"if ({text(expr.cond)}) {{…}} else {{…}}"
    if isinstance(expr, Function):
        return f"fn ({_listed(expr.params, text)}) {{…}}"
    if isinstance(expr, Match):
        return f"match ({text(expr.data)}) {{…}}"
    if isinstance(expr, RefCreate):
        return f"ref({text(expr.value)})"
    if isinstance(expr, RefRead):
        return f"ref_read({text(expr.ref)})"
    if isinstance(expr, RefWrite):
        return f"ref_write({text(expr.ref)}, {text(expr.value)})"
    return type(expr).__name__


def type_of_constant(constant: Constant) -> str:
    return type_text(TensorType(constant.data.shape, constant.data.dtype))


def pattern_text(pattern: Pattern) -> str:
    """The pattern as relay writes it: ``Cons(%x, _)``."""
    if isinstance(pattern, PatternVar):
        return f"%{pattern.var.name}"
    if isinstance(pattern, PatternConstructor):
        inner = f"({', '.join(map(pattern_text, pattern.patterns))})" if pattern.patterns else ""
        return f"{pattern.constructor.name}{inner}"
    if isinstance(pattern, PatternTuple):
        return f"({', '.join(map(pattern_text, pattern.patterns))}{',' * (len(pattern.patterns) == 1)})"
    return "_"
