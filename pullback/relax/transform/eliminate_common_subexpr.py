"""EliminateCommonSubexpr: a value computed twice is computed once.

a = R.exp(x)                 a = R.exp(x)
b = R.exp(x)        →
c = R.add(a, b)              c = R.add(a, a)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pullback.ir.digest import structural_digest
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.op import Op
from pullback.ir.passes import FunctionPass
from pullback.relax.boxes import NULL, UNBOX, is_handle
from pullback.relax.expr import Binding, Call, Constant, DataflowVar, Function, MatchCast, Tuple, TupleGetItem, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import has_effects, lacks_state
from pullback.relax.regions import is_self, regions
from pullback.relax.struct_info import flat_infos
from pullback.tir.expr import PrimExpr
from pullback.tir.polynomial import key as size_key


@dataclass(frozen=True)
class EliminateCommonSubexpr(FunctionPass):
    """Merge bindings whose values are the same op on the same operands; never two draws of random numbers, nor what
    makes boxes, each of which is unboxed once.

    Checks: a value is the same if op, attributes and operands are. Calls that do more than compute and MatchCasts stay;
    a variable that leaves its dataflow block becomes an alias.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        return _Merge().function(function)


class _Merge(ExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, Var] = {}

    def rewrite_binding(self, binding: Binding) -> None:
        if isinstance(binding, MatchCast):
            return super().rewrite_binding(binding)
        value = self.expr(binding.value)
        pure = isinstance(value, (Call, TupleGetItem)) and not draws(value) and not _makes_boxes(value)
        pure = pure and not has_effects(value)
        key = value_key(value) if pure else None
        known = self.known.get(key) if key is not None else None
        if known is not None and isinstance(binding.var, DataflowVar):
            self.env[binding.var] = known
            return None
        self.bind(binding.var, value if known is None else known)
        bound = self.env[binding.var]
        if key is not None and known is None and isinstance(bound, Var):
            self.known[key] = bound
        return None


def draws(expr: Any) -> bool:
    """Whether random numbers are drawn without a state, in a region too, or may be: by a function around that is called
    again."""
    return (
        lacks_state(expr)
        or is_self(expr)
        or any(draws(b.value) for _, region in regions(expr) for b in region.bindings)
    )


def _makes_boxes(expr: Any) -> bool:
    """Whether the value is a new box, or has some in it."""
    if not isinstance(expr, Call) or expr.op in (NULL, UNBOX):
        return False
    return any(map(is_handle, flat_infos(expr.struct_info)))


def value_key(expr: Any) -> Any:
    """A hashable key: equal keys mean equal values. Only pure calls have one."""
    if isinstance(expr, Var):
        return ("var", id(expr))
    if isinstance(expr, Constant):
        return ("const", expr.data.dtype.name, expr.data.shape, expr.data.tobytes())
    if isinstance(expr, Tuple):
        return ("tuple", *(value_key(f) for f in expr.fields))
    if isinstance(expr, TupleGetItem):
        return ("item", value_key(expr.tuple_value), expr.index)
    if isinstance(expr, Call) and isinstance(expr.op, (Op, GlobalVar)):
        return ("call", expr.op.name, attrs_key(expr.attrs), expr.sinfo_args, *[value_key(a) for a in expr.args])
    if isinstance(expr, GlobalVar):
        return ("global", expr.name)
    return ("object", id(expr))


def attrs_key(attrs: Mapping[str, Any]) -> Any:
    """A hashable key of an op's attributes."""
    return tuple(sorted([(k, _attr_key(v)) for k, v in attrs.items()])) if attrs else ()


def _attr_key(value: Any) -> str:
    if isinstance(value, PrimExpr):
        return size_key(value)
    if isinstance(value, Function):  # a region, which reads nothing but its parameters
        return structural_digest(value).hex()
    return repr([_attr_key(v) for v in value]) if isinstance(value, tuple) else f"{type(value).__name__}:{value!r}"
