"""Frozen layers: what they compute takes its form for inference, in steps of training too."""

from __future__ import annotations

from collections.abc import Collection

from pullback.relax.expr import Call, Expr, Function
from pullback.relax.mutator import ExprMutator


def in_form_for_inference(function: Function, layers: Collection[str]) -> Function:
    """A traced function whose ops in these layers, by name, no longer depend on whether it trains."""
    return _Infer(layers).function(function) if layers else function


class _Infer(ExprMutator):
    def __init__(self, layers: Collection[str]) -> None:
        super().__init__()
        self.layers = layers

    def rewrite_call(self, call: Call) -> Expr:
        if call.span is None or call.span.layer not in self.layers or not call.attrs.get("training", False):
            return call
        attrs = {**call.attrs, "training": False}
        return Call(call.op, call.args, attrs, call.sinfo_args, call.info, span=call.span)
