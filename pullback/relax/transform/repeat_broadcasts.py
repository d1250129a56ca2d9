"""RepeatBroadcasts: ``x - mean`` is written anew for each of its readers, where x is in memory in any case.

    c = R.subtract(x, mean)                 c = R.subtract(x, mean)
    v = R.sum(R.square(c))         →        v = R.sum(R.square(c))
    y = R.multiply(c, r)                    c_1 = R.subtract(x, mean)
                                            y = R.multiply(c_1, r)

To compute it from x costs no more than to read it, and each copy fuses with its reader, so c is never written. Products
of matrices and the like need it in memory: they share one. Run it after EliminateCommonSubexpr.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import used_vars
from pullback.relax.expr import Binding, Function, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.transform.compose import broadcasts, contracts
from pullback.relax.transform.structure import once


@dataclass(frozen=True)
class RepeatBroadcasts(FunctionPass):
    """Repeat sums, differences and products of a tensor and a smaller one that is broadcast (no single number).

    Checks: the value has several readers, is no result, and its large operand is in memory in any case. It comes after
    EliminateCommonSubexpr, which would undo it.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        uses = _Uses(function)
        return _Repeat(uses).function(function) if uses.repeated else function


class _Uses:
    """Who reads what. ``repeated``: the values to repeat; ``shared``: those that somebody needs in memory."""

    def __init__(self, function: Function) -> None:
        self.values = {b.var: b.value for b in function.bindings}
        self.readers: dict[Var, set[Var]] = {}
        for var, value in self.values.items():
            for used in used_vars(value):
                self.readers.setdefault(used, set()).add(var)
        self.returned = set(used_vars(function.body.body))
        self.contracts = once(contracts)
        self.repeated: dict[Var, Any] = {}
        self.shared: set[Var] = set()
        places: dict[Var, int] = {}  # where a value is computed
        for var, value in reversed(self.values.items()):
            readers = self.readers.get(var, set())
            sharing = {r for r in readers if self.contracts(self.values[r])}
            places[var] = sum(places[r] if r in self.repeated else 1 for r in readers - sharing) + bool(sharing)
            large = broadcasts(value)
            if large is None or var in self.returned or places[var] < 2 or not self.in_memory(large, var):
                continue
            self.repeated[var] = value
            if sharing:
                self.shared.add(var)

    def in_memory(self, var: Var, reader: Var) -> bool:
        """Whether the operand is read elsewhere too, or comes from one that is."""
        if var not in self.values or var in self.returned or self.readers[var] != {reader}:
            return True
        large = broadcasts(self.values[var])
        return large is not None and self.in_memory(large, var)


class _Repeat(ExprMutator):
    def __init__(self, uses: _Uses) -> None:
        super().__init__()
        self.uses = uses
        self.copies: dict[Var, Var] = {}  # of the binding that is being rewritten
        self.reads_shared = False

    def rewrite_binding(self, binding: Binding) -> None:
        if binding.var in self.uses.repeated and binding.var not in self.uses.shared:
            return
        self.copies = {}
        self.reads_shared = self.uses.contracts(binding.value)
        super().rewrite_binding(binding)

    def expr(self, expr: Any) -> Any:
        if isinstance(expr, Var) and expr in self.uses.repeated and not self.reads_shared:
            if expr not in self.copies:
                self.copies[expr] = self.builder.emit(self.expr(self.uses.repeated[expr]), expr.name)
            return self.copies[expr]
        return super().expr(expr)
