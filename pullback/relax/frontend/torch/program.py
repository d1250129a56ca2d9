"""Exported programs of PyTorch as modules, and as IRModules."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError, suggestion
from pullback.nn.functional.form import in_train_phase
from pullback.nn.parameter import Buffer, Parameter
from pullback.relax.expr import const
from pullback.relax.frontend.imported import Imported
from pullback.relax.frontend.torch.replay import (
    Converting,
    Replay,
    check_graph,
    dtype_of,
    graphs_of,
    is_operator,
    layer_of,
    values_of,
)
from pullback.relax.frontend.torch.sizes import SizeNames
from pullback.relax.struct_info import TensorStructInfo
from pullback.runtime.dtype import NUMPY_DTYPES

__all__ = ["TorchModel", "functional"]


def functional(program: Any) -> Any:
    """The program without assignments in place, and with no operator taken apart: what a training step computes stays
    convolutions, norms, attention and recurrent layers. One that PyTorch cannot write so, as it is for loops whose
    carries are also read inside, is taken as it is, if nothing in it is assigned in place."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)  # of PyTorch's own calls
            return program.run_decompositions({})
    except Exception as error:
        written = sorted(
            {str(node.target) for graph in graphs_of(program.graph) for node in graph.nodes if _writes(node)}
        )
        if not written:
            return program
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UserError(
            f"PyTorch cannot write the program without assignments in place ({', '.join(written)}): {said}",
            hint="ep.run_decompositions({}) shows all that it said; y = y + 1 in the place of y += 1 needs none",
        ) from error


def _writes(node: Any) -> bool:
    return is_operator(node) and bool(node.target._schema.is_mutable)


