"""A captured graph as compiled functions that PyTorch's autograd calls.

    captured graph  →  function of inputs, parameters and buffers  →  SplitGradient  →  two native functions
    y = Compiled(graph, inputs)(*inputs)                              y.sum().backward() calls the second one

What the first function saves is what a minimal cut says (``relax/transform/split_gradient.py``). Tensors go in and out
over the same memory. Inputs that the graph writes to, such as a batch norm's statistics, get their new values in place;
results that are views of inputs are such views again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.driver import compile
from pullback.driver.executable import CompiledFunction
from pullback.ir.errors import InternalError, UserError
from pullback.ir.module import IRModule
from pullback.nn.export import traced
from pullback.nn.module import Module
from pullback.relax.expr import Function, Var, const
from pullback.relax.frontend.torch.captured import Observed, View, exported, observe
from pullback.relax.frontend.torch.dtypes import name_of
from pullback.relax.frontend.torch.replay import Replay, check_graph
from pullback.relax.frontend.torch.shared import as_pullback, as_torch
from pullback.relax.struct_info import TensorStructInfo, as_tensor, fields_of
from pullback.relax.transform import AddRandomState, SplitGradient
from pullback.relax.transform.add_random_state import draws
from pullback.relax.transform.split_gradient import KEPT, PARAMETER, RESULT, SEEDED
from pullback.runtime.tensor import Tensor, tensor, zeros

__all__ = ["Compiled"]

_MAIN = "main"
_TWICE = "a graph that pullback compiled is differentiated twice, and its gradient has no gradient here"
_TWICE_HINT = "leave out create_graph=True, or compute what is differentiated twice outside of torch.compile"


@dataclass(frozen=True)
class _Roles:
    """Where the function's parameters come from and where its results go."""

    inputs: tuple[int, ...]  # the graph's inputs that are the function's parameters: those that are tensors
    written: tuple[int, ...]  # the graph's inputs whose new values are the first results
    computed: tuple[int, ...]  # the graph's results that are the others


