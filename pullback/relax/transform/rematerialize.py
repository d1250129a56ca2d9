"""Rematerialize: what little memory will do is saved for the backward part; the rest is computed again from it.

    h = R.nn.relu(R.matmul(x, w))                      h = R.nn.relu(R.matmul(x, w))
    …                                                  …
                                                       h_cp = R.reshape(h, …)              # the same memory
    mask = R.greater(h, 0)          # next to h   →    mask = R.greater(h_cp, 0)           # next to its reader
    dz = R.where(mask, dh, 0)                          dz = R.where(mask, dh, 0)

The *forward part* is what the first result (the loss) needs; the rest is the *backward part*. Ops of the backward part
that wait for no adjoint, such as the mask, are *early*: the forward part could do them. Values of both kinds are the
vertices of a graph, and what the rest of the backward part reads must be saved, or computed again from what is saved.
So the values to save are a vertex cut: the one with the fewest bytes. Source: the min-cut partitioner of PyTorch's
AOTAutograd; Jain et al., Checkmate, MLSys 2020, on what there is to choose from.

Computed again is what is elementwise; what a contraction reads, too, if its work is large beside that of writing its
operand once more. A cheap value (a few additions, comparisons and the like) that the forward part does not need in
memory counts for a quarter more, since it must be written on purpose. Small values count for nothing, nor do results.
Of equal cuts the one nearest to the backward part is taken, from which the least is to be computed again.

The expressions are the same. FuseOps would join what is computed again with the kernel of its argument: a view of the
argument stands between, until all kernels are formed.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.relax.analysis import used_vars
from pullback.relax.expr import Binding, Expr, Function, Var, VarBinding
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import as_var
from pullback.relax.struct_info import TensorStructInfo, as_tensor
from pullback.relax.transform.compose import contracts, is_cheap, is_elementwise, is_view, moves_elements, products
from pullback.relax.transform.min_cut import ENDLESS, min_vertex_cut
from pullback.relax.transform.structure import once
from pullback.tir.expr import nbytes

_SMALL = 64  # values smaller than 1/64 of the largest one are always saved
_WORTH = 320  # products of a contraction for each element that it reads, beside which computing that is little


@dataclass(frozen=True)
class Rematerialize(Pass):
    """Save little and compute the rest again, in functions whose first result is a loss: those that donate
    (``__step``), and adjoints. The function must be canonical: one block of calls.

    Checks: a function with a MatchCast stays. What is computed again is elementwise, of the same expressions.
    """

    def run(self, module: IRModule) -> IRModule:
        result = module.copy()
        for name, function in module.items():
            if not isinstance(function, Function) or not ("donate" in function.attrs or name.endswith("_adjoint")):
                continue
            if function.bindings and all(isinstance(b, VarBinding) for b in function.bindings):
                result[name] = _Rematerialize(function).function(function)
        return result


class _Rematerialize(ExprMutator):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.value: dict[Var, Any] = {b.var: b.value for b in function.bindings}
        self.reads = {var: tuple(dict.fromkeys(used_vars(value))) for var, value in self.value.items()}
        self.readers: dict[Var, list[Var]] = {}
        for var, sources in self.reads.items():
            for source in sources:
                self.readers.setdefault(source, []).append(var)
        # Asked once of calls that do the same.
        self.is_elementwise, self.moves, self.contracts = map(once, (is_elementwise, moves_elements, contracts))
        self.is_cheap, self.products = once(is_cheap), once(products)
        self.is_summed = functools.cache(self._is_summed)
        self.results = set(used_vars(function.body.body))
        self.forward = self.needed_by(next(used_vars(function.body.body), None))
        self.early = self.found_early(set(function.params))
        self.wanted, self.whole = self.found_wanted()
        self.again = self.not_saved()
        self.apart = {s for v in self.again if self.joins(v) for s in self.reads[v] if s in self.value} - self.again
        self.copies: dict[Var, Var] = {}
        self.views: dict[Var, Var] = {}

    def needed_by(self, result: Var | None) -> set[Var]:
        found: set[Var] = set()
        stack = [result] if result in self.value else []
        while stack:
            var = stack.pop()
            if var in self.value and var not in found:
                found.add(var)
                stack.extend(self.reads[var])
        return found

    def found_early(self, params: set[Var]) -> set[Var]:
        """Elementwise values of the backward part that need values of the forward part, and no others."""
        found: set[Var] = set()
        for var, value in self.value.items():
            if var in self.forward or var in self.results or not self.is_elementwise(value):
                continue
            inner = [source for source in self.reads[var] if source not in params]
            if inner and all(source in self.forward or source in found for source in inner):
                found.add(var)
        return found

    def found_wanted(self) -> tuple[set[Var], dict[Var, int]]:
        """The values of both kinds that the rest of the backward part reads; and those that contractions read, perhaps
        in another arrangement, with the products that the least of these sums up."""
        wanted: set[Var] = set()
        whole: dict[Var, int] = {}
        for reader, value in self.value.items():
            if reader in self.forward or reader in self.early:
                continue
            sources = {s for s in self.reads[reader] if s in self.forward or s in self.early}
            wanted |= sources
            for var in map(self.unmoved, sources if self.contracts(value) else ()):
                whole[var] = min(self.products(value), whole.get(var, self.products(value)))
        return wanted, whole

    def unmoved(self, var: Var) -> Var:
        """The value of which this one is another arrangement, or itself."""
        while self.may_be_again(var) and self.moves(self.value[var]):
            inner = [source for source in self.reads[var] if source in self.value]
            if len(inner) != 1:
                break
            (var,) = inner
        return var

    # -- what to save

    def not_saved(self) -> set[Var]:
        """The values that are computed in the backward part: early ones, and those of the forward part again."""
        vertices = [v for v in self.value if v in self.forward or v in self.early]
        edges = {v: [r for r in self.readers.get(v, ()) if self.may_be_again(r)] for v in vertices}
        kept = [v for v in vertices if not self.may_be_again(v) or self.whole.get(v, math.inf) < _WORTH * _elements(v)]
        largest = max(map(_nbytes, vertices), default=0)
        saved = min_vertex_cut({v: self.weight(v, largest) for v in vertices}, edges, kept, self.wanted)
        again: set[Var] = set()
        stack = [*(v for v in self.early), *self.wanted]
        while stack:
            var = stack.pop()
            if var not in again and var not in saved and var in self.value and self.may_be_again(var):
                again.add(var)
                stack.extend(self.reads[var])
        return again

    def may_be_again(self, var: Var) -> bool:
        return (var in self.forward or var in self.early) and self.is_elementwise(self.value[var])

    def weight(self, var: Var, largest: int) -> int:
        """What it costs to have the value in memory: its bytes, and a quarter more where that is worth avoiding."""
        if is_view(self.value[var]):  # its argument is cut
            return ENDLESS
        if var in self.results or _SMALL * _nbytes(var) <= largest:
            return 0
        return _nbytes(var) * (5 if self.is_cheap(self.value[var]) and not self.is_summed(var) else 4)

    def _is_summed(self, var: Var) -> bool:
        """Whether somebody in the forward part needs the value in memory, who is not elementwise."""
        for reader in self.readers.get(var, ()):
            if reader in self.forward:
                value = self.value[reader]
                if self.is_summed(reader) if self.moves(value) else not self.is_elementwise(value):
                    return True
        return False

    # -- the new function

    def rewrite_binding(self, binding: Binding) -> None:
        var = binding.var
        if var in self.forward or (var in self.early and var not in self.again):
            return super().rewrite_binding(binding)
        sources = [v for v in self.reads[var] if v in self.forward or (v in self.early and v not in self.again)]
        own: dict[Expr, Expr] = {v: self.env[v] for v in sources}
        self.env |= {v: self.operand(v, var) for v in sources}
        super().rewrite_binding(binding)
        self.env |= own
        if var in self.again and var in self.whole:
            self.env[var] = self.view(as_var(self.env[var]))
        return None

    def operand(self, var: Var, reader: Var) -> Any:
        """What a reader in the backward part takes for a value: itself if it is saved, or what is computed again."""
        if var not in self.value:
            return var
        if var not in self.again:
            if var not in self.apart or not self.joins(reader):
                return self.env[var]
            if var not in self.views:
                self.views[var] = self.view(as_var(self.env[var]))
            return self.views[var]
        if var not in self.copies:
            mutator = ExprMutator()
            mutator.env = {v: self.operand(v, var) for v in self.reads[var]}
            copy = self.builder.emit(mutator.expr(self.value[var]), f"{var.name}_cp")
            self.copies[var] = self.view(copy) if var in self.whole else copy
        return self.copies[var]

    def joins(self, reader: Var) -> bool:
        """Whether FuseOps might make one kernel of the reader and of what it reads."""
        return not self.moves(self.value[reader]) and not self.contracts(self.value[reader])

    def view(self, var: Var) -> Var:
        """The same memory under a name that FuseOps does not look behind."""
        name = var.name if var.name.endswith("_cp") else f"{var.name}_cp"
        return self.builder.emit(Op.get("reshape")(var, var.shape), name)


def _elements(var: Var) -> int:
    return math.prod(as_tensor(var.struct_info).static_shape)


def _nbytes(var: Var) -> int:
    info = var.struct_info
    return math.prod(info.static_shape) * nbytes(info.dtype) if isinstance(info, TensorStructInfo) else 0
