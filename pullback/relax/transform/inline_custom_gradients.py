"""InlineCustomGradients: a call with a gradient of its own becomes what it computes.

    y = R.custom((x,), function=f, adjoint=g)        →        y = f(x)

Passes that differentiate come before it, kernels after it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.ir.node import span_scope
from pullback.ir.passes import FunctionPass
from pullback.relax.control import CUSTOM
from pullback.relax.expr import Binding, Call, Function
from pullback.relax.mutator import Emitter, ExprMutator
from pullback.relax.transform.inline_functions import over_regions


@dataclass(frozen=True)
class InlineCustomGradients(FunctionPass):
    """Forget the gradients of ``R.custom_gradient``, which :class:`Gradient` and :class:`JVP` have asked for.

    Checks: it comes after all that differentiates. The adjoints are forgotten.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        return _inlined(function)


def inline_custom_gradients(function: Function, module: IRModule) -> Function:
    """:class:`InlineCustomGradients` of a function and of the regions in it."""
    return over_regions(function, module, _inlined)


def _inlined(function: Function) -> Function:
    if not any(isinstance(b.value, Call) and b.value.op is CUSTOM for b in function.bindings):
        return function
    return _Inline().function(function)


class _Inline(ExprMutator):
    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value
        if not isinstance(value, Call) or value.op is not CUSTOM:
            super().rewrite_binding(binding)
            return
        function: Function = value.attrs["function"]
        operands = self.expr(value.args[0]).fields
        inner = Emitter(self.builder, dict(zip(function.params, operands, strict=True)), flatten=True)
        with span_scope(value.span):
            for block in function.body.blocks:
                inner.block(block)
            self.bind(binding.var, inner.expr(function.body.body))
