"""MergeComposite: places that match a pattern become calls of functions that are marked ``Composite``.

MergeComposite([("mine.dense_relu", is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard())))])

nn.relu(nn.dense(%x, %w))    →    %1 = fn (%a, %b, Composite="mine.dense_relu", …) {
                                    %0 = nn.dense(%a, %b);
                                    nn.relu(%0)
                                  };
                                  %1(%x, %w)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.arguments import sequence
from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.relay.dataflow_pattern import DFPattern, partition
from pullback.relay.expr import Function
from pullback.relay.infer import infer_expr
from pullback.relay.transform.infra import FunctionPass


@dataclass(frozen=True)
class MergeComposite(FunctionPass):
    """Take the patterns in their order: ``(name, pattern)``, or ``(name, pattern, check)`` with a function that says of
    the matched expression whether it counts.

    Checks: raises ArgumentError for entries of another form. What a check declines stays.
    """

    pattern_table: Sequence[tuple[Any, ...]]

    typed = True

    def __post_init__(self) -> None:
        table = tuple(_entry(entry) for entry in sequence("pattern_table", self.pattern_table))
        vars(self)["pattern_table"] = table

    def function(self, function: Function, module: IRModule) -> Function:
        for name, pattern, check in self.pattern_table:
            found = partition(pattern, function, {"Composite": name}, check)
            function = infer_expr(found, module)
        return function


def _entry(entry: Any) -> tuple[Any, ...]:
    parts = sequence("an entry of pattern_table", entry)
    fits = len(parts) in (2, 3) and isinstance(parts[0], str) and isinstance(parts[1], DFPattern)
    if not fits or not all(callable(check) for check in parts[2:]):
        hint = 'write ("name", pattern) or ("name", pattern, check)'
        raise ArgumentError("pattern_table has names, patterns and checks", hint=hint)
    return parts if len(parts) == 3 else (*parts, lambda expr: True)
