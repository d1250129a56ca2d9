"""Replay: the nodes of an ONNX graph become graph values, one after another, by the table of conversions.

Values that are known beside them are followed (``known.py``); a node whose inputs are all constants is computed at
once. Each result is compared with the type that ONNX's shape inference says it has, so a converter that gives another
dtype or shape is found where it stands.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pullback.ir.errors import InternalError, UserError
from pullback.ir.node import Span, span_scope
from pullback.nn.trace import active_trace
from pullback.relax.expr import Constant, Expr, Var
from pullback.relax.frontend.converters import Use, check_supported
from pullback.relax.frontend.onnx import known
from pullback.relax.frontend.onnx.folding import folded, is_foldable, operands
from pullback.relax.frontend.onnx.load import array_of, onnx_package, sparse_array_of
from pullback.relax.frontend.onnx.nodes import Opsets, function_of, functions_of, label_of, place_of, schema_function
from pullback.relax.frontend.onnx.table import ONNX, domain_of, name_of
from pullback.relax.frontend.onnx.types import CODES, UnsupportedType, tensor_type
from pullback.relax.struct_info import TensorStructInfo, format_info


class Scope:
    """The values of a graph's names, with those around a subgraph; what a function's attributes are; types."""

    def __init__(
        self, opsets: Opsets, values: Mapping[str, Any], outer: Scope | None = None,
        attributes: Mapping[str, Any] | None = None, types: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.opsets, self.values, self.outer = opsets, dict(values), outer
        around: dict[str, Any] = {} if outer is None else outer.attributes
        self.attributes: dict[str, Any] = around if attributes is None else dict(attributes)
        self.types = types or {}

    @property
    def is_inner(self) -> bool:
        """Whether it is that of a subgraph."""
        return self.outer is not None

    def value(self, name: str) -> Any:
        """What a name stands for: None for an input that is left out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise UserError(f"the name {name!r} is used before any node gives it a value")


class Node:
    """A node that is converted, for converters with a parameter ``node``."""

    def __init__(self, proto: Any, scope: Scope, replay: Replay) -> None:
        self.proto, self.scope, self.replay = proto, scope, replay
        self.domain, self.op_type = domain_of(proto.domain), proto.op_type
        self.schema = scope.opsets.schema(proto.domain, proto.op_type)
        self.opset = scope.opsets.version(proto.domain)
        self.version = self.schema.since_version if self.schema is not None else self.opset

    @property
    def results(self) -> int:
        """How many results the node names."""
        return len(self.proto.output)

    def wants(self, result: int) -> bool:
        """Whether a result of that number is asked for."""
        return result < len(self.proto.output) and bool(self.proto.output[result])

    def body(self, name: str) -> Body:
        """The graph that is an attribute."""
        for attribute in self.proto.attribute:
            if attribute.name == name and attribute.HasField("g"):
                return Body(attribute.g, self.scope, self.replay)
        raise UserError(f"attribute {name} is missing")

    def inputs(self) -> list[Any]:
        return [self.scope.value(name) if name else None for name in self.proto.input]

    def attributes(self) -> dict[str, Any]:
        """The attributes as Python values, with the schema's defaults; graphs are left out."""
        onnx = onnx_package()
        protos = {
            a.name: a.default_value
            for a in (self.schema.attributes.values() if self.schema is not None else ())
            if a.default_value.type
        }
        for attribute in self.proto.attribute:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in self.scope.attributes:
                    protos[attribute.name] = self.scope.attributes[attribute.ref_attr_name]
            else:
                protos[attribute.name] = attribute
        return {
            name: self.replay.attribute(onnx, name, proto)
            for name, proto in protos.items()
            if not proto.HasField("g") and not proto.graphs
        }


class Body:
    """A subgraph: a function of graph values, which reads the names around it."""

    def __init__(self, graph: Any, scope: Scope, replay: Replay) -> None:
        self.graph, self.scope, self.replay = graph, scope, replay

    @property
    def names(self) -> list[str]:
        return [value.name for value in self.graph.input]

    def __call__(self, *arguments: Any) -> list[Any]:
        """The graph's results for these values of its inputs."""
        values = dict(zip(self.names, arguments, strict=True))
        return self.replay.graph(self.graph, values, self.scope.opsets, self.scope)


