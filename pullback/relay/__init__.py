"""relay: the older language in front of the graph IR, with its executors, passes, gradient and importers.

    x = relay.var("x", shape=(10,))
    f = relay.Function([x], relay.log(x) * x)
    df = relay.transform.gradient(f)
    relay.create_executor("vm").evaluate(df)(np.ones(10, "float32"))

Operators are attributes by their names, ``relay.add``, ``relay.nn.dense``; ``relay.op.get(name)`` finds any.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pullback.ir.errors import NoAttribute, suggestion
from pullback.ir.node import SourceName, Span
from pullback.relay import op
from pullback.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from pullback.relay.duplicate import duplicate  # at once: else the name is the module
from pullback.relay.expr import (
    Call,
    Constant,
    Expr,
    ExprWithOp,
    Function,
    FunctionWithFields,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    RelayExpr,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
    const,
    var,
)
from pullback.relay.op.registry import Op
from pullback.relay.ty import (
    Any as AnySize,
)
from pullback.relay.ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    RelayRefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeConstraint,
    TypeKind,
    TypeRelation,
    TypeVar,
    scalar_type,
)
from pullback.runtime.registry import register_func

globals()["Any"] = AnySize  # relay.Any() is a size; in this file the name is typing's

# What is loaded when it is first used: names by the modules that hold them. A module holds itself under its own name.
_ROOMS = {
    "analysis": ["analysis", "post_order_visit", "free_vars"],
    "adt": ["adt"],
    "aot": ["aot"],
    "backend": ["backend"],
    "build_module": ["build_module", "build", "build_config", "create_executor", "optimize", "bind_params_by_name"],
    "dataflow_pattern": ["dataflow_pattern"],
    "expr": ["expr"],
    "expr_functor": ["expr_functor", "ExprFunctor", "ExprVisitor", "ExprMutator"],
    "frontend": ["frontend"],
    "ir_pass": ["ir_pass"],
    "loops": ["loops"],
    "lower": ["lower"],
    "param_dict": ["param_dict", "save_param_dict", "load_param_dict"],
    "prelude": ["prelude"],
    "scope_builder": ["scope_builder", "ScopeBuilder"],
    "testing": ["testing"],
    "text": ["parse", "parse_expr", "fromtext", "astext", "save_json", "load_json"],
    "transform": ["transform"],
    "ty": ["ty", "ShapeVar"],
    "type_functor": ["type_functor", "TypeFunctor", "TypeVisitor", "TypeMutator"],
    "visitor": ["bind"],
    "vm": ["vm"],
}
_WHERE = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    """A part that is loaded when it is first used, or an operator."""
    if name in _WHERE:
        module = importlib.import_module(f"{__name__}.{_WHERE[name]}")
        found = module if name == _WHERE[name] else getattr(module, name)
    elif name.startswith("__"):
        raise AttributeError(name)
    else:
        found = getattr(op, name, None)
        if found is None:
            hint = "relay.op.get(name) finds any operator"
            raise NoAttribute(f"there is no relay.{name}{suggestion(name, [*_WHERE, *Op.registry])}", hint=hint)
    globals()[name] = found
    return found


@register_func("relay.build_module.BindParamsByName", override=True)
def _bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Function:
    from pullback.relay.build_module import bind_params_by_name  # loaded when it is first used

    return bind_params_by_name(func, params)


def __dir__() -> list[str]:
    return sorted({*__all__, *_WHERE, *(name.partition(".")[0] for name in Op.registry)})


__all__ = [
    "Call",
    "Clause",
    "Constant",
    "Constructor",
    "Expr",
    "ExprWithOp",
    "FuncType",
    "Function",
    "FunctionWithFields",
    "GlobalTypeVar",
    "GlobalVar",
    "If",
    "IncompleteType",
    "Let",
    "Match",
    "Op",
    "Pattern",
    "PatternConstructor",
    "PatternTuple",
    "PatternVar",
    "PatternWildcard",
    "RefCreate",
    "RefRead",
    "RefType",
    "RefWrite",
    "RelayExpr",
    "RelayRefType",
    "SourceName", "Span",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "TupleWrapper",
    "Type",
    "TypeCall",
    "TypeConstraint",
    "TypeData",
    "TypeKind",
    "TypeRelation",
    "TypeVar",
    "Var",
    "const",
    "duplicate",
    "op",
    "scalar_type",
    "var",
]  # fmt: skip
