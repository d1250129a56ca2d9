"""Expressions of the graph IR: the whole grammar.

    e ::= Var | DataflowVar | GlobalVar | Constant(array) | ShapeExpr | PrimValue
        | Tuple(e…) | TupleGetItem(e, index)
        | Call(op or function, e…, attrs)
        | Function(params, SeqExpr(blocks, e), ret_struct_info, attrs)
        | If(e, SeqExpr(blocks, e), SeqExpr(blocks, e))

    block   ::= BindingBlock(binding…) | DataflowBlock(binding…)      a DataflowVar lives only in its block
    binding ::= VarBinding(var, e) | MatchCast(var, e, struct_info)

Every expression knows its struct info from the moment it is built; an expression whose parts do not fit cannot be
built. In a function, arguments are atoms (A-normal form): ``BlockBuilder`` sees to it.

A ``Function`` that a variable is bound to, and the branches of an ``If``, read the variables around them. Loops are
calls that take functions (``relax/control.py``). ``InlineFunctions`` makes of all this the *closed* form: calls of
``branch`` and ``loop`` whose functions, the *regions*, are attributes of the call, and read their parameters alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pullback.ir.errors import ShapeError, UserError
from pullback.ir.module import GLOBAL_SYMBOL, without_symbol
from pullback.ir.node import Node, Span, made_quickly
from pullback.relax.struct_info import (
    FuncStructInfo,
    StructInfo,
    TensorStructInfo,
    format_info,
    same_info,
)
from pullback.relax.values import (
    DEDUCED,
    RECORDING,
    Call,
    Callee,
    Constant,
    DataflowVar,
    Expr,
    PrimValue,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    as_relax,
    const,
    recording,
    set_methods,
    tuple_get_item,
)

__all__ = [
    "Binding", "BindingBlock", "Call", "Callee", "Constant", "DataflowBlock", "DataflowVar", "Expr", "Function", "If",
    "MatchCast", "PrimValue", "SeqExpr", "ShapeExpr", "Tuple", "TupleGetItem", "Var", "VarBinding", "as_relax",
    "check_condition", "const", "nested_calls", "recording", "set_methods", "tuple_get_item",
]  # fmt: skip


@made_quickly
@dataclass(frozen=True, eq=False)
class Binding(Node):
    """A value and the variable that names it.

    Args:
        var: the variable, which is bound once.
        value: the expression, whose operands are variables or constants.
        span: the place in the user's source.
    """

    var: Var
    value: Expr


@made_quickly
@dataclass(frozen=True, eq=False)
class VarBinding(Binding):
    """``var = value``.

    Args:
        var: the variable, which is bound once.
        value: the expression, whose type is the variable's.
        span: the place in the user's source.
    """

    binds = ("var",)

    def structural_items(self) -> list[tuple[str, Any]]:
        return [("value", self.value), ("var", self.var)]


@made_quickly
@dataclass(frozen=True, eq=False)
class MatchCast(Binding):
    """``var = R.match_cast(value, struct_info)``: checked when it runs; binds new symbolic sizes.

    Args:
        var: the variable, of the type ``target``.
        value: the expression that is checked.
        target: the type that it must have; symbolic sizes that are new in it take the value's.
        span: the place in the user's source.
    """

    binds = ("var", "target")

    target: StructInfo

    def structural_items(self) -> list[tuple[str, Any]]:
        return [("value", self.value), ("target", self.target), ("var", self.var)]


@made_quickly
@dataclass(frozen=True, eq=False)
class BindingBlock(Node):
    """Bindings one after another, in the order in which they run.

    Args:
        bindings: of variables, each of which later ones may read.
        span: the place in the user's source.
    """

    bindings: tuple[Binding, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "bindings", tuple(self.bindings))


@made_quickly
@dataclass(frozen=True, eq=False)
class DataflowBlock(BindingBlock):
    """Bindings without side effects.

    Args:
        bindings: of variables: a DataflowVar is seen in the block alone, any other Var after it too.
        span: the place in the user's source.
    """


@made_quickly
@dataclass(frozen=True, eq=False)
class SeqExpr(Expr):
    """Blocks, then the value that they lead to: the body of a function or of a branch.

    Args:
        blocks: of bindings, in the order in which they run.
        body: the value.
        span: the place in the user's source.
    """

    blocks: tuple[BindingBlock, ...]
    body: Expr

    @property
    def struct_info(self) -> StructInfo:
        return self.body.struct_info

    @property
    def bindings(self) -> Iterator[Binding]:
        return (b for block in self.blocks for b in block.bindings)


@made_quickly
@dataclass(frozen=True, eq=False)
class Function(Expr):
    """A graph function. ``attrs["private"]`` marks one that is not called from outside the module; others have their
    name as ``attrs["global_symbol"]``, which is no part of the structure.

    Args:
        params: the parameters.
        body: what it computes; an expression that is no SeqExpr becomes one without blocks.
        ret_struct_info: the type of the result; by default that of the body.
        attrs: the function's attributes, by name.
        span: the place in the user's source.

    Raises:
        ShapeError: where the body is not of the type ``ret_struct_info``.

    Examples:
        >>> a = relax.Var("a", R.Tensor((3,), "float32"))
        >>> double = relax.Function([a], a + a)
        >>> double.ret_struct_info
        Tensor((3,), float32)
        >>> pullback.compile(pullback.IRModule({"double": double})).function("double")(np.ones(3, "float32"))
        tensor([2., 2., 2.], shape=(3,), dtype=float32)
    """

    binds = ("params",)

    params: tuple[Var, ...]
    body: SeqExpr
    ret_struct_info: StructInfo = DEDUCED
    attrs: Mapping[str, Any] = field(default_factory=dict)

    if TYPE_CHECKING:  # see Call

        def __init__(
            self,
            params: Sequence[Var],
            body: Expr,
            ret_struct_info: StructInfo | None = None,
            attrs: Mapping[str, Any] = ...,
            *,
            span: Span | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", tuple(self.params))
        object.__setattr__(self, "attrs", MappingProxyType(dict(self.attrs)))
        if not isinstance(self.body, SeqExpr):
            object.__setattr__(self, "body", SeqExpr((), self.body))
        if self.ret_struct_info is None:
            object.__setattr__(self, "ret_struct_info", self.body.struct_info)
        elif not same_info(self.ret_struct_info, self.body.struct_info):
            declared, found = format_info(self.ret_struct_info), format_info(self.body.struct_info)
            raise ShapeError(
                f"the function returns {found} but declares {declared}",
                span=self.span,
                hint="change what stands after ->, or leave it out",
            )

    @property
    def struct_info(self) -> StructInfo:
        return FuncStructInfo(tuple(p.struct_info for p in self.params), self.ret_struct_info)

    @property
    def bindings(self) -> Iterator[Binding]:
        return self.body.bindings

    def structural_items(self) -> list[tuple[str, Any]]:
        attrs = without_symbol(self.attrs)
        return [
            ("params", self.params),
            ("body", self.body),
            ("ret_struct_info", self.ret_struct_info),
            ("attrs", attrs),
        ]

    def named(self, name: str) -> Function:
        """The function with its name in a module, unless it has one or is private."""
        keeps = self.attrs.get("private") or GLOBAL_SYMBOL in self.attrs
        return self if keeps else self.with_attr(GLOBAL_SYMBOL, name)

    def with_attrs(self, attrs: Mapping[str, Any]) -> Function:
        merged = dict(self.attrs) | dict(attrs)
        return Function(self.params, self.body, self.ret_struct_info, merged, span=self.span)

    def with_attr(self, key: str, value: Any) -> Function:
        return self.with_attrs({key: value})


@made_quickly
@dataclass(frozen=True, eq=False)
class If(Expr):
    """``then`` where the bool scalar ``condition`` is true, else ``otherwise``: bodies of one type, which read the
    variables around them.

    Args:
        condition: a tensor of shape () and dtype bool.
        then: the body that is computed where it is true.
        otherwise: the body that is computed where it is false.
        span: the place in the user's source.

    Raises:
        UserError: where ``condition`` is no bool scalar.
        ShapeError: where the bodies differ in type.
    """

    condition: Expr
    then: SeqExpr
    otherwise: SeqExpr

    def __post_init__(self) -> None:
        object.__setattr__(self, "condition", as_relax(self.condition))
        for name in ("then", "otherwise"):
            branch = getattr(self, name)
            if not isinstance(branch, SeqExpr):
                object.__setattr__(self, name, SeqExpr((), as_relax(branch)))
        check_condition(self.condition.struct_info, "the condition of an if", self.span)
        then, otherwise = self.then.struct_info, self.otherwise.struct_info
        if not same_info(then, otherwise):
            raise ShapeError(
                f"the branches of an if differ in type: {format_info(then)} and {format_info(otherwise)}",
                span=self.span,
                hint="both give the same type: R.astype converts a dtype, R.broadcast_to a shape",
            )
        for made in RECORDING.get():
            made.add(self)

    @property
    def struct_info(self) -> StructInfo:
        return self.then.struct_info


def nested_calls(expr: Any) -> list[Expr]:
    """The operands of an expression that are no atoms, those in tuples too."""
    if isinstance(expr, Tuple):
        parts: tuple[Any, ...] = expr.fields
    elif isinstance(expr, Call):
        parts = expr.args
    elif isinstance(expr, If):
        parts = (expr.condition,)
    else:
        parts = (expr.tuple_value,) if isinstance(expr, TupleGetItem) else ()
    found: list[Expr] = []
    for part in parts:
        if isinstance(part, (Call, TupleGetItem, If, Function)):
            found.append(part)
        elif isinstance(part, Tuple):
            found += nested_calls(part)
    return found


def check_condition(info: StructInfo, what: str, span: Any = None) -> None:
    """Raise unless it is the type of a bool scalar."""
    if not isinstance(info, TensorStructInfo) or info.dtype != "bool" or info.ndim != 0:
        hint = "compare: x > 0; R.all and R.any make one bool of many"
        raise UserError(f"{what} must be a bool scalar, got {format_info(info)}", span=span, hint=hint)
