"""FoldConstant: what depends on constants only is computed now, by the interpreter.

    y = R.add(R.const(1.0), R.const(2.0))        →        y = R.const(3.0)

Results larger than their operands stay computed at run time: a module should not grow, and reading a repeated number
from memory is slower than knowing it. So do those of ops that are not the package's: nobody knows what their ``numpy``
depends on, and folding would make it part of the code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.ir.op import Op, is_packaged
from pullback.ir.passes import FunctionPass
from pullback.relax.expr import Binding, Call, Constant, Expr, Function, Var
from pullback.relax.interpreter import conform
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import inner_op, is_collective
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings


@dataclass(frozen=True)
class FoldConstant(FunctionPass):
    """Evaluate calls whose operands are all constants and whose result has one element, or not more than they.

    Checks: the op is one of the package's, and no collective. A call that fails stays, so that it fails when it runs.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        return remove_dead_bindings(_Fold().function(function))


class _Fold(ExprMutator):
    def rewrite_binding(self, binding: Binding) -> None:
        super().rewrite_binding(binding)
        bound = self.env[binding.var]
        value = self.builder.lookup(bound) if isinstance(bound, Var) else bound
        if isinstance(value, Constant):
            self.env[binding.var] = value

    def rewrite_call(self, call: Call) -> Expr:
        info = call.struct_info
        if not isinstance(call.op, Op) or call.op.numpy is None or not is_packaged(inner_op(call)):
            return call
        arrays = [a.data for a in call.args if isinstance(a, Constant)]
        if is_collective(call) or len(arrays) < len(call.args) or not _small(info, max([1, *(a.size for a in arrays)])):
            return call
        try:
            with np.errstate(all="ignore"):
                value = call.op.numpy(*arrays, **call.attrs)
        except UserError:
            return call  # a failed check belongs to run time
        return Constant(conform(value, info, call), span=call.span)


def _small(info: Any, limit: int) -> bool:
    """Whether the type is a tensor of at most ``limit`` elements."""
    if not isinstance(info, TensorStructInfo) or not info.is_static:
        return False
    return math.prod(info.static_shape) <= limit
