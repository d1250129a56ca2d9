"""Code that partial evaluation leaves: bindings in order, each of which is written only if somebody needs it.

A binding has its place from the moment at which it is made, so whenever it turns out to be needed, it is computed where
the program computes it. What it needs itself is asked for then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pullback.relay.expr import Expr, If, Let, Tuple, TupleGetItem, Var


class Agenda:
    """Bindings that are needed and have not asked yet for what they need."""

    def __init__(self) -> None:
        self._pending: list[Binding] = []
        self._begun = 0

    def add(self, binding: Binding) -> None:
        self._pending.append(binding)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What was needed before waits until this ends."""
        before, self._begun = self._begun, len(self._pending)
        try:
            yield
        finally:
            self._begun = before

    def drain(self) -> None:
        """Ask for all that is needed."""
        while len(self._pending) > self._begun:
            self._pending.pop().prepare()


class Block:
    """Bindings of one scope. ``function`` is the block of the function in which it is; ``owner`` the binding whose
    value the block is a part of."""

    def __init__(self, agenda: Agenda, function: Block | None = None) -> None:
        self.agenda = agenda
        self.function = function or self
        self.owner: Binding | None = None
        self.bindings: list[Binding] = []
        self.needed = False

    def bind(self, name: str, make: Callable[[], Any], span: Any, effect: bool = False) -> Binding:
        """A new last binding of what ``make`` returns: an expression, or a function that returns it when all is known.
        With an ``effect`` it is needed."""
        binding = Binding(self, Var(name, span=span), make)
        self.bindings.append(binding)
        if effect:
            binding.need()
        return binding

    def need(self) -> None:
        """Something in the block is needed, so the block is."""
        self.needed = True
        if self.owner is not None:
            self.owner.need()

    def belongs_to(self, owner: Binding) -> None:
        self.owner = owner
        if self.needed:
            owner.need()

    def build(self, result: Any) -> Expr:
        """The needed bindings around the result."""
        for binding in reversed(self.bindings):
            if binding.needed:
                result = binding.around(result)
        return result


class Binding:
    """One variable and how its value is made."""

    def __init__(self, block: Block, variable: Var, make: Callable[[], Any]) -> None:
        self.block, self.variable, self.make = block, variable, make
        self.needed = False
        self.value: Any = None

    def need(self) -> Var:
        """The variable, which is to be bound."""
        if not self.needed:
            self.needed = True
            self.block.agenda.add(self)
            self.block.need()
        return self.variable

    def prepare(self) -> None:
        self.value = self.make()

    def around(self, body: Any) -> Expr:
        value = self.value if isinstance(self.value, Expr) else self.value()
        return Let(self.variable, value, body, span=value.span)


class Branches(Binding):
    """A binding whose value is what one of several blocks gives, by a condition that only running tells.

    Its results are *slots*: a value for each block. Only those that are needed become results: one is the value itself,
    several are a tuple.
    """

    def __init__(self, block: Block, span: Any, name: str, blocks: list[Block], make: Callable[[], Any]) -> None:
        super().__init__(block, Var(name, span=span), make)
        self.blocks = blocks
        self.slots: list[Slot] = []
        block.bindings.append(self)
        for inner in blocks:
            inner.belongs_to(self)

    def slot(self, name: str, atoms: Callable[[], list[Any]]) -> Slot:
        """A result: ``atoms`` asks for what stands for it in each block."""
        return Slot(self, name, atoms)

    def around(self, body: Any) -> Expr:
        results = [self._result(i) for i in range(len(self.blocks))]
        value = self.value([inner.build(r) for inner, r in zip(self.blocks, results, strict=True)])
        variable = self.slots[0].variable if len(self.slots) == 1 else self.variable
        return Let(variable, value, body, span=value.span)

    def _result(self, index: int) -> Any:
        if len(self.slots) == 1:
            return self.slots[0].atoms[index]
        return Tuple(tuple(slot.atoms[index] for slot in self.slots))


class Slot(Binding):
    """One result of :class:`Branches`."""

    def __init__(self, branches: Branches, name: str, atoms: Callable[[], list[Any]]) -> None:
        super().__init__(branches.block, Var(name, span=branches.variable.span), atoms)
        self.branches = branches
        self.atoms: list[Any] = []
        branches.block.bindings.append(self)

    def prepare(self) -> None:
        self.branches.slots.append(self)
        self.branches.need()
        self.atoms = self.make()

    def around(self, body: Any) -> Expr:
        if len(self.branches.slots) == 1:
            return body  # its variable is that of the branches
        value = TupleGetItem(self.branches.variable, self.branches.slots.index(self), span=self.variable.span)
        return Let(self.variable, value, body, span=value.span)


def build_if(cond: Any, span: Any) -> Callable[[list[Expr]], Expr]:
    """How an ``If`` is built of its branches."""
    return lambda bodies: If(cond, bodies[0], bodies[1], span=span)
