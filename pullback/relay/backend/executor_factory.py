"""What ``relay.build`` returns: a library with its graph and parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pullback.deploy.function import FunctionLibrary
from pullback.ir.errors import ArgumentError, NameNotFound
from pullback.ir.module import IRModule
from pullback.relax.struct_info import flat_infos
from pullback.relay.backend.graph import flat_names
from pullback.relay.backend.graph_json import graph_json
from pullback.relay.backend.native import NativeFunction, native_function
from pullback.relay.backend.options import Executor
from pullback.runtime.graph_module import GraphModule, Slot
from pullback.runtime.loaded import device_of
from pullback.runtime.tensor import Tensor
from pullback.target import Target


class NativeProgram:
    """A lowered function as what a :class:`GraphModule` runs; it is compiled when it is first run."""

    def __init__(self, lowered: IRModule, target: Target, values: Mapping[str, Tensor]) -> None:
        main = lowered["main"]
        self.lowered, self.target = lowered, target
        self.names = flat_names([p.name for p in main.params], [p.struct_info for p in main.params])
        infos: list[Any] = [info for p in main.params for info in flat_infos(p.struct_info)]
        self.inputs = [Slot(n, _sizes(i), i.dtype) for n, i in zip(self.names, infos, strict=True)]
        results: list[Any] = flat_infos(main.ret_struct_info)
        self.outputs = [Slot(f"output{k}", _sizes(i), i.dtype) for k, i in enumerate(results)]
        self.values = {self.names.index(name): value for name, value in values.items()}

    @cached_property
    def text(self) -> str:
        return graph_json(self.lowered, self.names)

    @cached_property
    def native(self) -> NativeFunction:
        return native_function(self.lowered, self.target)

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return self.native(tensors)


def _sizes(info: Any) -> tuple[int | None, ...]:
    return tuple(s if isinstance(s, int) else None for s in info.shape)


class Library:
    """A compiled function: ``lib["default"](device)`` is a :class:`GraphModule` of it."""

    def __init__(self, program: NativeProgram, name: str) -> None:
        self.program, self.name = program, name

    @property
    def bare(self) -> NativeProgram:
        """The program without values of inputs."""
        return NativeProgram(self.program.lowered, self.program.target, {})

    def __getitem__(self, name: str) -> Callable[..., GraphModule]:
        if name not in ("default", self.name):
            raise NameNotFound(f"the library has no function {name!r}", hint='it has "default"')
        return lambda device=None: GraphModule(self.program, device_of(device))

    def get_graph_json(self) -> str:
        """The graph, in JSON."""
        return self.program.text

    def get_source(self, fmt: str = "") -> str:
        """The function in the graph IR, as script."""
        return self.program.lowered.script()

    def export_library(self, file_name: str | os.PathLike[str], **options: Any) -> Path:
        """Write the function, and the values of its parameters, as a shared library, which
        ``pullback.runtime.load_module`` loads and any program of C can call.

        It takes a C compiler. Raises ArgumentError where sizes of inputs are not known.
        """
        if options:
            known = ("fcompile", "addons", "workspace_dir")
            unknown = [name for name in options if name not in known]
            if unknown:
                raise ArgumentError(f"export_library takes no {unknown[0]}", hint="it takes the name of a file")
        return self.library().write_shared(file_name)

    def export_c(self, folder: str | os.PathLike[str], name: str | None = None) -> Path:
        """Write the function as a C library into a folder: NAME.h, libNAME.so, libNAME.a. Returns the folder.

        All parameters are arguments of the C function, those with values too.
        """
        return self.library(name).write(folder)

    def library(self, name: str | None = None) -> FunctionLibrary:
        """The function planned for a C library."""
        program = self.program
        values = {k: np.asarray(v) for k, v in program.values.items()}
        about = {"names": program.names, "graph": program.text}
        chosen = name or (self.name if self.name != "default" else "default_function")
        return FunctionLibrary.of(program.lowered, chosen, program.target, program.names, values, about)


class ExecutorFactory(Library):
    """A library with its graph and parameters: ``graph, lib, params = relay.build(…)``, or one object."""

    def __init__(
        self, lowered: IRModule, target: Target, params: Mapping[str, Tensor], name: str, ir_mod: IRModule
    ) -> None:
        super().__init__(NativeProgram(lowered, target, params), name)
        self.params, self.target, self.ir_mod, self.libmod_name = dict(params), target, ir_mod, name
        self.executor = Executor("graph")

    @property
    def graph_json(self) -> str:
        return self.program.text

    @cached_property
    def lib(self) -> Library:
        return Library(self.bare, self.name)

    @property
    def module(self) -> ExecutorFactory:
        return self

    def get_params(self) -> dict[str, Tensor]:
        """The parameters by name: inputs that have values."""
        return self.params

    def get_lib(self) -> Library:
        return self.lib

    def __iter__(self) -> Iterator[Any]:
        """For ``graph, lib, params = …``."""
        return iter((self.graph_json, self.lib, self.params))

    def __repr__(self) -> str:
        return f"ExecutorFactory({self.name!r}, {len(self.program.inputs)} inputs, {len(self.params)} with values)"


ExecutorFactoryModule = GraphExecutorFactoryModule = AOTExecutorFactoryModule = ExecutorFactory  # the reference's names