class Replay:
    """``inputs``: the names of the model's inputs, by their variables, for messages. ``folder``: that of the file."""

    def __init__(self, model: Any, folder: Path | None, inputs: Mapping[Expr, str]) -> None:
        self.model, self.folder, self.inputs = model, folder, dict(inputs)
        self.functions = functions_of(model)
        self.sizes: known.Sizes = {}
        self.buffers: dict[Any, Callable[[Any], None]] = {}  # by graph value: what gives a buffer another value

    def run(self, values: Mapping[str, Any]) -> list[Any]:
        """The graph's results; ``values``: what inputs and initialisers are."""
        token = known.following(self.sizes)
        try:
            return self.graph(self.model.graph, values, Opsets(self.model.opset_import), None)
        finally:
            known.followed(token)

    def graph(self, graph: Any, values: Mapping[str, Any], opsets: Opsets, outer: Scope | None) -> list[Any]:
        types = {v.name: v.type for v in (*graph.value_info, *graph.output)}
        scope = Scope(opsets, values, outer, types=types)
        for tensor in graph.initializer:
            if tensor.name not in scope.values:
                scope.values[tensor.name] = Constant(array_of(tensor, self.folder))
        for sparse in graph.sparse_initializer:
            if sparse.values.name not in scope.values:
                scope.values[sparse.values.name] = Constant(sparse_array_of(sparse, self.folder))
        for node in graph.node:
            self.node(node, scope)
        results = [scope.value(output.name) for output in graph.output]
        for output, value in zip(graph.output, results, strict=True):
            if outer is None and isinstance(value, known.Items):
                raise UnsupportedType(f"output {output.name} is a sequence, not a tensor")
        return results

    def function(self, function: Any, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
        """The results of a function of ONNX's own format; ``attributes`` by name, as AttributeProtos."""
        names = list(function.input)
        values = dict(zip(names, [*inputs, *[None] * (len(names) - len(inputs))], strict=False))
        given = {a.name: a for a in function.attribute_proto} | dict(attributes)
        scope = Scope(Opsets(function.opset_import), values, attributes=given)
        for node in function.node:
            self.node(node, scope)
        return [scope.values.get(name) for name in function.output]  # None: an optional one that the body leaves out

    # ---- nodes -------------------------------------------------------------------------------------------------------

    def node(self, proto: Any, scope: Scope) -> None:
        """Give the names of a node's results their values."""
        node = Node(proto, scope, self)
        name = name_of(proto.domain, proto.op_type)
        span = place_of(proto)
        try:
            with span_scope(span) if span is not None else contextlib.nullcontext():
                results = self.converted(node)
        except known.Unknown as missing:
            raise self.needs_value(node, missing.value) from None
        except UserError as error:
            raise _placed(error, f"{name} ({label_of(proto)})", span) from error.__cause__
        if len(results) < sum(1 for k in range(node.results) if node.wants(k)) or len(results) < node.results:
            raise InternalError(f"{name} ({label_of(proto)}) gives {len(results)} results, not {node.results}")
        for key, value in zip(proto.output, results, strict=False):
            if key:
                if value is None:
                    raise UserError(f"{name} ({label_of(proto)}): the result {key} is not computed here", span=span)
                scope.values[key] = value
                self.check(node, key, value)

    def converted(self, node: Node) -> list[Any]:
        """The results of a node."""
        converter = ONNX.find(*node.scope.opsets.keys(node.proto.domain, node.proto.op_type))
        if converter is None or not converter.is_own:
            function = function_of(self.functions, node.proto)
            if function is not None:
                return self.function(function, node.inputs(), self.attribute_protos(node))
        if converter is None:
            return self.by_schema(node)
        if converter.function is None:
            raise InternalError(f"{converter.name} has no converter, and nobody checked")
        inputs, attrs = node.inputs(), node.attributes()
        found = self.by_sizes(node, inputs, attrs)
        if found is None:
            found = self.called(converter.function, node, inputs, attrs)
        results = list(found) if isinstance(found, (tuple, list)) and not isinstance(found, known.Items) else [found]
        return [
            self.settled(value, name) for value, name in zip(results, _names(node.proto, len(results)), strict=True)
        ]

    def called(self, function: Callable[..., Any], node: Node, inputs: list[Any], attrs: dict[str, Any]) -> Any:
        signature = _signature(function)
        if signature is not None:
            attrs = {**attrs, "node": node} if "node" in signature.parameters else attrs
            try:
                signature.bind(*inputs, **attrs)
            except TypeError as error:
                raise UserError(
                    f"version {node.version} of {node.op_type}, of this form, is not converted: {error}"
                ) from None
        return function(*inputs, **attrs)

    def by_sizes(self, node: Node, inputs: Sequence[Any], attrs: dict[str, Any]) -> known.Known | None:
        """What a node gives for sizes of which some are symbolic, where that can be told."""
        if node.domain or not inputs:
            return None
        arrays = [None if value is None else known.known(value) for value in inputs]
        missing = any(a is None and v is not None for a, v in zip(arrays, inputs, strict=True))
        if missing or all(a is None or a.dtype != object for a in arrays):
            return None
        found = known.evaluated(node.op_type, arrays, attrs)
        if found is None:
            return None
        is_bool = all(isinstance(v, bool) for v in found.reshape(-1)) and found.size
        dtypes = [v.struct_info.dtype for v in inputs if v is not None]
        kept = dtypes[-1] if node.op_type == "Where" else dtypes[0]
        dtype = "bool" if is_bool else {6: "int32", 7: "int64"}.get(attrs.get("to", 0), kept)
        return known.Known(found, dtype)

    def by_schema(self, node: Node) -> list[Any]:
        """The results of an operator that the standard defines by others."""
        if node.schema is None:
            raise InternalError(f"{node.op_type} has no converter, and nobody checked")
        inputs = node.inputs()
        types = [b"" if value is None else _type_proto(value).SerializeToString() for value in inputs]
        proto = onnx_package().NodeProto()
        proto.CopyFrom(node.proto)
        given = self.attribute_protos(node)
        del proto.attribute[:]
        proto.attribute.extend(given.values())
        function = schema_function(node.schema, proto, node.opset, types)
        if function is None:
            use = Use(name_of(node.domain, node.op_type), (), place_of(node.proto), label_of(node.proto))
            check_supported(ONNX, [use])
        opsets = {domain_of(entry.domain): entry for entry in function.opset_import}
        if "" not in opsets:
            function.opset_import.add(domain="", version=node.scope.opsets.version(""))
        return self.function(function, inputs, given)

    def attribute_protos(self, node: Node) -> dict[str, Any]:
        """A node's attributes as they are passed on to a function: references are what they refer to."""
        found = {}
        if node.schema is not None:
            found = {a.name: a.default_value for a in node.schema.attributes.values() if a.default_value.type}
        for attribute in node.proto.attribute:
            if not attribute.ref_attr_name:
                found[attribute.name] = attribute
            elif attribute.ref_attr_name in node.scope.attributes:
                renamed = onnx_package().AttributeProto()
                renamed.CopyFrom(node.scope.attributes[attribute.ref_attr_name])
                renamed.name = attribute.name
                found[attribute.name] = renamed
        return found

    def attribute_array(self, tensor: Any) -> np.ndarray:
        """The values of a TensorProto."""
        return array_of(tensor, self.folder)

    def attribute(self, onnx: Any, name: str, proto: Any) -> Any:
        """An attribute as a Python value."""
        if proto.HasField("t"):
            return array_of(proto.t, self.folder)
        if proto.HasField("sparse_tensor"):
            return sparse_array_of(proto.sparse_tensor, self.folder)
        value = onnx.helper.get_attribute_value(proto)
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, (str, int, float)):
            return value
        items = list(value)
        return [v.decode(errors="replace") if isinstance(v, bytes) else v for v in items]

    # ---- results -----------------------------------------------------------------------------------------------------

    def settled(self, value: Any, name: str) -> Any:
        """A result as a variable, or as a constant where it is one."""
        if value is None:
            return None
        if isinstance(value, known.Known):
            expr = active_trace().bind(value.expr(), name)
            if not value.is_constant:
                self.sizes[expr] = value.array
            return expr
        if isinstance(value, (np.ndarray, np.generic)):
            return Constant(np.asarray(value))
        if isinstance(value, known.Items):
            return known.Items(self.settled(item, name) for item in value)
        if not isinstance(value, Expr):
            raise InternalError(f"a converter returned a {type(value).__name__}")
        if is_foldable(value):
            return Constant(folded(value))
        return active_trace().bind(value, name)

    def check(self, node: Node, name: str, value: Any) -> None:
        """Compare a result with the type that ONNX infers, or that the file declares."""
        found = node.scope.types.get(name)
        if found is None or found.WhichOneof("value") != "tensor_type" or not found.tensor_type.elem_type:
            return
        dtype, sizes = tensor_type(found, name)
        info = value.struct_info
        fits = isinstance(info, TensorStructInfo) and info.dtype == dtype
        if fits and sizes is not None and info.shape is not None:
            pairs = zip(info.shape, sizes, strict=False)
            fits = len(info.shape) == len(sizes) and all(
                a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int)
            )
        if fits:
            return
        shown = f"{dtype}{'' if sizes is None else tuple(sizes)}"
        message = f"{node.op_type} ({label_of(node.proto)}) gives {name} as {format_info(info)}, ONNX says {shown}"
        is_output = node.scope.outer is None and any(o.name == name for o in self.model.graph.output)
        if not is_output or not isinstance(info, TensorStructInfo) or info.dtype != dtype:
            raise InternalError(message)
        if len(info.shape or ()) != len(sizes or ()):
            raise UserError(message, hint="the file declares its output with another number of axes than it has")
        warnings.warn(f"{message}: the file declares this size, and its nodes give another one", stacklevel=2)

    def needs_value(self, node: Node, value: Expr) -> known.NeedsValue:
        """The error for a value that depends on data."""
        inputs = node.inputs()
        place = next((k for k, v in enumerate(inputs) if v is value), None)
        what = f"its input {place}" if place is not None else "a value"
        if place is not None and node.schema is not None and node.schema.inputs:
            what = node.schema.inputs[min(place, len(node.schema.inputs) - 1)].name
        names = tuple(dict.fromkeys(self.origins(value)))
        where = f"{name_of(node.domain, node.op_type)} ({label_of(node.proto)})"
        if not names:
            return known.NeedsValue(
                f"{where}: {what} decides a shape, and its value depends on parameters or random numbers",
                inputs=(),
                span=place_of(node.proto),
            )
        shown = ", ".join(names)
        return known.NeedsValue(
            f"{where}: {what} decides a shape, and its value depends on the data of the input {shown}",
            inputs=names, span=place_of(node.proto),
            hint=f"from_onnx(model, values={{{names[0]!r}: array}}) makes the input a constant of the model",
        )  # fmt: skip

    def origins(self, value: Any) -> Iterator[str]:
        """The names of the model's inputs that a graph value is computed from."""
        builder, waiting = active_trace().builder, [value]
        seen: set[Any] = set()
        while waiting:
            expr = waiting.pop()
            if expr in seen:
                continue
            seen.add(expr)
            if expr in self.inputs:
                yield self.inputs[expr]
            elif isinstance(expr, Var):
                found = builder.lookup(expr)
                waiting += [found] if found is not None else []
            else:
                waiting += reversed(operands(expr))


