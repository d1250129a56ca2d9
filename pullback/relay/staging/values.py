"""The values of a program that is staged: graph expressions, tuples and data of them, functions, references."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback import relax
from pullback.relax.struct_info import TupleStructInfo, format_info
from pullback.relay.evaluate.graph import Uses
from pullback.relay.evaluate.values import Data
from pullback.relay.expr import Function
from pullback.relay.staging.errors import HINT, NotDataflow
from pullback.relay.staging.scope import Scope

MOST_FOLDED = 64  # elements of a constant that is computed meanwhile


class StagedFunction:
    """A function with the scope that it was made in; ``name`` is that of a function of the module, or of a variable."""

    __slots__ = ("function", "name", "recursive", "scope", "uses")

    def __init__(self, function: Function, scope: Scope | None, uses: Uses, name: str, recursive: bool) -> None:
        self.function, self.scope, self.uses, self.name, self.recursive = function, scope, uses, name, recursive


class StagedRef:
    """A reference: ``value`` is what it holds at this point of the program. ``born`` orders them by age."""

    __slots__ = ("born", "value")

    def __init__(self, value: Any, born: int) -> None:
        self.value, self.born = value, born


def construct(value: Any) -> str:
    if isinstance(value, StagedRef):
        return "reference"
    return "data type" if isinstance(value, Data) else "closure"


def kind_of(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} values"
    if isinstance(value, relax.Expr):
        return format_info(value.struct_info)
    if isinstance(value, Data):
        return f"a value of constructor {value.constructor.name}" if value.constructor is not None else "data"
    return "a reference" if isinstance(value, StagedRef) else "a function"


def is_graph_value(value: Any) -> bool:
    """Whether it is a tensor, or tuples of such."""
    return all(map(is_graph_value, value)) if isinstance(value, tuple) else isinstance(value, relax.Expr)


def known_value(value: Any) -> Any:
    """The arrays of a value that is constant; None where it is not."""
    if isinstance(value, tuple):
        fields = tuple(map(known_value, value))
        return None if any(f is None for f in fields) else fields
    return value.data if isinstance(value, relax.Constant) else None


def constants(value: Any) -> Any:
    return tuple(map(constants, value)) if isinstance(value, tuple) else relax.Constant(np.asarray(value))


def is_small(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(is_small, value))
    return value is not None and value.size <= MOST_FOLDED and value.dtype.kind in "biu"


def to_graph(value: Any, what: str = "a value", span: Any = None) -> relax.Expr:
    """A value as a graph expression.

    Raises NotDataflow where it is none.
    """
    if isinstance(value, tuple):
        return relax.Tuple(tuple([to_graph(v, what, span) for v in value]))
    if not isinstance(value, relax.Expr):
        raise NotDataflow(f"{construct(value)}: {what} is {kind_of(value)}, no tensor", span=span, hint=HINT)
    return value


def nested_of(expr: relax.Expr) -> Any:
    """A graph expression as a value: its fields in a tuple, where it is one."""
    if isinstance(expr.struct_info, TupleStructInfo):
        return tuple([nested_of(relax.TupleGetItem(expr, k)) for k in range(len(expr.struct_info.fields))])
    return expr