class Compiled:
    """A graph compiled for inputs of these shapes, these numbers and these needs of gradients. ``graph``: a GraphModule
    of TorchDynamo; ``inputs``: what it is called with; ``target``: as of ``pullback.compile``.

    Raises UnsupportedOps, which lists all operators without a converter, and UserError for what cannot be compiled.
    """

    def __init__(self, graph: Any, inputs: Sequence[Any], target: Any = "llvm") -> None:
        import torch

        self.observed: Observed = observe(graph, inputs)
        program = exported(graph, inputs)
        check_graph(program.graph)
        function, self.roles = _function(program, self.observed)
        module = IRModule({_MAIN: function})
        self.is_random = draws(function)
        if self.is_random:
            module = AddRandomState(_MAIN)(module)
        needs = torch.is_grad_enabled()
        required = [k for k in self.roles.inputs if needs and _moves(inputs[k])]
        self.required = [self.roles.inputs.index(k) for k in required]
        self.seeded = [n for n, requires in enumerate(self._results_with_gradients()) if requires and needs]
        self.kept: tuple[tuple[str, int], ...] = ()
        self.backward: CompiledFunction | None = None
        if self.required and self.seeded:
            names = [p.name for p in module[_MAIN].params]
            written = tuple(names[self.roles.inputs.index(k)] for k in self.roles.written)
            module = SplitGradient(_MAIN, [names[k] for k in self.required], self.seeded, written)(module)
            attrs = module[f"{_MAIN}_backward"].attrs
            self.kept, given = attrs[KEPT], attrs[SEEDED]
            if list(given) != self.seeded:
                raise InternalError(f"adjoints of {given} instead of {self.seeded}")
            executable = compile(module, target)
            self.forward, self.backward = (executable.function(f"{_MAIN}_{part}") for part in ("forward", "backward"))
        else:
            self.seeded = []
            self.forward = compile(module, target).function(_MAIN)
        self.count = len(self.roles.written) + len(self.roles.computed)
        self.types = _results_of(function)
        self._shared: dict[int, tuple[int, Tensor]] = {}  # parameters: their places, and as tensors

    def reached(self, number: int) -> set[int]:
        """The graph's inputs that a gradient of the function's result is carried to."""
        places = [("input", k) for k in self.roles.written] + [("result", k) for k in self.roles.computed]
        return self.observed.reached[places[number]]

    def _results_with_gradients(self) -> list[bool]:
        """Of each result of the function, whether it needs gradients in PyTorch."""
        written = [k in self.observed.with_history for k in self.roles.written]
        return written + [k in self.observed.needing for k in self.roles.computed]

    # ---- calls -------------------------------------------------------------------------------------------------------

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """What the graph returns for these inputs."""
        import torch

        tensors = [inputs[k] for k in self.roles.inputs]
        values = self.run(tensors)[0] if self.backward is None else _operation().apply(self, *tensors)
        for n, k in enumerate(self.roles.written):
            with torch.set_grad_enabled(n in self.seeded):
                inputs[k].copy_(values[n])
        found = dict(zip(self.roles.computed, values[len(self.roles.written) :], strict=True))
        results: list[Any] = []
        for k, result in enumerate(self.observed.results):
            view = self.observed.views.get(k)
            if view is not None:
                results.append(_as_view(view, (inputs if view.of == "input" else results)[view.number]))
            else:
                results.append(found.get(k, result))
        return tuple(results)

    def run(self, tensors: Sequence[Any]) -> tuple[list[Any], list[Tensor]]:
        """The results of the first function, as tensors of PyTorch; and what it was called with."""
        given = [self.shared(k, t) for k, t in enumerate(tensors)]
        if self.is_random:
            given.append(_random_state())
        return [as_torch(t) for t in self.forward.bind(given)()], given

    def shared(self, k: int, value: Any) -> Tensor:
        """An input over the same memory. Those of parameters are kept, as long as these stay in their place."""
        import torch

        if not isinstance(value, torch.nn.Parameter):
            return as_pullback(value)
        place, known = self._shared.get(k, (None, None))
        if known is None or place != value.data_ptr():
            known = as_pullback(value)
            if value.is_contiguous():
                self._shared[k] = value.data_ptr(), known
        return known

    def adjoints(self, kept: Sequence[Any], seeds: Sequence[Any]) -> list[Any]:
        """The adjoints of the required inputs. A seed that is None is zeros."""
        given = [
            self.shared(k, value) if kind == PARAMETER else as_pullback(value)
            for (kind, k), value in zip(self.kept, kept, strict=True)
        ]
        for n, seed in zip(self.seeded, seeds, strict=True):
            kind = self.types[n]
            given.append(zeros(kind.static_shape, kind.dtype) if seed is None else as_pullback(seed))
        assert self.backward is not None
        return [as_torch(t) for t in self.backward.bind(given)()]


def _moves(value: Any) -> bool:
    return value.requires_grad and value.is_floating_point()


