"""What a graph that TorchDynamo captured computes: its operators, and how its results are related to its inputs.

Dynamo's graph takes parameters and buffers as inputs, and calls PyTorch's functions, in place too. ``torch.export``
makes a graph of ATen's operators of it, without assignments in place, in which attention, norms and convolutions are
whole. What that does not tell is asked of PyTorch itself: the graph runs once on tensors without data
(:func:`observe`), and these know which results need gradients, and which are views of what.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.ir.errors import UserError
from pullback.relax.frontend.torch.decompose import taken_apart
from pullback.relax.frontend.torch.program import functional
from pullback.relax.frontend.torch.replay import place_of

__all__ = ["Observed", "View", "exported", "numbers", "observe"]


@dataclass(frozen=True)
class View:
    """A result that is a view of an input, or of an earlier result, which is contiguous. ``offset``: from its first
    element."""

    of: str  # "input" or "result"
    number: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    is_whole: bool  # it is that tensor itself
    requires_grad: bool


@dataclass
class Observed:
    """What is known of the results of a graph, and of the inputs that it writes to."""

    results: list[Any]  # tensors without data and history; and what is no tensor
    needing: set[int] = field(default_factory=set)  # the numbers of results that need gradients
    views: dict[int, View] = field(default_factory=dict)  # by the number of the result
    with_history: set[int] = field(default_factory=set)  # inputs that get a value which needs gradients
    reached: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    # By "result" or "input", and its number: the inputs that autograd would give a gradient, if only that had one.


# Higher-order operators of Dynamo's graphs whose gradient is that of what they call.
_TRANSPARENT = ("cond", "invoke_subgraph", "tag_activation_checkpoint", "while_loop", "wrap", "wrap_with_autocast")


def _check_operators(torch: Any, graph: Any) -> None:
    """Raise a UserError for operators that are given functions, and mean more than a call of these: a user's
    ``torch.autograd.Function`` has a gradient of its own, which the exported graph does not show."""
    higher = torch._ops.HigherOrderOperator
    found = {
        node.target.name(): place_of(node)
        for part in graph.modules()
        if isinstance(part, torch.fx.GraphModule)
        for node in part.graph.nodes
        if isinstance(node.target, higher) and node.target.name() not in _TRANSPARENT
    }
    for name, place in found.items():
        what = "a torch.autograd.Function" if name == "autograd_function_apply" else f"the operator {name}"
        raise UserError(f"{what} in the model is not converted", span=place)


def observe(graph: Any, inputs: Sequence[Any]) -> Observed:
    """Run the graph on tensors like the inputs, without data. Raises UserError for what has no functional form, or a
    gradient of its own."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    _check_operators(torch, graph)
    mode, known = FakeTensorMode(allow_non_fake_inputs=True), _values(graph, inputs)
    with warnings.catch_warnings(), mode:
        warnings.simplefilter("ignore")
        given = [_like(torch, mode, value) for value in inputs]
        before = [v.grad_fn if isinstance(v, torch.Tensor) else None for v in given]
        edge = torch.autograd.graph.get_gradient_edge
        begins = {edge(v).node: k for k, v in enumerate(given) if isinstance(v, torch.Tensor) and v.requires_grad}
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            results = list(_watching(torch, graph, known).run(*given))
    found = Observed([r.detach() if isinstance(r, torch.Tensor) else r for r in results])
    for k, value in enumerate(given):
        if isinstance(value, torch.Tensor) and value.grad_fn is not before[k]:
            found.with_history.add(k)
            found.reached["input", k] = _reached(value, begins)
    for k, result in enumerate(results):
        if isinstance(result, torch.Tensor):
            found.reached["result", k] = _reached(result, begins)
            found.needing |= {k} if result.requires_grad else set()
            view = _view(result, given, results[:k], found.views)
            if view is not None:
                found.views[k] = view
    return found


def _reached(value: Any, begins: Mapping[Any, int]) -> set[int]:
    """Which of these nodes of autograd's graph a value's gradient is carried to."""
    rest, seen = [value.grad_fn], {None}
    while rest:
        node = rest.pop()
        if node not in seen:
            seen.add(node)
            rest += [] if node in begins else [following for following, _ in node.next_functions]
    return {begins[node] for node in seen if node in begins}


