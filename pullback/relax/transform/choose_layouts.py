"""ChooseLayouts: the order of axes in which values between kernels lie in memory.

    y = cls.fused_conv2d(x, w)            y = cls.fused_conv2d_1(x, w)      # returns permute_dims(…, [0, 2, 3, 1])
    z = cls.fused_relu_sum(y)      →      z = cls.fused_relu_sum_1(y)       # begins with permute_dims(y, [0, 3, 1, 2])

A convolution sums over neighbouring places of its data for all channels at once: with the channels innermost it reads
whole vectors wherever it stands. So a value that a convolution reads or writes, and what is computed from it element by
element, gets its channels innermost, if they fill vectors. Then what only gradients of weights read does, too. The
kernels mean what they meant: they permute what they read and write, and their loops follow. Parameters, results and
values that are viewed in other shapes stay as they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.passes import Pass
from pullback.relax.analysis import used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Binding, Call, Expr, Function, Tuple, TupleGetItem, Var, VarBinding
from pullback.relax.mutator import Emitter
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo, as_int, as_tensor
from pullback.relax.transform.compose import compose, has_te, is_view, looks_at_values
from pullback.relax.transform.fuse_ops import primitive
from pullback.relax.transform.inline_functions import over_regions
from pullback.relax.transform.structure import function_structure, results_of
from pullback.schedule.affine import affine
from pullback.schedule.contraction.problem.memory import origin
from pullback.schedule.contraction.problem.problem import Factor, Problem, overlaps
from pullback.schedule.group import Group, Machine

Order = tuple[int, ...]  # the value's axis at each place of memory


@dataclass(frozen=True)
class ChooseLayouts(Pass):
    """Choose for every function that is not primitive itself.

    Checks: it comes after FuseOps. Parameters, results, values that are viewed, and those whose channels fill no half
    vector keep their order; logical shapes stay.
    """

    machine: Machine = field(default_factory=Machine)

    def run(self, module: IRModule) -> IRModule:
        result = module.copy()
        for name, function in module.items():
            if isinstance(function, Function) and not function.attrs.get("primitive"):
                result[name] = over_regions(function, module, lambda f: _Layouts(f, result, self.machine).rewrite())
        return result


@dataclass(eq=False)
class _Node:
    """A kernel to be: the variables that it reads and makes, and the function that says what it computes."""

    binding: Binding
    function: Function
    arguments: list[Expr]
    results: list[Var]


class _Layouts:
    def __init__(self, function: Function, module: IRModule, machine: Machine) -> None:
        self.function, self.module = function, module
        self.least = max(2, machine.vector_bytes // 8)  # channels that fill half a vector of float32
        self.nodes: dict[Var, _Node] = {}  # by the variable that the call is bound to
        self.orders: dict[Expr, Order] = {}
        self.wishes: dict[Hashable, dict[bool, list[tuple[int, int]]]] = {}
        self.items: dict[Expr, dict[int, Var]] = {}  # of the tuples that calls return: the variables of their items
        for binding in function.bindings:
            value = binding.value
            if isinstance(value, TupleGetItem):
                self.items.setdefault(value.tuple_value, {})[value.index] = binding.var
        for binding in function.bindings:
            node = self.node(binding)
            if node is not None:
                self.nodes[binding.var] = node
        self.free = self.free_values()

    # -- what there is

    def node(self, binding: Binding) -> _Node | None:
        value = binding.value
        if isinstance(value, Call) and isinstance(value.op, GlobalVar):
            callee = self.module[value.op]
            if not (isinstance(callee, Function) and callee.attrs.get("primitive")):
                return None
            items = self.items.get(binding.var, {})
            is_tuple = isinstance(callee.body.body, Tuple)
            results = [items[k] for k in sorted(items)] if is_tuple else [binding.var]
            if is_tuple and len(items) != len(callee.body.body.fields):
                return None
            return _Node(binding, callee, list(value.args), results)
        if not has_te(value) or is_view(value) or looks_at_values(value):
            return None
        if not isinstance(value.struct_info, TensorStructInfo):
            return None
        function, arguments = primitive([VarBinding(binding.var, value)], [binding.var])
        return _Node(binding, function, arguments, [binding.var])

    def free_values(self) -> set[Var]:
        """The values that only kernels make and read."""
        made = {v for node in self.nodes.values() for v in node.results if isinstance(v.struct_info, TensorStructInfo)}
        items = {v for node in self.nodes.values() for v in node.results}
        for binding in self.function.bindings:
            if binding.var not in self.nodes and binding.var not in items:
                made.difference_update(used_vars(binding.value))
        for node in self.nodes.values():
            for argument in node.arguments:
                if not isinstance(argument, Var):
                    made.difference_update(used_vars(argument))
        return made - set(used_vars(self.function.body.body))

    # -- choosing

    def choose(self) -> None:
        for slides in (True, False):
            for node in self.nodes.values():
                self.vote(node, slides)
            decided = len(self.orders) + 1
            while decided != len(self.orders):
                decided = len(self.orders)
                for node in self.nodes.values():
                    self.spread(node)
        self.orders = {v: order for v, order in self.orders.items() if order != tuple(range(len(order)))}

    def vote(self, node: _Node, slides: bool) -> None:
        """What a convolution, or the gradient of its weight, wishes; asked once of functions that do the same."""
        key = function_structure(node.function)
        if key not in self.wishes:
            self.wishes[key] = _wishes(node.function)
        values = [*node.arguments, *node.results]
        for place, channel in self.wishes[key].get(slides, []):
            value = values[place]
            if isinstance(value, Var):
                self.decide(value, channel)

    def decide(self, value: Var, channel: int) -> None:
        info = value.struct_info
        if value in self.free and isinstance(info, TensorStructInfo) and info.ndim > 2:
            rest = [k for k in range(info.ndim) if k != channel]
            innermost = as_int(info.sizes[channel]) >= self.least
            self.orders.setdefault(value, (*rest, channel) if innermost else tuple(range(info.ndim)))

    def spread(self, node: _Node) -> None:
        """What is computed from a value, or what it is computed from, is laid out like it."""
        values = [*(a for a in node.arguments if isinstance(a, Var)), *node.results]
        known = [v for v in values if v in self.orders]
        for value in values:
            if value not in self.free or value in self.orders:
                continue
            shape = value.shape
            for other in known:
                order, like = self.orders[other], other.shape
                if len(shape) == len(like) and (shape[order[0]], shape[order[-1]]) == (like[order[0]], like[order[-1]]):
                    self.orders[value] = order
                    break

    # -- writing the result

    def rewrite(self) -> Function:
        self.choose()
        if not self.orders:
            return self.function
        builder = BlockBuilder()
        builder.begin([p.name for p in self.function.params])
        with builder.dataflow():
            emitter = Emitter(builder, {p: p for p in self.function.params})
            for binding in self.function.bindings:
                node = self.nodes.get(binding.var)
                values = [*node.arguments, *node.results] if node is not None else []
                if node is not None and any(v in self.orders for v in values):
                    callee = self.module.add_func(self.permuted(node), self.callee_name(node))
                    emitter.bind(binding.var, Call(callee, tuple(emitter.expr(a) for a in node.arguments)))
                else:
                    emitter.rewrite_binding(binding)
            result = emitter.expr(self.function.body.body)
        body = builder.finish(result)
        return Function(self.function.params, body, None, self.function.attrs, span=self.function.span)

    def callee_name(self, node: _Node) -> str:
        value = node.binding.value
        return value.op.name if isinstance(value.op, GlobalVar) else value.op.short.replace(".", "_")

    def permuted(self, node: _Node) -> Function:
        """The node's function on values in their new orders."""
        params = []
        for argument, param in zip(node.arguments, node.function.params, strict=True):
            order = self.orders.get(argument)
            params.append(Var(param.name, _permuted_info(as_tensor(param.struct_info), order)) if order else param)
        builder = BlockBuilder()
        builder.begin([p.name for p in params])
        with builder.dataflow():
            env: dict[Var, Expr] = {}
            for argument, old, new in zip(node.arguments, node.function.params, params, strict=True):
                order = self.orders.get(argument)
                env[old] = builder.emit(ops.permute_dims(new, _inverse(order)), old.name) if order else new
            emitter = Emitter(builder, env, flatten=True)
            for binding in node.function.bindings:
                emitter.rewrite_binding(binding)
            results = []
            for old, outside in zip(results_of(node.function), node.results, strict=True):
                value, order = emitter.expr(old), self.orders.get(outside)
                results.append(builder.emit_output(ops.permute_dims(value, list(order)) if order else value, old.name))
        body = builder.finish(Tuple(tuple(results)) if isinstance(node.function.body.body, Tuple) else results[0])
        return Function(tuple(params), body, None, node.function.attrs)


