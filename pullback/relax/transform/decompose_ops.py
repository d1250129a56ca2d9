"""DecomposeOps: composite ops become the primitive ops that they are made of.

    y = R.nn.rms_norm(x, w)        →        lv = R.vecdot(x, x, axis=(1,), keepdims=True)
                                            lv1 = R.divide(lv, R.const(3.0, "float32"))
                                            lv2 = R.add(lv1, R.const(1e-05, "float32"))
                                            lv3 = R.rsqrt(lv2)
                                            lv4 = R.multiply(x, lv3)
                                            y = R.multiply(lv4, w)

Fusion then sees ops that it can join with their neighbours, and what forward and backward have in common is computed
once. An op whose meaning depends on it takes the form for training or for inference: batch norm normalises by the
statistics of the batch, or by its moving ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.node import span_scope
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.relax.expr import Call, Expr, Function
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import lacks_state, op_of
from pullback.relax.transform.inline_functions import inline_calls, over_regions


@dataclass(frozen=True)
class _DecomposeOps(Pass):
    """The form of composite ops that ``training`` says."""

    training: ClassVar[bool]
    func_name: str | GlobalVar | None = None

    def run(self, module: IRModule) -> IRModule:
        name = self.func_name.name if isinstance(self.func_name, GlobalVar) else self.func_name
        if name is not None and not isinstance(module[name], Function):
            raise ArgumentError(
                f"{self.name}: {name} is a kernel of the loop IR, not a graph function",
                hint="name an @R.function; a kernel is called by one with R.call_tir",
            )
        result = module.copy()
        for key, function in module.items():
            if isinstance(function, Function) and name in (None, key):
                whole = function if name is None else inline_calls(function, module)
                result[key] = over_regions(whole, module, lambda f: _decomposed(f, self.training))
        return result


@dataclass(frozen=True)
class DecomposeOpsForTraining(_DecomposeOps):
    """Write composite ops in primitive ones, in the form for training (where the op itself does not say otherwise).

        y = R.nn.layer_norm(x, w, b)        →        mean = R.mean(x, axis=(1,), keepdims=True)
                                                     …
                                                     y = R.ewise_fma(normalized, w, b)

    Args:
        func_name: the function to change, a name or a GlobalVar, with what it calls inlined; by default all graph
            functions.

    Checks: raises ArgumentError where ``func_name`` is a kernel. No composite op remains, but for random ones without a
    state, which AddRandomState gives one first. An op with ``training=False`` takes its form for inference.
    """

    training = True


@dataclass(frozen=True)
class DecomposeOpsForInference(_DecomposeOps):
    """Write composite ops in primitive ones, in the form for inference.

        y = R.nn.batch_norm(x, gamma, beta, mean, var)        →        …
                                                                       lv = R.ewise_fma(x, scale, shift)
                                                                       y = (lv, mean, var)

    Args:
        func_name: the function to change, a name or a GlobalVar, with what it calls inlined; by default all graph
            functions.

    Checks: raises ArgumentError where ``func_name`` is a kernel. No composite op remains. Dropout becomes its argument;
    a batch norm gives its moving statistics back unchanged.
    """

    training = False


def decompose_what_has_no_gradient(function: Function) -> Function:
    """Write composite ops without a gradient rule in others, which have one or are primitive."""
    return _decomposed(function, True, lambda call: op_of(call).gradient is None)


def decompose_where(function: Function, wanted: Callable[[Call], bool]) -> Function:
    """Write the composite ops of the wanted calls in others, in the form for training."""
    return _decomposed(function, True, wanted)


def _decomposed(function: Function, training: bool, wanted: Callable[[Call], bool] = lambda call: True) -> Function:
    """Decompose what is wanted, also in what comes of that."""

    def is_left(expr: Expr) -> bool:
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or expr.op.decompose is None:
            return False
        is_drawn_later = training and expr.attrs.get("training", True) and lacks_state(expr)  # by AddRandomState
        return not is_drawn_later and wanted(expr)

    while any(is_left(b.value) for b in function.bindings):
        function = _Decompose(training, is_left).function(function)
    return function


class _Decompose(ExprMutator):
    def __init__(self, training: bool, wanted: Callable[[Call], bool]) -> None:
        super().__init__()
        self.training, self.wanted = training, wanted

    def rewrite_call(self, call: Call) -> Expr:
        if not self.wanted(call):
            return call
        decompose = op_of(call).decompose
        assert decompose is not None
        attrs = dict(call.attrs) | {"training": self.training and call.attrs.get("training", True)}
        span = call.span
        if span is not None and span.origin is None:
            span = replace(span, origin=call)
        with span_scope(span):
            try:
                return decompose(*call.args, **attrs)
            except UserError as error:
                raise type(error)(error.message, span=error.span or call.span, hint=error.hint) from None
