"""BindParams: parameters become constants.

def f(x, w): …   with {"w": array}        →        def f(x): … R.const(array) …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.arguments import mapping
from pullback.ir.errors import DTypeError, NameNotFound, ShapeError
from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.convention import attributes_without
from pullback.relax.declared import declared_of, with_declared
from pullback.relax.expr import Constant, Expr, Function, Var
from pullback.relax.mutator import inline_body
from pullback.relax.struct_info import format_info, same_info


@dataclass(frozen=True)
class BindParams(Pass):
    """Replace parameters of a function by constants.

    What the module's attributes say of the function's parameters (``param_num``, ``convention``) is brought up to date.

    Args:
        func_name: the name of the function.
        params: arrays by the names of parameters (or the variables), each of exactly the parameter's shape and dtype.

    Examples:
        >>> @R.function
        ... def main(a: R.Tensor((3,), "float32"), b: R.Tensor((3,), "float32")):
        ...     return a * b
        >>> bind = relax.transform.BindParams("main", {"b": np.array([1, 2, 3], "float32")})
        >>> module = bind(pullback.IRModule({"main": main}))
        >>> [p.name for p in module["main"].params]
        ['a']

    Checks: raises NameNotFound for a name that is no parameter, ShapeError or DTypeError for an array that is not
    exactly of the parameter's type.
    """

    func_name: str
    params: Mapping[Any, Any]

    def run(self, module: IRModule) -> IRModule:
        function = module[self.func_name]
        result = module.copy()
        result[self.func_name] = new = bind_params(function, self.params)
        kept = set(new.params)
        result.attrs.update(attributes_without(module, self.func_name, [p not in kept for p in function.params]))
        return result


def bind_params(function: Function, values: Mapping[Any, Any]) -> Function:
    """``function`` with the named parameters replaced by constants."""
    by_name = {p.name: p for p in function.params}
    bound: dict[Var, Constant] = {}
    for key, value in mapping("params", values).items():
        name = getattr(key, "name", key)
        if name not in by_name:
            raise NameNotFound(f"there is no parameter {name!r}; the parameters are {', '.join(by_name)}")
        constant = value if isinstance(value, Constant) else Constant(np.asarray(value))
        expected, given = by_name[name].struct_info, constant.struct_info
        if not same_info(expected, given):
            kind = ShapeError if getattr(given, "dtype", None) == getattr(expected, "dtype", None) else DTypeError
            raise kind(f"parameter {name} is {format_info(expected)}, got {format_info(given)}")
        bound[by_name[name]] = constant
    rest = tuple(p for p in function.params if p not in bound)
    builder = BlockBuilder()
    builder.begin([p.name for p in rest])
    arguments: dict[Var, Expr] = {p: bound.get(p, p) for p in function.params}
    declared = declared_of(function)
    kept = [d for d, p in zip(declared, function.params, strict=True) if p not in bound] if declared else None
    body = inline_body(function, arguments, builder)
    plain = with_declared(function, None)  # its attributes are those of the new function
    return with_declared(Function(rest, body, None, plain.attrs, span=function.span), kept)
