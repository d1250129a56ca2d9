"""Recursive functions without what nobody needs.

    an operand that is only handed on; a result that nobody reads, or only it itself        →   gone
    an operand that is handed on as it is, and a constant                                   →   the constant
    a function that does not call itself any more                                           →   what it computes

Gradients make such functions: of what an adjoint gives, and of what it might read, not all is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback.relax.analysis import used_vars
from pullback.relax.control import BRANCH
from pullback.relax.expr import Binding, Call, Constant, DataflowVar, Expr, Function, Tuple, TupleGetItem, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.recursion import RECURSE, SELF, call_self, recurse
from pullback.relax.regions import regions, with_regions
from pullback.relax.struct_info import fields_of
from pullback.relax.transform.handed_on import HandedOn


@dataclass(frozen=True)
class Kept:
    """What is kept of a recursive function: the numbers of operands and of results. ``known``: constants that other
    operands are."""

    operands: Sequence[int]
    results: Sequence[int]
    known: Mapping[int, Constant]


def simpler_recursion(call: Call, used: Collection[int]) -> tuple[Call, Sequence[int]] | None:
    """The call without what nobody needs, and which of its results are left; None where all is needed. ``used``: the
    results that are read outside."""
    function, label = call.attrs["function"], call.attrs["label"]
    values, count = call.args[0].fields, len(fields_of(call.struct_info))
    handed = HandedOn(function, label)
    constants = {k: v for k, v in enumerate(values) if k in handed.kept and isinstance(v, Constant)}
    operands = [k for k in range(len(values)) if k not in constants and (k in handed.read or k not in handed.kept)]
    read = _needed_results(function, label, used)
    results = [k for k in range(count) if k in read]
    if len(operands) == len(values) and len(results) == count:
        return None
    kept = Kept(operands, results, constants)
    smaller = _Smaller(label, kept, count).whole(function)
    made = recurse([values[k] for k in operands], smaller, label, call.attrs["max_depth"])
    return replace(made, span=call.span), results


def _needed_results(function: Function, label: str, used: Collection[int]) -> set[int]:
    """The results that are read outside, and those that the function reads of its own calls to compute such."""
    found = set(used)
    while True:
        more = found | set(_read_inside(function, label, found))
        if more == found:
            return found
        found = more


def _read_inside(function: Function, label: str, wanted: Collection[int] | None = None) -> Iterator[int]:
    """The results of a function's calls of itself that a region reads for these of its results, or for all of them."""
    result = function.body.body
    read: dict[Var, set[int] | None] = {}  # the items that are read of a variable; None: all of it

    def reads(expr: Any) -> None:
        read.update((v, None) for v in used_vars(expr))

    for k in range(len(fields_of(result.struct_info))) if wanted is None else wanted:
        reads(result.fields[k] if isinstance(result, Tuple) else result)
    for binding in reversed(list(function.bindings)):
        if binding.var not in read:
            continue
        value, items = binding.value, read[binding.var]
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var):
            others = read.setdefault(value.tuple_value, set())
            if others is not None:
                others.add(value.index)
            continue
        reads(value)
        if not isinstance(value, Call):
            continue
        if value.op is SELF and value.attrs["label"] == label:
            yield from range(len(fields_of(value.struct_info))) if items is None else items
        elif value.op is not RECURSE or value.attrs["label"] != label:
            for _, region in regions(value):
                yield from _read_inside(region, label, items if value.op is BRANCH else None)


class _Smaller(ExprMutator):
    """Rewrites the calls of a function by itself."""

    def __init__(self, label: str, kept: Kept, count: int) -> None:
        super().__init__()
        self.label, self.kept, self.count = label, kept, count

    def whole(self, function: Function) -> Function:
        """The function with fewer parameters and results."""
        kept = self.kept
        self.builder.begin([p.name for p in function.params])
        self.env = {p: kept.known.get(k, p) for k, p in enumerate(function.params)}
        with self.builder.dataflow():
            for binding in function.bindings:
                self.rewrite_binding(binding)
            fields = [self.expr(function.body.body.fields[k]) for k in kept.results]
            result = self.builder.as_output(Tuple(tuple(fields)))
        params = tuple(function.params[k] for k in kept.operands)
        return Function(params, self.builder.finish(result), None, function.attrs, span=function.span)

    def rewrite_binding(self, binding: Binding) -> None:
        value: Any = binding.value
        if not isinstance(value, Call) or value.op is not SELF or value.attrs["label"] != self.label:
            super().rewrite_binding(binding)
            return
        emit = self.builder.emit if isinstance(binding.var, DataflowVar) else self.builder.emit_output
        values, infos = self.expr(value.args[0]).fields, fields_of(value.struct_info)
        call = call_self([values[k] for k in self.kept.operands], self.label, [infos[k] for k in self.kept.results])
        whole = emit(replace(call, span=value.span), binding.var.name)
        self.env[binding.var] = filled(infos, whole, self.kept.results)

    def expr(self, expr: Any) -> Any:
        if isinstance(expr, TupleGetItem):
            whole = super().expr(expr.tuple_value)
            if isinstance(whole, Tuple):
                return whole.fields[expr.index]
        return super().expr(expr)

    def rewrite_call(self, call: Call) -> Expr:
        if call.op is RECURSE and call.attrs["label"] == self.label:
            return call
        changed = {name: self.inside(region) for name, region in regions(call)}
        return with_regions(call, changed) if changed else call

    def inside(self, region: Function) -> Function:
        return _Smaller(self.label, self.kept, self.count).function(region)


def filled(infos: Sequence[Any], whole: Expr, results: Sequence[int]) -> Tuple:
    """The items of a tuple at their numbers; the others are variables of their types, which nobody reads."""
    places = {k: n for n, k in enumerate(results)}
    return Tuple(
        tuple(TupleGetItem(whole, places[k]) if k in places else Var("unread", i) for k, i in enumerate(infos))
    )
