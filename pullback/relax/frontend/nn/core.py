"""Modules that export their methods, and parameters made of a shape and a dtype."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback import nn
from pullback.ir.errors import ArgumentError, NameNotFound, UserError, suggestion
from pullback.ir.module import IRModule
from pullback.nn.export import free_name, traced
from pullback.nn.trace import active_trace
from pullback.relax.expr import Function, Var
from pullback.relax.frontend.nn import spec as specs
from pullback.relax.struct_info import StructInfo, TupleStructInfo


class Parameter(nn.Parameter):
    """A parameter of a shape and a dtype, float32 by default: zeros until a value is loaded or set (``data``)."""

    def __init__(self, shape: Sequence[int], dtype: str | None = None) -> None:
        if not isinstance(shape, (tuple, list)) or not all(isinstance(size, int) for size in shape):
            raise ArgumentError(f"the shape of a parameter must be ints, got {shape!r}", hint="such as (128, 784)")
        super().__init__(tuple(shape), dtype=dtype)


class Module(nn.Module):
    """A module of ``pullback.nn`` that exports its methods as TVM's do."""

    def export_tvm(
        self, spec: Mapping[str, Any], debug: bool = False, allow_extern: bool = False
    ) -> tuple[IRModule, list[tuple[str, nn.Parameter]]]:
        """An IRModule with a function for each method that ``spec`` names, and the parameters by name.

        ``spec`` gives for each method a mapping from arguments to their types: ``{"forward": {"x": spec.Tensor(["n",
        784], "float32")}}``. A function takes these, in the order of the method's parameters, and then all parameters
        of the module; its attribute ``num_input`` says how many come before the parameters.

        Raises UserError for what is not there: effects (``debug=True``), integers as arguments, buffers that are states
        (``net.export`` has them), packed parameters.
        """
        if debug:
            raise UserError("debug=True asks for effects, which there are none of", hint="run what export_tvm returns")
        if not isinstance(spec, Mapping) or not spec:
            raise ArgumentError(
                f"spec must be a mapping from methods to their arguments, got {spec!r}",
                hint='such as {"forward": {"x": spec.Tensor([1, 784], "float32")}}',
            )
        functions = {name: self._function(name, given) for name, given in spec.items()}
        return IRModule(functions), list(self.named_parameters())

    def _function(self, name: str, given: Any) -> Function:
        method = getattr(type(self), name, None)
        if not inspect.isfunction(method):
            known = [n for n, m in inspect.getmembers(type(self), inspect.isfunction) if not n.startswith("_")]
            raise NameNotFound(f"{type(self).__name__} has no method {name!r}{suggestion(name, known)}")
        arguments = self._arguments(name, given)
        inputs = [Var(free_name(self, argument), info) for argument, info in arguments.items()]
        values = dict(zip(arguments, map(_unpacked, inputs), strict=True))
        bound: Callable[..., Any] = getattr(self, name)
        function, states, _ = traced(self, inputs, lambda: active_trace().call(self, bound, (), values))
        if states:
            raise UserError(
                f"{type(self).__name__} has {len(states)} buffers that are states, and export_tvm has none",
                hint="net.export(example) takes and returns them",
            )
        return function.with_attrs({"num_input": len(inputs)})

    def _arguments(self, name: str, given: Any) -> dict[str, StructInfo]:
        """The types of a method's arguments, in its order."""
        if not isinstance(given, Mapping):
            raise ArgumentError(f"the spec of {name} must be a mapping from its arguments, got {given!r}")
        modes = given.get("$", {})
        if modes.get("param_mode", "plain") != "plain":
            mode = modes["param_mode"]
            raise UserError(f"param_mode must be 'plain', got {mode!r}", hint="functions take parameters one by one")
        parameters = inspect.signature(getattr(self, name)).parameters
        unknown = [n for n in given if n not in parameters and n != "$"]
        missing = [n for n, p in parameters.items() if p.default is p.empty and n not in given]
        if unknown or missing:
            problem = f"no argument {unknown[0]!r}" if unknown else f"the argument {missing[0]!r}, which has no spec"
            raise ArgumentError(f"{name} has {problem}", hint=f"its arguments are {', '.join(parameters)}")
        sizes: dict[str, Any] = {}
        return {n: specs.info_of(given[n], n, sizes) for n in parameters if n in given}


def _unpacked(value: Any) -> Any:
    """A tuple argument as a tuple of its items."""
    info = value.struct_info
    return tuple(_unpacked(value[k]) for k in range(len(info.fields))) if isinstance(info, TupleStructInfo) else value


class ModuleList(Module, nn.ModuleList):
    """A list of modules, which its parent has too."""


class ModuleDict(Module, nn.ModuleDict):
    """Modules by name, which their parent has too."""
