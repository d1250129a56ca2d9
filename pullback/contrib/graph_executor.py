"""Running compiled graphs: ``GraphModule``, and ``create`` of what ``relay.build`` unpacks into."""

from __future__ import annotations

import json
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.runtime.graph_module import BenchmarkResult, GraphModule
from pullback.runtime.loaded import device_of

__all__ = ["BenchmarkResult", "GraphModule", "create"]


def create(graph_json_str: str, libmod: Any, device: Any = None) -> GraphModule:
    """A module of a graph and its library, whose parameters are to be set.

    >>> graph, lib, params = relay.build(mod, "llvm", params=params)
    >>> module = create(graph, lib, pullback.cpu())
    >>> module.set_input(**params)
    """
    try:
        nodes = json.loads(graph_json_str)["nodes"]
    except (TypeError, ValueError, KeyError):
        hint = "graph, lib, params = relay.build(mod, target); create(graph, lib, device)"
        raise ArgumentError("the first argument is the text of a graph, in JSON", hint=hint) from None
    program = getattr(libmod, "program", None)
    if program is None:
        raise ArgumentError(f"a library is what relay.build returns second, not {type(libmod).__name__}")
    names = [n["name"] for n in nodes if n.get("op") == "null"]
    if names and names != [slot.name for slot in program.inputs]:
        raise ArgumentError("the graph and the library are of different functions", hint="take both of one build")
    return GraphModule(getattr(libmod, "bare", program), device_of(device))
