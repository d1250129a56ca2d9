"""Gradient: reverse-mode differentiation as a source transformation.

    def f(x):                          def f_adjoint(x):
        y = R.exp(x)                       y = R.exp(x)
        z = R.sum(y)            →          z = R.sum(y)
        return z                           z_adjoint = R.ones(())
                                           y_adjoint = R.broadcast_to(z_adjoint, …)
                                           x_adjoint = R.multiply(y_adjoint, y)
                                           x_adjoint_out = x_adjoint
                                           return (z, (x_adjoint_out,))

Kernels of the loop IR, and ops that are only loops, have theirs differentiated (``kernel_gradients.py``). Adjoints that
are 0 because a value was not taken meet no infinite derivative (``structural_zeros.py``).

One environment of adjoints, one loop over the bindings reversed (Griewank & Walther, Evaluating Derivatives, ch. 6).
Calls of other graph functions are inlined first; blocks are merged to one dataflow block. An op without a gradient rule
that is composed of others is differentiated as those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.arguments import sequence, whole
from pullback.ir.errors import DifferentiationError, UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.node import span_scope
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.ir.words import guided
from pullback.relax.analysis import used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Binding, Call, Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.mutator import copy_with_new_vars, emit_body
from pullback.relax.op_calls import is_call_tir, lacks_state, no_state
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo, format_info
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings
from pullback.relax.transform.decompose_ops import decompose_what_has_no_gradient
from pullback.relax.transform.fold_transpose import fold_transposes
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.kernel_gradients import KernelGradients, operands
from pullback.relax.transform.raise_ops import RaiseOps
from pullback.relax.transform.share_prefixes import share_prefixes
from pullback.relax.transform.structural_zeros import DENSE, MASKED, StructuralZeros
from pullback.tir.expr import FLOATS

# An adjoint mirrors its value: an expression for a tensor, a list for a tuple, None for zero.
Adjoint = Any


@guided
@dataclass(frozen=True)
class Gradient(Pass):
    """Add ``<f>_adjoint``, which returns ``(what f returned, (adjoints…))``.

    ``func_name``: the function, a name or a GlobalVar. ``require_grads``: parameters of it (or one, or names), default
    all.
    ``target_index``: which of the function's results is differentiated, when it returns a tuple: a float scalar.

    Raises DifferentiationError when the target is no float scalar, when a required parameter is not of a float dtype,
    or, listing all of them, when ops without a gradient lie on the way.
    """

    func_name: str | GlobalVar
    require_grads: Var | str | Sequence[Var | str] | None = None
    target_index: int = 0

    def run(self, module: IRModule) -> IRModule:
        name = self.func_name.name if isinstance(self.func_name, GlobalVar) else self.func_name
        if not isinstance(name, str):
            message = f"Gradient takes the name of a function or its GlobalVar, not {type(name).__name__}"
            raise DifferentiationError(message, hint='write Gradient("main")(module)')
        raised = RaiseOps()(module)  # a legalised op has the op's gradient
        function = raised[name]
        if not isinstance(function, Function):
            raise DifferentiationError(
                f"{name} is a kernel of the loop IR, not a graph function",
                hint="name an @R.function; a kernel is called by one with R.call_tir",
            )
        required = required_indices(name, function, self.require_grads)
        whole = share_prefixes(decompose_what_has_no_gradient(inline_calls(function, raised)))
        result = module.copy()
        adjoint = differentiate(name, whole, required, self.target_index, KernelGradients(result))
        result[f"{name}_adjoint"] = inline_calls(adjoint, result)
        return result


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


def is_differentiable(info: Any) -> bool:
    if isinstance(info, TupleStructInfo):
        return any(is_differentiable(f) for f in info.fields)
    return isinstance(info, TensorStructInfo) and info.dtype in FLOATS


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
    name: str, function: Function, required: Sequence[int], target_index: int, kernels: KernelGradients
) -> Function:
    """The adjoint function of ``function`` for the parameters at the positions ``required``."""
    function = copy_with_new_vars(function)
    params = [function.params[i] for i in required]
    _target(name, function, target_index)
    builder = BlockBuilder()
    builder.begin([p.name for p in function.params])
    with builder.dataflow():
        arguments: dict[Var, Expr] = {p: p for p in function.params}
        result = emit_body(function, arguments, builder, final=True)
        forward = builder.current_bindings()
        outputs = [_as_output(builder, f) for f in (result.fields if isinstance(result, Tuple) else (result,))]
        forward_body = Tuple(tuple(outputs)) if isinstance(result, Tuple) else outputs[0]
        target = _target(name, Function(function.params, forward_body), target_index)
        sweep = ReverseSweep(builder, forward, params, kernels)
        sweep.run(target)
        adjoints = tuple(sweep.final(p) for p in params)
    body = builder.finish(Tuple((forward_body, Tuple(adjoints))))
    attrs = {k: v for k, v in function.attrs.items() if k != "private"}
    adjoint = Function(function.params, body, None, attrs, span=function.span)
    return remove_dead_bindings(fold_transposes(remove_dead_bindings(adjoint)))


def _as_output(builder: BlockBuilder, value: Expr) -> Expr:
    """A result of the function under a variable that may leave the dataflow block."""
    return builder.promote(value) if isinstance(value, Var) else value


class ReverseSweep:
    """The environment of adjoints and the loop over the bindings reversed.

    ``zeros``: what is known of the adjoints already, where ``forward`` is a part of something larger.
    """

    def __init__(
        self,
        builder: BlockBuilder,
        forward: Sequence[Binding],
        params: Sequence[Var],
        kernels: KernelGradients,
        zeros: StructuralZeros | None = None,
    ) -> None:
        self.builder, self.forward, self.kernels = builder, forward, kernels
        self.adjoints: dict[Var, Adjoint] = {}
        self.zeros = StructuralZeros(params) if zeros is None else zeros
        self.zeros.follow(forward)
        self.active = set(params)  # what depends on a required parameter
        for binding in forward:
            if any(v in self.active for v in used_vars(binding.value)):
                self.active.add(binding.var)

    def run(self, target: Expr) -> None:
        self.refuse(target)
        seed = Op.get("ones")((), target.dtype)
        self.zeros.degrees[seed] = DENSE
        if isinstance(target, Var):
            self.adjoints[target] = self.builder.emit(seed, f"{target.name}_adjoint")
            self.zeros.degrees[self.adjoints[target]] = DENSE
        elif isinstance(target, TupleGetItem):
            self.accumulate(target, seed)
        self.sweep()

    def sweep(self) -> None:
        """Carry the adjoints that there are from binding to binding, the last one first."""
        for binding in reversed(self.forward):
            adjoint = self.adjoints.get(binding.var)
            if binding.var in self.active and adjoint is not None:
                with span_scope(binding.span):
                    self.propagate(binding, adjoint)

    def refuse(self, target: Expr) -> None:
        """List all ops without a gradient between the parameters and the target, with their places. What is drawn
        without a state cannot be drawn again."""
        needed, offending = set(used_vars(target)), []
        for binding in reversed(self.forward):
            value = binding.value
            if binding.var not in needed or binding.var not in self.active:
                continue
            if lacks_state(value):
                raise no_state(value.op.short, value.span)
            needed.update(used_vars(value))
            if isinstance(value, Call) and isinstance(value.op, Op) and value.op.gradient is None:
                reason = self.kernels.refusal(value, self.is_active(value)) if _has_loops(value) else ""
                if reason is not None:
                    offending.append(f"  {value.op.short} at {binding.span}{reason and ': ' + reason}")
        if offending:
            hint = "call the kernel by R.call_tir_with_grad, or give the op a rule with relax.op.register_gradient"
            raise DifferentiationError("these ops have no gradient:\n" + "\n".join(reversed(offending)), hint=hint)

    def is_active(self, call: Call) -> list[bool]:
        """Which of the tensors that a kernel or an op is called on depend on a required parameter."""
        return [any(v in self.active for v in used_vars(value)) for value in operands(call)]

    def propagate(self, binding: Binding, adjoint: Adjoint) -> None:
        """Carry the adjoint of a binding's variable to what its value reads."""
        value = binding.value
        if not isinstance(value, Call):
            self.accumulate(value, adjoint)
            return
        if not isinstance(value.op, Op):
            raise DifferentiationError("a call of an unknown function cannot be differentiated", span=value.span)
        dy = self.materialize(adjoint, binding.var)
        arguments: Sequence[Any] = value.args
        if value.op.gradient is not None:
            contributions = value.op.gradient(dy, binding.var, *value.args, **value.attrs)
            contributions = self.zeros.guarded(value.op, contributions, self.zeros.roots_of(value))
        else:
            arguments = operands(value)
            degree = self.zeros.degree_of_any(dy)
            contributions = self.kernels.adjoints(self.builder, value, dy, self.is_active(value), degree)
        for arg, contribution in zip(arguments, contributions, strict=True):
            if contribution is not None:
                self.accumulate(arg, contribution)

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
            size = len(expr.tuple_value.struct_info.fields)  # type: ignore[attr-defined]
            self.accumulate(expr.tuple_value, [adjoint if i == expr.index else None for i in range(size)])
        elif isinstance(expr, Var) and expr in self.active and is_differentiable(expr.struct_info):
            name, roots = self.name_of(expr), self.zeros.roots_of(expr)
            self.adjoints[expr] = self.add(self.adjoints.get(expr), adjoint, name, roots)

    def name_of(self, var: Var) -> str:
        """The name of the variable's adjoint."""
        return f"{var.name}_adjoint"

    def add(self, known: Adjoint, more: Adjoint, name: str, roots: int) -> Adjoint:
        if more is None:
            return known
        if isinstance(more, list):
            known = known if known is not None else [None] * len(more)
            return [self.add(k, m, f"{name}_{i}", roots) for i, (k, m) in enumerate(zip(known, more, strict=True))]
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


def _has_loops(call: Call) -> bool:
    """Whether there are loops to be differentiated."""
    op: Op = call.op  # type: ignore[assignment]
    return op.te is not None or op.kernel is not None or is_call_tir(call)


def zeros_of(info: Any) -> Expr:
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        raise UserError(f"the adjoint of {format_info(info)} cannot be zeros of a known shape")
    return Op.get("zeros")(info.shape, info.dtype)