def _function(program: Any, observed: Observed) -> tuple[Function, _Roles]:
    """The function of the graph's tensors which returns new values of inputs, then results."""
    signature = program.graph_signature
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    numbers: dict[str, int] = {}  # of the graph's inputs, by the names of placeholders
    values: dict[str, Any] = {}
    tensors: list[int] = []
    params: list[Var] = []
    for spec in signature.input_specs:
        name, kind = spec.arg.name, spec.kind.name
        if kind == "USER_INPUT":
            numbers[name] = len(numbers)
            if hasattr(spec.arg, "value"):
                values[name] = spec.arg.value
                continue
            value = nodes[name].meta["val"]
            params.append(Var(name, TensorStructInfo(tuple(value.shape), name_of(value.dtype))))
            tensors.append(numbers[name])
            values[name] = params[-1]
        elif kind in ("CONSTANT_TENSOR", "BUFFER") and spec.target not in signature.buffers_to_mutate.values():
            held = program.constants if spec.target in program.constants else program.state_dict
            values[name] = const(np.array(as_pullback(held[spec.target])))
        else:
            raise UserError(f"a graph that holds a {kind.lower().replace('_', ' ')} ({spec.target}) is not converted")
    written, computed, wanted = [], [], []
    user_results = 0
    for place, spec in enumerate(signature.output_specs):
        if spec.kind.name == "USER_INPUT_MUTATION":
            written.append(numbers[spec.target])
            wanted.append(place)
        elif spec.kind.name != "USER_OUTPUT":
            raise UserError(f"a graph that returns a {spec.kind.name.lower().replace('_', ' ')} is not converted")
        else:
            k, user_results = user_results, user_results + 1
            if k not in observed.views and hasattr(observed.results[k], "dtype"):
                computed.append(k)
                wanted.append(place)
    if user_results != len(observed.results):
        raise InternalError(f"the exported graph has {user_results} results, not {len(observed.results)}")

    def run() -> Any:
        found = Replay(program.graph, values).run()
        return tuple(found[place] for place in wanted)

    function, _, _ = traced(Module(), params, run)
    return function, _Roles(tuple(tensors), tuple(written), tuple(computed))


def _results_of(function: Function) -> list[TensorStructInfo]:
    return [as_tensor(info) for info in fields_of(function.ret_struct_info)]


def _as_view(view: View, source: Any) -> Any:
    if view.is_whole:
        return source
    source = source if view.requires_grad else source.detach()
    return source.as_strided(view.size, view.stride, source.storage_offset() + view.offset)


def _random_state() -> Tensor:
    """A state that no other call has, from PyTorch's generator: who sets its seed gets the same numbers again."""
    import torch

    return tensor(np.array([torch.empty((), dtype=torch.int64).random_().item(), 0], np.uint64))


# ---- what autograd calls ---------------------------------------------------------------------------------------------


@functools.cache
def _operation() -> Any:
    """The ``torch.autograd.Function`` of all compiled graphs."""
    import torch

    class CompiledGraph(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, compiled: Compiled, *tensors: Any) -> Any:
            values, given = compiled.run(tensors)
            results = values[: compiled.count]
            sources = {
                PARAMETER: lambda k: tensors[k] if k < len(tensors) else as_torch(given[k]),
                RESULT: lambda k: results[k],
            }
            kept = [sources[kind](k) if kind in sources else values[compiled.count + k] for kind, k in compiled.kept]
            ctx.save_for_backward(*kept)
            ctx.compiled, ctx.count = compiled, len(tensors)
            ctx.anchors = [tensors[k] for k in compiled.required if tensors[k].is_leaf]
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*(r for n, r in enumerate(results) if n not in compiled.seeded))
            return tuple(results)

        @staticmethod
        def backward(ctx: Any, *seeds: Any) -> Any:
            compiled = ctx.compiled
            kept = ctx.saved_tensors
            adjoints = compiled.adjoints(kept, [seeds[n] for n in compiled.seeded])
            if torch.is_grad_enabled():  # create_graph
                anchors = [v for v in (*ctx.anchors, *kept, *seeds) if v is not None and v.requires_grad]
                adjoints = DifferentiatedOnce.apply(len(anchors), *anchors, *adjoints)
            reached = set().union(*(compiled.reached(n) for n in compiled.seeded if seeds[n] is not None))
            found: list[Any] = [None] * ctx.count
            for k, adjoint in zip(compiled.required, adjoints, strict=True):
                if compiled.roles.inputs[k] in reached:  # else None, as in PyTorch: optimizers leave it as it is
                    found[k] = adjoint
            return None, *found

    class DifferentiatedOnce(torch.autograd.Function):
        """Gradients that need gradients, and raise where these are taken."""

        @staticmethod
        def forward(ctx: Any, count: int, *values: Any) -> Any:
            return tuple(value.view_as(value) for value in values[count:])

        @staticmethod
        def backward(ctx: Any, *seeds: Any) -> Any:
            raise UserError(_TWICE, hint=_TWICE_HINT)

    return CompiledGraph
