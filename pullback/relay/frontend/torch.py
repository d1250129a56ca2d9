"""Traced and scripted modules of PyTorch as modules of relay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pullback import ir, relax
from pullback.ir.node import Span
from pullback.relax.frontend.torch.reference import scripted_model
from pullback.relax.frontend.torch.replay import Converting
from pullback.relay.frontend.common import Module, Spelling, computed, in_relay

# What TorchScript calls an op of the graph IR, where that is another name.
SCRIPTED = {
    "nn.conv1d": "_convolution", "nn.conv2d": "_convolution", "nn.conv3d": "_convolution",
    "nn.conv2d_transpose": "_convolution", "nn.leakyrelu": "leaky_relu", "permute_dims": "permute",
    "concat": "cat", "astype": "to", "strided_slice": "slice", "negative": "neg", "subtract": "sub", "multiply": "mul",
    "divide": "div", "nn.adaptive_avg_pool2d": "adaptive_avg_pool2d",
}  # fmt: skip


def from_pytorch(
    script_module: Any,
    input_infos: Sequence[tuple[str, Any]],
    custom_convert_map: Converting | None = None,
    default_dtype: str = "float32",
) -> Module:
    """A module of relay, and its parameters, of a traced or scripted module.

    ``input_infos``: for each input its name and its shape, or ``(name, (shape, dtype))``. ``main`` takes inputs of
    these names and the parameters, named by the operator that reads them first, ``aten::_convolution_0.weight``; calls
    have that operator's name, ``aten::_convolution_0``, for a span.

    >>> mod, params = relay.frontend.from_pytorch(torch.jit.trace(net, x), [("input0", x.shape)])

    Raises UserError for modules that PyTorch's own converter (of TorchScript to exported programs) does not take, and
    UnsupportedOps for operators without a converter.
    """
    model, names = scripted_model(script_module, input_infos, custom_convert_map, default_dtype)
    function = computed(model)
    return in_relay(model, function, names, spelling(function, names))


def spelling(function: relax.Function, inputs: Sequence[str]) -> Spelling:
    """Names of parameters, and spans, after the operators of TorchScript, which are counted by their names."""
    shown = {p: inputs[k] if k < len(inputs) else p.name.rpartition(".")[2] for k, p in enumerate(function.params)}
    counts: Counter[str] = Counter()
    params: dict[str, str] = {}
    places: dict[Any, Span] = {}
    for block in function.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not isinstance(call, relax.Call) or not isinstance(call.op, ir.Op):
                continue
            kind = SCRIPTED.get(call.op.short, call.op.short.rpartition(".")[2])
            name = f"aten::{kind}_{counts[kind]}"
            counts[kind] += 1
            places[call] = Span(name, 0)
            for arg in call.args:
                if isinstance(arg, relax.Var) and arg in shown and arg.name not in params:
                    params[arg.name] = f"{name}.{shown[arg]}"
    params = _distinct(params)
    return Spelling(params, {own: Span(name, 0) for own, name in params.items()}, places)


def _distinct(names: Mapping[str, str]) -> dict[str, str]:
    """The names with a number where two are the same."""
    counts: Counter[str] = Counter()
    found = {}
    for own, name in names.items():
        found[own] = name if not counts[name] else f"{name}_{counts[name]}"
        counts[name] += 1
    return found
