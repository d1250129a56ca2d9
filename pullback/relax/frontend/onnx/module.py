"""Models of ONNX as IRModules, in the form of TVM's importer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.nn.export import free_name, traced
from pullback.relax.expr import Function, SeqExpr, Tuple, Var
from pullback.relax.frontend.onnx.model import OnnxModel
from pullback.relax.frontend.onnx.replay import identifier
from pullback.relax.transform import BindParams, DeadCodeElimination, DecomposeOpsForInference

__all__ = ["from_onnx"]


def from_onnx(
    model: Any,
    shape_dict: Mapping[str, Sequence[Any]] | None = None,
    dtype_dict: Any = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
) -> IRModule:
    """The IRModule of a model of ONNX, whose function ``main`` computes it in the form for inference.

    ``model``, ``shape_dict``: as in :func:`pullback.from_onnx`, which also trains. Weights are constants of the
    function, or with ``keep_params_in_input`` its last parameters; then the function's attribute ``params`` has their
    values, in that order. TVM's ``relax.frontend.onnx.from_onnx``; ``opset``, if given, must be the model's, and
    ``dtype_dict`` says nothing that the file does not: each input has the type that is written there.

    >>> module = relax.frontend.onnx.from_onnx("classifier.onnx", keep_params_in_input=True)
    >>> params = module["main"].attrs["params"]

    Raises what :func:`pullback.from_onnx` raises.
    """
    imported = OnnxModel(model, shape_dict)
    found = next((e.version for e in imported.model.opset_import if e.domain in ("", "ai.onnx")), None)
    if opset is not None and opset != found:
        raise ArgumentError(
            f"opset={opset} is asked for, the model is written in opset {found}",
            hint="a model means what its own opset says; leave opset out",
        )
    return as_module(imported, keep_params_in_input)


def as_module(imported: OnnxModel, keep_params_in_input: bool = False) -> IRModule:
    """The IRModule of an imported model, in the form for inference."""
    names = [identifier(name) for name in imported.inputs]
    inputs = [Var(free_name(imported, n), t) for n, t in zip(names, imported.example, strict=True)]
    function, states, _ = traced(imported, inputs, lambda: imported(*inputs))
    kept = [*imported.parameters(), *states]
    body = function.body
    outputs = body.body.fields[: len(imported.outputs)] if isinstance(body.body, Tuple) else (body.body,)
    result = outputs[0] if len(outputs) == 1 else Tuple(outputs)
    module = IRModule({"main": Function(function.params, SeqExpr(body.blocks, result))})
    module = DeadCodeElimination()(DecomposeOpsForInference("main")(module))
    values = {p.name: np.asarray(v.data) for p, v in zip(function.params[len(inputs) :], kept, strict=True)}
    if not keep_params_in_input:
        return BindParams("main", values)(module)
    main = module["main"]
    return IRModule({"main": Function(main.params, main.body, attrs={**main.attrs, "params": tuple(values.values())})})
