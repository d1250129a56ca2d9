"""DynamicToStatic: operators of values become those of attributes where the values are constants.

    dyn.reshape(%x, shape_of(%y)), where %y: Tensor[(2, 3), …]      →      reshape(%x, newshape=[2, 3])

Constants are folded first, and again after each round, as one static shape makes others known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relay.expr import Call, Constant, Expr, Function, Let, Tuple, Var
from pullback.relay.op.meaning import resolve
from pullback.relay.op.registry import Op
from pullback.relay.transform.fold_constant import FoldConstant
from pullback.relay.transform.infra import CallRewriter, optimizable


@dataclass(frozen=True)
class DynamicToStatic(Pass):
    """Replace ``dyn.`` operators of constant shapes by static ones.

    Checks: the operands that say the shape are constants after folding; other calls stay dynamic. A declared result
    type that became narrower is left to inference.
    """

    opt_level = 2

    def run(self, module: IRModule) -> IRModule:
        module = FoldConstant().run(module)
        while True:
            result = module.copy()
            for name, function in module.items():
                if optimizable(function):
                    result[name] = _Resolve().visit(function)
            if all(result[name] is function for name, function in module.items()):
                return module
            module = FoldConstant().run(result)


class _Resolve(CallRewriter):
    """Where something became static, declared types that it is narrower than are left to inference."""

    def visit_function(self, function: Function) -> Expr:
        new = super().visit_function(function)
        assert isinstance(new, Function)
        return new if new.body is function.body else new.replace(ret_type=None)

    def visit_let(self, let: Let) -> Expr:
        if self.visit(let.value) is not let.value:
            self.memo_map.setdefault(let.variable, Var(let.variable.name, span=let.variable.span))
        return super().visit_let(let)

    def rewrite(self, old: Call, new: Call) -> Expr | None:
        if not isinstance(new.op, Op) or new.op.static is None:
            return None
        found = resolve(new.op, [_value(arg) for arg in new.args], new.attrs)
        if found is None:
            return None
        op, kept, attrs = found
        return Call(op, tuple(new.args[i] for i in kept), attrs, span=new.span)


def _value(expr: Expr) -> Any:
    """The array of a constant, the arrays of a tuple of constants, or None."""
    if isinstance(expr, Constant):
        return expr.data.numpy()
    if isinstance(expr, Tuple):
        constants = [f for f in expr.fields if isinstance(f, Constant)]
        return tuple(f.data.numpy() for f in constants) if len(constants) == len(expr.fields) else None
    return None