def _wishes(function: Function) -> dict[bool, list[tuple[int, int]]]:
    """If the function is a convolution (True), or the gradient of a weight (False), the values whose channels it would
    have innermost: the number of the value (parameters, then results) and of its axis of channels."""
    composer, outputs = compose(function.bindings, results_of(function))
    group = Group(tuple(composer.inputs.values()), tuple(outputs))
    problem = Problem.of(group.oriented)
    if problem is None:
        return {}
    problem = problem.merged
    window, other = sorted(problem.factors, key=lambda f: not f.is_window)
    if not window.is_window or other.is_window:
        return {}
    slides = _slides(problem, window)
    # A convolution's channels are those of the weight; of its gradient, those that one of data and adjoint has.
    channels = set(other.axes) if slides else {v for v in problem.outputs if (v in window.axes) != (v in other.axes)}
    wishes = []
    for factor in (window,) if slides else (window, other):
        tensor, moved = origin(problem.group, factor.source)
        for place, param in enumerate(function.params):
            if composer.inputs.get(param) is tensor:
                for index, axes in zip(factor.windows or (), moved, strict=True):
                    if index.terms and index.terms.keys() <= channels and len(axes) == 1:
                        wishes.append((place, axes[0]))
    for place, output in enumerate(outputs, len(function.params)):
        if slides and output.ndim == problem.anchor.ndim:
            for k, axis in enumerate(problem.anchor.axes):
                index_of = affine(problem.place[axis], problem.extents)
                if index_of is not None and index_of.terms and index_of.terms.keys() <= channels:
                    wishes.append((place, k))
    return {slides: wishes}


def _slides(problem: Problem, window: Factor) -> bool:
    """Whether a small kernel moves over the data, rather than (in the gradient of a weight) a large one."""
    for index in window.windows or ():
        if overlaps(index, problem.extents):
            moving = [problem.extents[v] for v in index.terms if v in problem.outputs]
            summed = [problem.extents[v] for v in index.terms if v in problem.reduced]
            if not moving or not summed or max(summed) > max(moving):
                return False
    return True


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(k) for k in range(len(order))]


def _permuted_info(info: TensorStructInfo, order: Order) -> TensorStructInfo:
    return TensorStructInfo(tuple(info.sizes[k] for k in order), info.dtype)
