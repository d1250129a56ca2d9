"""What has no gradient is refused before anything is differentiated: all of it at once, with its places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pullback.ir.errors import DifferentiationError
from pullback.relax.analysis import used_vars
from pullback.relax.expr import Binding, Expr, Function, Var
from pullback.relax.op_calls import OpCall, is_call_tir, is_op_call, lacks_state, no_state
from pullback.relax.recursion import RECURSE
from pullback.relax.regions import is_control
from pullback.relax.struct_info import has_adjoint
from pullback.relax.transform.kernel_gradients import KernelGradients, operands
from pullback.relax.transform.roots import Calls, Roots


def refuse_what_has_no_gradient(
    forward: Sequence[Binding], target: Expr, params: Mapping[Var, int], kernels: KernelGradients
) -> None:
    """List all ops without a gradient between the parameters and the target, in branches and loops too. What is drawn
    without a state cannot be drawn again."""
    offending = list(_offending(forward, target, params, kernels))
    if offending:
        hint = "call the kernel by R.call_tir_with_grad, or give the op a rule with relax.op.register_gradient"
        raise DifferentiationError("these ops have no gradient:\n" + "\n".join(reversed(offending)), hint=hint)


def _offending(
    forward: Sequence[Binding],
    target: Any,
    params: Mapping[Var, int],
    kernels: KernelGradients,
    around: Mapping[str, Calls] | None = None,
) -> Iterator[str]:
    """Lines about ops without a gradient, the last first. ``around``: the recursive functions around."""
    roots, needed = Roots(params, forward, around), set(used_vars(target))
    for binding in reversed(forward):
        value = binding.value
        if binding.var not in needed or not roots.of(binding.var) or not roots.passes_on(binding):
            continue
        if lacks_state(value):
            raise no_state(value.op.short, value.span)
        needed.update(used_vars(value))
        if is_control(value):
            inner, params_bits = roots.around, None
            if value.op is RECURSE:
                calls = roots.recursion(value)
                inner, params_bits = {**inner, value.attrs["label"]: calls}, calls.params
            for name in ("otherwise", "then", "body", "function"):
                region = value.attrs.get(name)
                if isinstance(region, Function):
                    bits = roots.region_params(value) if params_bits is None else params_bits
                    yield from _offending_in(region, bits, kernels, inner)
        elif is_op_call(value) and value.op.gradient is None:
            active = [roots.of(v) != 0 for v in operands(value)]
            reason = kernels.refusal(value, active) if _has_loops(value) else ""
            if reason is not None:
                yield f"  {value.op.short} at {binding.span}{reason and ': ' + reason}"


def _offending_in(
    region: Function, bits: Sequence[int], kernels: KernelGradients, around: Mapping[str, Calls]
) -> Iterator[str]:
    params = {p: b if has_adjoint(p.struct_info) else 0 for p, b in zip(region.params, bits, strict=True)}
    yield from _offending(list(region.bindings), region.body.body, params, kernels, around)


def _has_loops(call: OpCall) -> bool:
    """Whether there are loops to be differentiated."""
    op = call.op
    return op.te is not None or op.kernel is not None or is_call_tir(call)
