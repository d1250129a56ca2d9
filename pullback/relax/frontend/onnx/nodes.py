"""Nodes of ONNX: their opsets and schemas, where they were made, and which of them have no converter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pullback.ir.node import Span
from pullback.relax.frontend.converters import Use, check_supported
from pullback.relax.frontend.onnx.load import onnx_package, subgraphs
from pullback.relax.frontend.onnx.table import ONNX, domain_of, keys_of, name_of
from pullback.relax.frontend.source_lines import lines_of, outside_pytorch


class Opsets:
    """The opset of each domain that a model or a function imports."""

    def __init__(self, imports: Any) -> None:
        self._versions = {domain_of(entry.domain): entry.version for entry in imports}

    def version(self, domain: str) -> int:
        """The opset of a domain; 1 of one that is not imported."""
        return self._versions.get(domain_of(domain), 1)

    def schema(self, domain: str, op_type: str) -> Any:
        """The schema of an operator in this opset, or None: of the newest version that is not above it."""
        onnx = onnx_package()
        try:
            return onnx.defs.get_schema(op_type, self.version(domain), domain_of(domain))
        except onnx.defs.SchemaError:
            return None

    def keys(self, domain: str, op_type: str) -> tuple[str, ...]:
        """The names of an operator in the table, for this opset."""
        schema = self.schema(domain, op_type)
        return keys_of(domain, op_type, schema.since_version if schema else self.version(domain))


def place_of(node: Any) -> Span | None:
    """The line of the user's source on which a node was made, where the exporter of PyTorch says it."""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.stack_trace":
            own = outside_pytorch(lines_of(entry.value))
            if own:
                return Span(*own[-1])
    return None


def label_of(node: Any) -> str:
    """What a node is called in messages: its name, or its first result's."""
    return node.name or next((f"of {name}" for name in node.output if name), "without results")


def schema_function(schema: Any, node: Any, opset: int, types: Sequence[bytes] | None = None) -> Any:
    """The body by which a schema defines an operator, for nodes of an opset, or None where there is none.

    ``types``: the serialized types of the inputs, for bodies that depend on them; without, such a body is None.
    """
    onnx = onnx_package()
    fixed = [v for v in schema.function_opset_versions if v <= opset]
    if fixed:
        return _function(onnx, schema.get_function_with_opset_version(max(fixed)))
    made = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    if not made or types is None:
        return None
    found = schema.get_context_dependent_function_with_opset_version(max(made), node.SerializeToString(), list(types))
    return _function(onnx, found) if found else None


def has_function(schema: Any, opset: int) -> bool:
    """Whether a schema defines an operator by others."""
    versions = [*schema.function_opset_versions, *schema.context_dependent_function_opset_versions]
    return any(v <= opset for v in versions)


def _function(onnx: Any, data: bytes) -> Any:
    proto = onnx.FunctionProto()
    proto.ParseFromString(data)
    return proto


def functions_of(model: Any) -> dict[tuple[str, str, str], Any]:
    """A model's own functions, by domain, name and overload."""
    return {(domain_of(f.domain), f.name, f.overload): f for f in model.functions}


def function_of(functions: Mapping[tuple[str, str, str], Any], node: Any) -> Any:
    """The model's own function that a node calls, or None."""
    return functions.get((domain_of(node.domain), node.op_type, node.overload))


def check_nodes(model: Any) -> None:
    """Raise UnsupportedOps, listing everything of a model that has no converter."""
    check_supported(ONNX, _uses(model.graph.node, Opsets(model.opset_import), functions_of(model), set()))


def _uses(nodes: Any, opsets: Opsets, functions: Mapping[Any, Any], seen: set[str]) -> Iterator[Use]:
    for node in nodes:
        function = function_of(functions, node)
        keys = opsets.keys(node.domain, node.op_type)
        converter = ONNX.find(*keys)
        if function is not None:
            if function.name not in seen:
                yield from _uses(function.node, Opsets(function.opset_import), functions, seen | {function.name})
        elif converter is None and (body := _body_of(node, opsets)) is not None:
            yield from _uses(body.node, Opsets(body.opset_import), {}, seen)
        elif converter is None and (schema := opsets.schema(node.domain, node.op_type)) and schema.deprecated:
            yield Use(f"{name_of(node.domain, node.op_type)} (deprecated in this opset)", keys, place_of(node))
        elif converter is not None or not _is_function(node, opsets):
            yield Use(name_of(node.domain, node.op_type), keys, place_of(node), label_of(node))
        for graph in subgraphs(node):
            yield from _uses(graph.node, opsets, functions, seen)


def _body_of(node: Any, opsets: Opsets) -> Any:
    schema = opsets.schema(node.domain, node.op_type)
    return None if schema is None else schema_function(schema, node, opsets.version(node.domain))


def _is_function(node: Any, opsets: Opsets) -> bool:
    schema = opsets.schema(node.domain, node.op_type)
    return schema is not None and has_function(schema, opsets.version(node.domain))
