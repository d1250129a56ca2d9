"""DecomposeOps: composite ops become the primitive ops that they are made of.

    y = R.nn.rms_norm(x, w)        →        lv = R.square(x)
                                            lv1 = R.mean(lv, axis=[1], keepdims=True)
                                            lv2 = R.add(lv1, R.const(1e-05, "float32"))
                                            lv3 = R.rsqrt(lv2)
                                            lv4 = R.multiply(x, lv3)
                                            y = R.multiply(lv4, w)

Fusion then sees ops that it can join with their neighbours, and what forward and backward have in common is computed
once. An op whose meaning depends on it takes the form for training or for inference: batch norm normalises by the
statistics of the batch, or by its moving ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.node import span_scope
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.relax.expr import Call, Expr, Function
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import lacks_state
from pullback.relax.transform.inline_functions import inline_calls


@dataclass(frozen=True)
class _DecomposeOps(Pass):
    """``func_name``: the function to change, a name or a GlobalVar, with what it calls inlined; by default all graph
    functions."""

    training: ClassVar[bool]
    func_name: str | GlobalVar | None = None

    def run(self, module: IRModule) -> IRModule:
        name = self.func_name.name if isinstance(self.func_name, GlobalVar) else self.func_name
        if name is not None and not isinstance(module[name], Function):
            raise ArgumentError(f"{self.name}: {name} is a kernel of the loop IR, not a graph function")
        result = module.copy()
        for key, function in module.items():
            if isinstance(function, Function) and name in (None, key):
                whole = function if name is None else inline_calls(function, module)
                result[key] = _Decompose(self.training).function(whole)
        return result


@dataclass(frozen=True)
class DecomposeOpsForTraining(_DecomposeOps):
    """Write composite ops in primitive ones, in the form for training (where the op itself does not say otherwise)."""

    training = True


@dataclass(frozen=True)
class DecomposeOpsForInference(_DecomposeOps):
    """Write composite ops in primitive ones, in the form for inference."""

    training = False


class _Decompose(ExprMutator):
    def __init__(self, training: bool) -> None:
        super().__init__()
        self.training = training

    def rewrite_call(self, call: Call) -> Expr:
        if not isinstance(call.op, Op) or call.op.decompose is None:
            return call
        training = self.training and call.attrs.get("training", True)
        if training and lacks_state(call):
            return call  # no value yet: AddRandomState has to come first
        attrs = dict(call.attrs) | {"training": training}
        with span_scope(call.span):
            try:
                return call.op.decompose(*call.args, **attrs)
            except UserError as error:
                raise type(error)(error.message, span=error.span or call.span, hint=error.hint) from None
