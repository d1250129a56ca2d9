"""Checkpoints: what lies between ``R.grad.start_checkpoint`` and ``R.grad.end_checkpoint`` is computed again.

    def main(x):                                 def main_adjoint(x):
        x_scp = R.grad.start_checkpoint(x)           lv1 = R.exp(x)
        lv1 = R.exp(x_scp)                           lv2 = R.sin(lv1)
        lv2 = R.sin(lv1)                     →       …
        lv2_ecp = R.grad.end_checkpoint(lv2)         lv1_cp = R.exp(x)              # in the backward part
        …                                            lv1_adjoint = R.multiply(lv2_adjoint, R.cos(lv1_cp))

The marks are no part of the adjoint function. Values that depend on what was started, and have not been ended, are
computed again; what ends is kept. The copies have names in ``_cp``: by these the compiler knows that the two are to
stay two (:class:`KeepCopies`, :class:`FreeCopies`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.ir.node import span_scope
from pullback.ir.op import Op
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Binding, Call, Expr, Function, Var, VarBinding
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import as_var, is_op, lacks_state
from pullback.relax.struct_info import TensorStructInfo

START, END = "grad.start_checkpoint", "grad.end_checkpoint"
_COPY = re.compile(r".*_cp(_\d+)?$")


def is_copy(var: Var) -> bool:
    """Whether the variable's name says that its value is computed again."""
    return _COPY.match(var.name) is not None


def unmarked(function: Function) -> tuple[Function, list[bool]]:
    """The function without the marks, and of each of its bindings whether it lies between them."""
    if not any(is_op(b.value, START) or is_op(b.value, END) for b in function.bindings):
        return function, []
    mutator = _Unmark()
    plain = mutator.function(function)
    return plain, [b.var in mutator.again and b.var not in mutator.kept for b in plain.bindings]


class _Unmark(ExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self.started: set[Var] = set()  # variables of the marks, and what depends on them
        self.again: set[Var] = set()  # the new variables that lie between
        self.kept: set[Var] = set()

    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value
        begins, ends = is_op(value, START), is_op(value, END)
        inside = any(v in self.started for v in used_vars(value))
        if begins or (inside and not ends):
            self.started.add(binding.var)
        if begins or ends:
            self.bind(binding.var, self.expr(value.args[0]))
        else:
            super().rewrite_binding(binding)
        new = self.env[binding.var]
        if isinstance(new, Var):
            if ends:
                self.kept.add(new)
                self.kept.update(v for v in [self.expr(value.args[0])] if isinstance(v, Var))
            elif inside and not begins and isinstance(binding, VarBinding) and not lacks_state(value):
                self.again.add(new)


class Copies:
    """The values of a function that its backward part computes again."""

    def __init__(self, builder: BlockBuilder, forward: Sequence[Binding], again: Sequence[bool]) -> None:
        self.builder = builder
        self.bindings = {b.var: b for b, is_again in zip(forward, again, strict=True) if is_again} if again else {}
        self.places = {var: k for k, var in enumerate(self.bindings)}
        self.mutator = ExprMutator()  # its environment: the copies

    def of(self, binding: Binding) -> Binding:
        """The binding over copies, where it reads what is computed again or is itself."""
        if not self.bindings:
            return binding
        reads = [v for v in (binding.var, *used_vars(binding.value)) if v in self.bindings]
        if not reads:
            return binding
        for var in sorted(self._missing(reads), key=self.places.__getitem__):
            with span_scope(self.bindings[var].span):
                value = self.mutator.expr(self.bindings[var].value)
                self.mutator.env[var] = self.builder.emit(value, f"{var.name}_cp")
        new = as_var(self.mutator.env.get(binding.var, binding.var))
        return VarBinding(new, self.mutator.expr(binding.value), span=binding.span)

    def made(self) -> Mapping[Expr, Expr]:
        """The copies so far, by what they are copies of."""
        return self.mutator.env

    def _missing(self, wanted: Sequence[Var]) -> set[Var]:
        """What is still to be copied for these."""
        missing: set[Var] = set()
        stack = list(wanted)
        while stack:
            var = stack.pop()
            if var in self.bindings and var not in missing and var not in self.mutator.env:
                missing.add(var)
                stack += used_vars(self.bindings[var].value)
        return missing


@dataclass(frozen=True)
class KeepCopies(FunctionPass):
    """What copies read that is no copy they read through ``start_checkpoint``, so that no pass takes the copy and its
    original for one value. All other marks go.

        lv_cp = R.exp(x)        →        x_kept = R.grad.start_checkpoint(x)
                                         lv_cp = R.exp(x_kept)

    Checks: copies are known by their names in ``_cp``, which Gradient gives. It comes before passes that merge equal
    values; FreeCopies follows these.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        plain, _ = unmarked(function)
        return _Separate().function(plain) if any(is_copy(b.var) for b in plain.bindings) else plain


class _Separate(ExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self.apart: dict[Var, Var] = {}

    def rewrite_binding(self, binding: Binding) -> None:
        if not is_copy(binding.var) or not isinstance(binding.value, Call):
            super().rewrite_binding(binding)
            return
        outer: dict[Expr, Expr] = {v: self.env.get(v, v) for v in used_vars(binding.value) if not is_copy(v)}
        self.env.update({var: self.kept_apart(value) for var, value in outer.items()})
        super().rewrite_binding(binding)
        self.env.update(outer)

    def kept_apart(self, value: Expr) -> Expr:
        """A tensor's variable under another name."""
        info = value.struct_info
        if not isinstance(value, Var) or not isinstance(info, TensorStructInfo) or info.shape is None:
            return value
        if value not in self.apart:
            self.apart[value] = self.builder.emit(Op.get(START)(value), f"{value.name}_kept")
        return self.apart[value]


@dataclass(frozen=True)
class FreeCopies(FunctionPass):
    """``start_checkpoint`` becomes a view of the same shape: it costs nothing, and kernels end at it.

        x_kept = R.grad.start_checkpoint(x)        →        x_kept = R.reshape(x, x.shape)

    Checks: it comes after EliminateCommonSubexpr, which would merge a copy and its original, and after Simplify, to
    which such a view is nothing.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        return _Free().function(function) if any(is_op(b.value, START) for b in function.bindings) else function


class _Free(ExprMutator):
    def rewrite_call(self, call: Call) -> Expr:
        return Op.get("reshape")(call.args[0], call.shape) if is_op(call, START) else call