def _like(torch: Any, mode: Any, value: Any) -> Any:
    """A tensor without data, which needs gradients, and has a history, where the given one does."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.device.type != "cpu":
        raise UserError(f"a tensor lies on {value.device}, and pullback computes on the CPU")
    if value.layout is not torch.strided or value.is_quantized:
        raise UserError(f"a tensor has the layout {value.layout}", hint="dense tensors are compiled")
    fake = mode.from_tensor(_detached(value))
    if not value.requires_grad:
        return fake
    fake.requires_grad_()
    with torch.enable_grad():
        return fake if value.is_leaf else fake.clone()


def _detached(value: Any) -> Any:
    """The tensor without its history; a copy of one that was made in inference mode, which nothing else may read."""
    return value.clone() if value.is_inference() else value.detach()


def _view(result: Any, inputs: Sequence[Any], earlier: Sequence[Any], views: dict[int, View]) -> View | None:
    """What the result is a view of, if anything."""
    for kind, sources in (("input", inputs), ("result", earlier)):
        for k, source in enumerate(sources):
            if not hasattr(source, "untyped_storage") or source.dtype != result.dtype:
                continue
            if source.untyped_storage()._cdata != result.untyped_storage()._cdata:
                continue
            offset = result.storage_offset() - source.storage_offset()
            if kind == "result" and (k in views or not _lies_within(result, offset, source)):
                continue
            size, stride = tuple(result.size()), tuple(result.stride())
            return View(kind, k, size, stride, offset, result is source, result.requires_grad)
    return None


def _lies_within(view: Any, offset: int, source: Any) -> bool:
    """Whether a view has elements of a contiguous tensor alone."""
    last = offset + sum((n - 1) * s for n, s in zip(view.size(), view.stride(), strict=True))
    return source.is_contiguous() and offset >= 0 and (view.numel() == 0 or last < source.numel())


@functools.cache
def _interpreter() -> Any:
    """An interpreter of graphs that calls what is to be checkpointed as a part of them: what is computed again is
    chosen when the graph is compiled."""
    import torch

    class Interpreter(torch.fx.Interpreter):
        numbers: Mapping[str, Any] = {}

        def run_node(self, node: Any) -> Any:
            if node.op == "call_method" and node.target == "item" and node.args[0].name in self.numbers:
                return self.numbers[node.args[0].name]
            if getattr(node.target, "__name__", None) != "tag_activation_checkpoint":
                return super().run_node(node)
            (part, *values), _ = self.fetch_args_kwargs_from_env(node)
            return self.inner(part).run(*values)

        def inner(self, part: Any) -> Any:
            return type(self)(part)

    return Interpreter


def numbers(graph: Any) -> dict[int, str]:
    """The inputs that a graph reads as numbers, as Dynamo has it do with floats: their places, and their names."""
    places = (node for node in graph.graph.nodes if node.op == "placeholder")
    return {k: node.name for k, node in enumerate(places) if any(_is_number(user) for user in node.users)}


def _is_number(node: Any) -> bool:
    return node.op == "call_method" and node.target == "item"


def _values(graph: Any, inputs: Sequence[Any]) -> dict[str, Any]:
    return {name: inputs[k].item() for k, name in numbers(graph).items()}


def _watching(torch: Any, graph: Any, numbers: Mapping[str, Any]) -> Any:
    """Runs the graph, and refuses assignments in place that autograd is not told of to what needs gradients."""
    ambient = torch.is_grad_enabled()

    base: Any = _interpreter()

    class Watching(base):
        def run_node(self, node: Any) -> Any:
            if torch.is_grad_enabled() or node.op not in ("call_function", "call_method"):
                return super().run_node(node)
            given = [self.env.get(n) for n in node.all_input_nodes]
            tensors = [(v, v._version) for v in given if isinstance(v, torch.Tensor) and v.requires_grad]
            result = super().run_node(node)
            if ambient and any(value._version != version for value, version in tensors):
                raise UserError(f"{node.target} writes under no_grad to a tensor that needs gradients")
            return result

    interpreter = Watching(graph)
    interpreter.numbers = numbers
    return interpreter


def exported(graph: Any, inputs: Sequence[Any]) -> Any:
    """The graph as an exported program of ATen's operators, whose inputs are those of the graph, numbers fixed. What is
    computed under ``torch.no_grad()`` is detached."""
    import torch

    base: Any = _interpreter()

    class Detaching(base):
        """Runs the graph with gradients enabled; where it disables them, on detached values."""

        is_enabled = True

        def run_node(self, node: Any) -> Any:
            if node.op == "call_function" and node.target is torch._C._set_grad_enabled:
                self.is_enabled = bool(node.args[0])
                return None
            return super().run_node(node)

        def inner(self, part: Any) -> Any:
            interpreter = super().inner(part)
            interpreter.is_enabled = self.is_enabled
            return interpreter

        def fetch_args_kwargs_from_env(self, node: Any) -> Any:
            found = super().fetch_args_kwargs_from_env(node)
            if self.is_enabled or node.op not in ("call_function", "call_method"):
                return found
            detach = lambda v: v.detach() if isinstance(v, torch.Tensor) else v  # noqa: E731
            return torch.utils._pytree.tree_map(detach, found)

    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.graph = graph

        def forward(self, *values: Any) -> Any:
            interpreter = Detaching(self.graph)
            interpreter.numbers = known
            with torch.fx.traceback.preserve_node_meta():  # places in the user's source
                return tuple(interpreter.run(*values))

    known = _values(graph, inputs)
    values = tuple(_detached(v) if isinstance(v, torch.Tensor) else v for v in inputs)
    with _quiet(), torch.enable_grad():
        program = functional(torch.export.export(Program(), values, strict=False))
        with contextlib.suppress(Exception):  # what PyTorch fails to take apart is listed as missing
            program = taken_apart(program)
    for node in program.graph.nodes:
        if __file__ in (node.meta.get("stack_trace") or ""):  # the user's line is not known
            del node.meta["stack_trace"]
    return program


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what PyTorch warns of in its own calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
