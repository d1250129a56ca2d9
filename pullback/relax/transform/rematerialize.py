"""Rematerialize: what is cheap is computed again where the backward part reads it, instead of being saved.

    h = R.nn.relu(R.matmul(x, w))                      h = R.nn.relu(R.matmul(x, w))
    …                                                  …
                                                       h_cp = R.reshape(h, …)              # the same memory
    mask = R.greater(h, 0)          # next to h   →    mask = R.greater(h_cp, 0)           # next to its reader
    dz = R.where(mask, dh, 0)                          dz = R.where(mask, dh, 0)

The *forward part* is what the first result (the loss) needs; the rest is the *backward part*. A value counts as cheap
when its element is a few additions, comparisons and the like of elements of one large tensor, and of small ones (a
bias, a row's mean), and that large tensor is kept for the backward part anyway, by something that is not cheap. Then

  - a cheap op of the backward part that reads the forward part is done where it is read, not beside its argument;
  - a cheap value of the forward part is computed again, under the name ``v_cp``, for readers that take it elementwise.

So nothing is read more than before but that large tensor, which is larger than what was saved by at most the factor of
the dtypes' sizes. The expressions are the same; a sum that they are fused into may run through its axes in another
order, so that its last bits can differ. FuseOps would join what is computed again with the kernel of its argument. A
view of the argument, which costs nothing and is never fused, stands between.
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
from pullback.relax.expr import Binding, Call, Function, Var, VarBinding
from pullback.relax.mutator import ExprMutator
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.compose import contracts, is_view, op_stages
from pullback.relax.transform.structure import once
from pullback.te.graph import body_expr, is_index_map
from pullback.tir.expr import Call as ScalarCall
from pullback.tir.visitor import walk

_MOST_NODES = 12  # of the scalar expression of a cheap op
_MOST_OPS = 6  # of a chain that is computed again
_SMALL = 16  # a tensor is small beside one that has this many times its elements
_CHEAP_CALLS = ("abs", "not", "isnan", "isinf", "isfinite", "fma")


@dataclass(frozen=True)
class Rematerialize(Pass):
    """Compute cheap values again in the backward part of functions whose first result is a loss: those that donate
    (``__step``), and adjoints. The function must be canonical: one block of calls."""

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
        self.definition: dict[Var, Binding] = {b.var: b for b in function.bindings}
        self.readers: dict[Var, list[Binding]] = {}
        for binding in function.bindings:
            for var in dict.fromkeys(used_vars(binding.value)):
                self.readers.setdefault(var, []).append(binding)
        self.results = set(used_vars(function.body.body))
        self.forward = self.needed_by(next(used_vars(function.body.body), None))
        self.params = set(function.params)
        # Asked again and again of the same calls and variables.
        self.cheap, self.moves_elements, self.contracts = map(once, (_is_cheap, _moves_elements, contracts))
        self.roots = functools.cache(self._roots)
        self.backward_readers = functools.cache(self._backward_readers)
        self.copies: dict[Var, Var] = {}
        self.aliases: dict[Var, Var] = {}

    def needed_by(self, result: Var | None) -> set[Var]:
        found: set[Var] = set()
        stack = [result] if result in self.definition else []
        while stack:
            var = stack.pop()
            if var in self.definition and var not in found:
                found.add(var)
                stack.extend(used_vars(self.definition[var].value))
        return found

    # -- what may be computed again

    def is_cheap(self, var: Var) -> bool:
        return var in self.definition and self.cheap(self.definition[var].value)

    def _backward_readers(self, var: Var) -> list[Binding]:
        """Those outside the forward part, seen through ops that only move elements."""
        found = []
        for binding in self.readers.get(var, ()):
            if binding.var in self.forward:
                continue
            if self.moves_elements(binding.value):
                found.extend(self.backward_readers(binding.var))
            else:
                found.append(binding)
        return found

    def is_kept(self, var: Var) -> bool:
        """Whether the tensor lives in the backward part anyway, because something that is not cheap reads it there."""
        readers = self.backward_readers(var)
        return var in self.params or any(not self.cheap(b.value) for b in readers)

    def joins_readers(self, var: Var) -> bool:
        """Whether all readers in the backward part take the value elementwise: none needs it in memory."""
        readers = self.backward_readers(var)
        return var not in self.results and bool(readers) and not any(self.contracts(b.value) for b in readers)

    def _roots(self, var: Var) -> set[Var] | None:
        """The tensors of the forward part from which a cheap chain computes ``var``, or None when it is no chain that
        may be computed again: exactly one of them is large, and it is kept."""
        found: set[Var] = set()
        stack, count = [var], 0
        while stack:
            current = stack.pop()
            count += 1
            for source in dict.fromkeys(used_vars(self.definition[current].value)):
                small = _SMALL * _elements(source) <= _elements(var)
                inner = source in self.definition and self.is_cheap(source) and not self.is_kept(source)
                if inner and not small:
                    stack.append(source)
                else:
                    found.add(source)
        large = [s for s in found if _SMALL * _elements(s) > _elements(var)]
        one = len(large) == 1 and self.is_kept(large[0]) and (found & (self.forward | self.params)) == found
        return found if one and count <= _MOST_OPS else None

    @functools.cached_property
    def again(self) -> set[Var]:
        """Values of the forward part that are computed again in the backward part."""
        wanted = set()
        for var in self.forward:
            if self.is_cheap(var) and self.joins_readers(var):
                roots = self.roots(var)
                if roots is not None and roots - self.params != set():
                    wanted.add(var)
        return wanted

    # -- the new function

    def rewrite_binding(self, binding: Binding) -> None:
        if binding.var in self.forward:
            return super().rewrite_binding(binding)
        value = binding.value
        sources = [v for v in dict.fromkeys(used_vars(value)) if v in self.forward]
        moved = self.is_cheap(binding.var) and self.joins_readers(binding.var) and self.roots(binding.var) is not None
        saved = {v: self.env[v] for v in sources}
        for var in sources:
            if var in self.again:
                self.env[var] = self.copy(var)
            elif moved:
                self.env[var] = self.alias(var)
        super().rewrite_binding(binding)
        self.env |= saved
        return None

    def copy(self, var: Var) -> Var:
        """``var`` computed again from its roots."""
        if var not in self.copies:
            roots = self.roots(var)
            assert roots is not None
            self.copies[var] = self.again_from(var, roots)
        return self.copies[var]

    def again_from(self, var: Var, roots: set[Var]) -> Var:
        if var in self.params:
            return var
        if var in roots:
            return self.alias(var)
        call = self.definition[var].value
        mutator = ExprMutator()
        mutator.env = {v: self.again_from(v, roots) for v in dict.fromkeys(used_vars(call))}
        return self.builder.emit(mutator.expr(call), f"{var.name}_cp")

    def alias(self, var: Var) -> Var:
        """The same memory under a name that FuseOps does not look behind."""
        if var not in self.aliases:
            shape = tuple(var.struct_info.shape)
            self.aliases[var] = self.builder.emit(Op.get("reshape")(self.env[var], shape), f"{var.name}_cp")
        return self.aliases[var]


def _elements(var: Var) -> int:
    info = var.struct_info
    return math.prod(info.shape) if isinstance(info, TensorStructInfo) else 1 << 62  # type: ignore[arg-type]


def _moves_elements(call: Any) -> bool:
    if is_view(call):
        return True
    found = op_stages(call)
    return len(found) == 1 and is_index_map(found[0])


def _is_cheap(call: Any) -> bool:
    """Whether an element of the result is little arithmetic, without sums."""
    if not isinstance(call, Call):
        return False
    found = op_stages(call)
    if not found or any(s.is_reduction for s in found):
        return False
    nodes = [n for s in found for n in walk(body_expr(s))]
    calls = [n for n in nodes if isinstance(n, ScalarCall)]
    return len(nodes) <= _MOST_NODES and all(c.name in _CHEAP_CALLS for c in calls)
