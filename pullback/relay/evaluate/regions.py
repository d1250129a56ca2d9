"""The evaluator whose dataflow is native code: each region of operators that nothing else interrupts is one function
of the graph IR, compiled for the types of its arguments when it first meets them.

    let %r = ref(%x);
    let %a = tanh(multiply(%x, %w));            region 1: tanh(multiply(x, w)), and multiply(x, w) if others use it
    let %_ = ref_write(%r, %a);
    (ref_read(%r), add(%a, %w))                 region 2: add(a, w)

Values of operators are computed as late as possible: where something that is no dataflow needs them, all that is needed
is one region.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback import ir, relax
from pullback.ir.depth import deep
from pullback.ir.errors import UserError
from pullback.relay.backend.native import NativeFunction, native_function
from pullback.relay.evaluate.arrays import complete_attrs, kind, truth, type_of_value
from pullback.relay.evaluate.compiler import Compiler
from pullback.relay.evaluate.graph import LEAVES, Uses, free_variables, postorder
from pullback.relay.evaluate.interpreter import CallableFunction, Interpreter
from pullback.relay.evaluate.machine import Step
from pullback.relay.expr import Call, Constant, Function, GlobalVar, Let, Tuple, TupleGetItem, Var
from pullback.relay.lower import Infos
from pullback.relay.op.meaning import resolve
from pullback.relay.staging.scope import Scope
from pullback.relay.staging.stager import Stager
from pullback.relay.staging.values import nested_of, to_graph
from pullback.relay.ty import TensorType, TupleType
from pullback.runtime.memory import BorrowedMemory
from pullback.runtime.tensor import Tensor, tensor
from pullback.target import Target

MOST_INLINED = 2000  # calls in a function that becomes one region


class NativeArrays:
    """Tensors are :class:`Tensor`."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def constant(self, expr: Constant) -> Tensor:
        return expr.data

    def taken(self, given: Any) -> Tensor:
        """A tensor that a caller passes."""
        return given if isinstance(given, Tensor) else tensor(given)

    def shown(self, value: Tensor) -> Tensor:
        """A tensor for a caller, whose memory is no array of somebody else."""
        return _own(value)

    def truth(self, value: Any, span: Any) -> bool:
        """The truth of a condition."""
        return truth(value, span)

    def operator(self, op: Any, attrs: Any, span: Any) -> Callable[[Sequence[Any]], Any]:
        """A function of the operator's arguments, compiled for their types."""
        return _Operator(op, complete_attrs(op, attrs), span, self.target)


class _Operator:
    """A call's operator by itself; ``regions`` by the number of arguments, or by what an operator of values is for the
    values that it met."""

    def __init__(self, op: Any, attrs: Any, span: Any, target: Target) -> None:
        self.op, self.attrs, self.span, self.target = op, attrs, span, target
        self.regions: dict[Any, Region] = {}

    def __call__(self, values: Sequence[Any]) -> Any:
        if self.op.lower is not None:
            return self._compiled(len(values), self.op, self.attrs, values)
        arrays = [_arrays(v) for v in values]
        if self.op.numpy is not None:
            return _tensors(self.op.numpy(arrays, self.attrs))
        found = resolve(self.op, arrays, self.attrs)
        if found is None:
            raise UserError(f"operator {self.op.name} cannot be computed", span=self.span)
        op, kept, attrs = found
        return self._compiled((op, tuple(attrs.items())), op, attrs, [values[k] for k in kept])

    def _compiled(self, key: Any, op: Any, attrs: Any, values: Sequence[Any]) -> Any:
        region = self.regions.get(key)
        if region is None:
            params = [Var(f"x{k}") for k in range(len(values))]
            body = Call(op, tuple(params), attrs, span=self.span)
            region = self.regions[key] = Region([body], params, Uses(body), self.target)
        return region(values)[0]


def _arrays(value: Any) -> Any:
    return tuple(map(_arrays, value)) if isinstance(value, tuple) else np.asarray(value)


def _tensors(value: Any) -> Any:
    return tuple(map(_tensors, value)) if isinstance(value, tuple) else tensor(np.asarray(value), copy=True)


