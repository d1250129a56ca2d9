"""Which parameters values move with: the derivative of a value is not 0 for these alone.

    y = floor(a) * b                 y moves with b, not with a
    for k in range(n): s, t = t, s   s and t move with what either of them began with

Every parameter has a bit. A value that is no float moves with nothing, nor does what an op gives whose derivative is 0
everywhere. What a loop gives moves with what its body makes of that, any number of times; of a recursive function all
calls are taken for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.relax.control import BRANCH, LOOP
from pullback.relax.expr import Binding, Call, Function, Tuple, TupleGetItem, Var
from pullback.relax.op.family import zero_gradient
from pullback.relax.recursion import RECURSE, SELF
from pullback.relax.struct_info import TupleStructInfo, fields_of, has_adjoint

Nested = Any  # the bits of a tensor; of a tuple, a tuple of them, or the bits of all its fields


def is_differentiable(info: Any) -> bool:
    """Whether there is a float in it, or a handle."""
    return any(map(is_differentiable, info.fields)) if isinstance(info, TupleStructInfo) else has_adjoint(info)


@dataclass
class Calls:
    """The bits of the parameters and results of a recursive function, in all calls of it that were met."""

    params: list[int]
    results: list[int]


class Roots:
    """What is known of the values of one function, of whose parameters ``params`` gives the bits."""

    def __init__(
        self, params: Mapping[Var, Nested], bindings: Iterable[Binding] = (), around: Mapping[str, Calls] | None = None
    ) -> None:
        self.values: dict[Var, Nested] = dict(params)
        self.given = dict(params)  # among them may be variables that bindings bind
        self.beginnings: set[Var] = set()  # of those: what moves with nothing but itself
        self.around = around or {}
        self.follow(bindings)

    def follow(self, bindings: Iterable[Binding]) -> None:
        """Find the bits of what these bind, which read what is known."""
        for binding in bindings:
            found = self.nested(binding.value)
            if binding.var in self.given:
                if not _all(found):
                    self.beginnings.add(binding.var)
                found = _all(found) | self.given[binding.var]
            self.values[binding.var] = found

    def passes_on(self, binding: Binding) -> bool:
        """Whether what a binding reads moves with anything wanted."""
        return binding.var not in self.beginnings

    def of(self, expr: Any) -> int:
        """The bits of a tensor, or of all that is in a tuple."""
        return _all(self.nested(expr))

    def of_all(self, exprs: Iterable[Any]) -> int:
        return _all(tuple(map(self.nested, exprs)))

    def nested(self, expr: Any) -> Nested:
        if isinstance(expr, Var):
            return self.values.get(expr, 0)
        if isinstance(expr, Tuple):
            return tuple(map(self.nested, expr.fields))
        if isinstance(expr, TupleGetItem):
            whole = self.nested(expr.tuple_value)
            found = whole[expr.index] if isinstance(whole, tuple) else whole
            return found if is_differentiable(expr.struct_info) else 0
        if not isinstance(expr, Call) or getattr(expr.op, "gradient", None) is zero_gradient:
            return 0
        if expr.op is BRANCH:
            results = [
                results_roots(expr.attrs[name], self.region_params(expr), self.around) for name in ("then", "otherwise")
            ]
            return tuple(_all(pair) for pair in zip(*results, strict=True))
        if expr.op is LOOP:
            carries, ys = results_roots(expr.attrs["body"], self.region_params(expr), self.around)
            return (tuple(_all(pair) for pair in zip(carries, self.fields(expr.args[1]), strict=True)), ys, 0)
        if expr.op is RECURSE:
            return tuple(self.recursion(expr).results)
        if expr.op is SELF and expr.attrs["label"] in self.around:
            calls = self.around[expr.attrs["label"]]
            calls.params[:] = [a | b for a, b in zip(calls.params, self.fields(expr.args[0]), strict=True)]
            return tuple(calls.results)
        return self.of_all(expr.args) if is_differentiable(expr.struct_info) else 0

    def recursion(self, call: Call) -> Calls:
        """The bits of the parameters and results of a recursive function, in all of its calls."""
        function: Function = call.attrs["function"]
        calls = Calls(self.fields(call.args[0]), [0] * len(fields_of(call.struct_info)))
        while True:
            before = list(calls.params), list(calls.results)
            found = results_roots(function, calls.params, {**self.around, call.attrs["label"]: calls})
            calls.results[:] = [a | _all(b) for a, b in zip(calls.results, found, strict=True)]
            if before == (calls.params, calls.results):
                return calls

    def fields(self, expr: Any) -> list[int]:
        """The bits of each field of a tuple of tensors."""
        found = self.nested(expr)
        return list(map(_all, found)) if isinstance(found, tuple) else [found] * len(expr.struct_info.fields)

    def region_params(self, call: Call) -> list[int]:
        """The bits of the parameters of a branch's regions, of a loop's body, or of a recursive function."""
        if call.op is BRANCH:
            return self.fields(call.args[1])
        if call.op is RECURSE:
            return self.recursion(call).params
        carries, xs, invariants = map(self.fields, call.args[1:])
        while True:
            after = results_roots(call.attrs["body"], [0, *carries, *xs, *invariants], self.around)[0]
            reached = [a | b for a, b in zip(carries, after, strict=True)]
            if reached == carries:
                return [0, *carries, *xs, *invariants]
            carries = reached


def results_roots(region: Function, params: Sequence[int], around: Mapping[str, Calls] | None = None) -> Nested:
    """The bits of what a region gives, of whose parameters these are the bits. ``around``: the recursive functions
    around it, by their labels."""
    bits = {p: b if has_adjoint(p.struct_info) else 0 for p, b in zip(region.params, params, strict=True)}
    return Roots(bits, region.bindings, around).nested(region.body.body)


def _all(nested: Nested) -> int:
    if not isinstance(nested, tuple):
        return nested
    found = 0
    for part in nested:
        found |= _all(part)
    return found
