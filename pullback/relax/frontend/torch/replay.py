"""Replay: the nodes of an fx graph become graph values, one after another, by the table of conversions.

Each result is compared with what PyTorch says of it (``meta["val"]``), so a converter that gives another dtype or shape
is found where it stands. Nodes that no result needs are left out, assertions about sizes among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pullback.ir.errors import InternalError, UserError
from pullback.ir.node import Span, span_scope
from pullback.nn.trace import active_trace
from pullback.relax.expr import Expr, as_relax, const
from pullback.relax.frontend.converters import Use, check_supported
from pullback.relax.frontend.source_lines import lines_of, outside_pytorch
from pullback.relax.frontend.torch import control
from pullback.relax.frontend.torch.dtypes import name_of
from pullback.relax.frontend.torch.sizes import PYTHON, SizeNames
from pullback.relax.frontend.torch.table import ATEN, LEFT_OUT
from pullback.relax.struct_info import TensorStructInfo, format_info
from pullback.runtime.interchange import array_of
from pullback.tir.polynomial import same


def values_of(tensor: Any) -> Any:
    """A tensor of PyTorch as a NumPy array, wherever it lies."""
    return array_of(tensor.detach().cpu().contiguous(), None)


def place_of(node: Any) -> Span:
    """The line of the user's source on which a node was made, the innermost outside of PyTorch, or the line of the
    graph."""
    found = lines_of(node.meta.get("stack_trace") or "")
    for file, line in (outside_pytorch(found) or found)[-1:]:
        return Span(file, line, layer=layer_of(node))
    number = next((k for k, other in enumerate(node.graph.nodes, 1) if other is node), 0)
    return Span("<graph>", number, text=node.format_node(), layer=layer_of(node))


def layer_of(node: Any) -> str | None:
    """The dotted name of the module in whose forward a node was made."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return stack[-1][0] if stack and isinstance(stack[-1][0], str) else None


def keys_of(target: Any) -> tuple[str, ...]:
    """The names under which an operator stands in the table, the most exact first: aten.add.Tensor, aten.add."""
    name = str(target)
    return (name, name.rpartition(".")[0]) if name.count(".") == 2 else (name,)


def is_operator(node: Any) -> bool:
    """Whether a node calls an operator of PyTorch, not one of Python's functions on sizes and tuples."""
    return node.op == "call_function" and hasattr(node.target, "_schema")


def graphs_of(graph: Any) -> Iterator[Any]:
    """The graph, and those of the branches and loop bodies in it."""
    yield graph
    for node in graph.nodes:
        if node.op == "get_attr":
            inner = getattr(attribute_of(graph, node.target), "graph", None)
            if inner is not None:
                yield from graphs_of(inner)


def attribute_of(graph: Any, name: str) -> Any:
    """What a node ``get_attr`` of a graph stands for: a tensor, or the module of a branch."""
    value = graph.owning_module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def needed(graph: Any) -> set[Any]:
    """The nodes that the graph's results depend on."""
    waiting, found = [n for n in graph.nodes if n.op == "output"], set()
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


Converting = Mapping[str, Callable[..., Any]]  # by an operator's name


def check_graph(graph: Any, own: Converting | None = None) -> None:
    """Raise UnsupportedOps, listing everything of the graph that has no converter, in the table or in ``own``."""
    uses = []
    for inner in graphs_of(graph):
        wanted = needed(inner)
        for node in inner.nodes:
            if node in wanted and node.op == "call_function":
                uses += _uses(node, own or {})
    check_supported(ATEN, uses)


def _uses(node: Any, own: Converting) -> list[Use]:
    if is_operator(node):
        keys = keys_of(node.target)
        return [] if any(key in own for key in keys) else [Use(str(node.target), keys, place_of(node), node.name)]
    if node.target in PYTHON or control.of(node) is not None:
        return []
    name = f"{getattr(node.target, '__module__', '')}.{getattr(node.target, '__name__', node.target)}"
    return [Use(name, (name,), place_of(node), node.name)]


