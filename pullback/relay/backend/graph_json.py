"""A lowered function as the JSON of a graph, as the reference's graph executor has it.

``nodes``: inputs (``"op": "null"``) and ops (``"tvm_op"``, with the name of what it computes), each with its
``inputs`` as (node, result, version); ``arg_nodes``: the numbers of the inputs; ``heads``: the results; ``attrs``:
shapes, dtypes and storage of all results, one after another. It describes the function; what runs is compiled from the
function itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pullback import relax
from pullback.ir.module import GlobalVar, IRModule
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo, flat_infos

Place = tuple[int, int]  # a node and one of its results


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.infos: list[Sequence[Any]] = []  # of each node's results
        self.names: dict[str, int] = {}
        self.places: dict[Any, Any] = {}  # of a variable: a place, or tuples of such

    def unique(self, name: str) -> str:
        count = self.names.get(name, 0)
        self.names[name] = count + 1
        return name if not count else f"{name}_{count}"

    def node(self, op: str, name: str, info: Any, inputs: Sequence[Place] = (), func: str = "") -> Any:
        """A new node; the places of its results, nested as the type is."""
        number, infos = len(self.nodes), flat_infos(info)
        entry: dict[str, Any] = {"op": op, "name": self.unique(name)}
        if op != "null":
            counts = {"num_outputs": str(len(infos)), "num_inputs": str(len(inputs)), "flatten_data": "0"}
            entry["attrs"] = {"func_name": func, **counts}
        entry["inputs"] = [[*place, 0] for place in inputs]
        self.nodes.append(entry)
        self.infos.append(infos)
        rest = iter([(number, k) for k in range(len(infos))])
        return _nested(info, rest)

    def places_of(self, expr: Any) -> Any:
        if isinstance(expr, relax.Tuple):
            return tuple([self.places_of(f) for f in expr.fields])
        if isinstance(expr, relax.TupleGetItem):
            return self.places_of(expr.tuple_value)[expr.index]
        if isinstance(expr, relax.Constant):
            if expr not in self.places:
                self.places[expr] = self.node("tvm_op", "constant", expr.struct_info, (), "constant")
            return self.places[expr]
        return self.places.get(expr, ())

    def bind(self, var: relax.Var, value: Any) -> None:
        if isinstance(value, (relax.Var, relax.Tuple, relax.TupleGetItem, relax.Constant)):
            self.places[var] = self.places_of(value)
        elif not isinstance(value, relax.Function):
            name = _name(value)
            inputs = [p for a in getattr(value, "args", ()) for p in _flat(self.places_of(a))]
            self.places[var] = self.node("tvm_op", name, var.struct_info, inputs, name)


def graph_json(module: IRModule, names: Sequence[str]) -> str:
    """The graph of the function ``main``, whose flat inputs have these names."""
    main, writer = module["main"], _Writer()
    rest = iter(names)
    for param in main.params:
        places = [writer.node("null", next(rest), info) for info in flat_infos(param.struct_info)]
        writer.places[param] = _nested(param.struct_info, iter(places))
    inputs = list(range(len(writer.nodes)))
    for binding in main.bindings:
        writer.bind(binding.var, binding.value)
    heads = _flat(writer.places_of(main.body.body))
    rows = [0]
    for infos in writer.infos:
        rows.append(rows[-1] + len(infos))
    flat = [info for infos in writer.infos for info in infos]
    attrs = {
        "dltype": ["list_str", [info.dtype for info in flat]],
        "shape": ["list_shape", [_shape(info) for info in flat]],
        "storage_id": ["list_int", list(range(len(flat)))],
        "device_index": ["list_int", [1] * len(flat)],
    }
    graph = {"nodes": writer.nodes, "arg_nodes": inputs, "heads": [[*place, 0] for place in heads]}
    return json.dumps({**graph, "attrs": attrs, "node_row_ptr": rows}, indent=2)


def _name(value: Any) -> str:
    if isinstance(value, relax.If):
        return "if"
    op = getattr(value, "op", None)
    if isinstance(op, (GlobalVar, relax.Var)):
        return str(op.name)
    return str(getattr(op, "short", type(value).__name__.lower())).replace(".", "_")


def _shape(info: TensorStructInfo) -> list[int]:
    return [s if isinstance(s, int) else -1 for s in info.shape or ()]


def _nested(info: Any, places: Any) -> Any:
    if isinstance(info, TupleStructInfo):
        return tuple([_nested(field, places) for field in info.fields])
    return next(places)


def _flat(places: Any) -> list[Place]:
    if isinstance(places, tuple) and len(places) == 2 and all(type(p) is int for p in places):
        return [places]
    return [flat for part in places for flat in _flat(part)]