def _placed(error: UserError, where: str, span: Span | None) -> UserError:
    """The error with the node that it is about, said once."""
    if getattr(error, "onnx_node", False):
        return error
    try:
        if isinstance(error, known.NeedsValue):
            placed: UserError = known.NeedsValue(
                f"{where}: {error.message}", inputs=error.inputs, span=error.span or span, hint=error.hint
            )
        else:
            placed = type(error)(f"{where}: {error.message}", span=error.span or span, hint=error.hint)
    except TypeError:  # an error with a constructor of its own
        return error
    vars(placed)["onnx_node"] = True
    return placed.with_traceback(error.__traceback__)


def _names(proto: Any, count: int) -> list[str]:
    """The names of variables for so many results."""
    names = [identifier(name) for name in proto.output][:count]
    return names + ["lv"] * (count - len(names))


def identifier(name: str) -> str:
    """A name as Python and the printer take it."""
    found = re.sub(r"\W", "_", name).strip("_") or "lv"
    return f"v{found}" if found[0].isdigit() else found


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """What a converter takes; None for one that does not say it."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _type_proto(value: Any) -> Any:
    """The TypeProto of a graph value."""
    onnx, info = onnx_package(), value.struct_info
    shape = [s if isinstance(s, int) else str(s) for s in info.shape]
    return onnx.helper.make_tensor_type_proto(CODES[info.dtype], shape)
