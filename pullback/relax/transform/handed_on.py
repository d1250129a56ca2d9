"""What a closed recursive function does with its operands: which all of its calls hand on as they are, and which it
reads otherwise.

    def f(n, w): return w * call_self(n - 1, w)     hands w on, and reads n and w
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.relax.analysis import used_vars
from pullback.relax.control import BRANCH, LOOP
from pullback.relax.expr import Call, Function, Tuple, Var, VarBinding
from pullback.relax.recursion import RECURSE, SELF
from pullback.relax.regions import regions

Known = Mapping[Any, int]  # the operands that variables are, by number


class HandedOn:
    """``kept``: the numbers of operands that all calls hand on as they are; ``read``: those that anything else has a
    use for."""

    def __init__(self, function: Function, label: str) -> None:
        self.label = label
        self.kept = set(range(len(function.params)))
        self.read: set[int] = set()
        self.region(function, {p: k for k, p in enumerate(function.params)})

    def region(self, function: Function, params: Known) -> None:
        known = dict(params)
        for binding in function.bindings:
            value = binding.value
            if isinstance(value, Var) and value in known and isinstance(binding, VarBinding):
                known[binding.var] = known[value]
            elif isinstance(value, Call):
                self.call(value, known)
            else:
                self.reads(value, known)
        self.reads(function.body.body, known)

    def call(self, call: Call, known: Known) -> None:
        if call.op is SELF and call.attrs["label"] == self.label:
            for k, value in enumerate(_fields(call.args[0])):
                if known.get(value) != k:
                    self.kept.discard(k)
                    self.reads(value, known)
        elif call.op is BRANCH:
            self.reads(call.args[0], known)
            for _, region in regions(call):
                self.inside(region, list(zip(region.params, _fields(call.args[1]), strict=True)), known)
        elif call.op is LOOP:
            self.reads(Tuple(call.args[:3]), known)
            same = _fields(call.args[3])
            for _, region in regions(call):
                params = region.params[len(region.params) - len(same) :]
                self.inside(region, list(zip(params, same, strict=True)), known)
        elif call.op is RECURSE and call.attrs["label"] != self.label:
            function: Function = call.attrs["function"]
            inner, values = HandedOn(function, call.attrs["label"]), _fields(call.args[0])
            pairs = list(zip(function.params, values, strict=True))
            self.reads(Tuple(tuple(v for k, v in enumerate(values) if k not in inner.kept)), known)
            self.inside(function, [pairs[k] for k in sorted(inner.kept)], known)
        else:
            self.reads(call, known)

    def inside(self, region: Function, pairs: Sequence[tuple[Var, Any]], known: Known) -> None:
        self.region(region, {param: known[value] for param, value in pairs if value in known})

    def reads(self, expr: Any, known: Known) -> None:
        self.read.update(known[v] for v in used_vars(expr) if v in known)


def _fields(value: Any) -> Sequence[Any]:
    """The fields of a tuple; of one that is not written out, as many that nobody knows."""
    return value.fields if isinstance(value, Tuple) else [value] * len(value.struct_info.fields)