class Region:
    """Dataflow from ``inputs`` to ``outputs``, both nodes of a program. ``whole``: it is the body of a function, of
    which nobody knows yet whether it is dataflow."""

    def __init__(
        self,
        outputs: Sequence[Any],
        inputs: Sequence[Any],
        uses: Uses,
        target: Target,
        module: ir.IRModule | None = None,
        aliases: Mapping[Var, Any] | None = None,
        whole: bool = False,
    ) -> None:
        self.whole = whole
        self.outputs, self.inputs, self.uses, self.target = outputs, inputs, uses, target
        self.module, self.aliases = ir.IRModule() if module is None else module, aliases or {}
        self.span = next((o.span for o in outputs if o.span is not None), None)
        self._ready: dict[Any, tuple[NativeFunction, Any]] = {}

    def __call__(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values of the outputs, of those of the inputs."""
        key = tuple([(v.shape, v.dtype) if type(v) is Tensor else self._kind(v) for v in values])
        ready = self._ready.get(key)
        if ready is None:
            ready = self.compile(key, values)
        function, shape = ready
        flat: list[Tensor] = []
        for value in values:
            if type(value) is Tensor:
                flat.append(value)
            else:
                _flatten(value, flat)
        return shape(iter(function(flat)))

    def _kind(self, value: Any) -> Any:
        return kind(value, "an operator", self.span)

    def compile(self, key: Any, values: Sequence[Any]) -> tuple[NativeFunction, Any]:
        """Make it ready for values of these types."""
        ready = self._ready[key] = self._compiled(values)
        return ready

    @deep
    def _compiled(self, values: Sequence[Any]) -> tuple[NativeFunction, Any]:
        builder, infos = relax.BlockBuilder(), Infos()
        params = [relax.Var(f"x{k}", infos.of(type_of_value(v))) for k, v in enumerate(values)]
        scope = Scope(self.uses)
        scope.values.update((node, nested_of(p)) for node, p in zip(self.inputs, params, strict=True))
        with builder.function("main", params):
            most = MOST_INLINED if self.whole else None
            stager = Stager(self.module, builder, self.aliases, recursion=not self.whole, most_calls=most)
            results = tuple([stager.value(o, scope) for o in self.outputs])
            leaves: list[relax.Expr] = []
            shape = _shape(results, leaves)
            builder.emit_func_output(relax.Tuple(tuple(leaves)))
        return native_function(builder.get(), self.target), shape


def _flatten(value: Any, flat: list[Tensor]) -> None:
    for field in value:
        if isinstance(field, tuple):
            _flatten(field, flat)
        else:
            flat.append(field)


def _shape(value: Any, leaves: list[relax.Expr]) -> Callable[[Any], Any]:
    """A function that puts flat results in the places that the graph values have in ``value``."""
    if isinstance(value, tuple):
        if all(isinstance(v, relax.Expr) for v in value):
            leaves += value
            count = range(len(value))
            return lambda results: tuple([next(results) for _ in count])
        parts = [_shape(v, leaves) for v in value]
        return lambda results: tuple([part(results) for part in parts])
    leaves.append(to_graph(value))
    return next


class RegionCompiler(Compiler):
    """Writes code in which dataflow is regions."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pending: dict[Var, Any] = {}  # variables of dataflow that is not computed yet

    # ---- what is dataflow

    def regional(self, node: Any) -> bool:
        """Whether the node is computed in a region."""
        if isinstance(node, Call):
            if isinstance(node.op, ir.Op):
                return is_pure(node.op)
            return isinstance(node.op, (GlobalVar, Function)) and self.program.is_dataflow(node.op)
        if isinstance(node, TupleGetItem):
            return self.regional(self._resolved(node.tuple_value))
        return False

    def _resolved(self, node: Any) -> Any:
        """What a variable stands for, where that is not computed yet."""
        while isinstance(node, Var) and node in self.pending and self.find(node) is None:
            node = self.pending[node]
        return node

    def _reach(self, roots: Sequence[Any]) -> tuple[dict[Any, None], list[Any]]:
        """The dataflow that the roots need and that is not computed yet, with variables and tuples in it; and what it
        needs, in the order in which that is to be computed."""
        inside: dict[Any, None] = {}
        inputs: dict[Any, None] = {}

        def visit(node: Any) -> None:
            if node in inside or node in inputs or isinstance(node, Constant):
                return
            parts: tuple[Any, ...] = ()
            if self.find(node) is not None:
                inputs[node] = None
                return
            if isinstance(node, Var) and node in self.pending:
                parts = (self.pending[node],)
            elif isinstance(node, Call) and self.regional(node):
                parts = node.args
            elif isinstance(node, Tuple):
                parts = node.fields
            elif isinstance(node, TupleGetItem) and self.regional(node):
                parts = (node.tuple_value,)
            else:
                inputs[node] = None
                return
            for part in parts:
                visit(part)
            inside[node] = None

        for root in roots:
            visit(root)
        return inside, list(inputs)

    def _used_outside(self, node: Any, inside: dict[Any, None]) -> bool:
        """Whether anything but the region may need the node."""
        for parent in self.uses.parents[node]:
            if isinstance(parent, Let) and parent.value is node and parent.body is not node:
                if parent.variable in inside and not self._used_outside(parent.variable, inside):
                    continue
                return True
            if parent not in inside:
                return True
        return False

    # ---- code

    def bind(self, let: Let) -> None:
        value = let.value
        known = self.find(value) is not None
        if not known and (self.regional(value) or (isinstance(value, Var) and value in self.pending)):
            self._prepare(value)
            self.pending[let.variable] = value
        else:
            super().bind(let)

    def need_all(self, exprs: Sequence[Any]) -> list[int]:
        for expr in exprs:
            self._prepare(expr)
        self._region([root for e in exprs for root in self._roots(e)])
        return [self.need(e) for e in exprs]

    def _parts(self, expr: Any) -> Sequence[Any]:
        return ()  # each would be a region

    def _one(self, expr: Any) -> int:
        self._region(self._roots(expr))
        found = self.find(expr)
        if found is None and isinstance(expr, Var) and expr in self.pending:
            found = self._now(expr, self.need(self.pending[expr]))
        return super()._one(expr) if found is None else found

    def _roots(self, expr: Any) -> list[Any]:
        """The dataflow that a value consists of."""
        expr = self._resolved(expr)
        if self.find(expr) is not None:
            return []
        if isinstance(expr, Tuple):
            return [root for field in expr.fields for root in self._roots(field)]
        return [expr] if self.regional(expr) else []

    def _prepare(self, expr: Any) -> None:
        """Compute what is no dataflow of what the value needs, in its order."""
        expr = self._resolved(expr)
        if self.find(expr) is not None or isinstance(expr, LEAVES):
            return
        if isinstance(expr, Tuple):
            for field in expr.fields:
                self._prepare(field)
        elif self.regional(expr):
            for node in self._reach([expr])[1]:
                self.need(node)
        else:
            self.need(expr)

    def _region(self, roots: Sequence[Any]) -> None:
        """A step that computes the roots, and the dataflow that they need, as one region."""
        if not roots:
            return
        for node in self._reach(roots)[1]:
            self.need(node)
        inside, inputs = self._reach(roots)
        kept = set(roots)
        outputs = [n for n in inside if self.regional(n) and (n in kept or self._used_outside(n, inside))]
        if not outputs:
            return
        sources = [self.need(n) for n in inputs]
        region = self.program.region(outputs, inputs, self.uses, self.pending)
        registers = [self._register(n) for n in outputs]
        self.steps.append(_region_step(region, sources, registers))
        for node, register in zip(outputs, registers, strict=True):
            self._now(node, register)

    def _make_closure(self, function: Function, register: int) -> None:
        waiting = [v for v in free_variables(function) if v in self.pending and self.find(v) is None]
        self.need_all(waiting)
        super()._make_closure(function, register)


def _region_step(region: Region, sources: Sequence[int], registers: Sequence[int]) -> Step:
    if len(registers) == 1:
        (only,) = registers

        def one(frame: list[Any]) -> None:
            (frame[only],) = region([frame[i] for i in sources])

        return one

    def several(frame: list[Any]) -> None:
        for register, value in zip(registers, region([frame[i] for i in sources]), strict=True):
            frame[register] = value

    return several


def is_pure(op: Any) -> bool:
    """Whether calls of the operator are dataflow."""
    return getattr(op, "lower", None) is not None and not op.stateful


class NativeCallable(CallableFunction):
    """A function that is one region where it can be: called with tensors, without calls of itself, and not too large
    when all that it calls is inlined. Else its regions are."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._regions: dict[Any, Region | None] = {}  # by the types of arguments; None: the function is more than one

    def _run(self, values: Sequence[Any]) -> Any:
        region = self._region(values) if self.function is not None else None
        if region is not None:
            return region(values)[0]
        return super()._run([_own(v) for v in values])

    def _region(self, values: Sequence[Any]) -> Region | None:
        """The whole function as a region, for arguments of these types."""
        if not all(map(_is_data, values)):
            return None
        key = tuple([(v.shape, v.dtype) if type(v) is Tensor else _types(v) for v in values])
        if key not in self._regions:
            function: Any = self.function
            program: Any = self.interpreter
            region = Region(
                [function.body], function.params, Uses(function), program.target, program.module, whole=True
            )
            try:
                region.compile(key, values)
                self._regions[key] = region
            except UserError:  # no dataflow, or a mistake: the evaluator finds out which, and where
                self._regions[key] = None
        return self._regions[key]


def _own(value: Any) -> Any:
    """A value whose tensors are no array of a caller's: the program may keep it."""
    if isinstance(value, Tensor):
        return value.copy() if isinstance(value._memory, BorrowedMemory) else value
    return tuple(map(_own, value)) if isinstance(value, tuple) else value


def _is_data(value: Any) -> bool:
    return all(map(_is_data, value)) if isinstance(value, tuple) else isinstance(value, Tensor)


def _types(value: Any) -> Any:
    return tuple(map(_types, value)) if isinstance(value, tuple) else (value.shape, value.dtype)


class NativeInterpreter(Interpreter):
    """Evaluates programs with native code for their dataflow."""

    compiler, callable = RegionCompiler, NativeCallable

    def __init__(self, module: ir.IRModule | None, target: Target) -> None:
        super().__init__(module, NativeArrays(target))
        self.target = target
        self._dataflow: dict[Any, bool] = {}

    def region(
        self, outputs: Sequence[Any], inputs: Sequence[Any], uses: Uses, aliases: Mapping[Var, Any]
    ) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """A function of the inputs' values that computes the outputs'."""
        return Region(outputs, inputs, uses, self.target, self.module, aliases)

    def is_dataflow(self, function: Any) -> bool:
        """Whether a function, or one of the module, takes tensors and does nothing but compute others of them."""
        if function not in self._dataflow:
            self._dataflow[function] = False  # while it is asked, a function that calls itself is none
            body = self.module.functions.get(function.name) if isinstance(function, GlobalVar) else function
            self._dataflow[function] = isinstance(body, Function) and self._is_dataflow(body)
        return self._dataflow[function]

    def _is_dataflow(self, function: Function) -> bool:
        if not all(_is_tensor(p.type_annotation) for p in function.params) or free_variables(function):
            return False
        return all(self._is_straight(node) for node in postorder(function.body))

    def _is_straight(self, node: Any) -> bool:
        if isinstance(node, Call) and not isinstance(node.op, ir.Op):
            return isinstance(node.op, GlobalVar) and self.is_dataflow(node.op)
        if isinstance(node, Call):
            return is_pure(node.op)
        return isinstance(node, (Constant, GlobalVar, Let, Tuple, TupleGetItem, Var, ir.Op))


def _is_tensor(type_: Any) -> bool:
    if isinstance(type_, TupleType):
        return all(map(_is_tensor, type_.fields))
    return isinstance(type_, TensorType)