class TorchModel(Imported):
    """An exported program as a module: what :func:`from_torch` returns.

    ``input_names`` and ``output_names``: those of the flat inputs and outputs. Parameters have the names that they have
    in PyTorch, ``model.state_dict()`` those of PyTorch's. ``outputs``: the names of the outputs to keep.
    """

    def __init__(
        self, program: Any, outputs: Sequence[str] | None = None, converters: Converting | None = None
    ) -> None:
        self.program, self.converters = functional(program), converters
        graph, signature = self.program.graph, self.program.graph_signature
        values = {node.name: node.meta.get("val") for node in graph.nodes if node.op == "placeholder"}
        self.fixed: dict[str, Any] = {}  # inputs that are no tensors: numbers, strings, None
        self.constants: dict[str, np.ndarray] = {}
        self.held_as: dict[str, str] = {}  # placeholders of parameters and buffers: their names in the module
        inputs: list[TensorStructInfo] = []
        names = SizeNames()
        for spec in signature.input_specs:
            if spec.kind.name == "USER_INPUT":
                if hasattr(spec.arg, "value"):
                    self.fixed[spec.arg.name] = spec.arg.value
                else:
                    inputs.append(_type_of(spec.arg.name, values[spec.arg.name], names))
        super().__init__(inputs)
        self.placeholders = [
            s.arg.name for s in signature.input_specs if s.kind.name == "USER_INPUT" and s.arg.name not in self.fixed
        ]
        self.input_names = list(self.placeholders)
        self.output_names = _output_names(self.program)
        self.kept = self._chosen(outputs)
        check_graph(graph, converters)
        self._hold_values()
        for node in graph.nodes:
            self.part(layer_of(node) or "")

    def _chosen(self, outputs: Sequence[str] | None) -> list[int]:
        """The places of the outputs that ``forward`` returns."""
        specs = [s for s in self.program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
        tensors = [k for k, s in enumerate(specs) if type(s.arg).__name__ == "TensorArgument"]
        if outputs is None:
            found = tensors
        else:
            wanted = [outputs] if isinstance(outputs, str) else list(outputs)
            known = {self.output_names[k]: k for k in tensors}
            for name in wanted:
                if name not in known:
                    hint = f"its outputs are {', '.join(known)}"
                    raise ArgumentError(f"the model has no output {name!r}{suggestion(name, known)}", hint=hint)
            found = [known[name] for name in wanted]
        if not found:
            raise UserError("the model returns no tensor, so there is nothing to train or predict")
        self.output_names = [self.output_names[k] for k in found]
        return found

    # ---- values ------------------------------------------------------------------------------------------------------

    def _hold_values(self) -> None:
        """Parameters, buffers and constants with their values; one tensor under two names is one here."""
        program, known = self.program, {}
        signature = program.graph_signature
        written = set(signature.buffers_to_mutate.values())
        for spec in signature.input_specs:
            kind, name = spec.kind.name, spec.target
            if kind == "USER_INPUT":
                continue
            if kind == "CONSTANT_TENSOR":
                self.constants[spec.arg.name] = values_of(program.constants[name])
                continue
            if kind not in ("PARAMETER", "BUFFER"):
                raise _not_converted(kind, name)
            tensor = program.state_dict[name] if name in program.state_dict else program.constants[name]
            if id(tensor) not in known:
                _check_dtype(name, tensor)
                known[id(tensor)] = (
                    Parameter(values_of(tensor), tensor.requires_grad)
                    if kind == "PARAMETER"
                    else Buffer(values_of(tensor), bool(spec.persistent) or name in written)
                )
            self.hold(name, known[id(tensor)])
            self.held_as[spec.arg.name] = name
        for name, tensor in program.state_dict.items():
            if name not in self.held and id(tensor) in known:
                self.hold(name, known[id(tensor)])

    # ---- the computation ---------------------------------------------------------------------------------------------

    def forward(self, *inputs: Any) -> Any:
        """What the program computes: its output, or a tuple of them in the order of ``output_names``."""
        values: dict[str, Any] = dict(zip(self.placeholders, inputs, strict=True)) | self.fixed
        values |= {name: self.value(held) for name, held in self.held_as.items()}
        values |= {name: const(array) for name, array in self.constants.items()}
        types = {node.name: node.meta.get("val") for node in self.program.graph.nodes if node.op == "placeholder"}
        shapes = [(types[name].shape, value.shape) for name, value in zip(self.placeholders, inputs, strict=True)]
        found = Replay(self.program.graph, values, self.converters, SizeNames.bound(shapes)).run()
        results = []
        for spec, value in zip(self.program.graph_signature.output_specs, found, strict=True):
            if spec.kind.name == "BUFFER_MUTATION":
                self.assign(spec.target, in_train_phase(value, self.value(spec.target)))
            elif spec.kind.name == "USER_OUTPUT":
                results.append(value)
            elif spec.kind.name == "USER_INPUT_MUTATION":
                warnings.warn(
                    f"the model writes into its input {spec.target}: here inputs stay as they are", stacklevel=2
                )
            else:
                raise _not_converted(spec.kind.name, spec.target)
        kept = tuple(results[k] for k in self.kept)
        return kept[0] if len(kept) == 1 else kept

    def __repr__(self) -> str:
        inputs = ", ".join(f"{n}: {t}" for n, t in zip(self.input_names, self.example, strict=True))
        count = len({id(variable) for variable in self.held.values()})
        return f"TorchModel({inputs} -> {', '.join(self.output_names)}; {count} parameters and buffers)"


def _not_converted(kind: str, name: Any) -> UserError:
    what = kind.lower().replace("_", " ")
    return UserError(
        f"an exported program with a {what} ({name}) cannot be converted",
        hint="torch.export.export of a module, without effect tokens, custom objects or gradients, is converted",
    )


def _check_dtype(name: str, tensor: Any) -> None:
    if dtype_of(tensor.dtype) not in NUMPY_DTYPES:
        raise UserError(f"{name} has the dtype {tensor.dtype}, which there is not here")
    if tensor.is_sparse or tensor.is_quantized:
        raise UserError(f"{name} is a {'sparse' if tensor.is_sparse else 'quantized'} tensor", hint="make it dense")


def _type_of(name: str, value: Any, sizes: SizeNames) -> TensorStructInfo:
    """The type of an input; sizes that are symbols in PyTorch are symbols here."""
    if not hasattr(value, "dtype"):
        raise ArgumentError(
            f"input {name} is a {type(value).__name__}, not a tensor",
            hint="numbers are part of the model, by their values in the example; dynamic_shapes cannot vary them",
        )
    shape = tuple(sizes.size(size, axis) for axis, size in enumerate(value.shape))
    return TensorStructInfo(shape, dtype_of(value.dtype))


def _output_names(program: Any) -> list[str]:
    """Names of all outputs: ``logits``, ``hidden_states.0``; of those that have none ``output``, or ``output.0``
    and so on."""
    from torch.utils import _pytree as pytree

    spec = program.call_spec.out_spec
    specs = [s for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
    names = [""] * len(specs)
    if spec is not None and spec.num_leaves == len(specs):
        paths = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(len(specs))), spec))[0]
        names = [".".join(filter(None, map(_key, path))) for path, _ in paths]
    for k, name in enumerate(names):
        if not name or name.isdigit():  # of a tuple, or the only one
            names[k] = "output" if len(names) == 1 else f"output.{name or k}"
    return names


def _key(key: Any) -> str:
    """A part of a path: a key, an index, or an attribute."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
