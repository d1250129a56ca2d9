"""RaiseOps: calls of kernels that LegalizeOps made become the ops they came from.

    y = R.call_tir(cls.matmul, (x, w), out_sinfo=R.Tensor(…), origin={"op": "relax.matmul", …})
        →
    y = R.matmul(x, w)

Kernels that nobody calls any more are removed. Kernels written by the user stay: those without an origin, and those
that are not, or are no longer, what their origin becomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.relax.analysis import called_functions
from pullback.relax.expr import Call, Function
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import is_call_tir
from pullback.relax.regions import map_regions
from pullback.relax.transform.legalize_ops import is_lowered


@dataclass(frozen=True)
class RaiseOps(Pass):
    """Undo LegalizeOps.

    Checks: the kernel is what LegalizeOps makes of the call's ``origin``: one that somebody wrote or changed stays.
    """

    def run(self, module: IRModule) -> IRModule:
        result = module.copy()
        if all(isinstance(function, Function) for function in module.functions.values()):
            return result  # no kernels, so no calls of them
        freed: set[str] = set()
        for name, function in module.items():
            if isinstance(function, Function):
                result[name] = _raised(function, module, freed)
        used = {n for f in result.functions.values() if isinstance(f, Function) for n in called_functions(f)}
        for name in freed - used:
            del result[name]
        return result


def _raised(function: Function, module: IRModule, freed: set[str]) -> Function:
    """The function and the regions in it."""
    whole = map_regions(function, lambda region: _raised(region, module, freed))
    return _Raise(module, freed).function(whole)


class _Raise(ExprMutator):
    def __init__(self, module: IRModule, freed: set[str]) -> None:
        super().__init__()
        self.module, self.freed = module, freed

    def expr(self, expr: Any) -> Any:
        origin = expr.attrs.get("origin") if is_call_tir(expr) else None
        if not origin:
            return super().expr(expr)
        args, op = tuple([self.expr(a) for a in expr.args[1].fields]), Op.get(origin["op"])
        if not set(origin["attrs"]) <= set(op.signature.attrs) or (op.te is None and op.kernel is None):
            return super().expr(expr)  # LegalizeOps never made it of that
        raised = Call(op, args, origin["attrs"], span=expr.span)
        if not is_lowered(raised, self.module[expr.args[0]]):
            return super().expr(expr)
        self.freed.add(expr.args[0].name)
        return raised
