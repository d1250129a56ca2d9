"""Exported programs of PyTorch as modules, and as IRModules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.nn.parameter import Buffer, Parameter
from pullback.relax.expr import const
from pullback.relax.frontend.imported import Imported
from pullback.relax.frontend.torch.replay import Replay, check_graph
from pullback.relax.struct_info import TensorStructInfo
from pullback.tir.expr import Var as Size

__all__ = ["TorchModel", "from_exported_program", "from_torch"]


class TorchModel(Imported):
    """An exported program: what :func:`from_torch` returns."""

    def __init__(self, program: Any) -> None:
        program = program.run_decompositions({})  # without assignments in place; no operator is taken apart
        check_graph(program.graph)
        signature, sizes = program.graph_signature, {}
        values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
        inputs = [spec for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
        super().__init__([_type_of(spec.arg.name, values[spec.arg.name], sizes) for spec in inputs])
        self.program, self.names = program, [spec.arg.name for spec in inputs]
        self.parameters_of, self.constants_of = {}, {}
        self._take_values()

    def _take_values(self) -> None:
        known: dict[int, Any] = {}
        for spec in self.program.graph_signature.input_specs:
            if spec.kind.name == "PARAMETER":
                tensor = self.program.state_dict[spec.target]
                value = known.setdefault(
                    id(tensor), Parameter(tensor.detach().numpy(), requires_grad=tensor.requires_grad)
                )
            elif spec.kind.name == "BUFFER":
                tensor = self.program.state_dict.get(spec.target, self.program.constants.get(spec.target))
                value = known.setdefault(id(tensor), Buffer(tensor.detach().numpy(), bool(spec.persistent)))
            elif spec.kind.name == "CONSTANT_TENSOR":
                self.constants_of[spec.arg.name] = self.program.constants[spec.target].detach().numpy()
                continue
            elif spec.kind.name == "USER_INPUT":
                continue
            else:
                raise UserError(f"an exported program with a {spec.kind.name} ({spec.target}) cannot be converted")
            self.hold(spec.target, value)
            self.parameters_of[spec.arg.name] = spec.target

    def forward(self, *inputs: Any) -> Any:
        """What the program computes."""
        values = dict(zip(self.names, inputs, strict=True))
        values |= {name: self.value(target) for name, target in self.parameters_of.items()}
        values |= {name: const(array) for name, array in self.constants_of.items()}
        found = Replay(self.program.graph, values).run()
        results = []
        for spec, value in zip(self.program.graph_signature.output_specs, found, strict=True):
            if spec.kind.name == "BUFFER_MUTATION":
                self.assign(spec.target, value)
            elif spec.kind.name == "USER_OUTPUT":
                results.append(value)
            else:
                raise UserError(f"an exported program with a {spec.kind.name} ({spec.target}) cannot be converted")
        return results[0] if len(results) == 1 else tuple(results)


def _type_of(name: str, value: Any, sizes: dict[str, Size]) -> TensorStructInfo:
    """The type of an input; sizes that are symbols in PyTorch are symbols here."""
    if not hasattr(value, "dtype"):
        raise ArgumentError(f"input {name} is a {type(value).__name__}, not a tensor", hint="models take tensors")
    shape = tuple(s if isinstance(s, int) else sizes.setdefault(str(s), Size(str(s), "int64")) for s in value.shape)
    return TensorStructInfo(shape, str(value.dtype).partition(".")[2])


def from_exported_program(program: Any) -> IRModule:
    """The IRModule of a ``torch.export.ExportedProgram``."""
    model = TorchModel(program)
    module: IRModule = model.export(*model.example)
    return module


def from_torch(module: Any, example_inputs: Sequence[Any]) -> TorchModel:
    """A model that ``pullback.trainer`` takes, from a module of PyTorch and an example of its inputs."""
    import torch

    sizes = tuple({0: torch.export.Dim.AUTO} for _ in example_inputs)
    return TorchModel(torch.export.export(module, tuple(example_inputs), dynamic_shapes=sizes))
