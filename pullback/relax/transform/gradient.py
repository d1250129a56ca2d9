"""Gradient: reverse-mode differentiation as a source transformation.

    def f(x):                          def f_adjoint(x):
        y = R.exp(x)                       y = R.exp(x)
        z = R.sum(y)            →          z = R.sum(y)
        return z                           z_adjoint = R.ones(())
                                           y_adjoint = R.broadcast_to(z_adjoint, …)
                                           x_adjoint = R.multiply(y_adjoint, y)
                                           x_adjoint_out = x_adjoint
                                           return (z, (x_adjoint_out,))

Kernels of the loop IR, and ops that are only loops, have theirs differentiated (``kernel_gradients.py``), branches
and loops as wholes (``control_gradients.py``). Adjoints that are 0 because a value was not taken meet no infinite
derivative (``structural_zeros.py``).

One environment of adjoints, one loop over the bindings reversed (Griewank & Walther, Evaluating Derivatives, ch. 6).
Calls of other graph functions are inlined first; blocks are merged to one dataflow block. An op without a gradient rule
that is composed of others is differentiated as those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.arguments import sequence, whole
from pullback.ir.errors import DifferentiationError, InternalError
from pullback.ir.module import GlobalVar, IRModule, own_attributes
from pullback.ir.node import span_scope
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.ir.words import guided
from pullback.relax.analysis import called_functions, used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.boxes import is_handle
from pullback.relax.expr import (
    Binding,
    Call,
    Expr,
    Function,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from pullback.relax.mutator import copy_with_new_vars, emit_body
from pullback.relax.op.primal_gradient import PrimalRule
from pullback.relax.op_calls import as_var, is_op
from pullback.relax.regions import is_control
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo, as_tuple, format_info, has_adjoint, same_info
from pullback.relax.transform.checkpoints import Copies, unmarked
from pullback.relax.transform.control_gradients import adjoint_of_control
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.decompose_ops import decompose_what_has_no_gradient
from pullback.relax.transform.fold_transpose import fold_transposes
from pullback.relax.transform.inline_functions import inline_calls, over_regions
from pullback.relax.transform.joint_region import JoinTwins, Twins
from pullback.relax.transform.kernel_gradients import KernelGradients, operands
from pullback.relax.transform.raise_ops import RaiseOps
from pullback.relax.transform.recursion_gradients import RecursionGradient
from pullback.relax.transform.refuse_gradient import refuse_what_has_no_gradient
from pullback.relax.transform.region_writer import zeros_of
from pullback.relax.transform.roots import Roots, is_differentiable
from pullback.relax.transform.segment_loops import segmented
from pullback.relax.transform.share_prefixes import share_prefixes
from pullback.relax.transform.structural_zeros import DENSE, MASKED, StructuralZeros
from pullback.tir.expr import FLOATS

# An adjoint mirrors its value: an expression for a tensor, a list for a tuple, None for zero.
Adjoint = Any


@guided
@dataclass(frozen=True)
class Gradient(Pass):
    """Add ``<f>_adjoint``, which returns ``(what f returned, (adjoints…))``.

    Args:
        func_name: the function, a name or a GlobalVar.
        require_grads: parameters of it (or one, or names), by default all, and variables that are bound in it, in any
            of its blocks. The adjoints are in this order.
        target_index: which of the function's results is differentiated, when it returns a tuple: a float scalar.

    Examples:
        >>> @R.function
        ... def main(a: R.Tensor((3,), "float32"), b: R.Tensor((3,), "float32")):
        ...     return R.sum(a * a * b)
        >>> module = relax.transform.Gradient("main", require_grads="a")(pullback.IRModule({"main": main}))
        >>> vm = relax.VirtualMachine(pullback.compile(module))
        >>> vm["main_adjoint"](np.ones(3, "float32"), np.ones(3, "float32"))
        (tensor(3., shape=(), dtype=float32), (tensor([2., 2., 2.], shape=(3,), dtype=float32),))

    Checks: raises DifferentiationError when the target is no float scalar, when a required parameter is not of a float
    dtype, or, listing all of them, when ops without a gradient lie on the way. All of it is checked before anything is
    differentiated. The function itself stays; a function named ``<f>_adjoint`` is replaced.
    """

    func_name: str | GlobalVar
    require_grads: Var | str | Sequence[Var | str] | None = None
    target_index: int = 0

    def run(self, module: IRModule) -> IRModule:
        name = self.func_name.name if isinstance(self.func_name, GlobalVar) else self.func_name
        if not isinstance(name, str):
            message = f"Gradient takes the name of a function or its GlobalVar, not {type(name).__name__}"
            raise DifferentiationError(message, hint='write Gradient("main")(module)')
        function = module[name]
        if not isinstance(function, Function):
            raise DifferentiationError(
                f"{name} is a kernel of the loop IR, not a graph function",
                hint="name an @R.function; a kernel is called by one with R.call_tir",
            )
        required, inner = required_values(name, function, self.require_grads)
        work = module.copy()
        work[name] = _also_returning(function, inner) if inner else function
        raised = RaiseOps()(work)  # a legalised op has the op's gradient
        function = raised[name]
        whole = over_regions(inline_calls(function, raised), raised, prepared)
        result = module.copy()
        adjoint = differentiate(name, whole, required, self.target_index, KernelGradients(result), len(inner))
        adjoint = over_regions(inline_calls(adjoint, raised), raised, tidied)
        for kernel in set(result) - {*module, *called_functions(adjoint)}:  # of a loop that was differentiated anew
            del result[kernel]
        result[f"{name}_adjoint"] = adjoint
        return result


def prepared(function: Function) -> Function:
    return segmented(share_prefixes(decompose_what_has_no_gradient(function)))


def tidied(function: Function) -> Function:
    return remove_dead_bindings(fold_transposes(remove_dead_bindings(function)))


def required_values(
    name: str, function: Function, required: Var | str | Sequence[Var | str] | None
) -> tuple[list[int], list[Var]]:
    """What adjoints are wanted of: numbers of parameters, and, counted on from the last of these, of variables that are
    bound in the function, which are the second result."""
    given = (
        [required]
        if isinstance(required, (Var, str))
        else list(sequence("require_grads", () if required is None else required))
    )
    bound = {b.var: b.var for b in function.bindings}
    by_name = {var.name: var for var in bound} | {p.name: p for p in function.params}
    given = [by_name.get(v, v) if isinstance(v, str) else v for v in given]
    inner = [v for v in given if isinstance(v, Var) and v in bound]
    if not inner:
        return required_indices(name, function, required), []
    for var in inner:
        if not isinstance(var.struct_info, TensorStructInfo) or not is_differentiable(var.struct_info):
            info = format_info(var.struct_info)
            message = f"the gradient with respect to {var.name} of {name} cannot be taken: it is {info}"
            raise DifferentiationError(message, span=var.span, hint="only floating-point tensors have gradients")
    count = Counter(inner)
    if len(count) < len(inner):
        label = count.most_common(1)[0][0].name
        message = f"the gradient of {name} with respect to {label} is required twice"
        raise DifferentiationError(message, hint="name each variable once in require_grads")
    of_params = iter(required_indices(name, function, [v for v in given if not isinstance(v, Var) or v not in count]))
    places = {var: len(function.params) + k for k, var in enumerate(inner)}
    return [places[v] if isinstance(v, Var) and v in places else next(of_params) for v in given], inner


def _also_returning(function: Function, variables: Sequence[Var]) -> Function:
    """The function that also returns these of its variables, so that passes keep them: those of dataflow blocks under
    other names."""
    blocks, chosen = [], set(variables)
    outer: dict[Var, Var] = {}
    for block in function.body.blocks:
        local = [b.var for b in block.bindings if b.var in chosen]
        outer |= {var: Var(f"{var.name}_value", var.struct_info, span=var.span) for var in local}
        more = [VarBinding(outer[var], var, span=var.span) for var in local]
        blocks.append(type(block)((*block.bindings, *more), span=block.span))
    values = Tuple(tuple(outer[var] for var in variables))
    body = SeqExpr(tuple(blocks), Tuple((function.body.body, values)), span=function.body.span)
    return Function(function.params, body, None, function.attrs, span=function.span)


def required_indices(
    name: str, function: Function, required: Var | str | Sequence[Var | str] | None, option: str = "require_grads"
) -> list[int]:
    """Positions of the parameters whose adjoints, or tangents, are wanted; ``option`` says so."""
    given = (
        list(function.params)
        if required is None
        else [required]
        if isinstance(required, (Var, str))
        else list(sequence(option, required))
    )
    by_name = {p.name: p for p in function.params}
    places = {p: i for i, p in enumerate(function.params)}
    indices = []
    for wanted in given:
        var = by_name.get(wanted, wanted) if isinstance(wanted, str) else wanted
        if not isinstance(var, Var) or var not in places:
            label = getattr(var, "name", var)
            raise DifferentiationError(
                f"{label} is not a parameter of {name}",
                hint=f"{option} takes variables of module[{name!r}].params: "
                + ", ".join(p.name for p in function.params),
            )
        index = places[var]
        if index in indices:
            raise DifferentiationError(
                f"the gradient of {name} with respect to {var.name} is required twice",
                hint=f"name each parameter once in {option}",
            )
        if not is_differentiable(var.struct_info):
            info = format_info(var.struct_info)
            message = f"the gradient with respect to {var.name} of {name} cannot be taken: it is {info}"
            raise DifferentiationError(message, span=var.span, hint="only floating-point tensors have gradients")
        indices.append(index)
    return indices


def _target(name: str, function: Function, index: int) -> Expr:
    """The result that is differentiated."""
    index, result = whole("target_index", index), function.body.body
    info = result.struct_info
    if isinstance(info, TupleStructInfo):
        if not 0 <= index < len(info.fields):
            raise DifferentiationError(
                f"target_index {index} is outside the {len(info.fields)} results of {name}",
                hint="results are counted from 0",
            )
        result = result.fields[index] if isinstance(result, Tuple) else TupleGetItem(result, index)
    elif index != 0:
        raise DifferentiationError(
            f"target_index {index} is outside the single result of {name}", hint="results are counted from 0"
        )
    info = result.struct_info
    if not isinstance(info, TensorStructInfo) or info.ndim != 0 or info.dtype not in FLOATS:
        raise DifferentiationError(
            f"the target of a gradient must be a floating-point scalar, {name} gives {format_info(info)}",
            span=function.span,
            hint="append a loss first (relax.training.AppendLoss), or sum the result with R.sum",
        )
    return result


def differentiate(
    name: str, function: Function, required: Sequence[int], target_index: int, kernels: KernelGradients, inner: int = 0
) -> Function:
    """The adjoint function of ``function`` for the parameters at the positions ``required``. With ``inner``, the
    function returns what it did and a tuple of that many values of its own; numbers after those of the parameters are
    theirs."""
    function, again = unmarked(copy_with_new_vars(function))
    if not inner:
        _target(name, function, target_index)
    builder = BlockBuilder()
    builder.begin([p.name for p in function.params])
    with builder.dataflow():
        arguments: dict[Var, Expr] = {p: p for p in function.params}
        result, values = emit_body(function, arguments, builder, final=True), ()
        if inner:
            named = {b.var: b.value for b in builder.current_bindings()}
            result, values = result.fields[0], tuple(named.get(v, v) for v in result.fields[1].fields)
        wanted = [[*function.params, *values][i] for i in required]
        forward = builder.current_bindings()
        outputs = [_as_output(builder, f) for f in (result.fields if isinstance(result, Tuple) else (result,))]
        forward_body = Tuple(tuple(outputs)) if isinstance(result, Tuple) else outputs[0]
        target = _target(name, Function(function.params, forward_body), target_index)
        refuse_what_has_no_gradient(forward, target, dict.fromkeys(wanted, 1), kernels)
        sweep = ReverseSweep(builder, forward, {p: 1 << k for k, p in enumerate(wanted)}, kernels)
        sweep.copies, sweep.whole_tuples = Copies(builder, forward, again), True
        sweep.begin(target)
        sweep.run()
        adjoints = tuple(sweep.final(p) for p in wanted)
    body = builder.finish(Tuple((forward_body, Tuple(adjoints))))
    attrs = own_attributes(function.attrs)
    adjoint = Function(function.params, body, None, attrs, span=function.span)
    return JoinTwins(sweep.twins).function(adjoint) if sweep.twins else adjoint


def _as_output(builder: BlockBuilder, value: Expr) -> Expr:
    """A result of the function under a variable that may leave the dataflow block."""
    return builder.promote(value) if isinstance(value, Var) else value


class ReverseSweep:
    """The environment of adjoints and the loop over the bindings reversed. ``roots``: a bit for each of the variables
    whose adjoints are wanted; ``zeros``: what is known of adjoints already, where ``forward`` is a part of something
    larger; ``recursions``: the gradients of recursive functions around, by the functions' labels."""

    def __init__(
        self,
        builder: BlockBuilder,
        forward: Sequence[Binding],
        roots: Mapping[Var, int],
        kernels: KernelGradients,
        zeros: StructuralZeros | None = None,
        recursions: Mapping[str, RecursionGradient] | None = None,
    ) -> None:
        self.builder, self.forward, self.kernels = builder, forward, kernels
        self.adjoints: dict[Var, Adjoint] = {}
        self.twins: Twins = {}
        self.copies = Copies(builder, (), ())
        self.whole_tuples = False  # whether adjoints of tuples are variables of their own
        self.recursions = recursions or {}
        around = {label: gradient.calls for label, gradient in self.recursions.items()}
        self.zeros = StructuralZeros(Roots(roots, (), around)) if zeros is None else zeros
        self.roots = self.zeros.roots
        self.roots.follow(forward)
        self.active = {v for v in self.roots.values if self.roots.of(v)}  # what moves with what is wanted

    def inner(self, builder: BlockBuilder, forward: Sequence[Binding], roots: Mapping[Var, int]) -> ReverseSweep:
        """The sweep over the bindings of a region."""
        return ReverseSweep(builder, forward, roots, self.kernels, None, self.recursions)

    def inside(self, gradient: RecursionGradient) -> ReverseSweep:
        """A sweep of which those over regions of a recursive function come."""
        recursions = {**self.recursions, gradient.label: gradient}
        return ReverseSweep(self.builder, [], {}, self.kernels, None, recursions)

    def begin(self, target: Expr) -> None:
        """The adjoint of the target is 1."""
        seed = Op.get("ones")((), target.dtype)
        self.zeros.degrees[seed] = DENSE
        if isinstance(target, Var):
            self.adjoints[target] = self.builder.emit(seed, f"{target.name}_adjoint")
            self.zeros.degrees[self.adjoints[target]] = DENSE
        elif isinstance(target, TupleGetItem):
            self.accumulate(target, seed)

    def run(self) -> None:
        """Carry the adjoints that there are from binding to binding, the last one first."""
        for binding in reversed(self.forward):
            adjoint = self.adjoints.get(binding.var)
            if binding.var in self.active and adjoint is not None and self.roots.passes_on(binding):
                with span_scope(binding.span):
                    self.propagate(binding, self.as_tuple(binding, adjoint) if self.whole_tuples else adjoint)

    def as_tuple(self, binding: Binding, adjoint: Adjoint) -> Adjoint:
        """The adjoint of a tuple as items of one variable, ``t_adjoint = (a, b)``: of one whose fields are tensors with
        adjoints. Where some are zeros, rules see which."""
        info, value = binding.var.struct_info, binding.value
        if not isinstance(info, TupleStructInfo) or is_control(value) or not isinstance(value, (Call, Tuple)):
            return adjoint
        tensors = all(isinstance(f, TensorStructInfo) and has_adjoint(f) and not is_handle(f) for f in info.fields)
        if not tensors or any(part is None for part in adjoint):
            return adjoint
        whole = self.builder.emit(Tuple(tuple(adjoint)), self.name_of(binding.var))
        items = [TupleGetItem(whole, k) for k in range(len(adjoint))]
        found = [self.zeros.degrees.get(part, DENSE) for part in adjoint]
        self.zeros.degrees |= dict(zip((*items, whole), (*found, max(found, default=DENSE)), strict=True))
        return items

    def propagate(self, binding: Binding, adjoint: Adjoint) -> None:
        """Carry the adjoint of a binding's variable to what its value reads."""
        value = binding.value
        if isinstance(binding, MatchCast):
            self.accumulate(value, self.cast_back(binding, adjoint))
            return
        if not isinstance(value, Call):
            self.accumulate(value, adjoint)
            return
        if not isinstance(value.op, Op):
            raise DifferentiationError("a call of an unknown function cannot be differentiated", span=value.span)
        again = self.computed_again(binding)
        call = again.value
        assert isinstance(call, Call)
        if is_control(value):
            for arg, contribution in zip(value.args, adjoint_of_control(self, again, adjoint), strict=True):
                self.accumulate(arg, contribution)
            return
        dy = self.materialize(adjoint, binding.var)
        arguments: Sequence[Any] = value.args
        if value.op.gradient is not None:
            contributions = self.by_rule(value.op.gradient, dy, again.var, call)
            contributions = self.zeros.guarded(value.op, contributions, self.roots.of(value))
        else:
            arguments = operands(value)
            active = [any(v in self.active for v in used_vars(argument)) for argument in arguments]
            degree = self.zeros.degree_of_any(dy)
            contributions = self.kernels.adjoints(self.builder, call, dy, active, degree)
        for arg, contribution in zip(arguments, contributions, strict=True):
            if contribution is not None:
                self.accumulate(arg, contribution)

    def by_rule(self, rule: Callable[..., Any], dy: Any, var: Var, call: Call) -> Sequence[Any]:
        """What an op's rule gives for a call of it that is bound to ``var``."""
        if isinstance(rule, PrimalRule):
            return rule.adjoints(self.builder, dy, var, call)
        found = rule(dy, var, *call.args, **call.attrs)
        return [None if is_op(part, "grad.no_grad") else part for part in found]

    def computed_again(self, binding: Binding) -> Binding:
        """The binding over the values that the backward part computes again."""
        again = self.copies.of(binding)
        if again is not binding:
            for var, copy in self.copies.made().items():
                self.roots.values[as_var(copy)] = self.roots.values.get(as_var(var), 0)
        return again

    def cast_back(self, binding: MatchCast, adjoint: Adjoint) -> Adjoint:
        """The adjoint of what a match_cast took, in its type: other names of the same sizes."""
        info = binding.value.struct_info
        if not isinstance(info, TensorStructInfo) or info.shape is None or same_info(info, binding.target):
            return adjoint
        dy = self.materialize(adjoint, binding.var)
        cast = self.builder.match_cast(dy, info, f"{binding.var.name}_adjoint")
        self.zeros.degrees[cast] = self.zeros.degree_of_any(dy)
        return cast

    def materialize(self, adjoint: Adjoint, value: Expr) -> Any:
        """The adjoint as the gradient rule wants it: tuples complete, missing parts zeros."""
        if not isinstance(value.struct_info, TupleStructInfo):
            return adjoint
        parts = adjoint if adjoint is not None else [None] * len(value.struct_info.fields)
        whole = [p if p is not None else zeros_of(i) for p, i in zip(parts, value.struct_info.fields, strict=True)]
        self.zeros.degrees.update((w, MASKED) for w, p in zip(whole, parts, strict=True) if p is None)
        return whole

    def accumulate(self, expr: Any, adjoint: Adjoint) -> None:
        """Add ``adjoint`` to what is known of the adjoint of ``expr``."""
        if adjoint is None:
            return
        if isinstance(expr, Tuple):
            for field, part in zip(expr.fields, adjoint, strict=True):
                self.accumulate(field, part)
        elif isinstance(expr, TupleGetItem):
            size = len(as_tuple(expr.tuple_value.struct_info).fields)
            self.accumulate(expr.tuple_value, [adjoint if i == expr.index else None for i in range(size)])
        elif isinstance(expr, Var) and expr in self.active and is_differentiable(expr.struct_info):
            name, roots = self.name_of(expr), self.roots.of(expr)
            self.adjoints[expr] = self.add(self.adjoints.get(expr), adjoint, name, roots)

    def name_of(self, var: Var) -> str:
        """The name of the variable's adjoint."""
        return f"{var.name}_adjoint"

    def add(self, known: Adjoint, more: Adjoint, name: str, roots: int) -> Adjoint:
        if more is None:
            return known
        if isinstance(more, list):
            known = known if known is not None else [None] * len(more)
            return [
                m if k is None and isinstance(m, Var) and self.whole_tuples else self.add(k, m, f"{name}_{i}", roots)
                for i, (k, m) in enumerate(zip(known, more, strict=True))
            ]
        if known is not None and is_handle(more.struct_info):
            raise InternalError(f"{name}: a box is unboxed twice, and its adjoints cannot be added up")
        total = more if known is None else Op.get("add")(known, more)
        var = self.builder.emit(total, name)
        self.zeros.degrees[var] = self.zeros.degree(total, roots) or DENSE
        return var

    def final(self, param: Var) -> Expr:
        """The adjoint of a parameter, under its final name; zeros when nothing depends on it."""
        return self._final(self.adjoints.get(param), param.struct_info, param.name)

    def _final(self, adjoint: Adjoint, info: Any, name: str) -> Expr:
        if isinstance(info, TupleStructInfo):
            parts = adjoint if adjoint is not None else [None] * len(info.fields)
            fields = enumerate(zip(parts, info.fields, strict=True))
            return Tuple(tuple(self._final(p, i, f"{name}_{k}") for k, (p, i) in fields))
        if adjoint is None:
            adjoint = self.builder.emit(zeros_of(info), f"{name}_adjoint")
        return self.builder.emit_output(adjoint, f"{name}_adjoint_out")
