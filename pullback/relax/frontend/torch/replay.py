"""Replay: the nodes of an fx graph become graph values, one after another, by the table of conversions.

Each result is compared with what PyTorch says of it (``meta["val"]``), so a converter that gives another dtype or shape
is found where it stands.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pullback.ir.errors import InternalError, UserError
from pullback.ir.node import Span, span_scope
from pullback.nn.trace import current_trace
from pullback.relax.expr import Expr
from pullback.relax.frontend.converters import Use, check_supported
from pullback.relax.frontend.torch.table import ATEN, LEFT_OUT
from pullback.relax.struct_info import TensorStructInfo, format_info

_LINE = re.compile(r'File "([^"]+)", line (\d+)')


def place_of(node: Any) -> Span | None:
    """The line of the user's source on which a node was made: the innermost outside of PyTorch."""
    found = [(file, int(line)) for file, line in _LINE.findall(node.meta.get("stack_trace") or "")]
    own = [f for f in found if "/torch/" not in f[0].replace("\\", "/")]
    chosen = (own or found)[-1:]
    return Span(*chosen[0], layer=layer_of(node)) if chosen else None


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


def check_graph(graph: Any) -> None:
    """Raise UnsupportedOps, listing everything of the graph that has no converter."""
    nodes = [n for n in graph.nodes if is_operator(n)]
    check_supported(ATEN, (Use(str(n.target), keys_of(n.target), place_of(n), n.name) for n in nodes))


class Replay:
    """``values``: what the graph's placeholders are. ``run`` returns what the graph returns."""

    def __init__(self, graph: Any, values: Mapping[str, Any]) -> None:
        self.graph, self.values = graph, dict(values)

    def run(self) -> Any:
        result = None
        for node in self.graph.nodes:
            if node.op == "output":
                result = self.value(node.args[0])
            elif node.op != "placeholder":
                self.values[node.name] = self.node(node)
        return result

    def node(self, node: Any) -> Any:
        if node.op != "call_function":
            raise UserError(f"a graph with a node {node.op} ({node.target}) cannot be converted", span=place_of(node))
        if not is_operator(node):
            return self.python(node)
        converter = ATEN.find(*keys_of(node.target))
        if converter is None or converter.function is None:
            raise InternalError(f"{node.target} has no converter, and nobody checked")
        args, kwargs = self.arguments(node)
        with span_scope(place_of(node)):
            try:
                found = current_trace().bind(converter.function(*args, **kwargs), node.name)  # type: ignore[union-attr]
            except UserError as error:
                if error.span is None:
                    raise type(error)(f"{node.target}: {error.message}", span=place_of(node), hint=error.hint) from None
                raise
        self.check(node, found, node.meta.get("val"))
        return found

    def python(self, node: Any) -> Any:
        """Python's own functions: on sizes, and of several results one."""
        args = [self.value(a) for a in node.args]
        if node.target is operator.getitem or getattr(node.target, "__module__", "") in ("_operator", "math", "torch"):
            return node.target(*args)
        raise UserError(f"{node.target} is no operator of PyTorch that is converted", span=place_of(node))

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
        if hasattr(value, "op") and hasattr(value, "graph"):
            return self.values[value.name]
        if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
            return str(value).partition(".")[2]
        return value

    def check(self, node: Any, found: Any, wanted: Any) -> None:
        """Compare results with their types in PyTorch."""
        for mine, theirs in zip(_flat(found), _flat(wanted), strict=False):
            if not isinstance(mine, Expr) or not hasattr(theirs, "dtype"):
                continue
            info, dtype = mine.struct_info, str(theirs.dtype).partition(".")[2]
            fits = isinstance(info, TensorStructInfo) and info.dtype == dtype and _same_sizes(info.shape, theirs.shape)
            if not fits:
                wanted_type = f"{dtype}{tuple(theirs.shape)}"
                raise InternalError(f"{node.target} ({node.name}) gives {format_info(info)}, not {wanted_type}")


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _same_sizes(mine: Sequence[Any] | None, theirs: Sequence[Any]) -> bool:
    """Whether shapes agree in all sizes that are numbers on both sides."""
    if mine is None:
        return True
    known = ((a, b) for a, b in zip(mine, theirs, strict=False) if isinstance(a, int) and isinstance(b, int))
    return len(mine) == len(theirs) and all(a == b for a, b in known)
