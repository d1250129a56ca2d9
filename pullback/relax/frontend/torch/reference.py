"""Models of PyTorch as IRModules, in the reference system's forms."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.relax.convention import BACKBONE, OUTPUT, Convention
from pullback.relax.expr import Function, SeqExpr, Tuple
from pullback.relax.frontend.torch.exporting import from_torch, imported_torch, quiet
from pullback.relax.frontend.torch.program import TorchModel
from pullback.relax.frontend.torch.replay import Converting
from pullback.relax.transform import BindParams, DeadCodeElimination, DecomposeOpsForInference

__all__ = ["from_exported_program", "from_fx", "from_pytorch"]

MAIN = "main"


def from_exported_program(
    exported_program: Any,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Converting | None = None,
    run_ep_decomposition: bool = True,
) -> IRModule:
    """The IRModule of a ``torch.export.ExportedProgram``, as in ``tvm.relax.frontend.torch``.

    Its function ``main`` takes the inputs and returns a tuple of the outputs (with ``unwrap_unit_return_tuple`` the
    only one by itself), in the form for inference; parameters are constants. With ``keep_params_as_input`` the function
    is ``backbone``, as ``SetupTrainer`` and ``pullback.trainer`` take it: of inputs, parameters (as many as the
    attribute ``param_num`` says) and states (``state_num``), under PyTorch's names, in both forms. :func:`from_torch`
    makes a model with its values of a program.

    ``custom_convert_map``: converters by the names of operators, as of ``register_converter``.
    ``no_bind_return_tuple`` and ``run_ep_decomposition`` make no difference: assignments in place are always taken
    out, and no operator is taken apart.

    >>> module = from_exported_program(torch.export.export(net.eval(), (x,)))
    >>> y, = pullback.compile(module).function("main")(x)

    Raises UnsupportedOps for operators without a converter, UserError for what else cannot be converted.
    """
    torch = imported_torch()
    if not isinstance(exported_program, torch.export.ExportedProgram):
        raise ArgumentError(
            f"from_exported_program takes an ExportedProgram, got {type(exported_program).__name__}",
            hint="torch.export.export(module, (x,)) makes one; pullback.from_torch takes the module itself",
        )
    model = TorchModel(exported_program, None, custom_convert_map)
    return _module(model, keep_params_as_input, unwrap_unit_return_tuple)


def from_fx(
    model: Any,
    input_info: Sequence[tuple[Sequence[int], str]],
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Converting | None = None,
) -> IRModule:
    """The IRModule of a ``torch.fx.GraphModule``, as in ``tvm.relax.frontend.torch``.

    ``input_info``: shape and dtype of each input, ``[((1, 3, 224, 224), "float32")]``; all sizes are fixed. Options are
    those of :func:`from_exported_program`.

    >>> module = from_fx(torch.fx.symbolic_trace(net), [((1, 784), "float32")])

    Raises what :func:`from_torch` and :func:`from_exported_program` raise.
    """
    torch = imported_torch()
    if not isinstance(model, torch.nn.Module):
        hint = "torch.fx.symbolic_trace(module) makes one"
        raise ArgumentError(f"from_fx takes a GraphModule, got {type(model).__name__}", hint=hint)
    example = tuple(_zeros(torch, f"input {k}", *info) for k, info in enumerate(input_info))
    made = from_torch(model, example, dynamic_shapes=(), converters=custom_convert_map)
    return _module(made, keep_params_as_input, unwrap_unit_return_tuple)


def from_pytorch(
    script_module: Any,
    input_infos: Sequence[tuple[str, Any]],
    custom_convert_map: Converting | None = None,
    default_dtype: str = "float32",
) -> tuple[IRModule, dict[str, np.ndarray]]:
    """The IRModule of a traced or scripted module, and its parameters, as in ``tvm.relay.frontend``.

    ``input_infos``: for each input its name and its shape, or ``(name, (shape, dtype))``. The function ``main`` takes
    inputs of these names, parameters and buffers, in the form for inference; the dict has the values of the latter by
    name, for ``BindParams`` or ``create_executor(…, params=…)``.

    >>> module, params = from_pytorch(torch.jit.trace(net, x), [("input0", x.shape)])

    Raises UserError for modules that PyTorch's own converter (of TorchScript to exported programs) does not take.
    """
    model, names = scripted_model(script_module, input_infos, custom_convert_map, default_dtype)
    model.input_names = names
    return _main(model, unwrap=True), _values(model)


def scripted_model(
    script_module: Any, input_infos: Sequence[tuple[str, Any]], converters: Converting | None, default_dtype: str
) -> tuple[TorchModel, list[str]]:
    """A traced or scripted module as a model, and the names of its inputs: what :func:`from_pytorch` begins with."""
    torch = imported_torch()
    if not isinstance(script_module, torch.jit.ScriptModule):
        raise ArgumentError(
            f"from_pytorch takes a traced or scripted module, got {type(script_module).__name__}",
            hint="torch.jit.trace(module, x) makes one; pullback.from_torch takes the module itself",
        )
    names, example = [], []
    for name, info in input_infos:
        shape, dtype = info if len(info) == 2 and isinstance(info[1], str) else (info, default_dtype)
        names.append(name)
        example.append(_zeros(torch, name, shape, dtype))
    model = TorchModel(_converted(torch, script_module, tuple(example)), None, converters)
    if len(model.input_names) != len(names):
        raise ArgumentError(f"the module takes {len(model.input_names)} inputs, input_infos has {len(names)}")
    return model, names


def _converted(torch: Any, script_module: Any, example: tuple[Any, ...]) -> Any:
    """A scripted module as an ExportedProgram, of the sizes of the example."""
    from torch._export.converter import TS2EPConverter

    try:
        with quiet(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Manually populate")  # buffers that nothing reads
            program = TS2EPConverter(script_module, example).convert()  # of any sizes
            return torch.export.export(program.module(), example)
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ArgumentError(
            f"PyTorch cannot make an exported program of the scripted module: {first}",
            hint="pullback.from_torch(module, example) takes the module that was scripted",
        ) from error


def _zeros(torch: Any, name: str, shape: Any, dtype: str) -> Any:
    found = getattr(torch, str(dtype).rpartition(".")[2], None)
    if not isinstance(found, torch.dtype):
        raise ArgumentError(f"{name} has the dtype {dtype!r}, which is none of PyTorch's", hint='such as "float32"')
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ArgumentError(f"the shape of {name} must be numbers, got {tuple(shape)}", hint="(1, 3, 224, 224)")
    return torch.zeros(tuple(shape), dtype=found)


# -- from a model to functions


def _module(model: TorchModel, keep_params_as_input: bool, unwrap: bool) -> IRModule:
    if keep_params_as_input:
        return model.export(*model.example)
    module = _main(model, unwrap)
    return BindParams(MAIN, _values(model))(module) if model.held else module


def _values(model: TorchModel) -> dict[str, np.ndarray]:
    """Parameters and states by name, each once; buffers that are constants of the program are none."""
    held = (*model.named_parameters(), *((name, b) for name, b in model.named_buffers() if b.persistent))
    return {name: variable.numpy() for name, variable in held}


def _main(model: TorchModel, unwrap: bool) -> IRModule:
    """``main`` of inputs, parameters and states, in the form for inference; it returns the outputs."""
    exported = model.export(*model.example)
    places = Convention.of(exported)[BACKBONE].returned(OUTPUT)
    inferred = DecomposeOpsForInference(BACKBONE)(exported)[BACKBONE]
    body = inferred.body
    fields = body.body.fields if isinstance(body.body, Tuple) else (body.body,)
    outputs = tuple(fields[place] for place in places)
    result = outputs[0] if unwrap and len(outputs) == 1 else Tuple(outputs)
    function = Function(inferred.params, SeqExpr(body.blocks, result), attrs={})
    return DeadCodeElimination()(IRModule({MAIN: function}))
