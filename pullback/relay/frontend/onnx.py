"""Models of ONNX as modules of relay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.relay.frontend.common import Module, computed, in_relay


def from_onnx(
    model: Any,
    shape: Mapping[str, Sequence[Any]] | None = None,
    dtype: str = "float32",
    opset: int | None = None,
    freeze_params: bool = False,
    convert_config: Any = None,
    export_node_renamed_model_path: str | None = None,
) -> Module:
    """A module of relay, and its parameters, of a model of ONNX.

    ``shape``: shapes of inputs by name. ``main`` takes the inputs and the initialisers under their names; with
    ``freeze_params`` these are constants of the function. dtypes and the opset are those of the file.

    >>> mod, params = relay.frontend.from_onnx("net.onnx", {"x": (1, 3, 224, 224)})

    Raises what :func:`pullback.from_onnx` raises.
    """
    from pullback.relax.frontend.onnx import OnnxModel

    if opset is not None or convert_config is not None or export_node_renamed_model_path is not None:
        raise ArgumentError(
            "from_onnx takes the opset that the file names, and no convert_config",
            hint="onnx.version_converter writes a file of another opset",
        )
    made = OnnxModel(model, shape)
    function = computed(made)
    found, params = in_relay(made, function, made.inputs)
    if freeze_params:
        from pullback.relay.build_module import bind_params_by_name

        return type(found).from_expr(bind_params_by_name(found["main"], params)), {}
    return found, params
