"""Imported: a module whose parameters have their names in another framework, and whose forward replays a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.nn.module import Module
from pullback.nn.parameter import Buffer, Parameter, Variable
from pullback.nn.trace import active_trace
from pullback.relax.struct_info import TensorStructInfo

__all__ = ["Imported"]


class _Part(Module):
    """What has a dotted name of its own, such as ``layer1.0``, and no forward."""


class Imported(Module):
    """A model that another framework wrote. ``pullback.trainer`` takes it as any module, and needs no example.

    ``example``: the types of its inputs, with symbolic sizes where the model takes any. Parameters and buffers have the
    names and shapes that they have in the source, so ``state_dict()`` goes back there as it is. One that is held under
    two names (tied weights) is one parameter. Subclasses override ``forward``.
    """

    example: tuple[TensorStructInfo, ...]
    input_names: Sequence[str] | None = None  # of the inputs of forward, where the source has names

    def __init__(self, example: Sequence[TensorStructInfo]) -> None:
        self.example = tuple(example)
        self.held: dict[str, Variable] = {}  # by dotted name

    def _own_example(self) -> tuple[TensorStructInfo, ...]:
        return self.example

    def _own_input_names(self) -> Sequence[str] | None:
        return self.input_names

    def hold(self, name: str, variable: Variable) -> None:
        """Make a parameter or buffer part of the module under its dotted name; the same one may have several."""
        outer, _, last = name.rpartition(".")
        module = self.part(outer)
        if isinstance(variable, Parameter):
            module.register_parameter(last, variable)
        elif isinstance(variable, Buffer):
            module.register_buffer(last, variable)
        else:
            raise ArgumentError(f"{name} must be a Parameter or a Buffer, got {type(variable).__name__}")
        self.held[name] = variable

    def part(self, name: str) -> Module:
        """The module of a dotted name, which is made where there is none: one that can be frozen."""
        module: Module = self
        for part in name.split(".") if name else ():
            inner = module._modules.get(part)
            if inner is None:
                inner = _Part()
                module.register_module(part, inner)
            module = inner
        return module

    def value(self, name: str) -> Any:
        """The graph value of a parameter or buffer, in ``forward``."""
        return active_trace().value(self.held[name])

    def assign(self, name: str, value: Any) -> None:
        """Give a buffer another value from this step on, in ``forward``."""
        active_trace().assign(self.held[name], name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.held)} parameters and buffers, {', '.join(map(str, self.example))})"
