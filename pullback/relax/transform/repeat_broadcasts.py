"""RepeatBroadcasts: ``x - mean`` is written anew for each of its readers, where x is in memory in any case.

    c = R.subtract(x, mean)                 c = R.subtract(x, mean)
    v = R.sum(R.square(c))         →        v = R.sum(R.square(c))
    y = R.multiply(c, r)                    c_1 = R.subtract(x, mean)
                                            y = R.multiply(c_1, r)

To compute it from x costs no more than to read it, and each copy fuses with its reader, so c is never written. Run it
after EliminateCommonSubexpr.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import used_vars
from pullback.relax.expr import Binding, Function, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import is_op
from pullback.relax.struct_info import same_shape


@dataclass(frozen=True)
class RepeatBroadcasts(FunctionPass):
    """Repeat sums, differences and products of a tensor and a smaller one that is broadcast (no single number)."""

    def function(self, function: Function, module: IRModule) -> Function:
        repeated = _repeated(function)
        return _Repeat(repeated).function(function) if repeated else function


def _repeated(function: Function) -> dict[Var, Any]:
    """The values that are repeated, by variable."""
    values = {b.var: b.value for b in function.bindings}
    readers: dict[Var, set[Var]] = {}
    for var, value in values.items():
        for used in used_vars(value):
            readers.setdefault(used, set()).add(var)
    returned = set(used_vars(function.body.body))

    def in_memory(var: Var, reader: Var) -> bool:
        """Whether the operand is read elsewhere too, or comes from one that is."""
        if var not in values or var in returned or readers[var] != {reader}:
            return True
        large = _large_operand(values[var])
        return large is not None and in_memory(large, var)

    result: dict[Var, Any] = {}
    for var, value in reversed(values.items()):
        large = _large_operand(value)
        if large is None or var in returned:
            continue
        copies = sum(len(readers.get(r, ())) if r in result else 1 for r in readers.get(var, ()))
        if copies > 1 and in_memory(large, var):
            result[var] = value
    return result


def _large_operand(value: Any) -> Var | None:
    """The operand of the result's shape, if the other one is a smaller tensor."""
    if not any(is_op(value, name) for name in ("add", "subtract", "multiply")):
        return None
    shapes = [a.struct_info.shape for a in value.args]
    if None in shapes or any(all(isinstance(s, int) and s == 1 for s in shape) for shape in shapes):
        return None
    large = [a for a, s in zip(value.args, shapes, strict=True) if same_shape(s, value.struct_info.shape)]
    return large[0] if len(large) == 1 and isinstance(large[0], Var) else None


class _Repeat(ExprMutator):
    def __init__(self, repeated: dict[Var, Any]) -> None:
        super().__init__()
        self.repeated = repeated
        self.copies: dict[Var, Var] = {}  # of the binding that is being rewritten

    def rewrite_binding(self, binding: Binding) -> None:
        if binding.var in self.repeated:
            return
        self.copies = {}
        super().rewrite_binding(binding)

    def expr(self, expr: Any) -> Any:
        if isinstance(expr, Var) and expr in self.repeated:
            if expr not in self.copies:
                self.copies[expr] = self.builder.emit(self.expr(self.repeated[expr]), expr.name)
            return self.copies[expr]
        return super().expr(expr)
