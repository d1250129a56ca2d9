"""DeadCodeElimination: what nobody needs is not computed.

    let %x = exp(%a);
    let %r = ref(%a);            let %y = add(%a, %a);
    let %y = add(%a, %a);   →    multiply(%y, %y)
    let %_ = %r := %y;
    multiply(%y, %y)

A binding goes if nobody uses its variable and its value has no effect. Writing to a cell is one only where somebody may
read it: a cell that a ``Let`` binds here, and whose variable stands nowhere but left of ``:=``, goes with its writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard

from pullback.ir.depth import deep
from pullback.relay.duplicate import bound_once
from pullback.relay.expr import Expr, Function, Let, RefCreate, RefWrite, Tuple, Var
from pullback.relay.transform.lets import AT_NO_COST, LetMutator
from pullback.relay.transform.purity import Effect, EffectPass, Purity
from pullback.relay.transform.to_anf import is_primitive
from pullback.relay.visitor import children


@dataclass(frozen=True)
class DeadCodeElimination(EffectPass):
    """``inline_once``: a value without effects that is used once is written where it is used, unless a function would
    compute it at each call. ``ignore_impurity``: values that nobody uses go even where they have effects.

    Checks: values that write, or call what may write, stay, unless ``ignore_impurity`` is set; reads and new cells go.
    The functions of the module are looked into for their effects.
    """

    inline_once: bool = False
    ignore_impurity: bool = False

    opt_level = 1

    def change(self, function: Function, purity: Purity) -> Function:
        return eliminate_dead_code(function, purity, self.inline_once, self.ignore_impurity)


@deep
def eliminate_dead_code(
    expr: Any, purity: Purity | None = None, inline_once: bool = False, ignore_impurity: bool = False
) -> Any:
    """The expression without what nobody needs: see :class:`DeadCodeElimination`. ``purity`` knows the functions of the
    module: those that it does not know may do anything."""
    expr, purity = bound_once(expr), purity or Purity()
    while True:
        live = _Live(expr, purity, ignore_impurity)
        result = _Eliminator(live, purity, inline_once).visit(expr)
        if not live.unread_writes:
            return result
        expr, purity = result, purity.of_globals()  # what wrote to a cell that nobody reads has no effect now


class _Live:
    """Which bindings are needed, and how often each variable is used by what is needed."""

    def __init__(self, root: Any, purity: Purity, ignore_impurity: bool) -> None:
        purity.of(root)
        self.purity, self.ignore_impurity = purity, ignore_impurity
        self.uses: dict[Var, int] = {}
        self.homes: dict[Var, Any] = {}  # of a variable that is bound: the function in which it is
        self.captured: set[Var] = set()  # used in a function inside that
        self.recursive: set[Var] = set()
        self._lets: dict[Var, Let] = {}
        self._needed: set[Var] = set()
        self._unread: dict[Var, list[tuple[RefWrite, Any]]] = {}
        self._pending: list[tuple[Any, Any, Var | None]] = []  # node, the function and the binding that it is in
        self._seen: set[Any] = set()
        self._find(root)
        self._pending.append((root, None, None))
        while self._pending:
            self._visit(*self._pending.pop())

    @property
    def unread_writes(self) -> bool:
        return any(self._unread.values())

    def is_unread(self, write: RefWrite) -> bool:
        """Whether the cell that is written to is one that nobody reads."""
        return isinstance(write.ref, Var) and write.ref in self._unread and write.ref not in self._needed

    def needs(self, let: Let) -> bool:
        """Whether the binding stays."""
        return let.variable in self._needed or self._has_effect(let)

    def _has_effect(self, let: Let) -> bool:
        return not self.ignore_impurity and self.purity.of(let.value) is Effect.WRITES

    def _find(self, root: Any) -> None:
        """All bindings, before any use is met."""
        seen: set[Any] = set()
        pending = [root]
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            if isinstance(node, Let):
                self._lets[node.variable] = node
            pending.extend(children(node))

    def _visit(self, node: Any, function: Any, binding: Var | None) -> None:
        if isinstance(node, Var):
            self._use(node, function, binding)
            return
        if node in self._seen:
            return
        self._seen.add(node)
        if isinstance(node, Let):
            self.homes[node.variable] = function
            if node.variable in self._needed or self._has_effect(node):
                self._pending.append((node.value, function, node.variable))
            self._pending.append((node.body, function, binding))
        elif isinstance(node, Function):
            self._pending.append((node.body, node, binding))
        elif isinstance(node, RefWrite) and self._is_cell(node.ref) and node.ref not in self._needed:
            self._unread.setdefault(node.ref, []).append((node, function))
            if self.purity.of(node.value) is Effect.WRITES:
                self._pending.append((node.value, function, binding))
        else:
            self._pending.extend((child, function, binding) for child in children(node))

    def _is_cell(self, ref: Any) -> TypeGuard[Var]:
        return isinstance(ref, Var) and ref in self._lets and isinstance(self._lets[ref].value, RefCreate)

    def _use(self, variable: Var, function: Any, binding: Var | None) -> None:
        if variable is binding:
            self.recursive.add(variable)
            return
        self.uses[variable] = self.uses.get(variable, 0) + 1
        if variable in self._lets and function is not self.homes.get(variable, function):
            self.captured.add(variable)
        if variable in self._needed or variable not in self._lets:
            return
        self._needed.add(variable)
        let = self._lets[variable]
        self._pending.append((let.value, self.homes.get(variable), variable))
        for write, place in self._unread.pop(variable, []):
            self._pending.extend((child, place, None) for child in children(write))


class _Eliminator(LetMutator):
    def __init__(self, live: _Live, purity: Purity, inline_once: bool) -> None:
        super().__init__()
        self.live, self.purity, self.inline_once = live, purity, inline_once

    def visit_function(self, function: Function) -> Expr:
        return function if is_primitive(function) else super().visit_function(function)

    def binding(self, let: Let) -> Expr | None:
        if not self.live.needs(let):
            return None
        value = self.visit(let.value)
        if not self._goes_inside(let):
            return value
        self.memo_map[let.variable] = value
        return None

    def _goes_inside(self, let: Let) -> bool:
        variable = let.variable
        if not self.inline_once or self.live.uses.get(variable) != 1 or variable in self.live.recursive:
            return False
        if self.purity.of(let.value) is not Effect.NONE:
            return False
        return variable not in self.live.captured or isinstance(let.value, AT_NO_COST)

    def visit_ref_write(self, write: RefWrite) -> Expr:
        if not self.live.is_unread(write):
            return super().visit_ref_write(write)
        nothing = Tuple((), span=write.span)
        if self.purity.of(write.value) is Effect.WRITES:
            return Let(Var("_"), self.visit(write.value), nothing, span=write.span)
        return nothing