class Replay:
    """``values``: what the graph's placeholders are, by name. ``run`` returns what the graph returns, in its tuples.

    ``own``: converters that come before those of the table. ``sizes``: the symbols that sizes of the inputs have here.
    """

    def __init__(
        self, graph: Any, values: Mapping[str, Any], own: Converting | None = None, sizes: SizeNames | None = None
    ) -> None:
        self.graph, self.values, self.own, self.sizes = graph, dict(values), own or {}, sizes

    def run(self) -> Any:
        result, wanted = None, needed(self.graph)
        for node in self.graph.nodes:
            if node.op == "output":
                result = self.value(node.args[0])
            elif node.op != "placeholder" and node in wanted:
                self.values[node.name] = self.node(node)
        return result

    def node(self, node: Any) -> Any:
        if node.op == "get_attr":
            found = attribute_of(self.graph, node.target)
            return const(values_of(found)) if hasattr(found, "detach") else found
        if node.op != "call_function":
            raise UserError(f"a graph with a node {node.op} ({node.target}) cannot be converted", span=place_of(node))
        if is_operator(node):
            convert, (args, kwargs) = self.converter(node), self.arguments(node)
        elif node.target in PYTHON:
            found = PYTHON[node.target](*(self.value(a) for a in node.args))
            if not callable(found) or isinstance(found, Expr):
                return found
            with span_scope(place_of(node)):
                return active_trace().bind(found(), node.name)
        else:
            convert, args, kwargs = self.control(node), [self.value(a) for a in node.args], {}
        with span_scope(place_of(node)):
            try:
                found = active_trace().bind(convert(*args, **kwargs), node.name)
            except UserError as error:
                if error.span is None:
                    raise _placed(error, node) from error.__cause__
                raise
            return self.checked(node, found, node.meta.get("val"))

    def converter(self, node: Any) -> Callable[..., Any]:
        keys = keys_of(node.target)
        own = next((self.own[key] for key in keys if key in self.own), None)
        if own is not None:
            return own
        converter = ATEN.find(*keys)
        if converter is None or converter.function is None:
            raise InternalError(f"{node.target} has no converter, and nobody checked")
        return converter.function

    def control(self, node: Any) -> Callable[..., Any]:
        convert = control.of(node)
        if convert is None:
            raise InternalError(f"{node.target} is neither an operator nor a function of sizes, and nobody checked")

        def run(module: Any, *inputs: Any) -> tuple[Any, ...]:
            places = [n.name for n in module.graph.nodes if n.op == "placeholder"]
            found = Replay(module.graph, dict(zip(places, inputs, strict=True)), self.own, self.sizes).run()
            return tuple(as_relax(v) for v in (found if isinstance(found, (tuple, list)) else (found,)))

        return lambda *args: convert(run, *args)

    def arguments(self, node: Any) -> tuple[list[Any], dict[str, Any]]:
        """What a converter is called with: see ``table.py``."""
        args, kwargs = [], {}
        for k, argument in enumerate(node.target._schema.arguments):
            if argument.name in LEFT_OUT:
                continue
            if k < len(node.args) and not argument.kwarg_only:
                value = node.args[k]
            else:
                value = node.kwargs.get(argument.name, argument.default_value)
            if argument.kwarg_only:
                kwargs[argument.name] = self.value(value)
            else:
                args.append(self.value(value))
        return args, kwargs

    def value(self, value: Any) -> Any:
        """An argument of a node: nodes are what they gave, dtypes their names."""
        if isinstance(value, (list, tuple)):
            return tuple(self.value(v) for v in value)
        if isinstance(value, dict):
            return {key: self.value(v) for key, v in value.items()}
        if hasattr(value, "op") and hasattr(value, "graph"):
            return self.values[value.name]
        if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
            return name_of(value)
        return value

    def checked(self, node: Any, found: Any, wanted: Any) -> Any:
        """Results, compared with their types in PyTorch; with PyTorch's sizes where ours are not seen to be equal."""
        if isinstance(found, (tuple, list)) and isinstance(wanted, (tuple, list)):
            known = [self.checked(node, mine, theirs) for mine, theirs in zip(found, wanted, strict=False)]
            return (*known, *found[len(known) :])
        if not isinstance(found, Expr) or not hasattr(wanted, "dtype"):
            return found
        info, dtype = found.struct_info, name_of(wanted.dtype)
        if not isinstance(info, TensorStructInfo) or info.dtype != dtype or not _may_be(info.shape, wanted.shape):
            wanted_type = f"{dtype}{tuple(wanted.shape)}"
            raise InternalError(f"{node.target} ({node.name}) gives {format_info(info)}, not {wanted_type}")
        if info.shape is None or self.sizes is None:
            return found
        shape = [self.sizes.known(theirs, mine) for mine, theirs in zip(info.shape, wanted.shape, strict=True)]
        if all(same(mine, theirs) for mine, theirs in zip(info.shape, shape, strict=True)):
            return found
        return active_trace().builder.match_cast(found, TensorStructInfo(tuple(shape), dtype))


def _placed(error: UserError, node: Any) -> UserError:
    """The error with the operator it came from and the line of the user's source; one of another kind as it is."""
    try:
        return type(error)(f"{node.target}: {error.message}", span=place_of(node), hint=error.hint)
    except TypeError:  # an error with a constructor of its own
        return error


def _may_be(mine: Sequence[Any] | None, theirs: Sequence[Any]) -> bool:
    """Whether shapes agree in all sizes that are numbers on both sides."""
    if mine is None:
        return True
    known = ((a, b) for a, b in zip(mine, theirs, strict=False) if isinstance(a, int) and isinstance(b, int))
    return len(mine) == len(theirs) and all(a == b for a, b in known)
