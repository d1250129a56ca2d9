"""JVP: forward-mode differentiation as a source transformation.

    def f(x):                          def f_jvp(x, x_tangent):
        y = R.exp(x)                       y = R.exp(x)
        z = R.sum(y)            →          y_tangent = R.multiply(x_tangent, y)
        return z                           z = R.sum(y)
                                           z_tangent = R.sum(y_tangent)
                                           return (z, z_tangent)

There is one place for an op's derivative: its gradient rule. A rule is linear in the adjoint dy, dx = Jᵀ·dy, so its own
transpose is the derivative that is wanted here: y_tangent = J·x_tangent is the adjoint of dy where x_tangent is that of
dx. What the rule computes of dy itself is dead then. So an op has forward mode when it has a gradient, kernels by the
adjoints of their adjoints.

Tangents need nothing of what comes later, so a loop's are carries beside its own, and nothing is saved. Tangents that
are 0 because a value does not move meet no infinite derivative, as in reverse mode (``structural_zeros.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import DifferentiationError
from pullback.ir.module import GlobalVar, IRModule, own_attributes
from pullback.ir.node import span_scope
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.ir.words import guided
from pullback.relax.analysis import used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.control import BRANCH, CUSTOM, LOOP, branch, loop
from pullback.relax.expr import Binding, Call, Callee, Expr, Function, MatchCast, Tuple, TupleGetItem, Var
from pullback.relax.mutator import Emitter, copy_with_new_vars, emit_body
from pullback.relax.op.family import zero_gradient
from pullback.relax.op_calls import lacks_state, no_state, op_of
from pullback.relax.recursion import RECURSE, SELF, call_self, outer_labels, recurse
from pullback.relax.struct_info import StructInfo, TupleStructInfo, fields_of
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.decompose_ops import decompose_what_has_no_gradient
from pullback.relax.transform.fold_transpose import fold_transposes
from pullback.relax.transform.gradient import ReverseSweep, required_indices
from pullback.relax.transform.inline_functions import inline_calls, over_regions
from pullback.relax.transform.kernel_gradients import KernelGradients, operands
from pullback.relax.transform.raise_ops import RaiseOps
from pullback.relax.transform.region_writer import zeros_of
from pullback.relax.transform.roots import Roots, is_differentiable
from pullback.relax.transform.structural_zeros import DENSE, MASKED, StructuralZeros

Tangent = Any  # mirrors its value: an expression for a tensor, a list for a tuple, None for zero


@guided
@dataclass(frozen=True)
class JVP(Pass):
    """Add ``<f>_jvp``, which takes the parameters of f, then tangents of those that are named, and returns ``(what f
    returned, its tangents)``.

    The tangent of a result that has no floats is zero.

    Args:
        func_name: the function, a name or a GlobalVar.
        params: parameters of it (or one, or names), by default all that have floats.

    Examples:
        >>> @R.function
        ... def main(a: R.Tensor((3,), "float32")):
        ...     return R.sum(a * a)
        >>> module = relax.transform.JVP("main")(pullback.IRModule({"main": main}))
        >>> vm = relax.VirtualMachine(pullback.compile(module))
        >>> vm["main_jvp"](np.ones(3, "float32"), np.array([1, 0, 0], "float32"))
        (tensor(3., shape=(), dtype=float32), tensor(2., shape=(), dtype=float32))

    Checks: raises DifferentiationError when a named parameter is not of a float dtype, or, listing all of them, when
    ops without a derivative lie on the way. The function itself stays.
    """

    func_name: str | GlobalVar
    params: Var | str | Sequence[Var | str] | None = None

    def run(self, module: IRModule) -> IRModule:
        name = self.func_name.name if isinstance(self.func_name, GlobalVar) else self.func_name
        if not isinstance(name, str):
            message = f"JVP takes the name of a function or its GlobalVar, not {type(name).__name__}"
            raise DifferentiationError(message, hint='write JVP("main")(module)')
        raised = RaiseOps()(module)  # a legalised op has the op's gradient
        function = raised[name]
        if not isinstance(function, Function):
            raise DifferentiationError(
                f"{name} is a kernel of the loop IR, not a graph function",
                hint="name an @R.function; a kernel is called by one with R.call_tir",
            )
        if self.params is None:
            required = [k for k, p in enumerate(function.params) if is_differentiable(p.struct_info)]
        else:
            required = required_indices(name, function, self.params, "params")
        whole = over_regions(inline_calls(function, raised), raised, decompose_what_has_no_gradient)
        result = module.copy()
        result[f"{name}_jvp"] = forward(whole, required, KernelGradients(result))
        return result


def forward(function: Function, required: Sequence[int], kernels: KernelGradients) -> Function:
    """The function that also gives tangents of its results, for those of the parameters at ``required``."""
    refusals: dict[str, None] = {}
    params, moves = _with_tangents(function, required)
    builder = BlockBuilder()
    builder.begin([p.name for p in params])
    with builder.dataflow():
        sweep = _ForwardSweep(builder, kernels, refusals, dict(zip(function.params, params, strict=False)), moves)
        value, tangent = sweep.body(function)
        wanted = sweep.materialize(tangent, value.struct_info)
        results = [builder.as_output(v, n) for v, n in ((value, "result"), (wanted, "result_tangent"))]
    _refuse(refusals)
    attrs = own_attributes(function.attrs)
    body = builder.finish(Tuple(tuple(results)))
    return _clean(Function(tuple(params), body, None, attrs, span=function.span))


def _refuse(refusals: dict[str, None]) -> None:
    if refusals:
        hint = "give the op a rule with relax.op.register_gradient, or stop the tangent by R.stop_gradient"
        raise DifferentiationError("these ops have no derivative:\n" + "\n".join(refusals), hint=hint)


def _with_tangents(function: Function, moving: Sequence[int]) -> tuple[list[Var], dict[Var, Var]]:
    """Fresh parameters, then those of the tangents; and which tangent belongs to which parameter."""
    params = [Var(p.name, p.struct_info, span=p.span) for p in function.params]
    taken = {p.name for p in params}
    moves = {}
    for k in moving:
        name = f"{params[k].name}_tangent"
        while name in taken:
            name += "_"
        taken.add(name)
        moves[params[k]] = Var(name, params[k].struct_info)
    return [*params, *moves.values()], moves


def _clean(function: Function) -> Function:
    """Without what a rule computes of adjoints that nobody reads."""
    return remove_dead_bindings(fold_transposes(remove_dead_bindings(function)))


class _Transpose(ReverseSweep):
    """The transpose of a gradient rule; ``names``: what the adjoint of a dy is called, the tangent of a value."""

    def __init__(
        self,
        names: dict[Var, str],
        builder: BlockBuilder,
        rule: Sequence[Binding],
        kernels: KernelGradients,
        zeros: StructuralZeros,
    ) -> None:
        super().__init__(builder, rule, {}, kernels, zeros)
        self.names = names
        self.active = set(names)  # what depends on a dy
        for binding in rule:
            if any(v in self.active for v in used_vars(binding.value)):
                self.active.add(binding.var)

    def name_of(self, var: Var) -> str:
        return self.names.get(var) or f"{var.name}_tangent"

    def add(self, known: Tangent, more: Tangent, name: str, roots: int) -> Tangent:
        return more if known is None and isinstance(more, Var) else super().add(known, more, name, roots)


@dataclass
class _Recursion:
    """The numbers of the operands and results of a recursive function that have tangents."""

    moving: set[int]
    moved: set[int]


class _ForwardSweep(Emitter):
    """Emits a closed function, and after each of its bindings the tangent of that.

    ``moves``: the tangents of parameters. ``refusals`` collects the places of what has no derivative. ``recursions``:
    the recursive functions around, by their labels.
    """

    def __init__(
        self,
        builder: BlockBuilder,
        kernels: KernelGradients,
        refusals: dict[str, None],
        arguments: dict[Var, Any],
        moves: dict[Var, Var],
        recursions: Mapping[str, _Recursion] | None = None,
    ) -> None:
        super().__init__(builder, arguments, flatten=True)
        self.kernels, self.refusals, self.recursions = kernels, refusals, recursions or {}
        self.tangents: dict[Var, Tangent] = {}
        self.zeros = StructuralZeros(Roots({p: 1 << k for k, p in enumerate(moves)}))
        for param, tangent in moves.items():
            self.tangents[param] = _items(tangent)
            self.zeros.degrees.update((t, DENSE) for t in _leaves(self.tangents[param]))

    def body(self, function: Function) -> tuple[Expr, Tangent]:
        """What the function gives, and its tangent."""
        for block in function.body.blocks:
            self.block(block)
        result = self.expr(function.body.body)
        return result, self.tangent_of(result)

    # -- bindings

    def rewrite_binding(self, binding: Binding) -> None:
        with span_scope(binding.span):
            self.forward(binding)

    def forward(self, binding: Binding) -> None:
        value = self.expr(binding.value)
        rules: dict[Callee, Callable[[Call], Any]]
        rules = {BRANCH: self.choice, LOOP: self.loop, RECURSE: self.recurse, SELF: self.call_self}
        if (
            isinstance(value, Call)
            and value.op in rules
            and (self.moves(value.args) or outer_labels(value) & self.recursions.keys())
        ):
            self.env[binding.var] = rules[value.op](value)
            return
        if isinstance(binding, MatchCast):
            var = self.builder.match_cast(value, binding.target, binding.var.name)
            tangent = self.tangent_of(value)
            if isinstance(tangent, Expr):
                tangent = self.builder.match_cast(tangent, binding.target, f"{binding.var.name}_tangent")
                self.zeros.degrees[tangent] = MASKED
        else:
            var = self.builder.emit(value, binding.var.name)
            value = self.builder.lookup(var)
            self.zeros.roots.values[var] = self.zeros.roots.nested(value)
            tangent = self.tangent_of_call(var, value) if isinstance(value, Call) else self.tangent_of(value)
        self.env[binding.var] = var
        self.keep(var, value, tangent)

    def keep(self, var: Var, value: Any, tangent: Tangent) -> None:
        """Note the tangent of a new variable."""
        self.zeros.roots.values[var] = self.zeros.roots.nested(value)
        if tangent is not None:
            self.tangents[var] = tangent

    def tangent_of(self, expr: Any) -> Tangent:
        if isinstance(expr, Var):
            return self.tangents.get(expr)
        if isinstance(expr, Tuple):
            parts = [self.tangent_of(f) for f in expr.fields]
            return None if all(p is None for p in parts) else parts
        if isinstance(expr, TupleGetItem):
            parts = self.tangent_of(expr.tuple_value)
            return None if parts is None else parts[expr.index]
        return None

    def moves(self, exprs: Sequence[Any]) -> bool:
        return any(_leaves(self.tangent_of(e)) for e in exprs)

    def materialize(self, tangent: Tangent, info: StructInfo) -> Expr:
        """The tangent as a value of the type, with zeros where there is none."""
        if isinstance(info, TupleStructInfo):
            parts = tangent if tangent is not None else [None] * len(info.fields)
            return Tuple(tuple(self.materialize(p, i) for p, i in zip(parts, info.fields, strict=True)))
        if tangent is not None:
            return tangent
        zeros = self.builder.emit(zeros_of(info))
        self.zeros.degrees[zeros] = MASKED
        return zeros

    # -- ops

    def tangent_of_call(self, var: Var, call: Call) -> Tangent:
        """The tangent of an op's or a kernel's result."""
        arguments = call.args[0].fields if call.op is CUSTOM else operands(call)
        moving = [self.tangent_of(a) is not None for a in arguments]
        if not any(moving) or not is_differentiable(var.struct_info):
            return None
        if not isinstance(call.op, Op):
            raise DifferentiationError("a call of an unknown function cannot be differentiated", span=call.span)
        if lacks_state(call):
            raise no_state(call.op.short, call.span)
        if call.op.gradient is zero_gradient:
            return None
        try:
            return self.transposed(var, call, arguments, moving)
        except DifferentiationError as error:
            self.refusals[f"  {call.op.short} at {call.span}: {error.message}"] = None
            return None

    def transposed(self, var: Var, call: Call, arguments: Sequence[Expr], moving: Sequence[bool]) -> Tangent:
        """The adjoint of dy, where the tangents of the arguments are the adjoints of what the rule gives."""
        infos = fields_of(var.struct_info)
        cotangents = [self.builder.emit(zeros_of(i), f"{var.name}_cotangent") for i in infos]  # of any value
        places = [c for c, i in zip(cotangents, infos, strict=True) if is_differentiable(i)]
        for place in places:
            self.zeros.roots.values[place] = self.zeros.roots.of(var)
        dy = cotangents if isinstance(var.struct_info, TupleStructInfo) else cotangents[0]
        start = len(self.builder.current_bindings())
        given = []
        found = self.contributions(var, call, arguments, moving, dy, places)
        for argument, contribution in zip(arguments, found, strict=True):
            tangent = self.tangent_of(argument)
            if contribution is not None and tangent is not None:
                bound = contribution if isinstance(contribution, Var) else self.builder.bound(contribution)
                given.append((bound, tangent))
        rule = self.builder.current_bindings()[start:]
        names = dict.fromkeys(places, f"{var.name}_tangent")
        sweep = _Transpose(names, self.builder, rule, self.kernels, self.zeros)
        for contribution, tangent in given:
            sweep.accumulate(contribution, tangent)
        sweep.run()
        results = [sweep.adjoints.get(c) for c in cotangents]
        return results if isinstance(var.struct_info, TupleStructInfo) else results[0]

    def contributions(
        self, var: Var, call: Call, arguments: Sequence[Expr], moving: Sequence[bool], dy: Any, places: Sequence[Var]
    ) -> Sequence[Any]:
        """What the gradient rule gives for each argument."""
        if call.op is CUSTOM:
            adjoint: Function = call.attrs["adjoint"]
            values = [*arguments, *places]
            found = emit_body(adjoint, dict(zip(adjoint.params, values, strict=True)), self.builder)
            parts = iter(_items(found))
            return [next(parts) if is_differentiable(a.struct_info) else None for a in arguments]
        rule = op_of(call).gradient
        if rule is not None:
            return rule(dy, var, *call.args, **call.attrs)
        return self.kernels.adjoints(self.builder, call, dy, list(moving))

    # -- control flow

    def region(
        self,
        function: Function,
        moving: Sequence[int],
        arrange: Callable[..., Any],
        recursions: Mapping[str, _Recursion] | None = None,
    ) -> Function:
        """``function`` with tangents of the parameters at ``moving`` as parameters after its own; ``arrange(sweep,
        value, tangent)`` gives its result. ``recursions``: those around it, if they are others than around this."""
        params, moves = _with_tangents(function, moving)
        builder = BlockBuilder()
        builder.begin([p.name for p in params])
        with builder.dataflow():
            arguments = dict(zip(function.params, params, strict=False))
            known = self.recursions if recursions is None else recursions
            sweep = _ForwardSweep(builder, self.kernels, self.refusals, arguments, moves, known)
            result = builder.as_output(arrange(sweep, *sweep.body(function)), "gv")
        return _clean(Function(tuple(params), builder.finish(result), span=function.span))

    def choice(self, call: Call) -> Tuple:
        """A branch whose branches give tangents, too."""
        condition, given = call.args
        moving = [k for k, v in enumerate(given.fields) if self.tangent_of(v) is not None]
        fields = fields_of(call.struct_info)
        moved: set[int] = set()

        def look(sweep: _ForwardSweep, value: Expr, tangent: Tangent) -> Expr:
            moved.update(k for k, part in enumerate(tangent or ()) if part is not None)
            return value

        def both(sweep: _ForwardSweep, value: Expr, tangent: Tangent) -> Expr:
            parts = tangent if tangent is not None else [None] * len(fields)
            more = [sweep.materialize(parts[k], fields[k]) for k in sorted(moved)]
            return Tuple((*_parts(value), *more))

        for name in ("then", "otherwise"):
            self.region(call.attrs[name], moving, look)
        regions = [self.region(call.attrs[name], moving, both) for name in ("then", "otherwise")]
        values = [*given.fields, *(self.tangent_of(given.fields[k]) for k in moving)]
        whole = self.builder.emit(branch(condition, values, *regions), "chosen")
        return self.results(self.zeros.roots.nested(call), whole, sorted(moved))

    def loop(self, call: Call) -> Tuple:
        """A loop with the tangents of what moves beside its carries, rows and invariants."""
        count, *groups = call.args
        carries, xs, invariants = (list(g.fields) for g in groups)
        body, condition = call.attrs["body"], call.attrs["condition"]
        moving = [[k for k, v in enumerate(g) if self.tangent_of(v) is not None] for g in (carries, xs, invariants)]
        sizes = [len(carries), len(xs), len(invariants)]
        starts = [1, 1 + sizes[0], 1 + sizes[0] + sizes[1]]
        moved_ys: set[int] = set()

        def places() -> list[int]:
            return [start + k for start, group in zip(starts, moving, strict=True) for k in group]

        def look(sweep: _ForwardSweep, value: Expr, tangent: Tangent) -> Expr:
            kept, stacked = tangent if tangent is not None else (None, None)
            moving[0] = sorted({*moving[0], *(k for k, part in enumerate(kept or ()) if part is not None)})
            moved_ys.update(k for k, part in enumerate(stacked or ()) if part is not None)
            return value

        before: Any = None
        while before != (before := (list(moving[0]), set(moved_ys))):  # until what moves does not grow
            self.region(body, places(), look)

        def both(sweep: _ForwardSweep, value: Expr, tangent: Tangent) -> Expr:
            groups = []
            for part, moves, moved in zip(
                _parts(value), tangent or (None, None), (moving[0], sorted(moved_ys)), strict=True
            ):
                fields = fields_of(part.struct_info)
                moves = moves if moves is not None else [None] * len(fields)
                more = [sweep.materialize(moves[k], fields[k]) for k in moved]
                groups.append(Tuple((*_parts(part), *more)))
            return Tuple(tuple(groups))

        new_body = self.region(body, places(), both)
        new_body = _ordered(new_body, sizes, [len(m) for m in moving])
        new_condition = None if condition is None else _widened(condition, carries, invariants, moving)
        begin = [self.materialize(self.tangent_of(carries[k]), carries[k].struct_info) for k in moving[0]]
        rows = [self.tangent_of(xs[k]) for k in moving[1]]
        constant = [self.tangent_of(invariants[k]) for k in moving[2]]
        attrs = call.attrs
        whole = self.builder.emit(
            loop(
                None if isinstance(count, Tuple) else count,
                [*carries, *begin], [*xs, *rows], [*invariants, *constant],
                new_body, new_condition, attrs["length"], attrs["reverse"], attrs["checkpoint"],
            ),
            "looped",
        )  # fmt: skip
        groups = [self.builder.emit(TupleGetItem(whole, k)) for k in range(2)]
        of_carries, of_ys, _ = self.zeros.roots.nested(call)
        kept = self.results(of_carries, groups[0], moving[0])
        stacked = self.results(of_ys, groups[1], sorted(moved_ys))
        return Tuple((kept, stacked, self.builder.emit(TupleGetItem(whole, 2), "steps")))

    def recurse(self, call: Call) -> Tuple:
        """A recursive function that takes tangents of what moves in any of its calls, and gives such."""
        operands, label, fields = _parts(call.args[0]), call.attrs["label"], fields_of(call.struct_info)
        own = _Recursion({k for k, v in enumerate(operands) if self.tangent_of(v) is not None}, set())
        around = {**self.recursions, label: own}

        def look(sweep: _ForwardSweep, value: Expr, tangent: Tangent) -> Expr:
            own.moved.update(k for k, part in enumerate(tangent or ()) if part is not None)
            return value

        def both(sweep: _ForwardSweep, value: Expr, tangent: Tangent) -> Expr:
            parts = tangent if tangent is not None else [None] * len(fields)
            return Tuple((*_parts(value), *(sweep.materialize(parts[k], fields[k]) for k in sorted(own.moved))))

        before: Any = None
        while before != (before := (set(own.moving), set(own.moved))):  # until what moves does not grow
            self.region(call.attrs["function"], sorted(own.moving), look, around)
        function = self.region(call.attrs["function"], sorted(own.moving), both, around)
        given = [*operands, *self.tangents_for(operands, own)]
        whole = self.builder.emit(recurse(given, function, label, call.attrs["max_depth"]), label)
        return self.results(self.zeros.roots.fields(call), whole, sorted(own.moved))

    def call_self(self, call: Call) -> Tuple:
        operands, label, fields = _parts(call.args[0]), call.attrs["label"], fields_of(call.struct_info)
        own = self.recursions[label]
        own.moving.update(k for k, v in enumerate(operands) if self.tangent_of(v) is not None)
        given, moved = [*operands, *self.tangents_for(operands, own)], sorted(own.moved)
        whole = self.builder.emit(call_self(given, label, [*fields, *(fields[k] for k in moved)]), label)
        return self.results(self.zeros.roots.fields(call), whole, moved)

    def tangents_for(self, operands: Sequence[Expr], own: _Recursion) -> list[Expr]:
        return [self.materialize(self.tangent_of(operands[k]), operands[k].struct_info) for k in sorted(own.moving)]

    def results(self, roots: Sequence[int], whole: Expr, moved: Sequence[int]) -> Tuple:
        """The first items of a tuple, of which ``roots`` says what they move with; those after them are the tangents of
        some."""
        size = len(fields_of(whole.struct_info)) - len(moved)
        fields = [self.builder.emit(TupleGetItem(whole, k)) for k in range(size)]
        self.zeros.roots.values.update(zip(fields, roots, strict=True))
        for n, k in enumerate(moved):
            tangent = self.builder.emit(TupleGetItem(whole, size + n), f"{fields[k].name}_tangent")
            self.zeros.degrees[tangent] = MASKED  # some of it may be zeros of what was not taken
            self.tangents[fields[k]] = tangent
        return Tuple(tuple(fields))


def _ordered(body: Function, sizes: Sequence[int], moving: Sequence[int]) -> Function:
    """The body with the tangents in the order of a loop's arguments: each group's after the group."""
    step, rest = body.params[0], list(body.params[1:])
    own, tangents = rest[: sum(sizes)], rest[sum(sizes) :]
    params = [step]
    for size, count in zip(sizes, moving, strict=True):
        params += own[:size] + tangents[:count]
        own, tangents = own[size:], tangents[count:]
    return Function(tuple(params), body.body, None, body.attrs, span=body.span)


def _widened(
    condition: Function, carries: Sequence[Expr], invariants: Sequence[Expr], moving: Sequence[Sequence[int]]
) -> Function:
    """The condition, which also takes tangents and does not read them."""
    condition = copy_with_new_vars(condition)
    params = list(condition.params)
    place = 1 + len(carries)
    more = [[Var(f"{g[k].name}_tangent", g[k].struct_info) for k in m] for g, m in (
        (params[1:place], moving[0]), (params[place:], moving[2])
    )]  # fmt: skip
    params = [*params[:place], *more[0], *params[place:], *more[1]]
    return Function(tuple(params), condition.body, None, condition.attrs, span=condition.span)


def _parts(value: Expr) -> list[Expr]:
    """The fields of a tuple."""
    if isinstance(value, Tuple):
        return list(value.fields)
    return [TupleGetItem(value, k) for k in range(len(fields_of(value.struct_info)))]


def _items(value: Expr) -> Any:
    """The value of a tuple as a list of its items, that of a tensor as it is."""
    if not isinstance(value.struct_info, TupleStructInfo):
        return value
    return [_items(part) for part in _parts(value)]


def _leaves(tangent: Tangent) -> list[Expr]:
    """The tensors of a tangent."""
    if isinstance(tangent, list):
        return [leaf for part in tangent for leaf in _leaves(part)]
    return [] if tangent is None else [tangent]
