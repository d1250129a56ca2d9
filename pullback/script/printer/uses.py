"""Until where the variables of a body are read: a later variable may have the name of one that is not read any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pullback.relax.analysis import used_vars
from pullback.relax.expr import DataflowBlock, DataflowVar, Function, SeqExpr, Var

Dead = Callable[[Any], bool]


class Uses:
    """The places, counted by bindings, where the variables of a body are last read.

    ``dead_after`` says it of the variables around the body, for the time after it; ``behind`` holds, for variables that
    functions are bound to, what those read around them: whoever reads such a variable reads that too.
    """

    def __init__(self, body: SeqExpr, dead_after: Dead, behind: dict[Var, tuple[Var, ...]]) -> None:
        self.dead_after, self.behind = dead_after, behind
        self.last: dict[Var, float] = {}
        self.count: dict[Var, int] = {}
        place = 0
        for block in body.blocks:
            for binding in block.bindings:
                self._note(binding.value, place)
                if isinstance(binding.value, Function):
                    behind[binding.var] = tuple(dict.fromkeys(self.read(binding.value)))
                place += 1
            if isinstance(block, DataflowBlock):  # R.output reads what leaves the block
                for binding in block.bindings:
                    if not isinstance(binding.var, DataflowVar):
                        self.last[binding.var] = place - 0.5
        self._note(body.body, float("inf"))

    def _note(self, value: Any, place: float) -> None:
        for var in self.read(value):
            self.last[var] = place
            self.count[var] = self.count.get(var, 0) + 1

    def read(self, value: Any) -> Iterator[Var]:
        """The variables that are read where a value is, those behind functions too."""
        for var in used_vars(value):
            yield var
            yield from self.behind.get(var, ())

    def dead(self, place: int) -> Dead:
        """Whether a variable is not read after the binding of that number."""

        def is_dead(symbol: Any) -> bool:
            return isinstance(symbol, Var) and self.last.get(symbol, -1) <= place and self.dead_after(symbol)

        return is_dead
